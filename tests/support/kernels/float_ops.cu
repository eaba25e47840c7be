#include "float_ops.kern.h"

PENK_FN float load(PENK_CTX uint64_t base, uint32_t i)
{
    return *PENK_G(const float, base + 4 * (uint64_t)i);
}

// dst = a x^2 + b x + c: two places where a multiply-add would round once
// instead of twice.
PENK_KERNEL(float_ops_curve, struct float_ops, k)
{
    PENK_THREADS {
        const uint32_t i = PENK_BLOCK_X * FLOAT_OPS_BLOCK + PENK_THREAD_X;
        if (i >= k.count)
            continue;
        const float x = load(PENK_PASS k.src, i);
        *PENK_G(float, k.dst + 4 * (uint64_t)i) = k.a * x * x + k.b * x + k.c;
    }
}

// dst = src with each block of 64 reversed, less the block's first value.
PENK_KERNEL(float_ops_reverse, struct float_ops, k)
{
    PENK_SHARED(float, block, FLOAT_OPS_BLOCK);
    const uint32_t first = PENK_BLOCK_X * FLOAT_OPS_BLOCK;

    PENK_THREADS {
        const uint32_t i = first + PENK_THREAD_X;
        block[PENK_THREAD_X] = i < k.count ? load(PENK_PASS k.src, i) : 0.0f;
    }
    PENK_BARRIER();
    PENK_THREADS {
        const uint32_t i = first + PENK_THREAD_X;
        if (i >= k.count)
            continue;
        *PENK_G(float, k.dst + 4 * (uint64_t)i) =
            block[FLOAT_OPS_BLOCK - 1 - PENK_THREAD_X] - block[0];
    }
}
