// Size-class pools: taking and giving blocks, and the life of a pool. How it
// is made and which locks there are: size_pool_priv.h.

#include <limits.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "page_map.h"
#include "size_pool_priv.h"

#define LIKELY(x)   __builtin_expect(!!(x), 1)
#define UNLIKELY(x) __builtin_expect(!!(x), 0)

enum { INVERSE_BITS = 42, MAINTAIN_EVERY = 1024 };

// --- classes ----------------------------------------------------------------

// With m granules of 64 bytes: m - 1 from 0 to 15 is the class itself, and
// from there on its four highest bits and their place are.
static inline unsigned class_of(size_t bytes, size_t *class_bytes)
{
    const size_t last = (bytes - 1) / STK_GRANULE;
    const unsigned shift = 60 - (unsigned)__builtin_clzl(last | 8);
    const size_t top = last >> shift;
    *class_bytes = (top + 1) * STK_GRANULE << shift;
    return shift * 8 + (unsigned)top;
}

bool stk_size_class(size_t bytes, unsigned *number, size_t *class_bytes)
{
    if (bytes - 1 >= STK_MOST_BYTES)
        return false;
    *number = class_of(bytes, class_bytes);
    return true;
}

static void free_class(struct stk_size_class *cls)
{
    pthread_mutex_destroy(&cls->lock);
    free(cls->idle);
    free(cls);
}

// The class of a pool, made by its first use; NULL: no memory.
static struct stk_size_class *need_class(struct stk_size_pool *pool,
                                         unsigned number, size_t bytes)
{
    struct stk_size_class *cls =
        atomic_load_explicit(&pool->classes[number], memory_order_acquire);
    if (cls)
        return cls;
    struct stk_size_class *fresh =
        aligned_alloc(alignof(struct stk_size_class), sizeof(*fresh));
    if (!fresh)
        return NULL;
    memset(fresh, 0, sizeof(*fresh));
    fresh->pool = pool;
    fresh->bytes = bytes;
    size_t slots = STK_LINE_BYTES / bytes;
    slots = slots < 1 ? 1 : slots > STK_MAX_SLOTS ? STK_MAX_SLOTS : slots;
    atomic_init(&fresh->slots, (uint32_t)slots);
    fresh->batch = slots > 1 ? (uint32_t)slots - 1 : 1;
    // Held for some nanoseconds: rather spin than sleep.
    pthread_mutexattr_t attr;
    pthread_mutexattr_init(&attr);
    pthread_mutexattr_settype(&attr, PTHREAD_MUTEX_ADAPTIVE_NP);
    pthread_mutex_init(&fresh->lock, &attr);
    pthread_mutexattr_destroy(&attr);
    if (atomic_compare_exchange_strong(&pool->classes[number], &cls, fresh))
        return fresh;
    free_class(fresh);  // another thread was first
    return cls;
}

// --- taking -----------------------------------------------------------------

static inline struct stk_size_block *take_slot(struct stk_line *line)
{
    for (unsigned i = 0; i < STK_MAX_SLOTS; i++) {
        if (!atomic_load_explicit(&line->slot[i], memory_order_relaxed))
            continue;
        // Others may empty it too.
        struct stk_size_block *block = atomic_exchange_explicit(
            &line->slot[i], NULL, memory_order_acquire);
        if (LIKELY(block != NULL))
            return block;
    }
    return NULL;
}

static inline bool give_slot(struct stk_line *line, uint32_t slots,
                             struct stk_size_block *block)
{
    for (uint32_t i = 0; i < slots; i++) {
        struct stk_size_block *empty = NULL;
        if (!atomic_load_explicit(&line->slot[i], memory_order_relaxed) &&
            LIKELY(
                atomic_compare_exchange_strong(&line->slot[i], &empty, block)))
            return true;
    }
    return false;
}

// A block of the central stack, and some more for the thread's line.
static struct stk_size_block *refill(struct stk_size_class *cls)
{
    struct stk_size_block *block = NULL;
    pthread_mutex_lock(&cls->lock);
    if (cls->idle_count) {
        // Their descriptors were written by whoever freed them: have them
        // fetched side by side.
        for (size_t i = 0; i < cls->batch && i < cls->idle_count; i++)
            __builtin_prefetch(cls->idle[cls->idle_count - 1 - i].block, 1);
        block = cls->idle[--cls->idle_count].block;
        const uint32_t slots = atomic_load(&cls->slots);
        for (uint32_t i = 1; i < cls->batch && cls->idle_count; i++) {
            if (!give_slot(&cls->line[stk_shard], slots,
                           cls->idle[cls->idle_count - 1].block))
                break;
            cls->idle_count--;
        }
    }
    pthread_mutex_unlock(&cls->lock);
    return block;
}

static bool is_want(enum pen_status st)
{
    return st == PEN_E_LIMIT || st == PEN_E_NOMEM || st == PEN_E_DEVMEM;
}

// Nothing was left to try: say what there is and who has it.
static enum pen_status exhausted(const struct stk_size_class *cls, size_t bytes,
                                 enum pen_status st,
                                 const struct pen_error *why,
                                 struct pen_error *err)
{
    struct stk_size_pool *pool = cls->pool;
    struct stk_text map = { 0 };
    stk_size_describe(pool, &map);
    char limit[96], block[32], held[32], most[32], owners[160] = "";
    stk_format_size(cls->bytes, block, sizeof(block));
    stk_format_size(atomic_load(&pool->held), held, sizeof(held));
    stk_format_size(pool->max_bytes, most, sizeof(most));
    snprintf(limit, sizeof(limit), "max_bytes is %s (%llu bytes)", most,
             (unsigned long long)pool->max_bytes);
    stk_ledger_largest(pool->owners_ledger, PEN_MEM_BIT(pool->mem), owners,
                       sizeof(owners));
    pen_error_set(err, st, why->native, pool->owner,
                  "no block of %s for %zu bytes of %s; %s are held, %s%s%s; %s",
                  block, bytes, pen_mem_name(pool->mem), held,
                  map.data && !map.failed ? map.data : "no block of it free",
                  owners[0] ? "; largest owners" : "", owners,
                  why->text[0] ? why->text : limit);
    stk_text_finish(&map);
    return st;
}

// The thread's line has no block of the class. *grown: the driver was asked.
static enum pen_status miss(struct stk_size_pool *pool, unsigned number,
                            size_t class_bytes, size_t bytes,
                            struct stk_size_block **out, bool *grown,
                            struct pen_error *err)
{
    struct stk_size_class *cls = need_class(pool, number, class_bytes);
    if (!cls) {
        return pen_error_set(err, PEN_E_NOMEM, 0, pool->owner,
                             "no host memory for a class of blocks (%zu bytes)",
                             sizeof(*cls));
    }
    if (!stk_shard)
        stk_shard_choose();
    if ((*out = take_slot(&cls->line[stk_shard])))
        return PEN_OK;

    for (unsigned attempt = 0;; attempt++) {
        if ((*out = refill(cls)))
            return PEN_OK;
        struct pen_error why = { 0 };
        const enum pen_status st = stk_size_grow(cls, out, &why);
        *grown = st == PEN_OK;
        if (!st)
            return st;
        if (!is_want(st)) {
            if (err)
                *err = why;
            return st;
        }
        if ((*out = stk_size_steal(cls))) {
            atomic_fetch_add(&pool->steals, 1);
            return PEN_OK;
        }
        if (attempt || !stk_size_reclaim(pool, class_bytes))
            return exhausted(cls, bytes, st, &why, err);
    }
}

static void note_peak(struct stk_size_pool *pool)
{
    struct stk_size_use use;
    stk_size_measure(pool, &use);
    uint64_t peak = atomic_load(&pool->used_peak);
    while (use.used > peak &&
           !atomic_compare_exchange_weak(&pool->used_peak, &peak, use.used))
        ;
}

static enum pen_status bad_size(const struct stk_size_pool *pool, size_t bytes,
                                struct pen_error *err)
{
    if (!bytes)
        return pen_error_set(err, PEN_E_ARG, 0, pool->owner,
                             "a block of 0 bytes was asked for");
    return pen_error_set(
        err, pool->mem == PEN_MEM_CUDA_DEVICE ? PEN_E_DEVMEM : PEN_E_NOMEM, 0,
        pool->owner,
        "a block of %zu bytes was asked for; no machine has "
        "more than %zu (2^47)",
        bytes, STK_MOST_BYTES);
}

// The parts of taking a block that are seldom done.
static __attribute__((noinline)) enum pen_status
alloc_slow(struct stk_size_pool *pool, unsigned number, size_t class_bytes,
           size_t bytes, uint64_t *address, struct pen_error *err)
{
    struct stk_size_block *block = NULL;
    bool grown = false;
    PEN_TRY(miss(pool, number, class_bytes, bytes, &block, &grown, err));
    const uint64_t at = atomic_load(&block->address);
    atomic_store(&block->takes, atomic_load(&block->takes) + 1);
    atomic_store(&block->asked, bytes);
    atomic_store(&block->out, at);
    *address = at;
    if (grown)
        note_peak(pool);
    stk_size_maintain(pool);
    return PEN_OK;
}

enum pen_status stk_size_pool_alloc(struct stk_size_pool *pool, size_t bytes,
                                    uint64_t *address, struct pen_error *err)
{
    *address = 0;
    if (UNLIKELY(bytes - 1 >= STK_MOST_BYTES))
        return bad_size(pool, bytes, err);
    size_t class_bytes;
    const unsigned number = class_of(
        (bytes + pool->granule - 1) & ~(pool->granule - 1), &class_bytes);
    struct stk_size_class *cls =
        atomic_load_explicit(&pool->classes[number], memory_order_acquire);
    struct stk_size_block *block = NULL;
    if (LIKELY(cls != NULL))
        block = take_slot(&cls->line[stk_shard]);
    if (UNLIKELY(!block))
        return alloc_slow(pool, number, class_bytes, bytes, address, err);

    // The block is ours alone: what is written needs no more than an order.
    const uint64_t at =
        atomic_load_explicit(&block->address, memory_order_relaxed);
    const uint64_t takes =
        atomic_load_explicit(&block->takes, memory_order_relaxed) + 1;
    atomic_store_explicit(&block->takes, takes, memory_order_relaxed);
    atomic_store_explicit(&block->asked, bytes, memory_order_relaxed);
    atomic_store_explicit(&block->out, at, memory_order_release);
    *address = at;
    if (UNLIKELY(takes % MAINTAIN_EVERY == 0))
        stk_size_maintain(pool);
    return PEN_OK;
}

// --- registry ---------------------------------------------------------------

// All pools that are not destroyed, so that who frees what is no block can be
// told of to the pool whose block it was.
static struct {
    pthread_mutex_t lock;
    pthread_cond_t unwatched;
    struct stk_size_pool *first;
} registry = {
    .lock = PTHREAD_MUTEX_INITIALIZER,
    .unwatched = PTHREAD_COND_INITIALIZER,
};

static void enter_registry(struct stk_size_pool *pool)
{
    pthread_mutex_lock(&registry.lock);
    pool->next = registry.first;
    registry.first = pool;
    pthread_mutex_unlock(&registry.lock);
}

// False: it is not there. Waits for those who report.
static void leave_registry(struct stk_size_pool *pool)
{
    pthread_mutex_lock(&registry.lock);
    struct stk_size_pool **at = &registry.first;
    while (*at != pool)
        at = &(*at)->next;
    *at = pool->next;
    while (pool->watchers)
        pthread_cond_wait(&registry.unwatched, &registry.lock);
    pthread_mutex_unlock(&registry.lock);
}

static struct stk_size_pool *watch(const struct stk_size_pool *wanted)
{
    pthread_mutex_lock(&registry.lock);
    struct stk_size_pool *pool = registry.first;
    while (pool && pool != wanted)
        pool = pool->next;
    if (pool)
        pool->watchers++;
    pthread_mutex_unlock(&registry.lock);
    return pool;
}

static void unwatch(struct stk_size_pool *pool)
{
    pthread_mutex_lock(&registry.lock);
    pool->watchers--;
    pthread_cond_broadcast(&registry.unwatched);
    pthread_mutex_unlock(&registry.lock);
}

// Something was freed that is not a block which is out.
static __attribute__((noinline)) enum pen_status
refuse_free(uint64_t address, uint32_t mems, struct stk_span *span,
            const struct stk_size_block *block)
{
    if (!span)
        return PEN_E_ARG;
    const uint32_t bit = atomic_load(&span->mem_bit);
    const bool again = bit & mems && block && block->span == span &&
                       atomic_load(&block->address) == address;
    struct stk_size_pool *pool = watch(atomic_load(&span->pool));
    if (pool) {
        atomic_fetch_add(&pool->bad_frees, 1);
        pen_log_write(pool->log, PEN_LOG_ERROR, "pen.mem",
                      "%s: 0x%llx was freed, but %s; nothing was done",
                      pool->owner, (unsigned long long)address,
                      again           ? "is free already"
                      : !(bit & mems) ? "is of another memory type"
                                      : "no block begins there");
        unwatch(pool);
    }
    return again ? PEN_E_STATE : PEN_E_ARG;
}

// --- giving -----------------------------------------------------------------

static void free_pool(struct stk_size_pool *pool)
{
    for (unsigned i = 0; i < STK_CLASSES; i++) {
        struct stk_size_class *cls = atomic_load(&pool->classes[i]);
        if (cls)
            free_class(cls);
    }
    pthread_mutex_destroy(&pool->reclaim);
    pthread_mutex_destroy(&pool->spans_lock);
    void (*gone)(void *) = pool->gone;
    void *cookie = pool->cookie;
    free(pool);
    if (gone)
        gone(cookie);
}

static bool has_spans(struct stk_size_pool *pool)
{
    pthread_mutex_lock(&pool->spans_lock);
    const bool some = pool->spans != NULL;
    pthread_mutex_unlock(&pool->spans_lock);
    return some;
}

// A block of a destroyed pool. The pool is there as long as the block is not
// on the stack, and for whoever holds `reclaim`.
static void give_closed(struct stk_size_class *cls,
                        struct stk_size_block *block)
{
    struct stk_size_pool *pool = cls->pool;
    pthread_mutex_lock(&pool->reclaim);
    pthread_mutex_lock(&cls->lock);
    stk_size_push(cls, block, stk_size_clock());
    pthread_mutex_unlock(&cls->lock);
    stk_size_release(pool, stk_size_take_idle(cls));
    const bool last = pool->orphan && !has_spans(pool);
    pthread_mutex_unlock(&pool->reclaim);
    if (last)
        free_pool(pool);
}

// The thread's line is full, or is not to be used any more.
static __attribute__((noinline)) void give_slow(struct stk_size_class *cls,
                                                struct stk_size_block *block)
{
    if (!stk_shard)
        stk_shard_choose();
    const uint32_t slots = atomic_load(&cls->slots);
    if (!slots) {
        give_closed(cls, block);
        return;
    }
    struct stk_line *line = &cls->line[stk_shard];
    if (give_slot(line, slots, block))
        return;
    // Those that lie there longest go; this one stays at hand.
    const int64_t now = stk_size_clock();
    pthread_mutex_lock(&cls->lock);
    for (uint32_t i = 0; i < cls->batch; i++) {
        struct stk_size_block *old =
            atomic_exchange(&line->slot[slots - 1 - i], NULL);
        if (old)
            stk_size_push(cls, old, now);
    }
    if (!give_slot(line, atomic_load(&cls->slots), block))
        stk_size_push(cls, block, now);
    pthread_mutex_unlock(&cls->lock);
}

enum pen_status stk_size_pool_free(uint64_t address, uint32_t mems)
{
    if (UNLIKELY(!address))
        return PEN_OK;
    struct stk_span *span = stk_page_map_get(address);
    if (UNLIKELY(!span))
        return refuse_free(address, mems, NULL, NULL);
    const uint64_t base =
        atomic_load_explicit(&span->base, memory_order_relaxed);
    const uint64_t inverse =
        atomic_load_explicit(&span->inverse, memory_order_relaxed);
    const uint64_t index = (address - base) * inverse >> INVERSE_BITS;
    if (UNLIKELY(index >= span->room))
        return refuse_free(address, mems, span, NULL);
    struct stk_size_block *block = &span->blocks[index];
    uint64_t out = address;
    // Nobody else's block has this address in `out`: from here on it is ours,
    // and keeps its span, class and pool.
    if (UNLIKELY(!(atomic_load_explicit(&span->mem_bit, memory_order_relaxed) &
                   mems) ||
                 !atomic_compare_exchange_strong(&block->out, &out, 0)))
        return refuse_free(address, mems, span, block);

    struct stk_size_class *cls =
        atomic_load_explicit(&span->cls, memory_order_relaxed);
    const unsigned shard = stk_shard;
    // Sequentially consistent, as the exchange above: see settle().
    const uint32_t slots = atomic_load(&cls->slots);
    if (UNLIKELY(!shard || !give_slot(&cls->line[shard], slots, block)))
        give_slow(cls, block);
    return PEN_OK;
}

// --- life -------------------------------------------------------------------

static uint64_t hoard_trim(struct stk_hoard *hoard)
{
    struct stk_size_pool *pool =
        (void *)((char *)hoard - offsetof(struct stk_size_pool, hoard));
    return stk_size_reclaim(pool, UINT64_MAX);
}

static void hoard_describe(struct stk_hoard *hoard, struct stk_text *text)
{
    struct stk_size_pool *pool =
        (void *)((char *)hoard - offsetof(struct stk_size_pool, hoard));
    stk_text_addf(text, "pool `%s`: ", pool->owner);
    stk_size_describe(pool, text);
}

static enum pen_status check_params(const struct stk_size_pool_params *p,
                                    const char *owner, struct pen_error *err)
{
    const struct stk_mem_type *type = stk_mem_type(p->mem);
    if (!type || p->mem == PEN_MEM_DMABUF)
        return pen_error_set(err, PEN_E_ARG, 0, owner,
                             "memory type %d: a pool of size classes is of "
                             "HOST, HOST_PINNED or CUDA_DEVICE",
                             (int)p->mem);
    if (type->needs_device && !p->dev)
        return pen_error_set(err, PEN_E_ARG, 0, owner,
                             "a pool of %s needs a device",
                             pen_mem_name(p->mem));
    return PEN_OK;
}

enum pen_status stk_size_pool_create(const struct stk_size_pool_params *p,
                                     struct stk_size_pool **out,
                                     struct pen_error *err)
{
    *out = NULL;
    const char *owner = p->owner ? p->owner : "pool";
    PEN_TRY(check_params(p, owner, err));
    const size_t owner_bytes = strlen(owner) + 1;
    size_t bytes = 0;
    struct stk_size_pool *pool = NULL;
    if (stk_align(sizeof(*pool) + owner_bytes, alignof(struct stk_size_pool),
                  &bytes))
        pool = aligned_alloc(alignof(struct stk_size_pool), bytes);
    if (!pool)
        return pen_error_set(err, PEN_E_NOMEM, 0, owner,
                             "no host memory for a pool (%zu bytes)", bytes);
    memset(pool, 0, bytes);
    memcpy(pool->owner, owner, owner_bytes);
    pool->mem = p->mem;
    pool->granule =
        p->mem == PEN_MEM_CUDA_DEVICE ? STK_DEVICE_GRANULE : STK_GRANULE;
    pool->max_bytes = p->max_bytes ? p->max_bytes : UINT64_MAX;
    pool->decay_ns = p->decay_ns ? p->decay_ns : INT64_C(10000000000);
    pool->type = stk_mem_type(p->mem);
    struct stk_ledger *devices =
        pool->type->needs_device ? stk_device_ledger(p->dev) : NULL;
    pool->source = (struct stk_mem_source){
        .dev = p->dev,
        .ledger = p->ledger,
        .owner = pool->owner,
    };
    // The type enters HOST memory itself, the device what is its own.
    pool->ledger =
        pool->type->needs_device && p->ledger != devices ? p->ledger : NULL;
    pool->owners_ledger = devices ? devices : p->ledger;
    pool->log = p->log;
    pool->gone = p->gone;
    pool->cookie = p->cookie;
    pthread_mutex_init(&pool->reclaim, NULL);
    pthread_mutex_init(&pool->spans_lock, NULL);
    enter_registry(pool);
    if (pool->type->needs_device) {
        pool->hoard.trim = hoard_trim;
        pool->hoard.describe = hoard_describe;
        stk_device_hoard_enter(p->dev, &pool->hoard);
    }
    *out = pool;
    return PEN_OK;
}

// Wait until every block is either on a stack or out, after the lines were
// closed; then count those that are out. A block is in between only for the
// moment that stk_size_pool_free() needs: one whose `out` is seen here, after
// `slots` became 0, is freed by somebody who sees that 0.
static struct stk_size_use settle(struct stk_size_pool *pool)
{
    for (;;) {
        uint64_t blocks = 0, idle = 0;
        for (unsigned i = 0; i < STK_CLASSES; i++) {
            struct stk_size_class *cls = atomic_load(&pool->classes[i]);
            if (!cls)
                continue;
            stk_size_empty_lines(cls);
            pthread_mutex_lock(&cls->lock);
            blocks += cls->blocks;
            idle += cls->idle_count;
            pthread_mutex_unlock(&cls->lock);
        }
        // Stacks first: blocks only go from being out to a stack.
        struct stk_size_use use;
        stk_size_measure(pool, &use);
        if (idle + use.live == blocks)
            return use;
        pthread_mutex_unlock(&pool->reclaim);
        sched_yield();
        pthread_mutex_lock(&pool->reclaim);
    }
}

enum pen_status stk_size_pool_destroy(struct stk_size_pool **handle,
                                      struct pen_error *err)
{
    struct stk_size_pool *pool = *handle;
    if (!pool)
        return PEN_OK;
    *handle = NULL;
    if (pool->type->needs_device)
        stk_device_hoard_leave(pool->source.dev, &pool->hoard);
    leave_registry(pool);

    pthread_mutex_lock(&pool->reclaim);
    for (unsigned i = 0; i < STK_CLASSES; i++) {
        struct stk_size_class *cls = atomic_load(&pool->classes[i]);
        if (cls)
            atomic_store(&cls->slots, 0);
    }
    const struct stk_size_use use = settle(pool);
    for (unsigned i = 0; i < STK_CLASSES; i++) {
        struct stk_size_class *cls = atomic_load(&pool->classes[i]);
        if (cls)
            stk_size_release(pool, stk_size_take_idle(cls));
    }
    enum pen_status st = PEN_OK;
    if (use.live)
        st = pen_error_set(err, PEN_E_LEAK, 0, pool->owner,
                           "the pool was destroyed with %llu blocks out (%llu "
                           "bytes); they stay valid, and are given back when "
                           "they are freed",
                           (unsigned long long)use.live,
                           (unsigned long long)use.used);
    pool->orphan = true;
    const bool last = !has_spans(pool);
    pthread_mutex_unlock(&pool->reclaim);
    if (last)
        free_pool(pool);
    return st;
}

uint64_t stk_size_pool_trim(struct stk_size_pool *pool, uint64_t keep_bytes)
{
    if (!keep_bytes)
        return stk_size_reclaim(pool, UINT64_MAX);
    uint64_t bytes = 0;
    for (unsigned i = 0; i < STK_CLASSES; i++) {
        struct stk_size_class *cls = atomic_load(&pool->classes[i]);
        if (cls)
            bytes += stk_size_count_free(cls) * cls->bytes;
    }
    return bytes > keep_bytes ? stk_size_reclaim(pool, bytes - keep_bytes) : 0;
}

void stk_size_pool_stats(struct stk_size_pool *pool, struct pen_pool_stats *out)
{
    note_peak(pool);
    struct stk_size_use use;
    stk_size_measure(pool, &use);
    *out = (struct pen_pool_stats){
        .held_bytes = atomic_load(&pool->held),
        .held_peak = atomic_load(&pool->held_peak),
        .used_bytes = use.used,
        .used_peak = atomic_load(&pool->used_peak),
        .waste_bytes = use.block_bytes - use.used,
        .allocs = use.takes,
        .frees = use.takes - use.live,
        .driver_allocs = atomic_load(&pool->driver_allocs),
        .driver_frees = atomic_load(&pool->driver_frees),
        .bad_frees = atomic_load(&pool->bad_frees),
        .steals = atomic_load(&pool->steals),
        .live = use.live,
    };
}
