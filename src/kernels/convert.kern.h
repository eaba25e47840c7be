#ifndef PENK_CONVERT_H
#define PENK_CONVERT_H

// Conversion between the eleven pixel formats: argument block and arithmetic,
// shared by the GPU kernel, the emulated device and the CPU twin.
// Formulas, rounding and sources: docs/guide/operators.md, "Conversion".

#include <penstock/kernel.h>

// Values of enum pen_format; kernels do not include format.h.
enum {
    PENK_MONO = 1,
    PENK_BGR = 2,
    PENK_BGRA = 3,
    PENK_RGB = 4,
    PENK_RGBA = 5,
    PENK_YUV411_I = 10,
    PENK_YUV444 = 11,
    PENK_YUV420 = 12,
    PENK_UYVY = 13,
    PENK_YUYV = 14,
    PENK_NV12 = 15,
    PENK_BAYERBG8 = 21,
    PENK_BAYERGB8 = 22,
    PENK_BAYERGR8 = 23,
    PENK_BAYERRG8 = 24
};

// Order of the entries of the image.
enum { PENK_KERNEL_CONVERT = 0 };

// Threads of a block, and pixels of a thread: 4 x 2 holds whole chroma blocks
// of every format.
enum {
    PENK_CONVERT_BLOCK_X = 32,
    PENK_CONVERT_BLOCK_Y = 8,
    PENK_CONVERT_PX = 4,
    PENK_CONVERT_PY = 2
};

// Coefficients are in units of 2^-20. The largest sum, the full-range chroma
// of four pixels, stays below 2^31.
enum { PENK_CONVERT_SHIFT = 20 };

// out[i] = m[3i] in[0] + m[3i + 1] in[1] + m[3i + 2] in[2] + o[i], where in is
// (R, G, B), (Y, U, V) or (MONO, MONO, MONO). o holds the rounding constant;
// that of a chroma row is meant for the sum of four pixels.
// Addresses and pitches in bytes, sizes in pixels, formats as above.
struct penk_convert {
    uint64_t dst[3], src[3];
    uint64_t dst_pitch[3], src_pitch[3];
    int32_t m[9];
    int32_t o[3];
    int32_t width, height;
    int32_t dst_format, src_format;
};
PENK_STATIC_ASSERT(sizeof(struct penk_convert) == 160,
                   "host and device differ");

PENK_FN int32_t penk_clamp_u8(int32_t v)
{
    return v < 0 ? 0 : v > 255 ? 255 : v;
}

// One output sample of one pixel.
PENK_FN int32_t penk_convert_sample(int32_t m0, int32_t m1, int32_t m2,
                                    int32_t o, int32_t a, int32_t b, int32_t c)
{
    return penk_clamp_u8((m0 * a + m1 * b + m2 * c + o) >> PENK_CONVERT_SHIFT);
}

// One chroma sample from the sums over the `n` (1 to 4) pixels that exist.
PENK_FN int32_t penk_convert_chroma(int32_t m0, int32_t m1, int32_t m2,
                                    int32_t o, int32_t n, int32_t a, int32_t b,
                                    int32_t c)
{
    int32_t sum = m0 * a + m1 * b + m2 * c;
    sum = n == 1 ? sum * 4 : n == 2 ? sum * 2 : n == 3 ? sum + sum / 3 : sum;
    return penk_clamp_u8((sum + o) >> (PENK_CONVERT_SHIFT + 2));
}

#endif  // PENK_CONVERT_H
