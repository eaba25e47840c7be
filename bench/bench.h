#ifndef BENCH_H
#define BENCH_H

// What the benches share.

#include <stddef.h>

// Say why and exit with 1.
_Noreturn void bench_die(const char *what, const char *why);

// A function of a library, by its name; dies without.
void bench_find(void *library, const char *name, void *place);
// Die if a call of the driver failed.
void bench_check(int result, const char *call);

// Sort `count` measurements, ascending.
void bench_sort(double *values, size_t count);

// The processor's name, as /proc/cpuinfo has it.
void bench_processor(char *text, size_t size);

#endif  // BENCH_H
