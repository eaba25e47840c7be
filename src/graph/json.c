// JSON values and texts about them. jansson leaves out what it has no memory
// for in several places; here it is all or nothing.

#include "json.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

// --- UTF-8 ------------------------------------------------------------------

// Source: Unicode 15, table 3-7.
size_t stk_utf8_length(const char *s, const char *end)
{
    const unsigned char *u = (const unsigned char *)s;
    const size_t room = (size_t)(end - s);
    if (u[0] < 0x80)
        return 1;
    size_t n;
    unsigned char low = 0x80, high = 0xbf;
    if (u[0] >= 0xc2 && u[0] <= 0xdf) {
        n = 2;
    } else if ((u[0] & 0xf0) == 0xe0) {
        n = 3;
        if (u[0] == 0xe0)
            low = 0xa0;
        else if (u[0] == 0xed)
            high = 0x9f;
    } else if (u[0] >= 0xf0 && u[0] <= 0xf4) {
        n = 4;
        if (u[0] == 0xf0)
            low = 0x90;
        else if (u[0] == 0xf4)
            high = 0x8f;
    } else {
        return 0;
    }
    if (room < n || u[1] < low || u[1] > high)
        return 0;
    for (size_t i = 2; i < n; i++) {
        if ((u[i] & 0xc0) != 0x80)
            return 0;
    }
    return n;
}

bool stk_utf8_valid(const char *s)
{
    const char *end = s + strlen(s);
    while (s < end) {
        const size_t n = stk_utf8_length(s, end);
        if (!n)
            return false;
        s += n;
    }
    return true;
}

// --- making values ----------------------------------------------------------

json_t *stk_json_with(json_t *object, const char *key, json_t *value)
{
    if (json_object_set_new(object, key, value) == 0)
        return object;
    json_decref(object);
    return NULL;
}

json_t *stk_json_append(json_t *array, json_t *value)
{
    if (json_array_append_new(array, value) == 0)
        return array;
    json_decref(array);
    return NULL;
}

json_t *stk_json_text(const char *text)
{
    json_t *value = json_string(text);
    if (value || !text)
        return value;
    char *ascii = strdup(text);
    for (char *c = ascii; c && *c; c++) {
        if ((unsigned char)*c >= 0x80)
            *c = '?';
    }
    value = ascii ? json_string(ascii) : NULL;
    free(ascii);
    return value;
}

json_t *stk_json_count(uint64_t value)
{
    return json_integer((json_int_t)value);
}

json_t *stk_json_copy_object(const json_t *object)
{
    json_t *copy = object ? json_copy((json_t *)object) : json_object();
    // json_copy() leaves out what there is no memory for.
    if (copy && json_object_size(copy) == json_object_size(object))
        return copy;
    json_decref(copy);
    return NULL;
}

char *stk_json_dump(const json_t *value)
{
    const size_t flags =
        JSON_INDENT(2) | JSON_ENCODE_ANY | JSON_REAL_PRECISION(15);
    const size_t length = json_dumpb(value, NULL, 0, flags);
    char *text = length ? malloc(length + 1) : NULL;
    if (!text)
        return NULL;
    if (json_dumpb(value, text, length, flags) != length) {
        free(text);
        return NULL;
    }
    text[length] = 0;
    return text;
}

char *stk_json_dump_new(json_t *value)
{
    char *text = value ? stk_json_dump(value) : NULL;
    json_decref(value);
    return text;
}

// --- values in messages -----------------------------------------------------

static void brief_string(const char *s, char *text, size_t size)
{
    size_t n = 0;
    text[n++] = '"';
    while (*s) {
        const unsigned char c = (unsigned char)*s;
        char piece[8];
        size_t length = stk_utf8_length(s, s + strlen(s));
        if (c == '"' || c == '\\')
            snprintf(piece, sizeof(piece), "\\%c", c);
        else if (c < 0x20 || c == 0x7f)
            snprintf(piece, sizeof(piece), "\\u%04x", c);
        else
            snprintf(piece, sizeof(piece), "%.*s", (int)length, s);
        if (n + strlen(piece) + sizeof("...\"") > size) {
            strcpy(text + n, "...");
            n += 3;
            break;
        }
        strcpy(text + n, piece);
        n += strlen(piece);
        s += length ? length : 1;
    }
    text[n++] = '"';
    text[n] = 0;
}

void stk_number_text(double value, char text[32])
{
    snprintf(text, 32, "%.15g", value);
    // The locale's decimal point is no JSON.
    for (char *c = text; *c; c++) {
        if (*c == ',')
            *c = '.';
    }
}

void stk_json_brief(const json_t *value, char *text, size_t size)
{
    char number[32];
    switch (json_typeof(value)) {
    case JSON_STRING:
        brief_string(json_string_value(value), text, size);
        return;
    case JSON_INTEGER:
        snprintf(text, size, "%" JSON_INTEGER_FORMAT,
                 json_integer_value(value));
        return;
    case JSON_REAL:
        stk_number_text(json_real_value(value), number);
        snprintf(text, size, "%s", number);
        return;
    case JSON_TRUE:
    case JSON_FALSE:
        snprintf(text, size, "%s", json_is_true(value) ? "true" : "false");
        return;
    case JSON_NULL:
        snprintf(text, size, "null");
        return;
    case JSON_OBJECT:
    case JSON_ARRAY:
        break;
    }
    // What does not fit is left out by jansson, piece by piece.
    memset(text, 0, size);
    const size_t length =
        json_dumpb(value, text, size - 4,
                   JSON_ENCODE_ANY | JSON_COMPACT | JSON_REAL_PRECISION(15));
    if (length > size - 4)
        strcat(text, "...");
}
