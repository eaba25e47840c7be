#include "blur_common.h"

// clang-format off
#define P struct stk_blur_params
const struct pen_prop stk_blur_props[] = {
    PEN_I32(P, kernel_size, "kernelSize", 11, 3, 31,
            "Pixels that the kernel spans, odd.", .unit = "px",
            .flags = PEN_PROP_ODD),
    PEN_F64(P, sigma, "sigma", 0, 0, 100,
            "Width of the Gaussian; 0: 0.3*((kernelSize-1)*0.5-1)+0.8.",
            .unit = "px"),
    PEN_PROPS_END,
};
#undef P
// clang-format on

static double sigma_of(const struct stk_blur_params *p)
{
    return p->sigma > 0 ? p->sigma
                        : 0.3 * ((p->kernel_size - 1) * 0.5 - 1) + 0.8;
}

void stk_blur_check(const void *params, struct pen_check *check)
{
    const struct stk_blur_params *p = params;
    if (p->sigma > 0)
        return;
    pen_check_warning(check, "W210", "sigma",
                      "\"sigma\": 1.0 gives the pictures of ApraPipes",
                      "sigma is not given: %.2f is taken for kernelSize %d; "
                      "ApraPipes takes 1.0 whatever the size",
                      sigma_of(p), p->kernel_size);
}

enum pen_status stk_blur_prepare(struct pen_module *m, const struct pen_io *io,
                                 struct pen_caps *out, struct pen_error *err)
{
    struct stk_blur_state *st = pen_module_state(m);
    const struct stk_blur_params *p = pen_module_params(m);

    PEN_TRY(stk_picture(io, STK_BLUR_FORMATS, out, err));
    if (st->format == out->format && st->width == out->width &&
        st->height == out->height)
        return PEN_OK;
    st->format = PEN_FMT_NONE;
    PEN_TRY(stk_blur_setup(out->format, out->width, out->height, p->kernel_size,
                           sigma_of(p), &st->args, err));
    st->format = out->format;
    st->width = out->width;
    st->height = out->height;
    return PEN_OK;
}
