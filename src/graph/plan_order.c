// The canonical order of a graph: ids break ties, so that the order of modules
// and connections in the file leaves no trace in the plan.

#include "planner.h"

#include <stdlib.h>
#include <string.h>

struct named {
    const char *id;
    uint32_t node;
};

static int by_id(const void *left, const void *right)
{
    const struct named *a = left, *b = right;
    return strcmp(a->id, b->id);
}

struct out_key {
    uint32_t pin, rank, to_pin, edge;
};

static int compare(uint32_t a, uint32_t b)
{
    return (a > b) - (a < b);
}

static int by_out_key(const void *left, const void *right)
{
    const struct out_key *a = left, *b = right;
    int c = compare(a->pin, b->pin);
    if (!c)
        c = compare(a->rank, b->rank);
    return c ? c : compare(a->to_pin, b->to_pin);
}

struct order {
    struct named *names;
    uint32_t *rank;  // of each node among the ids
    struct out_key *keys;
    uint32_t *left;  // edges of a node that are still to be followed
    uint32_t *stack;
    bool *seen, *fed;
};

static void order_finish(struct order *o)
{
    free(o->names);
    free(o->rank);
    free(o->keys);
    free(o->left);
    free(o->stack);
    free(o->seen);
    free(o->fed);
}

static bool order_init(struct order *o, uint32_t nodes, uint32_t edges)
{
    const size_t n = nodes ? nodes : 1, e = edges ? edges : 1;
    *o = (struct order){
        .names = calloc(n, sizeof(*o->names)),
        .rank = calloc(n, sizeof(*o->rank)),
        .keys = calloc(e, sizeof(*o->keys)),
        .left = calloc(n, sizeof(*o->left)),
        .stack = calloc(n, sizeof(*o->stack)),
        .seen = calloc(n, sizeof(*o->seen)),
        .fed = calloc(n, sizeof(*o->fed)),
    };
    return o->names && o->rank && o->keys && o->left && o->stack && o->seen &&
           o->fed;
}

// Edges by source in p->first and p->out, those of one node by output pin,
// then by the consumer's id.
static void sort_edges(struct stk_planner *p, struct order *o)
{
    const struct stk_graph *g = p->graph;
    for (uint32_t i = 0; i < g->node_count; i++) {
        o->names[i] = (struct named){ g->nodes[i].desc->id, i };
        if (strncmp(o->names[i].id, "_bridge_", strlen("_bridge_")) == 0)
            p->imitated = true;
    }
    qsort(o->names, g->node_count, sizeof(*o->names), by_id);
    for (uint32_t i = 0; i < g->node_count; i++)
        o->rank[o->names[i].node] = i;

    memset(p->first, 0, (g->node_count + 1) * sizeof(*p->first));
    for (uint32_t e = 0; e < g->edge_count; e++) {
        p->first[g->edges[e].from + 1]++;
        o->fed[g->edges[e].to] = true;
    }
    for (uint32_t i = 0; i < g->node_count; i++) {
        o->left[i] = p->first[i];
        p->first[i + 1] += p->first[i];
    }
    memcpy(o->left, p->first, g->node_count * sizeof(*o->left));
    for (uint32_t e = 0; e < g->edge_count; e++) {
        const struct stk_edge *edge = &g->edges[e];
        o->keys[o->left[edge->from]++] =
            (struct out_key){ edge->from_pin, o->rank[edge->to], edge->to_pin,
                              e };
    }
    for (uint32_t i = 0; i < g->node_count; i++) {
        const uint32_t begin = p->first[i], end = p->first[i + 1];
        if (end - begin > 1)
            qsort(o->keys + begin, end - begin, sizeof(*o->keys), by_out_key);
    }
    for (uint32_t e = 0; e < g->edge_count; e++)
        p->out[e] = o->keys[e].edge;
}

// Depth first, so that a chain stays together. Nodes are written from the end
// to the front when all that follows them has been written.
static void sort_nodes(const struct stk_planner *p, struct order *o)
{
    const struct stk_graph *g = p->graph;
    uint32_t place = g->node_count;
    for (uint32_t pass = 0; pass < 2; pass++)
        for (uint32_t r = g->node_count; r-- > 0;) {
            const uint32_t start = o->names[r].node;
            if (o->seen[start] || (pass == 0 && o->fed[start]))
                continue;
            uint32_t depth = 0;
            o->stack[depth++] = start;
            o->seen[start] = true;
            o->left[start] = p->first[start + 1];
            while (depth) {
                const uint32_t node = o->stack[depth - 1];
                if (o->left[node] == p->first[node]) {
                    p->sequence[--place] = node;
                    depth--;
                    continue;
                }
                const uint32_t edge = p->out[--o->left[node]];
                const uint32_t next = g->edges[edge].to;
                if (o->seen[next])
                    continue;
                o->seen[next] = true;
                o->left[next] = p->first[next + 1];
                o->stack[depth++] = next;
            }
        }
}

static int by_input(const struct stk_graph *g, uint32_t a, uint32_t b)
{
    return compare(g->edges[a].to_pin, g->edges[b].to_pin);
}

// Edges by consumer, those of one in the order of its pins.
static void sort_inputs(struct stk_planner *p)
{
    const struct stk_graph *g = p->graph;
    // Counted into the second next slot.
    for (uint32_t e = 0; e < g->edge_count; e++)
        p->first_in[g->edges[e].to + 2]++;
    for (uint32_t i = 2; i < g->node_count + 2; i++)
        p->first_in[i] += p->first_in[i - 1];
    for (uint32_t e = 0; e < g->edge_count; e++)
        p->in[p->first_in[g->edges[e].to + 1]++] = e;
    for (uint32_t n = 0; n < g->node_count; n++)
        for (uint32_t i = p->first_in[n] + 1; i < p->first_in[n + 1]; i++)
            for (uint32_t k = i;
                 k > p->first_in[n] && by_input(g, p->in[k - 1], p->in[k]) > 0;
                 k--) {
                const uint32_t swap = p->in[k];
                p->in[k] = p->in[k - 1];
                p->in[k - 1] = swap;
            }
}

enum pen_status stk_plan_order(struct stk_planner *p, struct pen_error *err)
{
    struct order order;
    const bool ok =
        order_init(&order, p->graph->node_count, p->graph->edge_count);
    if (ok) {
        sort_edges(p, &order);
        sort_nodes(p, &order);
        sort_inputs(p);
    }
    order_finish(&order);
    return ok ? PEN_OK : stk_plan_no_memory(err);
}
