// The bridges behind one output pin, as they were chosen, and what is to be
// said where there are none.

#include "plan_joint.h"

#include <stdio.h>
#include <string.h>

// --- complaints -------------------------------------------------------------

static const char *way_round(const struct stk_planner *p, uint32_t wanted,
                             const struct stk_origin *from)
{
    const uint32_t host = PEN_MEM_BITS_HOST;
    const enum pen_mem_type given = stk_home_mem(from->home);
    if (!p->plan->desc || p->plan->desc->auto_bridge)
        return "";
    if (!(wanted & ~PEN_MEM_BIT(PEN_MEM_DMABUF)) && (PEN_MEM_BIT(given) & host))
        return "put { \"type\": \"MemTypeConversion\", \"props\": { "
               "\"outputMemType\": \"DMA\" } } between them, or set "
               "\"auto_bridge\": true";
    if ((STK_HOME_BIT(from->home) & STK_HOMES_HOST) && !(wanted & host))
        return "put { \"type\": \"CudaMemCopy\", \"props\": { \"kind\": "
               "\"HostToDevice\" } } between them, or set \"auto_bridge\": "
               "true";
    if ((STK_HOME_BIT(from->home) & STK_HOMES_CUDA) &&
        !(wanted & PEN_MEM_BIT(PEN_MEM_CUDA_DEVICE)))
        return "put { \"type\": \"CudaMemCopy\", \"props\": { \"kind\": "
               "\"DeviceToHost\" } } between them, or set \"auto_bridge\": "
               "true";
    return given == PEN_MEM_CUDA_DEVICE
               ? "put a CCNPPI with the right `imageType` between them, or "
                 "set \"auto_bridge\": true"
               : "put a ColorConversion with the right `imageType` between "
                 "them, or set \"auto_bridge\": true";
}

// Whether a consumer cannot be served for want of DMABUFs; `why` says what is
// missing.
static bool no_dmabuf(const struct stk_planner *p, uint32_t wanted,
                      enum stk_home given, char *why, size_t size)
{
    struct stk_dmabuf_caps caps;
    stk_profile_dmabuf(&p->plan->profile, &caps);
    for (unsigned m = PEN_MEM_HOST; m < PEN_MEM_COUNT; m++) {
        const enum pen_mem_type to = (enum pen_mem_type)m;
        if ((wanted & PEN_MEM_BIT(m)) &&
            stk_way_between(stk_home_mem(given), stk_home_kind(given), to,
                            &caps, why, size) != STK_WAY_REFUSED)
            return false;
    }
    return true;
}

// The option of a consumer that is to be spoken of.
static const struct stk_option *option_of(const struct stk_planner *p,
                                          uint32_t node)
{
    const uint32_t chosen = p->decision.option[node];
    return &p->graph->nodes[node].options[chosen == UINT32_MAX ? 0 : chosen];
}

static void wrong_kind(struct stk_planner *p, const struct stk_origin *from,
                       const struct stk_edge *e)
{
    const struct stk_node *to = &p->graph->nodes[e->to];
    const struct pen_pin_set *set = &option_of(p, e->to)->in[e->to_pin];
    const enum pen_kind kind = from->caps->kind;
    stk_planner_error(p, "E304", e->desc ? e->desc->pointer : "",
                      kind == PEN_KIND_ENCODED_IMAGE
                          ? "put a decoder (ImageDecoderCV) between them"
                      : set->kinds & PEN_KIND_BIT(PEN_KIND_ENCODED_IMAGE)
                          ? "put an encoder (ImageEncoderCV) between them"
                          : "",
                      "`%s.%s` gives %s frames, pin `%s` of `%s` does not take "
                      "them",
                      from->id, from->pin, pen_kind_name(kind),
                      to->cls->inputs[e->to_pin].name, to->desc->id);
}

static void complain(struct stk_planner *p, const struct stk_origin *from,
                     const struct stk_edge *e)
{
    const bool off = p->plan->desc && !p->plan->desc->auto_bridge;
    const struct stk_node *to = &p->graph->nodes[e->to];
    const struct stk_option *option = option_of(p, e->to);
    const struct pen_pin_set *set = &option->in[e->to_pin];
    const uint32_t wanted = stk_wanted_mems(p, option, to->outputs, e->to_pin);
    const uint32_t takes = stk_option_homes(p, option, to->outputs, e->to_pin);
    const bool mem = !(takes & STK_HOME_BIT(from->home));
    const char *code = "E311", *suggestion = way_round(p, set->mem, from);
    char wants[200], gives[200], why[400];
    if (!stk_kinds_fit(from->caps, set)) {
        wrong_kind(p, from, e);
        return;
    }
    if (mem) {
        // An upload takes host frames, but reads pinned memory.
        stk_wanted_text(takes == STK_HOME_BIT(STK_HOME_PINNED)
                            ? PEN_MEM_BIT(PEN_MEM_HOST_PINNED)
                            : wanted,
                        wants, sizeof(wants));
        stk_mems_text(PEN_MEM_BIT(stk_home_mem(from->home)), gives,
                      sizeof(gives));
    } else {
        stk_mask_text(set->formats, wants, sizeof(wants));
        stk_mask_text(stk_caps_mask(from->caps), gives, sizeof(gives));
    }
    if (mem && no_dmabuf(p, wanted, from->home, why, sizeof(why))) {
        code = "E313";
        suggestion = "";
    } else if (off) {
        code = "E312";
        snprintf(why, sizeof(why), "and auto_bridge is false");
    } else {
        snprintf(why, sizeof(why), "and no bridge leads from there");
    }
    stk_planner_error(p, code, e->desc ? e->desc->pointer : "", suggestion,
                      "pin `%s` of `%s` takes %s, `%s.%s` gives %s%s %s",
                      to->cls->inputs[e->to_pin].name, to->desc->id, wants,
                      from->id, from->pin, gives,
                      strcmp(code, "E313") ? "," : ":", why);
}

// Where the module says that frames of an output are born. False if this
// machine can make none of these; then that was said.
static bool find_roots(struct stk_planner *p, uint32_t number, uint32_t pin,
                       uint32_t *homes)
{
    const struct stk_plan_node *node = &p->plan->nodes[number];
    const struct stk_aside *a = &p->aside[number];
    const struct stk_option *option =
        &p->graph->nodes[a->node].options[a->option];
    struct stk_dmabuf_caps caps;
    uint32_t declared;
    if (stk_node_hands_through(p->plan, node)) {
        *homes = STK_HOME_BIT(STK_HOMES) - 1;
        return true;
    }
    *homes = stk_option_roots(p, option, pin, &declared);
    if (*homes)
        return true;
    stk_profile_dmabuf(&p->plan->profile, &caps);
    const bool cuda = declared & STK_HOME_BIT(STK_HOME_DMA_CUDA);
    stk_planner_error(p, "E313", node->pointer,
                      cuda ? "let it give CUDA_DEVICE"
                           : "let it give HOST or HOST_PINNED (`memType`)",
                      "`%s.%s` gives DMABUF, and there are none of %s memory: "
                      "%s",
                      node->id, node->cls->outputs[pin].name,
                      cuda ? "device" : "host",
                      cuda ? caps.why_export : caps.why_host);
    p->poison[number] = true;
    return false;
}

// --- one pin ----------------------------------------------------------------

// Where frames really lie that a node hands through: a pool before it may have
// been page-locked for somebody else.
static enum stk_home passed_home(const struct pen_plan *plan,
                                 const struct stk_plan_node *node)
{
    uint32_t homes = 0;
    for (uint32_t i = 0; i < node->inputs; i++) {
        if (node->in_edge[i] < 0)
            continue;
        const struct stk_plan_edge *e = &plan->edges[node->in_edge[i]];
        homes |= STK_HOME_BIT(
            stk_output_home(&plan->nodes[e->from].output[e->from_pin]));
    }
    return stk_homes_promise(homes);
}

enum pen_status stk_plan_place(struct stk_planner *p, uint32_t number,
                               uint32_t pin, uint32_t begin, uint32_t end,
                               struct pen_error *err)
{
    const uint32_t graph_node = p->aside[number].node;
    const size_t at = (size_t)graph_node * PEN_MAX_PINS + pin;
    const struct stk_tree *tree = p->decision.tree[at];
    struct stk_board *board = NULL;
    uint32_t homes;
    if (!find_roots(p, number, pin, &homes) || !tree)
        return PEN_OK;
    // Inserting may move plan->nodes, so the caps are copied.
    const struct stk_plan_node *node = &p->plan->nodes[number];
    const struct pen_caps caps = node->output[pin].caps;
    if (tree->steps)
        PEN_TRY(stk_board_get(p, &p->decision.key[at], &board, err));
    const struct stk_origin from = {
        .id = node->id,
        .pin = node->cls->outputs[pin].name,
        .home = stk_state_home(tree->root),
        .caps = &caps,
        .node = graph_node,
        .pin_number = pin,
        .begin = begin,
        .end = end,
        .board = board,
        .tree = tree,
    };
    for (uint32_t n = begin; n < end; n++)
        if (p->decision.at[p->out[n]] < 0 || p->decision.amiss[p->out[n]])
            complain(p, &from, &p->graph->edges[p->out[n]]);
    struct stk_plan_output *o = &p->plan->nodes[number].output[pin];
    if (stk_node_hands_through(p->plan, &p->plan->nodes[number])) {
        stk_output_set_home(o, passed_home(p->plan, &p->plan->nodes[number]));
    } else if (homes & STK_HOME_BIT(from.home)) {
        stk_output_set_home(o, from.home);
    } else {
        stk_output_set_home(o, from.home == STK_HOME_DMA_CUDA ? STK_HOME_CUDA
                                                              : STK_HOME_HOST);
        stk_pool_upgrade(p, number, pin, from.home);
    }
    return stk_place_emit(p, &from, tree->root, number, pin, err);
}
