#ifndef PEN_PICTURE_H
#define PEN_PICTURE_H

// Pictures in memory for tests of operators: any pitch, guarded, filled with
// noise; and a launcher of the kernels' host builds.

#include <penstock/frame.h>
#include <penstock/kernel.h>

#include "../reference/reference.h"

struct pen_picture {
    struct ref_picture ref;  // as the references read it
    struct pen_view view;    // as the operators see it
    uint8_t *memory;
    size_t bytes;  // of memory
};

// `extra` bytes are added to every pitch; `shift` moves the first sample from
// an address that is a multiple of 64. Bytes that carry no sample are guards.
void pen_picture_make(struct pen_picture *p, enum pen_format format, int w,
                      int h, size_t extra, size_t shift);
void pen_picture_free(struct pen_picture *p);

// Noise, of which a quarter is 0 or 255.
void pen_picture_noise(struct pen_picture *p, uint64_t seed);
// Guards and samples anew, so that what is not written is seen.
void pen_picture_reset(struct pen_picture *p);
// The samples, in the order of a raw file; ref_bytes() of them.
void pen_picture_tight(const struct pen_picture *p, uint8_t *out);
void pen_picture_from_tight(struct pen_picture *p, const uint8_t *in);

// Fail the running test if a guard was overwritten, if the samples of the two
// differ, or if a sample is further than `limit` from the exact ones.
void pen_picture_check_guards(const struct pen_picture *p, const char *what);
void pen_picture_check_same(const struct pen_picture *a,
                            const struct pen_picture *b, const char *what);
void pen_picture_check_near(const struct pen_picture *p, const double *exact,
                            double limit, const char *what);

// The view with all addresses moved by -PEN_PICTURE_AWAY: like the emulated
// device's, they only become readable through PENK_G.
#define PEN_PICTURE_AWAY ((uint64_t)1 << 44)
struct pen_view pen_picture_away(const struct pen_picture *p);
// Run a whole launch, block by block, of a host build; addresses are "away".
void pen_picture_launch(penk_host_fn fn, const struct pen_grid *grid,
                        const void *args);

// Names for messages.
const char *pen_picture_name(enum pen_format format);

extern const enum pen_format pen_picture_formats[11];

#endif  // PEN_PICTURE_H
