// What the headers of picture files say, and what is said about files that
// are none.

#include <fcntl.h>
#include <stdio.h>
#include <unistd.h>

#include <png.h>

#include "pen_test.h"
#include "pictures.h"

#include "src/modules/image_header.h"

static enum pen_status read_header(const void *data, size_t n,
                                   struct stk_image_header *h,
                                   struct pen_error *err)
{
    const struct stk_bytes bytes = stk_bytes_memory(data, n);
    *err = (struct pen_error){ 0 };
    return stk_image_header_read(&bytes, h, err);
}

static struct bytes small_jpeg(const struct jpeg_options *o, int w, int h)
{
    uint8_t *samples = calloc((size_t)w * (size_t)h, 4);
    assert_non_null(samples);
    struct bytes b = jpeg_make(samples, w, h, o);
    free(samples);
    return b;
}

static struct bytes small_png(const struct png_options *o, int w, int h)
{
    uint8_t *rows = calloc((size_t)w * (size_t)h, 8);
    assert_non_null(rows);
    struct bytes b = png_make(rows, w, h, o);
    free(rows);
    return b;
}

PEN_TEST(jpeg_headers_give_size_channels_and_coding)
{
    static const struct {
        struct jpeg_options o;
        enum pen_format format;
        int channels;
        bool progressive, arithmetic;
    } cases[] = {
        { { .space = SPACE_YCC }, PEN_FMT_RGB, 3, false, false },
        { { .space = SPACE_RGB }, PEN_FMT_RGB, 3, false, false },
        { { .space = SPACE_GREY }, PEN_FMT_MONO, 1, false, false },
        { { .space = SPACE_CMYK }, PEN_FMT_RGB, 4, false, false },
        { { .space = SPACE_YCCK }, PEN_FMT_RGB, 4, false, false },
        { { .progressive = true }, PEN_FMT_RGB, 3, true, false },
        { { .arithmetic = true }, PEN_FMT_RGB, 3, false, true },
    };
    (void)test_state;
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        struct stk_image_header h;
        struct pen_error err;
        struct bytes b = small_jpeg(&cases[i].o, 37, 21);
        assert_int_equal(read_header(b.data, b.length, &h, &err), PEN_OK);
        assert_int_equal(h.codec, PEN_CODEC_JPEG);
        assert_int_equal(h.format, cases[i].format);
        assert_int_equal(h.width, 37);
        assert_int_equal(h.height, 21);
        assert_int_equal(h.channels, cases[i].channels);
        assert_int_equal(h.depth, 8);
        assert_int_equal(h.orientation, 1);
        assert_int_equal(h.progressive, cases[i].progressive);
        assert_int_equal(h.arithmetic, cases[i].arithmetic);
        bytes_free(&b);
    }
}

PEN_TEST(png_headers_give_what_the_decoder_will_make)
{
    static const struct {
        struct png_options o;
        enum pen_format format;
    } cases[] = {
        { { PNG_COLOR_TYPE_GRAY, 1, .adam7 = false }, PEN_FMT_MONO },
        { { PNG_COLOR_TYPE_GRAY, 16, .adam7 = true }, PEN_FMT_MONO },
        { { PNG_COLOR_TYPE_GRAY, 8, .trns = true }, PEN_FMT_RGBA },
        { { PNG_COLOR_TYPE_GRAY_ALPHA, 8, .adam7 = false }, PEN_FMT_RGBA },
        { { PNG_COLOR_TYPE_RGB, 8, .adam7 = false }, PEN_FMT_RGB },
        { { PNG_COLOR_TYPE_RGB, 16, .trns = true }, PEN_FMT_RGBA },
        { { PNG_COLOR_TYPE_RGB_ALPHA, 8, .adam7 = true }, PEN_FMT_RGBA },
        { { PNG_COLOR_TYPE_PALETTE, 4, .adam7 = false }, PEN_FMT_RGB },
        { { PNG_COLOR_TYPE_PALETTE, 8, .trns = true }, PEN_FMT_RGBA },
    };
    (void)test_state;
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        struct stk_image_header h;
        struct pen_error err;
        struct bytes b = small_png(&cases[i].o, 19, 7);
        assert_int_equal(read_header(b.data, b.length, &h, &err), PEN_OK);
        assert_int_equal(h.codec, PEN_CODEC_PNG);
        assert_int_equal(h.format, cases[i].format);
        assert_int_equal(h.width, 19);
        assert_int_equal(h.height, 7);
        assert_int_equal(h.depth, cases[i].o.depth);
        assert_int_equal(h.progressive, cases[i].o.adam7);
        bytes_free(&b);
    }
}

PEN_TEST(exif_orientation_is_read_in_both_byte_orders)
{
    (void)test_state;
    for (int i = 0; i < 20; i++) {
        const int value = i / 2;  // 0 to 9: the first and last are nonsense
        const bool big = i & 1;
        struct stk_image_header h;
        struct pen_error err;
        struct bytes plain = small_jpeg(&(struct jpeg_options){ 0 }, 8, 8);
        uint8_t exif[64] = "Exif\0";
        const size_t n = exif_make(exif + 6, value, big);
        struct bytes b = jpeg_with(&plain, 0xe1, exif, 6 + n);
        assert_int_equal(read_header(b.data, b.length, &h, &err), PEN_OK);
        assert_int_equal(h.orientation, value >= 1 && value <= 8 ? value : 1);
        bytes_free(&b);

        b = small_png(
            &(struct png_options){ PNG_COLOR_TYPE_RGB, 8, .orientation = 6 }, 8,
            8);
        assert_int_equal(read_header(b.data, b.length, &h, &err), PEN_OK);
        assert_int_equal(h.orientation, 6);
        bytes_free(&b);
        bytes_free(&plain);
    }
}

PEN_TEST(damaged_exif_never_costs_the_picture)
{
    (void)test_state;
    struct bytes plain = small_jpeg(&(struct jpeg_options){ 0 }, 8, 8);
    uint64_t seed = 5;
    const unsigned cases = pen_test_seeds(2000, 200000);
    for (unsigned i = 0; i < cases; i++) {
        struct stk_image_header h;
        struct pen_error err;
        uint8_t exif[64] = "Exif\0";
        size_t n = 6 + exif_make(exif + 6, 6, i & 1);
        for (unsigned k = 0; k < 1 + i % 4; k++)
            exif[6 + pen_test_random(&seed) % 26] =
                (uint8_t)pen_test_random(&seed);
        n = 6 + pen_test_random(&seed) % 27;
        struct bytes b = jpeg_with(&plain, 0xe1, exif, n);
        assert_int_equal(read_header(b.data, b.length, &h, &err), PEN_OK);
        assert_in_range(h.orientation, 1, 8);
        assert_int_equal(h.width, 8);
        bytes_free(&b);
    }
    bytes_free(&plain);
}

PEN_TEST(every_cut_of_a_header_is_an_error_with_a_text)
{
    (void)test_state;
    struct bytes b[2] = {
        small_jpeg(&(struct jpeg_options){ .orientation = 6 }, 40, 30),
        small_png(
            &(struct png_options){ PNG_COLOR_TYPE_RGB, 8, .orientation = 3 },
            40, 30),
    };
    for (int k = 0; k < 2; k++) {
        size_t whole = 0;
        for (size_t n = 0; n < b[k].length; n++) {
            struct stk_image_header h;
            struct pen_error err;
            // Exactly as long, so that a read past the end is found.
            uint8_t *cut = malloc(n ? n : 1);
            assert_non_null(cut);
            memcpy(cut, b[k].data, n);
            const enum pen_status st = read_header(cut, n, &h, &err);
            free(cut);
            if (st == PEN_OK) {
                whole++;
                continue;
            }
            assert_int_equal(st, PEN_E_DATA);
            assert_int_equal(err.status, PEN_E_DATA);
            assert_true(err.text[0] != 0);
            assert_int_equal(whole, 0);  // once readable, always readable
        }
        assert_true(whole > 0);
        bytes_free(&b[k]);
    }
}

PEN_TEST(what_is_no_picture_is_named)
{
    static const struct {
        const char *data;
        size_t n;
        const char *what;
    } cases[] = {
        { "", 0, "an empty file" },
        { "Hello, this is no photo.\n", 25, "a text" },
        { "{\"modules\": {}}", 15, "a text" },
        { "<!DOCTYPE html><html>", 21, "an HTML page" },
        { "GIF89a\1\2\3", 9, "a GIF picture" },
        { "RIFF\1\2\3\4WEBPVP8 ", 16, "a WebP picture" },
        { "\0\0\0\x18"
          "ftypheic\0\0\0\0",
          16, "a HEIC picture" },
        { "\0\0\0\x18"
          "ftypisom\0\0\0\0",
          16, "an MP4 or QuickTime file" },
        { "version https://git-lfs.github.com/spec/v1\n", 43,
          "a Git LFS pointer" },
        { "\0\0\0\0\0\0\0\0", 8, "a file of zeros" },
        { "\1\2\3\4\5\6\7\10", 8, "unknown data" },
        { "\xff\xd8", 2, "unknown data" },
    };
    (void)test_state;
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        struct stk_image_header h;
        struct pen_error err;
        assert_int_equal(read_header(cases[i].data, cases[i].n, &h, &err),
                         PEN_E_DATA);
        if (!strstr(err.text, cases[i].what))
            fail_msg("\"%s\" does not say \"%s\"", err.text, cases[i].what);
    }
}

PEN_TEST(kinds_of_jpeg_that_are_not_decoded_are_refused_by_name)
{
    (void)test_state;
    struct bytes b =
        small_jpeg(&(struct jpeg_options){ .no_adobe = true }, 8, 8);
    size_t sof = 0;
    while (b.data[sof] != 0xff || b.data[sof + 1] != 0xc0)
        sof++;
    struct stk_image_header h;
    struct pen_error err;

    b.data[sof + 1] = 0xc3;
    assert_int_equal(read_header(b.data, b.length, &h, &err),
                     PEN_E_UNSUPPORTED);
    assert_non_null(strstr(err.text, "SOF3"));
    b.data[sof + 1] = 0xc0;
    b.data[sof + 4] = 12;
    assert_int_equal(read_header(b.data, b.length, &h, &err),
                     PEN_E_UNSUPPORTED);
    assert_non_null(strstr(err.text, "12 bits"));
    b.data[sof + 4] = 8;
    b.data[sof + 9] = 2;
    assert_int_equal(read_header(b.data, b.length, &h, &err),
                     PEN_E_UNSUPPORTED);
    b.data[sof + 9] = 3;
    b.data[sof + 5] = b.data[sof + 6] = 0;
    assert_int_equal(read_header(b.data, b.length, &h, &err), PEN_E_DATA);
    assert_non_null(strstr(err.text, "8x0"));
    bytes_free(&b);
}

PEN_TEST(a_claim_of_more_pixels_than_allowed_is_refused)
{
    (void)test_state;
    struct stk_image_header h = { .codec = PEN_CODEC_JPEG,
                                  .width = 32000,
                                  .height = 16000,
                                  .depth = 8,
                                  .channels = 3 };
    struct pen_error err = { 0 };
    assert_int_equal(stk_image_header_check(&h, 0, &err), PEN_OK);
    h.width++;
    assert_int_equal(stk_image_header_check(&h, 0, &err), PEN_E_LIMIT);
    assert_non_null(strstr(err.text, "32001x16000"));
    h.width = h.height = INT32_MAX;
    assert_int_equal(stk_image_header_check(&h, 0, &err), PEN_E_LIMIT);
}

PEN_TEST(a_claim_that_the_file_cannot_hold_is_refused)
{
    (void)test_state;
    struct pen_error err = { 0 };
    struct stk_image_header h = { .codec = PEN_CODEC_JPEG,
                                  .width = 20000,
                                  .height = 20000,
                                  .depth = 8,
                                  .channels = 3 };
    assert_int_equal(stk_image_header_check(&h, 1000, &err), PEN_E_DATA);
    assert_non_null(strstr(err.text, "cut off"));
    assert_int_equal(stk_image_header_check(&h, 781250, &err), PEN_OK);
    h.arithmetic = true;
    assert_int_equal(stk_image_header_check(&h, 1000, &err), PEN_OK);
    h.codec = PEN_CODEC_PNG;
    assert_int_equal(stk_image_header_check(&h, 1000, &err), PEN_E_DATA);
    assert_int_equal(stk_image_header_check(&h, 1162791, &err), PEN_OK);
}

PEN_TEST(the_emptiest_pictures_stay_above_the_bound)
{
    // Flat pictures compress best: the bound must not refuse them.
    (void)test_state;
    for (int k = 0; k < 3; k++) {
        struct jpeg_options o = { .progressive = k == 1,
                                  .quality = 1,
                                  .space = k == 2 ? SPACE_GREY : SPACE_YCC };
        struct bytes b = small_jpeg(&o, 4000, 3000);
        struct stk_image_header h;
        struct pen_error err;
        assert_int_equal(read_header(b.data, b.length, &h, &err), PEN_OK);
        assert_int_equal(stk_image_header_check(&h, b.length, &err), PEN_OK);
        bytes_free(&b);
    }
    for (int depth = 1; depth <= 16; depth *= 2) {
        const struct png_options o = { PNG_COLOR_TYPE_GRAY, depth,
                                       .adam7 = false };
        struct bytes b = small_png(&o, 3000, 2000);
        struct stk_image_header h;
        struct pen_error err;
        assert_int_equal(read_header(b.data, b.length, &h, &err), PEN_OK);
        assert_int_equal(stk_image_header_check(&h, b.length, &err), PEN_OK);
        bytes_free(&b);
    }
}

PEN_TEST(headers_behind_long_segments_are_found_in_a_file)
{
    (void)test_state;
    struct bytes b = small_jpeg(&(struct jpeg_options){ 0 }, 33, 44);
    uint8_t *filling = calloc(1, 65533);
    assert_non_null(filling);
    for (int i = 0; i < 20; i++) {  // more than a megabyte of thumbnails
        struct bytes more = jpeg_with(&b, 0xe2, filling, 65533);
        bytes_free(&b);
        b = more;
    }
    free(filling);
    char path[256];
    snprintf(path, sizeof(path), "%s/long.jpg", pen_test_folder());
    pen_test_write_file(path, b.data, b.length);
    bytes_free(&b);

    const int fd = open(path, O_RDONLY);
    assert_true(fd >= 0);
    const struct stk_bytes bytes = stk_bytes_file(fd);
    struct stk_image_header h;
    struct pen_error err = { 0 };
    assert_int_equal(stk_image_header_read(&bytes, &h, &err), PEN_OK);
    assert_int_equal(h.width, 33);
    assert_int_equal(h.height, 44);
    assert_true(lseek(fd, 0, SEEK_CUR) == 0);  // the offset is the caller's
    close(fd);
}

PEN_TEST(random_bytes_after_a_signature_are_survived)
{
    (void)test_state;
    uint64_t seed = 77;
    const unsigned cases = pen_test_seeds(5000, 500000);
    for (unsigned i = 0; i < cases; i++) {
        const size_t n = 8 + pen_test_random(&seed) % 120;
        uint8_t *data = malloc(n);
        assert_non_null(data);
        for (size_t k = 0; k < n; k++) {
            // Many 0xff and zeros: markers and short lengths.
            const uint32_t r = pen_test_random(&seed);
            data[k] = r & 0x100 ? 0xff : r & 0x200 ? 0 : (uint8_t)r;
        }
        memcpy(data,
               i & 1 ? "\xff\xd8\xff\xe0\0\2\xff\xe1" : "\x89PNG\r\n\x1a\n", 8);
        struct stk_image_header h;
        struct pen_error err;
        const enum pen_status st = read_header(data, n, &h, &err);
        if (st == PEN_OK) {
            assert_true(h.width > 0 && h.height > 0);
        } else {
            assert_true(st == PEN_E_DATA || st == PEN_E_UNSUPPORTED);
            assert_int_equal(err.status, st);
        }
        free(data);
    }
}

PEN_TEST_MAIN(PEN_CASE(jpeg_headers_give_size_channels_and_coding),
              PEN_CASE(png_headers_give_what_the_decoder_will_make),
              PEN_CASE(exif_orientation_is_read_in_both_byte_orders),
              PEN_CASE(damaged_exif_never_costs_the_picture),
              PEN_CASE(every_cut_of_a_header_is_an_error_with_a_text),
              PEN_CASE(what_is_no_picture_is_named),
              PEN_CASE(kinds_of_jpeg_that_are_not_decoded_are_refused_by_name),
              PEN_CASE(a_claim_of_more_pixels_than_allowed_is_refused),
              PEN_CASE(a_claim_that_the_file_cannot_hold_is_refused),
              PEN_CASE(the_emptiest_pictures_stay_above_the_bound),
              PEN_CASE(headers_behind_long_segments_are_found_in_a_file),
              PEN_CASE(random_bytes_after_a_signature_are_survived))
