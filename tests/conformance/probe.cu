#include "probe.kern.h"

// dst[i] = dst[i] * factor + src[i] + summand: not commutative, so that the
// result tells the order of several.
PENK_KERNEL(probe_mix, struct probe_mix, k)
{
    PENK_THREADS {
        const uint32_t i = PENK_BLOCK_X * PENK_DIM_X + PENK_THREAD_X;
        if (i >= k.count)
            continue;
        uint32_t *dst = PENK_G(uint32_t, k.dst + 4 * (uint64_t)i);
        *dst = *dst * k.factor +
               *PENK_G(const uint32_t, k.src + 4 * (uint64_t)i) + k.summand;
    }
}

// Occupies its stream until the flag is set. Patience ends it in any case.
PENK_KERNEL(probe_wait, struct probe_wait, k)
{
    PENK_THREADS {
        for (uint64_t i = 0; i < k.patience; i++) {
            if (*PENK_G(const volatile uint32_t, k.flag))
                break;
        }
    }
}

PENK_KERNEL(probe_store, struct probe_store, k)
{
    PENK_THREADS {
        *PENK_G(uint32_t, k.address) = k.value;
    }
}
