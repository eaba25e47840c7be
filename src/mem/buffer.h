#ifndef STK_BUFFER_H
#define STK_BUFFER_H

// A block of memory of one type: what frames refer to and pools hand out. The
// constant part is set by its maker; the points change with each use.
//
// Order of teardown: buffers go before the streams that used them, since
// points name their stream. Destroying a pool waits for the points of its
// free blocks; a buffer that comes back later (and foreign memory) is released
// when its points are reached, by the streams' reapers if need be, which
// stk_stream_destroy() completes. The device outlives both.
//
// Locks: a pool's (of its memory), then a buffer's, then those of src/gpu;
// callbacks are called with none of them held.

#include <pthread.h>
#include <stdatomic.h>

#include <penstock/frame.h>

#include "../gpu/stream.h"
#include "type.h"

enum { STK_MAX_READERS = 4 };  // streams of a pipeline

struct stk_pool;

struct stk_buffer {
    // What taking and giving touch comes first: one cache line in a pool.
    _Atomic uint32_t refs;
    _Atomic uint32_t place;  // the pool's, see pool.c
    _Atomic bool pointed;    // some point is noted
    _Atomic bool grows;      // the block can be made larger where it lies
    enum pen_mem_type mem;
    uint32_t number;         // in the pool
    _Atomic size_t bytes;    // of the block, see stk_buffer_bytes()
    struct stk_pool *pool;   // where it returns; NULL: foreign
    _Atomic uint64_t takes;  // written by who takes it
    size_t cleared;          // bytes, by the pool: see stk_pool_take()

    struct stk_block block;    // `bytes` in it are its maker's
    struct stk_buffer *next;   // while the pool works on several
    _Atomic uint32_t pending;  // of stk_buffer_when_unused()
    void (*unused)(struct stk_buffer *buffer);
    // Points: noted by the runtime after the module call that queued the work,
    // for a frame with several consumers by several threads at once, and
    // asked for by whoever acquires.
    pthread_mutex_t lock;                    // of the points
    struct stk_point written;                // contents are ready after
    struct stk_point read[STK_MAX_READERS];  // last use by each stream
};

// Bytes that the block has. A pool may make a block larger where it lies while
// somebody uses it. Thread: any.
static inline size_t stk_buffer_bytes(const struct stk_buffer *buffer)
{
    return atomic_load_explicit(&buffer->bytes, memory_order_acquire);
}

// Thread: any. unref accepts NULL; the last one gives the buffer back to its
// pool or releases it, and never waits. False: there was no reference to drop
// (of a pooled buffer this is found while the pool lives); nothing is done.
struct stk_buffer *stk_buffer_ref(struct stk_buffer *buffer);
bool stk_buffer_unref(struct stk_buffer *buffer);

// Note that work recorded up to `point` writes or reads the buffer (`access`
// of pen_access); before the reference that kept the buffer meanwhile is
// dropped. A writer must have acquired it for writing, so that its point
// stands for all earlier ones. Thread: data; several readers at once are
// allowed, from any threads.
void stk_buffer_used(struct stk_buffer *buffer, struct stk_point point,
                     unsigned access);

// Whether the host may touch the buffer now (for PEN_WRITE: readers too). If
// not, *wait is a point to wait for.
bool stk_buffer_host_ready(struct stk_buffer *buffer, unsigned access,
                           struct stk_point *wait);
// Make `stream` wait for what the access needs: nothing is queued for points
// of its own or reached ones. Needs the context current. Thread: data.
PEN_NODISCARD enum pen_status stk_buffer_stream_ready(struct stk_buffer *buffer,
                                                      struct stk_stream *stream,
                                                      unsigned access,
                                                      struct pen_error *err);

// Whether `stream` can write it without waiting for another stream: a hint for
// who chooses among several.
bool stk_buffer_free_for(struct stk_buffer *buffer,
                         const struct stk_stream *stream);

// Whether nothing that was queued uses the buffer any more, for who decides on
// its memory at `site`. If not, *wait (may be NULL) is a point to wait for.
bool stk_buffer_unused(struct stk_buffer *buffer, enum stk_wait_site site,
                       struct stk_point *wait);

// Call `done(buffer)` once all points are reached: at once if they are, else
// on the thread of a stream's reaper. Nobody may use the buffer any more.
void stk_buffer_when_unused(struct stk_buffer *buffer,
                            void (*done)(struct stk_buffer *buffer));
// Block until all points are reached, and forget them: for setup and teardown.
void stk_buffer_settle(struct stk_buffer *buffer);

// For those who make buffers: one reference, no points.
void stk_buffer_init(struct stk_buffer *buffer, enum pen_mem_type mem);
void stk_buffer_finish(struct stk_buffer *buffer);
// Its memory from now on ({0}: none).
void stk_buffer_set_block(struct stk_buffer *buffer,
                          const struct stk_block *block);

// Wrap foreign memory; `release(cookie)` when the last reference is gone and
// nothing that was queued uses it any more. What the buffer needs of its own (a
// duplicated descriptor, a mapping, an import) is entered in `ledger` (NULL:
// none) under "foreign". Thread: any.
// Errors: those of pen_frame_wrap(); release is then not called.
PEN_NODISCARD enum pen_status stk_buffer_wrap(const struct pen_foreign *memory,
                                              struct stk_ledger *ledger,
                                              struct stk_buffer **out,
                                              struct pen_error *err);

// Foreign memory: what to call at the end, instead of what wrap was told.
void stk_buffer_set_release(struct stk_buffer *buffer,
                            void (*release)(void *cookie), void *cookie);

// Where its memory comes from: device, ledger.
const struct stk_mem_source *stk_buffer_source(const struct stk_buffer *buffer);

// Who may touch the bytes: the host by an address, a stream by an address.
bool stk_buffer_on_host(const struct stk_buffer *buffer);
bool stk_buffer_on_stream(const struct stk_buffer *buffer);

#endif  // STK_BUFFER_H
