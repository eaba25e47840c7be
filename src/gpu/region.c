// Device memory that grows without moving: addresses are reserved once, and
// each growth maps one more piece of memory behind the last.

#include <stdlib.h>

#include "driver.h"
#include "stream.h"

// What one call added.
struct piece {
    struct piece *next;  // the one before it
    size_t from, bytes;  // of the region, as asked for and in the ledger
    size_t map_from, map_bytes;  // 0: the rest of the last granule sufficed
};

struct stk_region {
    struct pen_device *dev;
    CUdeviceptr address;
    size_t reserved, mapped, bytes;
    struct piece *last;
};

static CUmemAllocationProp memory_of(const struct pen_device *dev)
{
    return (CUmemAllocationProp){
        .type = CU_MEM_ALLOCATION_TYPE_PINNED,
        .location = { CU_MEM_LOCATION_TYPE_DEVICE, dev->device },
    };
}

enum pen_status stk_region_ask(struct pen_device *dev, struct pen_error *err)
{
    const CUmemAllocationProp memory = memory_of(dev);
    struct pen_error why = { 0 };
    const enum pen_status status = STK_CU(
        dev, &why,
        cuMemGetAllocationGranularity(&dev->granularity, &memory,
                                      CU_MEM_ALLOC_GRANULARITY_RECOMMENDED));
    if (status == PEN_OK)
        return PEN_OK;
    dev->granularity = 0;
    if (status == PEN_E_LOST) {
        if (err)
            *err = why;
        return status;
    }
    pen_log_write(dev->log, PEN_LOG_WARN, "pen.gpu",
                  "%s: no memory that grows in place: %s", dev->where,
                  why.text);
    return PEN_OK;
}

bool stk_region_possible(const struct pen_device *dev)
{
    return dev->granularity != 0;
}

size_t stk_region_granularity(const struct pen_device *dev)
{
    return dev->granularity;
}

uint64_t stk_region_address(const struct stk_region *region)
{
    return region->address;
}

size_t stk_region_bytes(const struct stk_region *region)
{
    return region->bytes;
}

size_t stk_region_reserved(const struct stk_region *region)
{
    return region->reserved;
}

// --- growing ----------------------------------------------------------------

struct attempt {
    CUdeviceptr address;
    size_t bytes;
    struct stk_want *want;  // its call is the one that was made last
};

// Memory for some addresses, with access. All or nothing.
static enum pen_status map_piece(struct pen_device *dev, void *cookie,
                                 struct pen_error *err)
{
    const struct attempt *a = cookie;
    if (!a->bytes)
        return PEN_OK;
    const CUmemAllocationProp memory = memory_of(dev);
    const CUmemAccessDesc access = { memory.location,
                                     CU_MEM_ACCESS_FLAGS_PROT_READWRITE };
    CUmemGenericAllocationHandle handle = 0;
    a->want->call = "cuMemCreate";
    PEN_TRY(STK_CU(dev, err, cuMemCreate(&handle, a->bytes, &memory, 0)));
    a->want->call = "cuMemMap";
    enum pen_status status =
        STK_CU(dev, err, cuMemMap(a->address, a->bytes, 0, handle, 0));
    if (status == PEN_OK) {
        a->want->call = "cuMemSetAccess";
        status =
            STK_CU(dev, err, cuMemSetAccess(a->address, a->bytes, &access, 1));
        if (status != PEN_OK)
            STK_CU_END(dev, cuMemUnmap(a->address, a->bytes));
    }
    // What is mapped keeps its memory.
    STK_CU_END(dev, cuMemRelease(handle));
    return status;
}

// To `bytes`, which the reserve allows, with the context current.
static enum pen_status add_piece(struct stk_region *r, size_t bytes,
                                 const char *owner, const char *site,
                                 struct pen_error *err)
{
    struct pen_device *dev = r->dev;
    struct piece *piece = malloc(sizeof(*piece));
    if (!piece)
        return pen_error_set(err, PEN_E_NOMEM, 0, dev->where,
                             "no memory to remember a part of a region");
    const size_t granules = (bytes - 1) / dev->granularity + 1;
    *piece = (struct piece){
        .next = r->last,
        .from = r->bytes,
        .bytes = bytes - r->bytes,
        .map_from = r->mapped,
        .map_bytes = granules * dev->granularity - r->mapped,
    };
    struct stk_want want = {
        .none = "CUDA_ERROR_OUT_OF_MEMORY",
        .status = PEN_E_DEVMEM,
        .res = STK_RES_CUDA_DEVICE,
        .bytes = piece->bytes,
        .owner = owner,
    };
    struct attempt a = { r->address + piece->map_from, piece->map_bytes,
                         &want };
    const enum pen_status status =
        stk_memory_get(dev, &want, map_piece, &a, err);
    if (status != PEN_OK) {
        free(piece);
        return status;
    }
    stk_ledger_enter(dev->ledger, STK_RES_CUDA_DEVICE, r->address + piece->from,
                     piece->bytes, owner, site);
    r->last = piece;
    r->bytes = bytes;
    r->mapped += piece->map_bytes;
    return PEN_OK;
}

enum pen_status stk_region_grow(struct stk_region *region, size_t bytes,
                                const char *owner, const char *site,
                                struct pen_error *err)
{
    struct pen_device *dev = region->dev;
    if (bytes <= region->bytes)
        return pen_error_set(err, PEN_E_ARG, 0, dev->where,
                             "a region of %zu bytes cannot grow to %zu",
                             region->bytes, bytes);
    if (bytes > region->reserved)
        return pen_error_set(err, PEN_E_LIMIT, 0, dev->where,
                             "a region with addresses for %zu bytes cannot "
                             "grow to %zu: reserve more when it is made",
                             region->reserved, bytes);
    STK_SCOPE scope = { 0 };
    PEN_TRY(stk_scope_enter(&scope, dev, err));
    return add_piece(region, bytes, owner, site, err);
}

// --- making and destroying --------------------------------------------------

static void free_addresses(struct stk_region *r)
{
    stk_ledger_remove(r->dev->ledger, STK_RES_MAPPING, r->address, 0);
    STK_CU_END(r->dev, cuMemAddressFree(r->address, r->reserved));
}

static enum pen_status fill(struct stk_region *r, size_t bytes, size_t reserve,
                            const char *owner, const char *site,
                            struct pen_error *err)
{
    struct pen_device *dev = r->dev;
    STK_SCOPE scope = { 0 };
    PEN_TRY(stk_scope_enter(&scope, dev, err));
    const enum pen_status status =
        STK_CU(dev, err, cuMemAddressReserve(&r->address, reserve, 0, 0, 0));
    if (status == PEN_E_DEVMEM) {
        char text[32];
        stk_format_size(reserve, text, sizeof(text));
        return pen_error_set(err, PEN_E_DEVMEM, CUDA_ERROR_OUT_OF_MEMORY,
                             dev->where,
                             "cuMemAddressReserve of %s for %s: "
                             "CUDA_ERROR_OUT_OF_MEMORY, there are not so many "
                             "addresses in one piece",
                             text, owner ? owner : "nobody");
    }
    PEN_TRY(status);
    r->reserved = reserve;
    stk_ledger_add(dev->ledger, STK_RES_MAPPING, r->address, 0, owner, site);
    const enum pen_status filled = add_piece(r, bytes, owner, site, err);
    if (filled != PEN_OK)
        free_addresses(r);
    return filled;
}

enum pen_status stk_region_create(struct pen_device *dev, size_t bytes,
                                  size_t reserve, const char *owner,
                                  const char *site, struct stk_region **out,
                                  struct pen_error *err)
{
    *out = NULL;
    if (!dev->granularity)
        return pen_error_set(err, PEN_E_UNSUPPORTED, 0, dev->where,
                             "the driver has no memory that grows in place");
    size_t rounded;
    if (bytes == 0 || bytes > reserve ||
        !stk_align(reserve, dev->granularity, &rounded))
        return pen_error_set(err, PEN_E_ARG, 0, dev->where,
                             "a region of %zu bytes with addresses for %zu was "
                             "asked for",
                             bytes, reserve);
    struct stk_region *r = calloc(1, sizeof(*r));
    if (!r)
        return pen_error_set(err, PEN_E_NOMEM, 0, dev->where,
                             "no memory for a region");
    r->dev = dev;
    const enum pen_status status = fill(r, bytes, rounded, owner, site, err);
    if (status != PEN_OK) {
        free(r);
        return status;
    }
    *out = r;
    return PEN_OK;
}

void stk_region_destroy(struct stk_region **region)
{
    struct stk_region *r = *region;
    *region = NULL;
    if (!r)
        return;
    struct pen_device *dev = r->dev;
    STK_SCOPE scope = { 0 };
    if (!stk_forked) {
        stk_scope_enter_end(&scope, dev);
        if (stk_wait_wanted(STK_WAIT_UNMAP))
            STK_CU_END(dev, cuCtxSynchronize());
    }
    while (r->last) {
        struct piece *piece = r->last;
        r->last = piece->next;
        if (!stk_forked)
            stk_ledger_remove(dev->ledger, STK_RES_CUDA_DEVICE,
                              r->address + piece->from, piece->bytes);
        // Only whole pieces can be unmapped.
        if (piece->map_bytes)
            STK_CU_END(dev, cuMemUnmap(r->address + piece->map_from,
                                       piece->map_bytes));
        free(piece);
    }
    if (!stk_forked)
        free_addresses(r);
    free(r);
}
