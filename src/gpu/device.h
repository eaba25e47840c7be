#ifndef STK_DEVICE_H
#define STK_DEVICE_H

// The device behind pen_device: driver table, retained primary context,
// checked calls, memory, loaded kernels. Only src/gpu includes driver.h and
// sees the table; the layers above use the functions here and in stream.h.

#include <penstock/device.h>
#include <penstock/kernel.h>

#include "../base/ledger.h"
#include "../base/str.h"

// Open as pen_device_open(), with the ledger in which everything that is made
// on the device is entered (NULL: none; must outlive the device).
PEN_NODISCARD enum pen_status
stk_device_open(const struct pen_device_params *params,
                struct stk_ledger *ledger, struct pen_device **out,
                struct pen_error *err);

// The same for one of several that use the device (a module that opens it
// anew): `owner` is who answers for the context and the kernels in the ledger;
// "": the device's and the images' names.
PEN_NODISCARD enum pen_status
stk_device_open_for(const struct pen_device_params *params,
                    struct stk_ledger *ledger, const char *owner,
                    struct pen_device **out, struct pen_error *err);

// A sticky error happened: every later call returns PEN_E_LOST.
bool stk_device_lost(const struct pen_device *dev);
bool stk_device_emulated(const struct pen_device *dev);
// Where it enters what is made on it; may be NULL. Borrowed.
struct stk_ledger *stk_device_ledger(const struct pen_device *dev);

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
// Errors: PEN_E_DEVMEM / PEN_E_NOMEM with the sizes, PEN_E_LIMIT (the budget of
// the ledger), PEN_E_DRIVER, PEN_E_LOST.
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

// Who keeps free memory of the device: asked to give it back before the
// device says that there is none. Called with no lock of src/gpu held.
struct stk_hoard {
    struct stk_hoard *next;
    // Give back what is free; returns the bytes.
    uint64_t (*trim)(struct stk_hoard *hoard);
    // Append what is held: "pool `x`: 5 blocks free (3 of 6.0 MiB, 2 of
    // 512.0 KiB), the largest 6.0 MiB".
    void (*describe)(struct stk_hoard *hoard, struct stk_text *text);
    // Of the device's own account; zero.
    unsigned busy;
    bool leaving;
};
// Thread: any; leave waits for a call of the hoard's functions to end, so do
// not call it from them.
void stk_device_hoard_enter(struct pen_device *dev, struct stk_hoard *hoard);
void stk_device_hoard_leave(struct pen_device *dev, struct stk_hoard *hoard);
// When an allocation fails for want of memory or of budget, stk_device_alloc(),
// stk_pinned_alloc() and the regions below wait once for all queued work, have
// the hoards trimmed and try again, which is logged; then they fail with what
// was asked for, what is free, the three largest owners of the ledger and the
// hoards' own words. Call them with no lock held that a hoard may take.

// Device memory that grows without moving: `reserve` bytes of addresses are set
// aside (rounded up to the driver's granularity), of which the first `bytes`
// have memory. The ledger holds the bytes that were asked for.
// Errors: PEN_E_UNSUPPORTED  the driver has no such functions
//         those of stk_device_alloc()
// Thread: any. Blocks on the driver.
struct stk_region;
bool stk_region_possible(const struct pen_device *dev);
size_t stk_region_granularity(const struct pen_device *dev);
PEN_NODISCARD enum pen_status
stk_region_create(struct pen_device *dev, size_t bytes, size_t reserve,
                  const char *owner, const char *site, struct stk_region **out,
                  struct pen_error *err);
// Work that is queued on the old part goes on. Errors: PEN_E_LIMIT beyond the
// reserve; the region is then as it was.
PEN_NODISCARD enum pen_status stk_region_grow(struct stk_region *region,
                                              size_t bytes, const char *owner,
                                              const char *site,
                                              struct pen_error *err);
uint64_t stk_region_address(const struct stk_region *region);
size_t stk_region_bytes(const struct stk_region *region);
size_t stk_region_reserved(const struct stk_region *region);
// Waits for all queued work. NULL in *region is allowed.
void stk_region_destroy(struct stk_region **region);

// Lock host memory that is not ours for copies, and let go of it. `memory` must
// be page-aligned; in the ledger as a registration (kept with bytes 0: the
// memory itself is somebody's already).
// Errors: PEN_E_ARG          not page-aligned, 0 bytes
//         PEN_E_UNSUPPORTED  the driver has no such functions
//         PEN_E_NOMEM        the system does not let so much be locked
//         PEN_E_DRIVER       registered already, not mapped, ...
PEN_NODISCARD enum pen_status
stk_host_register(struct pen_device *dev, void *memory, size_t bytes,
                  const char *owner, const char *site, struct pen_error *err);
void stk_host_unregister(struct pen_device *dev, void *memory);

// What the driver can do with DMABUFs: by its attributes and functions, and for
// import by trying once (only where the GPU is part of the machine's own memory
// is there any driver that can). Thread: any.
bool stk_device_can_export(const struct pen_device *dev);
bool stk_device_can_import(struct pen_device *dev);
// A descriptor of device memory inside a block of stk_device_alloc(); address
// and size must be multiples of STK_EXPORT_ALIGN, which small blocks of the
// driver are not by themselves. In the ledger as a file; the caller closes it
// with stk_fd_close(). Errors: PEN_E_ARG (no such multiples),
// PEN_E_UNSUPPORTED, PEN_E_DRIVER.
enum { STK_EXPORT_ALIGN = 64 << 10 };
PEN_NODISCARD enum pen_status stk_device_export(struct pen_device *dev,
                                                uint64_t address, size_t bytes,
                                                const char *owner,
                                                const char *site, int *fd,
                                                struct pen_error *err);
// Take the memory behind a descriptor in: *address is its device address until
// stk_device_unimport(). The descriptor stays the caller's. In the ledger as
// an import. Errors: PEN_E_ARG (0 bytes), PEN_E_NOMEM, PEN_E_UNSUPPORTED,
// PEN_E_DRIVER.
struct stk_import;
PEN_NODISCARD enum pen_status
stk_device_import(struct pen_device *dev, int fd, size_t bytes,
                  const char *owner, const char *site, struct stk_import **out,
                  uint64_t *address, struct pen_error *err);
void stk_device_unimport(struct stk_import **import);

// Used bytes of the whole device, and of this process as NVML tells (0 where
// it does not). Never fails a run: false if nothing is known.
bool stk_device_usage(struct pen_device *dev, uint64_t *device,
                      uint64_t *process);

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
