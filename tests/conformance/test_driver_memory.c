// What we believe of memory and copies.

#include "raw_driver.h"

PEN_TEST(device_memory_is_aligned_and_apart)
{
    raw_open();
    CUdeviceptr at[32];
    for (unsigned i = 0; i < 32; i++) {
        at[i] = raw_alloc(1 + 77 * i);
        assert_int_equal(at[i] % 256, 0);
        for (unsigned k = 0; k < i; k++)
            assert_true(at[k] + 1 + 77 * k <= at[i] ||
                        at[i] + 1 + 77 * i <= at[k]);
    }
    for (unsigned i = 0; i < 32; i++)
        CU(cuMemFree(at[i]));
    raw_close();
}

PEN_TEST(misuse_of_allocations_is_an_invalid_value)
{
    raw_open();
    const CUresult bad = CUDA_ERROR_INVALID_VALUE;
    CUdeviceptr device = 0;
    CU_IS(bad, cuMemAlloc(&device, 0));
    device = raw_alloc(1 << 20);
    CU_IS(bad, cuMemFree(device + 256));  // not what was returned
    CU_IS(bad, cuMemFree((CUdeviceptr)0x1000));
    CU(cuMemFree(device));
    CU_IS(bad, cuMemFree(device));
    char pageable[16];
    CU_IS(bad, cuMemFreeHost(pageable));
    void *host = raw_pinned(4096);
    CU(cuMemFreeHost(host));
    CU_IS(bad, cuMemFreeHost(host));
    raw_close();
}

PEN_TEST(memory_that_is_not_there_is_out_of_memory_and_nothing_breaks)
{
    raw_open();
    size_t free_bytes, total;
    CU(cuMemGetInfo(&free_bytes, &total));
    assert_true(free_bytes <= total);
    CUdeviceptr device = 0;
    CU_IS(CUDA_ERROR_OUT_OF_MEMORY, cuMemAlloc(&device, total + (1 << 20)));
    CU_IS(CUDA_ERROR_OUT_OF_MEMORY, cuMemAlloc(&device, (size_t)1 << 60));
    device = raw_alloc(4096);
    CU(cuMemFree(device));
    raw_close();
}

PEN_TEST(free_memory_goes_down_and_up_again)
{
    raw_open();
    enum { BYTES = 64 << 20 };
    size_t before, during, after, total;
    CU(cuMemGetInfo(&before, &total));
    CUdeviceptr device = raw_alloc(BYTES);
    CU(cuMemGetInfo(&during, &total));
    CU(cuMemFree(device));
    CU(cuMemGetInfo(&after, &total));
    assert_true(during <= before - BYTES);
    assert_true(after >= during + BYTES);
    raw_close();
}

PEN_TEST(copies_of_nothing_succeed)
{
    raw_open();
    CUstream stream = raw_stream();
    CUdeviceptr device = raw_alloc(64);
    char *host = raw_pinned(64);
    CU(cuMemcpyHtoDAsync(device, host, 0, stream));
    CU(cuMemcpyDtoHAsync(host, device, 0, stream));
    CU(cuMemcpyDtoDAsync(device, device, 0, stream));
    CU(cuStreamSynchronize(stream));
    CU(cuMemFreeHost(host));
    CU(cuMemFree(device));
    CU(cuStreamDestroy(stream));
    raw_close();
}

PEN_TEST(copy_to_no_memory_is_an_invalid_value)
{
    raw_open();
    CUstream stream = raw_stream();
    char *host = raw_pinned(64);
    CU_IS(CUDA_ERROR_INVALID_VALUE, cuMemcpyHtoDAsync(0, host, 64, stream));
    CU_IS(CUDA_ERROR_INVALID_VALUE, cuMemcpyDtoHAsync(host, 0, 64, stream));
    CU_IS(CUDA_ERROR_INVALID_VALUE, cuMemsetD8Async(0, 1, 64, stream));
    CU(cuStreamSynchronize(stream));
    CU(cuMemFreeHost(host));
    CU(cuStreamDestroy(stream));
    raw_close();
}

PEN_TEST(bytes_go_there_and_back)
{
    raw_open();
    enum { BYTES = 1 << 20 };
    CUstream stream = raw_stream();
    CUdeviceptr a = raw_alloc(BYTES), b = raw_alloc(BYTES);
    unsigned char *in = raw_pinned(BYTES), *out = raw_pinned(BYTES);
    uint64_t seed = 4;
    for (int i = 0; i < BYTES; i++)
        in[i] = (unsigned char)pen_test_random(&seed);
    CU(cuMemcpyHtoDAsync(a, in, BYTES, stream));
    CU(cuMemcpyDtoDAsync(b + 5, a + 3, BYTES - 5, stream));
    CU(cuMemsetD8Async(b, 0xee, 5, stream));
    CU(cuMemcpyDtoHAsync(out, b, BYTES, stream));
    CU(cuStreamSynchronize(stream));
    raw_expect_bytes(out, 0xee, 5);
    assert_memory_equal(out + 5, in + 3, BYTES - 5);
    CU(cuMemFree(a));
    CU(cuMemFree(b));
    CU(cuMemFreeHost(in));
    CU(cuMemFreeHost(out));
    CU(cuStreamDestroy(stream));
    raw_close();
}

PEN_TEST(pageable_upload_is_over_for_the_caller_on_return)
{
    raw_open();
    CUstream stream = raw_stream();
    // Below and above what drivers stage in one go.
    static const size_t sizes[] = { 1, 4096, 65536, 65537, 5 << 20 };
    for (size_t i = 0; i < sizeof(sizes) / sizeof(sizes[0]); i++) {
        const size_t bytes = sizes[i];
        CUdeviceptr device = raw_alloc(bytes);
        unsigned char *in = malloc(bytes), *out = raw_pinned(bytes);
        memset(in, 1, bytes);
        CU(cuMemcpyHtoDAsync(device, in, bytes, stream));
        memset(in, 2, bytes);
        CU(cuMemcpyDtoHAsync(out, device, bytes, stream));
        CU(cuStreamSynchronize(stream));
        raw_expect_bytes(out, 1, bytes);
        free(in);
        CU(cuMemFreeHost(out));
        CU(cuMemFree(device));
    }
    CU(cuStreamDestroy(stream));
    raw_close();
}

PEN_TEST(pageable_download_is_complete_on_return)
{
    raw_open();
    CUstream stream = raw_stream();
    static const size_t sizes[] = { 1, 4096, 65537, 5 << 20 };
    for (size_t i = 0; i < sizeof(sizes) / sizeof(sizes[0]); i++) {
        const size_t bytes = sizes[i];
        CUdeviceptr device = raw_alloc(bytes);
        unsigned char *out = calloc(1, bytes);
        for (int n = 0; n < 8; n++)
            CU(cuMemsetD8Async(device, (unsigned char)(n + 10), bytes, stream));
        CU(cuMemcpyDtoHAsync(out, device, bytes, stream));
        raw_expect_bytes(out, 17, bytes);
        free(out);
        CU(cuMemFree(device));
    }
    CU(cuStreamDestroy(stream));
    raw_close();
}

// --- 2D ---------------------------------------------------------------------

enum { W = 100, H = 40 };  // of the block that is copied

PEN_TEST(copies_in_2d_touch_just_their_rows)
{
    raw_open();
    CUstream stream = raw_stream();
    enum { HOST_PITCH = 128, DEVICE_PITCH = 192, X = 7, Y = 3 };
    const size_t host_bytes = HOST_PITCH * (H + Y + 2);
    const size_t device_bytes = DEVICE_PITCH * (H + Y + 2);
    CUdeviceptr a = raw_alloc(device_bytes), b = raw_alloc(device_bytes);
    unsigned char *in = raw_pinned(host_bytes), *out = raw_pinned(host_bytes);
    unsigned char *raw = raw_pinned(device_bytes);
    uint64_t seed = 9;
    for (size_t i = 0; i < host_bytes; i++)
        in[i] = (unsigned char)pen_test_random(&seed);
    memset(out, 0xaa, host_bytes);
    CU(cuMemsetD8Async(a, 0x11, device_bytes, stream));
    CU(cuMemsetD8Async(b, 0x22, device_bytes, stream));

    CUDA_MEMCPY2D copy = {
        .srcXInBytes = X,
        .srcY = 1,
        .srcMemoryType = CU_MEMORYTYPE_HOST,
        .srcHost = in,
        .srcPitch = HOST_PITCH,
        .dstXInBytes = 2,
        .dstY = Y,
        .dstMemoryType = CU_MEMORYTYPE_DEVICE,
        .dstDevice = a,
        .dstPitch = DEVICE_PITCH,
        .WidthInBytes = W,
        .Height = H,
    };
    CU(cuMemcpy2DAsync(&copy, stream));
    copy = (CUDA_MEMCPY2D){
        .srcXInBytes = 2,
        .srcY = Y,
        .srcMemoryType = CU_MEMORYTYPE_DEVICE,
        .srcDevice = a,
        .srcPitch = DEVICE_PITCH,
        .dstXInBytes = 50,
        .dstY = 2,
        .dstMemoryType = CU_MEMORYTYPE_DEVICE,
        .dstDevice = b,
        .dstPitch = DEVICE_PITCH,
        .WidthInBytes = W,
        .Height = H,
    };
    CU(cuMemcpy2DAsync(&copy, stream));
    copy = (CUDA_MEMCPY2D){
        .srcXInBytes = 50,
        .srcY = 2,
        .srcMemoryType = CU_MEMORYTYPE_DEVICE,
        .srcDevice = b,
        .srcPitch = DEVICE_PITCH,
        .dstMemoryType = CU_MEMORYTYPE_HOST,
        .dstHost = out,
        .dstPitch = HOST_PITCH,
        .WidthInBytes = W,
        .Height = H,
    };
    CU(cuMemcpy2DAsync(&copy, stream));
    CU(cuMemcpyDtoHAsync(raw, b, device_bytes, stream));
    CU(cuStreamSynchronize(stream));
    for (size_t y = 0; y < H + Y + 2; y++) {
        for (size_t x = 0; x < HOST_PITCH; x++) {
            const unsigned char want =
                y < H && x < W ? in[(y + 1) * HOST_PITCH + x + X] : 0xaa;
            assert_int_equal(out[y * HOST_PITCH + x], want);
        }
        for (size_t x = 0; x < DEVICE_PITCH; x++) {
            const bool inside = y >= 2 && y < H + 2 && x >= 50 && x < 50 + W;
            const unsigned char want =
                inside ? in[(y - 1) * HOST_PITCH + x - 50 + X] : 0x22;
            assert_int_equal(raw[y * DEVICE_PITCH + x], want);
        }
    }
    CU(cuMemFree(a));
    CU(cuMemFree(b));
    CU(cuMemFreeHost(in));
    CU(cuMemFreeHost(out));
    CU(cuMemFreeHost(raw));
    CU(cuStreamDestroy(stream));
    raw_close();
}

PEN_TEST(copy_in_2d_with_a_pitch_below_its_rows_is_refused)
{
    raw_open();
    CUstream stream = raw_stream();
    CUdeviceptr device = raw_alloc(W * H);
    unsigned char *host = raw_pinned(W * H);
    CUDA_MEMCPY2D copy = {
        .srcMemoryType = CU_MEMORYTYPE_HOST,
        .srcHost = host,
        .srcPitch = W - 1,
        .dstMemoryType = CU_MEMORYTYPE_DEVICE,
        .dstDevice = device,
        .dstPitch = W,
        .WidthInBytes = W,
        .Height = H,
    };
    CU_IS(CUDA_ERROR_INVALID_VALUE, cuMemcpy2DAsync(&copy, stream));
    copy.srcPitch = W;
    copy.dstPitch = W - 1;
    CU_IS(CUDA_ERROR_INVALID_VALUE, cuMemcpy2DAsync(&copy, stream));
    copy.dstPitch = W;
    CU(cuMemcpy2DAsync(&copy, stream));
    CU(cuStreamSynchronize(stream));
    CU(cuMemFree(device));
    CU(cuMemFreeHost(host));
    CU(cuStreamDestroy(stream));
    raw_close();
}

PEN_TEST_MAIN(
    PEN_CASE(device_memory_is_aligned_and_apart),
    PEN_CASE(misuse_of_allocations_is_an_invalid_value),
    PEN_CASE(memory_that_is_not_there_is_out_of_memory_and_nothing_breaks),
    PEN_CASE(free_memory_goes_down_and_up_again),
    PEN_CASE(copies_of_nothing_succeed),
    PEN_CASE(copy_to_no_memory_is_an_invalid_value),
    PEN_CASE(bytes_go_there_and_back),
    PEN_CASE(pageable_upload_is_over_for_the_caller_on_return),
    PEN_CASE(pageable_download_is_complete_on_return),
    PEN_CASE(copies_in_2d_touch_just_their_rows),
    PEN_CASE(copy_in_2d_with_a_pitch_below_its_rows_is_refused))
