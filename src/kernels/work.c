#include "work.h"

enum {
    // Of a sample of the target, by the matrix: three bytes at a time are
    // multiplied, which the blur's wider samples are not.
    MATRIX_WORK = 2,
    // The CPU's sum across is over samples that do not lie side by side.
    GATHER_WORK = 6,
    PICK_WORK = 7,
    // The kernel reads sample and weight from global memory for every tap.
    CUDA_GATHER_WORK = 4,
    // A block of the blur's kernel stages its tile, whatever the taps.
    CUDA_STAGE_WORK = 18,
};

uint64_t stk_work_times(uint64_t a, uint64_t b)
{
    uint64_t product;
    return __builtin_mul_overflow(a, b, &product) ? UINT64_MAX : product;
}

static uint64_t sum(uint64_t a, uint64_t b)
{
    uint64_t all;
    return __builtin_add_overflow(a, b, &all) ? UINT64_MAX : all;
}

static uint64_t samples_of(enum pen_format format, int32_t width,
                           int32_t height)
{
    const struct pen_format_info *info = pen_format_info(format);
    if (!info || width < 1 || height < 1)
        return 0;
    const uint64_t pixels = (uint64_t)width * (uint64_t)height;
    if (!info->yuv)
        return stk_work_times(pixels, info->channels);
    const uint64_t across =
        ((uint64_t)width + info->chroma_w - 1) / info->chroma_w;
    const uint64_t down =
        ((uint64_t)height + info->chroma_h - 1) / info->chroma_h;
    return pixels + 2 * across * down;
}

// The format that counts for these caps.
static enum pen_format widest(const struct pen_caps *caps)
{
    enum pen_format most = caps->format;
    for (unsigned f = 1; !caps->format && f < PEN_FMT_COUNT; f++) {
        if ((caps->formats & PEN_FMT_BIT(f)) &&
            samples_of((enum pen_format)f, 4, 2) > samples_of(most, 4, 2))
            most = (enum pen_format)f;
    }
    return most;
}

uint64_t stk_work_samples(const struct pen_caps *caps)
{
    return samples_of(widest(caps), caps->width, caps->height);
}

uint64_t stk_work_convert(const struct pen_caps *in, const struct pen_caps *out)
{
    if (in->format && in->format == out->format && in->range == out->range)
        return 0;
    // Chroma that several pixels share is made of their sums: that takes as
    // long as if each had its own.
    const bool mono = out->format == PEN_FMT_MONO;
    const struct pen_format_info *info = pen_format_info(in->format);
    const unsigned made = mono && !(info && info->bayer) ? 1 : 3;
    return stk_work_times(samples_of(PEN_FMT_MONO, in->width, in->height),
                          made * MATRIX_WORK);
}

// Source pixels that one of the target is made of.
static uint64_t taps_of(enum stk_interpolation interpolation, int32_t dst,
                        int32_t src)
{
    if (interpolation == STK_BILINEAR)
        return 2;
    return interpolation == STK_BICUBIC
               ? 4
               : ((uint64_t)src + (uint64_t)dst - 1) / (uint64_t)dst;
}

uint64_t stk_work_resize(const struct pen_caps *in, const struct pen_caps *out,
                         enum stk_interpolation interpolation, bool cuda)
{
    const enum pen_format format = widest(in);
    const uint64_t made = samples_of(format, out->width, out->height);
    if (!made || in->width < 1 || in->height < 1)
        return 0;
    if (interpolation == STK_NEAREST)
        return stk_work_times(made, cuda ? CUDA_GATHER_WORK : PICK_WORK);
    const uint64_t tx = taps_of(interpolation, out->width, in->width);
    const uint64_t ty = taps_of(interpolation, out->height, in->height);
    if (cuda)
        return stk_work_times(made,
                              CUDA_GATHER_WORK * stk_work_times(ty, tx + 1));
    // A row of the source that was filtered across is kept while it is needed,
    // but not for the exact sums of large reductions.
    uint64_t rows = ty * (uint64_t)out->height;
    if (tx <= PENK_RESIZE_MAX_TAPS && ty <= PENK_RESIZE_MAX_TAPS &&
        rows > (uint64_t)in->height)
        rows = (uint64_t)in->height;
    const uint64_t across = samples_of(
        format, out->width, rows < INT32_MAX ? (int32_t)rows : INT32_MAX);
    return sum(stk_work_times(across, GATHER_WORK * tx),
               stk_work_times(made, ty));
}

uint64_t stk_work_blur(const struct pen_caps *in, int32_t kernel_size,
                       bool cuda)
{
    const uint64_t taps = kernel_size > 0 ? (uint64_t)kernel_size : 1;
    const uint64_t once = stk_work_times(stk_work_samples(in), taps);
    if (!cuda)
        return stk_work_times(once, 2);
    // A block filters the rows beyond its tile across once more.
    return sum(stk_work_times(once, 2 * PENK_BLUR_TILE_Y + taps - 1) /
                   PENK_BLUR_TILE_Y,
               stk_work_times(stk_work_samples(in), CUDA_STAGE_WORK));
}
