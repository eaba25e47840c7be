// A pipeline file to a plan. In front of the text stand five characters:
//   w or b       classes: those of planner_world.h, or Penstock's own
//   0 to 7       what the machine can do with DMABUFs (pen_dmabuf_caps)
//   0 to 3       budgets: none, memory, transfers, both
//   c or g       profile: cpu or generic-cuda
//   0, 1, 2, 3   frames expected: unknown, 1, 1000, very many
// Any other byte means what its low bits say.

#include <stdlib.h>
#include <string.h>

#include "fuzz.h"

enum { HEADER = 5 };

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static const uint64_t frames[] = { 0, 1, 1000, UINT64_MAX };
    if (size < HEADER)
        return 0;
    const struct pen_profile profile =
        fuzz_profile(data[3] & 4 ? "generic-cuda" : "cpu", data[1]);
    struct pen_plan_params params = {
        .profile = &profile,
        .frames = frames[data[4] & 3],
    };
    fuzz_budget(&params, data[2]);
    // A block of its own, so that a read past its end is seen.
    const size_t length = size - HEADER;
    char *text = malloc(length ? length : 1);
    FUZZ_CHECK(text);
    memcpy(text, data + HEADER, length);
    pen_free(fuzz_plan(text, length,
                       data[0] & 1 ? fuzz_world() : fuzz_builtin(), &params,
                       1 + length));
    free(text);
    return 0;
}
