// A snapshot as JSON: here and not in base, which knows no JSON.

#include <string.h>

#include <penstock/ledger.h>

#include "json.h"

static json_t *numbers(json_t *object, int64_t bytes, int64_t count)
{
    object = stk_json_with(object, "bytes", json_integer(bytes));
    return stk_json_with(object, "count", json_integer(count));
}

static json_t *entry_json(const struct pen_ledger_entry *e)
{
    json_t *o = json_object();
    o = stk_json_with(o, "kind", stk_json_text(e->kind));
    o = stk_json_with(o, "owner", stk_json_text(e->owner));
    o = stk_json_with(o, "site", stk_json_text(e->site));
    return numbers(o, e->bytes, e->count);
}

// The entries of a kind lie side by side.
static json_t *totals_json(const struct pen_ledger_entry *entries, size_t count)
{
    json_t *totals = json_object();
    for (size_t i = 0; i < count;) {
        const char *kind = entries[i].kind;
        int64_t bytes = 0, number = 0;
        for (; i < count && strcmp(entries[i].kind, kind) == 0; i++) {
            bytes += entries[i].bytes;
            number += entries[i].count;
        }
        totals =
            stk_json_with(totals, kind, numbers(json_object(), bytes, number));
    }
    return totals;
}

char *pen_snapshot_json(const struct pen_snapshot *snapshot)
{
    const struct pen_ledger_entry *entries = NULL;
    const size_t count = pen_snapshot_entries(snapshot, &entries);
    json_t *list = json_array();
    for (size_t i = 0; i < count; i++)
        list = stk_json_append(list, entry_json(&entries[i]));

    json_t *o = stk_json_with(json_object(), "entries", list);
    return stk_json_dump_new(
        stk_json_with(o, "totals", totals_json(entries, count)));
}
