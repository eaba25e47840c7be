// ImageDecoderCV: JPEG and PNG files to pictures, straight into the frame.

#include "../kernels/work.h"
#include "codec.h"
#include "common.h"
#include "modules.h"

struct params {
    bool apply_orientation;
};

struct state {
    struct stk_image_header header;  // of the frame in work
    int32_t orientation;             // to be applied to it
    struct stk_workspace scratch;
    uint64_t pictures, warned, warnings, turned, reduced;
};

// clang-format off
#define P struct params
static const struct pen_prop props[] = {
    PEN_BOOL(P, apply_orientation, "applyOrientation", true,
             "Turn pictures as their Exif orientation says."),
    PEN_PROPS_END,
};
#undef P
// clang-format on

#define FORMATS                                                                \
    (PEN_FMT_BIT(PEN_FMT_MONO) | PEN_FMT_BIT(PEN_FMT_RGB) |                    \
     PEN_FMT_BIT(PEN_FMT_RGBA))

static const struct pen_pin inputs[] = {
    {
        .name = "input",
        .help = "A whole JPEG or PNG file.",
        .kinds = STK_ENCODED,
        .mem = PEN_MEM_BITS_HOST,
    },
    { 0 },
};
static const struct pen_pin outputs[] = {
    STK_PIN_PICTURE("output",
                    "RGB; MONO of grey files; RGBA of PNG with transparency.",
                    PEN_MEM_BITS_HOST, FORMATS),
    { 0 },
};

static enum pen_status negotiate(const void *params, const struct pen_caps *in,
                                 struct pen_caps *out, struct pen_error *err)
{
    (void)params;
    (void)err;
    uint32_t formats = in->format ? PEN_FMT_BIT(in->format) : in->formats;
    formats &= FORMATS;
    if (!formats)
        formats = in->codec == PEN_CODEC_JPEG
                      ? FORMATS & ~PEN_FMT_BIT(PEN_FMT_RGBA)
                      : FORMATS;
    *out = (struct pen_caps){
        .kind = PEN_KIND_RAW_IMAGE,
        .formats = formats,
        .width = in->width,
        .height = in->height,
        .matrix = PEN_MATRIX_BT601,
        .range = PEN_RANGE_FULL,
        .fps = in->fps,
    };
    if (!(formats & (formats - 1)))
        out->format = (enum pen_format)__builtin_ctz(formats);
    return PEN_OK;
}

// Without a look at the headers the size is known from the first picture.
static void workspace(const void *params, const struct pen_caps *in,
                      const struct pen_caps *out, uint64_t bytes[PEN_MEM_COUNT])
{
    const struct params *p = params;
    const struct pen_caps *size = in->width && in->height ? in : out;
    bytes[PEN_MEM_HOST] = stk_decode_most_scratch(
        in->codec, size->width, size->height, p->apply_orientation);
}

// As measured, for JPEG with chroma halved both ways, which is 1.5 samples a
// pixel.
static uint64_t operations(const void *params, const struct pen_caps *in,
                           const struct pen_caps *out)
{
    enum { JPEG_PIXEL = 21, JPEG_GREY = 14, PNG_SAMPLE = 40 };
    (void)params;
    if (in->codec == PEN_CODEC_PNG)
        return stk_work_times(stk_work_samples(out), PNG_SAMPLE);
    const struct pen_caps pixels = {
        .format = PEN_FMT_MONO,
        .width = out->width,
        .height = out->height,
    };
    return stk_work_times(stk_work_samples(&pixels),
                          out->format == PEN_FMT_MONO ? JPEG_GREY : JPEG_PIXEL);
}

static enum pen_status prepare(struct pen_module *m, const struct pen_io *io,
                               struct pen_caps *out, struct pen_error *err)
{
    const struct params *p = pen_module_params(m);
    struct state *st = pen_module_state(m);
    struct pen_frame *in = pen_input(io, 0);
    const size_t length = pen_frame_bytes(in);
    struct pen_view v;

    if (pen_frame_caps(in)->kind == PEN_KIND_RAW_IMAGE)
        return pen_error_set(err, PEN_E_DATA, 0, "",
                             "a raw picture arrived where a JPEG or PNG file "
                             "is decoded");
    PEN_TRY(pen_acquire(io, in, PEN_ON_HOST, PEN_READ, &v, err));
    const struct stk_bytes bytes = stk_bytes_memory(v.plane[0].host, length);
    PEN_TRY(stk_image_header_read(&bytes, &st->header, err));
    PEN_TRY(stk_image_header_check(&st->header, length, err));
    st->orientation = p->apply_orientation ? st->header.orientation : 1;

    const bool turns = stk_orientation_turns(st->orientation);
    const struct pen_caps seen = {
        .kind = PEN_KIND_ENCODED_IMAGE,
        .format = st->header.format,
        .width = turns ? st->header.height : st->header.width,
        .height = turns ? st->header.width : st->header.height,
        .fps = pen_frame_caps(in)->fps,
    };
    return negotiate(p, &seen, out, err);
}

// What befell a picture that is used all the same is told once, and counted.
static void take_note(struct pen_module *m, struct state *st,
                      const struct pen_io *io, const struct stk_decode *d)
{
    const struct pen_log *log = pen_module_log(m);
    const char *id = pen_module_id(m);
    const unsigned long long index = pen_io_index(io);

    st->pictures++;
    if (d->warnings) {
        if (!st->warned++)
            pen_log_write(log, PEN_LOG_WARN, "pen.modules",
                          "%s: frame %llu is used though its file is damaged: "
                          "%s",
                          id, index, d->warning);
        st->warnings += d->warnings;
    }
    if (d->orientation != 1 && !st->turned++)
        pen_log_write(log, PEN_LOG_INFO, "pen.modules",
                      "%s: frame %llu is turned by its Exif orientation (%d)",
                      id, index, d->orientation);
    if (d->header.depth > 8 && !st->reduced++)
        pen_log_write(log, PEN_LOG_WARN, "pen.modules",
                      "%s: frame %llu has %d bits a sample, which are rounded "
                      "to 8",
                      id, index, d->header.depth);
}

static enum pen_status process(struct pen_module *m, const struct pen_io *io,
                               struct pen_error *err)
{
    struct state *st = pen_module_state(m);
    struct pen_view dst, src;

    PEN_TRY(stk_acquire_both(io, PEN_ON_HOST, &dst, &src, err));
    PEN_TRY(stk_workspace_grow(m, &st->scratch,
                               stk_decode_scratch(&st->header, st->orientation),
                               err));
    struct stk_decode d = {
        .data = src.plane[0].host,
        .bytes = pen_frame_bytes(pen_input(io, 0)),
        .header = st->header,
        .orientation = st->orientation,
        .out = &dst,
        .scratch = st->scratch.memory,
    };
    const enum pen_status status = d.header.codec == PEN_CODEC_JPEG
                                       ? stk_jpeg_decode(&d, err)
                                       : stk_png_decode(&d, err);
    pen_module_count_library(m, d.allocations);
    PEN_TRY(status);
    take_note(m, st, io, &d);
    return PEN_OK;
}

static void close_module(struct pen_module *m)
{
    struct state *st = pen_module_state(m);
    if (st->warned || st->turned || st->reduced)
        pen_log_write(
            pen_module_log(m), PEN_LOG_INFO, "pen.modules",
            "%s: of %llu pictures %llu came with warnings (%llu in "
            "all), %llu were turned upright, %llu rounded to 8 bits",
            pen_module_id(m), (unsigned long long)st->pictures,
            (unsigned long long)st->warned, (unsigned long long)st->warnings,
            (unsigned long long)st->turned, (unsigned long long)st->reduced);
    stk_workspace_free(m, &st->scratch);
}

static const char *const tags[] = {
    "function:decode", "backend:cpu", "media:image",
    "format:jpeg",     "format:png",  "decoder",
    "image",           "opencv",      NULL,
};

const struct pen_module_class stk_class_image_decoder_cv = {
    .abi = PEN_MODULE_ABI,
    .size = sizeof(struct pen_module_class),
    .name = "ImageDecoderCV",
    .version = "1.0",
    .summary = "Decodes JPEG and PNG files on the CPU.",
    .category = PEN_CATEGORY_TRANSFORM,
    .tags = tags,
    .inputs = inputs,
    .outputs = outputs,
    .props = props,
    .params_size = sizeof(struct params),
    .state_size = sizeof(struct state),
    .ops = {
        .negotiate = negotiate,
        .prepare = prepare,
        .process = process,
        .close = close_module,
        .workspace = workspace,
        .operations = operations,
    },
};
