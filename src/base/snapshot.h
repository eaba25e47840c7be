#ifndef STK_SNAPSHOT_H
#define STK_SNAPSHOT_H

#include <penstock/ledger.h>

#include "ledger.h"

// Of a ledger that others may write to meanwhile. Errors: PEN_E_NOMEM.
PEN_NODISCARD enum pen_status stk_snapshot_take(struct stk_ledger *ledger,
                                                struct pen_snapshot **out,
                                                struct pen_error *err);

#endif  // STK_SNAPSHOT_H
