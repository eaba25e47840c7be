// TestSignalGenerator: synthetic pictures, the same on every machine.

#include <string.h>

#include "common.h"
#include "modules.h"

enum pattern { GRADIENT = 0, CHECKERBOARD, COLOR_BARS, GRID };

struct params {
    int32_t width, height;
    int32_t pattern;
    int32_t max_frames;
    int32_t mem_type;
};

static const struct pen_choice pattern_choices[] = {
    { "GRADIENT", GRADIENT, "rows of one shade that moves with every frame" },
    { "CHECKERBOARD", CHECKERBOARD, "white and black squares of 8 pixels" },
    { "COLOR_BARS", COLOR_BARS, "eight vertical bars" },
    { "GRID", GRID, "four by four framed cells" },
    { 0 },
};

// clang-format off
#define P struct params
static const struct pen_prop props[] = {
    PEN_I32(P, width,  "width",  0, 1, 4096, "Width of the pictures.",
            .unit = "px", .flags = PEN_PROP_REQUIRED),
    PEN_I32(P, height, "height", 0, 1, 4096, "Height of the pictures.",
            .unit = "px", .flags = PEN_PROP_REQUIRED),
    PEN_ENUM(P, pattern, "pattern", GRADIENT, pattern_choices,
             "What the pictures show."),
    PEN_I32(P, max_frames, "maxFrames", 0, 0, INT32_MAX,
            "Frames until the end of the stream; 0: no end."),
    PEN_ENUM(P, mem_type, "memType", PEN_MEM_HOST, stk_choices_mem,
             "Memory of the pictures."),
    PEN_PROPS_END,
};
#undef P
// clang-format on

static const struct pen_pin outputs[] = {
    STK_PIN_PICTURE("output", "I420 pictures, bt601 limited.", STK_MEM_SOURCE,
                    PEN_FMT_BIT(PEN_FMT_YUV420)),
    { 0 },
};

static void narrow(const void *params, struct pen_pin_set *in,
                   struct pen_pin_set *out)
{
    const struct params *p = params;
    (void)in;
    out->mem = PEN_MEM_BIT((unsigned)p->mem_type);
}

static enum pen_status negotiate(const void *params, const struct pen_caps *in,
                                 struct pen_caps *out, struct pen_error *err)
{
    const struct params *p = params;
    (void)in;
    (void)err;
    *out = (struct pen_caps){
        .kind = PEN_KIND_RAW_IMAGE,
        .format = PEN_FMT_YUV420,
        .width = p->width,
        .height = p->height,
        .matrix = PEN_MATRIX_BT601,
        .range = PEN_RANGE_LIMITED,
    };
    return PEN_OK;
}

static enum pen_status probe(const void *params, struct pen_probe *out,
                             struct pen_error *err)
{
    const struct params *p = params;
    PEN_TRY(negotiate(params, NULL, &out->caps, err));
    out->frames = (uint64_t)p->max_frames;
    out->complete = true;
    return PEN_OK;
}

static enum pen_status prepare(struct pen_module *m, const struct pen_io *io,
                               struct pen_caps *out, struct pen_error *err)
{
    const struct params *p = pen_module_params(m);
    if (p->max_frames > 0 && pen_io_index(io) >= (uint64_t)p->max_frames)
        return PEN_EOS;
    return negotiate(p, NULL, out, err);
}

// --- the patterns -----------------------------------------------------------

static uint8_t *row_of(const struct pen_plane *plane, int32_t y)
{
    return (uint8_t *)plane->host + (size_t)y * plane->pitch;
}

// ApraPipes fills the tight I420 buffer as if it were rows of `width` bytes,
// each with the next shade, on into the chroma planes and the next frame.
static void gradient(const struct pen_view *v, uint64_t frame)
{
    const uint64_t width = (uint64_t)v->width;
    uint64_t bytes = 0, at = 0;

    for (uint32_t i = 0; i < v->planes; i++)
        bytes += v->plane[i].row_bytes * (uint64_t)v->plane[i].rows;
    const uint64_t shade = frame % 256 * ((bytes + width - 1) / width);

    for (uint32_t i = 0; i < v->planes; i++) {
        const struct pen_plane *plane = &v->plane[i];
        for (int32_t y = 0; y < plane->rows; y++) {
            uint8_t *row = row_of(plane, y);
            size_t x = 0;
            while (x < plane->row_bytes) {
                const size_t left = (size_t)(width - at % width);
                const size_t room = plane->row_bytes - x;
                const size_t n = left < room ? left : room;
                memset(row + x, (int)((shade + at / width) & 255), n);
                x += n;
                at += n;
            }
        }
    }
}

static void fill(const struct pen_plane *plane, uint8_t value)
{
    for (int32_t y = 0; y < plane->rows; y++)
        memset(row_of(plane, y), value, plane->row_bytes);
}

static void checkerboard(const struct pen_view *v)
{
    for (int32_t y = 0; y < v->height; y++) {
        uint8_t *row = row_of(&v->plane[0], y);
        for (int32_t x = 0; x < v->width; x++)
            row[x] = (x / 8 + y / 8) % 2 == 0 ? 235 : 16;
    }
    fill(&v->plane[1], 128);
    fill(&v->plane[2], 128);
}

// Part `n` of `size` pixels cut in `parts`; the last takes the remainder.
static int32_t part(int32_t at, int32_t size, int32_t parts)
{
    const int32_t step = size / parts > 0 ? size / parts : 1;
    return at / step < parts ? at / step : parts - 1;
}

static void color_bars(const struct pen_view *v)
{
    static const uint8_t bars[3][8] = {
        { 235, 210, 170, 145, 106, 81, 41, 16 },
        { 128, 16, 166, 54, 202, 90, 240, 128 },
        { 128, 146, 16, 34, 222, 240, 110, 128 },
    };
    for (uint32_t i = 0; i < 3; i++) {
        const struct pen_plane *plane = &v->plane[i];
        const int32_t scale = i == 0 ? 1 : 2;
        for (int32_t y = 0; y < plane->rows; y++) {
            uint8_t *row = row_of(plane, y);
            for (int32_t x = 0; x < (int32_t)plane->row_bytes; x++)
                row[x] = bars[i][part(x * scale, v->width, 8)];
        }
    }
}

// Sixteen cells, each brighter than the one before, with black lines of two
// pixels at their left and top edges, and a tint for each quarter.
static void grid(const struct pen_view *v)
{
    const int32_t cell_w = v->width / 4 > 0 ? v->width / 4 : 1;
    const int32_t cell_h = v->height / 4 > 0 ? v->height / 4 : 1;

    for (int32_t y = 0; y < v->height; y++) {
        uint8_t *row = row_of(&v->plane[0], y);
        for (int32_t x = 0; x < v->width; x++) {
            const int32_t cell =
                part(y, v->height, 4) * 4 + part(x, v->width, 4);
            const bool line = y % cell_h < 2 || x % cell_w < 2;
            row[x] = line ? 16 : (uint8_t)(16 + cell * 14);
        }
    }
    for (int32_t y = 0; y < v->plane[1].rows; y++) {
        uint8_t *u = row_of(&v->plane[1], y), *w = row_of(&v->plane[2], y);
        for (int32_t x = 0; x < (int32_t)v->plane[1].row_bytes; x++) {
            u[x] = part(2 * x, v->width, 2) ? 156 : 100;
            w[x] = part(2 * y, v->height, 2) ? 156 : 100;
        }
    }
}

static enum pen_status process(struct pen_module *m, const struct pen_io *io,
                               struct pen_error *err)
{
    const struct params *p = pen_module_params(m);
    struct pen_view v;

    PEN_TRY(
        pen_acquire(io, pen_output(io, 0), PEN_ON_HOST, PEN_WRITE, &v, err));
    switch ((enum pattern)p->pattern) {
    case GRADIENT:
        gradient(&v, pen_io_index(io));
        break;
    case CHECKERBOARD:
        checkerboard(&v);
        break;
    case COLOR_BARS:
        color_bars(&v);
        break;
    case GRID:
        grid(&v);
        break;
    }
    return PEN_OK;
}

static const char *const tags[] = {
    "function:generate", "backend:cpu", "media:image", "source", "test",
    "generator",         "signal",      NULL,
};

const struct pen_module_class stk_class_test_signal = {
    .abi = PEN_MODULE_ABI,
    .size = sizeof(struct pen_module_class),
    .name = "TestSignalGenerator",
    .version = "1.0",
    .summary = "Makes synthetic I420 pictures.",
    .category = PEN_CATEGORY_SOURCE,
    .tags = tags,
    .outputs = outputs,
    .props = props,
    .params_size = sizeof(struct params),
    .ops = {
        .narrow = narrow,
        .negotiate = negotiate,
        .probe = probe,
        .prepare = prepare,
        .process = process,
    },
};
