#ifndef PEN_LEDGER_H
#define PEN_LEDGER_H

#include <penstock/status.h>

PEN_BEGIN

// A snapshot of an account: everything that is alive, by kind, owner and
// site. Pipelines and pools give snapshots of theirs (pipeline.h, pool.h);
// the difference of two tells what came and what went between them.
struct pen_snapshot;

struct pen_ledger_entry {
    const char *kind;   // "HOST", "HOST_PINNED", "CUDA_DEVICE", "DMABUF",
                        // "context", "stream", "event", "kernels", "frame",
                        // "file", "thread", "mapping", "registration",
                        // "import"
    const char *owner;  // "module.pin", "pipeline"; "" where sites are not kept
    const char *site;   // "file:line"; likewise
    int64_t bytes;      // negative in a difference: less than before
    int64_t count;
};

// The entries, sorted by kind, owner and site, with equal ones summed.
// Borrowed until destroy. Thread: any.
PEN_API size_t pen_snapshot_entries(const struct pen_snapshot *snapshot,
                                    const struct pen_ledger_entry **entries);
// What `after` has more (or, negative, less) than `before`; entries that are
// equal in both are left out, so that no change gives none. NULL for `before`:
// nothing. The caller owns *out. Errors: PEN_E_NOMEM. Thread: any.
PEN_API PEN_NODISCARD enum pen_status
pen_snapshot_diff(const struct pen_snapshot *before,
                  const struct pen_snapshot *after, struct pen_snapshot **out,
                  struct pen_error *err);
// {"entries": [{"kind", "owner", "site", "bytes", "count"}], "totals": {kind:
// {"bytes", "count"}}}, to be freed with pen_free(); NULL when out of memory.
// Thread: any.
PEN_API char *pen_snapshot_json(const struct pen_snapshot *snapshot);
// Sets *snapshot to NULL; NULL in it is allowed. Thread: any.
PEN_API void pen_snapshot_destroy(struct pen_snapshot **snapshot);

PEN_END

#endif  // PEN_LEDGER_H
