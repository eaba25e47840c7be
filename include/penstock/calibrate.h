#ifndef PEN_CALIBRATE_H
#define PEN_CALIBRATE_H

#include <penstock/device.h>
#include <penstock/plan.h>

PEN_BEGIN

// What a machine's copies, launches, conversions and operators take, as a
// profile that plans reckon with.
struct pen_calibration;

// Zeroed: the driver's first device.
struct pen_calibrate_params {
    struct pen_device_params device;
    const char *name;  // of the profile; NULL: made of the device's
    // Called before each of `steps` steps; may be NULL.
    void (*progress)(void *cookie, unsigned step, unsigned steps,
                     const char *what);
    void *cookie;
};

// Measure. `params` is borrowed until the call returns. On success *out is
// owned by the caller, on failure NULL; nothing stays on the device.
// Errors: those of pen_device_open(), of its memory and calls; PEN_E_ARG for a
// name that is empty or too long. Thread: setup. Takes seconds, and blocks.
PEN_API PEN_NODISCARD enum pen_status
pen_calibrate(const struct pen_calibrate_params *params,
              struct pen_calibration **out, struct pen_error *err);
// Sets *calibration to NULL; NULL in it is allowed. Thread: setup.
PEN_API void pen_calibration_destroy(struct pen_calibration **calibration);

// Thread: any, as all below. Borrowed.
PEN_API const struct pen_profile *
pen_calibration_profile(const struct pen_calibration *calibration);
// Texts, to be freed with pen_free(); NULL when out of memory.
//   text  what was measured, with its spread, for people
//   json  the profile's file, with the measurements as comments
PEN_API char *pen_calibration_text(const struct pen_calibration *calibration);
PEN_API char *pen_calibration_json(const struct pen_calibration *calibration);

// Write the profile's file: whole or not at all, under a name of its own until
// it is complete. A file that exists is replaced only with `overwrite`, a link
// never written through. Errors: PEN_E_IO, PEN_E_NOMEM. Thread: setup.
PEN_API PEN_NODISCARD enum pen_status
pen_calibration_save(const struct pen_calibration *calibration,
                     const char *path, bool overwrite, struct pen_error *err);

PEN_END

#endif  // PEN_CALIBRATE_H
