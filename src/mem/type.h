#ifndef STK_TYPE_H
#define STK_TYPE_H

// The memory types as a constant table: how blocks of each are made and given
// back, what can reach them, and one capability bit per optional function.

#include "../gpu/device.h"

enum stk_mem_caps {
    STK_MEM_MAP = 1,  // map: the host can be given an address of the bytes
};

// One block as its type made it.
struct stk_block {
    void *host;        // NULL where the host has no address
    uint64_t address;  // device address, or the host address
    size_t bytes;      // 0: no memory
};

// Where a block comes from and who answers for it.
struct stk_mem_source {
    struct pen_device *dev;     // NULL for HOST
    struct stk_ledger *ledger;  // of HOST; the others go through the device's
    const char *owner;          // borrowed during the call
};

struct stk_mem_type {
    enum pen_mem_type type;
    unsigned caps;  // of stk_mem_caps
    bool needs_device;
    bool on_stream;  // work queued on a stream may touch it

    // Thread: any. Blocks on the allocator or the driver.
    // Errors: PEN_E_NOMEM or PEN_E_DEVMEM with the sizes, PEN_E_DRIVER,
    //         PEN_E_LOST.
    enum pen_status (*alloc)(const struct stk_mem_source *source, size_t bytes,
                             struct stk_block *out, struct pen_error *err);
    // *block is {0} afterwards; an empty block is allowed.
    void (*free)(const struct stk_mem_source *source, struct stk_block *block);

    // STK_MEM_MAP. The bytes must not be in use by a stream.
    void *(*map)(void *host, uint64_t address);
};

// NULL for what is not in the table. Thread: any.
const struct stk_mem_type *stk_mem_type(enum pen_mem_type type);

#endif  // STK_TYPE_H
