// Memory of the device and pinned memory, and what is done when there is none.

#include <stdio.h>
#include <stdlib.h>

#include "driver.h"

// --- hoards -----------------------------------------------------------------

void stk_device_hoard_enter(struct pen_device *dev, struct stk_hoard *hoard)
{
    hoard->busy = 0;
    hoard->leaving = false;
    pthread_mutex_lock(&dev->hoards_lock);
    hoard->next = dev->hoards;
    dev->hoards = hoard;
    pthread_mutex_unlock(&dev->hoards_lock);
}

void stk_device_hoard_leave(struct pen_device *dev, struct stk_hoard *hoard)
{
    if (stk_forked)
        return;
    pthread_mutex_lock(&dev->hoards_lock);
    // Whoever walks the list stands on a busy hoard: it stays linked so long.
    hoard->leaving = true;
    while (hoard->busy)
        pthread_cond_wait(&dev->hoards_changed, &dev->hoards_lock);
    struct stk_hoard **at = &dev->hoards;
    while (*at != hoard)
        at = &(*at)->next;
    *at = hoard->next;
    pthread_mutex_unlock(&dev->hoards_lock);
}

static void each_hoard(struct pen_device *dev,
                       void (*visit)(struct stk_hoard *hoard, void *cookie),
                       void *cookie)
{
    pthread_mutex_lock(&dev->hoards_lock);
    for (struct stk_hoard *h = dev->hoards; h; h = h->next) {
        if (h->leaving)
            continue;
        h->busy++;
        pthread_mutex_unlock(&dev->hoards_lock);
        visit(h, cookie);
        pthread_mutex_lock(&dev->hoards_lock);
        if (--h->busy == 0)
            pthread_cond_broadcast(&dev->hoards_changed);
    }
    pthread_mutex_unlock(&dev->hoards_lock);
}

static void trim_hoard(struct stk_hoard *hoard, void *cookie)
{
    uint64_t *bytes = cookie;
    *bytes += hoard->trim(hoard);
}

static void describe_hoard(struct stk_hoard *hoard, void *cookie)
{
    struct stk_text *text = cookie;
    stk_text_add(text, "; ");
    hoard->describe(hoard, text);
}

// --- when there is none -----------------------------------------------------

static enum pen_status
try_once(struct pen_device *dev, const struct stk_want *want,
         enum pen_status (*attempt)(struct pen_device *dev, void *cookie,
                                    struct pen_error *err),
         void *cookie, struct pen_error *err)
{
    PEN_TRY(stk_ledger_reserve(dev->ledger, want->res, want->bytes, want->owner,
                               err));
    const enum pen_status status = attempt(dev, cookie, err);
    if (status != PEN_OK)
        stk_ledger_cancel(dev->ledger, want->res, want->bytes);
    return status;
}

// What is said when memory has run out: how much was asked for, how much there
// is and who has it. Asking may fail as well; then that part is left out.
static enum pen_status out_of_memory(struct pen_device *dev,
                                     const struct stk_want *want,
                                     uint64_t trimmed, struct pen_error *err)
{
    char asked[32], given[32], there[96] = "", largest[160];
    size_t free_bytes = 0, total = 0;
    stk_format_size(want->bytes, asked, sizeof(asked));
    stk_format_size(trimmed, given, sizeof(given));
    if (STK_CU(dev, NULL, cuMemGetInfo(&free_bytes, &total)) == PEN_OK) {
        char free_text[32], total_text[32];
        stk_format_size(free_bytes, free_text, sizeof(free_text));
        stk_format_size(total, total_text, sizeof(total_text));
        snprintf(there, sizeof(there), "; %s of the device's %s are free",
                 free_text, total_text);
    }
    stk_ledger_largest(dev->ledger, PEN_MEM_BIT((unsigned)want->res), largest,
                       sizeof(largest));
    struct stk_text hoards = { 0 };
    each_hoard(dev, describe_hoard, &hoards);
    pen_error_set(err, want->status, CUDA_ERROR_OUT_OF_MEMORY, dev->where,
                  "%s of %s for %s: %s, also after all work was waited for and "
                  "%s were given back%s%s%s%s",
                  want->call, asked, want->owner ? want->owner : "nobody",
                  want->none, given, there, largest[0] ? "; largest" : "",
                  largest, hoards.data && !hoards.failed ? hoards.data : "");
    stk_text_finish(&hoards);
    return want->status;
}

enum pen_status
stk_memory_get(struct pen_device *dev, const struct stk_want *want,
               enum pen_status (*attempt)(struct pen_device *dev, void *cookie,
                                          struct pen_error *err),
               void *cookie, struct pen_error *err)
{
    struct pen_error first = { 0 };
    enum pen_status status = try_once(dev, want, attempt, cookie, &first);
    if (status != PEN_E_DEVMEM && status != PEN_E_LIMIT) {
        if (status != PEN_OK && err)
            *err = first;
        return status;
    }

    // Blocks whose work is done can be given back, and the driver itself frees
    // some things only then.
    uint64_t trimmed = 0;
    stk_count_blocked(dev);
    PEN_TRY(STK_CU(dev, err, cuCtxSynchronize()));
    each_hoard(dev, trim_hoard, &trimmed);
    status = try_once(dev, want, attempt, cookie, err);
    if (status == PEN_E_DEVMEM)
        return out_of_memory(dev, want, trimmed, err);
    if (status == PEN_OK) {
        char given[32];
        stk_format_size(trimmed, given, sizeof(given));
        pen_log_write(dev->log, PEN_LOG_WARN, "pen.gpu",
                      "%s: memory is short: all work was waited for and %s "
                      "were given back, because: %s",
                      dev->where, given, first.text);
    }
    return status;
}

// --- the device's -----------------------------------------------------------

static enum pen_status nothing_asked(const struct pen_device *dev,
                                     struct pen_error *err)
{
    return pen_error_set(err, PEN_E_ARG, 0, dev->where,
                         "an allocation of 0 bytes was asked for");
}

struct attempt {
    CUdeviceptr address;
    void *memory;
    size_t bytes;
};

static enum pen_status get_device(struct pen_device *dev, void *cookie,
                                  struct pen_error *err)
{
    struct attempt *a = cookie;
    return STK_CU(dev, err, cuMemAlloc(&a->address, a->bytes));
}

enum pen_status stk_device_alloc(struct pen_device *dev, size_t bytes,
                                 const char *owner, const char *site,
                                 uint64_t *out, struct pen_error *err)
{
    *out = 0;
    if (bytes == 0)
        return nothing_asked(dev, err);

    const struct stk_want want = {
        .call = "cuMemAlloc",
        .none = "CUDA_ERROR_OUT_OF_MEMORY",
        .status = PEN_E_DEVMEM,
        .res = STK_RES_CUDA_DEVICE,
        .bytes = bytes,
        .owner = owner,
    };
    struct attempt a = { .bytes = bytes };
    STK_SCOPE scope = { 0 };
    PEN_TRY(stk_scope_enter(&scope, dev, err));
    PEN_TRY(stk_memory_get(dev, &want, get_device, &a, err));
    stk_ledger_enter(dev->ledger, STK_RES_CUDA_DEVICE, a.address, bytes, owner,
                     site);
    *out = a.address;
    return PEN_OK;
}

void stk_device_free(struct pen_device *dev, uint64_t address, size_t bytes)
{
    if (!address || stk_forked)
        return;
    STK_SCOPE scope = { 0 };
    stk_scope_enter_end(&scope, dev);
    // Struck out first: another thread may be given the address at once.
    stk_ledger_remove(dev->ledger, STK_RES_CUDA_DEVICE, address, bytes);
    STK_CU_END(dev, cuMemFree(address));
}

// --- pinned -----------------------------------------------------------------

static enum pen_status get_pinned(struct pen_device *dev, void *cookie,
                                  struct pen_error *err)
{
    // Portable: pinned for the contexts of all devices of a pipeline.
    struct attempt *a = cookie;
    return STK_CU(
        dev, err,
        cuMemHostAlloc(&a->memory, a->bytes, CU_MEMHOSTALLOC_PORTABLE));
}

enum pen_status stk_pinned_alloc(struct pen_device *dev, size_t bytes,
                                 const char *owner, const char *site,
                                 void **out, struct pen_error *err)
{
    *out = NULL;
    if (bytes == 0)
        return nothing_asked(dev, err);

    const struct stk_want want = {
        .call = "cuMemHostAlloc",
        .none = "CUDA_ERROR_OUT_OF_MEMORY, the host has not so much memory to "
                "lock",
        .status = PEN_E_NOMEM,
        .res = STK_RES_HOST_PINNED,
        .bytes = bytes,
        .owner = owner,
    };
    struct attempt a = { .bytes = bytes };
    STK_SCOPE scope = { 0 };
    PEN_TRY(stk_scope_enter(&scope, dev, err));
    PEN_TRY(stk_memory_get(dev, &want, get_pinned, &a, err));
    stk_ledger_enter(dev->ledger, STK_RES_HOST_PINNED, (uintptr_t)a.memory,
                     bytes, owner, site);
    *out = a.memory;
    return PEN_OK;
}

void stk_pinned_free(struct pen_device *dev, void *memory, size_t bytes)
{
    if (!memory || stk_forked)
        return;
    STK_SCOPE scope = { 0 };
    stk_scope_enter_end(&scope, dev);
    stk_ledger_remove(dev->ledger, STK_RES_HOST_PINNED, (uintptr_t)memory,
                      bytes);
    STK_CU_END(dev, cuMemFreeHost(memory));
}
