#ifndef RAW_DRIVER_H
#define RAW_DRIVER_H

// Bare calls into the driver under test, for tests of the driver itself: the
// emulated one, or libcuda.so.1 with PENSTOCK_TEST_DEVICE=N.
//
//     raw_open();                      in every test: fresh if emulated
//     CU(cuMemAlloc(&address, 64));    fails the test unless it succeeds
//     CU_IS(CUDA_ERROR_..., cuMemFree(address));

#include <dlfcn.h>

#include "pen_test.h"

#include "../../emu/emu_control.h"
#include "../../src/gpu/cuda_abi.h"

static struct {
    void *library;
    bool emulated;
    CUdevice device;
    CUcontext ctx;
    struct penemu emu;  // of the emulated driver only
#define X(need, name, symbol, params) CUresult(*name) params;
#include "../../src/gpu/driver_list.h"
#undef X
} cu;

static const char *raw_name(CUresult result)
{
    switch (result) {
#define X(enumerator, value)                                                   \
    case enumerator:                                                           \
        return #enumerator;
        STK_CU_RESULTS(X)
#undef X
    }
    return "?";
}

static void raw_expect(CUresult want, CUresult got, const char *call,
                       const char *file, int line)
{
    if (want == got)
        return;
    char report[512] = "";
    if (cu.emulated)
        cu.emu.penemu_report(report, sizeof(report));
    print_error("%s: %s, not %s; %s\n", call, raw_name(got), raw_name(want),
                report);
    _assert_int_equal((uint64_t)got, (uint64_t)want, file, line);
}
#define CU_IS(want, call) raw_expect(want, cu.call, #call, __FILE__, __LINE__)
#define CU(call)          CU_IS(CUDA_SUCCESS, call)

enum { RAW_MAY, RAW_MUST };

// Load the driver and start it; the emulated one as if freshly loaded.
static inline void raw_open_only(void)
{
    if (!cu.library) {
        cu.emulated = !pen_test_on_gpu();
        const char *path = cu.emulated ? pen_test_emulator() : "libcuda.so.1";
        cu.library = dlopen(path, RTLD_NOW | RTLD_LOCAL);
        if (!cu.library)
            fail_msg("%s", dlerror());
        void *found;
#define X(need, name, symbol, params)                                          \
    found = dlsym(cu.library, symbol);                                         \
    if (!found && RAW_##need)                                                  \
        fail_msg("the driver has no %s", symbol);                              \
    memcpy(&cu.name, &found, sizeof(found));
#include "../../src/gpu/driver_list.h"
#undef X
        if (cu.emulated)
            assert_true(penemu_load(&cu.emu, cu.library, dlsym));
        else
            cu.device = atoi(pen_test_device());
    }
    if (cu.emulated)
        cu.emu.penemu_reset();
}

// And with the primary context of the device under test current.
static inline void raw_open(void)
{
    raw_open_only();
    CU(cuInit(0));
    CU(cuDevicePrimaryCtxRetain(&cu.ctx, cu.device));
    CU(cuCtxPushCurrent(cu.ctx));
}

// Nothing may be left.
static inline void raw_close(void)
{
    CU(cuCtxSynchronize());
    CU(cuCtxPopCurrent(NULL));
    CU(cuDevicePrimaryCtxRelease(cu.device));
    if (!cu.emulated)
        return;
    struct penemu_leaks leaks;
    cu.emu.penemu_get_leaks(&leaks);
    assert_int_equal(leaks.device_blocks, 0);
    assert_int_equal(leaks.host_blocks, 0);
    assert_int_equal(leaks.streams, 0);
    assert_int_equal(leaks.events, 0);
    assert_int_equal(leaks.modules, 0);
    assert_int_equal(leaks.ranges, 0);
    assert_int_equal(leaks.mappings, 0);
    assert_int_equal(leaks.registrations, 0);
    assert_int_equal(leaks.imports, 0);
    assert_int_equal(leaks.unfinished, 0);
}

// Shorthands for what nearly every test needs.
static inline CUdeviceptr raw_alloc(size_t bytes)
{
    CUdeviceptr address = 0;
    CU(cuMemAlloc(&address, bytes));
    return address;
}

static inline void *raw_pinned(size_t bytes)
{
    void *memory = NULL;
    CU(cuMemHostAlloc(&memory, bytes, 0));
    return memory;
}

static inline CUstream raw_stream(void)
{
    CUstream stream = NULL;
    CU(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
    return stream;
}

static inline CUevent raw_event(void)
{
    CUevent event = NULL;
    CU(cuEventCreate(&event, CU_EVENT_DISABLE_TIMING));
    return event;
}

// All bytes have one value.
static inline void raw_expect_bytes(const void *memory, int value, size_t bytes)
{
    const unsigned char *p = memory;
    size_t i = 0;
    while (i < bytes && p[i] == value)
        i++;
    if (i < bytes)
        fail_msg("byte %zu is %d, not %d", i, p[i], value);
}

#endif  // RAW_DRIVER_H
