// Memory that is shared by descriptors: handed out and taken in.

#include <fcntl.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "api.h"

int emu_file_dup(int fd)
{
    return fcntl(fd, F_DUPFD_CLOEXEC, 0);
}

// The file that holds a range and nothing else; -1: there is none.
static int file_of(const struct emu_device *dev, uint64_t address,
                   uint64_t bytes)
{
    const struct emu_range *block = emu_range_find(&dev->blocks, address);
    if (block && block->use == EMU_RESERVED) {
        const struct emu_range *m = emu_range_find(&dev->mappings, address);
        return m && m->address == address && m->bytes == bytes ? m->physical->fd
                                                               : -1;
    }
    if (!block || !block->shared || block->use != EMU_ALLOCATED)
        return -1;
    const struct emu_range part = emu_exportable(block);
    return part.address == address && part.bytes == bytes ? block->fd : -1;
}

// Whether it got none because the process has too many descriptors.
static bool is_without_file(const struct emu_device *dev, uint64_t address,
                            uint64_t bytes)
{
    const struct emu_range *block = emu_range_find(&dev->blocks, address);
    if (!block || block->shared || block->use != EMU_ALLOCATED ||
        block->bytes % EMU_EXPORT_ALIGN)
        return false;
    const struct emu_range part = emu_exportable(block);
    return part.address == address && part.bytes == bytes;
}

CUresult emu_cuMemGetHandleForAddressRange(void *handle, CUdeviceptr address,
                                           size_t bytes,
                                           CUmemRangeHandleType type,
                                           unsigned long long flags)
{
    CALL call = ENTER(cuMemGetHandleForAddressRange, CONTEXT);
    if (call.result)
        return call.result;
    if (!(emu.dmabuf & PENEMU_EXPORT))
        return CUDA_ERROR_NOT_SUPPORTED;
    if (!handle || type != CU_MEM_RANGE_HANDLE_TYPE_DMA_BUF_FD || flags)
        return MISUSE(cuMemGetHandleForAddressRange, CUDA_ERROR_INVALID_VALUE,
                      "unknown type or flags");
    if (!bytes || bytes % EMU_EXPORT_ALIGN || address % EMU_EXPORT_ALIGN)
        return MISUSE(cuMemGetHandleForAddressRange, CUDA_ERROR_INVALID_VALUE,
                      "address and size must be multiples of 64 KiB");
    const struct emu_device *dev = emu_device_of(address);
    uint64_t from = 0, extent = 0;
    if (!dev || emu_extent(dev, address, &from, &extent) ||
        bytes > extent - (address - from))
        return MISUSE(cuMemGetHandleForAddressRange, CUDA_ERROR_INVALID_VALUE,
                      "not inside device memory");
    const int fd = file_of(dev, address, bytes);
    if (fd < 0 && is_without_file(dev, address, bytes))
        return CUDA_ERROR_OPERATING_SYSTEM;
    if (fd < 0)
        return MISUSE(cuMemGetHandleForAddressRange, CUDA_ERROR_NOT_SUPPORTED,
                      "the emulated device exports all whole 64 KiB of an "
                      "allocation only");
    const int copy = emu_file_dup(fd);
    if (copy < 0)
        return CUDA_ERROR_OPERATING_SYSTEM;
    *(int *)handle = copy;
    return CUDA_SUCCESS;
}

// Bytes behind a descriptor; 0: unknown.
static uint64_t size_of(int fd)
{
    struct stat about;
    if (fstat(fd, &about) == 0 && S_ISREG(about.st_mode))
        return (uint64_t)about.st_size;
    // A DMABUF tells its size by the one seek that it allows.
    const off_t end = lseek(fd, 0, SEEK_END);
    (void)lseek(fd, 0, SEEK_SET);
    return end > 0 ? (uint64_t)end : 0;
}

CUresult
emu_cuImportExternalMemory(CUexternalMemory *memory,
                           const CUDA_EXTERNAL_MEMORY_HANDLE_DESC *what)
{
    CALL call = ENTER(cuImportExternalMemory, CONTEXT);
    if (call.result)
        return call.result;
    if (!memory || !what || what->flags)
        return MISUSE(cuImportExternalMemory, CUDA_ERROR_INVALID_VALUE,
                      "nothing, or unknown flags");
    if (!(emu.dmabuf & PENEMU_IMPORT) ||
        what->type != CU_EXTERNAL_MEMORY_HANDLE_TYPE_DMABUF_FD)
        return CUDA_ERROR_NOT_SUPPORTED;
    const uint64_t size = size_of(what->handle.fd);
    if (!what->size || what->size > size)
        return MISUSE(cuImportExternalMemory, CUDA_ERROR_INVALID_VALUE,
                      "no descriptor of so much memory");
    struct emu_external *made = calloc(1, sizeof(*made));
    if (!made)
        return CUDA_ERROR_OUT_OF_MEMORY;
    *made = (struct emu_external){ emu_file_dup(what->handle.fd), what->size };
    const uint64_t handle =
        made->fd < 0 ? 0 : emu_handle_create(EMU_EXTERNAL, made, call.ctx);
    if (!handle) {
        if (made->fd >= 0)
            close(made->fd);
        free(made);
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    emu.stats.imports++;
    *memory = (CUexternalMemory)(uintptr_t)handle;
    return CUDA_SUCCESS;
}

CUresult emu_cuExternalMemoryGetMappedBuffer(
    CUdeviceptr *address, CUexternalMemory memory,
    const CUDA_EXTERNAL_MEMORY_BUFFER_DESC *what)
{
    CALL call = ENTER(cuExternalMemoryGetMappedBuffer, CONTEXT);
    if (call.result)
        return call.result;
    const struct emu_external *external = emu_handle_find(EMU_EXTERNAL, memory);
    if (!external)
        return MISUSE(cuExternalMemoryGetMappedBuffer,
                      CUDA_ERROR_INVALID_HANDLE, "no such external memory");
    const uint64_t page = (uint64_t)sysconf(_SC_PAGESIZE);
    if (!address || !what || what->flags || !what->size ||
        what->offset % page || what->offset > external->bytes ||
        what->size > external->bytes - what->offset)
        return MISUSE(cuExternalMemoryGetMappedBuffer, CUDA_ERROR_INVALID_VALUE,
                      "not inside the memory, or not from a page on");
    struct emu_device *dev = call.ctx->device;
    struct emu_range block = {
        .bytes = what->size,
        .serial = emu.serial++,
        .ctx = call.ctx,
        .use = EMU_IMPORTED,
        .shared = true,
    };
    // Whole pages, which are nobody else's.
    const uint64_t pages = what->size + (EMU_EXPORT_ALIGN - 1);
    if (!emu_place(dev, pages, EMU_EXPORT_ALIGN, &block.address))
        return CUDA_ERROR_OUT_OF_MEMORY;
    block.fd = emu_file_dup(external->fd);
    if (block.fd < 0)
        return CUDA_ERROR_OUT_OF_MEMORY;
    if (!emu_file_map(dev, &block, block.fd, what->offset,
                      PROT_READ | PROT_WRITE)) {
        close(block.fd);
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    if (!emu_range_insert(&dev->blocks, block)) {
        emu_file_unmap(dev, &block, PROT_READ | PROT_WRITE);
        close(block.fd);
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    emu.stats.imported_buffers++;
    *address = block.address;
    return CUDA_SUCCESS;
}

CUresult emu_cuDestroyExternalMemory(CUexternalMemory memory)
{
    CALL call = ENTER(cuDestroyExternalMemory, CONTEXT);
    struct emu_slot *slot;
    const CUresult result = emu_find_to_destroy(
        EMU_FN_cuDestroyExternalMemory, &call, EMU_EXTERNAL, memory,
        "no such external memory, or destroyed already", &slot);
    if (result)
        return result;
    struct emu_external *external = slot->object;
    emu_handle_destroy((uint64_t)(uintptr_t)memory);
    close(external->fd);
    free(external);
    emu.stats.imports--;
    return CUDA_SUCCESS;
}
