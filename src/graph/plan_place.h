#ifndef STK_PLAN_PLACE_H
#define STK_PLAN_PLACE_H

// Where frames live and in which format they travel between one output pin
// and all its consumers.
//
// A state is a home (a memory type, DMABUF of the host or of the device) and a
// format; "own" stands for the set of formats that the pin may give, the other
// formats for the results of conversions.
// Bridges are the steps between states. Consumers with equal acceptable sets
// of states form a target. What is looked for is the tree of steps from the
// pin's state that touches every target.
//
// Order of preference, per consumer: the least information lost, then the
// fewest transfers; among all trees that give every consumer such a path, the
// cheapest. The first two are shortest paths, so the tree may use exactly the
// steps that lie on shortest paths ("tight" ones), and the third is a Steiner
// tree in that small directed graph: exact by the recursion of Dreyfus and
// Wagner over subsets of targets, for up to STK_EXACT_TARGETS of them; beyond,
// targets are joined one after the other to the tree at the nearest state.
//
// A pool is of one kind. A host pool that is page-locked stays what a host pin
// takes, so that upgrade is a step from one state to another. A pool that is
// made of a DMABUF excludes that; it is a root of its own, and the best root is
// the one whose consumers lose least in sum, then have the fewest transfers,
// then the cheapest tree. DMABUFs come into play only where the pin gives them
// or a consumer takes them and no plain host memory: nobody else's frames move
// there.
//
// A consumer that takes the pin's own formats gets them unconverted, however
// cheap another tree would be.
//
// plan_loss.c compares formats, plan_template.c knows the bridges that can be
// had, plan_search.c grows the tree, plan_bridge.c puts it into the plan, and
// plan_place.c does all this for one pin.

#include "planner.h"

enum {
    PLACE_FORMATS = 17,  // own, eleven, five Bayer
    PLACE_STATES = STK_HOMES * PLACE_FORMATS,
    PLACE_PLAIN = STK_HOME_DMA_HOST * PLACE_FORMATS,  // those without DMABUF
    // Conversions from a DMABUF that the device reaches end in four homes.
    PLACE_HOPS = 4 * PLACE_FORMATS + 4,
    PLACE_SUBSETS = 1 << STK_EXACT_TARGETS,
};
#define PLACE_INFINITE (INT64_MAX / 4)  // two of them can be added

// Costs are nanoseconds times PLACE_TICKS; what is left decides between trees
// of equal time: fewer bridges, then less pinned memory, then targets that some
// frames have already.
#define PLACE_TICKS 64
enum { TICK_BRIDGE = 8, TICK_ROOT = 2, TICK_FOREIGN = 2, TICK_UPGRADE = 1 };

enum stk_op {
    OP_UPGRADE,
    OP_H2D,
    OP_D2H,
    OP_TO_PINNED,  // copies on the host
    OP_TO_DMABUF,
    OP_CONVERT_HOST,
    OP_CONVERT_CUDA,
};

struct stk_hop {
    uint8_t to, op;
    bool tight;
    uint64_t loss;
    int64_t cost;
};

// Consumers that accept the same states.
struct stk_target {
    uint32_t homes, formats;  // formats: indices of this pin's list
    uint32_t first, last;     // list of its edges through next_edge
    uint32_t edges;
    int state;  // where the tree serves it; -1: not
};

enum stk_pick_kind { PICK_NONE, PICK_HERE, PICK_HOP, PICK_SPLIT };
struct stk_pick {
    uint8_t kind, arg;
};

struct stk_place {
    unsigned format_count;
    enum pen_format format[PLACE_FORMATS];  // [0]: own
    uint32_t mask;                          // of own
    int64_t bytes[PLACE_FORMATS];
    bool dmabuf;        // some consumer takes DMABUF, but not HOST
    uint32_t pinnable;  // formats whose host pool can be page-locked, by index
    uint32_t staged;    // those that must not, to keep a budget
    int states;         // in play: PLACE_PLAIN or PLACE_STATES
    struct stk_hop hop[PLACE_STATES][PLACE_HOPS];
    unsigned hops[PLACE_STATES];
    // What hop was made for: neighbours in a graph are often alike.
    struct {
        bool valid, priced, full, bridges, dmabuf;
        int states;
        uint32_t mask, pinnable;
        int64_t bytes[PLACE_FORMATS];
    } made;
    uint64_t distance[PLACE_STATES];  // loss and transfers from the root
    struct stk_target *targets;
    uint32_t target_count, target_room;
    uint32_t *next_edge;  // by position in p->out
    // Exact search: which of the active targets a state satisfies.
    uint32_t active[STK_EXACT_TARGETS];
    uint8_t here[PLACE_STATES];
    int64_t best[PLACE_SUBSETS][PLACE_STATES];
    struct stk_pick pick[PLACE_SUBSETS][PLACE_STATES];
    // The tree.
    int root;
    int16_t parent[PLACE_STATES];  // state; -1: none
    bool in_tree[PLACE_STATES];
};

static inline int stk_state_of(unsigned home, unsigned format)
{
    return (int)(home * PLACE_FORMATS + format);
}

static inline enum stk_home stk_state_home(int state)
{
    return (enum stk_home)((unsigned)state / PLACE_FORMATS);
}

static inline unsigned stk_state_format(int state)
{
    return (unsigned)state % PLACE_FORMATS;
}

// What an insertion is about: the pin and the state it starts from.
struct stk_origin {
    const char *id, *pin;
    enum stk_home home;
    const struct pen_caps *caps;
    uint32_t node, pin_number;  // of the graph
};

// --- loss (plan_loss.c) ------------------------------------------------------

// What a conversion loses, as one number: the most important part (channels,
// depth, chroma, range, matrix) in the highest bits, below all of them a field
// for transfers. Sums over a path do not carry. `yuv_full`: YUV on both sides
// is of full range, else limited.
uint64_t stk_format_loss(enum pen_format from, enum pen_format to,
                         bool yuv_full);
// Larger is richer: channels, then depth, then chroma.
uint32_t stk_format_richness(enum pen_format format);
// Append the loss in words; with `several` the format is named.
void stk_loss_tell(struct stk_text *t, enum pen_format from, enum pen_format to,
                   uint64_t loss, bool several);

// --- one pin (plan_place.c) --------------------------------------------------

// Memory types that an input asks for. A hand-written MemTypeConversion hands
// frames through that lie where they shall, and the planner knows better how to
// bring them there than by a copy, unless it is told to insert nothing.
uint32_t stk_wanted_mems(const struct stk_planner *p,
                         const struct stk_node *node, uint32_t pin);

// --- bridges that can be had (plan_template.c) -------------------------------

// Look up the classes of bridges in the registry.
void stk_templates_find(struct stk_planner *p);
// Make the templates that the formats of `w` can need, once each.
PEN_NODISCARD enum pen_status stk_templates_make(struct stk_planner *p,
                                                 const struct stk_place *w,
                                                 struct pen_error *err);
// The template behind a step; NULL for an upgrade.
const struct stk_template *stk_template_of(const struct stk_planner *p,
                                           const struct stk_place *w,
                                           const struct stk_hop *hop);
// Whether a converter takes all formats of the mask (but its target).
bool stk_template_converts(const struct stk_template *t, uint32_t from,
                           enum pen_format to);

// --- the tree (plan_search.c) ------------------------------------------------

// Whether YUV of the tree is of full range: what is converted to YUV is
// limited, so only where the pin gives nothing but full-range YUV.
bool stk_place_yuv_full(const struct pen_caps *caps, uint32_t mask);
// The formats of the states: the own set and what can be converted to.
void stk_place_formats(const struct stk_planner *p, struct stk_place *w);
// Bytes of a frame in each of them, for the size of `caps`.
PEN_NODISCARD enum pen_status stk_place_bytes(struct stk_place *w,
                                              const struct pen_caps *caps,
                                              struct pen_error *err);
// All steps between states; without `bridges` only upgrades.
void stk_place_hops(struct stk_planner *p, struct stk_place *w,
                    const struct pen_caps *caps, bool bridges);
// Their costs, for the bytes of `w`.
void stk_place_price(const struct stk_planner *p, struct stk_place *w);
// Least loss of every state from w->root, and which steps lie on such paths.
void stk_place_tight(struct stk_place *w);
// Whether a reachable state is one that the target accepts.
bool stk_place_satisfies(const struct stk_place *w, const struct stk_target *t,
                         int v);
// Least loss (and transfers) at which it can be served; UINT64_MAX: not.
uint64_t stk_place_least(const struct stk_place *w, const struct stk_target *t);
// w->best and w->pick for all subsets of the first `count` active targets.
void stk_place_search(struct stk_place *w, unsigned count);
// Cost of the tree in w->parent, and forget it.
int64_t stk_place_tree_cost(const struct stk_place *w);
void stk_place_clear(struct stk_place *w);
// Grow the tree: the cheapest for `count` active targets, or for all targets
// one after the other.
void stk_place_exact(struct stk_place *w, unsigned count);
void stk_place_greedy(struct stk_place *w);

// --- into the plan (plan_bridge.c) -------------------------------------------

// Whether the pool of an output that is being placed, or for forwarded frames
// the pools they come from, can be made of `to` (PINNED, DMA_HOST, DMA_CUDA).
enum stk_chance stk_pool_chance(struct stk_planner *p, uint32_t number,
                                uint32_t pin, enum stk_home to);
// Let it be so.
void stk_pool_upgrade(struct stk_planner *p, uint32_t number, uint32_t pin,
                      enum stk_home to);

// Put the tree below state `at`, which is output `pin` of plan node `number`,
// into the plan.
PEN_NODISCARD enum pen_status
stk_place_emit(struct stk_planner *p, struct stk_place *w,
               const struct stk_origin *from, int at, uint32_t number,
               uint32_t pin, struct pen_error *err);
// Memory types of an input in words; HOST takes pinned frames too, which is not
// told each time.
void stk_wanted_text(uint32_t mems, char *text, size_t size);

#endif  // STK_PLAN_PLACE_H
