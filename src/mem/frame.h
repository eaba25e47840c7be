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

// Views, as pen_acquire() describes them. ..._on_stream makes the stream wait
// for what the access needs; the caller notes the use with stk_buffer_used()
// after recording. PEN_WRITE needs the only reference, to the frame and to its
// buffer.
// Errors: PEN_E_STATE  the memory type has no such access, the frame is
//                      shared (PEN_WRITE) or, on the host, not ready
//         PEN_E_ARG    no access asked
//         PEN_E_LOST   the device is gone and the contents may be too
//         those of stk_stream_wait()
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
