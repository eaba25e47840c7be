// Streams and points.
//
// A stream numbers its points from 1. Event of point n is ring[(n - 1) %
// STK_RUN_AHEAD], recorded again only when point n is known to be reached; so
// an event stands for point n exactly while n lies in (last - STK_RUN_AHEAD,
// last], and every older point is reached. That is the generation check.

#include "stream.h"

#include <assert.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "../base/str.h"
#include "driver.h"

struct stk_stream {
    struct pen_device *dev;
    CUstream handle;
    _Atomic uint64_t launches;
    _Atomic uint64_t reached;  // highest point known to be reached

    pthread_mutex_t lock;     // guards all below; recording happens under it
    pthread_cond_t changed;   // something to wait for, or stop
    pthread_cond_t progress;  // `reached` has grown
    uint64_t last;            // number of the newest point
    CUevent ring[STK_RUN_AHEAD];
    // The reaper waits on an event without the lock. If its point is found
    // reached meanwhile and the place in the ring is needed, `spare` takes it,
    // so that the event is not recorded again under the waiting thread.
    CUevent held;
    CUevent spare;

    struct stk_wait *waiting;  // ascending by seq
    struct stk_wait_store store;
    pthread_t reaper;
    bool reaping, stop;
    char owner[96];
};

// --- making and ending ------------------------------------------------------

static void event_destroy(struct stk_stream *s, CUevent *event)
{
    if (!*event)
        return;
    stk_ledger_remove(s->dev->ledger, STK_RES_EVENT, (uintptr_t)*event, 0);
    STK_CU_END(s->dev, cuEventDestroy(*event));
    *event = NULL;
}

static enum pen_status event_create(struct stk_stream *s, CUevent *event,
                                    struct pen_error *err)
{
    CUevent made = NULL;
    PEN_TRY(STK_CU(s->dev, err,
                   cuEventCreate(&made, CU_EVENT_BLOCKING_SYNC |
                                            CU_EVENT_DISABLE_TIMING)));
    stk_ledger_add(s->dev->ledger, STK_RES_EVENT, (uintptr_t)made, 0, s->owner,
                   PEN_HERE);
    *event = made;
    return PEN_OK;
}

static enum pen_status create_objects(struct stk_stream *s,
                                      struct pen_error *err)
{
    STK_SCOPE scope = { 0 };
    PEN_TRY(stk_scope_enter(&scope, s->dev, err));
    CUstream handle = NULL;
    PEN_TRY(
        STK_CU(s->dev, err, cuStreamCreate(&handle, CU_STREAM_NON_BLOCKING)));
    s->handle = handle;
    stk_ledger_add(s->dev->ledger, STK_RES_STREAM, (uintptr_t)s->handle, 0,
                   s->owner, PEN_HERE);
    for (unsigned i = 0; i < STK_RUN_AHEAD; i++)
        PEN_TRY(event_create(s, &s->ring[i], err));
    return event_create(s, &s->spare, err);
}

enum pen_status stk_stream_create(struct pen_device *dev, const char *owner,
                                  struct stk_stream **out,
                                  struct pen_error *err)
{
    *out = NULL;
    struct stk_stream *s = calloc(1, sizeof(*s));
    if (!s)
        return pen_error_set(err, PEN_E_NOMEM, 0, owner,
                             "no memory for a stream");
    s->dev = dev;
    strncpy(s->owner, owner ? owner : "", sizeof(s->owner) - 1);
    pthread_mutex_init(&s->lock, NULL);
    pthread_cond_init(&s->changed, NULL);
    pthread_cond_init(&s->progress, NULL);

    enum pen_status status = PEN_E_NOMEM;
    if (stk_wait_reserve(&s->store))
        status = create_objects(s, err);
    else
        pen_error_set(err, status, 0, owner, "no memory for a stream");
    if (status != PEN_OK) {
        stk_stream_destroy(&s);
        return status;
    }
    *out = s;
    return PEN_OK;
}

static void stop_reaper(struct stk_stream *s)
{
    pthread_mutex_lock(&s->lock);
    const bool reaping = s->reaping;
    s->stop = true;
    pthread_cond_signal(&s->changed);
    pthread_mutex_unlock(&s->lock);
    if (!reaping)
        return;
    pthread_join(s->reaper, NULL);
    stk_ledger_remove(s->dev->ledger, STK_RES_THREAD, (uintptr_t)s, 0);
}

void stk_stream_destroy(struct stk_stream **stream)
{
    struct stk_stream *s = *stream;
    *stream = NULL;
    if (!s)
        return;
    if (stk_forked) {
        // The reaper is not in this process, and the lock may be its.
        stk_wait_finish(&s->store);
        free(s);
        return;
    }

    STK_SCOPE scope = { 0 };
    stk_scope_enter_end(&scope, s->dev);
    if (s->handle && stk_wait_wanted(STK_WAIT_STREAM_END))
        STK_CU_END(s->dev, cuStreamSynchronize(s->handle));
    stop_reaper(s);

    for (unsigned i = 0; i < STK_RUN_AHEAD; i++)
        event_destroy(s, &s->ring[i]);
    event_destroy(s, &s->spare);
    if (s->handle) {
        stk_ledger_remove(s->dev->ledger, STK_RES_STREAM, (uintptr_t)s->handle,
                          0);
        STK_CU_END(s->dev, cuStreamDestroy(s->handle));
    }

    stk_wait_finish(&s->store);
    pthread_cond_destroy(&s->progress);
    pthread_cond_destroy(&s->changed);
    pthread_mutex_destroy(&s->lock);
    free(s);
}

uintptr_t stk_stream_handle(const struct stk_stream *stream)
{
    return (uintptr_t)stream->handle;
}

uint64_t stk_stream_launches(const struct stk_stream *stream)
{
    return atomic_load_explicit(&stream->launches, memory_order_relaxed);
}

// --- points -----------------------------------------------------------------

static bool known_reached(const struct stk_stream *s, uint64_t seq)
{
    return seq <= atomic_load_explicit(&s->reached, memory_order_acquire) ||
           stk_device_lost(s->dev);
}

static CUevent *slot(struct stk_stream *s, uint64_t seq)
{
    assert(seq > 0 && seq <= s->last && seq + STK_RUN_AHEAD > s->last);
    return &s->ring[(seq - 1) % STK_RUN_AHEAD];
}

// Note that the driver said so. Under the lock.
static void set_reached(struct stk_stream *s, uint64_t seq)
{
    if (seq > atomic_load_explicit(&s->reached, memory_order_relaxed)) {
        atomic_store_explicit(&s->reached, seq, memory_order_release);
        pthread_cond_broadcast(&s->progress);
    }
}

// --- whether to wait --------------------------------------------------------

// Whether a test has this site leave out its wait: to show which tests fail
// then. Not in an ordinary build.
#ifdef STK_WAIT_SITES_SWITCH
static unsigned long switched_off;

static void read_switch(void)
{
    const char *number = getenv("PENSTOCK_TEST_NO_WAIT");
    switched_off = number ? strtoul(number, NULL, 10) : STK_WAIT_NONE;
}

static bool left_out(enum stk_wait_site site)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    pthread_once(&once, read_switch);
    return site != STK_WAIT_NONE && site == switched_off;
}
#else
static bool left_out(enum stk_wait_site site)
{
    (void)site;
    return false;
}
#endif

bool stk_wait_wanted(enum stk_wait_site site)
{
    return !left_out(site);
}

bool stk_point_pending(struct stk_point point, enum stk_wait_site site)
{
    return stk_wait_wanted(site) && !stk_point_reached(point);
}

// Whether a point is reached, by asking the driver if it is not known. Under
// the lock, with the context current: the event must not be recorded again
// between finding and asking it.
static bool ask(struct stk_stream *s, uint64_t seq)
{
    if (known_reached(s, seq))
        return true;
    struct pen_error err = { 0 };
    const enum pen_status status =
        STK_CU(s->dev, &err, cuEventQuery(*slot(s, seq)));
    if (status == PEN_AGAIN)
        return false;
    if (status == PEN_OK)
        set_reached(s, seq);
    else
        stk_device_lose(s->dev, &err);
    return true;
}

// The same with lock and scope. The scope lies outside the lock, so that
// nothing it might log is logged under it.
static bool ask_unlocked(struct stk_stream *s, uint64_t seq)
{
    if (known_reached(s, seq))
        return true;
    struct pen_error err = { 0 };
    STK_SCOPE scope = { 0 };
    if (stk_scope_enter(&scope, s->dev, &err) != PEN_OK) {
        stk_device_lose(s->dev, &err);
        return true;
    }
    pthread_mutex_lock(&s->lock);
    const bool reached = ask(s, seq);
    pthread_mutex_unlock(&s->lock);
    return reached;
}

bool stk_point_reached(struct stk_point point)
{
    return !point.stream || point.seq == 0 ||
           ask_unlocked(point.stream, point.seq);
}

static enum pen_status record_locked(struct stk_stream *s,
                                     struct stk_point *out,
                                     struct pen_error *err)
{
    if (s->last >= STK_RUN_AHEAD) {
        const uint64_t oldest = s->last - STK_RUN_AHEAD + 1;
        // stk_point_pending() for who has the lock.
        if (stk_wait_wanted(STK_WAIT_EVENT_REUSE) && !ask(s, oldest)) {
            *out = (struct stk_point){ s, oldest };
            return PEN_AGAIN;
        }
    }

    CUevent *event = &s->ring[s->last % STK_RUN_AHEAD];
    if (*event == s->held) {
        *event = s->spare;
        s->spare = s->held;
    }
    PEN_TRY(STK_CU(s->dev, err, cuEventRecord(*event, s->handle)));
    s->last++;
    *out = (struct stk_point){ s, s->last };
    return PEN_OK;
}

enum pen_status stk_stream_record(struct stk_stream *stream,
                                  struct stk_point *out, struct pen_error *err)
{
    *out = (struct stk_point){ 0 };
    pthread_mutex_lock(&stream->lock);
    const enum pen_status status = record_locked(stream, out, err);
    pthread_mutex_unlock(&stream->lock);
    return status;
}

bool stk_stream_has_room(struct stk_stream *stream, unsigned slack,
                         struct stk_point *oldest)
{
    *oldest = (struct stk_point){ 0 };
    if (slack >= STK_RUN_AHEAD)
        slack = STK_RUN_AHEAD - 1;
    const uint64_t most = STK_RUN_AHEAD - slack;

    pthread_mutex_lock(&stream->lock);
    const uint64_t last = stream->last;
    pthread_mutex_unlock(&stream->lock);
    if (last < most)
        return true;
    // More may be recorded while we ask: that is the same as after we asked.
    const uint64_t seq = last - most + 1;
    const struct stk_point point = { stream, seq };
    if (!stk_point_pending(point, STK_WAIT_EVENT_REUSE))
        return true;
    *oldest = point;
    return false;
}

enum pen_status stk_stream_wait(struct stk_stream *stream,
                                struct stk_point point, enum stk_wait_site site,
                                struct pen_error *err)
{
    struct stk_stream *other = point.stream;
    if (!other || other == stream)
        return PEN_OK;

    enum pen_status status = PEN_OK;
    if (stk_point_pending(point, site)) {
        pthread_mutex_lock(&other->lock);
        if (!known_reached(other, point.seq)) {
            const CUevent event = *slot(other, point.seq);
            status = STK_CU(stream->dev, err,
                            cuStreamWaitEvent(stream->handle, event,
                                              CU_EVENT_WAIT_DEFAULT));
        }
        pthread_mutex_unlock(&other->lock);
    }
    // All points of a lost device count as reached, but none of them is good.
    if (status == PEN_OK && stk_device_lost(other->dev))
        return stk_cu_lost(other->dev, err, "cuStreamWaitEvent");
    return status;
}

// --- the reaper -------------------------------------------------------------

// Wait for one point. Called with the lock, which is released meanwhile.
static void reap_one(struct stk_stream *s, uint64_t seq)
{
    struct pen_device *dev = s->dev;
    const CUevent event = *slot(s, seq);
    s->held = event;
    pthread_mutex_unlock(&s->lock);

    const bool was_lost = stk_device_lost(dev);
    struct pen_error err = { 0 };
    enum pen_status status;
    {
        STK_SCOPE scope = { 0 };
        status = stk_scope_enter(&scope, dev, &err);
        if (status == PEN_OK)
            status = STK_CU(dev, &err, cuEventSynchronize(event));
    }
    if (status != PEN_OK)
        stk_device_lose_behind(dev, was_lost, &err);

    pthread_mutex_lock(&s->lock);
    s->held = NULL;
    if (status == PEN_OK)
        set_reached(s, seq);
}

// Take off the waiters whose points are reached: the front of the list.
static struct stk_wait *take_reached(struct stk_stream *s)
{
    struct stk_wait *first = s->waiting;
    struct stk_wait **end = &s->waiting;
    while (*end && known_reached(s, (*end)->seq))
        end = &(*end)->next;
    if (end == &s->waiting)
        return NULL;
    s->waiting = *end;
    *end = NULL;
    return first;
}

static void *run_reaper(void *arg)
{
    struct stk_stream *s = arg;
    pthread_mutex_lock(&s->lock);
    for (;;) {
        while (!s->waiting && !s->stop)
            pthread_cond_wait(&s->changed, &s->lock);
        if (!s->waiting)
            break;
        if (!known_reached(s, s->waiting->seq))
            reap_one(s, s->waiting->seq);
        struct stk_wait *batch = take_reached(s);
        // A lost device reaches everything; who blocks must see it.
        pthread_cond_broadcast(&s->progress);
        pthread_mutex_unlock(&s->lock);
        stk_wait_call(batch);
        pthread_mutex_lock(&s->lock);
        stk_wait_give(&s->store, batch);
    }
    pthread_mutex_unlock(&s->lock);
    return NULL;
}

// Enter a waiter for a point that is not reached. Under the lock.
static enum pen_status add_waiter(struct stk_stream *s, uint64_t seq,
                                  void (*done)(void *cookie), void *cookie,
                                  struct pen_error *err)
{
    if (!s->reaping) {
        PEN_TRY(stk_thread_start(&s->reaper, "pen-reaper", run_reaper, s, err));
        s->reaping = true;
        stk_ledger_add(s->dev->ledger, STK_RES_THREAD, (uintptr_t)s, 0,
                       s->owner, PEN_HERE);
    }
    struct stk_wait *wait = stk_wait_take(&s->store);
    if (!wait)
        return pen_error_set(err, PEN_E_NOMEM, 0, s->owner,
                             "no memory to wait for a point");
    wait->seq = seq;
    wait->done = done;
    wait->cookie = cookie;

    // Nearly always the newest point, and there are few before it.
    struct stk_wait **at = &s->waiting;
    while (*at && (*at)->seq <= seq)
        at = &(*at)->next;
    wait->next = *at;
    *at = wait;
    pthread_cond_signal(&s->changed);
    return PEN_OK;
}

enum pen_status stk_point_when(struct stk_point point, enum stk_wait_site site,
                               void (*done)(void *cookie), void *cookie,
                               struct pen_error *err)
{
    struct stk_stream *s = point.stream;
    bool reached = !stk_point_pending(point, site);
    enum pen_status status = PEN_OK;
    if (!reached) {
        pthread_mutex_lock(&s->lock);
        reached = known_reached(s, point.seq);
        if (!reached)
            status = add_waiter(s, point.seq, done, cookie, err);
        pthread_mutex_unlock(&s->lock);
    }
    if (reached)
        done(cookie);
    return status;
}

enum pen_status stk_point_wait(struct stk_point point, enum stk_wait_site site,
                               struct pen_error *err)
{
    struct stk_stream *s = point.stream;
    if (!s)
        return PEN_OK;
    if (stk_point_pending(point, site)) {
        stk_count_blocked(s->dev);
        pthread_mutex_lock(&s->lock);
        enum pen_status status = PEN_OK;
        if (!known_reached(s, point.seq))
            status = add_waiter(s, point.seq, NULL, NULL, err);
        while (status == PEN_OK && !known_reached(s, point.seq))
            pthread_cond_wait(&s->progress, &s->lock);
        pthread_mutex_unlock(&s->lock);
        if (status != PEN_OK) {
            // No memory or thread for the reaper. Who has to wait before he
            // frees something can do without: for the whole stream.
            STK_SCOPE scope = { 0 };
            PEN_TRY(stk_scope_enter(&scope, s->dev, err));
            PEN_TRY(STK_CU(s->dev, err, cuStreamSynchronize(s->handle)));
        }
    }
    if (stk_device_lost(s->dev))
        return stk_cu_lost(s->dev, err, "cuEventSynchronize");
    return PEN_OK;
}

// --- work -------------------------------------------------------------------

enum pen_status stk_stream_copy(struct stk_stream *stream,
                                enum stk_copy_kind kind, uint64_t dst,
                                uint64_t src, size_t bytes,
                                struct pen_error *err)
{
    struct pen_device *dev = stream->dev;
    const CUstream on = stream->handle;
    void *host_dst = (void *)(uintptr_t)dst;
    const void *host_src = (const void *)(uintptr_t)src;

    if (bytes == 0)
        return PEN_OK;
    switch (kind) {
    case STK_COPY_H2D:
        return STK_CU(dev, err, cuMemcpyHtoDAsync(dst, host_src, bytes, on));
    case STK_COPY_D2H:
        return STK_CU(dev, err, cuMemcpyDtoHAsync(host_dst, src, bytes, on));
    case STK_COPY_D2D:
        return STK_CU(dev, err, cuMemcpyDtoDAsync(dst, src, bytes, on));
    }
    return pen_error_set(err, PEN_E_ARG, 0, stream->owner,
                         "%d is no kind of copy", (int)kind);
}

enum pen_status stk_stream_copy_2d(struct stk_stream *stream,
                                   enum stk_copy_kind kind, uint64_t dst,
                                   size_t dst_pitch, uint64_t src,
                                   size_t src_pitch, size_t row_bytes,
                                   size_t rows, struct pen_error *err)
{
    if (row_bytes == 0 || rows == 0)
        return PEN_OK;
    if (kind < STK_COPY_H2D || kind > STK_COPY_D2D)
        return pen_error_set(err, PEN_E_ARG, 0, stream->owner,
                             "%d is no kind of copy", (int)kind);

    // Copies of whole rows are one piece; the engine is faster at those.
    size_t bytes;
    if (dst_pitch == row_bytes && src_pitch == row_bytes &&
        stk_mul(row_bytes, rows, &bytes))
        return stk_stream_copy(stream, kind, dst, src, bytes, err);

    CUDA_MEMCPY2D copy = {
        .srcMemoryType = CU_MEMORYTYPE_DEVICE,
        .srcDevice = src,
        .srcPitch = src_pitch,
        .dstMemoryType = CU_MEMORYTYPE_DEVICE,
        .dstDevice = dst,
        .dstPitch = dst_pitch,
        .WidthInBytes = row_bytes,
        .Height = rows,
    };
    if (kind == STK_COPY_H2D) {
        copy.srcMemoryType = CU_MEMORYTYPE_HOST;
        copy.srcHost = (const void *)(uintptr_t)src;
        copy.srcDevice = 0;
    } else if (kind == STK_COPY_D2H) {
        copy.dstMemoryType = CU_MEMORYTYPE_HOST;
        copy.dstHost = (void *)(uintptr_t)dst;
        copy.dstDevice = 0;
    }
    return STK_CU(stream->dev, err, cuMemcpy2DAsync(&copy, stream->handle));
}

enum pen_status stk_stream_fill(struct stk_stream *stream, uint64_t address,
                                unsigned char value, size_t bytes,
                                struct pen_error *err)
{
    if (bytes == 0)
        return PEN_OK;
    return STK_CU(stream->dev, err,
                  cuMemsetD8Async(address, value, bytes, stream->handle));
}

enum pen_status stk_stream_launch(struct stk_stream *stream,
                                  struct stk_kernels *kernels, uint32_t entry,
                                  const struct pen_grid *grid, const void *args,
                                  size_t args_size, struct pen_error *err)
{
    const struct pen_kernel_image *image = kernels->image;
    if (entry >= image->count)
        return pen_error_set(err, PEN_E_ARG, 0, image->name,
                             "the kernels \"%s\" have %u entries, there is no "
                             "number %u",
                             image->name, image->count, entry);
    const struct pen_kernel_entry *e = &image->entries[entry];
    if (args_size != e->args_size)
        return pen_error_set(err, PEN_E_ARG, 0, e->name,
                             "the argument block of %s has %u bytes, given "
                             "were %zu",
                             e->name, e->args_size, args_size);
    if (!grid->x || !grid->y || !grid->block_x || !grid->block_y)
        return pen_error_set(err, PEN_E_ARG, 0, e->name,
                             "%s: a grid of %u x %u blocks of %u x %u threads "
                             "is empty",
                             e->name, grid->x, grid->y, grid->block_x,
                             grid->block_y);

    // One parameter, the whole block; the driver only reads it.
    void *params[] = { (void *)(uintptr_t)args };
    const CUfunction kernel = kernels->functions[entry];
    const enum pen_status status =
        STK_CU(stream->dev, err,
               cuLaunchKernel(kernel, grid->x, grid->y, grid->z ? grid->z : 1,
                              grid->block_x, grid->block_y, 1, 0,
                              stream->handle, params, NULL));
    if (status == PEN_OK)
        atomic_fetch_add_explicit(&stream->launches, 1, memory_order_relaxed);
    else if (err)
        snprintf(err->where, sizeof(err->where), "%s", e->name);
    return status;
}
