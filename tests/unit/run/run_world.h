#ifndef RUN_WORLD_H
#define RUN_WORLD_H

// Classes that the tests of the runtime build pipelines from, what these note,
// and a pipeline with all that belongs to it.
//
// Frames are MONO. A source fills frame n with pattern(n, x, y); TAdd adds 1 to
// each sample, TJoin adds its two inputs; a sink checks every sample against
// pattern + "expect" (for two joined branches: `twice`).

#include <semaphore.h>
#include <stdatomic.h>

#include "gpu_fixture.h"
#include "pen_test.h"

#include <penstock/pipeline.h>
#include <penstock/registry.h>

enum { WORLD_SINKS = 4, WORLD_FRAMES = 4096, WORLD_STREAMS = 32 };

struct world_sink {
    _Atomic uint32_t count;            // frames that arrived
    uint64_t index[WORLD_FRAMES];      // their numbers
    _Atomic uint32_t wrong, disorder;  // frames with wrong samples, order
};

struct world {
    struct world_sink sink[WORLD_SINKS];  // by property "slot"
    _Atomic uint32_t produced;            // frames that sources filled
    _Atomic uint32_t opened, closed, drained, stuck, uploaded;
    _Atomic uint32_t counted, disorder;  // by all TCount together
    _Atomic uint32_t wrong;              // frames with wrong samples, likewise
    _Atomic uint32_t synced;             // frames that a sync module let go
    sem_t tokens;                        // THold takes one for each frame
    sem_t release;                       // TStuck waits for it
    _Atomic uint32_t stream_count;
    uintptr_t streams[WORLD_STREAMS];  // that CUDA modules got in open()
    struct gate *gate;                 // that TGate closes the stream with
    void (*disturb)(void);             // called by TDisturb
    struct pen_frame *kept;            // that TThief kept
};
extern struct world world;

struct run {
    struct pen_registry *registry;
    struct pen_description *desc;
    struct pen_issues *issues;
    struct pen_pipeline_params params;  // to be changed before run_create
    bool may_wait;  // workers may have waited for the device
    struct pen_pipeline *p;
};

// Everything back to zero, and a registry of the classes.
void run_init(struct run *r);
// Parse and create; the test fails if that fails.
void run_create(struct run *r, const char *json);
enum pen_status run_try_create(struct run *r, const char *json,
                               struct pen_error *err);
// Create, start and wait for the end; the test fails unless it is PEN_OK.
void run_all(struct run *r, const char *json);
// The same, but the end is a failure, which is returned.
struct pen_error run_to_error(struct run *r, const char *json);
// The test fails if something is left in the ledger.
void run_finish(struct run *r);
// Wait until `counter` is at least `value`; fails after 20 seconds.
void wait_until(_Atomic uint32_t *counter, uint32_t value);
// The samples and numbers 0, 1, ... count - 1 arrived at sink `slot`.
void assert_all_arrived(unsigned slot, uint32_t count);
// Calls `body` in the emulator's modes lazy, eager, random; on a GPU once.
void in_all_modes(void (*body)(void));

struct pen_stats stats_of(const struct run *r);

#define RUN_OK(expr)                                                           \
    do {                                                                       \
        struct pen_error err = { 0 };                                          \
        const enum pen_status got_ = (expr);                                   \
        if (got_ != PEN_OK)                                                    \
            fail_msg("%s: %s: %s: %s", #expr, pen_status_name(got_),           \
                     err.where, err.text);                                     \
    } while (0)

// Pipeline files.
#define MODULE(ID, TYPE) "\"" ID "\": { \"type\": \"" TYPE "\" }"
#define MODULE_P(ID, TYPE, ...)                                                \
    "\"" ID "\": { \"type\": \"" TYPE "\", \"props\": { " __VA_ARGS__ " } }"
#define LINK(FROM, TO) "{ \"from\": \"" FROM "\", \"to\": \"" TO "\" }"
#define LINK_Q(FROM, TO, QUEUE)                                                \
    "{ \"from\": \"" FROM "\", \"to\": \"" TO "\", \"queue\": { " QUEUE " } }"
#define PIPE(MODULES, LINKS)                                                   \
    "{ \"modules\": { " MODULES " }, \"connections\": [ " LINKS " ] }"

#endif  // RUN_WORLD_H
