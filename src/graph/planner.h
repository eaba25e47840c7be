#ifndef STK_PLANNER_H
#define STK_PLANNER_H

// What the parts of the planner share. planner.c goes through the graph once
// in topological order; for every module plan_caps.c says what it gives and
// plan_place.c finds the bridges behind each of its output pins; then
// plan_size.c counts frames and bytes, and plan_advise.c looks for detours.

#include "graph.h"

enum {
    STK_DEFAULT_DEPTH = 4,
    // Frames queued in front of an inserted bridge: one that it works on and
    // one to go on with; what the user's depth is for waits behind it.
    STK_BRIDGE_DEPTH = 2,
    // Distinct sets of acceptable states of one pin up to which its tree of
    // bridges is exact.
    STK_EXACT_TARGETS = 6,
    // Sizes that the choice of bridges reckons with while they are unknown.
    STK_NOMINAL_WIDTH = 1920,
    STK_NOMINAL_HEIGHT = 1080,
    STK_NOMINAL_BYTES = 1 << 20,
};

// --- caps (plan_caps.c) -----------------------------------------------------

// The mask of formats of raw pictures; 0 for kinds that have none.
uint32_t stk_caps_mask(const struct pen_caps *caps);

// Bytes of the largest frame that `caps` allow, pitches aligned. *out is 0
// where they are unknown. Errors: PEN_E_LIMIT.
PEN_NODISCARD enum pen_status
stk_caps_bytes(const struct pen_caps *caps, size_t *out, struct pen_error *err);

// Let `into` hold all that `more` may be: sizes grow, format sets unite, and
// what differs otherwise becomes unknown. An unknown size of one of the two
// stays unknown with `strict`, else the known one is taken.
void stk_caps_unite(struct pen_caps *into, const struct pen_caps *more,
                    bool strict);

// Whether frames of several inputs may leave by one output.
bool stk_node_gathers(const struct pen_module_class *cls, uint32_t inputs);

// Caps of the outputs of a module from those of its inputs: its negotiate for
// every format that may arrive, united. *refused is the mask of formats at
// the first input that it refused though it took others.
// Errors: PEN_E_CONFIG, PEN_E_LIMIT when nothing that may arrive is taken.
PEN_NODISCARD enum pen_status
stk_plan_negotiate(const struct stk_plan_node *node,
                   const struct pen_caps in[PEN_MAX_PINS],
                   struct pen_caps out[PEN_MAX_PINS], uint32_t *refused,
                   struct pen_error *err);

// --- cost (plan_cost.c) -----------------------------------------------------

// Nanoseconds to move `bytes` at `rate` bytes per microsecond, rounded up.
int64_t stk_cost_move(uint64_t bytes, uint32_t rate);
int64_t stk_cost_sum(int64_t a, int64_t b);  // saturating

enum stk_transfer { STK_NO_TRANSFER = 0, STK_H2D, STK_D2H, STK_D2D };
// Whether a module is nothing but a copy between host and device.
enum stk_transfer stk_node_transfer(const struct stk_plan_node *node);

// Cost of one frame at a module of the plan; false if some size is unknown.
bool stk_node_cost(const struct pen_plan *plan,
                   const struct stk_plan_node *node, int64_t *cost);

// What every part returns when there is no memory for the plan.
enum pen_status stk_plan_no_memory(struct pen_error *err);

// --- building a plan (planner.c) --------------------------------------------

// What will arrive at an edge of the graph whose consumer is not yet placed.
struct stk_pending {
    uint32_t from, from_pin;  // plan node
};

// An inserted class with one setting of its properties; made on first use and
// shared by all bridges of that kind.
struct stk_template {
    bool tried, usable;
    const struct pen_module_class *cls;
    const void *params;
    struct stk_base_params base;
    struct pen_pin_set in, out;
    char text[24];  // the property's value
};

struct stk_planner {
    struct pen_plan *plan;
    const struct stk_graph *graph;
    struct pen_issues *issues;
    size_t errors, limits;  // all; those about budgets and limits
    uint32_t node_room, edge_room, poison_room;
    bool *poison;           // by plan node: it or something before it failed
    uint32_t *first, *out;  // edges of the graph by source, canonical order
    struct stk_pending *pending;  // by edge of the graph
    // By node of the graph that gathers: memory types left to its inputs; 0:
    // not yet known.
    uint32_t *side;
    uint32_t bridges;  // inserted so far
    bool imitated;     // some module of the file is named like a bridge
    bool exact;        // every pin's tree is proven
    bool bridged;      // a transfer or conversion was inserted
    bool choice;       // some module may carry a choice to its outputs
    const struct pen_module_class *copy_cls, *convert_cls[2];  // host, device
    struct stk_template copy[2];  // host to device, device to host
    struct stk_template convert[2][PEN_FMT_COUNT];
    struct stk_place *place;  // work space of plan_place.c
};

// Append to the plan; the new element is zeroed but for in_edge (-1).
PEN_NODISCARD enum pen_status stk_planner_add_node(struct stk_planner *p,
                                                   uint32_t *number,
                                                   struct pen_error *err);
// Edge from an output to an input pin; depth, policy and the consumer's
// in_edge are set.
PEN_NODISCARD enum pen_status
stk_planner_add_edge(struct stk_planner *p, uint32_t from, uint32_t from_pin,
                     uint32_t to, uint32_t to_pin, uint32_t depth,
                     enum stk_policy policy, struct pen_error *err);
// Caps and formats of the outputs of plan node `number` from its edges.
// Refusals become issues; PEN_OK then, too, with outputs as far as known.
PEN_NODISCARD enum pen_status
stk_planner_caps(struct stk_planner *p, uint32_t number, struct pen_error *err);
// Depth of a connection: its own, the consumer's, the settings', 4.
uint32_t stk_planner_depth(const struct stk_planner *p,
                           const struct stk_edge *edge);
PEN_PRINTF(5, 6)
void stk_planner_error(struct stk_planner *p, const char *code,
                       const char *pointer, const char *suggestion,
                       const char *format, ...);

// --- the parts --------------------------------------------------------------

// Find the bridges between an output of a plan node and its consumers, insert
// them, and leave in p->pending where each consumer's edge starts. The edges
// of the pin are p->out[begin..end). What cannot be becomes an issue.
PEN_NODISCARD enum pen_status stk_plan_place(struct stk_planner *p,
                                             uint32_t number, uint32_t pin,
                                             uint32_t begin, uint32_t end,
                                             struct pen_error *err);
void stk_plan_place_finish(struct stk_planner *p);

// Frames and bytes of all pools, peaks, costs and transfers of a plan whose
// nodes, edges, memory types and caps stand.
// Errors: PEN_E_LIMIT a size overflows or a picture is too large.
PEN_NODISCARD enum pen_status stk_plan_size(struct pen_plan *plan,
                                            struct pen_error *err);
// Compare with the budgets: PEN_E_LIMIT with the largest users in `err`. One
// call tells one excess: *next (0 at first) is where to go on, `code` (8
// bytes) its issue code and *key the budget's name in files.
PEN_NODISCARD enum pen_status stk_plan_budgets(const struct pen_plan *plan,
                                               unsigned *next, char *code,
                                               const char **key,
                                               struct pen_error *err);

PEN_NODISCARD enum pen_status stk_plan_advise(struct stk_planner *p,
                                              struct pen_error *err);

// --- for the printers -------------------------------------------------------

// "MONO|RGB" of a mask, "?" of none.
void stk_mask_text(uint32_t formats, char *text, size_t size);
void stk_mems_text(uint32_t mems, char *text, size_t size);
// As pen_caps_text, but sets of formats are told.
void stk_plan_caps_text(const struct pen_caps *caps, char *text, size_t size);
void stk_plan_bytes_text(uint64_t bytes, char *text, size_t size);  // 0: "?"
// " key=value" of what is not default, cut after about `limit` characters.
bool stk_plan_props_text(struct stk_text *t, const struct stk_plan_node *node,
                         size_t limit);
// Whether some pool of that type has no size yet.
bool stk_plan_unknown(const struct pen_plan *plan, enum pen_mem_type mem);
// Selector of the device that the plan asks for.
const char *stk_plan_device(const struct pen_plan *plan);

#endif  // STK_PLANNER_H
