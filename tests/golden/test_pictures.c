// The pictures of the guide are what the planner draws of examples and of some
// of plans/. After a wanted change,
//
//     PENSTOCK_TEST_UPDATE=1 meson test -C build pictures
//
// draws them anew; look at them then.

#include <stdio.h>
#include <unistd.h>

#include <penstock/penstock.h>

#include "pen_test.h"

static char *draw(const struct pen_registry *registry, const char *path)
{
    struct pen_error err = { 0 };
    struct pen_issues *issues = pen_issues_create();
    struct pen_description *desc = NULL;
    struct pen_plan *plan = NULL;
    if (pen_description_load(path, &desc, issues, &err) != PEN_OK ||
        pen_plan_create(desc, registry, NULL, &plan, issues, &err) != PEN_OK)
        fail_msg("%s: %s", path, err.text);
    char *picture = pen_plan_svg(plan);
    assert_non_null(picture);
    pen_plan_destroy(&plan);
    pen_description_destroy(&desc);
    pen_issues_destroy(&issues);
    return picture;
}

PEN_TEST(pictures_of_the_guide_are_those_that_were_looked_at)
{
    static const struct {
        const char *folder, *name;
    } pictures[] = {
        { "../../examples", "blur" },
        { "../../examples", "branches" },
        { "plans", "thirty_modules" },
    };
    char path[1024];
    struct pen_registry *registry = NULL;
    struct pen_error err = { 0 };
    unsigned differ = 0;
    // Paths of the plans are relative to this folder.
    snprintf(path, sizeof(path), "%s/tests/golden", pen_test_source());
    assert_int_equal(chdir(path), 0);
    assert_int_equal(pen_registry_create(&registry, &err), PEN_OK);
    for (size_t i = 0; i < sizeof(pictures) / sizeof(*pictures); i++) {
        snprintf(path, sizeof(path), "%s/%s.json", pictures[i].folder,
                 pictures[i].name);
        char *picture = draw(registry, path);
        snprintf(path, sizeof(path), "../../docs/images/plan_%s.svg",
                 pictures[i].name);
        if (getenv("PENSTOCK_TEST_UPDATE")) {
            pen_test_write_file(path, picture, strlen(picture));
        } else {
            char *wanted = pen_test_read_file(path, NULL);
            if (strcmp(wanted, picture) != 0) {
                print_error("%s is not what is drawn now\n", path);
                differ++;
            }
            free(wanted);
        }
        pen_free(picture);
    }
    pen_registry_destroy(&registry);
    assert_int_equal(differ, 0);
}

PEN_TEST_MAIN(PEN_CASE(pictures_of_the_guide_are_those_that_were_looked_at))
