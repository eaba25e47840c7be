#ifndef STK_POOL_H
#define STK_POOL_H

// A planned pool: equally sized buffers of one memory type for one output
// pin, counted by the plan, so that the steady state makes no driver calls
// for memory. Outstanding buffers keep the pool's storage alive: destroying a
// pool while buffers are in flight is allowed and leaks nothing.

#include "buffer.h"

struct stk_pool_params {
    enum pen_mem_type mem;   // HOST, HOST_PINNED or CUDA_DEVICE
    size_t block_bytes;      // > 0
    uint32_t blocks;         // most buffers alive at once; > 0
    struct pen_device *dev;  // for HOST_PINNED and CUDA_DEVICE; borrowed until
                             // the last buffer is gone
    struct stk_ledger *ledger;  // borrowed likewise; may be NULL
    const char *owner;       // "module.pin", copied
    // Called without lock after a buffer came back, so that who waits for one
    // can try again. May be NULL. Not called any more once the pool is
    // destroyed.
    void (*returned)(void *cookie);
    void *cookie;
};

// All blocks are allocated now. On failure *out is NULL and nothing stays.
// Errors: PEN_E_ARG, PEN_E_NOMEM, PEN_E_DEVMEM (sizes in the text),
// PEN_E_DRIVER. Thread: setup (or the runtime's first frame).
PEN_NODISCARD enum pen_status stk_pool_create(const struct stk_pool_params *p,
                                              struct stk_pool **out,
                                              struct pen_error *err);
void stk_pool_destroy(struct stk_pool **pool);

// Take a buffer; the caller owns one reference. `stream` is where it will be
// written first (the stream is made to wait for other streams' last uses;
// needs the context current), NULL for the host (only a buffer whose points
// are all reached is given).
// PEN_AGAIN: none can be given now. wait->stream is not NULL if a free one
// only waits for that point; otherwise `returned` will be called.
// Thread: data. Never blocks.
PEN_NODISCARD enum pen_status stk_pool_take(struct stk_pool *pool,
                                            struct stk_stream *stream,
                                            struct stk_buffer **out,
                                            struct stk_point *wait,
                                            struct pen_error *err);

// Replace the blocks by larger ones: free ones now, those in flight when they
// come back. Used when a re-planned size is larger. Thread: data.
PEN_NODISCARD enum pen_status stk_pool_grow(struct stk_pool *pool,
                                            size_t block_bytes,
                                            struct pen_error *err);

struct stk_pool_stats {
    size_t block_bytes;
    uint32_t blocks, in_use, max_in_use;
    uint64_t takes, waits, grown;
};
void stk_pool_stats(struct stk_pool *pool, struct stk_pool_stats *out);
size_t stk_pool_block_bytes(const struct stk_pool *pool);

#endif  // STK_POOL_H
