// CPU twin of resize.cu: strips of columns; source rows are filtered across
// once, kept in a ring while rows of the target need them, and filtered down
// from there.

#include "cpu.h"

enum {
    STRIP = 128,  // pixels of a strip
    ROWS = PENK_RESIZE_MAX_TAPS,
    SAMPLES = STRIP * 4
};

struct axis {
    const int32_t *start, *weight;
    int32_t taps;
};

static struct axis axis(uint64_t table, int32_t n, int32_t taps)
{
    const int32_t *t = (const int32_t *)(uintptr_t)table;
    return (struct axis){ .start = t, .weight = t + n, .taps = taps };
}

static void pick_row(const struct penk_resize_plane *p,
                     const uint8_t *restrict src, const int32_t *restrict start,
                     uint8_t *restrict dst)
{
    const int32_t channels = p->channels;
    if (channels == 1) {
        for (int32_t x = 0; x < p->dst_w; x++)
            dst[x] = src[start[x]];
        return;
    }
    for (int32_t x = 0; x < p->dst_w; x++) {
        const uint8_t *from = src + (size_t)start[x] * (size_t)channels;
        for (int32_t c = 0; c < channels; c++)
            dst[x * channels + c] = from[c];
    }
}

// The sums across of pixels x0 to x0 + n of the target.
static void sums_across(const struct axis *a, const uint8_t *restrict src,
                        int32_t x0, int32_t n, int32_t channels,
                        int32_t *restrict out)
{
    for (int32_t i = 0; i < n; i++) {
        const int32_t *w = a->weight + (size_t)(x0 + i) * (size_t)a->taps;
        const uint8_t *from = src + (size_t)a->start[x0 + i] * (size_t)channels;
        for (int32_t c = 0; c < channels; c++) {
            int32_t sum = 0;
            for (int32_t t = 0; t < a->taps; t++)
                sum += w[t] * from[t * channels + c];
            out[i * channels + c] = sum;
        }
    }
}

static void taps_strip(const struct penk_resize_plane *p, const struct axis *ax,
                       const struct axis *ay, int32_t x0, int32_t n,
                       int32_t row0, int32_t row1)
{
    const int32_t samples = n * p->channels;
    const uint8_t *src = (const uint8_t *)(uintptr_t)p->src;
    uint8_t *dst = (uint8_t *)(uintptr_t)p->dst;
    // With bicubic's overshoot a filtered sample stays in -2^12 .. 2^15.
    int16_t ring[ROWS][SAMPLES];
    int32_t sum[SAMPLES];
    int32_t done = 0;  // source rows below this one were filtered

    for (int32_t y = row0; y < row1; y++) {
        const int32_t first = ay->start[y];
        const int32_t *w = ay->weight + (size_t)y * (size_t)ay->taps;
        if (done < first)
            done = first;
        for (; done < first + ay->taps; done++) {
            int16_t *row = ring[done % ROWS];
            sums_across(ax, src + (uint64_t)done * p->src_pitch, x0, n,
                        p->channels, sum);
            for (int32_t i = 0; i < samples; i++)
                // They were just summed. NOLINTNEXTLINE(*-core.CallAndMessage)
                row[i] = (int16_t)penk_resize_across(sum[i]);
        }
        for (int32_t i = 0; i < samples; i++)
            sum[i] = 0;
        for (int32_t t = 0; t < ay->taps; t++) {
            const int16_t *row = ring[(first + t) % ROWS];
            const int32_t weight = w[t];
            for (int32_t i = 0; i < samples; i++)
                sum[i] += weight * row[i];
        }
        uint8_t *restrict out =
            dst + (uint64_t)y * p->dst_pitch + (size_t)x0 * (size_t)p->channels;
        for (int32_t i = 0; i < samples; i++)
            out[i] = (uint8_t)penk_resize_down(sum[i]);
    }
}

static void exact_strip(const struct penk_resize_plane *p,
                        const struct axis *ax, const struct axis *ay,
                        int32_t x0, int32_t n, int32_t row0, int32_t row1)
{
    const int32_t samples = n * p->channels;
    const uint64_t area = (uint64_t)p->src_w * (uint64_t)p->src_h;
    const uint8_t *src = (const uint8_t *)(uintptr_t)p->src;
    uint8_t *dst = (uint8_t *)(uintptr_t)p->dst;
    int32_t row[SAMPLES];
    uint64_t sum[SAMPLES];

    for (int32_t y = row0; y < row1; y++) {
        const int32_t *w = ay->weight + (size_t)y * (size_t)ay->taps;
        for (int32_t i = 0; i < samples; i++)
            sum[i] = 0;
        for (int32_t t = 0; t < ay->taps; t++) {
            if (w[t] == 0)
                continue;
            sums_across(ax, src + (uint64_t)(ay->start[y] + t) * p->src_pitch,
                        x0, n, p->channels, row);
            for (int32_t i = 0; i < samples; i++)
                sum[i] += (uint64_t)w[t] * (uint64_t)row[i];
        }
        uint8_t *restrict out =
            dst + (uint64_t)y * p->dst_pitch + (size_t)x0 * (size_t)p->channels;
        for (int32_t i = 0; i < samples; i++)
            out[i] = (uint8_t)penk_resize_mean(sum[i], area);
    }
}

void PENK_HOST_NAME(stk_cpu_resize)(const struct penk_resize *args,
                                    int32_t row0, int32_t row1)
{
    for (int32_t i = 0; i < args->planes; i++) {
        const struct penk_resize_plane *p = &args->plane[i];
        const struct axis ax = axis(p->table_x, p->dst_w, p->taps_x);
        const struct axis ay = axis(p->table_y, p->dst_h, p->taps_y);
        // Chroma of 4:2:0 has half as many rows, rounded up.
        const bool half = p->dst_h != args->plane[0].dst_h;
        const int32_t y0 = half ? row0 / 2 : row0;
        const int32_t y1 = half ? (row1 + 1) / 2 : row1;

        if (args->mode == PENK_RESIZE_PICK) {
            for (int32_t y = y0; y < y1; y++)
                pick_row(p,
                         (const uint8_t *)(uintptr_t)p->src +
                             (uint64_t)ay.start[y] * p->src_pitch,
                         ax.start,
                         (uint8_t *)(uintptr_t)p->dst +
                             (uint64_t)y * p->dst_pitch);
            continue;
        }
        for (int32_t x = 0; x < p->dst_w; x += STRIP) {
            const int32_t n = p->dst_w - x < STRIP ? p->dst_w - x : STRIP;
            if (args->mode == PENK_RESIZE_TAPS)
                taps_strip(p, &ax, &ay, x, n, y0, y1);
            else
                exact_strip(p, &ax, &ay, x, n, y0, y1);
        }
    }
}
