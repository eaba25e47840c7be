// Frames over memory that is not ours, and DMABUF frames for others.

#include <stdlib.h>

#include "../base/fd.h"
#include "../base/str.h"
#include "dmabuf.h"
#include "frame.h"

// --- where the planes lie ---------------------------------------------------

static size_t sample_bytes(enum pen_format format)
{
    const struct pen_format_info *info = pen_format_info(format);
    if (!info)
        return 1;
    return info->depth > 16 ? 4 : info->depth > 8 ? 2 : 1;
}

// The first byte after the last sample of a plane.
static bool plane_end(const struct pen_layout *layout, uint32_t i, size_t *end)
{
    size_t rows = 0;
    return stk_mul(layout->plane[i].pitch, (size_t)layout->plane[i].rows - 1,
                   &rows) &&
           stk_add(layout->plane[i].offset, rows, &rows) &&
           stk_add(rows, layout->plane[i].row_bytes, end);
}

static enum pen_status check_plane(const struct pen_caps *caps,
                                   const struct pen_foreign *memory, uint32_t i,
                                   size_t *end, struct pen_error *err)
{
    const struct pen_layout *layout = &memory->layout;
    const size_t offset = layout->plane[i].offset;
    const size_t pitch = layout->plane[i].pitch;
    const size_t row = layout->plane[i].row_bytes;
    const size_t unit = sample_bytes(caps->format);
    if (layout->plane[i].rows > 1 && pitch < row) {
        return pen_error_set(err, PEN_E_ARG, 0, "layout",
                             "plane %u has rows of %zu bytes, but they are "
                             "said to follow each other after %zu",
                             i, row, pitch);
    }
    if (offset % unit || pitch % unit) {
        return pen_error_set(err, PEN_E_ARG, 0, "layout",
                             "plane %u begins at byte %zu with a pitch of "
                             "%zu; both must be multiples of a sample's %zu "
                             "bytes",
                             i, offset, pitch, unit);
    }
    if (!plane_end(layout, i, end) || *end > memory->bytes) {
        return pen_error_set(err, PEN_E_ARG, 0, "layout",
                             "plane %u (%d rows of %zu bytes, pitch %zu, from "
                             "byte %zu on) does not fit into the memory's %zu "
                             "bytes",
                             i, layout->plane[i].rows, row, pitch, offset,
                             memory->bytes);
    }
    for (uint32_t k = 0; k < i; k++) {
        size_t other = 0;
        if (plane_end(layout, k, &other) && offset < other &&
            layout->plane[k].offset < *end) {
            return pen_error_set(err, PEN_E_ARG, 0, "layout",
                                 "plane %u (bytes %zu to %zu) overlaps plane "
                                 "%u (bytes %zu to %zu)",
                                 i, offset, *end, k, layout->plane[k].offset,
                                 other);
        }
    }
    return PEN_OK;
}

// The layout that the caller gave, if it fits caps and memory.
static enum pen_status check_layout(const struct pen_caps *caps,
                                    const struct pen_foreign *memory,
                                    struct pen_layout *out,
                                    struct pen_error *err)
{
    struct pen_layout tight;
    PEN_TRY(pen_layout_compute(caps, 1, &tight, err));
    const struct pen_layout *layout = &memory->layout;
    bool same = layout->planes == tight.planes;
    for (uint32_t i = 0; same && i < tight.planes; i++) {
        same = layout->plane[i].row_bytes == tight.plane[i].row_bytes &&
               layout->plane[i].rows == tight.plane[i].rows;
    }
    if (!same) {
        char text[96];
        pen_caps_text(caps, text, sizeof(text));
        return pen_error_set(err, PEN_E_ARG, 0, "layout",
                             "the layout is not one of %s, which has %u "
                             "planes, the first of %d rows of %zu bytes",
                             text, tight.planes, tight.plane[0].rows,
                             tight.plane[0].row_bytes);
    }
    size_t bytes = 0;
    for (uint32_t i = 0; i < layout->planes; i++) {
        size_t end = 0;
        PEN_TRY(check_plane(caps, memory, i, &end, err));
        if (end > bytes)
            bytes = end;
    }
    *out = *layout;
    out->bytes = bytes;
    return PEN_OK;
}

static enum pen_status foreign_layout(const struct pen_caps *caps,
                                      const struct pen_foreign *memory,
                                      struct pen_layout *out,
                                      struct pen_error *err)
{
    if (memory->layout.planes)
        return check_layout(caps, memory, out, err);
    PEN_TRY(pen_layout_compute(caps, PEN_PITCH_ALIGN, out, err));
    if (out->bytes <= memory->bytes)
        return PEN_OK;
    char text[96];
    pen_caps_text(caps, text, sizeof(text));
    return pen_error_set(err, PEN_E_ARG, 0, "layout",
                         "%s needs %zu bytes, the memory has %zu", text,
                         out->bytes, memory->bytes);
}

static enum pen_status check_address(const struct pen_caps *caps,
                                     const struct pen_foreign *memory,
                                     struct pen_error *err)
{
    const size_t unit = sample_bytes(caps->format);
    const uint64_t address = memory->mem == PEN_MEM_CUDA_DEVICE
                                 ? memory->address
                                 : (uint64_t)(uintptr_t)memory->host;
    if (memory->mem == PEN_MEM_DMABUF || address % unit == 0)
        return PEN_OK;
    return pen_error_set(err, PEN_E_ARG, 0, pen_mem_name(memory->mem),
                         "the memory at 0x%llx is not aligned to a sample's "
                         "%zu bytes",
                         (unsigned long long)address, unit);
}

// --- frames over it ---------------------------------------------------------

// The frame with a pool of its own, which goes with it.
static enum pen_status make_frame(const struct pen_caps *caps,
                                  const struct pen_layout *layout,
                                  struct stk_buffer *buffer,
                                  struct pen_frame **out, struct pen_error *err)
{
    struct stk_frame_pool *pool = NULL;
    PEN_TRY(stk_frame_pool_create(0, NULL, &pool, err));
    const enum pen_status st =
        stk_frame_make_as(pool, buffer, caps, layout, out, err);
    stk_frame_pool_destroy(&pool);
    return st;
}

enum pen_status pen_frame_wrap(const struct pen_caps *caps,
                               const struct pen_foreign *memory,
                               struct pen_frame **out, struct pen_error *err)
{
    *out = NULL;
    struct pen_layout layout;
    PEN_TRY(foreign_layout(caps, memory, &layout, err));
    PEN_TRY(check_address(caps, memory, err));

    // Not to be released if something fails from here on.
    struct pen_foreign kept = *memory;
    kept.release = NULL;
    struct stk_buffer *buffer = NULL;
    PEN_TRY(stk_buffer_wrap(&kept, NULL, &buffer, err));
    const enum pen_status st = make_frame(caps, &layout, buffer, out, err);
    if (st) {
        stk_buffer_unref(buffer);
        return st;
    }
    stk_buffer_set_release(buffer, memory->release, memory->cookie);
    return PEN_OK;
}

// --- DMABUF frames for others -----------------------------------------------

enum pen_status pen_frame_dmabuf(struct pen_frame *frame,
                                 struct pen_dmabuf *out, struct pen_error *err)
{
    *out = (struct pen_dmabuf){ .fd = -1 };
    const enum pen_mem_type mem = pen_frame_mem(frame);
    if (mem != PEN_MEM_DMABUF) {
        return pen_error_set(err, PEN_E_STATE, 0, pen_mem_name(mem),
                             "a frame in %s has no descriptor; ask for frames "
                             "in DMABUF",
                             pen_mem_name(mem));
    }
    struct stk_buffer *buffer = frame->buffer;
    if (!stk_buffer_host_ready(buffer, PEN_READ, NULL)) {
        return pen_error_set(err, PEN_E_STATE, 0, "DMABUF",
                             "frame %llu is not ready: a stream still writes "
                             "to it",
                             (unsigned long long)frame->index);
    }
    struct stk_ledger *ledger = stk_buffer_source(buffer)->ledger;
    int fd = -1;
    PEN_TRY(
        stk_fd_dup(ledger, buffer->block.dmabuf->fd,
                   stk_frame_user ? stk_frame_user->name : "pen_frame_dmabuf",
                   PEN_HERE, &fd, err));
    *out = (struct pen_dmabuf){
        .fd = fd,
        .modifier = 0,  // all that is ours, and all that is taken
        .bytes = stk_buffer_bytes(buffer),
        .planes = frame->layout.planes,
        .frame = pen_frame_ref(frame),
    };
    for (uint32_t i = 0; i < out->planes; i++) {
        out->plane[i].offset = frame->layout.plane[i].offset;
        out->plane[i].pitch = frame->layout.plane[i].pitch;
    }
    return PEN_OK;
}

void pen_dmabuf_close(struct pen_dmabuf *dmabuf)
{
    if (dmabuf->frame) {
        struct stk_buffer *buffer = dmabuf->frame->buffer;
        stk_fd_close(stk_buffer_source(buffer)->ledger, &dmabuf->fd);
        pen_frame_unref(dmabuf->frame);
    }
    *dmabuf = (struct pen_dmabuf){ 0 };
}
