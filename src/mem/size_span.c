// Spans: what the driver gives, cut into blocks, and their descriptors.

#include <stdlib.h>
#include <string.h>

#include "page_map.h"
#include "size_pool_priv.h"

enum { INVERSE_BITS = 42, MOST_SLAB_SHIFT = 4 };
#define SLAB_BYTES ((size_t)64 << 10)  // the first one of a class

// --- descriptors ------------------------------------------------------------

// Kept for ever, and used again: see size_pool_priv.h.
static struct {
    pthread_mutex_t lock;
    struct stk_span *first;
} spare = { .lock = PTHREAD_MUTEX_INITIALIZER };

static void put_spare(struct stk_span *span)
{
    pthread_mutex_lock(&spare.lock);
    span->chain = spare.first;
    spare.first = span;
    pthread_mutex_unlock(&spare.lock);
}

// One that fits, but does not waste more than half.
static struct stk_span *get_spare(uint32_t count)
{
    pthread_mutex_lock(&spare.lock);
    struct stk_span **at = &spare.first, *span = NULL;
    while (*at && ((*at)->room < count || (*at)->room / 2 > count))
        at = &(*at)->chain;
    span = *at;
    if (span)
        *at = span->chain;
    pthread_mutex_unlock(&spare.lock);
    return span;
}

static struct stk_span *new_span(uint32_t count)
{
    struct stk_span *span = get_spare(count);
    if (span)
        return span;
    const size_t align = alignof(struct stk_span);
    size_t bytes =
        sizeof(*span) + (size_t)count * sizeof(struct stk_size_block);
    bytes = (bytes + align - 1) & ~(align - 1);
    span = aligned_alloc(align, bytes);
    if (!span)
        return NULL;
    memset(span, 0, bytes);
    span->room = count;
    return span;
}

// --- making -----------------------------------------------------------------

// How a span is cut: `count` blocks, and what to ask the driver for.
struct cut {
    uint32_t count;
    size_t area;   // bytes of the blocks, in whole pages for a slab
    size_t bytes;  // with what it takes to begin on a page
};

static struct cut cut_for(const struct stk_size_class *cls, uint32_t count)
{
    struct cut cut = { .count = count };
    cut.area = cut.bytes = cls->bytes * count;
    if (cls->bytes >= STK_LARGE_BYTES)
        return cut;
    // All pages of a slab are in the map, so they must be the slab's alone.
    // The driver cuts small memory of both kinds out of larger pieces, so that
    // it may begin within a page; malloc's begins on one (type.c).
    cut.area = (cut.area + STK_PAGE_BYTES - 1) & ~(size_t)(STK_PAGE_BYTES - 1);
    cut.bytes = cut.area;
    if (cls->pool->mem != PEN_MEM_HOST)
        cut.bytes += STK_PAGE_BYTES - cls->pool->granule;
    return cut;
}

// Count the bytes as held if the pool's limit allows it.
static bool reserve(struct stk_size_pool *pool, size_t bytes)
{
    uint64_t held = atomic_load(&pool->held);
    do {
        if (bytes > pool->max_bytes || held > pool->max_bytes - bytes)
            return false;
    } while (!atomic_compare_exchange_weak(&pool->held, &held, held + bytes));
    held += bytes;
    uint64_t peak = atomic_load(&pool->held_peak);
    while (held > peak &&
           !atomic_compare_exchange_weak(&pool->held_peak, &peak, held))
        ;
    return true;
}

// The largest cut that the limit has room for. Slabs grow with their number,
// from 64 KiB to 1 MiB: a class that is little used holds little.
static bool choose_cut(struct stk_size_class *cls, struct cut *out)
{
    uint32_t count = 1;
    if (cls->bytes < STK_LARGE_BYTES) {
        pthread_mutex_lock(&cls->lock);
        const size_t spans = cls->spans;
        pthread_mutex_unlock(&cls->lock);
        const size_t shift = spans < MOST_SLAB_SHIFT ? spans : MOST_SLAB_SHIFT;
        count = (uint32_t)((SLAB_BYTES << shift) / cls->bytes);
    }
    for (; count; count /= 2) {
        *out = cut_for(cls, count);
        if (reserve(cls->pool, out->bytes))
            return true;
    }
    return false;
}

// Room on the stack for blocks that are to come, so that no push can fail.
static bool make_room(struct stk_size_class *cls, uint32_t count)
{
    pthread_mutex_lock(&cls->lock);
    bool ok = true;
    const size_t need = cls->blocks + count;
    if (need > cls->idle_room) {
        size_t room = cls->idle_room ? 2 * cls->idle_room : 16;
        room = room < need ? need : room;
        struct stk_idle_block *idle = realloc(cls->idle, room * sizeof(*idle));
        ok = idle != NULL;
        if (ok) {
            cls->idle = idle;
            cls->idle_room = room;
        }
    }
    if (ok) {
        cls->blocks += count;
        cls->spans++;
    }
    pthread_mutex_unlock(&cls->lock);
    return ok;
}

static void forget_room(struct stk_size_class *cls, uint32_t count)
{
    pthread_mutex_lock(&cls->lock);
    cls->blocks -= count;
    cls->spans--;
    pthread_mutex_unlock(&cls->lock);
}

// Describe the blocks; nobody else can see them yet.
static void fill_in(struct stk_span *span, struct stk_size_class *cls,
                    const struct cut *cut)
{
    uint64_t base = span->memory.address;
    if (cls->bytes < STK_LARGE_BYTES)
        base = (base + STK_PAGE_BYTES - 1) & ~(STK_PAGE_BYTES - 1);
    const uint64_t one = (uint64_t)1 << INVERSE_BITS;
    // Rounded up; exact for offsets of less than 2^42 / bytes.
    const uint64_t inverse =
        cls->bytes < STK_LARGE_BYTES ? (one + cls->bytes - 1) / cls->bytes : 0;
    atomic_store_explicit(&span->base, base, memory_order_relaxed);
    atomic_store_explicit(&span->inverse, inverse, memory_order_relaxed);
    atomic_store_explicit(&span->cls, cls, memory_order_relaxed);
    atomic_store_explicit(&span->pool, cls->pool, memory_order_relaxed);
    atomic_store_explicit(&span->mem_bit, PEN_MEM_BIT(cls->pool->mem),
                          memory_order_relaxed);
    span->count = cut->count;
    span->bytes = cut->bytes;
    // Of a large block only the page that it begins in.
    span->pages = cls->bytes < STK_LARGE_BYTES ? cut->area / STK_PAGE_BYTES : 1;
    for (uint32_t i = 0; i < cut->count; i++) {
        struct stk_size_block *block = &span->blocks[i];
        atomic_store_explicit(&block->out,
                              (base + (uint64_t)i * cls->bytes) | STK_FREE,
                              memory_order_relaxed);
        block->span = span;
    }
}

static void list_span(struct stk_size_pool *pool, struct stk_span *span)
{
    pthread_mutex_lock(&pool->spans_lock);
    span->prev = NULL;
    span->next = pool->spans;
    if (span->next)
        span->next->prev = span;
    pool->spans = span;
    pthread_mutex_unlock(&pool->spans_lock);
}

static void unlist_span(struct stk_size_pool *pool, struct stk_span *span)
{
    pthread_mutex_lock(&pool->spans_lock);
    if (span->prev)
        span->prev->next = span->next;
    else
        pool->spans = span->next;
    if (span->next)
        span->next->prev = span->prev;
    pthread_mutex_unlock(&pool->spans_lock);
}

static enum pen_status no_room(const struct stk_size_pool *pool, size_t bytes,
                               struct pen_error *err)
{
    return pen_error_set(err, PEN_E_NOMEM, 0, pool->owner,
                         "no host memory for the bookkeeping of %zu bytes",
                         bytes);
}

static enum pen_status bad_address(const struct stk_size_pool *pool,
                                   uint64_t address, const char *want,
                                   struct pen_error *err)
{
    return pen_error_set(err, PEN_E_UNSUPPORTED, 0, pool->owner,
                         "%s memory was got at 0x%llx; a pool needs %s",
                         pen_mem_name(pool->mem), (unsigned long long)address,
                         want);
}

// Enter a filled span in the map.
static enum pen_status map_span(const struct stk_size_pool *pool,
                                struct stk_span *span, const struct cut *cut,
                                struct pen_error *err)
{
    const uint64_t base = atomic_load(&span->base);
    const uint64_t end = span->memory.address + cut->bytes;
    if (end > STK_PAGE_ADDRESSES || end < base)
        return bad_address(pool, base, "addresses below 2^49", err);
    if (base + cut->area > end)
        return bad_address(pool, base, "one that is a multiple of 4096", err);
    // A large block begins its span: the mark saves looking for which it is.
    void *value = span;
    if (!atomic_load(&span->inverse))
        value = (char *)span + STK_SPAN_LARGE;
    if (!stk_page_map_set(base, span->pages, value))
        return no_room(pool, cut->bytes, err);
    return PEN_OK;
}

// Get the memory and enter it where it will be looked for.
static enum pen_status fill_span(struct stk_size_class *cls,
                                 struct stk_span *span, const struct cut *cut,
                                 struct pen_error *err)
{
    struct stk_size_pool *pool = cls->pool;
    PEN_TRY(pool->type->alloc(&pool->source, cut->bytes, &span->memory, err));
    fill_in(span, cls, cut);
    const enum pen_status st = map_span(pool, span, cut, err);
    if (st) {
        pool->type->free(&pool->source, &span->memory);
        return st;
    }
    stk_ledger_add(pool->ledger, (enum stk_res)pool->mem, span->memory.address,
                   cut->bytes, pool->owner, PEN_HERE);
    atomic_fetch_add(&pool->driver_allocs, 1);
    return PEN_OK;
}

enum pen_status stk_size_grow(struct stk_size_class *cls,
                              struct stk_free *first, struct pen_error *err)
{
    struct stk_size_pool *pool = cls->pool;
    struct cut cut;
    if (!choose_cut(cls, &cut))
        return PEN_E_LIMIT;  // told by the caller, who knows what was tried

    struct stk_span *span = new_span(cut.count);
    enum pen_status st = PEN_E_NOMEM;
    if (!span || !make_room(cls, cut.count)) {
        no_room(pool, cut.bytes, err);
        goto fail;
    }
    st = fill_span(cls, span, &cut, err);
    if (st) {
        forget_room(cls, cut.count);
        goto fail;
    }
    list_span(pool, span);
    const uint64_t base = atomic_load(&span->base);
    *first = (struct stk_free){ &span->blocks[0], base };
    if (cut.count > 1) {
        const int64_t now = stk_size_clock();
        pthread_mutex_lock(&cls->lock);
        for (uint32_t i = cut.count - 1; i; i--)
            stk_size_push(
                cls,
                (struct stk_free){ &span->blocks[i], base + i * cls->bytes },
                now);
        pthread_mutex_unlock(&cls->lock);
    }
    return PEN_OK;

fail:
    if (span)
        put_spare(span);
    atomic_fetch_sub(&pool->held, cut.bytes);
    return st;
}

// --- giving back ------------------------------------------------------------

uint64_t stk_size_release(struct stk_size_pool *pool, struct stk_span *chain)
{
    uint64_t bytes = 0;
    while (chain) {
        struct stk_span *span = chain;
        chain = span->chain;
        struct stk_size_class *cls = atomic_load(&span->cls);
        // Out of the map first: the address may be somebody's at once.
        stk_page_map_set(atomic_load(&span->base), span->pages, NULL);
        unlist_span(pool, span);
        forget_room(cls, span->count);
        stk_ledger_remove(pool->ledger, (enum stk_res)pool->mem,
                          span->memory.address, span->bytes);
        pool->type->free(&pool->source, &span->memory);
        atomic_fetch_add(&pool->driver_frees, 1);
        atomic_fetch_sub(&pool->held, span->bytes);
        bytes += span->bytes;
        put_spare(span);
    }
    return bytes;
}
