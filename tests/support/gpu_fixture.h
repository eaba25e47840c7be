#ifndef GPU_FIXTURE_H
#define GPU_FIXTURE_H

// The device under test with a ledger, and two kernels that work on the
// emulated device and on a GPU: one fills memory, the other is a gate, which
// holds its stream until the host opens it.

#include <semaphore.h>

#include "pen_test.h"

#include "emu/emu_control.h"
#include "src/gpu/stream.h"

struct fixture {
    struct stk_ledger *ledger;
    struct pen_device *dev;
    struct stk_kernels *kernels;
};

// Open the device that PENSTOCK_TEST_DEVICE names and load the kernels.
void fixture_open(struct fixture *f);
// Close it; the test fails, with names, if the ledger is not empty.
void fixture_close(struct fixture *f);
// The test fails, with names, if anything is alive in the ledger.
void fixture_check_empty(struct stk_ledger *ledger);
uint64_t fixture_live(struct stk_ledger *ledger, enum stk_res res);

// Controls of the emulated device, or NULL on a GPU.
const struct penemu *fixture_emulator(void);
// On the emulator, call `body` in each of its modes; on a GPU once.
void fixture_all_modes(void (*body)(struct fixture *f));

struct stk_stream *fixture_stream(struct fixture *f, const char *owner);
struct stk_point fixture_record(struct fixture *f, struct stk_stream *stream);

// Queue a kernel that fills `count` words at a device address.
void fixture_fill(struct fixture *f, struct stk_stream *stream, uint64_t dst,
                  uint32_t value, uint32_t count);

// A gate; closed when it is made. Nothing queued on a stream after
// gate_queue() is done before gate_open(). Free it when the stream is done.
struct gate {
    uint32_t *flag;
};
void gate_create(struct fixture *f, struct gate *gate);
void gate_queue(struct fixture *f, struct gate *gate,
                struct stk_stream *stream);
void gate_open(struct gate *gate);
void gate_free(struct fixture *f, struct gate *gate);

// Something that is called: fixture_call(&called) posts it.
struct called {
    sem_t sem;
    _Atomic unsigned count;
};
void called_init(struct called *c);
void called_back(void *called);
// Wait for one call; the test fails if it does not come within 20 seconds.
void called_wait(struct called *c);

#define FIXTURE_OK(expr)                                                       \
    do {                                                                       \
        struct pen_error err = { 0 };                                          \
        const enum pen_status got_ = (expr);                                   \
        if (got_ != PEN_OK)                                                    \
            fail_msg("%s: %s: %s", #expr, pen_status_name(got_), err.text);    \
    } while (0)

// The image of the two kernels, for tests that load it themselves.
extern const struct pen_kernel_image fixture_image;
enum { FIXTURE_GATE = 0, FIXTURE_FILL };

#endif  // GPU_FIXTURE_H
