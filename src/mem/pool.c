// Planned pools.
//
// Each block has a place: one word beside its reference count.
//
//   FREE     nobody has the block
//   WAITING  somebody found none free, this one neither
//   ORPHAN   the pool is destroyed
//   INSIDE   times the threads that are giving the block back and still look
//            at the pool
//
// Taking is to find a place that is FREE and to clear that bit; who does so
// owns the block, whatever happened to it since it was looked at, and looks
// again at its points. Giving is to set it; unless WAITING or ORPHAN stands
// beside it, nothing of the pool is touched any more.
//
// Nobody misses a block: who found none raises the pool's `waiting` and goes
// through the places once more, setting WAITING in each. Of one word one is
// first: either the block was given before, and is found, or who gives it finds
// WAITING. `waiting` is lowered before `returned` is called, so that one call
// is made and not one for each place; who raises it after that sets the bits
// after that. Who gives back what he only took out to look at it, or adds a
// block, sets FREE and then looks at `waiting`; both are sequentially
// consistent, as raising it and then going through the places is, so one sees
// the other. Who waits for a point does not raise `waiting`, so that nobody is
// woken only to find the same point; a flag that is left raised by somebody who
// found a block in his second search costs one needless call.
//
// The storage of a pool stays while anything in it may be touched: `holds`
// counts the places and the owner. A place is let go by the one who makes its
// word FREE | ORPHAN with nobody inside: destroying adds ORPHAN + INSIDE to
// each place, and gives the memory back of those that were FREE; a block that
// is given later finds ORPHAN and stays inside until its memory is gone too.
// Nobody gets inside a place that is FREE and ORPHAN, so this happens once.

#include "pool.h"

#include <stdlib.h>
#include <string.h>

#include "../base/str.h"
#include "type.h"

enum { LINE = 64 };
enum { FREE = 1, WAITING = 2, ORPHAN = 4, INSIDE = 8 };

struct place {
    _Alignas(LINE) struct stk_buffer buffer;
};

struct stk_pool {
    // Read by all, written seldom.
    const struct stk_mem_type *type;
    struct stk_mem_source source;
    struct place *places;  // `capacity` of them
    uint32_t capacity;
    _Atomic uint32_t blocks;  // places that have a block
    _Atomic uint32_t most;    // see max_in_use
    _Atomic size_t block_bytes;
    _Atomic bool waiting;
    void (*returned)(void *cookie);
    void *cookie;
    void (*gone)(void *cookie);
    void *gone_cookie;

    _Alignas(LINE) _Atomic uint64_t waits;
    _Atomic uint64_t grown;
    _Atomic uint32_t holds;

    pthread_mutex_t memory;  // while blocks are made, replaced or made larger
    pthread_mutex_t lock;    // guards what follows
    pthread_cond_t quiet;
    uint32_t calling;  // threads inside `returned`
    bool closed;
    char owner[];
};

static struct stk_buffer *buffer_at(struct stk_pool *pool, uint32_t number)
{
    return &pool->places[number].buffer;
}

// --- life -------------------------------------------------------------------

static void free_storage(struct stk_pool *pool)
{
    void (*gone)(void *cookie) = pool->gone;
    void *cookie = pool->gone_cookie;
    for (uint32_t i = 0; i < pool->capacity; i++)
        stk_buffer_finish(buffer_at(pool, i));
    pthread_cond_destroy(&pool->quiet);
    pthread_mutex_destroy(&pool->lock);
    pthread_mutex_destroy(&pool->memory);
    free(pool->places);
    free(pool);
    if (gone)
        gone(cookie);
}

static void let_go(struct stk_pool *pool)
{
    if (atomic_fetch_sub_explicit(&pool->holds, 1, memory_order_acq_rel) == 1)
        free_storage(pool);
}

// The end of giving a block. Nothing of the pool may be touched afterwards.
static void leave(struct stk_buffer *buffer)
{
    struct stk_pool *pool = buffer->pool;
    const uint32_t before =
        atomic_fetch_sub_explicit(&buffer->place, INSIDE, memory_order_acq_rel);
    if ((before & ~(uint32_t)WAITING) == (FREE | ORPHAN) + INSIDE)
        let_go(pool);
}

// --- memory of blocks; needs the lock of it while the pool is in use ---------

static void drop_memory(struct stk_pool *pool, struct stk_buffer *buffer)
{
    pool->type->free(&pool->source, &buffer->block);
    stk_buffer_set_block(buffer, &buffer->block);
    buffer->cleared = 0;
}

// Give a buffer memory of `bytes`, instead of what it has. `blocks`: how many
// there are or will be, for the text.
static enum pen_status fill(struct stk_pool *pool, struct stk_buffer *buffer,
                            size_t bytes, uint32_t blocks,
                            struct pen_error *err)
{
    drop_memory(pool, buffer);
    struct stk_mem_source source = pool->source;
    if (bytes > source.reserve)
        source.reserve = 0;
    struct stk_block block;
    struct pen_error inner = { 0 };
    const enum pen_status st =
        pool->type->alloc(&source, bytes, &block, &inner);
    if (st) {
        char each[32], all[32];
        size_t total = 0;
        if (!stk_mul(bytes, blocks, &total))
            total = SIZE_MAX;
        stk_format_size(bytes, each, sizeof(each));
        stk_format_size(total, all, sizeof(all));
        return pen_error_set(err, st, inner.native, pool->owner,
                             "block %u of %u (%s of %s each, %s in all): %s",
                             buffer->number + 1, blocks, each,
                             pen_mem_name(pool->type->type), all, inner.text);
    }
    stk_buffer_set_block(buffer, &block);
    return PEN_OK;
}

// Whether a block can be made larger where it lies.
static bool can_extend(const struct stk_pool *pool,
                       const struct stk_buffer *buffer, size_t bytes)
{
    return bytes <= pool->source.reserve &&
           atomic_load_explicit(&buffer->grows, memory_order_relaxed);
}

// Make a block larger where it lies, whoever uses it.
static enum pen_status extend(struct stk_pool *pool, struct stk_buffer *buffer,
                              size_t bytes, struct pen_error *err)
{
    struct stk_block block = buffer->block;
    struct pen_error inner = { 0 };
    const enum pen_status st =
        pool->type->grow(&pool->source, bytes, &block, &inner);
    if (st) {
        char size[32];
        stk_format_size(bytes, size, sizeof(size));
        return pen_error_set(err, st, inner.native, pool->owner,
                             "block %u of %u cannot grow to %s where it "
                             "lies: %s",
                             buffer->number + 1, atomic_load(&pool->blocks),
                             size, inner.text);
    }
    // The rest stays as it is, and is read by who uses the block.
    buffer->block.bytes = block.bytes;
    atomic_store_explicit(&buffer->bytes, block.bytes, memory_order_release);
    atomic_fetch_add_explicit(&pool->grown, 1, memory_order_relaxed);
    return PEN_OK;
}

// --- making one -------------------------------------------------------------

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
    if (p->mem == PEN_MEM_DMABUF && p->kind != STK_DMABUF_HOST &&
        p->kind != STK_DMABUF_CUDA) {
        return pen_error_set(err, PEN_E_ARG, 0, owner,
                             "a pool of DMABUF needs to know whether they are "
                             "made of memory of the host or of the device");
    }
    if ((type->needs_device || p->kind == STK_DMABUF_CUDA) && !p->dev) {
        return pen_error_set(err, PEN_E_ARG, 0, owner,
                             "a pool of %s needs a device",
                             pen_mem_name(p->mem));
    }
    return PEN_OK;
}

static struct stk_pool *no_bookkeeping(const char *owner, uint64_t blocks,
                                       struct pen_error *err)
{
    pen_error_set(err, PEN_E_NOMEM, 0, owner,
                  "no host memory for the bookkeeping of %llu blocks "
                  "(%zu bytes each)",
                  (unsigned long long)blocks, sizeof(struct place));
    return NULL;
}

// The pool with its places, but without blocks; NULL: no memory.
static struct stk_pool *make_storage(const struct stk_pool_params *p,
                                     const struct stk_mem_type *type,
                                     struct pen_error *err)
{
    const char *owner = p->owner ? p->owner : "pool";
    const size_t owner_bytes = strlen(owner) + 1;
    const uint64_t capacity = (uint64_t)p->blocks + p->more_blocks;
    size_t bytes = 0, places = 0;
    if (capacity > UINT32_MAX ||
        !stk_mul((size_t)capacity, sizeof(struct place), &places) ||
        !stk_align(sizeof(struct stk_pool) + owner_bytes, LINE, &bytes))
        return no_bookkeeping(owner, capacity, err);
    struct stk_pool *pool = aligned_alloc(LINE, bytes);
    if (!pool)
        return no_bookkeeping(owner, capacity, err);
    memset(pool, 0, bytes);
    pool->places = aligned_alloc(LINE, places);
    if (!pool->places) {
        free(pool);
        return no_bookkeeping(owner, capacity, err);
    }

    memcpy(pool->owner, owner, owner_bytes);
    pool->type = type;
    pool->source = (struct stk_mem_source){
        .dev = p->dev,
        .ledger = p->ledger,
        .owner = pool->owner,
        .reserve = p->mem == PEN_MEM_CUDA_DEVICE ? p->reserve_bytes : 0,
        .kind = p->kind,
    };
    pool->capacity = (uint32_t)capacity;
    atomic_init(&pool->block_bytes, p->block_bytes);
    atomic_init(&pool->holds, 1);
    pool->returned = p->returned;
    pool->cookie = p->cookie;
    pthread_mutex_init(&pool->memory, NULL);
    pthread_mutex_init(&pool->lock, NULL);
    pthread_cond_init(&pool->quiet, NULL);
    for (uint32_t i = 0; i < pool->capacity; i++) {
        struct stk_buffer *buffer = buffer_at(pool, i);
        stk_buffer_init(buffer, p->mem);
        atomic_init(&buffer->refs, 0);
        buffer->number = i;
        buffer->pool = pool;
    }
    return pool;
}

// Put a block into each of the next `count` places.
static enum pen_status add_blocks(struct stk_pool *pool, uint32_t count,
                                  struct pen_error *err)
{
    const uint32_t all = atomic_load(&pool->blocks) + count;
    for (uint32_t i = all - count; i < all; i++) {
        struct stk_buffer *buffer = buffer_at(pool, i);
        PEN_TRY(fill(pool, buffer, atomic_load(&pool->block_bytes), all, err));
        atomic_fetch_add_explicit(&pool->holds, 1, memory_order_relaxed);
        atomic_store(&buffer->place, FREE);
        atomic_store(&pool->blocks, i + 1);
    }
    return PEN_OK;
}

enum pen_status stk_pool_create(const struct stk_pool_params *p,
                                struct stk_pool **out, struct pen_error *err)
{
    *out = NULL;
    const struct stk_mem_type *type = stk_mem_type(p->mem);
    PEN_TRY(check_params(p, type, err));
    struct stk_pool *pool = make_storage(p, type, err);
    if (!pool)
        return PEN_E_NOMEM;
    const enum pen_status st = add_blocks(pool, p->blocks, err);
    if (st) {
        stk_pool_destroy(&pool);
        return st;
    }
    pool->gone = p->gone;
    pool->gone_cookie = p->gone_cookie;
    *out = pool;
    return PEN_OK;
}

void stk_pool_destroy(struct stk_pool **handle)
{
    struct stk_pool *pool = *handle;
    if (!pool)
        return;
    *handle = NULL;

    pthread_mutex_lock(&pool->lock);
    pool->closed = true;
    while (pool->calling)
        pthread_cond_wait(&pool->quiet, &pool->lock);
    pthread_mutex_unlock(&pool->lock);

    const uint32_t blocks = atomic_load(&pool->blocks);
    for (uint32_t i = 0; i < blocks; i++) {
        struct stk_buffer *buffer = buffer_at(pool, i);
        if (atomic_fetch_add(&buffer->place, ORPHAN + INSIDE) & FREE) {
            stk_buffer_settle(buffer);
            drop_memory(pool, buffer);
        }
        leave(buffer);
    }
    let_go(pool);
}

// --- giving -----------------------------------------------------------------

// Tell who waits for a block.
static void tell(struct stk_pool *pool)
{
    if (!atomic_load(&pool->waiting) || !atomic_exchange(&pool->waiting, false))
        return;
    pthread_mutex_lock(&pool->lock);
    if (pool->closed) {
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

static void release_late(struct stk_buffer *buffer)
{
    drop_memory(buffer->pool, buffer);
    leave(buffer);
}

bool stk_pool_give(struct stk_buffer *buffer)
{
    uint32_t place = 0, given = 0;  // what it nearly always is
    do {
        if (place & FREE)
            return false;
        given = place + FREE;
        if (place & (WAITING | ORPHAN))
            given = (given & ~(uint32_t)WAITING) + INSIDE;
    } while (!atomic_compare_exchange_weak(&buffer->place, &place, given));

    if (place & ORPHAN) {
        stk_buffer_when_unused(buffer, release_late);
    } else if (place & WAITING) {
        tell(buffer->pool);
        leave(buffer);
    }
    return true;
}

// Give back what was taken out only to look at it or to work on it, by somebody
// who keeps the pool alive. tell() has to follow, without a lock.
static void put_back(struct stk_buffer *buffer)
{
    atomic_fetch_or(&buffer->place, FREE);
}

// --- taking -----------------------------------------------------------------

// Where a thread begins to look. Nearly always at the first place, so that a
// pool uses no more blocks than it needs, the one that came back last again;
// but threads that got into each other's way part.
static _Thread_local uint32_t first_place;

static void part(void)
{
    static _Atomic uint32_t next;
    first_place = 1 + atomic_fetch_add_explicit(&next, 1, memory_order_relaxed);
}

static bool is_free(const struct stk_buffer *buffer)
{
    return atomic_load(&buffer->place) & FREE;
}

static bool claim(struct stk_buffer *buffer)
{
    uint32_t place = atomic_load(&buffer->place);
    while (place & FREE) {
        if (atomic_compare_exchange_weak(&buffer->place, &place, place & ~FREE))
            return true;
    }
    part();
    return false;
}

// Who takes, and what he is content with.
struct want {
    const struct stk_stream *stream;  // NULL: the host
    size_t bytes;
    bool patient;  // the stream may wait for other streams
};

// Whether a free block will do. If not, *wait may be a point to wait for.
static bool suits(const struct stk_pool *pool, struct stk_buffer *buffer,
                  const struct want *want, struct stk_point *wait)
{
    *wait = (struct stk_point){ 0 };
    if (stk_buffer_bytes(buffer) < want->bytes) {
        // Memory of the old size is given back, which is done by the host.
        return can_extend(pool, buffer, want->bytes) ||
               stk_buffer_unused(buffer, STK_WAIT_GROW, wait);
    }
    if (!want->stream)
        return stk_buffer_host_ready(buffer, PEN_WRITE, wait);
    return want->patient || stk_buffer_free_for(buffer, want->stream);
}

// Fetch a line to write to it: it comes from another core's cache once, not
// first for reading and then again for writing. Older processors take this for
// no operation.
static void fetch_to_write(const void *line)
{
#ifdef __x86_64__
    __asm__ volatile("prefetchw %0" : : "m"(*(const char *)line));
#else
    __builtin_prefetch(line, 1);
#endif
}

// Go through the places; with `mark` leave WAITING in them.
static struct stk_buffer *look(struct stk_pool *pool, const struct want *want,
                               bool mark, struct stk_point *wait)
{
    const uint32_t blocks = atomic_load(&pool->blocks);
    uint32_t at = first_place % blocks;
    for (uint32_t i = 0; i < blocks; i++, at = at + 1 < blocks ? at + 1 : 0) {
        struct stk_buffer *buffer = buffer_at(pool, at);
        fetch_to_write(buffer);
        const uint32_t place = mark ? atomic_fetch_or(&buffer->place, WAITING)
                                    : atomic_load(&buffer->place);
        if (!(place & FREE))
            continue;
        struct stk_point point;
        if (suits(pool, buffer, want, &point)) {
            if (!claim(buffer))
                continue;
            // It may have been used again since.
            if (suits(pool, buffer, want, &point))
                return buffer;
            put_back(buffer);
            tell(pool);
        }
        if (!wait->stream)
            *wait = point;
    }
    return NULL;
}

// Take out a block; NULL if there is none, or *wait is to be waited for.
static struct stk_buffer *choose(struct stk_pool *pool, struct want *want,
                                 struct stk_point *wait)
{
    struct stk_buffer *buffer = look(pool, want, false, wait);
    want->patient = true;
    if (!buffer && want->stream)
        buffer = look(pool, want, false, wait);
    if (buffer || wait->stream || !pool->returned)
        return buffer;
    atomic_store(&pool->waiting, true);
    return look(pool, want, true, wait);
}

// Clear fresh device memory. PEN_AGAIN with *wait when the stream has no place
// for the point that stands for it.
static enum pen_status clear(struct stk_buffer *buffer,
                             struct stk_stream *stream, struct stk_point *wait,
                             struct pen_error *err)
{
    const size_t from = buffer->cleared, to = stk_buffer_bytes(buffer);
    if (!stk_stream_has_room(stream, 0, wait))
        return PEN_AGAIN;
    PEN_TRY(stk_stream_fill(stream, buffer->block.address + from, 0, to - from,
                            err));

    struct stk_point point;
    enum pen_status st = PEN_AGAIN;
    while ((st = stk_stream_record(stream, &point, err)) == PEN_AGAIN) {
        // Others took the last place meanwhile. The fill is queued and needs
        // its point: rather slow, once, than wrong.
        PEN_TRY(stk_point_wait(point, STK_WAIT_EVENT_REUSE, err));
    }
    PEN_TRY(st);
    stk_buffer_used(buffer, point, PEN_WRITE);
    buffer->cleared = to;
    return PEN_OK;
}

static enum pen_status check_device(const struct stk_pool *pool,
                                    struct pen_error *err)
{
    if (!pool->source.dev || pool->type->type == PEN_MEM_HOST ||
        !stk_device_lost(pool->source.dev))
        return PEN_OK;
    return pen_error_set(err, PEN_E_LOST, 0, pool->owner,
                         "no buffer is given: the device was lost by an "
                         "earlier error");
}

// Give a block that was taken out memory of the pool's size.
static enum pen_status refit(struct stk_pool *pool, struct stk_buffer *buffer,
                             size_t bytes, struct stk_point *wait,
                             struct pen_error *err)
{
    pthread_mutex_lock(&pool->memory);
    enum pen_status st = PEN_AGAIN;
    if (stk_buffer_bytes(buffer) >= bytes) {
        st = PEN_OK;  // stk_pool_grow() was here meanwhile
    } else if (can_extend(pool, buffer, bytes)) {
        st = extend(pool, buffer, bytes, err);
    } else if (stk_buffer_unused(buffer, STK_WAIT_GROW, wait)) {
        st = fill(pool, buffer, bytes, atomic_load(&pool->blocks), err);
        atomic_fetch_add_explicit(&pool->grown, !st, memory_order_relaxed);
    }
    pthread_mutex_unlock(&pool->memory);
    return st;
}

// Make a buffer that was taken out fit for its user; what fails may be tried
// again.
static enum pen_status prepare(struct stk_pool *pool, struct stk_buffer *buffer,
                               size_t bytes, struct stk_stream *stream,
                               struct stk_point *wait, struct pen_error *err)
{
    if (stk_buffer_bytes(buffer) < bytes)
        PEN_TRY(refit(pool, buffer, bytes, wait, err));
    if (!stream)
        return stk_buffer_host_ready(buffer, PEN_WRITE, wait) ? PEN_OK
                                                              : PEN_AGAIN;
    PEN_TRY(stk_buffer_stream_ready(buffer, stream, PEN_WRITE, err));
    const bool device = buffer->block.on_stream && !buffer->block.host;
    if (device && buffer->cleared < stk_buffer_bytes(buffer))
        return clear(buffer, stream, wait, err);
    return PEN_OK;
}

static void count_take(struct stk_pool *pool, struct stk_buffer *buffer)
{
    // Only who has the buffer writes here.
    const uint64_t takes =
        atomic_load_explicit(&buffer->takes, memory_order_relaxed);
    atomic_store_explicit(&buffer->takes, takes + 1, memory_order_relaxed);
    // The first place that is free was taken: all before it are needed.
    uint32_t most = atomic_load_explicit(&pool->most, memory_order_relaxed);
    while (
        buffer->number >= most &&
        !atomic_compare_exchange_weak(&pool->most, &most, buffer->number + 1))
        ;
}

enum pen_status stk_pool_take(struct stk_pool *pool, struct stk_stream *stream,
                              struct stk_buffer **out, struct stk_point *wait,
                              struct pen_error *err)
{
    *out = NULL;
    *wait = (struct stk_point){ 0 };
    PEN_TRY(check_device(pool, err));

    struct want want = {
        .stream = stream,
        .bytes = atomic_load_explicit(&pool->block_bytes, memory_order_relaxed),
    };
    enum pen_status st = PEN_AGAIN;
    struct stk_buffer *buffer = choose(pool, &want, wait);
    if (buffer) {
        *wait = (struct stk_point){ 0 };
        st = prepare(pool, buffer, want.bytes, stream, wait, err);
        if (st) {
            put_back(buffer);
            tell(pool);
        }
    }
    if (st == PEN_AGAIN)
        atomic_fetch_add_explicit(&pool->waits, 1, memory_order_relaxed);
    if (st)
        return st;
    count_take(pool, buffer);
    atomic_store_explicit(&buffer->refs, 1, memory_order_relaxed);
    *out = buffer;
    return PEN_OK;
}

// --- more and larger blocks -------------------------------------------------

enum pen_status stk_pool_add(struct stk_pool *pool, uint32_t blocks,
                             struct pen_error *err)
{
    pthread_mutex_lock(&pool->memory);
    const uint32_t before = atomic_load(&pool->blocks);
    enum pen_status st = PEN_OK;
    if (blocks > pool->capacity - before) {
        st = pen_error_set(err, PEN_E_LIMIT, 0, pool->owner,
                           "a pool of %u blocks cannot get %u more: it was "
                           "made for at most %u",
                           before, blocks, pool->capacity);
    } else {
        st = add_blocks(pool, blocks, err);
    }
    const bool more = atomic_load(&pool->blocks) > before;
    pthread_mutex_unlock(&pool->memory);
    if (more)
        tell(pool);
    return st;
}

// Make all blocks that can be larger where they lie.
static enum pen_status extend_all(struct stk_pool *pool, size_t bytes,
                                  struct pen_error *err)
{
    const uint32_t blocks = atomic_load(&pool->blocks);
    for (uint32_t i = 0; i < blocks; i++) {
        struct stk_buffer *buffer = buffer_at(pool, i);
        if (stk_buffer_bytes(buffer) < bytes && can_extend(pool, buffer, bytes))
            PEN_TRY(extend(pool, buffer, bytes, err));
    }
    return PEN_OK;
}

// Take out the free blocks that are too small and not in use by any stream.
static struct stk_buffer *take_small(struct stk_pool *pool, size_t bytes)
{
    struct stk_buffer *list = NULL;
    const uint32_t blocks = atomic_load(&pool->blocks);
    for (uint32_t i = blocks; i--;) {
        struct stk_buffer *buffer = buffer_at(pool, i);
        if (stk_buffer_bytes(buffer) >= bytes || !is_free(buffer) ||
            !claim(buffer))
            continue;
        if (stk_buffer_unused(buffer, STK_WAIT_GROW, NULL)) {
            buffer->next = list;
            list = buffer;
        } else {
            put_back(buffer);
        }
    }
    return list;
}

static enum pen_status replace(struct stk_pool *pool, struct stk_buffer *list,
                               size_t bytes, struct pen_error *err)
{
    // All old memory first: the new blocks may need its place.
    for (struct stk_buffer *b = list; b; b = b->next)
        drop_memory(pool, b);
    enum pen_status st = PEN_OK;
    while (list) {
        struct stk_buffer *buffer = list;
        list = buffer->next;
        if (!st) {
            st = fill(pool, buffer, bytes, atomic_load(&pool->blocks), err);
            atomic_fetch_add_explicit(&pool->grown, !st, memory_order_relaxed);
        }
        put_back(buffer);
    }
    return st;
}

enum pen_status stk_pool_grow(struct stk_pool *pool, size_t block_bytes,
                              struct pen_error *err)
{
    enum pen_status st = PEN_OK;
    pthread_mutex_lock(&pool->memory);
    if (block_bytes > atomic_load(&pool->block_bytes)) {
        atomic_store(&pool->block_bytes, block_bytes);
        st = extend_all(pool, block_bytes, err);
        if (!st)
            st = replace(pool, take_small(pool, block_bytes), block_bytes, err);
    }
    pthread_mutex_unlock(&pool->memory);
    tell(pool);
    return st;
}

// --- what it says -----------------------------------------------------------

void stk_pool_stats(struct stk_pool *pool, struct stk_pool_stats *out)
{
    *out = (struct stk_pool_stats){
        .block_bytes = atomic_load(&pool->block_bytes),
        .blocks = atomic_load(&pool->blocks),
        .max_in_use = atomic_load(&pool->most),
        .waits = atomic_load(&pool->waits),
        .grown = atomic_load(&pool->grown),
    };
    for (uint32_t i = 0; i < out->blocks; i++) {
        const struct stk_buffer *buffer = buffer_at(pool, i);
        out->in_use += !is_free(buffer);
        out->takes += atomic_load(&buffer->takes);
    }
}

size_t stk_pool_block_bytes(const struct stk_pool *pool)
{
    return atomic_load(&pool->block_bytes);
}

const struct stk_mem_source *stk_pool_source(const struct stk_pool *pool)
{
    return &pool->source;
}
