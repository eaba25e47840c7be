// The public allocator on a device: page-locked and device memory, counted by
// the driver. Only public functions of the library are used for it.

#include <pthread.h>
#include <stdio.h>

#include <penstock/penstock.h>

#include "gpu_fixture.h"

enum { PICTURE = 1920 * 1080 * 3, MIB = 1 << 20 };

static void open_device(struct pen_device **dev)
{
    const struct pen_device_params params = {
        .selector = pen_test_device(),
        .emulator = pen_test_emulator(),
    };
    FIXTURE_OK(pen_device_open(&params, dev, &err));
}

static struct pen_pool *make_with(struct pen_pool_params params)
{
    struct pen_pool *pool = NULL;
    FIXTURE_OK(pen_pool_create(&params, &pool, &err));
    return pool;
}

static struct pen_pool *make(struct pen_device *dev, enum pen_mem_type mem,
                             uint64_t max_bytes)
{
    return make_with((struct pen_pool_params){ .mem = mem,
                                               .device = dev,
                                               .name = "frames",
                                               .max_bytes = max_bytes,
                                               .decay_ns = -1 });
}

static enum pen_status try_take(struct pen_pool *pool, enum pen_mem_type mem,
                                size_t bytes, uint64_t *out,
                                struct pen_error *err)
{
    if (mem == PEN_MEM_CUDA_DEVICE)
        return pen_cuda_alloc(pool, bytes, out, err);
    void *memory = NULL;
    const enum pen_status st = pen_pinned_alloc(pool, bytes, &memory, err);
    *out = (uint64_t)(uintptr_t)memory;
    return st;
}

static uint64_t take(struct pen_pool *pool, enum pen_mem_type mem, size_t bytes)
{
    uint64_t address = 0;
    FIXTURE_OK(try_take(pool, mem, bytes, &address, &err));
    assert_true(address != 0);
    return address;
}

static enum pen_status give(enum pen_mem_type mem, uint64_t address)
{
    if (mem == PEN_MEM_CUDA_DEVICE)
        return pen_cuda_free(address);
    return pen_pinned_free((void *)(uintptr_t)address);
}

static struct pen_pool_stats stats(struct pen_pool *pool)
{
    struct pen_pool_stats s;
    pen_pool_get_stats(pool, &s);
    return s;
}

// Driver allocations of a type so far; on a GPU those that the pool counted.
static uint64_t driver_allocs(struct pen_pool *pool, enum pen_mem_type mem)
{
    const struct penemu *emu = fixture_emulator();
    if (!emu)
        return stats(pool).driver_allocs;
    return emu->penemu_calls(mem == PEN_MEM_CUDA_DEVICE ? "cuMemAlloc"
                                                        : "cuMemHostAlloc");
}

static const enum pen_mem_type both[] = { PEN_MEM_HOST_PINNED,
                                          PEN_MEM_CUDA_DEVICE };

PEN_TEST(three_calls_for_a_picture_make_one_driver_allocation)
{
    struct pen_device *dev = NULL;
    open_device(&dev);
    for (unsigned i = 0; i < 2; i++) {
        struct pen_pool *pool = make(dev, both[i], 0);
        const uint64_t before = driver_allocs(pool, both[i]);
        const uint64_t a = take(pool, both[i], PICTURE);
        assert_int_equal(give(both[i], a), PEN_OK);
        const uint64_t b = take(pool, both[i], PICTURE);
        assert_true(a == b);
        assert_int_equal(driver_allocs(pool, both[i]) - before, 1);
        assert_int_equal(give(both[i], b), PEN_OK);
        const struct pen_pool_stats s = stats(pool);
        assert_int_equal(s.driver_allocs, 1);
        assert_int_equal(s.allocs, 2);
        assert_int_equal(s.frees, 2);
        assert_true(s.held_bytes - PICTURE < PICTURE / 8);
        FIXTURE_OK(pen_pool_destroy(&pool, &err));
        assert_null(pool);
    }
    pen_device_close(&dev);
}

static void carry_bytes(struct fixture *f)
{
    struct pen_pool *host = make(f->dev, PEN_MEM_HOST_PINNED, 0);
    struct pen_pool *device = make(f->dev, PEN_MEM_CUDA_DEVICE, 0);
    struct stk_stream *stream = fixture_stream(f, "test");
    {
        STK_SCOPE scope = { 0 };
        FIXTURE_OK(stk_scope_enter(&scope, f->dev, &err));
        const size_t sizes[] = { 64, 1000, 40000, 70000, PICTURE };
        for (unsigned i = 0; i < 5; i++) {
            unsigned char *in, *out;
            uint64_t there;
            FIXTURE_OK(pen_pinned_alloc(host, sizes[i], (void **)&in, &err));
            FIXTURE_OK(pen_pinned_alloc(host, sizes[i], (void **)&out, &err));
            FIXTURE_OK(pen_cuda_alloc(device, sizes[i], &there, &err));
            assert_int_equal(there % 256, 0);
            for (size_t j = 0; j < sizes[i]; j++)
                in[j] = (unsigned char)(j * 7 + i);
            memset(out, 0, sizes[i]);
            FIXTURE_OK(stk_stream_copy(stream, STK_COPY_H2D, there,
                                       (uint64_t)(uintptr_t)in, sizes[i],
                                       &err));
            FIXTURE_OK(stk_stream_copy(stream, STK_COPY_D2H,
                                       (uint64_t)(uintptr_t)out, there,
                                       sizes[i], &err));
            FIXTURE_OK(
                stk_point_wait(fixture_record(f, stream), STK_WAIT_NONE, &err));
            assert_memory_equal(in, out, sizes[i]);
            assert_int_equal(pen_pinned_free(in), PEN_OK);
            assert_int_equal(pen_pinned_free(out), PEN_OK);
            assert_int_equal(pen_cuda_free(there), PEN_OK);
        }
    }
    const struct penemu *emu = fixture_emulator();
    if (emu) {
        struct penemu_stats s;
        emu->penemu_get_stats(&s);
        assert_int_equal(s.pageable_h2d + s.pageable_d2h, 0);
    }
    stk_stream_destroy(&stream);
    FIXTURE_OK(pen_pool_destroy(&host, &err));
    FIXTURE_OK(pen_pool_destroy(&device, &err));
}

PEN_TEST(blocks_carry_bytes_to_the_device_and_back)
{
    fixture_all_modes(carry_bytes);
}

PEN_TEST(the_wrong_call_is_refused)
{
    struct pen_device *dev = NULL;
    open_device(&dev);
    struct pen_pool *host = make(dev, PEN_MEM_HOST_PINNED, 0);
    struct pen_pool *device = make(dev, PEN_MEM_CUDA_DEVICE, 0);
    struct pen_error why = { 0 };
    void *memory = &why;
    uint64_t address = 5;
    assert_int_equal(pen_pinned_alloc(device, 100, &memory, &why), PEN_E_ARG);
    assert_non_null(strstr(why.text, "pen_cuda_alloc()"));
    assert_null(memory);
    assert_int_equal(pen_cuda_alloc(host, 100, &address, &why), PEN_E_ARG);
    assert_non_null(strstr(why.text, "pen_pinned_alloc()"));
    assert_int_equal(address, 0);
    assert_int_equal(pen_pinned_alloc(host, 0, &memory, &why), PEN_E_ARG);
    assert_int_equal(pen_pinned_alloc(host, SIZE_MAX, &memory, &why),
                     PEN_E_NOMEM);
    assert_int_equal(pen_cuda_alloc(device, SIZE_MAX - 7, &address, &why),
                     PEN_E_DEVMEM);

    // Each kind of free takes its own.
    FIXTURE_OK(pen_pinned_alloc(host, 100, &memory, &err));
    FIXTURE_OK(pen_cuda_alloc(device, 100, &address, &err));
    assert_int_equal(pen_cuda_free((uint64_t)(uintptr_t)memory), PEN_E_ARG);
    assert_int_equal(pen_pinned_free((void *)(uintptr_t)address), PEN_E_ARG);
    assert_int_equal(pen_pinned_free((char *)memory + 128), PEN_E_STATE);
    assert_int_equal(pen_cuda_free(address + 1), PEN_E_ARG);
    assert_int_equal(pen_pinned_free(memory), PEN_OK);
    assert_int_equal(pen_pinned_free(memory), PEN_E_STATE);
    assert_int_equal(pen_cuda_free(address), PEN_OK);
    assert_int_equal(pen_cuda_free(address), PEN_E_STATE);
    assert_int_equal(pen_pinned_free(NULL), PEN_OK);
    assert_int_equal(pen_cuda_free(0), PEN_OK);
    assert_int_equal(stats(host).bad_frees, 3);
    assert_int_equal(stats(device).bad_frees, 3);

    FIXTURE_OK(pen_pool_destroy(&host, &err));
    FIXTURE_OK(pen_pool_destroy(&device, &err));
    FIXTURE_OK(pen_pool_destroy(&device, &err));  // NULL
    struct pen_pool_params params = { .mem = PEN_MEM_HOST_PINNED };
    assert_int_equal(pen_pool_create(&params, &host, &why), PEN_E_ARG);
    params.mem = PEN_MEM_DMABUF;
    assert_int_equal(pen_pool_create(&params, &host, &why), PEN_E_ARG);
    pen_device_close(&dev);
}

// Random sizes: no two blocks that are out share a byte.
static void check_random(struct pen_device *dev, enum pen_mem_type mem)
{
    enum { PLACES = 200 };
    static struct {
        uint64_t address;
        size_t bytes;
    } b[PLACES];
    memset(b, 0, sizeof(b));
    struct pen_pool *pool = make(dev, mem, 0);
    uint64_t seed = 21 + mem;
    for (unsigned round = 0; round < pen_test_seeds(4000, 40000); round++) {
        const unsigned i = pen_test_random(&seed) % PLACES;
        if (b[i].address) {
            assert_int_equal(give(mem, b[i].address), PEN_OK);
            b[i].address = 0;
            continue;
        }
        b[i].bytes = 1 + pen_test_random(&seed) %
                             ((size_t)1 << (4 + pen_test_random(&seed) % 16));
        b[i].address = take(pool, mem, b[i].bytes);
        assert_int_equal(b[i].address % (mem == PEN_MEM_CUDA_DEVICE ? 256 : 64),
                         0);
        for (unsigned j = 0; j < PLACES; j++) {
            assert_true(j == i || !b[j].address ||
                        b[j].address + b[j].bytes <= b[i].address ||
                        b[i].address + b[i].bytes <= b[j].address);
        }
        if (round % 1000 == 0)
            pen_pool_trim(pool, 0);
    }
    for (unsigned i = 0; i < PLACES; i++)
        assert_int_equal(give(mem, b[i].address), PEN_OK);
    assert_int_equal(stats(pool).bad_frees, 0);
    pen_pool_trim(pool, 0);
    assert_int_equal(stats(pool).held_bytes, 0);
    FIXTURE_OK(pen_pool_destroy(&pool, &err));
}

PEN_TEST(blocks_never_overlap)
{
    struct pen_device *dev = NULL;
    open_device(&dev);
    check_random(dev, PEN_MEM_HOST_PINNED);
    check_random(dev, PEN_MEM_CUDA_DEVICE);
    pen_device_close(&dev);
}

// --- accounts ---------------------------------------------------------------

PEN_TEST(a_snapshot_tells_what_the_pool_holds)
{
    struct pen_device *dev = NULL;
    open_device(&dev);
    for (unsigned i = 0; i < 2; i++) {
        struct pen_pool *pool = make(dev, both[i], 0);
        struct pen_snapshot *empty = NULL, *full = NULL, *diff = NULL;
        const struct pen_ledger_entry *e = NULL;
        FIXTURE_OK(pen_pool_snapshot(pool, &empty, &err));
        assert_int_equal(pen_snapshot_entries(empty, &e), 0);
        const uint64_t a = take(pool, both[i], 3 * MIB);
        const uint64_t b = take(pool, both[i], 3 * MIB);
        assert_int_equal(give(both[i], b), PEN_OK);
        FIXTURE_OK(pen_pool_snapshot(pool, &full, &err));
        FIXTURE_OK(pen_snapshot_diff(empty, full, &diff, &err));
        assert_int_equal(pen_snapshot_entries(diff, &e), 1);
        assert_string_equal(e->kind, pen_mem_name(both[i]));
        assert_string_equal(e->owner, "frames");
        assert_int_equal(e->bytes, 6 * MIB);
        assert_int_equal(e->count, 2);
        pen_snapshot_destroy(&diff);

        assert_int_equal(give(both[i], a), PEN_OK);
        assert_int_equal(pen_pool_trim(pool, 0), 6 * MIB);
        pen_snapshot_destroy(&full);
        FIXTURE_OK(pen_pool_snapshot(pool, &full, &err));
        assert_int_equal(pen_snapshot_entries(full, &e), 0);
        pen_snapshot_destroy(&full);
        pen_snapshot_destroy(&empty);
        FIXTURE_OK(pen_pool_destroy(&pool, &err));
    }
    pen_device_close(&dev);
}

// With a ledger of the device's own, memory is entered there as well, once.
PEN_TEST(memory_is_entered_once_in_the_devices_ledger)
{
    struct fixture f;
    fixture_open(&f);
    for (unsigned i = 0; i < 2; i++) {
        const enum stk_res res = (enum stk_res)both[i];
        const uint64_t before = fixture_live(f.ledger, res);
        struct pen_pool *pool = make(f.dev, both[i], 0);
        const uint64_t a = take(pool, both[i], 3 * MIB);
        assert_int_equal(fixture_live(f.ledger, res), before + 1);
        assert_int_equal(give(both[i], a), PEN_OK);
        FIXTURE_OK(pen_pool_destroy(&pool, &err));
        assert_int_equal(fixture_live(f.ledger, res), before);
    }
    fixture_close(&f);
}

PEN_TEST(blocks_outlive_their_pool_but_not_their_device)
{
    struct fixture f;
    fixture_open(&f);
    for (unsigned i = 0; i < 2; i++) {
        struct pen_pool *pool = make(f.dev, both[i], 0);
        const uint64_t a = take(pool, both[i], PICTURE);
        const uint64_t b = take(pool, both[i], 500);
        struct pen_error why = { 0 };
        assert_int_equal(pen_pool_destroy(&pool, &why), PEN_E_LEAK);
        assert_null(pool);
        assert_non_null(strstr(why.text, "2 blocks out (6221300 bytes)"));
        if (both[i] == PEN_MEM_HOST_PINNED)
            memset((void *)(uintptr_t)a, 1, PICTURE);
        assert_int_equal(give(both[i], a), PEN_OK);
        assert_int_equal(give(both[i], b), PEN_OK);
        assert_int_equal(give(both[i], b), PEN_E_ARG);
    }
    fixture_close(&f);  // checks that nothing is left
}

// --- too little memory ------------------------------------------------------

PEN_TEST(a_full_device_gets_back_what_pools_keep)
{
    const struct penemu *emu = fixture_emulator();
    if (!emu)
        PEN_SKIP("a GPU has more memory than a test should fill");
    emu->penemu_reset();
    assert_int_equal(emu->penemu_set_memory(64 * MIB), 0);
    struct pen_device *dev = NULL;
    open_device(&dev);
    const enum pen_mem_type mem = PEN_MEM_CUDA_DEVICE;
    struct pen_pool *a = make(dev, mem, 0);
    struct pen_pool *b = make_with((struct pen_pool_params){
        .mem = mem, .device = dev, .name = "other", .decay_ns = -1 });
    assert_int_equal(give(mem, take(a, mem, 40 * MIB)), PEN_OK);
    const uint64_t kept = take(a, mem, 8 * MIB);

    const uint64_t big = take(b, mem, 48 * MIB);
    assert_int_equal(stats(a).held_bytes, 8 * MIB);
    assert_int_equal(stats(a).driver_frees, 1);

    uint64_t more = 1;
    struct pen_error why = { 0 };
    assert_int_equal(pen_cuda_alloc(a, 16 * MIB, &more, &why), PEN_E_DEVMEM);
    assert_int_equal(more, 0);
    const char *parts[] = { "no block of 16.00 MiB", "16777216 bytes",
                            "8.00 MiB are held", "no block free",
                            // who has the rest, though it is another pool
                            "other 48.00 MiB, frames 8.00 MiB" };
    for (unsigned i = 0; i < sizeof(parts) / sizeof(parts[0]); i++) {
        if (!strstr(why.text, parts[i]))
            fail_msg("no \"%s\" in: %s", parts[i], why.text);
    }
    assert_int_equal(give(mem, big), PEN_OK);
    more = take(a, mem, 16 * MIB);  // b's idle block made room
    assert_int_equal(stats(b).held_bytes, 0);
    assert_int_equal(give(mem, more), PEN_OK);
    assert_int_equal(give(mem, kept), PEN_OK);
    FIXTURE_OK(pen_pool_destroy(&a, &err));
    FIXTURE_OK(pen_pool_destroy(&b, &err));
    pen_device_close(&dev);
    emu->penemu_reset();
}

// Every driver call of a short life fails once: told, and nothing stays.
static void check_faults(const struct penemu *emu, enum pen_mem_type mem,
                         int result)
{
    bool fired = true;
    unsigned failed = 0;
    for (unsigned nth = 1; fired; nth++) {
        emu->penemu_reset();
        struct fixture f;
        fixture_open(&f);
        const uint64_t before = fixture_live(f.ledger, (enum stk_res)mem);
        struct pen_pool *pool = make(f.dev, mem, 0);
        uint64_t a = 0, b = 0;
        struct pen_error why = { 0 };
        assert_int_equal(emu->penemu_fault_arm(PENEMU_ANY, nth, result, 0), 0);
        enum pen_status st = try_take(pool, mem, PICTURE, &a, &why);
        if (!st)
            st = try_take(pool, mem, 1000, &b, &why);
        fired = emu->penemu_fault_disarm() > 0;
        if (st) {
            failed++;
            assert_true(fired);
            assert_int_equal(why.status, st);
            assert_string_not_equal(why.text, "");
            const struct pen_pool_stats s = stats(pool);
            assert_int_equal(s.live, a != 0);
            assert_int_equal(s.used_bytes, a ? PICTURE : 0);
            // It can be tried again.
            if (!a)
                a = take(pool, mem, PICTURE);
            b = take(pool, mem, 1000);
        }
        assert_int_equal(give(mem, a), PEN_OK);
        assert_int_equal(give(mem, b), PEN_OK);
        FIXTURE_OK(pen_pool_destroy(&pool, &err));
        assert_int_equal(fixture_live(f.ledger, (enum stk_res)mem), before);
        fixture_close(&f);
    }
    if (result != 2)
        assert_true(failed >= 2);
}

PEN_TEST(every_failed_driver_call_is_told_and_leaves_nothing)
{
    const struct penemu *emu = fixture_emulator();
    if (!emu)
        PEN_SKIP("only the emulated driver fails on demand");
    for (unsigned i = 0; i < 2; i++) {
        check_faults(emu, both[i], 2);  // CUDA_ERROR_OUT_OF_MEMORY
        check_faults(emu, both[i], 1);  // CUDA_ERROR_INVALID_VALUE
    }
    emu->penemu_reset();
}

PEN_TEST(a_lost_device_takes_its_blocks_along_in_order)
{
    const struct penemu *emu = fixture_emulator();
    if (!emu)
        PEN_SKIP("only the emulated device is lost on demand");
    for (unsigned i = 0; i < 2; i++) {
        emu->penemu_reset();
        struct fixture f;
        fixture_open(&f);
        struct pen_pool *pool = make(f.dev, both[i], 0);
        const uint64_t a = take(pool, both[i], PICTURE);
        assert_int_equal(give(both[i], take(pool, both[i], 3 * MIB)), PEN_OK);
        emu->penemu_break_contexts(700);  // CUDA_ERROR_ILLEGAL_ADDRESS
        uint64_t more = 1;
        struct pen_error why = { 0 };
        assert_int_equal(try_take(pool, both[i], 9 * MIB, &more, &why),
                         PEN_E_LOST);
        assert_int_equal(more, 0);
        assert_int_equal(give(both[i], a), PEN_OK);
        FIXTURE_OK(pen_pool_destroy(&pool, &err));
        assert_int_equal(fixture_live(f.ledger, (enum stk_res)both[i]), 0);
        pen_device_close(&f.dev);
        stk_ledger_destroy(&f.ledger);
    }
    emu->penemu_reset();
}

// --- threads ----------------------------------------------------------------

struct crossing {
    struct pen_pool *pool;
    enum pen_mem_type mem;
    uint64_t ring[16];
    _Atomic unsigned head, tail;
};

enum { CROSSINGS = 20000 };

static void *consume(void *cookie)
{
    struct crossing *c = cookie;
    for (unsigned i = 0; i < CROSSINGS; i++) {
        while (c->head == i)
            sched_yield();
        assert_int_equal(give(c->mem, c->ring[i % 16]), PEN_OK);
        c->tail = i + 1;
    }
    return NULL;
}

PEN_TEST(blocks_taken_by_one_thread_are_freed_by_another)
{
    struct pen_device *dev = NULL;
    open_device(&dev);
    for (unsigned i = 0; i < 2; i++) {
        struct crossing c = { .pool = make(dev, both[i], 0), .mem = both[i] };
        pthread_t thread;
        pthread_create(&thread, NULL, consume, &c);
        for (unsigned j = 0; j < CROSSINGS; j++) {
            while (j - c.tail == 16)
                sched_yield();
            c.ring[j % 16] = take(c.pool, c.mem, PICTURE);
            c.head = j + 1;
        }
        pthread_join(thread, NULL);
        const struct pen_pool_stats s = stats(c.pool);
        assert_int_equal(s.allocs, CROSSINGS);
        assert_int_equal(s.frees, CROSSINGS);
        // What is on its way, and what the two threads keep.
        assert_true(s.driver_allocs <= 16 + 2 * 8 + 1);
        FIXTURE_OK(pen_pool_destroy(&c.pool, &err));
    }
    pen_device_close(&dev);
}

PEN_TEST_MAIN(PEN_CASE(three_calls_for_a_picture_make_one_driver_allocation),
              PEN_CASE(blocks_carry_bytes_to_the_device_and_back),
              PEN_CASE(the_wrong_call_is_refused),
              PEN_CASE(blocks_never_overlap),
              PEN_CASE(a_snapshot_tells_what_the_pool_holds),
              PEN_CASE(memory_is_entered_once_in_the_devices_ledger),
              PEN_CASE(blocks_outlive_their_pool_but_not_their_device),
              PEN_CASE(a_full_device_gets_back_what_pools_keep),
              PEN_CASE(every_failed_driver_call_is_told_and_leaves_nothing),
              PEN_CASE(a_lost_device_takes_its_blocks_along_in_order),
              PEN_CASE(blocks_taken_by_one_thread_are_freed_by_another))
