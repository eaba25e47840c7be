#ifndef STK_DMABUF_H
#define STK_DMABUF_H

// Memory that is known by a file descriptor, so that other devices and
// processes can use it without a copy.
//
// It comes from the first provider that works (of its kind):
//   HOST  /dev/udmabuf over a memfd; /dev/dma_heap/system; a plain memfd, only
//         with an emulated device, which takes it for a DMABUF
//   CUDA  device memory that the driver exports (whole multiples of 64 KiB; it
//         gives small blocks at any address, so that these take 64 KiB more)
// HOST memory is mapped once, for as long as the block lives; the host's
// accesses are enclosed in DMA_BUF_IOCTL_SYNC. Where the driver imports DMABUFs
// (integrated GPUs, the emulated device) the block gets a device address too.
//
// Accounts: HOST memory is DMABUF in the ledger, exported device memory stays
// CUDA_DEVICE. No byte counts twice.
//
// Places: a frame of kind HOST is accepted by HOST pins without a copy ("map"),
// one of kind CUDA by CUDA_DEVICE pins; HOST with a device address by both.

#include "type.h"

struct stk_dmabuf {
    enum stk_dmabuf_kind kind;
    int fd;
    const char *provider;       // of HOST memory that is ours; else NULL
    bool stand_in;              // a memfd, which knows no DMA_BUF_IOCTL_SYNC
    struct stk_import *import;  // NULL: not imported
    uint64_t device_address;    // 0: no access by a stream
    void *host;                 // NULL: no access by the host
    size_t mapped;              // bytes of the mapping
    size_t host_bytes;          // in the ledger as DMABUF; 0: not ours
    uint64_t memory;            // our device memory, in which the exported
    size_t device_bytes;        // part lies; in the ledger as CUDA_DEVICE
};

// What this machine can do, found by trying it: an allocation, a mapping, an
// access, an export, an import of one small block each. `dev` may be NULL.
// Never fails; what cannot be done has a reason. Thread: setup.
struct stk_dmabuf_caps {
    bool host, export, import;  // HOST blocks, CUDA blocks, HOST on a stream
    char provider[32];          // of HOST: "udmabuf", "dma-heap", "memfd"
    char why_host[160], why_export[160], why_import[160];  // "" if it works
};
void stk_dmabuf_probe(struct pen_device *dev, struct stk_dmabuf_caps *out);

// The device memory that a block of `bytes` of kind CUDA takes; false: too
// large for any. (ways.c, so that the planner can ask without a driver.)
bool stk_dmabuf_cuda_bytes(size_t bytes, size_t *out);

// How frames get from one memory type to another: the 4x4 table (ways.c).
enum stk_way {
    STK_WAY_NONE = 0,  // nothing to do
    STK_WAY_UPGRADE,   // the producer's pool is made of the other type
    STK_WAY_MAP,       // the host looks at the DMABUF where it is
    STK_WAY_IMPORT,    // the device looks at it where it is
    STK_WAY_EXPORT,    // the pool is made of device memory with descriptors
    STK_WAY_COPY,      // one copy
    STK_WAY_STAGED,    // copied by the host on its way from or to the device
    STK_WAY_REFUSED,   // what is missing, and the way round, in `text`
};
// The way from a type (DMABUF of the given kind) to another on a machine with
// these capabilities; `text` says how, or why not. Thread: any.
enum stk_way stk_way_between(enum pen_mem_type from, enum stk_dmabuf_kind kind,
                             enum pen_mem_type to,
                             const struct stk_dmabuf_caps *caps, char *text,
                             size_t size);

// For the table of types (type.c). Errors of alloc: PEN_E_UNSUPPORTED (nothing
// on this machine makes such memory, with what is missing), PEN_E_LIMIT (of the
// ledger), PEN_E_IO, PEN_E_NOMEM, PEN_E_DEVMEM, PEN_E_DRIVER, PEN_E_LOST.
PEN_NODISCARD enum pen_status
stk_dmabuf_alloc(const struct stk_mem_source *source, size_t bytes,
                 struct stk_block *out, struct pen_error *err);
void stk_dmabuf_free(const struct stk_mem_source *source,
                     struct stk_block *block);
PEN_NODISCARD enum pen_status stk_dmabuf_sync(const struct stk_block *block,
                                              unsigned access, bool begin,
                                              struct pen_error *err);

// A foreign descriptor as a block: duplicated, mapped if the host may map it,
// imported if `source->dev` can. Given back by stk_dmabuf_free().
// Errors: PEN_E_UNSUPPORTED (neither works, with both reasons), PEN_E_ARG (the
// descriptor is smaller than `bytes`), PEN_E_IO, PEN_E_NOMEM.
PEN_NODISCARD enum pen_status
stk_dmabuf_adopt(const struct stk_mem_source *source, int fd, size_t bytes,
                 struct stk_block *out, struct pen_error *err);

#endif  // STK_DMABUF_H
