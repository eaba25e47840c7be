#ifndef PENK_BLUR_H
#define PENK_BLUR_H

// Separable Gaussian blur: argument block and arithmetic, shared by the GPU
// kernel, the emulated device and the CPU twin.
// Formulas, rounding and sources: docs/guide/operators.md, "Gaussian blur".

#include <penstock/kernel.h>

// Order of the entries of the image.
enum { PENK_KERNEL_BLUR = 0 };

// A block of 32 x 8 threads makes a tile of 128 samples x 32 rows; a sample
// is one byte of a row, whatever its channel. z is the plane.
enum {
    PENK_BLUR_BLOCK_X = 32,
    PENK_BLUR_BLOCK_Y = 8,
    PENK_BLUR_TILE_X = 128,
    PENK_BLUR_TILE_Y = 32,
    PENK_BLUR_MAX_RADIUS = 15,
    PENK_BLUR_MAX_CHANNELS = 4
};

// Weights are in units of 2^-16 and symmetric: weight[i] is that at distance
// i. Rows filtered across keep 8 fractional bits.
struct penk_blur {
    uint64_t dst[3], src[3];
    uint64_t dst_pitch[3], src_pitch[3];
    uint32_t weight[PENK_BLUR_MAX_RADIUS + 1];
    int32_t width, height;  // pixels of each plane
    int32_t channels;       // samples of a pixel: 1, 3 or 4
    int32_t radius;         // 1 to 15
    int32_t planes;         // 1 or 3
    int32_t reserved;
};
PENK_STATIC_ASSERT(sizeof(struct penk_blur) == 184, "host and device differ");

// The sum across, rounded to 8 fractional bits: at most 65280.
PENK_FN uint32_t penk_blur_across(uint32_t sum)
{
    return (sum + 128u) >> 8;
}

// The sum down, rounded to a sample: at most 65280 * 65536 + 2^23 < 2^32.
PENK_FN uint32_t penk_blur_down(uint32_t sum)
{
    return (sum + (1u << 23)) >> 24;
}

#endif  // PENK_BLUR_H
