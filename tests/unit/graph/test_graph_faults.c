// Every allocation of reading, resolving and describing is made to fail once,
// in turn: the status says so, nothing is left behind, nothing is wrong.

#include "alloc_fail.h"
#include "graph_fixture.h"

// jansson's own allocations come through the program, so that they fail too.
static void *seen_malloc(size_t bytes)
{
    return malloc(bytes);
}

static void seen_free(void *memory)
{
    free(memory);
}

static const char good_file[] =
    "{\"#\":\"a comment\",\"pipeline\":{\"name\":\"n\"},\"settings\":{"
    "\"device\":3,\"queueSize\":9,\"onError\":\"retry:3\",\"budget\":{"
    "\"host\":\"1MiB\"},\"typo\":1},\"modules\":{\"s/~\\u00e9\":{\"type\":"
    "\"TestSignal\",\"props\":{" SIZE ",\"rate\":29.97}},\"u\":{\"type\":"
    "\"CudaMemCopyH2D\"},\"b\":{\"type\":\"GaussianBlur\",\"props\":{"
    "\"sigma\":8.0}},\"g\":{\"type\":\"Blur\",\"props\":{\"sigma\":8,"
    "\"backend\":\"auto\"}},\"p\":{\"type\":\"Split\"},\"m\":{\"type\":"
    "\"Merge\"},\"n\":{\"type\":\"Merge\"},\"z\":{\"type\":\"StatSink\"},\"w\":"
    "{"
    "\"type\":\"FileWriter\",\"props\":{\"path\":\"/tmp/????.raw\"}}},"
    "\"connections\":[{\"from\":\"s/~\\u00e9\",\"to\":\"u\"},{\"from\":\"u\","
    "\"to\":\"b.input\",\"queue\":{\"depth\":2}},{\"from\":\"b\",\"to\":"
    "\"g\"},{\"from\":\"g\",\"to\":\"p\"},{\"from\":\"p\",\"to\":\"m\"},{"
    "\"from\":\"p\",\"to\":\"m\"},{\"from\":\"m\",\"to\":\"w\"},{\"from\":"
    "\"g\","
    "\"to\":\"n\",\"sieve\":false},{\"from\":\"n\",\"to\":\"z\"}]}";

static const char bad_file[] =
    "{\"settings\":{\"device\":\"gpu\"},\"modules\":{\"s\":{\"type\":"
    "\"TestSignal\",\"props\":{\"width\":\"a\",\"widht\":1}},\"b\":{\"type\":"
    "\"GausianBlur\"},\"c\":{\"type\":\"CudaMemCopyH2D\",\"props\":{\"kind\":"
    "\"DeviceToHost\"}},\"r\":{\"type\":\"FileReader\",\"props\":{\"path\":"
    "\"/etc/passw\"}},\"q\":{\"type\":\"FileReader\",\"props\":{\"path\":"
    "\"/etc/????.none\"}},\"h\":{\"type\":\"H264Sink\"},\"m\":{\"type\":"
    "\"Merge\"},\"v\":{\"type\":\"Valve\"},\"g\":{\"type\":\"Blur\",\"props\":{"
    "\"zoom\":1,\"kernelSize\":4,\"backend\":\"cuda\"}},\"t\":{\"type\":"
    "\"Rotate\"},\"y\":{\"type\":\"Resize\",\"props\":{\"kernelSize\":3,"
    "\"backend\":\"cuda\"}}},\"connections\":[{\"from\":\"s\","
    "\"to\":\"h\"},{\"from\":\"ss\",\"to\":\"m.none\"},{\"from\":\"m\",\"to\":"
    "\"m\"},{\"from\":\"v\",\"to\":\"m.input_2\"},{\"from\":\"r\",\"to\":"
    "\"m.input_2\"},{\"from\":\"s\",\"to\":\"v\",\"sieve\":false}]}";

static const char broken_file[] = "{\"a\": [1, {\"b\\n\": \"\\u20ac\"}],\n"
                                  " \"a\": tru}";

struct work {
    struct pen_registry *registry;
    const char *text;
    enum pen_status status;
    size_t issues;
    char first[400];
};

// The whole way from text to graph; what came out is kept in `w`.
static void do_work(struct work *w)
{
    struct pen_error err = { 0 };
    struct pen_description *d = NULL;
    struct stk_arena arena = { 0 };
    struct stk_graph *graph = NULL;
    w->status = PEN_E_NOMEM;
    w->issues = 0;
    struct pen_issues *issues = pen_issues_create();
    if (!issues)
        return;
    w->status = pen_description_parse(w->text, strlen(w->text), "t.json", &d,
                                      issues, &err);
    if (w->status == PEN_OK)
        w->status = pen_description_set(d, "s/~\xc3\xa9.height=8", &err);
    if (w->status == PEN_E_CONFIG && d)
        w->status = pen_description_set(d, "s.height=8", &err);
    if (w->status == PEN_OK)
        w->status =
            stk_graph_resolve(d, w->registry, &arena, &graph, issues, &err);
    if (w->status != PEN_OK && (err.status != w->status || !err.text[0]))
        w->status = PEN_E_STATE;
    w->issues = pen_issues_count(issues, PEN_SEVERITY_INFO);
    const struct pen_issue *first = pen_issues_get(issues, 0);
    snprintf(w->first, sizeof(w->first), "%s", first ? first->message : "");
    stk_arena_finish(&arena);
    pen_description_destroy(&d);
    pen_issues_destroy(&issues);
}

// One of each backend, of which one lacks what the other has.
static const struct pen_module_class scale_cpu = {
    TEST_CLASS("ScaleCpu", TRANSFORM),
    .tags = (const char *const[]){ "function:resize", "backend:cpu", NULL },
    .inputs = test_host_in,
    .outputs = test_host_out,
    .props = test_blur_props,
    .params_size = sizeof(struct blur_params),
};
static const struct pen_module_class scale_cuda = {
    TEST_CLASS("ScaleCuda", TRANSFORM),
    .flags = PEN_CLASS_CUDA,
    .tags = (const char *const[]){ "function:resize", "backend:cuda", NULL },
    .inputs = test_cuda_in,
    .outputs = test_cuda_out,
};

static void sweep(const char *text, enum pen_status expected)
{
    struct pen_error err = { 0 };
    struct work w = { .registry = test_registry(&err), .text = text };
    assert_non_null(w.registry);
    assert_int_equal(pen_registry_add(w.registry, &scale_cpu, &err), PEN_OK);
    assert_int_equal(pen_registry_add(w.registry, &scale_cuda, &err), PEN_OK);
    do_work(&w);
    assert_int_equal(w.status, expected);
    const struct work whole = w;

    unsigned failed = 0;
    for (unsigned nth = 1;; nth++) {
        pen_alloc_fail_arm(nth, false);
        do_work(&w);
        if (!pen_alloc_fail_disarm())
            break;
        failed++;
        // A text that is only nice to have may be left out (a suggestion by
        // the names of a folder); whatever was told must be right, then.
        if (w.status != PEN_E_NOMEM &&
            (w.status != expected || w.issues != whole.issues))
            fail_msg("allocation %u: %s, %zu issues, first: %s", nth,
                     pen_status_name(w.status), w.issues, w.first);
    }
    assert_int_equal(w.status, expected);
    assert_int_equal(w.issues, whole.issues);
    assert_string_equal(w.first, whole.first);
    assert_true(failed > 20);

    // And with everything that follows.
    for (unsigned nth = 1; nth <= failed; nth++) {
        pen_alloc_fail_arm(nth, true);
        do_work(&w);
        pen_alloc_fail_disarm();
        if (w.status != PEN_E_NOMEM)
            fail_msg("allocation %u and all after it: %s", nth,
                     pen_status_name(w.status));
    }
    pen_registry_destroy(&w.registry);
}

PEN_TEST(reading_and_resolving_unwind_from_every_failure)
{
    sweep(good_file, PEN_OK);
}

PEN_TEST(complaining_unwinds_from_every_failure)
{
    sweep(bad_file, PEN_E_CONFIG);
}

PEN_TEST(broken_json_unwinds_from_every_failure)
{
    sweep(broken_file, PEN_E_CONFIG);
}

PEN_TEST(a_registry_unwinds_from_every_failure)
{
    for (unsigned nth = 1;; nth++) {
        struct pen_error err = { 0 };
        pen_alloc_fail_arm(nth, false);
        struct pen_registry *r = test_registry(&err);
        if (!pen_alloc_fail_disarm()) {
            assert_non_null(r);
            pen_registry_destroy(&r);
            return;
        }
        assert_null(r);
        assert_int_equal(err.status, PEN_E_NOMEM);
    }
}

static char *describe_text(struct pen_registry *r)
{
    (void)r;
    return pen_describe_text(&test_signal);
}

static char *describe_json(struct pen_registry *r)
{
    (void)r;
    return pen_describe_json(&test_copy);
}

static char *list_json(struct pen_registry *r)
{
    return pen_registry_list_json(r, PEN_CATEGORY_NONE, NULL);
}

static char *generic_text(struct pen_registry *r)
{
    return pen_describe_generic_text(r, pen_generic_type_find("Blur"));
}

static char *generic_json(struct pen_registry *r)
{
    return pen_describe_generic_json(r, pen_generic_type_find("Blur"));
}

static char *schema_json(struct pen_registry *r)
{
    return pen_registry_schema_json(r);
}

PEN_TEST(texts_are_whole_or_not_there)
{
    static char *(*const makers[])(
        struct pen_registry *) = { describe_text, describe_json, list_json,
                                   generic_text,  generic_json,  schema_json };
    struct pen_error err = { 0 };
    struct pen_registry *r = test_registry(&err);
    for (size_t i = 0; i < sizeof(makers) / sizeof(makers[0]); i++) {
        char *whole = makers[i](r);
        assert_non_null(whole);
        for (unsigned nth = 1;; nth++) {
            pen_alloc_fail_arm(nth, false);
            char *text = makers[i](r);
            const bool fired = pen_alloc_fail_disarm();
            if (text && strcmp(text, whole) != 0)
                fail_msg("text %zu is cut by failure %u", i, nth);
            pen_free(text);
            if (!fired) {
                assert_true(nth > 10);
                break;
            }
        }
        pen_free(whole);
    }
    pen_registry_destroy(&r);
}

int main(int argc, char **argv)
{
    json_set_alloc_funcs(seen_malloc, seen_free);
    const struct CMUnitTest tests[] = {
        PEN_CASE(reading_and_resolving_unwind_from_every_failure),
        PEN_CASE(complaining_unwinds_from_every_failure),
        PEN_CASE(broken_json_unwinds_from_every_failure),
        PEN_CASE(a_registry_unwinds_from_every_failure),
        PEN_CASE(texts_are_whole_or_not_there),
    };
    return pen_test_run(argc, argv, tests, sizeof(tests) / sizeof(tests[0]));
}
