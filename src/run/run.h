#ifndef STK_RUN_H
#define STK_RUN_H

// The running pipeline as data. pipeline.c is its life and end.c its end,
// actor.c what a module does between two frames, io.c what a module may call,
// report.c what is told about it. tasks.h and edge.h are the machinery below.
//
// Locks, in the order in which they may be taken:
//   pipeline.plan_lock   the plan, the creation and growth of pools, and what
//                        the statistics read of objects that go in teardown
//   pipeline.error_lock  the errors; nothing is called under it
//   those of tasks.c, edge.c and the layers below: leaves
// Modules and callbacks are called with no lock held.

#include <pthread.h>
#include <stdatomic.h>

#include <penstock/pipeline.h>

#include "../graph/plan.h"
#include "../mem/frame.h"
#include "../mem/pool.h"
#include "edge.h"
#include "tasks.h"

// What a pool worker does with a module: one firing, from taking the inputs
// to putting the outputs. It stops where something is not there yet and goes
// on from the same stage when it is woken.
enum stk_stage {
    STK_STAGE_FREE = 0,  // holds nothing
    STK_STAGE_HELD,      // has its inputs (a source: its number)
    STK_STAGE_PREPARED,  // knows the caps of its outputs
    STK_STAGE_RESERVED,  // has its output frames
    STK_STAGE_CALLED,    // process() has returned: the point is to be recorded
    STK_STAGE_ENDING,    // no more input: drain(), then the end of the stream
};

enum stk_outcome {
    STK_OUT_FRAMES = 0,  // the outputs go on
    STK_OUT_NOTHING,     // a source that has nothing yet
    STK_OUT_GAP,         // inputs that give no output, or a frame given up
    STK_OUT_END,
    STK_OUT_RETRY,  // the policy says: the same again
};

enum stk_park {
    STK_PARK_NONE = 0,
    STK_PARK_STREAM,  // asked for in process(), not registered yet
    STK_PARK_CONTEXT,
    STK_PARK_ROOM,     // no point could be recorded: wait for the oldest
    STK_PARK_PENDING,  // waits for the callback
    STK_PARK_REACHED,
};

struct stk_link {
    struct stk_queue queue;
    struct pen_module *from, *to;
    uint32_t from_pin, to_pin;
    uint32_t depth;
    _Atomic bool started;  // a first frame went all the way through `to`
    // What may flow, as the plan in force says; read by the putting task only.
    enum pen_mem_type mem;
    enum stk_dmabuf_kind kind;  // of DMABUF
    uint32_t formats;
    struct pen_caps most;
};

// A frame acquired in this call.
struct stk_use {
    struct pen_frame *frame;
    unsigned access;
};

// Host bytes on their way to the device (pen_module_fill_device). A module has
// STK_STAGING_BLOCKS of what the plan holds for it, and is not called while all
// of them are on their way.
struct stk_staging {
    struct stk_staging *next;
    void *memory;
    size_t bytes;
    bool in_call;            // used in this call: no point yet
    struct stk_point point;  // reusable after it
};

// Memory of a module, in front of what it was given.
struct stk_module_block {
    struct stk_module_block *next, *prev;
    size_t bytes;      // with this header
    uint64_t address;  // of device memory; 0: host, after the header
};

struct stk_out_pin {
    struct stk_link **links;  // consumers, in the order of the plan
    uint32_t link_count;
    // As the plan in force says.
    struct pen_caps most;
    enum pen_mem_type mem;
    bool streamed;  // written by work on the stream
    uint32_t blocks;
    size_t block_bytes;
    struct stk_pool *pool;  // what the actor knows of `made`
    struct stk_pool *made;  // guarded by plan_lock
    uint32_t had, needed;   // its blocks, and how many at once, once it is gone
    // Caps of the last frame and the bytes of its layout.
    struct pen_caps last;
    size_t last_bytes;
    bool last_known;
};

struct pen_io {
    struct pen_module *module;
    struct pen_frame *in[PEN_MAX_PINS], *out[PEN_MAX_PINS];
    struct pen_caps caps[PEN_MAX_PINS];  // of the outputs
    int forward[PEN_MAX_PINS];           // input pin that leaves here; -1
    uint64_t index;
    bool prepared;                          // process(), not prepare()
    struct stk_use uses[2 * PEN_MAX_PINS];  // on the stream
    uint32_t use_count;
    // DMABUFs that the host looks at: each for reading, writing and both.
    struct stk_use shown[3 * 2 * PEN_MAX_PINS];
    uint32_t shown_count;
    bool stream_used;
};

// A module instance: the actor.
struct pen_module {
    struct stk_task task;  // first: the task is the module
    struct pen_pipeline *pipeline;
    uint32_t number;  // of the plan's node
    const struct pen_module_class *cls;
    const char *id;
    const void *params;
    void *state;
    bool cuda, opened;
    bool closed;  // the end of the stream was put
    bool sated;   // the module said it wants no more

    struct stk_link *in[PEN_MAX_PINS];  // NULL: not connected
    struct stk_out_pin out[PEN_MAX_PINS];
    uint32_t inputs, outputs, in_links, out_links;

    enum stk_stage stage;
    enum stk_outcome outcome;
    struct pen_io io;
    uint64_t next_index;  // sources
    int32_t tries;        // of the retry policy, for this frame
    struct pen_caps neg_in[PEN_MAX_PINS], neg_out[PEN_MAX_PINS];
    bool negotiated;
    uint32_t plan_seen;  // generation of the plan that out[] shows

    _Atomic bool waiting;   // a callback of park() is outstanding
    _Atomic unsigned park;  // enum stk_park
    struct stk_point park_point;

    const char *_Atomic call;  // the function it is in; NULL
    _Atomic int64_t called;    // since when
    _Atomic uint64_t frames, drops, busy_ns;

    struct stk_module_block blocks;  // list head
    pthread_mutex_t block_lock;
    struct stk_staging *staging;
    struct stk_frame_user user;         // what its calls took and did not drop
    uint64_t workspace[PEN_MEM_COUNT];  // that the plan holds
};

struct stk_leak {
    enum stk_res res;
    char owner[96], site[96];
    uint64_t bytes, count;
};

struct stk_failure {
    const char *module;  // NULL: none
    bool has_frame;
    uint64_t frame;
    bool fatal;  // ended the run
    struct pen_error err;
};

enum { STK_MAX_FAILURES = 16 };

// What frames refer to that outlive the pipeline: the stream, the device and
// the ledger go with the last who uses them. The pipeline is one, each pool
// another, which says so when its last frame or buffer is gone.
struct stk_remains {
    _Atomic uint32_t users;
    struct stk_ledger *ledger;
    struct stk_stream *stream;  // until the teardown the pipeline's own
    struct pen_device *device;
};

// What a profile supposes, and what was found instead.
struct stk_difference {
    char what[24];
    char supposed[160], found[192];
};
enum { STK_MAX_DIFFERENCES = 8 };

struct pen_pipeline {
    const struct pen_log *_Atomic user_log;
    struct pen_log log;  // hands on to user_log
    uint64_t frame_limit;
    bool leaks_fatal, leak_sites;
    uint32_t workers;

    struct stk_ledger *ledger;  // of remains
    struct stk_remains *remains;
    struct pen_profile profile;  // of the plan: with what was found
    bool profile_given;          // by the caller, not the built-in one
    struct stk_difference differences[STK_MAX_DIFFERENCES];
    uint32_t difference_count;
    struct pen_plan *plan;
    pthread_mutex_t plan_lock;
    _Atomic uint32_t plan_generation;
    uint32_t growths;  // pools made or enlarged after the start
    struct pen_device *device;
    char device_name[128];
    char device_key[48];  // "emulated", else its UUID
    bool emulated;
    struct stk_stream *stream;
    struct stk_frame_pool *frame_pool;

    struct pen_module *modules;
    uint32_t module_count;
    struct stk_link *links;
    struct stk_link **link_lists;  // storage of stk_out_pin.links
    uint32_t link_count, sinks;
    _Atomic uint32_t links_started;
    struct stk_sched *sched;

    _Atomic int state;  // enum pen_state
    _Atomic bool draining, stopping, failed;
    // Everything is given back; from then on `leaks` does not change.
    _Atomic bool torn_down;

    // The wait for the last point of the stream.
    pthread_mutex_t sync_lock;
    pthread_cond_t sync_cond;
    bool sync_asked, sync_reached;

    // Ownership after an abandonment.
    bool threads_left, orphan;

    _Atomic int64_t started_at;
    _Atomic int64_t ended_at;
    uint64_t expected;  // frames of each source; 0: unknown
    _Atomic int64_t first_frame_at;
    _Atomic uint64_t sink_frames;
    _Atomic uint64_t copies[4], copy_bytes[4];  // by stk_copy_kind; 0: host
    _Atomic uint64_t library_allocations;
    uint64_t launches;              // of the stream, once it is gone
    uint64_t blocked;               // waits of workers, likewise
    struct pen_unattributed usage;  // of the device
    bool usage_known;

    pthread_mutex_t error_lock;
    struct stk_failure failures[STK_MAX_FAILURES];
    uint64_t failure_count;
    struct pen_error result;  // the failure that ended the run; status 0: none

    struct stk_leak *leaks;
    uint32_t leak_count, leak_room;
    uint64_t leaked;  // live entries that were found
    bool frozen;
    struct pen_stats final;
};

// --- actor.c ----------------------------------------------------------------

enum stk_run stk_actor_run(struct stk_task *task);
// Take over what the plan in force says about the outputs. Call it before the
// threads start, or from the actor itself.
void stk_actor_refresh(struct pen_module *m);
// Call open() or close() in the right surroundings. Thread: setup.
PEN_NODISCARD enum pen_status stk_actor_open(struct pen_module *m,
                                             struct pen_error *err);
void stk_actor_close(struct pen_module *m);

// --- io.c -------------------------------------------------------------------

// PEN_E_LOST with the cause once the device is lost: what is in flight on it
// comes out wrong then.
PEN_NODISCARD enum pen_status stk_device_fine(struct pen_pipeline *p,
                                              struct pen_error *err);
// Whether a block for pen_module_fill_device() is free. If not, *wait is a
// point to wait for.
bool stk_staging_ready(struct pen_module *m, struct stk_point *wait);
// The call has returned: its access to DMABUFs by the host is over.
PEN_NODISCARD enum pen_status stk_io_hide(struct pen_io *io,
                                          struct pen_error *err);
// Memory that a module did not give back: entered in the leaks and freed.
void stk_module_reclaim(struct pen_module *m);

// --- pipeline.c -------------------------------------------------------------

// Note an error. `frame` NULL: of no frame. A fatal one ends the run: every
// actor lets go of what it has. Returns the status of the error. Thread: any.
enum pen_status stk_pipeline_error(struct pen_pipeline *p,
                                   const struct pen_module *m,
                                   const uint64_t *frame, bool fatal,
                                   const struct pen_error *error);
// Make the plan hold `caps` for an output, and the pools that follow from it.
PEN_NODISCARD enum pen_status
stk_pipeline_settle(struct pen_pipeline *p, struct pen_module *m, uint32_t pin,
                    const struct pen_caps *caps, struct pen_error *err);
void stk_pipeline_leak(struct pen_pipeline *p, enum stk_res res,
                       const char *owner, const char *site, uint64_t bytes,
                       uint64_t count);

void stk_pipeline_state_set(struct pen_pipeline *p, enum pen_state state);
// PEN_E_STATE: `what` is not possible in the present state.
enum pen_status stk_pipeline_refuse(const struct pen_pipeline *p,
                                    const char *what, struct pen_error *err);
// Let every module look at its state again.
void stk_pipeline_wake(struct pen_pipeline *p);
// Called by the pools when their last frame or buffer is gone, and by the
// pipeline itself; `cookie` is the stk_remains.
void stk_remains_drop(void *cookie);
// Whether only the pipeline itself is left.
bool stk_remains_unused(const struct stk_remains *r);

// --- end.c ------------------------------------------------------------------

// Give everything back; afterwards the state is `state`, or failed. No task
// runs any more.
void stk_pipeline_tear_down(struct pen_pipeline *p, enum pen_state state);

// --- report.c ---------------------------------------------------------------

void stk_pipeline_collect(struct pen_pipeline *p, struct pen_stats *out);

// Plan it with what is there: the device is opened if some module needs one.
// (planning.c) Errors: those of pen_pipeline_create().
PEN_NODISCARD enum pen_status
stk_pipeline_plan_it(struct pen_pipeline *p, const struct pen_description *desc,
                     const struct pen_registry *registry,
                     const struct pen_pipeline_params *params,
                     struct pen_issues *issues, struct pen_error *err);

#endif  // STK_RUN_H
