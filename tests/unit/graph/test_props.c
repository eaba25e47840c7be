// Properties: one value at a time, what is taken, what is refused and how.

#include "graph_fixture.h"

static const void *params_of(const struct checked *c, const char *id)
{
    for (uint32_t i = 0; i < c->graph->node_count; i++) {
        if (strcmp(c->graph->nodes[i].desc->id, id) == 0)
            return c->graph->nodes[i].params;
    }
    fail_msg("no node %s", id);
    return NULL;
}

static const struct stk_base_params *base_of(const struct checked *c,
                                             const char *id)
{
    for (uint32_t i = 0; i < c->graph->node_count; i++) {
        if (strcmp(c->graph->nodes[i].desc->id, id) == 0)
            return &c->graph->nodes[i].base;
    }
    fail_msg("no node %s", id);
    return NULL;
}

PEN_TEST(what_is_not_given_has_its_default)
{
    struct checked c = expect_none(SIGNAL_TO_SINK(SIZE));
    const struct signal_params *p = params_of(&c, "s");
    assert_int_equal(p->width, 64);
    assert_int_equal(p->height, 48);
    assert_int_equal(p->pattern, PATTERN_GRADIENT);
    assert_int_equal(p->rate.num, 0);
    assert_int_equal(p->rate.den, 0);
    assert_false(p->loop);
    assert_int_equal(base_of(&c, "s")->queue, 0);
    assert_int_equal(base_of(&c, "s")->policy, STK_ON_ERROR_STOP);
    finish(&c);
}

PEN_TEST(every_kind_of_value_is_taken)
{
    struct checked c = expect_none(SIGNAL_TO_SINK(
        "\"width\":1,\"height\":4096.0,\"pattern\":\"GRID\",\"rate\":30,"
        "\"loop\":true,\"queue\":3,\"onError\":\"retry:12\""));
    const struct signal_params *p = params_of(&c, "s");
    assert_int_equal(p->width, 1);
    assert_int_equal(p->height, 4096);
    assert_int_equal(p->pattern, PATTERN_GRID);
    assert_int_equal(p->rate.num, 30);
    assert_true(p->loop);
    assert_int_equal(base_of(&c, "s")->queue, 3);
    assert_int_equal(base_of(&c, "s")->policy, STK_ON_ERROR_RETRY);
    assert_int_equal(base_of(&c, "s")->retries, 12);
    finish(&c);

    c = expect_none(BLUR("\"kernelSize\":31,\"sigma\":15"));
    const struct blur_params *b = params_of(&c, "m");
    assert_int_equal(b->kernel_size, 31);
    assert_true(b->sigma == 15.0);
    finish(&c);
    c = expect_none(BLUR("\"kernelSize\":3,\"sigma\":0.1,"
                         "\"# kernelSize\":[1,{}],\"#\":null"));
    b = params_of(&c, "m");
    assert_int_equal(b->kernel_size, 3);
    assert_true(b->sigma == 0.1);
    finish(&c);
}

PEN_TEST(rates_are_ratios)
{
    static const struct {
        const char *text;
        int32_t num, den;
    } rates[] = {
        { "30", 30, 1 },
        { "29.97", 30000, 1001 },
        { "23.976", 24000, 1001 },
        { "59.94", 60000, 1001 },
        { "12.5", 25, 2 },
        { "1", 1, 1 },
        { "1000.0", 1000, 1 },
        { "\"30000/1001\"", 30000, 1001 },
        { "\"60/2\"", 30, 1 },
        { "\"25\"", 25, 1 },
        { "\"29.97\"", 30000, 1001 },
        { "\"12.5\"", 25, 2 },
    };
    for (size_t i = 0; i < sizeof(rates) / sizeof(rates[0]); i++) {
        char text[512];
        snprintf(text, sizeof(text), SIGNAL_TO_SINK(SIZE ",\"rate\":%s"),
                 rates[i].text);
        struct checked c = expect_none(text);
        const struct signal_params *p = params_of(&c, "s");
        if (p->rate.num != rates[i].num || p->rate.den != rates[i].den)
            fail_msg("%s is %d/%d", rates[i].text, p->rate.num, p->rate.den);
        finish(&c);
    }
    static const char *const bad[] = {
        "0",    "-1",     "1e300",  "\"30/0\"",  "\"0/1\"",
        "0.0",  "1001",   "0.5",    "\"1/2\"",   "\"1/2/3\"",
        "\"\"", "\"3.\"", "\"/3\"", "\"1.5/2\"", "\"9999999999999\"",
    };
    for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
        char text[512];
        snprintf(text, sizeof(text), SIGNAL_TO_SINK(SIZE ",\"rate\":%s"),
                 bad[i]);
        struct checked c = check_text(text);
        assert_string_equal(issue_of(c.issues, "E202")->pointer,
                            "/modules/s/props/rate");
        finish(&c);
    }
    expect_one(SIGNAL_TO_SINK(SIZE ",\"rate\":\"fast\""), "E201",
               "/modules/s/props/rate",
               "rate takes a rate such as 30, 29.97 or \"30000/1001\", not "
               "the string \"fast\"",
               "");
}

PEN_TEST(out_of_range_names_the_range_and_the_nearest)
{
    const char *at = "/modules/m/props/kernelSize";
    expect_one(BLUR("\"kernelSize\":33"), "E202", at,
               "kernelSize is 33, outside 3..31 px", "\"kernelSize\": 31");
    expect_one(BLUR("\"kernelSize\":-2147483649"), "E202", at,
               "kernelSize is -2147483649, outside 3..31 px",
               "\"kernelSize\": 3");
    expect_one(BLUR("\"kernelSize\":1e30"), "E202", at,
               "kernelSize is 1e+30, outside 3..31 px", "\"kernelSize\": 31");
    expect_one(BLUR("\"kernelSize\":16"), "E202", at,
               "kernelSize is 16 but must be odd", "\"kernelSize\": 17");
    expect_one(BLUR("\"kernelSize\":4"), "E202", at,
               "kernelSize is 4 but must be odd", "\"kernelSize\": 5");
    expect_one(BLUR("\"sigma\":0.05"), "E202", "/modules/m/props/sigma",
               "sigma is 0.05, outside 0.1..20", "\"sigma\": 0.1");
    expect_one(BLUR("\"queue\":70000"), "E202", "/modules/m/props/queue",
               "queue is 70000, outside 0..65536 frames", "\"queue\": 65536");
    // Without a range the limits of the type remain.
    struct checked c = check_text(
        "{\"modules\":{\"s\":{\"type\":\"FileReader\",\"props\":{\"path\":"
        "\"/dev/null\",\"startIndex\":2147483648}},\"k\":{\"type\":"
        "\"StatSink\"}},\"connections\":[{\"from\":\"s\",\"to\":\"k\"}]}");
    const struct pen_issue *is = issue_of(c.issues, "E202");
    assert_string_equal(is->message, "startIndex is 2147483648, which does "
                                     "not fit into 32 bits");
    assert_string_equal(is->suggestion, "\"startIndex\": 2147483647");
    finish(&c);
}

PEN_TEST(a_wrong_type_names_both_types)
{
    const char *at = "/modules/m/props/kernelSize";
    expect_one(BLUR("\"kernelSize\":\"15\""), "E201", at,
               "kernelSize takes an integer, not the string \"15\"",
               "\"kernelSize\": 15");
    expect_one(BLUR("\"kernelSize\":\"big\""), "E201", at,
               "kernelSize takes an integer, not the string \"big\"",
               "\"kernelSize\": 11");
    // What would not be taken is not proposed.
    expect_one(BLUR("\"kernelSize\":\"1000\""), "E201", at,
               "kernelSize takes an integer, not the string \"1000\"",
               "\"kernelSize\": 11");
    expect_one(BLUR("\"kernelSize\":15.5"), "E201", at,
               "kernelSize takes an integer, not the number 15.5",
               "\"kernelSize\": 16");
    expect_one(BLUR("\"kernelSize\":true"), "E201", at,
               "kernelSize takes an integer, not true", "\"kernelSize\": 11");
    expect_one(BLUR("\"kernelSize\":null"), "E201", at,
               "kernelSize takes an integer, not null", "\"kernelSize\": 11");
    expect_one(BLUR("\"kernelSize\":[3]"), "E201", at,
               "kernelSize takes an integer, not an array",
               "\"kernelSize\": 11");
    expect_one(BLUR("\"kernelSize\":{\"a\":1}"), "E201", at,
               "kernelSize takes an integer, not an object",
               "\"kernelSize\": 11");
    expect_one(BLUR("\"sigma\":\"wide\""), "E201", "/modules/m/props/sigma",
               "sigma takes a number, not the string \"wide\"",
               "\"sigma\": 1.5");
    expect_one(SIGNAL_TO_SINK(SIZE ",\"loop\":1"), "E201",
               "/modules/s/props/loop",
               "loop takes true or false, not the number 1", "\"loop\": true");
    expect_one(SIGNAL_TO_SINK(SIZE ",\"loop\":\"False\""), "E201",
               "/modules/s/props/loop",
               "loop takes true or false, not the string \"False\"",
               "\"loop\": false");
    expect_one(SIGNAL_TO_SINK(SIZE ",\"pattern\":1"), "E201",
               "/modules/s/props/pattern",
               "pattern takes one of GRADIENT, GRID, not the number 1",
               "\"pattern\": \"GRADIENT\"");
    expect_one(SIGNAL_TO_SINK(SIZE ",\"onError\":5"), "E201",
               "/modules/s/props/onError",
               "onError takes a string, not the number 5",
               "\"onError\": \"5\"");
}

PEN_TEST(a_wrong_choice_lists_the_choices)
{
    expect_one(SIGNAL_TO_SINK(SIZE ",\"pattern\":\"gradient\""), "E203",
               "/modules/s/props/pattern",
               "pattern: \"gradient\" is not one of GRADIENT, GRID",
               "\"pattern\": \"GRADIENT\"");
    expect_one(SIGNAL_TO_SINK(SIZE ",\"pattern\":\"GIRD\""), "E203",
               "/modules/s/props/pattern",
               "pattern: \"GIRD\" is not one of GRADIENT, GRID",
               "\"pattern\": \"GRID\"");
    expect_one(SIGNAL_TO_SINK(SIZE ",\"pattern\":\"bars\""), "E203",
               "/modules/s/props/pattern",
               "pattern: \"bars\" is not one of GRADIENT, GRID",
               "\"pattern\": \"GRADIENT\"");
    static const char *const bad[] = { "retry",    "retry:",  "retry:0",
                                       "retry:-1", "retry:x", "retry:99999",
                                       "retry:1x", "Stop",    "" };
    for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
        char text[512], message[128];
        snprintf(text, sizeof(text), SIGNAL_TO_SINK(SIZE ",\"onError\":\"%s\""),
                 bad[i]);
        snprintf(message, sizeof(message),
                 "onError: \"%s\" is not one of stop, drop, retry:n", bad[i]);
        expect_one(text, "E203", "/modules/s/props/onError", message,
                   "\"onError\": \"stop\"");
    }
}

PEN_TEST(an_unknown_property_names_the_nearest_or_all)
{
    expect_one(BLUR("\"kernalSize\":3"), "E200", "/modules/m/props/kernalSize",
               "GaussianBlur has no property kernalSize; did you mean "
               "kernelSize?",
               "\"kernelSize\"");
    expect_one(BLUR("\"KERNELSIZE\":3"), "E200", "/modules/m/props/KERNELSIZE",
               "GaussianBlur has no property KERNELSIZE; did you mean "
               "kernelSize?",
               "\"kernelSize\"");
    expect_one(BLUR("\"onEror\":\"drop\""), "E200", "/modules/m/props/onEror",
               "GaussianBlur has no property onEror; did you mean onError?",
               "\"onError\"");
    // The right word twice would be another error.
    expect_one(BLUR("\"kernelSize\":3,\"sigma\":1,\"kernalSize\":5"), "E200",
               "/modules/m/props/kernalSize",
               "GaussianBlur has no property kernalSize, and kernelSize is "
               "given beside it",
               "");
    expect_one(BLUR("\"zoom\":3"), "E200", "/modules/m/props/zoom",
               "GaussianBlur has no property zoom; its properties are "
               "kernelSize, sigma, queue, onError, backend, "
               "maxWidth, maxHeight",
               "");
    expect_one(BLUR("\"a/b~c\":3"), "E200", "/modules/m/props/a~1b~0c",
               "GaussianBlur has no property a/b~c; its properties are "
               "kernelSize, sigma, queue, onError, backend, "
               "maxWidth, maxHeight",
               "");
    expect_one(BLUR("\"fps\":30"), "E200", "/modules/m/props/fps",
               "the property fps of modules is not supported yet", "");
}

PEN_TEST(a_missing_required_property_is_an_error)
{
    expect_one(
        SIGNAL_TO_SINK("\"width\":64"), "E205", "/modules/s/props/height",
        "TestSignal needs the property height: an integer", "\"height\": 1");
    // It is there, misspelt: that is told, and not that it is missing as well.
    expect_one(SIGNAL_TO_SINK("\"width\":64,\"hieght\":48"), "E200",
               "/modules/s/props/hieght",
               "TestSignal has no property hieght; did you mean height?",
               "\"height\"");
    // What cannot be had yet, and comments, are no misspellings.
    struct checked later =
        check_text(SIGNAL_TO_SINK("\"width\":64,\"fps\":1,\"#height\":48"));
    assert_int_equal(pen_issues_count(later.issues, PEN_SEVERITY_ERROR), 2);
    assert_non_null(issue_of(later.issues, "E205"));
    finish(&later);
    struct checked c = check_text(
        "{\"modules\":{\"s\":{\"type\":\"TestSignal\"},\"k\":{\"type\":"
        "\"StatSink\"}},\"connections\":[{\"from\":\"s\",\"to\":\"k\"}]}");
    assert_int_equal(pen_issues_count(c.issues, PEN_SEVERITY_ERROR), 2);
    // A place is missing: the module's stands for it.
    assert_int_equal(pen_issues_get(c.issues, 0)->column, 13);
    finish(&c);
}

PEN_TEST(check_of_a_class_complains_at_the_property)
{
    expect_one(BLUR("\"kernelSize\":3,\"sigma\":4"), "E202",
               "/modules/m/props/sigma", "sigma 4.0 is wider than the kernel",
               "\"sigma\": 3");
    expect_one(BLUR("\"kernelSize\":3,\"sigma\":2"), "W202",
               "/modules/m/props/sigma", "sigma 2.0 is cut off by the kernel",
               "");
    // It is not asked while a value does not even fit by itself.
    expect_one(BLUR("\"kernelSize\":2,\"sigma\":4"), "E202",
               "/modules/m/props/kernelSize",
               "kernelSize is 2, outside 3..31 px", "\"kernelSize\": 3");
}

PEN_TEST(an_alias_presets_its_property)
{
    struct checked c = expect_none(THROUGH("\"type\":\"CudaMemCopyD2H\""));
    const struct copy_params *p = params_of(&c, "m");
    assert_int_equal(p->kind, COPY_D2H);
    assert_false(p->sync);
    finish(&c);
    c = expect_none(THROUGH("\"type\":\"CudaMemCopyD2H\",\"props\":{\"kind\":"
                            "\"DeviceToHost\",\"sync\":true}"));
    p = params_of(&c, "m");
    assert_int_equal(p->kind, COPY_D2H);
    assert_true(p->sync);
    finish(&c);
    expect_one(THROUGH("\"type\":\"CudaMemCopyH2D\",\"props\":{\"kind\":"
                       "\"DeviceToHost\"}"),
               "E206", "/modules/m/props/kind",
               "the type CudaMemCopyH2D means CudaMemCopy with kind "
               "HostToDevice, which \"DeviceToHost\" contradicts",
               "\"type\": \"CudaMemCopy\"");
    expect_one(THROUGH("\"type\":\"CudaMemCopy\""), "E205",
               "/modules/m/props/kind",
               "CudaMemCopy needs the property kind: one of HostToDevice, "
               "DeviceToHost",
               "\"kind\": \"HostToDevice\"");
}

PEN_TEST(settings_give_the_default_of_onError)
{
    struct checked c = expect_none(
        "{\"settings\":{\"on_error\":\"drop\"},\"modules\":{\"s\":{\"type\":"
        "\"TestSignal\",\"props\":{" SIZE "}},\"k\":{\"type\":\"StatSink\","
        "\"props\":{\"onError\":\"stop\"}}},\"connections\":[{\"from\":\"s\","
        "\"to\":\"k\"}]}");
    assert_int_equal(base_of(&c, "s")->policy, STK_ON_ERROR_DROP);
    assert_string_equal(base_of(&c, "s")->on_error, "drop");
    assert_int_equal(base_of(&c, "k")->policy, STK_ON_ERROR_STOP);
    finish(&c);
}

PEN_TEST(single_properties_are_set_from_text)
{
    struct stk_arena arena = { 0 };
    struct pen_error err = { 0 };
    struct signal_params s = { 0 };
    const struct pen_prop *table = test_signal_props;
    assert_int_equal(stk_prop_set_text(table, &s, "width", "15", &arena, &err),
                     PEN_OK);
    assert_int_equal(stk_prop_set_text(table, &s, "loop", "true", &arena, &err),
                     PEN_OK);
    assert_int_equal(
        stk_prop_set_text(table, &s, "pattern", "GRID", &arena, &err), PEN_OK);
    assert_int_equal(
        stk_prop_set_text(table, &s, "rate", "30000/1001", &arena, &err),
        PEN_OK);
    assert_int_equal(s.width, 15);
    assert_true(s.loop);
    assert_int_equal(s.pattern, PATTERN_GRID);
    assert_int_equal(s.rate.den, 1001);
    static const char *const bad[][2] = {
        { "width", "0" },    { "width", "x" }, { "width", "1 2" },
        { "loop", "maybe" }, { "rate", "x" },  { "pattern", "grid" },
        { "none", "1" },
    };
    for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
        err = (struct pen_error){ 0 };
        assert_int_equal(
            stk_prop_set_text(table, &s, bad[i][0], bad[i][1], &arena, &err),
            PEN_E_CONFIG);
        assert_int_equal(err.status, PEN_E_CONFIG);
        assert_true(err.text[0]);
    }
    assert_int_equal(s.width, 15);
    stk_arena_finish(&arena);
}

PEN_TEST(values_come_back_as_the_json_that_sets_them)
{
    struct checked c = expect_none(SIGNAL_TO_SINK(
        "\"width\":7,\"height\":8,\"pattern\":\"GRID\",\"rate\":\"25/2\","
        "\"loop\":true"));
    json_t *out = json_object();
    for (const struct pen_prop *row = test_signal_props; row->kind; row++)
        json_object_set_new(out, row->key,
                            stk_prop_get_json(row, params_of(&c, "s")));
    json_t *expected =
        json_pack("{s:i, s:i, s:s, s:s, s:b}", "width", 7, "height", 8,
                  "pattern", "GRID", "rate", "25/2", "loop", 1);
    assert_true(json_equal(out, expected));
    json_decref(out);
    json_decref(expected);
    finish(&c);
}

PEN_TEST_MAIN(PEN_CASE(what_is_not_given_has_its_default),
              PEN_CASE(every_kind_of_value_is_taken),
              PEN_CASE(rates_are_ratios),
              PEN_CASE(out_of_range_names_the_range_and_the_nearest),
              PEN_CASE(a_wrong_type_names_both_types),
              PEN_CASE(a_wrong_choice_lists_the_choices),
              PEN_CASE(an_unknown_property_names_the_nearest_or_all),
              PEN_CASE(a_missing_required_property_is_an_error),
              PEN_CASE(check_of_a_class_complains_at_the_property),
              PEN_CASE(an_alias_presets_its_property),
              PEN_CASE(settings_give_the_default_of_onError),
              PEN_CASE(single_properties_are_set_from_text),
              PEN_CASE(values_come_back_as_the_json_that_sets_them))
