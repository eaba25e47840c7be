// Pinned memory that is over its budget, where `"pinned_limit": "stage"` wants
// a slower plan rather than none: pools that were to be page-locked for an
// upload stay ordinary memory, the largest first, and a small pinned ring in
// front of the upload takes a copy of each frame, made by the CPU.
//
// The plan is made anew with the pools that stay as they are; how much a ring
// takes shows only there. An estimate makes the first choice right as a rule.

#include "planner.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

// Blocks of a ring with one consumer: one is filled while the other is copied.
enum { RING = 2 };

struct pool {
    uint64_t bytes, saving;
    uint32_t node, pin;
};

static int larger_first(const void *left, const void *right)
{
    const struct pool *a = left, *b = right;
    if (a->bytes != b->bytes)
        return a->bytes < b->bytes ? 1 : -1;
    if (a->node != b->node)
        return a->node < b->node ? -1 : 1;
    return (a->pin > b->pin) - (a->pin < b->pin);
}

// Pools that the planner had page-locked: its own upgrades, and pins that may
// give either.
static uint32_t list_pools(const struct pen_plan *plan, struct pool *list)
{
    uint32_t count = 0;
    for (uint32_t n = 0; n < plan->node_count; n++) {
        const struct stk_plan_node *node = &plan->nodes[n];
        for (uint32_t o = 0; o < node->outputs; o++) {
            const struct stk_plan_output *out = &node->output[o];
            const bool may = !(node->cls->flags & PEN_CLASS_CUDA) &&
                             (node->out[o].mem & PEN_MEM_BIT(PEN_MEM_HOST));
            const uint64_t bytes = stk_plan_pool_bytes(out);
            if (out->mem != PEN_MEM_HOST_PINNED || bytes == 0 ||
                !(out->upgraded_from || may))
                continue;
            const uint64_t ring = (uint64_t)out->block_bytes * RING;
            if (list)
                list[count] =
                    (struct pool){ bytes, bytes > ring ? bytes - ring : 0, n,
                                   o };
            count++;
        }
    }
    return count;
}

static void mark(struct stk_planner *p, struct stk_stage *stage,
                 const struct pool *pool)
{
    const struct stk_aside *a = &p->aside[pool->node];
    const uint32_t pin =
        p->plan->nodes[pool->node].inserted ? a->pin : pool->pin;
    stage->formats[(size_t)a->node * PEN_MAX_PINS + pin] |=
        PEN_FMT_BIT(a->format);
}

enum pen_status stk_plan_stage_more(struct stk_planner *p,
                                    struct stk_stage *stage, bool *again,
                                    struct pen_error *err)
{
    const struct pen_plan *plan = p->plan;
    const uint64_t peak = plan->peak[PEN_MEM_HOST_PINNED];
    const uint64_t budget = plan->budget[PEN_MEM_HOST_PINNED];
    if (!plan->desc || plan->desc->pinned_limit != STK_PINNED_STAGE ||
        budget == 0 || peak <= budget || !plan->desc->auto_bridge ||
        !p->host_copy_cls)
        return PEN_OK;
    const uint32_t count = list_pools(plan, NULL);
    if (count == 0)
        return PEN_OK;
    if (!stage->formats) {
        stage->needed = peak;
        stage->cost_ns = plan->cost_ns;
        stage->formats = calloc((size_t)p->graph->node_count * PEN_MAX_PINS,
                                sizeof(*stage->formats));
    }
    struct pool *pools = calloc(count, sizeof(*pools));
    if (!stage->formats || !pools) {
        free(pools);
        return stk_plan_no_memory(err);
    }
    list_pools(plan, pools);
    qsort(pools, count, sizeof(*pools), larger_first);
    // Where the estimate was wrong, twice as many as the last time: a plan for
    // ten thousand modules is not made ten thousand times.
    uint64_t saved = 0;
    const uint32_t least = 1u << (stage->rounds < 31 ? stage->rounds : 31);
    for (uint32_t i = 0; i < count; i++) {
        if (saved >= peak - budget && (stage->rounds == 0 || i >= least))
            break;
        mark(p, stage, &pools[i]);
        saved += pools[i].saving;
    }
    stage->rounds++;
    *again = true;
    free(pools);
    return PEN_OK;
}

void stk_plan_stage_tell(struct stk_planner *p, const struct stk_stage *stage)
{
    const struct pen_plan *plan = p->plan;
    char needed[32], budget[32], frame[32], suggestion[128];
    size_t marked = 0;
    if (!stage->formats)
        return;
    for (size_t i = 0; i < (size_t)p->graph->node_count * PEN_MAX_PINS; i++)
        marked += (size_t)__builtin_popcount(stage->formats[i]);
    stk_format_size(stage->needed, needed, sizeof(needed));
    stk_format_size(plan->budget[PEN_MEM_HOST_PINNED], budget, sizeof(budget));
    snprintf(suggestion, sizeof(suggestion),
             "a budget of %s for `host_pinned` avoids the copy", needed);
    for (uint32_t n = 0; n < plan->node_count; n++) {
        const struct stk_plan_node *node = &plan->nodes[n];
        if (!node->staged)
            continue;
        marked -= marked > 0;
        const struct stk_plan_edge *e = &plan->edges[node->in_edge[0]];
        const struct stk_plan_node *from = &plan->nodes[e->from];
        stk_format_size(node->output[0].block_bytes, frame, sizeof(frame));
        stk_issue_add(
            p->issues, plan->desc, PEN_SEVERITY_WARNING, "W510",
            p->graph->nodes[p->aside[n].node].desc->pointer, suggestion,
            "`%s.%s` is not pinned: HOST_PINNED memory would need %s, the "
            "budget is %s; the CPU copies %s a frame in `%s`, %lld us a frame",
            from->id, from->cls->outputs[e->from_pin].name, needed, budget,
            frame, node->id, (long long)((node->cost_ns + 999) / 1000));
    }

    // Where the pool was a conversion's, another way may need no copy.
    if (marked)
        stk_issue_add(p->issues, plan->desc, PEN_SEVERITY_WARNING, "W510", "",
                      suggestion,
                      "the cheapest plan needs %s of HOST_PINNED memory, the "
                      "budget is %s; this one takes %lld us a frame instead of "
                      "%lld",
                      needed, budget, (long long)(plan->cost_ns / 1000),
                      (long long)(stage->cost_ns / 1000));
}
