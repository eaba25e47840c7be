// Every sample becomes 255 minus itself. One thread per sample.
#include "invert.kern.h"

PENK_KERNEL(invert, struct invert, k)
{
    PENK_THREADS {
        const uint32_t x = PENK_BLOCK_X * INVERT_BLOCK_X + PENK_THREAD_X;
        const uint32_t y = PENK_BLOCK_Y * INVERT_BLOCK_Y + PENK_THREAD_Y;
        if (x >= k.row_bytes || y >= k.rows)
            continue;
        const uint64_t from = k.src + (uint64_t)y * k.src_pitch + x;
        *PENK_G(uint8_t, k.dst + (uint64_t)y * k.dst_pitch + x) =
            (uint8_t)(255 - *PENK_G(const uint8_t, from));
    }
}
