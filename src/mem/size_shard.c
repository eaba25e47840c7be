// Which line of a pool's classes a thread uses, and how others get at it.

#include <errno.h>
#include <linux/membarrier.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "size_pool_priv.h"

_Thread_local unsigned stk_shard;
_Atomic unsigned stk_shard_top;
bool stk_shard_asymmetric;

static struct {
    pthread_once_t once;
    pthread_mutex_t lock;
    pthread_key_t key;
    bool has_key;
    bool taken[STK_SHARDS + 1];
} shards = {
    .once = PTHREAD_ONCE_INIT,
    .lock = PTHREAD_MUTEX_INITIALIZER,
};

static void give_number(unsigned number)
{
    pthread_mutex_lock(&shards.lock);
    shards.taken[number] = false;
    pthread_mutex_unlock(&shards.lock);
}

// The thread ends. What still comes after this gets a number again.
static void leave(void *number)
{
    stk_shard = 0;
    give_number((unsigned)(uintptr_t)number);
}

static long membarrier(int command)
{
    return syscall(SYS_membarrier, command, 0, 0);
}

static void init(void)
{
    shards.has_key = pthread_key_create(&shards.key, leave) == 0;
    // ThreadSanitizer knows nothing of barriers that others make.
#ifndef __SANITIZE_THREAD__
    stk_shard_asymmetric =
        membarrier(MEMBARRIER_CMD_REGISTER_PRIVATE_EXPEDITED) == 0;
#endif
}

void stk_shard_init(void)
{
    pthread_once(&shards.once, init);
}

bool stk_shard_barrier(void)
{
    if (!stk_shard_asymmetric)
        return true;  // owners made theirs
    if (membarrier(MEMBARRIER_CMD_PRIVATE_EXPEDITED) == 0)
        return true;
    // A forked child may have to register again.
    return errno == EPERM &&
           membarrier(MEMBARRIER_CMD_REGISTER_PRIVATE_EXPEDITED) == 0 &&
           membarrier(MEMBARRIER_CMD_PRIVATE_EXPEDITED) == 0;
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
    unsigned number = 1;
    pthread_mutex_lock(&shards.lock);
    while (number <= STK_SHARDS && shards.taken[number])
        number++;
    if (number <= STK_SHARDS && shards.has_key) {
        shards.taken[number] = true;
        if (number > atomic_load(&stk_shard_top))
            atomic_store(&stk_shard_top, number);
    } else {
        number = 0;
    }
    pthread_mutex_unlock(&shards.lock);
    // Without its end being told a thread would keep the number for ever.
    if (number &&
        pthread_setspecific(shards.key, (void *)(uintptr_t)number) != 0) {
        give_number(number);
        number = 0;
    }
    stk_shard = number;
    return number;
}
