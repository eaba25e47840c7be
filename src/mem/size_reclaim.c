// Free blocks that somebody else could use: the stack of a class, what threads
// keep, and what goes back to the driver.

#include <sched.h>
#include <time.h>

#include "size_pool_priv.h"

int64_t stk_size_clock(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC_COARSE, &t);
    return t.tv_sec * INT64_C(1000000000) + t.tv_nsec;
}

void stk_size_push(struct stk_size_class *cls, struct stk_free block,
                   int64_t since)
{
    // Who asked for the time first may come second to the lock.
    if (cls->idle_count && cls->idle[cls->idle_count - 1].since > since)
        since = cls->idle[cls->idle_count - 1].since;
    cls->idle[cls->idle_count++] =
        (struct stk_idle_block){ .free = block, .since = since };
}

// --- what threads keep ------------------------------------------------------

// How long an owner may be busy: it is for some nanoseconds, unless it is given
// no processor, or is a thread that a fork left behind.
#define STOP_NS INT64_C(10000000000)

static bool wait_until_idle(struct stk_line *line)
{
    int64_t since = 0;
    for (unsigned spins = 1; atomic_load(&line->busy); spins++) {
        if (spins % 256)
            continue;
        sched_yield();
        if (!since)
            since = stk_now();
        if (stk_now() - since > STOP_NS)
            return false;
    }
    return true;
}

static void resume(struct stk_size_class *cls, unsigned top)
{
    if (atomic_load(&cls->closed))
        return;
    for (unsigned i = 1; i <= top; i++)
        atomic_store(&cls->line[i].stop, 0);
}

// Have all lines that were ever used to oneself, until resume(); their highest
// number, or 0 if that is not possible. Class lock.
static unsigned stop(struct stk_size_class *cls)
{
    const unsigned top = atomic_load(&stk_shard_top);
    for (unsigned i = 1; i <= top; i++)
        atomic_store(&cls->line[i].stop, 1);
    bool ok = stk_shard_barrier();
    for (unsigned i = 1; i <= top && ok; i++)
        ok = wait_until_idle(&cls->line[i]);
    if (ok)
        return top;
    resume(cls, top);
    return 0;
}

void stk_size_drain(struct stk_size_class *cls, struct stk_line *line,
                    uint32_t count, int64_t now)
{
    const uint32_t had = atomic_load(&line->count);
    for (uint32_t i = 0; i < count; i++)
        stk_size_push(cls, line->block[i], now);
    for (uint32_t i = count; i < had; i++)
        line->block[i - count] = line->block[i];
    atomic_store(&line->count, had - count);
    line->low = had - count;
}

// Blocks in lines, as far as can be seen without stopping them.
static uint64_t count_kept(struct stk_size_class *cls)
{
    uint64_t count = 0;
    const unsigned top = atomic_load(&stk_shard_top);
    for (unsigned i = 1; i <= top; i++)
        count +=
            atomic_load_explicit(&cls->line[i].count, memory_order_relaxed);
    return count;
}

uint64_t stk_size_empty_lines(struct stk_size_class *cls)
{
    const size_t before = cls->idle_count;
    const unsigned top = stop(cls);
    const int64_t now = stk_size_clock();
    for (unsigned i = 1; i <= top; i++) {
        struct stk_line *line = &cls->line[i];
        stk_size_drain(cls, line, atomic_load(&line->count), now);
    }
    resume(cls, top);
    return cls->idle_count - before;
}

// Move to the stack what was not used since the last sweep. Class lock.
static void sweep(struct stk_size_class *cls, int64_t now)
{
    const unsigned top = count_kept(cls) ? stop(cls) : 0;
    for (unsigned i = 1; i <= top; i++)
        stk_size_drain(cls, &cls->line[i], cls->line[i].low, now);
    resume(cls, top);
}

// --- idle spans -------------------------------------------------------------

static struct stk_size_class *class_at(struct stk_size_pool *pool, unsigned i)
{
    return atomic_load_explicit(&pool->classes[i], memory_order_acquire);
}

// Note for each span of the stack how many of its blocks lie there and since
// when the last one does. Class lock, reclaim.
static void count_idle(struct stk_size_class *cls)
{
    for (size_t i = 0; i < cls->idle_count; i++)
        cls->idle[i].free.block->span->idle = 0;
    for (size_t i = 0; i < cls->idle_count; i++) {
        struct stk_span *span = cls->idle[i].free.block->span;
        span->idle++;
        span->idle_since = cls->idle[i].since;
    }
}

static bool is_idle(const struct stk_span *span)
{
    return span->idle == span->count;
}

// When the longest idle span became so; INT64_MAX: there is none.
static int64_t oldest_idle(struct stk_size_class *cls)
{
    int64_t oldest = INT64_MAX;
    pthread_mutex_lock(&cls->lock);
    count_idle(cls);
    for (size_t i = 0; i < cls->idle_count; i++) {
        const struct stk_span *span = cls->idle[i].free.block->span;
        if (is_idle(span) && span->idle_since < oldest)
            oldest = span->idle_since;
    }
    pthread_mutex_unlock(&cls->lock);
    return oldest;
}

// Take spans off the stack that are idle since `before` or longer, until they
// make `bytes`. Reclaim.
static struct stk_span *take_idle(struct stk_size_class *cls, int64_t before,
                                  uint64_t bytes)
{
    struct stk_span *chain = NULL;
    pthread_mutex_lock(&cls->lock);
    count_idle(cls);
    uint64_t taken = 0;
    size_t kept = 0;
    for (size_t i = 0; i < cls->idle_count; i++) {
        struct stk_span *span = cls->idle[i].free.block->span;
        if (span->idle == UINT32_MAX)
            continue;  // another block of it was met before
        if (!is_idle(span) || span->idle_since > before || taken >= bytes) {
            cls->idle[kept++] = cls->idle[i];
            continue;
        }
        taken += span->bytes;
        span->idle = UINT32_MAX;
        span->chain = chain;
        chain = span;
    }
    cls->idle_count = kept;
    pthread_mutex_unlock(&cls->lock);
    return chain;
}

struct stk_span *stk_size_take_idle(struct stk_size_class *cls)
{
    return take_idle(cls, INT64_MAX, UINT64_MAX);
}

uint64_t stk_size_reclaim(struct stk_size_pool *pool, uint64_t bytes)
{
    uint64_t gone = 0;
    pthread_mutex_lock(&pool->reclaim);
    for (unsigned i = 0; i < STK_CLASSES; i++) {
        struct stk_size_class *cls = class_at(pool, i);
        if (!cls)
            continue;
        pthread_mutex_lock(&cls->lock);
        if (count_kept(cls))
            stk_size_empty_lines(cls);
        pthread_mutex_unlock(&cls->lock);
    }
    for (unsigned i = 0; i < STK_CLASSES && bytes == UINT64_MAX; i++) {
        struct stk_size_class *cls = class_at(pool, i);
        if (cls)
            gone += stk_size_release(pool, stk_size_take_idle(cls));
    }
    while (gone < bytes) {
        struct stk_size_class *from = NULL;
        int64_t oldest = INT64_MAX;
        for (unsigned i = 0; i < STK_CLASSES; i++) {
            struct stk_size_class *cls = class_at(pool, i);
            const int64_t since = cls ? oldest_idle(cls) : INT64_MAX;
            if (since < oldest) {
                oldest = since;
                from = cls;
            }
        }
        if (!from)
            break;
        gone += stk_size_release(pool, take_idle(from, oldest, bytes - gone));
    }
    pthread_mutex_unlock(&pool->reclaim);
    return gone;
}

void stk_size_maintain(struct stk_size_pool *pool)
{
    if (pool->decay_ns < 0)
        return;
    const int64_t now = stk_size_clock();
    if (now < atomic_load_explicit(&pool->next_sweep, memory_order_relaxed) ||
        pthread_mutex_trylock(&pool->reclaim))
        return;
    atomic_store(&pool->next_sweep, now + pool->decay_ns / 4);
    for (unsigned i = 0; i < STK_CLASSES; i++) {
        struct stk_size_class *cls = class_at(pool, i);
        if (!cls)
            continue;
        pthread_mutex_lock(&cls->lock);
        sweep(cls, now);
        pthread_mutex_unlock(&cls->lock);
        stk_size_release(pool,
                         take_idle(cls, now - pool->decay_ns, UINT64_MAX));
    }
    pthread_mutex_unlock(&pool->reclaim);
}

// --- telling ----------------------------------------------------------------

void stk_size_measure(struct stk_size_pool *pool, struct stk_size_use *out)
{
    *out = (struct stk_size_use){ 0 };
    pthread_mutex_lock(&pool->spans_lock);
    for (struct stk_span *span = pool->spans; span; span = span->next) {
        const size_t bytes = atomic_load(&span->cls)->bytes;
        for (uint32_t i = 0; i < span->count; i++) {
            struct stk_size_block *block = &span->blocks[i];
            const uint64_t is =
                atomic_load_explicit(&block->out, memory_order_relaxed);
            if (!is || is & STK_FREE)
                continue;
            out->live++;
            out->used +=
                atomic_load_explicit(&block->asked, memory_order_relaxed);
            out->block_bytes += bytes;
        }
    }
    pthread_mutex_unlock(&pool->spans_lock);
}

uint64_t stk_size_count_free(struct stk_size_class *cls)
{
    pthread_mutex_lock(&cls->lock);
    const uint64_t count = cls->idle_count + count_kept(cls);
    pthread_mutex_unlock(&cls->lock);
    return count;
}

uint64_t stk_size_count_takes(struct stk_size_class *cls)
{
    pthread_mutex_lock(&cls->lock);
    uint64_t takes = atomic_load(&cls->takes);
    for (unsigned i = 1; i <= STK_SHARDS; i++)
        takes +=
            atomic_load_explicit(&cls->line[i].takes, memory_order_relaxed);
    pthread_mutex_unlock(&cls->lock);
    return takes;
}

void stk_size_describe(struct stk_size_pool *pool, struct stk_text *text)
{
    enum { LISTED = 4 };  // the largest classes; of the others the sum
    uint64_t counts[LISTED], total = 0, others = 0;
    size_t sizes[LISTED];
    unsigned listed = 0;
    for (unsigned i = STK_CLASSES; i--;) {
        struct stk_size_class *cls = class_at(pool, i);
        const uint64_t count = cls ? stk_size_count_free(cls) : 0;
        if (!count)
            continue;
        total += count;
        if (listed < LISTED) {
            counts[listed] = count;
            sizes[listed++] = cls->bytes;
        } else {
            others += count;
        }
    }
    if (!total) {
        stk_text_add(text, "no block free");
        return;
    }
    stk_text_addf(text, "%llu blocks free (", (unsigned long long)total);
    for (unsigned i = 0; i < listed; i++) {
        char size[32];
        stk_format_size(sizes[i], size, sizeof(size));
        stk_text_addf(text, "%s%llu of %s", i ? ", " : "",
                      (unsigned long long)counts[i], size);
    }
    if (others)
        stk_text_addf(text, ", %llu smaller", (unsigned long long)others);
    char largest[32];
    stk_format_size(sizes[0], largest, sizeof(largest));
    stk_text_addf(text, "), the largest %s", largest);
}
