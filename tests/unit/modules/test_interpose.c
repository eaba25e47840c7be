// The report's numbers of allocations against those of somebody else: this
// program defines malloc and its kin, for itself and every library, and tells
// by the return address who called. The driver's calls are counted by the
// emulator.
//
// A class of the test stands in the middle of each pipeline: frames FROM and TO
// of it open and close the window in which nothing may be allocated.

#include <dlfcn.h>
#include <errno.h>
#include <execinfo.h>
#include <link.h>
#include <stdatomic.h>
#include <stdio.h>
#include <unistd.h>

#include <png.h>

#include <penstock/penstock.h>

#include "emu/emu_control.h"

#include "pen_test.h"
#include "pictures.h"

enum { FRAMES = 100, FROM = 30, TO = 70 };

// --- who called -------------------------------------------------------------

// SERVANT: who allocates for others.
enum who { OURS, CODEC, SERVANT, OTHER, WHO_COUNT };

struct range {
    uintptr_t start, end;
    enum who who;
};
static struct range ranges[256];
static unsigned range_count;

static enum who who_is(const char *path)
{
    static const struct {
        const char *name;
        enum who who;
    } names[] = {
        { "libpenstock.so", OURS }, { "libjpeg.so", CODEC },
        { "libpng", CODEC },        { "libz.so", CODEC },
        { "libc.so", SERVANT },     { "libjansson.so", SERVANT },
    };
    const char *name = strrchr(path, '/');
    name = name ? name + 1 : path;
    for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++) {
        if (strncmp(name, names[i].name, strlen(names[i].name)) == 0)
            return names[i].who;
    }
    return OTHER;
}

static int add_ranges(struct dl_phdr_info *info, size_t size, void *cookie)
{
    (void)size;
    (void)cookie;
    for (unsigned i = 0; i < info->dlpi_phnum; i++) {
        const ElfW(Phdr) *p = &info->dlpi_phdr[i];
        if (p->p_type != PT_LOAD || !(p->p_flags & PF_X))
            continue;
        assert_true(range_count < sizeof(ranges) / sizeof(ranges[0]));
        const uintptr_t start = info->dlpi_addr + p->p_vaddr;
        ranges[range_count++] =
            (struct range){ start, start + p->p_memsz,
                            who_is(info->dlpi_name ? info->dlpi_name : "") };
    }
    return 0;
}

static enum who owner_of(const void *address)
{
    const uintptr_t a = (uintptr_t)address;
    for (unsigned i = 0; i < range_count; i++) {
        if (a >= ranges[i].start && a < ranges[i].end)
            return ranges[i].who;
    }
    return OTHER;
}

// --- counting ---------------------------------------------------------------

static _Atomic bool counting, window;
static _Atomic uint64_t whole[WHO_COUNT], inside[WHO_COUNT];
static _Thread_local bool busy;

// What stood on the stack at the first call of ours in the window.
static void *first_stack[16];
static _Atomic int first_depth;

// Who is behind a call: the libc asks for others (fopen), and libpng asks by
// way of a function of ours.
static enum who behind(void *const *stack, int depth)
{
    int i = 0;
    while (i < depth && owner_of(stack[i]) == SERVANT)
        i++;
    if (i == depth)
        return SERVANT;
    const enum who who = owner_of(stack[i]);
    if (who == OURS && i + 1 < depth && owner_of(stack[i + 1]) == CODEC)
        return CODEC;
    return who;
}

__attribute__((noinline)) static void count_call(void)
{
    if (!atomic_load_explicit(&counting, memory_order_relaxed) || busy)
        return;
    busy = true;
    void *stack[16];
    // Without this function and the one that was called.
    const int depth = backtrace(stack, 16) - 2;
    const enum who who = behind(stack + 2, depth < 0 ? 0 : depth);
    atomic_fetch_add(&whole[who], 1);
    if (atomic_load(&window)) {
        atomic_fetch_add(&inside[who], 1);
        int none = 0;
        if (who == OURS &&
            atomic_compare_exchange_strong(&first_depth, &none, depth))
            memcpy(first_stack, stack + 2, sizeof(void *) * (size_t)depth);
    }
    busy = false;
}

// glibc's own names for what is replaced here.
void *__libc_malloc(size_t bytes);
void *__libc_calloc(size_t count, size_t bytes);
void *__libc_realloc(void *memory, size_t bytes);
void *__libc_memalign(size_t align, size_t bytes);

#define REPLACED __attribute__((visibility("default"), noinline))

REPLACED void *malloc(size_t bytes)
{
    count_call();
    return __libc_malloc(bytes);
}

REPLACED void *calloc(size_t count, size_t bytes)
{
    count_call();
    return __libc_calloc(count, bytes);
}

REPLACED void *realloc(void *memory, size_t bytes)
{
    count_call();
    return __libc_realloc(memory, bytes);
}

REPLACED void *aligned_alloc(size_t align, size_t bytes)
{
    count_call();
    return __libc_memalign(align, bytes);
}

REPLACED int posix_memalign(void **out, size_t align, size_t bytes)
{
    count_call();
    *out = __libc_memalign(align, bytes);
    return *out ? 0 : ENOMEM;
}

// --- the driver -------------------------------------------------------------

static const char *const driver_allocates[] = {
    "cuMemAlloc",
    "cuMemHostAlloc",
    "cuMemHostRegister",
    "cuMemCreate",
    "cuMemAddressReserve",
    "cuMemMap",
    "cuStreamCreate",
    "cuEventCreate",
    "cuModuleLoadData",
    "cuImportExternalMemory",
    "cuMemGetHandleForAddressRange",
};
enum { CALLS = sizeof(driver_allocates) / sizeof(driver_allocates[0]) };

static const struct penemu *emulator(void)
{
    static struct penemu controls;
    static bool loaded;
    if (pen_test_on_gpu())
        return NULL;
    if (!loaded) {
        void *library = dlopen(pen_test_emulator(), RTLD_NOW);
        assert_non_null(library);
        loaded = penemu_load(&controls, library, dlsym);
        assert_true(loaded);
    }
    return &controls;
}

static uint64_t driver_before, driver_inside;

static uint64_t driver_calls(void)
{
    const struct penemu *emu = emulator();
    uint64_t calls = 0;
    for (unsigned i = 0; emu && i < CALLS; i++)
        calls += emu->penemu_calls(driver_allocates[i]);
    return calls;
}

// --- the class in the middle ------------------------------------------------

struct params {
    int32_t host, device;  // frames that allocate, from FROM + 1 on
};

// clang-format off
static const struct pen_prop props[] = {
    PEN_I32(struct params, host, "host", 0, 0, 20, "Frames that allocate."),
    PEN_I32(struct params, device, "device", 0, 0, 20, "Frames that allocate."),
    PEN_PROPS_END,
};
// clang-format on

struct state {
    void *host[32];
    uint64_t device[32];
    unsigned hosts, devices;
};

static enum pen_status allocate(struct pen_module *m, uint64_t frame,
                                struct pen_error *err)
{
    const struct params *p = pen_module_params(m);
    struct state *st = pen_module_state(m);
    if (frame <= FROM)
        return PEN_OK;
    if (frame <= FROM + (uint64_t)p->host)
        PEN_TRY(pen_module_alloc(m, 1000, &st->host[st->hosts++], err));
    if (frame <= FROM + (uint64_t)p->device)
        PEN_TRY(
            pen_module_alloc_device(m, 1000, &st->device[st->devices++], err));
    return PEN_OK;
}

static enum pen_status process(struct pen_module *m, const struct pen_io *io,
                               struct pen_error *err)
{
    const uint64_t frame = pen_io_index(io);
    if (frame == FROM) {
        driver_before = driver_calls();
        atomic_store(&window, true);
    }
    if (frame == TO) {
        atomic_store(&window, false);
        driver_inside = driver_calls() - driver_before;
    }
    PEN_TRY(allocate(m, frame, err));
    pen_forward(io, 0, 0);
    return PEN_OK;
}

static void close_module(struct pen_module *m)
{
    struct state *st = pen_module_state(m);
    while (st->hosts)
        pen_module_free(m, st->host[--st->hosts]);
    while (st->devices)
        pen_module_free_device(m, st->device[--st->devices]);
}

#define METER(NAME, FLAGS, MEM)                                                \
    {                                                                          \
        .abi = PEN_MODULE_ABI, .size = sizeof(struct pen_module_class),        \
        .name = NAME, .version = "1.0", .summary = "Opens the window.",        \
        .category = PEN_CATEGORY_UTILITY, .flags = PEN_CLASS_FORWARDS | FLAGS, \
        .inputs = (const struct pen_pin[]){ PIN("input", MEM), { 0 } },        \
        .outputs = (const struct pen_pin[]){ PIN("output", MEM), { 0 } },      \
        .props = props, .params_size = sizeof(struct params),                  \
        .state_size = sizeof(struct state), .ops = {                           \
            .process = process,                                                \
            .close = close_module                                              \
        }                                                                      \
    }
#define PIN(NAME, MEM)                                                         \
    {                                                                          \
        .name = NAME, .help = "Anything.",                                     \
        .kinds = PEN_KIND_BIT(PEN_KIND_RAW_IMAGE) |                            \
                 PEN_KIND_BIT(PEN_KIND_ENCODED_IMAGE),                         \
        .mem = MEM, .formats = PEN_FMT_BITS_ALL11                              \
    }
static const struct pen_module_class meters[] = {
    METER("TMeter", 0, PEN_MEM_BITS_HOST),
    METER("TMeterCuda", PEN_CLASS_CUDA, PEN_MEM_BIT(PEN_MEM_CUDA_DEVICE)),
};

// --- runs -------------------------------------------------------------------

static void assert_ok(enum pen_status status, const struct pen_error *err)
{
    if (status != PEN_OK)
        fail_msg("%s: %s: %s", pen_status_name(status), err->where, err->text);
}

static void reset(void)
{
    for (unsigned i = 0; i < WHO_COUNT; i++) {
        atomic_store(&whole[i], 0);
        atomic_store(&inside[i], 0);
    }
    atomic_store(&window, false);
    atomic_store(&first_depth, 0);
    driver_before = driver_inside = UINT64_MAX;
}

// `text` with ' for ".
static bool keep_sites = true;
static struct pen_stats run(const char *format, ...)
{
    char text[4096];
    va_list args;
    va_start(args, format);
    vsnprintf(text, sizeof(text), format, args);
    va_end(args);
    for (char *c = text; *c; c++)
        *c = *c == '\'' ? '"' : *c;

    struct pen_error err = { 0 };
    struct pen_registry *registry = NULL;
    struct pen_description *desc = NULL;
    struct pen_pipeline *p = NULL;
    struct pen_issues *issues = pen_issues_create();
    const struct pen_pipeline_params params = {
        .device = { .selector = pen_test_device(),
                    .emulator = pen_test_emulator() },
        .workers = 2,
        .frames = FRAMES,
        .leaks_fatal = true,
        .leak_sites = keep_sites,
    };
    assert_ok(pen_registry_create(&registry, &err), &err);
    for (unsigned i = 0; i < sizeof(meters) / sizeof(meters[0]); i++)
        assert_ok(pen_registry_add(registry, &meters[i], &err), &err);
    assert_ok(pen_description_parse(text, strlen(text), "test.json", &desc,
                                    issues, &err),
              &err);
    assert_ok(pen_pipeline_create(desc, registry, &params, &p, issues, &err),
              &err);

    reset();
    range_count = 0;
    dl_iterate_phdr(add_ranges, NULL);
    atomic_store(&counting, true);
    assert_ok(pen_pipeline_start(p, &err), &err);
    assert_ok(pen_pipeline_wait(p, INT64_C(60000000000), &err), &err);
    atomic_store(&counting, false);

    struct pen_stats stats;
    pen_pipeline_stats(p, &stats);
    assert_int_equal(stats.frames, FRAMES);
    assert_int_not_equal(driver_inside, UINT64_MAX);  // the window was closed
    pen_pipeline_destroy(&p);
    pen_description_destroy(&desc);
    pen_registry_destroy(&registry);
    pen_issues_destroy(&issues);
    return stats;
}

// The test fails, with the stack, if we allocated in the window.
static void assert_nothing_of_ours(void)
{
    if (!atomic_load(&inside[OURS]))
        return;
    char **names = backtrace_symbols(first_stack, atomic_load(&first_depth));
    for (int i = 0; names && i < atomic_load(&first_depth); i++)
        print_message("# %s\n", names[i]);
    free(names);
    fail_msg("libpenstock allocated %u times",
             (unsigned)atomic_load(&inside[OURS]));
}

static void in_all_modes(void (*body)(void))
{
    const struct penemu *emu = emulator();
    static const enum penemu_mode modes[] = { PENEMU_LAZY, PENEMU_EAGER,
                                              PENEMU_RANDOM };
    for (unsigned i = 0; i < (emu ? 3 : 1); i++) {
        if (emu) {
            emu->penemu_reset();
            emu->penemu_set_mode(modes[i], 11 + i);
        }
        body();
    }
    if (emu)
        emu->penemu_reset();
}

// --- that the measure measures ----------------------------------------------

PEN_TEST(each_way_to_allocate_is_seen)
{
    reset();
    range_count = 0;
    dl_iterate_phdr(add_ranges, NULL);
    atomic_store(&counting, true);
    atomic_store(&window, true);
    void *volatile kept[6] = { malloc(10), calloc(2, 5), realloc(NULL, 10),
                               aligned_alloc(64, 64) };
    void *memory = NULL;
    assert_int_equal(posix_memalign(&memory, 64, 64), 0);
    kept[4] = memory;
    kept[5] = strdup("by way of the libc");
    struct pen_registry *registry = NULL;
    const enum pen_status status = pen_registry_create(&registry, NULL);
    png_structp png =
        png_create_read_struct(PNG_LIBPNG_VER_STRING, NULL, NULL, NULL);
    atomic_store(&counting, false);

    for (unsigned i = 0; i < 6; i++)
        free(kept[i]);
    png_destroy_read_struct(&png, NULL, NULL);
    pen_registry_destroy(&registry);
    assert_int_equal(status, PEN_OK);
    assert_int_equal(atomic_load(&inside[OTHER]), 6);
    assert_true(atomic_load(&inside[OURS]) > 0);
    assert_true(atomic_load(&inside[CODEC]) > 0);
    assert_int_equal(atomic_load(&inside[SERVANT]), 0);
}

static const char *const generated =
    "{ 'modules': { 'src': { 'type': 'TestSignalGenerator', 'props': "
    "{ 'width': 64, 'height': 48 } }, 'blur': { 'type': 'GaussianBlur', "
    "'props': { 'kernelSize': 5 } }, 'meter': { 'type': '%s', 'props': "
    "{ 'host': %d, 'device': %d } }, 'sink': { 'type': 'StatSink' } }, "
    "'connections': [ { 'from': 'src', 'to': 'blur' }, { 'from': 'blur', "
    "'to': 'meter' }, { 'from': 'meter', 'to': 'sink' } ] }";

static void host_frames(void)
{
    // Without the names, for which the ledger itself allocates now and then.
    keep_sites = false;
    const struct pen_stats s = run(generated, "TMeter", 9, 0);
    keep_sites = true;
    assert_int_equal(s.steady_state_allocations, 9);
    assert_int_equal(atomic_load(&inside[OURS]), 9);
    assert_int_equal(driver_inside, 0);
}

PEN_TEST(what_a_module_allocates_is_the_same_in_both_counts)
{
    in_all_modes(host_frames);
}

static void device_frames(void)
{
    const struct pen_stats s = run(generated, "TMeterCuda", 0, 7);
    assert_int_equal(s.steady_state_allocations, 7);
    if (emulator())
        assert_int_equal(driver_inside, 7);
}

PEN_TEST(what_a_module_allocates_on_the_device_is_what_the_driver_saw)
{
    in_all_modes(device_frames);
}

// --- the steady state -------------------------------------------------------

static void steady(void)
{
    const struct pen_stats s = run(generated, "TMeter", 0, 0);
    assert_nothing_of_ours();
    assert_int_equal(s.steady_state_allocations, 0);
    assert_int_equal(s.library_allocations, 0);
    assert_int_equal(driver_inside, 0);
    assert_int_equal(atomic_load(&whole[CODEC]), 0);
    // There was something to count before.
    assert_true(atomic_load(&whole[OURS]) > 0);
    if (emulator())
        assert_true(driver_before > 0);
}

PEN_TEST(a_generated_picture_is_blurred_without_an_allocation)
{
    in_all_modes(steady);
}

static void converted(void)
{
    const struct pen_stats s = run(
        "{ 'modules': { 'src': { 'type': 'TestSignalGenerator', 'props': "
        "{ 'width': 64, 'height': 48, 'memType': 'DMABUF' } }, 'half': { "
        "'type': 'ResizeNPPI', 'props': { 'width': 32, 'height': 24 } }, "
        "'small': { 'type': 'ImageResizeCV', 'props': { 'width': 20, 'height': "
        "20 } }, 'blur': { 'type': 'GaussianBlurCV', 'props': { 'kernelSize': "
        "3 } }, 'meter': { 'type': 'TMeter' }, 'sink': { 'type': 'StatSink' } "
        "}, 'connections': [ { 'from': 'src', 'to': 'half' }, { 'from': 'half',"
        " 'to': 'small' }, { 'from': 'small', 'to': 'blur' }, { 'from': 'blur',"
        " 'to': 'meter' }, { 'from': 'meter', 'to': 'sink' } ] }");
    assert_nothing_of_ours();
    assert_int_equal(s.steady_state_allocations, 0);
    assert_int_equal(driver_inside, 0);
}

PEN_TEST(resizes_transfers_and_conversions_allocate_nothing)
{
    if (pen_test_on_gpu())
        PEN_SKIP("a machine with a GPU may have no DMABUFs of host memory");
    in_all_modes(converted);
}

// A folder of FRAMES equal pictures.
static const char *make_folder(bool jpeg)
{
    enum { W = 64, H = 48 };
    const char *folder = pen_test_folder();
    uint8_t samples[W * H * 3];
    uint64_t seed = 5;
    for (size_t i = 0; i < sizeof(samples); i++)
        samples[i] = (uint8_t)pen_test_random(&seed);
    struct bytes b =
        jpeg ? jpeg_make(samples, W, H, &(struct jpeg_options){ 0 })
             : png_make(samples, W, H,
                        &(struct png_options){ PNG_COLOR_TYPE_RGB, 8 });
    for (unsigned i = 0; i < FRAMES; i++) {
        char path[512];
        snprintf(path, sizeof(path), "%s/%04u.%s", folder, i,
                 jpeg ? "jpg" : "png");
        pen_test_write_file(path, b.data, b.length);
    }
    bytes_free(&b);
    return folder;
}

static const char *const photos =
    "{ 'modules': { 'reader': { 'type': 'FileReaderModule', 'props': "
    "{ 'strFullFileNameWithPattern': '%s/*.%s' } }, 'dec': { 'type': "
    "'ImageDecoderCV' }, 'blur': { 'type': 'GaussianBlur', 'props': "
    "{ 'kernelSize': 5 } }, 'enc': { 'type': 'ImageEncoderCV', 'props': "
    "{ 'format': '%s' } }, 'meter': { 'type': 'TMeter' }, 'writer': { 'type': "
    "'FileWriterModule', 'props': { 'strFullFileNameWithPattern': "
    "'%s/????.%s' } } }, 'connections': [ { 'from': 'reader', 'to': 'dec' }, "
    "{ 'from': 'dec', 'to': 'blur' }, { 'from': 'blur', 'to': 'enc' }, "
    "{ 'from': 'enc', 'to': 'meter' }, { 'from': 'meter', 'to': 'writer' } ] }";

static void photo_folder(bool jpeg)
{
    const char *kind = jpeg ? "jpg" : "png";
    const struct pen_stats s =
        run(photos, make_folder(jpeg), kind, jpeg ? "jpeg" : "png",
            pen_test_folder(), kind);
    assert_nothing_of_ours();
    assert_int_equal(s.steady_state_allocations, 0);
    assert_int_equal(driver_inside, 0);
    // The libraries start anew with every picture.
    assert_true(atomic_load(&inside[CODEC]) > 0);
    assert_true(s.library_allocations > 0);
}

static void jpegs(void)
{
    photo_folder(true);
}

static void pngs(void)
{
    photo_folder(false);
}

PEN_TEST(a_folder_of_jpegs_allocates_in_the_library_only)
{
    in_all_modes(jpegs);
}

PEN_TEST(a_folder_of_pngs_allocates_in_the_library_only)
{
    in_all_modes(pngs);
}

PEN_TEST(what_libpng_allocates_is_the_same_in_both_counts)
{
    const struct pen_stats s =
        run("{ 'modules': { 'reader': { 'type': 'FileReaderModule', 'props': "
            "{ 'strFullFileNameWithPattern': '%s/*.png' } }, 'dec': { 'type': "
            "'ImageDecoderCV' }, 'meter': { 'type': 'TMeter' }, 'sink': "
            "{ 'type': 'StatSink' } }, 'connections': [ { 'from': 'reader', "
            "'to': 'dec' }, { 'from': 'dec', 'to': 'meter' }, { 'from': "
            "'meter', 'to': 'sink' } ] }",
            make_folder(false));
    assert_nothing_of_ours();
    // Equal pictures: as much for each, and the report leaves the first out.
    const uint64_t all = atomic_load(&whole[CODEC]), each = all / FRAMES;
    assert_true(each > 0);
    assert_int_equal(all, each * FRAMES);
    assert_int_equal(s.library_allocations % each, 0);
    const uint64_t frames = s.library_allocations / each;
    assert_true(frames < FRAMES && frames >= FRAMES - FROM);
}

int main(int argc, char **argv)
{
    // The first backtrace loads a library.
    void *stack[4];
    backtrace(stack, 4);
    const struct CMUnitTest tests[] = {
        PEN_CASE(each_way_to_allocate_is_seen),
        PEN_CASE(what_a_module_allocates_is_the_same_in_both_counts),
        PEN_CASE(what_a_module_allocates_on_the_device_is_what_the_driver_saw),
        PEN_CASE(a_generated_picture_is_blurred_without_an_allocation),
        PEN_CASE(resizes_transfers_and_conversions_allocate_nothing),
        PEN_CASE(a_folder_of_jpegs_allocates_in_the_library_only),
        PEN_CASE(a_folder_of_pngs_allocates_in_the_library_only),
        PEN_CASE(what_libpng_allocates_is_the_same_in_both_counts),
    };
    return pen_test_run(argc, argv, tests, sizeof(tests) / sizeof(tests[0]));
}
