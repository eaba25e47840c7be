// Conversion: every pair against the exact reference, and the CPU twin against
// the kernel's host builds, bit for bit.

#include <stdio.h>

#include "pen_picture.h"
#include "pen_test.h"
#include "src/kernels/cpu.h"

static const struct {
    int w, h;
} small[] = { { 1, 1 }, { 1, 2 },   { 2, 1 },   { 3, 3 },
              { 5, 7 }, { 17, 13 }, { 64, 48 }, { 7, 2 } };

static const enum pen_matrix matrices[] = { PEN_MATRIX_BT601, PEN_MATRIX_BT709,
                                            PEN_MATRIX_BT2020 };
static const enum pen_range ranges[] = { PEN_RANGE_LIMITED, PEN_RANGE_FULL };

static bool yuv(enum pen_format f)
{
    return (PEN_FMT_BIT(f) & PEN_FMT_BITS_YUV) != 0;
}

static struct pen_caps caps_of(enum pen_format f, int w, int h,
                               enum pen_matrix matrix, enum pen_range range)
{
    return (struct pen_caps){
        .kind = PEN_KIND_RAW_IMAGE,
        .format = f,
        .formats = PEN_FMT_BIT(f),
        .width = w,
        .height = h,
        .matrix = matrix,
        .range = range,
    };
}

// What is compared in one case: four ways to convert, and the reference.
static void check_pair(const struct pen_picture *src, enum pen_format to,
                       enum pen_matrix matrix, enum pen_range from_range,
                       enum pen_range to_range, size_t extra, size_t shift)
{
    const int w = src->ref.w, h = src->ref.h;
    const enum pen_format from = src->ref.format;
    const struct pen_caps in = caps_of(from, w, h, matrix, from_range);
    const struct pen_caps out = caps_of(to, w, h, matrix, to_range);
    struct pen_picture first, dst;
    struct penk_convert args;
    struct pen_error err = { 0 };
    struct pen_grid grid;
    char what[160];

    pen_picture_make(&first, to, w, h, extra, shift);
    pen_picture_make(&dst, to, w, h, extra, shift);
    snprintf(what, sizeof(what), "%s to %s, %dx%d, %s, %s to %s, pitch +%zu",
             pen_picture_name(from), pen_picture_name(to), w, h,
             pen_matrix_name(matrix), pen_range_name(from_range),
             pen_range_name(to_range), extra);
    if (stk_convert_setup(&out, &in, &args, &err) != PEN_OK)
        fail_msg("%s: %s", what, err.text);

    stk_convert_bind(&args, &first.view, &src->view);
    stk_cpu_convert_base(&args, 0, h);
    pen_picture_check_guards(&first, what);
    double *exact = calloc(ref_bytes(to, w, h), sizeof(*exact));
    assert_non_null(exact);
    ref_convert(&src->ref, matrix, from_range, to, to_range, exact);
    pen_picture_check_near(&first, exact, 0.51, what);
    free(exact);

    if (stk_cpu_has_v3()) {
        stk_convert_bind(&args, &dst.view, &src->view);
        stk_cpu_convert_v3(&args, 0, h);
        pen_picture_check_guards(&dst, what);
        pen_picture_check_same(&dst, &first, what);
    }

    // In two ranges of rows, through the function that chooses.
    pen_picture_reset(&dst);
    stk_convert_bind(&args, &dst.view, &src->view);
    stk_cpu_convert(&args, h / 4 * 2, h);
    stk_cpu_convert(&args, 0, h / 4 * 2);
    pen_picture_check_guards(&dst, what);
    pen_picture_check_same(&dst, &first, what);

    const struct pen_view away_dst = pen_picture_away(&dst);
    const struct pen_view away_src = pen_picture_away(src);
    const struct pen_kernel_entry *e =
        &stk_image_convert.entries[PENK_KERNEL_CONVERT];
    stk_convert_bind(&args, &away_dst, &away_src);
    stk_convert_grid(&args, &grid);
    pen_picture_reset(&dst);
    pen_picture_launch(e->host, &grid, &args);
    pen_picture_check_guards(&dst, what);
    pen_picture_check_same(&dst, &first, what);
    if (stk_cpu_has_v3()) {
        pen_picture_reset(&dst);
        pen_picture_launch(e->host_v3, &grid, &args);
        pen_picture_check_guards(&dst, what);
        pen_picture_check_same(&dst, &first, what);
    }
    pen_picture_free(&first);
    pen_picture_free(&dst);
}

static void check_all(enum pen_format from, enum pen_format to, int w, int h,
                      size_t extra, size_t shift, uint64_t seed)
{
    struct pen_picture src;
    pen_picture_make(&src, from, w, h, extra, shift);
    pen_picture_noise(&src, seed);
    for (size_t m = 0; m < 3; m++) {
        for (size_t a = 0; a < 2; a++) {
            for (size_t b = 0; b < 2; b++) {
                // The RGB family has one range.
                if ((!yuv(from) && a == 0) || (!yuv(to) && b == 0))
                    continue;
                check_pair(&src, to, matrices[m], ranges[a], ranges[b], extra,
                           shift);
            }
        }
    }
    pen_picture_free(&src);
}

// Also the eleven pairs of equal formats: copies and changes of range.
PEN_TEST(all_pairs_are_within_one_code_of_the_reference)
{
    for (size_t s = 0; s < sizeof(small) / sizeof(small[0]); s++) {
        for (int i = 0; i < 11; i++) {
            for (int j = 0; j < 11; j++) {
                const uint64_t seed = s * 121 + (size_t)i * 11 + (size_t)j;
                const size_t extra = seed % 3 * 5;
                check_all(pen_picture_formats[i], pen_picture_formats[j],
                          small[s].w, small[s].h, extra, 0, seed);
            }
        }
    }
}

PEN_TEST(all_pairs_are_right_for_large_odd_sizes_and_any_address)
{
    for (int i = 0; i < 11; i++) {
        for (int j = 0; j < 11; j++) {
            const enum pen_format from = pen_picture_formats[i];
            const enum pen_format to = pen_picture_formats[j];
            const size_t k = (size_t)i * 11 + (size_t)j;
            struct pen_picture src;
            // An odd pitch, or one that lets the kernel read whole words.
            const size_t extra =
                k % 2 ? 7 : 64 - ref_row_bytes(from, 0, 641) % 64;
            pen_picture_make(&src, from, 641, 37, extra, k % 4);
            pen_picture_noise(&src, k);
            check_pair(&src, to, matrices[k % 3],
                       yuv(from) ? ranges[k % 2] : PEN_RANGE_FULL,
                       yuv(to) ? ranges[k / 2 % 2] : PEN_RANGE_FULL, extra,
                       k % 4);
            pen_picture_free(&src);
        }
    }
}

PEN_TEST(a_large_picture_is_right)
{
    struct pen_picture src;
    pen_picture_make(&src, PEN_FMT_NV12, 1283, 721, 13, 1);
    pen_picture_noise(&src, 1);
    check_pair(&src, PEN_FMT_RGB, PEN_MATRIX_BT709, PEN_RANGE_LIMITED,
               PEN_RANGE_FULL, 3, 1);
    check_pair(&src, PEN_FMT_YUV411_I, PEN_MATRIX_BT709, PEN_RANGE_LIMITED,
               PEN_RANGE_FULL, 3, 1);
    pen_picture_free(&src);
    pen_picture_make(&src, PEN_FMT_BGR, 1283, 721, 0, 0);
    pen_picture_noise(&src, 2);
    check_pair(&src, PEN_FMT_YUV420, PEN_MATRIX_BT2020, PEN_RANGE_FULL,
               PEN_RANGE_LIMITED, 0, 0);
    pen_picture_free(&src);
}

// All 2^24 colours would take minutes; all sums of the bt601 weights that are
// an exact half are among these.
PEN_TEST(mono_of_bt601_is_exactly_the_rounded_luma)
{
    struct pen_picture src, dst;
    struct penk_convert args;
    const struct pen_caps in =
        caps_of(PEN_FMT_RGB, 256, 256, PEN_MATRIX_BT601, PEN_RANGE_FULL);
    const struct pen_caps out =
        caps_of(PEN_FMT_MONO, 256, 256, PEN_MATRIX_BT601, PEN_RANGE_FULL);
    pen_picture_make(&src, PEN_FMT_RGB, 256, 256, 0, 0);
    pen_picture_make(&dst, PEN_FMT_MONO, 256, 256, 0, 0);
    assert_int_equal(stk_convert_setup(&out, &in, &args, NULL), PEN_OK);
    stk_convert_bind(&args, &dst.view, &src.view);

    unsigned halves = 0;
    const int step = pen_test_seeds(17, 1) == 1 ? 1 : 17;
    for (int r = 0; r < 256; r += step) {
        uint8_t *rgb = src.view.plane[0].host;
        for (int i = 0; i < 65536; i++) {
            rgb[3 * i] = (uint8_t)r;
            rgb[3 * i + 1] = (uint8_t)(i >> 8);
            rgb[3 * i + 2] = (uint8_t)i;
        }
        stk_cpu_convert(&args, 0, 256);
        const uint8_t *mono = dst.view.plane[0].host;
        for (int i = 0; i < 65536; i++) {
            const int sum = 299 * r + 587 * (i >> 8) + 114 * (i & 255);
            halves += sum % 1000 == 500;
            assert_int_equal(mono[i], (sum + 500) / 1000);
        }
    }
    assert_true(halves > 100);
    pen_picture_free(&src);
    pen_picture_free(&dst);
}

// --- Bayer ------------------------------------------------------------------

PEN_TEST(bayer_is_within_one_code_of_the_reference)
{
    static const struct {
        int w, h;
    } sizes[] = { { 1, 1 }, { 1, 9 },   { 9, 1 },   { 2, 2 },   { 2, 5 },
                  { 3, 3 }, { 17, 13 }, { 64, 48 }, { 641, 37 } };
    for (size_t s = 0; s < sizeof(sizes) / sizeof(sizes[0]); s++) {
        for (int f = PEN_FMT_BAYERBG8; f <= PEN_FMT_BAYERRG8; f++) {
            const enum pen_format from = (enum pen_format)f;
            for (int mono = 0; mono <= (from == PEN_FMT_BAYERBG8); mono++) {
                const enum pen_format to = mono ? PEN_FMT_MONO : PEN_FMT_RGB;
                const int w = sizes[s].w, h = sizes[s].h;
                const enum pen_matrix matrix = matrices[s % 3];
                struct pen_picture src, a, b;
                struct penk_convert args;
                const struct pen_caps in =
                    caps_of(from, w, h, matrix, PEN_RANGE_FULL);
                const struct pen_caps out =
                    caps_of(to, w, h, matrix, PEN_RANGE_FULL);
                pen_picture_make(&src, from, w, h, s % 3, s % 2);
                pen_picture_make(&a, to, w, h, s % 4, 0);
                pen_picture_make(&b, to, w, h, s % 4, 0);
                pen_picture_noise(&src, s * 8 + (size_t)f);
                const char *what = pen_picture_name(from);

                assert_int_equal(stk_convert_setup(&out, &in, &args, NULL),
                                 PEN_OK);
                stk_convert_bind(&args, &a.view, &src.view);
                stk_cpu_demosaic_base(&args, 0, h);
                pen_picture_check_guards(&a, what);
                double *exact = calloc(ref_bytes(to, w, h), sizeof(*exact));
                assert_non_null(exact);
                ref_bayer(&src.ref, matrix, to, exact);
                pen_picture_check_near(&a, exact, 0.51, what);
                free(exact);
                stk_convert_bind(&args, &b.view, &src.view);
                stk_cpu_convert(&args, h / 2, h);
                stk_cpu_convert(&args, 0, h / 2);
                pen_picture_check_guards(&b, what);
                pen_picture_check_same(&b, &a, what);
                pen_picture_free(&src);
                pen_picture_free(&a);
                pen_picture_free(&b);
            }
        }
    }
}

// --- goldens of another implementation --------------------------------------

static void check_golden(const char *in_file, enum pen_format from,
                         const char *golden, enum pen_format to, int w, int h)
{
    size_t bytes;
    struct pen_picture src, dst;
    struct penk_convert args;
    const struct pen_caps in =
        caps_of(from, w, h, PEN_MATRIX_BT601, PEN_RANGE_FULL);
    const struct pen_caps out =
        caps_of(to, w, h, PEN_MATRIX_BT601, PEN_RANGE_FULL);
    uint8_t *data = pen_test_read_file(pen_test_data(in_file), &bytes);
    assert_int_equal(bytes, ref_bytes(from, w, h));
    pen_picture_make(&src, from, w, h, 0, 0);
    pen_picture_from_tight(&src, data);
    free(data);
    pen_picture_make(&dst, to, w, h, 0, 0);
    assert_int_equal(stk_convert_setup(&out, &in, &args, NULL), PEN_OK);
    stk_convert_bind(&args, &dst.view, &src.view);
    stk_cpu_convert(&args, 0, h);

    uint8_t *expect = pen_test_read_file(pen_test_data(golden), &bytes);
    assert_int_equal(bytes, ref_bytes(to, w, h));
    uint8_t *got = malloc(bytes);
    assert_non_null(got);
    pen_picture_tight(&dst, got);
    assert_memory_equal(got, expect, bytes);
    free(got);
    free(expect);
    pen_picture_free(&src);
    pen_picture_free(&dst);
}

PEN_TEST(golden_rgb_to_mono_is_met)
{
    check_golden("RGB_320x180.raw", PEN_FMT_RGB, "ccnppi/rgb_to_mono.raw",
                 PEN_FMT_MONO, 320, 180);
}
PEN_TEST(golden_rgb_to_bgr_is_met)
{
    check_golden("RGB_320x180.raw", PEN_FMT_RGB, "ccnppi/rgb_to_bgr.raw",
                 PEN_FMT_BGR, 320, 180);
}
PEN_TEST(golden_rgb_to_rgba_is_met)
{
    check_golden("RGB_320x180.raw", PEN_FMT_RGB, "ccnppi/rgb_to_rgba.raw",
                 PEN_FMT_RGBA, 320, 180);
}
PEN_TEST(golden_rgba_to_rgb_is_met)
{
    check_golden("rgba_200x180.raw", PEN_FMT_RGBA, "ccnppi/rgba_to_rgb.raw",
                 PEN_FMT_RGB, 200, 180);
}
PEN_TEST(golden_nv12_to_yuv420_is_met)
{
    check_golden("nv12-704x576.raw", PEN_FMT_NV12, "ccnppi/nv12_to_yuv420.raw",
                 PEN_FMT_YUV420, 704, 576);
}
PEN_TEST(golden_yuv420_to_mono_is_met)
{
    check_golden("yuv420_320x180.raw", PEN_FMT_YUV420,
                 "ccnppi/yuv420_to_mono.raw", PEN_FMT_MONO, 320, 180);
}
PEN_TEST(golden_mono_to_rgba_is_met)
{
    check_golden("mono_200x200.raw", PEN_FMT_MONO, "ccnppi/mono_to_rgba.raw",
                 PEN_FMT_RGBA, 200, 200);
}
PEN_TEST(golden_mono_to_yuv420_is_met)
{
    check_golden("mono_200x200.raw", PEN_FMT_MONO, "ccnppi/mono_to_yuv420.raw",
                 PEN_FMT_YUV420, 200, 200);
}

// --- setup ------------------------------------------------------------------

PEN_TEST(converted_caps_follow_the_rules_of_matrix_and_range)
{
    struct pen_caps out;
    struct pen_caps rgb =
        caps_of(PEN_FMT_RGB, 8, 8, PEN_MATRIX_BT601, PEN_RANGE_FULL);
    struct pen_caps nv12 =
        caps_of(PEN_FMT_NV12, 8, 8, PEN_MATRIX_BT709, PEN_RANGE_FULL);

    stk_convert_caps(&rgb, PEN_FMT_YUV420, PEN_RANGE_UNKNOWN, &out);
    assert_int_equal(out.format, PEN_FMT_YUV420);
    assert_int_equal(out.formats, PEN_FMT_BIT(PEN_FMT_YUV420));
    assert_int_equal(out.matrix, PEN_MATRIX_BT601);
    assert_int_equal(out.range, PEN_RANGE_LIMITED);
    stk_convert_caps(&rgb, PEN_FMT_YUV420, PEN_RANGE_FULL, &out);
    assert_int_equal(out.range, PEN_RANGE_FULL);
    stk_convert_caps(&nv12, PEN_FMT_UYVY, PEN_RANGE_UNKNOWN, &out);
    assert_int_equal(out.matrix, PEN_MATRIX_BT709);
    assert_int_equal(out.range, PEN_RANGE_FULL);
    stk_convert_caps(&nv12, PEN_FMT_UYVY, PEN_RANGE_LIMITED, &out);
    assert_int_equal(out.range, PEN_RANGE_LIMITED);
    nv12.range = PEN_RANGE_LIMITED;
    stk_convert_caps(&nv12, PEN_FMT_BGRA, PEN_RANGE_LIMITED, &out);
    assert_int_equal(out.range, PEN_RANGE_FULL);
    nv12.format = PEN_FMT_NONE;
    nv12.range = PEN_RANGE_UNKNOWN;
    stk_convert_caps(&nv12, PEN_FMT_YUV420, PEN_RANGE_UNKNOWN, &out);
    assert_int_equal(out.range, PEN_RANGE_UNKNOWN);
}

PEN_TEST(setup_refuses_what_it_cannot_convert)
{
    const struct pen_caps good =
        caps_of(PEN_FMT_NV12, 8, 6, PEN_MATRIX_BT709, PEN_RANGE_LIMITED);
    const struct pen_caps rgb =
        caps_of(PEN_FMT_RGB, 8, 6, PEN_MATRIX_BT709, PEN_RANGE_FULL);
    struct penk_convert args;
    struct pen_error err = { 0 };
    struct pen_caps c = good;

    assert_int_equal(stk_convert_setup(&rgb, &good, &args, &err), PEN_OK);
    c.matrix = PEN_MATRIX_UNKNOWN;
    assert_int_equal(stk_convert_setup(&rgb, &c, &args, &err), PEN_E_ARG);
    assert_non_null(strstr(err.text, "matrix"));
    c = good;
    c.range = PEN_RANGE_UNKNOWN;
    assert_int_equal(stk_convert_setup(&rgb, &c, &args, &err), PEN_E_ARG);
    assert_non_null(strstr(err.text, "range of the source"));
    assert_int_equal(stk_convert_setup(&c, &rgb, &args, &err), PEN_E_ARG);
    assert_non_null(strstr(err.text, "range of the target"));
    c = good;
    c.height = 7;
    assert_int_equal(stk_convert_setup(&rgb, &c, &args, &err), PEN_E_ARG);
    c = rgb;
    c.width = 0;
    assert_int_equal(stk_convert_setup(&c, &c, &args, &err), PEN_E_ARG);
    c = good;
    c.matrix = PEN_MATRIX_BT601;
    assert_int_equal(stk_convert_setup(&rgb, &c, &args, &err),
                     PEN_E_UNSUPPORTED);
    c = good;
    c.format = PEN_FMT_BAYERBG10;
    assert_int_equal(stk_convert_setup(&rgb, &c, &args, &err),
                     PEN_E_UNSUPPORTED);
    assert_non_null(strstr(err.text, "BAYERBG10 to RGB"));
    c = rgb;
    c.height = 1 << 21;
    assert_int_equal(stk_convert_setup(&c, &c, &args, &err), PEN_E_LIMIT);

    // A pair that needs neither matrix nor range asks for none.
    c = rgb;
    c.matrix = PEN_MATRIX_UNKNOWN;
    struct pen_caps bgr = c;
    bgr.format = PEN_FMT_BGR;
    assert_int_equal(stk_convert_setup(&bgr, &c, &args, &err), PEN_OK);
}

PEN_TEST(targets_of_every_format_are_those_that_setup_accepts)
{
    for (int from = 0; from <= PEN_FMT_COUNT; from++) {
        for (int to = 0; to < PEN_FMT_COUNT; to++) {
            const struct pen_caps in = caps_of(
                (enum pen_format)from, 4, 4, PEN_MATRIX_BT601, PEN_RANGE_FULL);
            const struct pen_caps out = caps_of(
                (enum pen_format)to, 4, 4, PEN_MATRIX_BT601, PEN_RANGE_FULL);
            struct penk_convert args;
            const bool listed =
                stk_convert_targets((enum pen_format)from) >> to & 1;
            assert_int_equal(stk_convert_setup(&out, &in, &args, NULL),
                             listed ? PEN_OK : PEN_E_UNSUPPORTED);
        }
    }
}

PEN_TEST_MAIN(PEN_CASE(all_pairs_are_within_one_code_of_the_reference),
              PEN_CASE(all_pairs_are_right_for_large_odd_sizes_and_any_address),
              PEN_CASE(a_large_picture_is_right),
              PEN_CASE(mono_of_bt601_is_exactly_the_rounded_luma),
              PEN_CASE(bayer_is_within_one_code_of_the_reference),
              PEN_CASE(golden_rgb_to_mono_is_met),
              PEN_CASE(golden_rgb_to_bgr_is_met),
              PEN_CASE(golden_rgb_to_rgba_is_met),
              PEN_CASE(golden_rgba_to_rgb_is_met),
              PEN_CASE(golden_nv12_to_yuv420_is_met),
              PEN_CASE(golden_yuv420_to_mono_is_met),
              PEN_CASE(golden_mono_to_rgba_is_met),
              PEN_CASE(golden_mono_to_yuv420_is_met),
              PEN_CASE(converted_caps_follow_the_rules_of_matrix_and_range),
              PEN_CASE(setup_refuses_what_it_cannot_convert),
              PEN_CASE(targets_of_every_format_are_those_that_setup_accepts))
