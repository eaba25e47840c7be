// The choice for the whole graph (ADR 0013).
//
// plan_labels.c has listed what may arrive where and what each module makes of
// it. Backwards through the graph, the value of each combination of labels is
// found, with all that lies behind it; forwards, what is best is taken. What
// ties the inputs of a module together is first left out, which gives a bound,
// and then decided by branch and bound.

#include "plan_joint.h"

#include <stdlib.h>
#include <string.h>

#include "plan_labels.h"

enum {
    // What the search for an optimum may take in all: see work_at().
    MOST_WORK = 400000,
    MOST_FIXED = 64,      // inputs, of one attempt
    FORBIDDEN = 1 << 20,  // bad, of what is not to be had
};

// --- backwards --------------------------------------------------------------

static struct stk_value *table_of(struct stk_labels *l, uint32_t node)
{
    return l->values + l->spots[node].table;
}

static struct stk_value *prices_of(struct stk_labels *l, uint32_t edge)
{
    return l->values + l->edges[edge].value;
}

static bool has_room(struct stk_offer **offers, uint32_t *room, uint32_t needed)
{
    if (needed <= *room)
        return true;
    const uint32_t more = needed + needed / 2 + 64;
    void *grown = realloc(*offers, more * sizeof(**offers));
    if (!grown)
        return false;
    *offers = grown;
    *room = more;
    return true;
}

// What the consumers of a pin pay, by the prices of their labels.
static bool make_ends(struct stk_labels *l, const struct stk_variant_pin *pin,
                      uint32_t begin, uint32_t end)
{
    const struct stk_planner *p = l->planner;
    uint32_t offers = 0;
    for (uint32_t n = begin; n < end; n++)
        offers += l->links[pin->links + n - begin].count;
    if (!has_room(&l->offers, &l->offer_room, offers + 1))
        return false;
    offers = 0;
    for (uint32_t n = begin; n < end; n++) {
        const struct stk_link *link = &l->links[pin->links + n - begin];
        const struct stk_edge_labels *e = &l->edges[p->out[n]];
        const struct stk_value *price = prices_of(l, p->out[n]);
        const uint32_t first = offers;
        for (uint32_t i = 0; i < link->count; i++) {
            const struct stk_proto *proto = &l->protos[link->first + i];
            const struct stk_label *label = &l->labels[e->first + proto->label];
            if (label->group >= e->groups)
                continue;
            l->offers[offers] = (struct stk_offer){
                proto->state,
                price[label->group],
            };
            l->offers[offers++].value.bad += proto->amiss;
        }
        l->ends[n - begin] = (struct stk_end){
            .offers = l->offers + first,
            .count = offers - first,
            .weight = e->weight,
        };
    }
    return true;
}

static enum pen_status tree_behind(struct stk_labels *l,
                                   const struct stk_variant_pin *pin,
                                   uint32_t begin, uint32_t end,
                                   struct stk_tree *tree, int16_t *at,
                                   struct pen_error *err)
{
    if (!make_ends(l, pin, begin, end))
        return stk_plan_no_memory(err);
    return stk_search_tree(l->planner, &pin->key, pin->roots, l->ends,
                           end - begin, tree, at, err);
}

// The edges of output `pin` of a node, in p->out.
static void pin_range(const struct stk_planner *p, uint32_t node, uint32_t pin,
                      uint32_t *begin, uint32_t *end)
{
    uint32_t n = p->first[node];
    const uint32_t stop = p->first[node + 1];
    while (n < stop && p->graph->edges[p->out[n]].from_pin < pin)
        n++;
    *begin = n;
    while (n < stop && p->graph->edges[p->out[n]].from_pin == pin)
        n++;
    *end = n;
}

static enum pen_status value_variants(struct stk_labels *l, uint32_t node,
                                      struct pen_error *err)
{
    const struct stk_spot *spot = &l->spots[node];
    const uint32_t outputs = l->planner->graph->nodes[node].outputs;
    for (uint32_t i = 0; i < spot->variants; i++) {
        struct stk_variant *v = &l->variants[spot->first_variant + i];
        v->value = (struct stk_value){ 0 };
        for (uint32_t o = 0; o < outputs; o++) {
            struct stk_tree tree;
            uint32_t begin, end;
            pin_range(l->planner, node, o, &begin, &end);
            PEN_TRY(tree_behind(l, &l->pins[v->pin + o], begin, end, &tree,
                                NULL, err));
            stk_value_add(&v->value, &tree.bound);
        }
    }
    return PEN_OK;
}

// The value of one option for one combination of labels.
static bool case_value(const struct stk_labels *l, const struct stk_case *c,
                       struct stk_value *out)
{
    if (c->variant == STK_CASE_UNTAKEN)
        return false;
    *out = (struct stk_value){ .cost = c->cost };
    if (c->variant == STK_CASE_REFUSED)
        out->bad = 1;
    else
        stk_value_add(out, &l->variants[c->variant].value);
    return true;
}

static uint32_t best_option(const struct stk_labels *l, uint32_t node,
                            uint32_t combo, struct stk_value *value)
{
    const struct stk_spot *spot = &l->spots[node];
    const uint32_t options = l->planner->graph->nodes[node].option_count;
    uint32_t best = UINT32_MAX;
    for (uint32_t k = 0; k < options; k++) {
        struct stk_value v;
        if (!case_value(l, &l->cases[spot->first_case + combo * options + k],
                        &v))
            continue;
        if (best == UINT32_MAX || stk_value_compare(&v, value) < 0) {
            *value = v;
            best = k;
        }
    }
    if (best == UINT32_MAX)
        *value = (struct stk_value){ .bad = FORBIDDEN };
    return best;
}

// To divide by: where there are no groups there are no combinations.
static uint32_t some(uint32_t groups)
{
    return groups ? groups : 1;
}

// The group that input `i` has in a combination.
static uint32_t group_in(const struct stk_labels *l,
                         const struct stk_spot *spot, uint32_t combo,
                         uint32_t i)
{
    for (uint32_t k = 0; k < i; k++)
        combo /= some(l->edges[spot->edge[k]].groups);
    return combo % some(l->edges[spot->edge[i]].groups);
}

// Combinations that the search has not excluded.
static bool open_combo(const struct stk_labels *l, const struct stk_spot *spot,
                       uint32_t combo)
{
    for (uint32_t i = 0; i < spot->inputs; i++) {
        const int32_t fixed = l->fixed[spot->edge[i]];
        if (fixed >= 0 && group_in(l, spot, combo, i) != (uint32_t)fixed)
            return false;
    }
    return true;
}

// Share the table of a node among its inputs, so that the sum is nowhere more
// than the table says.
static void split(struct stk_labels *l, uint32_t node)
{
    struct stk_spot *spot = &l->spots[node];
    struct stk_value *rest = l->scratch;
    memcpy(rest, table_of(l, node), spot->combos * sizeof(*rest));
    for (uint32_t i = 0; i < spot->inputs; i++) {
        struct stk_value *price = prices_of(l, spot->edge[i]);
        const uint32_t groups = l->edges[spot->edge[i]].groups;
        for (uint32_t g = 0; g < groups; g++)
            price[g] = (struct stk_value){ .bad = FORBIDDEN };
        for (uint32_t c = 0; c < spot->combos; c++) {
            const uint32_t g = group_in(l, spot, c, i);
            if (open_combo(l, spot, c) &&
                stk_value_compare(&rest[c], &price[g]) < 0)
                price[g] = rest[c];
        }
        for (uint32_t c = 0; c < spot->combos; c++)
            stk_value_take(&rest[c], &price[group_in(l, spot, c, i)]);
    }
    const struct stk_value nothing = { 0 };
    spot->tied = false;
    for (uint32_t c = 0; c < spot->combos && !spot->tied; c++)
        spot->tied =
            open_combo(l, spot, c) && stk_value_compare(&rest[c], &nothing) > 0;
}

// What a pass over a node costs: variants, each of which asks for a tree, and
// combinations. Boards of many variants are made anew each time.
static uint64_t work_at(const struct stk_spot *spot)
{
    const uint64_t many = spot->variants > 8 ? spot->variants - 8 : 0;
    return 4 * (uint64_t)(spot->variants + 1) + 200 * many +
           (uint64_t)spot->combos * spot->inputs / 8;
}

static enum pen_status backwards(struct stk_labels *l, struct stk_value *bound,
                                 struct pen_error *err)
{
    const struct stk_planner *p = l->planner;
    *bound = (struct stk_value){ 0 };
    for (uint32_t i = p->graph->node_count; i-- > 0;) {
        const uint32_t node = p->sequence[i];
        const struct stk_spot *spot = &l->spots[node];
        l->work += work_at(spot);
        PEN_TRY(value_variants(l, node, err));
        struct stk_value *table = table_of(l, node);
        for (uint32_t c = 0; c < spot->combos; c++)
            best_option(l, node, c, &table[c]);
        if (spot->inputs == 0)
            stk_value_add(bound, &table[0]);
        else if (spot->inputs > 1)
            split(l, node);
    }
    return PEN_OK;
}

// --- forwards ---------------------------------------------------------------

// Prices of an edge into a module with several inputs, now that some of them
// are settled.
static void reprice(struct stk_labels *l, uint32_t edge,
                    const struct stk_decision *d)
{
    const uint32_t node = l->planner->graph->edges[edge].to;
    const struct stk_spot *spot = &l->spots[node];
    const struct stk_value *table = table_of(l, node);
    struct stk_value *price = l->scratch;
    const uint32_t groups = l->edges[edge].groups;
    for (uint32_t g = 0; g < groups; g++)
        price[g] = (struct stk_value){ .bad = FORBIDDEN };
    for (uint32_t c = 0; c < spot->combos; c++) {
        struct stk_value v = table[c];
        uint32_t mine = 0;
        bool open = open_combo(l, spot, c);
        for (uint32_t i = 0; i < spot->inputs && open; i++) {
            const uint32_t e = spot->edge[i], g = group_in(l, spot, c, i);
            if (e == edge)
                mine = g;
            else if (l->chosen[e] >= 0)
                open = (uint32_t)l->chosen[e] == g;
            else if (d->at[e] == STK_AT_OPEN)
                stk_value_take(&v, &l->shares[l->edges[e].value + g]);
        }
        if (open && stk_value_compare(&v, &price[mine]) < 0)
            price[mine] = v;
    }
    memcpy(prices_of(l, edge), price, groups * sizeof(*price));
}

static enum pen_status settle_pin(struct stk_labels *l, uint32_t node,
                                  uint32_t pin, const struct stk_variant *v,
                                  struct stk_decision *d, struct pen_error *err)
{
    const struct stk_planner *p = l->planner;
    const struct stk_variant_pin *vp = &l->pins[v->pin + pin];
    struct stk_tree tree = { 0 };
    uint32_t begin, end;
    pin_range(p, node, pin, &begin, &end);
    for (uint32_t n = begin; n < end; n++)
        if (l->spots[p->graph->edges[p->out[n]].to].inputs > 1)
            reprice(l, p->out[n], d);
    PEN_TRY(tree_behind(l, vp, begin, end, &tree, l->at, err));
    stk_value_add(&d->value, &tree.itself);
    const size_t bytes =
        offsetof(struct stk_tree, step) + tree.steps * sizeof(tree.step[0]);
    struct stk_tree *kept = stk_arena_alloc(&d->trees, bytes);
    if (!kept)
        return stk_plan_no_memory(err);
    memcpy(kept, &tree, bytes);
    d->tree[node * PEN_MAX_PINS + pin] = kept;
    d->key[node * PEN_MAX_PINS + pin] = vp->key;
    for (uint32_t n = begin; n < end; n++) {
        const uint32_t edge = p->out[n];
        const struct stk_link *link = &l->links[vp->links + n - begin];
        d->amiss[edge] = false;
        d->at[edge] = l->at[n - begin];
        d->arrives[edge] = STK_NO_CAPS;
        for (uint32_t i = 0; i < link->count; i++) {
            const struct stk_proto *proto = &l->protos[link->first + i];
            const struct stk_label *label =
                &l->labels[l->edges[edge].first + proto->label];
            if ((int16_t)proto->state != d->at[edge])
                continue;
            l->chosen[edge] = label->group;
            d->arrives[edge] = label->caps;
            d->amiss[edge] = proto->amiss;
            d->value.bad += proto->amiss;
        }
    }
    return PEN_OK;
}

// Nothing comes out of a node.
static void silence(struct stk_labels *l, uint32_t node, struct stk_decision *d)
{
    const struct stk_planner *p = l->planner;
    for (uint32_t n = p->first[node]; n < p->first[node + 1]; n++) {
        d->at[p->out[n]] = -1;
        d->arrives[p->out[n]] = STK_NO_CAPS;
    }
}

// The combination of labels that was chosen for a node, or UINT32_MAX.
static uint32_t chosen_combo(const struct stk_labels *l, uint32_t node)
{
    const struct stk_spot *spot = &l->spots[node];
    uint32_t combo = 0, stride = 1;
    for (uint32_t i = 0; i < spot->inputs; i++) {
        if (l->chosen[spot->edge[i]] < 0)
            return UINT32_MAX;
        combo += (uint32_t)l->chosen[spot->edge[i]] * stride;
        stride *= l->edges[spot->edge[i]].groups;
    }
    return combo;
}

static enum pen_status forwards(struct stk_labels *l, struct stk_decision *d,
                                struct pen_error *err)
{
    const struct stk_planner *p = l->planner;
    const struct stk_graph *g = p->graph;
    d->value = (struct stk_value){ 0 };
    for (uint32_t e = 0; e < g->edge_count; e++) {
        l->chosen[e] = -1;
        d->at[e] = STK_AT_OPEN;
    }
    for (uint32_t i = 0; i < g->node_count; i++) {
        const uint32_t node = p->sequence[i];
        const struct stk_spot *spot = &l->spots[node];
        const uint32_t combo = chosen_combo(l, node);
        struct stk_value ignored;
        d->option[node] = combo == UINT32_MAX
                              ? UINT32_MAX
                              : best_option(l, node, combo, &ignored);
        if (d->option[node] == UINT32_MAX) {
            silence(l, node, d);
            continue;
        }
        const struct stk_case *c =
            &l->cases[spot->first_case + combo * g->nodes[node].option_count +
                      d->option[node]];
        d->value.cost = stk_cost_sum(d->value.cost, c->cost);
        if (c->variant == STK_CASE_REFUSED) {
            d->value.bad++;
            silence(l, node, d);
            continue;
        }
        for (uint32_t o = 0; o < g->nodes[node].outputs; o++)
            PEN_TRY(settle_pin(l, node, o, &l->variants[c->variant], d, err));
    }
    return PEN_OK;
}

// --- decisions --------------------------------------------------------------

static enum pen_status decision_init(struct stk_decision *d,
                                     const struct stk_graph *g,
                                     struct pen_error *err)
{
    const size_t pins = (size_t)g->node_count * PEN_MAX_PINS + 1;
    *d = (struct stk_decision){
        .option = calloc((size_t)g->node_count + 1, sizeof(*d->option)),
        .tree = calloc(pins, sizeof(struct stk_tree *)),
        .key = calloc(pins, sizeof(*d->key)),
        .at = calloc((size_t)g->edge_count + 1, sizeof(*d->at)),
        .amiss = calloc((size_t)g->edge_count + 1, sizeof(*d->amiss)),
        .arrives = calloc((size_t)g->edge_count + 1, sizeof(*d->arrives)),
    };
    if (!d->option || !d->tree || !d->key || !d->at || !d->amiss || !d->arrives)
        return stk_plan_no_memory(err);
    return PEN_OK;
}

void stk_decision_finish(struct stk_decision *d)
{
    stk_arena_finish(&d->trees);
    free(d->option);
    free(d->tree);
    free(d->key);
    free(d->at);
    free(d->amiss);
    free(d->arrives);
    *d = (struct stk_decision){ 0 };
}

static void swap(struct stk_decision *a, struct stk_decision *b)
{
    const struct stk_decision c = *a;
    *a = *b;
    *b = c;
}

// Equal but for what only decides between equals.
static bool as_good(const struct stk_value *a, const struct stk_value *bound)
{
    return a->bad == bound->bad && a->loss == bound->loss &&
           a->cost / PLACE_TICKS <= bound->cost / PLACE_TICKS;
}

// --- branch and bound -------------------------------------------------------

// An input of a node that is not fixed and has a choice; -1: none.
static int64_t free_input(const struct stk_labels *l,
                          const struct stk_spot *spot)
{
    for (uint32_t k = 0; k < spot->inputs; k++)
        if (l->fixed[spot->edge[k]] < 0 && l->edges[spot->edge[k]].groups > 1)
            return spot->edge[k];
    return -1;
}

// The input to branch on: of the module whose table says most more than the
// shares of its inputs for what was chosen, else of the first whose inputs are
// tied. -1: there is none.
static int64_t worst_split(const struct stk_labels *l,
                           const struct stk_decision *d)
{
    const struct stk_planner *p = l->planner;
    struct stk_value worst = { 0 };
    int64_t edge = -1;
    for (uint32_t i = 0; i < p->graph->node_count; i++) {
        const uint32_t node = p->sequence[i];
        const struct stk_spot *spot = &l->spots[node];
        if (spot->inputs < 2 || !spot->tied || d->option[node] == UINT32_MAX)
            continue;
        const int64_t candidate = free_input(l, spot);
        const uint32_t combo = chosen_combo(l, node);
        struct stk_value more = l->values[spot->table + combo];
        for (uint32_t k = 0; k < spot->inputs; k++)
            stk_value_take(&more, &l->shares[l->edges[spot->edge[k]].value +
                                             group_in(l, spot, combo, k)]);
        if (candidate < 0 ||
            (edge >= 0 && stk_value_compare(&more, &worst) <= 0))
            continue;
        worst = more;
        edge = candidate;
    }
    return edge;
}

// One pass each way. The shares of the inputs are kept as they were before the
// way forward changed them.
static enum pen_status both_ways(struct stk_labels *l, struct stk_decision *d,
                                 struct pen_error *err)
{
    PEN_TRY(backwards(l, &d->bound, err));
    memcpy(l->shares, l->values, l->value_count * sizeof(*l->values));
    return forwards(l, d, err);
}

// Improve on *best below what is fixed now; *open is the least bound of what
// was not looked at.
static enum pen_status branch(struct stk_labels *l, struct stk_decision *best,
                              const struct stk_value *above,
                              struct stk_value *open, unsigned depth,
                              struct pen_error *err)
{
    if (depth && l->work > MOST_WORK) {
        if (stk_value_compare(above, open) < 0)
            *open = *above;
        return PEN_OK;
    }
    struct stk_decision d;
    enum pen_status st = decision_init(&d, l->planner->graph, err);
    if (st == PEN_OK)
        st = both_ways(l, &d, err);
    const struct stk_value bound = d.bound;
    const int64_t edge = st == PEN_OK ? worst_split(l, &d) : -1;
    if (st == PEN_OK && stk_value_compare(&d.value, &best->value) < 0)
        swap(&d, best);
    stk_decision_finish(&d);
    if (st != PEN_OK || as_good(&best->value, &bound) ||
        stk_value_compare(&best->value, &bound) <= 0)
        return st;
    if (edge < 0 || depth == MOST_FIXED) {
        if (stk_value_compare(&bound, open) < 0)
            *open = bound;
        return PEN_OK;
    }
    for (uint32_t g = 0; g < l->edges[edge].groups && st == PEN_OK; g++) {
        l->fixed[edge] = (int32_t)g;
        st = branch(l, best, &bound, open, depth + 1, err);
    }
    l->fixed[edge] = -1;
    return st;
}

static bool uses_device(const struct stk_labels *l,
                        const struct stk_decision *d)
{
    const struct stk_graph *g = l->planner->graph;
    for (uint32_t n = 0; n < g->node_count; n++) {
        if (d->option[n] == UINT32_MAX)
            continue;
        if (g->nodes[n].options[d->option[n]].cls->flags & PEN_CLASS_CUDA)
            return true;
        for (uint32_t o = 0; o < g->nodes[n].outputs; o++) {
            const struct stk_tree *t = d->tree[n * PEN_MAX_PINS + o];
            for (unsigned i = 0; t && i < t->steps; i++) {
                const int from = t->step[i].from, to = t->step[i].to;
                const unsigned sides = STK_HOME_BIT(stk_state_home(from)) |
                                       STK_HOME_BIT(stk_state_home(to));
                if (sides & STK_HOMES_CUDA)
                    return true;
            }
        }
    }
    return false;
}

static enum pen_status optimise(struct stk_labels *l, struct stk_decision *out,
                                struct pen_error *err)
{
    struct stk_value open = { .bad = INT32_MAX };
    *out = (struct stk_decision){ .value = { .bad = INT32_MAX } };
    enum pen_status st = branch(l, out, NULL, &open, 0, err);
    out->bound = stk_value_compare(&open, &out->value) < 0 ? open : out->value;
    out->proven = !l->cut && as_good(&out->value, &out->bound);
    if (st == PEN_OK)
        out->device = uses_device(l, out);
    return st;
}

// What a decision costs with the sizes of the labels.
static enum pen_status value_of(struct stk_labels *l,
                                const struct stk_decision *d, int64_t *cost,
                                struct pen_error *err)
{
    const struct stk_planner *p = l->planner;
    const struct stk_graph *g = p->graph;
    *cost = 0;
    for (uint32_t e = 0; e < g->edge_count; e++)
        l->chosen[e] = -1;
    for (uint32_t i = 0; i < g->node_count; i++) {
        const uint32_t node = p->sequence[i];
        const struct stk_spot *spot = &l->spots[node];
        const uint32_t combo = chosen_combo(l, node);
        if (combo == UINT32_MAX || d->option[node] == UINT32_MAX)
            continue;
        const struct stk_case *c =
            &l->cases[spot->first_case + combo * g->nodes[node].option_count +
                      d->option[node]];
        *cost = stk_cost_sum(*cost, c->cost);
        for (uint32_t o = 0; o < g->nodes[node].outputs; o++) {
            const size_t at = (size_t)node * PEN_MAX_PINS + o;
            struct stk_board *b;
            if (c->variant >= STK_CASE_REFUSED || !d->tree[at])
                continue;
            const struct stk_variant_pin *vp =
                &l->pins[l->variants[c->variant].pin + o];
            PEN_TRY(stk_board_get(l->planner, &vp->key, &b, err));
            for (unsigned k = 0; k < d->tree[at]->steps; k++)
                *cost = stk_cost_sum(*cost,
                                     stk_board_hop(b, d->tree[at]->step[k].from,
                                                   d->tree[at]->step[k].to)
                                         ->cost);
            *cost += stk_state_home(d->tree[at]->root) * TICK_ROOT;
            uint32_t begin, end;
            pin_range(p, node, o, &begin, &end);
            for (uint32_t n = begin; n < end; n++) {
                const uint32_t edge = p->out[n];
                const struct stk_link *link = &l->links[vp->links + n - begin];
                for (uint32_t k = 0; k < link->count; k++) {
                    const struct stk_proto *proto = &l->protos[link->first + k];
                    if ((int16_t)proto->state == d->at[edge])
                        l->chosen[edge] =
                            l->labels[l->edges[edge].first + proto->label]
                                .group;
                }
            }
        }
    }
    return PEN_OK;
}

static bool has_choice(const struct stk_decision *d, uint32_t nodes)
{
    for (size_t i = 0; i < (size_t)nodes * PEN_MAX_PINS; i++)
        if (d->tree[i] && d->tree[i]->steps)
            return true;
    return false;
}

// --- the whole --------------------------------------------------------------

// Whether something needs the device whatever is chosen.
static bool device_is_certain(const struct stk_graph *g)
{
    for (uint32_t n = 0; n < g->node_count; n++) {
        bool all = true;
        for (uint32_t k = 0; k < g->nodes[n].option_count; k++)
            all = all && (g->nodes[n].options[k].cls->flags & PEN_CLASS_CUDA);
        if (all)
            return true;
    }
    return false;
}

static enum pen_status choose_once(struct stk_planner *p,
                                   struct stk_decision *out,
                                   struct pen_error *err)
{
    struct stk_labels labels;
    enum pen_status st = stk_labels_init(&labels, p, err);
    if (st == PEN_OK)
        st = optimise(&labels, out, err);
    stk_labels_finish(&labels);
    return st;
}

// What is done once for having a device is the one cost that all share.
static enum pen_status try_without_device(struct stk_planner *p,
                                          struct stk_decision *best,
                                          struct pen_error *err)
{
    struct stk_decision other = { 0 };
    const int64_t once = p->context_share * PLACE_TICKS;
    p->no_device = true;
    const enum pen_status st = choose_once(p, &other, err);
    p->no_device = false;
    if (st != PEN_OK) {
        stk_decision_finish(&other);
        return st;
    }
    struct stk_value with = best->value, with_bound = best->bound;
    with.cost = stk_cost_sum(with.cost, once);
    with_bound.cost = stk_cost_sum(with_bound.cost, once);
    // What the best plan of both kinds costs at least.
    const struct stk_value bound =
        stk_value_compare(&other.bound, &with_bound) < 0 ? other.bound
                                                         : with_bound;
    const bool cut = !best->proven || !other.proven;
    if (stk_value_compare(&other.value, &with) <= 0) {
        swap(best, &other);
        best->bound = bound;
    } else {
        best->bound = bound;
        best->bound.cost -= once;
    }
    best->proven = as_good(&best->value, &best->bound) && !cut;
    stk_decision_finish(&other);
    return PEN_OK;
}

static enum pen_status decide(struct stk_planner *p, struct stk_decision *out,
                              struct pen_error *err)
{
    PEN_TRY(choose_once(p, out, err));
    if (out->device && p->context_share && !device_is_certain(p->graph))
        return try_without_device(p, out, err);
    return PEN_OK;
}

// --- sizes that are not known yet -------------------------------------------

// With the context, if there is one.
static int64_t whole(const struct stk_planner *p, int64_t cost, bool device)
{
    return cost / PLACE_TICKS + (device ? p->context_share : 0);
}

// Whether the decision is the best for frames of that size, too. The cost of
// every plan grows linearly with the pixels (up to the padding of rows), so
// what is the best at both ends of the scale is the best in between.
static enum pen_status holds_at(struct stk_planner *p, int32_t side,
                                size_t bytes, const struct stk_decision *d,
                                bool *holds, struct pen_error *err)
{
    const struct stk_caps_table caps = p->caps;
    const struct stk_boards boards = p->boards;
    struct stk_search *search = p->search;
    struct stk_decision best = { 0 };
    struct stk_labels labels = { 0 };
    int64_t cost = 0;
    p->caps = (struct stk_caps_table){ .width = side,
                                       .height = side,
                                       .nominal = bytes };
    p->boards = (struct stk_boards){ 0 };
    p->search = NULL;
    enum pen_status st = decide(p, &best, err);
    if (st == PEN_OK)
        st = stk_labels_init(&labels, p, err);
    if (st == PEN_OK)
        st = value_of(&labels, d, &cost, err);
    *holds =
        st == PEN_OK && best.proven &&
        whole(p, cost, d->device) <= whole(p, best.value.cost, best.device);
    stk_labels_finish(&labels);
    stk_decision_finish(&best);
    stk_search_finish(&p->search);
    stk_boards_finish(&p->boards);
    stk_caps_finish(&p->caps);
    p->caps = caps;
    p->boards = boards;
    p->search = search;
    return st;
}

enum pen_status stk_plan_choose(struct stk_planner *p, struct stk_decision *out,
                                struct pen_error *err)
{
    p->caps.width = STK_NOMINAL_WIDTH;
    p->caps.height = STK_NOMINAL_HEIGHT;
    p->caps.nominal = STK_NOMINAL_BYTES;
    PEN_TRY(decide(p, out, err));
    if (!p->caps.sized || !out->proven || out->value.bad)
        return PEN_OK;
    if (!has_choice(out, p->graph->node_count) && !p->generic)
        return PEN_OK;
    PEN_TRY(holds_at(p, 1, 1, out, &out->proven, err));
    if (out->proven)
        PEN_TRY(holds_at(p, 16384, (size_t)1 << 30, out, &out->proven, err));
    return PEN_OK;
}
