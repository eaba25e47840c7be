#ifndef FAKE_DRIVER_H
#define FAKE_DRIVER_H

// A driver library that answers the questions asked while a device is chosen
// and kernels are loaded, with the answers a test wants. Everything else is
// refused. Found in the library by the symbol "fake".
struct fake {
    int init;                           // result of cuInit
    int counted;                        // result of cuDeviceGetCount
    int devices;                        // and what it counts
    int retained;                       // result of cuDevicePrimaryCtxRetain
    int loaded;                         // result of cuModuleLoadData
    const char *absent;                 // entry that no module has; may be NULL
    const void *image;                  // what cuModuleLoadData was given last
    unsigned inits, retains, releases;  // calls that were made
    unsigned loads, unloads, function_loads;
};

#endif  // FAKE_DRIVER_H
