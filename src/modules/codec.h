#ifndef STK_CODEC_H
#define STK_CODEC_H

// JPEG by libjpeg-turbo and PNG by libpng, from memory to a view and back.
// Both libraries leave by longjmp; here that becomes a pen_error, and whatever
// they allocated is released on every path.

#include <penstock/frame.h>

#include "image_header.h"

// How often a library asked for memory. libpng comes to malloc by way of us:
// the number is exact. libjpeg has a memory manager of its own, which serves
// many small requests from one block: the number is that of the requests.
struct stk_decode {
    const void *data;
    size_t bytes;
    struct stk_image_header header;  // of these bytes
    int32_t orientation;             // to be applied; 1: none
    const struct pen_view *out;      // of header.format and the turned size
    void *scratch;                   // stk_decode_scratch() bytes
    // Out: complaints that did not spoil the picture, and the first of them.
    uint32_t warnings;
    char warning[200];
    uint64_t allocations;  // out, see below; also of a decode that fails
};

// Bytes of scratch memory that a decode needs; 0 for the usual upright one.
size_t stk_decode_scratch(const struct stk_image_header *header,
                          int32_t orientation);
// The most of any picture up to width x height; 0 if they are unknown (0).
uint64_t stk_decode_most_scratch(enum pen_codec codec, int32_t width,
                                 int32_t height, bool orients);

// Scans that a JPEG of a size may have: a few kilobytes can ask for thousands
// of passes over the whole picture. 500 as TurboJPEG has it; fewer where that
// would be more than 2^33 pixels.
int32_t stk_jpeg_max_scans(int32_t width, int32_t height);

// Errors: PEN_E_DATA damaged or cut off; PEN_E_UNSUPPORTED; PEN_E_LIMIT too
// much work or memory for the size; PEN_E_NOMEM.
// Thread: data.
PEN_NODISCARD enum pen_status stk_jpeg_decode(struct stk_decode *d,
                                              struct pen_error *err);
PEN_NODISCARD enum pen_status stk_png_decode(struct stk_decode *d,
                                             struct pen_error *err);

enum stk_subsampling { STK_SUB_420 = 0, STK_SUB_422, STK_SUB_444 };

struct stk_encode {
    const struct pen_view *in;
    int32_t quality;  // JPEG: 1 to 100
    enum stk_subsampling subsampling;
    int32_t compression;   // PNG: 0 to 9
    void *to;              // where the file goes
    size_t room;           // stk_..._bound() bytes; a JPEG needs one to spare
    size_t bytes;          // out: of the file
    uint64_t allocations;  // out; also of an encode that fails
};

// Sides that JPEG can have.
enum { STK_JPEG_MAX_SIDE = 65500, STK_PNG_MAX_SIDE = 0x7fffffff };

// Most bytes of a file; false if that does not fit size_t.
bool stk_jpeg_bound(int32_t width, int32_t height, enum pen_format format,
                    enum stk_subsampling subsampling, size_t *out);
bool stk_png_bound(int32_t width, int32_t height, enum pen_format format,
                   size_t *out);

// JPEG takes MONO, RGB, BGR; PNG also RGBA and BGRA.
// Errors: PEN_E_UNSUPPORTED format; PEN_E_LIMIT `room` was too small;
// PEN_E_NOMEM. Thread: data.
PEN_NODISCARD enum pen_status stk_jpeg_encode(struct stk_encode *e,
                                              struct pen_error *err);
PEN_NODISCARD enum pen_status stk_png_encode(struct stk_encode *e,
                                             struct pen_error *err);

#endif  // STK_CODEC_H
