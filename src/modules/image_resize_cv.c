// ImageResizeCV: scaling on the CPU.

#include "../kernels/work.h"
#include "modules.h"
#include "resize_common.h"

struct state {
    struct stk_resize_state set_up;
    struct stk_workspace table;
};

static const struct pen_pin inputs[] = {
    STK_PIN_PICTURE("input", "Picture to scale.", PEN_MEM_BITS_HOST,
                    STK_RESIZE_FORMATS),
    { 0 },
};
static const struct pen_pin outputs[] = {
    STK_PIN_PICTURE("output", "Picture of width x height.", PEN_MEM_BITS_HOST,
                    STK_RESIZE_FORMATS),
    { 0 },
};

static void workspace(const void *params, const struct pen_caps *in,
                      const struct pen_caps *out, uint64_t bytes[PEN_MEM_COUNT])
{
    (void)out;
    bytes[PEN_MEM_HOST] = stk_resize_tables(params, in);
}

static enum pen_status make_table(struct pen_module *m,
                                  const struct stk_resize *resize,
                                  struct pen_error *err)
{
    struct state *st = pen_module_state(m);
    PEN_TRY(stk_workspace_grow(m, &st->table, resize->table_bytes, err));
    stk_resize_weights(resize, st->table.memory);
    return PEN_OK;
}

static uint64_t operations(const void *params, const struct pen_caps *in,
                           const struct pen_caps *out)
{
    const struct stk_resize_params *p = params;
    return stk_work_resize(in, out, (enum stk_interpolation)p->interpolation,
                           false);
}

static enum pen_status prepare(struct pen_module *m, const struct pen_io *io,
                               struct pen_caps *out, struct pen_error *err)
{
    struct state *st = pen_module_state(m);
    return stk_resize_prepare(m, io, &st->set_up, make_table, out, err);
}

static enum pen_status process(struct pen_module *m, const struct pen_io *io,
                               struct pen_error *err)
{
    const struct state *st = pen_module_state(m);
    struct pen_view dst, src;
    struct penk_resize args;

    PEN_TRY(stk_acquire_both(io, PEN_ON_HOST, &dst, &src, err));
    stk_resize_bind(&st->set_up.resize, (uintptr_t)st->table.memory, &dst, &src,
                    &args);
    stk_cpu_resize(&args, 0, dst.height);
    return PEN_OK;
}

static void close_module(struct pen_module *m)
{
    struct state *st = pen_module_state(m);
    stk_workspace_free(m, &st->table);
}

static const char *const tags[] = {
    "function:resize", "backend:cpu", "media:image", "transform",
    "resize",          "image",       "opencv",      NULL,
};

const struct pen_module_class stk_class_image_resize_cv = {
    .abi = PEN_MODULE_ABI,
    .size = sizeof(struct pen_module_class),
    .name = "ImageResizeCV",
    .version = "1.0",
    .summary = "Scales pictures on the CPU.",
    .category = PEN_CATEGORY_TRANSFORM,
    .tags = tags,
    .inputs = inputs,
    .outputs = outputs,
    .props = stk_resize_props,
    .params_size = sizeof(struct stk_resize_params),
    .state_size = sizeof(struct state),
    .ops = {
        .negotiate = stk_resize_negotiate,
        .prepare = prepare,
        .process = process,
        .close = close_module,
        .workspace = workspace,
        .operations = operations,
    },
};
