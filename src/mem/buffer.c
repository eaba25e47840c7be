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

// Whether `site` has to wait for a point. It is forgotten once it is reached,
// so that the driver is not asked again.
static bool pending(struct stk_point *point, enum stk_wait_site site)
{
    if (!point->stream)
        return false;
    if (stk_point_pending(*point, site))
        return true;
    // A site that a test leaves out must not make the others forget theirs.
    if (stk_point_reached(*point))
        *point = (struct stk_point){ 0 };
    return false;
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
        if (!pending(&buffer->read[i], STK_WAIT_READER_SLOT))
            empty = &buffer->read[i];
    }
    if (!empty) {
        empty = &buffer->read[0];
        // A failed wait means a lost device, whose points all count as reached.
        const enum pen_status st =
            stk_point_wait(*empty, STK_WAIT_READER_SLOT, NULL);
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

// The first point that has to be waited for, by what wrote (at `written`) and
// by what reads (at `readers`, NONE: readers do not matter), or NULL. Needs
// the lock.
static struct stk_point *first_pending(struct stk_buffer *buffer,
                                       enum stk_wait_site written,
                                       enum stk_wait_site readers)
{
    if (pending(&buffer->written, written))
        return &buffer->written;
    for (unsigned i = 0; readers && i < STK_MAX_READERS; i++) {
        if (pending(&buffer->read[i], readers))
            return &buffer->read[i];
    }
    return NULL;
}

// The same for who asks only, with the lock.
static bool ready(struct stk_buffer *buffer, enum stk_wait_site written,
                  enum stk_wait_site readers, struct stk_point *wait)
{
    pthread_mutex_lock(&buffer->lock);
    const struct stk_point *point = first_pending(buffer, written, readers);
    if (wait)
        *wait = point ? *point : (struct stk_point){ 0 };
    pthread_mutex_unlock(&buffer->lock);
    return !point;
}

bool stk_buffer_host_ready(struct stk_buffer *buffer, unsigned access,
                           struct stk_point *wait)
{
    if (access & PEN_WRITE)
        return ready(buffer, STK_WAIT_HOST_OVERWRITE, STK_WAIT_HOST_REUSE,
                     wait);
    return ready(buffer, STK_WAIT_HOST_READ, STK_WAIT_NONE, wait);
}

bool stk_buffer_unused(struct stk_buffer *buffer, enum stk_wait_site site,
                       struct stk_point *wait)
{
    return ready(buffer, site, site, wait);
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
        const enum stk_wait_site site = i ? STK_WAIT_STREAM_REUSE
                                        : access & PEN_WRITE
                                            ? STK_WAIT_STREAM_OVERWRITE
                                            : STK_WAIT_STREAM_READ;
        if (points[i].stream && points[i].stream != stream)
            PEN_TRY(stk_stream_wait(stream, points[i], site, err));
    }
    return PEN_OK;
}

void stk_buffer_settle(struct stk_buffer *buffer)
{
    pthread_mutex_lock(&buffer->lock);
    struct stk_point *point = NULL;
    while ((point = first_pending(buffer, STK_WAIT_SETTLE, STK_WAIT_SETTLE))) {
        // See reader_slot() for the result.
        const enum pen_status st =
            stk_point_wait(*point, STK_WAIT_SETTLE, NULL);
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
    if (pending(&buffer->written, STK_WAIT_RELEASE))
        points[count++] = buffer->written;
    for (unsigned i = 0; i < STK_MAX_READERS; i++) {
        if (pending(&buffer->read[i], STK_WAIT_RELEASE))
            points[count++] = buffer->read[i];
    }
    buffer->written = (struct stk_point){ 0 };
    memset(buffer->read, 0, sizeof(buffer->read));
    pthread_mutex_unlock(&buffer->lock);

    buffer->unused = done;
    atomic_store(&buffer->pending, count + 1);
    for (unsigned i = 0; i < count; i++) {
        if (stk_point_when(points[i], STK_WAIT_RELEASE, one_less, buffer,
                           NULL) == PEN_OK)
            continue;
        // No memory or thread for the reaper: rather slow than wrong.
        const enum pen_status st =
            stk_point_wait(points[i], STK_WAIT_RELEASE, NULL);
        (void)st;
        one_less(buffer);
    }
    one_less(buffer);
}

// --- foreign memory ---------------------------------------------------------

// What memory the caller speaks of, as a block.
static struct stk_block foreign_block(const struct pen_foreign *memory)
{
    struct stk_block block = { .bytes = memory->bytes };
    switch (memory->mem) {
    case PEN_MEM_HOST:
    case PEN_MEM_HOST_PINNED:
        block.host = memory->host;
        block.address = (uint64_t)(uintptr_t)memory->host;
        block.on_stream = memory->mem == PEN_MEM_HOST_PINNED;
        break;
    case PEN_MEM_CUDA_DEVICE:
        block.address = memory->address;
        block.on_stream = true;
        break;
    default:
        break;
    }
    return block;
}

enum pen_status stk_buffer_wrap(const struct pen_foreign *memory,
                                struct stk_ledger *ledger,
                                struct stk_buffer **out, struct pen_error *err)
{
    (void)ledger;
    *out = NULL;
    const enum pen_mem_type mem = memory->mem;
    const struct stk_block block = foreign_block(memory);
    if (!block.bytes || !block.address) {
        return pen_error_set(err, PEN_E_ARG, 0, pen_mem_name(mem),
                             "foreign memory needs a known type, an address "
                             "and a size, not %zu bytes at 0x%llx",
                             block.bytes, (unsigned long long)block.address);
    }
    struct stk_buffer *buffer = malloc(sizeof(*buffer));
    if (!buffer) {
        return pen_error_set(err, PEN_E_NOMEM, 0, pen_mem_name(mem),
                             "no host memory for a buffer's %zu bytes of "
                             "bookkeeping",
                             sizeof(*buffer));
    }
    stk_buffer_init(buffer, mem);
    buffer->block = block;
    buffer->release = memory->release;
    buffer->cookie = memory->cookie;
    *out = buffer;
    return PEN_OK;
}

// --- who may touch it -------------------------------------------------------

bool stk_buffer_on_host(const struct stk_buffer *buffer)
{
    return buffer->block.host != NULL;
}

bool stk_buffer_on_stream(const struct stk_buffer *buffer)
{
    return buffer->block.on_stream;
}
