#ifndef STK_CONVERT_COMMON_H
#define STK_CONVERT_COMMON_H

// What CCNPPI and ColorConversion share: caps and set-up.

#include "../kernels/ops.h"
#include "common.h"

// For both classes, by the formats of the two.
uint64_t stk_convert_operations(const void *params, const struct pen_caps *in,
                                const struct pen_caps *out);

struct stk_convert_state {
    struct pen_caps src, dst;  // that `args` is for
    struct penk_convert args;
};

// Caps of the output in `format`; `range` is the property.
void stk_convert_negotiate(const struct pen_caps *in, enum pen_format format,
                           int32_t range, struct pen_caps *out);
// Set up for the input of this call, of one of `sources`, unless that is done.
PEN_NODISCARD enum pen_status
stk_convert_prepare(struct stk_convert_state *st, const struct pen_io *io,
                    uint32_t sources, enum pen_format format, int32_t range,
                    struct pen_caps *out, struct pen_error *err);
// Whether the frame is what the output is to be; it is then forwarded.
bool stk_convert_forwards(const struct stk_convert_state *st,
                          const struct pen_io *io);

#endif  // STK_CONVERT_COMMON_H
