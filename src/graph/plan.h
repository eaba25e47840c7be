#ifndef STK_PLAN_H
#define STK_PLAN_H

// The plan as data: what the planner makes, the printers print and the
// runtime executes. Node, edge and output arrays are immutable once the plan
// is made; strings live in its arena.

#include <penstock/plan.h>

#include "../base/str.h"
#include "../mem/dmabuf.h"

// Most pixels of a picture, whatever its header or a plan claims.
enum { STK_MAX_PIXELS = 512 * 1000 * 1000 };

enum stk_policy { STK_BLOCK = 0, STK_DROP_NEWEST, STK_DROP_OLDEST };
enum stk_on_error {
    STK_ON_ERROR_STOP = 0,
    STK_ON_ERROR_DROP,
    STK_ON_ERROR_RETRY
};

// Where a class works.
enum stk_backend { STK_BACKEND_AUTO = 0, STK_BACKEND_CPU, STK_BACKEND_CUDA };

// Properties that every module has (src/graph/props.c has their table).
struct stk_base_params {
    int32_t queue;    // depth of the edges into the module; 0: settings
    int32_t backend;  // enum stk_backend; AUTO: the planner chooses
    int32_t max_width, max_height;  // of its pictures; 0: not told
    const char *on_error;           // "stop", "drop", "retry:n"
    enum stk_on_error policy;       // parsed from on_error
    int32_t retries;
};

// One output pin of a node: what leaves it and the pool behind it.
struct stk_plan_output {
    struct pen_caps caps;             // largest known; zero fields are unknown
    enum pen_mem_type mem;            // of the pool
    enum pen_mem_type upgraded_from;  // NONE, or what the module would give if
                                      // its pool were not made of `mem`
    enum stk_dmabuf_kind kind;        // of DMABUF
    uint32_t blocks;     // of the pool; 0: forwarded frames or unused
    size_t block_bytes;  // of the largest frame, pitches aligned; also
                         // without a pool; 0: unknown as yet
};

struct stk_plan_node {
    const char *id;
    const struct pen_module_class *cls;
    const char *type;    // as written in the file (may be an alias)
    const void *params;  // cls->params_size bytes
    struct stk_base_params base;
    bool inserted;
    const char *reason;        // of an inserted node: why
    const char *serves;        // "decoder.output -> blur.input, ..."
    const char *loss;          // what its conversion loses; "" if nothing
    const char *choice;        // of a generic type: why this class; "" else
    int64_t cost_ns;           // per frame, 0 if unknown
    const char *pointer;       // JSON pointer of the module; "" if inserted
    uint32_t inputs, outputs;  // pins of the class
    int32_t in_edge[PEN_MAX_PINS];       // edge number by input pin; -1: none
    const struct pen_pin_set *in, *out;  // by pin, narrowed
    bool forwards;  // outputs may be input frames: the class says
                    // so, or a converter that lets frames of its
                    // target format or memory type through
    bool copies;    // it is one of the classes for copies, not for conversions
    bool staged;    // inserted in front of a transfer whose frames do not lie
                    // in pinned memory because that would be over its budget
    struct stk_plan_output *output;     // by pin
    uint64_t workspace[PEN_MEM_COUNT];  // bytes that the class asks for
};

// In front of each piece of host workspace stands a header, in a whole number
// of such blocks.
enum { STK_WORKSPACE_ALIGN = 64 };
// So many blocks of pinned workspace: one is filled while another is read.
enum { STK_STAGING_BLOCKS = 2 };

struct stk_plan_edge {
    uint32_t from, from_pin;  // node number, output pin
    uint32_t to, to_pin;
    uint32_t depth;  // frames
    enum stk_policy policy;
    enum pen_mem_type mem;      // of the frames that flow
    enum stk_dmabuf_kind kind;  // of DMABUF frames
    struct pen_caps caps;
    uint32_t formats;  // mask of formats that may flow
};

struct pen_plan {
    struct stk_arena arena;
    const struct pen_description *desc;
    const struct pen_registry *registry;
    struct pen_plan_params params;  // as asked, with defaults filled in
    struct pen_profile profile;
    char device[48];  // that a run has opened; "": what the file says
    struct stk_plan_node *nodes;  // in topological order
    uint32_t node_count;
    struct stk_plan_edge *edges;  // sorted by from, from_pin, to, to_pin
    uint32_t edge_count;
    uint32_t *first_out;  // edges of node n: first_out[n] to
                          // first_out[n + 1]
    bool provisional, needs_device, optimal;
    uint64_t peak[PEN_MEM_COUNT];  // planned bytes
    uint64_t host_budget;          // of HOST and HOST_PINNED together; 0: none
    uint64_t budget[PEN_MEM_COUNT];  // 0: none
    uint32_t unknown;                // connected outputs of unknown size
    uint32_t h2d_per_frame, d2h_per_frame;
    uint64_t h2d_bytes_per_frame, d2h_bytes_per_frame;
    uint32_t h2h_per_frame;  // copies on the host (MemTypeConversion)
    uint64_t h2h_bytes_per_frame;
    int64_t cost_ns;  // per frame
    // Where the optimum is not proven: what the best plan may cost less, and
    // whether it may lose less.
    int64_t gap_ns;
    bool gap_loss;
    int64_t once_ns;     // before the first frame: a context, loads of modules
    uint64_t frames;     // expected; 0: unknown
    const char **paths;  // files and patterns that are touched
    unsigned *path_flags;  // PEN_PROP_PATH_READ, _WRITE of each
    uint32_t path_count;
    unsigned char *marks;  // stk_plan_settle's, one for each node
};

// Complete or enlarge a plan: output `pin` of node `node` now gives `caps`.
// Sizes downstream, pools and peaks are computed again by the planner's own
// functions and checked against the budgets; topology stays. On failure the
// plan is unchanged.
// Errors: PEN_E_LIMIT naming the budget and the largest users; PEN_E_CONFIG
// when a consumer cannot take it. Thread: one at a time (the runtime locks).
PEN_NODISCARD enum pen_status stk_plan_settle(struct pen_plan *plan,
                                              uint32_t node, uint32_t pin,
                                              const struct pen_caps *caps,
                                              struct pen_error *err);

#endif  // STK_PLAN_H
