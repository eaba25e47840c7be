#include "common.h"

#include "../kernels/ops.h"

// clang-format off
const struct pen_choice stk_choices_format[] = {
    { "auto",      PEN_FMT_NONE,      "not given" },
    { "MONO",      PEN_FMT_MONO,      "8-bit grey" },
    { "RGB",       PEN_FMT_RGB,       "packed R G B" },
    { "BGR",       PEN_FMT_BGR,       "packed B G R" },
    { "RGBA",      PEN_FMT_RGBA,      "packed R G B A" },
    { "BGRA",      PEN_FMT_BGRA,      "packed B G R A" },
    { "YUV420",    PEN_FMT_YUV420,    "I420: planes Y, U, V; chroma halved both ways" },
    { "NV12",      PEN_FMT_NV12,      "planes Y and interleaved UV" },
    { "YUV444",    PEN_FMT_YUV444,    "planes Y, U, V of full size" },
    { "YUV411_I",  PEN_FMT_YUV411_I,  "packed U Y0 Y1 V Y2 Y3" },
    { "UYVY",      PEN_FMT_UYVY,      "packed U Y0 V Y1" },
    { "YUYV",      PEN_FMT_YUYV,      "packed Y0 U Y1 V" },
    { "BAYERBG10", PEN_FMT_BAYERBG10, "10-bit Bayer in 16-bit words" },
    { "BAYERBG8",  PEN_FMT_BAYERBG8,  "8-bit Bayer, first row R G" },
    { "BAYERGB8",  PEN_FMT_BAYERGB8,  "8-bit Bayer, first row G R" },
    { "BAYERGR8",  PEN_FMT_BAYERGR8,  "8-bit Bayer, first row G B" },
    { "BAYERRG8",  PEN_FMT_BAYERRG8,  "8-bit Bayer, first row B G" },
    { 0 },
};

const struct pen_choice stk_choices_target[] = {
    { "auto",     PEN_FMT_NONE,     "as conversionType says" },
    { "RGB",      PEN_FMT_RGB,      "packed R G B" },
    { "BGR",      PEN_FMT_BGR,      "packed B G R" },
    { "RGBA",     PEN_FMT_RGBA,     "packed R G B A" },
    { "BGRA",     PEN_FMT_BGRA,     "packed B G R A" },
    { "MONO",     PEN_FMT_MONO,     "8-bit grey" },
    { "YUV420",   PEN_FMT_YUV420,   "I420: planes Y, U, V; chroma halved both ways" },
    { "YUV444",   PEN_FMT_YUV444,   "planes Y, U, V of full size" },
    { "NV12",     PEN_FMT_NV12,     "planes Y and interleaved UV" },
    { "YUV411_I", PEN_FMT_YUV411_I, "packed U Y0 Y1 V Y2 Y3" },
    { "UYVY",     PEN_FMT_UYVY,     "packed U Y0 V Y1" },
    { "YUYV",     PEN_FMT_YUYV,     "packed Y0 U Y1 V" },
    { 0 },
};

const struct pen_choice stk_choices_matrix[] = {
    { "auto",   PEN_MATRIX_UNKNOWN, "bt709 for YUV of 720 rows or more, else bt601" },
    { "bt601",  PEN_MATRIX_BT601,   "standard definition, JPEG" },
    { "bt709",  PEN_MATRIX_BT709,   "high definition" },
    { "bt2020", PEN_MATRIX_BT2020,  "ultra high definition, non-constant luminance" },
    { 0 },
};

const struct pen_choice stk_choices_range[] = {
    { "auto",    PEN_RANGE_UNKNOWN, "limited for YUV, full for RGB and MONO" },
    { "limited", PEN_RANGE_LIMITED, "luma 16 to 235, chroma 16 to 240" },
    { "full",    PEN_RANGE_FULL,    "0 to 255" },
    { 0 },
};

const struct pen_choice stk_choices_mem[] = {
    { "HOST",        PEN_MEM_HOST,        "pageable memory" },
    { "HOST_PINNED", PEN_MEM_HOST_PINNED, "page-locked memory, for DMA" },
    { "DMABUF",      PEN_MEM_DMABUF,      "memory with a descriptor, for other devices and processes" },
    { 0 },
};

const struct pen_choice stk_choices_interpolation[] = {
    { "nearest",  STK_NEAREST,  "the nearest pixel" },
    { "bilinear", STK_BILINEAR, "weighted by distance, four neighbours" },
    { "area",     STK_AREA,     "mean of the covered area; best for reducing" },
    { "bicubic",  STK_BICUBIC,  "sixteen neighbours; sharper" },
    { 0 },
};
// clang-format on

void stk_settle_colour(struct pen_caps *caps)
{
    const struct pen_format_info *info = pen_format_info(caps->format);
    if (caps->kind != PEN_KIND_RAW_IMAGE || !info)
        return;
    if (!info->yuv) {
        if (caps->matrix == PEN_MATRIX_UNKNOWN)
            caps->matrix = PEN_MATRIX_BT601;
        caps->range = PEN_RANGE_FULL;
        return;
    }
    if (caps->matrix == PEN_MATRIX_UNKNOWN && caps->height > 0)
        caps->matrix =
            caps->height >= 720 ? PEN_MATRIX_BT709 : PEN_MATRIX_BT601;
    if (caps->range == PEN_RANGE_UNKNOWN)
        caps->range = PEN_RANGE_LIMITED;
}

enum pen_status stk_picture(const struct pen_io *io, uint32_t formats,
                            struct pen_caps *out, struct pen_error *err)
{
    *out = *pen_frame_caps(pen_input(io, 0));
    if (out->kind != PEN_KIND_RAW_IMAGE)
        return pen_error_set(err, PEN_E_DATA, 0, "",
                             "needs a raw picture, but a frame of kind %s "
                             "arrived; a reader of raw pictures says so with "
                             "width, height and format",
                             pen_kind_name(out->kind));
    if (!(formats & PEN_FMT_BIT(out->format))) {
        char text[64];
        pen_caps_text(out, text, sizeof(text));
        return pen_error_set(err, PEN_E_DATA, 0, "",
                             "a picture of a format that is not taken: %s",
                             text);
    }
    stk_settle_colour(out);
    return PEN_OK;
}

enum pen_status stk_acquire_both(const struct pen_io *io, enum pen_place place,
                                 struct pen_view *dst, struct pen_view *src,
                                 struct pen_error *err)
{
    PEN_TRY(pen_acquire(io, pen_input(io, 0), place, PEN_READ, src, err));
    return pen_acquire(io, pen_output(io, 0), place, PEN_WRITE, dst, err);
}

enum pen_status stk_workspace_grow(struct pen_module *m,
                                   struct stk_workspace *w, size_t bytes,
                                   struct pen_error *err)
{
    const size_t planned = (size_t)pen_module_planned(m, PEN_MEM_HOST);
    const size_t want = bytes < planned ? planned : bytes;
    if (want <= w->bytes)
        return PEN_OK;
    stk_workspace_free(m, w);
    PEN_TRY(pen_module_alloc(m, want, &w->memory, err));
    w->bytes = want;
    return PEN_OK;
}

void stk_workspace_free(struct pen_module *m, struct stk_workspace *w)
{
    pen_module_free(m, w->memory);
    *w = (struct stk_workspace){ 0 };
}
