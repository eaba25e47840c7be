// Measures a machine. Everything is done many times and the median taken.
//
// What the device does is timed by the clock, with the stream asked over and
// over whether it is done: a wait that sleeps takes longer than a small copy.
// So much is queued before each wait that the wait itself does not count. What
// the CPU does is timed by the time that the thread had, so that other programs
// on the machine count little.

#include <assert.h>
#include <dlfcn.h>
#include <math.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "../base/str.h"
#include "../gpu/stream.h"
#include "../kernels/work.h"
#include "../mem/dmabuf.h"
#include "calibrate.h"

enum {
    SAMPLES = 15,
    FEWEST = 3,
    MAX_QUEUED = 4096,
    OPENINGS = 3,  // of the device
};
static const double SAMPLE_NS = 2e6;   // a sample lasts at least so long
static const double BUDGET_NS = 25e7;  // all samples of one thing
static const int64_t POLL_NS = 20000000;

struct bench {
    const struct pen_calibrate_params *params;
    struct pen_calibration *out;
    struct stk_ledger *ledger;
    struct pen_device *dev;
    struct stk_stream *stream;
    struct pen_device_info info;
    unsigned step;
    bool quick;

    size_t most;         // bytes of the largest copy, of each block below
    uint64_t device[2];  // blocks of device memory
    void *pinned;
    size_t host_bytes;
    uint8_t *host[2];  // pageable
};

// --- samples ----------------------------------------------------------------

// Do something `times` times, to the end.
typedef enum pen_status work_fn(struct bench *b, const void *what,
                                unsigned times, struct pen_error *err);

static int64_t now_of(clockid_t clock)
{
    struct timespec t;
    clock_gettime(clock, &t);
    return (int64_t)t.tv_sec * 1000000000 + t.tv_nsec;
}

static enum pen_status time_of(struct bench *b, work_fn *work, const void *what,
                               clockid_t clock, unsigned times, double *ns,
                               struct pen_error *err)
{
    const int64_t start = now_of(clock);
    PEN_TRY(work(b, what, times, err));
    const int64_t taken = now_of(clock) - start;
    *ns = (double)(taken > 0 ? taken : 1) / times;
    return PEN_OK;
}

static int by_size(const void *a, const void *b)
{
    const double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

// Median and spread of what was sampled.
static struct stk_measure *summarize(struct bench *b, double *samples,
                                     unsigned count, const char *what)
{
    assert(b->out->count < STK_MAX_MEASURES);
    struct stk_measure *m = &b->out->measures[b->out->count++];
    qsort(samples, count, sizeof(*samples), by_size);
    snprintf(m->what, sizeof(m->what), "%s", what);
    m->unit = "ns";
    m->median = samples[count / 2];
    m->low = samples[count / 10];
    m->high = samples[count - 1 - count / 10];
    m->samples = count;
    return m;
}

// Nanoseconds of one call. The first is not counted: it warms up.
static enum pen_status measure(struct bench *b, work_fn *work, const void *arg,
                               clockid_t clock, const char *what,
                               struct stk_measure **out, struct pen_error *err)
{
    double ns, samples[SAMPLES];
    PEN_TRY(time_of(b, work, arg, clock, 1, &ns, err));
    PEN_TRY(time_of(b, work, arg, clock, 1, &ns, err));
    const double enough = b->quick ? 1 : ceil(SAMPLE_NS / ns);
    const unsigned times = enough < 1            ? 1
                           : enough > MAX_QUEUED ? MAX_QUEUED
                                                 : (unsigned)enough;

    unsigned count = 0;
    const int64_t start = stk_now();
    const unsigned most = b->quick ? 1 : SAMPLES;
    while (count < most &&
           (count < FEWEST || (double)(stk_now() - start) < BUDGET_NS)) {
        PEN_TRY(time_of(b, work, arg, clock, times, &samples[count], err));
        count++;
    }
    *out = summarize(b, samples, count, what);
    return PEN_OK;
}

// Turn times into a rate of `amount` per call.
static void as_rate(struct stk_measure *m, double amount, const char *unit)
{
    const double low = amount * 1e3 / m->high;
    m->median = amount * 1e3 / m->median;
    m->high = amount * 1e3 / m->low;
    m->low = low;
    m->unit = unit;
}

static uint32_t whole(double value)
{
    return value < 1            ? 1
           : value > UINT32_MAX ? UINT32_MAX
                                : (uint32_t)llround(value);
}

void stk_calibrate_fit(const double *x, const double *y, unsigned count,
                       double *a, double *b)
{
    double w = 0, wx = 0, wxx = 0, wy = 0, wxy = 0;
    for (unsigned i = 0; i < count; i++) {
        const double weight = 1 / (y[i] * y[i]);
        w += weight;
        wx += weight * x[i];
        wxx += weight * x[i] * x[i];
        wy += weight * y[i];
        wxy += weight * x[i] * y[i];
    }
    const double det = w * wxx - wx * wx;
    *b = det > 0 ? (w * wxy - wx * wy) / det : 0;
    *a = w > 0 ? (wy - *b * wx) / w : 0;
    if (*a < 0) {
        *a = 0;
        *b = wxx > 0 ? wxy / wxx : 0;
    } else if (*b < 0) {
        *b = 0;
        *a = w > 0 ? wy / w : 0;
    }
}

// --- the stream -------------------------------------------------------------

// Nothing is read or written after it that depends on the work: only the time
// is asked for.
static enum pen_status await_all(struct bench *b, struct pen_error *err)
{
    struct stk_point point;
    PEN_TRY(stk_stream_record(b->stream, &point, err));
    const int64_t end = stk_now() + POLL_NS;
    while (stk_point_pending(point, STK_WAIT_NONE) && stk_now() < end)
        sched_yield();
    return stk_point_wait(point, STK_WAIT_NONE, err);
}

struct copy {
    enum stk_copy_kind kind;
    uint64_t dst, src;
    size_t bytes;
};

static enum pen_status do_copy(struct bench *b, const void *what,
                               unsigned times, struct pen_error *err)
{
    const struct copy *c = what;
    for (unsigned i = 0; i < times; i++)
        PEN_TRY(
            stk_stream_copy(b->stream, c->kind, c->dst, c->src, c->bytes, err));
    return await_all(b, err);
}

static enum pen_status measure_copy(struct bench *b, const char *name,
                                    const struct copy *c,
                                    struct stk_measure **out,
                                    struct pen_error *err)
{
    char size[32], what[64];
    stk_format_size(c->bytes, size, sizeof(size));
    snprintf(what, sizeof(what), "%s %s", name, size);
    PEN_TRY(measure(b, do_copy, c, CLOCK_MONOTONIC, what, out, err));
    (*out)->bytes = c->bytes;
    return PEN_OK;
}

// --- steps ------------------------------------------------------------------

// One direction, pinned: what a copy takes before its first byte, and the rate.
static enum pen_status copies(struct bench *b, bool up, double *fixed_ns,
                              uint32_t *rate, struct pen_error *err)
{
    static const size_t sizes[] = { 4 << 10, 64 << 10, 512 << 10, 1 << 20,
                                    4 << 20, 16 << 20, 64 << 20 };
    enum { SIZES = sizeof(sizes) / sizeof(sizes[0]) };
    double bytes[SIZES], ns[SIZES];
    unsigned count = 0;
    const uint64_t pinned = (uintptr_t)b->pinned;
    for (unsigned i = 0; i < SIZES && sizes[i] <= b->most; i++) {
        const struct copy c = {
            .kind = up ? STK_COPY_H2D : STK_COPY_D2H,
            .dst = up ? b->device[0] : pinned,
            .src = up ? pinned : b->device[0],
            .bytes = sizes[i],
        };
        struct stk_measure *m;
        PEN_TRY(measure_copy(b, up ? "host to device" : "device to host", &c,
                             &m, err));
        bytes[count] = (double)sizes[i];
        ns[count++] = m->median;
    }
    double per_byte;
    stk_calibrate_fit(bytes, ns, count, fixed_ns, &per_byte);
    *rate = whole(1e3 / (per_byte > 0 ? per_byte : 1e-6));
    return PEN_OK;
}

static enum pen_status pinned_copies(struct bench *b, struct pen_error *err)
{
    struct pen_profile *p = &b->out->profile;
    double up, down;
    PEN_TRY(copies(b, true, &up, &p->h2d_rate, err));
    PEN_TRY(copies(b, false, &down, &p->d2h_rate, err));
    p->copy_ns = whole((up + down) / 2);
    return PEN_OK;
}

// The slower direction counts.
static enum pen_status pageable_copies(struct bench *b, struct pen_error *err)
{
    const size_t bytes = b->most < b->host_bytes ? b->most : b->host_bytes;
    const uint64_t host = (uintptr_t)b->host[0];
    const struct copy both[] = {
        { STK_COPY_H2D, b->device[0], host, bytes },
        { STK_COPY_D2H, host, b->device[0], bytes },
    };
    double least = 0;
    for (unsigned i = 0; i < 2; i++) {
        struct stk_measure *m;
        PEN_TRY(measure_copy(b, i ? "device to pageable" : "pageable to device",
                             &both[i], &m, err));
        const double rate = (double)bytes * 1e3 / m->median;
        least = i == 0 || rate < least ? rate : least;
    }
    b->out->profile.pageable_rate = whole(least);
    return PEN_OK;
}

static enum pen_status device_memory(struct bench *b, struct pen_error *err)
{
    const struct copy c = { STK_COPY_D2D, b->device[1], b->device[0], b->most };
    struct stk_measure *m;
    PEN_TRY(measure_copy(b, "on the device", &c, &m, err));
    b->out->profile.device_rate = whole(2e3 * (double)b->most / m->median);
    return PEN_OK;
}

static enum pen_status do_host_copy(struct bench *b, const void *what,
                                    unsigned times, struct pen_error *err)
{
    (void)what;
    (void)err;
    for (unsigned i = 0; i < times; i++) {
        memcpy(b->host[1], b->host[0], b->host_bytes);
        // So that none is left out as without effect.
        __asm__ volatile("" : : "r"(b->host[1]) : "memory");
    }
    return PEN_OK;
}

static enum pen_status host_memory(struct bench *b, struct pen_error *err)
{
    struct stk_measure *m;
    PEN_TRY(measure(b, do_host_copy, NULL, CLOCK_THREAD_CPUTIME_ID,
                    "on the host, one thread", &m, err));
    as_rate(m, 2.0 * (double)b->host_bytes, "B/us");
    b->out->profile.host_rate = whole(m->median);
    return PEN_OK;
}

// --- operators --------------------------------------------------------------

enum operator{ CONVERT = 0, RESIZE, BLUR };

// What is done to a picture; `arg` is the interpolation or the kernel's size.
static const struct task {
    const char *name;
    enum operator op;
    enum pen_format from, to;
    int32_t arg;
} tasks[] = {
    { "NV12 to RGB", CONVERT, PEN_FMT_NV12, PEN_FMT_RGB, 0 },
    { "RGB to NV12", CONVERT, PEN_FMT_RGB, PEN_FMT_NV12, 0 },
    { "RGB to MONO", CONVERT, PEN_FMT_RGB, PEN_FMT_MONO, 0 },
    { "RGB to half, bilinear", RESIZE, PEN_FMT_RGB, PEN_FMT_RGB, STK_BILINEAR },
    { "RGB to half, bicubic", RESIZE, PEN_FMT_RGB, PEN_FMT_RGB, STK_BICUBIC },
    { "RGB blurred 5x5", BLUR, PEN_FMT_RGB, PEN_FMT_RGB, 5 },
    { "RGB blurred 15x15", BLUR, PEN_FMT_RGB, PEN_FMT_RGB, 15 },
    { "RGB blurred 31x31", BLUR, PEN_FMT_RGB, PEN_FMT_RGB, 31 },
};
enum { TASKS = sizeof(tasks) / sizeof(tasks[0]) };

// A task at a size, bound to memory: ready to be done.
struct ready {
    const struct task *task;
    bool cuda;
    struct pen_caps in, out;
    size_t bytes;  // read and written
    uint64_t work;
    struct stk_resize resize;
    struct penk_convert convert;
    struct penk_resize scaling;
    struct penk_blur blur;
    struct pen_grid grid;
};

static enum pen_status view_at(const struct pen_caps *caps, uint64_t address,
                               bool cuda, struct pen_view *out,
                               struct pen_error *err)
{
    struct pen_layout layout;
    PEN_TRY(pen_layout_compute(caps, PEN_PITCH_ALIGN, &layout, err));
    *out = (struct pen_view){
        .mem = cuda ? PEN_MEM_CUDA_DEVICE : PEN_MEM_HOST,
        .format = caps->format,
        .width = caps->width,
        .height = caps->height,
        .planes = layout.planes,
        .bytes = layout.bytes,
    };
    for (uint32_t i = 0; i < layout.planes; i++) {
        const uint64_t at = address + layout.plane[i].offset;
        out->plane[i] = (struct pen_plane){
            .host = cuda ? NULL : (void *)(uintptr_t)at,
            .address = at,
            .pitch = layout.plane[i].pitch,
            .row_bytes = layout.plane[i].row_bytes,
            .rows = layout.plane[i].rows,
        };
    }
    return PEN_OK;
}

// The tables lie in the second half of the block that is read.
static enum pen_status bind_resize(struct bench *b, struct ready *r,
                                   const struct pen_view *dst,
                                   const struct pen_view *src,
                                   struct pen_error *err)
{
    const size_t half = (r->cuda ? b->most : b->host_bytes) / 2;
    const uint64_t block = r->cuda ? b->device[0] : (uintptr_t)b->host[0];
    PEN_TRY(stk_resize_setup(
        r->in.format, r->out.width, r->out.height, r->in.width, r->in.height,
        (enum stk_interpolation)r->task->arg, &r->resize, err));
    if (r->resize.table_bytes > half || src->bytes > half)
        return pen_error_set(err, PEN_E_LIMIT, 0, "calibrate",
                             "the tables of \"%s\" do not fit", r->task->name);
    void *table = r->cuda ? b->pinned : (void *)(uintptr_t)(block + half);
    stk_resize_weights(&r->resize, table);
    if (r->cuda) {
        const struct copy c = { STK_COPY_H2D, block + half,
                                (uintptr_t)b->pinned, r->resize.table_bytes };
        PEN_TRY(do_copy(b, &c, 1, err));
    }
    stk_resize_bind(&r->resize, block + half, dst, src, &r->scaling);
    stk_resize_grid(&r->scaling, &r->grid);
    return PEN_OK;
}

static enum pen_status bind(struct bench *b, struct ready *r,
                            struct pen_error *err)
{
    struct pen_view dst, src;
    const uint64_t in = r->cuda ? b->device[0] : (uintptr_t)b->host[0];
    const uint64_t out = r->cuda ? b->device[1] : (uintptr_t)b->host[1];
    PEN_TRY(view_at(&r->in, in, r->cuda, &src, err));
    PEN_TRY(view_at(&r->out, out, r->cuda, &dst, err));
    r->bytes = src.bytes + dst.bytes;
    switch (r->task->op) {
    case CONVERT:
        r->work = stk_work_convert(&r->in, &r->out);
        PEN_TRY(stk_convert_setup(&r->out, &r->in, &r->convert, err));
        stk_convert_bind(&r->convert, &dst, &src);
        stk_convert_grid(&r->convert, &r->grid);
        return PEN_OK;
    case RESIZE:
        r->work = stk_work_resize(
            &r->in, &r->out, (enum stk_interpolation)r->task->arg, r->cuda);
        return bind_resize(b, r, &dst, &src, err);
    case BLUR:
        r->work = stk_work_blur(&r->in, r->task->arg, r->cuda);
        PEN_TRY(stk_blur_setup(r->in.format, r->in.width, r->in.height,
                               r->task->arg, r->task->arg / 6.0, &r->blur,
                               err));
        stk_blur_bind(&r->blur, &dst, &src);
        stk_blur_grid(&r->blur, &r->grid);
        return PEN_OK;
    }
    return PEN_OK;
}

static enum pen_status make_ready(struct bench *b, const struct task *task,
                                  bool cuda, int32_t width, int32_t height,
                                  struct ready *r, struct pen_error *err)
{
    *r = (struct ready){ .task = task, .cuda = cuda };
    r->in = (struct pen_caps){
        .kind = PEN_KIND_RAW_IMAGE,
        .format = task->from,
        .width = width,
        .height = height,
        .matrix = PEN_MATRIX_BT601,
        .range =
            task->from == PEN_FMT_NV12 ? PEN_RANGE_LIMITED : PEN_RANGE_FULL,
    };
    stk_convert_caps(&r->in, task->to, PEN_RANGE_UNKNOWN, &r->out);
    if (task->op == RESIZE) {
        r->out.width /= 2;
        r->out.height /= 2;
    }
    return bind(b, r, err);
}

static enum pen_status do_on_host(struct bench *b, const void *what,
                                  unsigned times, struct pen_error *err)
{
    const struct ready *r = what;
    (void)b;
    (void)err;
    for (unsigned i = 0; i < times; i++) {
        if (r->task->op == CONVERT)
            stk_cpu_convert(&r->convert, 0, r->out.height);
        else if (r->task->op == RESIZE)
            stk_cpu_resize(&r->scaling, 0, r->out.height);
        else
            stk_cpu_blur(&r->blur, 0, r->out.height);
    }
    return PEN_OK;
}

static enum pen_status do_on_device(struct bench *b, const void *what,
                                    unsigned times, struct pen_error *err)
{
    const struct ready *r = what;
    const struct {
        const struct pen_kernel_image *image;
        uint32_t entry;
        const void *args;
        size_t size;
    } calls[] = {
        [CONVERT] = { &stk_image_convert, PENK_KERNEL_CONVERT, &r->convert,
                      sizeof(r->convert) },
        [RESIZE] = { &stk_image_resize, PENK_KERNEL_RESIZE, &r->scaling,
                     sizeof(r->scaling) },
        [BLUR] = { &stk_image_blur, PENK_KERNEL_BLUR, &r->blur,
                   sizeof(r->blur) },
    };
    struct stk_kernels *kernels =
        stk_kernels_find(b->dev, calls[r->task->op].image);
    for (unsigned i = 0; i < times; i++)
        PEN_TRY(stk_stream_launch(b->stream, kernels, calls[r->task->op].entry,
                                  &r->grid, calls[r->task->op].args,
                                  calls[r->task->op].size, err));
    return await_all(b, err);
}

// Nanoseconds that are left for the operations when bytes and launch are paid.
static double rest(const struct bench *b, const struct ready *r, double ns)
{
    const struct pen_profile *p = &b->out->profile;
    const double bytes = (double)r->bytes * 1e3;
    return r->cuda ? ns - bytes / p->device_rate - p->launch_ns
                   : ns - bytes / p->host_rate;
}

// The operations' rate is the median of the tasks that are not over with their
// bytes; where all are, that of the one with most to do.
static enum pen_status operators(struct bench *b, bool cuda, uint32_t *rate,
                                 struct pen_error *err)
{
    const int32_t width = b->quick                   ? 64
                          : cuda && b->info.emulated ? 640
                          : cuda                     ? 3840
                                                     : 1280;
    const int32_t height = width * 9 / 16;
    double rates[TASKS], all = 0;
    unsigned count = 0;
    for (unsigned i = 0; i < TASKS; i++) {
        struct ready r;
        struct stk_measure *m;
        char what[64];
        snprintf(what, sizeof(what), "%s: %s", cuda ? "kernel" : "CPU",
                 tasks[i].name);
        PEN_TRY(make_ready(b, &tasks[i], cuda, width, height, &r, err));
        PEN_TRY(measure(b, cuda ? do_on_device : do_on_host, &r,
                        cuda ? CLOCK_MONOTONIC : CLOCK_THREAD_CPUTIME_ID, what,
                        &m, err));
        const double left = rest(b, &r, m->median);
        if ((double)r.work * 1e3 / m->median > all)
            all = (double)r.work * 1e3 / m->median;
        if (left > m->median / 4)
            rates[count++] = (double)r.work * 1e3 / left;
        as_rate(m, (double)r.work, "operations/us");
    }
    qsort(rates, count, sizeof(*rates), by_size);
    *rate = whole(count ? rates[count / 2] : all);
    return PEN_OK;
}

static enum pen_status host_operators(struct bench *b, struct pen_error *err)
{
    return operators(b, false, &b->out->profile.host_operations, err);
}

static enum pen_status device_operators(struct bench *b, struct pen_error *err)
{
    return operators(b, true, &b->out->profile.device_operations, err);
}

// A picture of one block of threads.
static enum pen_status launches(struct bench *b, struct pen_error *err)
{
    struct ready r;
    struct stk_measure *m;
    PEN_TRY(make_ready(b, &tasks[0], true, 16, 8, &r, err));
    PEN_TRY(measure(b, do_on_device, &r, CLOCK_MONOTONIC, "launch of a kernel",
                    &m, err));
    b->out->profile.launch_ns = whole(m->median);
    return PEN_OK;
}

// --- the device -------------------------------------------------------------

static enum pen_status open_device(struct bench *b, double *ns,
                                   struct pen_error *err)
{
    const int64_t start = stk_now();
    PEN_TRY(stk_device_open_for(&b->params->device, b->ledger, "calibrate",
                                &b->dev, err));
    *ns = (double)(stk_now() - start);
    return PEN_OK;
}

static enum pen_status load_kernels(struct bench *b, double *samples,
                                    unsigned room, unsigned *count,
                                    struct pen_error *err)
{
    for (unsigned i = 0; stk_images[i] && *count < room; i++) {
        struct stk_kernels *kernels;
        const int64_t start = stk_now();
        PEN_TRY(stk_kernels_load(b->dev, stk_images[i], &kernels, err));
        samples[(*count)++] = (double)(stk_now() - start);
    }
    return PEN_OK;
}

// The first opening starts the driver, which a run pays too; those after it
// only make the context anew, if nobody else has one.
static enum pen_status openings(struct bench *b, struct pen_error *err)
{
    enum { ROOM = 8 * OPENINGS };
    double opened[OPENINGS], loaded[ROOM];
    unsigned loads = 0;
    for (unsigned i = 0; i < OPENINGS; i++) {
        pen_device_close(&b->dev);
        PEN_TRY(open_device(b, &opened[i], err));
        PEN_TRY(load_kernels(b, loaded, ROOM, &loads, err));
    }
    struct pen_profile *p = &b->out->profile;
    p->context_ns = whole(opened[0]);
    summarize(b, opened, 1, "driver and context, the first time");
    summarize(b, opened + 1, OPENINGS - 1, "context, once more");
    p->load_ns =
        whole(summarize(b, loaded, loads, "load of a kernel image")->median);
    return PEN_OK;
}

static enum pen_status describe(struct bench *b, struct pen_error *err)
{
    struct pen_profile *p = &b->out->profile;
    PEN_TRY(pen_device_get_info(b->dev, &b->info, err));
    snprintf(p->device_name, sizeof(p->device_name), "%s", b->info.name);
    snprintf(b->out->uuid, sizeof(b->out->uuid), "%s", b->info.uuid);
    b->out->driver_version = b->info.driver_version;
    p->cuda = !b->info.emulated;
    p->emulated = b->info.emulated;
    p->host_memory = stk_machine_memory();
    p->cuda_memory = b->info.free_bytes;
    p->copy_engines = (uint32_t)b->info.copy_engines;
    return PEN_OK;
}

static enum pen_status take_memory(struct bench *b, struct pen_error *err)
{
    b->most = b->quick ? 1 << 20 : b->info.emulated ? 4 << 20 : 64 << 20;
    b->host_bytes = b->quick ? 1 << 20 : 32 << 20;
    PEN_TRY(stk_pinned_alloc(b->dev, b->most, "calibrate", PEN_HERE, &b->pinned,
                             err));
    for (unsigned i = 0; i < 2; i++) {
        PEN_TRY(stk_device_alloc(b->dev, b->most, "calibrate", PEN_HERE,
                                 &b->device[i], err));
        b->host[i] = malloc(b->host_bytes);
        if (!b->host[i])
            return pen_error_set(err, PEN_E_NOMEM, 0, "calibrate",
                                 "no host memory for %zu bytes", b->host_bytes);
    }
    // Touched, and not all alike.
    for (size_t i = 0; i < b->host_bytes; i++)
        b->host[0][i] = (uint8_t)(i / 3 ^ i >> 9);
    memset(b->host[1], 2, b->host_bytes);
    memset(b->pinned, 3, b->most);
    return stk_stream_create(b->dev, "calibrate", &b->stream, err);
}

static void give_back(struct bench *b)
{
    stk_stream_destroy(&b->stream);
    for (unsigned i = 0; i < 2; i++) {
        free(b->host[i]);
        if (b->device[i])
            stk_device_free(b->dev, b->device[i], b->most);
    }
    if (b->pinned)
        stk_pinned_free(b->dev, b->pinned, b->most);
    pen_device_close(&b->dev);
}

// --- what there is ----------------------------------------------------------

static unsigned libraries(void)
{
    static const struct {
        unsigned bit;
        const char *name;
    } known[] = {
        { PEN_LIBRARY_NVJPEG, "libnvjpeg.so.13" },
        { PEN_LIBRARY_NVJPEG, "libnvjpeg.so.12" },
        { PEN_LIBRARY_NVJPEG, "libnvjpeg.so.11" },
        { PEN_LIBRARY_NVCUVID, "libnvcuvid.so.1" },
        { PEN_LIBRARY_NVENC, "libnvidia-encode.so.1" },
        { PEN_LIBRARY_NPP, "libnppc.so.13" },
        { PEN_LIBRARY_NPP, "libnppc.so.12" },
        { PEN_LIBRARY_NPP, "libnppc.so.11" },
    };
    unsigned found = 0;
    for (unsigned i = 0; i < sizeof(known) / sizeof(known[0]); i++) {
        if (found & known[i].bit)
            continue;
        // They stay: some start threads of their own.
        void *library =
            dlopen(known[i].name, RTLD_LAZY | RTLD_LOCAL | RTLD_NODELETE);
        if (library) {
            found |= known[i].bit;
            dlclose(library);
        }
    }
    return found;
}

static void name_processor(char *text, size_t size)
{
    FILE *f = fopen("/proc/cpuinfo", "re");
    char line[512];
    text[0] = '\0';
    while (f && !text[0] && fgets(line, sizeof(line), f)) {
        const char *colon = strchr(line, ':');
        if (strncmp(line, "model name", 10) != 0 || !colon)
            continue;
        const char *name = colon + 1 + strspn(colon + 1, " \t");
        snprintf(text, size, "%.*s", (int)strcspn(name, "\n"), name);
    }
    if (f)
        fclose(f);
}

static enum pen_status capabilities(struct bench *b, struct pen_error *err)
{
    struct pen_profile *p = &b->out->profile;
    struct stk_dmabuf_caps caps;
    (void)err;
    stk_dmabuf_probe(b->dev, &caps);
    p->dmabuf = (caps.host ? PEN_DMABUF_HOST : 0) |
                (caps.export ? PEN_DMABUF_EXPORT : 0) |
                (caps.import ? PEN_DMABUF_IMPORT : 0);
    const char *const why[] = { caps.why_host, caps.why_export,
                                caps.why_import };
    for (unsigned i = 0; i < 3; i++)
        snprintf(p->why_dmabuf[i], sizeof(p->why_dmabuf[i]), "%s", why[i]);
    name_processor(p->cpu_name, sizeof(p->cpu_name));
    p->libraries = p->cuda ? libraries() : 0;
    return PEN_OK;
}

// "NVIDIA H200" -> "nvidia-h200".
static void make_name(struct bench *b)
{
    struct pen_profile *p = &b->out->profile;
    if (b->params->name) {
        snprintf(p->name, sizeof(p->name), "%s", b->params->name);
        return;
    }
    size_t n = 0;
    for (const char *c = p->device_name; *c && n + 1 < sizeof(p->name); c++) {
        const char lower = *c >= 'A' && *c <= 'Z' ? (char)(*c - 'A' + 'a') : *c;
        const bool plain = (lower >= 'a' && lower <= 'z') ||
                           (lower >= '0' && lower <= '9') || lower == '.';
        if (plain)
            p->name[n++] = lower;
        else if (n && p->name[n - 1] != '-')
            p->name[n++] = '-';
    }
    while (n && p->name[n - 1] == '-')
        n--;
    p->name[n] = '\0';
    if (!n)
        snprintf(p->name, sizeof(p->name), "calibrated");
}

// --- all --------------------------------------------------------------------

static const struct {
    const char *what;
    enum pen_status (*run)(struct bench *b, struct pen_error *err);
} steps[] = {
    { "copies of pinned memory", pinned_copies },
    { "copies of pageable memory", pageable_copies },
    { "device memory", device_memory },
    { "launches", launches },
    { "kernels", device_operators },
    { "host memory", host_memory },
    { "operators on the CPU", host_operators },
    { "capabilities", capabilities },
};
enum { STEPS = 1 + sizeof(steps) / sizeof(steps[0]) };

static void tell(struct bench *b, const char *what)
{
    if (b->params->progress)
        b->params->progress(b->params->cookie, b->step, STEPS, what);
    b->step++;
}

static enum pen_status run_steps(struct bench *b, struct pen_error *err)
{
    tell(b, "driver and context");
    PEN_TRY(openings(b, err));
    PEN_TRY(describe(b, err));
    PEN_TRY(take_memory(b, err));
    STK_SCOPE scope = { 0 };
    PEN_TRY(stk_scope_enter(&scope, b->dev, err));
    for (unsigned i = 0; i < STEPS - 1; i++) {
        tell(b, steps[i].what);
        PEN_TRY(steps[i].run(b, err));
    }
    make_name(b);
    return PEN_OK;
}

enum pen_status stk_calibrate(const struct pen_calibrate_params *params,
                              struct stk_ledger *ledger, bool quick,
                              struct pen_calibration **out,
                              struct pen_error *err)
{
    *out = NULL;
    struct pen_calibration *c = calloc(1, sizeof(*c));
    if (!c)
        return pen_error_set(err, PEN_E_NOMEM, 0, "calibrate", "out of memory");
    if (params->name &&
        (!*params->name || strlen(params->name) >= sizeof(c->profile.name))) {
        free(c);
        return pen_error_set(err, PEN_E_ARG, 0, "calibrate",
                             "a profile's name has 1 to %zu bytes",
                             sizeof(c->profile.name) - 1);
    }
    struct bench b = {
        .params = params,
        .out = c,
        .ledger = ledger,
        .quick = quick,
    };
    const enum pen_status st = run_steps(&b, err);
    give_back(&b);
    if (st != PEN_OK) {
        free(c);
        return st;
    }
    *out = c;
    return PEN_OK;
}

enum pen_status pen_calibrate(const struct pen_calibrate_params *params,
                              struct pen_calibration **out,
                              struct pen_error *err)
{
    static const struct pen_calibrate_params defaults = { 0 };
    *out = NULL;
    struct stk_ledger *ledger = stk_ledger_create(true);
    if (!ledger)
        return pen_error_set(err, PEN_E_NOMEM, 0, "calibrate", "out of memory");
    const enum pen_status st =
        stk_calibrate(params ? params : &defaults, ledger, false, out, err);
    stk_ledger_destroy(&ledger);
    return st;
}

void pen_calibration_destroy(struct pen_calibration **calibration)
{
    free(*calibration);
    *calibration = NULL;
}

const struct pen_profile *
pen_calibration_profile(const struct pen_calibration *calibration)
{
    return &calibration->profile;
}
