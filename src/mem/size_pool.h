#ifndef STK_SIZE_POOL_H
#define STK_SIZE_POOL_H

// A pool for variable sizes: blocks of size classes, eight per power of two,
// with caches per thread. It is what pen_pool is made of, and what the runtime
// takes staging memory from.
//
// A thread's cache is a line that it alone uses, but which others can stop and
// empty when nothing else is left, so that a cap is never missed for blocks
// that a thread keeps to itself, and a thread that ends takes nothing with it.
// Which block an address belongs to is told by a map of pages, so that freeing
// needs no pool.

#include <penstock/pool.h>

#include "type.h"

struct stk_size_pool;

struct stk_size_pool_params {
    enum pen_mem_type mem;  // HOST, HOST_PINNED, CUDA_DEVICE
    struct pen_device *dev;
    struct stk_ledger *ledger;  // what the pool holds is entered there, and in
                                // the device's if that is another; may be NULL
    const char *owner;          // copied
    uint64_t max_bytes;         // 0: no limit
    int64_t decay_ns;           // 0: 10 s, < 0: never
    const struct pen_log *log;  // may be NULL
    // Called once, without lock, when the pool and its last block are gone;
    // until then dev, ledger and log are borrowed. May be NULL.
    void (*gone)(void *cookie);
    void *cookie;
};

PEN_NODISCARD enum pen_status
stk_size_pool_create(const struct stk_size_pool_params *params,
                     struct stk_size_pool **out, struct pen_error *err);
// As pen_pool_destroy().
enum pen_status stk_size_pool_destroy(struct stk_size_pool **pool,
                                      struct pen_error *err);
// *address is the device address, or the host address as a number.
// Errors: as pen_pinned_alloc(). Thread: any.
PEN_NODISCARD enum pen_status stk_size_pool_alloc(struct stk_size_pool *pool,
                                                  size_t bytes,
                                                  uint64_t *address,
                                                  struct pen_error *err);
// Of any pool whose type is in `mems` (mask of PEN_MEM_BIT).
// Errors: PEN_E_ARG, PEN_E_STATE. Thread: any.
enum pen_status stk_size_pool_free(uint64_t address, uint32_t mems);
uint64_t stk_size_pool_trim(struct stk_size_pool *pool, uint64_t keep_bytes);
void stk_size_pool_stats(struct stk_size_pool *pool,
                         struct pen_pool_stats *out);

// The number and the bytes of the class of a size: multiples of 64 bytes up to
// 1 KiB, then eight per power of two up to 2^47. False: 0 or too large.
bool stk_size_class(size_t bytes, unsigned *number, size_t *class_bytes);

#endif  // STK_SIZE_POOL_H
