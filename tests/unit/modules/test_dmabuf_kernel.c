// Pipelines on a machine whose kernel makes DMABUFs, made up as in
// support/fake_dmabuf.h: every access by the host is begun and ended, and
// whatever call fails, nothing stays behind. The device is the emulated one.

#include <errno.h>
#include <stdio.h>
#include <unistd.h>

#include "fake_dmabuf.h"
#include "gpu_fixture.h"
#include "mod_world.h"

#include "src/mem/dmabuf.h"

enum { W = 34, H = 26, FRAMES = 5 };

static const char *work;

static void begin(const struct fake_dmabuf *kernel)
{
    if (pen_test_on_gpu())
        PEN_SKIP("made for the emulated device");
    if (!work)
        work = pen_test_folder();
    fake_dmabuf_set(kernel);
    mod_dma = (struct mod_dma){ 0 };
    unlink(in(work, "out.raw"));
}

static struct outcome run(const char *mem, const char *middle,
                          const char *connections)
{
    return mod_run("{'modules':{'s':{'type':'TestSignalGenerator','props':{"
                   "'width':%d,'height':%d,'maxFrames':%d,'memType':'%s'}},%s"
                   "'w':{'type':'FileWriterModule','props':{"
                   "'strFullFileNameWithPattern':'%s/out.raw',"
                   "'append':true}}},'connections':[%s]}",
                   W, H, FRAMES, mem, middle, work, connections);
}

static void must(struct outcome *o)
{
    if (o->status != PEN_OK)
        fail_msg("%s: %s\n%s", o->err.where, o->err.text, o->issues);
    outcome_free(o);
}

#define DIRECT "{'from':'s','to':'w'}"
#define BLUR                                                                   \
    "'c':{'type':'CCNPPI','props':{'imageType':'RGB'}},"                       \
    "'b':{'type':'GaussianBlur'},"
#define BLURRED                                                                \
    "{'from':'s','to':'c'},{'from':'c','to':'b'},{'from':'b','to':'w'}"

static void expect_pairs(const char *mem, unsigned reads, unsigned writes)
{
    const struct fake_dmabuf_counts counts = fake_dmabuf_counts();
    // One pair more, for reading and writing, is the trial at the start.
    if (counts.begins != reads + writes + 1 || counts.begins != counts.ends ||
        counts.reads != reads + 1 || counts.writes != writes + 1)
        fail_msg("%s: %u begun (%u to read, %u to write), %u ended", mem,
                 counts.begins, counts.reads, counts.writes, counts.ends);
    assert_int_equal(counts.mappings, 0);
}

PEN_TEST(every_access_by_the_host_is_begun_and_ended)
{
    static const struct fake_dmabuf kernels[] = {
        { .heap = ENOENT },
        { .udmabuf = ENOENT },
        { .interrupted = 3 },
    };
    for (size_t i = 0; i < sizeof(kernels) / sizeof(kernels[0]); i++) {
        begin(&kernels[i]);
        struct outcome o = run("DMABUF", "", DIRECT);
        must(&o);
        expect_pairs("DMABUF", FRAMES, FRAMES);
    }
}

PEN_TEST(frames_that_are_no_dmabufs_make_no_such_calls)
{
    const struct fake_dmabuf kernel = { 0 };
    begin(&kernel);
    struct outcome o = run("HOST", "", DIRECT);
    must(&o);
    assert_int_equal(fake_dmabuf_counts().begins, 0);
    assert_int_equal(fake_dmabuf_counts().nodes, 0);
}

PEN_TEST(a_device_that_imports_needs_no_access_by_the_host)
{
    const struct fake_dmabuf kernel = { 0 };
    begin(&kernel);
    struct outcome o = run("DMABUF", BLUR, BLURRED);
    must(&o);
    expect_pairs("import", 0, FRAMES);
}

PEN_TEST(a_staged_copy_reads_on_the_host)
{
    const struct fake_dmabuf kernel = { 0 };
    begin(&kernel);
    assert_int_equal(fixture_emulator()->penemu_set_dmabuf(PENEMU_EXPORT), 0);
    struct outcome o = run("DMABUF", BLUR, BLURRED);
    must(&o);
    expect_pairs("staged", FRAMES, FRAMES);
    fixture_emulator()->penemu_set_dmabuf(PENEMU_EXPORT | PENEMU_IMPORT);
}

PEN_TEST(an_access_that_cannot_be_begun_is_an_error_of_the_module)
{
    // The trial at the start takes node, memfd, its size, its seal, create,
    // map, begin, end; then come the pool's blocks, and then the accesses.
    const struct fake_dmabuf kernel = { .heap = ENOENT };
    unsigned failed_later = 0;
    for (unsigned nth = 1;; nth++) {
        begin(&kernel);
        fake_dmabuf_fail(nth, EIO);
        struct outcome o = run("DMABUF", "", DIRECT);
        const bool fired = fake_dmabuf_failed();
        fake_dmabuf_fail(0, 0);
        assert_int_equal(fake_dmabuf_counts().mappings, 0);
        if (!fired) {
            must(&o);
            break;
        }
        if (o.status == PEN_E_IO && o.stage == MOD_STARTED) {
            assert_non_null(strstr(o.err.text, "DMA_BUF_IOCTL_SYNC"));
            failed_later++;
        }
        // Where the first provider fails the emulated device has a stand-in.
        assert_true(o.status == PEN_OK || o.err.text[0]);
        outcome_free(&o);
    }
    assert_int_equal(failed_later, 4 * FRAMES);
}

PEN_TEST(each_thing_that_is_missing_has_a_reason_of_its_own)
{
    const struct fake_dmabuf bare = { .udmabuf = ENOENT, .heap = EACCES };
    struct stk_dmabuf_caps caps;
    struct fixture f;
    begin(&bare);
    fixture_emulator()->penemu_set_dmabuf(0);
    fixture_open(&f);
    // Both nodes are opened in vain; the stand-in comes third.
    fake_dmabuf_fail(3, EMFILE);
    stk_dmabuf_probe(f.dev, &caps);
    assert_true(fake_dmabuf_failed());
    fake_dmabuf_fail(0, 0);
    assert_false(caps.host || caps.export || caps.import);
    assert_string_equal(caps.why_host,
                        "/dev/udmabuf is not there and /dev/dma_heap/system "
                        "cannot be opened (Permission denied) and "
                        "memfd_create failed (Too many open files)");
    assert_non_null(strstr(caps.why_export, "the driver hands out no"));
    assert_non_null(strstr(caps.why_import, "the driver takes no"));
    fixture_close(&f);

    // A device that imports, but nothing that it could.
    fixture_emulator()->penemu_set_dmabuf(PENEMU_EXPORT | PENEMU_IMPORT);
    fixture_open(&f);
    fake_dmabuf_fail(3, EMFILE);
    stk_dmabuf_probe(f.dev, &caps);
    fake_dmabuf_fail(0, 0);
    assert_false(caps.host || caps.import);
    assert_true(caps.export);
    assert_string_equal(caps.why_import, "there is no DMABUF to import");
    fixture_close(&f);
}

PEN_TEST_MAIN(
    PEN_CASE(every_access_by_the_host_is_begun_and_ended),
    PEN_CASE(frames_that_are_no_dmabufs_make_no_such_calls),
    PEN_CASE(a_device_that_imports_needs_no_access_by_the_host),
    PEN_CASE(a_staged_copy_reads_on_the_host),
    PEN_CASE(an_access_that_cannot_be_begun_is_an_error_of_the_module),
    PEN_CASE(each_thing_that_is_missing_has_a_reason_of_its_own))
