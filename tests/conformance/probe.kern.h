#ifndef PENK_PROBE_H
#define PENK_PROBE_H

// Kernels of the tests of the driver: no operators, only what shows order.

#include <penstock/kernel.h>

struct probe_mix {
    uint64_t dst, src;  // `count` words each
    uint32_t count;
    uint32_t factor, summand;
    uint32_t reserved;
};
PENK_STATIC_ASSERT(sizeof(struct probe_mix) == 32, "host and device differ");

struct probe_wait {
    uint64_t flag;      // address of a word that another stream sets
    uint64_t patience;  // looks at most so often
};
PENK_STATIC_ASSERT(sizeof(struct probe_wait) == 16, "host and device differ");

struct probe_store {
    uint64_t address;
    uint32_t value;
    uint32_t reserved;
};
PENK_STATIC_ASSERT(sizeof(struct probe_store) == 16, "host and device differ");

#endif  // PENK_PROBE_H
