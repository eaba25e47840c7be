// Memory that is used, as a driver and an NVML tell that say what a test wants.

#include <dlfcn.h>
#include <stdio.h>
#include <unistd.h>

#include "fake_nvml.h"
#include "pen_test.h"

#include "src/gpu/device.h"

enum { USED = 700 };  // of 1000 bytes, by the fake driver

static const char *fake_path(const char *name)
{
    static char path[512];
    snprintf(path, sizeof(path), "%s/tests/unit/gpu/%s", pen_test_build(),
             name);
    if (access(path, F_OK) != 0)
        PEN_SKIP("%s is not there", path);
    return path;
}

// The fake's answers, which are `answers`.
static struct fake_nvml *nvml_reset(struct fake_nvml answers)
{
    void *library = dlopen(fake_path("libnvidia-ml.so"), RTLD_NOW);
    assert_non_null(library);
    struct fake_nvml *fake = dlsym(library, "fake_nvml");
    assert_non_null(fake);
    *fake = answers;
    return fake;
}

static struct pen_device *open_fake(void)
{
    const char *path = fake_path("libfake-driver.so");
    const struct pen_device_params params = { .driver = path };
    struct pen_device *dev = NULL;
    struct pen_error err = { 0 };
    if (pen_device_open(&params, &dev, &err) != PEN_OK)
        fail_msg("%s", err.text);
    return dev;
}

// What the device tells with NVML as it is now.
static uint64_t process_bytes(void)
{
    struct pen_device *dev = open_fake();
    uint64_t device = 0, process = 1, again = 1;
    assert_true(stk_device_usage(dev, &device, &process));
    assert_int_equal(device, USED);
    assert_true(stk_device_usage(dev, &device, &again));
    assert_int_equal(process, again);
    pen_device_close(&dev);
    return process;
}

// The first test: later ones have loaded the fake. Where there is a real one
// it does not know the fake's device.
PEN_TEST(without_nvml_nothing_is_known_of_the_process)
{
    assert_int_equal(process_bytes(), 0);
}

PEN_TEST(the_process_is_found_by_its_number)
{
    struct fake_nvml *fake = nvml_reset((struct fake_nvml){
        .count = 3, .pid = (unsigned)getpid(), .bytes = 400 });
    assert_int_equal(process_bytes(), 400);
    assert_memory_equal(fake->uuid, "GPU-a0a1a2a3-", 13);
    // Opened once, and closed with the device.
    assert_int_equal(fake->inits, 1);
    assert_int_equal(fake->shutdowns, 1);
}

PEN_TEST(a_process_of_another_number_is_not_ours)
{
    (void)nvml_reset((struct fake_nvml){
        .count = 2, .pid = (unsigned)getpid() + 1, .bytes = 400 });
    assert_int_equal(process_bytes(), 0);
}

PEN_TEST(bytes_that_nvml_does_not_know_are_none)
{
    (void)nvml_reset((struct fake_nvml){
        .count = 1, .pid = (unsigned)getpid(), .bytes = ~0ull });
    assert_int_equal(process_bytes(), 0);
}

PEN_TEST(an_nvml_that_fails_is_no_failure)
{
    struct fake_nvml *fake = nvml_reset((struct fake_nvml){ .init = 9 });
    assert_int_equal(process_bytes(), 0);
    assert_int_equal(fake->inits, 1);  // asked once
    assert_int_equal(fake->shutdowns, 0);
    fake = nvml_reset((struct fake_nvml){ .by_uuid = 6 });
    assert_int_equal(process_bytes(), 0);
    assert_int_equal(fake->inits, 1);
    assert_int_equal(fake->shutdowns, 1);
    fake = nvml_reset((struct fake_nvml){
        .processes = 3, .count = 1, .pid = (unsigned)getpid(), .bytes = 400 });
    assert_int_equal(process_bytes(), 0);
}

PEN_TEST(nvml_is_not_opened_before_somebody_asks)
{
    struct fake_nvml *fake = nvml_reset((struct fake_nvml){ 0 });
    struct pen_device *dev = open_fake();
    pen_device_close(&dev);
    assert_int_equal(fake->inits + fake->shutdowns, 0);
}

PEN_TEST_MAIN(PEN_CASE(without_nvml_nothing_is_known_of_the_process),
              PEN_CASE(the_process_is_found_by_its_number),
              PEN_CASE(a_process_of_another_number_is_not_ours),
              PEN_CASE(bytes_that_nvml_does_not_know_are_none),
              PEN_CASE(an_nvml_that_fails_is_no_failure),
              PEN_CASE(nvml_is_not_opened_before_somebody_asks))
