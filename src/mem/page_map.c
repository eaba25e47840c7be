#include "page_map.h"

#include <stdlib.h>

_Atomic(struct stk_page_leaf *) stk_page_root[1 << STK_PAGE_ROOT_BITS];

static struct stk_page_leaf *need_leaf(uint64_t page)
{
    _Atomic(struct stk_page_leaf *) *place =
        &stk_page_root[page >> STK_PAGE_LEAF_BITS];
    struct stk_page_leaf *leaf =
        atomic_load_explicit(place, memory_order_acquire);
    if (leaf)
        return leaf;
    struct stk_page_leaf *fresh = calloc(1, sizeof(*fresh));
    if (!fresh)
        return NULL;
    if (atomic_compare_exchange_strong(place, &leaf, fresh))
        return fresh;
    free(fresh);  // another thread was first
    return leaf;
}

bool stk_page_map_set(uint64_t address, uint64_t pages, void *value)
{
    if (address >= STK_PAGE_ADDRESSES)
        return false;
    const uint64_t first = address >> STK_PAGE_BITS;
    if (pages > (STK_PAGE_ADDRESSES >> STK_PAGE_BITS) - first)
        return false;

    // All leaves before the first change.
    const uint64_t end = first + pages, span = 1 << STK_PAGE_LEAF_BITS;
    for (uint64_t page = first; page < end; page = (page / span + 1) * span) {
        if (!need_leaf(page))
            return false;
    }
    for (uint64_t page = first; page < end; page++) {
        struct stk_page_leaf *leaf = atomic_load_explicit(
            &stk_page_root[page >> STK_PAGE_LEAF_BITS], memory_order_acquire);
        atomic_store_explicit(&leaf->value[page & (span - 1)], value,
                              memory_order_release);
    }
    return true;
}
