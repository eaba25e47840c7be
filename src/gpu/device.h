#ifndef STK_DEVICE_H
#define STK_DEVICE_H

// The device behind pen_device: driver table, retained primary context,
// checked calls, memory, loaded kernels. Only src/gpu includes driver.h and
// sees the table; the layers above use the functions here and in stream.h.

#include <penstock/device.h>
#include <penstock/kernel.h>

#include "../base/ledger.h"

// Open as pen_device_open(), with the ledger in which everything that is made
// on the device is entered (NULL: none; must outlive the device).
PEN_NODISCARD enum pen_status
stk_device_open(const struct pen_device_params *params,
                struct stk_ledger *ledger, struct pen_device **out,
                struct pen_error *err);

// A sticky error happened: every later call returns PEN_E_LOST.
bool stk_device_lost(const struct pen_device *dev);

// Make the context current for this thread until the scope variable dies:
//     STK_SCOPE scope = { 0 };
//     PEN_TRY(stk_scope_enter(&scope, dev, err));
// Leaving checks that the context on top is still ours; `disturbed` of the
// device counts the times it was not.
struct stk_scope {
    struct pen_device *dev;  // NULL when not entered
    void *before;            // context that was current; ours: nothing pushed
};
PEN_NODISCARD enum pen_status stk_scope_enter(struct stk_scope *scope,
                                              struct pen_device *dev,
                                              struct pen_error *err);
void stk_scope_leave(struct stk_scope *scope);
#define STK_SCOPE __attribute__((cleanup(stk_scope_leave))) struct stk_scope
uint64_t stk_device_disturbed(const struct pen_device *dev);

// Memory. Enters its own scope; `owner` and `site` go to the ledger.
// Errors: PEN_E_DEVMEM / PEN_E_NOMEM with the sizes, PEN_E_DRIVER, PEN_E_LOST.
// Thread: any. Blocks on the driver.
PEN_NODISCARD enum pen_status stk_device_alloc(struct pen_device *dev,
                                               size_t bytes, const char *owner,
                                               const char *site, uint64_t *out,
                                               struct pen_error *err);
void stk_device_free(struct pen_device *dev, uint64_t address, size_t bytes);
PEN_NODISCARD enum pen_status stk_pinned_alloc(struct pen_device *dev,
                                               size_t bytes, const char *owner,
                                               const char *site, void **out,
                                               struct pen_error *err);
void stk_pinned_free(struct pen_device *dev, void *memory, size_t bytes);

// Load an image (once per device; later calls find it) and look up all its
// entries. Thread: setup.
struct stk_kernels;
PEN_NODISCARD enum pen_status
stk_kernels_load(struct pen_device *dev, const struct pen_kernel_image *image,
                 struct stk_kernels **out, struct pen_error *err);
// What was loaded for the image, or NULL. No lock, no search by name.
struct stk_kernels *stk_kernels_find(const struct pen_device *dev,
                                     const struct pen_kernel_image *image);
// Which binary of the images is loaded: "fatbin", "ptx", "host". For tests a
// preference can be set before the first load ("ptx"); NULL: fatbin first.
void stk_kernels_prefer(struct pen_device *dev, const char *binary);

// Call `done` once everything that anybody queued in the context so far is
// finished. A thread of the device waits; the caller does not. If waiting
// fails `done` is called all the same and the device may be lost.
// Thread: any. `done` is called on the device's thread, with no lock held.
PEN_NODISCARD enum pen_status stk_device_when_idle(struct pen_device *dev,
                                                   void (*done)(void *cookie),
                                                   void *cookie,
                                                   struct pen_error *err);

#endif  // STK_DEVICE_H
