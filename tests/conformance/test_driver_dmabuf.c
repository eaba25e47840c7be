// What we believe of device memory that is handed out as a descriptor.

#include <fcntl.h>
#include <unistd.h>

#include "raw_driver.h"

enum { GRANULE = 64 << 10 };

static bool exports(void)
{
    int can = 0;
    CU(cuDeviceGetAttribute(&can, CU_DEVICE_ATTRIBUTE_DMA_BUF_SUPPORTED,
                            cu.device));
    return can && cu.cuMemGetHandleForAddressRange;
}

// A driver call, for CU() and CU_IS().
#define handed_out(address, bytes, fd)                                         \
    cuMemGetHandleForAddressRange(fd, address, bytes,                          \
                                  CU_MEM_RANGE_HANDLE_TYPE_DMA_BUF_FD, 0)

static CUdeviceptr aligned(CUdeviceptr address)
{
    return (address + GRANULE - 1) / GRANULE * GRANULE;
}

#define NEEDS_EXPORT()                                                         \
    do {                                                                       \
        if (!exports()) {                                                      \
            raw_close();                                                       \
            PEN_SKIP("this device exports no memory");                         \
        }                                                                      \
    } while (0)

PEN_TEST(blocks_of_two_mebibytes_and_more_are_aligned_for_export)
{
    raw_open();
    NEEDS_EXPORT();
    static const size_t sizes[] = { 2 << 20, (2 << 20) + GRANULE, 5 << 20 };
    CUdeviceptr odd[3];
    for (int i = 0; i < 3; i++) {
        int fd;
        odd[i] = raw_alloc((size_t)(512 + 512 * i));
        CUdeviceptr at = raw_alloc(sizes[i]);
        assert_int_equal(at % GRANULE, 0);
        CU(handed_out(at, sizes[i], &fd));
        assert_int_equal(lseek(fd, 0, SEEK_END), sizes[i]);
        int twin = dup(fd);
        close(fd);
        assert_int_equal(lseek(twin, 0, SEEK_END), sizes[i]);
        close(twin);
        CU(cuMemFree(at));
    }
    for (int i = 0; i < 3; i++)
        CU(cuMemFree(odd[i]));
    raw_close();
}

PEN_TEST(the_aligned_part_of_a_small_block_can_be_exported)
{
    raw_open();
    NEEDS_EXPORT();
    for (size_t whole = GRANULE; whole < 2 << 20; whole *= 2) {
        int fd;
        CUdeviceptr odd = raw_alloc(1536), at = raw_alloc(whole + GRANULE);
        CU(handed_out(aligned(at), whole, &fd));
        assert_int_equal(lseek(fd, 0, SEEK_END), whole);
        close(fd);
        CU(cuMemFree(at));
        CU(cuMemFree(odd));
    }
    raw_close();
}

PEN_TEST(what_is_no_whole_page_is_not_exported)
{
    raw_open();
    NEEDS_EXPORT();
    int fd;
    CUdeviceptr at = raw_alloc(4 << 20);
    CU_IS(CUDA_ERROR_INVALID_VALUE, handed_out(at + 512, GRANULE, &fd));
    CU_IS(CUDA_ERROR_INVALID_VALUE, handed_out(at, 512, &fd));
    CU_IS(CUDA_ERROR_INVALID_VALUE, handed_out(at, 0, &fd));
    CU(cuMemFree(at));
    raw_close();
}

PEN_TEST(memory_can_be_freed_before_its_descriptor_is_closed)
{
    raw_open();
    NEEDS_EXPORT();
    int fd;
    CUdeviceptr at = raw_alloc(4 << 20);
    CU(handed_out(at, 4 << 20, &fd));
    CU(cuMemFree(at));
    assert_int_equal(close(fd), 0);
    raw_close();
}

PEN_TEST_MAIN(PEN_CASE(blocks_of_two_mebibytes_and_more_are_aligned_for_export),
              PEN_CASE(the_aligned_part_of_a_small_block_can_be_exported),
              PEN_CASE(what_is_no_whole_page_is_not_exported),
              PEN_CASE(memory_can_be_freed_before_its_descriptor_is_closed))
