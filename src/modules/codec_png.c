#include <setjmp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <png.h>

#include "../base/str.h"
#include "codec.h"
#include "orient.h"

// What both directions share: the place to leave to, and the complaints.
struct errors {
    struct pen_error *err;
    enum pen_status status;
    uint32_t warnings;
    char first[128];
    uint64_t allocations;
};

_Noreturn static void on_error(png_structp png, png_const_charp text)
{
    struct errors *e = png_get_error_ptr(png);
    const bool memory = strstr(text, "emory") != NULL;
    if (e->status == PEN_OK)
        e->status = pen_error_set(e->err, memory ? PEN_E_NOMEM : PEN_E_DATA, 0,
                                  "", "PNG: %s", text);
    png_longjmp(png, 1);
}

static void on_warning(png_structp png, png_const_charp text)
{
    struct errors *e = png_get_error_ptr(png);
    if (e->warnings++ == 0)
        snprintf(e->first, sizeof(e->first), "%s", text);
}

// libpng's own would be these two without the count; zlib's requests come
// through here too.
static png_voidp allocate(png_structp png, png_alloc_size_t bytes)
{
    struct errors *e = png_get_mem_ptr(png);
    e->allocations++;
    return malloc(bytes);
}

static void release(png_structp png, png_voidp memory)
{
    (void)png;
    free(memory);
}

static enum pen_status no_memory(struct errors *e)
{
    if (e->status == PEN_OK)
        e->status =
            pen_error_set(e->err, PEN_E_NOMEM, 0, "", "no memory for libpng");
    return e->status;
}

// --- decoding ---------------------------------------------------------------

struct reader {
    struct errors errors;
    png_structp png;
    png_infop info;
    struct stk_decode *d;
    size_t at;
};

static void read_bytes(png_structp png, png_bytep to, size_t n)
{
    struct reader *r = png_get_io_ptr(png);
    if (n > r->d->bytes - r->at) {
        r->errors.status = pen_error_set(
            r->errors.err, PEN_E_DATA, 0, "",
            "PNG is cut off: its data ends after %zu bytes", r->d->bytes);
        png_error(png, "cut off");
    }
    memcpy(to, (const uint8_t *)r->d->data + r->at, n);
    r->at += n;
}

static void decode(struct reader *r)
{
    const png_structp png = r->png;
    const png_infop info = r->info;
    const struct stk_decode *d = r->d;
    const int32_t width = d->header.width, height = d->header.height;

    png_set_read_fn(png, r, read_bytes);
    // The size was checked already; libpng's own limit is a million a side.
    png_set_user_limits(png, PNG_UINT_31_MAX, PNG_UINT_31_MAX);
    png_read_info(png, info);
    if (png_get_image_width(png, info) != (uint32_t)width ||
        png_get_image_height(png, info) != (uint32_t)height)
        png_error(png, "contradicting headers");

    png_set_expand(png);
    png_set_scale_16(png);
    if (d->header.format == PEN_FMT_RGBA)
        png_set_gray_to_rgb(png);
    const int passes = png_set_interlace_handling(png);
    png_read_update_info(png, info);

    const uint32_t px = png_get_channels(png, info);
    const uint32_t want = d->header.format == PEN_FMT_MONO  ? 1
                          : d->header.format == PEN_FMT_RGB ? 3
                                                            : 4;
    if (px != want)
        png_error(png, "transparency where the header has none");

    // An upright picture goes straight into the frame. A turned one is rare:
    // whole to scratch memory first, as Adam7 comes in seven passes.
    const struct pen_plane *dst = &d->out->plane[0];
    const bool upright = d->orientation == 1;
    uint8_t *base = upright ? dst->host : d->scratch;
    const size_t pitch = upright ? dst->pitch : (size_t)width * px;
    for (int pass = 0; pass < passes; pass++) {
        for (int32_t y = 0; y < height; y++)
            png_read_row(png, base + (size_t)y * pitch, NULL);
    }
    png_read_end(png, NULL);
    if (upright)
        return;

    if (stk_orientation_turns(d->orientation)) {
        for (int32_t y = 0; y < height; y += STK_ORIENT_ROWS) {
            const int32_t left = height - y;
            stk_orient_columns(dst, d->orientation, base + (size_t)y * pitch, y,
                               left < STK_ORIENT_ROWS ? left : STK_ORIENT_ROWS,
                               width, height, px);
        }
        return;
    }
    for (int32_t y = 0; y < height; y++) {
        uint8_t *row = stk_orient_target(dst, d->orientation, y, height);
        memcpy(row, base + (size_t)y * pitch, (size_t)width * px);
        stk_orient_row(row, d->orientation, width, px);
    }
}

enum pen_status stk_png_decode(struct stk_decode *d, struct pen_error *err)
{
    struct reader r = { .d = d, .errors.err = err };

    d->warnings = 0;
    r.png = png_create_read_struct_2(PNG_LIBPNG_VER_STRING, &r.errors, on_error,
                                     on_warning, &r.errors, allocate, release);
    r.info = r.png ? png_create_info_struct(r.png) : NULL;
    if (!r.info)
        no_memory(&r.errors);
    else if (!setjmp(png_jmpbuf(r.png)))
        decode(&r);
    png_destroy_read_struct(&r.png, &r.info, NULL);

    d->allocations = r.errors.allocations;
    d->warnings = r.errors.warnings;
    snprintf(d->warning, sizeof(d->warning), "%s", r.errors.first);
    return r.errors.status;
}

// --- encoding ---------------------------------------------------------------

struct writer {
    struct errors errors;
    png_structp png;
    png_infop info;
    struct stk_encode *e;
};

static void write_bytes(png_structp png, png_bytep from, size_t n)
{
    struct writer *w = png_get_io_ptr(png);
    struct stk_encode *e = w->e;
    if (n > e->room - e->bytes) {
        w->errors.status = pen_error_set(w->errors.err, PEN_E_LIMIT, 0, "",
                                         "PNG is larger than the %zu bytes "
                                         "that were planned for it",
                                         e->room);
        png_error(png, "too large");
    }
    memcpy((uint8_t *)e->to + e->bytes, from, n);
    e->bytes += n;
}

static void flush(png_structp png)
{
    (void)png;
}

static int color_type(enum pen_format format, uint32_t *px)
{
    switch (format) {
    case PEN_FMT_MONO:
        *px = 1;
        return PNG_COLOR_TYPE_GRAY;
    case PEN_FMT_RGB:
    case PEN_FMT_BGR:
        *px = 3;
        return PNG_COLOR_TYPE_RGB;
    case PEN_FMT_RGBA:
    case PEN_FMT_BGRA:
        *px = 4;
        return PNG_COLOR_TYPE_RGB_ALPHA;
    default:
        *px = 0;
        return -1;
    }
}

// deflateBound() for any settings, a filter byte a row, and a chunk header for
// each 8 KiB that libpng writes.
bool stk_png_bound(int32_t width, int32_t height, enum pen_format format,
                   size_t *out)
{
    uint32_t px = 0;
    size_t raw = 0, bytes = 0;

    if (color_type(format, &px) < 0 || !stk_mul((size_t)width, px, &raw) ||
        !stk_add(raw, 1, &raw) || !stk_mul(raw, (size_t)height, &raw) ||
        !stk_add(raw, raw / 8 + raw / 64 + 64, &bytes))
        return false;
    return stk_add(bytes, (bytes / 8192 + 1) * 12 + 1024, out);
}

static void encode(struct writer *w)
{
    const png_structp png = w->png;
    const struct stk_encode *e = w->e;
    const struct pen_view *in = e->in;
    const struct pen_plane *src = &in->plane[0];
    uint32_t px = 0;
    const int type = color_type(in->format, &px);

    png_set_write_fn(png, w, write_bytes, flush);
    png_set_user_limits(png, PNG_UINT_31_MAX, PNG_UINT_31_MAX);
    png_set_compression_level(png, e->compression);
    png_set_IHDR(png, w->info, (uint32_t)in->width, (uint32_t)in->height, 8,
                 type, PNG_INTERLACE_NONE, PNG_COMPRESSION_TYPE_DEFAULT,
                 PNG_FILTER_TYPE_DEFAULT);
    png_write_info(png, w->info);
    if (in->format == PEN_FMT_BGR || in->format == PEN_FMT_BGRA)
        png_set_bgr(png);
    for (int32_t y = 0; y < in->height; y++)
        png_write_row(png, (uint8_t *)src->host + (size_t)y * src->pitch);
    png_write_end(png, w->info);
}

enum pen_status stk_png_encode(struct stk_encode *e, struct pen_error *err)
{
    struct writer w = { .e = e, .errors.err = err };
    uint32_t px = 0;

    e->bytes = 0;
    e->allocations = 0;
    if (color_type(e->in->format, &px) < 0)
        return pen_error_set(err, PEN_E_UNSUPPORTED, 0, "",
                             "PNG is made of MONO, RGB, BGR, RGBA or BGRA "
                             "pictures");
    w.png =
        png_create_write_struct_2(PNG_LIBPNG_VER_STRING, &w.errors, on_error,
                                  on_warning, &w.errors, allocate, release);
    w.info = w.png ? png_create_info_struct(w.png) : NULL;
    if (!w.info)
        no_memory(&w.errors);
    else if (!setjmp(png_jmpbuf(w.png)))
        encode(&w);
    png_destroy_write_struct(&w.png, &w.info);
    e->allocations = w.errors.allocations;
    return w.errors.status;
}
