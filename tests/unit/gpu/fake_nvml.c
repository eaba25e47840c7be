#include "fake_nvml.h"

#include <stdio.h>

#define EXPORT __attribute__((visibility("default")))

EXPORT struct fake_nvml fake_nvml = { 0 };

struct process {
    unsigned pid;
    unsigned long long bytes;
    unsigned gpu_instance, compute_instance;
};

EXPORT int nvmlInit_v2(void)
{
    fake_nvml.inits++;
    return fake_nvml.init;
}

EXPORT int nvmlShutdown(void)
{
    fake_nvml.shutdowns++;
    return 0;
}

EXPORT int nvmlDeviceGetHandleByUUID(const char *uuid, void **device)
{
    snprintf(fake_nvml.uuid, sizeof(fake_nvml.uuid), "%s", uuid);
    *device = &fake_nvml;
    return fake_nvml.by_uuid;
}

EXPORT int nvmlDeviceGetComputeRunningProcesses_v3(void *device,
                                                   unsigned *count,
                                                   struct process *out)
{
    if (device != &fake_nvml || *count < fake_nvml.count)
        return 7;
    *count = fake_nvml.count;
    for (unsigned i = 0; i < fake_nvml.count; i++)
        out[i] = (struct process){ 1, 12345, 0, 0 };
    if (fake_nvml.count)
        out[fake_nvml.count - 1] =
            (struct process){ fake_nvml.pid, fake_nvml.bytes, 0, 0 };
    return fake_nvml.processes;
}
