// From a tree of steps to bridges in the plan, with reasons and losses.

#include "plan_joint.h"

#include <string.h>

static enum stk_home plain_home(enum stk_home home)
{
    return home == STK_HOME_DMA_CUDA ? STK_HOME_CUDA : STK_HOME_HOST;
}

// For forwarded frames, the pools they come from.
void stk_pool_upgrade(struct stk_planner *p, uint32_t number, uint32_t pin,
                      enum stk_home to)
{
    const struct pen_plan *plan = p->plan;
    for (;;) {
        struct stk_plan_node *node = &plan->nodes[number];
        struct stk_plan_output *o = &node->output[pin];
        if (stk_output_home(o) != plain_home(to))
            return;
        const enum pen_mem_type was = o->mem;
        stk_output_set_home(o, to);
        if (!stk_node_hands_through(plan, node))
            o->upgraded_from = was;
        if (!node->forwards)
            return;
        int32_t last = -1;
        for (uint32_t i = 0; i < node->inputs; i++) {
            if (node->in_edge[i] < 0)
                continue;
            if (last >= 0) {
                const struct stk_plan_edge *e = &plan->edges[last];
                stk_pool_upgrade(p, e->from, e->from_pin, to);
            }
            last = node->in_edge[i];
        }
        if (last < 0)
            return;
        number = plan->edges[last].from;
        pin = plan->edges[last].from_pin;
    }
}

void stk_wanted_text(uint32_t mems, char *text, size_t size)
{
    if (mems & PEN_MEM_BIT(PEN_MEM_HOST))
        mems &= ~PEN_MEM_BIT(PEN_MEM_HOST_PINNED);
    stk_mems_text(mems, text, size);
}

static bool below(const struct stk_tree *tree, int v, int ancestor)
{
    for (;;) {
        if (v == ancestor)
            return true;
        unsigned i = 0;
        while (i < tree->steps && tree->step[i].to != v)
            i++;
        if (i == tree->steps)
            return false;
        v = tree->step[i].from;
    }
}

// reason and serves of the bridge that makes state `at`, and the deepest
// queue behind it.
static enum pen_status explain(struct stk_planner *p,
                               const struct stk_origin *from, int at,
                               bool conversion, struct stk_plan_node *node,
                               uint32_t *depth, struct pen_error *err)
{
    struct stk_text reason = { 0 }, serves = { 0 };
    const struct stk_edge *first = &p->graph->edges[p->out[from->begin]];
    uint32_t count = 0;
    *depth = 1;
    for (uint32_t n = from->begin; n < from->end; n++) {
        const struct stk_edge *e = &p->graph->edges[p->out[n]];
        const struct stk_node *to = &p->graph->nodes[e->to];
        const uint32_t d = stk_planner_depth(p, e);
        const int served = p->decision.at[p->out[n]];
        if (served < 0 || !below(from->tree, served, at))
            continue;
        if (count == 0)
            first = e;
        if (d > *depth)
            *depth = d;
        const char *part[] = { count ? ", " : "",
                               from->id,
                               ".",
                               from->pin,
                               " -> ",
                               to->desc->id,
                               ".",
                               to->cls->inputs[e->to_pin].name };
        for (unsigned i = 0; i < sizeof(part) / sizeof(part[0]); i++)
            stk_text_add(&serves, part[i]);
        count++;
    }
    const struct stk_node *to = &p->graph->nodes[first->to];
    const uint32_t chosen = p->decision.option[first->to];
    const struct stk_option *option =
        &to->options[chosen == UINT32_MAX ? 0 : chosen];
    char wants[160], gives[160];
    if (conversion) {
        stk_mask_text(option->in[first->to_pin].formats, wants, sizeof(wants));
        stk_mask_text(stk_caps_mask(from->caps), gives, sizeof(gives));
    } else {
        stk_wanted_text(stk_wanted_mems(p, option, to->outputs, first->to_pin),
                        wants, sizeof(wants));
        stk_mems_text(PEN_MEM_BIT(stk_home_mem(from->home)), gives,
                      sizeof(gives));
    }
    const char *part[] = { "pin `",
                           to->cls->inputs[first->to_pin].name,
                           "` of `",
                           to->desc->id,
                           conversion ? "` takes " : "` needs ",
                           wants,
                           "; `",
                           from->id,
                           ".",
                           from->pin,
                           "` gives ",
                           gives };
    for (unsigned i = 0; i < sizeof(part) / sizeof(part[0]); i++)
        stk_text_add(&reason, part[i]);
    if (count > 1)
        stk_text_addf(&reason, " (and %u more)", count - 1);
    if (node->staged)
        stk_text_add(&reason, ", not pinned: that would be over the budget");

    enum pen_status st = PEN_OK;
    if (!reason.failed && !serves.failed) {
        node->reason = stk_arena_strdup(&p->plan->arena, reason.data);
        node->serves = stk_arena_strdup(&p->plan->arena, serves.data);
    }
    if (!node->reason || !node->serves)
        st = stk_plan_no_memory(err);
    stk_text_finish(&reason);
    stk_text_finish(&serves);
    return st;
}

static enum pen_status describe_loss(struct stk_planner *p,
                                     const struct stk_board *b,
                                     const struct pen_caps *caps, int at,
                                     int to, struct stk_plan_node *node,
                                     struct pen_error *err)
{
    struct stk_text text = { 0 };
    const enum pen_format target = b->format[stk_state_format(to)];
    const unsigned index = stk_state_format(at);
    const uint32_t from = index ? PEN_FMT_BIT(b->format[index]) : b->mask;
    for (unsigned f = 1; f < PEN_FMT_COUNT; f++) {
        if (!(from & PEN_FMT_BIT(f)))
            continue;
        const uint64_t loss = stk_format_loss(
            (enum pen_format)f, target, stk_place_yuv_full(caps, b->mask));
        if (loss)
            stk_loss_tell(&text, (enum pen_format)f, target, loss,
                          (from & (from - 1)) != 0);
    }
    node->loss = NULL;
    if (!text.failed)
        node->loss =
            stk_arena_strdup(&p->plan->arena, text.data ? text.data : "");
    const bool ok = node->loss != NULL;
    stk_text_finish(&text);
    if (!ok)
        return stk_plan_no_memory(err);
    return PEN_OK;
}

// "_bridge_1_CudaMemCopy" with the next number that no module of the file has
// taken.
static const char *next_id(struct stk_planner *p,
                           const struct pen_module_class *cls)
{
    const struct stk_graph *g = p->graph;
    for (;;) {
        const char *id = stk_arena_printf(&p->plan->arena, "_bridge_%u_%s",
                                          ++p->bridges, cls->name);
        uint32_t i = 0;
        while (id && p->imitated && i < g->node_count &&
               strcmp(g->nodes[i].desc->id, id) != 0)
            i++;
        if (!id || !p->imitated || i == g->node_count)
            return id;
    }
}

// A bridge writes straight into memory of another kind than its class gives.
static void make_home(struct stk_plan_output *o, const struct stk_template *t,
                      enum stk_home home)
{
    stk_output_set_home(o, home);
    if (!(t->out->mem & PEN_MEM_BIT(o->mem)))
        o->upgraded_from = stk_home_mem(plain_home(home));
}

static enum pen_status insert(struct stk_planner *p,
                              const struct stk_origin *from, int at,
                              const struct stk_hop *hop, uint32_t number,
                              uint32_t pin, uint32_t *made,
                              struct pen_error *err)
{
    struct pen_plan *plan = p->plan;
    const struct stk_board *b = from->board;
    const unsigned format = stk_state_format(hop->to);
    const struct stk_template *t =
        stk_template_of(p, (enum stk_op)hop->op, b->format[format]);
    const bool conversion = hop->op >= OP_CONVERT_HOST;
    uint32_t depth;
    PEN_TRY(stk_planner_add_node(p, made, err));
    struct stk_plan_node *node = &plan->nodes[*made];
    p->aside[*made] = (struct stk_aside){
        .node = from->node,
        .pin = (uint8_t)from->pin_number,
        .format = (uint8_t)b->format[format],
    };
    node->id = next_id(p, t->cls);
    node->loss = node->choice = "";
    node->pointer = "";
    node->cls = t->cls;
    node->copies = hop->op < OP_CONVERT_HOST;
    node->type = t->cls->name;
    node->params = t->params;
    node->base = t->base;
    node->inserted = true;
    node->inputs = node->outputs = 1;
    PEN_TRY(stk_planner_add_outputs(p, node, err));
    node->in = t->in;
    node->out = t->out;
    node->staged =
        hop->op == OP_TO_PINNED && (b->key.staged & 1u << stk_state_format(at));
    if (!node->id)
        return stk_plan_no_memory(err);
    PEN_TRY(explain(p, from, hop->to, conversion, node, &depth, err));
    if (conversion) {
        PEN_TRY(describe_loss(p, b, from->caps, at, hop->to, node, err));
        // Frames that have the target format already go through untouched.
        node->forwards = stk_state_format(at) == 0 &&
                         (b->mask & PEN_FMT_BIT(b->format[format]));
    }
    make_home(&node->output[0], t, stk_state_home(hop->to));
    if (depth > STK_BRIDGE_DEPTH)
        depth = STK_BRIDGE_DEPTH;
    if (plan->nodes[number].staged)
        depth = 1;
    PEN_TRY(
        stk_planner_add_edge(p, number, pin, *made, 0, depth, STK_BLOCK, err));
    return stk_planner_caps(p, *made, err);
}

static bool in_tree(const struct stk_tree *tree, int from, int to)
{
    for (unsigned i = 0; i < tree->steps; i++)
        if (tree->step[i].from == from && tree->step[i].to == to)
            return true;
    return false;
}

enum pen_status stk_place_emit(struct stk_planner *p,
                               const struct stk_origin *from, int at,
                               uint32_t number, uint32_t pin,
                               struct pen_error *err)
{
    const struct stk_board *b = from->board;
    for (uint32_t n = from->begin; n < from->end; n++)
        if (p->decision.at[p->out[n]] == at && !p->poison[number])
            p->pending[p->out[n]] = (struct stk_pending){ number, pin };
    for (unsigned h = b ? b->first[at] : 0; b && h < b->first[at + 1]; h++) {
        const struct stk_hop *hop = &b->hop[h];
        if (!in_tree(from->tree, at, hop->to))
            continue;
        const enum stk_home home =
            stk_output_home(&p->plan->nodes[number].output[pin]);
        const bool there = hop->op == OP_TO_PINNED && home == STK_HOME_PINNED;
        if (hop->op == OP_UPGRADE || there) {
            stk_pool_upgrade(p, number, pin, STK_HOME_PINNED);
            PEN_TRY(stk_place_emit(p, from, hop->to, number, pin, err));
            continue;
        }
        uint32_t made;
        PEN_TRY(insert(p, from, at, hop, number, pin, &made, err));
        PEN_TRY(stk_place_emit(p, from, hop->to, made, 0, err));
    }
    return PEN_OK;
}
