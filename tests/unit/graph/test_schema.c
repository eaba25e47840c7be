// The schema and the reader agree: what one takes the other takes.

#include "graph_fixture.h"
#include "schema_check.h"

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
    if (schema_valid(schema, schema, value) != good)
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
        BLUR("\"backend\":\"cuda\""),
        BLUR("\"backend\":\"auto\""),
        THROUGH("\"type\":\"Blur\""),
        THROUGH("\"type\":\"Blur\",\"props\":{\"sigma\":2,\"backend\":"
                "\"cpu\"}"),
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
        BLUR("\"backend\":\"cpu\""),
        BLUR("\"backend\":\"gpu\""),
        THROUGH("\"type\":\"Blur\",\"props\":{\"sigma\":-2}"),
        THROUGH("\"type\":\"Blur\",\"props\":{\"zoom\":2}"),
        THROUGH("\"type\":\"Blur\",\"props\":{\"backend\":\"gpu\"}"),
        THROUGH("\"type\":\"Rotate\""),
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
        { "\"pinned_limit\":\"stage\"", true },
        { "\"pinned_limit\":\"refuse\"", true },
        { "\"pinned_limit\":\"spill\"", false },
        { "\"pinned_limit\":true", false },
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
        { "\"from\":\"s\",\"to\":\"k\",\"sieve\":false", true },
        { "\"from\":\"s\",\"to\":\"k\",\"sieve\":0", false },
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
    assert_false(schema_valid(schema, schema, value));
    json_decref(value);
    json_decref(schema);
    pen_free(text);
    pen_registry_destroy(&r);
}

PEN_TEST_MAIN(PEN_CASE(schema_and_reader_agree),
              PEN_CASE(settings_and_connections_agree_too),
              PEN_CASE(an_empty_registry_has_a_schema))
