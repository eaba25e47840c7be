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

enum pen_status stk_resize_prepare(
    struct pen_module *m, const struct pen_io *io, struct stk_resize_state *st,
    enum pen_status (*make_table)(struct pen_module *m,
                                  const struct stk_resize *resize,
                                  struct pen_error *err),
    struct pen_caps *out, struct pen_error *err)
{
    const struct stk_resize_params *p = pen_module_params(m);
    struct pen_caps in;

    PEN_TRY(stk_picture(io, STK_RESIZE_FORMATS, &in, err));
    *out = in;
    out->width = p->width;
    out->height = p->height;
    if (st->src.format == in.format && st->src.width == in.width &&
        st->src.height == in.height)
        return PEN_OK;

    st->src = (struct pen_caps){ 0 };
    PEN_TRY(stk_resize_setup(
        in.format, p->width, p->height, in.width, in.height,
        (enum stk_interpolation)p->interpolation, &st->resize, err));
    PEN_TRY(make_table(m, &st->resize, err));
    st->src = in;
    return PEN_OK;
}
