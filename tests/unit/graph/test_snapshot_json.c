// Snapshots of the ledger as JSON.

#include <jansson.h>

#include <penstock/registry.h>

#include "src/base/snapshot.h"

#include "alloc_fail.h"
#include "pen_test.h"

static struct pen_snapshot *take(struct stk_ledger *l)
{
    struct pen_snapshot *s = NULL;
    assert_int_equal(stk_snapshot_take(l, &s, NULL), PEN_OK);
    return s;
}

static json_t *load(const struct pen_snapshot *s)
{
    char *text = pen_snapshot_json(s);
    assert_non_null(text);
    json_t *value = json_loads(text, JSON_REJECT_DUPLICATES, NULL);
    assert_non_null(value);
    pen_free(text);
    return value;
}

static json_int_t number(json_t *object, const char *kind, const char *key)
{
    json_t *value = json_object_get(json_object_get(object, kind), key);
    assert_true(json_is_integer(value));
    return json_integer_value(value);
}

static struct stk_ledger *filled(void)
{
    struct stk_ledger *l = stk_ledger_create(true);
    stk_ledger_add(l, STK_RES_HOST, 1, 10, "a.out", "x.c:1");
    stk_ledger_add(l, STK_RES_HOST, 2, 5, "b \"q\".out", "x.c:1");
    stk_ledger_add(l, STK_RES_HOST, 3, 10, "a.out", "x.c:1");
    stk_ledger_add(l, STK_RES_REGISTRATION, 4, 0, "b", "x.c:2");
    return l;
}

PEN_TEST(entries_and_totals_are_told)
{
    pen_test_expect_leaks();
    struct stk_ledger *l = filled();
    struct pen_snapshot *s = take(l);
    stk_ledger_destroy(&l);
    json_t *root = load(s);
    json_t *expected = json_pack(
        "{s:[{s:s,s:s,s:s,s:i,s:i},{s:s,s:s,s:s,s:i,s:i},"
        "{s:s,s:s,s:s,s:i,s:i}],s:{s:{s:i,s:i},s:{s:i,s:i}}}",
        "entries", "kind", "HOST", "owner", "a.out", "site", "x.c:1", "bytes",
        20, "count", 2, "kind", "HOST", "owner", "b \"q\".out", "site", "x.c:1",
        "bytes", 5, "count", 1, "kind", "registration", "owner", "b", "site",
        "x.c:2", "bytes", 0, "count", 1, "totals", "HOST", "bytes", 25, "count",
        3, "registration", "bytes", 0, "count", 1);
    assert_non_null(expected);
    assert_true(json_equal(root, expected));
    json_decref(expected);
    json_decref(root);
    pen_snapshot_destroy(&s);
}

PEN_TEST(no_entries_are_an_empty_list)
{
    json_t *root = load(NULL);
    assert_int_equal(json_object_size(root), 2);
    assert_true(json_is_array(json_object_get(root, "entries")));
    assert_int_equal(json_array_size(json_object_get(root, "entries")), 0);
    assert_true(json_is_object(json_object_get(root, "totals")));
    assert_int_equal(json_object_size(json_object_get(root, "totals")), 0);
    json_decref(root);
}

PEN_TEST(a_difference_may_be_negative)
{
    pen_test_expect_leaks();
    struct stk_ledger *l = filled();
    struct pen_snapshot *before = take(l), *d = NULL;
    stk_ledger_remove(l, STK_RES_HOST, 2, 5);
    stk_ledger_add(l, STK_RES_HOST, 9, 2, "c", "s");
    struct pen_snapshot *after = take(l);
    stk_ledger_destroy(&l);
    assert_int_equal(pen_snapshot_diff(before, after, &d, NULL), PEN_OK);
    json_t *root = load(d), *totals = json_object_get(root, "totals");
    assert_int_equal(json_array_size(json_object_get(root, "entries")), 2);
    assert_int_equal(number(totals, "HOST", "bytes"), -3);
    assert_int_equal(number(totals, "HOST", "count"), 0);
    assert_null(json_object_get(totals, "registration"));
    json_decref(root);
    pen_snapshot_destroy(&before);
    pen_snapshot_destroy(&after);
    pen_snapshot_destroy(&d);
}

static void *take_malloc(size_t bytes)
{
    return malloc(bytes);
}

static void give_back(void *memory)
{
    free(memory);
}

PEN_TEST(without_memory_there_is_no_text_or_a_whole_one)
{
    pen_test_expect_leaks();
    struct stk_ledger *l = filled();
    struct pen_snapshot *s = take(l);
    stk_ledger_destroy(&l);
    // jansson's allocations go through this program, where they can fail.
    json_set_alloc_funcs(take_malloc, give_back);
    char *whole = pen_snapshot_json(s);
    assert_non_null(whole);
    unsigned refused = 0;
    for (unsigned nth = 1;; nth++) {
        pen_alloc_fail_arm(nth, false);
        char *text = pen_snapshot_json(s);
        const bool fired = pen_alloc_fail_disarm();
        // jansson can do without some of what it asks for.
        assert_true(fired || text);
        refused += !text;
        if (text)
            assert_string_equal(text, whole);
        pen_free(text);
        if (!fired)
            break;
    }
    assert_true(refused > 30);
    pen_free(whole);
    pen_snapshot_destroy(&s);
}

PEN_TEST_MAIN(PEN_CASE(entries_and_totals_are_told),
              PEN_CASE(no_entries_are_an_empty_list),
              PEN_CASE(a_difference_may_be_negative),
              PEN_CASE(without_memory_there_is_no_text_or_a_whole_one))
