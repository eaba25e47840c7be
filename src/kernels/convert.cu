// Conversion between the eleven pixel formats. A thread fetches 4 x 2 pixels
// as samples (R, G, B), (Y, U, V) or (MONO x 3), applies the matrix, and stores
// them; chroma is repeated by the fetch and averaged before the store, inside
// the thread. All switches are on arguments, so the same for all threads.
// Source: docs/guide/operators.md, "Conversion".
#include "convert.kern.h"

// Four pixels of a row: three samples each, and alpha.
struct pixels {
    int32_t a[4], b[4], c[4], alpha[4];
};

// Bytes [at, at + n) of at most `most` (a constant); by words where all are
// there and the address allows.
PENK_FN void fetch(PENK_CTX uint64_t at, int32_t n, int32_t most, uint8_t *out)
{
    if (n == most && most % 4 == 0 && at % 4 == 0) {
        PENK_UNROLL
        for (int32_t i = 0; i < most; i += 4) {
            const uint32_t word = *PENK_G(const uint32_t, at + (uint64_t)i);
            out[i] = (uint8_t)word;
            out[i + 1] = (uint8_t)(word >> 8);
            out[i + 2] = (uint8_t)(word >> 16);
            out[i + 3] = (uint8_t)(word >> 24);
        }
    } else {
        PENK_UNROLL
        for (int32_t i = 0; i < most; i++)
            out[i] = i < n ? *PENK_G(const uint8_t, at + (uint64_t)i) : 0;
    }
}

PENK_FN void store(PENK_CTX uint64_t at, int32_t n, int32_t most,
                   const uint8_t *in)
{
    if (n == most && most % 4 == 0 && at % 4 == 0) {
        PENK_UNROLL
        for (int32_t i = 0; i < most; i += 4)
            *PENK_G(uint32_t, at + (uint64_t)i) =
                in[i] | (uint32_t)in[i + 1] << 8 | (uint32_t)in[i + 2] << 16 |
                (uint32_t)in[i + 3] << 24;
    } else {
        PENK_UNROLL
        for (int32_t i = 0; i < most; i++) {
            if (i < n)
                *PENK_G(uint8_t, at + (uint64_t)i) = in[i];
        }
    }
}

// Packed pixels of `size` samples, `first` the place of R or B.
PENK_FN void fetch_packed(PENK_CTX uint64_t at, int32_t n, int32_t size,
                          bool reversed, struct pixels *p)
{
    uint8_t raw[16] = { 0 };
    fetch(PENK_PASS at, n * size, 4 * size, raw);
    PENK_UNROLL
    for (int32_t i = 0; i < 4; i++) {
        const int32_t first = raw[i * size], third = raw[i * size + 2];
        p->a[i] = reversed ? third : first;
        p->b[i] = raw[i * size + 1];
        p->c[i] = reversed ? first : third;
        p->alpha[i] = size == 4 ? raw[i * size + size - 1] : 255;
    }
}

PENK_FN void fetch_pixels(PENK_CTX const struct penk_convert *k, int32_t x,
                          int32_t y, int32_t n, struct pixels *p)
{
    const uint64_t at = k->src[0] + (uint64_t)y * k->src_pitch[0];
    const uint64_t pairs = (uint64_t)(n + 1) / 2;
    uint8_t raw[8], u[4], v[4];

    PENK_UNROLL
    for (int32_t i = 0; i < 4; i++)
        p->alpha[i] = 255;

    switch (k->src_format) {
    case PENK_RGB:
    case PENK_BGR:
        fetch_packed(PENK_PASS at + 3 * (uint64_t)x, n, 3,
                     k->src_format == PENK_BGR, p);
        break;
    case PENK_RGBA:
    case PENK_BGRA:
        fetch_packed(PENK_PASS at + 4 * (uint64_t)x, n, 4,
                     k->src_format == PENK_BGRA, p);
        break;
    case PENK_UYVY:
    case PENK_YUYV: {
        fetch(PENK_PASS at + 2 * (uint64_t)x, (int32_t)pairs * 4, 8, raw);
        const bool chroma_first = k->src_format == PENK_UYVY;
        PENK_UNROLL
        for (int32_t i = 0; i < 4; i++) {
            const int32_t g = i / 2 * 4, j = i % 2 * 2;
            p->a[i] = chroma_first ? raw[g + j + 1] : raw[g + j];
            p->b[i] = chroma_first ? raw[g] : raw[g + 1];
            p->c[i] = chroma_first ? raw[g + 2] : raw[g + 3];
        }
        break;
    }
    case PENK_YUV411_I:
        fetch(PENK_PASS at + (uint64_t)x / 4 * 6, 6, 6, raw);
        p->a[0] = raw[1];
        p->a[1] = raw[2];
        p->a[2] = raw[4];
        p->a[3] = raw[5];
        PENK_UNROLL
        for (int32_t i = 0; i < 4; i++) {
            p->b[i] = raw[0];
            p->c[i] = raw[3];
        }
        break;
    case PENK_YUV444:
        fetch(PENK_PASS at + (uint64_t)x, n, 4, raw);
        fetch(PENK_PASS k->src[1] + (uint64_t)y * k->src_pitch[1] + (uint64_t)x,
              n, 4, u);
        fetch(PENK_PASS k->src[2] + (uint64_t)y * k->src_pitch[2] + (uint64_t)x,
              n, 4, v);
        PENK_UNROLL
        for (int32_t i = 0; i < 4; i++) {
            p->a[i] = raw[i];
            p->b[i] = u[i];
            p->c[i] = v[i];
        }
        break;
    case PENK_YUV420: {
        const uint64_t row = (uint64_t)y / 2, col = (uint64_t)x / 2;
        fetch(PENK_PASS at + (uint64_t)x, n, 4, raw);
        fetch(PENK_PASS k->src[1] + row * k->src_pitch[1] + col, (int32_t)pairs,
              2, u);
        fetch(PENK_PASS k->src[2] + row * k->src_pitch[2] + col, (int32_t)pairs,
              2, v);
        PENK_UNROLL
        for (int32_t i = 0; i < 4; i++) {
            p->a[i] = raw[i];
            p->b[i] = u[i / 2];
            p->c[i] = v[i / 2];
        }
        break;
    }
    case PENK_NV12:
        fetch(PENK_PASS at + (uint64_t)x, n, 4, raw);
        fetch(PENK_PASS k->src[1] + (uint64_t)y / 2 * k->src_pitch[1] +
                  (uint64_t)x,
              (int32_t)pairs * 2, 4, u);
        PENK_UNROLL
        for (int32_t i = 0; i < 4; i++) {
            p->a[i] = raw[i];
            p->b[i] = u[i / 2 * 2];
            p->c[i] = u[i / 2 * 2 + 1];
        }
        break;
    default:  // PENK_MONO
        fetch(PENK_PASS at + (uint64_t)x, n, 4, raw);
        PENK_UNROLL
        for (int32_t i = 0; i < 4; i++)
            p->a[i] = p->b[i] = p->c[i] = raw[i];
        break;
    }
}

PENK_FN int32_t sample(const struct penk_convert *k, int32_t row, int32_t a,
                       int32_t b, int32_t c)
{
    return penk_convert_sample(k->m[3 * row], k->m[3 * row + 1],
                               k->m[3 * row + 2], k->o[row], a, b, c);
}

PENK_FN int32_t chroma(const struct penk_convert *k, int32_t row, int32_t n,
                       int32_t a, int32_t b, int32_t c)
{
    return penk_convert_chroma(k->m[3 * row], k->m[3 * row + 1],
                               k->m[3 * row + 2], k->o[row], n, a, b, c);
}

PENK_FN void store_packed(PENK_CTX const struct penk_convert *k, uint64_t at,
                          int32_t n, int32_t size, bool reversed,
                          const struct pixels *p)
{
    uint8_t raw[16];
    PENK_UNROLL
    for (int32_t i = 0; i < 4; i++) {
        const int32_t r = sample(k, 0, p->a[i], p->b[i], p->c[i]);
        const int32_t g = sample(k, 1, p->a[i], p->b[i], p->c[i]);
        const int32_t b = sample(k, 2, p->a[i], p->b[i], p->c[i]);
        raw[i * size] = (uint8_t)(reversed ? b : r);
        raw[i * size + 1] = (uint8_t)g;
        raw[i * size + 2] = (uint8_t)(reversed ? r : b);
        if (size == 4)
            raw[i * size + size - 1] = (uint8_t)p->alpha[i];
    }
    store(PENK_PASS at, n * size, 4 * size, raw);
}

// Chroma of `count` pixels from `i` on, of which the first `exist` of the four
// are there; of two rows if `two`.
PENK_FN void mean(const struct penk_convert *k, const struct pixels *p,
                  const struct pixels *below, bool two, int32_t i,
                  int32_t count, int32_t exist, uint8_t *u, uint8_t *v)
{
    int32_t a = 0, b = 0, c = 0, n = 0;
    PENK_UNROLL
    for (int32_t j = 0; j < count; j++) {
        if (i + j >= exist)
            continue;
        a += p->a[i + j];
        b += p->b[i + j];
        c += p->c[i + j];
        n++;
        if (two) {
            a += below->a[i + j];
            b += below->b[i + j];
            c += below->c[i + j];
            n++;
        }
    }
    *u = (uint8_t)chroma(k, 1, n, a, b, c);
    *v = (uint8_t)chroma(k, 2, n, a, b, c);
}

// One row of the target; the chroma rows of 4:2:0 are stored apart.
PENK_FN void store_pixels(PENK_CTX const struct penk_convert *k, int32_t x,
                          int32_t y, int32_t n, const struct pixels *p)
{
    const uint64_t at = k->dst[0] + (uint64_t)y * k->dst_pitch[0];
    const int32_t pairs = (n + 1) / 2;
    uint8_t raw[8], luma[4], u[4], v[4];

    switch (k->dst_format) {
    case PENK_RGB:
    case PENK_BGR:
        store_packed(PENK_PASS k, at + 3 * (uint64_t)x, n, 3,
                     k->dst_format == PENK_BGR, p);
        return;
    case PENK_RGBA:
    case PENK_BGRA:
        store_packed(PENK_PASS k, at + 4 * (uint64_t)x, n, 4,
                     k->dst_format == PENK_BGRA, p);
        return;
    default:
        break;
    }

    // Luma that lies in the padding of a packed row repeats the last pixel.
    PENK_UNROLL
    for (int32_t i = 0; i < 4; i++)
        luma[i] = i < n || i == 0
                      ? (uint8_t)sample(k, 0, p->a[i], p->b[i], p->c[i])
                      : luma[i - 1];

    switch (k->dst_format) {
    case PENK_UYVY:
    case PENK_YUYV: {
        const bool chroma_first = k->dst_format == PENK_UYVY;
        mean(k, p, p, false, 0, 2, n, &u[0], &v[0]);
        mean(k, p, p, false, 2, 2, n, &u[1], &v[1]);
        PENK_UNROLL
        for (int32_t i = 0; i < 2; i++) {
            raw[4 * i] = chroma_first ? u[i] : luma[2 * i];
            raw[4 * i + 1] = chroma_first ? luma[2 * i] : u[i];
            raw[4 * i + 2] = chroma_first ? v[i] : luma[2 * i + 1];
            raw[4 * i + 3] = chroma_first ? luma[2 * i + 1] : v[i];
        }
        store(PENK_PASS at + 2 * (uint64_t)x, pairs * 4, 8, raw);
        break;
    }
    case PENK_YUV411_I:
        mean(k, p, p, false, 0, 4, n, &u[0], &v[0]);
        raw[0] = u[0];
        raw[1] = luma[0];
        raw[2] = luma[1];
        raw[3] = v[0];
        raw[4] = luma[2];
        raw[5] = luma[3];
        store(PENK_PASS at + (uint64_t)x / 4 * 6, 6, 6, raw);
        break;
    case PENK_YUV444:
        PENK_UNROLL
        for (int32_t i = 0; i < 4; i++) {
            u[i] = (uint8_t)chroma(k, 1, 1, p->a[i], p->b[i], p->c[i]);
            v[i] = (uint8_t)chroma(k, 2, 1, p->a[i], p->b[i], p->c[i]);
        }
        store(PENK_PASS k->dst[1] + (uint64_t)y * k->dst_pitch[1] + (uint64_t)x,
              n, 4, u);
        store(PENK_PASS k->dst[2] + (uint64_t)y * k->dst_pitch[2] + (uint64_t)x,
              n, 4, v);
        store(PENK_PASS at + (uint64_t)x, n, 4, luma);
        break;
    default:  // PENK_MONO, PENK_YUV420, PENK_NV12
        store(PENK_PASS at + (uint64_t)x, n, 4, luma);
        break;
    }
}

PENK_FN void store_chroma420(PENK_CTX const struct penk_convert *k, int32_t x,
                             int32_t y, int32_t n, const struct pixels *p,
                             const struct pixels *below, bool two)
{
    const int32_t pairs = (n + 1) / 2;
    const uint64_t row = (uint64_t)y / 2, col = (uint64_t)x / 2;
    uint8_t u[2], v[2];

    mean(k, p, below, two, 0, 2, n, &u[0], &v[0]);
    mean(k, p, below, two, 2, 2, n, &u[1], &v[1]);
    if (k->dst_format == PENK_NV12) {
        const uint8_t raw[4] = { u[0], v[0], u[1], v[1] };
        store(PENK_PASS k->dst[1] + row * k->dst_pitch[1] + 2 * col, pairs * 2,
              4, raw);
    } else {
        store(PENK_PASS k->dst[1] + row * k->dst_pitch[1] + col, pairs, 2, u);
        store(PENK_PASS k->dst[2] + row * k->dst_pitch[2] + col, pairs, 2, v);
    }
}

PENK_KERNEL(penk_convert, struct penk_convert, args)
{
    // A copy whose fields become registers or constants; helpers that take
    // the address of the block itself would have it put on the stack.
    const struct penk_convert copy = args, *const k = &copy;

    PENK_THREADS {
        const int32_t x =
            (int32_t)(PENK_BLOCK_X * PENK_CONVERT_BLOCK_X + PENK_THREAD_X) *
            PENK_CONVERT_PX;
        const int32_t y =
            (int32_t)(PENK_BLOCK_Y * PENK_CONVERT_BLOCK_Y + PENK_THREAD_Y) *
            PENK_CONVERT_PY;
        if (x >= k->width || y >= k->height)
            continue;
        const int32_t n = k->width - x < 4 ? k->width - x : 4;
        const bool two = y + 1 < k->height;
        struct pixels top, below;

        fetch_pixels(PENK_PASS k, x, y, n, &top);
        store_pixels(PENK_PASS k, x, y, n, &top);
        if (two) {
            fetch_pixels(PENK_PASS k, x, y + 1, n, &below);
            store_pixels(PENK_PASS k, x, y + 1, n, &below);
        }
        if (k->dst_format == PENK_YUV420 || k->dst_format == PENK_NV12)
            store_chroma420(PENK_PASS k, x, y, n, &top, &below, two);
    }
}
