#include "fake_driver.h"

#include <stdio.h>
#include <string.h>

#include "src/gpu/cuda_abi.h"

#define EXPORT __attribute__((visibility("default")))

#define X(need, name, symbol, params)                                          \
    EXPORT CUresult name params __asm__(symbol);
#include "src/gpu/driver_list.h"
#undef X

EXPORT struct fake fake = { .devices = 2 };

CUresult cuInit(unsigned int flags)
{
    fake.inits++;
    return flags ? CUDA_ERROR_INVALID_VALUE : (CUresult)fake.init;
}

CUresult cuDriverGetVersion(int *version)
{
    *version = 12040;
    return CUDA_SUCCESS;
}

CUresult cuGetErrorName(CUresult result, const char **name)
{
    static const struct {
        int value;
        const char *name;
    } names[] = {
#define X(name, value) { value, #name },
        STK_CU_RESULTS(X)
#undef X
    };
    for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++) {
        if (names[i].value == (int)result) {
            *name = names[i].name;
            return CUDA_SUCCESS;
        }
    }
    *name = NULL;
    return CUDA_ERROR_INVALID_VALUE;
}

CUresult cuGetErrorString(CUresult result, const char **text)
{
    *text = "as the fake says";
    return cuGetErrorName(result, &(const char *){ NULL });
}

CUresult cuDeviceGetCount(int *count)
{
    *count = fake.devices;
    return (CUresult)fake.counted;
}

CUresult cuDeviceGet(CUdevice *device, int ordinal)
{
    if (ordinal < 0 || ordinal >= fake.devices)
        return CUDA_ERROR_INVALID_DEVICE;
    *device = 100 + ordinal;
    return CUDA_SUCCESS;
}

CUresult cuDeviceGetName(char *name, int size, CUdevice device)
{
    snprintf(name, (size_t)size, "Fake %d", device - 100);
    return CUDA_SUCCESS;
}

CUresult cuDeviceGetUuid(CUuuid *uuid, CUdevice device)
{
    for (int i = 0; i < 16; i++)
        uuid->bytes[i] = (char)(0xa0 + i);
    uuid->bytes[15] = (char)(device - 100);
    return CUDA_SUCCESS;
}

CUresult cuDeviceGetAttribute(int *value, CUdevice_attribute attribute,
                              CUdevice device)
{
    *value = (int)attribute + 1000 * (device - 100);
    return CUDA_SUCCESS;
}

CUresult cuDeviceTotalMem(size_t *bytes, CUdevice device)
{
    *bytes = (size_t)(device - 99) << 30;
    return CUDA_SUCCESS;
}

CUresult cuDevicePrimaryCtxRetain(CUcontext *ctx, CUdevice device)
{
    *ctx = (CUcontext)(uintptr_t)device;
    fake.retains += fake.retained == 0;
    return (CUresult)fake.retained;
}

CUresult cuDevicePrimaryCtxRelease(CUdevice device)
{
    fake.releases++;
    return device >= 100 ? CUDA_SUCCESS : CUDA_ERROR_INVALID_DEVICE;
}

CUresult cuDevicePrimaryCtxGetState(CUdevice device, unsigned int *flags,
                                    int *active)
{
    *flags = CU_CTX_SCHED_SPIN;
    *active = fake.retains > fake.releases;
    return device >= 100 ? CUDA_SUCCESS : CUDA_ERROR_INVALID_DEVICE;
}

CUresult cuMemGetInfo(size_t *free_bytes, size_t *total)
{
    *free_bytes = 300;
    *total = 1000;
    return CUDA_SUCCESS;
}

CUresult cuMemGetAllocationGranularity(size_t *granularity,
                                       const CUmemAllocationProp *prop,
                                       CUmemAllocationGranularity_flags option)
{
    (void)option;
    *granularity = 2 << 20;
    return prop->location.id >= 100 ? CUDA_SUCCESS : CUDA_ERROR_INVALID_DEVICE;
}

static _Thread_local CUcontext stack[8];
static _Thread_local unsigned depth;

CUresult cuCtxGetCurrent(CUcontext *ctx)
{
    *ctx = depth ? stack[depth - 1] : NULL;
    return CUDA_SUCCESS;
}

CUresult cuCtxPushCurrent(CUcontext ctx)
{
    if (depth == sizeof(stack) / sizeof(stack[0]))
        return CUDA_ERROR_INVALID_VALUE;
    stack[depth++] = ctx;
    return CUDA_SUCCESS;
}

CUresult cuCtxPopCurrent(CUcontext *ctx)
{
    if (depth == 0)
        return CUDA_ERROR_INVALID_CONTEXT;
    *ctx = stack[--depth];
    return CUDA_SUCCESS;
}

CUresult cuModuleLoadData(CUmodule *module, const void *image)
{
    fake.image = image;
    fake.loads += fake.loaded == 0;
    *module = (CUmodule)(uintptr_t)image;
    return (CUresult)fake.loaded;
}

CUresult cuModuleUnload(CUmodule module)
{
    fake.unloads++;
    return module ? CUDA_SUCCESS : CUDA_ERROR_INVALID_HANDLE;
}

CUresult cuModuleGetFunction(CUfunction *function, CUmodule module,
                             const char *name)
{
    *function = (CUfunction)(uintptr_t)name;
    if (!module)
        return CUDA_ERROR_INVALID_HANDLE;
    return fake.absent && strcmp(name, fake.absent) == 0 ? CUDA_ERROR_NOT_FOUND
                                                         : CUDA_SUCCESS;
}

CUresult cuFuncLoad(CUfunction function)
{
    fake.function_loads++;
    return function ? CUDA_SUCCESS : CUDA_ERROR_INVALID_HANDLE;
}
