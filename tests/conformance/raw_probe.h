#ifndef RAW_PROBE_H
#define RAW_PROBE_H

// What tests of the driver need beyond bare calls: the kernels of probe.cu,
// and a stream that stands still until it is let go.

#include "raw_driver.h"

#include "probe.kern.h"

extern const struct pen_kernel_image probe_image;

static struct {
    CUmodule module;
    CUfunction mix, wait, store;
    CUstream setter;       // sets the flags
    CUdeviceptr flag;      // of blocked streams
    uint32_t *one, *zero;  // pinned
} probe;

static inline void probe_load(CUmodule *module)
{
    const void *image = &probe_image;
    if (!cu.emulated)
        image = probe_image.fatbin ? probe_image.fatbin : probe_image.ptx;
    CU(cuModuleLoadData(module, image));
}

static inline CUresult probe_launch(CUfunction function, uint32_t threads,
                                    CUstream stream, void *args)
{
    void *params[] = { args };
    const uint32_t block = threads < 128 ? threads : 128;
    return cu.cuLaunchKernel(function, (threads + block - 1) / block, 1, 1,
                             block, 1, 1, 0, stream, params, NULL);
}

static inline void probe_mix(CUdeviceptr dst, CUdeviceptr src, uint32_t count,
                             uint32_t factor, uint32_t summand, CUstream stream)
{
    struct probe_mix args = { dst, src, count, factor, summand, 0 };
    assert_int_equal(probe_launch(probe.mix, count, stream, &args), 0);
}

static inline void probe_open(void)
{
    raw_open();
    probe_load(&probe.module);
    CU(cuModuleGetFunction(&probe.mix, probe.module, "probe_mix"));
    CU(cuModuleGetFunction(&probe.wait, probe.module, "probe_wait"));
    CU(cuModuleGetFunction(&probe.store, probe.module, "probe_store"));
    probe.setter = raw_stream();
    probe.flag = raw_alloc(4);
    probe.zero = raw_pinned(8);
    probe.one = probe.zero + 1;
    *probe.zero = 0;
    *probe.one = 1;

    // Drivers load code at its first use, and may wait for the device then:
    // everything once before a stream is blocked.
    CUdeviceptr scratch = raw_alloc(64);
    struct probe_wait wait = { probe.flag, 1 };
    CU(cuMemsetD8Async(scratch, 0, 64, probe.setter));
    CU(cuMemcpyHtoDAsync(probe.flag, probe.one, 4, probe.setter));
    CU(cuMemcpyDtoDAsync(scratch, probe.flag, 4, probe.setter));
    probe_mix(scratch, scratch, 16, 1, 1, probe.setter);
    assert_int_equal(probe_launch(probe.wait, 1, probe.setter, &wait), 0);
    struct probe_store store = { scratch, 1, 0 };
    assert_int_equal(probe_launch(probe.store, 1, probe.setter, &store), 0);
    CU(cuMemcpyDtoHAsync(probe.zero, scratch, 4, probe.setter));
    CU(cuStreamSynchronize(probe.setter));
    CU(cuMemsetD8Async(scratch, 0, 64, NULL));
    CU(cuCtxSynchronize());
    CU(cuMemFree(scratch));
    *probe.zero = 0;
}

static inline void probe_close(void)
{
    CU(cuCtxSynchronize());
    CU(cuMemFreeHost(probe.zero));
    CU(cuMemFree(probe.flag));
    CU(cuStreamDestroy(probe.setter));
    CU(cuModuleUnload(probe.module));
    raw_close();
}

// Nothing queued on the stream from now on is done before probe_go(): on a
// GPU a kernel waits for a flag, the emulated device holds the stream. One
// stream at a time.
static inline void probe_block(CUstream stream)
{
    if (cu.emulated) {
        assert_int_equal(cu.emu.penemu_hold_stream(stream, 1), 0);
        return;
    }
    CU(cuMemcpyHtoDAsync(probe.flag, probe.zero, 4, probe.setter));
    CU(cuStreamSynchronize(probe.setter));
    struct probe_wait args = { probe.flag, (uint64_t)1 << 24 };
    assert_int_equal(probe_launch(probe.wait, 1, stream, &args), 0);
}

// From any thread; with no assertion, for those that have no test around them.
static inline CUresult probe_go(CUstream stream)
{
    if (cu.emulated)
        return cu.emu.penemu_hold_stream(stream, 0) ? CUDA_ERROR_INVALID_HANDLE
                                                    : CUDA_SUCCESS;
    const CUresult result =
        cu.cuMemcpyHtoDAsync(probe.flag, probe.one, 4, probe.setter);
    return result ? result : cu.cuStreamSynchronize(probe.setter);
}

#endif  // RAW_PROBE_H
