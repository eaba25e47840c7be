#include "reference.h"

#include <stdlib.h>

struct colour {
    double kr, kg, kb;
    int limited;
};

// A pixel as (R, G, B), (Y, U, V) or (MONO, -, -), with alpha.
struct pixel {
    double v[3], alpha;
};

enum family { FAMILY_RGB, FAMILY_MONO, FAMILY_YUV };

static enum family family_of(enum pen_format f)
{
    switch (f) {
    case PEN_FMT_RGB:
    case PEN_FMT_BGR:
    case PEN_FMT_RGBA:
    case PEN_FMT_BGRA:
        return FAMILY_RGB;
    case PEN_FMT_MONO:
        return FAMILY_MONO;
    default:
        return FAMILY_YUV;
    }
}

static struct colour colour_of(enum pen_matrix matrix, enum pen_range range)
{
    struct colour c = { 0.299, 0, 0.114, range == PEN_RANGE_LIMITED };
    if (matrix == PEN_MATRIX_BT709) {
        c.kr = 0.2126;
        c.kb = 0.0722;
    } else if (matrix == PEN_MATRIX_BT2020) {
        c.kr = 0.2627;
        c.kb = 0.0593;
    }
    c.kg = 1 - c.kr - c.kb;
    return c;
}

static uint8_t byte(const struct ref_picture *p, int plane, int row, int at)
{
    return p->plane[plane][(size_t)row * p->pitch[plane] + (size_t)at];
}

static struct pixel read_pixel(const struct ref_picture *p, int x, int y)
{
    struct pixel v = { { 0 }, 255 };
    switch (p->format) {
    case PEN_FMT_MONO:
        v.v[0] = byte(p, 0, y, x);
        break;
    case PEN_FMT_RGB:
        for (int c = 0; c < 3; c++)
            v.v[c] = byte(p, 0, y, 3 * x + c);
        break;
    case PEN_FMT_BGR:
        for (int c = 0; c < 3; c++)
            v.v[c] = byte(p, 0, y, 3 * x + 2 - c);
        break;
    case PEN_FMT_RGBA:
        for (int c = 0; c < 3; c++)
            v.v[c] = byte(p, 0, y, 4 * x + c);
        v.alpha = byte(p, 0, y, 4 * x + 3);
        break;
    case PEN_FMT_BGRA:
        for (int c = 0; c < 3; c++)
            v.v[c] = byte(p, 0, y, 4 * x + 2 - c);
        v.alpha = byte(p, 0, y, 4 * x + 3);
        break;
    case PEN_FMT_YUV444:
        for (int c = 0; c < 3; c++)
            v.v[c] = byte(p, c, y, x);
        break;
    case PEN_FMT_YUV420:
        v.v[0] = byte(p, 0, y, x);
        v.v[1] = byte(p, 1, y / 2, x / 2);
        v.v[2] = byte(p, 2, y / 2, x / 2);
        break;
    case PEN_FMT_NV12:
        v.v[0] = byte(p, 0, y, x);
        v.v[1] = byte(p, 1, y / 2, x / 2 * 2);
        v.v[2] = byte(p, 1, y / 2, x / 2 * 2 + 1);
        break;
    case PEN_FMT_UYVY:
        v.v[0] = byte(p, 0, y, 2 * x + 1);
        v.v[1] = byte(p, 0, y, x / 2 * 4);
        v.v[2] = byte(p, 0, y, x / 2 * 4 + 2);
        break;
    case PEN_FMT_YUYV:
        v.v[0] = byte(p, 0, y, 2 * x);
        v.v[1] = byte(p, 0, y, x / 2 * 4 + 1);
        v.v[2] = byte(p, 0, y, x / 2 * 4 + 3);
        break;
    case PEN_FMT_YUV411_I: {
        static const int luma[4] = { 1, 2, 4, 5 };
        v.v[0] = byte(p, 0, y, x / 4 * 6 + luma[x % 4]);
        v.v[1] = byte(p, 0, y, x / 4 * 6);
        v.v[2] = byte(p, 0, y, x / 4 * 6 + 3);
        break;
    }
    default:
        abort();
    }
    return v;
}

static double luma_expand(double y, const struct colour *c)
{
    return c->limited ? (y - 16) * 255 / 219 : y;
}

static double luma_pack(double y, const struct colour *c)
{
    return c->limited ? 16 + y * 219 / 255 : y;
}

static double chroma_expand(double u, const struct colour *c)
{
    return c->limited ? (u - 128) * 255 / 224 : u - 128;
}

static double chroma_pack(double u, const struct colour *c)
{
    return c->limited ? 128 + u * 224 / 255 : 128 + u;
}

static struct pixel convert(struct pixel in, enum family from, enum family to,
                            const struct colour *src, const struct colour *dst)
{
    struct pixel out = in;
    // Full-range y, u, v of the input.
    double y, u = 0, v = 0;
    if (from == FAMILY_RGB) {
        const double r = in.v[0], g = in.v[1], b = in.v[2];
        if (to == FAMILY_RGB)
            return out;
        y = src->kr * r + src->kg * g + src->kb * b;
        u = (b - y) / (2 * (1 - src->kb));
        v = (r - y) / (2 * (1 - src->kr));
    } else if (from == FAMILY_MONO) {
        y = in.v[0];
    } else {
        y = luma_expand(in.v[0], src);
        u = chroma_expand(in.v[1], src);
        v = chroma_expand(in.v[2], src);
    }

    if (to == FAMILY_MONO) {
        out.v[0] = y;
    } else if (to == FAMILY_YUV) {
        out.v[0] = luma_pack(y, dst);
        out.v[1] = chroma_pack(u, dst);
        out.v[2] = chroma_pack(v, dst);
    } else {
        const double kr = src->kr, kg = src->kg, kb = src->kb;
        out.v[0] = y + 2 * (1 - kr) * v;
        out.v[1] = y - (2 * kr * (1 - kr) * v + 2 * kb * (1 - kb) * u) / kg;
        out.v[2] = y + 2 * (1 - kb) * u;
    }
    return out;
}

static double clamp(double v)
{
    return v < 0 ? 0 : v > 255 ? 255 : v;
}

// Mean of component `c` over the pixels of the block that exist.
static double mean(const struct pixel *all, int w, int h, int c, int bx, int by,
                   int bw, int bh)
{
    double sum = 0;
    int n = 0;
    for (int y = by * bh; y < by * bh + bh && y < h; y++) {
        for (int x = bx * bw; x < bx * bw + bw && x < w; x++) {
            sum += all[(size_t)y * (size_t)w + (size_t)x].v[c];
            n++;
        }
    }
    return sum / n;
}

void ref_convert(const struct ref_picture *src, enum pen_matrix matrix,
                 enum pen_range src_range, enum pen_format to,
                 enum pen_range dst_range, double *out)
{
    const int w = src->w, h = src->h;
    const struct colour from_colour = colour_of(matrix, src_range);
    const struct colour to_colour = colour_of(matrix, dst_range);
    struct pixel *all = calloc((size_t)w * (size_t)h, sizeof(*all));
    if (!all)
        abort();
    for (int y = 0; y < h; y++)
        for (int x = 0; x < w; x++)
            all[(size_t)y * (size_t)w + (size_t)x] =
                convert(read_pixel(src, x, y), family_of(src->format),
                        family_of(to), &from_colour, &to_colour);

    for (int plane = 0; plane < ref_planes(to); plane++) {
        const int row_bytes = (int)ref_row_bytes(to, plane, w);
        for (int y = 0; y < ref_rows(to, plane, h); y++) {
            for (int i = 0; i < row_bytes; i++) {
                // Component, pixel and alpha of byte i.
                int c = 0, x = i, bw = 1, bh = 1, alpha = 0;
                switch (to) {
                case PEN_FMT_RGB:
                    c = i % 3;
                    x = i / 3;
                    break;
                case PEN_FMT_BGR:
                    c = 2 - i % 3;
                    x = i / 3;
                    break;
                case PEN_FMT_RGBA:
                case PEN_FMT_BGRA:
                    c = to == PEN_FMT_RGBA ? i % 4 : 2 - i % 4;
                    alpha = i % 4 == 3;
                    x = i / 4;
                    break;
                case PEN_FMT_YUV444:
                    c = plane;
                    break;
                case PEN_FMT_YUV420:
                    c = plane;
                    bw = bh = plane > 0 ? 2 : 1;
                    break;
                case PEN_FMT_NV12:
                    if (plane > 0) {
                        c = 1 + i % 2;
                        x = i / 2;
                        bw = bh = 2;
                    }
                    break;
                case PEN_FMT_UYVY:
                case PEN_FMT_YUYV: {
                    // U Y V Y and Y U Y V
                    static const int order[2][4] = { { 1, 0, 2, 0 },
                                                     { 0, 1, 0, 2 } };
                    c = order[to == PEN_FMT_YUYV][i % 4];
                    bw = c > 0 ? 2 : 1;
                    x = c > 0 ? i / 4 : i / 2;
                    break;
                }
                case PEN_FMT_YUV411_I: {
                    static const int order[6] = { 1, 0, 0, 2, 0, 0 };
                    static const int pixel[6] = { 0, 0, 1, 0, 2, 3 };
                    c = order[i % 6];
                    bw = c > 0 ? 4 : 1;
                    x = c > 0 ? i / 6 : i / 6 * 4 + pixel[i % 6];
                    break;
                }
                default:
                    break;
                }
                if (bw == 1 && x >= w)
                    x = w - 1;
                *out++ = alpha ? all[(size_t)y * (size_t)w + (size_t)x].alpha
                               : clamp(mean(all, w, h, c, x, y, bw, bh));
            }
        }
    }
    free(all);
}

// --- Bayer ------------------------------------------------------------------

static int mirror(int i, int n)
{
    if (n == 1)
        return 0;
    if (i < 0)
        return -i;
    return i >= n ? 2 * (n - 1) - i : i;
}

// 0, 1, 2 for the R, G, B of a site; coordinates may lie outside by one.
static int site(enum pen_format f, int x, int y)
{
    static const int pattern[4][2][2] = {
        { { 0, 1 }, { 1, 2 } },  // BG: R G / G B
        { { 1, 0 }, { 2, 1 } },  // GB: G R / B G
        { { 1, 2 }, { 0, 1 } },  // GR: G B / R G
        { { 2, 1 }, { 1, 0 } },  // RG: B G / G R
    };
    return pattern[f - PEN_FMT_BAYERBG8][(y + 2) % 2][(x + 2) % 2];
}

void ref_bayer(const struct ref_picture *src, enum pen_matrix matrix,
               enum pen_format to, double *out)
{
    const struct colour k = colour_of(matrix, PEN_RANGE_FULL);
    for (int y = 0; y < src->h; y++) {
        for (int x = 0; x < src->w; x++) {
            double rgb[3];
            for (int c = 0; c < 3; c++) {
                double sum = 0;
                int n = 0;
                if (site(src->format, x, y) == c) {
                    sum = byte(src, 0, y, x);
                    n = 1;
                } else {
                    for (int dy = -1; dy <= 1; dy++)
                        for (int dx = -1; dx <= 1; dx++)
                            if (site(src->format, x + dx, y + dy) == c) {
                                sum += byte(src, 0, mirror(y + dy, src->h),
                                            mirror(x + dx, src->w));
                                n++;
                            }
                }
                rgb[c] = sum / n;
            }
            if (to == PEN_FMT_MONO) {
                *out++ = k.kr * rgb[0] + k.kg * rgb[1] + k.kb * rgb[2];
            } else {
                for (int c = 0; c < 3; c++)
                    *out++ = rgb[c];
            }
        }
    }
}
