#include "bench.h"

#include <dlfcn.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

void bench_die(const char *what, const char *why)
{
    fprintf(stderr, "%s: %s: %s\n", program_invocation_short_name, what, why);
    exit(1);
}

void bench_find(void *library, const char *name, void *place)
{
    void *found = dlsym(library, name);
    if (!found)
        bench_die("the driver has no", name);
    memcpy(place, &found, sizeof(found));
}

void bench_check(int result, const char *call)
{
    if (result) {
        char text[32];
        snprintf(text, sizeof(text), "CUDA error %d", result);
        bench_die(call, text);
    }
}

static int by_value(const void *a, const void *b)
{
    const double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

void bench_sort(double *values, size_t count)
{
    qsort(values, count, sizeof(*values), by_value);
}

void bench_processor(char *text, size_t size)
{
    snprintf(text, size, "unknown processor");
    char line[256];
    FILE *f = fopen("/proc/cpuinfo", "r");
    while (f && fgets(line, sizeof(line), f)) {
        const char *colon = strchr(line, ':');
        if (strncmp(line, "model name", 10) == 0 && colon) {
            snprintf(text, size, "%.*s", (int)strcspn(colon + 2, "\n\""),
                     colon + 2);
            break;
        }
    }
    if (f)
        fclose(f);
}
