// Pools and buffers whose memory is used by streams. The points are what is
// tested: nothing is given, freed or overwritten before they are reached, and
// nobody waits who need not.

#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>

#include "src/mem/pool.h"

#include "gpu_fixture.h"

static struct stk_pool *make_pool(struct fixture *f, enum pen_mem_type mem,
                                  size_t bytes, uint32_t blocks)
{
    const struct stk_pool_params p = {
        .mem = mem,
        .block_bytes = bytes,
        .blocks = blocks,
        .dev = f->dev,
        .ledger = f->ledger,
        .owner = "test.output",
    };
    struct stk_pool *pool = NULL;
    FIXTURE_OK(stk_pool_create(&p, &pool, &err));
    return pool;
}

static struct stk_buffer *take(struct fixture *f, struct stk_pool *pool,
                               struct stk_stream *stream)
{
    struct stk_buffer *b = NULL;
    struct stk_point wait;
    STK_SCOPE scope = { 0 };
    FIXTURE_OK(stk_scope_enter(&scope, f->dev, &err));
    FIXTURE_OK(stk_pool_take(pool, stream, &b, &wait, &err));
    return b;
}

// The pool has a free block, but not now: the point to wait for.
static struct stk_point take_again(struct stk_pool *pool,
                                   struct stk_stream *stream)
{
    struct stk_buffer *b = NULL;
    struct stk_point wait;
    assert_int_equal(stk_pool_take(pool, stream, &b, &wait, NULL), PEN_AGAIN);
    assert_null(b);
    return wait;
}

// Let `stream` use the buffer until it is done with what is queued.
static struct stk_point use(struct fixture *f, struct stk_buffer *b,
                            struct stk_stream *stream, unsigned access)
{
    const struct stk_point p = fixture_record(f, stream);
    stk_buffer_used(b, p, access);
    return p;
}

static uint64_t live(struct fixture *f, enum stk_res res)
{
    return fixture_live(f->ledger, res);
}

// Launch the fill kernel once: a driver that loads lazily may wait for the
// whole device at the first launch, which a closed gate would never let end.
static void warm_up(struct fixture *f, struct stk_stream *stream)
{
    uint64_t address = 0;
    FIXTURE_OK(stk_device_alloc(f->dev, 256, "test", PEN_HERE, &address, &err));
    fixture_fill(f, stream, address, 0, 64);
    FIXTURE_OK(
        stk_point_wait(fixture_record(f, stream), STK_WAIT_HOST_READ, &err));
    stk_device_free(f->dev, address, 256);
}

static uint64_t waits_queued(void)
{
    const struct penemu *emu = fixture_emulator();
    return emu ? emu->penemu_calls("cuStreamWaitEvent") : 0;
}

// --- blocks -----------------------------------------------------------------

PEN_TEST(blocks_of_both_device_types_are_accounted_by_owner)
{
    struct fixture f;
    fixture_open(&f);
    struct stk_pool *pinned = make_pool(&f, PEN_MEM_HOST_PINNED, 5000, 3);
    struct stk_pool *device = make_pool(&f, PEN_MEM_CUDA_DEVICE, 7000, 2);
    struct stk_ledger_totals t;
    stk_ledger_totals(f.ledger, STK_RES_HOST_PINNED, &t);
    assert_int_equal(t.live, 3);
    assert_int_equal(t.live_bytes, 15000);
    stk_ledger_totals(f.ledger, STK_RES_CUDA_DEVICE, &t);
    assert_int_equal(t.live_bytes, 14000);
    assert_int_equal(live(&f, STK_RES_HOST), 0);

    struct stk_buffer *b = take(&f, pinned, NULL);
    assert_int_equal(b->mem, PEN_MEM_HOST_PINNED);
    assert_int_equal(b->block.address, (uintptr_t)b->block.host);
    assert_int_equal(b->block.address % 64, 0);
    memset(b->block.host, 0x5a, 5000);
    stk_buffer_unref(b);

    b = take(&f, device, NULL);
    assert_int_equal(b->mem, PEN_MEM_CUDA_DEVICE);
    assert_null(b->block.host);
    assert_true(b->block.address != 0);
    assert_int_equal(b->block.address % 64, 0);
    stk_buffer_unref(b);

    stk_pool_destroy(&pinned);
    stk_pool_destroy(&device);
    fixture_close(&f);
}

static void is_cleared(struct fixture *f)
{
    enum { BYTES = 4096 };
    const struct penemu *emu = fixture_emulator();
    struct stk_stream *s = fixture_stream(f, "s");
    struct stk_pool *pinned = make_pool(f, PEN_MEM_HOST_PINNED, BYTES, 1);
    struct stk_pool *device = make_pool(f, PEN_MEM_CUDA_DEVICE, BYTES, 1);
    struct stk_buffer *host = take(f, pinned, NULL);
    uint32_t *words = host->block.host;

    for (int round = 0; round < 3; round++) {
        memset(words, 0xee, BYTES);
        struct stk_buffer *b = take(f, device, s);
        {
            STK_SCOPE scope = { 0 };
            FIXTURE_OK(stk_scope_enter(&scope, f->dev, &err));
            FIXTURE_OK(stk_stream_copy(s, STK_COPY_D2H, host->block.address,
                                       b->block.address, BYTES, &err));
        }
        fixture_fill(f, s, b->block.address, 0x1234567, BYTES / 4);
        FIXTURE_OK(
            stk_point_wait(use(f, b, s, PEN_WRITE), STK_WAIT_HOST_READ, &err));
        for (int i = 0; i < BYTES / 4; i++)
            assert_int_equal(words[i], round ? 0x1234567 : 0);
        stk_buffer_unref(b);
    }
    if (emu) {
        struct penemu_stats stats;
        emu->penemu_get_stats(&stats);
        assert_int_equal(stats.memsets, 1);
    }
    stk_buffer_unref(host);
    stk_pool_destroy(&device);
    stk_pool_destroy(&pinned);
    stk_stream_destroy(&s);
}

PEN_TEST(device_memory_is_cleared_once_by_the_stream_that_takes_it_first)
{
    fixture_all_modes(is_cleared);
}

static void clearing_has_a_point(struct fixture *f)
{
    struct stk_stream *s = fixture_stream(f, "s"), *t = fixture_stream(f, "t");
    struct stk_pool *pool = make_pool(f, PEN_MEM_CUDA_DEVICE, 4096, 1);
    struct gate gate;
    gate_create(f, &gate);
    warm_up(f, t);
    gate_queue(f, &gate, s);
    // Taken and given back unused, while the fill waits behind the gate.
    stk_buffer_unref(take(f, pool, s));
    const uint64_t before = waits_queued();
    struct stk_buffer *b = take(f, pool, t);
    if (fixture_emulator())
        assert_int_equal(waits_queued(), before + 1);
    fixture_fill(f, t, b->block.address, 1, 1024);
    const struct stk_point p = use(f, b, t, PEN_WRITE);
    assert_false(stk_point_reached(p));
    gate_open(&gate);
    FIXTURE_OK(stk_point_wait(p, STK_WAIT_HOST_READ, &err));
    stk_buffer_unref(b);
    stk_pool_destroy(&pool);
    stk_stream_destroy(&t);
    stk_stream_destroy(&s);
    gate_free(f, &gate);
}

PEN_TEST(the_next_user_waits_for_the_clearing_of_another_stream)
{
    fixture_all_modes(clearing_has_a_point);
}

// --- giving -----------------------------------------------------------------

static void host_takes_reached(struct fixture *f)
{
    struct stk_stream *s = fixture_stream(f, "s");
    struct stk_pool *pool = make_pool(f, PEN_MEM_HOST, 64, 3);
    struct gate gate;
    gate_create(f, &gate);
    struct stk_buffer *a = take(f, pool, NULL), *b = take(f, pool, NULL),
                      *c = take(f, pool, NULL);
    gate_queue(f, &gate, s);
    const struct stk_point p = use(f, a, s, PEN_READ);
    const struct stk_point q = use(f, c, s, PEN_WRITE);

    stk_buffer_unref(a);
    stk_buffer_unref(c);
    const struct stk_point wait = take_again(pool, NULL);
    assert_ptr_equal(wait.stream, s);
    assert_int_equal(wait.seq, p.seq);  // of the one that came back first
    stk_buffer_unref(b);
    assert_ptr_equal(take(f, pool, NULL), b);
    take_again(pool, NULL);

    gate_open(&gate);
    FIXTURE_OK(stk_point_wait(q, STK_WAIT_HOST_READ, &err));
    assert_ptr_equal(take(f, pool, NULL), a);
    assert_ptr_equal(take(f, pool, NULL), c);
    stk_buffer_unref(a);
    stk_buffer_unref(b);
    stk_buffer_unref(c);
    struct stk_pool_stats stats;
    stk_pool_stats(pool, &stats);
    assert_int_equal(stats.waits, 2);
    assert_int_equal(stats.takes, 6);
    stk_pool_destroy(&pool);
    gate_free(f, &gate);
    stk_stream_destroy(&s);
}

PEN_TEST(the_host_gets_only_blocks_whose_points_are_reached)
{
    fixture_all_modes(host_takes_reached);
}

static void streams_wait_for_others(struct fixture *f)
{
    struct stk_stream *s[3];
    struct gate gate[2];
    struct stk_pool *pool = make_pool(f, PEN_MEM_HOST_PINNED, 64, 1);
    for (int i = 0; i < 3; i++)
        s[i] = fixture_stream(f, "s");
    for (int i = 0; i < 2; i++)
        gate_create(f, &gate[i]);

    // Used by the stream that takes it: the order of the stream is enough.
    struct stk_buffer *b = take(f, pool, s[0]);
    gate_queue(f, &gate[0], s[0]);
    use(f, b, s[0], PEN_WRITE);
    stk_buffer_unref(b);
    uint64_t before = waits_queued();
    b = take(f, pool, s[0]);
    assert_int_equal(waits_queued(), before);

    // Used by another, gated one: one wait, and work behind it stays undone.
    stk_buffer_unref(b);
    b = take(f, pool, s[1]);
    if (fixture_emulator())
        assert_int_equal(waits_queued(), before + 1);
    const struct stk_point behind = use(f, b, s[1], PEN_WRITE);
    assert_false(stk_point_reached(behind));
    gate_open(&gate[0]);
    FIXTURE_OK(stk_point_wait(behind, STK_WAIT_HOST_READ, &err));

    // Read by two others after a write by the taker: two waits.
    gate_queue(f, &gate[1], s[0]);
    use(f, b, s[0], PEN_READ);
    gate_queue(f, &gate[1], s[2]);
    use(f, b, s[2], PEN_READ);
    stk_buffer_unref(b);
    before = waits_queued();
    b = take(f, pool, s[1]);
    if (fixture_emulator())
        assert_int_equal(waits_queued(), before + 2);
    const struct stk_point last = use(f, b, s[1], PEN_WRITE);
    assert_false(stk_point_reached(last));
    gate_open(&gate[1]);
    FIXTURE_OK(stk_point_wait(last, STK_WAIT_HOST_READ, &err));

    // All reached: none.
    stk_buffer_unref(b);
    before = waits_queued();
    b = take(f, pool, s[2]);
    assert_int_equal(waits_queued(), before);
    stk_buffer_unref(b);

    stk_pool_destroy(&pool);
    for (int i = 0; i < 2; i++)
        gate_free(f, &gate[i]);
    for (int i = 0; i < 3; i++)
        stk_stream_destroy(&s[i]);
}

PEN_TEST(a_stream_waits_for_the_uses_by_other_streams_only)
{
    fixture_all_modes(streams_wait_for_others);
}

static void old_contents_are_read(struct fixture *f)
{
    enum { WORDS = 256 };
    struct stk_stream *writer = fixture_stream(f, "writer");
    struct stk_stream *reader = fixture_stream(f, "reader");
    struct stk_pool *device = make_pool(f, PEN_MEM_CUDA_DEVICE, 4 * WORDS, 1);
    struct stk_pool *pinned = make_pool(f, PEN_MEM_HOST_PINNED, 4 * WORDS, 1);
    struct gate gate;
    gate_create(f, &gate);
    struct stk_buffer *host = take(f, pinned, NULL);

    struct stk_buffer *b = take(f, device, writer);
    fixture_fill(f, writer, b->block.address, 0xaaaaaaaa, WORDS);
    use(f, b, writer, PEN_WRITE);

    gate_queue(f, &gate, reader);
    {
        STK_SCOPE scope = { 0 };
        FIXTURE_OK(stk_scope_enter(&scope, f->dev, &err));
        FIXTURE_OK(stk_buffer_stream_ready(b, reader, PEN_READ, &err));
        FIXTURE_OK(stk_stream_copy(reader, STK_COPY_D2H, host->block.address,
                                   b->block.address, 4 * WORDS, &err));
    }
    const struct stk_point read = use(f, b, reader, PEN_READ);

    // The block goes round while the copy waits behind its gate.
    stk_buffer_unref(b);
    b = take(f, device, writer);
    fixture_fill(f, writer, b->block.address, 0xbbbbbbbb, WORDS);
    const struct stk_point written = use(f, b, writer, PEN_WRITE);
    gate_open(&gate);
    FIXTURE_OK(stk_point_wait(written, STK_WAIT_HOST_READ, &err));
    FIXTURE_OK(stk_point_wait(read, STK_WAIT_HOST_READ, &err));
    for (int i = 0; i < WORDS; i++)
        assert_int_equal(((uint32_t *)host->block.host)[i], 0xaaaaaaaa);

    stk_buffer_unref(b);
    stk_buffer_unref(host);
    stk_pool_destroy(&device);
    stk_pool_destroy(&pinned);
    gate_free(f, &gate);
    stk_stream_destroy(&reader);
    stk_stream_destroy(&writer);
}

PEN_TEST(a_block_is_not_overwritten_before_its_last_reader_is_done)
{
    fixture_all_modes(old_contents_are_read);
}

static void grows_later(struct fixture *f)
{
    struct stk_stream *s = fixture_stream(f, "s");
    struct stk_pool *pool = make_pool(f, PEN_MEM_HOST, 64, 2);
    struct gate gate;
    gate_create(f, &gate);
    struct stk_buffer *a = take(f, pool, NULL), *b = take(f, pool, NULL);
    gate_queue(f, &gate, s);
    const struct stk_point p = use(f, a, s, PEN_READ);
    stk_buffer_unref(a);
    stk_buffer_unref(b);
    void *old = a->block.host;

    FIXTURE_OK(stk_pool_grow(pool, 640, &err));
    assert_ptr_equal(a->block.host, old);  // the stream may still read it
    assert_int_equal(a->block.bytes, 64);
    assert_int_equal(b->block.bytes, 640);
    // Not even for its own stream: the memory has to go, which the host does.
    assert_ptr_equal(take(f, pool, s), b);
    const struct stk_point wait = take_again(pool, s);
    assert_int_equal(wait.seq, p.seq);

    gate_open(&gate);
    FIXTURE_OK(stk_point_wait(wait, STK_WAIT_HOST_READ, &err));
    assert_ptr_equal(take(f, pool, s), a);
    assert_int_equal(a->block.bytes, 640);
    stk_buffer_unref(a);
    stk_buffer_unref(b);
    stk_pool_destroy(&pool);
    gate_free(f, &gate);
    stk_stream_destroy(&s);
}

PEN_TEST(growth_leaves_memory_that_a_stream_still_uses)
{
    fixture_all_modes(grows_later);
}

PEN_TEST(grown_device_blocks_are_cleared_again)
{
    struct fixture f;
    fixture_open(&f);
    struct stk_stream *s = fixture_stream(&f, "s");
    struct stk_pool *device = make_pool(&f, PEN_MEM_CUDA_DEVICE, 1024, 2);
    struct stk_pool *pinned = make_pool(&f, PEN_MEM_HOST_PINNED, 4096, 1);
    struct stk_buffer *host = take(&f, pinned, NULL);
    struct stk_buffer *b = take(&f, device, s);
    fixture_fill(&f, s, b->block.address, ~0u, 256);
    FIXTURE_OK(
        stk_point_wait(use(&f, b, s, PEN_WRITE), STK_WAIT_HOST_READ, &err));
    stk_buffer_unref(b);
    FIXTURE_OK(stk_pool_grow(device, 4096, &err));
    struct stk_ledger_totals t;
    stk_ledger_totals(f.ledger, STK_RES_CUDA_DEVICE, &t);
    assert_int_equal(t.live_bytes, 8192);
    assert_int_equal(t.peak_bytes, 8192);

    for (int i = 0; i < 2; i++) {
        b = take(&f, device, s);
        memset(host->block.host, 0xee, 4096);
        {
            STK_SCOPE scope = { 0 };
            FIXTURE_OK(stk_scope_enter(&scope, f.dev, &err));
            FIXTURE_OK(stk_stream_copy(s, STK_COPY_D2H, host->block.address,
                                       b->block.address, 4096, &err));
        }
        FIXTURE_OK(
            stk_point_wait(use(&f, b, s, PEN_WRITE), STK_WAIT_HOST_READ, &err));
        for (int k = 0; k < 4096; k++)
            assert_int_equal(((uint8_t *)host->block.host)[k], 0);
        stk_buffer_unref(b);
    }
    stk_buffer_unref(host);
    stk_pool_destroy(&device);
    stk_pool_destroy(&pinned);
    stk_stream_destroy(&s);
    fixture_close(&f);
}

// --- end --------------------------------------------------------------------

static void destroy_waits(struct fixture *f)
{
    struct stk_stream *s = fixture_stream(f, "s");
    struct stk_pool *pool = make_pool(f, PEN_MEM_CUDA_DEVICE, 4096, 2);
    struct stk_buffer *b = take(f, pool, s);
    fixture_fill(f, s, b->block.address, 1, 1024);
    const struct stk_point p = use(f, b, s, PEN_WRITE);
    stk_buffer_unref(b);
    stk_pool_destroy(&pool);
    // On the lazy emulator nothing would ever happen without somebody waiting.
    assert_true(stk_point_reached(p));
    assert_int_equal(live(f, STK_RES_CUDA_DEVICE), 0);
    stk_stream_destroy(&s);
}

PEN_TEST(destroying_a_pool_waits_for_the_points_of_its_blocks)
{
    fixture_all_modes(destroy_waits);
}

static void late_is_freed(struct fixture *f)
{
    struct stk_stream *s[2] = { fixture_stream(f, "a"),
                                fixture_stream(f, "b") };
    struct stk_pool *pool = make_pool(f, PEN_MEM_HOST, 4096, 2);
    struct gate gate;
    gate_create(f, &gate);
    struct stk_buffer *b = take(f, pool, NULL);
    for (int i = 0; i < 2; i++) {
        gate_queue(f, &gate, s[i]);
        use(f, b, s[i], PEN_READ);
    }
    stk_pool_destroy(&pool);
    assert_int_equal(live(f, STK_RES_HOST), 1);

    const uint64_t blocked = stk_device_blocked(f->dev);
    stk_thread_must_not_block(true);
    stk_buffer_unref(b);  // would hang here if it waited
    stk_thread_must_not_block(false);
    assert_int_equal(stk_device_blocked(f->dev), blocked);
    assert_int_equal(live(f, STK_RES_HOST), 1);

    gate_open(&gate);
    stk_stream_destroy(&s[0]);
    stk_stream_destroy(&s[1]);
    assert_int_equal(live(f, STK_RES_HOST), 0);
    gate_free(f, &gate);
}

PEN_TEST(a_buffer_that_comes_back_late_is_freed_when_reached_without_a_wait)
{
    fixture_all_modes(late_is_freed);
}

static void count_release(void *cookie)
{
    ++*(atomic_uint *)cookie;
}

static void foreign_is_released(struct fixture *f)
{
    static char bytes[256];
    atomic_uint released = 0;
    struct stk_stream *s = fixture_stream(f, "s");
    struct gate gate;
    gate_create(f, &gate);
    struct stk_buffer *b = NULL;
    const struct pen_foreign memory = {
        .mem = PEN_MEM_HOST,
        .host = bytes,
        .bytes = sizeof(bytes),
        .release = count_release,
        .cookie = &released,
    };
    FIXTURE_OK(stk_buffer_wrap(&memory, NULL, &b, &err));
    gate_queue(f, &gate, s);
    use(f, b, s, PEN_READ);
    stk_buffer_unref(b);
    assert_int_equal(released, 0);
    gate_open(&gate);
    stk_stream_destroy(&s);
    assert_int_equal(released, 1);
    gate_free(f, &gate);
}

PEN_TEST(foreign_memory_is_kept_while_a_stream_uses_it)
{
    fixture_all_modes(foreign_is_released);
}

// --- points -----------------------------------------------------------------

static void readiness(struct fixture *f)
{
    struct stk_stream *s = fixture_stream(f, "s"), *t = fixture_stream(f, "t");
    struct stk_pool *pool = make_pool(f, PEN_MEM_HOST_PINNED, 64, 1);
    struct gate gate[2];
    gate_create(f, &gate[0]);
    gate_create(f, &gate[1]);
    struct stk_buffer *b = take(f, pool, NULL);
    struct stk_point wait;
    assert_true(stk_buffer_host_ready(b, PEN_READ | PEN_WRITE, &wait));
    assert_null(wait.stream);

    // A reader keeps writers out, not readers.
    gate_queue(f, &gate[0], s);
    const struct stk_point read = use(f, b, s, PEN_READ);
    assert_true(stk_buffer_host_ready(b, PEN_READ, &wait));
    assert_false(stk_buffer_host_ready(b, PEN_WRITE, &wait));
    assert_int_equal(wait.seq, read.seq);
    gate_open(&gate[0]);
    FIXTURE_OK(stk_point_wait(read, STK_WAIT_HOST_READ, &err));
    assert_true(stk_buffer_host_ready(b, PEN_WRITE, &wait));

    // A writer keeps everybody out.
    gate_queue(f, &gate[1], t);
    const struct stk_point written = use(f, b, t, PEN_READ | PEN_WRITE);
    assert_false(stk_buffer_host_ready(b, PEN_READ, &wait));
    assert_ptr_equal(wait.stream, t);
    assert_int_equal(wait.seq, written.seq);
    assert_false(stk_buffer_host_ready(b, PEN_WRITE, NULL));
    gate_open(&gate[1]);
    stk_buffer_settle(b);
    assert_true(stk_point_reached(written));
    assert_true(stk_buffer_host_ready(b, PEN_WRITE, NULL));

    stk_buffer_unref(b);
    stk_pool_destroy(&pool);
    gate_free(f, &gate[0]);
    gate_free(f, &gate[1]);
    stk_stream_destroy(&t);
    stk_stream_destroy(&s);
}

PEN_TEST(readers_keep_writers_out_and_writers_everybody)
{
    fixture_all_modes(readiness);
}

static void many_readers(struct fixture *f)
{
    enum { STREAMS = STK_MAX_READERS + 2 };
    struct stk_stream *s[STREAMS];
    struct stk_point p[STREAMS];
    struct stk_pool *pool = make_pool(f, PEN_MEM_HOST_PINNED, 4096, 1);
    struct stk_buffer *b = take(f, pool, NULL);
    for (int i = 0; i < STREAMS; i++)
        s[i] = fixture_stream(f, "s");
    for (int i = 0; i < STREAMS; i++)
        p[i] = use(f, b, s[i], PEN_READ);
    stk_buffer_settle(b);
    for (int i = 0; i < STREAMS; i++)
        assert_true(stk_point_reached(p[i]));
    stk_buffer_unref(b);
    stk_pool_destroy(&pool);
    for (int i = 0; i < STREAMS; i++)
        stk_stream_destroy(&s[i]);
}

PEN_TEST(no_reader_is_forgotten_when_there_are_more_streams_than_places)
{
    fixture_all_modes(many_readers);
}

PEN_TEST(the_newest_use_of_a_stream_stands_for_the_older_ones)
{
    struct fixture f;
    fixture_open(&f);
    struct stk_stream *s = fixture_stream(&f, "s");
    struct stk_pool *pool = make_pool(&f, PEN_MEM_HOST, 64, 1);
    struct gate gate;
    gate_create(&f, &gate);
    struct stk_buffer *b = take(&f, pool, NULL);
    const struct stk_point older = fixture_record(&f, s);
    gate_queue(&f, &gate, s);
    const struct stk_point newer = fixture_record(&f, s);
    stk_buffer_used(b, newer, PEN_READ);
    stk_buffer_used(b, older, PEN_READ);
    struct stk_point wait;
    assert_false(stk_buffer_host_ready(b, PEN_WRITE, &wait));
    assert_int_equal(wait.seq, newer.seq);

    // A writer's point stands for all earlier ones.
    stk_buffer_used(b, newer, PEN_WRITE);
    for (int i = 0; i < STK_MAX_READERS; i++)
        assert_null(b->read[i].stream);
    assert_int_equal(b->written.seq, newer.seq);
    gate_open(&gate);
    stk_buffer_unref(b);
    stk_pool_destroy(&pool);
    stk_stream_destroy(&s);
    gate_free(&f, &gate);
    fixture_close(&f);
}

enum { THREADS = 4, ROUNDS = 300 };

struct reader {
    struct fixture *f;
    struct stk_buffer *buffer;
    struct stk_stream *stream;
    uint64_t last;
    bool failed;
};

static void *read_often(void *cookie)
{
    struct reader *r = cookie;
    STK_SCOPE scope = { 0 };
    if (stk_scope_enter(&scope, r->f->dev, NULL) != PEN_OK) {
        r->failed = true;
        return NULL;
    }
    for (int i = 0; i < ROUNDS; i++) {
        struct stk_point p;
        enum pen_status st;
        while ((st = stk_stream_record(r->stream, &p, NULL)) == PEN_AGAIN)
            r->failed |= stk_point_wait(p, STK_WAIT_HOST_READ, NULL) != PEN_OK;
        r->failed |= st != PEN_OK;
        stk_buffer_used(r->buffer, p, PEN_READ);
        stk_buffer_host_ready(r->buffer, PEN_READ | PEN_WRITE, NULL);
        r->failed |= !stk_buffer_host_ready(r->buffer, PEN_READ, NULL);
        r->last = p.seq;
    }
    return NULL;
}

static void read_by_threads(struct fixture *f)
{
    struct stk_stream *s[2] = { fixture_stream(f, "a"),
                                fixture_stream(f, "b") };
    struct stk_pool *pool = make_pool(f, PEN_MEM_HOST, 64, 1);
    struct stk_buffer *b = take(f, pool, NULL);
    struct reader readers[THREADS];
    pthread_t threads[THREADS];
    for (int i = 0; i < THREADS; i++) {
        readers[i] = (struct reader){ f, b, s[i % 2], 0, false };
        assert_int_equal(
            pthread_create(&threads[i], NULL, read_often, &readers[i]), 0);
    }
    for (int i = 0; i < THREADS; i++) {
        pthread_join(threads[i], NULL);
        assert_false(readers[i].failed);
    }
    // The last point of both streams stands, or was seen to be reached.
    for (int i = 0; i < THREADS; i++) {
        const struct stk_point p = { readers[i].stream, readers[i].last };
        bool kept = stk_point_reached(p);
        for (int k = 0; k < STK_MAX_READERS; k++)
            kept |= b->read[k].stream == p.stream && b->read[k].seq >= p.seq;
        assert_true(kept);
    }
    stk_buffer_unref(b);
    stk_pool_destroy(&pool);
    stk_stream_destroy(&s[0]);
    stk_stream_destroy(&s[1]);
}

PEN_TEST(consumers_of_one_buffer_note_their_uses_from_several_threads)
{
    fixture_all_modes(read_by_threads);
}

// --- trouble ----------------------------------------------------------------

PEN_TEST(device_memory_that_runs_out_is_told_with_sizes_and_owner)
{
    const struct penemu *emu = fixture_emulator();
    if (!emu)
        PEN_SKIP("only the emulated device can be made small");
    assert_int_equal(emu->penemu_set_memory(4 << 20), 0);
    struct fixture f;
    fixture_open(&f);
    const struct stk_pool_params p = {
        .mem = PEN_MEM_CUDA_DEVICE,
        .block_bytes = 1536 << 10,
        .blocks = 4,
        .dev = f.dev,
        .ledger = f.ledger,
        .owner = "resize.output",
    };
    struct stk_pool *pool = NULL;
    struct pen_error err = { 0 };
    assert_int_equal(stk_pool_create(&p, &pool, &err), PEN_E_DEVMEM);
    assert_null(pool);
    assert_string_equal(err.where, "resize.output");
    assert_non_null(strstr(err.text, "of 4 (1.50 MiB of CUDA_DEVICE each, "
                                     "6.00 MiB in all)"));
    assert_true(err.native != 0);
    assert_int_equal(live(&f, STK_RES_CUDA_DEVICE), 0);
    // What was unwound is free again.
    pool = make_pool(&f, PEN_MEM_CUDA_DEVICE, 1536 << 10, 2);
    stk_pool_destroy(&pool);
    fixture_close(&f);
    emu->penemu_reset();
}

PEN_TEST(a_lost_device_ends_without_waiting_and_leaves_nothing)
{
    const struct penemu *emu = fixture_emulator();
    if (!emu)
        PEN_SKIP("a real context is not broken on purpose");
    struct fixture f;
    fixture_open(&f);
    struct stk_stream *s = fixture_stream(&f, "s");
    struct stk_pool *pool = make_pool(&f, PEN_MEM_CUDA_DEVICE, 4096, 3);
    struct stk_buffer *a = take(&f, pool, s), *b = take(&f, pool, s);
    use(&f, a, s, PEN_WRITE);
    use(&f, b, s, PEN_WRITE);
    struct pen_error err = { 0 };
    struct stk_point wait;
    struct stk_buffer *c = NULL;
    STK_SCOPE scope = { 0 };
    assert_int_equal(stk_scope_enter(&scope, f.dev, &err), PEN_OK);
    emu->penemu_break_contexts(719);
    // The call that finds out tells the driver's code, the next one only that.
    assert_true(stk_pool_take(pool, s, &c, &wait, &err) < 0);
    assert_int_equal(err.native, 719);
    assert_int_equal(stk_pool_take(pool, s, &c, &wait, &err), PEN_E_LOST);
    assert_string_not_equal(err.text, "");
    assert_null(c);
    struct stk_pool_stats stats;
    stk_pool_stats(pool, &stats);
    assert_int_equal(stats.in_use, 2);
    stk_buffer_unref(a);
    stk_pool_destroy(&pool);
    stk_buffer_unref(b);
    assert_int_equal(live(&f, STK_RES_CUDA_DEVICE), 0);
    stk_stream_destroy(&s);
    stk_scope_leave(&scope);
    fixture_close(&f);
    emu->penemu_reset();
}

// --- growth where blocks lie -------------------------------------------------

static struct stk_pool *growing_pool(struct fixture *f, size_t bytes,
                                     size_t reserve, uint32_t blocks)
{
    const struct stk_pool_params p = {
        .mem = PEN_MEM_CUDA_DEVICE,
        .block_bytes = bytes,
        .reserve_bytes = reserve,
        .blocks = blocks,
        .more_blocks = 1,
        .dev = f->dev,
        .ledger = f->ledger,
        .owner = "test.output",
    };
    struct stk_pool *pool = NULL;
    FIXTURE_OK(stk_pool_create(&p, &pool, &err));
    return pool;
}

static void check_words(struct fixture *f, struct stk_stream *s,
                        const struct stk_buffer *b, size_t from, size_t to,
                        uint32_t value)
{
    const size_t bytes = to - from;
    void *host = NULL;
    FIXTURE_OK(stk_pinned_alloc(f->dev, bytes, "test", PEN_HERE, &host, &err));
    {
        STK_SCOPE scope = { 0 };
        FIXTURE_OK(stk_scope_enter(&scope, f->dev, &err));
        FIXTURE_OK(stk_stream_copy(s, STK_COPY_D2H, (uintptr_t)host,
                                   b->block.address + from, bytes, &err));
    }
    FIXTURE_OK(stk_point_wait(fixture_record(f, s), STK_WAIT_HOST_READ, &err));
    for (size_t i = 0; i < bytes / 4; i++)
        assert_int_equal(((uint32_t *)host)[i], value);
    stk_pinned_free(f->dev, host, bytes);
}

static void grows_in_place(struct fixture *f)
{
    if (!stk_region_possible(f->dev))
        return;
    enum { SMALL = 2 << 20, LARGE = 5 << 20, RESERVE = 8 << 20 };
    struct stk_stream *s = fixture_stream(f, "s");
    struct gate gate;
    gate_create(f, &gate);
    warm_up(f, s);
    struct stk_pool *pool = growing_pool(f, SMALL, RESERVE, 2);
    struct stk_buffer *used = take(f, pool, s);
    struct stk_buffer *idle = take(f, pool, s);
    assert_non_null(used->block.region);
    const uint64_t address = used->block.address;
    gate_queue(f, &gate, s);
    fixture_fill(f, s, address, 7, SMALL / 4);
    const struct stk_point p = use(f, used, s, PEN_WRITE);
    stk_buffer_unref(idle);

    // While somebody has it and a stream writes to it.
    const uint64_t blocked = stk_device_blocked(f->dev);
    FIXTURE_OK(stk_pool_grow(pool, LARGE, &err));
    assert_int_equal(stk_device_blocked(f->dev), blocked);
    assert_false(stk_point_reached(p));
    assert_int_equal(used->block.address, address);
    assert_int_equal(stk_buffer_bytes(used), LARGE);
    assert_int_equal(stk_buffer_bytes(idle), LARGE);
    struct stk_ledger_totals t;
    stk_ledger_totals(f->ledger, STK_RES_CUDA_DEVICE, &t);
    assert_int_equal(t.live_bytes, 2 * LARGE);
    assert_int_equal(t.peak_bytes, 2 * LARGE);
    struct stk_pool_stats stats;
    stk_pool_stats(pool, &stats);
    assert_int_equal(stats.grown, 2);

    gate_open(&gate);
    check_words(f, s, used, 0, SMALL, 7);
    stk_buffer_unref(used);
    // What is new in it is cleared when it is taken next, and nothing else.
    assert_ptr_equal(take(f, pool, s), used);
    check_words(f, s, used, 0, SMALL, 7);
    check_words(f, s, used, SMALL, LARGE, 0);

    // Beyond the reserve it is replaced, when it comes back.
    FIXTURE_OK(stk_pool_grow(pool, RESERVE + 1, &err));
    assert_int_equal(stk_buffer_bytes(used), LARGE);
    FIXTURE_OK(stk_pool_add(pool, 1, &err));
    stk_buffer_unref(used);
    used = take(f, pool, s);
    assert_int_equal(stk_buffer_bytes(used), RESERVE + 1);
    FIXTURE_OK(
        stk_point_wait(use(f, used, s, PEN_WRITE), STK_WAIT_HOST_READ, &err));
    stk_buffer_unref(used);
    stk_pool_destroy(&pool);
    gate_free(f, &gate);
    stk_stream_destroy(&s);
}

PEN_TEST(blocks_grow_where_they_lie_also_while_they_are_used)
{
    fixture_all_modes(grows_in_place);
}

struct grower {
    struct stk_pool *pool;
    size_t bytes, most;
    struct pen_error err;
};

static void *grow_by_steps(void *cookie)
{
    struct grower *g = cookie;
    for (size_t bytes = g->bytes; bytes <= g->most; bytes += g->bytes) {
        if (stk_pool_grow(g->pool, bytes, &g->err) != PEN_OK)
            return g;
    }
    return NULL;
}

// For ThreadSanitizer: blocks are taken, looked at and given meanwhile.
static void grows_while_taken(struct fixture *f)
{
    if (!stk_region_possible(f->dev))
        return;
    struct stk_stream *s = fixture_stream(f, "s");
    struct grower g = {
        .pool = growing_pool(f, 2 << 20, 8 << 20, 3),
        .bytes = 192 << 10,
        .most = 8 << 20,
    };
    pthread_t thread;
    assert_int_equal(pthread_create(&thread, NULL, grow_by_steps, &g), 0);
    size_t last = 0;
    for (int i = 0; i < 300; i++) {
        const size_t least = stk_pool_block_bytes(g.pool);
        struct stk_buffer *b = take(f, g.pool, s);
        const size_t bytes = stk_buffer_bytes(b);
        assert_true(bytes >= least && bytes >= last);
        last = least;
        use(f, b, s, PEN_WRITE);
        FIXTURE_OK(
            stk_point_wait(fixture_record(f, s), STK_WAIT_HOST_READ, &err));
        assert_true(stk_buffer_bytes(b) >= bytes);
        stk_buffer_unref(b);
    }
    void *failed = NULL;
    pthread_join(thread, &failed);
    assert_null(failed);
    stk_pool_destroy(&g.pool);
    stk_stream_destroy(&s);
}

PEN_TEST(blocks_may_be_taken_while_they_grow)
{
    fixture_all_modes(grows_while_taken);
}

// --- which block ------------------------------------------------------------

static void no_needless_wait(struct fixture *f)
{
    struct stk_stream *s = fixture_stream(f, "s"), *t = fixture_stream(f, "t");
    struct gate gate;
    gate_create(f, &gate);
    struct stk_pool *pool = make_pool(f, PEN_MEM_HOST_PINNED, 4096, 3);
    struct stk_buffer *b[3];
    for (int i = 0; i < 3; i++)
        b[i] = take(f, pool, NULL);
    gate_queue(f, &gate, t);
    use(f, b[0], t, PEN_READ);
    use(f, b[1], s, PEN_READ);
    for (int i = 0; i < 3; i++)
        stk_buffer_unref(b[i]);

    // Its own work is no reason to wait, that of `t` is one.
    const uint64_t waits = waits_queued();
    assert_ptr_equal(take(f, pool, s), b[1]);
    assert_ptr_equal(take(f, pool, s), b[2]);
    assert_int_equal(waits_queued(), waits);
    assert_ptr_equal(take(f, pool, s), b[0]);
    if (fixture_emulator())
        assert_int_equal(waits_queued(), waits + 1);
    gate_open(&gate);
    for (int i = 0; i < 3; i++)
        stk_buffer_unref(b[i]);
    stk_pool_destroy(&pool);
    gate_free(f, &gate);
    stk_stream_destroy(&s);
    stk_stream_destroy(&t);
}

PEN_TEST(a_stream_gets_a_block_that_it_need_not_wait_for)
{
    fixture_all_modes(no_needless_wait);
}

PEN_TEST_MAIN(
    PEN_CASE(blocks_of_both_device_types_are_accounted_by_owner),
    PEN_CASE(device_memory_is_cleared_once_by_the_stream_that_takes_it_first),
    PEN_CASE(the_next_user_waits_for_the_clearing_of_another_stream),
    PEN_CASE(the_host_gets_only_blocks_whose_points_are_reached),
    PEN_CASE(a_stream_waits_for_the_uses_by_other_streams_only),
    PEN_CASE(a_block_is_not_overwritten_before_its_last_reader_is_done),
    PEN_CASE(growth_leaves_memory_that_a_stream_still_uses),
    PEN_CASE(grown_device_blocks_are_cleared_again),
    PEN_CASE(blocks_grow_where_they_lie_also_while_they_are_used),
    PEN_CASE(blocks_may_be_taken_while_they_grow),
    PEN_CASE(a_stream_gets_a_block_that_it_need_not_wait_for),
    PEN_CASE(destroying_a_pool_waits_for_the_points_of_its_blocks),
    PEN_CASE(
        a_buffer_that_comes_back_late_is_freed_when_reached_without_a_wait),
    PEN_CASE(foreign_memory_is_kept_while_a_stream_uses_it),
    PEN_CASE(readers_keep_writers_out_and_writers_everybody),
    PEN_CASE(no_reader_is_forgotten_when_there_are_more_streams_than_places),
    PEN_CASE(the_newest_use_of_a_stream_stands_for_the_older_ones),
    PEN_CASE(consumers_of_one_buffer_note_their_uses_from_several_threads),
    PEN_CASE(device_memory_that_runs_out_is_told_with_sizes_and_owner),
    PEN_CASE(a_lost_device_ends_without_waiting_and_leaves_nothing))
