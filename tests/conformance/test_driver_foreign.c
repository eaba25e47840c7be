// What we believe of memory that is not the driver's alone: host memory of the
// program that is registered, device memory that is handed out by a
// descriptor, and memory of others that is taken in by one.

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "raw_driver.h"

enum { BYTES = 1 << 20, GRANULE = 64 << 10 };

// --- registered -------------------------------------------------------------

// Copies from and to registered memory do what those of pinned memory do.
static void use_registered(unsigned char *memory)
{
    CUstream stream = raw_stream();
    CUdeviceptr device = raw_alloc(BYTES);
    CU(cuMemHostRegister(memory, BYTES, CU_MEMHOSTREGISTER_PORTABLE));
    for (int i = 0; i < BYTES; i++)
        memory[i] = (unsigned char)(i * 3 + i / 257);
    CU(cuMemcpyHtoDAsync(device, memory, BYTES, stream));
    CU(cuMemcpyDtoHAsync(memory, device + BYTES / 2, BYTES / 4, stream));
    CU(cuStreamSynchronize(stream));
    for (int i = 0; i < BYTES; i++) {
        const int from = i < BYTES / 4 ? i + BYTES / 2 : i;
        if (memory[i] != (unsigned char)(from * 3 + from / 257))
            fail_msg("byte %d is %d", i, memory[i]);
    }
    if (cu.emulated) {
        struct penemu_stats stats;
        cu.emu.penemu_get_stats(&stats);
        assert_int_equal(stats.pageable_h2d + stats.pageable_d2h, 0);
        assert_int_equal(stats.registrations, 1);
    }
    CU(cuMemHostUnregister(memory));
    CU(cuMemFree(device));
    CU(cuStreamDestroy(stream));
}

PEN_TEST(anonymous_memory_can_be_registered)
{
    raw_open();
    void *memory = mmap(NULL, BYTES, PROT_READ | PROT_WRITE,
                        MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    assert_ptr_not_equal(memory, MAP_FAILED);
    use_registered(memory);
    use_registered(memory);  // and again
    munmap(memory, BYTES);
    raw_close();
}

PEN_TEST(memory_of_a_memfd_can_be_registered)
{
    raw_open();
    const int fd = memfd_create("test", MFD_CLOEXEC);
    assert_true(fd >= 0);
    assert_int_equal(ftruncate(fd, BYTES), 0);
    void *memory = mmap(NULL, BYTES, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    assert_ptr_not_equal(memory, MAP_FAILED);
    close(fd);
    use_registered(memory);
    munmap(memory, BYTES);
    raw_close();
}

PEN_TEST(misuse_of_registration_is_refused)
{
    raw_open();
    void *memory = mmap(NULL, BYTES, PROT_READ | PROT_WRITE,
                        MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    assert_ptr_not_equal(memory, MAP_FAILED);
    CU_IS(CUDA_ERROR_HOST_MEMORY_NOT_REGISTERED, cuMemHostUnregister(memory));
    CU_IS(CUDA_ERROR_INVALID_VALUE, cuMemHostRegister(memory, 0, 0));
    CU(cuMemHostRegister(memory, BYTES, 0));
    CU_IS(CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED,
          cuMemHostRegister(memory, BYTES, 0));
    CU(cuMemHostUnregister(memory));
    CU_IS(CUDA_ERROR_HOST_MEMORY_NOT_REGISTERED, cuMemHostUnregister(memory));
    munmap(memory, BYTES);
    raw_close();
}

// --- handed out -------------------------------------------------------------

static bool can_export(void)
{
    int able = 0;
    return cu.cuMemGetHandleForAddressRange &&
           cu.cuDeviceGetAttribute(&able, CU_DEVICE_ATTRIBUTE_DMA_BUF_SUPPORTED,
                                   cu.device) == CUDA_SUCCESS &&
           able;
}

static void export_open(void)
{
    raw_open();
    if (can_export())
        return;
    raw_close();
    PEN_SKIP("the device hands out no descriptors of memory");
}

// Small allocations begin anywhere; their aligned part can be exported.
static CUdeviceptr aligned(CUdeviceptr address)
{
    return (address + GRANULE - 1) / GRANULE * GRANULE;
}

static int export(CUdeviceptr address, size_t bytes)
{
    int fd = -1;
    CU(cuMemGetHandleForAddressRange(&fd, address, bytes,
                                     CU_MEM_RANGE_HANDLE_TYPE_DMA_BUF_FD, 0));
    assert_true(fd >= 0);
    return fd;
}

PEN_TEST(descriptor_is_as_large_as_the_memory)
{
    export_open();
    for (size_t bytes = GRANULE; bytes <= 4 << 20; bytes *= 4) {
        const CUdeviceptr memory = raw_alloc(bytes + GRANULE);
        const CUdeviceptr from = aligned(memory);
        const size_t whole =
            (memory + bytes + GRANULE - from) / GRANULE * GRANULE;
        const int fd = export(from, whole);
        const off_t end = lseek(fd, 0, SEEK_END);
        assert_true(end >= (off_t)whole);
        close(fd);
        CU(cuMemFree(memory));
    }
    raw_close();
}

PEN_TEST(descriptors_can_be_duplicated_and_closed_before_the_memory_goes)
{
    export_open();
    CUstream stream = raw_stream();
    const CUdeviceptr memory = raw_alloc(4 << 20);
    assert_int_equal(memory % GRANULE, 0);  // large ones are aligned
    const int fd = export(memory, 4 << 20);
    const int copy = fcntl(fd, F_DUPFD_CLOEXEC, 0);
    assert_true(copy >= 0 && copy != fd);
    close(fd);
    assert_true(lseek(copy, 0, SEEK_END) >= 4 << 20);
    close(copy);
    // The memory is as good as before.
    unsigned char *host = raw_pinned(64);
    CU(cuMemsetD8Async(memory, 5, 64, stream));
    CU(cuMemcpyDtoHAsync(host, memory, 64, stream));
    CU(cuStreamSynchronize(stream));
    raw_expect_bytes(host, 5, 64);
    CU(cuMemFreeHost(host));
    CU(cuMemFree(memory));
    CU(cuStreamDestroy(stream));
    raw_close();
}

PEN_TEST(descriptor_outlives_the_memory)
{
    export_open();
    const CUdeviceptr memory = raw_alloc(4 << 20);
    const int fd = export(memory, 4 << 20);
    CU(cuMemFree(memory));
    assert_true(lseek(fd, 0, SEEK_END) >= 4 << 20);
    close(fd);
    raw_close();
}

PEN_TEST(what_is_no_device_memory_is_not_exported)
{
    export_open();
    int fd = -1;
    CU_IS(CUDA_ERROR_INVALID_VALUE,
          cuMemGetHandleForAddressRange(&fd, (CUdeviceptr)16 * GRANULE, GRANULE,
                                        CU_MEM_RANGE_HANDLE_TYPE_DMA_BUF_FD,
                                        0));
    const CUdeviceptr memory = raw_alloc(4 << 20);
    CU_IS(CUDA_ERROR_INVALID_VALUE,
          cuMemGetHandleForAddressRange(&fd, memory + 16, GRANULE,
                                        CU_MEM_RANGE_HANDLE_TYPE_DMA_BUF_FD,
                                        0));
    CU_IS(CUDA_ERROR_INVALID_VALUE,
          cuMemGetHandleForAddressRange(
              &fd, memory, 1000, CU_MEM_RANGE_HANDLE_TYPE_DMA_BUF_FD, 0));
    assert_int_equal(fd, -1);
    CU(cuMemFree(memory));
    raw_close();
}

// --- taken in ---------------------------------------------------------------

PEN_TEST(what_is_taken_in_has_the_same_bytes)
{
    export_open();
    const CUdeviceptr memory = raw_alloc(4 << 20);
    const int fd = export(memory, 4 << 20);
    const CUDA_EXTERNAL_MEMORY_HANDLE_DESC whose = {
        .type = CU_EXTERNAL_MEMORY_HANDLE_TYPE_DMABUF_FD,
        .handle.fd = fd,
        .size = 4 << 20,
    };
    CUexternalMemory external = NULL;
    const CUresult result = cu.cuImportExternalMemory(&external, &whose);
    if (!cu.emulated && result != CUDA_SUCCESS) {
        // As cuda.h says: only where the GPU uses the machine's memory.
        print_message("# import: %s\n", raw_name(result));
        assert_true(result == CUDA_ERROR_NOT_SUPPORTED ||
                    result == CUDA_ERROR_INVALID_VALUE);
        close(fd);
        CU(cuMemFree(memory));
        raw_close();
        return;
    }
    assert_int_equal(result, CUDA_SUCCESS);
    close(fd);  // the driver has its own
    CUstream stream = raw_stream();
    unsigned char *host = raw_pinned(4096);
    const CUDA_EXTERNAL_MEMORY_BUFFER_DESC part = { .size = 4 << 20 };
    CUdeviceptr again = 0;
    CU(cuExternalMemoryGetMappedBuffer(&again, external, &part));
    assert_true(again != memory);
    CU(cuMemsetD8Async(memory, 1, 4 << 20, stream));
    CU(cuMemsetD8Async(again + 1024, 2, 1024, stream));
    CU(cuMemcpyDtoHAsync(host, memory, 4096, stream));
    CU(cuStreamSynchronize(stream));
    raw_expect_bytes(host, 1, 1024);
    raw_expect_bytes(host + 1024, 2, 1024);
    raw_expect_bytes(host + 2048, 1, 2048);
    // It stays when the first owner goes.
    CU(cuMemFree(memory));
    CU(cuMemcpyDtoHAsync(host, again + 1000, 4096, stream));
    CU(cuStreamSynchronize(stream));
    raw_expect_bytes(host, 1, 24);
    raw_expect_bytes(host + 24, 2, 1024);
    CU(cuMemFree(again));
    CU(cuDestroyExternalMemory(external));
    CU(cuMemFreeHost(host));
    CU(cuStreamDestroy(stream));
    raw_close();
}

PEN_TEST(what_cannot_be_mapped_is_not_taken_in)
{
    raw_open();
    CUexternalMemory external = NULL;
    int pipes[2];
    assert_int_equal(pipe(pipes), 0);
    const CUDA_EXTERNAL_MEMORY_HANDLE_DESC whose = {
        .type = CU_EXTERNAL_MEMORY_HANDLE_TYPE_DMABUF_FD,
        .handle.fd = pipes[0],
        .size = GRANULE,
    };
    const CUresult result = cu.cuImportExternalMemory(&external, &whose);
    if (!cu.emulated)
        print_message("# import of a pipe: %s\n", raw_name(result));
    assert_true(result == CUDA_ERROR_NOT_SUPPORTED ||
                result == CUDA_ERROR_INVALID_VALUE ||
                (!cu.emulated && result == CUDA_ERROR_UNKNOWN));
    close(pipes[0]);
    close(pipes[1]);
    raw_close();
}

PEN_TEST_MAIN(
    PEN_CASE(anonymous_memory_can_be_registered),
    PEN_CASE(memory_of_a_memfd_can_be_registered),
    PEN_CASE(misuse_of_registration_is_refused),
    PEN_CASE(descriptor_is_as_large_as_the_memory),
    PEN_CASE(descriptors_can_be_duplicated_and_closed_before_the_memory_goes),
    PEN_CASE(descriptor_outlives_the_memory),
    PEN_CASE(what_is_no_device_memory_is_not_exported),
    PEN_CASE(what_is_taken_in_has_the_same_bytes),
    PEN_CASE(what_cannot_be_mapped_is_not_taken_in))
