#ifndef STK_JSON_H
#define STK_JSON_H

// JSON values that may run out of memory anywhere, and texts about them.

#include <jansson.h>

#include <penstock/base.h>

// NULL stands for a value that could not be made, and spreads: both take
// `value` and return their first argument, or release it and return NULL.
json_t *stk_json_with(json_t *object, const char *key, json_t *value);
json_t *stk_json_append(json_t *array, json_t *value);

// A string. What is no UTF-8 (a file's name, a text that was cut) keeps its
// ASCII characters; every other byte becomes '?'.
json_t *stk_json_text(const char *text);
json_t *stk_json_count(uint64_t value);
// A shallow copy ({} of NULL), or NULL when out of memory.
json_t *stk_json_copy_object(const json_t *object);

// The value as indented text, to be freed; NULL when out of memory.
char *stk_json_dump(const json_t *value);
// The same, and release the value; NULL in, NULL out.
char *stk_json_dump_new(json_t *value);

// The value as JSON text for a message, cut to fit `size`.
void stk_json_brief(const json_t *value, char *text, size_t size);
// The number as JSON text, whatever the locale.
void stk_number_text(double value, char text[32]);

// Bytes of the UTF-8 sequence at `s`, which ends before `end`; 0 if it is none
// (overlong forms and surrogates are none).
size_t stk_utf8_length(const char *s, const char *end);
bool stk_utf8_valid(const char *s);

#endif  // STK_JSON_H
