// From a tree of steps to bridges in the plan, with reasons and losses.

#include "plan_place.h"

#include <string.h>

static enum stk_home plain_home(enum stk_home home)
{
    return home == STK_HOME_DMA_CUDA ? STK_HOME_CUDA : STK_HOME_HOST;
}

static enum stk_chance worse(enum stk_chance a, enum stk_chance b)
{
    return a > b ? a : b;
}

// Of the node's own pool.
static enum stk_chance own_chance(const struct stk_planner *p, uint32_t number,
                                  uint32_t pin, enum stk_home to)
{
    const struct stk_plan_node *node = &p->plan->nodes[number];
    const struct stk_aside *a = &p->aside[number];
    if (!p->staged || to != STK_HOME_PINNED ||
        stk_node_hands_through(p->plan, node))
        return STK_CHANCE_OPEN;
    const uint32_t at = node->inserted ? a->pin : pin;
    const uint32_t staged = p->staged[(size_t)a->node * PEN_MAX_PINS + at];
    return staged & PEN_FMT_BIT(a->format) ? STK_CHANCE_STAGED
                                           : STK_CHANCE_OPEN;
}

// Of what flows on an edge; *behind is set where its producer passes it on.
static enum stk_chance edge_chance(const struct stk_planner *p, int32_t edge,
                                   enum stk_home to, bool *behind)
{
    const struct stk_plan_edge *e = &p->plan->edges[edge];
    const struct stk_plan_node *from = &p->plan->nodes[e->from];
    const enum stk_home home = stk_output_home(&from->output[e->from_pin]);
    *behind = false;
    if (home == to)
        return STK_CHANCE_OPEN;
    if (home != plain_home(to))
        return STK_CHANCE_NONE;
    *behind = from->forwards;
    return own_chance(p, e->from, e->from_pin, to);
}

// Of the pools behind a node that passes frames on. Their number is not
// bounded, so the last input is followed by a loop, and what was found is kept:
// what cannot be never will be, what can be holds until the next upgrade.
static enum stk_chance chance_behind(struct stk_planner *p, uint32_t number,
                                     enum stk_home to)
{
    struct stk_aside *start = &p->aside[number];
    enum stk_chance worst = STK_CHANCE_OPEN;
    for (;;) {
        const struct stk_plan_node *node = &p->plan->nodes[number];
        const struct stk_aside *a = &p->aside[number];
        bool behind = false;
        int32_t last = -1;
        if (a->chance[to] != STK_CHANCE_OPEN ||
            a->when[to] == p->upgrades + 1) {
            worst = worse(worst, (enum stk_chance)a->chance[to]);
            break;
        }
        for (uint32_t i = 0; i < node->inputs; i++) {
            if (node->in_edge[i] < 0)
                continue;
            if (behind)
                worst = worse(worst,
                              chance_behind(p, p->plan->edges[last].from, to));
            last = node->in_edge[i];
            worst = worse(worst, edge_chance(p, last, to, &behind));
        }
        if (!behind)
            break;
        number = p->plan->edges[last].from;
    }
    start->chance[to] = (uint8_t)worst;
    start->when[to] = p->upgrades + 1;
    return worst;
}

enum stk_chance stk_pool_chance(struct stk_planner *p, uint32_t number,
                                uint32_t pin, enum stk_home to)
{
    const enum stk_chance own = own_chance(p, number, pin, to);
    if (!p->plan->nodes[number].forwards)
        return own;
    return worse(own, chance_behind(p, number, to));
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
        p->upgrades++;
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

static bool below(const struct stk_place *w, int v, int ancestor)
{
    for (; v >= 0; v = w->parent[v])
        if (v == ancestor)
            return true;
    return false;
}

// reason and serves of the bridge that makes state `at`, and the deepest
// queue behind it.
static enum pen_status explain(struct stk_planner *p, const struct stk_place *w,
                               const struct stk_origin *from, int at,
                               bool conversion, struct stk_plan_node *node,
                               uint32_t *depth, struct pen_error *err)
{
    struct stk_text reason = { 0 }, serves = { 0 };
    uint32_t first = UINT32_MAX, count = 0;
    *depth = 1;
    for (uint32_t i = 0; i < w->target_count; i++) {
        const struct stk_target *t = &w->targets[i];
        if (t->state < 0 || !below(w, t->state, at))
            continue;
        for (uint32_t n = t->first; n != UINT32_MAX; n = w->next_edge[n]) {
            const struct stk_edge *e = &p->graph->edges[p->out[n]];
            const struct stk_node *to = &p->graph->nodes[e->to];
            const uint32_t d = stk_planner_depth(p, e);
            if (n < first)
                first = n;
            if (d > *depth)
                *depth = d;
            stk_text_addf(&serves, "%s%s.%s -> %s.%s", count ? ", " : "",
                          from->id, from->pin, to->desc->id,
                          to->cls->inputs[e->to_pin].name);
            count++;
        }
    }
    const struct stk_edge *e = &p->graph->edges[p->out[first]];
    const struct stk_node *to = &p->graph->nodes[e->to];
    const struct pen_pin_set *set = &to->in[e->to_pin];
    char wants[160], gives[160];
    if (conversion) {
        stk_mask_text(set->formats, wants, sizeof(wants));
        stk_mask_text(w->mask, gives, sizeof(gives));
    } else {
        stk_wanted_text(stk_wanted_mems(p, to, e->to_pin), wants,
                        sizeof(wants));
        stk_mems_text(PEN_MEM_BIT(stk_home_mem(from->home)), gives,
                      sizeof(gives));
    }
    stk_text_addf(&reason, "pin `%s` of `%s` %s %s; `%s.%s` gives %s",
                  to->cls->inputs[e->to_pin].name, to->desc->id,
                  conversion ? "takes" : "needs", wants, from->id, from->pin,
                  gives);
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
                                     const struct stk_place *w,
                                     const struct pen_caps *caps, int at,
                                     int to, struct stk_plan_node *node,
                                     struct pen_error *err)
{
    struct stk_text text = { 0 };
    const enum pen_format target = w->format[stk_state_format(to)];
    const unsigned index = stk_state_format(at);
    const uint32_t from = index ? PEN_FMT_BIT(w->format[index]) : w->mask;
    for (unsigned f = 1; f < PEN_FMT_COUNT; f++) {
        if (!(from & PEN_FMT_BIT(f)))
            continue;
        const uint64_t loss = stk_format_loss(
            (enum pen_format)f, target, stk_place_yuv_full(caps, w->mask));
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
    if (!(t->out.mem & PEN_MEM_BIT(o->mem)))
        o->upgraded_from = stk_home_mem(plain_home(home));
}

static enum pen_status insert(struct stk_planner *p, struct stk_place *w,
                              const struct stk_origin *from, int at,
                              const struct stk_hop *hop, uint32_t number,
                              uint32_t pin, uint32_t *made,
                              struct pen_error *err)
{
    struct pen_plan *plan = p->plan;
    const struct stk_template *t = stk_template_of(p, w, hop);
    const bool conversion = hop->op >= OP_CONVERT_HOST;
    const unsigned format = stk_state_format(hop->to);
    uint32_t depth;
    PEN_TRY(stk_planner_add_node(p, made, err));
    struct stk_plan_node *node = &plan->nodes[*made];
    p->aside[*made] = (struct stk_aside){
        .node = from->node,
        .pin = (uint8_t)from->pin_number,
        .format = (uint8_t)w->format[format],
    };
    node->id = next_id(p, t->cls);
    node->loss = node->choice = "";
    node->pointer = "";
    node->cls = t->cls;
    node->type = t->cls->name;
    node->params = t->params;
    node->base = t->base;
    node->inserted = true;
    node->inputs = node->outputs = 1;
    node->in[0] = t->in;
    node->out[0] = t->out;
    node->staged =
        hop->op == OP_TO_PINNED && (w->staged & 1u << stk_state_format(at));
    if (!node->id)
        return stk_plan_no_memory(err);
    PEN_TRY(explain(p, w, from, hop->to, conversion, node, &depth, err));
    if (conversion) {
        PEN_TRY(describe_loss(p, w, from->caps, at, hop->to, node, err));
        // Frames that have the target format already go through untouched.
        node->forwards = stk_state_format(at) == 0 &&
                         (w->mask & PEN_FMT_BIT(w->format[format]));
    }
    make_home(&node->output[0], t, stk_state_home(hop->to));
    if (depth > STK_BRIDGE_DEPTH)
        depth = STK_BRIDGE_DEPTH;
    if (plan->nodes[number].staged)
        depth = 1;
    PEN_TRY(
        stk_planner_add_edge(p, number, pin, *made, 0, depth, STK_BLOCK, err));
    p->bridged = true;
    return stk_planner_caps(p, *made, err);
}

enum pen_status stk_place_emit(struct stk_planner *p, struct stk_place *w,
                               const struct stk_origin *from, int at,
                               uint32_t number, uint32_t pin,
                               struct pen_error *err)
{
    for (uint32_t i = 0; i < w->target_count; i++) {
        const struct stk_target *t = &w->targets[i];
        if (t->state != at)
            continue;
        const uint32_t home = STK_HOME_BIT(stk_state_home(at));
        const uint32_t side =
            home & STK_HOMES_HOST ? STK_HOMES_HOST : STK_HOMES_CUDA;
        for (uint32_t n = t->first; n != UINT32_MAX; n = w->next_edge[n]) {
            p->pending[p->out[n]] =
                (struct stk_pending){ p->poison[number] ? UINT32_MAX : number,
                                      pin };
            p->side[p->graph->edges[p->out[n]].to] &= side;
        }
    }
    for (unsigned h = 0; h < w->hops[at]; h++) {
        const struct stk_hop *hop = &w->hop[at][h];
        if (w->parent[hop->to] != at)
            continue;
        if (hop->op == OP_UPGRADE) {
            stk_pool_upgrade(p, number, pin, STK_HOME_PINNED);
            PEN_TRY(stk_place_emit(p, w, from, hop->to, number, pin, err));
            continue;
        }
        uint32_t made;
        PEN_TRY(insert(p, w, from, at, hop, number, pin, &made, err));
        PEN_TRY(stk_place_emit(p, w, from, hop->to, made, 0, err));
    }
    return PEN_OK;
}
