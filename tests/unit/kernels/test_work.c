// How much operators are said to have to do.

#include "pen_test.h"

#include "src/kernels/work.h"

static struct pen_caps picture(enum pen_format format, int32_t w, int32_t h)
{
    return (struct pen_caps){
        .kind = PEN_KIND_RAW_IMAGE,
        .format = format,
        .width = w,
        .height = h,
        .range = PEN_RANGE_FULL,
    };
}

PEN_TEST(samples_are_those_of_a_tight_picture)
{
    static const enum pen_format formats[] = {
        PEN_FMT_MONO, PEN_FMT_RGB,    PEN_FMT_BGRA,     PEN_FMT_YUV444,
        PEN_FMT_NV12, PEN_FMT_YUV420, PEN_FMT_BAYERBG8,
    };
    for (unsigned i = 0; i < sizeof(formats) / sizeof(formats[0]); i++) {
        const struct pen_caps caps = picture(formats[i], 5, 3);
        struct pen_layout layout;
        struct pen_error err = { 0 };
        assert_int_equal(pen_layout_compute(&caps, 1, &layout, &err), PEN_OK);
        assert_int_equal(stk_work_samples(&caps), layout.bytes);
    }
    // Of a set the widest.
    struct pen_caps set = picture(PEN_FMT_NONE, 10, 10);
    set.formats = PEN_FMT_BIT(PEN_FMT_MONO) | PEN_FMT_BIT(PEN_FMT_RGB) |
                  PEN_FMT_BIT(PEN_FMT_NV12);
    assert_int_equal(stk_work_samples(&set), 300);
    set.formats = 0;
    assert_int_equal(stk_work_samples(&set), 0);
}

PEN_TEST(a_blur_has_a_tap_for_each_pixel_across_and_down)
{
    const struct pen_caps rgb = picture(PEN_FMT_RGB, 64, 32);
    assert_int_equal(stk_work_blur(&rgb, 15, false), 64 * 32 * 3 * 2 * 15);
    // A tile of 32 rows filters 14 more of its neighbours across, and is staged
    // before that.
    assert_int_equal(stk_work_blur(&rgb, 15, true),
                     64 * 32 * 3 * 15 * (32 + 14 + 32) / 32 + 64 * 32 * 3 * 18);
}

PEN_TEST(a_conversion_makes_one_sample_or_three)
{
    const struct pen_caps rgb = picture(PEN_FMT_RGB, 10, 10);
    const struct pen_caps mono = picture(PEN_FMT_MONO, 10, 10);
    const struct pen_caps nv12 = picture(PEN_FMT_NV12, 10, 10);
    const struct pen_caps bayer = picture(PEN_FMT_BAYERBG8, 10, 10);
    assert_int_equal(stk_work_convert(&rgb, &mono), 200);
    assert_int_equal(stk_work_convert(&rgb, &nv12), 600);
    assert_int_equal(stk_work_convert(&nv12, &rgb), 600);
    assert_int_equal(stk_work_convert(&bayer, &mono), 600);
    // Nothing to do, unless the range changes.
    assert_int_equal(stk_work_convert(&nv12, &nv12), 0);
    struct pen_caps limited = nv12;
    limited.range = PEN_RANGE_LIMITED;
    assert_int_equal(stk_work_convert(&nv12, &limited), 600);
}

PEN_TEST(a_scaler_filters_a_row_of_the_source_once)
{
    const struct pen_caps from = picture(PEN_FMT_RGB, 100, 100);
    const struct pen_caps half = picture(PEN_FMT_RGB, 50, 50);
    const struct pen_caps twice = picture(PEN_FMT_RGB, 200, 200);
    const struct pen_caps tiny = picture(PEN_FMT_RGB, 2, 2);
    // 100 rows of 50 pixels across, 6 for each of 2 taps; 2 taps down.
    assert_int_equal(stk_work_resize(&from, &half, STK_BILINEAR, false),
                     100 * 50 * 3 * 6 * 2 + 50 * 50 * 3 * 2);
    // Not 400 rows, though each of the 200 needs two.
    assert_int_equal(stk_work_resize(&from, &twice, STK_BILINEAR, false),
                     100 * 200 * 3 * 6 * 2 + 200 * 200 * 3 * 2);
    // More taps than are kept: 50 rows for each of the two.
    assert_int_equal(stk_work_resize(&from, &tiny, STK_AREA, false),
                     100 * 2 * 3 * 6 * 50 + 2 * 2 * 3 * 50);
    assert_int_equal(stk_work_resize(&from, &half, STK_NEAREST, false),
                     50 * 50 * 3 * 7);
    // The kernel makes every pixel of its own.
    assert_int_equal(stk_work_resize(&from, &half, STK_BICUBIC, true),
                     50 * 50 * 3 * 4 * 4 * 5);
    // Unknown sizes have no work.
    const struct pen_caps unknown = picture(PEN_FMT_RGB, 0, 0);
    assert_int_equal(stk_work_resize(&unknown, &half, STK_AREA, false), 0);
    assert_int_equal(stk_work_resize(&from, &unknown, STK_AREA, true), 0);
}

PEN_TEST(no_size_of_a_file_makes_the_numbers_wrap)
{
    const struct pen_caps huge = picture(PEN_FMT_RGBA, INT32_MAX, INT32_MAX);
    const struct pen_caps large = picture(PEN_FMT_RGBA, 65500, 65500);
    const struct pen_caps mono = picture(PEN_FMT_MONO, INT32_MAX, INT32_MAX);
    assert_true(stk_work_blur(&huge, 31, false) >
                stk_work_blur(&large, 31, false));
    assert_true(stk_work_blur(&huge, 31, true) >
                stk_work_blur(&large, 31, true));
    assert_true(stk_work_convert(&huge, &mono) >
                stk_work_convert(&large, &mono));
    for (int i = STK_NEAREST; i <= STK_BICUBIC; i++)
        for (unsigned cuda = 0; cuda < 2; cuda++)
            assert_true(
                stk_work_resize(&huge, &huge, (enum stk_interpolation)i, cuda) >
                stk_work_resize(&large, &large, (enum stk_interpolation)i,
                                cuda));
    assert_true(stk_work_times(UINT64_MAX / 2, 3) == UINT64_MAX);
}

PEN_TEST_MAIN(PEN_CASE(samples_are_those_of_a_tight_picture),
              PEN_CASE(a_blur_has_a_tap_for_each_pixel_across_and_down),
              PEN_CASE(a_conversion_makes_one_sample_or_three),
              PEN_CASE(a_scaler_filters_a_row_of_the_source_once),
              PEN_CASE(no_size_of_a_file_makes_the_numbers_wrap))
