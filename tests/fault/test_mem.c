// Every host allocation and every driver call that memory needs is made to
// fail, in turn, once and for ever: each failure is told with its sizes,
// nothing is left behind, and what existed before is as it was.

#include <pthread.h>
#include <stdio.h>
#include <unistd.h>

#include "src/mem/frame.h"
#include "src/mem/pool.h"

#include "alloc_fail.h"
#include "gpu_fixture.h"

enum { BLOCKS = 4, BYTES = 3 << 20 };

static uint64_t live_memory(struct stk_ledger *l)
{
    return fixture_live(l, STK_RES_HOST) +
           fixture_live(l, STK_RES_HOST_PINNED) +
           fixture_live(l, STK_RES_CUDA_DEVICE);
}

static struct stk_pool_params params(struct fixture *f, enum pen_mem_type mem)
{
    return (struct stk_pool_params){
        .mem = mem,
        .block_bytes = BYTES,
        .blocks = BLOCKS,
        .dev = f->dev,
        .ledger = f->ledger,
        .owner = "blur.output",
    };
}

static struct stk_pool *make_pool(struct fixture *f, enum pen_mem_type mem,
                                  size_t bytes, uint32_t blocks)
{
    struct stk_pool_params p = params(f, mem);
    p.block_bytes = bytes;
    p.blocks = blocks;
    struct stk_pool *pool = NULL;
    assert_int_equal(stk_pool_create(&p, &pool, NULL), PEN_OK);
    return pool;
}

static struct stk_buffer *take(struct stk_pool *pool)
{
    struct stk_buffer *b = NULL;
    struct stk_point wait;
    FIXTURE_OK(stk_pool_take(pool, NULL, &b, &wait, &err));
    return b;
}

static uint32_t in_use(struct stk_pool *pool)
{
    struct stk_pool_stats s;
    stk_pool_stats(pool, &s);
    return s.in_use;
}

static void check_error(const struct pen_error *err, enum pen_status st)
{
    assert_true(st < 0);
    assert_int_equal(err->status, st);
    assert_string_not_equal(err->text, "");
}

// --- host allocations -------------------------------------------------------

// Without sites the ledger allocates nothing: what fails is the pool's. The
// ledger's own failures are tested in tests/unit/base.
PEN_TEST(pool_create_unwinds_from_every_failed_allocation)
{
    struct fixture f = { .ledger = stk_ledger_create(false) };
    const struct stk_pool_params p = params(&f, PEN_MEM_HOST);
    unsigned failures = 0;
    for (unsigned nth = 1;; nth++) {
        struct stk_pool *pool = NULL;
        struct pen_error err = { 0 };
        pen_alloc_fail_arm(nth, nth % 2);
        const enum pen_status st = stk_pool_create(&p, &pool, &err);
        const bool fired = pen_alloc_fail_disarm();
        assert_int_equal(st, fired ? PEN_E_NOMEM : PEN_OK);
        if (!fired) {
            assert_int_equal(fixture_live(f.ledger, STK_RES_HOST), BLOCKS);
            stk_pool_destroy(&pool);
        } else {
            failures++;
            check_error(&err, st);
            assert_string_equal(err.where, "blur.output");
            assert_non_null(strstr(err.text, "bytes"));
            assert_null(pool);
        }
        assert_int_equal(live_memory(f.ledger), 0);
        if (!fired)
            break;
    }
    assert_int_equal(failures, 2 + BLOCKS);
    stk_ledger_destroy(&f.ledger);
}

PEN_TEST(pool_grow_survives_every_failed_allocation)
{
    unsigned failures = 0;
    bool fired = true;
    for (unsigned nth = 1; fired; nth++) {
        struct fixture f = { .ledger = stk_ledger_create(false) };
        struct stk_pool *pool = make_pool(&f, PEN_MEM_HOST, 4096, BLOCKS);
        struct stk_buffer *held = take(pool), *b[BLOCKS - 1];
        memset(held->block.host, 9, 4096);

        struct pen_error err = { 0 };
        pen_alloc_fail_arm(nth, false);
        const enum pen_status st = stk_pool_grow(pool, 8192, &err);
        fired = pen_alloc_fail_disarm();
        assert_int_equal(st, fired ? PEN_E_NOMEM : PEN_OK);
        if (fired) {
            failures++;
            check_error(&err, st);
            assert_non_null(strstr(err.text, "8.00 KiB"));
        }
        // The pool has the new size and tries again what is missing.
        assert_int_equal(stk_pool_block_bytes(pool), 8192);
        assert_int_equal(((uint8_t *)held->block.host)[4095], 9);
        for (int i = 0; i < BLOCKS - 1; i++) {
            b[i] = take(pool);
            assert_int_equal(b[i]->block.bytes, 8192);
            memset(b[i]->block.host, i, 8192);
        }
        struct stk_pool_stats s;
        stk_pool_stats(pool, &s);
        assert_int_equal(s.grown, BLOCKS - 1);
        assert_int_equal(s.in_use, BLOCKS);
        for (int i = 0; i < BLOCKS - 1; i++)
            stk_buffer_unref(b[i]);
        stk_pool_destroy(&pool);
        stk_buffer_unref(held);
        assert_int_equal(live_memory(f.ledger), 0);
        stk_ledger_destroy(&f.ledger);
    }
    assert_int_equal(failures, BLOCKS - 1);
}

static void count_return(void *cookie)
{
    ++*(unsigned *)cookie;
}

PEN_TEST(a_take_that_cannot_replace_its_block_leaves_it_in_the_pool)
{
    struct fixture f = { .ledger = stk_ledger_create(true) };
    unsigned returns = 0;
    struct stk_pool_params p = params(&f, PEN_MEM_HOST);
    p.block_bytes = 4096;
    p.blocks = 1;
    p.returned = count_return;
    p.cookie = &returns;
    struct stk_pool *pool = NULL;
    assert_int_equal(stk_pool_create(&p, &pool, NULL), PEN_OK);
    struct stk_buffer *b = take(pool);
    assert_int_equal(stk_pool_grow(pool, 1 << 21, NULL), PEN_OK);
    stk_buffer_unref(b);
    returns = 0;
    struct stk_point wait;
    struct pen_error err = { 0 };
    for (int i = 0; i < 3; i++) {
        pen_alloc_fail_arm(1, false);
        const enum pen_status st = stk_pool_take(pool, NULL, &b, &wait, &err);
        assert_true(pen_alloc_fail_disarm());
        assert_int_equal(st, PEN_E_NOMEM);
        check_error(&err, st);
        assert_non_null(strstr(err.text, "2.00 MiB"));
        assert_null(b);
        assert_int_equal(in_use(pool), 0);
        assert_int_equal(returns, 0);  // nobody found the pool empty
    }
    b = take(pool);
    assert_int_equal(b->block.bytes, 1 << 21);
    stk_buffer_unref(b);
    stk_pool_destroy(&pool);
    assert_int_equal(live_memory(f.ledger), 0);
    stk_ledger_destroy(&f.ledger);
}

PEN_TEST(frame_pools_and_frames_unwind_from_every_failed_allocation)
{
    struct stk_ledger *l = stk_ledger_create(false);
    bool fired = true;
    unsigned failures = 0;
    for (unsigned nth = 1; fired; nth++) {
        struct stk_frame_pool *frames = NULL;
        struct pen_error err = { 0 };
        pen_alloc_fail_arm(nth, false);
        const enum pen_status st = stk_frame_pool_create(3, l, &frames, &err);
        fired = pen_alloc_fail_disarm();
        if (st) {
            failures++;
            assert_int_equal(st, PEN_E_NOMEM);
            check_error(&err, st);
            assert_non_null(strstr(err.text, "bytes"));
            assert_null(frames);
        } else {
            assert_int_equal(fixture_live(l, STK_RES_FRAME), 3);
        }
        stk_frame_pool_destroy(&frames);
        assert_int_equal(fixture_live(l, STK_RES_FRAME), 0);
    }
    assert_int_equal(failures, 4);

    struct fixture f = { .ledger = l };
    struct stk_pool *pool = make_pool(&f, PEN_MEM_HOST, 4096, 1);
    struct stk_frame_pool *frames = NULL;
    assert_int_equal(stk_frame_pool_create(0, l, &frames, NULL), PEN_OK);
    const struct pen_caps caps = { .kind = PEN_KIND_FRAME, .bytes = 100 };
    struct stk_buffer *b = take(pool);
    struct pen_frame *frame = NULL;
    struct pen_error err = { 0 };
    pen_alloc_fail_arm(1, false);
    const enum pen_status st = stk_frame_make(frames, b, &caps, &frame, &err);
    assert_true(pen_alloc_fail_disarm());
    assert_int_equal(st, PEN_E_NOMEM);
    check_error(&err, st);
    assert_null(frame);
    assert_int_equal(b->refs, 1);
    // The caller still owns the buffer and may try again.
    assert_int_equal(stk_frame_make(frames, b, &caps, &frame, &err), PEN_OK);
    stk_frame_pool_destroy(&frames);
    pen_frame_unref(frame);
    assert_int_equal(in_use(pool), 0);
    stk_pool_destroy(&pool);
    assert_int_equal(fixture_live(l, STK_RES_FRAME), 0);
    assert_int_equal(live_memory(l), 0);
    stk_ledger_destroy(&l);
}

static void must_not_be_called(void *cookie)
{
    (void)cookie;
    fail_msg("foreign memory was released by a wrap that failed");
}

PEN_TEST(a_failed_wrap_leaves_foreign_memory_with_its_owner)
{
    static char bytes[64];
    struct stk_buffer *b = NULL;
    struct pen_error err = { 0 };
    pen_alloc_fail_arm(1, false);
    const struct pen_foreign memory = {
        .mem = PEN_MEM_HOST,
        .host = bytes,
        .bytes = 64,
        .release = must_not_be_called,
    };
    const enum pen_status st = stk_buffer_wrap(&memory, NULL, &b, &err);
    assert_true(pen_alloc_fail_disarm());
    assert_int_equal(st, PEN_E_NOMEM);
    check_error(&err, st);
    assert_null(b);
}

static void *open_later(void *gate)
{
    usleep(50000);
    gate_open(gate);
    return NULL;
}

static void count_call(void *count)
{
    __atomic_fetch_add((unsigned *)count, 1, __ATOMIC_RELAXED);
}

// The reaper needs a place for each waiter. Where no more can be had, who
// frees has to wait, but must not free too early.
static void frees_without_memory(struct fixture *f)
{
    struct stk_stream *s = fixture_stream(f, "s");
    struct gate gate;
    gate_create(f, &gate);
    uint64_t address = 0;
    FIXTURE_OK(
        stk_device_alloc(f->dev, 4096, "test", PEN_HERE, &address, &err));
    struct stk_pool *pool = make_pool(f, PEN_MEM_HOST, 4096, 2);
    struct stk_buffer *free_one = take(pool), *late = take(pool);
    struct stk_point p[2];
    gate_queue(f, &gate, s);
    for (int i = 0; i < 2; i++) {
        fixture_fill(f, s, address, 1, 1024);
        p[i] = fixture_record(f, s);
        stk_buffer_used(i ? late : free_one, p[i], PEN_READ);
    }
    stk_buffer_unref(free_one);
    assert_false(stk_point_reached(p[0]));

    unsigned called = 0, asked = 0;
    pen_alloc_fail_arm(1, true);
    while (stk_point_when(p[1], STK_WAIT_PARK, count_call, &called, NULL) ==
           PEN_OK)
        assert_true(++asked < 1u << 20);
    pthread_t opener;
    assert_int_equal(pthread_create(&opener, NULL, open_later, &gate), 0);
    stk_pool_destroy(&pool);
    pen_alloc_fail_disarm();
    assert_true(stk_point_reached(p[0]));
    assert_int_equal(fixture_live(f->ledger, STK_RES_HOST), 1);

    FIXTURE_OK(stk_point_wait(p[1], STK_WAIT_HOST_READ, &err));
    stk_buffer_unref(late);
    assert_int_equal(fixture_live(f->ledger, STK_RES_HOST), 0);
    assert_int_equal(pthread_join(opener, NULL), 0);
    stk_device_free(f->dev, address, 4096);
    stk_stream_destroy(&s);
    assert_int_equal(called, asked);
    gate_free(f, &gate);
}

PEN_TEST(nothing_is_freed_too_early_when_there_is_no_memory_to_wait_with)
{
    fixture_all_modes(frees_without_memory);
}

// --- driver calls -----------------------------------------------------------

static const struct penemu *emulator(void)
{
    const struct penemu *emu = fixture_emulator();
    if (!emu)
        PEN_SKIP("a real driver does not fail on demand");
    return emu;
}

// Out of memory, invalid value, unknown.
static const int results[] = { 2, 1, 999 };
enum { RESULTS = sizeof(results) / sizeof(results[0]) };

static void close_and_check(struct fixture *f, const struct penemu *emu)
{
    struct penemu_leaks leaks;
    fixture_close(f);
    emu->penemu_get_leaks(&leaks);
    assert_int_equal(leaks.device_blocks + leaks.host_blocks + leaks.streams +
                         leaks.events + leaks.modules,
                     0);
    emu->penemu_reset();
}

// One create with the nth driver call failing; false if there is no nth.
static bool create_fails(const struct penemu *emu, enum pen_mem_type mem,
                         uint64_t nth, int result, bool for_ever)
{
    struct fixture f;
    fixture_open(&f);
    const struct stk_pool_params p = params(&f, mem);
    struct stk_pool *pool = NULL;
    struct pen_error err = { 0 };
    emu->penemu_fault_arm(PENEMU_ANY, nth, result, for_ever);
    const enum pen_status st = stk_pool_create(&p, &pool, &err);
    const bool fired = emu->penemu_fault_disarm() > 0;
    if (st) {
        assert_true(fired);
        assert_null(pool);
        check_error(&err, st);
        assert_string_equal(err.where, "blur.output");
        assert_non_null(strstr(err.text, "3.00 MiB"));
        if (result == 2)
            assert_true(st == PEN_E_DEVMEM || st == PEN_E_NOMEM);
        assert_int_equal(live_memory(f.ledger), 0);
    }
    stk_pool_destroy(&pool);
    assert_int_equal(live_memory(f.ledger), 0);
    close_and_check(&f, emu);
    return fired;
}

PEN_TEST(pool_create_unwinds_from_every_failed_driver_call)
{
    const struct penemu *emu = emulator();
    static const enum pen_mem_type types[] = { PEN_MEM_HOST_PINNED,
                                               PEN_MEM_CUDA_DEVICE };
    for (int t = 0; t < 2; t++)
        for (int r = 0; r < RESULTS; r++)
            for (int for_ever = 0; for_ever < 2; for_ever++) {
                uint64_t nth = 1;
                while (create_fails(emu, types[t], nth, results[r], for_ever))
                    nth++;
                assert_true(nth > BLOCKS);
            }
}

PEN_TEST(running_out_is_told_as_the_memory_that_ran_out)
{
    const struct penemu *emu = emulator();
    static const struct {
        enum pen_mem_type mem;
        const char *call;
        enum pen_status st;
    } cases[] = {
        { PEN_MEM_CUDA_DEVICE, "cuMemAlloc", PEN_E_DEVMEM },
        { PEN_MEM_HOST_PINNED, "cuMemHostAlloc", PEN_E_NOMEM },
    };
    for (int i = 0; i < 2; i++) {
        struct fixture f;
        fixture_open(&f);
        const struct stk_pool_params p = params(&f, cases[i].mem);
        struct stk_pool *pool = NULL;
        struct pen_error err = { 0 };
        assert_int_equal(emu->penemu_fault_arm(cases[i].call, 3, 2, 1), 0);
        assert_int_equal(stk_pool_create(&p, &pool, &err), cases[i].st);
        emu->penemu_fault_disarm();
        assert_non_null(strstr(err.text, "block 3 of 4 (3.00 MiB of "));
        assert_non_null(strstr(err.text, "12.00 MiB in all"));
        assert_int_equal(err.native, 2);
        close_and_check(&f, emu);
    }
}

static bool grow_fails(const struct penemu *emu, enum pen_mem_type mem,
                       uint64_t nth, int result)
{
    struct fixture f;
    fixture_open(&f);
    struct stk_pool *pool = make_pool(&f, mem, 4096, BLOCKS);
    struct stk_buffer *held = take(pool);
    struct pen_error err = { 0 };
    emu->penemu_fault_arm(PENEMU_ANY, nth, result, 0);
    const enum pen_status st = stk_pool_grow(pool, 8192, &err);
    const bool fired = emu->penemu_fault_disarm() > 0;
    if (st) {
        assert_true(fired);
        check_error(&err, st);
        assert_non_null(strstr(err.text, "8.00 KiB"));
    }
    assert_int_equal(in_use(pool), 1);
    stk_buffer_unref(held);
    if (!stk_device_lost(f.dev)) {
        struct stk_buffer *b[BLOCKS];
        for (int i = 0; i < BLOCKS; i++) {
            b[i] = take(pool);
            assert_int_equal(b[i]->block.bytes, 8192);
        }
        for (int i = 0; i < BLOCKS; i++)
            stk_buffer_unref(b[i]);
    }
    stk_pool_destroy(&pool);
    assert_int_equal(live_memory(f.ledger), 0);
    close_and_check(&f, emu);
    return fired;
}

PEN_TEST(pool_grow_survives_every_failed_driver_call)
{
    const struct penemu *emu = emulator();
    static const enum pen_mem_type types[] = { PEN_MEM_HOST_PINNED,
                                               PEN_MEM_CUDA_DEVICE };
    for (int t = 0; t < 2; t++)
        for (int r = 0; r < RESULTS; r++) {
            uint64_t nth = 1;
            while (grow_fails(emu, types[t], nth, results[r]))
                nth++;
            assert_true(nth > BLOCKS);
        }
}

// A take that clears a fresh block, or waits for another stream.
static bool take_fails(const struct penemu *emu, bool fresh, uint64_t nth,
                       int result)
{
    struct fixture f;
    emu->penemu_set_mode(PENEMU_LAZY, 0);
    fixture_open(&f);
    struct stk_stream *s = fixture_stream(&f, "s");
    struct stk_stream *other = fixture_stream(&f, "other");
    struct stk_pool *pool = make_pool(&f, PEN_MEM_CUDA_DEVICE, 4096, 1);
    struct stk_buffer *b = NULL;
    struct stk_point wait;
    struct pen_error err = { 0 };
    STK_SCOPE scope = { 0 };
    assert_int_equal(stk_scope_enter(&scope, f.dev, NULL), PEN_OK);
    if (!fresh) {
        assert_int_equal(stk_pool_take(pool, other, &b, &wait, NULL), PEN_OK);
        fixture_fill(&f, other, b->block.address, 1, 1024);
        stk_buffer_used(b, fixture_record(&f, other), PEN_WRITE);
        stk_buffer_unref(b);
    }
    emu->penemu_fault_arm(PENEMU_ANY, nth, result, 0);
    enum pen_status st = stk_pool_take(pool, s, &b, &wait, &err);
    const bool fired = emu->penemu_fault_disarm() > 0;
    if (st) {
        assert_true(fired);
        check_error(&err, st);
        assert_null(b);
        assert_int_equal(in_use(pool), 0);
        st = stk_pool_take(pool, s, &b, &wait, &err);
        assert_int_equal(st, stk_device_lost(f.dev) ? PEN_E_LOST : PEN_OK);
    }
    stk_buffer_unref(b);
    stk_pool_destroy(&pool);
    stk_stream_destroy(&s);
    stk_stream_destroy(&other);
    stk_scope_leave(&scope);
    close_and_check(&f, emu);
    return fired;
}

PEN_TEST(a_take_that_fails_leaves_the_block_in_the_pool)
{
    const struct penemu *emu = emulator();
    for (int fresh = 0; fresh < 2; fresh++)
        for (int r = 0; r < RESULTS; r++) {
            uint64_t nth = 1;
            while (take_fails(emu, fresh, nth, results[r]))
                nth++;
            assert_true(nth > 1);
        }
}

PEN_TEST(a_copy_that_fails_is_told)
{
    const struct penemu *emu = emulator();
    struct fixture f;
    fixture_open(&f);
    struct stk_stream *s = fixture_stream(&f, "s");
    struct stk_pool *device = make_pool(&f, PEN_MEM_CUDA_DEVICE, 1 << 16, 1);
    struct stk_pool *pinned = make_pool(&f, PEN_MEM_HOST_PINNED, 1 << 16, 1);
    struct stk_frame_pool *frames = NULL;
    assert_int_equal(stk_frame_pool_create(2, f.ledger, &frames, NULL), PEN_OK);
    const struct pen_caps caps = {
        .kind = PEN_KIND_RAW_IMAGE,
        .format = PEN_FMT_YUV420,
        .width = 50,
        .height = 30,
    };
    struct pen_frame *a = NULL, *b = NULL;
    struct pen_view from, to;
    STK_SCOPE scope = { 0 };
    assert_int_equal(stk_scope_enter(&scope, f.dev, NULL), PEN_OK);
    assert_int_equal(stk_frame_make(frames, take(pinned), &caps, &a, NULL),
                     PEN_OK);
    assert_int_equal(stk_frame_make(frames, take(device), &caps, &b, NULL),
                     PEN_OK);
    assert_int_equal(stk_frame_on_stream(a, s, PEN_READ, &from, NULL), PEN_OK);
    assert_int_equal(stk_frame_on_stream(b, s, PEN_WRITE, &to, NULL), PEN_OK);
    memset(from.plane[0].host, 1, from.bytes);

    // Linear: one call. By rows, when a pitch differs: one for each plane.
    for (uint64_t calls = 1; calls <= 3; calls += 2) {
        if (calls == 3)
            from.plane[0].pitch = from.plane[0].row_bytes;
        for (uint64_t nth = 1; nth <= calls; nth++) {
            struct pen_error err = { 0 };
            emu->penemu_fault_arm(PENEMU_ANY, nth, 1, 0);
            const enum pen_status st = stk_transfer(s, &to, &from, &err);
            assert_int_equal(emu->penemu_fault_disarm(), 1);
            assert_int_equal(st, PEN_E_DRIVER);
            check_error(&err, st);
            assert_int_equal(err.native, 1);
        }
        assert_int_equal(stk_transfer(s, &to, &from, NULL), PEN_OK);
    }
    const struct stk_point p = fixture_record(&f, s);
    stk_buffer_used(a->buffer, p, PEN_READ);
    stk_buffer_used(b->buffer, p, PEN_WRITE);
    stk_scope_leave(&scope);
    pen_frame_unref(a);
    pen_frame_unref(b);
    stk_frame_pool_destroy(&frames);
    stk_pool_destroy(&device);
    stk_pool_destroy(&pinned);
    stk_stream_destroy(&s);
    close_and_check(&f, emu);
}

// --- more and larger blocks
// ---------------------------------------------------

PEN_TEST(pool_add_keeps_what_it_made_when_an_allocation_fails)
{
    bool fired = true;
    unsigned failures = 0;
    for (unsigned nth = 1; fired; nth++) {
        struct fixture f = { .ledger = stk_ledger_create(false) };
        struct stk_pool_params p = params(&f, PEN_MEM_HOST);
        p.blocks = 1;
        p.more_blocks = 3;
        struct stk_pool *pool = NULL;
        assert_int_equal(stk_pool_create(&p, &pool, NULL), PEN_OK);
        struct stk_buffer *held = take(pool), *b[3];
        struct pen_error err = { 0 };
        pen_alloc_fail_arm(nth, false);
        const enum pen_status st = stk_pool_add(pool, 3, &err);
        fired = pen_alloc_fail_disarm();
        assert_int_equal(st, fired ? PEN_E_NOMEM : PEN_OK);
        const uint32_t made = fired ? nth - 1 : 3;
        if (fired) {
            failures++;
            check_error(&err, st);
            char text[64];
            snprintf(text, sizeof(text), "block %u of 4 (3.00 MiB", nth + 1);
            assert_non_null(strstr(err.text, text));
        }
        struct stk_pool_stats s;
        stk_pool_stats(pool, &s);
        assert_int_equal(s.blocks, 1 + made);
        for (uint32_t i = 0; i < made; i++)
            b[i] = take(pool);
        for (uint32_t i = 0; i < made; i++)
            stk_buffer_unref(b[i]);
        // The rest can be had later; no more than was planned.
        assert_int_equal(stk_pool_add(pool, 3 - made, NULL), PEN_OK);
        assert_int_equal(stk_pool_add(pool, 1, &err), PEN_E_LIMIT);
        assert_non_null(strstr(err.text, "at most 4"));
        assert_int_equal(stk_pool_add(pool, UINT32_MAX, NULL), PEN_E_LIMIT);
        stk_pool_destroy(&pool);
        assert_int_equal(live_memory(f.ledger), 1);
        stk_buffer_unref(held);
        assert_int_equal(live_memory(f.ledger), 0);
        stk_ledger_destroy(&f.ledger);
    }
    assert_int_equal(failures, 3);
}

enum { REGION = 2 << 20, GROWN = 6 << 20 };

// One growth in place with the nth driver call failing.
static bool grow_in_place_fails(const struct penemu *emu, uint64_t nth,
                                int result, bool for_ever)
{
    struct fixture f;
    fixture_open(&f);
    struct stk_pool_params p = params(&f, PEN_MEM_CUDA_DEVICE);
    p.block_bytes = REGION;
    p.reserve_bytes = GROWN;
    p.blocks = 2;
    struct stk_pool *pool = NULL;
    FIXTURE_OK(stk_pool_create(&p, &pool, &err));
    struct stk_buffer *held = take(pool);
    const uint64_t address = held->block.address;
    struct pen_error err = { 0 };
    emu->penemu_fault_arm(PENEMU_ANY, nth, result, for_ever);
    const enum pen_status st = stk_pool_grow(pool, GROWN, &err);
    const bool fired = emu->penemu_fault_disarm() > 0;
    if (st) {
        assert_true(fired);
        check_error(&err, st);
        assert_non_null(strstr(err.text, "6.00 MiB where it lies"));
        assert_string_equal(err.where, "blur.output");
    }
    // Who has a block keeps it, of one size or the other.
    assert_int_equal(held->block.address, address);
    const size_t bytes = stk_buffer_bytes(held);
    assert_true(bytes == REGION || bytes == GROWN);
    assert_int_equal(stk_pool_block_bytes(pool), GROWN);
    assert_int_equal(in_use(pool), 1);
    stk_buffer_unref(held);
    // What is missing is tried again by who takes. (What could not be undone
    // either, because nothing works any more, stays so.)
    if (!for_ever && !stk_device_lost(f.dev)) {
        struct stk_buffer *a = take(pool), *b = take(pool);
        assert_int_equal(stk_buffer_bytes(a), GROWN);
        assert_int_equal(stk_buffer_bytes(b), GROWN);
        stk_buffer_unref(a);
        stk_buffer_unref(b);
    }
    stk_pool_destroy(&pool);
    assert_int_equal(live_memory(f.ledger), 0);
    close_and_check(&f, emu);
    return fired;
}

PEN_TEST(growth_in_place_unwinds_from_every_failed_driver_call)
{
    const struct penemu *emu = emulator();
    for (int r = 0; r < RESULTS; r++)
        for (int for_ever = 0; for_ever < 2; for_ever++) {
            uint64_t nth = 1;
            while (grow_in_place_fails(emu, nth, results[r], for_ever))
                nth++;
            assert_true(nth > 4);
        }
}

PEN_TEST_MAIN(
    PEN_CASE(pool_create_unwinds_from_every_failed_allocation),
    PEN_CASE(pool_grow_survives_every_failed_allocation),
    PEN_CASE(a_take_that_cannot_replace_its_block_leaves_it_in_the_pool),
    PEN_CASE(frame_pools_and_frames_unwind_from_every_failed_allocation),
    PEN_CASE(a_failed_wrap_leaves_foreign_memory_with_its_owner),
    PEN_CASE(nothing_is_freed_too_early_when_there_is_no_memory_to_wait_with),
    PEN_CASE(pool_create_unwinds_from_every_failed_driver_call),
    PEN_CASE(pool_add_keeps_what_it_made_when_an_allocation_fails),
    PEN_CASE(growth_in_place_unwinds_from_every_failed_driver_call),
    PEN_CASE(running_out_is_told_as_the_memory_that_ran_out),
    PEN_CASE(pool_grow_survives_every_failed_driver_call),
    PEN_CASE(a_take_that_fails_leaves_the_block_in_the_pool),
    PEN_CASE(a_copy_that_fails_is_told))
