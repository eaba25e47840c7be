// CudaMemCopy: frames of any kind between host and device memory. The memory
// bridge of the planner.

#include "common.h"
#include "modules.h"

enum kind { HOST_TO_DEVICE = 0, DEVICE_TO_HOST, DEVICE_TO_DEVICE };

struct params {
    int32_t kind;
    bool sync;
};

static const struct pen_choice kind_choices[] = {
    { "HostToDevice", HOST_TO_DEVICE, "upload" },
    { "DeviceToHost", DEVICE_TO_HOST, "download" },
    { "DeviceToDevice", DEVICE_TO_DEVICE, "copy within the device" },
    { 0 },
};

// clang-format off
#define P struct params
static const struct pen_prop props[] = {
    PEN_ENUM(P, kind, "kind", HOST_TO_DEVICE, kind_choices,
             "Direction of the copy."),
    PEN_BOOL(P, sync, "sync", false,
             "Of ApraPipes; has no effect: a frame carries the moment at "
             "which it is ready, and whoever reads it waits for that."),
    PEN_PROPS_END,
};
#undef P
// clang-format on

#define MEM (PEN_MEM_BITS_HOST | STK_MEM_CUDA)

static const struct pen_pin inputs[] = {
    STK_PIN_ANY("input", "Frame to copy.", MEM),
    { 0 },
};
static const struct pen_pin outputs[] = {
    STK_PIN_ANY("output", "The same frame in the other memory.", MEM),
    { 0 },
};

// A copy engine reaches page-locked memory only, so a download always ends
// there; host memory that is to be uploaded the planner has made page-locked.
static void narrow(const void *params, struct pen_pin_set *in,
                   struct pen_pin_set *out)
{
    const struct params *p = params;
    in->mem = p->kind == HOST_TO_DEVICE ? PEN_MEM_BITS_HOST : STK_MEM_CUDA;
    out->mem = p->kind == DEVICE_TO_HOST ? PEN_MEM_BIT(PEN_MEM_HOST_PINNED)
                                         : STK_MEM_CUDA;
}

static enum pen_status process(struct pen_module *m, const struct pen_io *io,
                               struct pen_error *err)
{
    struct pen_view dst, src;
    (void)m;

    const struct pen_frame *in = pen_input(io, 0);
    PEN_TRY(stk_acquire_both(io, PEN_ON_STREAM, &dst, &src, err));
    if (pen_frame_caps(in)->kind != PEN_KIND_RAW_IMAGE)
        PEN_TRY(
            pen_frame_set_bytes(pen_output(io, 0), pen_frame_bytes(in), err));
    return pen_copy(io, &dst, &src, err);
}

static const char *const tags[] = {
    "function:copy", "backend:cuda", "media:any", "utility", "memory",
    "cuda",          "transfer",     "bridge",    NULL,
};

static const struct pen_alias aliases[] = {
    { "CudaMemCopyH2D", "kind", "HostToDevice" },
    { "CudaMemCopyD2H", "kind", "DeviceToHost" },
    { 0 },
};

const struct pen_module_class stk_class_cuda_mem_copy = {
    .abi = PEN_MODULE_ABI,
    .size = sizeof(struct pen_module_class),
    .name = "CudaMemCopy",
    .version = "1.0",
    .summary = "Copies frames between host and device memory.",
    .category = PEN_CATEGORY_UTILITY,
    .flags = PEN_CLASS_CUDA | PEN_CLASS_BRIDGE,
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
