// Measuring a machine: what is measured, what becomes of it, and that nothing
// stays behind whatever fails. Never how long something takes.

#include <dirent.h>
#include <stdio.h>
#include <unistd.h>

#include "alloc_fail.h"
#include "gpu_fixture.h"

#include "src/graph/profile.h"
#include "src/modules/calibrate.h"

static enum pen_status calibrate(const char *name, bool quick,
                                 struct pen_calibration **out,
                                 struct pen_error *err)
{
    struct pen_calibrate_params params = {
        .device.selector = pen_test_device(),
        .device.emulator = pen_test_emulator(),
        .name = name,
    };
    struct stk_ledger *ledger = stk_ledger_create(true);
    if (!ledger)
        return pen_error_set(err, PEN_E_NOMEM, 0, "test", "no memory");
    const enum pen_status st = stk_calibrate(&params, ledger, quick, out, err);
    fixture_check_empty(ledger);
    stk_ledger_destroy(&ledger);
    return st;
}

static struct pen_calibration *quick(void)
{
    struct pen_calibration *c = NULL;
    FIXTURE_OK(calibrate("desk", true, &c, &err));
    assert_non_null(c);
    return c;
}

PEN_TEST(a_line_is_found_through_points)
{
    // 2 us, and 25 bytes a nanosecond.
    const double x[] = { 4096, 65536, 1048576, 67108864 };
    double y[4], a, b;
    for (unsigned i = 0; i < 4; i++)
        y[i] = 2000 + x[i] / 25;
    stk_calibrate_fit(x, y, 4, &a, &b);
    assert_true(a > 1999.9 && a < 2000.1);
    assert_true(b > 0.0399999 && b < 0.0400001);

    // A relative error counts the same at both ends: five percent too much at
    // the largest does not hide what the smallest takes.
    y[3] *= 1.05;
    stk_calibrate_fit(x, y, 4, &a, &b);
    assert_true(a > 1900 && a < 2100);

    // Neither is negative.
    const double falling[] = { 4000, 3000, 2000, 1000 };
    stk_calibrate_fit(x, falling, 4, &a, &b);
    assert_true(a > 0 && b >= 0);
    const double steep[] = { 1, 1000, 30000, 3000000 };
    stk_calibrate_fit(x, steep, 4, &a, &b);
    assert_true(a >= 0 && b > 0);
    stk_calibrate_fit(x, y, 1, &a, &b);
    assert_true(a >= 0 && b >= 0);
}

static unsigned count_of(const struct pen_calibration *c, const char *prefix)
{
    unsigned count = 0;
    for (unsigned i = 0; i < c->count; i++)
        count += !strncmp(c->measures[i].what, prefix, strlen(prefix));
    return count;
}

PEN_TEST(everything_is_measured_and_has_a_name_of_its_own)
{
    struct pen_calibration *c = quick();
    const struct pen_profile *p = pen_calibration_profile(c);
    assert_string_equal(p->name, "desk");
    const uint32_t rates[] = { p->h2d_rate,         p->d2h_rate,
                               p->pageable_rate,    p->device_rate,
                               p->host_rate,        p->host_operations,
                               p->device_operations };
    for (unsigned i = 0; i < sizeof(rates) / sizeof(rates[0]); i++)
        assert_true(rates[i] > 0);
    assert_true(p->launch_ns && p->context_ns && p->load_ns);
    assert_true(p->host_memory && p->cuda_memory);
    assert_true(p->copy_engines > 0);
    assert_true(p->device_name[0] != '\0');
    assert_int_equal(p->emulated, !pen_test_on_gpu());
    assert_int_equal(p->cuda, !p->emulated);

    assert_int_equal(count_of(c, "host to device "), 4);
    assert_int_equal(count_of(c, "device to host "), 4);
    assert_int_equal(count_of(c, "pageable to device "), 1);
    assert_int_equal(count_of(c, "device to pageable "), 1);
    assert_int_equal(count_of(c, "launch "), 1);
    assert_int_equal(count_of(c, "load "), 1);
    assert_true(count_of(c, "CPU: ") > 3);
    assert_int_equal(count_of(c, "CPU: "), count_of(c, "kernel: "));
    for (unsigned i = 0; i < c->count; i++) {
        const struct stk_measure *m = &c->measures[i];
        assert_true(m->samples > 0);
        assert_true(m->low <= m->median && m->median <= m->high);
        for (unsigned k = 0; k < i; k++)
            assert_string_not_equal(m->what, c->measures[k].what);
    }
    char *text = pen_calibration_text(c);
    assert_non_null(strstr(text, "profile \"desk\""));
    assert_non_null(strstr(text, "host to device 4.00 KiB"));
    free(text);
    pen_calibration_destroy(&c);
    assert_null(c);
}

PEN_TEST(a_profile_without_a_name_is_called_after_the_device)
{
    struct pen_calibration *c = NULL;
    struct pen_error why = { 0 };
    FIXTURE_OK(calibrate(NULL, true, &c, &err));
    const char *name = pen_calibration_profile(c)->name;
    assert_true(name[0] != '\0');
    assert_int_equal(strspn(name, "abcdefghijklmnopqrstuvwxyz0123456789.-"),
                     strlen(name));
    pen_calibration_destroy(&c);
    assert_int_equal(calibrate("", true, &c, &why), PEN_E_ARG);
    assert_null(c);
}

// The file at `path` says what the calibration does.
static void check_file(const struct pen_calibration *c, const char *path)
{
    struct pen_profile read;
    FIXTURE_OK(pen_profile_load(path, &read, &err));
    json_t *want = stk_profile_json(pen_calibration_profile(c));
    json_t *got = stk_profile_json(&read);
    char *text = json_dumps(got, JSON_INDENT(1));
    if (!json_equal(want, got))
        fail_msg("%s", text);
    free(text);
    json_decref(want);
    json_decref(got);
}

static unsigned files_in(const char *folder)
{
    unsigned count = 0;
    DIR *dir = opendir(folder);
    assert_non_null(dir);
    for (struct dirent *e; (e = readdir(dir));)
        count += e->d_name[0] != '.' || strlen(e->d_name) > 2;
    closedir(dir);
    return count;
}

PEN_TEST(a_file_is_written_whole_and_only_where_none_is)
{
    struct pen_calibration *c = quick();
    struct pen_error why = { 0 };
    const char *folder = pen_test_folder();
    char path[300], link[300];
    snprintf(path, sizeof(path), "%s/desk.json", folder);
    snprintf(link, sizeof(link), "%s/link.json", folder);
    FIXTURE_OK(pen_calibration_save(c, path, false, &err));
    check_file(c, path);
    assert_int_equal(files_in(folder), 1);

    pen_test_write_file(path, "mine", 4);
    assert_int_equal(pen_calibration_save(c, path, false, &why), PEN_E_IO);
    size_t bytes;
    char *kept = pen_test_read_file(path, &bytes);
    assert_int_equal(bytes, 4);
    free(kept);
    FIXTURE_OK(pen_calibration_save(c, path, true, &err));
    check_file(c, path);

    assert_int_equal(symlink(path, link), 0);
    assert_int_equal(pen_calibration_save(c, link, true, &why), PEN_E_IO);
    assert_int_equal(pen_calibration_save(c, "/nonexistent/p.json", true, &why),
                     PEN_E_IO);
    assert_int_equal(files_in(folder), 2);
    pen_calibration_destroy(&c);
}

PEN_TEST(without_memory_no_file_is_written)
{
    struct pen_calibration *c = quick();
    char path[300];
    snprintf(path, sizeof(path), "%s/none.json", pen_test_folder());
    json_set_alloc_funcs(malloc, free);
    unsigned nth = 1;
    for (;; nth++) {
        struct pen_error err = { 0 };
        pen_alloc_fail_arm(nth, false);
        const enum pen_status st = pen_calibration_save(c, path, false, &err);
        const bool fired = pen_alloc_fail_disarm();
        if (!fired) {
            assert_int_equal(st, PEN_OK);
            break;
        }
        // What is not told of is not there, and what is there is whole.
        if (st == PEN_OK)
            check_file(c, path);
        else
            assert_int_equal(st, PEN_E_NOMEM);
        assert_int_equal(access(path, F_OK) == 0, st == PEN_OK);
        unlink(path);
    }
    assert_true(nth > 50);
    check_file(c, path);
    pen_calibration_destroy(&c);
}

// --- failures ---------------------------------------------------------------

// One measuring with the nth call failing; false when there are no n calls.
static bool fails_at(const struct penemu *emu, uint64_t nth, int code)
{
    struct pen_calibration *c = NULL;
    struct pen_error err = { 0 };
    emu->penemu_reset();
    assert_int_equal(emu->penemu_fault_arm(PENEMU_ANY, nth, code, 0), 0);
    const enum pen_status st = calibrate("desk", true, &c, &err);
    const bool fired = emu->penemu_fault_disarm() > 0;
    if (st < 0) {
        assert_null(c);
        assert_int_equal(st, err.status);
        if (!err.text[0] || !err.where[0])
            fail_msg("call %u: no words", (unsigned)nth);
    }
    pen_calibration_destroy(&c);
    struct penemu_leaks leaks;
    emu->penemu_get_leaks(&leaks);
    if (leaks.device_blocks + leaks.host_blocks + leaks.streams + leaks.events +
        leaks.modules)
        fail_msg("call %u: something is left on the device", (unsigned)nth);
    return fired;
}

static void sweep(int code)
{
    const struct penemu *emu = fixture_emulator();
    if (!emu)
        PEN_SKIP("a real driver does not fail on demand");
    const uint64_t step = pen_test_seeds(7, 1);
    uint64_t nth = 1;
    while (fails_at(emu, nth, code))
        nth += step;
    assert_true(nth > 100);
    emu->penemu_reset();
}

PEN_TEST(any_call_of_the_driver_may_fail)
{
    sweep(999);
}

PEN_TEST(the_device_may_be_lost_at_any_call)
{
    sweep(700);
}

PEN_TEST(any_allocation_may_fail)
{
    const unsigned step = pen_test_seeds(3, 1);
    for (unsigned nth = 1;; nth += step) {
        struct pen_calibration *c = NULL;
        struct pen_error err = { 0 };
        pen_alloc_fail_arm(nth, false);
        const enum pen_status st = calibrate("desk", true, &c, &err);
        const bool fired = pen_alloc_fail_disarm();
        assert_true(st == PEN_OK || st == PEN_E_NOMEM);
        assert_int_equal(c != NULL, st == PEN_OK);
        pen_calibration_destroy(&c);
        if (!fired)
            break;
    }
}

PEN_TEST_MAIN(PEN_CASE(a_line_is_found_through_points),
              PEN_CASE(everything_is_measured_and_has_a_name_of_its_own),
              PEN_CASE(a_profile_without_a_name_is_called_after_the_device),
              PEN_CASE(a_file_is_written_whole_and_only_where_none_is),
              PEN_CASE(without_memory_no_file_is_written),
              PEN_CASE(any_call_of_the_driver_may_fail),
              PEN_CASE(the_device_may_be_lost_at_any_call),
              PEN_CASE(any_allocation_may_fail))
