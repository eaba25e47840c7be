// The driver's functions. Each begins with emu_enter(), which takes the lock,
// counts, fails on demand and checks the context; the lock is given back when
// the function returns.

#include <stdlib.h>
#include <string.h>

#include "emu.h"

// Prototypes from the one list, under the exported symbols.
#define X(need, name, symbol, params)                                          \
    PEN_API CUresult emu_##name params __asm__(symbol);
#include "../src/gpu/driver_list.h"
#undef X

enum need { NOTHING, STARTED, CONTEXT };

struct call {
    CUresult result;          // not CUDA_SUCCESS: return it
    struct emu_context *ctx;  // the current one, if CONTEXT is needed
};

static void leave(const struct call *call)
{
    (void)call;
    pthread_mutex_unlock(&emu.lock);
}
#define CALL __attribute__((cleanup(leave))) const struct call

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

static struct call emu_enter(enum emu_fn fn, enum need need)
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
#define ENTER(name, need) emu_enter(EMU_FN_##name, need)

static CUresult misuse(enum emu_fn fn, CUresult result, const char *text)
{
    emu_report("%s: %s", emu_fn_name(fn), text);
    return result;
}
#define MISUSE(name, result, text) misuse(EMU_FN_##name, result, text)

// The object that a call destroys. What a refused call was to destroy is no
// leak: its owner has given it up.
static CUresult find_to_destroy(enum emu_fn fn, const struct call *call,
                                enum emu_kind kind, const void *handle,
                                const char *none, struct emu_slot **out)
{
    *out = emu_handle_slot(kind, handle);
    if (call->result && *out)
        (*out)->given_back = true;
    if (call->result || *out)
        return call->result;
    return misuse(fn, CUDA_ERROR_INVALID_HANDLE, none);
}

// --- start and errors -------------------------------------------------------

CUresult emu_cuInit(unsigned int flags)
{
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

static struct emu_device *device_at(CUdevice device)
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
    if (!device_at(ordinal))
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
    if (!device_at(device))
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
    if (!device_at(device))
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
    if (!device_at(device))
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
    if (!device_at(device))
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
    struct emu_device *dev = device_at(device);
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
    struct emu_device *dev = device_at(device);
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
    const struct emu_device *dev = device_at(device);
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
        if (block && block->address == address)
            return block;
    }
    return NULL;
}

// Freeing waits for everything that may use the memory.
static CUresult wait_to_free(struct emu_context *ctx)
{
    bool waited;
    const CUresult result = emu_context_wait(ctx, &waited);
    emu.stats.waits += waited;
    emu.stats.frees_waited += waited;
    return result;
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
        result = wait_to_free(block->ctx);
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

static struct emu_range *pinned_block(const void *memory)
{
    const uint64_t address = (uint64_t)(uintptr_t)memory;
    struct emu_range *block = emu_range_find(&emu.pinned, address);
    return block && block->address == address ? block : NULL;
}

CUresult emu_cuMemFreeHost(void *memory)
{
    CALL call = ENTER(cuMemFreeHost, CONTEXT);
    struct emu_range *block = pinned_block(memory);
    CUresult result = call.result;
    if (!block)
        return result ? result
                      : MISUSE(cuMemFreeHost, CUDA_ERROR_INVALID_VALUE,
                               "no such allocation, or freed already");
    if (!result)
        result = wait_to_free(block->ctx);
    block = pinned_block(memory);
    if (block && result)
        block->given_back = true;
    else if (block)
        emu_pinned_free(block);
    return result;
}

// --- streams ----------------------------------------------------------------

// The stream behind a handle, the context's own for NULL.
static CUresult find_stream(enum emu_fn fn, struct emu_context *ctx,
                            CUstream handle, struct emu_stream **out)
{
    const uint64_t value = (uint64_t)(uintptr_t)handle;
    if (value <= 1) {
        if (!ctx->legacy) {
            const CUresult result =
                emu_stream_create(ctx, CU_STREAM_DEFAULT, &ctx->legacy);
            if (result)
                return result;
        }
        *out = ctx->legacy;
        return CUDA_SUCCESS;
    }
    if (value == 2)
        return misuse(fn, CUDA_ERROR_NOT_SUPPORTED,
                      "the emulated device has no per-thread streams");
    *out = emu_handle_find(EMU_STREAM, handle);
    if (!*out)
        return misuse(fn, CUDA_ERROR_INVALID_HANDLE, "no such stream");
    return (*out)->ctx->sticky;
}

CUresult emu_cuStreamCreate(CUstream *stream, unsigned int flags)
{
    CALL call = ENTER(cuStreamCreate, CONTEXT);
    if (call.result)
        return call.result;
    if (!stream || flags & ~(unsigned)CU_STREAM_NON_BLOCKING)
        return MISUSE(cuStreamCreate, CUDA_ERROR_INVALID_VALUE,
                      "unknown flags");
    struct emu_stream *made;
    const CUresult result = emu_stream_create(call.ctx, flags, &made);
    if (result)
        return result;
    made->handle = emu_handle_create(EMU_STREAM, made, call.ctx);
    if (!made->handle) {
        emu_stream_close(made);
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    emu.stats.streams++;
    *stream = (CUstream)(uintptr_t)made->handle;
    return CUDA_SUCCESS;
}

CUresult emu_cuStreamDestroy(CUstream stream)
{
    CALL call = ENTER(cuStreamDestroy, CONTEXT);
    struct emu_slot *slot;
    const CUresult result =
        find_to_destroy(EMU_FN_cuStreamDestroy, &call, EMU_STREAM, stream,
                        "no such stream, or destroyed already", &slot);
    if (result)
        return result;
    struct emu_stream *gone = slot->object;
    emu_handle_destroy(gone->handle);
    emu_stream_close(gone);
    emu.stats.streams--;
    return CUDA_SUCCESS;
}

// Wait for a mark, whose reference is taken. The context may be gone after.
static CUresult wait_mark(struct emu_mark *mark, struct emu_context *ctx)
{
    if (!mark)
        return CUDA_ERROR_OUT_OF_MEMORY;
    const uint64_t handle = ctx->handle;
    emu.stats.waits += !mark->reached;
    emu_mark_wait(mark);
    emu_mark_unref(mark);
    if (emu_handle_find(EMU_CONTEXT, (void *)(uintptr_t)handle) != ctx)
        return CUDA_ERROR_CONTEXT_IS_DESTROYED;
    return ctx->sticky;
}

CUresult emu_cuStreamSynchronize(CUstream stream)
{
    CALL call = ENTER(cuStreamSynchronize, CONTEXT);
    if (call.result)
        return call.result;
    struct emu_stream *s;
    CUresult result =
        find_stream(EMU_FN_cuStreamSynchronize, call.ctx, stream, &s);
    if (result)
        return result;
    if (s == s->ctx->legacy) {
        // Everything that a copy here would wait for.
        struct emu_op *op = emu_op_create(EMU_OP_RECORD);
        result = op ? emu_enqueue(s, op) : CUDA_ERROR_OUT_OF_MEMORY;
        if (result)
            return result;
    }
    return wait_mark(emu_mark_tail(s), s->ctx);
}

CUresult emu_cuStreamQuery(CUstream stream)
{
    CALL call = ENTER(cuStreamQuery, CONTEXT);
    if (call.result)
        return call.result;
    struct emu_stream *s;
    const CUresult result =
        find_stream(EMU_FN_cuStreamQuery, call.ctx, stream, &s);
    if (result)
        return result;
    if (!emu_stream_idle(s))
        return CUDA_ERROR_NOT_READY;
    if (s != s->ctx->legacy)
        return CUDA_SUCCESS;
    for (struct emu_stream *t = s->ctx->streams; t; t = t->next) {
        if (!(t->flags & CU_STREAM_NON_BLOCKING) && !emu_stream_idle(t))
            return CUDA_ERROR_NOT_READY;
    }
    return CUDA_SUCCESS;
}

CUresult emu_cuStreamWaitEvent(CUstream stream, CUevent event,
                               unsigned int flags)
{
    CALL call = ENTER(cuStreamWaitEvent, CONTEXT);
    if (call.result)
        return call.result;
    struct emu_stream *s;
    const CUresult result =
        find_stream(EMU_FN_cuStreamWaitEvent, call.ctx, stream, &s);
    if (result)
        return result;
    const struct emu_event *e = emu_handle_find(EMU_EVENT, event);
    if (!e)
        return MISUSE(cuStreamWaitEvent, CUDA_ERROR_INVALID_HANDLE,
                      "no such event");
    if (flags != CU_EVENT_WAIT_DEFAULT)
        return MISUSE(cuStreamWaitEvent, CUDA_ERROR_INVALID_VALUE,
                      "unknown flags");
    if (!e->mark)
        return CUDA_SUCCESS;
    struct emu_op *op = emu_op_create(EMU_OP_WAIT);
    if (!op)
        return CUDA_ERROR_OUT_OF_MEMORY;
    op->mark = e->mark;
    op->mark->refs++;
    return emu_enqueue(s, op);
}

// --- events -----------------------------------------------------------------

CUresult emu_cuEventCreate(CUevent *event, unsigned int flags)
{
    CALL call = ENTER(cuEventCreate, CONTEXT);
    if (call.result)
        return call.result;
    const unsigned known = CU_EVENT_BLOCKING_SYNC | CU_EVENT_DISABLE_TIMING;
    if (!event || flags & ~known)
        return MISUSE(cuEventCreate, CUDA_ERROR_INVALID_VALUE, "unknown flags");
    struct emu_event *made = calloc(1, sizeof(*made));
    if (!made)
        return CUDA_ERROR_OUT_OF_MEMORY;
    made->flags = flags;
    const uint64_t handle = emu_handle_create(EMU_EVENT, made, call.ctx);
    if (!handle) {
        free(made);
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    emu.stats.events++;
    *event = (CUevent)(uintptr_t)handle;
    return CUDA_SUCCESS;
}

CUresult emu_cuEventDestroy(CUevent event)
{
    CALL call = ENTER(cuEventDestroy, CONTEXT);
    struct emu_slot *slot;
    const CUresult result =
        find_to_destroy(EMU_FN_cuEventDestroy, &call, EMU_EVENT, event,
                        "no such event, or destroyed already", &slot);
    if (result)
        return result;
    struct emu_event *gone = slot->object;
    emu_handle_destroy((uint64_t)(uintptr_t)event);
    emu_mark_unref(gone->mark);
    free(gone);
    emu.stats.events--;
    return CUDA_SUCCESS;
}

static CUresult find_recording(struct emu_context *ctx, CUevent event,
                               CUstream stream, struct emu_stream **s,
                               struct emu_event **e)
{
    const CUresult result = find_stream(EMU_FN_cuEventRecord, ctx, stream, s);
    if (result)
        return result;
    const struct emu_slot *slot = emu_handle_slot(EMU_EVENT, event);
    if (!slot)
        return MISUSE(cuEventRecord, CUDA_ERROR_INVALID_HANDLE,
                      "no such event");
    if (slot->ctx != (*s)->ctx)
        return MISUSE(cuEventRecord, CUDA_ERROR_INVALID_HANDLE,
                      "event and stream are of different contexts");
    *e = slot->object;
    return CUDA_SUCCESS;
}

CUresult emu_cuEventRecord(CUevent event, CUstream stream)
{
    CALL call = ENTER(cuEventRecord, CONTEXT);
    if (call.result)
        return call.result;
    struct emu_stream *s;
    struct emu_event *e;
    CUresult result = find_recording(call.ctx, event, stream, &s, &e);
    const bool blocking = !result && e->flags & CU_EVENT_BLOCKING_SYNC;
    while (!result && blocking && s->blocking[s->blocking_next] &&
           !s->blocking[s->blocking_next]->reached) {
        s->blocking[s->blocking_next]->refs++;
        result = wait_mark(s->blocking[s->blocking_next], s->ctx);
        // Others had their turn meanwhile.
        if (!result)
            result = find_recording(call.ctx, event, stream, &s, &e);
    }
    if (result)
        return result;
    struct emu_op *op = emu_op_create(EMU_OP_RECORD);
    result = op ? emu_enqueue(s, op) : CUDA_ERROR_OUT_OF_MEMORY;
    if (result)
        return result;
    struct emu_mark *mark = emu_mark_tail(s);
    if (!mark)
        return CUDA_ERROR_OUT_OF_MEMORY;
    if (blocking) {
        struct emu_mark **place = &s->blocking[s->blocking_next];
        emu_mark_unref(*place);
        *place = mark;
        mark->refs++;
        s->blocking_next = (s->blocking_next + 1) % EMU_BLOCKING_RECORDS;
    }
    emu_mark_unref(e->mark);
    e->mark = mark;
    return CUDA_SUCCESS;
}

CUresult emu_cuEventQuery(CUevent event)
{
    CALL call = ENTER(cuEventQuery, CONTEXT);
    if (call.result)
        return call.result;
    const struct emu_slot *slot = emu_handle_slot(EMU_EVENT, event);
    if (!slot)
        return MISUSE(cuEventQuery, CUDA_ERROR_INVALID_HANDLE, "no such event");
    if (slot->ctx->sticky)
        return slot->ctx->sticky;
    const struct emu_event *e = slot->object;
    return !e->mark || e->mark->reached ? CUDA_SUCCESS : CUDA_ERROR_NOT_READY;
}

CUresult emu_cuEventSynchronize(CUevent event)
{
    CALL call = ENTER(cuEventSynchronize, CONTEXT);
    if (call.result)
        return call.result;
    const struct emu_slot *slot = emu_handle_slot(EMU_EVENT, event);
    if (!slot)
        return MISUSE(cuEventSynchronize, CUDA_ERROR_INVALID_HANDLE,
                      "no such event");
    const struct emu_event *e = slot->object;
    if (!e->mark)
        return CUDA_SUCCESS;
    e->mark->refs++;
    return wait_mark(e->mark, slot->ctx);
}

// --- copies -----------------------------------------------------------------

// One side of a copy.
struct side {
    bool device, pinned;
    char *bytes;
    size_t pitch;
};

enum { TO_DEVICE, TO_HOST, WITHIN };

static CUresult find_side(enum emu_fn fn, struct side *side, bool device,
                          uint64_t address, size_t span)
{
    side->device = device;
    if (device)
        return emu_find_device(address, span, emu_fn_name(fn), &side->bytes);
    side->bytes = (char *)(uintptr_t)address;
    if (!address)
        return misuse(fn, CUDA_ERROR_INVALID_VALUE, "host memory is NULL");
    return emu_find_host(side->bytes, span, emu_fn_name(fn), &side->pinned);
}

// Queue a copy between two sides that were found.
static CUresult copy(struct emu_stream *stream, const struct side *dst,
                     const struct side *src, size_t row_bytes, size_t rows)
{
    struct emu_op *op = emu_op_create(EMU_OP_COPY);
    if (!op)
        return CUDA_ERROR_OUT_OF_MEMORY;
    op->dst = dst->bytes;
    op->dst_pitch = dst->pitch;
    op->src = src->bytes;
    op->src_pitch = src->pitch;
    op->row_bytes = row_bytes;
    op->rows = rows;

    const uint64_t bytes = (uint64_t)row_bytes * rows;
    const bool host_to_host = !src->device && !dst->device;
    bool wait = host_to_host;
    if (src->device && dst->device) {
        emu.stats.d2d++;
        emu.stats.d2d_bytes += bytes;
    } else if (dst->device) {
        emu.stats.h2d++;
        emu.stats.h2d_bytes += bytes;
        if (!src->pinned) {
            // The caller may do with its memory what it likes on return.
            emu.stats.pageable_h2d++;
            op->staged = malloc(bytes);
            if (!op->staged) {
                emu_op_destroy(op);
                return CUDA_ERROR_OUT_OF_MEMORY;
            }
            for (size_t y = 0; y < rows; y++)
                memcpy((char *)op->staged + y * row_bytes,
                       src->bytes + y * src->pitch, row_bytes);
            op->src = op->staged;
            op->src_pitch = row_bytes;
        }
    } else if (src->device) {
        emu.stats.d2h++;
        emu.stats.d2h_bytes += bytes;
        if (!dst->pinned) {
            emu.stats.pageable_d2h++;
            wait = true;
        }
    }
    const CUresult result = emu_enqueue(stream, op);
    if (result || !wait)
        return result;
    return wait_mark(emu_mark_tail(stream), stream->ctx);
}

static CUresult copy_linear(enum emu_fn fn, struct emu_context *ctx,
                            int direction, uint64_t dst, uint64_t src,
                            size_t bytes, CUstream handle)
{
    struct emu_stream *stream;
    CUresult result = find_stream(fn, ctx, handle, &stream);
    if (result || !bytes)
        return result;
    struct side to = { 0 }, from = { 0 };
    result = find_side(fn, &to, direction != TO_HOST, dst, bytes);
    if (!result)
        result = find_side(fn, &from, direction != TO_DEVICE, src, bytes);
    if (result)
        return result;
    return copy(stream, &to, &from, bytes, 1);
}

CUresult emu_cuMemcpyHtoDAsync(CUdeviceptr dst, const void *src, size_t bytes,
                               CUstream stream)
{
    CALL call = ENTER(cuMemcpyHtoDAsync, CONTEXT);
    if (call.result)
        return call.result;
    return copy_linear(EMU_FN_cuMemcpyHtoDAsync, call.ctx, TO_DEVICE, dst,
                       (uint64_t)(uintptr_t)src, bytes, stream);
}

CUresult emu_cuMemcpyDtoHAsync(void *dst, CUdeviceptr src, size_t bytes,
                               CUstream stream)
{
    CALL call = ENTER(cuMemcpyDtoHAsync, CONTEXT);
    if (call.result)
        return call.result;
    return copy_linear(EMU_FN_cuMemcpyDtoHAsync, call.ctx, TO_HOST,
                       (uint64_t)(uintptr_t)dst, src, bytes, stream);
}

CUresult emu_cuMemcpyDtoDAsync(CUdeviceptr dst, CUdeviceptr src, size_t bytes,
                               CUstream stream)
{
    CALL call = ENTER(cuMemcpyDtoDAsync, CONTEXT);
    if (call.result)
        return call.result;
    return copy_linear(EMU_FN_cuMemcpyDtoDAsync, call.ctx, WITHIN, dst, src,
                       bytes, stream);
}

// A side of a 2D copy as the caller describes it.
struct side_2d {
    CUmemorytype type;
    const void *host;
    CUdeviceptr device;
    size_t x, y, pitch;
};

static CUresult find_side_2d(struct side *side, const struct side_2d *want,
                             size_t row_bytes, size_t rows)
{
    const enum emu_fn fn = EMU_FN_cuMemcpy2DAsync;
    uint64_t address = want->type == CU_MEMORYTYPE_HOST
                           ? (uint64_t)(uintptr_t)want->host
                           : want->device;
    bool device = want->type == CU_MEMORYTYPE_DEVICE;
    if (want->type == CU_MEMORYTYPE_UNIFIED) {
        for (int i = 0; i < EMU_MAX_DEVICES; i++) {
            const struct emu_device *dev = &emu.device[i];
            if (dev->base && address - dev->base < dev->reserve)
                device = true;
        }
    } else if (want->type == CU_MEMORYTYPE_ARRAY) {
        return misuse(fn, CUDA_ERROR_NOT_SUPPORTED,
                      "the emulated device has no arrays");
    } else if (!device && want->type != CU_MEMORYTYPE_HOST) {
        return misuse(fn, CUDA_ERROR_INVALID_VALUE, "unknown memory type");
    }

    // One row needs no pitch.
    side->pitch = want->pitch ? want->pitch : want->x + row_bytes;
    if (side->pitch < row_bytes || side->pitch - row_bytes < want->x)
        return misuse(fn, CUDA_ERROR_INVALID_VALUE,
                      "a pitch is smaller than its rows");
    size_t span, start;
    if (__builtin_mul_overflow(rows - 1, side->pitch, &span) ||
        __builtin_add_overflow(span, row_bytes, &span) ||
        __builtin_mul_overflow(want->y, side->pitch, &start) ||
        __builtin_add_overflow(start, want->x, &start))
        return misuse(fn, CUDA_ERROR_INVALID_VALUE, "sizes overflow");
    return find_side(fn, side, device, address + start, span);
}

CUresult emu_cuMemcpy2DAsync(const CUDA_MEMCPY2D *want, CUstream handle)
{
    CALL call = ENTER(cuMemcpy2DAsync, CONTEXT);
    if (call.result)
        return call.result;
    if (!want)
        return CUDA_ERROR_INVALID_VALUE;
    struct emu_stream *stream;
    CUresult result =
        find_stream(EMU_FN_cuMemcpy2DAsync, call.ctx, handle, &stream);
    if (result || !want->WidthInBytes || !want->Height)
        return result;

    const struct side_2d dst = { want->dstMemoryType, want->dstHost,
                                 want->dstDevice,     want->dstXInBytes,
                                 want->dstY,          want->dstPitch };
    const struct side_2d src = { want->srcMemoryType, want->srcHost,
                                 want->srcDevice,     want->srcXInBytes,
                                 want->srcY,          want->srcPitch };
    struct side to = { 0 }, from = { 0 };
    result = find_side_2d(&to, &dst, want->WidthInBytes, want->Height);
    if (!result)
        result = find_side_2d(&from, &src, want->WidthInBytes, want->Height);
    if (result)
        return result;
    return copy(stream, &to, &from, want->WidthInBytes, want->Height);
}

CUresult emu_cuMemsetD8Async(CUdeviceptr dst, unsigned char value, size_t bytes,
                             CUstream handle)
{
    CALL call = ENTER(cuMemsetD8Async, CONTEXT);
    if (call.result)
        return call.result;
    struct emu_stream *stream;
    CUresult result =
        find_stream(EMU_FN_cuMemsetD8Async, call.ctx, handle, &stream);
    if (result || !bytes)
        return result;
    struct side to = { 0 };
    result = find_side(EMU_FN_cuMemsetD8Async, &to, true, dst, bytes);
    if (result)
        return result;
    struct emu_op *op = emu_op_create(EMU_OP_FILL);
    if (!op)
        return CUDA_ERROR_OUT_OF_MEMORY;
    op->dst = to.bytes;
    op->row_bytes = bytes;
    op->value = value;
    emu.stats.memsets++;
    return emu_enqueue(stream, op);
}

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
        result = wait_to_free(slot->ctx);
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
        find_stream(EMU_FN_cuLaunchKernel, call.ctx, handle, &stream);
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
