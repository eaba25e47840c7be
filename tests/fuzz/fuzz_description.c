// Any bytes as a pipeline file: read, and checked against Penstock's classes.

#include "fuzz.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct pen_error err = { 0 };
    struct pen_description *desc = NULL;
    struct pen_issues *issues = pen_issues_create();
    FUZZ_CHECK(issues);
    enum pen_status st = pen_description_parse(
        (const char *)data, size, "fuzz.json", &desc, issues, &err);
    FUZZ_CHECK((st == PEN_OK) == (desc != NULL));
    if (st == PEN_OK)
        st = pen_validate(desc, fuzz_builtin(), issues, &err);
    fuzz_check_issues(issues, st, &err);
    pen_description_destroy(&desc);
    pen_issues_destroy(&issues);
    return 0;
}
