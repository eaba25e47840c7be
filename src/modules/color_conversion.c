// ColorConversion: pixel formats on the CPU. Also the format bridge of frames
// in host memory.

#include "convert_common.h"
#include "modules.h"

// The conversions that ApraPipes names; imageType does all of them and more.
// clang-format off
#define CONVERSIONS(X)                                  \
    X(RGB_TO_MONO,          RGB,      MONO)             \
    X(BGR_TO_MONO,          BGR,      MONO)             \
    X(BGR_TO_RGB,           BGR,      RGB)              \
    X(RGB_TO_BGR,           RGB,      BGR)              \
    X(RGB_TO_YUV420PLANAR,  RGB,      YUV420)           \
    X(YUV420PLANAR_TO_RGB,  YUV420,   RGB)              \
    X(BAYERBG8_TO_MONO,     BAYERBG8, MONO)             \
    X(BAYERBG8_TO_RGB,      BAYERBG8, RGB)              \
    X(BAYERGB8_TO_RGB,      BAYERGB8, RGB)              \
    X(BAYERRG8_TO_RGB,      BAYERRG8, RGB)              \
    X(BAYERGR8_TO_RGB,      BAYERGR8, RGB)
// clang-format on

enum conversion {
    CONVERSION_NONE = 0,
#define X(name, from, to) name,
    CONVERSIONS(X)
#undef X
};

static const struct {
    enum pen_format from, to;
} pairs[] = { { PEN_FMT_NONE, PEN_FMT_NONE },
#define X(name, from, to) { PEN_FMT_##from, PEN_FMT_##to },
              CONVERSIONS(X)
#undef X
};

static const struct pen_choice conversion_choices[] = {
    { "auto", CONVERSION_NONE, "as imageType says" },
#define X(name, from, to) { #name, name, "from " #from " to " #to },
    CONVERSIONS(X)
#undef X
        { 0 },
};

struct params {
    int32_t conversion;
    int32_t image_type;
    int32_t range;
};

// clang-format off
#define P struct params
static const struct pen_prop props[] = {
    PEN_ENUM(P, conversion, "conversionType", CONVERSION_NONE,
             conversion_choices, "Conversion by name, as in ApraPipes."),
    PEN_ENUM(P, image_type, "imageType", PEN_FMT_NONE, stk_choices_target,
             "Format of the output, from whatever arrives."),
    PEN_ENUM(P, range, "range", PEN_RANGE_UNKNOWN, stk_choices_range,
             "Range of a YUV output; auto: limited, or that of a YUV input."),
    PEN_PROPS_END,
};
#undef P
// clang-format on

#define INPUTS (PEN_FMT_BITS_ALL11 | PEN_FMT_BITS_BAYER8)

static const struct pen_pin inputs[] = {
    STK_PIN_PICTURE("input", "Picture to convert.", PEN_MEM_BITS_HOST, INPUTS),
    { 0 },
};
static const struct pen_pin outputs[] = {
    STK_PIN_PICTURE("output", "The same picture in the other format.",
                    PEN_MEM_BITS_HOST, PEN_FMT_BITS_ALL11),
    { 0 },
};

static enum pen_format target(const struct params *p)
{
    return p->image_type ? (enum pen_format)p->image_type
                         : pairs[p->conversion].to;
}

static uint32_t sources(const struct params *p)
{
    if (p->conversion)
        return PEN_FMT_BIT(pairs[p->conversion].from);
    uint32_t mask = 0;
    for (unsigned f = 1; f < PEN_FMT_COUNT; f++) {
        if ((INPUTS & PEN_FMT_BIT(f)) &&
            (stk_convert_targets((enum pen_format)f) & PEN_FMT_BIT(target(p))))
            mask |= PEN_FMT_BIT(f);
    }
    return mask;
}

static void narrow(const void *params, struct pen_pin_set *in,
                   struct pen_pin_set *out)
{
    const struct params *p = params;
    if (target(p) == PEN_FMT_NONE)
        return;
    in->formats = sources(p);
    out->formats = PEN_FMT_BIT(target(p));
}

static void check(const void *params, struct pen_check *check)
{
    const struct params *p = params;
    if (target(p) == PEN_FMT_NONE)
        pen_check_error(check, "E205", "imageType", "\"imageType\": \"RGB\"",
                        "neither imageType nor conversionType says what to "
                        "convert to");
    else if (p->conversion && p->image_type &&
             (enum pen_format)p->image_type != pairs[p->conversion].to)
        pen_check_error(check, "E203", "imageType", "give one of the two",
                        "imageType contradicts conversionType");
}

static enum pen_status negotiate(const void *params, const struct pen_caps *in,
                                 struct pen_caps *out, struct pen_error *err)
{
    const struct params *p = params;
    (void)err;
    stk_convert_negotiate(in, target(p), p->range, out);
    return PEN_OK;
}

static enum pen_status prepare(struct pen_module *m, const struct pen_io *io,
                               struct pen_caps *out, struct pen_error *err)
{
    const struct params *p = pen_module_params(m);
    return stk_convert_prepare(pen_module_state(m), io, sources(p), target(p),
                               p->range, out, err);
}

static enum pen_status process(struct pen_module *m, const struct pen_io *io,
                               struct pen_error *err)
{
    const struct stk_convert_state *st = pen_module_state(m);
    struct pen_view dst, src;

    if (stk_convert_forwards(st, io))
        return PEN_OK;
    struct penk_convert args = st->args;
    PEN_TRY(stk_acquire_both(io, PEN_ON_HOST, &dst, &src, err));
    stk_convert_bind(&args, &dst, &src);
    stk_cpu_convert(&args, 0, args.height);
    return PEN_OK;
}

static const char *const tags[] = {
    "function:color", "backend:cpu", "media:image", "transform", "color",
    "conversion",     "opencv",      "planar",      NULL,
};

const struct pen_module_class stk_class_color_conversion = {
    .abi = PEN_MODULE_ABI,
    .size = sizeof(struct pen_module_class),
    .name = "ColorConversion",
    .version = "1.0",
    .summary = "Converts between pixel formats on the CPU.",
    .category = PEN_CATEGORY_TRANSFORM,
    .flags = PEN_CLASS_BRIDGE,
    .tags = tags,
    .inputs = inputs,
    .outputs = outputs,
    .props = props,
    .params_size = sizeof(struct params),
    .state_size = sizeof(struct stk_convert_state),
    .ops = {
        .narrow = narrow,
        .check = check,
        .negotiate = negotiate,
        .prepare = prepare,
        .process = process,
        .operations = stk_convert_operations,
    },
};
