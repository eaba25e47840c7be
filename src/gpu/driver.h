#ifndef STK_DRIVER_H
#define STK_DRIVER_H

// The driver's function table, the checked call, and what a device is made
// of. For the sources of this folder only: nothing above sees CUDA's types.
//
// Locks of this folder, each taken alone or in this order, none of them held
// while a callback runs:
//   stk_stream.lock   number, event ring and waiters of one stream
//   stk_idle.lock     waiters of the whole context
//   kernels_lock      the list of loaded images, while it is added to
//   hoards_lock       the list of hoards

#include <pthread.h>
#include <stdatomic.h>

#include "cuda_abi.h"
#include "device.h"
#include "wait.h"

struct stk_driver {
#define X(need, name, symbol, params) CUresult(*name) params;
#include "driver_list.h"
#undef X
    void *library;
};

// Load a driver library and look up all functions of the list. It is never
// closed again: the driver registers handlers that outlive any user of it.
// Errors: PEN_E_NODRIVER; native is 0 if there is no such file, else
//         CUDA_ERROR_SHARED_OBJECT_INIT_FAILED (there, but not loadable) or
//         CUDA_ERROR_SHARED_OBJECT_SYMBOL_NOT_FOUND.
PEN_NODISCARD enum pen_status stk_driver_open(const char *path,
                                              struct stk_driver *out,
                                              struct pen_error *err);

// True in a process that was forked after a driver was opened: nothing of the
// driver works there, and calls may hang. Every use of a device is refused by
// stk_not_forked(); releasing makes no call, takes no lock that a thread of the
// other process may hold, and waits for no thread. Thread: any.
extern _Atomic bool stk_forked;
// Errors: PEN_E_STATE.
PEN_NODISCARD enum pen_status stk_not_forked(struct pen_error *err);

// What a result means for whoever made the call (docs/adr/0003).
enum stk_cu_class {
    STK_CU_DONE = 0,
    STK_CU_RETRY,   // not yet: ask again later
    STK_CU_MEMORY,  // too little memory: less, or later, may do
    STK_CU_CALL,    // this operation failed, the context is as before
    STK_CU_DEAD,    // the context is lost, with all that is in it
};
enum stk_cu_class stk_cu_class(CUresult result);

// Make a driver call and translate its result, which is PEN_E_STATE in a forked
// process:
//     PEN_TRY(STK_CU(dev, err, cuMemFree(address)));
// The call is looked up in the device's table, its text becomes part of the
// error. On a lost device no call is made and the status is PEN_E_LOST.
// PEN_AGAIN: CUDA_ERROR_NOT_READY. Errors: PEN_E_DEVMEM, PEN_E_LOST,
// PEN_E_DRIVER; native is the driver's code.
#define STK_CU(dev, err, call)                                                 \
    (stk_device_lost(dev)                                                      \
         ? stk_cu_lost((dev), (err), #call)                                    \
         : stk_cu_result((dev), (err), (dev)->cu.call, #call))

// Whether the driver has a function that it MAY have.
#define STK_CU_HAS(dev, name) ((dev)->cu.name != NULL)

// The same as STK_CU for releasing things, which has nobody to return an error
// to: the call is made on a lost device too, and a failure is logged.
#define STK_CU_END(dev, call)                                                  \
    (stk_forked ? (void)0 : stk_cu_end((dev), (dev)->cu.call, #call))

PEN_NODISCARD enum pen_status stk_cu_result(struct pen_device *dev,
                                            struct pen_error *err,
                                            CUresult result, const char *call);
PEN_NODISCARD enum pen_status
stk_cu_lost(struct pen_device *dev, struct pen_error *err, const char *call);
void stk_cu_end(struct pen_device *dev, CUresult result, const char *call);

// The thread that waits for the whole context; started by its first use.
struct stk_idle {
    pthread_mutex_t lock;
    pthread_cond_t changed;
    pthread_t thread;
    bool started, stop;
    struct stk_wait *first, *last;
    struct stk_wait_store store;
};

enum { STK_LOST_NO = 0, STK_LOST_SETTING, STK_LOST_YES };

struct pen_device {
    struct stk_driver cu;
    struct stk_ledger *ledger;
    struct stk_ledger *own_ledger;  // the same, if nobody gave one; else NULL
    const struct pen_log *log;
    CUdevice device;
    CUcontext context;  // NULL while not retained
    struct pen_device_info info;
    char where[32];  // names the device in errors
    char owner[64];  // of the context and the kernels; "": the device itself

    _Atomic int lost;        // STK_LOST_...
    struct pen_error cause;  // of the loss; valid once STK_LOST_YES is seen
    _Atomic uint64_t disturbed;
    _Atomic uint64_t blocked;  // waits of threads that must not block

    pthread_mutex_t kernels_lock;
    _Atomic(struct stk_kernels *) kernels;  // added at the front, never removed
    bool prefer_ptx;

    struct stk_idle idle;

    pthread_mutex_t hoards_lock;
    pthread_cond_t hoards_changed;
    struct stk_hoard *hoards;

    // What the driver said it can do.
    size_t granularity;  // of virtual memory; 0: none
    bool can_export;
    _Atomic int can_import;  // STK_IMPORT_...
};
enum { STK_IMPORT_UNKNOWN = 0, STK_IMPORT_NO, STK_IMPORT_YES };

// Declare the device lost because of `cause`. The first cause is kept.
void stk_device_lose(struct pen_device *dev, const struct pen_error *cause);
// The same for a thread that has nobody to return the error to: it is logged,
// unless the device `was_lost` before. Not to be called with a lock held.
void stk_device_lose_behind(struct pen_device *dev, bool was_lost,
                            const struct pen_error *cause);

// As stk_scope_enter(), for releasing things: also on a lost device. False if
// the context could not be entered; the release is tried all the same.
bool stk_scope_enter_end(struct stk_scope *scope, struct pen_device *dev);

// The calling thread waits for the device; counted if it must not.
void stk_count_blocked(struct pen_device *dev);

// Part of opening: set dev->granularity.
PEN_NODISCARD enum pen_status stk_region_ask(struct pen_device *dev,
                                             struct pen_error *err);
// Parts of pen_device_close().
void stk_idle_stop(struct pen_device *dev);
void stk_kernels_unload(struct pen_device *dev);

// Memory that somebody asks for, in errors and in the ledger.
struct stk_want {
    const char *call;        // of the driver that gives it
    const char *none;        // what it means that there is none
    enum pen_status status;  // of its error
    enum stk_res res;
    size_t bytes;
    const char *owner;
};
// Make `attempt` with the budgets asked before, the context being current. If
// there is no memory, wait for all queued work, have the hoards trimmed and try
// once more. On success the bytes are reserved in the ledger: enter them.
PEN_NODISCARD enum pen_status
stk_memory_get(struct pen_device *dev, const struct stk_want *want,
               enum pen_status (*attempt)(struct pen_device *dev, void *cookie,
                                          struct pen_error *err),
               void *cookie, struct pen_error *err);

struct stk_kernels {
    const struct pen_kernel_image *image;
    struct stk_kernels *next;
    CUmodule module;
    CUfunction functions[PEN_MAX_KERNELS];
};

#endif  // STK_DRIVER_H
