#ifndef WORLD_RESIZE_H
#define WORLD_RESIZE_H

// A class of the host and one of the device that `Resize` stands for.

#include "planner_world.h"

struct resize_params {
    const char *formats;
    int32_t work;
};

// clang-format off
static const struct pen_prop resize_props[] = {
    PEN_STRING(struct resize_params, formats, "formats", "RGB", "Formats."),
    PEN_I32(struct resize_params, work, "work", 0, 0, 1 << 20, "By pixel."),
    PEN_PROPS_END,
};
// clang-format on

static void resize_narrow(const void *params, struct pen_pin_set *in,
                          struct pen_pin_set *out)
{
    const struct resize_params *p = params;
    in[0].formats = out[0].formats = world_mask(p->formats, false);
}

static uint64_t resize_operations(const void *params, const struct pen_caps *in,
                                  const struct pen_caps *out)
{
    const struct resize_params *p = params;
    (void)out;
    return (uint64_t)p->work * (uint64_t)in[0].width * (uint64_t)in[0].height;
}

// clang-format off
WORLD_PINS(resize_cpu_in,
           WORLD_PIN("input", WORLD_RAW, PEN_MEM_BIT(PEN_MEM_HOST),
                     WORLD_FORMATS));
WORLD_PINS(resize_cpu_out,
           WORLD_PIN("output", WORLD_RAW, PEN_MEM_BIT(PEN_MEM_HOST),
                     WORLD_FORMATS));
WORLD_PINS(resize_cuda_out,
           WORLD_PIN("output", WORLD_RAW, WORLD_CUDA, WORLD_FORMATS));
#define RESIZE_CLASS(NAME, BACKEND)                                            \
    WORLD_CLASS(NAME, TRANSFORM),                                              \
    WORLD_TAGS("function:resize", BACKEND), .props = resize_props,             \
    .params_size = sizeof(struct resize_params),                               \
    .ops.narrow = resize_narrow, .ops.operations = resize_operations
static const struct pen_module_class resize_cpu = {
    RESIZE_CLASS("ResizeCpu", "backend:cpu"), .inputs = resize_cpu_in,
    .outputs = resize_cpu_out,
};
static const struct pen_module_class resize_cuda = {
    RESIZE_CLASS("ResizeCuda", "backend:cuda"), .flags = PEN_CLASS_CUDA,
    .inputs = world_cuda_in, .outputs = resize_cuda_out,
};
// clang-format on

#endif  // WORLD_RESIZE_H
