// The modules of a plan from top to bottom: bridges marked with +, branches
// indented, and what flows between two modules on a line of its own. Columns
// stand below each other over the whole plan.

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "plan_print.h"

enum {
    MAX_ID_WIDTH = 48,  // wider cells push their line, not the whole column
    MAX_LEAD = 24,
    MAX_CELL = 28,
    MAX_PROPS_WIDTH = 110,
    MAX_BRANCHES = 16,  // deeper ones are not indented any further
    MARK = 4,           // columns in front of everything
};

struct branch {
    uint32_t next, end;  // edges still to be drawn
    size_t prefix;       // length of the prefix of their node
};

// What stands in the columns of an edge.
struct edge_cells {
    char pin[64], format[160], extent[40], colour[32], bytes[32], pitch[32];
    char rate[40], depth[48], pool[32];
    const char *mem;
};

struct widths {
    size_t id, type, cost;
    size_t lead, pin, mem, format, extent, colour, bytes, pitch, rate, depth,
        pool;
};

// The chain is walked twice: to measure the columns, then to print.
struct chain {
    const struct pen_plan *plan;
    struct stk_cells cells;
    struct stk_text prefix;
    struct widths w;
    uint32_t *waiting;  // edges into each node that were not yet drawn
    struct branch *stack;
    uint32_t depth;
    bool measuring, failed;
};

static const char *prefix_of(const struct chain *c)
{
    return c->prefix.length ? c->prefix.data : "";
}

static void widen(size_t *width, const char *text, size_t more, size_t limit)
{
    const size_t columns = stk_text_columns(text) + more;
    if (columns > *width && columns <= limit)
        *width = columns;
}

// --- modules ----------------------------------------------------------------

static void print_remark(struct chain *c, uint32_t number, const char *word,
                         const char *text, enum stk_paint paint)
{
    const struct pen_plan *plan = c->plan;
    const bool leads = plan->first_out[number] < plan->first_out[number + 1];
    stk_cells_left(&c->cells, "", MARK, 0, STK_PAINT_NONE);
    stk_cells_add(&c->cells, prefix_of(c), STK_PAINT_NONE);
    stk_cells_left(&c->cells, leads ? "|" : "", 6, 0, STK_PAINT_NONE);
    stk_cells_left(&c->cells, word, 0, 1, paint);
    stk_cells_add(&c->cells, text, paint);
    stk_cells_end(&c->cells);
}

static void print_node(struct chain *c, uint32_t number)
{
    const struct stk_plan_node *node = &c->plan->nodes[number];
    char type[160], cost[32] = "";
    stk_plan_type_text(node, type, sizeof(type));
    if (node->cost_ns)
        stk_plan_cost_text(node->cost_ns, cost, sizeof(cost));
    if (c->measuring) {
        widen(&c->w.id, node->id, c->prefix.length, MAX_ID_WIDTH);
        widen(&c->w.type, type, 0, MAX_CELL);
        widen(&c->w.cost, cost, 0, MAX_CELL);
        return;
    }
    struct stk_text props = { 0 };
    if (!stk_plan_props_text(&props, c->plan, node, MAX_PROPS_WIDTH))
        c->failed = true;
    const size_t room =
        c->w.id > c->prefix.length ? c->w.id - c->prefix.length : 0;
    const enum stk_paint paint =
        node->inserted ? STK_PAINT_BRIDGE : STK_PAINT_TITLE;
    stk_cells_left(&c->cells, node->inserted ? "  +" : "", MARK, 0, paint);
    stk_cells_add(&c->cells, prefix_of(c), STK_PAINT_NONE);
    stk_cells_left(&c->cells, node->id, room, 2, paint);
    stk_cells_left(&c->cells, type, c->w.type, 2, STK_PAINT_NONE);
    stk_cells_right(&c->cells, cost, c->w.cost, 2, STK_PAINT_NONE);
    stk_cells_add(&c->cells, props.length ? props.data + 1 : "",
                  STK_PAINT_NONE);
    stk_cells_end(&c->cells);
    c->failed = c->failed || props.failed;
    stk_text_finish(&props);
    if (node->inserted)
        print_remark(c, number, "why:", node->reason, STK_PAINT_QUIET);
    else if (node->choice[0])
        print_remark(c, number, "why:", node->choice, STK_PAINT_QUIET);
    if (node->loss[0])
        print_remark(c, number, "loses:", node->loss, STK_PAINT_LOSS);
}

// --- edges ------------------------------------------------------------------

static bool first_of_pin(const struct pen_plan *plan, uint32_t number)
{
    const struct stk_plan_edge *e = &plan->edges[number];
    return number == plan->first_out[e->from] ||
           plan->edges[number - 1].from_pin != e->from_pin;
}

static void fill_cells(const struct pen_plan *plan, uint32_t number,
                       struct edge_cells *c)
{
    static const char *const policies[] = { "", ", drop_newest",
                                            ", drop_oldest" };
    const struct stk_plan_edge *e = &plan->edges[number];
    const struct stk_plan_node *from = &plan->nodes[e->from];
    const struct stk_plan_output *o = &from->output[e->from_pin];
    struct pen_layout layout;
    *c = (struct edge_cells){ .mem = stk_home_text(stk_edge_home(e)) };
    if (from->outputs > 1)
        snprintf(c->pin, sizeof(c->pin),
                 "%s:", from->cls->outputs[e->from_pin].name);
    stk_plan_format_text(&e->caps, c->format, sizeof(c->format));
    stk_plan_extent_text(&e->caps, c->extent, sizeof(c->extent));
    stk_plan_colour_text(&e->caps, c->colour, sizeof(c->colour));
    stk_plan_rate_text(&e->caps, c->rate, sizeof(c->rate));
    stk_plan_bytes_text(o->block_bytes, c->bytes, sizeof(c->bytes));
    if (stk_plan_layout(&e->caps, &layout))
        snprintf(c->pitch, sizeof(c->pitch), "pitch %zu",
                 layout.plane[0].pitch);
    snprintf(c->depth, sizeof(c->depth), "depth %u%s", e->depth,
             policies[e->policy]);
    if (first_of_pin(plan, number) && o->blocks)
        snprintf(c->pool, sizeof(c->pool), "pool %u", o->blocks);
}

static void measure_edge(struct chain *c, const struct edge_cells *e)
{
    struct widths *w = &c->w;
    widen(&w->pin, e->pin, 0, MAX_CELL);
    widen(&w->mem, e->mem, 0, MAX_CELL);
    widen(&w->format, e->format, 0, MAX_CELL);
    widen(&w->extent, e->extent, 0, MAX_CELL);
    widen(&w->colour, e->colour, 0, MAX_CELL);
    widen(&w->bytes, e->bytes, 0, MAX_CELL);
    widen(&w->pitch, e->pitch, 0, MAX_CELL);
    widen(&w->rate, e->rate, 0, MAX_CELL);
    widen(&w->depth, e->depth, 0, MAX_CELL);
    widen(&w->pool, e->pool, 0, MAX_CELL);
}

enum way { WAY_DOWN, WAY_BRANCH, WAY_LAST };

// The line that leads from the module to the words, which begin in one column.
static void print_lead(struct chain *c, enum way way)
{
    static const char *const ways[] = { "|", "|--", "`--" };
    struct stk_text lead = { 0 };
    stk_text_add(&lead, prefix_of(c));
    stk_text_add(&lead, ways[way]);
    while (way != WAY_DOWN && !lead.failed && lead.length + 1 < c->w.lead)
        stk_text_add(&lead, "-");
    stk_cells_left(&c->cells, "", MARK, 0, STK_PAINT_NONE);
    stk_cells_left(&c->cells, lead.data ? lead.data : "",
                   c->w.lead > 1 ? c->w.lead - 1 : 0, 1, STK_PAINT_NONE);
    c->failed = c->failed || lead.failed;
    stk_text_finish(&lead);
}

// Of a branch it is told where it leads; else that is the next line.
static void print_target(struct chain *c, const struct stk_plan_edge *e)
{
    const struct stk_plan_node *node = &c->plan->nodes[e->to];
    stk_cells_left(&c->cells, "->", 0, 1, STK_PAINT_NONE);
    stk_cells_add(&c->cells, node->id, STK_PAINT_NONE);
    stk_cells_add(&c->cells, ".", STK_PAINT_NONE);
    stk_cells_add(&c->cells, node->cls->inputs[e->to_pin].name, STK_PAINT_NONE);
}

static void print_edge(struct chain *c, uint32_t number, enum way way)
{
    const struct stk_plan_edge *e = &c->plan->edges[number];
    const struct stk_plan_output *o =
        &c->plan->nodes[e->from].output[e->from_pin];
    struct stk_cells *cells = &c->cells;
    const struct widths *w = &c->w;
    struct edge_cells text;
    fill_cells(c->plan, number, &text);
    if (c->measuring) {
        widen(&c->w.lead, "", c->prefix.length + (way == WAY_DOWN ? 3 : 4),
              MAX_LEAD);
        measure_edge(c, &text);
        return;
    }
    print_lead(c, way);
    stk_cells_left(cells, text.pin, w->pin, 1, STK_PAINT_NONE);
    stk_cells_left(cells, text.mem, w->mem, 2, (enum stk_paint)e->mem);
    stk_cells_left(cells, text.format, w->format, 1, STK_PAINT_NONE);
    stk_cells_left(cells, text.extent, w->extent, 2, STK_PAINT_NONE);
    stk_cells_left(cells, text.colour, w->colour, 2, STK_PAINT_NONE);
    stk_cells_left(cells, text.rate, w->rate, 2, STK_PAINT_NONE);
    stk_cells_right(cells, text.bytes, w->bytes, 2, STK_PAINT_NONE);
    stk_cells_left(cells, text.pitch, w->pitch, 2, STK_PAINT_NONE);
    stk_cells_left(cells, text.depth, w->depth, 2, STK_PAINT_NONE);
    stk_cells_left(cells, text.pool, w->pool, 2, STK_PAINT_NONE);
    if (*text.pool && o->upgraded_from) {
        char upgrade[64];
        snprintf(upgrade, sizeof(upgrade), "(upgraded from %s)",
                 pen_mem_name(o->upgraded_from));
        stk_cells_left(cells, upgrade, 0, 2, STK_PAINT_NONE);
    }
    stk_cells_left(cells, stk_edge_how(c->plan, e), 0, 2, STK_PAINT_NONE);
    if (way != WAY_DOWN || c->plan->nodes[e->to].inputs > 1)
        print_target(c, e);
    stk_cells_end(cells);
}

// --- the walk ---------------------------------------------------------------

static void cut_prefix(struct chain *c, size_t length)
{
    c->prefix.length = length;
    if (c->prefix.data)
        c->prefix.data[length] = '\0';
}

// Go from a source down the first branch, then back for the others. A node
// with several inputs is drawn below the last of them.
static void walk_from(struct chain *c, uint32_t number)
{
    const struct pen_plan *plan = c->plan;
    for (;;) {
        print_node(c, number);
        const uint32_t begin = plan->first_out[number];
        const uint32_t end = plan->first_out[number + 1];
        if (end > begin)
            c->stack[c->depth++] =
                (struct branch){ begin, end, c->prefix.length };
        for (;;) {
            if (c->depth == 0)
                return;
            struct branch *b = &c->stack[c->depth - 1];
            if (b->next == b->end) {
                c->depth--;
                continue;
            }
            const uint32_t e = b->next++;
            const uint32_t first = plan->first_out[plan->edges[e].from];
            const bool alone = b->end - first == 1;
            const bool more = b->next < b->end;
            cut_prefix(c, b->prefix);
            print_edge(c, e, alone ? WAY_DOWN : more ? WAY_BRANCH : WAY_LAST);
            number = plan->edges[e].to;
            if (!alone && b->prefix < 4 * MAX_BRANCHES)
                stk_text_add(&c->prefix, more ? "|   " : "    ");
            if (--c->waiting[number] == 0)
                break;
        }
    }
}

static void walk(struct chain *c)
{
    const struct pen_plan *plan = c->plan;
    for (uint32_t e = 0; e < plan->edge_count; e++)
        c->waiting[plan->edges[e].to]++;
    for (uint32_t n = 0; n < plan->node_count; n++) {
        bool fed = false;
        for (uint32_t i = 0; i < plan->nodes[n].inputs; i++)
            fed = fed || plan->nodes[n].in_edge[i] >= 0;
        if (fed)
            continue;
        cut_prefix(c, 0);
        if (!c->measuring)
            stk_cells_end(&c->cells);
        walk_from(c, n);
    }
}

bool stk_plan_chain(const struct pen_plan *plan, struct stk_text *t,
                    bool colour)
{
    struct chain c = {
        .plan = plan,
        .cells = { .t = t, .colour = colour },
        .waiting = calloc((size_t)plan->node_count + 1, sizeof(uint32_t)),
        .stack = calloc((size_t)plan->node_count + 1, sizeof(*c.stack)),
        .measuring = true,
    };
    const bool ok = c.waiting && c.stack;
    if (ok)
        walk(&c);
    c.measuring = false;
    if (ok && !c.prefix.failed)
        walk(&c);
    free(c.waiting);
    free(c.stack);
    const bool failed = !ok || c.failed || c.prefix.failed;
    stk_text_finish(&c.prefix);
    return !failed;
}
