#include "convert_common.h"

#include "../kernels/work.h"

uint64_t stk_convert_operations(const void *params, const struct pen_caps *in,
                                const struct pen_caps *out)
{
    (void)params;
    return stk_work_convert(in, out);
}

void stk_convert_negotiate(const struct pen_caps *in, enum pen_format format,
                           int32_t range, struct pen_caps *out)
{
    if (in->kind == PEN_KIND_RAW_IMAGE && in->format) {
        stk_convert_caps(in, format, (enum pen_range)range, out);
        return;
    }
    out->kind = PEN_KIND_RAW_IMAGE;
    out->codec = PEN_CODEC_UNKNOWN;
    out->format = format;
    out->formats = PEN_FMT_BIT(format);
}

enum pen_status stk_convert_prepare(struct stk_convert_state *st,
                                    const struct pen_io *io, uint32_t sources,
                                    enum pen_format format, int32_t range,
                                    struct pen_caps *out, struct pen_error *err)
{
    struct pen_caps src;

    PEN_TRY(stk_picture(io, sources, &src, err));
    stk_convert_negotiate(&src, format, range, out);
    if (pen_caps_equal(&src, &st->src) && pen_caps_equal(out, &st->dst))
        return PEN_OK;
    PEN_TRY(stk_convert_setup(out, &src, &st->args, err));
    st->src = src;
    st->dst = *out;
    return PEN_OK;
}

bool stk_convert_forwards(const struct stk_convert_state *st,
                          const struct pen_io *io)
{
    if (!pen_caps_equal(&st->src, &st->dst))
        return false;
    pen_forward(io, 0, 0);
    return true;
}
