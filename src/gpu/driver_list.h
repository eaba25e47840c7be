// The driver functions this library uses: one line each, and nowhere else.
//   need    MUST: no device without it. MAY: check the pointer before use.
//   name    as in cuda.h, without version suffix
//   symbol  as exported by the driver, with version suffix
// Contexts are never created here, only the primary one is retained: there is
// no line for that and a test keeps it so.
// Included several times with different X; no include guard on purpose.
//
// X(need, name, symbol, parameters)
// clang-format off
X(MUST, cuInit,                     "cuInit",                       (unsigned int flags))
X(MUST, cuDriverGetVersion,         "cuDriverGetVersion",           (int *version))
X(MUST, cuGetErrorName,             "cuGetErrorName",               (CUresult result, const char **name))
X(MUST, cuGetErrorString,           "cuGetErrorString",             (CUresult result, const char **text))

X(MUST, cuDeviceGetCount,           "cuDeviceGetCount",             (int *count))
X(MUST, cuDeviceGet,                "cuDeviceGet",                  (CUdevice *device, int ordinal))
X(MUST, cuDeviceGetName,            "cuDeviceGetName",              (char *name, int size, CUdevice device))
X(MUST, cuDeviceGetUuid,            "cuDeviceGetUuid_v2",           (CUuuid *uuid, CUdevice device))
X(MUST, cuDeviceGetAttribute,       "cuDeviceGetAttribute",         (int *value, CUdevice_attribute attribute, CUdevice device))
X(MUST, cuDeviceTotalMem,           "cuDeviceTotalMem_v2",          (size_t *bytes, CUdevice device))

X(MUST, cuDevicePrimaryCtxRetain,   "cuDevicePrimaryCtxRetain",     (CUcontext *ctx, CUdevice device))
X(MUST, cuDevicePrimaryCtxRelease,  "cuDevicePrimaryCtxRelease_v2", (CUdevice device))
X(MUST, cuDevicePrimaryCtxGetState, "cuDevicePrimaryCtxGetState",   (CUdevice device, unsigned int *flags, int *active))
X(MUST, cuCtxPushCurrent,           "cuCtxPushCurrent_v2",          (CUcontext ctx))
X(MUST, cuCtxPopCurrent,            "cuCtxPopCurrent_v2",           (CUcontext *ctx))
X(MUST, cuCtxGetCurrent,            "cuCtxGetCurrent",              (CUcontext *ctx))
X(MUST, cuCtxSynchronize,           "cuCtxSynchronize",             (void))

X(MUST, cuMemGetInfo,               "cuMemGetInfo_v2",              (size_t *free, size_t *total))
X(MUST, cuMemAlloc,                 "cuMemAlloc_v2",                (CUdeviceptr *address, size_t bytes))
X(MUST, cuMemFree,                  "cuMemFree_v2",                 (CUdeviceptr address))
X(MUST, cuMemHostAlloc,             "cuMemHostAlloc",               (void **memory, size_t bytes, unsigned int flags))
X(MUST, cuMemFreeHost,              "cuMemFreeHost",                (void *memory))
X(MUST, cuMemcpyHtoDAsync,          "cuMemcpyHtoDAsync_v2",         (CUdeviceptr dst, const void *src, size_t bytes, CUstream stream))
X(MUST, cuMemcpyDtoHAsync,          "cuMemcpyDtoHAsync_v2",         (void *dst, CUdeviceptr src, size_t bytes, CUstream stream))
X(MUST, cuMemcpyDtoDAsync,          "cuMemcpyDtoDAsync_v2",         (CUdeviceptr dst, CUdeviceptr src, size_t bytes, CUstream stream))
X(MUST, cuMemcpy2DAsync,            "cuMemcpy2DAsync_v2",           (const CUDA_MEMCPY2D *copy, CUstream stream))
X(MUST, cuMemsetD8Async,            "cuMemsetD8Async",              (CUdeviceptr dst, unsigned char value, size_t bytes, CUstream stream))

X(MAY,  cuMemHostRegister,          "cuMemHostRegister_v2",         (void *memory, size_t bytes, unsigned int flags))
X(MAY,  cuMemHostUnregister,        "cuMemHostUnregister",          (void *memory))

X(MAY,  cuMemGetAllocationGranularity, "cuMemGetAllocationGranularity", (size_t *granularity, const CUmemAllocationProp *prop, CUmemAllocationGranularity_flags option))
X(MAY,  cuMemAddressReserve,        "cuMemAddressReserve",          (CUdeviceptr *address, size_t bytes, size_t alignment, CUdeviceptr wish, unsigned long long flags))
X(MAY,  cuMemAddressFree,           "cuMemAddressFree",             (CUdeviceptr address, size_t bytes))
X(MAY,  cuMemCreate,                "cuMemCreate",                  (CUmemGenericAllocationHandle *handle, size_t bytes, const CUmemAllocationProp *prop, unsigned long long flags))
X(MAY,  cuMemRelease,               "cuMemRelease",                 (CUmemGenericAllocationHandle handle))
X(MAY,  cuMemMap,                   "cuMemMap",                     (CUdeviceptr address, size_t bytes, size_t offset, CUmemGenericAllocationHandle handle, unsigned long long flags))
X(MAY,  cuMemUnmap,                 "cuMemUnmap",                   (CUdeviceptr address, size_t bytes))
X(MAY,  cuMemSetAccess,             "cuMemSetAccess",               (CUdeviceptr address, size_t bytes, const CUmemAccessDesc *access, size_t count))

X(MAY,  cuMemGetHandleForAddressRange, "cuMemGetHandleForAddressRange", (void *handle, CUdeviceptr address, size_t bytes, CUmemRangeHandleType type, unsigned long long flags))
X(MAY,  cuImportExternalMemory,     "cuImportExternalMemory",       (CUexternalMemory *memory, const CUDA_EXTERNAL_MEMORY_HANDLE_DESC *what))
X(MAY,  cuExternalMemoryGetMappedBuffer, "cuExternalMemoryGetMappedBuffer", (CUdeviceptr *address, CUexternalMemory memory, const CUDA_EXTERNAL_MEMORY_BUFFER_DESC *what))
X(MAY,  cuDestroyExternalMemory,    "cuDestroyExternalMemory",      (CUexternalMemory memory))

X(MUST, cuStreamCreate,             "cuStreamCreate",               (CUstream *stream, unsigned int flags))
X(MUST, cuStreamDestroy,            "cuStreamDestroy_v2",           (CUstream stream))
X(MUST, cuStreamSynchronize,        "cuStreamSynchronize",          (CUstream stream))
X(MUST, cuStreamQuery,              "cuStreamQuery",                (CUstream stream))
X(MUST, cuStreamWaitEvent,          "cuStreamWaitEvent",            (CUstream stream, CUevent event, unsigned int flags))
X(MUST, cuEventCreate,              "cuEventCreate",                (CUevent *event, unsigned int flags))
X(MUST, cuEventDestroy,             "cuEventDestroy_v2",            (CUevent event))
X(MUST, cuEventRecord,              "cuEventRecord",                (CUevent event, CUstream stream))
X(MUST, cuEventQuery,               "cuEventQuery",                 (CUevent event))
X(MUST, cuEventSynchronize,         "cuEventSynchronize",           (CUevent event))

X(MUST, cuModuleLoadData,           "cuModuleLoadData",             (CUmodule *module, const void *image))
X(MUST, cuModuleUnload,             "cuModuleUnload",               (CUmodule module))
X(MUST, cuModuleGetFunction,        "cuModuleGetFunction",          (CUfunction *function, CUmodule module, const char *name))
X(MAY,  cuFuncLoad,                 "cuFuncLoad",                   (CUfunction function))
X(MUST, cuLaunchKernel,             "cuLaunchKernel",               (CUfunction function, unsigned int grid_x, unsigned int grid_y, unsigned int grid_z, unsigned int block_x, unsigned int block_y, unsigned int block_z, unsigned int shared_bytes, CUstream stream, void **params, void **extra))
// clang-format on
