// What the options of a module take and give, by their declarations.

#include "plan_joint.h"

uint32_t stk_wanted_mems(const struct stk_planner *p,
                         const struct stk_option *option, uint32_t outputs,
                         uint32_t pin)
{
    const bool bridges = !p->plan->desc || p->plan->desc->auto_bridge;
    if (bridges && stk_class_copies(option->cls) &&
        !(option->cls->flags & PEN_CLASS_CUDA) && outputs == 1)
        return option->out[0].mem;
    return option->in[pin].mem ? option->in[pin].mem
                               : PEN_MEM_BIT(PEN_MEM_HOST);
}

static bool uploads(const struct stk_option *option, uint32_t outputs)
{
    const uint32_t cuda = PEN_MEM_BIT(PEN_MEM_CUDA_DEVICE);
    return stk_class_copies(option->cls) &&
           (option->cls->flags & PEN_CLASS_CUDA) && outputs == 1 &&
           option->out[0].mem == cuda && !(option->in[0].mem & cuda);
}

// A hand-written upload gets pinned frames as an inserted one does: the
// producer's pool is upgraded.
uint32_t stk_option_homes(const struct stk_planner *p,
                          const struct stk_option *option, uint32_t outputs,
                          uint32_t pin)
{
    uint32_t homes = stk_homes_taken(stk_wanted_mems(p, option, outputs, pin),
                                     p->plan->profile.dmabuf);
    if (uploads(option, outputs))
        homes &= STK_HOME_BIT(STK_HOME_PINNED);
    return homes;
}

bool stk_kinds_fit(const struct pen_caps *caps, const struct pen_pin_set *set)
{
    const enum pen_kind kind = caps->kind;
    return kind == PEN_KIND_NONE || kind == PEN_KIND_FRAME || !set->kinds ||
           (set->kinds & (PEN_KIND_BIT(kind) | PEN_KIND_BIT(PEN_KIND_FRAME)));
}

uint32_t stk_option_roots(const struct stk_planner *p,
                          const struct stk_option *option, uint32_t pin,
                          uint32_t *declared)
{
    const unsigned can = p->plan->profile.dmabuf;
    const bool cuda = option->cls->flags & PEN_CLASS_CUDA;
    uint32_t mems = option->out[pin].mem, homes = 0;
    if (mems == 0)
        mems = PEN_MEM_BIT(PEN_MEM_HOST);
    // What a device module gives on the host is written by the device.
    if (cuda && (mems & PEN_MEM_BIT(PEN_MEM_HOST_PINNED)))
        mems &= ~PEN_MEM_BIT(PEN_MEM_HOST);
    if (mems & PEN_MEM_BIT(PEN_MEM_HOST))
        homes |= STK_HOME_BIT(STK_HOME_HOST);
    if (mems & PEN_MEM_BIT(PEN_MEM_HOST_PINNED))
        homes |= STK_HOME_BIT(STK_HOME_PINNED);
    if (mems & PEN_MEM_BIT(PEN_MEM_CUDA_DEVICE))
        homes |= STK_HOME_BIT(STK_HOME_CUDA);
    if (mems & PEN_MEM_BIT(PEN_MEM_DMABUF))
        homes |= STK_HOME_BIT(cuda ? STK_HOME_DMA_CUDA : STK_HOME_DMA_HOST);
    *declared = homes;
    if (!(can & PEN_DMABUF_HOST))
        homes &= ~STK_HOME_BIT(STK_HOME_DMA_HOST);
    if (!(can & PEN_DMABUF_EXPORT))
        homes &= ~STK_HOME_BIT(STK_HOME_DMA_CUDA);
    return homes;
}
