// One module that leaks for each kind of entry of the ledger: with
// --detect-memory-leaks=1 the run fails and says who and where, with 0 it
// passes with a warning. The process goes on in both, and what was taken can
// still be given back.

#include <jansson.h>
#include <stdio.h>
#include <sys/mman.h>
#include <unistd.h>

#include "src/base/fd.h"
#include "src/mem/frame.h"
#include "src/mem/type.h"
#include "src/run/run.h"

#include "run_world.h"

// What the leaking module took, for the test to give back.
static struct loot {
    bool taken;
    struct stk_ledger *ledger;
    struct pen_device *dev;
    struct stk_stream *stream;
    void *pinned, *registered;
    size_t pinned_bytes;
    struct stk_mem_source source;
    struct stk_block block;
    struct stk_region *region;
    struct stk_import *import;
    int fd, memfd;
    struct pen_frame *frame;
    struct pen_dmabuf dmabuf;
} loot;

enum { BYTES = 64 << 10 };

// --- taking -----------------------------------------------------------------

static enum pen_status take_host(struct pen_module *m, const struct pen_io *io,
                                 struct pen_error *err)
{
    (void)io;
    void *memory;
    return pen_module_alloc(m, BYTES, &memory, err);
}

static enum pen_status take_device(struct pen_module *m,
                                   const struct pen_io *io,
                                   struct pen_error *err)
{
    (void)io;
    uint64_t address;
    return pen_module_alloc_device(m, BYTES, &address, err);
}

// Driver objects need a device that lives until they are given back: one of
// the module's own, in the pipeline's ledger.
static enum pen_status take_context(struct pen_module *m,
                                    const struct pen_io *io,
                                    struct pen_error *err)
{
    (void)io;
    const struct pen_device_params params = {
        .selector = pen_test_device(),
        .emulator = pen_test_emulator(),
    };
    return stk_device_open_for(&params, m->pipeline->ledger, m->id, &loot.dev,
                               err);
}

static enum pen_status take_pinned(struct pen_module *m,
                                   const struct pen_io *io,
                                   struct pen_error *err)
{
    PEN_TRY(take_context(m, io, err));
    loot.pinned_bytes = BYTES;
    return stk_pinned_alloc(loot.dev, BYTES, m->id, PEN_HERE, &loot.pinned,
                            err);
}

static enum pen_status take_kernels(struct pen_module *m,
                                    const struct pen_io *io,
                                    struct pen_error *err)
{
    struct stk_kernels *kernels;
    PEN_TRY(take_context(m, io, err));
    return stk_kernels_load(loot.dev, &fixture_image, &kernels, err);
}

// With its events.
static enum pen_status take_stream(struct pen_module *m,
                                   const struct pen_io *io,
                                   struct pen_error *err)
{
    PEN_TRY(take_context(m, io, err));
    return stk_stream_create(loot.dev, m->id, &loot.stream, err);
}

static void nothing(void *cookie)
{
    (void)cookie;
}

// Of a stream that somebody waited for.
static enum pen_status take_thread(struct pen_module *m,
                                   const struct pen_io *io,
                                   struct pen_error *err)
{
    struct fixture f = { 0 };
    struct gate gate;
    struct stk_point point;
    PEN_TRY(take_stream(m, io, err));
    f.dev = loot.dev;
    PEN_TRY(stk_kernels_load(f.dev, &fixture_image, &f.kernels, err));
    loot.pinned_bytes = sizeof(*gate.flag);
    PEN_TRY(stk_pinned_alloc(f.dev, loot.pinned_bytes, m->id, PEN_HERE,
                             &loot.pinned, err));
    gate.flag = loot.pinned;
    *gate.flag = 0;
    gate_queue(&f, &gate, loot.stream);
    point = fixture_record(&f, loot.stream);
    const enum pen_status status =
        stk_point_when(point, STK_WAIT_NONE, nothing, NULL, err);
    gate_open(&gate);
    return status;
}

static enum pen_status take_dmabuf(struct pen_module *m,
                                   const struct pen_io *io,
                                   struct pen_error *err)
{
    PEN_TRY(take_context(m, io, err));
    loot.source = (struct stk_mem_source){
        .dev = loot.dev,
        .ledger = m->pipeline->ledger,
        .owner = "leaker",
        .kind = STK_DMABUF_HOST,
    };
    return stk_mem_type(PEN_MEM_DMABUF)
        ->alloc(&loot.source, BYTES, &loot.block, err);
}

static enum pen_status take_file(struct pen_module *m, const struct pen_io *io,
                                 struct pen_error *err)
{
    (void)io;
    return stk_fd_dup(m->pipeline->ledger, STDERR_FILENO, m->id, PEN_HERE,
                      &loot.fd, err);
}

static enum pen_status take_mapping(struct pen_module *m,
                                    const struct pen_io *io,
                                    struct pen_error *err)
{
    PEN_TRY(take_context(m, io, err));
    return stk_region_create(loot.dev, BYTES, 4 * BYTES, m->id, PEN_HERE,
                             &loot.region, err);
}

static enum pen_status take_registration(struct pen_module *m,
                                         const struct pen_io *io,
                                         struct pen_error *err)
{
    PEN_TRY(take_context(m, io, err));
    loot.registered = mmap(NULL, BYTES, PROT_READ | PROT_WRITE,
                           MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    assert_ptr_not_equal(loot.registered, MAP_FAILED);
    return stk_host_register(loot.dev, loot.registered, BYTES, m->id, PEN_HERE,
                             err);
}

static enum pen_status take_import(struct pen_module *m,
                                   const struct pen_io *io,
                                   struct pen_error *err)
{
    uint64_t address;
    PEN_TRY(take_context(m, io, err));
    loot.memfd = memfd_create("leak", MFD_CLOEXEC);
    assert_int_equal(ftruncate(loot.memfd, BYTES), 0);
    return stk_device_import(loot.dev, loot.memfd, BYTES, m->id, PEN_HERE,
                             &loot.import, &address, err);
}

static enum pen_status take_frame(struct pen_module *m, const struct pen_io *io,
                                  struct pen_error *err)
{
    (void)m;
    (void)err;
    loot.frame = pen_frame_ref(pen_input(io, 0));
    return PEN_OK;
}

// The pipeline is torn down and not yet destroyed.
static void give_back(void)
{
    pen_frame_unref(loot.frame);
    stk_device_unimport(&loot.import);
    if (loot.memfd >= 0)
        close(loot.memfd);
    if (loot.registered) {
        stk_host_unregister(loot.dev, loot.registered);
        munmap(loot.registered, BYTES);
    }
    stk_region_destroy(&loot.region);
    stk_fd_close(loot.ledger, &loot.fd);
    if (loot.block.bytes)
        stk_mem_type(PEN_MEM_DMABUF)->free(&loot.source, &loot.block);
    stk_stream_destroy(&loot.stream);
    if (loot.pinned)
        stk_pinned_free(loot.dev, loot.pinned, loot.pinned_bytes);
    pen_device_close(&loot.dev);
}

// --- classes ----------------------------------------------------------------

static const struct pen_pin input[] = {
    { .name = "input",
      .help = "A picture.",
      .kinds = PEN_KIND_BIT(PEN_KIND_RAW_IMAGE),
      .mem = PEN_MEM_BITS_HOST,
      .formats = PEN_FMT_BIT(PEN_FMT_MONO) },
    { 0 },
};

// `flags`: of the class. `extra`: what comes with it.
#define LEAKS(X)                                                               \
    X(HOST, host, 0, "")                                                       \
    X(HOST_PINNED, pinned, 0, "context")                                       \
    X(CUDA_DEVICE, device, PEN_CLASS_CUDA, "")                                 \
    X(DMABUF, dmabuf, 0, "context file mapping import")                        \
    X(CONTEXT, context, 0, "")                                                 \
    X(STREAM, stream, 0, "context event")                                      \
    X(EVENT, stream, 0, "context stream")                                      \
    X(KERNELS, kernels, 0, "context")                                          \
    X(FRAME, frame, 0, "HOST")                                                 \
    X(FILE, file, 0, "")                                                       \
    X(THREAD, thread, 0, "context stream event kernels HOST_PINNED")           \
    X(MAPPING, mapping, 0, "context CUDA_DEVICE")                              \
    X(REGISTRATION, registration, 0, "context")                                \
    X(IMPORT, import, 0, "context")

#define X(RES, HOW, FLAGS, EXTRA)                                              \
    static enum pen_status process_##RES(                                      \
        struct pen_module *m, const struct pen_io *io, struct pen_error *err)  \
    {                                                                          \
        if (loot.taken)                                                        \
            return PEN_OK;                                                     \
        loot.taken = true;                                                     \
        loot.ledger = m->pipeline->ledger;                                     \
        return take_##HOW(m, io, err);                                         \
    }
LEAKS(X)
#undef X

static const struct leak {
    enum stk_res res;
    const char *extra;
    struct pen_module_class cls;
} leaks[] = {
#define X(RES, HOW, FLAGS, EXTRA)                                              \
    { .res = STK_RES_##RES,                                                    \
      .extra = EXTRA,                                                          \
      .cls = { .abi = PEN_MODULE_ABI,                                          \
               .size = sizeof(struct pen_module_class),                        \
               .name = "Leak_" #RES,                                           \
               .version = "1.0",                                               \
               .summary = "Leaks.",                                            \
               .category = PEN_CATEGORY_SINK,                                  \
               .flags = FLAGS,                                                 \
               .inputs = input,                                                \
               .ops = { .process = process_##RES } } },
    LEAKS(X)
#undef X
};
enum { LEAK_COUNT = sizeof(leaks) / sizeof(leaks[0]) };

PEN_TEST(there_is_a_leaking_class_for_each_kind_of_entry)
{
    for (int res = 1; res < STK_RES_COUNT; res++) {
        unsigned found = 0;
        for (unsigned i = 0; i < LEAK_COUNT; i++)
            found += leaks[i].res == (enum stk_res)res;
        if (found != 1)
            fail_msg("%u classes leak a %s", found,
                     stk_res_name((enum stk_res)res));
    }
}

// --- runs -------------------------------------------------------------------

static unsigned warnings;

static void count_warnings(void *cookie, enum pen_log_level level,
                           const char *topic, const char *text)
{
    (void)cookie;
    (void)topic;
    if (level == PEN_LOG_WARN && strstr(text, "not released"))
        warnings++;
}

// Whether the device under test has what is to be leaked.
static bool possible(const struct leak *leak)
{
    if (!pen_test_on_gpu())
        return true;
    struct fixture f;
    fixture_open(&f);
    bool can = true;
    if (leak->res == STK_RES_IMPORT)
        can = stk_device_can_import(f.dev);
    if (leak->res == STK_RES_MAPPING)
        can = stk_region_possible(f.dev);
    if (leak->res == STK_RES_DMABUF) {
        struct stk_block block = { 0 };
        const struct stk_mem_source source = { .dev = f.dev,
                                               .ledger = f.ledger,
                                               .owner = "probe",
                                               .kind = STK_DMABUF_HOST };
        const struct stk_mem_type *type = stk_mem_type(PEN_MEM_DMABUF);
        can = type->alloc(&source, BYTES, &block, NULL) == PEN_OK;
        if (can)
            type->free(&source, &block);
    }
    fixture_close(&f);
    if (!can)
        print_message("# no %s to leak on this device\n",
                      stk_res_name(leak->res));
    return can;
}

static json_t *report_leaks(const struct run *r, json_t **report)
{
    char *text = pen_pipeline_report_json(r->p);
    *report = json_loads(text, 0, NULL);
    pen_free(text);
    json_t *list = json_object_get(*report, "leaks");
    assert_true(json_is_array(list));
    return list;
}

static const char *text_of(const json_t *entry, const char *key)
{
    const char *text = json_string_value(json_object_get(entry, key));
    assert_non_null(text);
    return text;
}

// A word of a list.
static bool has_word(const char *list, const char *word)
{
    const size_t n = strlen(word);
    for (const char *at = list; (at = strstr(at, word)); at += n) {
        if ((at == list || at[-1] == ' ') && (at[n] == ' ' || !at[n]))
            return true;
    }
    return false;
}

// Who answers for the memory of a frame is the pin that made it.
static bool is_owner(const struct leak *leak, const char *kind,
                     const char *owner)
{
    if (leak->res == STK_RES_FRAME && strcmp(kind, "HOST") == 0)
        return strcmp(owner, "source.output") == 0;
    return strcmp(owner, "leaker") == 0;
}

// With `sites`: the kind that was leaked is there, with owner and site, and
// nothing else is but what comes with it.
static void check_report(const struct run *r, const struct leak *leak,
                         bool sites)
{
    json_t *report, *entry;
    size_t i;
    bool found = false;
    json_t *list = report_leaks(r, &report);
    json_array_foreach (list, i, entry) {
        const char *kind = text_of(entry, "type");
        const char *owner = text_of(entry, "owner");
        const bool wanted = strcmp(kind, stk_res_name(leak->res)) == 0;
        if (!wanted && !has_word(leak->extra, kind))
            fail_msg("%s: %s of %s leaked", leak->cls.name, kind, owner);
        found |= wanted;
        if (sites) {
            if (!is_owner(leak, kind, owner) || !*text_of(entry, "site"))
                fail_msg("%s: %s of \"%s\" at \"%s\"", leak->cls.name, kind,
                         owner, text_of(entry, "site"));
        }
    }
    if (!found)
        fail_msg("%s: no %s in the report", leak->cls.name,
                 stk_res_name(leak->res));
    json_decref(report);
}

static void leak_once(const struct leak *leak, bool detect)
{
    static const struct pen_log log = { count_warnings, NULL, PEN_LOG_WARN };
    char text[512];
    snprintf(text, sizeof(text),
             "{ \"modules\": { \"source\": { \"type\": \"TSource\" }, "
             "\"leaker\": { \"type\": \"%s\" } }, \"connections\": [ "
             "{ \"from\": \"source\", \"to\": \"leaker\" } ] }",
             leak->cls.name);
    struct run r;
    run_init(&r);
    RUN_OK(pen_registry_add(r.registry, &leak->cls, &err));
    r.params.leaks_fatal = r.params.leak_sites = detect;
    r.params.log = &log;
    loot = (struct loot){ .fd = -1, .memfd = -1 };
    warnings = 0;

    if (detect) {
        const struct pen_error err = run_to_error(&r, text);
        assert_int_equal(err.status, PEN_E_LEAK);
        assert_true(is_owner(leak, "HOST", err.where) ||
                    is_owner(leak, "", err.where));
        assert_non_null(strstr(err.text, "not released"));
    } else {
        run_all(&r, text);
        assert_int_equal(warnings, 1);
    }
    assert_true(loot.taken);
    assert_true(stats_of(&r).leaks > 0);
    check_report(&r, leak, detect);

    give_back();
    pen_pipeline_destroy(&r.p);
    run_finish(&r);
}

static void all_leaks(void)
{
    for (unsigned i = 0; i < LEAK_COUNT; i++) {
        if (!possible(&leaks[i]))
            continue;
        leak_once(&leaks[i], true);
        leak_once(&leaks[i], false);
    }
}

PEN_TEST(each_kind_is_caught_with_owner_and_site_and_else_a_warning)
{
    in_all_modes(all_leaks);
}

// --- what a frame gives out -------------------------------------------------

static enum pen_status keep_descriptor(struct pen_module *m,
                                       const struct pen_io *io,
                                       struct pen_error *err)
{
    (void)m;
    if (loot.taken)
        return PEN_OK;
    loot.taken = true;
    return pen_frame_dmabuf(pen_input(io, 0), &loot.dmabuf, err);
}

static const struct pen_pin dmabuf_input[] = {
    { .name = "input",
      .help = "A picture.",
      .kinds = PEN_KIND_BIT(PEN_KIND_RAW_IMAGE),
      .mem = PEN_MEM_BIT(PEN_MEM_DMABUF),
      .formats = PEN_FMT_BIT(PEN_FMT_MONO) },
    { 0 },
};
static const struct pen_module_class keeper = {
    .abi = PEN_MODULE_ABI,
    .size = sizeof(struct pen_module_class),
    .name = "KeepDescriptor",
    .version = "1.0",
    .summary = "Leaks.",
    .category = PEN_CATEGORY_SINK,
    .inputs = dmabuf_input,
    .ops = { .process = keep_descriptor },
};

static void descriptor(void)
{
    struct run r;
    run_init(&r);
    RUN_OK(pen_registry_add(r.registry, &keeper, &err));
    loot = (struct loot){ .fd = -1, .memfd = -1 };
    const struct pen_error err = run_to_error(
        &r,
        PIPE(MODULE("source", "TSource") "," MODULE("leaker", "KeepDescriptor"),
             LINK("source", "leaker")));
    assert_int_equal(err.status, PEN_E_LEAK);

    json_t *report, *entry;
    size_t i;
    unsigned files = 0, frames = 0;
    json_t *list = report_leaks(&r, &report);
    json_array_foreach (list, i, entry) {
        if (strcmp(text_of(entry, "owner"), "leaker") != 0)
            continue;
        files += strcmp(text_of(entry, "type"), "file") == 0;
        frames += strcmp(text_of(entry, "type"), "frame") == 0;
    }
    json_decref(report);
    assert_int_equal(files, 1);
    assert_int_equal(frames, 1);

    // It is still a descriptor of the frame's memory.
    assert_true(loot.dmabuf.fd >= 0);
    assert_int_equal(lseek(loot.dmabuf.fd, 0, SEEK_CUR), 0);
    pen_dmabuf_close(&loot.dmabuf);
    pen_pipeline_destroy(&r.p);
    run_finish(&r);
}

PEN_TEST(a_descriptor_that_is_kept_is_told_with_who_took_it)
{
    static const struct leak host = { .res = STK_RES_DMABUF };
    if (!possible(&host))
        PEN_SKIP("no DMABUFs of host memory on this machine");
    in_all_modes(descriptor);
}

// After all of them a pipeline that leaks nothing runs as ever.
PEN_TEST(a_leak_spoils_no_later_run)
{
    leak_once(&leaks[0], true);
    struct run r;
    run_init(&r);
    run_all(&r, PIPE(MODULE("source", "TSource") "," MODULE("sink", "TSink"),
                     LINK("source", "sink")));
    assert_all_arrived(0, 10);
    assert_int_equal(stats_of(&r).leaks, 0);
    run_finish(&r);
}

PEN_TEST_MAIN(
    PEN_CASE(there_is_a_leaking_class_for_each_kind_of_entry),
    PEN_CASE(each_kind_is_caught_with_owner_and_site_and_else_a_warning),
    PEN_CASE(a_descriptor_that_is_kept_is_told_with_who_took_it),
    PEN_CASE(a_leak_spoils_no_later_run))
