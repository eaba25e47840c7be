// The plan's peaks are those of the run: pipelines of built-in modules, each
// with another bottleneck, hold nearly as much memory as was planned and never
// more, and no pool has more blocks than can be in use.
//
// Any built-in module can be made the slow one: it does not begin a frame
// before the test lets it, or, as a slow kernel, queues a gate on the stream
// that the test opens. The test does so when all pools before it are full, so
// nothing depends on time.

#include "run_world.h"

#include <stdio.h>
#include <time.h>

#include "src/graph/graph.h"
#include "src/modules/modules.h"
#include "src/run/run.h"

// --- slow modules -----------------------------------------------------------

enum { MOST_CLASSES = 32, MOST_IMAGES = 4 };

static const struct pen_module_class *const real[] = {
#define X(name) &stk_class_##name,
    STK_MODULES(X)
#undef X
};
enum { CLASSES = sizeof(real) / sizeof(real[0]) };
static struct pen_module_class slow[CLASSES];
static const struct pen_kernel_image *images[CLASSES][MOST_IMAGES];

enum how { ON_HOST, ON_STREAM };

static struct {
    const char *id;  // of the slow module; NULL: none
    enum how how;
    sem_t frames;       // that it may take
    struct gate *gate;  // on the stream
} brake;

static enum pen_status slow_process(struct pen_module *m,
                                    const struct pen_io *io,
                                    struct pen_error *err)
{
    const struct pen_module_class *cls = real[m->cls - slow];
    const bool here = brake.id && strcmp(brake.id, pen_module_id(m)) == 0;
    if (here && brake.how == ON_HOST) {
        while (sem_wait(&brake.frames))
            ;
    } else if (here) {
        const struct pen_grid grid = { 1, 1, 1, 1, 1 };
        const uint64_t flag = (uintptr_t)brake.gate->flag;
        PEN_TRY(pen_launch(io, &fixture_image, FIXTURE_GATE, &grid, &flag,
                           sizeof(flag), err));
    }
    return cls->ops.process ? cls->ops.process(m, io, err) : PEN_OK;
}

static void add_classes(struct pen_registry *registry)
{
    for (unsigned i = 0; i < CLASSES; i++) {
        slow[i] = *real[i];
        slow[i].ops.process = slow_process;
        if (real[i]->flags & PEN_CLASS_CUDA) {
            unsigned n = 0;
            for (; real[i]->kernels && real[i]->kernels[n]; n++)
                images[i][n] = real[i]->kernels[n];
            assert_true(n + 1 < MOST_IMAGES);
            images[i][n] = &fixture_image;
            slow[i].kernels = images[i];
        }
        RUN_OK(pen_registry_add(registry, &slow[i], &err));
    }
}

// --- what is looked at ------------------------------------------------------

// The runs are all of this many frames: more than any of them can hold.
enum { FRAMES = 60 };

static const char *folder;  // of the files

struct bottleneck {
    const char *name;
    const char *settings;         // members of the object
    const char *modules, *links;  // with ' for "
    const char *slow;             // module
    enum how how;
    bool one_by_one;          // a frame only when the one before is through
    const char *never_waits;  // module in front of a queue that drops
    bool dmabuf;              // made of host memory
    bool staged;              // uploads are, to keep a budget
    bool grows;               // frames become larger, and the plan with them
};

static bool is_module(const struct pen_module *m, const char *id)
{
    return strcmp(m->id, id) == 0;
}

// Marks the modules whose frames get to module `id`.
static void mark_before(const struct pen_pipeline *p, const char *id,
                        bool *before)
{
    bool *leads = calloc(p->module_count, sizeof(*leads));
    assert_non_null(leads);
    bool found = false;
    for (uint32_t n = p->module_count; n-- > 0;) {
        for (uint32_t i = 0; i < p->link_count; i++) {
            const struct stk_link *link = &p->links[i];
            if (link->from == &p->modules[n] && leads[link->to->number])
                before[n] = true;
        }
        leads[n] = before[n] || is_module(&p->modules[n], id);
        found = found || is_module(&p->modules[n], id);
    }
    free(leads);
    assert_true(found);
}

// Blocks that are in use only while the device reads what the host wrote.
static uint32_t in_flight(const struct pen_pipeline *p, uint32_t n, unsigned o)
{
    const struct stk_plan_output *out = &p->plan->nodes[n].output[o];
    bool device = false;
    for (uint32_t i = 0; i < p->modules[n].out[o].link_count; i++)
        device = device || p->modules[n].out[o].links[i]->to->cuda;
    const bool written = out->mem == PEN_MEM_HOST_PINNED ||
                         (out->mem == PEN_MEM_DMABUF && !p->modules[n].cuda);
    const bool staged = p->plan->nodes[n].staged;
    return device && written && !staged && !p->modules[n].out[o].streamed
               ? STK_STAGING_BLOCKS
               : 0;
}

// Whether a pool before the slow module has blocks that were never in use,
// other than one. What a slow kernel fills are the pools that the device reads:
// the runtime queues only so much ahead on the stream.
static bool has_room_left(struct pen_pipeline *p, const bool *before,
                          enum how how, char *text, size_t size)
{
    bool left = false;
    pthread_mutex_lock(&p->plan_lock);
    for (uint32_t n = 0; n < p->module_count && !left; n++) {
        for (unsigned o = 0; o < p->modules[n].outputs && !left; o++) {
            const struct stk_plan_output *out = &p->plan->nodes[n].output[o];
            struct stk_pool *pool = p->modules[n].out[o].made;
            const uint32_t late = in_flight(p, n, o);
            if (!before[n] || !out->blocks || (how == ON_STREAM && !late))
                continue;
            struct stk_pool_stats s = { 0 };
            if (pool)
                stk_pool_stats(pool, &s);
            const uint32_t spare = 1 + (how == ON_HOST ? late : 0);
            left = s.max_in_use + spare < out->blocks;
            if (left)
                snprintf(text, size, "%s.%u: %u of %u", p->modules[n].id, o,
                         s.max_in_use, out->blocks);
        }
    }
    pthread_mutex_unlock(&p->plan_lock);
    return left;
}

static void wait_until_full(struct pen_pipeline *p, const char *id,
                            enum how how)
{
    char text[256] = "";
    bool *before = calloc(p->module_count, sizeof(*before));
    assert_non_null(before);
    mark_before(p, id, before);
    for (unsigned i = 0; i < 20000; i++) {
        if (!has_room_left(p, before, how, text, sizeof(text))) {
            free(before);
            return;
        }
        nanosleep(&(struct timespec){ .tv_nsec = 1000000 }, NULL);
    }
    free(before);
    fail_msg("a pool is larger than can be used: %s", text);
}

static void wait_for_sinks(const struct pen_pipeline *p, uint64_t frames)
{
    for (unsigned i = 0; i < 20000; i++) {
        if (atomic_load(&p->sink_frames) >= frames)
            return;
        nanosleep(&(struct timespec){ .tv_nsec = 1000000 }, NULL);
    }
    fail_msg("%llu of %llu frames arrive",
             (unsigned long long)atomic_load(&p->sink_frames),
             (unsigned long long)frames);
}

// Whatever comes behind it, it has done all frames in the end.
static void wait_for_module(const struct pen_pipeline *p, const char *id)
{
    const struct pen_module *m = p->modules;
    while (!is_module(m, id))
        m++;
    for (unsigned i = 0; i < 20000; i++) {
        if (atomic_load(&m->frames) == FRAMES)
            return;
        nanosleep(&(struct timespec){ .tv_nsec = 1000000 }, NULL);
    }
    fail_msg("%s was held back by a queue that drops", id);
}

// A producer whose consumers have room finds a block: none was ever missing.
// Of those that the device reads one may be.
static void none_was_missing(struct pen_pipeline *p)
{
    pthread_mutex_lock(&p->plan_lock);
    for (uint32_t n = 0; n < p->module_count; n++) {
        for (unsigned o = 0; o < p->modules[n].outputs; o++) {
            struct stk_pool *pool = p->modules[n].out[o].made;
            struct stk_pool_stats s;
            if (!pool || in_flight(p, n, o) || p->plan->nodes[n].staged)
                continue;
            stk_pool_stats(pool, &s);
            if (s.waits)
                print_message("%s.%u was empty\n", p->modules[n].id, o);
            assert_int_equal(s.waits, 0);
        }
    }
    pthread_mutex_unlock(&p->plan_lock);
}

static void compare_memory(const struct run *r, const struct bottleneck *b)
{
    const struct pen_stats s = stats_of(r);
    for (unsigned m = PEN_MEM_HOST; m < PEN_MEM_COUNT; m++) {
        const uint64_t planned = s.memory[m].planned_peak;
        const uint64_t peak = s.memory[m].peak;
        // Blocks that grow do so when a frame needs it: how many of the old
        // size are left at the end is a matter of time.
        const bool missed = peak < planned - planned / 10 && !b->grows;
        if (peak > planned || missed)
            fail_msg("%s: of %s %llu bytes were planned, the peak was %llu",
                     b->name, pen_mem_name((enum pen_mem_type)m),
                     (unsigned long long)planned, (unsigned long long)peak);
        assert_true(s.memory[m].used <= peak);
        assert_true(s.memory[m].used > 0 || peak == 0);
    }
    if (!b->grows)
        assert_int_equal(s.steady_state_allocations, 0);
}

// --- one run ----------------------------------------------------------------

// As a pipeline file, with " for ' and the folder of the files for @.
static void file_of(const struct bottleneck *b, struct stk_text *t)
{
    char text[4096];
    snprintf(text, sizeof(text),
             "{ 'settings': { %s }, 'modules': { %s }, 'connections': [ %s ] }",
             b->settings ? b->settings : "", b->modules, b->links);
    for (const char *c = text; *c; c++) {
        if (*c == '@')
            stk_text_add(t, folder);
        else
            stk_text_addf(t, "%c", *c == '\'' ? '"' : *c);
    }
}

// A pipeline of these modules, made but not started.
static void make(struct run *r, const struct bottleneck *b)
{
    struct stk_text t = { 0 };
    run_init(r);
    pen_registry_destroy(&r->registry);
    RUN_OK(stk_registry_new(&r->registry, &err));
    add_classes(r->registry);
    // Slow modules keep a worker busy.
    r->params.workers = 3;
    r->params.frames = FRAMES;
    r->params.no_probe = b->grows;
    file_of(b, &t);
    run_create(r, t.data);
    stk_text_finish(&t);
}

static bool is_staged(const struct pen_plan *plan)
{
    bool staged = false;
    for (uint32_t n = 0; n < plan->node_count; n++)
        staged = staged || plan->nodes[n].staged;
    return staged;
}

static void let_go(struct run *r, const struct bottleneck *b)
{
    if (b->never_waits)
        wait_for_module(r->p, b->never_waits);
    if (!b->one_by_one) {
        wait_until_full(r->p, b->slow, b->how);
        if (b->how == ON_STREAM)
            gate_open(brake.gate);
        for (unsigned i = 0; i < FRAMES; i++)
            sem_post(&brake.frames);
        return;
    }
    for (unsigned i = 0; i < FRAMES; i++) {
        wait_for_sinks(r->p, (uint64_t)i * r->p->sinks);
        sem_post(&brake.frames);
    }
}

static void run_slow(const struct bottleneck *b)
{
    struct run r;
    struct fixture f;
    struct gate gate;
    fixture_open(&f);
    gate_create(&f, &gate);
    brake.id = b->slow;
    brake.how = b->how;
    brake.gate = &gate;
    sem_init(&brake.frames, 0, 0);

    make(&r, b);
    assert_int_equal(is_staged(r.p->plan), b->staged);
    RUN_OK(pen_pipeline_start(r.p, &err));
    let_go(&r, b);
    if (!b->never_waits && !b->grows) {
        wait_for_sinks(r.p, (uint64_t)FRAMES * r.p->sinks);
        none_was_missing(r.p);
    }
    RUN_OK(pen_pipeline_wait(r.p, 20000000000, &err));
    compare_memory(&r, b);
    run_finish(&r);
    sem_destroy(&brake.frames);
    brake.id = NULL;
    gate_free(&f, &gate);
    fixture_close(&f);
}

// --- the pipelines ----------------------------------------------------------

#define M(ID, TYPE) "'" ID "': { 'type': '" TYPE "' }"
#define MP(ID, TYPE, PROPS)                                                    \
    "'" ID "': { 'type': '" TYPE "', 'props': { " PROPS " } }"
#define L(FROM, TO) "{ 'from': '" FROM "', 'to': '" TO "' }"
#define LQ(FROM, TO, Q)                                                        \
    "{ 'from': '" FROM "', 'to': '" TO "', 'queue': { " Q " } }"
#define SIGNAL(SIZE) MP("source", "TestSignalGenerator", SIZE)
#define READER(FILES, MORE)                                                    \
    MP("reader", "FileReaderModule",                                           \
       "'strFullFileNameWithPattern': '" FILES "'" MORE)
#define SMALL "'width': 160, 'height': 90"
#define WRITER                                                                 \
    MP("writer", "FileWriterModule",                                           \
       "'strFullFileNameWithPattern': '/dev/null', 'overwrite': true")

// clang-format off
static const struct bottleneck bottlenecks[] = {
    { .name = "a slow source",
      .modules = SIGNAL(SMALL) "," M("blur", "GaussianBlur") "," WRITER,
      .links = L("source", "blur") "," L("blur", "writer"),
      .slow = "source", .one_by_one = true },
    { .name = "a slow CPU filter at the end",
      .modules = SIGNAL(SMALL) "," M("a", "GaussianBlurCV") ","
                 M("b", "GaussianBlurCV") "," M("sink", "StatSink"),
      .links = L("source", "a") "," L("a", "b") "," L("b", "sink"),
      .slow = "b" },
    { .name = "a slow GPU kernel",
      .modules = SIGNAL(SMALL) "," M("blur", "GaussianBlur") "," WRITER,
      .links = L("source", "blur") "," L("blur", "writer"),
      .slow = "blur", .how = ON_STREAM },
    { .name = "a slow writer",
      .modules = SIGNAL(SMALL) "," M("blur", "GaussianBlur") ","
                 M("encoder", "ImageEncoderCV") "," WRITER,
      .links = L("source", "blur") "," L("blur", "encoder") ","
               L("encoder", "writer"),
      .slow = "writer" },
    { .name = "three branches, one of them slow",
      .modules = SIGNAL(SMALL) "," M("a", "GaussianBlurCV") ","
                 M("b", "GaussianBlur") "," M("c", "GaussianBlurCV") ","
                 M("x", "StatSink") "," M("y", "StatSink") ","
                 M("z", "StatSink"),
      .links = L("source", "a") "," L("source", "b") "," L("source", "c") ","
               L("a", "x") "," L("b", "y") "," L("c", "z"),
      .slow = "z" },
    { .name = "a deep queue",
      .modules = SIGNAL(SMALL) "," M("blur", "GaussianBlurCV") "," WRITER,
      .links = L("source", "blur") "," LQ("blur", "writer", "'depth': 30"),
      .slow = "writer" },
    { .name = "queues of one frame",
      .settings = "'queue_depth': 1",
      .modules = SIGNAL(SMALL) "," M("blur", "GaussianBlur") "," WRITER,
      .links = L("source", "blur") "," L("blur", "writer"),
      .slow = "writer" },
    { .name = "a chain on the device",
      .modules = SIGNAL(SMALL) "," M("a", "GaussianBlur") ","
                 MP("b", "CCNPPI", "'imageType': 'RGB'") ","
                 M("c", "GaussianBlur") ","
                 MP("d", "CCNPPI", "'imageType': 'NV12'") "," WRITER,
      .links = L("source", "a") "," L("a", "b") "," L("b", "c") ","
               L("c", "d") "," L("d", "writer"),
      .slow = "writer" },
    { .name = "modules that pass frames on",
      .modules = SIGNAL(SMALL) "," M("blur", "GaussianBlur") ","
                 M("x", "CudaStreamSynchronize") ","
                 M("y", "CuCtxSynchronize") "," M("sink", "StatSink"),
      .links = L("source", "blur") "," L("blur", "x") "," L("x", "y") ","
               L("y", "sink"),
      .slow = "sink" },
    { .name = "a queue that drops",
      .modules = SIGNAL(SMALL) "," M("blur", "GaussianBlurCV") "," WRITER,
      .links = L("source", "blur") ","
               LQ("blur", "writer", "'depth': 3, 'policy': 'drop_oldest'"),
      .slow = "writer", .never_waits = "blur" },
    { .name = "a queue that drops the newest",
      .modules = SIGNAL(SMALL) "," M("blur", "GaussianBlurCV") "," WRITER,
      .links = L("source", "blur") ","
               LQ("blur", "writer", "'depth': 3, 'policy': 'drop_newest'"),
      .slow = "writer", .never_waits = "blur" },
    { .name = "odd sizes",
      .modules = SIGNAL("'width': 333, 'height': 187") ","
                 MP("colour", "CCNPPI", "'imageType': 'UYVY'") "," WRITER,
      .links = L("source", "colour") "," L("colour", "writer"),
      .slow = "writer" },
    { .name = "large to small",
      .modules = SIGNAL("'width': 1280, 'height': 720") ","
                 MP("resize", "ResizeNPPI", "'width': 160, 'height': 90, "
                    "'interpolation': 'area'") "," WRITER,
      .links = L("source", "resize") "," L("resize", "writer"),
      .slow = "resize", .how = ON_STREAM },
    { .name = "small to large",
      .modules = SIGNAL("'width': 160, 'height': 90") ","
                 MP("resize", "ImageResizeCV", "'width': 640, 'height': 360, "
                    "'interpolation': 'bicubic'") "," WRITER,
      .links = L("source", "resize") "," L("resize", "writer"),
      .slow = "writer" },
    { .name = "a pinned source",
      .modules = SIGNAL(SMALL ", 'memType': 'HOST_PINNED'") ","
                 M("blur", "GaussianBlur") "," M("sink", "StatSink"),
      .links = L("source", "blur") "," L("blur", "sink"),
      .slow = "blur", .how = ON_STREAM },
    { .name = "DMABUFs",
      .modules = SIGNAL(SMALL ", 'memType': 'DMABUF'") ","
                 M("blur", "GaussianBlurCV") "," WRITER,
      .links = L("source", "blur") "," L("blur", "writer"),
      .slow = "blur", .dmabuf = true },
    { .name = "staged uploads",
      .settings = "'budget': { 'host_pinned': '100KiB' }, "
                  "'pinned_limit': 'stage'",
      .modules = SIGNAL(SMALL) "," M("blur", "GaussianBlur") ","
                 M("sink", "StatSink"),
      .links = LQ("source", "blur", "'depth': 9") "," L("blur", "sink"),
      .slow = "sink", .staged = true },
    { .name = "a slow decoder",
      .modules = READER("@/still-????.jpg", "") "," M("decoder", "ImageDecoderCV")
                 "," M("blur", "GaussianBlur") "," WRITER,
      .links = L("reader", "decoder") "," L("decoder", "blur") ","
               L("blur", "writer"),
      .slow = "decoder" },
    { .name = "a slow reader",
      .modules = READER("@/still-????.jpg", "") "," M("decoder", "ImageDecoderCV")
                 "," M("blur", "GaussianBlurCV") "," WRITER,
      .links = L("reader", "decoder") "," L("decoder", "blur") ","
               L("blur", "writer"),
      .slow = "reader", .one_by_one = true },
    { .name = "raw frames of one file",
      .modules = READER("@/many.raw", ", 'format': 'RGB', " SMALL) ","
                 M("blur", "GaussianBlur") "," WRITER,
      .links = L("reader", "blur") "," L("blur", "writer"),
      .slow = "blur", .how = ON_STREAM },
    { .name = "pictures that become larger",
      .modules = READER("@/grow-????.jpg", "") "," M("decoder", "ImageDecoderCV")
                 "," M("blur", "GaussianBlur") "," WRITER,
      .links = L("reader", "decoder") "," L("decoder", "blur") ","
               L("blur", "writer"),
      .slow = "writer", .grows = true },
    { .name = "pictures that become larger, to scale on the GPU",
      .modules = READER("@/grow-????.jpg", "") "," M("decoder", "ImageDecoderCV")
                 "," MP("resize", "ResizeNPPI", "'width': 96, 'height': 54, "
                        "'interpolation': 'area'") "," WRITER,
      .links = L("reader", "decoder") "," L("decoder", "resize") ","
               L("resize", "writer"),
      .slow = "writer", .grows = true },
};

// What makes the files that they read.
#define JPEGS(NAME, SIZE, COUNT, FROM)                                         \
    { .name = NAME,                                                            \
      .modules = SIGNAL(SIZE ", 'maxFrames': " COUNT) ","                      \
                 M("encoder", "ImageEncoderCV") ","                            \
                 MP("writer", "FileWriterModule",                              \
                    "'strFullFileNameWithPattern': '@/" NAME "-????.jpg', "    \
                    "'startIndex': " FROM),                                    \
      .links = L("source", "encoder") "," L("encoder", "writer") }
static const struct bottleneck makers[] = {
    JPEGS("still", SMALL, "60", "0"),
    JPEGS("grow", "'width': 160, 'height': 90", "20", "0"),
    JPEGS("grow", "'width': 320, 'height': 180", "20", "20"),
    JPEGS("grow", "'width': 641, 'height': 361", "20", "40"),
    { .modules = SIGNAL(SMALL) ","
                 MP("colour", "ColorConversion", "'imageType': 'RGB'") ","
                 MP("writer", "FileWriterModule",
                    "'strFullFileNameWithPattern': '@/many.raw', 'append': true"),
      .links = L("source", "colour") "," L("colour", "writer") },
};
// clang-format on

static void make_files(void)
{
    if (folder)
        return;
    folder = pen_test_folder();
    for (size_t i = 0; i < sizeof(makers) / sizeof(makers[0]); i++) {
        struct run r;
        make(&r, &makers[i]);
        RUN_OK(pen_pipeline_start(r.p, &err));
        RUN_OK(pen_pipeline_wait(r.p, 20000000000, &err));
        run_finish(&r);
    }
}

static void run_all_of_them(void)
{
    make_files();
    for (size_t i = 0; i < sizeof(bottlenecks) / sizeof(bottlenecks[0]); i++) {
        if (bottlenecks[i].dmabuf && !fixture_emulator()) {
            print_message("# skipped: %s: made by the emulated device only\n",
                          bottlenecks[i].name);
            continue;
        }
        print_message("# %s\n", bottlenecks[i].name);
        run_slow(&bottlenecks[i]);
    }
}

PEN_TEST(the_peak_is_the_plans_whatever_the_bottleneck_is)
{
    in_all_modes(run_all_of_them);
}

// --- branches that meet again -----------------------------------------------

// One branch is a mere connection, the other has `count` modules, of which
// every second passes frames on.
static void run_branches(unsigned count, unsigned shorter, unsigned longer)
{
    enum { MANY = 200 };
    struct run r;
    struct stk_text modules = { 0 }, links = { 0 }, json = { 0 };
    stk_text_addf(&modules, MODULE_P("source", "TSource", "\"frames\": %d"),
                  MANY);
    stk_text_addf(&modules,
                  "," MODULE("join", "TJoin") "," MODULE_P(
                      "sink", "TSink", "\"twice\": true, \"expect\": %u"),
                  (count + 1) / 2);
    stk_text_addf(&links, LINK_Q("source", "join.input_1", "\"depth\": %u"),
                  shorter);
    for (unsigned i = 0; i < count; i++) {
        stk_text_addf(&modules, "," MODULE("m%u", "%s"), i,
                      i % 2 ? "TForward" : "TAdd");
        if (i)
            stk_text_addf(&links, "," LINK_Q("m%u", "m%u", "\"depth\": %u"),
                          i - 1, i, longer);
        else
            stk_text_addf(&links, "," LINK_Q("source", "m0", "\"depth\": %u"),
                          longer);
    }
    stk_text_addf(&links,
                  "," LINK_Q("m%u", "join.input_2",
                             "\"depth\": %u") "," LINK("join", "sink"),
                  count - 1, longer);
    stk_text_addf(&json, PIPE("%s", "%s"), modules.data, links.data);
    run_init(&r);
    run_create(&r, json.data);
    RUN_OK(pen_pipeline_start(r.p, &err));
    wait_for_sinks(r.p, MANY);
    none_was_missing(r.p);
    RUN_OK(pen_pipeline_wait(r.p, 20000000000, &err));
    assert_all_arrived(0, MANY);
    run_finish(&r);
    stk_text_finish(&json);
    stk_text_finish(&modules);
    stk_text_finish(&links);
}

PEN_TEST(branches_of_any_depths_meet_again)
{
    static const unsigned counts[] = { 1, 2, 5, 12 };
    static const unsigned depths[] = { 1, 2, 7 };
    for (unsigned i = 0; i < 4 * 3 * 3; i++)
        run_branches(counts[i / 9], depths[i / 3 % 3], depths[i % 3]);
}

PEN_TEST_MAIN(PEN_CASE(the_peak_is_the_plans_whatever_the_bottleneck_is),
              PEN_CASE(branches_of_any_depths_meet_again))
