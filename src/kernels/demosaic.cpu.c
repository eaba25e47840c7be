// Bilinear demosaicing of 8-bit Bayer pictures to RGB and MONO, on the CPU
// only. Every colour is a sum over four samples, so that there is one rounding.
// Source: docs/guide/operators.md, "Bayer".

#include "cpu.h"

enum { SPAN = 512 };

// Mirror without repeating the border: -1 is 1, n is n - 2; a side of one
// sample mirrors to itself.
static int32_t mirror(int32_t i, int32_t n)
{
    if (n == 1)
        return 0;
    return i < 0 ? -i : i < n ? i : 2 * n - 2 - i;
}

// Samples x - 1 to x + n of a row.
static void fetch(const uint8_t *restrict row, int32_t x, int32_t n,
                  int32_t width, uint8_t *restrict out)
{
    out[0] = row[mirror(x - 1, width)];
    for (int32_t i = 0; i < n; i++)
        out[i + 1] = row[x + i];
    out[n + 1] = row[mirror(x + n, width)];
}

void PENK_HOST_NAME(stk_cpu_demosaic)(const struct penk_convert *args,
                                      int32_t row0, int32_t row1)
{
    const struct penk_convert *k = args;
    // Where red stands in the 2 x 2 pattern.
    const int32_t red_x =
        k->src_format == PENK_BAYERGB8 || k->src_format == PENK_BAYERRG8;
    const int32_t red_y =
        k->src_format == PENK_BAYERGR8 || k->src_format == PENK_BAYERRG8;
    const uint8_t *src = (const uint8_t *)(uintptr_t)k->src[0];
    uint8_t *dst = (uint8_t *)(uintptr_t)k->dst[0];
    uint8_t up[SPAN + 2], at[SPAN + 2], down[SPAN + 2];
    // Four times the colour of this row's sites, the green, the other colour.
    int16_t own[SPAN], green[SPAN], other[SPAN];

    for (int32_t y = row0; y < row1; y++) {
        const uint8_t *row_up =
            src + (uint64_t)mirror(y - 1, k->height) * k->src_pitch[0];
        const uint8_t *row_at = src + (uint64_t)y * k->src_pitch[0];
        const uint8_t *row_down =
            src + (uint64_t)mirror(y + 1, k->height) * k->src_pitch[0];
        const bool red_row = y % 2 == red_y;
        // Column parity of the row's coloured sites.
        const int32_t site = red_row ? red_x : 1 - red_x;
        const int16_t *r = red_row ? own : other;
        const int16_t *b = red_row ? other : own;
        uint8_t *out = dst + (uint64_t)y * k->dst_pitch[0];

        for (int32_t x = 0; x < k->width; x += SPAN) {
            const int32_t n = k->width - x < SPAN ? k->width - x : SPAN;
            fetch(row_up, x, n, k->width, up);
            fetch(row_at, x, n, k->width, at);
            fetch(row_down, x, n, k->width, down);
            for (int32_t i = 0; i < n; i++) {
                const int32_t across = at[i] + at[i + 2];
                const int32_t along = up[i + 1] + down[i + 1];
                const int32_t corners =
                    up[i] + up[i + 2] + down[i] + down[i + 2];
                const bool coloured = i % 2 == site;  // SPAN is even
                own[i] = (int16_t)(coloured ? 4 * at[i + 1] : 2 * across);
                green[i] = (int16_t)(coloured ? across + along : 4 * at[i + 1]);
                other[i] = (int16_t)(coloured ? corners : 2 * along);
            }
            if (k->dst_format == PENK_MONO) {
                for (int32_t i = 0; i < n; i++)
                    out[x + i] = (uint8_t)penk_convert_chroma(
                        k->m[0], k->m[1], k->m[2], k->o[0], 4, r[i], green[i],
                        b[i]);
            } else {
                for (int32_t i = 0; i < n; i++) {
                    out[3 * (x + i)] = (uint8_t)((r[i] + 2) >> 2);
                    out[3 * (x + i) + 1] = (uint8_t)((green[i] + 2) >> 2);
                    out[3 * (x + i) + 2] = (uint8_t)((b[i] + 2) >> 2);
                }
            }
        }
    }
}
