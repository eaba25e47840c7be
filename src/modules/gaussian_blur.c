// GaussianBlur: separable Gaussian on the GPU.

#include "../kernels/work.h"
#include "blur_common.h"
#include "modules.h"

static const struct pen_pin inputs[] = {
    STK_PIN_PICTURE("input", "Picture to blur.", STK_MEM_CUDA,
                    STK_BLUR_FORMATS),
    { 0 },
};
static const struct pen_pin outputs[] = {
    STK_PIN_PICTURE("output", "The blurred picture; borders are replicated.",
                    STK_MEM_CUDA, STK_BLUR_FORMATS),
    { 0 },
};

static uint64_t operations(const void *params, const struct pen_caps *in,
                           const struct pen_caps *out)
{
    const struct stk_blur_params *p = params;
    (void)out;
    return stk_work_blur(in, p->kernel_size, true);
}

static enum pen_status process(struct pen_module *m, const struct pen_io *io,
                               struct pen_error *err)
{
    const struct stk_blur_state *st = pen_module_state(m);
    struct penk_blur args = st->args;
    struct pen_view dst, src;
    struct pen_grid grid;

    PEN_TRY(stk_acquire_both(io, PEN_ON_STREAM, &dst, &src, err));
    stk_blur_bind(&args, &dst, &src);
    stk_blur_grid(&args, &grid);
    return pen_launch(io, &stk_image_blur, PENK_KERNEL_BLUR, &grid, &args,
                      sizeof(args), err);
}

static const struct pen_kernel_image *const kernels[] = { &stk_image_blur,
                                                          NULL };
static const char *const tags[] = {
    "function:blur", "backend:cuda", "media:image", "transform",
    "blur",          "cuda",         "npp",         NULL,
};

const struct pen_module_class stk_class_gaussian_blur = {
    .abi = PEN_MODULE_ABI,
    .size = sizeof(struct pen_module_class),
    .name = "GaussianBlur",
    .version = "1.0",
    .summary = "Blurs pictures on the GPU.",
    .category = PEN_CATEGORY_TRANSFORM,
    .flags = PEN_CLASS_CUDA,
    .tags = tags,
    .inputs = inputs,
    .outputs = outputs,
    .props = stk_blur_props,
    .params_size = sizeof(struct stk_blur_params),
    .state_size = sizeof(struct stk_blur_state),
    .kernels = kernels,
    .ops = {
        .check = stk_blur_check,
        .prepare = stk_blur_prepare,
        .process = process,
        .operations = operations,
    },
};
