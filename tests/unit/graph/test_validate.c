// The graph as a whole: types, pins, kinds, cycles, reachability, paths.

#include <sys/stat.h>
#include <unistd.h>

#include "graph_fixture.h"

#define S(id)    "\"" id "\":{\"type\":\"TestSignal\",\"props\":{" SIZE "}}"
#define K(id)    "\"" id "\":{\"type\":\"StatSink\"}"
#define B(id)    "\"" id "\":{\"type\":\"GaussianBlur\"}"
#define M(id, t) "\"" id "\":{\"type\":\"" t "\"}"
#define C(f, t)  "{\"from\":\"" f "\",\"to\":\"" t "\"}"
#define FILE_OF(modules, connections)                                          \
    "{\"modules\":{" modules "},\"connections\":[" connections "]}"

static const struct stk_node *node_of(const struct checked *c, const char *id,
                                      uint32_t *number)
{
    for (uint32_t i = 0; i < c->graph->node_count; i++) {
        if (strcmp(c->graph->nodes[i].desc->id, id) == 0) {
            *number = i;
            return &c->graph->nodes[i];
        }
    }
    fail_msg("no node %s", id);
    return NULL;
}

// "a.0->b.1 " for each edge, in the order of the file.
static const char *edges_of(const struct checked *c)
{
    static char text[1024];
    size_t n = 0;
    text[0] = 0;
    for (uint32_t i = 0; i < c->graph->edge_count; i++) {
        const struct stk_edge *e = &c->graph->edges[i];
        n += (size_t)snprintf(text + n, sizeof(text) - n, "%s.%u->%s.%u ",
                              c->graph->nodes[e->from].desc->id, e->from_pin,
                              c->graph->nodes[e->to].desc->id, e->to_pin);
    }
    return text;
}

PEN_TEST(a_good_graph_is_sorted_and_narrowed)
{
    struct checked c = expect_none(
        FILE_OF(K("k") "," B("b") "," S("s") "," M("r", "Merge") "," K("k2"),
                C("r", "k2") "," C("b", "k") "," C("s", "b") "," C(
                    "s", "r.input_2") "," C("b", "r")));
    assert_int_equal(c.graph->node_count, 5);
    static const char *const order[] = { "s", "b", "k", "r", "k2" };
    for (uint32_t i = 0; i < 5; i++)
        assert_string_equal(c.graph->nodes[i].desc->id, order[i]);
    assert_string_equal(edges_of(&c), "r.0->k2.0 b.0->k.0 s.0->b.0 "
                                      "s.0->r.1 b.0->r.0 ");
    uint32_t i;
    const struct stk_node *b = node_of(&c, "b", &i);
    assert_int_equal(b->inputs, 1);
    assert_int_equal(b->outputs, 1);
    assert_int_equal(b->in[0].mem, TEST_CUDA);
    assert_ptr_equal(b->cls, &test_blur);
    finish(&c);
}

PEN_TEST(narrow_decides_what_a_pin_gives)
{
    struct checked c = expect_none(
        FILE_OF("\"r\":{\"type\":\"FileReader\",\"props\":{\"path\":"
                "\"/dev/null\",\"outputFrameType\":\"EncodedImage\"}}," M(
                    "d", "ImageDecoder") "," K("k"),
                C("r", "d") "," C("d", "k")));
    uint32_t i;
    assert_int_equal(node_of(&c, "r", &i)->out[0].kinds, TEST_ENCODED);
    finish(&c);
    expect_one(
        FILE_OF("\"r\":{\"type\":\"FileReader\",\"props\":{\"path\":"
                "\"/dev/null\",\"outputFrameType\":\"EncodedImage\"}}," B(
                    "b") "," K("k"),
                C("r", "b") "," C("b", "k")),
        "E304", "/connections/0",
        "r.output gives EncodedImage, b.input takes RawImage",
        "\"convert\": { \"type\": \"ImageDecoder\" } with { \"from\": "
        "\"r.output\", \"to\": \"convert\" }, { \"from\": \"convert\", "
        "\"to\": \"b.input\" } instead");
}

PEN_TEST(kinds_that_do_not_meet_are_refused)
{
    expect_one(FILE_OF(S("s") "," M("h", "H264Sink"), C("s", "h.input")),
               "E304", "/connections/0",
               "s.output gives RawImage, h.input takes H264Data", "");
    // "Frame" meets everything, on either side.
    struct checked c = expect_none(
        FILE_OF("\"r\":{\"type\":\"FileReader\",\"props\":{\"path\":"
                "\"/dev/null\"}}," M("h", "H264Sink"),
                C("r", "h")));
    finish(&c);
}

PEN_TEST(an_unknown_type_names_the_nearest)
{
    expect_one(FILE_OF(S("s") "," M("b", "GausianBlur") "," K("k"),
                       C("s", "b") "," C("b", "k")),
               "E100", "/modules/b/type",
               "there is no module type GausianBlur; did you mean "
               "GaussianBlur?",
               "\"type\": \"GaussianBlur\"");
    expect_one(FILE_OF(S("s") "," M("b", "Teapot") "," K("k"),
                       C("s", "b.spout") "," C("b", "k")),
               "E100", "/modules/b/type", "there is no module type Teapot", "");
    // It might be the source: that there is none is not said.
    expect_one(FILE_OF(M("s", "TestSignall") "," K("k"), C("s", "k")), "E100",
               "/modules/s/type",
               "there is no module type TestSignall; did you mean TestSignal?",
               "\"type\": \"TestSignal\"");
}

PEN_TEST(unknown_ends_of_connections_are_told_once)
{
    expect_one(FILE_OF(S("signal") "," K("sink"), C("signl.output", "sink")),
               "E300", "/connections/0/from",
               "there is no module signl to connect from; did you mean "
               "signal?",
               "\"from\": \"signal.output\"");
    expect_one(FILE_OF(S("signal") "," K("sink"), C("signal", "snik")), "E301",
               "/connections/0/to",
               "there is no module snik to connect to; did you mean sink?",
               "\"to\": \"sink\"");
    struct checked c = check_text(
        FILE_OF(S("signal") "," K("sink"), C("nowhere", "elsewhere")));
    issue_of(c.issues, "E300");
    issue_of(c.issues, "E301");
    finish(&c);
}

PEN_TEST(unknown_pins_are_told_even_where_there_is_only_one)
{
    expect_one(FILE_OF(S("s") "," K("k"), C("s.out", "k")), "E302",
               "/connections/0/from",
               "s (TestSignal) has no output out; its outputs: output",
               "\"from\": \"s.output\"");
    expect_one(FILE_OF(S("s") "," K("k"), C("s", "k.zzz")), "E303",
               "/connections/0/to",
               "k (StatSink) has no input zzz; its inputs: input",
               "\"to\": \"k.input\"");
    expect_one(FILE_OF(S("s") "," M("p", "Split") "," K("k"),
                       C("s", "p") "," C("p.output_3", "k")),
               "E302", "/connections/1/from",
               "p (Split) has no output output_3; its outputs: output_1, "
               "output_2",
               "\"from\": \"p.output_1\"");
    expect_one(FILE_OF(S("s") "," B("b") "," K("k"),
                       C("s", "b") "," C("b.input", "k")),
               "E302", "/connections/1/from",
               "b (GaussianBlur) has no output input, that is an input; its "
               "outputs: output",
               "\"from\": \"b.output\"");
    expect_one(
        FILE_OF(S("s") "," K("k") "," M("m", "Merge") "," K("l"),
                C("s", "k") "," C("k", "m") "," C("s", "m") "," C("m", "l")),
        "E302", "/connections/1/from", "k (StatSink) has no outputs", "");
}

PEN_TEST(a_source_as_destination_has_no_inputs)
{
    expect_one(
        FILE_OF(S("s") "," S("t") "," K("k"), C("s", "t") "," C("t", "k")),
        "E303", "/connections/0/to", "t (TestSignal) has no inputs", "");
}

PEN_TEST(two_connections_into_one_input_are_refused)
{
    expect_one(FILE_OF(S("s") "," S("t") "," K("k"),
                       C("s", "k") "," C("t", "k.input")),
               "E305", "/connections/1/to",
               "the input k.input has two connections; the other is "
               "/connections/0 (s -> k)",
               "remove this connection");
    expect_one(
        FILE_OF(S("s") "," M("m", "Merge") "," K("k"),
                C("s", "m") "," C("s", "m") "," C("s", "m") "," C("m", "k")),
        "E305", "/connections/2/to",
        "all inputs of m have a connection already: input_1, input_2",
        "remove this connection");
}

// Words whose hashes are equal.
PEN_TEST(modules_are_told_apart_by_their_names)
{
    struct checked c = expect_none(FILE_OF(
        S("liquid") "," B("costarring") "," B("zinke") "," K("altarage"),
        C("liquid", "costarring") "," C("costarring",
                                        "zinke") "," C("zinke", "altarage")));
    assert_string_equal(edges_of(&c), "liquid.0->costarring.0 "
                                      "costarring.0->zinke.0 "
                                      "zinke.0->altarage.0 ");
    finish(&c);
    expect_one(FILE_OF(S("declinate") "," K("k") "," K("l"),
                       C("macallums", "k") "," C("declinate", "l")),
               "E300", "/connections/0/from",
               "there is no module macallums to connect from", "");
}

PEN_TEST(a_bare_id_takes_the_first_free_pin_whatever_the_order)
{
    struct checked c = expect_none(
        FILE_OF(S("s") "," S("t") "," M("m", "Merge") "," M("p", "Split") "," K(
                    "k") "," K("l"),
                C("s", "m") "," C("t", "m.input_1") "," C("m", "p") "," C(
                    "p", "k") "," C("p.output_1", "l")));
    assert_string_equal(edges_of(&c), "s.0->m.1 t.0->m.0 m.0->p.0 "
                                      "p.1->k.0 p.0->l.0 ");
    finish(&c);
    // Several connections between two modules are several edges.
    c = expect_none(
        FILE_OF(S("s") "," M("p", "Split") "," M("m", "Merge") "," K("k"),
                C("s", "p") "," C("p", "m") "," C("p", "m") "," C("m", "k")));
    assert_string_equal(edges_of(&c), "s.0->p.0 p.0->m.0 p.1->m.1 m.0->k.0 ");
    finish(&c);
    expect_one(
        FILE_OF(S("s") "," M("p", "Split") "," K("k") "," K("l") "," K("n"),
                C("s", "p") "," C("p", "k") "," C("p", "l") "," C("p", "n")),
        "E302", "/connections/3/from",
        "p has no output left without a connection; name one of "
        "output_1, output_2",
        "\"from\": \"p.output_1\"");
}

PEN_TEST(the_order_of_connections_does_not_matter)
{
    static const char *const parts[] = {
        C("s", "a"),
        C("a", "b"),
        C("b", "k"),
        C("a", "l"),
    };
    unsigned order[4] = { 0, 1, 2, 3 };
    for (unsigned turn = 0; turn < 24; turn++) {
        // The permutations by the factorial number system.
        unsigned left[4] = { 0, 1, 2, 3 }, rest = turn;
        for (unsigned i = 0; i < 4; i++) {
            static const unsigned factorial[] = { 6, 2, 1, 1 };
            const unsigned pick = rest / factorial[i];
            rest %= factorial[i];
            order[i] = left[pick];
            memmove(&left[pick], &left[pick + 1],
                    (3 - i - pick) * sizeof(left[0]));
        }
        char text[1024];
        snprintf(text, sizeof(text),
                 FILE_OF(K("k") "," B("b") "," B("a") "," S("s") "," K("l"),
                         "%s,%s,%s,%s"),
                 parts[order[0]], parts[order[1]], parts[order[2]],
                 parts[order[3]]);
        struct checked c = expect_none(text);
        static const char *const ids[] = { "s", "a", "b", "k", "l" };
        for (uint32_t i = 0; i < 5; i++)
            assert_string_equal(c.graph->nodes[i].desc->id, ids[i]);
        finish(&c);
    }
}

PEN_TEST(required_inputs_must_be_connected)
{
    expect_one(FILE_OF(S("s") "," M("m", "Merge") "," K("k"),
                       C("s", "m") "," C("m", "k")),
               "E307", "/modules/m", "the input m.input_2 needs a connection",
               "{ \"from\": \"s.output\", \"to\": \"m.input_2\" }");
    // An optional one need not: but then a source must lead there otherwise.
    struct checked c = expect_none(FILE_OF(
        S("s") "," M("v", "Valve") "," K("k"), C("s", "v") "," C("v", "k")));
    finish(&c);
}

PEN_TEST(a_missing_source_and_missing_modules_are_errors)
{
    expect_one("{}", "E402", "/modules", "there are no modules",
               "\"modules\": { \"id\": { \"type\": \"...\" } }");
    expect_one("{\"modules\":{\"#off\":{}}}", "E402", "/modules",
               "there are no modules",
               "\"modules\": { \"id\": { \"type\": \"...\" } }");
    expect_one(
        FILE_OF(M("v", "Valve") "," K("k"), C("v", "k")), "E400", "/modules",
        "there is no source: no module makes frames",
        "\"source\": { \"type\": \"FileReader\", \"props\": { \"path\": "
        "\"...\" } } with { \"from\": \"source\", \"to\": \"v.input\" }");
}

PEN_TEST(a_cycle_is_named_whole)
{
    expect_one(
        FILE_OF(S("s") "," M("m", "Merge") "," B("a") "," B("b") "," K("k"),
                C("s", "m") "," C("m", "a") "," C("a", "b") "," C(
                    "b", "m") "," C("b", "k")),
        "E401", "/connections/3",
        "the connections form a cycle: m -> a -> b -> m",
        "remove { \"from\": \"b\", \"to\": \"m\" }");
    expect_one(FILE_OF(S("s") "," M("m", "Merge") "," K("k"),
                       C("s", "m") "," C("m", "m") "," C("m", "k")),
               "E401", "/connections/1", "m is connected to itself: m -> m",
               "remove { \"from\": \"m\", \"to\": \"m\" }");
    // Two cycles apart are two errors.
    struct checked c = check_text(
        FILE_OF(S("s") "," K("k") "," B("a") "," B("b") "," B("c") "," B("d"),
                C("s", "k") "," C("a", "b") "," C("b", "a") "," C(
                    "c", "d") "," C("d", "c")));
    assert_int_equal(pen_issues_count(c.issues, PEN_SEVERITY_ERROR), 2);
    assert_string_equal(pen_issues_get(c.issues, 0)->message,
                        "the connections form a cycle: a -> b -> a");
    assert_string_equal(pen_issues_get(c.issues, 1)->message,
                        "the connections form a cycle: c -> d -> c");
    finish(&c);
}

PEN_TEST(modules_without_use_are_warned_of)
{
    expect_one(FILE_OF(S("s") "," K("k") "," S("t"), C("s", "k")), "W400",
               "/modules/t", "t has no connection", "\"#t\"");
    struct checked c =
        check_text(FILE_OF(S("s") "," K("k") "," K("l"), C("s", "k")));
    assert_string_equal(issue_of(c.issues, "W400")->pointer, "/modules/l");
    assert_string_equal(issue_of(c.issues, "E307")->message,
                        "the input l.input needs a connection");
    finish(&c);
    c = check_text(FILE_OF(S("s") "," K("k") "," M("v", "Valve") "," K("l"),
                           C("s", "k") "," C("v", "l")));
    assert_int_equal(c.status, PEN_OK);
    assert_int_equal(pen_issues_count(c.issues, PEN_SEVERITY_INFO), 2);
    assert_string_equal(pen_issues_get(c.issues, 0)->code, "W401");
    assert_string_equal(pen_issues_get(c.issues, 0)->message,
                        "no source leads to v: it never receives a frame");
    assert_string_equal(pen_issues_get(c.issues, 1)->pointer, "/modules/l");
    finish(&c);
    expect_one(
        FILE_OF(S("s") "," K("k") "," B("b"), C("s", "k") "," C("s", "b")),
        "W402", "/modules/b", "the output of b goes nowhere",
        "\"sink\": { \"type\": \"StatSink\" } with { \"from\": \"b.output\", "
        "\"to\": \"sink\" }");
}

PEN_TEST(one_pass_tells_everything_in_the_order_of_the_file)
{
    struct checked c =
        check_text("{\"settings\":{\"queueSize\":0},\n"
                   "\"modules\":{\n"
                   "\"s\":{\"type\":\"TestSignal\",\"props\":{\"width\":0}},\n"
                   "\"b\":{\"type\":\"GausianBlur\"},\n"
                   "\"m\":{\"type\":\"Merge\"},\n"
                   "\"k\":{\"type\":\"StatSink\"},\n"
                   "\"h\":{\"type\":\"H264Sink\"}},\n"
                   "\"connections\":[\n" C("s", "k.inptu") ",\n" C(
                       "s", "h") ",\n" C("s", "m") "]}");
    static const struct {
        const char *code;
        int line;
    } expected[] = {
        { "E004", 1 }, { "E205", 3 }, { "E202", 3 },
        { "W400", 4 }, { "E100", 4 }, { "E307", 5 },
        { "W402", 5 }, { "E303", 9 }, { "E304", 10 },
    };
    const size_t count = sizeof(expected) / sizeof(expected[0]);
    if (pen_issues_count(c.issues, PEN_SEVERITY_INFO) != count)
        fail_msg("%s", issues_text(c.issues));
    for (size_t i = 0; i < count; i++) {
        const struct pen_issue *is = pen_issues_get(c.issues, i);
        if (strcmp(is->code, expected[i].code) != 0 ||
            is->line != expected[i].line)
            fail_msg("issue %zu:%s", i, issues_text(c.issues));
        assert_true(is->column >= 1);
    }
    assert_int_equal(pen_issues_count(c.issues, PEN_SEVERITY_ERROR), 7);
    assert_int_equal(pen_issues_count(c.issues, PEN_SEVERITY_WARNING), count);
    assert_null(pen_issues_get(c.issues, count));
    assert_string_equal(c.err.where, "/settings/queueSize");
    finish(&c);
}

// --- paths ------------------------------------------------------------------

static struct checked check_path(const char *type, const char *path)
{
    char text[2048];
    if (strcmp(type, "FileReader") == 0)
        snprintf(text, sizeof(text),
                 FILE_OF("\"r\":{\"type\":\"FileReader\",\"props\":{\"path\":"
                         "\"%s\"}}," K("k"),
                         C("r", "k")),
                 path);
    else
        snprintf(text, sizeof(text),
                 FILE_OF(S("s") ",\"w\":{\"type\":\"FileWriter\",\"props\":{"
                                "\"path\":\"%s\"}}",
                         C("s", "w")),
                 path);
    return check_text(text);
}

PEN_TEST(files_to_read_must_be_there)
{
    const char *folder = pen_test_folder();
    char path[600];
    snprintf(path, sizeof(path), "%s/photo_07.jpg", folder);
    pen_test_write_file(path, "x", 1);
    struct checked c = check_path("FileReader", path);
    assert_int_equal(pen_issues_count(c.issues, PEN_SEVERITY_INFO), 0);
    finish(&c);

    char wrong[600], expected[700];
    snprintf(wrong, sizeof(wrong), "%s/photo_7.jpg", folder);
    c = check_path("FileReader", wrong);
    const struct pen_issue *is = issue_of(c.issues, "E600");
    snprintf(expected, sizeof(expected), "%s: No such file or directory",
             wrong);
    assert_string_equal(is->message, expected);
    assert_string_equal(is->pointer, "/modules/r/props/path");
    snprintf(expected, sizeof(expected), "\"path\": \"%s\"", path);
    assert_string_equal(is->suggestion, expected);
    assert_int_equal(c.status, PEN_E_CONFIG);
    finish(&c);

    c = check_path("FileReader", folder);
    snprintf(expected, sizeof(expected), "\"path\": \"%s/*\"", folder);
    assert_string_equal(issue_of(c.issues, "E601")->suggestion, expected);
    finish(&c);
    c = check_path("FileReader", "");
    issue_of(c.issues, "E600");
    finish(&c);
    snprintf(wrong, sizeof(wrong), "%s/photo_07.jpg/x", folder);
    c = check_path("FileReader", wrong);
    assert_non_null(
        strstr(issue_of(c.issues, "E600")->message, "Not a directory"));
    finish(&c);
}

PEN_TEST(a_pattern_without_match_is_a_warning)
{
    const char *folder = pen_test_folder();
    char path[600];
    snprintf(path, sizeof(path), "%s/a0123.jpg", folder);
    pen_test_write_file(path, "x", 1);
    snprintf(path, sizeof(path), "%s/.hidden.png", folder);
    pen_test_write_file(path, "x", 1);
    static const struct {
        const char *pattern;
        bool fits;
    } patterns[] = {
        { "a????.jpg", true },
        { "a???.jpg", false },
        { "a?????.jpg", false },
        { "????.jpg", false },
        { "*.jpg", true },
        { "*", true },
        { "a*3.j*g", true },
        { "*.png", false },
        { "?*.jpg", true },
        { "?0123.jpg", false },
        { "b*", false },
        { "*?", true },
        { "[ab]*.[jJ][pP]*[gG]", true },
        { "[!a]*", false },
        { ".*.png", true },
        { "*.pn", false },
    };
    for (size_t i = 0; i < sizeof(patterns) / sizeof(patterns[0]); i++) {
        snprintf(path, sizeof(path), "%s/%s", folder, patterns[i].pattern);
        struct checked c = check_path("FileReader", path);
        assert_int_equal(c.status, PEN_OK);
        if (pen_issues_count(c.issues, PEN_SEVERITY_INFO) !=
            (patterns[i].fits ? 0 : 1))
            fail_msg("%s:%s", patterns[i].pattern, issues_text(c.issues));
        if (!patterns[i].fits)
            assert_string_equal(issue_of(c.issues, "W600")->pointer,
                                "/modules/r/props/path");
        finish(&c);
    }
    // The pattern that fits what is there.
    char expected[700];
    snprintf(path, sizeof(path), "%s/a??.jpg", folder);
    struct checked c = check_path("FileReader", path);
    snprintf(expected, sizeof(expected), "\"path\": \"%s/a????.jpg\"", folder);
    assert_string_equal(issue_of(c.issues, "W600")->suggestion, expected);
    finish(&c);
    snprintf(path, sizeof(path), "%s/zebra??.tiff", folder);
    c = check_path("FileReader", path);
    assert_string_equal(issue_of(c.issues, "W600")->suggestion, "");
    finish(&c);

    snprintf(path, sizeof(path), "%s/none/????.jpg", folder);
    c = check_path("FileReader", path);
    assert_non_null(strstr(issue_of(c.issues, "W600")->message,
                           "cannot be read: No such file"));
    finish(&c);
}

PEN_TEST(folders_to_write_are_looked_at_and_not_made)
{
    const char *folder = pen_test_folder();
    char path[600];
    snprintf(path, sizeof(path), "%s/out/????.jpg", folder);
    struct checked c = check_path("FileWriter", path);
    assert_int_equal(pen_issues_count(c.issues, PEN_SEVERITY_INFO), 0);
    finish(&c);
    snprintf(path, sizeof(path), "%s/out", folder);
    assert_int_not_equal(access(path, F_OK), 0);

    pen_test_write_file(path, "x", 1);
    snprintf(path, sizeof(path), "%s/out/????.jpg", folder);
    c = check_path("FileWriter", path);
    assert_non_null(
        strstr(issue_of(c.issues, "W602")->message, "is no folder"));
    assert_int_equal(c.status, PEN_OK);
    finish(&c);
}

PEN_TEST(a_folder_that_cannot_be_written_is_a_warning)
{
    const char *folder = pen_test_folder();
    char path[600];
    assert_int_equal(chmod(folder, 0755), 0);
    // Nothing is forbidden to root: be somebody else for the while.
    const bool root = geteuid() == 0;
    if (root)
        assert_int_equal(seteuid(65534), 0);
    else
        assert_int_equal(chmod(folder, 0555), 0);
    snprintf(path, sizeof(path), "%s/????.jpg", folder);
    struct checked c = check_path("FileWriter", path);
    if (root)
        assert_int_equal(seteuid(0), 0);
    assert_int_equal(chmod(folder, 0755), 0);
    assert_non_null(strstr(issue_of(c.issues, "W602")->message,
                           "cannot be written: Permission denied"));
    assert_int_equal(c.status, PEN_OK);
    finish(&c);
}

// --- repairs ----------------------------------------------------------------

PEN_TEST(a_missing_connection_begins_where_frames_go_nowhere)
{
    // b goes nowhere and is not behind m.
    struct checked c =
        check_text(FILE_OF(S("s") "," M("m", "Merge") "," B("b") "," K("k"),
                           C("s", "m") "," C("m", "k") "," C("s", "b")));
    assert_string_equal(issue_of(c.issues, "E307")->suggestion,
                        "{ \"from\": \"b.output\", \"to\": \"m.input_2\" }");
    assert_string_equal(issue_of(c.issues, "W402")->suggestion,
                        "{ \"from\": \"b.output\", \"to\": \"m.input_2\" }");
    finish(&c);
    // Behind m it would close a cycle: the source serves both, and b needs a
    // sink.
    c = check_text(FILE_OF(S("s") "," M("m", "Merge") "," B("b"),
                           C("s", "m") "," C("m", "b")));
    assert_string_equal(issue_of(c.issues, "E307")->suggestion,
                        "{ \"from\": \"s.output\", \"to\": \"m.input_2\" }");
    assert_string_equal(issue_of(c.issues, "W402")->suggestion,
                        "\"sink\": { \"type\": \"StatSink\" } with { \"from\": "
                        "\"b.output\", \"to\": \"sink\" }");
    finish(&c);
    // What gives other frames is no beginning.
    c = check_text(
        FILE_OF(S("s") "," K("k") "," M("h", "H264Sink"), C("s", "k")));
    assert_string_equal(issue_of(c.issues, "E307")->suggestion,
                        "{ \"from\": \"...\", \"to\": \"h.input\" }");
    assert_string_equal(issue_of(c.issues, "W400")->suggestion, "\"#h\"");
    finish(&c);
}

PEN_TEST(a_module_that_no_source_leads_to_gets_one)
{
    struct checked c =
        check_text(FILE_OF(S("s") "," K("k") "," M("v", "Valve") "," K("l"),
                           C("s", "k") "," C("v", "l")));
    assert_string_equal(pen_issues_get(c.issues, 0)->suggestion,
                        "{ \"from\": \"s.output\", \"to\": \"v.input\" }");
    // What comes behind it has no input that is free.
    assert_string_equal(pen_issues_get(c.issues, 1)->suggestion, "");
    finish(&c);
}

PEN_TEST(a_second_connection_is_led_to_an_input_that_is_left)
{
    struct checked c = check_text(
        FILE_OF(S("s") "," S("t") "," M("m", "Merge") "," K("k"),
                C("s", "m.input_1") "," C("t", "m.input_1") "," C("m", "k")));
    assert_string_equal(issue_of(c.issues, "E305")->suggestion,
                        "\"to\": \"m.input_2\"");
    assert_int_equal(pen_issues_count(c.issues, PEN_SEVERITY_INFO), 1);
    finish(&c);
    // One that a later connection names is not left.
    c = check_text(FILE_OF(S("s") "," S("t") "," M("m", "Merge") "," K("k"),
                           C("s", "m.input_1") "," C("t", "m.input_1") "," C(
                               "s", "m.input_2") "," C("m", "k")));
    assert_string_equal(issue_of(c.issues, "E305")->suggestion,
                        "remove this connection");
    finish(&c);
}

PEN_TEST(new_modules_have_names_that_are_free)
{
    struct checked c = check_text(FILE_OF(S("sink") "," B("b") "," B("sink2"),
                                          C("sink", "b") "," C("b", "sink2")));
    assert_string_equal(
        issue_of(c.issues, "W402")->suggestion,
        "\"sink3\": { \"type\": \"StatSink\" } with { \"from\": "
        "\"sink2.output\", \"to\": \"sink3\" }");
    finish(&c);
}

PEN_TEST(ten_thousand_missing_connections_are_told_in_time)
{
    enum { COUNT = 10000 };
    struct stk_text t = { 0 };
    stk_text_add(&t, "{\"modules\":{" S("s") "," K("k"));
    for (int i = 0; i < COUNT; i++)
        stk_text_addf(&t, ",\"b%d\":{\"type\":\"GaussianBlur\"}", i);
    stk_text_add(&t, "},\"connections\":[" C("s", "k"));
    for (int i = 1; i < COUNT; i++)
        stk_text_addf(&t, ",{\"from\":\"b%d\",\"to\":\"b%d\"}", i & ~1, i | 1);
    stk_text_add(&t, "]}");
    struct checked c = check_bytes(t.data, t.length);
    // A hundred have an end named, the others the place for it.
    assert_true(pen_issues_count(c.issues, PEN_SEVERITY_ERROR) >= COUNT / 2);
    const struct pen_issue *is;
    size_t named = 0, open = 0;
    for (size_t i = 0; (is = pen_issues_get(c.issues, i)); i++) {
        if (strcmp(is->code, "E307") != 0)
            continue;
        named += strstr(is->suggestion, "\"...\"") == NULL;
        open += strstr(is->suggestion, "\"...\"") != NULL;
    }
    assert_true(named >= 20);
    assert_true(open >= 20);
    stk_text_finish(&t);
    finish(&c);
}

// --- size -------------------------------------------------------------------

PEN_TEST(ten_thousand_modules_resolve_in_order)
{
    enum { COUNT = 10000 };
    struct stk_text t = { 0 };
    stk_text_add(&t, "{\"modules\":{" K("k"));
    for (int i = COUNT; i-- > 0;)
        stk_text_addf(&t, ",\"b%d\":{\"type\":\"GaussianBlur\"}", i);
    stk_text_add(&t, "," S("s") "},\"connections\":[" C("s", "b0"));
    for (int i = 0; i + 1 < COUNT; i++)
        stk_text_addf(&t, ",{\"from\":\"b%d\",\"to\":\"b%d\"}", i, i + 1);
    stk_text_addf(&t, ",{\"from\":\"b%d\",\"to\":\"k\"}]}", COUNT - 1);
    struct checked c = check_bytes(t.data, t.length);
    assert_int_equal(c.status, PEN_OK);
    assert_int_equal(c.graph->node_count, COUNT + 2);
    for (uint32_t i = 0; i < COUNT; i++)
        assert_int_equal(atoi(c.graph->nodes[i + 1].desc->id + 1), i);
    stk_text_finish(&t);
    finish(&c);
}

PEN_TEST(ten_thousand_wrong_names_are_all_told)
{
    enum { COUNT = 10000 };
    struct stk_text t = { 0 };
    stk_text_add(&t, "{\"modules\":{" S("s") "," K("k"));
    for (int i = 0; i < COUNT; i++)
        stk_text_addf(&t, ",\"b%d\":{\"type\":\"GaussianBlr\"}", i);
    stk_text_add(&t, "},\"connections\":[" C("s", "k"));
    for (int i = 0; i < COUNT; i++)
        stk_text_addf(&t, ",{\"from\":\"b%d\",\"to\":\"nowhere%d\"}", i, i);
    stk_text_add(&t, "]}");
    struct checked c = check_bytes(t.data, t.length);
    assert_int_equal(c.status, PEN_E_CONFIG);
    assert_int_equal(pen_issues_count(c.issues, PEN_SEVERITY_ERROR), 2 * COUNT);
    stk_text_finish(&t);
    finish(&c);
}

PEN_TEST(a_cycle_of_ten_thousand_is_found)
{
    enum { COUNT = 10000 };
    struct stk_text t = { 0 };
    stk_text_add(&t, "{\"modules\":{" S("s") "," K("k"));
    for (int i = 0; i < COUNT; i++)
        stk_text_addf(&t, ",\"b%d\":{\"type\":\"GaussianBlur\"}", i);
    stk_text_add(&t, "},\"connections\":[" C("s", "k"));
    for (int i = 0; i < COUNT; i++)
        stk_text_addf(&t, ",{\"from\":\"b%d\",\"to\":\"b%d\"}", i,
                      (i + 1) % COUNT);
    stk_text_add(&t, "]}");
    struct checked c = check_bytes(t.data, t.length);
    assert_int_equal(pen_issues_count(c.issues, PEN_SEVERITY_INFO), 1);
    const char *message = issue_of(c.issues, "E401")->message;
    assert_non_null(strstr(message, ": b0 -> b1 -> "));
    assert_non_null(strstr(message, " -> b9999 -> b0"));
    stk_text_finish(&t);
    finish(&c);
}

PEN_TEST_MAIN(PEN_CASE(a_good_graph_is_sorted_and_narrowed),
              PEN_CASE(narrow_decides_what_a_pin_gives),
              PEN_CASE(kinds_that_do_not_meet_are_refused),
              PEN_CASE(an_unknown_type_names_the_nearest),
              PEN_CASE(unknown_ends_of_connections_are_told_once),
              PEN_CASE(unknown_pins_are_told_even_where_there_is_only_one),
              PEN_CASE(a_source_as_destination_has_no_inputs),
              PEN_CASE(two_connections_into_one_input_are_refused),
              PEN_CASE(modules_are_told_apart_by_their_names),
              PEN_CASE(a_bare_id_takes_the_first_free_pin_whatever_the_order),
              PEN_CASE(the_order_of_connections_does_not_matter),
              PEN_CASE(required_inputs_must_be_connected),
              PEN_CASE(a_missing_source_and_missing_modules_are_errors),
              PEN_CASE(a_cycle_is_named_whole),
              PEN_CASE(modules_without_use_are_warned_of),
              PEN_CASE(a_missing_connection_begins_where_frames_go_nowhere),
              PEN_CASE(a_module_that_no_source_leads_to_gets_one),
              PEN_CASE(a_second_connection_is_led_to_an_input_that_is_left),
              PEN_CASE(new_modules_have_names_that_are_free),
              PEN_CASE(ten_thousand_missing_connections_are_told_in_time),
              PEN_CASE(one_pass_tells_everything_in_the_order_of_the_file),
              PEN_CASE(files_to_read_must_be_there),
              PEN_CASE(a_pattern_without_match_is_a_warning),
              PEN_CASE(folders_to_write_are_looked_at_and_not_made),
              PEN_CASE(a_folder_that_cannot_be_written_is_a_warning),
              PEN_CASE(ten_thousand_modules_resolve_in_order),
              PEN_CASE(ten_thousand_wrong_names_are_all_told),
              PEN_CASE(a_cycle_of_ten_thousand_is_found))
