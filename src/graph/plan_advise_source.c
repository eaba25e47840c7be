// Sources without an end in front of files that only grow (W316): such a run
// ends when the disk is full, or when the numbers of a pattern are used up.
// Other sinks let their frames go, and replace or overwrite; of a live source
// in front of them there is nothing to say.

#include "plan_advise.h"

#include <string.h>

// The property by which a source ends, where it is set so that it does not.
static const struct pen_prop *endless(const struct stk_plan_node *node)
{
    if (node->inputs != 0)
        return NULL;
    const struct pen_prop *loop = stk_prop_find(node->cls->props, "readLoop");
    const struct pen_prop *most = stk_prop_find(node->cls->props, "maxFrames");
    const char *params = node->params;
    if (loop && loop->kind == PEN_PROP_BOOL) {
        bool on;
        memcpy(&on, params + loop->offset, sizeof(on));
        if (on)
            return loop;
    }
    if (most && most->kind == PEN_PROP_I32) {
        int32_t frames;
        memcpy(&frames, params + most->offset, sizeof(frames));
        if (frames == 0)
            return most;
    }
    return NULL;
}

bool stk_advice_endless(const struct stk_plan_node *node)
{
    return endless(node) != NULL;
}

// Whether it makes a file for each frame, or adds to one.
static const char *grows(const struct stk_plan_node *node)
{
    const struct pen_prop *append = stk_prop_find(node->cls->props, "append");
    const char *params = node->params;
    for (const struct pen_prop *row = node->cls->props;
         row && row->kind != PEN_PROP_END; row++) {
        if (row->kind != PEN_PROP_STRING || !(row->flags & PEN_PROP_PATH_WRITE))
            continue;
        const char *path = stk_prop_string(row, params);
        if (strchr(path, '*'))
            return "makes a file for each frame";
        if (strchr(path, '?'))
            return "makes a file for each frame until its numbers are used up";
        bool on = false;
        if (*path && append && append->kind == PEN_PROP_BOOL)
            memcpy(&on, params + append->offset, sizeof(on));
        if (on)
            return "adds each frame to its file";
    }
    return NULL;
}

static void tell(struct stk_advice *a, const struct stk_plan_node *source,
                 const struct pen_prop *how, const struct stk_plan_node *sink)
{
    stk_advice_begin(a);
    stk_advice_name(&a->text, source->id);
    stk_text_add(&a->text, how->kind == PEN_PROP_BOOL
                               ? " begins again after its last file, and "
                               : " has no end (maxFrames is 0), and ");
    stk_advice_name(&a->text, sink->id);
    stk_text_add(&a->text, " ");
    stk_text_add(&a->text, grows(sink));
    stk_advice_fix(a, how->kind == PEN_PROP_BOOL ? "\"readLoop\": false"
                                                 : "\"maxFrames\": 300");
    stk_text_add(&a->fix, " in ");
    stk_advice_name(&a->fix, source->id);
    stk_text_add(&a->fix, ", or --frames N");
    stk_advice_issue(a, "W316", source->pointer);
}

// Forward, each node remembers the first endless source whose frames it gets;
// one warning for each source, at its first such sink.
void stk_advise_sources(struct stk_advice *a)
{
    const struct pen_plan *plan = a->plan;
    if (plan->params.frames || !a->endless)
        return;
    for (uint32_t n = 0; n < plan->node_count && !a->failed; n++) {
        const struct stk_plan_node *node = &plan->nodes[n];
        struct stk_trace *t = &a->traces[n];
        for (uint32_t i = 0; i < node->inputs; i++) {
            if (node->in_edge[i] < 0)
                continue;
            const uint32_t from = plan->edges[node->in_edge[i]].from;
            const int32_t source = a->traces[from].source;
            // Where several streams meet, the shortest ends them all.
            if (source == STK_NO_NODE) {
                t->source = STK_NO_NODE;
                break;
            }
            if (t->source == STK_NO_NODE)
                t->source = source;
        }
        if (t->source == STK_NO_NODE || a->traces[t->source].warned ||
            !grows(node))
            continue;
        const struct stk_plan_node *source = &plan->nodes[t->source];
        tell(a, source, endless(source), node);
        a->traces[t->source].warned = true;
    }
}
