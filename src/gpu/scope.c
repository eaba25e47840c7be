// Whether a device can be used, and making its context current.

#include "driver.h"
#include "stream.h"

// --- losing the device ------------------------------------------------------

bool stk_device_lost(const struct pen_device *dev)
{
    return atomic_load_explicit(&dev->lost, memory_order_acquire) !=
               STK_LOST_NO ||
           atomic_load_explicit(&stk_forked, memory_order_relaxed);
}

void stk_device_lose(struct pen_device *dev, const struct pen_error *cause)
{
    int expected = STK_LOST_NO;
    if (!atomic_compare_exchange_strong(&dev->lost, &expected,
                                        STK_LOST_SETTING))
        return;
    dev->cause = *cause;
    atomic_store_explicit(&dev->lost, STK_LOST_YES, memory_order_release);
}

void stk_device_lose_behind(struct pen_device *dev, bool was_lost,
                            const struct pen_error *cause)
{
    stk_device_lose(dev, cause);
    if (!was_lost)
        pen_log_write(dev->log, PEN_LOG_ERROR, "pen.gpu",
                      "%s: the device is given up: while waiting for it: %s",
                      dev->where, cause->text);
}

// --- the current context ----------------------------------------------------

enum pen_status stk_scope_enter(struct stk_scope *scope, struct pen_device *dev,
                                struct pen_error *err)
{
    CUcontext before = NULL;
    PEN_TRY(STK_CU(dev, err, cuCtxGetCurrent(&before)));
    if (before != dev->context)
        PEN_TRY(STK_CU(dev, err, cuCtxPushCurrent(dev->context)));
    *scope = (struct stk_scope){ .dev = dev, .before = before };
    return PEN_OK;
}

bool stk_scope_enter_end(struct stk_scope *scope, struct pen_device *dev)
{
    CUcontext before = NULL, now = NULL;
    STK_CU_END(dev, cuCtxGetCurrent(&before));
    if (before == dev->context)
        return true;
    STK_CU_END(dev, cuCtxPushCurrent(dev->context));
    STK_CU_END(dev, cuCtxGetCurrent(&now));
    if (now != dev->context)
        return false;
    *scope = (struct stk_scope){ .dev = dev, .before = before };
    return true;
}

// Somebody called inside the scope left the stack of contexts otherwise than
// found. Take off what lies on what was there before; put that back if it is
// gone as well.
static void restore(struct pen_device *dev, CUcontext before)
{
    enum { DEEPEST = 64 };  // of what a module might have left
    for (unsigned i = 0; i < DEEPEST; i++) {
        CUcontext top = NULL;
        STK_CU_END(dev, cuCtxGetCurrent(&top));
        if (top == before)
            return;
        if (!top) {
            STK_CU_END(dev, cuCtxPushCurrent(before));
            return;
        }
        STK_CU_END(dev, cuCtxPopCurrent(&top));
    }
}

void stk_scope_leave(struct stk_scope *scope)
{
    struct pen_device *dev = scope->dev;
    if (!dev)
        return;
    scope->dev = NULL;

    // Where the driver does not answer, what it was asked for keeps the value
    // that speaks for the caller: a failure is nobody's disturbance.
    CUcontext top = dev->context;
    STK_CU_END(dev, cuCtxGetCurrent(&top));
    bool as_found = top == dev->context, answered = true;
    if (scope->before != dev->context) {
        if (as_found) {
            // Ours may have been pushed once more: what lies below tells.
            CUcontext popped = NULL;
            STK_CU_END(dev, cuCtxPopCurrent(&popped));
            answered = popped != NULL;
            top = scope->before;
            STK_CU_END(dev, cuCtxGetCurrent(&top));
            as_found = top == scope->before;
        }
        if (!as_found)
            restore(dev, scope->before);
    }
    // An inner scope pushed nothing and leaves repair to the outer one.
    if (!as_found && answered)
        atomic_fetch_add_explicit(&dev->disturbed, 1, memory_order_relaxed);
}

uint64_t stk_device_disturbed(const struct pen_device *dev)
{
    return atomic_load_explicit(&dev->disturbed, memory_order_relaxed);
}

// --- threads that must not wait ---------------------------------------------

static _Thread_local bool must_not_block;

void stk_thread_must_not_block(bool on)
{
    must_not_block = on;
}

void stk_count_blocked(struct pen_device *dev)
{
    if (must_not_block)
        atomic_fetch_add_explicit(&dev->blocked, 1, memory_order_relaxed);
}

uint64_t stk_device_blocked(const struct pen_device *dev)
{
    return atomic_load_explicit(&dev->blocked, memory_order_relaxed);
}
