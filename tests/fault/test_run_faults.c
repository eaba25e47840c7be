// Every driver call and every allocation of a whole run is made to fail in
// turn: the run ends, with an error that tells the cause, and leaves nothing.

#include <stdio.h>

#include <jansson.h>

#include "alloc_fail.h"
#include "tests/unit/run/run_world.h"

// Uploaded, copied, filled by a kernel, parked, downloaded, joined.
static const char everything[] = PIPE(
    MODULE_P("source", "TSource", "\"frames\": 4, \"unknown\": true") "," MODULE("a", "TDevice") "," MODULE("sync", "TStreamSync") "," MODULE("all", "TContextSync") "," MODULE(
        "table",
        "TTable") "," MODULE("b",
                             "TAdd") "," MODULE("join",
                                                "TJoin") "," MODULE_P("sink",
                                                                      "TSink",
                                                                      "\"expect"
                                                                      "\": 1, "
                                                                      "\"twice"
                                                                      "\": "
                                                                      "true") "," MODULE_P("fill",
                                                                                           "TFill",
                                                                                           "\"value\": 3") "," MODULE_P("flat",
                                                                                                                        "TSink",
                                                                                                                        "\"slot\": 1, \"flat\": 3"),
    LINK("source", "a") "," LINK("a", "sync") "," LINK("sync", "all") "," LINK("all", "table") "," LINK(
        "table",
        "join.input_1") "," LINK("source",
                                 "b") "," LINK("b",
                                               "join.input_2") "," LINK("join",
                                                                        "sink") "," LINK("a",
                                                                                         "fill") "," LINK("fill",
                                                                                                          "flat"));

static const char host_only[] = PIPE(
    MODULE_P("source", "TBlockSource", "\"frames\": 4") "," MODULE_P(
        "b", "TAdd", "\"onError\": \"drop\"") "," MODULE_P("sink", "TSink",
                                                           "\"expect\": 1"),
    LINK("source", "b") "," LINK("b", "sink"));

// Create, start, wait.
static enum pen_status whole_run(struct run *r, struct pen_error *err)
{
    enum pen_status st = pen_pipeline_create(r->desc, r->registry, &r->params,
                                             &r->p, r->issues, err);
    if (st == PEN_OK)
        st = pen_pipeline_start(r->p, err);
    if (st == PEN_OK)
        st = pen_pipeline_wait(r->p, 20000000000, err);
    return st;
}

static void parse(struct run *r, const char *json)
{
    RUN_OK(pen_description_parse(json, strlen(json), "test.json", &r->desc,
                                 r->issues, &err));
}

static void check_good(const struct run *r)
{
    assert_int_equal(pen_pipeline_state(r->p), PEN_STATE_DONE);
    assert_all_arrived(0, 4);
    assert_all_arrived(1, 4);
}

// One run with the nth call failing; false when there are no n calls.
static bool driver_run(const struct penemu *emu, enum penemu_mode mode,
                       uint64_t nth, int code, bool for_ever)
{
    struct run r;
    struct pen_error err = { 0 };
    emu->penemu_reset();
    emu->penemu_set_mode(mode, nth);
    run_init(&r);
    parse(&r, everything);
    assert_int_equal(emu->penemu_fault_arm(PENEMU_ANY, nth, code, for_ever), 0);
    const enum pen_status st = whole_run(&r, &err);
    assert_int_not_equal(st, PEN_E_TIMEOUT);
    if (st < 0) {
        assert_int_equal(st, err.status);
        if (err.native != code || !err.text[0] || !err.where[0])
            fail_msg("call %u: %s, native %d, at \"%s\": %s", (unsigned)nth,
                     pen_status_name(st), err.native, err.where, err.text);
        if (r.p)
            assert_int_equal(pen_pipeline_state(r.p), PEN_STATE_FAILED);
    } else {
        // What only gives back may fail: the results are there.
        check_good(&r);
    }
    // A release that was refused is no leak of ours, nor of the driver's.
    run_finish(&r);
    const bool fired = emu->penemu_fault_disarm() > 0;
    struct penemu_leaks leaks;
    emu->penemu_get_leaks(&leaks);
    if (leaks.device_blocks + leaks.host_blocks + leaks.streams + leaks.events +
        leaks.modules)
        fail_msg("call %u: %u device and %u host blocks, %u streams, %u "
                 "events, %u modules are left",
                 (unsigned)nth, (unsigned)leaks.device_blocks,
                 (unsigned)leaks.host_blocks, (unsigned)leaks.streams,
                 (unsigned)leaks.events, (unsigned)leaks.modules);
    return fired;
}

// The modes begin at different calls; the long tests take each.
static void driver_sweep(int code, bool for_ever)
{
    const struct penemu *emu = fixture_emulator();
    if (!emu)
        PEN_SKIP("a real driver does not fail on demand");
    const uint64_t step = pen_test_seeds(13, 1);
    for (unsigned mode = PENEMU_EAGER; mode <= PENEMU_RANDOM; mode++) {
        uint64_t nth = 1 + mode * 4 % step;
        while (driver_run(emu, (enum penemu_mode)mode, nth, code, for_ever))
            nth += step;
        assert_true(nth > 100);
    }
    emu->penemu_reset();
}

PEN_TEST(every_driver_call_may_fail_once)
{
    driver_sweep(999, false);
}

PEN_TEST(the_driver_may_fail_from_any_call_on)
{
    driver_sweep(999, true);
}

PEN_TEST(the_device_may_be_lost_at_any_call)
{
    driver_sweep(700, false);
}

// Memory that runs out once may be there when what is queued is done.
static void run_out(const char *call, enum pen_status want, bool for_ever)
{
    const struct penemu *emu = fixture_emulator();
    unsigned nth = 1;
    for (bool fired = true; fired; nth++) {
        struct run r;
        struct pen_error err = { 0 };
        emu->penemu_reset();
        run_init(&r);
        r.may_wait = true;
        parse(&r, everything);
        assert_int_equal(emu->penemu_fault_arm(call, nth, 2, for_ever), 0);
        const enum pen_status st = whole_run(&r, &err);
        fired = emu->penemu_fault_disarm() > 0;
        if (fired && for_ever) {
            assert_int_equal(st, want);
            assert_int_equal(err.native, 2);
            assert_true(err.text[0]);
        } else {
            assert_int_equal(st, PEN_OK);
        }
        run_finish(&r);
    }
    assert_true(nth > 5);
    emu->penemu_reset();
}

PEN_TEST(device_memory_may_run_out_at_any_allocation)
{
    if (!fixture_emulator())
        PEN_SKIP("a real driver does not fail on demand");
    for (unsigned i = 0; i < 2; i++) {
        run_out("cuMemAlloc", PEN_E_DEVMEM, i);
        run_out("cuMemHostAlloc", PEN_E_NOMEM, i);
    }
}

static void alloc_sweep(const char *json, bool for_ever, bool device,
                        uint32_t step)
{
    uint32_t nth = 1, failures = 0;
    for (bool failed = true; failed; nth += step) {
        struct run r;
        struct pen_error err = { 0 };
        if (fixture_emulator())
            fixture_emulator()->penemu_reset();
        run_init(&r);
        parse(&r, json);
        pen_alloc_fail_arm(nth, for_ever);
        const enum pen_status st = whole_run(&r, &err);
        failed = pen_alloc_fail_disarm();
        if (st < 0) {
            assert_true(failed);
            failures++;
            assert_int_equal(st, err.status);
            if (st != PEN_E_NOMEM || !err.text[0])
                fail_msg("allocation %u: %s, at \"%s\": %s", nth,
                         pen_status_name(st), err.where, err.text);
        } else if (device) {
            check_good(&r);
        } else {
            assert_all_arrived(0, 4);
        }
        run_finish(&r);
    }
    assert_true(failures > 20 / step);
}

PEN_TEST(every_allocation_of_a_host_run_may_fail)
{
    alloc_sweep(host_only, false, false, 1);
    alloc_sweep(host_only, true, false, 1);
}

PEN_TEST(every_allocation_of_a_device_run_may_fail)
{
    alloc_sweep(everything, false, true, pen_test_seeds(17, 1));
}

static char *report(const struct run *r, bool json)
{
    return json ? pen_pipeline_report_json(r->p)
                : pen_pipeline_report_text(r->p);
}

PEN_TEST(reports_are_complete_or_there_is_none)
{
    struct run r;
    run_init(&r);
    run_all(&r, host_only);
    for (unsigned json = 0; json < 2; json++) {
        unsigned nth = 1, none = 0;
        char *whole = report(&r, json);
        assert_non_null(whole);
        for (bool failed = true; failed; nth++) {
            pen_alloc_fail_arm(nth, false);
            char *text = report(&r, json);
            failed = pen_alloc_fail_disarm();
            if (text)
                assert_string_equal(text, whole);
            else
                assert_true(failed);
            none += !text;
            pen_free(text);
        }
        assert_true(none > 0);
        pen_free(whole);
    }
    run_finish(&r);
}

int main(int argc, char **argv)
{
    // jansson's allocations are to fail as well.
    json_set_alloc_funcs(malloc, free);
    const struct CMUnitTest tests[] = {
        PEN_CASE(every_driver_call_may_fail_once),
        PEN_CASE(the_driver_may_fail_from_any_call_on),
        PEN_CASE(the_device_may_be_lost_at_any_call),
        PEN_CASE(device_memory_may_run_out_at_any_allocation),
        PEN_CASE(every_allocation_of_a_host_run_may_fail),
        PEN_CASE(every_allocation_of_a_device_run_may_fail),
        PEN_CASE(reports_are_complete_or_there_is_none),
    };
    return pen_test_run(argc, argv, tests, sizeof(tests) / sizeof(tests[0]));
}
