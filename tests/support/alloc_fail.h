#ifndef PEN_ALLOC_FAIL_H
#define PEN_ALLOC_FAIL_H

// Makes host allocations fail on demand. The linker sends every malloc,
// calloc, realloc, aligned_alloc, posix_memalign, strdup, strndup, asprintf
// and vasprintf of the program and its static libraries through here
// (--wrap), which works under the sanitizers too. Calls inside shared
// libraries (libc, jansson, the emulator, libpenstock.so) are not seen: tests
// of failures link the layers' static libraries. jansson can be taken in by
// json_set_alloc_funcs(malloc, free) in the test.
//
// In meson.build add `alloc_fail_dep` to the dependencies of the executable.
// The sweep, to which each failing allocation has to come in turn:
//
//     for (unsigned nth = 1;; nth++) {
//         pen_alloc_fail_arm(nth, false);
//         st = thing_create(&thing, &err);
//         if (!pen_alloc_fail_disarm())
//             break;              // there is no nth allocation: st is PEN_OK
//         assert_int_equal(st, PEN_E_NOMEM);
//         ... nothing is left behind ...
//     }

#include <stdbool.h>

// Let the `nth` allocation from now on (1: the next) fail, counted over all
// threads; with `for_ever` also all that follow it. 0 only counts.
void pen_alloc_fail_arm(unsigned nth, bool for_ever);

// Count and fail only what the calling thread allocates, until disarmed.
void pen_alloc_fail_arm_thread(unsigned nth, bool for_ever);

// Back to normal. True if an allocation was made to fail since arming.
bool pen_alloc_fail_disarm(void);

// Allocations since arming, the failed ones included.
unsigned pen_alloc_fail_count(void);

#endif  // PEN_ALLOC_FAIL_H
