// Advice about a finished plan: what it costs that the pipeline is written as
// it is, and what would be cheaper. Nothing is said where nothing is to be
// gained.
//
// Everything is linear in the size of the plan: groups of nodes with one cause
// are made by passes over all nodes, and each node is told about once.

#include "plan_advise.h"

#include <stdlib.h>
#include <string.h>

// --- words ------------------------------------------------------------------

void stk_advice_begin(struct stk_advice *a)
{
    a->text.length = a->fix.length = 0;
    a->fixes = 0;
}

void stk_advice_issue(struct stk_advice *a, const char *code,
                      const char *pointer)
{
    if (a->text.failed || a->fix.failed) {
        a->failed = true;
        return;
    }
    stk_issue_add(a->p->issues, a->plan->desc, PEN_SEVERITY_WARNING, code,
                  pointer, a->fix.length ? a->fix.data : "", "%s",
                  a->text.length ? a->text.data : "");
}

void stk_advice_name(struct stk_text *t, const char *id)
{
    stk_text_add_n(t, "`", 1);
    stk_text_add(t, id);
    stk_text_add_n(t, "`", 1);
}

// Without printf: a plan may have thousands of findings.
static void add_number(struct stk_text *t, uint64_t number)
{
    char digits[24];
    size_t at = sizeof(digits);
    do
        digits[--at] = (char)('0' + number % 10);
    while ((number /= 10) != 0);
    stk_text_add_n(t, digits + at, sizeof(digits) - at);
}

void stk_advice_gain(struct stk_advice *a, const char *verb,
                     const struct stk_gain *gain)
{
    if (!gain->known || gain->ns <= 0)
        return;
    stk_text_add(&a->text, "; ");
    stk_text_add(&a->text, verb);
    stk_text_add(&a->text, " ");
    if (gain->bytes > 0) {
        char size[32];
        stk_format_size((uint64_t)gain->bytes, size, sizeof(size));
        stk_text_add(&a->text, size);
        stk_text_add(&a->text, " and ");
    }
    add_number(&a->text, (uint64_t)gain->ns / 1000);
    stk_text_add(&a->text, ".");
    add_number(&a->text, (uint64_t)gain->ns % 1000 / 100);
    stk_text_add(&a->text, " us a frame");
}

void stk_advice_fix(struct stk_advice *a, const char *words)
{
    if (a->fixes++)
        stk_text_add(&a->fix, "; ");
    stk_text_add(&a->fix, words);
}

void stk_advice_fix_type(struct stk_advice *a, const struct stk_plan_node *node,
                         const struct pen_module_class *cls)
{
    stk_advice_fix(a, "make ");
    stk_advice_name(&a->fix, node->id);
    stk_text_add(&a->fix, " a ");
    stk_text_add(&a->fix, cls->name);
    // A generic type keeps its name; the file says where it works.
    const bool generic = strcmp(node->type, node->cls->name) != 0 &&
                         pen_generic_type_find(node->type);
    stk_text_add(&a->fix, generic ? ": \"backend\": \"" : ": \"type\": \"");
    stk_text_add(&a->fix, generic ? stk_backend_name(stk_class_backend(cls))
                                  : cls->name);
    stk_text_add(&a->fix, "\"");
    if (!generic && node->base.backend != STK_BACKEND_AUTO)
        stk_text_add(&a->fix, ", without \"backend\"");
}

static void add_json(struct stk_text *t, const char *s)
{
    static const char hex[] = "0123456789abcdef";
    for (; *s; s++) {
        const unsigned char c = (unsigned char)*s;
        const char control[] = {
            '\\', 'u', '0', '0', hex[c >> 4], hex[c & 15]
        };
        if (c < 0x20)
            stk_text_add_n(t, control, sizeof(control));
        else if (c == '"' || c == '\\')
            stk_text_add_n(t, c == '"' ? "\\\"" : "\\\\", 2);
        else
            stk_text_add_n(t, s, 1);
    }
}

static void add_end(struct stk_text *t, const char *key, const char *id,
                    const struct pen_pin *pins, uint32_t pin)
{
    stk_text_add(t, key);
    add_json(t, id);
    if (pins[0].name && pins[1].name) {
        stk_text_add(t, ".");
        add_json(t, pins[pin].name);
    }
    stk_text_add(t, "\"");
}

static void add_connection(struct stk_advice *a, uint32_t from,
                           uint32_t from_pin, uint32_t to, uint32_t to_pin)
{
    const struct stk_plan_node *source = &a->plan->nodes[from];
    const struct stk_plan_node *target = &a->plan->nodes[to];
    add_end(&a->fix, "{ \"from\": \"", source->id, source->cls->outputs,
            from_pin);
    add_end(&a->fix, ", \"to\": \"", target->id, target->cls->inputs, to_pin);
    stk_text_add(&a->fix, " }");
}

void stk_advice_fix_swap(struct stk_advice *a, uint32_t one, uint32_t two)
{
    const struct pen_plan *plan = a->plan;
    const struct stk_plan_edge *e = &plan->edges[plan->nodes[one].in_edge[0]];
    stk_advice_fix(a, "connect ");
    add_connection(a, e->from, e->from_pin, two, 0);
    stk_text_add(&a->fix, ", ");
    add_connection(a, two, 0, one, 0);
    for (uint32_t i = plan->first_out[two]; i < plan->first_out[two + 1]; i++) {
        stk_text_add(&a->fix, ", ");
        add_connection(a, one, 0, plan->edges[i].to, plan->edges[i].to_pin);
    }
}

// The edge by which frames came before the nodes that go.
static const struct stk_plan_edge *origin(const struct stk_advice *a,
                                          uint32_t node)
{
    const struct pen_plan *plan = a->plan;
    const struct stk_plan_edge *e;
    do {
        if (plan->nodes[node].in_edge[0] < 0)
            return NULL;
        e = &plan->edges[plan->nodes[node].in_edge[0]];
        node = e->from;
    } while (plan->nodes[node].inserted || a->traces[node].dropped);
    return e;
}

// Connect `from` with what takes the frames of `node` in the file.
static void connect(struct stk_advice *a, const struct stk_plan_edge *from,
                    uint32_t node, bool removed, unsigned *count)
{
    const struct pen_plan *plan = a->plan;
    for (uint32_t i = plan->first_out[node]; i < plan->first_out[node + 1];
         i++) {
        const struct stk_plan_edge *e = &plan->edges[i];
        const struct stk_plan_node *to = &plan->nodes[e->to];
        const struct stk_trace *t = &a->traces[e->to];
        if (a->traces[node].kept && !t->dropped && t->set != a->set)
            continue;
        if (to->inserted) {
            connect(a, from, e->to, removed, count);
            continue;
        }
        if (t->dropped)
            continue;
        if ((*count)++)
            stk_text_add(&a->fix, ", ");
        else if (removed)
            stk_text_add(&a->fix, ", and connect ");
        else
            stk_advice_fix(a, "connect ");
        add_connection(a, from->from, from->from_pin, e->to, e->to_pin);
    }
}

void stk_advice_drop(struct stk_advice *a, uint32_t node, bool kept)
{
    struct stk_trace *t = &a->traces[node];
    if (t->dropped)
        return;
    t->dropped = true;
    t->kept = kept;
    a->drop[a->drop_count++] = node;
}

void stk_advice_fix_drop(struct stk_advice *a, int32_t instead)
{
    const struct pen_plan *plan = a->plan;
    uint32_t removed = 0, left = 0;
    unsigned count = 0;
    for (uint32_t i = 0; i < a->drop_count; i++)
        left +=
            !a->traces[a->drop[i]].kept && !plan->nodes[a->drop[i]].inserted;
    for (uint32_t i = 0; i < a->drop_count; i++) {
        if (a->traces[a->drop[i]].kept || plan->nodes[a->drop[i]].inserted)
            continue;
        left--;
        if (removed++ == 0)
            stk_advice_fix(a, "remove ");
        else
            stk_text_add(&a->fix, left ? ", " : " and ");
        stk_advice_name(&a->fix, plan->nodes[a->drop[i]].id);
    }
    for (uint32_t i = 0; i < a->drop_count; i++) {
        const struct stk_plan_edge *from =
            instead == STK_NO_NODE ? origin(a, a->drop[i])
                                   : &plan->edges[plan->first_out[instead]];
        if (from)
            connect(a, from, a->drop[i], removed > 0, &count);
    }
    stk_advice_forget(a);
}

void stk_advice_forget(struct stk_advice *a)
{
    while (a->drop_count) {
        struct stk_trace *t = &a->traces[a->drop[--a->drop_count]];
        t->dropped = t->kept = false;
    }
}

// --- prices -----------------------------------------------------------------

bool stk_advice_pays(const struct stk_advice *a, const struct stk_gain *gain)
{
    const uint64_t frames = a->plan->frames;
    const int64_t load =
        frames ? (int64_t)((uint64_t)a->plan->profile.load_ns / frames) : 0;
    return !gain->known || gain->ns + load * gain->loads > 0;
}

uint64_t stk_advice_bytes(const struct stk_advice *a,
                          const struct stk_plan_edge *e)
{
    return a->plan->nodes[e->from].output[e->from_pin].block_bytes;
}

void stk_advice_copy(const struct stk_advice *a, struct stk_gain *gain,
                     enum stk_transfer which, uint64_t bytes, int sign)
{
    const int64_t ns =
        stk_cost_transfer(&a->plan->profile, which, bytes, bytes);
    gain->known = gain->known && bytes;
    gain->ns += sign * ns;
    gain->loads += sign;
    gain->bytes += sign * (int64_t)bytes;
}

bool stk_advice_takes(const struct stk_plan_node *node, bool device)
{
    const uint32_t side =
        device ? PEN_MEM_BIT(PEN_MEM_CUDA_DEVICE) : PEN_MEM_BITS_HOST;
    for (uint32_t i = 0; i < node->inputs; i++)
        if (node->in_edge[i] >= 0 && !(node->in[i].mem & side))
            return false;
    return true;
}

bool stk_advice_passes(const struct stk_plan_node *node)
{
    return node->cls->flags & PEN_CLASS_FORWARDS;
}

bool stk_advice_only_waits(const struct stk_plan_node *node)
{
    return stk_advice_passes(node) &&
           stk_class_has_tag(node->cls, "function:sync");
}

bool stk_advice_chosen(const struct stk_plan_node *node)
{
    return node->base.backend == STK_BACKEND_AUTO &&
           strcmp(node->type, node->cls->name) != 0 &&
           pen_generic_type_find(node->type);
}

// --- twins ------------------------------------------------------------------

static const char *function_tag(const struct pen_module_class *cls)
{
    for (const char *const *tag = cls->tags; tag && *tag; tag++)
        if (strncmp(*tag, "function:", 9) == 0)
            return *tag;
    return NULL;
}

// The registry is asked once for a class, as long as few of them share a row.
static const struct stk_twins *
twins_of(struct stk_advice *a, const struct pen_module_class *cls, bool device)
{
    const uintptr_t key = (uintptr_t)cls / sizeof(*cls) * 2 + device;
    struct stk_twins *row = &a->twins[key % STK_TWIN_ROWS];
    if (row->of == cls && row->device == device)
        return row;
    const char *tag = function_tag(cls);
    const char *const tags[] = { tag, device ? "backend:cuda" : "backend:cpu",
                                 NULL };
    *row = (struct stk_twins){ .of = cls, .device = device };
    const size_t count = tag ? pen_registry_modules_with_tags(
                                   a->plan->registry, tags, row->cls, STK_TWINS)
                             : 0;
    row->count = count < STK_TWINS ? (uint32_t)count : STK_TWINS;
    return row;
}

static uint32_t pin_sets(const struct pen_pin *pins, struct pen_pin_set *sets)
{
    uint32_t n = 0;
    for (; pins && n < PEN_MAX_PINS && pins[n].name; n++)
        sets[n] = (struct pen_pin_set){ .kinds = pins[n].kinds,
                                        .mem = pins[n].mem,
                                        .formats = pins[n].formats };
    return n;
}

// What the file says of a module, after --set.
static json_t *props_of(const struct stk_advice *a,
                        const struct stk_plan_node *node)
{
    const json_t *root = a->plan->desc ? a->plan->desc->root : NULL;
    const json_t *module =
        json_object_get(json_object_get(root, "modules"), node->id);
    return json_object_get(module, "props");
}

static bool set_text(struct stk_advice *a, const struct pen_module_class *cls,
                     void *params, const char *key, const char *value)
{
    struct pen_error err = { 0 };
    const enum pen_status st =
        stk_prop_set_text(cls->props, params, key, value, &a->arena, &err);
    a->failed = a->failed || st == PEN_E_NOMEM;
    return st == PEN_OK;
}

// The parameters of the node for another class; NULL: they do not fit it.
static const void *params_for(struct stk_advice *a,
                              const struct stk_plan_node *node,
                              const struct pen_module_class *cls)
{
    void *params = stk_arena_alloc(&a->arena, cls->params_size + 1);
    if (!params) {
        a->failed = true;
        return NULL;
    }
    const struct pen_check check = { .issues = a->deaf, .pointer = "" };
    struct pen_check checked = check;
    const size_t errors =
        stk_props_parse(cls->props, params, &a->like.base,
                        node->inserted ? NULL : props_of(a, node), "", NULL,
                        &a->arena, a->deaf, cls->name);
    // What stands for a converter of the planner, and what a name presets.
    if (node->inserted) {
        const enum pen_format format = node->output[0].caps.format;
        return format && set_text(a, cls, params, "imageType",
                                  pen_format_info(format)->name)
                   ? params
                   : NULL;
    }
    const struct pen_generic_type *generic =
        strcmp(node->type, node->cls->name) ? pen_generic_type_find(node->type)
                                            : NULL;
    if (generic && generic->preset.key &&
        stk_prop_find(cls->props, generic->preset.key) &&
        !set_text(a, cls, params, generic->preset.key, generic->preset.value))
        return NULL;
    if (errors == 0 && cls->ops.check)
        cls->ops.check(params, &checked);
    return errors == 0 && checked.errors == 0 ? params : NULL;
}

// Whether frames of these caps can go through the pin, in that memory.
static bool fits(const struct pen_pin_set *pin, const struct pen_caps *caps,
                 bool device)
{
    const uint32_t mask = stk_caps_mask(caps);
    const uint32_t side =
        device ? PEN_MEM_BIT(PEN_MEM_CUDA_DEVICE) : PEN_MEM_BITS_HOST;
    return (pin->mem & side) && (pin->kinds & PEN_KIND_BIT(caps->kind)) &&
           !(mask & ~pin->formats);
}

static bool same_caps(const struct pen_caps *a, const struct pen_caps *b)
{
    return a->kind == b->kind && stk_caps_mask(a) == stk_caps_mask(b) &&
           a->width == b->width && a->height == b->height &&
           a->bytes == b->bytes && a->codec == b->codec;
}

static bool try_twin(struct stk_advice *a, const struct stk_plan_node *node,
                     const struct pen_module_class *cls, bool device,
                     int64_t *cost)
{
    const struct pen_plan *plan = a->plan;
    struct stk_plan_node *like = &a->like;
    struct pen_caps in[PEN_MAX_PINS] = { 0 }, out[PEN_MAX_PINS] = { 0 };
    uint64_t bytes = 0;
    bool known = true;
    *like = (struct stk_plan_node){
        .id = node->id, .cls = cls, .in = a->like_in, .out = a->like_out
    };
    like->inputs = pin_sets(cls->inputs, a->like_in);
    like->outputs = pin_sets(cls->outputs, a->like_out);
    if (like->inputs != node->inputs || like->outputs != node->outputs)
        return false;
    like->params = params_for(a, node, cls);
    if (!like->params)
        return false;
    if (cls->ops.narrow)
        cls->ops.narrow(like->params, a->like_in, a->like_out);
    for (uint32_t i = 0; i < node->inputs; i++) {
        if (node->in_edge[i] < 0)
            continue;
        const struct stk_plan_edge *e = &plan->edges[node->in_edge[i]];
        in[i] = e->caps;
        if (!fits(&like->in[i], &in[i], device))
            return false;
        known = known && stk_advice_bytes(a, e);
        bytes += stk_advice_bytes(a, e);
    }
    struct pen_error err = { 0 };
    uint32_t refused = 0;
    const enum pen_status st =
        stk_plan_negotiate(like, in, out, &refused, &err);
    a->failed = a->failed || st == PEN_E_NOMEM;
    if (st != PEN_OK || refused)
        return false;
    for (uint32_t o = 0; o < node->outputs; o++) {
        if (node->output[o].mem == PEN_MEM_NONE)
            continue;
        if (!fits(&like->out[o], &out[o], device) ||
            !same_caps(&out[o], &node->output[o].caps))
            return false;
        known = known && node->output[o].block_bytes;
        bytes += node->output[o].block_bytes;
    }
    *cost = known ? stk_cost_class(&plan->profile, cls, like->params, in, out,
                                   bytes)
                  : -1;
    return true;
}

bool stk_advice_twin(struct stk_advice *a, const struct stk_plan_node *node,
                     bool device, int64_t *cost,
                     const struct pen_module_class **named)
{
    const struct stk_twins *twins = twins_of(a, node->cls, device);
    *named = twins->count ? twins->cls[0] : NULL;
    for (uint32_t i = 0; i < twins->count; i++)
        if (twins->cls[i] != node->cls &&
            try_twin(a, node, twins->cls[i], device, cost))
            return true;
    return false;
}

// --- all of it --------------------------------------------------------------

enum pen_status stk_plan_advise(struct stk_planner *p, struct pen_error *err)
{
    const size_t count = p->plan->node_count;
    struct stk_advice *a = calloc(1, sizeof(*a));
    if (!a)
        return stk_plan_no_memory(err);
    a->p = p;
    a->plan = p->plan;
    a->traces = calloc(count + 1, sizeof(*a->traces));
    a->path = calloc(count + 4, sizeof(*a->path));
    a->drop = calloc(count + 1, sizeof(*a->drop));
    a->deaf = pen_issues_create();
    a->failed = !a->traces || !a->path || !a->drop || !a->deaf;
    if (!a->failed)
        stk_advise_paths(a);
    if (!a->failed)
        stk_advise_idle(a);
    if (!a->failed)
        stk_advise_copies(a);
    if (!a->failed)
        stk_advise_sources(a);
    const bool ok = !a->failed && !a->text.failed && !a->fix.failed &&
                    !stk_issues_failed(a->deaf);
    free(a->traces);
    free(a->path);
    free(a->drop);
    pen_issues_destroy(&a->deaf);
    stk_text_finish(&a->text);
    stk_text_finish(&a->fix);
    stk_arena_finish(&a->arena);
    free(a);
    return ok ? PEN_OK : stk_plan_no_memory(err);
}
