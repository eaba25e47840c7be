// The completion of a provisional plan, and its growth by larger frames.

#include "plan_size.h"

#include <stdlib.h>
#include <string.h>

#include "planner.h"

// What a change overwrote, so that a refusal leaves the plan as it was.
struct saved_node {
    uint32_t number;
    int64_t cost_ns;
    struct stk_plan_output output[PEN_MAX_PINS];
    uint64_t workspace[PEN_MEM_COUNT];
};

struct journal {
    struct saved_node *nodes;
    size_t count, room;
    struct stk_plan_totals totals;
};

static enum pen_status save(struct journal *j, const struct pen_plan *plan,
                            uint32_t number, struct pen_error *err)
{
    if (j->count == j->room) {
        const size_t room = j->room ? 2 * j->room : 8;
        void *grown = realloc(j->nodes, room * sizeof(*j->nodes));
        if (!grown)
            return stk_plan_no_memory(err);
        j->nodes = grown;
        j->room = room;
    }
    struct saved_node *s = &j->nodes[j->count++];
    s->number = number;
    s->cost_ns = plan->nodes[number].cost_ns;
    memcpy(s->output, plan->nodes[number].output,
           plan->nodes[number].outputs * sizeof(*s->output));
    memcpy(s->workspace, plan->nodes[number].workspace, sizeof(s->workspace));
    return PEN_OK;
}

// Edges carry what their producer gives.
static void set_edges(struct pen_plan *plan, uint32_t number, bool mark,
                      uint32_t *last)
{
    for (uint32_t e = plan->first_out[number]; e < plan->first_out[number + 1];
         e++) {
        struct stk_plan_edge *edge = &plan->edges[e];
        const struct stk_plan_output *o =
            &plan->nodes[number].output[edge->from_pin];
        edge->caps = o->caps;
        edge->formats = stk_caps_mask(&o->caps);
        if (!mark)
            continue;
        plan->marks[edge->to] = 1;
        if (edge->to > *last)
            *last = edge->to;
    }
}

static bool same(const struct pen_caps *a, const struct pen_caps *b)
{
    return a->kind == b->kind && a->codec == b->codec &&
           a->format == b->format && a->formats == b->formats &&
           a->width == b->width && a->height == b->height &&
           a->matrix == b->matrix && a->range == b->range &&
           a->fps.num == b->fps.num && a->fps.den == b->fps.den &&
           a->bytes == b->bytes;
}

// Take over the caps of an output; *changed tells whether they are new.
static enum pen_status enlarge(struct stk_plan_node *node, uint32_t pin,
                               const struct pen_caps *caps, bool *changed,
                               struct pen_error *err)
{
    struct stk_plan_output *o = &node->output[pin];
    struct pen_caps all = o->caps;
    struct pen_error error = { 0 };
    stk_caps_unite(&all, caps, false);
    if (same(&all, &o->caps))
        return PEN_OK;
    *changed = true;
    o->caps = all;
    const enum pen_status st = stk_caps_bytes(&all, &o->block_bytes, &error);
    if (st == PEN_OK)
        return PEN_OK;
    return pen_error_set(err, st, 0, node->id, "`%s.%s`: %s", node->id,
                         node->cls->outputs[pin].name, error.text);
}

// What flows must be what was planned, or consumers were promised otherwise.
static enum pen_status check_promise(const struct stk_plan_node *node,
                                     uint32_t pin, struct pen_caps *caps,
                                     struct pen_error *err)
{
    const struct pen_caps *planned = &node->output[pin].caps;
    const char *name = node->cls->outputs[pin].name;
    if (planned->kind == PEN_KIND_NONE || planned->kind == PEN_KIND_FRAME ||
        caps->kind == PEN_KIND_NONE)
        caps->kind = planned->kind;
    if (caps->kind != planned->kind)
        return pen_error_set(err, PEN_E_CONFIG, 0, node->id,
                             "`%s.%s` gives %s frames, planned were %s",
                             node->id, name, pen_kind_name(caps->kind),
                             pen_kind_name(planned->kind));
    const uint32_t given = stk_caps_mask(caps), known = stk_caps_mask(planned);
    if (known == 0 || (given & ~known) == 0)
        return PEN_OK;
    char gives[160], plans[160];
    stk_mask_text(given, gives, sizeof(gives));
    stk_mask_text(known, plans, sizeof(plans));
    return pen_error_set(err, PEN_E_CONFIG, 0, node->id,
                         "`%s.%s` gives %s, planned was %s", node->id, name,
                         gives, plans);
}

// Nothing was promised of an output of which no formats were known.
static enum pen_status check_inputs(const struct pen_plan *plan,
                                    const struct stk_plan_node *node,
                                    struct pen_error *err)
{
    for (uint32_t i = 0; i < node->inputs; i++) {
        if (node->in_edge[i] < 0)
            continue;
        const uint32_t come = plan->edges[node->in_edge[i]].formats;
        const uint32_t taken = node->in[i].formats;
        if (taken == 0 || (come & ~taken) == 0)
            continue;
        char comes[160], takes[160];
        stk_mask_text(come, comes, sizeof(comes));
        stk_mask_text(taken, takes, sizeof(takes));
        return pen_error_set(err, PEN_E_CONFIG, 0, node->id,
                             "`%s.%s` takes %s, and %s may come", node->id,
                             node->cls->inputs[i].name, takes, comes);
    }
    return PEN_OK;
}

static enum pen_status propagate(struct pen_plan *plan, uint32_t number,
                                 struct journal *j, uint32_t *last,
                                 struct pen_error *err)
{
    struct stk_plan_node *node = &plan->nodes[number];
    struct pen_caps in[PEN_MAX_PINS] = { 0 }, out[PEN_MAX_PINS] = { 0 };
    struct pen_error error = { 0 };
    struct stk_plan_totals t = stk_plan_totals_of(plan);
    uint32_t refused;
    bool changed = false;
    PEN_TRY(check_inputs(plan, node, err));
    for (uint32_t i = 0; i < node->inputs; i++)
        if (node->in_edge[i] >= 0)
            in[i] = plan->edges[node->in_edge[i]].caps;
    const enum pen_status st =
        stk_plan_negotiate(node, in, out, &refused, &error);
    if (st != PEN_OK)
        return pen_error_set(err, st, 0, node->id, "`%s`: %s", node->id,
                             error.text);
    PEN_TRY(save(j, plan, number, err));
    PEN_TRY(stk_plan_account(plan, &t, node, -1, err));
    for (uint32_t o = 0; o < node->outputs; o++)
        PEN_TRY(enlarge(node, o, &out[o], &changed, err));
    stk_plan_node_cost(plan, node);
    stk_plan_node_workspace(plan, node);
    PEN_TRY(stk_plan_account(plan, &t, node, 1, err));
    stk_plan_set_totals(plan, &t);
    if (changed)
        set_edges(plan, number, true, last);
    return PEN_OK;
}

// Compare with the budgets. Nobody has a look at suggestions any more, so the
// error says what would be enough.
static enum pen_status check_budgets(const struct pen_plan *plan,
                                     struct pen_error *err)
{
    struct stk_excess excess = { 0 };
    struct pen_error why = { 0 };
    char enough[32];
    const enum pen_status st = stk_plan_budgets(plan, &excess, &why);
    if (st != PEN_E_LIMIT || !excess.mems) {
        if (st != PEN_OK && err)
            *err = why;
        return st;
    }
    stk_plan_enough_text(excess.needed, enough, sizeof(enough));
    // Where frames are staged is part of what the run is made of.
    const bool stage = plan->desc &&
                       plan->desc->pinned_limit == STK_PINNED_STAGE &&
                       excess.mems == PEN_MEM_BIT(PEN_MEM_HOST_PINNED);
    return pen_error_set(err, st, 0, why.where,
                         "%s; raise `%s` of the budget to %s%s", why.text,
                         excess.key, enough,
                         stage ? " (\"pinned_limit\": \"stage\" goes by the "
                                 "sizes that are known before the start)"
                               : "");
}

static enum pen_status settle(struct pen_plan *plan, uint32_t number,
                              uint32_t pin, const struct pen_caps *caps,
                              struct journal *j, struct pen_error *err)
{
    struct stk_plan_node *node = &plan->nodes[number];
    struct stk_plan_totals t = stk_plan_totals_of(plan);
    bool changed = false;
    uint32_t last = 0;
    PEN_TRY(save(j, plan, number, err));
    PEN_TRY(stk_plan_account(plan, &t, node, -1, err));
    PEN_TRY(enlarge(node, pin, caps, &changed, err));
    if (!changed)
        return PEN_OK;
    stk_plan_node_cost(plan, node);
    stk_plan_node_workspace(plan, node);
    PEN_TRY(stk_plan_account(plan, &t, node, 1, err));
    stk_plan_set_totals(plan, &t);
    set_edges(plan, number, true, &last);
    for (uint32_t n = number + 1; n <= last; n++) {
        if (!plan->marks[n])
            continue;
        plan->marks[n] = 0;
        PEN_TRY(propagate(plan, n, j, &last, err));
    }
    return check_budgets(plan, err);
}

enum pen_status stk_plan_settle(struct pen_plan *plan, uint32_t node,
                                uint32_t pin, const struct pen_caps *caps,
                                struct pen_error *err)
{
    if (node >= plan->node_count || pin >= plan->nodes[node].outputs)
        return pen_error_set(err, PEN_E_ARG, 0, "stk_plan_settle",
                             "node %u has no output %u", node, pin);
    struct pen_caps given = *caps;
    PEN_TRY(check_promise(&plan->nodes[node], pin, &given, err));
    struct journal j = { .totals = stk_plan_totals_of(plan) };
    const enum pen_status st = settle(plan, node, pin, &given, &j, err);
    if (st != PEN_OK) {
        memset(plan->marks, 0, plan->node_count);
        while (j.count-- > 0) {
            const struct saved_node *s = &j.nodes[j.count];
            struct stk_plan_node *n = &plan->nodes[s->number];
            n->cost_ns = s->cost_ns;
            memcpy(n->output, s->output, n->outputs * sizeof(*n->output));
            memcpy(n->workspace, s->workspace, sizeof(n->workspace));
            set_edges(plan, s->number, false, NULL);
        }
        stk_plan_set_totals(plan, &j.totals);
    }
    free(j.nodes);
    return st;
}
