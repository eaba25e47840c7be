// A planned pool that many threads take from and give to: nobody misses a
// block, none is lost or given twice, none is kept back. Meant to be run under
// ThreadSanitizer too.

#include <errno.h>
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <time.h>

#include "src/mem/pool.h"

#include "pen_test.h"

enum { BYTES = 64, MOST_THREADS = 8, QUEUE = 16 };

// Takers sleep until `returned` is called, as the runtime's tasks do: a call
// that is missed leaves one asleep, and the test fails.
struct world {
    struct stk_pool *pool;
    pthread_mutex_t lock;
    pthread_cond_t woken;
    uint64_t calls;
    atomic_uint wrong, missed;
    uint64_t rounds;  // of each taker

    // Blocks on their way to who gives them back.
    pthread_cond_t moved;
    struct stk_buffer *queue[QUEUE];
    unsigned first, count, takers;
};

static void returned(void *cookie)
{
    struct world *w = cookie;
    pthread_mutex_lock(&w->lock);
    w->calls++;
    pthread_cond_broadcast(&w->woken);
    pthread_mutex_unlock(&w->lock);
}

static uint64_t calls(struct world *w)
{
    pthread_mutex_lock(&w->lock);
    const uint64_t n = w->calls;
    pthread_mutex_unlock(&w->lock);
    return n;
}

// Sleep until there was a call more than `seen`.
static bool sleep_until_called(struct world *w, uint64_t seen)
{
    struct timespec until;
    clock_gettime(CLOCK_REALTIME, &until);
    until.tv_sec += 30;
    int rc = 0;
    pthread_mutex_lock(&w->lock);
    while (w->calls == seen && rc != ETIMEDOUT)
        rc = pthread_cond_timedwait(&w->woken, &w->lock, &until);
    const bool called = w->calls != seen;
    pthread_mutex_unlock(&w->lock);
    return called;
}

// NULL: it was not told of a block for half a minute.
static struct stk_buffer *take(struct world *w)
{
    for (;;) {
        const uint64_t seen = calls(w);
        struct stk_buffer *b = NULL;
        struct stk_point wait;
        const enum pen_status st =
            stk_pool_take(w->pool, NULL, &b, &wait, NULL);
        if (st == PEN_OK)
            return b;
        if (st != PEN_AGAIN || wait.stream) {
            atomic_fetch_add(&w->wrong, 1);
            return NULL;
        }
        if (!sleep_until_called(w, seen)) {
            atomic_fetch_add(&w->missed, 1);
            return NULL;
        }
    }
}

// Whoever has a block writes his stamp; two owners would see each other's.
static void stamp(struct world *w, struct stk_buffer *b, uint64_t mine)
{
    volatile uint64_t *word = b->block.host;
    *word = mine;
    if (atomic_load(&b->refs) != 1 || *word != mine)
        atomic_fetch_add(&w->wrong, 1);
}

static void world_init(struct world *w, uint32_t blocks, uint32_t more)
{
    *w = (struct world){ .rounds = 0 };
    pthread_mutex_init(&w->lock, NULL);
    pthread_cond_init(&w->woken, NULL);
    pthread_cond_init(&w->moved, NULL);
    const struct stk_pool_params p = {
        .mem = PEN_MEM_HOST,
        .block_bytes = BYTES,
        .blocks = blocks,
        .more_blocks = more,
        .returned = returned,
        .cookie = w,
    };
    assert_int_equal(stk_pool_create(&p, &w->pool, NULL), PEN_OK);
}

static void world_check(struct world *w, uint32_t blocks, uint64_t takes)
{
    assert_int_equal(w->missed, 0);
    assert_int_equal(w->wrong, 0);
    struct stk_pool_stats s;
    stk_pool_stats(w->pool, &s);
    assert_int_equal(s.takes, takes);
    assert_int_equal(s.in_use, 0);
    assert_true(s.max_in_use <= blocks);
    // Each block is there, once.
    struct stk_buffer *b[16];
    struct stk_point wait;
    for (uint32_t i = 0; i < blocks; i++) {
        assert_int_equal(stk_pool_take(w->pool, NULL, &b[i], &wait, NULL),
                         PEN_OK);
        for (uint32_t k = 0; k < i; k++)
            assert_ptr_not_equal(b[i], b[k]);
    }
    struct stk_buffer *none = NULL;
    assert_int_equal(stk_pool_take(w->pool, NULL, &none, &wait, NULL),
                     PEN_AGAIN);
    for (uint32_t i = 0; i < blocks; i++)
        assert_true(stk_buffer_unref(b[i]));
    stk_pool_destroy(&w->pool);
    pthread_cond_destroy(&w->moved);
    pthread_cond_destroy(&w->woken);
    pthread_mutex_destroy(&w->lock);
}

// --- each gives back what it took -------------------------------------------

static void *take_and_give(void *cookie)
{
    struct world *w = cookie;
    for (uint64_t i = 0; i < w->rounds; i++) {
        struct stk_buffer *b = take(w);
        if (!b)
            return NULL;
        stamp(w, b, (uint64_t)(uintptr_t)&b ^ i);
        if (!stk_buffer_unref(b))
            atomic_fetch_add(&w->wrong, 1);
    }
    return NULL;
}

static void run_all(struct world *w, unsigned threads,
                    void *(*body)(void *cookie))
{
    pthread_t t[MOST_THREADS];
    for (unsigned i = 0; i < threads; i++)
        assert_int_equal(pthread_create(&t[i], NULL, body, w), 0);
    for (unsigned i = 0; i < threads; i++)
        pthread_join(t[i], NULL);
}

PEN_TEST(no_return_is_missed_however_few_the_blocks)
{
    static const struct {
        uint32_t threads, blocks;
    } cases[] = { { 2, 1 }, { 4, 1 }, { 4, 3 }, { 8, 7 } };
    const unsigned rounds = pen_test_seeds(50000, 400000);
    for (unsigned c = 0; c < sizeof(cases) / sizeof(cases[0]); c++) {
        struct world w;
        world_init(&w, cases[c].blocks, 0);
        w.rounds = rounds / cases[c].threads;
        run_all(&w, cases[c].threads, take_and_give);
        world_check(&w, cases[c].blocks, w.rounds * cases[c].threads);
    }
}

// Were each of eight threads to keep one block to itself, six would not do.
static void *take_two_by_two(void *cookie)
{
    struct world *w = cookie;
    for (uint64_t i = 0; i < w->rounds; i++) {
        // One after the other, so that what was given back is not the
        // thread's own to take again.
        struct stk_buffer *b = take(w);
        if (!b)
            return NULL;
        stamp(w, b, i);
        pthread_mutex_lock(&w->lock);
        struct stk_buffer *other = w->queue[0];
        w->queue[0] = b;
        pthread_mutex_unlock(&w->lock);
        stk_buffer_unref(other);
    }
    return NULL;
}

PEN_TEST(eight_threads_cannot_starve_on_six_blocks)
{
    struct world w;
    world_init(&w, 6, 0);
    w.rounds = pen_test_seeds(5000, 50000);
    run_all(&w, 8, take_two_by_two);
    stk_buffer_unref(w.queue[0]);
    world_check(&w, 6, 8 * w.rounds);
}

// --- others give back -------------------------------------------------------

static void *produce(void *cookie)
{
    struct world *w = cookie;
    for (uint64_t i = 0; i < w->rounds; i++) {
        struct stk_buffer *b = take(w);
        if (!b)
            break;
        stamp(w, b, i);
        pthread_mutex_lock(&w->lock);
        while (w->count == QUEUE)
            pthread_cond_wait(&w->moved, &w->lock);
        w->queue[(w->first + w->count++) % QUEUE] = b;
        pthread_cond_broadcast(&w->moved);
        pthread_mutex_unlock(&w->lock);
    }
    pthread_mutex_lock(&w->lock);
    w->takers--;
    pthread_cond_broadcast(&w->moved);
    pthread_mutex_unlock(&w->lock);
    return NULL;
}

static void *consume(void *cookie)
{
    struct world *w = cookie;
    for (;;) {
        pthread_mutex_lock(&w->lock);
        while (!w->count && w->takers)
            pthread_cond_wait(&w->moved, &w->lock);
        if (!w->count) {
            pthread_mutex_unlock(&w->lock);
            return NULL;
        }
        struct stk_buffer *b = w->queue[w->first];
        w->first = (w->first + 1) % QUEUE;
        w->count--;
        pthread_cond_broadcast(&w->moved);
        pthread_mutex_unlock(&w->lock);
        // A frame with two consumers: the last one gives it back.
        stk_buffer_ref(b);
        stk_buffer_unref(b);
        if (!stk_buffer_unref(b))
            atomic_fetch_add(&w->wrong, 1);
    }
}

static void produce_and_consume(unsigned producers, unsigned consumers,
                                uint32_t blocks, uint32_t more)
{
    struct world w;
    pthread_t t[MOST_THREADS];
    unsigned n = 0;
    world_init(&w, blocks, more);
    w.rounds = pen_test_seeds(40000, 200000) / producers;
    w.takers = producers;
    for (unsigned i = 0; i < producers; i++)
        assert_int_equal(pthread_create(&t[n++], NULL, produce, &w), 0);
    for (unsigned i = 0; i < consumers; i++)
        assert_int_equal(pthread_create(&t[n++], NULL, consume, &w), 0);
    for (uint32_t i = 0; i < more; i++)
        assert_int_equal(stk_pool_add(w.pool, 1, NULL), PEN_OK);
    while (n)
        pthread_join(t[--n], NULL);
    world_check(&w, blocks + more, w.rounds * producers);
}

PEN_TEST(blocks_that_others_give_back_are_not_missed_or_lost)
{
    produce_and_consume(1, 1, 1, 0);
    produce_and_consume(1, 2, 2, 0);
    produce_and_consume(3, 3, 4, 0);
}

PEN_TEST(blocks_may_be_added_while_all_are_in_use)
{
    produce_and_consume(3, 2, 1, 6);
}

// --- one block, back and forth ----------------------------------------------

// There is one block, and it is given once for each time that it is taken: a
// return that is missed is the last. Nobody sleeps, and the giver waits for
// random times, the taker too, so that they meet at any moment.
struct duel {
    struct stk_pool *pool;
    atomic_uint calls;
    _Atomic(struct stk_buffer *) hand;
    atomic_bool over;
};

static void call(void *cookie)
{
    struct duel *d = cookie;
    atomic_fetch_add(&d->calls, 1);
}

static void pause_at_random(uint64_t *seed, uint32_t most)
{
    for (volatile uint32_t i = pen_test_random(seed) % most; i;)
        i = i - 1;
}

static void *give_at_random(void *cookie)
{
    struct duel *d = cookie;
    uint64_t seed = 7;
    unsigned idle = 0;
    while (!d->over) {
        struct stk_buffer *b = atomic_exchange(&d->hand, NULL);
        if (!b) {
            // Not for long: there may be fewer processors than threads.
            if (++idle % 4096 == 0)
                sched_yield();
            continue;
        }
        pause_at_random(&seed, 64);
        stk_buffer_unref(b);
    }
    return NULL;
}

static bool call_comes(struct duel *d, unsigned seen)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    const time_t until = now.tv_sec + 30;
    while (atomic_load(&d->calls) == seen) {
        sched_yield();
        clock_gettime(CLOCK_MONOTONIC, &now);
        if (now.tv_sec >= until)
            return false;
    }
    return true;
}

PEN_TEST(the_last_return_is_not_missed_at_whatever_moment_it_comes)
{
    struct duel d = { .calls = 0 };
    const struct stk_pool_params p = {
        .mem = PEN_MEM_HOST,
        .block_bytes = BYTES,
        .blocks = 1,
        .returned = call,
        .cookie = &d,
    };
    assert_int_equal(stk_pool_create(&p, &d.pool, NULL), PEN_OK);
    pthread_t giver;
    assert_int_equal(pthread_create(&giver, NULL, give_at_random, &d), 0);
    const unsigned rounds = pen_test_seeds(200000, 1000000);
    uint64_t again = 0, seed = 3;
    for (unsigned i = 0; i < rounds;) {
        struct stk_buffer *b = NULL;
        struct stk_point wait;
        const unsigned seen = atomic_load(&d.calls);
        if (stk_pool_take(d.pool, NULL, &b, &wait, NULL) == PEN_OK) {
            i++;
            atomic_store(&d.hand, b);
            pause_at_random(&seed, 512);
            continue;
        }
        again++;
        if (!call_comes(&d, seen))
            fail_msg("round %u: nobody told of the block", i);
    }
    while (atomic_load(&d.hand))
        sched_yield();
    d.over = true;
    pthread_join(giver, NULL);
    // Nobody is told who did not ask; who found one all the same may be.
    assert_true(d.calls <= again + rounds);
    stk_pool_destroy(&d.pool);
}

// --- the end ----------------------------------------------------------------

static void *give_late(void *cookie)
{
    stk_buffer_unref(cookie);
    return NULL;
}

static void count_gone(void *cookie)
{
    atomic_fetch_add((atomic_uint *)cookie, 1);
}

PEN_TEST(the_storage_goes_once_whoever_is_last)
{
    const unsigned rounds = pen_test_seeds(300, 5000);
    for (unsigned i = 0; i < rounds; i++) {
        atomic_uint gone = 0;
        struct world w = { .rounds = 0 };
        pthread_mutex_init(&w.lock, NULL);
        pthread_cond_init(&w.woken, NULL);
        const struct stk_pool_params p = {
            .mem = PEN_MEM_HOST,
            .block_bytes = BYTES,
            .blocks = 3,
            .returned = returned,
            .cookie = &w,
            .gone = count_gone,
            .gone_cookie = &gone,
        };
        assert_int_equal(stk_pool_create(&p, &w.pool, NULL), PEN_OK);
        struct stk_buffer *b[4];
        struct stk_point wait;
        for (unsigned k = 0; k < 4; k++) {
            assert_int_equal(stk_pool_take(w.pool, NULL, &b[k], &wait, NULL),
                             k < 3 ? PEN_OK : PEN_AGAIN);
        }
        pthread_t t[3];
        for (unsigned k = 0; k < 3; k++)
            assert_int_equal(pthread_create(&t[k], NULL, give_late, b[k]), 0);
        stk_pool_destroy(&w.pool);
        const uint64_t told = calls(&w);
        for (unsigned k = 0; k < 3; k++)
            pthread_join(t[k], NULL);
        assert_int_equal(gone, 1);
        assert_int_equal(calls(&w), told);  // none once it is destroyed
        assert_true(told <= 1);
        pthread_cond_destroy(&w.woken);
        pthread_mutex_destroy(&w.lock);
    }
}

PEN_TEST_MAIN(
    PEN_CASE(no_return_is_missed_however_few_the_blocks),
    PEN_CASE(eight_threads_cannot_starve_on_six_blocks),
    PEN_CASE(blocks_that_others_give_back_are_not_missed_or_lost),
    PEN_CASE(blocks_may_be_added_while_all_are_in_use),
    PEN_CASE(the_last_return_is_not_missed_at_whatever_moment_it_comes),
    PEN_CASE(the_storage_goes_once_whoever_is_last))
