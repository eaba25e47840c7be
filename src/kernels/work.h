#ifndef STK_WORK_H
#define STK_WORK_H

// How much the operators have to do with a frame beside reading and writing
// it, for those who compare them before anything runs. The unit is a
// multiplication with its addition, as the CPU twin of the blur does them;
// what is no such thing counts as many as take as long (measured, see
// docs/guide/profiles.md). Sizes may be those of untrusted files: the numbers
// saturate.
//
// Caps are of known size; of a set of formats the one with most samples counts.
// Thread: any; nothing here is looked up or kept.

#include <penstock/format.h>

#include "ops.h"

// Samples (bytes) of a picture without padding.
uint64_t stk_work_samples(const struct pen_caps *caps);

// `cuda` is the kernel, else the CPU twin.
uint64_t stk_work_convert(const struct pen_caps *in,
                          const struct pen_caps *out);
uint64_t stk_work_resize(const struct pen_caps *in, const struct pen_caps *out,
                         enum stk_interpolation interpolation, bool cuda);
uint64_t stk_work_blur(const struct pen_caps *in, int32_t kernel_size,
                       bool cuda);

// a * b, UINT64_MAX where that is too much.
uint64_t stk_work_times(uint64_t a, uint64_t b);

#endif  // STK_WORK_H
