#include <stdio.h>

#include <jpeglib.h>
#include <png.h>

#include "pen_test.h"
#include "pictures.h"

void bytes_free(struct bytes *b)
{
    free(b->data);
    *b = (struct bytes){ 0 };
}

// --- pictures ---------------------------------------------------------------

enum { GAP = 0xee };

struct picture picture_new(enum pen_format format, int32_t width,
                           int32_t height)
{
    struct picture p = { .caps = { .kind = PEN_KIND_RAW_IMAGE,
                                   .format = format,
                                   .width = width,
                                   .height = height } };
    assert_int_equal(
        pen_layout_compute(&p.caps, PEN_PITCH_ALIGN, &p.layout, NULL), PEN_OK);
    p.memory = malloc(p.layout.bytes);
    assert_non_null(p.memory);
    memset(p.memory, GAP, p.layout.bytes);
    p.view = (struct pen_view){
        .mem = PEN_MEM_HOST,
        .format = format,
        .width = width,
        .height = height,
        .planes = p.layout.planes,
        .bytes = p.layout.bytes,
    };
    for (uint32_t i = 0; i < p.layout.planes; i++) {
        uint8_t *host = p.memory + p.layout.plane[i].offset;
        p.view.plane[i] = (struct pen_plane){
            .host = host,
            .address = (uint64_t)(uintptr_t)host,
            .pitch = p.layout.plane[i].pitch,
            .row_bytes = p.layout.plane[i].row_bytes,
            .rows = p.layout.plane[i].rows,
        };
    }
    return p;
}

void picture_free(struct picture *p)
{
    free(p->memory);
    *p = (struct picture){ 0 };
}

uint8_t *picture_at(const struct picture *p, int32_t x, int32_t y)
{
    const struct pen_plane *plane = &p->view.plane[0];
    const size_t px = plane->row_bytes / (size_t)p->view.width;
    return (uint8_t *)plane->host + (size_t)y * plane->pitch + (size_t)x * px;
}

void picture_paint(struct picture *p, uint64_t seed)
{
    for (uint32_t i = 0; i < p->view.planes; i++) {
        const struct pen_plane *plane = &p->view.plane[i];
        for (int32_t y = 0; y < plane->rows; y++) {
            uint8_t *row = (uint8_t *)plane->host + (size_t)y * plane->pitch;
            for (size_t x = 0; x < plane->row_bytes; x++) {
                const uint32_t wave = (uint32_t)(x * x / 37 + (size_t)y * 3);
                const uint32_t disc =
                    (x % 50 - 25) * (x % 50 - 25) +
                                (size_t)((y % 40 - 20) * (y % 40 - 20)) <
                            200
                        ? 90
                        : 0;
                row[x] = (uint8_t)(((wave >> 1) & 127) + disc +
                                   pen_test_random(&seed) % 8);
            }
        }
    }
}

void picture_noise(struct picture *p, uint64_t seed)
{
    for (uint32_t i = 0; i < p->view.planes; i++) {
        const struct pen_plane *plane = &p->view.plane[i];
        for (int32_t y = 0; y < plane->rows; y++) {
            uint8_t *row = (uint8_t *)plane->host + (size_t)y * plane->pitch;
            for (size_t x = 0; x < plane->row_bytes; x++)
                row[x] = (uint8_t)pen_test_random(&seed);
        }
    }
}

void picture_check_gaps(const struct picture *p)
{
    for (uint32_t i = 0; i < p->view.planes; i++) {
        const struct pen_plane *plane = &p->view.plane[i];
        for (int32_t y = 0; y < plane->rows; y++) {
            const uint8_t *row =
                (const uint8_t *)plane->host + (size_t)y * plane->pitch;
            for (size_t x = plane->row_bytes; x < plane->pitch; x++)
                assert_int_equal(row[x], GAP);
        }
    }
}

// --- JPEG -------------------------------------------------------------------

size_t exif_make(uint8_t *to, int orientation, bool big)
{
    static const uint8_t little_endian[26] = {
        'I',  'I', 42, 0, 8, 0, 0, 0,  // header, IFD at 8
        1,    0,                       // one entry
        0x12, 1,   3,  0, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0
    };
    static const uint8_t big_endian[26] = { 'M', 'M', 0,    42, 0, 0, 0, 8, 0,
                                            1,   1,   0x12, 0,  3, 0, 0, 0, 1,
                                            0,   0,   0,    0,  0, 0, 0, 0 };
    memcpy(to, big ? big_endian : little_endian, 26);
    to[big ? 19 : 18] = (uint8_t)orientation;
    return 26;
}

struct bytes jpeg_make(const uint8_t *samples, int width, int height,
                       const struct jpeg_options *o)
{
    struct jpeg_compress_struct c;
    struct jpeg_error_mgr errors;
    unsigned char *out = NULL;
    unsigned long length = 0;

    memset(&c, 0, sizeof(c));
    c.err = jpeg_std_error(&errors);
    jpeg_create_compress(&c);
    jpeg_mem_dest(&c, &out, &length);
    c.image_width = (JDIMENSION)width;
    c.image_height = (JDIMENSION)height;
    const bool four = o->space == SPACE_CMYK || o->space == SPACE_YCCK;
    c.input_components = o->space == SPACE_GREY ? 1 : four ? 4 : 3;
    c.in_color_space = o->space == SPACE_GREY ? JCS_GRAYSCALE
                       : four                 ? JCS_CMYK
                                              : JCS_RGB;
    jpeg_set_defaults(&c);
    if (o->space == SPACE_RGB)
        jpeg_set_colorspace(&c, JCS_RGB);
    if (o->space == SPACE_YCCK)
        jpeg_set_colorspace(&c, JCS_YCCK);
    if (o->space == SPACE_CMYK)
        jpeg_set_colorspace(&c, JCS_CMYK);
    if (o->no_adobe)
        c.write_Adobe_marker = FALSE;
    jpeg_set_quality(&c, o->quality ? o->quality : 90, TRUE);
    if (o->space == SPACE_YCC || o->space == SPACE_YCCK) {
        c.comp_info[0].h_samp_factor = o->h ? o->h : 2;
        c.comp_info[0].v_samp_factor = o->v ? o->v : 2;
        if (four) {
            c.comp_info[3].h_samp_factor = o->h ? o->h : 2;
            c.comp_info[3].v_samp_factor = o->v ? o->v : 2;
        }
    }
    static const jpeg_scan_info separate[3] = { { 1, { 0 }, 0, 63, 0, 0 },
                                                { 1, { 1 }, 0, 63, 0, 0 },
                                                { 1, { 2 }, 0, 63, 0, 0 } };
    if (o->progressive)
        jpeg_simple_progression(&c);
    if (o->separate_scans) {
        c.scan_info = separate;
        c.num_scans = 3;
    }
    c.arith_code = o->arithmetic;
    c.restart_interval = (unsigned)o->restart;
    jpeg_start_compress(&c, TRUE);
    if (o->orientation) {
        uint8_t exif[64] = "Exif\0";
        const size_t n = exif_make(exif + 6, o->orientation, o->exif_big);
        jpeg_write_marker(&c, JPEG_APP0 + 1, exif, (unsigned)(6 + n));
    }
    while (c.next_scanline < c.image_height) {
        const size_t row = (size_t)width * (size_t)c.input_components;
        JSAMPROW line = (JSAMPROW)(samples + row * c.next_scanline);
        jpeg_write_scanlines(&c, &line, 1);
    }
    jpeg_finish_compress(&c);
    jpeg_destroy_compress(&c);

    // A copy of exactly that length, so that a read past it is found.
    struct bytes b = { malloc(length), length };
    assert_non_null(b.data);
    memcpy(b.data, out, length);
    free(out);
    return b;
}

struct bytes jpeg_without(const struct bytes *from, uint8_t marker)
{
    struct bytes b = { malloc(from->length), 0 };
    assert_non_null(b.data);
    size_t at = 2;
    memcpy(b.data, from->data, 2);
    b.length = 2;
    while (at + 4 <= from->length) {
        const uint8_t *m = from->data + at;
        assert_int_equal(m[0], 0xff);
        if (m[1] == 0xda)
            break;
        const size_t length = 2 + ((size_t)m[2] << 8 | m[3]);
        if (m[1] != marker) {
            memcpy(b.data + b.length, m, length);
            b.length += length;
        }
        at += length;
    }
    memcpy(b.data + b.length, from->data + at, from->length - at);
    b.length += from->length - at;
    return b;
}

struct bytes jpeg_with(const struct bytes *from, uint8_t marker,
                       const void *payload, size_t length)
{
    struct bytes b = { malloc(from->length + length + 4),
                       from->length + length + 4 };
    assert_non_null(b.data);
    const uint8_t head[6] = { 0xff,
                              0xd8,
                              0xff,
                              marker,
                              (uint8_t)((length + 2) >> 8),
                              (uint8_t)(length + 2) };
    memcpy(b.data, head, 6);
    memcpy(b.data + 6, payload, length);
    memcpy(b.data + 6 + length, from->data + 2, from->length - 2);
    return b;
}

// --- PNG --------------------------------------------------------------------

static void png_append(png_structp png, png_bytep from, size_t n)
{
    struct bytes *b = png_get_io_ptr(png);
    uint8_t *more = realloc(b->data, b->length + n);
    assert_non_null(more);
    memcpy(more + b->length, from, n);
    b->data = more;
    b->length += n;
}

static void png_flush_nothing(png_structp png)
{
    (void)png;
}

struct bytes png_make(const uint8_t *rows, int width, int height,
                      const struct png_options *o)
{
    struct bytes b = { 0 };
    png_structp png =
        png_create_write_struct(PNG_LIBPNG_VER_STRING, NULL, NULL, NULL);
    png_infop info = png_create_info_struct(png);
    assert_non_null(info);
    if (setjmp(png_jmpbuf(png)))
        fail_msg("libpng refused to write");
    png_set_write_fn(png, &b, png_append, png_flush_nothing);
    png_set_IHDR(png, info, (uint32_t)width, (uint32_t)height, o->depth,
                 o->color_type,
                 o->adam7 ? PNG_INTERLACE_ADAM7 : PNG_INTERLACE_NONE,
                 PNG_COMPRESSION_TYPE_DEFAULT, PNG_FILTER_TYPE_DEFAULT);
    if (o->color_type == PNG_COLOR_TYPE_PALETTE) {
        png_color palette[256];
        png_byte alpha[256];
        const int count = 1 << o->depth;
        for (int i = 0; i < count; i++) {
            palette[i] = (png_color){ (png_byte)(i * 7), (png_byte)(255 - i),
                                      (png_byte)(i * 31) };
            alpha[i] = (png_byte)(i * 13);
        }
        png_set_PLTE(png, info, palette, count);
        if (o->trns)
            png_set_tRNS(png, info, alpha, count, NULL);
    } else if (o->trns) {
        const png_color_16 key = { .red = 1, .green = 2, .blue = 3, .gray = 1 };
        png_set_tRNS(png, info, NULL, 0, &key);
    }
    if (o->orientation) {
        uint8_t exif[26];
        const size_t n = exif_make(exif, o->orientation, true);
        png_set_eXIf_1(png, info, (png_uint_32)n, exif);
    }
    png_write_info(png, info);
    const size_t pitch = png_get_rowbytes(png, info);
    const int passes = png_set_interlace_handling(png);
    for (int pass = 0; pass < passes; pass++) {
        for (int y = 0; y < height; y++)
            png_write_row(png, rows + pitch * (size_t)y);
    }
    png_write_end(png, NULL);
    png_destroy_write_struct(&png, &info);
    return b;
}

static uint32_t crc_of(const uint8_t *p, size_t n)
{
    uint32_t c = 0xffffffffu;
    for (size_t i = 0; i < n; i++) {
        c ^= p[i];
        for (int k = 0; k < 8; k++)
            c = c & 1 ? 0xedb88320u ^ (c >> 1) : c >> 1;
    }
    return ~c;
}

void png_fix(struct bytes *png)
{
    size_t at = 8;
    while (at + 12 <= png->length) {
        uint8_t *c = png->data + at;
        const size_t n =
            (size_t)c[0] << 24 | (size_t)c[1] << 16 | (size_t)c[2] << 8 | c[3];
        if (n > png->length - at - 12)
            return;
        const uint32_t crc = crc_of(c + 4, n + 4);
        c[8 + n] = (uint8_t)(crc >> 24);
        c[9 + n] = (uint8_t)(crc >> 16);
        c[10 + n] = (uint8_t)(crc >> 8);
        c[11 + n] = (uint8_t)crc;
        at += 12 + n;
    }
}
