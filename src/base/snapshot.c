#include "snapshot.h"

#include <stdlib.h>
#include <string.h>

#include "str.h"

struct pen_snapshot {
    struct pen_ledger_entry *entries;
    size_t count, room;
    struct stk_arena names;  // owners and sites: the ledger may go first
    bool failed;             // out of memory while it was collected
};

static struct pen_snapshot *new_snapshot(struct pen_error *err)
{
    struct pen_snapshot *s = calloc(1, sizeof(*s));
    if (!s)
        pen_error_set(err, PEN_E_NOMEM, 0, "snapshot",
                      "no memory for a snapshot of the ledger");
    return s;
}

// Append an entry with the names as they are.
static bool append(struct pen_snapshot *s, const struct pen_ledger_entry *e)
{
    if (s->count == s->room) {
        const size_t room = s->room ? 2 * s->room : 16;
        struct pen_ledger_entry *entries =
            realloc(s->entries, room * sizeof(*entries));
        if (!entries)
            return false;
        s->entries = entries;
        s->room = room;
    }
    s->entries[s->count++] = *e;
    return true;
}

static void collect(void *cookie, const struct stk_ledger_entry *e)
{
    struct pen_snapshot *s = cookie;
    const struct pen_ledger_entry entry = {
        .kind = stk_res_name(e->res),
        .owner = e->owner,
        .site = e->site,
        .bytes = (int64_t)e->bytes,
        .count = (int64_t)e->count,
    };
    if (!s->failed && !append(s, &entry))
        s->failed = true;
}

static int compare(const struct pen_ledger_entry *a,
                   const struct pen_ledger_entry *b)
{
    const int kind = strcmp(a->kind, b->kind);
    if (kind)
        return kind;
    const int owner = strcmp(a->owner, b->owner);
    return owner ? owner : strcmp(a->site, b->site);
}

static int compare_for_qsort(const void *a, const void *b)
{
    return compare(a, b);
}

// Sort, and make one of those that are equal.
static void sum_up(struct pen_snapshot *s)
{
    if (!s->count)
        return;
    qsort(s->entries, s->count, sizeof(s->entries[0]), compare_for_qsort);
    size_t last = 0;
    for (size_t i = 1; i < s->count; i++) {
        if (compare(&s->entries[i], &s->entries[last]) == 0) {
            s->entries[last].bytes += s->entries[i].bytes;
            s->entries[last].count += s->entries[i].count;
        } else {
            s->entries[++last] = s->entries[i];
        }
    }
    s->count = last + 1;
}

// Copy the names, which so far were borrowed.
static bool keep_names(struct pen_snapshot *s)
{
    for (size_t i = 0; i < s->count; i++) {
        struct pen_ledger_entry *e = &s->entries[i];
        e->owner = stk_arena_strdup(&s->names, e->owner);
        e->site = stk_arena_strdup(&s->names, e->site);
        if (!e->owner || !e->site)
            return false;
    }
    return true;
}

static enum pen_status finish(struct pen_snapshot *s, bool complete,
                              struct pen_snapshot **out, struct pen_error *err)
{
    if (complete && keep_names(s)) {
        *out = s;
        return PEN_OK;
    }
    pen_snapshot_destroy(&s);
    return pen_error_set(err, PEN_E_NOMEM, 0, "snapshot",
                         "no memory for the entries of a snapshot");
}

enum pen_status stk_snapshot_take(struct stk_ledger *ledger,
                                  struct pen_snapshot **out,
                                  struct pen_error *err)
{
    *out = NULL;
    struct pen_snapshot *s = new_snapshot(err);
    if (!s)
        return PEN_E_NOMEM;
    stk_ledger_each(ledger, collect, s);
    sum_up(s);
    return finish(s, !s->failed, out, err);
}

size_t pen_snapshot_entries(const struct pen_snapshot *snapshot,
                            const struct pen_ledger_entry **entries)
{
    *entries = snapshot ? snapshot->entries : NULL;
    return snapshot ? snapshot->count : 0;
}

enum pen_status pen_snapshot_diff(const struct pen_snapshot *before,
                                  const struct pen_snapshot *after,
                                  struct pen_snapshot **out,
                                  struct pen_error *err)
{
    *out = NULL;
    struct pen_snapshot *s = new_snapshot(err);
    if (!s)
        return PEN_E_NOMEM;

    const struct pen_ledger_entry *old = NULL, *now = NULL;
    const size_t old_count = pen_snapshot_entries(before, &old);
    const size_t now_count = pen_snapshot_entries(after, &now);
    bool complete = true;
    for (size_t i = 0, j = 0; complete && (i < old_count || j < now_count);) {
        const int order = i == old_count   ? 1
                          : j == now_count ? -1
                                           : compare(&old[i], &now[j]);
        struct pen_ledger_entry e = order < 0 ? old[i] : now[j];
        if (order < 0) {
            e.bytes = -e.bytes;
            e.count = -e.count;
        } else if (order == 0) {
            e.bytes -= old[i].bytes;
            e.count -= old[i].count;
        }
        i += order <= 0;
        j += order >= 0;
        if (e.bytes || e.count)
            complete = append(s, &e);
    }
    return finish(s, complete, out, err);
}

void pen_snapshot_destroy(struct pen_snapshot **snapshot)
{
    struct pen_snapshot *s = *snapshot;
    if (!s)
        return;
    *snapshot = NULL;
    stk_arena_finish(&s->names);
    free(s->entries);
    free(s);
}
