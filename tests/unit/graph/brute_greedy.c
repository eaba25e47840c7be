// The rule of the reference system: connection by connection, if the memory
// types differ a memory bridge, then in that memory, if the formats differ, a
// conversion to the first format that is taken. Nothing is shared and nothing
// is looked ahead. A pool gives the first memory type that it can.

#include "brute.h"

#include <string.h>

struct greedy {
    const struct brute_graph *g;
    unsigned option[BRUTE_MODULES];
    struct brute_caps caps[BRUTE_EDGES];  // what arrives
    unsigned home[BRUTE_EDGES];
    struct brute_value value;
    bool device;
};

static unsigned first_bit(unsigned mask)
{
    return mask & ~(mask - 1);
}

static void take(struct greedy *y, const struct brute_step *s, unsigned weight)
{
    for (int i = 0; i < BRUTE_PARTS; i++)
        y->value.loss[i] += (int64_t)weight * s->loss.part[i];
    y->value.cost += s->cost;
    y->device = y->device || s->device;
}

// The cheapest way by copies to one of `homes`; false if there is none.
static bool move_to(struct greedy *y, const struct brute_board *b,
                    unsigned *state, unsigned homes)
{
    const unsigned format = *state % b->formats;
    int64_t cost[BRUTE_HOMES];
    int before[BRUTE_HOMES];
    for (unsigned h = 0; h < BRUTE_HOMES; h++)
        cost[h] = BRUTE_NEVER;
    cost[*state / b->formats] = 0;
    before[*state / b->formats] = -1;
    for (unsigned round = 0; round < BRUTE_HOMES; round++)
        for (unsigned a = 0; a < BRUTE_HOMES; a++)
            for (unsigned c = 0; c < BRUTE_HOMES; c++) {
                const struct brute_step *s =
                    &b->step[a * b->formats + format][c * b->formats + format];
                if (cost[a] >= BRUTE_NEVER || !s->there ||
                    cost[a] + s->cost >= cost[c])
                    continue;
                cost[c] = cost[a] + s->cost;
                before[c] = (int)a;
            }
    int end = -1;
    for (unsigned h = 0; h < BRUTE_HOMES; h++)
        if ((homes & 1u << h) && cost[h] < BRUTE_NEVER &&
            (end < 0 || cost[h] < cost[end]))
            end = (int)h;
    if (end < 0)
        return false;
    for (int h = end; before[h] >= 0; h = before[h])
        take(y,
             &b->step[(unsigned)before[h] * b->formats + format]
                     [(unsigned)h * b->formats + format],
             0);
    *state = (unsigned)end * b->formats + format;
    return true;
}

static bool convert(struct greedy *y, const struct brute_board *b,
                    const struct brute_class *to, unsigned weight,
                    unsigned *state)
{
    unsigned target = 0;
    for (unsigned i = 1; i < b->formats; i++)
        if ((to->in_formats & PEN_FMT_BIT(b->format[i])) &&
            (target == 0 || b->format[i] < b->format[target]))
            target = i;
    const bool device = BRUTE_ON_DEVICE & 1u << *state / b->formats;
    int best = -1;
    for (unsigned h = 0; h < BRUTE_HOMES && target; h++) {
        const unsigned v = h * b->formats + target;
        // It stays in the memory that it is in, or goes where it shall.
        if (!b->step[*state][v].there || (b->step[*state][v].device != device &&
                                          !(brute_taken(y->g, to) & 1u << h)))
            continue;
        if (best < 0 || b->step[*state][v].cost < b->step[*state][best].cost)
            best = (int)v;
    }
    if (best < 0)
        return false;
    take(y, &b->step[*state][best], weight);
    *state = (unsigned)best;
    return true;
}

static bool connect(struct greedy *y, unsigned edge,
                    const struct brute_caps *caps, unsigned root, bool pinnable)
{
    const struct brute_graph *g = y->g;
    const unsigned number = g->edge[edge].to;
    const struct brute_class *to = &g->module[number].option[y->option[number]];
    struct brute_board b;
    brute_board_make(
        g, caps, pinnable,
        brute_wants_dmabuf(g, g->edge[edge].from, g->edge[edge].from_pin), &b);
    unsigned state = root * b.formats;
    const unsigned all = brute_taken(g, to);
    struct brute_class first = *to;
    first.in_mem = first_bit(to->in_mem);
    if (!(all & 1u << root) && !move_to(y, &b, &state, brute_taken(g, &first)))
        return false;
    if ((caps->mask & ~to->in_formats) &&
        (!convert(y, &b, to, brute_weight(g, edge), &state) ||
         !move_to(y, &b, &state, all)))
        return false;
    y->caps[edge] = brute_state_caps(&b, state);
    y->home[edge] = state / b.formats;
    return brute_takes(g, &b, to, state);
}

static bool place(struct greedy *y, unsigned module)
{
    const struct brute_graph *g = y->g;
    const struct brute_module *m = &g->module[module];
    const struct brute_class *c = &m->option[y->option[module]];
    struct brute_caps in[BRUTE_PINS] = { 0 };
    unsigned homes = 0;
    for (unsigned e = 0; e < g->edges; e++)
        if (g->edge[e].to == module) {
            in[g->edge[e].to_pin] = y->caps[e];
            homes |= 1u << y->home[e];
        }
    const struct brute_caps out = brute_negotiate(c, m, in);
    y->value.cost += brute_module_cost(g, m, c, in, &out);
    y->device = y->device || c->cuda;
    const struct brute_birth birth =
        brute_birth(g, c, in[0].mask, homes, false);
    if (!out.mask || (m->outputs && !birth.roots))
        return false;
    for (unsigned e = 0; e < g->edges; e++)
        if (g->edge[e].from == module &&
            !connect(y, e, &out, (unsigned)__builtin_ctz(birth.roots),
                     birth.pinnable))
            return false;
    return true;
}

// The next combination of classes; false after the last.
static bool next(struct greedy *y)
{
    for (unsigned m = 0; m < y->g->modules; m++) {
        if (++y->option[m] < y->g->module[m].options)
            return true;
        y->option[m] = 0;
    }
    return false;
}

enum brute_result brute_greedy(const struct brute_graph *g,
                               struct brute_value *value)
{
    struct greedy y = { .g = g };
    enum brute_result result = BRUTE_IMPOSSIBLE;
    do {
        memset(&y.value, 0, sizeof(y.value));
        y.device = false;
        bool whole = true;
        for (unsigned m = 0; m < g->modules && whole; m++)
            whole = place(&y, m);
        if (!whole)
            continue;
        if (y.device)
            y.value.cost += brute_share(g, g->profile.context_ns);
        if (result == BRUTE_IMPOSSIBLE ||
            brute_value_compare(&y.value, value) < 0)
            *value = y.value;
        result = BRUTE_FOUND;
    } while (next(&y));
    return result;
}
