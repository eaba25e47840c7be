// The schema and the reader agree: what one takes the other takes. The small
// validator below knows the keywords that the schema uses, and no others.

#include <math.h>
#include <regex.h>

#include "graph_fixture.h"

static bool valid(const json_t *root, const json_t *schema,
                  const json_t *value);

static const json_t *resolve_ref(const json_t *root, const char *ref)
{
    static const char prefix[] = "#/definitions/";
    assert_int_equal(strncmp(ref, prefix, sizeof(prefix) - 1), 0);
    const json_t *target = json_object_get(json_object_get(root, "definitions"),
                                           ref + sizeof(prefix) - 1);
    if (!target)
        fail_msg("%s leads nowhere", ref);
    return target;
}

static bool has_type(const json_t *value, const char *type)
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

static bool has_types(const json_t *value, const json_t *type)
{
    if (json_is_string(type))
        return has_type(value, json_string_value(type));
    for (size_t i = 0; i < json_array_size(type); i++) {
        if (has_type(value, json_string_value(json_array_get(type, i))))
            return true;
    }
    return false;
}

static bool matches(const char *pattern, const char *text)
{
    regex_t re;
    assert_int_equal(regcomp(&re, pattern, REG_EXTENDED | REG_NOSUB), 0);
    const bool match = regexec(&re, text, 0, NULL, 0) == 0;
    regfree(&re);
    return match;
}

static bool equal(const json_t *a, const json_t *b)
{
    if (json_is_number(a) && json_is_number(b))
        return json_number_value(a) == json_number_value(b);
    return json_equal(a, b);
}

static bool valid_members(const json_t *root, const json_t *schema,
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
            if (!valid(root, rule, value))
                return false;
        }
        json_object_foreach ((json_t *)patterns, pattern, rule) {
            if (!matches(pattern, key))
                continue;
            known = true;
            if (!valid(root, rule, value))
                return false;
        }
        if (!known && json_is_false(others))
            return false;
    }
    return true;
}

static bool valid_keyword(const json_t *root, const json_t *schema,
                          const char *word, const json_t *rule,
                          const json_t *value)
{
    const double n = json_number_value(value);
    const double limit = json_number_value(rule);
    if (strcmp(word, "$ref") == 0)
        return valid(root, resolve_ref(root, json_string_value(rule)), value);
    if (strcmp(word, "type") == 0)
        return has_types(value, rule);
    if (strcmp(word, "const") == 0)
        return equal(rule, value);
    if (strcmp(word, "not") == 0)
        return !valid(root, rule, value);
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
        return !valid(root, rule, value) ||
               valid(root, json_object_get(schema, "then"), value);
    if (strcmp(word, "properties") == 0 ||
        strcmp(word, "patternProperties") == 0)
        return !json_is_object(value) || valid_members(root, schema, value);
    bool any = false, all = true;
    size_t i;
    json_t *item;
    if (strcmp(word, "enum") == 0 || strcmp(word, "anyOf") == 0 ||
        strcmp(word, "allOf") == 0) {
        json_array_foreach ((json_t *)rule, i, item) {
            const bool fits =
                word[0] == 'e' ? equal(item, value) : valid(root, item, value);
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
            all &= valid(root, rule, item);
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

static bool valid(const json_t *root, const json_t *schema, const json_t *value)
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

static json_t *schema_of_tests(void)
{
    struct pen_error err = { 0 };
    struct pen_registry *r = test_registry(&err);
    assert_non_null(r);
    char *text = pen_registry_schema_json(r);
    assert_non_null(text);
    json_error_t why;
    json_t *schema = json_loads(text, 0, &why);
    if (!schema)
        fail_msg("%s", why.text);
    pen_free(text);
    pen_registry_destroy(&r);
    return schema;
}

// Whether schema and reader both take the text, or both refuse it.
static void agree(const json_t *schema, const char *text, bool good)
{
    json_error_t why;
    json_t *value = json_loads(text, JSON_DECODE_ANY, &why);
    if (!value)
        fail_msg("%s: %s", text, why.text);
    if (valid(schema, schema, value) != good)
        fail_msg("the schema %s %s", good ? "refuses" : "takes", text);
    json_decref(value);
    struct checked c = check_text(text);
    if ((c.status == PEN_OK) != good)
        fail_msg("the reader %s %s:%s", good ? "refuses" : "takes", text,
                 issues_text(c.issues));
    finish(&c);
}

PEN_TEST(schema_and_reader_agree)
{
    json_t *schema = schema_of_tests();
    static const char *const good[] = {
        SIGNAL_TO_SINK(SIZE),
        SIGNAL_TO_SINK(SIZE ",\"#c\":[],\"rate\":29.97,\"pattern\":\"GRID\""),
        SIGNAL_TO_SINK(SIZE ",\"rate\":\"30000/1001\",\"loop\":true"),
        SIGNAL_TO_SINK(SIZE ",\"queue\":5,\"onError\":\"drop\""),
        BLUR("\"kernelSize\":15.0,\"sigma\":3"),
        THROUGH("\"type\":\"CudaMemCopyD2H\""),
        THROUGH("\"type\":\"CudaMemCopyD2H\",\"props\":{\"kind\":"
                "\"DeviceToHost\"}"),
        THROUGH("\"type\":\"CudaMemCopy\",\"props\":{\"kind\":"
                "\"DeviceToHost\"},\"#\":1,\"extra\":1"),
    };
    static const char *const bad[] = {
        "[]",
        "{}",
        "{\"modules\":[]}",
        "{\"modules\":{}}",
        "{\"modules\":{\"a\":{}}}",
        SIGNAL_TO_SINK("\"width\":3"),
        SIGNAL_TO_SINK(SIZE ",\"pattern\":\"grid\""),
        SIGNAL_TO_SINK(SIZE ",\"loop\":0"),
        SIGNAL_TO_SINK(SIZE ",\"rate\":0"),
        SIGNAL_TO_SINK(SIZE ",\"rate\":\"x\""),
        SIGNAL_TO_SINK(SIZE ",\"queue\":-1"),
        SIGNAL_TO_SINK("\"width\":5000,\"height\":1"),
        SIGNAL_TO_SINK("\"width\":1.5,\"height\":1"),
        BLUR("\"kernelSize\":16"),
        BLUR("\"kernelSize\":[]"),
        BLUR("\"sigma\":\"1\""),
        BLUR("\"zoom\":1"),
        THROUGH("\"type\":\"GaussianBlr\""),
        THROUGH("\"type\":\"CudaMemCopy\""),
        THROUGH("\"type\":\"CudaMemCopyH2D\",\"props\":{\"kind\":"
                "\"DeviceToHost\"}"),
        THROUGH("\"type\":\"GaussianBlur\",\"props\":[]"),
    };
    for (size_t i = 0; i < sizeof(good) / sizeof(good[0]); i++)
        agree(schema, good[i], true);
    for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++)
        agree(schema, bad[i], false);
    json_decref(schema);
}

PEN_TEST(settings_and_connections_agree_too)
{
    json_t *schema = schema_of_tests();
    static const struct {
        const char *settings;
        bool good;
    } settings[] = {
        { "\"device\":\"auto\"", true },
        { "\"device\":2", true },
        { "\"device\":\"GPU-12\"", true },
        { "\"device\":\"gpu\"", false },
        { "\"device\":-1", false },
        { "\"cuda\":{\"streams\":\"shared\"}", true },
        { "\"cuda\":{\"streams\":\"overlap\"}", false },
        { "\"cuda\":{\"fuse\":true}", false },
        { "\"cuda\":{\"max_batch\":2}", false },
        { "\"queueSize\":10", true },
        { "\"queue_size\":0", false },
        { "\"queue_depth\":\"4\"", false },
        { "\"onError\":\"retry:3\"", true },
        { "\"on_error\":\"restart_module\"", true },
        { "\"onError\":\"explode\"", false },
        { "\"auto_start\":false", true },
        { "\"auto_bridge\":1", false },
        { "\"budget\":{\"cuda_device\":\"512MiB\",\"#\":0}", true },
        { "\"budget\":{\"host\":\"1.5 GiB\",\"h2d_per_frame\":0}", true },
        { "\"budget\":{\"host\":\"lots\"}", false },
        { "\"budget\":{\"host\":0}", false },
        { "\"budget\":{\"gpu\":1}", false },
        { "\"unknown\":1", true },
    };
    char text[1024];
    for (size_t i = 0; i < sizeof(settings) / sizeof(settings[0]); i++) {
        snprintf(text, sizeof(text),
                 "{\"settings\":{%s},\"modules\":{\"s\":{\"type\":"
                 "\"TestSignal\",\"props\":{" SIZE "}},\"k\":{\"type\":"
                 "\"StatSink\"}},\"connections\":[{\"from\":\"s\",\"to\":"
                 "\"k\"}]}",
                 settings[i].settings);
        agree(schema, text, settings[i].good);
    }
    static const struct {
        const char *connection;
        bool good;
    } connections[] = {
        { "\"from\":\"s\",\"to\":\"k.input\",\"sieve\":true", true },
        { "\"from\":\"s.output\",\"to\":\"k\",\"queue\":{\"depth\":1,"
          "\"policy\":\"drop_newest\",\"#\":1},\"#\":1",
          true },
        { "\"from\":\"s\",\"to\":\"k\",\"sieve\":false", false },
        { "\"from\":\"s\",\"to\":\"\"", false },
        { "\"from\":\"s.\",\"to\":\"k\"", false },
        { "\"from\":\"s\"", false },
        { "\"from\":\"s\",\"to\":\"k\",\"x\":1", false },
        { "\"from\":\"s\",\"to\":\"k\",\"queue\":{\"size\":1}", false },
        { "\"from\":\"s\",\"to\":\"k\",\"queue\":{\"depth\":0}", false },
        { "\"from\":\"s\",\"to\":\"k\",\"queue\":{\"policy\":\"drop\"}",
          false },
        { "\"from\":\"s\",\"to\":\"k\",\"feedback\":{\"depth\":1}", false },
    };
    for (size_t i = 0; i < sizeof(connections) / sizeof(connections[0]); i++) {
        snprintf(text, sizeof(text),
                 "{\"modules\":{\"s\":{\"type\":\"TestSignal\",\"props\":{" SIZE
                 "}},\"k\":{\"type\":\"StatSink\"}},\"connections\":[{%s}]}",
                 connections[i].connection);
        agree(schema, text, connections[i].good);
    }
    json_decref(schema);
}

PEN_TEST(an_empty_registry_has_a_schema)
{
    struct pen_registry *r = NULL;
    assert_int_equal(stk_registry_new(&r, NULL), PEN_OK);
    char *text = pen_registry_schema_json(r);
    assert_non_null(text);
    json_t *schema = json_loads(text, 0, NULL);
    assert_non_null(schema);
    json_t *value =
        json_loads("{\"modules\":{\"a\":{\"type\":\"B\"}}}", 0, NULL);
    assert_false(valid(schema, schema, value));
    json_decref(value);
    json_decref(schema);
    pen_free(text);
    pen_registry_destroy(&r);
}

PEN_TEST_MAIN(PEN_CASE(schema_and_reader_agree),
              PEN_CASE(settings_and_connections_agree_too),
              PEN_CASE(an_empty_registry_has_a_schema))
