// Memory that is used, as a driver and an NVML tell that say what a test wants.

#include <dlfcn.h>
#include <stdio.h>
#include <sys/mman.h>
#include <sys/wait.h>
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

// What a process is told that asks for the first time, on two devices one after
// the other.
struct told {
    uint64_t process[2];
    struct fake_nvml fake;  // afterwards
};

static void ask(struct fake_nvml *fake, bool asks, struct told *told)
{
    const char *path = fake_path("libfake-driver.so");
    const struct pen_device_params params = { .driver = path };
    for (unsigned i = 0; i < 2; i++) {
        struct pen_device *dev = NULL;
        uint64_t device = 0;
        if (pen_device_open(&params, &dev, NULL) != PEN_OK)
            _exit(1);
        if (asks && (!stk_device_usage(dev, &device, &told->process[i]) ||
                     device != USED))
            _exit(2);
        pen_device_close(&dev);
    }
    if (fake)
        told->fake = *fake;
}

// NVML is opened once for a process, hence one of its own for each case.
// `answers` NULL: without the fake.
static struct told ask_anew(const struct fake_nvml *answers, bool asks)
{
    const char *path = fake_path("libnvidia-ml.so");
    struct told *shared = mmap(NULL, sizeof(*shared), PROT_READ | PROT_WRITE,
                               MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    assert_ptr_not_equal(shared, MAP_FAILED);
    const pid_t child = fork();
    if (child == 0) {
        struct fake_nvml *fake = NULL;
        void *library = answers ? dlopen(path, RTLD_NOW) : NULL;
        if (library)
            fake = dlsym(library, "fake_nvml");
        if (answers && !fake)
            _exit(3);
        if (answers) {
            *fake = *answers;
            fake->pid += (unsigned)getpid();
        }
        ask(fake, asks, shared);
        _exit(0);
    }
    int state = -1;
    assert_int_equal(waitpid(child, &state, 0), child);
    assert_int_equal(state, 0);
    const struct told told = *shared;
    munmap(shared, sizeof(*shared));
    return told;
}

// Where there is a real one it does not know the fake driver's device.
PEN_TEST(without_nvml_nothing_is_known_of_the_process)
{
    const struct told told = ask_anew(NULL, true);
    assert_int_equal(told.process[0], 0);
    assert_int_equal(told.process[1], 0);
}

PEN_TEST(the_process_is_found_by_its_number)
{
    const struct fake_nvml answers = { .count = 3, .bytes = 400 };
    const struct told told = ask_anew(&answers, true);
    assert_int_equal(told.process[0], 400);
    assert_int_equal(told.process[1], 400);
    assert_memory_equal(told.fake.uuid, "GPU-a0a1a2a3-", 13);
    assert_int_equal(told.fake.inits, 1);  // once for both devices
    assert_int_equal(told.fake.shutdowns, 0);
}

PEN_TEST(a_process_of_another_number_is_not_ours)
{
    const struct fake_nvml answers = { .count = 2, .pid = 1, .bytes = 400 };
    assert_int_equal(ask_anew(&answers, true).process[0], 0);
}

PEN_TEST(bytes_that_nvml_does_not_know_are_none)
{
    const struct fake_nvml answers = { .count = 1, .bytes = ~0ull };
    assert_int_equal(ask_anew(&answers, true).process[0], 0);
}

PEN_TEST(an_nvml_that_fails_is_no_failure)
{
    const struct fake_nvml no_init = { .init = 9, .count = 1, .bytes = 400 };
    struct told told = ask_anew(&no_init, true);
    assert_int_equal(told.process[0], 0);
    assert_int_equal(told.process[1], 0);
    assert_int_equal(told.fake.inits, 1);  // asked once
    const struct fake_nvml no_uuid = { .by_uuid = 6, .count = 1, .bytes = 400 };
    told = ask_anew(&no_uuid, true);
    assert_int_equal(told.process[0], 0);
    const struct fake_nvml no_list = { .processes = 3,
                                       .count = 1,
                                       .bytes = 400 };
    told = ask_anew(&no_list, true);
    assert_int_equal(told.process[0], 0);
}

PEN_TEST(nvml_is_not_opened_before_somebody_asks)
{
    const struct fake_nvml answers = { .count = 1, .bytes = 400 };
    assert_int_equal(ask_anew(&answers, false).fake.inits, 0);
}

PEN_TEST_MAIN(PEN_CASE(without_nvml_nothing_is_known_of_the_process),
              PEN_CASE(the_process_is_found_by_its_number),
              PEN_CASE(a_process_of_another_number_is_not_ours),
              PEN_CASE(bytes_that_nvml_does_not_know_are_none),
              PEN_CASE(an_nvml_that_fails_is_no_failure),
              PEN_CASE(nvml_is_not_opened_before_somebody_asks))
