// The planner: from a checked graph to a plan. A pure function of the
// description, the registry and the parameters; it opens no driver and creates
// nothing, and reads the headers of input files only when asked to.
//
// First the whole graph is chosen for (plan_joint.c), then it is built in
// topological order, so that what arrives at a module is there when its outputs
// are looked at.

#include "plan_joint.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum pen_status stk_plan_no_memory(struct pen_error *err)
{
    return pen_error_set(err, PEN_E_NOMEM, 0, "planner",
                         "no memory for the plan");
}

void stk_planner_error(struct stk_planner *p, const char *code,
                       const char *pointer, const char *suggestion,
                       const char *format, ...)
{
    char text[600];
    va_list args;
    va_start(args, format);
    vsnprintf(text, sizeof(text), format, args);
    va_end(args);
    stk_issue_add(p->issues, p->plan->desc, PEN_SEVERITY_ERROR, code, pointer,
                  suggestion, "%s", text);
    p->errors++;
    if (!strncmp(code, "E51", 3))
        p->limits++;
}

// --- growing ----------------------------------------------------------------

// At first there is room for the modules of the file and as many bridges.
static bool grow(const struct stk_planner *p, void **array, uint32_t *room,
                 size_t size)
{
    const uint32_t first =
        2 * (p->graph->node_count < UINT32_MAX / 8 ? p->graph->node_count : 0) +
        8;
    const uint32_t more = *room ? *room + *room / 2 : first;
    size_t bytes;
    if (more <= *room || !stk_mul(more, size, &bytes))
        return false;
    void *grown = realloc(*array, bytes);
    if (!grown)
        return false;
    *array = grown;
    *room = more;
    return true;
}

enum pen_status stk_planner_add_node(struct stk_planner *p, uint32_t *number,
                                     struct pen_error *err)
{
    struct pen_plan *plan = p->plan;
    if (plan->node_count == p->node_room) {
        void *nodes = plan->nodes;
        const bool ok = grow(p, &nodes, &p->node_room, sizeof(*plan->nodes));
        plan->nodes = nodes;
        if (!ok)
            return stk_plan_no_memory(err);
    }
    if (plan->node_count >= p->poison_room) {
        void *poison = p->poison;
        const bool ok = grow(p, &poison, &p->poison_room, sizeof(*p->poison));
        p->poison = poison;
        if (!ok)
            return stk_plan_no_memory(err);
    }
    if (plan->node_count >= p->aside_room) {
        void *aside = p->aside;
        const bool ok = grow(p, &aside, &p->aside_room, sizeof(*p->aside));
        p->aside = aside;
        if (!ok)
            return stk_plan_no_memory(err);
    }
    *number = plan->node_count++;
    struct stk_plan_node *node = &plan->nodes[*number];
    memset(node, 0, sizeof(*node));
    for (unsigned i = 0; i < PEN_MAX_PINS; i++)
        node->in_edge[i] = -1;
    p->poison[*number] = false;
    p->aside[*number] = (struct stk_aside){ 0 };
    return PEN_OK;
}

enum pen_status stk_planner_add_outputs(struct stk_planner *p,
                                        struct stk_plan_node *node,
                                        struct pen_error *err)
{
    node->output = stk_arena_alloc(&p->plan->arena,
                                   (node->outputs + 1) * sizeof(*node->output));
    return node->output ? PEN_OK : stk_plan_no_memory(err);
}

enum pen_status stk_planner_add_edge(struct stk_planner *p, uint32_t from,
                                     uint32_t from_pin, uint32_t to,
                                     uint32_t to_pin, uint32_t depth,
                                     enum stk_policy policy,
                                     struct pen_error *err)
{
    struct pen_plan *plan = p->plan;
    if (plan->edge_count == p->edge_room) {
        void *edges = plan->edges;
        const bool ok = grow(p, &edges, &p->edge_room, sizeof(*plan->edges));
        plan->edges = edges;
        if (!ok)
            return stk_plan_no_memory(err);
    }
    plan->nodes[to].in_edge[to_pin] = (int32_t)plan->edge_count;
    plan->edges[plan->edge_count++] = (struct stk_plan_edge){
        .from = from,
        .from_pin = from_pin,
        .to = to,
        .to_pin = to_pin,
        .depth = depth,
        .policy = policy,
    };
    return PEN_OK;
}

uint32_t stk_planner_depth(const struct stk_planner *p,
                           const struct stk_edge *edge)
{
    if (edge->desc && edge->desc->depth > 0)
        return (uint32_t)edge->desc->depth;
    if (p->graph->nodes[edge->to].base.queue > 0)
        return (uint32_t)p->graph->nodes[edge->to].base.queue;
    if (p->plan->desc && p->plan->desc->queue_depth > 0)
        return (uint32_t)p->plan->desc->queue_depth;
    return STK_DEFAULT_DEPTH;
}

// --- caps -------------------------------------------------------------------

void stk_planner_mould(struct stk_planner *p, const struct stk_node *node,
                       const struct stk_option *option)
{
    p->mould.id = node->desc->id;
    p->mould.cls = option->cls;
    p->mould.params = option->params;
    p->mould.base = option->base;
    p->mould.inputs = node->inputs;
    p->mould.outputs = node->outputs;
    p->mould.in = option->in;
    p->mould.out = option->out;
}

int64_t stk_planner_work(const struct stk_planner *p,
                         const struct pen_module_class *cls, const void *params,
                         const struct pen_caps *in, const struct pen_caps *out,
                         uint64_t bytes)
{
    struct pen_caps sized[2][PEN_MAX_PINS];
    if (!cls->ops.operations)
        return stk_cost_class(&p->plan->profile, cls, params, in, out, bytes);
    memcpy(sized[0], in, sizeof(sized[0]));
    memcpy(sized[1], out, sizeof(sized[1]));
    for (unsigned side = 0; side < 2; side++)
        for (unsigned i = 0; i < PEN_MAX_PINS; i++) {
            struct pen_caps *caps = &sized[side][i];
            if (stk_caps_mask(caps) &&
                (caps->width <= 0 || caps->height <= 0)) {
                caps->width = p->caps.width;
                caps->height = p->caps.height;
            } else if (caps->kind != PEN_KIND_NONE && caps->bytes == 0) {
                caps->bytes = p->caps.nominal;
            }
        }
    return stk_cost_class(&p->plan->profile, cls, params, sized[0], sized[1],
                          bytes);
}

// What flows on the edges into a node.
static void caps_in(struct stk_planner *p, uint32_t number,
                    struct pen_caps in[PEN_MAX_PINS])
{
    const struct pen_plan *plan = p->plan;
    const struct stk_plan_node *node = &plan->nodes[number];
    for (uint32_t i = 0; i < node->inputs; i++) {
        if (node->in_edge[i] < 0)
            continue;
        const struct stk_plan_edge *e = &plan->edges[node->in_edge[i]];
        if (p->poison[e->from])
            p->poison[number] = true;
        in[i] = plan->nodes[e->from].output[e->from_pin].caps;
    }
    // What does not fit was told; behind it goes on what was supposed.
    const uint32_t from = p->aside[number].node;
    for (uint32_t n = p->first_in[from];
         n < p->first_in[from + 1] && !node->inserted; n++)
        if (p->decision.amiss[p->in[n]])
            in[p->graph->edges[p->in[n]].to_pin] =
                p->caps.caps[p->decision.arrives[p->in[n]]];
}

enum pen_status stk_planner_caps(struct stk_planner *p, uint32_t number,
                                 struct pen_error *err)
{
    struct pen_plan *plan = p->plan;
    struct stk_plan_node *node = &plan->nodes[number];
    const struct stk_aside *a = &p->aside[number];
    const struct stk_source *source = node->inserted || !p->sources[a->node]
                                          ? NULL
                                          : &p->sources[a->node][a->option];
    struct pen_caps in[PEN_MAX_PINS] = { 0 }, out[PEN_MAX_PINS] = { 0 };
    struct pen_error error = { 0 };
    uint32_t refused;
    enum pen_status st;
    caps_in(p, number, in);
    if (p->poison[number])
        return PEN_OK;
    if (source) {
        st = source->usable ? PEN_OK : source->error.status;
        refused = source->refused;
        memcpy(out, source->caps, sizeof(out));
        error = source->error;
    } else {
        st = stk_plan_negotiate(node, in, out, &refused, &error);
    }
    if (st == PEN_E_NOMEM)
        return stk_plan_no_memory(err);
    if (st == PEN_OK && refused) {
        char text[160];
        stk_mask_text(refused, text, sizeof(text));
        stk_issue_add(
            p->issues, plan->desc, PEN_SEVERITY_WARNING, "W311", node->pointer,
            "", "`%s` fails if a frame of format %s arrives", node->id, text);
    }
    for (uint32_t o = 0; o < node->outputs && st == PEN_OK; o++) {
        node->output[o].caps = out[o];
        st = stk_caps_bytes(&out[o], &node->output[o].block_bytes, &error);
    }
    if (st != PEN_OK) {
        stk_planner_error(p, st == PEN_E_LIMIT ? "E512" : "E310", node->pointer,
                          "", "`%s`: %s", node->id, error.text);
        p->poison[number] = true;
    }
    return PEN_OK;
}

// --- nodes ------------------------------------------------------------------

// Frames that leave by one output cannot be on the host and on the device.
static void check_sides(struct stk_planner *p, uint32_t number)
{
    const struct stk_plan_node *node = &p->plan->nodes[number];
    bool device = false, other = false;
    if (!stk_node_gathers(node->cls, node->inputs))
        return;
    for (uint32_t i = 0; i < node->inputs; i++) {
        if (node->in_edge[i] < 0)
            continue;
        const struct stk_plan_edge *e = &p->plan->edges[node->in_edge[i]];
        const uint32_t home = STK_HOME_BIT(
            stk_output_home(&p->plan->nodes[e->from].output[e->from_pin]));
        device = device || (home & STK_HOMES_CUDA);
        other = other || (home & STK_HOMES_HOST);
    }
    if (!device || !other)
        return;
    stk_planner_error(p, "E310", node->pointer,
                      "put a CudaMemCopy before one of them",
                      "`%s` passes frames of its inputs on, and they cannot "
                      "all be on one side of the machine",
                      node->id);
    p->poison[number] = true;
}

// A plan node for a module of the file, of the class that was chosen.
static enum pen_status add_module(struct stk_planner *p, uint32_t from,
                                  uint32_t *number, struct pen_error *err)
{
    const struct stk_node *node = &p->graph->nodes[from];
    const uint32_t chosen = p->decision.option[from];
    PEN_TRY(stk_planner_add_node(p, number, err));
    struct stk_plan_node *made = &p->plan->nodes[*number];
    struct stk_aside *a = &p->aside[*number];
    a->node = from;
    a->option = chosen == UINT32_MAX ? 0 : chosen;
    const struct stk_option *option = &node->options[a->option];
    made->id = node->desc->id;
    made->type = node->desc->type;
    made->pointer = node->desc->pointer;
    made->reason = made->serves = made->loss = made->choice = "";
    made->cls = option->cls;
    made->copies = stk_class_copies(option->cls);
    made->params = option->params;
    made->base = option->base;
    made->inputs = node->inputs;
    made->outputs = node->outputs;
    made->in = option->in;
    made->out = option->out;
    return stk_planner_add_outputs(p, made, err);
}

// The edges into a module. What flows must be what was expected, or the choice
// was made for another graph.
static enum pen_status join_edges(struct stk_planner *p, uint32_t from,
                                  uint32_t number, struct pen_error *err)
{
    for (uint32_t n = p->first_in[from]; n < p->first_in[from + 1]; n++) {
        const uint32_t edge = p->in[n];
        const struct stk_edge *e = &p->graph->edges[edge];
        const struct stk_pending *pending = &p->pending[edge];
        if (pending->from == UINT32_MAX) {
            p->poison[number] = true;
            continue;
        }
        const struct pen_caps *caps =
            &p->plan->nodes[pending->from].output[pending->from_pin].caps;
        const uint32_t expected = p->decision.arrives[edge];
        if (expected == STK_NO_CAPS ||
            !stk_caps_same(caps, &p->caps.caps[expected]))
            p->foreseen = false;
        PEN_TRY(stk_planner_add_edge(p, pending->from, pending->from_pin,
                                     number, e->to_pin, stk_planner_depth(p, e),
                                     e->desc ? e->desc->policy : STK_BLOCK,
                                     err));
    }
    return PEN_OK;
}

static enum pen_status place_node(struct stk_planner *p, uint32_t from,
                                  struct pen_error *err)
{
    struct pen_plan *plan = p->plan;
    uint32_t number = 0;
    PEN_TRY(add_module(p, from, &number, err));
    PEN_TRY(join_edges(p, from, number, err));
    check_sides(p, number);
    PEN_TRY(stk_planner_caps(p, number, err));
    struct stk_plan_node *made = &plan->nodes[number];
    const struct pen_caps *in = NULL;
    if (made->inputs && made->in_edge[0] >= 0) {
        const struct stk_plan_edge *e = &plan->edges[made->in_edge[0]];
        in = &plan->nodes[e->from].output[e->from_pin].caps;
    }
    made->forwards =
        stk_node_hands_through(plan, made) ||
        stk_node_lets_through(made->cls, made->inputs, made->outputs, in,
                              &made->output[0].caps);
    uint32_t begin = p->first[from];
    const uint32_t end = p->first[from + 1], outputs = made->outputs;
    for (uint32_t pin = 0; pin < outputs; pin++) {
        uint32_t stop = begin;
        while (stop < end && p->graph->edges[p->out[stop]].from_pin == pin)
            stop++;
        for (uint32_t n = begin; n < stop; n++)
            p->pending[p->out[n]].from = UINT32_MAX;
        if (!p->poison[number])
            PEN_TRY(stk_plan_place(p, number, pin, begin, stop, err));
        begin = stop;
    }
    return PEN_OK;
}

static enum pen_status place_all(struct stk_planner *p, struct pen_error *err)
{
    const struct stk_graph *g = p->graph;
    const struct pen_profile *profile = &p->plan->profile;
    PEN_TRY(stk_plan_order(p, err));
    stk_templates_find(p);
    PEN_TRY(stk_plan_ask_sources(p, err));
    p->load_share = stk_cost_share(profile->load_ns, p->plan->frames);
    p->context_share = stk_cost_share(profile->context_ns, p->plan->frames);
    PEN_TRY(stk_plan_choose(p, &p->decision, err));
    for (uint32_t i = 0; i < g->node_count; i++)
        PEN_TRY(place_node(p, p->sequence[i], err));
    if (p->decision.value.bad && !p->errors)
        stk_planner_error(p, "E310", "", "",
                          "no choice of classes and bridges fits");
    return PEN_OK;
}

// --- finishing --------------------------------------------------------------

// Pools upstream may have been upgraded after a module that passes their frames
// on was placed.
static void settle_memory(struct pen_plan *plan)
{
    for (uint32_t n = 0; n < plan->node_count; n++) {
        struct stk_plan_node *node = &plan->nodes[n];
        uint32_t passed = 0;
        if (!stk_node_hands_through(plan, node))
            continue;
        node->forwards = true;
        for (uint32_t i = 0; i < node->inputs; i++) {
            if (node->in_edge[i] < 0)
                continue;
            const struct stk_plan_edge *e = &plan->edges[node->in_edge[i]];
            passed |= STK_HOME_BIT(
                stk_output_home(&plan->nodes[e->from].output[e->from_pin]));
        }
        if (!passed)
            continue;
        const enum stk_home home = stk_homes_promise(passed);
        for (uint32_t o = 0; o < node->outputs; o++) {
            const enum pen_mem_type mem = node->output[o].mem;
            if (mem == PEN_MEM_HOST || mem == PEN_MEM_CUDA_DEVICE)
                stk_output_set_home(&node->output[o], home);
        }
    }
    for (uint32_t i = 0; i < plan->edge_count; i++) {
        struct stk_plan_edge *e = &plan->edges[i];
        const struct stk_plan_output *o =
            &plan->nodes[e->from].output[e->from_pin];
        e->mem = o->mem;
        e->kind = o->kind;
        e->caps = o->caps;
        e->formats = stk_caps_mask(&o->caps);
    }
}

static int compare(uint32_t a, uint32_t b)
{
    return (a > b) - (a < b);
}

static bool edge_after(const struct stk_plan_edge *a,
                       const struct stk_plan_edge *b)
{
    int c = compare(a->from_pin, b->from_pin);
    if (!c)
        c = compare(a->to, b->to);
    return (c ? c : compare(a->to_pin, b->to_pin)) > 0;
}

// Edges were made in the order of their consumers; sort them by producer.
static enum pen_status sort_plan_edges(struct pen_plan *plan,
                                       struct pen_error *err)
{
    const uint32_t nodes = plan->node_count, edges = plan->edge_count;
    uint32_t *first =
        stk_arena_alloc(&plan->arena, ((size_t)nodes + 2) * sizeof(*first));
    struct stk_plan_edge *sorted = calloc((size_t)edges + 1, sizeof(*sorted));
    plan->marks = stk_arena_alloc(&plan->arena, (size_t)nodes + 1);
    if (!first || !sorted || !plan->marks) {
        free(sorted);
        return stk_plan_no_memory(err);
    }
    for (uint32_t e = 0; e < edges; e++)
        first[plan->edges[e].from + 2]++;
    for (uint32_t i = 2; i < nodes + 2; i++)
        first[i] += first[i - 1];
    for (uint32_t e = 0; e < edges; e++)
        sorted[first[plan->edges[e].from + 1]++] = plan->edges[e];
    // Within a producer they are in order already unless it has several pins.
    for (uint32_t e = 1; e < edges; e++)
        for (uint32_t k = e; k > 0 && sorted[k - 1].from == sorted[k].from &&
                             edge_after(&sorted[k - 1], &sorted[k]);
             k--) {
            const struct stk_plan_edge swap = sorted[k];
            sorted[k] = sorted[k - 1];
            sorted[k - 1] = swap;
        }
    free(plan->edges);
    plan->edges = sorted;
    plan->first_out = first;
    for (uint32_t e = 0; e < edges; e++)
        plan->nodes[sorted[e].to].in_edge[sorted[e].to_pin] = (int32_t)e;
    return PEN_OK;
}

struct touched {
    const char *path;
    unsigned flags;
};

static int by_path(const void *left, const void *right)
{
    const struct touched *a = left, *b = right;
    return strcmp(a->path, b->path);
}

// All paths of a plan into `list` (NULL: only count them).
static uint32_t find_paths(const struct pen_plan *plan, struct touched *list)
{
    const unsigned touches = PEN_PROP_PATH_READ | PEN_PROP_PATH_WRITE;
    uint32_t count = 0;
    for (uint32_t n = 0; n < plan->node_count; n++) {
        const struct stk_plan_node *node = &plan->nodes[n];
        for (const struct pen_prop *row = node->cls->props; row && row->kind;
             row++) {
            struct touched t = { .flags = row->flags & touches };
            if (row->kind != PEN_PROP_STRING || !t.flags)
                continue;
            t.path = stk_prop_string(row, node->params);
            if (!*t.path)
                continue;
            if (list)
                list[count] = t;
            count++;
        }
    }
    return count;
}

static enum pen_status list_paths(struct pen_plan *plan, struct pen_error *err)
{
    const size_t count = find_paths(plan, NULL);
    struct touched *list = calloc(count + 1, sizeof(*list));
    plan->paths =
        stk_arena_alloc(&plan->arena, (count + 1) * sizeof(*plan->paths));
    plan->path_flags =
        stk_arena_alloc(&plan->arena, (count + 1) * sizeof(*plan->path_flags));
    if (!list || !plan->paths || !plan->path_flags) {
        free(list);
        return stk_plan_no_memory(err);
    }
    find_paths(plan, list);
    qsort(list, count, sizeof(*list), by_path);
    for (size_t i = 0; i < count; i++) {
        if (i == 0 || strcmp(list[i].path, list[i - 1].path) != 0)
            plan->paths[plan->path_count++] = list[i].path;
        plan->path_flags[plan->path_count - 1] |= list[i].flags;
    }
    free(list);
    return PEN_OK;
}

static bool needs_device(const struct pen_plan *plan)
{
    for (uint32_t n = 0; n < plan->node_count; n++) {
        const struct stk_plan_node *node = &plan->nodes[n];
        if (node->cls->flags & PEN_CLASS_CUDA)
            return true;
        for (uint32_t o = 0; o < node->outputs; o++)
            if (node->output[o].mem != PEN_MEM_NONE &&
                node->output[o].mem != PEN_MEM_HOST)
                return true;
    }
    return false;
}

// The first error of `issues` as the result.
static enum pen_status refuse(const struct stk_planner *p,
                              struct pen_error *err)
{
    const enum pen_status st =
        p->limits == p->errors ? PEN_E_LIMIT : PEN_E_CONFIG;
    for (size_t i = 0;; i++) {
        const struct pen_issue *issue = pen_issues_get(p->issues, i);
        if (!issue)
            return pen_error_set(err, st, 0, "", "the pipeline has errors");
        if (issue->severity == PEN_SEVERITY_ERROR)
            return pen_error_set(err, st, 0, issue->pointer, "%s",
                                 issue->message);
    }
}

static enum pen_status check_budgets(struct stk_planner *p,
                                     struct pen_error *err)
{
    const struct pen_description *desc = p->plan->desc;
    struct stk_excess excess = { 0 };
    for (;;) {
        char pointer[64] = "", suggestion[400];
        struct pen_error error = { 0 };
        const enum pen_status st = stk_plan_budgets(p->plan, &excess, &error);
        if (st == PEN_OK)
            break;
        if (st != PEN_E_LIMIT) {
            if (err)
                *err = error;
            return st;
        }
        int line, column;
        snprintf(pointer, sizeof(pointer), "/settings/budget/%s", excess.key);
        if (!desc || !desc->positions ||
            !stk_positions_find(desc->positions, pointer, strlen(pointer),
                                &line, &column))
            pointer[0] = '\0';
        stk_plan_lower(p->plan, &excess, suggestion, sizeof(suggestion));
        stk_planner_error(p, excess.code, pointer, suggestion, "%s",
                          error.text);
    }
    return p->errors ? refuse(p, err) : PEN_OK;
}

// Modules whose pictures have sizes that are not known and not those of what
// they get.
static unsigned open_sizes(const struct pen_plan *plan)
{
    unsigned count = 0;
    for (uint32_t n = 0; n < plan->node_count; n++) {
        const struct stk_plan_node *node = &plan->nodes[n];
        bool own = true, open = false;
        for (uint32_t i = 0; i < node->inputs && own; i++) {
            if (node->in_edge[i] < 0)
                continue;
            const struct pen_caps *caps = &plan->edges[node->in_edge[i]].caps;
            own = !stk_caps_mask(caps) || caps->width > 0;
        }
        for (uint32_t o = 0; o < node->outputs; o++)
            open = open || (stk_caps_mask(&node->output[o].caps) &&
                            node->output[o].caps.width <= 0);
        count += own && open;
    }
    return count;
}

static void set_optimal(struct stk_planner *p)
{
    struct pen_plan *plan = p->plan;
    const struct stk_value *value = &p->decision.value;
    const struct stk_value *bound = &p->decision.bound;
    // Which pools to stage is decided one after the other, and what else would
    // keep a budget was not looked for.
    plan->optimal =
        p->decision.proven && p->foreseen && !p->staged && !p->host_first;
    // All sizes were taken to grow together.
    if (plan->optimal && p->caps.sized && open_sizes(plan) > 1)
        plan->optimal = plan->node_count == p->graph->node_count && !p->generic;
    plan->gap_loss = bound->bad != value->bad || bound->loss != value->loss;
    plan->gap_ns = plan->gap_loss
                       ? 0
                       : value->cost / PLACE_TICKS - bound->cost / PLACE_TICKS;
}

static void set_once(struct pen_plan *plan)
{
    bool device = false;
    plan->once_ns = 0;
    for (uint32_t n = 0; n < plan->node_count; n++) {
        if (!(plan->nodes[n].cls->flags & PEN_CLASS_CUDA))
            continue;
        device = true;
        plan->once_ns += plan->profile.load_ns;
    }
    if (device)
        plan->once_ns += plan->profile.context_ns;
}

// Nodes, edges, memory and sizes.
static enum pen_status lay(struct stk_planner *p, struct pen_error *err)
{
    struct pen_plan *plan = p->plan;
    const struct stk_graph *g = p->graph;
    p->first = calloc((size_t)g->node_count + 1, sizeof(*p->first));
    p->out = calloc((size_t)g->edge_count + 1, sizeof(*p->out));
    p->pending = calloc((size_t)g->edge_count + 1, sizeof(*p->pending));
    p->first_in = calloc((size_t)g->node_count + 2, sizeof(*p->first_in));
    p->in = calloc((size_t)g->edge_count + 1, sizeof(*p->in));
    p->sequence = calloc((size_t)g->node_count + 1, sizeof(*p->sequence));
    p->sources = calloc((size_t)g->node_count + 1, sizeof(struct stk_source *));
    if (!p->first || !p->out || !p->pending || !p->first_in || !p->in ||
        !p->sequence || !p->sources)
        return stk_plan_no_memory(err);
    PEN_TRY(place_all(p, err));
    if (p->errors)
        return refuse(p, err);
    settle_memory(plan);
    PEN_TRY(sort_plan_edges(plan, err));
    PEN_TRY(list_paths(plan, err));
    plan->needs_device = needs_device(plan);
    set_optimal(p);
    set_once(plan);
    PEN_TRY(stk_plan_tell_choices(p, err));
    return stk_plan_size(plan, err);
}

static enum pen_status judge(struct stk_planner *p, struct pen_error *err)
{
    const struct pen_plan *plan = p->plan;
    PEN_TRY(check_budgets(p, err));
    if (plan->needs_device && !plan->profile.cuda)
        stk_issue_add(p->issues, plan->desc, PEN_SEVERITY_INFO, "I320", "", "",
                      "profile `%s` has no CUDA device; costs are those of "
                      "the emulated device",
                      plan->profile.name);
    PEN_TRY(stk_plan_advise(p, err));
    return stk_issues_failed(p->issues) ? stk_plan_no_memory(err) : PEN_OK;
}

static void planner_finish(struct stk_planner *p)
{
    stk_decision_finish(&p->decision);
    stk_search_finish(&p->search);
    stk_boards_finish(&p->boards);
    stk_caps_finish(&p->caps);
    free(p->first);
    free(p->out);
    free(p->first_in);
    free(p->in);
    free(p->sequence);
    free(p->sources);
    free(p->pending);
    free(p->poison);
    free(p->aside);
}

// As before the first node. What stands in the arena stays there.
static void forget_nodes(struct pen_plan *plan)
{
    free(plan->nodes);
    free(plan->edges);
    plan->nodes = NULL;
    plan->edges = NULL;
    plan->first_out = NULL;
    plan->node_count = plan->edge_count = plan->path_count = 0;
    plan->frames = plan->params.frames;
}

// What a plan is made of, and what is tried.
struct making {
    struct pen_plan *plan;
    const struct stk_graph *graph;
    const struct stk_ban *bans;
    size_t ban_count;
    struct stk_stage stage;
    bool host_first;  // generic types are to be of the host
    bool again;       // a better plan can be had with what `stage` now says
    bool device;      // some generic type may have become one of the device
};

// One plan, with what is said of it in `issues`.
static enum pen_status make_once(struct making *m, struct pen_issues *issues,
                                 struct pen_error *err)
{
    struct stk_planner p = {
        .plan = m->plan,
        .graph = m->graph,
        .issues = issues,
        .bans = m->bans,
        .ban_count = m->ban_count,
        .foreseen = true,
        .host_first = m->host_first,
        .staged = m->stage.formats,
    };
    m->again = false;
    enum pen_status st = lay(&p, err);
    if (st == PEN_OK)
        st = stk_plan_stage_more(&p, &m->stage, &m->again, err);
    if (st == PEN_OK && !m->again)
        st = judge(&p, err);
    if (st == PEN_OK && !m->again)
        stk_plan_stage_tell(&p, &m->stage);
    m->device = p.generic && p.decision.device;
    planner_finish(&p);
    return st;
}

// What is said of a plan that is made anew is nobody's news: `*issues` are
// those of the last one.
static enum pen_status make_staged(struct making *m, struct pen_issues **issues,
                                   struct pen_error *err)
{
    enum pen_status st = PEN_OK;
    *issues = NULL;
    do {
        pen_issues_destroy(issues);
        *issues = pen_issues_create();
        if (!*issues) {
            st = stk_plan_no_memory(err);
            break;
        }
        st = make_once(m, *issues, err);
        if (st == PEN_OK && m->again)
            forget_nodes(m->plan);
    } while (st == PEN_OK && m->again);
    free(m->stage.formats);
    m->stage = (struct stk_stage){ 0 };
    return st;
}

// The cheapest plan is over a budget; maybe it is not if generic types stay on
// the host.
static enum pen_status make_within(struct making *m, struct pen_issues **issues,
                                   enum pen_status failed,
                                   struct pen_error *err)
{
    struct pen_issues *other;
    struct pen_error error = { 0 };
    forget_nodes(m->plan);
    m->host_first = true;
    const enum pen_status st = make_staged(m, &other, &error);
    if (st == PEN_OK) {
        stk_issue_add(other, m->plan->desc, PEN_SEVERITY_INFO, "I510", "", "",
                      "generic types stay on the host, since the cheapest plan "
                      "is over a budget: %s",
                      err ? err->text : "");
        pen_issues_destroy(issues);
        *issues = other;
        if (err)
            *err = error;
        return PEN_OK;
    }
    pen_issues_destroy(&other);
    if (st != PEN_E_NOMEM)
        return failed;
    if (err)
        *err = error;
    return st;
}

// The whole: plan->desc, registry, params, profile and budgets are given.
static enum pen_status make_plan(struct pen_plan *plan,
                                 const struct stk_graph *graph,
                                 const struct stk_ban *bans, size_t ban_count,
                                 struct pen_issues *issues,
                                 struct pen_error *err)
{
    struct making m = {
        .plan = plan, .graph = graph, .bans = bans, .ban_count = ban_count
    };
    struct pen_error error = { 0 };
    struct pen_issues *said;
    enum pen_status st = make_staged(&m, &said, &error);
    if (st == PEN_E_LIMIT && m.device)
        st = make_within(&m, &said, st, &error);
    if (said)
        stk_issues_append(issues, said);
    pen_issues_destroy(&said);
    if (st == PEN_OK && stk_issues_failed(issues))
        return stk_plan_no_memory(err);
    if (st != PEN_OK && err)
        *err = error;
    return st;
}

// --- the public face --------------------------------------------------------

static void set_budgets(struct pen_plan *plan)
{
    const struct pen_description *desc = plan->desc;
    struct pen_plan_params *params = &plan->params;
    const uint64_t host = plan->profile.host_memory ? plan->profile.host_memory
                                                    : stk_machine_memory();
    bool given = false;
    for (unsigned m = PEN_MEM_HOST; m < PEN_MEM_COUNT; m++) {
        uint64_t budget = params->budget[m];
        if (budget == 0)
            budget = desc->budget[m];
        // A DMABUF of the device counts as memory of the device.
        if (m != PEN_MEM_CUDA_DEVICE) {
            given = given || budget;
            if (budget == 0)
                budget = host / 2;
        }
        if (budget == 0 && m == PEN_MEM_CUDA_DEVICE)
            budget = plan->profile.cuda_memory / 10 * 9;
        params->budget[m] = plan->budget[m] = budget;
    }
    plan->host_budget = given ? 0 : host / 2;
    if (!params->h2d_limited && desc->h2d_per_frame >= 0) {
        params->h2d_limited = true;
        params->h2d_per_frame = (uint32_t)desc->h2d_per_frame;
    }
    if (!params->d2h_limited && desc->d2h_per_frame >= 0) {
        params->d2h_limited = true;
        params->d2h_per_frame = (uint32_t)desc->d2h_per_frame;
    }
    plan->frames = params->frames;
}

enum pen_status stk_plan_create(const struct pen_description *desc,
                                const struct pen_registry *registry,
                                const struct pen_plan_params *params,
                                const struct stk_ban *bans, size_t ban_count,
                                struct pen_plan **out,
                                struct pen_issues *issues,
                                struct pen_error *err)
{
    *out = NULL;
    struct pen_plan *plan = calloc(1, sizeof(*plan));
    if (!plan)
        return stk_plan_no_memory(err);
    plan->desc = desc;
    plan->registry = registry;
    if (params)
        plan->params = *params;
    plan->profile = params && params->profile
                        ? *params->profile
                        : *pen_profile_builtin("generic-cuda");
    plan->params.profile = &plan->profile;
    set_budgets(plan);

    struct stk_graph *graph = NULL;
    enum pen_status st =
        stk_graph_resolve(desc, registry, &plan->arena, &graph, issues, err);
    if (st == PEN_OK)
        st = make_plan(plan, graph, bans, ban_count, issues, err);
    if (st != PEN_OK) {
        pen_plan_destroy(&plan);
        return st;
    }
    *out = plan;
    return PEN_OK;
}

enum pen_status pen_plan_create(const struct pen_description *desc,
                                const struct pen_registry *registry,
                                const struct pen_plan_params *params,
                                struct pen_plan **out,
                                struct pen_issues *issues,
                                struct pen_error *err)
{
    return stk_plan_create(desc, registry, params, NULL, 0, out, issues, err);
}

void pen_plan_destroy(struct pen_plan **plan)
{
    if (!*plan)
        return;
    free((*plan)->nodes);
    free((*plan)->edges);
    stk_arena_finish(&(*plan)->arena);
    free(*plan);
    *plan = NULL;
}

bool pen_plan_provisional(const struct pen_plan *plan)
{
    return plan->provisional;
}

bool pen_plan_needs_device(const struct pen_plan *plan)
{
    return plan->needs_device;
}

uint64_t pen_plan_peak(const struct pen_plan *plan, enum pen_mem_type mem)
{
    return (unsigned)mem < PEN_MEM_COUNT ? plan->peak[mem] : 0;
}
