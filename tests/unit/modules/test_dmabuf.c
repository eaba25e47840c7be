// Pipelines with DMABUFs: where they come from, who takes them without a copy,
// who with which copy, and what is refused. On a GPU the device's own memory is
// exported; what needs a provider of host DMABUFs or an import is for the
// emulated device.

#include <stdio.h>
#include <unistd.h>

#include "gpu_fixture.h"
#include "mod_world.h"

#include "src/gpu/driver.h"

enum { W = 70, H = 46, FRAMES = 9 };

static const char *work;

static bool emulated(void)
{
    return fixture_emulator() != NULL;
}

static void set_dmabuf(unsigned mask)
{
    if (emulated())
        assert_int_equal(fixture_emulator()->penemu_set_dmabuf(mask), 0);
}

// 'name':{a test signal in memory `mem`}
static const char *signal_in(const char *mem)
{
    static char text[256];
    snprintf(text, sizeof(text),
             "'s':{'type':'TestSignalGenerator','props':{'width':%d,'height':%d"
             ",'pattern':'GRADIENT','maxFrames':%d,'memType':'%s'}}",
             W, H, FRAMES, mem);
    return text;
}

static const char *writer(const char *id, const char *name)
{
    static char texts[4][700];
    static unsigned turn;
    char *text = texts[turn++ % 4];
    snprintf(text, sizeof(texts[0]),
             "'%s':{'type':'FileWriterModule','props':{"
             "'strFullFileNameWithPattern':'%s/%s','append':true}}",
             id, work, name);
    return text;
}

static void fresh(const char *name)
{
    if (!work)
        work = pen_test_folder();
    unlink(in(work, name));
    mod_dma = (struct mod_dma){ 0 };
    atomic_store(&mod_taken, 0);
}

// The signal as it is, through host memory alone.
static const char *plain(void)
{
    fresh("plain.raw");
    struct outcome o =
        mod_must("{'modules':{%s,%s},'connections':[{'from':'s','to':'w'}]}",
                 signal_in("HOST"), writer("w", "plain.raw"));
    outcome_free(&o);
    return in(work, "plain.raw");
}

// The same frames went through TDmaSink.
static void expect_seen(const char *path)
{
    assert_int_equal(mod_dma.frames, FRAMES);
    if (!emulated())
        return;  // what a GPU exports the host cannot look into
    size_t bytes = 0;
    uint8_t *all = pen_test_read_file(path, &bytes);
    assert_int_equal(mod_dma.mapped, FRAMES);
    assert_true(mod_dma.hash == mod_hash(0, all, bytes));
    free(all);
}

static void expect_copies(const struct outcome *o, unsigned up, unsigned down,
                          bool by_host)
{
    assert_int_equal(o->stats.h2d.count, up);
    assert_int_equal(o->stats.d2h.count, down);
    assert_int_equal(o->stats.host_copy_bytes != 0, by_host);
    assert_int_equal(o->stats.blocking_syncs, 0);
    // What is held was planned, in the account where it belongs.
    for (unsigned m = PEN_MEM_HOST_PINNED; m < PEN_MEM_COUNT; m++) {
        const struct pen_memory_stats *held = &o->stats.memory[m];
        if (held->peak > held->planned_peak)
            fail_msg("%s: peak %llu, planned %llu",
                     pen_mem_name((enum pen_mem_type)m),
                     (unsigned long long)held->peak,
                     (unsigned long long)held->planned_peak);
    }
    assert_int_equal(o->stats.steady_state_allocations, 0);
}

static void needs_emulator(void)
{
    if (!emulated())
        PEN_SKIP("needs the emulated device");
}

// --- host memory ------------------------------------------------------------

static void body_source_to_dma(void)
{
    const char *expected = plain();
    struct outcome o = mod_must("{'modules':{%s,'k':{'type':'TDmaSink'}},"
                                "'connections':[{'from':'s','to':'k'}]}",
                                signal_in("DMABUF"));
    expect_seen(expected);
    expect_copies(&o, 0, 0, false);
    assert_true(o.stats.memory[PEN_MEM_DMABUF].peak > 0);
    outcome_free(&o);
}

PEN_TEST(a_source_of_dmabufs_feeds_a_sink_that_takes_nothing_else)
{
    needs_emulator();
    mod_all_modes(body_source_to_dma);
}

static void body_mapped(void)
{
    const char *expected = plain();
    fresh("got.raw");
    struct outcome o =
        mod_must("{'modules':{%s,%s},'connections':[{'from':'s','to':'w'}]}",
                 signal_in("DMABUF"), writer("w", "got.raw"));
    same_files(expected, in(work, "got.raw"));
    expect_copies(&o, 0, 0, false);
    outcome_free(&o);
}

PEN_TEST(a_host_module_reads_a_dmabuf_where_it_is)
{
    needs_emulator();
    mod_all_modes(body_mapped);
}

static void body_upgraded(void)
{
    const char *expected = plain();
    fresh("got.raw");
    struct outcome o =
        mod_must("{'modules':{%s,'k':{'type':'TDmaSink'},%s},"
                 "'connections':[{'from':'s','to':'k'},{'from':'s','to':'w'}]}",
                 signal_in("HOST"), writer("w", "got.raw"));
    expect_seen(expected);
    same_files(expected, in(work, "got.raw"));
    expect_copies(&o, 0, 0, false);
    outcome_free(&o);
}

PEN_TEST(host_frames_for_a_dmabuf_sink_are_made_in_dmabufs)
{
    needs_emulator();
    mod_all_modes(body_upgraded);
}

static void body_reader(void)
{
    const char *expected = plain();
    fresh("got.raw");
    struct outcome o = mod_must(
        "{'modules':{'s':{'type':'FileReaderModule','props':{"
        "'strFullFileNameWithPattern':'%s','width':%d,'height':%d,"
        "'format':'YUV420','memType':'DMABUF'}},"
        "'k':{'type':'TDmaSink'}},'connections':[{'from':'s','to':'k'}]}",
        expected, W, H);
    expect_seen(expected);
    expect_copies(&o, 0, 0, false);
    outcome_free(&o);
}

PEN_TEST(files_are_read_into_dmabufs)
{
    needs_emulator();
    mod_all_modes(body_reader);
}

// Frames of bytes, each larger than the one before: blocks are replaced.
static void body_growing(void)
{
    static uint8_t bytes[300000];
    uint64_t seed = 7, hash = 0;
    fresh("got.raw");
    for (size_t i = 0; i < sizeof(bytes); i++)
        bytes[i] = (uint8_t)pen_test_random(&seed);
    for (int i = 0; i < 6; i++) {
        static const size_t sizes[] = { 1, 999, 4097, 65537, 65536, 300000 };
        char name[32];
        snprintf(name, sizeof(name), "f%d.bin", i);
        pen_test_write_file(in(work, name), bytes, sizes[i]);
        hash = mod_hash(hash, bytes, sizes[i]);
    }
    struct outcome o = mod_must(
        "{'modules':{'s':{'type':'FileReaderModule','props':{"
        "'strFullFileNameWithPattern':'%s/f?.bin','outputFrameType':'Frame',"
        "'memType':'DMABUF'}},'k':{'type':'TDmaSink'}},"
        "'connections':[{'from':'s','to':'k'}]}",
        work);
    assert_int_equal(mod_dma.frames, 6);
    assert_int_equal(mod_dma.mapped, 6);
    assert_true(mod_dma.hash == hash);
    outcome_free(&o);
}

PEN_TEST(dmabufs_of_growing_frames_are_replaced)
{
    needs_emulator();
    mod_all_modes(body_growing);
}

// --- MemTypeConversion ------------------------------------------------------

static struct outcome convert(const char *from, const char *type,
                              const char *target, const char *sink)
{
    char props[64] = "";
    if (target)
        snprintf(props, sizeof(props), "'outputMemType':'%s'", target);
    return mod_must("{'modules':{%s,'m':{'type':'%s','props':{%s}},%s},"
                    "'connections':[{'from':'s','to':'m'},"
                    "{'from':'m','to':'k'}]}",
                    signal_in(from), type, props, sink);
}

static void body_convert_host(void)
{
    static const char *const from[] = { "HOST", "HOST_PINNED", "DMABUF" };
    const char *expected = plain();
    for (int i = 0; i < 3; i++) {
        for (int alias = 0; alias < 2; alias++) {
            fresh("got.raw");
            struct outcome o = convert(
                from[i], alias ? "DMAFDToHostCopy" : "MemTypeConversion",
                alias ? NULL : "HOST", writer("k", "got.raw"));
            same_files(expected, in(work, "got.raw"));
            expect_copies(&o, 0, 0, false);
            outcome_free(&o);
        }
    }
}

PEN_TEST(conversion_to_host_copies_nothing)
{
    needs_emulator();
    mod_all_modes(body_convert_host);
}

static void body_convert_pinned(void)
{
    static const char *const from[] = { "HOST", "HOST_PINNED", "DMABUF" };
    for (int i = 0; i < 3; i++) {
        fresh("got.raw");
        struct outcome o =
            convert(from[i], "MemTypeConversion", "HOST_PINNED",
                    "'k':{'type':'TSink','props':{'mem':'HOST_PINNED'}}");
        assert_int_equal(atomic_load(&mod_taken), FRAMES);
        // Frames of a pool that can be page-locked are made so.
        if (i < 2)
            expect_copies(&o, 0, 0, false);
        else
            expect_copies(&o, 0, 0, true);
        outcome_free(&o);
    }
}

PEN_TEST(conversion_to_pinned_memory_copies_dmabufs_alone)
{
    needs_emulator();
    mod_all_modes(body_convert_pinned);
}

static void body_convert_device(void)
{
    static const char *const from[] = { "HOST", "HOST_PINNED", "DMABUF" };
    for (int import = 0; import < 2; import++) {
        set_dmabuf(import ? PENEMU_EXPORT | PENEMU_IMPORT : PENEMU_EXPORT);
        for (int i = 0; i < 3; i++) {
            fresh("got.raw");
            struct outcome o =
                convert(from[i], "MemTypeConversion", "DEVICE",
                        "'k':{'type':'TSink','props':{'mem':'CUDA_DEVICE'}}");
            assert_int_equal(atomic_load(&mod_taken), FRAMES);
            if (i < 2)
                expect_copies(&o, FRAMES, 0, false);
            else if (import)
                expect_copies(&o, 0, 0, false);
            else
                expect_copies(&o, FRAMES, 0, true);
            outcome_free(&o);
        }
    }
}

PEN_TEST(conversion_to_the_device_uploads_what_is_not_imported)
{
    needs_emulator();
    mod_all_modes(body_convert_device);
}

static void body_convert_dma(void)
{
    static const char *const from[] = { "HOST", "HOST_PINNED", "DMABUF" };
    const char *expected = plain();
    for (int i = 0; i < 3; i++) {
        fresh("got.raw");
        struct outcome o = convert(from[i], "MemTypeConversion", "DMA",
                                   "'k':{'type':'TDmaSink'}");
        expect_seen(expected);
        assert_int_equal(o.stats.h2d.count + o.stats.d2h.count, 0);
        if (i == 2)
            assert_int_equal(o.stats.host_copy_bytes, 0);
        outcome_free(&o);
    }
}

PEN_TEST(conversion_to_dmabufs_gives_the_same_frames)
{
    needs_emulator();
    mod_all_modes(body_convert_dma);
}

PEN_TEST(conversion_without_a_target_is_refused)
{
    fresh("got.raw");
    struct outcome o =
        mod_run("{'modules':{%s,'m':{'type':'MemTypeConversion'},"
                "'k':{'type':'StatSink'}},'connections':[{'from':'s','to':'m'},"
                "{'from':'m','to':'k'}]}",
                signal_in("HOST"));
    mod_expect(&o, PEN_E_CONFIG, "E205");
}

// --- device memory ----------------------------------------------------------

// Blurred by the device and written by the host, as a reference.
static const char *blurred(void)
{
    fresh("blur.raw");
    struct outcome o = mod_must(
        "{'modules':{%s,'c':{'type':'CCNPPI','props':{'imageType':'RGB'}},"
        "'b':{'type':'GaussianBlur'},%s},'connections':["
        "{'from':'s','to':'c'},{'from':'c','to':'b'},{'from':'b','to':'w'}]}",
        signal_in("HOST"), writer("w", "blur.raw"));
    outcome_free(&o);
    return in(work, "blur.raw");
}

static void run_blur_dma(struct outcome *o, const char *source_mem)
{
    *o = mod_must(
        "{'modules':{%s,'c':{'type':'CCNPPI','props':{'imageType':'RGB'}},"
        "'b':{'type':'GaussianBlur'},'k':{'type':'TDmaSink'}},'connections':["
        "{'from':'s','to':'c'},{'from':'c','to':'b'},{'from':'b','to':'k'}]}",
        signal_in(source_mem));
}

static void body_export(void)
{
    const char *expected = blurred();
    fresh("got.raw");
    struct outcome o;
    run_blur_dma(&o, "HOST");
    expect_seen(expected);
    // Up once, and never down again.
    expect_copies(&o, FRAMES, 0, false);
    assert_int_equal(o.stats.memory[PEN_MEM_DMABUF].peak, 0);
    outcome_free(&o);
}

PEN_TEST(what_a_device_module_writes_is_exported)
{
    mod_all_modes(body_export);
}

static void body_export_and_download(void)
{
    const char *expected = blurred();
    fresh("got.raw");
    struct outcome o = mod_must(
        "{'modules':{%s,'c':{'type':'CCNPPI','props':{'imageType':'RGB'}},"
        "'b':{'type':'GaussianBlur'},'k':{'type':'TDmaSink'},%s},"
        "'connections':[{'from':'s','to':'c'},{'from':'c','to':'b'},"
        "{'from':'b','to':'k'},{'from':'b','to':'w'}]}",
        signal_in("HOST"), writer("w", "got.raw"));
    expect_seen(expected);
    same_files(expected, in(work, "got.raw"));
    expect_copies(&o, FRAMES, FRAMES, false);
    outcome_free(&o);
}

PEN_TEST(a_dmabuf_of_device_memory_is_downloaded_for_the_host)
{
    mod_all_modes(body_export_and_download);
}

static void body_through_device(void)
{
    fresh("got.raw");
    // A device source's DMABUFs pass a module for device memory as they are.
    struct outcome o = mod_must(
        "{'modules':{'s':{'type':'TSource','props':{'file':'%s','mem':'DMABUF',"
        "'format':'YUV420','width':%d,'height':%d,'count':%d}},"
        "'y':{'type':'CudaStreamSynchronize'},'k':{'type':'TDmaSink'},%s},"
        "'connections':[{'from':'s','to':'y'},{'from':'y','to':'k'},"
        "{'from':'y','to':'w'}]}",
        in(work, "one.raw"), W, H, 1, writer("w", "got.raw"));
    assert_int_equal(mod_dma.frames, 1);
    same_files(in(work, "one.raw"), in(work, "got.raw"));
    assert_int_equal(o.stats.d2h.count, 1);
    assert_int_equal(o.stats.host_copy_bytes, 0);
    outcome_free(&o);
}

PEN_TEST(dmabufs_of_the_device_pass_modules_of_the_device)
{
    size_t bytes = 0;
    uint8_t *all = pen_test_read_file(plain(), &bytes);
    pen_test_write_file(in(work, "one.raw"), all, bytes / FRAMES);
    free(all);
    mod_all_modes(body_through_device);
}

static void body_no_export(void)
{
    const char *expected = blurred();
    fresh("got.raw");
    set_dmabuf(0);
    struct outcome o;
    run_blur_dma(&o, "HOST");
    expect_seen(expected);
    // Down into page-locked memory, and on by the host.
    expect_copies(&o, FRAMES, FRAMES, true);
    assert_true(o.stats.memory[PEN_MEM_DMABUF].peak > 0);
    outcome_free(&o);
}

PEN_TEST(without_export_the_copies_are_in_the_plan)
{
    needs_emulator();
    mod_all_modes(body_no_export);
}

static void body_import(void)
{
    const char *expected = blurred();
    for (int import = 0; import < 2; import++) {
        set_dmabuf(import ? PENEMU_EXPORT | PENEMU_IMPORT : PENEMU_EXPORT);
        fresh("got.raw");
        struct outcome o;
        run_blur_dma(&o, "DMABUF");
        expect_seen(expected);
        if (import)
            expect_copies(&o, 0, 0, false);
        else
            expect_copies(&o, FRAMES, 0, true);
        outcome_free(&o);
    }
}

PEN_TEST(a_device_module_reads_an_imported_dmabuf_or_a_staged_copy)
{
    needs_emulator();
    mod_all_modes(body_import);
}

// --- refused ----------------------------------------------------------------

// On a GPU without kernel devices host DMABUFs cannot be had.
PEN_TEST(what_the_machine_lacks_is_named)
{
    if (emulated() || access("/dev/udmabuf", R_OK | W_OK) == 0 ||
        access("/dev/dma_heap/system", R_OK | W_OK) == 0)
        PEN_SKIP("this machine makes DMABUFs of host memory");
    struct outcome o = mod_run("{'modules':{%s,'k':{'type':'StatSink'}},"
                               "'connections':[{'from':'s','to':'k'}]}",
                               signal_in("DMABUF"));
    assert_non_null(strstr(o.issues, "/dev/udmabuf"));
    mod_expect(&o, PEN_E_CONFIG, "E313");
}

// --- failing calls ----------------------------------------------------------

static void fails(const char *function, const char *source_mem)
{
    const struct penemu *emu = fixture_emulator();
    for (uint64_t nth = 1;; nth++) {
        mod_dma = (struct mod_dma){ 0 };
        assert_int_equal(
            emu->penemu_fault_arm(function, nth, CUDA_ERROR_OUT_OF_MEMORY, 0),
            0);
        struct outcome o = mod_run(
            "{'modules':{%s,'c':{'type':'CCNPPI','props':{'imageType':'RGB'}},"
            "'k':{'type':'TDmaSink'}},'connections':[{'from':'s','to':'c'},"
            "{'from':'c','to':'k'}]}",
            signal_in(source_mem));
        const bool fired = emu->penemu_fault_disarm() > 0;
        if (o.status != PEN_OK)
            assert_true(fired && o.err.text[0]);
        else
            assert_int_equal(mod_dma.frames, FRAMES);
        outcome_free(&o);
        if (!fired) {
            assert_true(nth > 1);
            return;
        }
    }
}

// mod_run() fails the test if anything is left.
PEN_TEST(exports_and_imports_that_fail_leave_nothing_behind)
{
    needs_emulator();
    fails("cuMemGetHandleForAddressRange", "HOST");
    fails("cuImportExternalMemory", "DMABUF");
    fails("cuExternalMemoryGetMappedBuffer", "DMABUF");
}

PEN_TEST_MAIN(
    PEN_CASE(a_source_of_dmabufs_feeds_a_sink_that_takes_nothing_else),
    PEN_CASE(a_host_module_reads_a_dmabuf_where_it_is),
    PEN_CASE(host_frames_for_a_dmabuf_sink_are_made_in_dmabufs),
    PEN_CASE(files_are_read_into_dmabufs),
    PEN_CASE(dmabufs_of_growing_frames_are_replaced),
    PEN_CASE(conversion_to_host_copies_nothing),
    PEN_CASE(conversion_to_pinned_memory_copies_dmabufs_alone),
    PEN_CASE(conversion_to_the_device_uploads_what_is_not_imported),
    PEN_CASE(conversion_to_dmabufs_gives_the_same_frames),
    PEN_CASE(conversion_without_a_target_is_refused),
    PEN_CASE(what_a_device_module_writes_is_exported),
    PEN_CASE(a_dmabuf_of_device_memory_is_downloaded_for_the_host),
    PEN_CASE(dmabufs_of_the_device_pass_modules_of_the_device),
    PEN_CASE(without_export_the_copies_are_in_the_plan),
    PEN_CASE(a_device_module_reads_an_imported_dmabuf_or_a_staged_copy),
    PEN_CASE(what_the_machine_lacks_is_named),
    PEN_CASE(exports_and_imports_that_fail_leave_nothing_behind))
