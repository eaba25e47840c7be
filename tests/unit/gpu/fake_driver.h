#ifndef FAKE_DRIVER_H
#define FAKE_DRIVER_H

// A driver library that answers the questions asked while a device is chosen,
// with the answers a test wants. Everything else is refused. Found in the
// library by the symbol "fake".
struct fake {
    int init;                           // result of cuInit
    int counted;                        // result of cuDeviceGetCount
    int devices;                        // and what it counts
    int retained;                       // result of cuDevicePrimaryCtxRetain
    unsigned inits, retains, releases;  // calls that were made
};

#endif  // FAKE_DRIVER_H
