// A plan of the planner, connection by connection: every bridge must be a step
// that there is, on a path that loses no more than it must, and cost what it
// says.

#include "brute.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "src/graph/plan.h"

enum { LONGEST = 16 };  // bridges in a row

struct walk {
    const struct brute_graph *g;
    const struct pen_plan *plan;
    const struct stk_plan_node *node[BRUTE_MODULES];
    unsigned option[BRUTE_MODULES];
    struct brute_caps out[BRUTE_MODULES];
    unsigned arrived[BRUTE_MODULES];  // homes
    uint32_t in_mask[BRUTE_MODULES];
    struct brute_caps arrives[BRUTE_EDGES];
    unsigned home[BRUTE_EDGES];
    bool seen[256];  // inserted nodes
    bool device;
    int64_t sum;  // without what is done once
    struct brute_value value;
    char wrong[400];
};

PEN_PRINTF(2, 3)
static bool fault(struct walk *w, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    vsnprintf(w->wrong, sizeof(w->wrong), format, args);
    va_end(args);
    return false;
}

static unsigned home_of(const struct stk_plan_output *o)
{
    switch (o->mem) {
    case PEN_MEM_HOST_PINNED:
        return AT_PINNED;
    case PEN_MEM_CUDA_DEVICE:
        return AT_CUDA;
    case PEN_MEM_DMABUF:
        return o->kind == STK_DMABUF_CUDA ? AT_DMA_CUDA : AT_DMA_HOST;
    default:
        return AT_HOST;
    }
}

static bool find_modules(struct walk *w)
{
    const struct brute_graph *g = w->g;
    for (uint32_t n = 0; n < w->plan->node_count; n++) {
        unsigned m;
        if (!w->plan->nodes[n].inserted &&
            sscanf(w->plan->nodes[n].id, "n%u", &m) == 1 && m < g->modules)
            w->node[m] = &w->plan->nodes[n];
    }
    for (unsigned m = 0; m < g->modules; m++) {
        if (!w->node[m])
            return fault(w, "n%u is not in the plan", m);
        unsigned o = 0;
        while (o < g->module[m].options &&
               strcmp(g->module[m].option[o].name, w->node[m]->cls->name) != 0)
            o++;
        if (o == g->module[m].options)
            return fault(w, "n%u is a %s", m, w->node[m]->cls->name);
        w->option[m] = o;
    }
    return true;
}

// The nodes between the producer of an edge and its consumer.
static bool find_path(struct walk *w, unsigned edge,
                      const struct stk_plan_node *path[LONGEST],
                      unsigned *count)
{
    const struct brute_edge *e = &w->g->edge[edge];
    const struct pen_plan *plan = w->plan;
    int32_t in = w->node[e->to]->in_edge[e->to_pin];
    *count = 0;
    for (; in >= 0; in = plan->nodes[plan->edges[in].from].in_edge[0]) {
        const struct stk_plan_node *n = &plan->nodes[plan->edges[in].from];
        if (!n->inserted) {
            if (n != w->node[e->from] ||
                plan->edges[in].from_pin != e->from_pin)
                return fault(w, "n%u.%u gets frames of %s", e->to, e->to_pin,
                             n->id);
            return true;
        }
        if (*count == LONGEST)
            break;
        memmove(path + 1, path, *count * sizeof(*path));
        path[0] = n;
        (*count)++;
    }
    return fault(w, "n%u.%u gets no frames", e->to, e->to_pin);
}

// The state that a bridge makes; negative if there is none of that format.
static int state_after(const struct brute_board *b,
                       const struct stk_plan_node *n, unsigned state)
{
    const unsigned home = home_of(&n->output[0]);
    unsigned format = state % b->formats;
    if (strcmp(n->cls->name, "CudaMemCopy") != 0 &&
        strcmp(n->cls->name, "MemTypeConversion") != 0) {
        format = 1;
        while (format < b->formats &&
               b->format[format] != n->output[0].caps.format)
            format++;
        if (format == b->formats)
            return BRUTE_NOWHERE;
    }
    return (int)(home * b->formats + format);
}

// A bridge whose pool was pinned afterwards is two steps.
static const struct brute_step *step_to(const struct brute_board *b,
                                        unsigned from, unsigned to)
{
    const unsigned pageable = AT_HOST * b->formats + to % b->formats;
    if (b->step[from][to].there)
        return &b->step[from][to];
    const struct brute_step *pin = &b->step[pageable][to];
    if (b->step[from][pageable].there && pin->there && !pin->loss.transfers)
        return &b->step[from][pageable];
    return NULL;
}

static bool follow_bridge(struct walk *w, const struct brute_board *b,
                          const struct stk_plan_node *n, unsigned *state,
                          struct brute_loss *loss)
{
    const int next = state_after(b, n, *state);
    const struct brute_step *s =
        next < 0 ? NULL : step_to(b, *state, (unsigned)next);
    const size_t number = (size_t)(n - w->plan->nodes);
    if (!s)
        return fault(w, "%s is no step that there is", n->id);
    const int64_t once =
        s->device ? brute_share(w->g, w->g->profile.load_ns) : 0;
    if (s->cost - once != n->cost_ns)
        return fault(w, "%s costs %lld, not %lld", n->id,
                     (long long)(s->cost - once), (long long)n->cost_ns);
    for (int i = 0; i < BRUTE_PARTS; i++)
        loss->part[i] += s->loss.part[i];
    loss->transfers += s->loss.transfers;
    *state = (unsigned)next;
    if (number >= sizeof(w->seen) || w->seen[number])
        return true;
    w->seen[number] = true;
    w->device = w->device || s->device;
    w->value.cost += s->cost;
    w->sum += n->cost_ns;
    return true;
}

static bool follow_edge(struct walk *w, unsigned edge)
{
    const struct brute_graph *g = w->g;
    const struct brute_edge *e = &g->edge[edge];
    const struct brute_class *from =
        &g->module[e->from].option[w->option[e->from]];
    const struct brute_class *to = &g->module[e->to].option[w->option[e->to]];
    const struct stk_plan_node *path[LONGEST];
    const unsigned root = home_of(&w->node[e->from]->output[e->from_pin]);
    struct brute_board b;
    struct brute_loss loss = { 0 }, least[BRUTE_STATES];
    bool known[BRUTE_STATES];
    const bool dmabuf = brute_wants_dmabuf(g, e->from, e->from_pin);
    unsigned count;
    if (!find_path(w, edge, path, &count))
        return false;
    const struct brute_birth birth =
        brute_birth(g, from, w->in_mask[e->from], w->arrived[e->from], dmabuf);
    brute_board_make(g, &w->out[e->from], birth.pinnable, dmabuf, &b);
    unsigned state = root * b.formats;
    brute_board_reach(&b, state, known, least);
    for (unsigned i = 0; i < count; i++)
        if (!follow_bridge(w, &b, path[i], &state, &loss))
            return false;
    if (!known[state] || brute_loss_compare(&loss, &least[state]) != 0)
        return fault(w, "n%u.%u: a path that loses or moves more than needed",
                     e->to, e->to_pin);
    if (!brute_takes(g, &b, to, state))
        return fault(w, "n%u.%u does not take what it gets", e->to, e->to_pin);
    w->arrives[edge] = brute_state_caps(&b, state);
    w->home[edge] = state / b.formats;
    const unsigned weight = brute_weight(g, edge);
    for (int i = 0; i < BRUTE_PARTS; i++)
        w->value.loss[i] += (int64_t)weight * loss.part[i];
    return true;
}

static bool check_home(struct walk *w, unsigned module, unsigned pin)
{
    const struct brute_class *c =
        &w->g->module[module].option[w->option[module]];
    const unsigned home = home_of(&w->node[module]->output[pin]);
    struct brute_birth birth =
        brute_birth(w->g, c, w->in_mask[module], w->arrived[module],
                    brute_wants_dmabuf(w->g, module, pin));
    if ((birth.roots & 1u << AT_HOST) && birth.pinnable)
        birth.roots |= 1u << AT_PINNED;
    if (!(birth.roots & 1u << home))
        return fault(w, "n%u.%u cannot give that memory", module, pin);
    return true;
}

static bool check_module(struct walk *w, unsigned module)
{
    const struct brute_graph *g = w->g;
    const struct brute_module *m = &g->module[module];
    const struct brute_class *c = &m->option[w->option[module]];
    struct brute_caps in[BRUTE_PINS] = { 0 };
    for (unsigned e = 0; e < g->edges; e++)
        if (g->edge[e].to == module) {
            in[g->edge[e].to_pin] = w->arrives[e];
            w->arrived[module] |= 1u << w->home[e];
        }
    w->in_mask[module] = in[0].mask;
    w->out[module] = brute_negotiate(c, m, in);
    if (!w->out[module].mask)
        return fault(w, "n%u refuses what it gets", module);
    const int64_t once = c->cuda ? brute_share(g, g->profile.load_ns) : 0;
    const int64_t cost = brute_module_cost(g, m, c, in, &w->out[module]);
    if (cost - once != w->node[module]->cost_ns)
        return fault(w, "n%u costs %lld, not %lld", module,
                     (long long)(cost - once),
                     (long long)w->node[module]->cost_ns);
    w->value.cost += cost;
    w->sum += cost - once;
    w->device = w->device || c->cuda;
    for (unsigned o = 0; o < m->outputs; o++)
        if (!check_home(w, module, o))
            return false;
    return true;
}

static bool check_all(struct walk *w)
{
    if (!find_modules(w))
        return false;
    for (unsigned m = 0; m < w->g->modules; m++) {
        for (unsigned e = 0; e < w->g->edges; e++)
            if (w->g->edge[e].to == m && !follow_edge(w, e))
                return false;
        if (!check_module(w, m))
            return false;
    }
    for (uint32_t n = 0; n < w->plan->node_count; n++)
        if (w->plan->nodes[n].inserted && (n >= sizeof(w->seen) || !w->seen[n]))
            return fault(w, "%s serves nobody", w->plan->nodes[n].id);
    if (w->sum != w->plan->cost_ns)
        return fault(w, "the plan costs %lld, not %lld", (long long)w->sum,
                     (long long)w->plan->cost_ns);
    if (w->device)
        w->value.cost += brute_share(w->g, w->g->profile.context_ns);
    int64_t once = w->device ? w->g->profile.context_ns : 0;
    for (uint32_t n = 0; n < w->plan->node_count; n++)
        if (w->plan->nodes[n].cls->flags & PEN_CLASS_CUDA)
            once += w->g->profile.load_ns;
    if (once != w->plan->once_ns)
        return fault(w, "what is done once takes %lld, not %lld",
                     (long long)once, (long long)w->plan->once_ns);
    return true;
}

const char *brute_walk(const struct brute_graph *g, const struct pen_plan *plan,
                       struct brute_value *value)
{
    static struct walk w;
    w = (struct walk){ .g = g, .plan = plan };
    const bool right = check_all(&w);
    *value = w.value;
    return right ? NULL : w.wrong;
}
