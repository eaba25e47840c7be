// The referee's referee: every class, every home and every state of every edge,
// one after the other, each valued from the start. For the smallest graphs.

#include "brute.h"

#include <string.h>

struct naive {
    const struct brute_graph *g;
    unsigned option[BRUTE_MODULES];
    int root[BRUTE_MODULES][BRUTE_PINS];
    unsigned state[BRUTE_EDGES];
    struct brute_caps out[BRUTE_MODULES];
    uint32_t in_mask[BRUTE_MODULES];
    struct brute_caps arrives[BRUTE_EDGES];
    unsigned home[BRUTE_EDGES];
    struct brute_board board[BRUTE_MODULES][BRUTE_PINS];
    bool tight[BRUTE_STATES][BRUTE_STATES];  // of the tree at work
    struct brute_value best;
    bool found;
    unsigned patience;
};

// What it costs to reach all states of `wanted` from `at`; `path` has the
// states since the last one that was wanted or where the tree parted.
static int64_t grow(const struct naive *n, const struct brute_board *b,
                    unsigned at, uint32_t wanted, uint32_t path, bool device)
{
    int64_t best = BRUTE_NEVER;
    if (wanted & 1u << at) {
        wanted &= ~(1u << at);
        path = 0;
    }
    if (wanted == 0)
        return 0;
    path |= 1u << at;
    for (unsigned to = 0; to < b->states; to++) {
        const struct brute_step *s = &b->step[at][to];
        if ((path & 1u << to) || !n->tight[at][to] || (s->device && !device))
            continue;
        const int64_t c = s->cost + grow(n, b, to, wanted, path, device);
        if (c < best)
            best = c;
    }
    for (uint32_t part = (wanted - 1) & wanted; part > (wanted ^ part);
         part = (part - 1) & wanted) {
        const int64_t c = grow(n, b, at, part, 0, device) +
                          grow(n, b, at, wanted ^ part, 0, device);
        if (c < best)
            best = c;
    }
    return best < BRUTE_NEVER ? best : BRUTE_NEVER;
}

static bool add_tree(struct naive *n, unsigned module, unsigned pin,
                     bool device, struct brute_value *v)
{
    const struct brute_graph *g = n->g;
    const struct brute_board *b = &n->board[module][pin];
    const unsigned root = (unsigned)n->root[module][pin] * b->formats;
    bool known[BRUTE_STATES];
    struct brute_loss least[BRUTE_STATES];
    uint32_t wanted = 0;
    brute_board_reach(b, root, known, least);
    for (unsigned a = 0; a < b->states; a++)
        for (unsigned c = 0; c < b->states; c++) {
            struct brute_loss l = least[a];
            for (int i = 0; i < BRUTE_PARTS; i++)
                l.part[i] += b->step[a][c].loss.part[i];
            l.transfers += b->step[a][c].loss.transfers;
            n->tight[a][c] = known[a] && b->step[a][c].there &&
                             !brute_loss_compare(&l, &least[c]);
        }
    for (unsigned e = 0; e < g->edges; e++) {
        if (g->edge[e].from != module || g->edge[e].from_pin != pin)
            continue;
        if (!known[n->state[e]])
            return false;
        wanted |= 1u << n->state[e];
        for (int i = 0; i < BRUTE_PARTS; i++)
            v->loss[i] +=
                (int64_t)brute_weight(g, e) * least[n->state[e]].part[i];
    }
    const int64_t cost = grow(n, b, root, wanted, 0, device);
    v->cost += cost;
    return cost < BRUTE_NEVER;
}

// What is chosen, with or without the device.
static void value_it(struct naive *n, bool device)
{
    const struct brute_graph *g = n->g;
    struct brute_value v = { .cost = 0 };
    if (device)
        v.cost = brute_share(g, g->profile.context_ns);
    for (unsigned m = 0; m < g->modules; m++) {
        const struct brute_module *node = &g->module[m];
        const struct brute_class *c = &node->option[n->option[m]];
        struct brute_caps in[BRUTE_PINS] = { 0 };
        for (unsigned e = 0; e < g->edges; e++)
            if (g->edge[e].to == m)
                in[g->edge[e].to_pin] = n->arrives[e];
        if (c->cuda && !device)
            return;
        v.cost += brute_module_cost(g, node, c, in, &n->out[m]);
        for (unsigned p = 0; p < node->outputs; p++)
            if (!add_tree(n, m, p, device, &v))
                return;
    }
    if (!n->found || brute_value_compare(&v, &n->best) < 0)
        n->best = v;
    n->found = true;
}

static bool try_module(struct naive *n, unsigned module);

// All states for the edges of a module from number `edge` on.
static bool try_edges(struct naive *n, unsigned module, unsigned edge)
{
    const struct brute_graph *g = n->g;
    while (edge < g->edges && g->edge[edge].from != module)
        edge++;
    if (edge == g->edges)
        return try_module(n, module + 1);
    const struct brute_board *b = &n->board[module][g->edge[edge].from_pin];
    const struct brute_module *to = &g->module[g->edge[edge].to];
    for (unsigned v = 0; v < b->states; v++) {
        bool taken = false;
        for (unsigned o = 0; o < to->options; o++)
            taken = taken || brute_takes(g, b, &to->option[o], v);
        if (!taken)
            continue;
        n->state[edge] = v;
        n->arrives[edge] = brute_state_caps(b, v);
        n->home[edge] = v / b->formats;
        if (!try_edges(n, module, edge + 1))
            return false;
    }
    return true;
}

// All homes for the outputs of a module from `pin` on.
static bool try_roots(struct naive *n, unsigned module, unsigned pin,
                      unsigned homes)
{
    const struct brute_graph *g = n->g;
    const struct brute_module *m = &g->module[module];
    const struct brute_class *c = &m->option[n->option[module]];
    if (pin == m->outputs)
        return try_edges(n, module, 0);
    const bool dmabuf = brute_wants_dmabuf(g, module, pin);
    const struct brute_birth birth =
        brute_birth(g, c, n->in_mask[module], homes, dmabuf);
    for (int h = 0; h < BRUTE_HOMES; h++) {
        if (!(birth.roots & 1u << h))
            continue;
        n->root[module][pin] = h;
        brute_board_make(g, &n->out[module], birth.pinnable, dmabuf,
                         &n->board[module][pin]);
        if (!try_roots(n, module, pin + 1, homes))
            return false;
    }
    return true;
}

static bool try_module(struct naive *n, unsigned module)
{
    const struct brute_graph *g = n->g;
    if (module == g->modules) {
        if (n->patience-- == 0)
            return false;
        value_it(n, false);
        value_it(n, true);
        return true;
    }
    const struct brute_module *m = &g->module[module];
    for (unsigned o = 0; o < m->options; o++) {
        struct brute_caps in[BRUTE_PINS] = { 0 };
        unsigned homes = 0;
        bool taken = true;
        for (unsigned e = 0; e < g->edges; e++) {
            if (g->edge[e].to != module)
                continue;
            const struct brute_edge *x = &g->edge[e];
            taken = taken && brute_takes(g, &n->board[x->from][x->from_pin],
                                         &m->option[o], n->state[e]);
            in[x->to_pin] = n->arrives[e];
            homes |= 1u << n->home[e];
        }
        if (!taken)
            continue;
        n->option[module] = o;
        n->in_mask[module] = in[0].mask;
        n->out[module] = brute_negotiate(&m->option[o], m, in);
        if (!n->out[module].mask)
            continue;
        if (!try_roots(n, module, 0, homes))
            return false;
    }
    return true;
}

enum brute_result brute_naive(const struct brute_graph *g,
                              struct brute_value *best)
{
    static struct naive n;
    n = (struct naive){ .g = g, .patience = 3000 };
    const bool whole = try_module(&n, 0);
    *best = n.best;
    return !whole ? BRUTE_TOO_LARGE : n.found ? BRUTE_FOUND : BRUTE_IMPOSSIBLE;
}
