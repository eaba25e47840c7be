// Separable Gaussian blur. A block stages a tile of the source with its
// borders in shared memory, filters it across, then down. Borders are
// replicated. Rows are treated as bytes: the neighbour of a sample is the one
// `channels` bytes away.
// Source: docs/guide/operators.md, "Gaussian blur".
#include "blur.kern.h"

enum {
    HALO_X = PENK_BLUR_MAX_RADIUS * PENK_BLUR_MAX_CHANNELS,
    STAGE_X = PENK_BLUR_TILE_X + 2 * HALO_X,
    STAGE_Y = PENK_BLUR_TILE_Y + 2 * PENK_BLUR_MAX_RADIUS,
    PER_THREAD = PENK_BLUR_TILE_X / PENK_BLUR_BLOCK_X
};

// The sample of column `s` (in bytes, may lie outside) with replicated sides.
PENK_FN int32_t column(int32_t s, int32_t channels, int32_t row_bytes)
{
    if (s < 0)
        return (s + PENK_BLUR_MAX_RADIUS * channels) % channels;
    if (s >= row_bytes)
        return row_bytes - channels + s % channels;
    return s;
}

PENK_FN int32_t clamp_row(int32_t y, int32_t height)
{
    return y < 0 ? 0 : y < height ? y : height - 1;
}

PENK_KERNEL(penk_blur, struct penk_blur, k)
{
    PENK_SHARED(uint8_t, source, STAGE_Y * STAGE_X);
    PENK_SHARED(uint16_t, across, STAGE_Y * PENK_BLUR_TILE_X);

    const uint32_t z = PENK_BLOCK_Z;
    const uint64_t src = z == 0 ? k.src[0] : z == 1 ? k.src[1] : k.src[2];
    const uint64_t dst = z == 0 ? k.dst[0] : z == 1 ? k.dst[1] : k.dst[2];
    const uint64_t src_pitch = z == 0   ? k.src_pitch[0]
                               : z == 1 ? k.src_pitch[1]
                                        : k.src_pitch[2];
    const uint64_t dst_pitch = z == 0   ? k.dst_pitch[0]
                               : z == 1 ? k.dst_pitch[1]
                                        : k.dst_pitch[2];
    const int32_t row_bytes = k.width * k.channels;
    const int32_t x0 = (int32_t)PENK_BLOCK_X * PENK_BLUR_TILE_X;
    const int32_t y0 = (int32_t)PENK_BLOCK_Y * PENK_BLUR_TILE_Y;
    const int32_t halo = k.radius * k.channels;
    const int32_t stage_w = PENK_BLUR_TILE_X + 2 * halo;
    const int32_t stage_h = PENK_BLUR_TILE_Y + 2 * k.radius;

    PENK_THREADS {
        for (int32_t y = (int32_t)PENK_THREAD_Y; y < stage_h;
             y += PENK_BLUR_BLOCK_Y) {
            const int32_t row = clamp_row(y0 - k.radius + y, k.height);
            const uint64_t line = src + (uint64_t)row * src_pitch;
            for (int32_t x = (int32_t)PENK_THREAD_X; x < stage_w;
                 x += PENK_BLUR_BLOCK_X) {
                const int32_t at = column(x0 - halo + x, k.channels, row_bytes);
                source[y * STAGE_X + x] =
                    *PENK_G(const uint8_t, line + (uint64_t)at);
            }
        }
    }
    PENK_BARRIER();

    PENK_THREADS {
        for (int32_t y = (int32_t)PENK_THREAD_Y; y < stage_h;
             y += PENK_BLUR_BLOCK_Y) {
            for (int32_t i = 0; i < PER_THREAD; i++) {
                const int32_t x =
                    (int32_t)PENK_THREAD_X + i * PENK_BLUR_BLOCK_X;
                const uint8_t *at = &source[y * STAGE_X + x + halo];
                uint32_t sum = k.weight[0] * at[0];
                for (int32_t t = 1; t <= k.radius; t++) {
                    const int32_t d = t * k.channels;
                    sum += k.weight[t] * ((uint32_t)at[-d] + at[d]);
                }
                across[y * PENK_BLUR_TILE_X + x] =
                    (uint16_t)penk_blur_across(sum);
            }
        }
    }
    PENK_BARRIER();

    PENK_THREADS {
        for (int32_t y = (int32_t)PENK_THREAD_Y; y < PENK_BLUR_TILE_Y;
             y += PENK_BLUR_BLOCK_Y) {
            if (y0 + y >= k.height)
                continue;
            const uint64_t line = dst + (uint64_t)(y0 + y) * dst_pitch;
            for (int32_t i = 0; i < PER_THREAD; i++) {
                const int32_t x =
                    (int32_t)PENK_THREAD_X + i * PENK_BLUR_BLOCK_X;
                if (x0 + x >= row_bytes)
                    continue;
                const uint16_t *at =
                    &across[(y + k.radius) * PENK_BLUR_TILE_X + x];
                uint32_t sum = k.weight[0] * at[0];
                for (int32_t t = 1; t <= k.radius; t++) {
                    const int32_t d = t * PENK_BLUR_TILE_X;
                    sum += k.weight[t] * ((uint32_t)at[-d] + at[d]);
                }
                *PENK_G(uint8_t, line + (uint64_t)(x0 + x)) =
                    (uint8_t)penk_blur_down(sum);
            }
        }
    }
}
