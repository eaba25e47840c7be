// Where frames live: the memory types, with DMABUF told apart by what it is
// made of.

#include "planner.h"

#include <stdio.h>
#include <string.h>

static const struct {
    enum pen_mem_type mem;
    enum stk_dmabuf_kind kind;
} homes[STK_HOMES] = {
    [STK_HOME_HOST] = { PEN_MEM_HOST, STK_DMABUF_NONE },
    [STK_HOME_PINNED] = { PEN_MEM_HOST_PINNED, STK_DMABUF_NONE },
    [STK_HOME_CUDA] = { PEN_MEM_CUDA_DEVICE, STK_DMABUF_NONE },
    [STK_HOME_DMA_HOST] = { PEN_MEM_DMABUF, STK_DMABUF_HOST },
    [STK_HOME_DMA_CUDA] = { PEN_MEM_DMABUF, STK_DMABUF_CUDA },
};

enum pen_mem_type stk_home_mem(enum stk_home home)
{
    return homes[home].mem;
}

enum stk_dmabuf_kind stk_home_kind(enum stk_home home)
{
    return homes[home].kind;
}

enum stk_home stk_home_of(enum pen_mem_type mem, enum stk_dmabuf_kind kind)
{
    for (unsigned h = 0; h < STK_HOMES; h++)
        if (homes[h].mem == mem &&
            (mem != PEN_MEM_DMABUF || homes[h].kind == kind))
            return (enum stk_home)h;
    return mem == PEN_MEM_DMABUF ? STK_HOME_DMA_HOST : STK_HOME_HOST;
}

enum stk_home stk_output_home(const struct stk_plan_output *o)
{
    return stk_home_of(o->mem, o->kind);
}

enum stk_home stk_edge_home(const struct stk_plan_edge *e)
{
    return stk_home_of(e->mem, e->kind);
}

void stk_output_set_home(struct stk_plan_output *o, enum stk_home home)
{
    o->mem = homes[home].mem;
    o->kind = homes[home].kind;
}

uint32_t stk_homes_taken(uint32_t mems, unsigned dmabuf)
{
    uint32_t taken = 0;
    if (mems & PEN_MEM_BIT(PEN_MEM_HOST))
        taken |= STK_HOMES_HOST;
    if (mems & PEN_MEM_BIT(PEN_MEM_HOST_PINNED))
        taken |= STK_HOME_BIT(STK_HOME_PINNED);
    if (mems & PEN_MEM_BIT(PEN_MEM_CUDA_DEVICE))
        taken |=
            STK_HOMES_CUDA |
            (dmabuf & PEN_DMABUF_IMPORT ? STK_HOME_BIT(STK_HOME_DMA_HOST) : 0);
    if (mems & PEN_MEM_BIT(PEN_MEM_DMABUF))
        taken |= STK_HOMES_DMABUF;
    return taken;
}

enum stk_home stk_homes_promise(uint32_t mixed)
{
    if ((mixed & (mixed - 1)) == 0)
        return mixed ? (enum stk_home)__builtin_ctz(mixed) : STK_HOME_HOST;
    return mixed & ~STK_HOMES_CUDA ? STK_HOME_HOST : STK_HOME_CUDA;
}

enum pen_mem_type stk_home_account(enum stk_home home)
{
    return home == STK_HOME_DMA_CUDA ? PEN_MEM_CUDA_DEVICE : homes[home].mem;
}

bool stk_node_hands_through(const struct pen_plan *plan,
                            const struct stk_plan_node *node)
{
    if (node->cls->flags & PEN_CLASS_FORWARDS)
        return true;
    if (!node->copies || (node->cls->flags & PEN_CLASS_CUDA) ||
        node->inputs != 1 || node->outputs != 1 || node->in_edge[0] < 0)
        return false;
    const struct stk_plan_edge *e = &plan->edges[node->in_edge[0]];
    const enum stk_home in =
        stk_output_home(&plan->nodes[e->from].output[e->from_pin]);
    return stk_homes_taken(node->out[0].mem, PEN_DMABUF_IMPORT) &
           STK_HOME_BIT(in);
}

const char *stk_edge_how(const struct pen_plan *plan,
                         const struct stk_plan_edge *e)
{
    const struct stk_plan_node *to = &plan->nodes[e->to];
    const uint32_t mems = to->in[e->to_pin].mem;
    switch (stk_edge_home(e)) {
    case STK_HOME_DMA_HOST:
        if (mems & PEN_MEM_BIT(PEN_MEM_DMABUF))
            return "";
        return mems & PEN_MEM_BIT(PEN_MEM_HOST) ? "mapped" : "imported";
    case STK_HOME_DMA_CUDA:
        return mems & PEN_MEM_BIT(PEN_MEM_DMABUF) ? "exported" : "";
    case STK_HOME_HOST:
    case STK_HOME_PINNED:
    case STK_HOME_CUDA:
    case STK_HOMES:
        break;
    }
    return "";
}

const char *stk_home_text(enum stk_home home)
{
    switch (home) {
    case STK_HOME_DMA_HOST:
        return "DMABUF(host)";
    case STK_HOME_DMA_CUDA:
        return "DMABUF(device)";
    case STK_HOME_HOST:
    case STK_HOME_PINNED:
    case STK_HOME_CUDA:
    case STK_HOMES:
        break;
    }
    return pen_mem_name(homes[home].mem);
}

static void set_reason(char *out, size_t size, bool can,
                       const struct pen_profile *profile, unsigned bit)
{
    out[0] = '\0';
    if (can)
        return;
    if (profile->why_dmabuf[bit][0])
        snprintf(out, size, "%s", profile->why_dmabuf[bit]);
    else
        snprintf(out, size, "profile `%s` has no such DMABUFs", profile->name);
}

void stk_profile_dmabuf(const struct pen_profile *profile,
                        struct stk_dmabuf_caps *out)
{
    *out = (struct stk_dmabuf_caps){
        .host = profile->dmabuf & PEN_DMABUF_HOST,
        .export = profile->dmabuf & PEN_DMABUF_EXPORT,
        .import = profile->dmabuf & PEN_DMABUF_IMPORT,
    };
    set_reason(out->why_host, sizeof(out->why_host), out->host, profile, 0);
    set_reason(out->why_export, sizeof(out->why_export), out->export, profile,
               1);
    set_reason(out->why_import, sizeof(out->why_import), out->import, profile,
               2);
}
