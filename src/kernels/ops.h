#ifndef STK_OPS_H
#define STK_OPS_H

// The operators that modules are made of. Each has a pure host part (argument
// block, tables, grid), a GPU kernel (images.h) and a CPU function that gives
// the same bits.
//
// A CUDA module: setup once per caps; then per frame bind the views that it
// acquired on the stream, and launch:
//
//     struct penk_convert args = st->args;
//     struct pen_grid grid;
//     stk_convert_bind(&args, &dst, &src);
//     stk_convert_grid(&args, &grid);
//     pen_launch(io, &stk_image_convert, PENK_KERNEL_CONVERT, &grid, &args,
//                sizeof(args), err);
//
// A CPU module binds views acquired on the host and calls stk_cpu_convert()
// for all rows, or for ranges of rows from several threads.
//
// Everything here: thread any; nothing blocks, prints or keeps state.

#include <penstock/frame.h>

#include "blur.kern.h"
#include "convert.kern.h"
#include "images.h"
#include "resize.kern.h"

// --- conversion -------------------------------------------------------------

// The formats that `from` can be converted to, as a mask: the ten others of
// PEN_FMT_BITS_ALL11 and `from` itself, on CPU and GPU; for the Bayer formats
// RGB, and MONO for BAYERBG8, on the CPU only.
uint32_t stk_convert_targets(enum pen_format from);

// Caps of `src` converted to `format`: the matrix stays; RGB formats and MONO
// are full range; YUV formats made of these are limited and YUV of YUV keeps
// its range, unless `range` (UNKNOWN: not asked) says otherwise. What is
// unknown stays unknown.
void stk_convert_caps(const struct pen_caps *src, enum pen_format format,
                      enum pen_range range, struct pen_caps *out);

// Make the argument block without addresses. Sizes must be equal; matrix and
// range are looked at where the pair needs them. A pair of equal formats
// copies, or changes the range.
// Errors: PEN_E_ARG          sizes differ, or matrix or range is unknown
//         PEN_E_UNSUPPORTED  no such pair, or the matrix would change
PEN_NODISCARD enum pen_status stk_convert_setup(const struct pen_caps *dst,
                                                const struct pen_caps *src,
                                                struct penk_convert *out,
                                                struct pen_error *err);
void stk_convert_bind(struct penk_convert *args, const struct pen_view *dst,
                      const struct pen_view *src);
void stk_convert_grid(const struct penk_convert *args, struct pen_grid *out);

// Convert rows row0 <= y < row1 of a picture bound to host addresses. row0 is
// even, row1 even or the height.
void stk_cpu_convert(const struct penk_convert *args, int32_t row0,
                     int32_t row1);

// --- scaling ----------------------------------------------------------------

enum stk_interpolation {
    STK_NEAREST = 0,
    STK_BILINEAR,
    STK_AREA,
    STK_BICUBIC,
};

enum {
    STK_RESIZE_FORMATS = PEN_FMT_BITS_RGB | PEN_FMT_BIT(PEN_FMT_YUV444) |
                         PEN_FMT_BIT(PEN_FMT_YUV420) | PEN_FMT_BIT(PEN_FMT_NV12)
};

// A scaling whose sizes are settled. `args` lacks addresses; the tables of
// `table_bytes` bytes lie in host or device memory.
struct stk_resize {
    struct penk_resize args;
    size_t table_bytes;
    enum stk_interpolation interpolation;
};

// Errors: PEN_E_ARG          a size is < 1
//         PEN_E_UNSUPPORTED  format not in STK_RESIZE_FORMATS
//         PEN_E_LIMIT        tables or sums would not fit (sides of 2^23 px)
PEN_NODISCARD enum pen_status
stk_resize_setup(enum pen_format format, int32_t dst_w, int32_t dst_h,
                 int32_t src_w, int32_t src_h,
                 enum stk_interpolation interpolation, struct stk_resize *out,
                 struct pen_error *err);
// The most table_bytes of pictures of one format up to src_w x src_h; 0 if a
// size is unknown (0).
size_t stk_resize_most_bytes(enum pen_format format, int32_t dst_w,
                             int32_t dst_h, int32_t src_w, int32_t src_h,
                             enum stk_interpolation interpolation);
// Fill in the tables: resize->table_bytes bytes at `table`.
void stk_resize_weights(const struct stk_resize *resize, int32_t *table);
// `table` is the address of the tables as the kernel or the CPU sees it.
void stk_resize_bind(const struct stk_resize *resize, uint64_t table,
                     const struct pen_view *dst, const struct pen_view *src,
                     struct penk_resize *out);
void stk_resize_grid(const struct penk_resize *args, struct pen_grid *out);

// Make rows row0 <= y < row1 of the target, bound to host addresses. Of
// YUV420 and NV12 chroma rows row0/2 to ceil(row1/2) are made: row0 is even,
// row1 even or the height.
void stk_cpu_resize(const struct penk_resize *args, int32_t row0, int32_t row1);

// --- Gaussian blur ----------------------------------------------------------

enum { STK_BLUR_FORMATS = PEN_FMT_BITS_RGB | PEN_FMT_BIT(PEN_FMT_YUV444) };

// Make the argument block without addresses.
// Errors: PEN_E_ARG          kernel_size even or not in 3..31, sigma not > 0
//                            and finite, a size < 1
//         PEN_E_UNSUPPORTED  format not in STK_BLUR_FORMATS
PEN_NODISCARD enum pen_status stk_blur_setup(enum pen_format format,
                                             int32_t width, int32_t height,
                                             int32_t kernel_size, double sigma,
                                             struct penk_blur *out,
                                             struct pen_error *err);
// weight[0..radius]: the Gaussian at 0..radius in units of 2^-16; weight[0] +
// 2 * (the others) is exactly 65536.
void stk_blur_weights(int32_t radius, double sigma, uint32_t *weight);
void stk_blur_bind(struct penk_blur *args, const struct pen_view *dst,
                   const struct pen_view *src);
void stk_blur_grid(const struct penk_blur *args, struct pen_grid *out);

// Make rows row0 <= y < row1 of all planes of the target, bound to host
// addresses.
void stk_cpu_blur(const struct penk_blur *args, int32_t row0, int32_t row1);

#endif  // STK_OPS_H
