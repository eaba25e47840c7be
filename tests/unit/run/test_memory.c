// What a pipeline does with memory: budgets that hold at run time, pinned
// blocks for what modules send, frames that outlive the pipeline, snapshots,
// DMABUFs, and what is nobody's.

#include "run_world.h"

#include <errno.h>
#include <jansson.h>
#include <stdio.h>
#include <unistd.h>

#include "src/gpu/cuda_abi.h"
#include "src/modules/modules.h"
#include "src/run/run.h"

#include "fake_dmabuf.h"
#include "raw_driver.h"

// --- classes ----------------------------------------------------------------

struct params {
    int32_t bytes;
    int32_t width, height;
};

struct state {
    uint64_t device;
    uint32_t frames;
};

// clang-format off
#define P struct params
static const struct pen_prop greedy_props[] = {
    PEN_I32(P, bytes, "bytes", 4096, 1, 1 << 30, "Allocated for each frame."),
    PEN_PROPS_END,
};
static const struct pen_prop dma_props[] = {
    PEN_I32(P, width, "width", 256, 1, 4096, "Width."),
    PEN_I32(P, height, "height", 64, 1, 4096, "Height."),
    PEN_PROPS_END,
};
#undef P
// clang-format on

// Shared with the tests.
static struct {
    struct pen_frame *kept;
    _Atomic uint32_t seen, wrong, descriptors;
    _Atomic uint64_t memory;  // that somebody else allocated meanwhile
} notes;

static enum pen_status greedy(struct pen_module *m, const struct pen_io *io,
                              struct pen_error *err)
{
    const struct params *p = pen_module_params(m);
    void *memory;
    (void)io;
    return pen_module_alloc(m, (size_t)p->bytes, &memory, err);
}

static enum pen_status greedy_device(struct pen_module *m,
                                     const struct pen_io *io,
                                     struct pen_error *err)
{
    const struct params *p = pen_module_params(m);
    struct state *st = pen_module_state(m);
    pen_forward(io, 0, 0);
    if (st->device)
        return PEN_OK;
    return pen_module_alloc_device(m, (size_t)p->bytes, &st->device, err);
}

static void greedy_close(struct pen_module *m)
{
    struct state *st = pen_module_state(m);
    pen_module_free_device(m, st->device);
}

// Sends a row of the number of the frame, as wide as the frame, with each.
static void sender_workspace(const void *params, const struct pen_caps *in,
                             const struct pen_caps *out,
                             uint64_t bytes[PEN_MEM_COUNT])
{
    (void)params;
    (void)out;
    bytes[PEN_MEM_HOST_PINNED] = (uint64_t)in[0].width;
    bytes[PEN_MEM_CUDA_DEVICE] = 4096;
}

static enum pen_status sender_open(struct pen_module *m, struct pen_error *err)
{
    struct state *st = pen_module_state(m);
    return pen_module_alloc_device(m, 4096, &st->device, err);
}

static enum pen_status sender_prepare(struct pen_module *m,
                                      const struct pen_io *io,
                                      struct pen_caps *out,
                                      struct pen_error *err)
{
    struct state *st = pen_module_state(m);
    *out = *pen_frame_caps(pen_input(io, 0));
    char row[4096];
    memset(row, (int)pen_io_index(io) & 0xff, sizeof(row));
    return pen_module_fill_device(m, st->device, row, (size_t)out->width, err);
}

// Every row of the output is what was sent.
static enum pen_status sender_process(struct pen_module *m,
                                      const struct pen_io *io,
                                      struct pen_error *err)
{
    const struct state *st = pen_module_state(m);
    struct pen_view out, row;
    PEN_TRY(pen_acquire(io, pen_output(io, 0), PEN_ON_STREAM, PEN_WRITE, &out,
                        err));
    row = out;
    row.height = row.plane[0].rows = 1;
    row.plane[0].address = st->device;
    struct pen_view line = row;
    for (int32_t y = 0; y < out.height; y++) {
        line.plane[0].address =
            out.plane[0].address + (uint64_t)y * out.plane[0].pitch;
        PEN_TRY(pen_copy(io, &line, &row, err));
    }
    return PEN_OK;
}

static enum pen_status number_sink(struct pen_module *m,
                                   const struct pen_io *io,
                                   struct pen_error *err)
{
    struct pen_view view;
    (void)m;
    PEN_TRY(
        pen_acquire(io, pen_input(io, 0), PEN_ON_HOST, PEN_READ, &view, err));
    const uint8_t want = (uint8_t)pen_frame_index(pen_input(io, 0));
    for (int32_t y = 0; y < view.height; y++) {
        const uint8_t *row = (const uint8_t *)view.plane[0].host +
                             (size_t)y * view.plane[0].pitch;
        for (int32_t x = 0; x < view.width; x++)
            if (row[x] != want)
                atomic_fetch_add(&notes.wrong, 1);
    }
    atomic_fetch_add(&notes.seen, 1);
    return PEN_OK;
}

static enum pen_status keep(struct pen_module *m, const struct pen_io *io,
                            struct pen_error *err)
{
    (void)m;
    (void)err;
    if (!notes.kept)
        notes.kept = pen_frame_ref(pen_input(io, 0));
    return PEN_OK;
}

// Takes the device memory of somebody else, on whose account it is not.
static enum pen_status foreign(struct pen_module *m, const struct pen_io *io,
                               struct pen_error *err)
{
    (void)m;
    (void)err;
    pen_forward(io, 0, 0);
    if (atomic_load(&notes.memory))
        return PEN_OK;
    CUdeviceptr memory = 0;
    CU(cuMemAlloc(&memory, 8 << 20));
    atomic_store(&notes.memory, memory);
    return PEN_OK;
}

static enum pen_status dma_negotiate(const void *params,
                                     const struct pen_caps *in,
                                     struct pen_caps *out,
                                     struct pen_error *err)
{
    const struct params *p = params;
    (void)in;
    (void)err;
    out[0] = (struct pen_caps){
        .kind = PEN_KIND_RAW_IMAGE,
        .format = PEN_FMT_MONO,
        .width = p->width,
        .height = p->height,
        .matrix = PEN_MATRIX_BT601,
        .range = PEN_RANGE_FULL,
    };
    return PEN_OK;
}

static enum pen_status dma_source(struct pen_module *m, const struct pen_io *io,
                                  struct pen_error *err)
{
    struct pen_view view;
    (void)m;
    if (pen_io_index(io) == 12)
        return PEN_EOS;
    PEN_TRY(
        pen_acquire(io, pen_output(io, 0), PEN_ON_HOST, PEN_WRITE, &view, err));
    for (int32_t y = 0; y < view.height; y++)
        memset((char *)view.plane[0].host + (size_t)y * view.plane[0].pitch,
               (int)pen_io_index(io), (size_t)view.width);
    return PEN_OK;
}

// Hands the descriptor of each frame out, as one for a display would.
static enum pen_status dma_sink(struct pen_module *m, const struct pen_io *io,
                                struct pen_error *err)
{
    struct pen_frame *in = pen_input(io, 0);
    struct pen_dmabuf dma = { 0 };
    (void)m;
    assert_int_equal(pen_frame_mem(in), PEN_MEM_DMABUF);
    PEN_TRY(pen_frame_dmabuf(in, &dma, err));
    if (dma.fd >= 0 && dma.planes == 1 && dma.modifier == 0)
        atomic_fetch_add(&notes.descriptors, 1);
    pen_dmabuf_close(&dma);
    atomic_fetch_add(&notes.seen, 1);
    return PEN_OK;
}

static enum pen_status double_release(struct pen_module *m,
                                      const struct pen_io *io,
                                      struct pen_error *err)
{
    (void)m;
    (void)err;
    if (pen_io_index(io) == 0)
        notes.kept = pen_input(io, 0);
    // Once for the first frame, after its last reference is gone.
    if (pen_io_index(io) == 9)
        pen_frame_unref(notes.kept);
    return PEN_OK;
}

#define PIN(NAME, MEM)                                                         \
    {                                                                          \
        .name = NAME, .help = "A pin.",                                        \
        .kinds = PEN_KIND_BIT(PEN_KIND_RAW_IMAGE), .mem = MEM,                 \
        .formats = PEN_FMT_BIT(PEN_FMT_MONO)                                   \
    }
#define CUDA   PEN_MEM_BIT(PEN_MEM_CUDA_DEVICE)
#define HOST   PEN_MEM_BITS_HOST
#define DMABUF PEN_MEM_BIT(PEN_MEM_DMABUF)
static const struct pen_pin host_in[] = { PIN("input", HOST), { 0 } };
static const struct pen_pin cuda_in[] = { PIN("input", CUDA), { 0 } };
static const struct pen_pin cuda_out[] = { PIN("output", CUDA), { 0 } };
static const struct pen_pin dma_in[] = { PIN("input", DMABUF), { 0 } };
static const struct pen_pin dma_out[] = { PIN("output", DMABUF), { 0 } };

#define CLASS(NAME, CATEGORY)                                                  \
    .abi = PEN_MODULE_ABI, .size = sizeof(struct pen_module_class),            \
    .name = NAME, .version = "1.0", .summary = "A class of the tests",         \
    .category = PEN_CATEGORY_##CATEGORY, .params_size = sizeof(struct params), \
    .state_size = sizeof(struct state)

// clang-format off
static const struct pen_module_class classes[] = {
    { CLASS("MGreedy", SINK), .inputs = host_in, .props = greedy_props,
      .ops = { .process = greedy } },
    { CLASS("MGreedyDevice", TRANSFORM),
      .flags = PEN_CLASS_CUDA | PEN_CLASS_FORWARDS, .inputs = cuda_in,
      .outputs = cuda_out, .props = greedy_props,
      .ops = { .process = greedy_device, .close = greedy_close } },
    { CLASS("MSender", TRANSFORM), .flags = PEN_CLASS_CUDA, .inputs = cuda_in,
      .outputs = cuda_out,
      .ops = { .open = sender_open, .prepare = sender_prepare,
               .process = sender_process, .close = greedy_close,
               .workspace = sender_workspace } },
    { CLASS("MNumberSink", SINK), .inputs = host_in,
      .ops = { .process = number_sink } },
    { CLASS("MKeep", SINK), .inputs = host_in, .ops = { .process = keep } },
    { CLASS("MKeepDevice", SINK), .inputs = cuda_in, .ops = { .process = keep } },
    { CLASS("MForeign", TRANSFORM),
      .flags = PEN_CLASS_CUDA | PEN_CLASS_FORWARDS, .inputs = cuda_in,
      .outputs = cuda_out, .ops = { .process = foreign } },
    { CLASS("MDmaSource", SOURCE), .outputs = dma_out, .props = dma_props,
      .ops = { .negotiate = dma_negotiate, .process = dma_source } },
    { CLASS("MDmaSink", SINK), .inputs = dma_in, .ops = { .process = dma_sink } },
    { CLASS("MDouble", SINK), .inputs = host_in,
      .ops = { .process = double_release } },
};
// clang-format on

static void memory_init(struct run *r)
{
    run_init(r);
    memset(&notes, 0, sizeof(notes));
    for (size_t i = 0; i < sizeof(classes) / sizeof(classes[0]); i++)
        RUN_OK(pen_registry_add(r->registry, &classes[i], &err));
    RUN_OK(pen_registry_add(r->registry, &stk_class_mem_type_conversion, &err));
}

// The frames that were kept are released, and the run is over.
static void finish_failed(struct run *r)
{
    pen_pipeline_destroy(&r->p);
    run_finish(r);
}

// --- budgets ----------------------------------------------------------------

PEN_TEST(a_module_that_allocates_beyond_its_plan_is_refused_with_the_owners)
{
    struct run r;
    memory_init(&r);
    r.params.leaks_fatal = false;
    r.params.plan.budget[PEN_MEM_HOST] = 1 << 20;
    const struct pen_error err =
        run_to_error(&r, PIPE(MODULE("source", "TSource") "," MODULE_P(
                                  "eater", "MGreedy", "\"bytes\": 300000"),
                              LINK("source", "eater")));
    assert_int_equal(err.status, PEN_E_LIMIT);
    assert_string_equal(err.where, "eater");
    assert_non_null(strstr(err.text, "1.00 MiB"));
    assert_non_null(strstr(err.text, "eater"));
    assert_non_null(strstr(err.text, "source.output"));
    // Three times it was within the limit.
    const struct pen_stats s = stats_of(&r);
    assert_true(s.memory[PEN_MEM_HOST].peak <= 1 << 20);
    assert_true(s.memory[PEN_MEM_HOST].peak > 900000);
    finish_failed(&r);
}

static void device_budget(void)
{
    struct run r;
    memory_init(&r);
    r.params.plan.budget[PEN_MEM_CUDA_DEVICE] = 1 << 20;
    const struct pen_error err = run_to_error(
        &r, PIPE(MODULE("source", "TSource") "," MODULE_P(
                     "eater", "MGreedyDevice",
                     "\"bytes\": 1048576") "," MODULE("sink", "TSink"),
                 LINK("source", "eater") "," LINK("eater", "sink")));
    assert_int_equal(err.status, PEN_E_LIMIT);
    assert_string_equal(err.where, "eater");
    assert_non_null(strstr(err.text, "1.00 MiB"));
    const struct pen_stats s = stats_of(&r);
    assert_true(s.memory[PEN_MEM_CUDA_DEVICE].peak < 1 << 20);
    finish_failed(&r);
}

PEN_TEST(device_memory_beyond_the_budget_is_refused_at_run_time)
{
    in_all_modes(device_budget);
}

PEN_TEST(a_machine_that_locks_no_more_memory_is_told_with_the_way_round)
{
    const struct penemu *emu = fixture_emulator();
    if (!emu) {
        PEN_SKIP("a real driver does not fail on demand");
        return;
    }
    struct run r;
    memory_init(&r);
    emu->penemu_reset();
    run_create(&r, PIPE(MODULE("source", "TSource") "," MODULE(
                            "a", "TDevice") "," MODULE("sink", "TSink"),
                        LINK("source", "a") "," LINK("a", "sink")));
    emu->penemu_fault_arm("cuMemHostAlloc", 2, CUDA_ERROR_OUT_OF_MEMORY, 1);
    struct pen_error err = { 0 };
    assert_int_equal(pen_pipeline_start(r.p, &err), PEN_E_NOMEM);
    emu->penemu_fault_disarm();
    assert_non_null(strstr(err.text, "settings.pinned_limit"));
    assert_non_null(strstr(err.text, "source.output"));
    finish_failed(&r);
    emu->penemu_reset();
}

// --- staging ----------------------------------------------------------------

// *blocks: of all pools, and of what is sent.
static uint64_t sent(const char *json, uint32_t frames, uint32_t *blocks)
{
    struct run r;
    memory_init(&r);
    run_all(&r, json);
    assert_int_equal(atomic_load(&notes.seen), frames);
    assert_int_equal(atomic_load(&notes.wrong), 0);
    const struct pen_stats s = stats_of(&r);
    // The classes of run_world.c allocate host memory that they do not plan.
    for (unsigned m = PEN_MEM_HOST_PINNED; m < PEN_MEM_COUNT; m++)
        assert_true(s.memory[m].peak <= s.memory[m].planned_peak);
    *blocks = STK_STAGING_BLOCKS;
    for (uint32_t n = 0; n < r.p->plan->node_count; n++)
        *blocks += r.p->plan->nodes[n].output[0].blocks;
    const uint64_t allocations = s.steady_state_allocations;
    run_finish(&r);
    return allocations;
}

#define SENT(FRAMES, MORE)                                                     \
    PIPE(MODULE_P("source", "TSource", "\"frames\": " FRAMES MORE) "," MODULE( \
             "sender", "MSender") "," MODULE("sink", "MNumberSink"),           \
         LINK("source", "sender") "," LINK("sender", "sink"))

static void staged(void)
{
    uint32_t blocks;
    assert_int_equal(sent(SENT("200", ""), 200, &blocks), 0);
    // Three sizes in turn: each block is replaced once for each of the two that
    // are larger than the first, and none for a frame.
    const uint64_t allocations =
        sent(SENT("600", ", \"grow\": 700"), 600, &blocks);
    assert_true(allocations <= 2 * blocks);
    assert_true(2 * blocks < 200);
}

PEN_TEST(what_modules_send_with_each_frame_stays_within_the_plan)
{
    in_all_modes(staged);
}

// --- growth -----------------------------------------------------------------

static void grow_in_place(void)
{
    struct run r;
    unsigned pools = 0, blocks = 0;
    memory_init(&r);
    run_create(
        &r,
        PIPE(MODULE_P(
                 "source", "TSource",
                 "\"frames\": 0, \"width\": 2048, \"height\": "
                 "2048, \"grow\": 256") "," MODULE("a",
                                                   "TDevice") "," MODULE("sink",
                                                                         "TSin"
                                                                         "k"),
             LINK("source", "a") "," LINK("a", "sink")));
    RUN_OK(pen_pipeline_start(r.p, &err));
    wait_until(&world.sink[0].count, 12);
    for (uint32_t n = 0; n < r.p->module_count; n++) {
        const struct stk_out_pin *pin = &r.p->modules[n].out[0];
        struct stk_pool_stats s;
        if (!pin->made ||
            r.p->plan->nodes[n].output[0].mem != PEN_MEM_CUDA_DEVICE)
            continue;
        stk_pool_stats(pin->made, &s);
        assert_int_equal(s.block_bytes, 2560 * 2048);
        assert_true(s.grown > 0);
        blocks += s.blocks;
        pools++;
    }
    assert_int_equal(pools, 2);
    // Addresses were set aside once for each.
    const struct penemu *emu = fixture_emulator();
    if (emu)
        assert_int_equal(emu->penemu_calls("cuMemAddressReserve"), blocks);
    RUN_OK(pen_pipeline_stop(r.p, -1, &err));
    assert_int_equal(atomic_load(&world.sink[0].wrong), 0);
    const struct pen_stats s = stats_of(&r);
    assert_true(s.memory[PEN_MEM_CUDA_DEVICE].peak <=
                s.memory[PEN_MEM_CUDA_DEVICE].planned_peak);
    run_finish(&r);
}

PEN_TEST(device_frames_that_turn_out_larger_grow_where_they_lie)
{
    in_all_modes(grow_in_place);
}

// --- the upgrade ------------------------------------------------------------

#define UPLOADED(SETTINGS)                                                     \
    "{ \"settings\": { " SETTINGS " }, \"modules\": { " MODULE_P(              \
        "source", "TSource",                                                   \
        "\"frames\": 50, \"width\": 256, \"height\": "                         \
        "64") "," MODULE("a",                                                  \
                         "TDevice") "," MODULE("sink",                         \
                                               "TSink") " }, "                 \
                                                        "\"connections\": "    \
                                                        "[ " LINK(             \
                                                            "source",          \
                                                            "a") "," LINK("a", \
                                                                          "si" \
                                                                          "n"  \
                                                                          "k") " ] }"

PEN_TEST(an_upgraded_output_is_not_copied_by_the_cpu_and_a_staged_one_is)
{
    struct run r;
    const uint64_t frame = 256 * 64;
    memory_init(&r);
    run_all(&r, UPLOADED(""));
    assert_all_arrived(0, 50);
    struct pen_stats s = stats_of(&r);
    assert_int_equal(s.host_copy_bytes, 0);
    assert_int_equal(s.h2d.bytes, 50 * frame);
    const uint64_t pinned = s.memory[PEN_MEM_HOST_PINNED].planned_peak;
    run_finish(&r);

    memory_init(&r);
    r.params.plan.budget[PEN_MEM_HOST_PINNED] = pinned - 1;
    run_all(&r, UPLOADED("\"pinned_limit\": \"stage\""));
    assert_all_arrived(0, 50);
    s = stats_of(&r);
    assert_int_equal(s.host_copy_bytes, 50 * frame);
    assert_int_equal(s.h2d.bytes, 50 * frame);
    assert_true(s.memory[PEN_MEM_HOST_PINNED].peak < pinned);
    run_finish(&r);
}

// --- frames that outlive the pipeline ---------------------------------------

static bool context_is_active(void)
{
    unsigned flags = 0;
    int active = 0;
    CU(cuDevicePrimaryCtxGetState(cu.device, &flags, &active));
    return active;
}

static void outlive(const char *json, bool device)
{
    struct run r;
    memory_init(&r);
    r.params.leaks_fatal = false;
    run_all(&r, json);
    assert_true(stats_of(&r).leaks > 0);
    assert_non_null(notes.kept);
    pen_pipeline_destroy(&r.p);
    assert_true(context_is_active() == device);
    assert_int_equal(pen_frame_index(notes.kept), 0);
    struct pen_frame *second = pen_frame_ref(notes.kept);
    pen_frame_unref(notes.kept);
    assert_true(context_is_active() == device);
    pen_frame_unref(second);
    // With the last one the context went too.
    assert_false(context_is_active());
    run_finish(&r);
}

static void outlive_all(void)
{
    CU(cuInit(0));
    outlive(PIPE(MODULE("source", "TSource") "," MODULE("keep", "MKeep"),
                 LINK("source", "keep")),
            false);
    outlive(PIPE(MODULE("source", "TSource") "," MODULE(
                     "a", "TDevice") "," MODULE("keep", "MKeep"),
                 LINK("source", "a") "," LINK("a", "keep")),
            true);
    outlive(PIPE(MODULE("source", "TSource") "," MODULE("keep", "MKeepDevice"),
                 LINK("source", "keep")),
            true);
}

PEN_TEST(the_last_frame_takes_stream_device_and_ledger_along)
{
    raw_open_only();
    in_all_modes(outlive_all);
}

// The frame may also go between the end of the run and destroy.
PEN_TEST(a_frame_released_before_destroy_leaves_the_rest_to_destroy)
{
    struct run r;
    raw_open_only();
    CU(cuInit(0));
    memory_init(&r);
    r.params.leaks_fatal = false;
    run_all(&r,
            PIPE(MODULE("source", "TSource") "," MODULE("keep", "MKeepDevice"),
                 LINK("source", "keep")));
    assert_true(context_is_active());
    pen_frame_unref(notes.kept);
    assert_true(context_is_active());
    pen_pipeline_destroy(&r.p);
    assert_false(context_is_active());
    run_finish(&r);
}

PEN_TEST(a_frame_that_is_released_twice_makes_the_run_fail)
{
#ifdef __SANITIZE_ADDRESS__
    PEN_SKIP("the sanitizer finds it first, and ends the program");
#endif
    struct run r;
    memory_init(&r);
    const struct pen_error err = run_to_error(
        &r, PIPE(MODULE("source", "TSource") "," MODULE("twice", "MDouble"),
                 LINK("source", "twice")));
    assert_int_equal(err.status, PEN_E_STATE);
    assert_non_null(strstr(err.text, "released"));
    finish_failed(&r);
}

// --- what is alive ----------------------------------------------------------

static int64_t bytes_of(const struct pen_snapshot *snapshot, const char *kind,
                        const char *owner)
{
    const struct pen_ledger_entry *e;
    const size_t count = pen_snapshot_entries(snapshot, &e);
    int64_t bytes = 0;
    for (size_t i = 0; i < count; i++) {
        if (!strcmp(e[i].kind, kind) && !strcmp(e[i].owner, owner))
            bytes += e[i].bytes;
    }
    return bytes;
}

PEN_TEST(a_snapshot_tells_what_a_running_pipeline_holds)
{
    struct run r;
    struct pen_snapshot *during = NULL, *after = NULL;
    const struct pen_ledger_entry *entries;
    memory_init(&r);
    run_create(&r, PIPE(MODULE_P("source", "TSource",
                                 "\"frames\": 0") "," MODULE("sink", "TSink"),
                        LINK("source", "sink")));
    RUN_OK(pen_pipeline_start(r.p, &err));
    wait_until(&world.sink[0].count, 1);
    RUN_OK(pen_pipeline_snapshot(r.p, &during, &err));
    RUN_OK(pen_pipeline_stop(r.p, -1, &err));
    const struct pen_stats s = stats_of(&r);
    assert_true(bytes_of(during, "HOST", "source.output") > 0);
    assert_true(bytes_of(during, "HOST", "source.output") <=
                (int64_t)s.memory[PEN_MEM_HOST].planned_peak);
    RUN_OK(pen_pipeline_snapshot(r.p, &after, &err));
    assert_int_equal(pen_snapshot_entries(after, &entries), 0);
    pen_snapshot_destroy(&during);
    pen_snapshot_destroy(&after);
    run_finish(&r);
}

static bool report_tells(struct run *r, const char *what)
{
    char *text = pen_pipeline_report_text(r->p);
    const bool told = strstr(text, what) != NULL;
    pen_free(text);
    return told;
}

PEN_TEST(memory_that_nobody_accounts_for_is_told_and_is_no_failure)
{
    struct run r;
    raw_open();
    memory_init(&r);
    run_all(&r, PIPE(MODULE("source", "TSource") "," MODULE(
                         "a", "MForeign") "," MODULE("sink", "TSink"),
                     LINK("source", "a") "," LINK("a", "sink")));
    struct pen_stats s = stats_of(&r);
    assert_true(s.unattributed.after >= s.unattributed.before + (8 << 20));
    assert_true(report_tells(&r, "unattributed: "));
    char *text = pen_pipeline_report_json(r.p);
    json_t *report = json_loads(text, 0, NULL);
    json_t *told =
        json_object_get(json_object_get(report, "cuda"), "unattributed");
    assert_int_equal(json_integer_value(json_object_get(told, "before")),
                     s.unattributed.before);
    assert_int_equal(json_integer_value(json_object_get(told, "after")),
                     s.unattributed.after);
    json_decref(report);
    pen_free(text);
    run_finish(&r);
    CU(cuMemFree(atomic_load(&notes.memory)));

    memory_init(&r);
    run_all(&r, PIPE(MODULE("source", "TSource") "," MODULE(
                         "a", "TDevice") "," MODULE("sink", "TSink"),
                     LINK("source", "a") "," LINK("a", "sink")));
    assert_false(report_tells(&r, "unattributed: "));
    run_finish(&r);
    raw_close();
}

// --- DMABUFs ----------------------------------------------------------------

// What this machine can do with them.
static unsigned dmabuf_caps(void)
{
    struct fixture f;
    struct stk_dmabuf_caps caps;
    fixture_open(&f);
    stk_dmabuf_probe(f.dev, &caps);
    fixture_close(&f);
    return (caps.host ? PEN_DMABUF_HOST : 0) |
           (caps.export ? PEN_DMABUF_EXPORT : 0) |
           (caps.import ? PEN_DMABUF_IMPORT : 0);
}

static void dma_from_host(void)
{
    struct run r;
    memory_init(&r);
    // Written and read by the host where it is, and handed out.
    run_all(&r, PIPE(MODULE("source", "MDmaSource") "," MODULE(
                         "sink", "MDmaSink") "," MODULE("check", "MNumberSink"),
                     LINK("source", "sink") "," LINK("source", "check")));
    assert_int_equal(atomic_load(&notes.seen), 24);
    assert_int_equal(atomic_load(&notes.descriptors), 12);
    assert_int_equal(atomic_load(&notes.wrong), 0);
    struct pen_stats s = stats_of(&r);
    assert_int_equal(s.host_copy_bytes, 0);
    assert_true(s.memory[PEN_MEM_DMABUF].peak > 0);
    assert_int_equal(s.memory[PEN_MEM_CUDA_DEVICE].peak, 0);
    assert_true(s.memory[PEN_MEM_DMABUF].peak <=
                s.memory[PEN_MEM_DMABUF].planned_peak);
    assert_int_equal(s.steady_state_allocations, 0);
    run_finish(&r);

    // A host output that feeds a pin that takes nothing else is made of them.
    memory_init(&r);
    run_all(&r, PIPE(MODULE("source", "TSource") "," MODULE("sink", "MDmaSink"),
                     LINK("source", "sink")));
    assert_int_equal(atomic_load(&notes.descriptors), 10);
    assert_int_equal(stats_of(&r).host_copy_bytes, 0);
    run_finish(&r);
}

PEN_TEST(dmabufs_of_the_host_are_written_read_and_handed_out_in_place)
{
    if (!(dmabuf_caps() & PEN_DMABUF_HOST))
        PEN_SKIP("this machine has no provider of DMABUFs for the host");
    in_all_modes(dma_from_host);
}

static void dma_from_device(void)
{
    struct run r;
    memory_init(&r);
    // The device writes, a module without it hands the descriptor out, and a
    // download goes to the host.
    run_all(
        &r,
        PIPE(
            MODULE_P(
                "source", "TSource",
                "\"frames\": 20, \"width\": 256, \"height\": "
                "64") "," MODULE("a",
                                 "TDevice") "," MODULE("sink",
                                                       "MDmaSink") "," MODULE("check",
                                                                              "TSink"),
            LINK("source", "a") "," LINK("a", "sink") "," LINK("a", "check")));
    assert_all_arrived(0, 20);
    assert_int_equal(atomic_load(&notes.descriptors), 20);
    const struct pen_stats s = stats_of(&r);
    assert_int_equal(s.host_copy_bytes, 0);
    assert_int_equal(s.h2d.count, 20);
    assert_int_equal(s.d2d.count, 20);
    assert_int_equal(s.d2h.count, 20);
    assert_int_equal(s.d2h.bytes, 20 * 256 * 64);
    assert_true(s.memory[PEN_MEM_CUDA_DEVICE].peak <=
                s.memory[PEN_MEM_CUDA_DEVICE].planned_peak);
    assert_int_equal(s.steady_state_allocations, 0);
    run_finish(&r);
}

PEN_TEST(device_memory_is_exported_and_downloaded)
{
    if (!(dmabuf_caps() & PEN_DMABUF_EXPORT))
        PEN_SKIP("this driver does not export device memory");
    in_all_modes(dma_from_device);
}

// One worker, which must not wait: a module that hands descriptors out is
// called when the device has written what is behind them, and not before.
static void dma_awaited(void)
{
    struct run r;
    struct fixture f;
    struct gate gate;
    memory_init(&r);
    fixture_open(&f);
    gate_create(&f, &gate);
    world.gate = &gate;
    r.params.workers = 1;
    run_create(
        &r,
        PIPE(
            MODULE_P("source", "TSource", "\"frames\": 8") "," MODULE("gate", "TGate") "," MODULE(
                "sink",
                "MDmaSink") "," MODULE_P("host", "TSource",
                                         "\"frames\": 300") "," MODULE("other",
                                                                       "TSink"),
            LINK("source", "gate") "," LINK("gate", "sink") "," LINK("host",
                                                                     "other")));
    RUN_OK(pen_pipeline_start(r.p, &err));
    wait_until(&world.sink[0].count, 300);
    assert_int_equal(atomic_load(&notes.seen), 0);
    gate_open(&gate);
    RUN_OK(pen_pipeline_wait(r.p, 20000000000, &err));
    assert_int_equal(atomic_load(&notes.seen), 8);
    assert_int_equal(atomic_load(&notes.descriptors), 8);
    assert_int_equal(stats_of(&r).blocking_syncs, 0);
    run_finish(&r);
    gate_free(&f, &gate);
    fixture_close(&f);
}

PEN_TEST(a_descriptor_is_handed_out_when_the_device_is_done)
{
    if (!(dmabuf_caps() & PEN_DMABUF_EXPORT))
        PEN_SKIP("this driver does not export device memory");
    in_all_modes(dma_awaited);
}

static void dma_to_device(void)
{
    struct run r;
    memory_init(&r);
    run_all(&r, PIPE(MODULE("source", "MDmaSource") "," MODULE(
                         "a", "TDevice") "," MODULE("check", "MNumberSink"),
                     LINK("source", "a") "," LINK("a", "check")));
    assert_int_equal(atomic_load(&notes.seen), 12);
    assert_int_equal(atomic_load(&notes.wrong), 0);
    run_finish(&r);
}

// Imported where the driver can, else copied to pinned memory and uploaded.
PEN_TEST(dmabufs_of_the_host_get_to_the_device)
{
    const unsigned caps = dmabuf_caps();
    if (!(caps & PEN_DMABUF_HOST))
        PEN_SKIP("this machine has no provider of DMABUFs for the host");
    in_all_modes(dma_to_device);
}

// A kernel that is told of every access by the host, and may refuse.
static enum pen_status told_kernel(unsigned fail, struct pen_error *err)
{
    const struct fake_dmabuf kernel = { .heap = ENOENT };
    struct run r;
    memory_init(&r);
    fake_dmabuf_set(&kernel);
    fake_dmabuf_fail(fail, EIO);
    enum pen_status st = run_try_create(
        &r,
        PIPE(MODULE("source", "MDmaSource") "," MODULE("check", "MNumberSink"),
             LINK("source", "check")),
        err);
    if (st == PEN_OK)
        st = pen_pipeline_start(r.p, err);
    if (st == PEN_OK)
        st = pen_pipeline_wait(r.p, 20000000000, err);
    if (r.p)
        assert_int_equal(stats_of(&r).leaks, 0);
    run_finish(&r);
    const struct fake_dmabuf_counts counts = fake_dmabuf_counts();
    assert_int_equal(counts.mappings, 0);
    if (st == PEN_OK) {
        assert_int_equal(atomic_load(&notes.seen), 12);
        assert_int_equal(atomic_load(&notes.wrong), 0);
        assert_int_equal(counts.begins, counts.ends);
        // Who cannot open the node takes memory that tells nobody.
        assert_true(counts.begins >= 24 || fail);
    }
    return st;
}

PEN_TEST(the_kernel_is_told_of_each_access_by_the_host_and_may_fail)
{
    struct pen_error err = { 0 };
    const enum pen_status st = told_kernel(0, &err);
    if (st != PEN_OK)
        fail_msg("%s: %s", err.where, err.text);
    unsigned failures = 0, nth = 1;
    for (bool failed = true; failed; nth++) {
        err = (struct pen_error){ 0 };
        const enum pen_status got = told_kernel(nth, &err);
        failed = fake_dmabuf_failed();
        if (got == PEN_OK)
            continue;
        assert_int_equal(got, err.status);
        assert_true(err.text[0]);
        failures++;
    }
    // At least the accesses: two for each frame, begun and ended.
    assert_true(failures >= 4 * 12);
    fake_dmabuf_set(&(struct fake_dmabuf){ .udmabuf = ENOENT, .heap = ENOENT });
}

PEN_TEST_MAIN(
    PEN_CASE(
        a_module_that_allocates_beyond_its_plan_is_refused_with_the_owners),
    PEN_CASE(device_memory_beyond_the_budget_is_refused_at_run_time),
    PEN_CASE(a_machine_that_locks_no_more_memory_is_told_with_the_way_round),
    PEN_CASE(what_modules_send_with_each_frame_stays_within_the_plan),
    PEN_CASE(device_frames_that_turn_out_larger_grow_where_they_lie),
    PEN_CASE(an_upgraded_output_is_not_copied_by_the_cpu_and_a_staged_one_is),
    PEN_CASE(the_last_frame_takes_stream_device_and_ledger_along),
    PEN_CASE(a_frame_released_before_destroy_leaves_the_rest_to_destroy),
    PEN_CASE(a_frame_that_is_released_twice_makes_the_run_fail),
    PEN_CASE(a_snapshot_tells_what_a_running_pipeline_holds),
    PEN_CASE(memory_that_nobody_accounts_for_is_told_and_is_no_failure),
    PEN_CASE(dmabufs_of_the_host_are_written_read_and_handed_out_in_place),
    PEN_CASE(device_memory_is_exported_and_downloaded),
    PEN_CASE(a_descriptor_is_handed_out_when_the_device_is_done),
    PEN_CASE(dmabufs_of_the_host_get_to_the_device),
    PEN_CASE(the_kernel_is_told_of_each_access_by_the_host_and_may_fail))
