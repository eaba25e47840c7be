// Driver functions of device memory and of pinned host memory.

#include <sys/mman.h>
#include <unistd.h>

#include "api.h"

CUresult emu_wait_to_free(struct emu_context *ctx)
{
    bool waited;
    const CUresult result = emu_context_wait(ctx, &waited);
    emu.stats.waits += waited;
    emu.stats.frees_waited += waited;
    return result;
}

// --- memory -----------------------------------------------------------------

CUresult emu_cuMemGetInfo(size_t *free_bytes, size_t *total)
{
    CALL call = ENTER(cuMemGetInfo, CONTEXT);
    if (call.result)
        return call.result;
    if (!free_bytes || !total)
        return CUDA_ERROR_INVALID_VALUE;
    const uint64_t used = call.ctx->device->used;
    *free_bytes = used < emu.memory ? emu.memory - used : 0;
    *total = emu.memory;
    return CUDA_SUCCESS;
}

CUresult emu_cuMemAlloc(CUdeviceptr *address, size_t bytes)
{
    CALL call = ENTER(cuMemAlloc, CONTEXT);
    if (call.result)
        return call.result;
    if (!address || !bytes)
        return MISUSE(cuMemAlloc, CUDA_ERROR_INVALID_VALUE, "of 0 bytes");
    return emu_device_alloc(call.ctx, bytes, address);
}

static struct emu_range *device_block(uint64_t address, struct emu_device **dev)
{
    for (int i = 0; i < EMU_MAX_DEVICES; i++) {
        *dev = &emu.device[i];
        struct emu_range *block = emu_range_find(&(*dev)->blocks, address);
        if (block && block->address == address && block->use != EMU_RESERVED)
            return block;
    }
    return NULL;
}

CUresult emu_cuMemFree(CUdeviceptr address)
{
    CALL call = ENTER(cuMemFree, CONTEXT);
    struct emu_device *dev;
    struct emu_range *block = device_block(address, &dev);
    CUresult result = call.result;
    if (!block)
        return result ? result
                      : MISUSE(cuMemFree, CUDA_ERROR_INVALID_VALUE,
                               "no such allocation, or freed already");
    if (!result)
        result = emu_wait_to_free(block->ctx);
    // Others may have allocated and freed while this call waited.
    block = device_block(address, &dev);
    if (block && result)
        block->given_back = true;
    else if (block)
        emu_device_free(dev, block);
    return result;
}

CUresult emu_cuMemHostAlloc(void **memory, size_t bytes, unsigned int flags)
{
    CALL call = ENTER(cuMemHostAlloc, CONTEXT);
    if (call.result)
        return call.result;
    const unsigned known = CU_MEMHOSTALLOC_PORTABLE |
                           CU_MEMHOSTALLOC_DEVICEMAP |
                           CU_MEMHOSTALLOC_WRITECOMBINED;
    if (!memory || !bytes || flags & ~known)
        return MISUSE(cuMemHostAlloc, CUDA_ERROR_INVALID_VALUE,
                      "of 0 bytes or with unknown flags");
    return emu_pinned_alloc(call.ctx, bytes, memory);
}

static struct emu_range *pinned_block(const void *memory, enum emu_use use)
{
    const uint64_t address = (uint64_t)(uintptr_t)memory;
    struct emu_range *block = emu_range_find(&emu.pinned, address);
    return block && block->address == address && block->use == use ? block
                                                                   : NULL;
}

// Free a block of host memory or let go of it, once all that may use it is
// done. `none` is what is wrong if there is no such block, which then is
// answered by `result_none`.
static CUresult free_host(enum emu_fn fn, const struct call *call,
                          const void *memory, enum emu_use use,
                          CUresult result_none, const char *none)
{
    struct emu_range *block = pinned_block(memory, use);
    CUresult result = call->result;
    if (!block)
        return result ? result : emu_misuse(fn, result_none, none);
    if (!result)
        result = emu_wait_to_free(block->ctx);
    block = pinned_block(memory, use);
    if (block && result)
        block->given_back = true;
    else if (block)
        emu_pinned_free(block);
    return result;
}

CUresult emu_cuMemFreeHost(void *memory)
{
    CALL call = ENTER(cuMemFreeHost, CONTEXT);
    return free_host(EMU_FN_cuMemFreeHost, &call, memory, EMU_ALLOCATED,
                     CUDA_ERROR_INVALID_VALUE,
                     "no such allocation, or freed already");
}

// --- host memory of the program's own ---------------------------------------

// Whether all of it is there.
static bool is_mapped(const void *memory, size_t bytes)
{
    const uintptr_t page = (uintptr_t)sysconf(_SC_PAGESIZE);
    const uintptr_t from = (uintptr_t)memory / page * page;
    const uintptr_t to = (uintptr_t)memory + bytes;
    unsigned char there[1024];
    for (uintptr_t at = from; at < to; at += sizeof(there) * page) {
        const size_t left = to - at;
        const size_t most = sizeof(there) * page;
        if (mincore((void *)at, left < most ? left : most, there) != 0)
            return false;
    }
    return true;
}

CUresult emu_cuMemHostRegister(void *memory, size_t bytes, unsigned int flags)
{
    CALL call = ENTER(cuMemHostRegister, CONTEXT);
    if (call.result)
        return call.result;
    const unsigned known =
        CU_MEMHOSTREGISTER_PORTABLE | CU_MEMHOSTREGISTER_DEVICEMAP;
    const uint64_t address = (uint64_t)(uintptr_t)memory;
    if (!memory || !bytes || flags & ~known || address + bytes < address)
        return MISUSE(cuMemHostRegister, CUDA_ERROR_INVALID_VALUE,
                      "of 0 bytes or with unknown flags");
    if (emu_device_of(address))
        return MISUSE(cuMemHostRegister, CUDA_ERROR_INVALID_VALUE,
                      "device memory");
    const struct emu_range *next = emu_range_from(&emu.pinned, address);
    if (emu_range_find(&emu.pinned, address) ||
        (next && next->address - address < bytes))
        return MISUSE(cuMemHostRegister,
                      CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED,
                      "a part is pinned or registered already");
    if (!is_mapped(memory, bytes))
        return MISUSE(cuMemHostRegister, CUDA_ERROR_INVALID_VALUE,
                      "a part is not mapped");
    const struct emu_range block = {
        .address = address,
        .bytes = bytes,
        .serial = emu.serial++,
        .ctx = call.ctx,
        .use = EMU_REGISTERED,
    };
    if (!emu_range_insert(&emu.pinned, block))
        return CUDA_ERROR_OUT_OF_MEMORY;
    emu.stats.registrations++;
    return CUDA_SUCCESS;
}

CUresult emu_cuMemHostUnregister(void *memory)
{
    CALL call = ENTER(cuMemHostUnregister, CONTEXT);
    return free_host(EMU_FN_cuMemHostUnregister, &call, memory, EMU_REGISTERED,
                     CUDA_ERROR_HOST_MEMORY_NOT_REGISTERED,
                     "nothing is registered there");
}
