// Formats, caps and layouts. What a layout must be is written here once more,
// straight from the text of format.h.

#include <limits.h>
#include <stdio.h>

#include <penstock/format.h>

#include "pen_test.h"

// clang-format off
static const struct {
    enum pen_format format;
    int value;  // of ApraPipes' ImageType
    const char *name;
    unsigned planes, channels, depth, chroma_w, chroma_h;
    const char *flags;
} facts[] = {
    { PEN_FMT_MONO,       1, "MONO",      1, 1,  8, 1, 1, "" },
    { PEN_FMT_BGR,        2, "BGR",       1, 3,  8, 1, 1, "" },
    { PEN_FMT_BGRA,       3, "BGRA",      1, 4,  8, 1, 1, "a" },
    { PEN_FMT_RGB,        4, "RGB",       1, 3,  8, 1, 1, "" },
    { PEN_FMT_RGBA,       5, "RGBA",      1, 4,  8, 1, 1, "a" },
    { PEN_FMT_YUV411_I,  10, "YUV411_I",  1, 3,  8, 4, 1, "y" },
    { PEN_FMT_YUV444,    11, "YUV444",    3, 3,  8, 1, 1, "y" },
    { PEN_FMT_YUV420,    12, "YUV420",    3, 3,  8, 2, 2, "y" },
    { PEN_FMT_UYVY,      13, "UYVY",      1, 3,  8, 2, 1, "y" },
    { PEN_FMT_YUYV,      14, "YUYV",      1, 3,  8, 2, 1, "y" },
    { PEN_FMT_NV12,      15, "NV12",      2, 3,  8, 2, 2, "y" },
    { PEN_FMT_BAYERBG10, 20, "BAYERBG10", 1, 1, 10, 1, 1, "b" },
    { PEN_FMT_BAYERBG8,  21, "BAYERBG8",  1, 1,  8, 1, 1, "b" },
    { PEN_FMT_BAYERGB8,  22, "BAYERGB8",  1, 1,  8, 1, 1, "b" },
    { PEN_FMT_BAYERGR8,  23, "BAYERGR8",  1, 1,  8, 1, 1, "b" },
    { PEN_FMT_BAYERRG8,  24, "BAYERRG8",  1, 1,  8, 1, 1, "b" },
};
// clang-format on
enum { FACTS = sizeof(facts) / sizeof(facts[0]) };

PEN_TEST(every_format_has_its_facts)
{
    for (unsigned i = 0; i < FACTS; i++) {
        assert_int_equal(facts[i].format, facts[i].value);
        const struct pen_format_info *f = pen_format_info(facts[i].format);
        assert_non_null(f);
        assert_string_equal(f->name, facts[i].name);
        assert_int_equal(f->planes, facts[i].planes);
        assert_int_equal(f->channels, facts[i].channels);
        assert_int_equal(f->depth, facts[i].depth);
        assert_int_equal(f->chroma_w, facts[i].chroma_w);
        assert_int_equal(f->chroma_h, facts[i].chroma_h);
        assert_int_equal(f->yuv, facts[i].flags[0] == 'y');
        assert_int_equal(f->alpha, facts[i].flags[0] == 'a');
        assert_int_equal(f->bayer, facts[i].flags[0] == 'b');
        assert_int_equal(pen_format_from_name(facts[i].name), facts[i].format);
    }
}

PEN_TEST(values_between_the_formats_are_none)
{
    unsigned known = 0;
    for (int v = -5; v < PEN_FMT_COUNT + 100; v++)
        known += pen_format_info((enum pen_format)v) != NULL;
    assert_int_equal(known, FACTS);
    assert_null(pen_format_info(PEN_FMT_NONE));
    assert_null(pen_format_info((enum pen_format)INT_MAX));
    assert_null(pen_format_info((enum pen_format)INT_MIN));
    static const char *const wrong[] = { "", "rgb", "RGB ", "NV21", "?" };
    for (size_t i = 0; i < sizeof(wrong) / sizeof(wrong[0]); i++)
        assert_int_equal(pen_format_from_name(wrong[i]), PEN_FMT_NONE);
}

PEN_TEST(names_of_values_out_of_range_are_question_marks)
{
    assert_string_equal(pen_mem_name(PEN_MEM_HOST), "HOST");
    assert_string_equal(pen_mem_name(PEN_MEM_HOST_PINNED), "HOST_PINNED");
    assert_string_equal(pen_mem_name(PEN_MEM_CUDA_DEVICE), "CUDA_DEVICE");
    assert_string_equal(pen_mem_name(PEN_MEM_DMABUF), "DMABUF");
    assert_string_equal(pen_mem_key(PEN_MEM_HOST), "host");
    assert_string_equal(pen_mem_key(PEN_MEM_HOST_PINNED), "host_pinned");
    assert_string_equal(pen_mem_key(PEN_MEM_CUDA_DEVICE), "cuda_device");
    assert_string_equal(pen_mem_key(PEN_MEM_DMABUF), "dmabuf");
    assert_string_equal(pen_matrix_name(PEN_MATRIX_BT601), "bt601");
    assert_string_equal(pen_matrix_name(PEN_MATRIX_BT709), "bt709");
    assert_string_equal(pen_matrix_name(PEN_MATRIX_BT2020), "bt2020");
    assert_string_equal(pen_range_name(PEN_RANGE_LIMITED), "limited");
    assert_string_equal(pen_range_name(PEN_RANGE_FULL), "full");
    assert_string_equal(pen_kind_name(PEN_KIND_FRAME), "Frame");
    assert_string_equal(pen_kind_name(PEN_KIND_RAW_IMAGE), "RawImage");
    assert_string_equal(pen_kind_name(PEN_KIND_ENCODED_IMAGE), "EncodedImage");
    assert_string_equal(pen_kind_name(PEN_KIND_H264_DATA), "H264Data");
    assert_string_equal(pen_codec_name(PEN_CODEC_JPEG), "JPEG");
    assert_string_equal(pen_codec_name(PEN_CODEC_PNG), "PNG");
    static const int odd[] = { 0, 5, 77, -1 };
    for (size_t i = 0; i < 4; i++) {
        assert_string_equal(pen_mem_name((enum pen_mem_type)odd[i]), "?");
        assert_string_equal(pen_mem_key((enum pen_mem_type)odd[i]), "?");
        assert_string_equal(pen_matrix_name((enum pen_matrix)odd[i]), "?");
        assert_string_equal(pen_range_name((enum pen_range)odd[i]), "?");
        assert_string_equal(pen_kind_name((enum pen_kind)odd[i]), "?");
        assert_string_equal(pen_codec_name((enum pen_codec)odd[i]), "?");
    }
}

// --- layout -----------------------------------------------------------------

static int64_t up(int64_t a, int64_t b)
{
    return (a + b - 1) / b;
}

// Bytes of a row and rows of plane `p`.
static void expected_plane(enum pen_format f, unsigned p, int64_t w, int64_t h,
                           int64_t *row, int64_t *rows)
{
    *rows = h;
    switch (f) {
    case PEN_FMT_BGR:
    case PEN_FMT_RGB:
        *row = 3 * w;
        return;
    case PEN_FMT_BGRA:
    case PEN_FMT_RGBA:
        *row = 4 * w;
        return;
    case PEN_FMT_YUV411_I:
        *row = 6 * up(w, 4);
        return;
    case PEN_FMT_UYVY:
    case PEN_FMT_YUYV:
        *row = 4 * up(w, 2);
        return;
    case PEN_FMT_YUV420:
        *row = p ? up(w, 2) : w;
        *rows = p ? up(h, 2) : h;
        return;
    case PEN_FMT_NV12:
        *row = p ? 2 * up(w, 2) : w;
        *rows = p ? up(h, 2) : h;
        return;
    case PEN_FMT_BAYERBG10:
        *row = 2 * w;
        return;
    default:
        *row = w;
        return;
    }
}

static struct pen_caps picture(enum pen_format format, int32_t w, int32_t h)
{
    return (struct pen_caps){
        .kind = PEN_KIND_RAW_IMAGE,
        .format = format,
        .width = w,
        .height = h,
    };
}

PEN_TEST(layouts_are_those_of_the_formats_for_all_sizes)
{
    static const int32_t sizes[] = { 1,   2,   3,   4,    5,    7,    8,
                                     15,  16,  17,  63,   64,   65,   127,
                                     640, 641, 720, 1080, 1919, 1920, 3840 };
    enum { SIZES = sizeof(sizes) / sizeof(sizes[0]) };
    static const size_t aligns[] = { 1, 2, 16, 64, 256, 4096 };

    for (unsigned i = 0; i < FACTS; i++)
        for (unsigned x = 0; x < SIZES; x++)
            for (unsigned y = 0; y < SIZES; y++)
                for (unsigned a = 0; a < 6; a++) {
                    const struct pen_caps caps =
                        picture(facts[i].format, sizes[x], sizes[y]);
                    struct pen_layout l;
                    assert_int_equal(
                        pen_layout_compute(&caps, aligns[a], &l, NULL), PEN_OK);
                    assert_int_equal(l.planes, facts[i].planes);
                    int64_t end = 0;
                    for (unsigned p = 0; p < l.planes; p++) {
                        int64_t row, rows;
                        expected_plane(facts[i].format, p, sizes[x], sizes[y],
                                       &row, &rows);
                        const int64_t align = (int64_t)aligns[a];
                        end = up(end, align) * align;
                        assert_int_equal(l.plane[p].offset, end);
                        assert_int_equal(l.plane[p].row_bytes, row);
                        assert_int_equal(l.plane[p].rows, rows);
                        assert_int_equal(l.plane[p].pitch,
                                         up(row, align) * align);
                        end += up(row, align) * align * rows;
                    }
                    assert_int_equal(l.bytes, end);
                }
}

PEN_TEST(a_tight_layout_has_the_size_of_the_raw_file)
{
    struct pen_caps caps = picture(PEN_FMT_YUV420, 1920, 1080);
    struct pen_layout l;
    assert_int_equal(pen_layout_compute(&caps, 1, &l, NULL), PEN_OK);
    assert_int_equal(l.bytes, 1920 * 1080 * 3 / 2);
    caps = picture(PEN_FMT_NV12, 1, 1);
    assert_int_equal(pen_layout_compute(&caps, 1, &l, NULL), PEN_OK);
    assert_int_equal(l.bytes, 3);
}

PEN_TEST(kinds_without_layout_are_one_row_of_their_bytes)
{
    static const enum pen_kind kinds[] = { PEN_KIND_FRAME,
                                           PEN_KIND_ENCODED_IMAGE,
                                           PEN_KIND_H264_DATA };
    for (int i = 0; i < 3; i++) {
        struct pen_caps caps = {
            .kind = kinds[i],
            .width = 640,
            .height = 480,
            .bytes = 1001,
        };
        struct pen_layout l;
        assert_int_equal(pen_layout_compute(&caps, 64, &l, NULL), PEN_OK);
        assert_int_equal(l.planes, 1);
        assert_int_equal(l.bytes, 1001);
        assert_int_equal(l.plane[0].offset, 0);
        assert_int_equal(l.plane[0].row_bytes, 1001);
        assert_int_equal(l.plane[0].rows, 1);

        caps.bytes = 0;
        struct pen_error err = { 0 };
        assert_int_equal(pen_layout_compute(&caps, 64, &l, &err), PEN_E_ARG);
        assert_non_null(strstr(err.text, "size in bytes"));
        assert_int_equal(l.planes, 0);
    }
}

PEN_TEST(incomplete_caps_have_no_layout)
{
    static const struct pen_caps bad[] = {
        { 0 },
        { .kind = (enum pen_kind)99, .bytes = 5 },
        { .kind = PEN_KIND_RAW_IMAGE },
        { .kind = PEN_KIND_RAW_IMAGE, .format = PEN_FMT_RGB },
        { .kind = PEN_KIND_RAW_IMAGE, .format = PEN_FMT_RGB, .width = 5 },
        { .kind = PEN_KIND_RAW_IMAGE, .format = PEN_FMT_RGB, .height = 5 },
        { .kind = PEN_KIND_RAW_IMAGE, .width = 5, .height = 5 },
        { .kind = PEN_KIND_RAW_IMAGE,
          .format = (enum pen_format)7,
          .width = 5,
          .height = 5 },
        { .kind = PEN_KIND_RAW_IMAGE,
          .format = PEN_FMT_RGB,
          .width = -1,
          .height = 5 },
        { .kind = PEN_KIND_RAW_IMAGE,
          .formats = PEN_FMT_BITS_RGB,
          .width = 5,
          .height = 5 },
    };
    for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
        struct pen_error err = { 0 };
        struct pen_layout l;
        assert_int_equal(pen_layout_compute(&bad[i], 64, &l, &err), PEN_E_ARG);
        assert_int_equal(err.status, PEN_E_ARG);
        assert_string_not_equal(err.text, "");
        assert_int_equal(l.bytes, 0);
    }
    const struct pen_caps good = picture(PEN_FMT_RGB, 5, 5);
    struct pen_layout l;
    assert_int_equal(pen_layout_compute(&good, 0, &l, NULL), PEN_E_ARG);
    assert_int_equal(pen_layout_compute(&good, 48, &l, NULL), PEN_E_ARG);
}

PEN_TEST(the_largest_pictures_are_counted_and_not_wrapped)
{
    struct pen_layout l;
    struct pen_error err = { 0 };
    // 2^31-1 pixels a side fit for one byte a pixel ...
    struct pen_caps caps = picture(PEN_FMT_MONO, INT32_MAX, INT32_MAX);
    assert_int_equal(pen_layout_compute(&caps, 1, &l, &err), PEN_OK);
    assert_int_equal(l.bytes, (uint64_t)INT32_MAX * INT32_MAX);
    // ... and for four (2^64 - 2^34 + 4), which alignment pushes over.
    caps.format = PEN_FMT_RGBA;
    assert_int_equal(pen_layout_compute(&caps, 1, &l, &err), PEN_OK);
    assert_int_equal(l.bytes, (uint64_t)INT32_MAX * INT32_MAX * 4);
    assert_int_equal(pen_layout_compute(&caps, (size_t)1 << 34, &l, &err),
                     PEN_E_LIMIT);
    assert_int_equal(l.bytes, 0);
    assert_non_null(strstr(err.text, "2147483647x2147483647"));
    caps = picture(PEN_FMT_RGB, 10, 10);
    assert_int_equal(pen_layout_compute(&caps, (size_t)1 << 63, &l, &err),
                     PEN_E_LIMIT);
}

// --- caps -------------------------------------------------------------------

PEN_TEST(caps_are_equal_if_all_that_matters_is)
{
    const struct pen_caps a = {
        .kind = PEN_KIND_RAW_IMAGE,
        .codec = PEN_CODEC_UNKNOWN,
        .format = PEN_FMT_RGB,
        .width = 4,
        .height = 5,
        .matrix = PEN_MATRIX_BT601,
        .range = PEN_RANGE_FULL,
    };
    struct pen_caps b = a;
    b.fps = (struct pen_rational){ 25, 1 };
    b.formats = 7;
    b.bytes = 9;
    assert_true(pen_caps_equal(&a, &b));
#define DIFFERS(field, value)                                                  \
    b = a;                                                                     \
    b.field = value;                                                           \
    assert_false(pen_caps_equal(&a, &b))
    DIFFERS(kind, PEN_KIND_FRAME);
    DIFFERS(codec, PEN_CODEC_PNG);
    DIFFERS(format, PEN_FMT_BGR);
    DIFFERS(width, 5);
    DIFFERS(height, 4);
    DIFFERS(matrix, PEN_MATRIX_BT709);
    DIFFERS(range, PEN_RANGE_LIMITED);
#undef DIFFERS
}

PEN_TEST(caps_read_as_text)
{
    static const struct {
        struct pen_caps caps;
        const char *text;
    } cases[] = {
        { { .kind = PEN_KIND_RAW_IMAGE,
            .format = PEN_FMT_RGB,
            .width = 1920,
            .height = 1080,
            .matrix = PEN_MATRIX_BT601,
            .range = PEN_RANGE_FULL },
          "RGB 1920x1080 bt601 full" },
        { { .kind = PEN_KIND_RAW_IMAGE,
            .format = PEN_FMT_NV12,
            .height = 1080 },
          "NV12 ?x1080 ? ?" },
        { { .kind = PEN_KIND_RAW_IMAGE }, "? ?x? ? ?" },
        { { .kind = PEN_KIND_RAW_IMAGE,
            .formats = PEN_FMT_BIT(PEN_FMT_MONO) | PEN_FMT_BIT(PEN_FMT_RGB),
            .width = 3,
            .height = 2,
            .matrix = PEN_MATRIX_BT709,
            .range = PEN_RANGE_LIMITED },
          "MONO|RGB 3x2 bt709 limited" },
        { { .kind = PEN_KIND_RAW_IMAGE,
            .format = PEN_FMT_BAYERBG8,
            .width = 800,
            .height = 600 },
          "BAYERBG8 800x600" },
        { { .kind = PEN_KIND_ENCODED_IMAGE,
            .codec = PEN_CODEC_JPEG,
            .width = 1920,
            .height = 1080 },
          "JPEG 1920x1080" },
        { { .kind = PEN_KIND_ENCODED_IMAGE }, "? ?x?" },
        { { .kind = PEN_KIND_H264_DATA, .width = 64, .height = 32 },
          "H264Data 64x32" },
        { { .kind = PEN_KIND_FRAME, .bytes = 5 }, "Frame" },
        { { 0 }, "?" },
    };
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        char text[128];
        pen_caps_text(&cases[i].caps, text, sizeof(text));
        assert_string_equal(text, cases[i].text);
    }
}

PEN_TEST(caps_text_stays_in_its_place)
{
    const struct pen_caps caps = {
        .kind = PEN_KIND_RAW_IMAGE,
        .formats = ~0u,
        .width = INT32_MAX,
        .height = INT32_MAX,
        .matrix = PEN_MATRIX_BT2020,
        .range = PEN_RANGE_LIMITED,
    };
    char whole[512];
    pen_caps_text(&caps, whole, sizeof(whole));
    assert_non_null(strstr(whole, "MONO|BGR|BGRA"));
    assert_non_null(strstr(whole, "BAYERRG8 2147483647x2147483647"));
    for (size_t size = 1; size < 64; size++) {
        char text[80];
        memset(text, 0x7f, sizeof(text));
        pen_caps_text(&caps, text, size);
        assert_int_equal(strlen(text), size - 1);
        assert_memory_equal(text, whole, size - 1);
        assert_int_equal(text[size], 0x7f);
    }
}

PEN_TEST_MAIN(PEN_CASE(every_format_has_its_facts),
              PEN_CASE(values_between_the_formats_are_none),
              PEN_CASE(names_of_values_out_of_range_are_question_marks),
              PEN_CASE(layouts_are_those_of_the_formats_for_all_sizes),
              PEN_CASE(a_tight_layout_has_the_size_of_the_raw_file),
              PEN_CASE(kinds_without_layout_are_one_row_of_their_bytes),
              PEN_CASE(incomplete_caps_have_no_layout),
              PEN_CASE(the_largest_pictures_are_counted_and_not_wrapped),
              PEN_CASE(caps_are_equal_if_all_that_matters_is),
              PEN_CASE(caps_read_as_text),
              PEN_CASE(caps_text_stays_in_its_place))
