#ifndef STK_FRAME_H
#define STK_FRAME_H

// Frames and their access. Frame objects come from a small pool of their own
// (no allocation in steady state).

#include <penstock/frame.h>

#include "buffer.h"

struct stk_frame_pool;

struct pen_frame {
    _Atomic uint32_t refs;
    struct stk_buffer *buffer;  // one reference
    struct pen_caps caps;
    struct pen_layout layout;
    uint64_t index;
    int64_t pts;
    size_t bytes;  // payload of kinds without layout
    struct stk_frame_pool *pool;
    struct pen_frame *next;
};

// Recycles frame objects; grows on demand (counted in the ledger as
// STK_RES_FRAME), keeps what came back. Alive until its last frame is gone.
// The ledger is borrowed until then; it may be NULL.
// Errors: PEN_E_NOMEM. Thread: setup.
PEN_NODISCARD enum pen_status stk_frame_pool_create(uint32_t preallocate,
                                                    struct stk_ledger *ledger,
                                                    struct stk_frame_pool **out,
                                                    struct pen_error *err);
void stk_frame_pool_destroy(struct stk_frame_pool **pool);
// Call `gone` at the very end, when the pool is destroyed and its last frame
// gone: then the ledger is no longer borrowed. Thread: setup.
void stk_frame_pool_when_gone(struct stk_frame_pool *pool,
                              void (*gone)(void *cookie), void *cookie);

// Who uses frames on this thread, so that what is left can be laid at his door:
// descriptors are entered under his name, and references that he takes and
// drops are counted. NULL: nobody in particular. Set around the calls of a
// module.
struct stk_frame_user {
    const char *name;
    int64_t refs;
};
extern _Thread_local struct stk_frame_user *stk_frame_user;

// Frames that were released, referenced or acquired although nobody had a
// reference. That does nothing but count; the first is told by *first (may be
// NULL). What is done to a frame whose pool is gone counts in the process, as
// long as the frame is among the last 64 of that kind; under AddressSanitizer
// a frame that nobody has is poisoned, and told at the spot instead.
// Thread: any.
uint64_t stk_frame_pool_misuses(struct stk_frame_pool *pool,
                                struct pen_error *first);
uint64_t stk_frame_late_misuses(void);

// Make a frame of `caps` over `buffer`; takes the caller's reference on
// success. The layout is computed with PEN_PITCH_ALIGN.
// Index is 0, pts INT64_MIN; the payload of a frame without layout is
// caps->bytes until pen_frame_set_bytes().
// Errors: PEN_E_ARG (buffer too small, caps incomplete), PEN_E_LIMIT,
//         PEN_E_NOMEM.
// Thread: data.
PEN_NODISCARD enum pen_status stk_frame_make(struct stk_frame_pool *pool,
                                             struct stk_buffer *buffer,
                                             const struct pen_caps *caps,
                                             struct pen_frame **out,
                                             struct pen_error *err);

// The same with a layout that is known to fit caps and buffer.
PEN_NODISCARD enum pen_status
stk_frame_make_as(struct stk_frame_pool *pool, struct stk_buffer *buffer,
                  const struct pen_caps *caps, const struct pen_layout *layout,
                  struct pen_frame **out, struct pen_error *err);

// Views, as pen_acquire() describes them. ..._on_stream makes the stream wait
// for what the access needs; the caller notes the use with stk_buffer_used()
// after recording. PEN_WRITE needs the only reference, to the frame and to its
// buffer.
// Errors: PEN_E_STATE  the memory type has no such access, the frame is
//                      shared (PEN_WRITE), released or, on the host, not
//                      ready
//         PEN_E_ARG    no access asked
//         PEN_E_LOST   the device is gone and the contents may be too
//         those of stk_stream_wait(), of the DMABUF's begin of an access
// Thread: data.
PEN_NODISCARD enum pen_status stk_frame_on_host(struct pen_frame *frame,
                                                unsigned access,
                                                struct pen_view *out,
                                                struct pen_error *err);
PEN_NODISCARD enum pen_status stk_frame_on_stream(struct pen_frame *frame,
                                                  struct stk_stream *stream,
                                                  unsigned access,
                                                  struct pen_view *out,
                                                  struct pen_error *err);

// End an access on the host that stk_frame_on_host() began, with the same
// `access`; needed for DMABUF, allowed for all. Errors: PEN_E_IO.
PEN_NODISCARD enum pen_status stk_frame_host_done(struct pen_frame *frame,
                                                  unsigned access,
                                                  struct pen_error *err);

// Copy all planes between views on `stream`: one linear copy where layouts
// agree, else by rows. Of frames without layout the payload of `src` is
// copied. Needs the context current. Thread: data.
// Errors: PEN_E_ARG          formats or sizes differ, payload does not fit
//         PEN_E_UNSUPPORTED  memory that a stream does not reach (HOST:
//                            pageable memory is never copied behind the
//                            planner's back), or host to host
//         those of stk_stream_copy()
PEN_NODISCARD enum pen_status stk_transfer(struct stk_stream *stream,
                                           const struct pen_view *dst,
                                           const struct pen_view *src,
                                           struct pen_error *err);

#endif  // STK_FRAME_H
