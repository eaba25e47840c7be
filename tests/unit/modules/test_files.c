// Names of files, and files that are there whole or not at all.

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <sys/mount.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "alloc_fail.h"
#include "pen_test.h"

#include "src/modules/file_out.h"
#include "src/modules/file_sequence.h"

// --- helpers ----------------------------------------------------------------

static const char *in(const char *folder, const char *name)
{
    static char paths[4][512];
    static unsigned turn;
    char *path = paths[turn++ % 4];
    snprintf(path, sizeof(paths[0]), "%s/%s", folder, name);
    return path;
}

static void touch(const char *folder, const char *name)
{
    pen_test_write_file(in(folder, name), "x", 1);
}

// Entries of a folder, hidden ones too.
static unsigned entries(const char *folder)
{
    unsigned count = 0;
    DIR *dir = opendir(folder);
    assert_non_null(dir);
    for (struct dirent *e; (e = readdir(dir));)
        count += strcmp(e->d_name, ".") != 0 && strcmp(e->d_name, "..") != 0;
    closedir(dir);
    return count;
}

static bool exists(const char *path)
{
    struct stat st;
    return lstat(path, &st) == 0;
}

static void holds(const char *path, const char *text)
{
    size_t n = 0;
    char *data = pen_test_read_file(path, &n);
    assert_int_equal(n, strlen(text));
    assert_memory_equal(data, text, n);
    free(data);
}

struct out {
    struct stk_file_out file;
    int folder;
    char path[512];
};

static enum pen_status begin(struct out *o, const char *folder,
                             const char *name, enum stk_file_mode mode,
                             struct pen_error *err)
{
    *err = (struct pen_error){ 0 };
    assert_int_equal(stk_folder_open(folder, false, &o->folder, err), PEN_OK);
    snprintf(o->path, sizeof(o->path), "%s/%s", folder, name);
    o->file = (struct stk_file_out){ .folder = o->folder,
                                     .name = name,
                                     .path = o->path,
                                     .mode = mode,
                                     .fd = -1 };
    const enum pen_status st = stk_file_begin(&o->file, err);
    if (st != PEN_OK) {
        assert_int_equal(err->status, st);
        close(o->folder);
    }
    return st;
}

static enum pen_status put(struct out *o, const char *text,
                           struct pen_error *err)
{
    struct iovec parts[3] = { { (void *)(uintptr_t)text, 1 },
                              { NULL, 0 },
                              { (void *)(uintptr_t)(text + 1),
                                strlen(text) - 1 } };
    return stk_file_write(&o->file, parts, 3, err);
}

static void commit(struct out *o)
{
    struct pen_error err = { 0 };
    if (stk_file_commit(&o->file, &err) != PEN_OK)
        fail_msg("%s", err.text);
    close(o->folder);
}

static void drop(struct out *o)
{
    stk_file_abort(&o->file);
    close(o->folder);
}

// --- patterns ---------------------------------------------------------------

PEN_TEST(patterns_are_plain_numbered_or_globs)
{
    static const struct {
        const char *text;
        enum stk_pattern_kind kind;
        unsigned digits;
        unsigned long long max;
    } good[] = {
        { "a.jpg", STK_PATTERN_PLAIN, 0, 0 },
        { "/x/y/a.jpg", STK_PATTERN_PLAIN, 0, 0 },
        { "in/????.jpg", STK_PATTERN_NUMBERED, 4, 9999 },
        { "in/f?", STK_PATTERN_NUMBERED, 1, 9 },
        { "in/??????????????????.raw", STK_PATTERN_NUMBERED, 18,
          999999999999999999ull },
        { "in/*.jpg", STK_PATTERN_GLOB, 0, 0 },
        { "in/??_*.jpg", STK_PATTERN_GLOB, 0, 0 },
    };
    static const char *const bad[] = {
        "",        "in/",        "i?/a.jpg",
        "*/a.jpg", "in/?a?.jpg", "in/???????????????????.raw"
    };
    (void)test_state;
    struct stk_pattern p;
    for (size_t i = 0; i < sizeof(good) / sizeof(good[0]); i++) {
        assert_null(stk_pattern_parse(good[i].text, &p));
        assert_int_equal(p.kind, good[i].kind);
        assert_int_equal(p.digits, good[i].digits);
        assert_true(p.max == good[i].max);
    }
    for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++)
        assert_non_null(stk_pattern_parse(bad[i], &p));
}

PEN_TEST(names_are_made_of_patterns_and_numbers)
{
    (void)test_state;
    struct stk_pattern p;
    char name[64], small[8];
    assert_null(stk_pattern_parse("out/f????.jpg", &p));
    assert_true(stk_pattern_name(&p, 7, name, sizeof(name)));
    assert_string_equal(name, "f0007.jpg");
    assert_true(stk_pattern_name(&p, 9999, name, sizeof(name)));
    assert_string_equal(name, "f9999.jpg");
    assert_false(stk_pattern_name(&p, 10000, name, sizeof(name)));
    assert_false(stk_pattern_name(&p, 7, small, sizeof(small)));
    assert_null(stk_pattern_parse("out/f-*.raw", &p));
    assert_true(stk_pattern_name(&p, 10000, name, sizeof(name)));
    assert_string_equal(name, "f-10000.raw");
    assert_null(stk_pattern_parse("out/a.raw", &p));
    assert_true(stk_pattern_name(&p, 3, name, sizeof(name)));
    assert_string_equal(name, "a.raw");

    static const char *const folders[][2] = {
        { "a", "." }, { "x/a", "x" }, { "/a", "/" }, { "//x//a", "//x" }
    };
    for (size_t i = 0; i < 4; i++) {
        assert_null(stk_pattern_parse(folders[i][0], &p));
        assert_true(stk_pattern_folder(&p, name, sizeof(name)));
        assert_string_equal(name, folders[i][1]);
    }
}

// --- sequences --------------------------------------------------------------

static void check_list(const char *folder, const char *pattern, int64_t start,
                       int64_t max, const char *want, uint64_t holes)
{
    struct stk_sequence s;
    struct pen_error err = { 0 };
    char got[512] = "", path[512];
    if (stk_sequence_open(&s, in(folder, pattern), start, max, &err) != PEN_OK)
        fail_msg("%s", err.text);
    for (size_t i = 0; i < s.count; i++) {
        assert_true(stk_sequence_path(&s, i, path, sizeof(path)));
        assert_true(exists(path));
        strcat(got, strrchr(path, '/') + 1);
        strcat(got, " ");
    }
    assert_false(stk_sequence_path(&s, s.count, path, sizeof(path)));
    assert_string_equal(got, want);
    assert_int_equal(s.holes, holes);
    stk_sequence_close(&s);
}

PEN_TEST(numbered_files_come_in_order_and_holes_are_counted)
{
    (void)test_state;
    const char *f = pen_test_folder();
    static const char *const names[] = { "0012.jpg", "0003.jpg",  "0004.jpg",
                                         "0010.jpg", "00005.jpg", "5.jpg",
                                         "00a6.jpg", "0007.jpeg", "x0008.jpg",
                                         "-009.jpg" };
    for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++)
        touch(f, names[i]);
    assert_int_equal(mkdir(in(f, "0006.jpg"), 0777), 0);
    check_list(f, "????.jpg", 0, -1, "0003.jpg 0004.jpg 0010.jpg 0012.jpg ", 6);
    check_list(f, "????.jpg", 1, -1, "0003.jpg 0004.jpg 0010.jpg 0012.jpg ", 8);
    check_list(f, "????.jpg", 4, 10, "0004.jpg 0010.jpg ", 5);
    check_list(f, "?????.jpg", 0, -1, "00005.jpg ", 0);
    check_list(f, "?.jpg", 5, 5, "5.jpg ", 0);
}

PEN_TEST(globs_come_by_name)
{
    (void)test_state;
    const char *f = pen_test_folder();
    static const char *const names[] = { "b.jpg", "a.jpg",       "B.jpg",
                                         "c.png", ".hidden.jpg", "a 1.jpg" };
    for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++)
        touch(f, names[i]);
    assert_int_equal(mkdir(in(f, "d.jpg"), 0777), 0);
    assert_int_equal(symlink(in(f, "d.jpg"), in(f, "e.jpg")), 0);
    assert_int_equal(symlink(in(f, "c.png"), in(f, "l.jpg")), 0);
    check_list(f, "*.jpg", 0, -1, "B.jpg a 1.jpg a.jpg b.jpg l.jpg ", 0);
    check_list(f, "?.*g", 0, -1, "B.jpg a.jpg b.jpg c.png l.jpg ", 0);
}

PEN_TEST(what_is_missing_is_named)
{
    (void)test_state;
    const char *f = pen_test_folder();
    struct stk_sequence s;
    struct pen_error err = { 0 };
    assert_int_equal(stk_sequence_open(&s, in(f, "no/*.jpg"), 0, -1, &err),
                     PEN_E_IO);
    assert_int_equal(err.native, ENOENT);
    assert_non_null(strstr(err.text, "/no\""));
    assert_int_equal(stk_sequence_open(&s, in(f, "*.jpg"), 0, -1, &err),
                     PEN_E_IO);
    assert_non_null(strstr(err.text, "no file matches"));
    assert_int_equal(stk_sequence_open(&s, in(f, "??.jpg"), 4, 9, &err),
                     PEN_E_IO);
    assert_non_null(strstr(err.text, "from 4 to 9"));
    assert_int_equal(stk_sequence_open(&s, in(f, "??.jpg"), 100, -1, &err),
                     PEN_E_CONFIG);
    assert_non_null(strstr(err.text, "startIndex 100"));
    assert_int_equal(stk_sequence_open(&s, in(f, "?a?.jpg"), 0, -1, &err),
                     PEN_E_CONFIG);
    touch(f, "file");
    assert_int_equal(stk_sequence_open(&s, in(f, "file/*.jpg"), 0, -1, &err),
                     PEN_E_IO);
    assert_int_equal(err.native, ENOTDIR);
}

PEN_TEST(sequence_unwinds_from_every_failing_allocation)
{
    (void)test_state;
    const char *f = pen_test_folder();
    for (int i = 0; i < 150; i++) {
        char name[16];
        snprintf(name, sizeof(name), "%03d.jpg", i);
        touch(f, name);
    }
    static const char *const patterns[] = { "???.jpg", "*.jpg" };
    for (int k = 0; k < 2; k++) {
        unsigned nth = 1;
        for (;; nth++) {
            struct stk_sequence s;
            struct pen_error err = { 0 };
            const char *pattern = in(f, patterns[k]);
            pen_alloc_fail_arm(nth, false);
            const enum pen_status st =
                stk_sequence_open(&s, pattern, 0, -1, &err);
            if (!pen_alloc_fail_disarm()) {
                assert_int_equal(st, PEN_OK);
                assert_int_equal(s.count, 150);
                stk_sequence_close(&s);
                break;
            }
            assert_int_equal(st, PEN_E_NOMEM);
            assert_int_equal(err.status, PEN_E_NOMEM);
        }
        assert_true(nth > 2);
    }
}

// --- writing ----------------------------------------------------------------

PEN_TEST(a_file_is_there_only_when_it_is_whole)
{
    (void)test_state;
    const char *f = pen_test_folder();
    struct out o;
    struct pen_error err;
    assert_int_equal(begin(&o, f, "a.raw", STK_FILE_NEW, &err), PEN_OK);
    assert_int_equal(put(&o, "hello", &err), PEN_OK);
    assert_false(exists(in(f, "a.raw")));
    commit(&o);
    holds(in(f, "a.raw"), "hello");
    assert_int_equal(entries(f), 1);

    assert_int_equal(begin(&o, f, "b.raw", STK_FILE_NEW, &err), PEN_OK);
    assert_int_equal(put(&o, "hello", &err), PEN_OK);
    drop(&o);
    assert_int_equal(entries(f), 1);
}

PEN_TEST(files_have_the_mode_that_the_umask_leaves)
{
    (void)test_state;
    const char *f = pen_test_folder();
    static const mode_t masks[] = { 022, 077, 0 };
    static const enum stk_file_mode modes[] = { STK_FILE_NEW, STK_FILE_APPEND };
    for (int i = 0; i < 6; i++) {
        struct out o;
        struct pen_error err;
        struct stat st;
        const mode_t old = umask(masks[i / 2]);
        const enum pen_status begun = begin(&o, f, "m.raw", modes[i % 2], &err);
        umask(old);
        assert_int_equal(begun, PEN_OK);
        commit(&o);
        assert_int_equal(stat(in(f, "m.raw"), &st), 0);
        assert_int_equal(st.st_mode & 0777, 0666 & ~masks[i / 2]);
        assert_int_equal(unlink(in(f, "m.raw")), 0);
    }
}

PEN_TEST(existing_files_are_refused_or_replaced_as_asked)
{
    (void)test_state;
    const char *f = pen_test_folder();
    struct out o;
    struct pen_error err;
    pen_test_write_file(in(f, "a"), "old", 3);
    assert_int_equal(begin(&o, f, "a", STK_FILE_NEW, &err), PEN_E_IO);
    assert_int_equal(err.native, EEXIST);
    assert_non_null(strstr(err.text, "overwrite"));
    holds(in(f, "a"), "old");

    assert_int_equal(begin(&o, f, "a", STK_FILE_REPLACE, &err), PEN_OK);
    assert_int_equal(put(&o, "new", &err), PEN_OK);
    holds(in(f, "a"), "old");
    drop(&o);
    holds(in(f, "a"), "old");
    assert_int_equal(begin(&o, f, "a", STK_FILE_REPLACE, &err), PEN_OK);
    assert_int_equal(put(&o, "newer", &err), PEN_OK);
    commit(&o);
    holds(in(f, "a"), "newer");
    assert_int_equal(entries(f), 1);
}

PEN_TEST(a_file_that_appears_meanwhile_is_not_replaced)
{
    (void)test_state;
    const char *f = pen_test_folder();
    struct out o;
    struct pen_error err;
    assert_int_equal(begin(&o, f, "a", STK_FILE_NEW, &err), PEN_OK);
    assert_int_equal(put(&o, "mine", &err), PEN_OK);
    pen_test_write_file(in(f, "a"), "theirs", 6);
    assert_int_equal(stk_file_commit(&o.file, &err), PEN_E_IO);
    assert_int_equal(err.native, EEXIST);
    close(o.folder);
    holds(in(f, "a"), "theirs");
    assert_int_equal(entries(f), 1);
}

PEN_TEST(links_are_never_followed)
{
    (void)test_state;
    const char *f = pen_test_folder();
    pen_test_write_file(in(f, "target"), "precious", 8);
    assert_int_equal(symlink("target", in(f, "link")), 0);
    assert_int_equal(symlink("nowhere", in(f, "dangling")), 0);
    static const enum stk_file_mode modes[] = { STK_FILE_NEW, STK_FILE_REPLACE,
                                                STK_FILE_APPEND };
    for (int i = 0; i < 6; i++) {
        struct out o;
        struct pen_error err;
        assert_int_equal(
            begin(&o, f, i & 1 ? "link" : "dangling", modes[i / 2], &err),
            PEN_E_IO);
        assert_non_null(strstr(err.text, "is a link"));
    }
    holds(in(f, "target"), "precious");
    assert_int_equal(entries(f), 3);
}

PEN_TEST(a_folder_is_no_file)
{
    (void)test_state;
    const char *f = pen_test_folder();
    assert_int_equal(mkdir(in(f, "sub"), 0777), 0);
    struct out o;
    struct pen_error err;
    assert_int_equal(begin(&o, f, "sub", STK_FILE_REPLACE, &err), PEN_E_IO);
    assert_int_equal(err.native, EISDIR);
}

PEN_TEST(names_of_255_bytes_stay_possible)
{
    (void)test_state;
    const char *f = pen_test_folder();
    char name[256];
    memset(name, 'n', 255);
    name[255] = 0;
    struct out o;
    struct pen_error err;
    assert_int_equal(begin(&o, f, name, STK_FILE_NEW, &err), PEN_OK);
    assert_int_equal(put(&o, "x", &err), PEN_OK);
    commit(&o);
    holds(in(f, name), "x");
}

PEN_TEST(appending_continues_and_a_failure_takes_back_its_own_part)
{
    (void)test_state;
    const char *f = pen_test_folder();
    struct out o;
    struct pen_error err;
    assert_int_equal(begin(&o, f, "a", STK_FILE_APPEND, &err), PEN_OK);
    assert_int_equal(put(&o, "one", &err), PEN_OK);
    commit(&o);
    assert_int_equal(begin(&o, f, "a", STK_FILE_APPEND, &err), PEN_OK);
    assert_int_equal(put(&o, "two", &err), PEN_OK);
    commit(&o);
    holds(in(f, "a"), "onetwo");
    assert_int_equal(begin(&o, f, "a", STK_FILE_APPEND, &err), PEN_OK);
    assert_int_equal(put(&o, "three", &err), PEN_OK);
    drop(&o);
    holds(in(f, "a"), "onetwo");
    // A file that would hold nothing but the failed part goes.
    assert_int_equal(begin(&o, f, "b", STK_FILE_APPEND, &err), PEN_OK);
    assert_int_equal(put(&o, "x", &err), PEN_OK);
    drop(&o);
    assert_int_equal(entries(f), 1);
}

static void *drink(void *arg)
{
    char *text = calloc(1, 64);
    const int fd = open(arg, O_RDONLY);
    size_t n = 0;
    for (ssize_t got; text && fd >= 0 && n < 63; n += (size_t)got) {
        got = read(fd, text + n, 63 - n);
        if (got <= 0)
            break;
    }
    close(fd);
    return text;
}

PEN_TEST(fifos_and_devices_are_written_directly)
{
    (void)test_state;
    const char *f = pen_test_folder();
    char fifo[256];
    snprintf(fifo, sizeof(fifo), "%s/fifo", f);
    assert_int_equal(mkfifo(fifo, 0600), 0);
    pthread_t reader;
    assert_int_equal(pthread_create(&reader, NULL, drink, fifo), 0);
    struct out o;
    struct pen_error err;
    assert_int_equal(begin(&o, f, "fifo", STK_FILE_NEW, &err), PEN_OK);
    assert_true(o.file.direct);
    assert_int_equal(put(&o, "through", &err), PEN_OK);
    assert_int_equal(entries(f), 1);
    commit(&o);
    void *text = NULL;
    pthread_join(reader, &text);
    assert_string_equal(text, "through");
    free(text);
    assert_true(exists(fifo));

    assert_int_equal(begin(&o, "/dev", "null", STK_FILE_REPLACE, &err), PEN_OK);
    assert_int_equal(put(&o, "gone", &err), PEN_OK);
    commit(&o);
    assert_int_equal(begin(&o, "/dev", "full", STK_FILE_REPLACE, &err), PEN_OK);
    assert_int_equal(put(&o, "no", &err), PEN_E_IO);
    assert_int_equal(err.native, ENOSPC);
    assert_non_null(strstr(err.text, "/dev/full"));
    drop(&o);
}

PEN_TEST(a_limit_of_the_file_size_leaves_nothing_behind)
{
    (void)test_state;
    const char *f = pen_test_folder();
    struct rlimit old, tight;
    assert_int_equal(getrlimit(RLIMIT_FSIZE, &old), 0);
    tight = old;
    tight.rlim_cur = 4096;
    signal(SIGXFSZ, SIG_IGN);
    char *big = malloc(10001);
    assert_non_null(big);
    memset(big, 'b', 10000);
    big[10000] = 0;
    pen_test_write_file(in(f, "log"), "kept", 4);
    static const enum stk_file_mode modes[] = { STK_FILE_NEW, STK_FILE_REPLACE,
                                                STK_FILE_APPEND };
    for (int i = 0; i < 3; i++) {
        struct out o;
        struct pen_error err;
        assert_int_equal(setrlimit(RLIMIT_FSIZE, &tight), 0);
        const enum pen_status begun =
            begin(&o, f, i ? "log" : "new", modes[i], &err);
        const enum pen_status st = begun == PEN_OK ? put(&o, big, &err) : begun;
        if (begun == PEN_OK)
            drop(&o);
        assert_int_equal(setrlimit(RLIMIT_FSIZE, &old), 0);
        assert_int_equal(st, PEN_E_IO);
        assert_int_equal(err.native, EFBIG);
        assert_non_null(strstr(err.text, i ? "/log\"" : "/new\""));
        holds(in(f, "log"), "kept");
        assert_int_equal(entries(f), 1);
    }
    free(big);
}

// In a child in which the signals have their deadly meaning: 0 if the write
// only failed.
static int write_deadly(const char *f, bool fifo)
{
    signal(SIGPIPE, SIG_DFL);
    signal(SIGXFSZ, SIG_DFL);
    struct pen_error err = { 0 };
    int folder = -1, reader = -1;
    static char big[100000];
    struct iovec part = { big, sizeof(big) };
    if (stk_folder_open(f, false, &folder, &err) != PEN_OK)
        return 1;
    if (fifo)
        reader = open(in(f, "pipe"), O_RDONLY | O_NONBLOCK);
    else if (setrlimit(RLIMIT_FSIZE, &(struct rlimit){ 4096, 4096 }) != 0)
        return 2;
    struct stk_file_out o = { .folder = folder,
                              .name = fifo ? "pipe" : "file",
                              .path = "x",
                              .mode = STK_FILE_NEW,
                              .fd = -1 };
    if (stk_file_begin(&o, &err) != PEN_OK)
        return 3;
    if (fifo)
        close(reader);
    if (stk_file_write(&o, &part, 1, &err) != PEN_E_IO)
        return 4;
    stk_file_abort(&o);
    // The mask is as it was and nothing waits to be delivered.
    sigset_t set;
    sigpending(&set);
    if (sigismember(&set, SIGPIPE) || sigismember(&set, SIGXFSZ))
        return 5;
    pthread_sigmask(SIG_BLOCK, NULL, &set);
    if (sigismember(&set, SIGPIPE) || sigismember(&set, SIGXFSZ))
        return 6;
    return err.native == (fifo ? EPIPE : EFBIG) ? 0 : 7;
}

PEN_TEST(a_failing_write_does_not_end_the_process)
{
    (void)test_state;
    const char *f = pen_test_folder();
    assert_int_equal(mkfifo(in(f, "pipe"), 0600), 0);
    for (int fifo = 0; fifo < 2; fifo++) {
        const pid_t child = fork();
        assert_true(child >= 0);
        if (child == 0)
            _exit(write_deadly(f, fifo));
        int status = 0;
        assert_int_equal(waitpid(child, &status, 0), child);
        assert_true(WIFEXITED(status));
        assert_int_equal(WEXITSTATUS(status), 0);
    }
}

// In a child with mounts of its own: 0 as it should be, 77 cannot mount.
static int fill_small_disk(const char *f)
{
    if (unshare(CLONE_NEWNS) != 0 && unshare(CLONE_NEWUSER | CLONE_NEWNS) != 0)
        return 77;
    if (mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL) != 0 ||
        mount("none", f, "tmpfs", 0, "size=64k") != 0)
        return 77;
    int folder = -1;
    struct pen_error err = { 0 };
    if (stk_folder_open(f, false, &folder, &err) != PEN_OK)
        return 1;
    static char big[200000];
    struct iovec part = { big, sizeof(big) };
    struct stk_file_out o = { .folder = folder,
                              .name = "x",
                              .path = "x",
                              .mode = STK_FILE_NEW,
                              .fd = -1 };
    if (stk_file_begin(&o, &err) != PEN_OK)
        return 2;
    if (stk_file_write(&o, &part, 1, &err) != PEN_E_IO || err.native != ENOSPC)
        return 3;
    stk_file_abort(&o);
    DIR *dir = opendir(f);
    if (!dir)
        return 4;
    for (struct dirent *e; (e = readdir(dir));) {
        if (e->d_name[0] != '.' || e->d_name[1] == 'p')
            return 5;
    }
    closedir(dir);
    return 0;
}

PEN_TEST(a_full_disk_leaves_nothing_behind)
{
    (void)test_state;
    const char *f = pen_test_folder();
    const pid_t child = fork();
    assert_true(child >= 0);
    if (child == 0)
        _exit(fill_small_disk(f));
    int status = 0;
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_true(WIFEXITED(status));
    if (WEXITSTATUS(status) == 77)
        PEN_SKIP("a small tmpfs cannot be mounted here");
    assert_int_equal(WEXITSTATUS(status), 0);
}

PEN_TEST(missing_folders_are_made_only_when_asked)
{
    (void)test_state;
    const char *f = pen_test_folder();
    struct pen_error err = { 0 };
    int folder = -1;
    assert_int_equal(stk_folder_open(in(f, "a/b//c"), false, &folder, &err),
                     PEN_E_IO);
    assert_int_equal(entries(f), 0);
    assert_int_equal(stk_folder_open(in(f, "a/b//c"), true, &folder, &err),
                     PEN_OK);
    close(folder);
    assert_true(exists(in(f, "a/b/c")));
    touch(f, "file");
    assert_int_equal(stk_folder_open(in(f, "file/x/y"), true, &folder, &err),
                     PEN_E_IO);
    assert_int_equal(err.native, ENOTDIR);
    assert_non_null(strstr(err.text, "/file/x"));
    assert_int_equal(stk_folder_open(in(f, "file"), true, &folder, &err),
                     PEN_E_IO);
    assert_int_equal(err.native, ENOTDIR);
}

PEN_TEST_MAIN(
    PEN_CASE(patterns_are_plain_numbered_or_globs),
    PEN_CASE(names_are_made_of_patterns_and_numbers),
    PEN_CASE(numbered_files_come_in_order_and_holes_are_counted),
    PEN_CASE(globs_come_by_name), PEN_CASE(what_is_missing_is_named),
    PEN_CASE(sequence_unwinds_from_every_failing_allocation),
    PEN_CASE(a_file_is_there_only_when_it_is_whole),
    PEN_CASE(files_have_the_mode_that_the_umask_leaves),
    PEN_CASE(existing_files_are_refused_or_replaced_as_asked),
    PEN_CASE(a_file_that_appears_meanwhile_is_not_replaced),
    PEN_CASE(links_are_never_followed), PEN_CASE(a_folder_is_no_file),
    PEN_CASE(names_of_255_bytes_stay_possible),
    PEN_CASE(appending_continues_and_a_failure_takes_back_its_own_part),
    PEN_CASE(fifos_and_devices_are_written_directly),
    PEN_CASE(a_limit_of_the_file_size_leaves_nothing_behind),
    PEN_CASE(a_failing_write_does_not_end_the_process),
    PEN_CASE(a_full_disk_leaves_nothing_behind),
    PEN_CASE(missing_folders_are_made_only_when_asked))
