#ifndef INVERT_H
#define INVERT_H

// Argument block of the kernel, passed by value; both sides include it.

#include <penstock/kernel.h>

enum { INVERT_KERNEL = 0, INVERT_BLOCK_X = 32, INVERT_BLOCK_Y = 8 };

struct invert {
    uint64_t dst, src;              // device addresses of a plane
    uint64_t dst_pitch, src_pitch;  // bytes
    uint32_t row_bytes, rows;
};
PENK_STATIC_ASSERT(sizeof(struct invert) == 40, "host and device differ");

#endif  // INVERT_H
