// Which line of a pool's classes a thread uses.

#include "size_pool_priv.h"

_Thread_local unsigned stk_shard;
_Atomic unsigned stk_shard_top;

static struct {
    pthread_once_t once;
    pthread_mutex_t lock;
    pthread_key_t key;
    bool has_key;
    unsigned threads[STK_SHARDS + 1];  // that use each line
} shards = {
    .once = PTHREAD_ONCE_INIT,
    .lock = PTHREAD_MUTEX_INITIALIZER,
};

static void leave(void *number)
{
    pthread_mutex_lock(&shards.lock);
    shards.threads[(uintptr_t)number]--;
    pthread_mutex_unlock(&shards.lock);
}

static void make_key(void)
{
    shards.has_key = pthread_key_create(&shards.key, leave) == 0;
}

// Threads that end after the library was unloaded have nothing to leave.
__attribute__((destructor)) static void drop_key(void)
{
    if (shards.has_key)
        pthread_key_delete(shards.key);
    shards.has_key = false;
}

unsigned stk_shard_choose(void)
{
    pthread_once(&shards.once, make_key);
    pthread_mutex_lock(&shards.lock);
    unsigned best = 1;
    for (unsigned i = 2; i <= STK_SHARDS; i++) {
        if (shards.threads[i] < shards.threads[best])
            best = i;
    }
    shards.threads[best]++;
    if (best > atomic_load(&stk_shard_top))
        atomic_store(&stk_shard_top, best);
    pthread_mutex_unlock(&shards.lock);
    // Where the end of the thread cannot be told, its line counts as used for
    // ever, which costs evenness and nothing else.
    if (shards.has_key)
        (void)pthread_setspecific(shards.key, (void *)(uintptr_t)best);
    stk_shard = best;
    return best;
}
