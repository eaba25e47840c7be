#include "buffer.h"

#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#include "dmabuf.h"
#include "pool.h"
#include "type.h"

// Foreign memory.
struct foreign {
    struct stk_buffer buffer;  // first
    struct stk_mem_source source;
    void (*release)(void *cookie);
    void *cookie;
};

void stk_buffer_init(struct stk_buffer *buffer, enum pen_mem_type mem)
{
    memset(buffer, 0, sizeof(*buffer));
    atomic_init(&buffer->refs, 1);
    buffer->mem = mem;
    pthread_mutex_init(&buffer->lock, NULL);
}

void stk_buffer_finish(struct stk_buffer *buffer)
{
    pthread_mutex_destroy(&buffer->lock);
}

void stk_buffer_set_block(struct stk_buffer *buffer,
                          const struct stk_block *block)
{
    buffer->block = *block;
    atomic_store_explicit(&buffer->grows, block->region != NULL,
                          memory_order_relaxed);
    atomic_store_explicit(&buffer->bytes, block->bytes, memory_order_release);
}

struct stk_buffer *stk_buffer_ref(struct stk_buffer *buffer)
{
    atomic_fetch_add_explicit(&buffer->refs, 1, memory_order_relaxed);
    return buffer;
}

static void release_foreign(struct stk_buffer *buffer)
{
    struct foreign *f = (struct foreign *)buffer;
    if (buffer->mem == PEN_MEM_DMABUF)
        stk_dmabuf_free(&f->source, &buffer->block);
    if (f->release)
        f->release(f->cookie);
    stk_buffer_finish(buffer);
    free(f);
}

bool stk_buffer_unref(struct stk_buffer *buffer)
{
    if (!buffer)
        return true;
    __builtin_prefetch(buffer, 1);
    // Never below 0: one release too many must not take the reference of who
    // is given the buffer next.
    uint32_t refs = atomic_load_explicit(&buffer->refs, memory_order_relaxed);
    do {
        if (refs == 0)
            return false;
    } while (!atomic_compare_exchange_weak_explicit(
        &buffer->refs, &refs, refs - 1, memory_order_acq_rel,
        memory_order_relaxed));
    if (refs > 1)
        return true;
    if (buffer->pool)
        return stk_pool_give(buffer);
    stk_buffer_when_unused(buffer, release_foreign);
    return true;
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
    atomic_store_explicit(&buffer->pointed, true, memory_order_relaxed);
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

// Whether any point may be noted. Who asks has been handed the buffer after
// the uses that matter to him were noted.
static bool pointed(const struct stk_buffer *buffer)
{
    return atomic_load_explicit(&buffer->pointed, memory_order_acquire);
}

// Once all points are forgotten nobody needs the lock any more. Needs it.
static void forget_reached(struct stk_buffer *buffer)
{
    bool any = buffer->written.stream;
    for (unsigned i = 0; i < STK_MAX_READERS; i++)
        any = any || buffer->read[i].stream;
    if (!any)
        atomic_store_explicit(&buffer->pointed, false, memory_order_release);
}

// The same for who asks only, with the lock.
static bool ready(struct stk_buffer *buffer, enum stk_wait_site written,
                  enum stk_wait_site readers, struct stk_point *wait)
{
    if (wait)
        *wait = (struct stk_point){ 0 };
    if (!pointed(buffer))
        return true;
    pthread_mutex_lock(&buffer->lock);
    const struct stk_point *point = first_pending(buffer, written, readers);
    if (!point)
        forget_reached(buffer);
    else if (wait)
        *wait = *point;
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
    if (!pointed(buffer))
        return PEN_OK;
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

bool stk_buffer_free_for(struct stk_buffer *buffer,
                         const struct stk_stream *stream)
{
    if (!pointed(buffer))
        return true;
    pthread_mutex_lock(&buffer->lock);
    bool waits = buffer->written.stream != stream &&
                 pending(&buffer->written, STK_WAIT_NONE);
    for (unsigned i = 0; !waits && i < STK_MAX_READERS; i++) {
        waits = buffer->read[i].stream != stream &&
                pending(&buffer->read[i], STK_WAIT_NONE);
    }
    pthread_mutex_unlock(&buffer->lock);
    return !waits;
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

static enum pen_status missing(const struct pen_foreign *memory,
                               const char *what, struct pen_error *err)
{
    return pen_error_set(err, PEN_E_ARG, 0, pen_mem_name(memory->mem),
                         "foreign memory of type %s (%d) is to be wrapped, "
                         "but %s",
                         pen_mem_name(memory->mem), (int)memory->mem, what);
}

static enum pen_status check_foreign(const struct pen_foreign *memory,
                                     struct pen_error *err)
{
    if (!memory->bytes)
        return missing(memory, "it has 0 bytes", err);
    switch (memory->mem) {
    case PEN_MEM_HOST:
    case PEN_MEM_HOST_PINNED:
        if (!memory->host)
            return missing(memory, "`host` is NULL", err);
        break;
    case PEN_MEM_CUDA_DEVICE:
        if (!memory->address)
            return missing(memory, "`address` is 0", err);
        if (!memory->device)
            return missing(memory, "`device` is NULL", err);
        break;
    case PEN_MEM_DMABUF:
        if (memory->fd < 0)
            return missing(memory, "`fd` is no descriptor", err);
        if (memory->modifier) {
            return pen_error_set(err, PEN_E_UNSUPPORTED, 0, "DMABUF",
                                 "the DMABUF has the modifier 0x%llx; only "
                                 "linear memory (0) can be used",
                                 (unsigned long long)memory->modifier);
        }
        return PEN_OK;
    default:
        return missing(memory, "there is no such type", err);
    }
    const uint64_t start = memory->mem == PEN_MEM_CUDA_DEVICE
                               ? memory->address
                               : (uint64_t)(uintptr_t)memory->host;
    if (memory->bytes - 1 > UINT64_MAX - start) {
        return pen_error_set(err, PEN_E_ARG, 0, pen_mem_name(memory->mem),
                             "%zu bytes from 0x%llx on reach beyond the last "
                             "address",
                             memory->bytes, (unsigned long long)start);
    }
    return PEN_OK;
}

static enum pen_status foreign_block(const struct pen_foreign *memory,
                                     const struct stk_mem_source *source,
                                     struct stk_block *out,
                                     struct pen_error *err)
{
    *out = (struct stk_block){ .bytes = memory->bytes };
    switch (memory->mem) {
    case PEN_MEM_DMABUF:
        return stk_dmabuf_adopt(source, memory->fd, memory->bytes, out, err);
    case PEN_MEM_CUDA_DEVICE:
        out->address = memory->address;
        out->on_stream = true;
        return PEN_OK;
    default:
        out->host = memory->host;
        out->address = (uint64_t)(uintptr_t)memory->host;
        out->on_stream = memory->mem == PEN_MEM_HOST_PINNED;
        return PEN_OK;
    }
}

enum pen_status stk_buffer_wrap(const struct pen_foreign *memory,
                                struct stk_ledger *ledger,
                                struct stk_buffer **out, struct pen_error *err)
{
    *out = NULL;
    PEN_TRY(check_foreign(memory, err));
    struct foreign *f = malloc(sizeof(*f));
    if (!f) {
        return pen_error_set(err, PEN_E_NOMEM, 0, pen_mem_name(memory->mem),
                             "no host memory for a buffer's %zu bytes of "
                             "bookkeeping",
                             sizeof(*f));
    }
    stk_buffer_init(&f->buffer, memory->mem);
    f->source = (struct stk_mem_source){
        .dev = memory->device,
        .ledger = ledger,
        .owner = "foreign",
    };
    f->release = memory->release;
    f->cookie = memory->cookie;

    struct stk_block block;
    const enum pen_status st = foreign_block(memory, &f->source, &block, err);
    if (st) {
        stk_buffer_finish(&f->buffer);
        free(f);
        return st;
    }
    stk_buffer_set_block(&f->buffer, &block);
    *out = &f->buffer;
    return PEN_OK;
}

void stk_buffer_set_release(struct stk_buffer *buffer,
                            void (*release)(void *cookie), void *cookie)
{
    struct foreign *f = (struct foreign *)buffer;
    f->release = release;
    f->cookie = cookie;
}

const struct stk_mem_source *stk_buffer_source(const struct stk_buffer *buffer)
{
    if (buffer->pool)
        return stk_pool_source(buffer->pool);
    return &((const struct foreign *)buffer)->source;
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
