#include "run_world.h"

#include <stdio.h>
#include <time.h>

#include "src/graph/graph.h"
#include "src/run/run.h"

struct world world;

// --- properties -------------------------------------------------------------

enum fail_in { IN_NOTHING, IN_OPEN, IN_PREPARE, IN_PROCESS, IN_DRAIN };
enum { COPY_H2D, COPY_D2H };

struct props {
    int32_t width, height, frames;
    int32_t grow;  // frame n is n % 3 * grow pixels wider
    bool unknown;  // sizes are told by prepare() only
    int32_t mem, kind;
    int32_t slot, expect;
    bool twice;
    int32_t flat;  // every sample is this; -1: the pattern
    int32_t patterns;
    int32_t fail_in, fail_at, fail_times;
    int32_t value;
};

struct state {
    int32_t failures;
    uint64_t made;
    void *memory;
    uint64_t device;
    struct pen_frame *held;
};

static const struct pen_choice mems[] = {
    { "HOST", PEN_MEM_HOST, "pageable" },
    { "HOST_PINNED", PEN_MEM_HOST_PINNED, "pinned" },
    { 0 },
};
static const struct pen_choice copies[] = {
    { "HostToDevice", COPY_H2D, "upload" },
    { "DeviceToHost", COPY_D2H, "download" },
    { 0 },
};
static const struct pen_choice fails[] = {
    { "nothing", IN_NOTHING, "" }, { "open", IN_OPEN, "" },
    { "prepare", IN_PREPARE, "" }, { "process", IN_PROCESS, "" },
    { "drain", IN_DRAIN, "" },     { 0 },
};

// clang-format off
#define P struct props
#define FAIL_ROWS                                                              \
    PEN_ENUM(P, fail_in, "failIn", IN_NOTHING, fails, "Where it fails."),      \
    PEN_I32(P, fail_at, "failAt", 0, 0, 100000, "At which frame."),            \
    PEN_I32(P, fail_times, "failTimes", 1, 0, 100000, "How often.")
static const struct pen_prop source_props[] = {
    PEN_I32(P, width, "width", 16, 1, 4096, "Width."),
    PEN_I32(P, height, "height", 8, 1, 4096, "Height."),
    PEN_I32(P, frames, "frames", 10, 0, 1000000, "0: no end."),
    PEN_I32(P, grow, "grow", 0, 0, 4096, "Growth."),
    PEN_BOOL(P, unknown, "unknown", false, "Size known from prepare."),
    PEN_ENUM(P, mem, "memType", PEN_MEM_HOST, mems, "Memory."),
    FAIL_ROWS,
    PEN_PROPS_END,
};
static const struct pen_prop copy_props[] = {
    PEN_ENUM(P, kind, "kind", COPY_H2D, copies, "Direction.",
             .flags = PEN_PROP_REQUIRED),
    PEN_PROPS_END,
};
static const struct pen_prop sink_props[] = {
    PEN_I32(P, slot, "slot", 0, 0, WORLD_SINKS - 1, "Where it notes."),
    PEN_I32(P, expect, "expect", 0, 0, 255, "What was added."),
    PEN_BOOL(P, twice, "twice", false, "Two patterns were added."),
    PEN_I32(P, flat, "flat", -1, -1, 255, "All samples are this."),
    PEN_I32(P, patterns, "patterns", -1, -1, 255,
            "TCount: so many were added (modulo 256); -1: it does not look."),
    FAIL_ROWS,
    PEN_PROPS_END,
};
static const struct pen_prop fail_props[] = {
    FAIL_ROWS,
    PEN_I32(P, value, "value", 0, 0, 255, "What TFill writes."),
    PEN_PROPS_END,
};
#undef P
// clang-format on

static enum pen_status fail_here(struct pen_module *m, enum fail_in where,
                                 uint64_t index, struct pen_error *err)
{
    const struct props *p = pen_module_params(m);
    struct state *st = pen_module_state(m);
    if (p->fail_in != (int32_t)where || index < (uint64_t)p->fail_at ||
        st->failures >= p->fail_times)
        return PEN_OK;
    st->failures++;
    return pen_error_set(err, PEN_E_DATA, 77, "", "made to fail");
}

// --- samples ----------------------------------------------------------------

static uint8_t pattern(uint64_t index, int32_t x, int32_t y)
{
    return (uint8_t)(index * 7 + (uint64_t)x * 3 + (uint64_t)y * 5);
}

static void fill(const struct pen_view *view, uint64_t index)
{
    for (int32_t y = 0; y < view->height; y++) {
        uint8_t *row =
            (uint8_t *)view->plane[0].host + (size_t)y * view->plane[0].pitch;
        for (int32_t x = 0; x < view->width; x++)
            row[x] = pattern(index, x, y);
    }
}

static bool is_right(const struct pen_view *view, uint64_t index,
                     const struct props *p)
{
    for (int32_t y = 0; y < view->height; y++) {
        const uint8_t *row = (const uint8_t *)view->plane[0].host +
                             (size_t)y * view->plane[0].pitch;
        for (int32_t x = 0; x < view->width; x++) {
            const uint8_t one = pattern(index, x, y);
            const uint8_t want =
                (uint8_t)((p->twice ? 2 * one : one) + p->expect);
            if (row[x] != (p->flat >= 0 ? p->flat : want))
                return false;
        }
    }
    return true;
}

// --- sources ----------------------------------------------------------------

static struct pen_caps source_caps(const struct props *p, uint64_t index)
{
    return (struct pen_caps){
        .kind = PEN_KIND_RAW_IMAGE,
        .format = PEN_FMT_MONO,
        .width = p->width + (int32_t)(index % 3) * p->grow,
        .height = p->height,
        .matrix = PEN_MATRIX_BT601,
        .range = PEN_RANGE_FULL,
    };
}

static void source_narrow(const void *params, struct pen_pin_set *in,
                          struct pen_pin_set *out)
{
    const struct props *p = params;
    (void)in;
    out[0].mem = PEN_MEM_BIT(p->mem);
}

static enum pen_status source_negotiate(const void *params,
                                        const struct pen_caps *in,
                                        struct pen_caps *out,
                                        struct pen_error *err)
{
    const struct props *p = params;
    (void)in;
    (void)err;
    out[0] = source_caps(p, 0);
    if (p->unknown)
        out[0].width = out[0].height = 0;
    return PEN_OK;
}

static enum pen_status source_prepare(struct pen_module *m,
                                      const struct pen_io *io,
                                      struct pen_caps *out,
                                      struct pen_error *err)
{
    const struct props *p = pen_module_params(m);
    const uint64_t index = pen_io_index(io);
    if (p->frames && index >= (uint64_t)p->frames)
        return PEN_EOS;
    PEN_TRY(fail_here(m, IN_PREPARE, index, err));
    out[0] = source_caps(p, index);
    return PEN_OK;
}

static enum pen_status source_process(struct pen_module *m,
                                      const struct pen_io *io,
                                      struct pen_error *err)
{
    struct pen_view view;
    const uint64_t index = pen_io_index(io);
    PEN_TRY(fail_here(m, IN_PROCESS, index, err));
    PEN_TRY(
        pen_acquire(io, pen_output(io, 0), PEN_ON_HOST, PEN_WRITE, &view, err));
    fill(&view, index);
    pen_frame_set_pts(pen_output(io, 0), (int64_t)index * 1000);
    atomic_fetch_add(&world.produced, 1);
    return PEN_OK;
}

static enum pen_status token_prepare(struct pen_module *m,
                                     const struct pen_io *io,
                                     struct pen_caps *out,
                                     struct pen_error *err)
{
    while (sem_wait(&world.tokens))
        ;
    return source_prepare(m, io, out, err);
}

// --- what every module notes ------------------------------------------------

static enum pen_status note_open(struct pen_module *m, struct pen_error *err)
{
    struct state *st = pen_module_state(m);
    atomic_fetch_add(&world.opened, 1);
    if (pen_module_stream(m)) {
        const uint32_t n = atomic_fetch_add(&world.stream_count, 1);
        if (n < WORLD_STREAMS)
            world.streams[n] = pen_module_stream(m);
    }
    PEN_TRY(pen_module_alloc(m, 100, &st->memory, err));
    return fail_here(m, IN_OPEN, 0, err);
}

static void note_close(struct pen_module *m)
{
    struct state *st = pen_module_state(m);
    atomic_fetch_add(&world.closed, 1);
    pen_frame_unref(st->held);
    pen_module_free(m, st->memory);
    pen_module_free_device(m, st->device);
}

static enum pen_status note_drain(struct pen_module *m, struct pen_error *err)
{
    atomic_fetch_add(&world.drained, 1);
    return fail_here(m, IN_DRAIN, 0, err);
}

// --- transforms on the host -------------------------------------------------

static enum pen_status add_process(struct pen_module *m,
                                   const struct pen_io *io,
                                   struct pen_error *err)
{
    struct pen_view in, out;
    PEN_TRY(fail_here(m, IN_PROCESS, pen_io_index(io), err));
    PEN_TRY(pen_acquire(io, pen_input(io, 0), PEN_ON_HOST, PEN_READ, &in, err));
    PEN_TRY(
        pen_acquire(io, pen_output(io, 0), PEN_ON_HOST, PEN_WRITE, &out, err));
    for (int32_t y = 0; y < in.height; y++) {
        const uint8_t *from =
            (const uint8_t *)in.plane[0].host + (size_t)y * in.plane[0].pitch;
        uint8_t *to =
            (uint8_t *)out.plane[0].host + (size_t)y * out.plane[0].pitch;
        for (int32_t x = 0; x < in.width; x++)
            to[x] = (uint8_t)(from[x] + 1);
    }
    return PEN_OK;
}

static enum pen_status add_prepare(struct pen_module *m,
                                   const struct pen_io *io,
                                   struct pen_caps *out, struct pen_error *err)
{
    out[0] = *pen_frame_caps(pen_input(io, 0));
    return fail_here(m, IN_PREPARE, pen_io_index(io), err);
}

static enum pen_status copy_host_process(struct pen_module *m,
                                         const struct pen_io *io,
                                         struct pen_error *err)
{
    struct pen_view in, out;
    (void)m;
    PEN_TRY(pen_acquire(io, pen_input(io, 0), PEN_ON_HOST, PEN_READ, &in, err));
    PEN_TRY(
        pen_acquire(io, pen_output(io, 0), PEN_ON_HOST, PEN_WRITE, &out, err));
    return pen_copy(io, &out, &in, err);
}

static enum pen_status forward_process(struct pen_module *m,
                                       const struct pen_io *io,
                                       struct pen_error *err)
{
    PEN_TRY(fail_here(m, IN_PROCESS, pen_io_index(io), err));
    pen_forward(io, 0, 0);
    return PEN_OK;
}

static enum pen_status join_process(struct pen_module *m,
                                    const struct pen_io *io,
                                    struct pen_error *err)
{
    struct pen_view a, b, out;
    PEN_TRY(pen_acquire(io, pen_input(io, 0), PEN_ON_HOST, PEN_READ, &a, err));
    PEN_TRY(pen_acquire(io, pen_input(io, 1), PEN_ON_HOST, PEN_READ, &b, err));
    PEN_TRY(
        pen_acquire(io, pen_output(io, 0), PEN_ON_HOST, PEN_WRITE, &out, err));
    if (pen_frame_index(pen_input(io, 0)) != pen_frame_index(pen_input(io, 1)))
        return pen_error_set(err, PEN_E_STATE, 0, pen_module_id(m),
                             "frames that do not belong together");
    for (int32_t y = 0; y < out.height; y++) {
        const size_t at = (size_t)y;
        const uint8_t *p = (uint8_t *)a.plane[0].host + at * a.plane[0].pitch;
        const uint8_t *q = (uint8_t *)b.plane[0].host + at * b.plane[0].pitch;
        uint8_t *to = (uint8_t *)out.plane[0].host + at * out.plane[0].pitch;
        for (int32_t x = 0; x < out.width; x++)
            to[x] = (uint8_t)(p[x] + q[x]);
    }
    return PEN_OK;
}

static enum pen_status stuck_process(struct pen_module *m,
                                     const struct pen_io *io,
                                     struct pen_error *err)
{
    (void)m;
    (void)err;
    atomic_fetch_add(&world.stuck, 1);
    while (sem_wait(&world.release))
        ;
    pen_forward(io, 0, 0);
    return PEN_OK;
}

// A class that breaks its promise: the frame that leaves is larger, or of
// another kind, than was planned.
static enum pen_status liar_prepare(struct pen_module *m,
                                    const struct pen_io *io,
                                    struct pen_caps *out, struct pen_error *err)
{
    (void)m;
    (void)err;
    out[0] = *pen_frame_caps(pen_input(io, 0));
    out[0].format = PEN_FMT_RGB;
    return PEN_OK;
}

static enum pen_status nothing_process(struct pen_module *m,
                                       const struct pen_io *io,
                                       struct pen_error *err)
{
    (void)m;
    (void)io;
    (void)err;
    return PEN_OK;
}

static enum pen_status late_process(struct pen_module *m,
                                    const struct pen_io *io,
                                    struct pen_error *err)
{
    (void)m;
    (void)io;
    return pen_error_set(err, PEN_E_TIMEOUT, 0, "", "the camera is silent");
}

static enum pen_status again_process(struct pen_module *m,
                                     const struct pen_io *io,
                                     struct pen_error *err)
{
    (void)m;
    (void)io;
    (void)err;
    return PEN_AGAIN;
}

static enum pen_status odd_prepare(struct pen_module *m,
                                   const struct pen_io *io,
                                   struct pen_caps *out, struct pen_error *err)
{
    (void)m;
    (void)err;
    out[0] = *pen_frame_caps(pen_input(io, 0));
    return pen_io_index(io) % 2 ? PEN_OK : PEN_AGAIN;
}

static enum pen_status early_process(struct pen_module *m,
                                     const struct pen_io *io,
                                     struct pen_error *err)
{
    (void)m;
    (void)err;
    if (pen_io_index(io) >= 3)
        return PEN_EOS;
    pen_forward(io, 0, 0);
    return PEN_OK;
}

// --- sinks ------------------------------------------------------------------

static void note_frame(const struct props *p, uint64_t index, bool right)
{
    struct world_sink *s = &world.sink[p->slot];
    const uint32_t n = atomic_load(&s->count);
    if (!right)
        atomic_fetch_add(&s->wrong, 1);
    if (n && n <= WORLD_FRAMES && s->index[n - 1] >= index)
        atomic_fetch_add(&s->disorder, 1);
    if (n < WORLD_FRAMES)
        s->index[n] = index;
    atomic_store(&s->count, n + 1);
}

static enum pen_status sink_process(struct pen_module *m,
                                    const struct pen_io *io,
                                    struct pen_error *err)
{
    const struct props *p = pen_module_params(m);
    struct pen_frame *in = pen_input(io, 0);
    PEN_TRY(fail_here(m, IN_PROCESS, pen_io_index(io), err));
    if (pen_frame_mem(in) == PEN_MEM_CUDA_DEVICE) {
        note_frame(p, pen_frame_index(in), true);
        return PEN_OK;
    }
    struct pen_view view;
    PEN_TRY(pen_acquire(io, in, PEN_ON_HOST, PEN_READ, &view, err));
    const uint64_t index = pen_frame_index(in);
    note_frame(p, index,
               is_right(&view, index, p) &&
                   pen_frame_pts(in) == (int64_t)index * 1000);
    return PEN_OK;
}

static enum pen_status look_at(const struct pen_io *io, uint64_t index,
                               const struct props *p, struct pen_error *err)
{
    struct pen_view view;
    PEN_TRY(
        pen_acquire(io, pen_input(io, 0), PEN_ON_HOST, PEN_READ, &view, err));
    uint32_t wrong = 0;
    for (int32_t y = 0; y < view.height; y++) {
        const uint8_t *row = (const uint8_t *)view.plane[0].host +
                             (size_t)y * view.plane[0].pitch;
        for (int32_t x = 0; x < view.width; x++) {
            const int want = p->patterns * pattern(index, x, y) + p->expect;
            wrong += row[x] != (uint8_t)want;
        }
    }
    if (wrong)
        atomic_fetch_add(&world.wrong, 1);
    return PEN_OK;
}

// Any number of these may run at once: each looks at its own frames.
static enum pen_status count_process(struct pen_module *m,
                                     const struct pen_io *io,
                                     struct pen_error *err)
{
    struct state *st = pen_module_state(m);
    const uint64_t index = pen_frame_index(pen_input(io, 0));
    PEN_TRY(fail_here(m, IN_PROCESS, index, err));
    const struct props *p = pen_module_params(m);
    if (p->patterns >= 0)
        PEN_TRY(look_at(io, index, p, err));
    if (st->made > index)
        atomic_fetch_add(&world.disorder, 1);
    st->made = index + 1;
    atomic_fetch_add(&world.counted, 1);
    return PEN_OK;
}

static enum pen_status hold_process(struct pen_module *m,
                                    const struct pen_io *io,
                                    struct pen_error *err)
{
    while (sem_wait(&world.tokens))
        ;
    return sink_process(m, io, err);
}

// Holds each frame back until the next one comes, and the last until drain().
static enum pen_status keeper_process(struct pen_module *m,
                                      const struct pen_io *io,
                                      struct pen_error *err)
{
    struct state *st = pen_module_state(m);
    (void)err;
    if (st->held)
        note_frame(pen_module_params(m), pen_frame_index(st->held), true);
    pen_frame_unref(st->held);
    st->held = pen_frame_ref(pen_input(io, 0));
    return PEN_OK;
}

static enum pen_status keeper_drain(struct pen_module *m, struct pen_error *err)
{
    struct state *st = pen_module_state(m);
    (void)err;
    if (st->held)
        note_frame(pen_module_params(m), pen_frame_index(st->held), true);
    pen_frame_unref(st->held);
    st->held = NULL;
    return PEN_OK;
}

static enum pen_status thief_process(struct pen_module *m,
                                     const struct pen_io *io,
                                     struct pen_error *err)
{
    (void)m;
    (void)err;
    if (!world.kept)
        world.kept = pen_frame_ref(pen_input(io, 0));
    return PEN_OK;
}

// Keeps its memory and allocates for every frame.
static enum pen_status waster_process(struct pen_module *m,
                                      const struct pen_io *io,
                                      struct pen_error *err)
{
    void *memory;
    (void)io;
    return pen_module_alloc(m, 1000, &memory, err);
}

// --- on the device ----------------------------------------------------------

static void copy_narrow(const void *params, struct pen_pin_set *in,
                        struct pen_pin_set *out)
{
    const struct props *p = params;
    const bool up = p->kind == COPY_H2D;
    in[0].mem = PEN_MEM_BIT(up ? PEN_MEM_HOST_PINNED : PEN_MEM_CUDA_DEVICE);
    out[0].mem = PEN_MEM_BIT(up ? PEN_MEM_CUDA_DEVICE : PEN_MEM_HOST_PINNED);
}

static enum pen_status copy_process(struct pen_module *m,
                                    const struct pen_io *io,
                                    struct pen_error *err)
{
    struct pen_view in, out;
    const struct props *p = pen_module_params(m);
    PEN_TRY(
        pen_acquire(io, pen_input(io, 0), PEN_ON_STREAM, PEN_READ, &in, err));
    PEN_TRY(pen_acquire(io, pen_output(io, 0), PEN_ON_STREAM, PEN_WRITE, &out,
                        err));
    PEN_TRY(pen_copy(io, &out, &in, err));
    if (p->kind == COPY_H2D)
        atomic_fetch_add(&world.uploaded, 1);
    return PEN_OK;
}

static enum pen_status gate_process(struct pen_module *m,
                                    const struct pen_io *io,
                                    struct pen_error *err)
{
    if (world.gate) {
        const struct pen_grid grid = { 1, 1, 1, 1, 1 };
        const uint64_t flag = (uintptr_t)world.gate->flag;
        PEN_TRY(pen_launch(io, &fixture_image, FIXTURE_GATE, &grid, &flag,
                           sizeof(flag), err));
    }
    return copy_process(m, io, err);
}

struct fill_block {
    uint64_t dst;
    uint32_t value, count;
};

// Every sample becomes `value`, or pattern's first where the input is used.
static enum pen_status fill_process(struct pen_module *m,
                                    const struct pen_io *io,
                                    struct pen_error *err)
{
    const struct props *p = pen_module_params(m);
    struct pen_view out;
    PEN_TRY(pen_acquire(io, pen_output(io, 0), PEN_ON_STREAM, PEN_WRITE, &out,
                        err));
    const struct fill_block block = {
        .dst = out.plane[0].address,
        .value = (uint32_t)p->value * 0x01010101u,
        .count = (uint32_t)(out.bytes / 4),
    };
    const struct pen_grid grid = { (block.count + 63) / 64, 1, 1, 64, 1 };
    return pen_launch(io, &fixture_image, FIXTURE_FILL, &grid, &block,
                      sizeof(block), err);
}

static enum pen_status sync_process(struct pen_module *m,
                                    const struct pen_io *io,
                                    struct pen_error *err)
{
    bool reached;
    (void)m;
    PEN_TRY(pen_park_on_stream(io, &reached, err));
    if (!reached)
        return PEN_AGAIN;
    atomic_fetch_add(&world.synced, 1);
    pen_forward(io, 0, 0);
    return PEN_OK;
}

static enum pen_status sync_all_process(struct pen_module *m,
                                        const struct pen_io *io,
                                        struct pen_error *err)
{
    bool reached;
    (void)m;
    PEN_TRY(pen_park_on_context(io, &reached, err));
    if (!reached)
        return PEN_AGAIN;
    atomic_fetch_add(&world.synced, 1);
    pen_forward(io, 0, 0);
    return PEN_OK;
}

static enum pen_status disturb_process(struct pen_module *m,
                                       const struct pen_io *io,
                                       struct pen_error *err)
{
    (void)m;
    (void)err;
    if (pen_io_index(io) == 2)
        world.disturb();
    pen_forward(io, 0, 0);
    return PEN_OK;
}

// Adds a table in device memory, which it fills in open() and for each frame:
// the frame comes out as the row of its input, copied from the table.
static enum pen_status table_open(struct pen_module *m, struct pen_error *err)
{
    struct state *st = pen_module_state(m);
    PEN_TRY(note_open(m, err));
    PEN_TRY(pen_module_alloc_device(m, 4096, &st->device, err));
    const uint8_t bytes[64] = { 1, 2, 3 };
    return pen_module_fill_device(m, st->device, bytes, sizeof(bytes), err);
}

static enum pen_status table_process(struct pen_module *m,
                                     const struct pen_io *io,
                                     struct pen_error *err)
{
    struct state *st = pen_module_state(m);
    struct pen_view in, out, table;
    PEN_TRY(
        pen_acquire(io, pen_input(io, 0), PEN_ON_STREAM, PEN_READ, &in, err));
    PEN_TRY(pen_acquire(io, pen_output(io, 0), PEN_ON_STREAM, PEN_WRITE, &out,
                        err));
    // The table receives the pattern of this frame; the buffer on the stack
    // is gone long before the copy is done.
    uint8_t bytes[4096] = { 0 };
    const size_t pitch = out.plane[0].pitch;
    for (int32_t y = 0; y < out.height; y++)
        for (int32_t x = 0; x < out.width; x++)
            bytes[(size_t)y * pitch + (size_t)x] =
                pattern(pen_io_index(io), x, y);
    PEN_TRY(pen_module_fill_device(m, st->device, bytes, out.bytes, err));
    memset(bytes, 0xee, sizeof(bytes));
    table = out;
    table.plane[0].address = st->device;
    return pen_copy(io, &out, &table, err);
}

// --- classes ----------------------------------------------------------------

#define RAW     PEN_KIND_BIT(PEN_KIND_RAW_IMAGE)
#define HOST    PEN_MEM_BITS_HOST
#define CUDA    PEN_MEM_BIT(PEN_MEM_CUDA_DEVICE)
#define FORMATS (PEN_FMT_BIT(PEN_FMT_MONO) | PEN_FMT_BIT(PEN_FMT_RGB))
#define PIN(NAME, MEM)                                                         \
    {                                                                          \
        .name = NAME, .help = "A pin.", .kinds = RAW, .mem = MEM,              \
        .formats = FORMATS                                                     \
    }
static const struct pen_pin host_in[] = { PIN("input", HOST), { 0 } };
static const struct pen_pin host_out[] = {
    PIN("output", PEN_MEM_BIT(PEN_MEM_HOST)),
    { 0 },
};
static const struct pen_pin source_out[] = { PIN("output", HOST), { 0 } };
static const struct pen_pin cuda_in[] = { PIN("input", CUDA), { 0 } };
static const struct pen_pin cuda_out[] = { PIN("output", CUDA), { 0 } };
static const struct pen_pin any_in[] = { PIN("input", HOST | CUDA), { 0 } };
static const struct pen_pin any_out[] = { PIN("output", HOST | CUDA), { 0 } };
static const struct pen_pin two_in[] = {
    PIN("input_1", HOST),
    PIN("input_2", HOST),
    { 0 },
};

#define CLASS(NAME, CATEGORY)                                                  \
    .abi = PEN_MODULE_ABI, .size = sizeof(struct pen_module_class),            \
    .name = NAME, .version = "1.0", .summary = "A class of the tests",         \
    .category = PEN_CATEGORY_##CATEGORY, .params_size = sizeof(struct props),  \
    .state_size = sizeof(struct state)

static const struct pen_kernel_image *const images[] = { &fixture_image, NULL };

// clang-format off
#define SOURCE(NAME, FLAGS, PREPARE)                                                    \
    { CLASS(NAME, SOURCE), .flags = FLAGS, .outputs = source_out,              \
      .props = source_props,                                                   \
      .ops = { .narrow = source_narrow, .negotiate = source_negotiate,         \
               .open = note_open, .prepare = PREPARE,                          \
               .process = source_process, .drain = note_drain,                 \
               .close = note_close } }
#define TRANSFORM(NAME, FLAGS, IN, OUT, PROPS, ...)                            \
    { CLASS(NAME, TRANSFORM), .flags = FLAGS, .inputs = IN, .outputs = OUT,    \
      .props = PROPS, .kernels = (FLAGS) & PEN_CLASS_CUDA ? images : NULL,     \
      .ops = { .open = note_open, .drain = note_drain, .close = note_close,    \
               .process = __VA_ARGS__ } }
#define SINK(NAME, FLAGS, IN, PROCESS, DRAIN)                                    \
    { CLASS(NAME, SINK), .flags = FLAGS, .inputs = IN,                         \
      .props = sink_props,                                                     \
      .ops = { .open = note_open, .process = PROCESS, .drain = DRAIN,          \
               .close = note_close } }

enum { OWN = PEN_CLASS_BLOCKS, FWD = PEN_CLASS_FORWARDS,
       GPU = PEN_CLASS_CUDA };
static const struct pen_module_class classes[] = {
    SOURCE("TSource", 0, source_prepare),
    SOURCE("TBlockSource", OWN, source_prepare),
    SOURCE("TTokenSource", OWN, token_prepare),
    TRANSFORM("TAdd", 0, host_in, host_out, fail_props, add_process,
              .prepare = add_prepare),
    TRANSFORM("TCopy", 0, host_in, host_out, fail_props, copy_host_process),
    TRANSFORM("TForward", FWD, any_in, any_out, fail_props, forward_process),
    TRANSFORM("TJoin", 0, two_in, host_out, NULL, join_process),
    TRANSFORM("TStuck", FWD | OWN, any_in, any_out, NULL, stuck_process),
    TRANSFORM("TStuckInPool", FWD, any_in, any_out, NULL, stuck_process),
    TRANSFORM("TLiar", 0, host_in, host_out, NULL, nothing_process,
              .prepare = liar_prepare),
    TRANSFORM("TSilent", FWD, any_in, any_out, NULL, nothing_process),
    TRANSFORM("TLate", FWD, any_in, any_out, NULL, late_process),
    TRANSFORM("TAgain", FWD, any_in, any_out, NULL, again_process),
    TRANSFORM("TOdd", 0, host_in, host_out, NULL, copy_host_process,
              .prepare = odd_prepare),
    TRANSFORM("TEarly", FWD, any_in, any_out, NULL, early_process),
    TRANSFORM("CudaMemCopy", GPU | PEN_CLASS_BRIDGE, any_in, any_out,
              copy_props, copy_process, .narrow = copy_narrow),
    TRANSFORM("TDevice", GPU, cuda_in, cuda_out, fail_props, copy_process),
    TRANSFORM("TGate", GPU, cuda_in, cuda_out, fail_props, gate_process),
    TRANSFORM("TFill", GPU, cuda_in, cuda_out, fail_props, fill_process),
    TRANSFORM("TStreamSync", GPU | FWD, cuda_in, cuda_out, NULL,
              sync_process),
    TRANSFORM("TContextSync", GPU | FWD, cuda_in, cuda_out, NULL,
              sync_all_process),
    TRANSFORM("TDisturb", GPU | FWD, cuda_in, cuda_out, NULL,
              disturb_process),
    { CLASS("TTable", TRANSFORM), .flags = GPU, .inputs = cuda_in,
      .outputs = cuda_out,
      .ops = { .open = table_open, .process = table_process,
               .close = note_close } },
    SINK("TSink", 0, host_in, sink_process, note_drain),
    SINK("TCount", 0, host_in, count_process, note_drain),
    SINK("TBlockCount", OWN, host_in, count_process, note_drain),
    SINK("TDeviceSink", 0, cuda_in, sink_process, note_drain),
    SINK("TBlockSink", OWN, host_in, sink_process, note_drain),
    SINK("THold", OWN, host_in, hold_process, note_drain),
    SINK("TKeeper", 0, host_in, keeper_process, keeper_drain),
    SINK("TThief", 0, host_in, thief_process, note_drain),
    SINK("TWaster", 0, host_in, waster_process, note_drain),
};
// clang-format on

// --- runs -------------------------------------------------------------------

void run_init(struct run *r)
{
    memset(&world, 0, sizeof(world));
    sem_init(&world.tokens, 0, 0);
    sem_init(&world.release, 0, 0);
    *r = (struct run){
        .params = {
            .device = { .selector = pen_test_device(),
                        .emulator = pen_test_emulator() },
            .workers = 2,
            .leaks_fatal = true,
            .leak_sites = true,
        },
    };
    RUN_OK(stk_registry_new(&r->registry, &err));
    for (size_t i = 0; i < sizeof(classes) / sizeof(classes[0]); i++)
        RUN_OK(pen_registry_add(r->registry, &classes[i], &err));
    r->issues = pen_issues_create();
    assert_non_null(r->issues);
}

static void print_issues(const struct run *r)
{
    const struct pen_issue *issue;
    for (size_t i = 0; (issue = pen_issues_get(r->issues, i)); i++)
        print_message("%s %s %s: %s\n", pen_severity_name(issue->severity),
                      issue->code, issue->pointer, issue->message);
}

enum pen_status run_try_create(struct run *r, const char *json,
                               struct pen_error *err)
{
    PEN_TRY(pen_description_parse(json, strlen(json), "test.json", &r->desc,
                                  r->issues, err));
    return pen_pipeline_create(r->desc, r->registry, &r->params, &r->p,
                               r->issues, err);
}

void run_create(struct run *r, const char *json)
{
    struct pen_error err = { 0 };
    if (run_try_create(r, json, &err) == PEN_OK)
        return;
    print_issues(r);
    fail_msg("%s: %s", err.where, err.text);
}

void run_all(struct run *r, const char *json)
{
    run_create(r, json);
    RUN_OK(pen_pipeline_start(r->p, &err));
    RUN_OK(pen_pipeline_wait(r->p, 20000000000, &err));
    assert_int_equal(pen_pipeline_state(r->p), PEN_STATE_DONE);
}

struct pen_error run_to_error(struct run *r, const char *json)
{
    struct pen_error err = { 0 };
    run_create(r, json);
    enum pen_status st = pen_pipeline_start(r->p, &err);
    if (st == PEN_OK)
        st = pen_pipeline_wait(r->p, 20000000000, &err);
    assert_true(st < 0);
    assert_int_equal(st, err.status);
    assert_int_not_equal(st, PEN_E_TIMEOUT);
    assert_int_equal(pen_pipeline_state(r->p), PEN_STATE_FAILED);
    return err;
}

struct pen_stats stats_of(const struct run *r)
{
    struct pen_stats s;
    pen_pipeline_stats(r->p, &s);
    return s;
}

void run_finish(struct run *r)
{
    if (r->p && pen_pipeline_state(r->p) != PEN_STATE_CREATED &&
        pen_pipeline_state(r->p) != PEN_STATE_ABANDONED) {
        const struct pen_stats s = stats_of(r);
        if (s.leaks) {
            char *text = pen_pipeline_report_text(r->p);
            print_message("%s", text);
            pen_free(text);
        }
        assert_int_equal(s.leaks, 0);
        for (unsigned m = 0; m < PEN_MEM_COUNT; m++)
            assert_int_equal(s.memory[m].live, 0);
        assert_int_equal(s.contexts_retained, s.contexts_released);
        assert_true(s.blocking_syncs == 0 || r->may_wait);
        assert_int_equal(atomic_load(&world.opened),
                         atomic_load(&world.closed));
    }
    pen_pipeline_destroy(&r->p);
    assert_null(r->p);
    pen_description_destroy(&r->desc);
    pen_issues_destroy(&r->issues);
    pen_registry_destroy(&r->registry);
    sem_destroy(&world.tokens);
    sem_destroy(&world.release);
}

void wait_until(_Atomic uint32_t *counter, uint32_t value)
{
    for (unsigned i = 0; i < 20000; i++) {
        if (atomic_load(counter) >= value)
            return;
        nanosleep(&(struct timespec){ .tv_nsec = 1000000 }, NULL);
    }
    fail_msg("the counter stays at %u and does not get to %u",
             atomic_load(counter), value);
}

void assert_all_arrived(unsigned slot, uint32_t count)
{
    const struct world_sink *s = &world.sink[slot];
    assert_int_equal(atomic_load(&s->count), count);
    assert_int_equal(atomic_load(&s->wrong), 0);
    assert_int_equal(atomic_load(&s->disorder), 0);
    for (uint32_t i = 0; i < count && i < WORLD_FRAMES; i++)
        assert_int_equal(s->index[i], i);
}

void in_all_modes(void (*body)(void))
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
        emu->penemu_set_mode(modes[i], 12345 + i);
        body();
        char text[512];
        if (emu->penemu_report(text, sizeof(text)))
            fail_msg("mode %d: the emulator reports: %s", (int)modes[i], text);
        struct penemu_leaks leaks;
        emu->penemu_get_leaks(&leaks);
        assert_int_equal(leaks.device_blocks + leaks.host_blocks +
                             leaks.streams + leaks.events + leaks.modules +
                             leaks.unfinished,
                         0);
    }
    emu->penemu_reset();
}
