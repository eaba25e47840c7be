// Reading files: shape, settings, comments, both spellings, --set.

#include <unistd.h>

#include "graph_fixture.h"

#define MODULES                                                                \
    "\"modules\":{\"s\":{\"type\":\"TestSignal\",\"props\":{" SIZE             \
    "}},\"k\":{\"type\":\"StatSink\"}},"                                       \
    "\"connections\":[{\"from\":\"s\",\"to\":\"k\"}]"
#define SETTINGS(inner) "{\"settings\":{" inner "}," MODULES "}"

static struct pen_description *parse(const char *text)
{
    struct pen_issues *issues = pen_issues_create();
    struct pen_description *d = NULL;
    struct pen_error err = { 0 };
    if (pen_description_parse(text, strlen(text), "test.json", &d, issues,
                              &err) != PEN_OK)
        fail_msg("%s", err.text);
    pen_issues_destroy(&issues);
    return d;
}

PEN_TEST(a_file_that_says_nothing_has_defaults)
{
    struct pen_description *d = parse("{" MODULES "}");
    assert_string_equal(pen_description_name(d), "");
    assert_string_equal(pen_description_device(d), "auto");
    assert_string_equal(d->file, "test.json");
    assert_int_equal(d->queue_depth, 0);
    assert_true(d->auto_bridge);
    assert_null(d->on_error);
    assert_int_equal(d->h2d_per_frame, -1);
    assert_int_equal(d->d2h_per_frame, -1);
    for (int m = 0; m < PEN_MEM_COUNT; m++)
        assert_int_equal(d->budget[m], 0);
    pen_description_destroy(&d);
    assert_null(d);
    pen_description_destroy(&d);
}

PEN_TEST(modules_and_connections_keep_the_order_of_the_file)
{
    struct pen_description *d = parse(
        "{\"modules\":{\"z\":{\"type\":\"A\"},\"#x\":5,\"a\":{\"type\":\"B\","
        "\"props\":{\"q\":1}},\"m/n\":{\"type\":\"C\"}},\"connections\":["
        "{\"from\":\"z.out\",\"to\":\"a\"},{\"from\":\"a\",\"to\":\"m/n.in.x\","
        "\"sieve\":true,\"queue\":{\"depth\":7,\"policy\":\"drop_oldest\"},"
        "\"#\":\"why\"}]}");
    assert_int_equal(d->module_count, 3);
    assert_string_equal(d->modules[0].id, "z");
    assert_string_equal(d->modules[1].id, "a");
    assert_string_equal(d->modules[2].id, "m/n");
    assert_string_equal(d->modules[2].pointer, "/modules/m~1n");
    assert_null(d->modules[0].props);
    assert_int_equal(json_object_size(d->modules[1].props), 1);
    assert_int_equal(d->connection_count, 2);
    const struct stk_desc_connection *c = d->connections;
    assert_string_equal(c[0].from, "z");
    assert_string_equal(c[0].from_pin, "out");
    assert_string_equal(c[0].to, "a");
    assert_null(c[0].to_pin);
    assert_true(c[0].sieve);
    assert_int_equal(c[0].depth, 0);
    assert_int_equal(c[0].policy, STK_BLOCK);
    assert_string_equal(c[1].to, "m/n");
    assert_string_equal(c[1].to_pin, "in.x");
    assert_int_equal(c[1].depth, 7);
    assert_int_equal(c[1].policy, STK_DROP_OLDEST);
    assert_string_equal(c[1].pointer, "/connections/1");
    assert_int_equal(pen_issues_count(d->issues, PEN_SEVERITY_INFO), 0);
    pen_description_destroy(&d);
}

PEN_TEST(settings_are_read_in_both_spellings)
{
    static const char *const depths[] = { "queue_depth", "queueDepth",
                                          "queue_size", "queueSize" };
    for (size_t i = 0; i < 4; i++) {
        char text[512];
        snprintf(text, sizeof(text), SETTINGS("\"%s\":9"), depths[i]);
        struct checked c = expect_none(text);
        assert_int_equal(c.desc->queue_depth, 9);
        finish(&c);
    }
    struct checked c = expect_none(SETTINGS(
        "\"device\":\"GPU-1234\",\"cuda\":{\"streams\":\"shared\",\"fuse\":"
        "false,\"max_batch\":1,\"#\":0},\"autoBridge\":false,\"autoStart\":"
        "true,\"onError\":\"retry:2\",\"budget\":{\"cuda_device\":\"512MiB\","
        "\"host\":1000,\"host_pinned\":\"1.5 GiB\",\"dmabuf\":\"1KB\","
        "\"h2d_per_frame\":0,\"d2h_per_frame\":2},\"pinned_limit\":"
        "\"stage\",\"#x\":1"));
    assert_int_equal(c.desc->pinned_limit, STK_PINNED_STAGE);
    assert_string_equal(c.desc->device, "GPU-1234");
    assert_false(c.desc->auto_bridge);
    assert_string_equal(c.desc->on_error, "retry:2");
    assert_int_equal(c.desc->budget[PEN_MEM_CUDA_DEVICE], 512u << 20);
    assert_int_equal(c.desc->budget[PEN_MEM_HOST], 1000);
    assert_int_equal(c.desc->budget[PEN_MEM_HOST_PINNED], 3u << 29);
    assert_int_equal(c.desc->budget[PEN_MEM_DMABUF], 1000);
    assert_int_equal(c.desc->h2d_per_frame, 0);
    assert_int_equal(c.desc->d2h_per_frame, 2);
    finish(&c);
    static const char *const devices[][2] = {
        { "\"auto\"", "auto" },
        { "\"cuda\"", "cuda" },
        { "\"0\"", "0" },
        { "3", "3" },
        { "\"emulated\"", "emulated" },
    };
    for (size_t i = 0; i < 5; i++) {
        char text[512];
        snprintf(text, sizeof(text), SETTINGS("\"device\":%s"), devices[i][0]);
        c = expect_none(text);
        assert_string_equal(pen_description_device(c.desc), devices[i][1]);
        finish(&c);
    }
}

PEN_TEST(settings_that_are_not_accepted_say_what_is)
{
    expect_one(SETTINGS("\"device\":\"gpu\""), "E004", "/settings/device",
               "device must be \"auto\", \"cuda\", \"emulated\", an index or "
               "a UUID (\"GPU-...\"), not the string \"gpu\"",
               "\"device\": \"auto\"");
    expect_one(SETTINGS("\"device\":true"), "E003", "/settings/device",
               "device must be \"auto\", \"cuda\", \"emulated\", an index or "
               "a UUID (\"GPU-...\"), not true",
               "\"device\": \"auto\"");
    expect_one(SETTINGS("\"cuda\":{\"streams\":\"overlap\"}"), "E004",
               "/settings/cuda/streams",
               "cuda.streams \"overlap\" is not supported yet; everything "
               "runs on one \"shared\" stream",
               "\"streams\": \"shared\"");
    expect_one(SETTINGS("\"cuda\":{\"streams\":\"many\"}"), "E004",
               "/settings/cuda/streams",
               "cuda.streams must be \"shared\", not the string \"many\"",
               "\"streams\": \"shared\"");
    expect_one(SETTINGS("\"cuda\":{\"fuse\":true}"), "E004",
               "/settings/cuda/fuse", "cuda.fuse is not supported yet",
               "\"fuse\": false");
    expect_one(SETTINGS("\"cuda\":{\"max_batch\":8}"), "E004",
               "/settings/cuda/max_batch",
               "cuda.max_batch above 1 is not supported yet",
               "\"max_batch\": 1");
    expect_one(SETTINGS("\"cuda\":[]"), "E003", "/settings/cuda",
               "settings.cuda must be an object, not an array", "\"cuda\": {}");
    expect_one(SETTINGS("\"queueSize\":0"), "E004", "/settings/queueSize",
               "queue_depth must be an integer of 1..65536, not the number 0",
               "\"queue_depth\": 1");
    expect_one(SETTINGS("\"queue_depth\":2.5"), "E004", "/settings/queue_depth",
               "queue_depth must be an integer of 1..65536, not the number "
               "2.5",
               "\"queue_depth\": 2");
    expect_one(SETTINGS("\"queue_depth\":\"4\""), "E003",
               "/settings/queue_depth",
               "queue_depth must be an integer of 1..65536, not the string "
               "\"4\"",
               "\"queue_depth\": 4");
    expect_one(SETTINGS("\"queueSize\":3,\"queue_size\":3"), "E003",
               "/settings/queue_size",
               "settings has queue_depth in two spellings",
               "remove one of them");
    expect_one(SETTINGS("\"onError\":\"dorp\""), "E004", "/settings/onError",
               "onError must be \"stop\", \"drop\" or \"retry:n\", not the "
               "string \"dorp\"",
               "\"onError\": \"stop\"");
    expect_one(SETTINGS("\"on_error\":\"restart_module\""), "W004",
               "/settings/on_error",
               "onError \"restart_module\" is taken as \"stop\"",
               "\"onError\": \"stop\"");
    static const char *const sizes[] = { "\"12XB\"", "0",    "-1",  "\"0\"",
                                         "1.5",      "\"\"", "true" };
    for (size_t i = 0; i < sizeof(sizes) / sizeof(sizes[0]); i++) {
        char text[512];
        snprintf(text, sizeof(text),
                 SETTINGS("\"budget\":{\"cuda_device\":%s}"), sizes[i]);
        struct checked c = check_text(text);
        const struct pen_issue *is = issue_of(c.issues, "E004");
        assert_string_equal(is->pointer, "/settings/budget/cuda_device");
        assert_string_equal(is->suggestion, "\"cuda_device\": \"512MiB\"");
        finish(&c);
    }
    expect_one(SETTINGS("\"budget\":{\"h2d_per_frame\":-1}"), "E004",
               "/settings/budget/h2d_per_frame",
               "h2d_per_frame must be an integer of 0..2147483647, not the "
               "number -1",
               "\"h2d_per_frame\": 0");
    expect_one(SETTINGS("\"budget\":{\"gpu\":\"1GiB\"}"), "E003",
               "/settings/budget/gpu",
               "settings.budget has no key gpu; did you mean cuda_device?",
               "\"cuda_device\"");
}

PEN_TEST(values_of_a_wrong_type_are_told_as_what_was_meant)
{
    expect_one(SETTINGS("\"auto_bridge\":\"TRUE\""), "E003",
               "/settings/auto_bridge",
               "auto_bridge must be true or false, not the string \"TRUE\"",
               "\"auto_bridge\": true");
    expect_one(SETTINGS("\"auto_bridge\":0"), "E003", "/settings/auto_bridge",
               "auto_bridge must be true or false, not the number 0",
               "\"auto_bridge\": false");
    expect_one(
        SETTINGS("\"auto_bridge\":\"maybe\""), "E003", "/settings/auto_bridge",
        "auto_bridge must be true or false, not the string \"maybe\"", "");
    expect_one("{\"pipeline\":{\"name\":7}," MODULES "}", "E003",
               "/pipeline/name", "name must be a string, not the number 7",
               "\"name\": \"7\"");
    expect_one(SETTINGS("\"queue_depth\":\"9999999\""), "E003",
               "/settings/queue_depth",
               "queue_depth must be an integer of 1..65536, not the string "
               "\"9999999\"",
               "");
    struct checked c = check_text(
        "{\"modules\":{\"a.b\":{\"type\":\"TestSignal\",\"props\":{" SIZE
        "}},\"k\":{\"type\":\"StatSink\"}},\"connections\":[]}");
    const struct pen_issue *is = issue_of(c.issues, "E003");
    assert_string_equal(is->suggestion, "\"a_b\"");
    finish(&c);
}

PEN_TEST(unknown_keys_warn_at_top_in_settings_and_in_modules)
{
    expect_one("{\"setings\":{}," MODULES "}", "W001", "/setings",
               "the file has no key setings, it is ignored; did you mean "
               "settings?",
               "\"settings\"");
    expect_one("{\"extra\":1," MODULES "}", "W001", "/extra",
               "the file has no key extra, it is ignored", "\"#extra\"");
    expect_one("{\"pipeline\":{\"queue_size\":3}," MODULES "}", "W001",
               "/pipeline/queue_size",
               "pipeline has no key queue_size, it is ignored; did you mean "
               "settings.queue_depth?",
               "\"settings.queue_depth\"");
    expect_one(SETTINGS("\"que_depth\":3"), "W001", "/settings/que_depth",
               "settings has no key que_depth, it is ignored; did you mean "
               "queue_depth?",
               "\"queue_depth\"");
    expect_one(THROUGH("\"type\":\"GaussianBlur\",\"properties\":{}"), "W001",
               "/modules/m/properties",
               "a module has no key properties, it is ignored; did you mean "
               "props?",
               "\"props\"");
}

PEN_TEST(comments_are_no_keys_anywhere)
{
    struct checked c = expect_none(
        "{\"#\":1,\"#a\":{},\"$schema\":\"x\",\"pipeline\":{\"#\":0,\"name\":"
        "\"n\",\"version\":\"1.0\",\"description\":\"d\"},\"settings\":{\"#\":"
        "0,\"budget\":{\"#\":0}},\"modules\":{\"#off\":{\"type\":\"Nothing\"},"
        "\"s\":{\"#\":0,\"type\":\"TestSignal\",\"props\":{\"#width\":5," SIZE
        "}},\"k\":{\"type\":\"StatSink\"}},\"connections\":[{\"#\":0,\"from\":"
        "\"s\",\"to\":\"k\",\"queue\":{\"#\":0}}]}");
    assert_string_equal(pen_description_name(c.desc), "n");
    finish(&c);
}

PEN_TEST(shape_errors_are_told_in_one_pass_with_the_rest)
{
    struct checked c = check_text(
        "{\"pipeline\":{\"name\":5},\n"
        "\"settings\":[],\n"
        "\"modules\":{\"s\":{\"type\":\"TestSignal\",\"props\":{\"width\":0,"
        "\"height\":2}},\n"
        "\"a\":{},\n\"b\":7,\n\"c\":{\"type\":\"\"},\n\"d\":{\"type\":9},\n"
        "\"e\":{\"type\":\"StatSink\",\"props\":[]},\n\"f.g\":{\"type\":"
        "\"StatSink\"},\n\"\":{\"type\":\"StatSink\"}},\n"
        "\"connections\":[7,\n{\"from\":\"s\"},\n{\"from\":\"\",\"to\":\"s\"},"
        "\n{\"from\":\"s.\",\"to\":\".x\"},\n{\"from\":\"s\",\"to\":\"a\","
        "\"sive\":true},\n{\"from\":\"s\",\"to\":\"e\",\"queue\":{\"depth\":0,"
        "\"policy\":\"drop\"},\"sieve\":1}]}");
    static const struct {
        int line;
        const char *code, *pointer;
    } expected[] = {
        { 1, "E003", "/pipeline/name" },
        { 2, "E003", "/settings" },
        { 3, "E202", "/modules/s/props/width" },
        { 4, "E003", "/modules/a" },
        { 5, "E003", "/modules/b" },
        { 6, "E003", "/modules/c/type" },
        { 7, "E003", "/modules/d/type" },
        { 8, "E003", "/modules/e/props" },
        { 9, "E003", "/modules/f.g" },
        { 10, "E003", "/modules/" },
        { 11, "E003", "/connections/0" },
        { 12, "E003", "/connections/1" },
        { 13, "E003", "/connections/2/from" },
        { 14, "E003", "/connections/3/from" },
        { 14, "E003", "/connections/3/to" },
        { 15, "E003", "/connections/4/sive" },
        { 16, "E004", "/connections/5/queue/depth" },
        { 16, "E004", "/connections/5/queue/policy" },
        { 16, "E003", "/connections/5/sieve" },
    };
    const size_t count = sizeof(expected) / sizeof(expected[0]);
    if (pen_issues_count(c.issues, PEN_SEVERITY_INFO) != count)
        fail_msg("%s", issues_text(c.issues));
    for (size_t i = 0; i < count; i++) {
        const struct pen_issue *is = pen_issues_get(c.issues, i);
        if (is->line != expected[i].line ||
            strcmp(is->code, expected[i].code) != 0 ||
            strcmp(is->pointer, expected[i].pointer) != 0)
            fail_msg("issue %zu:%s", i, issues_text(c.issues));
    }
    finish(&c);
}

PEN_TEST(a_top_that_is_no_object_is_one_error)
{
    expect_one("[]", "E003", "", "the file must be an object, not an array",
               "{ \"modules\": {}, \"connections\": [] }");
    expect_one("{\"modules\":[{\"type\":\"A\"}]}", "E003", "/modules",
               "modules must be an object of modules by their id, not an "
               "array",
               "\"modules\": { \"id\": { \"type\": \"...\" } }");
    struct checked c = check_text(
        "{\"modules\":{\"s\":{\"type\":\"TestSignal\",\"props\":{" SIZE
        "}}},\"connections\":{}}");
    assert_string_equal(issue_of(c.issues, "E003")->pointer, "/connections");
    assert_int_equal(pen_issues_count(c.issues, PEN_SEVERITY_INFO), 1);
    finish(&c);
}

PEN_TEST(foreign_words_of_connections_are_understood_as_slips)
{
    struct checked c = check_text(
        "{\"modules\":{\"s\":{\"type\":\"TestSignal\",\"props\":{" SIZE "}},"
        "\"k\":{\"type\":\"StatSink\"}},\"connections\":[{\"source\":\"s\","
        "\"target\":\"k\"}]}");
    assert_int_equal(pen_issues_count(c.issues, PEN_SEVERITY_INFO), 2);
    assert_string_equal(pen_issues_get(c.issues, 0)->suggestion, "\"from\"");
    assert_string_equal(pen_issues_get(c.issues, 1)->suggestion, "\"to\"");
    finish(&c);
}

PEN_TEST(feedback_is_refused_and_makes_no_cycle)
{
    expect_one("{\"modules\":{\"s\":{\"type\":\"TestSignal\",\"props\":{" SIZE
               "}},\"m\":{\"type\":\"Merge\"},\"k\":{\"type\":\"StatSink\"}},"
               "\"connections\":[{\"from\":\"s\",\"to\":\"m\"},{\"from\":"
               "\"m\",\"to\":\"m\",\"feedback\":{\"depth\":1}},{\"from\":"
               "\"m\",\"to\":\"k\"}]}",
               "E306", "/connections/1/feedback",
               "feedback connections are not supported yet", "");
}

PEN_TEST(files_are_read_and_their_failures_have_texts)
{
    const char *folder = pen_test_folder();
    char path[512];
    snprintf(path, sizeof(path), "%s/p.json", folder);
    static const char text[] = "\xef\xbb\xbf{\r\n" MODULES "\r\n}\r\n";
    pen_test_write_file(path, text, sizeof(text) - 1);
    struct pen_issues *issues = pen_issues_create();
    struct pen_description *d = NULL;
    struct pen_error err = { 0 };
    assert_int_equal(pen_description_load(path, &d, issues, &err), PEN_OK);
    assert_int_equal(d->module_count, 2);
    assert_string_equal(d->file, path);
    pen_description_destroy(&d);

    assert_int_equal(pen_description_load(folder, &d, issues, &err), PEN_E_IO);
    assert_null(d);
    assert_non_null(strstr(err.text, "it is a folder"));
    snprintf(path, sizeof(path), "%s/none.json", folder);
    assert_int_equal(pen_description_load(path, &d, issues, &err), PEN_E_IO);
    assert_non_null(strstr(err.text, "No such file"));
    assert_int_equal(err.native, 2);
    assert_int_equal(pen_issues_count(issues, PEN_SEVERITY_INFO), 0);

    // Nothing of it is stored on the disk, but 64 MiB and a byte are read.
    snprintf(path, sizeof(path), "%s/big.json", folder);
    pen_test_write_file(path, "{", 1);
    assert_int_equal(truncate(path, (64 << 20) + 1), 0);
    assert_int_equal(pen_description_load(path, &d, issues, &err), PEN_E_LIMIT);
    assert_int_equal(truncate(path, 64 << 20), 0);
    assert_int_equal(pen_description_load(path, &d, issues, &err),
                     PEN_E_CONFIG);
    assert_string_equal(issue_of(issues, "E000")->message,
                        "expected a key in double quotes, found a NUL byte");
    pen_issues_destroy(&issues);
}

PEN_TEST(set_overrides_adds_and_tells_where_from)
{
    struct pen_description *d = parse("{" MODULES "}");
    struct pen_error err = { 0 };
    assert_int_equal(pen_description_set(d, "s.width=128", &err), PEN_OK);
    assert_int_equal(pen_description_set(d, "s.pattern=GRID", &err), PEN_OK);
    assert_int_equal(pen_description_set(d, "s.height=0", &err), PEN_OK);
    assert_int_equal(pen_description_set(d, "k.qeue=5", &err), PEN_OK);
    assert_int_equal(pen_description_set(d, "s.rate=\"30000/1001\"", &err),
                     PEN_OK);

    struct pen_registry *r = test_registry(&err);
    struct pen_issues *issues = pen_issues_create();
    assert_int_equal(pen_validate(d, r, issues, &err), PEN_E_CONFIG);
    assert_int_equal(pen_issues_count(issues, PEN_SEVERITY_INFO), 2);
    const struct pen_issue *is = issue_of(issues, "E202");
    assert_string_equal(is->pointer, "/modules/s/props/height");
    assert_string_equal(is->message,
                        "height is 0, outside 1..4096 px (from --set)");
    assert_int_equal(is->line, 0);
    assert_int_equal(is->column, 0);
    is = issue_of(issues, "E200");
    assert_string_equal(is->message, "StatSink has no property qeue; did you "
                                     "mean queue? (from --set)");
    pen_issues_destroy(&issues);

    // The last one counts.
    assert_int_equal(pen_description_set(d, "s.height=7", &err), PEN_OK);
    assert_int_equal(pen_description_set(d, "k.qeue=5", &err), PEN_OK);
    json_object_del(d->modules[1].props, "qeue");
    issues = pen_issues_create();
    assert_int_equal(pen_validate(d, r, issues, &err), PEN_OK);
    pen_issues_destroy(&issues);
    pen_registry_destroy(&r);
    pen_description_destroy(&d);
}

PEN_TEST(set_that_cannot_be_is_refused)
{
    struct pen_description *d = parse("{" MODULES "}");
    static const char *const malformed[] = {
        "",         "s",    "s.width", "width=1",      "=1",
        ".width=1", "s.=1", "s=1.x=2", "s.width=\xff",
    };
    for (size_t i = 0; i < sizeof(malformed) / sizeof(malformed[0]); i++) {
        struct pen_error err = { 0 };
        assert_int_equal(pen_description_set(d, malformed[i], &err), PEN_E_ARG);
        assert_true(err.text[0]);
    }
    struct pen_error err = { 0 };
    assert_int_equal(pen_description_set(d, "sink.x=1", &err), PEN_E_CONFIG);
    assert_string_equal(err.text, "there is no module sink");
    assert_int_equal(pen_description_set(d, "S.x=1", &err), PEN_E_CONFIG);
    assert_string_equal(err.text, "there is no module S; did you mean s?");
    assert_int_equal(json_object_size(d->modules[0].props), 2);
    pen_description_destroy(&d);
}

// --- issues as JSON ---------------------------------------------------------

static json_t *issues_json(const struct pen_issues *issues,
                           const struct pen_error *err, bool ok, size_t count)
{
    char *text = pen_issues_json(issues, err);
    assert_non_null(text);
    json_t *root = json_loads(text, 0, NULL);
    pen_free(text);
    assert_int_equal(json_object_size(root), 2);
    assert_int_equal(json_is_true(json_object_get(root, "ok")), ok);
    json_t *list = json_incref(json_object_get(root, "issues"));
    assert_int_equal(json_array_size(list), count);
    json_decref(root);
    return list;
}

PEN_TEST(issues_as_json_are_ok_as_long_as_there_is_no_error)
{
    struct pen_issues *issues = pen_issues_create();
    struct pen_error err = { 0 };
    json_decref(issues_json(NULL, NULL, true, 0));
    json_decref(issues_json(issues, &err, true, 0));

    stk_issue_add_at(issues, PEN_SEVERITY_WARNING, "W400", 3, 7, "/modules/a",
                     "connect it", "%s has no connection", "a");
    json_t *list = issues_json(issues, &err, true, 1);
    json_t *first = json_array_get(list, 0);
    assert_int_equal(json_object_size(first), 7);
    assert_string_equal(json_string_value(json_object_get(first, "severity")),
                        "warning");
    assert_string_equal(json_string_value(json_object_get(first, "code")),
                        "W400");
    assert_int_equal(json_integer_value(json_object_get(first, "line")), 3);
    assert_int_equal(json_integer_value(json_object_get(first, "column")), 7);
    assert_string_equal(json_string_value(json_object_get(first, "suggestion")),
                        "connect it");
    json_decref(list);
    pen_issues_destroy(&issues);
}

PEN_TEST(an_error_is_an_issue_where_the_list_has_none)
{
    struct pen_issues *issues = pen_issues_create();
    struct pen_error err = { 0 };
    // A path of the command line need not be UTF-8.
    pen_error_set(&err, PEN_E_UNSUPPORTED, 0, "in\xff.json", "not here");
    json_t *list = issues_json(issues, &err, false, 1);
    const json_t *told = json_array_get(list, 0);
    assert_string_equal(json_string_value(json_object_get(told, "code")),
                        "E_UNSUPPORTED");
    assert_string_equal(json_string_value(json_object_get(told, "pointer")),
                        "in?.json");
    assert_string_equal(json_string_value(json_object_get(told, "message")),
                        "not here");
    assert_true(json_is_null(json_object_get(told, "line")));
    assert_true(json_is_null(json_object_get(told, "column")));
    json_decref(list);

    stk_issue_add_at(issues, PEN_SEVERITY_ERROR, "E100", 1, 1, "", "", "no");
    json_decref(issues_json(issues, &err, false, 1));
    json_decref(issues_json(issues, NULL, false, 1));
    pen_issues_destroy(&issues);
}

PEN_TEST_MAIN(PEN_CASE(a_file_that_says_nothing_has_defaults),
              PEN_CASE(modules_and_connections_keep_the_order_of_the_file),
              PEN_CASE(settings_are_read_in_both_spellings),
              PEN_CASE(settings_that_are_not_accepted_say_what_is),
              PEN_CASE(values_of_a_wrong_type_are_told_as_what_was_meant),
              PEN_CASE(unknown_keys_warn_at_top_in_settings_and_in_modules),
              PEN_CASE(comments_are_no_keys_anywhere),
              PEN_CASE(shape_errors_are_told_in_one_pass_with_the_rest),
              PEN_CASE(a_top_that_is_no_object_is_one_error),
              PEN_CASE(foreign_words_of_connections_are_understood_as_slips),
              PEN_CASE(feedback_is_refused_and_makes_no_cycle),
              PEN_CASE(files_are_read_and_their_failures_have_texts),
              PEN_CASE(set_overrides_adds_and_tells_where_from),
              PEN_CASE(set_that_cannot_be_is_refused),
              PEN_CASE(issues_as_json_are_ok_as_long_as_there_is_no_error),
              PEN_CASE(an_error_is_an_issue_where_the_list_has_none))
