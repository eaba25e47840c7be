// How many frames and bytes the pools hold, what a plan needs at its peak and
// moves per frame, the budgets, and the completion of a provisional plan.
//
// Blocks of a pool: what its slowest consumer has not taken yet (the deepest
// edge; a consumer that passes frames on adds what waits behind it), one frame
// in the hands of each consumer, one being produced, and one more where the
// device reads or writes pinned blocks or DMABUFs, which come back only when
// that is done. Two consumers never hold more than the deeper of their queues:
// a producer goes on only when both have room, so their frames overlap.

#include "planner.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

// More than any real frame costs; sums of a million modules do not overflow.
#define MAX_COST (INT64_C(1) << 42)

// --- frames -----------------------------------------------------------------

static uint32_t sum(uint32_t a, uint32_t b)
{
    return a > UINT32_MAX - b ? UINT32_MAX : a + b;
}

// The range of the edges of one output pin.
static uint32_t pin_edges(const struct pen_plan *plan, uint32_t node,
                          uint32_t pin, uint32_t *begin)
{
    uint32_t e = plan->first_out[node];
    const uint32_t end = plan->first_out[node + 1];
    while (e < end && plan->edges[e].from_pin < pin)
        e++;
    *begin = e;
    while (e < end && plan->edges[e].from_pin == pin)
        e++;
    return e;
}

// `passed` holds, by node, how many frames of its input wait behind it.
static void count_blocks(struct pen_plan *plan, uint32_t number,
                         uint32_t *passed)
{
    struct stk_plan_node *node = &plan->nodes[number];
    for (uint32_t pin = 0; pin < node->outputs; pin++) {
        struct stk_plan_output *o = &node->output[pin];
        uint32_t e, deepest = 0, held = 0;
        bool device = node->cls->flags & PEN_CLASS_CUDA;
        const uint32_t end = pin_edges(plan, number, pin, &e);
        for (; e < end; e++) {
            const struct stk_plan_edge *edge = &plan->edges[e];
            const struct stk_plan_node *to = &plan->nodes[edge->to];
            // What waits in a staging ring is one of the frames at work.
            const uint32_t waits =
                sum(node->staged ? 0 : edge->depth, passed[edge->to]);
            if (waits > deepest)
                deepest = waits;
            held = sum(held, 1);
            device = device || (to->cls->flags & PEN_CLASS_CUDA);
        }
        held = sum(held, deepest);
        if (node->forwards && held > passed[number])
            passed[number] = held;
        if (stk_node_hands_through(plan, node))
            continue;
        o->blocks = sum(held, 1);
        if ((o->mem == PEN_MEM_HOST_PINNED || o->mem == PEN_MEM_DMABUF) &&
            device && !node->staged)
            o->blocks = sum(o->blocks, 1);
    }
}

// --- bytes ------------------------------------------------------------------

struct totals {
    uint64_t peak[PEN_MEM_COUNT];
    uint32_t unknown;
    uint64_t h2d, d2h, h2h;
    int64_t cost;
};

static struct totals totals_of(const struct pen_plan *plan)
{
    struct totals t = {
        .unknown = plan->unknown,
        .h2d = plan->h2d_bytes_per_frame,
        .d2h = plan->d2h_bytes_per_frame,
        .h2h = plan->h2h_bytes_per_frame,
        .cost = plan->cost_ns,
    };
    memcpy(t.peak, plan->peak, sizeof(t.peak));
    return t;
}

static void set_totals(struct pen_plan *plan, const struct totals *t)
{
    memcpy(plan->peak, t->peak, sizeof(t->peak));
    plan->unknown = t->unknown;
    plan->provisional = t->unknown > 0;
    plan->h2d_bytes_per_frame = t->h2d;
    plan->d2h_bytes_per_frame = t->d2h;
    plan->h2h_bytes_per_frame = t->h2h;
    plan->cost_ns = t->cost;
}

static enum pen_status too_large(const struct stk_plan_node *node,
                                 struct pen_error *err)
{
    return pen_error_set(err, PEN_E_LIMIT, 0, node->id,
                         "the pools of `%s` hold more bytes than a machine "
                         "can address",
                         node->id);
}

// Workspace as the runtime makes it: host memory with a header in front of it,
// pinned memory several times.
static uint64_t workspace_of(const struct stk_plan_node *node,
                             enum pen_mem_type mem)
{
    const uint64_t bytes = node->workspace[mem];
    if (mem == PEN_MEM_HOST_PINNED)
        return STK_STAGING_BLOCKS * bytes;
    if (bytes == 0 || mem != PEN_MEM_HOST)
        return bytes;
    const uint64_t align = STK_WORKSPACE_ALIGN;
    return (bytes + 2 * align - 1) / align * align;
}

// Exported memory takes more.
static size_t block_bytes(const struct stk_plan_output *o)
{
    size_t bytes = o->block_bytes;
    if (bytes && stk_output_home(o) == STK_HOME_DMA_CUDA &&
        !stk_dmabuf_cuda_bytes(o->block_bytes, &bytes))
        return SIZE_MAX;
    return bytes;
}

uint64_t stk_plan_pool_bytes(const struct stk_plan_output *o)
{
    size_t bytes;
    if (!stk_mul(block_bytes(o), o->blocks, &bytes))
        return UINT64_MAX;
    return bytes;
}

// Add what a node contributes, or with `sign` -1 take it away again.
static enum pen_status account(const struct pen_plan *plan, struct totals *t,
                               const struct stk_plan_node *node, int sign,
                               struct pen_error *err)
{
    for (uint32_t o = 0; o < node->outputs; o++) {
        const struct stk_plan_output *out = &node->output[o];
        size_t bytes;
        if (out->blocks == 0)
            continue;
        if (out->block_bytes == 0) {
            t->unknown += (uint32_t)sign;
            continue;
        }
        const enum pen_mem_type mem = stk_home_account(stk_output_home(out));
        if (!stk_mul(block_bytes(out), out->blocks, &bytes))
            return too_large(node, err);
        if (sign > 0 && t->peak[mem] > UINT64_MAX - bytes)
            return too_large(node, err);
        if (sign > 0)
            t->peak[mem] += bytes;
        else
            t->peak[mem] -= bytes;
    }
    for (int mem = PEN_MEM_NONE + 1; mem < PEN_MEM_COUNT; mem++) {
        const uint64_t bytes = workspace_of(node, (enum pen_mem_type)mem);
        if (sign > 0 && t->peak[mem] > UINT64_MAX - bytes)
            return too_large(node, err);
        t->peak[mem] = sign > 0 ? t->peak[mem] + bytes : t->peak[mem] - bytes;
    }
    // A copy gives the bytes that it takes.
    const uint64_t moved = node->outputs ? node->output[0].block_bytes : 0;
    uint64_t *sum_of = NULL;
    switch (stk_node_transfer(plan, node)) {
    case STK_H2D:
        sum_of = &t->h2d;
        break;
    case STK_D2H:
        sum_of = &t->d2h;
        break;
    case STK_H2H:
        sum_of = &t->h2h;
        break;
    case STK_D2D:
    case STK_NO_TRANSFER:
        break;
    }
    if (sum_of)
        *sum_of = sign > 0 ? *sum_of + moved : *sum_of - moved;
    t->cost += sign * node->cost_ns;
    return PEN_OK;
}

static void set_cost(const struct pen_plan *plan, struct stk_plan_node *node)
{
    if (!stk_node_cost(plan, node, &node->cost_ns))
        node->cost_ns = 0;
    if (node->cost_ns > MAX_COST)
        node->cost_ns = MAX_COST;
}

// No real workspace is larger; sums of a million modules do not overflow.
#define MAX_WORKSPACE (UINT64_C(1) << 42)

// The most that any of the formats on the way in takes.
static void set_workspace(const struct pen_plan *plan,
                          struct stk_plan_node *node)
{
    struct pen_caps in[PEN_MAX_PINS] = { 0 }, out[PEN_MAX_PINS] = { 0 };
    memset(node->workspace, 0, sizeof(node->workspace));
    if (!node->cls->ops.workspace)
        return;
    for (uint32_t i = 0; i < node->inputs; i++)
        if (node->in_edge[i] >= 0)
            in[i] = plan->edges[node->in_edge[i]].caps;
    for (uint32_t o = 0; o < node->outputs; o++)
        out[o] = node->output[o].caps;
    uint32_t formats = in[0].format ? 0 : in[0].formats;
    do {
        uint64_t bytes[PEN_MEM_COUNT] = { 0 };
        if (formats)
            in[0].format = (enum pen_format)__builtin_ctz(formats);
        node->cls->ops.workspace(node->params, in, out, bytes);
        for (int mem = PEN_MEM_NONE + 1; mem < PEN_MEM_COUNT; mem++) {
            if (bytes[mem] > MAX_WORKSPACE)
                bytes[mem] = MAX_WORKSPACE;
            if (bytes[mem] > node->workspace[mem])
                node->workspace[mem] = bytes[mem];
        }
        formats &= formats - 1;
    } while (formats);
}

enum pen_status stk_plan_size(struct pen_plan *plan, struct pen_error *err)
{
    uint32_t *passed = calloc((size_t)plan->node_count + 1, sizeof(*passed));
    struct totals t = { 0 };
    enum pen_status st = PEN_OK;
    if (!passed)
        return stk_plan_no_memory(err);
    for (uint32_t n = plan->node_count; n-- > 0;)
        count_blocks(plan, n, passed);
    free(passed);
    plan->h2d_per_frame = plan->d2h_per_frame = plan->h2h_per_frame = 0;
    for (uint32_t n = 0; n < plan->node_count && st == PEN_OK; n++) {
        struct stk_plan_node *node = &plan->nodes[n];
        const enum stk_transfer transfer = stk_node_transfer(plan, node);
        set_cost(plan, node);
        set_workspace(plan, node);
        plan->h2d_per_frame += transfer == STK_H2D;
        plan->d2h_per_frame += transfer == STK_D2H;
        plan->h2h_per_frame += transfer == STK_H2H;
        st = account(plan, &t, node, 1, err);
    }
    if (st == PEN_OK)
        set_totals(plan, &t);
    return st;
}

// --- budgets ----------------------------------------------------------------

enum { USERS = 3, WORKSPACE = PEN_MAX_PINS };

struct user {
    uint64_t bytes;
    uint32_t node, pin;  // pin WORKSPACE: the module's own memory
};

static void add_user(struct user users[USERS], uint64_t bytes, uint32_t node,
                     uint32_t pin)
{
    unsigned at = USERS - 1;
    if (bytes <= users[at].bytes)
        return;
    for (; at > 0 && users[at - 1].bytes < bytes; at--)
        users[at] = users[at - 1];
    users[at] = (struct user){ bytes, node, pin };
}

// One pass over the plan, however large it is.
static void largest_users(const struct pen_plan *plan, uint32_t mems,
                          struct user users[USERS])
{
    memset(users, 0, USERS * sizeof(*users));
    for (uint32_t n = 0; n < plan->node_count; n++) {
        const struct stk_plan_node *node = &plan->nodes[n];
        uint64_t workspace = 0;
        for (uint32_t o = 0; o < node->outputs; o++) {
            const struct stk_plan_output *out = &node->output[o];
            if (mems & PEN_MEM_BIT(stk_home_account(stk_output_home(out))))
                add_user(users, stk_plan_pool_bytes(out), n, o);
        }
        for (unsigned m = PEN_MEM_HOST; m < PEN_MEM_COUNT; m++)
            if (mems & PEN_MEM_BIT(m))
                workspace += workspace_of(node, (enum pen_mem_type)m);
        add_user(users, workspace, n, WORKSPACE);
    }
}

// Of a size that is not to be rounded down: who copies it gets enough.
static void format_enough(uint64_t bytes, char *text, size_t size)
{
    uint64_t read = 0;
    stk_format_size(bytes, text, size);
    if (!stk_parse_size(text, &read) || read < bytes)
        snprintf(text, size, "%" PRIu64, bytes);
}

static enum pen_status over(const struct pen_plan *plan, uint32_t mems,
                            uint64_t peak, uint64_t budget,
                            struct pen_error *err)
{
    struct user users[USERS];
    struct stk_text text = { 0 };
    char name[64], need[32], have[32];
    largest_users(plan, mems, users);
    stk_mems_text(mems, name, sizeof(name));
    for (char *c = name; *c; c++)
        if (*c == '|')
            *c = '+';
    stk_format_size(peak, need, sizeof(need));
    stk_format_size(budget, have, sizeof(have));
    if (strcmp(need, have) == 0) {
        snprintf(need, sizeof(need), "%" PRIu64 " bytes", peak);
        snprintf(have, sizeof(have), "%" PRIu64 " bytes", budget);
    }
    stk_text_addf(&text,
                  "%s memory: %s are needed, the budget is %s; largest:", name,
                  need, have);
    for (unsigned i = 0; i < USERS && users[i].bytes; i++) {
        const struct stk_plan_node *node = &plan->nodes[users[i].node];
        const char *gap = i ? "," : "";
        stk_format_size(users[i].bytes, need, sizeof(need));
        if (users[i].pin == WORKSPACE) {
            stk_text_addf(&text, "%s `%s` %s (workspace)", gap, node->id, need);
            continue;
        }
        const struct stk_plan_output *o = &node->output[users[i].pin];
        stk_format_size(o->block_bytes, have, sizeof(have));
        stk_text_addf(&text, "%s `%s.%s` %s (%u frames of %s)", gap, node->id,
                      node->cls->outputs[users[i].pin].name, need, o->blocks,
                      have);
    }
    const enum pen_status st = text.failed ? PEN_E_NOMEM : PEN_E_LIMIT;
    pen_error_set(err, st, 0, "", "%s",
                  text.failed ? "no memory for the plan" : text.data);
    stk_text_finish(&text);
    return st;
}

// Whether pools were page-locked that need not be.
static bool has_upgrades(const struct pen_plan *plan)
{
    for (uint32_t n = 0; n < plan->node_count; n++)
        for (uint32_t o = 0; o < plan->nodes[n].outputs; o++)
            if (plan->nodes[n].output[o].mem == PEN_MEM_HOST_PINNED &&
                plan->nodes[n].output[o].upgraded_from)
                return true;
    return false;
}

void stk_plan_lower(const struct pen_plan *plan,
                    const struct stk_excess *excess, char *text, size_t size)
{
    struct user users[USERS];
    char bytes[32], frame[32];
    if (!excess->mems) {
        snprintf(text, size,
                 "keep the modules on one side, or raise `%s` of the budget",
                 excess->key);
        return;
    }
    largest_users(plan, excess->mems, users);
    format_enough(excess->needed, bytes, sizeof(bytes));
    int at = snprintf(text, size, "raise `%s` of the budget to %s", excess->key,
                      bytes);
    const struct stk_plan_node *node = &plan->nodes[users[0].node];
    if (users[0].bytes && users[0].pin == WORKSPACE && (size_t)at < size)
        at += snprintf(text + at, size - (size_t)at,
                       ", or give `%s` smaller frames", node->id);
    else if (users[0].bytes && (size_t)at < size) {
        stk_format_size(node->output[users[0].pin].block_bytes, frame,
                        sizeof(frame));
        at += snprintf(text + at, size - (size_t)at,
                       ", or lower `queue_depth` behind `%s` (%s for each "
                       "frame less) or the size of its frames",
                       node->id, frame);
    }
    const bool stage =
        plan->desc && plan->desc->pinned_limit == STK_PINNED_REFUSE;
    if (stage && excess->mems == PEN_MEM_BIT(PEN_MEM_HOST_PINNED) &&
        has_upgrades(plan) && (size_t)at < size)
        snprintf(text + at, size - (size_t)at,
                 ", or set \"pinned_limit\": \"stage\", which copies on the "
                 "CPU instead");
}

static enum pen_status over_transfers(const struct pen_plan *plan,
                                      enum stk_transfer which, uint32_t count,
                                      uint32_t budget, struct pen_error *err)
{
    struct stk_text text = { 0 };
    unsigned told = 0;
    stk_text_addf(&text, "%u transfer%s %s a frame, the budget is %u:", count,
                  count == 1 ? "" : "s",
                  which == STK_H2D ? "to the device" : "to the host", budget);
    for (uint32_t n = 0; n < plan->node_count && told < 4; n++)
        if (stk_node_transfer(plan, &plan->nodes[n]) == which)
            stk_text_addf(&text, "%s `%s`", told++ ? "," : "",
                          plan->nodes[n].id);
    const enum pen_status st = text.failed ? PEN_E_NOMEM : PEN_E_LIMIT;
    pen_error_set(err, st, 0, "", "%s",
                  text.failed ? "no memory for the plan" : text.data);
    stk_text_finish(&text);
    return st;
}

static enum pen_status memory_budgets(const struct pen_plan *plan,
                                      struct stk_excess *x,
                                      struct pen_error *err)
{
    strcpy(x->code, "E510");
    while (x->next < PEN_MEM_COUNT) {
        const unsigned m = x->next++;
        if (m == PEN_MEM_NONE || plan->budget[m] == 0 ||
            plan->peak[m] <= plan->budget[m])
            continue;
        x->key = pen_mem_key((enum pen_mem_type)m);
        x->mems = PEN_MEM_BIT(m);
        x->needed = plan->peak[m];
        return over(plan, x->mems, x->needed, plan->budget[m], err);
    }
    if (x->next > PEN_MEM_COUNT)
        return PEN_OK;
    x->next++;
    x->key = pen_mem_key(PEN_MEM_HOST);
    x->mems = PEN_MEM_BITS_HOST | PEN_MEM_BIT(PEN_MEM_DMABUF);
    x->needed = plan->peak[PEN_MEM_HOST] + plan->peak[PEN_MEM_HOST_PINNED] +
                plan->peak[PEN_MEM_DMABUF];
    if (plan->peak[PEN_MEM_DMABUF] == 0)
        x->mems = PEN_MEM_BITS_HOST;
    if (plan->host_budget == 0 || x->needed <= plan->host_budget)
        return PEN_OK;
    return over(plan, x->mems, x->needed, plan->host_budget, err);
}

enum pen_status stk_plan_budgets(const struct pen_plan *plan,
                                 struct stk_excess *x, struct pen_error *err)
{
    const struct pen_plan_params *params = &plan->params;
    PEN_TRY(memory_budgets(plan, x, err));
    strcpy(x->code, "E511");
    x->mems = 0;
    if (x->next == PEN_MEM_COUNT + 1) {
        x->next++;
        x->key = "h2d_per_frame";
        if (params->h2d_limited && plan->h2d_per_frame > params->h2d_per_frame)
            return over_transfers(plan, STK_H2D, plan->h2d_per_frame,
                                  params->h2d_per_frame, err);
    }
    if (x->next == PEN_MEM_COUNT + 2) {
        x->next++;
        x->key = "d2h_per_frame";
        if (params->d2h_limited && plan->d2h_per_frame > params->d2h_per_frame)
            return over_transfers(plan, STK_D2H, plan->d2h_per_frame,
                                  params->d2h_per_frame, err);
    }
    return PEN_OK;
}

// --- completing a plan ------------------------------------------------------

// What a change overwrote, so that a refusal leaves the plan as it was.
struct saved_node {
    uint32_t number;
    int64_t cost_ns;
    struct stk_plan_output output[PEN_MAX_PINS];
    uint64_t workspace[PEN_MEM_COUNT];
};

struct journal {
    struct saved_node *nodes;
    size_t count, room;
    struct totals totals;
};

static enum pen_status save(struct journal *j, const struct pen_plan *plan,
                            uint32_t number, struct pen_error *err)
{
    if (j->count == j->room) {
        const size_t room = j->room ? 2 * j->room : 8;
        void *grown = realloc(j->nodes, room * sizeof(*j->nodes));
        if (!grown)
            return stk_plan_no_memory(err);
        j->nodes = grown;
        j->room = room;
    }
    struct saved_node *s = &j->nodes[j->count++];
    s->number = number;
    s->cost_ns = plan->nodes[number].cost_ns;
    memcpy(s->output, plan->nodes[number].output, sizeof(s->output));
    memcpy(s->workspace, plan->nodes[number].workspace, sizeof(s->workspace));
    return PEN_OK;
}

// Edges carry what their producer gives.
static void set_edges(struct pen_plan *plan, uint32_t number, bool mark,
                      uint32_t *last)
{
    for (uint32_t e = plan->first_out[number]; e < plan->first_out[number + 1];
         e++) {
        struct stk_plan_edge *edge = &plan->edges[e];
        const struct stk_plan_output *o =
            &plan->nodes[number].output[edge->from_pin];
        edge->caps = o->caps;
        edge->formats = stk_caps_mask(&o->caps);
        if (!mark)
            continue;
        plan->marks[edge->to] = 1;
        if (edge->to > *last)
            *last = edge->to;
    }
}

static bool same(const struct pen_caps *a, const struct pen_caps *b)
{
    return a->kind == b->kind && a->codec == b->codec &&
           a->format == b->format && a->formats == b->formats &&
           a->width == b->width && a->height == b->height &&
           a->matrix == b->matrix && a->range == b->range &&
           a->fps.num == b->fps.num && a->fps.den == b->fps.den &&
           a->bytes == b->bytes;
}

// Take over the caps of an output; *changed tells whether they are new.
static enum pen_status enlarge(struct stk_plan_node *node, uint32_t pin,
                               const struct pen_caps *caps, bool *changed,
                               struct pen_error *err)
{
    struct stk_plan_output *o = &node->output[pin];
    struct pen_caps all = o->caps;
    struct pen_error error = { 0 };
    stk_caps_unite(&all, caps, false);
    if (same(&all, &o->caps))
        return PEN_OK;
    *changed = true;
    o->caps = all;
    const enum pen_status st = stk_caps_bytes(&all, &o->block_bytes, &error);
    if (st == PEN_OK)
        return PEN_OK;
    return pen_error_set(err, st, 0, node->id, "`%s.%s`: %s", node->id,
                         node->cls->outputs[pin].name, error.text);
}

// What flows must be what was planned, or consumers were promised otherwise.
static enum pen_status check_promise(const struct stk_plan_node *node,
                                     uint32_t pin, struct pen_caps *caps,
                                     struct pen_error *err)
{
    const struct pen_caps *planned = &node->output[pin].caps;
    const char *name = node->cls->outputs[pin].name;
    if (planned->kind == PEN_KIND_NONE || planned->kind == PEN_KIND_FRAME ||
        caps->kind == PEN_KIND_NONE)
        caps->kind = planned->kind;
    if (caps->kind != planned->kind)
        return pen_error_set(err, PEN_E_CONFIG, 0, node->id,
                             "`%s.%s` gives %s frames, planned were %s",
                             node->id, name, pen_kind_name(caps->kind),
                             pen_kind_name(planned->kind));
    const uint32_t given = stk_caps_mask(caps), known = stk_caps_mask(planned);
    if (known == 0 || (given & ~known) == 0)
        return PEN_OK;
    char gives[160], plans[160];
    stk_mask_text(given, gives, sizeof(gives));
    stk_mask_text(known, plans, sizeof(plans));
    return pen_error_set(err, PEN_E_CONFIG, 0, node->id,
                         "`%s.%s` gives %s, planned was %s", node->id, name,
                         gives, plans);
}

static enum pen_status propagate(struct pen_plan *plan, uint32_t number,
                                 struct journal *j, uint32_t *last,
                                 struct pen_error *err)
{
    struct stk_plan_node *node = &plan->nodes[number];
    struct pen_caps in[PEN_MAX_PINS] = { 0 }, out[PEN_MAX_PINS] = { 0 };
    struct pen_error error = { 0 };
    struct totals t = totals_of(plan);
    uint32_t refused;
    bool changed = false;
    for (uint32_t i = 0; i < node->inputs; i++)
        if (node->in_edge[i] >= 0)
            in[i] = plan->edges[node->in_edge[i]].caps;
    const enum pen_status st =
        stk_plan_negotiate(node, in, out, &refused, &error);
    if (st != PEN_OK)
        return pen_error_set(err, st, 0, node->id, "`%s`: %s", node->id,
                             error.text);
    PEN_TRY(save(j, plan, number, err));
    PEN_TRY(account(plan, &t, node, -1, err));
    for (uint32_t o = 0; o < node->outputs; o++)
        PEN_TRY(enlarge(node, o, &out[o], &changed, err));
    set_cost(plan, node);
    set_workspace(plan, node);
    PEN_TRY(account(plan, &t, node, 1, err));
    set_totals(plan, &t);
    if (changed)
        set_edges(plan, number, true, last);
    return PEN_OK;
}

static enum pen_status settle(struct pen_plan *plan, uint32_t number,
                              uint32_t pin, const struct pen_caps *caps,
                              struct journal *j, struct pen_error *err)
{
    struct stk_plan_node *node = &plan->nodes[number];
    struct totals t = totals_of(plan);
    bool changed = false;
    uint32_t last = 0;
    PEN_TRY(save(j, plan, number, err));
    PEN_TRY(account(plan, &t, node, -1, err));
    PEN_TRY(enlarge(node, pin, caps, &changed, err));
    if (!changed)
        return PEN_OK;
    set_cost(plan, node);
    set_workspace(plan, node);
    PEN_TRY(account(plan, &t, node, 1, err));
    set_totals(plan, &t);
    set_edges(plan, number, true, &last);
    for (uint32_t n = number + 1; n <= last; n++) {
        if (!plan->marks[n])
            continue;
        plan->marks[n] = 0;
        PEN_TRY(propagate(plan, n, j, &last, err));
    }
    struct stk_excess excess = { 0 };
    return stk_plan_budgets(plan, &excess, err);
}

enum pen_status stk_plan_settle(struct pen_plan *plan, uint32_t node,
                                uint32_t pin, const struct pen_caps *caps,
                                struct pen_error *err)
{
    if (node >= plan->node_count || pin >= plan->nodes[node].outputs)
        return pen_error_set(err, PEN_E_ARG, 0, "stk_plan_settle",
                             "node %u has no output %u", node, pin);
    struct pen_caps given = *caps;
    PEN_TRY(check_promise(&plan->nodes[node], pin, &given, err));
    struct journal j = { .totals = totals_of(plan) };
    const enum pen_status st = settle(plan, node, pin, &given, &j, err);
    if (st != PEN_OK) {
        memset(plan->marks, 0, plan->node_count);
        while (j.count-- > 0) {
            const struct saved_node *s = &j.nodes[j.count];
            struct stk_plan_node *n = &plan->nodes[s->number];
            n->cost_ns = s->cost_ns;
            memcpy(n->output, s->output, sizeof(n->output));
            memcpy(n->workspace, s->workspace, sizeof(n->workspace));
            set_edges(plan, s->number, false, NULL);
        }
        set_totals(plan, &j.totals);
    }
    free(j.nodes);
    return st;
}
