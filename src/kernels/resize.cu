// Scaling of pictures, plane by plane, from tables of starts and weights: a
// thread makes one pixel. Rows are filtered across, rounded, then down, in the
// order in which the CPU twin does it.
// Source: docs/guide/operators.md, "Scaling".
#include "resize.kern.h"

// The filtered sample of one source row.
PENK_FN int32_t across(PENK_CTX uint64_t line, uint64_t weights, int32_t taps,
                       int32_t channels)
{
    int32_t sum = 0;
    for (int32_t i = 0; i < taps; i++)
        sum += *PENK_G(const int32_t, weights + 4 * (uint64_t)i) *
               *PENK_G(const uint8_t, line + (uint64_t)(i * channels));
    return sum;
}

// A field of this block's plane, read where it lies: an indexed array of the
// argument block would be copied to the stack.
#define PLANE(field)                                                           \
    (z == 0 ? k.plane[0].field : z == 1 ? k.plane[1].field : k.plane[2].field)

PENK_KERNEL(penk_resize, struct penk_resize, k)
{
    const uint32_t z = PENK_BLOCK_Z;
    const struct penk_resize_plane p = {
        .dst = PLANE(dst),
        .src = PLANE(src),
        .dst_pitch = PLANE(dst_pitch),
        .src_pitch = PLANE(src_pitch),
        .table_x = PLANE(table_x),
        .table_y = PLANE(table_y),
        .dst_w = PLANE(dst_w),
        .dst_h = PLANE(dst_h),
        .src_w = PLANE(src_w),
        .src_h = PLANE(src_h),
        .taps_x = PLANE(taps_x),
        .taps_y = PLANE(taps_y),
        .channels = PLANE(channels),
        .reserved = 0,
    };

    PENK_THREADS {
        const int32_t x =
            (int32_t)(PENK_BLOCK_X * PENK_RESIZE_BLOCK_X + PENK_THREAD_X);
        const int32_t y =
            (int32_t)(PENK_BLOCK_Y * PENK_RESIZE_BLOCK_Y + PENK_THREAD_Y);
        if (x >= p.dst_w || y >= p.dst_h)
            continue;

        const int32_t x0 = *PENK_G(const int32_t, p.table_x + 4 * (uint64_t)x);
        const int32_t y0 = *PENK_G(const int32_t, p.table_y + 4 * (uint64_t)y);
        const uint64_t src = p.src + (uint64_t)y0 * p.src_pitch +
                             (uint64_t)x0 * (uint64_t)p.channels;
        const uint64_t dst = p.dst + (uint64_t)y * p.dst_pitch +
                             (uint64_t)x * (uint64_t)p.channels;
        const uint64_t wx = p.table_x + 4 * ((uint64_t)p.dst_w +
                                             (uint64_t)x * (uint64_t)p.taps_x);
        const uint64_t wy = p.table_y + 4 * ((uint64_t)p.dst_h +
                                             (uint64_t)y * (uint64_t)p.taps_y);

        for (int32_t c = 0; c < p.channels; c++) {
            int32_t out;
            if (k.mode == PENK_RESIZE_PICK) {
                out = *PENK_G(const uint8_t, src + (uint64_t)c);
            } else if (k.mode == PENK_RESIZE_TAPS) {
                int32_t sum = 0;
                for (int32_t j = 0; j < p.taps_y; j++)
                    sum += *PENK_G(const int32_t, wy + 4 * (uint64_t)j) *
                           penk_resize_across(across(
                               PENK_PASS src + (uint64_t)j * p.src_pitch +
                                   (uint64_t)c,
                               wx, p.taps_x, p.channels));
                out = penk_resize_down(sum);
            } else {
                uint64_t sum = 0;
                for (int32_t j = 0; j < p.taps_y; j++)
                    sum +=
                        (uint64_t)*PENK_G(const int32_t, wy + 4 * (uint64_t)j) *
                        (uint64_t)across(PENK_PASS src +
                                             (uint64_t)j * p.src_pitch +
                                             (uint64_t)c,
                                         wx, p.taps_x, p.channels);
                out = penk_resize_mean(sum,
                                       (uint64_t)p.src_w * (uint64_t)p.src_h);
            }
            *PENK_G(uint8_t, dst + (uint64_t)c) = (uint8_t)out;
        }
    }
}
