// Devices: choosing one, its primary context.

#include "driver.h"

#include <dlfcn.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

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
        { CU_DEVICE_ATTRIBUTE_ASYNC_ENGINE_COUNT, &info->copy_engines },
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
    pthread_mutex_init(&dev->hoards_lock, NULL);
    pthread_cond_init(&dev->hoards_changed, NULL);
    return dev;
}

static void device_free(struct pen_device *dev)
{
    stk_wait_finish(&dev->idle.store);
    // In a forked process threads that are not there may hold or wait for them.
    if (!stk_forked) {
        pthread_cond_destroy(&dev->hoards_changed);
        pthread_mutex_destroy(&dev->hoards_lock);
        pthread_cond_destroy(&dev->idle.changed);
        pthread_mutex_destroy(&dev->idle.lock);
        pthread_mutex_destroy(&dev->kernels_lock);
    }
    free(dev);
}

static enum pen_status retain(struct pen_device *dev, struct pen_error *err)
{
    // Whoever made the context chose its flags; they are his.
    unsigned flags = 0;
    int active = 0;
    PEN_TRY(STK_CU(dev, err,
                   cuDevicePrimaryCtxGetState(dev->device, &flags, &active)));
    if (active)
        pen_log_write(dev->log, PEN_LOG_DEBUG, "pen.gpu",
                      "%s: the primary context is there already, with flags "
                      "0x%x, which stay",
                      dev->where, flags);
    const enum pen_status status =
        STK_CU(dev, err, cuDevicePrimaryCtxRetain(&dev->context, dev->device));
    if (status != PEN_OK) {
        dev->context = NULL;
        return status;
    }
    // Every retain of a device gives the same handle; ours is one of several.
    stk_ledger_add(dev->ledger, STK_RES_CONTEXT, (uintptr_t)dev, 0,
                   *dev->owner ? dev->owner : dev->where, PEN_HERE);
    return PEN_OK;
}

// Whether the device has something that it need not have. A driver that does
// not tell has it not.
static enum pen_status ask(struct pen_device *dev, CUdevice_attribute attribute,
                           bool *out, struct pen_error *err)
{
    int value = 0;
    struct pen_error why = { 0 };
    const enum pen_status status =
        STK_CU(dev, &why, cuDeviceGetAttribute(&value, attribute, dev->device));
    *out = status == PEN_OK && value != 0;
    if (status == PEN_E_LOST) {
        if (err)
            *err = why;
        return status;
    }
    if (status != PEN_OK)
        pen_log_write(dev->log, PEN_LOG_WARN, "pen.gpu",
                      "%s: taken for a device without it: %s", dev->where,
                      why.text);
    return PEN_OK;
}

// What may be missing: virtual memory, and memory shared by descriptors.
static enum pen_status ask_abilities(struct pen_device *dev,
                                     struct pen_error *err)
{
    bool virtual = false;
    if (STK_CU_HAS(dev, cuMemGetAllocationGranularity) &&
        STK_CU_HAS(dev, cuMemAddressReserve) &&
        STK_CU_HAS(dev, cuMemAddressFree) && STK_CU_HAS(dev, cuMemCreate) &&
        STK_CU_HAS(dev, cuMemRelease) && STK_CU_HAS(dev, cuMemMap) &&
        STK_CU_HAS(dev, cuMemUnmap) && STK_CU_HAS(dev, cuMemSetAccess))
        PEN_TRY(ask(dev,
                    CU_DEVICE_ATTRIBUTE_VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED,
                    &virtual, err));
    if (virtual)
        PEN_TRY(stk_region_ask(dev, err));
    if (STK_CU_HAS(dev, cuMemGetHandleForAddressRange))
        PEN_TRY(ask(dev, CU_DEVICE_ATTRIBUTE_DMA_BUF_SUPPORTED,
                    &dev->can_export, err));
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
    PEN_TRY(retain(dev, err));
    return ask_abilities(dev, err);
}

enum pen_status stk_device_open_for(const struct pen_device_params *params,
                                    struct stk_ledger *ledger,
                                    const char *owner, struct pen_device **out,
                                    struct pen_error *err)
{
    static const struct pen_device_params defaults = { 0 };
    if (!params)
        params = &defaults;

    *out = NULL;
    struct pen_device *dev = device_new(params, ledger);
    if (!dev)
        return pen_error_set(err, PEN_E_NOMEM, 0, "device",
                             "no memory for a device");
    snprintf(dev->owner, sizeof(dev->owner), "%s", owner);
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

enum pen_status stk_device_open(const struct pen_device_params *params,
                                struct stk_ledger *ledger,
                                struct pen_device **out, struct pen_error *err)
{
    return stk_device_open_for(params, ledger, "", out, err);
}

// With an account of its own, so that a refusal can tell who has the memory:
// each pool has one for itself, which does not know of the others.
enum pen_status pen_device_open(const struct pen_device_params *params,
                                struct pen_device **out, struct pen_error *err)
{
    *out = NULL;
    struct stk_ledger *ledger = stk_ledger_create(true);
    if (!ledger)
        return pen_error_set(err, PEN_E_NOMEM, 0, "device",
                             "no memory for a device");
    const enum pen_status status = stk_device_open(params, ledger, out, err);
    if (*out)
        (*out)->own_ledger = ledger;
    else
        stk_ledger_destroy(&ledger);
    return status;
}

void pen_device_close(struct pen_device **devp)
{
    struct pen_device *dev = *devp;
    *devp = NULL;
    if (!dev)
        return;

    stk_idle_stop(dev);
    stk_kernels_unload(dev);
    if (dev->context) {
        if (!stk_forked)
            stk_ledger_remove(dev->ledger, STK_RES_CONTEXT, (uintptr_t)dev, 0);
        STK_CU_END(dev, cuDevicePrimaryCtxRelease(dev->device));
    }
    stk_ledger_destroy(&dev->own_ledger);
    device_free(dev);
}

// --- information ------------------------------------------------------------

bool stk_device_emulated(const struct pen_device *dev)
{
    return dev->info.emulated;
}

struct stk_ledger *stk_device_ledger(const struct pen_device *dev)
{
    return dev->ledger;
}

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
