#ifndef STK_TYPE_H
#define STK_TYPE_H

// The memory types as a constant table: how blocks of each are made and given
// back, what can reach them, and one capability bit per optional function.

#include "../gpu/device.h"

enum stk_mem_caps {
    STK_MEM_MAP = 1,   // sync: the host may look at the bytes
    STK_MEM_GROW = 2,  // grow: a block can be made larger where it lies
};

// What a DMABUF is made of (dmabuf.h).
enum stk_dmabuf_kind {
    STK_DMABUF_NONE = 0,
    STK_DMABUF_HOST,  // memory that the host maps
    STK_DMABUF_CUDA,  // device memory that was exported
};

// One block as its type made it.
struct stk_block {
    void *host;                 // NULL where the host has no address
    uint64_t address;           // device address, or the host address
    size_t bytes;               // 0: no memory
    struct stk_region *region;  // CUDA_DEVICE that can grow; else NULL
    struct stk_dmabuf *dmabuf;  // of DMABUF; else NULL
    bool on_stream;             // work queued on a stream may touch it
};

// Where a block comes from and who answers for it.
struct stk_mem_source {
    struct pen_device *dev;     // NULL for HOST; may be NULL for DMABUF of the
                                // host
    struct stk_ledger *ledger;  // of what does not go through the device's
    const char *owner;          // borrowed during the call
    size_t reserve;             // CUDA_DEVICE: addresses to set aside for
                                // growth; 0: none
    enum stk_dmabuf_kind kind;  // DMABUF: of what
};

struct stk_mem_type {
    enum pen_mem_type type;
    unsigned caps;      // of stk_mem_caps
    bool needs_device;  // always

    // Thread: any. Blocks on the allocator or the driver.
    // Errors: PEN_E_NOMEM or PEN_E_DEVMEM with the sizes, PEN_E_DRIVER,
    //         PEN_E_LOST.
    enum pen_status (*alloc)(const struct stk_mem_source *source, size_t bytes,
                             struct stk_block *out, struct pen_error *err);
    // *block is {0} afterwards; an empty block is allowed.
    void (*free)(const struct stk_mem_source *source, struct stk_block *block);

    // STK_MEM_GROW. The block's address stays, and so do its bytes; queued
    // work goes on. Errors: PEN_E_UNSUPPORTED for a block that was not made for
    // it, PEN_E_LIMIT beyond what was reserved; the block is as before.
    enum pen_status (*grow)(const struct stk_mem_source *source, size_t bytes,
                            struct stk_block *block, struct pen_error *err);

    // STK_MEM_MAP. Tell who else has the memory that the host begins or ends
    // to access it (`access` of pen_access). NULL: nothing to tell. Errors:
    // PEN_E_IO.
    enum pen_status (*sync)(const struct stk_block *block, unsigned access,
                            bool begin, struct pen_error *err);
};

// NULL for what is not in the table. Thread: any.
const struct stk_mem_type *stk_mem_type(enum pen_mem_type type);

#endif  // STK_TYPE_H
