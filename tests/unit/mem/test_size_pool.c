// Size-class pools on host memory, and the map of pages behind them.

#include <pthread.h>
#include <sched.h>
#include <stdio.h>
#include <time.h>

#include "src/mem/page_map.h"
#include "src/mem/size_pool_priv.h"

#include "alloc_fail.h"
#include "pen_test.h"

// Built twice: once as if the kernel had no membarrier(2).
#ifdef TEST_WITHOUT_MEMBARRIER
__attribute__((constructor)) static void without_membarrier(void)
{
    stk_shard_init();
    stk_shard_asymmetric = false;
}
#endif

enum { PICTURE = 1920 * 1080 * 3, MIB = 1 << 20 };

#define OK(expr)                                                               \
    do {                                                                       \
        struct pen_error err = { 0 };                                          \
        const enum pen_status got_ = (expr);                                   \
        if (got_ != PEN_OK)                                                    \
            fail_msg("%s: %s: %s", #expr, pen_status_name(got_), err.text);    \
    } while (0)

static struct stk_size_pool *make_with(struct stk_size_pool_params p)
{
    struct stk_size_pool *pool = NULL;
    p.mem = PEN_MEM_HOST;
    p.owner = "test";
    OK(stk_size_pool_create(&p, &pool, &err));
    return pool;
}

static struct stk_size_pool *make(uint64_t max_bytes)
{
    return make_with((struct stk_size_pool_params){ .max_bytes = max_bytes,
                                                    .decay_ns = -1 });
}

static void destroy(struct stk_size_pool *pool)
{
    OK(stk_size_pool_destroy(&pool, &err));
    assert_null(pool);
}

static uint64_t take(struct stk_size_pool *pool, size_t bytes)
{
    uint64_t address = 0;
    OK(stk_size_pool_alloc(pool, bytes, &address, &err));
    assert_true(address != 0);
    return address;
}

static enum pen_status try_free(uint64_t address)
{
    return stk_size_pool_free(address, PEN_MEM_BIT(PEN_MEM_HOST));
}

static void give(uint64_t address)
{
    assert_int_equal(try_free(address), PEN_OK);
}

static struct pen_pool_stats stats(struct stk_size_pool *pool)
{
    struct pen_pool_stats s;
    stk_size_pool_stats(pool, &s);
    return s;
}

static void *bytes_at(uint64_t address)
{
    return (void *)(uintptr_t)address;
}

// The first and last bytes tell whose block it is.
static void stamp(uint64_t address, size_t bytes, uint64_t id)
{
    memcpy(bytes_at(address), &id, sizeof(id));
    memcpy(bytes_at(address + bytes - sizeof(id)), &id, sizeof(id));
}

static bool stamped(uint64_t address, size_t bytes, uint64_t id)
{
    return memcmp(bytes_at(address), &id, sizeof(id)) == 0 &&
           memcmp(bytes_at(address + bytes - sizeof(id)), &id, sizeof(id)) == 0;
}

static void in_thread(void *(*body)(void *), void *cookie)
{
    pthread_t thread;
    assert_int_equal(pthread_create(&thread, NULL, body, cookie), 0);
    assert_int_equal(pthread_join(thread, NULL), 0);
}

// --- classes ----------------------------------------------------------------

static void check_class(size_t bytes)
{
    unsigned number = 0;
    size_t block = 0;
    assert_true(stk_size_class(bytes, &number, &block));
    assert_true(number < STK_CLASSES);
    assert_true(block >= bytes);
    assert_int_equal(block % STK_GRANULE, 0);
    // Blocks lie one after the other from a page on.
    if (block >= 32 << 10)
        assert_int_equal(block % 4096, 0);
    if (block > 1024)
        assert_true((block - bytes) < block / 8);
    else
        assert_true(block - bytes < STK_GRANULE);
    // The class is that of its own size, and the next byte is of the next.
    unsigned again = 0, next = 0;
    size_t same = 0, more = 0;
    assert_true(stk_size_class(block, &again, &same));
    assert_int_equal(again, number);
    assert_int_equal(same, block);
    if (block < STK_MOST_BYTES) {
        assert_true(stk_size_class(block + 1, &next, &more));
        assert_int_equal(next, number + 1);
        assert_true(more > block);
    }
}

PEN_TEST(classes_waste_less_than_an_eighth)
{
    for (size_t bytes = 1; bytes < 300000; bytes++)
        check_class(bytes);
    uint64_t seed = 7;
    for (unsigned i = 0; i < 200000; i++) {
        const size_t high = (size_t)pen_test_random(&seed) << 16;
        check_class(((high | (pen_test_random(&seed) & 0xffff)) >>
                     (1 + pen_test_random(&seed) % 40)) +
                    1);
    }
    for (unsigned bit = 0; bit < 47; bit++) {
        check_class((size_t)1 << bit);
        check_class(((size_t)1 << bit) + 1);
    }
    check_class(STK_MOST_BYTES);
}

PEN_TEST(sizes_that_no_class_has_are_refused)
{
    unsigned number;
    size_t block;
    assert_false(stk_size_class(0, &number, &block));
    assert_false(stk_size_class(STK_MOST_BYTES + 1, &number, &block));
    assert_false(stk_size_class(SIZE_MAX, &number, &block));

    struct stk_size_pool *pool = make(0);
    const struct {
        size_t bytes;
        enum pen_status st;
    } cases[] = {
        { 0, PEN_E_ARG },
        { SIZE_MAX, PEN_E_NOMEM },
        { SIZE_MAX - 1, PEN_E_NOMEM },
        { SIZE_MAX - 4095, PEN_E_NOMEM },
        { SIZE_MAX / 2, PEN_E_NOMEM },
        { STK_MOST_BYTES + 1, PEN_E_NOMEM },
    };
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        uint64_t address = 1;
        struct pen_error err = { 0 };
        assert_int_equal(
            stk_size_pool_alloc(pool, cases[i].bytes, &address, &err),
            cases[i].st);
        char size[32];
        snprintf(size, sizeof(size), "%zu bytes", cases[i].bytes);
        assert_non_null(strstr(err.text, size));
        assert_int_equal(err.status, cases[i].st);
        assert_int_equal(address, 0);
    }
    assert_int_equal(stats(pool).held_peak, 0);
    destroy(pool);
}

// --- the map ----------------------------------------------------------------

PEN_TEST(the_map_holds_what_random_addresses_were_given)
{
    enum { SPANS = 400 };
    static struct {
        uint64_t address, pages;
        char value;
    } span[SPANS];
    uint64_t seed = 11;
    for (unsigned i = 0; i < SPANS; i++) {
        // Far apart, in a few of the 256 MiB of a leaf each, and across them.
        span[i].address = ((uint64_t)(i % 20) << 42) +
                          ((uint64_t)(i / 20) << 28) - (i % 3) * 8 * 4096 +
                          (1 << 20) + pen_test_random(&seed) % 4096;
        span[i].pages = 1 + pen_test_random(&seed) % 16;
        assert_true(
            stk_page_map_set(span[i].address, span[i].pages, &span[i].value));
    }
    for (unsigned i = 0; i < SPANS; i++) {
        const uint64_t first = span[i].address & ~(uint64_t)4095;
        assert_null(stk_page_map_get(first - 1));
        for (uint64_t p = 0; p < span[i].pages; p++) {
            assert_ptr_equal(stk_page_map_get(first + p * 4096),
                             &span[i].value);
            assert_ptr_equal(stk_page_map_get(first + p * 4096 + 4095),
                             &span[i].value);
        }
        assert_null(stk_page_map_get(first + span[i].pages * 4096));
    }
    for (unsigned i = 0; i < SPANS; i += 2)
        assert_true(stk_page_map_set(span[i].address, span[i].pages, NULL));
    for (unsigned i = 0; i < SPANS; i++)
        assert_ptr_equal(stk_page_map_get(span[i].address),
                         i % 2 ? &span[i].value : NULL);
    for (unsigned i = 1; i < SPANS; i += 2)
        assert_true(stk_page_map_set(span[i].address, span[i].pages, NULL));
}

PEN_TEST(the_map_refuses_what_it_cannot_hold)
{
    char value;
    assert_false(stk_page_map_set(STK_PAGE_ADDRESSES, 1, &value));
    assert_false(stk_page_map_set(UINT64_MAX, 1, &value));
    assert_false(stk_page_map_set(STK_PAGE_ADDRESSES - 4096, 2, &value));
    assert_null(stk_page_map_get(STK_PAGE_ADDRESSES - 1));
    assert_null(stk_page_map_get(STK_PAGE_ADDRESSES));
    assert_null(stk_page_map_get(UINT64_MAX));
    assert_true(stk_page_map_set(STK_PAGE_ADDRESSES - 4096, 1, &value));
    assert_ptr_equal(stk_page_map_get(STK_PAGE_ADDRESSES - 1), &value);
    assert_true(stk_page_map_set(STK_PAGE_ADDRESSES - 4096, 1, NULL));

    // Over the border of two leaves; the memory of the second one is missing.
    const uint64_t border = (uint64_t)99 << 40;
    pen_alloc_fail_arm(2, false);
    assert_false(stk_page_map_set(border - 4096, 2, &value));
    assert_true(pen_alloc_fail_disarm());
    assert_null(stk_page_map_get(border - 1));
    assert_null(stk_page_map_get(border));
    assert_true(stk_page_map_set(border - 4096, 2, &value));
    assert_ptr_equal(stk_page_map_get(border), &value);
    assert_true(stk_page_map_set(border - 4096, 2, NULL));
}

// --- taking and giving ------------------------------------------------------

PEN_TEST(a_block_that_came_back_is_given_again)
{
    struct stk_size_pool *pool = make(0);
    const uint64_t a = take(pool, PICTURE);
    memset(bytes_at(a), 1, PICTURE);
    give(a);
    for (unsigned i = 0; i < 10000; i++) {
        const uint64_t b = take(pool, PICTURE - i);
        assert_true(a == b);
        give(b);
    }
    const struct pen_pool_stats s = stats(pool);
    assert_int_equal(s.driver_allocs, 1);
    assert_int_equal(s.driver_frees, 0);
    assert_int_equal(s.allocs, 10001);
    assert_int_equal(s.frees, 10001);
    assert_int_equal(s.live, 0);
    assert_int_equal(s.used_peak, PICTURE);
    destroy(pool);
}

PEN_TEST(blocks_are_aligned_and_apart)
{
    struct stk_size_pool *pool = make(0);
    enum { COUNT = 600 };
    static struct {
        uint64_t address;
        size_t bytes;
    } b[COUNT];
    uint64_t seed = 3, used = 0;
    for (unsigned i = 0; i < COUNT; i++) {
        b[i].bytes = 16 + pen_test_random(&seed) % (1 << (4 + i % 16));
        b[i].address = take(pool, b[i].bytes);
        used += b[i].bytes;
        assert_int_equal(b[i].address % 64, 0);
        if (b[i].bytes >= 32 << 10)
            assert_int_equal(b[i].address % 4096, 0);
        stamp(b[i].address, b[i].bytes, i);
    }
    for (unsigned i = 0; i < COUNT; i++)
        assert_true(stamped(b[i].address, b[i].bytes, i));
    const struct pen_pool_stats s = stats(pool);
    assert_int_equal(s.live, COUNT);
    assert_int_equal(s.used_bytes, used);
    assert_true(s.waste_bytes > 0);
    assert_true(s.held_bytes >= s.used_bytes + s.waste_bytes);
    assert_true(s.driver_allocs < COUNT);  // slabs
    for (unsigned i = 0; i < COUNT; i++)
        give(b[i].address);
    assert_int_equal(stats(pool).used_bytes, 0);
    assert_int_equal(stats(pool).used_peak, used);
    destroy(pool);
}

static struct {
    unsigned count;
    char text[256];
} logged;

static void note(void *cookie, enum pen_log_level level, const char *topic,
                 const char *text)
{
    (void)cookie;
    (void)topic;
    assert_int_equal(level, PEN_LOG_ERROR);
    logged.count++;
    snprintf(logged.text, sizeof(logged.text), "%s", text);
}

PEN_TEST(what_is_not_out_is_not_freed)
{
    const struct pen_log log = { .message = note, .level = PEN_LOG_ERROR };
    struct stk_size_pool *pool =
        make_with((struct stk_size_pool_params){ .log = &log });
    memset(&logged, 0, sizeof(logged));
    const size_t sizes[] = { 64, 100, 5000, 40000, 70000, PICTURE };
    const unsigned count = sizeof(sizes) / sizeof(sizes[0]);
    for (unsigned i = 0; i < count; i++) {
        const uint64_t a = take(pool, sizes[i]), b = take(pool, sizes[i]);
        stamp(a, 64, 1);
        assert_int_equal(try_free(a + 1), PEN_E_ARG);
        assert_int_equal(try_free(a + 32), PEN_E_ARG);
        assert_int_equal(
            stk_size_pool_free(a, PEN_MEM_BIT(PEN_MEM_CUDA_DEVICE)), PEN_E_ARG);
        assert_non_null(strstr(logged.text, "another memory type"));
        assert_true(stamped(a, 64, 1));
        give(a);
        assert_int_equal(try_free(a), PEN_E_STATE);
        assert_non_null(strstr(logged.text, "free already"));
        assert_non_null(strstr(logged.text, "test"));
        assert_int_equal(try_free(a), PEN_E_STATE);
        // Nothing happened: the block is given once.
        const uint64_t c = take(pool, sizes[i]), d = take(pool, sizes[i]);
        assert_true(c != d && c != b && d != b);
        give(b);
        give(c);
        give(d);
    }
    assert_int_equal(logged.count, count * 5);
    assert_int_equal(stats(pool).bad_frees, count * 5);

    int on_stack = 0;
    assert_int_equal(try_free((uint64_t)(uintptr_t)&on_stack), PEN_E_ARG);
    assert_int_equal(try_free(UINT64_MAX), PEN_E_ARG);
    assert_int_equal(try_free(8), PEN_E_ARG);
    assert_int_equal(try_free(0), PEN_OK);

    // Memory that went back to the driver is nobody's block.
    const uint64_t a = take(pool, PICTURE);
    give(a);
    stk_size_pool_trim(pool, 0);
    assert_int_equal(try_free(a), PEN_E_ARG);
    destroy(pool);
}

// --- limits -----------------------------------------------------------------

enum { SIX = 6, SIX_BYTES = 6 * MIB };

static void *take_and_give_six(void *cookie)
{
    uint64_t a[SIX];
    for (unsigned i = 0; i < SIX; i++)
        a[i] = take(cookie, SIX_BYTES);
    for (unsigned i = 0; i < SIX; i++)
        give(a[i]);
    return NULL;
}

PEN_TEST(what_one_thread_keeps_another_one_gets)
{
    struct stk_size_pool *pool = make((uint64_t)SIX * SIX_BYTES);
    uint64_t mine = take(pool, SIX_BYTES);  // our line is not the thread's
    give(mine);
    for (unsigned round = 0; round < 20; round++) {
        in_thread(take_and_give_six, pool);
        take_and_give_six(pool);
    }
    assert_int_equal(stats(pool).driver_allocs, SIX);
    assert_true(stats(pool).steals > 0);
    destroy(pool);
}

// Each of 8 threads would keep one of 6 blocks to itself.
struct starving {
    struct stk_size_pool *pool;
    _Atomic unsigned refused;
};

static void *take_in_a_loop(void *cookie)
{
    struct starving *s = cookie;
    const uint64_t me = (uint64_t)(uintptr_t)&s;
    for (unsigned done = 0; done < pen_test_seeds(3000, 100000);) {
        uint64_t address = 0;
        struct pen_error err = { 0 };
        const enum pen_status st =
            stk_size_pool_alloc(s->pool, SIX_BYTES, &address, &err);
        if (st == PEN_E_LIMIT) {
            s->refused++;
            sched_yield();
            continue;
        }
        assert_int_equal(st, PEN_OK);
        stamp(address, SIX_BYTES, me);
        if (done % 64 == 0)
            sched_yield();
        assert_true(stamped(address, SIX_BYTES, me));
        give(address);
        done++;
    }
    return NULL;
}

PEN_TEST(eight_threads_do_not_starve_over_six_blocks)
{
    struct starving s = { .pool = make((uint64_t)SIX * SIX_BYTES) };
    pthread_t threads[8];
    for (unsigned i = 0; i < 8; i++)
        pthread_create(&threads[i], NULL, take_in_a_loop, &s);
    for (unsigned i = 0; i < 8; i++)
        pthread_join(threads[i], NULL);
    const struct pen_pool_stats got = stats(s.pool);
    assert_true(got.held_peak <= (uint64_t)SIX * SIX_BYTES);
    assert_int_equal(got.allocs, got.frees);
    assert_int_equal(got.allocs, 8 * pen_test_seeds(3000, 100000));
    destroy(s.pool);
}

PEN_TEST(the_limit_is_told_with_what_is_held)
{
    struct stk_ledger *ledger = stk_ledger_create(true);
    struct stk_size_pool *pool = make_with((struct stk_size_pool_params){
        .max_bytes = 8 * MIB, .decay_ns = -1, .ledger = ledger });
    const uint64_t a = take(pool, 5 * MIB), b = take(pool, 1 * MIB);
    uint64_t c;
    struct pen_error err = { 0 };
    assert_int_equal(stk_size_pool_alloc(pool, 4 * MIB - 5, &c, &err),
                     PEN_E_LIMIT);
    assert_int_equal(err.status, PEN_E_LIMIT);
    assert_string_equal(err.where, "test");
    const char *parts[] = { "no block of 4.00 MiB", "4194299 bytes",
                            "6.00 MiB are held",    "max_bytes is 8.00 MiB",
                            "no block free",        "test 6.00 MiB" };
    for (unsigned i = 0; i < sizeof(parts) / sizeof(parts[0]); i++) {
        if (!strstr(err.text, parts[i]))
            fail_msg("no \"%s\" in: %s", parts[i], err.text);
    }
    // What is free but too small is told, after it was given back.
    give(b);
    const uint64_t d = take(pool, 2 * MIB);
    assert_int_equal(stats(pool).driver_frees, 0);
    assert_int_equal(stk_size_pool_alloc(pool, 4 * MIB, &c, &err), PEN_E_LIMIT);
    assert_int_equal(stats(pool).driver_frees, 1);
    give(a);
    give(d);
    // Idle blocks of other classes make room.
    const uint64_t e = take(pool, 8 * MIB);
    assert_int_equal(stats(pool).held_bytes, 8 * MIB);
    give(e);
    assert_int_equal(stk_size_pool_alloc(pool, 9 * MIB, &c, &err), PEN_E_LIMIT);
    destroy(pool);
    struct stk_ledger_totals t;
    stk_ledger_totals(ledger, STK_RES_HOST, &t);
    assert_int_equal(t.live, 0);
    assert_int_equal(t.added, t.removed);
    stk_ledger_destroy(&ledger);
}

PEN_TEST(a_slab_is_cut_to_the_limit)
{
    struct stk_size_pool *pool = make(4096);
    uint64_t a[64], more;
    for (unsigned i = 0; i < 64; i++)
        a[i] = take(pool, 64);
    assert_int_equal(stk_size_pool_alloc(pool, 64, &more, NULL), PEN_E_LIMIT);
    assert_int_equal(stats(pool).held_bytes, 4096);
    for (unsigned i = 0; i < 64; i++)
        give(a[i]);
    // A block of another class takes the place of the whole slab.
    give(take(pool, 4096));
    assert_int_equal(stats(pool).driver_frees, 1);
    destroy(pool);
}

// Free blocks of pieces that are in use otherwise cannot be given back: they
// are listed, the largest first.
PEN_TEST(free_blocks_that_do_not_help_are_told_by_size)
{
    enum { SIZES = 6 };
    struct stk_size_pool *pool = make(8 * MIB);
    uint64_t kept[SIZES], more = 1;
    struct pen_error err = { 0 };
    for (unsigned i = 0; i < SIZES; i++)
        kept[i] = take(pool, (size_t)16384 >> i);
    const uint64_t held = stats(pool).held_bytes;
    assert_int_equal(stk_size_pool_alloc(pool, 8 * MIB, &more, &err),
                     PEN_E_LIMIT);
    assert_int_equal(more, 0);
    assert_int_equal(stats(pool).held_bytes, held);  // none was idle as a whole

    const char *at = err.text;
    const char *parts[] = { "no block of 8.00 MiB", " blocks free (",
                            " of 16.00 KiB, ",      " of 8.00 KiB, ",
                            " of 4.00 KiB, ",       " of 2.00 KiB, ",
                            " smaller), ",          "the largest 16.00 KiB",
                            "max_bytes is 8.00 MiB" };
    for (unsigned i = 0; i < sizeof(parts) / sizeof(parts[0]); i++) {
        at = strstr(at, parts[i]);
        if (!at)
            fail_msg("no \"%s\" where it belongs in: %s", parts[i], err.text);
    }
    // What is told is there.
    give(take(pool, 16384));
    assert_int_equal(stats(pool).held_bytes, held);

    for (unsigned i = 0; i < SIZES; i++)
        give(kept[i]);
    const uint64_t whole = take(pool, 8 * MIB);
    give(whole);
    destroy(pool);
}

// --- giving back ------------------------------------------------------------

static void wait_a_tick(void)
{
    const int64_t before = stk_size_clock();
    while (stk_size_clock() == before)
        nanosleep(&(struct timespec){ .tv_nsec = 1000000 }, NULL);
}

PEN_TEST(trim_gives_back_what_was_idle_longest)
{
    struct stk_size_pool *pool = make(0);
    // On the stack, one tick after the other: 1, 2, 3 MiB.
    for (unsigned mib = 1; mib <= 3; mib++) {
        give(take(pool, (size_t)mib * MIB));
        unsigned number;
        size_t block;
        stk_size_class((size_t)mib * MIB, &number, &block);
        struct stk_size_class *cls = atomic_load(&pool->classes[number]);
        pthread_mutex_lock(&cls->lock);
        assert_int_equal(stk_size_empty_lines(cls), 1);
        pthread_mutex_unlock(&cls->lock);
        wait_a_tick();
    }
    assert_int_equal(stk_size_pool_trim(pool, 6 * MIB), 0);
    assert_int_equal(stk_size_pool_trim(pool, 5 * MIB), 1 * MIB);
    give(take(pool, 2 * MIB));
    give(take(pool, 3 * MIB));
    assert_int_equal(stats(pool).driver_allocs, 3);
    assert_int_equal(stk_size_pool_trim(pool, 0), 5 * MIB);
    assert_int_equal(stats(pool).held_bytes, 0);
    assert_int_equal(stats(pool).driver_frees, 3);
    // A slab goes when all of its blocks are free.
    const uint64_t a = take(pool, 1000), b = take(pool, 1000);
    give(a);
    assert_int_equal(stk_size_pool_trim(pool, 0), 0);
    assert_int_equal(stats(pool).live, 1);
    stamp(b, 1000, 5);
    give(b);
    assert_true(stk_size_pool_trim(pool, 0) >= 64 << 10);
    assert_int_equal(stats(pool).held_bytes, 0);
    destroy(pool);
}

PEN_TEST(idle_blocks_go_back_as_the_pool_is_used)
{
    struct stk_size_pool *pool =
        make_with((struct stk_size_pool_params){ .decay_ns = 20000000 });
    give(take(pool, 5 * MIB));
    uint64_t used = 0;
    // Always the same other block, out of the thread's line.
    for (unsigned i = 0; i < 2000 && !stats(pool).driver_frees; i++) {
        for (unsigned j = 0; j < 1024; j++) {
            const uint64_t a = take(pool, 3 * MIB);
            assert_true(!used || used == a);
            used = a;
            give(a);
        }
        nanosleep(&(struct timespec){ .tv_nsec = 5000000 }, NULL);
    }
    assert_int_equal(stats(pool).driver_frees, 1);
    assert_int_equal(stats(pool).held_bytes, 3 * MIB);
    destroy(pool);

    pool = make(0);  // never
    give(take(pool, 5 * MIB));
    wait_a_tick();
    for (unsigned i = 0; i < 5000; i++)
        give(take(pool, 3 * MIB));
    assert_int_equal(stats(pool).driver_frees, 0);
    destroy(pool);
}

static void *take_and_give_one(void *pool)
{
    give(take(pool, PICTURE));
    return NULL;
}

PEN_TEST(a_thread_that_ends_leaves_its_blocks_to_the_next)
{
    struct stk_size_pool *pool = make(0);
    for (unsigned i = 0; i < 300; i++)
        in_thread(take_and_give_one, pool);
    assert_int_equal(stats(pool).driver_allocs, 1);
    destroy(pool);
}

// --- the end of a pool ------------------------------------------------------

static void count_gone(void *cookie)
{
    ++*(_Atomic unsigned *)cookie;
}

PEN_TEST(blocks_outlive_their_pool)
{
    _Atomic unsigned gone = 0;
    struct stk_ledger *ledger = stk_ledger_create(true);
    struct stk_size_pool *pool = make_with((struct stk_size_pool_params){
        .gone = count_gone, .cookie = &gone, .ledger = ledger });
    const uint64_t a = take(pool, PICTURE), b = take(pool, 100),
                   c = take(pool, 100);
    give(take(pool, 3 * MIB));
    struct pen_error err = { 0 };
    assert_int_equal(stk_size_pool_destroy(&pool, &err), PEN_E_LEAK);
    assert_null(pool);
    assert_non_null(strstr(err.text, "3 blocks out"));
    assert_non_null(strstr(err.text, "6221000 bytes"));
    assert_int_equal(gone, 0);
    stamp(a, PICTURE, 1);
    stamp(b, 100, 2);
    stamp(c, 100, 3);
    give(a);
    assert_int_equal(try_free(a), PEN_E_ARG);  // its memory is gone
    assert_true(stamped(b, 100, 2));
    give(b);
    assert_int_equal(try_free(b), PEN_E_STATE);
    assert_true(stamped(c, 100, 3));
    struct stk_ledger_totals t;
    stk_ledger_totals(ledger, STK_RES_HOST, &t);
    assert_int_equal(t.live, 1);
    assert_int_equal(gone, 0);
    give(c);
    assert_int_equal(gone, 1);
    stk_ledger_totals(ledger, STK_RES_HOST, &t);
    assert_int_equal(t.live, 0);
    stk_ledger_destroy(&ledger);
}

struct closing {
    uint64_t block[64];
    _Atomic unsigned go;
};

static void *give_while_closing(void *cookie)
{
    struct closing *c = cookie;
    while (!c->go)
        ;
    for (unsigned i = 0; i < 64; i++)
        give(c->block[i]);
    return NULL;
}

PEN_TEST(a_pool_is_destroyed_while_others_free)
{
    for (unsigned round = 0; round < pen_test_seeds(100, 2000); round++) {
        _Atomic unsigned gone = 0;
        struct stk_size_pool *pool = make_with((struct stk_size_pool_params){
            .gone = count_gone, .cookie = &gone });
        static struct closing c[3];
        pthread_t threads[3];
        for (unsigned i = 0; i < 3; i++) {
            c[i].go = 0;
            for (unsigned j = 0; j < 64; j++)
                c[i].block[j] = take(pool, j % 2 ? 200 : 65000 + 8192 * i);
            pthread_create(&threads[i], NULL, give_while_closing, &c[i]);
        }
        for (unsigned i = 0; i < 3; i++)
            c[i].go = 1;
        for (unsigned i = 0; i < round % 8; i++)
            sched_yield();
        const enum pen_status st = stk_size_pool_destroy(&pool, NULL);
        assert_true(st == PEN_OK || st == PEN_E_LEAK);
        for (unsigned i = 0; i < 3; i++)
            pthread_join(threads[i], NULL);
        assert_int_equal(gone, 1);
    }
}

PEN_TEST(params_are_checked)
{
    struct stk_size_pool *pool = NULL;
    struct pen_error err = { 0 };
    struct stk_size_pool_params p = { .mem = PEN_MEM_DMABUF };
    assert_int_equal(stk_size_pool_create(&p, &pool, &err), PEN_E_ARG);
    p.mem = (enum pen_mem_type)77;
    assert_int_equal(stk_size_pool_create(&p, &pool, &err), PEN_E_ARG);
    p.mem = PEN_MEM_HOST_PINNED;
    assert_int_equal(stk_size_pool_create(&p, &pool, &err), PEN_E_ARG);
    assert_non_null(strstr(err.text, "needs a device"));
    p.mem = PEN_MEM_CUDA_DEVICE;
    assert_int_equal(stk_size_pool_create(&p, &pool, &err), PEN_E_ARG);
    assert_null(pool);
    assert_int_equal(stk_size_pool_destroy(&pool, NULL), PEN_OK);
}

// --- failures ---------------------------------------------------------------

PEN_TEST(every_failed_allocation_is_told_and_leaves_nothing)
{
    // The last one is where the map has seen nothing yet.
    const size_t sizes[] = { 100, 70000, 3 * MIB, 300 * MIB };
    for (unsigned k = 0; k < 4; k++) {
        bool fired = true;
        unsigned failures = 0;
        for (unsigned nth = 1; fired; nth++) {
            struct stk_ledger *ledger = stk_ledger_create(false);
            const struct stk_size_pool_params p = { .mem = PEN_MEM_HOST,
                                                    .owner = "test",
                                                    .ledger = ledger };
            struct stk_size_pool *pool = NULL;
            uint64_t a = 0;
            struct pen_error err = { 0 };
            pen_alloc_fail_arm(nth, false);
            enum pen_status st = stk_size_pool_create(&p, &pool, &err);
            if (!st)
                st = stk_size_pool_alloc(pool, sizes[k], &a, &err);
            fired = pen_alloc_fail_disarm();
            // An allocation that failed once may be tried again after idle
            // memory was looked for: none is idle here.
            assert_int_equal(st, fired ? PEN_E_NOMEM : PEN_OK);
            if (fired) {
                failures++;
                assert_int_equal(err.status, PEN_E_NOMEM);
                assert_string_equal(err.where, "test");
                assert_non_null(strstr(err.text, "bytes"));
            }
            if (pool) {
                // As if nothing had been: the next one succeeds.
                if (fired) {
                    assert_int_equal(stats(pool).held_bytes, 0);
                    a = take(pool, sizes[k]);
                }
                give(a);
                destroy(pool);
            }
            struct stk_ledger_totals t;
            stk_ledger_totals(ledger, STK_RES_HOST, &t);
            assert_int_equal(t.live, 0);
            assert_int_equal(t.live_bytes, 0);
            stk_ledger_destroy(&ledger);
        }
        // The pool, the class, the stack, the memory; descriptors and leaves
        // may be there from before.
        assert_true(failures >= 4);
    }
}

PEN_TEST(a_pool_that_cannot_be_made_leaves_nothing)
{
    const struct pen_pool_params params = { .mem = PEN_MEM_HOST };
    unsigned failures = 0;
    bool fired = true;
    for (unsigned nth = 1; fired; nth++) {
        struct pen_pool *pool = NULL;
        struct pen_error err = { 0 };
        pen_alloc_fail_arm(nth, false);
        const enum pen_status st = pen_pool_create(&params, &pool, &err);
        fired = pen_alloc_fail_disarm();
        assert_int_equal(st, fired ? PEN_E_NOMEM : PEN_OK);
        failures += fired;
        if (fired) {
            assert_null(pool);
            assert_int_equal(err.status, PEN_E_NOMEM);
            assert_non_null(strstr(err.text, "bytes"));
        } else {
            assert_int_equal(pen_pool_destroy(&pool, &err), PEN_OK);
        }
    }
    assert_int_equal(failures, 3);  // it, its account, its core
}

PEN_TEST(memory_that_is_short_comes_from_idle_blocks)
{
    struct stk_size_pool *pool = make(0);
    give(take(pool, 3 * MIB));
    // Class, stack and descriptor are there, so that the memory is what fails.
    give(take(pool, 70000));
    stk_size_pool_trim(pool, 3 * MIB);
    assert_int_equal(stats(pool).held_bytes, 3 * MIB);
    pen_alloc_fail_arm(1, false);
    const uint64_t a = take(pool, 70000);
    assert_true(pen_alloc_fail_disarm());
    assert_int_equal(stats(pool).driver_frees, 2);
    give(a);
    destroy(pool);
}

// --- many threads -----------------------------------------------------------

// Blocks of random sizes, freed by whoever finds them. Each is stamped at both
// ends by who took it, and read before it is freed: blocks that overlapped, or
// were given twice, would show.
enum { PLACES = 96, WORKERS = 6 };

struct shared {
    struct stk_size_pool *pool;
    unsigned rounds;
    struct place {
        pthread_mutex_t lock;
        uint64_t address, id;
        size_t bytes;
    } place[PLACES];
};

struct worker {
    struct shared *shared;
    uint64_t seed;
    uint64_t allocs, refused;
};

static size_t random_size(uint64_t *seed)
{
    const unsigned bits = 4 + pen_test_random(seed) % 18;
    return 16 + pen_test_random(seed) % ((size_t)1 << bits);
}

static void *work(void *cookie)
{
    struct worker *w = cookie;
    const unsigned rounds = w->shared->rounds;
    for (unsigned i = 0; i < rounds; i++) {
        struct place *p = &w->shared->place[pen_test_random(&w->seed) % PLACES];
        pthread_mutex_lock(&p->lock);
        if (p->address) {
            assert_true(stamped(p->address, p->bytes, p->id));
            give(p->address);
            p->address = 0;
        } else {
            p->bytes = random_size(&w->seed);
            p->id = w->seed;
            const enum pen_status st = stk_size_pool_alloc(
                w->shared->pool, p->bytes, &p->address, NULL);
            assert_true(st == PEN_OK || st == PEN_E_LIMIT);
            w->allocs += st == PEN_OK;
            w->refused += st != PEN_OK;
            if (p->address)
                stamp(p->address, p->bytes, p->id);
        }
        pthread_mutex_unlock(&p->lock);
        if (i % 4096 == 0)
            stk_size_pool_trim(w->shared->pool, i % 8192 ? 0 : MIB);
    }
    return NULL;
}

static void many_threads(uint64_t max_bytes, unsigned rounds)
{
    static struct shared shared;
    memset(&shared, 0, sizeof(shared));
    shared.rounds = rounds;
    shared.pool = make_with((struct stk_size_pool_params){
        .max_bytes = max_bytes, .decay_ns = 1000000 });
    for (unsigned i = 0; i < PLACES; i++)
        pthread_mutex_init(&shared.place[i].lock, NULL);
    struct worker w[WORKERS];
    pthread_t threads[WORKERS];
    uint64_t allocs = 0;
    for (unsigned i = 0; i < WORKERS; i++) {
        w[i] = (struct worker){ .shared = &shared, .seed = 1000 + i };
        pthread_create(&threads[i], NULL, work, &w[i]);
    }
    for (unsigned i = 0; i < WORKERS; i++) {
        pthread_join(threads[i], NULL);
        allocs += w[i].allocs;
    }
    uint64_t live = 0, used = 0;
    for (unsigned i = 0; i < PLACES; i++) {
        live += shared.place[i].address != 0;
        used += shared.place[i].address ? shared.place[i].bytes : 0;
    }
    struct pen_pool_stats s = stats(shared.pool);
    assert_int_equal(s.allocs, allocs);
    assert_int_equal(s.live, live);
    assert_int_equal(s.frees, allocs - live);
    assert_int_equal(s.used_bytes, used);
    assert_int_equal(s.bad_frees, 0);
    if (max_bytes)
        assert_true(s.held_peak <= max_bytes);
    for (unsigned i = 0; i < PLACES; i++) {
        struct place *p = &shared.place[i];
        assert_true(!p->address || stamped(p->address, p->bytes, p->id));
        give(p->address);
        pthread_mutex_destroy(&p->lock);
    }
    stk_size_pool_trim(shared.pool, 0);
    s = stats(shared.pool);
    assert_int_equal(s.held_bytes, 0);
    assert_int_equal(s.driver_allocs, s.driver_frees);
    destroy(shared.pool);
}

PEN_TEST(blocks_of_many_threads_never_overlap)
{
    many_threads(0, pen_test_seeds(10000, 400000));
}

PEN_TEST(nor_do_they_under_a_limit)
{
    many_threads(8 * MIB, pen_test_seeds(4000, 100000));
}

struct emptied {
    struct stk_size_pool *pool;
    _Atomic bool stop;
    _Atomic uint64_t pairs;
};

static void *use_a_line(void *cookie)
{
    struct emptied *e = cookie;
    const uint64_t me = (uint64_t)(uintptr_t)&e;
    uint64_t pairs = 0;
    while (!e->stop) {
        const uint64_t a = take(e->pool, 70000), b = take(e->pool, 70000);
        assert_true(a != b);
        stamp(a, 70000, me);
        stamp(b, 70000, me + 1);
        assert_true(stamped(a, 70000, me));
        give(b);
        give(a);
        pairs += 2;
    }
    e->pairs += pairs;
    return NULL;
}

// A block that is taken out of a line by its owner and by another one at the
// same moment would be given twice, or be lost.
PEN_TEST(lines_are_emptied_while_their_owners_use_them)
{
    struct emptied e = { .pool = make(0) };
    give(take(e.pool, 70000));
    unsigned number;
    size_t block;
    stk_size_class(70000, &number, &block);
    struct stk_size_class *cls = atomic_load(&e.pool->classes[number]);
    pthread_t threads[3];
    for (unsigned i = 0; i < 3; i++)
        pthread_create(&threads[i], NULL, use_a_line, &e);
    for (unsigned i = 0; i < pen_test_seeds(20000, 1000000); i++) {
        pthread_mutex_lock(&cls->lock);
        stk_size_empty_lines(cls);
        pthread_mutex_unlock(&cls->lock);
        for (volatile unsigned j = 0; j < i % 512; j++)
            ;
    }
    e.stop = true;
    for (unsigned i = 0; i < 3; i++)
        pthread_join(threads[i], NULL);
    const struct pen_pool_stats s = stats(e.pool);
    assert_int_equal(s.allocs, e.pairs + 1);
    assert_int_equal(s.live, 0);
    assert_int_equal(s.bad_frees, 0);
    assert_int_equal(stk_size_count_free(cls), s.driver_allocs);
    assert_true(s.driver_allocs <= 3 * (STK_MAX_SLOTS + 2));
    stk_size_pool_trim(e.pool, 0);
    assert_int_equal(stats(e.pool).held_bytes, 0);
    destroy(e.pool);
}

static void *free_at_random(void *cookie)
{
    struct worker *w = cookie;
    for (unsigned i = 0; i < 20000; i++) {
        struct place *p = &w->shared->place[pen_test_random(&w->seed) % PLACES];
        const uint64_t address = p->address;
        if (try_free(address) == PEN_OK)
            w->allocs++;
    }
    return NULL;
}

// The same blocks are freed by three threads at once: one of them succeeds.
PEN_TEST(of_several_who_free_a_block_one_does)
{
    static struct shared shared;
    memset(&shared, 0, sizeof(shared));
    shared.pool = make(0);
    for (unsigned i = 0; i < PLACES; i++)
        shared.place[i].address = take(shared.pool, i % 2 ? 100 : 70000);
    struct worker w[3];
    pthread_t threads[3];
    uint64_t freed = 0;
    for (unsigned i = 0; i < 3; i++) {
        w[i] = (struct worker){ .shared = &shared, .seed = i + 1 };
        pthread_create(&threads[i], NULL, free_at_random, &w[i]);
    }
    for (unsigned i = 0; i < 3; i++) {
        pthread_join(threads[i], NULL);
        freed += w[i].allocs;
    }
    assert_int_equal(freed, PLACES);
    assert_int_equal(stats(shared.pool).live, 0);
    assert_int_equal(stats(shared.pool).bad_frees, 3 * 20000 - PLACES);
    destroy(shared.pool);
}

PEN_TEST_MAIN(PEN_CASE(classes_waste_less_than_an_eighth),
              PEN_CASE(sizes_that_no_class_has_are_refused),
              PEN_CASE(the_map_holds_what_random_addresses_were_given),
              PEN_CASE(the_map_refuses_what_it_cannot_hold),
              PEN_CASE(a_block_that_came_back_is_given_again),
              PEN_CASE(blocks_are_aligned_and_apart),
              PEN_CASE(what_is_not_out_is_not_freed),
              PEN_CASE(what_one_thread_keeps_another_one_gets),
              PEN_CASE(eight_threads_do_not_starve_over_six_blocks),
              PEN_CASE(the_limit_is_told_with_what_is_held),
              PEN_CASE(a_slab_is_cut_to_the_limit),
              PEN_CASE(free_blocks_that_do_not_help_are_told_by_size),
              PEN_CASE(trim_gives_back_what_was_idle_longest),
              PEN_CASE(idle_blocks_go_back_as_the_pool_is_used),
              PEN_CASE(a_thread_that_ends_leaves_its_blocks_to_the_next),
              PEN_CASE(blocks_outlive_their_pool),
              PEN_CASE(a_pool_is_destroyed_while_others_free),
              PEN_CASE(params_are_checked),
              PEN_CASE(every_failed_allocation_is_told_and_leaves_nothing),
              PEN_CASE(a_pool_that_cannot_be_made_leaves_nothing),
              PEN_CASE(memory_that_is_short_comes_from_idle_blocks),
              PEN_CASE(blocks_of_many_threads_never_overlap),
              PEN_CASE(nor_do_they_under_a_limit),
              PEN_CASE(lines_are_emptied_while_their_owners_use_them),
              PEN_CASE(of_several_who_free_a_block_one_does))
