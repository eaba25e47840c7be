// Pipelines that use the device: points, pools, the one stream, parking.

#include "run_world.h"

#include <dlfcn.h>
#include <stdio.h>
#include <time.h>

#include "src/run/run.h"

// clang-format off
#define UP   MODULE_P("up", "CudaMemCopy", "\"kind\": \"HostToDevice\"")
#define DOWN MODULE_P("down", "CudaMemCopy", "\"kind\": \"DeviceToHost\"")
#define PINNED "\"memType\": \"HOST_PINNED\""
// clang-format on

static void pause_ms(long ms)
{
    nanosleep(&(struct timespec){ .tv_nsec = ms * 1000000 }, NULL);
}

static void assert_one_stream(const struct run *r, uint32_t modules)
{
    assert_int_equal(atomic_load(&world.stream_count), modules);
    for (uint32_t i = 0; i < modules; i++)
        assert_true(world.streams[i] && world.streams[i] == world.streams[0]);
    const struct pen_stats s = stats_of(r);
    assert_int_equal(s.streams, 1);
    assert_int_equal(s.contexts_retained, 1);
    assert_int_equal(s.contexts_released, 1);
    assert_int_equal(s.steady_state_allocations, 0);
    assert_int_equal(s.blocking_syncs, 0);
}

// clang-format off
static void one_up_one_down(void)
{
    struct run r;
    run_init(&r);
    run_all(&r,
        PIPE(MODULE_P("source", "TSource", "\"frames\": 100") ","
             MODULE("a", "TDevice") "," MODULE("b", "TDevice") ","
             MODULE("c", "TDevice") "," MODULE("sink", "TSink"),
             LINK("source", "a") "," LINK("a", "b") "," LINK("b", "c") ","
             LINK("c", "sink")));
    // clang-format on
    assert_all_arrived(0, 100);
    // Three modules and two bridges that the planner inserted.
    assert_one_stream(&r, 5);
    const struct pen_stats s = stats_of(&r);
    assert_int_equal(s.h2d.count, 100);
    assert_int_equal(s.d2h.count, 100);
    assert_int_equal(s.d2d.count, 300);
    assert_int_equal(s.h2d.bytes, s.d2h.bytes);
    assert_int_equal(s.host_copy_bytes, 0);
    run_finish(&r);
}

PEN_TEST(a_chain_of_device_modules_has_one_upload_and_one_download)
{
    in_all_modes(one_up_one_down);
}

static void uploaded_once(void)
{
    struct run r;
    run_init(&r);
    run_all(
        &r,
        PIPE(
            MODULE_P("source", "TSource", "\"frames\": 40, " PINNED) "," MODULE("a", "TDevice") "," MODULE(
                "b",
                "TDevice") "," MODULE("c",
                                      "TDevice") "," MODULE("x",
                                                            "TSink") "," MODULE_P("y",
                                                                                  "TSink",
                                                                                  "\"slot\": 1") "," MODULE_P("z",
                                                                                                              "TSink",
                                                                                                              "\"slot\": 2"),
            LINK("source", "a") "," LINK("source", "b") "," LINK(
                "source",
                "c") "," LINK("a", "x") "," LINK("b", "y") "," LINK("c", "z")));
    for (unsigned slot = 0; slot < 3; slot++)
        assert_all_arrived(slot, 40);
    const struct pen_stats s = stats_of(&r);
    assert_int_equal(s.h2d.count, 40);
    assert_int_equal(s.steady_state_allocations, 0);
    run_finish(&r);
}

PEN_TEST(a_frame_for_three_device_modules_is_uploaded_once)
{
    in_all_modes(uploaded_once);
}

static void diamond(void)
{
    struct run r;
    run_init(&r);
    run_all(
        &r,
        PIPE(
            MODULE_P("source", "TSource", "\"frames\": 60") "," MODULE(
                "a",
                "TD"
                "ev"
                "ic"
                "e") "," MODULE("b",
                                "TAdd") "," MODULE("join",
                                                   "TJoin") "," MODULE_P("sink",
                                                                         "TSin"
                                                                         "k",
                                                                         "\"exp"
                                                                         "ect\""
                                                                         ": 1, "
                                                                         "\"twi"
                                                                         "ce\":"
                                                                         " tru"
                                                                         "e"),
            LINK("source", "a") "," LINK("source", "b") "," LINK(
                "a",
                "join.input_1") "," LINK("b",
                                         "join.input_2") "," LINK("join",
                                                                  "sink")));
    assert_all_arrived(0, 60);
    run_finish(&r);
}

PEN_TEST(branches_on_device_and_host_meet_again)
{
    in_all_modes(diamond);
}

// The join gets what the device module made, and the source's frames past it.
static void past_the_device(void)
{
    struct run r;
    run_init(&r);
    // clang-format off
    run_all(&r,
        PIPE(MODULE_P("source", "TSource", "\"frames\": 60") ","
             MODULE("a", "TDevice") "," MODULE("join", "TJoin") ","
             MODULE_P("sink", "TSink", "\"twice\": true"),
             LINK("source", "a") "," LINK("join", "sink") ","
             "{ \"from\": \"a\", \"to\": \"join.input_2\", "
             "\"sieve\": false }"));
    // clang-format on
    assert_all_arrived(0, 60);
    const struct pen_stats s = stats_of(&r);
    assert_int_equal(s.h2d.count, 60);
    assert_int_equal(s.d2h.count, 60);
    run_finish(&r);
}

PEN_TEST(frames_are_forwarded_past_a_device_module)
{
    in_all_modes(past_the_device);
}

static void provisional(void)
{
    struct run r;
    run_init(&r);
    run_all(
        &r,
        PIPE(
            MODULE_P(
                "source", "TBlockSource",
                "\"frames\": 30, \"unknown\": true, "
                "\"grow\": 100") "," MODULE("a",
                                            "TDevice") "," MODULE("sink",
                                                                  "TBlockSink"),
            LINK("source", "a") "," LINK("a", "sink")));
    assert_all_arrived(0, 30);
    assert_int_equal(stats_of(&r).streams, 1);
    run_finish(&r);
}

PEN_TEST(unknown_and_growing_sizes_work_across_the_device)
{
    in_all_modes(provisional);
}

// The pool of the source is smaller than the number of frames; a block that
// came back too early would be overwritten before its copy was done.
static void no_early_reuse(void)
{
    struct run r;
    run_init(&r);
    run_all(
        &r,
        PIPE(MODULE_P("source", "TSource",
                      "\"frames\": 200, " PINNED) "," UP
                                                  "," MODULE(
                                                      "a",
                                                      "TDevice") "," DOWN
                                                                 "," MODULE(
                                                                     "sink",
                                                                     "TSink"),
             LINK_Q("source", "up", "\"depth\": 1") "," LINK_Q(
                 "up", "a",
                 "\"depth\": 1") "," LINK_Q("a", "down",
                                            "\"depth\": 1") "," LINK_Q("down",
                                                                       "sink",
                                                                       "\"depth"
                                                                       "\": "
                                                                       "1")));
    assert_all_arrived(0, 200);
    run_finish(&r);
}

PEN_TEST(a_pinned_block_is_not_reused_before_its_copy_is_done)
{
    in_all_modes(no_early_reuse);
}

static void kernels_and_tables(void)
{
    struct run r;
    run_init(&r);
    run_all(
        &r,
        PIPE(
            MODULE_P("source", "TSource", "\"frames\": 30") "," MODULE("table", "TTable") "," MODULE(
                "sink",
                "TSink") "," MODULE_P("fill", "TFill",
                                      "\"value\": 119") "," MODULE_P("flat",
                                                                     "TSink",
                                                                     "\"slot\":"
                                                                     " 1, "
                                                                     "\"flat\":"
                                                                     " 119"),
            LINK("source", "table") "," LINK("table", "sink") "," LINK(
                "source", "fill") "," LINK("fill", "flat")));
    assert_all_arrived(0, 30);
    assert_all_arrived(1, 30);
    assert_int_equal(stats_of(&r).launches, 30);
    run_finish(&r);
}

PEN_TEST(kernels_run_and_workspaces_are_filled)
{
    in_all_modes(kernels_and_tables);
}

// --- a device that takes its time -------------------------------------------

// A stream of somebody else in the same context, and a gate.
struct other {
    struct fixture f;
    struct stk_stream *stream;
    struct gate gate;
};

static void other_open(struct other *o)
{
    fixture_open(&o->f);
    o->stream = fixture_stream(&o->f, "other");
    gate_create(&o->f, &o->gate);
}

static void other_close(struct other *o)
{
    stk_stream_destroy(&o->stream);
    gate_free(&o->f, &o->gate);
    fixture_close(&o->f);
}

static uint32_t frames_of(const struct run *r, const char *id)
{
    for (uint32_t i = 0; i < r->p->module_count; i++) {
        if (strcmp(r->p->modules[i].id, id) == 0)
            return (uint32_t)atomic_load(&r->p->modules[i].frames);
    }
    fail_msg("there is no module %s", id);
    return 0;
}

static void sync_run(const char *type, bool waits)
{
    char json[1024];
    struct run r;
    struct other o;
    run_init(&r);
    other_open(&o);
    snprintf(
        json, sizeof(json),
        PIPE(MODULE_P(
                 "source", "TTokenSource",
                 "\"frames\": 10, " PINNED) "," UP
                                            "," MODULE("sync", "%s") "," MODULE(
                                                "sink", "TSink"),
             LINK("source", "up") "," LINK("up", "sync") "," LINK("sync",
                                                                  "sink")),
        type);
    run_create(&r, json);
    RUN_OK(pen_pipeline_start(r.p, &err));
    gate_queue(&o.f, &o.gate, o.stream);
    for (int i = 0; i < 11; i++)
        sem_post(&world.tokens);
    if (waits) {
        wait_until(&world.uploaded, 1);
        pause_ms(20);
        assert_int_equal(atomic_load(&world.synced), 0);
        assert_int_equal(frames_of(&r, "sync"), 0);
    } else {
        // The gate of the other stream is still closed.
        wait_until(&world.sink[0].count, 10);
    }
    gate_open(&o.gate);
    RUN_OK(pen_pipeline_wait(r.p, 20000000000, &err));
    assert_all_arrived(0, 10);
    assert_int_equal(atomic_load(&world.synced), 10);
    run_finish(&r);
    other_close(&o);
}

static void stream_sync(void)
{
    sync_run("TStreamSync", false);
}

static void context_sync(void)
{
    sync_run("TContextSync", true);
}

PEN_TEST(parking_on_the_stream_does_not_wait_for_other_streams)
{
    in_all_modes(stream_sync);
}

PEN_TEST(parking_on_the_context_waits_for_every_stream)
{
    in_all_modes(context_sync);
}

// One worker: if it waited for the device, the host's branch would not run.
static void parked(void)
{
    struct run r;
    struct other o;
    run_init(&r);
    other_open(&o);
    world.gate = &o.gate;
    r.params.workers = 1;
    run_create(
        &r,
        PIPE(
            MODULE_P("source", "TSource", "\"frames\": 8") "," MODULE("gate", "TGate") "," MODULE(
                "sink",
                "TSink") "," MODULE_P("host", "TSource",
                                      "\"frames\": 500") "," MODULE_P("other",
                                                                      "TSink",
                                                                      "\"slot\""
                                                                      ": 1"),
            LINK("source", "gate") "," LINK("gate", "sink") "," LINK("host",
                                                                     "other")));
    RUN_OK(pen_pipeline_start(r.p, &err));
    wait_until(&world.sink[1].count, 500);
    pause_ms(5);
    assert_int_equal(atomic_load(&world.sink[0].count), 0);
    gate_open(&o.gate);
    RUN_OK(pen_pipeline_wait(r.p, 20000000000, &err));
    assert_all_arrived(0, 8);
    assert_all_arrived(1, 500);
    assert_int_equal(stats_of(&r).blocking_syncs, 0);
    run_finish(&r);
    other_close(&o);
}

PEN_TEST(no_worker_waits_for_a_slow_kernel)
{
    in_all_modes(parked);
}

#define D(ID)       MODULE(ID, "TDevice") ","
#define CHAIN(A, B) LINK(A, B) ","

static uint64_t device_calls(const struct run *r)
{
    uint64_t calls = 0;
    for (uint32_t i = 0; i < r->p->module_count; i++) {
        const struct pen_module *m = &r->p->modules[i];
        calls += m->cuda ? atomic_load(&m->frames) : 0;
    }
    return calls;
}

static void run_ahead(void)
{
    struct run r;
    struct other o;
    run_init(&r);
    other_open(&o);
    world.gate = &o.gate;
    run_create(
        &r,
        PIPE(MODULE_P("source", "TSource",
                      "\"frames\": 100") "," MODULE("gate", "TGate") "," D("a")
                 D("b") D("c") D("d") D("e") D("f") D("g") D("h") D("i") D("j")
                     D("k") D("l") D("m") MODULE("sink", "TSink"),
             CHAIN("source", "gate") CHAIN("gate", "a") CHAIN("a", "b")
                 CHAIN("b", "c") CHAIN("c", "d") CHAIN("d", "e") CHAIN("e", "f")
                     CHAIN("f", "g") CHAIN("g", "h") CHAIN("h", "i")
                         CHAIN("i", "j") CHAIN("j", "k") CHAIN("k", "l")
                             CHAIN("l", "m") LINK("m", "sink")));
    RUN_OK(pen_pipeline_start(r.p, &err));
    // Each call has a point, and so has the clearing of each fresh block; all
    // frames together would have more than 100.
    for (unsigned i = 0; device_calls(&r) < 15 && i < 20000; i++)
        pause_ms(1);
    pause_ms(20);
    assert_in_range(device_calls(&r), 15, STK_RUN_AHEAD);
    gate_open(&o.gate);
    RUN_OK(pen_pipeline_wait(r.p, 20000000000, &err));
    assert_all_arrived(0, 100);
    run_finish(&r);
    other_close(&o);
}

PEN_TEST(work_queued_ahead_of_the_device_is_bounded)
{
    in_all_modes(run_ahead);
}

PEN_TEST(a_device_that_does_not_finish_leaves_an_abandoned_pipeline)
{
    struct run r;
    struct other o;
    run_init(&r);
    other_open(&o);
    world.gate = &o.gate;
    run_create(&r,
               PIPE(MODULE_P("source", "TSource", "\"frames\": 0") "," MODULE(
                        "gate", "TGate") "," MODULE("sink", "TSink"),
                    LINK("source", "gate") "," LINK("gate", "sink")));
    RUN_OK(pen_pipeline_start(r.p, &err));
    while (!frames_of(&r, "gate"))
        pause_ms(1);
    struct pen_error why = { 0 };
    assert_int_equal(pen_pipeline_stop(r.p, 50000000, &why), PEN_E_TIMEOUT);
    assert_non_null(strstr(why.text, "device"));
    assert_int_equal(pen_pipeline_state(r.p), PEN_STATE_ABANDONED);
    gate_open(&o.gate);
    for (bool reached = false; !reached;) {
        pthread_mutex_lock(&r.p->sync_lock);
        reached = r.p->sync_reached && r.p->threads_left;
        pthread_mutex_unlock(&r.p->sync_lock);
        pause_ms(1);
    }
    pen_pipeline_destroy(&r.p);
    assert_int_equal(atomic_load(&world.closed), atomic_load(&world.opened));
    run_finish(&r);
    other_close(&o);
}

PEN_TEST(stop_ends_a_pipeline_whose_actors_are_parked)
{
    struct run r;
    struct other o;
    run_init(&r);
    other_open(&o);
    world.gate = &o.gate;
    run_create(
        &r,
        PIPE(
            MODULE_P("source", "TSource", "\"frames\": 0") "," MODULE("gate", "TGate") "," MODULE(
                "sync",
                "TStreamSync") "," MODULE("all",
                                          "TContextSync") "," MODULE("sink",
                                                                     "TSink") "," MODULE_P("two",
                                                                                           "TSink",
                                                                                           "\"slot\": 1"),
            LINK("source", "gate") "," LINK("gate", "sync") "," LINK(
                "gate", "all") "," LINK("sync", "sink") "," LINK("all",
                                                                 "two")));
    RUN_OK(pen_pipeline_start(r.p, &err));
    wait_until(&world.uploaded, 1);
    pause_ms(5);
    gate_open(&o.gate);
    RUN_OK(pen_pipeline_stop(r.p, 20000000000, &err));
    assert_int_equal(pen_pipeline_state(r.p), PEN_STATE_STOPPED);
    run_finish(&r);
    other_close(&o);
}

// --- a device that fails ----------------------------------------------------

PEN_TEST(nothing_is_reported_good_after_the_device_is_lost)
{
    const struct penemu *emu = fixture_emulator();
    if (!emu)
        PEN_SKIP("a real device is not broken on purpose");
    for (unsigned mode = PENEMU_EAGER; mode <= PENEMU_RANDOM; mode++) {
        emu->penemu_reset();
        emu->penemu_set_mode((enum penemu_mode)mode, 5);
        struct run r;
        run_init(&r);
        run_create(
            &r, PIPE(MODULE_P("source", "TSource", "\"frames\": 0") "," MODULE(
                         "a", "TDevice") "," MODULE("sink", "TSink"),
                     LINK("source", "a") "," LINK("a", "sink")));
        RUN_OK(pen_pipeline_start(r.p, &err));
        wait_until(&world.sink[0].count, 5);
        emu->penemu_break_contexts(700);
        struct pen_error why = { 0 };
        const enum pen_status st = pen_pipeline_wait(r.p, 20000000000, &why);
        assert_true(st == PEN_E_LOST || st == PEN_E_DRIVER);
        assert_int_equal(why.native, 700);
        assert_int_equal(pen_pipeline_state(r.p), PEN_STATE_FAILED);
        assert_int_equal(atomic_load(&world.sink[0].wrong), 0);
        run_finish(&r);
    }
    emu->penemu_reset();
}

static void error_then_clean(void)
{
    struct run r;
    run_init(&r);
    const struct pen_error err = run_to_error(
        &r, PIPE(MODULE_P("source", "TSource", "\"frames\": 50") "," MODULE(
                     "a", "TDevice") "," MODULE_P("sink", "TSink",
                                                  "\"failIn\": \"process\", "
                                                  "\"failAt\": 20"),
                 LINK("source", "a") "," LINK("a", "sink")));
    assert_string_equal(err.where, "sink");
    assert_non_null(strstr(err.text, "frame 20"));
    run_finish(&r);
}

PEN_TEST(a_failing_sink_ends_a_device_pipeline_without_leaks)
{
    in_all_modes(error_then_clean);
}

static int (*pop_current)(void **context);

static void pop_context(void)
{
    void *context;
    assert_int_equal(pop_current(&context), 0);
}

PEN_TEST(a_module_that_leaves_another_context_current_is_named)
{
    void *library = dlopen(
        pen_test_on_gpu() ? "libcuda.so.1" : pen_test_emulator(), RTLD_NOW);
    assert_non_null(library);
    void *symbol = dlsym(library, "cuCtxPopCurrent_v2");
    memcpy(&pop_current, &symbol, sizeof(symbol));
    struct run r;
    run_init(&r);
    world.disturb = pop_context;
    const struct pen_error err = run_to_error(
        &r, PIPE(MODULE("source", "TSource") "," MODULE(
                     "a", "TDisturb") "," MODULE("sink", "TDeviceSink"),
                 LINK("source", "a") "," LINK("a", "sink")));
    assert_int_equal(err.status, PEN_E_STATE);
    assert_string_equal(err.where, "a");
    assert_non_null(strstr(err.text, "context"));
    run_finish(&r);
    dlclose(library);
}

// Who watches from another thread sees consistent numbers at every moment of a
// pipeline's life.
struct watcher {
    const struct run *r;
    _Atomic bool end;
    _Atomic uint32_t looks;
};

static void *watch(void *cookie)
{
    struct watcher *w = cookie;
    uint64_t frames = 0;
    while (!atomic_load(&w->end)) {
        const struct pen_stats s = stats_of(w->r);
        struct pen_progress progress;
        pen_pipeline_progress(w->r->p, &progress);
        char *text = pen_pipeline_report_text(w->r->p);
        char *json = pen_pipeline_report_json(w->r->p);
        if (s.frames < frames || !text || !json || progress.frames < s.frames)
            abort();
        frames = s.frames;
        pen_free(text);
        pen_free(json);
        if (pen_pipeline_state(w->r->p) == PEN_STATE_RUNNING && frames > 50)
            pen_pipeline_drain(w->r->p);
        atomic_fetch_add(&w->looks, 1);
    }
    return NULL;
}

static void watched(void)
{
    struct run r;
    run_init(&r);
    run_create(
        &r,
        PIPE(MODULE_P("source", "TSource",
                      "\"frames\": 0, \"unknown\": true, "
                      "\"grow\": 7") "," MODULE("a",
                                                "TDevice") "," MODULE("sink",
                                                                      "TSink"),
             LINK("source", "a") "," LINK("a", "sink")));
    struct watcher w = { .r = &r };
    pthread_t thread;
    assert_int_equal(pthread_create(&thread, NULL, watch, &w), 0);
    wait_until(&w.looks, 2);
    RUN_OK(pen_pipeline_start(r.p, &err));
    // The watcher asks for the end.
    RUN_OK(pen_pipeline_wait(r.p, 20000000000, &err));
    const uint32_t looks = atomic_load(&w.looks);
    wait_until(&w.looks, looks + 2);
    atomic_store(&w.end, true);
    pthread_join(thread, NULL);
    assert_int_equal(atomic_load(&world.sink[0].wrong), 0);
    run_finish(&r);
}

PEN_TEST(a_pipeline_can_be_watched_and_drained_from_another_thread)
{
    in_all_modes(watched);
}

PEN_TEST(a_pipeline_needs_no_device_unless_a_module_does)
{
    struct run r;
    run_init(&r);
    r.params.device.emulator = "/nonexistent/libpenstock-emu.so";
    r.params.device.driver = "/nonexistent/libcuda.so.1";
    run_all(&r, PIPE(MODULE("source", "TSource") "," MODULE("sink", "TSink"),
                     LINK("source", "sink")));
    assert_all_arrived(0, 10);
    run_finish(&r);

    struct pen_error why = { 0 };
    run_init(&r);
    r.params.device.emulator = "/nonexistent/libpenstock-emu.so";
    r.params.device.driver = "/nonexistent/libcuda.so.1";
    assert_int_equal(
        run_try_create(&r,
                       PIPE(MODULE("source", "TSource") "," MODULE(
                                "a", "TDevice") "," MODULE("sink", "TSink"),
                            LINK("source", "a") "," LINK("a", "sink")),
                       &why),
        PEN_E_NODRIVER);
    assert_null(r.p);
    run_finish(&r);
}

PEN_TEST(a_file_that_asks_for_a_real_device_gets_no_emulated_one)
{
    struct run r;
    struct pen_error why = { 0 };
    run_init(&r);
    r.params.device.selector = "emulated";
    assert_int_equal(
        run_try_create(
            &r,
            "{ \"settings\": { \"device\": \"cuda\" }, "
            "\"modules\": { " MODULE("s", "TSource") "," MODULE(
                "a",
                "TDevice") "," MODULE("t",
                                      "TSink") " }, \"connections\": "
                                               "[ " LINK("s", "a") "," LINK(
                                                   "a", "t") " ] }",
            &why),
        PEN_E_CONFIG);
    assert_string_equal(why.where, "/settings/device");
    run_finish(&r);
}

PEN_TEST(many_device_pipelines_leave_nothing_behind)
{
    const unsigned cycles = pen_test_seeds(30, 1000);
    const struct penemu *emu = fixture_emulator();
    for (unsigned i = 0; i < cycles; i++) {
        if (emu) {
            emu->penemu_reset();
            emu->penemu_set_mode(PENEMU_RANDOM, i);
        }
        struct run r;
        run_init(&r);
        run_all(&r,
                PIPE(MODULE_P("source", "TSource", "\"frames\": 5") "," MODULE(
                         "a", "TDevice") "," MODULE("sink", "TSink"),
                     LINK("source", "a") "," LINK("a", "sink")));
        assert_all_arrived(0, 5);
        assert_one_stream(&r, 3);
        run_finish(&r);
    }
}

PEN_TEST_MAIN(
    PEN_CASE(a_chain_of_device_modules_has_one_upload_and_one_download),
    PEN_CASE(a_frame_for_three_device_modules_is_uploaded_once),
    PEN_CASE(branches_on_device_and_host_meet_again),
    PEN_CASE(frames_are_forwarded_past_a_device_module),
    PEN_CASE(unknown_and_growing_sizes_work_across_the_device),
    PEN_CASE(a_pinned_block_is_not_reused_before_its_copy_is_done),
    PEN_CASE(kernels_run_and_workspaces_are_filled),
    PEN_CASE(parking_on_the_stream_does_not_wait_for_other_streams),
    PEN_CASE(parking_on_the_context_waits_for_every_stream),
    PEN_CASE(no_worker_waits_for_a_slow_kernel),
    PEN_CASE(work_queued_ahead_of_the_device_is_bounded),
    PEN_CASE(a_device_that_does_not_finish_leaves_an_abandoned_pipeline),
    PEN_CASE(stop_ends_a_pipeline_whose_actors_are_parked),
    PEN_CASE(nothing_is_reported_good_after_the_device_is_lost),
    PEN_CASE(a_failing_sink_ends_a_device_pipeline_without_leaks),
    PEN_CASE(a_module_that_leaves_another_context_current_is_named),
    PEN_CASE(a_pipeline_can_be_watched_and_drained_from_another_thread),
    PEN_CASE(a_pipeline_needs_no_device_unless_a_module_does),
    PEN_CASE(a_file_that_asks_for_a_real_device_gets_no_emulated_one),
    PEN_CASE(many_device_pipelines_leave_nothing_behind))
