// CPU twin of convert.cu: the same samples through the same arithmetic, a span
// of a row (two for 4:2:0) at a time: fetch into one array per sample, apply
// the matrix, store. The loops are plain so that the compiler's vectoriser
// takes them.

#include <string.h>

#include "cpu.h"

// Pixels of a span; a multiple of 4, so that chroma blocks are never split.
enum { SPAN = 512 };

struct span {
    uint8_t a[SPAN], b[SPAN], c[SPAN], alpha[SPAN];
};

// Sums over the pixels of chroma blocks, at most 4 * 255.
struct sums {
    int16_t a[SPAN], b[SPAN], c[SPAN];
};

static uint8_t *address(uint64_t base, uint64_t pitch, int32_t row, size_t byte)
{
    return (uint8_t *)(uintptr_t)(base + (uint64_t)row * pitch + byte);
}

static void fetch3(const uint8_t *restrict at, int32_t n, uint8_t *restrict a,
                   uint8_t *restrict b, uint8_t *restrict c)
{
    for (int32_t i = 0; i < n; i++) {
        a[i] = at[3 * i];
        b[i] = at[3 * i + 1];
        c[i] = at[3 * i + 2];
    }
}

static void fetch4(const uint8_t *restrict at, int32_t n, uint8_t *restrict a,
                   uint8_t *restrict b, uint8_t *restrict c,
                   uint8_t *restrict d)
{
    for (int32_t i = 0; i < n; i++) {
        a[i] = at[4 * i];
        b[i] = at[4 * i + 1];
        c[i] = at[4 * i + 2];
        d[i] = at[4 * i + 3];
    }
}

static void store3(uint8_t *restrict at, int32_t n, const uint8_t *restrict a,
                   const uint8_t *restrict b, const uint8_t *restrict c)
{
    for (int32_t i = 0; i < n; i++) {
        at[3 * i] = a[i];
        at[3 * i + 1] = b[i];
        at[3 * i + 2] = c[i];
    }
}

static void store4(uint8_t *restrict at, int32_t n, const uint8_t *restrict a,
                   const uint8_t *restrict b, const uint8_t *restrict c,
                   const uint8_t *restrict d)
{
    for (int32_t i = 0; i < n; i++) {
        at[4 * i] = a[i];
        at[4 * i + 1] = b[i];
        at[4 * i + 2] = c[i];
        at[4 * i + 3] = d[i];
    }
}

// Every chroma sample twice; `n` pixels.
static void twice(const uint8_t *restrict from, int32_t n, int32_t step,
                  uint8_t *restrict to)
{
    for (int32_t i = 0; i < n / 2; i++)
        to[2 * i] = to[2 * i + 1] = from[i * step];
    if (n % 2)
        to[n - 1] = from[n / 2 * step];
}

static void fetch_422(const uint8_t *restrict at, int32_t n, int32_t luma,
                      struct span *restrict s)
{
    const int32_t chroma = 1 - luma;
    for (int32_t i = 0; i < n / 2; i++) {
        s->a[2 * i] = at[4 * i + luma];
        s->a[2 * i + 1] = at[4 * i + luma + 2];
        s->b[2 * i] = s->b[2 * i + 1] = at[4 * i + chroma];
        s->c[2 * i] = s->c[2 * i + 1] = at[4 * i + chroma + 2];
    }
    if (n % 2) {
        const uint8_t *last = at + n / 2 * 4;
        s->a[n - 1] = last[luma];
        s->b[n - 1] = last[chroma];
        s->c[n - 1] = last[chroma + 2];
    }
}

static void fetch_411(const uint8_t *restrict at, int32_t n,
                      struct span *restrict s)
{
    // The whole last group is there: rows are 6 * ceil(w / 4) bytes.
    for (int32_t i = 0; i < (n + 3) / 4; i++) {
        const uint8_t *group = at + 6 * i;
        s->a[4 * i] = group[1];
        s->a[4 * i + 1] = group[2];
        s->a[4 * i + 2] = group[4];
        s->a[4 * i + 3] = group[5];
        memset(&s->b[4 * i], group[0], 4);
        memset(&s->c[4 * i], group[3], 4);
    }
}

static void fetch(const struct penk_convert *k, int32_t x, int32_t y, int32_t n,
                  struct span *s)
{
    const size_t col = (size_t)x;
    const uint8_t *at = address(k->src[0], k->src_pitch[0], y, 0);

    switch (k->src_format) {
    case PENK_RGB:
        fetch3(at + 3 * col, n, s->a, s->b, s->c);
        break;
    case PENK_BGR:
        fetch3(at + 3 * col, n, s->c, s->b, s->a);
        break;
    case PENK_RGBA:
        fetch4(at + 4 * col, n, s->a, s->b, s->c, s->alpha);
        return;
    case PENK_BGRA:
        fetch4(at + 4 * col, n, s->c, s->b, s->a, s->alpha);
        return;
    case PENK_UYVY:
        fetch_422(at + 2 * col, n, 1, s);
        break;
    case PENK_YUYV:
        fetch_422(at + 2 * col, n, 0, s);
        break;
    case PENK_YUV411_I:
        fetch_411(at + col / 4 * 6, n, s);
        break;
    case PENK_YUV444:
        memcpy(s->a, at + col, (size_t)n);
        memcpy(s->b, address(k->src[1], k->src_pitch[1], y, col), (size_t)n);
        memcpy(s->c, address(k->src[2], k->src_pitch[2], y, col), (size_t)n);
        break;
    case PENK_YUV420:
        memcpy(s->a, at + col, (size_t)n);
        twice(address(k->src[1], k->src_pitch[1], y / 2, col / 2), n, 1, s->b);
        twice(address(k->src[2], k->src_pitch[2], y / 2, col / 2), n, 1, s->c);
        break;
    case PENK_NV12: {
        const uint8_t *uv = address(k->src[1], k->src_pitch[1], y / 2, col);
        memcpy(s->a, at + col, (size_t)n);
        twice(uv, n, 2, s->b);
        twice(uv + 1, n, 2, s->c);
        break;
    }
    default:  // PENK_MONO
        memcpy(s->a, at + col, (size_t)n);
        memcpy(s->b, at + col, (size_t)n);
        memcpy(s->c, at + col, (size_t)n);
        break;
    }
    memset(s->alpha, 255, (size_t)n);
}

static void matrix_row(const struct penk_convert *k, int32_t row,
                       const struct span *restrict s, int32_t n,
                       uint8_t *restrict out)
{
    const int32_t m0 = k->m[3 * row], m1 = k->m[3 * row + 1];
    const int32_t m2 = k->m[3 * row + 2], o = k->o[row];
    for (int32_t i = 0; i < n; i++)
        // load() filled n samples. NOLINTNEXTLINE(*-core.CallAndMessage)
        out[i] = (uint8_t)penk_convert_sample(m0, m1, m2, o, s->a[i], s->b[i],
                                              s->c[i]);
}

static void sum_blocks(const uint8_t *restrict top,
                       const uint8_t *restrict below, int32_t n, int32_t width,
                       int16_t *restrict out)
{
    const int32_t whole = n / width;
    if (width == 1) {
        for (int32_t i = 0; i < whole; i++)
            out[i] = top[i];
    } else if (width == 2 && below) {
        for (int32_t i = 0; i < whole; i++)
            out[i] = (int16_t)(top[2 * i] + top[2 * i + 1] + below[2 * i] +
                               below[2 * i + 1]);
    } else if (width == 2) {
        for (int32_t i = 0; i < whole; i++)
            out[i] = (int16_t)(top[2 * i] + top[2 * i + 1]);
    } else {
        for (int32_t i = 0; i < whole; i++)
            out[i] = (int16_t)(top[4 * i] + top[4 * i + 1] + top[4 * i + 2] +
                               top[4 * i + 3]);
    }
    if (n % width) {
        int16_t sum = 0;
        for (int32_t i = whole * width; i < n; i++)
            sum = (int16_t)(sum + top[i] + (below ? below[i] : 0));
        out[whole] = sum;
    }
}

static void chroma_row(const struct penk_convert *k, int32_t row,
                       const struct sums *restrict s, int32_t first,
                       int32_t end, int32_t pixels, uint8_t *restrict out)
{
    const int32_t m0 = k->m[3 * row], m1 = k->m[3 * row + 1];
    const int32_t m2 = k->m[3 * row + 2], o = k->o[row];
    for (int32_t i = first; i < end; i++)
        out[i] = (uint8_t)penk_convert_chroma(m0, m1, m2, o, pixels, s->a[i],
                                              s->b[i], s->c[i]);
}

// Chroma of `n` pixels in blocks of `width` pixels; of two rows with `below`.
static void chroma(const struct penk_convert *k, const struct span *top,
                   const struct span *below, struct sums *s, int32_t n,
                   int32_t width, uint8_t *u, uint8_t *v)
{
    const int32_t rows = below ? 2 : 1;
    const int32_t whole = n / width, rest = n % width;
    sum_blocks(top->a, below ? below->a : NULL, n, width, s->a);
    sum_blocks(top->b, below ? below->b : NULL, n, width, s->b);
    sum_blocks(top->c, below ? below->c : NULL, n, width, s->c);
    chroma_row(k, 1, s, 0, whole, width * rows, u);
    chroma_row(k, 2, s, 0, whole, width * rows, v);
    if (rest) {
        chroma_row(k, 1, s, whole, whole + 1, rest * rows, u);
        chroma_row(k, 2, s, whole, whole + 1, rest * rows, v);
    }
}

static void store_422(uint8_t *restrict at, int32_t pairs, int32_t luma,
                      const uint8_t *restrict y, const uint8_t *restrict u,
                      const uint8_t *restrict v)
{
    const int32_t first = 1 - luma;
    for (int32_t i = 0; i < pairs; i++) {
        at[4 * i + luma] = y[2 * i];
        at[4 * i + luma + 2] = y[2 * i + 1];
        at[4 * i + first] = u[i];
        at[4 * i + first + 2] = v[i];
    }
}

// One row of the target; the chroma rows of 4:2:0 are stored apart.
static void store(const struct penk_convert *k, int32_t x, int32_t y, int32_t n,
                  const struct span *s, struct sums *sums)
{
    const size_t col = (size_t)x;
    uint8_t *at = address(k->dst[0], k->dst_pitch[0], y, 0);
    uint8_t a[SPAN], b[SPAN], c[SPAN];

    matrix_row(k, 0, s, n, a);
    switch (k->dst_format) {
    case PENK_RGB:
    case PENK_BGR:
    case PENK_RGBA:
    case PENK_BGRA:
        matrix_row(k, 1, s, n, b);
        matrix_row(k, 2, s, n, c);
        break;
    case PENK_YUV444:
        chroma(k, s, NULL, sums, n, 1, b, c);
        break;
    case PENK_UYVY:
    case PENK_YUYV:
        chroma(k, s, NULL, sums, n, 2, b, c);
        break;
    case PENK_YUV411_I:
        chroma(k, s, NULL, sums, n, 4, b, c);
        break;
    default:
        break;
    }
    // Luma that lies in the padding of a packed row repeats the last pixel.
    for (int32_t i = n; i % 4; i++)
        a[i] = a[n - 1];

    switch (k->dst_format) {
    case PENK_RGB:
        store3(at + 3 * col, n, a, b, c);
        break;
    case PENK_BGR:
        store3(at + 3 * col, n, c, b, a);
        break;
    case PENK_RGBA:
        store4(at + 4 * col, n, a, b, c, s->alpha);
        break;
    case PENK_BGRA:
        store4(at + 4 * col, n, c, b, a, s->alpha);
        break;
    case PENK_UYVY:
        store_422(at + 2 * col, (n + 1) / 2, 1, a, b, c);
        break;
    case PENK_YUYV:
        store_422(at + 2 * col, (n + 1) / 2, 0, a, b, c);
        break;
    case PENK_YUV411_I:
        for (int32_t i = 0; i < (n + 3) / 4; i++) {
            uint8_t *group = at + col / 4 * 6 + 6 * i;
            group[0] = b[i];
            group[1] = a[4 * i];
            group[2] = a[4 * i + 1];
            group[3] = c[i];
            group[4] = a[4 * i + 2];
            group[5] = a[4 * i + 3];
        }
        break;
    case PENK_YUV444:
        memcpy(at + col, a, (size_t)n);
        memcpy(address(k->dst[1], k->dst_pitch[1], y, col), b, (size_t)n);
        memcpy(address(k->dst[2], k->dst_pitch[2], y, col), c, (size_t)n);
        break;
    default:  // PENK_MONO, PENK_YUV420, PENK_NV12
        memcpy(at + col, a, (size_t)n);
        break;
    }
}

static void store_chroma420(const struct penk_convert *k, int32_t x, int32_t y,
                            int32_t n, const struct span *top,
                            const struct span *below, struct sums *sums)
{
    const int32_t pairs = (n + 1) / 2;
    uint8_t u[SPAN], v[SPAN];
    chroma(k, top, below, sums, n, 2, u, v);
    if (k->dst_format == PENK_NV12) {
        uint8_t *uv = address(k->dst[1], k->dst_pitch[1], y / 2, (size_t)x);
        for (int32_t i = 0; i < pairs; i++) {
            uv[2 * i] = u[i];
            uv[2 * i + 1] = v[i];
        }
    } else {
        const size_t col = (size_t)x / 2;
        memcpy(address(k->dst[1], k->dst_pitch[1], y / 2, col), u,
               (size_t)pairs);
        memcpy(address(k->dst[2], k->dst_pitch[2], y / 2, col), v,
               (size_t)pairs);
    }
}

void PENK_HOST_NAME(stk_cpu_convert)(const struct penk_convert *args,
                                     int32_t row0, int32_t row1)
{
    const bool pairs =
        args->dst_format == PENK_YUV420 || args->dst_format == PENK_NV12;
    struct span top, below;
    struct sums sums;  // scratch of the chroma rows

    for (int32_t y = row0; y < row1; y += pairs ? 2 : 1) {
        const bool two = pairs && y + 1 < row1;
        for (int32_t x = 0; x < args->width; x += SPAN) {
            const int32_t n = args->width - x < SPAN ? args->width - x : SPAN;
            fetch(args, x, y, n, &top);
            store(args, x, y, n, &top, &sums);
            if (two) {
                fetch(args, x, y + 1, n, &below);
                store(args, x, y + 1, n, &below, &sums);
            }
            if (pairs)
                store_chroma420(args, x, y, n, &top, two ? &below : NULL,
                                &sums);
        }
    }
}
