// Settings by environment and control, devices, contexts, and what the library
// exports.

#include <elf.h>
#include <pthread.h>
#include <unistd.h>

#include <penstock/kernel.h>

#include "raw_driver.h"

static void clear_environment(void)
{
    unsetenv("PENSTOCK_EMU_MODE");
    unsetenv("PENSTOCK_EMU_MEMORY");
    unsetenv("PENSTOCK_EMU_DEVICES");
    unsetenv("PENSTOCK_EMU_CPU");
    unsetenv("PENSTOCK_EMU_CHECK");
    unsetenv("PENSTOCK_EMU_DMABUF");
    unsetenv("PENSTOCK_EMU_REPORT");
}

// Whether work is done without anybody waiting: not in lazy mode.
static bool lazy(void)
{
    CUstream stream = raw_stream();
    CUdeviceptr device = raw_alloc(1);
    CU(cuMemsetD8Async(device, 1, 1, stream));
    CUresult result = CUDA_ERROR_NOT_READY;
    for (int i = 0; i < 2000 && result == CUDA_ERROR_NOT_READY; i++) {
        usleep(100);
        result = cu.cuStreamQuery(stream);
    }
    CU(cuMemFree(device));
    CU(cuStreamDestroy(stream));
    return result == CUDA_ERROR_NOT_READY;
}

PEN_TEST(mode_comes_from_the_environment_unless_a_control_was_called)
{
    clear_environment();
    raw_open();
    assert_false(lazy());
    raw_close();
    setenv("PENSTOCK_EMU_MODE", "lazy", 1);
    raw_open();
    assert_true(lazy());
    raw_close();
    setenv("PENSTOCK_EMU_MODE", "random:7", 1);
    raw_open();
    assert_false(lazy());
    raw_close();
    setenv("PENSTOCK_EMU_MODE", "lazy", 1);
    raw_open_only();
    cu.emu.penemu_set_mode(PENEMU_EAGER, 0);
    CU(cuInit(0));
    CU(cuDevicePrimaryCtxRetain(&cu.ctx, cu.device));
    CU(cuCtxPushCurrent(cu.ctx));
    assert_false(lazy());
    raw_close();
    clear_environment();
}

PEN_TEST(nonsense_in_the_environment_is_reported_and_ignored)
{
    static const char *const settings[][2] = {
        { "PENSTOCK_EMU_MODE", "sometimes" },
        { "PENSTOCK_EMU_MODE", "random:x" },
        { "PENSTOCK_EMU_MODE", "random:" },
        { "PENSTOCK_EMU_MEMORY", "lots" },
        { "PENSTOCK_EMU_MEMORY", "1Q" },
        { "PENSTOCK_EMU_MEMORY", "0" },
        { "PENSTOCK_EMU_MEMORY", "99999999G" },
        { "PENSTOCK_EMU_DEVICES", "9" },
        { "PENSTOCK_EMU_DEVICES", "-1" },
        { "PENSTOCK_EMU_DEVICES", "11" },
        { "PENSTOCK_EMU_CPU", "z80" },
        { "PENSTOCK_EMU_CHECK", "yes" },
        { "PENSTOCK_EMU_DMABUF", "both" },
    };
    for (size_t i = 0; i < sizeof(settings) / sizeof(settings[0]); i++) {
        clear_environment();
        setenv(settings[i][0], settings[i][1], 1);
        raw_open();
        char report[512];
        assert_int_equal(cu.emu.penemu_report(report, sizeof(report)), 1);
        assert_non_null(strstr(report, settings[i][0]));
        size_t total;
        CU(cuDeviceTotalMem(&total, 0));
        assert_int_equal(total, (size_t)4 << 30);
        raw_close();
    }
    clear_environment();
}

PEN_TEST(memory_size_comes_from_the_environment)
{
    static const struct {
        const char *text;
        size_t bytes;
    } sizes[] = { { "12345", 12345 },
                  { "64K", 64 << 10 },
                  { "3M", 3 << 20 },
                  { "2G", (size_t)2 << 30 } };
    for (size_t i = 0; i < 4; i++) {
        setenv("PENSTOCK_EMU_MEMORY", sizes[i].text, 1);
        raw_open();
        size_t free_bytes, total;
        CU(cuMemGetInfo(&free_bytes, &total));
        assert_int_equal(total, sizes[i].bytes);
        raw_close();
    }
    clear_environment();
}

static void nothing(const void *args, const struct penk_block *block)
{
    (void)args;
    (void)block;
}
static const struct pen_kernel_entry entry = { "nothing", 0, nothing, NULL };
static const struct pen_kernel_image image = {
    .magic = PEN_KERNEL_MAGIC,
    .abi = PEN_KERNEL_ABI,
    .count = 1,
    .name = "nothing",
    .entries = &entry,
};

PEN_TEST(number_of_devices_can_be_chosen)
{
    clear_environment();
    setenv("PENSTOCK_EMU_DEVICES", "3", 1);
    raw_open_only();
    CU(cuInit(0));
    int count, minor, major;
    CU(cuDeviceGetCount(&count));
    assert_int_equal(count, 3);
    CUdevice device;
    CUuuid uuid[3];
    CUcontext ctx[3];
    for (int i = 0; i < 3; i++) {
        CU(cuDeviceGet(&device, i));
        CU(cuDeviceGetUuid(&uuid[i], device));
        if (i)
            assert_memory_not_equal(&uuid[i], &uuid[i - 1], sizeof(uuid[0]));
        CU(cuDeviceGetAttribute(
            &major, CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR, device));
        CU(cuDeviceGetAttribute(
            &minor, CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR, device));
        assert_int_equal(10 * major + minor, 90);
        CU(cuDevicePrimaryCtxRetain(&ctx[i], device));
    }
    CU_IS(CUDA_ERROR_INVALID_DEVICE, cuDeviceGet(&device, 3));
    CU_IS(CUDA_ERROR_INVALID_DEVICE, cuDeviceGet(&device, -1));
    CU_IS(CUDA_ERROR_INVALID_DEVICE, cuDevicePrimaryCtxRetain(&ctx[0], 3));
    assert_int_equal(cu.emu.penemu_set_devices(2), -1);  // too late

    // Memory of one device can be copied to another; a launch or a record
    // across contexts is refused.
    CUdeviceptr at[2];
    CUstream stream[2];
    CUevent event;
    for (int i = 0; i < 2; i++) {
        CU(cuCtxPushCurrent(ctx[i]));
        at[i] = raw_alloc(100);
        stream[i] = raw_stream();
        CU(cuMemsetD8Async(at[i], (unsigned char)(i + 1), 100, stream[i]));
        CU(cuCtxSynchronize());
        CU(cuCtxPopCurrent(NULL));
    }
    CU(cuCtxPushCurrent(ctx[0]));
    event = raw_event();
    CU(cuMemcpyDtoDAsync(at[0], at[1], 100, stream[0]));
    CU_IS(CUDA_ERROR_INVALID_HANDLE, cuEventRecord(event, stream[1]));
    CU(cuEventRecord(event, stream[0]));
    CU(cuStreamWaitEvent(stream[1], event, 0));
    CU(cuStreamSynchronize(stream[1]));
    assert_int_equal(*(char *)cu.emu.penemu_bytes(at[0], 1), 2);
    CUmodule module;
    CUfunction function;
    CU(cuModuleLoadData(&module, &image));
    CU(cuModuleGetFunction(&function, module, "nothing"));
    CU_IS(CUDA_ERROR_INVALID_HANDLE,
          cuLaunchKernel(function, 1, 1, 1, 1, 1, 1, 0, stream[1], NULL, NULL));
    CU(cuLaunchKernel(function, 1, 1, 1, 1, 1, 1, 0, stream[0], NULL, NULL));
    CU(cuCtxPopCurrent(NULL));
    CU(cuCtxPushCurrent(ctx[1]));
    CU_IS(CUDA_ERROR_INVALID_HANDLE,
          cuLaunchKernel(function, 1, 1, 1, 1, 1, 1, 0, stream[1], NULL, NULL));
    CU(cuCtxPopCurrent(NULL));
    CU(cuCtxPushCurrent(ctx[0]));
    // A sticky error stays where it happened.
    cu.emu.penemu_fault_arm("cuStreamQuery", 1, CUDA_ERROR_LAUNCH_FAILED, 0);
    CU_IS(CUDA_ERROR_LAUNCH_FAILED, cuStreamQuery(stream[0]));
    CU_IS(CUDA_ERROR_LAUNCH_FAILED, cuCtxSynchronize());
    CU(cuCtxPopCurrent(NULL));
    CU(cuCtxPushCurrent(ctx[1]));
    CU(cuCtxSynchronize());
    CU(cuStreamDestroy(stream[1]));
    CU(cuMemFree(at[1]));
    CU(cuCtxPopCurrent(NULL));
    for (int i = 0; i < 3; i++)
        CU(cuDevicePrimaryCtxRelease(i));

    setenv("PENSTOCK_EMU_DEVICES", "0", 1);
    raw_open_only();
    CU_IS(CUDA_ERROR_NO_DEVICE, cuInit(0));
    CU_IS(CUDA_ERROR_NOT_INITIALIZED, cuDeviceGetCount(&count));
    clear_environment();
    raw_open_only();
    assert_int_equal(cu.emu.penemu_set_devices(2), 0);
    CU(cuInit(0));
    CU(cuDeviceGetCount(&count));
    assert_int_equal(count, 2);
    assert_int_equal(cu.emu.penemu_set_devices(9), -1);
}

PEN_TEST(nothing_works_before_init_and_without_a_context)
{
    raw_open_only();
    int number;
    CUcontext ctx;
    CUdeviceptr device;
    CUstream stream;
    CU_IS(CUDA_ERROR_NOT_INITIALIZED, cuDeviceGetCount(&number));
    CU_IS(CUDA_ERROR_NOT_INITIALIZED, cuDevicePrimaryCtxRetain(&ctx, 0));
    CU_IS(CUDA_ERROR_NOT_INITIALIZED, cuCtxGetCurrent(&ctx));
    CU_IS(CUDA_ERROR_NOT_INITIALIZED, cuMemAlloc(&device, 1));
    CU(cuDriverGetVersion(&number));
    CU_IS(CUDA_ERROR_INVALID_VALUE, cuInit(1));
    CU(cuInit(0));
    CU(cuInit(0));
    const CUresult none = CUDA_ERROR_INVALID_CONTEXT;
    CU_IS(none, cuMemAlloc(&device, 1));
    CU_IS(none, cuStreamCreate(&stream, 0));
    CU_IS(none, cuCtxSynchronize());
    CU_IS(none, cuCtxPopCurrent(&ctx));
    CU_IS(none, cuCtxPushCurrent(NULL));
    CU_IS(none, cuDevicePrimaryCtxRelease(0));
    CU(cuDevicePrimaryCtxRetain(&ctx, 0));
    CU_IS(none, cuMemAlloc(&device, 1));  // retained is not current
    CU(cuDevicePrimaryCtxRelease(0));
}

static void *look(void *cookie)
{
    CUcontext *seen = cookie;
    cu.cuCtxGetCurrent(seen);
    return NULL;
}

PEN_TEST(every_thread_has_its_own_stack_of_contexts)
{
    raw_open();
    CUcontext seen = cu.ctx;
    pthread_t thread;
    assert_int_equal(pthread_create(&thread, NULL, look, &seen), 0);
    assert_int_equal(pthread_join(thread, NULL), 0);
    assert_null(seen);
    for (int i = 0; i < 255; i++)
        CU(cuCtxPushCurrent(cu.ctx));
    CU_IS(CUDA_ERROR_OUT_OF_MEMORY, cuCtxPushCurrent(cu.ctx));
    for (int i = 0; i < 255; i++) {
        CU(cuCtxPopCurrent(&seen));
        assert_ptr_equal(seen, cu.ctx);
    }
    raw_close();
}

PEN_TEST(stale_and_foreign_handles_are_recognised)
{
    raw_open();
    const CUresult bad = CUDA_ERROR_INVALID_HANDLE;
    CUstream stream = raw_stream(), old = stream;
    CUevent event = raw_event(), old_event = event;
    CU(cuStreamDestroy(stream));
    CU(cuEventDestroy(event));
    // The same slots again: the handles differ.
    stream = raw_stream();
    event = raw_event();
    assert_ptr_not_equal(stream, old);
    assert_ptr_not_equal(event, old_event);
    CU_IS(bad, cuStreamSynchronize(old));
    CU_IS(bad, cuStreamDestroy(old));
    CU_IS(bad, cuEventDestroy(old_event));
    CU_IS(bad, cuEventRecord(old_event, stream));
    CU_IS(bad, cuEventRecord(event, old));
    CU_IS(bad, cuStreamWaitEvent(stream, old_event, 0));
    CU_IS(bad, cuEventQuery((CUevent)(uintptr_t)stream));
    CU_IS(bad, cuEventSynchronize((CUevent)(uintptr_t)cu.ctx));
    CU_IS(bad, cuStreamQuery((CUstream)(uintptr_t)0x1234567890));
    CU_IS(CUDA_ERROR_NOT_SUPPORTED, cuStreamQuery((CUstream)(uintptr_t)2));
    CU_IS(bad, cuStreamDestroy(NULL));
    CUstream none;
    CUevent no_event;
    CU_IS(CUDA_ERROR_INVALID_VALUE, cuStreamCreate(&none, 2));
    CU_IS(CUDA_ERROR_INVALID_VALUE, cuEventCreate(&no_event, 64));
    CU_IS(CUDA_ERROR_INVALID_VALUE, cuStreamWaitEvent(stream, event, 9));
    CU(cuEventDestroy(event));
    CU(cuStreamDestroy(stream));
    raw_close();
}

PEN_TEST(errors_have_names_and_texts)
{
    raw_open_only();
    const char *text = NULL;
#define X(enumerator, value)                                                   \
    CU(cuGetErrorName(enumerator, &text));                                     \
    assert_string_equal(text, #enumerator);                                    \
    CU(cuGetErrorString(enumerator, &text));                                   \
    assert_true(text[0] != 0);
    STK_CU_RESULTS(X)
#undef X
    CU_IS(CUDA_ERROR_INVALID_VALUE, cuGetErrorName((CUresult)12345, &text));
    assert_null(text);
    CU_IS(CUDA_ERROR_INVALID_VALUE, cuGetErrorString((CUresult)12345, &text));
    assert_null(text);
}

// --- exports ----------------------------------------------------------------

static const char *const wanted[] = {
#define X(need, name, symbol, params) symbol,
#include "../../../src/gpu/driver_list.h"
#undef X
#define X(type, name, params) #name,
    PENEMU_CONTROLS(X)
#undef X
};
enum { WANTED = sizeof(wanted) / sizeof(wanted[0]) };

PEN_TEST(library_exports_the_list_and_the_controls_and_nothing_else)
{
    size_t bytes;
    char *file = pen_test_read_file(pen_test_emulator(), &bytes);
    const Elf64_Ehdr *head = (const void *)file;
    assert_memory_equal(head->e_ident, ELFMAG, SELFMAG);
    const Elf64_Shdr *sections = (const void *)(file + head->e_shoff);
    unsigned found = 0;
    for (int s = 0; s < head->e_shnum; s++) {
        if (sections[s].sh_type != SHT_DYNSYM)
            continue;
        const Elf64_Sym *symbols = (const void *)(file + sections[s].sh_offset);
        const char *names = file + sections[sections[s].sh_link].sh_offset;
        const size_t count = sections[s].sh_size / sizeof(*symbols);
        for (size_t i = 1; i < count; i++) {
            if (symbols[i].st_shndx == SHN_UNDEF ||
                ELF64_ST_TYPE(symbols[i].st_info) != STT_FUNC)
                continue;
            const char *name = names + symbols[i].st_name;
            int w = 0;
            while (w < WANTED && strcmp(name, wanted[w]) != 0)
                w++;
            // What a sanitizer's compiler adds is not ours.
            if (w == WANTED && strncmp(name, "__", 2) != 0 && name[0] != '_')
                fail_msg("%s is exported", name);
            found += w < WANTED;
        }
    }
    free(file);
    assert_int_equal(found, WANTED);
}

PEN_TEST(opening_the_path_again_gives_the_same_instance)
{
    raw_open();
    void *again = dlopen(pen_test_emulator(), RTLD_NOW | RTLD_LOCAL);
    assert_non_null(again);
    struct penemu other;
    assert_true(penemu_load(&other, again, dlsym));
    assert_int_equal(other.penemu_calls("cuInit"), 1);
    assert_false(penemu_load(&other, RTLD_NEXT, dlsym));
    assert_int_equal(dlclose(again), 0);
    raw_close();
}

PEN_TEST_MAIN(
    PEN_CASE(mode_comes_from_the_environment_unless_a_control_was_called),
    PEN_CASE(nonsense_in_the_environment_is_reported_and_ignored),
    PEN_CASE(memory_size_comes_from_the_environment),
    PEN_CASE(number_of_devices_can_be_chosen),
    PEN_CASE(nothing_works_before_init_and_without_a_context),
    PEN_CASE(every_thread_has_its_own_stack_of_contexts),
    PEN_CASE(stale_and_foreign_handles_are_recognised),
    PEN_CASE(errors_have_names_and_texts),
    PEN_CASE(library_exports_the_list_and_the_controls_and_nothing_else),
    PEN_CASE(opening_the_path_again_gives_the_same_instance))
