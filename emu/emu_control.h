#ifndef EMU_CONTROL_H
#define EMU_CONTROL_H

// Controls of the emulated CUDA driver (libpenstock-emu.so), for tests and for
// whoever wants to see a program against a difficult driver.
//
// The library exports the driver's symbols and the functions below. The loader
// keeps one instance of a file: a test that links to the library, or opens its
// path with dlopen(), talks to the same emulator as libpenstock does, which
// opens it by that path as well. A program that also runs without the emulator
// opens it and fills a `struct penemu` by penemu_load().
//
// Settings can also come from the environment; cuInit() reads the variables
// once, and a control that was called before wins:
//
//   PENSTOCK_EMU_MODE     lazy | eager | random:SEED
//   PENSTOCK_EMU_MEMORY   bytes of each device, with K, M or G
//   PENSTOCK_EMU_DEVICES  number of devices, 0 to 8
//   PENSTOCK_EMU_CPU      base: never run the x86-64-v3 build of kernels
//   PENSTOCK_EMU_CHECK    1: poison freed memory
//   PENSTOCK_EMU_DMABUF   none | export | import | all: what the device does
//                         with descriptors of memory
//   PENSTOCK_EMU_REPORT   stderr: print what penemu_report() would tell
//
// A value that is not understood is ignored, which penemu_report() tells and a
// line on stderr.
//
// All functions may be called from any thread.

#include <stdint.h>

#include <penstock/base.h>

PEN_BEGIN

// When queued work is done. A driver promises only that work is done before
// somebody who waits for it is let go; programs must be right in all modes.
enum penemu_mode {
    PENEMU_EAGER,   // as soon as possible
    PENEMU_LAZY,    // not before somebody waits for it: a synchronising call
                    // on this stream, event or context, a call that frees
                    // memory, or a stream that waits and is waited for. A
                    // query makes no progress
    PENEMU_RANDOM,  // after a delay drawn for each operation from the seed
};

// What the device does with descriptors of memory: hand them out
// (cuMemGetHandleForAddressRange), take them in (cuImportExternalMemory).
// Discrete GPUs only export. As there is no DMABUF without a kernel device,
// memfds are handed out, and whatever can be mapped is taken.
enum { PENEMU_EXPORT = 1, PENEMU_IMPORT = 2 };

// Any function, for penemu_fault_arm().
#define PENEMU_ANY NULL

struct penemu_stats {
    uint64_t calls;           // of driver functions
    uint64_t h2d, h2d_bytes;  // copies queued, by direction
    uint64_t d2h, d2h_bytes;
    uint64_t d2d, d2d_bytes;
    uint64_t pageable_h2d;  // of those, staged on the calling thread
    uint64_t pageable_d2h;  // of those, waited for by the calling thread
    uint64_t memsets, launches;
    uint64_t allocations, frees;  // of device memory, with and without address
    uint64_t host_allocations, host_frees;
    uint64_t waits;              // calls that had to wait for queued work
    uint64_t frees_waited;       // of those, by freeing memory or a module
    uint64_t retains, releases;  // of primary contexts
    // Alive now:
    uint64_t device_bytes, device_peak, host_bytes;
    uint64_t contexts, streams, events, modules;
    uint64_t ranges, mappings;           // virtual memory
    uint64_t registrations;              // of host memory
    uint64_t imports, imported_buffers;  // external memory, mapped
    uint64_t threads;  // of streams, also of destroyed busy ones
};

// What was alive when a primary context was released for the last time, summed
// over all contexts since penemu_reset(). Objects whose destruction was asked
// for, but refused by an injected or sticky error, are not counted.
struct penemu_leaks {
    uint64_t device_blocks, device_bytes;
    uint64_t host_blocks, host_bytes;
    uint64_t streams, events, modules;
    uint64_t ranges, mappings, registrations;
    uint64_t imports;     // external memory and its buffers
    uint64_t unfinished;  // operations still queued at that moment
};

// clang-format off
#define PENEMU_CONTROLS(X)                                                     \
    X(void, penemu_set_mode, (enum penemu_mode mode, uint64_t seed))           \
    /* Memory of each device; 1 byte to 32 GiB. -1: refused. */                \
    X(int, penemu_set_memory, (uint64_t bytes))                                \
    /* Before the first cuInit() or after penemu_reset(). -1: refused. */      \
    X(int, penemu_set_devices, (int count))                                    \
    /* "base", or "auto": v3 kernels if this machine can. */                   \
    X(int, penemu_set_cpu, (const char *name))                                 \
    X(void, penemu_set_check, (int on))                                        \
    /* Mask of PENEMU_EXPORT and PENEMU_IMPORT; for allocations from now on.   \
       -1: refused. */                                                         \
    X(int, penemu_set_dmabuf, (unsigned mask))                                 \
                                                                               \
    /* The nth (from 1) call from now on returns `result` and does nothing;    \
       with `forever` all later ones too. `function` is a name with or         \
       without version suffix, or PENEMU_ANY. A sticky result (700, 719, ...)  \
       also breaks the current context. -1: no such function. */               \
    X(int, penemu_fault_arm, (const char *function, uint64_t nth, int result,  \
                              int forever))                                    \
    /* Disarm; how many calls were failed. */                                  \
    X(uint64_t, penemu_fault_disarm, (void))                                   \
    X(uint64_t, penemu_fault_fired, (void))                                    \
    /* Calls of a function since penemu_reset(); PENEMU_ANY: of all. */        \
    X(uint64_t, penemu_calls, (const char *function))                          \
                                                                               \
    /* Hold (1) or let go (0) a stream, whatever the mode and whoever waits:   \
       a kernel that takes long. -1: no such stream. */                        \
    X(int, penemu_hold_stream, (void *stream, int hold))                       \
    /* Operations queued and not done; -1: no such stream. */                  \
    X(int64_t, penemu_pending, (void *stream))                                 \
    /* Break the current contexts of all devices with a sticky result. */      \
    X(void, penemu_break_contexts, (int result))                               \
                                                                               \
    X(void, penemu_get_stats, (struct penemu_stats *out))                      \
    X(void, penemu_get_leaks, (struct penemu_leaks *out))                      \
    /* The last message about misuse or a failed check, "" if none; how many   \
       there were since penemu_reset(). Writes at most `size` bytes. */        \
    X(uint64_t, penemu_report, (char *text, size_t size))                      \
    /* Where the bytes of a device address are, for tests that look behind     \
       the curtain; NULL if [address, address + bytes) is not allocated. */    \
    X(void *, penemu_bytes, (uint64_t address, size_t bytes))                  \
                                                                               \
    /* As freshly loaded: contexts destroyed, counters and faults cleared,     \
       settings at their defaults, environment read again by cuInit(). No      \
       other thread may use the driver meanwhile. */                           \
    X(void, penemu_reset, (void))
// clang-format on

#define X(type, name, params) PEN_API type name params;
PENEMU_CONTROLS(X)
#undef X

struct penemu {
#define X(type, name, params) type(*name) params;
    PENEMU_CONTROLS(X)
#undef X
};

// Look up the controls in a library that dlopen() opened; `find` is dlsym.
// False if one is missing, as in a real driver.
static inline bool penemu_load(struct penemu *out, void *library,
                               void *(*find)(void *library, const char *name))
{
    void *symbol;
#define X(type, name, params)                                                  \
    symbol = find(library, #name);                                             \
    if (!symbol)                                                               \
        return false;                                                          \
    __builtin_memcpy(&out->name, &symbol, sizeof(symbol));
    PENEMU_CONTROLS(X)
#undef X
    return true;
}

PEN_END

#endif  // EMU_CONTROL_H
