// One primary context for all who retain it, and processes that fork.

#include <errno.h>
#include <stdio.h>
#include <sys/wait.h>
#include <unistd.h>

#include "gpu_fixture.h"
#include "raw_driver.h"

#include "src/gpu/driver.h"

// --- children ---------------------------------------------------------------

// Run `body` in a child; the test fails with its complaint unless it ends by
// itself, within 20 seconds, without one.
static void in_child(void (*body)(void *cookie, char *complaint, size_t size),
                     void *cookie)
{
    int pipes[2];
    assert_int_equal(pipe(pipes), 0);
    const pid_t pid = fork();
    assert_true(pid >= 0);
    if (pid == 0) {
        char complaint[512] = "";
        alarm(20);
        body(cookie, complaint, sizeof(complaint));
        const size_t length = strlen(complaint);
        const bool told =
            !length || write(pipes[1], complaint, length) == (ssize_t)length;
        _exit(told ? 0 : 1);
    }
    close(pipes[1]);
    char complaint[512] = "";
    size_t length = 0;
    ssize_t got;
    while (length < sizeof(complaint) - 1 &&
           (got = read(pipes[0], complaint + length,
                       sizeof(complaint) - 1 - length)) > 0)
        length += (size_t)got;
    close(pipes[0]);
    int status = -1;
    assert_int_equal(waitpid(pid, &status, 0), pid);
    if (complaint[0])
        fail_msg("in the child: %s", complaint);
    if (!WIFEXITED(status) || WEXITSTATUS(status))
        fail_msg("the child ended with %s %d",
                 WIFSIGNALED(status) ? "signal" : "status",
                 WIFSIGNALED(status) ? WTERMSIG(status) : WEXITSTATUS(status));
}

// A fixture reports to cmocka, which the child must not do.
static void open_in_child(void *cookie, char *complaint, size_t size)
{
    (void)cookie;
    const struct pen_device_params params = {
        .selector = pen_test_device(),
        .emulator = pen_test_emulator(),
    };
    struct pen_device *dev = NULL;
    struct pen_device_info info;
    struct pen_error err = { 0 };
    if (pen_device_open(&params, &dev, &err) != PEN_OK ||
        pen_device_get_info(dev, &info, &err) != PEN_OK)
        snprintf(complaint, size, "%s", err.text);
    pen_device_close(&dev);
}

// Has to be the first test: later ones have opened a driver.
PEN_TEST(a_child_of_a_process_without_a_driver_opens_one)
{
    in_child(open_in_child, NULL);
    in_child(open_in_child, NULL);
}

static bool refuse_handlers;
int __real_pthread_atfork(void (*prepare)(void), void (*parent)(void),
                          void (*child)(void));
int __wrap_pthread_atfork(void (*prepare)(void), void (*parent)(void),
                          void (*child)(void));
int __wrap_pthread_atfork(void (*prepare)(void), void (*parent)(void),
                          void (*child)(void))
{
    return refuse_handlers ? ENOMEM
                           : __real_pthread_atfork(prepare, parent, child);
}

// Likewise: whoever opened one has the handler already.
PEN_TEST(without_a_handler_for_forks_no_driver_is_opened)
{
    const struct pen_device_params params = {
        .selector = pen_test_device(),
        .emulator = pen_test_emulator(),
    };
    struct pen_device *dev = NULL;
    struct pen_error why = { 0 };
    refuse_handlers = true;
    assert_int_equal(pen_device_open(&params, &dev, &why), PEN_E_NOMEM);
    assert_non_null(strstr(why.text, "forks"));
    assert_null(dev);
    refuse_handlers = false;
    FIXTURE_OK(pen_device_open(&params, &dev, &err));
    pen_device_close(&dev);
}

// --- one context ------------------------------------------------------------

static int is_active(void)
{
    unsigned flags;
    int active = -1;
    CU(cuDevicePrimaryCtxGetState(cu.device, &flags, &active));
    return active;
}

static struct pen_device *open_one(struct stk_ledger *ledger)
{
    const struct pen_device_params params = {
        .selector = pen_test_device(),
        .emulator = pen_test_emulator(),
    };
    struct pen_device *dev = NULL;
    FIXTURE_OK(stk_device_open(&params, ledger, &dev, &err));
    return dev;
}

// A device that works: its memory can be filled.
static void use(struct pen_device *dev)
{
    uint64_t memory;
    FIXTURE_OK(stk_device_alloc(dev, 4096, "test", PEN_HERE, &memory, &err));
    stk_device_free(dev, memory, 4096);
}

PEN_TEST(the_context_lives_until_the_last_lets_go_in_every_order)
{
    static const int orders[6][3] = { { 0, 1, 2 }, { 0, 2, 1 }, { 1, 0, 2 },
                                      { 1, 2, 0 }, { 2, 0, 1 }, { 2, 1, 0 } };
    raw_open_only();
    CU(cuInit(0));
    for (int made = 0; made < 6; made++) {
        for (int freed = 0; freed < 6; freed++) {
            struct stk_ledger *ledger = stk_ledger_create(true);
            struct pen_device *dev[2] = { NULL, NULL };
            CUcontext by_hand = NULL;
            assert_int_equal(is_active(), 0);
            for (int i = 0; i < 3; i++) {
                const int who = orders[made][i];
                if (who < 2)
                    dev[who] = open_one(ledger);
                else
                    CU(cuDevicePrimaryCtxRetain(&by_hand, cu.device));
            }
            assert_ptr_equal(dev[0]->context, by_hand);
            assert_ptr_equal(dev[1]->context, by_hand);
            assert_int_equal(fixture_live(ledger, STK_RES_CONTEXT), 2);
            for (int i = 0; i < 3; i++) {
                for (int k = 0; k < 2; k++) {
                    if (dev[k])
                        use(dev[k]);
                }
                assert_int_equal(is_active(), 1);
                const int who = orders[freed][i];
                if (who < 2)
                    pen_device_close(&dev[who]);
                else
                    CU(cuDevicePrimaryCtxRelease(cu.device));
            }
            assert_int_equal(is_active(), 0);
            fixture_check_empty(ledger);
            stk_ledger_destroy(&ledger);
        }
    }
}

static void keep_text(void *cookie, enum pen_log_level level, const char *topic,
                      const char *text)
{
    char *out = cookie;
    if (level == PEN_LOG_DEBUG && strcmp(topic, "pen.gpu") == 0 &&
        strstr(text, "primary context"))
        snprintf(out, 256, "%s", text);
}

PEN_TEST(a_context_that_is_there_already_keeps_its_flags)
{
    raw_open_only();
    CU(cuInit(0));
    char text[256] = "";
    const struct pen_log log = { keep_text, text, PEN_LOG_DEBUG };
    const struct pen_device_params params = {
        .selector = pen_test_device(),
        .emulator = pen_test_emulator(),
        .log = &log,
    };
    struct pen_device *dev = NULL;
    FIXTURE_OK(stk_device_open(&params, NULL, &dev, &err));
    assert_string_equal(text, "");  // nobody had one
    pen_device_close(&dev);

    CUcontext ctx;
    unsigned before = 0, after = 1;
    int active;
    CU(cuDevicePrimaryCtxRetain(&ctx, cu.device));
    CU(cuDevicePrimaryCtxGetState(cu.device, &before, &active));
    FIXTURE_OK(stk_device_open(&params, NULL, &dev, &err));
    CU(cuDevicePrimaryCtxGetState(cu.device, &after, &active));
    assert_int_equal(before, after);
    char flags[32];
    snprintf(flags, sizeof(flags), "flags 0x%x", before);
    assert_non_null(strstr(text, flags));
    pen_device_close(&dev);
    CU(cuDevicePrimaryCtxRelease(cu.device));
}

// --- forks ------------------------------------------------------------------

enum { BYTES = 4096 };

// Everything that a process may have when it forks.
struct world {
    struct fixture f;
    struct stk_stream *stream;
    struct gate gate;
    struct stk_point point;
    struct called called;
    struct stk_region *region;
    struct stk_hoard hoard;
    uint64_t memory;
    void *pinned;
};

#define COMPLAIN_UNLESS(condition)                                             \
    do {                                                                       \
        if (!(condition)) {                                                    \
            snprintf(complaint, size, "%s: %s", #condition, err.text);         \
            return;                                                            \
        }                                                                      \
    } while (0)

// One clear error, which is always the same.
#define REFUSED(call)                                                          \
    do {                                                                       \
        err = (struct pen_error){ 0 };                                         \
        COMPLAIN_UNLESS((call) == PEN_E_STATE);                                \
        COMPLAIN_UNLESS(err.status == PEN_E_STATE);                            \
        COMPLAIN_UNLESS(strstr(err.text, "was forked after the driver was "    \
                                         "opened"));                           \
    } while (0)

static void use_in_child(void *cookie, char *complaint, size_t size)
{
    struct world *w = cookie;
    struct pen_device *dev = w->f.dev, *made = NULL;
    struct pen_error err = { 0 };
    struct pen_device_info info;
    size_t count;
    uint64_t memory = 0, other = 0;
    void *pinned = NULL;
    int fd = -1;
    struct stk_region *region = NULL;
    struct stk_import *import = NULL;
    struct stk_stream *stream = NULL;
    struct stk_kernels *kernels = NULL;
    struct pen_kernel_image image = fixture_image;
    const struct pen_device_params params = {
        .selector = pen_test_device(),
        .emulator = pen_test_emulator(),
    };
    static _Alignas(4096) char own[BYTES];

    STK_SCOPE scope = { 0 };
    REFUSED(stk_scope_enter(&scope, dev, &err));
    REFUSED(pen_device_open(&params, &made, &err));
    REFUSED(pen_device_list(&params, &info, 1, &count, &err));
    REFUSED(pen_device_get_info(dev, &info, &err));
    REFUSED(stk_device_alloc(dev, BYTES, "x", PEN_HERE, &memory, &err));
    REFUSED(stk_pinned_alloc(dev, BYTES, "x", PEN_HERE, &pinned, &err));
    REFUSED(stk_region_grow(w->region, 3 << 20, "x", PEN_HERE, &err));
    REFUSED(stk_host_register(dev, own, BYTES, "x", PEN_HERE, &err));
    REFUSED(
        stk_device_import(dev, 0, BYTES, "x", PEN_HERE, &import, &other, &err));
    REFUSED(stk_stream_create(dev, "x", &stream, &err));
    REFUSED(stk_kernels_load(dev, &image, &kernels, &err));
    REFUSED(stk_device_when_idle(dev, called_back, &w->called, &err));
    if (stk_region_possible(dev))
        REFUSED(
            stk_region_create(dev, BYTES, BYTES, "x", PEN_HERE, &region, &err));
    if (stk_device_can_export(dev))
        REFUSED(stk_device_export(dev, 0, STK_EXPORT_ALIGN, "x", PEN_HERE, &fd,
                                  &err));
    COMPLAIN_UNLESS(!stk_device_usage(dev, &memory, &other));

    // Points count as reached, so that nobody waits; nor is it called good.
    COMPLAIN_UNLESS(stk_point_reached(w->point));
    REFUSED(stk_point_wait(w->point, STK_WAIT_NONE, &err));

    // Only the memory of this process is given back.
    stk_region_destroy(&w->region);
    stk_device_free(dev, w->memory, BYTES);
    stk_pinned_free(dev, w->pinned, BYTES);
    stk_stream_destroy(&w->stream);
    stk_device_hoard_leave(dev, &w->hoard);
    pen_device_close(&w->f.dev);
}

static uint64_t trim_nothing(struct stk_hoard *hoard)
{
    (void)hoard;
    return 0;
}

static void describe_nothing(struct stk_hoard *hoard, struct stk_text *text)
{
    (void)hoard;
    stk_text_add(text, "nothing");
}

static void fork_in_the_middle(struct fixture *f)
{
    struct world w = { .f = *f };
    w.hoard.trim = trim_nothing;
    w.hoard.describe = describe_nothing;
    called_init(&w.called);
    w.stream = fixture_stream(&w.f, "stream");
    gate_create(&w.f, &w.gate);
    FIXTURE_OK(stk_region_create(w.f.dev, BYTES, 8 << 20, "region", PEN_HERE,
                                 &w.region, &err));
    FIXTURE_OK(
        stk_device_alloc(w.f.dev, BYTES, "memory", PEN_HERE, &w.memory, &err));
    FIXTURE_OK(
        stk_pinned_alloc(w.f.dev, BYTES, "pinned", PEN_HERE, &w.pinned, &err));
    stk_device_hoard_enter(w.f.dev, &w.hoard);
    gate_queue(&w.f, &w.gate, w.stream);
    w.point = fixture_record(&w.f, w.stream);
    // Both threads of the device wait when the process forks.
    FIXTURE_OK(
        stk_point_when(w.point, STK_WAIT_NONE, called_back, &w.called, &err));
    FIXTURE_OK(stk_device_when_idle(w.f.dev, called_back, &w.called, &err));

    const struct penemu *emu = fixture_emulator();
    const uint64_t before = emu ? emu->penemu_calls(PENEMU_ANY) : 0;
    in_child(use_in_child, &w);
    if (emu)  // the threads of this process may have made some
        assert_true(emu->penemu_calls(PENEMU_ANY) <= before + 8);

    // This process goes on as if nothing had been.
    assert_int_equal(w.called.count, 0);
    gate_open(&w.gate);
    called_wait(&w.called);
    called_wait(&w.called);
    use(w.f.dev);
    FIXTURE_OK(stk_region_grow(w.region, 3 << 20, "region", PEN_HERE, &err));
    stk_device_hoard_leave(w.f.dev, &w.hoard);
    stk_stream_destroy(&w.stream);
    gate_free(&w.f, &w.gate);
    stk_region_destroy(&w.region);
    stk_device_free(w.f.dev, w.memory, BYTES);
    stk_pinned_free(w.f.dev, w.pinned, BYTES);
}

PEN_TEST(a_child_is_refused_with_one_error_and_the_parent_goes_on)
{
    fixture_all_modes(fork_in_the_middle);
}

// A driver call in a child would be made on the child's copy of the emulator,
// whose counter tells.
static void count_in_child(void *cookie, char *complaint, size_t size)
{
    const struct penemu *emu = fixture_emulator();
    const uint64_t before = emu->penemu_calls(PENEMU_ANY);
    use_in_child(cookie, complaint, size);
    const uint64_t calls = emu->penemu_calls(PENEMU_ANY) - before;
    if (calls && !complaint[0])
        snprintf(complaint, size, "%llu calls", (unsigned long long)calls);
}

PEN_TEST(a_child_makes_no_driver_call)
{
    if (!fixture_emulator())
        PEN_SKIP("counts driver calls: emulated only");
    struct world w = { 0 };
    w.hoard.trim = trim_nothing;
    w.hoard.describe = describe_nothing;
    fixture_open(&w.f);
    called_init(&w.called);
    w.stream = fixture_stream(&w.f, "stream");
    FIXTURE_OK(stk_region_create(w.f.dev, BYTES, 8 << 20, "region", PEN_HERE,
                                 &w.region, &err));
    FIXTURE_OK(
        stk_device_alloc(w.f.dev, BYTES, "memory", PEN_HERE, &w.memory, &err));
    FIXTURE_OK(
        stk_pinned_alloc(w.f.dev, BYTES, "pinned", PEN_HERE, &w.pinned, &err));
    stk_device_hoard_enter(w.f.dev, &w.hoard);
    w.point = fixture_record(&w.f, w.stream);
    in_child(count_in_child, &w);

    stk_device_hoard_leave(w.f.dev, &w.hoard);
    stk_stream_destroy(&w.stream);
    stk_region_destroy(&w.region);
    stk_device_free(w.f.dev, w.memory, BYTES);
    stk_pinned_free(w.f.dev, w.pinned, BYTES);
    fixture_close(&w.f);
}

PEN_TEST_MAIN(
    PEN_CASE(a_child_of_a_process_without_a_driver_opens_one),
    PEN_CASE(without_a_handler_for_forks_no_driver_is_opened),
    PEN_CASE(the_context_lives_until_the_last_lets_go_in_every_order),
    PEN_CASE(a_context_that_is_there_already_keeps_its_flags),
    PEN_CASE(a_child_is_refused_with_one_error_and_the_parent_goes_on),
    PEN_CASE(a_child_makes_no_driver_call))
