#include "alloc_fail.h"

#include <errno.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stddef.h>

static atomic_bool armed, persistent, one_thread, fired;
static atomic_uint counted, failing;
static _Thread_local bool this_thread;

static void arm(unsigned nth, bool for_ever, bool thread)
{
    atomic_store(&armed, false);
    this_thread = thread;
    atomic_store(&one_thread, thread);
    atomic_store(&persistent, for_ever);
    atomic_store(&failing, nth);
    atomic_store(&counted, 0);
    atomic_store(&fired, false);
    atomic_store(&armed, true);
}

void pen_alloc_fail_arm(unsigned nth, bool for_ever)
{
    arm(nth, for_ever, false);
}

void pen_alloc_fail_arm_thread(unsigned nth, bool for_ever)
{
    arm(nth, for_ever, true);
}

bool pen_alloc_fail_disarm(void)
{
    atomic_store(&armed, false);
    this_thread = false;
    return atomic_load(&fired);
}

unsigned pen_alloc_fail_count(void)
{
    return atomic_load(&counted);
}

static bool must_fail(void)
{
    if (!atomic_load(&armed) || (atomic_load(&one_thread) && !this_thread))
        return false;
    const unsigned nth = atomic_load(&failing);
    const unsigned n = atomic_fetch_add(&counted, 1) + 1;
    if (!nth || n < nth || (n > nth && !atomic_load(&persistent)))
        return false;
    atomic_store(&fired, true);
    errno = ENOMEM;
    return true;
}

void *__real_malloc(size_t bytes);
void *__wrap_malloc(size_t bytes);
void *__wrap_malloc(size_t bytes)
{
    return must_fail() ? NULL : __real_malloc(bytes);
}

void *__real_calloc(size_t count, size_t bytes);
void *__wrap_calloc(size_t count, size_t bytes);
void *__wrap_calloc(size_t count, size_t bytes)
{
    return must_fail() ? NULL : __real_calloc(count, bytes);
}

void *__real_realloc(void *memory, size_t bytes);
void *__wrap_realloc(void *memory, size_t bytes);
void *__wrap_realloc(void *memory, size_t bytes)
{
    return must_fail() ? NULL : __real_realloc(memory, bytes);
}

void *__real_aligned_alloc(size_t align, size_t bytes);
void *__wrap_aligned_alloc(size_t align, size_t bytes);
void *__wrap_aligned_alloc(size_t align, size_t bytes)
{
    return must_fail() ? NULL : __real_aligned_alloc(align, bytes);
}

int __real_posix_memalign(void **out, size_t align, size_t bytes);
int __wrap_posix_memalign(void **out, size_t align, size_t bytes);
int __wrap_posix_memalign(void **out, size_t align, size_t bytes)
{
    return must_fail() ? ENOMEM : __real_posix_memalign(out, align, bytes);
}

char *__real_strdup(const char *s);
char *__wrap_strdup(const char *s);
char *__wrap_strdup(const char *s)
{
    return must_fail() ? NULL : __real_strdup(s);
}

char *__real_strndup(const char *s, size_t n);
char *__wrap_strndup(const char *s, size_t n);
char *__wrap_strndup(const char *s, size_t n)
{
    return must_fail() ? NULL : __real_strndup(s, n);
}

int __real_vasprintf(char **out, const char *format, va_list args);
int __wrap_vasprintf(char **out, const char *format, va_list args);
int __wrap_vasprintf(char **out, const char *format, va_list args)
{
    return must_fail() ? -1 : __real_vasprintf(out, format, args);
}

int __wrap_asprintf(char **out, const char *format, ...);
int __wrap_asprintf(char **out, const char *format, ...)
{
    if (must_fail())
        return -1;
    va_list args;
    va_start(args, format);
    const int n = __real_vasprintf(out, format, args);
    va_end(args);
    return n;
}
