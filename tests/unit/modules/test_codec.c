// JPEG and PNG from memory to pictures and back.

#include <math.h>
#include <setjmp.h>
#include <stdio.h>

#include <jpeglib.h>
#include <png.h>

#include "alloc_fail.h"
#include "pen_test.h"
#include "pictures.h"

#include "src/modules/codec.h"

// --- helpers ----------------------------------------------------------------

// Decode as the module does. On success *out is a picture to be freed.
static enum pen_status decode(const void *data, size_t n, bool orient,
                              struct picture *out, uint32_t *warnings,
                              struct pen_error *err)
{
    const struct stk_bytes bytes = stk_bytes_memory(data, n);
    struct stk_decode d = { .data = data, .bytes = n };

    *err = (struct pen_error){ 0 };
    *warnings = 0;
    PEN_TRY(stk_image_header_read(&bytes, &d.header, err));
    PEN_TRY(stk_image_header_check(&d.header, n, err));
    d.orientation = orient ? d.header.orientation : 1;
    const bool turns = stk_orientation_turns(d.orientation);
    *out =
        picture_new(d.header.format, turns ? d.header.height : d.header.width,
                    turns ? d.header.width : d.header.height);
    d.out = &out->view;
    const size_t scratch = stk_decode_scratch(&d.header, d.orientation);
    d.scratch = scratch ? malloc(scratch) : NULL;
    assert_true(!scratch || d.scratch);
    const enum pen_status st = d.header.codec == PEN_CODEC_JPEG
                                   ? stk_jpeg_decode(&d, err)
                                   : stk_png_decode(&d, err);
    free(d.scratch);
    *warnings = d.warnings;
    picture_check_gaps(out);
    if (st != PEN_OK) {
        assert_int_equal(err->status, st);
        assert_true(err->text[0] != 0);
        picture_free(out);
    }
    return st;
}

static struct picture must_decode(const struct bytes *b, bool orient)
{
    struct picture p;
    struct pen_error err;
    uint32_t warnings = 0;
    if (decode(b->data, b->length, orient, &p, &warnings, &err) != PEN_OK)
        fail_msg("%s", err.text);
    assert_int_equal(warnings, 0);
    return p;
}

static uint8_t *random_samples(size_t n, uint64_t seed)
{
    uint8_t *s = malloc(n);
    assert_non_null(s);
    for (size_t i = 0; i < n; i++)
        s[i] = (uint8_t)pen_test_random(&seed);
    return s;
}

// Smooth samples: what JPEG keeps almost as they are.
static uint8_t *smooth_samples(int w, int h, int channels)
{
    uint8_t *s = malloc((size_t)w * (size_t)h * (size_t)channels);
    assert_non_null(s);
    for (int y = 0; y < h; y++) {
        for (int x = 0; x < w; x++) {
            for (int c = 0; c < channels; c++)
                s[(y * w + x) * channels + c] =
                    (uint8_t)(30 + (x * (c + 1) * 60) / (w + 1) +
                              (y * (4 - c) * 30) / (h + 1));
        }
    }
    return s;
}

static void same_pixels(const struct picture *a, const struct picture *b)
{
    assert_int_equal(a->view.width, b->view.width);
    assert_int_equal(a->view.height, b->view.height);
    assert_int_equal(a->view.format, b->view.format);
    for (int32_t y = 0; y < a->view.height; y++)
        assert_memory_equal(picture_at(a, 0, y), picture_at(b, 0, y),
                            a->view.plane[0].row_bytes);
}

// What libjpeg itself makes of a file, in the usual way of its manual.
static struct picture reference(const struct bytes *b, bool grey)
{
    struct jpeg_decompress_struct c;
    struct jpeg_error_mgr errors;
    memset(&c, 0, sizeof(c));
    c.err = jpeg_std_error(&errors);
    jpeg_create_decompress(&c);
    jpeg_mem_src(&c, b->data, b->length);
    assert_int_equal(jpeg_read_header(&c, TRUE), JPEG_HEADER_OK);
    if (!grey)
        c.out_color_space = JCS_RGB;
    jpeg_start_decompress(&c);
    struct picture p =
        picture_new(grey ? PEN_FMT_MONO : PEN_FMT_RGB, (int32_t)c.output_width,
                    (int32_t)c.output_height);
    while (c.output_scanline < c.output_height) {
        JSAMPROW row = picture_at(&p, 0, (int32_t)c.output_scanline);
        jpeg_read_scanlines(&c, &row, 1);
    }
    jpeg_finish_decompress(&c);
    jpeg_destroy_decompress(&c);
    return p;
}

static const int sizes[][2] = {
    { 1, 1 },  { 1, 7 },   { 9, 1 },    { 2, 2 },     { 15, 17 },
    { 16, 8 }, { 33, 65 }, { 64, 130 }, { 131, 127 }, { 200, 63 },
};
#define SIZES (sizeof(sizes) / sizeof(sizes[0]))

// --- JPEG, decoding ---------------------------------------------------------

PEN_TEST(jpeg_gives_what_libjpeg_gives_for_every_sampling_and_size)
{
    static const int samplings[][2] = { { 1, 1 }, { 2, 1 }, { 1, 2 },
                                        { 2, 2 }, { 4, 1 }, { 4, 2 } };
    (void)test_state;
    for (size_t i = 0; i < SIZES; i++) {
        const int w = sizes[i][0], h = sizes[i][1];
        uint8_t *s = random_samples((size_t)w * (size_t)h * 3, i + 1);
        for (size_t k = 0; k < 6; k++) {
            for (int mode = 0; mode < 5; mode++) {
                const struct jpeg_options o = {
                    .h = samplings[k][0],
                    .v = samplings[k][1],
                    .progressive = mode == 1,
                    .arithmetic = mode == 2,
                    .restart = mode == 3 ? 2 : 0,
                    .separate_scans = mode == 4,
                };
                struct bytes b = jpeg_make(s, w, h, &o);
                struct picture got = must_decode(&b, true);
                struct picture want = reference(&b, false);
                same_pixels(&got, &want);
                picture_free(&got);
                picture_free(&want);
                bytes_free(&b);
            }
        }
        struct bytes grey =
            jpeg_make(s, w, h, &(struct jpeg_options){ .space = SPACE_GREY });
        struct picture got = must_decode(&grey, true);
        struct picture want = reference(&grey, true);
        assert_int_equal(got.view.format, PEN_FMT_MONO);
        same_pixels(&got, &want);
        picture_free(&got);
        picture_free(&want);
        bytes_free(&grey);
        free(s);
    }
}

PEN_TEST(rgb_coded_jpeg_stays_rgb)
{
    (void)test_state;
    uint8_t *s = smooth_samples(40, 30, 3);
    const struct jpeg_options o = { .space = SPACE_RGB, .quality = 100 };
    struct bytes b = jpeg_make(s, 40, 30, &o);
    struct picture p = must_decode(&b, true);
    for (int y = 0; y < 30; y++) {
        for (int x = 0; x < 40; x++) {
            for (int c = 0; c < 3; c++)
                assert_in_range(picture_at(&p, x, y)[c] + 2,
                                s[(y * 40 + x) * 3 + c],
                                s[(y * 40 + x) * 3 + c] + 4);
        }
    }
    picture_free(&p);
    bytes_free(&b);
    free(s);
}

PEN_TEST(cmyk_and_ycck_become_rgb)
{
    // libjpeg writes the samples as they are. With an Adobe marker they count
    // as inverted: R = C'K'/255 of the samples C', K'. Without one they are
    // inks: R = (255-C)(255-K)/255.
    (void)test_state;
    for (int k = 0; k < 3; k++) {
        for (size_t i = 0; i < SIZES; i++) {
            const int w = sizes[i][0], h = sizes[i][1];
            uint8_t *s = smooth_samples(w, h, 4);
            const struct jpeg_options o = {
                .space = k == 1 ? SPACE_YCCK : SPACE_CMYK,
                .quality = 100,
                .h = 1,
                .v = 1,
                .no_adobe = k == 2,
            };
            struct bytes b = jpeg_make(s, w, h, &o);
            struct picture p = must_decode(&b, true);
            assert_int_equal(p.view.format, PEN_FMT_RGB);
            for (int y = 0; y < h; y++) {
                for (int x = 0; x < w; x++) {
                    const uint8_t *in = s + (y * w + x) * 4;
                    for (int c = 0; c < 3; c++) {
                        const int flip = k == 2 ? 255 : 0;
                        const double want = (double)abs(in[c] - flip) *
                                            abs(in[3] - flip) / 255.0;
                        const double got = picture_at(&p, x, y)[c];
                        if (fabs(got - want) > 4)
                            fail_msg("case %d at %d,%d: %g for %g", k, x, y,
                                     got, want);
                    }
                }
            }
            picture_free(&p);
            bytes_free(&b);
            free(s);
        }
    }
}

PEN_TEST(cmyk_is_rounded_exactly)
{
    // A flat picture of quality 100 keeps its samples: the rounding shows.
    (void)test_state;
    for (int c = 0; c < 256; c += 15) {
        for (int k = 0; k < 256; k += 15) {
            uint8_t s[8 * 8 * 4];
            for (int i = 0; i < 64; i++) {
                s[4 * i] = s[4 * i + 1] = s[4 * i + 2] = (uint8_t)c;
                s[4 * i + 3] = (uint8_t)k;
            }
            const struct jpeg_options o = { .space = SPACE_CMYK,
                                            .quality = 100 };
            struct bytes b = jpeg_make(s, 8, 8, &o);
            struct picture p = must_decode(&b, true);
            assert_int_equal(picture_at(&p, 3, 3)[1],
                             (int)floor(c * k / 255.0 + 0.5));
            picture_free(&p);
            bytes_free(&b);
        }
    }
}

PEN_TEST(jpeg_without_huffman_tables_uses_the_standard_ones)
{
    (void)test_state;
    uint8_t *s = random_samples(50 * 40 * 3, 3);
    struct bytes whole = jpeg_make(s, 50, 40, &(struct jpeg_options){ 0 });
    struct bytes bare = jpeg_without(&whole, 0xc4);
    assert_true(bare.length + 400 < whole.length);
    struct picture a = must_decode(&whole, true);
    struct picture b = must_decode(&bare, true);
    same_pixels(&a, &b);
    picture_free(&a);
    picture_free(&b);
    bytes_free(&whole);
    bytes_free(&bare);
    free(s);
}

// Where pixel (x, y) of the stored picture is shown, by the words of the
// Exif standard: the side at which row 0 and column 0 lie.
static void shown_at(int orientation, int w, int h, int x, int y, int *sx,
                     int *sy)
{
    switch (orientation) {
    case 1:  // row 0 is the top, column 0 the left side
        *sx = x, *sy = y;
        break;
    case 2:  // top, right
        *sx = w - 1 - x, *sy = y;
        break;
    case 3:  // bottom, right
        *sx = w - 1 - x, *sy = h - 1 - y;
        break;
    case 4:  // bottom, left
        *sx = x, *sy = h - 1 - y;
        break;
    case 5:  // left, top
        *sx = y, *sy = x;
        break;
    case 6:  // right, top
        *sx = h - 1 - y, *sy = x;
        break;
    case 7:  // right, bottom
        *sx = h - 1 - y, *sy = w - 1 - x;
        break;
    default:  // left, bottom
        *sx = y, *sy = w - 1 - x;
        break;
    }
}

static void check_turned(const struct bytes *b, int orientation, int w, int h)
{
    struct picture stored = must_decode(b, false);
    struct picture shown = must_decode(b, true);
    const size_t px = stored.view.plane[0].row_bytes / (size_t)w;
    assert_int_equal(stored.view.width, w);
    assert_int_equal(stored.view.height, h);
    assert_int_equal(shown.view.width, orientation >= 5 ? h : w);
    assert_int_equal(shown.view.height, orientation >= 5 ? w : h);
    for (int y = 0; y < h; y++) {
        for (int x = 0; x < w; x++) {
            int sx = 0, sy = 0;
            shown_at(orientation, w, h, x, y, &sx, &sy);
            assert_memory_equal(picture_at(&stored, x, y),
                                picture_at(&shown, sx, sy), px);
        }
    }
    picture_free(&stored);
    picture_free(&shown);
}

PEN_TEST(all_eight_orientations_are_applied_to_jpeg)
{
    (void)test_state;
    for (size_t i = 0; i < SIZES; i++) {
        const int w = sizes[i][0], h = sizes[i][1];
        uint8_t *s = random_samples((size_t)w * (size_t)h * 4, i + 9);
        for (int orientation = 1; orientation <= 8; orientation++) {
            for (int space = SPACE_YCC; space <= SPACE_YCCK; space++) {
                const struct jpeg_options o = {
                    .space = (enum jpeg_space)space,
                    .orientation = orientation,
                    .exif_big = orientation & 1,
                };
                struct bytes b = jpeg_make(s, w, h, &o);
                check_turned(&b, orientation, w, h);
                bytes_free(&b);
            }
        }
        free(s);
    }
}

PEN_TEST(all_eight_orientations_are_applied_to_png)
{
    (void)test_state;
    for (size_t i = 0; i < SIZES; i++) {
        const int w = sizes[i][0], h = sizes[i][1];
        uint8_t *s = random_samples((size_t)w * (size_t)h * 4, i + 9);
        for (int k = 0; k < 16; k++) {
            const struct png_options o = { k & 1 ? PNG_COLOR_TYPE_RGB
                                                 : PNG_COLOR_TYPE_GRAY,
                                           8, .adam7 = k & 1,
                                           .orientation = 1 + k / 2 };
            struct bytes b = png_make(s, w, h, &o);
            check_turned(&b, 1 + k / 2, w, h);
            bytes_free(&b);
        }
        free(s);
    }
}

// A cut of a JPEG either is an error, or, where nothing but the end marker is
// missing, the whole picture with a warning.
static void check_cuts(const struct bytes *b, bool several_scans)
{
    struct picture whole = must_decode(b, true);
    for (size_t n = 0; n < b->length; n++) {
        uint8_t *cut = malloc(n ? n : 1);
        assert_non_null(cut);
        memcpy(cut, b->data, n);
        struct picture p;
        struct pen_error err;
        uint32_t warnings = 0;
        const enum pen_status st = decode(cut, n, true, &p, &warnings, &err);
        free(cut);
        if (st != PEN_OK) {
            assert_int_equal(st, PEN_E_DATA);
            continue;
        }
        assert_false(several_scans);
        assert_true(warnings > 0);
        same_pixels(&p, &whole);
        picture_free(&p);
    }
    picture_free(&whole);
}

PEN_TEST(every_cut_of_a_jpeg_is_an_error_or_the_whole_picture)
{
    (void)test_state;
    uint8_t *s = random_samples(48 * 33 * 4, 12);
    for (int space = SPACE_YCC; space <= SPACE_YCCK; space++) {
        struct jpeg_options o = { .space = (enum jpeg_space)space,
                                  .quality = 40 };
        struct bytes b = jpeg_make(s, 24, 33, &o);
        check_cuts(&b, false);
        bytes_free(&b);
        o.restart = 1;
        o.orientation = 6;
        b = jpeg_make(s, 24, 17, &o);
        check_cuts(&b, false);
        bytes_free(&b);
    }
    struct bytes b =
        jpeg_make(s, 24, 17, &(struct jpeg_options){ .progressive = true });
    check_cuts(&b, true);
    bytes_free(&b);
    b = jpeg_make(s, 24, 17, &(struct jpeg_options){ .separate_scans = true });
    check_cuts(&b, true);
    bytes_free(&b);
    b = jpeg_make(s, 24, 17, &(struct jpeg_options){ .arithmetic = true });
    check_cuts(&b, true);
    bytes_free(&b);
    free(s);
}

PEN_TEST(a_cut_jpeg_with_an_end_marker_put_on_is_an_error)
{
    (void)test_state;
    uint8_t *s = random_samples(64 * 64 * 3, 2);
    struct bytes b = jpeg_make(s, 64, 64, &(struct jpeg_options){ 0 });
    for (size_t n = b.length / 2; n + 16 < b.length; n += 7) {
        uint8_t *cut = malloc(n + 2);
        assert_non_null(cut);
        memcpy(cut, b.data, n);
        if (cut[n - 1] == 0xff)
            cut[n - 1] = 0;
        cut[n] = 0xff;
        cut[n + 1] = 0xd9;
        struct picture p;
        struct pen_error err;
        uint32_t warnings = 0;
        assert_int_equal(decode(cut, n + 2, true, &p, &warnings, &err),
                         PEN_E_DATA);
        assert_non_null(strstr(err.text, "cut off"));
        free(cut);
    }
    bytes_free(&b);
    free(s);
}

PEN_TEST(harmless_damage_is_counted_and_the_picture_used)
{
    // Bytes between the last data and the end marker: libjpeg complains, all
    // pixels are there.
    (void)test_state;
    uint8_t *s = random_samples(32 * 32 * 3, 4);
    struct bytes b = jpeg_make(s, 32, 32, &(struct jpeg_options){ 0 });
    struct picture want = must_decode(&b, true);
    uint8_t *more = malloc(b.length + 40);
    assert_non_null(more);
    memcpy(more, b.data, b.length - 2);
    memset(more + b.length - 2, 0x55, 40);
    memcpy(more + b.length + 38, "\xff\xd9", 2);
    struct picture p;
    struct pen_error err;
    uint32_t warnings = 0;
    assert_int_equal(decode(more, b.length + 40, true, &p, &warnings, &err),
                     PEN_OK);
    assert_int_equal(warnings, 1);
    same_pixels(&p, &want);
    picture_free(&p);
    picture_free(&want);
    bytes_free(&b);
    free(more);
    free(s);
}

PEN_TEST(flipped_bytes_of_a_jpeg_never_crash)
{
    (void)test_state;
    uint8_t *s = random_samples(40 * 40 * 4, 8);
    uint64_t seed = 1234;
    const unsigned cases = pen_test_seeds(300, 30000);
    for (unsigned k = 0; k < 6; k++) {
        const struct jpeg_options o = {
            .space = k < 5 ? (enum jpeg_space)k : SPACE_YCC,
            .progressive = k == 5,
            .orientation = 1 + (int)k,
        };
        struct bytes b = jpeg_make(s, 33, 27, &o);
        for (unsigned i = 0; i < cases; i++) {
            uint8_t *bad = malloc(b.length);
            assert_non_null(bad);
            memcpy(bad, b.data, b.length);
            const unsigned flips = 1 + pen_test_random(&seed) % 4;
            for (unsigned f = 0; f < flips; f++)
                bad[pen_test_random(&seed) % b.length] =
                    (uint8_t)pen_test_random(&seed);
            // A claim of millions of pixels is fine but slow: skip those.
            const struct stk_bytes bytes = stk_bytes_memory(bad, b.length);
            struct stk_image_header h;
            if (stk_image_header_read(&bytes, &h, NULL) == PEN_OK &&
                (int64_t)h.width * h.height < 4000000) {
                struct picture p;
                struct pen_error err;
                uint32_t warnings = 0;
                if (decode(bad, b.length, true, &p, &warnings, &err) == PEN_OK)
                    picture_free(&p);
            }
            free(bad);
        }
        bytes_free(&b);
    }
    free(s);
}

PEN_TEST(a_progressive_jpeg_of_endless_scans_is_refused)
{
    // A scan that is repeated costs a pass over all coefficients each time.
    (void)test_state;
    const int w = 64, h = 64;
    uint8_t *s = calloc((size_t)w * (size_t)h, 1);
    assert_non_null(s);
    const struct jpeg_options o = { .space = SPACE_GREY,
                                    .progressive = true,
                                    .quality = 1 };
    struct bytes b = jpeg_make(s, w, h, &o);
    free(s);

    // The last scan, from its tables to the end marker, again and again.
    size_t sos = b.length - 2;
    while (b.data[sos] != 0xff || b.data[sos + 1] != 0xda)
        sos--;
    const size_t scan = b.length - 2 - sos;
    const size_t repeats = 500;
    uint8_t *bomb = malloc(b.length + scan * repeats);
    assert_non_null(bomb);
    memcpy(bomb, b.data, b.length - 2);
    size_t n = b.length - 2;
    for (size_t i = 0; i < repeats; i++, n += scan)
        memcpy(bomb + n, b.data + sos, scan);
    memcpy(bomb + n, "\xff\xd9", 2);

    struct picture p;
    struct pen_error err;
    uint32_t warnings = 0;
    assert_int_equal(decode(bomb, n + 2, true, &p, &warnings, &err),
                     PEN_E_LIMIT);
    assert_non_null(strstr(err.text, "scans"));
    free(bomb);
    bytes_free(&b);

    assert_int_equal(stk_jpeg_max_scans(1, 1), 500);
    assert_int_equal(stk_jpeg_max_scans(4096, 4096), 500);
    assert_int_equal(stk_jpeg_max_scans(8192, 8192), 128);
    assert_int_equal(stk_jpeg_max_scans(32000, 16000), 16);
}

PEN_TEST(libjpeg_out_of_memory_is_an_error)
{
    // libjpeg takes its limit in kilobytes from the environment.
    (void)test_state;
    uint8_t *s = random_samples(256 * 256 * 3, 8);
    struct bytes b =
        jpeg_make(s, 256, 256, &(struct jpeg_options){ .progressive = true });
    struct picture p;
    struct pen_error err;
    uint32_t warnings = 0;
    setenv("JPEGMEM", "1", 1);
    const enum pen_status st =
        decode(b.data, b.length, true, &p, &warnings, &err);
    unsetenv("JPEGMEM");
    assert_int_equal(st, PEN_E_NOMEM);
    bytes_free(&b);
    free(s);
}

// --- PNG, decoding ----------------------------------------------------------

// The sample of channel `c` at (x, y) of a packed row of any depth.
static unsigned png_sample(const uint8_t *row, int depth, int channels, int x,
                           int c)
{
    if (depth == 16) {
        const uint8_t *p = row + ((size_t)x * (size_t)channels + (size_t)c) * 2;
        return (unsigned)p[0] << 8 | p[1];
    }
    if (depth == 8)
        return row[x * channels + c];
    const int per_byte = 8 / depth;
    const int shift = (per_byte - 1 - x % per_byte) * depth;
    return (unsigned)(row[x / per_byte] >> shift) & ((1u << depth) - 1);
}

PEN_TEST(every_kind_of_png_becomes_its_eight_bit_picture)
{
    static const struct {
        int type, depth, channels;
    } kinds[] = {
        { PNG_COLOR_TYPE_GRAY, 1, 1 },
        { PNG_COLOR_TYPE_GRAY, 2, 1 },
        { PNG_COLOR_TYPE_GRAY, 4, 1 },
        { PNG_COLOR_TYPE_GRAY, 8, 1 },
        { PNG_COLOR_TYPE_GRAY, 16, 1 },
        { PNG_COLOR_TYPE_GRAY_ALPHA, 8, 2 },
        { PNG_COLOR_TYPE_GRAY_ALPHA, 16, 2 },
        { PNG_COLOR_TYPE_RGB, 8, 3 },
        { PNG_COLOR_TYPE_RGB, 16, 3 },
        { PNG_COLOR_TYPE_RGB_ALPHA, 8, 4 },
        { PNG_COLOR_TYPE_RGB_ALPHA, 16, 4 },
        { PNG_COLOR_TYPE_PALETTE, 1, 1 },
        { PNG_COLOR_TYPE_PALETTE, 2, 1 },
        { PNG_COLOR_TYPE_PALETTE, 4, 1 },
        { PNG_COLOR_TYPE_PALETTE, 8, 1 },
    };
    (void)test_state;
    for (size_t k = 0; k < sizeof(kinds) / sizeof(kinds[0]); k++) {
        for (size_t i = 0; i < 2 * SIZES; i++) {
            const int w = sizes[i / 2][0], h = sizes[i / 2][1];
            const int depth = kinds[k].depth, channels = kinds[k].channels;
            const size_t pitch =
                ((size_t)w * (size_t)(depth * channels) + 7) / 8;
            const bool alpha = kinds[k].type & PNG_COLOR_MASK_ALPHA;
            uint8_t *rows = random_samples(pitch * (size_t)h, i + k);
            const struct png_options o = { kinds[k].type, depth, .adam7 = i & 1,
                                           .trns = !alpha && i % 3 == 0 };
            struct bytes b = png_make(rows, w, h, &o);
            struct picture p = must_decode(&b, true);
            const bool palette = kinds[k].type == PNG_COLOR_TYPE_PALETTE;
            const bool grey = !(kinds[k].type & PNG_COLOR_MASK_COLOR);
            assert_int_equal(p.view.format, alpha || o.trns ? PEN_FMT_RGBA
                                            : palette       ? PEN_FMT_RGB
                                            : grey          ? PEN_FMT_MONO
                                                            : PEN_FMT_RGB);
            for (int y = 0; y < h; y++) {
                for (int x = 0; x < w; x++) {
                    const uint8_t *row = rows + pitch * (size_t)y;
                    const uint8_t *got = picture_at(&p, x, y);
                    unsigned want[4] = { 0, 0, 0, 255 };
                    const double most = (double)((1u << depth) - 1);
                    unsigned raw[4] = { 0 };
                    for (int c = 0; c < channels; c++)
                        raw[c] = png_sample(row, depth, channels, x, c);
                    if (palette) {
                        want[0] = (raw[0] * 7) & 255;
                        want[1] = 255 - raw[0];
                        want[2] = (raw[0] * 31) & 255;
                        if (o.trns)
                            want[3] = (raw[0] * 13) & 255;
                    } else {
                        for (int c = 0; c < 3; c++)
                            want[c] =
                                (unsigned)(raw[grey ? 0 : c] * 255.0 / most +
                                           0.5);
                        if (alpha)
                            want[3] =
                                (unsigned)(raw[channels - 1] * 255.0 / most +
                                           0.5);
                        if (o.trns)
                            want[3] = (grey ? raw[0] == 1
                                            : raw[0] == 1 && raw[1] == 2 &&
                                                  raw[2] == 3)
                                          ? 0
                                          : 255;
                    }
                    const int n = p.view.format == PEN_FMT_MONO  ? 1
                                  : p.view.format == PEN_FMT_RGB ? 3
                                                                 : 4;
                    for (int c = 0; c < n; c++) {
                        if (got[c] != want[c])
                            fail_msg("kind %zu %dx%d at %d,%d channel %d: "
                                     "%u for %u",
                                     k, w, h, x, y, c, got[c], want[c]);
                    }
                }
            }
            picture_free(&p);
            bytes_free(&b);
            free(rows);
        }
    }
}

PEN_TEST(every_cut_of_a_png_is_an_error)
{
    (void)test_state;
    uint8_t *s = random_samples(30 * 30 * 4, 3);
    for (int k = 0; k < 2; k++) {
        struct bytes b = png_make(
            s, 24, 20,
            &(struct png_options){ PNG_COLOR_TYPE_RGB_ALPHA, 8, .adam7 = k == 1,
                                   .orientation = k ? 6 : 0 });
        for (size_t n = 0; n < b.length; n++) {
            uint8_t *cut = malloc(n ? n : 1);
            assert_non_null(cut);
            memcpy(cut, b.data, n);
            struct picture p;
            struct pen_error err;
            uint32_t warnings = 0;
            assert_int_equal(decode(cut, n, true, &p, &warnings, &err),
                             PEN_E_DATA);
            free(cut);
        }
        bytes_free(&b);
    }
    free(s);
}

PEN_TEST(flipped_bytes_of_a_png_never_crash)
{
    (void)test_state;
    uint8_t *s = random_samples(40 * 40 * 8, 8);
    uint64_t seed = 99;
    const unsigned cases = pen_test_seeds(400, 40000);
    for (unsigned k = 0; k < 4; k++) {
        const struct png_options o = { k == 0   ? PNG_COLOR_TYPE_PALETTE
                                       : k == 1 ? PNG_COLOR_TYPE_GRAY
                                                : PNG_COLOR_TYPE_RGB_ALPHA,
                                       k == 3 ? 16 : 8, .adam7 = k & 1,
                                       .trns = k < 2,
                                       .orientation = (int)k * 2 };
        struct bytes b = png_make(s, 21, 17, &o);
        for (unsigned i = 0; i < cases; i++) {
            struct bytes bad = { malloc(b.length), b.length };
            assert_non_null(bad.data);
            memcpy(bad.data, b.data, b.length);
            const unsigned flips = 1 + pen_test_random(&seed) % 3;
            for (unsigned f = 0; f < flips; f++)
                bad.data[8 + pen_test_random(&seed) % (b.length - 8)] =
                    (uint8_t)pen_test_random(&seed);
            if (i & 1)
                png_fix(&bad);
            const struct stk_bytes bytes =
                stk_bytes_memory(bad.data, bad.length);
            struct stk_image_header h;
            if (stk_image_header_read(&bytes, &h, NULL) == PEN_OK &&
                (int64_t)h.width * h.height < 4000000) {
                struct picture p;
                struct pen_error err;
                uint32_t warnings = 0;
                if (decode(bad.data, bad.length, true, &p, &warnings, &err) ==
                    PEN_OK)
                    picture_free(&p);
            }
            bytes_free(&bad);
        }
        bytes_free(&b);
    }
    free(s);
}

PEN_TEST(png_survives_every_failing_allocation)
{
    (void)test_state;
    uint8_t *s = random_samples(64 * 64 * 4, 8);
    struct bytes b =
        png_make(s, 64, 64,
                 &(struct png_options){ PNG_COLOR_TYPE_RGB, 8, .adam7 = true });
    struct picture p = picture_new(PEN_FMT_RGB, 64, 64);
    struct picture want = must_decode(&b, true);
    const struct stk_bytes bytes = stk_bytes_memory(b.data, b.length);
    unsigned failures = 0;
    for (unsigned nth = 1;; nth++) {
        struct pen_error err = { 0 };
        struct stk_decode d = {
            .data = b.data, .bytes = b.length, .orientation = 1, .out = &p.view
        };
        assert_int_equal(stk_image_header_read(&bytes, &d.header, &err),
                         PEN_OK);
        pen_alloc_fail_arm(nth, false);
        const enum pen_status st = stk_png_decode(&d, &err);
        if (!pen_alloc_fail_disarm()) {
            assert_int_equal(st, PEN_OK);
            break;
        }
        failures++;
        // Some allocations are for what is no part of the picture.
        if (st != PEN_OK)
            assert_int_equal(st, PEN_E_NOMEM);
        else
            same_pixels(&p, &want);
    }
    assert_true(failures >= 4);

    void *to = malloc(100000);
    assert_non_null(to);
    failures = 0;
    for (unsigned nth = 1;; nth++) {
        struct pen_error err = { 0 };
        struct stk_encode e = {
            .in = &want.view, .compression = 6, .to = to, .room = 100000
        };
        pen_alloc_fail_arm(nth, false);
        const enum pen_status st = stk_png_encode(&e, &err);
        if (!pen_alloc_fail_disarm()) {
            assert_int_equal(st, PEN_OK);
            break;
        }
        failures++;
        assert_int_equal(st, PEN_E_NOMEM);
        assert_int_equal(err.status, PEN_E_NOMEM);
    }
    assert_true(failures >= 4);
    free(to);
    picture_free(&p);
    picture_free(&want);
    bytes_free(&b);
    free(s);
}

// --- encoding ---------------------------------------------------------------

// Encode into exactly `room` bytes.
static enum pen_status encode(const struct picture *p, bool jpeg, int quality,
                              enum stk_subsampling sub, size_t room,
                              struct bytes *out, struct pen_error *err)
{
    *err = (struct pen_error){ 0 };
    *out = (struct bytes){ malloc(room ? room : 1), 0 };
    assert_non_null(out->data);
    struct stk_encode e = { .in = &p->view,
                            .quality = quality,
                            .subsampling = sub,
                            .compression = 6,
                            .to = out->data,
                            .room = room };
    const enum pen_status st =
        jpeg ? stk_jpeg_encode(&e, err) : stk_png_encode(&e, err);
    out->length = e.bytes;
    if (st != PEN_OK) {
        assert_int_equal(err->status, st);
        bytes_free(out);
    }
    return st;
}

PEN_TEST(the_bound_of_a_jpeg_holds_for_noise_at_full_quality)
{
    (void)test_state;
    static const enum pen_format formats[] = { PEN_FMT_MONO, PEN_FMT_RGB,
                                               PEN_FMT_BGR };
    for (int side = 1; side <= 70; side += side < 20 ? 1 : 17) {
        for (int f = 0; f < 3; f++) {
            for (int sub = STK_SUB_420; sub <= STK_SUB_444; sub++) {
                struct picture p = picture_new(formats[f], side, 71 - side);
                picture_noise(&p, (uint64_t)side);
                size_t bound = 0;
                assert_true(stk_jpeg_bound(side, 71 - side, formats[f],
                                           (enum stk_subsampling)sub, &bound));
                struct bytes b;
                struct pen_error err;
                if (encode(&p, true, 100, (enum stk_subsampling)sub, bound, &b,
                           &err) != PEN_OK)
                    fail_msg("%dx%d: %s", side, 71 - side, err.text);
                bytes_free(&b);
                picture_free(&p);
            }
        }
    }
}

PEN_TEST(too_little_room_is_an_error_and_no_overrun)
{
    (void)test_state;
    struct picture p = picture_new(PEN_FMT_RGB, 61, 43);
    picture_paint(&p, 1);
    for (int jpeg = 0; jpeg < 2; jpeg++) {
        struct bytes b;
        struct pen_error err;
        assert_int_equal(encode(&p, jpeg, 90, STK_SUB_420, 100000, &b, &err),
                         PEN_OK);
        const size_t length = b.length;
        bytes_free(&b);
        for (size_t room = 0; room < length; room += room < 200 ? 1 : 97)
            assert_int_equal(encode(&p, jpeg, 90, STK_SUB_420, room, &b, &err),
                             PEN_E_LIMIT);
        assert_int_equal(
            encode(&p, jpeg, 90, STK_SUB_420, length - 1, &b, &err),
            PEN_E_LIMIT);
        assert_int_equal(
            encode(&p, jpeg, 90, STK_SUB_420, length + (size_t)jpeg, &b, &err),
            PEN_OK);
        bytes_free(&b);
    }
    picture_free(&p);
}

PEN_TEST(quality_reaches_the_quantisation_tables)
{
    // libjpeg's scaling of the first luma step, 16: by 5000/q below 50, by
    // 200 - 2q above, in per cent.
    (void)test_state;
    struct picture p = picture_new(PEN_FMT_RGB, 64, 64);
    picture_paint(&p, 1);
    size_t before = 0;
    for (int q = 1; q <= 100; q += 11) {
        struct bytes b;
        struct pen_error err;
        assert_int_equal(encode(&p, true, q, STK_SUB_420, 100000, &b, &err),
                         PEN_OK);
        size_t dqt = 0;
        while (b.data[dqt] != 0xff || b.data[dqt + 1] != 0xdb)
            dqt++;
        const long scale = q < 50 ? 5000 / q : 200 - 2 * q;
        long step = (16 * scale + 50) / 100;
        step = step < 1 ? 1 : step > 255 ? 255 : step;
        assert_int_equal(b.data[dqt + 5], step);
        assert_true(b.length > before);
        before = b.length;
        bytes_free(&b);
    }
    picture_free(&p);
}

PEN_TEST(jpeg_round_trips_close_to_the_picture)
{
    static const enum pen_format formats[] = { PEN_FMT_MONO, PEN_FMT_RGB,
                                               PEN_FMT_BGR };
    (void)test_state;
    for (size_t i = 0; i < SIZES; i++) {
        for (int f = 0; f < 3; f++) {
            const int w = sizes[i][0], h = sizes[i][1];
            struct picture p = picture_new(formats[f], w, h);
            const int px = f ? 3 : 1;
            uint8_t *s = smooth_samples(w, h, px);
            for (int y = 0; y < h; y++)
                memcpy(picture_at(&p, 0, y), s + (size_t)(y * w * px),
                       (size_t)(w * px));
            struct bytes b;
            struct pen_error err;
            assert_int_equal(
                encode(&p, true, 100, STK_SUB_444, 1 << 20, &b, &err), PEN_OK);
            struct picture q = must_decode(&b, true);
            assert_int_equal(q.view.format, f ? PEN_FMT_RGB : PEN_FMT_MONO);
            for (int y = 0; y < h; y++) {
                for (int x = 0; x < w; x++) {
                    for (int c = 0; c < px; c++) {
                        const int from = f == 2 ? 2 - c : c;
                        const int d = picture_at(&q, x, y)[c] -
                                      picture_at(&p, x, y)[from];
                        assert_in_range(d + 4, 0, 8);
                    }
                }
            }
            picture_free(&q);
            bytes_free(&b);
            picture_free(&p);
            free(s);
        }
    }
}

PEN_TEST(png_round_trips_exactly)
{
    static const enum pen_format formats[] = { PEN_FMT_MONO, PEN_FMT_RGB,
                                               PEN_FMT_BGR, PEN_FMT_RGBA,
                                               PEN_FMT_BGRA };
    (void)test_state;
    for (size_t i = 0; i < SIZES; i++) {
        for (int f = 0; f < 5; f++) {
            const int w = sizes[i][0], h = sizes[i][1];
            struct picture p = picture_new(formats[f], w, h);
            if (i & 1)
                picture_noise(&p, i);
            else
                picture_paint(&p, i);
            size_t bound = 0;
            assert_true(stk_png_bound(w, h, formats[f], &bound));
            struct bytes b;
            struct pen_error err;
            assert_int_equal(encode(&p, false, 0, STK_SUB_420, bound, &b, &err),
                             PEN_OK);
            struct picture q = must_decode(&b, true);
            const int px = f == 0 ? 1 : f < 3 ? 3 : 4;
            const bool swap = f == 2 || f == 4;
            for (int y = 0; y < h; y++) {
                for (int x = 0; x < w; x++) {
                    for (int c = 0; c < px; c++)
                        assert_int_equal(
                            picture_at(&q, x, y)[c],
                            picture_at(&p, x, y)[swap && c < 3 ? 2 - c : c]);
                }
            }
            picture_free(&q);
            bytes_free(&b);
            picture_free(&p);
        }
    }
}

PEN_TEST(the_bound_of_a_png_holds_uncompressed)
{
    (void)test_state;
    for (int level = 0; level <= 9; level++) {
        for (int side = 1; side < 400; side = side * 2 + 1) {
            struct picture p = picture_new(PEN_FMT_RGBA, side, 410 - side);
            picture_noise(&p, (uint64_t)side);
            size_t bound = 0;
            assert_true(stk_png_bound(side, 410 - side, PEN_FMT_RGBA, &bound));
            void *to = malloc(bound);
            assert_non_null(to);
            struct pen_error err = { 0 };
            struct stk_encode e = {
                .in = &p.view, .compression = level, .to = to, .room = bound
            };
            assert_int_equal(stk_png_encode(&e, &err), PEN_OK);
            free(to);
            picture_free(&p);
        }
    }
}

PEN_TEST(formats_that_a_file_cannot_hold_are_refused)
{
    (void)test_state;
    for (int f = PEN_FMT_MONO; f < PEN_FMT_COUNT; f++) {
        if (!pen_format_info((enum pen_format)f))
            continue;
        struct picture p = picture_new((enum pen_format)f, 8, 8);
        picture_paint(&p, 1);
        struct bytes b;
        struct pen_error err;
        const bool jpeg =
            f == PEN_FMT_MONO || f == PEN_FMT_RGB || f == PEN_FMT_BGR;
        const bool png = jpeg || f == PEN_FMT_RGBA || f == PEN_FMT_BGRA;
        enum pen_status st = encode(&p, true, 90, STK_SUB_420, 10000, &b, &err);
        assert_int_equal(st, jpeg ? PEN_OK : PEN_E_UNSUPPORTED);
        if (st == PEN_OK)
            bytes_free(&b);
        st = encode(&p, false, 90, STK_SUB_420, 10000, &b, &err);
        assert_int_equal(st, png ? PEN_OK : PEN_E_UNSUPPORTED);
        if (st == PEN_OK)
            bytes_free(&b);
        picture_free(&p);
    }
}

// --- what the libraries ask for ---------------------------------------------

PEN_TEST(requests_for_memory_are_counted)
{
    (void)test_state;
    struct picture p = picture_new(PEN_FMT_RGB, 64, 48);
    picture_paint(&p, 1);
    void *to = malloc(100000);
    assert_non_null(to);
    for (int jpeg = 0; jpeg < 2; jpeg++) {
        struct pen_error err = { 0 };
        struct stk_encode e = { .in = &p.view,
                                .quality = 90,
                                .compression = 6,
                                .to = to,
                                .room = 100000 };
        pen_alloc_fail_arm(0, false);
        assert_int_equal(jpeg ? stk_jpeg_encode(&e, &err)
                              : stk_png_encode(&e, &err),
                         PEN_OK);
        // libpng's go through our malloc, libjpeg's through its own.
        pen_alloc_fail_disarm();
        assert_int_equal(pen_alloc_fail_count(), jpeg ? 0 : e.allocations);
        assert_true(e.allocations > 4);

        struct stk_decode d = {
            .data = to, .bytes = e.bytes, .orientation = 1, .out = &p.view
        };
        const struct stk_bytes bytes = stk_bytes_memory(to, e.bytes);
        assert_int_equal(stk_image_header_read(&bytes, &d.header, &err),
                         PEN_OK);
        pen_alloc_fail_arm(0, false);
        assert_int_equal(jpeg ? stk_jpeg_decode(&d, &err)
                              : stk_png_decode(&d, &err),
                         PEN_OK);
        pen_alloc_fail_disarm();
        assert_int_equal(pen_alloc_fail_count(), jpeg ? 0 : d.allocations);
        assert_true(d.allocations > 4);

        // Also those of a picture that fails.
        const uint64_t whole = d.allocations;
        d.allocations = 0;
        d.bytes = e.bytes / 2;
        assert_int_equal(jpeg ? stk_jpeg_decode(&d, &err)
                              : stk_png_decode(&d, &err),
                         PEN_E_DATA);
        assert_true(d.allocations > 4 && d.allocations <= whole);
    }
    // Several scans: what a manager gets for whole pictures is seen as well.
    uint8_t *samples = random_samples(64 * 48 * 3, 3);
    struct bytes one = jpeg_make(samples, 64, 48, &(struct jpeg_options){ 0 });
    struct bytes many = jpeg_make(
        samples, 64, 48, &(struct jpeg_options){ .progressive = true });
    uint64_t asked[2] = { 0 };
    for (int i = 0; i < 2; i++) {
        const struct bytes *b = i ? &many : &one;
        struct pen_error err = { 0 };
        struct stk_decode d = { .data = b->data,
                                .bytes = b->length,
                                .orientation = 1,
                                .out = &p.view };
        const struct stk_bytes bytes = stk_bytes_memory(b->data, b->length);
        assert_int_equal(stk_image_header_read(&bytes, &d.header, &err),
                         PEN_OK);
        assert_int_equal(stk_jpeg_decode(&d, &err), PEN_OK);
        asked[i] = d.allocations;
    }
    assert_true(asked[1] > asked[0]);
    bytes_free(&one);
    bytes_free(&many);
    free(samples);
    free(to);
    picture_free(&p);
}

PEN_TEST(real_photos_are_what_libjpeg_makes_of_them)
{
    static const char *const names[] = { "faces.jpg", "frame.jpg",
                                         "img_864x576.jpg",
                                         "color_yuv420_640x360.jpg",
                                         "mono_1920x960.jpg" };
    (void)test_state;
    for (size_t i = 0; i < 5; i++) {
        struct bytes b;
        b.data = pen_test_read_file(pen_test_data(names[i]), &b.length);
        struct picture got = must_decode(&b, true);
        struct picture want = reference(&b, i == 4);
        same_pixels(&got, &want);
        picture_free(&got);
        picture_free(&want);
        bytes_free(&b);
    }
}

PEN_TEST_MAIN(
    PEN_CASE(jpeg_gives_what_libjpeg_gives_for_every_sampling_and_size),
    PEN_CASE(rgb_coded_jpeg_stays_rgb), PEN_CASE(cmyk_and_ycck_become_rgb),
    PEN_CASE(cmyk_is_rounded_exactly),
    PEN_CASE(jpeg_without_huffman_tables_uses_the_standard_ones),
    PEN_CASE(all_eight_orientations_are_applied_to_jpeg),
    PEN_CASE(all_eight_orientations_are_applied_to_png),
    PEN_CASE(every_cut_of_a_jpeg_is_an_error_or_the_whole_picture),
    PEN_CASE(a_cut_jpeg_with_an_end_marker_put_on_is_an_error),
    PEN_CASE(harmless_damage_is_counted_and_the_picture_used),
    PEN_CASE(flipped_bytes_of_a_jpeg_never_crash),
    PEN_CASE(a_progressive_jpeg_of_endless_scans_is_refused),
    PEN_CASE(libjpeg_out_of_memory_is_an_error),
    PEN_CASE(every_kind_of_png_becomes_its_eight_bit_picture),
    PEN_CASE(every_cut_of_a_png_is_an_error),
    PEN_CASE(flipped_bytes_of_a_png_never_crash),
    PEN_CASE(png_survives_every_failing_allocation),
    PEN_CASE(the_bound_of_a_jpeg_holds_for_noise_at_full_quality),
    PEN_CASE(too_little_room_is_an_error_and_no_overrun),
    PEN_CASE(quality_reaches_the_quantisation_tables),
    PEN_CASE(jpeg_round_trips_close_to_the_picture),
    PEN_CASE(png_round_trips_exactly),
    PEN_CASE(the_bound_of_a_png_holds_uncompressed),
    PEN_CASE(formats_that_a_file_cannot_hold_are_refused),
    PEN_CASE(requests_for_memory_are_counted),
    PEN_CASE(real_photos_are_what_libjpeg_makes_of_them))
