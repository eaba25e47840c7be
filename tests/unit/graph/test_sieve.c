// sieve false: what a module gets is forwarded beside what it gives, as further
// edges of the graph.

#include "graph_fixture.h"

// Pictures go in, findings come out (H264Data stands for them); they are drawn
// into a picture by a module that needs both.
TEST_PINS(raw_in, TEST_PIN("input", TEST_RAW, TEST_HOST, PEN_FMT_BITS_ALL11));
TEST_PINS(raw_out, TEST_PIN("output", TEST_RAW, TEST_HOST, PEN_FMT_BITS_ALL11));
TEST_PINS(found_out, TEST_PIN("found", TEST_H264, TEST_HOST, 0));
TEST_PINS(draw_in,
          TEST_PIN("mask", TEST_RAW, TEST_HOST, PEN_FMT_BIT(PEN_FMT_MONO)),
          TEST_PIN("picture", TEST_RAW, TEST_HOST,
                   PEN_FMT_BITS_ALL11 & ~PEN_FMT_BIT(PEN_FMT_MONO)),
          TEST_PIN("found", TEST_H264, TEST_HOST, 0));
TEST_PINS(over_in, TEST_PIN("picture", TEST_RAW, TEST_HOST, PEN_FMT_BITS_ALL11),
          TEST_PIN("found", TEST_H264, TEST_HOST, 0));
TEST_PINS(three_in, TEST_PIN("a", TEST_FRAME, TEST_HOST, 0),
          TEST_PIN("b", TEST_FRAME, TEST_HOST, 0),
          TEST_PIN("c", TEST_FRAME, TEST_HOST, 0));

static const struct pen_module_class detector = {
    TEST_CLASS("Detector", ANALYTICS),
    .inputs = raw_in,
    .outputs = found_out,
};
static const struct pen_module_class over = {
    TEST_CLASS("Over", TRANSFORM),
    .inputs = over_in,
    .outputs = raw_out,
};
static const struct pen_module_class draw = {
    TEST_CLASS("Draw", TRANSFORM),
    .inputs = draw_in,
    .outputs = raw_out,
};
static const struct pen_module_class triple = {
    TEST_CLASS("Triple", SINK),
    .inputs = three_in,
};

static const struct pen_pin optional_in[] = {
    { "a", "A pin.", TEST_FRAME, TEST_HOST, 0, PEN_PIN_OPTIONAL },
    { "b", "A pin.", TEST_FRAME, TEST_HOST, 0, PEN_PIN_OPTIONAL },
    { "c", "A pin.", TEST_FRAME, TEST_HOST, 0, PEN_PIN_OPTIONAL },
    { "d", "A pin.", TEST_FRAME, TEST_HOST, 0, PEN_PIN_OPTIONAL },
    { 0 },
};
static const struct pen_module_class mix = {
    TEST_CLASS("Mix", UTILITY),
    .inputs = optional_in,
    .outputs = test_any_out,
};

static struct checked check_file(const char *text)
{
    static const struct pen_module_class *const classes[] = { &detector, &over,
                                                              &draw, &triple,
                                                              &mix };
    struct checked c = { 0 };
    c.registry = test_registry(&c.err);
    assert_non_null(c.registry);
    for (int i = 0; i < 5; i++)
        assert_int_equal(pen_registry_add(c.registry, classes[i], &c.err),
                         PEN_OK);
    c.issues = pen_issues_create();
    assert_int_equal(pen_description_parse(text, strlen(text), "test.json",
                                           &c.desc, c.issues, &c.err),
                     PEN_OK);
    c.status = stk_graph_resolve(c.desc, c.registry, &c.arena, &c.graph,
                                 c.issues, &c.err);
    assert_true((c.status == PEN_OK) == (c.graph != NULL));
    return c;
}

// "s.0->d.0 " for each edge.
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
        // In topological order, however it came to be.
        assert_true(e->from < e->to);
    }
    return text;
}

#define S(id)    "\"" id "\":{\"type\":\"TestSignal\",\"props\":{" SIZE "}}"
#define M(id, t) "\"" id "\":{\"type\":\"" t "\"}"
#define K(id)    M(id, "StatSink")
#define C(f, t)  "{\"from\":\"" f "\",\"to\":\"" t "\"}"
// The same with sieve false.
#define F(f, t) "{\"from\":\"" f "\",\"to\":\"" t "\",\"sieve\":false}"
#define FILE_OF(modules, connections)                                          \
    "{\"modules\":{" modules "},\"connections\":[" connections "]}"

static void expect_edges(const char *text, const char *edges)
{
    struct checked c = check_file(text);
    if (c.status != PEN_OK || pen_issues_count(c.issues, PEN_SEVERITY_INFO))
        fail_msg("%s", issues_text(c.issues));
    assert_string_equal(edges_of(&c), edges);
    finish(&c);
}

static void expect_issue(const char *text, const char *code,
                         const char *pointer, const char *message,
                         const char *suggestion)
{
    struct checked c = check_file(text);
    if (pen_issues_count(c.issues, PEN_SEVERITY_INFO) != 1)
        fail_msg("expected one %s:%s", code, issues_text(c.issues));
    const struct pen_issue *is = pen_issues_get(c.issues, 0);
    assert_string_equal(is->code, code);
    assert_string_equal(is->pointer, pointer);
    assert_string_equal(is->message, message);
    assert_string_equal(is->suggestion, suggestion);
    finish(&c);
}

PEN_TEST(the_inputs_of_the_source_are_forwarded_beside_its_outputs)
{
    // As in files of ApraPipes: the picture goes along with what was found.
    expect_edges(
        FILE_OF(S("s") "," M("d", "Detector") "," M("o", "Over") "," K("k"),
                C("s", "d") "," F("d", "o") "," C("o", "k")),
        "s.0->d.0 d.0->o.1 o.0->k.0 s.0->o.0 ");
    // The order of connections does not matter.
    expect_edges(
        FILE_OF(K("k") "," M("o", "Over") "," M("d", "Detector") "," S("s"),
                C("o", "k") "," F("d", "o") "," C("s", "d")),
        "o.0->k.0 d.0->o.1 s.0->d.0 s.0->o.0 ");
    // A named pin of the destination is that of the output.
    expect_edges(FILE_OF(S("s") "," M("a", "GaussianBlurCV") "," M(
                             "m", "Merge") "," K("k"),
                         C("s", "a") "," F("a", "m.input_2") "," C("m", "k")),
                 "s.0->a.0 a.0->m.1 m.0->k.0 s.0->m.0 ");
}

PEN_TEST(frames_go_where_their_format_is_taken_if_there_is_such_an_input)
{
    expect_edges(FILE_OF(S("s") "," S("t") "," M("d", "Detector") "," M(
                             "o", "Draw") "," K("k"),
                         C("s", "d") "," F("d", "o") "," C("t", "o.mask") "," C(
                             "o", "k")),
                 "s.0->d.0 d.0->o.2 t.0->o.0 o.0->k.0 s.0->o.1 ");
    // YUV420 is no MONO: it goes to the picture though the mask is free too.
    struct checked c = check_file(
        FILE_OF(S("s") "," M("d", "Detector") "," M("o", "Draw") "," K("k"),
                C("s", "d") "," F("d", "o") "," C("o", "k")));
    assert_string_equal(issue_of(c.issues, "E307")->message,
                        "the input o.mask needs a connection");
    assert_int_equal(pen_issues_count(c.issues, PEN_SEVERITY_INFO), 1);
    finish(&c);
}

PEN_TEST(what_is_forwarded_is_forwarded_again)
{
    // The middle one has no room: it is told, not dropped.
    expect_edges(
        FILE_OF(S("s") "," S("t") "," M("m", "Merge") "," M("o", "Triple"),
                C("s", "m") "," C("t", "m") "," F("m", "o")),
        "s.0->m.0 t.0->m.1 m.0->o.0 s.0->o.1 t.0->o.2 ");
    expect_edges(FILE_OF(M("o", "Triple") "," M("m", "Merge") "," M(
                             "a", "GaussianBlurCV") "," S("s"),
                         F("m", "o") "," F("a", "m") "," C("s", "a")),
                 "m.0->o.0 a.0->m.0 s.0->a.0 s.0->m.1 a.0->o.1 s.0->o.2 ");
}

PEN_TEST(what_the_destination_has_already_is_not_sent_twice)
{
    expect_edges(
        FILE_OF(S("s") "," M("d", "Detector") "," M("o", "Over") "," K("k"),
                C("s", "d") "," F("d", "o") "," C("s", "o.picture") "," C("o",
                                                                          "k")),
        "s.0->d.0 d.0->o.1 s.0->o.0 o.0->k.0 ");
    // Two ways on which the same is forwarded.
    expect_edges(
        FILE_OF(S("s") "," M("a", "GaussianBlurCV") "," M(
                    "b", "GaussianBlurCV") "," M("o", "Triple"),
                C("s", "a") "," C("s", "b") "," F("a", "o") "," F("b", "o")),
        "s.0->a.0 s.0->b.0 a.0->o.0 b.0->o.1 s.0->o.2 ");
}

PEN_TEST(an_input_can_be_named_as_the_source)
{
    expect_edges(
        FILE_OF(
            S("s") "," M("d", "Detector") "," M("o", "Over") "," K("k"),
            C("s", "d") "," C("d", "o") "," F("d.input", "o") "," C("o", "k")),
        "s.0->d.0 d.0->o.1 s.0->o.0 o.0->k.0 ");
    // Only that one, of a module with two; and of a sink, which has no outputs.
    expect_edges(FILE_OF(S("s") "," S("t") "," M("m", "Merge") "," K("k") "," K(
                             "l") "," K("n"),
                         C("s", "m") "," C("t", "m") "," C("m", "k") "," F(
                             "m.input_2", "l") "," F("k.input", "n.input")),
                 "s.0->m.0 t.0->m.1 m.0->k.0 t.0->l.0 m.0->n.0 ");
    // Through one that gets it the same way.
    expect_edges(
        FILE_OF(S("s") "," K("k") "," K("l") "," K("n"),
                F("l.input", "n") "," F("k.input", "l") "," C("s", "k")),
        "s.0->n.0 s.0->l.0 s.0->k.0 ");
}

PEN_TEST(a_tap_chooses_among_inputs_by_what_they_take)
{
    expect_edges(
        FILE_OF(S("s") "," S("t") "," M("d", "Detector") "," M(
                    "o", "Draw") "," K("k"),
                C("s", "d") "," C("d", "o") "," F("d.input", "o") "," C(
                    "t", "o.mask") "," C("o", "k")),
        "s.0->d.0 d.0->o.2 s.0->o.1 t.0->o.0 o.0->k.0 ");
    expect_issue(
        FILE_OF(S("s") "," M("d", "Detector") "," M("h", "H264Sink") "," M(
                    "v", "H264Sink"),
                C("s", "d") "," C("d", "h") "," F("d.input", "v")),
        "E304", "/connections/2",
        "s.output gives RawImage, v.input takes H264Data",
        "\"convert\": { \"type\": \"Detector\" } with { \"from\": "
        "\"s.output\", \"to\": \"convert\" }, { \"from\": \"convert\", "
        "\"to\": \"v.input\" } instead");
}

PEN_TEST(what_finds_no_input_is_an_error_that_names_what_is_free)
{
    expect_issue(FILE_OF(S("s") "," M("b", "GaussianBlur") "," K("k"),
                         C("s", "b") "," F("b", "k")),
                 "E306", "/connections/1/sieve",
                 "sieve false forwards what b gets at input, s.output "
                 "(RawImage), and no free input of k takes that",
                 "\"sieve\": true");
    struct checked c = check_file(FILE_OF(
        S("s") "," M("a", "GaussianBlurCV") "," M("o", "Over") "," K("k"),
        C("s", "a") "," F("a", "o") "," C("o", "k")));
    const struct pen_issue *is = issue_of(c.issues, "E306");
    assert_string_equal(is->message,
                        "sieve false forwards what a gets at input, s.output "
                        "(RawImage), and no free input of o takes that; free "
                        "are found (H264Data)");
    // What is missing at o may be just that.
    assert_int_equal(pen_issues_count(c.issues, PEN_SEVERITY_INFO), 1);
    finish(&c);
    // A bare id finds none either.
    expect_issue(FILE_OF(S("s") "," M("d", "Detector") "," M("o", "Over") "," K(
                             "k") "," K("l"),
                         C("s", "d") "," C("s", "o") "," C("d", "o") "," F(
                             "d.input", "o") "," C("o", "k") "," C("s", "l")),
                 "E306", "/connections/3/sieve",
                 "sieve false forwards what d gets at input, s.output "
                 "(RawImage), and no free input of o takes that",
                 "\"sieve\": true");
}

PEN_TEST(an_input_that_gets_nothing_has_nothing_to_forward)
{
    expect_issue(FILE_OF(S("s") "," M("v", "Valve") "," K("k") "," K("l"),
                         C("s", "k") "," F("v.input", "l")),
                 "E306", "/connections/1/from",
                 "the input v.input has no connection, so it has nothing to "
                 "forward",
                 "{ \"from\": \"...\", \"to\": \"v.input\" }");
    // An error before that explains it is told alone.
    expect_issue(FILE_OF(S("s") "," M("d", "Detector") "," M("o", "Over") "," K(
                             "k") "," K("l"),
                         C("x_y_z", "d") "," C("s", "k") "," F("d", "o") "," C(
                             "o", "l")),
                 "E300", "/connections/0/from",
                 "there is no module x_y_z to connect from", "");
    expect_issue(FILE_OF(S("s") "," K("k") "," K("l"),
                         C("s.x", "k") "," F("k.input", "l")),
                 "E302", "/connections/0/from",
                 "s (TestSignal) has no output x; its outputs: output",
                 "\"from\": \"s.output\"");
}

PEN_TEST(a_source_has_nothing_to_forward)
{
    expect_issue(FILE_OF(S("s") "," K("k"), F("s", "k")), "W306",
                 "/connections/0/sieve",
                 "sieve false has no effect: s has no inputs to forward",
                 "\"sieve\": true");
    expect_issue(
        FILE_OF(S("s") "," K("k") "," K("l"), C("s", "k") "," F("k", "l")),
        "E302", "/connections/1/from", "k (StatSink) has no outputs",
        "\"from\": \"k.input\"");
    // Without it an input is none to begin at.
    expect_issue(
        FILE_OF(S("s") "," M("d", "Detector") "," M("o", "Over") "," K("k"),
                C("s", "d") "," C("d", "o.found") "," C("d.input",
                                                        "o") "," C("o", "k")),
        "E302", "/connections/2/from",
        "d (Detector) has no output input, that is an input; its "
        "outputs: found",
        "\"from\": \"d.found\"");
}

PEN_TEST(a_cycle_is_told_and_nothing_that_it_hides)
{
    expect_issue(
        FILE_OF(S("s") "," M("a", "Merge") "," M("b", "Merge") "," K("k"),
                C("s", "a") "," F("a", "b") "," C("b", "a") "," C("b", "k")),
        "E401", "/connections/2", "the connections form a cycle: a -> b -> a",
        "remove { \"from\": \"b\", \"to\": \"a\" }");
    struct checked c = check_file(FILE_OF(
        S("s") "," M("a", "Merge") "," M("b", "Merge") "," K("k") "," K("l"),
        C("s", "a") "," C("a", "b") "," C("b", "a") "," C("b", "k") "," F(
            "b.input_1", "l") "," C("s", "b")));
    issue_of(c.issues, "E401");
    assert_int_equal(pen_issues_count(c.issues, PEN_SEVERITY_INFO), 1);
    finish(&c);
}

PEN_TEST(a_bare_id_means_the_first_free_input_that_takes_such_frames)
{
    expect_edges(
        FILE_OF(S("s") "," M("d", "Detector") "," M("o", "Over") "," K("k"),
                C("s", "d") "," C("d", "o") "," C("s", "o") "," C("o", "k")),
        "s.0->d.0 d.0->o.1 s.0->o.0 o.0->k.0 ");
    // If there is none, what is wrong is told of the first free one.
    expect_issue(FILE_OF(S("s") "," M("d", "Detector") "," M(
                             "e", "Detector") "," M("o", "Over") "," K("k"),
                         C("s", "d") "," C("s", "e") "," C(
                             "d", "o.found") "," C("e", "o") "," C("o", "k")),
                 "E304", "/connections/3",
                 "e.found gives H264Data, o.picture takes RawImage", "");
}

PEN_TEST(a_long_chain_of_forwards_is_resolved)
{
    enum { COUNT = 2000 };
    // Each has its own output and that before it; the last gets both.
    struct stk_text t = { 0 };
    stk_text_add(&t, "{\"modules\":{" M("last", "Merge") "," K("k"));
    for (int i = COUNT; i-- > 0;)
        stk_text_addf(&t, ",\"b%d\":{\"type\":\"Merge\"}", i);
    stk_text_add(&t, "," S("s") "," M("v", "Valve") "},\"connections\":[" C(
                         "s", "v") "," F("v", "b0"));
    for (int i = 0; i + 1 < COUNT; i++)
        stk_text_addf(&t,
                      ",{\"from\":\"b%d\",\"to\":\"b%d\"},{\"from\":"
                      "\"b%d.input_1\",\"to\":\"b%d\",\"sieve\":false}",
                      i, i + 1, i, i + 1);
    stk_text_addf(
        &t,
        ",{\"from\":\"b%d\",\"to\":\"last\"},{\"from\":\"b%d."
        "input_2\",\"to\":\"last\",\"sieve\":false}," C("last", "k") "]}",
        COUNT - 1, COUNT - 1);
    struct checked c = check_file(t.data);
    if (c.status != PEN_OK)
        fail_msg("%s", issues_text(c.issues));
    assert_int_equal(c.graph->edge_count, 2 * COUNT + 4);
    stk_text_finish(&t);
    finish(&c);
}

PEN_TEST(what_is_named_comes_before_what_is_forwarded)
{
    // The picture is at d by name, so that forwarding it to a is not needed,
    // wherever the connections stand.
    static const char *const links[] = { C("s", "m"), F("m", "o.b"),
                                         F("m.a", "o.d") };
    for (int turn = 0; turn < 3; turn++) {
        char text[1024];
        snprintf(text, sizeof(text),
                 FILE_OF(S("s") "," M("m", "Mix") "," M("o", "Mix") "," K("k"),
                         "%s,%s,%s," C("o", "k")),
                 links[turn], links[(turn + 1) % 3], links[(turn + 2) % 3]);
        struct checked c = check_file(text);
        assert_int_equal(c.status, PEN_OK);
        const char *edges = edges_of(&c);
        assert_int_equal(c.graph->edge_count, 4);
        assert_non_null(strstr(edges, "s.0->m.0 "));
        assert_non_null(strstr(edges, "m.0->o.1 "));
        assert_non_null(strstr(edges, "s.0->o.3 "));
        finish(&c);
    }
}

// --- random graphs ----------------------------------------------------------

enum { MOST = 9, LINKS = 12 };

struct random_link {
    int from, to, to_pin;
    int tap;  // an input of `from` as the source, or -1
    bool sieve;
};
struct random_graph {
    int modules, links;
    struct random_link link[LINKS];
};

static int below(uint64_t *seed, int limit)
{
    return (int)(pen_test_random(seed) % (unsigned)limit);
}

// Two sources, then modules that take what comes before them.
static void make_random(struct random_graph *g, uint64_t *seed)
{
    bool taken[MOST][4] = { { false } };
    g->modules = 4 + below(seed, MOST - 3);
    g->links = 0;
    for (int i = 0; i < LINKS; i++) {
        struct random_link l = {
            .to = 2 + below(seed, g->modules - 2),
            .to_pin = below(seed, 4),
            .tap = -1,
            .sieve = below(seed, 3) > 0,
        };
        l.from = below(seed, l.to);
        if (taken[l.to][l.to_pin])
            continue;
        if (!l.sieve && l.from >= 2 && below(seed, 3) == 0)
            l.tap = below(seed, 4);
        taken[l.to][l.to_pin] = true;
        g->link[g->links++] = l;
    }
}

static char *text_of(const struct random_graph *g)
{
    struct stk_text t = { 0 };
    stk_text_add(&t, "{\"modules\":{" S("m0") "," S("m1"));
    for (int i = 2; i < g->modules; i++)
        stk_text_addf(&t, ",\"m%d\":{\"type\":\"Mix\"}", i);
    stk_text_add(&t, "},\"connections\":[");
    for (int i = 0; i < g->links; i++) {
        const struct random_link *l = &g->link[i];
        stk_text_addf(&t, "%s{\"from\":\"m%d", i ? "," : "", l->from);
        if (l->tap >= 0)
            stk_text_addf(&t, ".%c", 'a' + l->tap);
        stk_text_addf(&t, "\",\"to\":\"m%d.%c\",\"sieve\":%s}", l->to,
                      'a' + l->to_pin, l->sieve ? "true" : "false");
    }
    stk_text_add(&t, "]}");
    char *text = stk_text_take(&t);
    assert_non_null(text);
    return text;
}

// Who feeds each input, -1: nobody; false: the graph is refused.
static bool feeds_of(const struct random_graph *g, int feed[MOST][4])
{
    char *text = text_of(g);
    struct checked c = check_file(text);
    const bool good = c.status == PEN_OK;
    memset(feed, -1, MOST * 4 * sizeof(feed[0][0]));
    for (uint32_t i = 0; good && i < c.graph->edge_count; i++) {
        const struct stk_edge *e = &c.graph->edges[i];
        const int from = atoi(c.graph->nodes[e->from].desc->id + 1);
        const int to = atoi(c.graph->nodes[e->to].desc->id + 1);
        assert_true(e->from < e->to && e->from_pin == 0);
        if (feed[to][e->to_pin] != -1)
            fail_msg("m%d.%c is fed twice: %s", to, 'a' + (int)e->to_pin, text);
        feed[to][e->to_pin] = from;
    }
    if (!good && !pen_issues_count(c.issues, PEN_SEVERITY_ERROR))
        fail_msg("no reason: %s", text);
    finish(&c);
    free(text);
    return good;
}

static bool gets(int feed[MOST][4], int module, int source)
{
    for (int pin = 0; pin < 4; pin++) {
        if (feed[module][pin] == source)
            return true;
    }
    return false;
}

// What the page says of sieve, asked of the result.
static void check_feeds(const struct random_graph *g, int feed[MOST][4])
{
    int wanted[MOST] = { 0 }, got[MOST] = { 0 };
    for (int i = 0; i < g->links; i++) {
        const struct random_link *l = &g->link[i];
        const int source = l->tap < 0 ? l->from : feed[l->from][l->tap];
        // Named pins are honoured.
        assert_true(source >= 0);
        assert_int_equal(feed[l->to][l->to_pin], source);
        wanted[l->to] |= 1 << source;
        if (l->sieve || l->tap >= 0)
            continue;
        for (int pin = 0; pin < 4; pin++) {
            if (feed[l->from][pin] < 0)
                continue;
            assert_true(gets(feed, l->to, feed[l->from][pin]));
            wanted[l->to] |= 1 << feed[l->from][pin];
        }
    }
    // And nothing comes that nobody asked for.
    for (int m = 0; m < g->modules; m++) {
        for (int pin = 0; pin < 4; pin++)
            got[m] |= feed[m][pin] < 0 ? 0 : 1 << feed[m][pin];
        assert_int_equal(got[m], wanted[m]);
    }
}

PEN_TEST(random_graphs_forward_what_they_shall_in_any_order)
{
    uint64_t seed = 4;
    unsigned good = 0, forwarding = 0;
    for (int turn = 0; turn < 5000; turn++) {
        struct random_graph g, other;
        int feed[MOST][4], again[MOST][4];
        make_random(&g, &seed);
        const bool ok = feeds_of(&g, feed);
        if (ok)
            check_feeds(&g, feed);
        other = g;
        for (int i = g.links; i > 1; i--) {
            const int k = below(&seed, i);
            const struct random_link l = other.link[i - 1];
            other.link[i - 1] = other.link[k];
            other.link[k] = l;
        }
        if (feeds_of(&other, again) != ok || memcmp(feed, again, sizeof(feed)))
            fail_msg("the order matters: %s\n%s", text_of(&g), text_of(&other));
        good += ok;
        for (int i = 0; ok && i < g.links; i++)
            forwarding += !g.link[i].sieve;
    }
    print_message("# %u of 5000 are good, %u connections forward\n", good,
                  forwarding);
    assert_true(good > 500 && good < 4900);
    assert_true(forwarding > 1000);
}

PEN_TEST_MAIN(
    PEN_CASE(the_inputs_of_the_source_are_forwarded_beside_its_outputs),
    PEN_CASE(frames_go_where_their_format_is_taken_if_there_is_such_an_input),
    PEN_CASE(what_is_forwarded_is_forwarded_again),
    PEN_CASE(what_the_destination_has_already_is_not_sent_twice),
    PEN_CASE(an_input_can_be_named_as_the_source),
    PEN_CASE(a_tap_chooses_among_inputs_by_what_they_take),
    PEN_CASE(what_finds_no_input_is_an_error_that_names_what_is_free),
    PEN_CASE(an_input_that_gets_nothing_has_nothing_to_forward),
    PEN_CASE(a_source_has_nothing_to_forward),
    PEN_CASE(a_cycle_is_told_and_nothing_that_it_hides),
    PEN_CASE(a_bare_id_means_the_first_free_input_that_takes_such_frames),
    PEN_CASE(a_long_chain_of_forwards_is_resolved),
    PEN_CASE(what_is_named_comes_before_what_is_forwarded),
    PEN_CASE(random_graphs_forward_what_they_shall_in_any_order))
