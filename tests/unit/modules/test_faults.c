// A whole job on photos while memory runs out and while the driver fails: an
// error each time, nothing half-written, nothing left.

#include <dirent.h>
#include <stdio.h>
#include <sys/stat.h>
#include <unistd.h>

#include "alloc_fail.h"
#include "gpu_fixture.h"
#include "mod_world.h"
#include "pictures.h"

static const char *photos, *results;

static void make_photos(void)
{
    photos = pen_test_folder();
    for (int i = 0; i < 3; i++) {
        struct picture p = picture_new(PEN_FMT_RGB, 60 + 9 * i, 40 + 5 * i);
        picture_paint(&p, 1 + (uint64_t)i);
        uint8_t *tight = malloc((size_t)(p.view.width * p.view.height * 3));
        assert_non_null(tight);
        for (int y = 0; y < p.view.height; y++)
            memcpy(tight + (size_t)(y * p.view.width * 3), picture_at(&p, 0, y),
                   (size_t)p.view.width * 3);
        struct bytes b = jpeg_make(tight, p.view.width, p.view.height,
                                   &(struct jpeg_options){ .orientation = 6 });
        char name[16];
        snprintf(name, sizeof(name), "%d.jpg", i);
        pen_test_write_file(in(photos, name), b.data, b.length);
        bytes_free(&b);
        free(tight);
        picture_free(&p);
    }
}

static void clear_results(void)
{
    DIR *dir = opendir(results);
    assert_non_null(dir);
    for (struct dirent *e; (e = readdir(dir));) {
        if (e->d_name[0] != '.' || e->d_name[1] == 'p')
            assert_int_equal(unlinkat(dirfd(dir), e->d_name, 0), 0);
    }
    closedir(dir);
}

// Only whole files of the right name are there.
static void check_results(void)
{
    DIR *dir = opendir(results);
    assert_non_null(dir);
    for (struct dirent *e; (e = readdir(dir));) {
        if (strcmp(e->d_name, ".") == 0 || strcmp(e->d_name, "..") == 0)
            continue;
        size_t n = 0;
        if (strlen(e->d_name) != 6 || strcmp(e->d_name + 2, ".png") != 0)
            fail_msg("%s was left behind", e->d_name);
        uint8_t *data = pen_test_read_file(in(results, e->d_name), &n);
        assert_true(n > 12 && memcmp(data + n - 8, "IEND", 4) == 0);
        free(data);
    }
    closedir(dir);
}

static struct pen_registry *registry;
static struct pen_description *desc;

static void load_job(void)
{
    char text[2048];
    snprintf(text, sizeof(text),
             "{\"modules\":{"
             "\"r\":{\"type\":\"FileReaderModule\",\"props\":{"
             "\"strFullFileNameWithPattern\":\"%s/?.jpg\"}},"
             "\"d\":{\"type\":\"ImageDecoderCV\"},"
             "\"b\":{\"type\":\"GaussianBlur\",\"props\":{\"sigma\":1}},"
             "\"s\":{\"type\":\"ResizeNPPI\",\"props\":{\"width\":31,"
             "\"height\":22}},"
             "\"c\":{\"type\":\"CCNPPI\",\"props\":{\"imageType\":\"BGRA\"}},"
             "\"z\":{\"type\":\"ImageResizeCV\",\"props\":{\"width\":20,"
             "\"height\":21}},"
             "\"e\":{\"type\":\"ImageEncoderCV\",\"props\":{"
             "\"format\":\"png\"}},"
             "\"w\":{\"type\":\"FileWriterModule\",\"props\":{"
             "\"strFullFileNameWithPattern\":\"%s/??.png\"}}},"
             "\"connections\":[{\"from\":\"r\",\"to\":\"d\"},"
             "{\"from\":\"d\",\"to\":\"b\"},{\"from\":\"b\",\"to\":\"s\"},"
             "{\"from\":\"s\",\"to\":\"c\"},{\"from\":\"c\",\"to\":\"z\"},"
             "{\"from\":\"z\",\"to\":\"e\"},{\"from\":\"e\",\"to\":\"w\"}]}",
             photos, results);
    struct pen_issues *issues = pen_issues_create();
    FIXTURE_OK(pen_registry_create(&registry, &err));
    FIXTURE_OK(
        pen_description_parse(text, strlen(text), "job", &desc, issues, &err));
    pen_issues_destroy(&issues);
}

static enum pen_status job(struct pen_stats *stats, struct pen_error *err)
{
    struct pen_pipeline *p = NULL;
    struct pen_issues *issues = pen_issues_create();
    const struct pen_pipeline_params params = {
        .device = { .selector = pen_test_device(),
                    .emulator = pen_test_emulator() },
        .workers = 2,
        .leaks_fatal = true,
        .leak_sites = true,
    };
    *err = (struct pen_error){ 0 };
    *stats = (struct pen_stats){ 0 };
    if (!issues)
        return pen_error_set(err, PEN_E_NOMEM, 0, "", "issues");
    enum pen_status st =
        pen_pipeline_create(desc, registry, &params, &p, issues, err);
    if (st == PEN_OK)
        st = pen_pipeline_start(p, err);
    if (st == PEN_OK)
        st = pen_pipeline_wait(p, INT64_C(60000000000), err);
    if (p)
        pen_pipeline_stats(p, stats);
    pen_pipeline_destroy(&p);
    pen_issues_destroy(&issues);
    return st;
}

static void set_up(void)
{
    make_photos();
    results = pen_test_folder();
    load_job();
}

static void tear_down(void)
{
    pen_description_destroy(&desc);
    pen_registry_destroy(&registry);
}

PEN_TEST(a_job_whose_memory_runs_out_fails_and_leaves_nothing)
{
    (void)test_state;
    struct pen_stats stats;
    struct pen_error err;
    set_up();
    pen_alloc_fail_arm(0, false);
    assert_int_equal(job(&stats, &err), PEN_OK);
    const unsigned count = pen_alloc_fail_count();
    pen_alloc_fail_disarm();
    assert_int_equal(folder_entries(results), 3);

    // Threads make the order differ from run to run: what matters is that
    // none of the outcomes is wrong.
    const unsigned step = count / pen_test_seeds(150, count) + 1;
    unsigned failed = 0;
    for (unsigned nth = 1; nth <= count; nth += step) {
        clear_results();
        pen_alloc_fail_arm(nth, false);
        const enum pen_status st = job(&stats, &err);
        const bool hit = pen_alloc_fail_disarm();
        if (st != PEN_OK && st != PEN_E_NOMEM)
            fail_msg("allocation %u: %s: %s: %s", nth, pen_status_name(st),
                     err.where, err.text);
        if (st != PEN_OK)
            assert_int_equal(err.status, st);
        if (st == PEN_OK)
            assert_int_equal(folder_entries(results), 3);
        failed += st != PEN_OK;
        assert_true(st == PEN_OK || hit);
        assert_int_equal(stats.leaks, 0);
        check_results();
    }
    assert_true(failed > 10);
    tear_down();
}

PEN_TEST(a_job_whose_driver_fails_ends_with_an_error_and_whole_files)
{
    (void)test_state;
    const struct penemu *emu = fixture_emulator();
    if (!emu)
        PEN_SKIP("the driver fails on demand on the emulated device only");
    struct pen_stats stats;
    struct pen_error err;
    set_up();
    emu->penemu_reset();
    assert_int_equal(job(&stats, &err), PEN_OK);
    const uint64_t count = emu->penemu_calls(PENEMU_ANY);
    const uint64_t step = count / pen_test_seeds(150, 100000) + 1;
    unsigned failed = 0;
    for (uint64_t nth = 1; nth <= count; nth += step) {
        clear_results();
        emu->penemu_reset();
        emu->penemu_fault_arm(PENEMU_ANY, nth, 999, 0);
        const enum pen_status st = job(&stats, &err);
        if (st != PEN_OK) {
            assert_int_equal(err.status, st);
            failed++;
        } else {
            assert_int_equal(folder_entries(results), 3);
        }
        check_results();
    }
    assert_true(failed > 10);
    emu->penemu_reset();
    tear_down();
}

PEN_TEST_MAIN(
    PEN_CASE(a_job_whose_memory_runs_out_fails_and_leaves_nothing),
    PEN_CASE(a_job_whose_driver_fails_ends_with_an_error_and_whole_files))
