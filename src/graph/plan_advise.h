#ifndef STK_PLAN_ADVISE_H
#define STK_PLAN_ADVISE_H

// What the parts of the advice share. plan_advise.c has the words and the
// prices, plan_advise_way.c the paths; plan_advise_path.c looks for frames that
// leave the device and come back, plan_advise_idle.c for those that go there
// for nothing, plan_advise_copy.c at single copies, and plan_advise_source.c at
// sources without an end.

#include "planner.h"

enum { STK_NO_NODE = -1 };

// What can be done about a module between a download and an upload.
enum stk_change {
    STK_STAYS = 0,      // nothing: it works on the host only
    STK_MOVES_AS_TWIN,  // a class does the same on the device
    STK_MOVES,          // it passes frames on wherever they are
    STK_GOES,           // a copy that would not be needed
};

// What advice remembers of a plan node.
struct stk_trace {
    // Where the frames at its inputs were copied last, and the node before on
    // the way from there; STK_NO_NODE: not on the way here.
    int32_t down, down_from;  // through host memory only
    int32_t up, up_from;      // through device memory only
    int32_t source;           // without an end, whose frames come
    uint32_t group;           // a forest: nodes with one cause
    uint32_t next;            // in its group, by number; 0: the last
    uint32_t set;             // that it was put into last
    uint32_t printed;         // in the paths told under this number
    uint32_t stamp, hits;     // edges or pins of it that set `stamp` has met
    const struct pen_module_class *twin;  // of STK_MOVES_AS_TWIN
    int64_t better;                       // what that takes less; ns
    uint8_t way;                          // enum stk_change
    uint8_t uploads;   // bits of the output pins that feed an upload
    uint8_t transfer;  // enum stk_transfer
    uint8_t shared;    // likewise, one of the planner's
    bool between;      // on the way from a download back to the device
    bool idle;         // nothing was done since the upload
    bool stuck;        // what passes frames on since then must be on the device
    bool busy;         // something behind it needs the device
    bool host_bound;   // frames are handed on to what needs the host
    bool told;         // a copy that some advice is about
    bool dropped;      // goes with what is being told
    bool kept;         // dropped, but only for some of its consumers
    bool unpriced;     // `better` is not known
    bool warned;       // a source of which W316 has spoken
};

// What a frame takes less.
struct stk_gain {
    int64_t ns;
    int64_t bytes;  // moved between host and device
    int32_t loads;  // modules that are opened on the device less
    bool known;     // all sizes are
};

// Classes that do on one side of the machine what a class does, by tags.
enum { STK_TWINS = 4, STK_TWIN_ROWS = 64 };
struct stk_twins {
    const struct pen_module_class *of;
    bool device;
    uint32_t count;
    const struct pen_module_class *cls[STK_TWINS];
};

struct stk_advice {
    struct stk_planner *p;
    const struct pen_plan *plan;
    struct stk_trace *traces;  // by plan node
    uint32_t *path;            // nodes of a path, from its end
    uint32_t path_count;
    uint32_t *drop;  // nodes that go with what is being told
    uint32_t drop_count;
    uint32_t set;               // sets so far
    uint32_t telling;           // the number of what is being told
    struct stk_text text, fix;  // of the issue that is being made
    unsigned fixes;             // pieces of `fix`
    struct stk_arena arena;     // parameters of twins
    struct pen_issues *deaf;    // complaints about twins, which nobody hears
    struct stk_plan_node like;  // the twin that was looked at last
    struct pen_pin_set like_in[PEN_MAX_PINS], like_out[PEN_MAX_PINS];
    struct stk_twins twins[STK_TWIN_ROWS];  // as looked up before
    bool endless;                           // some source is
    bool failed;                            // no memory
};

// --- words and prices (plan_advise.c) ---------------------------------------

// Begin an issue; both texts are empty then.
void stk_advice_begin(struct stk_advice *a);
void stk_advice_issue(struct stk_advice *a, const char *code,
                      const char *pointer);
// "; saves 1.32 MiB and 71.2 us a frame" (or "costs"); nothing if unknown.
void stk_advice_gain(struct stk_advice *a, const char *verb,
                     const struct stk_gain *gain);
// Whether it is one, with what is opened less for the frames expected.
bool stk_advice_pays(const struct stk_advice *a, const struct stk_gain *gain);
void stk_advice_name(struct stk_text *t, const char *id);  // "`id`"
// Start a piece of the suggestion.
void stk_advice_fix(struct stk_advice *a, const char *words);
// "make `id` a ResizeNPPI ("type": "ResizeNPPI")".
void stk_advice_fix_type(struct stk_advice *a, const struct stk_plan_node *node,
                         const struct pen_module_class *cls);
// Put a node on the list of those that go; `kept`: only for consumers that go
// too or are in the set that is looked at.
void stk_advice_drop(struct stk_advice *a, uint32_t node, bool kept);
// "remove `a` and `b`, and connect ..." for that list, which is emptied. Their
// consumers get what they got, or the frames of `instead`.
void stk_advice_fix_drop(struct stk_advice *a, int32_t instead);
void stk_advice_forget(struct stk_advice *a);  // empty the list
// Connections that let `two` come before `one`, its producer.
void stk_advice_fix_swap(struct stk_advice *a, uint32_t one, uint32_t two);

// Whether the planner chose the class itself, among those of a type.
bool stk_advice_chosen(const struct stk_plan_node *node);
// Bytes of the output behind an edge; 0: unknown.
uint64_t stk_advice_bytes(const struct stk_advice *a,
                          const struct stk_plan_edge *e);
// A copy of such bytes.
void stk_advice_copy(const struct stk_advice *a, struct stk_gain *gain,
                     enum stk_transfer which, uint64_t bytes, int sign);
// Find a class that does on the device (or on the host) what the node does,
// takes its properties and gives the same: a->like, with its cost in *cost,
// -1 if that is unknown. False: there is none. *named is the first by its
// tags, fitting or not, or NULL.
bool stk_advice_twin(struct stk_advice *a, const struct stk_plan_node *node,
                     bool device, int64_t *cost,
                     const struct pen_module_class **named);

// Whether the connected inputs take frames of one side of the machine.
bool stk_advice_takes(const struct stk_plan_node *node, bool device);
bool stk_advice_passes(const struct stk_plan_node *node);
// Something that only waits for the device is not missed without it.
bool stk_advice_only_waits(const struct stk_plan_node *node);

static inline const struct stk_plan_node *
stk_advice_from(const struct stk_advice *a, const struct stk_plan_edge *e)
{
    return &a->plan->nodes[e->from];
}

static inline enum stk_transfer stk_advice_transfer(const struct stk_advice *a,
                                                    uint32_t node)
{
    return (enum stk_transfer)a->traces[node].transfer;
}

static inline bool stk_advice_host(const struct stk_plan_edge *e)
{
    return !(STK_HOMES_CUDA & STK_HOME_BIT(stk_edge_home(e)));
}

// --- ways in words (plan_advise_way.c) --------------------------------------

// a->path is filled from the end of the way to its beginning, and told from
// there. What was put is not told twice under one number (a->telling).
void stk_way_begin(struct stk_advice *a);
void stk_way_put(struct stk_advice *a, uint32_t number);
bool stk_way_has(const struct stk_advice *a, uint32_t number);
void stk_way_put_consumer(struct stk_advice *a, uint32_t number);
void stk_way_put_producer(struct stk_advice *a, uint32_t number);
void stk_way_tell(struct stk_advice *a);

// --- the parts --------------------------------------------------------------

void stk_advise_paths(struct stk_advice *a);  // before the others
void stk_advise_idle(struct stk_advice *a);
void stk_advise_copies(struct stk_advice *a);
void stk_advise_sources(struct stk_advice *a);
// Whether a source is set so that it does not end.
bool stk_advice_endless(const struct stk_plan_node *node);

#endif  // STK_PLAN_ADVISE_H
