// Waiting for everything that was queued in the context.

#include "driver.h"
#include "stream.h"

static void wait_for_context(struct pen_device *dev)
{
    const bool was_lost = stk_device_lost(dev);
    struct pen_error err = { 0 };
    STK_SCOPE scope = { 0 };
    enum pen_status status = stk_scope_enter(&scope, dev, &err);
    if (status == PEN_OK && stk_wait_wanted(STK_WAIT_CONTEXT))
        status = STK_CU(dev, &err, cuCtxSynchronize());
    // Whoever waits is told that the work is done; if that is not known,
    // nothing that comes after may be taken for good.
    if (status != PEN_OK)
        stk_device_lose_behind(dev, was_lost, &err);
}

static void *run_idle(void *arg)
{
    struct pen_device *dev = arg;
    struct stk_idle *idle = &dev->idle;

    pthread_mutex_lock(&idle->lock);
    for (;;) {
        while (!idle->first && !idle->stop)
            pthread_cond_wait(&idle->changed, &idle->lock);
        if (!idle->first)
            break;
        // Who asks from now on wants a wait that starts later.
        struct stk_wait *batch = idle->first;
        idle->first = idle->last = NULL;
        pthread_mutex_unlock(&idle->lock);

        wait_for_context(dev);
        stk_wait_call(batch);

        pthread_mutex_lock(&idle->lock);
        stk_wait_give(&idle->store, batch);
    }
    pthread_mutex_unlock(&idle->lock);
    return NULL;
}

static enum pen_status when_idle_locked(struct pen_device *dev,
                                        void (*done)(void *cookie),
                                        void *cookie, struct pen_error *err)
{
    struct stk_idle *idle = &dev->idle;
    if (!idle->started) {
        PEN_TRY(
            stk_thread_start(&idle->thread, "pen-idle", run_idle, dev, err));
        idle->started = true;
        stk_ledger_add(dev->ledger, STK_RES_THREAD, (uintptr_t)idle, 0,
                       dev->where, PEN_HERE);
    }
    struct stk_wait *wait = stk_wait_take(&idle->store);
    if (!wait)
        return pen_error_set(err, PEN_E_NOMEM, 0, dev->where,
                             "no memory to wait for the context");
    wait->done = done;
    wait->cookie = cookie;
    if (idle->last)
        idle->last->next = wait;
    else
        idle->first = wait;
    idle->last = wait;
    pthread_cond_signal(&idle->changed);
    return PEN_OK;
}

enum pen_status stk_device_when_idle(struct pen_device *dev,
                                     void (*done)(void *cookie), void *cookie,
                                     struct pen_error *err)
{
    PEN_TRY(stk_not_forked(err));
    pthread_mutex_lock(&dev->idle.lock);
    const enum pen_status status = when_idle_locked(dev, done, cookie, err);
    pthread_mutex_unlock(&dev->idle.lock);
    return status;
}

void stk_idle_stop(struct pen_device *dev)
{
    struct stk_idle *idle = &dev->idle;
    if (!idle->started || stk_forked)
        return;
    pthread_mutex_lock(&idle->lock);
    idle->stop = true;
    pthread_cond_signal(&idle->changed);
    pthread_mutex_unlock(&idle->lock);
    pthread_join(idle->thread, NULL);
    stk_ledger_remove(dev->ledger, STK_RES_THREAD, (uintptr_t)idle, 0);
}
