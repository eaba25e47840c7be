#ifndef FLOAT_OPS_H
#define FLOAT_OPS_H

// A user's kernels: float arithmetic that compilers like to contract, and a
// block that hands values over a barrier.

#include <penstock/kernel.h>

enum { FLOAT_OPS_CURVE = 0, FLOAT_OPS_REVERSE = 1, FLOAT_OPS_BLOCK = 64 };

struct float_ops {
    uint64_t dst, src;  // float[count]
    uint32_t count;
    float a, b, c;
};
PENK_STATIC_ASSERT(sizeof(struct float_ops) == 32, "host and device differ");

#endif  // FLOAT_OPS_H
