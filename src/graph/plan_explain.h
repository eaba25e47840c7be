#ifndef STK_PLAN_EXPLAIN_H
#define STK_PLAN_EXPLAIN_H

// Why there is a bridge between two modules, as data: plan_explain.c finds the
// way and the constraints, plan_explain_ask.c plans again without this and
// that, plan_explain_change.c with a changed file, plan_explain_tell.c tells
// it.

#include "plan_place.h"

enum {
    STK_EXPLAIN_PLANS = 16,  // made at most to answer one question
    STK_EXPLAIN_STEPS = 8,   // of them without a step or a class
    STK_EXPLAIN_LISTED = 4,  // of a list in a text; the others are counted
};

// A connection of the file and the bridges on it.
struct stk_link {
    uint32_t from, from_pin, to, to_pin;  // modules of the file
    uint32_t first, count;                // its edges in stk_route.edges
};
// From one module to another, by the fewest connections.
struct stk_route {
    struct stk_link *links;
    uint32_t link_count;
    uint32_t *edges;  // of the plan, from the first module to the last
    uint32_t edge_count;
    bool several;  // there are other ways
};
// An end that is looked for: a pin, or any of the module's.
struct stk_route_end {
    uint32_t node;
    int32_t pin;     // -1: any
    int32_t bridge;  // that must be on the first connection; -1: none
};

// What a pin takes or gives.
struct stk_view {
    const char *pin;              // "blur.input"
    const char *mems, *formats;   // what is left after narrowing
    const char *by_mem, *by_fmt;  // properties that narrow it: "memType"
};
// Why one bridge is there.
struct stk_cause {
    uint32_t node, link;
    enum stk_op op;
    const char *does;    // "copies to the device"
    const char *forced;  // the constraint
    const char *side;    // why before or behind a transfer; "" if it is alone
    const char *shared;  // connections that it serves beside this one; ""
    struct stk_view gives, takes;
};

enum stk_question {
    STK_ASK_STEP,      // without a kind of step
    STK_ASK_CLASS,     // without a class for a generic type
    STK_ASK_MODULE,    // another class for a module of the file
    STK_ASK_PROPERTY,  // another value
    STK_ASK_REMOVE,    // without a module of the file
    STK_ASK_BUDGET,    // with more pinned memory
};
// What another plan would be like. Times and bytes are of the whole plan.
struct stk_answer {
    enum stk_question kind;
    const char *module, *value;  // who, and what instead
    const char *what;            // the same in words
    const char *refused;         // why there is no such plan; "" if there is
    const char *note;            // what else differs; ""
    bool known;                  // the time
    int64_t cost_ns, more_ns;
    int64_t more_once_ns;       // before the first frame
    int64_t bytes, more_bytes;  // copied a frame
    uint32_t bridges, before;   // on the way, then and now
    const char *way;            // these bridges; "" if there are none
    const char *lost, *kept;    // losses that come, that go; ""
};

struct stk_explain {
    const struct pen_plan *plan;
    struct pen_plan *base;  // the same with a size for all that is unknown
    bool nominal;           // some sizes are such
    struct stk_arena arena;
    struct stk_route way;
    struct stk_cause *causes;  // by bridge of the way
    uint32_t cause_count;
    const char **none;  // why a connection has no bridge, by link; NULL: has
    struct stk_answer answers[STK_EXPLAIN_PLANS];
    unsigned asked, unasked, limit;  // plans made, not made, to be made by now
    bool failed;                     // out of memory
};

// --- plan_explain.c ----------------------------------------------------------

// Find the way; false with PEN_OK if there is none. What is in *way is to be
// freed by stk_route_finish() in any case.
PEN_NODISCARD enum pen_status stk_route_find(const struct pen_plan *plan,
                                             const struct stk_route_end *from,
                                             const struct stk_route_end *to,
                                             struct stk_route *way, bool *found,
                                             struct pen_error *err);
void stk_route_finish(struct stk_route *way);
// Number of the node with that id; -1: none.
int32_t stk_plan_find(const struct pen_plan *plan, const char *id);
// A text of the explanation; "" and ex->failed when out of memory.
PEN_PRINTF(2, 3)
const char *stk_explain_text(struct stk_explain *ex, const char *format, ...);
// What has been written to `t`, which is {0} afterwards.
const char *stk_explain_take(struct stk_explain *ex, struct stk_text *t);
// The step that an inserted node is.
enum stk_op stk_bridge_op(const struct pen_plan *plan,
                          const struct stk_plan_node *node);
// Memory types that an input asks for (stk_wanted_mems() of a plan).
uint32_t stk_input_mems(const struct pen_plan *plan,
                        const struct stk_plan_node *node, uint32_t pin);
// Whose pool the frames of an output are of, through modules that pass them on:
// the module and, in *pin, its output.
const struct stk_plan_node *stk_explain_origin(const struct pen_plan *plan,
                                               const struct stk_plan_node *node,
                                               uint32_t *pin);
// The sets of all pins with these parameters.
void stk_narrow(const struct pen_module_class *cls, const void *params,
                struct pen_pin_set in[PEN_MAX_PINS],
                struct pen_pin_set out[PEN_MAX_PINS]);

// --- plan_explain_ask.c ------------------------------------------------------

// Give a size to all that has none: STK_NOMINAL_WIDTH and the others. *any
// tells whether there was something.
PEN_NODISCARD enum pen_status stk_plan_nominal(struct pen_plan *plan, bool *any,
                                               struct pen_error *err);
// ex->base, as the plan was made.
PEN_NODISCARD enum pen_status stk_explain_base(struct stk_explain *ex,
                                               struct pen_error *err);
// One question: what is different, and between which modules bridges count.
struct stk_query {
    enum stk_question kind;
    const char *module, *value, *what, *note;
    json_t *root;  // of the changed file; NULL: it is not changed
    struct stk_ban ban;
    bool banned, lifted;    // with the ban; without a budget of pinned memory
    uint32_t removed;       // modules of the way that are not in the file
    const char *from, *to;  // ids; NULL: the ends of the way
    int32_t from_pin, to_pin;
};
// Whether no more plans are to be made by now; then one is counted as not made.
bool stk_explain_spent(struct stk_explain *ex);
// One plan more, which is not spent; takes q->root.
PEN_NODISCARD enum pen_status stk_explain_try(struct stk_explain *ex,
                                              const struct stk_query *q,
                                              struct pen_error *err);
// Module number `i` of the way, the last one first, so that of two ends the one
// that demands is asked to change before the one that gives; NULL: no more.
const struct stk_plan_node *stk_explain_module(const struct stk_explain *ex,
                                               uint32_t i);
// Fill ex->answers.
PEN_NODISCARD enum pen_status stk_explain_ask(struct stk_explain *ex,
                                              struct pen_error *err);

// --- plan_explain_change.c ---------------------------------------------------

// Other modules, without modules, other properties.
PEN_NODISCARD enum pen_status stk_explain_change(struct stk_explain *ex,
                                                 struct pen_error *err);

// --- plan_explain_tell.c -----------------------------------------------------

// NULL when out of memory.
char *stk_explain_tell(const struct stk_explain *ex, bool colour);
char *stk_explain_json(const struct stk_explain *ex);

#endif  // STK_PLAN_EXPLAIN_H
