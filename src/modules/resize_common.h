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

struct stk_resize_state {
    struct pen_caps src;  // that `resize` is for
    struct stk_resize resize;
};
// Caps of the output. If the input differs from the one before, `resize` is
// set up anew and make_table() called to make its table.
PEN_NODISCARD enum pen_status stk_resize_prepare(
    struct pen_module *m, const struct pen_io *io, struct stk_resize_state *st,
    enum pen_status (*make_table)(struct pen_module *m,
                                  const struct stk_resize *resize,
                                  struct pen_error *err),
    struct pen_caps *out, struct pen_error *err);

#endif  // STK_RESIZE_COMMON_H
