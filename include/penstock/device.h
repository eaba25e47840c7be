#ifndef PEN_DEVICE_H
#define PEN_DEVICE_H

#include <penstock/format.h>
#include <penstock/log.h>
#include <penstock/status.h>

PEN_BEGIN

// A CUDA device, real or emulated. Opening one loads the driver library
// (never before), retains the primary context of the device and releases it
// again on close: Penstock creates no context of its own. The context may be
// shared with others, whose flags stay as they are.
//
// No driver works on both sides of a fork. In a child of a process that has
// opened one, every use of a device, opening another one too, is PEN_E_STATE;
// closing frees the child's memory and calls nothing. Start a new program
// (exec), or fork first.
struct pen_device;

struct pen_device_params {
    // "0", "1", ... an index; "GPU-..." a UUID; "cuda" the first device of the
    // driver; "emulated" the emulated device. NULL means "cuda". The library
    // never falls back from one to another.
    const char *selector;
    const char *driver;         // libcuda; NULL: "libcuda.so.1"
    const char *emulator;       // library of the emulated device; NULL: the
                                // libpenstock-emu.so beside libpenstock
    const struct pen_log *log;  // borrowed until close; may be NULL
};

struct pen_device_info {
    char name[128];
    char uuid[48];  // "GPU-xxxxxxxx-xxxx-xxxx-xxxx-xxxxxxxxxxxx"
    int index;
    bool emulated;
    int driver_version;  // 13000 for CUDA 13.0
    int sm_major, sm_minor;
    int multiprocessors;
    int copy_engines;      // copies that can go on at once
    uint64_t total_bytes;  // of its memory
    uint64_t free_bytes;   // at the time of the call
};

// Open a device. `params` is borrowed until the call returns (log: until
// close). On success *out is owned by the caller: pen_device_close(). On
// failure *out is NULL and nothing stays retained.
// Errors: PEN_E_NODRIVER  library missing or without a needed function, no
//                         device, insufficient driver; the text says what is
//                         missing and the usual repair. native: 0 only if
//                         there is no such library; else a CUresult, which is
//                         303 for one that is there but cannot be loaded and
//                         302 for one that lacks a function
//         PEN_E_ARG       selector is none of the above
//         PEN_E_STATE     this process was forked after a driver was opened
//         PEN_E_DRIVER, PEN_E_DEVMEM, PEN_E_NOMEM
// Thread: setup. Blocks while the driver starts.
PEN_API PEN_NODISCARD enum pen_status
pen_device_open(const struct pen_device_params *params, struct pen_device **out,
                struct pen_error *err);

// Release the context and set *dev to NULL. NULL in *dev is allowed.
// Thread: setup.
PEN_API void pen_device_close(struct pen_device **dev);

// Describe an open device. Errors: PEN_E_DRIVER, PEN_E_LOST, PEN_E_STATE.
// Thread: any.
PEN_API PEN_NODISCARD enum pen_status
pen_device_get_info(struct pen_device *dev, struct pen_device_info *out,
                    struct pen_error *err);

// Describe at most `room` devices of the library that `params` names (its
// selector only chooses between driver and emulator) without retaining any
// context. *count is the number of devices there are. free_bytes is 0.
// Errors: as pen_device_open.
// Thread: setup.
PEN_API PEN_NODISCARD enum pen_status
pen_device_list(const struct pen_device_params *params,
                struct pen_device_info *out, size_t room, size_t *count,
                struct pen_error *err);

// How frames get from a memory type to another one with a device on this
// machine.
struct pen_way {
    enum pen_mem_type from, to;
    bool exported;    // from a DMABUF of device memory, not of the host's
    const char *way;  // "none", "upgrade", "map", "import", "export", "copy",
                      // "staged", "refused"; static
    char text[320];   // how, or what is missing and the way round
};
enum { PEN_WAYS = 20 };  // 4 types, and exported DMABUFs, to 4 types
// What can be done with DMABUFs is found by trying it with one small block
// each. Thread: setup. Blocks on the driver.
PEN_API void pen_device_ways(struct pen_device *dev,
                             struct pen_way out[PEN_WAYS]);

PEN_END

#endif  // PEN_DEVICE_H
