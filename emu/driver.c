// The driver's functions: what all begin with, start, errors, devices and
// contexts. The others are in calls_*.c, virtual.c and foreign.c.

#include <stdlib.h>
#include <string.h>

#include "api.h"

void emu_leave(const struct call *call)
{
    (void)call;
    pthread_mutex_unlock(&emu.lock);
}

static bool sticky(CUresult result)
{
    switch (result) {
    case CUDA_ERROR_ECC_UNCORRECTABLE:
    case CUDA_ERROR_NVLINK_UNCORRECTABLE:
    case CUDA_ERROR_ILLEGAL_ADDRESS:
    case CUDA_ERROR_LAUNCH_TIMEOUT:
    case CUDA_ERROR_ASSERT:
    case CUDA_ERROR_HARDWARE_STACK_ERROR:
    case CUDA_ERROR_ILLEGAL_INSTRUCTION:
    case CUDA_ERROR_MISALIGNED_ADDRESS:
    case CUDA_ERROR_INVALID_ADDRESS_SPACE:
    case CUDA_ERROR_INVALID_PC:
    case CUDA_ERROR_LAUNCH_FAILED:
        return true;
    default:
        return false;
    }
}

static struct emu_context *current(void)
{
    const uint64_t handle = emu_stack_top();
    return emu_handle_find(EMU_CONTEXT, (void *)(uintptr_t)handle);
}

// Whether this call is the one that has to fail.
static CUresult injected(enum emu_fn fn)
{
    if (!emu.fault.armed || (emu.fault.fn >= 0 && emu.fault.fn != (int)fn))
        return CUDA_SUCCESS;
    emu.fault.seen++;
    if (emu.fault.forever ? emu.fault.seen < emu.fault.nth
                          : emu.fault.seen != emu.fault.nth)
        return CUDA_SUCCESS;
    emu.fault.fired++;
    struct emu_context *ctx = current();
    if (ctx && sticky(emu.fault.result))
        emu_context_break(ctx, emu.fault.result);
    return emu.fault.result;
}

struct call emu_enter(enum emu_fn fn, enum need need)
{
    pthread_mutex_lock(&emu.lock);
    emu.calls[fn]++;
    emu.stats.calls++;

    struct call call = { .result = injected(fn) };
    if (call.result || need == NOTHING)
        return call;
    if (!emu.started) {
        emu_report("%s: before cuInit", emu_fn_name(fn));
        call.result = CUDA_ERROR_NOT_INITIALIZED;
    } else if (need == CONTEXT) {
        call.ctx = current();
        if (call.ctx) {
            call.result = call.ctx->sticky;
        } else if (emu_stack_top()) {
            emu_report("%s: the current context is destroyed", emu_fn_name(fn));
            call.result = CUDA_ERROR_CONTEXT_IS_DESTROYED;
        } else {
            emu_report("%s: no context is current", emu_fn_name(fn));
            call.result = CUDA_ERROR_INVALID_CONTEXT;
        }
    }
    return call;
}

CUresult emu_find_to_destroy(enum emu_fn fn, const struct call *call,
                             enum emu_kind kind, const void *handle,
                             const char *none, struct emu_slot **out)
{
    *out = emu_handle_slot(kind, handle);
    if (call->result && *out)
        (*out)->given_back = true;
    if (call->result || *out)
        return call->result;
    return emu_misuse(fn, CUDA_ERROR_INVALID_HANDLE, none);
}

// --- start and errors -------------------------------------------------------

// A child of fork() may still use the controls: no thread that is not there in
// the child holds the lock then.
static void fork_begins(void)
{
    pthread_mutex_lock(&emu.lock);
}

static void fork_ends(void)
{
    pthread_mutex_unlock(&emu.lock);
}

static void watch_forks(void)
{
    pthread_atfork(fork_begins, fork_ends, fork_ends);
}

CUresult emu_cuInit(unsigned int flags)
{
    static pthread_once_t watched = PTHREAD_ONCE_INIT;
    pthread_once(&watched, watch_forks);
    CALL call = ENTER(cuInit, NOTHING);
    if (call.result)
        return call.result;
    if (flags)
        return MISUSE(cuInit, CUDA_ERROR_INVALID_VALUE, "flags must be 0");
    if (!emu.started)
        emu_read_environment();
    emu.cpu_v3 = emu_cpu_v3();
    if (!emu.device_count)
        return CUDA_ERROR_NO_DEVICE;
    emu.started = true;
    return CUDA_SUCCESS;
}

CUresult emu_cuDriverGetVersion(int *version)
{
    CALL call = ENTER(cuDriverGetVersion, NOTHING);
    if (call.result)
        return call.result;
    if (!version)
        return CUDA_ERROR_INVALID_VALUE;
    *version = 13000;
    return CUDA_SUCCESS;
}

CUresult emu_cuGetErrorName(CUresult result, const char **name)
{
    CALL call = ENTER(cuGetErrorName, NOTHING);
    if (call.result)
        return call.result;
    if (!name)
        return CUDA_ERROR_INVALID_VALUE;
    *name = NULL;
    switch (result) {
#define X(enumerator, value)                                                   \
    case enumerator:                                                           \
        *name = #enumerator;                                                   \
        return CUDA_SUCCESS;
        STK_CU_RESULTS(X)
#undef X
    }
    return CUDA_ERROR_INVALID_VALUE;
}

// Texts of the results that a program meets; the others are described by
// their names.
static const struct {
    CUresult result;
    const char *text;
} texts[] = {
    { CUDA_SUCCESS, "no error" },
    { CUDA_ERROR_INVALID_VALUE, "invalid argument" },
    { CUDA_ERROR_OUT_OF_MEMORY, "out of memory" },
    { CUDA_ERROR_NOT_INITIALIZED, "initialization error" },
    { CUDA_ERROR_DEINITIALIZED, "driver shutting down" },
    { CUDA_ERROR_STUB_LIBRARY, "CUDA driver is a stub library" },
    { CUDA_ERROR_DEVICE_UNAVAILABLE, "device is busy or unavailable" },
    { CUDA_ERROR_NO_DEVICE, "no CUDA-capable device is detected" },
    { CUDA_ERROR_INVALID_DEVICE, "invalid device ordinal" },
    { CUDA_ERROR_INVALID_IMAGE, "device kernel image is invalid" },
    { CUDA_ERROR_INVALID_CONTEXT, "invalid device context" },
    { CUDA_ERROR_NO_BINARY_FOR_GPU,
      "no kernel image is available for execution on the device" },
    { CUDA_ERROR_ECC_UNCORRECTABLE, "uncorrectable ECC error encountered" },
    { CUDA_ERROR_INVALID_PTX, "a PTX JIT compilation failed" },
    { CUDA_ERROR_UNSUPPORTED_PTX_VERSION,
      "the provided PTX was compiled with an unsupported toolchain." },
    { CUDA_ERROR_INVALID_HANDLE, "invalid resource handle" },
    { CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED,
      "part or all of the requested memory range is already mapped" },
    { CUDA_ERROR_HOST_MEMORY_NOT_REGISTERED,
      "pointer does not correspond to a registered memory region" },
    { CUDA_ERROR_NOT_FOUND, "named symbol not found" },
    { CUDA_ERROR_NOT_READY, "device not ready" },
    { CUDA_ERROR_ILLEGAL_ADDRESS, "an illegal memory access was encountered" },
    { CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES,
      "too many resources requested for launch" },
    { CUDA_ERROR_LAUNCH_TIMEOUT, "the launch timed out and was terminated" },
    { CUDA_ERROR_PRIMARY_CONTEXT_ACTIVE,
      "cannot set while device is active in this process" },
    { CUDA_ERROR_CONTEXT_IS_DESTROYED, "context is destroyed" },
    { CUDA_ERROR_ASSERT, "device-side assert triggered" },
    { CUDA_ERROR_ILLEGAL_INSTRUCTION,
      "an illegal instruction was encountered" },
    { CUDA_ERROR_MISALIGNED_ADDRESS, "misaligned address" },
    { CUDA_ERROR_LAUNCH_FAILED, "unspecified launch failure" },
    { CUDA_ERROR_NOT_PERMITTED, "operation not permitted" },
    { CUDA_ERROR_NOT_SUPPORTED, "operation not supported" },
    { CUDA_ERROR_SYSTEM_NOT_READY, "system not yet initialized" },
    { CUDA_ERROR_SYSTEM_DRIVER_MISMATCH,
      "system has unsupported display driver / cuda driver combination" },
    { CUDA_ERROR_UNKNOWN, "unknown error" },
};

CUresult emu_cuGetErrorString(CUresult result, const char **text)
{
    CALL call = ENTER(cuGetErrorString, NOTHING);
    if (call.result)
        return call.result;
    if (!text)
        return CUDA_ERROR_INVALID_VALUE;
    for (size_t i = 0; i < sizeof(texts) / sizeof(texts[0]); i++) {
        if (texts[i].result == result) {
            *text = texts[i].text;
            return CUDA_SUCCESS;
        }
    }
    *text = NULL;
    switch (result) {
#define X(enumerator, value)                                                   \
    case enumerator:                                                           \
        *text = #enumerator;                                                   \
        return CUDA_SUCCESS;
        STK_CU_RESULTS(X)
#undef X
    }
    return CUDA_ERROR_INVALID_VALUE;
}

// --- devices ----------------------------------------------------------------

struct emu_device *emu_device_at(CUdevice device)
{
    return device >= 0 && device < emu.device_count ? &emu.device[device]
                                                    : NULL;
}

CUresult emu_cuDeviceGetCount(int *count)
{
    CALL call = ENTER(cuDeviceGetCount, STARTED);
    if (call.result)
        return call.result;
    if (!count)
        return CUDA_ERROR_INVALID_VALUE;
    *count = emu.device_count;
    return CUDA_SUCCESS;
}

CUresult emu_cuDeviceGet(CUdevice *device, int ordinal)
{
    CALL call = ENTER(cuDeviceGet, STARTED);
    if (call.result)
        return call.result;
    if (!device)
        return CUDA_ERROR_INVALID_VALUE;
    if (!emu_device_at(ordinal))
        return CUDA_ERROR_INVALID_DEVICE;
    *device = ordinal;
    return CUDA_SUCCESS;
}

CUresult emu_cuDeviceGetName(char *name, int size, CUdevice device)
{
    CALL call = ENTER(cuDeviceGetName, STARTED);
    if (call.result)
        return call.result;
    if (!name || size < 1)
        return CUDA_ERROR_INVALID_VALUE;
    if (!emu_device_at(device))
        return CUDA_ERROR_INVALID_DEVICE;
    static const char text[] = "Penstock emulated device";
    const size_t room = (size_t)size - 1;
    const size_t length = sizeof(text) - 1 < room ? sizeof(text) - 1 : room;
    memcpy(name, text, length);
    name[length] = 0;
    return CUDA_SUCCESS;
}

CUresult emu_cuDeviceGetUuid(CUuuid *uuid, CUdevice device)
{
    CALL call = ENTER(cuDeviceGetUuid, STARTED);
    if (call.result)
        return call.result;
    if (!uuid)
        return CUDA_ERROR_INVALID_VALUE;
    if (!emu_device_at(device))
        return CUDA_ERROR_INVALID_DEVICE;
    *uuid = (CUuuid){ .bytes = "PENSTOCK-EMU" };
    uuid->bytes[15] = (char)device;
    return CUDA_SUCCESS;
}

CUresult emu_cuDeviceGetAttribute(int *value, CUdevice_attribute attribute,
                                  CUdevice device)
{
    CALL call = ENTER(cuDeviceGetAttribute, STARTED);
    if (call.result)
        return call.result;
    if (!value)
        return CUDA_ERROR_INVALID_VALUE;
    if (!emu_device_at(device))
        return CUDA_ERROR_INVALID_DEVICE;
    switch (attribute) {
    case CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_BLOCK:
    case CU_DEVICE_ATTRIBUTE_MAX_BLOCK_DIM_X:
    case CU_DEVICE_ATTRIBUTE_MAX_BLOCK_DIM_Y:
        *value = 1024;
        return CUDA_SUCCESS;
    case CU_DEVICE_ATTRIBUTE_MAX_BLOCK_DIM_Z:
        *value = 64;
        return CUDA_SUCCESS;
    case CU_DEVICE_ATTRIBUTE_MAX_GRID_DIM_X:
    case CU_DEVICE_ATTRIBUTE_MAX_PITCH:
        *value = INT32_MAX;
        return CUDA_SUCCESS;
    case CU_DEVICE_ATTRIBUTE_MAX_GRID_DIM_Y:
    case CU_DEVICE_ATTRIBUTE_MAX_GRID_DIM_Z:
        *value = 65535;
        return CUDA_SUCCESS;
    case CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK:
        *value = 49152;
        return CUDA_SUCCESS;
    case CU_DEVICE_ATTRIBUTE_WARP_SIZE:
        *value = 32;
        return CUDA_SUCCESS;
    case CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT:
        *value = 4;
        return CUDA_SUCCESS;
    case CU_DEVICE_ATTRIBUTE_INTEGRATED:
    case CU_DEVICE_ATTRIBUTE_CAN_MAP_HOST_MEMORY:
        *value = 0;
        return CUDA_SUCCESS;
    case CU_DEVICE_ATTRIBUTE_CONCURRENT_KERNELS:
    case CU_DEVICE_ATTRIBUTE_UNIFIED_ADDRESSING:
    case CU_DEVICE_ATTRIBUTE_VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED:
        *value = 1;
        return CUDA_SUCCESS;
    case CU_DEVICE_ATTRIBUTE_ASYNC_ENGINE_COUNT:
        *value = 2;
        return CUDA_SUCCESS;
    case CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR:
        *value = 9;
        return CUDA_SUCCESS;
    case CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR:
        *value = 0;
        return CUDA_SUCCESS;
    case CU_DEVICE_ATTRIBUTE_DMA_BUF_SUPPORTED:
        *value = (emu.dmabuf & PENEMU_EXPORT) != 0;
        return CUDA_SUCCESS;
    }
    return MISUSE(cuDeviceGetAttribute, CUDA_ERROR_INVALID_VALUE,
                  "attribute that the emulated device does not know");
}

CUresult emu_cuDeviceTotalMem(size_t *bytes, CUdevice device)
{
    CALL call = ENTER(cuDeviceTotalMem, STARTED);
    if (call.result)
        return call.result;
    if (!bytes)
        return CUDA_ERROR_INVALID_VALUE;
    if (!emu_device_at(device))
        return CUDA_ERROR_INVALID_DEVICE;
    *bytes = emu.memory;
    return CUDA_SUCCESS;
}

// --- contexts ---------------------------------------------------------------

CUresult emu_cuDevicePrimaryCtxRetain(CUcontext *ctx, CUdevice device)
{
    CALL call = ENTER(cuDevicePrimaryCtxRetain, STARTED);
    if (call.result)
        return call.result;
    if (!ctx)
        return CUDA_ERROR_INVALID_VALUE;
    struct emu_device *dev = emu_device_at(device);
    if (!dev)
        return CUDA_ERROR_INVALID_DEVICE;
    if (!dev->ctx) {
        const CUresult result = emu_context_create(dev);
        if (result)
            return result;
    }
    if (dev->ctx->sticky)
        return dev->ctx->sticky;
    dev->retains++;
    emu.stats.retains++;
    *ctx = (CUcontext)(uintptr_t)dev->ctx->handle;
    return CUDA_SUCCESS;
}

CUresult emu_cuDevicePrimaryCtxRelease(CUdevice device)
{
    CALL call = ENTER(cuDevicePrimaryCtxRelease, STARTED);
    if (call.result)
        return call.result;
    struct emu_device *dev = emu_device_at(device);
    if (!dev)
        return CUDA_ERROR_INVALID_DEVICE;
    if (!dev->retains)
        return MISUSE(cuDevicePrimaryCtxRelease, CUDA_ERROR_INVALID_CONTEXT,
                      "the primary context is not retained");
    emu.stats.releases++;
    if (!--dev->retains)
        emu_context_destroy(dev);
    return CUDA_SUCCESS;
}

CUresult emu_cuDevicePrimaryCtxGetState(CUdevice device, unsigned int *flags,
                                        int *active)
{
    CALL call = ENTER(cuDevicePrimaryCtxGetState, STARTED);
    if (call.result)
        return call.result;
    if (!flags || !active)
        return CUDA_ERROR_INVALID_VALUE;
    const struct emu_device *dev = emu_device_at(device);
    if (!dev)
        return CUDA_ERROR_INVALID_DEVICE;
    *flags = CU_CTX_SCHED_AUTO;
    *active = dev->ctx != NULL;
    return CUDA_SUCCESS;
}

CUresult emu_cuCtxPushCurrent(CUcontext ctx)
{
    CALL call = ENTER(cuCtxPushCurrent, STARTED);
    if (call.result)
        return call.result;
    if (!emu_handle_find(EMU_CONTEXT, ctx))
        return MISUSE(cuCtxPushCurrent, CUDA_ERROR_INVALID_CONTEXT,
                      "no such context");
    return emu_stack_push((uint64_t)(uintptr_t)ctx);
}

CUresult emu_cuCtxPopCurrent(CUcontext *ctx)
{
    CALL call = ENTER(cuCtxPopCurrent, STARTED);
    if (call.result)
        return call.result;
    const uint64_t handle = emu_stack_pop();
    if (!handle)
        return MISUSE(cuCtxPopCurrent, CUDA_ERROR_INVALID_CONTEXT,
                      "no context is current");
    if (ctx)
        *ctx = (CUcontext)(uintptr_t)handle;
    return CUDA_SUCCESS;
}

CUresult emu_cuCtxGetCurrent(CUcontext *ctx)
{
    CALL call = ENTER(cuCtxGetCurrent, STARTED);
    if (call.result)
        return call.result;
    if (!ctx)
        return CUDA_ERROR_INVALID_VALUE;
    *ctx = (CUcontext)(uintptr_t)emu_stack_top();
    return CUDA_SUCCESS;
}

CUresult emu_cuCtxSynchronize(void)
{
    CALL call = ENTER(cuCtxSynchronize, CONTEXT);
    if (call.result)
        return call.result;
    bool waited;
    const CUresult result = emu_context_wait(call.ctx, &waited);
    emu.stats.waits += waited;
    return result;
}
