// DMABUFs and the device: memory that it exports, memory of the host that it
// imports, what it does with foreign descriptors, and every driver call that
// fails in turn. On the emulated device also without export and import.

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <penstock/frame.h>

#include "src/gpu/driver.h"
#include "src/mem/dmabuf.h"

#include "gpu_fixture.h"

enum { WORDS = 25000, BYTES = WORDS * 4, WHOLE = 128 << 10 };

static struct stk_mem_source source_of(struct fixture *f,
                                       enum stk_dmabuf_kind kind)
{
    return (struct stk_mem_source){
        .dev = f->dev,
        .ledger = f->ledger,
        .owner = "test.output",
        .kind = kind,
    };
}

static void set_dmabuf(unsigned mask)
{
    const struct penemu *emu = fixture_emulator();
    assert_non_null(emu);
    assert_int_equal(emu->penemu_set_dmabuf(mask), 0);
}

static void needs_emulator(void)
{
    if (!fixture_emulator())
        PEN_SKIP("needs the emulated device");
}

static void needs_export(struct fixture *f)
{
    if (stk_device_can_export(f->dev))
        return;
    fixture_close(f);
    PEN_SKIP("this device exports no memory");
}

// Words `from` to `to` at a device address, through pinned memory.
static void read_back(struct fixture *f, struct stk_stream *stream,
                      uint64_t address, uint32_t *words, size_t bytes)
{
    void *pinned = NULL;
    FIXTURE_OK(
        stk_pinned_alloc(f->dev, bytes, "test", PEN_HERE, &pinned, &err));
    {
        STK_SCOPE scope = { 0 };
        FIXTURE_OK(stk_scope_enter(&scope, f->dev, &err));
        FIXTURE_OK(stk_stream_copy(stream, STK_COPY_D2H,
                                   (uint64_t)(uintptr_t)pinned, address, bytes,
                                   &err));
    }
    FIXTURE_OK(
        stk_point_wait(fixture_record(f, stream), STK_WAIT_TEARDOWN, &err));
    memcpy(words, pinned, bytes);
    stk_pinned_free(f->dev, pinned, bytes);
}

// --- export -----------------------------------------------------------------

static void exported(struct fixture *f, size_t bytes)
{
    const struct stk_mem_source source = source_of(f, STK_DMABUF_CUDA);
    struct stk_block block;
    size_t take = 0;
    FIXTURE_OK(stk_dmabuf_alloc(&source, bytes, &block, &err));
    const struct stk_dmabuf *d = block.dmabuf;
    assert_true(stk_dmabuf_cuda_bytes(bytes, &take));

    assert_int_equal(d->kind, STK_DMABUF_CUDA);
    assert_null(block.host);
    assert_int_equal(block.bytes, bytes);
    assert_true(block.on_stream);
    assert_int_equal(block.address, d->device_address);
    assert_int_equal(block.address % STK_EXPORT_ALIGN, 0);
    assert_true(d->memory <= block.address &&
                block.address + bytes <= d->memory + take);

    // Whole granules behind the descriptor, which closes on exec.
    assert_int_equal(fcntl(d->fd, F_GETFD) & FD_CLOEXEC, FD_CLOEXEC);
    const off_t size = lseek(d->fd, 0, SEEK_END);
    assert_true(size >= (off_t)bytes);
    assert_int_equal(size % STK_EXPORT_ALIGN, 0);

    // Device memory stays device memory in the account.
    assert_int_equal(fixture_live(f->ledger, STK_RES_DMABUF), 0);
    assert_int_equal(fixture_live(f->ledger, STK_RES_FILE), 1);
    struct stk_ledger_totals t;
    stk_ledger_totals(f->ledger, STK_RES_CUDA_DEVICE, &t);
    assert_int_equal(t.live, 1);
    assert_int_equal(t.live_bytes, take);

    // The host has no access, so there is nothing to tell.
    assert_int_equal(stk_dmabuf_sync(&block, PEN_READ, true, NULL), PEN_OK);

    int twin = dup(d->fd);
    struct stat a, b;
    fstat(d->fd, &a);
    fstat(twin, &b);
    assert_int_equal(a.st_ino, b.st_ino);
    stk_dmabuf_free(&source, &block);
    assert_int_equal(lseek(twin, 0, SEEK_END), size);
    close(twin);
}

PEN_TEST(device_memory_is_exported_whatever_its_size)
{
    static const size_t sizes[] = {
        1, 4096, BYTES, 1 << 20, (2 << 20) - 1, 2 << 20, (2 << 20) + 1, 5 << 20,
    };
    struct fixture f;
    fixture_open(&f);
    needs_export(&f);
    // Small blocks before each, so that the next ones lie anywhere.
    uint64_t odd[8];
    for (int i = 0; i < 8; i++) {
        FIXTURE_OK(stk_device_alloc(f.dev, (size_t)(512 + 512 * i), "odd",
                                    PEN_HERE, &odd[i], &err));
    }
    for (int i = 0; i < 8; i++)
        stk_device_free(f.dev, odd[i], (size_t)(512 + 512 * i));
    for (size_t i = 0; i < sizeof(sizes) / sizeof(sizes[0]); i++)
        exported(&f, sizes[i]);
    fixture_close(&f);
}

PEN_TEST(several_small_exports_do_not_touch_each_other)
{
    enum { COUNT = 6 };
    struct fixture f;
    struct stk_block block[COUNT];
    ino_t inode[COUNT];
    fixture_open(&f);
    needs_export(&f);
    const struct stk_mem_source source = source_of(&f, STK_DMABUF_CUDA);
    struct stk_stream *stream = fixture_stream(&f, "test");
    for (uint32_t i = 0; i < COUNT; i++) {
        struct stat about;
        FIXTURE_OK(stk_dmabuf_alloc(&source, BYTES, &block[i], &err));
        fstat(block[i].dmabuf->fd, &about);
        inode[i] = about.st_ino;
        for (uint32_t k = 0; k < i; k++)
            assert_true(inode[k] != inode[i]);
        fixture_fill(&f, stream, block[i].address, 100 + i, WORDS);
    }
    static uint32_t words[WORDS];
    for (uint32_t i = 0; i < COUNT; i++) {
        read_back(&f, stream, block[i].address, words, BYTES);
        for (uint32_t w = 0; w < WORDS; w++)
            assert_int_equal(words[w], 100 + i);
    }
    for (int i = 0; i < COUNT; i++)
        stk_dmabuf_free(&source, &block[i]);
    stk_stream_destroy(&stream);
    fixture_close(&f);
}

static void body_exported_bytes(struct fixture *f)
{
    const struct stk_mem_source source = source_of(f, STK_DMABUF_CUDA);
    struct stk_stream *stream = fixture_stream(f, "test");
    struct stk_block block;
    FIXTURE_OK(stk_dmabuf_alloc(&source, BYTES, &block, &err));
    fixture_fill(f, stream, block.address, 0x5eed, WORDS);
    FIXTURE_OK(
        stk_point_wait(fixture_record(f, stream), STK_WAIT_TEARDOWN, &err));
    const uint32_t *seen =
        mmap(NULL, WHOLE, PROT_READ, MAP_SHARED, block.dmabuf->fd, 0);
    assert_ptr_not_equal(seen, MAP_FAILED);
    for (uint32_t w = 0; w < WORDS; w++)
        assert_int_equal(seen[w], 0x5eed);
    munmap((void *)(uintptr_t)seen, WHOLE);
    stk_dmabuf_free(&source, &block);
    stk_stream_destroy(&stream);
}

PEN_TEST(who_has_the_descriptor_sees_what_a_kernel_wrote)
{
    needs_emulator();
    fixture_all_modes(body_exported_bytes);
}

// --- import -----------------------------------------------------------------

static void body_imported_bytes(struct fixture *f)
{
    const struct stk_mem_source source = source_of(f, STK_DMABUF_HOST);
    struct stk_stream *stream = fixture_stream(f, "test");
    struct stk_block block;
    FIXTURE_OK(stk_dmabuf_alloc(&source, BYTES, &block, &err));
    const struct stk_dmabuf *d = block.dmabuf;
    assert_int_equal(d->kind, STK_DMABUF_HOST);
    assert_string_equal(d->provider, "memfd");
    assert_true(d->stand_in);
    assert_true(block.on_stream);
    assert_non_null(block.host);
    assert_non_null(d->import);
    assert_int_equal(block.address, d->device_address);
    assert_int_not_equal(block.address, (uintptr_t)block.host);
    assert_int_equal(fixture_live(f->ledger, STK_RES_IMPORT), 1);
    assert_int_equal(fixture_live(f->ledger, STK_RES_MAPPING), 1);
    assert_int_equal(fixture_live(f->ledger, STK_RES_FILE), 1);
    assert_int_equal(fixture_live(f->ledger, STK_RES_DMABUF), 1);
    assert_int_equal(fixture_live(f->ledger, STK_RES_CUDA_DEVICE), 0);

    // A kernel writes what the host reads, and the other way round.
    static uint32_t words[WORDS];
    uint32_t *host = block.host;
    fixture_fill(f, stream, block.address, 0xf10c, WORDS);
    FIXTURE_OK(
        stk_point_wait(fixture_record(f, stream), STK_WAIT_TEARDOWN, &err));
    for (uint32_t w = 0; w < WORDS; w++)
        assert_int_equal(host[w], 0xf10c);
    for (uint32_t w = 0; w < WORDS; w++)
        host[w] = w;
    read_back(f, stream, block.address, words, BYTES);
    for (uint32_t w = 0; w < WORDS; w++)
        assert_int_equal(words[w], w);
    stk_dmabuf_free(&source, &block);
    stk_stream_destroy(&stream);
}

PEN_TEST(host_memory_is_imported_where_the_device_can)
{
    needs_emulator();
    fixture_all_modes(body_imported_bytes);
}

PEN_TEST(without_import_the_host_alone_has_access)
{
    needs_emulator();
    struct fixture f;
    set_dmabuf(PENEMU_EXPORT);
    fixture_open(&f);
    const struct stk_mem_source source = source_of(&f, STK_DMABUF_HOST);
    struct stk_block block;
    FIXTURE_OK(stk_dmabuf_alloc(&source, BYTES, &block, &err));
    assert_false(block.on_stream);
    assert_null(block.dmabuf->import);
    assert_int_equal(block.dmabuf->device_address, 0);
    assert_int_equal(block.address, (uintptr_t)block.host);
    assert_int_equal(fixture_live(f.ledger, STK_RES_IMPORT), 0);
    stk_dmabuf_free(&source, &block);
    fixture_close(&f);
    set_dmabuf(PENEMU_EXPORT | PENEMU_IMPORT);
}

PEN_TEST(without_export_device_memory_is_refused)
{
    needs_emulator();
    struct fixture f;
    set_dmabuf(PENEMU_IMPORT);
    fixture_open(&f);
    const struct stk_mem_source source = source_of(&f, STK_DMABUF_CUDA);
    struct stk_block block;
    struct pen_error err = { 0 };
    assert_int_equal(stk_dmabuf_alloc(&source, BYTES, &block, &err),
                     PEN_E_UNSUPPORTED);
    assert_true(strlen(err.text) > 10);
    assert_null(block.dmabuf);
    assert_int_equal(fixture_live(f.ledger, STK_RES_CUDA_DEVICE), 0);
    fixture_close(&f);
    set_dmabuf(PENEMU_EXPORT | PENEMU_IMPORT);
}

// --- foreign descriptors ----------------------------------------------------

static void adopt_memfd(unsigned mask, bool imported)
{
    struct fixture f;
    set_dmabuf(mask);
    fixture_open(&f);
    const struct stk_mem_source source = source_of(&f, STK_DMABUF_NONE);
    struct stk_block block;
    int fd = memfd_create("foreign", MFD_CLOEXEC);
    assert_int_equal(ftruncate(fd, WHOLE), 0);
    assert_int_equal(pwrite(fd, "head race", 9, 0), 9);
    FIXTURE_OK(stk_dmabuf_adopt(&source, fd, WHOLE, &block, &err));
    close(fd);
    assert_int_equal(block.on_stream, imported);
    assert_memory_equal(block.host, "head race", 9);
    assert_int_equal(fixture_live(f.ledger, STK_RES_IMPORT), imported);
    assert_int_equal(fixture_live(f.ledger, STK_RES_DMABUF), 0);
    if (imported) {
        uint32_t words[4];
        struct stk_stream *stream = fixture_stream(&f, "test");
        read_back(&f, stream, block.address, words, sizeof(words));
        assert_memory_equal(words, "head race", 9);
        stk_stream_destroy(&stream);
    }
    stk_dmabuf_free(&source, &block);
    fixture_close(&f);
    set_dmabuf(PENEMU_EXPORT | PENEMU_IMPORT);
}

PEN_TEST(a_foreign_descriptor_is_imported_where_the_device_can)
{
    needs_emulator();
    adopt_memfd(PENEMU_IMPORT, true);
    adopt_memfd(PENEMU_EXPORT, false);
    adopt_memfd(0, false);
}

// What the driver exports the host may not map, and a discrete GPU imports
// nothing: then there is no access at all, and both reasons are told.
PEN_TEST(an_exported_block_of_somebody_else_is_used_or_refused)
{
    struct fixture f;
    fixture_open(&f);
    needs_export(&f);
    const struct stk_mem_source source = source_of(&f, STK_DMABUF_CUDA);
    struct stk_block theirs, ours;
    struct pen_error why = { 0 };
    FIXTURE_OK(stk_dmabuf_alloc(&source, BYTES, &theirs, &err));
    const enum pen_status st =
        stk_dmabuf_adopt(&source, theirs.dmabuf->fd, BYTES, &ours, &why);
    if (st == PEN_OK) {
        assert_true(ours.host || ours.on_stream);
        assert_int_equal(ours.dmabuf->kind,
                         ours.host ? STK_DMABUF_HOST : STK_DMABUF_CUDA);
        stk_dmabuf_free(&source, &ours);
    } else {
        assert_int_equal(st, PEN_E_UNSUPPORTED);
        assert_non_null(strstr(why.text, "mapped by the host"));
        assert_non_null(strstr(why.text, "imported ("));
    }
    assert_true(st == PEN_OK || !fixture_emulator());
    stk_dmabuf_free(&source, &theirs);
    fixture_close(&f);
}

// --- probing ----------------------------------------------------------------

PEN_TEST(probing_tells_what_the_device_can)
{
    needs_emulator();
    for (unsigned mask = 0; mask < 4; mask++) {
        struct fixture f;
        struct stk_dmabuf_caps caps;
        set_dmabuf(mask);
        fixture_open(&f);
        stk_dmabuf_probe(f.dev, &caps);
        assert_true(caps.host);
        assert_string_equal(caps.provider, "memfd");
        assert_int_equal(caps.export, (mask & PENEMU_EXPORT) != 0);
        assert_int_equal(caps.import, (mask & PENEMU_IMPORT) != 0);
        assert_int_equal(caps.why_export[0] == 0, caps.export);
        assert_int_equal(caps.why_import[0] == 0, caps.import);
        assert_string_equal(caps.why_host, "");
        fixture_close(&f);
    }
    set_dmabuf(PENEMU_EXPORT | PENEMU_IMPORT);
}

PEN_TEST(probing_agrees_with_what_is_then_done)
{
    struct fixture f;
    struct stk_dmabuf_caps caps;
    fixture_open(&f);
    stk_dmabuf_probe(f.dev, &caps);
    assert_int_equal(caps.export, stk_device_can_export(f.dev));
    assert_int_equal(caps.host, caps.why_host[0] == 0);
    assert_int_equal(caps.export, caps.why_export[0] == 0);
    assert_int_equal(caps.import, caps.why_import[0] == 0);
    for (int kind = STK_DMABUF_HOST; kind <= STK_DMABUF_CUDA; kind++) {
        const struct stk_mem_source source =
            source_of(&f, (enum stk_dmabuf_kind)kind);
        struct stk_block block;
        struct pen_error err = { 0 };
        const bool can = kind == STK_DMABUF_HOST ? caps.host : caps.export;
        const enum pen_status st =
            stk_dmabuf_alloc(&source, BYTES, &block, &err);
        if ((st == PEN_OK) != can)
            fail_msg("kind %d: %s %s", kind, pen_status_name(st), err.text);
        if (st == PEN_OK && kind == STK_DMABUF_HOST)
            assert_int_equal(block.on_stream, caps.import);
        stk_dmabuf_free(&source, &block);
    }
    print_message("# host: %s%s; export: %s; import: %s\n", caps.provider,
                  caps.why_host, caps.export ? "yes" : caps.why_export,
                  caps.import ? "yes" : caps.why_import);
    fixture_close(&f);
}

// --- every driver call fails once -------------------------------------------

static bool alloc_fails(struct fixture *f, enum stk_dmabuf_kind kind)
{
    const struct stk_mem_source source = source_of(f, kind);
    struct stk_block block;
    struct pen_error err = { 0 };
    const enum pen_status st = stk_dmabuf_alloc(&source, BYTES, &block, &err);
    const bool fired = fixture_emulator()->penemu_fault_disarm() > 0;
    if (st != PEN_OK) {
        assert_true(fired);
        assert_true(err.text[0]);
        assert_int_equal(err.status, st);
        assert_null(block.dmabuf);
    }
    stk_dmabuf_free(&source, &block);
    return fired;
}

static bool export_fails(struct fixture *f)
{
    return alloc_fails(f, STK_DMABUF_CUDA);
}

static bool import_fails(struct fixture *f)
{
    return alloc_fails(f, STK_DMABUF_HOST);
}

static bool adopt_fails(struct fixture *f)
{
    const struct stk_mem_source source = source_of(f, STK_DMABUF_NONE);
    struct stk_block block;
    struct pen_error err = { 0 };
    int fd = memfd_create("foreign", MFD_CLOEXEC);
    assert_int_equal(ftruncate(fd, WHOLE), 0);
    const enum pen_status st =
        stk_dmabuf_adopt(&source, fd, WHOLE, &block, &err);
    const bool fired = fixture_emulator()->penemu_fault_disarm() > 0;
    // Where the import fails the host still has access.
    assert_true(st == PEN_OK || fired);
    if (st == PEN_OK)
        assert_memory_equal(block.host, "\0\0\0\0", 4);
    stk_dmabuf_free(&source, &block);
    close(fd);
    return fired;
}

static bool probe_fails(struct fixture *f)
{
    struct stk_dmabuf_caps caps;
    stk_dmabuf_probe(f->dev, &caps);
    const bool fired = fixture_emulator()->penemu_fault_disarm() > 0;
    assert_true(caps.host);
    assert_int_equal(caps.export, caps.why_export[0] == 0);
    assert_int_equal(caps.import, caps.why_import[0] == 0);
    assert_true(fired || (caps.export && caps.import));
    return fired;
}

static void sweep(bool (*body)(struct fixture *f), int result)
{
    for (unsigned nth = 1;; nth++) {
        struct fixture f;
        fixture_open(&f);
        assert_int_equal(
            fixture_emulator()->penemu_fault_arm(PENEMU_ANY, nth, result, 0),
            0);
        const bool fired = body(&f);
        fixture_close(&f);
        if (!fired) {
            assert_true(nth > 1);
            return;
        }
    }
}

PEN_TEST(every_driver_call_that_fails_leaves_nothing_behind)
{
    needs_emulator();
    static const int results[] = {
        CUDA_ERROR_INVALID_VALUE,
        CUDA_ERROR_OUT_OF_MEMORY,
        CUDA_ERROR_NOT_SUPPORTED,
    };
    for (size_t i = 0; i < sizeof(results) / sizeof(results[0]); i++) {
        sweep(export_fails, results[i]);
        sweep(import_fails, results[i]);
        sweep(adopt_fails, results[i]);
        sweep(probe_fails, results[i]);
    }
}

PEN_TEST_MAIN(PEN_CASE(device_memory_is_exported_whatever_its_size),
              PEN_CASE(several_small_exports_do_not_touch_each_other),
              PEN_CASE(who_has_the_descriptor_sees_what_a_kernel_wrote),
              PEN_CASE(host_memory_is_imported_where_the_device_can),
              PEN_CASE(without_import_the_host_alone_has_access),
              PEN_CASE(without_export_device_memory_is_refused),
              PEN_CASE(a_foreign_descriptor_is_imported_where_the_device_can),
              PEN_CASE(an_exported_block_of_somebody_else_is_used_or_refused),
              PEN_CASE(probing_tells_what_the_device_can),
              PEN_CASE(probing_agrees_with_what_is_then_done),
              PEN_CASE(every_driver_call_that_fails_leaves_nothing_behind))
