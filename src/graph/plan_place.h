#ifndef STK_PLAN_PLACE_H
#define STK_PLAN_PLACE_H

// Where frames live and in which format they travel: what the whole graph's
// choice (plan_joint.c) is made of.
//
// A state is a home (a memory type, DMABUF of the host or of the device) and a
// format; "own" stands for the set of formats that a pin may give, the other
// formats for the results of conversions. A board has all states of the frames
// of one pin and the steps between them, which are the bridges. A step is
// tight if it lies on a shortest path from the root in terms of loss, then
// transfers; a tree may use tight steps only. ADR 0013 has the rules.
//
// A pool is of one kind. A host pool that is page-locked stays what a host pin
// takes, so that upgrade is a step from one state to another. A pool that is
// made of a DMABUF excludes that; it is a root of its own.
//
// plan_loss.c compares formats, plan_template.c knows the bridges that can be
// had, plan_board.c makes boards, plan_search.c finds the cheapest tree on one,
// plan_place.c and plan_bridge.c put trees into the plan.

#include "planner.h"

enum {
    PLACE_FORMATS = 17,  // own, eleven, five Bayer
    PLACE_STATES = STK_HOMES * PLACE_FORMATS,
    PLACE_PLAIN = STK_HOME_DMA_HOST * PLACE_FORMATS,  // those without DMABUF
    // Conversions from a DMABUF that the device reaches end in four homes.
    PLACE_HOPS = 4 * PLACE_FORMATS + 4,
};
#define PLACE_INFINITE (INT64_MAX / 4)  // two of them can be added

// Costs are nanoseconds times PLACE_TICKS; what is left decides between trees
// of equal time: fewer bridges, then less pinned memory, then targets that some
// frames have already.
#define PLACE_TICKS 65536
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
#define STK_OPS_CUDA (1u << OP_H2D | 1u << OP_D2H | 1u << OP_CONVERT_CUDA)

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

// --- what is better (plan_loss.c) --------------------------------------------

int stk_value_compare(const struct stk_value *a, const struct stk_value *b);
void stk_value_add(struct stk_value *to, const struct stk_value *more);
void stk_value_take(struct stk_value *from, const struct stk_value *less);

// What a conversion loses, as one number: the most important part (channels,
// depth, chroma, range, matrix) in the highest bits, below all of them a field
// for transfers. Sums over a path do not carry. `yuv_full`: YUV on both sides
// is of full range, else limited.
uint64_t stk_format_loss(enum pen_format from, enum pen_format to,
                         bool yuv_full);
// Of a path, seen by `weight` connections; its transfers do not count.
stk_loss stk_loss_of(uint64_t path, uint32_t weight);
// Larger is richer: channels, then depth, then chroma.
uint32_t stk_format_richness(enum pen_format format);
// Append the loss in words; with `several` the format is named.
void stk_loss_tell(struct stk_text *t, enum pen_format from, enum pen_format to,
                   uint64_t loss, bool several);

// --- boards (plan_board.c) ---------------------------------------------------

#define STK_NO_CAPS UINT32_MAX
// Errors: PEN_E_NOMEM, PEN_E_LIMIT a frame is too large.
PEN_NODISCARD enum pen_status stk_caps_intern(struct stk_caps_table *t,
                                              const struct pen_caps *caps,
                                              uint32_t *number,
                                              struct pen_error *err);
bool stk_caps_same(const struct pen_caps *a, const struct pen_caps *b);
void stk_caps_finish(struct stk_caps_table *t);

struct stk_hop {
    uint8_t to, op;
    uint64_t loss;
    int64_t cost;
};
struct stk_tight_hop {
    uint8_t from, to;
    int64_t cost;
};
// What is known from one root.
struct stk_reach {
    uint64_t distance[PLACE_STATES];  // loss and transfers; UINT64_MAX: none
    unsigned count;
    struct stk_tight_hop hop[];
};

struct stk_board {
    struct stk_board_key key;
    uint32_t number;  // one for each
    unsigned format_count;
    enum pen_format format[PLACE_FORMATS];  // [0]: own
    uint32_t caps[PLACE_FORMATS];           // of frames of each; STK_NO_CAPS
    uint32_t mask;                          // of own
    int64_t bytes[PLACE_FORMATS];
    int states;
    uint16_t first[PLACE_STATES + 1];
    struct stk_hop *hop;
    struct stk_reach *reach[STK_HOMES];  // once asked
};

// The formats of the states of a pin that gives `mask`; returns their number.
unsigned stk_board_formats(const struct stk_planner *p, uint32_t mask,
                           enum pen_format format[PLACE_FORMATS]);
// Valid until the next call.
PEN_NODISCARD enum pen_status stk_board_get(struct stk_planner *p,
                                            const struct stk_board_key *key,
                                            struct stk_board **out,
                                            struct pen_error *err);
// From the root (home, own); NULL: no memory.
const struct stk_reach *stk_board_reach(struct stk_board *b,
                                        enum stk_home home);
// The step between two states, which is there.
const struct stk_hop *stk_board_hop(const struct stk_board *b, int from,
                                    int to);
void stk_boards_finish(struct stk_boards *b);
// Whether YUV of the tree is of full range: what is converted to YUV is
// limited, so only where the pin gives nothing but full-range YUV.
bool stk_place_yuv_full(const struct pen_caps *caps, uint32_t mask);

// --- the cheapest tree (plan_search.c) ---------------------------------------

// What a connection pays for being served in a state, with all behind it.
struct stk_offer {
    uint8_t state;
    struct stk_value value;
};
struct stk_end {
    const struct stk_offer *offers;
    uint32_t count, weight;
};
struct stk_tree {
    int root;                 // state
    struct stk_value value;   // steps, losses and what the ends pay
    struct stk_value bound;   // no tree is better
    struct stk_value itself;  // without what the ends pay
    unsigned steps;
    struct {
        uint8_t from, to;
    } step[PLACE_STATES];
};
struct stk_search;
// The best tree from one of the homes in `roots` and `upgraded` (pools that
// are made of another memory than their module gives). `at` (may be NULL) gets
// the state at which each end is served, -1: none.
PEN_NODISCARD enum pen_status
stk_search_tree(struct stk_planner *p, const struct stk_board_key *key,
                uint32_t roots, const struct stk_end *ends, uint32_t count,
                struct stk_tree *out, int16_t *at, struct pen_error *err);
void stk_search_finish(struct stk_search **s);

// --- bridges that can be had (plan_template.c) -------------------------------

// Look up the classes of bridges in the registry.
void stk_templates_find(struct stk_planner *p);
// The template of a conversion, made on first use.
PEN_NODISCARD enum pen_status
stk_template_converter(struct stk_planner *p, unsigned side, enum pen_format to,
                       const struct stk_template **out, struct pen_error *err);
// Those of the copies.
PEN_NODISCARD enum pen_status stk_templates_copies(struct stk_planner *p,
                                                   struct pen_error *err);
// The template behind a step to `format`; NULL for an upgrade.
const struct stk_template *stk_template_of(const struct stk_planner *p,
                                           enum stk_op op,
                                           enum pen_format format);
// Whether a converter takes all formats of the mask (but its target).
bool stk_template_converts(const struct stk_template *t, uint32_t from,
                           enum pen_format to);

// --- into the plan (plan_place.c, plan_bridge.c) -----------------------------

// What an insertion is about: the pin, the state it starts from, its edges in
// p->out.
struct stk_origin {
    const char *id, *pin;
    enum stk_home home;
    const struct pen_caps *caps;
    uint32_t node, pin_number;  // of the graph
    uint32_t begin, end;
    const struct stk_board *board;  // NULL: nothing is inserted
    const struct stk_tree *tree;
};

// Let the pool of an output that is being placed, or for forwarded frames the
// pools they come from, be made of `to` (PINNED, DMA_HOST, DMA_CUDA).
void stk_pool_upgrade(struct stk_planner *p, uint32_t number, uint32_t pin,
                      enum stk_home to);
// Put the tree below state `at`, which is output `pin` of plan node `number`,
// into the plan.
PEN_NODISCARD enum pen_status
stk_place_emit(struct stk_planner *p, const struct stk_origin *from, int at,
               uint32_t number, uint32_t pin, struct pen_error *err);
// Memory types of an input in words; HOST takes pinned frames too, which is not
// told each time.
void stk_wanted_text(uint32_t mems, char *text, size_t size);

#endif  // STK_PLAN_PLACE_H
