#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "file_out.h"

enum { PARTS_AT_ONCE = 512, NAMES_TRIED = 16 };

static enum pen_status io_error(struct pen_error *err, int native,
                                const char *path, const char *what)
{
    return pen_error_set(err, native == ENOMEM ? PEN_E_NOMEM : PEN_E_IO, native,
                         "", "cannot %s \"%s\": %s", what, path,
                         strerror(native));
}

enum pen_status stk_folder_open(const char *folder, bool create, int *out,
                                struct pen_error *err)
{
    const int flags = O_PATH | O_DIRECTORY | O_CLOEXEC;
    *out = open(folder, flags);
    if (*out >= 0)
        return PEN_OK;
    if (errno != ENOENT || !create)
        return io_error(err, errno, folder, "open folder");

    char path[PATH_MAX];
    if (snprintf(path, sizeof(path), "%s", folder) >= (int)sizeof(path))
        return io_error(err, ENAMETOOLONG, folder, "create folder");
    for (char *p = path + 1;; p++) {
        if (*p != '/' && *p != 0)
            continue;
        const char end = *p;
        *p = 0;
        // Another process may make the same folders at the same time.
        if (mkdir(path, 0777) != 0 && errno != EEXIST) {
            // A folder on the way may be there and not be ours to write to.
            struct stat st;
            const int native = errno;
            if (stat(path, &st) != 0 || !S_ISDIR(st.st_mode))
                return io_error(err, native, path, "create folder");
        }
        *p = end;
        if (!end)
            break;
    }
    *out = open(folder, flags);
    if (*out < 0)
        return io_error(err, errno, folder, "open folder");
    return PEN_OK;
}

enum pen_status stk_file_look(int folder, const char *name, const char *path,
                              struct stk_file_state *out, struct pen_error *err)
{
    struct stat st;

    *out = (struct stk_file_state){ 0 };
    if (fstatat(folder, name, &st, AT_SYMLINK_NOFOLLOW) != 0)
        return errno == ENOENT ? PEN_OK : io_error(err, errno, path, "look at");
    out->exists = true;
    out->regular = S_ISREG(st.st_mode);
    out->link = S_ISLNK(st.st_mode);
    out->folder = S_ISDIR(st.st_mode);
    out->special = !out->regular && !out->link && !out->folder;
    out->dev = st.st_dev;
    out->ino = st.st_ino;
    return PEN_OK;
}

// A name that nobody has. Short, so that names of 255 bytes stay possible.
static enum pen_status create_temp(struct stk_file_out *f,
                                   struct pen_error *err)
{
    for (int i = 0; i < NAMES_TRIED; i++) {
        uint64_t r = 0;
        if (getrandom(&r, sizeof(r), 0) != sizeof(r))
            return io_error(err, errno, f->path, "write");
        snprintf(f->temp, sizeof(f->temp), ".pen-%016llx",
                 (unsigned long long)r);
        f->fd =
            openat(f->folder, f->temp,
                   O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0666);
        if (f->fd >= 0)
            return PEN_OK;
        if (errno != EEXIST)
            break;
    }
    f->temp[0] = 0;
    return io_error(err, errno, f->path, "create");
}

static enum pen_status begin_append(struct stk_file_out *f,
                                    struct pen_error *err)
{
    const int flags = O_WRONLY | O_APPEND | O_NOFOLLOW | O_CLOEXEC;
    f->fd = openat(f->folder, f->name,
                   flags | (f->existed ? 0 : O_CREAT | O_EXCL), 0666);
    if (f->fd < 0)
        return io_error(err, errno, f->path, "open");
    struct stat st;
    if (fstat(f->fd, &st) != 0)
        return io_error(err, errno, f->path, "look at");
    f->start = st.st_size;
    return PEN_OK;
}

enum pen_status stk_file_begin(struct stk_file_out *f, struct pen_error *err)
{
    struct stk_file_state now;

    f->fd = -1;
    f->temp[0] = 0;
    f->direct = f->existed = false;
    PEN_TRY(stk_file_look(f->folder, f->name, f->path, &now, err));
    if (now.link)
        return pen_error_set(err, PEN_E_IO, ELOOP, "",
                             "\"%s\" is a link: it is not written through; "
                             "name the file itself",
                             f->path);
    if (now.folder)
        return io_error(err, EISDIR, f->path, "write");
    if (now.special) {
        f->direct = true;
        f->fd = openat(f->folder, f->name, O_WRONLY | O_NOFOLLOW | O_CLOEXEC);
        return f->fd >= 0 ? PEN_OK : io_error(err, errno, f->path, "open");
    }
    f->existed = now.exists;
    if (f->mode == STK_FILE_APPEND)
        return begin_append(f, err);
    if (f->mode == STK_FILE_NEW && now.exists)
        return pen_error_set(err, PEN_E_IO, EEXIST, "",
                             "\"%s\" exists: set overwrite to replace it or "
                             "append to continue it",
                             f->path);
    return create_temp(f, err);
}

// A write to a FIFO without reader, or beyond the limit of file sizes, would
// end the process of whoever uses the library. The signals come to the thread
// that writes: they wait while it does, and those that it caused are taken
// away before they can be delivered.
struct signals {
    sigset_t ours, before;
    bool pipe_waits, size_waits;  // was pending already: somebody else's
};

static void signals_hold(struct signals *s)
{
    sigset_t pending;
    sigemptyset(&pending);
    sigpending(&pending);
    s->pipe_waits = sigismember(&pending, SIGPIPE) == 1;
    s->size_waits = sigismember(&pending, SIGXFSZ) == 1;
    sigemptyset(&s->ours);
    sigaddset(&s->ours, SIGPIPE);
    sigaddset(&s->ours, SIGXFSZ);
    pthread_sigmask(SIG_BLOCK, &s->ours, &s->before);
}

static void signals_release(const struct signals *s, int native)
{
    const struct timespec none = { 0 };
    sigset_t caused;
    sigemptyset(&caused);
    if (native == EPIPE && !s->pipe_waits)
        sigaddset(&caused, SIGPIPE);
    if (native == EFBIG && !s->size_waits)
        sigaddset(&caused, SIGXFSZ);
    if (native == EPIPE || native == EFBIG) {
        while (sigtimedwait(&caused, NULL, &none) < 0 && errno == EINTR)
            ;
    }
    pthread_sigmask(SIG_SETMASK, &s->before, NULL);
}

static ssize_t write_parts(int fd, const struct iovec *parts, int count)
{
    struct signals signals;
    signals_hold(&signals);
    const ssize_t done = writev(fd, parts, count);
    const int native = done < 0 ? errno : 0;
    signals_release(&signals, native);
    errno = native;
    return done;
}

enum pen_status stk_file_write(struct stk_file_out *f, struct iovec *parts,
                               size_t count, struct pen_error *err)
{
    while (count) {
        if (parts->iov_len == 0) {
            parts++;
            count--;
            continue;
        }
        const int batch = count < PARTS_AT_ONCE ? (int)count : PARTS_AT_ONCE;
        ssize_t done = write_parts(f->fd, parts, batch);
        if (done < 0 && errno == EINTR)
            continue;
        if (done <= 0)
            return io_error(err, done < 0 ? errno : ENOSPC, f->path, "write");
        while (done > 0 && (size_t)done >= parts->iov_len) {
            done -= (ssize_t)parts->iov_len;
            parts++;
            count--;
        }
        if (done > 0) {
            parts->iov_base = (char *)parts->iov_base + done;
            parts->iov_len -= (size_t)done;
        }
    }
    return PEN_OK;
}

// Rename without replacing. Where the file system cannot do that in one step
// look first: only another program could come in between.
static int rename_new(const struct stk_file_out *f)
{
    if (renameat2(f->folder, f->temp, f->folder, f->name, RENAME_NOREPLACE) ==
        0)
        return 0;
    if (errno != EINVAL && errno != ENOSYS)
        return -1;
    if (faccessat(f->folder, f->name, F_OK, AT_SYMLINK_NOFOLLOW) == 0) {
        errno = EEXIST;
        return -1;
    }
    return renameat(f->folder, f->temp, f->folder, f->name);
}

enum pen_status stk_file_commit(struct stk_file_out *f, struct pen_error *err)
{
    // Some file systems tell that they are full no earlier than here.
    const int closed = close(f->fd);
    f->fd = -1;
    if (closed != 0 && errno != EINTR) {
        const enum pen_status st = io_error(err, errno, f->path, "write");
        stk_file_abort(f);
        return st;
    }
    if (!f->temp[0])
        return PEN_OK;
    const int renamed = f->mode == STK_FILE_NEW
                            ? rename_new(f)
                            : renameat(f->folder, f->temp, f->folder, f->name);
    if (renamed != 0) {
        const enum pen_status st = io_error(err, errno, f->path, "write");
        stk_file_abort(f);
        return st;
    }
    f->temp[0] = 0;
    return PEN_OK;
}

void stk_file_abort(struct stk_file_out *f)
{
    if (f->fd >= 0) {
        // What was appended before this frame stays; what begins here goes.
        if (f->mode == STK_FILE_APPEND && !f->direct && f->existed &&
            ftruncate(f->fd, f->start) != 0) {
            // Nothing better can be done; the error of the write is told.
        }
        close(f->fd);
        f->fd = -1;
        if (f->mode == STK_FILE_APPEND && !f->direct && !f->existed)
            unlinkat(f->folder, f->name, 0);
    }
    if (f->temp[0])
        unlinkat(f->folder, f->temp, 0);
    f->temp[0] = 0;
}
