#include "my_custom.kern.h"

PENK_KERNEL(my_custom, struct my_custom, k)
{
    PENK_THREADS {
        const uint32_t x = PENK_BLOCK_X * MY_CUSTOM_BLOCK_X + PENK_THREAD_X;
        const uint32_t y = PENK_BLOCK_Y * MY_CUSTOM_BLOCK_Y + PENK_THREAD_Y;
        if (x >= k.row_bytes || y >= k.rows)
            continue;
        const uint8_t v =
            *PENK_G(const uint8_t, k.src + (uint64_t)y * k.src_pitch + x);
        *PENK_G(uint8_t, k.dst + (uint64_t)y * k.dst_pitch + x) =
            (uint8_t)(v ^ ((k.key + x) & 255));
    }
}
