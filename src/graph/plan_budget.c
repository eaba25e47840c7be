// Budgets: what a plan needs against what it may have, the largest users, and
// what to do about a plan that is over.

#include "plan_size.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "planner.h"

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
                workspace +=
                    stk_plan_workspace_bytes(node, (enum pen_mem_type)m);
        add_user(users, workspace, n, WORKSPACE);
    }
}

void stk_plan_enough_text(uint64_t bytes, char *text, size_t size)
{
    uint64_t read = 0, unit = 1;
    stk_format_size(bytes, text, size);
    if (stk_parse_size(text, &read) && read >= bytes)
        return;
    // Half of a hundredth more is rounded up.
    while (unit <= bytes / 1024)
        unit *= 1024;
    const uint64_t more = unit / 200 + 1;
    if (bytes <= UINT64_MAX - more)
        stk_format_size(bytes + more, text, size);
    if (!stk_parse_size(text, &read) || read < bytes)
        snprintf(text, size, "%" PRIu64, bytes);
}

// The deepest queue right behind an output; NULL: none.
static const struct stk_plan_edge *deepest(const struct pen_plan *plan,
                                           uint32_t node, uint32_t pin)
{
    const struct stk_plan_edge *found = NULL;
    for (uint32_t e = plan->first_out[node]; e < plan->first_out[node + 1]; e++)
        if (plan->edges[e].from_pin == pin &&
            (!found || plan->edges[e].depth > found->depth))
            found = &plan->edges[e];
    return found;
}

// What makes the pool of an output smaller, as the end of a sentence.
static int lower_pool(const struct pen_plan *plan, const struct user *user,
                      char *text, size_t size)
{
    const struct stk_plan_node *node = &plan->nodes[user->node];
    const struct stk_plan_edge *queue = deepest(plan, user->node, user->pin);
    char frame[32];
    stk_format_size(node->output[user->pin].block_bytes, frame, sizeof(frame));
    if (!queue || queue->depth <= 1)
        return snprintf(text, size, ", or make the frames of `%s` smaller",
                        node->id);
    // The depth in front of a bridge follows from those behind it.
    if (plan->nodes[queue->to].inserted)
        return snprintf(text, size,
                        ", or lower `queue_depth` behind `%s` (%s for each "
                        "frame less) or the size of its frames",
                        node->id, frame);
    return snprintf(text, size,
                    ", or lower `queue.depth` in front of `%s` from %u (%s for "
                    "each frame less) or the size of the frames",
                    plan->nodes[queue->to].id, queue->depth, frame);
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
    char bytes[32];
    if (!excess->mems) {
        snprintf(text, size,
                 "keep the modules on one side, or raise `%s` of the budget",
                 excess->key);
        return;
    }
    largest_users(plan, excess->mems, users);
    stk_plan_enough_text(excess->needed, bytes, sizeof(bytes));
    int at = snprintf(text, size, "raise `%s` of the budget to %s", excess->key,
                      bytes);
    const struct stk_plan_node *node = &plan->nodes[users[0].node];
    if (users[0].bytes && users[0].pin == WORKSPACE && (size_t)at < size)
        at += snprintf(text + at, size - (size_t)at,
                       ", or give `%s` smaller frames", node->id);
    else if (users[0].bytes && (size_t)at < size)
        at += lower_pool(plan, &users[0], text + at, size - (size_t)at);
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
