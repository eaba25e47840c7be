#include "pool.h"

#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#include "../base/str.h"
#include "type.h"

struct stk_pool {
    const struct stk_mem_type *type;
    struct stk_mem_source source;
    _Atomic size_t block_bytes;
    struct stk_buffer *buffers;  // `blocks` of them
    uint32_t blocks;

    pthread_mutex_t lock;
    struct stk_buffer *first, *last;  // free ones, in order of their return
    uint32_t in_use, max_in_use;
    uint64_t takes, waits, grown;
    bool closed;

    void (*returned)(void *cookie);
    void *cookie;
    uint32_t calling;  // threads inside `returned`
    pthread_cond_t quiet;
    char owner[];
};

// --- blocks -----------------------------------------------------------------

static void drop_memory(struct stk_pool *pool, struct stk_buffer *buffer)
{
    pool->type->free(&pool->source, &buffer->block);
    buffer->cleared = false;
}

// Give a buffer memory of `bytes`, instead of what it has.
static enum pen_status fill(struct stk_pool *pool, struct stk_buffer *buffer,
                            size_t bytes, struct pen_error *err)
{
    drop_memory(pool, buffer);
    struct stk_block block;
    struct pen_error inner = { 0 };
    const enum pen_status st =
        pool->type->alloc(&pool->source, bytes, &block, &inner);
    if (st) {
        char each[32], all[32];
        size_t total = 0;
        if (!stk_mul(bytes, pool->blocks, &total))
            total = SIZE_MAX;
        stk_format_size(bytes, each, sizeof(each));
        stk_format_size(total, all, sizeof(all));
        return pen_error_set(err, st, inner.native, pool->owner,
                             "block %u of %u (%s of %s each, %s in all): %s",
                             (unsigned)(buffer - pool->buffers) + 1,
                             pool->blocks, each, pen_mem_name(pool->type->type),
                             all, inner.text);
    }
    buffer->block = block;
    return PEN_OK;
}

// --- the free list; needs the lock ------------------------------------------

static void append(struct stk_pool *pool, struct stk_buffer *buffer)
{
    buffer->next = NULL;
    if (pool->last)
        pool->last->next = buffer;
    else
        pool->first = buffer;
    pool->last = buffer;
}

// Take out the one behind `before` (NULL: the first).
static struct stk_buffer *unlink_after(struct stk_pool *pool,
                                       struct stk_buffer *before)
{
    struct stk_buffer **link = before ? &before->next : &pool->first;
    struct stk_buffer *buffer = *link;
    *link = buffer->next;
    if (pool->last == buffer)
        pool->last = before;
    buffer->next = NULL;
    return buffer;
}

// Tell who waits for a buffer. Needs the lock, and gives it back before the
// call.
static void notify_and_unlock(struct stk_pool *pool)
{
    if (!pool->returned || pool->closed) {
        pthread_mutex_unlock(&pool->lock);
        return;
    }
    pool->calling++;
    pthread_mutex_unlock(&pool->lock);
    pool->returned(pool->cookie);
    pthread_mutex_lock(&pool->lock);
    if (!--pool->calling)
        pthread_cond_broadcast(&pool->quiet);
    pthread_mutex_unlock(&pool->lock);
}

// --- life -------------------------------------------------------------------

static void free_storage(struct stk_pool *pool)
{
    for (uint32_t i = 0; i < pool->blocks; i++)
        stk_buffer_finish(&pool->buffers[i]);
    pthread_cond_destroy(&pool->quiet);
    pthread_mutex_destroy(&pool->lock);
    free(pool->buffers);
    free(pool);
}

static enum pen_status check_params(const struct stk_pool_params *p,
                                    const struct stk_mem_type *type,
                                    struct pen_error *err)
{
    const char *owner = p->owner ? p->owner : "pool";
    if (!type) {
        return pen_error_set(err, PEN_E_ARG, 0, owner,
                             "no pool can be made of memory type %s (%d)",
                             pen_mem_name(p->mem), (int)p->mem);
    }
    if (!p->block_bytes || !p->blocks) {
        return pen_error_set(err, PEN_E_ARG, 0, owner,
                             "a pool of %u blocks of %zu bytes is none",
                             p->blocks, p->block_bytes);
    }
    if (type->needs_device && !p->dev) {
        return pen_error_set(err, PEN_E_ARG, 0, owner,
                             "a pool of %s needs a device",
                             pen_mem_name(p->mem));
    }
    return PEN_OK;
}

static enum pen_status no_bookkeeping(const char *owner, uint32_t blocks,
                                      struct pen_error *err)
{
    return pen_error_set(err, PEN_E_NOMEM, 0, owner,
                         "no host memory for the bookkeeping of %u blocks "
                         "(%zu bytes each)",
                         blocks, sizeof(struct stk_buffer));
}

enum pen_status stk_pool_create(const struct stk_pool_params *p,
                                struct stk_pool **out, struct pen_error *err)
{
    *out = NULL;
    const struct stk_mem_type *type = stk_mem_type(p->mem);
    PEN_TRY(check_params(p, type, err));

    const char *owner = p->owner ? p->owner : "pool";
    const size_t owner_bytes = strlen(owner) + 1;
    struct stk_pool *pool = calloc(1, sizeof(*pool) + owner_bytes);
    if (!pool)
        return no_bookkeeping(owner, p->blocks, err);
    pool->buffers = calloc(p->blocks, sizeof(*pool->buffers));
    if (!pool->buffers) {
        free(pool);
        return no_bookkeeping(owner, p->blocks, err);
    }
    memcpy(pool->owner, owner, owner_bytes);
    pool->type = type;
    pool->source = (struct stk_mem_source){
        .dev = p->dev,
        .ledger = p->ledger,
        .owner = pool->owner,
        .reserve = p->reserve_bytes,
        .kind = p->kind,
    };
    atomic_init(&pool->block_bytes, p->block_bytes);
    pool->blocks = p->blocks;
    pool->returned = p->returned;
    pool->cookie = p->cookie;
    pthread_mutex_init(&pool->lock, NULL);
    pthread_cond_init(&pool->quiet, NULL);
    for (uint32_t i = 0; i < p->blocks; i++) {
        stk_buffer_init(&pool->buffers[i], p->mem);
        pool->buffers[i].pool = pool;
    }

    for (uint32_t i = 0; i < p->blocks; i++) {
        const enum pen_status st =
            fill(pool, &pool->buffers[i], p->block_bytes, err);
        if (st) {
            while (i--)
                drop_memory(pool, &pool->buffers[i]);
            free_storage(pool);
            return st;
        }
        append(pool, &pool->buffers[i]);
    }
    *out = pool;
    return PEN_OK;
}

// One buffer less keeps the storage of a closed pool.
static void release_use(struct stk_pool *pool)
{
    pthread_mutex_lock(&pool->lock);
    const bool last = --pool->in_use == 0;
    pthread_mutex_unlock(&pool->lock);
    if (last)
        free_storage(pool);
}

void stk_pool_destroy(struct stk_pool **handle)
{
    struct stk_pool *pool = *handle;
    if (!pool)
        return;
    *handle = NULL;

    pthread_mutex_lock(&pool->lock);
    pool->closed = true;
    pool->in_use++;  // ours: keeps the storage until the free blocks are gone
    while (pool->calling)
        pthread_cond_wait(&pool->quiet, &pool->lock);
    struct stk_buffer *buffer = pool->first;
    pool->first = pool->last = NULL;
    pthread_mutex_unlock(&pool->lock);

    for (; buffer; buffer = buffer->next) {
        stk_buffer_settle(buffer);
        drop_memory(pool, buffer);
    }
    release_use(pool);
}

static void release_late(struct stk_buffer *buffer)
{
    struct stk_pool *pool = buffer->pool;
    drop_memory(pool, buffer);
    release_use(pool);
}

void stk_pool_give(struct stk_buffer *buffer)
{
    struct stk_pool *pool = buffer->pool;
    pthread_mutex_lock(&pool->lock);
    if (pool->closed) {
        pthread_mutex_unlock(&pool->lock);
        stk_buffer_when_unused(buffer, release_late);
        return;
    }
    append(pool, buffer);
    pool->in_use--;
    notify_and_unlock(pool);
}

// --- use --------------------------------------------------------------------

// Choose a free buffer; NULL if none can be given now. Needs the lock.
static struct stk_buffer *choose(struct stk_pool *pool, size_t block_bytes,
                                 const struct stk_stream *stream,
                                 struct stk_point *wait)
{
    struct stk_buffer *before = NULL;
    for (struct stk_buffer *b = pool->first; b; before = b, b = b->next) {
        // Memory of the old size is given back, which is done by the host.
        struct stk_point point;
        const bool fits = b->block.bytes >= block_bytes;
        if (stream && fits)
            return unlink_after(pool, before);
        if (fits ? stk_buffer_host_ready(b, PEN_WRITE, &point)
                 : stk_buffer_unused(b, STK_WAIT_GROW, &point))
            return unlink_after(pool, before);
        if (!wait->stream)
            *wait = point;
    }
    return NULL;
}

// Clear fresh device memory. PEN_AGAIN with *wait when the stream has no place
// for the point that stands for it.
static enum pen_status clear(struct stk_buffer *buffer,
                             struct stk_stream *stream, struct stk_point *wait,
                             struct pen_error *err)
{
    if (!stk_stream_has_room(stream, 0, wait))
        return PEN_AGAIN;
    PEN_TRY(stk_stream_fill(stream, buffer->block.address, 0,
                            buffer->block.bytes, err));

    struct stk_point point;
    enum pen_status st = PEN_AGAIN;
    while ((st = stk_stream_record(stream, &point, err)) == PEN_AGAIN) {
        // Others took the last place meanwhile. The fill is queued and needs
        // its point: rather slow, once, than wrong.
        PEN_TRY(stk_point_wait(point, STK_WAIT_EVENT_REUSE, err));
    }
    PEN_TRY(st);
    stk_buffer_used(buffer, point, PEN_WRITE);
    buffer->cleared = true;
    return PEN_OK;
}

static enum pen_status check_device(const struct stk_pool *pool,
                                    struct pen_error *err)
{
    if (!pool->type->needs_device || !stk_device_lost(pool->source.dev))
        return PEN_OK;
    return pen_error_set(err, PEN_E_LOST, 0, pool->owner,
                         "no buffer is given: the device was lost by an "
                         "earlier error");
}

// Make a buffer that was chosen fit for its user; what fails may be tried
// again.
static enum pen_status prepare(struct stk_pool *pool, struct stk_buffer *buffer,
                               size_t block_bytes, struct stk_stream *stream,
                               struct stk_point *wait, struct pen_error *err)
{
    if (buffer->block.bytes < block_bytes)
        PEN_TRY(fill(pool, buffer, block_bytes, err));
    if (!stream)
        return PEN_OK;
    if (pool->type->type == PEN_MEM_CUDA_DEVICE && !buffer->cleared)
        PEN_TRY(clear(buffer, stream, wait, err));
    return stk_buffer_stream_ready(buffer, stream, PEN_WRITE, err);
}

enum pen_status stk_pool_take(struct stk_pool *pool, struct stk_stream *stream,
                              struct stk_buffer **out, struct stk_point *wait,
                              struct pen_error *err)
{
    *out = NULL;
    *wait = (struct stk_point){ 0 };
    PEN_TRY(check_device(pool, err));

    pthread_mutex_lock(&pool->lock);
    const size_t block_bytes = atomic_load(&pool->block_bytes);
    struct stk_buffer *buffer = choose(pool, block_bytes, stream, wait);
    if (!buffer) {
        pool->waits++;
        pthread_mutex_unlock(&pool->lock);
        return PEN_AGAIN;
    }
    *wait = (struct stk_point){ 0 };
    pool->in_use++;
    pthread_mutex_unlock(&pool->lock);

    const bool stale = buffer->block.bytes < block_bytes;
    const enum pen_status st =
        prepare(pool, buffer, block_bytes, stream, wait, err);

    pthread_mutex_lock(&pool->lock);
    if (stale && buffer->block.bytes >= block_bytes)
        pool->grown++;
    if (st) {
        append(pool, buffer);
        pool->in_use--;
        pool->waits += st == PEN_AGAIN;
        // Who waits for a point is not told that a buffer came back: it would
        // ask again at once, and be told again.
        if (st == PEN_AGAIN)
            pthread_mutex_unlock(&pool->lock);
        else
            notify_and_unlock(pool);
        return st;
    }
    pool->takes++;
    if (pool->in_use > pool->max_in_use)
        pool->max_in_use = pool->in_use;
    pthread_mutex_unlock(&pool->lock);

    atomic_store_explicit(&buffer->refs, 1, memory_order_relaxed);
    *out = buffer;
    return PEN_OK;
}

enum pen_status stk_pool_grow(struct stk_pool *pool, size_t block_bytes,
                              struct pen_error *err)
{
    pthread_mutex_lock(&pool->lock);
    if (block_bytes <= atomic_load(&pool->block_bytes)) {
        pthread_mutex_unlock(&pool->lock);
        return PEN_OK;
    }
    atomic_store(&pool->block_bytes, block_bytes);
    struct stk_buffer *list = NULL, *before = NULL, *b = pool->first;
    while (b) {
        struct stk_buffer *next = b->next;
        if (stk_buffer_unused(b, STK_WAIT_GROW, NULL)) {
            unlink_after(pool, before);
            b->next = list;
            list = b;
        } else {
            before = b;
        }
        b = next;
    }
    pthread_mutex_unlock(&pool->lock);

    // All old memory first: the new blocks may need its place.
    for (b = list; b; b = b->next)
        drop_memory(pool, b);
    enum pen_status st = PEN_OK;
    uint64_t grown = 0;
    for (b = list; b && !st; b = b->next) {
        st = fill(pool, b, block_bytes, err);
        grown += !st;
    }

    pthread_mutex_lock(&pool->lock);
    pool->grown += grown;
    while (list) {
        b = list;
        list = b->next;
        append(pool, b);
    }
    notify_and_unlock(pool);
    return st;
}

void stk_pool_stats(struct stk_pool *pool, struct stk_pool_stats *out)
{
    pthread_mutex_lock(&pool->lock);
    *out = (struct stk_pool_stats){
        .block_bytes = atomic_load(&pool->block_bytes),
        .blocks = pool->blocks,
        .in_use = pool->in_use,
        .max_in_use = pool->max_in_use,
        .takes = pool->takes,
        .waits = pool->waits,
        .grown = pool->grown,
    };
    pthread_mutex_unlock(&pool->lock);
}

size_t stk_pool_block_bytes(const struct stk_pool *pool)
{
    return atomic_load(&pool->block_bytes);
}

struct pen_device *stk_pool_device(const struct stk_pool *pool)
{
    return pool->source.dev;
}
