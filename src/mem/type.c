#include "type.h"

#include <stdlib.h>

#include "../base/str.h"
#include "dmabuf.h"

enum { HOST_ALIGN = 64, PAGE = 4096 };

// --- HOST -------------------------------------------------------------------

static enum pen_status host_alloc(const struct stk_mem_source *source,
                                  size_t bytes, struct stk_block *out,
                                  struct pen_error *err)
{
    *out = (struct stk_block){ 0 };
    PEN_TRY(stk_ledger_reserve(source->ledger, STK_RES_HOST, bytes,
                               source->owner, err));
    // Whole pages for pictures: registration and direct I/O want them.
    const size_t align = bytes >= PAGE ? PAGE : HOST_ALIGN;
    size_t size = 0;
    void *memory = NULL;
    // The sanitizers' allocators end the program over what no object can have.
    if (stk_align(bytes, align, &size) && size <= PTRDIFF_MAX)
        memory = aligned_alloc(align, size);
    if (!memory) {
        char text[32];
        stk_ledger_cancel(source->ledger, STK_RES_HOST, bytes);
        stk_format_size(bytes, text, sizeof(text));
        return pen_error_set(err, PEN_E_NOMEM, 0, source->owner,
                             "no host memory for a block of %zu bytes (%s)",
                             bytes, text);
    }
    out->host = memory;
    out->address = (uint64_t)(uintptr_t)memory;
    out->bytes = bytes;
    stk_ledger_enter(source->ledger, STK_RES_HOST, out->address, bytes,
                     source->owner, PEN_HERE);
    return PEN_OK;
}

static void host_free(const struct stk_mem_source *source,
                      struct stk_block *block)
{
    if (!block->bytes)
        return;
    stk_ledger_remove(source->ledger, STK_RES_HOST, block->address,
                      block->bytes);
    free(block->host);
    *block = (struct stk_block){ 0 };
}

// --- HOST_PINNED ------------------------------------------------------------

static enum pen_status pinned_alloc(const struct stk_mem_source *source,
                                    size_t bytes, struct stk_block *out,
                                    struct pen_error *err)
{
    *out = (struct stk_block){ 0 };
    PEN_TRY(stk_pinned_alloc(source->dev, bytes, source->owner, PEN_HERE,
                             &out->host, err));
    out->address = (uint64_t)(uintptr_t)out->host;
    out->bytes = bytes;
    out->on_stream = true;
    return PEN_OK;
}

static void pinned_free(const struct stk_mem_source *source,
                        struct stk_block *block)
{
    if (!block->bytes)
        return;
    stk_pinned_free(source->dev, block->host, block->bytes);
    *block = (struct stk_block){ 0 };
}

// --- CUDA_DEVICE ------------------------------------------------------------

// Memory that shall grow where it lies comes in the driver's granules: only for
// blocks of which rounding wastes no more than an eighth.
static bool as_region(const struct stk_mem_source *source, size_t bytes)
{
    size_t whole = 0;
    return source->reserve > bytes && stk_region_possible(source->dev) &&
           stk_align(bytes, stk_region_granularity(source->dev), &whole) &&
           whole - bytes <= whole / 8;
}

static enum pen_status device_alloc(const struct stk_mem_source *source,
                                    size_t bytes, struct stk_block *out,
                                    struct pen_error *err)
{
    *out = (struct stk_block){ 0 };
    if (as_region(source, bytes)) {
        PEN_TRY(stk_region_create(source->dev, bytes, source->reserve,
                                  source->owner, PEN_HERE, &out->region, err));
        out->address = stk_region_address(out->region);
    } else {
        PEN_TRY(stk_device_alloc(source->dev, bytes, source->owner, PEN_HERE,
                                 &out->address, err));
    }
    out->bytes = bytes;
    out->on_stream = true;
    return PEN_OK;
}

static void device_free(const struct stk_mem_source *source,
                        struct stk_block *block)
{
    if (block->region)
        stk_region_destroy(&block->region);
    else if (block->bytes)
        stk_device_free(source->dev, block->address, block->bytes);
    *block = (struct stk_block){ 0 };
}

static enum pen_status device_grow(const struct stk_mem_source *source,
                                   size_t bytes, struct stk_block *block,
                                   struct pen_error *err)
{
    if (!block->region)
        return pen_error_set(err, PEN_E_UNSUPPORTED, 0, source->owner,
                             "a block of %zu bytes was made without addresses "
                             "to grow into",
                             block->bytes);
    PEN_TRY(
        stk_region_grow(block->region, bytes, source->owner, PEN_HERE, err));
    block->bytes = bytes;
    return PEN_OK;
}

static const struct stk_mem_type types[] = {
    {
        .type = PEN_MEM_HOST,
        .caps = STK_MEM_MAP,
        .alloc = host_alloc,
        .free = host_free,
    },
    {
        .type = PEN_MEM_HOST_PINNED,
        .caps = STK_MEM_MAP,
        .needs_device = true,
        .alloc = pinned_alloc,
        .free = pinned_free,
    },
    {
        .type = PEN_MEM_CUDA_DEVICE,
        .caps = STK_MEM_GROW,
        .needs_device = true,
        .alloc = device_alloc,
        .free = device_free,
        .grow = device_grow,
    },
    {
        .type = PEN_MEM_DMABUF,
        .caps = STK_MEM_MAP,
        .alloc = stk_dmabuf_alloc,
        .free = stk_dmabuf_free,
        .sync = stk_dmabuf_sync,
    },
};

const struct stk_mem_type *stk_mem_type(enum pen_mem_type type)
{
    for (size_t i = 0; i < sizeof(types) / sizeof(types[0]); i++) {
        if (types[i].type == type)
            return &types[i];
    }
    return NULL;
}
