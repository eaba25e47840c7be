#include "stamp.kern.h"

PENK_FN uint32_t mixed(uint64_t tag, uint32_t i)
{
    uint32_t x =
        (uint32_t)tag ^ (uint32_t)(tag >> 32) * 0x9e3779b9u ^ i * 0x85ebca6bu;
    x ^= x >> 15;
    x *= 0x2c1b3c6du;
    x ^= x >> 13;
    return x;
}

// What word i holds, less the checksum.
PENK_FN uint32_t stamped(uint64_t tag, uint32_t words, uint32_t i)
{
    if (!tag || i == 3)
        return 0;
    if (i < 2)
        return (uint32_t)(tag >> (32 * i));
    return i == 2 ? words : mixed(tag, i);
}

PENK_FN uint32_t load(PENK_CTX uint64_t base, uint32_t i)
{
    return *PENK_G(const uint32_t, base + 4 * (uint64_t)i);
}

PENK_KERNEL(stamp_write, struct stamp_write, k)
{
    PENK_SHARED(uint32_t, sums, STAMP_THREADS);
    PENK_THREADS {
        uint32_t sum = 0;
        for (uint32_t i = PENK_THREAD_X; i < k.words; i += STAMP_THREADS) {
            const uint32_t word = stamped(k.tag, k.words, i);
            sum += i < STAMP_HEAD ? 0 : word;
            *PENK_G(uint32_t, k.dst + 4 * (uint64_t)i) = word;
        }
        sums[PENK_THREAD_X] = sum;
    }
    PENK_BARRIER();
    PENK_THREADS {
        if (PENK_THREAD_X)
            continue;
        uint32_t sum = 0;
        for (uint32_t t = 0; t < STAMP_THREADS; t++)
            sum += sums[t];
        *PENK_G(uint32_t, k.dst + 12) = sum;
    }
}

PENK_KERNEL(stamp_check, struct stamp_check, k)
{
    PENK_SHARED(uint32_t, sums, STAMP_THREADS);
    PENK_SHARED(uint32_t, wrongs, STAMP_THREADS);
    PENK_SHARED(uint32_t, firsts, STAMP_THREADS);
    PENK_THREADS {
        uint32_t sum = 0, wrong = 0, first = k.words;
        for (uint32_t i = PENK_THREAD_X; i < k.words; i += STAMP_THREADS) {
            const uint32_t word = load(PENK_PASS k.src, i);
            sum += i < STAMP_HEAD ? 0 : word;
            if (i == 3 || word == stamped(k.tag, k.words, i))
                continue;
            wrong++;
            first = i < first ? i : first;
        }
        sums[PENK_THREAD_X] = sum;
        wrongs[PENK_THREAD_X] = wrong;
        firsts[PENK_THREAD_X] = first;
    }
    PENK_BARRIER();
    PENK_THREADS {
        if (PENK_THREAD_X)
            continue;
        uint32_t sum = 0, wrong = 0, first = k.words;
        for (uint32_t t = 0; t < STAMP_THREADS; t++) {
            sum += sums[t];
            wrong += wrongs[t];
            first = firsts[t] < first ? firsts[t] : first;
        }
        if (load(PENK_PASS k.src, 3) != sum) {
            wrong++;
            first = first < 3 ? first : 3;
        }
        struct stamp_result *r = PENK_G(struct stamp_result, k.result);
        r->checks++;
        if (!wrong)
            continue;
        if (!r->failed++) {
            r->want = k.tag;
            r->found = load(PENK_PASS k.src, 0) |
                       (uint64_t)load(PENK_PASS k.src, 1) << 32;
            r->what = k.what;
            r->wrong = wrong;
            r->first = first;
        }
    }
}
