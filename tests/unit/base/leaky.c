// Tests that leak, for the test of what watches over them: with
// --detect-memory-leaks=1 they must fail, with 0 pass.

#include "src/base/ledger.h"

#include "pen_test.h"

PEN_TEST(something_is_left_in_a_ledger)
{
    struct stk_ledger *l = stk_ledger_create(true);
    stk_ledger_add(l, STK_RES_HOST, 1, 100, "leaky", PEN_HERE);
    stk_ledger_destroy(&l);
}

PEN_TEST(a_ledger_is_not_destroyed)
{
    // Kept where a leak checker finds it.
    static struct stk_ledger *volatile kept;
    kept = stk_ledger_create(true);
    assert_non_null(kept);
}

PEN_TEST(nothing_is_left)
{
    struct stk_ledger *l = stk_ledger_create(true);
    stk_ledger_add(l, STK_RES_HOST, 1, 100, "clean", PEN_HERE);
    stk_ledger_remove(l, STK_RES_HOST, 1, 100);
    stk_ledger_destroy(&l);
}

PEN_TEST_MAIN(PEN_CASE(something_is_left_in_a_ledger),
              PEN_CASE(a_ledger_is_not_destroyed), PEN_CASE(nothing_is_left))
