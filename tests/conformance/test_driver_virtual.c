// What we believe of virtual memory: addresses are reserved, memory is mapped
// behind them piece by piece, and work runs across the seams.

#include "raw_driver.h"

static CUmemAllocationProp plain(void)
{
    return (CUmemAllocationProp){
        .type = CU_MEM_ALLOCATION_TYPE_PINNED,
        .location = { CU_MEM_LOCATION_TYPE_DEVICE, cu.device },
    };
}

static size_t granule(void)
{
    const CUmemAllocationProp prop = plain();
    size_t bytes = 0;
    CU(cuMemGetAllocationGranularity(&bytes, &prop,
                                     CU_MEM_ALLOC_GRANULARITY_RECOMMENDED));
    return bytes;
}

// The program must be able to use it, or the test says why not.
static size_t virtual_open(void)
{
    raw_open();
    int able = 0;
    CU(cuDeviceGetAttribute(
        &able, CU_DEVICE_ATTRIBUTE_VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED,
        cu.device));
    if (!able || !cu.cuMemCreate) {
        raw_close();
        PEN_SKIP("the device has no virtual memory");
    }
    return granule();
}

// Memory at `address`, with access; the handle is given back at once.
static void map(CUdeviceptr address, size_t bytes)
{
    const CUmemAllocationProp prop = plain();
    const CUmemAccessDesc access = { prop.location,
                                     CU_MEM_ACCESS_FLAGS_PROT_READWRITE };
    CUmemGenericAllocationHandle handle = 0;
    CU(cuMemCreate(&handle, bytes, &prop, 0));
    CU(cuMemMap(address, bytes, 0, handle, 0));
    CU(cuMemRelease(handle));
    CU(cuMemSetAccess(address, bytes, &access, 1));
}

PEN_TEST(granules_are_powers_of_two_of_whole_pages)
{
    const size_t bytes = virtual_open();
    assert_true(bytes >= 4096);
    assert_int_equal(bytes & (bytes - 1), 0);
    raw_close();
}

PEN_TEST(memory_grows_in_place_and_keeps_its_contents)
{
    const size_t g = virtual_open();
    CUstream stream = raw_stream();
    unsigned char *host = raw_pinned(g);
    CUdeviceptr address = 0;
    CU(cuMemAddressReserve(&address, 8 * g, 0, 0, 0));
    assert_int_equal(address % g, 0);
    map(address, g);
    CU(cuMemsetD8Async(address, 1, g, stream));
    // The work goes on while there comes more behind it.
    map(address + g, 2 * g);
    CU(cuMemsetD8Async(address + g, 2, 2 * g, stream));
    CU(cuMemcpyDtoHAsync(host, address + g / 2, g, stream));
    CU(cuStreamSynchronize(stream));
    raw_expect_bytes(host, 1, g / 2);
    raw_expect_bytes(host + g / 2, 2, g - g / 2);

    CU(cuMemUnmap(address, g));
    CU(cuMemUnmap(address + g, 2 * g));
    CU(cuMemAddressFree(address, 8 * g));
    CU(cuMemFreeHost(host));
    CU(cuStreamDestroy(stream));
    raw_close();
}

PEN_TEST(copies_and_fills_run_across_a_seam)
{
    const size_t g = virtual_open();
    CUstream stream = raw_stream();
    unsigned char *host = raw_pinned(g);
    CUdeviceptr address = 0, other = raw_alloc(g);
    CU(cuMemAddressReserve(&address, 2 * g, 0, 0, 0));
    map(address, g);
    map(address + g, g);
    for (size_t i = 0; i < g; i++)
        host[i] = (unsigned char)(i * 7 + i / 251);
    const CUdeviceptr across = address + g - 1000;
    CU(cuMemcpyHtoDAsync(across, host, 4096, stream));
    CU(cuMemcpyDtoDAsync(other, across, 4096, stream));
    CU(cuMemsetD8Async(across, 9, 2000, stream));
    const CUDA_MEMCPY2D copy = {
        .srcMemoryType = CU_MEMORYTYPE_DEVICE,
        .srcDevice = across,
        .srcPitch = 500,
        .dstMemoryType = CU_MEMORYTYPE_DEVICE,
        .dstDevice = other + 8192,
        .dstPitch = 400,
        .WidthInBytes = 400,
        .Height = 8,
    };
    CU(cuMemcpy2DAsync(&copy, stream));
    unsigned char *back = raw_pinned(g);
    CU(cuMemcpyDtoHAsync(back, other, 4096, stream));
    CU(cuMemcpyDtoHAsync(back + 8192, other + 8192, 3200, stream));
    CU(cuStreamSynchronize(stream));
    assert_memory_equal(back, host, 4096);
    raw_expect_bytes(back + 8192, 9, 1600);
    for (size_t y = 4; y < 8; y++)
        assert_memory_equal(back + 8192 + y * 400, host + y * 500, 400);

    CU(cuMemUnmap(address, g));
    CU(cuMemUnmap(address + g, g));
    CU(cuMemAddressFree(address, 2 * g));
    CU(cuMemFree(other));
    CU(cuMemFreeHost(host));
    CU(cuMemFreeHost(back));
    CU(cuStreamDestroy(stream));
    raw_close();
}

PEN_TEST(memory_is_counted_from_its_making_to_its_unmapping)
{
    const size_t g = virtual_open();
    size_t before, reserved, mapped, after, total;
    CUdeviceptr address = 0;
    const size_t bytes = (64 << 20) / g * g;
    CU(cuMemGetInfo(&before, &total));
    CU(cuMemAddressReserve(&address, bytes, 0, 0, 0));
    CU(cuMemGetInfo(&reserved, &total));
    assert_true(reserved + (8 << 20) > before);  // addresses cost next to none
    map(address, bytes);
    CU(cuMemGetInfo(&mapped, &total));
    assert_true(mapped <= before - bytes);
    CU(cuMemUnmap(address, bytes));
    CU(cuMemGetInfo(&after, &total));
    assert_true(after >= mapped + bytes);
    CU(cuMemAddressFree(address, bytes));
    raw_close();
}

PEN_TEST(memory_that_is_not_there_is_out_of_memory)
{
    const size_t g = virtual_open();
    const CUmemAllocationProp prop = plain();
    CUmemGenericAllocationHandle handle = 0;
    size_t free_bytes, total;
    CU(cuMemGetInfo(&free_bytes, &total));
    CU_IS(CUDA_ERROR_OUT_OF_MEMORY,
          cuMemCreate(&handle, (total / g + 1) * g, &prop, 0));
    CU(cuMemCreate(&handle, g, &prop, 0));
    CU(cuMemRelease(handle));
    raw_close();
}

// The emulated driver's answer is this one; a GPU's may be another error, which
// is told, for which of them is promised nowhere.
static void refused(CUresult want, CUresult got, const char *call)
{
    if (got == want)
        return;
    if (got == CUDA_SUCCESS || cu.emulated)
        fail_msg("%s: %s, not %s", call, raw_name(got), raw_name(want));
    print_message("# %s: %s\n", call, raw_name(got));
}
#define REFUSED(want, call) refused(want, cu.call, #call)

PEN_TEST(misuse_of_virtual_memory_is_an_invalid_value)
{
    const size_t g = virtual_open();
    const CUresult bad = CUDA_ERROR_INVALID_VALUE;
    const CUmemAllocationProp prop = plain();
    CUmemGenericAllocationHandle handle = 0;
    CUdeviceptr address = 0;
    CU_IS(bad, cuMemCreate(&handle, 0, &prop, 0));
    CU_IS(bad, cuMemCreate(&handle, g / 2, &prop, 0));
    CU_IS(bad, cuMemAddressReserve(&address, 0, 0, 0, 0));
    CU(cuMemAddressReserve(&address, 4 * g, 0, 0, 0));
    CU(cuMemCreate(&handle, 2 * g, &prop, 0));
    CU_IS(bad, cuMemMap(address + 1, 2 * g, 0, handle, 0));
    CU_IS(CUDA_ERROR_NOT_SUPPORTED, cuMemMap(address, 4 * g, 0, handle, 0));
    CU(cuMemMap(address, 2 * g, 0, handle, 0));
    REFUSED(bad, cuMemUnmap(address, g));      // a part
    REFUSED(bad, cuMemUnmap(address + g, g));  // likewise
    REFUSED(bad, cuMemUnmap(address + 1, 2 * g));
    CU(cuMemUnmap(address, 2 * g));
    // A driver takes it that nothing is there any more.
    if (cu.emulated)
        REFUSED(bad, cuMemUnmap(address, 2 * g));
    CU(cuMemRelease(handle));
    if (cu.emulated)
        REFUSED(bad, cuMemAddressFree(address, 2 * g));  // of another size
    CU(cuMemAddressFree(address, 4 * g));
    if (cu.emulated)
        REFUSED(bad, cuMemAddressFree(address, 4 * g));
    raw_close();
}

PEN_TEST(addresses_with_memory_behind_them_are_not_freed)
{
    const size_t g = virtual_open();
    if (!cu.emulated) {
        raw_close();
        PEN_SKIP("what a driver does then is not said");
    }
    CUdeviceptr address = 0;
    CU(cuMemAddressReserve(&address, 2 * g, 0, 0, 0));
    map(address + g, g);
    CU_IS(CUDA_ERROR_INVALID_VALUE, cuMemAddressFree(address, 2 * g));
    CU(cuMemUnmap(address + g, g));
    CU(cuMemAddressFree(address, 2 * g));
    raw_close();
}

PEN_TEST_MAIN(PEN_CASE(granules_are_powers_of_two_of_whole_pages),
              PEN_CASE(memory_grows_in_place_and_keeps_its_contents),
              PEN_CASE(copies_and_fills_run_across_a_seam),
              PEN_CASE(memory_is_counted_from_its_making_to_its_unmapping),
              PEN_CASE(memory_that_is_not_there_is_out_of_memory),
              PEN_CASE(misuse_of_virtual_memory_is_an_invalid_value),
              PEN_CASE(addresses_with_memory_behind_them_are_not_freed))
