// GaussianBlurCV: the CPU twin of GaussianBlur, bit for bit.

#include "../kernels/work.h"
#include "blur_common.h"
#include "modules.h"

static const struct pen_pin inputs[] = {
    STK_PIN_PICTURE("input", "Picture to blur.", PEN_MEM_BITS_HOST,
                    STK_BLUR_FORMATS),
    { 0 },
};
static const struct pen_pin outputs[] = {
    STK_PIN_PICTURE("output", "The blurred picture; borders are replicated.",
                    PEN_MEM_BITS_HOST, STK_BLUR_FORMATS),
    { 0 },
};

static uint64_t operations(const void *params, const struct pen_caps *in,
                           const struct pen_caps *out)
{
    const struct stk_blur_params *p = params;
    (void)out;
    return stk_work_blur(in, p->kernel_size, false);
}

static enum pen_status process(struct pen_module *m, const struct pen_io *io,
                               struct pen_error *err)
{
    const struct stk_blur_state *st = pen_module_state(m);
    struct penk_blur args = st->args;
    struct pen_view dst, src;

    PEN_TRY(stk_acquire_both(io, PEN_ON_HOST, &dst, &src, err));
    stk_blur_bind(&args, &dst, &src);
    stk_cpu_blur(&args, 0, args.height);
    return PEN_OK;
}

static const char *const tags[] = {
    "function:blur", "backend:cpu", "media:image", "transform", "blur", NULL,
};

const struct pen_module_class stk_class_gaussian_blur_cv = {
    .abi = PEN_MODULE_ABI,
    .size = sizeof(struct pen_module_class),
    .name = "GaussianBlurCV",
    .version = "1.0",
    .summary = "Blurs pictures on the CPU.",
    .category = PEN_CATEGORY_TRANSFORM,
    .tags = tags,
    .inputs = inputs,
    .outputs = outputs,
    .props = stk_blur_props,
    .params_size = sizeof(struct stk_blur_params),
    .state_size = sizeof(struct stk_blur_state),
    .ops = {
        .check = stk_blur_check,
        .prepare = stk_blur_prepare,
        .process = process,
        .operations = operations,
    },
};
