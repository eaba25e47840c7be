// Images of kernels: loaded once per device.

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "driver.h"

void stk_kernels_prefer(struct pen_device *dev, const char *binary)
{
    dev->prefer_ptx = binary && strcmp(binary, "ptx") == 0;
}

struct stk_kernels *stk_kernels_find(const struct pen_device *dev,
                                     const struct pen_kernel_image *image)
{
    struct stk_kernels *k =
        atomic_load_explicit(&dev->kernels, memory_order_acquire);
    while (k && k->image != image)
        k = k->next;
    return k;
}

static enum pen_status check_image(const struct pen_kernel_image *image,
                                   struct pen_error *err)
{
    if (image->magic != PEN_KERNEL_MAGIC || image->abi != PEN_KERNEL_ABI)
        return pen_error_set(err, PEN_E_ARG, 0, "kernels",
                             "a kernel image of another make: magic %llx, ABI "
                             "%u instead of %llx, %u",
                             (unsigned long long)image->magic, image->abi,
                             (unsigned long long)PEN_KERNEL_MAGIC,
                             (unsigned)PEN_KERNEL_ABI);
    if (image->count == 0 || image->count > PEN_MAX_KERNELS || !image->entries)
        return pen_error_set(err, PEN_E_ARG, 0, image->name,
                             "the kernel image \"%s\" has %u entries, allowed "
                             "are 1 to %d",
                             image->name, image->count, PEN_MAX_KERNELS);
    return PEN_OK;
}

// What the driver is given of an image.
static enum pen_status pick_binary(const struct pen_device *dev,
                                   const struct pen_kernel_image *image,
                                   const void **data, const char **kind,
                                   struct pen_error *err)
{
    if (dev->info.emulated) {
        *kind = "host";
        *data = image;
    } else if (image->fatbin && !(dev->prefer_ptx && image->ptx)) {
        *kind = "fatbin";
        *data = image->fatbin;
    } else if (image->ptx) {
        *kind = "ptx";
        *data = image->ptx;
    } else {
        return pen_error_set(err, PEN_E_UNSUPPORTED, 0, image->name,
                             "the kernels \"%s\" were built for the emulated "
                             "device only: build with clang (PTX) or nvcc",
                             image->name);
    }
    return PEN_OK;
}

// Say in an error of the driver which image and entry it is about.
static enum pen_status name_kernels(enum pen_status status,
                                    struct pen_error *err, const char *image,
                                    const char *kind, const char *entry)
{
    if (status != PEN_OK && err)
        snprintf(err->where, sizeof(err->where), "kernels %s (%s)%s%s", image,
                 kind, entry ? " " : "", entry ? entry : "");
    return status;
}

static enum pen_status load(struct pen_device *dev, struct stk_kernels *k,
                            struct pen_error *err)
{
    const struct pen_kernel_image *image = k->image;
    const void *data = NULL;
    const char *kind = NULL;
    STK_SCOPE scope = { 0 };
    PEN_TRY(pick_binary(dev, image, &data, &kind, err));
    PEN_TRY(stk_scope_enter(&scope, dev, err));
    PEN_TRY(name_kernels(STK_CU(dev, err, cuModuleLoadData(&k->module, data)),
                         err, image->name, kind, NULL));
    for (uint32_t i = 0; i < image->count; i++) {
        const char *entry = image->entries[i].name;
        enum pen_status status = STK_CU(
            dev, err, cuModuleGetFunction(&k->functions[i], k->module, entry));
        // Drivers from 12.2 on load a kernel at its first launch, and may wait
        // for the whole context then: not in the middle of a run.
        if (status == PEN_OK && STK_CU_HAS(dev, cuFuncLoad))
            status = STK_CU(dev, err, cuFuncLoad(k->functions[i]));
        if (status != PEN_OK) {
            STK_CU_END(dev, cuModuleUnload(k->module));
            return name_kernels(status, err, image->name, kind, entry);
        }
    }
    stk_ledger_add(dev->ledger, STK_RES_KERNELS, (uintptr_t)k, 0,
                   *dev->owner ? dev->owner : image->name, PEN_HERE);
    return PEN_OK;
}

static enum pen_status load_locked(struct pen_device *dev,
                                   const struct pen_kernel_image *image,
                                   struct stk_kernels **out,
                                   struct pen_error *err)
{
    *out = stk_kernels_find(dev, image);
    if (*out)
        return PEN_OK;

    struct stk_kernels *k = calloc(1, sizeof(*k));
    if (!k)
        return pen_error_set(err, PEN_E_NOMEM, 0, image->name,
                             "no memory for the kernels \"%s\"", image->name);
    k->image = image;
    const enum pen_status status = load(dev, k, err);
    if (status != PEN_OK) {
        free(k);
        return status;
    }
    k->next = atomic_load(&dev->kernels);
    atomic_store_explicit(&dev->kernels, k, memory_order_release);
    *out = k;
    return PEN_OK;
}

enum pen_status stk_kernels_load(struct pen_device *dev,
                                 const struct pen_kernel_image *image,
                                 struct stk_kernels **out,
                                 struct pen_error *err)
{
    *out = NULL;
    PEN_TRY(check_image(image, err));
    PEN_TRY(stk_not_forked(err));
    pthread_mutex_lock(&dev->kernels_lock);
    const enum pen_status status = load_locked(dev, image, out, err);
    pthread_mutex_unlock(&dev->kernels_lock);
    return status;
}

void stk_kernels_unload(struct pen_device *dev)
{
    struct stk_kernels *list = atomic_load(&dev->kernels);
    if (!list)
        return;
    STK_SCOPE scope = { 0 };
    stk_scope_enter_end(&scope, dev);
    while (list) {
        struct stk_kernels *next = list->next;
        if (!stk_forked)
            stk_ledger_remove(dev->ledger, STK_RES_KERNELS, (uintptr_t)list, 0);
        STK_CU_END(dev, cuModuleUnload(list->module));
        free(list);
        list = next;
    }
}
