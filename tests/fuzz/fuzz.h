#ifndef FUZZ_H
#define FUZZ_H

// What the fuzz targets share. A target is a file with one function that is
// given any bytes; fuzz_NAME runs it under libFuzzer, test_fuzz_NAME with the
// files of corpus/NAME.

#include <stddef.h>
#include <stdint.h>

#include <penstock/penstock.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

// What must hold for every input, in every build type.
#define FUZZ_CHECK(claim)                                                      \
    ((claim) ? (void)0 : fuzz_failed(#claim, __FILE__, __LINE__))
_Noreturn void fuzz_failed(const char *claim, const char *file, int line);

// Parse `text` and plan it. Checked are the issues, that a refusal has a
// reason, that the plan is whole, that it is the same when made again, all ways
// to print it, and completing it with sizes that `seed` makes up. Returns the
// plan as text, for pen_free(); NULL if it is refused.
char *fuzz_plan(const char *text, size_t length,
                const struct pen_registry *registry,
                const struct pen_plan_params *params, uint64_t seed);
// The same without looking at it.
char *fuzz_plan_text(const char *text, size_t length,
                     const struct pen_registry *registry,
                     const struct pen_plan_params *params);

// What is said of an input: texts that are there and UTF-8, in the order of
// the file; errors if and only if it failed.
void fuzz_check_issues(const struct pen_issues *issues, enum pen_status status,
                       const struct pen_error *err);

// Penstock's own classes, those of planner_world.h, and Penstock's with those
// of planner_world.h that are no bridges.
const struct pen_registry *fuzz_builtin(void);
const struct pen_registry *fuzz_world(void);
const struct pen_registry *fuzz_both(void);

// A profile for a machine of fixed size with these capabilities
// (pen_dmabuf_caps).
struct pen_profile fuzz_profile(const char *builtin, unsigned dmabuf);
// Budgets by number: none, tight ones of every memory type, no transfers.
void fuzz_budget(struct pen_plan_params *params, unsigned number);

#endif  // FUZZ_H
