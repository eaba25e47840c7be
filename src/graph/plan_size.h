#ifndef STK_PLAN_SIZE_H
#define STK_PLAN_SIZE_H

// What plan_size.c, plan_budget.c and plan_settle.c share: what a plan holds
// and moves, added up node by node, so that a node can be taken out of the sum
// and put back with another size. And what the runtime has to know of it.

#include "plan.h"

struct stk_plan_totals {
    uint64_t peak[PEN_MEM_COUNT];
    uint32_t unknown;
    uint64_t h2d, d2h, h2h;
    int64_t cost;
};

struct stk_plan_totals stk_plan_totals_of(const struct pen_plan *plan);
void stk_plan_set_totals(struct pen_plan *plan,
                         const struct stk_plan_totals *t);
// Add what a node contributes, or with `sign` -1 take it away again.
// Errors: PEN_E_LIMIT the sum overflows.
PEN_NODISCARD enum pen_status stk_plan_account(const struct pen_plan *plan,
                                               struct stk_plan_totals *t,
                                               const struct stk_plan_node *node,
                                               int sign, struct pen_error *err);

// What follows from the sizes of a node's frames: its cost, and the memory
// that its class asks for.
void stk_plan_node_cost(const struct pen_plan *plan,
                        struct stk_plan_node *node);
void stk_plan_node_workspace(const struct pen_plan *plan,
                             struct stk_plan_node *node);
// Bytes that the workspace of a node takes.
uint64_t stk_plan_workspace_bytes(const struct stk_plan_node *node,
                                  enum pen_mem_type mem);

// Bytes of one block of an output's pool and the type that they count as.
size_t stk_plan_block_bytes(const struct stk_plan_output *o,
                            enum pen_mem_type *mem);
// A size that is not rounded down: who copies it gets enough.
void stk_plan_enough_text(uint64_t bytes, char *text, size_t size);

// Whether a pool's blocks are first written by work on the stream, not by the
// host.
bool stk_plan_streamed(const struct pen_plan *plan,
                       const struct stk_plan_node *node,
                       const struct stk_plan_output *o);

#endif  // STK_PLAN_SIZE_H
