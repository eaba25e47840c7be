#ifndef STK_TASKS_H
#define STK_TASKS_H

// Tasks on threads. A task is run by one thread at a time, whenever somebody
// woke it; a wake that arrives while it runs makes it run again, so no change
// that a task waits for is ever missed. Tasks that may block have a thread of
// their own, the others share a pool of workers. Knows nothing of frames.
//
// The run queue is the only thing workers share. Replacing it by one queue
// per worker with stealing changes enqueue() and dequeue() of tasks.c.

#include <pthread.h>
#include <stdatomic.h>

#include <penstock/status.h>

#include "../base/ledger.h"

enum stk_run {
    STK_RUN_WAIT = 0,  // nothing to do until the next wake
    STK_RUN_MORE,      // run again, others first
    STK_RUN_DONE,      // never run again
};

struct stk_sched;

struct stk_task {
    // Called by one thread at a time. Must not block unless `blocks`.
    enum stk_run (*run)(struct stk_task *task);
    bool blocks;  // gets a thread of its own

    // Private to tasks.c.
    struct stk_sched *sched;
    _Atomic unsigned state;
    struct stk_task *next;
    pthread_t thread;  // of a task that blocks
    bool threaded;     // thread was started
    pthread_cond_t wake;
    bool signalled;  // guarded by the lock of the scheduler
};

// `workers` threads of the pool at most (0: one per core); no more than there
// are tasks for them. `ledger` (may be NULL) is told of each thread.
PEN_NODISCARD enum pen_status stk_sched_create(uint32_t workers,
                                               struct stk_ledger *ledger,
                                               struct stk_sched **out,
                                               struct pen_error *err);
// Every task must be done, or the scheduler never started. Joins all threads.
void stk_sched_destroy(struct stk_sched **sched);

// Before start: `task` is borrowed until destroy; run and blocks are set.
void stk_sched_add(struct stk_sched *sched, struct stk_task *task);
// Start the threads and wake every task once. On failure no thread is left
// and no task has run.
PEN_NODISCARD enum pen_status stk_sched_start(struct stk_sched *sched,
                                              struct pen_error *err);

// Let the task run (again). Called with no lock of the task's data held.
// Thread: any.
void stk_task_wake(struct stk_task *task);
// The same, but if the caller is a worker it runs `task` right after what it
// runs now: the frame it just made is still in its cache.
void stk_task_wake_next(struct stk_task *task);
bool stk_task_done(const struct stk_task *task);

// Wait until every task is done; false when `deadline` (monotonic
// nanoseconds; < 0: none) came first.
bool stk_sched_wait(struct stk_sched *sched, int64_t deadline);

// Give up waiting for a task that does not come back: threads are detached
// and end when they can. The last of them calls `last(cookie)`, after which
// the scheduler is gone. Returns false, and does nothing, if no thread is
// left any more.
bool stk_sched_abandon(struct stk_sched *sched, void (*last)(void *cookie),
                       void *cookie);

// Threads that were started.
uint32_t stk_sched_threads(const struct stk_sched *sched);

#endif  // STK_TASKS_H
