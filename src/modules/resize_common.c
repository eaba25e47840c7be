#include "resize_common.h"

// clang-format off
#define P struct stk_resize_params
const struct pen_prop stk_resize_props[] = {
    PEN_I32(P, width,  "width",  0, 1, 8192, "Width of the output.",
            .unit = "px", .flags = PEN_PROP_REQUIRED),
    PEN_I32(P, height, "height", 0, 1, 8192, "Height of the output.",
            .unit = "px", .flags = PEN_PROP_REQUIRED),
    PEN_ENUM(P, interpolation, "interpolation", STK_BILINEAR,
             stk_choices_interpolation, "How samples are made of their "
             "neighbours."),
    PEN_PROPS_END,
};
#undef P
// clang-format on

enum pen_status stk_resize_negotiate(const void *params,
                                     const struct pen_caps *in,
                                     struct pen_caps *out,
                                     struct pen_error *err)
{
    const struct stk_resize_params *p = params;
    (void)in;
    (void)err;
    out->width = p->width;
    out->height = p->height;
    return PEN_OK;
}

uint64_t stk_resize_tables(const struct stk_resize_params *p,
                           const struct pen_caps *in)
{
    return stk_resize_most_bytes(in->format, p->width, p->height, in->width,
                                 in->height,
                                 (enum stk_interpolation)p->interpolation);
}

enum pen_status
stk_resize_prepare(const struct stk_resize_params *p, const struct pen_io *io,
                   struct pen_caps *was, struct stk_resize *resize,
                   struct pen_caps *out, bool *changed, struct pen_error *err)
{
    struct pen_caps in;

    *changed = false;
    PEN_TRY(stk_picture(io, STK_RESIZE_FORMATS, &in, err));
    *out = in;
    out->width = p->width;
    out->height = p->height;
    if (was->format == in.format && was->width == in.width &&
        was->height == in.height)
        return PEN_OK;

    *was = (struct pen_caps){ 0 };
    PEN_TRY(stk_resize_setup(
        in.format, p->width, p->height, in.width, in.height,
        (enum stk_interpolation)p->interpolation, resize, err));
    *was = in;
    *changed = true;
    return PEN_OK;
}
