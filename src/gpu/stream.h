#ifndef STK_STREAM_H
#define STK_STREAM_H

// A stream with numbered points. A point is reached when all work queued
// before its record is done. Number and event record happen under one lock
// per stream; events are kept in a ring of STK_RUN_AHEAD and reused only when
// reached.

#include "device.h"

// The ring's events are waited for without spinning (blocking-sync), and of
// those a stream takes 56 at a time on an H200 with driver 580: the record of
// one more holds up the thread that makes it. Hence less than 56
// (docs/adr/0009-run-ahead-of-48.md).
enum { STK_RUN_AHEAD = 48 };

struct stk_stream;

// A moment in stream time; {NULL, 0} is always reached.
struct stk_point {
    struct stk_stream *stream;
    uint64_t seq;
};

// A non-blocking stream. Thread: setup.
PEN_NODISCARD enum pen_status stk_stream_create(struct pen_device *dev,
                                                const char *owner,
                                                struct stk_stream **out,
                                                struct pen_error *err);
// Waits for the stream's work, then destroys it. NULL in *stream is allowed.
void stk_stream_destroy(struct stk_stream **stream);
uintptr_t stk_stream_handle(const struct stk_stream *stream);  // CUstream

// Record a point after everything queued so far. PEN_AGAIN if STK_RUN_AHEAD
// points are not reached yet: *out is then the oldest of them, wait for it.
// Needs the context current. Thread: data.
PEN_NODISCARD enum pen_status stk_stream_record(struct stk_stream *stream,
                                                struct stk_point *out,
                                                struct pen_error *err);
// True if fewer than STK_RUN_AHEAD - `slack` points are outstanding; otherwise
// *oldest is the point to wait for before more work is queued.
bool stk_stream_has_room(struct stk_stream *stream, unsigned slack,
                         struct stk_point *oldest);

// Where a wait is made (wait_sites.h).
enum stk_wait_site {
    STK_WAIT_NONE = 0,  // of who decides again once it is called
#define X(id, text) STK_WAIT_##id,
#include "wait_sites.h"
#undef X
    STK_WAIT_SITES
};

// Whether somebody at `site` has to wait for a point: it is not reached. The
// one function through which all waits go. Thread: any.
bool stk_point_pending(struct stk_point point, enum stk_wait_site site);

// The same for the few that wait for a whole stream or context, not for a
// point: true, except in a test that leaves the site out. Thread: any.
bool stk_wait_wanted(enum stk_wait_site site);

// Whether a point is reached. Asks the driver at most once per call; enters
// its own scope. An error of the driver counts as reached and marks the
// device lost. Thread: any.
bool stk_point_reached(struct stk_point point);

// Queue a wait: later work of `stream` runs after `point`. Nothing is queued
// if it is reached or of the same stream. Thread: data.
PEN_NODISCARD enum pen_status stk_stream_wait(struct stk_stream *stream,
                                              struct stk_point point,
                                              enum stk_wait_site site,
                                              struct pen_error *err);

// Call `done` when `point` is reached (at once, on this thread, if it is).
// One reaper thread per stream waits on the device for the points somebody
// asked for, lowest first; who asks for a lower one while it waits is called
// after that wait. `done` is called with no lock held. Points of a lost device
// count as reached. Thread: any.
PEN_NODISCARD enum pen_status
stk_point_when(struct stk_point point, enum stk_wait_site site,
               void (*done)(void *cookie), void *cookie, struct pen_error *err);

// Block until reached: for setup and teardown only.
PEN_NODISCARD enum pen_status stk_point_wait(struct stk_point point,
                                             enum stk_wait_site site,
                                             struct pen_error *err);
// Say that the calling thread must not wait for the device (workers of a
// pipeline), or may again. The waits that happen all the same are counted.
void stk_thread_must_not_block(bool on);
uint64_t stk_device_blocked(const struct pen_device *dev);

// Work. All need the context current; addresses are device or host addresses
// as `kind` says. Thread: data.
enum stk_copy_kind { STK_COPY_H2D = 1, STK_COPY_D2H, STK_COPY_D2D };
PEN_NODISCARD enum pen_status stk_stream_copy(struct stk_stream *stream,
                                              enum stk_copy_kind kind,
                                              uint64_t dst, uint64_t src,
                                              size_t bytes,
                                              struct pen_error *err);
PEN_NODISCARD enum pen_status stk_stream_copy_2d(struct stk_stream *stream,
                                                 enum stk_copy_kind kind,
                                                 uint64_t dst, size_t dst_pitch,
                                                 uint64_t src, size_t src_pitch,
                                                 size_t row_bytes, size_t rows,
                                                 struct pen_error *err);
PEN_NODISCARD enum pen_status stk_stream_fill(struct stk_stream *stream,
                                              uint64_t address,
                                              unsigned char value, size_t bytes,
                                              struct pen_error *err);
PEN_NODISCARD enum pen_status
stk_stream_launch(struct stk_stream *stream, struct stk_kernels *kernels,
                  uint32_t entry, const struct pen_grid *grid, const void *args,
                  size_t args_size, struct pen_error *err);
uint64_t stk_stream_launches(const struct stk_stream *stream);

#endif  // STK_STREAM_H
