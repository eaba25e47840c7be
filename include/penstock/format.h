#ifndef PEN_FORMAT_H
#define PEN_FORMAT_H

#include <penstock/status.h>

PEN_BEGIN

// What a frame is and where it lives: memory types, pixel formats, caps and
// the layout of a picture in a buffer. Plain values, no ownership.

// --- memory types -----------------------------------------------------------

enum pen_mem_type {
    PEN_MEM_NONE = 0,
    PEN_MEM_HOST = 1,         // pageable memory of the process
    PEN_MEM_HOST_PINNED = 2,  // page-locked, for DMA; readable by the host
    PEN_MEM_CUDA_DEVICE = 3,  // memory of the GPU
    PEN_MEM_DMABUF = 4,       // file descriptor to memory of a kernel device
    PEN_MEM_COUNT
};

// Sets of memory types are masks of these bits.
#define PEN_MEM_BIT(type) (1u << (type))
#define PEN_MEM_BITS_HOST                                                      \
    (PEN_MEM_BIT(PEN_MEM_HOST) | PEN_MEM_BIT(PEN_MEM_HOST_PINNED))

// "HOST", "HOST_PINNED", "CUDA_DEVICE", "DMABUF"; "?" for anything else.
// Static, like all names of this header. Thread: any.
PEN_API const char *pen_mem_name(enum pen_mem_type type);
// The same as a key of files and reports: "host_pinned".
PEN_API const char *pen_mem_key(enum pen_mem_type type);

// --- pixel formats ----------------------------------------------------------

// Values are those of ApraPipes' ImageType. Samples are 8 bit except
// BAYERBG10 (16-bit words). Chroma of odd sizes rounds up.
//
// YUV420   I420: planes Y (w x h), U, V (ceil(w/2) x ceil(h/2))
// NV12     planes Y (w x h), UV interleaved (ceil(w/2) pairs x ceil(h/2))
// YUV444   planes Y, U, V (w x h)
// YUV411_I packed U Y0 Y1 V Y2 Y3, rows of 6*ceil(w/4) bytes
// UYVY     packed U Y0 V Y1, rows of 4*ceil(w/2) bytes
// YUYV     packed Y0 U Y1 V, rows of 4*ceil(w/2) bytes
// BAYERxx  one plane; xx are the second and third samples of the second row
//          (OpenCV's naming): BG starts with R G, GB with G R, GR with G B,
//          RG with B G
enum pen_format {
    PEN_FMT_NONE = 0,  // unknown
    PEN_FMT_MONO = 1,
    PEN_FMT_BGR = 2,
    PEN_FMT_BGRA = 3,
    PEN_FMT_RGB = 4,
    PEN_FMT_RGBA = 5,
    PEN_FMT_YUV411_I = 10,
    PEN_FMT_YUV444 = 11,
    PEN_FMT_YUV420 = 12,
    PEN_FMT_UYVY = 13,
    PEN_FMT_YUYV = 14,
    PEN_FMT_NV12 = 15,
    PEN_FMT_BAYERBG10 = 20,
    PEN_FMT_BAYERBG8 = 21,
    PEN_FMT_BAYERGB8 = 22,
    PEN_FMT_BAYERGR8 = 23,
    PEN_FMT_BAYERRG8 = 24,
    PEN_FMT_COUNT
};

#define PEN_FMT_BIT(format) (1u << (format))
// The packed RGB family with MONO, and the eleven formats of the converters.
#define PEN_FMT_BITS_RGB                                                       \
    (PEN_FMT_BIT(PEN_FMT_MONO) | PEN_FMT_BIT(PEN_FMT_BGR) |                    \
     PEN_FMT_BIT(PEN_FMT_BGRA) | PEN_FMT_BIT(PEN_FMT_RGB) |                    \
     PEN_FMT_BIT(PEN_FMT_RGBA))
#define PEN_FMT_BITS_YUV                                                       \
    (PEN_FMT_BIT(PEN_FMT_YUV411_I) | PEN_FMT_BIT(PEN_FMT_YUV444) |             \
     PEN_FMT_BIT(PEN_FMT_YUV420) | PEN_FMT_BIT(PEN_FMT_UYVY) |                 \
     PEN_FMT_BIT(PEN_FMT_YUYV) | PEN_FMT_BIT(PEN_FMT_NV12))
#define PEN_FMT_BITS_ALL11 (PEN_FMT_BITS_RGB | PEN_FMT_BITS_YUV)
#define PEN_FMT_BITS_BAYER8                                                    \
    (PEN_FMT_BIT(PEN_FMT_BAYERBG8) | PEN_FMT_BIT(PEN_FMT_BAYERGB8) |           \
     PEN_FMT_BIT(PEN_FMT_BAYERGR8) | PEN_FMT_BIT(PEN_FMT_BAYERRG8))

enum { PEN_MAX_PLANES = 3 };

// Constant facts about a format; what the planner compares when it counts
// what a conversion loses.
struct pen_format_info {
    const char *name;  // "RGB", "NV12", ...
    uint8_t planes;    // 1..3
    uint8_t channels;  // colour and alpha samples of a pixel: MONO 1, RGB 3
    uint8_t depth;     // bits of a sample
    uint8_t chroma_w;  // luma pixels per chroma sample across: 1, 2, 4
    uint8_t chroma_h;  // and down: 1, 2
    bool yuv, alpha, bayer;
};

// NULL for PEN_FMT_NONE and values between the enumerators. Thread: any.
PEN_API const struct pen_format_info *pen_format_info(enum pen_format format);
// The enumerator whose name is `name` (exact case), or PEN_FMT_NONE.
PEN_API enum pen_format pen_format_from_name(const char *name);

enum pen_matrix {
    PEN_MATRIX_UNKNOWN = 0,
    PEN_MATRIX_BT601,
    PEN_MATRIX_BT709,
    PEN_MATRIX_BT2020,  // non-constant luminance
};
enum pen_range {
    PEN_RANGE_UNKNOWN = 0,
    PEN_RANGE_LIMITED,  // luma 16..235, chroma 16..240
    PEN_RANGE_FULL,     // 0..255
};
PEN_API const char *pen_matrix_name(enum pen_matrix matrix);  // "bt601", "?"
PEN_API const char *pen_range_name(enum pen_range range);     // "full", "?"

// --- caps -------------------------------------------------------------------

// Frame kinds. ApraPipes' names "RawImagePlanar" and "H264Frame" are read as
// "RawImage" and "H264Data": the pixel format tells planar from packed.
enum pen_kind {
    PEN_KIND_NONE = 0,
    PEN_KIND_FRAME,          // bytes of any kind; fits every pin both ways
    PEN_KIND_RAW_IMAGE,      // a picture in one of the pixel formats
    PEN_KIND_ENCODED_IMAGE,  // a whole image file: JPEG, PNG
    PEN_KIND_H264_DATA,
    PEN_KIND_COUNT
};
#define PEN_KIND_BIT(kind) (1u << (kind))
PEN_API const char *pen_kind_name(enum pen_kind kind);

enum pen_codec {
    PEN_CODEC_UNKNOWN = 0,
    PEN_CODEC_JPEG,
    PEN_CODEC_PNG,
};
PEN_API const char *pen_codec_name(enum pen_codec codec);

// What a frame is. A zero field is unknown. For encoded pictures format,
// width and height describe the decoded picture as far as they are known.
struct pen_caps {
    enum pen_kind kind;
    enum pen_codec codec;    // encoded kinds only
    enum pen_format format;  // the format, once there is only one
    uint32_t formats;        // while planning: mask of formats it may be
    int32_t width, height;   // pixels
    enum pen_matrix matrix;
    enum pen_range range;
    struct pen_rational fps;
    size_t bytes;  // kinds without layout: most bytes of a frame
};

// Where the samples of a picture lie in its buffer, in bytes.
struct pen_layout {
    uint32_t planes;
    struct {
        size_t offset;     // of the first row, from the buffer's start
        size_t pitch;      // from row to row
        size_t row_bytes;  // that carry samples
        int32_t rows;
    } plane[PEN_MAX_PLANES];
    size_t bytes;  // of the whole buffer
};

// Pitches and plane offsets are multiples of this many bytes in all memory
// types, so that a transfer between two pooled buffers is one linear copy.
enum { PEN_PITCH_ALIGN = 64 };

// Compute the layout of a picture with `align`ed pitches (a power of two; 1
// gives the tight layout of raw files). Encoded and plain kinds get one plane
// of one row of caps->bytes.
// Errors: PEN_E_ARG    caps lacks format, width, height (or bytes)
//         PEN_E_LIMIT  a size does not fit size_t or 2^31-1 pixels a side
// Thread: any.
PEN_API PEN_NODISCARD enum pen_status
pen_layout_compute(const struct pen_caps *caps, size_t align,
                   struct pen_layout *out, struct pen_error *err);

// Whether kind, codec, format, size, matrix and range are equal. Thread: any.
PEN_API bool pen_caps_equal(const struct pen_caps *a, const struct pen_caps *b);

// "RGB 1920x1080 bt601 full", "JPEG 1920x1080", "Frame"; unknown parts as
// "?". Writes at most `size` bytes with the ending zero. Thread: any.
PEN_API void pen_caps_text(const struct pen_caps *caps, char *text,
                           size_t size);

PEN_END

#endif  // PEN_FORMAT_H
