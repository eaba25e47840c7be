// What can be read from a plan but stands nowhere in it: the cost by what does
// the work, the memory by module, and what is not known before start.

#include "plan_print.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "plan_size.h"

// --- cost -------------------------------------------------------------------

struct stk_plan_parts stk_plan_parts(const struct pen_plan *plan)
{
    struct stk_plan_parts parts = { 0 };
    for (uint32_t n = 0; n < plan->node_count; n++) {
        const struct stk_plan_node *node = &plan->nodes[n];
        int64_t *part =
            node->cls->flags & PEN_CLASS_CUDA ? &parts.device : &parts.host;
        switch (stk_node_transfer(plan, node)) {
        case STK_H2D:
            part = &parts.h2d;
            break;
        case STK_D2H:
            part = &parts.d2h;
            break;
        case STK_D2D:
            part = &parts.d2d;
            break;
        case STK_H2H:
        case STK_NO_TRANSFER:
            break;
        }
        *part = stk_cost_sum(*part, node->cost_ns);
    }
    return parts;
}

bool stk_plan_moves_known(const struct pen_plan *plan,
                          enum stk_transfer transfer)
{
    if (plan->unknown == 0)
        return true;
    for (uint32_t n = 0; n < plan->node_count; n++)
        if (stk_node_transfer(plan, &plan->nodes[n]) == transfer &&
            plan->nodes[n].output[0].block_bytes == 0)
            return false;
    return true;
}

bool stk_plan_lossy(const struct pen_plan *plan)
{
    for (uint32_t n = 0; n < plan->node_count; n++)
        if (plan->nodes[n].loss[0])
            return true;
    return false;
}

// --- memory -----------------------------------------------------------------

static uint64_t sum_of(uint64_t a, uint64_t b)
{
    return a > UINT64_MAX - b ? UINT64_MAX : a + b;
}

static struct stk_holding holding_of(const struct pen_plan *plan, uint32_t n)
{
    const struct stk_plan_node *node = &plan->nodes[n];
    struct stk_holding h = { .node = n };
    for (uint32_t o = 0; o < node->outputs; o++) {
        const struct stk_plan_output *out = &node->output[o];
        const enum pen_mem_type mem = stk_home_account(stk_output_home(out));
        if (out->blocks && out->block_bytes == 0)
            h.unknown |= PEN_MEM_BIT(mem);
        h.pools[mem] = sum_of(h.pools[mem], stk_plan_pool_bytes(out));
        h.sum = sum_of(h.sum, stk_plan_pool_bytes(out));
    }
    for (unsigned m = PEN_MEM_HOST; m < PEN_MEM_COUNT; m++) {
        h.workspace[m] = stk_plan_workspace_bytes(node, (enum pen_mem_type)m);
        h.sum = sum_of(h.sum, h.workspace[m]);
    }
    return h;
}

static int larger_first(const void *a, const void *b)
{
    const struct stk_holding *x = a, *y = b;
    if (x->sum != y->sum)
        return x->sum > y->sum ? -1 : 1;
    return x->node < y->node ? -1 : x->node > y->node;
}

struct stk_holding *stk_plan_holdings(const struct pen_plan *plan,
                                      uint32_t *count)
{
    struct stk_holding *list =
        calloc((size_t)plan->node_count + 1, sizeof(*list));
    *count = 0;
    for (uint32_t n = 0; list && n < plan->node_count; n++) {
        list[*count] = holding_of(plan, n);
        *count += list[*count].sum || list[*count].unknown;
    }
    if (list)
        qsort(list, *count, sizeof(*list), larger_first);
    return list;
}

bool stk_plan_unknown(const struct pen_plan *plan, enum pen_mem_type mem)
{
    if (plan->unknown == 0)
        return false;
    for (uint32_t n = 0; n < plan->node_count; n++)
        for (uint32_t o = 0; o < plan->nodes[n].outputs; o++) {
            const struct stk_plan_output *out = &plan->nodes[n].output[o];
            if (stk_home_account(stk_output_home(out)) == mem && out->blocks &&
                out->block_bytes == 0)
                return true;
        }
    return false;
}

// --- what is not known ------------------------------------------------------

const char *const stk_gap_names[STK_GAPS] = { "format", "size",  "bytes",
                                              "matrix", "range", "rate" };

static unsigned gaps_of(const struct pen_caps *caps, bool rates)
{
    const uint32_t formats = stk_caps_mask(caps);
    unsigned gaps = 0;
    if (caps->kind == PEN_KIND_NONE)
        return 0;
    if (rates && caps->fps.num <= 0)
        gaps |= STK_GAP_RATE;
    if (stk_caps_sized(caps) && (caps->width <= 0 || caps->height <= 0))
        gaps |= STK_GAP_SIZE;
    if (caps->kind != PEN_KIND_RAW_IMAGE)
        return gaps | (caps->bytes ? 0 : STK_GAP_BYTES);
    if (formats == 0 || (formats & (formats - 1)) != 0)
        gaps |= STK_GAP_FORMAT;
    // A mosaic has neither matrix nor range.
    if (formats && !(formats & PEN_FMT_BITS_ALL11))
        return gaps;
    if (caps->matrix == PEN_MATRIX_UNKNOWN)
        gaps |= STK_GAP_MATRIX;
    if (caps->range == PEN_RANGE_UNKNOWN)
        gaps |= STK_GAP_RANGE;
    return gaps;
}

// What an output may have from inputs of which that is unknown; the bytes of an
// encoded picture follow from the picture.
static unsigned handed_on(const struct pen_caps *in, bool rates)
{
    const unsigned gaps = gaps_of(in, rates);
    return gaps & (STK_GAP_FORMAT | STK_GAP_SIZE) ? gaps | STK_GAP_BYTES : gaps;
}

static bool output_used(const struct pen_plan *plan, uint32_t n, uint32_t pin)
{
    for (uint32_t e = plan->first_out[n]; e < plan->first_out[n + 1]; e++)
        if (plan->edges[e].from_pin == pin)
            return true;
    return false;
}

static bool has_rates(const struct pen_plan *plan)
{
    for (uint32_t e = 0; e < plan->edge_count; e++)
        if (plan->edges[e].caps.fps.num > 0)
            return true;
    return false;
}

struct stk_unknown *stk_plan_unknowns(const struct pen_plan *plan,
                                      uint32_t *count)
{
    const bool rates = has_rates(plan);
    struct stk_unknown *list =
        calloc((size_t)plan->edge_count + 1, sizeof(*list));
    *count = 0;
    for (uint32_t n = 0; list && n < plan->node_count; n++) {
        const struct stk_plan_node *node = &plan->nodes[n];
        unsigned before = 0;
        for (uint32_t i = 0; i < node->inputs; i++)
            if (node->in_edge[i] >= 0)
                before |= handed_on(&plan->edges[node->in_edge[i]].caps, rates);
        for (uint32_t o = 0; o < node->outputs; o++) {
            const unsigned gaps = gaps_of(&node->output[o].caps, rates);
            if (gaps && output_used(plan, n, o))
                list[(*count)++] =
                    (struct stk_unknown){ n, o, gaps, gaps & ~before };
        }
    }
    return list;
}

// The source from which the first input of a module comes in the end.
static const struct stk_plan_node *source_of(const struct pen_plan *plan,
                                             uint32_t n)
{
    while (plan->nodes[n].inputs && plan->nodes[n].in_edge[0] >= 0)
        n = plan->edges[plan->nodes[n].in_edge[0]].from;
    return &plan->nodes[n];
}

// The module at the output, if it can be told the largest size.
static const struct stk_plan_node *limited(const struct pen_plan *plan,
                                           const struct stk_unknown *u)
{
    const struct stk_plan_node *node = &plan->nodes[u->node];
    const bool raw = node->output[u->pin].caps.kind == PEN_KIND_RAW_IMAGE;
    return raw && !node->inserted ? node : NULL;
}

void stk_unknown_cure(const struct pen_plan *plan, const struct stk_unknown *u,
                      char *text, size_t size)
{
    const struct stk_plan_node *source = source_of(plan, u->node);
    const struct stk_plan_node *limit =
        u->own & STK_GAP_SIZE ? limited(plan, u) : NULL;
    const bool probe = !plan->params.probe && source->cls->ops.probe;
    int at = 0;
    *text = '\0';
    if (probe)
        at = snprintf(text, size,
                      "--probe reads the headers of the files of `%s`",
                      source->id);
    if (limit && at >= 0 && (size_t)at < size)
        snprintf(text + at, size - (size_t)at,
                 "%s`maxWidth` and `maxHeight` of `%s` settle the size",
                 at ? "; " : "", limit->id);
}
