#ifndef FAKE_NVML_H
#define FAKE_NVML_H

// An NVML that answers what a test wants; found by its soname.
struct fake_nvml {
    int init, by_uuid, processes;  // results
    char uuid[64];                 // that was asked for
    unsigned count;                // of processes
    unsigned pid;                  // of the last one
    unsigned long long bytes;      // that it uses
    unsigned inits, shutdowns;     // calls that were made
};
extern struct fake_nvml fake_nvml;

#endif  // FAKE_NVML_H
