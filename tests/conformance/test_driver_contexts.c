// What we believe of starting, devices and primary contexts.

#include <pthread.h>
#include <stdio.h>

#include "raw_driver.h"

PEN_TEST(starting_twice_is_allowed_and_flags_are_not)
{
    raw_open_only();
    CU_IS(CUDA_ERROR_INVALID_VALUE, cuInit(1));
    CU(cuInit(0));
    CU(cuInit(0));
    int version = 0;
    CU(cuDriverGetVersion(&version));
    assert_true(version >= 11000);
}

PEN_TEST(devices_have_the_limits_that_kernels_rely_on)
{
    raw_open_only();
    CU(cuInit(0));
    int count = 0;
    CU(cuDeviceGetCount(&count));
    assert_true(count >= 1);
    CUdevice device = -1;
    CU(cuDeviceGet(&device, cu.device));
    CU_IS(CUDA_ERROR_INVALID_DEVICE, cuDeviceGet(&device, count));
    CU_IS(CUDA_ERROR_INVALID_DEVICE, cuDeviceGet(&device, -1));

    char name[128] = "", brief[5] = "....";
    CU(cuDeviceGetName(name, sizeof(name), device));
    assert_true(strlen(name) > 4);
    CU(cuDeviceGetName(brief, sizeof(brief), device));
    assert_int_equal(strncmp(name, brief, 4), 0);
    assert_int_equal(brief[4], 0);
    CUuuid uuid, none = { { 0 } };
    CU(cuDeviceGetUuid(&uuid, device));
    assert_memory_not_equal(&uuid, &none, sizeof(uuid));

    static const struct {
        CUdevice_attribute attribute;
        int least;
    } least[] = {
        { CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_BLOCK, 1024 },
        { CU_DEVICE_ATTRIBUTE_MAX_BLOCK_DIM_X, 1024 },
        { CU_DEVICE_ATTRIBUTE_MAX_BLOCK_DIM_Y, 1024 },
        { CU_DEVICE_ATTRIBUTE_MAX_BLOCK_DIM_Z, 64 },
        { CU_DEVICE_ATTRIBUTE_MAX_GRID_DIM_X, INT32_MAX },
        { CU_DEVICE_ATTRIBUTE_MAX_GRID_DIM_Y, 65535 },
        { CU_DEVICE_ATTRIBUTE_MAX_GRID_DIM_Z, 65535 },
        { CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK, 49152 },
        { CU_DEVICE_ATTRIBUTE_WARP_SIZE, 32 },
        { CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT, 1 },
        { CU_DEVICE_ATTRIBUTE_CONCURRENT_KERNELS, 1 },
        { CU_DEVICE_ATTRIBUTE_ASYNC_ENGINE_COUNT, 1 },
        { CU_DEVICE_ATTRIBUTE_UNIFIED_ADDRESSING, 1 },
        { CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR, 7 },
    };
    for (size_t i = 0; i < sizeof(least) / sizeof(least[0]); i++) {
        int value = 0;
        CU(cuDeviceGetAttribute(&value, least[i].attribute, device));
        if (value < least[i].least)
            fail_msg("attribute %d is %d", (int)least[i].attribute, value);
    }
    int value;
    CU_IS(CUDA_ERROR_INVALID_VALUE,
          cuDeviceGetAttribute(&value, (CUdevice_attribute)99999, device));
    size_t total = 0;
    CU(cuDeviceTotalMem(&total, device));
    assert_true(total > 0);
}

PEN_TEST(errors_have_the_names_that_we_know)
{
    raw_open_only();
    CU(cuInit(0));
    unsigned known = 0;
#define X(enumerator, value)                                                   \
    {                                                                          \
        const char *name = NULL, *text = NULL;                                 \
        if (cu.cuGetErrorName(enumerator, &name) == CUDA_SUCCESS) {            \
            known++;                                                           \
            assert_string_equal(name, #enumerator);                            \
            CU(cuGetErrorString(enumerator, &text));                           \
            assert_true(text[0] != 0);                                         \
        }                                                                      \
    }
    STK_CU_RESULTS(X)
#undef X
    assert_true(known > 60);  // an older driver lacks the newest
    const char *name = "";
    CU_IS(CUDA_ERROR_INVALID_VALUE, cuGetErrorName((CUresult)54321, &name));
}

PEN_TEST(primary_context_is_counted)
{
    raw_open_only();
    CU(cuInit(0));
    unsigned flags;
    int active = -1;
    CUcontext a = NULL, b = NULL, current;
    CU(cuDevicePrimaryCtxGetState(cu.device, &flags, &active));
    assert_int_equal(active, 0);
    CU(cuDevicePrimaryCtxRetain(&a, cu.device));
    assert_non_null(a);
    CU(cuDevicePrimaryCtxGetState(cu.device, &flags, &active));
    assert_int_equal(active, 1);
    CU(cuDevicePrimaryCtxRetain(&b, cu.device));
    assert_ptr_equal(a, b);
    CU(cuCtxGetCurrent(&current));
    assert_null(current);  // retaining makes nothing current

    CU(cuDevicePrimaryCtxRelease(cu.device));
    CU(cuDevicePrimaryCtxGetState(cu.device, &flags, &active));
    assert_int_equal(active, 1);
    CU(cuCtxPushCurrent(a));
    CUdeviceptr device = raw_alloc(100);
    CU(cuMemFree(device));
    CU(cuCtxPopCurrent(&current));
    assert_ptr_equal(current, a);
    CU(cuDevicePrimaryCtxRelease(cu.device));
    CU(cuDevicePrimaryCtxGetState(cu.device, &flags, &active));
    assert_int_equal(active, 0);
    CU_IS(CUDA_ERROR_INVALID_CONTEXT, cuDevicePrimaryCtxRelease(cu.device));
}

PEN_TEST(last_release_frees_what_was_allocated)
{
    raw_open();
    size_t before, during, after, total;
    CU(cuMemGetInfo(&before, &total));
    const size_t bytes = before / 4;
    (void)raw_alloc(bytes);
    CU(cuMemGetInfo(&during, &total));
    assert_true(during <= before - bytes);
    CU(cuCtxPopCurrent(NULL));
    CU(cuDevicePrimaryCtxRelease(cu.device));
    CU(cuDevicePrimaryCtxRetain(&cu.ctx, cu.device));
    CU(cuCtxPushCurrent(cu.ctx));
    CU(cuMemGetInfo(&after, &total));
    // A context of its own takes some; a quarter of the memory it does not.
    assert_true(after > during + bytes / 2);
    CU(cuCtxPopCurrent(NULL));
    CU(cuDevicePrimaryCtxRelease(cu.device));
}

PEN_TEST(calls_need_a_current_context)
{
    raw_open_only();
    CU(cuInit(0));
    CUcontext ctx, current;
    CU(cuDevicePrimaryCtxRetain(&ctx, cu.device));
    const CUresult none = CUDA_ERROR_INVALID_CONTEXT;
    CUdeviceptr device;
    void *host;
    CUstream stream;
    CUevent event;
    size_t size;
    CU_IS(none, cuMemAlloc(&device, 64));
    CU_IS(none, cuMemHostAlloc(&host, 64, 0));
    CU_IS(none, cuMemGetInfo(&size, &size));
    CU_IS(none, cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
    CU_IS(none, cuEventCreate(&event, CU_EVENT_DISABLE_TIMING));
    CU_IS(none, cuCtxSynchronize());
    CU_IS(none, cuCtxPopCurrent(&current));
    CU(cuDevicePrimaryCtxRelease(cu.device));
}

static void *look(void *cookie)
{
    CUcontext *seen = cookie;
    if (cu.cuCtxGetCurrent(seen) != CUDA_SUCCESS)
        *seen = cu.ctx;
    return NULL;
}

PEN_TEST(contexts_are_stacked_per_thread)
{
    raw_open();
    CUcontext seen = NULL;
    CU(cuCtxGetCurrent(&seen));
    assert_ptr_equal(seen, cu.ctx);
    CU(cuCtxPushCurrent(cu.ctx));
    CU(cuCtxPushCurrent(cu.ctx));
    for (int i = 0; i < 2; i++) {
        seen = NULL;
        CU(cuCtxPopCurrent(&seen));
        assert_ptr_equal(seen, cu.ctx);
    }
    CU(cuCtxGetCurrent(&seen));
    assert_ptr_equal(seen, cu.ctx);
    pthread_t thread;
    assert_int_equal(pthread_create(&thread, NULL, look, &seen), 0);
    assert_int_equal(pthread_join(thread, NULL), 0);
    assert_null(seen);
    raw_close();
}

PEN_TEST_MAIN(PEN_CASE(starting_twice_is_allowed_and_flags_are_not),
              PEN_CASE(devices_have_the_limits_that_kernels_rely_on),
              PEN_CASE(errors_have_the_names_that_we_know),
              PEN_CASE(primary_context_is_counted),
              PEN_CASE(last_release_frees_what_was_allocated),
              PEN_CASE(calls_need_a_current_context),
              PEN_CASE(contexts_are_stacked_per_thread))
