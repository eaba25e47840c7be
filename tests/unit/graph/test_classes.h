#ifndef TEST_CLASSES_H
#define TEST_CLASSES_H

// A small world of classes for the tests of the graph layer: two sources, two
// sinks, CPU and CUDA transforms, one bridge with aliases. None of them runs.

#include <penstock/registry.h>

#include "src/graph/graph.h"

enum { PATTERN_GRADIENT, PATTERN_GRID };
enum { COPY_H2D, COPY_D2H };

struct signal_params {
    int32_t width, height, pattern;
    struct pen_rational rate;
    bool loop;
};
struct reader_params {
    const char *path;
    int32_t start, kind;
};
struct writer_params {
    const char *path;
    bool append;
};
struct blur_params {
    int32_t kernel_size;
    double sigma;
};
struct copy_params {
    int32_t kind;
    bool sync;
};
struct merge_params {
    int32_t max_delay;
};

static const struct pen_choice test_patterns[] = {
    { "GRADIENT", PATTERN_GRADIENT, "shades" },
    { "GRID", PATTERN_GRID, "cells" },
    { 0 },
};
static const struct pen_choice test_kinds[] = {
    { "Frame", PEN_KIND_FRAME, "bytes" },
    { "EncodedImage", PEN_KIND_ENCODED_IMAGE, "image files" },
    { 0 },
};
static const struct pen_choice test_copies[] = {
    { "HostToDevice", COPY_H2D, "upload" },
    { "DeviceToHost", COPY_D2H, "download" },
    { 0 },
};

// clang-format off
static const struct pen_prop test_signal_props[] = {
    PEN_I32(struct signal_params, width, "width", 0, 1, 4096,
            "Width of the frames.", .unit = "px", .flags = PEN_PROP_REQUIRED),
    PEN_I32(struct signal_params, height, "height", 0, 1, 4096,
            "Height of the frames.", .unit = "px",
            .flags = PEN_PROP_REQUIRED),
    PEN_ENUM(struct signal_params, pattern, "pattern", PATTERN_GRADIENT,
             test_patterns, "What the frames show."),
    PEN_RATIONAL(struct signal_params, rate, "rate", 0, 0,
                 "Frames per second.", .min = 1, .max = 1000),
    PEN_BOOL(struct signal_params, loop, "loop", false, "Begin again."),
    PEN_PROPS_END,
};
static const struct pen_prop test_reader_props[] = {
    PEN_STRING(struct reader_params, path, "path", "", "Files to read.",
               .flags = PEN_PROP_REQUIRED | PEN_PROP_PATH_READ),
    PEN_I32(struct reader_params, start, "startIndex", 0, 0, 0,
            "First number."),
    PEN_ENUM(struct reader_params, kind, "outputFrameType", PEN_KIND_FRAME,
             test_kinds, "What the files are."),
    PEN_PROPS_END,
};
static const struct pen_prop test_writer_props[] = {
    PEN_STRING(struct writer_params, path, "path", "", "Files to write.",
               .flags = PEN_PROP_REQUIRED | PEN_PROP_PATH_WRITE),
    PEN_BOOL(struct writer_params, append, "append", false, "Append."),
    PEN_PROPS_END,
};
static const struct pen_prop test_blur_props[] = {
    PEN_I32(struct blur_params, kernel_size, "kernelSize", 11, 3, 31,
            "Taps of the kernel.", .unit = "px", .flags = PEN_PROP_ODD),
    PEN_F64(struct blur_params, sigma, "sigma", 1.5, 0.1, 20,
            "Width of the bell.", .flags = PEN_PROP_LIVE),
    PEN_PROPS_END,
};
static const struct pen_prop test_copy_props[] = {
    PEN_ENUM(struct copy_params, kind, "kind", COPY_H2D, test_copies,
             "Direction.", .flags = PEN_PROP_REQUIRED),
    PEN_BOOL(struct copy_params, sync, "sync", false, "Wait."),
    PEN_PROPS_END,
};
static const struct pen_prop test_merge_props[] = {
    PEN_I32(struct merge_params, max_delay, "maxDelay", 30, 0, 1000,
            "Frames to wait for a partner.", .unit = "frames"),
    PEN_PROPS_END,
};

#define TEST_PIN(NAME, KINDS, MEM, FORMATS)                                    \
    { .name = NAME, .help = "A pin.", .kinds = KINDS, .mem = MEM,              \
      .formats = FORMATS }
#define TEST_RAW     PEN_KIND_BIT(PEN_KIND_RAW_IMAGE)
#define TEST_ENCODED PEN_KIND_BIT(PEN_KIND_ENCODED_IMAGE)
#define TEST_FRAME   PEN_KIND_BIT(PEN_KIND_FRAME)
#define TEST_H264    PEN_KIND_BIT(PEN_KIND_H264_DATA)
#define TEST_HOST    PEN_MEM_BITS_HOST
#define TEST_CUDA    PEN_MEM_BIT(PEN_MEM_CUDA_DEVICE)

#define TEST_PINS(name, ...)                                                   \
    static const struct pen_pin name[] = { __VA_ARGS__, { 0 } }
TEST_PINS(test_raw_out, TEST_PIN("output", TEST_RAW, TEST_HOST,
                                 PEN_FMT_BIT(PEN_FMT_YUV420)));
TEST_PINS(test_file_out, TEST_PIN("output", TEST_FRAME | TEST_ENCODED,
                                  TEST_HOST, 0));
TEST_PINS(test_any_in, TEST_PIN("input", TEST_FRAME, TEST_HOST | TEST_CUDA,
                                0));
TEST_PINS(test_any_out, TEST_PIN("output", TEST_FRAME, TEST_HOST | TEST_CUDA,
                                 0));
TEST_PINS(test_encoded_in, TEST_PIN("input", TEST_ENCODED, TEST_HOST, 0));
TEST_PINS(test_encoded_out, TEST_PIN("output", TEST_ENCODED, TEST_HOST, 0));
TEST_PINS(test_host_in, TEST_PIN("input", TEST_RAW, TEST_HOST,
                                 PEN_FMT_BITS_RGB));
TEST_PINS(test_host_out, TEST_PIN("output", TEST_RAW, TEST_HOST,
                                  PEN_FMT_BITS_RGB));
TEST_PINS(test_cuda_in, TEST_PIN("input", TEST_RAW, TEST_CUDA,
                                 PEN_FMT_BITS_ALL11));
TEST_PINS(test_cuda_out, TEST_PIN("output", TEST_RAW, TEST_CUDA,
                                  PEN_FMT_BITS_ALL11));
TEST_PINS(test_h264_in, TEST_PIN("input", TEST_H264, TEST_HOST, 0));
TEST_PINS(test_two_in, TEST_PIN("input_1", TEST_FRAME, TEST_HOST, 0),
          TEST_PIN("input_2", TEST_FRAME, TEST_HOST, 0));
TEST_PINS(test_two_out, TEST_PIN("output_1", TEST_FRAME, TEST_HOST, 0),
          TEST_PIN("output_2", TEST_FRAME, TEST_HOST, 0));
static const struct pen_pin test_optional_in[] = {
    { .name = "input", .help = "A pin.", .kinds = TEST_FRAME,
      .mem = TEST_HOST, .flags = PEN_PIN_OPTIONAL },
    { 0 },
};
// clang-format on

static void test_reader_narrow(const void *params, struct pen_pin_set *in,
                               struct pen_pin_set *out)
{
    const struct reader_params *p = params;
    (void)in;
    out[0].kinds = PEN_KIND_BIT(p->kind);
}

static void test_blur_check(const void *params, struct pen_check *check)
{
    const struct blur_params *p = params;
    if (p->sigma > p->kernel_size)
        pen_check_error(check, "E202", "sigma", "\"sigma\": 3",
                        "sigma %.1f is wider than the kernel", p->sigma);
    else if (p->sigma > p->kernel_size / 2.0)
        pen_check_warning(check, "W202", "sigma", NULL,
                          "sigma %.1f is cut off by the kernel", p->sigma);
}

#define TEST_CLASS(NAME, CATEGORY)                                             \
    .abi = PEN_MODULE_ABI, .size = sizeof(struct pen_module_class),            \
    .name = NAME, .version = "1.0", .summary = "A class of the tests",         \
    .category = PEN_CATEGORY_##CATEGORY

static const struct pen_module_class test_signal = {
    TEST_CLASS("TestSignal", SOURCE),
    .tags = (const char *const[]){ "source", "function:signal", NULL },
    .outputs = test_raw_out,
    .props = test_signal_props,
    .params_size = sizeof(struct signal_params),
};
static const struct pen_module_class test_reader = {
    TEST_CLASS("FileReader", SOURCE),
    .flags = PEN_CLASS_BLOCKS,
    .tags = (const char *const[]){ "source", "file", NULL },
    .outputs = test_file_out,
    .props = test_reader_props,
    .params_size = sizeof(struct reader_params),
    .ops.narrow = test_reader_narrow,
};
static const struct pen_module_class test_writer = {
    TEST_CLASS("FileWriter", SINK),
    .flags = PEN_CLASS_BLOCKS,
    .tags = (const char *const[]){ "sink", "file", NULL },
    .inputs = test_any_in,
    .props = test_writer_props,
    .params_size = sizeof(struct writer_params),
};
static const struct pen_module_class test_stat_sink = {
    TEST_CLASS("StatSink", SINK),
    .tags = (const char *const[]){ "sink", NULL },
    .inputs = test_any_in,
};
static const struct pen_module_class test_h264_sink = {
    TEST_CLASS("H264Sink", SINK),
    .inputs = test_h264_in,
};
static const struct pen_module_class test_decoder = {
    TEST_CLASS("ImageDecoder", TRANSFORM),
    .tags = (const char *const[]){ "function:decode", "backend:cpu", NULL },
    .inputs = test_encoded_in,
    .outputs = test_host_out,
};
static const struct pen_module_class test_encoder = {
    TEST_CLASS("ImageEncoder", TRANSFORM),
    .tags = (const char *const[]){ "function:encode", "backend:cpu", NULL },
    .inputs = test_host_in,
    .outputs = test_encoded_out,
};
static const struct pen_module_class test_blur = {
    TEST_CLASS("GaussianBlur", TRANSFORM),
    .flags = PEN_CLASS_CUDA,
    .tags = (const char *const[]){ "function:blur", "backend:cuda", NULL },
    .inputs = test_cuda_in,
    .outputs = test_cuda_out,
    .props = test_blur_props,
    .params_size = sizeof(struct blur_params),
    .ops.check = test_blur_check,
};
static const struct pen_module_class test_blur_cv = {
    TEST_CLASS("GaussianBlurCV", TRANSFORM),
    .tags = (const char *const[]){ "function:blur", "backend:cpu", NULL },
    .inputs = test_host_in,
    .outputs = test_host_out,
    .props = test_blur_props,
    .params_size = sizeof(struct blur_params),
};
static const struct pen_module_class test_copy = {
    TEST_CLASS("CudaMemCopy", UTILITY),
    .flags = PEN_CLASS_CUDA | PEN_CLASS_BRIDGE,
    .tags = (const char *const[]){ "bridge", "backend:cuda", NULL },
    .aliases =
        (const struct pen_alias[]){
            { "CudaMemCopyH2D", "kind", "HostToDevice" },
            { "CudaMemCopyD2H", "kind", "DeviceToHost" },
            { 0 },
        },
    .inputs = test_any_in,
    .outputs = test_any_out,
    .props = test_copy_props,
    .params_size = sizeof(struct copy_params),
};
static const struct pen_module_class test_merge = {
    TEST_CLASS("Merge", UTILITY), .flags = PEN_CLASS_FORWARDS,
    .inputs = test_two_in,        .outputs = test_any_out,
    .props = test_merge_props,    .params_size = sizeof(struct merge_params),
};
static const struct pen_module_class test_split = {
    TEST_CLASS("Split", UTILITY),
    .flags = PEN_CLASS_FORWARDS,
    .inputs = test_any_in,
    .outputs = test_two_out,
};
static const struct pen_module_class test_valve = {
    TEST_CLASS("Valve", UTILITY),
    .flags = PEN_CLASS_FORWARDS,
    .inputs = test_optional_in,
    .outputs = test_any_out,
};

static const struct pen_module_class *const test_classes[] = {
    &test_signal,    &test_reader,  &test_writer, &test_stat_sink,
    &test_decoder,   &test_encoder, &test_blur,   &test_blur_cv,
    &test_copy,      &test_merge,   &test_split,  &test_valve,
    &test_h264_sink,
};
enum { TEST_CLASS_COUNT = sizeof(test_classes) / sizeof(test_classes[0]) };

// A registry of all of them; NULL with `err` filled in.
static inline struct pen_registry *test_registry(struct pen_error *err)
{
    struct pen_registry *r = NULL;
    if (stk_registry_new(&r, err) != PEN_OK)
        return NULL;
    for (int i = 0; i < TEST_CLASS_COUNT; i++) {
        if (pen_registry_add(r, test_classes[i], err) != PEN_OK) {
            pen_registry_destroy(&r);
            return NULL;
        }
    }
    return r;
}

#endif  // TEST_CLASSES_H
