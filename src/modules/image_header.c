#include <string.h>
#include <unistd.h>

#include "../graph/plan.h"
#include "image_header.h"

// --- byte sources -----------------------------------------------------------

static size_t read_memory(const struct stk_bytes *b, uint64_t offset, void *to,
                          size_t n)
{
    if (offset >= b->length)
        return 0;
    const size_t left = b->length - (size_t)offset;
    const size_t take = n < left ? n : left;
    memcpy(to, b->data + offset, take);
    return take;
}

static size_t read_file(const struct stk_bytes *b, uint64_t offset, void *to,
                        size_t n)
{
    size_t done = 0;
    while (done < n && offset + done <= INT64_MAX) {
        const ssize_t got =
            pread(b->fd, (char *)to + done, n - done, (off_t)(offset + done));
        if (got <= 0)
            break;
        done += (size_t)got;
    }
    return done;
}

struct stk_bytes stk_bytes_memory(const void *data, size_t length)
{
    return (struct stk_bytes){
        .read = read_memory, .data = data, .length = length, .fd = -1
    };
}

struct stk_bytes stk_bytes_file(int fd)
{
    return (struct stk_bytes){ .read = read_file, .fd = fd };
}

static bool get(const struct stk_bytes *b, uint64_t offset, void *to, size_t n)
{
    return b->read(b, offset, to, n) == n;
}

static uint32_t be16(const uint8_t *p)
{
    return (uint32_t)p[0] << 8 | p[1];
}

static uint32_t be32(const uint8_t *p)
{
    return be16(p) << 16 | be16(p + 2);
}

// --- what it looks like -----------------------------------------------------

static const uint8_t png_signature[8] = { 0x89, 'P',  'N',  'G',
                                          '\r', '\n', 0x1a, '\n' };

enum pen_codec stk_image_codec(const void *head, size_t n)
{
    const uint8_t *p = head;
    if (n >= 3 && p[0] == 0xff && p[1] == 0xd8 && p[2] == 0xff)
        return PEN_CODEC_JPEG;
    if (n >= 8 && memcmp(p, png_signature, 8) == 0)
        return PEN_CODEC_PNG;
    return PEN_CODEC_UNKNOWN;
}

// Text: no control characters but white space, and mostly ASCII.
static bool is_text(const uint8_t *p, size_t n)
{
    size_t high = 0;
    for (size_t i = 0; i < n; i++) {
        if (p[i] == 0 || p[i] == 0x7f ||
            (p[i] < 0x20 && !strchr("\t\n\r\f\033", p[i])))
            return false;
        high += p[i] >= 0x80;
    }
    return n > 0 && high <= n / 2;
}

// "a GIF picture", "a text", ...: what bytes look like that are no picture.
static const char *looks_like(const void *head, size_t n)
{
    static const struct {
        size_t offset, length;
        const char *bytes, *what;
    } known[] = {
        { 0, 3, "\xff\xd8\xff", "a JPEG picture" },
        { 0, 8, "\x89PNG\r\n\x1a\n", "a PNG picture" },
        { 0, 4, "GIF8", "a GIF picture" },
        { 8, 4, "WEBP", "a WebP picture" },
        { 0, 2, "BM", "a BMP picture" },
        { 0, 4, "II*\0", "a TIFF or raw camera picture" },
        { 0, 4, "MM\0*", "a TIFF or raw camera picture" },
        { 4, 8, "ftypavif", "an AVIF picture" },
        { 4, 8, "ftypheic", "a HEIC picture" },
        { 4, 8, "ftypmif1", "a HEIF picture" },
        { 4, 4, "ftyp", "an MP4 or QuickTime file" },
        { 0, 12, "\0\0\0\x0cjP  \r\n\x87\n", "a JPEG 2000 picture" },
        { 0, 2, "\xff\x0a", "a JPEG XL picture" },
        { 0, 5, "%PDF-", "a PDF document" },
        { 0, 4, "PK\3\4", "a ZIP archive" },
        { 0, 2, "\x1f\x8b", "a gzip archive" },
        { 0, 4,
          "\x7f"
          "ELF",
          "a program" },
        { 0, 23, "version https://git-lfs", "a Git LFS pointer, not the file" },
        { 0, 14, "<!DOCTYPE html", "an HTML page" },
        { 0, 14, "<!doctype html", "an HTML page" },
        { 0, 5, "<html", "an HTML page" },
        { 0, 4, "<svg", "an SVG picture" },
        { 0, 5, "<?xml", "an XML file" },
    };
    const uint8_t *p = head;

    if (n == 0)
        return "an empty file";
    for (size_t i = 0; i < sizeof(known) / sizeof(known[0]); i++) {
        if (n >= known[i].offset + known[i].length &&
            memcmp(p + known[i].offset, known[i].bytes, known[i].length) == 0)
            return known[i].what;
    }
    if (is_text(p, n))
        return "a text";
    for (size_t i = 0; i < n; i++) {
        if (p[i] != 0)
            return "unknown data";
    }
    return "a file of zeros";
}

bool stk_orientation_turns(int32_t orientation)
{
    return orientation >= 5 && orientation <= 8;
}

// --- Exif -------------------------------------------------------------------

enum {
    EXIF_ORIENTATION = 0x0112,
    EXIF_BYTE = 1,
    EXIF_SHORT = 3,
    EXIF_LONG = 4
};

// Orientation in the TIFF structure of `length` bytes at `start`; 1 when
// there is none or it makes no sense: a wrong tag must not lose a picture.
static int32_t exif_orientation(const struct stk_bytes *b, uint64_t start,
                                uint64_t length)
{
    uint8_t h[8];
    if (length < 8 || !get(b, start, h, 8))
        return 1;
    const bool little = h[0] == 'I' && h[1] == 'I';
    if (!little && !(h[0] == 'M' && h[1] == 'M'))
        return 1;

#define U16(p) (little ? ((uint32_t)(p)[1] << 8 | (p)[0]) : be16(p))
#define U32(p)                                                                 \
    (little ? ((uint32_t)(p)[3] << 24 | (uint32_t)(p)[2] << 16 |               \
               (uint32_t)(p)[1] << 8 | (p)[0])                                 \
            : be32(p))
    const uint64_t ifd = U32(h + 4);
    if (U16(h + 2) != 42 || ifd + 2 > length || !get(b, start + ifd, h, 2))
        return 1;

    const uint32_t count = U16(h);
    for (uint32_t i = 0; i < count; i++) {
        const uint64_t at = ifd + 2 + 12 * (uint64_t)i;
        uint8_t e[12];
        if (at + 12 > length || !get(b, start + at, e, 12))
            return 1;
        if (U16(e) != EXIF_ORIENTATION)
            continue;
        const uint32_t type = U16(e + 2);
        const uint32_t value = type == EXIF_SHORT  ? U16(e + 8)
                               : type == EXIF_LONG ? U32(e + 8)
                               : type == EXIF_BYTE ? e[8]
                                                   : 0;
        return value >= 1 && value <= 8 ? (int32_t)value : 1;
    }
    return 1;
#undef U16
#undef U32
}

// --- JPEG -------------------------------------------------------------------

static enum pen_status jpeg_frame_header(const uint8_t *s, uint32_t marker,
                                         struct stk_image_header *out,
                                         struct pen_error *err)
{
    // Baseline, extended, progressive; the last two also arithmetic.
    if (marker != 0xc0 && marker != 0xc1 && marker != 0xc2 && marker != 0xc9 &&
        marker != 0xca)
        return pen_error_set(err, PEN_E_UNSUPPORTED, 0, "",
                             "lossless or hierarchical JPEG (SOF%u) is not "
                             "decoded",
                             marker - 0xc0);
    out->depth = s[0];
    out->height = (int32_t)be16(s + 1);
    out->width = (int32_t)be16(s + 3);
    out->channels = s[5];
    out->progressive = marker == 0xc2 || marker == 0xca;
    out->arithmetic = marker >= 0xc9;
    if (out->depth != 8)
        return pen_error_set(err, PEN_E_UNSUPPORTED, 0, "",
                             "JPEG of %d bits a sample; only 8 are decoded",
                             out->depth);
    if (!out->width || !out->height)
        return pen_error_set(err, PEN_E_DATA, 0, "",
                             "JPEG header gives the size %dx%d", out->width,
                             out->height);
    switch (out->channels) {
    case 1:
        out->format = PEN_FMT_MONO;
        return PEN_OK;
    case 3:
    case 4:
        out->format = PEN_FMT_RGB;
        return PEN_OK;
    default:
        return pen_error_set(err, PEN_E_UNSUPPORTED, 0, "",
                             "JPEG of %d components; 1, 3 or 4 are decoded",
                             out->channels);
    }
}

static enum pen_status jpeg_header(const struct stk_bytes *b,
                                   struct stk_image_header *out,
                                   struct pen_error *err)
{
    uint64_t at = 2;

    for (;;) {
        // To the next marker: libjpeg skips what lies between, so do we, but
        // not for ever.
        uint8_t m[2];
        unsigned skipped = 0;
        for (;;) {
            if (!get(b, at, m, 2))
                return pen_error_set(err, PEN_E_DATA, 0, "",
                                     "JPEG ends within its header, after %llu "
                                     "bytes",
                                     (unsigned long long)at);
            if (m[0] == 0xff && m[1] != 0xff && m[1] != 0)
                break;
            at++;
            if (++skipped > 1 << 20)
                return pen_error_set(err, PEN_E_DATA, 0, "",
                                     "no JPEG marker where one must stand");
        }
        const uint32_t marker = m[1];
        at += 2;
        if (marker == 0x01 || (marker >= 0xd0 && marker <= 0xd8))
            continue;
        if (marker == 0xd9 || marker == 0xda)
            return pen_error_set(err, PEN_E_DATA, 0, "",
                                 "JPEG without a frame header");

        uint8_t s[14];
        const size_t have = b->read(b, at, s, sizeof(s));
        const uint32_t length = have < 2 ? 0 : be16(s);
        if (length < 2)
            return pen_error_set(err, PEN_E_DATA, 0, "JPEG",
                                 have < 2 ? "JPEG ends within its header"
                                          : "damaged JPEG marker segment");
        if (marker == 0xe1 && length >= 8 && have >= 8 &&
            memcmp(s + 2, "Exif\0", 6) == 0 && out->orientation == 1)
            out->orientation = exif_orientation(b, at + 8, length - 8);
        if (marker >= 0xc0 && marker <= 0xcf && marker != 0xc4 &&
            marker != 0xc8 && marker != 0xcc) {
            if (length < 8 || have < 8)
                return pen_error_set(err, PEN_E_DATA, 0, "",
                                     "JPEG ends within its frame header");
            return jpeg_frame_header(s + 2, marker, out, err);
        }
        at += length;
    }
}

// --- PNG --------------------------------------------------------------------

static enum pen_status png_header(const struct stk_bytes *b,
                                  struct stk_image_header *out,
                                  struct pen_error *err)
{
    uint8_t s[25];
    if (!get(b, 8, s, sizeof(s)) || be32(s) != 13 ||
        memcmp(s + 4, "IHDR", 4) != 0)
        return pen_error_set(err, PEN_E_DATA, 0, "",
                             "PNG without a header chunk");
    const uint32_t width = be32(s + 8), height = be32(s + 12);
    const uint32_t type = s[17];
    if (!width || !height || width > INT32_MAX || height > INT32_MAX)
        return pen_error_set(err, PEN_E_DATA, 0, "",
                             "PNG header gives the size %ux%u", width, height);

    static const uint8_t channels[7] = { 1, 0, 3, 1, 2, 0, 4 };
    if (type > 6 || !channels[type])
        return pen_error_set(err, PEN_E_DATA, 0, "",
                             "PNG header gives the colour type %u", type);
    out->width = (int32_t)width;
    out->height = (int32_t)height;
    out->depth = s[16];
    out->channels = channels[type];
    out->progressive = s[20] == 1;
    out->format = type == 0   ? PEN_FMT_MONO
                  : type >= 4 ? PEN_FMT_RGBA
                              : PEN_FMT_RGB;

    // Transparency and orientation stand before the picture's data. A file
    // with more chunks than that is taken at its header's word.
    uint64_t at = 8 + 25;
    for (int i = 0; i < 1024; i++) {
        uint8_t c[8];
        if (!get(b, at, c, 8) || memcmp(c + 4, "IDAT", 4) == 0 ||
            memcmp(c + 4, "IEND", 4) == 0)
            break;
        const uint32_t length = be32(c);
        if (length > INT32_MAX)
            break;
        if (memcmp(c + 4, "tRNS", 4) == 0)
            out->format = PEN_FMT_RGBA;
        else if (memcmp(c + 4, "eXIf", 4) == 0)
            out->orientation = exif_orientation(b, at + 8, length);
        at += 12 + (uint64_t)length;
    }
    return PEN_OK;
}

enum pen_status stk_image_header_read(const struct stk_bytes *bytes,
                                      struct stk_image_header *out,
                                      struct pen_error *err)
{
    uint8_t head[256];
    const size_t n = bytes->read(bytes, 0, head, sizeof(head));

    *out = (struct stk_image_header){ .orientation = 1 };
    out->codec = stk_image_codec(head, n);
    switch (out->codec) {
    case PEN_CODEC_JPEG:
        return jpeg_header(bytes, out, err);
    case PEN_CODEC_PNG:
        return png_header(bytes, out, err);
    default:
        return pen_error_set(err, PEN_E_DATA, 0, "",
                             "neither a JPEG nor a PNG picture: it looks like "
                             "%s",
                             looks_like(head, n));
    }
}

enum pen_status stk_image_header_check(const struct stk_image_header *header,
                                       size_t bytes, struct pen_error *err)
{
    const char *name = pen_codec_name(header->codec);
    const uint64_t pixels = (uint64_t)header->width * (uint64_t)header->height;
    if (pixels > STK_MAX_PIXELS)
        return pen_error_set(err, PEN_E_LIMIT, 0, "",
                             "the %s header claims %dx%d pixels (%llu "
                             "million); at most %d million are decoded",
                             name, header->width, header->height,
                             (unsigned long long)(pixels / 1000000),
                             STK_MAX_PIXELS / 1000000);

    // A Huffman code takes a bit for each block of 64 pixels at the very
    // least; deflate makes at most 1032 bytes of one. Arithmetic coding has
    // no such bound.
    uint64_t least = 0;
    if (header->codec == PEN_CODEC_JPEG && !header->arithmetic)
        least = pixels / 512;
    else if (header->codec == PEN_CODEC_PNG)
        least =
            pixels / 8 * (uint64_t)(header->depth * header->channels) / 1032;
    if (bytes && bytes < least)
        return pen_error_set(err, PEN_E_DATA, 0, "",
                             "%s is cut off: %zu bytes cannot hold the %dx%d "
                             "pixels that the header claims",
                             name, bytes, header->width, header->height);
    return PEN_OK;
}
