// Explanations as text: pipelines, asked about some of their ways, against
// explain/NAME.txt. After a wanted change,
//
//     PENSTOCK_TEST_UPDATE=1 meson test -C build explain
//
// writes the references anew; the diff is the change to be looked at.

#include <stdio.h>
#include <unistd.h>

#include <penstock/penstock.h>

#include "pen_test.h"

static const struct {
    const char *name, *plan, *from_to, *profile;
} cases[] = {
    { "alpha", "plans/alpha_is_told", "source:encoder", NULL },
    { "before_upload", "plans/convert_before_upload@cpu", "source:blur",
      "cpu" },
    { "behind_upload", "plans/convert_after_upload", "source:blur", NULL },
    { "by_hand", "plans/manual_copies", "source:writer", NULL },
    { "detour", "plans/detour", "a:cpu", NULL },
    { "detour_by_hand", "plans/detour_by_hand", "source:blur", NULL },
    { "dmabuf_copy", "plans/dmabuf_shared", "source:share", NULL },
    { "dmabuf_exported", "plans/dmabuf_export", "blur:sink", NULL },
    { "dmabuf_imported", "plans/dmabuf_source@cpu", "source:blur", "cpu" },
    { "dmabuf_copied", "plans/dmabuf_source", "source:blur", NULL },
    { "dmabuf_mapped", "plans/dmabuf_shared", "share:sink", NULL },
    { "fan_out_of_sides", "plans/mixed_fan_out", "source:blur", NULL },
    { "forwarded", "plans/forwarding", "blur:writer", NULL },
    { "generic", "explain/generic", "source:encoder", NULL },
    { "main_job", "plans/main_job", "decoder:encoder", NULL },
    { "mixed_folder", "plans/mixed_folder", "decoder:swap", NULL },
    { "rgb_stays_rgb", "plans/rgb_stays_rgb", "blur:writer", NULL },
    { "shared_upload", "plans/one_upload_for_three", "source:a", NULL },
    { "staged", "plans/staged_quota", "large:a", NULL },
};

static char *explanation(const struct pen_registry *registry, unsigned i)
{
    struct pen_error err = { 0 };
    struct pen_issues *issues = pen_issues_create();
    struct pen_description *desc = NULL;
    struct pen_plan *plan = NULL;
    struct pen_profile profile = *pen_profile_builtin(
        cases[i].profile ? cases[i].profile : "generic-cuda");
    profile.host_memory = (uint64_t)16 << 30;
    profile.cuda_memory = (uint64_t)8 << 30;
    const struct pen_plan_params params = { .profile = &profile };
    char path[256];
    snprintf(path, sizeof(path), "%s.json", cases[i].plan);
    if (pen_description_load(path, &desc, issues, &err) != PEN_OK)
        fail_msg("%s: %s", path, err.text);
    if (pen_plan_create(desc, registry, &params, &plan, issues, &err) != PEN_OK)
        fail_msg("%s: %s", path, err.text);
    char *text = pen_plan_explain(plan, cases[i].from_to, &err);
    if (!text)
        fail_msg("%s: %s", path, err.text);
    pen_plan_destroy(&plan);
    pen_description_destroy(&desc);
    pen_issues_destroy(&issues);
    return text;
}

static bool check(const char *name, const char *text)
{
    char path[256];
    size_t bytes;
    snprintf(path, sizeof(path), "explain/%s.txt", name);
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

PEN_TEST(explanations_are_those_that_were_looked_at)
{
    char folder[1024];
    struct pen_registry *registry = NULL;
    struct pen_error err = { 0 };
    unsigned differ = 0;
    snprintf(folder, sizeof(folder), "%s/tests/golden", pen_test_source());
    assert_int_equal(chdir(folder), 0);
    assert_int_equal(pen_registry_create(&registry, &err), PEN_OK);
    for (unsigned i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        char *text = explanation(registry, i);
        differ += !check(cases[i].name, text);
        pen_free(text);
    }
    pen_registry_destroy(&registry);
    assert_int_equal(differ, 0);
}

PEN_TEST_MAIN(PEN_CASE(explanations_are_those_that_were_looked_at))
