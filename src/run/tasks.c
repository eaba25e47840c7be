#include "tasks.h"

#include <errno.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>

#include "../gpu/wait.h"

// A zeroed task belongs to no scheduler and cannot be woken.
enum { UNKNOWN = 0, IDLE, QUEUED, RUNNING, RUNNING_WOKEN, DONE };

struct worker {
    struct stk_sched *sched;
    pthread_t thread;
    bool started;
    struct stk_task *next;  // to run before anything of the queue
};

// Lock: `lock` guards the queue, the counters and the signalled flags. It is
// a leaf: nothing else is locked and nobody is called while it is held.
struct stk_sched {
    pthread_mutex_t lock;
    pthread_cond_t work;   // the queue is not empty, or quit
    pthread_cond_t ended;  // live is 0
    struct stk_ledger *ledger;

    struct stk_task *first, *last;  // run queue, first come first served
    uint32_t idle;                  // workers that wait for work
    uint32_t live;                  // tasks that are not done
    bool quit;

    struct stk_task **tasks;
    uint32_t task_count, task_room;
    bool tasks_failed;  // there was no memory to note a task
    struct worker *workers;
    uint32_t worker_count, most_workers;
    uint32_t started;  // threads that were started
    uint32_t threads;  // threads that have not left

    void (*last_left)(void *cookie);
    void *cookie;
};

// The worker that this thread is; NULL on any other thread.
static _Thread_local struct worker *this_worker;

enum pen_status stk_sched_create(uint32_t workers, struct stk_ledger *ledger,
                                 struct stk_sched **out, struct pen_error *err)
{
    *out = NULL;
    struct stk_sched *s = calloc(1, sizeof(*s));
    if (!s)
        return pen_error_set(err, PEN_E_NOMEM, 0, "scheduler", "out of memory");
    pthread_condattr_t monotonic;
    pthread_condattr_init(&monotonic);
    pthread_condattr_setclock(&monotonic, CLOCK_MONOTONIC);
    pthread_mutex_init(&s->lock, NULL);
    pthread_cond_init(&s->work, NULL);
    pthread_cond_init(&s->ended, &monotonic);
    pthread_condattr_destroy(&monotonic);
    s->ledger = ledger;
    s->most_workers = workers;
    if (!workers) {
        const long cores = sysconf(_SC_NPROCESSORS_ONLN);
        s->most_workers = cores > 0 ? (uint32_t)cores : 1;
    }
    *out = s;
    return PEN_OK;
}

static void sched_free(struct stk_sched *s)
{
    for (uint32_t i = 0; i < s->task_count; i++)
        pthread_cond_destroy(&s->tasks[i]->wake);
    pthread_cond_destroy(&s->ended);
    pthread_cond_destroy(&s->work);
    pthread_mutex_destroy(&s->lock);
    free(s->tasks);
    free(s->workers);
    free(s);
}

void stk_sched_add(struct stk_sched *s, struct stk_task *task)
{
    if (s->task_count == s->task_room) {
        const uint32_t room = s->task_room ? 2 * s->task_room : 16;
        struct stk_task **tasks = realloc(s->tasks, room * sizeof(*tasks));
        if (!tasks) {
            s->tasks_failed = true;
            return;
        }
        s->tasks = tasks;
        s->task_room = room;
    }
    task->sched = s;
    task->next = NULL;
    task->threaded = false;
    task->signalled = false;
    atomic_store(&task->state, IDLE);
    pthread_cond_init(&task->wake, NULL);
    s->tasks[s->task_count++] = task;
    s->live++;
}

// --- the run queue ----------------------------------------------------------

static void enqueue(struct stk_sched *s, struct stk_task *task)
{
    pthread_mutex_lock(&s->lock);
    if (task->blocks) {
        task->signalled = true;
        pthread_cond_signal(&task->wake);
    } else {
        task->next = NULL;
        if (s->last)
            s->last->next = task;
        else
            s->first = task;
        s->last = task;
        if (s->idle)
            pthread_cond_signal(&s->work);
    }
    pthread_mutex_unlock(&s->lock);
}

// The next task of the pool; NULL when the worker is to leave.
static struct stk_task *dequeue(struct stk_sched *s)
{
    pthread_mutex_lock(&s->lock);
    s->idle++;
    while (!s->first && !s->quit)
        pthread_cond_wait(&s->work, &s->lock);
    s->idle--;
    struct stk_task *task = s->first;
    if (task) {
        s->first = task->next;
        if (!s->first)
            s->last = NULL;
    }
    pthread_mutex_unlock(&s->lock);
    return task;
}

// True if the caller has to enqueue the task.
static bool mark_woken(struct stk_task *task)
{
    unsigned state = atomic_load(&task->state);
    for (;;) {
        unsigned want;
        if (state == IDLE)
            want = QUEUED;
        else if (state == RUNNING)
            want = RUNNING_WOKEN;
        else
            return false;
        if (atomic_compare_exchange_weak(&task->state, &state, want))
            return want == QUEUED;
    }
}

void stk_task_wake(struct stk_task *task)
{
    if (mark_woken(task))
        enqueue(task->sched, task);
}

void stk_task_wake_next(struct stk_task *task)
{
    if (!mark_woken(task))
        return;
    struct worker *w = this_worker;
    if (w && w->sched == task->sched && !w->next && !task->blocks)
        w->next = task;
    else
        enqueue(task->sched, task);
}

bool stk_task_done(const struct stk_task *task)
{
    return atomic_load(&task->state) == DONE;
}

static void task_ended(struct stk_sched *s, struct stk_task *task)
{
    atomic_store(&task->state, DONE);
    pthread_mutex_lock(&s->lock);
    if (--s->live == 0)
        pthread_cond_broadcast(&s->ended);
    pthread_mutex_unlock(&s->lock);
}

// Run once; true if the task has to be run again.
static bool run_once(struct stk_sched *s, struct stk_task *task)
{
    atomic_store(&task->state, RUNNING);
    switch (task->run(task)) {
    case STK_RUN_DONE:
        task_ended(s, task);
        return false;
    case STK_RUN_WAIT: {
        unsigned state = RUNNING;
        if (atomic_compare_exchange_strong(&task->state, &state, IDLE))
            return false;
        break;
    }
    case STK_RUN_MORE:
        break;
    }
    atomic_store(&task->state, QUEUED);
    return true;
}

// --- threads ----------------------------------------------------------------

static void thread_leaves(struct stk_sched *s, const void *key)
{
    stk_ledger_remove(s->ledger, STK_RES_THREAD, (uintptr_t)key, 0);
    pthread_mutex_lock(&s->lock);
    void (*last)(void *) = --s->threads == 0 ? s->last_left : NULL;
    void *cookie = s->cookie;
    pthread_mutex_unlock(&s->lock);
    if (last) {
        sched_free(s);
        last(cookie);
    }
}

static void *worker_main(void *arg)
{
    struct worker *w = arg;
    struct stk_sched *s = w->sched;
    this_worker = w;
    for (;;) {
        struct stk_task *task = w->next;
        w->next = NULL;
        if (!task)
            task = dequeue(s);
        if (!task)
            break;
        if (run_once(s, task))
            enqueue(s, task);
    }
    this_worker = NULL;
    thread_leaves(s, w);
    return NULL;
}

static void *task_main(void *arg)
{
    struct stk_task *task = arg;
    struct stk_sched *s = task->sched;
    for (;;) {
        pthread_mutex_lock(&s->lock);
        while (!task->signalled && !s->quit)
            pthread_cond_wait(&task->wake, &s->lock);
        const bool woken = task->signalled;
        task->signalled = false;
        pthread_mutex_unlock(&s->lock);
        if (!woken)
            break;
        while (run_once(s, task))
            ;
        if (stk_task_done(task))
            break;
    }
    thread_leaves(s, task);
    return NULL;
}

static void quit_and_join(struct stk_sched *s)
{
    pthread_mutex_lock(&s->lock);
    s->quit = true;
    pthread_cond_broadcast(&s->work);
    for (uint32_t i = 0; i < s->task_count; i++)
        pthread_cond_signal(&s->tasks[i]->wake);
    pthread_mutex_unlock(&s->lock);
    for (uint32_t i = 0; i < s->task_count; i++) {
        if (s->tasks[i]->threaded)
            pthread_join(s->tasks[i]->thread, NULL);
        s->tasks[i]->threaded = false;
    }
    for (uint32_t i = 0; i < s->worker_count; i++) {
        if (s->workers[i].started)
            pthread_join(s->workers[i].thread, NULL);
        s->workers[i].started = false;
    }
}

// Entered before it runs: a thread strikes itself out when it leaves.
static enum pen_status start_thread(struct stk_sched *s, pthread_t *thread,
                                    bool *started, void *(*entry)(void *),
                                    void *arg, const char *name,
                                    struct pen_error *err)
{
    stk_ledger_add(s->ledger, STK_RES_THREAD, (uintptr_t)arg, 0, "scheduler",
                   PEN_HERE);
    pthread_mutex_lock(&s->lock);
    s->threads++;
    pthread_mutex_unlock(&s->lock);
    const enum pen_status st = stk_thread_start(thread, name, entry, arg, err);
    if (st == PEN_OK) {
        *started = true;
        s->started++;
        return PEN_OK;
    }
    stk_ledger_remove(s->ledger, STK_RES_THREAD, (uintptr_t)arg, 0);
    pthread_mutex_lock(&s->lock);
    s->threads--;
    pthread_mutex_unlock(&s->lock);
    return st;
}

static enum pen_status start_threads(struct stk_sched *s, struct pen_error *err)
{
    for (uint32_t i = 0; i < s->worker_count; i++) {
        struct worker *w = &s->workers[i];
        w->sched = s;
        PEN_TRY(start_thread(s, &w->thread, &w->started, worker_main, w,
                             "pen-worker", err));
    }
    for (uint32_t i = 0; i < s->task_count; i++) {
        struct stk_task *task = s->tasks[i];
        if (task->blocks)
            PEN_TRY(start_thread(s, &task->thread, &task->threaded, task_main,
                                 task, "pen-module", err));
    }
    return PEN_OK;
}

enum pen_status stk_sched_start(struct stk_sched *s, struct pen_error *err)
{
    uint32_t pooled = 0;
    for (uint32_t i = 0; i < s->task_count; i++)
        pooled += !s->tasks[i]->blocks;
    s->worker_count = pooled < s->most_workers ? pooled : s->most_workers;
    if (s->worker_count)
        s->workers = calloc(s->worker_count, sizeof(*s->workers));
    if (s->tasks_failed || (s->worker_count && !s->workers)) {
        s->worker_count = 0;
        return pen_error_set(err, PEN_E_NOMEM, 0, "scheduler", "out of memory");
    }

    const enum pen_status st = start_threads(s, err);
    if (st != PEN_OK) {
        quit_and_join(s);
        return st;
    }
    for (uint32_t i = 0; i < s->task_count; i++)
        stk_task_wake(s->tasks[i]);
    return PEN_OK;
}

bool stk_sched_wait(struct stk_sched *s, int64_t deadline)
{
    const struct timespec until = {
        .tv_sec = deadline / 1000000000,
        .tv_nsec = deadline % 1000000000,
    };
    int rc = 0;
    pthread_mutex_lock(&s->lock);
    while (s->live && rc != ETIMEDOUT) {
        if (deadline < 0)
            pthread_cond_wait(&s->ended, &s->lock);
        else
            rc = pthread_cond_timedwait(&s->ended, &s->lock, &until);
    }
    const bool done = s->live == 0;
    pthread_mutex_unlock(&s->lock);
    return done;
}

bool stk_sched_abandon(struct stk_sched *s, void (*last)(void *cookie),
                       void *cookie)
{
    pthread_mutex_lock(&s->lock);
    const bool any = s->threads > 0;
    if (any) {
        s->last_left = last;
        s->cookie = cookie;
        s->quit = true;
        // Detached under the lock: a thread that leaves needs it, so none of
        // these can be gone with its number used again.
        for (uint32_t i = 0; i < s->task_count; i++) {
            if (s->tasks[i]->threaded)
                pthread_detach(s->tasks[i]->thread);
            s->tasks[i]->threaded = false;
            pthread_cond_signal(&s->tasks[i]->wake);
        }
        for (uint32_t i = 0; i < s->worker_count; i++) {
            if (s->workers[i].started)
                pthread_detach(s->workers[i].thread);
            s->workers[i].started = false;
        }
        pthread_cond_broadcast(&s->work);
    }
    pthread_mutex_unlock(&s->lock);
    return any;
}

void stk_sched_destroy(struct stk_sched **sched)
{
    struct stk_sched *s = *sched;
    *sched = NULL;
    if (!s)
        return;
    quit_and_join(s);
    sched_free(s);
}

uint32_t stk_sched_threads(const struct stk_sched *sched)
{
    return sched->started;
}
