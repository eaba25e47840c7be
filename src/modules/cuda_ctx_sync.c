// CuCtxSynchronize: forwards a frame when everything that was submitted
// before to the whole context is done. No thread waits meanwhile.

#include "common.h"
#include "modules.h"

static const struct pen_pin inputs[] = {
    STK_PIN_ANY("input", "Any frame of the device.", STK_MEM_CUDA),
    { 0 },
};
static const struct pen_pin outputs[] = {
    STK_PIN_ANY("output", "The same frame, later.", STK_MEM_CUDA),
    { 0 },
};

static enum pen_status process(struct pen_module *m, const struct pen_io *io,
                               struct pen_error *err)
{
    bool reached = false;
    (void)m;

    PEN_TRY(pen_park_on_context(io, &reached, err));
    if (!reached)
        return PEN_AGAIN;
    pen_forward(io, 0, 0);
    return PEN_OK;
}

static const char *const tags[] = {
    "function:sync", "backend:cuda", "media:any", "utility",
    "sync",          "cuda",         "context",   NULL,
};

const struct pen_module_class stk_class_cuda_ctx_sync = {
    .abi = PEN_MODULE_ABI,
    .size = sizeof(struct pen_module_class),
    .name = "CuCtxSynchronize",
    .version = "1.0",
    .summary = "Holds a frame until the whole context has done all earlier work.",
    .category = PEN_CATEGORY_UTILITY,
    .flags = PEN_CLASS_CUDA | PEN_CLASS_FORWARDS,
    .tags = tags,
    .inputs = inputs,
    .outputs = outputs,
    .ops = {
        .process = process,
    },
};
