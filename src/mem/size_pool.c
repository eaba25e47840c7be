// Size-class pools: taking and giving blocks, and the life of a pool. How it
// is made and which locks there are: size_pool_priv.h.

#include <limits.h>
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
    fresh->slots = (uint32_t)slots;
    fresh->batch = slots > 2 ? (uint32_t)slots * 2 / 3 : 1;
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

// --- lines ------------------------------------------------------------------

static inline void leave_line(struct stk_line *line)
{
    atomic_store_explicit(&line->busy, 0, memory_order_release);
}

// The owner begins to use a line; false if it may not.
static inline bool enter_line(struct stk_line *line)
{
    if (LIKELY(stk_shard_asymmetric)) {
        atomic_store_explicit(&line->busy, 1, memory_order_relaxed);
        atomic_signal_fence(memory_order_seq_cst);
    } else {
        atomic_exchange(&line->busy, 1);
    }
    if (LIKELY(!atomic_load(&line->stop)))
        return true;
    leave_line(line);
    return false;
}

// The block that was put there last, or none. For who may use the line.
static inline struct stk_free pop(struct stk_line *line)
{
    const uint32_t count =
        atomic_load_explicit(&line->count, memory_order_relaxed);
    if (UNLIKELY(!count))
        return (struct stk_free){ 0 };
    const struct stk_free block = line->block[count - 1];
    atomic_store_explicit(&line->count, count - 1, memory_order_relaxed);
    if (UNLIKELY(count - 1 < line->low))
        line->low = count - 1;
    return block;
}

static inline bool put(struct stk_line *line, uint32_t slots,
                       struct stk_free block)
{
    const uint32_t count =
        atomic_load_explicit(&line->count, memory_order_relaxed);
    if (UNLIKELY(count >= slots))
        return false;
    line->block[count] = block;
    atomic_store_explicit(&line->count, count + 1, memory_order_relaxed);
    return true;
}

// --- taking -----------------------------------------------------------------

// A free block that nobody else can reach is out from now on.
static inline void hand_out(struct stk_free block, size_t bytes)
{
    atomic_store_explicit(&block.block->asked, bytes, memory_order_relaxed);
    atomic_store_explicit(&block.block->out, block.address,
                          memory_order_relaxed);
}

// A block of the thread's own line, if it was stopped before, or of the central
// stack, and then some more for the line. Class lock.
static struct stk_free refill(struct stk_size_class *cls)
{
    const unsigned number = stk_shard;
    struct stk_free block = { 0 };
    if (number)
        block = pop(&cls->line[number]);
    if (block.block || !cls->idle_count)
        return block;
    // Half of what there is for others. Their descriptors were written by
    // whoever freed them: have them fetched side by side.
    size_t more = cls->idle_count / 2;
    more = more < cls->batch ? more : cls->batch - 1;
    for (size_t i = 0; i <= more; i++)
        __builtin_prefetch(cls->idle[cls->idle_count - 1 - i].free.block, 1);
    block = cls->idle[--cls->idle_count].free;
    for (size_t i = 0; number && i < more; i++) {
        if (!put(&cls->line[number], cls->slots,
                 cls->idle[cls->idle_count - 1].free))
            break;
        cls->idle_count--;
    }
    return block;
}

// A block of the stack, where `lines` also out of others' lines.
static struct stk_free take_central(struct stk_size_class *cls, bool lines)
{
    pthread_mutex_lock(&cls->lock);
    if (lines && !cls->idle_count)
        atomic_fetch_add(&cls->pool->steals, stk_size_empty_lines(cls));
    const struct stk_free block = refill(cls);
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

// A block for who has none in his line: nobody else can reach it. *grown: the
// driver was asked.
static enum pen_status miss(struct stk_size_class *cls, size_t bytes,
                            struct stk_free *out, bool *grown,
                            struct pen_error *err)
{
    for (unsigned attempt = 0;; attempt++) {
        *out = take_central(cls, false);
        if (out->block)
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
        *out = take_central(cls, true);
        if (out->block)
            return PEN_OK;
        if (attempt || !stk_size_reclaim(cls->pool, cls->bytes))
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
    struct stk_size_class *cls = need_class(pool, number, class_bytes);
    if (!cls) {
        return pen_error_set(err, PEN_E_NOMEM, 0, pool->owner,
                             "no host memory for a class of blocks (%zu bytes)",
                             sizeof(*cls));
    }
    if (!stk_shard)
        stk_shard_choose();
    struct stk_free block;
    bool grown = false;
    PEN_TRY(miss(cls, bytes, &block, &grown, err));
    hand_out(block, bytes);
    *address = block.address;
    atomic_fetch_add_explicit(&cls->takes, 1, memory_order_relaxed);
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
    const unsigned shard = stk_shard;
    if (UNLIKELY(!cls || !shard))
        return alloc_slow(pool, number, class_bytes, bytes, address, err);

    struct stk_line *line = &cls->line[shard];
    struct stk_free block = { 0 };
    if (LIKELY(enter_line(line))) {
        block = pop(line);
        leave_line(line);
    }
    if (UNLIKELY(!block.block))
        return alloc_slow(pool, number, class_bytes, bytes, address, err);
    *address = block.address;
    hand_out(block, bytes);
    const uint64_t takes =
        atomic_load_explicit(&line->takes, memory_order_relaxed) + 1;
    atomic_store_explicit(&line->takes, takes, memory_order_relaxed);
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
                       (atomic_load(&block->out) & ~STK_FREE) == address;
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
static void give_closed(struct stk_size_class *cls, struct stk_free block)
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

// The thread's line is full, or is not to be used now, or there is none.
static __attribute__((noinline)) void give_slow(struct stk_size_class *cls,
                                                struct stk_free block)
{
    if (!stk_shard)
        stk_shard_choose();
    const int64_t now = stk_size_clock();
    struct stk_line *line = &cls->line[stk_shard];
    pthread_mutex_lock(&cls->lock);
    if (atomic_load(&cls->closed)) {
        pthread_mutex_unlock(&cls->lock);
        give_closed(cls, block);
        return;
    }
    if (stk_shard && !put(line, cls->slots, block)) {
        // Those that lie there longest go; this one stays at hand.
        stk_size_drain(cls, line, cls->batch, now);
        put(line, cls->slots, block);
    } else if (!stk_shard) {
        stk_size_push(cls, block, now);
    }
    pthread_mutex_unlock(&cls->lock);
}

// Which block of a slab begins at an address, if one does.
static inline uint64_t index_in(struct stk_span *span, uint64_t address)
{
    const uint64_t base =
        atomic_load_explicit(&span->base, memory_order_relaxed);
    const uint64_t inverse =
        atomic_load_explicit(&span->inverse, memory_order_relaxed);
    return (address - base) * inverse >> INVERSE_BITS;
}

enum pen_status stk_size_pool_free(uint64_t address, uint32_t mems)
{
    if (UNLIKELY(!address))
        return PEN_OK;
    char *found = stk_page_map_get(address);
    if (UNLIKELY(!found))
        return refuse_free(address, mems, NULL, NULL);
    uint64_t index = 0;
    struct stk_span *span = (void *)(found - STK_SPAN_LARGE);
    if (!((uintptr_t)found & STK_SPAN_LARGE)) {
        span = (void *)found;
        index = index_in(span, address);
    }
    if (UNLIKELY(index >= span->room))
        return refuse_free(address, mems, span, NULL);
    struct stk_size_block *block = &span->blocks[index];
    uint64_t out = address;
    // Nobody else's block has this address bare. From here on it is ours, and
    // keeps its span, class and pool.
    if (UNLIKELY(!(atomic_load_explicit(&span->mem_bit, memory_order_relaxed) &
                   mems) ||
                 !atomic_compare_exchange_strong(&block->out, &out,
                                                 address | STK_FREE)))
        return refuse_free(address, mems, span, block);

    struct stk_size_class *cls =
        atomic_load_explicit(&span->cls, memory_order_relaxed);
    const struct stk_free freed = { block, address };
    const unsigned shard = stk_shard;
    struct stk_line *line = &cls->line[shard];
    if (LIKELY(shard && enter_line(line))) {
        const bool done = put(line, cls->slots, freed);
        leave_line(line);
        if (LIKELY(done))
            return PEN_OK;
    }
    give_slow(cls, freed);
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
    stk_shard_init();
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

// Stop all lines for good and move what is in them to the stacks. Whoever frees
// a block from now on sees that, and goes by give_closed(), which needs nothing
// of the pool but `reclaim` once the block is on its stack.
static void close_lines(struct stk_size_pool *pool)
{
    for (unsigned i = 0; i < STK_CLASSES; i++) {
        struct stk_size_class *cls = atomic_load(&pool->classes[i]);
        if (!cls)
            continue;
        pthread_mutex_lock(&cls->lock);
        atomic_store(&cls->closed, true);
        for (unsigned j = 0; j <= STK_SHARDS; j++)
            atomic_store(&cls->line[j].stop, 1);
        stk_size_empty_lines(cls);
        pthread_mutex_unlock(&cls->lock);
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
    close_lines(pool);
    struct stk_size_use use;
    stk_size_measure(pool, &use);
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
    uint64_t takes = 0;
    for (unsigned i = 0; i < STK_CLASSES; i++) {
        struct stk_size_class *cls = atomic_load(&pool->classes[i]);
        takes += cls ? stk_size_count_takes(cls) : 0;
    }
    *out = (struct pen_pool_stats){
        .held_bytes = atomic_load(&pool->held),
        .held_peak = atomic_load(&pool->held_peak),
        .used_bytes = use.used,
        .used_peak = atomic_load(&pool->used_peak),
        .waste_bytes = use.block_bytes - use.used,
        .allocs = takes,
        .frees = takes - use.live,
        .driver_allocs = atomic_load(&pool->driver_allocs),
        .driver_frees = atomic_load(&pool->driver_frees),
        .bad_frees = atomic_load(&pool->bad_frees),
        .steals = atomic_load(&pool->steals),
        .live = use.live,
    };
}
