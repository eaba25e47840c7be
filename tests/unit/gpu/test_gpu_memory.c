// Memory that grows in place, what is done when there is none, budgets, host
// memory of others, and memory that is shared by descriptors.

#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <sys/mman.h>
#include <unistd.h>

#include "gpu_fixture.h"

#include "src/base/fd.h"
#include "src/gpu/driver.h"

enum { MIB = 1 << 20 };

static uint64_t live_bytes(struct stk_ledger *ledger, enum stk_res res)
{
    struct stk_ledger_totals totals;
    stk_ledger_totals(ledger, res, &totals);
    return totals.live_bytes;
}

static const struct penemu *emulator_or_skip(const char *why)
{
    const struct penemu *emu = fixture_emulator();
    if (!emu)
        PEN_SKIP("%s: emulated only", why);
    emu->penemu_reset();
    return emu;
}

// A device whose warnings are kept.
struct told {
    char text[512];
    unsigned count;
    struct pen_log log;
};

static void keep_warning(void *cookie, enum pen_log_level level,
                         const char *topic, const char *text)
{
    struct told *told = cookie;
    (void)topic;
    if (level > PEN_LOG_WARN)
        return;
    told->count++;
    snprintf(told->text, sizeof(told->text), "%s", text);
}

static void listen(struct fixture *f, struct told *told)
{
    *told = (struct told){ .log = { keep_warning, told, PEN_LOG_WARN } };
    f->dev->log = &told->log;
}

// --- regions ----------------------------------------------------------------

static void region_body(struct fixture *f)
{
    if (!stk_region_possible(f->dev))
        PEN_SKIP("the device has no virtual memory");
    const size_t g = stk_region_granularity(f->dev);
    struct stk_stream *stream = fixture_stream(f, "stream");
    struct stk_region *r = NULL;
    void *host = NULL;
    FIXTURE_OK(stk_pinned_alloc(f->dev, 3 * g, "host", PEN_HERE, &host, &err));
    FIXTURE_OK(
        stk_region_create(f->dev, 1000, 5 * g - 1, "a", PEN_HERE, &r, &err));
    const uint64_t address = stk_region_address(r);
    assert_int_equal(address % g, 0);
    assert_int_equal(stk_region_bytes(r), 1000);
    assert_int_equal(stk_region_reserved(r), 5 * g);
    assert_int_equal(live_bytes(f->ledger, STK_RES_CUDA_DEVICE), 1000);
    assert_int_equal(fixture_live(f->ledger, STK_RES_MAPPING), 1);

    // Within the granule, to its end, over two of them, while work is queued.
    const size_t steps[] = { 1000, 5000, g, 2 * g + 7, 3 * g };
    enum { STEPS = sizeof(steps) / sizeof(steps[0]) };
    for (size_t i = 0; i < STEPS; i++) {
        if (i)
            FIXTURE_OK(stk_region_grow(r, steps[i], "b", PEN_HERE, &err));
        assert_int_equal(stk_region_bytes(r), steps[i]);
        assert_int_equal(stk_region_address(r), address);
        assert_int_equal(live_bytes(f->ledger, STK_RES_CUDA_DEVICE), steps[i]);
        const size_t from = i ? steps[i - 1] : 0;
        STK_SCOPE scope = { 0 };
        FIXTURE_OK(stk_scope_enter(&scope, f->dev, &err));
        FIXTURE_OK(stk_stream_fill(stream, address + from,
                                   (unsigned char)(i + 1), steps[i] - from,
                                   &err));
    }
    {
        STK_SCOPE scope = { 0 };
        FIXTURE_OK(stk_scope_enter(&scope, f->dev, &err));
        FIXTURE_OK(stk_stream_copy(stream, STK_COPY_D2H, (uintptr_t)host,
                                   address, 3 * g, &err));
    }
    FIXTURE_OK(stk_point_wait(fixture_record(f, stream), STK_WAIT_NONE, &err));
    const unsigned char *bytes = host;
    for (size_t i = 0; i < STEPS; i++) {
        for (size_t at = i ? steps[i - 1] : 0; at < steps[i]; at++) {
            if (bytes[at] != i + 1)
                fail_msg("byte %zu is %d, not %zu", at, bytes[at], i + 1);
        }
    }

    struct pen_error why = { 0 };
    assert_int_equal(stk_region_grow(r, 5 * g + 1, "c", PEN_HERE, &why),
                     PEN_E_LIMIT);
    assert_int_equal(stk_region_grow(r, 3 * g, "c", PEN_HERE, &why), PEN_E_ARG);
    assert_int_equal(stk_region_bytes(r), 3 * g);
    stk_region_destroy(&r);
    assert_null(r);
    stk_region_destroy(&r);
    assert_int_equal(fixture_live(f->ledger, STK_RES_CUDA_DEVICE), 0);
    stk_pinned_free(f->dev, host, 3 * g);
    stk_stream_destroy(&stream);
}

PEN_TEST(a_region_grows_without_moving)
{
    fixture_all_modes(region_body);
}

PEN_TEST(regions_of_impossible_sizes_are_refused)
{
    struct fixture f;
    fixture_open(&f);
    struct stk_region *r = (struct stk_region *)&f;
    struct pen_error why = { 0 };
    const size_t bad[][2] = { { 0, 1 << 20 },
                              { 2 << 20, 1 << 20 },
                              { 1, SIZE_MAX },
                              { SIZE_MAX, SIZE_MAX } };
    for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
        const enum pen_status status = stk_region_create(
            f.dev, bad[i][0], bad[i][1], "x", PEN_HERE, &r, &why);
        assert_int_equal(status, PEN_E_ARG);
        assert_null(r);
    }
    // More addresses than there are.
    const enum pen_status status = stk_region_create(
        f.dev, 1, (size_t)1 << 60, "much", PEN_HERE, &r, &why);
    assert_true(status == PEN_E_DEVMEM || status == PEN_E_DRIVER);
    assert_null(r);
    assert_int_equal(fixture_live(f.ledger, STK_RES_MAPPING), 0);
    fixture_close(&f);
}

PEN_TEST(a_device_without_virtual_memory_says_so)
{
    const struct penemu *emu = emulator_or_skip("takes it away");
    struct fixture f;
    // Asked when the device is opened.
    emu->penemu_fault_arm("cuMemGetAllocationGranularity", 1,
                          CUDA_ERROR_NOT_SUPPORTED, 1);
    fixture_open(&f);
    emu->penemu_fault_disarm();
    assert_false(stk_region_possible(f.dev));
    struct stk_region *r;
    struct pen_error why = { 0 };
    assert_int_equal(stk_region_create(f.dev, 1, 1, "x", PEN_HERE, &r, &why),
                     PEN_E_UNSUPPORTED);
    fixture_close(&f);
    emu->penemu_reset();
}

// --- when there is none -----------------------------------------------------

// Somebody who keeps free blocks.
struct keeper {
    struct stk_hoard hoard;
    struct fixture *f;
    uint64_t block;
    size_t bytes;
    unsigned trims;
};

static uint64_t keeper_trim(struct stk_hoard *hoard)
{
    struct keeper *k = (struct keeper *)hoard;
    const size_t bytes = k->block ? k->bytes : 0;
    k->trims++;
    stk_device_free(k->f->dev, k->block, k->bytes);
    k->block = 0;
    return bytes;
}

static void keeper_describe(struct stk_hoard *hoard, struct stk_text *text)
{
    const struct keeper *k = (const struct keeper *)hoard;
    stk_text_addf(text, "pool `keeper`: %d blocks free", k->block != 0);
}

static void keep(struct keeper *k, struct fixture *f, size_t bytes)
{
    *k = (struct keeper){ .f = f, .bytes = bytes };
    k->hoard.trim = keeper_trim;
    k->hoard.describe = keeper_describe;
    FIXTURE_OK(
        stk_device_alloc(f->dev, bytes, "keeper", PEN_HERE, &k->block, &err));
    stk_device_hoard_enter(f->dev, &k->hoard);
}

PEN_TEST(what_others_keep_is_given_back_before_memory_is_refused)
{
    const struct penemu *emu = emulator_or_skip("pretends to have little");
    emu->penemu_set_memory(64 * MIB);
    struct fixture f;
    struct told told;
    struct keeper a, b;
    uint64_t memory = 0;
    fixture_open(&f);
    listen(&f, &told);
    keep(&a, &f, 24 * MIB);
    keep(&b, &f, 24 * MIB);
    const uint64_t waits = emu->penemu_calls("cuCtxSynchronize");
    FIXTURE_OK(
        stk_device_alloc(f.dev, 40 * MIB, "much", PEN_HERE, &memory, &err));
    assert_int_equal(a.trims, 1);
    assert_int_equal(b.trims, 1);
    assert_int_equal(emu->penemu_calls("cuCtxSynchronize"), waits + 1);
    // Never silent.
    assert_int_equal(told.count, 1);
    assert_non_null(strstr(told.text, "48.00 MiB were given back"));
    assert_non_null(strstr(told.text, "cuMemAlloc"));
    stk_device_hoard_leave(f.dev, &a.hoard);
    stk_device_hoard_leave(f.dev, &b.hoard);
    stk_device_free(f.dev, memory, 40 * MIB);
    fixture_close(&f);
    emu->penemu_reset();
}

PEN_TEST(the_refusal_tells_who_has_what)
{
    const struct penemu *emu = emulator_or_skip("pretends to have little");
    emu->penemu_set_memory(64 * MIB);
    struct fixture f;
    struct told told;
    struct keeper k;
    struct pen_error why = { 0 };
    uint64_t one = 0, two = 0, memory = 0;
    fixture_open(&f);
    listen(&f, &told);
    FIXTURE_OK(
        stk_device_alloc(f.dev, 30 * MIB, "one.out", PEN_HERE, &one, &err));
    FIXTURE_OK(
        stk_device_alloc(f.dev, 10 * MIB, "two.out", PEN_HERE, &two, &err));
    keep(&k, &f, 4 * MIB);
    for (int i = 0; i < 2; i++) {
        const enum pen_status status =
            stk_device_alloc(f.dev, 40 * MIB, "much", PEN_HERE, &memory, &why);
        assert_int_equal(status, PEN_E_DEVMEM);
        assert_int_equal(why.native, CUDA_ERROR_OUT_OF_MEMORY);
        const char *const parts[] = {
            "cuMemAlloc of 40.00 MiB for much",
            "of the device's 64.00 MiB",
            "one.out 30.00 MiB",
            "two.out 10.00 MiB",
            "pool `keeper`: 0 blocks free",
            i ? "0 B were given back" : "4.00 MiB were given back",
        };
        for (size_t p = 0; p < sizeof(parts) / sizeof(parts[0]); p++) {
            if (!strstr(why.text, parts[p]))
                fail_msg("no \"%s\" in \"%s\"", parts[p], why.text);
        }
    }
    assert_int_equal(told.count, 0);  // an error is no warning
    assert_int_equal(live_bytes(f.ledger, STK_RES_CUDA_DEVICE), 40 * MIB);

    // Pinned memory likewise.
    void *pinned = NULL;
    emu->penemu_fault_arm("cuMemHostAlloc", 1, CUDA_ERROR_OUT_OF_MEMORY, 1);
    assert_int_equal(
        stk_pinned_alloc(f.dev, 4096, "locked", PEN_HERE, &pinned, &why),
        PEN_E_NOMEM);
    assert_int_equal(emu->penemu_fault_disarm(), 2);  // tried twice
    assert_non_null(strstr(why.text, "cuMemHostAlloc of 4.00 KiB for locked"));
    assert_non_null(strstr(why.text, "pool `keeper`"));

    stk_device_hoard_leave(f.dev, &k.hoard);
    stk_device_free(f.dev, one, 30 * MIB);
    stk_device_free(f.dev, two, 10 * MIB);
    fixture_close(&f);
    emu->penemu_reset();
}

PEN_TEST(growth_that_finds_no_memory_leaves_the_region_as_it_was)
{
    const struct penemu *emu = emulator_or_skip("pretends to have little");
    emu->penemu_set_memory(16 * MIB);
    struct fixture f;
    struct keeper k;
    struct stk_region *r = NULL;
    struct pen_error why = { 0 };
    fixture_open(&f);
    FIXTURE_OK(
        stk_region_create(f.dev, MIB, 64 * MIB, "a", PEN_HERE, &r, &err));
    keep(&k, &f, 8 * MIB);
    FIXTURE_OK(stk_region_grow(r, 12 * MIB, "a", PEN_HERE, &err));
    assert_int_equal(k.trims, 1);
    assert_int_equal(stk_region_grow(r, 40 * MIB, "a", PEN_HERE, &why),
                     PEN_E_DEVMEM);
    assert_int_equal(stk_region_bytes(r), 12 * MIB);
    assert_int_equal(live_bytes(f.ledger, STK_RES_CUDA_DEVICE), 12 * MIB);
    FIXTURE_OK(stk_region_grow(r, 14 * MIB, "a", PEN_HERE, &err));
    stk_device_hoard_leave(f.dev, &k.hoard);
    stk_region_destroy(&r);
    fixture_close(&f);
    emu->penemu_reset();
}

PEN_TEST(budgets_hold_before_the_driver_is_asked)
{
    struct fixture f;
    struct told told;
    struct keeper k;
    struct pen_error why = { 0 };
    struct stk_region *r = NULL;
    uint64_t memory = 0;
    void *pinned = NULL;
    fixture_open(&f);
    listen(&f, &told);
    stk_ledger_set_limit(f.ledger, PEN_MEM_BIT(PEN_MEM_CUDA_DEVICE), 10 * MIB);
    stk_ledger_set_limit(f.ledger, PEN_MEM_BIT(PEN_MEM_HOST_PINNED), MIB);
    const struct penemu *emu = fixture_emulator();
    const uint64_t calls = emu ? emu->penemu_calls("cuMemAlloc") : 0;
    assert_int_equal(
        stk_device_alloc(f.dev, 11 * MIB, "x", PEN_HERE, &memory, &why),
        PEN_E_LIMIT);
    if (emu)
        assert_int_equal(emu->penemu_calls("cuMemAlloc"), calls);
    assert_int_equal(
        stk_pinned_alloc(f.dev, MIB + 1, "x", PEN_HERE, &pinned, &why),
        PEN_E_LIMIT);
    FIXTURE_OK(stk_pinned_alloc(f.dev, MIB, "x", PEN_HERE, &pinned, &err));
    stk_pinned_free(f.dev, pinned, MIB);

    // What somebody keeps counts, until it is wanted.
    keep(&k, &f, 6 * MIB);
    FIXTURE_OK(stk_device_alloc(f.dev, 8 * MIB, "x", PEN_HERE, &memory, &err));
    assert_int_equal(k.trims, 1);
    assert_int_equal(told.count, 1);

    // What failed is not counted, and growth counts what it adds.
    if (stk_region_possible(f.dev)) {
        FIXTURE_OK(
            stk_region_create(f.dev, MIB, 64 * MIB, "r", PEN_HERE, &r, &err));
        assert_int_equal(stk_region_grow(r, 2 * MIB + 1, "r", PEN_HERE, &why),
                         PEN_E_LIMIT);
        assert_int_equal(stk_region_bytes(r), MIB);
        FIXTURE_OK(stk_region_grow(r, 2 * MIB, "r", PEN_HERE, &err));
        stk_region_destroy(&r);
    }
    stk_device_hoard_leave(f.dev, &k.hoard);
    stk_device_free(f.dev, memory, 8 * MIB);
    fixture_close(&f);
}

// A hoard that takes its time.
struct slow {
    struct stk_hoard hoard;
    struct called begun;
    _Atomic bool go, left;
    bool seen_left;  // while it worked
};

static uint64_t slow_trim(struct stk_hoard *hoard)
{
    struct slow *s = (struct slow *)hoard;
    called_back(&s->begun);
    while (!s->go)
        usleep(100);
    usleep(20000);  // who does not wait has time to leave
    s->seen_left = s->left;
    return 0;
}

struct asking {
    struct fixture *f;
    enum pen_status status;
};

static void *ask_for_too_much(void *cookie)
{
    struct asking *a = cookie;
    uint64_t memory = 0;
    struct pen_error why;
    a->status = stk_device_alloc(a->f->dev, (size_t)1 << 60, "much", PEN_HERE,
                                 &memory, &why);
    return NULL;
}

static void no_words(struct stk_hoard *hoard, struct stk_text *text)
{
    (void)hoard;
    stk_text_add(text, "none");
}

PEN_TEST(leaving_waits_for_a_trim_and_nobody_calls_after)
{
    struct fixture f;
    struct slow s = { .hoard = { .trim = slow_trim, .describe = no_words } };
    struct keeper other;
    fixture_open(&f);
    called_init(&s.begun);
    keep(&other, &f, 4096);
    stk_device_hoard_enter(f.dev, &s.hoard);
    struct asking a = { .f = &f };
    pthread_t thread;
    assert_int_equal(pthread_create(&thread, NULL, ask_for_too_much, &a), 0);
    called_wait(&s.begun);
    s.go = true;
    stk_device_hoard_leave(f.dev, &s.hoard);
    s.left = true;
    assert_int_equal(pthread_join(thread, NULL), 0);
    assert_int_equal(a.status, PEN_E_DEVMEM);
    assert_false(s.seen_left);
    assert_int_equal(s.begun.count, 1);
    assert_int_equal(other.trims, 1);
    // Out of the list means not called.
    ask_for_too_much(&a);
    assert_int_equal(s.begun.count, 1);
    assert_int_equal(other.trims, 2);
    stk_device_hoard_leave(f.dev, &other.hoard);
    fixture_close(&f);
}

// --- host memory of others --------------------------------------------------

PEN_TEST(host_memory_of_others_is_locked_and_let_go)
{
    struct fixture f;
    struct pen_error why = { 0 };
    fixture_open(&f);
    char *memory = mmap(NULL, MIB, PROT_READ | PROT_WRITE,
                        MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    assert_ptr_not_equal(memory, MAP_FAILED);
    FIXTURE_OK(stk_host_register(f.dev, memory, MIB, "x", PEN_HERE, &err));
    assert_int_equal(fixture_live(f.ledger, STK_RES_REGISTRATION), 1);
    assert_int_equal(live_bytes(f.ledger, STK_RES_HOST_PINNED), 0);

    // Twice, in the middle of a page, nothing: refused, nothing entered.
    assert_int_equal(stk_host_register(f.dev, memory, MIB, "x", PEN_HERE, &why),
                     PEN_E_DRIVER);
    assert_int_equal(why.native, CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED);
    assert_int_equal(
        stk_host_register(f.dev, memory + 8, 4096, "x", PEN_HERE, &why),
        PEN_E_ARG);
    assert_int_equal(stk_host_register(f.dev, memory, 0, "x", PEN_HERE, &why),
                     PEN_E_ARG);
    assert_int_equal(stk_host_register(f.dev, NULL, 1, "x", PEN_HERE, &why),
                     PEN_E_ARG);
    assert_int_equal(fixture_live(f.ledger, STK_RES_REGISTRATION), 1);
    stk_host_unregister(f.dev, memory);
    stk_host_unregister(f.dev, NULL);
    munmap(memory, MIB);
    fixture_close(&f);
}

// --- shared by descriptors --------------------------------------------------

PEN_TEST(device_memory_is_handed_out_and_taken_in)
{
    struct fixture f;
    struct pen_error why = { 0 };
    fixture_open(&f);
    if (!stk_device_can_export(f.dev)) {
        fixture_close(&f);
        PEN_SKIP("the device hands out no descriptors");
    }
    uint64_t memory = 0, again = 0;
    int fd = -1;
    struct stk_import *import = NULL;
    FIXTURE_OK(stk_device_alloc(f.dev, 4 * MIB, "x", PEN_HERE, &memory, &err));
    FIXTURE_OK(
        stk_device_export(f.dev, memory, 4 * MIB, "x", PEN_HERE, &fd, &err));
    assert_true(fd >= 0);
    assert_int_equal(fcntl(fd, F_GETFD) & FD_CLOEXEC, FD_CLOEXEC);
    assert_int_equal(fixture_live(f.ledger, STK_RES_FILE), 1);
    if (stk_device_can_import(f.dev)) {
        FIXTURE_OK(stk_device_import(f.dev, fd, 4 * MIB, "x", PEN_HERE, &import,
                                     &again, &err));
        assert_int_equal(fixture_live(f.ledger, STK_RES_IMPORT), 1);
        struct stk_stream *stream = fixture_stream(&f, "stream");
        uint32_t *host;
        void *pinned = NULL;
        FIXTURE_OK(
            stk_pinned_alloc(f.dev, 4096, "host", PEN_HERE, &pinned, &err));
        fixture_fill(&f, stream, memory + MIB, 77, 1024);
        {
            STK_SCOPE scope = { 0 };
            FIXTURE_OK(stk_scope_enter(&scope, f.dev, &err));
            FIXTURE_OK(stk_stream_copy(stream, STK_COPY_D2H, (uintptr_t)pinned,
                                       again + MIB, 4096, &err));
        }
        FIXTURE_OK(
            stk_point_wait(fixture_record(&f, stream), STK_WAIT_NONE, &err));
        host = pinned;
        for (int i = 0; i < 1024; i++)
            assert_int_equal(host[i], 77);
        stk_stream_destroy(&stream);
        stk_pinned_free(f.dev, pinned, 4096);
    } else {
        assert_int_equal(stk_device_import(f.dev, fd, 4 * MIB, "x", PEN_HERE,
                                           &import, &again, &why),
                         PEN_E_UNSUPPORTED);
    }
    stk_device_unimport(&import);
    stk_device_unimport(&import);
    stk_fd_close(f.ledger, &fd);
    // What is no multiple is refused without a call.
    assert_int_equal(
        stk_device_export(f.dev, memory, 1000, "x", PEN_HERE, &fd, &why),
        PEN_E_ARG);
    assert_int_equal(stk_device_export(f.dev, memory + 4096, STK_EXPORT_ALIGN,
                                       "x", PEN_HERE, &fd, &why),
                     PEN_E_ARG);
    assert_int_equal(fd, -1);
    stk_device_free(f.dev, memory, 4 * MIB);
    fixture_close(&f);
}

PEN_TEST(what_a_device_can_share_is_asked_and_tried)
{
    const struct penemu *emu = emulator_or_skip("takes it away");
    for (unsigned mask = 0; mask < 4; mask++) {
        struct fixture f;
        struct pen_error why = { 0 };
        assert_int_equal(emu->penemu_set_dmabuf(mask), 0);
        fixture_open(&f);
        assert_int_equal(stk_device_can_export(f.dev),
                         (mask & PENEMU_EXPORT) != 0);
        for (int i = 0; i < 2; i++)
            assert_int_equal(stk_device_can_import(f.dev),
                             (mask & PENEMU_IMPORT) != 0);
        // Tried once.
        assert_int_equal(emu->penemu_calls("cuImportExternalMemory"), 1);
        uint64_t memory = 0;
        int fd = -1;
        struct stk_import *import;
        FIXTURE_OK(
            stk_device_alloc(f.dev, 4 * MIB, "x", PEN_HERE, &memory, &err));
        const enum pen_status out =
            stk_device_export(f.dev, memory, 4 * MIB, "x", PEN_HERE, &fd, &why);
        assert_int_equal(out,
                         mask & PENEMU_EXPORT ? PEN_OK : PEN_E_UNSUPPORTED);
        stk_fd_close(f.ledger, &fd);
        if (mask & PENEMU_EXPORT) {
            emu->penemu_fault_arm("cuMemGetHandleForAddressRange", 1,
                                  CUDA_ERROR_OPERATING_SYSTEM, 0);
            assert_int_equal(stk_device_export(f.dev, memory, 4 * MIB, "x",
                                               PEN_HERE, &fd, &why),
                             PEN_E_DRIVER);
            assert_int_equal(fd, -1);
            assert_non_null(strstr(why.text, "descriptors (ulimit -n)"));
        }
        stk_device_free(f.dev, memory, 4 * MIB);

        const int file = memfd_create("test", MFD_CLOEXEC);
        assert_int_equal(ftruncate(file, MIB), 0);
        const enum pen_status in = stk_device_import(
            f.dev, file, MIB, "x", PEN_HERE, &import, &memory, &why);
        assert_int_equal(in, mask & PENEMU_IMPORT ? PEN_OK : PEN_E_UNSUPPORTED);
        stk_device_unimport(&import);
        close(file);
        fixture_close(&f);
        emu->penemu_reset();
    }
}

PEN_TEST(used_memory_is_told)
{
    struct fixture f;
    uint64_t before = 0, after = 0, process = 0, memory = 0;
    fixture_open(&f);
    assert_true(stk_device_usage(f.dev, &before, &process));
    FIXTURE_OK(stk_device_alloc(f.dev, 64 * MIB, "x", PEN_HERE, &memory, &err));
    assert_true(stk_device_usage(f.dev, &after, &process));
    assert_true(after >= before + 64 * MIB);
    if (pen_test_on_gpu())
        print_message("# %llu bytes of this process\n",
                      (unsigned long long)process);
    else
        assert_int_equal(process, 0);
    stk_device_free(f.dev, memory, 64 * MIB);
    fixture_close(&f);
}

PEN_TEST_MAIN(PEN_CASE(a_region_grows_without_moving),
              PEN_CASE(regions_of_impossible_sizes_are_refused),
              PEN_CASE(a_device_without_virtual_memory_says_so),
              PEN_CASE(what_others_keep_is_given_back_before_memory_is_refused),
              PEN_CASE(the_refusal_tells_who_has_what),
              PEN_CASE(growth_that_finds_no_memory_leaves_the_region_as_it_was),
              PEN_CASE(budgets_hold_before_the_driver_is_asked),
              PEN_CASE(leaving_waits_for_a_trim_and_nobody_calls_after),
              PEN_CASE(host_memory_of_others_is_locked_and_let_go),
              PEN_CASE(device_memory_is_handed_out_and_taken_in),
              PEN_CASE(what_a_device_can_share_is_asked_and_tried),
              PEN_CASE(used_memory_is_told))
