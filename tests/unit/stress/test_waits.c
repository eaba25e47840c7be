// One test for each line of src/gpu/wait_sites.h, of the same name: without
// that wait it fails, every time. scripts/wait-sites shows so.
//
// The emulated device in lazy mode does what is queued only when somebody waits
// for it. So work that is not waited for comes last, and who forgot to wait for
// it sees it, without any clock.

#include "tests/unit/run/run_world.h"

#include <stdio.h>

#include "src/mem/frame.h"
#include "src/mem/pool.h"
#include "src/run/run.h"

#include "stamp.h"

enum {
    STREAMS = STK_MAX_READERS + 1,
    WORDS = 600,
    BYTES = 4 * WORDS,
};

// --- a bench ----------------------------------------------------------------

// Streams, and a pool of one kind of memory.
struct bench {
    struct fixture *f;
    struct stk_stream *stream[STREAMS];
    struct stamper stamper[STREAMS];
    uint64_t scratch[STREAMS];  // on the way to and from pinned memory
    struct stk_pool *pool;
    struct stamp_result seen;
};

static void bench_open(struct bench *b, struct fixture *f,
                       enum pen_mem_type mem)
{
    *b = (struct bench){ .f = f };
    for (unsigned i = 0; i < STREAMS; i++) {
        b->stream[i] = fixture_stream(f, "test");
        FIXTURE_OK(stamper_open(&b->stamper[i], f->dev, b->stream[i], &err));
        FIXTURE_OK(stk_device_alloc(f->dev, BYTES, "test", PEN_HERE,
                                    &b->scratch[i], &err));
        FIXTURE_OK(stamper_result(&b->stamper[i], &b->seen, &err));
    }
    const struct stk_pool_params params = {
        .mem = mem,
        .block_bytes = BYTES,
        .blocks = 1,
        .dev = f->dev,
        .ledger = f->ledger,
        .owner = "test.output",
    };
    FIXTURE_OK(stk_pool_create(&params, &b->pool, &err));
}

// Wait for all that a stream has, and for nothing else.
static void finish(struct bench *b, unsigned stream)
{
    b->seen = (struct stamp_result){ 0 };
    FIXTURE_OK(stamper_result(&b->stamper[stream], &b->seen, &err));
    if (b->seen.failed)
        fail_msg("a block should hold stamp %llx, but begins with that of "
                 "%llx; %u words are wrong",
                 (unsigned long long)b->seen.want,
                 (unsigned long long)b->seen.found, b->seen.wrong);
}

static void bench_close(struct bench *b)
{
    for (unsigned i = 0; i < STREAMS; i++)
        finish(b, i);
    stk_pool_destroy(&b->pool);
    for (unsigned i = 0; i < STREAMS; i++) {
        stamper_close(&b->stamper[i]);
        stk_device_free(b->f->dev, b->scratch[i], BYTES);
        stk_stream_destroy(&b->stream[i]);
    }
}

static bool in_pinned(const struct stk_buffer *buffer)
{
    return buffer->mem == PEN_MEM_HOST_PINNED;
}

// Note what was queued on a stream.
static void note(struct bench *b, unsigned on, struct stk_buffer *buffer,
                 unsigned access)
{
    struct stk_point point;
    FIXTURE_OK(stk_stream_record(b->stream[on], &point, &err));
    stk_buffer_used(buffer, point, access);
}

static void queue_write(struct bench *b, unsigned on,
                        const struct stk_buffer *buffer, uint64_t tag)
{
    const uint64_t address = buffer->block.address;
    const uint64_t at = in_pinned(buffer) ? b->scratch[on] : address;
    FIXTURE_OK(stamp_queue(&b->stamper[on], at, tag, WORDS, &err));
    if (in_pinned(buffer))
        FIXTURE_OK(stk_stream_copy(b->stream[on], STK_COPY_D2H, address, at,
                                   BYTES, &err));
}

static void write_on(struct bench *b, unsigned on, struct stk_buffer *buffer,
                     uint64_t tag)
{
    STK_SCOPE scope = { 0 };
    FIXTURE_OK(stk_scope_enter(&scope, b->f->dev, &err));
    FIXTURE_OK(stk_buffer_stream_ready(buffer, b->stream[on], PEN_WRITE, &err));
    queue_write(b, on, buffer, tag);
    note(b, on, buffer, PEN_WRITE);
}

// The stream shall find this stamp: see finish().
static void read_on(struct bench *b, unsigned on, struct stk_buffer *buffer,
                    uint64_t tag)
{
    STK_SCOPE scope = { 0 };
    FIXTURE_OK(stk_scope_enter(&scope, b->f->dev, &err));
    FIXTURE_OK(stk_buffer_stream_ready(buffer, b->stream[on], PEN_READ, &err));
    uint64_t at = buffer->block.address;
    if (in_pinned(buffer)) {
        FIXTURE_OK(stk_stream_copy(b->stream[on], STK_COPY_H2D, b->scratch[on],
                                   at, BYTES, &err));
        at = b->scratch[on];
    }
    FIXTURE_OK(stamp_queue_check(&b->stamper[on], at, tag, WORDS, 0, &err));
    note(b, on, buffer, PEN_READ);
}

static void wait_here(struct stk_point point)
{
    struct called called;
    called_init(&called);
    FIXTURE_OK(
        stk_point_when(point, STK_WAIT_NONE, called_back, &called, &err));
    called_wait(&called);
}

// As a worker does: ask, and come back when the point is reached.
static void host_ready(struct stk_buffer *buffer, unsigned access)
{
    struct stk_point point;
    while (!stk_buffer_host_ready(buffer, access, &point))
        wait_here(point);
}

static void write_here(struct stk_buffer *buffer, uint64_t tag)
{
    host_ready(buffer, PEN_WRITE);
    stamp_host(buffer->block.host, tag, WORDS);
}

static void read_here(struct stk_buffer *buffer, uint64_t tag)
{
    struct stamp_result r = { 0 };
    host_ready(buffer, PEN_READ);
    stamp_host_check(buffer->block.host, tag, WORDS, 0, &r);
    if (r.failed)
        fail_msg("the host should find stamp %llx, not %llx; %u words are "
                 "wrong",
                 (unsigned long long)r.want, (unsigned long long)r.found,
                 r.wrong);
}

static struct stk_buffer *take_on(struct bench *b, unsigned on)
{
    struct stk_buffer *buffer = NULL;
    struct stk_point wait;
    STK_SCOPE scope = { 0 };
    FIXTURE_OK(stk_scope_enter(&scope, b->f->dev, &err));
    FIXTURE_OK(stk_pool_take(b->pool, b->stream[on], &buffer, &wait, &err));
    return buffer;
}

static struct stk_buffer *take_here(struct bench *b)
{
    struct stk_buffer *buffer = NULL;
    struct stk_point wait;
    enum pen_status st;
    while ((st = stk_pool_take(b->pool, NULL, &buffer, &wait, NULL)) ==
           PEN_AGAIN) {
        assert_non_null(wait.stream);
        wait_here(wait);
    }
    assert_int_equal(st, PEN_OK);
    return buffer;
}

// How often memory was given back that queued work might still use, so that
// the driver had to wait; it promises that for some kinds of memory only.
static uint64_t waited_to_free(void)
{
    if (!fixture_emulator())
        return 0;
    struct penemu_stats stats;
    fixture_emulator()->penemu_get_stats(&stats);
    return stats.frees_waited;
}

// A test that fails must not leave a stream behind a closed gate.
static struct gate *closed;

static void close_gate(struct fixture *f, struct gate *gate)
{
    gate_create(f, gate);
    closed = gate;
}

static void open_gate(void)
{
    if (closed)
        gate_open(closed);
    closed = NULL;
}

static int leave_open(void **state)
{
    (void)state;
    open_gate();
    return 0;
}

#define IN_ALL_MODES(name)                                                     \
    PEN_TEST(name)                                                             \
    {                                                                          \
        fixture_all_modes(name##_body);                                        \
    }

// --- streams among themselves -----------------------------------------------

static void stream_read_body(struct fixture *f)
{
    struct bench b;
    bench_open(&b, f, PEN_MEM_CUDA_DEVICE);
    struct stk_buffer *buffer = take_on(&b, 0);
    write_on(&b, 0, buffer, 1);
    read_on(&b, 1, buffer, 1);
    finish(&b, 1);
    stk_buffer_unref(buffer);
    bench_close(&b);
}
IN_ALL_MODES(stream_read)

static void stream_overwrite_body(struct fixture *f)
{
    struct bench b;
    bench_open(&b, f, PEN_MEM_CUDA_DEVICE);
    struct stk_buffer *buffer = take_on(&b, 0);
    write_on(&b, 0, buffer, 1);
    write_on(&b, 1, buffer, 2);
    finish(&b, 1);
    finish(&b, 0);
    read_on(&b, 1, buffer, 2);
    finish(&b, 1);
    stk_buffer_unref(buffer);
    bench_close(&b);
}
IN_ALL_MODES(stream_overwrite)

static void stream_reuse_body(struct fixture *f)
{
    struct bench b;
    bench_open(&b, f, PEN_MEM_CUDA_DEVICE);
    struct stk_buffer *buffer = take_on(&b, 0);
    write_on(&b, 0, buffer, 1);
    finish(&b, 0);
    read_on(&b, 0, buffer, 1);
    // Given back and taken again, as pools are for.
    stk_buffer_unref(buffer);
    buffer = take_on(&b, 1);
    write_on(&b, 1, buffer, 2);
    finish(&b, 1);
    finish(&b, 0);
    stk_buffer_unref(buffer);
    bench_close(&b);
}
IN_ALL_MODES(stream_reuse)

// --- the host ---------------------------------------------------------------

static void host_read_body(struct fixture *f)
{
    struct bench b;
    bench_open(&b, f, PEN_MEM_HOST_PINNED);
    struct stk_buffer *buffer = take_on(&b, 0);
    write_on(&b, 0, buffer, 1);
    read_here(buffer, 1);
    stk_buffer_unref(buffer);
    bench_close(&b);
}
IN_ALL_MODES(host_read)

static void host_overwrite_body(struct fixture *f)
{
    struct bench b;
    bench_open(&b, f, PEN_MEM_HOST_PINNED);
    struct stk_buffer *buffer = take_on(&b, 0);
    write_on(&b, 0, buffer, 1);
    write_here(buffer, 2);
    finish(&b, 0);
    read_here(buffer, 2);
    stk_buffer_unref(buffer);
    bench_close(&b);
}
IN_ALL_MODES(host_overwrite)

static void host_reuse_body(struct fixture *f)
{
    struct bench b;
    bench_open(&b, f, PEN_MEM_HOST_PINNED);
    struct stk_buffer *buffer = take_here(&b);
    write_here(buffer, 1);
    read_on(&b, 0, buffer, 1);
    stk_buffer_unref(buffer);
    buffer = take_here(&b);
    stamp_host(buffer->block.host, 2, WORDS);
    finish(&b, 0);
    stk_buffer_unref(buffer);
    bench_close(&b);
}
IN_ALL_MODES(host_reuse)

// --- buffers ----------------------------------------------------------------

static void reader_slot_body(struct fixture *f)
{
    struct bench b;
    bench_open(&b, f, PEN_MEM_CUDA_DEVICE);
    struct stk_buffer *buffer = take_on(&b, 0);
    write_on(&b, 0, buffer, 1);
    finish(&b, 0);
    for (unsigned i = 0; i < STREAMS; i++)
        read_on(&b, i, buffer, 1);
    write_on(&b, STREAMS - 1, buffer, 2);
    for (unsigned i = STREAMS; i-- > 0;)
        finish(&b, i);
    stk_buffer_unref(buffer);
    bench_close(&b);
}
IN_ALL_MODES(reader_slot)

// Its owner uses foreign memory for something else as soon as he may.
struct owner {
    struct called called;
    void *memory;
};

static void back_to_owner(void *cookie)
{
    struct owner *owner = cookie;
    stamp_host(owner->memory, 2, WORDS);
    called_back(&owner->called);
}

static void release_body(struct fixture *f)
{
    struct bench b;
    struct owner owner;
    bench_open(&b, f, PEN_MEM_HOST_PINNED);
    called_init(&owner.called);
    FIXTURE_OK(
        stk_pinned_alloc(f->dev, BYTES, "test", PEN_HERE, &owner.memory, &err));
    const struct pen_foreign memory = {
        .mem = PEN_MEM_HOST_PINNED,
        .host = owner.memory,
        .fd = -1,
        .bytes = BYTES,
        .release = back_to_owner,
        .cookie = &owner,
    };
    struct stk_buffer *buffer = NULL;
    FIXTURE_OK(stk_buffer_wrap(&memory, f->ledger, &buffer, &err));
    write_here(buffer, 1);
    read_on(&b, 0, buffer, 1);
    stk_buffer_unref(buffer);
    called_wait(&owner.called);
    finish(&b, 0);
    stk_pinned_free(f->dev, owner.memory, BYTES);
    bench_close(&b);
}
IN_ALL_MODES(release)

// --- pools ------------------------------------------------------------------

static void settle_body(struct fixture *f)
{
    struct bench b;
    bench_open(&b, f, PEN_MEM_CUDA_DEVICE);
    const uint64_t before = waited_to_free();
    struct stk_buffer *buffer = take_on(&b, 0);
    write_on(&b, 0, buffer, 1);
    stk_buffer_unref(buffer);
    stk_pool_destroy(&b.pool);
    assert_int_equal(waited_to_free(), before);
    bench_close(&b);
}
IN_ALL_MODES(settle)

static void grow_body(struct fixture *f)
{
    struct bench b;
    bench_open(&b, f, PEN_MEM_CUDA_DEVICE);
    const uint64_t before = waited_to_free();
    struct stk_buffer *buffer = take_on(&b, 0);
    write_on(&b, 0, buffer, 1);
    stk_buffer_unref(buffer);
    FIXTURE_OK(stk_pool_grow(b.pool, 3 * (size_t)BYTES, &err));
    buffer = take_here(&b);
    assert_int_equal(buffer->block.bytes, 3 * BYTES);
    assert_int_equal(waited_to_free(), before);
    stk_buffer_unref(buffer);
    bench_close(&b);
}
IN_ALL_MODES(grow)

// --- points -----------------------------------------------------------------

// The first point is of a write that another stream has to wait for. Were its
// event recorded for a later point already, that one would be waited for, or
// none.
static void event_reuse_body(struct fixture *f)
{
    struct bench b;
    static struct gate gate;
    bench_open(&b, f, PEN_MEM_CUDA_DEVICE);
    close_gate(f, &gate);
    struct stk_buffer *buffer = take_on(&b, 0);
    finish(&b, 0);
    gate_queue(f, &gate, b.stream[0]);
    write_on(&b, 0, buffer, 1);
    STK_SCOPE scope = { 0 };
    FIXTURE_OK(stk_scope_enter(&scope, f->dev, &err));
    // Until the ring is full: no point is reached while the gate is closed.
    struct stk_point point, oldest;
    for (unsigned records = 1; records < STK_RUN_AHEAD; records++)
        FIXTURE_OK(stk_stream_record(b.stream[0], &point, &err));
    assert_false(stk_stream_has_room(b.stream[0], 0, &oldest));
    assert_int_equal(stk_stream_record(b.stream[0], &point, NULL), PEN_AGAIN);
    assert_int_equal(point.seq, oldest.seq);
    read_on(&b, 1, buffer, 1);
    open_gate();
    finish(&b, 1);
    finish(&b, 0);
    stk_buffer_unref(buffer);
    bench_close(&b);
    gate_free(f, &gate);
}
IN_ALL_MODES(event_reuse)

static void stream_end_body(struct fixture *f)
{
    void *memory = NULL;
    struct stk_stream *stream = fixture_stream(f, "test");
    struct stamper stamper;
    struct stamp_result r = { 0 };
    uint64_t at = 0;
    FIXTURE_OK(
        stk_pinned_alloc(f->dev, BYTES, "test", PEN_HERE, &memory, &err));
    FIXTURE_OK(stk_device_alloc(f->dev, BYTES, "test", PEN_HERE, &at, &err));
    FIXTURE_OK(stamper_open(&stamper, f->dev, stream, &err));
    FIXTURE_OK(stamper_result(&stamper, &r, &err));
    {
        STK_SCOPE scope = { 0 };
        FIXTURE_OK(stk_scope_enter(&scope, f->dev, &err));
        FIXTURE_OK(stamp_queue(&stamper, at, 1, WORDS, &err));
        FIXTURE_OK(stk_stream_copy(stream, STK_COPY_D2H, (uintptr_t)memory, at,
                                   BYTES, &err));
    }
    stk_stream_destroy(&stream);
    stamp_host_check(memory, 1, WORDS, 0, &r);
    assert_int_equal(r.failed, 0);
    stamper_close(&stamper);
    stk_device_free(f->dev, at, BYTES);
    stk_pinned_free(f->dev, memory, BYTES);
}
IN_ALL_MODES(stream_end)

static void unmap_body(struct fixture *f)
{
    if (!stk_region_possible(f->dev))
        return;
    struct bench b;
    bench_open(&b, f, PEN_MEM_CUDA_DEVICE);
    const uint64_t before = waited_to_free();
    struct stk_region *region = NULL;
    FIXTURE_OK(stk_region_create(f->dev, BYTES, 2 * (size_t)BYTES, "test",
                                 PEN_HERE, &region, &err));
    {
        STK_SCOPE scope = { 0 };
        FIXTURE_OK(stk_scope_enter(&scope, f->dev, &err));
        FIXTURE_OK(stamp_queue(&b.stamper[0], stk_region_address(region), 1,
                               WORDS, &err));
    }
    stk_region_destroy(&region);
    assert_int_equal(waited_to_free(), before);
    bench_close(&b);
}
IN_ALL_MODES(unmap)

// --- pipelines --------------------------------------------------------------

static struct pen_module *module(const struct run *r, const char *id)
{
    for (uint32_t i = 0; i < r->p->module_count; i++) {
        if (strcmp(r->p->modules[i].id, id) == 0)
            return &r->p->modules[i];
    }
    fail_msg("there is no module %s", id);
    return NULL;
}

static uint64_t frames_of(const struct run *r, const char *id)
{
    return atomic_load(&module(r, id)->frames);
}

static void pause_ms(long ms)
{
    nanosleep(&(struct timespec){ .tv_nsec = ms * 1000000 }, NULL);
}

// clang-format off
static const char staging_pipe[] = PIPE(
    MODULE_P("source", "TTokenSource", "\"frames\": 9") ","
    MODULE("gate", "TGate") ","
    MODULE("table", "TTable") ","
    MODULE("sink", "TSink"),
    LINK("source", "gate") ","
    LINK("gate", "table") ","
    LINK_Q("table", "sink", "\"depth\": 4"));

// The module that waits is of type %s.
#define PARK_PIPE PIPE(                                                        \
    MODULE_P("source", "TSource", "\"frames\": 3") ","                         \
    MODULE("gate", "TGate") ","                                                \
    MODULE("sync", "%s") ","                                                   \
    MODULE("sink", "TSink") ","                                                \
    MODULE_P("host", "TTokenSource", "\"frames\": 20") ","                     \
    MODULE_P("other", "TSink", "\"slot\": 1"),                                 \
    LINK("source", "gate") ","                                                 \
    LINK("gate", "sync") ","                                                   \
    LINK("sync", "sink") ","                                                   \
    LINK("host", "other"))

static const char teardown_pipe[] = PIPE(
    MODULE_P("source", "TSource", "\"frames\": 3") ","
    MODULE("table", "TTable") ","
    MODULE("sink", "TLeave"),
    LINK("source", "table") ","
    LINK("table", "sink"));
// clang-format on

// A gate on the pipeline's stream.
struct gated {
    struct run r;
    struct fixture f;
    struct gate gate;
};

static void gated_start(struct gated *g, const char *json)
{
    run_init(&g->r);
    fixture_open(&g->f);
    close_gate(&g->f, &g->gate);
    world.gate = &g->gate;
    g->r.params.workers = 1;
    run_create(&g->r, json);
    RUN_OK(pen_pipeline_start(g->r.p, &err));
}

static void gated_end(struct gated *g)
{
    open_gate();
    RUN_OK(pen_pipeline_wait(g->r.p, 20000000000, &err));
    run_finish(&g->r);
    gate_free(&g->f, &g->gate);
    fixture_close(&g->f);
}

// The table receives other bytes for each frame, several of which are called
// before the first copy is done, or wait for it.
static void staging_body(void)
{
    static struct gated g;
    gated_start(&g, staging_pipe);
    struct pen_module *table = module(&g.r, "table");
    // With the first frames the module's memory grows to its final size, for
    // which the driver may wait for the stream.
    gate_open(&g.gate);
    for (unsigned i = 1; i <= 3; i++) {
        sem_post(&world.tokens);
        wait_until(&world.sink[0].count, i);
    }
    __atomic_store_n(g.gate.flag, 0, __ATOMIC_RELEASE);
    for (unsigned i = 0; i < 7; i++)
        sem_post(&world.tokens);
    for (unsigned i = 0; i < 20000; i++) {
        if (frames_of(&g.r, "table") >= 3 + 2 || atomic_load(&table->waiting))
            break;
        pause_ms(1);
    }
    open_gate();
    RUN_OK(pen_pipeline_wait(g.r.p, 20000000000, &err));
    assert_all_arrived(0, 9);
    gated_end(&g);
}

// The only worker goes on to do what there is to do on the host; it would come
// by the module that is parked if that were to be called.
static void park_run(const char *type)
{
    static struct gated g;
    char json[1024];
    snprintf(json, sizeof(json), PARK_PIPE, type);
    gated_start(&g, json);
    struct pen_module *sync = module(&g.r, "sync");
    for (unsigned i = 0; i < 20000; i++) {
        if (atomic_load(&sync->park) == STK_PARK_PENDING ||
            atomic_load(&world.synced))
            break;
        pause_ms(1);
    }
    for (uint32_t i = 1; i <= 20; i++) {
        sem_post(&world.tokens);
        wait_until(&world.sink[1].count, i);
    }
    sem_post(&world.tokens);
    assert_int_equal(atomic_load(&sync->park), STK_PARK_PENDING);
    assert_int_equal(atomic_load(&world.synced), 0);
    open_gate();
    RUN_OK(pen_pipeline_wait(g.r.p, 20000000000, &err));
    assert_all_arrived(0, 3);
    assert_int_equal(atomic_load(&world.synced), 3);
    gated_end(&g);
}

static void park_body(void)
{
    park_run("TStreamSync");
}

static void context_body(void)
{
    park_run("TContextSync");
}

// A sink that leaves its last work to the device.
static enum pen_status leave(struct pen_module *m, const struct pen_io *io,
                             struct pen_error *err)
{
    struct pen_view view;
    (void)m;
    return pen_acquire(io, pen_input(io, 0), PEN_ON_STREAM, PEN_READ, &view,
                       err);
}
static const struct pen_pin leave_in[] = {
    { .name = "input",
      .help = "A pin.",
      .kinds = PEN_KIND_BIT(PEN_KIND_RAW_IMAGE),
      .mem = PEN_MEM_BIT(PEN_MEM_CUDA_DEVICE),
      .formats = PEN_FMT_BIT(PEN_FMT_MONO) },
    { 0 },
};
static const struct pen_module_class leaver = {
    .abi = PEN_MODULE_ABI,
    .size = sizeof(struct pen_module_class),
    .name = "TLeave",
    .version = "1.0",
    .summary = "A class of the tests",
    .category = PEN_CATEGORY_SINK,
    .flags = PEN_CLASS_CUDA,
    .inputs = leave_in,
    .ops = { .process = leave },
};

static void teardown_body(void)
{
    struct run r;
    run_init(&r);
    RUN_OK(pen_registry_add(r.registry, &leaver, &err));
    run_create(&r, teardown_pipe);
    RUN_OK(pen_pipeline_start(r.p, &err));
    RUN_OK(pen_pipeline_wait(r.p, 20000000000, &err));
    assert_int_equal(frames_of(&r, "sink"), 3);
    const uint64_t waited = waited_to_free();
    run_finish(&r);
    assert_int_equal(waited, 0);
}

#define RUNS_IN_ALL_MODES(name)                                                \
    PEN_TEST(name)                                                             \
    {                                                                          \
        in_all_modes(name##_body);                                             \
    }
RUNS_IN_ALL_MODES(staging)
RUNS_IN_ALL_MODES(park)
RUNS_IN_ALL_MODES(context)
RUNS_IN_ALL_MODES(teardown)

#define CASE(name)                                                             \
    {                                                                          \
#name, name, NULL, leave_open, NULL                                    \
    }
PEN_TEST_MAIN(CASE(stream_read), CASE(stream_overwrite), CASE(stream_reuse),
              CASE(host_read), CASE(host_overwrite), CASE(host_reuse),
              CASE(reader_slot), CASE(release), CASE(settle), CASE(grow),
              CASE(event_reuse), CASE(stream_end), CASE(unmap), CASE(context),
              CASE(staging), CASE(park), CASE(teardown))
