#include <penstock/format.h>

#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include "../base/str.h"

const char *pen_mem_name(enum pen_mem_type type)
{
    switch (type) {
    case PEN_MEM_HOST:
        return "HOST";
    case PEN_MEM_HOST_PINNED:
        return "HOST_PINNED";
    case PEN_MEM_CUDA_DEVICE:
        return "CUDA_DEVICE";
    case PEN_MEM_DMABUF:
        return "DMABUF";
    case PEN_MEM_NONE:
    case PEN_MEM_COUNT:
        break;
    }
    return "?";
}

const char *pen_mem_key(enum pen_mem_type type)
{
    switch (type) {
    case PEN_MEM_HOST:
        return "host";
    case PEN_MEM_HOST_PINNED:
        return "host_pinned";
    case PEN_MEM_CUDA_DEVICE:
        return "cuda_device";
    case PEN_MEM_DMABUF:
        return "dmabuf";
    case PEN_MEM_NONE:
    case PEN_MEM_COUNT:
        break;
    }
    return "?";
}

const char *pen_matrix_name(enum pen_matrix matrix)
{
    switch (matrix) {
    case PEN_MATRIX_BT601:
        return "bt601";
    case PEN_MATRIX_BT709:
        return "bt709";
    case PEN_MATRIX_BT2020:
        return "bt2020";
    case PEN_MATRIX_UNKNOWN:
        break;
    }
    return "?";
}

const char *pen_range_name(enum pen_range range)
{
    switch (range) {
    case PEN_RANGE_LIMITED:
        return "limited";
    case PEN_RANGE_FULL:
        return "full";
    case PEN_RANGE_UNKNOWN:
        break;
    }
    return "?";
}

const char *pen_kind_name(enum pen_kind kind)
{
    switch (kind) {
    case PEN_KIND_FRAME:
        return "Frame";
    case PEN_KIND_RAW_IMAGE:
        return "RawImage";
    case PEN_KIND_ENCODED_IMAGE:
        return "EncodedImage";
    case PEN_KIND_H264_DATA:
        return "H264Data";
    case PEN_KIND_NONE:
    case PEN_KIND_COUNT:
        break;
    }
    return "?";
}

const char *pen_codec_name(enum pen_codec codec)
{
    switch (codec) {
    case PEN_CODEC_JPEG:
        return "JPEG";
    case PEN_CODEC_PNG:
        return "PNG";
    case PEN_CODEC_UNKNOWN:
        break;
    }
    return "?";
}

// --- formats ----------------------------------------------------------------

// A plane holds `bytes` bytes for every group of 1/across pixels of a row
// (ceil(width / across) groups) and one row for every `down` picture rows.
struct plane_shape {
    uint8_t bytes, across, down;
};

struct format_row {
    struct pen_format_info info;
    struct plane_shape plane[PEN_MAX_PLANES];
};

// clang-format off
#define BAYER(text, bits, sample) \
    { { text, 1, 1, bits, 1, 1, .bayer = true }, { { sample, 1, 1 } } }
static const struct format_row formats[PEN_FMT_COUNT] = {
    //                     name  planes channels depth chroma
    [PEN_FMT_MONO]     = { { "MONO",     1, 1, 8, 1, 1 },
                           { { 1, 1, 1 } } },
    [PEN_FMT_BGR]      = { { "BGR",      1, 3, 8, 1, 1 },
                           { { 3, 1, 1 } } },
    [PEN_FMT_BGRA]     = { { "BGRA",     1, 4, 8, 1, 1, .alpha = true },
                           { { 4, 1, 1 } } },
    [PEN_FMT_RGB]      = { { "RGB",      1, 3, 8, 1, 1 },
                           { { 3, 1, 1 } } },
    [PEN_FMT_RGBA]     = { { "RGBA",     1, 4, 8, 1, 1, .alpha = true },
                           { { 4, 1, 1 } } },
    [PEN_FMT_YUV411_I] = { { "YUV411_I", 1, 3, 8, 4, 1, .yuv = true },
                           { { 6, 4, 1 } } },
    [PEN_FMT_YUV444]   = { { "YUV444",   3, 3, 8, 1, 1, .yuv = true },
                           { { 1, 1, 1 }, { 1, 1, 1 }, { 1, 1, 1 } } },
    [PEN_FMT_YUV420]   = { { "YUV420",   3, 3, 8, 2, 2, .yuv = true },
                           { { 1, 1, 1 }, { 1, 2, 2 }, { 1, 2, 2 } } },
    [PEN_FMT_UYVY]     = { { "UYVY",     1, 3, 8, 2, 1, .yuv = true },
                           { { 4, 2, 1 } } },
    [PEN_FMT_YUYV]     = { { "YUYV",     1, 3, 8, 2, 1, .yuv = true },
                           { { 4, 2, 1 } } },
    [PEN_FMT_NV12]     = { { "NV12",     2, 3, 8, 2, 2, .yuv = true },
                           { { 1, 1, 1 }, { 2, 2, 2 } } },
    [PEN_FMT_BAYERBG10] = BAYER("BAYERBG10", 10, 2),
    [PEN_FMT_BAYERBG8]  = BAYER("BAYERBG8", 8, 1),
    [PEN_FMT_BAYERGB8]  = BAYER("BAYERGB8", 8, 1),
    [PEN_FMT_BAYERGR8]  = BAYER("BAYERGR8", 8, 1),
    [PEN_FMT_BAYERRG8]  = BAYER("BAYERRG8", 8, 1),
};
#undef BAYER
// clang-format on

static const struct format_row *find_format(enum pen_format format)
{
    if ((unsigned)format >= PEN_FMT_COUNT || !formats[format].info.name)
        return NULL;
    return &formats[format];
}

const struct pen_format_info *pen_format_info(enum pen_format format)
{
    const struct format_row *row = find_format(format);
    return row ? &row->info : NULL;
}

enum pen_format pen_format_from_name(const char *name)
{
    for (unsigned i = 0; i < PEN_FMT_COUNT; i++) {
        if (formats[i].info.name && strcmp(formats[i].info.name, name) == 0)
            return (enum pen_format)i;
    }
    return PEN_FMT_NONE;
}

// --- layout -----------------------------------------------------------------

static enum pen_status one_row(const struct pen_caps *caps,
                               struct pen_layout *out, struct pen_error *err)
{
    if (!caps->bytes) {
        return pen_error_set(err, PEN_E_ARG, 0, pen_kind_name(caps->kind),
                             "the caps say no size in bytes, which a frame "
                             "without layout needs");
    }
    out->planes = 1;
    out->plane[0].pitch = caps->bytes;
    out->plane[0].row_bytes = caps->bytes;
    out->plane[0].rows = 1;
    out->bytes = caps->bytes;
    return PEN_OK;
}

static size_t divide_up(int32_t pixels, uint8_t by)
{
    return ((size_t)pixels + by - 1) / by;
}

static enum pen_status all_planes(const struct format_row *row,
                                  const struct pen_caps *caps, size_t align,
                                  struct pen_layout *out, struct pen_error *err)
{
    const struct plane_shape *shape = row->plane;
    size_t end = 0;
    bool fits = true;

    for (unsigned i = 0; i < row->info.planes && fits; i++) {
        const size_t groups = divide_up(caps->width, shape[i].across);
        const size_t rows = divide_up(caps->height, shape[i].down);
        size_t row_bytes = 0, pitch = 0, offset = 0, size = 0;

        fits = stk_mul(groups, shape[i].bytes, &row_bytes) &&
               stk_align(row_bytes, align, &pitch) &&
               stk_align(end, align, &offset) && stk_mul(pitch, rows, &size) &&
               stk_add(offset, size, &end);
        out->plane[i].offset = offset;
        out->plane[i].pitch = pitch;
        out->plane[i].row_bytes = row_bytes;
        out->plane[i].rows = (int32_t)rows;
    }
    if (!fits) {
        *out = (struct pen_layout){ 0 };
        return pen_error_set(err, PEN_E_LIMIT, 0, row->info.name,
                             "a picture of %dx%d pixels with rows aligned to "
                             "%zu bytes is larger than the address space",
                             caps->width, caps->height, align);
    }
    out->planes = row->info.planes;
    out->bytes = end;
    return PEN_OK;
}

enum pen_status pen_layout_compute(const struct pen_caps *caps, size_t align,
                                   struct pen_layout *out,
                                   struct pen_error *err)
{
    *out = (struct pen_layout){ 0 };
    if (!align || (align & (align - 1))) {
        return pen_error_set(err, PEN_E_ARG, 0, "align",
                             "%zu is no power of two", align);
    }

    switch (caps->kind) {
    case PEN_KIND_FRAME:
    case PEN_KIND_ENCODED_IMAGE:
    case PEN_KIND_H264_DATA:
        return one_row(caps, out, err);
    case PEN_KIND_RAW_IMAGE:
        break;
    case PEN_KIND_NONE:
    case PEN_KIND_COUNT:
    default:
        return pen_error_set(err, PEN_E_ARG, 0, "kind",
                             "the caps say no kind of frame (%d)",
                             (int)caps->kind);
    }

    const struct format_row *row = find_format(caps->format);
    if (!row || caps->width <= 0 || caps->height <= 0) {
        char text[96];
        pen_caps_text(caps, text, sizeof(text));
        return pen_error_set(err, PEN_E_ARG, 0, "RawImage",
                             "the layout of a picture needs one format, a "
                             "width and a height of at least 1, these caps "
                             "are \"%s\"",
                             text);
    }
    return all_planes(row, caps, align, out, err);
}

// --- caps -------------------------------------------------------------------

bool pen_caps_equal(const struct pen_caps *a, const struct pen_caps *b)
{
    return a->kind == b->kind && a->codec == b->codec &&
           a->format == b->format && a->width == b->width &&
           a->height == b->height && a->matrix == b->matrix &&
           a->range == b->range;
}

// "RGB", or the candidates while planning: "MONO|RGB".
static void format_text(const struct pen_caps *caps, char *text, size_t size)
{
    const struct pen_format_info *info = pen_format_info(caps->format);
    if (info) {
        snprintf(text, size, "%s", info->name);
        return;
    }
    size_t used = 0;
    for (unsigned i = 0; i < PEN_FMT_COUNT && used < size; i++) {
        info = pen_format_info((enum pen_format)i);
        if (info && (caps->formats & PEN_FMT_BIT(i)))
            used += (size_t)snprintf(text + used, size - used, "%s%s",
                                     used ? "|" : "", info->name);
    }
    if (!used)
        snprintf(text, size, "?");
}

static void size_text(const struct pen_caps *caps, char *text, size_t size)
{
    char w[16] = "?", h[16] = "?";
    if (caps->width > 0)
        snprintf(w, sizeof(w), "%d", caps->width);
    if (caps->height > 0)
        snprintf(h, sizeof(h), "%d", caps->height);
    snprintf(text, size, "%sx%s", w, h);
}

void pen_caps_text(const struct pen_caps *caps, char *text, size_t size)
{
    char pixels[40];
    size_text(caps, pixels, sizeof(pixels));

    switch (caps->kind) {
    case PEN_KIND_RAW_IMAGE: {
        char format[160];
        format_text(caps, format, sizeof(format));
        const struct pen_format_info *info = pen_format_info(caps->format);
        // A mosaic has neither matrix nor range.
        if (info && info->bayer)
            snprintf(text, size, "%s %s", format, pixels);
        else
            snprintf(text, size, "%s %s %s %s", format, pixels,
                     pen_matrix_name(caps->matrix),
                     pen_range_name(caps->range));
        return;
    }
    case PEN_KIND_ENCODED_IMAGE:
        snprintf(text, size, "%s %s", pen_codec_name(caps->codec), pixels);
        return;
    case PEN_KIND_H264_DATA:
        snprintf(text, size, "%s %s", pen_kind_name(caps->kind), pixels);
        return;
    case PEN_KIND_FRAME:
    case PEN_KIND_NONE:
    case PEN_KIND_COUNT:
        break;
    }
    snprintf(text, size, "%s", pen_kind_name(caps->kind));
}
