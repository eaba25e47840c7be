// Devices: choosing one, its primary context, its memory and its kernels.

#include "driver.h"

#include <dlfcn.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "../base/str.h"

// --- losing the device ------------------------------------------------------

bool stk_device_lost(const struct pen_device *dev)
{
    return atomic_load_explicit(&dev->lost, memory_order_acquire) !=
           STK_LOST_NO;
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

// --- choosing a device ------------------------------------------------------

enum choice_kind { CHOOSE_FIRST = 0, CHOOSE_INDEX, CHOOSE_UUID, EMULATED };

struct choice {
    enum choice_kind kind;
    int index;
    const char *uuid;
};

static bool is_index(const char *text)
{
    const size_t length = strlen(text);
    return length > 0 && length < 10 && strspn(text, "0123456789") == length;
}

static enum pen_status parse_selector(const char *text, struct choice *out,
                                      struct pen_error *err)
{
    *out = (struct choice){ 0 };
    if (!text || strcmp(text, "cuda") == 0)
        out->kind = CHOOSE_FIRST;
    else if (strcmp(text, "emulated") == 0)
        out->kind = EMULATED;
    else if (is_index(text))
        *out = (struct choice){ CHOOSE_INDEX, atoi(text), NULL };
    else if (strncasecmp(text, "GPU-", 4) == 0)
        *out = (struct choice){ CHOOSE_UUID, 0, text };
    else
        return pen_error_set(err, PEN_E_ARG, 0, "device",
                             "\"%s\" is no device: give an index (0, 1, ...), "
                             "a UUID (GPU-...), \"cuda\" or \"emulated\"",
                             text);
    return PEN_OK;
}

static enum pen_status load_real(struct pen_device *dev, const char *path,
                                 struct pen_error *err)
{
    struct pen_error why = { 0 };
    const char *library = path ? path : "libcuda.so.1";
    if (stk_driver_open(library, &dev->cu, &why) == PEN_OK)
        return PEN_OK;
    if (why.native == 0)
        return pen_error_set(err, why.status, 0, library,
                             "%s; there is no NVIDIA driver here: install it, "
                             "start containers with their GPUs (--gpus all), "
                             "or choose the device \"emulated\"",
                             why.text);
    if (why.native == CUDA_ERROR_SHARED_OBJECT_INIT_FAILED)
        return pen_error_set(err, why.status, why.native, library,
                             "%s; the driver's library is there but cannot be "
                             "loaded: install the NVIDIA driver again",
                             why.text);
    if (err)
        *err = why;
    return why.status;
}

// The places of the emulated device's library, relative to the library (or
// program) that this code is part of: installed beside it, in a bundle, in
// the build folder.
static const char *const emulator_places[] = {
    "libpenstock-emu.so",
    "penstock/libpenstock-emu.so",
    "../emu/libpenstock-emu.so",
};

static enum pen_status load_emulator(struct pen_device *dev, const char *path,
                                     struct pen_error *err)
{
    if (path)
        return stk_driver_open(path, &dev->cu, err);

    Dl_info self;
    const char *file = "";
    if (dladdr((const void *)emulator_places, &self) && self.dli_fname)
        file = self.dli_fname;
    const char *slash = strrchr(file, '/');
    const int folder = slash ? (int)(slash - file) : 1;
    if (!slash)
        file = ".";

    const size_t count = sizeof(emulator_places) / sizeof(emulator_places[0]);
    char library[PATH_MAX];
    for (size_t i = 0; i < count; i++) {
        const int length = snprintf(library, sizeof(library), "%.*s/%s", folder,
                                    file, emulator_places[i]);
        if (length < (int)sizeof(library) && access(library, F_OK) == 0)
            return stk_driver_open(library, &dev->cu, err);
    }
    return pen_error_set(err, PEN_E_NODRIVER, 0, "emulated",
                         "the library of the emulated device was not found: "
                         "looked in %.*s for %s, %s and %s",
                         folder < 256 ? folder : 256, file, emulator_places[0],
                         emulator_places[1], emulator_places[2]);
}

// Load the library and start it. *count is the number of its devices.
static enum pen_status start_driver(struct pen_device *dev,
                                    const struct pen_device_params *params,
                                    bool emulated, int *count,
                                    struct pen_error *err)
{
    dev->info.emulated = emulated;
    snprintf(dev->where, sizeof(dev->where), "%s",
             emulated ? "emulated" : "cuda");
    PEN_TRY(emulated ? load_emulator(dev, params->emulator, err)
                     : load_real(dev, params->driver, err));

    // Until here the driver has promised nothing: whatever it answers means
    // that there is no usable one.
    struct pen_error why = { 0 };
    enum pen_status status = STK_CU(dev, &why, cuInit(0));
    if (status == PEN_OK)
        status = STK_CU(dev, &why, cuDeviceGetCount(count));
    if (status == PEN_OK && *count <= 0)
        status = stk_cu_result(dev, &why, CUDA_ERROR_NO_DEVICE,
                               "cuDeviceGetCount(count)");
    if (status != PEN_OK) {
        why.status = PEN_E_NODRIVER;
        if (err)
            *err = why;
        return PEN_E_NODRIVER;
    }
    return STK_CU(dev, err, cuDriverGetVersion(&dev->info.driver_version));
}

static void format_uuid(const CUuuid *uuid, char *out, size_t size)
{
    const unsigned char *b = (const unsigned char *)uuid->bytes;
    snprintf(out, size,
             "GPU-%02x%02x%02x%02x-%02x%02x-%02x%02x-%02x%02x-"
             "%02x%02x%02x%02x%02x%02x",
             b[0], b[1], b[2], b[3], b[4], b[5], b[6], b[7], b[8], b[9], b[10],
             b[11], b[12], b[13], b[14], b[15]);
}

// Fill in dev->info and dev->device for one device of a started driver.
static enum pen_status read_device(struct pen_device *dev, int index,
                                   struct pen_error *err)
{
    struct pen_device_info *info = &dev->info;
    CUuuid uuid = { 0 };
    size_t total = 0;

    info->index = index;
    PEN_TRY(STK_CU(dev, err, cuDeviceGet(&dev->device, index)));
    PEN_TRY(STK_CU(
        dev, err,
        cuDeviceGetName(info->name, (int)sizeof(info->name), dev->device)));
    info->name[sizeof(info->name) - 1] = '\0';
    PEN_TRY(STK_CU(dev, err, cuDeviceGetUuid(&uuid, dev->device)));
    format_uuid(&uuid, info->uuid, sizeof(info->uuid));
    PEN_TRY(STK_CU(dev, err, cuDeviceTotalMem(&total, dev->device)));
    info->total_bytes = total;

    const struct {
        CUdevice_attribute attribute;
        int *value;
    } wanted[] = {
        { CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR, &info->sm_major },
        { CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR, &info->sm_minor },
        { CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT, &info->multiprocessors },
    };
    for (size_t i = 0; i < sizeof(wanted) / sizeof(wanted[0]); i++)
        PEN_TRY(STK_CU(dev, err,
                       cuDeviceGetAttribute(wanted[i].value,
                                            wanted[i].attribute, dev->device)));
    return PEN_OK;
}

static enum pen_status choose_index(struct pen_device *dev, int index,
                                    int count, struct pen_error *err)
{
    if (index < count)
        return read_device(dev, index, err);
    return pen_error_set(err, PEN_E_NODRIVER, CUDA_ERROR_INVALID_DEVICE,
                         dev->where,
                         "there is no device %d: the driver sees %d, numbered "
                         "from 0; see nvidia-smi and CUDA_VISIBLE_DEVICES",
                         index, count);
}

static enum pen_status choose_uuid(struct pen_device *dev, const char *uuid,
                                   int count, struct pen_error *err)
{
    struct stk_text there = { 0 };
    for (int i = 0; i < count; i++) {
        const enum pen_status status = read_device(dev, i, err);
        if (status != PEN_OK || strcasecmp(dev->info.uuid, uuid) == 0) {
            stk_text_finish(&there);
            return status;
        }
        stk_text_addf(&there, "%s%s (%d, %s)", i ? ", " : "", dev->info.uuid, i,
                      dev->info.name);
    }
    char *list = stk_text_take(&there);
    pen_error_set(err, PEN_E_NODRIVER, CUDA_ERROR_INVALID_DEVICE, dev->where,
                  "there is no device %s: the driver sees %s", uuid,
                  list ? list : "others");
    free(list);
    return PEN_E_NODRIVER;
}

// --- opening and closing ----------------------------------------------------

static struct pen_device *device_new(const struct pen_device_params *params,
                                     struct stk_ledger *ledger)
{
    struct pen_device *dev = calloc(1, sizeof(*dev));
    if (!dev)
        return NULL;
    dev->ledger = ledger;
    dev->log = params->log;
    pthread_mutex_init(&dev->kernels_lock, NULL);
    pthread_mutex_init(&dev->idle.lock, NULL);
    pthread_cond_init(&dev->idle.changed, NULL);
    return dev;
}

static void device_free(struct pen_device *dev)
{
    stk_wait_finish(&dev->idle.store);
    pthread_cond_destroy(&dev->idle.changed);
    pthread_mutex_destroy(&dev->idle.lock);
    pthread_mutex_destroy(&dev->kernels_lock);
    free(dev);
}

static enum pen_status retain(struct pen_device *dev, struct pen_error *err)
{
    const enum pen_status status =
        STK_CU(dev, err, cuDevicePrimaryCtxRetain(&dev->context, dev->device));
    if (status != PEN_OK) {
        dev->context = NULL;
        return status;
    }
    // Every retain of a device gives the same handle; ours is one of several.
    stk_ledger_add(dev->ledger, STK_RES_CONTEXT, (uintptr_t)dev, 0, dev->where,
                   PEN_HERE);
    return PEN_OK;
}

static enum pen_status open_chosen(struct pen_device *dev,
                                   const struct pen_device_params *params,
                                   struct pen_error *err)
{
    struct choice choice;
    int count = 0;
    PEN_TRY(parse_selector(params->selector, &choice, err));
    PEN_TRY(start_driver(dev, params, choice.kind == EMULATED, &count, err));
    PEN_TRY(choice.kind == CHOOSE_UUID
                ? choose_uuid(dev, choice.uuid, count, err)
                : choose_index(dev, choice.index, count, err));
    if (choice.kind != EMULATED)
        snprintf(dev->where, sizeof(dev->where), "cuda:%d", dev->info.index);
    return retain(dev, err);
}

enum pen_status stk_device_open(const struct pen_device_params *params,
                                struct stk_ledger *ledger,
                                struct pen_device **out, struct pen_error *err)
{
    static const struct pen_device_params defaults = { 0 };
    if (!params)
        params = &defaults;

    *out = NULL;
    struct pen_device *dev = device_new(params, ledger);
    if (!dev)
        return pen_error_set(err, PEN_E_NOMEM, 0, "device",
                             "no memory for a device");
    const enum pen_status status = open_chosen(dev, params, err);
    if (status != PEN_OK) {
        pen_device_close(&dev);
        return status;
    }
    pen_log_write(dev->log, PEN_LOG_DEBUG, "pen.gpu",
                  "%s: %s, %s, driver %d.%d", dev->where, dev->info.name,
                  dev->info.uuid, dev->info.driver_version / 1000,
                  dev->info.driver_version % 1000 / 10);
    *out = dev;
    return PEN_OK;
}

enum pen_status pen_device_open(const struct pen_device_params *params,
                                struct pen_device **out, struct pen_error *err)
{
    return stk_device_open(params, NULL, out, err);
}

static void stop_idle(struct pen_device *dev)
{
    struct stk_idle *idle = &dev->idle;
    if (!idle->started)
        return;
    pthread_mutex_lock(&idle->lock);
    idle->stop = true;
    pthread_cond_signal(&idle->changed);
    pthread_mutex_unlock(&idle->lock);
    pthread_join(idle->thread, NULL);
    stk_ledger_remove(dev->ledger, STK_RES_THREAD, (uintptr_t)idle, 0);
}

static void unload_kernels(struct pen_device *dev)
{
    struct stk_kernels *list = atomic_load(&dev->kernels);
    if (!list)
        return;
    STK_SCOPE scope = { 0 };
    stk_scope_enter_end(&scope, dev);
    while (list) {
        struct stk_kernels *next = list->next;
        stk_ledger_remove(dev->ledger, STK_RES_KERNELS, (uintptr_t)list, 0);
        STK_CU_END(dev, cuModuleUnload(list->module));
        free(list);
        list = next;
    }
}

void pen_device_close(struct pen_device **devp)
{
    struct pen_device *dev = *devp;
    *devp = NULL;
    if (!dev)
        return;

    stop_idle(dev);
    unload_kernels(dev);
    if (dev->context) {
        stk_ledger_remove(dev->ledger, STK_RES_CONTEXT, (uintptr_t)dev, 0);
        STK_CU_END(dev, cuDevicePrimaryCtxRelease(dev->device));
    }
    device_free(dev);
}

// --- information ------------------------------------------------------------

enum pen_status pen_device_get_info(struct pen_device *dev,
                                    struct pen_device_info *out,
                                    struct pen_error *err)
{
    size_t free_bytes = 0, total = 0;
    STK_SCOPE scope = { 0 };
    PEN_TRY(stk_scope_enter(&scope, dev, err));
    PEN_TRY(STK_CU(dev, err, cuMemGetInfo(&free_bytes, &total)));
    *out = dev->info;
    out->free_bytes = free_bytes;
    return PEN_OK;
}

enum pen_status pen_device_list(const struct pen_device_params *params,
                                struct pen_device_info *out, size_t room,
                                size_t *count, struct pen_error *err)
{
    static const struct pen_device_params defaults = { 0 };
    if (!params)
        params = &defaults;

    *count = 0;
    struct choice choice;
    PEN_TRY(parse_selector(params->selector, &choice, err));
    struct pen_device *dev = device_new(params, NULL);
    if (!dev)
        return pen_error_set(err, PEN_E_NOMEM, 0, "device",
                             "no memory for a device");

    int found = 0;
    enum pen_status status =
        start_driver(dev, params, choice.kind == EMULATED, &found, err);
    for (int i = 0; status == PEN_OK && i < found && (size_t)i < room; i++) {
        status = read_device(dev, i, err);
        out[i] = dev->info;
    }
    if (status == PEN_OK)
        *count = (size_t)found;
    device_free(dev);
    return status;
}

// --- memory -----------------------------------------------------------------

// What is said when memory has run out: how much was asked for, how much there
// is. Asking may fail as well; then that part is left out.
static enum pen_status out_of_memory(struct pen_device *dev,
                                     enum pen_status status, size_t bytes,
                                     const char *owner, struct pen_error *err)
{
    char asked[32], there[96] = "";
    size_t free_bytes = 0, total = 0;
    stk_format_size(bytes, asked, sizeof(asked));
    if (status == PEN_E_DEVMEM &&
        STK_CU(dev, NULL, cuMemGetInfo(&free_bytes, &total)) == PEN_OK) {
        char free_text[32], total_text[32];
        stk_format_size(free_bytes, free_text, sizeof(free_text));
        stk_format_size(total, total_text, sizeof(total_text));
        snprintf(there, sizeof(there), "; %s of the device's %s are free",
                 free_text, total_text);
    }
    return pen_error_set(err, status, CUDA_ERROR_OUT_OF_MEMORY, dev->where,
                         "%s of %s for %s: %s%s",
                         status == PEN_E_DEVMEM ? "cuMemAlloc"
                                                : "cuMemHostAlloc",
                         asked, owner ? owner : "nobody",
                         status == PEN_E_DEVMEM
                             ? "CUDA_ERROR_OUT_OF_MEMORY"
                             : "CUDA_ERROR_OUT_OF_MEMORY, the host has not so "
                               "much memory to lock",
                         there);
}

enum pen_status stk_device_alloc(struct pen_device *dev, size_t bytes,
                                 const char *owner, const char *site,
                                 uint64_t *out, struct pen_error *err)
{
    *out = 0;
    if (bytes == 0)
        return pen_error_set(err, PEN_E_ARG, 0, dev->where,
                             "an allocation of 0 bytes was asked for");

    CUdeviceptr address = 0;
    STK_SCOPE scope = { 0 };
    PEN_TRY(stk_scope_enter(&scope, dev, err));
    const enum pen_status status =
        STK_CU(dev, err, cuMemAlloc(&address, bytes));
    if (status == PEN_E_DEVMEM)
        return out_of_memory(dev, status, bytes, owner, err);
    PEN_TRY(status);
    stk_ledger_add(dev->ledger, STK_RES_CUDA_DEVICE, address, bytes, owner,
                   site);
    *out = address;
    return PEN_OK;
}

void stk_device_free(struct pen_device *dev, uint64_t address, size_t bytes)
{
    if (!address)
        return;
    STK_SCOPE scope = { 0 };
    stk_scope_enter_end(&scope, dev);
    // Struck out first: another thread may be given the address at once.
    stk_ledger_remove(dev->ledger, STK_RES_CUDA_DEVICE, address, bytes);
    STK_CU_END(dev, cuMemFree(address));
}

enum pen_status stk_pinned_alloc(struct pen_device *dev, size_t bytes,
                                 const char *owner, const char *site,
                                 void **out, struct pen_error *err)
{
    *out = NULL;
    if (bytes == 0)
        return pen_error_set(err, PEN_E_ARG, 0, dev->where,
                             "an allocation of 0 bytes was asked for");

    void *memory = NULL;
    STK_SCOPE scope = { 0 };
    PEN_TRY(stk_scope_enter(&scope, dev, err));
    // Portable: pinned for the contexts of all devices of a pipeline.
    const enum pen_status status = STK_CU(
        dev, err, cuMemHostAlloc(&memory, bytes, CU_MEMHOSTALLOC_PORTABLE));
    if (status == PEN_E_DEVMEM)
        return out_of_memory(dev, PEN_E_NOMEM, bytes, owner, err);
    PEN_TRY(status);
    stk_ledger_add(dev->ledger, STK_RES_HOST_PINNED, (uintptr_t)memory, bytes,
                   owner, site);
    *out = memory;
    return PEN_OK;
}

void stk_pinned_free(struct pen_device *dev, void *memory, size_t bytes)
{
    if (!memory)
        return;
    STK_SCOPE scope = { 0 };
    stk_scope_enter_end(&scope, dev);
    stk_ledger_remove(dev->ledger, STK_RES_HOST_PINNED, (uintptr_t)memory,
                      bytes);
    STK_CU_END(dev, cuMemFreeHost(memory));
}

// --- kernels ----------------------------------------------------------------

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
    stk_ledger_add(dev->ledger, STK_RES_KERNELS, (uintptr_t)k, 0, image->name,
                   PEN_HERE);
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
    pthread_mutex_lock(&dev->kernels_lock);
    const enum pen_status status = load_locked(dev, image, out, err);
    pthread_mutex_unlock(&dev->kernels_lock);
    return status;
}

// --- the whole context ------------------------------------------------------

static void wait_for_context(struct pen_device *dev)
{
    const bool was_lost = stk_device_lost(dev);
    struct pen_error err = { 0 };
    STK_SCOPE scope = { 0 };
    enum pen_status status = stk_scope_enter(&scope, dev, &err);
    if (status == PEN_OK)
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
    pthread_mutex_lock(&dev->idle.lock);
    const enum pen_status status = when_idle_locked(dev, done, cookie, err);
    pthread_mutex_unlock(&dev->idle.lock);
    return status;
}
