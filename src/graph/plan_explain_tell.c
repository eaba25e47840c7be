// An explanation as text for people and as JSON.

#include "plan_explain.h"
#include "plan_print.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const struct stk_plan_output *output_of(const struct pen_plan *plan,
                                               uint32_t edge)
{
    const struct stk_plan_edge *e = &plan->edges[edge];
    return &plan->nodes[e->from].output[e->from_pin];
}

static bool is_alternative(const struct stk_answer *a)
{
    return a->kind == STK_ASK_STEP || a->kind == STK_ASK_CLASS;
}

static bool removes(const struct stk_answer *a)
{
    return !is_alternative(a) && !*a->refused && a->bridges < a->before;
}

// --- text --------------------------------------------------------------------

struct teller {
    const struct stk_explain *ex;
    struct stk_cells cells;
    const char *about;  // "~" in front of what is reckoned with invented sizes
    bool failed;
};

// A line, indented by `depth` steps: a word in a column, and what it is.
static void line(struct teller *t, unsigned depth, const char *word,
                 size_t width, const char *text, enum stk_paint paint)
{
    stk_cells_left(&t->cells, "", (size_t)4 + 2 * depth, 0, STK_PAINT_NONE);
    stk_cells_left(&t->cells, word, width, word[0] ? 1 : 0, STK_PAINT_QUIET);
    stk_cells_add(&t->cells, text, paint);
    stk_cells_end(&t->cells);
}

static void title(struct teller *t, const char *text)
{
    stk_cells_end(&t->cells);
    stk_cells_add(&t->cells, text, STK_PAINT_TITLE);
    stk_cells_end(&t->cells);
}

// The same with what was built in `text`, which is {0} afterwards.
static void built_line(struct teller *t, unsigned depth, const char *word,
                       size_t width, struct stk_text *text,
                       enum stk_paint paint)
{
    t->failed = t->failed || text->failed;
    line(t, depth, word, width, text->data ? text->data : "", paint);
    stk_text_finish(text);
}

static void add_time(struct stk_text *t, int64_t ns, bool known)
{
    char text[40];
    stk_plan_cost_text(ns, text, sizeof(text));
    stk_text_add(t, known ? text : "?");
}

// --- the way as text ---------------------------------------------------------

enum { MOST = 48, PROPS = 110 };  // wider cells push their line

struct way_cells {
    char format[160], extent[40], colour[32], bytes[40];
};
struct way_widths {
    size_t id, type, cost, mem, format, extent, colour, bytes;
};

static void widen(size_t *width, const char *text)
{
    const size_t columns = stk_text_columns(text);
    if (columns > *width && columns <= MOST)
        *width = columns;
}

static void fill_cells(const struct teller *t, uint32_t edge,
                       struct way_cells *c)
{
    const struct stk_plan_edge *e = &t->ex->plan->edges[edge];
    const bool known = output_of(t->ex->plan, edge)->block_bytes != 0;
    char bytes[32];
    stk_plan_format_text(&e->caps, c->format, sizeof(c->format));
    stk_plan_extent_text(&e->caps, c->extent, sizeof(c->extent));
    stk_plan_colour_text(&e->caps, c->colour, sizeof(c->colour));
    stk_plan_bytes_text(output_of(t->ex->base, edge)->block_bytes, bytes,
                        sizeof(bytes));
    snprintf(c->bytes, sizeof(c->bytes), "%s%s", known ? "" : "~", bytes);
}

static void cost_cell(const struct teller *t, uint32_t node, char *text,
                      size_t size)
{
    char cost[40];
    const int64_t ns = t->ex->base->nodes[node].cost_ns;
    stk_plan_cost_text(ns, cost, sizeof(cost));
    snprintf(text, size, "%s%s", ns ? t->about : "", ns ? cost : "");
}

static void measure_node(const struct teller *t, uint32_t number,
                         struct way_widths *w)
{
    const struct stk_plan_node *node = &t->ex->plan->nodes[number];
    char type[160], cost[48];
    stk_plan_type_text(node, type, sizeof(type));
    cost_cell(t, number, cost, sizeof(cost));
    widen(&w->id, node->id);
    widen(&w->type, type);
    widen(&w->cost, cost);
}

static void tell_node(struct teller *t, uint32_t number,
                      const struct way_widths *w)
{
    const struct stk_plan_node *node = &t->ex->plan->nodes[number];
    const enum stk_paint paint =
        node->inserted ? STK_PAINT_BRIDGE : STK_PAINT_TITLE;
    struct stk_text props = { 0 };
    char type[160], cost[48];
    stk_plan_type_text(node, type, sizeof(type));
    cost_cell(t, number, cost, sizeof(cost));
    if (!stk_plan_props_text(&props, t->ex->plan, node, PROPS))
        t->failed = true;
    stk_cells_left(&t->cells, node->inserted ? "  +" : "", 4, 0, paint);
    stk_cells_left(&t->cells, node->id, w->id, 2, paint);
    stk_cells_left(&t->cells, type, w->type, 2, STK_PAINT_NONE);
    stk_cells_right(&t->cells, cost, w->cost, 2, STK_PAINT_NONE);
    stk_cells_add(&t->cells, props.length ? props.data + 1 : "",
                  STK_PAINT_NONE);
    stk_cells_end(&t->cells);
    t->failed = t->failed || props.failed;
    stk_text_finish(&props);
}

static void tell_edge(struct teller *t, uint32_t edge,
                      const struct way_widths *w)
{
    const struct stk_plan_edge *e = &t->ex->plan->edges[edge];
    const struct stk_plan_output *o = output_of(t->ex->plan, edge);
    struct way_cells c;
    fill_cells(t, edge, &c);
    stk_cells_left(&t->cells, "", 4, 0, STK_PAINT_NONE);
    stk_cells_left(&t->cells, "|", 1, 2, STK_PAINT_NONE);
    stk_cells_left(&t->cells, stk_home_text(stk_edge_home(e)), w->mem, 2,
                   (enum stk_paint)e->mem);
    stk_cells_left(&t->cells, c.format, w->format, 1, STK_PAINT_NONE);
    stk_cells_left(&t->cells, c.extent, w->extent, 2, STK_PAINT_NONE);
    stk_cells_left(&t->cells, c.colour, w->colour, 2, STK_PAINT_NONE);
    stk_cells_right(&t->cells, c.bytes, w->bytes, 2, STK_PAINT_NONE);
    if (o->upgraded_from) {
        char upgrade[64];
        snprintf(upgrade, sizeof(upgrade), "(upgraded from %s)",
                 pen_mem_name(o->upgraded_from));
        stk_cells_left(&t->cells, upgrade, 0, 2, STK_PAINT_NONE);
    }
    stk_cells_add(&t->cells, stk_edge_how(t->ex->plan, e), STK_PAINT_NONE);
    stk_cells_end(&t->cells);
}

static void tell_way(struct teller *t)
{
    const struct stk_route *way = &t->ex->way;
    const uint32_t last = way->links[way->link_count - 1].to;
    struct way_widths w = { 0 };
    for (uint32_t k = 0; k < way->edge_count; k++) {
        const struct stk_plan_edge *e = &t->ex->plan->edges[way->edges[k]];
        struct way_cells c;
        fill_cells(t, way->edges[k], &c);
        measure_node(t, e->from, &w);
        widen(&w.mem, stk_home_text(stk_edge_home(e)));
        widen(&w.format, c.format);
        widen(&w.extent, c.extent);
        widen(&w.colour, c.colour);
        widen(&w.bytes, c.bytes);
    }
    measure_node(t, last, &w);
    stk_cells_end(&t->cells);
    for (uint32_t k = 0; k < way->edge_count; k++) {
        tell_node(t, t->ex->plan->edges[way->edges[k]].from, &w);
        tell_edge(t, way->edges[k], &w);
    }
    tell_node(t, last, &w);
}

// --- the bridges as text -----------------------------------------------------

enum { WORD = 9 };  // columns of "forced by"

static void tell_view(struct teller *t, const struct stk_view *view,
                      const char *word)
{
    struct stk_text text = { 0 };
    stk_text_addf(&text, "%s %s %s", view->pin, word, view->mems);
    if (*view->by_mem)
        stk_text_addf(&text, " (by `%s`)", view->by_mem);
    if (*view->formats)
        stk_text_addf(&text, " of %s", view->formats);
    if (*view->formats && *view->by_fmt)
        stk_text_addf(&text, " (by `%s`)", view->by_fmt);
    built_line(t, 0, "", 0, &text, STK_PAINT_NONE);
}

static void tell_cost(struct teller *t, const struct stk_plan_node *base)
{
    const struct pen_plan *plan = t->ex->base;
    const size_t read =
        output_of(plan, (uint32_t)base->in_edge[0])->block_bytes;
    const size_t written = base->output[0].block_bytes;
    struct stk_text text = { 0 };
    char in[32], out[32];
    stk_plan_bytes_text(read, in, sizeof(in));
    stk_plan_bytes_text(written, out, sizeof(out));
    if (stk_node_hands_through(plan, base)) {
        stk_text_add(&text, "nothing: frames lie where they shall");
    } else {
        stk_text_addf(&text, "%s%s read, %s%s written, %s", t->about, in,
                      t->about, out, t->about);
        add_time(&text, base->cost_ns, read && written);
        stk_text_add(&text, " a frame");
    }
    built_line(t, 1, "costs", WORD, &text, STK_PAINT_NONE);
}

static void tell_cause(struct teller *t, const struct stk_cause *c)
{
    const struct stk_plan_node *node = &t->ex->plan->nodes[c->node];
    stk_cells_left(&t->cells, "", 4, 0, STK_PAINT_NONE);
    stk_cells_left(&t->cells, node->id, 0, 1, STK_PAINT_BRIDGE);
    stk_cells_add(&t->cells, c->does, STK_PAINT_NONE);
    stk_cells_end(&t->cells);
    line(t, 1, "forced by", WORD, c->forced, STK_PAINT_NONE);
    tell_cost(t, &t->ex->base->nodes[c->node]);
    line(t, 1, "loses", WORD, node->loss[0] ? node->loss : "nothing",
         node->loss[0] ? STK_PAINT_LOSS : STK_PAINT_NONE);
    if (*c->side)
        line(t, 1, "stands", WORD, c->side, STK_PAINT_NONE);
    if (*c->shared)
        line(t, 1, "also for", WORD, c->shared, STK_PAINT_NONE);
}

// A copy or conversion that nobody inserted.
static void tell_own(struct teller *t, uint32_t number)
{
    const struct stk_plan_node *node = &t->ex->plan->nodes[number];
    if (!(node->cls->flags & PEN_CLASS_BRIDGE) || node->inputs != 1 ||
        node->outputs != 1 || node->in_edge[0] < 0)
        return;
    line(t, 0, "", 0, node->id, STK_PAINT_TITLE);
    line(t, 1, "forced by", WORD, "the file, where it stands", STK_PAINT_NONE);
    tell_cost(t, &t->ex->base->nodes[number]);
}

static void tell_causes(struct teller *t)
{
    const struct stk_explain *ex = t->ex;
    uint32_t c = 0;
    title(t, "why");
    for (uint32_t l = 0; l < ex->way.link_count; l++) {
        tell_own(t, ex->way.links[l].from);
        if (ex->none[l]) {
            line(t, 0, "no bridge:", 0, ex->none[l], STK_PAINT_NONE);
            continue;
        }
        tell_view(t, &ex->causes[c].gives, "gives");
        tell_view(t, &ex->causes[c].takes, "takes");
        for (; c < ex->cause_count && ex->causes[c].link == l; c++)
            tell_cause(t, &ex->causes[c]);
    }
    tell_own(t, ex->way.links[ex->way.link_count - 1].to);
}

static void tell_choices(struct teller *t)
{
    const struct stk_route *way = &t->ex->way;
    for (uint32_t l = 0; l <= way->link_count; l++) {
        const uint32_t n = l ? way->links[l - 1].to : way->links[0].from;
        const struct stk_plan_node *node = &t->ex->plan->nodes[n];
        struct stk_text text = { 0 };
        if (!node->choice[0])
            continue;
        stk_text_addf(&text, "%s is %s: %s", node->id, node->cls->name,
                      node->choice);
        built_line(t, 0, "", 0, &text, STK_PAINT_NONE);
    }
}

// --- the answers as text -----------------------------------------------------

// "12.4 us more, 20.00 KiB more copied".
static void add_difference(struct stk_text *t, const struct stk_answer *a)
{
    char text[40];
    if (!a->known) {
        stk_text_add(t, "time and bytes are unknown");
        return;
    }
    stk_plan_cost_text(a->more_ns < 0 ? -a->more_ns : a->more_ns, text,
                       sizeof(text));
    if (a->more_ns)
        stk_text_addf(t, "%s %s", text, a->more_ns < 0 ? "less" : "more");
    else
        stk_text_add(t, "the same time");
    stk_plan_cost_text(a->cost_ns, text, sizeof(text));
    stk_text_addf(t, " (%s)", text);
    stk_format_size(
        (uint64_t)(a->more_bytes < 0 ? -a->more_bytes : a->more_bytes), text,
        sizeof(text));
    if (a->more_bytes)
        stk_text_addf(t, ", %s %s copied", text,
                      a->more_bytes < 0 ? "less" : "more");
    else
        stk_text_add(t, ", as much copied");
    if (!a->more_once_ns)
        return;
    stk_plan_cost_text(a->more_once_ns < 0 ? -a->more_once_ns : a->more_once_ns,
                       text, sizeof(text));
    stk_text_addf(t, ", %s %s once", text,
                  a->more_once_ns < 0 ? "less" : "more");
}

static void tell_what(struct teller *t, const struct stk_answer *a)
{
    struct stk_text text = { 0 };
    stk_text_add(&text, a->what);
    if (a->kind == STK_ASK_BUDGET && *a->value)
        stk_text_addf(&text, ": \"host_pinned\": %s", a->value);
    built_line(t, 0, "", 0, &text, STK_PAINT_TITLE);
}

static void tell_answer(struct teller *t, const struct stk_answer *a)
{
    struct stk_text text = { 0 };
    tell_what(t, a);
    if (*a->refused) {
        line(t, 1, "no plan:", 0, a->refused, STK_PAINT_NONE);
        return;
    }
    add_difference(&text, a);
    built_line(t, 1, "costs", WORD, &text, STK_PAINT_NONE);
    line(t, 1, "bridges", WORD, *a->way ? a->way : "none", STK_PAINT_NONE);
    if (*a->lost)
        line(t, 1, "loses", WORD, a->lost, STK_PAINT_LOSS);
    if (*a->kept)
        line(t, 1, "spares", WORD, a->kept, STK_PAINT_NONE);
    if (*a->note)
        line(t, 1, "but", WORD, a->note, STK_PAINT_NONE);
}

static void tell_alternatives(struct teller *t)
{
    const struct stk_explain *ex = t->ex;
    struct stk_text head = { 0 };
    bool any = false;
    stk_text_addf(&head, "alternatives to this plan (%s", t->about);
    add_time(&head, ex->base->cost_ns, ex->base->unknown == 0);
    stk_text_add(&head, " a frame)");
    for (unsigned i = 0; i < ex->asked && !head.failed; i++) {
        if (!is_alternative(&ex->answers[i]))
            continue;
        if (!any)
            title(t, head.data);
        any = true;
        tell_answer(t, &ex->answers[i]);
    }
    t->failed = t->failed || head.failed;
    stk_text_finish(&head);
}

// What does not help is told in short, so that nobody tries it again.
static void tell_useless(struct teller *t)
{
    const struct stk_explain *ex = t->ex;
    bool any = false;
    for (unsigned i = 0; i < ex->asked; i++) {
        const struct stk_answer *a = &ex->answers[i];
        struct stk_text text = { 0 };
        if (is_alternative(a) || removes(a))
            continue;
        if (!any)
            line(t, 0, "", 0, "tried in vain", STK_PAINT_TITLE);
        any = true;
        stk_text_addf(&text, "%s: %s%s", a->what,
                      *a->refused ? "no plan: " : "then there is ",
                      *a->refused ? a->refused : a->way);
        built_line(t, 1, "", 0, &text, STK_PAINT_NONE);
    }
}

static void tell_removals(struct teller *t)
{
    const struct stk_explain *ex = t->ex;
    bool helps = false, tried = false;
    for (unsigned i = 0; i < ex->asked; i++) {
        tried = tried || !is_alternative(&ex->answers[i]);
        helps = helps || removes(&ex->answers[i]);
    }
    if (!tried && !ex->cause_count)
        return;
    title(t, "what would remove it");
    for (unsigned i = 0; i < ex->asked; i++)
        if (removes(&ex->answers[i]))
            tell_answer(t, &ex->answers[i]);
    if (!helps)
        line(t, 0, "", 0,
             ex->unasked ? "nothing of what was tried"
                         : "nothing that was found: no other module for the "
                           "same work, no property of both ends",
             STK_PAINT_NONE);
    tell_useless(t);
    if (ex->unasked) {
        struct stk_text text = { 0 };
        stk_text_addf(&text,
                      "%u more could be tried; at most %d plans are made",
                      ex->unasked, STK_EXPLAIN_PLANS);
        built_line(t, 0, "", 0, &text, STK_PAINT_NONE);
    }
}

static void tell_head(struct teller *t)
{
    const struct stk_explain *ex = t->ex;
    const struct stk_link *first = &ex->way.links[0];
    const struct stk_link *last = &ex->way.links[ex->way.link_count - 1];
    const struct stk_plan_node *from = &ex->plan->nodes[first->from];
    const struct stk_plan_node *to = &ex->plan->nodes[last->to];
    struct stk_text text = { 0 };
    stk_text_addf(&text, "%s.%s -> %s.%s: %u bridge%s, profile %s", from->id,
                  from->cls->outputs[first->from_pin].name, to->id,
                  to->cls->inputs[last->to_pin].name, ex->cause_count,
                  ex->cause_count == 1 ? "" : "s", ex->plan->profile.name);
    if (ex->way.several)
        stk_text_add(&text, ", the shortest of several ways");
    stk_cells_add(&t->cells, text.data ? text.data : "", STK_PAINT_NONE);
    stk_cells_end(&t->cells);
    t->failed = t->failed || text.failed;
    stk_text_finish(&text);
    if (!ex->nominal)
        return;
    stk_text_addf(&text,
                  "~ is reckoned with %dx%d, or %d KiB encoded; the sizes are "
                  "known at the first frame",
                  STK_NOMINAL_WIDTH, STK_NOMINAL_HEIGHT,
                  STK_NOMINAL_BYTES >> 10);
    stk_cells_add(&t->cells, text.data ? text.data : "", STK_PAINT_NONE);
    stk_cells_end(&t->cells);
    t->failed = t->failed || text.failed;
    stk_text_finish(&text);
}

char *stk_explain_tell(const struct stk_explain *ex, bool colour)
{
    struct stk_text out = { 0 };
    struct teller t = {
        .ex = ex,
        .cells = { .t = &out, .colour = colour },
        .about = ex->nominal ? "~" : "",
    };
    tell_head(&t);
    tell_way(&t);
    tell_causes(&t);
    tell_choices(&t);
    tell_alternatives(&t);
    tell_removals(&t);
    char *text = stk_text_take(&out);
    if (!t.failed)
        return text;
    free(text);
    return NULL;
}

// --- JSON --------------------------------------------------------------------

static json_t *or_null(bool known, json_int_t value)
{
    return known ? json_integer(value) : json_null();
}

static json_t *microseconds(int64_t ns, bool known)
{
    return known ? json_real((double)ns / 1000) : json_null();
}

static json_t *text_or_null(const char *text)
{
    return text && *text ? stk_json_text(text) : json_null();
}

static json_t *end_json(const struct stk_plan_node *node,
                        const struct pen_pin *pins, uint32_t pin)
{
    struct stk_text t = { 0 };
    stk_text_addf(&t, "%s.%s", node->id, pins[pin].name);
    char *text = stk_text_take(&t);
    json_t *value = text ? stk_json_text(text) : NULL;
    free(text);
    return value;
}

static json_t *edge_json(const struct stk_explain *ex, uint32_t edge)
{
    const struct pen_plan *plan = ex->plan;
    const struct stk_plan_edge *e = &plan->edges[edge];
    const struct stk_plan_node *from = &plan->nodes[e->from];
    const struct stk_plan_node *to = &plan->nodes[e->to];
    const struct stk_plan_output *o = output_of(plan, edge);
    const size_t bytes = output_of(ex->base, edge)->block_bytes;
    char caps[256];
    stk_plan_caps_text(&e->caps, caps, sizeof(caps));
    json_t *c = json_object();
    c = stk_json_with(c, "from",
                      end_json(from, from->cls->outputs, e->from_pin));
    c = stk_json_with(c, "to", end_json(to, to->cls->inputs, e->to_pin));
    c = stk_json_with(c, "mem", stk_json_text(stk_home_text(stk_edge_home(e))));
    c = stk_json_with(c, "how", text_or_null(stk_edge_how(plan, e)));
    c = stk_json_with(c, "caps", stk_json_text(caps));
    c = stk_json_with(c, "bytes_per_frame",
                      or_null(bytes > 0, (json_int_t)bytes));
    c = stk_json_with(c, "nominal", json_boolean(o->block_bytes == 0));
    return stk_json_with(c, "upgraded_from",
                         o->upgraded_from
                             ? json_string(pen_mem_name(o->upgraded_from))
                             : json_null());
}

static json_t *view_json(const struct stk_view *view)
{
    json_t *v = json_object();
    v = stk_json_with(v, "pin", stk_json_text(view->pin));
    v = stk_json_with(v, "mem", stk_json_text(view->mems));
    v = stk_json_with(v, "mem_by", text_or_null(view->by_mem));
    v = stk_json_with(v, "formats", text_or_null(view->formats));
    return stk_json_with(v, "formats_by", text_or_null(view->by_fmt));
}

static json_t *cause_json(const struct stk_explain *ex,
                          const struct stk_cause *c)
{
    const struct stk_plan_node *node = &ex->plan->nodes[c->node];
    const struct stk_plan_node *base = &ex->base->nodes[c->node];
    const size_t in =
        output_of(ex->base, (uint32_t)base->in_edge[0])->block_bytes;
    const size_t out = base->output[0].block_bytes;
    json_t *b = json_object();
    b = stk_json_with(b, "id", stk_json_text(node->id));
    b = stk_json_with(b, "type", stk_json_text(node->type));
    b = stk_json_with(b, "does", stk_json_text(c->does));
    b = stk_json_with(b, "forced_by", stk_json_text(c->forced));
    b = stk_json_with(b, "reason", stk_json_text(node->reason));
    b = stk_json_with(b, "gives", view_json(&c->gives));
    b = stk_json_with(b, "takes", view_json(&c->takes));
    b = stk_json_with(b, "bytes_read", or_null(in > 0, (json_int_t)in));
    b = stk_json_with(b, "bytes_written", or_null(out > 0, (json_int_t)out));
    b = stk_json_with(b, "cost_us",
                      microseconds(base->cost_ns, base->cost_ns != 0));
    b = stk_json_with(b, "loss", text_or_null(node->loss));
    b = stk_json_with(b, "stands", text_or_null(c->side));
    return stk_json_with(b, "also_serves", text_or_null(c->shared));
}

static json_t *answer_json(const struct stk_answer *a)
{
    static const char *const kinds[] = {
        [STK_ASK_STEP] = "step",      [STK_ASK_CLASS] = "class",
        [STK_ASK_MODULE] = "module",  [STK_ASK_PROPERTY] = "property",
        [STK_ASK_REMOVE] = "without", [STK_ASK_BUDGET] = "host_pinned",
    };
    const bool made = !*a->refused;
    const bool known = made && a->known;
    json_t *o = json_object();
    o = stk_json_with(o, "kind", json_string(kinds[a->kind]));
    o = stk_json_with(o, "module", text_or_null(a->module));
    o = stk_json_with(o, "value", text_or_null(a->value));
    o = stk_json_with(o, "what", stk_json_text(a->what));
    o = stk_json_with(o, "refused", text_or_null(a->refused));
    o = stk_json_with(o, "cost_us_per_frame", microseconds(a->cost_ns, known));
    o = stk_json_with(o, "more_us_per_frame", microseconds(a->more_ns, known));
    o = stk_json_with(o, "more_us_once", microseconds(a->more_once_ns, made));
    o = stk_json_with(o, "copied_bytes_per_frame", or_null(known, a->bytes));
    o = stk_json_with(o, "more_bytes_per_frame", or_null(known, a->more_bytes));
    o = stk_json_with(o, "bridges", made ? stk_json_text(a->way) : json_null());
    o = stk_json_with(o, "loss_added", text_or_null(a->lost));
    o = stk_json_with(o, "loss_removed", text_or_null(a->kept));
    o = stk_json_with(o, "note", text_or_null(a->note));
    if (is_alternative(a))
        return o;
    return stk_json_with(o, "removes", json_boolean(removes(a)));
}

static json_t *answers_json(const struct stk_explain *ex, bool alternatives)
{
    json_t *array = json_array();
    for (unsigned i = 0; i < ex->asked; i++)
        if (is_alternative(&ex->answers[i]) == alternatives)
            array = stk_json_append(array, answer_json(&ex->answers[i]));
    return array;
}

static json_t *choices_json(const struct stk_explain *ex)
{
    const struct stk_route *way = &ex->way;
    json_t *array = json_array();
    for (uint32_t l = 0; l <= way->link_count; l++) {
        const uint32_t n = l ? way->links[l - 1].to : way->links[0].from;
        const struct stk_plan_node *node = &ex->plan->nodes[n];
        if (!node->choice[0])
            continue;
        json_t *c = json_object();
        c = stk_json_with(c, "module", stk_json_text(node->id));
        c = stk_json_with(c, "class", json_string(node->cls->name));
        c = stk_json_with(c, "why", stk_json_text(node->choice));
        array = stk_json_append(array, c);
    }
    return array;
}

char *stk_explain_json(const struct stk_explain *ex)
{
    const struct pen_plan *plan = ex->plan;
    const struct stk_link *first = &ex->way.links[0];
    const struct stk_link *last = &ex->way.links[ex->way.link_count - 1];
    const struct stk_plan_node *from = &plan->nodes[first->from];
    const struct stk_plan_node *to = &plan->nodes[last->to];
    const bool known = ex->base->unknown == 0;
    json_t *way = json_array(), *bridges = json_array(), *none = json_array();
    for (uint32_t k = 0; k < ex->way.edge_count; k++)
        way = stk_json_append(way, edge_json(ex, ex->way.edges[k]));
    for (uint32_t i = 0; i < ex->cause_count; i++)
        bridges = stk_json_append(bridges, cause_json(ex, &ex->causes[i]));
    for (uint32_t l = 0; l < ex->way.link_count; l++)
        if (ex->none[l])
            none = stk_json_append(none, stk_json_text(ex->none[l]));
    json_t *root = json_object();
    root = stk_json_with(root, "ok", json_true());
    root = stk_json_with(root, "from",
                         end_json(from, from->cls->outputs, first->from_pin));
    root =
        stk_json_with(root, "to", end_json(to, to->cls->inputs, last->to_pin));
    root = stk_json_with(root, "profile", stk_json_text(plan->profile.name));
    root = stk_json_with(root, "nominal", json_boolean(ex->nominal));
    root = stk_json_with(root, "several_ways", json_boolean(ex->way.several));
    root = stk_json_with(root, "cost_us_per_frame",
                         microseconds(ex->base->cost_ns, known));
    root = stk_json_with(root, "way", way);
    root = stk_json_with(root, "bridges", bridges);
    root = stk_json_with(root, "no_bridge", none);
    root = stk_json_with(root, "choices", choices_json(ex));
    root = stk_json_with(root, "alternatives", answers_json(ex, true));
    root = stk_json_with(root, "removals", answers_json(ex, false));
    root = stk_json_with(root, "plans_made", json_integer(ex->asked));
    return stk_json_dump_new(
        stk_json_with(root, "plans_not_made", json_integer(ex->unasked)));
}
