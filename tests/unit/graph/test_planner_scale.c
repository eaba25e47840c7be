// Large graphs by counts of work, and every allocation failing once.

#include "alloc_fail.h"
#include "planner_world.h"
#include "world_resize.h"

unsigned world_negotiated, world_probed;
struct pen_probe world_probe;
enum pen_status world_probe_status;

enum shape { CHAIN, TREE, DIAMONDS };

static void add_module(struct stk_text *t, unsigned n, const char *type,
                       const char *props)
{
    stk_text_addf(t, "%s'm%u': { 'type': '%s', 'props': { %s } }",
                  n ? ", " : "", n, type, props);
}

// A graph of about `count` modules, device and host ones mixed, which needs
// bridges at many places.
static char *large(enum shape shape, unsigned count)
{
    struct stk_text m = { 0 }, c = { 0 };
    const char *gap = "";
    stk_text_add(&m, "{ 'modules': { ");
    stk_text_add(&c, " }, 'connections': [");
    for (unsigned n = 0; n < count; n++) {
        const bool device = n / 4 % 2;
        const char *props = device ? "'mem': 'CUDA_DEVICE', 'formats': 'RGB'"
                                   : "'mem': 'HOST', 'formats': 'RGB|NV12'";
        const bool join = shape == DIAMONDS && n % 3 == 0 && n > 0;
        if (n == 0)
            add_module(&m, n, "Source", "'formats': 'NV12'");
        else if (join)
            add_module(&m, n, "Join", props);
        else
            add_module(&m, n, device ? "CudaWork" : "Work", props);
        if (n == 0)
            continue;
        if (join) {
            stk_text_addf(&c,
                          "%s{ 'from': 'm%u', 'to': 'm%u.input_1' }, "
                          "{ 'from': 'm%u', 'to': 'm%u.input_2' }",
                          gap, n - 2, n, n - 1, n);
        } else {
            const unsigned from = shape == CHAIN  ? n - 1
                                  : shape == TREE ? (n - 1) / 4
                                                  : n / 3 * 3;
            stk_text_addf(&c, "%s{ 'from': 'm%u', 'to': 'm%u' }", gap, from, n);
        }
        gap = ", ";
    }
    stk_text_addf(&c, "] }");
    stk_text_add(&m, c.data);
    stk_text_finish(&c);
    return stk_text_take(&m);
}

struct work {
    unsigned negotiated, allocations, nodes;
};

static struct work measure(enum shape shape, unsigned count)
{
    struct world w;
    struct work work;
    char *text = large(shape, count);
    assert_non_null(text);
    // Planned twice: the first time reads the text.
    world_plan(&w, text);
    free(text);
    pen_plan_destroy(&w.plan);
    pen_issues_destroy(&w.issues);
    w.issues = pen_issues_create();
    struct pen_plan_params params = {
        .budget = { 0, UINT64_MAX, UINT64_MAX, UINT64_MAX, UINT64_MAX },
    };
    world_negotiated = 0;
    pen_alloc_fail_arm(0, false);
    assert_int_equal(
        pen_plan_create(w.desc, w.registry, &params, &w.plan, w.issues, &w.err),
        PEN_OK);
    work.allocations = pen_alloc_fail_count();
    pen_alloc_fail_disarm();
    work.negotiated = world_negotiated;
    work.nodes = w.plan->node_count;
    world_finish(&w);
    return work;
}

PEN_TEST(work_grows_in_line_with_the_graph)
{
    const unsigned large_count = pen_test_seeds(4000, 10000);
    for (int shape = CHAIN; shape <= DIAMONDS; shape++) {
        const struct work small = measure((enum shape)shape, large_count / 10);
        const struct work big = measure((enum shape)shape, large_count);
        assert_true(small.nodes > large_count / 10);
        // To choose and to build: every format is known.
        assert_true(big.negotiated <= 2 * big.nodes);
        assert_true(big.negotiated >= large_count);
        // Ten times the graph, at most eleven times the work and the bridges.
        assert_true(big.nodes <= 11 * small.nodes);
        assert_true(big.allocations <= 11 * small.allocations);
        // A few names and reasons per node, and the issues about detours.
        assert_true(big.allocations <= 16 * big.nodes);
    }
}

PEN_TEST(settling_touches_only_what_lies_behind)
{
    struct world w;
    struct stk_text t = { 0 };
    const unsigned count = 2000;
    stk_text_add(&t, "{ 'modules': { 'm0': { 'type': 'Source', 'props': { "
                     "'width': 0, 'height': 0 } }");
    for (unsigned n = 1; n < count; n++)
        stk_text_addf(&t, ", 'm%u': { 'type': 'Work' }", n);
    stk_text_add(&t, "}, 'connections': [");
    for (unsigned n = 1; n < count; n++)
        stk_text_addf(&t, "%s{ 'from': 'm%u', 'to': 'm%u' }", n > 1 ? "," : "",
                      n - 1, n);
    stk_text_add(&t, "] }");
    world_plan(&w, t.data);
    stk_text_finish(&t);
    struct pen_caps caps = {
        .kind = PEN_KIND_RAW_IMAGE,
        .format = PEN_FMT_RGB,
        .width = 64,
        .height = 48,
    };
    char id[16];
    snprintf(id, sizeof(id), "m%u", count - 10);
    world_negotiated = 0;
    assert_int_equal(
        stk_plan_settle(w.plan, world_number(&w, id), 0, &caps, &w.err),
        PEN_OK);
    assert_int_equal(world_negotiated, 9);
    assert_true(w.plan->provisional);
    world_negotiated = 0;
    assert_int_equal(
        stk_plan_settle(w.plan, world_number(&w, "m0"), 0, &caps, &w.err),
        PEN_OK);
    // It stops where nothing changes any more.
    assert_int_equal(world_negotiated, count - 10);
    assert_false(w.plan->provisional);
    world_finish(&w);
}

PEN_TEST(settling_leaves_no_marks_for_the_next)
{
    struct world w;
    world_plan(
        &w,
        PIPE(
            MOD("s", "Source", "'width': 0, 'height': 0") "," MOD(
                "t", "Source",
                "'width': 0, 'height': 0") "," MOD("c", "Work",
                                                   RGB) "," MOD("d", "Work",
                                                                RGB) "," MOD("j",
                                                                             "J"
                                                                             "o"
                                                                             "i"
                                                                             "n",
                                                                             RGB) "," MOD("k",
                                                                                          "Sink",
                                                                                          RGB),
            TO("s", "j.input_1") "," TO("t", "c") "," TO("c", "d") "," TO(
                "d", "j.input_2") "," TO("j", "k")));
    struct pen_caps caps = {
        .kind = PEN_KIND_RAW_IMAGE,
        .format = PEN_FMT_RGB,
        .width = 64,
        .height = 48,
    };
    world_negotiated = 0;
    assert_int_equal(
        stk_plan_settle(w.plan, world_number(&w, "t"), 0, &caps, &w.err),
        PEN_OK);
    assert_int_equal(world_negotiated, 3);  // c, d, j; whose output stays open
    world_negotiated = 0;
    caps.width = 32;
    assert_int_equal(
        stk_plan_settle(w.plan, world_number(&w, "s"), 0, &caps, &w.err),
        PEN_OK);
    assert_int_equal(world_negotiated, 2);  // j and k only
    world_finish(&w);
}

// --- memory that runs out ---------------------------------------------------

// All that a plan can hold: bridges of every kind, upgrades through forwarding
// modules, a detour with advice, paths, unknown sizes, a warning.
static const char *const rich = PIPE(
    MOD("s", "Source", "'formats': 'NV12|MONO', 'path': '/dev/null'") "," MOD("p", "Pass", "'formats': 'NV12|MONO'") "," MOD(
        "g", "CudaWork",
        CUDA
            RGB) "," MOD("h", "Work",
                         RGB) "," MOD("g2", "CudaWork",
                                      CUDA
                                          RGB) "," MOD("k", "Sink",
                                                       "'formats': "
                                                       "'MONO'") "," MOD("u",
                                                                         "Sourc"
                                                                         "e",
                                                                         "'widt"
                                                                         "h': "
                                                                         "0, "
                                                                         "'heig"
                                                                         "ht': "
                                                                         "0") "," MOD("v",
                                                                                      "Sink",
                                                                                      CUDA
                                                                                      "'formats': 'NV12'") "," MOD("x",
                                                                                                                   "Sink",
                                                                                                                   "'formats': 'RGB|MONO|NV12', 'refuse': "
                                                                                                                   "'MONO'"),
    TO("s", "p") "," TO("p", "g") "," TO("g", "h") "," TO("h", "g2") "," TO(
        "g2", "k") "," TO("u", "v") "," TO("p", "x"));

// Make every allocation of a plan fail once; there are more than `least`.
static void sweep(struct world *w, const struct pen_plan_params *params,
                  unsigned least)
{
    for (unsigned nth = 1;; nth++) {
        struct pen_plan *plan = NULL;
        struct pen_error err = { 0 };
        struct pen_issues *issues = pen_issues_create();
        assert_non_null(issues);
        pen_alloc_fail_arm(nth, false);
        const enum pen_status st =
            pen_plan_create(w->desc, w->registry, params, &plan, issues, &err);
        const bool fired = pen_alloc_fail_disarm();
        if (st != PEN_OK) {
            if (st != PEN_E_NOMEM)
                fail_msg("%u: %d %s", nth, st, err.text);
            assert_int_equal(err.status, PEN_E_NOMEM);
            assert_null(plan);
        }
        pen_plan_destroy(&plan);
        pen_issues_destroy(&issues);
        if (!fired) {
            assert_int_equal(st, PEN_OK);
            assert_true(nth > least);
            break;
        }
        if (st != PEN_E_NOMEM)
            fail_msg("allocation %u failed without a word", nth);
    }
}

PEN_TEST(a_plan_unwinds_from_every_failed_allocation)
{
    struct world w;
    json_set_alloc_funcs(malloc, free);
    world_plan(&w, rich);
    sweep(&w, NULL, 50);
    world_finish(&w);
}

// With and without a device, for sizes from tiny to huge, and what the other
// class would cost.
PEN_TEST(a_choice_of_classes_unwinds_from_every_failed_allocation)
{
    // clang-format off
    static const char *const text =
        PIPE(MOD("s", "Source", "'width': 0, 'height': 0") ","
             MOD("r", "Resize", RGB) "," MOD("k", "Sink", RGB),
             TO("s", "r") "," TO("r", "k"));
    // clang-format on
    const struct pen_plan_params params = { .frames = 1000 };
    struct world w;
    json_set_alloc_funcs(malloc, free);
    world_extra[0] = &resize_cpu;
    world_extra[1] = &resize_cuda;
    world_plan_with(&w, text, &params, NULL);
    assert_int_equal(w.status, PEN_OK);
    assert_true(world_node(&w, "r")->choice[0]);
    sweep(&w, &params, 100);
    world_finish(&w);
    world_extra[0] = world_extra[1] = NULL;
}

PEN_TEST(texts_and_drawings_are_whole_or_not_there)
{
    struct world w;
    world_plan(&w, rich);
    char *(*const print[])(const struct pen_plan *) = {
        pen_plan_text,
        pen_plan_text_coloured,
        pen_plan_dot,
        pen_plan_svg,
    };
    char *whole[5], *text;
    for (int i = 0; i < 4; i++)
        whole[i] = print[i](w.plan);
    whole[4] = pen_plan_json(w.plan, w.issues);
    for (int i = 0; i < 5; i++) {
        assert_non_null(whole[i]);
        for (unsigned nth = 1;; nth++) {
            pen_alloc_fail_arm(nth, false);
            text = i < 4 ? print[i](w.plan) : pen_plan_json(w.plan, w.issues);
            const bool fired = pen_alloc_fail_disarm();
            if (text)
                assert_string_equal(text, whole[i]);
            const bool missing = !text;
            pen_free(text);
            if (!fired) {
                assert_false(missing);
                break;
            }
        }
        pen_free(whole[i]);
    }
    world_finish(&w);
}

PEN_TEST(settling_unwinds_from_every_failed_allocation)
{
    struct world w;
    world_plan(&w, rich);
    char *before = pen_plan_text(w.plan);
    const struct pen_caps caps = {
        .kind = PEN_KIND_RAW_IMAGE,
        .format = PEN_FMT_RGB,
        .width = 640,
        .height = 480,
    };
    const uint32_t number = world_number(&w, "u");
    for (unsigned nth = 1;; nth++) {
        pen_alloc_fail_arm(nth, false);
        const enum pen_status st =
            stk_plan_settle(w.plan, number, 0, &caps, &w.err);
        if (!pen_alloc_fail_disarm()) {
            assert_int_equal(st, PEN_OK);
            assert_true(nth > 1);
            break;
        }
        assert_int_equal(st, PEN_E_NOMEM);
        char *after = pen_plan_text(w.plan);
        assert_string_equal(after, before);
        pen_free(after);
    }
    pen_free(before);
    world_finish(&w);
}

PEN_TEST_MAIN(
    PEN_CASE(work_grows_in_line_with_the_graph),
    PEN_CASE(settling_touches_only_what_lies_behind),
    PEN_CASE(settling_leaves_no_marks_for_the_next),
    PEN_CASE(a_plan_unwinds_from_every_failed_allocation),
    PEN_CASE(a_choice_of_classes_unwinds_from_every_failed_allocation),
    PEN_CASE(texts_and_drawings_are_whole_or_not_there),
    PEN_CASE(settling_unwinds_from_every_failed_allocation))
