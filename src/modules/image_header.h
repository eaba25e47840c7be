#ifndef STK_IMAGE_HEADER_H
#define STK_IMAGE_HEADER_H

// What a JPEG or PNG file says about its picture before it is decoded: kind,
// size, channels, orientation. Reads little, allocates nothing, and trusts no
// length that the file gives.

#include <penstock/format.h>

// Random access to bytes: copies at most `n` of them from `offset` and
// returns how many there were; fewer only at the end.
struct stk_bytes {
    size_t (*read)(const struct stk_bytes *b, uint64_t offset, void *to,
                   size_t n);
    const uint8_t *data;  // stk_bytes_memory
    size_t length;
    int fd;  // stk_bytes_file
};
struct stk_bytes stk_bytes_memory(const void *data, size_t length);
struct stk_bytes stk_bytes_file(int fd);  // borrowed

struct stk_image_header {
    enum pen_codec codec;
    enum pen_format format;  // of the decoded picture: MONO, RGB or RGBA
    int32_t width, height;   // as stored, before the orientation is applied
    int32_t depth;           // bits of a sample in the file
    int32_t channels;        // as stored; a palette counts as 1
    int32_t orientation;     // Exif: 1 (upright) to 8
    bool progressive;        // JPEG: several scans; PNG: Adam7
    bool arithmetic;         // JPEG: arithmetic coding
};

// Errors: PEN_E_DATA         no picture (the text says what it looks like), or
//                            a damaged header
//         PEN_E_UNSUPPORTED  a kind of JPEG that is not decoded
// Thread: any.
PEN_NODISCARD enum pen_status
stk_image_header_read(const struct stk_bytes *bytes,
                      struct stk_image_header *out, struct pen_error *err);

// Whether a picture may be decoded from `bytes` bytes of file (0: unknown), so
// that a header's claim is refused before memory is reserved for it.
// Errors: PEN_E_LIMIT  more than STK_MAX_PIXELS
//         PEN_E_DATA   so few bytes cannot hold so many pixels
PEN_NODISCARD enum pen_status
stk_image_header_check(const struct stk_image_header *header, size_t bytes,
                       struct pen_error *err);

// Kind of picture by its first bytes; UNKNOWN for anything else.
enum pen_codec stk_image_codec(const void *head, size_t n);

// Whether an Exif orientation exchanges width and height.
bool stk_orientation_turns(int32_t orientation);

#endif  // STK_IMAGE_HEADER_H
