#ifndef STK_LEDGER_H
#define STK_LEDGER_H

// The account of everything that must be given back: memory of each type,
// driver objects, descriptors. It lives in base because the GPU layer, which
// lies below mem, has to report to it (docs/adr/0004-ledger-in-base.md).

#include <penstock/format.h>

// Memory first, with the values of pen_mem_type; then counted objects.
enum stk_res {
    STK_RES_HOST = PEN_MEM_HOST,
    STK_RES_HOST_PINNED = PEN_MEM_HOST_PINNED,
    STK_RES_CUDA_DEVICE = PEN_MEM_CUDA_DEVICE,
    STK_RES_DMABUF = PEN_MEM_DMABUF,
    STK_RES_CONTEXT,  // a retain of a primary context
    STK_RES_STREAM,
    STK_RES_EVENT,
    STK_RES_KERNELS,  // a loaded image
    STK_RES_FRAME,
    STK_RES_FILE,  // a descriptor
    STK_RES_THREAD,
    STK_RES_MAPPING,       // of a descriptor or of reserved addresses
    STK_RES_REGISTRATION,  // host memory that the driver has locked
    STK_RES_IMPORT,        // foreign memory that the driver has taken in
    STK_RES_COUNT
};
const char *stk_res_name(enum stk_res res);

struct stk_ledger;

// `sites`: keep owner and site of each live entry, for the leak report.
// NULL when out of memory. A NULL ledger is accepted by all functions below.
struct stk_ledger *stk_ledger_create(bool sites);
void stk_ledger_destroy(struct stk_ledger **ledger);

// Enter something; `key` identifies it among live entries of that kind (the
// address or handle). `owner` ("module.pin", "pipeline") is copied, `site`
// (PEN_HERE) is static. Thread: any.
void stk_ledger_add(struct stk_ledger *ledger, enum stk_res res, uint64_t key,
                    uint64_t bytes, const char *owner, const char *site);

// Budgets. reserve() counts `bytes` against the limits if they allow it, before
// the allocation is made; then enter() writes the entry without counting again,
// or cancel() takes the bytes back. stk_ledger_add() is both at once and asks
// no limit (but what it enters counts). Totals tell what was entered, never
// what is only reserved.
//
// Most live bytes of several memory types together (mask of PEN_MEM_BIT);
// 0 bytes: no limit. At most STK_MAX_LIMITS different masks, more are ignored.
// Thread: setup, before the first reserve().
enum { STK_MAX_LIMITS = 8 };
void stk_ledger_set_limit(struct stk_ledger *ledger, uint32_t mems,
                          uint64_t bytes);
// Two threads never both pass where there is room for one, and none is refused
// because of another's claim that is refused.
// Errors: PEN_E_LIMIT: the limit, what is live, what was asked for, and the
//         three largest owners (where sites are kept). Thread: any.
PEN_NODISCARD enum pen_status
stk_ledger_reserve(struct stk_ledger *ledger, enum stk_res res, uint64_t bytes,
                   const char *owner, struct pen_error *err);
void stk_ledger_cancel(struct stk_ledger *ledger, enum stk_res res,
                       uint64_t bytes);
void stk_ledger_enter(struct stk_ledger *ledger, enum stk_res res, uint64_t key,
                      uint64_t bytes, const char *owner, const char *site);
// The three largest owners of memory of the types in `mems`, as ": a 6 MiB, b
// 1 MiB, c 4 KiB" in `text`; "" without sites. Thread: any.
void stk_ledger_largest(struct stk_ledger *ledger, uint32_t mems, char *text,
                        size_t size);

// Strike it out, with the bytes that were entered; best before it is given
// back, since the next user may be handed the same address. Thread: any.
void stk_ledger_remove(struct stk_ledger *ledger, enum stk_res res,
                       uint64_t key, uint64_t bytes);

struct stk_ledger_totals {
    uint64_t live, live_bytes;  // now
    uint64_t peak_bytes;        // high-water mark of live_bytes
    uint64_t added, removed;    // since the beginning
    uint64_t steady;            // added while steady
};
void stk_ledger_totals(struct stk_ledger *ledger, enum stk_res res,
                       struct stk_ledger_totals *out);

// While steady, additions of memory count as steady-state allocations.
void stk_ledger_set_steady(struct stk_ledger *ledger, bool steady);
bool stk_ledger_steady(struct stk_ledger *ledger);

// Live entries, one call each; without sites owner and site are "" and
// entries are summed by kind. Thread: any; the callback must not call back.
struct stk_ledger_entry {
    enum stk_res res;
    const char *owner, *site;
    uint64_t bytes, count;
};
void stk_ledger_each(struct stk_ledger *ledger,
                     void (*each)(void *cookie,
                                  const struct stk_ledger_entry *entry),
                     void *cookie);

#endif  // STK_LEDGER_H
