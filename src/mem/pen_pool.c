// The public allocator: a size-class pool with an account of its own, since it
// belongs to no pipeline.

#include <stdalign.h>
#include <stdlib.h>

#include "../base/snapshot.h"
#include "size_pool.h"

// A cache line of its own: every call reads it.
struct pen_pool {
    alignas(64) struct stk_size_pool *core;
    bool device;  // CUDA_DEVICE, else host memory
    enum pen_mem_type mem;
    struct stk_ledger *ledger;  // the core's: it may outlive us
};

static void drop_ledger(void *ledger)
{
    struct stk_ledger *l = ledger;
    stk_ledger_destroy(&l);
}

enum pen_status pen_pool_create(const struct pen_pool_params *params,
                                struct pen_pool **out, struct pen_error *err)
{
    *out = NULL;
    const char *name = params->name ? params->name : "pool";
    struct pen_pool *pool =
        aligned_alloc(alignof(struct pen_pool), sizeof(*pool));
    struct stk_ledger *ledger = pool ? stk_ledger_create(true) : NULL;
    if (!ledger) {
        free(pool);
        return pen_error_set(err, PEN_E_NOMEM, 0, name,
                             "no host memory for a pool (%zu bytes)",
                             sizeof(*pool));
    }
    *pool = (struct pen_pool){
        .ledger = ledger,
        .mem = params->mem,
        .device = params->mem == PEN_MEM_CUDA_DEVICE,
    };
    const struct stk_size_pool_params core = {
        .mem = params->mem,
        .dev = params->device,
        .ledger = ledger,
        .owner = name,
        .max_bytes = params->max_bytes,
        .decay_ns = params->decay_ns,
        .log = params->log,
        .gone = drop_ledger,
        .cookie = ledger,
    };
    const enum pen_status st = stk_size_pool_create(&core, &pool->core, err);
    if (st) {
        stk_ledger_destroy(&ledger);
        free(pool);
        return st;
    }
    *out = pool;
    return PEN_OK;
}

enum pen_status pen_pool_destroy(struct pen_pool **pool, struct pen_error *err)
{
    struct pen_pool *p = *pool;
    if (!p)
        return PEN_OK;
    *pool = NULL;
    const enum pen_status st = stk_size_pool_destroy(&p->core, err);
    free(p);
    return st;
}

static enum pen_status wrong_type(const struct pen_pool *pool, const char *call,
                                  struct pen_error *err)
{
    return pen_error_set(err, PEN_E_ARG, 0, "pool",
                         "this is a pool of %s: %s() allocates from it",
                         pen_mem_name(pool->mem), call);
}

enum pen_status pen_pinned_alloc(struct pen_pool *pool, size_t bytes,
                                 void **out, struct pen_error *err)
{
    *out = NULL;
    if (pool->device)
        return wrong_type(pool, "pen_cuda_alloc", err);
    uint64_t address;
    const enum pen_status st =
        stk_size_pool_alloc(pool->core, bytes, &address, err);
    *out = (void *)(uintptr_t)address;  // 0 after a failure
    return st;
}

enum pen_status pen_pinned_free(void *memory)
{
    return stk_size_pool_free((uint64_t)(uintptr_t)memory, PEN_MEM_BITS_HOST);
}

enum pen_status pen_cuda_alloc(struct pen_pool *pool, size_t bytes,
                               uint64_t *out, struct pen_error *err)
{
    *out = 0;
    if (!pool->device)
        return wrong_type(pool, "pen_pinned_alloc", err);
    return stk_size_pool_alloc(pool->core, bytes, out, err);
}

enum pen_status pen_cuda_free(uint64_t address)
{
    return stk_size_pool_free(address, PEN_MEM_BIT(PEN_MEM_CUDA_DEVICE));
}

uint64_t pen_pool_trim(struct pen_pool *pool, uint64_t keep_bytes)
{
    return stk_size_pool_trim(pool->core, keep_bytes);
}

void pen_pool_get_stats(struct pen_pool *pool, struct pen_pool_stats *out)
{
    stk_size_pool_stats(pool->core, out);
}

enum pen_status pen_pool_snapshot(struct pen_pool *pool,
                                  struct pen_snapshot **out,
                                  struct pen_error *err)
{
    return stk_snapshot_take(pool->ledger, out, err);
}
