// Choosing a device: what is loaded, what is refused, and what is said then.

#include <dlfcn.h>
#include <stdio.h>
#include <sys/stat.h>
#include <unistd.h>

#include "pen_test.h"

#include "fake_driver.h"
#include "src/gpu/driver.h"

static const char *fake_path(const char *name)
{
    static char path[1024];
    snprintf(path, sizeof(path), "%s/tests/unit/gpu/%s", pen_test_build(),
             name);
    return path;
}

// The fake's settings, fresh.
static struct fake *fake_reset(void)
{
    void *library = dlopen(fake_path("libfake-driver.so"), RTLD_NOW);
    assert_non_null(library);
    struct fake *fake = dlsym(library, "fake");
    assert_non_null(fake);
    *fake = (struct fake){ .devices = 2 };
    return fake;
}

static enum pen_status open_with(const char *driver, const char *selector,
                                 struct pen_device **dev, struct pen_error *err)
{
    *err = (struct pen_error){ 0 };
    const struct pen_device_params params = { .selector = selector,
                                              .driver = driver };
    return pen_device_open(&params, dev, err);
}

static void refused(const char *driver, const char *selector,
                    enum pen_status status, int native, const char *text)
{
    struct pen_device *dev = (struct pen_device *)1;
    struct pen_error err;
    assert_int_equal(open_with(driver, selector, &dev, &err), status);
    assert_null(dev);
    assert_int_equal(err.status, status);
    assert_int_equal(err.native, native);
    if (!strstr(err.text, text))
        fail_msg("\"%s\" does not say \"%s\"", err.text, text);

    // Nobody is obliged to look at the error.
    const struct pen_device_params params = { .selector = selector,
                                              .driver = driver };
    assert_int_equal(pen_device_open(&params, &dev, NULL), status);
}

PEN_TEST(a_missing_library_means_that_no_driver_is_installed)
{
    refused("/nonexistent/libcuda.so.1", "0", PEN_E_NODRIVER, 0,
            "there is no NVIDIA driver here");
    refused("libcuda-of-nobody.so.1", "cuda", PEN_E_NODRIVER, 0,
            "install it, start containers with their GPUs");
}

PEN_TEST(a_text_file_is_there_but_no_library)
{
    char path[256];
    snprintf(path, sizeof(path), "%s/libcuda.so.1", pen_test_folder());
    pen_test_write_file(path, "not a library\n", 14);
    refused(path, NULL, PEN_E_NODRIVER, CUDA_ERROR_SHARED_OBJECT_INIT_FAILED,
            "is there but cannot be loaded");
}

static void copy_file(const char *from, const char *to)
{
    size_t bytes;
    void *data = pen_test_read_file(from, &bytes);
    pen_test_write_file(to, data, bytes);
    free(data);
}

PEN_TEST(a_driver_that_misses_a_library_of_its_own_is_there)
{
    char path[256];
    snprintf(path, sizeof(path), "%s/libcuda.so.1", pen_test_folder());
    copy_file(fake_path("libfake-orphan.so"), path);
    refused(path, NULL, PEN_E_NODRIVER, CUDA_ERROR_SHARED_OBJECT_INIT_FAILED,
            "libfake-gone.so");
}

PEN_TEST(a_driver_without_a_needed_function_is_refused_by_its_name)
{
    refused(fake_path("libfake-old.so"), NULL, PEN_E_NODRIVER,
            CUDA_ERROR_SHARED_OBJECT_SYMBOL_NOT_FOUND,
            "has no function cuEventQuery");
}

PEN_TEST(each_failure_to_start_has_its_usual_repair)
{
    static const struct {
        int result;
        const char *name, *repair;
    } cases[] = {
        { 34, "CUDA_ERROR_STUB_LIBRARY", "\"stubs\" folder out of" },
        { 35, "unknown CUresult", "driver is too old: update it" },
        { 36, "CUDA_ERROR_CALL_REQUIRES_NEWER_DRIVER", "update it" },
        { 46, "CUDA_ERROR_DEVICE_UNAVAILABLE", "another process" },
        { 100, "CUDA_ERROR_NO_DEVICE", "sees no device" },
        { 304, "CUDA_ERROR_OPERATING_SYSTEM", "/dev/nvidia*" },
        { 802, "CUDA_ERROR_SYSTEM_NOT_READY", "nvidia-fabricmanager" },
        { 803, "CUDA_ERROR_SYSTEM_DRIVER_MISMATCH", "reboot" },
        { 804, "CUDA_ERROR_COMPAT_NOT_SUPPORTED_ON_DEVICE", "\"compat\"" },
        { 805, "CUDA_ERROR_MPS_CONNECTION_FAILED", "MPS" },
        { 999, "CUDA_ERROR_UNKNOWN", "nvidia_uvm" },
        { 2, "CUDA_ERROR_OUT_OF_MEMORY", "cuInit(0)" },
        { 1234, "unknown CUresult", "1234" },
    };
    struct fake *fake = fake_reset();
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        fake->init = cases[i].result;
        const char *driver = fake_path("libfake-driver.so");
        refused(driver, "0", PEN_E_NODRIVER, cases[i].result, "cuInit(0)");
        refused(driver, "0", PEN_E_NODRIVER, cases[i].result, cases[i].name);
        refused(driver, "0", PEN_E_NODRIVER, cases[i].result, cases[i].repair);
    }
    assert_int_equal(fake->retains, 0);
}

PEN_TEST(the_toolkits_stub_is_told_from_a_driver)
{
    const char *stub = "/usr/local/cuda/lib64/stubs/libcuda.so";
    struct stat st;
    if (stat(stub, &st) != 0)
        PEN_SKIP("no toolkit with a stub library is installed");
    refused(stub, NULL, PEN_E_NODRIVER, CUDA_ERROR_STUB_LIBRARY, "stub");
}

PEN_TEST(a_driver_without_devices_says_so)
{
    struct fake *fake = fake_reset();
    fake->devices = 0;
    refused(fake_path("libfake-driver.so"), NULL, PEN_E_NODRIVER,
            CUDA_ERROR_NO_DEVICE, "sees no device");
    fake->counted = CUDA_ERROR_NO_DEVICE;
    refused(fake_path("libfake-driver.so"), NULL, PEN_E_NODRIVER,
            CUDA_ERROR_NO_DEVICE, "cuDeviceGetCount");
}

PEN_TEST(an_unknown_index_or_uuid_says_what_is_there)
{
    fake_reset();
    const char *driver = fake_path("libfake-driver.so");
    refused(driver, "2", PEN_E_NODRIVER, CUDA_ERROR_INVALID_DEVICE,
            "there is no device 2: the driver sees 2");
    refused(driver, "999999999", PEN_E_NODRIVER, CUDA_ERROR_INVALID_DEVICE,
            "there is no device 999999999");
    refused(driver, "GPU-00000000-0000-0000-0000-000000000000", PEN_E_NODRIVER,
            CUDA_ERROR_INVALID_DEVICE,
            "GPU-a0a1a2a3-a4a5-a6a7-a8a9-aaabacadae00 (0, Fake 0), "
            "GPU-a0a1a2a3-a4a5-a6a7-a8a9-aaabacadae01 (1, Fake 1)");
}

PEN_TEST(a_selector_that_means_nothing_opens_nothing)
{
    struct fake *fake = fake_reset();
    static const char *const wrong[] = {
        "", "auto", "-1", "1x", "0 ", "gpu", "Emulated", "1234567890"
    };
    for (size_t i = 0; i < sizeof(wrong) / sizeof(wrong[0]); i++)
        refused(fake_path("libfake-driver.so"), wrong[i], PEN_E_ARG, 0,
                "is no device: give an index");
    assert_int_equal(fake->inits, 0);
}

PEN_TEST(devices_are_found_by_index_uuid_and_as_the_first)
{
    static const struct {
        const char *selector;
        int index;
    } cases[] = {
        { NULL, 0 },
        { "cuda", 0 },
        { "0", 0 },
        { "1", 1 },
        { "01", 1 },
        { "GPU-a0a1a2a3-a4a5-a6a7-a8a9-aaabacadae01", 1 },
        { "gpu-A0A1A2A3-A4A5-A6A7-A8A9-AAABACADAE01", 1 },
    };
    struct fake *fake = fake_reset();
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        struct pen_device *dev;
        struct pen_error err;
        assert_int_equal(open_with(fake_path("libfake-driver.so"),
                                   cases[i].selector, &dev, &err),
                         PEN_OK);
        assert_int_equal(dev->info.index, cases[i].index);
        assert_int_equal(dev->info.driver_version, 12040);
        assert_int_equal(dev->info.total_bytes, ((uint64_t)cases[i].index + 1)
                                                    << 30);
        assert_int_equal(dev->info.sm_major, 75 + 1000 * cases[i].index);
        assert_int_equal(dev->info.sm_minor, 76 + 1000 * cases[i].index);
        assert_int_equal(dev->info.multiprocessors, 16 + 1000 * cases[i].index);
        assert_false(dev->info.emulated);
        pen_device_close(&dev);
        assert_null(dev);
        assert_int_equal(fake->retains, i + 1);
        assert_int_equal(fake->releases, i + 1);
    }
}

PEN_TEST(a_refused_context_is_not_released)
{
    struct fake *fake = fake_reset();
    fake->retained = CUDA_ERROR_OUT_OF_MEMORY;
    refused(fake_path("libfake-driver.so"), "1", PEN_E_DEVMEM,
            CUDA_ERROR_OUT_OF_MEMORY, "cuDevicePrimaryCtxRetain");
    fake->retained = CUDA_ERROR_DEVICE_UNAVAILABLE;
    refused(fake_path("libfake-driver.so"), "1", PEN_E_DRIVER,
            CUDA_ERROR_DEVICE_UNAVAILABLE, "another process");
    assert_int_equal(fake->releases, 0);
}

PEN_TEST(listing_describes_all_devices_and_retains_none)
{
    struct fake *fake = fake_reset();
    const struct pen_device_params params = {
        .driver = fake_path("libfake-driver.so"),
    };
    struct pen_device_info info[4] = { 0 };
    size_t count = 77;
    struct pen_error err = { 0 };
    assert_int_equal(pen_device_list(&params, info, 4, &count, &err), PEN_OK);
    assert_int_equal(count, 2);
    assert_string_equal(info[0].name, "Fake 0");
    assert_string_equal(info[1].uuid,
                        "GPU-a0a1a2a3-a4a5-a6a7-a8a9-aaabacadae01");
    assert_int_equal(info[1].index, 1);
    assert_int_equal(info[1].free_bytes, 0);
    assert_int_equal(info[2].total_bytes, 0);

    assert_int_equal(pen_device_list(&params, info, 1, &count, &err), PEN_OK);
    assert_int_equal(count, 2);
    assert_int_equal(pen_device_list(&params, NULL, 0, &count, NULL), PEN_OK);
    assert_int_equal(count, 2);
    assert_int_equal(fake->retains, 0);

    fake->init = CUDA_ERROR_SYSTEM_DRIVER_MISMATCH;
    assert_int_equal(pen_device_list(&params, info, 4, &count, &err),
                     PEN_E_NODRIVER);
    assert_int_equal(count, 0);
    assert_int_equal(err.native, CUDA_ERROR_SYSTEM_DRIVER_MISMATCH);
}

// --- the emulated device's library ------------------------------------------

PEN_TEST(without_an_emulator_the_places_looked_at_are_named)
{
    struct pen_device *dev;
    struct pen_error err = { 0 };
    // This program carries the GPU layer itself, and no emulator lies beside.
    const struct pen_device_params params = { .selector = "emulated" };
    assert_int_equal(pen_device_open(&params, &dev, &err), PEN_E_NODRIVER);
    assert_int_equal(err.native, 0);
    assert_non_null(strstr(err.text, "penstock/libpenstock-emu.so"));
    assert_non_null(strstr(err.text, "../emu/libpenstock-emu.so"));
    char here[512];
    const ssize_t length = readlink("/proc/self/exe", here, sizeof(here) - 1);
    assert_true(length > 0);
    here[length] = 0;
    *strrchr(here, '/') = 0;
    assert_non_null(strstr(err.text, strrchr(here, '/')));
}

PEN_TEST(the_emulator_is_found_beside_the_library_and_in_a_bundle)
{
    static const char *const places[] = { "lib", "lib/penstock", "emu" };
    for (size_t i = 0; i < 3; i++) {
        char path[512];
        const char *root = pen_test_folder();
        for (size_t k = 0; k < 3; k++) {
            snprintf(path, sizeof(path), "%s/%s", root, places[k]);
            assert_int_equal(mkdir(path, 0777), 0);
        }
        snprintf(path, sizeof(path), "%s/%s/libpenstock-emu.so", root,
                 places[i]);
        copy_file(fake_path("libfake-driver.so"), path);
        snprintf(path, sizeof(path), "%s/lib/libbeside.so", root);
        copy_file(fake_path("libbeside.so"), path);

        void *library = dlopen(path, RTLD_NOW | RTLD_LOCAL);
        if (!library)
            fail_msg("%s", dlerror());
        enum pen_status (*list)(const struct pen_device_params *,
                                struct pen_device_info *, size_t, size_t *,
                                struct pen_error *);
        void *symbol = dlsym(library, "pen_device_list");
        assert_non_null(symbol);
        memcpy(&list, &symbol, sizeof(symbol));

        const struct pen_device_params params = { .selector = "emulated" };
        struct pen_device_info info = { 0 };
        struct pen_error err = { 0 };
        size_t count = 0;
        if (list(&params, &info, 1, &count, &err) != PEN_OK)
            fail_msg("%s: %s", places[i], err.text);
        assert_int_equal(count, 2);
        assert_true(info.emulated);
        assert_string_equal(info.name, "Fake 0");
    }
}

PEN_TEST(an_emulator_that_is_named_is_the_only_one_tried)
{
    struct pen_device *dev;
    struct pen_error err = { 0 };
    const struct pen_device_params params = {
        .selector = "emulated",
        .emulator = "/nonexistent/libpenstock-emu.so",
        .driver = fake_path("libfake-driver.so"),
    };
    struct fake *fake = fake_reset();
    assert_int_equal(pen_device_open(&params, &dev, &err), PEN_E_NODRIVER);
    assert_non_null(strstr(err.text, "/nonexistent/libpenstock-emu.so"));
    assert_int_equal(fake->inits, 0);
}

// --- results ----------------------------------------------------------------

PEN_TEST(results_are_classed_by_what_is_left_of_the_context)
{
    static const int dead[] = { 4,   214, 220, 226, 700, 702, 709,
                                710, 714, 715, 716, 717, 718, 719,
                                721, 806, 810, 911, 999 };
    for (int result = 0; result < 2000; result++) {
        enum stk_cu_class want = STK_CU_CALL;
        if (result == 0)
            want = STK_CU_DONE;
        else if (result == 600)
            want = STK_CU_RETRY;
        else if (result == 2)
            want = STK_CU_MEMORY;
        for (size_t i = 0; i < sizeof(dead) / sizeof(dead[0]); i++) {
            if (result == dead[i])
                want = STK_CU_DEAD;
        }
        if (stk_cu_class((CUresult)result) != want)
            fail_msg("result %d has another class", result);
    }
}

PEN_TEST(a_failed_call_names_itself_and_a_sticky_one_is_the_last)
{
    fake_reset();
    struct pen_device *dev;
    struct pen_error err;
    assert_int_equal(open_with(fake_path("libfake-driver.so"), "0", &dev, &err),
                     PEN_OK);

    assert_int_equal(STK_CU(dev, &err, cuMemFree(7)), PEN_E_DRIVER);
    assert_int_equal(err.native, CUDA_ERROR_NOT_SUPPORTED);
    assert_string_equal(err.where, "cuda:0");
    assert_string_equal(err.text, "cuMemFree(7): CUDA_ERROR_NOT_SUPPORTED "
                                  "(801), as the fake says");
    assert_false(stk_device_lost(dev));

    assert_int_equal(
        stk_cu_result(dev, &err, CUDA_ERROR_NOT_READY, "cuEventQuery(e)"),
        PEN_AGAIN);
    assert_int_equal(
        stk_cu_result(dev, &err, CUDA_ERROR_OUT_OF_MEMORY, "cuMemAlloc(p, n)"),
        PEN_E_DEVMEM);
    assert_false(stk_device_lost(dev));

    assert_int_equal(
        stk_cu_result(dev, &err, CUDA_ERROR_ILLEGAL_ADDRESS, "cuEventQuery(e)"),
        PEN_E_LOST);
    assert_true(stk_device_lost(dev));
    assert_int_equal(
        stk_cu_result(dev, NULL, CUDA_ERROR_LAUNCH_FAILED, "second()"),
        PEN_E_LOST);

    // No call is made, and the first cause is told.
    int version = -1;
    assert_int_equal(STK_CU(dev, &err, cuDriverGetVersion(&version)),
                     PEN_E_LOST);
    assert_int_equal(version, -1);
    assert_int_equal(err.native, CUDA_ERROR_ILLEGAL_ADDRESS);
    assert_non_null(strstr(err.text, "cuDriverGetVersion(&version) was not"));
    assert_non_null(strstr(err.text, "lost by cuEventQuery(e): "
                                     "CUDA_ERROR_ILLEGAL_ADDRESS"));
    assert_int_equal(STK_CU(dev, NULL, cuDriverGetVersion(&version)),
                     PEN_E_LOST);
    // ... but what is to be released is.
    struct fake *fake = dlsym(dev->cu.library, "fake");
    pen_device_close(&dev);
    assert_int_equal(fake->releases, 1);
}

// --- kernels ----------------------------------------------------------------

static const char a_ptx[] = "ptx", a_fatbin[] = "fatbin";
static const struct pen_kernel_entry two_entries[] = {
    { "first", 8, NULL, NULL },
    { "second", 16, NULL, NULL },
};

static struct pen_kernel_image image_of(const char *ptx, const void *fatbin)
{
    return (struct pen_kernel_image){
        .magic = PEN_KERNEL_MAGIC,
        .abi = PEN_KERNEL_ABI,
        .count = 2,
        .name = "two",
        .ptx = ptx,
        .fatbin = fatbin,
        .entries = two_entries,
    };
}

PEN_TEST(a_driver_is_given_the_fatbin_then_the_ptx_never_the_table)
{
    static const struct {
        const char *prefer, *ptx, *fatbin, *loaded;
    } cases[] = {
        { NULL, a_ptx, a_fatbin, a_fatbin },
        { NULL, a_ptx, NULL, a_ptx },
        { NULL, NULL, a_fatbin, a_fatbin },
        { NULL, NULL, NULL, NULL },
        { "fatbin", a_ptx, a_fatbin, a_fatbin },
        { "ptx", a_ptx, a_fatbin, a_ptx },
        { "ptx", NULL, a_fatbin, a_fatbin },
    };
    struct fake *fake = fake_reset();
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        const struct pen_kernel_image image =
            image_of(cases[i].ptx, cases[i].fatbin);
        struct pen_device *dev;
        struct stk_kernels *k;
        struct pen_error err;
        assert_int_equal(
            open_with(fake_path("libfake-driver.so"), "0", &dev, &err), PEN_OK);
        stk_kernels_prefer(dev, cases[i].prefer);
        fake->image = NULL;
        const enum pen_status st = stk_kernels_load(dev, &image, &k, &err);
        assert_ptr_equal(fake->image, cases[i].loaded);
        if (cases[i].loaded) {
            assert_int_equal(st, PEN_OK);
            assert_ptr_equal(stk_kernels_find(dev, &image), k);
            assert_int_equal(fake->function_loads, image.count);
            fake->function_loads = 0;
        } else {
            assert_int_equal(st, PEN_E_UNSUPPORTED);
            assert_non_null(strstr(err.text, "emulated device only"));
            assert_null(stk_kernels_find(dev, &image));
        }
        pen_device_close(&dev);
        assert_int_equal(fake->loads, fake->unloads);
    }
}

PEN_TEST(an_image_that_the_driver_refuses_is_named_with_its_binary)
{
    static const struct {
        int result;
        const char *repair;
    } cases[] = {
        { CUDA_ERROR_NO_BINARY_FOR_GPU, "not built for this device" },
        { CUDA_ERROR_UNSUPPORTED_PTX_VERSION, "newer than the driver" },
        { CUDA_ERROR_JIT_COMPILER_NOT_FOUND, "libnvidia-ptxjitcompiler" },
        { CUDA_ERROR_INVALID_PTX, "cuModuleLoadData" },
    };
    struct fake *fake = fake_reset();
    const struct pen_kernel_image image = image_of(a_ptx, NULL);
    struct pen_device *dev;
    struct stk_kernels *k;
    struct pen_error err;
    assert_int_equal(open_with(fake_path("libfake-driver.so"), "0", &dev, &err),
                     PEN_OK);
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        fake->loaded = cases[i].result;
        assert_int_equal(stk_kernels_load(dev, &image, &k, &err), PEN_E_DRIVER);
        assert_null(k);
        assert_int_equal(err.native, cases[i].result);
        assert_string_equal(err.where, "kernels two (ptx)");
        assert_non_null(strstr(err.text, cases[i].repair));
    }
    fake->loaded = 0;
    fake->absent = "second";
    assert_int_equal(stk_kernels_load(dev, &image, &k, &err), PEN_E_DRIVER);
    assert_int_equal(err.native, CUDA_ERROR_NOT_FOUND);
    assert_string_equal(err.where, "kernels two (ptx) second");
    assert_non_null(strstr(err.text, "cuModuleGetFunction"));
    assert_int_equal(fake->unloads, 1);
    assert_null(stk_kernels_find(dev, &image));
    pen_device_close(&dev);
    assert_int_equal(fake->unloads, 1);
}

// --- logging ----------------------------------------------------------------

struct lines {
    unsigned warnings, others;
    char last[600];
};

static void keep_line(void *cookie, enum pen_log_level level, const char *topic,
                      const char *text)
{
    struct lines *lines = cookie;
    assert_string_equal(topic, "pen.gpu");
    if (level == PEN_LOG_WARN)
        lines->warnings++;
    else
        lines->others++;
    snprintf(lines->last, sizeof(lines->last), "%s", text);
}

PEN_TEST(a_failed_release_is_logged_once_the_device_is_lost_no_more)
{
    fake_reset();
    struct lines lines = { 0 };
    const struct pen_log log = { keep_line, &lines, PEN_LOG_INFO };
    const struct pen_device_params params = {
        .driver = fake_path("libfake-driver.so"),
        .log = &log,
    };
    struct pen_device *dev;
    assert_int_equal(pen_device_open(&params, &dev, NULL), PEN_OK);
    STK_CU_END(dev, cuMemFree(7));
    assert_int_equal(lines.warnings, 1);
    assert_string_equal(lines.last,
                        "cuda:0: while releasing: cuMemFree(7): "
                        "CUDA_ERROR_NOT_SUPPORTED (801), as the fake says");
    stk_cu_end(dev, CUDA_ERROR_LAUNCH_FAILED, "cuStreamDestroy(s)");
    assert_true(stk_device_lost(dev));
    assert_int_equal(lines.warnings, 2);
    STK_CU_END(dev, cuMemFree(7));
    assert_int_equal(lines.warnings, 2);
    assert_int_equal(lines.others, 0);
    pen_device_close(&dev);
}

PEN_TEST_MAIN(
    PEN_CASE(a_missing_library_means_that_no_driver_is_installed),
    PEN_CASE(a_text_file_is_there_but_no_library),
    PEN_CASE(a_driver_that_misses_a_library_of_its_own_is_there),
    PEN_CASE(a_driver_without_a_needed_function_is_refused_by_its_name),
    PEN_CASE(each_failure_to_start_has_its_usual_repair),
    PEN_CASE(the_toolkits_stub_is_told_from_a_driver),
    PEN_CASE(a_driver_without_devices_says_so),
    PEN_CASE(an_unknown_index_or_uuid_says_what_is_there),
    PEN_CASE(a_selector_that_means_nothing_opens_nothing),
    PEN_CASE(devices_are_found_by_index_uuid_and_as_the_first),
    PEN_CASE(a_refused_context_is_not_released),
    PEN_CASE(listing_describes_all_devices_and_retains_none),
    PEN_CASE(without_an_emulator_the_places_looked_at_are_named),
    PEN_CASE(the_emulator_is_found_beside_the_library_and_in_a_bundle),
    PEN_CASE(an_emulator_that_is_named_is_the_only_one_tried),
    PEN_CASE(results_are_classed_by_what_is_left_of_the_context),
    PEN_CASE(a_failed_call_names_itself_and_a_sticky_one_is_the_last),
    PEN_CASE(a_driver_is_given_the_fatbin_then_the_ptx_never_the_table),
    PEN_CASE(an_image_that_the_driver_refuses_is_named_with_its_binary),
    PEN_CASE(a_failed_release_is_logged_once_the_device_is_lost_no_more))
