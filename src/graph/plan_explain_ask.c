// What else could be done about a bridge: planning again, without what the plan
// does or with a changed file, and comparing whole plans.

#include "plan_explain.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "plan_print.h"
#include "plan_size.h"

// --- sizes that are unknown --------------------------------------------------

// As stk_caps_intern() reckons, so that a plan costs here what it cost when it
// was chosen: what follows from an invented size is not worked out. Where that
// size does not fit it stays unknown.
static bool give_size(struct stk_plan_output *o)
{
    struct pen_caps caps = o->caps;
    struct pen_error ignored;
    size_t bytes;
    if (o->mem == PEN_MEM_NONE || o->block_bytes)
        return false;
    if (!stk_caps_mask(&caps)) {
        caps.bytes = STK_NOMINAL_BYTES;
    } else {
        caps.width = STK_NOMINAL_WIDTH;
        caps.height = STK_NOMINAL_HEIGHT;
    }
    if (stk_caps_bytes(&caps, &bytes, &ignored) == PEN_OK) {
        o->caps = caps;
        o->block_bytes = bytes;
    }
    return true;
}

enum pen_status stk_plan_nominal(struct pen_plan *plan, bool *any,
                                 struct pen_error *err)
{
    struct stk_plan_totals t = { 0 };
    *any = false;
    if (plan->unknown == 0)
        return PEN_OK;
    // The size is invented, so no budget is exceeded by it.
    memset(plan->budget, 0, sizeof(plan->budget));
    plan->host_budget = 0;
    plan->params.h2d_limited = plan->params.d2h_limited = false;
    for (uint32_t n = 0; n < plan->node_count; n++)
        for (uint32_t o = 0; o < plan->nodes[n].outputs; o++)
            *any = give_size(&plan->nodes[n].output[o]) || *any;
    for (uint32_t i = 0; i < plan->edge_count; i++) {
        struct stk_plan_edge *e = &plan->edges[i];
        e->caps = plan->nodes[e->from].output[e->from_pin].caps;
    }
    for (uint32_t n = 0; n < plan->node_count; n++) {
        stk_plan_node_cost(plan, &plan->nodes[n]);
        stk_plan_node_workspace(plan, &plan->nodes[n]);
        PEN_TRY(stk_plan_account(plan, &t, &plan->nodes[n], 1, err));
    }
    stk_plan_set_totals(plan, &t);
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

static int64_t moved(const struct pen_plan *plan)
{
    return (int64_t)(plan->h2d_bytes_per_frame + plan->d2h_bytes_per_frame +
                     plan->h2h_bytes_per_frame);
}

// The bridges on a way, in their order.
static const char *tell_bridges(struct stk_explain *ex,
                                const struct pen_plan *plan,
                                const struct stk_route *way)
{
    enum { ROOM = 60, TOLD = 8 };
    struct stk_text t = { 0 };
    unsigned told = 0, left = 0;
    for (uint32_t k = 0; k < way->edge_count; k++) {
        const struct stk_plan_node *node =
            &plan->nodes[plan->edges[way->edges[k]].from];
        if (!node->inserted)
            continue;
        if (told == TOLD) {
            left++;
            continue;
        }
        stk_text_addf(&t, "%s%s", told++ ? " -> " : "", node->type);
        if (!stk_plan_props_text(&t, plan, node, ROOM))
            ex->failed = true;
    }
    if (left)
        stk_text_addf(&t, " and %u more", left);
    return stk_explain_take(ex, &t);
}

// The way in some plan of the file, or of a changed one.
static enum pen_status way_in(struct stk_explain *ex,
                              const struct pen_plan *plan,
                              const struct stk_query *q, struct stk_route *way,
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

// Modules of the file that are or do something else in that plan, but for one
// whose class was changed. Modules stand in the same order in both.
static void note_modules(struct stk_explain *ex, const struct pen_plan *plan,
                         const struct stk_query *q, struct stk_text *t)
{
    const struct pen_plan *base = ex->base;
    unsigned told = 0, left = 0;
    uint32_t k = 0;
    for (uint32_t n = 0; n < plan->node_count; n++) {
        const struct stk_plan_node *node = &plan->nodes[n];
        if (node->inserted)
            continue;
        while (k < base->node_count &&
               (base->nodes[k].inserted ||
                strcmp(base->nodes[k].id, node->id) != 0))
            k++;
        if (k == base->node_count)
            return;
        const bool other = node->cls != base->nodes[k].cls;
        const bool copies = stk_node_hands_through(base, &base->nodes[k]) &&
                            !stk_node_hands_through(plan, node);
        if ((!other && !copies) ||
            (q->kind == STK_ASK_MODULE && !strcmp(node->id, q->module)))
            continue;
        if (told++ < STK_EXPLAIN_LISTED)
            stk_text_addf(t, "%s`%s` %s%s then", t->length ? "; " : "",
                          node->id, other ? "is " : "copies by itself",
                          other ? node->cls->name : "");
        else
            left++;
    }
    if (left)
        stk_text_addf(t, "; %u more do something else", left);
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

// How often the frames of a connection cross between host and device, by copies
// or by a conversion on the device that reads an imported DMABUF.
static uint32_t crossings(const struct pen_plan *plan, int32_t edge)
{
    uint32_t count = 0;
    for (const struct stk_plan_node *node;; edge = node->in_edge[0]) {
        node = &plan->nodes[plan->edges[edge].from];
        if (!node->inserted)
            return count;
        const enum stk_transfer transfer = stk_node_transfer(plan, node);
        const struct stk_plan_edge *e = &plan->edges[node->in_edge[0]];
        const enum stk_home home =
            stk_output_home(&plan->nodes[e->from].output[e->from_pin]);
        count += transfer == STK_H2D || transfer == STK_D2H ||
                 (transfer == STK_NO_TRANSFER &&
                  (node->cls->flags & PEN_CLASS_CUDA) &&
                  (STK_HOME_BIT(home) & STK_HOMES_HOST));
    }
}

// Connections of the file whose frames go to the other side and back.
static uint32_t detours(const struct pen_plan *plan)
{
    uint32_t count = 0;
    for (uint32_t n = 0; n < plan->node_count; n++) {
        const struct stk_plan_node *node = &plan->nodes[n];
        for (uint32_t i = 0; i < node->inputs && !node->inserted; i++)
            count +=
                node->in_edge[i] >= 0 && crossings(plan, node->in_edge[i]) > 1;
    }
    return count;
}

// Nanoseconds of a frame, with its share of what is done once: what the planner
// compares.
static int64_t whole_cost(const struct pen_plan *plan)
{
    const struct pen_profile *f = &plan->profile;
    uint32_t loads = 0;
    for (uint32_t n = 0; n < plan->node_count; n++)
        loads += (plan->nodes[n].cls->flags & PEN_CLASS_CUDA) != 0;
    if (!loads)
        return plan->cost_ns;
    return stk_cost_sum(plan->cost_ns,
                        loads * stk_cost_share(f->load_ns, plan->frames) +
                            stk_cost_share(f->context_ns, plan->frames));
}

static void note_once(const struct pen_plan *base, const struct pen_plan *plan,
                      struct stk_text *t)
{
    const int64_t whole = whole_cost(plan);
    const int64_t more = whole - whole_cost(base);
    char text[40];
    stk_text_addf(t, "over %" PRIu64 " frame%s, what is done once makes it ",
                  base->frames, base->frames == 1 ? "" : "s");
    if (more) {
        stk_plan_cost_text(more, text, sizeof(text));
        stk_text_addf(t, "%s a frame dearer in all", text);
    } else {
        stk_text_add(t, "as dear in all");
    }
    stk_plan_cost_text(whole, text, sizeof(text));
    stk_text_addf(t, " (%s)", text);
}

// Why the planner did not take what is cheaper. Without a class all is allowed
// that is allowed with it; without a step the way to a place may cross more
// often than it must.
static void note_order(const struct stk_explain *ex,
                       const struct pen_plan *plan, const struct stk_query *q,
                       const struct stk_answer *a, struct stk_text *t)
{
    const struct pen_plan *base = ex->base;
    const bool dearer = whole_cost(plan) >= whole_cost(base);
    if (!q->banned || !a->known || (a->more_ns >= 0 && dearer))
        return;
    stk_text_addf(t, "%sit is not taken: ", t->length ? "; " : "");
    // What is lost on other connections shows as lost here and kept there.
    if (*a->lost && !(dearer && *a->kept))
        stk_text_add(t, "what is lost goes before cost");
    else if (q->kind == STK_ASK_STEP && detours(plan) > detours(base))
        stk_text_add(t, "frames are not sent to the other side and back where "
                        "they need not be, whatever that would save");
    else if (dearer)
        note_once(base, plan, t);
    else if (!base->optimal)
        stk_text_add(t, "the optimum is not proven");
    else
        stk_text_add(t, "another rule goes before cost");
}

static enum pen_status measure(struct stk_explain *ex,
                               const struct stk_query *q, struct pen_plan *plan,
                               struct stk_answer *a, struct pen_error *err)
{
    const struct pen_plan *base = ex->base;
    struct stk_route now = { 0 }, then = { 0 };
    struct stk_text note = { 0 };
    bool any;
    PEN_TRY(stk_plan_nominal(plan, &any, err));
    a->known = plan->unknown == 0 && base->unknown == 0;
    a->cost_ns = plan->cost_ns;
    a->more_ns = plan->cost_ns - base->cost_ns;
    a->more_once_ns = plan->once_ns - base->once_ns;
    a->bytes = moved(plan);
    a->more_bytes = a->bytes - moved(base);
    compare_losses(ex, plan, a);
    enum pen_status st = way_in(ex, base, q, &now, err);
    if (st == PEN_OK)
        st = way_in(ex, plan, q, &then, err);
    if (st == PEN_OK) {
        a->before = now.edge_count - now.link_count + q->removed;
        a->bridges = then.edge_count - then.link_count;
        a->way = tell_bridges(ex, plan, &then);
        if (q->note)
            stk_text_add(&note, q->note);
        note_formats(ex, plan, &now, &then, &note);
        note_modules(ex, plan, q, &note);
        note_order(ex, plan, q, a, &note);
        if (q->lifted)
            a->value = stk_explain_text(ex, "%" PRIu64,
                                        plan->peak[PEN_MEM_HOST_PINNED]);
    }
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

static enum pen_status make(struct stk_explain *ex, const struct stk_query *q,
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

bool stk_explain_spent(struct stk_explain *ex)
{
    if (ex->asked < ex->limit)
        return false;
    ex->unasked++;
    return true;
}

enum pen_status stk_explain_try(struct stk_explain *ex,
                                const struct stk_query *q,
                                struct pen_error *err)
{
    struct stk_answer *a = &ex->answers[ex->asked++];
    struct pen_issues *issues = pen_issues_create();
    a->kind = q->kind;
    a->module = q->module;
    a->value = q->value;
    a->what = q->what;
    enum pen_status st =
        issues ? make(ex, q, a, issues, err) : stk_plan_no_memory(err);
    pen_issues_destroy(&issues);
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
    if (stk_explain_spent(ex))
        return PEN_OK;
    const char *name = stk_explain_text(ex, "%s.%s", from->id, pin);
    const struct stk_query q = {
        .kind = STK_ASK_STEP,
        .module = from->id,
        .value = step_name(op),
        .what = step_words(ex, op, name),
        .ban = { from->id, link->from_pin, 1u << op, NULL },
        .banned = true,
    };
    return stk_explain_try(ex, &q, err);
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

const struct stk_plan_node *stk_explain_module(const struct stk_explain *ex,
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
    for (uint32_t i = 0; (node = stk_explain_module(ex, i)); i++) {
        if (!node->choice[0] || stk_explain_spent(ex))
            continue;
        const struct stk_query q = {
            .kind = STK_ASK_CLASS,
            .module = node->id,
            .value = node->cls->name,
            .what = stk_explain_text(ex, "`%s` (%s) as another class than %s",
                                     node->id, node->type, node->cls->name),
            .ban = { node->id, 0, 0, node->cls->name },
            .banned = true,
        };
        PEN_TRY(stk_explain_try(ex, &q, err));
    }
    return PEN_OK;
}

// --- all ---------------------------------------------------------------------

static enum pen_status ask_budget(struct stk_explain *ex, struct pen_error *err)
{
    bool staged = false;
    for (uint32_t i = 0; i < ex->cause_count; i++)
        staged = staged || ex->plan->nodes[ex->causes[i].node].staged;
    if (!staged || stk_explain_spent(ex))
        return PEN_OK;
    const struct stk_query q = {
        .kind = STK_ASK_BUDGET,
        .module = "",
        .value = "",
        .what = "a larger budget of host_pinned",
        .lifted = true,
    };
    return stk_explain_try(ex, &q, err);
}

enum pen_status stk_explain_ask(struct stk_explain *ex, struct pen_error *err)
{
    // A long way has many steps; what would remove one is asked, too.
    ex->limit = STK_EXPLAIN_STEPS;
    PEN_TRY(ask_steps(ex, err));
    PEN_TRY(ask_classes(ex, err));
    ex->limit = STK_EXPLAIN_PLANS;
    PEN_TRY(ask_budget(ex, err));
    PEN_TRY(stk_explain_change(ex, err));
    if (ex->failed)
        return stk_plan_no_memory(err);
    return PEN_OK;
}
