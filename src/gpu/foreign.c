// Memory that is not ours alone: host memory of others that is locked, and
// memory shared by descriptors.

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <unistd.h>

#include "../base/fd.h"
#include "driver.h"

// --- host memory ------------------------------------------------------------

enum pen_status stk_host_register(struct pen_device *dev, void *memory,
                                  size_t bytes, const char *owner,
                                  const char *site, struct pen_error *err)
{
    if (!STK_CU_HAS(dev, cuMemHostRegister) ||
        !STK_CU_HAS(dev, cuMemHostUnregister))
        return pen_error_set(err, PEN_E_UNSUPPORTED, 0, dev->where,
                             "the driver cannot lock memory of others");
    const uintptr_t page = (uintptr_t)sysconf(_SC_PAGESIZE);
    if (!bytes || !memory || (uintptr_t)memory % page)
        return pen_error_set(err, PEN_E_ARG, 0, dev->where,
                             "memory can be locked from the beginning of a "
                             "page on, not %zu bytes at %p",
                             bytes, memory);
    STK_SCOPE scope = { 0 };
    PEN_TRY(stk_scope_enter(&scope, dev, err));
    struct pen_error why = { 0 };
    enum pen_status status =
        STK_CU(dev, &why,
               cuMemHostRegister(memory, bytes, CU_MEMHOSTREGISTER_PORTABLE));
    if (status == PEN_E_DEVMEM)
        why.status = status = PEN_E_NOMEM;  // it is the host's
    if (status != PEN_OK) {
        if (err)
            *err = why;
        return status;
    }
    stk_ledger_add(dev->ledger, STK_RES_REGISTRATION, (uintptr_t)memory, 0,
                   owner, site);
    return PEN_OK;
}

void stk_host_unregister(struct pen_device *dev, void *memory)
{
    if (!memory || stk_forked)
        return;
    STK_SCOPE scope = { 0 };
    stk_scope_enter_end(&scope, dev);
    stk_ledger_remove(dev->ledger, STK_RES_REGISTRATION, (uintptr_t)memory, 0);
    STK_CU_END(dev, cuMemHostUnregister(memory));
}

// --- handing out ------------------------------------------------------------

bool stk_device_can_export(const struct pen_device *dev)
{
    return dev->can_export;
}

// Drivers have no code for a process that has too many descriptors.
static void tell_limit(struct pen_error *err)
{
    struct rlimit limit;
    if (!err || getrlimit(RLIMIT_NOFILE, &limit) != 0)
        return;
    const size_t at = strlen(err->text);
    snprintf(err->text + at, sizeof(err->text) - at,
             "; the process may have %llu descriptors (ulimit -n)",
             (unsigned long long)limit.rlim_cur);
}

enum pen_status stk_device_export(struct pen_device *dev, uint64_t address,
                                  size_t bytes, const char *owner,
                                  const char *site, int *fd,
                                  struct pen_error *err)
{
    *fd = -1;
    if (!dev->can_export)
        return pen_error_set(err, PEN_E_UNSUPPORTED, 0, dev->where,
                             "the driver hands out no descriptors of device "
                             "memory: copy it to the host");
    if (!bytes || bytes % STK_EXPORT_ALIGN || address % STK_EXPORT_ALIGN)
        return pen_error_set(err, PEN_E_ARG, 0, dev->where,
                             "device memory is exported in multiples of %d "
                             "bytes, not %zu bytes at 0x%llx",
                             STK_EXPORT_ALIGN, bytes,
                             (unsigned long long)address);
    STK_SCOPE scope = { 0 };
    PEN_TRY(stk_scope_enter(&scope, dev, err));
    int got = -1;
    const enum pen_status status = STK_CU(
        dev, err,
        cuMemGetHandleForAddressRange(&got, address, bytes,
                                      CU_MEM_RANGE_HANDLE_TYPE_DMA_BUF_FD, 0));
    if (status != PEN_OK) {
        tell_limit(err);
        return status;
    }
    // Drivers do not promise it. It cannot fail for a good descriptor.
    (void)fcntl(got, F_SETFD, FD_CLOEXEC);
    stk_fd_enter(dev->ledger, got, owner, site);
    *fd = got;
    return PEN_OK;
}

// --- taking in --------------------------------------------------------------

struct stk_import {
    struct pen_device *dev;
    CUexternalMemory memory;
    CUdeviceptr address;
};

// With the context current.
static enum pen_status take_in(struct stk_import *m, int fd, size_t bytes,
                               struct pen_error *err)
{
    struct pen_device *dev = m->dev;
    const CUDA_EXTERNAL_MEMORY_HANDLE_DESC whose = {
        .type = CU_EXTERNAL_MEMORY_HANDLE_TYPE_DMABUF_FD,
        .handle.fd = fd,
        .size = bytes,
    };
    const CUDA_EXTERNAL_MEMORY_BUFFER_DESC part = { .size = bytes };
    enum pen_status status =
        STK_CU(dev, err, cuImportExternalMemory(&m->memory, &whose));
    if (status == PEN_OK) {
        status = STK_CU(
            dev, err,
            cuExternalMemoryGetMappedBuffer(&m->address, m->memory, &part));
        if (status != PEN_OK)
            STK_CU_END(dev, cuDestroyExternalMemory(m->memory));
    }
    if (status != PEN_OK)
        tell_limit(err);
    return status;
}

static void let_go(const struct stk_import *m)
{
    struct pen_device *dev = m->dev;
    STK_CU_END(dev, cuMemFree(m->address));
    STK_CU_END(dev, cuDestroyExternalMemory(m->memory));
}

// A descriptor to try it with; -1: none. *address is the memory of it, if it is
// the device's.
static int sample(struct pen_device *dev, CUdeviceptr *address)
{
    int fd = -1;
    if (!dev->can_export) {
        fd = memfd_create("penstock", MFD_CLOEXEC);
        if (fd >= 0 && ftruncate(fd, STK_EXPORT_ALIGN) != 0) {
            close(fd);
            fd = -1;
        }
        return fd;
    }
    // Small blocks lie anywhere: twice as much has an aligned part.
    if (STK_CU(dev, NULL, cuMemAlloc(address, 2 * STK_EXPORT_ALIGN)) !=
        PEN_OK) {
        *address = 0;
        return -1;
    }
    const CUdeviceptr from =
        (*address + STK_EXPORT_ALIGN - 1) / STK_EXPORT_ALIGN * STK_EXPORT_ALIGN;
    if (STK_CU(dev, NULL,
               cuMemGetHandleForAddressRange(
                   &fd, from, STK_EXPORT_ALIGN,
                   CU_MEM_RANGE_HANDLE_TYPE_DMA_BUF_FD, 0)) != PEN_OK)
        fd = -1;
    return fd;
}

// Drivers of discrete GPUs have the functions and refuse; which errors that
// gives nobody promises, so they are not asked.
static bool may_import(struct pen_device *dev)
{
    int integrated = 0;
    if (!STK_CU_HAS(dev, cuImportExternalMemory) ||
        !STK_CU_HAS(dev, cuExternalMemoryGetMappedBuffer) ||
        !STK_CU_HAS(dev, cuDestroyExternalMemory))
        return false;
    if (dev->info.emulated)
        return true;
    return STK_CU(dev, NULL,
                  cuDeviceGetAttribute(&integrated,
                                       CU_DEVICE_ATTRIBUTE_INTEGRATED,
                                       dev->device)) == PEN_OK &&
           integrated;
}

static bool try_import(struct pen_device *dev)
{
    STK_SCOPE scope = { 0 };
    if (!may_import(dev) || stk_scope_enter(&scope, dev, NULL) != PEN_OK)
        return false;
    CUdeviceptr address = 0;
    struct stk_import m = { .dev = dev };
    int fd = sample(dev, &address);
    const bool good =
        fd >= 0 && take_in(&m, fd, STK_EXPORT_ALIGN, NULL) == PEN_OK;
    if (good)
        let_go(&m);
    if (fd >= 0)
        close(fd);
    if (address)
        STK_CU_END(dev, cuMemFree(address));
    return good;
}

bool stk_device_can_import(struct pen_device *dev)
{
    // Two threads at once both try; they find the same.
    int known = atomic_load_explicit(&dev->can_import, memory_order_relaxed);
    if (known == STK_IMPORT_UNKNOWN) {
        known = try_import(dev) ? STK_IMPORT_YES : STK_IMPORT_NO;
        atomic_store_explicit(&dev->can_import, known, memory_order_relaxed);
    }
    return known == STK_IMPORT_YES;
}

enum pen_status stk_device_import(struct pen_device *dev, int fd, size_t bytes,
                                  const char *owner, const char *site,
                                  struct stk_import **out, uint64_t *address,
                                  struct pen_error *err)
{
    *out = NULL;
    *address = 0;
    if (!bytes)
        return pen_error_set(err, PEN_E_ARG, 0, dev->where,
                             "an import of 0 bytes was asked for");
    PEN_TRY(stk_not_forked(err));
    if (!stk_device_can_import(dev))
        return pen_error_set(err, PEN_E_UNSUPPORTED, 0, dev->where,
                             "the driver takes no memory of others in: map it "
                             "and copy it");
    struct stk_import *m = calloc(1, sizeof(*m));
    if (!m)
        return pen_error_set(err, PEN_E_NOMEM, 0, dev->where,
                             "no memory for an import");
    m->dev = dev;
    STK_SCOPE scope = { 0 };
    enum pen_status status = stk_scope_enter(&scope, dev, err);
    if (status == PEN_OK)
        status = take_in(m, fd, bytes, err);
    if (status != PEN_OK) {
        free(m);
        return status;
    }
    stk_ledger_add(dev->ledger, STK_RES_IMPORT, (uintptr_t)m, 0, owner, site);
    *address = m->address;
    *out = m;
    return PEN_OK;
}

void stk_device_unimport(struct stk_import **import)
{
    struct stk_import *m = *import;
    *import = NULL;
    if (!m)
        return;
    if (!stk_forked) {
        STK_SCOPE scope = { 0 };
        stk_scope_enter_end(&scope, m->dev);
        stk_ledger_remove(m->dev->ledger, STK_RES_IMPORT, (uintptr_t)m, 0);
        let_go(m);
    }
    free(m);
}
