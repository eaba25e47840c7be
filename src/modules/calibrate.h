#ifndef STK_CALIBRATE_H
#define STK_CALIBRATE_H

// What the measuring (calibrate.c) hands to the files and tables made of it
// (calibrate_file.c). Both are here, not in src/run, since they measure what
// the modules are made of: only this layer sees the kernels.

#include <penstock/calibrate.h>

#include "../base/ledger.h"

// One thing that was measured, several times.
struct stk_measure {
    char what[64];
    const char *unit;          // "ns", "B/us", "operations/us"; static
    double median, low, high;  // and the 10th and 90th of a hundred
    uint64_t bytes;            // of a copy; 0: no copy
    unsigned samples;
};
enum { STK_MAX_MEASURES = 96 };

struct pen_calibration {
    struct pen_profile profile;
    char uuid[48];
    int driver_version;
    struct stk_measure measures[STK_MAX_MEASURES];
    unsigned count;
};

// As pen_calibrate(), with everything entered in `ledger`, which is as before
// when it returns. `quick` does everything, but only once and with little
// memory: the numbers mean nothing. For tests.
PEN_NODISCARD enum pen_status
stk_calibrate(const struct pen_calibrate_params *params,
              struct stk_ledger *ledger, bool quick,
              struct pen_calibration **out, struct pen_error *err);

// The line a + b x through points, so that the sum of the squared relative
// errors is least; a and b are not negative. For tests.
void stk_calibrate_fit(const double *x, const double *y, unsigned count,
                       double *a, double *b);

#endif  // STK_CALIBRATE_H
