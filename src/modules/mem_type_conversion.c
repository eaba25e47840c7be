// MemTypeConversion: says where frames live from here on. The planner sees to
// it that they come from the right side of the machine; what is left to do here
// is a copy by the host, and mostly nothing.

#include "common.h"
#include "modules.h"

struct params {
    int32_t mem;
};

static const struct pen_choice mem_choices[] = {
    { "HOST", PEN_MEM_HOST, "memory that the host can read, of any type" },
    { "HOST_PINNED", PEN_MEM_HOST_PINNED, "page-locked memory of the host" },
    { "DEVICE", PEN_MEM_CUDA_DEVICE, "memory that the GPU can read" },
    { "DMA", PEN_MEM_DMABUF, "DMABUFs" },
    { 0 },
};

// clang-format off
#define P struct params
static const struct pen_prop props[] = {
    PEN_ENUM(P, mem, "outputMemType", PEN_MEM_CUDA_DEVICE, mem_choices,
             "Memory of the frames from here on.",
             .flags = PEN_PROP_REQUIRED),
    PEN_PROPS_END,
};
#undef P
// clang-format on

#define MEM (PEN_MEM_BITS_HOST | STK_MEM_CUDA | STK_MEM_DMABUF)

static const struct pen_pin inputs[] = {
    STK_PIN_ANY("input", "Frame of any memory.", MEM),
    { 0 },
};
static const struct pen_pin outputs[] = {
    STK_PIN_ANY("output", "The same frame in the memory that was asked for.",
                MEM),
    { 0 },
};

static void narrow(const void *params, struct pen_pin_set *in,
                   struct pen_pin_set *out)
{
    const struct params *p = params;
    out->mem = PEN_MEM_BIT((unsigned)p->mem);
    switch ((enum pen_mem_type)p->mem) {
    case PEN_MEM_CUDA_DEVICE:
        in->mem = STK_MEM_CUDA;
        break;
    case PEN_MEM_DMABUF:
        in->mem = PEN_MEM_BITS_HOST | STK_MEM_DMABUF;
        break;
    default:
        in->mem = PEN_MEM_BITS_HOST;
        break;
    }
}

// Whether frames of memory `given` serve where `wanted` is asked for. What the
// host or the device cannot reach is not let in here by the planner.
static bool serves(enum pen_mem_type given, enum pen_mem_type wanted)
{
    return given == wanted || wanted == PEN_MEM_HOST ||
           wanted == PEN_MEM_CUDA_DEVICE;
}

static enum pen_status process(struct pen_module *m, const struct pen_io *io,
                               struct pen_error *err)
{
    const struct pen_frame *in = pen_input(io, 0);
    struct pen_frame *out = pen_output(io, 0);
    struct pen_view dst, src;
    (void)m;

    // The plan decides: its pool may be of other memory than was asked for, as
    // when HOST frames are page-locked for an upload.
    if (!out || serves(pen_frame_mem(in), pen_frame_mem(out))) {
        pen_forward(io, 0, 0);
        return PEN_OK;
    }
    PEN_TRY(stk_acquire_both(io, PEN_ON_HOST, &dst, &src, err));
    if (pen_frame_caps(in)->kind != PEN_KIND_RAW_IMAGE)
        PEN_TRY(pen_frame_set_bytes(out, pen_frame_bytes(in), err));
    return pen_copy(io, &dst, &src, err);
}

static const char *const tags[] = {
    "function:copy", "backend:cpu", "media:any",  "utility", "memory",
    "cuda",          "dmabuf",      "conversion", "bridge",  NULL,
};

// Of ApraPipes, where it copies; here the frame is mapped where it lies.
static const struct pen_alias aliases[] = {
    { "DMAFDToHostCopy", "outputMemType", "HOST" },
    { 0 },
};

const struct pen_module_class stk_class_mem_type_conversion = {
    .abi = PEN_MODULE_ABI,
    .size = sizeof(struct pen_module_class),
    .name = "MemTypeConversion",
    .version = "1.0",
    .summary = "Says in which memory frames live from here on.",
    .category = PEN_CATEGORY_UTILITY,
    .flags = PEN_CLASS_BRIDGE,
    .tags = tags,
    .aliases = aliases,
    .inputs = inputs,
    .outputs = outputs,
    .props = props,
    .params_size = sizeof(struct params),
    .ops = {
        .narrow = narrow,
        .process = process,
    },
};
