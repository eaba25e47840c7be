// Calls that fail on demand, contexts that break, and what is left behind.

#include <pthread.h>
#include <unistd.h>

#include <penstock/kernel.h>

#include "raw_driver.h"

// --- every function ---------------------------------------------------------

// A kernel that does nothing, for the functions that need one.
static void nothing(const void *args, const struct penk_block *block)
{
    (void)args;
    (void)block;
}
static const struct pen_kernel_entry entries[] = { { "nothing", 0, nothing,
                                                     NULL } };
static const struct pen_kernel_image image = {
    .magic = PEN_KERNEL_MAGIC,
    .abi = PEN_KERNEL_ABI,
    .count = 1,
    .name = "nothing",
    .entries = entries,
};

// Memory that is registered.
static _Alignas(4096) char own[4096];

// Remember the first failure.
static bool keep(CUresult *first, CUresult got)
{
    if (!*first)
        *first = got;
    return got == CUDA_SUCCESS;
}

// What a program does, with each function of the list in it at least once.
// Unwinds from the first failure, which it returns; goes on destroying
// whatever happens. Everything it made is destroyed or was tried to be.
static CUresult program(void)
{
    CUresult result = CUDA_SUCCESS;
    CUcontext ctx = NULL, was = NULL;
    CUdevice device = 0;
    CUstream stream = NULL;
    CUevent event = NULL;
    CUmodule module = NULL;
    CUfunction function = NULL;
    CUdeviceptr memory = 0;
    void *host = NULL;
    bool retained = false, pushed = false;
    const char *text;
    char name[64];
    CUuuid uuid;
    int number;
    unsigned flags;
    size_t size, total;
    const CUmemAllocationProp plain = {
        .type = CU_MEM_ALLOCATION_TYPE_PINNED,
        .location = { CU_MEM_LOCATION_TYPE_DEVICE, 0 },
    };
    const CUmemAccessDesc access = { plain.location,
                                     CU_MEM_ACCESS_FLAGS_PROT_READWRITE };
    enum { BYTES = 64 << 10 };
    CUmemGenericAllocationHandle physical = 0;
    CUdeviceptr range = 0, foreign = 0;
    CUexternalMemory external = NULL;
    bool mapped = false, registered = false;
    int fd = -1;

#define TRY(call)  (!result && keep(&result, cu.call))
#define UNDO(call) keep(&result, cu.call)
    (void)TRY(cuInit(0));
    (void)TRY(cuDriverGetVersion(&number));
    (void)TRY(cuGetErrorName(CUDA_ERROR_UNKNOWN, &text));
    (void)TRY(cuGetErrorString(CUDA_ERROR_UNKNOWN, &text));
    (void)TRY(cuDeviceGetCount(&number));
    (void)TRY(cuDeviceGet(&device, 0));
    (void)TRY(cuDeviceGetName(name, sizeof(name), device));
    (void)TRY(cuDeviceGetUuid(&uuid, device));
    (void)TRY(
        cuDeviceGetAttribute(&number, CU_DEVICE_ATTRIBUTE_WARP_SIZE, device));
    (void)TRY(cuDeviceTotalMem(&size, device));
    retained = TRY(cuDevicePrimaryCtxRetain(&ctx, device));
    (void)TRY(cuDevicePrimaryCtxGetState(device, &flags, &number));
    pushed = TRY(cuCtxPushCurrent(ctx));
    (void)TRY(cuCtxGetCurrent(&was));
    (void)TRY(cuMemGetInfo(&size, &total));
    (void)TRY(cuMemAlloc(&memory, 2 * BYTES));
    (void)TRY(cuMemHostAlloc(&host, 4096, 0));
    (void)TRY(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
    (void)TRY(cuEventCreate(&event, CU_EVENT_DISABLE_TIMING));
    (void)TRY(cuModuleLoadData(&module, &image));
    (void)TRY(cuModuleGetFunction(&function, module, "nothing"));
    (void)TRY(cuFuncLoad(function));
    (void)TRY(cuMemcpyHtoDAsync(memory, host, 4096, stream));
    (void)TRY(cuMemcpyDtoDAsync(memory, memory + 2048, 2048, stream));
    (void)TRY(cuMemsetD8Async(memory, 1, 16, stream));
    const CUDA_MEMCPY2D copy = {
        .srcMemoryType = CU_MEMORYTYPE_DEVICE,
        .srcDevice = memory,
        .srcPitch = 64,
        .dstMemoryType = CU_MEMORYTYPE_HOST,
        .dstHost = host,
        .dstPitch = 64,
        .WidthInBytes = 60,
        .Height = 10,
    };
    (void)TRY(cuMemcpy2DAsync(&copy, stream));
    (void)TRY(
        cuLaunchKernel(function, 1, 1, 1, 1, 1, 1, 0, stream, NULL, NULL));
    (void)TRY(cuEventRecord(event, stream));
    (void)TRY(cuStreamWaitEvent(stream, event, 0));
    (void)TRY(cuMemcpyDtoHAsync(host, memory, 4096, stream));
    (void)TRY(cuEventSynchronize(event));
    (void)TRY(cuEventQuery(event));
    (void)TRY(cuStreamSynchronize(stream));
    (void)TRY(cuStreamQuery(stream));
    (void)TRY(cuCtxSynchronize());

    registered = TRY(cuMemHostRegister(own, sizeof(own), 0));
    (void)TRY(cuMemGetAllocationGranularity(&size, &plain,
                                            CU_MEM_ALLOC_GRANULARITY_MINIMUM));
    (void)TRY(cuMemAddressReserve(&range, size, 0, 0, 0));
    (void)TRY(cuMemCreate(&physical, size, &plain, 0));
    mapped = TRY(cuMemMap(range, size, 0, physical, 0));
    (void)TRY(cuMemSetAccess(range, size, &access, 1));
    (void)TRY(cuMemGetHandleForAddressRange(
        &fd, (memory + BYTES - 1) / BYTES * BYTES, BYTES,
        CU_MEM_RANGE_HANDLE_TYPE_DMA_BUF_FD, 0));
    const CUDA_EXTERNAL_MEMORY_HANDLE_DESC whose = {
        .type = CU_EXTERNAL_MEMORY_HANDLE_TYPE_DMABUF_FD,
        .handle.fd = fd,
        .size = BYTES,
    };
    const CUDA_EXTERNAL_MEMORY_BUFFER_DESC part = { .size = BYTES };
    (void)TRY(cuImportExternalMemory(&external, &whose));
    (void)TRY(cuExternalMemoryGetMappedBuffer(&foreign, external, &part));

    if (foreign)
        UNDO(cuMemFree(foreign));
    if (external)
        UNDO(cuDestroyExternalMemory(external));
    if (fd >= 0)
        close(fd);
    if (mapped)
        UNDO(cuMemUnmap(range, size));
    if (physical)
        UNDO(cuMemRelease(physical));
    if (range)
        UNDO(cuMemAddressFree(range, size));
    if (registered)
        UNDO(cuMemHostUnregister(own));
    if (module)
        UNDO(cuModuleUnload(module));
    if (event)
        UNDO(cuEventDestroy(event));
    if (stream)
        UNDO(cuStreamDestroy(stream));
    if (host)
        UNDO(cuMemFreeHost(host));
    if (memory)
        UNDO(cuMemFree(memory));
    if (pushed && !UNDO(cuCtxPopCurrent(NULL)))
        cu.cuCtxPopCurrent(NULL);
    if (retained && !UNDO(cuDevicePrimaryCtxRelease(device)))
        cu.cuDevicePrimaryCtxRelease(device);
#undef TRY
#undef UNDO
    return result;
}

static void expect_no_leaks(void)
{
    struct penemu_leaks leaks;
    cu.emu.penemu_get_leaks(&leaks);
    assert_int_equal(leaks.device_blocks + leaks.host_blocks, 0);
    assert_int_equal(leaks.streams + leaks.events + leaks.modules, 0);
    assert_int_equal(leaks.ranges + leaks.mappings, 0);
    assert_int_equal(leaks.registrations + leaks.imports, 0);
    struct penemu_stats stats;
    cu.emu.penemu_get_stats(&stats);
    assert_int_equal(stats.contexts, 0);
    assert_int_equal(stats.threads, 0);
    assert_int_equal(stats.device_bytes + stats.host_bytes, 0);
    assert_int_equal(stats.streams + stats.events + stats.modules, 0);
    assert_int_equal(stats.ranges + stats.mappings, 0);
    assert_int_equal(stats.registrations, 0);
    assert_int_equal(stats.imports + stats.imported_buffers, 0);
}

static const char *const names[] = {
#define X(need, name, symbol, params) #name,
#include "../../../src/gpu/driver_list.h"
#undef X
};
static const char *const symbols[] = {
#define X(need, name, symbol, params) symbol,
#include "../../../src/gpu/driver_list.h"
#undef X
};
enum { COUNT = sizeof(names) / sizeof(names[0]) };

PEN_TEST(program_under_test_calls_every_function)
{
    raw_open_only();
    assert_int_equal(program(), CUDA_SUCCESS);
    uint64_t sum = 0;
    for (int i = 0; i < COUNT; i++) {
        const uint64_t calls = cu.emu.penemu_calls(names[i]);
        if (!calls)
            fail_msg("%s was not called", names[i]);
        assert_int_equal(cu.emu.penemu_calls(symbols[i]), calls);
        sum += calls;
    }
    assert_int_equal(cu.emu.penemu_calls(PENEMU_ANY), sum);
    assert_int_equal(cu.emu.penemu_calls("cuNothing"), 0);
    expect_no_leaks();
}

PEN_TEST(every_function_fails_on_demand)
{
    static const CUresult codes[] = {
        CUDA_ERROR_OUT_OF_MEMORY,
        CUDA_ERROR_UNKNOWN,
        CUDA_ERROR_ILLEGAL_ADDRESS,
    };
    for (int i = 0; i < COUNT; i++) {
        for (int c = 0; c < 3; c++) {
            raw_open_only();
            const char *name = i % 2 ? names[i] : symbols[i];
            assert_int_equal(cu.emu.penemu_fault_arm(name, 1, (int)codes[c], 0),
                             0);
            assert_int_equal(program(), codes[c]);
            assert_int_equal(cu.emu.penemu_fault_fired(), 1);
            assert_int_equal(cu.emu.penemu_fault_disarm(), 1);
            expect_no_leaks();
        }
    }
}

PEN_TEST(every_call_in_turn_fails_once)
{
    for (unsigned nth = 1;; nth++) {
        raw_open_only();
        cu.emu.penemu_set_mode(nth % 2 ? PENEMU_LAZY : PENEMU_EAGER, 0);
        assert_int_equal(cu.emu.penemu_fault_arm(PENEMU_ANY, nth,
                                                 CUDA_ERROR_LAUNCH_FAILED, 0),
                         0);
        const CUresult result = program();
        const uint64_t fired = cu.emu.penemu_fault_disarm();
        expect_no_leaks();
        if (!fired) {
            assert_int_equal(result, CUDA_SUCCESS);
            assert_true(nth > COUNT);
            return;
        }
        assert_int_equal(result, CUDA_ERROR_LAUNCH_FAILED);
        assert_int_equal(fired, 1);
    }
}

PEN_TEST(fault_for_ever_fails_all_later_calls)
{
    raw_open();
    CUdeviceptr device = raw_alloc(16);
    assert_int_equal(
        cu.emu.penemu_fault_arm("cuMemAlloc", 3, CUDA_ERROR_OUT_OF_MEMORY, 1),
        0);
    CUdeviceptr at[2], none = 5;
    CU(cuMemAlloc(&at[0], 16));
    CU(cuMemAlloc(&at[1], 16));
    for (int i = 0; i < 3; i++)
        CU_IS(CUDA_ERROR_OUT_OF_MEMORY, cuMemAlloc(&none, 16));
    assert_int_equal(none, 5);
    assert_int_equal(cu.emu.penemu_fault_fired(), 3);
    CU(cuMemFree(at[0]));  // others are well
    CU(cuMemFree(at[1]));
    assert_int_equal(cu.emu.penemu_fault_disarm(), 3);
    CU(cuMemAlloc(&at[0], 16));
    CU(cuMemFree(at[0]));

    // A call that was refused did nothing, and can be made again.
    assert_int_equal(
        cu.emu.penemu_fault_arm("cuMemFree", 1, CUDA_ERROR_UNKNOWN, 0), 0);
    assert_int_equal(cu.emu.penemu_fault_fired(), 0);
    CU_IS(CUDA_ERROR_UNKNOWN, cuMemFree(device));
    assert_non_null(cu.emu.penemu_bytes(device, 16));
    CU(cuMemFree(device));
    assert_int_equal(cu.emu.penemu_fault_disarm(), 1);
    assert_int_equal(cu.emu.penemu_fault_arm("cuNoSuchCall", 1, 1, 0), -1);
    assert_int_equal(cu.emu.penemu_fault_arm("cuMemAlloc", 0, 1, 0), -1);
    raw_close();
}

// --- broken contexts --------------------------------------------------------

PEN_TEST(sticky_error_is_returned_by_every_later_call)
{
    static const CUresult codes[] = { CUDA_ERROR_ILLEGAL_ADDRESS,
                                      CUDA_ERROR_LAUNCH_FAILED,
                                      CUDA_ERROR_ECC_UNCORRECTABLE };
    for (int c = 0; c < 3; c++) {
        const CUresult code = codes[c];
        raw_open();
        CUstream stream = raw_stream();
        CUevent event = raw_event();
        CUdeviceptr device = raw_alloc(64);
        unsigned char *host = raw_pinned(64);
        cu.emu.penemu_fault_arm("cuEventQuery", 1, (int)code, 0);
        CU_IS(code, cuEventQuery(event));

        CUdeviceptr more;
        CUstream stream2;
        size_t size;
        CUcontext ctx;
        CU_IS(code, cuEventQuery(event));
        CU_IS(code, cuStreamQuery(stream));
        CU_IS(code, cuStreamSynchronize(stream));
        CU_IS(code, cuCtxSynchronize());
        CU_IS(code, cuMemAlloc(&more, 64));
        CU_IS(code, cuMemGetInfo(&size, &size));
        CU_IS(code, cuStreamCreate(&stream2, 0));
        CU_IS(code, cuMemcpyHtoDAsync(device, host, 64, stream));
        CU_IS(code, cuEventRecord(event, stream));
        CU_IS(code, cuDevicePrimaryCtxRetain(&ctx, cu.device));
        CU_IS(code, cuMemFree(device));
        CU_IS(code, cuMemFreeHost(host));
        CU_IS(code, cuEventDestroy(event));
        CU_IS(code, cuStreamDestroy(stream));
        // Leaving is possible, and nothing of the above counts as a leak.
        CU(cuCtxPopCurrent(NULL));
        CU(cuDevicePrimaryCtxRelease(cu.device));
        expect_no_leaks();
        // A new context is whole.
        CU(cuDevicePrimaryCtxRetain(&cu.ctx, cu.device));
        CU(cuCtxPushCurrent(cu.ctx));
        CU(cuMemFree(raw_alloc(64)));
        raw_close();
    }
}

PEN_TEST(ordinary_error_breaks_nothing)
{
    raw_open();
    cu.emu.penemu_fault_arm("cuStreamSynchronize", 1, CUDA_ERROR_UNKNOWN, 0);
    CUstream stream = raw_stream();
    CU_IS(CUDA_ERROR_UNKNOWN, cuStreamSynchronize(stream));
    CU(cuStreamSynchronize(stream));
    CU(cuStreamDestroy(stream));
    raw_close();
}

PEN_TEST(broken_context_drops_queued_work_and_lets_all_waiters_go)
{
    raw_open();
    cu.emu.penemu_set_mode(PENEMU_LAZY, 0);
    CUstream a = raw_stream(), b = raw_stream();
    CUevent event = raw_event();
    CUdeviceptr device = raw_alloc(1);
    unsigned char *out = raw_pinned(1);
    out[0] = 9;
    CU(cuMemsetD8Async(device, 1, 1, a));
    CU(cuEventRecord(event, a));
    CU(cuStreamWaitEvent(b, event, 0));
    CU(cuMemcpyDtoHAsync(out, device, 1, b));
    cu.emu.penemu_hold_stream(a, 1);
    cu.emu.penemu_break_contexts(CUDA_ERROR_LAUNCH_FAILED);
    CU_IS(CUDA_ERROR_LAUNCH_FAILED, cuStreamSynchronize(b));
    CU(cuCtxPopCurrent(NULL));
    CU(cuDevicePrimaryCtxRelease(cu.device));
    // out was freed with the context; what is told is what was not done.
    struct penemu_leaks leaks;
    cu.emu.penemu_get_leaks(&leaks);
    assert_int_equal(leaks.unfinished, 0);
    assert_int_equal(leaks.device_blocks, 1);
}

static void *synchronize(void *cookie)
{
    CUresult *result = cookie;
    cu.cuCtxPushCurrent(cu.ctx);
    *result = cu.cuCtxSynchronize();
    cu.cuCtxPopCurrent(NULL);
    return NULL;
}

PEN_TEST(thread_that_waits_learns_that_the_context_broke)
{
    raw_open();
    CUstream stream = raw_stream();
    CUdeviceptr device = raw_alloc(1);
    cu.emu.penemu_hold_stream(stream, 1);
    CU(cuMemsetD8Async(device, 1, 1, stream));
    CUresult result = CUDA_SUCCESS;
    pthread_t thread;
    assert_int_equal(pthread_create(&thread, NULL, synchronize, &result), 0);
    while (!cu.emu.penemu_calls("cuCtxSynchronize"))
        sched_yield();
    cu.emu.penemu_break_contexts(CUDA_ERROR_ILLEGAL_ADDRESS);
    assert_int_equal(pthread_join(thread, NULL), 0);
    assert_int_equal(result, CUDA_ERROR_ILLEGAL_ADDRESS);
    CU(cuCtxPopCurrent(NULL));
    CU(cuDevicePrimaryCtxRelease(cu.device));
}

// --- leaks ------------------------------------------------------------------

PEN_TEST(what_is_alive_at_the_last_release_is_counted_and_destroyed)
{
    raw_open();
    CUcontext again;
    CU(cuDevicePrimaryCtxRetain(&again, cu.device));
    assert_ptr_equal(again, cu.ctx);
    cu.emu.penemu_set_mode(PENEMU_LAZY, 0);
    CUstream stream = raw_stream();
    CUevent event = raw_event();
    CUmodule module;
    CUfunction function;
    CU(cuModuleLoadData(&module, &image));
    CU(cuModuleGetFunction(&function, module, "nothing"));
    CUdeviceptr device = raw_alloc(1000);
    CU(cuMemFree(raw_alloc(1)));
    void *host = raw_pinned(300);
    CU(cuMemcpyHtoDAsync(device, host, 300, stream));
    CU(cuEventRecord(event, stream));

    CU(cuDevicePrimaryCtxRelease(cu.device));
    struct penemu_leaks leaks;
    cu.emu.penemu_get_leaks(&leaks);
    assert_int_equal(leaks.device_blocks, 0);  // still retained
    CU(cuDevicePrimaryCtxRelease(cu.device));
    cu.emu.penemu_get_leaks(&leaks);
    assert_int_equal(leaks.device_blocks, 1);
    assert_int_equal(leaks.device_bytes, 1000);
    assert_int_equal(leaks.host_blocks, 1);
    assert_int_equal(leaks.host_bytes, 300);
    assert_int_equal(leaks.streams, 1);
    assert_int_equal(leaks.events, 1);
    assert_int_equal(leaks.modules, 1);
    assert_int_equal(leaks.unfinished, 2);
    char report[512];
    assert_int_equal(cu.emu.penemu_report(report, sizeof(report)), 5);
    assert_string_equal(
        strstr(report, "leak: 300 bytes of pinned") ? "" : report, "");

    // What was current is gone, and so are the handles.
    CU_IS(CUDA_ERROR_CONTEXT_IS_DESTROYED, cuCtxSynchronize());
    CU_IS(CUDA_ERROR_INVALID_CONTEXT, cuCtxPushCurrent(cu.ctx));
    CU(cuCtxPopCurrent(NULL));
    CU(cuDevicePrimaryCtxRetain(&cu.ctx, cu.device));
    CU(cuCtxPushCurrent(cu.ctx));
    CU_IS(CUDA_ERROR_INVALID_HANDLE, cuStreamSynchronize(stream));
    CU_IS(CUDA_ERROR_INVALID_HANDLE, cuEventQuery(event));
    CU_IS(CUDA_ERROR_INVALID_HANDLE, cuModuleUnload(module));
    CU_IS(CUDA_ERROR_INVALID_VALUE, cuMemFree(device));
    size_t free_bytes, total;
    CU(cuMemGetInfo(&free_bytes, &total));
    assert_int_equal(free_bytes, total);
    cu.emu.penemu_reset();
}

PEN_TEST_MAIN(
    PEN_CASE(program_under_test_calls_every_function),
    PEN_CASE(every_function_fails_on_demand),
    PEN_CASE(every_call_in_turn_fails_once),
    PEN_CASE(fault_for_ever_fails_all_later_calls),
    PEN_CASE(sticky_error_is_returned_by_every_later_call),
    PEN_CASE(ordinary_error_breaks_nothing),
    PEN_CASE(broken_context_drops_queued_work_and_lets_all_waiters_go),
    PEN_CASE(thread_that_waits_learns_that_the_context_broke),
    PEN_CASE(what_is_alive_at_the_last_release_is_counted_and_destroyed))
