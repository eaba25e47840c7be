// Virtual memory: addresses without memory, memory without addresses, and the
// two brought together.

#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

#include "api.h"

static bool whole(uint64_t value)
{
    return value % EMU_GRANULE == 0;
}

// --- memory -----------------------------------------------------------------

void emu_physical_unref(struct emu_physical *physical)
{
    if (--physical->refs)
        return;
    emu_return_memory(physical->device, physical->bytes);
    close(physical->fd);
    free(physical);
}

static bool is_plain(const CUmemAllocationProp *prop)
{
    return prop && prop->type == CU_MEM_ALLOCATION_TYPE_PINNED &&
           prop->requestedHandleTypes == CU_MEM_HANDLE_TYPE_NONE &&
           prop->location.type == CU_MEM_LOCATION_TYPE_DEVICE &&
           emu_device_at(prop->location.id);
}

CUresult
emu_cuMemGetAllocationGranularity(size_t *granularity,
                                  const CUmemAllocationProp *prop,
                                  CUmemAllocationGranularity_flags option)
{
    CALL call = ENTER(cuMemGetAllocationGranularity, STARTED);
    if (call.result)
        return call.result;
    if (!granularity || !is_plain(prop) ||
        (unsigned)option > CU_MEM_ALLOC_GRANULARITY_RECOMMENDED)
        return MISUSE(cuMemGetAllocationGranularity, CUDA_ERROR_INVALID_VALUE,
                      "not pinned memory of a device");
    *granularity = EMU_GRANULE;
    return CUDA_SUCCESS;
}

CUresult emu_cuMemCreate(CUmemGenericAllocationHandle *handle, size_t bytes,
                         const CUmemAllocationProp *prop,
                         unsigned long long flags)
{
    CALL call = ENTER(cuMemCreate, CONTEXT);
    if (call.result)
        return call.result;
    if (!handle || !bytes || flags || !whole(bytes))
        return MISUSE(cuMemCreate, CUDA_ERROR_INVALID_VALUE,
                      "of 0 bytes, of no whole granules or with flags");
    if (!is_plain(prop))
        return MISUSE(cuMemCreate, CUDA_ERROR_INVALID_VALUE,
                      "not pinned memory of a device");
    struct emu_device *dev = emu_device_at(prop->location.id);
    if (!emu_use_memory(dev, bytes))
        return CUDA_ERROR_OUT_OF_MEMORY;
    struct emu_physical *made = calloc(1, sizeof(*made));
    const int fd = made ? emu_file_create(bytes, emu.serial++) : -1;
    uint64_t value = 0;
    if (fd >= 0) {
        *made = (struct emu_physical){ dev, fd, bytes, 1 };
        value = emu_handle_create(EMU_PHYSICAL, made, call.ctx);
    }
    if (!value) {
        if (fd >= 0)
            close(fd);
        free(made);
        emu_return_memory(dev, bytes);
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    *handle = value;
    return CUDA_SUCCESS;
}

CUresult emu_cuMemRelease(CUmemGenericAllocationHandle handle)
{
    CALL call = ENTER(cuMemRelease, CONTEXT);
    struct emu_slot *slot;
    const CUresult result =
        emu_find_to_destroy(EMU_FN_cuMemRelease, &call, EMU_PHYSICAL,
                            (const void *)(uintptr_t)handle,
                            "no such memory, or released already", &slot);
    if (result)
        // What the real driver says of a wrong one.
        return result == CUDA_ERROR_INVALID_HANDLE ? CUDA_ERROR_INVALID_VALUE
                                                   : result;
    struct emu_physical *physical = slot->object;
    emu_handle_destroy(handle);
    emu_physical_unref(physical);
    return CUDA_SUCCESS;
}

// --- addresses --------------------------------------------------------------

CUresult emu_cuMemAddressReserve(CUdeviceptr *address, size_t bytes,
                                 size_t alignment, CUdeviceptr wish,
                                 unsigned long long flags)
{
    (void)wish;  // the driver need not grant it
    CALL call = ENTER(cuMemAddressReserve, CONTEXT);
    if (call.result)
        return call.result;
    if (!address || !bytes || !whole(bytes) || flags ||
        alignment & (alignment - 1))
        return MISUSE(cuMemAddressReserve, CUDA_ERROR_INVALID_VALUE,
                      "of 0 bytes, of no whole granules, with flags or with "
                      "an alignment that is no power of two");
    struct emu_device *dev = call.ctx->device;
    uint64_t at;
    if (alignment < EMU_GRANULE)
        alignment = EMU_GRANULE;
    if (alignment > dev->reserve / 2 || !emu_place(dev, bytes, alignment, &at))
        return CUDA_ERROR_OUT_OF_MEMORY;
    const struct emu_range block = {
        .address = at,
        .bytes = bytes,
        .serial = emu.serial++,
        .ctx = call.ctx,
        .use = EMU_RESERVED,
    };
    if (!emu_range_insert(&dev->blocks, block))
        return CUDA_ERROR_OUT_OF_MEMORY;
    emu_file_unmap(dev, &block, PROT_NONE);
    emu.stats.ranges++;
    *address = at;
    return CUDA_SUCCESS;
}

// The first mapping that begins in a range; NULL: none.
static struct emu_range *mapping_in(const struct emu_device *dev,
                                    uint64_t address, uint64_t bytes)
{
    struct emu_range *mapping = emu_range_from(&dev->mappings, address);
    return mapping && mapping->address - address < bytes ? mapping : NULL;
}

void emu_unreserve(struct emu_device *dev, struct emu_range *block)
{
    emu_file_unmap(dev, block, PROT_READ | PROT_WRITE);
    emu.stats.ranges--;
    emu_range_remove(&dev->blocks, block);
}

CUresult emu_cuMemAddressFree(CUdeviceptr address, size_t bytes)
{
    CALL call = ENTER(cuMemAddressFree, CONTEXT);
    struct emu_device *dev = emu_device_of(address);
    struct emu_range *block =
        dev ? emu_range_find(&dev->blocks, address) : NULL;
    const bool good = block && block->use == EMU_RESERVED &&
                      block->address == address && block->bytes == bytes;
    if (call.result && good)
        block->given_back = true;
    if (call.result)
        return call.result;
    if (!good)
        return MISUSE(cuMemAddressFree, CUDA_ERROR_INVALID_VALUE,
                      "no such reservation, of other size, or freed already");
    const struct emu_range *mapping = mapping_in(dev, address, bytes);
    if (mapping) {
        // No leak either if it was unmapping that had been refused.
        block->given_back = mapping->given_back;
        return MISUSE(cuMemAddressFree, CUDA_ERROR_INVALID_VALUE,
                      "memory is still mapped there");
    }
    emu_unreserve(dev, block);
    return CUDA_SUCCESS;
}

// --- both together ----------------------------------------------------------

CUresult emu_cuMemMap(CUdeviceptr address, size_t bytes, size_t offset,
                      CUmemGenericAllocationHandle handle,
                      unsigned long long flags)
{
    CALL call = ENTER(cuMemMap, CONTEXT);
    if (call.result)
        return call.result;
    struct emu_physical *physical =
        emu_handle_find(EMU_PHYSICAL, (const void *)(uintptr_t)handle);
    struct emu_device *dev = emu_device_of(address);
    const struct emu_range *block =
        dev ? emu_range_find(&dev->blocks, address) : NULL;
    if (!physical || offset || flags || !bytes)
        return MISUSE(cuMemMap, CUDA_ERROR_INVALID_VALUE,
                      "no such memory, from an offset or with flags");
    if (!block || block->use != EMU_RESERVED || !whole(address) ||
        bytes > block->bytes - (address - block->address))
        return MISUSE(cuMemMap, CUDA_ERROR_INVALID_VALUE,
                      "not at a granule of reserved addresses");
    if (bytes != physical->bytes)
        return MISUSE(cuMemMap, CUDA_ERROR_NOT_SUPPORTED,
                      "not all of the memory, or more than it is");
    if (emu_range_find(&dev->mappings, address) ||
        mapping_in(dev, address, bytes))
        return MISUSE(cuMemMap, CUDA_ERROR_INVALID_VALUE,
                      "something is mapped there already");
    const struct emu_range mapping = {
        .address = address,
        .bytes = bytes,
        .ctx = call.ctx,
        .use = EMU_MAPPED,
        .physical = physical,
    };
    if (!emu_range_insert(&dev->mappings, mapping))
        return CUDA_ERROR_OUT_OF_MEMORY;
    if (!emu_file_map(dev, &mapping, physical->fd, 0, PROT_NONE)) {
        emu_range_remove(&dev->mappings,
                         emu_range_find(&dev->mappings, address));
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    physical->refs++;
    emu.stats.mappings++;
    return CUDA_SUCCESS;
}

void emu_unmap(struct emu_device *dev, struct emu_range *mapping)
{
    emu_file_unmap(dev, mapping, PROT_NONE);
    emu_physical_unref(mapping->physical);
    emu.stats.mappings--;
    emu_range_remove(&dev->mappings, mapping);
}

// Whether a range is nothing but whole mappings, without a hole.
static bool is_whole_mappings(const struct emu_device *dev, uint64_t address,
                              uint64_t bytes)
{
    const uint64_t end = address + bytes;
    while (address != end) {
        const struct emu_range *m = emu_range_find(&dev->mappings, address);
        if (!m || m->address != address || m->bytes > end - address)
            return false;
        address += m->bytes;
    }
    return bytes != 0;
}

static bool overlaps(const char *bytes, size_t pitch, const struct emu_op *op,
                     const char *from, uint64_t size)
{
    const size_t span =
        op->rows ? (op->rows - 1) * pitch + op->row_bytes : op->row_bytes;
    return bytes && bytes < from + size && from < bytes + span;
}

// A driver need not wait before it unmaps, and what is queued then reads and
// writes where nothing is. Of copies and fills that is seen here; kernels are
// waited for, since nobody knows what they use.
static CUresult finish_users(struct emu_context *ctx, const char *from,
                             uint64_t size)
{
    bool kernels = false, used = false;
    for (const struct emu_stream *s = ctx->streams; s; s = s->next) {
        for (const struct emu_op *op = s->first; op; op = op->next) {
            kernels |= op->kind == EMU_OP_LAUNCH;
            used |= (op->kind == EMU_OP_COPY || op->kind == EMU_OP_FILL) &&
                    (overlaps(op->dst, op->dst_pitch, op, from, size) ||
                     overlaps(op->src, op->src_pitch, op, from, size));
        }
    }
    if (used) {
        emu_report("cuMemUnmap: queued work still uses the memory");
        emu_context_break(ctx, CUDA_ERROR_ILLEGAL_ADDRESS);
    }
    return used || kernels ? emu_wait_to_free(ctx) : CUDA_SUCCESS;
}

CUresult emu_cuMemUnmap(CUdeviceptr address, size_t bytes)
{
    CALL call = ENTER(cuMemUnmap, CONTEXT);
    struct emu_device *dev = emu_device_of(address);
    CUresult result = call.result;
    if (!dev || !is_whole_mappings(dev, address, bytes))
        return result ? result
                      : MISUSE(cuMemUnmap, CUDA_ERROR_INVALID_VALUE,
                               "not the whole of what was mapped there");
    if (!result)
        result = finish_users(call.ctx, emu_bytes_of(dev, address), bytes);
    // Others may have unmapped it while this call waited.
    for (uint64_t at = address; at != address + bytes;) {
        struct emu_range *mapping = emu_range_find(&dev->mappings, at);
        if (!mapping)
            break;
        at += mapping->bytes;
        if (result)
            mapping->given_back = true;
        else
            emu_unmap(dev, mapping);
    }
    return result;
}

static bool protection_of(CUmemAccess_flags flags, int *protection)
{
    switch (flags) {
    case CU_MEM_ACCESS_FLAGS_PROT_NONE:
        *protection = PROT_NONE;
        return true;
    case CU_MEM_ACCESS_FLAGS_PROT_READ:
        *protection = PROT_READ;
        return true;
    case CU_MEM_ACCESS_FLAGS_PROT_READWRITE:
        *protection = PROT_READ | PROT_WRITE;
        return true;
    }
    return false;
}

CUresult emu_cuMemSetAccess(CUdeviceptr address, size_t bytes,
                            const CUmemAccessDesc *access, size_t count)
{
    CALL call = ENTER(cuMemSetAccess, CONTEXT);
    if (call.result)
        return call.result;
    struct emu_device *dev = emu_device_of(address);
    int protection;
    if (!access || count != 1 ||
        access->location.type != CU_MEM_LOCATION_TYPE_DEVICE ||
        !protection_of(access->flags, &protection))
        return MISUSE(cuMemSetAccess, CUDA_ERROR_INVALID_VALUE,
                      "unknown access");
    if (!dev || !is_whole_mappings(dev, address, bytes))
        return MISUSE(cuMemSetAccess, CUDA_ERROR_INVALID_VALUE,
                      "not the whole of what is mapped there");
    if (emu_device_at(access->location.id) != dev)
        return MISUSE(cuMemSetAccess, CUDA_ERROR_NOT_SUPPORTED,
                      "emulated devices have no access to each other");
    if (mprotect(emu_bytes_of(dev, address), bytes, protection) != 0)
        return CUDA_ERROR_OUT_OF_MEMORY;
    struct emu_range *mapping = mapping_in(dev, address, bytes);
    for (; mapping;
         mapping = mapping_in(dev, mapping->address + 1,
                              address + bytes - mapping->address - 1))
        mapping->accessible = access->flags != CU_MEM_ACCESS_FLAGS_PROT_NONE;
    return CUDA_SUCCESS;
}
