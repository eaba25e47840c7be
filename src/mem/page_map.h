#ifndef STK_PAGE_MAP_H
#define STK_PAGE_MAP_H

// Which span of memory an address belongs to: one map of the process, in two
// levels over 49 bits of address, 4 KiB a page. Host and device addresses
// share it, as they share one address space. Reading takes no lock. The lower
// level is made where it is needed and kept until the process ends: 512 KiB of
// addresses for each 256 MiB, of which only what is used becomes memory.

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum {
    STK_PAGE_BITS = 12,
    STK_PAGE_LEAF_BITS = 16,
    STK_PAGE_ROOT_BITS = 21,
};
#define STK_PAGE_BYTES ((uint64_t)1 << STK_PAGE_BITS)
#define STK_PAGE_ADDRESSES                                                     \
    ((uint64_t)1 << (STK_PAGE_BITS + STK_PAGE_LEAF_BITS + STK_PAGE_ROOT_BITS))

struct stk_page_leaf {
    _Atomic(void *) value[1 << STK_PAGE_LEAF_BITS];
};
extern __attribute__((visibility("hidden"))) _Atomic(struct stk_page_leaf *)
    stk_page_root[1 << STK_PAGE_ROOT_BITS];

// Set `pages` pages from the one that holds `address`; NULL clears them, which
// cannot fail where a value was set. Pages of one span are set by one thread.
// False, with nothing changed: no memory, or an address beyond
// STK_PAGE_ADDRESSES. Thread: any.
bool stk_page_map_set(uint64_t address, uint64_t pages, void *value);

// The value of the page that holds `address`, or NULL. Thread: any.
static inline void *stk_page_map_get(uint64_t address)
{
    if (address >= STK_PAGE_ADDRESSES)
        return NULL;
    const uint64_t page = address >> STK_PAGE_BITS;
    struct stk_page_leaf *leaf = atomic_load_explicit(
        &stk_page_root[page >> STK_PAGE_LEAF_BITS], memory_order_acquire);
    if (!leaf)
        return NULL;
    return atomic_load_explicit(
        &leaf->value[page & ((1 << STK_PAGE_LEAF_BITS) - 1)],
        memory_order_acquire);
}

#endif  // STK_PAGE_MAP_H
