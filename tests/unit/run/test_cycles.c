// Pipelines that come and go: nothing grows, neither in the process nor on the
// device, and contexts are shared with others and given back in every order.
//
// PENSTOCK_TEST_CYCLES=n: so many cycles under a retain that is held (200), and
// n / 200 with the context released each time; on a GPU it is 1,000 and 20.

#include "run_world.h"

#include <dirent.h>
#include <stdio.h>
#include <time.h>
#include <unistd.h>

#include "src/gpu/cuda_abi.h"

#include "raw_driver.h"

static size_t count_of(const char *folder)
{
    DIR *dir = opendir(folder);
    size_t n = 0;
    assert_non_null(dir);
    while (readdir(dir))
        n++;
    closedir(dir);
    return n;
}

// How many; of those that release the context when `released`.
static unsigned cycles_of(bool released)
{
    const char *text = getenv("PENSTOCK_TEST_CYCLES");
    const int n = text ? atoi(text) : 200;
    if (pen_test_on_gpu())
        return released ? 20 : 1000;
    if (released)
        return n / 200 > 4 ? (unsigned)n / 200 : 4;
    return n > 40 ? (unsigned)n : 40;
}

// What must not grow.
struct usage {
    size_t threads, files;
    size_t device;  // used bytes; 0: not asked
};

static struct usage usage_now(bool device)
{
    // A thread that was joined is still listed for a moment.
    nanosleep(&(struct timespec){ .tv_nsec = 50000000 }, NULL);
    struct usage u = {
        .threads = count_of("/proc/self/task"),
        .files = count_of("/proc/self/fd"),
    };
    if (device) {
        size_t left = 0, all = 0;
        CU(cuMemGetInfo(&left, &all));
        u.device = all - left;
    }
    return u;
}

// What the last descriptors are of.
static void print_files(void)
{
    for (int fd = 1023, told = 0; fd >= 0 && told < 8; fd--) {
        char path[64], target[256];
        snprintf(path, sizeof(path), "/proc/self/fd/%d", fd);
        const ssize_t length = readlink(path, target, sizeof(target) - 1);
        if (length < 0)
            continue;
        target[length] = '\0';
        print_message("# %d: %s\n", fd, target);
        told++;
    }
}

static void assert_not_grown(const struct usage *before, bool device)
{
    enum { SLACK = 2 << 20 };  // of what the driver keeps for itself
    struct usage now = usage_now(device);
    for (unsigned i = 0; now.threads > before->threads && i < 40; i++)
        now = usage_now(device);
    assert_int_equal(now.threads, before->threads);
    if (now.files != before->files)
        print_files();
    assert_int_equal(now.files, before->files);
    if (now.device > before->device + SLACK)
        fail_msg("the device's memory grew from %zu to %zu bytes",
                 before->device, now.device);
}

static bool context_is_active(void)
{
    unsigned flags = 0;
    int active = 0;
    CU(cuDevicePrimaryCtxGetState(cu.device, &flags, &active));
    return active;
}

static void assert_ledger_empty(const struct run *r)
{
    struct pen_snapshot *now = NULL;
    const struct pen_ledger_entry *entries;
    RUN_OK(pen_pipeline_snapshot(r->p, &now, &err));
    assert_int_equal(pen_snapshot_entries(now, &entries), 0);
    pen_snapshot_destroy(&now);
}

#define SMALL(FRAMES)                                                          \
    PIPE(MODULE_P("source", "TSource", "\"frames\": " FRAMES) "," MODULE(      \
             "a", "TDevice") "," MODULE("sink", "TSink"),                      \
         LINK("source", "a") "," LINK("a", "sink"))

// Every other one is stopped while frames are on their way.
static void cycle(bool stop)
{
    struct run r;
    run_init(&r);
    if (stop) {
        run_create(&r, SMALL("0"));
        RUN_OK(pen_pipeline_start(r.p, &err));
        wait_until(&world.sink[0].count, 1);
        RUN_OK(pen_pipeline_stop(r.p, -1, &err));
    } else {
        run_all(&r, SMALL("3"));
        assert_all_arrived(0, 3);
    }
    assert_ledger_empty(&r);
    run_finish(&r);
}

PEN_TEST(cycles_under_a_retain_that_is_held_leave_nothing_behind)
{
    const unsigned cycles = cycles_of(false);
    struct usage before = { 0 };
    raw_open();
    for (unsigned i = 0; i < cycles; i++) {
        cycle(i % 2);
        assert_true(context_is_active());
        if (i == 19)
            before = usage_now(true);
    }
    assert_not_grown(&before, true);
    raw_close();
    assert_false(context_is_active());
}

PEN_TEST(cycles_that_release_the_context_each_time_leave_nothing_behind)
{
    const unsigned cycles = cycles_of(true);
    struct usage before = { 0 };
    raw_open_only();
    CU(cuInit(0));
    for (unsigned i = 0; i < cycles; i++) {
        cycle(i % 2);
        assert_false(context_is_active());
        if (i == 2)
            before = usage_now(false);
    }
    assert_not_grown(&before, false);
}

// --- one context for several ------------------------------------------------

struct holders {
    struct run run[2];
    CUcontext by_hand;
};

// Holders 0 and 1 are pipelines, 2 is a retain by hand.
static void take(struct holders *h, unsigned who)
{
    if (who == 2) {
        CU(cuDevicePrimaryCtxRetain(&h->by_hand, cu.device));
        return;
    }
    struct run *r = &h->run[who];
    run_create(r, SMALL("0"));
    RUN_OK(pen_pipeline_start(r->p, &err));
}

static void let_go(struct holders *h, unsigned who)
{
    if (who == 2) {
        CU(cuDevicePrimaryCtxRelease(cu.device));
        return;
    }
    RUN_OK(pen_pipeline_stop(h->run[who].p, -1, &err));
    assert_ledger_empty(&h->run[who]);
    pen_pipeline_destroy(&h->run[who].p);
}

// The two pipelines share what the sinks note, so that nothing of it is looked
// at; each has a registry and a description of its own.
static void in_order(const unsigned taken[3], const unsigned released[3])
{
    struct holders h;
    run_init(&h.run[0]);
    run_init(&h.run[1]);
    assert_false(context_is_active());
    for (unsigned i = 0; i < 3; i++) {
        take(&h, taken[i]);
        assert_true(context_is_active());
    }
    for (unsigned i = 0; i < 3; i++) {
        assert_true(context_is_active());
        let_go(&h, released[i]);
    }
    assert_false(context_is_active());
    run_finish(&h.run[1]);
    run_finish(&h.run[0]);
}

PEN_TEST(two_pipelines_and_a_retain_by_hand_share_one_context_in_every_order)
{
    static const unsigned orders[6][3] = {
        { 0, 1, 2 }, { 0, 2, 1 }, { 1, 0, 2 },
        { 1, 2, 0 }, { 2, 0, 1 }, { 2, 1, 0 },
    };
    raw_open_only();
    CU(cuInit(0));
    for (unsigned i = 0; i < 6; i++) {
        in_order(orders[0], orders[i]);
        in_order(orders[5], orders[i]);
    }
}

// Each of the others goes on while one is taken down.
PEN_TEST(a_pipeline_that_ends_does_not_disturb_the_others)
{
    struct holders h;
    raw_open();
    run_init(&h.run[0]);
    run_init(&h.run[1]);
    take(&h, 0);
    take(&h, 1);
    wait_until(&world.sink[0].count, 2);
    let_go(&h, 0);
    const uint32_t seen = atomic_load(&world.sink[0].count);
    wait_until(&world.sink[0].count, seen + 10);
    let_go(&h, 1);
    run_finish(&h.run[1]);
    run_finish(&h.run[0]);
    raw_close();
}

PEN_TEST_MAIN(
    PEN_CASE(cycles_under_a_retain_that_is_held_leave_nothing_behind),
    PEN_CASE(cycles_that_release_the_context_each_time_leave_nothing_behind),
    PEN_CASE(
        two_pipelines_and_a_retain_by_hand_share_one_context_in_every_order),
    PEN_CASE(a_pipeline_that_ends_does_not_disturb_the_others))
