#ifndef PEN_TEST_PICTURES_H
#define PEN_TEST_PICTURES_H

// Pictures and picture files for the tests of the codecs: made by the
// libraries directly, with options that our encoder does not have.

#include <penstock/format.h>
#include <penstock/frame.h>

struct bytes {
    uint8_t *data;
    size_t length;
};
void bytes_free(struct bytes *b);

// A picture in memory of its own, pitches aligned as in frames, every byte
// between the rows 0xee.
struct picture {
    struct pen_caps caps;
    struct pen_layout layout;
    struct pen_view view;
    uint8_t *memory;
};
struct picture picture_new(enum pen_format format, int32_t width,
                           int32_t height);
void picture_free(struct picture *p);
uint8_t *picture_at(const struct picture *p, int32_t x, int32_t y);
// Shapes, gradients and a little noise: what a photo does to a codec.
void picture_paint(struct picture *p, uint64_t seed);
void picture_noise(struct picture *p, uint64_t seed);
// Fails the test if a byte between the rows was touched.
void picture_check_gaps(const struct picture *p);

enum jpeg_space { SPACE_YCC, SPACE_RGB, SPACE_GREY, SPACE_CMYK, SPACE_YCCK };
struct jpeg_options {
    enum jpeg_space space;
    int quality;  // 0: 90
    int h, v;     // sampling of the first component; 0: 2
    bool progressive, arithmetic, separate_scans;
    int restart;      // MCUs between markers
    bool no_adobe;    // leave the Adobe marker out
    int orientation;  // Exif; 0: no Exif segment
    bool exif_big;    // byte order of the Exif data
};
// `samples` is tight, of 1, 3 or 4 bytes a pixel as the space needs.
struct bytes jpeg_make(const uint8_t *samples, int width, int height,
                       const struct jpeg_options *o);
// Without the segments of one marker (0xc4: Huffman tables).
struct bytes jpeg_without(const struct bytes *from, uint8_t marker);
// With a segment right after the start.
struct bytes jpeg_with(const struct bytes *from, uint8_t marker,
                       const void *payload, size_t length);

struct png_options {
    int color_type;  // PNG_COLOR_TYPE_...
    int depth;       // 1, 2, 4, 8, 16
    bool adam7;
    bool trns;        // transparency chunk
    int orientation;  // eXIf chunk; 0: none
};
// `rows` is packed as libpng wants it (16-bit samples big-endian).
struct bytes png_make(const uint8_t *rows, int width, int height,
                      const struct png_options *o);
// Write the CRCs of all chunks anew.
void png_fix(struct bytes *png);

// The TIFF structure of Exif with nothing but an orientation: 26 bytes.
size_t exif_make(uint8_t *to, int orientation, bool big);

#endif  // PEN_TEST_PICTURES_H
