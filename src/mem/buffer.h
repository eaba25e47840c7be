#ifndef STK_BUFFER_H
#define STK_BUFFER_H

// A block of memory of one type: what frames refer to and pools hand out. The
// constant part is set by its maker; the points change with each use.

#include "../gpu/stream.h"

enum { STK_MAX_READERS = 4 };  // streams of a pipeline

struct stk_pool;

struct stk_buffer {
    _Atomic uint32_t refs;
    enum pen_mem_type mem;
    size_t bytes;
    void *host;        // HOST, HOST_PINNED
    uint64_t address;  // device address, or the host address
    struct stk_pool *pool;      // where it returns; NULL: foreign
    struct stk_buffer *next;    // free list of the pool
    void (*release)(void *cookie);  // foreign memory: called at the end
    void *cookie;
    // Points, guarded by the rule of one writer: set by the runtime after the
    // module call that queued the work, read by whoever acquires.
    struct stk_point written;                   // contents are ready after
    struct stk_point read[STK_MAX_READERS];     // last use by each stream
};

struct stk_buffer *stk_buffer_ref(struct stk_buffer *buffer);
void stk_buffer_unref(struct stk_buffer *buffer);

// Note that work recorded up to `point` writes or reads the buffer (`access`
// of pen_access). Thread: data; several readers at once are allowed.
void stk_buffer_used(struct stk_buffer *buffer, struct stk_point point,
                     unsigned access);

// Whether the host may touch the buffer now (for PEN_WRITE: readers too). If
// not, *wait is a point to wait for.
bool stk_buffer_host_ready(struct stk_buffer *buffer, unsigned access,
                           struct stk_point *wait);
// Make `stream` wait for what the access needs.
PEN_NODISCARD enum pen_status
stk_buffer_stream_ready(struct stk_buffer *buffer, struct stk_stream *stream,
                        unsigned access, struct pen_error *err);

// Wrap foreign memory; `release(cookie)` when the last reference goes.
PEN_NODISCARD enum pen_status
stk_buffer_wrap(enum pen_mem_type mem, void *host, uint64_t address,
                size_t bytes, void (*release)(void *cookie), void *cookie,
                struct stk_buffer **out, struct pen_error *err);

#endif  // STK_BUFFER_H
