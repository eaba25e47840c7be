// Device memory of the emulated device: addresses that the host cannot follow,
// a size of its own, and nothing that forgives.

#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include "raw_driver.h"

// AddressSanitizer is told of freed device memory and forbids to look at it.
#if defined(__SANITIZE_ADDRESS__)
#define ASAN
#elif defined(__has_feature)
#if __has_feature(address_sanitizer)
#define ASAN
#endif
#endif

static void on_fault(int number)
{
    (void)number;
    _exit(42);
}

// Touch an address in a child; the signal handler's exit code, 0 if nothing
// happened.
static int touch(CUdeviceptr address, bool write)
{
    const pid_t child = fork();
    assert_true(child >= 0);
    if (child == 0) {
        signal(SIGSEGV, on_fault);
        signal(SIGBUS, on_fault);
        volatile unsigned char *p =
            (volatile unsigned char *)(uintptr_t)address;
        if (write)
            *p = 1;
        else
            (void)*p;
        _exit(0);
    }
    int status = -1;
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_true(WIFEXITED(status));
    return WEXITSTATUS(status);
}

PEN_TEST(host_access_of_a_device_address_faults)
{
    raw_open();
    CUdeviceptr small = raw_alloc(1), large = raw_alloc(3 << 20);
    assert_int_equal(touch(small, false), 42);
    assert_int_equal(touch(small, true), 42);
    assert_int_equal(touch(large + (2 << 20), false), 42);
    assert_int_equal(touch(large + (3 << 20) - 1, true), 42);
    // The bytes themselves are there.
    const CUdeviceptr bytes =
        (CUdeviceptr)(uintptr_t)cu.emu.penemu_bytes(large, 3 << 20);
    assert_int_equal(touch(bytes, true), 0);
    CU(cuMemFree(small));
    CU(cuMemFree(large));
    // Nor can handles be followed.
    CUstream stream = raw_stream();
    assert_int_equal(touch((CUdeviceptr)(uintptr_t)stream, false), 42);
    CU(cuStreamDestroy(stream));
    raw_close();
}

PEN_TEST(bytes_lie_at_a_constant_distance)
{
    raw_open();
    CUdeviceptr at[16];
    uint64_t distance = 0;
    for (unsigned i = 0; i < 16; i++) {
        at[i] = raw_alloc(1 + i * 100000);
        void *bytes = cu.emu.penemu_bytes(at[i], 1 + i * 100000);
        assert_non_null(bytes);
        const uint64_t here = (uint64_t)(uintptr_t)bytes - at[i];
        if (i)
            assert_int_equal(here, distance);
        distance = here;
    }
    assert_null(cu.emu.penemu_bytes(at[3], 300002));
    for (unsigned i = 0; i < 16; i++)
        CU(cuMemFree(at[i]));
    assert_null(cu.emu.penemu_bytes(at[3], 1));
    raw_close();
}

PEN_TEST(allocations_are_aligned_and_apart)
{
    raw_open();
    enum { COUNT = 64 };
    CUdeviceptr at[COUNT];
    uint64_t seed = 5;
    size_t bytes[COUNT];
    for (unsigned i = 0; i < COUNT; i++) {
        bytes[i] = 1 + pen_test_random(&seed) % 3000;
        at[i] = raw_alloc(bytes[i]);
        assert_int_equal(at[i] % 512, 0);
        if (i)
            assert_true(at[i] >= at[i - 1] + bytes[i - 1] + 512);
    }
    // First fit: a hole is used again by what fits into it, not by more.
    CU(cuMemFree(at[10]));
    CUdeviceptr more = raw_alloc(bytes[10] + 512);
    assert_true(more > at[COUNT - 1]);
    CUdeviceptr same = raw_alloc(bytes[10]);
    assert_int_equal(same, at[10]);
    CU(cuMemFree(more));
    for (unsigned i = 0; i < COUNT; i++)
        CU(cuMemFree(at[i]));
    raw_close();
}

PEN_TEST(fresh_memory_is_garbage)
{
    raw_open();
    enum { BYTES = 10000 };
    CUdeviceptr a = raw_alloc(BYTES), b = raw_alloc(BYTES);
    const unsigned char *x = cu.emu.penemu_bytes(a, BYTES);
    const unsigned char *y = cu.emu.penemu_bytes(b, BYTES);
    for (int i = 0; i < BYTES; i++)
        assert_int_not_equal(x[i], 0);
    assert_memory_not_equal(x, y, BYTES);
    unsigned char *host = raw_pinned(BYTES);
    for (int i = 0; i < BYTES; i++)
        assert_int_not_equal(host[i], 0);
    CU(cuMemFreeHost(host));
    CU(cuMemFree(a));
    CU(cuMemFree(b));
    raw_close();
}

PEN_TEST(freed_memory_is_given_back)
{
    raw_open();
    enum { BYTES = 1 << 20 };
    CUdeviceptr a = raw_alloc(BYTES);
    CUstream stream = raw_stream();
    CU(cuMemsetD8Async(a, 0x5a, BYTES, stream));
    CU(cuStreamSynchronize(stream));
    const volatile unsigned char *bytes = cu.emu.penemu_bytes(a, BYTES);
    assert_int_equal(bytes[BYTES / 2], 0x5a);
    CU(cuMemFree(a));
#ifndef ASAN
    assert_int_equal(bytes[BYTES / 2], 0);  // a page of zeros: not ours
#endif
    CU(cuStreamDestroy(stream));
    raw_close();
}

PEN_TEST(freed_memory_is_poisoned_when_checked)
{
    raw_open();
    cu.emu.penemu_set_check(1);
    enum { BYTES = 1 << 20 };
    CUdeviceptr a = raw_alloc(BYTES);
    const volatile unsigned char *bytes = cu.emu.penemu_bytes(a, BYTES);
    CU(cuMemFree(a));
#ifndef ASAN
    for (int i = 0; i < BYTES; i += 4099)
        assert_int_equal(bytes[i], 0xdd);
#endif
    (void)bytes;
    raw_close();
}

PEN_TEST(little_memory_runs_out_and_comes_back)
{
    raw_open();
    assert_int_equal(cu.emu.penemu_set_memory(1 << 20), 0);
    size_t free_bytes, total;
    CU(cuMemGetInfo(&free_bytes, &total));
    assert_int_equal(total, 1 << 20);
    assert_int_equal(free_bytes, total);
    CU(cuDeviceTotalMem(&total, cu.device));
    assert_int_equal(total, 1 << 20);

    CUdeviceptr at[4], extra = 77;
    for (int i = 0; i < 4; i++) {
        at[i] = raw_alloc(1 << 18);
        CU(cuMemGetInfo(&free_bytes, &total));
        assert_int_equal(free_bytes, (3 - i) * (1 << 18));
    }
    CU_IS(CUDA_ERROR_OUT_OF_MEMORY, cuMemAlloc(&extra, 1));
    assert_int_equal(extra, 77);
    CU(cuMemFree(at[2]));
    CU_IS(CUDA_ERROR_OUT_OF_MEMORY, cuMemAlloc(&extra, (1 << 18) + 1));
    at[2] = raw_alloc(1 << 18);
    for (int i = 0; i < 4; i++)
        CU(cuMemFree(at[i]));
    CU(cuMemGetInfo(&free_bytes, &total));
    assert_int_equal(free_bytes, total);

    CU_IS(CUDA_ERROR_OUT_OF_MEMORY, cuMemAlloc(&extra, SIZE_MAX));
    CU_IS(CUDA_ERROR_OUT_OF_MEMORY, cuMemAlloc(&extra, SIZE_MAX - 511));
    void *host = NULL;
    CU_IS(CUDA_ERROR_OUT_OF_MEMORY, cuMemHostAlloc(&host, SIZE_MAX, 0));
    assert_null(host);
    assert_int_equal(cu.emu.penemu_set_memory(0), -1);
    assert_int_equal(cu.emu.penemu_set_memory((uint64_t)1 << 40), -1);
    struct penemu_stats stats;
    cu.emu.penemu_get_stats(&stats);
    assert_int_equal(stats.allocations, 5);
    assert_int_equal(stats.frees, 5);
    assert_int_equal(stats.device_peak, 1 << 20);
    raw_close();
}

PEN_TEST(random_allocations_never_overlap_and_add_up)
{
    raw_open();
    enum { SLOTS = 40 };
    const uint64_t memory = 1 << 20;
    cu.emu.penemu_set_memory(memory);
    struct {
        CUdeviceptr at;
        size_t bytes;
    } slot[SLOTS] = { 0 };
    uint64_t seed = 11, used = 0;
    const unsigned steps = pen_test_seeds(3000, 100000);
    unsigned refused = 0;
    for (unsigned step = 0; step < steps; step++) {
        const unsigned i = pen_test_random(&seed) % SLOTS;
        if (slot[i].at) {
            // Each block still holds its own mark.
            unsigned char *bytes =
                cu.emu.penemu_bytes(slot[i].at, slot[i].bytes);
            assert_int_equal(bytes[0], i + 1);
            assert_int_equal(bytes[slot[i].bytes - 1], i + 1);
            CU(cuMemFree(slot[i].at));
            used -= (slot[i].bytes + 511) / 512 * 512;
            slot[i].at = 0;
        } else {
            slot[i].bytes = 1 + pen_test_random(&seed) % 80000;
            const uint64_t needed = (slot[i].bytes + 511) / 512 * 512;
            const CUresult got = cu.cuMemAlloc(&slot[i].at, slot[i].bytes);
            if (used + needed > memory) {
                assert_int_equal(got, CUDA_ERROR_OUT_OF_MEMORY);
                slot[i].at = 0;
                refused++;
            } else {
                assert_int_equal(got, CUDA_SUCCESS);
                used += needed;
                unsigned char *bytes =
                    cu.emu.penemu_bytes(slot[i].at, slot[i].bytes);
                memset(bytes, (int)i + 1, slot[i].bytes);
            }
        }
        size_t free_bytes, total;
        CU(cuMemGetInfo(&free_bytes, &total));
        assert_int_equal(free_bytes, memory - used);
    }
    assert_true(refused > 10);
    for (unsigned i = 0; i < SLOTS; i++) {
        if (slot[i].at)
            CU(cuMemFree(slot[i].at));
    }
    raw_close();
}

// --- misuse -----------------------------------------------------------------

// The report of the last call must hold `text`.
static void expect_report(const char *text)
{
    char report[512];
    cu.emu.penemu_report(report, sizeof(report));
    if (!strstr(report, text))
        fail_msg("'%s' is not in '%s'", text, report);
}

PEN_TEST(misuse_of_memory_is_refused_with_a_report)
{
    raw_open();
    CUstream stream = raw_stream();
    CUdeviceptr device = raw_alloc(1000), other = raw_alloc(1000);
    unsigned char *host = raw_pinned(1000);
    unsigned char pageable[1001] = { 0 };
    const CUresult bad = CUDA_ERROR_INVALID_VALUE;

    CU_IS(bad, cuMemAlloc(&other, 0));
    CU_IS(bad, cuMemFree(device + 1));
    expect_report("cuMemFree");
    CU_IS(bad, cuMemFree(0));
    CU_IS(bad, cuMemFreeHost(pageable));
    CU_IS(bad, cuMemFreeHost(host + 8));

    CU_IS(bad, cuMemcpyHtoDAsync(device, host, 1001, stream));
    expect_report("leave their allocation of 1000 bytes");
    CU_IS(bad, cuMemcpyHtoDAsync(device + 1, pageable, 1000, stream));
    CU_IS(bad, cuMemcpyDtoHAsync(host + 1, device, 1000, stream));
    expect_report("leave their pinned allocation");
    CU_IS(bad, cuMemcpyDtoHAsync(pageable, device + 1000, 1, stream));
    expect_report("is in no allocation");
    CU_IS(bad, cuMemcpyDtoDAsync(other, device + 1, 1000, stream));
    CU_IS(bad, cuMemcpyDtoDAsync(other + 1, device, 1000, stream));
    CU_IS(bad, cuMemsetD8Async(device, 0, 1001, stream));
    CU_IS(bad, cuMemsetD8Async(device, 0, SIZE_MAX, stream));
    // Addresses of the wrong side.
    CU_IS(bad,
          cuMemcpyHtoDAsync((CUdeviceptr)(uintptr_t)host, host, 8, stream));
    CU_IS(bad, cuMemcpyHtoDAsync(device, (void *)(uintptr_t)other, 8, stream));
    expect_report("host memory is needed");
    CU_IS(bad, cuMemcpyHtoDAsync(device, NULL, 8, stream));

    CU(cuMemFree(other));
    CU_IS(bad, cuMemFree(other));
    expect_report("freed already");
    CU_IS(bad, cuMemcpyDtoDAsync(other, device, 8, stream));
    assert_int_equal(cu.emu.penemu_pending(stream), 0);
    CU(cuMemFreeHost(host));
    CU_IS(bad, cuMemFreeHost(host));
    CU(cuMemFree(device));
    CU(cuStreamDestroy(stream));
    raw_close();
}

PEN_TEST(copies_in_2d_are_checked_as_a_whole)
{
    raw_open();
    CUstream stream = raw_stream();
    CUdeviceptr device = raw_alloc(100 * 10);
    unsigned char *host = raw_pinned(64 * 10);
    const CUDA_MEMCPY2D good = {
        .srcMemoryType = CU_MEMORYTYPE_HOST,
        .srcHost = host,
        .srcPitch = 64,
        .dstMemoryType = CU_MEMORYTYPE_DEVICE,
        .dstDevice = device,
        .dstPitch = 100,
        .WidthInBytes = 60,
        .Height = 10,
    };
    const CUresult bad = CUDA_ERROR_INVALID_VALUE;
    CUDA_MEMCPY2D copy = good;
    CU(cuMemcpy2DAsync(&copy, stream));
    copy = good;
    copy.Height = 11;  // one row too many on both sides
    CU_IS(bad, cuMemcpy2DAsync(&copy, stream));
    copy = good;
    copy.dstXInBytes = 40;  // the last row just fits
    CU(cuMemcpy2DAsync(&copy, stream));
    copy.dstXInBytes = 41;
    CU_IS(bad, cuMemcpy2DAsync(&copy, stream));
    expect_report("pitch");
    copy = good;
    copy.dstY = 1;
    CU_IS(bad, cuMemcpy2DAsync(&copy, stream));
    copy = good;
    copy.srcPitch = 59;
    CU_IS(bad, cuMemcpy2DAsync(&copy, stream));
    copy = good;
    copy.srcMemoryType = CU_MEMORYTYPE_ARRAY;
    CU_IS(CUDA_ERROR_NOT_SUPPORTED, cuMemcpy2DAsync(&copy, stream));
    copy = good;
    copy.srcMemoryType = (CUmemorytype)9;
    CU_IS(bad, cuMemcpy2DAsync(&copy, stream));
    copy = good;
    copy.Height = SIZE_MAX;
    CU_IS(bad, cuMemcpy2DAsync(&copy, stream));
    copy = good;
    copy.dstY = SIZE_MAX / 2;
    CU_IS(bad, cuMemcpy2DAsync(&copy, stream));
    copy = good;
    copy.WidthInBytes = 0;
    CU(cuMemcpy2DAsync(&copy, stream));
    CU_IS(bad, cuMemcpy2DAsync(NULL, stream));
    CU(cuMemFree(device));
    CU(cuMemFreeHost(host));
    CU(cuStreamDestroy(stream));
    raw_close();
}

PEN_TEST_MAIN(PEN_CASE(host_access_of_a_device_address_faults),
              PEN_CASE(bytes_lie_at_a_constant_distance),
              PEN_CASE(allocations_are_aligned_and_apart),
              PEN_CASE(fresh_memory_is_garbage),
              PEN_CASE(freed_memory_is_given_back),
              PEN_CASE(freed_memory_is_poisoned_when_checked),
              PEN_CASE(little_memory_runs_out_and_comes_back),
              PEN_CASE(random_allocations_never_overlap_and_add_up),
              PEN_CASE(misuse_of_memory_is_refused_with_a_report),
              PEN_CASE(copies_in_2d_are_checked_as_a_whole))
