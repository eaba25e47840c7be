// What a module may call: the part of module.h "for open(), prepare(), ...".

#include <stdlib.h>
#include <string.h>

#include <penstock/module.h>

#include "run.h"

const void *pen_module_params(const struct pen_module *m)
{
    return m->params;
}

void *pen_module_state(struct pen_module *m)
{
    return m->state;
}

const char *pen_module_id(const struct pen_module *m)
{
    return m->id;
}

const struct pen_log *pen_module_log(const struct pen_module *m)
{
    return &m->pipeline->log;
}

uintptr_t pen_module_stream(const struct pen_module *m)
{
    return m->cuda ? stk_stream_handle(m->pipeline->stream) : 0;
}

// --- memory -----------------------------------------------------------------

static void block_add(struct pen_module *m, struct stk_module_block *b)
{
    pthread_mutex_lock(&m->block_lock);
    b->next = m->blocks.next;
    b->prev = &m->blocks;
    b->next->prev = b;
    m->blocks.next = b;
    pthread_mutex_unlock(&m->block_lock);
}

static void block_remove(struct pen_module *m, struct stk_module_block *b)
{
    pthread_mutex_lock(&m->block_lock);
    b->prev->next = b->next;
    b->next->prev = b->prev;
    pthread_mutex_unlock(&m->block_lock);
}

// The header stands in front of the memory, which stays aligned to it.
enum { BLOCK_ALIGN = STK_WORKSPACE_ALIGN };
PEN_STATIC_ASSERT(sizeof(struct stk_module_block) <= BLOCK_ALIGN,
                  "the header does not fit");

static enum pen_status no_workspace(const struct pen_module *m, size_t bytes,
                                    struct pen_error *err)
{
    return pen_error_set(err, PEN_E_NOMEM, 0, m->id,
                         "no memory for %zu bytes of workspace", bytes);
}

enum pen_status pen_module_alloc(struct pen_module *m, size_t bytes, void **out,
                                 struct pen_error *err)
{
    struct stk_ledger *ledger = m->pipeline->ledger;
    *out = NULL;
    size_t all = 0;
    if (!stk_add(bytes, BLOCK_ALIGN, &all) ||
        !stk_align(all, BLOCK_ALIGN, &all))
        return no_workspace(m, bytes, err);
    PEN_TRY(stk_ledger_reserve(ledger, STK_RES_HOST, all, m->id, err));
    char *memory = aligned_alloc(BLOCK_ALIGN, all);
    if (!memory) {
        stk_ledger_cancel(ledger, STK_RES_HOST, all);
        return no_workspace(m, bytes, err);
    }
    memset(memory, 0, all);
    struct stk_module_block *b = (struct stk_module_block *)memory;
    b->bytes = all;
    stk_ledger_enter(ledger, STK_RES_HOST, (uintptr_t)b, all, m->id, PEN_HERE);
    block_add(m, b);
    *out = memory + BLOCK_ALIGN;
    return PEN_OK;
}

uint64_t pen_module_planned(const struct pen_module *m, enum pen_mem_type mem)
{
    return (unsigned)mem < PEN_MEM_COUNT ? m->workspace[mem] : 0;
}

void pen_module_free(struct pen_module *m, void *memory)
{
    if (!memory)
        return;
    struct stk_module_block *b =
        (struct stk_module_block *)((char *)memory - BLOCK_ALIGN);
    block_remove(m, b);
    stk_ledger_remove(m->pipeline->ledger, STK_RES_HOST, (uintptr_t)b,
                      b->bytes);
    free(b);
}

enum pen_status pen_module_alloc_device(struct pen_module *m, size_t bytes,
                                        uint64_t *out, struct pen_error *err)
{
    struct pen_pipeline *p = m->pipeline;
    *out = 0;
    if (!m->cuda)
        return pen_error_set(err, PEN_E_STATE, 0, m->id,
                             "device memory is for classes with "
                             "PEN_CLASS_CUDA");
    struct stk_module_block *b = calloc(1, sizeof(*b));
    if (!b)
        return pen_error_set(err, PEN_E_NOMEM, 0, m->id, "out of memory");
    b->bytes = bytes;
    enum pen_status st =
        stk_device_alloc(p->device, bytes, m->id, PEN_HERE, &b->address, err);
    if (st != PEN_OK) {
        free(b);
        return st;
    }
    block_add(m, b);
    *out = b->address;

    // Zeroed like host memory. Whatever uses it comes later on the stream.
    st = stk_stream_fill(p->stream, *out, 0, bytes, err);
    if (st != PEN_OK) {
        pen_module_free_device(m, *out);
        *out = 0;
    }
    return st;
}

static struct stk_module_block *find_device_block(struct pen_module *m,
                                                  uint64_t address)
{
    pthread_mutex_lock(&m->block_lock);
    struct stk_module_block *b = m->blocks.next;
    while (b != &m->blocks && b->address != address)
        b = b->next;
    pthread_mutex_unlock(&m->block_lock);
    return b != &m->blocks ? b : NULL;
}

void pen_module_free_device(struct pen_module *m, uint64_t address)
{
    struct stk_module_block *b = address ? find_device_block(m, address) : NULL;
    if (!b)
        return;
    block_remove(m, b);
    stk_device_free(m->pipeline->device, b->address, b->bytes);
    free(b);
}

void pen_module_count_library(struct pen_module *m, uint64_t allocations)
{
    struct pen_pipeline *p = m->pipeline;
    if (stk_ledger_steady(p->ledger))
        atomic_fetch_add(&p->library_allocations, allocations);
}

// --- filling device memory --------------------------------------------------

static bool is_free(const struct stk_staging *s)
{
    return !s->in_call && !stk_point_pending(s->point, STK_WAIT_STAGING);
}

static void drop_staging(struct pen_module *m, struct stk_staging **at)
{
    struct stk_staging *s = *at;
    *at = s->next;
    stk_pinned_free(m->pipeline->device, s->memory, s->bytes);
    free(s);
}

static enum pen_status add_staging(struct pen_module *m, size_t bytes,
                                   struct pen_error *err)
{
    struct stk_staging *s = calloc(1, sizeof(*s));
    if (!s)
        return pen_error_set(err, PEN_E_NOMEM, 0, m->id, "out of memory");
    const enum pen_status st = stk_pinned_alloc(
        m->pipeline->device, bytes, m->id, PEN_HERE, &s->memory, err);
    if (st != PEN_OK) {
        free(s);
        return st;
    }
    s->bytes = bytes;
    s->next = m->staging;
    m->staging = s;
    return PEN_OK;
}

// A block that no queued copy reads any more. Those that are too small since
// the plan has grown go, so that no more is held than it says; that may wait
// for the device, as the growth of a pool does.
static struct stk_staging *find_staging(struct pen_module *m, size_t bytes)
{
    struct stk_staging **at = &m->staging;
    while (*at) {
        struct stk_staging *s = *at;
        if (is_free(s) && s->bytes >= bytes)
            return s;
        if (is_free(s) && s->bytes < m->workspace[PEN_MEM_HOST_PINNED])
            drop_staging(m, at);
        else
            at = &s->next;
    }
    return NULL;
}

// Whether a block is one of those that a module goes round with. The smaller
// ones of a module that planned none are not, and kept until it closes.
static bool is_current(const struct pen_module *m, const struct stk_staging *s)
{
    return m->workspace[PEN_MEM_HOST_PINNED] || s->bytes == m->staging->bytes;
}

static uint32_t count_staging(const struct pen_module *m)
{
    uint32_t count = 0;
    for (const struct stk_staging *s = m->staging; s; s = s->next)
        count += is_current(m, s);
    return count;
}

// The block whose point comes first; NULL: none waits for one.
static struct stk_staging *oldest_staging(const struct pen_module *m)
{
    struct stk_staging *oldest = NULL;
    for (struct stk_staging *s = m->staging; s; s = s->next) {
        if (is_current(m, s) && !s->in_call &&
            (!oldest || s->point.seq < oldest->point.seq))
            oldest = s;
    }
    return oldest;
}

bool stk_staging_ready(struct pen_module *m, struct stk_point *wait)
{
    if (count_staging(m) < STK_STAGING_BLOCKS)
        return true;
    for (const struct stk_staging *s = m->staging; s; s = s->next) {
        if (is_current(m, s) && is_free(s))
            return true;
    }
    const struct stk_staging *oldest = oldest_staging(m);
    if (!oldest)
        return true;
    *wait = oldest->point;
    return false;
}

// Whether a point will be recorded after what is queued now: in the calls of a
// frame. In others (open, drain, close) the thread may wait.
static bool of_a_frame(const struct pen_module *m)
{
    return m->stage != STK_STAGE_FREE && m->stage != STK_STAGE_ENDING;
}

// A block for `bytes`. All that the plan holds are made at once, so that what
// fills every frame allocates with the first.
static enum pen_status take_staging(struct pen_module *m, size_t bytes,
                                    struct stk_staging **out,
                                    struct pen_error *err)
{
    const size_t planned = (size_t)m->workspace[PEN_MEM_HOST_PINNED];
    *out = find_staging(m, bytes);
    const struct stk_staging *oldest = oldest_staging(m);
    const bool helps = oldest && (planned || oldest->bytes >= bytes);
    if (!*out && helps && !of_a_frame(m) &&
        count_staging(m) >= STK_STAGING_BLOCKS) {
        PEN_TRY(stk_point_wait(oldest->point, STK_WAIT_STAGING, err));
        *out = find_staging(m, bytes);
    }
    if (*out)
        return PEN_OK;
    // Who planned nothing gets the size before or at least twice of it, so that
    // there are few sizes.
    size_t size = bytes < planned ? planned : bytes;
    const size_t before = m->staging ? m->staging->bytes : 0;
    if (!planned && size <= before)
        size = before;
    else if (!planned && size < 2 * before)
        size = 2 * before;
    do {
        PEN_TRY(add_staging(m, size, err));
    } while (bytes <= planned && count_staging(m) < STK_STAGING_BLOCKS);
    *out = m->staging;
    return PEN_OK;
}

// Outside of a frame's calls (open, drain, close): no call records a point
// later, and the thread may wait.
static enum pen_status record_now(struct pen_pipeline *p, struct stk_staging *s,
                                  struct pen_error *err)
{
    struct stk_point point = { 0 };
    enum pen_status st = stk_stream_record(p->stream, &point, err);
    while (st == PEN_AGAIN) {
        PEN_TRY(stk_point_wait(point, STK_WAIT_EVENT_REUSE, err));
        st = stk_stream_record(p->stream, &point, err);
    }
    if (st == PEN_OK)
        s->point = point;
    return st;
}

enum pen_status stk_device_fine(struct pen_pipeline *p, struct pen_error *err)
{
    if (!p->device || !stk_device_lost(p->device))
        return PEN_OK;
    // The refusal tells what the device was lost by.
    STK_SCOPE scope = { 0 };
    PEN_TRY(stk_scope_enter(&scope, p->device, err));
    return pen_error_set(err, PEN_E_LOST, 0, "device",
                         "the device is no longer usable");
}

enum pen_status pen_module_fill_device(struct pen_module *m, uint64_t address,
                                       const void *bytes, size_t count,
                                       struct pen_error *err)
{
    struct pen_pipeline *p = m->pipeline;
    if (!m->cuda)
        return pen_error_set(err, PEN_E_STATE, 0, m->id,
                             "device memory is for classes with "
                             "PEN_CLASS_CUDA");
    if (!count)
        return PEN_OK;
    struct stk_staging *s = NULL;
    const enum pen_status taken = take_staging(m, count, &s, err);
    if (!s)
        return taken;
    // Every point of a lost device counts as reached, but copies may go on.
    PEN_TRY(stk_device_fine(p, err));
    memcpy(s->memory, bytes, count);
    // From here on the copy may be under way whatever is returned.
    s->in_call = true;
    PEN_TRY(stk_stream_copy(p->stream, STK_COPY_H2D, address,
                            (uintptr_t)s->memory, count, err));
    if (of_a_frame(m)) {
        m->io.stream_used = true;
        return PEN_OK;
    }
    PEN_TRY(record_now(p, s, err));
    s->in_call = false;
    return PEN_OK;
}

void stk_module_reclaim(struct pen_module *m)
{
    struct pen_pipeline *p = m->pipeline;
    while (m->staging)
        drop_staging(m, &m->staging);
    while (m->blocks.next && m->blocks.next != &m->blocks) {
        struct stk_module_block *b = m->blocks.next;
        if (b->address) {
            stk_pipeline_leak(p, STK_RES_CUDA_DEVICE, m->id,
                              "pen_module_alloc_device", b->bytes, 1);
            pen_module_free_device(m, b->address);
        } else {
            stk_pipeline_leak(p, STK_RES_HOST, m->id, "pen_module_alloc",
                              b->bytes, 1);
            pen_module_free(m, (char *)b + BLOCK_ALIGN);
        }
    }
}

// --- the frames of a call ---------------------------------------------------

struct pen_frame *pen_input(const struct pen_io *io, uint32_t pin)
{
    return pin < PEN_MAX_PINS ? io->in[pin] : NULL;
}

struct pen_frame *pen_output(const struct pen_io *io, uint32_t pin)
{
    return pin < PEN_MAX_PINS && io->prepared ? io->out[pin] : NULL;
}

uint64_t pen_io_index(const struct pen_io *io)
{
    return io->index;
}

// A module gets its io as constant; what it asks for is noted behind it.
static struct pen_io *own(const struct pen_io *io)
{
    return &io->module->io;
}

static bool of_this_call(const struct pen_io *io, const struct pen_frame *frame)
{
    for (unsigned i = 0; frame && i < PEN_MAX_PINS; i++) {
        if (io->in[i] == frame || io->out[i] == frame)
            return true;
    }
    return false;
}

static void note_use(struct pen_io *io, struct pen_frame *frame,
                     unsigned access)
{
    io->stream_used = true;
    for (uint32_t i = 0; i < io->use_count; i++) {
        if (io->uses[i].frame == frame) {
            io->uses[i].access |= access;
            return;
        }
    }
    io->uses[io->use_count++] = (struct stk_use){ frame, access };
}

// Note that the host's access to a DMABUF has begun, to be ended after the
// call; what is noted already ends at once what was begun once more.
static enum pen_status note_shown(struct pen_io *io, struct pen_frame *frame,
                                  unsigned access, struct pen_error *err)
{
    for (uint32_t i = 0; i < io->shown_count; i++) {
        if (io->shown[i].frame == frame && io->shown[i].access == access)
            return stk_frame_host_done(frame, access, err);
    }
    io->shown[io->shown_count++] = (struct stk_use){ frame, access };
    return PEN_OK;
}

enum pen_status stk_io_hide(struct pen_io *io, struct pen_error *err)
{
    enum pen_status st = PEN_OK;
    while (io->shown_count) {
        const struct stk_use *use = &io->shown[--io->shown_count];
        struct pen_error why = { 0 };
        const enum pen_status one =
            stk_frame_host_done(use->frame, use->access, &why);
        if (one == PEN_OK || st != PEN_OK)
            continue;
        st = one;
        *err = why;
    }
    return st;
}

enum pen_status pen_acquire(const struct pen_io *io, struct pen_frame *frame,
                            enum pen_place place, unsigned access,
                            struct pen_view *out, struct pen_error *err)
{
    struct pen_module *m = io->module;
    if (!of_this_call(io, frame))
        return pen_error_set(err, PEN_E_STATE, 0, m->id,
                             "acquired a frame that is not one of this call");
    switch (place) {
    case PEN_ON_HOST:
        PEN_TRY(stk_frame_on_host(frame, access, out, err));
        return frame->buffer->mem == PEN_MEM_DMABUF
                   ? note_shown(own(io), frame, access, err)
                   : PEN_OK;
    case PEN_ON_STREAM:
        if (!m->cuda)
            return pen_error_set(err, PEN_E_STATE, 0, m->id,
                                 "acquired a frame on the stream without "
                                 "PEN_CLASS_CUDA");
        PEN_TRY(
            stk_frame_on_stream(frame, m->pipeline->stream, access, out, err));
        note_use(own(io), frame, access);
        return PEN_OK;
    }
    return pen_error_set(err, PEN_E_ARG, 0, m->id,
                         "%d is no place to acquire a frame", (int)place);
}

enum pen_status pen_launch(const struct pen_io *io,
                           const struct pen_kernel_image *image,
                           uint32_t kernel, const struct pen_grid *grid,
                           const void *args, size_t args_size,
                           struct pen_error *err)
{
    struct pen_module *m = io->module;
    bool named = false;
    for (size_t i = 0; m->cls->kernels && m->cls->kernels[i]; i++)
        named = named || m->cls->kernels[i] == image;
    if (!named || !m->cuda)
        return pen_error_set(err, PEN_E_ARG, 0, m->id,
                             "launched a kernel of an image that its class "
                             "does not name");
    struct stk_kernels *kernels = stk_kernels_find(m->pipeline->device, image);
    if (!kernels)
        return pen_error_set(err, PEN_E_STATE, 0, m->id,
                             "the kernels \"%s\" are not loaded", image->name);
    own(io)->stream_used = true;
    return stk_stream_launch(m->pipeline->stream, kernels, kernel, grid, args,
                             args_size, err);
}

// --- copies -----------------------------------------------------------------

static bool same_picture(const struct pen_view *a, const struct pen_view *b)
{
    if (a->format != b->format || a->width != b->width ||
        a->height != b->height || a->planes != b->planes)
        return false;
    for (uint32_t i = 0; i < a->planes; i++) {
        if (a->plane[i].row_bytes != b->plane[i].row_bytes ||
            a->plane[i].rows != b->plane[i].rows)
            return false;
    }
    return true;
}

static uint64_t samples(const struct pen_view *view)
{
    uint64_t bytes = 0;
    for (uint32_t i = 0; i < view->planes; i++)
        bytes +=
            (uint64_t)view->plane[i].row_bytes * (uint64_t)view->plane[i].rows;
    return view->format ? bytes : view->bytes;
}

// Both ends are host memory: the thread that asks copies.
static enum pen_status copy_on_host(struct pen_module *m,
                                    const struct pen_view *dst,
                                    const struct pen_view *src,
                                    struct pen_error *err)
{
    if (!src->format) {
        if (src->bytes > dst->bytes)
            return pen_error_set(err, PEN_E_ARG, 0, m->id,
                                 "copies %zu bytes into a frame of %zu",
                                 src->bytes, dst->bytes);
        memcpy(dst->plane[0].host, src->plane[0].host, src->bytes);
        return PEN_OK;
    }
    if (!same_picture(dst, src))
        return pen_error_set(err, PEN_E_ARG, 0, m->id,
                             "copies between pictures of different formats "
                             "or sizes");
    for (uint32_t i = 0; i < src->planes; i++) {
        const char *from = src->plane[i].host;
        char *to = dst->plane[i].host;
        for (int32_t y = 0; y < src->plane[i].rows; y++) {
            memcpy(to, from, src->plane[i].row_bytes);
            from += src->plane[i].pitch;
            to += dst->plane[i].pitch;
        }
    }
    return PEN_OK;
}

// Whether a view was acquired on the stream in this call.
static bool on_stream(const struct pen_io *io, const struct pen_view *view)
{
    const uint64_t at = view->plane[0].address;
    for (uint32_t i = 0; i < io->use_count; i++) {
        const struct stk_buffer *b = io->uses[i].frame->buffer;
        if (at - b->block.address < stk_buffer_bytes(b))
            return true;
    }
    return false;
}

// DMABUFs are on the side from which they were acquired.
static bool on_device(const struct pen_io *io, const struct pen_view *view)
{
    return view->mem == PEN_MEM_CUDA_DEVICE ||
           (view->mem == PEN_MEM_DMABUF && on_stream(io, view));
}

enum pen_status pen_copy(const struct pen_io *io, const struct pen_view *dst,
                         const struct pen_view *src, struct pen_error *err)
{
    struct pen_module *m = io->module;
    struct pen_pipeline *p = m->pipeline;
    const bool to_device = on_device(io, dst);
    const bool from_device = on_device(io, src);
    unsigned kind = 0;
    if (!to_device && !from_device) {
        if (on_stream(io, dst) || on_stream(io, src))
            return pen_error_set(err, PEN_E_UNSUPPORTED, 0, m->id,
                                 "queues a copy from host to host; acquire "
                                 "both frames on the host");
        PEN_TRY(copy_on_host(m, dst, src, err));
    } else {
        if (!m->cuda)
            return pen_error_set(err, PEN_E_STATE, 0, m->id,
                                 "copies on the stream without "
                                 "PEN_CLASS_CUDA");
        own(io)->stream_used = true;
        kind = !from_device ? STK_COPY_H2D
               : !to_device ? STK_COPY_D2H
                            : STK_COPY_D2D;
        PEN_TRY(stk_transfer(p->stream, dst, src, err));
    }
    atomic_fetch_add_explicit(&p->copies[kind], 1, memory_order_relaxed);
    atomic_fetch_add_explicit(&p->copy_bytes[kind], samples(src),
                              memory_order_relaxed);
    return PEN_OK;
}

void pen_forward(const struct pen_io *io, uint32_t in_pin, uint32_t out_pin)
{
    if (in_pin < PEN_MAX_PINS && out_pin < PEN_MAX_PINS)
        own(io)->forward[out_pin] = (int)in_pin;
}

// --- parking ----------------------------------------------------------------

static enum pen_status not_cuda(const struct pen_module *m,
                                struct pen_error *err)
{
    return pen_error_set(err, PEN_E_STATE, 0, m->id,
                         "parks on the device without PEN_CLASS_CUDA");
}

enum pen_status pen_park_on_stream(const struct pen_io *io, bool *reached,
                                   struct pen_error *err)
{
    struct pen_module *m = io->module;
    *reached = atomic_load(&m->park) == STK_PARK_REACHED;
    if (*reached)
        return PEN_OK;
    if (!m->cuda)
        return not_cuda(m, err);
    struct stk_point point = { 0 };
    const enum pen_status st =
        stk_stream_record(m->pipeline->stream, &point, err);
    if (st < 0)
        return st;
    m->park_point = point;
    atomic_store(&m->park, st == PEN_AGAIN ? STK_PARK_ROOM : STK_PARK_STREAM);
    return PEN_OK;
}

enum pen_status pen_park_on_context(const struct pen_io *io, bool *reached,
                                    struct pen_error *err)
{
    struct pen_module *m = io->module;
    *reached = atomic_load(&m->park) == STK_PARK_REACHED;
    if (*reached)
        return PEN_OK;
    if (!m->cuda)
        return not_cuda(m, err);
    atomic_store(&m->park, STK_PARK_CONTEXT);
    return PEN_OK;
}
