// The end of a pipeline: drained, waited for, stopped or abandoned, and torn
// down.

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "run.h"

static void synced(void *cookie)
{
    struct pen_pipeline *p = cookie;
    pthread_mutex_lock(&p->sync_lock);
    p->sync_reached = true;
    pthread_cond_broadcast(&p->sync_cond);
    pthread_mutex_unlock(&p->sync_lock);
}

static bool wait_synced(struct pen_pipeline *p, int64_t deadline)
{
    const struct timespec until = { .tv_sec = deadline / 1000000000,
                                    .tv_nsec = deadline % 1000000000 };
    int rc = 0;
    pthread_mutex_lock(&p->sync_lock);
    while (!p->sync_reached && rc != ETIMEDOUT) {
        if (deadline < 0)
            pthread_cond_wait(&p->sync_cond, &p->sync_lock);
        else
            rc = pthread_cond_timedwait(&p->sync_cond, &p->sync_lock, &until);
    }
    const bool reached = p->sync_reached;
    pthread_mutex_unlock(&p->sync_lock);
    return reached;
}

static bool wait_for_point(struct pen_pipeline *p, struct stk_point point,
                           int64_t deadline, struct pen_error *err,
                           enum pen_status *st)
{
    if (!p->sync_asked) {
        p->sync_asked = true;
        *st = stk_point_when(point, STK_WAIT_TEARDOWN, synced, p, err);
        if (*st != PEN_OK) {
            p->sync_asked = false;
            return true;
        }
    }
    if (!wait_synced(p, deadline))
        return false;
    p->sync_asked = p->sync_reached = false;
    return true;
}

// Wait for what is still queued on the stream: only then is a frame that came
// out known to be right, and memory free to go. False when the deadline came
// first. An error of the device is an error of the run.
static bool sync_stream(struct pen_pipeline *p, int64_t deadline)
{
    if (!p->stream)
        return true;
    struct pen_error err = { 0 };
    enum pen_status st = PEN_OK;
    if (p->sync_asked &&
        !wait_for_point(p, (struct stk_point){ 0 }, deadline, &err, &st))
        return false;
    STK_SCOPE scope = { 0 };
    st = stk_scope_enter(&scope, p->device, &err);
    while (st == PEN_OK) {
        struct stk_point point = { 0 };
        const enum pen_status recorded =
            stk_stream_record(p->stream, &point, &err);
        if (recorded < 0) {
            st = recorded;
            break;
        }
        if (!wait_for_point(p, point, deadline, &err, &st))
            return false;
        if (st == PEN_OK && recorded == PEN_OK)
            break;
    }
    if (st == PEN_OK && stk_device_lost(p->device)) {
        STK_SCOPE lost = { 0 };
        st = stk_scope_enter(&lost, p->device, &err);
    }
    if (st < 0)
        stk_pipeline_error(p, NULL, NULL, true, &err);
    return true;
}

// The modules that took more references than they dropped: "a, b".
static void name_keepers(const struct pen_pipeline *p, char *text, size_t size)
{
    size_t used = 0;
    text[0] = 0;
    for (uint32_t n = 0; n < p->module_count && used < size; n++) {
        if (p->modules[n].user.refs > 0)
            used += (size_t)snprintf(text + used, size - used, "%s%s",
                                     used ? ", " : "", p->modules[n].id);
    }
}

static void add_leak(void *cookie, const struct stk_ledger_entry *entry)
{
    // The ledger knows who made a frame, not who kept it.
    char keepers[96] = "";
    if (entry->res == STK_RES_FRAME && *entry->owner)
        name_keepers(cookie, keepers, sizeof(keepers));
    stk_pipeline_leak(cookie, entry->res, *keepers ? keepers : entry->owner,
                      entry->site, entry->bytes, entry->count);
}

static void release_module(struct pen_module *m)
{
    for (unsigned i = 0; i < PEN_MAX_PINS; i++) {
        pen_frame_unref(m->io.in[i]);
        pen_frame_unref(m->io.out[i]);
        m->io.in[i] = m->io.out[i] = NULL;
    }
    stk_actor_close(m);
}

// A frame that a module released once too often, or used afterwards, did no
// harm, but is a fault of the program.
static void report_misuses(struct pen_pipeline *p)
{
    struct pen_error first = { 0 }, err;
    const uint64_t misuses =
        p->frame_pool ? stk_frame_pool_misuses(p->frame_pool, &first) : 0;
    if (!misuses)
        return;
    pen_error_set(&err, PEN_E_STATE, 0, "pipeline",
                  "frames that nobody referred to any more were used or "
                  "released, %llu time%s; the first: %s",
                  (unsigned long long)misuses, misuses == 1 ? "" : "s",
                  first.text);
    stk_pipeline_error(p, NULL, NULL, true, &err);
}

// What the report tells of the pool is kept.
static void release_pool(struct pen_pipeline *p, struct stk_out_pin *pin)
{
    pthread_mutex_lock(&p->plan_lock);
    struct stk_pool *pool = pin->made;
    if (pool) {
        struct stk_pool_stats stats;
        stk_pool_stats(pool, &stats);
        pin->had = stats.blocks;
        pin->needed = stats.max_in_use;
    }
    pin->made = NULL;
    pthread_mutex_unlock(&p->plan_lock);
    stk_pool_destroy(&pool);
}

// Give everything back, in the reverse order; what is then still in the
// ledger is a leak. All tasks are done, or were never started.
static void release_all(struct pen_pipeline *p)
{
    stk_ledger_set_steady(p->ledger, false);
    for (uint32_t n = p->module_count; n-- > 0;)
        release_module(&p->modules[n]);
    for (uint32_t i = 0; i < p->link_count; i++) {
        struct stk_queue *queue = &p->links[i].queue;
        while (queue->ring && stk_queue_peek(queue) != STK_ITEM_NONE &&
               stk_queue_peek(queue) != STK_ITEM_EOS)
            pen_frame_unref(stk_queue_take(queue).frame);
    }
    for (uint32_t n = 0; n < p->module_count; n++) {
        stk_module_reclaim(&p->modules[n]);
        for (unsigned o = 0; o < p->modules[n].outputs; o++)
            release_pool(p, &p->modules[n].out[o]);
    }
    report_misuses(p);
    stk_frame_pool_destroy(&p->frame_pool);

    struct stk_stream *stream = p->stream;
    struct pen_device *device = p->device;
    struct pen_unattributed usage = p->usage;
    if (!p->usage_known ||
        !stk_device_usage(device, &usage.after, &usage.process_after))
        usage = (struct pen_unattributed){ 0 };
    pthread_mutex_lock(&p->plan_lock);
    p->usage = usage;
    p->stream = NULL;
    p->device = NULL;
    if (stream)
        p->launches = stk_stream_launches(stream);
    if (device)
        p->blocked = stk_device_blocked(device);
    pthread_mutex_unlock(&p->plan_lock);
    // A module that kept a frame keeps its memory: that is told as a leak,
    // and stays valid, with the device that it came from.
    if (stk_remains_unused(p->remains)) {
        stk_stream_destroy(&stream);
        pen_device_close(&device);
    }
    p->remains->stream = stream;
    p->remains->device = device;
    stk_ledger_each(p->ledger, add_leak, p);
}

// By name, where sites are kept: an error, or a warning if it may be.
static void report_leaks(struct pen_pipeline *p)
{
    struct pen_error err;
    const struct stk_leak *l = p->leaks;
    if (l && *l->owner)
        pen_error_set(&err, PEN_E_LEAK, 0, l->owner,
                      "%llu bytes of %s were not released (%s); %llu such "
                      "entries in all",
                      (unsigned long long)l->bytes, stk_res_name(l->res),
                      l->site, (unsigned long long)p->leaked);
    else
        pen_error_set(&err, PEN_E_LEAK, 0, "pipeline",
                      "%llu allocations were not released",
                      (unsigned long long)p->leaked);
    if (!p->leaks_fatal)
        pen_log_write(&p->log, PEN_LOG_WARN, "pen.run", "%s: %s", err.where,
                      err.text);
    else if (!atomic_load(&p->failed))
        stk_pipeline_error(p, NULL, NULL, true, &err);
}

void stk_pipeline_tear_down(struct pen_pipeline *p, enum pen_state state)
{
    atomic_store(&p->ended_at, stk_now());
    stk_sched_destroy(&p->sched);
    sync_stream(p, -1);
    release_all(p);
    atomic_store(&p->torn_down, true);

    if (p->leaked)
        report_leaks(p);
    struct pen_stats final;
    stk_pipeline_collect(p, &final);
    pthread_mutex_lock(&p->plan_lock);
    p->final = final;
    p->frozen = true;
    pthread_mutex_unlock(&p->plan_lock);
    stk_pipeline_state_set(p,
                           atomic_load(&p->failed) ? PEN_STATE_FAILED : state);
}

static int64_t deadline_of(int64_t timeout)
{
    const int64_t now = stk_now();
    if (timeout < 0)
        return -1;
    return timeout > INT64_MAX - now ? -1 : now + timeout;
}

static enum pen_status result_of(struct pen_pipeline *p, struct pen_error *err)
{
    if (!atomic_load(&p->failed))
        return PEN_OK;
    pthread_mutex_lock(&p->error_lock);
    struct pen_error result = p->result;
    pthread_mutex_unlock(&p->error_lock);
    // Here a time-out says that the pipeline still runs; that a module had one
    // is in the text, and in the report as it was.
    if (result.status == PEN_E_TIMEOUT)
        result.status = PEN_E_IO;
    if (err)
        *err = result;
    return result.status;
}

// Who has not come back, in `text`.
static void name_stuck(struct pen_pipeline *p, char *text, size_t size)
{
    size_t at = 0;
    text[0] = '\0';
    for (uint32_t n = 0; n < p->module_count && at < size - 1; n++) {
        struct pen_module *m = &p->modules[n];
        const char *call = atomic_load(&m->call);
        if (stk_task_done(&m->task) || !call)
            continue;
        const double seconds =
            (double)(stk_now() - atomic_load(&m->called)) / 1e9;
        const int w =
            snprintf(text + at, size - at, "%s%s has been in %s() for %.1f s",
                     at ? ", " : "", m->id, call, seconds);
        at += w > 0 ? (size_t)w : 0;
    }
    if (!text[0])
        snprintf(text, size,
                 "the device has not finished the work that is "
                 "queued on the pipeline's stream");
}

void pen_pipeline_drain(struct pen_pipeline *pipeline)
{
    struct pen_pipeline *p = pipeline;
    int running = PEN_STATE_RUNNING;
    atomic_store(&p->draining, true);
    if (!atomic_compare_exchange_strong(&p->state, &running,
                                        PEN_STATE_DRAINING))
        return;
    for (uint32_t n = 0; n < p->module_count; n++) {
        if (!p->modules[n].in_links)
            stk_task_wake(&p->modules[n].task);
    }
}

enum pen_status pen_pipeline_wait(struct pen_pipeline *pipeline,
                                  int64_t timeout_ns, struct pen_error *err)
{
    struct pen_pipeline *p = pipeline;
    const enum pen_state state = pen_pipeline_state(p);
    if (state == PEN_STATE_CREATED || state == PEN_STATE_ABANDONED)
        return stk_pipeline_refuse(p, "cannot wait", err);
    if (!atomic_load(&p->torn_down)) {
        const int64_t deadline = deadline_of(timeout_ns);
        if (!stk_sched_wait(p->sched, deadline) || !sync_stream(p, deadline))
            return pen_error_set(err, PEN_E_TIMEOUT, 0, "pipeline", "still %s",
                                 pen_state_name(pen_pipeline_state(p)));
        stk_pipeline_tear_down(p, PEN_STATE_DONE);
    }
    return result_of(p, err);
}

static void free_pipeline(struct pen_pipeline *p);

// Whether nothing can still come back to the memory of an abandoned pipeline:
// no thread is in it, and the device has done what was queued. Needs the lock.
static bool is_deserted(const struct pen_pipeline *p)
{
    return p->threads_left && (!p->sync_asked || p->sync_reached);
}

// The last thread of an abandoned pipeline leaves.
static void last_left(void *cookie)
{
    struct pen_pipeline *p = cookie;
    pthread_mutex_lock(&p->sync_lock);
    p->threads_left = true;
    const bool last = p->orphan && is_deserted(p);
    pthread_mutex_unlock(&p->sync_lock);
    if (last)
        free_pipeline(p);
}

static enum pen_status abandon(struct pen_pipeline *p, struct pen_error *err)
{
    char stuck[400];
    name_stuck(p, stuck, sizeof(stuck));
    struct pen_error why;
    pen_error_set(&why, PEN_E_TIMEOUT, 0, "pipeline",
                  "could not be stopped in time: %s", stuck);
    stk_pipeline_error(p, NULL, NULL, true, &why);
    atomic_store(&p->ended_at, stk_now());
    stk_pipeline_state_set(p, PEN_STATE_ABANDONED);
    struct stk_sched *sched = p->sched;
    if (stk_sched_abandon(sched, last_left, p))
        p->sched = NULL;
    else
        p->threads_left = true;
    if (err)
        *err = why;
    return PEN_E_TIMEOUT;
}

enum pen_status pen_pipeline_stop(struct pen_pipeline *pipeline,
                                  int64_t deadline_ns, struct pen_error *err)
{
    struct pen_pipeline *p = pipeline;
    if (atomic_load(&p->torn_down))
        return PEN_OK;
    if (pen_pipeline_state(p) == PEN_STATE_ABANDONED)
        return stk_pipeline_refuse(p, "cannot stop", err);
    if (pen_pipeline_state(p) == PEN_STATE_CREATED) {
        stk_pipeline_tear_down(p, PEN_STATE_STOPPED);
        return PEN_OK;
    }
    const int64_t deadline = deadline_of(deadline_ns);
    // It may have come to its end by itself just now.
    const bool ended = stk_sched_wait(p->sched, 0);
    atomic_store(&p->stopping, true);
    stk_pipeline_wake(p);
    if (!stk_sched_wait(p->sched, deadline) || !sync_stream(p, deadline))
        return abandon(p, err);
    stk_pipeline_tear_down(p, ended ? PEN_STATE_DONE : PEN_STATE_STOPPED);
    return PEN_OK;
}

// Everything is given back; `p` itself at last.
static void free_pipeline(struct pen_pipeline *p)
{
    if (!atomic_load(&p->torn_down))
        stk_pipeline_tear_down(p, pen_pipeline_state(p));
    for (uint32_t n = 0; n < p->module_count; n++) {
        pthread_mutex_destroy(&p->modules[n].block_lock);
        free(p->modules[n].state);
    }
    for (uint32_t i = 0; p->links && i < p->link_count; i++)
        stk_queue_finish(&p->links[i].queue);
    free(p->modules);
    free(p->links);
    free(p->link_lists);
    free(p->leaks);
    pen_plan_destroy(&p->plan);
    stk_remains_drop(p->remains);
    pthread_cond_destroy(&p->sync_cond);
    pthread_mutex_destroy(&p->sync_lock);
    pthread_mutex_destroy(&p->error_lock);
    pthread_mutex_destroy(&p->plan_lock);
    free(p);
}

void pen_pipeline_destroy(struct pen_pipeline **pipeline)
{
    struct pen_pipeline *p = *pipeline;
    *pipeline = NULL;
    if (!p)
        return;
    const enum pen_state state = pen_pipeline_state(p);
    if (!atomic_load(&p->torn_down) && state != PEN_STATE_CREATED &&
        state != PEN_STATE_ABANDONED) {
        struct pen_error err;
        // The state tells whether it worked.
        if (pen_pipeline_stop(p, 5000000000, &err) != PEN_OK)
            pen_log_write(&p->log, PEN_LOG_ERROR, "pen.run", "%s", err.text);
    }
    atomic_store(&p->user_log, NULL);
    if (pen_pipeline_state(p) == PEN_STATE_ABANDONED) {
        pthread_mutex_lock(&p->sync_lock);
        const bool deserted = is_deserted(p);
        p->orphan = true;
        pthread_mutex_unlock(&p->sync_lock);
        // Its last thread frees it, if that ever comes back.
        if (!deserted)
            return;
    }
    free_pipeline(p);
}
