#ifndef EMU_API_H
#define EMU_API_H

// What the driver's functions have in common. Each begins with emu_enter(),
// which takes the lock, counts, fails on demand and checks the context; the
// lock is given back when the function returns.

#include "emu.h"

// Prototypes from the one list, under the exported symbols.
#define X(need, name, symbol, params)                                          \
    PEN_API CUresult emu_##name params __asm__(symbol);
#include "../src/gpu/driver_list.h"
#undef X

enum need { NOTHING, STARTED, CONTEXT };

struct call {
    CUresult result;          // not CUDA_SUCCESS: return it
    struct emu_context *ctx;  // the current one, if CONTEXT is needed
};
struct call emu_enter(enum emu_fn fn, enum need need);
void emu_leave(const struct call *call);
#define CALL              __attribute__((cleanup(emu_leave))) const struct call
#define ENTER(name, need) emu_enter(EMU_FN_##name, need)

// Report misuse; returns `result`.
static inline CUresult emu_misuse(enum emu_fn fn, CUresult result,
                                  const char *text)
{
    emu_report("%s: %s", emu_fn_name(fn), text);
    return result;
}
#define MISUSE(name, result, text) emu_misuse(EMU_FN_##name, result, text)

// NULL: there is no such device.
struct emu_device *emu_device_at(CUdevice device);

// The object that a call destroys. What a refused call was to destroy is no
// leak: its owner has given it up.
CUresult emu_find_to_destroy(enum emu_fn fn, const struct call *call,
                             enum emu_kind kind, const void *handle,
                             const char *none, struct emu_slot **out);

// The stream behind a handle, the context's own for NULL.
CUresult emu_find_stream(enum emu_fn fn, struct emu_context *ctx,
                         CUstream handle, struct emu_stream **out);
// Wait for a mark, whose reference is taken. The context may be gone after.
CUresult emu_wait_mark(struct emu_mark *mark, struct emu_context *ctx);
// Freeing waits for everything that may use the memory.
CUresult emu_wait_to_free(struct emu_context *ctx);

#endif  // EMU_API_H
