// Plans as text: every pipeline of plans/ against ref/plan_NAME.txt, and those
// of the examples against ref/plan_example_NAME.txt, with the issues in front.
// NAME@PROFILE is planned with that profile, probe_NAME with a look at the
// headers of the files. After a wanted change,
//
//     PENSTOCK_TEST_UPDATE=1 meson test -C build plans
//
// writes the references anew; the diff is the change to be looked at.

#include <dirent.h>
#include <stdio.h>
#include <sys/stat.h>
#include <unistd.h>

#include <penstock/penstock.h>

#include "pen_test.h"

enum { MIN_PLANS = 85, MIN_EXAMPLES = 8, MAX_TEXT = 1 << 16 };

static void add(char *text, const char *format, ...)
    __attribute__((format(printf, 2, 3)));
static void add(char *text, const char *format, ...)
{
    const size_t length = strlen(text);
    va_list args;
    va_start(args, format);
    const int n = vsnprintf(text + length, MAX_TEXT - length, format, args);
    va_end(args);
    assert_true(n >= 0 && (size_t)n < MAX_TEXT - length);
}

// What planning a file has to say, on a machine of a given size.
static void plan_text(const struct pen_registry *registry, const char *path,
                      const char *profile_name, bool probe, char *text)
{
    struct pen_error err = { 0 };
    struct pen_issues *issues = pen_issues_create();
    struct pen_description *desc = NULL;
    struct pen_plan *plan = NULL;
    struct pen_profile profile;
    if (pen_profile_find(profile_name, "../../profiles", &profile, &err) !=
        PEN_OK)
        fail_msg("%s: %s", profile_name, err.text);
    // The built-in ones are of no machine.
    if (pen_profile_builtin(profile_name)) {
        profile.host_memory = (uint64_t)16 << 30;
        profile.cuda_memory = (uint64_t)8 << 30;
    }
    const struct pen_plan_params params = { .profile = &profile,
                                            .probe = probe };

    text[0] = '\0';
    if (pen_description_load(path, &desc, issues, &err) != PEN_OK)
        fail_msg("%s: %s", path, err.text);
    const enum pen_status st =
        pen_plan_create(desc, registry, &params, &plan, issues, &err);
    const struct pen_issue *is;
    for (size_t i = 0; (is = pen_issues_get(issues, i)); i++) {
        add(text, "%s %s %d:%d %s: %s\n", pen_severity_name(is->severity),
            is->code, is->line, is->column, is->pointer, is->message);
        if (is->suggestion[0])
            add(text, "    %s\n", is->suggestion);
    }
    if (st != PEN_OK)
        add(text, "refused: %s\n", pen_status_name(st));
    char *printed = plan ? pen_plan_text(plan) : NULL;
    assert_true((st == PEN_OK) == (printed != NULL));
    if (printed)
        add(text, "%s", printed);
    pen_free(printed);
    pen_plan_destroy(&plan);
    pen_description_destroy(&desc);
    pen_issues_destroy(&issues);
}

static bool check(const char *name, const char *text)
{
    char path[1200];
    size_t bytes;
    snprintf(path, sizeof(path), "%s/tests/golden/ref/plan_%s.txt",
             pen_test_source(), name);
    if (getenv("PENSTOCK_TEST_UPDATE")) {
        pen_test_write_file(path, text, strlen(text));
        return true;
    }
    if (access(path, R_OK) != 0) {
        print_error("%s is missing\n", path);
        return false;
    }
    char *wanted = pen_test_read_file(path, &bytes);
    const bool same = bytes == strlen(text) && !memcmp(wanted, text, bytes);
    if (!same)
        print_error("--- %s\n%.*s\n+++ now\n%s\n", path, (int)bytes, wanted,
                    text);
    free(wanted);
    return same;
}

static int is_json(const struct dirent *entry)
{
    const char *dot = strrchr(entry->d_name, '.');
    return dot && !strcmp(dot, ".json");
}

// Plan all files of a folder; returns how many differ from what was looked at.
static unsigned check_folder(const char *folder, const char *prefix,
                             int at_least)
{
    static char text[MAX_TEXT];
    struct dirent **files;
    struct pen_registry *registry = NULL;
    struct pen_error err = { 0 };
    unsigned differ = 0;
    assert_int_equal(pen_registry_create(&registry, &err), PEN_OK);
    const int count = scandir(folder, &files, is_json, alphasort);
    assert_true(count >= at_least);
    for (int i = 0; i < count; i++) {
        char path[1400], name[256];
        snprintf(path, sizeof(path), "%s/%s", folder, files[i]->d_name);
        snprintf(name, sizeof(name), "%s%.*s", prefix,
                 (int)strcspn(files[i]->d_name, "."), files[i]->d_name);
        const char *at = strchr(name, '@');
        plan_text(registry, path, at ? at + 1 : "generic-cuda",
                  !strncmp(name, "probe_", 6), text);
        differ += !check(name, text);
        free(files[i]);
    }
    free(files);
    pen_registry_destroy(&registry);
    return differ;
}

static void enter_folder(void)
{
    char folder[1024];
    snprintf(folder, sizeof(folder), "%s/tests/golden", pen_test_source());
    assert_int_equal(chdir(folder), 0);
}

PEN_TEST(plans_are_those_that_were_looked_at)
{
    enter_folder();
    assert_int_equal(check_folder("plans", "", MIN_PLANS), 0);
}

// Where the examples find what they read; their plans do not look into it.
static void make_inputs(const char *folder)
{
    char path[1100];
    const char *const folders[] = { "out", "out/photos" };
    const char *const names[] = { "out/photos/0.jpg", "out/recording.raw" };
    for (unsigned i = 0; i < 2; i++) {
        snprintf(path, sizeof(path), "%s/%s", folder, folders[i]);
        assert_int_equal(mkdir(path, 0777), 0);
    }
    for (unsigned i = 0; i < 2; i++) {
        snprintf(path, sizeof(path), "%s/%s", folder, names[i]);
        pen_test_write_file(path, "none", 4);
    }
}

PEN_TEST(plans_of_the_examples_are_those_that_were_looked_at)
{
    char examples[1024];
    const char *folder = pen_test_folder();
    snprintf(examples, sizeof(examples), "%s/examples", pen_test_source());
    make_inputs(folder);
    assert_int_equal(chdir(folder), 0);
    assert_int_equal(check_folder(examples, "example_", MIN_EXAMPLES), 0);
}

// Nothing is left behind when a plan is renamed.
PEN_TEST(every_reference_has_its_plan)
{
    enter_folder();
    struct dirent **files;
    const int count = scandir("ref", &files, NULL, alphasort);
    unsigned left = 0;
    assert_true(count >= MIN_PLANS);
    for (int i = 0; i < count; i++) {
        static const char prefix[] = "plan_", example[] = "plan_example_";
        const char *name = files[i]->d_name;
        const int length = (int)strcspn(name, ".");
        char path[512] = ".";
        if (!strncmp(name, example, strlen(example)))
            snprintf(path, sizeof(path), "../../examples/%.*s.json",
                     length - (int)strlen(example), name + strlen(example));
        else if (!strncmp(name, prefix, strlen(prefix)))
            snprintf(path, sizeof(path), "plans/%.*s.json",
                     length - (int)strlen(prefix), name + strlen(prefix));
        if (access(path, R_OK) != 0) {
            print_error("ref/%s has no %s\n", name, path);
            left++;
        }
        free(files[i]);
    }
    free(files);
    assert_int_equal(left, 0);
}

PEN_TEST_MAIN(PEN_CASE(plans_are_those_that_were_looked_at),
              PEN_CASE(plans_of_the_examples_are_those_that_were_looked_at),
              PEN_CASE(every_reference_has_its_plan))
