// Gaussian blur: every kernel size and format against the exact reference, and
// the CPU twin against the kernel's host builds, bit for bit.

#include <math.h>
#include <stdio.h>

#include "pen_picture.h"
#include "pen_test.h"
#include "src/kernels/cpu.h"

static const enum pen_format formats[] = {
    PEN_FMT_MONO, PEN_FMT_RGB,  PEN_FMT_BGR,
    PEN_FMT_RGBA, PEN_FMT_BGRA, PEN_FMT_YUV444,
};
enum { FORMATS = sizeof(formats) / sizeof(formats[0]) };

// Half of the rounding, of 2^-8 between the passes, and 31 weights of 2^-17 in
// both directions.
static const double limit = 0.6;

static void check_blur(enum pen_format f, int w, int h, int size, double sigma,
                       size_t extra, size_t shift)
{
    struct pen_picture src, first, dst;
    struct penk_blur args;
    struct pen_grid grid;
    struct pen_error err = { 0 };
    char what[160];

    snprintf(what, sizeof(what), "%s %dx%d, kernel %d, sigma %g, pitch +%zu",
             pen_picture_name(f), w, h, size, sigma, extra);
    pen_picture_make(&src, f, w, h, extra, shift);
    pen_picture_make(&first, f, w, h, extra + 1, shift);
    pen_picture_make(&dst, f, w, h, extra + 1, shift);
    pen_picture_noise(&src, (uint64_t)(w * 31 + h + size));
    if (stk_blur_setup(f, w, h, size, sigma, &args, &err) != PEN_OK)
        fail_msg("%s: %s", what, err.text);

    stk_blur_bind(&args, &first.view, &src.view);
    stk_cpu_blur_base(&args, 0, h);
    pen_picture_check_guards(&first, what);
    double *exact = calloc(ref_bytes(f, w, h), sizeof(*exact));
    assert_non_null(exact);
    ref_blur(&src.ref, size, sigma, exact);
    pen_picture_check_near(&first, exact, limit, what);
    free(exact);

    stk_blur_bind(&args, &dst.view, &src.view);
    if (stk_cpu_has_v3()) {
        stk_cpu_blur_v3(&args, 0, h);
        pen_picture_check_guards(&dst, what);
        pen_picture_check_same(&dst, &first, what);
    }
    pen_picture_reset(&dst);
    stk_cpu_blur(&args, h / 3, h);
    stk_cpu_blur(&args, 0, h / 3);
    pen_picture_check_guards(&dst, what);
    pen_picture_check_same(&dst, &first, what);

    const struct pen_view away_dst = pen_picture_away(&dst);
    const struct pen_view away_src = pen_picture_away(&src);
    const struct pen_kernel_entry *e =
        &stk_image_blur.entries[PENK_KERNEL_BLUR];
    stk_blur_bind(&args, &away_dst, &away_src);
    stk_blur_grid(&args, &grid);
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
    pen_picture_free(&src);
    pen_picture_free(&first);
    pen_picture_free(&dst);
}

static double default_sigma(int size)
{
    return 0.3 * ((size - 1) * 0.5 - 1) + 0.8;
}

PEN_TEST(all_sizes_are_within_one_code_of_the_reference)
{
    static const struct {
        int w, h;
    } sizes[] = { { 1, 1 }, { 1, 2 },   { 2, 1 },   { 3, 3 },
                  { 5, 7 }, { 17, 13 }, { 64, 48 }, { 43, 33 } };
    for (size_t s = 0; s < sizeof(sizes) / sizeof(sizes[0]); s++)
        for (size_t f = 0; f < FORMATS; f++)
            for (int size = 3; size <= 31; size += 4 + 8 * (s % 2))
                check_blur(formats[f], sizes[s].w, sizes[s].h, size,
                           default_sigma(size), (s + f) % 3 * 5, f % 4);
}

PEN_TEST(every_kernel_size_and_extreme_sigmas_are_right)
{
    for (int size = 3; size <= 31; size += 2) {
        check_blur(PEN_FMT_RGB, 50, 37, size, default_sigma(size), 0, 0);
        check_blur(PEN_FMT_RGBA, 31, 37, size, 1e6, 3, 1);
        check_blur(PEN_FMT_MONO, 131, 33, size, 0.05, 1, 0);
    }
}

PEN_TEST(large_odd_pictures_are_right)
{
    for (size_t f = 0; f < FORMATS; f++)
        check_blur(formats[f], 641, 161, 15, 2.6, 7, f % 4);
}

PEN_TEST(white_stays_white_and_black_black)
{
    for (int size = 3; size <= 31; size += 2) {
        for (int value = 0; value <= 255; value += 51) {
            struct pen_picture src, dst;
            struct penk_blur args;
            pen_picture_make(&src, PEN_FMT_RGB, 40, 40, 0, 0);
            pen_picture_make(&dst, PEN_FMT_RGB, 40, 40, 0, 0);
            memset(src.view.plane[0].host, value, 40 * 40 * 3);
            assert_int_equal(stk_blur_setup(PEN_FMT_RGB, 40, 40, size,
                                            default_sigma(size), &args, NULL),
                             PEN_OK);
            stk_blur_bind(&args, &dst.view, &src.view);
            stk_cpu_blur(&args, 0, 40);
            pen_picture_check_same(&dst, &src, "flat");
            pen_picture_free(&src);
            pen_picture_free(&dst);
        }
    }
}

PEN_TEST(weights_keep_their_sum)
{
    for (int radius = 1; radius <= PENK_BLUR_MAX_RADIUS; radius++) {
        for (double sigma = 1e-3; sigma < 1e7; sigma *= 1.7) {
            uint32_t w[PENK_BLUR_MAX_RADIUS + 1];
            stk_blur_weights(radius, sigma, w);
            uint32_t sum = w[0];
            for (int i = 1; i <= radius; i++) {
                sum += 2 * w[i];
                assert_true(w[i] <= w[i - 1] + radius);
            }
            assert_int_equal(sum, 65536);
        }
    }
}

PEN_TEST(setup_refuses_what_it_cannot_blur)
{
    struct penk_blur k;
    struct pen_error err = { 0 };
    assert_int_equal(stk_blur_setup(PEN_FMT_RGB, 4, 4, 3, 1, &k, &err), PEN_OK);
    assert_int_equal(stk_blur_setup(PEN_FMT_NV12, 4, 4, 3, 1, &k, &err),
                     PEN_E_UNSUPPORTED);
    assert_non_null(strstr(err.text, "NV12"));
    static const int sizes[] = { -1, 0, 1, 2, 4, 30, 32, 33 };
    for (size_t i = 0; i < sizeof(sizes) / sizeof(sizes[0]); i++)
        assert_int_equal(
            stk_blur_setup(PEN_FMT_RGB, 4, 4, sizes[i], 1, &k, &err),
            PEN_E_ARG);
    static const double sigmas[] = { 0, -1, NAN, INFINITY };
    for (size_t i = 0; i < 4; i++)
        assert_int_equal(
            stk_blur_setup(PEN_FMT_RGB, 4, 4, 3, sigmas[i], &k, &err),
            PEN_E_ARG);
    assert_int_equal(stk_blur_setup(PEN_FMT_RGB, 0, 4, 3, 1, &k, &err),
                     PEN_E_ARG);
    assert_int_equal(stk_blur_setup(PEN_FMT_RGB, 4, 1 << 22, 3, 1, &k, &err),
                     PEN_E_LIMIT);
}

PEN_TEST_MAIN(PEN_CASE(all_sizes_are_within_one_code_of_the_reference),
              PEN_CASE(every_kernel_size_and_extreme_sigmas_are_right),
              PEN_CASE(large_odd_pictures_are_right),
              PEN_CASE(white_stays_white_and_black_black),
              PEN_CASE(weights_keep_their_sum),
              PEN_CASE(setup_refuses_what_it_cannot_blur))
