#include "buffer.h"

#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#include "pool.h"
#include "type.h"

void stk_buffer_init(struct stk_buffer *buffer, enum pen_mem_type mem)
{
    memset(buffer, 0, sizeof(*buffer));
    atomic_init(&buffer->refs, 1);
    atomic_init(&buffer->pending, 0);
    buffer->mem = mem;
    pthread_mutex_init(&buffer->lock, NULL);
}

void stk_buffer_finish(struct stk_buffer *buffer)
{
    pthread_mutex_destroy(&buffer->lock);
}

struct stk_buffer *stk_buffer_ref(struct stk_buffer *buffer)
{
    atomic_fetch_add_explicit(&buffer->refs, 1, memory_order_relaxed);
    return buffer;
}

static void release_foreign(struct stk_buffer *buffer)
{
    if (buffer->release)
        buffer->release(buffer->cookie);
    stk_buffer_finish(buffer);
    free(buffer);
}

void stk_buffer_unref(struct stk_buffer *buffer)
{
    if (!buffer ||
        atomic_fetch_sub_explicit(&buffer->refs, 1, memory_order_acq_rel) != 1)
        return;
    if (buffer->pool)
        stk_pool_give(buffer);
    else
        stk_buffer_when_unused(buffer, release_foreign);
}

// --- points -----------------------------------------------------------------

// Forget a point once it is reached, so that the driver is not asked again.
static bool reached(struct stk_point *point)
{
    if (!point->stream)
        return true;
    if (!stk_point_reached(*point))
        return false;
    *point = (struct stk_point){ 0 };
    return true;
}

// Where the last use by `stream` is kept. One always comes free: a buffer is
// used by the streams of one pipeline only, and there are no more of them. For
// whoever breaks that rule the oldest use is waited for, which is slow, and
// right.
static struct stk_point *reader_slot(struct stk_buffer *buffer,
                                     const struct stk_stream *stream)
{
    struct stk_point *empty = NULL;
    for (unsigned i = 0; i < STK_MAX_READERS; i++) {
        struct stk_point *p = &buffer->read[i];
        if (p->stream == stream)
            return p;
        if (!empty && !p->stream)
            empty = p;
    }
    for (unsigned i = 0; i < STK_MAX_READERS && !empty; i++) {
        if (reached(&buffer->read[i]))
            empty = &buffer->read[i];
    }
    if (!empty) {
        empty = &buffer->read[0];
        // A failed wait means a lost device, whose points all count as reached.
        const enum pen_status st = stk_point_wait(*empty, NULL);
        (void)st;
    }
    *empty = (struct stk_point){ 0 };
    return empty;
}

void stk_buffer_used(struct stk_buffer *buffer, struct stk_point point,
                     unsigned access)
{
    if (!point.stream)
        return;
    pthread_mutex_lock(&buffer->lock);
    if (access & PEN_WRITE) {
        // The writer waited for all earlier uses: its point stands for them.
        buffer->written = point;
        memset(buffer->read, 0, sizeof(buffer->read));
    } else {
        struct stk_point *slot = reader_slot(buffer, point.stream);
        // Two modules of one stream may note their uses in any order.
        if (!slot->stream || slot->seq < point.seq)
            *slot = point;
    }
    pthread_mutex_unlock(&buffer->lock);
}

// The first point that `access` has to wait for, or NULL. Needs the lock.
static struct stk_point *first_unreached(struct stk_buffer *buffer,
                                         unsigned access)
{
    if (!reached(&buffer->written))
        return &buffer->written;
    for (unsigned i = 0; access & PEN_WRITE && i < STK_MAX_READERS; i++) {
        if (!reached(&buffer->read[i]))
            return &buffer->read[i];
    }
    return NULL;
}

bool stk_buffer_host_ready(struct stk_buffer *buffer, unsigned access,
                           struct stk_point *wait)
{
    pthread_mutex_lock(&buffer->lock);
    const struct stk_point *point = first_unreached(buffer, access);
    if (wait)
        *wait = point ? *point : (struct stk_point){ 0 };
    pthread_mutex_unlock(&buffer->lock);
    return !point;
}

enum pen_status stk_buffer_stream_ready(struct stk_buffer *buffer,
                                        struct stk_stream *stream,
                                        unsigned access, struct pen_error *err)
{
    struct stk_point points[1 + STK_MAX_READERS];
    unsigned count = 0;
    pthread_mutex_lock(&buffer->lock);
    points[count++] = buffer->written;
    for (unsigned i = 0; access & PEN_WRITE && i < STK_MAX_READERS; i++)
        points[count++] = buffer->read[i];
    pthread_mutex_unlock(&buffer->lock);

    for (unsigned i = 0; i < count; i++) {
        if (points[i].stream && points[i].stream != stream)
            PEN_TRY(stk_stream_wait(stream, points[i], err));
    }
    return PEN_OK;
}

void stk_buffer_settle(struct stk_buffer *buffer)
{
    pthread_mutex_lock(&buffer->lock);
    struct stk_point *point = NULL;
    while ((point = first_unreached(buffer, PEN_WRITE))) {
        // See reader_slot() for the result.
        const enum pen_status st = stk_point_wait(*point, NULL);
        (void)st;
        *point = (struct stk_point){ 0 };
    }
    pthread_mutex_unlock(&buffer->lock);
}

static void one_less(void *cookie)
{
    struct stk_buffer *buffer = cookie;
    if (atomic_fetch_sub_explicit(&buffer->pending, 1, memory_order_acq_rel) ==
        1)
        buffer->unused(buffer);
}

void stk_buffer_when_unused(struct stk_buffer *buffer,
                            void (*done)(struct stk_buffer *buffer))
{
    // All points are handed over at once, while their streams exist: the
    // reapers only count, and touch no other stream's point.
    struct stk_point points[1 + STK_MAX_READERS];
    unsigned count = 0;
    pthread_mutex_lock(&buffer->lock);
    if (!reached(&buffer->written))
        points[count++] = buffer->written;
    for (unsigned i = 0; i < STK_MAX_READERS; i++) {
        if (!reached(&buffer->read[i]))
            points[count++] = buffer->read[i];
    }
    buffer->written = (struct stk_point){ 0 };
    memset(buffer->read, 0, sizeof(buffer->read));
    pthread_mutex_unlock(&buffer->lock);

    buffer->unused = done;
    atomic_store(&buffer->pending, count + 1);
    for (unsigned i = 0; i < count; i++) {
        if (stk_point_when(points[i], one_less, buffer, NULL) == PEN_OK)
            continue;
        // No memory or thread for the reaper: rather slow than wrong.
        const enum pen_status st = stk_point_wait(points[i], NULL);
        (void)st;
        one_less(buffer);
    }
    one_less(buffer);
}

// --- foreign memory ---------------------------------------------------------

enum pen_status stk_buffer_wrap(enum pen_mem_type mem, void *host,
                                uint64_t address, size_t bytes,
                                void (*release)(void *cookie), void *cookie,
                                struct stk_buffer **out, struct pen_error *err)
{
    *out = NULL;
    const struct stk_mem_type *type = stk_mem_type(mem);
    if (!type || !bytes || (type->caps & STK_MEM_MAP ? !host : !address)) {
        return pen_error_set(err, PEN_E_ARG, 0, pen_mem_name(mem),
                             "foreign memory needs a known type, an address "
                             "and a size, not %zu bytes at %p / 0x%llx",
                             bytes, host, (unsigned long long)address);
    }
    struct stk_buffer *buffer = malloc(sizeof(*buffer));
    if (!buffer) {
        return pen_error_set(err, PEN_E_NOMEM, 0, pen_mem_name(mem),
                             "no host memory for a buffer's %zu bytes of "
                             "bookkeeping",
                             sizeof(*buffer));
    }
    stk_buffer_init(buffer, mem);
    buffer->host = host;
    buffer->address = host ? (uint64_t)(uintptr_t)host : address;
    buffer->bytes = bytes;
    buffer->release = release;
    buffer->cookie = cookie;
    *out = buffer;
    return PEN_OK;
}
