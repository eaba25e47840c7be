#ifndef PENK_RESIZE_H
#define PENK_RESIZE_H

// Scaling of pictures, plane by plane: argument block and arithmetic, shared
// by the GPU kernel, the emulated device and the CPU twin.
// Formulas, rounding and sources: docs/guide/operators.md, "Scaling".

#include <penstock/kernel.h>

// Order of the entries of the image.
enum { PENK_KERNEL_RESIZE = 0 };

// One thread makes all samples of one pixel; z is the plane.
enum { PENK_RESIZE_BLOCK_X = 32, PENK_RESIZE_BLOCK_Y = 8 };

// Weights are in units of 2^-16. A row of the picture filtered across keeps
// 6 fractional bits: with the overshoot of bicubic the second sum stays below
// 2^31.
enum { PENK_RESIZE_SHIFT = 16, PENK_RESIZE_FRACTION = 6 };

// More taps than this are summed exactly instead (area, large reductions):
// weights are then lengths in units of 1/dst_w and 1/dst_h source pixels.
enum { PENK_RESIZE_MAX_TAPS = 32 };

enum {
    PENK_RESIZE_PICK = 0,   // one sample: table of indices only
    PENK_RESIZE_TAPS = 1,   // weighted sum, weights of 2^-16
    PENK_RESIZE_EXACT = 2,  // weighted sum, divided by src_w * src_h
};

// Tables of one axis: int32_t start[n], then, unless PICK, weight[n * taps];
// start + taps never exceeds the source.
struct penk_resize_plane {
    uint64_t dst, src;  // addresses of samples
    uint64_t dst_pitch, src_pitch;
    uint64_t table_x, table_y;
    int32_t dst_w, dst_h, src_w, src_h;  // pixels of this plane
    int32_t taps_x, taps_y;
    int32_t channels;  // samples of a pixel, 1 to 4
    int32_t reserved;
};
struct penk_resize {
    struct penk_resize_plane plane[3];
    int32_t planes;
    int32_t mode;
};
PENK_STATIC_ASSERT(sizeof(struct penk_resize_plane) == 80,
                   "host and device differ");
PENK_STATIC_ASSERT(sizeof(struct penk_resize) == 248, "host and device differ");

// The sum across, rounded to PENK_RESIZE_FRACTION bits; the shift of a
// negative sum (bicubic) rounds down like that of a positive one.
PENK_FN int32_t penk_resize_across(int32_t sum)
{
    enum { DROP = PENK_RESIZE_SHIFT - PENK_RESIZE_FRACTION };
    return (sum + (1 << (DROP - 1))) >> DROP;
}

// The sum down, rounded and clamped to a sample.
PENK_FN int32_t penk_resize_down(int32_t sum)
{
    enum { DROP = PENK_RESIZE_SHIFT + PENK_RESIZE_FRACTION };
    const int32_t v = (sum + (1 << (DROP - 1))) >> DROP;
    return v < 0 ? 0 : v > 255 ? 255 : v;
}

// The exact mean of the covered area, rounded.
PENK_FN int32_t penk_resize_mean(uint64_t sum, uint64_t area)
{
    return (int32_t)((sum + area / 2) / area);
}

#endif  // PENK_RESIZE_H
