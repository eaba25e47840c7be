// What things cost: profiles, and nanoseconds of a frame at a module.
//
// Times are integers, so that sums do not depend on their order and plans are
// equal byte for byte everywhere.

#include "planner.h"

#include <string.h>

// generic-cuda: half of what an H200 on PCIe 5 was measured to do with pinned
// memory (54 GB/s each way), which a PCIe 4 card reaches; device memory of a
// mid-range card (500 GB/s); conversions of one host thread.
// cpu: a machine without a device. Its device numbers are those of the
// emulated device, whose copies and kernels run on the host.
// clang-format off
static const struct pen_profile profiles[] = {
    { .name = "generic-cuda", .cuda = true,
      .h2d_rate = 25000, .d2h_rate = 25000, .pageable_rate = 6000,
      .device_rate = 500000, .host_rate = 20000,
      .host_operations = 8000, .device_operations = 1000000,
      .launch_ns = 5000, .copy_ns = 8000,
      .context_ns = 250000000, .load_ns = 200000,
      .dmabuf = PEN_DMABUF_HOST | PEN_DMABUF_EXPORT,
      .why_dmabuf = { "", "", "a discrete GPU does not import DMABUFs" } },
    { .name = "cpu", .cuda = false,
      .h2d_rate = 8000, .d2h_rate = 8000, .pageable_rate = 8000,
      .device_rate = 20000, .host_rate = 20000,
      .host_operations = 8000, .device_operations = 500,
      .launch_ns = 10000, .copy_ns = 4000,
      .context_ns = 2000000, .load_ns = 1000000,
      .dmabuf = PEN_DMABUF_HOST | PEN_DMABUF_EXPORT | PEN_DMABUF_IMPORT },
};
// clang-format on

const struct pen_profile *pen_profile_builtin(const char *name)
{
    for (size_t i = 0; name && i < sizeof(profiles) / sizeof(*profiles); i++)
        if (!strcmp(profiles[i].name, name))
            return &profiles[i];
    return NULL;
}

int64_t stk_cost_sum(int64_t a, int64_t b)
{
    int64_t sum;
    return __builtin_add_overflow(a, b, &sum) ? INT64_MAX : sum;
}

int64_t stk_cost_share(uint32_t once, uint64_t frames)
{
    return frames ? (int64_t)((once + frames - 1) / frames) : 0;
}

int64_t stk_cost_move(uint64_t bytes, uint32_t rate)
{
    if (rate == 0)
        rate = 1;
    const uint64_t whole = bytes / rate, rest = bytes % rate;
    if (whole > (uint64_t)INT64_MAX / 1000 - 1000)
        return INT64_MAX;
    return (int64_t)(whole * 1000 + (rest * 1000 + rate - 1) / rate);
}

bool stk_class_copies(const struct pen_module_class *cls)
{
    if (!(cls->flags & PEN_CLASS_BRIDGE))
        return false;
    for (const char *const *tag = cls->tags; tag && *tag; tag++)
        if (!strcmp(*tag, "function:color"))
            return false;
    return true;
}

static enum stk_home first_home(uint32_t mems)
{
    const uint32_t taken = stk_homes_taken(mems, 0);
    return taken ? (enum stk_home)__builtin_ctz(taken) : STK_HOME_HOST;
}

enum stk_transfer stk_transfer_between(const struct pen_module_class *cls,
                                       enum stk_home in, enum stk_home out)
{
    if (!(cls->flags & PEN_CLASS_CUDA))
        return STK_H2H;
    const bool from_device = STK_HOMES_CUDA & STK_HOME_BIT(in);
    const bool to_device = STK_HOMES_CUDA & STK_HOME_BIT(out);
    // An imported DMABUF of the host that is to be downloaded is, by the
    // device.
    if (!to_device)
        return STK_D2H;
    return from_device ? STK_D2D : STK_H2D;
}

enum stk_transfer stk_node_transfer(const struct pen_plan *plan,
                                    const struct stk_plan_node *node)
{
    if (!node->copies || node->inputs != 1 || node->outputs != 1)
        return STK_NO_TRANSFER;
    enum stk_home in = first_home(node->in[0].mem);
    enum stk_home out = first_home(node->out[0].mem);
    if (node->in_edge[0] >= 0) {
        const struct stk_plan_edge *e = &plan->edges[node->in_edge[0]];
        in = stk_output_home(&plan->nodes[e->from].output[e->from_pin]);
    }
    if (node->output[0].mem != PEN_MEM_NONE)
        out = stk_output_home(&node->output[0]);
    if (stk_node_hands_through(plan, node))
        return STK_NO_TRANSFER;
    return stk_transfer_between(node->cls, in, out);
}

int64_t stk_cost_class(const struct pen_profile *f,
                       const struct pen_module_class *cls, const void *params,
                       const struct pen_caps *in, const struct pen_caps *out,
                       uint64_t bytes)
{
    const bool cuda = cls->flags & PEN_CLASS_CUDA;
    const uint64_t operations =
        cls->ops.operations ? cls->ops.operations(params, in, out) : 0;
    const int64_t work =
        stk_cost_sum(stk_cost_move(bytes, cuda ? f->device_rate : f->host_rate),
                     stk_cost_move(operations, cuda ? f->device_operations
                                                    : f->host_operations));
    return cuda ? stk_cost_sum(work, f->launch_ns) : work;
}

int64_t stk_cost_transfer(const struct pen_profile *f, enum stk_transfer which,
                          uint64_t in, uint64_t out)
{
    switch (which) {
    case STK_H2D:
        return stk_cost_sum(stk_cost_move(in, f->h2d_rate), f->copy_ns);
    case STK_D2H:
        return stk_cost_sum(stk_cost_move(in, f->d2h_rate), f->copy_ns);
    case STK_D2D:
        return stk_cost_sum(stk_cost_move(in + out, f->device_rate),
                            f->copy_ns);
    case STK_H2H:
        return stk_cost_move(in + out, f->host_rate);
    case STK_NO_TRANSFER:
        break;
    }
    return 0;
}

bool stk_reads(const struct pen_module_class *cls, const struct pen_pin_set *in)
{
    return (cls->flags & PEN_CLASS_CUDA) ||
           !(in->mem & PEN_MEM_BIT(PEN_MEM_CUDA_DEVICE));
}

// Caps at the pins of a node.
static void node_caps(const struct pen_plan *plan,
                      const struct stk_plan_node *node,
                      struct pen_caps in[PEN_MAX_PINS],
                      struct pen_caps out[PEN_MAX_PINS])
{
    memset(in, 0, PEN_MAX_PINS * sizeof(*in));
    memset(out, 0, PEN_MAX_PINS * sizeof(*out));
    for (uint32_t i = 0; i < node->inputs; i++) {
        if (node->in_edge[i] < 0)
            continue;
        const struct stk_plan_edge *e = &plan->edges[node->in_edge[i]];
        in[i] = plan->nodes[e->from].output[e->from_pin].caps;
    }
    for (uint32_t o = 0; o < node->outputs; o++)
        out[o] = node->output[o].caps;
}

bool stk_node_cost(const struct pen_plan *plan,
                   const struct stk_plan_node *node, int64_t *cost)
{
    uint64_t in = 0, out = 0;
    bool known = true;
    *cost = 0;
    if (stk_node_hands_through(plan, node))
        return true;
    for (uint32_t i = 0; i < node->inputs; i++) {
        if (node->in_edge[i] < 0)
            continue;
        const struct stk_plan_edge *e = &plan->edges[node->in_edge[i]];
        const size_t bytes =
            plan->nodes[e->from].output[e->from_pin].block_bytes;
        known = known && bytes;
        if (stk_reads(node->cls, &node->in[i]))
            in += bytes;
    }
    for (uint32_t o = 0; o < node->outputs; o++) {
        if (node->output[o].mem == PEN_MEM_NONE)
            continue;
        known = known && node->output[o].block_bytes;
        out += node->output[o].block_bytes;
    }
    if (!known)
        return false;
    const enum stk_transfer which = stk_node_transfer(plan, node);
    if (which) {
        *cost = stk_cost_transfer(&plan->profile, which, in, out);
    } else {
        struct pen_caps from[PEN_MAX_PINS], to[PEN_MAX_PINS];
        node_caps(plan, node, from, to);
        *cost = stk_cost_class(&plan->profile, node->cls, node->params, from,
                               to, in + out);
    }
    return true;
}
