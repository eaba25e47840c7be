// What else could be done about a bridge by who writes the file: another module
// for the same work, no module at all, another property.

#include "plan_explain.h"

#include <string.h>

// --- other modules -----------------------------------------------------------

static const char *function_of(const struct pen_module_class *cls)
{
    for (const char *const *tag = cls->tags; tag && *tag; tag++)
        if (!strncmp(*tag, "function:", 9))
            return *tag;
    return NULL;
}

static bool same_pins(const struct pen_pin *a, const struct pen_pin *b)
{
    for (unsigned i = 0;; i++) {
        const char *left = a ? a[i].name : NULL, *right = b ? b[i].name : NULL;
        if (!left || !right)
            return !left && !right;
        if (strcmp(left, right) != 0)
            return false;
    }
}

static bool same_formats(const struct pen_pin *a, const struct pen_pin *b)
{
    for (unsigned i = 0; a && b && a[i].name && b[i].name; i++)
        if (a[i].formats != b[i].formats)
            return false;
    return true;
}

// Whether the one does the work of the other elsewhere, or with other formats.
static bool is_twin(const struct pen_module_class *a,
                    const struct pen_module_class *b)
{
    const char *left = function_of(a), *right = function_of(b);
    if (a == b || !left || !right || strcmp(left, right) != 0 ||
        !same_pins(a->inputs, b->inputs) || !same_pins(a->outputs, b->outputs))
        return false;
    return stk_class_backend(a) != stk_class_backend(b) ||
           !same_formats(a->inputs, b->inputs) ||
           !same_formats(a->outputs, b->outputs);
}

// Properties that the class knows; the others are named in `t`.
static json_t *kept_props(const json_t *props,
                          const struct pen_module_class *cls,
                          struct stk_text *t)
{
    json_t *kept = json_object();
    const char *key;
    json_t *value;
    json_object_foreach ((json_t *)props, key, value) {
        // By name there is nothing left to choose.
        if (key[0] == '#' || !strcmp(key, "backend"))
            continue;
        if (stk_prop_find(cls->props, key) ||
            stk_prop_find(stk_base_props(), key))
            kept = stk_json_with(kept, key, json_incref(value));
        else
            stk_text_addf(t, "%s `%s`", t->length ? "," : "it has no", key);
    }
    return kept;
}

// The module of a copy of the file; NULL: out of memory. *root owns it.
static json_t *copied_module(const struct stk_explain *ex, const char *id,
                             json_t **root)
{
    *root = json_deep_copy(ex->plan->desc->root);
    return json_object_get(json_object_get(*root, "modules"), id);
}

static enum pen_status ask_twin(struct stk_explain *ex,
                                const struct stk_plan_node *node,
                                const struct pen_module_class *cls,
                                struct pen_error *err)
{
    json_t *root;
    if (stk_explain_spent(ex))
        return PEN_OK;
    json_t *module = copied_module(ex, node->id, &root);
    struct stk_text note = { 0 };
    json_t *props = kept_props(json_object_get(module, "props"), cls, &note);
    if (!module || !props ||
        json_object_set_new(module, "type", json_string(cls->name)) < 0 ||
        json_object_set(module, "props", props) < 0)
        ex->failed = true;
    json_decref(props);
    const struct stk_query q = {
        .kind = STK_ASK_MODULE,
        .module = node->id,
        .value = cls->name,
        .what = stk_explain_text(ex, "%s for `%s` instead of %s", cls->name,
                                 node->id, node->cls->name),
        .note = stk_explain_take(ex, &note),
        .root = root,
    };
    if (!ex->failed)
        return stk_explain_try(ex, &q, err);
    json_decref(root);
    return stk_plan_no_memory(err);
}

// Whether a bridge is next to module number `i` of the way.
static bool is_bridged(const struct stk_explain *ex, uint32_t i)
{
    const struct stk_route *way = &ex->way;
    const uint32_t at = way->link_count - i;
    return (at > 0 && way->links[at - 1].count > 1) ||
           (at < way->link_count && way->links[at].count > 1);
}

static enum pen_status ask_twins(struct stk_explain *ex, struct pen_error *err)
{
    const struct stk_plan_node *node;
    for (uint32_t i = 0; (node = stk_explain_module(ex, i)); i++) {
        // Of a generic type the planner chose; a copy is no work.
        if (node->choice[0] || stk_class_copies(node->cls) ||
            !is_bridged(ex, i))
            continue;
        const struct pen_module_class *cls;
        for (size_t c = 0; (cls = stk_registry_at(ex->plan->registry, c)); c++)
            if (is_twin(node->cls, cls))
                PEN_TRY(ask_twin(ex, node, cls, err));
    }
    return PEN_OK;
}

// --- other properties --------------------------------------------------------

static uint32_t homes_given(uint32_t mems)
{
    uint32_t homes = 0;
    for (unsigned h = 0; h < STK_HOMES; h++)
        if (mems & PEN_MEM_BIT(stk_home_mem((enum stk_home)h)))
            homes |= STK_HOME_BIT(h);
    return mems ? homes : STK_HOME_BIT(STK_HOME_HOST);
}

// Whether what one pin gives is in memory, or of a format, that another takes.
static bool memory_meets(const struct stk_explain *ex,
                         const struct pen_pin_set *gives,
                         const struct pen_pin_set *takes)
{
    const uint32_t mems = takes->mem ? takes->mem : PEN_MEM_BIT(PEN_MEM_HOST);
    return homes_given(gives->mem) &
           stk_homes_taken(mems, ex->plan->profile.dmabuf);
}

static bool formats_meet(const struct pen_pin_set *gives,
                         const struct pen_pin_set *takes)
{
    return !gives->formats || !takes->formats ||
           (gives->formats & takes->formats);
}

// An end of a connection with bridges: the pin that might change, what the
// other end gives or takes, and which kinds of bridges there are.
struct end {
    const struct stk_plan_node *node;
    bool output, copied, converted;
    uint32_t pin;
    struct pen_pin_set other;
};

// Whether a change of the end's set brings it to the other end.
static bool helps(const struct stk_explain *ex, const struct end *end,
                  const struct pen_pin_set *then)
{
    const struct pen_pin_set *now =
        end->output ? &end->node->out[end->pin] : &end->node->in[end->pin];
    const struct pen_pin_set *gives = end->output ? then : &end->other;
    const struct pen_pin_set *takes = end->output ? &end->other : then;
    if (!(gives->kinds & takes->kinds))
        return false;
    return (end->copied && then->mem != now->mem &&
            memory_meets(ex, gives, takes)) ||
           (end->converted && then->formats != now->formats &&
            formats_meet(gives, takes));
}

static enum pen_status ask_value(struct stk_explain *ex,
                                 const struct stk_plan_node *node,
                                 const char *key, const char *value,
                                 struct pen_error *err)
{
    json_t *root;
    if (stk_explain_spent(ex))
        return PEN_OK;
    json_t *module = copied_module(ex, node->id, &root);
    json_t *props = stk_json_copy_object(json_object_get(module, "props"));
    if (!module || !props ||
        json_object_set_new(props, key, json_string(value)) < 0 ||
        json_object_set(module, "props", props) < 0)
        ex->failed = true;
    json_decref(props);
    const struct stk_query q = {
        .kind = STK_ASK_PROPERTY,
        .module = node->id,
        .value = stk_explain_text(ex, "%s=%s", key, value),
        .what = stk_explain_text(ex, "%s=\"%s\" at `%s`", key, value, node->id),
        .root = root,
    };
    if (!ex->failed)
        return stk_explain_try(ex, &q, err);
    json_decref(root);
    return stk_plan_no_memory(err);
}

// Other choices of one property by which the end could do without a bridge.
static enum pen_status ask_property(struct stk_explain *ex,
                                    const struct end *end,
                                    const struct pen_prop *row, void *params,
                                    struct pen_error *err)
{
    const struct stk_plan_node *node = end->node;
    int32_t *value = (int32_t *)(void *)((char *)params + row->offset);
    for (const struct pen_choice *c = row->choices; c && c->name; c++) {
        struct pen_pin_set in[PEN_MAX_PINS], out[PEN_MAX_PINS];
        memcpy(params, node->params, node->cls->params_size);
        if (*value == c->value)
            continue;
        *value = c->value;
        stk_narrow(node->cls, params, in, out);
        if (helps(ex, end, end->output ? &out[end->pin] : &in[end->pin]))
            PEN_TRY(ask_value(ex, node, row->key, c->name, err));
    }
    return PEN_OK;
}

static enum pen_status ask_end(struct stk_explain *ex, const struct end *end,
                               struct pen_error *err)
{
    const struct pen_module_class *cls = end->node->cls;
    if (!cls->ops.narrow || !cls->params_size || end->node->inserted)
        return PEN_OK;
    void *params = stk_arena_alloc(&ex->arena, cls->params_size);
    if (!params)
        return stk_plan_no_memory(err);
    for (const struct pen_prop *row = cls->props; row && row->kind; row++)
        if (row->kind == PEN_PROP_ENUM)
            PEN_TRY(ask_property(ex, end, row, params, err));
    return PEN_OK;
}

static enum pen_status ask_properties(struct stk_explain *ex,
                                      struct pen_error *err)
{
    const struct pen_plan *plan = ex->plan;
    for (uint32_t l = 0; l < ex->way.link_count; l++) {
        const struct stk_link *link = &ex->way.links[l];
        uint32_t pin = link->from_pin;
        struct end from = { .output = true };
        struct end to = { .node = &plan->nodes[link->to], .pin = link->to_pin };
        for (uint32_t k = 1; k < link->count; k++) {
            const uint32_t e = ex->way.edges[link->first + k];
            if (stk_class_copies(plan->nodes[plan->edges[e].from].cls))
                from.copied = to.copied = true;
            else
                from.converted = to.converted = true;
        }
        from.node = stk_explain_origin(plan, &plan->nodes[link->from], &pin);
        from.pin = pin;
        from.other = to.node->in[to.pin];
        from.other.mem = stk_input_mems(plan, to.node, to.pin);
        to.other = from.node->out[pin];
        PEN_TRY(ask_end(ex, &from, err));
        PEN_TRY(ask_end(ex, &to, err));
    }
    return PEN_OK;
}

// --- without copies and conversions of the file ------------------------------

// Modules that are taken away; what came from one comes from what it was
// connected to.
struct gone {
    const struct stk_plan_node **nodes;
    uint32_t count;
};

static bool is_gone(const struct gone *gone, const struct stk_plan_node *node)
{
    for (uint32_t i = 0; i < gone->count; i++)
        if (gone->nodes[i] == node)
            return true;
    return false;
}

static const struct stk_plan_node *named(const struct gone *gone,
                                         const char *id)
{
    for (uint32_t i = 0; i < gone->count; i++)
        if (!strcmp(gone->nodes[i]->id, id))
            return gone->nodes[i];
    return NULL;
}

// The edge that brings what comes to a module that goes, before others that go.
static const struct stk_plan_edge *edge_before(const struct pen_plan *plan,
                                               const struct gone *gone,
                                               const struct stk_plan_node *node)
{
    const struct stk_plan_edge *e;
    do {
        e = &plan->edges[node->in_edge[0]];
        node = &plan->nodes[e->from];
    } while (node->inserted || is_gone(gone, node));
    return e;
}

static const struct stk_plan_edge *edge_behind(const struct pen_plan *plan,
                                               const struct gone *gone,
                                               const struct stk_plan_node *node)
{
    const struct stk_plan_edge *e;
    do {
        e = &plan->edges[plan->first_out[node - plan->nodes]];
        node = &plan->nodes[e->to];
    } while (node->inserted || is_gone(gone, node));
    return e;
}

// "id.pin" of the output of an edge.
static const char *output_name(struct stk_explain *ex,
                               const struct stk_plan_edge *e)
{
    const struct stk_plan_node *node = &ex->plan->nodes[e->from];
    return stk_explain_text(ex, "%s.%s", node->id,
                            node->cls->outputs[e->from_pin].name);
}

// The file without them; NULL: out of memory.
static json_t *without(struct stk_explain *ex, const struct gone *gone)
{
    const struct pen_plan *plan = ex->plan;
    const struct pen_description *desc = plan->desc;
    json_t *root = json_deep_copy(desc->root);
    const json_t *was = json_object_get(root, "connections");
    json_t *modules = json_object_get(root, "modules");
    json_t *list = json_array();
    for (uint32_t i = 0; i < desc->connection_count; i++) {
        const struct stk_plan_node *from =
            named(gone, desc->connections[i].from);
        if (named(gone, desc->connections[i].to))
            continue;
        json_t *one = stk_json_copy_object(json_array_get(was, i));
        if (from)
            one = stk_json_with(
                one, "from",
                stk_json_text(output_name(ex, edge_before(plan, gone, from))));
        list = stk_json_append(list, one);
    }
    for (uint32_t i = 0; i < gone->count; i++)
        json_object_del(modules, gone->nodes[i]->id);
    return stk_json_with(root, "connections", list);
}

static enum pen_status ask_without(struct stk_explain *ex,
                                   const struct gone *gone,
                                   struct pen_error *err)
{
    const struct pen_plan *plan = ex->plan;
    const struct stk_route *way = &ex->way;
    const struct stk_plan_node *first = &plan->nodes[way->links[0].from];
    const struct stk_plan_node *last =
        &plan->nodes[way->links[way->link_count - 1].to];
    struct stk_text what = { 0 };
    if (stk_explain_spent(ex))
        return PEN_OK;
    stk_text_add(&what, "without ");
    for (uint32_t i = gone->count; i-- > 0;)
        stk_text_addf(&what, "`%s` (%s)%s", gone->nodes[i]->id,
                      gone->nodes[i]->type,
                      i > 1    ? ", "
                      : i == 1 ? " and "
                               : "");
    struct stk_query q = {
        .kind = STK_ASK_REMOVE,
        .module = gone->nodes[0]->id,
        .value = "",
        .what = stk_explain_take(ex, &what),
        .root = without(ex, gone),
        .removed = gone->count,
    };
    // Where an end goes, the way begins or ends beyond it.
    if (is_gone(gone, first)) {
        const struct stk_plan_edge *e = edge_before(plan, gone, first);
        q.from = plan->nodes[e->from].id;
        q.from_pin = (int32_t)e->from_pin;
    }
    if (is_gone(gone, last)) {
        const struct stk_plan_edge *e = edge_behind(plan, gone, last);
        q.to = plan->nodes[e->to].id;
        q.to_pin = (int32_t)e->to_pin;
    }
    if (q.root && !ex->failed)
        return stk_explain_try(ex, &q, err);
    json_decref(q.root);
    return stk_plan_no_memory(err);
}

static bool can_go(const struct pen_plan *plan,
                   const struct stk_plan_node *node)
{
    const uint32_t n = (uint32_t)(node - plan->nodes);
    return (node->cls->flags & PEN_CLASS_BRIDGE) && node->inputs == 1 &&
           node->outputs == 1 && node->in_edge[0] >= 0 &&
           plan->first_out[n] < plan->first_out[n + 1];
}

static enum pen_status ask_removals(struct stk_explain *ex,
                                    struct pen_error *err)
{
    const struct pen_plan *plan = ex->plan;
    const struct stk_plan_node *node;
    struct gone all = {
        .nodes = stk_arena_alloc(&ex->arena, ((size_t)ex->way.link_count + 1) *
                                                 sizeof(*all.nodes)),
    };
    if (!all.nodes)
        return stk_plan_no_memory(err);
    for (uint32_t i = 0; (node = stk_explain_module(ex, i)); i++) {
        if (!can_go(plan, node))
            continue;
        all.nodes[all.count++] = node;
        PEN_TRY(ask_without(ex, &(struct gone){ &node, 1 }, err));
    }
    return all.count > 1 ? ask_without(ex, &all, err) : PEN_OK;
}

// --- all ---------------------------------------------------------------------

enum pen_status stk_explain_change(struct stk_explain *ex,
                                   struct pen_error *err)
{
    PEN_TRY(ask_twins(ex, err));
    PEN_TRY(ask_removals(ex, err));
    return ask_properties(ex, err);
}
