#ifndef STK_WAIT_H
#define STK_WAIT_H

// Who waits for the device, and the threads that wait on their behalf.

#include <pthread.h>

#include <penstock/status.h>

// One waiter: `done(cookie)` is called when its point is reached.
struct stk_wait {
    struct stk_wait *next;
    uint64_t seq;
    void (*done)(void *cookie);  // NULL: somebody blocks instead
    void *cookie;
};

// Unused waiters. Storage grows in chunks and is kept, so that the steady
// state allocates nothing. {0} is empty. Guarded by its user's lock.
struct stk_wait_store {
    struct stk_wait *free;
    struct stk_wait_chunk *chunks;
};
// Have some ready; false: no memory.
bool stk_wait_reserve(struct stk_wait_store *store);
// NULL: no memory.
struct stk_wait *stk_wait_take(struct stk_wait_store *store);
// Give back a whole list.
void stk_wait_give(struct stk_wait_store *store, struct stk_wait *first);
void stk_wait_finish(struct stk_wait_store *store);

// Call a list of waiters in order; they stay linked for giving back.
void stk_wait_call(const struct stk_wait *first);

// Start a thread that takes no signals: those are for the program's own.
// Errors: PEN_E_NOMEM.
PEN_NODISCARD enum pen_status stk_thread_start(pthread_t *out, const char *name,
                                               void *(*run)(void *arg),
                                               void *arg,
                                               struct pen_error *err);

#endif  // STK_WAIT_H
