// What we believe of a context that a kernel has broken. A program of its own:
// nothing else can use the device in this process meanwhile.

#include <stdio.h>

#include "raw_probe.h"

// Break the context: on a GPU by a store to where nothing is, on the emulated
// device (whose kernels are checked in checked builds only) by decree.
static void break_context(CUstream stream)
{
    if (cu.emulated) {
        cu.emu.penemu_break_contexts(CUDA_ERROR_ILLEGAL_ADDRESS);
        return;
    }
    struct probe_store args = { 64, 1, 0 };
    assert_int_equal(probe_launch(probe.store, 1, stream, &args), 0);
}

PEN_TEST(illegal_access_is_sticky_until_the_context_is_gone)
{
    probe_open();
    CUstream stream = raw_stream();
    CUevent event = raw_event();
    CUdeviceptr device = raw_alloc(64), more = 0;
    unsigned char *host = raw_pinned(64);
    const CUresult lost = CUDA_ERROR_ILLEGAL_ADDRESS;

    break_context(stream);
    CU_IS(lost, cuStreamSynchronize(stream));
    CU_IS(lost, cuStreamSynchronize(stream));
    CU_IS(lost, cuStreamQuery(stream));
    CU_IS(lost, cuCtxSynchronize());
    CU_IS(lost, cuMemAlloc(&more, 64));
    CU_IS(lost, cuMemcpyHtoDAsync(device, host, 64, stream));
    CU_IS(lost, cuMemsetD8Async(device, 0, 64, stream));
    CU_IS(lost, cuEventRecord(event, stream));
    CU_IS(lost, cuEventQuery(event));
    struct probe_store args = { device, 1, 0 };
    assert_int_equal(probe_launch(probe.store, 1, stream, &args), lost);
    CU_IS(lost, cuMemFree(device));

    // The stack of contexts still works, and so does leaving.
    CUcontext ctx = NULL;
    CU(cuCtxGetCurrent(&ctx));
    assert_ptr_equal(ctx, cu.ctx);
    CU(cuCtxPopCurrent(&ctx));
    assert_ptr_equal(ctx, cu.ctx);
    CU(cuDevicePrimaryCtxRelease(cu.device));
}

PEN_TEST_MAIN(PEN_CASE(illegal_access_is_sticky_until_the_context_is_gone))
