#ifndef FAKE_NVML_H
#define FAKE_NVML_H

// An NVML that answers what a test wants. Once it is loaded it is also what
// dlopen() finds under its soname, which is that of the real one. Found in the
// library by the symbol "fake_nvml".
struct fake_nvml {
    int init, by_uuid, processes;  // results
    char uuid[64];                 // that was asked for
    unsigned count;                // of processes
    unsigned pid;                  // of the last one
    unsigned long long bytes;      // that it uses
    unsigned inits, shutdowns;     // calls that were made
};

#endif  // FAKE_NVML_H
