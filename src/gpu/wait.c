#include "wait.h"

#include <signal.h>
#include <stdlib.h>

// More than wait for a stream's points (STK_RUN_AHEAD) and as many again that
// are just being called: one chunk is all that most streams ever need.
enum { CHUNK = 128 };

struct stk_wait_chunk {
    struct stk_wait_chunk *next;
    struct stk_wait waits[CHUNK];
};

static void give(struct stk_wait_store *store, struct stk_wait *wait)
{
    wait->next = store->free;
    store->free = wait;
}

bool stk_wait_reserve(struct stk_wait_store *store)
{
    struct stk_wait_chunk *chunk = calloc(1, sizeof(*chunk));
    if (!chunk)
        return false;
    chunk->next = store->chunks;
    store->chunks = chunk;
    for (unsigned i = 0; i < CHUNK; i++)
        give(store, &chunk->waits[i]);
    return true;
}

struct stk_wait *stk_wait_take(struct stk_wait_store *store)
{
    if (!store->free && !stk_wait_reserve(store))
        return NULL;
    struct stk_wait *wait = store->free;
    store->free = wait->next;
    wait->next = NULL;
    return wait;
}

void stk_wait_give(struct stk_wait_store *store, struct stk_wait *first)
{
    while (first) {
        struct stk_wait *next = first->next;
        give(store, first);
        first = next;
    }
}

void stk_wait_call(const struct stk_wait *first)
{
    for (const struct stk_wait *wait = first; wait; wait = wait->next) {
        if (wait->done)
            wait->done(wait->cookie);
    }
}

void stk_wait_finish(struct stk_wait_store *store)
{
    while (store->chunks) {
        struct stk_wait_chunk *next = store->chunks->next;
        free(store->chunks);
        store->chunks = next;
    }
    store->free = NULL;
}

enum pen_status stk_thread_start(pthread_t *out, const char *name,
                                 void *(*run)(void *arg), void *arg,
                                 struct pen_error *err)
{
    sigset_t all, before;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    const int failed = pthread_create(out, NULL, run, arg);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    if (failed)
        return pen_error_set(err, PEN_E_NOMEM, failed, name,
                             "no thread could be started; the limit of "
                             "threads or memory is reached");
    pthread_setname_np(*out, name);
    return PEN_OK;
}
