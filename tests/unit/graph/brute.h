#ifndef BRUTE_H
#define BRUTE_H

// The joint choice of docs/adr/0013 a second time, by enumeration, for graphs
// small enough for that. It shares no code with the planner's search: the
// steps between states, what they lose and cost, the weights and the sums are
// written down anew from the ADR and docs/guide/planner.md.
//
// brute_board.c has the states of one output and the steps between them,
// brute_solve.c tries all choices for a whole graph (and brute_naive.c tries
// it), brute_greedy.c makes the choice that the reference system makes,
// brute_plan.c looks through a plan of the planner, brute_random.c writes
// graphs.

#include <penstock/plan.h>

#include "src/base/str.h"

enum {
    BRUTE_MODULES = 12,
    BRUTE_EDGES = 20,
    BRUTE_PINS = 2,
    BRUTE_TARGETS = 4,   // formats that the converters make
    BRUTE_OPTIONS = 2,   // classes of a generic type
    BRUTE_PARTS = 5,     // of a loss
    BRUTE_NOWHERE = -1,  // no such state
};
enum brute_home {
    AT_HOST,
    AT_PINNED,
    AT_CUDA,
    AT_DMA_HOST,
    AT_DMA_CUDA,
    BRUTE_HOMES,
};
enum { BRUTE_STATES = BRUTE_HOMES * (BRUTE_TARGETS + 1) };
#define BRUTE_ON_DEVICE (1u << AT_CUDA | 1u << AT_DMA_CUDA)
#define BRUTE_NEVER     (INT64_MAX / 4)

enum brute_role {
    BRUTE_WORKS,  // makes frames of its own
    BRUTE_PASSES,
    BRUTE_CONVERTS,
    // Copies that the file asks for. One on the host is none: frames lie from
    // there on where it says.
    BRUTE_UPLOADS,
    BRUTE_DOWNLOADS,
    BRUTE_MOVES,
};
// A class that a module may be made of; all inputs are alike, and all outputs.
struct brute_class {
    const char *name;
    enum brute_role role;
    bool cuda;
    uint32_t in_mem, out_mem, in_formats, out_formats;
    uint32_t refused;       // formats that negotiate refuses
    enum pen_format makes;  // of a converter
    uint64_t work;          // operations for each pixel
};
struct brute_module {
    const char *type;  // as in the file
    unsigned inputs, outputs;
    unsigned options;
    struct brute_class option[BRUTE_OPTIONS];
    int32_t width, height;  // of a source
    enum pen_range range;
};
struct brute_edge {
    unsigned from, from_pin, to, to_pin;
};
struct brute_graph {
    const char *shape;
    struct brute_module module[BRUTE_MODULES];
    struct brute_edge edge[BRUTE_EDGES];  // from lower to higher modules
    unsigned modules, edges;
    enum pen_format target[BRUTE_TARGETS];
    unsigned targets;
    struct pen_profile profile;
    uint64_t frames;  // expected; 0: unknown
    bool auto_bridge;
    // Classes of bridges that there are: converters by side, copies to and
    // from the device, copies on the host.
    bool has_converter[2], has_copy, has_host_copy;
};

// --- frames and steps (brute_board.c) ---------------------------------------

struct brute_caps {
    uint32_t mask;  // formats that may come
    int32_t width, height;
    enum pen_range range;
};
int64_t brute_frame_bytes(const struct brute_caps *caps);
int64_t brute_move(int64_t bytes, uint32_t rate);
int64_t brute_share(const struct brute_graph *g, uint32_t once_ns);
// Homes in which a class takes frames.
unsigned brute_taken(const struct brute_graph *g, const struct brute_class *c);
// Whether a class gives the frames that it gets, as they are.
bool brute_passes(const struct brute_class *c);
// What an output of a class has if frames come in from `homes`: where its
// frames may be born (with `dmabuf` also in pools that are made of another
// memory), and whether a host pool can be pinned.
struct brute_birth {
    unsigned roots;
    bool pinnable;
};
struct brute_birth brute_birth(const struct brute_graph *g,
                               const struct brute_class *c, uint32_t in_mask,
                               unsigned homes, bool dmabuf);
// Whether somebody behind a module's output takes DMABUF and no plain host
// memory.
bool brute_wants_dmabuf(const struct brute_graph *g, unsigned module,
                        unsigned pin);
// How many connections see what is lost on an edge.
unsigned brute_weight(const struct brute_graph *g, unsigned edge);
// What a module gives if this arrives; an empty mask if it refuses it.
struct brute_caps brute_negotiate(const struct brute_class *c,
                                  const struct brute_module *m,
                                  const struct brute_caps in[BRUTE_PINS]);
// Nanoseconds of a frame, with its share of what is done once.
int64_t brute_module_cost(const struct brute_graph *g,
                          const struct brute_module *m,
                          const struct brute_class *c,
                          const struct brute_caps in[BRUTE_PINS],
                          const struct brute_caps *out);

struct brute_loss {
    int part[BRUTE_PARTS];  // channels, bits, chroma, range, matrix
    int transfers;
};
int brute_loss_compare(const struct brute_loss *a, const struct brute_loss *b);
struct brute_step {
    bool there, device;  // it runs on the device
    int64_t cost;
    struct brute_loss loss;
};
// States are numbered home * formats + format, format 0 being what the output
// gives, unconverted.
struct brute_board {
    struct brute_caps caps;
    bool own_pinnable;  // the pool of the frames that are not converted
    bool dmabuf;
    unsigned formats, states;
    enum pen_format format[BRUTE_TARGETS + 1];
    int64_t bytes[BRUTE_TARGETS + 1];
    struct brute_step step[BRUTE_STATES][BRUTE_STATES];
};
void brute_board_make(const struct brute_graph *g,
                      const struct brute_caps *caps, bool own_pinnable,
                      bool dmabuf, struct brute_board *b);
// Least loss, then fewest transfers, of the paths from `root`.
void brute_board_reach(const struct brute_board *b, unsigned root,
                       bool known[BRUTE_STATES],
                       struct brute_loss least[BRUTE_STATES]);
// Whether frames in a state satisfy a class, as formats and home go.
bool brute_takes(const struct brute_graph *g, const struct brute_board *b,
                 const struct brute_class *c, unsigned state);
// What frames in a state are.
struct brute_caps brute_state_caps(const struct brute_board *b, unsigned state);

// --- the whole --------------------------------------------------------------

struct brute_value {
    int64_t loss[BRUTE_PARTS];
    int64_t cost;
};
int brute_value_compare(const struct brute_value *a,
                        const struct brute_value *b);
void brute_value_add(struct brute_value *to, const struct brute_value *more);
void brute_value_text(const struct brute_value *v, char *text, size_t size);

enum brute_result {
    BRUTE_IMPOSSIBLE,  // nothing serves all connections
    BRUTE_FOUND,
    BRUTE_TOO_LARGE,  // not tried to the end
};
// The best of all choices; `how` (NULL or empty) gets it in words.
enum brute_result brute_solve(const struct brute_graph *g,
                              struct brute_value *best, struct stk_text *how);
// The same for the smallest graphs without anything that could be wrong in it,
// to try brute_solve() itself.
enum brute_result brute_naive(const struct brute_graph *g,
                              struct brute_value *best);
// What the reference system's rule gives, for the best choice of classes:
// connection by connection a memory bridge, then a format bridge, nothing
// shared. BRUTE_IMPOSSIBLE if it finds none.
enum brute_result brute_greedy(const struct brute_graph *g,
                               struct brute_value *value);

struct pen_plan;
// Follow every connection through a plan, add up what it loses and costs.
// NULL, or what is wrong with it, in a static buffer.
const char *brute_walk(const struct brute_graph *g, const struct pen_plan *plan,
                       struct brute_value *value);

// --- random graphs ----------------------------------------------------------

enum brute_size {
    BRUTE_USUAL,  // 3 to 8 modules
    BRUTE_WIDE,   // one output with more consumers than a tree is exact for
    BRUTE_TIED,   // 9 to 12 modules, most of them with two inputs
};
void brute_random(struct brute_graph *g, enum brute_size size, uint64_t *seed);
// The pipeline file, its connections in an order that `order` says. The caller
// frees it.
char *brute_json(const struct brute_graph *g, unsigned order);
// Distinct sets of states that the consumers of the output with most of them
// ask for, and whether no module has two inputs.
unsigned brute_most_targets(const struct brute_graph *g);
bool brute_is_tree(const struct brute_graph *g);

#endif  // BRUTE_H
