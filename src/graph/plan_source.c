// What sources give: by their properties and, if that is wanted, by the headers
// of the files that they read.

#include "planner.h"

#include <string.h>

static enum pen_status probe(struct stk_planner *p,
                             const struct stk_plan_node *node,
                             struct pen_caps *out, struct pen_error *err)
{
    struct pen_probe probe = { .limit = STK_PROBE_LIMIT };
    struct pen_error error = { 0 };
    const enum pen_status st =
        node->cls->ops.probe(node->params, &probe, &error);
    if (st == PEN_E_NOMEM)
        return stk_plan_no_memory(err);
    if (st < 0) {
        stk_planner_error(p, stk_probe_code(st), node->pointer, "", "%s",
                          error.text);
        return PEN_OK;
    }
    if (st != PEN_OK)
        return PEN_OK;
    stk_probe_tell(&probe, p->plan->desc, node->pointer, p->issues);
    if (probe.caps.width > 0 && probe.caps.height > 0) {
        out->width = probe.caps.width;
        out->height = probe.caps.height;
    }
    if (probe.caps.bytes > 0)
        out->bytes = probe.caps.bytes;
    if (probe.caps.codec != PEN_CODEC_UNKNOWN)
        out->codec = probe.caps.codec;
    if (probe.caps.matrix != PEN_MATRIX_UNKNOWN)
        out->matrix = probe.caps.matrix;
    if (probe.caps.range != PEN_RANGE_UNKNOWN)
        out->range = probe.caps.range;
    // Formats seen in some of the files prove nothing about the others.
    if (probe.complete && probe.caps.formats) {
        const uint32_t seen = probe.caps.formats;
        if (stk_caps_mask(out) == 0 || (seen & stk_caps_mask(out))) {
            out->formats = seen;
            out->format = (seen & (seen - 1)) == 0
                              ? (enum pen_format)__builtin_ctz(seen)
                              : PEN_FMT_NONE;
        }
    }
    if (probe.frames > p->given)
        p->given = probe.frames;
    return PEN_OK;
}

// Whether a class reads files. What others find they know from properties.
static bool reads_files(const struct pen_module_class *cls)
{
    for (const struct pen_prop *row = cls->props; row && row->kind; row++)
        if (row->flags & PEN_PROP_PATH_READ)
            return true;
    return false;
}

// What an option of a source gives.
static enum pen_status ask_source(struct stk_planner *p, uint32_t node,
                                  uint32_t number, struct pen_error *err)
{
    const struct stk_node *n = &p->graph->nodes[node];
    const struct stk_option *option = &n->options[number];
    struct stk_source *source = &p->sources[node][number];
    struct pen_caps in[PEN_MAX_PINS] = { 0 };
    stk_planner_mould(p, n, option);
    p->mould.pointer = n->desc->pointer;
    enum pen_status st = stk_plan_negotiate(&p->mould, in, source->caps,
                                            &source->refused, &source->error);
    if (st == PEN_E_NOMEM)
        return stk_plan_no_memory(err);
    const bool may = p->plan->params.probe || !reads_files(option->cls);
    if (st == PEN_OK && may && option->cls->ops.probe)
        for (uint32_t o = 0; o < n->outputs; o++)
            PEN_TRY(probe(p, &p->mould, &source->caps[o], err));
    for (uint32_t o = 0; o < n->outputs && st == PEN_OK; o++) {
        size_t bytes;
        st = stk_caps_bytes(&source->caps[o], &bytes, &source->error);
    }
    source->usable = st == PEN_OK;
    return PEN_OK;
}

enum pen_status stk_plan_ask_sources(struct stk_planner *p,
                                     struct pen_error *err)
{
    const struct stk_graph *g = p->graph;
    for (uint32_t i = 0; i < g->node_count; i++) {
        const uint32_t node = p->sequence[i];
        const struct stk_node *n = &g->nodes[node];
        p->generic = p->generic || n->option_count > 1;
        if (n->inputs)
            continue;
        p->sources[node] = stk_arena_alloc(
            &p->plan->arena, n->option_count * sizeof(struct stk_source));
        if (!p->sources[node])
            return stk_plan_no_memory(err);
        for (uint32_t k = 0; k < n->option_count; k++)
            PEN_TRY(ask_source(p, node, k, err));
    }
    if (p->given && (!p->plan->frames || p->given < p->plan->frames))
        p->plan->frames = p->given;
    return PEN_OK;
}
