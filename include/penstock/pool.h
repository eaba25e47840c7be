#ifndef PEN_POOL_H
#define PEN_POOL_H

#include <penstock/device.h>
#include <penstock/format.h>
#include <penstock/ledger.h>

PEN_BEGIN

// Memory for programs that call CUDA themselves: a pool of page-locked host
// memory or of device memory, as fast as a pointer pop once it is warm. Sizes
// are rounded up to classes: multiples of 64 bytes up to 1 KiB (of device
// memory of 256 bytes up to 2 KiB), then eight per power of two, so that less
// than 12.5 % of a larger block is waste. Blocks that came back are kept per
// thread and are given again without a call of the driver; what a thread keeps
// others get before an allocation fails. Blocks below 64 KiB are cut from
// pieces of 64 KiB to 1 MiB, which go back to the driver as a whole. No block
// moves.
//
// A block that is freed may be given to anybody at once: free it only when no
// copy or kernel that was queued still uses it.
struct pen_pool;

struct pen_pool_params {
    enum pen_mem_type mem;      // HOST, HOST_PINNED or CUDA_DEVICE
    struct pen_device *device;  // NULL is allowed for HOST only; borrowed until
                                // the pool and its last block are gone
    const char *name;           // in errors and snapshots; copied; NULL: "pool"
    uint64_t max_bytes;         // most bytes that are held; 0: no limit
    int64_t decay_ns;           // blocks that nobody used for so long are given
                                // back as the pool is used; 0: 10 s, < 0: never
    const struct pen_log *log;  // told of wrong frees; borrowed likewise; NULL
};

// *out is owned by the caller: pen_pool_destroy(). Nothing is allocated yet.
// Errors: PEN_E_ARG, PEN_E_NOMEM. Thread: any.
PEN_API PEN_NODISCARD enum pen_status
pen_pool_create(const struct pen_pool_params *params, struct pen_pool **out,
                struct pen_error *err);
// Give all free blocks back to the driver and set *pool to NULL (NULL in it is
// allowed). Blocks that are still out stay valid, and are given back when they
// are freed; how many bytes that are is told by the error.
// Errors: PEN_E_LEAK  blocks are still out
// Thread: any; nobody may use the pool any more, but free its blocks.
PEN_API enum pen_status pen_pool_destroy(struct pen_pool **pool,
                                         struct pen_error *err);

// Page-locked host memory of a HOST_PINNED pool (pageable of a HOST pool).
// Aligned to 64 bytes, from 32 KiB on to 4096 bytes; contents are undefined.
// Errors: PEN_E_ARG     bytes is 0, or the pool is of another type
//         PEN_E_LIMIT   over max_bytes, even after idle blocks were given back
//         PEN_E_NOMEM   the machine has no more, likewise; the text tells
//                       what is asked for, held, free, the largest free block
//                       and the three largest owners
//         PEN_E_UNSUPPORTED  the driver gave an address beyond 2^49
//         PEN_E_DRIVER, PEN_E_LOST
// Thread: any. Blocks on the driver where no block of the class is free, and
// once in a while to give back what was idle for decay_ns.
PEN_API PEN_NODISCARD enum pen_status pen_pinned_alloc(struct pen_pool *pool,
                                                       size_t bytes, void **out,
                                                       struct pen_error *err);
// NULL is allowed. Any thread may free what another one allocated.
// Errors: PEN_E_ARG    no block begins there; nothing is done
//         PEN_E_STATE  the block is free already; nothing is done
// Thread: any. Never blocks on the driver, but for a destroyed pool's block.
PEN_API enum pen_status pen_pinned_free(void *memory);

// The same for device memory of a CUDA_DEVICE pool; addresses are aligned to
// 256 bytes. 0 is allowed in free. PEN_E_DEVMEM in place of PEN_E_NOMEM.
PEN_API PEN_NODISCARD enum pen_status pen_cuda_alloc(struct pen_pool *pool,
                                                     size_t bytes,
                                                     uint64_t *out,
                                                     struct pen_error *err);
PEN_API enum pen_status pen_cuda_free(uint64_t address);

// Give free blocks back to the driver until at most `keep_bytes` of them are
// held; those that were idle longest go first. Returns how many bytes went.
// Thread: any. Blocks on the driver.
PEN_API uint64_t pen_pool_trim(struct pen_pool *pool, uint64_t keep_bytes);

struct pen_pool_stats {
    uint64_t held_bytes, held_peak;  // from the driver, with what is free
    uint64_t used_bytes, used_peak;  // asked for by the program; the peak as
                                     // seen whenever memory was got from the
                                     // driver or statistics were asked for
    uint64_t waste_bytes;            // of the blocks that are out: their bytes
                                     // less those that were asked for
    uint64_t allocs, frees;          // calls that succeeded
    uint64_t driver_allocs, driver_frees;
    uint64_t bad_frees;  // refused
    uint64_t steals;     // blocks taken from another thread's cache
    uint64_t live;       // blocks that are out
};
// Thread: any. Exact while nobody allocates or frees.
PEN_API void pen_pool_get_stats(struct pen_pool *pool,
                                struct pen_pool_stats *out);
// What is alive on account of the pool. Errors: PEN_E_NOMEM. Thread: any.
PEN_API PEN_NODISCARD enum pen_status
pen_pool_snapshot(struct pen_pool *pool, struct pen_snapshot **out,
                  struct pen_error *err);

PEN_END

#endif  // PEN_POOL_H
