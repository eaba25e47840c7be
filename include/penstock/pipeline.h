#ifndef PEN_PIPELINE_H
#define PEN_PIPELINE_H

#include <penstock/device.h>
#include <penstock/ledger.h>
#include <penstock/plan.h>

PEN_BEGIN

// A pipeline that runs: created (planned, device open), running, draining,
// then done, failed or stopped; abandoned when a stop ran into its deadline.
struct pen_pipeline;

enum pen_state {
    PEN_STATE_CREATED = 0,
    PEN_STATE_RUNNING,
    PEN_STATE_DRAINING,
    PEN_STATE_DONE,  // every branch saw its end of stream
    PEN_STATE_FAILED,
    PEN_STATE_STOPPED,
    PEN_STATE_ABANDONED,  // a module did not come back; memory stays valid
};
// "created", "running", ...; "?" for anything else. Static. Thread: any.
PEN_API const char *pen_state_name(enum pen_state state);

// Zeroed: the device that the file asks for, headers of inputs are read, no
// limit of frames, no log.
struct pen_pipeline_params {
    struct pen_device_params device;  // used only if the plan needs a device;
                                      // selector NULL: the file's setting,
                                      // where "auto" means "cuda"
    struct pen_plan_params plan;      // profile is completed from the device
    uint64_t frames;            // each source ends after so many; 0: no limit
    uint32_t workers;           // threads of the pool; 0: number of cores
    bool no_probe;              // do not look at headers before the start
    bool leaks_fatal;           // a leak makes the run fail (wait: PEN_E_LEAK)
    bool leak_sites;            // keep owner and site of every allocation;
                                // without it no error can name an owner
    const struct pen_log *log;  // borrowed until destroy; may be NULL
};

// Plan, open the device if one is needed, plan again with what is there, and
// make ready. `desc` and `registry` are borrowed until destroy, `params` (NULL:
// all zero) until the call returns; `issues` may be NULL. On success *out is
// owned by the caller, on failure it is NULL and nothing stays open.
// Errors: as pen_plan_create and pen_device_open, PEN_E_NOMEM; PEN_E_CONFIG
//         also where the file forbids the device that `params` asks for.
// Thread: setup. Blocks while the driver starts.
PEN_API PEN_NODISCARD enum pen_status pen_pipeline_create(
    const struct pen_description *desc, const struct pen_registry *registry,
    const struct pen_pipeline_params *params, struct pen_pipeline **out,
    struct pen_issues *issues, struct pen_error *err);

// The plan in force. Borrowed until destroy; sizes in it grow when frames turn
// out larger, so it is for before the start and after the end.
// Thread: setup.
PEN_API const struct pen_plan *
pen_pipeline_plan(const struct pen_pipeline *pipeline);

// Open all modules, load all kernels, start. On failure everything that was
// opened is closed again and the state is failed.
// Errors: PEN_E_STATE  not in the state created; nothing is changed
//         those of the modules, PEN_E_NOMEM, PEN_E_DEVMEM, PEN_E_DRIVER,
//         PEN_E_LOST
// Thread: setup. Blocks on modules and the driver.
PEN_API PEN_NODISCARD enum pen_status
pen_pipeline_start(struct pen_pipeline *pipeline, struct pen_error *err);

// Ask the sources to end; what is in flight is still delivered. Returns at
// once. Thread: any.
PEN_API void pen_pipeline_drain(struct pen_pipeline *pipeline);

// Wait until the pipeline has ended and tear it down: afterwards modules are
// closed, memory and driver objects are released and the report is complete.
// timeout_ns < 0 waits for ever.
// Errors: PEN_E_TIMEOUT  still running; nothing was torn down
//         PEN_E_LEAK     something was not released (leaks_fatal)
//         PEN_E_LIMIT    a module asked for more than a budget leaves
//         PEN_E_STATE    not started, or abandoned; a frame was released too
//                        often, or used by who had no reference
//         the error that ended the run; PEN_E_IO where a module's was a
//         time-out
// Thread: setup. Blocks.
PEN_API PEN_NODISCARD enum pen_status
pen_pipeline_wait(struct pen_pipeline *pipeline, int64_t timeout_ns,
                  struct pen_error *err);

// End now: queued frames are dropped, modules finish the call they are in,
// then tear down. PEN_OK also if it had ended before; what ended it is told by
// pen_pipeline_wait(). `deadline_ns` is from now; < 0 waits for ever.
// Errors: PEN_E_TIMEOUT  names who is stuck; the pipeline is abandoned
//         PEN_E_STATE    it is abandoned already
// Thread: setup. Blocks.
PEN_API PEN_NODISCARD enum pen_status
pen_pipeline_stop(struct pen_pipeline *pipeline, int64_t deadline_ns,
                  struct pen_error *err);

// Thread: any.
PEN_API enum pen_state pen_pipeline_state(const struct pen_pipeline *pipeline);

// A snapshot for progress displays. Thread: any.
struct pen_progress {
    uint64_t frames;    // that reached a sink, all sinks together
    uint64_t expected;  // 0 if unknown
    double seconds;     // since start
};
PEN_API void pen_pipeline_progress(const struct pen_pipeline *pipeline,
                                   struct pen_progress *out);

// Statistics. Complete after wait or stop; before, a snapshot. Thread: any.
struct pen_memory_stats {
    uint64_t planned_peak, peak, live;  // bytes
    uint64_t used;  // of `peak`, without blocks of pools that no frame was in
};
struct pen_transfer_stats {
    uint64_t count, bytes;  // frames and their bytes
};
// Of the whole device, whoever uses it: information, not part of the account.
// Zero where no device was opened or the driver does not tell.
struct pen_unattributed {
    uint64_t before, after;  // used bytes, at create and after the teardown
    uint64_t process_before, process_after;  // of this process, by NVML
};
struct pen_stats {
    uint64_t frames;
    double seconds;
    struct pen_transfer_stats h2d, d2h, d2d;
    uint64_t host_copy_bytes;  // moved by the CPU between frames
    struct pen_memory_stats memory[PEN_MEM_COUNT];
    uint32_t contexts_retained, contexts_released, streams;
    uint64_t launches;
    uint64_t steady_state_allocations, library_allocations, blocking_syncs;
    uint64_t drops, leaks, errors;
    struct pen_unattributed unattributed;
};
PEN_API void pen_pipeline_stats(const struct pen_pipeline *pipeline,
                                struct pen_stats *out);

// What is alive on the pipeline's account: of a pipeline that has been torn
// down nothing, or the leaks. Errors: PEN_E_NOMEM. Thread: any.
PEN_API PEN_NODISCARD enum pen_status
pen_pipeline_snapshot(const struct pen_pipeline *pipeline,
                      struct pen_snapshot **out, struct pen_error *err);

// The report as text and as JSON, to be freed with pen_free(); NULL when out of
// memory. Thread: any.
PEN_API char *pen_pipeline_report_text(const struct pen_pipeline *pipeline);
PEN_API char *pen_pipeline_report_json(const struct pen_pipeline *pipeline);

// Stop if it still runs (deadline 5 s) and release. An abandoned pipeline's
// memory is kept for the module that may still come back. Frames that somebody
// still refers to stay valid; what they need of the pipeline (its account, the
// device with its context) is released with the last of them, on whatever
// thread that is. Sets *pipeline to NULL; NULL in it is allowed. Thread: setup.
// Blocks.
PEN_API void pen_pipeline_destroy(struct pen_pipeline **pipeline);

PEN_END

#endif  // PEN_PIPELINE_H
