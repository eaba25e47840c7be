#ifndef STK_RESIZE_COMMON_H
#define STK_RESIZE_COMMON_H

// What ResizeNPPI and ImageResizeCV share: properties, caps and set-up.

#include "../kernels/ops.h"
#include "common.h"

struct stk_resize_params {
    int32_t width, height;
    int32_t interpolation;
};

extern const struct pen_prop stk_resize_props[];

enum pen_status stk_resize_negotiate(const void *params,
                                     const struct pen_caps *in,
                                     struct pen_caps *out,
                                     struct pen_error *err);
// The most bytes of tables for pictures up to `in`.
uint64_t stk_resize_tables(const struct stk_resize_params *p,
                           const struct pen_caps *in);
// Caps of the input and output of this call, and whether `resize`, set up for
// `was` before, had to be set up anew (its tables are to be made then).
PEN_NODISCARD enum pen_status
stk_resize_prepare(const struct stk_resize_params *p, const struct pen_io *io,
                   struct pen_caps *was, struct stk_resize *resize,
                   struct pen_caps *out, bool *changed, struct pen_error *err);

#endif  // STK_RESIZE_COMMON_H
