#ifndef EMU_H
#define EMU_H

// Inside of the emulated driver. A driver is one per process, and so is this:
// all state is in `emu`, guarded by one lock that every driver call holds from
// beginning to end. Only the work of streams (copies, kernels) and waiting
// happen without it. There is no other lock, so there is no order of locks.

#include <pthread.h>

#include <penstock/kernel.h>

#include "../src/gpu/cuda_abi.h"
#include "emu_control.h"

enum {
    EMU_MAX_DEVICES = 8,
    EMU_ALIGN = 512,  // of device addresses, and the least gap between two
    EMU_EXPORT_ALIGN = 64 << 10,  // of what can be exported
    EMU_ALIGNED_FROM = 2 << 20,   // bytes of blocks that are aligned for that
    EMU_GRANULE = 2 << 20,        // of virtual memory
    EMU_MAX_ARGS = 4096,
};
#define EMU_RESERVE       ((uint64_t)64 << 30)  // addresses of a device
#define EMU_MEMORY        ((uint64_t)4 << 30)   // bytes it claims to have
#define EMU_GARBAGE_LIMIT ((uint64_t)256 << 20)

enum emu_fn {
#define X(need, name, symbol, params) EMU_FN_##name,
#include "../src/gpu/driver_list.h"
#undef X
    EMU_FN_COUNT
};

// --- ranges: blocks of memory, sorted by address ----------------------------

struct emu_context;

enum emu_use {
    EMU_ALLOCATED,   // cuMemAlloc, cuMemHostAlloc
    EMU_RESERVED,    // addresses only: what is behind them are mappings
    EMU_MAPPED,      // physical memory behind a part of those
    EMU_IMPORTED,    // of an external memory
    EMU_REGISTERED,  // host memory of the program's own
};

struct emu_range {
    uint64_t address, bytes;
    uint64_t serial;  // the how many-th allocation
    struct emu_context *ctx;
    enum emu_use use;
    bool given_back;  // a free was asked for and refused
    bool accessible;  // of a mapping: cuMemSetAccess() was called
    bool shared;      // its bytes (if allocated: of its whole export
                      // granules) are in the file `fd`
    int fd;
    struct emu_physical *physical;  // of a mapping
};
struct emu_ranges {
    struct emu_range *at;
    size_t count, room;
};

// --- objects behind handles -------------------------------------------------

enum emu_kind {
    EMU_NOTHING,
    EMU_CONTEXT,
    EMU_STREAM,
    EMU_EVENT,
    EMU_MODULE,
    EMU_FUNCTION,
    EMU_PHYSICAL,
    EMU_EXTERNAL,
};

// A handle is kind, generation and index, never an address: a stale one is
// recognised without touching freed memory, and following one faults.
struct emu_slot {
    void *object;
    struct emu_context *ctx;
    uint32_t generation;
    uint8_t kind;
    bool given_back;
};

// A place in a stream: after all operations up to `seq`. Counted; outlives its
// stream, which reaches all its marks before it goes.
struct emu_mark {
    struct emu_mark *next;  // in the stream's list, by seq
    struct emu_stream *stream;
    uint64_t seq;
    unsigned refs;
    bool reached;
};

enum emu_op_kind {
    EMU_OP_COPY,
    EMU_OP_FILL,
    EMU_OP_LAUNCH,
    EMU_OP_RECORD,  // nothing to do; its mark is reached when it is its turn
    EMU_OP_WAIT,
};

struct emu_op {
    struct emu_op *next;
    uint64_t seq;
    enum emu_op_kind kind;
    // copy and fill: host addresses of the bytes
    char *dst;
    const char *src;
    size_t dst_pitch, src_pitch, row_bytes, rows;
    void *staged;  // source of a pageable upload; freed after
    unsigned char value;
    // launch
    const char *kernel;
    penk_host_fn run;
    uint32_t grid[3], block[2];
    void *args;
    // wait
    struct emu_mark *mark;
};

// Records of blocking-sync events that a stream takes before the oldest is
// reached; the next record waits for it. Measured on an H200, driver 580.159.
enum { EMU_BLOCKING_RECORDS = 56 };

struct emu_stream {
    struct emu_stream *next;  // of the context
    struct emu_context *ctx;
    unsigned flags;
    uint64_t handle;  // 0: destroyed, or the context's own
    struct emu_op *first, **last;
    struct emu_mark *marks, **last_mark;
    uint64_t queued, done;  // sequence numbers
    uint64_t demand;        // lazy: somebody waits for work up to here
    uint64_t random;
    bool held, closing;
    struct emu_mark *blocking[EMU_BLOCKING_RECORDS];  // a ring of the last
    unsigned blocking_next;
    pthread_cond_t wake;
};

struct emu_event {
    unsigned flags;
    struct emu_mark *mark;  // of the last record; NULL: never recorded
};

struct emu_module {
    const struct pen_kernel_image *image;
    uint64_t functions[PEN_MAX_KERNELS];  // handles; 0: not asked for yet
};

struct emu_function {
    const struct pen_kernel_entry *entry;
};

// Memory without an address. Counted: by its handle and by each mapping.
struct emu_physical {
    struct emu_device *device;
    int fd;
    uint64_t bytes;
    unsigned refs;
};

// Memory of somebody else, known by a descriptor of our own.
struct emu_external {
    int fd;
    uint64_t bytes;
};

struct emu_context {
    struct emu_device *device;
    uint64_t handle;
    CUresult sticky;
    struct emu_stream *streams;  // those with a thread, destroyed ones too
    struct emu_stream *legacy;   // the NULL stream; made at first use
    unsigned threads;
};

// Device addresses [base, base + reserve) have no access; their bytes are at
// address + offset.
struct emu_device {
    int index;
    uint64_t base, reserve;
    ptrdiff_t offset;
    struct emu_ranges blocks;    // of addresses
    struct emu_ranges mappings;  // inside the reserved ones
    uint64_t used;               // bytes
    struct emu_context *ctx;     // NULL: not retained
    unsigned retains;
};

struct emu_state {
    pthread_mutex_t lock;
    pthread_cond_t progress;  // a mark was reached or a thread ended
    bool started;

    enum penemu_mode mode;
    uint64_t seed;
    uint64_t memory;
    int device_count;
    unsigned dmabuf;  // PENEMU_EXPORT, PENEMU_IMPORT
    bool base_cpu, check, print;
    bool cpu_v3;  // what emu_cpu_v3() said at cuInit()
    bool mode_set, memory_set, devices_set, cpu_set, check_set, dmabuf_set;

    struct emu_device device[EMU_MAX_DEVICES];
    struct emu_ranges pinned;
    uint64_t serial, stream_serial;

    struct emu_slot *slots;
    uint32_t slot_count;

    struct {
        bool armed, forever;
        int fn;  // -1: any
        uint64_t nth, seen, fired;
        CUresult result;
    } fault;
    uint64_t calls[EMU_FN_COUNT];
    struct penemu_stats stats;
    struct penemu_leaks leaks;
    uint64_t reports;
    char report[512];
};
extern struct emu_state emu;

// All functions below are called with the lock held, unless they say else.

// --- control.c --------------------------------------------------------------

// Remember a message about misuse.
PEN_PRINTF(1, 2) void emu_report(const char *format, ...);
void emu_read_environment(void);
// Name without and with version suffix.
const char *emu_fn_name(int fn);

// --- memory.c ---------------------------------------------------------------

struct emu_range *emu_range_find(const struct emu_ranges *ranges,
                                 uint64_t address);
// The first range that begins at `address` or after it; NULL: none.
struct emu_range *emu_range_from(const struct emu_ranges *ranges,
                                 uint64_t address);
bool emu_range_insert(struct emu_ranges *ranges, struct emu_range range);
void emu_range_remove(struct emu_ranges *ranges, struct emu_range *range);

CUresult emu_device_reserve(struct emu_device *dev);
// The device that an address belongs to, whatever is there; NULL: none.
struct emu_device *emu_device_of(uint64_t address);
char *emu_bytes_of(const struct emu_device *dev, uint64_t address);
// Room for `size` addresses; false: none.
bool emu_place(const struct emu_device *dev, uint64_t size, uint64_t align,
               uint64_t *out);
// Count memory of the device; false: it has not so much.
bool emu_use_memory(struct emu_device *dev, uint64_t bytes);
void emu_return_memory(struct emu_device *dev, uint64_t bytes);
// The part of a block that can be exported: its whole 64 KiB; bytes 0: none.
struct emu_range emu_exportable(const struct emu_range *block);
// A file of new memory, filled with garbage; -1: none.
int emu_file_create(uint64_t bytes, uint64_t serial);
// Have the bytes of a range lie in a file, or nowhere in particular again.
bool emu_file_map(const struct emu_device *dev, const struct emu_range *range,
                  int fd, uint64_t offset, int protection);
void emu_file_unmap(const struct emu_device *dev, const struct emu_range *range,
                    int protection);

CUresult emu_device_alloc(struct emu_context *ctx, size_t bytes,
                          CUdeviceptr *out);
// Also of an imported block.
void emu_device_free(struct emu_device *dev, struct emu_range *block);
CUresult emu_pinned_alloc(struct emu_context *ctx, size_t bytes, void **out);
void emu_pinned_free(struct emu_range *block);
// What can be accessed around an address; the reason why nothing can, or NULL.
const char *emu_extent(const struct emu_device *dev, uint64_t address,
                       uint64_t *from, uint64_t *bytes);
// Where the bytes of device memory are, or an error if they are not inside one
// live allocation of any device. `what` is for the report.
CUresult emu_find_device(uint64_t address, size_t bytes, const char *what,
                         char **out);
// Whether host memory is pinned; an error for device addresses and for spans
// that leave a pinned block.
CUresult emu_find_host(const void *memory, size_t bytes, const char *what,
                       bool *pinned);
// Free all memory of a context, counting leaks.
void emu_memory_release(struct emu_context *ctx);

// --- virtual.c, foreign.c ---------------------------------------------------

void emu_physical_unref(struct emu_physical *physical);
void emu_unmap(struct emu_device *dev, struct emu_range *mapping);
void emu_unreserve(struct emu_device *dev, struct emu_range *block);
// A descriptor of its own for the caller; -1: none.
int emu_file_dup(int fd);

// --- handle.c ---------------------------------------------------------------

// 0: out of memory.
uint64_t emu_handle_create(enum emu_kind kind, void *object,
                           struct emu_context *ctx);
struct emu_slot *emu_handle_slot(enum emu_kind kind, const void *handle);
void *emu_handle_find(enum emu_kind kind, const void *handle);
void emu_handle_destroy(uint64_t handle);

// The context stack of the calling thread.
CUresult emu_stack_push(uint64_t handle);
uint64_t emu_stack_pop(void);  // 0: empty
uint64_t emu_stack_top(void);

CUresult emu_context_create(struct emu_device *dev);
// Finish all work, count what is alive, destroy it. Lets go of the lock while
// it waits.
void emu_context_destroy(struct emu_device *dev);
void emu_context_break(struct emu_context *ctx, CUresult result);

// --- stream.c ---------------------------------------------------------------

CUresult emu_stream_create(struct emu_context *ctx, unsigned flags,
                           struct emu_stream **out);
// The thread finishes what is queued, then frees the stream.
void emu_stream_close(struct emu_stream *stream);
// A new operation of the stream; NULL: out of memory.
struct emu_op *emu_op_create(enum emu_op_kind kind);
void emu_op_destroy(struct emu_op *op);
// Queue an operation (which is taken, also on failure), after what the rules
// of the legacy stream put before it.
CUresult emu_enqueue(struct emu_stream *stream, struct emu_op *op);
// The end of what is queued; a reference for the caller. NULL: no memory.
struct emu_mark *emu_mark_tail(struct emu_stream *stream);
void emu_mark_unref(struct emu_mark *mark);
// Demand a mark and wait until it is reached; lets go of the lock.
void emu_mark_wait(struct emu_mark *mark);
bool emu_stream_idle(const struct emu_stream *stream);
// Demand and wait for everything queued in a context so far; *waited tells
// whether there was something to wait for. Lets go of the lock.
CUresult emu_context_wait(struct emu_context *ctx, bool *waited);
// Have the threads look again, after a change of mode or state.
void emu_context_wake(struct emu_context *ctx);

// --- kernel.c ---------------------------------------------------------------

// Whether the x86-64-v3 build of kernels can run here.
bool emu_cpu_v3(void);
CUresult emu_image_check(const void *image);
// Run a launch, without the lock. False if a check of an access failed.
bool emu_kernel_run(const struct emu_op *op, const struct emu_device *dev);

#endif  // EMU_H
