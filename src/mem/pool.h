#ifndef STK_POOL_H
#define STK_POOL_H

// A planned pool: equally sized buffers of one memory type for one output
// pin, counted by the plan, so that the steady state makes no driver calls
// for memory. Free blocks lie in shared places that every thread can reach (no
// thread keeps one to itself, so none is stranded); taking and giving needs no
// lock, and where threads do not meet no more than the block's own cache line.
// Outstanding buffers keep the pool's storage alive: destroying a pool while
// buffers are in flight is allowed and leaks nothing.

#include "buffer.h"

struct stk_pool_params {
    enum pen_mem_type mem;
    enum stk_dmabuf_kind kind;  // of DMABUF
    size_t block_bytes;         // > 0
    uint32_t blocks;            // most buffers alive at once; > 0
    uint32_t more_blocks;       // by how many stk_pool_add() may raise that
    size_t reserve_bytes;    // to which a block of CUDA_DEVICE memory can grow
                             // where it lies; 0: it is replaced
    struct pen_device *dev;  // where the type or kind needs one; borrowed until
                             // the last buffer is gone
    struct stk_ledger *ledger;  // borrowed likewise; may be NULL
    const char *owner;          // "module.pin", copied
    // Called without lock when a buffer comes back (or is added) after
    // stk_pool_take() had none to give, so that who waits for one can try
    // again. May be NULL. Not called any more once the pool is destroyed.
    void (*returned)(void *cookie);
    void *cookie;
    // Called at the very end, when the pool is destroyed and its last buffer
    // gone: then device and ledger are no longer borrowed. May be NULL.
    void (*gone)(void *cookie);
    void *gone_cookie;
};

// All blocks are allocated now. On failure *out is NULL and nothing stays.
// Errors: PEN_E_ARG, PEN_E_NOMEM, PEN_E_DEVMEM (sizes in the text),
// PEN_E_DRIVER. Thread: setup (or the runtime's first frame).
PEN_NODISCARD enum pen_status stk_pool_create(const struct stk_pool_params *p,
                                              struct stk_pool **out,
                                              struct pen_error *err);
// Waits for the points of the free blocks and for a `returned` that is being
// called, so not to be called from it. Thread: setup.
void stk_pool_destroy(struct stk_pool **pool);

// Take a buffer; the caller owns one reference. `stream` is where it will be
// written first (the stream is made to wait for other streams' last uses;
// needs the context current), NULL for the host (only a buffer whose points
// are all reached is given).
// Device memory is cleared once, on the stream that takes it first: a linear
// transfer carries the padding of rows along, which no kernel ever writes.
// PEN_AGAIN: none can be given now. wait->stream is not NULL if a free one
// only waits for that point; otherwise `returned` will be called (another
// thread may call it before this call returns).
// Errors: as stk_pool_create() while blocks are replaced after a growth, and
//         as stk_stream_wait(); PEN_E_LOST. The pool is as before.
// Thread: data. Never blocks.
PEN_NODISCARD enum pen_status stk_pool_take(struct stk_pool *pool,
                                            struct stk_stream *stream,
                                            struct stk_buffer **out,
                                            struct stk_point *wait,
                                            struct pen_error *err);

// Raise the number of blocks, without touching those that are there. Beyond
// `more_blocks`: PEN_E_LIMIT. Errors: as stk_pool_create(); what was made
// stays. Thread: data. Blocks on the driver.
PEN_NODISCARD enum pen_status
stk_pool_add(struct stk_pool *pool, uint32_t blocks, struct pen_error *err);

// Make the blocks larger: where they lie if the type can and the reserve
// suffices (then even while they are in use), else by replacing them. Used
// when a re-planned size is larger.
// Free ones whose points are reached now, the others when they are taken
// next; the old memory goes first, so that the pool never holds more than its
// blocks of the new size. A size that is not larger changes nothing.
// Errors: as stk_pool_create(). The pool then stays at the new size and what
// is missing is tried again by stk_pool_take().
// Thread: data. Blocks on the driver.
PEN_NODISCARD enum pen_status
stk_pool_grow(struct stk_pool *pool, size_t block_bytes, struct pen_error *err);

struct stk_pool_stats {
    size_t block_bytes;
    uint32_t blocks, in_use;
    // Most blocks that were needed at once: referred to, or not to be written
    // yet because a stream uses them. Threads that take from one pool at the
    // same time may have used a few more than needed.
    uint32_t max_in_use;
    uint64_t takes;  // buffers given
    uint64_t waits;  // PEN_AGAIN
    uint64_t grown;  // blocks replaced by larger ones
};
void stk_pool_stats(struct stk_pool *pool, struct stk_pool_stats *out);
size_t stk_pool_block_bytes(const struct stk_pool *pool);

// Where its blocks come from. Borrowed.
const struct stk_mem_source *stk_pool_source(const struct stk_pool *pool);

// For stk_buffer_unref(): the last reference of one of the pool's is gone.
// False: it is in the pool already.
bool stk_pool_give(struct stk_buffer *buffer);

#endif  // STK_POOL_H
