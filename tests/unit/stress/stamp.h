#ifndef STAMP_H
#define STAMP_H

// Stamps (stamp.kern.h) written and checked on a stream, or on the host by the
// same functions. Nothing here fails a test: worker threads use it too.

#include "gpu_fixture.h"

#include "stamp.kern.h"

extern const struct pen_kernel_image stamp_image;

struct stamper {
    struct pen_device *dev;
    struct stk_kernels *kernels;
    struct stk_stream *stream;
    uint64_t result;  // in device memory
};

// On a device whose context need not be current.
enum pen_status stamper_open(struct stamper *s, struct pen_device *dev,
                             struct stk_stream *stream, struct pen_error *err);
// Waits for the stream; adds its result to *sum.
enum pen_status stamper_result(struct stamper *s, struct stamp_result *sum,
                               struct pen_error *err);
void stamper_close(struct stamper *s);

// Queue; with the context current, and `address` in device memory.
enum pen_status stamp_queue(struct stamper *s, uint64_t address, uint64_t tag,
                            uint32_t words, struct pen_error *err);
enum pen_status stamp_queue_check(struct stamper *s, uint64_t address,
                                  uint64_t tag, uint32_t words, uint32_t what,
                                  struct pen_error *err);

// Now, on the host.
void stamp_host(void *memory, uint64_t tag, uint32_t words);
void stamp_host_check(const void *memory, uint64_t tag, uint32_t words,
                      uint32_t what, struct stamp_result *sum);

// Add the counts; the first failure stays.
void stamp_add(struct stamp_result *sum, const struct stamp_result *more);

#endif  // STAMP_H
