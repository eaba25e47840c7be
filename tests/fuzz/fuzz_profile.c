// Any bytes as a profile; what is taken is planned with.

#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "fuzz.h"

static const char pipeline[] =
    "{ \"modules\": { \"s\": { \"type\": \"TestSignalGenerator\", \"props\": { "
    "\"width\": 1920, \"height\": 1080 } }, \"blur\": { \"type\": "
    "\"GaussianBlur\" }, \"half\": { \"type\": \"ImageResizeCV\", \"props\": { "
    "\"width\": 960, \"height\": 540 } }, \"end\": { \"type\": \"StatSink\" }, "
    "\"shared\": { \"type\": \"MemTypeConversion\", \"props\": { "
    "\"outputMemType\": \"DMABUF\" } }, \"end2\": { \"type\": \"StatSink\" } "
    "}, \"connections\": [ { \"from\": \"s\", \"to\": \"blur\" }, { \"from\": "
    "\"blur\", \"to\": \"half\" }, { \"from\": \"half\", \"to\": \"end\" }, { "
    "\"from\": \"s\", \"to\": \"shared\" }, { \"from\": \"shared\", \"to\": "
    "\"end2\" } ] }";

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    const int fd = memfd_create("profile", MFD_CLOEXEC);
    char path[64];
    FUZZ_CHECK(fd >= 0);
    FUZZ_CHECK(write(fd, data, size) == (ssize_t)size);
    snprintf(path, sizeof(path), "/proc/self/fd/%d", fd);
    struct pen_profile profile;
    struct pen_error err = { 0 };
    const enum pen_status st = pen_profile_load(path, &profile, &err);
    close(fd);
    if (st != PEN_OK) {
        FUZZ_CHECK(err.status == st && err.text[0]);
        return 0;
    }
    FUZZ_CHECK(profile.name[0] && strlen(profile.name) < sizeof(profile.name));
    const struct pen_plan_params params = { .profile = &profile,
                                            .frames = 100 };
    pen_free(fuzz_plan(pipeline, sizeof(pipeline) - 1, fuzz_builtin(), &params,
                       size));
    return 0;
}
