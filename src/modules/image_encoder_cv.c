// ImageEncoderCV: pictures to JPEG or PNG files, straight into the frame.

#include "../kernels/work.h"
#include "codec.h"
#include "common.h"
#include "modules.h"

struct params {
    int32_t format;
    int32_t quality;
    int32_t subsampling;
    int32_t compression;
};

static const struct pen_choice format_choices[] = {
    { "jpeg", PEN_CODEC_JPEG, "JPEG, baseline" },
    { "png", PEN_CODEC_PNG, "PNG, without loss, keeps alpha" },
    { 0 },
};

static const struct pen_choice subsampling_choices[] = {
    { "420", STK_SUB_420, "chroma halved both ways" },
    { "422", STK_SUB_422, "chroma halved across" },
    { "444", STK_SUB_444, "full chroma" },
    { 0 },
};

// clang-format off
#define P struct params
static const struct pen_prop props[] = {
    PEN_ENUM(P, format, "format", PEN_CODEC_JPEG, format_choices,
             "Kind of the file."),
    PEN_I32(P, quality, "quality", 90, 1, 100, "Quality of JPEG."),
    PEN_ENUM(P, subsampling, "subsampling", STK_SUB_420, subsampling_choices,
             "Chroma of JPEG."),
    PEN_I32(P, compression, "compression", 6, 0, 9,
            "Effort of PNG: 0 none, 9 most."),
    PEN_PROPS_END,
};
#undef P
// clang-format on

#define FORMATS_JPEG                                                           \
    (PEN_FMT_BIT(PEN_FMT_MONO) | PEN_FMT_BIT(PEN_FMT_RGB) |                    \
     PEN_FMT_BIT(PEN_FMT_BGR))

static const struct pen_pin inputs[] = {
    STK_PIN_PICTURE("input", "Picture to encode; RGBA and BGRA as PNG only.",
                    PEN_MEM_BITS_HOST, PEN_FMT_BITS_RGB),
    { 0 },
};
static const struct pen_pin outputs[] = {
    {
        .name = "output",
        .help = "A whole JPEG or PNG file.",
        .kinds = STK_ENCODED,
        .mem = PEN_MEM_BITS_HOST,
    },
    { 0 },
};

static uint32_t formats_of(const struct params *p)
{
    return p->format == PEN_CODEC_JPEG ? FORMATS_JPEG : PEN_FMT_BITS_RGB;
}

static void narrow(const void *params, struct pen_pin_set *in,
                   struct pen_pin_set *out)
{
    (void)out;
    in->formats = formats_of(params);
}

static enum pen_status negotiate(const void *params, const struct pen_caps *in,
                                 struct pen_caps *out, struct pen_error *err)
{
    const struct params *p = params;
    const bool jpeg = p->format == PEN_CODEC_JPEG;
    const int32_t most = jpeg ? STK_JPEG_MAX_SIDE : STK_PNG_MAX_SIDE;

    if (in->width > most || in->height > most)
        return pen_error_set(
            err, PEN_E_LIMIT, 0, "",
            "%dx%d pixels do not fit a %s file: its sides "
            "have at most %d%s",
            in->width, in->height, pen_codec_name((enum pen_codec)p->format),
            most, jpeg ? "; \"format\": \"png\" has no such limit" : "");
    *out = *in;
    out->kind = PEN_KIND_ENCODED_IMAGE;
    out->codec = (enum pen_codec)p->format;
    out->bytes = 0;
    if (in->width <= 0 || in->height <= 0 || !in->format)
        return PEN_OK;
    const bool fits =
        jpeg ? stk_jpeg_bound(in->width, in->height, in->format,
                              (enum stk_subsampling)p->subsampling, &out->bytes)
             : stk_png_bound(in->width, in->height, in->format, &out->bytes);
    if (!fits)
        return pen_error_set(err, PEN_E_LIMIT, 0, "",
                             "%dx%d pixels are too many to encode", in->width,
                             in->height);
    return PEN_OK;
}

// As measured: JPEG at quality 90, by the samples that are coded; deflate by
// its effort.
static uint64_t operations(const void *params, const struct pen_caps *in,
                           const struct pen_caps *out)
{
    enum { JPEG_SAMPLE = 12 };
    static const uint16_t png_sample[10] = { 75,  290, 290, 290, 870,
                                             870, 870, 900, 900, 900 };
    const struct params *p = params;
    (void)out;
    if (p->format == PEN_CODEC_PNG)
        return stk_work_times(stk_work_samples(in), png_sample[p->compression]);
    static const enum pen_format coded[] = {
        [STK_SUB_420] = PEN_FMT_YUV420,
        [STK_SUB_422] = PEN_FMT_YUYV,
        [STK_SUB_444] = PEN_FMT_YUV444,
    };
    const struct pen_caps samples = {
        .format =
            in->format == PEN_FMT_MONO ? PEN_FMT_MONO : coded[p->subsampling],
        .width = in->width,
        .height = in->height,
    };
    return stk_work_times(stk_work_samples(&samples), JPEG_SAMPLE);
}

static enum pen_status prepare(struct pen_module *m, const struct pen_io *io,
                               struct pen_caps *out, struct pen_error *err)
{
    const struct params *p = pen_module_params(m);
    struct pen_caps in;
    PEN_TRY(stk_picture(io, formats_of(p), &in, err));
    return negotiate(p, &in, out, err);
}

static enum pen_status process(struct pen_module *m, const struct pen_io *io,
                               struct pen_error *err)
{
    const struct params *p = pen_module_params(m);
    struct pen_view dst, src;

    PEN_TRY(stk_acquire_both(io, PEN_ON_HOST, &dst, &src, err));
    struct stk_encode e = {
        .in = &src,
        .quality = p->quality,
        .subsampling = (enum stk_subsampling)p->subsampling,
        .compression = p->compression,
        .to = dst.plane[0].host,
        .room = pen_frame_caps(pen_output(io, 0))->bytes,
    };
    const enum pen_status status = p->format == PEN_CODEC_JPEG
                                       ? stk_jpeg_encode(&e, err)
                                       : stk_png_encode(&e, err);
    pen_module_count_library(m, e.allocations);
    PEN_TRY(status);
    return pen_frame_set_bytes(pen_output(io, 0), e.bytes, err);
}

static const char *const tags[] = {
    "function:encode", "backend:cpu", "media:image",
    "format:jpeg",     "format:png",  "encoder",
    "image",           "opencv",      NULL,
};

const struct pen_module_class stk_class_image_encoder_cv = {
    .abi = PEN_MODULE_ABI,
    .size = sizeof(struct pen_module_class),
    .name = "ImageEncoderCV",
    .version = "1.0",
    .summary = "Encodes pictures as JPEG or PNG files on the CPU.",
    .category = PEN_CATEGORY_TRANSFORM,
    .tags = tags,
    .inputs = inputs,
    .outputs = outputs,
    .props = props,
    .params_size = sizeof(struct params),
    .ops = {
        .narrow = narrow,
        .negotiate = negotiate,
        .prepare = prepare,
        .process = process,
        .operations = operations,
    },
};
