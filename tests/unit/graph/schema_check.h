#ifndef SCHEMA_CHECK_H
#define SCHEMA_CHECK_H

// A small validator of JSON Schema. It knows the keywords that our schema
// uses; an unknown one fails the test.

#include <math.h>
#include <regex.h>

#include <jansson.h>

#include "pen_test.h"

static inline bool schema_valid(const json_t *root, const json_t *schema,
                                const json_t *value);

static inline const json_t *resolve_ref(const json_t *root, const char *ref)
{
    static const char prefix[] = "#/definitions/";
    assert_int_equal(strncmp(ref, prefix, sizeof(prefix) - 1), 0);
    const json_t *target = json_object_get(json_object_get(root, "definitions"),
                                           ref + sizeof(prefix) - 1);
    if (!target)
        fail_msg("%s leads nowhere", ref);
    return target;
}

static inline bool has_type(const json_t *value, const char *type)
{
    if (strcmp(type, "object") == 0)
        return json_is_object(value);
    if (strcmp(type, "array") == 0)
        return json_is_array(value);
    if (strcmp(type, "string") == 0)
        return json_is_string(value);
    if (strcmp(type, "boolean") == 0)
        return json_is_boolean(value);
    if (strcmp(type, "number") == 0)
        return json_is_number(value);
    assert_string_equal(type, "integer");
    return json_is_number(value) &&
           json_number_value(value) == floor(json_number_value(value));
}

static inline bool has_types(const json_t *value, const json_t *type)
{
    if (json_is_string(type))
        return has_type(value, json_string_value(type));
    for (size_t i = 0; i < json_array_size(type); i++) {
        if (has_type(value, json_string_value(json_array_get(type, i))))
            return true;
    }
    return false;
}

static inline bool matches(const char *pattern, const char *text)
{
    regex_t re;
    assert_int_equal(regcomp(&re, pattern, REG_EXTENDED | REG_NOSUB), 0);
    const bool match = regexec(&re, text, 0, NULL, 0) == 0;
    regfree(&re);
    return match;
}

static inline bool equal(const json_t *a, const json_t *b)
{
    if (json_is_number(a) && json_is_number(b))
        return json_number_value(a) == json_number_value(b);
    return json_equal(a, b);
}

static inline bool valid_members(const json_t *root, const json_t *schema,
                                 const json_t *object)
{
    const json_t *props = json_object_get(schema, "properties");
    const json_t *patterns = json_object_get(schema, "patternProperties");
    const json_t *others = json_object_get(schema, "additionalProperties");
    const char *key, *pattern;
    json_t *value, *rule;
    json_object_foreach ((json_t *)object, key, value) {
        bool known = false;
        if ((rule = json_object_get(props, key))) {
            known = true;
            if (!schema_valid(root, rule, value))
                return false;
        }
        json_object_foreach ((json_t *)patterns, pattern, rule) {
            if (!matches(pattern, key))
                continue;
            known = true;
            if (!schema_valid(root, rule, value))
                return false;
        }
        if (!known && json_is_false(others))
            return false;
    }
    return true;
}

static inline bool valid_keyword(const json_t *root, const json_t *schema,
                                 const char *word, const json_t *rule,
                                 const json_t *value)
{
    const double n = json_number_value(value);
    const double limit = json_number_value(rule);
    if (strcmp(word, "$ref") == 0)
        return schema_valid(root, resolve_ref(root, json_string_value(rule)),
                            value);
    if (strcmp(word, "type") == 0)
        return has_types(value, rule);
    if (strcmp(word, "const") == 0)
        return equal(rule, value);
    if (strcmp(word, "not") == 0)
        return !schema_valid(root, rule, value);
    if (strcmp(word, "minimum") == 0)
        return !json_is_number(value) || n >= limit;
    if (strcmp(word, "maximum") == 0)
        return !json_is_number(value) || n <= limit;
    if (strcmp(word, "exclusiveMinimum") == 0)
        return !json_is_number(value) || n > limit;
    if (strcmp(word, "multipleOf") == 0)
        return !json_is_number(value) || fmod(n, limit) == 0;
    if (strcmp(word, "minProperties") == 0)
        return !json_is_object(value) || json_object_size(value) >= limit;
    if (strcmp(word, "pattern") == 0)
        return !json_is_string(value) ||
               matches(json_string_value(rule), json_string_value(value));
    if (strcmp(word, "if") == 0)
        return !schema_valid(root, rule, value) ||
               schema_valid(root, json_object_get(schema, "then"), value);
    if (strcmp(word, "properties") == 0 ||
        strcmp(word, "patternProperties") == 0)
        return !json_is_object(value) || valid_members(root, schema, value);
    bool any = false, all = true;
    size_t i;
    json_t *item;
    if (strcmp(word, "enum") == 0 || strcmp(word, "anyOf") == 0 ||
        strcmp(word, "allOf") == 0) {
        json_array_foreach ((json_t *)rule, i, item) {
            const bool fits = word[0] == 'e' ? equal(item, value)
                                             : schema_valid(root, item, value);
            any |= fits;
            all &= fits;
        }
        return strcmp(word, "allOf") == 0 ? all : any;
    }
    if (strcmp(word, "required") == 0) {
        json_array_foreach ((json_t *)rule, i, item)
            all &= !json_is_object(value) ||
                   json_object_get(value, json_string_value(item)) != NULL;
        return all;
    }
    if (strcmp(word, "items") == 0) {
        json_array_foreach ((json_t *)value, i, item)
            all &= schema_valid(root, rule, item);
        return all;
    }
    static const char *const silent[] = {
        "$schema",     "title", "description",          "default",
        "definitions", "then",  "additionalProperties",
    };
    for (i = 0; i < sizeof(silent) / sizeof(silent[0]); i++) {
        if (strcmp(word, silent[i]) == 0)
            return true;
    }
    fail_msg("the schema has the keyword %s, which this test does not know",
             word);
    return false;
}

static inline bool schema_valid(const json_t *root, const json_t *schema,
                                const json_t *value)
{
    if (json_is_boolean(schema))
        return json_is_true(schema);
    assert_true(json_is_object(schema));
    const char *word;
    json_t *rule;
    json_object_foreach ((json_t *)schema, word, rule) {
        if (!valid_keyword(root, schema, word, rule, value))
            return false;
    }
    return true;
}

#endif  // SCHEMA_CHECK_H
