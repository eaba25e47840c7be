// CPU twin of blur.cu: strips of a row are filtered across once, kept in a
// ring of 2 * radius + 1 rows, and filtered down from there.

#include "cpu.h"

enum {
    STRIP = 512,  // samples of a strip
    HALO = PENK_BLUR_MAX_RADIUS * PENK_BLUR_MAX_CHANNELS,
    ROWS = 2 * PENK_BLUR_MAX_RADIUS + 1
};

// Source samples x0 - halo to x0 + n + halo, borders replicated.
static void fetch(const uint8_t *restrict row, int32_t x0, int32_t n,
                  int32_t halo, int32_t channels, int32_t row_bytes,
                  uint8_t *restrict out)
{
    const int32_t end = x0 + n + halo;
    int32_t x = x0 - halo;
    for (; x < 0; x++)
        *out++ = row[(x + halo) % channels];
    for (; x < end && x < row_bytes; x++)
        *out++ = row[x];
    for (; x < end; x++)
        *out++ = row[row_bytes - channels + x % channels];
}

static void across(const struct penk_blur *k, const uint8_t *restrict row,
                   int32_t x0, int32_t n, uint16_t *restrict out)
{
    const int32_t halo = k->radius * k->channels;
    uint8_t staged[STRIP + 2 * HALO];
    uint32_t sum[STRIP];
    fetch(row, x0, n, halo, k->channels, k->width * k->channels, staged);

    const uint8_t *at = staged + halo;
    for (int32_t i = 0; i < n; i++)
        sum[i] = k->weight[0] * at[i];
    for (int32_t t = 1; t <= k->radius; t++) {
        const uint32_t w = k->weight[t];
        const uint8_t *left = at - t * k->channels;
        const uint8_t *right = at + t * k->channels;
        for (int32_t i = 0; i < n; i++)
            sum[i] += w * ((uint32_t)left[i] + right[i]);
    }
    for (int32_t i = 0; i < n; i++)
        out[i] = (uint16_t)penk_blur_across(sum[i]);
}

static void strip(const struct penk_blur *k, const uint8_t *src, uint64_t pitch,
                  uint8_t *dst, uint64_t dst_pitch, int32_t x0, int32_t n,
                  int32_t row0, int32_t row1)
{
    uint16_t ring[ROWS][STRIP];
    const int32_t size = 2 * k->radius + 1;
    uint32_t sum[STRIP];
    // Rows [done - size, done) of the source extended upwards are in the ring.
    int32_t done = row0 - k->radius;

    for (int32_t y = row0; y < row1; y++) {
        for (; done <= y + k->radius; done++) {
            const int32_t from = done < 0           ? 0
                                 : done < k->height ? done
                                                    : k->height - 1;
            across(k, src + (uint64_t)from * pitch, x0, n,
                   ring[(done + size) % size]);
        }
        const uint16_t *middle = ring[(y + size) % size];
        for (int32_t i = 0; i < n; i++)
            sum[i] = k->weight[0] * middle[i];
        for (int32_t t = 1; t <= k->radius; t++) {
            const uint32_t w = k->weight[t];
            const uint16_t *above = ring[(y - t + size) % size];
            const uint16_t *below = ring[(y + t + size) % size];
            for (int32_t i = 0; i < n; i++)
                sum[i] += w * ((uint32_t)above[i] + below[i]);
        }
        uint8_t *restrict out = dst + (uint64_t)y * dst_pitch + x0;
        for (int32_t i = 0; i < n; i++)
            out[i] = (uint8_t)penk_blur_down(sum[i]);
    }
}

void PENK_HOST_NAME(stk_cpu_blur)(const struct penk_blur *args, int32_t row0,
                                  int32_t row1)
{
    const int32_t row_bytes = args->width * args->channels;
    for (int32_t p = 0; p < args->planes; p++) {
        const uint8_t *src = (const uint8_t *)(uintptr_t)args->src[p];
        uint8_t *dst = (uint8_t *)(uintptr_t)args->dst[p];
        for (int32_t x = 0; x < row_bytes; x += STRIP) {
            const int32_t n = row_bytes - x < STRIP ? row_bytes - x : STRIP;
            strip(args, src, args->src_pitch[p], dst, args->dst_pitch[p], x, n,
                  row0, row1);
        }
    }
}
