// CCNPPI: pixel formats on the GPU. Also the format bridge of frames in
// device memory.

#include "convert_common.h"
#include "modules.h"

struct params {
    int32_t image_type;
    int32_t range;
};

// clang-format off
#define P struct params
static const struct pen_prop props[] = {
    PEN_ENUM(P, image_type, "imageType", PEN_FMT_RGB, stk_choices_target + 1,
             "Format of the output, from whatever arrives.",
             .flags = PEN_PROP_REQUIRED),
    PEN_ENUM(P, range, "range", PEN_RANGE_UNKNOWN, stk_choices_range,
             "Range of a YUV output; auto: limited, or that of a YUV input."),
    PEN_PROPS_END,
};
#undef P
// clang-format on

static const struct pen_pin inputs[] = {
    STK_PIN_PICTURE("input", "Picture to convert.", STK_MEM_CUDA,
                    PEN_FMT_BITS_ALL11),
    { 0 },
};
static const struct pen_pin outputs[] = {
    STK_PIN_PICTURE("output", "The same picture in the other format.",
                    STK_MEM_CUDA, PEN_FMT_BITS_ALL11),
    { 0 },
};

static void narrow(const void *params, struct pen_pin_set *in,
                   struct pen_pin_set *out)
{
    const struct params *p = params;
    (void)in;
    out->formats = PEN_FMT_BIT((unsigned)p->image_type);
}

static enum pen_status negotiate(const void *params, const struct pen_caps *in,
                                 struct pen_caps *out, struct pen_error *err)
{
    const struct params *p = params;
    (void)err;
    stk_convert_negotiate(in, (enum pen_format)p->image_type, p->range, out);
    return PEN_OK;
}

static enum pen_status prepare(struct pen_module *m, const struct pen_io *io,
                               struct pen_caps *out, struct pen_error *err)
{
    const struct params *p = pen_module_params(m);
    return stk_convert_prepare(pen_module_state(m), io, PEN_FMT_BITS_ALL11,
                               (enum pen_format)p->image_type, p->range, out,
                               err);
}

static enum pen_status process(struct pen_module *m, const struct pen_io *io,
                               struct pen_error *err)
{
    const struct stk_convert_state *st = pen_module_state(m);
    struct pen_view dst, src;
    struct pen_grid grid;

    if (stk_convert_forwards(st, io))
        return PEN_OK;
    struct penk_convert args = st->args;
    PEN_TRY(stk_acquire_both(io, PEN_ON_STREAM, &dst, &src, err));
    stk_convert_bind(&args, &dst, &src);
    stk_convert_grid(&args, &grid);
    return pen_launch(io, &stk_image_convert, PENK_KERNEL_CONVERT, &grid, &args,
                      sizeof(args), err);
}

static const struct pen_kernel_image *const kernels[] = { &stk_image_convert,
                                                          NULL };
static const char *const tags[] = {
    "function:color", "backend:cuda", "media:image", "transform", "color",
    "conversion",     "cuda",         "npp",         NULL,
};

const struct pen_module_class stk_class_ccnppi = {
    .abi = PEN_MODULE_ABI,
    .size = sizeof(struct pen_module_class),
    .name = "CCNPPI",
    .version = "1.0",
    .summary = "Converts between pixel formats on the GPU.",
    .category = PEN_CATEGORY_TRANSFORM,
    .flags = PEN_CLASS_CUDA | PEN_CLASS_BRIDGE,
    .tags = tags,
    .inputs = inputs,
    .outputs = outputs,
    .props = props,
    .params_size = sizeof(struct params),
    .state_size = sizeof(struct stk_convert_state),
    .kernels = kernels,
    .ops = {
        .narrow = narrow,
        .negotiate = negotiate,
        .prepare = prepare,
        .process = process,
        .operations = stk_convert_operations,
    },
};
