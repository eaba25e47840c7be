#ifndef PEN_REFERENCE_H
#define PEN_REFERENCE_H

// Exact versions of the operators, in double precision, written from
// docs/guide/operators.md for clarity and not for speed. They share no code
// with the library.
//
// Results are the exact samples before rounding (but clamped to 0..255), in
// the byte order of a tight raw picture: planes one after the other.

#include <stddef.h>
#include <stdint.h>

#include <penstock/format.h>

struct ref_picture {
    enum pen_format format;
    int w, h;
    const uint8_t *plane[3];
    size_t pitch[3];
};

// Planes of a format: bytes of a row that carry samples, and rows.
int ref_planes(enum pen_format format);
size_t ref_row_bytes(enum pen_format format, int plane, int w);
int ref_rows(enum pen_format format, int plane, int h);
// Bytes of a tight picture.
size_t ref_bytes(enum pen_format format, int w, int h);

void ref_convert(const struct ref_picture *src, enum pen_matrix matrix,
                 enum pen_range src_range, enum pen_format to,
                 enum pen_range dst_range, double *out);

void ref_bayer(const struct ref_picture *src, enum pen_matrix matrix,
               enum pen_format to, double *out);

enum ref_interpolation { REF_NEAREST, REF_BILINEAR, REF_AREA, REF_BICUBIC };
void ref_resize(const struct ref_picture *src, int dst_w, int dst_h,
                enum ref_interpolation interpolation, double *out);

void ref_blur(const struct ref_picture *src, int kernel_size, double sigma,
              double *out);

#endif  // PEN_REFERENCE_H
