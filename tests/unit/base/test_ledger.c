// The ledger: right under concurrency, exact about its peak, and useful when
// there is no memory for its entries.

#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>

#include "src/base/ledger.h"

#include "alloc_fail.h"
#include "pen_test.h"

static struct stk_ledger_totals totals(struct stk_ledger *l, enum stk_res res)
{
    struct stk_ledger_totals t;
    stk_ledger_totals(l, res, &t);
    return t;
}

struct sum {
    uint64_t calls, count, bytes;
    char text[512];
};

static void add_up(void *cookie, const struct stk_ledger_entry *e)
{
    struct sum *s = cookie;
    s->calls++;
    s->count += e->count;
    s->bytes += e->bytes;
    const size_t used = strlen(s->text);
    snprintf(s->text + used, sizeof(s->text) - used, "%s %s %s %llu;",
             stk_res_name(e->res), e->owner, e->site,
             (unsigned long long)e->bytes);
}

static struct sum entries(struct stk_ledger *l)
{
    struct sum s = { 0 };
    stk_ledger_each(l, add_up, &s);
    return s;
}

PEN_TEST(every_resource_has_a_name)
{
    for (int r = 1; r < STK_RES_COUNT; r++) {
        assert_string_not_equal(stk_res_name((enum stk_res)r), "?");
        for (int other = 1; other < r; other++)
            assert_string_not_equal(stk_res_name((enum stk_res)r),
                                    stk_res_name((enum stk_res)other));
    }
    assert_string_equal(stk_res_name(STK_RES_COUNT), "?");
}

PEN_TEST(no_ledger_is_accepted)
{
    struct stk_ledger *none = NULL;
    stk_ledger_add(NULL, STK_RES_HOST, 1, 1, "a", "b");
    stk_ledger_remove(NULL, STK_RES_HOST, 1, 1);
    stk_ledger_set_steady(NULL, true);
    assert_int_equal(totals(NULL, STK_RES_HOST).live, 0);
    assert_int_equal(entries(NULL).calls, 0);
    char text[8] = "x";
    stk_ledger_set_limit(NULL, PEN_MEM_BIT(PEN_MEM_HOST), 1);
    assert_int_equal(stk_ledger_reserve(NULL, STK_RES_HOST, 2, "a", NULL),
                     PEN_OK);
    stk_ledger_enter(NULL, STK_RES_HOST, 1, 2, "a", "b");
    stk_ledger_cancel(NULL, STK_RES_HOST, 2);
    stk_ledger_largest(NULL, PEN_MEM_BIT(PEN_MEM_HOST), text, sizeof(text));
    assert_string_equal(text, "");
    stk_ledger_destroy(&none);
}

static void counts_live_and_peak(bool sites)
{
    struct stk_ledger *l = stk_ledger_create(sites);
    assert_non_null(l);
    stk_ledger_add(l, STK_RES_HOST, 0x1000, 100, "a.out", "x.c:1");
    stk_ledger_add(l, STK_RES_HOST, 0x2000, 50, "b.out", "x.c:2");
    stk_ledger_add(l, STK_RES_STREAM, 0x1000, 0, "pipeline", "x.c:3");
    stk_ledger_remove(l, STK_RES_HOST, 0x1000, 100);
    stk_ledger_add(l, STK_RES_HOST, 0x3000, 60, "a.out", "x.c:4");

    struct stk_ledger_totals t = totals(l, STK_RES_HOST);
    assert_int_equal(t.live, 2);
    assert_int_equal(t.live_bytes, 110);
    assert_int_equal(t.peak_bytes, 150);
    assert_int_equal(t.added, 3);
    assert_int_equal(t.removed, 1);
    assert_int_equal(totals(l, STK_RES_STREAM).live, 1);
    assert_int_equal(totals(l, STK_RES_CUDA_DEVICE).live, 0);

    stk_ledger_remove(l, STK_RES_HOST, 0x2000, 50);
    stk_ledger_remove(l, STK_RES_HOST, 0x3000, 60);
    stk_ledger_remove(l, STK_RES_STREAM, 0x1000, 0);
    t = totals(l, STK_RES_HOST);
    assert_int_equal(t.live, 0);
    assert_int_equal(t.live_bytes, 0);
    assert_int_equal(t.peak_bytes, 150);
    assert_int_equal(entries(l).calls, 0);
    stk_ledger_destroy(&l);
    assert_null(l);
}

PEN_TEST(counts_live_and_peak_bytes_with_and_without_sites)
{
    counts_live_and_peak(false);
    counts_live_and_peak(true);
}

PEN_TEST(with_sites_each_entry_names_owner_and_site)
{
    pen_test_expect_leaks();
    struct stk_ledger *l = stk_ledger_create(true);
    char owner[] = "blur.output";
    stk_ledger_add(l, STK_RES_CUDA_DEVICE, 0xabc, 640, owner, "pool.c:9");
    memset(owner, 'x', sizeof(owner) - 1);  // the name was copied
    const struct sum s = entries(l);
    assert_int_equal(s.count, 1);
    assert_string_equal(s.text, "CUDA_DEVICE blur.output pool.c:9 640;");
    stk_ledger_destroy(&l);
}

PEN_TEST(without_sites_entries_are_summed_by_kind)
{
    pen_test_expect_leaks();
    struct stk_ledger *l = stk_ledger_create(false);
    for (uint64_t i = 0; i < 10; i++)
        stk_ledger_add(l, STK_RES_HOST, 64 * i, 10, "a", "s");
    stk_ledger_add(l, STK_RES_EVENT, 1, 0, "a", "s");
    const struct sum s = entries(l);
    assert_int_equal(s.calls, 2);
    assert_int_equal(s.count, 11);
    assert_string_equal(s.text, "HOST   100;event   0;");
    stk_ledger_destroy(&l);
}

PEN_TEST(owner_and_site_may_be_missing)
{
    pen_test_expect_leaks();
    struct stk_ledger *l = stk_ledger_create(true);
    stk_ledger_add(l, STK_RES_HOST, 5, 1, NULL, NULL);
    assert_string_equal(entries(l).text, "HOST   1;");
    stk_ledger_destroy(&l);
}

PEN_TEST(an_address_entered_twice_is_struck_out_by_size)
{
    pen_test_expect_leaks();
    // Memory may be handed out again before its last owner struck it out.
    struct stk_ledger *l = stk_ledger_create(true);
    stk_ledger_add(l, STK_RES_HOST, 0x1000, 100, "old", "s");
    stk_ledger_add(l, STK_RES_HOST, 0x1000, 50, "new", "s");
    stk_ledger_remove(l, STK_RES_HOST, 0x1000, 100);
    assert_string_equal(entries(l).text, "HOST new s 50;");
    stk_ledger_add(l, STK_RES_HOST, 0x1000, 70, "newer", "s");
    stk_ledger_remove(l, STK_RES_HOST, 0x1000, 70);
    assert_string_equal(entries(l).text, "HOST new s 50;");
    stk_ledger_destroy(&l);
}

PEN_TEST(additions_while_steady_are_counted)
{
    pen_test_expect_leaks();
    struct stk_ledger *l = stk_ledger_create(false);
    stk_ledger_add(l, STK_RES_HOST, 1, 1, "a", "s");
    stk_ledger_set_steady(l, true);
    stk_ledger_add(l, STK_RES_HOST, 2, 1, "a", "s");
    stk_ledger_add(l, STK_RES_HOST, 3, 1, "a", "s");
    stk_ledger_set_steady(l, false);
    stk_ledger_add(l, STK_RES_HOST, 4, 1, "a", "s");
    assert_int_equal(totals(l, STK_RES_HOST).steady, 2);
    assert_int_equal(totals(l, STK_RES_CUDA_DEVICE).steady, 0);
    stk_ledger_destroy(&l);
}

PEN_TEST(random_entries_come_and_go_without_a_trace)
{
    // The table must close gaps rightly: compare with a plain list.
    enum { KEYS = 600 };
    static uint64_t size_of[KEYS];
    const unsigned seeds = pen_test_seeds(4, 60);
    for (uint64_t seed = 1; seed <= seeds; seed++) {
        struct stk_ledger *l = stk_ledger_create(true);
        memset(size_of, 0, sizeof(size_of));
        uint64_t random = seed, live = 0, bytes = 0, peak = 0;
        for (int step = 0; step < 20000; step++) {
            const unsigned k = pen_test_random(&random) % KEYS;
            if (size_of[k]) {
                stk_ledger_remove(l, STK_RES_HOST, 64u * k, size_of[k]);
                live--;
                bytes -= size_of[k];
                size_of[k] = 0;
            } else {
                size_of[k] = 1 + pen_test_random(&random) % 4096;
                stk_ledger_add(l, STK_RES_HOST, 64u * k, size_of[k], "o", "s");
                live++;
                bytes += size_of[k];
            }
            if (bytes > peak)
                peak = bytes;
        }
        const struct sum s = entries(l);
        assert_int_equal(s.calls, live);
        assert_int_equal(s.bytes, bytes);
        assert_int_equal(totals(l, STK_RES_HOST).live_bytes, bytes);
        assert_int_equal(totals(l, STK_RES_HOST).peak_bytes, peak);
        for (unsigned k = 0; k < KEYS; k++)
            if (size_of[k])
                stk_ledger_remove(l, STK_RES_HOST, 64u * k, size_of[k]);
        assert_int_equal(entries(l).calls, 0);
        stk_ledger_destroy(&l);
    }
}

enum { THREADS = 4, ROUNDS = 5000, HELD = 8 };

struct work {
    struct stk_ledger *ledger;
    unsigned number;
    pthread_barrier_t *barrier;
};

static void *add_and_remove(void *cookie)
{
    const struct work *w = cookie;
    const uint64_t base = (uint64_t)w->number << 40;
    char owner[16];
    snprintf(owner, sizeof(owner), "owner %u", w->number);
    pthread_barrier_wait(w->barrier);
    for (unsigned i = 0; i < ROUNDS; i++) {
        for (uint64_t k = 0; k < HELD; k++)
            stk_ledger_add(w->ledger, STK_RES_HOST, base + 64 * k, 10, owner,
                           "s");
        for (uint64_t k = 0; k < HELD; k++)
            stk_ledger_remove(w->ledger, STK_RES_HOST, base + 64 * k, 10);
    }
    // All hold at once: the peak is then known exactly.
    pthread_barrier_wait(w->barrier);
    for (uint64_t k = 0; k < HELD; k++)
        stk_ledger_add(w->ledger, STK_RES_HOST, base + 64 * k, 10, owner, "s");
    pthread_barrier_wait(w->barrier);
    for (uint64_t k = 0; k < HELD; k++)
        stk_ledger_remove(w->ledger, STK_RES_HOST, base + 64 * k, 10);
    return NULL;
}

static void concurrent(bool sites)
{
    struct stk_ledger *l = stk_ledger_create(sites);
    pthread_barrier_t barrier;
    pthread_barrier_init(&barrier, NULL, THREADS + 1);
    struct work work[THREADS];
    pthread_t threads[THREADS];
    for (unsigned i = 0; i < THREADS; i++) {
        work[i] = (struct work){ l, i, &barrier };
        assert_int_equal(
            pthread_create(&threads[i], NULL, add_and_remove, &work[i]), 0);
    }
    pthread_barrier_wait(&barrier);
    for (int i = 0; i < 1000; i++) {
        const struct stk_ledger_totals t = totals(l, STK_RES_HOST);
        assert_true(t.removed <= t.added);
        assert_true(t.live_bytes <= THREADS * HELD * 10);
    }
    pthread_barrier_wait(&barrier);
    pthread_barrier_wait(&barrier);
    for (unsigned i = 0; i < THREADS; i++)
        pthread_join(threads[i], NULL);
    pthread_barrier_destroy(&barrier);

    const struct stk_ledger_totals t = totals(l, STK_RES_HOST);
    assert_int_equal(t.live, 0);
    assert_int_equal(t.live_bytes, 0);
    assert_int_equal(t.peak_bytes, THREADS * HELD * 10);
    assert_int_equal(t.added, (ROUNDS + 1) * THREADS * HELD);
    assert_int_equal(t.removed, t.added);
    assert_int_equal(entries(l).calls, 0);
    stk_ledger_destroy(&l);
}

PEN_TEST(threads_leave_nothing_and_the_peak_is_exact)
{
    concurrent(false);
    concurrent(true);
}

PEN_TEST(counters_hold_when_there_is_no_memory_for_entries)
{
    struct stk_ledger *l = stk_ledger_create(true);
    for (uint64_t k = 0; k < 100; k++)
        stk_ledger_add(l, STK_RES_HOST, 64 * k, 10, "early", "s");
    pen_alloc_fail_arm(1, true);
    for (uint64_t k = 100; k < 5000; k++)
        stk_ledger_add(l, STK_RES_HOST, 64 * k, 10, "late", "s");
    assert_true(pen_alloc_fail_disarm());

    assert_int_equal(totals(l, STK_RES_HOST).live, 5000);
    assert_int_equal(totals(l, STK_RES_HOST).peak_bytes, 50000);
    struct sum s = entries(l);
    assert_int_equal(s.count, 5000);
    assert_int_equal(s.bytes, 50000);
    assert_true(s.calls >= 101);  // the early ones by name, a sum for the rest

    for (uint64_t k = 0; k < 5000; k++)
        stk_ledger_remove(l, STK_RES_HOST, 64 * k, 10);
    assert_int_equal(totals(l, STK_RES_HOST).live, 0);
    assert_int_equal(entries(l).calls, 0);
    stk_ledger_destroy(&l);
}

PEN_TEST(each_failing_allocation_leaves_the_ledger_right)
{
    for (unsigned nth = 1;; nth++) {
        pen_alloc_fail_arm(nth, false);
        struct stk_ledger *l = stk_ledger_create(true);
        if (!l) {
            assert_true(pen_alloc_fail_disarm());
            continue;
        }
        for (uint64_t k = 0; k < 2000; k++)
            stk_ledger_add(l, STK_RES_HOST, 64 * k, 10, k % 2 ? "a" : "b", "s");
        const bool fired = pen_alloc_fail_disarm();
        const struct sum s = entries(l);
        assert_int_equal(s.count, 2000);
        assert_int_equal(s.bytes, 20000);
        for (uint64_t k = 0; k < 2000; k++)
            stk_ledger_remove(l, STK_RES_HOST, 64 * k, 10);
        assert_int_equal(entries(l).calls, 0);
        stk_ledger_destroy(&l);
        if (!fired) {
            assert_true(nth > 20);
            return;
        }
    }
}

// --- limits -----------------------------------------------------------------

enum { HOST = PEN_MEM_BIT(PEN_MEM_HOST) };
enum { PINNED = PEN_MEM_BIT(PEN_MEM_HOST_PINNED) };

static bool fits(struct stk_ledger *l, enum stk_res res, uint64_t bytes)
{
    struct pen_error err = { 0 };
    const enum pen_status st = stk_ledger_reserve(l, res, bytes, "asker", &err);
    assert_int_equal(st, st == PEN_OK ? PEN_OK : PEN_E_LIMIT);
    assert_int_equal(err.status, st);
    return st == PEN_OK;
}

PEN_TEST(a_limit_is_exact_to_the_byte)
{
    struct stk_ledger *l = stk_ledger_create(false);
    assert_true(fits(l, STK_RES_HOST, UINT64_MAX));  // there is none
    stk_ledger_set_limit(l, HOST, 100);
    assert_false(fits(l, STK_RES_HOST, 101));
    assert_false(fits(l, STK_RES_HOST, UINT64_MAX));
    assert_true(fits(l, STK_RES_HOST, 60));
    stk_ledger_enter(l, STK_RES_HOST, 1, 60, "a", "s");
    assert_false(fits(l, STK_RES_HOST, 41));
    assert_true(fits(l, STK_RES_HOST, 40));
    // Reserved and not yet entered: full, but not in the totals.
    assert_int_equal(totals(l, STK_RES_HOST).live_bytes, 60);
    assert_int_equal(totals(l, STK_RES_HOST).peak_bytes, 60);
    assert_false(fits(l, STK_RES_HOST, 1));
    assert_true(fits(l, STK_RES_HOST, 0));
    stk_ledger_cancel(l, STK_RES_HOST, 40);
    assert_int_equal(totals(l, STK_RES_HOST).peak_bytes, 60);
    assert_true(fits(l, STK_RES_HOST, 40));
    stk_ledger_enter(l, STK_RES_HOST, 2, 40, "a", "s");
    stk_ledger_remove(l, STK_RES_HOST, 1, 60);
    assert_false(fits(l, STK_RES_HOST, 61));
    assert_true(fits(l, STK_RES_HOST, 60));
    stk_ledger_cancel(l, STK_RES_HOST, 60);
    stk_ledger_remove(l, STK_RES_HOST, 2, 40);
    stk_ledger_destroy(&l);
}

PEN_TEST(what_asks_no_limit_counts_against_it)
{
    struct stk_ledger *l = stk_ledger_create(false);
    stk_ledger_add(l, STK_RES_HOST, 1, 30, "a", "s");
    stk_ledger_set_limit(l, HOST, 100);  // what is live already counts
    assert_false(fits(l, STK_RES_HOST, 71));
    stk_ledger_add(l, STK_RES_HOST, 2, 170, "a", "s");
    assert_false(fits(l, STK_RES_HOST, 1));
    assert_true(fits(l, STK_RES_HOST, 0));
    assert_true(fits(l, STK_RES_HOST_PINNED, 1000));  // another type
    assert_true(fits(l, STK_RES_STREAM, 1000));       // no memory at all
    stk_ledger_remove(l, STK_RES_HOST, 2, 170);
    assert_false(fits(l, STK_RES_HOST, 71));
    assert_true(fits(l, STK_RES_HOST, 70));
    stk_ledger_set_limit(l, HOST, 200);  // the same mask again: a new number
    assert_true(fits(l, STK_RES_HOST, 100));
    assert_false(fits(l, STK_RES_HOST, 1));
    stk_ledger_set_limit(l, HOST, 0);  // none any more
    assert_true(fits(l, STK_RES_HOST, 1 << 20));
    stk_ledger_remove(l, STK_RES_HOST, 1, 30);
    stk_ledger_destroy(&l);
}

PEN_TEST(a_refusal_by_one_limit_takes_nothing_from_another)
{
    struct stk_ledger *l = stk_ledger_create(false);
    stk_ledger_set_limit(l, PINNED, 80);
    stk_ledger_set_limit(l, HOST | PINNED, 100);
    assert_true(fits(l, STK_RES_HOST, 50));
    assert_false(fits(l, STK_RES_HOST_PINNED, 60));  // 110 together
    assert_true(fits(l, STK_RES_HOST_PINNED, 50));
    assert_false(fits(l, STK_RES_HOST, 1));
    stk_ledger_cancel(l, STK_RES_HOST, 50);
    assert_false(fits(l, STK_RES_HOST_PINNED, 31));  // 81 pinned
    assert_true(fits(l, STK_RES_HOST_PINNED, 30));
    stk_ledger_destroy(&l);
}

PEN_TEST(masks_beyond_the_last_place_are_ignored)
{
    struct stk_ledger *l = stk_ledger_create(false);
    // Eight masks without the bit of HOST.
    for (uint32_t mems = 1; mems <= STK_MAX_LIMITS; mems++)
        stk_ledger_set_limit(l, mems << 2, 10);
    stk_ledger_set_limit(l, HOST, 10);
    assert_true(fits(l, STK_RES_HOST, 1000));
    assert_false(fits(l, STK_RES_HOST_PINNED, 11));
    stk_ledger_destroy(&l);
}

PEN_TEST(a_refusal_names_sizes_and_the_three_largest_owners)
{
    pen_test_expect_leaks();
    struct stk_ledger *l = stk_ledger_create(true);
    stk_ledger_set_limit(l, HOST | PINNED, 8 << 20);
    stk_ledger_add(l, STK_RES_HOST, 1, 1 << 20, "blur.out", "s");
    stk_ledger_add(l, STK_RES_HOST, 2, 512 << 10, "small", "s");
    stk_ledger_add(l, STK_RES_HOST_PINNED, 3, 2 << 20, "read.out", "s");
    stk_ledger_add(l, STK_RES_HOST, 4, 2 << 20, "read.out", "s");
    stk_ledger_add(l, STK_RES_HOST, 5, 1 << 20, "add.out", "s");
    stk_ledger_add(l, STK_RES_CUDA_DEVICE, 6, 9 << 20, "device", "s");
    stk_ledger_add(l, STK_RES_HOST, 7, 5 << 20, "gone", "s");
    stk_ledger_remove(l, STK_RES_HOST, 7, 5 << 20);

    struct pen_error err;
    assert_int_equal(
        stk_ledger_reserve(l, STK_RES_HOST, 2 << 20, "late.out", &err),
        PEN_E_LIMIT);
    assert_string_equal(err.where, "late.out");
    assert_string_equal(
        err.text, "2.00 MiB more of HOST and HOST_PINNED is over the budget of "
                  "8.00 MiB, of which 6.50 MiB are in use: read.out 4.00 MiB, "
                  "add.out 1.00 MiB, blur.out 1.00 MiB");

    char text[64];
    stk_ledger_largest(l, PINNED, text, sizeof(text));
    assert_string_equal(text, ": read.out 2.00 MiB");
    stk_ledger_largest(l, PEN_MEM_BIT(PEN_MEM_DMABUF), text, sizeof(text));
    assert_string_equal(text, "");
    stk_ledger_largest(l, HOST, text, 12);  // cut, not overrun
    assert_string_equal(text, ": read.out ");
    stk_ledger_largest(l, HOST, text, 0);
    stk_ledger_destroy(&l);
}

PEN_TEST(without_sites_a_refusal_names_no_owner)
{
    pen_test_expect_leaks();
    struct stk_ledger *l = stk_ledger_create(false);
    stk_ledger_set_limit(l, HOST, 100);
    stk_ledger_add(l, STK_RES_HOST, 1, 100, "a", "s");
    struct pen_error err;
    assert_int_equal(stk_ledger_reserve(l, STK_RES_HOST, 1, "b", &err),
                     PEN_E_LIMIT);
    assert_string_equal(err.text, "1 B more of HOST is over the budget of "
                                  "100 B, of which 100 B are in use");
    stk_ledger_destroy(&l);
}

PEN_TEST(the_largest_owners_of_random_ledgers_are_the_largest)
{
    pen_test_expect_leaks();
    enum { OWNERS = 12 };
    for (uint64_t seed = 1; seed <= pen_test_seeds(50, 1000); seed++) {
        uint64_t random = seed, sum[OWNERS] = { 0 };
        struct stk_ledger *l = stk_ledger_create(true);
        const unsigned count = pen_test_random(&random) % 40;
        for (unsigned k = 0; k < count; k++) {
            const unsigned o = pen_test_random(&random) % OWNERS;
            const uint64_t bytes = 1 + pen_test_random(&random) % 50;
            char owner[8];
            snprintf(owner, sizeof(owner), "o%02u", o);
            stk_ledger_add(l, STK_RES_HOST, k, bytes, owner, "s");
            sum[o] += bytes;
        }
        char expected[128] = "", text[128];
        for (unsigned rank = 0; rank < 3; rank++) {
            unsigned best = 0;
            for (unsigned o = 1; o < OWNERS; o++)
                best = sum[o] > sum[best] ? o : best;
            const size_t used = strlen(expected);
            if (sum[best])
                snprintf(expected + used, sizeof(expected) - used,
                         "%s o%02u %u B", rank ? "," : ":", best,
                         (unsigned)sum[best]);
            sum[best] = 0;
        }
        stk_ledger_largest(l, HOST, text, sizeof(text));
        assert_string_equal(text, expected);
        stk_ledger_destroy(&l);
    }
}

enum { BLOCK = 10, LIMIT = 35 };

struct claims {
    struct work work;
    _Atomic uint64_t *held, *most, *granted, *wrong;
};

static void *claim_and_return(void *cookie)
{
    const struct claims *c = cookie;
    struct stk_ledger *l = c->work.ledger;
    const enum stk_res res =
        c->work.number % 2 ? STK_RES_HOST : STK_RES_HOST_PINNED;
    pthread_barrier_wait(c->work.barrier);
    for (unsigned i = 0; i < ROUNDS; i++) {
        if (stk_ledger_reserve(l, res, BLOCK, "t", NULL) != PEN_OK)
            continue;
        const uint64_t now = atomic_fetch_add(c->held, BLOCK) + BLOCK;
        uint64_t most = atomic_load(c->most);
        while (now > most && !atomic_compare_exchange_weak(c->most, &most, now))
            ;
        atomic_fetch_add(c->granted, 1);
        // What can never fit is refused, and must not make others fail.
        if (stk_ledger_reserve(l, res, LIMIT + 1, "t", NULL) == PEN_OK)
            atomic_fetch_add(c->wrong, 1);
        atomic_fetch_sub(c->held, BLOCK);
        if (i % 2) {
            stk_ledger_cancel(l, res, BLOCK);
        } else {
            stk_ledger_enter(l, res, c->work.number, BLOCK, "t", "s");
            stk_ledger_remove(l, res, c->work.number, BLOCK);
        }
    }
    return NULL;
}

static void claim(uint64_t limit, uint64_t *most, uint64_t *granted)
{
    struct stk_ledger *l = stk_ledger_create(true);
    stk_ledger_set_limit(l, HOST | PINNED, limit);
    _Atomic uint64_t held = 0, highest = 0, passed = 0, wrong = 0;
    pthread_barrier_t barrier;
    pthread_barrier_init(&barrier, NULL, THREADS);
    struct claims claims[THREADS];
    pthread_t threads[THREADS];
    for (unsigned i = 0; i < THREADS; i++) {
        claims[i] = (struct claims){
            { l, i, &barrier }, &held, &highest, &passed, &wrong
        };
        assert_int_equal(
            pthread_create(&threads[i], NULL, claim_and_return, &claims[i]), 0);
    }
    for (unsigned i = 0; i < THREADS; i++)
        pthread_join(threads[i], NULL);
    pthread_barrier_destroy(&barrier);
    *most = highest;
    *granted = passed;
    assert_int_equal(wrong, 0);
    // All of it is free again: to the byte.
    assert_true(fits(l, STK_RES_HOST, limit));
    assert_false(fits(l, STK_RES_HOST, 1));
    stk_ledger_destroy(&l);
}

// Nothing but claims, of which one fits: as many collisions as can be had.
static void *claim_the_last(void *cookie)
{
    const struct claims *c = cookie;
    struct stk_ledger *l = c->work.ledger;
    pthread_barrier_wait(c->work.barrier);
    for (unsigned i = 0; i < 100 * ROUNDS; i++) {
        if (stk_ledger_reserve(l, STK_RES_HOST, BLOCK, "t", NULL) != PEN_OK)
            continue;
        if (atomic_fetch_add(c->held, 1) != 0)
            atomic_fetch_add(c->wrong, 1);
        atomic_fetch_sub(c->held, 1);
        stk_ledger_cancel(l, STK_RES_HOST, BLOCK);
    }
    return NULL;
}

PEN_TEST(the_last_block_is_given_to_one_thread_at_a_time)
{
    struct stk_ledger *l = stk_ledger_create(false);
    stk_ledger_set_limit(l, HOST, BLOCK);
    _Atomic uint64_t held = 0, highest = 0, passed = 0, wrong = 0;
    pthread_barrier_t barrier;
    pthread_barrier_init(&barrier, NULL, THREADS);
    struct claims claims[THREADS];
    pthread_t threads[THREADS];
    for (unsigned i = 0; i < THREADS; i++) {
        claims[i] = (struct claims){
            { l, i, &barrier }, &held, &highest, &passed, &wrong
        };
        assert_int_equal(
            pthread_create(&threads[i], NULL, claim_the_last, &claims[i]), 0);
    }
    for (unsigned i = 0; i < THREADS; i++)
        pthread_join(threads[i], NULL);
    pthread_barrier_destroy(&barrier);
    assert_int_equal(wrong, 0);
    assert_true(fits(l, STK_RES_HOST, BLOCK));
    stk_ledger_destroy(&l);
}

PEN_TEST(threads_never_pass_a_limit_together)
{
    uint64_t most = 0, granted = 0;
    claim(LIMIT, &most, &granted);
    assert_true(most <= LIMIT);
    assert_true(granted > 0);
}

PEN_TEST(threads_are_not_refused_where_there_is_room_for_all)
{
    // Each asks for what fits and for what does not: the refused claims of one
    // must not show in the other's.
    uint64_t most = 0, granted = 0;
    claim(THREADS * BLOCK, &most, &granted);
    assert_int_equal(granted, THREADS * ROUNDS);
}

PEN_TEST_MAIN(PEN_CASE(every_resource_has_a_name),
              PEN_CASE(no_ledger_is_accepted),
              PEN_CASE(counts_live_and_peak_bytes_with_and_without_sites),
              PEN_CASE(with_sites_each_entry_names_owner_and_site),
              PEN_CASE(without_sites_entries_are_summed_by_kind),
              PEN_CASE(owner_and_site_may_be_missing),
              PEN_CASE(an_address_entered_twice_is_struck_out_by_size),
              PEN_CASE(additions_while_steady_are_counted),
              PEN_CASE(random_entries_come_and_go_without_a_trace),
              PEN_CASE(threads_leave_nothing_and_the_peak_is_exact),
              PEN_CASE(counters_hold_when_there_is_no_memory_for_entries),
              PEN_CASE(each_failing_allocation_leaves_the_ledger_right),
              PEN_CASE(a_limit_is_exact_to_the_byte),
              PEN_CASE(what_asks_no_limit_counts_against_it),
              PEN_CASE(a_refusal_by_one_limit_takes_nothing_from_another),
              PEN_CASE(masks_beyond_the_last_place_are_ignored),
              PEN_CASE(a_refusal_names_sizes_and_the_three_largest_owners),
              PEN_CASE(without_sites_a_refusal_names_no_owner),
              PEN_CASE(the_largest_owners_of_random_ledgers_are_the_largest),
              PEN_CASE(the_last_block_is_given_to_one_thread_at_a_time),
              PEN_CASE(threads_never_pass_a_limit_together),
              PEN_CASE(threads_are_not_refused_where_there_is_room_for_all))
