// Driver functions of modules and launches.

#include <stdlib.h>
#include <string.h>

#include "api.h"

// --- modules and launches ---------------------------------------------------

CUresult emu_cuModuleLoadData(CUmodule *module, const void *image)
{
    CALL call = ENTER(cuModuleLoadData, CONTEXT);
    if (call.result)
        return call.result;
    if (!module || !image)
        return MISUSE(cuModuleLoadData, CUDA_ERROR_INVALID_VALUE,
                      "the image is NULL");
    const CUresult result = emu_image_check(image);
    if (result)
        return result;
    struct emu_module *made = calloc(1, sizeof(*made));
    if (!made)
        return CUDA_ERROR_OUT_OF_MEMORY;
    made->image = image;
    const uint64_t handle = emu_handle_create(EMU_MODULE, made, call.ctx);
    if (!handle) {
        free(made);
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    emu.stats.modules++;
    *module = (CUmodule)(uintptr_t)handle;
    return CUDA_SUCCESS;
}

CUresult emu_cuModuleUnload(CUmodule module)
{
    CALL call = ENTER(cuModuleUnload, CONTEXT);
    struct emu_slot *slot = emu_handle_slot(EMU_MODULE, module);
    CUresult result = call.result;
    if (!slot)
        return result ? result
                      : MISUSE(cuModuleUnload, CUDA_ERROR_INVALID_HANDLE,
                               "no such module, or unloaded already");
    // Queued launches would run code that is gone.
    if (!result)
        result = emu_wait_to_free(slot->ctx);
    slot = emu_handle_slot(EMU_MODULE, module);
    if (slot && result) {
        slot->given_back = true;
    } else if (slot) {
        struct emu_module *gone = slot->object;
        for (size_t i = 0; i < PEN_MAX_KERNELS; i++) {
            if (!gone->functions[i])
                continue;
            free(emu_handle_find(EMU_FUNCTION,
                                 (void *)(uintptr_t)gone->functions[i]));
            emu_handle_destroy(gone->functions[i]);
        }
        emu_handle_destroy((uint64_t)(uintptr_t)module);
        free(gone);
        emu.stats.modules--;
    }
    return result;
}

CUresult emu_cuModuleGetFunction(CUfunction *function, CUmodule module,
                                 const char *name)
{
    CALL call = ENTER(cuModuleGetFunction, CONTEXT);
    if (call.result)
        return call.result;
    if (!function || !name)
        return CUDA_ERROR_INVALID_VALUE;
    const struct emu_slot *slot = emu_handle_slot(EMU_MODULE, module);
    if (!slot)
        return MISUSE(cuModuleGetFunction, CUDA_ERROR_INVALID_HANDLE,
                      "no such module");
    struct emu_module *found = slot->object;
    const struct pen_kernel_image *image = found->image;
    uint32_t i = 0;
    while (i < image->count && strcmp(image->entries[i].name, name) != 0)
        i++;
    if (i == image->count)
        return CUDA_ERROR_NOT_FOUND;
    if (!found->functions[i]) {
        struct emu_function *made = calloc(1, sizeof(*made));
        if (!made)
            return CUDA_ERROR_OUT_OF_MEMORY;
        made->entry = &image->entries[i];
        found->functions[i] = emu_handle_create(EMU_FUNCTION, made, slot->ctx);
        if (!found->functions[i]) {
            free(made);
            return CUDA_ERROR_OUT_OF_MEMORY;
        }
    }
    *function = (CUfunction)(uintptr_t)found->functions[i];
    return CUDA_SUCCESS;
}

CUresult emu_cuFuncLoad(CUfunction function)
{
    CALL call = ENTER(cuFuncLoad, CONTEXT);
    if (call.result)
        return call.result;
    if (!emu_handle_slot(EMU_FUNCTION, function))
        return MISUSE(cuFuncLoad, CUDA_ERROR_INVALID_HANDLE,
                      "no such function");
    return CUDA_SUCCESS;
}

CUresult emu_cuLaunchKernel(CUfunction function, unsigned int grid_x,
                            unsigned int grid_y, unsigned int grid_z,
                            unsigned int block_x, unsigned int block_y,
                            unsigned int block_z, unsigned int shared_bytes,
                            CUstream handle, void **params, void **extra)
{
    CALL call = ENTER(cuLaunchKernel, CONTEXT);
    if (call.result)
        return call.result;
    const struct emu_slot *slot = emu_handle_slot(EMU_FUNCTION, function);
    if (!slot)
        return MISUSE(cuLaunchKernel, CUDA_ERROR_INVALID_HANDLE,
                      "no such function");
    struct emu_stream *stream;
    const CUresult result =
        emu_find_stream(EMU_FN_cuLaunchKernel, call.ctx, handle, &stream);
    if (result)
        return result;
    if (slot->ctx != call.ctx || stream->ctx != call.ctx)
        return MISUSE(cuLaunchKernel, CUDA_ERROR_INVALID_HANDLE,
                      "function, stream and current context do not belong "
                      "together");
    if (!grid_x || !grid_y || !grid_z || grid_x > INT32_MAX || grid_y > 65535 ||
        grid_z > 65535)
        return MISUSE(cuLaunchKernel, CUDA_ERROR_INVALID_VALUE,
                      "a grid of 0 or too many blocks");
    if (!block_x || !block_y || !block_z || block_z > 64 ||
        (uint64_t)block_x * block_y > 1024 / block_z)
        return MISUSE(cuLaunchKernel, CUDA_ERROR_INVALID_VALUE,
                      "a block of 0 or more than 1024 threads");
    if (shared_bytes > 49152)
        return MISUSE(cuLaunchKernel, CUDA_ERROR_INVALID_VALUE,
                      "more than 48 KiB of shared memory");
    if (block_z != 1 || extra)
        return MISUSE(cuLaunchKernel, CUDA_ERROR_NOT_SUPPORTED,
                      "the kernel dialect has flat blocks and takes its "
                      "arguments by params");
    const struct pen_kernel_entry *entry =
        ((const struct emu_function *)slot->object)->entry;
    if (entry->args_size && (!params || !params[0]))
        return MISUSE(cuLaunchKernel, CUDA_ERROR_INVALID_VALUE,
                      "the argument block is missing");

    struct emu_op *op = emu_op_create(EMU_OP_LAUNCH);
    if (op)
        op->args = malloc(entry->args_size ? entry->args_size : 1);
    if (!op || !op->args) {
        emu_op_destroy(op);
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    if (entry->args_size)
        memcpy(op->args, params[0], entry->args_size);
    op->kernel = entry->name;
    op->run = entry->host_v3 && !emu.base_cpu && emu.cpu_v3 ? entry->host_v3
                                                            : entry->host;
    op->grid[0] = grid_x;
    op->grid[1] = grid_y;
    op->grid[2] = grid_z;
    op->block[0] = block_x;
    op->block[1] = block_y;
    emu.stats.launches++;
    return emu_enqueue(stream, op);
}
