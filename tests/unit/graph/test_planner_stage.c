// Budgets of pinned memory, and plans that keep them by copying on the CPU.

#include "alloc_fail.h"
#include "planner_world.h"

unsigned world_negotiated, world_probed;
struct pen_probe world_probe;
enum pen_status world_probe_status;

// A frame of the sources: 64x48 RGB.
enum { FRAME = 192 * 48 };

#define UPLOAD(settings)                                                       \
    SET(settings, MOD("s", "Source", RGB) "," MOD("k", "Sink", CUDA RGB),      \
        TO("s", "k"))
#define STAGE(budget)                                                          \
    "'pinned_limit': 'stage', 'budget': { 'host_pinned': '" budget "' }"

static unsigned staged(const struct world *w)
{
    unsigned count = 0;
    for (uint32_t n = 0; n < w->plan->node_count; n++)
        count += w->plan->nodes[n].staged;
    return count;
}

PEN_TEST(by_default_it_is_refused_and_the_other_way_is_named)
{
    static const char *const texts[] = {
        UPLOAD("'budget': { 'host_pinned': '40KiB' }"),
        UPLOAD(
            "'pinned_limit': 'refuse', 'budget': { 'host_pinned': '40KiB' }"),
    };
    for (unsigned i = 0; i < 2; i++) {
        struct world w;
        world_plan_with(&w, texts[i], NULL, NULL);
        assert_int_equal(w.status, PEN_E_LIMIT);
        const struct pen_issue *issue = world_issue(&w, "E510");
        assert_non_null(issue);
        assert_string_equal(issue->pointer, "/settings/budget/host_pinned");
        // Five frames of 9 KiB: what to raise, what to lower, what else.
        assert_non_null(strstr(issue->message, "`s.output` 45.00 KiB"));
        assert_non_null(strstr(issue->suggestion,
                               "raise `host_pinned` of the budget to "
                               "45.00 KiB"));
        assert_non_null(strstr(issue->suggestion, "`queue_depth` behind `s`"));
        assert_non_null(
            strstr(issue->suggestion, "\"pinned_limit\": \"stage\""));
        world_finish(&w);
    }
}

// Nanoseconds in which one thread moves bytes, rounded up.
static int64_t rate_of(const struct pen_plan *plan, int64_t bytes)
{
    const int64_t rate = plan->profile.host_rate;
    return (bytes * 1000 + rate - 1) / rate;
}

PEN_TEST(staged_the_output_stays_pageable_and_a_small_ring_is_pinned)
{
    struct world w;
    world_plan(&w, UPLOAD(STAGE("40KiB")));
    const struct stk_plan_node *s = world_node(&w, "s");
    assert_int_equal(s->output[0].mem, PEN_MEM_HOST);
    assert_int_equal(s->output[0].upgraded_from, PEN_MEM_NONE);
    const struct stk_plan_node *copy =
        world_node(&w, "_bridge_1_MemTypeConversion");
    assert_true(copy->staged);
    assert_int_equal(copy->output[0].mem, PEN_MEM_HOST_PINNED);
    assert_int_equal(copy->output[0].blocks, 2);
    const struct stk_plan_edge *up = world_edge(&w, "_bridge_2_CudaMemCopy");
    assert_int_equal(up->mem, PEN_MEM_HOST_PINNED);
    assert_int_equal(up->depth, 1);
    assert_int_equal(w.plan->peak[PEN_MEM_HOST_PINNED], 2 * FRAME);
    assert_int_equal(w.plan->h2d_per_frame, 1);
    assert_int_equal(w.plan->h2h_per_frame, 1);
    assert_int_equal(w.plan->h2h_bytes_per_frame, FRAME);
    assert_int_equal(copy->cost_ns, rate_of(w.plan, 2 * FRAME));
    assert_non_null(strstr(copy->reason, "over the budget"));
    assert_false(w.plan->optimal);

    // It is said, with what it costs and what would avoid it.
    assert_int_equal(world_issues(&w, "W510"), 1);
    const struct pen_issue *issue = world_issue(&w, "W510");
    assert_int_equal(issue->severity, PEN_SEVERITY_WARNING);
    assert_string_equal(issue->pointer, "/modules/s");
    assert_non_null(strstr(issue->message, "`s.output` is not pinned"));
    assert_non_null(strstr(issue->message, "45.00 KiB"));
    assert_non_null(strstr(issue->message, "9.00 KiB a frame"));
    assert_non_null(strstr(issue->message, "1 us a frame"));
    assert_non_null(strstr(issue->suggestion, "45.00 KiB"));
    char *text = pen_plan_text(w.plan);
    assert_non_null(strstr(text, "1 on the host (9.00 KiB) per frame"));
    pen_free(text);
    world_finish(&w);

    // That budget does avoid it.
    world_plan(&w, UPLOAD(STAGE("45KiB")));
    assert_int_equal(staged(&w), 0);
    assert_int_equal(world_issues(&w, "W510"), 0);
    assert_true(w.plan->optimal);
    world_finish(&w);
}

#define TWO(settings)                                                          \
    SET(settings,                                                              \
        MOD("a", "Source", RGB) "," MOD(                                       \
            "b", "Source",                                                     \
            RGB ", 'height': 96") "," MOD("k", "Sink",                         \
                                          CUDA RGB) "," MOD("m", "Sink",       \
                                                            CUDA RGB),         \
        TO("a", "k") "," TO("b", "m"))

PEN_TEST(the_largest_is_staged_first_and_no_more_than_needed)
{
    struct world w;
    // 45 and 90 KiB: without the larger one 45 + 36.
    world_plan(&w, TWO(STAGE("100KiB")));
    assert_int_equal(staged(&w), 1);
    assert_int_equal(world_node(&w, "a")->output[0].mem, PEN_MEM_HOST_PINNED);
    assert_int_equal(world_node(&w, "b")->output[0].mem, PEN_MEM_HOST);
    assert_int_equal(world_issues(&w, "W510"), 1);
    assert_string_equal(world_issue(&w, "W510")->pointer, "/modules/b");
    world_finish(&w);
    world_plan(&w, TWO(STAGE("60KiB")));
    assert_int_equal(staged(&w), 2);
    assert_int_equal(world_issues(&w, "W510"), 2);
    assert_int_equal(w.plan->peak[PEN_MEM_HOST_PINNED], 6 * FRAME);
    world_finish(&w);
}

PEN_TEST(what_does_not_fit_even_so_is_refused)
{
    struct world w;
    world_plan_with(&w, TWO(STAGE("50KiB")), NULL, NULL);
    assert_int_equal(w.status, PEN_E_LIMIT);
    assert_int_equal(world_issues(&w, "E510"), 1);
    assert_int_equal(world_issues(&w, "W510"), 0);
    const struct pen_issue *issue = world_issue(&w, "E510");
    assert_non_null(strstr(issue->message, "`_bridge_"));
    assert_null(strstr(issue->suggestion, "stage"));
    world_finish(&w);
    // A copy may not be inserted, or there is no class for it.
    world_plan_with(&w, UPLOAD(STAGE("40KiB")), NULL, "MemTypeConversion");
    assert_int_equal(w.status, PEN_E_LIMIT);
    world_finish(&w);
    world_plan_with(
        &w,
        SET("'auto_bridge': false, " STAGE("40KiB"),
            MOD("s", "Source", RGB) "," MOD(
                "u", "CudaMemCopy",
                "'kind': 'HostToDevice'") "," MOD("k", "Sink", CUDA RGB),
            TO("s", "u") "," TO("u", "k")),
        NULL, NULL);
    assert_int_equal(w.status, PEN_E_LIMIT);
    assert_non_null(world_issue(&w, "E510"));
    world_finish(&w);
}

PEN_TEST(pools_behind_others_and_of_bridges_are_staged_too)
{
    struct world w;
    // Behind a module that passes frames on.
    world_plan(&w, SET(STAGE("40KiB"),
                       MOD("s", "Source", RGB) "," MOD(
                           "p", "Pass", RGB) "," MOD("k", "Sink", CUDA RGB),
                       TO("s", "p") "," TO("p", "k")));
    assert_int_equal(staged(&w), 1);
    assert_int_equal(world_node(&w, "s")->output[0].mem, PEN_MEM_HOST);
    assert_int_equal(world_node(&w, "p")->output[0].mem, PEN_MEM_HOST);
    assert_string_equal(world_issue(&w, "W510")->pointer, "/modules/p");
    world_finish(&w);
    // A conversion of the planner's, on the host.
    static const char convert[] = SET(
        STAGE("40KiB"),
        MOD("s", "Source", "'formats': 'NV12'") "," MOD("k", "Sink", CUDA RGB),
        TO("s", "k"));
    world_plan_with(&w, convert, NULL, "CudaConvert");
    assert_int_equal(w.status, PEN_OK);
    assert_int_equal(staged(&w), 1);
    assert_int_equal(world_issues(&w, "W510"), 1);
    const struct stk_plan_node *c = world_node(&w, "_bridge_1_HostConvert");
    assert_int_equal(c->output[0].mem, PEN_MEM_HOST);
    world_finish(&w);
    // Or on the device, where that is slower than on the host, but faster than
    // a copy beside it: less pinned memory, but not the best plan, and that is
    // said.
    struct pen_profile profile = *pen_profile_builtin("generic-cuda");
    profile.device_rate = 3000;
    profile.host_rate = 2000;
    const struct pen_plan_params params = { .profile = &profile };
    world_plan_with(&w, convert, &params, NULL);
    assert_int_equal(w.status, PEN_OK);
    assert_int_equal(staged(&w), 0);
    assert_int_equal(world_inserted(&w, "CudaConvert"), 1);
    assert_int_equal(world_issues(&w, "W510"), 1);
    assert_non_null(
        strstr(world_issue(&w, "W510")->message, "us a frame instead of"));
    world_finish(&w);
    // A hand-written upload, and a pin that may give pinned frames itself.
    world_plan(
        &w, SET(STAGE("60KiB"),
                MOD("s", "Source", "'mem': 'HOST|HOST_PINNED', " RGB) "," MOD(
                    "u", "CudaMemCopy",
                    "'kind': 'HostToDevice'") "," MOD("k", "Sink", CUDA RGB),
                TO("s", "u") "," TO("u", "k")));
    assert_int_equal(staged(&w), 1);
    assert_int_equal(world_node(&w, "s")->output[0].mem, PEN_MEM_HOST);
    world_finish(&w);
    // What must be pinned stays.
    world_plan_with(
        &w,
        SET(STAGE("40KiB"),
            MOD("s", "Source",
                "'mem': 'HOST_PINNED', " RGB) "," MOD("k", "Sink", CUDA RGB),
            TO("s", "k")),
        NULL, NULL);
    assert_int_equal(w.status, PEN_E_LIMIT);
    world_finish(&w);
}

PEN_TEST(what_was_said_of_the_first_plan_is_not_said_again)
{
    struct world w;
    world_plan(
        &w, SET(STAGE("40KiB"),
                MOD("s", "Source", "'formats': 'RGB|MONO'") "," MOD(
                    "a", "Work",
                    "'formats': 'RGB|MONO', "
                    "'refuse': 'MONO'") "," MOD("k", "Sink",
                                                CUDA "'formats': 'RGB|MONO'"),
                TO("s", "a") "," TO("a", "k")));
    assert_int_equal(staged(&w), 1);
    assert_int_equal(world_issues(&w, "W311"), 1);
    world_finish(&w);
}

// Uploads side by side, each of another size.
static char *uploads(const char *settings, unsigned count)
{
    struct stk_text m = { 0 }, c = { 0 };
    stk_text_addf(&m, "{ 'settings': { %s }, 'modules': { ", settings);
    for (unsigned n = 0; n < count; n++) {
        stk_text_addf(&m,
                      "%s's%u': { 'type': 'Source', 'props': { 'height': %u } "
                      "}, 'k%u': { 'type': 'Sink', 'props': { 'mem': "
                      "'CUDA_DEVICE' } }",
                      n ? ", " : "", n, 16 + n % 97, n);
        stk_text_addf(&c, "%s{ 'from': 's%u', 'to': 'k%u' }", n ? ", " : "", n,
                      n);
    }
    stk_text_addf(&m, " }, 'connections': [ %s ] }", c.data);
    stk_text_finish(&c);
    return stk_text_take(&m);
}

PEN_TEST(ten_thousand_modules_are_refused_in_one_pass_and_staged_in_few)
{
    struct world w;
    enum { COUNT = 5000 };
    char *text = uploads("'budget': { 'host_pinned': '150MiB' }", COUNT);
    world_negotiated = 0;
    world_plan_with(&w, text, NULL, NULL);
    assert_int_equal(w.status, PEN_E_LIMIT);
    const unsigned once = world_negotiated;
    assert_true(once <= 4 * COUNT);
    world_finish(&w);
    free(text);
    text = uploads(STAGE("150MiB"), COUNT);
    world_negotiated = 0;
    world_plan(&w, text);
    assert_true(staged(&w) > 0 && staged(&w) < COUNT);
    assert_true(world_negotiated <= 3 * once);
    world_finish(&w);
    free(text);
    // Half of them would be enough, but not one fits.
    text = uploads(STAGE("1MiB"), COUNT);
    world_negotiated = 0;
    world_plan_with(&w, text, NULL, NULL);
    assert_int_equal(w.status, PEN_E_LIMIT);
    assert_true(world_negotiated <= 3 * once);
    world_finish(&w);
    free(text);
}

PEN_TEST(a_staged_plan_unwinds_from_every_failed_allocation)
{
    struct world w;
    json_set_alloc_funcs(malloc, free);
    world_plan(&w, TWO(STAGE("60KiB")));
    for (unsigned nth = 1;; nth++) {
        struct pen_plan *plan = NULL;
        struct pen_error err = { 0 };
        struct pen_issues *issues = pen_issues_create();
        assert_non_null(issues);
        pen_alloc_fail_arm(nth, false);
        const enum pen_status st =
            pen_plan_create(w.desc, w.registry, NULL, &plan, issues, &err);
        const bool fired = pen_alloc_fail_disarm();
        assert_true((st == PEN_OK) == (plan != NULL));
        pen_plan_destroy(&plan);
        pen_issues_destroy(&issues);
        if (!fired) {
            assert_int_equal(st, PEN_OK);
            assert_true(nth > 50);
            break;
        }
        if (st != PEN_E_NOMEM)
            fail_msg("allocation %u: %d %s", nth, st, err.text);
    }
    world_finish(&w);
}

PEN_TEST_MAIN(
    PEN_CASE(by_default_it_is_refused_and_the_other_way_is_named),
    PEN_CASE(staged_the_output_stays_pageable_and_a_small_ring_is_pinned),
    PEN_CASE(the_largest_is_staged_first_and_no_more_than_needed),
    PEN_CASE(what_does_not_fit_even_so_is_refused),
    PEN_CASE(pools_behind_others_and_of_bridges_are_staged_too),
    PEN_CASE(what_was_said_of_the_first_plan_is_not_said_again),
    PEN_CASE(ten_thousand_modules_are_refused_in_one_pass_and_staged_in_few),
    PEN_CASE(a_staged_plan_unwinds_from_every_failed_allocation))
