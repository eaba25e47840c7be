// How much memory is used, as the driver and NVML tell: information, on which
// nothing depends. NVML is opened at the first question, once for the process:
// that of driver 580 keeps a descriptor each time it is shut down. What is
// missing of it means that nothing is known.

#include <dlfcn.h>
#include <string.h>
#include <unistd.h>

#include "driver.h"

// As in nvml.h; results other than 0 are errors.
typedef struct nvmlDevice_st *nvml_device;
struct nvml_process {
    unsigned pid;
    unsigned long long bytes;
    unsigned gpu_instance, compute_instance;
};
enum { NVML_PROCESSES = 256 };
#define NVML_UNKNOWN (~0ull)

static struct {
    pthread_once_t once;
    int (*init)(void);
    int (*by_uuid)(const char *uuid, nvml_device *out);
    int (*processes)(nvml_device device, unsigned *count,
                     struct nvml_process *out);
    bool started;
} nvml = { .once = PTHREAD_ONCE_INIT };

static bool find(void *library, const char *name, void *function)
{
    void *found = dlsym(library, name);
    memcpy(function, &found, sizeof(found));
    return found != NULL;
}

static void start_nvml(void)
{
    void *library = dlopen("libnvidia-ml.so.1", RTLD_NOW | RTLD_LOCAL);
    if (!library)
        return;
    nvml.started = find(library, "nvmlInit_v2", &nvml.init) &&
                   find(library, "nvmlDeviceGetHandleByUUID", &nvml.by_uuid) &&
                   find(library, "nvmlDeviceGetComputeRunningProcesses_v3",
                        &nvml.processes) &&
                   nvml.init() == 0;
    if (!nvml.started)
        dlclose(library);
}

// 0: unknown. In a container the process may have another number for NVML.
static uint64_t bytes_of_process(const struct pen_device *dev)
{
    if (dev->info.emulated)
        return 0;
    pthread_once(&nvml.once, start_nvml);
    nvml_device device = NULL;
    struct nvml_process list[NVML_PROCESSES];
    unsigned count = NVML_PROCESSES;
    if (!nvml.started || nvml.by_uuid(dev->info.uuid, &device) != 0 ||
        nvml.processes(device, &count, list) != 0)
        return 0;
    for (unsigned i = 0; i < count && i < NVML_PROCESSES; i++) {
        if (list[i].pid == (unsigned)getpid() && list[i].bytes != NVML_UNKNOWN)
            return list[i].bytes;
    }
    return 0;
}

bool stk_device_usage(struct pen_device *dev, uint64_t *device,
                      uint64_t *process)
{
    *device = *process = 0;
    size_t free_bytes = 0, total = 0;
    STK_SCOPE scope = { 0 };
    if (stk_scope_enter(&scope, dev, NULL) != PEN_OK ||
        STK_CU(dev, NULL, cuMemGetInfo(&free_bytes, &total)) != PEN_OK)
        return false;
    *device = total - free_bytes;
    *process = bytes_of_process(dev);
    return true;
}
