#ifndef STK_PLAN_JOINT_H
#define STK_PLAN_JOINT_H

// The choice for the whole graph (ADR 0013): classes of generic types, homes
// of pools, the tree of bridges behind each output.

#include "plan_place.h"

// What may arrive at an input.
struct stk_label {
    uint8_t home;
    bool staged;     // it lies in a pool that must not be pinned
    uint16_t group;  // of labels that are the same to the consumer
    uint32_t caps;
    uint32_t takers;  // options of the consumer that take it, as bits
};

// What a pin of an option takes: homes, as bits.
uint32_t stk_option_homes(const struct stk_planner *p,
                          const struct stk_option *option, uint32_t outputs,
                          uint32_t pin);
// Memory types that an input asks for. A hand-written MemTypeConversion hands
// frames through that lie where they shall, and the planner knows better how to
// bring them there than by a copy, unless it is told to insert nothing.
uint32_t stk_wanted_mems(const struct stk_planner *p,
                         const struct stk_option *option, uint32_t outputs,
                         uint32_t pin);
// Where frames of a class's output may be born, by its declaration; what the
// machine cannot make is in none of them.
uint32_t stk_option_roots(const struct stk_planner *p,
                          const struct stk_option *option, uint32_t pin,
                          uint32_t *declared);
bool stk_kinds_fit(const struct pen_caps *caps, const struct pen_pin_set *set);

// Choose. p->order, first, out, first_in, in and source caps are there.
// Errors: PEN_E_NOMEM.
PEN_NODISCARD enum pen_status stk_plan_choose(struct stk_planner *p,
                                              struct stk_decision *out,
                                              struct pen_error *err);
void stk_decision_finish(struct stk_decision *d);

#endif  // STK_PLAN_JOINT_H
