// Kernels on the emulated device: what runs, with which arguments, and what a
// checked build finds.

#include <stdio.h>

#include "raw_driver.h"

#ifndef PENK_CHECKED
#define PENK_CHECKED
#endif
#include <penstock/kernel.h>

// --- kernels, as a checked host build has them -------------------------------

struct mark_args {
    uint64_t dst;
    uint32_t width, value;
};

// Each thread of each block leaves its mark: a count of visits.
PENK_KERNEL(mark, struct mark_args, k)
{
    PENK_THREADS {
        const uint32_t x = PENK_BLOCK_X * PENK_DIM_X + PENK_THREAD_X;
        const uint32_t y =
            (PENK_BLOCK_Z * 2 + PENK_BLOCK_Y) * PENK_DIM_Y + PENK_THREAD_Y;
        *PENK_G(uint32_t, k.dst + 4 * ((uint64_t)y * k.width + x)) += k.value;
    }
}

// Phases: everybody writes to shared memory, then reads its neighbour's.
PENK_KERNEL(rotate, struct mark_args, k)
{
    PENK_SHARED(uint32_t, held, 64);
    PENK_THREADS {
        held[PENK_THREAD_X] =
            *PENK_G(const uint32_t, k.dst + 4 * (uint64_t)PENK_THREAD_X);
    }
    PENK_BARRIER();
    PENK_THREADS {
        *PENK_G(uint32_t, k.dst + 4 * (uint64_t)PENK_THREAD_X) =
            held[(PENK_THREAD_X + k.value) % k.width];
    }
}

// Walks over its memory and beyond.
PENK_KERNEL(stray, struct mark_args, k)
{
    PENK_THREADS {
        *PENK_G(uint32_t, k.dst + 4 * (uint64_t)PENK_THREAD_X) = k.value;
    }
}

struct poke_args {
    uint64_t address;
};
PENK_KERNEL(poke, struct poke_args, k)
{
    PENK_THREADS {
        *PENK_G(uint32_t, k.address) = 7;
    }
}

// Which build ran.
static void which_base(const void *args, const struct penk_block *block)
{
    uint64_t dst;
    memcpy(&dst, args, sizeof(dst));
    *(uint32_t *)(uintptr_t)(dst + (uint64_t)block->offset) = 1;
}
static void which_v3(const void *args, const struct penk_block *block)
{
    uint64_t dst;
    memcpy(&dst, args, sizeof(dst));
    *(uint32_t *)(uintptr_t)(dst + (uint64_t)block->offset) = 3;
}

static const struct pen_kernel_entry entries[] = {
    { "mark", sizeof(struct mark_args), mark_base, NULL },
    { "rotate", sizeof(struct mark_args), rotate_base, NULL },
    { "poke", sizeof(struct poke_args), poke_base, NULL },
    { "stray", sizeof(struct mark_args), stray_base, NULL },
    { "which", sizeof(uint64_t), which_base, which_v3 },
};
static const struct pen_kernel_image image = {
    .magic = PEN_KERNEL_MAGIC,
    .abi = PEN_KERNEL_ABI,
    .count = sizeof(entries) / sizeof(entries[0]),
    .name = "test",
    .entries = entries,
};

static CUmodule module;

static CUfunction function(const char *name)
{
    CUfunction found = NULL;
    CU(cuModuleGetFunction(&found, module, name));
    return found;
}

static void open_with_kernels(void)
{
    raw_open();
    CU(cuModuleLoadData(&module, &image));
}

static void close_with_kernels(void)
{
    CU(cuModuleUnload(module));
    raw_close();
}

static CUresult launch(const char *name, uint32_t gx, uint32_t gy, uint32_t gz,
                       uint32_t bx, uint32_t by, CUstream stream,
                       const void *args)
{
    void *params[] = { (void *)(uintptr_t)args };
    return cu.cuLaunchKernel(function(name), gx, gy, gz, bx, by, 1, 0, stream,
                             params, NULL);
}

// --- running ----------------------------------------------------------------

PEN_TEST(every_thread_of_every_block_runs_once)
{
    open_with_kernels();
    CUstream stream = raw_stream();
    enum { W = 3 * 8, H = 2 * 2 * 4 };
    CUdeviceptr dst = raw_alloc(W * H * 4);
    CU(cuMemsetD8Async(dst, 0, W * H * 4, stream));
    const struct mark_args args = { dst, W, 5 };
    assert_int_equal(launch("mark", 3, 2, 2, 8, 4, stream, &args), 0);
    CU(cuStreamSynchronize(stream));
    const uint32_t *got = cu.emu.penemu_bytes(dst, W * H * 4);
    for (int i = 0; i < W * H; i++)
        assert_int_equal(got[i], 5);
    struct penemu_stats stats;
    cu.emu.penemu_get_stats(&stats);
    assert_int_equal(stats.launches, 1);
    CU(cuMemFree(dst));
    CU(cuStreamDestroy(stream));
    close_with_kernels();
}

PEN_TEST(phases_of_a_block_are_separated)
{
    open_with_kernels();
    CUstream stream = raw_stream();
    CUdeviceptr dst = raw_alloc(64 * 4);
    uint32_t *got = cu.emu.penemu_bytes(dst, 64 * 4);
    for (uint32_t i = 0; i < 64; i++)
        got[i] = i;
    const struct mark_args args = { dst, 64, 9 };
    assert_int_equal(launch("rotate", 1, 1, 1, 64, 1, stream, &args), 0);
    CU(cuStreamSynchronize(stream));
    for (uint32_t i = 0; i < 64; i++)
        assert_int_equal(got[i], (i + 9) % 64);
    CU(cuMemFree(dst));
    CU(cuStreamDestroy(stream));
    close_with_kernels();
}

PEN_TEST(arguments_are_copied_at_the_launch)
{
    open_with_kernels();
    cu.emu.penemu_set_mode(PENEMU_LAZY, 0);
    CUstream stream = raw_stream();
    CUdeviceptr dst = raw_alloc(64);
    CU(cuMemsetD8Async(dst, 0, 64, stream));
    struct mark_args args = { dst, 1, 5 };
    assert_int_equal(launch("mark", 1, 1, 1, 1, 1, stream, &args), 0);
    args = (struct mark_args){ 1, 2, 3 };
    const uint32_t *got = cu.emu.penemu_bytes(dst, 4);
    assert_int_equal(cu.emu.penemu_pending(stream), 2);
    CU(cuStreamSynchronize(stream));
    assert_int_equal(got[0], 5);
    CU(cuMemFree(dst));
    CU(cuStreamDestroy(stream));
    close_with_kernels();
}

PEN_TEST(wider_build_runs_only_where_it_is_allowed)
{
    open_with_kernels();
    CUstream stream = raw_stream();
    CUdeviceptr dst = raw_alloc(4);
    const uint32_t *got = cu.emu.penemu_bytes(dst, 4);
    assert_int_equal(cu.emu.penemu_set_cpu("base"), 0);
    assert_int_equal(launch("which", 1, 1, 1, 1, 1, stream, &dst), 0);
    CU(cuStreamSynchronize(stream));
    assert_int_equal(got[0], 1);
    assert_int_equal(cu.emu.penemu_set_cpu("auto"), 0);
    assert_int_equal(launch("which", 1, 1, 1, 1, 1, stream, &dst), 0);
    CU(cuStreamSynchronize(stream));
#if defined(__x86_64__)
    const bool wide = __builtin_cpu_supports("avx2") &&
                      __builtin_cpu_supports("bmi2") &&
                      __builtin_cpu_supports("fma");
#else
    const bool wide = false;
#endif
    assert_int_equal(got[0], wide ? 3 : 1);
    assert_int_equal(cu.emu.penemu_set_cpu("z80"), -1);
    CU(cuMemFree(dst));
    CU(cuStreamDestroy(stream));
    close_with_kernels();
}

// --- refused ----------------------------------------------------------------

PEN_TEST(launch_with_impossible_sizes_is_refused)
{
    open_with_kernels();
    CUstream stream = raw_stream();
    CUdeviceptr dst = raw_alloc(4);
    const struct poke_args args = { dst };
    const CUresult bad = CUDA_ERROR_INVALID_VALUE;
    static const struct {
        uint32_t grid[3], block[2];
    } sizes[] = {
        { { 0, 1, 1 }, { 1, 1 } },           { { 1, 0, 1 }, { 1, 1 } },
        { { 1, 1, 0 }, { 1, 1 } },           { { 1, 1, 1 }, { 0, 1 } },
        { { 1, 1, 1 }, { 1, 0 } },           { { 1, 1, 1 }, { 1025, 1 } },
        { { 1, 1, 1 }, { 1, 1025 } },        { { 1, 1, 1 }, { 33, 32 } },
        { { 0x80000000u, 1, 1 }, { 1, 1 } }, { { 1, 65536, 1 }, { 1, 1 } },
        { { 1, 1, 65536 }, { 1, 1 } },
    };
    for (size_t i = 0; i < sizeof(sizes) / sizeof(sizes[0]); i++)
        assert_int_equal(launch("poke", sizes[i].grid[0], sizes[i].grid[1],
                                sizes[i].grid[2], sizes[i].block[0],
                                sizes[i].block[1], stream, &args),
                         bad);
    void *params[] = { NULL };
    CU_IS(bad, cuLaunchKernel(function("poke"), 1, 1, 1, 1, 1, 1, 0, stream,
                              NULL, NULL));
    CU_IS(bad, cuLaunchKernel(function("poke"), 1, 1, 1, 1, 1, 1, 0, stream,
                              params, NULL));
    CU_IS(bad, cuLaunchKernel(function("poke"), 1, 1, 1, 1, 1, 1, 49153, stream,
                              params, NULL));
    CU_IS(CUDA_ERROR_INVALID_HANDLE,
          cuLaunchKernel((CUfunction)(uintptr_t)stream, 1, 1, 1, 1, 1, 1, 0,
                         stream, params, NULL));
    assert_int_equal(cu.emu.penemu_pending(stream), 0);
    assert_int_equal(launch("poke", 1, 1, 1, 32, 32, stream, &args), 0);
    CU(cuStreamSynchronize(stream));
    CU(cuMemFree(dst));
    CU(cuStreamDestroy(stream));
    close_with_kernels();
}

PEN_TEST(image_that_is_not_ours_is_refused)
{
    raw_open();
    CUmodule loaded = NULL;
    // Code for a GPU, recognised by its beginning; shorter than our header.
    const unsigned char fatbin[] = { 0x50, 0xed, 0x55, 0xba, 1, 0 };
    CU_IS(CUDA_ERROR_NO_BINARY_FOR_GPU,
          cuModuleLoadData(&loaded, "// by hand\n\n.version 7.0\n"));
    CU_IS(CUDA_ERROR_NO_BINARY_FOR_GPU, cuModuleLoadData(&loaded, fatbin));
    CU_IS(CUDA_ERROR_NO_BINARY_FOR_GPU, cuModuleLoadData(&loaded, "\177ELF"));
    CU_IS(CUDA_ERROR_INVALID_IMAGE, cuModuleLoadData(&loaded, ""));
    CU_IS(CUDA_ERROR_INVALID_IMAGE, cuModuleLoadData(&loaded, "hello"));
    CU_IS(CUDA_ERROR_INVALID_IMAGE, cuModuleLoadData(&loaded, "pnk"));
    CU_IS(CUDA_ERROR_INVALID_VALUE, cuModuleLoadData(&loaded, NULL));

    struct pen_kernel_image other = image;
    other.abi = PEN_KERNEL_ABI + 1;
    CU_IS(CUDA_ERROR_INVALID_IMAGE, cuModuleLoadData(&loaded, &other));
    other = image;
    other.count = PEN_MAX_KERNELS + 1;
    CU_IS(CUDA_ERROR_INVALID_IMAGE, cuModuleLoadData(&loaded, &other));
    other.count = 0;
    CU_IS(CUDA_ERROR_INVALID_IMAGE, cuModuleLoadData(&loaded, &other));
    const struct pen_kernel_entry gpu_only = { "x", 8, NULL, NULL };
    other = image;
    other.count = 1;
    other.entries = &gpu_only;
    CU_IS(CUDA_ERROR_NO_BINARY_FOR_GPU, cuModuleLoadData(&loaded, &other));
    const struct pen_kernel_entry huge = { "x", 4097, which_base, NULL };
    other.entries = &huge;
    CU_IS(CUDA_ERROR_INVALID_IMAGE, cuModuleLoadData(&loaded, &other));
    assert_null(loaded);
    raw_close();
}

PEN_TEST(unknown_function_is_not_found)
{
    open_with_kernels();
    CUfunction found = NULL, again = NULL;
    CU_IS(CUDA_ERROR_NOT_FOUND, cuModuleGetFunction(&found, module, "mar"));
    CU_IS(CUDA_ERROR_NOT_FOUND, cuModuleGetFunction(&found, module, "mark2"));
    CU_IS(CUDA_ERROR_NOT_FOUND, cuModuleGetFunction(&found, module, ""));
    assert_null(found);
    CU(cuModuleGetFunction(&found, module, "mark"));
    CU(cuModuleGetFunction(&again, module, "mark"));
    assert_ptr_equal(found, again);
    CU(cuModuleUnload(module));
    CU_IS(CUDA_ERROR_INVALID_HANDLE, cuModuleUnload(module));
    CU_IS(CUDA_ERROR_INVALID_HANDLE,
          cuModuleGetFunction(&found, module, "mark"));
    CU_IS(CUDA_ERROR_INVALID_HANDLE,
          cuLaunchKernel(again, 1, 1, 1, 1, 1, 1, 0, NULL, NULL, NULL));
    raw_close();
}

// --- checked ----------------------------------------------------------------

// A launch whose access is in no allocation breaks the context; the report
// names the kernel and the address.
static void expect_illegal(uint64_t address)
{
    raw_open();
    CU(cuModuleLoadData(&module, &image));
    CUstream stream = raw_stream();
    const struct poke_args args = { address };
    assert_int_equal(launch("poke", 2, 1, 1, 4, 1, stream, &args), 0);
    CU_IS(CUDA_ERROR_ILLEGAL_ADDRESS, cuStreamSynchronize(stream));
    char report[512], want[64];
    cu.emu.penemu_report(report, sizeof(report));
    snprintf(want, sizeof(want), "0x%llx", (unsigned long long)address);
    assert_non_null(strstr(report, "kernel poke"));
    assert_non_null(strstr(report, want));
    CU_IS(CUDA_ERROR_ILLEGAL_ADDRESS, cuModuleUnload(module));
    CU_IS(CUDA_ERROR_ILLEGAL_ADDRESS, cuStreamDestroy(stream));
    CU(cuCtxPopCurrent(NULL));
    CU(cuDevicePrimaryCtxRelease(cu.device));
}

PEN_TEST(checked_kernel_that_leaves_its_memory_breaks_the_context)
{
    // Where an allocation would be, had nobody freed it.
    raw_open();
    CUdeviceptr freed = raw_alloc(64);
    CU(cuMemFree(freed));
    raw_close();
    expect_illegal(freed);
    expect_illegal(0);
    expect_illegal(UINT64_MAX - 1);
    int local = 0;
    expect_illegal((uint64_t)(uintptr_t)&local);  // host memory
    assert_int_equal(local, 0);

    // One byte over the end, and into the gap between two.
    for (unsigned over = 1; over <= 68; over += 67) {
        open_with_kernels();
        CUstream stream = raw_stream();
        CUdeviceptr a = raw_alloc(64), b = raw_alloc(64);
        const struct poke_args args = { a + 60 + over };
        assert_int_equal(launch("poke", 1, 1, 1, 1, 1, stream, &args), 0);
        CU_IS(CUDA_ERROR_ILLEGAL_ADDRESS, cuCtxSynchronize());
        char report[512];
        cu.emu.penemu_report(report, sizeof(report));
        assert_non_null(
            strstr(report, over == 1 ? "crosses the end" : "in no allocation"));
        (void)b;
        cu.emu.penemu_reset();
    }
}

PEN_TEST(checked_kernel_is_stopped_at_its_first_bad_access)
{
    open_with_kernels();
    cu.emu.penemu_set_mode(PENEMU_LAZY, 0);
    CUstream stream = raw_stream();
    CUdeviceptr a = raw_alloc(40), b = raw_alloc(4096);
    uint32_t *got = cu.emu.penemu_bytes(a, 40);
    const unsigned char *after = cu.emu.penemu_bytes(b, 4096);
    unsigned char before[4096];
    memcpy(before, after, sizeof(before));
    // 10 words are there, 600 are written: b lies 1 KiB further on.
    const struct mark_args args = { a, 600, 5 };
    assert_int_equal(launch("stray", 1, 1, 1, 600, 1, stream, &args), 0);
    // What is queued behind it is dropped.
    CU(cuMemsetD8Async(a, 9, 40, stream));
    CU_IS(CUDA_ERROR_ILLEGAL_ADDRESS, cuStreamSynchronize(stream));
    for (int i = 0; i < 10; i++)
        assert_int_equal(got[i], 5);
    assert_memory_equal(after, before, sizeof(before));
    char report[512], want[64];
    cu.emu.penemu_report(report, sizeof(report));
    snprintf(want, sizeof(want), "0x%llx", a + 40);
    assert_non_null(strstr(report, want));
    cu.emu.penemu_reset();
}

PEN_TEST(checked_kernel_in_bounds_runs_unharmed)
{
    open_with_kernels();
    CUstream stream = raw_stream();
    CUdeviceptr a = raw_alloc(64);
    for (uint64_t at = 0; at <= 60; at += 4) {
        const struct poke_args args = { a + at };
        assert_int_equal(launch("poke", 1, 1, 1, 1, 1, stream, &args), 0);
    }
    CU(cuStreamSynchronize(stream));
    const uint32_t *got = cu.emu.penemu_bytes(a, 64);
    for (int i = 0; i < 16; i++)
        assert_int_equal(got[i], 7);
    char report[512];
    assert_int_equal(cu.emu.penemu_report(report, sizeof(report)), 0);
    CU(cuMemFree(a));
    CU(cuStreamDestroy(stream));
    close_with_kernels();
}

PEN_TEST_MAIN(
    PEN_CASE(every_thread_of_every_block_runs_once),
    PEN_CASE(phases_of_a_block_are_separated),
    PEN_CASE(arguments_are_copied_at_the_launch),
    PEN_CASE(wider_build_runs_only_where_it_is_allowed),
    PEN_CASE(launch_with_impossible_sizes_is_refused),
    PEN_CASE(image_that_is_not_ours_is_refused),
    PEN_CASE(unknown_function_is_not_found),
    PEN_CASE(checked_kernel_that_leaves_its_memory_breaks_the_context),
    PEN_CASE(checked_kernel_is_stopped_at_its_first_bad_access),
    PEN_CASE(checked_kernel_in_bounds_runs_unharmed))
