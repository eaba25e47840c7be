// Scaling: every interpolation and format against the exact reference, and the
// CPU twin against the kernel's host builds, bit for bit.

#include <stdio.h>

#include "pen_picture.h"
#include "pen_test.h"
#include "src/kernels/cpu.h"

static const enum pen_format formats[] = {
    PEN_FMT_MONO, PEN_FMT_RGB,    PEN_FMT_BGR,    PEN_FMT_RGBA,
    PEN_FMT_BGRA, PEN_FMT_YUV444, PEN_FMT_YUV420, PEN_FMT_NV12,
};
enum { FORMATS = sizeof(formats) / sizeof(formats[0]) };

static const enum ref_interpolation reference_of[] = {
    [STK_NEAREST] = REF_NEAREST,
    [STK_BILINEAR] = REF_BILINEAR,
    [STK_AREA] = REF_AREA,
    [STK_BICUBIC] = REF_BICUBIC,
};
static const char *const names[] = { "nearest", "bilinear", "area", "bicubic" };

// The error of fixed-point weights: half a unit of 2^-16 per tap, up to 32 taps
// in both directions, and half of 2^-6 between the two.
static const double limit = 0.6;

static void check_resize(const struct pen_picture *src, int w, int h,
                         enum stk_interpolation how, size_t extra, size_t shift)
{
    const enum pen_format f = src->ref.format;
    struct pen_picture first, dst;
    struct stk_resize resize;
    struct penk_resize args;
    struct pen_grid grid;
    struct pen_error err = { 0 };
    char what[160];

    snprintf(what, sizeof(what), "%s %dx%d to %dx%d, %s, pitch +%zu",
             pen_picture_name(f), src->ref.w, src->ref.h, w, h, names[how],
             extra);
    if (stk_resize_setup(f, w, h, src->ref.w, src->ref.h, how, &resize, &err) !=
        PEN_OK)
        fail_msg("%s: %s", what, err.text);
    int32_t *table = malloc(resize.table_bytes);
    assert_non_null(table);
    const uint64_t table_at = (uint64_t)(uintptr_t)table;
    stk_resize_weights(&resize, table);

    pen_picture_make(&first, f, w, h, extra, shift);
    pen_picture_make(&dst, f, w, h, extra, shift);
    stk_resize_bind(&resize, table_at, &first.view, &src->view, &args);
    stk_cpu_resize_base(&args, 0, h);
    pen_picture_check_guards(&first, what);
    double *exact = calloc(ref_bytes(f, w, h), sizeof(*exact));
    assert_non_null(exact);
    ref_resize(&src->ref, w, h, reference_of[how], exact);
    pen_picture_check_near(&first, exact, limit, what);
    free(exact);

    stk_resize_bind(&resize, table_at, &dst.view, &src->view, &args);
    if (stk_cpu_has_v3()) {
        stk_cpu_resize_v3(&args, 0, h);
        pen_picture_check_guards(&dst, what);
        pen_picture_check_same(&dst, &first, what);
    }
    pen_picture_reset(&dst);
    stk_cpu_resize(&args, h / 4 * 2, h);
    stk_cpu_resize(&args, 0, h / 4 * 2);
    pen_picture_check_guards(&dst, what);
    pen_picture_check_same(&dst, &first, what);

    const struct pen_view away_dst = pen_picture_away(&dst);
    const struct pen_view away_src = pen_picture_away(src);
    const struct pen_kernel_entry *e =
        &stk_image_resize.entries[PENK_KERNEL_RESIZE];
    stk_resize_bind(&resize, table_at - PEN_PICTURE_AWAY, &away_dst, &away_src,
                    &args);
    stk_resize_grid(&args, &grid);
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
    free(table);
}

PEN_TEST(all_sizes_are_within_one_code_of_the_reference)
{
    static const struct {
        int w, h;
    } sizes[] = { { 1, 1 }, { 1, 2 },   { 2, 1 },  { 3, 3 },
                  { 5, 7 }, { 17, 13 }, { 64, 48 } };
    enum { SIZES = sizeof(sizes) / sizeof(sizes[0]) };
    for (size_t s = 0; s < SIZES; s++) {
        for (size_t f = 0; f < FORMATS; f++) {
            struct pen_picture src;
            pen_picture_make(&src, formats[f], sizes[s].w, sizes[s].h,
                             (s + f) % 3 * 5, f % 4);
            pen_picture_noise(&src, s * FORMATS + f);
            for (size_t d = 0; d < SIZES; d++)
                for (int how = STK_NEAREST; how <= STK_BICUBIC; how++)
                    check_resize(&src, sizes[d].w, sizes[d].h,
                                 (enum stk_interpolation)how, d % 3 * 3, d % 4);
            pen_picture_free(&src);
        }
    }
}

PEN_TEST(large_odd_pictures_are_right_both_ways)
{
    for (size_t f = 0; f < FORMATS; f++) {
        struct pen_picture src;
        pen_picture_make(&src, formats[f], 641, 361, 7, 1);
        pen_picture_noise(&src, f);
        const enum stk_interpolation how = (enum stk_interpolation)(f % 4);
        check_resize(&src, 320, 180, how, 0, 0);
        check_resize(&src, 1025, 399, (enum stk_interpolation)((f + 1) % 4), 1,
                     3);
        pen_picture_free(&src);
    }
}

// 33 taps and more are summed exactly, and then the only error is the rounding.
PEN_TEST(area_of_any_ratio_is_right)
{
    static const struct {
        int sw, sh, dw, dh;
    } cases[] = {
        { 320, 8, 10, 8 },   // 32 taps: the last with 16-bit weights
        { 330, 8, 10, 8 },   // 33
        { 8, 1000, 3, 7 },   // only down
        { 997, 3, 1, 1 },    // one row of many taps
        { 2048, 64, 1, 1 },  // the mean of all
        { 641, 361, 7, 5 },
    };
    static const enum pen_format some[] = { PEN_FMT_RGB, PEN_FMT_NV12 };
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        for (size_t f = 0; f < 2; f++) {
            struct pen_picture src;
            pen_picture_make(&src, some[f], cases[i].sw, cases[i].sh, i, 0);
            pen_picture_noise(&src, i);
            check_resize(&src, cases[i].dw, cases[i].dh, STK_AREA, 1, 0);
            pen_picture_free(&src);
        }
    }
}

// Alternating columns of 0 and 255 make bicubic overshoot as far as it can.
PEN_TEST(bicubic_overshoot_is_clamped)
{
    struct pen_picture src;
    pen_picture_make(&src, PEN_FMT_MONO, 40, 40, 0, 0);
    uint8_t *s = src.view.plane[0].host;
    for (int y = 0; y < 40; y++)
        for (int x = 0; x < 40; x++)
            s[y * 40 + x] = (x / 2 + y / 2) % 2 ? 255 : 0;
    check_resize(&src, 131, 97, STK_BICUBIC, 0, 0);
    check_resize(&src, 29, 31, STK_BICUBIC, 0, 0);
    pen_picture_free(&src);
}

PEN_TEST(equal_sizes_copy_exactly)
{
    for (int how = STK_NEAREST; how <= STK_BICUBIC; how++) {
        struct pen_picture src, dst;
        struct stk_resize resize;
        struct penk_resize args;
        pen_picture_make(&src, PEN_FMT_NV12, 33, 21, 3, 0);
        pen_picture_make(&dst, PEN_FMT_NV12, 33, 21, 0, 0);
        pen_picture_noise(&src, 5);
        assert_int_equal(stk_resize_setup(PEN_FMT_NV12, 33, 21, 33, 21,
                                          (enum stk_interpolation)how, &resize,
                                          NULL),
                         PEN_OK);
        int32_t *table = malloc(resize.table_bytes);
        assert_non_null(table);
        stk_resize_weights(&resize, table);
        stk_resize_bind(&resize, (uint64_t)(uintptr_t)table, &dst.view,
                        &src.view, &args);
        stk_cpu_resize(&args, 0, 21);
        pen_picture_check_same(&dst, &src, names[how]);
        free(table);
        pen_picture_free(&src);
        pen_picture_free(&dst);
    }
}

PEN_TEST(weights_keep_their_sum_and_stay_inside_the_source)
{
    uint64_t seed = 77;
    for (unsigned i = 0; i < pen_test_seeds(300, 20000); i++) {
        const int32_t sw = 1 + (int32_t)(pen_test_random(&seed) % 400);
        const int32_t dw = 1 + (int32_t)(pen_test_random(&seed) % 400);
        const enum stk_interpolation how =
            (enum stk_interpolation)(1 + pen_test_random(&seed) % 3);
        struct stk_resize r;
        assert_int_equal(
            stk_resize_setup(PEN_FMT_MONO, dw, 5, sw, 5, how, &r, NULL),
            PEN_OK);
        int32_t *table = malloc(r.table_bytes);
        assert_non_null(table);
        stk_resize_weights(&r, table);
        const struct penk_resize_plane *p = &r.args.plane[0];
        const int32_t *start = table + p->table_x / 4;
        const int32_t *weight = start + dw;
        const int64_t one =
            r.args.mode == PENK_RESIZE_EXACT ? sw : 1 << PENK_RESIZE_SHIFT;
        for (int32_t x = 0; x < dw; x++) {
            int64_t sum = 0;
            for (int32_t t = 0; t < p->taps_x; t++)
                sum += weight[x * p->taps_x + t];
            assert_int_equal(sum, one);
            assert_true(start[x] >= 0 && start[x] + p->taps_x <= sw);
            assert_true(x == 0 || start[x] >= start[x - 1]);
        }
        free(table);
    }
}

PEN_TEST(setup_refuses_what_it_cannot_scale)
{
    struct stk_resize r;
    struct pen_error err = { 0 };
    assert_int_equal(
        stk_resize_setup(PEN_FMT_UYVY, 4, 4, 4, 4, STK_BILINEAR, &r, &err),
        PEN_E_UNSUPPORTED);
    assert_non_null(strstr(err.text, "UYVY"));
    assert_int_equal(
        stk_resize_setup(PEN_FMT_NONE, 4, 4, 4, 4, STK_BILINEAR, &r, &err),
        PEN_E_UNSUPPORTED);
    assert_int_equal(
        stk_resize_setup(PEN_FMT_RGB, 0, 4, 4, 4, STK_BILINEAR, &r, &err),
        PEN_E_ARG);
    assert_int_equal(
        stk_resize_setup(PEN_FMT_RGB, 4, 4, 4, -1, STK_BILINEAR, &r, &err),
        PEN_E_ARG);
    assert_int_equal(stk_resize_setup(PEN_FMT_RGB, 4, 4, (1 << 23) + 1, 4,
                                      STK_BILINEAR, &r, &err),
                     PEN_E_LIMIT);
    assert_int_equal(
        stk_resize_setup(PEN_FMT_RGB, 4, 1 << 20, 4, 4, STK_BILINEAR, &r, &err),
        PEN_E_LIMIT);
}

PEN_TEST_MAIN(PEN_CASE(all_sizes_are_within_one_code_of_the_reference),
              PEN_CASE(large_odd_pictures_are_right_both_ways),
              PEN_CASE(area_of_any_ratio_is_right),
              PEN_CASE(bicubic_overshoot_is_clamped),
              PEN_CASE(equal_sizes_copy_exactly),
              PEN_CASE(weights_keep_their_sum_and_stay_inside_the_source),
              PEN_CASE(setup_refuses_what_it_cannot_scale))
