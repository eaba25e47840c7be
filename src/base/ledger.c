#include "ledger.h"

#include <pthread.h>
#include <stdalign.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "str.h"

// Entries and counters are spread over shards by their key, so that threads
// that allocate at the same time seldom meet. Live bytes are one number per
// resource: only so is the high-water mark the true one.
enum { SHARDS = 16, OWNER_BUCKETS = 64, FIRST_ROOM = 32, LARGEST = 3 };

struct owner {
    struct owner *next;
    uint64_t sum;  // of stk_ledger_largest()
    char name[];
};

struct entry {
    uint64_t key, bytes;
    struct owner *owner;  // NULL: the place is free
    const char *site;
    enum stk_res res;
};

struct shard {
    alignas(64) _Atomic uint64_t added[STK_RES_COUNT];
    _Atomic uint64_t removed[STK_RES_COUNT];

    // Open addressing with linear probing; only with sites.
    pthread_mutex_t lock;
    struct entry *entries;
    size_t room, used;  // room is 0 or a power of two
    // Live, but without an entry: there was no memory for it.
    uint64_t lost[STK_RES_COUNT], lost_bytes[STK_RES_COUNT];
};

// What several types may have together. `live` has what was reserved, too.
struct limit {
    alignas(64) _Atomic uint64_t live;
    uint32_t mems;
    uint64_t most;
};

struct stk_ledger {
    struct shard shards[SHARDS];
    struct {
        alignas(64) _Atomic uint64_t live_bytes;
        _Atomic uint64_t peak_bytes;
        _Atomic uint64_t steady;
    } res[STK_RES_COUNT];

    // Whoever reserves looks at all limits of a type and then takes from all,
    // under the lock: else a claim that one limit refuses could make another
    // thread's fail that would have fitted.
    pthread_mutex_t limit_lock;
    struct limit limits[STK_MAX_LIMITS];
    unsigned limit_count;

    bool sites;
    _Atomic bool steady;
    // Names are kept until the ledger is gone: there are as many as pins.
    pthread_mutex_t owner_lock;
    struct owner *owners[OWNER_BUCKETS];
};

const char *stk_res_name(enum stk_res res)
{
    switch (res) {
    case STK_RES_HOST:
        return "HOST";
    case STK_RES_HOST_PINNED:
        return "HOST_PINNED";
    case STK_RES_CUDA_DEVICE:
        return "CUDA_DEVICE";
    case STK_RES_DMABUF:
        return "DMABUF";
    case STK_RES_CONTEXT:
        return "context";
    case STK_RES_STREAM:
        return "stream";
    case STK_RES_EVENT:
        return "event";
    case STK_RES_KERNELS:
        return "kernels";
    case STK_RES_FRAME:
        return "frame";
    case STK_RES_FILE:
        return "file";
    case STK_RES_THREAD:
        return "thread";
    case STK_RES_MAPPING:
        return "mapping";
    case STK_RES_REGISTRATION:
        return "registration";
    case STK_RES_IMPORT:
        return "import";
    case STK_RES_COUNT:
        break;
    }
    return "?";
}

struct stk_ledger *stk_ledger_create(bool sites)
{
    struct stk_ledger *l =
        aligned_alloc(alignof(struct stk_ledger), sizeof(*l));
    if (!l)
        return NULL;
    memset(l, 0, sizeof(*l));
    l->sites = sites;
    pthread_mutex_init(&l->owner_lock, NULL);
    pthread_mutex_init(&l->limit_lock, NULL);
    for (unsigned i = 0; i < SHARDS; i++)
        pthread_mutex_init(&l->shards[i].lock, NULL);
    return l;
}

void stk_ledger_destroy(struct stk_ledger **ledger)
{
    struct stk_ledger *l = *ledger;
    if (!l)
        return;
    *ledger = NULL;

    for (unsigned i = 0; i < SHARDS; i++) {
        free(l->shards[i].entries);
        pthread_mutex_destroy(&l->shards[i].lock);
    }
    for (unsigned i = 0; i < OWNER_BUCKETS; i++) {
        while (l->owners[i]) {
            struct owner *o = l->owners[i];
            l->owners[i] = o->next;
            free(o);
        }
    }
    pthread_mutex_destroy(&l->owner_lock);
    pthread_mutex_destroy(&l->limit_lock);
    free(l);
}

// --- entries ----------------------------------------------------------------

// Addresses differ in their middle bits: mix all of them (splitmix64).
static uint64_t hash_of(enum stk_res res, uint64_t key)
{
    uint64_t h = key + (uint64_t)res * 0x9e3779b97f4a7c15u;
    h = (h ^ (h >> 30)) * 0xbf58476d1ce4e5b9u;
    h = (h ^ (h >> 27)) * 0x94d049bb133111ebu;
    return h ^ (h >> 31);
}

static struct shard *shard_of(struct stk_ledger *l, uint64_t hash)
{
    return &l->shards[hash >> 60];
}

// The ledger's own copy of an owner's name, or NULL without memory.
static struct owner *keep_owner(struct stk_ledger *l, const char *name)
{
    uint64_t h = 14695981039346656037u;
    for (const char *s = name; *s; s++)
        h = (h ^ (unsigned char)*s) * 1099511628211u;
    struct owner **bucket = &l->owners[h % OWNER_BUCKETS];

    pthread_mutex_lock(&l->owner_lock);
    struct owner *o = *bucket;
    while (o && strcmp(o->name, name) != 0)
        o = o->next;
    if (!o) {
        const size_t bytes = strlen(name) + 1;
        o = malloc(sizeof(*o) + bytes);
        if (o) {
            memcpy(o->name, name, bytes);
            o->sum = 0;
            o->next = *bucket;
            *bucket = o;
        }
    }
    pthread_mutex_unlock(&l->owner_lock);
    return o;
}

static void place(struct entry *entries, size_t room, const struct entry *e)
{
    size_t i = hash_of(e->res, e->key) & (room - 1);
    while (entries[i].owner)
        i = (i + 1) & (room - 1);
    entries[i] = *e;
}

// Keep at least a quarter of the places free.
static bool make_room(struct shard *s)
{
    if (s->used + 1 <= s->room - s->room / 4 && s->room)
        return true;
    const size_t room = s->room ? 2 * s->room : FIRST_ROOM;
    struct entry *entries = calloc(room, sizeof(*entries));
    if (!entries)
        return s->used + 1 < s->room;  // tighter, but one place stays free
    for (size_t i = 0; i < s->room; i++) {
        if (s->entries[i].owner)
            place(entries, room, &s->entries[i]);
    }
    free(s->entries);
    s->entries = entries;
    s->room = room;
    return true;
}

static void insert(struct shard *s, const struct entry *e)
{
    pthread_mutex_lock(&s->lock);
    if (e->owner && make_room(s)) {
        place(s->entries, s->room, e);
        s->used++;
    } else {
        s->lost[e->res]++;
        s->lost_bytes[e->res] += e->bytes;
    }
    pthread_mutex_unlock(&s->lock);
}

// Free place i and close the gap, so that no probe ends too early.
static void take_out(struct shard *s, size_t i)
{
    const size_t mask = s->room - 1;
    for (size_t j = (i + 1) & mask; s->entries[j].owner; j = (j + 1) & mask) {
        const size_t home =
            hash_of(s->entries[j].res, s->entries[j].key) & mask;
        if (((j - home) & mask) >= ((j - i) & mask)) {
            s->entries[i] = s->entries[j];
            i = j;
        }
    }
    s->entries[i] = (struct entry){ 0 };
    s->used--;
}

static void strike(struct shard *s, uint64_t hash, enum stk_res res,
                   uint64_t key, uint64_t bytes)
{
    pthread_mutex_lock(&s->lock);
    const size_t mask = s->room - 1;
    size_t found = SIZE_MAX;
    for (size_t i = hash & mask; s->room && s->entries[i].owner;
         i = (i + 1) & mask) {
        const struct entry *e = &s->entries[i];
        if (e->res != res || e->key != key)
            continue;
        found = i;
        // The same address may be entered again by its next user before its
        // last one struck it out: sizes tell most of them apart.
        if (e->bytes == bytes)
            break;
    }
    if (found != SIZE_MAX) {
        take_out(s, found);
    } else if (s->lost[res]) {
        s->lost[res]--;
        s->lost_bytes[res] -= bytes;
    }
    pthread_mutex_unlock(&s->lock);
}

// --- counters ---------------------------------------------------------------

// What memory of this type is counted against.
static bool limited(const struct limit *limit, enum stk_res res)
{
    return res <= STK_RES_DMABUF && limit->mems & 1u << res;
}

static void limits_claim(struct stk_ledger *l, enum stk_res res, uint64_t bytes)
{
    for (unsigned i = 0; i < l->limit_count; i++) {
        if (limited(&l->limits[i], res))
            atomic_fetch_add(&l->limits[i].live, bytes);
    }
}

static void limits_release(struct stk_ledger *l, enum stk_res res,
                           uint64_t bytes)
{
    for (unsigned i = 0; i < l->limit_count; i++) {
        if (limited(&l->limits[i], res))
            atomic_fetch_sub(&l->limits[i].live, bytes);
    }
}

void stk_ledger_enter(struct stk_ledger *ledger, enum stk_res res, uint64_t key,
                      uint64_t bytes, const char *owner, const char *site)
{
    if (!ledger)
        return;
    const uint64_t hash = hash_of(res, key);
    struct shard *s = shard_of(ledger, hash);

    if (ledger->sites) {
        const struct entry e = {
            .key = key,
            .bytes = bytes,
            .owner = keep_owner(ledger, owner ? owner : ""),
            .site = site ? site : "",
            .res = res,
        };
        insert(s, &e);
    }

    const uint64_t live =
        atomic_fetch_add(&ledger->res[res].live_bytes, bytes) + bytes;
    uint64_t peak = atomic_load(&ledger->res[res].peak_bytes);
    while (live > peak && !atomic_compare_exchange_weak(
                              &ledger->res[res].peak_bytes, &peak, live))
        ;
    if (atomic_load(&ledger->steady))
        atomic_fetch_add(&ledger->res[res].steady, 1);
    atomic_fetch_add(&s->added[res], 1);
}

void stk_ledger_add(struct stk_ledger *ledger, enum stk_res res, uint64_t key,
                    uint64_t bytes, const char *owner, const char *site)
{
    if (!ledger)
        return;
    limits_claim(ledger, res, bytes);
    stk_ledger_enter(ledger, res, key, bytes, owner, site);
}

void stk_ledger_remove(struct stk_ledger *ledger, enum stk_res res,
                       uint64_t key, uint64_t bytes)
{
    if (!ledger)
        return;
    const uint64_t hash = hash_of(res, key);
    struct shard *s = shard_of(ledger, hash);

    if (ledger->sites)
        strike(s, hash, res, key, bytes);
    atomic_fetch_sub(&ledger->res[res].live_bytes, bytes);
    limits_release(ledger, res, bytes);
    atomic_fetch_add(&s->removed[res], 1);
}

void stk_ledger_totals(struct stk_ledger *ledger, enum stk_res res,
                       struct stk_ledger_totals *out)
{
    *out = (struct stk_ledger_totals){ 0 };
    if (!ledger)
        return;
    // Removals first: each that is seen has its addition seen too, so that
    // the difference cannot go below zero while others work.
    for (unsigned i = 0; i < SHARDS; i++)
        out->removed += atomic_load(&ledger->shards[i].removed[res]);
    for (unsigned i = 0; i < SHARDS; i++)
        out->added += atomic_load(&ledger->shards[i].added[res]);
    out->live = out->added - out->removed;
    out->live_bytes = atomic_load(&ledger->res[res].live_bytes);
    out->peak_bytes = atomic_load(&ledger->res[res].peak_bytes);
    out->steady = atomic_load(&ledger->res[res].steady);
}

// --- limits -----------------------------------------------------------------

void stk_ledger_set_limit(struct stk_ledger *ledger, uint32_t mems,
                          uint64_t bytes)
{
    if (!ledger)
        return;
    unsigned i = 0;
    while (i < ledger->limit_count && ledger->limits[i].mems != mems)
        i++;
    if (i == STK_MAX_LIMITS)
        return;

    struct limit *limit = &ledger->limits[i];
    if (i == ledger->limit_count) {
        limit->mems = mems;
        for (unsigned r = STK_RES_HOST; r <= STK_RES_DMABUF; r++) {
            if (limited(limit, (enum stk_res)r))
                limit->live += atomic_load(&ledger->res[r].live_bytes);
        }
        ledger->limit_count++;
    }
    limit->most = bytes;
}

// "HOST and HOST_PINNED"
static void name_types(uint32_t mems, char *text, size_t size)
{
    size_t used = 0;
    text[0] = 0;
    for (unsigned r = STK_RES_HOST; r <= STK_RES_DMABUF && used < size; r++) {
        if (mems & 1u << r)
            used += (size_t)snprintf(text + used, size - used, "%s%s",
                                     used ? " and " : "",
                                     stk_res_name((enum stk_res)r));
    }
}

static enum pen_status refuse(struct stk_ledger *l, const struct limit *limit,
                              uint64_t live, uint64_t bytes, const char *owner,
                              struct pen_error *err)
{
    char types[80], most[32], now[32], more[32], largest[300];
    name_types(limit->mems, types, sizeof(types));
    stk_format_size(limit->most, most, sizeof(most));
    stk_format_size(live, now, sizeof(now));
    stk_format_size(bytes, more, sizeof(more));
    stk_ledger_largest(l, limit->mems, largest, sizeof(largest));
    return pen_error_set(
        err, PEN_E_LIMIT, 0, owner,
        "%s more of %s is over the budget of %s, of which %s are in use%s",
        more, types, most, now, largest);
}

enum pen_status stk_ledger_reserve(struct stk_ledger *ledger, enum stk_res res,
                                   uint64_t bytes, const char *owner,
                                   struct pen_error *err)
{
    if (!ledger || !ledger->limit_count)
        return PEN_OK;

    const struct limit *over = NULL;
    uint64_t live = 0;
    pthread_mutex_lock(&ledger->limit_lock);
    for (unsigned i = 0; i < ledger->limit_count && !over; i++) {
        const struct limit *limit = &ledger->limits[i];
        if (!limit->most || !limited(limit, res))
            continue;
        live = atomic_load(&limit->live);
        if (bytes && (live > limit->most || bytes > limit->most - live))
            over = limit;
    }
    if (!over)
        limits_claim(ledger, res, bytes);
    pthread_mutex_unlock(&ledger->limit_lock);
    return over ? refuse(ledger, over, live, bytes, owner, err) : PEN_OK;
}

void stk_ledger_cancel(struct stk_ledger *ledger, enum stk_res res,
                       uint64_t bytes)
{
    if (ledger)
        limits_release(ledger, res, bytes);
}

// Each owner's bytes of these types into its `sum`. With the owners' lock held.
static void sum_owners(struct stk_ledger *l, uint32_t mems)
{
    for (unsigned i = 0; i < OWNER_BUCKETS; i++) {
        for (struct owner *o = l->owners[i]; o; o = o->next)
            o->sum = 0;
    }
    for (unsigned i = 0; i < SHARDS; i++) {
        struct shard *s = &l->shards[i];
        pthread_mutex_lock(&s->lock);
        for (size_t j = 0; j < s->room; j++) {
            const struct entry *e = &s->entries[j];
            if (e->owner && e->res <= STK_RES_DMABUF && mems & 1u << e->res)
                e->owner->sum += e->bytes;
        }
        pthread_mutex_unlock(&s->lock);
    }
}

// Larger ones first, equal ones by name.
static bool before(const struct owner *a, const struct owner *b)
{
    return !b || a->sum > b->sum ||
           (a->sum == b->sum && strcmp(a->name, b->name) < 0);
}

void stk_ledger_largest(struct stk_ledger *ledger, uint32_t mems, char *text,
                        size_t size)
{
    if (size)
        text[0] = 0;
    if (!ledger || !ledger->sites)
        return;

    // One place more than is told: where the one that is pushed out goes.
    const struct owner *top[LARGEST + 1] = { NULL };
    pthread_mutex_lock(&ledger->owner_lock);
    sum_owners(ledger, mems);
    for (unsigned i = 0; i < OWNER_BUCKETS; i++) {
        for (const struct owner *o = ledger->owners[i]; o; o = o->next) {
            unsigned at = o->sum ? 0 : LARGEST;
            while (at < LARGEST && !before(o, top[at]))
                at++;
            memmove(&top[at + (at < LARGEST)], &top[at],
                    (LARGEST - at) * sizeof(top[0]));
            top[at] = o;
        }
    }
    size_t used = 0;
    for (unsigned i = 0; i < LARGEST && top[i] && used < size; i++) {
        char bytes[32];
        stk_format_size(top[i]->sum, bytes, sizeof(bytes));
        used += (size_t)snprintf(text + used, size - used, "%s %s %s",
                                 i ? "," : ":", top[i]->name, bytes);
    }
    pthread_mutex_unlock(&ledger->owner_lock);
}

// --- readers ----------------------------------------------------------------

void stk_ledger_set_steady(struct stk_ledger *ledger, bool steady)
{
    if (ledger)
        atomic_store(&ledger->steady, steady);
}

bool stk_ledger_steady(struct stk_ledger *ledger)
{
    return ledger && atomic_load(&ledger->steady);
}

static void each_sum(struct stk_ledger *ledger,
                     void (*each)(void *cookie,
                                  const struct stk_ledger_entry *entry),
                     void *cookie)
{
    for (unsigned r = 1; r < STK_RES_COUNT; r++) {
        struct stk_ledger_totals t;
        stk_ledger_totals(ledger, (enum stk_res)r, &t);
        const struct stk_ledger_entry entry = {
            .res = (enum stk_res)r,
            .owner = "",
            .site = "",
            .bytes = t.live_bytes,
            .count = t.live,
        };
        if (t.live || t.live_bytes)
            each(cookie, &entry);
    }
}

void stk_ledger_each(struct stk_ledger *ledger,
                     void (*each)(void *cookie,
                                  const struct stk_ledger_entry *entry),
                     void *cookie)
{
    if (!ledger)
        return;
    if (!ledger->sites) {
        each_sum(ledger, each, cookie);
        return;
    }

    uint64_t lost[STK_RES_COUNT] = { 0 }, lost_bytes[STK_RES_COUNT] = { 0 };
    for (unsigned i = 0; i < SHARDS; i++) {
        struct shard *s = &ledger->shards[i];
        pthread_mutex_lock(&s->lock);
        for (size_t j = 0; j < s->room; j++) {
            const struct entry *e = &s->entries[j];
            const struct stk_ledger_entry entry = {
                .res = e->res,
                .owner = e->owner ? e->owner->name : "",
                .site = e->site,
                .bytes = e->bytes,
                .count = 1,
            };
            if (e->owner)
                each(cookie, &entry);
        }
        for (unsigned r = 1; r < STK_RES_COUNT; r++) {
            lost[r] += s->lost[r];
            lost_bytes[r] += s->lost_bytes[r];
        }
        pthread_mutex_unlock(&s->lock);
    }
    for (unsigned r = 1; r < STK_RES_COUNT; r++) {
        const struct stk_ledger_entry entry = {
            .res = (enum stk_res)r,
            .owner = "",
            .site = "",
            .bytes = lost_bytes[r],
            .count = lost[r],
        };
        if (lost[r])
            each(cookie, &entry);
    }
}
