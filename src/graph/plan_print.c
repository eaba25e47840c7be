// A plan as text for people: the chain from top to bottom, bridges marked with
// +, branches indented, then memory, transfers, cost and what is touched.

#include "planner.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum {
    MAX_ID_WIDTH = 32,  // wider ids push their line, not the whole column
    MAX_PROPS_WIDTH = 110,
    MAX_BRANCHES = 16,  // deeper ones are not indented any further
};

// --- words ------------------------------------------------------------------

void stk_plan_caps_text(const struct pen_caps *caps, char *text, size_t size)
{
    if (caps->kind != PEN_KIND_RAW_IMAGE || caps->format != PEN_FMT_NONE) {
        pen_caps_text(caps, text, size);
        return;
    }
    char formats[160], extent[32] = "?x?", colour[32] = "";
    stk_mask_text(caps->formats, formats, sizeof(formats));
    if (caps->width > 0 && caps->height > 0)
        snprintf(extent, sizeof(extent), "%dx%d", caps->width, caps->height);
    if (caps->matrix != PEN_MATRIX_UNKNOWN || caps->range != PEN_RANGE_UNKNOWN)
        snprintf(colour, sizeof(colour), " %s %s",
                 pen_matrix_name(caps->matrix), pen_range_name(caps->range));
    snprintf(text, size, "%s %s%s", formats, extent, colour);
}

void stk_plan_bytes_text(uint64_t bytes, char *text, size_t size)
{
    if (bytes == 0)
        snprintf(text, size, "?");
    else
        stk_format_size(bytes, text, size);
}

static void cost_text(int64_t ns, char *text, size_t size)
{
    if (ns < 1000000)
        snprintf(text, size, "%" PRId64 ".%01" PRId64 " us", ns / 1000,
                 ns % 1000 / 100);
    else
        snprintf(text, size, "%" PRId64 ".%02" PRId64 " ms", ns / 1000000,
                 ns % 1000000 / 10000);
}

static bool is_default(const struct pen_prop *row, const void *params)
{
    const char *at = (const char *)params + row->offset;
    switch (row->kind) {
    case PEN_PROP_BOOL:
        return *(const bool *)at == row->def.b;
    case PEN_PROP_I32:
    case PEN_PROP_ENUM:
        return *(const int32_t *)at == row->def.i;
    case PEN_PROP_F64:
        return *(const double *)at == row->def.f;
    case PEN_PROP_STRING:
        return !strcmp(*(const char *const *)at, row->def.s ? row->def.s : "");
    case PEN_PROP_RATIONAL: {
        const struct pen_rational *r = (const void *)at;
        return r->num == row->def.r.num && r->den == row->def.r.den;
    }
    case PEN_PROP_END:
        break;
    }
    return true;
}

bool stk_plan_props_text(struct stk_text *t, const struct pen_plan *plan,
                         const struct stk_plan_node *node, size_t limit)
{
    const size_t start = t->length;
    for (const struct pen_prop *row = node->cls->props; row && row->kind;
         row++) {
        // What a bridge is set to is told, whatever the default is.
        const bool tell =
            (row->flags & PEN_PROP_REQUIRED) ||
            (node->inserted && !strcmp(row->key, "imageType")) ||
            (stk_node_transfer(plan, node) && !strcmp(row->key, "kind"));
        if (!tell && is_default(row, node->params))
            continue;
        json_t *value = stk_prop_get_json(row, node->params);
        char *dump = value ? stk_json_dump(value) : NULL;
        json_decref(value);
        if (!dump)
            return false;
        const size_t more = strlen(row->key) + strlen(dump) + 2;
        if (t->length - start + more > limit) {
            free(dump);
            stk_text_add(t, " ...");
            return true;
        }
        stk_text_addf(t, " %s=%s", row->key, dump);
        free(dump);
    }
    return true;
}

// --- the chain --------------------------------------------------------------

struct branch {
    uint32_t next, end;  // edges still to be drawn
    size_t prefix;       // length of the prefix of their node
};

struct printer {
    const struct pen_plan *plan;
    struct stk_text *out;
    struct stk_text prefix;
    int id_width;
    uint32_t *waiting;  // edges into each node that were not yet drawn
    struct branch *stack;
    uint32_t depth;
    bool failed;
};

static void print_node(struct printer *p, uint32_t number)
{
    const struct stk_plan_node *node = &p->plan->nodes[number];
    const char *prefix = p->prefix.length ? p->prefix.data : "";
    stk_text_addf(p->out, "%s%s", node->inserted ? "  + " : "    ", prefix);
    stk_text_add_plain(p->out, node->id);
    const int pad = p->id_width - (int)strlen(node->id);
    stk_text_addf(p->out, "%*s  %s", pad > 0 ? pad : 0, "", node->type);
    if (!stk_plan_props_text(p->out, p->plan, node, MAX_PROPS_WIDTH))
        p->failed = true;
    if (node->cost_ns) {
        char cost[32];
        cost_text(node->cost_ns, cost, sizeof(cost));
        stk_text_addf(p->out, "  (%s)", cost);
    }
    stk_text_add(p->out, "\n");
    if (!node->inserted)
        return;
    stk_text_addf(p->out, "    %s|     why: ", prefix);
    stk_text_add_plain(p->out, node->reason);
    stk_text_add(p->out, "\n");
    if (node->loss[0])
        stk_text_addf(p->out, "    %s|     loses: %s\n", prefix, node->loss);
}

enum way { WAY_DOWN, WAY_BRANCH, WAY_LAST };

// Of a branch it is told where it leads; else that is the next line.
static void print_edge(struct printer *p, uint32_t number, enum way way)
{
    static const char *const policies[] = { "", ", drop_newest",
                                            ", drop_oldest" };
    const struct stk_plan_edge *e = &p->plan->edges[number];
    const struct stk_plan_node *from = &p->plan->nodes[e->from];
    const struct stk_plan_node *node = &p->plan->nodes[e->to];
    const struct stk_plan_output *o = &from->output[e->from_pin];
    char caps[256], bytes[32];
    stk_plan_caps_text(&e->caps, caps, sizeof(caps));
    stk_plan_bytes_text(o->block_bytes, bytes, sizeof(bytes));
    static const char *const ways[] = { "|  ", "|-- ", "`-- " };
    stk_text_addf(p->out, "    %s%s", p->prefix.length ? p->prefix.data : "",
                  ways[way]);
    if (from->outputs > 1)
        stk_text_addf(p->out, "%s: ", from->cls->outputs[e->from_pin].name);
    const char *how = stk_edge_how(p->plan, e);
    stk_text_addf(p->out, "%s  %s  %s  depth %u%s",
                  stk_home_text(stk_edge_home(e)), caps, bytes, e->depth,
                  policies[e->policy]);
    const bool first = number == p->plan->first_out[e->from] ||
                       p->plan->edges[number - 1].from_pin != e->from_pin;
    if (first && o->blocks)
        stk_text_addf(p->out, "  pool %u", o->blocks);
    if (first && o->upgraded_from)
        stk_text_addf(p->out, "  (upgraded from %s)",
                      pen_mem_name(o->upgraded_from));
    if (*how)
        stk_text_addf(p->out, "  %s", how);
    if (way != WAY_DOWN || node->inputs > 1) {
        stk_text_add(p->out, "  -> ");
        stk_text_add_plain(p->out, node->id);
        stk_text_addf(p->out, ".%s", node->cls->inputs[e->to_pin].name);
    }
    stk_text_add(p->out, "\n");
}

// Draw from a source: down the first branch, then back for the others. A node
// with several inputs is drawn below the last of them.
static void print_from(struct printer *p, uint32_t number)
{
    const struct pen_plan *plan = p->plan;
    for (;;) {
        print_node(p, number);
        const uint32_t begin = plan->first_out[number];
        const uint32_t end = plan->first_out[number + 1];
        if (end > begin)
            p->stack[p->depth++] =
                (struct branch){ begin, end, p->prefix.length };
        for (;;) {
            if (p->depth == 0)
                return;
            struct branch *b = &p->stack[p->depth - 1];
            if (b->next == b->end) {
                p->depth--;
                continue;
            }
            const uint32_t e = b->next++;
            const uint32_t first = plan->first_out[plan->edges[e].from];
            const bool alone = b->end - first == 1;
            const bool more = b->next < b->end;
            p->prefix.length = b->prefix;
            if (p->prefix.data)
                p->prefix.data[b->prefix] = '\0';
            print_edge(p, e, alone ? WAY_DOWN : more ? WAY_BRANCH : WAY_LAST);
            number = plan->edges[e].to;
            if (!alone && b->prefix < 4 * MAX_BRANCHES)
                stk_text_add(&p->prefix, more ? "|   " : "    ");
            if (--p->waiting[number] == 0)
                break;
        }
    }
}

static void print_chain(struct printer *p)
{
    const struct pen_plan *plan = p->plan;
    for (uint32_t n = 0; n < plan->node_count; n++) {
        const int width = (int)strlen(plan->nodes[n].id);
        if (width > p->id_width && width <= MAX_ID_WIDTH)
            p->id_width = width;
    }
    for (uint32_t e = 0; e < plan->edge_count; e++)
        p->waiting[plan->edges[e].to]++;
    for (uint32_t n = 0; n < plan->node_count; n++) {
        bool fed = false;
        for (uint32_t i = 0; i < plan->nodes[n].inputs; i++)
            fed = fed || plan->nodes[n].in_edge[i] >= 0;
        if (fed)
            continue;
        p->prefix.length = 0;
        if (p->prefix.data)
            p->prefix.data[0] = '\0';
        stk_text_add(p->out, "\n");
        print_from(p, n);
    }
}

// --- totals -----------------------------------------------------------------

// Whether some pool of that type has no size yet.
bool stk_plan_unknown(const struct pen_plan *plan, enum pen_mem_type mem)
{
    if (plan->unknown == 0)
        return false;
    for (uint32_t n = 0; n < plan->node_count; n++)
        for (uint32_t o = 0; o < plan->nodes[n].outputs; o++) {
            const struct stk_plan_output *out = &plan->nodes[n].output[o];
            if (stk_home_account(stk_output_home(out)) == mem && out->blocks &&
                out->block_bytes == 0)
                return true;
        }
    return false;
}

static void print_memory(const struct pen_plan *plan, struct stk_text *t)
{
    const char *gap = "";
    stk_text_add(t, "\nmemory     ");
    for (unsigned m = PEN_MEM_HOST; m < PEN_MEM_COUNT; m++) {
        const enum pen_mem_type mem = (enum pen_mem_type)m;
        const bool unknown = stk_plan_unknown(plan, mem);
        char peak[32], budget[32];
        if (plan->peak[m] == 0 && !unknown)
            continue;
        stk_format_size(plan->peak[m], peak, sizeof(peak));
        stk_format_size(plan->budget[m], budget, sizeof(budget));
        stk_text_addf(t, "%s%s ", gap, pen_mem_name(mem));
        if (plan->peak[m])
            stk_text_add(t, peak);
        if (unknown)
            stk_text_add(t, plan->peak[m] ? " + ?" : "?");
        if (plan->budget[m])
            stk_text_addf(t, " of %s", budget);
        gap = ", ";
    }
    stk_text_add(t, *gap ? "\n" : "none\n");
}

static void print_moves(struct stk_text *t, uint32_t count, uint64_t bytes,
                        bool known, const char *gap, const char *where)
{
    char text[32];
    stk_plan_bytes_text(known ? bytes : 0, text, sizeof(text));
    stk_text_addf(t, "%s%u %s", gap, count, where);
    if (count)
        stk_text_addf(t, " (%s)", text);
}

static void print_transfers(const struct pen_plan *plan, struct stk_text *t)
{
    const bool known = plan->unknown == 0;
    stk_text_add(t, "transfers  ");
    if (!plan->h2d_per_frame && !plan->d2h_per_frame && !plan->h2h_per_frame) {
        stk_text_add(t, "none\n");
        return;
    }
    print_moves(t, plan->h2d_per_frame, plan->h2d_bytes_per_frame, known, "",
                "to the device");
    print_moves(t, plan->d2h_per_frame, plan->d2h_bytes_per_frame, known, ", ",
                "to the host");
    if (plan->h2h_per_frame)
        print_moves(t, plan->h2h_per_frame, plan->h2h_bytes_per_frame, known,
                    ", ", "on the host");
    stk_text_add(t, " per frame\n");
}

// Paths that are read, or written, after a word that says so.
static const char *print_paths(const struct pen_plan *plan, struct stk_text *t,
                               unsigned flag, const char *word, const char *gap)
{
    enum { TOLD = 16 };
    uint32_t count = 0;
    for (uint32_t i = 0; i < plan->path_count; i++) {
        if (!(plan->path_flags[i] & flag))
            continue;
        if (count == 0)
            stk_text_addf(t, "%s%s", gap, word);
        if (count < TOLD) {
            stk_text_add(t, count ? ", " : " ");
            stk_text_add_plain(t, plan->paths[i]);
        }
        count++;
    }
    if (count > TOLD)
        stk_text_addf(t, " and %u more", count - TOLD);
    return count ? "; " : gap;
}

static void print_touches(const struct pen_plan *plan, struct stk_text *t)
{
    const char *gap = "";
    stk_text_add(t, "touches    ");
    gap = print_paths(plan, t, PEN_PROP_PATH_READ, "reads", gap);
    gap = print_paths(plan, t, PEN_PROP_PATH_WRITE, "writes", gap);
    if (plan->needs_device) {
        stk_text_addf(t, "%sdevice ", gap);
        stk_text_add_plain(t, stk_plan_device(plan));
    }
    stk_text_add(t, *gap || plan->needs_device ? "\n" : "nothing\n");
}

const char *stk_plan_device(const struct pen_plan *plan)
{
    return plan->desc && plan->desc->device ? plan->desc->device : "auto";
}

static void print_head(const struct pen_plan *plan, struct stk_text *t)
{
    uint32_t bridges = 0;
    for (uint32_t n = 0; n < plan->node_count; n++)
        bridges += plan->nodes[n].inserted;
    const uint32_t modules = plan->node_count - bridges;
    const char *name = plan->desc ? plan->desc->name : NULL;
    stk_text_add(t, "plan");
    if (name && *name) {
        stk_text_add(t, " \"");
        stk_text_add_plain(t, name);
        stk_text_add(t, "\"");
    }
    stk_text_addf(t, ": %u module%s, %u bridge%s, profile ", modules,
                  modules == 1 ? "" : "s", bridges, bridges == 1 ? "" : "s");
    stk_text_add_plain(t, plan->profile.name);
    stk_text_add(t, plan->optimal ? ", optimal" : ", optimum not proven");
    if (plan->provisional)
        stk_text_add(t, ", provisional (? is known at the first frame)");
    stk_text_add(t, "\n");
}

char *pen_plan_text(const struct pen_plan *plan)
{
    struct stk_text t = { 0 };
    struct printer p = {
        .plan = plan,
        .out = &t,
        .waiting = calloc((size_t)plan->node_count + 1, sizeof(uint32_t)),
        .stack = calloc((size_t)plan->node_count + 1, sizeof(*p.stack)),
    };
    print_head(plan, &t);
    if (p.waiting && p.stack)
        print_chain(&p);
    else
        p.failed = true;
    print_memory(plan, &t);
    print_transfers(plan, &t);
    char cost[32] = "?";
    if (plan->unknown == 0)
        cost_text(plan->cost_ns, cost, sizeof(cost));
    stk_text_addf(&t, "cost       %s per frame\n", cost);
    if (plan->frames)
        stk_text_addf(&t, "frames     %" PRIu64 " expected\n", plan->frames);
    print_touches(plan, &t);
    free(p.waiting);
    free(p.stack);
    const bool failed = p.failed || p.prefix.failed;
    stk_text_finish(&p.prefix);
    char *text = stk_text_take(&t);
    if (failed) {
        free(text);
        return NULL;
    }
    return text;
}
