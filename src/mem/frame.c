#include "frame.h"

#include <stdatomic.h>
#include <stdlib.h>

#include "pool.h"
#include "type.h"

#if defined(__has_feature)
#if __has_feature(address_sanitizer)
#define STK_ASAN
#endif
#elif defined(__SANITIZE_ADDRESS__)
#define STK_ASAN
#endif
#ifdef STK_ASAN
#include <sanitizer/asan_interface.h>
#endif

struct stk_frame_pool {
    pthread_mutex_t lock;
    struct pen_frame *free;
    uint32_t in_use;  // frames, and one for the owner of the pool
    bool closed;
    struct stk_ledger *ledger;
    void (*gone)(void *cookie);
    void *cookie;
    uint64_t misuses;
    struct pen_error first;  // of them
};

// --- frames that nobody has --------------------------------------------------

// A frame object that nobody has is not to be touched by anybody else.
static void hide(struct pen_frame *frame)
{
#ifdef STK_ASAN
    ASAN_POISON_MEMORY_REGION(frame, sizeof(*frame));
#else
    (void)frame;
#endif
}

static void show(struct pen_frame *frame)
{
#ifdef STK_ASAN
    ASAN_UNPOISON_MEMORY_REGION(frame, sizeof(*frame));
#else
    (void)frame;
#endif
}

// The storage of frames is kept for a while when their pool is gone: a program
// that releases a frame twice does so soon, and must not free what is
// somebody else's by then.
enum { KEPT = 64 };
static struct {
    pthread_mutex_t lock;
    struct pen_frame *frames[KEPT];
    unsigned next;
} kept = { .lock = PTHREAD_MUTEX_INITIALIZER };
static _Atomic uint64_t late_misuses;

static void keep(struct pen_frame *frame)
{
    frame->pool = NULL;
    hide(frame);
    pthread_mutex_lock(&kept.lock);
    struct pen_frame *oldest = kept.frames[kept.next];
    kept.frames[kept.next] = frame;
    kept.next = (kept.next + 1) % KEPT;
    pthread_mutex_unlock(&kept.lock);
    if (!oldest)
        return;
    show(oldest);
    free(oldest);
}

// Tell that somebody did something to a frame that nobody has.
static enum pen_status misuse(const struct pen_frame *frame, const char *what,
                              struct pen_error *err)
{
    char caps[96];
    struct pen_error text = { 0 };
    pen_caps_text(&frame->caps, caps, sizeof(caps));
    const enum pen_status st = pen_error_set(
        &text, PEN_E_STATE, 0, "frames",
        "frame %llu (%s) was %s after its last reference was released",
        (unsigned long long)frame->index, caps, what);
    if (err)
        *err = text;
    struct stk_frame_pool *pool = frame->pool;
    if (!pool) {
        atomic_fetch_add_explicit(&late_misuses, 1, memory_order_relaxed);
        return st;
    }
    pthread_mutex_lock(&pool->lock);
    if (!pool->misuses++)
        pool->first = text;
    pthread_mutex_unlock(&pool->lock);
    return st;
}

uint64_t stk_frame_pool_misuses(struct stk_frame_pool *pool,
                                struct pen_error *first)
{
    pthread_mutex_lock(&pool->lock);
    const uint64_t misuses = pool->misuses;
    if (first)
        *first = pool->first;
    pthread_mutex_unlock(&pool->lock);
    return misuses;
}

uint64_t stk_frame_late_misuses(void)
{
    return atomic_load_explicit(&late_misuses, memory_order_relaxed);
}

// --- frame objects ----------------------------------------------------------

static struct pen_frame *new_frame(struct stk_frame_pool *pool,
                                   struct pen_error *err)
{
    struct pen_frame *frame = calloc(1, sizeof(*frame));
    if (!frame) {
        pen_error_set(err, PEN_E_NOMEM, 0, "frames",
                      "no host memory for a frame object of %zu bytes",
                      sizeof(*frame));
        return NULL;
    }
    stk_ledger_add(pool->ledger, STK_RES_FRAME, (uint64_t)(uintptr_t)frame,
                   sizeof(*frame), "frames", PEN_HERE);
    return frame;
}

static void free_frame(struct stk_frame_pool *pool, struct pen_frame *frame)
{
    stk_ledger_remove(pool->ledger, STK_RES_FRAME, (uint64_t)(uintptr_t)frame,
                      sizeof(*frame));
    keep(frame);
}

// The free list; needs the lock.
static void push(struct stk_frame_pool *pool, struct pen_frame *frame)
{
    frame->pool = pool;
    frame->next = pool->free;
    pool->free = frame;
    hide(frame);
}

static struct pen_frame *pop(struct stk_frame_pool *pool)
{
    struct pen_frame *frame = pool->free;
    if (!frame)
        return NULL;
    show(frame);
    pool->free = frame->next;
    frame->next = NULL;
    return frame;
}

enum pen_status stk_frame_pool_create(uint32_t preallocate,
                                      struct stk_ledger *ledger,
                                      struct stk_frame_pool **out,
                                      struct pen_error *err)
{
    *out = NULL;
    struct stk_frame_pool *pool = calloc(1, sizeof(*pool));
    if (!pool) {
        return pen_error_set(err, PEN_E_NOMEM, 0, "frames",
                             "no host memory for %zu bytes of bookkeeping",
                             sizeof(*pool));
    }
    pthread_mutex_init(&pool->lock, NULL);
    pool->in_use = 1;
    pool->ledger = ledger;
    for (uint32_t i = 0; i < preallocate; i++) {
        struct pen_frame *frame = new_frame(pool, err);
        if (!frame) {
            stk_frame_pool_destroy(&pool);
            return PEN_E_NOMEM;
        }
        push(pool, frame);
    }
    *out = pool;
    return PEN_OK;
}

void stk_frame_pool_when_gone(struct stk_frame_pool *pool,
                              void (*gone)(void *cookie), void *cookie)
{
    pool->gone = gone;
    pool->cookie = cookie;
}

// Drop a use; needs the lock, which is given back.
static void release_and_unlock(struct stk_frame_pool *pool)
{
    const bool last = --pool->in_use == 0;
    pthread_mutex_unlock(&pool->lock);
    if (!last)
        return;
    void (*gone)(void *cookie) = pool->gone;
    void *cookie = pool->cookie;
    pthread_mutex_destroy(&pool->lock);
    free(pool);
    if (gone)
        gone(cookie);
}

void stk_frame_pool_destroy(struct stk_frame_pool **handle)
{
    struct stk_frame_pool *pool = *handle;
    if (!pool)
        return;
    *handle = NULL;
    pthread_mutex_lock(&pool->lock);
    pool->closed = true;
    struct pen_frame *frame;
    while ((frame = pop(pool)))
        free_frame(pool, frame);
    release_and_unlock(pool);
}

static void recycle(struct pen_frame *frame)
{
    struct stk_frame_pool *pool = frame->pool;
    pthread_mutex_lock(&pool->lock);
    if (pool->closed)
        free_frame(pool, frame);
    else
        push(pool, frame);
    release_and_unlock(pool);
}

static enum pen_status take_object(struct stk_frame_pool *pool,
                                   struct pen_frame **out,
                                   struct pen_error *err)
{
    pthread_mutex_lock(&pool->lock);
    *out = pop(pool);
    pool->in_use++;
    pthread_mutex_unlock(&pool->lock);
    if (!*out)
        *out = new_frame(pool, err);
    if (*out)
        return PEN_OK;
    pthread_mutex_lock(&pool->lock);
    release_and_unlock(pool);
    return PEN_E_NOMEM;
}

enum pen_status stk_frame_make_as(struct stk_frame_pool *pool,
                                  struct stk_buffer *buffer,
                                  const struct pen_caps *caps,
                                  const struct pen_layout *layout,
                                  struct pen_frame **out, struct pen_error *err)
{
    *out = NULL;
    struct pen_frame *frame = NULL;
    PEN_TRY(take_object(pool, &frame, err));
    frame->buffer = buffer;
    frame->caps = *caps;
    frame->layout = *layout;
    frame->index = 0;
    frame->pts = INT64_MIN;
    frame->bytes = layout->bytes;
    frame->pool = pool;
    atomic_store_explicit(&frame->refs, 1, memory_order_relaxed);
    *out = frame;
    return PEN_OK;
}

enum pen_status stk_frame_make(struct stk_frame_pool *pool,
                               struct stk_buffer *buffer,
                               const struct pen_caps *caps,
                               struct pen_frame **out, struct pen_error *err)
{
    *out = NULL;
    struct pen_layout layout;
    PEN_TRY(pen_layout_compute(caps, PEN_PITCH_ALIGN, &layout, err));
    if (layout.bytes > stk_buffer_bytes(buffer)) {
        char text[96];
        pen_caps_text(caps, text, sizeof(text));
        return pen_error_set(err, PEN_E_ARG, 0, "frames",
                             "%s needs %zu bytes, its buffer holds %zu", text,
                             layout.bytes, stk_buffer_bytes(buffer));
    }
    return stk_frame_make_as(pool, buffer, caps, &layout, out, err);
}

_Thread_local struct stk_frame_user *stk_frame_user;

// Neither of the two brings a frame back to life, or takes a reference of who
// is given the object next.
struct pen_frame *pen_frame_ref(struct pen_frame *frame)
{
    uint32_t refs = atomic_load_explicit(&frame->refs, memory_order_relaxed);
    do {
        if (refs == 0) {
            misuse(frame, "referenced", NULL);
            return frame;
        }
    } while (!atomic_compare_exchange_weak_explicit(
        &frame->refs, &refs, refs + 1, memory_order_relaxed,
        memory_order_relaxed));
    if (stk_frame_user)
        stk_frame_user->refs++;
    return frame;
}

void pen_frame_unref(struct pen_frame *frame)
{
    if (!frame)
        return;
    uint32_t refs = atomic_load_explicit(&frame->refs, memory_order_relaxed);
    do {
        if (refs == 0) {
            misuse(frame, "released", NULL);
            return;
        }
    } while (!atomic_compare_exchange_weak_explicit(
        &frame->refs, &refs, refs - 1, memory_order_acq_rel,
        memory_order_relaxed));
    if (stk_frame_user)
        stk_frame_user->refs--;
    if (refs > 1)
        return;
    struct stk_buffer *buffer = frame->buffer;
    frame->buffer = NULL;
    stk_buffer_unref(buffer);
    recycle(frame);
}

// --- what a frame says ------------------------------------------------------

const struct pen_caps *pen_frame_caps(const struct pen_frame *frame)
{
    return &frame->caps;
}

const struct pen_layout *pen_frame_layout(const struct pen_frame *frame)
{
    return &frame->layout;
}

enum pen_mem_type pen_frame_mem(const struct pen_frame *frame)
{
    return frame->buffer ? frame->buffer->mem : PEN_MEM_NONE;
}

uint64_t pen_frame_index(const struct pen_frame *frame)
{
    return frame->index;
}

int64_t pen_frame_pts(const struct pen_frame *frame)
{
    return frame->pts;
}

void pen_frame_set_pts(struct pen_frame *frame, int64_t pts)
{
    frame->pts = pts;
}

static bool has_layout(const struct pen_frame *frame)
{
    return frame->caps.kind == PEN_KIND_RAW_IMAGE;
}

size_t pen_frame_bytes(const struct pen_frame *frame)
{
    return frame->bytes;
}

enum pen_status pen_frame_set_bytes(struct pen_frame *frame, size_t bytes,
                                    struct pen_error *err)
{
    if (has_layout(frame)) {
        return pen_error_set(err, PEN_E_ARG, 0, pen_kind_name(frame->caps.kind),
                             "the size of a picture follows from its caps "
                             "(%zu bytes) and cannot be set to %zu",
                             frame->layout.bytes, bytes);
    }
    if (!frame->buffer)
        return misuse(frame, "given a size", err);
    if (bytes > stk_buffer_bytes(frame->buffer)) {
        return pen_error_set(err, PEN_E_ARG, 0, pen_kind_name(frame->caps.kind),
                             "a payload of %zu bytes does not fit into the "
                             "buffer of %zu",
                             bytes, stk_buffer_bytes(frame->buffer));
    }
    frame->bytes = bytes;
    return PEN_OK;
}

// --- views ------------------------------------------------------------------

static enum pen_status check_access(const struct pen_frame *frame,
                                    unsigned access, struct pen_error *err)
{
    if (!frame->buffer || atomic_load(&frame->refs) == 0)
        return misuse(frame, "acquired", err);
    const char *mem = pen_mem_name(frame->buffer->mem);
    if (!access || (access & ~(unsigned)(PEN_READ | PEN_WRITE))) {
        return pen_error_set(err, PEN_E_ARG, 0, mem,
                             "access %u is none of PEN_READ, PEN_WRITE and "
                             "both",
                             access);
    }
    if (!(access & PEN_WRITE))
        return PEN_OK;
    const unsigned frame_refs = atomic_load(&frame->refs);
    const unsigned buffer_refs = atomic_load(&frame->buffer->refs);
    if (frame_refs > 1 || buffer_refs > 1) {
        return pen_error_set(err, PEN_E_STATE, 0, mem,
                             "frame %llu is shared (%u references, its buffer "
                             "%u) and cannot be written; write to a frame of "
                             "your own",
                             (unsigned long long)frame->index, frame_refs,
                             buffer_refs);
    }
    return PEN_OK;
}

static void fill_view(const struct pen_frame *frame, void *host,
                      struct pen_view *out)
{
    const struct stk_buffer *buffer = frame->buffer;
    const struct pen_layout *layout = &frame->layout;
    *out = (struct pen_view){
        .mem = buffer->mem,
        .format = frame->caps.format,
        .width = frame->caps.width,
        .height = frame->caps.height,
        .planes = layout->planes,
        .bytes = has_layout(frame) ? stk_buffer_bytes(buffer) : frame->bytes,
    };
    // A DMABUF may have both addresses, and each is for one place.
    const uint64_t address =
        host ? (uint64_t)(uintptr_t)host : buffer->block.address;
    for (uint32_t i = 0; i < layout->planes; i++) {
        const size_t offset = layout->plane[i].offset;
        out->plane[i] = (struct pen_plane){
            .host = host ? (char *)host + offset : NULL,
            .address = address + offset,
            .pitch = layout->plane[i].pitch,
            .row_bytes = layout->plane[i].row_bytes,
            .rows = layout->plane[i].rows,
        };
    }
    if (!has_layout(frame)) {
        out->format = PEN_FMT_NONE;
        out->plane[0].pitch = frame->bytes;
        out->plane[0].row_bytes = frame->bytes;
    }
}

enum pen_status stk_frame_on_host(struct pen_frame *frame, unsigned access,
                                  struct pen_view *out, struct pen_error *err)
{
    *out = (struct pen_view){ 0 };
    PEN_TRY(check_access(frame, access, err));

    const char *mem = pen_mem_name(frame->buffer->mem);
    if (!stk_buffer_on_host(frame->buffer)) {
        return pen_error_set(err, PEN_E_STATE, 0, mem,
                             "the host has no access to a frame in %s; it "
                             "takes a CudaMemCopy of kind DeviceToHost",
                             mem);
    }
    const struct pen_device *dev = stk_buffer_source(frame->buffer)->dev;
    if (!stk_buffer_host_ready(frame->buffer, access, NULL)) {
        return pen_error_set(err, PEN_E_STATE, 0, mem,
                             "frame %llu is not ready for the host: its "
                             "point on the stream is not reached",
                             (unsigned long long)frame->index);
    }
    // All points of a lost device count as reached: what it should have
    // written is not to be taken for good.
    if (stk_buffer_on_stream(frame->buffer) && dev && stk_device_lost(dev)) {
        return pen_error_set(err, PEN_E_LOST, 0, mem,
                             "frame %llu may be incomplete: the device was "
                             "lost by an earlier error",
                             (unsigned long long)frame->index);
    }
    const struct stk_mem_type *type = stk_mem_type(frame->buffer->mem);
    if (type->sync)
        PEN_TRY(type->sync(&frame->buffer->block, access, true, err));
    fill_view(frame, frame->buffer->block.host, out);
    return PEN_OK;
}

enum pen_status stk_frame_host_done(struct pen_frame *frame, unsigned access,
                                    struct pen_error *err)
{
    if (!frame->buffer)
        return misuse(frame, "accessed", err);
    const struct stk_mem_type *type = stk_mem_type(frame->buffer->mem);
    return type->sync ? type->sync(&frame->buffer->block, access, false, err)
                      : PEN_OK;
}

enum pen_status stk_frame_on_stream(struct pen_frame *frame,
                                    struct stk_stream *stream, unsigned access,
                                    struct pen_view *out, struct pen_error *err)
{
    *out = (struct pen_view){ 0 };
    PEN_TRY(check_access(frame, access, err));

    const char *mem = pen_mem_name(frame->buffer->mem);
    if (!stk_buffer_on_stream(frame->buffer)) {
        return pen_error_set(err, PEN_E_STATE, 0, mem,
                             "a stream has no access to a frame in %s; it "
                             "takes HOST_PINNED or CUDA_DEVICE",
                             mem);
    }
    PEN_TRY(stk_buffer_stream_ready(frame->buffer, stream, access, err));
    const bool dmabuf = frame->buffer->mem == PEN_MEM_DMABUF;
    fill_view(frame, dmabuf ? NULL : frame->buffer->block.host, out);
    return PEN_OK;
}

// --- transfers --------------------------------------------------------------

static bool on_stream(const struct pen_view *view)
{
    if (view->mem == PEN_MEM_DMABUF)
        return !view->plane[0].host;  // acquired for a stream
    return view->mem == PEN_MEM_HOST_PINNED || view->mem == PEN_MEM_CUDA_DEVICE;
}

static enum pen_status copy_kind(const struct pen_view *dst,
                                 const struct pen_view *src,
                                 enum stk_copy_kind *out, struct pen_error *err)
{
    if (!on_stream(src) || !on_stream(dst)) {
        return pen_error_set(err, PEN_E_UNSUPPORTED, 0, "transfer",
                             "no stream copies from %s to %s: both ends must "
                             "be HOST_PINNED or CUDA_DEVICE",
                             pen_mem_name(src->mem), pen_mem_name(dst->mem));
    }
    const bool from_host = src->mem == PEN_MEM_HOST_PINNED;
    const bool to_host = dst->mem == PEN_MEM_HOST_PINNED;
    if (from_host && to_host) {
        return pen_error_set(err, PEN_E_UNSUPPORTED, 0, "transfer",
                             "a copy from host to host memory is no work for "
                             "a stream");
    }
    *out = from_host ? STK_COPY_H2D : to_host ? STK_COPY_D2H : STK_COPY_D2D;
    return PEN_OK;
}

static enum pen_status check_shapes(const struct pen_view *dst,
                                    const struct pen_view *src,
                                    struct pen_error *err)
{
    bool same = dst->format == src->format && dst->planes == src->planes &&
                dst->width == src->width && dst->height == src->height;
    for (uint32_t i = 0; same && i < src->planes; i++) {
        same = dst->plane[i].row_bytes == src->plane[i].row_bytes &&
               dst->plane[i].rows == src->plane[i].rows;
    }
    if (same)
        return PEN_OK;
    const struct pen_format_info *from = pen_format_info(src->format);
    const struct pen_format_info *to = pen_format_info(dst->format);
    return pen_error_set(err, PEN_E_ARG, 0, "transfer",
                         "the ends differ: %s %dx%d to %s %dx%d",
                         from ? from->name : "bytes", src->width, src->height,
                         to ? to->name : "bytes", dst->width, dst->height);
}

// Whether every byte between the first and the last sample lies at the same
// distance from the start on both sides.
static bool same_layout(const struct pen_view *a, const struct pen_view *b)
{
    for (uint32_t i = 0; i < a->planes; i++) {
        const struct pen_plane *p = &a->plane[i], *q = &b->plane[i];
        // Planes in ascending order without overlap, else one copy would not
        // cover them.
        const bool ascending =
            i == 0 ||
            p->address >= p[-1].address + p[-1].pitch * (size_t)p[-1].rows;
        if (!ascending || p->pitch != q->pitch ||
            p->address - a->plane[0].address !=
                q->address - b->plane[0].address)
            return false;
    }
    return true;
}

static enum pen_status copy_plane(struct stk_stream *stream,
                                  enum stk_copy_kind kind,
                                  const struct pen_plane *dst,
                                  const struct pen_plane *src,
                                  struct pen_error *err)
{
    const size_t rows = (size_t)src->rows;
    const bool tight =
        src->pitch == src->row_bytes && dst->pitch == dst->row_bytes;
    if (tight || rows == 1) {
        return stk_stream_copy(stream, kind, dst->address, src->address,
                               src->row_bytes * rows, err);
    }
    return stk_stream_copy_2d(stream, kind, dst->address, dst->pitch,
                              src->address, src->pitch, src->row_bytes, rows,
                              err);
}

enum pen_status stk_transfer(struct stk_stream *stream,
                             const struct pen_view *dst,
                             const struct pen_view *src, struct pen_error *err)
{
    enum stk_copy_kind kind = STK_COPY_D2D;
    PEN_TRY(copy_kind(dst, src, &kind, err));

    if (src->format == PEN_FMT_NONE && dst->format == PEN_FMT_NONE) {
        if (src->bytes > dst->bytes) {
            return pen_error_set(err, PEN_E_ARG, 0, "transfer",
                                 "a payload of %zu bytes does not fit into "
                                 "%zu",
                                 src->bytes, dst->bytes);
        }
        if (!src->bytes)
            return PEN_OK;
        return stk_stream_copy(stream, kind, dst->plane[0].address,
                               src->plane[0].address, src->bytes, err);
    }

    PEN_TRY(check_shapes(dst, src, err));
    if (same_layout(dst, src)) {
        // Up to the last sample: what follows it need not be ours.
        const struct pen_plane *last = &src->plane[src->planes - 1];
        const size_t bytes = (size_t)(last->address - src->plane[0].address) +
                             last->pitch * (size_t)(last->rows - 1) +
                             last->row_bytes;
        return stk_stream_copy(stream, kind, dst->plane[0].address,
                               src->plane[0].address, bytes, err);
    }
    for (uint32_t i = 0; i < src->planes; i++)
        PEN_TRY(copy_plane(stream, kind, &dst->plane[i], &src->plane[i], err));
    return PEN_OK;
}
