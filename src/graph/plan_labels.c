// Forwards through the graph: the labels of each edge, and what each option of
// each module makes of each combination of them (plan_labels.h).

#include "plan_labels.h"

#include <stdlib.h>
#include <string.h>

enum {
    MOST_CASES = 16384,   // of one module
    MOST_VARIANTS = 512,  // of one module
    MOST_LABELS = 60000,  // of one edge
};

static bool reserve(void **array, uint32_t *room, uint32_t count, uint32_t more,
                    size_t size)
{
    if (count + more <= *room)
        return true;
    const size_t wanted = (size_t)count + more + count / 2 + 64;
    if (wanted > UINT32_MAX / 2)
        return false;
    void *grown = realloc(*array, wanted * size);
    if (!grown)
        return false;
    *array = grown;
    *room = (uint32_t)wanted;
    return true;
}

// Room for `more` elements of one of the arrays of `l`.
#define RESERVE(l, array, name, more)                                          \
    reserve_in((void *)&(l)->array, &(l)->name##_room, (l)->name##_count,      \
               more, sizeof(*(l)->array))

static bool reserve_in(void *place, uint32_t *room, uint32_t count,
                       uint32_t more, size_t size)
{
    void *array;
    memcpy(&array, place, sizeof(array));
    const bool ok = reserve(&array, room, count, more, size);
    memcpy(place, &array, sizeof(array));
    return ok;
}

// --- what classes take and give ---------------------------------------------

// Whether an option's frames may be those that it gets, so that it matters
// where these lie.
static bool minds_homes(const struct stk_option *option)
{
    return option->cls->flags & (PEN_CLASS_FORWARDS | PEN_CLASS_BRIDGE);
}

static bool has_host_option(const struct stk_node *node)
{
    for (uint32_t k = 0; k < node->option_count; k++)
        if (!(node->options[k].cls->flags & PEN_CLASS_CUDA))
            return true;
    return false;
}

static bool banned(const struct stk_planner *p, const struct stk_node *node,
                   const struct stk_option *option)
{
    if ((option->cls->flags & PEN_CLASS_CUDA) &&
        (p->no_device || (p->host_first && has_host_option(node))))
        return true;
    for (size_t i = 0; i < p->ban_count; i++)
        if (p->bans[i].cls && !strcmp(p->bans[i].id, node->desc->id) &&
            !strcmp(p->bans[i].cls, option->cls->name))
            return true;
    return false;
}

static uint32_t banned_ops(const struct stk_planner *p,
                           const struct stk_node *node, uint32_t pin)
{
    uint32_t ops = p->no_device ? STK_OPS_CUDA : 0;
    for (size_t i = 0; i < p->ban_count; i++)
        if (p->bans[i].pin == pin && !strcmp(p->bans[i].id, node->desc->id))
            ops |= p->bans[i].ops;
    return ops;
}

// --- one option with one combination ----------------------------------------

// A case in the making.
struct attempt {
    struct stk_labels *l;
    uint32_t node;
    const struct stk_node *graph_node;
    const struct stk_option *option;
    uint32_t inputs;                                      // connected ones
    const struct stk_label *label[PEN_MAX_PINS];          // of each
    struct pen_caps in[PEN_MAX_PINS], out[PEN_MAX_PINS];  // by pin
    uint32_t passed;  // homes of the inputs, if they are given as they are
    bool staged;      // some of them must not be pinned
    bool through;     // a converter that lets frames of its target through
};

static bool hands_through(const struct attempt *a)
{
    const struct stk_option *option = a->option;
    if (option->cls->flags & PEN_CLASS_FORWARDS)
        return true;
    return stk_class_copies(option->cls) &&
           !(option->cls->flags & PEN_CLASS_CUDA) &&
           a->graph_node->inputs == 1 && a->graph_node->outputs == 1 &&
           a->inputs == 1 &&
           (stk_homes_taken(option->out[0].mem, PEN_DMABUF_IMPORT) &
            STK_HOME_BIT(a->label[0]->home));
}

// Its class's negotiate. False if it refuses.
static enum pen_status make_caps(struct attempt *a, bool *taken,
                                 struct pen_error *err)
{
    struct stk_planner *p = a->l->planner;
    const struct stk_spot *spot = &a->l->spots[a->node];
    struct pen_error ignored;
    uint32_t refused;
    *taken = false;
    if (p->sources[a->node]) {
        const size_t at = (size_t)(a->option - a->graph_node->options);
        const struct stk_source *source = &p->sources[a->node][at];
        memcpy(a->out, source->caps, sizeof(a->out));
        *taken = source->usable;
        return PEN_OK;
    }
    memset(a->in, 0, sizeof(a->in));
    for (uint32_t i = 0; i < a->inputs; i++)
        a->in[p->graph->edges[spot->edge[i]].to_pin] =
            p->caps.caps[a->label[i]->caps];
    stk_planner_mould(p, a->graph_node, a->option);
    const enum pen_status st =
        stk_plan_negotiate(&p->mould, a->in, a->out, &refused, &ignored);
    if (st == PEN_E_NOMEM)
        return stk_plan_no_memory(err);
    *taken = st == PEN_OK;
    return PEN_OK;
}

// Ticks of a frame at the module itself.
static int64_t own_cost(struct attempt *a, const uint32_t caps[PEN_MAX_PINS])
{
    const struct stk_planner *p = a->l->planner;
    const struct pen_profile *f = &p->plan->profile;
    const struct stk_option *option = a->option;
    const struct stk_spot *spot = &a->l->spots[a->node];
    const bool cuda = option->cls->flags & PEN_CLASS_CUDA;
    uint64_t in = 0, out = 0;
    int64_t ns = 0, ticks;
    for (uint32_t i = 0; i < a->inputs; i++)
        if (stk_reads(option->cls,
                      &option->in[p->graph->edges[spot->edge[i]].to_pin]))
            in += p->caps.bytes[a->label[i]->caps];
    for (uint32_t o = 0; o < a->graph_node->outputs; o++)
        out += p->caps.bytes[caps[o]];
    if (!a->passed && stk_class_copies(option->cls) && a->inputs == 1 &&
        a->graph_node->inputs == 1 && a->graph_node->outputs == 1) {
        uint32_t declared;
        stk_option_roots(p, option, 0, &declared);
        const enum stk_home to =
            declared ? (enum stk_home)__builtin_ctz(declared) : STK_HOME_HOST;
        ns = stk_cost_transfer(
            f,
            stk_transfer_between(option->cls, (enum stk_home)a->label[0]->home,
                                 to),
            in, out);
    } else if (!a->passed) {
        ns = stk_planner_work(p, option->cls, option->params, a->in, a->out,
                              in + out);
    }
    if (cuda)
        ns = stk_cost_sum(ns, p->load_share);
    return __builtin_mul_overflow(ns, (int64_t)PLACE_TICKS, &ticks) ||
                   ticks > PLACE_INFINITE
               ? PLACE_INFINITE
               : ticks;
}

static enum stk_chance own_chance(const struct attempt *a, uint32_t staged)
{
    if (a->passed)
        return a->staged ? STK_CHANCE_STAGED : STK_CHANCE_NONE;
    if (a->through && a->label[0]->home != STK_HOME_PINNED)
        return a->staged ? STK_CHANCE_STAGED : STK_CHANCE_NONE;
    return staged & 1u ? STK_CHANCE_STAGED : STK_CHANCE_OPEN;
}

// Which host pools behind an output may be page-locked.
static void find_pinnable(struct attempt *a, uint32_t staged,
                          struct stk_variant_pin *vp)
{
    const struct stk_planner *p = a->l->planner;
    enum pen_format format[PLACE_FORMATS];
    enum stk_chance own = STK_CHANCE_OPEN;
    if (vp->roots & STK_HOME_BIT(STK_HOME_HOST))
        own = own_chance(a, staged);
    vp->key.pinnable = UINT32_MAX;
    vp->key.staged = 0;
    if (own == STK_CHANCE_OPEN && !staged)
        return;
    const uint32_t mask = stk_caps_mask(&p->caps.caps[vp->key.caps]);
    const unsigned count = stk_board_formats(p, mask, format);
    for (unsigned i = 0; i < count; i++) {
        enum stk_chance c = staged & PEN_FMT_BIT(format[i]) ? STK_CHANCE_STAGED
                                                            : STK_CHANCE_OPEN;
        // Frames that have the format already come from the pin's own pool.
        if ((i == 0 || (mask & PEN_FMT_BIT(format[i]))) && own > c)
            c = own;
        if (c != STK_CHANCE_OPEN)
            vp->key.pinnable &= ~(1u << i);
        if (c == STK_CHANCE_STAGED)
            vp->key.staged |= 1u << i;
    }
}

// DMABUFs that the pool can be made of though the module gives another memory.
static uint32_t upgraded_roots(const struct attempt *a, uint32_t roots)
{
    const unsigned can = a->l->planner->plan->profile.dmabuf;
    uint32_t more = 0;
    if (a->passed)
        return 0;
    if ((roots & STK_HOME_BIT(STK_HOME_HOST)) && (can & PEN_DMABUF_HOST))
        more |= STK_HOME_BIT(STK_HOME_DMA_HOST);
    if ((roots & STK_HOME_BIT(STK_HOME_CUDA)) && (can & PEN_DMABUF_EXPORT))
        more |= STK_HOME_BIT(STK_HOME_DMA_CUDA);
    if (a->through)
        more &= STK_HOME_BIT(a->label[0]->home);
    return more;
}

// An output; false if no frame of it could be made.
static bool make_pin(struct attempt *a, uint32_t pin, uint32_t caps,
                     struct stk_variant_pin *vp)
{
    const struct stk_planner *p = a->l->planner;
    const size_t at = (size_t)a->node * PEN_MAX_PINS + pin;
    const uint32_t staged = p->staged ? p->staged[at] : 0;
    const uint32_t plain = STK_HOME_BIT(STK_HOME_DMA_HOST) - 1;
    uint32_t declared;
    *vp = (struct stk_variant_pin){ 0 };
    vp->key.caps = caps;
    vp->key.bans = banned_ops(p, a->graph_node, pin);
    vp->key.dmabuf = a->l->wants_dmabuf[at];
    vp->roots = a->passed ? STK_HOME_BIT(stk_homes_promise(a->passed))
                          : stk_option_roots(p, a->option, pin, &declared);
    // A pool that is not to be pinned is not born there either.
    if (!a->passed && (staged & 1u) &&
        (vp->roots & STK_HOME_BIT(STK_HOME_HOST)))
        vp->roots &= ~STK_HOME_BIT(STK_HOME_PINNED);
    find_pinnable(a, staged, vp);
    if (vp->key.dmabuf)
        vp->roots |= upgraded_roots(a, vp->roots);
    vp->key.wide = vp->key.dmabuf || (vp->roots & ~plain);
    return vp->roots != 0;
}

static bool same_pin(const struct stk_variant_pin *a,
                     const struct stk_variant_pin *b)
{
    return a->key.caps == b->key.caps && a->key.pinnable == b->key.pinnable &&
           a->key.staged == b->key.staged && a->roots == b->roots;
}

// The node's variant with these outputs, an old one or a new one.
static uint32_t find_variant(struct stk_labels *l, struct stk_spot *spot,
                             const struct stk_variant_pin *pins,
                             uint32_t outputs)
{
    for (uint32_t i = 0; i < spot->variants; i++) {
        const struct stk_variant *v = &l->variants[spot->first_variant + i];
        uint32_t o = 0;
        while (o < outputs && same_pin(&l->pins[v->pin + o], &pins[o]))
            o++;
        if (o == outputs)
            return spot->first_variant + i;
    }
    if (spot->variants == MOST_VARIANTS) {
        l->cut = true;
        return STK_CASE_REFUSED;
    }
    if (!RESERVE(l, variants, variant, 1) || !RESERVE(l, pins, pin, outputs))
        return STK_CASE_UNTAKEN;
    l->variants[l->variant_count] = (struct stk_variant){ .pin = l->pin_count };
    memcpy(l->pins + l->pin_count, pins, outputs * sizeof(*pins));
    l->pin_count += outputs;
    spot->variants++;
    return l->variant_count++;
}

static bool both_sides(uint32_t homes)
{
    return (homes & STK_HOMES_CUDA) && (homes & STK_HOMES_HOST);
}

static enum pen_status try_option(struct attempt *a, struct stk_case *out,
                                  struct pen_error *err)
{
    struct stk_labels *l = a->l;
    struct stk_planner *p = l->planner;
    struct stk_spot *spot = &l->spots[a->node];
    const uint32_t outputs = a->graph_node->outputs;
    struct stk_variant_pin pins[PEN_MAX_PINS];
    uint32_t caps[PEN_MAX_PINS];
    bool taken;
    *out = (struct stk_case){ .variant = STK_CASE_REFUSED };
    a->passed = 0;
    a->staged = a->through = false;
    PEN_TRY(make_caps(a, &taken, err));
    if (!taken)
        return PEN_OK;
    const bool passes = hands_through(a);
    for (uint32_t i = 0; i < a->inputs; i++) {
        if (passes)
            a->passed |= STK_HOME_BIT(a->label[i]->home);
        a->staged = a->staged || a->label[i]->staged;
    }
    if (stk_node_gathers(a->option->cls, a->graph_node->inputs) &&
        both_sides(a->passed))
        return PEN_OK;
    for (uint32_t o = 0; o < outputs; o++) {
        struct pen_error ignored;
        const enum pen_status st =
            stk_caps_intern(&p->caps, &a->out[o], &caps[o], &ignored);
        if (st == PEN_E_NOMEM)
            return stk_plan_no_memory(err);
        if (st != PEN_OK)
            return PEN_OK;
    }
    a->through = !passes && stk_node_lets_through(
                                a->option->cls, a->graph_node->inputs, outputs,
                                a->inputs ? &a->in[0] : NULL, &a->out[0]);
    for (uint32_t o = 0; o < outputs; o++)
        if (!make_pin(a, o, caps[o], &pins[o]))
            return PEN_OK;
    out->cost = own_cost(a, caps);
    out->variant = find_variant(l, spot, pins, outputs);
    return out->variant == STK_CASE_UNTAKEN ? stk_plan_no_memory(err) : PEN_OK;
}

// --- the labels of an edge --------------------------------------------------

// Homes and formats (by index of the board) that an option takes of a pin.
static uint32_t formats_taken(const struct stk_planner *p,
                              const struct pen_pin_set *set, uint32_t mask)
{
    if (!mask || !set->formats || !(mask & ~set->formats))
        return 1;
    enum pen_format format[PLACE_FORMATS];
    const unsigned count = stk_board_formats(p, mask, format);
    uint32_t taken = 0;
    for (unsigned i = 1; i < count; i++)
        if (set->formats & PEN_FMT_BIT(format[i]))
            taken |= 1u << i;
    return taken;
}

static enum pen_status add_label(struct stk_labels *l,
                                 struct stk_edge_labels *e, uint8_t state,
                                 bool amiss, const struct stk_label *label,
                                 struct stk_link *link, struct pen_error *err)
{
    uint32_t i = 0;
    for (; i < e->count; i++) {
        const struct stk_label *known = &l->labels[e->first + i];
        if (known->home == label->home && known->caps == label->caps &&
            known->staged == label->staged && known->takers == label->takers)
            break;
    }
    if (i == MOST_LABELS) {
        l->cut = true;
        return PEN_OK;
    }
    if (i == e->count) {
        if (!RESERVE(l, labels, label, 1))
            return stk_plan_no_memory(err);
        l->labels[l->label_count++] = *label;
        e->count++;
    }
    if (!RESERVE(l, protos, proto, 1))
        return stk_plan_no_memory(err);
    l->protos[l->proto_count++] =
        (struct stk_proto){ state, amiss, (uint16_t)i };
    link->count++;
    return PEN_OK;
}

// What a consumer's options take of a pin's frames.
struct demand {
    uint32_t homes[32], formats[32];  // by option
    uint32_t all_homes, all_formats, options;
};

static void make_demand(const struct stk_planner *p, uint32_t edge,
                        const struct pen_caps *caps, struct demand *d)
{
    const struct stk_edge *e = &p->graph->edges[edge];
    const struct stk_node *to = &p->graph->nodes[e->to];
    const uint32_t mask = stk_caps_mask(caps);
    d->options = to->option_count < 32 ? to->option_count : 32;
    d->all_homes = d->all_formats = 0;
    for (uint32_t k = 0; k < d->options; k++) {
        const struct stk_option *option = &to->options[k];
        const struct pen_pin_set *set = &option->in[e->to_pin];
        const bool fits = stk_kinds_fit(caps, set) && !banned(p, to, option);
        d->homes[k] =
            fits ? stk_option_homes(p, option, to->outputs, e->to_pin) : 0;
        d->formats[k] = fits ? formats_taken(p, set, mask) : 0;
        d->all_homes |= d->homes[k];
        d->all_formats |= d->formats[k];
    }
}

static uint32_t takers_of(const struct demand *d, unsigned home,
                          unsigned format)
{
    uint32_t takers = 0;
    for (uint32_t k = 0; k < d->options; k++)
        if ((d->homes[k] & STK_HOME_BIT(home)) &&
            (d->formats[k] & 1u << format))
            takers |= 1u << k;
    return takers;
}

// Whether frames as they are born do for a consumer that does not mind where
// they lie, so that no steps are to be looked at.
static bool does_as_it_is(const struct stk_planner *p, uint32_t edge,
                          const struct stk_variant_pin *vp,
                          const struct demand *d)
{
    const struct stk_node *to = &p->graph->nodes[p->graph->edges[edge].to];
    return d->options == 1 && to->option_count == 1 && d->formats[0] == 1 &&
           !(vp->roots & ~d->homes[0]) && !minds_homes(&to->options[0]);
}

// No bridge leads from what an output gives to what a consumer takes. That will
// be told; what lies behind is looked at all the same, as if it had got a
// format that it takes. Who passes frames on has nothing to pass.
static enum pen_status serve_amiss(struct stk_labels *l, uint32_t edge,
                                   const struct stk_variant_pin *vp,
                                   const struct demand *d,
                                   struct stk_link *link, struct pen_error *err)
{
    struct stk_planner *p = l->planner;
    const struct stk_edge *e = &p->graph->edges[edge];
    const struct stk_node *to = &p->graph->nodes[e->to];
    const unsigned home = (unsigned)__builtin_ctz(vp->roots);
    struct pen_caps caps = p->caps.caps[vp->key.caps];
    struct stk_label label = { .home = (uint8_t)home };
    uint32_t formats = 0;
    for (uint32_t k = 0; k < d->options; k++) {
        if (!d->homes[k] || minds_homes(&to->options[k]))
            continue;
        label.takers |= 1u << k;
        formats |= to->options[k].in[e->to_pin].formats;
    }
    if (!label.takers)
        return PEN_OK;
    if (formats && (stk_caps_mask(&caps) & ~formats)) {
        caps.format = (enum pen_format)__builtin_ctz(formats);
        caps.formats = PEN_FMT_BIT(caps.format);
    }
    const enum pen_status st =
        stk_caps_intern(&p->caps, &caps, &label.caps, err);
    if (st != PEN_OK)
        return st == PEN_E_NOMEM ? st : PEN_OK;
    return add_label(l, &l->edges[edge], (uint8_t)stk_state_of(home, 0), true,
                     &label, link, err);
}

static enum pen_status link_edge(struct stk_labels *l, uint32_t edge,
                                 const struct stk_variant_pin *vp,
                                 struct stk_link *link, struct pen_error *err)
{
    struct stk_planner *p = l->planner;
    struct stk_edge_labels *e = &l->edges[edge];
    struct demand demand;
    struct stk_board *b = NULL;
    const struct stk_reach *reach[STK_HOMES];
    unsigned roots = 0;
    link->first = l->proto_count;
    link->count = 0;
    const struct pen_caps caps = p->caps.caps[vp->key.caps];
    make_demand(p, edge, &caps, &demand);
    if (!demand.all_homes)
        return PEN_OK;
    if (!demand.all_formats)
        return serve_amiss(l, edge, vp, &demand, link, err);
    const bool simple = does_as_it_is(p, edge, vp, &demand);
    if (!simple)
        PEN_TRY(stk_board_get(p, &vp->key, &b, err));
    for (unsigned h = 0; h < STK_HOMES && !simple; h++) {
        if (!(vp->roots & STK_HOME_BIT(h)))
            continue;
        reach[roots] = stk_board_reach(b, (enum stk_home)h);
        if (!reach[roots++])
            return stk_plan_no_memory(err);
    }
    for (unsigned h = 0; h < STK_HOMES; h++) {
        if (!(demand.all_homes & STK_HOME_BIT(h)))
            continue;
        for (uint32_t left = demand.all_formats; left; left &= left - 1) {
            const unsigned f = (unsigned)__builtin_ctz(left);
            const int state = stk_state_of(h, f);
            bool there = simple && (vp->roots & STK_HOME_BIT(h));
            for (unsigned r = 0; r < roots && !there; r++)
                there = reach[r]->distance[state] != UINT64_MAX;
            const struct stk_label label = {
                .home = (uint8_t)h,
                .staged = h == STK_HOME_HOST && (vp->key.staged & 1u << f),
                .caps = b ? b->caps[f] : vp->key.caps,
                .takers = takers_of(&demand, h, f),
            };
            if (there && label.takers)
                PEN_TRY(
                    add_label(l, e, (uint8_t)state, false, &label, link, err));
        }
    }
    return link->count ? PEN_OK : serve_amiss(l, edge, vp, &demand, link, err);
}

// Whether two consumers of one output take the same.
static bool asks_alike(const struct stk_planner *p, uint32_t a, uint32_t b)
{
    const struct stk_edge *left = &p->graph->edges[a];
    const struct stk_edge *right = &p->graph->edges[b];
    const struct stk_node *x = &p->graph->nodes[left->to];
    const struct stk_node *y = &p->graph->nodes[right->to];
    if (left->from_pin != right->from_pin || x->option_count != 1 ||
        y->option_count != 1 || x->options[0].cls != y->options[0].cls ||
        p->ban_count)
        return false;
    const struct pen_pin_set *in = &x->options[0].in[left->to_pin];
    const struct pen_pin_set *other = &y->options[0].in[right->to_pin];
    return in->kinds == other->kinds && in->mem == other->mem &&
           in->formats == other->formats &&
           stk_wanted_mems(p, &x->options[0], x->outputs, left->to_pin) ==
               stk_wanted_mems(p, &y->options[0], y->outputs, right->to_pin) &&
           x->options[0].out[0].mem == y->options[0].out[0].mem;
}

// An edge not far before number `n` whose consumer takes the same, or `n`.
static uint32_t earlier_alike(const struct stk_planner *p,
                              const uint32_t *edges, uint32_t n)
{
    enum { FAR = 16 };
    for (uint32_t back = 1; back <= n && back <= FAR; back++)
        if (asks_alike(p, edges[n - back], edges[n]))
            return n - back;
    return n;
}

static enum pen_status copy_labels(struct stk_labels *l, uint32_t from,
                                   uint32_t to, struct pen_error *err)
{
    const uint32_t count = l->edges[from].count;
    if (!RESERVE(l, labels, label, count))
        return stk_plan_no_memory(err);
    if (count)
        memcpy(l->labels + l->label_count, l->labels + l->edges[from].first,
               count * sizeof(*l->labels));
    l->label_count += count;
    l->edges[to].count = count;
    return PEN_OK;
}

static enum pen_status link_node(struct stk_labels *l, uint32_t node,
                                 struct pen_error *err)
{
    const struct stk_planner *p = l->planner;
    const struct stk_spot *spot = &l->spots[node];
    const uint32_t edges = p->first[node + 1] - p->first[node];
    for (uint32_t i = 0; i < spot->variants; i++) {
        const struct stk_variant *v = &l->variants[spot->first_variant + i];
        uint32_t at = p->first[node];
        for (uint32_t o = 0; o < p->graph->nodes[node].outputs; o++) {
            l->pins[v->pin + o].links =
                l->link_count + i * edges + at - p->first[node];
            while (at < p->first[node + 1] &&
                   p->graph->edges[p->out[at]].from_pin == o)
                at++;
        }
    }
    if (!RESERVE(l, links, link, spot->variants * edges))
        return stk_plan_no_memory(err);
    l->link_count += spot->variants * edges;
    // Edge by edge, so that the labels of one are together.
    const uint32_t links = l->link_count - spot->variants * edges;
    for (uint32_t n = 0; n < edges; n++) {
        const uint32_t edge = p->out[p->first[node] + n];
        const uint32_t pin = p->graph->edges[edge].from_pin;
        l->edges[edge].first = l->label_count;
        const uint32_t like = earlier_alike(p, p->out + p->first[node], n);
        if (like < n) {
            PEN_TRY(copy_labels(l, p->out[p->first[node] + like], edge, err));
            for (uint32_t i = 0; i < spot->variants; i++)
                l->links[links + i * edges + n] =
                    l->links[links + i * edges + like];
            continue;
        }
        for (uint32_t i = 0; i < spot->variants; i++) {
            const struct stk_variant *v = &l->variants[spot->first_variant + i];
            PEN_TRY(link_edge(l, edge, &l->pins[v->pin + pin],
                              &l->links[links + i * edges + n], err));
        }
    }
    return PEN_OK;
}

// --- one module -------------------------------------------------------------

// Whether labels are the same to a consumer.
static bool alike(const struct stk_label *a, const struct stk_label *b,
                  bool homes)
{
    return a->caps == b->caps && a->takers == b->takers &&
           (!homes || (a->home == b->home && a->staged == b->staged));
}

static void group_labels(struct stk_labels *l, uint32_t edge, bool homes)
{
    struct stk_edge_labels *e = &l->edges[edge];
    e->groups = 0;
    if (!l->labels)
        return;
    struct stk_label *list = &l->labels[e->first];
    for (uint32_t i = 0; i < e->count; i++) {
        uint32_t k = 0;
        while (k < i && !alike(&list[k], &list[i], homes))
            k++;
        list[i].group = k < i ? list[k].group : (uint16_t)e->groups++;
    }
}

// How many other inputs of a node may get frames of the same formats.
static uint32_t companions(const struct stk_labels *l,
                           const struct stk_spot *spot, uint32_t input,
                           const struct stk_label *label)
{
    const struct stk_caps_table *t = &l->planner->caps;
    const uint32_t mask = stk_caps_mask(&t->caps[label->caps]);
    uint32_t count = 0;
    for (uint32_t i = 0; i < spot->inputs; i++) {
        const struct stk_edge_labels *e = &l->edges[spot->edge[i]];
        bool found = i == input;
        for (uint32_t k = 0; k < e->count && !found; k++)
            found =
                stk_caps_mask(&t->caps[l->labels[e->first + k].caps]) == mask;
        count += found;
    }
    return count;
}

struct rank {
    uint32_t score, group;
};

static int better_first(const void *left, const void *right)
{
    const struct rank *a = left, *b = right;
    if (a->score != b->score)
        return a->score > b->score ? -1 : 1;
    return (a->group > b->group) - (a->group < b->group);
}

// Number the groups of an input so that those come first with which the others
// can go along: the rest will be left out.
static bool rank_groups(struct stk_labels *l, const struct stk_spot *spot,
                        uint32_t input)
{
    struct stk_edge_labels *e = &l->edges[spot->edge[input]];
    struct stk_label *list = l->labels + e->first;
    struct rank *rank = calloc((size_t)e->groups + 1, sizeof(*rank));
    uint32_t *number = calloc((size_t)e->groups + 1, sizeof(*number));
    const bool ok = rank && number;
    for (uint32_t i = 0; i < e->count && ok; i++)
        rank[list[i].group] =
            (struct rank){ companions(l, spot, input, &list[i]),
                           list[i].group };
    if (ok)
        qsort(rank, e->groups, sizeof(*rank), better_first);
    for (uint32_t g = 0; g < e->groups && ok; g++)
        number[rank[g].group] = g;
    for (uint32_t i = 0; i < e->count && ok; i++)
        list[i].group = (uint16_t)number[list[i].group];
    free(rank);
    free(number);
    return ok;
}

static uint64_t count_cases(const struct stk_labels *l,
                            const struct stk_spot *spot, uint32_t options)
{
    uint64_t product = options;
    for (uint32_t i = 0; i < spot->inputs && product; i++) {
        product *= l->edges[spot->edge[i]].groups;
        if (product > UINT32_MAX)
            return UINT32_MAX;
    }
    return product;
}

// The combinations of labels at the inputs of a node. Of too many some are left
// out: groups of the input that has most.
static enum pen_status count_combos(struct stk_labels *l, uint32_t node,
                                    struct pen_error *err)
{
    struct stk_spot *spot = &l->spots[node];
    const struct stk_node *n = &l->planner->graph->nodes[node];
    bool homes = false, ranked = false;
    for (uint32_t k = 0; k < n->option_count; k++)
        homes = homes || minds_homes(&n->options[k]);
    for (uint32_t i = 0; i < spot->inputs; i++)
        group_labels(l, spot->edge[i], homes);
    uint64_t cases = count_cases(l, spot, n->option_count);
    while (cases > MOST_CASES) {
        uint32_t most = 0;
        for (uint32_t i = 0; i < spot->inputs; i++) {
            if (!ranked && !rank_groups(l, spot, i))
                return stk_plan_no_memory(err);
            if (l->edges[spot->edge[i]].groups >
                l->edges[spot->edge[most]].groups)
                most = i;
        }
        ranked = true;
        l->cut = true;
        l->edges[spot->edge[most]].groups--;
        cases = count_cases(l, spot, n->option_count);
    }
    spot->combos = n->option_count ? (uint32_t)(cases / n->option_count) : 0;
    return PEN_OK;
}

static const struct stk_label no_label;

static const struct stk_label *label_of_group(const struct stk_labels *l,
                                              uint32_t edge, uint32_t group)
{
    const struct stk_edge_labels *e = &l->edges[edge];
    for (uint32_t i = 0; l->labels && i < e->count; i++)
        if (l->labels[e->first + i].group == group)
            return &l->labels[e->first + i];
    return &no_label;
}

static enum pen_status make_cases(struct stk_labels *l, uint32_t node,
                                  struct pen_error *err)
{
    struct stk_spot *spot = &l->spots[node];
    const struct stk_node *n = &l->planner->graph->nodes[node];
    struct attempt a = {
        .l = l, .node = node, .graph_node = n, .inputs = spot->inputs
    };
    for (uint32_t i = 0; i < PEN_MAX_PINS; i++)
        a.label[i] = &no_label;
    spot->first_case = l->case_count;
    spot->first_variant = l->variant_count;
    if (!RESERVE(l, cases, case, spot->combos * n->option_count))
        return stk_plan_no_memory(err);
    for (uint32_t c = 0; c < spot->combos; c++) {
        uint32_t rest = c, takers = UINT32_MAX;
        for (uint32_t i = 0; i < a.inputs; i++) {
            const uint32_t groups = l->edges[spot->edge[i]].groups;
            a.label[i] = label_of_group(l, spot->edge[i], rest % groups);
            takers &= a.label[i]->takers;
            rest /= groups;
        }
        for (uint32_t k = 0; k < n->option_count; k++) {
            struct stk_case *out = &l->cases[l->case_count++];
            a.option = &n->options[k];
            *out = (struct stk_case){ .variant = STK_CASE_UNTAKEN };
            if ((k < 32 ? takers >> k & 1 : 0) &&
                !banned(l->planner, n, a.option))
                PEN_TRY(try_option(&a, out, err));
        }
    }
    return PEN_OK;
}

// --- the whole graph --------------------------------------------------------

static bool wants_dmabuf(const struct stk_labels *l, uint32_t edge)
{
    const struct stk_graph *g = l->planner->graph;
    const struct stk_edge *e = &g->edges[edge];
    const struct stk_node *to = &g->nodes[e->to];
    for (uint32_t k = 0; k < to->option_count; k++) {
        const struct stk_option *option = &to->options[k];
        const uint32_t mems =
            stk_wanted_mems(l->planner, option, to->outputs, e->to_pin);
        if ((mems & PEN_MEM_BIT(PEN_MEM_DMABUF)) &&
            !(mems & PEN_MEM_BIT(PEN_MEM_HOST)))
            return true;
        for (uint32_t o = 0;
             o < to->outputs && (option->cls->flags & PEN_CLASS_FORWARDS); o++)
            if (l->wants_dmabuf[(size_t)e->to * PEN_MAX_PINS + o])
                return true;
    }
    return false;
}

// Whether what is lost on the way into a module is seen behind an output.
static bool hands_on(const struct stk_node *node, uint32_t pin)
{
    const uint32_t formats = node->options[0].out[pin].formats;
    return (node->options[0].cls->flags & PEN_CLASS_FORWARDS) ||
           (formats & (formats - 1));
}

// From the end to the beginning: who wants DMABUFs, and the weights.
static void look_behind(struct stk_labels *l)
{
    const struct stk_planner *p = l->planner;
    const struct stk_graph *g = p->graph;
    for (uint32_t i = g->node_count; i-- > 0;) {
        const uint32_t node = p->sequence[i];
        struct stk_spot *spot = &l->spots[node];
        uint32_t weight = 1;
        for (uint32_t n = p->first[node]; n < p->first[node + 1]; n++) {
            const uint32_t edge = p->out[n], pin = g->edges[edge].from_pin;
            if (wants_dmabuf(l, edge))
                l->wants_dmabuf[(size_t)node * PEN_MAX_PINS + pin] = true;
            if (hands_on(&g->nodes[node], pin))
                weight += l->edges[edge].weight;
        }
        spot->inputs = 0;
        for (uint32_t n = p->first_in[node]; n < p->first_in[node + 1]; n++) {
            l->edges[p->in[n]].weight = spot->inputs == 0 ? weight : 1;
            spot->edge[spot->inputs++] = p->in[n];
        }
    }
}

static enum pen_status make_values(struct stk_labels *l, struct pen_error *err)
{
    const struct stk_graph *g = l->planner->graph;
    uint32_t count = 0, most = 1, fan_out = 1;
    for (uint32_t n = 0; n < g->node_count; n++) {
        struct stk_spot *spot = &l->spots[n];
        spot->table = count;
        count += spot->combos;
        if (spot->combos > most)
            most = spot->combos;
        for (uint32_t i = 0; i < spot->inputs; i++) {
            struct stk_edge_labels *e = &l->edges[spot->edge[i]];
            e->value = spot->inputs == 1 ? spot->table : count;
            if (spot->inputs > 1)
                count += e->groups;
            if (e->groups > most)
                most = e->groups;
        }
        const uint32_t edges = l->planner->first[n + 1] - l->planner->first[n];
        if (edges > fan_out)
            fan_out = edges;
    }
    l->value_count = count;
    l->values = calloc((size_t)count + 1, sizeof(*l->values));
    l->shares = calloc((size_t)count + 1, sizeof(*l->shares));
    l->scratch = calloc(most, sizeof(*l->scratch));
    l->fixed = malloc(((size_t)g->edge_count + 1) * sizeof(*l->fixed));
    l->chosen = malloc(((size_t)g->edge_count + 1) * sizeof(*l->chosen));
    l->ends = calloc(fan_out, sizeof(*l->ends));
    l->at = calloc(fan_out, sizeof(*l->at));
    if (!l->values || !l->shares || !l->scratch || !l->fixed || !l->chosen ||
        !l->ends || !l->at)
        return stk_plan_no_memory(err);
    for (uint32_t e = 0; e < g->edge_count; e++)
        l->fixed[e] = -1;
    return PEN_OK;
}

enum pen_status stk_labels_init(struct stk_labels *l, struct stk_planner *p,
                                struct pen_error *err)
{
    const struct stk_graph *g = p->graph;
    *l = (struct stk_labels){
        .planner = p,
        .spots = calloc((size_t)g->node_count + 1, sizeof(*l->spots)),
        .edges = calloc((size_t)g->edge_count + 1, sizeof(*l->edges)),
        .wants_dmabuf = calloc((size_t)g->node_count * PEN_MAX_PINS + 1,
                               sizeof(*l->wants_dmabuf)),
    };
    if (!l->spots || !l->edges || !l->wants_dmabuf)
        return stk_plan_no_memory(err);
    look_behind(l);
    for (uint32_t i = 0; i < g->node_count; i++) {
        const uint32_t node = p->sequence[i];
        PEN_TRY(count_combos(l, node, err));
        PEN_TRY(make_cases(l, node, err));
        PEN_TRY(link_node(l, node, err));
    }
    return make_values(l, err);
}

void stk_labels_finish(struct stk_labels *l)
{
    free(l->spots);
    free(l->edges);
    free(l->labels);
    free(l->protos);
    free(l->links);
    free(l->pins);
    free(l->variants);
    free(l->cases);
    free(l->wants_dmabuf);
    free(l->values);
    free(l->shares);
    free(l->scratch);
    free(l->fixed);
    free(l->chosen);
    free(l->offers);
    free(l->ends);
    free(l->at);
}
