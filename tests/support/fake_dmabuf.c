#include "fake_dmabuf.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <linux/dma-buf.h>
#include <linux/dma-heap.h>
#include <linux/udmabuf.h>

enum { MAX_FDS = 1024, PAGE = 4096 };
enum what { NOT_OURS, NODE_UDMABUF, NODE_HEAP, MEMFD, DMABUF };

// Of all below: the kernel is called by several threads. A call may make
// another one.
static pthread_mutex_t lock = PTHREAD_RECURSIVE_MUTEX_INITIALIZER_NP;
static enum what what[MAX_FDS];
static struct fake_dmabuf kernel = { .udmabuf = ENOENT, .heap = ENOENT };
static struct fake_dmabuf_counts counts;
static unsigned failing, called, interrupted;
static int fail_with;
static bool failed;

int __real_open64(const char *path, int flags, ...);
int __real_ioctl(int fd, unsigned long request, ...);
void *__real_mmap64(void *at, size_t bytes, int prot, int flags, int fd,
                    off64_t offset);
int __real_munmap(void *at, size_t bytes);
int __real_memfd_create(const char *name, unsigned flags);
int __real_ftruncate64(int fd, off64_t bytes);
int __real_fcntl64(int fd, int command, ...);
off64_t __real_lseek64(int fd, off64_t offset, int whence);
int __real_close(int fd);

static bool enter(void)
{
    pthread_mutex_lock(&lock);
    return true;
}

static void leave(const bool *held)
{
    if (*held)
        pthread_mutex_unlock(&lock);
}

// For the rest of the function.
#define LOCKED __attribute__((cleanup(leave), unused)) const bool held = enter()

void fake_dmabuf_set(const struct fake_dmabuf *k)
{
    LOCKED;
    const unsigned mappings = counts.mappings;
    kernel = *k;
    counts = (struct fake_dmabuf_counts){ .mappings = mappings };
    interrupted = 0;
}

void fake_dmabuf_fail(unsigned nth, int error)
{
    LOCKED;
    failing = nth;
    fail_with = error;
    called = 0;
    failed = false;
}

bool fake_dmabuf_failed(void)
{
    LOCKED;
    return failed;
}

struct fake_dmabuf_counts fake_dmabuf_counts(void)
{
    LOCKED;
    return counts;
}

static bool must_fail(void)
{
    if (!failing || ++called != failing)
        return false;
    failed = true;
    errno = fail_with;
    return true;
}

static enum what what_is(int fd)
{
    return fd >= 0 && fd < MAX_FDS ? what[fd] : NOT_OURS;
}

static int mark(int fd, enum what w)
{
    if (fd >= 0 && fd < MAX_FDS)
        what[fd] = w;
    return fd;
}

static int refuse(int error)
{
    errno = error;
    return -1;
}

int fake_dmabuf_new(unsigned long long bytes)
{
    LOCKED;
    const int fd = __real_memfd_create("fake", MFD_CLOEXEC);
    if (fd >= 0 && __real_ftruncate64(fd, (off64_t)bytes))
        return -1;
    return mark(fd, DMABUF);
}

// --- the calls --------------------------------------------------------------

int __wrap_open64(const char *path, int flags, ...);
int __wrap_open64(const char *path, int flags, ...)
{
    LOCKED;
    const bool udmabuf = strcmp(path, "/dev/udmabuf") == 0;
    const bool heap = strcmp(path, "/dev/dma_heap/system") == 0;
    if (!udmabuf && !heap) {
        va_list args;
        va_start(args, flags);
        const int mode = va_arg(args, int);
        va_end(args);
        return __real_open64(path, flags, mode);
    }
    if (must_fail())
        return -1;
    const int why = udmabuf ? kernel.udmabuf : kernel.heap;
    if (why)
        return refuse(why);
    counts.nodes++;
    return mark(__real_open64("/dev/null", O_RDWR | O_CLOEXEC),
                udmabuf ? NODE_UDMABUF : NODE_HEAP);
}

// As the kernel: whole pages of a memfd that cannot shrink.
static int create(const struct udmabuf_create *c)
{
    const int seals = __real_fcntl64((int)c->memfd, F_GET_SEALS);
    if (kernel.create && c->size >= kernel.limit)
        return refuse(kernel.create);
    if (c->offset % PAGE || c->size % PAGE || !c->size || seals < 0 ||
        !(seals & F_SEAL_SHRINK) || (seals & F_SEAL_WRITE) ||
        __real_lseek64((int)c->memfd, 0, SEEK_END) < (off64_t)c->size)
        return refuse(EINVAL);
    counts.created++;
    return mark(__real_fcntl64((int)c->memfd, F_DUPFD_CLOEXEC, 0), DMABUF);
}

static int alloc(struct dma_heap_allocation_data *data)
{
    if (kernel.alloc && data->len >= kernel.limit)
        return refuse(kernel.alloc);
    if (!data->len || data->heap_flags || data->fd)
        return refuse(EINVAL);
    const int fd = fake_dmabuf_new((data->len + PAGE - 1) / PAGE * PAGE);
    if (fd < 0)
        return -1;
    counts.created++;
    data->fd = (uint32_t)fd;
    return 0;
}

static int sync_access(const struct dma_buf_sync *s)
{
    if (!(s->flags & DMA_BUF_SYNC_RW))
        return refuse(EINVAL);
    if (interrupted < kernel.interrupted)
        return refuse(interrupted++ % 2 ? EAGAIN : EINTR);
    interrupted = 0;
    if (kernel.sync)
        return refuse(kernel.sync);
    if (s->flags & DMA_BUF_SYNC_END) {
        counts.ends++;
        return 0;
    }
    counts.begins++;
    counts.reads += (s->flags & DMA_BUF_SYNC_READ) != 0;
    counts.writes += (s->flags & DMA_BUF_SYNC_WRITE) != 0;
    return 0;
}

int __wrap_ioctl(int fd, unsigned long request, ...);
int __wrap_ioctl(int fd, unsigned long request, ...)
{
    LOCKED;
    va_list args;
    va_start(args, request);
    void *data = va_arg(args, void *);
    va_end(args);
    const enum what w = what_is(fd);
    if (w == NOT_OURS)
        return __real_ioctl(fd, request, data);
    if (must_fail())
        return -1;
    if (w == NODE_UDMABUF && request == UDMABUF_CREATE)
        return create(data);
    if (w == NODE_HEAP && request == DMA_HEAP_IOCTL_ALLOC)
        return alloc(data);
    if (w == DMABUF && request == DMA_BUF_IOCTL_SYNC)
        return sync_access(data);
    return refuse(ENOTTY);
}

void *__wrap_mmap64(void *at, size_t bytes, int prot, int flags, int fd,
                    off64_t offset);
void *__wrap_mmap64(void *at, size_t bytes, int prot, int flags, int fd,
                    off64_t offset)
{
    LOCKED;
    const bool ours = what_is(fd) != NOT_OURS;
    if (ours && must_fail())
        return MAP_FAILED;
    void *map = __real_mmap64(at, bytes, prot, flags, fd, offset);
    if (ours && map != MAP_FAILED)
        counts.mappings++;
    return map;
}

int __wrap_munmap(void *at, size_t bytes);
int __wrap_munmap(void *at, size_t bytes)
{
    LOCKED;
    counts.mappings--;
    return __real_munmap(at, bytes);
}

int __wrap_memfd_create(const char *name, unsigned flags);
int __wrap_memfd_create(const char *name, unsigned flags)
{
    LOCKED;
    if (must_fail())
        return -1;
    return mark(__real_memfd_create(name, flags), MEMFD);
}

int __wrap_ftruncate64(int fd, off64_t bytes);
int __wrap_ftruncate64(int fd, off64_t bytes)
{
    LOCKED;
    if (must_fail())
        return -1;
    return __real_ftruncate64(fd, bytes);
}

int __wrap_fcntl64(int fd, int command, ...);
int __wrap_fcntl64(int fd, int command, ...)
{
    LOCKED;
    va_list args;
    va_start(args, command);
    const int value = va_arg(args, int);
    va_end(args);
    if (must_fail())
        return -1;
    const int done = __real_fcntl64(fd, command, value);
    return command == F_DUPFD_CLOEXEC ? mark(done, what_is(fd)) : done;
}

off64_t __wrap_lseek64(int fd, off64_t offset, int whence);
off64_t __wrap_lseek64(int fd, off64_t offset, int whence)
{
    LOCKED;
    if (must_fail())
        return -1;
    return __real_lseek64(fd, offset, whence);
}

int __wrap_close(int fd);
int __wrap_close(int fd)
{
    LOCKED;
    mark(fd, NOT_OURS);
    return __real_close(fd);
}
