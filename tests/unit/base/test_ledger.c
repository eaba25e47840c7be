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
    struct stk_ledger *l = stk_ledger_create(true);
    stk_ledger_add(l, STK_RES_HOST, 5, 1, NULL, NULL);
    assert_string_equal(entries(l).text, "HOST   1;");
    stk_ledger_destroy(&l);
}

PEN_TEST(an_address_entered_twice_is_struck_out_by_size)
{
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
              PEN_CASE(each_failing_allocation_leaves_the_ledger_right))
