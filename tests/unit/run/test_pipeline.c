// Pipelines of host modules from creation to the report.

#include "run_world.h"

#include <dirent.h>
#include <pthread.h>
#include <time.h>

#include <jansson.h>

PEN_TEST(a_linear_pipeline_delivers_every_frame_in_order)
{
    struct run r;
    run_init(&r);
    run_all(
        &r,
        PIPE(MODULE_P("source", "TSource", "\"frames\": 100") "," MODULE(
                 "a", "TAdd") "," MODULE("b",
                                         "TAdd") "," MODULE_P("sink", "TSink",
                                                              "\"expect\": 2"),
             LINK("source", "a") "," LINK("a", "b") "," LINK("b", "sink")));
    assert_all_arrived(0, 100);
    const struct pen_stats s = stats_of(&r);
    assert_int_equal(s.frames, 100);
    assert_int_equal(s.drops, 0);
    assert_int_equal(s.errors, 0);
    assert_int_equal(s.streams, 0);
    assert_int_equal(s.contexts_retained, 0);
    assert_int_equal(s.steady_state_allocations, 0);
    assert_int_equal(atomic_load(&world.drained), 4);
    run_finish(&r);
}

PEN_TEST(modules_with_threads_of_their_own_deliver_the_same)
{
    for (uint32_t workers = 0; workers < 5; workers++) {
        struct run r;
        run_init(&r);
        r.params.workers = workers;
        run_all(
            &r,
            PIPE(
                MODULE_P("source", "TBlockSource", "\"frames\": 60") "," MODULE(
                    "a", "TAdd") "," MODULE_P("sink", "TBlockSink",
                                              "\"expect\": 1"),
                LINK("source", "a") "," LINK("a", "sink")));
        assert_all_arrived(0, 60);
        run_finish(&r);
    }
}

PEN_TEST(one_frame_goes_to_several_consumers_and_is_joined_again)
{
    struct run r;
    run_init(&r);
    run_all(
        &r,
        PIPE(
            MODULE_P("source", "TSource", "\"frames\": 200") "," MODULE(
                "a",
                "T"
                "A"
                "d"
                "d") "," MODULE("b",
                                "TAdd") "," MODULE("c",
                                                   "TAdd") "," MODULE("join",
                                                                      "TJoin") "," MODULE_P("si"
                                                                                            "n"
                                                                                            "k",
                                                                                            "TS"
                                                                                            "in"
                                                                                            "k",
                                                                                            "\""
                                                                                            "ex"
                                                                                            "pe"
                                                                                            "ct"
                                                                                            "\""
                                                                                            ": "
                                                                                            "3,"
                                                                                            " "
                                                                                            "\""
                                                                                            "tw"
                                                                                            "ic"
                                                                                            "e"
                                                                                            "\""
                                                                                            ": "
                                                                                            "tr"
                                                                                            "u"
                                                                                            "e") "," MODULE_P("side",
                                                                                                              "TSink",
                                                                                                              "\"slot\": 1"),
            LINK("source", "a") "," LINK("a", "b") "," LINK("b", "join.input_1") "," LINK(
                "source",
                "c") "," LINK("c",
                              "join.input_2") "," LINK("join",
                                                       "sink") "," LINK("sourc"
                                                                        "e",
                                                                        "sid"
                                                                        "e")));
    assert_all_arrived(0, 200);
    assert_all_arrived(1, 200);
    assert_int_equal(stats_of(&r).frames, 400);
    run_finish(&r);
}

PEN_TEST(forwarded_frames_are_the_frames_that_came)
{
    struct run r;
    run_init(&r);
    run_all(
        &r,
        PIPE(MODULE_P("source", "TSource", "\"frames\": 50") "," MODULE(
                 "a", "TForward") "," MODULE("b",
                                             "TForward") "," MODULE("sink",
                                                                    "TSink"),
             LINK("source", "a") "," LINK("a", "b") "," LINK("b", "sink")));
    assert_all_arrived(0, 50);
    assert_int_equal(stats_of(&r).host_copy_bytes, 0);
    run_finish(&r);
}

PEN_TEST(copies_by_the_cpu_are_counted)
{
    struct run r;
    run_init(&r);
    run_all(&r, PIPE(MODULE_P("source", "TSource", "\"frames\": 5") "," MODULE(
                         "copy", "TCopy") "," MODULE("sink", "TSink"),
                     LINK("source", "copy") "," LINK("copy", "sink")));
    assert_all_arrived(0, 5);
    assert_int_equal(stats_of(&r).host_copy_bytes, 5 * 16 * 8);
    run_finish(&r);
}

PEN_TEST(a_slow_sink_holds_the_source_back_at_depth_1)
{
    struct run r;
    run_init(&r);
    run_create(&r, PIPE(MODULE_P("source", "TSource",
                                 "\"frames\": 30") "," MODULE("sink", "THold"),
                        LINK_Q("source", "sink", "\"depth\": 1")));
    RUN_OK(pen_pipeline_start(r.p, &err));
    for (uint32_t taken = 0; taken < 28; taken++) {
        // One in the hands of the sink, one in the queue.
        wait_until(&world.produced, taken + 2);
        nanosleep(&(struct timespec){ .tv_nsec = 500000 }, NULL);
        assert_int_equal(atomic_load(&world.produced), taken + 2);
        sem_post(&world.tokens);
        wait_until(&world.sink[0].count, taken + 1);
    }
    sem_post(&world.tokens);
    sem_post(&world.tokens);
    RUN_OK(pen_pipeline_wait(r.p, 20000000000, &err));
    assert_all_arrived(0, 30);
    run_finish(&r);
}

static void run_dropping(const char *json, uint32_t frames, struct run *r)
{
    run_init(r);
    run_create(r, json);
    RUN_OK(pen_pipeline_start(r->p, &err));
    // The source is not held back by a sink that takes nothing; it has put its
    // last frame when its drain() is called.
    wait_until(&world.drained, 1);
    assert_int_equal(atomic_load(&world.produced), frames);
    for (uint32_t i = 0; i < frames; i++)
        sem_post(&world.tokens);
    RUN_OK(pen_pipeline_wait(r->p, 20000000000, &err));
    assert_int_equal(atomic_load(&world.sink[0].disorder), 0);
    assert_int_equal(atomic_load(&world.sink[0].wrong), 0);
    const struct pen_stats s = stats_of(r);
    assert_int_equal(s.frames + s.drops, frames);
}

PEN_TEST(drop_oldest_keeps_the_last_frames_and_counts_the_rest)
{
    struct run r;
    run_dropping(PIPE(MODULE_P("source", "TSource",
                               "\"frames\": 100") "," MODULE("sink", "THold"),
                      LINK_Q("source", "sink",
                             "\"depth\": 3, \"policy\": \"drop_oldest\"")),
                 100, &r);
    // At most one that the sink had in its hands, and the last three.
    const struct world_sink *s = &world.sink[0];
    const uint32_t n = atomic_load(&s->count);
    assert_true(n == 3 || n == 4);
    for (uint32_t i = 0; i < 3; i++)
        assert_int_equal(s->index[n - 3 + i], 97 + i);
    run_finish(&r);
}

PEN_TEST(drop_newest_keeps_the_first_frames_and_counts_the_rest)
{
    struct run r;
    run_dropping(PIPE(MODULE_P("source", "TSource",
                               "\"frames\": 100") "," MODULE("sink", "THold"),
                      LINK_Q("source", "sink",
                             "\"depth\": 3, \"policy\": \"drop_newest\"")),
                 100, &r);
    const struct world_sink *s = &world.sink[0];
    assert_true(atomic_load(&s->count) <= 4 && atomic_load(&s->count) >= 3);
    assert_int_equal(s->index[0], 0);
    run_finish(&r);
}

PEN_TEST(a_branch_that_drops_does_not_stop_the_join)
{
    // The gaps of one branch pair with the frames of the other.
    struct run r;
    run_init(&r);
    run_all(
        &r,
        PIPE(
            MODULE_P("source", "TSource", "\"frames\": 300") "," MODULE(
                "a",
                "TAdd") "," MODULE("b",
                                   "TAdd") "," MODULE("join",
                                                      "TJoin") "," MODULE_P("s"
                                                                            "i"
                                                                            "n"
                                                                            "k",
                                                                            "T"
                                                                            "S"
                                                                            "i"
                                                                            "n"
                                                                            "k",
                                                                            "\""
                                                                            "e"
                                                                            "x"
                                                                            "p"
                                                                            "e"
                                                                            "c"
                                                                            "t"
                                                                            "\""
                                                                            ":"
                                                                            " "
                                                                            "2"
                                                                            ","
                                                                            " "
                                                                            "\""
                                                                            "t"
                                                                            "w"
                                                                            "i"
                                                                            "c"
                                                                            "e"
                                                                            "\""
                                                                            ":"
                                                                            " "
                                                                            "t"
                                                                            "r"
                                                                            "u"
                                                                            "e"),
            LINK_Q("source", "a", "\"depth\": 1, \"policy\": \"drop_oldest\"") "," LINK_Q(
                "source", "b",
                "\"depth\": 1, \"policy\": \"drop_newest\"") "," LINK("a",
                                                                      "join."
                                                                      "input_"
                                                                      "1") "," LINK("b",
                                                                                    "join.input_2") "," LINK("join",
                                                                                                             "sink")));
    assert_int_equal(atomic_load(&world.sink[0].wrong), 0);
    assert_int_equal(atomic_load(&world.sink[0].disorder), 0);
    assert_true(atomic_load(&world.sink[0].count) > 0);
    run_finish(&r);
}

PEN_TEST(frames_that_a_module_skips_leave_no_hole_in_a_join)
{
    struct run r;
    run_init(&r);
    run_all(
        &r,
        PIPE(MODULE_P("source", "TSource", "\"frames\": 100") "," MODULE(
                 "odd",
                 "TOdd") "," MODULE("join",
                                    "TJoin") "," MODULE_P("sink", "TSink",
                                                          "\"twice\": true"),
             LINK("source", "odd") "," LINK("odd", "join.input_1") "," LINK(
                 "source", "join.input_2") "," LINK("join", "sink")));
    const struct world_sink *s = &world.sink[0];
    assert_int_equal(atomic_load(&s->count), 50);
    assert_int_equal(atomic_load(&s->wrong), 0);
    for (uint32_t i = 0; i < 50; i++)
        assert_int_equal(s->index[i], 2 * i + 1);
    run_finish(&r);
}

PEN_TEST(the_end_drains_what_a_module_holds_back)
{
    struct run r;
    run_init(&r);
    run_all(&r, PIPE(MODULE_P("source", "TSource",
                              "\"frames\": 20") "," MODULE("keeper", "TKeeper"),
                     LINK("source", "keeper")));
    assert_all_arrived(0, 20);
    run_finish(&r);
}

PEN_TEST(a_module_that_wants_no_more_ends_its_branch_only)
{
    struct run r;
    run_init(&r);
    run_all(
        &r,
        PIPE(MODULE_P("source", "TSource", "\"frames\": 50") "," MODULE(
                 "early",
                 "TEarly") "," MODULE("sink",
                                      "TSink") "," MODULE_P("other", "TSink",
                                                            "\"slot\": 1"),
             LINK("source", "early") "," LINK("early", "sink") "," LINK(
                 "source", "other")));
    assert_all_arrived(0, 3);
    assert_all_arrived(1, 50);
    assert_int_equal(stats_of(&r).drops, 0);
    run_finish(&r);
}

PEN_TEST(frames_limits_every_source)
{
    struct run r;
    run_init(&r);
    r.params.frames = 7;
    run_all(
        &r,
        PIPE(MODULE_P("a", "TSource", "\"frames\": 0") "," MODULE_P(
                 "b", "TBlockSource",
                 "\"frames\": 5") "," MODULE("s",
                                             "TSink") "," MODULE_P("t", "TSink",
                                                                   "\"slot\": "
                                                                   "1"),
             LINK("a", "s") "," LINK("b", "t")));
    assert_all_arrived(0, 7);
    assert_all_arrived(1, 5);
    run_finish(&r);
}

PEN_TEST(drain_ends_an_endless_source_and_delivers_what_is_in_flight)
{
    struct run r;
    run_init(&r);
    run_create(
        &r,
        PIPE(MODULE_P("source", "TSource", "\"frames\": 0") "," MODULE(
                 "a", "TAdd") "," MODULE_P("sink", "TSink", "\"expect\": 1"),
             LINK("source", "a") "," LINK("a", "sink")));
    assert_int_equal(pen_pipeline_state(r.p), PEN_STATE_CREATED);
    RUN_OK(pen_pipeline_start(r.p, &err));
    wait_until(&world.sink[0].count, 20);
    pen_pipeline_drain(r.p);
    RUN_OK(pen_pipeline_wait(r.p, 20000000000, &err));
    assert_int_equal(pen_pipeline_state(r.p), PEN_STATE_DONE);
    assert_int_equal(atomic_load(&world.produced),
                     atomic_load(&world.sink[0].count));
    struct pen_progress progress;
    pen_pipeline_progress(r.p, &progress);
    assert_int_equal(progress.frames, atomic_load(&world.produced));
    run_finish(&r);
}

PEN_TEST(drain_before_start_ends_at_once)
{
    struct run r;
    run_init(&r);
    run_create(&r, PIPE(MODULE_P("source", "TSource",
                                 "\"frames\": 0") "," MODULE("sink", "TSink"),
                        LINK("source", "sink")));
    pen_pipeline_drain(r.p);
    RUN_OK(pen_pipeline_start(r.p, &err));
    RUN_OK(pen_pipeline_wait(r.p, -1, &err));
    assert_int_equal(atomic_load(&world.sink[0].count), 0);
    run_finish(&r);
}

PEN_TEST(sizes_that_are_unknown_before_the_first_frame_are_settled)
{
    struct run r;
    run_init(&r);
    run_create(
        &r,
        PIPE(
            MODULE_P("source", "TSource", "\"frames\": 40, \"unknown\": true") "," MODULE(
                "a", "TAdd") "," MODULE_P("sink", "TSink", "\"expect\": 1"),
            LINK("source", "a") "," LINK("a", "sink")));
    assert_true(pen_plan_provisional(pen_pipeline_plan(r.p)));
    assert_int_equal(stats_of(&r).memory[PEN_MEM_HOST].planned_peak, 0);
    RUN_OK(pen_pipeline_start(r.p, &err));
    RUN_OK(pen_pipeline_wait(r.p, -1, &err));
    assert_all_arrived(0, 40);
    assert_false(pen_plan_provisional(pen_pipeline_plan(r.p)));
    const struct pen_stats s = stats_of(&r);
    assert_true(s.memory[PEN_MEM_HOST].planned_peak > 0);
    assert_true(s.memory[PEN_MEM_HOST].peak > 0);
    assert_int_equal(s.steady_state_allocations, 0);
    run_finish(&r);
}

PEN_TEST(frames_larger_than_planned_grow_the_pools_within_the_budget)
{
    struct run r;
    run_init(&r);
    run_all(
        &r,
        PIPE(
            MODULE_P("source", "TSource", "\"frames\": 60, \"grow\": 200") "," MODULE(
                "a", "TAdd") "," MODULE_P("sink", "TSink", "\"expect\": 1"),
            LINK("source", "a") "," LINK("a", "sink")));
    assert_all_arrived(0, 60);
    char *text = pen_pipeline_report_text(r.p);
    assert_non_null(strstr(text, "enlarged"));
    pen_free(text);
    run_finish(&r);
}

PEN_TEST(growth_beyond_the_budget_is_an_error_that_names_it)
{
    struct run r;
    run_init(&r);
    r.params.plan.budget[PEN_MEM_HOST] = 256 << 10;
    const struct pen_error err = run_to_error(
        &r,
        PIPE(MODULE_P("source", "TSource",
                      "\"frames\": 60, \"grow\": 2000, \"height\": "
                      "64") "," MODULE("a", "TAdd") "," MODULE("sink", "TSink"),
             LINK("source", "a") "," LINK("a", "sink")));
    assert_int_equal(err.status, PEN_E_LIMIT);
    assert_string_equal(err.where, "source");
    assert_non_null(strstr(err.text, "frame 1"));
    assert_non_null(strstr(err.text, "budget"));
    run_finish(&r);
}

// --- errors -----------------------------------------------------------------

static void error_names(const char *json, const char *where, const char *frame)
{
    struct run r;
    run_init(&r);
    const struct pen_error err = run_to_error(&r, json);
    assert_int_equal(err.status, PEN_E_DATA);
    assert_int_equal(err.native, 77);
    assert_string_equal(err.where, where);
    assert_non_null(strstr(err.text, "made to fail"));
    assert_non_null(strstr(err.text, frame));
    assert_int_equal(stats_of(&r).errors, 1);
    run_finish(&r);
}

#define FAILING(ID, TYPE, WHERE, AT, MORE)                                     \
    MODULE_P(ID, TYPE, "\"failIn\": \"" WHERE "\", \"failAt\": " AT MORE)
#define CHAIN_LINKS LINK("source", "a") "," LINK("a", "sink")

PEN_TEST(an_error_ends_the_run_and_names_module_and_frame)
{
    error_names(
        PIPE(FAILING("source", "TSource", "prepare", "3",
                     "") "," MODULE("a", "TAdd") "," MODULE("sink", "TSink"),
             CHAIN_LINKS),
        "source", "frame 3");
    error_names(
        PIPE(FAILING("source", "TSource", "process", "4",
                     "") "," MODULE("a", "TAdd") "," MODULE("sink", "TSink"),
             CHAIN_LINKS),
        "source", "frame 4");
    error_names(
        PIPE(MODULE("source", "TSource") "," FAILING(
                 "a", "TAdd", "prepare", "5", "") "," MODULE("sink", "TSink"),
             CHAIN_LINKS),
        "a", "frame 5");
    error_names(
        PIPE(MODULE("source", "TSource") "," FAILING(
                 "a", "TAdd", "process", "6", "") "," MODULE("sink", "TSink"),
             CHAIN_LINKS),
        "a", "frame 6");
    error_names(
        PIPE(MODULE("source", "TSource") "," MODULE("a", "TAdd") "," FAILING(
                 "sink", "TBlockSink", "process", "7", ""),
             CHAIN_LINKS),
        "sink", "frame 7");
    error_names(
        PIPE(MODULE("source", "TSource") "," MODULE("a", "TAdd") "," FAILING(
                 "sink", "TSink", "drain", "0", ""),
             CHAIN_LINKS),
        "sink", "");
    error_names(
        PIPE(MODULE("source", "TSource") "," MODULE("a", "TAdd") "," FAILING(
                 "sink", "TSink", "open", "0", ""),
             CHAIN_LINKS),
        "sink", "");
}

PEN_TEST(a_frame_given_up_by_policy_is_counted_and_the_run_goes_on)
{
    static const char *const runs[] = {
        PIPE(
            FAILING("source", "TSource", "prepare", "3", ", \"onError\": \"drop\", \"failTimes\": 2") "," MODULE(
                "a", "TAdd") "," MODULE_P("sink", "TSink", "\"expect\": 1"),
            CHAIN_LINKS),
        PIPE(
            FAILING("source", "TBlockSource", "process", "3", ", \"onError\": \"drop\", \"failTimes\": 2") "," MODULE(
                "a", "TAdd") "," MODULE_P("sink", "TSink", "\"expect\": 1"),
            CHAIN_LINKS),
        PIPE(MODULE("source", "TSource") "," FAILING(
                 "a", "TAdd", "prepare", "3",
                 ", \"onError\": \"drop\", "
                 "\"failTimes\": 2") "," MODULE_P("sink", "TSink",
                                                  "\"expe"
                                                  "ct\": "
                                                  "1"),
             CHAIN_LINKS),
        PIPE(MODULE("source", "TSource") "," FAILING(
                 "a", "TAdd", "process", "3",
                 ", \"onError\": \"drop\", "
                 "\"failTimes\": 2") "," MODULE_P("sink", "TSink",
                                                  "\"expe"
                                                  "ct\": "
                                                  "1"),
             CHAIN_LINKS),
        PIPE(MODULE("source", "TSource") "," MODULE("a", "TAdd") "," FAILING(
                 "sink", "TSink", "process", "3",
                 ", \"onError\": \"drop\", \"failTimes\": 2,"
                 " \"expect\": 1"),
             CHAIN_LINKS),
    };
    for (size_t i = 0; i < sizeof(runs) / sizeof(runs[0]); i++) {
        struct run r;
        run_init(&r);
        run_all(&r, runs[i]);
        static const uint64_t kept[] = { 0, 1, 2, 5, 6, 7, 8, 9 };
        const struct world_sink *s = &world.sink[0];
        assert_int_equal(atomic_load(&s->count), 8);
        assert_int_equal(atomic_load(&s->wrong), 0);
        assert_memory_equal(s->index, kept, sizeof(kept));
        assert_int_equal(stats_of(&r).drops, 2);
        assert_int_equal(stats_of(&r).errors, 2);
        run_finish(&r);
    }
}

PEN_TEST(a_failed_frame_does_not_stop_a_join)
{
    struct run r;
    run_init(&r);
    run_all(
        &r,
        PIPE(
            MODULE_P("source", "TSource", "\"frames\": 30") "," FAILING(
                "a", "TAdd", "process", "10",
                ", \"onError\": \"drop\", \"failTimes\": 3") "," MODULE("join",
                                                                        "TJoi"
                                                                        "n") "," MODULE_P("sink",
                                                                                          "TSink",
                                                                                          "\"expect\": 1, \"twice\": true"),
            LINK("source", "a") "," LINK("a", "join.input_1") "," LINK(
                "source", "join.input_2") "," LINK("join", "sink")));
    assert_int_equal(atomic_load(&world.sink[0].count), 27);
    assert_int_equal(atomic_load(&world.sink[0].wrong), 0);
    // Three at the failing module, three partners at the join.
    assert_int_equal(stats_of(&r).drops, 6);
    run_finish(&r);
}

PEN_TEST(retry_calls_again_and_gives_up_after_n)
{
    static const char *const places[] = { "prepare", "process" };
    for (unsigned i = 0; i < 2; i++) {
        char json[1024];
        struct run r;
        run_init(&r);
        snprintf(
            json, sizeof(json),
            PIPE(MODULE("source", "TSource") "," MODULE_P(
                     "a", "TAdd",
                     "\"failIn\": \"%s\", "
                     "\"failAt\": 4, \"failTimes\": 3, "
                     "\"onError\": \"retry:3\"") "," MODULE_P("sink", "TSink",
                                                              "\"expect\": 1"),
                 CHAIN_LINKS),
            places[i]);
        run_all(&r, json);
        assert_all_arrived(0, 10);
        assert_int_equal(stats_of(&r).errors, 0);
        run_finish(&r);

        run_init(&r);
        snprintf(
            json, sizeof(json),
            PIPE(MODULE("source", "TSource") "," MODULE_P(
                     "a", "TAdd",
                     "\"failIn\": \"%s\", "
                     "\"failAt\": 4, \"failTimes\": 4, "
                     "\"onError\": \"retry:3\"") "," MODULE("sink", "TSink"),
                 CHAIN_LINKS),
            places[i]);
        const struct pen_error err = run_to_error(&r, json);
        assert_string_equal(err.where, "a");
        assert_non_null(strstr(err.text, "frame 4"));
        run_finish(&r);
    }
}

PEN_TEST(a_frame_that_breaks_the_plan_is_an_error_whatever_the_policy)
{
    struct run r;
    run_init(&r);
    struct pen_error err = run_to_error(
        &r, PIPE(MODULE("source", "TSource") "," MODULE_P(
                     "a", "TLiar", "\"onError\": \"drop\"") "," MODULE("sink",
                                                                       "TSink"),
                 CHAIN_LINKS));
    assert_int_equal(strncmp(err.where, "a", 1), 0);
    assert_non_null(strstr(err.text, "RGB"));
    run_finish(&r);

    run_init(&r);
    err = run_to_error(&r, PIPE(MODULE("source", "TSource") "," MODULE(
                                    "a", "TSilent") "," MODULE("sink", "TSink"),
                                CHAIN_LINKS));
    assert_int_equal(err.status, PEN_E_STATE);
    assert_string_equal(err.where, "a");
    assert_non_null(strstr(err.text, "output"));
    run_finish(&r);

    run_init(&r);
    err = run_to_error(&r, PIPE(MODULE("source", "TSource") "," MODULE(
                                    "a", "TAgain") "," MODULE("sink", "TSink"),
                                CHAIN_LINKS));
    assert_int_equal(err.status, PEN_E_STATE);
    assert_string_equal(err.where, "a");
    run_finish(&r);
}

// Who waits in a loop until it is no more PEN_E_TIMEOUT has to come to an end.
PEN_TEST(a_module_that_timed_out_is_not_taken_for_a_pipeline_that_runs)
{
    struct run r;
    run_init(&r);
    const struct pen_error err =
        run_to_error(&r, PIPE(MODULE("source", "TSource") "," MODULE(
                                  "a", "TLate") "," MODULE("sink", "TSink"),
                              CHAIN_LINKS));
    assert_int_equal(err.status, PEN_E_IO);
    assert_string_equal(err.where, "a");
    assert_non_null(strstr(err.text, "the camera is silent"));
    run_finish(&r);
}

// --- stop -------------------------------------------------------------------

static void *give_tokens(void *cookie)
{
    while (!atomic_load(&world.stuck)) {
        sem_post(&world.tokens);
        nanosleep(&(struct timespec){ .tv_nsec = 1000000 }, NULL);
    }
    return cookie;
}

PEN_TEST(stop_works_while_every_queue_is_full)
{
    struct run r;
    run_init(&r);
    run_create(
        &r,
        PIPE(MODULE_P("source", "TSource", "\"frames\": 0") "," MODULE(
                 "a", "TForward") "," MODULE("b", "TAdd") "," MODULE("sink",
                                                                     "THold"),
             LINK_Q("source", "a", "\"depth\": 2") "," LINK_Q(
                 "a", "b", "\"depth\": 2") "," LINK_Q("b", "sink",
                                                      "\"depth\": 2")));
    RUN_OK(pen_pipeline_start(r.p, &err));
    wait_until(&world.produced, 7);
    struct pen_error why = { 0 };
    assert_int_equal(pen_pipeline_wait(r.p, 1000000, &why), PEN_E_TIMEOUT);
    assert_int_equal(pen_pipeline_state(r.p), PEN_STATE_RUNNING);
    // The sink is in its call until it gets a token, before or after it is
    // told to stop.
    pthread_t thread;
    atomic_store(&world.stuck, 0);
    assert_int_equal(pthread_create(&thread, NULL, give_tokens, NULL), 0);
    RUN_OK(pen_pipeline_stop(r.p, 20000000000, &err));
    atomic_store(&world.stuck, 1);
    pthread_join(thread, NULL);
    assert_int_equal(pen_pipeline_state(r.p), PEN_STATE_STOPPED);
    RUN_OK(pen_pipeline_stop(r.p, 20000000000, &err));
    run_finish(&r);
}

static void abandon(const char *json, bool release_first)
{
    struct run r;
    run_init(&r);
    run_create(&r, json);
    RUN_OK(pen_pipeline_start(r.p, &err));
    wait_until(&world.stuck, 1);
    struct pen_error err = { 0 };
    assert_int_equal(pen_pipeline_stop(r.p, 30000000, &err), PEN_E_TIMEOUT);
    assert_int_equal(err.status, PEN_E_TIMEOUT);
    assert_non_null(strstr(err.text, "stubborn has been in process()"));
    assert_int_equal(pen_pipeline_state(r.p), PEN_STATE_ABANDONED);
    // The handle refuses further use, but still tells what it knows.
    assert_int_equal(pen_pipeline_stop(r.p, 1, &err), PEN_E_STATE);
    assert_int_equal(pen_pipeline_wait(r.p, 1, &err), PEN_E_STATE);
    assert_int_equal(pen_pipeline_start(r.p, &err), PEN_E_STATE);
    pen_pipeline_drain(r.p);
    char *text = pen_pipeline_report_text(r.p);
    assert_non_null(strstr(text, "abandoned"));
    assert_non_null(strstr(text, "stubborn"));
    pen_free(text);
    text = pen_pipeline_report_json(r.p);
    json_t *report = json_loads(text, 0, NULL);
    assert_true(json_is_false(json_object_get(report, "ok")));
    json_decref(report);
    pen_free(text);

    const uint32_t opened = atomic_load(&world.opened);
    assert_int_equal(atomic_load(&world.closed), 0);
    if (release_first) {
        sem_post(&world.release);
        nanosleep(&(struct timespec){ .tv_nsec = 20000000 }, NULL);
    }
    pen_pipeline_destroy(&r.p);
    assert_null(r.p);
    // Its memory is still there for the module that comes back; when it does,
    // everything is given back.
    sem_post(&world.release);
    wait_until(&world.closed, opened);
    run_finish(&r);
}

PEN_TEST(a_module_that_never_returns_leaves_an_abandoned_pipeline)
{
    static const char *const types[] = { "TStuck", "TStuckInPool" };
    for (unsigned i = 0; i < 2; i++) {
        char json[512];
        snprintf(json, sizeof(json),
                 PIPE(MODULE_P("source", "TSource", "\"frames\": 0") "," MODULE(
                          "stubborn", "%s") "," MODULE("sink", "TSink"),
                      LINK("source", "stubborn") "," LINK("stubborn", "sink")),
                 types[i]);
        abandon(json, false);
        abandon(json, true);
    }
}

PEN_TEST(a_pipeline_can_be_destroyed_in_every_state)
{
    static const char json[] =
        PIPE(MODULE_P("source", "TSource", "\"frames\": 0") "," MODULE("sink",
                                                                       "TSink"),
             LINK("source", "sink"));
    struct run r;
    run_init(&r);
    run_create(&r, json);
    run_finish(&r);

    run_init(&r);
    run_create(&r, json);
    RUN_OK(pen_pipeline_stop(r.p, 1000000000, &err));
    assert_int_equal(pen_pipeline_state(r.p), PEN_STATE_STOPPED);
    run_finish(&r);

    run_init(&r);
    run_create(&r, json);
    RUN_OK(pen_pipeline_start(r.p, &err));
    wait_until(&world.sink[0].count, 1);
    pen_pipeline_destroy(&r.p);
    assert_int_equal(atomic_load(&world.closed), 2);
    run_finish(&r);
}

// --- leaks and reports ------------------------------------------------------

PEN_TEST(memory_that_a_module_keeps_is_a_leak_with_its_owner)
{
    struct run r;
    run_init(&r);
    const struct pen_error err = run_to_error(
        &r, PIPE(MODULE("source", "TSource") "," MODULE("w", "TWaster"),
                 LINK("source", "w")));
    assert_int_equal(err.status, PEN_E_LEAK);
    assert_string_equal(err.where, "w");
    const struct pen_stats s = stats_of(&r);
    assert_int_equal(s.leaks, 10);
    // The first frame may allocate.
    assert_int_equal(s.steady_state_allocations, 9);
    char *text = pen_pipeline_report_json(r.p);
    json_t *report = json_loads(text, 0, NULL);
    json_t *leak = json_array_get(json_object_get(report, "leaks"), 0);
    assert_string_equal(json_string_value(json_object_get(leak, "owner")), "w");
    assert_string_equal(json_string_value(json_object_get(leak, "type")),
                        "HOST");
    assert_true(json_integer_value(json_object_get(leak, "bytes")) >= 10000);
    json_decref(report);
    pen_free(text);
    pen_pipeline_destroy(&r.p);
    run_finish(&r);
}

PEN_TEST(a_frame_that_a_module_keeps_is_a_leak_and_stays_valid)
{
    struct run r;
    run_init(&r);
    r.params.leaks_fatal = false;
    run_all(&r, PIPE(MODULE("source", "TSource") "," MODULE("t", "TThief"),
                     LINK("source", "t")));
    const struct pen_stats s = stats_of(&r);
    assert_true(s.leaks > 0);
    assert_non_null(world.kept);
    assert_int_equal(pen_frame_index(world.kept), 0);
    assert_int_equal(pen_frame_caps(world.kept)->width, 16);
    pen_frame_unref(world.kept);
    pen_pipeline_destroy(&r.p);
    run_finish(&r);
}

static void assert_keys(json_t *object, const char *const *keys)
{
    size_t n = 0;
    for (; keys[n]; n++)
        assert_non_null(json_object_get(object, keys[n]));
    assert_int_equal(json_object_size(object), n);
}

PEN_TEST(the_report_has_the_keys_of_the_design_and_true_numbers)
{
    struct run r;
    run_init(&r);
    run_all(&r,
            PIPE(MODULE("source", "TSource") "," FAILING(
                     "a", "TAdd", "process", "2",
                     ", \"onError\": \"drop\"") "," MODULE_P("sink", "TSink",
                                                             "\"expect\": 1"),
                 CHAIN_LINKS));
    char *text = pen_pipeline_report_json(r.p);
    json_error_t error;
    json_t *o = json_loads(text, 0, &error);
    assert_non_null(o);
    static const char *const top[] = { "ok",      "device",  "profile",
                                       "frames",  "seconds", "fps",
                                       "modules", "edges",   "transfers",
                                       "memory",  "cuda",    "leaks",
                                       "errors",  NULL };
    static const char *const module[] = { "id",     "type",  "inserted",
                                          "frames", "drops", "busy_us",
                                          NULL };
    static const char *const edge[] = { "from",     "to",    "mem",
                                        "frames",   "drops", "depth",
                                        "max_fill", "pool",  NULL };
    static const char *const transfers[] = { "h2d", "d2h", "d2d", NULL };
    static const char *const memory[] = { "host", "host_pinned", "cuda_device",
                                          "dmabuf", NULL };
    static const char *const whole[] = { "before", "after", "process_before",
                                         "process_after", NULL };
    static const char *const use[] = { "planned_peak", "peak", "live", "used",
                                       NULL };
    static const char *const cuda[] = { "contexts_retained",
                                        "contexts_released",
                                        "streams",
                                        "steady_state_allocations",
                                        "library_allocations",
                                        "blocking_syncs",
                                        "unattributed",
                                        NULL };
    assert_keys(o, top);
    assert_true(json_is_true(json_object_get(o, "ok")));
    assert_true(json_is_null(json_object_get(o, "device")));
    assert_int_equal(json_integer_value(json_object_get(o, "frames")), 9);
    json_t *modules = json_object_get(o, "modules");
    assert_int_equal(json_array_size(modules), 3);
    static const int frames[] = { 10, 9, 9 }, drops[] = { 0, 1, 0 };
    for (size_t i = 0; i < 3; i++) {
        json_t *m = json_array_get(modules, i);
        assert_keys(m, module);
        assert_int_equal(json_integer_value(json_object_get(m, "frames")),
                         frames[i]);
        assert_int_equal(json_integer_value(json_object_get(m, "drops")),
                         drops[i]);
    }
    json_t *edges = json_object_get(o, "edges");
    assert_int_equal(json_array_size(edges), 2);
    assert_keys(json_array_get(edges, 0), edge);
    assert_string_equal(
        json_string_value(json_object_get(json_array_get(edges, 0), "from")),
        "source.output");
    assert_keys(json_object_get(o, "transfers"), transfers);
    assert_keys(json_object_get(o, "memory"), memory);
    assert_keys(json_object_get(json_object_get(o, "memory"), "host"), use);
    assert_keys(json_object_get(o, "cuda"), cuda);
    assert_keys(json_object_get(json_object_get(o, "cuda"), "unattributed"),
                whole);
    json_t *errors = json_object_get(o, "errors");
    assert_int_equal(json_array_size(errors), 1);
    assert_string_equal(
        json_string_value(json_object_get(json_array_get(errors, 0), "module")),
        "a");
    assert_int_equal(
        json_integer_value(json_object_get(json_array_get(errors, 0), "frame")),
        2);
    json_decref(o);
    pen_free(text);

    text = pen_pipeline_report_text(r.p);
    assert_non_null(strstr(text, "transfers: "));
    assert_non_null(strstr(text, "dropped: a: frame 2: made to fail"));
    assert_string_equal(text + strlen(text) - 9, "no leaks\n");
    pen_free(text);
    run_finish(&r);
}

static size_t count_of(const char *folder)
{
    DIR *dir = opendir(folder);
    size_t n = 0;
    assert_non_null(dir);
    while (readdir(dir))
        n++;
    closedir(dir);
    return n;
}

PEN_TEST(many_pipelines_leave_no_thread_and_no_descriptor_behind)
{
    const unsigned cycles = pen_test_seeds(100, 1000);
    size_t threads = 0, files = 0;
    for (unsigned i = 0; i < cycles; i++) {
        struct run r;
        run_init(&r);
        run_all(
            &r,
            PIPE(
                MODULE_P("source", "TBlockSource", "\"frames\": 3") "," MODULE(
                    "a", "TAdd") "," MODULE_P("sink", "TSink", "\"expect\": 1"),
                CHAIN_LINKS));
        assert_all_arrived(0, 3);
        run_finish(&r);
        if (i == 0) {
            threads = count_of("/proc/self/task");
            files = count_of("/proc/self/fd");
        }
    }
    assert_int_equal(count_of("/proc/self/task"), threads);
    assert_int_equal(count_of("/proc/self/fd"), files);
}

PEN_TEST(wrong_use_is_refused)
{
    struct run r;
    struct pen_error why = { 0 };
    run_init(&r);
    run_create(&r, PIPE(MODULE("source", "TSource") "," MODULE("sink", "TSink"),
                        LINK("source", "sink")));
    assert_int_equal(pen_pipeline_wait(r.p, 0, &why), PEN_E_STATE);
    RUN_OK(pen_pipeline_start(r.p, &err));
    assert_int_equal(pen_pipeline_start(r.p, &why), PEN_E_STATE);
    RUN_OK(pen_pipeline_wait(r.p, -1, &err));
    RUN_OK(pen_pipeline_wait(r.p, -1, &err));
    assert_int_equal(pen_pipeline_start(r.p, &why), PEN_E_STATE);
    run_finish(&r);

    run_init(&r);
    assert_int_equal(
        run_try_create(&r, PIPE(MODULE("source", "TSorce"), ""), &why),
        PEN_E_CONFIG);
    assert_null(r.p);
    assert_true(pen_issues_count(r.issues, PEN_SEVERITY_ERROR) > 0);
    run_finish(&r);
}

PEN_TEST_MAIN(
    PEN_CASE(a_linear_pipeline_delivers_every_frame_in_order),
    PEN_CASE(modules_with_threads_of_their_own_deliver_the_same),
    PEN_CASE(one_frame_goes_to_several_consumers_and_is_joined_again),
    PEN_CASE(forwarded_frames_are_the_frames_that_came),
    PEN_CASE(copies_by_the_cpu_are_counted),
    PEN_CASE(a_slow_sink_holds_the_source_back_at_depth_1),
    PEN_CASE(drop_oldest_keeps_the_last_frames_and_counts_the_rest),
    PEN_CASE(drop_newest_keeps_the_first_frames_and_counts_the_rest),
    PEN_CASE(a_branch_that_drops_does_not_stop_the_join),
    PEN_CASE(frames_that_a_module_skips_leave_no_hole_in_a_join),
    PEN_CASE(the_end_drains_what_a_module_holds_back),
    PEN_CASE(a_module_that_wants_no_more_ends_its_branch_only),
    PEN_CASE(frames_limits_every_source),
    PEN_CASE(drain_ends_an_endless_source_and_delivers_what_is_in_flight),
    PEN_CASE(drain_before_start_ends_at_once),
    PEN_CASE(sizes_that_are_unknown_before_the_first_frame_are_settled),
    PEN_CASE(frames_larger_than_planned_grow_the_pools_within_the_budget),
    PEN_CASE(growth_beyond_the_budget_is_an_error_that_names_it),
    PEN_CASE(an_error_ends_the_run_and_names_module_and_frame),
    PEN_CASE(a_frame_given_up_by_policy_is_counted_and_the_run_goes_on),
    PEN_CASE(a_failed_frame_does_not_stop_a_join),
    PEN_CASE(retry_calls_again_and_gives_up_after_n),
    PEN_CASE(a_frame_that_breaks_the_plan_is_an_error_whatever_the_policy),
    PEN_CASE(a_module_that_timed_out_is_not_taken_for_a_pipeline_that_runs),
    PEN_CASE(stop_works_while_every_queue_is_full),
    PEN_CASE(a_module_that_never_returns_leaves_an_abandoned_pipeline),
    PEN_CASE(a_pipeline_can_be_destroyed_in_every_state),
    PEN_CASE(memory_that_a_module_keeps_is_a_leak_with_its_owner),
    PEN_CASE(a_frame_that_a_module_keeps_is_a_leak_and_stays_valid),
    PEN_CASE(the_report_has_the_keys_of_the_design_and_true_numbers),
    PEN_CASE(many_pipelines_leave_no_thread_and_no_descriptor_behind),
    PEN_CASE(wrong_use_is_refused))
