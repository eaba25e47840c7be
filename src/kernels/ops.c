// The pure host part of the operators: argument blocks, tables, grids.

#include "ops.h"

#include <math.h>
#include <string.h>

// Blocks of a launch down, a limit of the device.
enum { MAX_GRID_Y = 65535 };
// Pixels of a side; sums of the kernels fit their types up to here.
enum { MAX_SIDE = 1 << 23 };

static uint32_t blocks(int32_t n, int32_t of)
{
    return (uint32_t)((n + of - 1) / of);
}

static bool is_yuv(enum pen_format f)
{
    return f < PEN_FMT_COUNT && (PEN_FMT_BIT(f) & PEN_FMT_BITS_YUV) != 0;
}

static bool is_bayer(enum pen_format f)
{
    return f < PEN_FMT_COUNT && (PEN_FMT_BIT(f) & PEN_FMT_BITS_BAYER8) != 0;
}

static const char *format_name(enum pen_format f)
{
    const struct pen_format_info *info = pen_format_info(f);
    return info ? info->name : "?";
}

// --- conversion -------------------------------------------------------------

uint32_t stk_convert_targets(enum pen_format from)
{
    if (from <= PEN_FMT_NONE || from >= PEN_FMT_COUNT)
        return 0;
    if (PEN_FMT_BIT(from) & PEN_FMT_BITS_ALL11)
        return PEN_FMT_BITS_ALL11;
    if (from == PEN_FMT_BAYERBG8)
        return PEN_FMT_BIT(PEN_FMT_RGB) | PEN_FMT_BIT(PEN_FMT_MONO);
    return is_bayer(from) ? PEN_FMT_BIT(PEN_FMT_RGB) : 0;
}

void stk_convert_caps(const struct pen_caps *src, enum pen_format format,
                      enum pen_range range, struct pen_caps *out)
{
    *out = *src;
    out->format = format;
    out->formats = format == PEN_FMT_NONE ? 0 : PEN_FMT_BIT(format);
    if (!is_yuv(format))
        out->range = PEN_RANGE_FULL;
    else if (range != PEN_RANGE_UNKNOWN)
        out->range = range;
    else if (src->format != PEN_FMT_NONE && !is_yuv(src->format))
        out->range = PEN_RANGE_LIMITED;
}

// A matrix in exact numbers: out = m in + o.
struct exact {
    double m[3][3], o[3];
};

// Kr and Kb of the standard: BT.601-7, BT.709-6, BT.2020-2.
static bool luma_weights(enum pen_matrix matrix, double *kr, double *kb)
{
    switch (matrix) {
    case PEN_MATRIX_BT601:
        *kr = 0.299;
        *kb = 0.114;
        return true;
    case PEN_MATRIX_BT709:
        *kr = 0.2126;
        *kb = 0.0722;
        return true;
    case PEN_MATRIX_BT2020:
        *kr = 0.2627;
        *kb = 0.0593;
        return true;
    case PEN_MATRIX_UNKNOWN:
        break;
    }
    return false;
}

// Y = scale_y * Y' + 16 or 0, likewise chroma about 128, Y' and C' of 0..255.
struct levels {
    double scale_y, offset_y, scale_c;
};

static struct levels levels_of(enum pen_range range)
{
    if (range == PEN_RANGE_LIMITED)
        return (struct levels){ 219.0 / 255.0, 16.0, 224.0 / 255.0 };
    return (struct levels){ 1.0, 0.0, 1.0 };
}

static struct exact from_rgb_to_yuv(double kr, double kb, struct levels l)
{
    const double kg = 1.0 - kr - kb;
    const double u = l.scale_c / (2.0 * (1.0 - kb));
    const double v = l.scale_c / (2.0 * (1.0 - kr));
    return (struct exact){
        .m = { { l.scale_y * kr, l.scale_y * kg, l.scale_y * kb },
               { -u * kr, -u * kg, u * (1.0 - kb) },
               { v * (1.0 - kr), -v * kg, -v * kb } },
        .o = { l.offset_y, 128.0, 128.0 },
    };
}

static struct exact from_yuv_to_rgb(double kr, double kb, struct levels l)
{
    const double kg = 1.0 - kr - kb;
    const double y = 1.0 / l.scale_y;
    const double rv = 2.0 * (1.0 - kr) / l.scale_c;
    const double bu = 2.0 * (1.0 - kb) / l.scale_c;
    const double gu = -bu * kb / kg, gv = -rv * kr / kg;
    return (struct exact){
        .m = { { y, 0, rv }, { y, gu, gv }, { y, bu, 0 } },
        .o = { -y * l.offset_y - 128.0 * rv,
               -y * l.offset_y - 128.0 * (gu + gv),
               -y * l.offset_y - 128.0 * bu },
    };
}

static struct exact from_yuv_to_yuv(struct levels from, struct levels to)
{
    const double y = to.scale_y / from.scale_y;
    const double c = to.scale_c / from.scale_c;
    return (struct exact){
        .m = { { y, 0, 0 }, { 0, c, 0 }, { 0, 0, c } },
        .o = { to.offset_y - y * from.offset_y, 128.0 - 128.0 * c,
               128.0 - 128.0 * c },
    };
}

// Round a row to the kernels' units, its sum kept: white stays white and grey
// stays grey. `ones` is 1, or 4 where the kernel sums four pixels.
//
// The rounding constant is a half and 2^-11: more than the error of the
// coefficients, less than half the step of 0.001 in which sums of the bt601
// weights come. So a luma that is exactly between two codes goes up, as the
// exact formula rounded half up does.
static void fix_row(const double *m, double o, int32_t ones, int32_t *out,
                    int32_t *out_o)
{
    const double one = 1 << PENK_CONVERT_SHIFT;
    const int32_t sum = (int32_t)lround((m[0] + m[1] + m[2]) * one);
    int32_t left = sum, largest = 0;
    for (int32_t i = 0; i < 3; i++) {
        out[i] = (int32_t)lround(m[i] * one);
        left -= out[i];
        if (fabs(m[i]) > fabs(m[largest]))
            largest = i;
    }
    out[largest] += left;
    *out_o = (int32_t)lround(o * one) * ones +
             ones * ((1 << (PENK_CONVERT_SHIFT - 1)) +
                     (1 << (PENK_CONVERT_SHIFT - 11)));
}

static enum pen_status unknown(struct pen_error *err, const char *what,
                               const struct pen_caps *src,
                               const struct pen_caps *dst)
{
    return pen_error_set(
        err, PEN_E_ARG, 0, "convert", "%s to %s: the %s is not known",
        format_name(src->format), format_name(dst->format), what);
}

enum pen_status stk_convert_setup(const struct pen_caps *dst,
                                  const struct pen_caps *src,
                                  struct penk_convert *out,
                                  struct pen_error *err)
{
    static const struct exact identity = {
        .m = { { 1, 0, 0 }, { 0, 1, 0 }, { 0, 0, 1 } },
    };
    const bool src_yuv = is_yuv(src->format), dst_yuv = is_yuv(dst->format);
    const bool to_mono = dst->format == PEN_FMT_MONO;
    const bool from_mono = src->format == PEN_FMT_MONO;
    struct exact x = identity;
    double kr = 0, kb = 0;

    memset(out, 0, sizeof(*out));
    if (dst->format <= PEN_FMT_NONE || dst->format >= PEN_FMT_COUNT ||
        !(stk_convert_targets(src->format) & PEN_FMT_BIT(dst->format)))
        return pen_error_set(err, PEN_E_UNSUPPORTED, 0, "convert",
                             "there is no conversion from %s to %s",
                             format_name(src->format),
                             format_name(dst->format));
    if (src->width < 1 || src->height < 1 || src->width != dst->width ||
        src->height != dst->height)
        return pen_error_set(err, PEN_E_ARG, 0, "convert",
                             "%dx%d to %dx%d: a conversion keeps the size",
                             src->width, src->height, dst->width, dst->height);
    if (src->width > MAX_SIDE ||
        blocks(src->height, PENK_CONVERT_BLOCK_Y * PENK_CONVERT_PY) >
            MAX_GRID_Y)
        return pen_error_set(
            err, PEN_E_LIMIT, 0, "convert", "%dx%d is larger than %dx%d",
            src->width, src->height, MAX_SIDE,
            MAX_GRID_Y * PENK_CONVERT_BLOCK_Y * PENK_CONVERT_PY);

    // Which of matrix and ranges the pair needs.
    const bool colours = src_yuv != dst_yuv || (to_mono && !from_mono);
    const bool needs_matrix =
        colours && !(src_yuv && to_mono) && !(dst_yuv && from_mono);
    if (needs_matrix && !luma_weights(src->matrix, &kr, &kb))
        return unknown(err, "colour matrix of the source", src, dst);
    if (dst->matrix != PEN_MATRIX_UNKNOWN &&
        src->matrix != PEN_MATRIX_UNKNOWN && dst->matrix != src->matrix)
        return pen_error_set(err, PEN_E_UNSUPPORTED, 0, "convert",
                             "%s to %s: a conversion keeps the matrix",
                             pen_matrix_name(src->matrix),
                             pen_matrix_name(dst->matrix));
    if (src_yuv && src->range == PEN_RANGE_UNKNOWN &&
        (!dst_yuv || dst->range != PEN_RANGE_UNKNOWN))
        return unknown(err, "range of the source", src, dst);
    if (dst_yuv && dst->range == PEN_RANGE_UNKNOWN &&
        (!src_yuv || src->range != PEN_RANGE_UNKNOWN))
        return unknown(err, "range of the target", src, dst);

    const struct levels from = levels_of(src_yuv ? src->range : PEN_RANGE_FULL);
    const struct levels to = levels_of(dst_yuv ? dst->range : PEN_RANGE_FULL);
    if (src_yuv && dst_yuv) {
        x = from_yuv_to_yuv(from, to);
    } else if (src_yuv && to_mono) {
        x = from_yuv_to_yuv(from, to);
    } else if (from_mono && dst_yuv) {
        x = from_yuv_to_yuv(from, to);
        for (int i = 1; i < 3; i++) {
            memset(x.m[i], 0, sizeof(x.m[i]));
            x.o[i] = 128.0;
        }
    } else if (src_yuv) {
        x = from_yuv_to_rgb(kr, kb, from);
    } else if (dst_yuv || (to_mono && !from_mono)) {
        x = from_rgb_to_yuv(kr, kb, to);
    }

    // Chroma rows and Bayer's luma are made from sums of four.
    for (int i = 0; i < 3; i++)
        fix_row(x.m[i], x.o[i],
                (dst_yuv && i > 0) || (is_bayer(src->format) && to_mono) ? 4
                                                                         : 1,
                &out->m[3 * i], &out->o[i]);
    out->width = src->width;
    out->height = src->height;
    out->dst_format = (int32_t)dst->format;
    out->src_format = (int32_t)src->format;
    return PEN_OK;
}

void stk_convert_bind(struct penk_convert *args, const struct pen_view *dst,
                      const struct pen_view *src)
{
    for (uint32_t i = 0; i < PEN_MAX_PLANES; i++) {
        args->dst[i] = i < dst->planes ? dst->plane[i].address : 0;
        args->src[i] = i < src->planes ? src->plane[i].address : 0;
        args->dst_pitch[i] = i < dst->planes ? dst->plane[i].pitch : 0;
        args->src_pitch[i] = i < src->planes ? src->plane[i].pitch : 0;
    }
}

void stk_convert_grid(const struct penk_convert *args, struct pen_grid *out)
{
    *out = (struct pen_grid){
        .x = blocks(args->width, PENK_CONVERT_BLOCK_X * PENK_CONVERT_PX),
        .y = blocks(args->height, PENK_CONVERT_BLOCK_Y * PENK_CONVERT_PY),
        .z = 1,
        .block_x = PENK_CONVERT_BLOCK_X,
        .block_y = PENK_CONVERT_BLOCK_Y,
    };
}

// --- scaling ----------------------------------------------------------------

// One target pixel: weights of source pixels first, first + 1, ... before the
// edges are clamped. 2^16 ones for all but area, whose weights are lengths in
// units of 1/dst source pixels.
struct taps {
    int64_t first;
    int32_t count;
};

static int64_t floor_div(int64_t a, int64_t b)
{
    return a / b - (a % b < 0);
}

static struct taps taps_of(enum stk_interpolation interpolation, int64_t i,
                           int64_t dst, int64_t src)
{
    // The centre of pixel i in the source, times 2 dst.
    const int64_t centre = (2 * i + 1) * src - dst;
    switch (interpolation) {
    case STK_BILINEAR:
        return (struct taps){ floor_div(centre, 2 * dst), 2 };
    case STK_BICUBIC:
        return (struct taps){ floor_div(centre, 2 * dst) - 1, 4 };
    case STK_AREA: {
        const int64_t first = i * src / dst;
        const int64_t end = ((i + 1) * src + dst - 1) / dst;
        return (struct taps){ first, (int32_t)(end - first) };
    }
    case STK_NEAREST:
        break;
    }
    return (struct taps){ (2 * i + 1) * src / (2 * dst), 1 };
}

// Keys' cubic convolution with a = -1/2 (Catmull-Rom) at distance d.
static double cubic(double d)
{
    d = fabs(d);
    if (d < 1.0)
        return (1.5 * d - 2.5) * d * d + 1.0;
    return d < 2.0 ? ((-0.5 * d + 2.5) * d - 4.0) * d + 2.0 : 0.0;
}

// Weight of source pixel j for target pixel i.
static double weight_of(enum stk_interpolation interpolation, int64_t i,
                        int64_t dst, int64_t src, int64_t j)
{
    const int64_t centre = (2 * i + 1) * src - dst;
    const double d = (double)(centre - 2 * dst * j) / (double)(2 * dst);
    if (interpolation == STK_BILINEAR)
        return 1.0 - fabs(d);
    if (interpolation == STK_BICUBIC)
        return cubic(d);
    // The length of pixel j, [j dst, (j + 1) dst), inside [i src, (i + 1) src).
    const int64_t low = j * dst > i * src ? j * dst : i * src;
    const int64_t high =
        (j + 1) * dst < (i + 1) * src ? (j + 1) * dst : (i + 1) * src;
    return (double)(high - low);
}

static int32_t most_taps(enum stk_interpolation interpolation, int32_t dst,
                         int32_t src)
{
    int32_t most = 1;
    if (interpolation == STK_NEAREST)
        return 1;
    if (interpolation != STK_AREA)
        most = interpolation == STK_BILINEAR ? 2 : 4;
    else
        for (int32_t i = 0; i < dst; i++) {
            const struct taps t = taps_of(interpolation, i, dst, src);
            most = t.count > most ? t.count : most;
        }
    return most < src ? most : src;
}

static size_t table_ints(int32_t n, int32_t taps, int32_t mode)
{
    return mode == PENK_RESIZE_PICK ? (size_t)n
                                    : (size_t)n + (size_t)n * (size_t)taps;
}

size_t stk_resize_most_bytes(enum pen_format format, int32_t dst_w,
                             int32_t dst_h, int32_t src_w, int32_t src_h,
                             enum stk_interpolation interpolation)
{
    const struct pen_format_info *info = pen_format_info(format);
    if (!info || src_w < 1 || src_h < 1)
        return 0;
    const int32_t mode =
        interpolation == STK_NEAREST ? PENK_RESIZE_PICK : PENK_RESIZE_TAPS;
    size_t ints = 0;
    for (int32_t i = 0; i < info->planes && i < 2; i++) {
        const int32_t cw = i > 0 ? info->chroma_w : 1;
        const int32_t ch = i > 0 ? info->chroma_h : 1;
        const int32_t dst[2] = { (dst_w + cw - 1) / cw, (dst_h + ch - 1) / ch };
        const int32_t src[2] = { (src_w + cw - 1) / cw, (src_h + ch - 1) / ch };
        for (int k = 0; k < 2; k++) {
            // An area of src / dst pixels meets one more and a part of one.
            int32_t taps = interpolation == STK_BILINEAR  ? 2
                           : interpolation == STK_BICUBIC ? 4
                                                          : src[k] / dst[k] + 2;
            taps = taps < src[k] ? taps : src[k];
            ints += table_ints(dst[k], taps, mode);
        }
    }
    return sizeof(int32_t) * ints;
}

enum pen_status stk_resize_setup(enum pen_format format, int32_t dst_w,
                                 int32_t dst_h, int32_t src_w, int32_t src_h,
                                 enum stk_interpolation interpolation,
                                 struct stk_resize *out, struct pen_error *err)
{
    memset(out, 0, sizeof(*out));
    if (format <= PEN_FMT_NONE || format >= PEN_FMT_COUNT ||
        !(PEN_FMT_BIT(format) & STK_RESIZE_FORMATS))
        return pen_error_set(err, PEN_E_UNSUPPORTED, 0, "resize",
                             "%s pictures cannot be scaled",
                             format_name(format));
    if (dst_w < 1 || dst_h < 1 || src_w < 1 || src_h < 1)
        return pen_error_set(err, PEN_E_ARG, 0, "resize",
                             "%dx%d to %dx%d: sizes are at least 1", src_w,
                             src_h, dst_w, dst_h);
    if (dst_w > MAX_SIDE || src_w > MAX_SIDE || src_h > MAX_SIDE ||
        blocks(dst_h, PENK_RESIZE_BLOCK_Y) > MAX_GRID_Y)
        return pen_error_set(err, PEN_E_LIMIT, 0, "resize",
                             "%dx%d to %dx%d is larger than %dx%d", src_w,
                             src_h, dst_w, dst_h, MAX_SIDE,
                             MAX_GRID_Y * PENK_RESIZE_BLOCK_Y);

    const struct pen_format_info *info = pen_format_info(format);
    struct penk_resize *args = &out->args;
    out->interpolation = interpolation;
    args->planes = info->planes;
    args->mode =
        interpolation == STK_NEAREST ? PENK_RESIZE_PICK : PENK_RESIZE_TAPS;
    for (int32_t i = 0; i < args->planes; i++) {
        struct penk_resize_plane *p = &args->plane[i];
        const int32_t cw = i > 0 ? info->chroma_w : 1;
        const int32_t ch = i > 0 ? info->chroma_h : 1;
        p->dst_w = (dst_w + cw - 1) / cw;
        p->dst_h = (dst_h + ch - 1) / ch;
        p->src_w = (src_w + cw - 1) / cw;
        p->src_h = (src_h + ch - 1) / ch;
        p->channels = format == PEN_FMT_NV12 ? 1 + (i > 0)
                      : args->planes > 1     ? 1
                                             : info->channels;
        p->taps_x = most_taps(interpolation, p->dst_w, p->src_w);
        p->taps_y = most_taps(interpolation, p->dst_h, p->src_h);
        if (p->taps_x > PENK_RESIZE_MAX_TAPS ||
            p->taps_y > PENK_RESIZE_MAX_TAPS)
            args->mode = PENK_RESIZE_EXACT;
    }

    // Tables of plane 0, then of the chroma planes, which share theirs; the
    // addresses are offsets until they are bound.
    for (int32_t i = 0; i < args->planes; i++) {
        struct penk_resize_plane *p = &args->plane[i];
        if (i == 2) {
            p->table_x = args->plane[1].table_x;
            p->table_y = args->plane[1].table_y;
            continue;
        }
        p->table_x = out->table_bytes;
        out->table_bytes +=
            sizeof(int32_t) * table_ints(p->dst_w, p->taps_x, args->mode);
        p->table_y = out->table_bytes;
        out->table_bytes +=
            sizeof(int32_t) * table_ints(p->dst_h, p->taps_y, args->mode);
    }
    return PEN_OK;
}

// Add what tap j weighs to the window, clamped to the edges.
static void fill_axis(const struct stk_resize *r, int32_t dst, int32_t src,
                      int32_t taps, int32_t *table)
{
    int32_t *start = table, *weight = table + dst;
    for (int32_t i = 0; i < dst; i++) {
        const struct taps t = taps_of(r->interpolation, i, dst, src);
        const int64_t last = src - taps;
        const int64_t from = t.first < 0 ? 0 : t.first > last ? last : t.first;
        start[i] = (int32_t)from;
        if (r->args.mode == PENK_RESIZE_PICK)
            continue;

        double exact[PENK_RESIZE_MAX_TAPS] = { 0 };
        int32_t *w = weight + (size_t)i * (size_t)taps;
        memset(w, 0, sizeof(*w) * (size_t)taps);
        for (int64_t j = t.first; j < t.first + t.count; j++) {
            const int64_t at = j < 0 ? 0 : j < src ? j : src - 1;
            const double v = weight_of(r->interpolation, i, dst, src, j);
            if (r->args.mode == PENK_RESIZE_EXACT)
                w[at - from] = (int32_t)v;
            else
                exact[at - from] += v;
        }
        if (r->args.mode == PENK_RESIZE_EXACT)
            continue;

        // Rounded, and what is left of the sum given to the largest.
        const double one = (1 << PENK_RESIZE_SHIFT) /
                           (r->interpolation == STK_AREA ? (double)src : 1.0);
        int32_t left = 1 << PENK_RESIZE_SHIFT, largest = 0;
        for (int32_t k = 0; k < taps; k++) {
            w[k] = (int32_t)lround(exact[k] * one);
            left -= w[k];
            if (w[k] > w[largest])
                largest = k;
        }
        w[largest] += left;
    }
}

void stk_resize_weights(const struct stk_resize *resize, int32_t *table)
{
    const int32_t tables = resize->args.planes > 1 ? 2 : 1;
    for (int32_t i = 0; i < tables; i++) {
        const struct penk_resize_plane *p = &resize->args.plane[i];
        fill_axis(resize, p->dst_w, p->src_w, p->taps_x,
                  table + p->table_x / sizeof(*table));
        fill_axis(resize, p->dst_h, p->src_h, p->taps_y,
                  table + p->table_y / sizeof(*table));
    }
}

void stk_resize_bind(const struct stk_resize *resize, uint64_t table,
                     const struct pen_view *dst, const struct pen_view *src,
                     struct penk_resize *out)
{
    *out = resize->args;
    for (int32_t i = 0; i < out->planes; i++) {
        struct penk_resize_plane *p = &out->plane[i];
        p->dst = dst->plane[i].address;
        p->src = src->plane[i].address;
        p->dst_pitch = dst->plane[i].pitch;
        p->src_pitch = src->plane[i].pitch;
        p->table_x += table;
        p->table_y += table;
    }
}

void stk_resize_grid(const struct penk_resize *args, struct pen_grid *out)
{
    *out = (struct pen_grid){
        .x = blocks(args->plane[0].dst_w, PENK_RESIZE_BLOCK_X),
        .y = blocks(args->plane[0].dst_h, PENK_RESIZE_BLOCK_Y),
        .z = (uint32_t)args->planes,
        .block_x = PENK_RESIZE_BLOCK_X,
        .block_y = PENK_RESIZE_BLOCK_Y,
    };
}

// --- Gaussian blur ----------------------------------------------------------

void stk_blur_weights(int32_t radius, double sigma, uint32_t *weight)
{
    double exact[PENK_BLUR_MAX_RADIUS + 1], sum = 0;
    for (int32_t i = 0; i <= radius; i++) {
        const double d = i / sigma;
        exact[i] = exp(-0.5 * d * d);
        sum += i > 0 ? 2.0 * exact[i] : exact[i];
    }
    weight[0] = 65536;
    for (int32_t i = 1; i <= radius; i++) {
        weight[i] = (uint32_t)lround(exact[i] / sum * 65536.0);
        weight[0] -= 2 * weight[i];
    }
}

enum pen_status stk_blur_setup(enum pen_format format, int32_t width,
                               int32_t height, int32_t kernel_size,
                               double sigma, struct penk_blur *out,
                               struct pen_error *err)
{
    memset(out, 0, sizeof(*out));
    if (format <= PEN_FMT_NONE || format >= PEN_FMT_COUNT ||
        !(PEN_FMT_BIT(format) & STK_BLUR_FORMATS))
        return pen_error_set(err, PEN_E_UNSUPPORTED, 0, "blur",
                             "%s pictures cannot be blurred",
                             format_name(format));
    if (width < 1 || height < 1)
        return pen_error_set(err, PEN_E_ARG, 0, "blur",
                             "%dx%d: sizes are at least 1", width, height);
    if (width > MAX_SIDE || blocks(height, PENK_BLUR_TILE_Y) > MAX_GRID_Y)
        return pen_error_set(err, PEN_E_LIMIT, 0, "blur",
                             "%dx%d is larger than %dx%d", width, height,
                             MAX_SIDE, MAX_GRID_Y * PENK_BLUR_TILE_Y);
    if (kernel_size < 3 || kernel_size > 2 * PENK_BLUR_MAX_RADIUS + 1 ||
        kernel_size % 2 == 0)
        return pen_error_set(err, PEN_E_ARG, 0, "blur",
                             "kernel size %d is not odd and in 3..%d",
                             kernel_size, 2 * PENK_BLUR_MAX_RADIUS + 1);
    if (!(sigma > 0) || !isfinite(sigma))
        return pen_error_set(err, PEN_E_ARG, 0, "blur",
                             "sigma %g is not a number above 0", sigma);

    const struct pen_format_info *info = pen_format_info(format);
    out->width = width;
    out->height = height;
    out->planes = info->planes;
    out->channels = info->planes > 1 ? 1 : info->channels;
    out->radius = kernel_size / 2;
    stk_blur_weights(out->radius, sigma, out->weight);
    return PEN_OK;
}

void stk_blur_bind(struct penk_blur *args, const struct pen_view *dst,
                   const struct pen_view *src)
{
    for (int32_t i = 0; i < args->planes; i++) {
        args->dst[i] = dst->plane[i].address;
        args->src[i] = src->plane[i].address;
        args->dst_pitch[i] = dst->plane[i].pitch;
        args->src_pitch[i] = src->plane[i].pitch;
    }
}

void stk_blur_grid(const struct penk_blur *args, struct pen_grid *out)
{
    *out = (struct pen_grid){
        .x = blocks(args->width * args->channels, PENK_BLUR_TILE_X),
        .y = blocks(args->height, PENK_BLUR_TILE_Y),
        .z = (uint32_t)args->planes,
        .block_x = PENK_BLUR_BLOCK_X,
        .block_y = PENK_BLUR_BLOCK_Y,
    };
}
