// Every driver call inside every function of the GPU layer is made to fail,
// in turn, once and for ever, with each class of result; so is every
// allocation and every start of a thread. Whatever happens, the error names
// the call, nothing stays behind, and whoever waits is called.

#include <pthread.h>
#include <stdio.h>

#include "alloc_fail.h"
#include "gpu_fixture.h"

#include "src/base/fd.h"
#include "src/gpu/driver.h"

enum {
    BYTES = 4096,
    SHARED = 2 * STK_EXPORT_ALIGN,  // a part of it is aligned
};

static const char *const functions[] = {
#define X(need, name, symbol, params) #name,
#include "src/gpu/driver_list.h"
#undef X
};
enum { FUNCTIONS = sizeof(functions) / sizeof(functions[0]) };

static const int results[] = {
    CUDA_ERROR_INVALID_VALUE,  // the call
    CUDA_ERROR_OUT_OF_MEMORY,  // memory
    CUDA_ERROR_LAUNCH_FAILED,  // the context
};
enum { RESULTS = sizeof(results) / sizeof(results[0]) };

// --- what is swept ----------------------------------------------------------

// A device with things on it, and what the function under test makes.
struct state {
    struct fixture f;
    struct stk_stream *stream, *other;
    struct gate gate;
    struct stk_point point;  // of `other`, behind the gate
    uint64_t device;
    void *pinned;
    struct called called;
    _Atomic unsigned warnings;
    bool lost;  // noted before the device was closed

    struct stk_region *region;
    struct stk_import *import;
    uint64_t shared;  // device memory that can be exported
    int shared_fd;    // and was
    char *own;        // host memory that is registered

    struct pen_device *made_device;
    struct stk_stream *made_stream;
    struct stk_kernels *made_kernels;
    uint64_t made_memory;
    void *made_pinned;
    struct stk_region *made_region;
    struct stk_import *made_import;
    int made_fd;
    bool registered;
};

static void count_warning(void *cookie, enum pen_log_level level,
                          const char *topic, const char *text)
{
    struct state *s = cookie;
    (void)topic;
    assert_true(text[0]);
    s->warnings += level <= PEN_LOG_WARN;
}

static struct pen_log state_log(struct state *s)
{
    return (struct pen_log){ count_warning, s, PEN_LOG_DEBUG };
}

typedef enum pen_status run_fn(struct state *s, struct pen_error *err);

static enum pen_status run_open(struct state *s, struct pen_error *err)
{
    const struct pen_device_params params = {
        .selector = "emulated",
        .emulator = pen_test_emulator(),
        .log = s->f.dev->log,
    };
    return stk_device_open(&params, s->f.ledger, &s->made_device, err);
}

static enum pen_status run_list(struct state *s, struct pen_error *err)
{
    (void)s;
    const struct pen_device_params params = {
        .selector = "emulated",
        .emulator = pen_test_emulator(),
    };
    struct pen_device_info info;
    size_t count;
    return pen_device_list(&params, &info, 1, &count, err);
}

static enum pen_status run_info(struct state *s, struct pen_error *err)
{
    struct pen_device_info info;
    return pen_device_get_info(s->f.dev, &info, err);
}

static enum pen_status run_stream(struct state *s, struct pen_error *err)
{
    return stk_stream_create(s->f.dev, "made", &s->made_stream, err);
}

static enum pen_status run_kernels(struct state *s, struct pen_error *err)
{
    static struct pen_kernel_image image;
    image = fixture_image;
    gate_open(&s->gate);  // unloading a half-loaded image waits for the device
    return stk_kernels_load(s->f.dev, &image, &s->made_kernels, err);
}

static enum pen_status run_alloc(struct state *s, struct pen_error *err)
{
    gate_open(&s->gate);  // where memory is short all work is waited for
    return stk_device_alloc(s->f.dev, BYTES, "made", PEN_HERE, &s->made_memory,
                            err);
}

static enum pen_status run_pinned(struct state *s, struct pen_error *err)
{
    gate_open(&s->gate);
    return stk_pinned_alloc(s->f.dev, BYTES, "made", PEN_HERE, &s->made_pinned,
                            err);
}

static enum pen_status run_region(struct state *s, struct pen_error *err)
{
    gate_open(&s->gate);
    return stk_region_create(s->f.dev, BYTES, 8 << 20, "made", PEN_HERE,
                             &s->made_region, err);
}

static enum pen_status run_grow(struct state *s, struct pen_error *err)
{
    gate_open(&s->gate);
    const enum pen_status status =
        stk_region_grow(s->region, 3 << 20, "made", PEN_HERE, err);
    assert_int_equal(stk_region_bytes(s->region),
                     status == PEN_OK ? 3 << 20 : BYTES);
    return status;
}

static enum pen_status run_register(struct state *s, struct pen_error *err)
{
    const enum pen_status status =
        stk_host_register(s->f.dev, s->own, BYTES, "made", PEN_HERE, err);
    s->registered = status == PEN_OK;
    return status;
}

static uint64_t aligned(uint64_t address)
{
    return (address + STK_EXPORT_ALIGN - 1) / STK_EXPORT_ALIGN *
           STK_EXPORT_ALIGN;
}

static enum pen_status run_export(struct state *s, struct pen_error *err)
{
    return stk_device_export(s->f.dev, aligned(s->shared), STK_EXPORT_ALIGN,
                             "made", PEN_HERE, &s->made_fd, err);
}

static enum pen_status run_import(struct state *s, struct pen_error *err)
{
    uint64_t address;
    gate_open(&s->gate);
    return stk_device_import(s->f.dev, s->shared_fd, STK_EXPORT_ALIGN, "made",
                             PEN_HERE, &s->made_import, &address, err);
}

static enum pen_status run_record(struct state *s, struct pen_error *err)
{
    struct stk_point point;
    STK_SCOPE scope = { 0 };
    PEN_TRY(stk_scope_enter(&scope, s->f.dev, err));
    return stk_stream_record(s->stream, &point, err);
}

static enum pen_status run_wait(struct state *s, struct pen_error *err)
{
    STK_SCOPE scope = { 0 };
    PEN_TRY(stk_scope_enter(&scope, s->f.dev, err));
    return stk_stream_wait(s->stream, s->point, STK_WAIT_STREAM_READ, err);
}

static enum pen_status run_copies(struct state *s, struct pen_error *err)
{
    const uint64_t pinned = (uintptr_t)s->pinned;
    STK_SCOPE scope = { 0 };
    PEN_TRY(stk_scope_enter(&scope, s->f.dev, err));
    PEN_TRY(
        stk_stream_copy(s->stream, STK_COPY_H2D, s->device, pinned, 64, err));
    PEN_TRY(stk_stream_copy(s->stream, STK_COPY_D2D, s->device + 64, s->device,
                            64, err));
    PEN_TRY(stk_stream_copy_2d(s->stream, STK_COPY_H2D, s->device, 64, pinned,
                               32, 16, 4, err));
    PEN_TRY(stk_stream_fill(s->stream, s->device, 7, 64, err));
    return stk_stream_copy(s->stream, STK_COPY_D2H, pinned, s->device, 64, err);
}

static enum pen_status run_launch(struct state *s, struct pen_error *err)
{
    const struct {
        uint64_t dst;
        uint32_t value, count;
    } args = { s->device, 1, 64 };
    const struct pen_grid grid = { 1, 1, 1, 64, 1 };
    STK_SCOPE scope = { 0 };
    PEN_TRY(stk_scope_enter(&scope, s->f.dev, err));
    return stk_stream_launch(s->stream, s->f.kernels, FIXTURE_FILL, &grid,
                             &args, sizeof(args), err);
}

// Blocks until the point is reached, which the open gate allows.
static enum pen_status run_point_wait(struct state *s, struct pen_error *err)
{
    gate_open(&s->gate);
    return stk_point_wait(s->point, STK_WAIT_HOST_READ, err);
}

// Of what happens on another thread only the loss of the device is told.
static enum pen_status told(struct state *s, struct pen_error *err)
{
    called_wait(&s->called);
    assert_int_equal(s->called.count, 1);
    if (!stk_device_lost(s->f.dev))
        return PEN_OK;
    *err = s->f.dev->cause;
    err->status = PEN_E_LOST;
    return PEN_E_LOST;
}

static enum pen_status run_point_when(struct state *s, struct pen_error *err)
{
    gate_open(&s->gate);
    PEN_TRY(
        stk_point_when(s->point, STK_WAIT_PARK, called_back, &s->called, err));
    return told(s, err);
}

static enum pen_status run_when_idle(struct state *s, struct pen_error *err)
{
    gate_open(&s->gate);
    PEN_TRY(stk_device_when_idle(s->f.dev, called_back, &s->called, err));
    return told(s, err);
}

// What is shared, and what grows. Registered is what nobody else registers.
static void release_shared(struct state *s)
{
    stk_region_destroy(&s->region);
    stk_device_unimport(&s->import);
    stk_fd_close(s->f.ledger, &s->shared_fd);
    stk_device_free(s->f.dev, s->shared, SHARED);
    if (s->own)
        stk_host_unregister(s->f.dev, s->own + BYTES);
    s->shared = 0;
}

// Nothing to be told: releasing has no result.
static enum pen_status run_release(struct state *s, struct pen_error *err)
{
    (void)err;
    gate_open(&s->gate);
    stk_stream_destroy(&s->stream);
    stk_stream_destroy(&s->other);
    release_shared(s);
    stk_device_free(s->f.dev, s->device, BYTES);
    stk_pinned_free(s->f.dev, s->pinned, BYTES);
    s->device = 0;
    s->pinned = NULL;
    gate_free(&s->f, &s->gate);
    s->lost = stk_device_lost(s->f.dev);
    pen_device_close(&s->f.dev);
    fixture_check_empty(s->f.ledger);
    return PEN_OK;
}

static enum pen_status run_release_while_somebody_waits(struct state *s,
                                                        struct pen_error *err)
{
    if (stk_point_when(s->point, STK_WAIT_PARK, called_back, &s->called, err) !=
        PEN_OK)
        called_back(&s->called);
    if (stk_device_when_idle(s->f.dev, called_back, &s->called, err) != PEN_OK)
        called_back(&s->called);
    run_release(s, err);
    assert_int_equal(s->called.count, 2);
    return PEN_OK;
}

static const struct {
    const char *name;
    run_fn *run;
} subjects[] = {
    { "open", run_open },
    { "list", run_list },
    { "info", run_info },
    { "stream", run_stream },
    { "kernels", run_kernels },
    { "alloc", run_alloc },
    { "pinned", run_pinned },
    { "region", run_region },
    { "grow", run_grow },
    { "register", run_register },
    { "export", run_export },
    { "import", run_import },
    { "record", run_record },
    { "wait", run_wait },
    { "copies", run_copies },
    { "launch", run_launch },
    { "point_wait", run_point_wait },
    { "point_when", run_point_when },
    { "when_idle", run_when_idle },
    { "release", run_release },
    { "release_waited", run_release_while_somebody_waits },
};
enum { SUBJECTS = sizeof(subjects) / sizeof(subjects[0]) };

// --- the sweep --------------------------------------------------------------

static void state_create(struct state *s, struct pen_log *log)
{
    *s = (struct state){ .made_fd = -1, .shared_fd = -1 };
    *log = state_log(s);
    fixture_open(&s->f);
    s->f.dev->log = log;
    called_init(&s->called);
    s->stream = fixture_stream(&s->f, "stream");
    s->other = fixture_stream(&s->f, "other");
    gate_create(&s->f, &s->gate);
    FIXTURE_OK(stk_device_alloc(s->f.dev, BYTES, "device", PEN_HERE, &s->device,
                                &err));
    FIXTURE_OK(stk_pinned_alloc(s->f.dev, BYTES, "pinned", PEN_HERE, &s->pinned,
                                &err));
    FIXTURE_OK(stk_region_create(s->f.dev, BYTES, 8 << 20, "region", PEN_HERE,
                                 &s->region, &err));
    FIXTURE_OK(stk_device_alloc(s->f.dev, SHARED, "shared", PEN_HERE,
                                &s->shared, &err));
    s->own = aligned_alloc(4096, 2 * BYTES);
    assert_non_null(s->own);
    FIXTURE_OK(stk_host_register(s->f.dev, s->own + BYTES, BYTES, "own",
                                 PEN_HERE, &err));
    if (stk_device_can_export(s->f.dev))
        FIXTURE_OK(stk_device_export(s->f.dev, aligned(s->shared),
                                     STK_EXPORT_ALIGN, "shared", PEN_HERE,
                                     &s->shared_fd, &err));
    uint64_t address;
    if (stk_device_can_import(s->f.dev))
        FIXTURE_OK(stk_device_import(s->f.dev, s->shared_fd, STK_EXPORT_ALIGN,
                                     "import", PEN_HERE, &s->import, &address,
                                     &err));
    gate_queue(&s->f, &s->gate, s->other);
    s->point = fixture_record(&s->f, s->other);
}

static void state_destroy(struct state *s)
{
    if (s->gate.flag)
        gate_open(&s->gate);
    stk_stream_destroy(&s->stream);
    stk_stream_destroy(&s->other);
    stk_stream_destroy(&s->made_stream);
    if (s->f.dev) {
        stk_device_free(s->f.dev, s->device, BYTES);
        stk_device_free(s->f.dev, s->made_memory, BYTES);
        stk_pinned_free(s->f.dev, s->pinned, BYTES);
        stk_pinned_free(s->f.dev, s->made_pinned, BYTES);
        stk_region_destroy(&s->made_region);
        stk_device_unimport(&s->made_import);
        stk_fd_close(s->f.ledger, &s->made_fd);
        if (s->registered)
            stk_host_unregister(s->f.dev, s->own);
        release_shared(s);
        if (s->gate.flag)
            gate_free(&s->f, &s->gate);
    }
    pen_device_close(&s->made_device);
    fixture_close(&s->f);
    free(s->own);
}

static void totals(struct stk_ledger *ledger, uint64_t *out)
{
    for (int res = 1; res < STK_RES_COUNT; res++)
        // Threads are started by whoever waits first and stay.
        out[res] =
            res == STK_RES_THREAD ? 0 : fixture_live(ledger, (enum stk_res)res);
}

// One run with one fault; false if there was no such call.
static bool one(unsigned subject, const char *function, unsigned nth,
                int result, int for_ever)
{
    const struct penemu *emu = fixture_emulator();
    struct state s;
    struct pen_log log;
    struct pen_error err = { 0 };
    uint64_t before[STK_RES_COUNT] = { 0 }, after[STK_RES_COUNT] = { 0 };

    state_create(&s, &log);
    totals(s.f.ledger, before);
    assert_int_equal(emu->penemu_fault_arm(function, nth, result, for_ever), 0);
    const enum pen_status status = subjects[subject].run(&s, &err);
    const bool fired = emu->penemu_fault_disarm() > 0;

    char what[128];
    snprintf(what, sizeof(what), "%s, %s #%u = %d%s", subjects[subject].name,
             function ? function : "any", nth, result,
             for_ever ? " for ever" : "");
    if (!fired && status != PEN_OK)
        fail_msg("%s: without a fault %s", what, err.text);
    if (status != PEN_OK) {
        if (status > 0 || err.status != status || err.native != result)
            fail_msg("%s: status %d, in the error %d, native %d", what, status,
                     err.status, err.native);
        if (!strstr(err.text, function ? function : "cu"))
            fail_msg("%s: the call is not named in \"%s\"", what, err.text);
        totals(s.f.ledger, after);
        if (memcmp(before, after, sizeof(before)) != 0)
            fail_msg("%s: something was left behind", what);
        // A context that is damaged is taken out of use.
        if (result == CUDA_ERROR_LAUNCH_FAILED && status != PEN_E_LOST &&
            status != PEN_E_NODRIVER)
            fail_msg("%s: %s after a sticky result", what,
                     pen_status_name(status));
    } else if (fired && s.warnings == 0 && !s.lost) {
        // Only releasing may go on, and says so; or the device is given up.
        fail_msg("%s: the failure was swallowed", what);
    }
    state_destroy(&s);
    // The driver's own account; what it was made to refuse is not ours.
    struct penemu_leaks leaks;
    struct penemu_stats stats;
    emu->penemu_get_leaks(&leaks);
    emu->penemu_get_stats(&stats);
    if (leaks.device_blocks || leaks.host_blocks || leaks.streams ||
        leaks.events || leaks.modules || leaks.ranges || leaks.mappings ||
        leaks.registrations || leaks.imports)
        fail_msg(
            "%s: left in the driver: %llu blocks, %llu host blocks, %llu "
            "streams, %llu events, %llu modules, %llu ranges, %llu mappings, "
            "%llu registrations, %llu imports",
            what, (unsigned long long)leaks.device_blocks,
            (unsigned long long)leaks.host_blocks,
            (unsigned long long)leaks.streams, (unsigned long long)leaks.events,
            (unsigned long long)leaks.modules, (unsigned long long)leaks.ranges,
            (unsigned long long)leaks.mappings,
            (unsigned long long)leaks.registrations,
            (unsigned long long)leaks.imports);
    const bool refused =
        subjects[subject].run == run_release ||
        subjects[subject].run == run_release_while_somebody_waits;
    if (stats.contexts && !(fired && refused))
        fail_msg("%s: the context is still retained", what);
    emu->penemu_reset();
    emu->penemu_set_mode(PENEMU_LAZY, 0);
    return fired;
}

static void sweep(unsigned subject)
{
    const struct penemu *emu = fixture_emulator();
    if (!emu)
        PEN_SKIP("makes driver calls fail: emulated only");
    emu->penemu_reset();
    emu->penemu_set_mode(PENEMU_LAZY, 0);
    unsigned fired = 0;
    for (unsigned i = 0; i < FUNCTIONS; i++) {
        for (unsigned r = 0; r < RESULTS; r++) {
            for (int for_ever = 0; for_ever < 2; for_ever++) {
                // Of many equal calls some in the middle are like the others.
                for (unsigned nth = 1; nth < 500; nth += nth < 10 ? 1 : 17) {
                    if (!one(subject, functions[i], nth, results[r], for_ever))
                        break;
                    fired++;
                }
            }
        }
    }
    // Everything fails from some call on: nothing can be put right again.
    for (unsigned r = 0; r < RESULTS; r++) {
        for (unsigned nth = 1; nth < 500; nth += nth < 10 ? 1 : 7) {
            if (!one(subject, PENEMU_ANY, nth, results[r], 1))
                break;
            fired++;
        }
    }
    assert_true(fired > 10);
}

#define SWEEP(number, name)                                                    \
    PEN_TEST(name)                                                             \
    {                                                                          \
        sweep(number);                                                         \
    }

// clang-format off
SWEEP(0,  opening_unwinds_from_every_failure)
SWEEP(1,  listing_unwinds_from_every_failure)
SWEEP(2,  information_tells_every_failure)
SWEEP(3,  stream_create_unwinds_from_every_failure)
SWEEP(4,  kernels_load_unwinds_from_every_failure)
SWEEP(5,  device_alloc_unwinds_from_every_failure)
SWEEP(6,  pinned_alloc_unwinds_from_every_failure)
SWEEP(7,  region_create_unwinds_from_every_failure)
SWEEP(8,  region_grow_leaves_it_as_it_was_after_every_failure)
SWEEP(9,  register_tells_every_failure)
SWEEP(10, export_tells_every_failure)
SWEEP(11, import_unwinds_from_every_failure)
SWEEP(12, record_tells_every_failure)
SWEEP(13, stream_wait_tells_every_failure)
SWEEP(14, copies_tell_every_failure)
SWEEP(15, launch_tells_every_failure)
SWEEP(16, point_wait_ends_with_every_failure)
SWEEP(17, point_when_calls_back_after_every_failure)
SWEEP(18, when_idle_calls_back_after_every_failure)
SWEEP(19, releasing_strikes_the_ledger_after_every_failure)
SWEEP(20, releasing_calls_back_after_every_failure)
// clang-format on

// --- host memory and threads ------------------------------------------------

PEN_TEST(every_failed_allocation_is_told_and_unwound)
{
    for (unsigned i = 0; i < SUBJECTS; i++) {
        if (subjects[i].run == run_release ||
            subjects[i].run == run_release_while_somebody_waits)
            continue;
        for (unsigned nth = 1;; nth++) {
            assert_true(nth < 100);
            struct state s;
            struct pen_log log;
            struct pen_error err = { 0 };
            uint64_t before[STK_RES_COUNT] = { 0 };
            uint64_t after[STK_RES_COUNT] = { 0 };
            // A driver allocates too when it is opened, and few can import.
            if (pen_test_on_gpu() &&
                (subjects[i].run == run_open || subjects[i].run == run_list ||
                 subjects[i].run == run_import))
                break;
            state_create(&s, &log);
            if (pen_test_on_gpu())
                gate_open(&s.gate);  // a GPU allocates when it is idle
            totals(s.f.ledger, before);
            pen_alloc_fail_arm_thread(nth, false);
            const enum pen_status status = subjects[i].run(&s, &err);
            const bool fired = pen_alloc_fail_disarm();
            if (status != PEN_OK) {
                assert_true(fired);
                assert_int_equal(status, PEN_E_NOMEM);
                assert_int_equal(err.status, PEN_E_NOMEM);
                assert_true(err.text[0]);
                totals(s.f.ledger, after);
                assert_memory_equal(before, after, sizeof(before));
            }
            state_destroy(&s);
            if (!fired)
                break;
        }
    }
}

// A device that a program opens has an account of its own.
PEN_TEST(a_device_without_memory_for_its_account_is_none)
{
    const struct pen_device_params params = {
        .selector = "emulated",
        .emulator = pen_test_emulator(),
    };
    struct pen_device *dev = NULL;
    enum pen_status status = PEN_E_NOMEM;
    if (pen_test_on_gpu())
        PEN_SKIP("looks at the emulated device");
    for (unsigned nth = 1; status != PEN_OK; nth++) {
        struct pen_error err = { 0 };
        assert_true(nth < 100);
        pen_alloc_fail_arm_thread(nth, false);
        status = pen_device_open(&params, &dev, &err);
        const bool fired = pen_alloc_fail_disarm();
        if (status == PEN_OK) {
            assert_true(nth > 2);  // the account's and the device's at least
            break;
        }
        assert_true(fired);
        assert_int_equal(status, PEN_E_NOMEM);
        assert_int_equal(err.status, PEN_E_NOMEM);
        assert_true(err.text[0]);
        assert_null(dev);
    }
    pen_device_close(&dev);
}

static _Atomic bool refuse_threads;
int __real_pthread_create(pthread_t *thread, const pthread_attr_t *attributes,
                          void *(*run)(void *arg), void *arg);
int __wrap_pthread_create(pthread_t *thread, const pthread_attr_t *attributes,
                          void *(*run)(void *arg), void *arg);
int __wrap_pthread_create(pthread_t *thread, const pthread_attr_t *attributes,
                          void *(*run)(void *arg), void *arg)
{
    return refuse_threads ? 11
                          : __real_pthread_create(thread, attributes, run, arg);
}

PEN_TEST(without_a_thread_nobody_is_called_and_the_caller_is_told)
{
    struct state s;
    struct pen_log log;
    struct pen_error err = { 0 };
    state_create(&s, &log);
    refuse_threads = true;
    assert_int_equal(
        stk_point_when(s.point, STK_WAIT_PARK, called_back, &s.called, &err),
        PEN_E_NOMEM);
    assert_int_equal(err.native, 11);
    assert_int_equal(
        stk_device_when_idle(s.f.dev, called_back, &s.called, &err),
        PEN_E_NOMEM);
    assert_int_equal(fixture_live(s.f.ledger, STK_RES_THREAD), 0);
    // Blocking does without a thread.
    gate_open(&s.gate);
    assert_int_equal(stk_point_wait(s.point, STK_WAIT_HOST_READ, &err), PEN_OK);
    assert_int_equal(s.called.count, 0);
    refuse_threads = false;

    // The next who asks gets it.
    assert_int_equal(
        stk_device_when_idle(s.f.dev, called_back, &s.called, &err), PEN_OK);
    called_wait(&s.called);
    assert_int_equal(s.called.count, 1);
    state_destroy(&s);
}

PEN_TEST_MAIN(
    PEN_CASE(opening_unwinds_from_every_failure),
    PEN_CASE(listing_unwinds_from_every_failure),
    PEN_CASE(information_tells_every_failure),
    PEN_CASE(stream_create_unwinds_from_every_failure),
    PEN_CASE(kernels_load_unwinds_from_every_failure),
    PEN_CASE(device_alloc_unwinds_from_every_failure),
    PEN_CASE(pinned_alloc_unwinds_from_every_failure),
    PEN_CASE(region_create_unwinds_from_every_failure),
    PEN_CASE(region_grow_leaves_it_as_it_was_after_every_failure),
    PEN_CASE(register_tells_every_failure),
    PEN_CASE(export_tells_every_failure),
    PEN_CASE(import_unwinds_from_every_failure),
    PEN_CASE(record_tells_every_failure),
    PEN_CASE(stream_wait_tells_every_failure),
    PEN_CASE(copies_tell_every_failure), PEN_CASE(launch_tells_every_failure),
    PEN_CASE(point_wait_ends_with_every_failure),
    PEN_CASE(point_when_calls_back_after_every_failure),
    PEN_CASE(when_idle_calls_back_after_every_failure),
    PEN_CASE(releasing_strikes_the_ledger_after_every_failure),
    PEN_CASE(releasing_calls_back_after_every_failure),
    PEN_CASE(every_failed_allocation_is_told_and_unwound),
    PEN_CASE(a_device_without_memory_for_its_account_is_none),
    PEN_CASE(without_a_thread_nobody_is_called_and_the_caller_is_told))
