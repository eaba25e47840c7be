// Pools of host memory, which need no device: bounds, order, growth, life of
// the storage, threads. test_pool_device has the rest.

#include <errno.h>
#include <pthread.h>
#include <semaphore.h>
#include <stdatomic.h>
#include <stdio.h>
#include <time.h>

#include "src/mem/pool.h"
#include "src/mem/type.h"

#include "alloc_fail.h"
#include "pen_test.h"

static struct stk_ledger_totals host_totals(struct stk_ledger *l)
{
    struct stk_ledger_totals t;
    stk_ledger_totals(l, STK_RES_HOST, &t);
    return t;
}

static struct stk_pool *host_pool(size_t bytes, uint32_t blocks,
                                  struct stk_ledger *ledger)
{
    const struct stk_pool_params p = {
        .mem = PEN_MEM_HOST,
        .block_bytes = bytes,
        .blocks = blocks,
        .ledger = ledger,
        .owner = "test.output",
    };
    struct stk_pool *pool = NULL;
    assert_int_equal(stk_pool_create(&p, &pool, NULL), PEN_OK);
    assert_non_null(pool);
    return pool;
}

static struct stk_buffer *take(struct stk_pool *pool)
{
    struct stk_buffer *b = NULL;
    struct stk_point wait;
    assert_int_equal(stk_pool_take(pool, NULL, &b, &wait, NULL), PEN_OK);
    assert_non_null(b);
    return b;
}

static void expect_again(struct stk_pool *pool)
{
    struct stk_buffer *b = NULL;
    struct stk_point wait;
    assert_int_equal(stk_pool_take(pool, NULL, &b, &wait, NULL), PEN_AGAIN);
    assert_null(b);
    assert_null(wait.stream);
}

PEN_TEST(the_table_of_memory_types_agrees_with_itself)
{
    unsigned there = 0;
    for (int m = 0; m < PEN_MEM_COUNT; m++) {
        const struct stk_mem_type *t = stk_mem_type((enum pen_mem_type)m);
        if (!t)
            continue;
        there |= PEN_MEM_BIT(m);
        assert_int_equal(t->type, m);
        assert_non_null(t->alloc);
        assert_non_null(t->free);
        assert_int_equal((t->caps & STK_MEM_GROW) != 0, t->grow != NULL);
        assert_int_equal(t->caps & ~(unsigned)(STK_MEM_MAP | STK_MEM_GROW), 0);
    }
    assert_int_equal(there, PEN_MEM_BIT(PEN_MEM_HOST) |
                                PEN_MEM_BIT(PEN_MEM_HOST_PINNED) |
                                PEN_MEM_BIT(PEN_MEM_CUDA_DEVICE) |
                                PEN_MEM_BIT(PEN_MEM_DMABUF));
}

PEN_TEST(all_blocks_are_made_at_once_and_in_the_ledger_by_owner)
{
    struct stk_ledger *l = stk_ledger_create(true);
    struct stk_pool *pool = host_pool(1000, 5, l);
    struct stk_ledger_totals t = host_totals(l);
    assert_int_equal(t.live, 5);
    assert_int_equal(t.live_bytes, 5000);

    struct stk_buffer *b[5];
    for (int i = 0; i < 5; i++) {
        b[i] = take(pool);
        assert_int_equal(b[i]->mem, PEN_MEM_HOST);
        assert_int_equal(b[i]->block.bytes, 1000);
        assert_int_equal(b[i]->block.address, (uintptr_t)b[i]->block.host);
        assert_int_equal(b[i]->block.address % 64, 0);
        memset(b[i]->block.host, i, 1000);
    }
    for (int i = 0; i < 5; i++) {
        assert_int_equal(((uint8_t *)b[i]->block.host)[999], i);
        stk_buffer_unref(b[i]);
    }
    assert_int_equal(host_totals(l).added, 5);
    stk_pool_destroy(&pool);
    assert_null(pool);
    assert_int_equal(host_totals(l).live, 0);
    assert_int_equal(host_totals(l).live_bytes, 0);
    stk_ledger_destroy(&l);
}

PEN_TEST(large_host_blocks_are_whole_pages)
{
    struct stk_pool *pool = host_pool((1 << 20) + 1, 2, NULL);
    struct stk_buffer *b = take(pool);
    assert_int_equal(b->block.address % 4096, 0);
    assert_int_equal(b->block.bytes, (1 << 20) + 1);
    stk_buffer_unref(b);
    stk_pool_destroy(&pool);
}

PEN_TEST(a_pool_gives_no_more_than_its_blocks)
{
    struct stk_pool *pool = host_pool(64, 3, NULL);
    struct stk_buffer *b[3] = { take(pool), take(pool), take(pool) };
    expect_again(pool);
    expect_again(pool);
    stk_buffer_unref(b[1]);
    assert_ptr_equal(take(pool), b[1]);
    expect_again(pool);

    struct stk_pool_stats s;
    stk_pool_stats(pool, &s);
    assert_int_equal(s.blocks, 3);
    assert_int_equal(s.block_bytes, 64);
    assert_int_equal(s.in_use, 3);
    assert_int_equal(s.max_in_use, 3);
    assert_int_equal(s.takes, 4);
    assert_int_equal(s.waits, 3);
    assert_int_equal(s.grown, 0);
    for (int i = 0; i < 3; i++)
        stk_buffer_unref(b[i]);
    stk_pool_stats(pool, &s);
    assert_int_equal(s.in_use, 0);
    assert_int_equal(s.max_in_use, 3);
    stk_pool_destroy(&pool);
}

PEN_TEST(a_pool_uses_no_more_blocks_than_are_needed_at_once)
{
    struct stk_pool *pool = host_pool(64, 4, NULL);
    for (int i = 0; i < 100; i++) {
        struct stk_buffer *a = take(pool), *b = take(pool);
        assert_ptr_not_equal(a, b);
        stk_buffer_unref(i % 2 ? a : b);
        stk_buffer_unref(i % 2 ? b : a);
    }
    struct stk_pool_stats s;
    stk_pool_stats(pool, &s);
    assert_int_equal(s.max_in_use, 2);
    assert_int_equal(s.takes, 200);
    // Each of the four is reached all the same.
    struct stk_buffer *b[4];
    for (int i = 0; i < 4; i++)
        b[i] = take(pool);
    expect_again(pool);
    for (int i = 0; i < 4; i++)
        stk_buffer_unref(b[i]);
    stk_pool_stats(pool, &s);
    assert_int_equal(s.max_in_use, 4);
    assert_int_equal(s.in_use, 0);
    stk_pool_destroy(&pool);
}

PEN_TEST(a_buffer_comes_back_with_its_last_reference)
{
    struct stk_pool *pool = host_pool(64, 1, NULL);
    struct stk_buffer *b = take(pool);
    assert_ptr_equal(stk_buffer_ref(b), b);
    stk_buffer_unref(b);
    expect_again(pool);
    stk_buffer_unref(b);
    assert_ptr_equal(take(pool), b);
    stk_buffer_unref(b);
    stk_buffer_unref(NULL);
    stk_pool_destroy(&pool);
}

PEN_TEST(parameters_that_make_no_pool_are_refused)
{
    static const struct {
        struct stk_pool_params p;
        const char *says;
    } bad[] = {
        { { .mem = PEN_MEM_HOST, .blocks = 1 }, "0 bytes" },
        { { .mem = PEN_MEM_HOST, .block_bytes = 1, .owner = "x.y" },
          "0 blocks" },
        { { .mem = PEN_MEM_NONE, .block_bytes = 1, .blocks = 1 }, "?" },
        { { .mem = PEN_MEM_DMABUF, .block_bytes = 1, .blocks = 1 }, "DMABUF" },
        { { .mem = PEN_MEM_CUDA_DEVICE, .block_bytes = 1, .blocks = 1 },
          "device" },
        { { .mem = PEN_MEM_HOST_PINNED, .block_bytes = 1, .blocks = 1 },
          "device" },
    };
    for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
        struct stk_pool *pool = (struct stk_pool *)1;
        struct pen_error err = { 0 };
        assert_int_equal(stk_pool_create(&bad[i].p, &pool, &err), PEN_E_ARG);
        assert_null(pool);
        assert_non_null(strstr(err.text, bad[i].says));
        assert_string_equal(err.where,
                            bad[i].p.owner ? bad[i].p.owner : "pool");
    }
}

PEN_TEST(a_block_beyond_all_memory_is_refused_with_its_size)
{
    struct stk_ledger *l = stk_ledger_create(true);
    const struct stk_pool_params p = {
        .mem = PEN_MEM_HOST,
        .block_bytes = SIZE_MAX,
        .blocks = 2,
        .ledger = l,
        .owner = "big.output",
    };
    struct stk_pool *pool = NULL;
    struct pen_error err = { 0 };
    assert_int_equal(stk_pool_create(&p, &pool, &err), PEN_E_NOMEM);
    assert_non_null(strstr(err.text, "16.00 EiB"));
    assert_non_null(strstr(err.text, "18446744073709551615"));
    assert_int_equal(host_totals(l).live, 0);
    stk_ledger_destroy(&l);
}

PEN_TEST(sizes_and_counts_near_the_end_of_numbers_are_refused)
{
    static const struct {
        size_t bytes;
        uint32_t blocks, more;
    } bad[] = {
        { SIZE_MAX - 63, 1, 0 },        { SIZE_MAX - 4096, 8, 0 },
        { SIZE_MAX / 2 + 1, 2, 0 },     { SIZE_MAX / 2 - 62, 3, 0 },
        { 64, UINT32_MAX, UINT32_MAX }, { 64, 1, UINT32_MAX },
    };
    struct stk_ledger *l = stk_ledger_create(true);
    for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
        const struct stk_pool_params p = {
            .mem = PEN_MEM_HOST,
            .block_bytes = bad[i].bytes,
            .blocks = bad[i].blocks,
            .more_blocks = bad[i].more,
            .ledger = l,
        };
        struct stk_pool *pool = NULL;
        struct pen_error err = { 0 };
        assert_int_equal(stk_pool_create(&p, &pool, &err), PEN_E_NOMEM);
        assert_non_null(strstr(err.text, "block"));
        assert_null(pool);
        assert_int_equal(host_totals(l).live, 0);
    }
    // A pool that is told to grow beyond all memory stays usable once it is
    // no longer: the blocks that are out keep what they have.
    struct stk_pool *pool = host_pool(64, 2, l);
    struct stk_buffer *held = take(pool), *b = NULL;
    struct stk_point wait;
    struct pen_error err = { 0 };
    assert_int_equal(stk_pool_grow(pool, SIZE_MAX, &err), PEN_E_NOMEM);
    assert_int_equal(stk_pool_take(pool, NULL, &b, &wait, &err), PEN_E_NOMEM);
    assert_int_equal(stk_buffer_bytes(held), 64);
    stk_buffer_unref(held);
    stk_pool_destroy(&pool);
    assert_int_equal(host_totals(l).live, 0);
    stk_ledger_destroy(&l);
}

// --- growth -----------------------------------------------------------------

PEN_TEST(growth_replaces_free_blocks_now_and_others_when_taken)
{
    struct stk_ledger *l = stk_ledger_create(true);
    struct stk_pool *pool = host_pool(100, 3, l);
    struct stk_buffer *held = take(pool);
    memset(held->block.host, 7, 100);
    assert_int_equal(stk_pool_grow(pool, 300, NULL), PEN_OK);
    assert_int_equal(stk_pool_block_bytes(pool), 300);
    assert_int_equal(host_totals(l).live_bytes, 700);
    assert_int_equal(held->block.bytes, 100);
    assert_int_equal(((uint8_t *)held->block.host)[99], 7);

    struct stk_buffer *a = take(pool), *b = take(pool);
    assert_int_equal(a->block.bytes, 300);
    assert_int_equal(b->block.bytes, 300);
    stk_buffer_unref(held);
    held = take(pool);
    assert_int_equal(held->block.bytes, 300);
    memset(held->block.host, 8, 300);
    struct stk_pool_stats s;
    stk_pool_stats(pool, &s);
    assert_int_equal(s.grown, 3);
    assert_int_equal(s.block_bytes, 300);
    // never more than the blocks of the new size
    assert_int_equal(host_totals(l).peak_bytes, 900);

    stk_buffer_unref(a);
    stk_buffer_unref(b);
    stk_buffer_unref(held);
    stk_pool_destroy(&pool);
    assert_int_equal(host_totals(l).live, 0);
    stk_ledger_destroy(&l);
}

PEN_TEST(growth_to_a_size_that_is_not_larger_changes_nothing)
{
    struct stk_ledger *l = stk_ledger_create(false);
    struct stk_pool *pool = host_pool(100, 2, l);
    assert_int_equal(stk_pool_grow(pool, 100, NULL), PEN_OK);
    assert_int_equal(stk_pool_grow(pool, 1, NULL), PEN_OK);
    assert_int_equal(stk_pool_block_bytes(pool), 100);
    assert_int_equal(host_totals(l).added, 2);
    stk_pool_destroy(&pool);
    stk_ledger_destroy(&l);
}

PEN_TEST(growth_twice_while_a_block_is_out_gives_the_last_size)
{
    struct stk_pool *pool = host_pool(100, 1, NULL);
    struct stk_buffer *b = take(pool);
    assert_int_equal(stk_pool_grow(pool, 200, NULL), PEN_OK);
    assert_int_equal(stk_pool_grow(pool, 300, NULL), PEN_OK);
    stk_buffer_unref(b);
    b = take(pool);
    assert_int_equal(b->block.bytes, 300);
    stk_buffer_unref(b);
    stk_pool_destroy(&pool);
}

// --- life -------------------------------------------------------------------

PEN_TEST(buffers_that_are_out_outlive_their_pool)
{
    struct stk_ledger *l = stk_ledger_create(true);
    struct stk_pool *pool = host_pool(128, 3, l);
    struct stk_buffer *a = take(pool), *b = take(pool);
    stk_pool_destroy(&pool);
    assert_int_equal(host_totals(l).live, 2);
    memset(a->block.host, 1, a->block.bytes);
    memset(b->block.host, 2, b->block.bytes);
    stk_buffer_unref(b);
    assert_int_equal(host_totals(l).live, 1);
    assert_int_equal(((uint8_t *)a->block.host)[127], 1);
    stk_buffer_unref(a);
    assert_int_equal(host_totals(l).live, 0);
    stk_ledger_destroy(&l);
}

PEN_TEST(destroying_no_pool_is_allowed)
{
    struct stk_pool *pool = NULL;
    stk_pool_destroy(&pool);
}

static void count_return(void *cookie)
{
    ++*(atomic_uint *)cookie;
}

PEN_TEST(a_return_is_told_once_somebody_found_no_block)
{
    atomic_uint returns = 0;
    const struct stk_pool_params p = {
        .mem = PEN_MEM_HOST,
        .block_bytes = 64,
        .blocks = 3,
        .more_blocks = 1,
        .returned = count_return,
        .cookie = &returns,
    };
    struct stk_pool *pool = NULL;
    assert_int_equal(stk_pool_create(&p, &pool, NULL), PEN_OK);
    struct stk_buffer *b[3] = { take(pool), take(pool), take(pool) };
    stk_buffer_unref(b[0]);
    assert_int_equal(returns, 0);  // nobody asked
    b[0] = take(pool);
    expect_again(pool);
    assert_int_equal(returns, 0);
    stk_buffer_unref(b[0]);
    assert_int_equal(returns, 1);
    stk_buffer_unref(b[1]);
    assert_int_equal(returns, 1);  // who was told looks at all of them

    b[0] = take(pool);
    b[1] = take(pool);
    expect_again(pool);
    assert_int_equal(stk_pool_add(pool, 1, NULL), PEN_OK);
    assert_int_equal(returns, 2);
    struct stk_buffer *more = take(pool);
    expect_again(pool);
    stk_buffer_unref(more);
    assert_int_equal(returns, 3);

    more = take(pool);
    expect_again(pool);
    stk_pool_destroy(&pool);
    for (int i = 0; i < 3; i++)
        stk_buffer_unref(b[i]);
    stk_buffer_unref(more);
    assert_int_equal(returns, 3);
}

struct reentry {
    struct stk_pool *pool;
    struct stk_buffer *taken;
};

static void take_again(void *cookie)
{
    struct reentry *r = cookie;
    struct stk_point wait;
    if (!r->taken)
        assert_int_equal(stk_pool_take(r->pool, NULL, &r->taken, &wait, NULL),
                         PEN_OK);
}

PEN_TEST(who_is_told_of_a_return_may_take_at_once)
{
    // The callback is made without lock: this would hang otherwise.
    struct reentry r = { 0 };
    const struct stk_pool_params p = {
        .mem = PEN_MEM_HOST,
        .block_bytes = 64,
        .blocks = 1,
        .returned = take_again,
        .cookie = &r,
    };
    assert_int_equal(stk_pool_create(&p, &r.pool, NULL), PEN_OK);
    struct stk_buffer *b = take(r.pool);
    expect_again(r.pool);
    stk_buffer_unref(b);
    assert_non_null(r.taken);
    expect_again(r.pool);
    stk_buffer_unref(r.taken);
    stk_pool_destroy(&r.pool);
}

static void release_once(void *cookie)
{
    ++*(unsigned *)cookie;
}

PEN_TEST(foreign_memory_is_released_with_its_last_reference)
{
    static char bytes[100];
    unsigned released = 0;
    struct stk_buffer *b = NULL;
    struct pen_foreign memory = {
        .mem = PEN_MEM_HOST,
        .host = bytes,
        .bytes = sizeof(bytes),
        .release = release_once,
        .cookie = &released,
    };
    assert_int_equal(stk_buffer_wrap(&memory, NULL, &b, NULL), PEN_OK);
    assert_ptr_equal(b->block.host, bytes);
    assert_int_equal(b->block.address, (uintptr_t)bytes);
    assert_int_equal(b->block.bytes, 100);
    assert_true(stk_buffer_on_host(b));
    assert_false(stk_buffer_on_stream(b));
    stk_buffer_ref(b);
    stk_buffer_unref(b);
    assert_int_equal(released, 0);
    stk_buffer_unref(b);
    assert_int_equal(released, 1);

    memory.release = NULL;
    assert_int_equal(stk_buffer_wrap(&memory, NULL, &b, NULL), PEN_OK);
    stk_buffer_unref(b);
}

PEN_TEST(foreign_memory_without_address_or_size_is_refused)
{
    static char bytes[100];
    unsigned released = 0;
    const struct pen_foreign bad[] = {
        { .mem = PEN_MEM_HOST, .address = 5, .bytes = 1 },
        { .mem = PEN_MEM_HOST, .host = bytes },
        { .mem = PEN_MEM_CUDA_DEVICE, .host = bytes, .bytes = 1 },
        { .mem = PEN_MEM_CUDA_DEVICE, .address = 64, .bytes = 1 },
        { .mem = PEN_MEM_DMABUF, .fd = -1, .bytes = 1 },
        { .mem = PEN_MEM_HOST, .host = bytes, .bytes = SIZE_MAX },
        { .mem = PEN_MEM_NONE, .host = bytes, .bytes = 1 },
    };
    struct stk_buffer *b = NULL;
    for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
        struct pen_foreign memory = bad[i];
        struct pen_error err = { 0 };
        memory.release = release_once;
        memory.cookie = &released;
        assert_int_equal(stk_buffer_wrap(&memory, NULL, &b, &err), PEN_E_ARG);
        assert_string_not_equal(err.text, "");
        assert_null(b);
    }
    assert_int_equal(released, 0);
}

// --- threads ----------------------------------------------------------------

enum { THREADS = 4, ROUNDS = 4000, BLOCKS = 3, BYTES = 256 };

struct user {
    struct stk_pool *pool;
    unsigned char mark;
    uint64_t got, again;
    bool wrong;
};

static void *use_pool(void *cookie)
{
    struct user *u = cookie;
    while (u->got < ROUNDS) {
        struct stk_buffer *b = NULL;
        struct stk_point wait;
        const enum pen_status st =
            stk_pool_take(u->pool, NULL, &b, &wait, NULL);
        if (st == PEN_AGAIN) {
            u->again++;
            continue;
        }
        u->wrong |= st != PEN_OK || b->block.bytes < BYTES;
        if (u->wrong)
            return NULL;
        // Two owners of a block would see each other's marks.
        memset(b->block.host, u->mark, b->block.bytes);
        stk_buffer_ref(b);
        stk_buffer_unref(b);
        const unsigned char *bytes = b->block.host;
        u->wrong |= bytes[0] != u->mark || bytes[b->block.bytes - 1] != u->mark;
        stk_buffer_unref(b);
        u->got++;
    }
    return NULL;
}

PEN_TEST(threads_never_share_a_block_also_while_the_pool_grows)
{
    struct stk_ledger *l = stk_ledger_create(true);
    atomic_uint returns = 0;
    const struct stk_pool_params p = {
        .mem = PEN_MEM_HOST,
        .block_bytes = BYTES,
        .blocks = BLOCKS,
        .ledger = l,
        .returned = count_return,
        .cookie = &returns,
    };
    struct stk_pool *pool = NULL;
    assert_int_equal(stk_pool_create(&p, &pool, NULL), PEN_OK);
    struct user users[THREADS] = { 0 };
    pthread_t threads[THREADS];
    for (unsigned i = 0; i < THREADS; i++) {
        users[i].pool = pool;
        users[i].mark = (unsigned char)(i + 1);
        assert_int_equal(pthread_create(&threads[i], NULL, use_pool, &users[i]),
                         0);
    }
    for (size_t bytes = 2 * BYTES; bytes <= 20 * BYTES; bytes += BYTES)
        assert_int_equal(stk_pool_grow(pool, bytes, NULL), PEN_OK);
    for (unsigned i = 0; i < THREADS; i++)
        pthread_join(threads[i], NULL);

    struct stk_pool_stats s;
    stk_pool_stats(pool, &s);
    uint64_t again = 0;
    for (unsigned i = 0; i < THREADS; i++) {
        assert_false(users[i].wrong);
        assert_int_equal(users[i].got, ROUNDS);
        again += users[i].again;
    }
    assert_int_equal(s.takes, THREADS * ROUNDS);
    assert_int_equal(s.waits, again);
    assert_int_equal(s.in_use, 0);
    assert_true(s.max_in_use >= 1 && s.max_in_use <= BLOCKS);
    assert_true(host_totals(l).peak_bytes <= 20 * BYTES * BLOCKS);
    stk_pool_destroy(&pool);
    assert_int_equal(host_totals(l).live, 0);
    assert_int_equal(host_totals(l).live_bytes, 0);
    stk_ledger_destroy(&l);
}

static void *drop(void *cookie)
{
    stk_buffer_unref(cookie);
    return NULL;
}

PEN_TEST(buffers_may_come_back_while_the_pool_is_destroyed)
{
    const unsigned rounds = pen_test_seeds(100, 2000);
    for (unsigned i = 0; i < rounds; i++) {
        struct stk_ledger *l = stk_ledger_create(true);
        atomic_uint returns = 0;
        const struct stk_pool_params p = {
            .mem = PEN_MEM_HOST,
            .block_bytes = 64,
            .blocks = 4,
            .ledger = l,
            .returned = count_return,
            .cookie = &returns,
        };
        struct stk_pool *pool = NULL;
        assert_int_equal(stk_pool_create(&p, &pool, NULL), PEN_OK);
        struct stk_buffer *a = take(pool), *b = take(pool);
        pthread_t threads[2];
        assert_int_equal(pthread_create(&threads[0], NULL, drop, a), 0);
        assert_int_equal(pthread_create(&threads[1], NULL, drop, b), 0);
        stk_pool_destroy(&pool);
        const unsigned told = returns;
        pthread_join(threads[0], NULL);
        pthread_join(threads[1], NULL);
        assert_int_equal(returns, told);  // none after destroy came back
        assert_int_equal(host_totals(l).live, 0);
        stk_ledger_destroy(&l);
    }
}

struct slow {
    sem_t inside, go;
    struct stk_pool *pool;
    atomic_bool left;
};

static void take_long(void *cookie)
{
    struct slow *s = cookie;
    sem_post(&s->inside);
    sem_wait(&s->go);
    s->left = true;
}

static void *destroy_pool(void *cookie)
{
    struct slow *s = cookie;
    stk_pool_destroy(&s->pool);
    return s->left ? NULL : cookie;
}

PEN_TEST(destroying_a_pool_waits_for_a_callback_that_runs)
{
    struct slow s = { 0 };
    sem_init(&s.inside, 0, 0);
    sem_init(&s.go, 0, 0);
    const struct stk_pool_params p = {
        .mem = PEN_MEM_HOST,
        .block_bytes = 64,
        .blocks = 1,
        .returned = take_long,
        .cookie = &s,
    };
    assert_int_equal(stk_pool_create(&p, &s.pool, NULL), PEN_OK);
    pthread_t returning, destroying;
    struct stk_buffer *b = take(s.pool);
    expect_again(s.pool);
    assert_int_equal(pthread_create(&returning, NULL, drop, b), 0);
    sem_wait(&s.inside);
    assert_int_equal(pthread_create(&destroying, NULL, destroy_pool, &s), 0);
    // As long as it takes: it cannot come back before the callback is let go.
    struct timespec until;
    clock_gettime(CLOCK_REALTIME, &until);
    until.tv_nsec += 20000000;
    if (until.tv_nsec >= 1000000000) {
        until.tv_sec++;
        until.tv_nsec -= 1000000000;
    }
    void *early = NULL;
    assert_int_equal(pthread_timedjoin_np(destroying, &early, &until),
                     ETIMEDOUT);
    sem_post(&s.go);
    pthread_join(destroying, &early);
    assert_null(early);
    pthread_join(returning, NULL);
    sem_destroy(&s.inside);
    sem_destroy(&s.go);
}

PEN_TEST_MAIN(PEN_CASE(the_table_of_memory_types_agrees_with_itself),
              PEN_CASE(all_blocks_are_made_at_once_and_in_the_ledger_by_owner),
              PEN_CASE(large_host_blocks_are_whole_pages),
              PEN_CASE(a_pool_gives_no_more_than_its_blocks),
              PEN_CASE(a_pool_uses_no_more_blocks_than_are_needed_at_once),
              PEN_CASE(a_buffer_comes_back_with_its_last_reference),
              PEN_CASE(parameters_that_make_no_pool_are_refused),
              PEN_CASE(a_block_beyond_all_memory_is_refused_with_its_size),
              PEN_CASE(sizes_and_counts_near_the_end_of_numbers_are_refused),
              PEN_CASE(growth_replaces_free_blocks_now_and_others_when_taken),
              PEN_CASE(growth_to_a_size_that_is_not_larger_changes_nothing),
              PEN_CASE(growth_twice_while_a_block_is_out_gives_the_last_size),
              PEN_CASE(buffers_that_are_out_outlive_their_pool),
              PEN_CASE(destroying_no_pool_is_allowed),
              PEN_CASE(a_return_is_told_once_somebody_found_no_block),
              PEN_CASE(who_is_told_of_a_return_may_take_at_once),
              PEN_CASE(foreign_memory_is_released_with_its_last_reference),
              PEN_CASE(foreign_memory_without_address_or_size_is_refused),
              PEN_CASE(threads_never_share_a_block_also_while_the_pool_grows),
              PEN_CASE(buffers_may_come_back_while_the_pool_is_destroyed),
              PEN_CASE(destroying_a_pool_waits_for_a_callback_that_runs))
