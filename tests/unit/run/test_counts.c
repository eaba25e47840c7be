// How often the driver is asked, counted by the emulator: a call of a module
// is worth one event at most, and a pipeline's one stream waits for nobody. And
// how many blocks of its pools a run needed.

#include "run_world.h"

#include <jansson.h>

#include "src/run/run.h"

// clang-format off
#define D(ID) MODULE(ID, "TDevice") ","
// Two branches, one with a module that waits for the stream.
#define BRANCHES(FRAMES)                                                       \
    PIPE(MODULE_P("source", "TSource", "\"frames\": " FRAMES) ","              \
         D("a") D("b") D("c") MODULE("sync", "TStreamSync") ","                \
         MODULE("sink", "TSink") ","                                           \
         MODULE_P("other", "TSink", "\"slot\": 1"),                            \
         LINK("source", "a") "," LINK("a", "b") "," LINK("b", "sync") ","      \
         LINK("sync", "sink") "," LINK("a", "c") "," LINK("c", "other"))
// clang-format on

struct counts {
    uint64_t records, waits, stream_syncs, context_syncs;  // of the driver
    uint64_t calls;   // of modules that use the device
    uint64_t blocks;  // of device memory: each is cleared once
};

static void count_driver(struct counts *out)
{
    const struct penemu *emu = fixture_emulator();
    out->records = emu->penemu_calls("cuEventRecord");
    out->waits = emu->penemu_calls("cuStreamWaitEvent");
    out->stream_syncs = emu->penemu_calls("cuStreamSynchronize");
    out->context_syncs = emu->penemu_calls("cuCtxSynchronize");
}

static struct counts counts_of(const char *json, uint32_t frames)
{
    struct counts before = { 0 }, after = { 0 };
    struct run r;
    run_init(&r);
    count_driver(&before);
    run_all(&r, json);
    count_driver(&after);
    assert_all_arrived(0, frames);
    assert_all_arrived(1, frames);
    for (uint32_t i = 0; i < r.p->module_count; i++) {
        const struct pen_module *m = &r.p->modules[i];
        after.calls += m->cuda ? atomic_load(&m->frames) : 0;
    }
    const struct pen_plan *plan = pen_pipeline_plan(r.p);
    for (uint32_t n = 0; n < plan->node_count; n++) {
        for (unsigned o = 0; o < plan->nodes[n].outputs; o++) {
            const struct stk_plan_output *output = &plan->nodes[n].output[o];
            if (output->mem == PEN_MEM_CUDA_DEVICE)
                after.blocks += output->blocks;
        }
    }
    run_finish(&r);
    after.records -= before.records;
    after.waits -= before.waits;
    after.stream_syncs -= before.stream_syncs;
    after.context_syncs -= before.context_syncs;
    return after;
}

static void each_call_has_one(void)
{
    enum { FEW = 20, MANY = 320, DEVICE_MODULES = 7, END = 4 };
    const struct counts few = counts_of(BRANCHES("20"), FEW);
    const struct counts many = counts_of(BRANCHES("320"), MANY);
    // a, b, c, the module that waits, one upload and two downloads.
    assert_int_equal(few.calls, FEW * DEVICE_MODULES);
    assert_int_equal(many.calls, MANY * DEVICE_MODULES);
    assert_true(many.blocks > 0 && many.blocks < MANY);
    // The end of the run is a few more, however many frames there were.
    assert_in_range(many.records, many.calls, many.calls + many.blocks + END);

    // One stream is in order by itself, and who waits for the device at all
    // does so in the teardown, however many frames there were.
    assert_int_equal(many.waits, 0);
    assert_int_equal(many.stream_syncs, few.stream_syncs);
    assert_int_equal(many.context_syncs, few.context_syncs);
}

PEN_TEST(a_module_call_costs_one_event_and_no_wait)
{
    if (!fixture_emulator())
        PEN_SKIP("calls of a real driver are not counted");
    in_all_modes(each_call_has_one);
}

// --- pools ------------------------------------------------------------------

// What the report says of the pool behind an edge; -1: nothing.
struct pool_told {
    json_int_t blocks, max_in_use;
};

static struct pool_told pool_of_edge(const struct run *r, size_t edge)
{
    struct pool_told told = { -1, -1 };
    char *text = pen_pipeline_report_json(r->p);
    json_t *report = json_loads(text, 0, NULL);
    json_t *pool = json_object_get(
        json_array_get(json_object_get(report, "edges"), edge), "pool");
    assert_non_null(pool);
    if (!json_is_null(pool)) {
        told.blocks = json_integer_value(json_object_get(pool, "blocks"));
        told.max_in_use =
            json_integer_value(json_object_get(pool, "max_in_use"));
    }
    json_decref(report);
    pen_free(text);
    return told;
}

#define HELD(FRAMES)                                                           \
    PIPE(MODULE_P("source", "TSource", "\"frames\": " FRAMES) "," MODULE(      \
             "pass", "TForward") "," MODULE("sink", "THold"),                  \
         LINK("source", "pass") "," LINK("pass", "sink"))

static void let_through(uint32_t frames)
{
    for (uint32_t i = 0; i < frames; i++)
        sem_post(&world.tokens);
}

PEN_TEST(the_report_tells_how_many_blocks_were_needed)
{
    // One frame needs one block, whatever the plan has.
    struct run r;
    run_init(&r);
    run_create(&r, HELD("1"));
    RUN_OK(pen_pipeline_start(r.p, &err));
    let_through(1);
    RUN_OK(pen_pipeline_wait(r.p, -1, &err));
    const struct pool_told one = pool_of_edge(&r, 0);
    assert_true(one.blocks > 2);
    assert_int_equal(one.max_in_use, 1);
    assert_int_equal(pool_of_edge(&r, 1).blocks, -1);  // the source's frames
    // Of the bytes too one block was used. Rows are padded to 64 bytes.
    const struct pen_stats s = stats_of(&r);
    const struct pen_memory_stats *host = &s.memory[PEN_MEM_HOST];
    assert_int_equal(host->peak - host->used, (one.blocks - 1) * 64 * 8);
    run_finish(&r);

    // A sink that takes none has the queues filled: two of four frames. It is
    // told meanwhile.
    enum { FULL = 8 };
    run_init(&r);
    run_create(&r, HELD("40"));
    RUN_OK(pen_pipeline_start(r.p, &err));
    wait_until(&world.produced, FULL);
    const struct pool_told before = pool_of_edge(&r, 0);
    assert_int_equal(before.blocks, one.blocks);
    assert_in_range(before.max_in_use, FULL, before.blocks);
    let_through(40);
    RUN_OK(pen_pipeline_wait(r.p, -1, &err));
    const struct pool_told all = pool_of_edge(&r, 0);
    assert_int_equal(all.blocks, before.blocks);
    assert_in_range(all.max_in_use, before.max_in_use, all.blocks);
    char *text = pen_pipeline_report_text(r.p);
    assert_non_null(strstr(text, ", pool at most "));
    pen_free(text);
    run_finish(&r);
}

PEN_TEST_MAIN(PEN_CASE(a_module_call_costs_one_event_and_no_wait),
              PEN_CASE(the_report_tells_how_many_blocks_were_needed))
