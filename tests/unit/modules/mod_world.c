#include "mod_world.h"

#include <dirent.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "gpu_fixture.h"

#include "src/modules/common.h"

struct mod_options mod_options;
_Atomic unsigned mod_taken;
struct mod_dma mod_dma;

// --- TSource ----------------------------------------------------------------

struct source_params {
    const char *file;
    int32_t mem, kind, format, width, height, count;
};

struct source_state {
    uint8_t *bytes;
    size_t length;
    uint8_t *rows;  // the frame as it lies in its buffer
};

static const struct pen_choice mem_choices[] = {
    { "HOST", PEN_MEM_HOST, "" },
    { "HOST_PINNED", PEN_MEM_HOST_PINNED, "" },
    { "CUDA_DEVICE", PEN_MEM_CUDA_DEVICE, "" },
    { "DMABUF", PEN_MEM_DMABUF, "" },
    { 0 },
};

static const struct pen_choice kind_choices[] = {
    { "Frame", PEN_KIND_FRAME, "" },
    { "RawImage", PEN_KIND_RAW_IMAGE, "" },
    { "EncodedImage", PEN_KIND_ENCODED_IMAGE, "" },
    { "H264Data", PEN_KIND_H264_DATA, "" },
    { 0 },
};

// clang-format off
#define P struct source_params
static const struct pen_prop source_props[] = {
    PEN_STRING(P, file, "file", "", "Where the bytes are."),
    PEN_ENUM(P, mem, "mem", PEN_MEM_HOST, mem_choices, "Memory."),
    PEN_ENUM(P, kind, "kind", PEN_KIND_RAW_IMAGE, kind_choices, "Kind."),
    PEN_ENUM(P, format, "format", PEN_FMT_NONE, stk_choices_format, "Format."),
    PEN_I32(P, width, "width", 0, 0, 65535, "Width."),
    PEN_I32(P, height, "height", 0, 0, 65535, "Height."),
    PEN_I32(P, count, "count", 1, 1, 1000, "Frames."),
    PEN_PROPS_END,
};
#undef P
// clang-format on

static const struct pen_pin source_out[] = {
    { .name = "output",
      .help = "Frames.",
      .kinds = STK_KINDS_ALL,
      .mem = PEN_MEM_BITS_HOST | STK_MEM_CUDA | STK_MEM_DMABUF,
      .formats = STK_FORMATS_ALL },
    { 0 },
};

static void source_narrow(const void *params, struct pen_pin_set *inputs,
                          struct pen_pin_set *out)
{
    const struct source_params *p = params;
    (void)inputs;
    out->mem = PEN_MEM_BIT((unsigned)p->mem);
    out->kinds = PEN_KIND_BIT((unsigned)p->kind);
    out->formats = p->format ? PEN_FMT_BIT((unsigned)p->format) : 0;
}

static enum pen_status source_negotiate(const void *params,
                                        const struct pen_caps *inputs,
                                        struct pen_caps *out,
                                        struct pen_error *err)
{
    const struct source_params *p = params;
    (void)inputs;
    (void)err;
    *out = (struct pen_caps){ .kind = (enum pen_kind)p->kind,
                              .format = (enum pen_format)p->format,
                              .width = p->width,
                              .height = p->height };
    stk_settle_colour(out);
    return PEN_OK;
}

static enum pen_status source_open(struct pen_module *m, struct pen_error *err)
{
    const struct source_params *p = pen_module_params(m);
    struct source_state *st = pen_module_state(m);
    (void)err;
    st->bytes = pen_test_read_file(p->file, &st->length);
    st->rows = malloc(4 * st->length + (1 << 16));
    assert_non_null(st->rows);
    return PEN_OK;
}

static enum pen_status source_prepare(struct pen_module *m,
                                      const struct pen_io *io,
                                      struct pen_caps *out,
                                      struct pen_error *err)
{
    const struct source_params *p = pen_module_params(m);
    const struct source_state *st = pen_module_state(m);
    if (pen_io_index(io) >= (uint64_t)p->count)
        return PEN_EOS;
    PEN_TRY(source_negotiate(p, NULL, out, err));
    if (p->kind != PEN_KIND_RAW_IMAGE)
        out->bytes = st->length;
    return PEN_OK;
}

static enum pen_status source_process(struct pen_module *m,
                                      const struct pen_io *io,
                                      struct pen_error *err)
{
    struct source_state *st = pen_module_state(m);
    struct pen_frame *frame = pen_output(io, 0);
    const struct pen_layout *layout = pen_frame_layout(frame);
    const bool host =
        (PEN_MEM_BITS_HOST & PEN_MEM_BIT(pen_frame_mem(frame))) != 0;
    const bool raw = pen_frame_caps(frame)->kind == PEN_KIND_RAW_IMAGE;
    struct pen_view v;
    size_t at = 0, bytes = st->length;

    if (!raw)
        PEN_TRY(pen_frame_set_bytes(frame, bytes, err));
    PEN_TRY(pen_acquire(io, frame, host ? PEN_ON_HOST : PEN_ON_STREAM,
                        PEN_WRITE, &v, err));
    uint8_t *to = host ? v.plane[0].host : st->rows;
    if (!raw) {
        memcpy(to, st->bytes, bytes);
    } else {
        bytes = 0;
        for (uint32_t i = 0; i < layout->planes; i++) {
            for (int32_t y = 0; y < layout->plane[i].rows; y++) {
                uint8_t *row = to + layout->plane[i].offset +
                               (size_t)y * layout->plane[i].pitch;
                memcpy(row, st->bytes + at, layout->plane[i].row_bytes);
                at += layout->plane[i].row_bytes;
                bytes = (size_t)(row - to) + layout->plane[i].row_bytes;
            }
        }
        assert_int_equal(at, st->length);
    }
    return host ? PEN_OK
                : pen_module_fill_device(m, v.plane[0].address, st->rows, bytes,
                                         err);
}

static void source_close(struct pen_module *m)
{
    struct source_state *st = pen_module_state(m);
    free(st->bytes);
    free(st->rows);
}

static const struct pen_module_class source_class = {
    .abi = PEN_MODULE_ABI,
    .size = sizeof(struct pen_module_class),
    .name = "TSource",
    .version = "1.0",
    .summary = "Frames in any memory.",
    .category = PEN_CATEGORY_SOURCE,
    .flags = PEN_CLASS_CUDA,
    .outputs = source_out,
    .props = source_props,
    .params_size = sizeof(struct source_params),
    .state_size = sizeof(struct source_state),
    .ops = { .narrow = source_narrow,
             .negotiate = source_negotiate,
             .open = source_open,
             .prepare = source_prepare,
             .process = source_process,
             .close = source_close },
};

// --- TSink ------------------------------------------------------------------

struct sink_params {
    int32_t mem;
};

// clang-format off
static const struct pen_prop sink_props[] = {
    PEN_ENUM(struct sink_params, mem, "mem", PEN_MEM_HOST, mem_choices,
             "Memory."),
    PEN_PROPS_END,
};
// clang-format on

static void sink_narrow(const void *params, struct pen_pin_set *inputs,
                        struct pen_pin_set *out)
{
    const struct sink_params *p = params;
    (void)out;
    inputs->mem = PEN_MEM_BIT((unsigned)p->mem);
}

static enum pen_status sink_process(struct pen_module *m,
                                    const struct pen_io *io,
                                    struct pen_error *err)
{
    const struct sink_params *p = pen_module_params(m);
    const enum pen_mem_type mem = pen_frame_mem(pen_input(io, 0));
    if ((int32_t)mem != p->mem && mem != PEN_MEM_DMABUF &&
        !(p->mem == PEN_MEM_HOST && mem == PEN_MEM_HOST_PINNED))
        return pen_error_set(err, PEN_E_STATE, 0, "", "a frame in %s arrived",
                             pen_mem_name(mem));
    atomic_fetch_add(&mod_taken, 1);
    return PEN_OK;
}

static const struct pen_module_class sink_class = {
    .abi = PEN_MODULE_ABI,
    .size = sizeof(struct pen_module_class),
    .name = "TSink",
    .version = "1.0",
    .summary = "Frames from any memory.",
    .category = PEN_CATEGORY_SINK,
    .flags = PEN_CLASS_CUDA,
    .inputs = (const struct pen_pin[]){ { .name = "input",
                                          .help = "Frames.",
                                          .kinds = STK_KINDS_ALL,
                                          .mem = PEN_MEM_BITS_HOST |
                                                 STK_MEM_CUDA | STK_MEM_DMABUF,
                                          .formats = STK_FORMATS_ALL },
                                        { 0 } },
    .props = sink_props,
    .params_size = sizeof(struct sink_params),
    .ops = { .narrow = sink_narrow, .process = sink_process },
};

// --- TDmaSink ---------------------------------------------------------------

uint64_t mod_hash(uint64_t hash, const void *bytes, size_t count)
{
    const uint8_t *at = bytes;
    if (!hash)
        hash = 0xcbf29ce484222325u;
    for (size_t i = 0; i < count; i++)
        hash = (hash ^ at[i]) * 0x100000001b3u;
    return hash;
}

static void look_through(const struct pen_dmabuf *d,
                         const struct pen_layout *layout, size_t payload)
{
    const uint8_t *map = mmap(NULL, d->bytes, PROT_READ, MAP_SHARED, d->fd, 0);
    if (map == MAP_FAILED)
        return;
    mod_dma.mapped++;
    if (!layout->planes || payload)
        mod_dma.hash = mod_hash(mod_dma.hash, map, payload);
    for (uint32_t i = 0; i < layout->planes && !payload; i++)
        for (int32_t y = 0; y < layout->plane[i].rows; y++)
            mod_dma.hash = mod_hash(mod_dma.hash,
                                    map + d->plane[i].offset +
                                        (size_t)y * d->plane[i].pitch,
                                    layout->plane[i].row_bytes);
    munmap((void *)(uintptr_t)map, d->bytes);
}

// Another device would do as much: it takes descriptors of its own, which name
// the same memory, and lets the frame go when it is done.
static enum pen_status dma_process(struct pen_module *m,
                                   const struct pen_io *io,
                                   struct pen_error *err)
{
    struct pen_frame *frame = pen_input(io, 0);
    const struct pen_layout *layout = pen_frame_layout(frame);
    const bool raw = pen_frame_caps(frame)->kind == PEN_KIND_RAW_IMAGE;
    struct pen_dmabuf a, b;
    struct stat at_a, at_b;
    (void)m;
    if (pen_frame_mem(frame) != PEN_MEM_DMABUF)
        return pen_error_set(err, PEN_E_STATE, 0, "", "a frame in %s arrived",
                             pen_mem_name(pen_frame_mem(frame)));
    PEN_TRY(pen_frame_dmabuf(frame, &a, err));
    PEN_TRY(pen_frame_dmabuf(frame, &b, err));
    assert_int_not_equal(a.fd, b.fd);
    assert_int_equal(fstat(a.fd, &at_a), 0);
    assert_int_equal(fstat(b.fd, &at_b), 0);
    assert_int_equal(at_a.st_ino, at_b.st_ino);
    pen_dmabuf_close(&b);
    assert_int_equal(fcntl(a.fd, F_GETFD) & FD_CLOEXEC, FD_CLOEXEC);
    assert_true(lseek(a.fd, 0, SEEK_END) >= (off_t)a.bytes);
    assert_true(a.bytes >= layout->bytes);
    assert_int_equal(a.modifier, 0);
    if (raw)
        assert_int_equal(a.planes, layout->planes);
    look_through(&a, layout, raw ? 0 : pen_frame_bytes(frame));
    pen_dmabuf_close(&a);
    mod_dma.frames++;
    return PEN_OK;
}

static const struct pen_module_class dma_class = {
    .abi = PEN_MODULE_ABI,
    .size = sizeof(struct pen_module_class),
    .name = "TDmaSink",
    .version = "1.0",
    .summary = "DMABUFs by their descriptors.",
    .category = PEN_CATEGORY_SINK,
    .inputs = (const struct pen_pin[]){ { .name = "input",
                                          .help = "Frames.",
                                          .kinds = STK_KINDS_ALL,
                                          .mem = STK_MEM_DMABUF,
                                          .formats = STK_FORMATS_ALL },
                                        { 0 } },
    .ops = { .process = dma_process },
};

// --- runs -------------------------------------------------------------------

static void note(void *cookie, enum pen_log_level level, const char *topic,
                 const char *text)
{
    static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
    struct outcome *o = cookie;
    (void)topic;
    if (level > PEN_LOG_INFO)
        return;
    pthread_mutex_lock(&lock);
    const size_t n = strlen(o->log);
    snprintf(o->log + n, sizeof(o->log) - n, "%s\n", text);
    pthread_mutex_unlock(&lock);
}

static void keep_issues(struct outcome *o, const struct pen_issues *issues)
{
    size_t n = 0;
    const struct pen_issue *is;
    for (size_t i = 0; (is = pen_issues_get(issues, i)); i++) {
        if (n < sizeof(o->issues))
            n += (size_t)snprintf(o->issues + n, sizeof(o->issues) - n,
                                  "%s %s: %s\n", is->code, is->pointer,
                                  is->message);
    }
}

static void run_pipeline(struct outcome *o, struct pen_pipeline *p,
                         const struct pen_issues *issues)
{
    o->stage = MOD_CREATED;
    o->status = pen_pipeline_start(p, &o->err);
    if (o->status == PEN_OK) {
        o->stage = MOD_STARTED;
        o->status = pen_pipeline_wait(p, INT64_C(60000000000), &o->err);
    }
    o->plan = pen_plan_json(pen_pipeline_plan(p), issues);
    if (o->status == PEN_E_TIMEOUT)
        fail_msg("the run does not end");
    pen_pipeline_stats(p, &o->stats);
    if (o->stats.leaks) {
        char *text = pen_pipeline_report_text(p);
        print_message("%s", text);
        pen_free(text);
    }
    assert_int_equal(o->stats.leaks, 0);
    for (unsigned m = 0; m < PEN_MEM_COUNT; m++)
        assert_int_equal(o->stats.memory[m].live, 0);
    assert_int_equal(o->stats.contexts_retained, o->stats.contexts_released);
}

static struct outcome run_text(const char *text)
{
    struct outcome o = { 0 };
    const struct pen_log log = { note, &o, PEN_LOG_INFO };
    struct pen_registry *registry = NULL;
    struct pen_description *desc = NULL;
    struct pen_pipeline *p = NULL;
    struct pen_issues *issues = pen_issues_create();
    assert_non_null(issues);
    const struct pen_pipeline_params params = {
        .device = { .selector = pen_test_device(),
                    .emulator = pen_test_emulator() },
        .workers = 2,
        .frames = mod_options.frames,
        .no_probe = !mod_options.probe,
        .leaks_fatal = pen_test_detect_leaks(),
        .leak_sites = true,
        .log = &log,
    };

    o.status = pen_registry_create(&registry, &o.err);
    assert_int_equal(o.status, PEN_OK);
    assert_int_equal(pen_registry_add(registry, &source_class, &o.err), PEN_OK);
    assert_int_equal(pen_registry_add(registry, &sink_class, &o.err), PEN_OK);
    assert_int_equal(pen_registry_add(registry, &dma_class, &o.err), PEN_OK);
    o.status = pen_description_parse(text, strlen(text), "test.json", &desc,
                                     issues, &o.err);
    if (o.status == PEN_OK)
        o.status =
            pen_pipeline_create(desc, registry, &params, &p, issues, &o.err);
    if (o.status == PEN_OK)
        run_pipeline(&o, p, issues);
    if (o.status != PEN_OK)
        assert_int_equal(o.err.status, o.status);
    keep_issues(&o, issues);
    pen_pipeline_destroy(&p);
    pen_description_destroy(&desc);
    pen_registry_destroy(&registry);
    pen_issues_destroy(&issues);
    return o;
}

static struct outcome run_format(const char *format, va_list args)
{
    static char text[16384];
    const int n = vsnprintf(text, sizeof(text), format, args);
    assert_true(n >= 0 && n < (int)sizeof(text));
    for (char *c = text; *c; c++) {
        if (*c == '\'')
            *c = '"';
    }
    return run_text(text);
}

struct outcome mod_run(const char *text, ...)
{
    va_list args;
    va_start(args, text);
    const struct outcome o = run_format(text, args);
    va_end(args);
    return o;
}

struct outcome mod_must(const char *text, ...)
{
    va_list args;
    va_start(args, text);
    const struct outcome o = run_format(text, args);
    va_end(args);
    if (o.status != PEN_OK)
        fail_msg("%s: %s: %s\n%s%s", pen_status_name(o.status), o.err.where,
                 o.err.text, o.issues, o.log);
    return o;
}

void outcome_free(struct outcome *o)
{
    pen_free(o->plan);
    o->plan = NULL;
}

void mod_expect(struct outcome *o, enum pen_status status, const char *text)
{
    if (o->status != status ||
        (!strstr(o->err.text, text) && !strstr(o->issues, text) &&
         !strstr(o->err.where, text)))
        fail_msg("%s: %s: %s\n%s%swhere \"%s\" was expected",
                 pen_status_name(o->status), o->err.where, o->err.text,
                 o->issues, o->log, text);
    outcome_free(o);
}

void mod_all_modes(void (*body)(void))
{
    const struct penemu *emu = fixture_emulator();
    if (!emu) {
        body();
        return;
    }
    static const enum penemu_mode modes[] = { PENEMU_LAZY, PENEMU_EAGER,
                                              PENEMU_RANDOM };
    for (unsigned i = 0; i < 3; i++) {
        emu->penemu_reset();
        emu->penemu_set_mode(modes[i], 4711 + i);
        body();
        char text[512];
        if (emu->penemu_report(text, sizeof(text)))
            fail_msg("mode %d: the emulator reports: %s", (int)modes[i], text);
    }
    emu->penemu_reset();
}

// --- files ------------------------------------------------------------------

const char *in(const char *folder, const char *name)
{
    static char paths[8][512];
    static unsigned turn;
    char *path = paths[turn++ % 8];
    snprintf(path, sizeof(paths[0]), "%s/%s", folder, name);
    return path;
}

bool file_exists(const char *path)
{
    struct stat st;
    return lstat(path, &st) == 0;
}

unsigned folder_entries(const char *path)
{
    unsigned count = 0;
    DIR *dir = opendir(path);
    if (!dir)
        return 0;
    for (struct dirent *e; (e = readdir(dir));)
        count += strcmp(e->d_name, ".") != 0 && strcmp(e->d_name, "..") != 0;
    closedir(dir);
    return count;
}

void same_files(const char *a, const char *b)
{
    size_t n = 0, m = 0;
    uint8_t *x = pen_test_read_file(a, &n), *y = pen_test_read_file(b, &m);
    if (n != m)
        fail_msg("%s has %zu bytes, %s has %zu", a, n, b, m);
    for (size_t i = 0; i < n; i++) {
        if (x[i] != y[i])
            fail_msg("%s and %s differ at byte %zu: %u, %u", a, b, i, x[i],
                     y[i]);
    }
    free(x);
    free(y);
}
