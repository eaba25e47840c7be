#ifndef MY_CUSTOM_H
#define MY_CUSTOM_H

// Every sample exclusive-or a key that grows along the row.

#include <penstock/kernel.h>

enum { MY_CUSTOM_KERNEL = 0, MY_CUSTOM_BLOCK_X = 32, MY_CUSTOM_BLOCK_Y = 8 };

struct my_custom {
    uint64_t dst, src;
    uint64_t dst_pitch, src_pitch;  // bytes
    uint32_t row_bytes, rows;
    uint32_t key, reserved;
};
PENK_STATIC_ASSERT(sizeof(struct my_custom) == 48, "host and device differ");

#endif  // MY_CUSTOM_H
