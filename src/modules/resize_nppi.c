// ResizeNPPI: scaling on the GPU.

#include "../kernels/work.h"
#include "modules.h"
#include "resize_common.h"

struct state {
    struct stk_resize_state set_up;
    struct stk_workspace host;  // the table on its way
    uint64_t table;             // in device memory
    size_t room;                // its bytes
    bool stale;                 // it is not that of `set_up`
};

static const struct pen_pin inputs[] = {
    STK_PIN_PICTURE("input", "Picture to scale.", STK_MEM_CUDA,
                    STK_RESIZE_FORMATS),
    { 0 },
};
static const struct pen_pin outputs[] = {
    STK_PIN_PICTURE("output", "Picture of width x height.", STK_MEM_CUDA,
                    STK_RESIZE_FORMATS),
    { 0 },
};

// The table, where it is made and where it is sent from.
static void workspace(const void *params, const struct pen_caps *in,
                      const struct pen_caps *out, uint64_t bytes[PEN_MEM_COUNT])
{
    (void)out;
    bytes[PEN_MEM_HOST] = bytes[PEN_MEM_HOST_PINNED] =
        bytes[PEN_MEM_CUDA_DEVICE] = stk_resize_tables(params, in);
}

// Kernels that are still queued may read a table that is too small now. It goes
// when they are done, and only then the new one comes: the plan holds one.
// PEN_AGAIN: parked until then.
static enum pen_status replace_table(struct pen_module *m,
                                     const struct pen_io *io, size_t bytes,
                                     struct pen_error *err)
{
    struct state *st = pen_module_state(m);
    const size_t planned = (size_t)pen_module_planned(m, PEN_MEM_CUDA_DEVICE);
    const size_t room = bytes < planned ? planned : bytes;
    if (st->table) {
        bool reached;
        PEN_TRY(pen_park_on_stream(io, &reached, err));
        if (!reached)
            return PEN_AGAIN;
        pen_module_free_device(m, st->table);
        st->table = 0;
        st->room = 0;
    }
    PEN_TRY(pen_module_alloc_device(m, room, &st->table, err));
    st->room = room;
    return PEN_OK;
}

static enum pen_status make_table(struct pen_module *m, const struct pen_io *io,
                                  struct pen_error *err)
{
    struct state *st = pen_module_state(m);
    const struct stk_resize *resize = &st->set_up.resize;
    const size_t bytes = resize->table_bytes;
    if (bytes > st->room)
        PEN_TRY(replace_table(m, io, bytes, err));
    PEN_TRY(stk_workspace_grow(m, &st->host, bytes, err));
    stk_resize_weights(resize, st->host.memory);
    PEN_TRY(pen_module_fill_device(m, st->table, st->host.memory, bytes, err));
    st->stale = false;
    return PEN_OK;
}

static enum pen_status note_change(struct pen_module *m,
                                   const struct stk_resize *resize,
                                   struct pen_error *err)
{
    struct state *st = pen_module_state(m);
    (void)resize;
    (void)err;
    st->stale = true;
    return PEN_OK;
}

static uint64_t operations(const void *params, const struct pen_caps *in,
                           const struct pen_caps *out)
{
    const struct stk_resize_params *p = params;
    return stk_work_resize(in, out, (enum stk_interpolation)p->interpolation,
                           true);
}

static enum pen_status prepare(struct pen_module *m, const struct pen_io *io,
                               struct pen_caps *out, struct pen_error *err)
{
    struct state *st = pen_module_state(m);
    return stk_resize_prepare(m, io, &st->set_up, note_change, out, err);
}

static enum pen_status process(struct pen_module *m, const struct pen_io *io,
                               struct pen_error *err)
{
    const struct state *st = pen_module_state(m);
    struct pen_view dst, src;
    struct penk_resize args;
    struct pen_grid grid;

    if (st->stale)
        PEN_TRY(make_table(m, io, err));
    PEN_TRY(stk_acquire_both(io, PEN_ON_STREAM, &dst, &src, err));
    stk_resize_bind(&st->set_up.resize, st->table, &dst, &src, &args);
    stk_resize_grid(&args, &grid);
    return pen_launch(io, &stk_image_resize, PENK_KERNEL_RESIZE, &grid, &args,
                      sizeof(args), err);
}

static void close_module(struct pen_module *m)
{
    struct state *st = pen_module_state(m);
    pen_module_free_device(m, st->table);
    stk_workspace_free(m, &st->host);
}

static const struct pen_kernel_image *const kernels[] = { &stk_image_resize,
                                                          NULL };
static const char *const tags[] = {
    "function:resize", "backend:cuda", "media:image", "transform",
    "resize",          "cuda",         "npp",         NULL,
};

const struct pen_module_class stk_class_resize_nppi = {
    .abi = PEN_MODULE_ABI,
    .size = sizeof(struct pen_module_class),
    .name = "ResizeNPPI",
    .version = "1.0",
    .summary = "Scales pictures on the GPU.",
    .category = PEN_CATEGORY_TRANSFORM,
    .flags = PEN_CLASS_CUDA,
    .tags = tags,
    .inputs = inputs,
    .outputs = outputs,
    .props = stk_resize_props,
    .params_size = sizeof(struct stk_resize_params),
    .state_size = sizeof(struct state),
    .kernels = kernels,
    .ops = {
        .negotiate = stk_resize_negotiate,
        .prepare = prepare,
        .process = process,
        .close = close_module,
        .workspace = workspace,
        .operations = operations,
    },
};
