// Scaling and blur.

#include "reference.h"

#include <math.h>
#include <stdlib.h>

static int channels_of(enum pen_format f, int plane)
{
    switch (f) {
    case PEN_FMT_RGB:
    case PEN_FMT_BGR:
        return 3;
    case PEN_FMT_RGBA:
    case PEN_FMT_BGRA:
        return 4;
    case PEN_FMT_NV12:
        return plane > 0 ? 2 : 1;
    default:
        return 1;
    }
}

static int clamp_index(int i, int n)
{
    return i < 0 ? 0 : i >= n ? n - 1 : i;
}

static double clamp(double v)
{
    return v < 0 ? 0 : v > 255 ? 255 : v;
}

static double keys(double d)
{
    d = fabs(d);
    if (d < 1)
        return 1.5 * d * d * d - 2.5 * d * d + 1;
    if (d < 2)
        return -0.5 * d * d * d + 2.5 * d * d - 4 * d + 2;
    return 0;
}

static double weight(enum ref_interpolation how, int i, int dst, int src, int j)
{
    const double c = (i + 0.5) * src / dst - 0.5;
    switch (how) {
    case REF_BILINEAR:
        return fmax(0, 1 - fabs(c - j));
    case REF_BICUBIC:
        return keys(c - j);
    case REF_AREA: {
        const double low = fmax(j, (double)i * src / dst);
        const double high = fmin(j + 1.0, (i + 1.0) * src / dst);
        return fmax(0, high - low) * dst / src;
    }
    default:
        return j == (int)floor((i + 0.5) * src / dst);
    }
}

// out[dst x src]: weights of all source samples, those outside folded into the
// edges.
static double *weights(enum ref_interpolation how, int dst, int src)
{
    double *m = calloc((size_t)dst * (size_t)src, sizeof(*m));
    if (!m)
        abort();
    for (int i = 0; i < dst; i++)
        for (int j = -3; j < src + 3; j++)
            m[(size_t)i * (size_t)src + (size_t)clamp_index(j, src)] +=
                weight(how, i, dst, src, j);
    return m;
}

// out = down (in across), of one channel; `in` is src_h rows of src_w.
static void separable(const double *in, const double *across, int dst_w,
                      int src_w, const double *down, int dst_h, int src_h,
                      double *out)
{
    double *rows = calloc((size_t)src_h * (size_t)dst_w, sizeof(*rows));
    if (!rows)
        abort();
    for (int i = 0; i < dst_w; i++)
        for (int j = 0; j < src_w; j++) {
            const double w = across[(size_t)i * (size_t)src_w + (size_t)j];
            if (w != 0)
                for (int y = 0; y < src_h; y++)
                    rows[y * dst_w + i] += w * in[y * src_w + j];
        }
    for (int k = 0; k < dst_w * dst_h; k++)
        out[k] = 0;
    for (int i = 0; i < dst_h; i++)
        for (int j = 0; j < src_h; j++) {
            const double w = down[(size_t)i * (size_t)src_h + (size_t)j];
            if (w != 0)
                for (int x = 0; x < dst_w; x++)
                    out[i * dst_w + x] += w * rows[j * dst_w + x];
        }
    free(rows);
}

// Filter plane `p` of the picture; returns the end of what was written.
static double *filter_plane(const struct ref_picture *src, int p, int src_w,
                            int src_h, int dst_w, int dst_h,
                            const double *across, const double *down,
                            double *out)
{
    const int n = channels_of(src->format, p);
    double *in = calloc((size_t)src_w * (size_t)src_h, sizeof(*in));
    double *one = calloc((size_t)dst_w * (size_t)dst_h, sizeof(*one));
    if (!in || !one)
        abort();
    for (int c = 0; c < n; c++) {
        for (int y = 0; y < src_h; y++)
            for (int x = 0; x < src_w; x++)
                in[y * src_w + x] = src->plane[p][(size_t)y * src->pitch[p] +
                                                  (size_t)(x * n + c)];
        separable(in, across, dst_w, src_w, down, dst_h, src_h, one);
        for (int k = 0; k < dst_w * dst_h; k++)
            out[k * n + c] = clamp(one[k]);
    }
    free(one);
    free(in);
    return out + (size_t)dst_w * (size_t)dst_h * (size_t)n;
}

void ref_resize(const struct ref_picture *src, int dst_w, int dst_h,
                enum ref_interpolation interpolation, double *out)
{
    const enum pen_format f = src->format;
    for (int p = 0; p < ref_planes(f); p++) {
        const int half = p > 0 && f != PEN_FMT_YUV444;
        const int sw = half ? (src->w + 1) / 2 : src->w;
        const int sh = half ? (src->h + 1) / 2 : src->h;
        const int dw = half ? (dst_w + 1) / 2 : dst_w;
        const int dh = half ? (dst_h + 1) / 2 : dst_h;
        double *across = weights(interpolation, dw, sw);
        double *down = weights(interpolation, dh, sh);
        out = filter_plane(src, p, sw, sh, dw, dh, across, down, out);
        free(down);
        free(across);
    }
}

static double *gauss(int n, int kernel_size, double sigma)
{
    const int r = (kernel_size - 1) / 2;
    double sum = 0;
    double *m = calloc((size_t)n * (size_t)n, sizeof(*m));
    if (!m)
        abort();
    for (int i = -r; i <= r; i++)
        sum += exp(-i * i / (2 * sigma * sigma));
    for (int x = 0; x < n; x++)
        for (int i = -r; i <= r; i++)
            m[(size_t)x * (size_t)n + (size_t)clamp_index(x + i, n)] +=
                exp(-i * i / (2 * sigma * sigma)) / sum;
    return m;
}

void ref_blur(const struct ref_picture *src, int kernel_size, double sigma,
              double *out)
{
    double *across = gauss(src->w, kernel_size, sigma);
    double *down = gauss(src->h, kernel_size, sigma);
    for (int p = 0; p < ref_planes(src->format); p++)
        out = filter_plane(src, p, src->w, src->h, src->w, src->h, across, down,
                           out);
    free(down);
    free(across);
}
