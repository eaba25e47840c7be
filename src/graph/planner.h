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

// --- where frames live (plan_home.c) ----------------------------------------

// The memory types, DMABUF by what it is made of.
enum stk_home {
    STK_HOME_HOST = 0,
    STK_HOME_PINNED,
    STK_HOME_CUDA,
    STK_HOME_DMA_HOST,
    STK_HOME_DMA_CUDA,
    STK_HOMES,
};
#define STK_HOME_BIT(h) (1u << (h))
// Those that a host pin takes, a device pin, a DMABUF pin. The first two are
// the two sides of the machine.
#define STK_HOMES_HOST                                                         \
    (STK_HOME_BIT(STK_HOME_HOST) | STK_HOME_BIT(STK_HOME_PINNED) |             \
     STK_HOME_BIT(STK_HOME_DMA_HOST))
#define STK_HOMES_CUDA                                                         \
    (STK_HOME_BIT(STK_HOME_CUDA) | STK_HOME_BIT(STK_HOME_DMA_CUDA))
#define STK_HOMES_DMABUF                                                       \
    (STK_HOME_BIT(STK_HOME_DMA_HOST) | STK_HOME_BIT(STK_HOME_DMA_CUDA))

enum pen_mem_type stk_home_mem(enum stk_home home);
enum stk_dmabuf_kind stk_home_kind(enum stk_home home);
enum stk_home stk_home_of(enum pen_mem_type mem, enum stk_dmabuf_kind kind);
enum stk_home stk_output_home(const struct stk_plan_output *o);
enum stk_home stk_edge_home(const struct stk_plan_edge *e);
void stk_output_set_home(struct stk_plan_output *o, enum stk_home home);
// The homes in which a pin of these memory types takes frames without a copy,
// where this can be done with DMABUFs (bits of pen_dmabuf_caps).
uint32_t stk_homes_taken(uint32_t mems, unsigned dmabuf);
// What can be said of frames that come from any of these homes, which lie on
// one side of the machine.
enum stk_home stk_homes_promise(uint32_t mixed);
// The type whose budget its bytes count against: exported memory is the
// device's.
enum pen_mem_type stk_home_account(enum stk_home home);
// Whether the node gives the frames that it takes: a class that forwards, or a
// MemTypeConversion whose frames lie where they shall.
bool stk_node_hands_through(const struct pen_plan *plan,
                            const struct stk_plan_node *node);
// How the consumer gets at a DMABUF: "mapped", "imported", "exported" or "".
const char *stk_edge_how(const struct pen_plan *plan,
                         const struct stk_plan_edge *e);
// "HOST", "DMABUF(host)", "DMABUF(device)".
const char *stk_home_text(enum stk_home home);
// What a profile says of DMABUFs, with a reason for what cannot be done.
void stk_profile_dmabuf(const struct pen_profile *profile,
                        struct stk_dmabuf_caps *out);

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

// Whether a converter lets frames of its target format through: what comes in
// (NULL: nothing) may be what it gives.
bool stk_node_lets_through(const struct pen_module_class *cls, uint32_t inputs,
                           uint32_t outputs, const struct pen_caps *in,
                           const struct pen_caps *out);

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
// What is done once, spread over the frames that are expected (0: unknown).
int64_t stk_cost_share(uint32_t once, uint64_t frames);

// Whether a class is one of the planner's for copies, not for conversions.
bool stk_class_copies(const struct pen_module_class *cls);
enum stk_transfer { STK_NO_TRANSFER = 0, STK_H2D, STK_D2H, STK_D2D, STK_H2H };
// What a copy of that class from one home to another is.
enum stk_transfer stk_transfer_between(const struct pen_module_class *cls,
                                       enum stk_home in, enum stk_home out);
// Whether a node is nothing but a copy from one home to another.
enum stk_transfer stk_node_transfer(const struct pen_plan *plan,
                                    const struct stk_plan_node *node);

// Time of a frame at a class that is no copy: to read and write `bytes`, and
// what its operations() tells for caps of known sizes.
int64_t stk_cost_class(const struct pen_profile *f,
                       const struct pen_module_class *cls, const void *params,
                       const struct pen_caps *in, const struct pen_caps *out,
                       uint64_t bytes);
// Whether a class reads what comes in at a pin: one of the host that takes
// device frames cannot, wherever they lie.
bool stk_reads(const struct pen_module_class *cls,
               const struct pen_pin_set *in);
// Of a copy that takes `in` and gives `out` bytes.
int64_t stk_cost_transfer(const struct pen_profile *f, enum stk_transfer which,
                          uint64_t in, uint64_t out);

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
    const struct pen_pin_set *in, *out;  // of its one pin each
    char text[24];                       // the property's value
};

// What the planner remembers of a plan node while it works.
enum stk_chance { STK_CHANCE_OPEN = 0, STK_CHANCE_STAGED, STK_CHANCE_NONE };
struct stk_aside {
    // The output of the graph that it is (its module) or that it serves, and
    // of an inserted node the format that it makes; 0: the pin's own.
    uint32_t node;
    uint32_t option;  // of the module
    uint8_t pin, format;
};

// What a source gives, by option.
struct stk_source {
    bool usable;
    struct pen_error error;  // why not
    uint32_t refused;
    struct pen_caps caps[PEN_MAX_PINS];
};

// --- choosing (plan_board.c, plan_joint.c) -----------------------------------

// Loss of many connections: five fields of 25 bits, the most important in the
// highest. Signed, so that differences can be taken.
__extension__ typedef __int128 stk_loss;

// In the order of importance: connections without service, loss, ticks.
struct stk_value {
    int32_t bad;
    stk_loss loss;
    int64_t cost;
};

// Caps by number, each once, with the bytes of a frame; sizes that are unknown
// are those of the table.
struct stk_caps_table {
    struct pen_caps *caps;
    size_t *bytes;
    uint32_t count, room;
    uint32_t *slots;  // open addressing; 0: free, else number + 1
    uint32_t slot_count;
    int32_t width, height;  // for unknown sizes
    size_t nominal;         // bytes of encoded frames
    bool sized;             // some of them were taken
};

struct stk_board_key {
    uint32_t caps;      // of the pin's frames
    uint32_t pinnable;  // formats whose host pool can be page-locked, by index
    uint32_t staged;    // those that must not, to keep a budget
    uint32_t bans;      // steps that are not to be had
    bool dmabuf;        // somebody behind takes DMABUF, but not HOST
    bool wide;          // DMABUFs are in play
};
struct stk_boards {
    struct stk_board **board;  // by hash
    uint32_t count, made;
};

// What was chosen.
struct stk_decision {
    // By node of the graph: its option; UINT32_MAX: nothing can come.
    uint32_t *option;
    // By node and pin, PEN_MAX_PINS each: the tree; NULL: no edges.
    struct stk_tree **tree;
    struct stk_arena trees;
    struct stk_board_key *key;
    int16_t *at;        // by edge of the graph: the state at which it is served
    bool *amiss;        // the consumer does not take that
    uint32_t *arrives;  // and the caps that are expected there
    struct stk_value value, bound;
    bool proven;  // value is the bound
    bool device;  // something runs on the device
};

// What a plan must do without, to see what the next best one costs.
struct stk_ban {
    const char *id;   // module of the file
    uint32_t pin;     // of its outputs
    uint32_t ops;     // steps behind it that are not to be had: 1 << stk_op
    const char *cls;  // not NULL: a class that a generic type is not to be
};

struct stk_planner {
    struct pen_plan *plan;
    const struct stk_graph *graph;
    struct pen_issues *issues;
    const struct stk_ban *bans;
    size_t ban_count;
    size_t errors, limits;  // all; those about budgets and limits
    // By node of the graph and pin: bits of the formats (0: the pin's own)
    // whose pool is not to be pinned. NULL: none.
    uint32_t *staged;

    // The graph in canonical order: edges by source (`first`, `out`) and by
    // consumer (`first_in`, `in`), nodes with every producer before its
    // consumers.
    uint32_t *first, *out, *first_in, *in, *sequence;
    struct stk_source **sources;  // by node; NULL: none
    uint64_t given;               // frames of the longest; 0: unknown
    bool imitated;                // some module of the file is named like a
                                  // bridge
    bool generic;                 // some type stands for several classes

    // Choosing.
    const struct pen_module_class *copy_cls, *convert_cls[2];  // host, device
    const struct pen_module_class *host_copy_cls;
    struct stk_template copy[2];       // host to device, device to host
    struct stk_template host_copy[2];  // to pinned memory, to a DMABUF
    struct stk_template convert[2][PEN_FMT_COUNT];
    int64_t load_share, context_share;  // of what is done once, for a frame
    bool no_device;                     // nothing is to need one
    bool host_first;                    // no generic type is to, if it can
    struct stk_caps_table caps;
    struct stk_boards boards;
    struct stk_search *search;
    struct stk_plan_node mould;  // of a class that is asked for its caps
    struct stk_decision decision;

    // Building the plan.
    uint32_t node_room, edge_room, poison_room, aside_room;
    bool *poison;                 // by plan node: it or something before failed
    struct stk_aside *aside;      // by plan node
    struct stk_pending *pending;  // by edge of the graph
    uint32_t bridges;             // inserted so far
    bool foreseen;                // what was made is what was chosen
};

// The class that p->mould is to be.
void stk_planner_mould(struct stk_planner *p, const struct stk_node *node,
                       const struct stk_option *option);
// Time of a frame at a module that is no copy, sizes that are unknown taken
// from p->caps.
int64_t stk_planner_work(const struct stk_planner *p,
                         const struct pen_module_class *cls, const void *params,
                         const struct pen_caps *in, const struct pen_caps *out,
                         uint64_t bytes);

// Append to the plan; the new element is zeroed but for in_edge (-1).
PEN_NODISCARD enum pen_status stk_planner_add_node(struct stk_planner *p,
                                                   uint32_t *number,
                                                   struct pen_error *err);
// Room for the outputs of a new node.
PEN_NODISCARD enum pen_status
stk_planner_add_outputs(struct stk_planner *p, struct stk_plan_node *node,
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

// As pen_plan_create(), without what `bans` names.
PEN_NODISCARD enum pen_status stk_plan_create(
    const struct pen_description *desc, const struct pen_registry *registry,
    const struct pen_plan_params *params, const struct stk_ban *bans,
    size_t ban_count, struct pen_plan **out, struct pen_issues *issues,
    struct pen_error *err);

// --- the parts --------------------------------------------------------------

// The graph in canonical order: p->first, out, first_in, in, sequence
// (plan_order.c).
PEN_NODISCARD enum pen_status stk_plan_order(struct stk_planner *p,
                                             struct pen_error *err);
// What the sources give: p->sources, and p->plan->frames (plan_source.c).
PEN_NODISCARD enum pen_status stk_plan_ask_sources(struct stk_planner *p,
                                                   struct pen_error *err);

// Insert the bridges that were chosen between an output of a plan node and its
// consumers, and leave in p->pending where each consumer's edge starts. The
// edges of the pin are p->out[begin..end). What cannot be becomes an issue.
PEN_NODISCARD enum pen_status stk_plan_place(struct stk_planner *p,
                                             uint32_t number, uint32_t pin,
                                             uint32_t begin, uint32_t end,
                                             struct pen_error *err);

// Frames and bytes of all pools, peaks, costs and transfers of a plan whose
// nodes, edges, memory types and caps stand.
// Errors: PEN_E_LIMIT a size overflows or a picture is too large.
PEN_NODISCARD enum pen_status stk_plan_size(struct pen_plan *plan,
                                            struct pen_error *err);
// What a plan has too much of.
struct stk_excess {
    unsigned next;    // where to go on looking; 0 at first
    char code[8];     // of the issue
    const char *key;  // name of the budget in files
    uint32_t mems;    // memory types; 0: transfers
    uint64_t needed;  // bytes, of memory
};
// Compare with the budgets: PEN_E_LIMIT with the largest users in `err`. One
// call tells one excess.
PEN_NODISCARD enum pen_status stk_plan_budgets(const struct pen_plan *plan,
                                               struct stk_excess *excess,
                                               struct pen_error *err);
// What to do about it: the budget to raise, and what to lower.
void stk_plan_lower(const struct pen_plan *plan,
                    const struct stk_excess *excess, char *text, size_t size);
// Bytes that the pool of an output takes from its budget; 0: unknown or none.
uint64_t stk_plan_pool_bytes(const struct stk_plan_output *o);

// Pools that are not pinned, so that the rest fits its budget
// (plan_stage.c).
struct stk_stage {
    uint32_t *formats;  // for stk_planner.staged; NULL: none as yet
    unsigned rounds;
    uint64_t needed;  // bytes of pinned memory if none were staged
    int64_t cost_ns;  // of that plan
};
// Take more of them, the largest first, if the settings want that and the plan
// is over its budget of pinned memory; *again tells whether there were any.
PEN_NODISCARD enum pen_status stk_plan_stage_more(struct stk_planner *p,
                                                  struct stk_stage *stage,
                                                  bool *again,
                                                  struct pen_error *err);
// Say what each of them costs, and what would avoid it (W510).
void stk_plan_stage_tell(struct stk_planner *p, const struct stk_stage *stage);

// Say why a generic type became the class that it is, and what another one
// would cost: `choice` of the nodes (plan_choice.c).
PEN_NODISCARD enum pen_status stk_plan_tell_choices(struct stk_planner *p,
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
bool stk_plan_props_text(struct stk_text *t, const struct pen_plan *plan,
                         const struct stk_plan_node *node, size_t limit);
// Whether some pool of that type has no size yet.
bool stk_plan_unknown(const struct pen_plan *plan, enum pen_mem_type mem);
// Selector of the device that the plan asks for.
const char *stk_plan_device(const struct pen_plan *plan);

#endif  // STK_PLANNER_H
