// DMABUFs of host memory, on a kernel that is made up: which provider is taken
// and why not the others, the account, access by the host, foreign descriptors,
// and every call that fails in turn. test_dmabuf_device has the device's part.

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <penstock/frame.h>

#include "src/mem/dmabuf.h"

#include "alloc_fail.h"
#include "fake_dmabuf.h"
#include "pen_test.h"

enum { BYTES = 5000, WHOLE = 8192 };

static const struct fake_dmabuf bare = { .udmabuf = ENOENT, .heap = ENOENT };
static const struct fake_dmabuf both = { 0 };
static const struct fake_dmabuf only_udmabuf = { .heap = ENOENT };
static const struct fake_dmabuf only_heap = { .udmabuf = ENOENT };

static struct stk_ledger *ledger;

// A test with a ledger, which is empty before and after.
#define DMABUF_TEST(name)                                                      \
    static void with_ledger_##name(void);                                      \
    PEN_TEST(name)                                                             \
    {                                                                          \
        ledger = stk_ledger_create(true);                                      \
        assert_non_null(ledger);                                               \
        with_ledger_##name();                                                  \
        fake_dmabuf_fail(0, 0);                                                \
        stk_ledger_destroy(&ledger);                                           \
    }                                                                          \
    static void with_ledger_##name(void)

static unsigned descriptors(void)
{
    DIR *folder = opendir("/proc/self/fd");
    unsigned count = 0;
    while (readdir(folder))
        count++;
    closedir(folder);
    return count;
}

static uint64_t live(enum stk_res res)
{
    struct stk_ledger_totals t;
    stk_ledger_totals(ledger, res, &t);
    return t.live;
}

static uint64_t live_bytes(enum stk_res res)
{
    struct stk_ledger_totals t;
    stk_ledger_totals(ledger, res, &t);
    return t.live_bytes;
}

static void expect_nothing(void)
{
    for (int r = STK_RES_HOST; r < STK_RES_COUNT; r++) {
        assert_int_equal(live((enum stk_res)r), 0);
        assert_int_equal(live_bytes((enum stk_res)r), 0);
    }
    assert_int_equal(fake_dmabuf_counts().mappings, 0);
}

static struct stk_mem_source source(void)
{
    return (struct stk_mem_source){
        .ledger = ledger,
        .owner = "test.output",
        .kind = STK_DMABUF_HOST,
    };
}

static void alloc(size_t bytes, struct stk_block *block)
{
    const struct stk_mem_source from = source();
    struct pen_error err = { 0 };
    if (stk_dmabuf_alloc(&from, bytes, block, &err) != PEN_OK)
        fail_msg("%s", err.text);
}

static void free_block(struct stk_block *block)
{
    const struct stk_mem_source from = source();
    stk_dmabuf_free(&from, block);
    assert_int_equal(block->bytes, 0);
    assert_null(block->dmabuf);
}

static void expect_refused(size_t bytes, enum pen_status status,
                           const char *text)
{
    const struct stk_mem_source from = source();
    struct pen_error err = { 0 };
    struct stk_block block;
    const unsigned fds = descriptors();
    assert_int_equal(stk_dmabuf_alloc(&from, bytes, &block, &err), status);
    assert_int_equal(err.status, status);
    assert_string_equal(err.where, "test.output");
    if (!strstr(err.text, text))
        fail_msg("\"%s\" is not in \"%s\"", text, err.text);
    assert_null(block.dmabuf);
    assert_int_equal(block.bytes, 0);
    expect_nothing();
    assert_int_equal(descriptors(), fds);
}

// --- providers --------------------------------------------------------------

DMABUF_TEST(without_a_provider_the_error_names_what_is_missing)
{
    fake_dmabuf_set(&bare);
    expect_refused(BYTES, PEN_E_UNSUPPORTED,
                   "/dev/udmabuf is not there and /dev/dma_heap/system is not "
                   "there");
    const struct fake_dmabuf locked = { .udmabuf = ENOENT, .heap = EACCES };
    fake_dmabuf_set(&locked);
    expect_refused(BYTES, PEN_E_UNSUPPORTED,
                   "/dev/udmabuf is not there and /dev/dma_heap/system cannot "
                   "be opened (Permission denied)");
    const struct fake_dmabuf full = { .udmabuf = EMFILE, .heap = ENOENT };
    fake_dmabuf_set(&full);
    expect_refused(BYTES, PEN_E_IO, "Too many open files");
}

static void expect_block(const struct stk_block *block, const char *provider)
{
    const struct stk_dmabuf *d = block->dmabuf;
    assert_non_null(d);
    assert_string_equal(d->provider, provider);
    assert_int_equal(d->kind, STK_DMABUF_HOST);
    assert_false(d->stand_in);
    assert_int_equal(d->device_address, 0);
    assert_int_equal(d->mapped, WHOLE);
    assert_false(block->on_stream);
    assert_int_equal(block->bytes, BYTES);
    assert_non_null(block->host);
    assert_int_equal(block->address, (uintptr_t)block->host);
    assert_int_equal(fcntl(d->fd, F_GETFD) & FD_CLOEXEC, FD_CLOEXEC);
    assert_int_equal(lseek(d->fd, 0, SEEK_END), WHOLE);

    assert_int_equal(live(STK_RES_DMABUF), 1);
    assert_int_equal(live_bytes(STK_RES_DMABUF), BYTES);
    assert_int_equal(live(STK_RES_MAPPING), 1);
    assert_int_equal(live_bytes(STK_RES_MAPPING), WHOLE);
    assert_int_equal(live(STK_RES_FILE), 1);
    assert_int_equal(live(STK_RES_HOST), 0);
}

// The bytes are there for whoever has the descriptor.
static void expect_shared(const struct stk_block *block)
{
    char seen[6] = { 0 };
    memcpy((char *)block->host + BYTES - 6, "sluice", 6);
    assert_int_equal(pread(block->dmabuf->fd, seen, 6, BYTES - 6), 6);
    assert_memory_equal(seen, "sluice", 6);
}

static void one_provider(const struct fake_dmabuf *kernel, const char *name)
{
    const unsigned fds = descriptors();
    struct stk_block block;
    fake_dmabuf_set(kernel);
    alloc(BYTES, &block);
    expect_block(&block, name);
    expect_shared(&block);
    assert_int_equal(descriptors(), fds + 1);
    assert_int_equal(fake_dmabuf_counts().created, 1);
    assert_int_equal(fake_dmabuf_counts().nodes, 1);
    free_block(&block);
    expect_nothing();
    assert_int_equal(descriptors(), fds);
}

DMABUF_TEST(the_first_provider_that_is_there_is_taken)
{
    one_provider(&both, "udmabuf");
    one_provider(&only_udmabuf, "udmabuf");
    one_provider(&only_heap, "dma-heap");
}

DMABUF_TEST(what_one_provider_cannot_make_the_next_one_does)
{
    const unsigned fds = descriptors();
    const struct fake_dmabuf limited = { .create = EINVAL, .limit = WHOLE };
    struct stk_block block;
    fake_dmabuf_set(&limited);
    alloc(4096, &block);
    assert_string_equal(block.dmabuf->provider, "udmabuf");
    free_block(&block);
    alloc(BYTES, &block);
    expect_block(&block, "dma-heap");
    free_block(&block);
    expect_nothing();
    assert_int_equal(descriptors(), fds);
}

DMABUF_TEST(when_all_fail_the_error_tells_of_each)
{
    const struct fake_dmabuf broken = {
        .create = EINVAL,
        .alloc = ENOMEM,
        .limit = 4096,
    };
    fake_dmabuf_set(&broken);
    expect_refused(BYTES, PEN_E_IO,
                   "UDMABUF_CREATE of 8192 bytes on /dev/udmabuf failed "
                   "(Invalid argument) and DMA_HEAP_IOCTL_ALLOC of 8192 bytes "
                   "on /dev/dma_heap/system failed (Cannot allocate memory)");
    const struct fake_dmabuf full = {
        .udmabuf = ENOENT,
        .alloc = ENOMEM,
        .limit = 4096,
    };
    fake_dmabuf_set(&full);
    expect_refused(BYTES, PEN_E_NOMEM, "Cannot allocate memory");
}

DMABUF_TEST(without_an_emulated_device_no_memfd_stands_in)
{
    fake_dmabuf_set(&bare);
    expect_refused(BYTES, PEN_E_UNSUPPORTED, "/dev/udmabuf");
    assert_int_equal(fake_dmabuf_counts().created, 0);
}

DMABUF_TEST(impossible_sizes_are_errors)
{
    fake_dmabuf_set(&both);
    expect_refused(SIZE_MAX, PEN_E_NOMEM, "18446744073709551615");
    expect_refused(SIZE_MAX - 5000, PEN_E_NOMEM, "no DMABUF can have");
    expect_refused(0, PEN_E_IO, "Invalid argument");
}

DMABUF_TEST(memory_of_a_device_needs_a_device)
{
    struct stk_mem_source from = source();
    struct stk_block block;
    struct pen_error err = { 0 };
    from.kind = STK_DMABUF_CUDA;
    fake_dmabuf_set(&both);
    assert_int_equal(stk_dmabuf_alloc(&from, BYTES, &block, &err),
                     PEN_E_UNSUPPORTED);
    assert_non_null(strstr(err.text, "no device is open"));
    expect_nothing();
}

DMABUF_TEST(an_empty_block_can_be_freed)
{
    struct stk_block block = { 0 };
    free_block(&block);
}

// --- the budget -------------------------------------------------------------

DMABUF_TEST(a_budget_holds_and_what_failed_does_not_count)
{
    fake_dmabuf_set(&bare);
    stk_ledger_set_limit(ledger, PEN_MEM_BIT(PEN_MEM_DMABUF), 2 * BYTES);
    expect_refused(BYTES, PEN_E_UNSUPPORTED, "is not there");
    expect_refused(BYTES, PEN_E_UNSUPPORTED, "is not there");
    expect_refused(BYTES, PEN_E_UNSUPPORTED, "is not there");

    struct stk_block block[3];
    const struct stk_mem_source from = source();
    struct pen_error err = { 0 };
    fake_dmabuf_set(&both);
    alloc(BYTES, &block[0]);
    alloc(BYTES, &block[1]);
    assert_int_equal(stk_dmabuf_alloc(&from, 1, &block[2], &err), PEN_E_LIMIT);
    assert_int_equal(live_bytes(STK_RES_DMABUF), 2 * BYTES);
    assert_int_equal(fake_dmabuf_counts().created, 2);
    free_block(&block[0]);
    alloc(BYTES, &block[0]);
    free_block(&block[0]);
    free_block(&block[1]);
    expect_nothing();
}

// --- access by the host -----------------------------------------------------

DMABUF_TEST(begin_and_end_are_told_to_the_kernel_with_their_direction)
{
    struct stk_block block;
    fake_dmabuf_set(&both);
    alloc(BYTES, &block);
    assert_int_equal(stk_dmabuf_sync(&block, PEN_READ, true, NULL), PEN_OK);
    assert_int_equal(fake_dmabuf_counts().begins, 1);
    assert_int_equal(fake_dmabuf_counts().reads, 1);
    assert_int_equal(fake_dmabuf_counts().writes, 0);
    assert_int_equal(stk_dmabuf_sync(&block, PEN_READ, false, NULL), PEN_OK);
    assert_int_equal(fake_dmabuf_counts().ends, 1);
    assert_int_equal(stk_dmabuf_sync(&block, PEN_WRITE, true, NULL), PEN_OK);
    assert_int_equal(fake_dmabuf_counts().reads, 1);
    assert_int_equal(fake_dmabuf_counts().writes, 1);
    assert_int_equal(stk_dmabuf_sync(&block, PEN_READ | PEN_WRITE, true, NULL),
                     PEN_OK);
    assert_int_equal(fake_dmabuf_counts().begins, 3);
    assert_int_equal(fake_dmabuf_counts().reads, 2);
    assert_int_equal(fake_dmabuf_counts().writes, 2);
    assert_int_equal(fake_dmabuf_counts().ends, 1);
    free_block(&block);
}

DMABUF_TEST(an_interrupted_begin_is_tried_again)
{
    struct stk_block block;
    const struct fake_dmabuf busy = { .interrupted = 5 };
    fake_dmabuf_set(&busy);
    alloc(BYTES, &block);
    assert_int_equal(stk_dmabuf_sync(&block, PEN_READ, true, NULL), PEN_OK);
    assert_int_equal(fake_dmabuf_counts().begins, 1);
    free_block(&block);
}

DMABUF_TEST(an_access_that_fails_says_which_side)
{
    struct stk_block block;
    struct pen_error err = { 0 };
    const struct fake_dmabuf broken = { .sync = EIO };
    fake_dmabuf_set(&broken);
    alloc(BYTES, &block);
    assert_int_equal(stk_dmabuf_sync(&block, PEN_READ, true, &err), PEN_E_IO);
    assert_int_equal(err.native, EIO);
    assert_non_null(strstr(err.text, "begin"));
    assert_int_equal(stk_dmabuf_sync(&block, PEN_READ, false, &err), PEN_E_IO);
    assert_non_null(strstr(err.text, "end"));
    free_block(&block);
    expect_nothing();
}

// --- foreign descriptors ----------------------------------------------------

DMABUF_TEST(a_foreign_dmabuf_is_duplicated_and_mapped)
{
    const struct stk_mem_source from = source();
    const unsigned fds = descriptors();
    struct stk_block block;
    struct stat theirs, ours;
    fake_dmabuf_set(&bare);
    int fd = fake_dmabuf_new(WHOLE);
    assert_true(fd >= 0);
    assert_int_equal(pwrite(fd, "weir", 4, 100), 4);

    assert_int_equal(stk_dmabuf_adopt(&from, fd, BYTES, &block, NULL), PEN_OK);
    assert_int_not_equal(block.dmabuf->fd, fd);
    fstat(fd, &theirs);
    fstat(block.dmabuf->fd, &ours);
    assert_int_equal(theirs.st_ino, ours.st_ino);
    assert_int_equal(block.dmabuf->kind, STK_DMABUF_HOST);
    assert_false(block.dmabuf->stand_in);
    assert_null(block.dmabuf->provider);
    assert_memory_equal((char *)block.host + 100, "weir", 4);
    // The memory itself is somebody else's.
    assert_int_equal(live(STK_RES_DMABUF), 0);
    assert_int_equal(live(STK_RES_MAPPING), 1);
    assert_int_equal(live(STK_RES_FILE), 1);

    close(fd);
    assert_int_equal(stk_dmabuf_sync(&block, PEN_READ, true, NULL), PEN_OK);
    assert_memory_equal((char *)block.host + 100, "weir", 4);
    assert_int_equal(stk_dmabuf_sync(&block, PEN_READ, false, NULL), PEN_OK);
    // One pair of them was the trial at adoption.
    assert_int_equal(fake_dmabuf_counts().begins, 2);
    assert_int_equal(fake_dmabuf_counts().ends, 2);
    free_block(&block);
    expect_nothing();
    assert_int_equal(descriptors(), fds);
}

DMABUF_TEST(a_foreign_memfd_has_nobody_to_be_told)
{
    const struct stk_mem_source from = source();
    struct stk_block block;
    fake_dmabuf_set(&bare);
    int fd = memfd_create("test", MFD_CLOEXEC);
    assert_int_equal(ftruncate(fd, WHOLE), 0);
    assert_int_equal(stk_dmabuf_adopt(&from, fd, WHOLE, &block, NULL), PEN_OK);
    assert_true(block.dmabuf->stand_in);
    assert_int_equal(stk_dmabuf_sync(&block, PEN_WRITE, true, NULL), PEN_OK);
    assert_int_equal(fake_dmabuf_counts().begins, 0);
    free_block(&block);
    close(fd);
    expect_nothing();
}

static void expect_foreign(int fd, size_t bytes, enum pen_status status,
                           const char *text)
{
    const struct stk_mem_source from = source();
    const unsigned fds = descriptors();
    struct stk_block block;
    struct pen_error err = { 0 };
    assert_int_equal(stk_dmabuf_adopt(&from, fd, bytes, &block, &err), status);
    if (!strstr(err.text, text))
        fail_msg("\"%s\" is not in \"%s\"", text, err.text);
    assert_null(block.dmabuf);
    expect_nothing();
    assert_int_equal(descriptors(), fds);
}

DMABUF_TEST(foreign_descriptors_that_cannot_be_used_are_refused)
{
    int ends[2];
    fake_dmabuf_set(&bare);
    const int fd = fake_dmabuf_new(WHOLE);
    expect_foreign(fd, WHOLE + 1, PEN_E_ARG,
                   "has 8192 bytes, but the frame is said to have 8193");
    expect_foreign(fd, 0, PEN_E_ARG, "said to have 0");
    expect_foreign(-1, WHOLE, PEN_E_IO, "Bad file descriptor");
    assert_int_equal(pipe(ends), 0);
    expect_foreign(ends[0], WHOLE, PEN_E_IO, "Illegal seek");
    close(ends[0]);
    close(ends[1]);

    // As the driver's exports: the host may not map them.
    fake_dmabuf_fail(3, ENODEV);
    expect_foreign(fd, WHOLE, PEN_E_UNSUPPORTED,
                   "neither be mapped by the host (No such device) nor "
                   "imported (no device was named to import it)");
    assert_true(fake_dmabuf_failed());
    close(fd);
}

// --- every call fails once --------------------------------------------------

static void alloc_once(void)
{
    const struct stk_mem_source from = source();
    struct stk_block block;
    struct pen_error err = { 0 };
    const enum pen_status st = stk_dmabuf_alloc(&from, BYTES, &block, &err);
    if (!fake_dmabuf_failed() && st != PEN_OK)
        fail_msg("%s", err.text);
    // Where the first node cannot be opened the other one serves.
    if (st == PEN_OK)
        assert_true(!fake_dmabuf_failed() ||
                    strcmp(block.dmabuf->provider, "dma-heap") == 0);
    else
        assert_int_equal(st, PEN_E_IO);
    assert_int_equal(err.status, st);
    stk_dmabuf_free(&from, &block);
}

static void adopt_once(void)
{
    const struct stk_mem_source from = source();
    struct stk_block block;
    struct pen_error err = { 0 };
    int fd = fake_dmabuf_new(WHOLE);
    const enum pen_status st = stk_dmabuf_adopt(&from, fd, BYTES, &block, &err);
    if (!fake_dmabuf_failed())
        assert_int_equal(st, PEN_OK);
    else
        assert_true(st == PEN_E_IO || st == PEN_E_UNSUPPORTED);
    assert_int_equal(err.status, st);
    stk_dmabuf_free(&from, &block);
    close(fd);
}

static void probe_once(void)
{
    struct stk_dmabuf_caps caps;
    stk_dmabuf_probe(NULL, &caps);
    assert_int_equal(caps.host, !fake_dmabuf_failed());
    assert_int_equal(caps.why_host[0] == 0, caps.host);
}

static unsigned sweep(void (*body)(void))
{
    const unsigned fds = descriptors();
    for (unsigned nth = 1;; nth++) {
        fake_dmabuf_fail(nth, EIO);
        body();
        const bool failed = fake_dmabuf_failed();
        fake_dmabuf_fail(0, 0);
        expect_nothing();
        assert_int_equal(descriptors(), fds);
        if (!failed)
            return nth - 1;
    }
}

DMABUF_TEST(every_call_that_fails_leaves_nothing_behind)
{
    fake_dmabuf_set(&only_udmabuf);
    // The node, memfd, its size, its seal, create, map.
    assert_int_equal(sweep(alloc_once), 6);
    fake_dmabuf_set(&only_heap);
    assert_int_equal(sweep(alloc_once), 4);
    fake_dmabuf_set(&bare);
    // Size, duplicate, map, begin, end.
    assert_int_equal(sweep(adopt_once), 5);
    fake_dmabuf_set(&only_udmabuf);
    assert_int_equal(sweep(probe_once), 8);
}

DMABUF_TEST(every_allocation_that_fails_leaves_nothing_behind)
{
    const struct stk_mem_source from = source();
    const unsigned fds = descriptors();
    fake_dmabuf_set(&both);
    int theirs = fake_dmabuf_new(WHOLE);
    for (int adopts = 0; adopts < 2; adopts++) {
        for (unsigned nth = 1;; nth++) {
            struct stk_block block;
            struct pen_error err = { 0 };
            pen_alloc_fail_arm(nth, false);
            const enum pen_status st =
                adopts ? stk_dmabuf_adopt(&from, theirs, BYTES, &block, &err)
                       : stk_dmabuf_alloc(&from, BYTES, &block, &err);
            const bool failed = pen_alloc_fail_disarm();
            // The ledger goes without a site where it has no memory for it.
            assert_true(st == PEN_OK || (failed && st == PEN_E_NOMEM));
            if (nth == 1)
                assert_int_equal(st, PEN_E_NOMEM);
            stk_dmabuf_free(&from, &block);
            expect_nothing();
            if (!failed)
                break;
        }
    }
    close(theirs);
    assert_int_equal(descriptors(), fds);
}

// --- probing ----------------------------------------------------------------

DMABUF_TEST(probing_tells_the_provider_or_what_is_missing)
{
    const unsigned fds = descriptors();
    struct stk_dmabuf_caps caps;
    fake_dmabuf_set(&both);
    stk_dmabuf_probe(NULL, &caps);
    assert_true(caps.host);
    assert_string_equal(caps.provider, "udmabuf");
    assert_string_equal(caps.why_host, "");
    assert_false(caps.export);
    assert_string_equal(caps.why_export, "there is no CUDA device");
    assert_false(caps.import);
    assert_string_equal(caps.why_import, "there is no CUDA device");
    assert_int_equal(fake_dmabuf_counts().begins, 1);
    assert_int_equal(fake_dmabuf_counts().ends, 1);

    fake_dmabuf_set(&only_heap);
    stk_dmabuf_probe(NULL, &caps);
    assert_true(caps.host);
    assert_string_equal(caps.provider, "dma-heap");

    const struct fake_dmabuf locked = { .udmabuf = ENOENT, .heap = EACCES };
    fake_dmabuf_set(&locked);
    stk_dmabuf_probe(NULL, &caps);
    assert_false(caps.host);
    assert_string_equal(caps.provider, "");
    assert_string_equal(caps.why_host,
                        "/dev/udmabuf is not there and /dev/dma_heap/system "
                        "cannot be opened (Permission denied)");
    expect_nothing();
    assert_int_equal(descriptors(), fds);
}

PEN_TEST_MAIN(
    PEN_CASE(without_a_provider_the_error_names_what_is_missing),
    PEN_CASE(the_first_provider_that_is_there_is_taken),
    PEN_CASE(what_one_provider_cannot_make_the_next_one_does),
    PEN_CASE(when_all_fail_the_error_tells_of_each),
    PEN_CASE(without_an_emulated_device_no_memfd_stands_in),
    PEN_CASE(impossible_sizes_are_errors),
    PEN_CASE(memory_of_a_device_needs_a_device),
    PEN_CASE(an_empty_block_can_be_freed),
    PEN_CASE(a_budget_holds_and_what_failed_does_not_count),
    PEN_CASE(begin_and_end_are_told_to_the_kernel_with_their_direction),
    PEN_CASE(an_interrupted_begin_is_tried_again),
    PEN_CASE(an_access_that_fails_says_which_side),
    PEN_CASE(a_foreign_dmabuf_is_duplicated_and_mapped),
    PEN_CASE(a_foreign_memfd_has_nobody_to_be_told),
    PEN_CASE(foreign_descriptors_that_cannot_be_used_are_refused),
    PEN_CASE(every_call_that_fails_leaves_nothing_behind),
    PEN_CASE(every_allocation_that_fails_leaves_nothing_behind),
    PEN_CASE(probing_tells_the_provider_or_what_is_missing))
