// The driver library: loading it, and what its results mean.

#include "driver.h"

#include <dlfcn.h>
#include <locale.h>
#include <sched.h>
#include <stdio.h>
#include <string.h>

_Atomic bool stk_forked;

static void mark_forked(void)
{
    atomic_store_explicit(&stk_forked, true, memory_order_relaxed);
}

// Have the children of this process marked, from the first driver on.
static bool watch_forks(void)
{
    static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
    static bool watching;
    pthread_mutex_lock(&lock);
    if (!watching)
        watching = pthread_atfork(NULL, NULL, mark_forked) == 0;
    const bool good = watching;
    pthread_mutex_unlock(&lock);
    return good;
}

enum pen_status stk_not_forked(struct pen_error *err)
{
    if (!atomic_load_explicit(&stk_forked, memory_order_relaxed))
        return PEN_OK;
    return pen_error_set(err, PEN_E_STATE, 0, "device",
                         "this process was forked after the driver was opened, "
                         "and no driver works in both: start a new process "
                         "(exec), or fork before a device is opened");
}

enum { MUST, MAY };

static const struct {
    int need;
    const char *symbol;
    size_t offset;
} entries[] = {
#define X(need, name, symbol, params)                                          \
    { need, symbol, offsetof(struct stk_driver, name) },
#include "driver_list.h"
#undef X
};

// Whether the file itself was not found, rather than something it needs or
// its contents being wrong. dlopen() tells so only in its text, which is
// therefore asked for in English.
static bool is_missing(const char *path, const char *text)
{
    const size_t length = strlen(path);
    return strncmp(text, path, length) == 0 && text[length] == ':' &&
           strstr(text, "cannot open shared object file: No such file");
}

static void *open_library(const char *path, char *text, size_t size)
{
    const locale_t english = newlocale(LC_ALL_MASK, "C", (locale_t)0);
    const locale_t before = english ? uselocale(english) : (locale_t)0;

    // NODELETE beside never calling dlclose: other users of the library in
    // the process cannot unload it under us either.
    void *library = dlopen(path, RTLD_NOW | RTLD_LOCAL | RTLD_NODELETE);
    if (!library) {
        const char *why = dlerror();
        snprintf(text, size, "%s", why ? why : "dlopen failed");
    }

    if (english) {
        uselocale(before);
        freelocale(english);
    }
    return library;
}

enum pen_status stk_driver_open(const char *path, struct stk_driver *out,
                                struct pen_error *err)
{
    *out = (struct stk_driver){ 0 };
    PEN_TRY(stk_not_forked(err));
    if (!watch_forks())
        return pen_error_set(err, PEN_E_NOMEM, 0, path,
                             "no memory to watch for forks");

    char text[320];
    out->library = open_library(path, text, sizeof(text));
    if (!out->library)
        return pen_error_set(
            err, PEN_E_NODRIVER,
            is_missing(path, text) ? 0 : CUDA_ERROR_SHARED_OBJECT_INIT_FAILED,
            path, "%s", text);

    for (size_t i = 0; i < sizeof(entries) / sizeof(entries[0]); i++) {
        void *function = dlsym(out->library, entries[i].symbol);
        if (!function && entries[i].need == MUST)
            return pen_error_set(err, PEN_E_NODRIVER,
                                 CUDA_ERROR_SHARED_OBJECT_SYMBOL_NOT_FOUND,
                                 path,
                                 "%s has no function %s: it is no CUDA "
                                 "driver, or one older than CUDA 11.4; "
                                 "update the NVIDIA driver",
                                 path, entries[i].symbol);
        memcpy((char *)out + entries[i].offset, &function, sizeof(function));
    }
    return PEN_OK;
}

enum stk_cu_class stk_cu_class(CUresult result)
{
    switch (result) {
    case CUDA_SUCCESS:
        return STK_CU_DONE;

    case CUDA_ERROR_NOT_READY:
        return STK_CU_RETRY;

    case CUDA_ERROR_OUT_OF_MEMORY:
        return STK_CU_MEMORY;

    // cuda.h: "leaves the process in an inconsistent state and any further
    // CUDA work will return the same error".
    case CUDA_ERROR_CONTAINED:
    case CUDA_ERROR_ILLEGAL_ADDRESS:
    case CUDA_ERROR_LAUNCH_TIMEOUT:
    case CUDA_ERROR_ASSERT:
    case CUDA_ERROR_HARDWARE_STACK_ERROR:
    case CUDA_ERROR_ILLEGAL_INSTRUCTION:
    case CUDA_ERROR_MISALIGNED_ADDRESS:
    case CUDA_ERROR_INVALID_ADDRESS_SPACE:
    case CUDA_ERROR_INVALID_PC:
    case CUDA_ERROR_LAUNCH_FAILED:
    case CUDA_ERROR_TENSOR_MEMORY_LEAK:
    case CUDA_ERROR_MPS_CLIENT_TERMINATED:
    case CUDA_ERROR_EXTERNAL_DEVICE:
    // Not said there, but memory or the connection to it is gone.
    case CUDA_ERROR_ECC_UNCORRECTABLE:
    case CUDA_ERROR_NVLINK_UNCORRECTABLE:
    case CUDA_ERROR_MPS_RPC_FAILURE:
    case CUDA_ERROR_CONTEXT_IS_DESTROYED:
    case CUDA_ERROR_DEINITIALIZED:
    // Nothing is known, so nothing can be relied on.
    case CUDA_ERROR_UNKNOWN:
        return STK_CU_DEAD;

    default:
        return STK_CU_CALL;
    }
}

// The usual repair for a result, as a clause that follows "; ", or NULL.
static const char *repair_of(CUresult result)
{
    switch ((int)result) {
    case CUDA_ERROR_STUB_LIBRARY:
        return "this libcuda is the toolkit's stub, made for linking only: "
               "take its \"stubs\" folder out of LD_LIBRARY_PATH and install "
               "the NVIDIA driver";
    // The runtime's cudaErrorInsufficientDriver; cuda.h has no name for it.
    case 35:
    case CUDA_ERROR_CALL_REQUIRES_NEWER_DRIVER:
        return "the NVIDIA driver is too old: update it";
    case CUDA_ERROR_DEVICE_UNAVAILABLE:
        return "another process has the device for itself (compute mode) or "
               "it is being reset: see nvidia-smi";
    case CUDA_ERROR_NO_DEVICE:
        return "the driver is there but sees no device: look at nvidia-smi, "
               "at CUDA_VISIBLE_DEVICES, and start containers with their GPUs "
               "(--gpus all)";
    case CUDA_ERROR_OPERATING_SYSTEM:
        return "look at the permissions of /dev/nvidia* and at the kernel log";
    case CUDA_ERROR_SYSTEM_NOT_READY:
        return "the system's services are not up yet: on machines with "
               "NVSwitch start nvidia-fabricmanager";
    case CUDA_ERROR_SYSTEM_DRIVER_MISMATCH:
        return "libcuda and the kernel module are of different versions: "
               "reboot after the driver update, or load the new module";
    case CUDA_ERROR_COMPAT_NOT_SUPPORTED_ON_DEVICE:
        return "a CUDA compatibility libcuda is found that this device cannot "
               "use: take its \"compat\" folder out of LD_LIBRARY_PATH";
    case CUDA_ERROR_MPS_CONNECTION_FAILED:
    case CUDA_ERROR_MPS_SERVER_NOT_READY:
        return "the MPS server does not answer: start nvidia-cuda-mps-control "
               "or unset CUDA_MPS_PIPE_DIRECTORY";
    case CUDA_ERROR_NO_BINARY_FOR_GPU:
        return "the kernels were not built for this device";
    case CUDA_ERROR_JIT_COMPILER_NOT_FOUND:
        return "libnvidia-ptxjitcompiler.so.1 of the driver is missing";
    case CUDA_ERROR_UNSUPPORTED_PTX_VERSION:
        return "the PTX is newer than the driver: update the NVIDIA driver";
    case CUDA_ERROR_UNKNOWN:
        return "the driver gives no reason: look at the kernel log (dmesg) for "
               "\"NVRM\", and reload the module nvidia_uvm or reboot";
    default:
        return NULL;
    }
}

// Name and explanation of a result by the driver itself, which knows codes
// newer than our list. These two calls explain failures and can therefore not
// be checked by the macro.
static void explain(const struct pen_device *dev, CUresult result,
                    const char **name, const char **text)
{
    *name = NULL;
    *text = NULL;
    if (dev->cu.cuGetErrorName(result, name) != CUDA_SUCCESS || !*name)
        *name = "unknown CUresult";
    if (dev->cu.cuGetErrorString(result, text) != CUDA_SUCCESS || !*text)
        *text = "no description";
}

static void describe(const struct pen_device *dev, struct pen_error *out,
                     enum pen_status status, CUresult result, const char *call)
{
    const char *name, *text;
    explain(dev, result, &name, &text);
    const char *repair = repair_of(result);
    pen_error_set(out, status, (int)result, dev->where, "%s: %s (%d), %s%s%s",
                  call, name, (int)result, text, repair ? "; " : "",
                  repair ? repair : "");
}

enum pen_status stk_cu_result(struct pen_device *dev, struct pen_error *err,
                              CUresult result, const char *call)
{
    enum pen_status status = PEN_E_DRIVER;
    switch (stk_cu_class(result)) {
    case STK_CU_DONE:
        return PEN_OK;
    case STK_CU_RETRY:
        return PEN_AGAIN;
    case STK_CU_MEMORY:
        status = PEN_E_DEVMEM;
        break;
    case STK_CU_CALL:
        break;
    case STK_CU_DEAD:
        status = PEN_E_LOST;
        break;
    }

    struct pen_error cause;
    describe(dev, &cause, status, result, call);
    if (status == PEN_E_LOST)
        stk_device_lose(dev, &cause);
    if (err)
        *err = cause;
    return status;
}

enum pen_status stk_cu_lost(struct pen_device *dev, struct pen_error *err,
                            const char *call)
{
    PEN_TRY(stk_not_forked(err));
    // Another thread is writing down the cause at this very moment.
    while (atomic_load_explicit(&dev->lost, memory_order_acquire) ==
           STK_LOST_SETTING)
        sched_yield();
    return pen_error_set(err, PEN_E_LOST, dev->cause.native, dev->where,
                         "%.120s was not made: the device was lost by %.300s",
                         call, dev->cause.text);
}

void stk_cu_end(struct pen_device *dev, CUresult result, const char *call)
{
    if (result == CUDA_SUCCESS)
        return;

    // Once the device is lost, everything fails on its way out: no news.
    const bool known = stk_device_lost(dev);
    struct pen_error cause;
    describe(dev, &cause, PEN_E_LOST, result, call);
    if (stk_cu_class(result) == STK_CU_DEAD)
        stk_device_lose(dev, &cause);
    pen_log_write(dev->log, known ? PEN_LOG_DEBUG : PEN_LOG_WARN, "pen.gpu",
                  "%s: while releasing: %s", dev->where, cause.text);
}
