// What else could be done about a bridge: the file is planned again without
// what the plan does, with other modules and with other properties, and whole
// plans are compared.

#include "plan_explain.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

// --- sizes that are unknown --------------------------------------------------

static enum pen_status give_size(struct pen_plan *plan, uint32_t number,
                                 uint32_t pin, bool *any, struct pen_error *err)
{
    const struct stk_plan_output *o = &plan->nodes[number].output[pin];
    struct pen_caps caps = o->caps;
    struct pen_error ignored;
    if (o->mem == PEN_MEM_NONE || o->block_bytes)
        return PEN_OK;
    *any = true;
    if (caps.kind == PEN_KIND_RAW_IMAGE) {
        caps.width = STK_NOMINAL_WIDTH;
        caps.height = STK_NOMINAL_HEIGHT;
    } else {
        caps.bytes = STK_NOMINAL_BYTES;
    }
    // Where that size does not fit it stays unknown.
    if (stk_plan_settle(plan, number, pin, &caps, &ignored) == PEN_E_NOMEM)
        return stk_plan_no_memory(err);
    return PEN_OK;
}

enum pen_status stk_plan_nominal(struct pen_plan *plan, bool *any,
                                 struct pen_error *err)
{
    *any = false;
    if (plan->unknown == 0)
        return PEN_OK;
    // The size is invented, so no budget is exceeded by it.
    memset(plan->budget, 0, sizeof(plan->budget));
    plan->host_budget = 0;
    plan->params.h2d_limited = plan->params.d2h_limited = false;
    for (uint32_t n = 0; n < plan->node_count; n++)
        for (uint32_t o = 0; o < plan->nodes[n].outputs; o++)
            PEN_TRY(give_size(plan, n, o, any, err));
    return PEN_OK;
}

// --- planning again ----------------------------------------------------------

// The parameters of the plan as they were asked: what it filled in by default
// is left to be filled in again.
static struct pen_plan_params again(const struct pen_plan *plan)
{
    struct pen_plan_params params = plan->params;
    params.profile = &plan->profile;
    for (unsigned m = 0; m < PEN_MEM_COUNT; m++)
        if (plan->host_budget && m != PEN_MEM_CUDA_DEVICE)
            params.budget[m] = 0;
    return params;
}

enum pen_status stk_explain_base(struct stk_explain *ex, struct pen_error *err)
{
    const struct pen_plan *plan = ex->plan;
    const struct pen_plan_params params = again(plan);
    struct pen_issues *issues = pen_issues_create();
    if (!issues)
        return stk_plan_no_memory(err);
    enum pen_status st = stk_plan_create(plan->desc, plan->registry, &params,
                                         NULL, 0, &ex->base, issues, err);
    pen_issues_destroy(&issues);
    if (st != PEN_OK)
        return st;
    if (ex->base->node_count != plan->node_count ||
        ex->base->edge_count != plan->edge_count)
        return pen_error_set(err, PEN_E_STATE, 0, "--explain",
                             "planned again, the file gives another plan; "
                             "input files were changed meanwhile");
    return stk_plan_nominal(ex->base, &ex->nominal, err);
}

// One question: what is different, and between which modules bridges count.
struct question {
    enum stk_question kind;
    const char *module, *value, *what, *note;
    json_t *root;  // of the changed file; NULL: it is not changed
    struct stk_ban ban;
    bool banned, lifted;    // with the ban; without a budget of pinned memory
    const char *from, *to;  // ids; NULL: the ends of the way
    int32_t from_pin, to_pin;
};

static int64_t moved(const struct pen_plan *plan)
{
    return (int64_t)(plan->h2d_bytes_per_frame + plan->d2h_bytes_per_frame +
                     plan->h2h_bytes_per_frame);
}

static void tell_bridge(struct stk_explain *ex, struct stk_text *t,
                        const struct pen_plan *plan,
                        const struct stk_plan_node *node)
{
    enum { ROOM = 60 };
    stk_text_addf(t, "%s%s", t->length ? " -> " : "", node->type);
    if (!stk_plan_props_text(t, plan, node, ROOM))
        ex->failed = true;
}

// The way in some plan of the file, or of a changed one.
static enum pen_status way_in(struct stk_explain *ex,
                              const struct pen_plan *plan,
                              const struct question *q, struct stk_route *way,
                              struct pen_error *err)
{
    const struct stk_link *first = &ex->way.links[0];
    const struct stk_link *last = &ex->way.links[ex->way.link_count - 1];
    const bool begins = q->from, ends = q->to;
    const int32_t from =
        stk_plan_find(plan, begins ? q->from : ex->plan->nodes[first->from].id);
    const int32_t to =
        stk_plan_find(plan, ends ? q->to : ex->plan->nodes[last->to].id);
    bool found;
    *way = (struct stk_route){ 0 };
    if (from < 0 || to < 0)
        return PEN_OK;
    const struct stk_route_end a = {
        (uint32_t)from, begins ? q->from_pin : (int32_t)first->from_pin, -1
    };
    const struct stk_route_end b = { (uint32_t)to,
                                     ends ? q->to_pin : (int32_t)last->to_pin,
                                     -1 };
    return stk_route_find(plan, &a, &b, way, &found, err);
}

// --- what differs ------------------------------------------------------------

struct loss {
    const char *loss, *serves;
};

static int by_loss(const void *left, const void *right)
{
    const struct loss *a = left, *b = right;
    const int c = strcmp(a->loss, b->loss);
    return c ? c : strcmp(a->serves, b->serves);
}

static struct loss *list_losses(const struct pen_plan *plan, size_t *count)
{
    struct loss *list = calloc((size_t)plan->node_count + 1, sizeof(*list));
    *count = 0;
    for (uint32_t n = 0; list && n < plan->node_count; n++)
        if (plan->nodes[n].inserted && plan->nodes[n].loss[0])
            list[(*count)++] =
                (struct loss){ plan->nodes[n].loss, plan->nodes[n].serves };
    if (list)
        qsort(list, *count, sizeof(*list), by_loss);
    return list;
}

// Losses of `a` that are not in `b`.
static const char *losses_beyond(struct stk_explain *ex, const struct loss *a,
                                 size_t count, const struct loss *b,
                                 size_t others)
{
    struct stk_text t = { 0 };
    unsigned told = 0, left = 0;
    for (size_t i = 0, k = 0; i < count; i++) {
        while (k < others && by_loss(&b[k], &a[i]) < 0)
            k++;
        if (k < others && by_loss(&b[k], &a[i]) == 0) {
            k++;
            continue;
        }
        if (told < STK_EXPLAIN_LISTED)
            stk_text_addf(&t, "%s%s (%s)", told++ ? "; " : "", a[i].loss,
                          a[i].serves);
        else
            left++;
    }
    if (left)
        stk_text_addf(&t, " and %u more", left);
    return stk_explain_take(ex, &t);
}

static void compare_losses(struct stk_explain *ex, const struct pen_plan *plan,
                           struct stk_answer *a)
{
    size_t now_count = 0, then_count = 0;
    struct loss *now = list_losses(ex->base, &now_count);
    struct loss *then = list_losses(plan, &then_count);
    a->lost = a->kept = "";
    if (now && then) {
        a->lost = losses_beyond(ex, then, then_count, now, now_count);
        a->kept = losses_beyond(ex, now, now_count, then, then_count);
    } else {
        ex->failed = true;
    }
    free(now);
    free(then);
}

// Modules of the file that are of another class in that plan, but for the one
// that was changed. Modules stand in the same order in both.
static void note_classes(struct stk_explain *ex, const struct pen_plan *plan,
                         const struct question *q, struct stk_text *t)
{
    const struct pen_plan *base = ex->base;
    unsigned told = 0, left = 0;
    uint32_t k = 0;
    for (uint32_t n = 0; n < plan->node_count; n++) {
        const struct stk_plan_node *node = &plan->nodes[n];
        if (node->inserted)
            continue;
        while (k < base->node_count &&
               (base->nodes[k].inserted || strcmp(base->nodes[k].id, node->id)))
            k++;
        if (k == base->node_count)
            return;
        if (node->cls == base->nodes[k].cls || !strcmp(node->id, q->module))
            continue;
        if (told++ < STK_EXPLAIN_LISTED)
            stk_text_addf(t, "%s`%s` is %s then", t->length ? "; " : "",
                          node->id, node->cls->name);
        else
            left++;
    }
    if (left)
        stk_text_addf(t, "; %u more are of another class", left);
}

// What arrives at the end of the way, if it is something else.
static void note_formats(const struct stk_explain *ex,
                         const struct pen_plan *plan,
                         const struct stk_route *now,
                         const struct stk_route *then, struct stk_text *t)
{
    if (!now->edge_count || !then->edge_count)
        return;
    const struct stk_plan_edge *a =
        &ex->base->edges[now->edges[now->edge_count - 1]];
    const struct stk_plan_edge *b =
        &plan->edges[then->edges[then->edge_count - 1]];
    const struct stk_plan_node *to = &plan->nodes[b->to];
    char formats[160];
    if (stk_caps_mask(&a->caps) == stk_caps_mask(&b->caps))
        return;
    stk_mask_text(stk_caps_mask(&b->caps), formats, sizeof(formats));
    stk_text_addf(t, "%s`%s.%s` gets %s then", t->length ? "; " : "", to->id,
                  to->cls->inputs[b->to_pin].name, formats);
}

static enum pen_status measure(struct stk_explain *ex, const struct question *q,
                               struct pen_plan *plan, struct stk_answer *a,
                               struct pen_error *err)
{
    const struct pen_plan *base = ex->base;
    struct stk_route now = { 0 }, then = { 0 };
    struct stk_text way = { 0 }, note = { 0 };
    bool any;
    PEN_TRY(stk_plan_nominal(plan, &any, err));
    a->known = plan->unknown == 0 && base->unknown == 0;
    a->cost_ns = plan->cost_ns;
    a->more_ns = plan->cost_ns - base->cost_ns;
    a->bytes = moved(plan);
    a->more_bytes = a->bytes - moved(base);
    compare_losses(ex, plan, a);
    enum pen_status st = way_in(ex, base, q, &now, err);
    if (st == PEN_OK)
        st = way_in(ex, plan, q, &then, err);
    if (st == PEN_OK) {
        // A module that is taken away is one of those that are counted.
        a->before = now.edge_count - now.link_count +
                    (q->kind == STK_ASK_REMOVE ? 1 : 0);
        a->bridges = then.edge_count - then.link_count;
        for (uint32_t k = 0; k < then.edge_count; k++) {
            const uint32_t from = plan->edges[then.edges[k]].from;
            if (plan->nodes[from].inserted)
                tell_bridge(ex, &way, plan, &plan->nodes[from]);
        }
        if (q->note)
            stk_text_add(&note, q->note);
        note_formats(ex, plan, &now, &then, &note);
        note_classes(ex, plan, q, &note);
        if (q->lifted)
            a->value = stk_explain_text(ex, "%" PRIu64,
                                        plan->peak[PEN_MEM_HOST_PINNED]);
    }
    a->way = stk_explain_take(ex, &way);
    a->note = stk_explain_take(ex, &note);
    stk_route_finish(&now);
    stk_route_finish(&then);
    return st;
}

// --- asking ------------------------------------------------------------------

// The changed file; `refused` says what is wrong with it.
static enum pen_status read_changed(const struct pen_plan *plan, json_t *root,
                                    struct pen_description **desc,
                                    struct pen_issues *issues,
                                    struct pen_error *err)
{
    char *text = stk_json_dump(root);
    if (!text)
        return stk_plan_no_memory(err);
    const enum pen_status st = pen_description_parse(
        text, strlen(text), plan->desc->file, desc, issues, err);
    free(text);
    return st;
}

static enum pen_status make(struct stk_explain *ex, const struct question *q,
                            struct stk_answer *a, struct pen_issues *issues,
                            struct pen_error *err)
{
    const struct pen_plan *plan = ex->plan;
    struct pen_plan_params params = again(plan);
    struct pen_description *desc = NULL;
    struct pen_plan *made = NULL;
    struct pen_error error = { 0 };
    enum pen_status st = PEN_OK;
    if (q->lifted)
        params.budget[PEN_MEM_HOST_PINNED] = UINT64_MAX;
    if (q->root)
        st = read_changed(plan, q->root, &desc, issues, &error);
    if (st == PEN_OK)
        st = stk_plan_create(desc ? desc : plan->desc, plan->registry, &params,
                             &q->ban, q->banned, &made, issues, &error);
    a->refused = a->way = a->note = a->lost = a->kept = "";
    if (st == PEN_OK) {
        st = measure(ex, q, made, a, err);
    } else if (st == PEN_E_NOMEM || stk_issues_failed(issues)) {
        st = stk_plan_no_memory(err);
    } else {
        a->refused = stk_explain_text(
            ex, "%s", error.text[0] ? error.text : pen_status_text(st));
        st = PEN_OK;
    }
    pen_plan_destroy(&made);
    pen_description_destroy(&desc);
    return st;
}

// One plan more, if there may be one more; takes q->root.
static enum pen_status ask(struct stk_explain *ex, const struct question *q,
                           struct pen_error *err)
{
    enum pen_status st = PEN_OK;
    if (ex->asked == STK_EXPLAIN_PLANS) {
        ex->unasked++;
    } else {
        struct stk_answer *a = &ex->answers[ex->asked++];
        struct pen_issues *issues = pen_issues_create();
        a->kind = q->kind;
        a->module = q->module;
        a->value = q->value;
        a->what = q->what;
        st = issues ? make(ex, q, a, issues, err) : stk_plan_no_memory(err);
        pen_issues_destroy(&issues);
    }
    json_decref(q->root);
    if (st == PEN_OK && ex->failed)
        st = stk_plan_no_memory(err);
    return st;
}

// --- without a step, without a class -----------------------------------------

static const char *step_words(struct stk_explain *ex, enum stk_op op,
                              const char *pin)
{
    static const char *const words[] = {
        [OP_UPGRADE] = "with a pool that is not pinned at",
        [OP_H2D] = "without copies to the device behind",
        [OP_D2H] = "without copies to the host behind",
        [OP_TO_PINNED] = "without copies into pinned memory behind",
        [OP_TO_DMABUF] = "without copies into DMABUFs behind",
        [OP_CONVERT_HOST] = "without conversions on the host behind",
        [OP_CONVERT_CUDA] = "without conversions on the device behind",
    };
    return stk_explain_text(ex, "%s `%s`", words[op], pin);
}

static const char *step_name(enum stk_op op)
{
    static const char *const names[] = {
        [OP_UPGRADE] = "pinned_pool",
        [OP_H2D] = "to_device",
        [OP_D2H] = "to_host",
        [OP_TO_PINNED] = "to_pinned",
        [OP_TO_DMABUF] = "to_dmabuf",
        [OP_CONVERT_HOST] = "convert_on_host",
        [OP_CONVERT_CUDA] = "convert_on_device",
    };
    return names[op];
}

static enum pen_status ask_step(struct stk_explain *ex,
                                const struct stk_link *link, enum stk_op op,
                                struct pen_error *err)
{
    const struct stk_plan_node *from = &ex->plan->nodes[link->from];
    const char *pin = from->cls->outputs[link->from_pin].name;
    const char *name = stk_explain_text(ex, "%s.%s", from->id, pin);
    const struct question q = {
        .kind = STK_ASK_STEP,
        .module = from->id,
        .value = step_name(op),
        .what = step_words(ex, op, name),
        .ban = { from->id, link->from_pin, 1u << op, NULL },
        .banned = true,
    };
    return ask(ex, &q, err);
}

static enum pen_status ask_steps(struct stk_explain *ex, struct pen_error *err)
{
    const struct pen_plan *plan = ex->plan;
    for (uint32_t l = 0; l < ex->way.link_count; l++) {
        const struct stk_link *link = &ex->way.links[l];
        uint32_t asked = 0;
        if (link->count < 2)
            continue;
        for (uint32_t k = 1; k < link->count; k++) {
            const uint32_t e = ex->way.edges[link->first + k];
            const enum stk_op op =
                stk_bridge_op(plan, &plan->nodes[plan->edges[e].from]);
            if (asked & 1u << op)
                continue;
            asked |= 1u << op;
            PEN_TRY(ask_step(ex, link, op, err));
        }
        // A pin that may give pinned memory by itself needs no upgrade.
        const struct stk_plan_node *from = &plan->nodes[link->from];
        const struct stk_plan_output *o = &from->output[link->from_pin];
        if (o->upgraded_from && o->mem == PEN_MEM_HOST_PINNED &&
            !(from->out[link->from_pin].mem & PEN_MEM_BIT(o->mem)))
            PEN_TRY(ask_step(ex, link, OP_UPGRADE, err));
    }
    return PEN_OK;
}

// The modules of the way, the last one first; the one behind the others is
// asked to change before them.
static const struct stk_plan_node *module_at(const struct stk_explain *ex,
                                             uint32_t i)
{
    const struct stk_route *way = &ex->way;
    if (i > way->link_count)
        return NULL;
    const uint32_t n = i < way->link_count
                           ? way->links[way->link_count - 1 - i].to
                           : way->links[0].from;
    return &ex->plan->nodes[n];
}

static enum pen_status ask_classes(struct stk_explain *ex,
                                   struct pen_error *err)
{
    const struct stk_plan_node *node;
    for (uint32_t i = 0; (node = module_at(ex, i)); i++) {
        if (!node->choice[0])
            continue;
        const struct question q = {
            .kind = STK_ASK_CLASS,
            .module = node->id,
            .value = node->cls->name,
            .what = stk_explain_text(ex, "`%s` (%s) as another class than %s",
                                     node->id, node->type, node->cls->name),
            .ban = { node->id, 0, 0, node->cls->name },
            .banned = true,
        };
        PEN_TRY(ask(ex, &q, err));
    }
    return PEN_OK;
}

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

static bool is_twin(const struct pen_module_class *a,
                    const struct pen_module_class *b)
{
    const char *left = function_of(a), *right = function_of(b);
    return a != b && left && right && !strcmp(left, right) &&
           same_pins(a->inputs, b->inputs) && same_pins(a->outputs, b->outputs);
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
    json_t *module = copied_module(ex, node->id, &root);
    struct stk_text note = { 0 };
    json_t *props = kept_props(json_object_get(module, "props"), cls, &note);
    if (!module || !props ||
        json_object_set_new(module, "type", json_string(cls->name)) < 0 ||
        json_object_set(module, "props", props) < 0)
        ex->failed = true;
    json_decref(props);
    const struct question q = {
        .kind = STK_ASK_MODULE,
        .module = node->id,
        .value = cls->name,
        .what = stk_explain_text(ex, "%s for `%s` instead of %s", cls->name,
                                 node->id, node->cls->name),
        .note = stk_explain_take(ex, &note),
        .root = root,
    };
    if (!ex->failed)
        return ask(ex, &q, err);
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
    for (uint32_t i = 0; (node = module_at(ex, i)); i++) {
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

// Whether a change of one end's set brings it to the other end.
static bool helps(const struct stk_explain *ex, const struct pen_pin_set *now,
                  const struct pen_pin_set *then,
                  const struct pen_pin_set *other, bool output)
{
    const struct pen_pin_set *gives = output ? then : other;
    const struct pen_pin_set *takes = output ? other : then;
    return (then->mem != now->mem && memory_meets(ex, gives, takes)) ||
           (then->formats != now->formats && formats_meet(gives, takes));
}

static enum pen_status ask_value(struct stk_explain *ex,
                                 const struct stk_plan_node *node,
                                 const char *key, const char *value,
                                 struct pen_error *err)
{
    json_t *root;
    json_t *module = copied_module(ex, node->id, &root);
    json_t *props = stk_json_copy_object(json_object_get(module, "props"));
    if (!module || !props ||
        json_object_set_new(props, key, json_string(value)) < 0 ||
        json_object_set(module, "props", props) < 0)
        ex->failed = true;
    json_decref(props);
    const struct question q = {
        .kind = STK_ASK_PROPERTY,
        .module = node->id,
        .value = stk_explain_text(ex, "%s=%s", key, value),
        .what = stk_explain_text(ex, "%s=\"%s\" at `%s`", key, value, node->id),
        .root = root,
    };
    if (!ex->failed)
        return ask(ex, &q, err);
    json_decref(root);
    return stk_plan_no_memory(err);
}

// Other choices of one property of a module by which it could do without the
// bridge at its pin; `other` is the other end.
static enum pen_status ask_property(struct stk_explain *ex,
                                    const struct stk_plan_node *node,
                                    const struct pen_prop *row, bool output,
                                    uint32_t pin,
                                    const struct pen_pin_set *other,
                                    void *params, struct pen_error *err)
{
    const struct pen_pin_set *now = output ? &node->out[pin] : &node->in[pin];
    int32_t *value = (int32_t *)(void *)((char *)params + row->offset);
    for (const struct pen_choice *c = row->choices; c && c->name; c++) {
        struct pen_pin_set in[PEN_MAX_PINS], out[PEN_MAX_PINS];
        const struct pen_pin_set *set = output ? &out[pin] : &in[pin];
        memcpy(params, node->params, node->cls->params_size);
        if (*value == c->value)
            continue;
        *value = c->value;
        stk_narrow(node->cls, params, in, out);
        if (helps(ex, now, set, other, output))
            PEN_TRY(ask_value(ex, node, row->key, c->name, err));
    }
    return PEN_OK;
}

static enum pen_status ask_properties_of(struct stk_explain *ex,
                                         const struct stk_plan_node *node,
                                         bool output, uint32_t pin,
                                         const struct pen_pin_set *other,
                                         struct pen_error *err)
{
    if (!node->cls->ops.narrow || !node->cls->params_size)
        return PEN_OK;
    void *params = stk_arena_alloc(&ex->arena, node->cls->params_size);
    if (!params)
        return stk_plan_no_memory(err);
    for (const struct pen_prop *row = node->cls->props; row && row->kind; row++)
        if (row->kind == PEN_PROP_ENUM)
            PEN_TRY(
                ask_property(ex, node, row, output, pin, other, params, err));
    return PEN_OK;
}

// Where the frames of an output come from, through modules that pass them on.
static const struct stk_plan_node *origin(const struct pen_plan *plan,
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

static enum pen_status ask_properties(struct stk_explain *ex,
                                      struct pen_error *err)
{
    const struct pen_plan *plan = ex->plan;
    for (uint32_t l = 0; l < ex->way.link_count; l++) {
        const struct stk_link *link = &ex->way.links[l];
        const struct stk_plan_node *to = &plan->nodes[link->to];
        uint32_t pin = link->from_pin;
        if (link->count < 2)
            continue;
        const struct stk_plan_node *from =
            origin(plan, &plan->nodes[link->from], &pin);
        struct pen_pin_set takes = to->in[link->to_pin];
        takes.mem = stk_input_mems(plan, to, link->to_pin);
        if (!from->inserted)
            PEN_TRY(ask_properties_of(ex, from, true, pin, &takes, err));
        PEN_TRY(ask_properties_of(ex, to, false, link->to_pin, &from->out[pin],
                                  err));
    }
    return PEN_OK;
}

// --- without a copy or conversion of the file --------------------------------

// The connections of the file without a module: what came from it comes from
// what it was connected to.
static json_t *rewired(const struct stk_explain *ex, const char *id,
                       const char *from)
{
    const struct pen_description *desc = ex->plan->desc;
    const json_t *was = json_object_get(desc->root, "connections");
    json_t *list = json_array();
    for (uint32_t i = 0; i < desc->connection_count; i++) {
        if (!strcmp(desc->connections[i].to, id))
            continue;
        json_t *one = stk_json_copy_object(json_array_get(was, i));
        if (!strcmp(desc->connections[i].from, id))
            one = stk_json_with(one, "from", stk_json_text(from));
        list = stk_json_append(list, one);
    }
    return list;
}

static enum pen_status ask_without(struct stk_explain *ex,
                                   const struct stk_plan_node *node,
                                   struct pen_error *err)
{
    const struct pen_plan *plan = ex->plan;
    const uint32_t number = (uint32_t)(node - plan->nodes);
    const struct stk_plan_edge *in = &plan->edges[node->in_edge[0]];
    while (plan->nodes[in->from].inserted)
        in = &plan->edges[plan->nodes[in->from].in_edge[0]];
    const struct stk_plan_edge *out = &plan->edges[plan->first_out[number]];
    while (plan->nodes[out->to].inserted)
        out = &plan->edges[plan->first_out[out->to]];
    const struct stk_plan_node *from = &plan->nodes[in->from];
    const char *pin = stk_explain_text(ex, "%s.%s", from->id,
                                       from->cls->outputs[in->from_pin].name);
    json_t *root = json_deep_copy(plan->desc->root);
    json_t *list = rewired(ex, node->id, pin);
    if (!root || !list || json_object_set(root, "connections", list) < 0 ||
        json_object_del(json_object_get(root, "modules"), node->id) < 0)
        ex->failed = true;
    json_decref(list);
    const struct stk_route *way = &ex->way;
    const bool begins = way->links[0].from == number;
    const bool ends = way->links[way->link_count - 1].to == number;
    const struct question q = {
        .kind = STK_ASK_REMOVE,
        .module = node->id,
        .value = "",
        .what = stk_explain_text(ex, "without `%s` (%s)", node->id, node->type),
        .root = root,
        .from = begins ? from->id : NULL,
        .from_pin = (int32_t)in->from_pin,
        .to = ends ? plan->nodes[out->to].id : NULL,
        .to_pin = (int32_t)out->to_pin,
    };
    if (!ex->failed)
        return ask(ex, &q, err);
    json_decref(root);
    return stk_plan_no_memory(err);
}

static enum pen_status ask_removals(struct stk_explain *ex,
                                    struct pen_error *err)
{
    const struct pen_plan *plan = ex->plan;
    const struct stk_plan_node *node;
    for (uint32_t i = 0; (node = module_at(ex, i)); i++) {
        const uint32_t n = (uint32_t)(node - plan->nodes);
        if ((node->cls->flags & PEN_CLASS_BRIDGE) && node->inputs == 1 &&
            node->outputs == 1 && node->in_edge[0] >= 0 &&
            plan->first_out[n] < plan->first_out[n + 1])
            PEN_TRY(ask_without(ex, node, err));
    }
    return PEN_OK;
}

// --- all ---------------------------------------------------------------------

static enum pen_status ask_budget(struct stk_explain *ex, struct pen_error *err)
{
    bool staged = false;
    for (uint32_t i = 0; i < ex->cause_count; i++)
        staged = staged || ex->plan->nodes[ex->causes[i].node].staged;
    if (!staged)
        return PEN_OK;
    const struct question q = {
        .kind = STK_ASK_BUDGET,
        .module = "",
        .value = "",
        .what = "a larger budget of host_pinned",
        .lifted = true,
    };
    return ask(ex, &q, err);
}

enum pen_status stk_explain_ask(struct stk_explain *ex, struct pen_error *err)
{
    PEN_TRY(ask_steps(ex, err));
    PEN_TRY(ask_classes(ex, err));
    PEN_TRY(ask_budget(ex, err));
    PEN_TRY(ask_twins(ex, err));
    PEN_TRY(ask_removals(ex, err));
    PEN_TRY(ask_properties(ex, err));
    if (ex->failed)
        return stk_plan_no_memory(err);
    return PEN_OK;
}
