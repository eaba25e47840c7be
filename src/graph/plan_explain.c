// Why there is a bridge between two modules: the way between them, and for
// each bridge on it the constraint that forces it.

#include "plan_explain.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

// --- texts -------------------------------------------------------------------

const char *stk_explain_take(struct stk_explain *ex, struct stk_text *t)
{
    const char *kept = NULL;
    if (!t->failed)
        kept = stk_arena_strdup(&ex->arena, t->data ? t->data : "");
    stk_text_finish(t);
    if (kept)
        return kept;
    ex->failed = true;
    return "";
}

const char *stk_explain_text(struct stk_explain *ex, const char *format, ...)
{
    char *text;
    va_list args;
    va_start(args, format);
    const int length = vasprintf(&text, format, args);
    va_end(args);
    const char *kept = length < 0 ? NULL : stk_arena_strdup(&ex->arena, text);
    if (length >= 0)
        free(text);
    if (kept)
        return kept;
    ex->failed = true;
    return "";
}

// --- the way -----------------------------------------------------------------

int32_t stk_plan_find(const struct pen_plan *plan, const char *id)
{
    for (uint32_t n = 0; n < plan->node_count; n++)
        if (!strcmp(plan->nodes[n].id, id))
            return (int32_t)n;
    return -1;
}

// From an input back to the module of the file that it is connected to, and
// whether the bridge lies between.
static const struct stk_plan_edge *producer(const struct pen_plan *plan,
                                            int32_t edge, int32_t bridge,
                                            bool *passes)
{
    const struct stk_plan_edge *e = &plan->edges[edge];
    *passes = bridge < 0;
    while (plan->nodes[e->from].inserted) {
        *passes = *passes || e->from == (uint32_t)bridge;
        e = &plan->edges[plan->nodes[e->from].in_edge[0]];
    }
    return e;
}

// For each node the input through which the shortest way goes on, and how many
// ways there are (2: several).
struct step {
    uint32_t to, to_pin;
    uint8_t ways;
    bool seen;
};

static void search(const struct pen_plan *plan,
                   const struct stk_route_end *from,
                   const struct stk_route_end *to, struct step *steps,
                   uint32_t *queue)
{
    uint32_t head = 0, tail = 0;
    queue[tail++] = to->node;
    while (head < tail) {
        const uint32_t number = queue[head++];
        const struct stk_plan_node *node = &plan->nodes[number];
        for (uint32_t i = 0; i < node->inputs; i++) {
            bool passes;
            if (node->in_edge[i] < 0 ||
                (number == to->node && to->pin >= 0 && (uint32_t)to->pin != i))
                continue;
            const struct stk_plan_edge *e =
                producer(plan, node->in_edge[i], from->bridge, &passes);
            if (e->from == from->node &&
                (!passes ||
                 (from->pin >= 0 && (uint32_t)from->pin != e->from_pin)))
                continue;
            struct step *s = &steps[e->from];
            if (s->ways < 2)
                s->ways++;
            if (s->seen)
                continue;
            s->seen = true;
            s->to = number;
            s->to_pin = i;
            if (e->from != from->node)
                queue[tail++] = e->from;
        }
    }
}

static bool follow(const struct pen_plan *plan,
                   const struct stk_route_end *from,
                   const struct stk_route_end *to, const struct step *steps,
                   struct stk_route *way)
{
    for (uint32_t n = from->node; n != to->node; n = steps[n].to)
        way->link_count++;
    way->links = calloc((size_t)way->link_count + 1, sizeof(*way->links));
    way->edges = calloc((size_t)plan->edge_count + 1, sizeof(uint32_t));
    if (!way->links || !way->edges)
        return false;
    struct stk_link *link = way->links;
    for (uint32_t n = from->node; n != to->node; n = steps[n].to, link++) {
        link->to = steps[n].to;
        link->to_pin = steps[n].to_pin;
        link->first = way->edge_count;
        int32_t at = plan->nodes[link->to].in_edge[link->to_pin];
        for (int32_t e = at;; e = plan->nodes[plan->edges[e].from].in_edge[0]) {
            link->count++;
            if (!plan->nodes[plan->edges[e].from].inserted)
                break;
        }
        way->edge_count += link->count;
        for (uint32_t k = way->edge_count; k-- > link->first;) {
            way->edges[k] = (uint32_t)at;
            link->from = plan->edges[at].from;
            link->from_pin = plan->edges[at].from_pin;
            at = plan->nodes[link->from].in_edge[0];
        }
        way->several = way->several || steps[n].ways > 1;
    }
    return true;
}

enum pen_status stk_route_find(const struct pen_plan *plan,
                               const struct stk_route_end *from,
                               const struct stk_route_end *to,
                               struct stk_route *way, bool *found,
                               struct pen_error *err)
{
    *way = (struct stk_route){ 0 };
    *found = false;
    struct step *steps = calloc((size_t)plan->node_count + 1, sizeof(*steps));
    uint32_t *queue = calloc((size_t)plan->node_count + 1, sizeof(*queue));
    bool ok = steps && queue;
    if (ok) {
        search(plan, from, to, steps, queue);
        *found = steps[from->node].seen;
        if (*found)
            ok = follow(plan, from, to, steps, way);
    }
    free(steps);
    free(queue);
    if (!ok)
        return stk_plan_no_memory(err);
    return PEN_OK;
}

void stk_route_finish(struct stk_route *way)
{
    free(way->links);
    free(way->edges);
    *way = (struct stk_route){ 0 };
}

// --- what was asked ----------------------------------------------------------

static const char *next_id(const void *cookie, size_t i)
{
    const struct pen_plan *plan = cookie;
    return i < plan->node_count ? plan->nodes[i].id : NULL;
}

static const char *next_pin(const void *cookie, size_t i)
{
    const struct pen_pin *pins = cookie;
    return pins[i].name;
}

// The connections of the file, as far as there is room in an error.
static void list_connections(const struct pen_plan *plan, struct stk_text *t)
{
    enum { ROOM = 300 };
    const size_t start = t->length;
    uint32_t left = 0;
    stk_text_add(t, "; connections are");
    for (uint32_t n = 0; n < plan->node_count; n++) {
        const struct stk_plan_node *node = &plan->nodes[n];
        for (uint32_t i = 0; i < node->inputs && !node->inserted; i++) {
            bool passes;
            if (node->in_edge[i] < 0)
                continue;
            const struct stk_plan_edge *e =
                producer(plan, node->in_edge[i], -1, &passes);
            if (t->length - start > ROOM) {
                left++;
                continue;
            }
            stk_text_addf(t, "%s %s.%s:%s.%s",
                          t->length - start > 17 ? "," : "",
                          plan->nodes[e->from].id,
                          plan->nodes[e->from].cls->outputs[e->from_pin].name,
                          node->id, node->cls->inputs[i].name);
        }
    }
    if (left)
        stk_text_addf(t, " and %u more", left);
}

static enum pen_status complain(const struct pen_plan *plan, enum pen_status st,
                                struct stk_text *t, struct pen_error *err)
{
    list_connections(plan, t);
    if (t->failed)
        st = stk_plan_no_memory(err);
    else
        pen_error_set(err, st, 0, "--explain", "%s", t->data);
    stk_text_finish(t);
    return st;
}

// One end of the question, "id" or "id.pin".
struct name {
    const char *text;
    size_t id, length;  // characters of the id, of all
    bool output;
    const struct pen_pin *pins;  // of the module that was found
    int32_t node, pin;           // -1: not found, no pin
};

static void look_up(const struct pen_plan *plan, const char *text,
                    size_t length, bool output, struct name *name)
{
    const char *dot = memchr(text, '.', length);
    *name = (struct name){
        .text = text,
        .id = dot ? (size_t)(dot - text) : length,
        .length = length,
        .output = output,
        .node = -1,
        .pin = -1,
    };
    for (uint32_t n = 0; n < plan->node_count && name->node < 0; n++)
        if (strlen(plan->nodes[n].id) == name->id &&
            !memcmp(plan->nodes[n].id, text, name->id))
            name->node = (int32_t)n;
    if (name->node < 0 || !dot)
        return;
    const struct pen_module_class *cls = plan->nodes[name->node].cls;
    name->pins = output ? cls->outputs : cls->inputs;
    for (int32_t i = 0; name->pins && name->pins[i].name; i++)
        if (strlen(name->pins[i].name) == length - name->id - 1 &&
            !memcmp(name->pins[i].name, dot + 1, length - name->id - 1))
            name->pin = i;
}

static bool is_found(const struct name *name)
{
    return name->node >= 0 && (name->id == name->length || name->pin >= 0);
}

static enum pen_status unknown_end(const struct pen_plan *plan,
                                   const struct name *name,
                                   struct pen_error *err)
{
    struct stk_text t = { 0 };
    const char *nearest;
    char word[128];
    if (name->node < 0) {
        snprintf(word, sizeof(word), "%.*s", (int)name->id, name->text);
        nearest = stk_nearest(word, next_id, plan);
        stk_text_addf(&t, "there is no module `%.64s`", word);
    } else {
        snprintf(word, sizeof(word), "%.*s", (int)(name->length - name->id - 1),
                 name->text + name->id + 1);
        nearest = name->pins ? stk_nearest(word, next_pin, name->pins) : NULL;
        stk_text_addf(&t, "`%.64s` has no %s `%.64s`",
                      plan->nodes[name->node].id,
                      name->output ? "output" : "input", word);
    }
    if (nearest)
        stk_text_addf(&t, ", did you mean `%s`?", nearest);
    return complain(plan, PEN_E_CONFIG, &t, err);
}

// "FROM:TO"; ids may have colons too. A bridge alone stands for both ends.
static enum pen_status read_question(const struct pen_plan *plan,
                                     const char *text, struct name *from,
                                     struct name *to, struct pen_error *err)
{
    look_up(plan, text, strlen(text), true, from);
    if (from->node >= 0 && from->id == from->length &&
        plan->nodes[from->node].inserted) {
        *to = *from;
        return PEN_OK;
    }
    const char *colon = strchr(text, ':');
    if (!colon) {
        struct stk_text t = { 0 };
        stk_text_addf(&t,
                      "\"%.64s\" is neither FROM:TO, two modules or pins, nor "
                      "a bridge",
                      text);
        return complain(plan, PEN_E_ARG, &t, err);
    }
    for (const char *at = colon; at; at = strchr(at + 1, ':')) {
        look_up(plan, text, (size_t)(at - text), true, from);
        look_up(plan, at + 1, strlen(at + 1), false, to);
        if (is_found(from) && is_found(to))
            return PEN_OK;
    }
    look_up(plan, text, (size_t)(colon - text), true, from);
    look_up(plan, colon + 1, strlen(colon + 1), false, to);
    return unknown_end(plan, is_found(from) ? to : from, err);
}

// A bridge at an end stands for the module of the file beyond it.
static void widen(const struct pen_plan *plan, struct stk_route_end *from,
                  struct stk_route_end *to)
{
    if (plan->nodes[from->node].inserted) {
        bool passes;
        const struct stk_plan_edge *e =
            producer(plan, plan->nodes[from->node].in_edge[0], -1, &passes);
        *from = (struct stk_route_end){ e->from, (int32_t)e->from_pin,
                                        (int32_t)from->node };
    }
    while (plan->nodes[to->node].inserted) {
        const struct stk_plan_edge *e = &plan->edges[plan->first_out[to->node]];
        *to = (struct stk_route_end){ e->to, (int32_t)e->to_pin, -1 };
    }
}

static enum pen_status find_way(struct stk_explain *ex, const char *from_to,
                                struct pen_error *err)
{
    const struct pen_plan *plan = ex->plan;
    struct name from_name = { 0 }, to_name = { 0 };
    bool found = false;
    PEN_TRY(read_question(plan, from_to, &from_name, &to_name, err));
    struct stk_route_end from = { (uint32_t)from_name.node, from_name.pin, -1 };
    struct stk_route_end to = { (uint32_t)to_name.node, to_name.pin, -1 };
    widen(plan, &from, &to);
    PEN_TRY(stk_route_find(plan, &from, &to, &ex->way, &found, err));
    if (found)
        return PEN_OK;
    struct stk_text t = { 0 };
    stk_text_addf(&t, "no frame goes from `%.64s` to `%.64s`",
                  plan->nodes[from_name.node].id, plan->nodes[to_name.node].id);
    return complain(plan, PEN_E_CONFIG, &t, err);
}

// --- what pins take and give -------------------------------------------------

uint32_t stk_input_mems(const struct pen_plan *plan,
                        const struct stk_plan_node *node, uint32_t pin)
{
    const bool bridges = !plan->desc || plan->desc->auto_bridge;
    if (bridges && !node->inserted && stk_class_copies(node->cls) &&
        !(node->cls->flags & PEN_CLASS_CUDA) && node->outputs == 1)
        return node->out[0].mem;
    return node->in[pin].mem ? node->in[pin].mem : PEN_MEM_BIT(PEN_MEM_HOST);
}

static void declared(const struct pen_pin *pins,
                     struct pen_pin_set sets[PEN_MAX_PINS])
{
    memset(sets, 0, PEN_MAX_PINS * sizeof(*sets));
    for (unsigned i = 0; pins && i < PEN_MAX_PINS && pins[i].name; i++)
        sets[i] =
            (struct pen_pin_set){ pins[i].kinds, pins[i].mem, pins[i].formats };
}

void stk_narrow(const struct pen_module_class *cls, const void *params,
                struct pen_pin_set in[PEN_MAX_PINS],
                struct pen_pin_set out[PEN_MAX_PINS])
{
    declared(cls->inputs, in);
    declared(cls->outputs, out);
    if (cls->ops.narrow)
        cls->ops.narrow(params, in, out);
}

// Other values that a property might have: number `i` of them, which is set in
// `params`; false: there are no more.
static bool other_value(const struct pen_prop *row, const void *given,
                        void *params, unsigned i)
{
    char *at = (char *)params + row->offset;
    const char *was = (const char *)given + row->offset;
    switch (row->kind) {
    case PEN_PROP_ENUM:
        for (const struct pen_choice *c = row->choices; c && c->name; c++) {
            if (c->value == *(const int32_t *)was || i-- > 0)
                continue;
            *(int32_t *)at = c->value;
            return true;
        }
        return false;
    case PEN_PROP_BOOL:
        *(bool *)at = !*(const bool *)was;
        return i == 0;
    case PEN_PROP_I32:
        *(int32_t *)at = row->def.i;
        return i == 0;
    case PEN_PROP_STRING:
        *(const char **)at = row->def.s ? row->def.s : "";
        return i == 0;
    case PEN_PROP_F64:
    case PEN_PROP_RATIONAL:
    case PEN_PROP_END:
        break;
    }
    return false;
}

// Whether the pin would have another set if the property had another value.
static bool narrows(const struct stk_plan_node *node,
                    const struct pen_prop *row, void *params, bool output,
                    uint32_t pin, bool formats)
{
    struct pen_pin_set in[PEN_MAX_PINS], out[PEN_MAX_PINS];
    const struct pen_pin_set *set = output ? &out[pin] : &in[pin];
    stk_narrow(node->cls, node->params, in, out);
    const uint32_t now = formats ? set->formats : set->mem;
    bool differs = false;
    for (unsigned i = 0; !differs; i++) {
        memcpy(params, node->params, node->cls->params_size);
        if (!other_value(row, node->params, params, i))
            break;
        stk_narrow(node->cls, params, in, out);
        differs = (formats ? set->formats : set->mem) != now;
    }
    return differs;
}

static const char *narrowed_by(struct stk_explain *ex,
                               const struct stk_plan_node *node, bool output,
                               uint32_t pin, bool formats)
{
    struct stk_text t = { 0 };
    void *params = NULL;
    if (!node->cls->ops.narrow || !node->cls->params_size)
        return "";
    params = stk_arena_alloc(&ex->arena, node->cls->params_size);
    for (const struct pen_prop *row = node->cls->props;
         params && row && row->kind; row++)
        if (narrows(node, row, params, output, pin, formats))
            stk_text_addf(&t, "%s%s", t.length ? ", " : "", row->key);
    if (!params)
        ex->failed = true;
    return stk_explain_take(ex, &t);
}

static struct stk_view view(struct stk_explain *ex,
                            const struct stk_plan_node *node, bool output,
                            uint32_t pin)
{
    const uint32_t all = PEN_FMT_BITS_ALL11 | PEN_FMT_BITS_BAYER8 |
                         PEN_FMT_BIT(PEN_FMT_BAYERBG10);
    const struct pen_pin *pins =
        output ? node->cls->outputs : node->cls->inputs;
    const struct pen_pin_set *set = output ? &node->out[pin] : &node->in[pin];
    char mems[160], formats[200];
    if (output)
        stk_mems_text(set->mem ? set->mem : PEN_MEM_BIT(PEN_MEM_HOST), mems,
                      sizeof(mems));
    else
        stk_wanted_text(stk_input_mems(ex->plan, node, pin), mems,
                        sizeof(mems));
    stk_mask_text(set->formats, formats, sizeof(formats));
    return (struct stk_view){
        .pin = stk_explain_text(ex, "%s.%s", node->id, pins[pin].name),
        .mems = stk_explain_text(ex, "%s", mems),
        .formats = set->formats == 0 ? ""
                   : (all & ~set->formats) == 0
                       ? "any format"
                       : stk_explain_text(ex, "%s", formats),
        .by_mem = narrowed_by(ex, node, output, pin, false),
        .by_fmt = narrowed_by(ex, node, output, pin, true),
    };
}

// --- what forces a bridge ----------------------------------------------------

enum stk_op stk_bridge_op(const struct pen_plan *plan,
                          const struct stk_plan_node *node)
{
    const enum stk_home to = stk_output_home(&node->output[0]);
    const bool cuda = node->cls->flags & PEN_CLASS_CUDA;
    if (!stk_class_copies(node->cls))
        return cuda ? OP_CONVERT_CUDA : OP_CONVERT_HOST;
    if (cuda)
        return stk_node_transfer(plan, node) == STK_D2H ? OP_D2H : OP_H2D;
    return to == STK_HOME_DMA_HOST ? OP_TO_DMABUF : OP_TO_PINNED;
}

static bool is_conversion(enum stk_op op)
{
    return op == OP_CONVERT_HOST || op == OP_CONVERT_CUDA;
}

static bool is_transfer(enum stk_op op)
{
    return op == OP_H2D || op == OP_D2H;
}

static const char *does(struct stk_explain *ex,
                        const struct stk_plan_node *node, enum stk_op op)
{
    char formats[160];
    switch (op) {
    case OP_H2D:
        return "copies to the device";
    case OP_D2H:
        return "copies to the host";
    case OP_TO_PINNED:
        return "copies into pinned memory, on the host";
    case OP_TO_DMABUF:
        return "copies into a DMABUF, on the host";
    case OP_CONVERT_HOST:
    case OP_CONVERT_CUDA:
    case OP_UPGRADE:
        break;
    }
    stk_mask_text(node->out[0].formats, formats, sizeof(formats));
    return stk_explain_text(ex, "converts to %s, on the %s", formats,
                            op == OP_CONVERT_CUDA ? "device" : "host");
}

const struct stk_plan_node *stk_explain_origin(const struct pen_plan *plan,
                                               const struct stk_plan_node *node,
                                               uint32_t *pin)
{
    while (stk_node_hands_through(plan, node)) {
        uint32_t i = 0;
        while (i < node->inputs && node->in_edge[i] < 0)
            i++;
        if (i == node->inputs)
            break;
        const struct stk_plan_edge *e = &plan->edges[node->in_edge[i]];
        node = &plan->nodes[e->from];
        *pin = e->from_pin;
    }
    return node;
}

// What an output gives, before its pool was made of other memory.
static enum stk_home given_home(const struct pen_plan *plan,
                                const struct stk_plan_node *node, uint32_t pin)
{
    const struct stk_plan_node *from = stk_explain_origin(plan, node, &pin);
    const struct stk_plan_output *o = &from->output[pin];
    if (o->upgraded_from == PEN_MEM_NONE)
        return stk_output_home(o);
    return stk_home_of(o->upgraded_from, STK_DMABUF_NONE);
}

static bool takes_home(const struct pen_plan *plan,
                       const struct stk_plan_node *node, uint32_t pin,
                       enum stk_home home)
{
    return stk_homes_taken(stk_input_mems(plan, node, pin),
                           plan->profile.dmabuf) &
           STK_HOME_BIT(home);
}

static uint32_t foreign(const struct stk_plan_node *node, uint32_t pin,
                        uint32_t mask)
{
    return node->in[pin].formats ? mask & ~node->in[pin].formats : 0;
}

// The first pin behind a module that passes frames on that could not take them
// as they are given; false: there is none.
static bool refuser_behind(struct stk_explain *ex, uint32_t start,
                           enum stk_home home, uint32_t mask, bool conversion,
                           uint32_t *node, uint32_t *pin)
{
    const struct pen_plan *plan = ex->plan;
    bool *reached = calloc((size_t)plan->node_count + 1, sizeof(bool));
    bool found = false;
    if (!reached) {
        ex->failed = true;
        return false;
    }
    reached[start] = plan->nodes[start].cls->flags & PEN_CLASS_FORWARDS;
    for (uint32_t n = start + 1; n < plan->node_count && !found; n++) {
        const struct stk_plan_node *to = &plan->nodes[n];
        for (uint32_t i = 0; i < to->inputs && !found && !to->inserted; i++) {
            bool passes;
            if (to->in_edge[i] < 0 ||
                !reached[producer(plan, to->in_edge[i], -1, &passes)->from])
                continue;
            reached[n] = reached[n] || (to->cls->flags & PEN_CLASS_FORWARDS);
            found = conversion ? foreign(to, i, mask) != 0
                               : !takes_home(plan, to, i, home);
            *node = n;
            *pin = i;
        }
    }
    free(reached);
    return found;
}

// What the bridge's own connection says of it.
struct demand {
    const struct stk_link *link;
    const struct stk_plan_node *from, *to;
    const char *from_pin, *to_pin;
    enum stk_home home;  // given
    uint32_t mask;
    bool converted;  // there is a conversion on the connection
};

static const char *forced_format(struct stk_explain *ex, const struct demand *d)
{
    char wants[200], gives[200], alien[200];
    const uint32_t bad = foreign(d->to, d->link->to_pin, d->mask);
    uint32_t node, pin;
    stk_mask_text(d->mask, gives, sizeof(gives));
    if (bad) {
        stk_mask_text(d->to->in[d->link->to_pin].formats, wants, sizeof(wants));
        stk_mask_text(bad, alien, sizeof(alien));
        return stk_explain_text(
            ex, "format: `%s.%s` takes %s, `%s.%s` gives %s%s%s", d->to->id,
            d->to_pin, wants, d->from->id, d->from_pin, gives,
            bad != d->mask ? ", and does not take " : "",
            bad != d->mask ? alien : "");
    }
    if (refuser_behind(ex, d->link->to, d->home, d->mask, true, &node, &pin)) {
        const struct stk_plan_node *to = &ex->plan->nodes[node];
        stk_mask_text(to->in[pin].formats, wants, sizeof(wants));
        return stk_explain_text(ex,
                                "format: `%s` passes frames on, and `%s.%s` "
                                "behind it takes %s, `%s.%s` gives %s",
                                d->to->id, to->id, to->cls->inputs[pin].name,
                                wants, d->from->id, d->from_pin, gives);
    }
    return "nothing here: both ends could agree on a format, and with what "
           "lies behind them this way is the best";
}

static const char *forced_memory(struct stk_explain *ex, const struct demand *d)
{
    char wants[160];
    uint32_t node, pin;
    if (!takes_home(ex->plan, d->to, d->link->to_pin, d->home)) {
        stk_wanted_text(stk_input_mems(ex->plan, d->to, d->link->to_pin), wants,
                        sizeof(wants));
        return stk_explain_text(
            ex, "memory: `%s.%s` takes %s, `%s.%s` gives %s", d->to->id,
            d->to_pin, wants, d->from->id, d->from_pin, stk_home_text(d->home));
    }
    if (d->converted)
        return "conversion: both ends are on the same side, the conversion "
               "between them is on the other";
    if (refuser_behind(ex, d->link->to, d->home, d->mask, false, &node, &pin)) {
        const struct stk_plan_node *to = &ex->plan->nodes[node];
        stk_wanted_text(stk_input_mems(ex->plan, to, pin), wants,
                        sizeof(wants));
        return stk_explain_text(ex,
                                "memory: `%s` passes frames on, and `%s.%s` "
                                "behind it takes %s, `%s.%s` gives %s",
                                d->to->id, to->id, to->cls->inputs[pin].name,
                                wants, d->from->id, d->from_pin,
                                stk_home_text(d->home));
    }
    return "nothing here: both ends could be on the same side, and with what "
           "lies behind them this way is the best";
}

// A copy into pinned memory in front of an upload.
static const char *forced_staging(struct stk_explain *ex,
                                  const struct demand *d,
                                  const struct stk_plan_node *node)
{
    if (d->home != STK_HOME_HOST)
        return stk_explain_text(ex,
                                "memory: the upload behind it reads pinned "
                                "memory, `%s.%s` gives %s",
                                d->from->id, d->from_pin,
                                stk_home_text(d->home));
    return stk_explain_text(
        ex,
        "memory: the upload behind it reads pinned memory, and the pool of "
        "`%s.%s` is not pinned%s",
        d->from->id, d->from_pin,
        node->staged ? ": that would be over the budget of host_pinned"
                     : ", nor can it be: not all of its frames are made there");
}

// Connections that the bridge serves beside the one that is explained.
static const char *shared(struct stk_explain *ex,
                          const struct stk_plan_node *node,
                          const struct demand *d)
{
    struct stk_text t = { 0 };
    struct stk_text own = { 0 };
    unsigned told = 0, left = 0;
    stk_text_addf(&own, "%s.%s -> %s.%s", d->from->id, d->from_pin, d->to->id,
                  d->to_pin);
    for (const char *at = node->serves; *at && !own.failed;) {
        const char *end = strstr(at, ", ");
        const size_t length = end ? (size_t)(end - at) : strlen(at);
        if (length != own.length || memcmp(at, own.data, length) != 0) {
            if (told < STK_EXPLAIN_LISTED) {
                stk_text_add(&t, told++ ? ", " : "");
                stk_text_add_n(&t, at, length);
            } else {
                left++;
            }
        }
        at = end ? end + 2 : at + length;
    }
    if (left)
        stk_text_addf(&t, " and %u more", left);
    t.failed = t.failed || own.failed;
    stk_text_finish(&own);
    return stk_explain_take(ex, &t);
}

// Where a conversion and a transfer are on one connection: why in this order.
static const char *side_of(struct stk_explain *ex, const struct stk_link *link,
                           uint32_t at, enum stk_op op)
{
    const struct pen_plan *base = ex->base;
    const uint32_t *edges = &ex->way.edges[link->first];
    uint32_t transfer = 0, conversion = 0;
    for (uint32_t k = 1; k < link->count; k++) {
        const enum stk_op other =
            stk_bridge_op(base, &base->nodes[base->edges[edges[k]].from]);
        if (is_transfer(other))
            transfer = k;
        if (is_conversion(other))
            conversion = k;
    }
    if (!conversion || (!is_conversion(op) && !is_transfer(op)))
        return "";
    if (!transfer)
        return "both ends are on one side, and frames are not sent to the "
               "other only to be converted";
    const struct stk_plan_edge *in = &base->edges[edges[conversion - 1]];
    const struct stk_plan_edge *out = &base->edges[edges[conversion]];
    const size_t before =
        base->nodes[in->from].output[in->from_pin].block_bytes;
    const size_t after =
        base->nodes[out->from].output[out->from_pin].block_bytes;
    const bool first = conversion < transfer;
    char here[32], there[32];
    stk_plan_bytes_text(first ? after : before, here, sizeof(here));
    stk_plan_bytes_text(first ? before : after, there, sizeof(there));
    const bool fewer = first ? after < before : before < after;
    return stk_explain_text(
        ex, "%s the %s: %s cross, in the other order %s%s",
        at == conversion ? (first ? "before" : "behind")
                         : (first ? "behind" : "before"),
        at == conversion ? "transfer" : "conversion", here, there,
        fewer             ? ""
        : before == after ? " too; what a conversion costs on each side decides"
                          : ", but there the conversion is dearer or serves "
                            "less");
}

static void add_cause(struct stk_explain *ex, uint32_t number, uint32_t at,
                      const struct demand *d)
{
    const struct pen_plan *plan = ex->plan;
    const struct stk_link *link = d->link;
    const uint32_t *edges = &ex->way.edges[link->first];
    const uint32_t node = plan->edges[edges[at]].from;
    const struct stk_plan_node *bridge = &plan->nodes[node];
    const enum stk_op op = stk_bridge_op(plan, bridge);
    const bool uploads =
        at + 1 < link->count &&
        stk_bridge_op(plan, &plan->nodes[plan->edges[edges[at + 1]].from]) ==
            OP_H2D;
    ex->causes[ex->cause_count++] = (struct stk_cause){
        .node = node,
        .link = number,
        .op = op,
        .does = does(ex, bridge, op),
        .forced = is_conversion(op) ? forced_format(ex, d)
                  : op == OP_TO_PINNED && uploads
                      ? forced_staging(ex, d, bridge)
                      : forced_memory(ex, d),
        .side = side_of(ex, link, at, op),
        .shared = shared(ex, bridge, d),
        .gives = view(ex, d->from, true, link->from_pin),
        .takes = view(ex, d->to, false, link->to_pin),
    };
}

// Why a connection needs no bridge.
static const char *why_none(struct stk_explain *ex, const struct demand *d)
{
    const struct pen_plan *plan = ex->plan;
    const struct stk_plan_edge *e = &plan->edges[ex->way.edges[d->link->first]];
    const struct stk_plan_output *o = &d->from->output[d->link->from_pin];
    const char *how = stk_edge_how(plan, e);
    char wants[160], gives[200] = "";
    stk_wanted_text(stk_input_mems(plan, d->to, d->link->to_pin), wants,
                    sizeof(wants));
    stk_plan_caps_text(&e->caps, gives, sizeof(gives));
    struct stk_text t = { 0 };
    stk_text_addf(&t, "`%s.%s` takes %s, and gets %s of %s", d->to->id,
                  d->to_pin, wants, stk_home_text(stk_edge_home(e)), gives);
    if (*how)
        stk_text_addf(&t, ", %s: no byte is copied", how);
    if (o->upgraded_from)
        stk_text_addf(&t,
                      "; the pool of `%s.%s` was made of that instead of %s",
                      d->from->id, d->from_pin, pen_mem_name(o->upgraded_from));
    return stk_explain_take(ex, &t);
}

static enum pen_status find_causes(struct stk_explain *ex,
                                   struct pen_error *err)
{
    const struct pen_plan *plan = ex->plan;
    const struct stk_route *way = &ex->way;
    const size_t bridges = way->edge_count - way->link_count;
    ex->causes =
        stk_arena_alloc(&ex->arena, (bridges + 1) * sizeof(*ex->causes));
    ex->none = stk_arena_alloc(&ex->arena, ((size_t)way->link_count + 1) *
                                               sizeof(*ex->none));
    if (!ex->causes || !ex->none)
        return stk_plan_no_memory(err);
    for (uint32_t l = 0; l < way->link_count; l++) {
        const struct stk_link *link = &way->links[l];
        struct demand d = {
            .link = link,
            .from = &plan->nodes[link->from],
            .to = &plan->nodes[link->to],
        };
        const struct stk_plan_output *o = &d.from->output[link->from_pin];
        d.from_pin = d.from->cls->outputs[link->from_pin].name;
        d.to_pin = d.to->cls->inputs[link->to_pin].name;
        d.home = given_home(plan, d.from, link->from_pin);
        d.mask = stk_caps_mask(&o->caps);
        for (uint32_t k = 1; k < link->count; k++) {
            const uint32_t e = way->edges[link->first + k];
            d.converted =
                d.converted || is_conversion(stk_bridge_op(
                                   plan, &plan->nodes[plan->edges[e].from]));
        }
        for (uint32_t k = 1; k < link->count; k++)
            add_cause(ex, l, k, &d);
        if (link->count == 1)
            ex->none[l] = why_none(ex, &d);
    }
    if (ex->failed)
        return stk_plan_no_memory(err);
    return PEN_OK;
}

// --- the public face ---------------------------------------------------------

enum form { FORM_TEXT, FORM_COLOURED, FORM_JSON };

static char *explain(const struct pen_plan *plan, const char *from_to,
                     enum form form, struct pen_error *err)
{
    struct stk_explain ex = { .plan = plan };
    char *text = NULL;
    enum pen_status st = find_way(&ex, from_to, err);
    if (st == PEN_OK)
        st = stk_explain_base(&ex, err);
    if (st == PEN_OK)
        st = find_causes(&ex, err);
    if (st == PEN_OK)
        st = stk_explain_ask(&ex, err);
    if (st == PEN_OK) {
        text = form == FORM_JSON ? stk_explain_json(&ex)
                                 : stk_explain_tell(&ex, form == FORM_COLOURED);
        if (!text)
            stk_plan_no_memory(err);
    }
    stk_route_finish(&ex.way);
    pen_plan_destroy(&ex.base);
    stk_arena_finish(&ex.arena);
    return text;
}

char *pen_plan_explain(const struct pen_plan *plan, const char *from_to,
                       struct pen_error *err)
{
    return explain(plan, from_to, FORM_TEXT, err);
}

char *pen_plan_explain_coloured(const struct pen_plan *plan,
                                const char *from_to, struct pen_error *err)
{
    return explain(plan, from_to, FORM_COLOURED, err);
}

char *pen_plan_explain_json(const struct pen_plan *plan, const char *from_to,
                            struct pen_error *err)
{
    return explain(plan, from_to, FORM_JSON, err);
}
