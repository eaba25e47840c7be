// The emulated device's virtual, registered and shared memory: what a real
// driver only sometimes punishes is punished, and what is left is counted.

#include <signal.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include "raw_driver.h"

enum { GRANULE = 2 << 20, PIECE = 64 << 10 };

static const CUmemAllocationProp plain = {
    .type = CU_MEM_ALLOCATION_TYPE_PINNED,
    .location = { CU_MEM_LOCATION_TYPE_DEVICE, 0 },
};
static const CUmemAccessDesc access_all = {
    { CU_MEM_LOCATION_TYPE_DEVICE, 0 },
    CU_MEM_ACCESS_FLAGS_PROT_READWRITE,
};
static const CUmemAccessDesc access_none = {
    { CU_MEM_LOCATION_TYPE_DEVICE, 0 },
    CU_MEM_ACCESS_FLAGS_PROT_NONE,
};

static void expect_report(const char *text)
{
    char report[512];
    cu.emu.penemu_report(report, sizeof(report));
    if (!strstr(report, text))
        fail_msg("'%s' is not in '%s'", text, report);
}

static CUdeviceptr reserve(size_t bytes)
{
    CUdeviceptr address = 0;
    CU(cuMemAddressReserve(&address, bytes, 0, 0, 0));
    return address;
}

static CUmemGenericAllocationHandle create(size_t bytes)
{
    CUmemGenericAllocationHandle handle = 0;
    CU(cuMemCreate(&handle, bytes, &plain, 0));
    return handle;
}

static void on_fault(int number)
{
    (void)number;
    _exit(42);
}

// AddressSanitizer knows that nobody is to look there, and would say so first.
__attribute__((no_sanitize("address"))) static void look(const void *memory)
{
    (void)*(const volatile unsigned char *)memory;
}

// Whether reading a byte of host memory kills.
static bool faults(const void *memory)
{
    const pid_t child = fork();
    assert_true(child >= 0);
    if (child == 0) {
        signal(SIGSEGV, on_fault);
        signal(SIGBUS, on_fault);
        look(memory);
        _exit(0);
    }
    int status = 0;
    assert_int_equal(waitpid(child, &status, 0), child);
    return !WIFEXITED(status) || WEXITSTATUS(status) == 42;
}

// --- virtual memory ---------------------------------------------------------

PEN_TEST(addresses_need_memory_and_memory_needs_access)
{
    raw_open();
    CUstream stream = raw_stream();
    const CUdeviceptr probe = raw_alloc(64);
    // The bytes of all addresses lie at one distance.
    char *const base = cu.emu.penemu_bytes(probe, 64);
    const CUdeviceptr at = reserve(4 * GRANULE);
    const char *const bytes = base + (at - probe);
    const CUresult bad = CUDA_ERROR_INVALID_VALUE;

    CU_IS(bad, cuMemsetD8Async(at, 1, 16, stream));
    expect_report("no memory is mapped there");
    assert_null(cu.emu.penemu_bytes(at, 1));
    assert_true(faults(bytes));

    CUmemGenericAllocationHandle handle = create(GRANULE);
    CU(cuMemMap(at, GRANULE, 0, handle, 0));
    CU_IS(bad, cuMemsetD8Async(at, 1, 16, stream));
    expect_report("without access");
    assert_true(faults(bytes));

    CU(cuMemSetAccess(at, GRANULE, &access_all, 1));
    CU(cuMemsetD8Async(at, 1, GRANULE, stream));
    CU(cuStreamSynchronize(stream));
    assert_false(faults(bytes));
    raw_expect_bytes(cu.emu.penemu_bytes(at, GRANULE), 1, GRANULE);
    CU_IS(bad, cuMemsetD8Async(at + 1, 1, GRANULE, stream));
    expect_report("leave their allocation");

    CU(cuMemSetAccess(at, GRANULE, &access_none, 1));
    CU_IS(bad, cuMemsetD8Async(at, 1, 16, stream));
    assert_true(faults(bytes));
    CU(cuMemUnmap(at, GRANULE));
    CU_IS(bad, cuMemsetD8Async(at, 1, 16, stream));
    assert_true(faults(bytes));
    CU(cuMemRelease(handle));
    CU(cuMemAddressFree(at, 4 * GRANULE));
    assert_false(faults(bytes));  // room for allocations again

    CU(cuMemFree(probe));
    CU(cuStreamDestroy(stream));
    raw_close();
}

PEN_TEST(access_ends_where_the_next_piece_has_none)
{
    raw_open();
    CUstream stream = raw_stream();
    const CUdeviceptr at = reserve(4 * GRANULE);
    for (int i = 0; i < 3; i++) {
        CUmemGenericAllocationHandle handle = create(GRANULE);
        CU(cuMemMap(at + (CUdeviceptr)i * GRANULE, GRANULE, 0, handle, 0));
        CU(cuMemRelease(handle));
    }
    CU(cuMemSetAccess(at, 2 * GRANULE, &access_all, 1));
    CU(cuMemsetD8Async(at, 3, 2 * GRANULE, stream));
    CU_IS(CUDA_ERROR_INVALID_VALUE,
          cuMemsetD8Async(at + GRANULE, 3, GRANULE + 1, stream));
    CU_IS(CUDA_ERROR_INVALID_VALUE,
          cuMemSetAccess(at, 4 * GRANULE, &access_all, 1));
    CU_IS(CUDA_ERROR_INVALID_VALUE,
          cuMemSetAccess(at, GRANULE / 2, &access_all, 1));
    CU(cuStreamSynchronize(stream));
    CU(cuMemUnmap(at + GRANULE, GRANULE));
    CU_IS(CUDA_ERROR_INVALID_VALUE,
          cuMemsetD8Async(at, 3, GRANULE + 1, stream));
    CU(cuMemUnmap(at, GRANULE));
    CU(cuMemUnmap(at + 2 * GRANULE, GRANULE));
    CU(cuMemAddressFree(at, 4 * GRANULE));
    CU(cuStreamDestroy(stream));
    raw_close();
}

PEN_TEST(unmapping_under_queued_work_breaks_the_context)
{
    for (int other = 0; other < 2; other++) {
        raw_open();
        cu.emu.penemu_set_mode(PENEMU_LAZY, 0);
        CUstream stream = raw_stream();
        const CUdeviceptr at = reserve(2 * GRANULE);
        for (unsigned i = 0; i < 2; i++) {
            CUmemGenericAllocationHandle handle = create(GRANULE);
            CU(cuMemMap(at + (size_t)i * GRANULE, GRANULE, 0, handle, 0));
            CU(cuMemRelease(handle));
        }
        CU(cuMemSetAccess(at, 2 * GRANULE, &access_all, 1));
        CU(cuMemsetD8Async(at + GRANULE - 4, 1, 4, stream));
        if (other) {
            // Of the first piece: the second is nobody's.
            CU(cuMemUnmap(at + GRANULE, GRANULE));
            CU(cuStreamSynchronize(stream));
            raw_expect_bytes(cu.emu.penemu_bytes(at + GRANULE - 4, 4), 1, 4);
            CU(cuMemUnmap(at, GRANULE));
            CU(cuMemAddressFree(at, 2 * GRANULE));
            CU(cuStreamDestroy(stream));
            raw_close();
            continue;
        }
        CU_IS(CUDA_ERROR_ILLEGAL_ADDRESS, cuMemUnmap(at, GRANULE));
        expect_report("queued work still uses the memory");
        CU_IS(CUDA_ERROR_ILLEGAL_ADDRESS, cuStreamSynchronize(stream));
        cu.emu.penemu_reset();
    }
}

PEN_TEST(memory_may_have_two_addresses)
{
    raw_open();
    CUstream stream = raw_stream();
    const CUdeviceptr at = reserve(2 * GRANULE);
    CUmemGenericAllocationHandle handle = create(GRANULE);
    CU(cuMemMap(at, GRANULE, 0, handle, 0));
    CU(cuMemMap(at + GRANULE, GRANULE, 0, handle, 0));
    CU(cuMemRelease(handle));
    CU(cuMemSetAccess(at, 2 * GRANULE, &access_all, 1));
    CU(cuMemsetD8Async(at + 100, 7, 100, stream));
    CU(cuStreamSynchronize(stream));
    raw_expect_bytes(cu.emu.penemu_bytes(at + GRANULE + 100, 100), 7, 100);
    // Gone with its last address.
    struct penemu_stats stats;
    CU(cuMemUnmap(at, GRANULE));
    cu.emu.penemu_get_stats(&stats);
    assert_int_equal(stats.device_bytes, GRANULE);
    CU(cuMemUnmap(at + GRANULE, GRANULE));
    cu.emu.penemu_get_stats(&stats);
    assert_int_equal(stats.device_bytes, 0);
    CU(cuMemAddressFree(at, 2 * GRANULE));
    CU(cuStreamDestroy(stream));
    raw_close();
}

PEN_TEST(little_memory_is_little_however_it_is_made)
{
    raw_open();
    assert_int_equal(cu.emu.penemu_set_memory(4 * GRANULE), 0);
    CUmemGenericAllocationHandle a = create(2 * GRANULE), b = 0;
    CUdeviceptr device = raw_alloc(GRANULE), more = 0;
    CU_IS(CUDA_ERROR_OUT_OF_MEMORY, cuMemCreate(&b, 2 * GRANULE, &plain, 0));
    CU_IS(CUDA_ERROR_OUT_OF_MEMORY, cuMemAlloc(&more, GRANULE + 1));
    b = create(GRANULE);
    CU_IS(CUDA_ERROR_OUT_OF_MEMORY, cuMemAlloc(&more, 1));
    CU(cuMemRelease(a));
    more = raw_alloc(2 * GRANULE);
    CU(cuMemFree(more));
    CU(cuMemFree(device));
    CU(cuMemRelease(b));
    raw_close();
}

PEN_TEST(blocks_and_reserved_addresses_lie_apart)
{
    raw_open();
    CUdeviceptr blocks[16], ranges[16];
    for (unsigned i = 0; i < 16; i++) {
        blocks[i] = raw_alloc(1000 + i * PIECE);
        ranges[i] = reserve((1 + i % 3) * (size_t)GRANULE);
        assert_int_equal(ranges[i] % GRANULE, 0);
    }
    for (unsigned i = 0; i < 16; i++) {
        const size_t bytes = (1 + i % 3) * (size_t)GRANULE;
        for (unsigned k = 0; k < 16; k++) {
            assert_true(blocks[k] + 1000 + k * PIECE <= ranges[i] ||
                        blocks[k] >= ranges[i] + bytes);
            assert_true(i == k || ranges[k] >= ranges[i] + bytes ||
                        ranges[k] < ranges[i]);
        }
    }
    for (unsigned i = 0; i < 16; i++) {
        CU(cuMemFree(blocks[i]));
        CU(cuMemAddressFree(ranges[i], (1 + i % 3) * (size_t)GRANULE));
    }
    raw_close();
}

// --- registered -------------------------------------------------------------

PEN_TEST(misuse_of_registered_memory_is_refused_with_a_report)
{
    raw_open();
    CUstream stream = raw_stream();
    const CUresult bad = CUDA_ERROR_INVALID_VALUE;
    const CUdeviceptr device = raw_alloc(3 * 4096);
    char *memory = mmap(NULL, 4 * 4096, PROT_READ | PROT_WRITE,
                        MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    assert_ptr_not_equal(memory, MAP_FAILED);
    char *pinned = raw_pinned(4096);

    CU(cuMemHostRegister(memory + 4096, 4096, 0));
    const CUresult again = CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED;
    CU_IS(again, cuMemHostRegister(memory, 4097, 0));
    CU_IS(again, cuMemHostRegister(memory + 8191, 1, 0));
    CU_IS(again, cuMemHostRegister(pinned, 4096, 0));
    expect_report("pinned or registered already");
    CU(cuMemHostRegister(memory, 4096, 0));
    CU(cuMemHostUnregister(memory));
    CU_IS(bad, cuMemFreeHost(memory + 4096));
    const CUresult none = CUDA_ERROR_HOST_MEMORY_NOT_REGISTERED;
    CU_IS(none, cuMemHostUnregister(pinned));
    CU_IS(none, cuMemHostUnregister(memory + 4097));
    CU_IS(bad, cuMemHostRegister(memory, 4096, 0x80));
    CU_IS(bad, cuMemHostRegister((void *)(uintptr_t)device, 4096,
                                 0));  // the device's

    CU_IS(bad, cuMemcpyHtoDAsync(device, memory + 4096, 4097, stream));
    expect_report("leave their registered allocation");
    CU(cuMemHostUnregister(memory + 4096));
    munmap(memory + 4096, 4096);
    CU_IS(bad, cuMemHostRegister(memory, 3 * 4096, 0));
    expect_report("not mapped");

    munmap(memory, 4 * 4096);
    CU(cuMemFreeHost(pinned));
    CU(cuMemFree(device));
    CU(cuStreamDestroy(stream));
    raw_close();
}

// --- shared -----------------------------------------------------------------

static int export(CUdeviceptr address, size_t bytes)
{
    int fd = -1;
    CU(cuMemGetHandleForAddressRange(&fd, address, bytes,
                                     CU_MEM_RANGE_HANDLE_TYPE_DMA_BUF_FD, 0));
    return fd;
}

PEN_TEST(descriptor_is_the_memory_itself)
{
    raw_open();
    CUstream stream = raw_stream();
    const CUdeviceptr device = raw_alloc(GRANULE);
    const int fd = export(device, GRANULE);
    unsigned char *seen =
        mmap(NULL, GRANULE, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    assert_ptr_not_equal(seen, MAP_FAILED);
    assert_int_equal(lseek(fd, 0, SEEK_END), GRANULE);  // of this range only
    close(fd);
    CU(cuMemsetD8Async(device + 5, 9, 100, stream));
    CU(cuStreamSynchronize(stream));
    raw_expect_bytes(seen + 5, 9, 100);
    memset(seen, 4, GRANULE);
    raw_expect_bytes(cu.emu.penemu_bytes(device, GRANULE), 4, GRANULE);
    // Whoever has it still has it, and the next block is another.
    CU(cuMemFree(device));
    raw_expect_bytes(seen, 4, GRANULE);
    const CUdeviceptr next = raw_alloc(GRANULE);
    CU(cuMemsetD8Async(next, 5, GRANULE, stream));
    CU(cuStreamSynchronize(stream));
    raw_expect_bytes(seen, 4, GRANULE);
    munmap(seen, GRANULE);
    CU(cuMemFree(next));
    CU(cuStreamDestroy(stream));
    raw_close();
}

PEN_TEST(descriptors_are_left_for_the_program)
{
    raw_open();
    struct rlimit before, few;
    assert_int_equal(getrlimit(RLIMIT_NOFILE, &before), 0);
    few = before;
    few.rlim_cur = 64;
    assert_int_equal(setrlimit(RLIMIT_NOFILE, &few), 0);
    CUdeviceptr blocks[100];
    for (int i = 0; i < 100; i++)
        blocks[i] = raw_alloc(2 * PIECE);
    int none = -1;
    const CUdeviceptr whole = (blocks[99] + PIECE - 1) / PIECE * PIECE;
    assert_int_equal(
        cu.cuMemGetHandleForAddressRange(
            &none, whole, PIECE, CU_MEM_RANGE_HANDLE_TYPE_DMA_BUF_FD, 0),
        CUDA_ERROR_OPERATING_SYSTEM);
    assert_int_equal(none, -1);
    int fd[20];
    for (int i = 0; i < 20; i++)
        fd[i] = dup(1);
    for (int i = 0; i < 20; i++) {
        assert_true(fd[i] >= 0);
        close(fd[i]);
    }
    for (int i = 0; i < 100; i++)
        CU(cuMemFree(blocks[i]));
    assert_int_equal(setrlimit(RLIMIT_NOFILE, &before), 0);
    raw_close();
}

PEN_TEST(mapped_memory_is_exported_as_well)
{
    raw_open();
    const CUdeviceptr at = reserve(GRANULE);
    CUmemGenericAllocationHandle handle = create(GRANULE);
    CU(cuMemMap(at, GRANULE, 0, handle, 0));
    CU(cuMemRelease(handle));
    CU(cuMemSetAccess(at, GRANULE, &access_all, 1));
    const int fd = export(at, GRANULE);
    assert_int_equal(lseek(fd, 0, SEEK_END), GRANULE);
    close(fd);
    CU(cuMemUnmap(at, GRANULE));
    CU(cuMemAddressFree(at, GRANULE));
    raw_close();
}

PEN_TEST(device_shares_as_it_is_told)
{
    for (unsigned mask = 0; mask < 4; mask++) {
        raw_open();
        assert_int_equal(cu.emu.penemu_set_dmabuf(mask), 0);
        assert_int_equal(cu.emu.penemu_set_dmabuf(4), -1);
        int able = -1, fd = -1;
        CU(cuDeviceGetAttribute(&able, CU_DEVICE_ATTRIBUTE_DMA_BUF_SUPPORTED,
                                0));
        assert_int_equal(able, (mask & PENEMU_EXPORT) != 0);
        const CUdeviceptr device = raw_alloc(GRANULE);
        const CUresult out = cu.cuMemGetHandleForAddressRange(
            &fd, device, GRANULE, CU_MEM_RANGE_HANDLE_TYPE_DMA_BUF_FD, 0);
        assert_int_equal(out, mask & PENEMU_EXPORT ? CUDA_SUCCESS
                                                   : CUDA_ERROR_NOT_SUPPORTED);
        if (fd >= 0)
            close(fd);
        CU(cuMemFree(device));
        const int file = memfd_create("test", MFD_CLOEXEC);
        assert_int_equal(ftruncate(file, PIECE), 0);
        const CUDA_EXTERNAL_MEMORY_HANDLE_DESC whose = {
            .type = CU_EXTERNAL_MEMORY_HANDLE_TYPE_DMABUF_FD,
            .handle.fd = file,
            .size = PIECE,
        };
        CUexternalMemory external = NULL;
        const CUresult in = cu.cuImportExternalMemory(&external, &whose);
        assert_int_equal(in, mask & PENEMU_IMPORT ? CUDA_SUCCESS
                                                  : CUDA_ERROR_NOT_SUPPORTED);
        if (external)
            CU(cuDestroyExternalMemory(external));
        close(file);
        raw_close();
    }
}

PEN_TEST(file_of_somebody_else_is_taken_in)
{
    raw_open();
    CUstream stream = raw_stream();
    enum { SIZE = 3 * 4096 + 100 };
    const int file = memfd_create("test", MFD_CLOEXEC);
    assert_int_equal(ftruncate(file, SIZE), 0);
    CUDA_EXTERNAL_MEMORY_HANDLE_DESC whose = {
        .type = CU_EXTERNAL_MEMORY_HANDLE_TYPE_DMABUF_FD,
        .handle.fd = file,
        .size = SIZE + 1,
    };
    CUexternalMemory external = NULL;
    const CUresult bad = CUDA_ERROR_INVALID_VALUE;
    CU_IS(bad, cuImportExternalMemory(&external, &whose));  // it is smaller
    whose.size = SIZE;
    whose.handle.fd = -1;
    CU_IS(bad, cuImportExternalMemory(&external, &whose));
    whose.handle.fd = file;
    CU(cuImportExternalMemory(&external, &whose));

    CUdeviceptr part = 0, neighbour = raw_alloc(64);
    CUDA_EXTERNAL_MEMORY_BUFFER_DESC what = { .offset = 4096, .size = SIZE };
    CU_IS(bad, cuExternalMemoryGetMappedBuffer(&part, external, &what));
    what.offset = 1;
    what.size = 10;
    CU_IS(bad, cuExternalMemoryGetMappedBuffer(&part, external, &what));
    what.offset = 4096;
    what.size = SIZE - 4096;
    CU(cuExternalMemoryGetMappedBuffer(&part, external, &what));
    CUdeviceptr behind = raw_alloc(64);
    CU(cuDestroyExternalMemory(external));
    CU_IS(CUDA_ERROR_INVALID_HANDLE, cuDestroyExternalMemory(external));

    CU(cuMemsetD8Async(neighbour, 1, 64, stream));
    CU(cuMemsetD8Async(behind, 2, 64, stream));
    CU(cuMemsetD8Async(part, 3, SIZE - 4096, stream));
    CU_IS(bad, cuMemsetD8Async(part, 3, SIZE - 4095, stream));
    CU(cuStreamSynchronize(stream));
    unsigned char *seen = mmap(NULL, SIZE, PROT_READ, MAP_SHARED, file, 0);
    assert_ptr_not_equal(seen, MAP_FAILED);
    raw_expect_bytes(seen, 0, 4096);
    raw_expect_bytes(seen + 4096, 3, SIZE - 4096);
    CU(cuMemFree(part));
    raw_expect_bytes(seen + 4096, 3, SIZE - 4096);
    raw_expect_bytes(cu.emu.penemu_bytes(neighbour, 64), 1, 64);
    raw_expect_bytes(cu.emu.penemu_bytes(behind, 64), 2, 64);
    struct penemu_stats stats;
    cu.emu.penemu_get_stats(&stats);
    assert_int_equal(stats.imports + stats.imported_buffers, 0);
    munmap(seen, SIZE);
    close(file);
    CU(cuMemFree(neighbour));
    CU(cuMemFree(behind));
    CU(cuStreamDestroy(stream));
    raw_close();
}

// --- leaks ------------------------------------------------------------------

static char own[4096] __attribute__((aligned(4096)));

PEN_TEST(what_is_left_is_counted_by_kind)
{
    raw_open();
    const CUdeviceptr at = reserve(2 * GRANULE);
    CUmemGenericAllocationHandle handle = create(GRANULE);
    CU(cuMemMap(at, GRANULE, 0, handle, 0));
    CU(cuMemHostRegister(own, sizeof(own), 0));
    const CUdeviceptr device = raw_alloc(GRANULE);
    const int fd = export(device, GRANULE);
    const CUDA_EXTERNAL_MEMORY_HANDLE_DESC whose = {
        .type = CU_EXTERNAL_MEMORY_HANDLE_TYPE_DMABUF_FD,
        .handle.fd = fd,
        .size = GRANULE,
    };
    const CUDA_EXTERNAL_MEMORY_BUFFER_DESC part = { .size = GRANULE };
    CUexternalMemory external = NULL;
    CUdeviceptr again = 0;
    CU(cuImportExternalMemory(&external, &whose));
    CU(cuExternalMemoryGetMappedBuffer(&again, external, &part));
    close(fd);
    CU(cuMemFree(device));

    struct penemu_stats stats;
    struct penemu_leaks leaks;
    cu.emu.penemu_get_stats(&stats);
    assert_int_equal(stats.ranges, 1);
    assert_int_equal(stats.mappings, 1);
    assert_int_equal(stats.registrations, 1);
    assert_int_equal(stats.imports, 1);
    assert_int_equal(stats.imported_buffers, 1);
    assert_int_equal(stats.device_bytes, GRANULE);
    CU(cuCtxPopCurrent(NULL));
    CU(cuDevicePrimaryCtxRelease(cu.device));
    cu.emu.penemu_get_leaks(&leaks);
    assert_int_equal(leaks.ranges, 1);
    assert_int_equal(leaks.mappings, 1);
    assert_int_equal(leaks.registrations, 1);
    assert_int_equal(leaks.imports, 2);  // the memory and the buffer
    assert_int_equal(leaks.device_blocks, 1);
    assert_int_equal(leaks.device_bytes, GRANULE);
    cu.emu.penemu_get_stats(&stats);
    assert_int_equal(stats.ranges + stats.mappings + stats.registrations, 0);
    assert_int_equal(stats.imports + stats.imported_buffers, 0);
    assert_int_equal(stats.device_bytes, 0);
}

PEN_TEST_MAIN(PEN_CASE(addresses_need_memory_and_memory_needs_access),
              PEN_CASE(access_ends_where_the_next_piece_has_none),
              PEN_CASE(unmapping_under_queued_work_breaks_the_context),
              PEN_CASE(memory_may_have_two_addresses),
              PEN_CASE(little_memory_is_little_however_it_is_made),
              PEN_CASE(blocks_and_reserved_addresses_lie_apart),
              PEN_CASE(misuse_of_registered_memory_is_refused_with_a_report),
              PEN_CASE(descriptor_is_the_memory_itself),
              PEN_CASE(descriptors_are_left_for_the_program),
              PEN_CASE(mapped_memory_is_exported_as_well),
              PEN_CASE(device_shares_as_it_is_told),
              PEN_CASE(file_of_somebody_else_is_taken_in),
              PEN_CASE(what_is_left_is_counted_by_kind))
