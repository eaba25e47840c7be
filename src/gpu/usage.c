// How much memory is used, as the driver and NVML tell: information, on which
// nothing depends. NVML is opened at the first question and asked by our own
// words for its few functions; whatever is missing means that nothing is known.

#include <dlfcn.h>
#include <stdlib.h>
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

struct stk_usage {
    void *library;
    int (*init)(void);
    int (*shutdown)(void);
    int (*by_uuid)(const char *uuid, nvml_device *out);
    int (*processes)(nvml_device device, unsigned *count,
                     struct nvml_process *out);
    nvml_device device;
    bool started;
};

static void usage_free(struct stk_usage *u)
{
    if (u->started)
        u->shutdown();
    if (u->library)
        dlclose(u->library);
    free(u);
}

static bool find(void *library, const char *name, void *function)
{
    void *found = dlsym(library, name);
    memcpy(function, &found, sizeof(found));
    return found != NULL;
}

static bool start(struct stk_usage *u, const char *uuid)
{
    u->library = dlopen("libnvidia-ml.so.1", RTLD_NOW | RTLD_LOCAL);
    if (!u->library || !find(u->library, "nvmlInit_v2", &u->init) ||
        !find(u->library, "nvmlShutdown", &u->shutdown) ||
        !find(u->library, "nvmlDeviceGetHandleByUUID", &u->by_uuid) ||
        !find(u->library, "nvmlDeviceGetComputeRunningProcesses_v3",
              &u->processes))
        return false;
    u->started = u->init() == 0;
    return u->started && u->by_uuid(uuid, &u->device) == 0;
}

// NULL: nothing is known. With the lock.
static struct stk_usage *usage_of(struct pen_device *dev)
{
    if (dev->usage_asked || dev->info.emulated)
        return dev->usage;
    dev->usage_asked = true;
    struct stk_usage *u = calloc(1, sizeof(*u));
    if (u && !start(u, dev->info.uuid)) {
        usage_free(u);
        u = NULL;
    }
    dev->usage = u;
    return u;
}

// 0: unknown. In a container the process may have another number for NVML.
static uint64_t bytes_of_process(const struct stk_usage *u)
{
    struct nvml_process list[NVML_PROCESSES];
    unsigned count = NVML_PROCESSES;
    if (u->processes(u->device, &count, list) != 0)
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

    pthread_mutex_lock(&dev->usage_lock);
    const struct stk_usage *u = usage_of(dev);
    if (u)
        *process = bytes_of_process(u);
    pthread_mutex_unlock(&dev->usage_lock);
    return true;
}

void stk_usage_close(struct pen_device *dev)
{
    // In a forked process NVML is no more usable than the driver.
    if (dev->usage && !stk_forked)
        usage_free(dev->usage);
    else
        free(dev->usage);
    dev->usage = NULL;
}
