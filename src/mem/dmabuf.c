#include "dmabuf.h"

#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <linux/dma-buf.h>
#include <linux/dma-heap.h>
#include <linux/udmabuf.h>

#include <penstock/frame.h>

#include "../base/fd.h"
#include "../base/str.h"

enum { PAGE = 4096, PROBE_BYTES = PAGE };

static const char udmabuf_node[] = "/dev/udmabuf";
static const char heap_node[] = "/dev/dma_heap/system";

// --- why it did not work ----------------------------------------------------

// What went wrong with one way after the other; PEN_E_UNSUPPORTED to begin
// with.
struct trouble {
    enum pen_status status;  // the first that is more than absence
    int native;
    char text[400];
};

PEN_PRINTF(4, 5)
static void tell(struct trouble *t, enum pen_status status, int native,
                 const char *format, ...)
{
    if (t->status == PEN_E_UNSUPPORTED) {
        t->status = status;
        t->native = native;
    }
    size_t at = strlen(t->text);
    if (at) {
        snprintf(t->text + at, sizeof(t->text) - at, " and ");
        at = strlen(t->text);
    }
    va_list args;
    va_start(args, format);
    vsnprintf(t->text + at, sizeof(t->text) - at, format, args);
    va_end(args);
}

static enum pen_status status_of(int why)
{
    return why == ENOMEM ? PEN_E_NOMEM : PEN_E_IO;
}

// --- providers of host memory -----------------------------------------------

static int open_node(const char *path, struct trouble *t)
{
    const int node = open(path, O_RDWR | O_CLOEXEC);
    if (node >= 0)
        return node;
    const int why = errno;
    const bool absent = why == ENOENT || why == ENODEV || why == ENXIO ||
                        why == EACCES || why == EPERM;
    const enum pen_status status = absent ? PEN_E_UNSUPPORTED : status_of(why);
    if (why == ENOENT)
        tell(t, status, why, "%s is not there", path);
    else
        tell(t, status, why, "%s cannot be opened (%s)", path, strerror(why));
    return -1;
}

static int open_memfd(size_t bytes, struct trouble *t)
{
    const int fd = memfd_create("penstock", MFD_CLOEXEC | MFD_ALLOW_SEALING);
    if (fd < 0) {
        const int why = errno;
        tell(t, status_of(why), why, "memfd_create failed (%s)", strerror(why));
        return -1;
    }
    // Whoever maps it must not see it shrink; the driver of udmabuf insists.
    if (ftruncate(fd, (off_t)bytes) || fcntl(fd, F_ADD_SEALS, F_SEAL_SHRINK)) {
        const int why = errno;
        tell(t, status_of(why), why, "a memfd of %zu bytes failed (%s)", bytes,
             strerror(why));
        close(fd);
        return -1;
    }
    return fd;
}

static int open_udmabuf(size_t bytes, struct trouble *t)
{
    const int node = open_node(udmabuf_node, t);
    if (node < 0)
        return -1;
    int fd = -1;
    const int memfd = open_memfd(bytes, t);
    if (memfd >= 0) {
        struct udmabuf_create create = {
            .memfd = (uint32_t)memfd,
            .flags = UDMABUF_FLAGS_CLOEXEC,
            .size = bytes,
        };
        fd = ioctl(node, UDMABUF_CREATE, &create);
        if (fd < 0) {
            const int why = errno;
            tell(t, status_of(why), why,
                 "UDMABUF_CREATE of %zu bytes on %s failed (%s)", bytes,
                 udmabuf_node, strerror(why));
        }
        close(memfd);  // the DMABUF keeps the pages
    }
    close(node);
    return fd;
}

static int open_heap(size_t bytes, struct trouble *t)
{
    const int node = open_node(heap_node, t);
    if (node < 0)
        return -1;
    struct dma_heap_allocation_data data = {
        .len = bytes,
        .fd_flags = O_RDWR | O_CLOEXEC,
    };
    int fd = -1;
    if (ioctl(node, DMA_HEAP_IOCTL_ALLOC, &data) == 0) {
        fd = (int)data.fd;
    } else {
        const int why = errno;
        tell(t, status_of(why), why,
             "DMA_HEAP_IOCTL_ALLOC of %zu bytes on %s failed (%s)", bytes,
             heap_node, strerror(why));
    }
    close(node);
    return fd;
}

static const struct provider {
    const char *name;
    bool stand_in;  // needs an emulated device; knows no sync
    int (*open)(size_t bytes, struct trouble *t);  // -1: told why
} providers[] = {
    { "udmabuf", false, open_udmabuf },
    { "dma-heap", false, open_heap },
    { "memfd", true, open_memfd },
};

// --- parts of a block -------------------------------------------------------

static bool map(struct stk_dmabuf *d, const struct stk_mem_source *source,
                size_t bytes, int *why)
{
    void *host =
        mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, d->fd, 0);
    if (host == MAP_FAILED) {
        *why = errno;
        return false;
    }
    d->host = host;
    d->mapped = bytes;
    stk_ledger_add(source->ledger, STK_RES_MAPPING, (uintptr_t)host, bytes,
                   source->owner, PEN_HERE);
    return true;
}

static void unmap(struct stk_dmabuf *d, struct stk_ledger *ledger)
{
    if (!d->host)
        return;
    stk_ledger_remove(ledger, STK_RES_MAPPING, (uintptr_t)d->host, d->mapped);
    munmap(d->host, d->mapped);
    d->host = NULL;
}

// One retry more is always right: a signal or a busy fence took the call.
static int sync_call(int fd, unsigned access, bool begin)
{
    struct dma_buf_sync sync = {
        .flags = begin ? DMA_BUF_SYNC_START : DMA_BUF_SYNC_END,
    };
    if (access & PEN_READ)
        sync.flags |= DMA_BUF_SYNC_READ;
    if (access & PEN_WRITE)
        sync.flags |= DMA_BUF_SYNC_WRITE;
    int done;
    do {
        done = ioctl(fd, DMA_BUF_IOCTL_SYNC, &sync);
    } while (done < 0 && (errno == EINTR || errno == EAGAIN));
    return done < 0 ? errno : 0;
}

static struct stk_dmabuf *new_dmabuf(const struct stk_mem_source *source,
                                     struct pen_error *err)
{
    struct stk_dmabuf *d = calloc(1, sizeof(*d));
    if (!d) {
        pen_error_set(err, PEN_E_NOMEM, 0, source->owner,
                      "no host memory for %zu bytes of bookkeeping",
                      sizeof(*d));
        return NULL;
    }
    d->fd = -1;
    return d;
}

// The ledger that has the descriptor: exported ones are made by the device.
static struct stk_ledger *fd_ledger(const struct stk_mem_source *source,
                                    const struct stk_dmabuf *d)
{
    return d->device_bytes ? stk_device_ledger(source->dev) : source->ledger;
}

static void release(const struct stk_mem_source *source, struct stk_dmabuf *d)
{
    stk_device_unimport(&d->import);
    unmap(d, source->ledger);
    stk_fd_close(fd_ledger(source, d), &d->fd);
    if (d->host_bytes)
        stk_ledger_remove(source->ledger, STK_RES_DMABUF, (uintptr_t)d,
                          d->host_bytes);
    if (d->device_bytes)
        stk_device_free(source->dev, d->memory, d->device_bytes);
    free(d);
}

static void fill_block(struct stk_dmabuf *d, size_t bytes,
                       struct stk_block *out)
{
    *out = (struct stk_block){
        .host = d->host,
        .address = d->device_address ? d->device_address
                                     : (uint64_t)(uintptr_t)d->host,
        .bytes = bytes,
        .dmabuf = d,
        .on_stream = d->device_address != 0,
    };
}

// --- blocks of host memory --------------------------------------------------

// From the first provider that works, and mapped.
static enum pen_status provide(const struct stk_mem_source *source,
                               size_t bytes, struct stk_dmabuf *d,
                               struct pen_error *err)
{
    const bool emulated = source->dev && stk_device_emulated(source->dev);
    struct trouble t = { .status = PEN_E_UNSUPPORTED };
    for (size_t i = 0; i < sizeof(providers) / sizeof(providers[0]); i++) {
        const struct provider *p = &providers[i];
        int fd = -1, why = 0;
        if (p->stand_in && !emulated)
            continue;
        fd = p->open(bytes, &t);
        if (fd < 0)
            continue;
        d->fd = fd;
        stk_fd_enter(source->ledger, fd, source->owner, PEN_HERE);
        if (map(d, source, bytes, &why)) {
            d->provider = p->name;
            d->stand_in = p->stand_in;
            return PEN_OK;
        }
        tell(&t, status_of(why), why, "%zu bytes of %s cannot be mapped (%s)",
             bytes, p->name, strerror(why));
        stk_fd_close(source->ledger, &d->fd);
    }
    pen_error_set(err, t.status, t.native, source->owner, "%s", t.text);
    return t.status;
}

static enum pen_status fill_host(const struct stk_mem_source *source,
                                 size_t bytes, struct stk_dmabuf *d,
                                 struct pen_error *err)
{
    size_t whole = 0;
    if (!stk_align(bytes, PAGE, &whole) || whole > INT64_MAX)
        return pen_error_set(err, PEN_E_NOMEM, 0, source->owner,
                             "no DMABUF can have %zu bytes", bytes);
    PEN_TRY(provide(source, whole, d, err));
    if (!source->dev || !stk_device_can_import(source->dev))
        return PEN_OK;
    // What the device says it can do the plan may reckon with.
    return stk_device_import(source->dev, d->fd, whole, source->owner, PEN_HERE,
                             &d->import, &d->device_address, err);
}

static enum pen_status make_host(const struct stk_mem_source *source,
                                 size_t bytes, struct stk_dmabuf *d,
                                 struct pen_error *err)
{
    d->kind = STK_DMABUF_HOST;
    PEN_TRY(stk_ledger_reserve(source->ledger, STK_RES_DMABUF, bytes,
                               source->owner, err));
    const enum pen_status status = fill_host(source, bytes, d, err);
    if (status != PEN_OK) {
        stk_ledger_cancel(source->ledger, STK_RES_DMABUF, bytes);
        return status;
    }
    stk_ledger_enter(source->ledger, STK_RES_DMABUF, (uintptr_t)d, bytes,
                     source->owner, PEN_HERE);
    d->host_bytes = bytes;
    return PEN_OK;
}

// --- blocks of device memory ------------------------------------------------

static enum pen_status make_cuda(const struct stk_mem_source *source,
                                 size_t bytes, struct stk_dmabuf *d,
                                 struct pen_error *err)
{
    size_t whole = 0, take = 0, at = 0;
    d->kind = STK_DMABUF_CUDA;
    if (!source->dev)
        return pen_error_set(err, PEN_E_UNSUPPORTED, 0, source->owner,
                             "no device is open whose memory could be "
                             "exported");
    if (!stk_align(bytes, STK_EXPORT_ALIGN, &whole) ||
        !stk_dmabuf_cuda_bytes(bytes, &take))
        return pen_error_set(err, PEN_E_DEVMEM, 0, source->owner,
                             "no device memory can have %zu bytes", bytes);
    PEN_TRY(stk_device_alloc(source->dev, take, source->owner, PEN_HERE,
                             &d->memory, err));
    d->device_bytes = take;
    if (!stk_align(d->memory, STK_EXPORT_ALIGN, &at) ||
        at - d->memory > take - whole)
        return pen_error_set(err, PEN_E_UNSUPPORTED, 0, source->owner,
                             "the driver gave %zu bytes at an address that is "
                             "no multiple of %d, so that they cannot be "
                             "exported",
                             take, STK_EXPORT_ALIGN);
    d->device_address = at;
    return stk_device_export(source->dev, d->device_address, whole,
                             source->owner, PEN_HERE, &d->fd, err);
}

enum pen_status stk_dmabuf_alloc(const struct stk_mem_source *source,
                                 size_t bytes, struct stk_block *out,
                                 struct pen_error *err)
{
    *out = (struct stk_block){ 0 };
    struct stk_dmabuf *d = new_dmabuf(source, err);
    if (!d)
        return PEN_E_NOMEM;
    const enum pen_status status = source->kind == STK_DMABUF_CUDA
                                       ? make_cuda(source, bytes, d, err)
                                       : make_host(source, bytes, d, err);
    if (status != PEN_OK) {
        release(source, d);
        return status;
    }
    fill_block(d, bytes, out);
    return PEN_OK;
}

void stk_dmabuf_free(const struct stk_mem_source *source,
                     struct stk_block *block)
{
    if (block->dmabuf)
        release(source, block->dmabuf);
    *block = (struct stk_block){ 0 };
}

enum pen_status stk_dmabuf_sync(const struct stk_block *block, unsigned access,
                                bool begin, struct pen_error *err)
{
    const struct stk_dmabuf *d = block->dmabuf;
    if (d->stand_in || !d->host)
        return PEN_OK;
    const int why = sync_call(d->fd, access, begin);
    if (!why)
        return PEN_OK;
    return pen_error_set(err, PEN_E_IO, why, "DMABUF",
                         "DMA_BUF_IOCTL_SYNC failed to %s the host's access "
                         "to %zu bytes (%s)",
                         begin ? "begin" : "end", block->bytes, strerror(why));
}

// --- foreign descriptors ----------------------------------------------------

// What is no DMABUF (a memfd, say) has nobody to be told of accesses.
static enum pen_status find_sync(struct stk_dmabuf *d,
                                 const struct stk_mem_source *source,
                                 struct pen_error *err)
{
    int why = sync_call(d->fd, PEN_READ, true);
    d->stand_in = why == ENOTTY;
    if (d->stand_in)
        return PEN_OK;
    if (!why)
        why = sync_call(d->fd, PEN_READ, false);
    if (!why)
        return PEN_OK;
    return pen_error_set(err, PEN_E_IO, why, source->owner,
                         "DMA_BUF_IOCTL_SYNC failed on a foreign descriptor "
                         "(%s)",
                         strerror(why));
}

static enum pen_status check_size(const struct stk_mem_source *source, int fd,
                                  size_t bytes, struct pen_error *err)
{
    // A DMABUF tells its size by seeking, not by its inode.
    const off_t size = lseek(fd, 0, SEEK_END);
    if (size < 0) {
        const int why = errno;
        return pen_error_set(err, PEN_E_IO, why, source->owner,
                             "the size of descriptor %d cannot be told: %s", fd,
                             strerror(why));
    }
    if ((uint64_t)size < bytes || !bytes)
        return pen_error_set(err, PEN_E_ARG, 0, source->owner,
                             "descriptor %d has %lld bytes, but the frame is "
                             "said to have %zu",
                             fd, (long long)size, bytes);
    return PEN_OK;
}

static enum pen_status fill_foreign(const struct stk_mem_source *source, int fd,
                                    size_t bytes, struct stk_dmabuf *d,
                                    struct pen_error *err)
{
    struct pen_error import = { .text = "no device was named to import it" };
    int why = 0;

    PEN_TRY(check_size(source, fd, bytes, err));
    PEN_TRY(
        stk_fd_dup(source->ledger, fd, source->owner, PEN_HERE, &d->fd, err));
    if (map(d, source, bytes, &why))
        PEN_TRY(find_sync(d, source, err));
    if (source->dev) {
        const enum pen_status status = stk_device_import(
            source->dev, d->fd, bytes, source->owner, PEN_HERE, &d->import,
            &d->device_address, &import);
        if (status == PEN_E_LOST || status == PEN_E_NOMEM) {
            if (err)
                *err = import;
            return status;
        }
    }
    d->kind = d->host ? STK_DMABUF_HOST : STK_DMABUF_CUDA;
    if (d->host || d->device_address)
        return PEN_OK;
    return pen_error_set(err, PEN_E_UNSUPPORTED, why, source->owner,
                         "descriptor %d can neither be mapped by the host "
                         "(%s) nor imported (%s)",
                         fd, strerror(why), import.text);
}

enum pen_status stk_dmabuf_adopt(const struct stk_mem_source *source, int fd,
                                 size_t bytes, struct stk_block *out,
                                 struct pen_error *err)
{
    *out = (struct stk_block){ 0 };
    struct stk_dmabuf *d = new_dmabuf(source, err);
    if (!d)
        return PEN_E_NOMEM;
    const enum pen_status status = fill_foreign(source, fd, bytes, d, err);
    if (status != PEN_OK) {
        release(source, d);
        return status;
    }
    fill_block(d, bytes, out);
    return PEN_OK;
}

// --- what this machine can do -----------------------------------------------

static void reason(char why[160], const char *text)
{
    snprintf(why, 160, "%.159s", text);
}

// Look at the bytes of a block as a module would.
static enum pen_status touch(const struct stk_block *block,
                             struct pen_error *err)
{
    PEN_TRY(stk_dmabuf_sync(block, PEN_READ | PEN_WRITE, true, err));
    volatile uint8_t *byte = block->host;
    byte[block->bytes - 1] = (uint8_t)(byte[0] + 1);
    return stk_dmabuf_sync(block, PEN_READ | PEN_WRITE, false, err);
}

static void probe_import(struct pen_device *dev, const struct stk_dmabuf *d,
                         struct stk_dmabuf_caps *out)
{
    struct stk_import *import = NULL;
    uint64_t address = 0;
    struct pen_error err = { 0 };
    if (stk_device_import(dev, d->fd, PROBE_BYTES, "probe", PEN_HERE, &import,
                          &address, &err) == PEN_OK)
        out->import = true;
    else
        reason(out->why_import, err.text);
    stk_device_unimport(&import);
}

// A block as stk_dmabuf_alloc() makes it, but for the import, which is tried
// apart, so that each has a reason of its own.
static void probe_host(struct pen_device *dev, struct stk_dmabuf_caps *out)
{
    const struct stk_mem_source source = { .dev = dev, .owner = "probe" };
    struct stk_dmabuf d = { .kind = STK_DMABUF_HOST, .fd = -1 };
    struct pen_error err = { 0 };
    enum pen_status status = provide(&source, PROBE_BYTES, &d, &err);
    if (d.host) {
        struct stk_block block;
        fill_block(&d, PROBE_BYTES, &block);
        block.dmabuf = &d;
        status = touch(&block, &err);
    }
    out->host = status == PEN_OK;
    if (out->host)
        snprintf(out->provider, sizeof(out->provider), "%s", d.provider);
    else
        reason(out->why_host, err.text);
    if (!dev)
        reason(out->why_import, "there is no CUDA device");
    else if (!out->host && stk_device_can_import(dev))
        reason(out->why_import, "there is no DMABUF to import");
    else
        probe_import(dev, &d, out);
    unmap(&d, NULL);
    stk_fd_close(NULL, &d.fd);
}

static void probe_export(struct pen_device *dev, struct stk_dmabuf_caps *out)
{
    const struct stk_mem_source source = {
        .dev = dev,
        .owner = "probe",
        .kind = STK_DMABUF_CUDA,
    };
    struct pen_error err = { 0 };
    struct stk_block block;
    if (!dev) {
        reason(out->why_export, "there is no CUDA device");
        return;
    }
    out->export =
        stk_dmabuf_alloc(&source, PROBE_BYTES, &block, &err) == PEN_OK;
    if (!out->export)
        reason(out->why_export, err.text);
    stk_dmabuf_free(&source, &block);
}

void stk_dmabuf_probe(struct pen_device *dev, struct stk_dmabuf_caps *out)
{
    *out = (struct stk_dmabuf_caps){ 0 };
    probe_host(dev, out);
    probe_export(dev, out);
}
