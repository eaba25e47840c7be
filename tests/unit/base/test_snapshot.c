// Snapshots: what is alive, sorted and summed, also when its ledger is gone;
// differences that are exact; no memory.

#include <pthread.h>
#include <stdio.h>

#include "src/base/snapshot.h"

#include "alloc_fail.h"
#include "pen_test.h"

static struct pen_snapshot *take(struct stk_ledger *l)
{
    struct pen_snapshot *s = NULL;
    assert_int_equal(stk_snapshot_take(l, &s, NULL), PEN_OK);
    assert_non_null(s);
    return s;
}

static struct pen_snapshot *diff(const struct pen_snapshot *before,
                                 const struct pen_snapshot *after)
{
    struct pen_snapshot *s = NULL;
    assert_int_equal(pen_snapshot_diff(before, after, &s, NULL), PEN_OK);
    assert_non_null(s);
    return s;
}

// "kind owner site bytes count;" of each.
static const char *text_of(const struct pen_snapshot *s)
{
    static char text[2048];
    const struct pen_ledger_entry *e = NULL;
    const size_t count = pen_snapshot_entries(s, &e);
    size_t used = 0;
    text[0] = 0;
    for (size_t i = 0; i < count; i++)
        used += (size_t)snprintf(text + used, sizeof(text) - used,
                                 "%s %s %s %lld %lld;", e[i].kind, e[i].owner,
                                 e[i].site, (long long)e[i].bytes,
                                 (long long)e[i].count);
    return text;
}

PEN_TEST(entries_are_sorted_and_equal_ones_summed)
{
    pen_test_expect_leaks();
    struct stk_ledger *l = stk_ledger_create(true);
    stk_ledger_add(l, STK_RES_STREAM, 1, 0, "pipeline", "p.c:1");
    stk_ledger_add(l, STK_RES_HOST, 1, 10, "b.out", "p.c:2");
    stk_ledger_add(l, STK_RES_HOST, 2, 10, "a.out", "p.c:3");
    stk_ledger_add(l, STK_RES_HOST, 3, 20, "b.out", "p.c:2");
    stk_ledger_add(l, STK_RES_HOST, 4, 5, "b.out", "p.c:1");
    stk_ledger_add(l, STK_RES_CUDA_DEVICE, 1, 7, "z", "p.c:9");
    struct pen_snapshot *s = take(l);
    stk_ledger_destroy(&l);  // the names are the snapshot's own
    assert_string_equal(text_of(s), "CUDA_DEVICE z p.c:9 7 1;"
                                    "HOST a.out p.c:3 10 1;"
                                    "HOST b.out p.c:1 5 1;"
                                    "HOST b.out p.c:2 30 2;"
                                    "stream pipeline p.c:1 0 1;");
    pen_snapshot_destroy(&s);
    assert_null(s);
    pen_snapshot_destroy(&s);
}

PEN_TEST(without_sites_there_is_one_entry_a_kind)
{
    pen_test_expect_leaks();
    struct stk_ledger *l = stk_ledger_create(false);
    for (uint64_t k = 0; k < 9; k++)
        stk_ledger_add(l, STK_RES_HOST_PINNED, k, 3, "a", "s");
    struct pen_snapshot *s = take(l);
    assert_string_equal(text_of(s), "HOST_PINNED   27 9;");
    pen_snapshot_destroy(&s);
    stk_ledger_destroy(&l);
}

PEN_TEST(nothing_is_a_snapshot_without_entries)
{
    struct stk_ledger *l = stk_ledger_create(true);
    struct pen_snapshot *a = take(l), *b = take(NULL);
    struct pen_snapshot *d = diff(a, b), *e = diff(NULL, NULL);
    assert_string_equal(text_of(a), "");
    assert_string_equal(text_of(b), "");
    assert_string_equal(text_of(d), "");
    assert_string_equal(text_of(e), "");
    assert_string_equal(text_of(NULL), "");
    pen_snapshot_destroy(&a);
    pen_snapshot_destroy(&b);
    pen_snapshot_destroy(&d);
    pen_snapshot_destroy(&e);
    stk_ledger_destroy(&l);
}

PEN_TEST(a_difference_tells_what_came_and_what_went)
{
    pen_test_expect_leaks();
    struct stk_ledger *l = stk_ledger_create(true);
    stk_ledger_add(l, STK_RES_HOST, 1, 10, "goes", "s");
    stk_ledger_add(l, STK_RES_HOST, 2, 20, "stays", "s");
    stk_ledger_add(l, STK_RES_HOST, 3, 30, "shrinks", "s");
    stk_ledger_add(l, STK_RES_HOST, 4, 5, "shrinks", "s");
    stk_ledger_add(l, STK_RES_HOST, 5, 8, "swaps", "s");
    struct pen_snapshot *before = take(l);
    stk_ledger_remove(l, STK_RES_HOST, 1, 10);
    stk_ledger_remove(l, STK_RES_HOST, 3, 30);
    stk_ledger_remove(l, STK_RES_HOST, 5, 8);
    stk_ledger_add(l, STK_RES_HOST, 6, 8, "swaps", "s");
    stk_ledger_add(l, STK_RES_EVENT, 7, 0, "comes", "s");
    struct pen_snapshot *after = take(l);

    struct pen_snapshot *d = diff(before, after);
    assert_string_equal(text_of(d), "HOST goes s -10 -1;"
                                    "HOST shrinks s -30 -1;"
                                    "event comes s 0 1;");
    struct pen_snapshot *back = diff(after, before);
    pen_snapshot_destroy(&before);
    assert_string_equal(text_of(back), "HOST goes s 10 1;"
                                       "HOST shrinks s 30 1;"
                                       "event comes s 0 -1;");
    struct pen_snapshot *all = diff(NULL, after), *none = diff(after, after);
    char copy[512];
    snprintf(copy, sizeof(copy), "%s", text_of(after));
    assert_string_equal(text_of(all), copy);
    assert_string_equal(text_of(none), "");
    pen_snapshot_destroy(&after);
    pen_snapshot_destroy(&d);
    pen_snapshot_destroy(&back);
    pen_snapshot_destroy(&all);
    pen_snapshot_destroy(&none);
    stk_ledger_destroy(&l);
}

// --- random ledgers ---------------------------------------------------------

enum { KINDS = STK_RES_COUNT - 1, OWNERS = 5, SITES = 3, STEPS = 120 };
static const char *const owners[OWNERS] = { "", "a", "a.out", "b", "pipeline" };
static const char *const sites[SITES] = { "", "x.c:1", "x.c:10" };

// By kind, owner and site: bytes and count.
struct model {
    int64_t sum[KINDS][OWNERS][SITES][2];
};

static unsigned index_of(const char *const *names, unsigned count,
                         const char *name)
{
    unsigned i = 0;
    while (i < count && strcmp(names[i], name) != 0)
        i++;
    assert_true(i < count);
    return i;
}

// Add what a snapshot has; the entries must be in order, none of them twice.
static void add_to(struct model *m, const struct pen_snapshot *s)
{
    const char *kinds[KINDS];
    for (unsigned k = 0; k < KINDS; k++)
        kinds[k] = stk_res_name((enum stk_res)(k + 1));
    const struct pen_ledger_entry *e = NULL;
    const size_t count = pen_snapshot_entries(s, &e);
    for (size_t i = 0; i < count; i++) {
        int64_t *sum = m->sum[index_of(kinds, KINDS, e[i].kind)][index_of(
            owners, OWNERS, e[i].owner)][index_of(sites, SITES, e[i].site)];
        assert_true(e[i].bytes || e[i].count);
        sum[0] += e[i].bytes;
        sum[1] += e[i].count;
        if (!i)
            continue;
        const int kind = strcmp(e[i - 1].kind, e[i].kind);
        const int owner = strcmp(e[i - 1].owner, e[i].owner);
        const int site = strcmp(e[i - 1].site, e[i].site);
        assert_true(kind < 0 ||
                    (kind == 0 && (owner < 0 || (owner == 0 && site < 0))));
    }
}

struct held {
    enum stk_res res;
    unsigned owner, site;
    uint64_t key, bytes;
};

// Some come, some go; `held` has what is then alive.
static void change(struct stk_ledger *l, uint64_t *random, struct held *held,
                   unsigned *count, uint64_t *key)
{
    for (unsigned i = 0; i < STEPS; i++) {
        if (*count && pen_test_random(random) % 3 == 0) {
            const unsigned k = pen_test_random(random) % *count;
            const struct held h = held[k];
            held[k] = held[--*count];
            stk_ledger_remove(l, h.res, h.key, h.bytes);
            continue;
        }
        struct held *h = &held[(*count)++];
        h->res = (enum stk_res)(1 + pen_test_random(random) % KINDS);
        h->owner = pen_test_random(random) % OWNERS;
        h->site = pen_test_random(random) % SITES;
        h->key = ++*key;
        h->bytes =
            h->res <= STK_RES_DMABUF ? 1 + pen_test_random(random) % 99 : 0;
        stk_ledger_add(l, h->res, h->key, h->bytes, owners[h->owner],
                       sites[h->site]);
    }
}

static void model_of(struct model *m, const struct held *held, unsigned count)
{
    memset(m, 0, sizeof(*m));
    for (unsigned i = 0; i < count; i++) {
        const struct held *h = &held[i];
        m->sum[h->res - 1][h->owner][h->site][0] += (int64_t)h->bytes;
        m->sum[h->res - 1][h->owner][h->site][1]++;
    }
}

PEN_TEST(a_difference_added_to_a_gives_b_for_random_ledgers)
{
    static struct held held[2 * STEPS];
    static struct model expected, got;
    for (uint64_t seed = 1; seed <= pen_test_seeds(100, 2000); seed++) {
        uint64_t random = seed, key = 0;
        unsigned count = 0;
        struct stk_ledger *l = stk_ledger_create(true);

        change(l, &random, held, &count, &key);
        struct pen_snapshot *a = take(l);
        model_of(&expected, held, count);
        memset(&got, 0, sizeof(got));
        add_to(&got, a);
        assert_memory_equal(&got, &expected, sizeof(got));

        change(l, &random, held, &count, &key);
        struct pen_snapshot *b = take(l), *d = diff(a, b);
        model_of(&expected, held, count);
        add_to(&got, d);  // got: a, then a + (b - a)
        assert_memory_equal(&got, &expected, sizeof(got));

        pen_snapshot_destroy(&a);
        pen_snapshot_destroy(&b);
        pen_snapshot_destroy(&d);
        while (count--)
            stk_ledger_remove(l, held[count].res, held[count].key,
                              held[count].bytes);
        stk_ledger_destroy(&l);
    }
}

// --- while others write -----------------------------------------------------

static void *busy(void *cookie)
{
    struct stk_ledger *l = cookie;
    for (unsigned i = 0; i < 20000; i++) {
        stk_ledger_add(l, STK_RES_HOST, 64 + i % 7, 3, "busy", "s");
        stk_ledger_remove(l, STK_RES_HOST, 64 + i % 7, 3);
    }
    return NULL;
}

PEN_TEST(a_snapshot_may_be_taken_while_others_write)
{
    struct stk_ledger *l = stk_ledger_create(true);
    stk_ledger_add(l, STK_RES_FILE, 5, 0, "still", "s");
    pthread_t thread;
    assert_int_equal(pthread_create(&thread, NULL, busy, l), 0);
    for (unsigned i = 0; i < 200; i++) {
        struct pen_snapshot *s = take(l);
        // What moves is seen at one time or another, what stays always.
        const struct pen_ledger_entry *e = NULL;
        const size_t count = pen_snapshot_entries(s, &e);
        assert_true(count == 1 || count == 2);
        assert_string_equal(e[count - 1].owner, "still");
        assert_int_equal(e[count - 1].count, 1);
        if (count == 2) {
            assert_string_equal(e[0].owner, "busy");
            assert_true(e[0].count > 0 && e[0].bytes == 3 * e[0].count);
        }
        pen_snapshot_destroy(&s);
    }
    pthread_join(thread, NULL);
    stk_ledger_remove(l, STK_RES_FILE, 5, 0);
    stk_ledger_destroy(&l);
}

// --- no memory --------------------------------------------------------------

PEN_TEST(each_failing_allocation_is_an_error_and_leaves_nothing)
{
    struct stk_ledger *l = stk_ledger_create(true);
    for (uint64_t k = 0; k < 300; k++) {
        char owner[16];
        snprintf(owner, sizeof(owner), "owner %u", (unsigned)k);
        stk_ledger_add(l, STK_RES_HOST, k, 1, owner, "somewhere.c:100");
    }
    unsigned nth = 1;
    for (;; nth++) {
        struct pen_snapshot *s = NULL, *d = NULL;
        struct pen_error err = { 0 };
        pen_alloc_fail_arm(nth, false);
        enum pen_status st = stk_snapshot_take(l, &s, &err);
        if (st == PEN_OK)
            st = pen_snapshot_diff(NULL, s, &d, &err);
        const bool fired = pen_alloc_fail_disarm();
        assert_int_equal(st, fired ? PEN_E_NOMEM : PEN_OK);
        assert_int_equal(err.status, st);
        assert_true(fired == !d);
        assert_true(!fired || strstr(err.text, "no memory"));
        pen_snapshot_destroy(&s);
        pen_snapshot_destroy(&d);
        if (!fired)
            break;
    }
    assert_true(nth > 12);
    for (uint64_t k = 0; k < 300; k++)
        stk_ledger_remove(l, STK_RES_HOST, k, 1);
    stk_ledger_destroy(&l);
}

PEN_TEST_MAIN(PEN_CASE(entries_are_sorted_and_equal_ones_summed),
              PEN_CASE(without_sites_there_is_one_entry_a_kind),
              PEN_CASE(nothing_is_a_snapshot_without_entries),
              PEN_CASE(a_difference_tells_what_came_and_what_went),
              PEN_CASE(a_difference_added_to_a_gives_b_for_random_ledgers),
              PEN_CASE(a_snapshot_may_be_taken_while_others_write),
              PEN_CASE(each_failing_allocation_is_an_error_and_leaves_nothing))
