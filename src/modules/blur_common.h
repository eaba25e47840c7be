#ifndef STK_BLUR_COMMON_H
#define STK_BLUR_COMMON_H

// What GaussianBlur and its CPU twin share: properties and argument block.

#include "../kernels/ops.h"
#include "common.h"

struct stk_blur_params {
    int32_t kernel_size;
    double sigma;  // 0: by the formula
};

struct stk_blur_state {
    enum pen_format format;  // with the size, what `args` is for
    int32_t width, height;
    struct penk_blur args;
};

extern const struct pen_prop stk_blur_props[];

void stk_blur_check(const void *params, struct pen_check *check);
// Set up for the input of this call unless that is done.
PEN_NODISCARD enum pen_status stk_blur_prepare(struct pen_module *m,
                                               const struct pen_io *io,
                                               struct pen_caps *out,
                                               struct pen_error *err);

#endif  // STK_BLUR_COMMON_H
