// Advice about a finished plan: frames that leave the device and come back
// (W310), whoever wrote the copies and whatever lies between them, and frames
// that go to the device and return with nothing done there.

#include "planner.h"

#include <stdlib.h>
#include <string.h>

enum { NONE = -1 };

// Where the frames at a node's inputs were copied last, and the node before.
struct trace {
    int32_t down, down_from;  // download upstream, through host memory only
    int32_t up, up_from;      // upload upstream, through device memory only
    bool idle;                // only copies and forwarding since that upload
    bool told;
};

static void trace_node(const struct pen_plan *plan, uint32_t number,
                       struct trace *traces)
{
    const struct stk_plan_node *node = &plan->nodes[number];
    struct trace *t = &traces[number];
    *t = (struct trace){ .down = NONE, .up = NONE, .idle = true };
    for (uint32_t i = 0; i < node->inputs; i++) {
        if (node->in_edge[i] < 0)
            continue;
        const struct stk_plan_edge *e = &plan->edges[node->in_edge[i]];
        const struct stk_plan_node *from = &plan->nodes[e->from];
        const struct trace *f = &traces[e->from];
        const enum stk_transfer transfer = stk_node_transfer(plan, from);
        const bool device = STK_HOMES_CUDA & STK_HOME_BIT(stk_edge_home(e));
        const int32_t down = transfer == STK_D2H ? (int32_t)e->from
                             : device            ? NONE
                                                 : f->down;
        const int32_t up = transfer == STK_H2D ? (int32_t)e->from
                           : device            ? f->up
                                               : NONE;
        if (t->down == NONE && down != NONE) {
            t->down = down;
            t->down_from = (int32_t)e->from;
        }
        if (t->up == NONE && up != NONE) {
            t->up = up;
            t->up_from = (int32_t)e->from;
            t->idle = transfer == STK_H2D ||
                      (f->idle && (from->cls->flags & PEN_CLASS_FORWARDS));
        }
    }
}

// Prepend the nodes from `number` back to `stop`, which is included.
struct path {
    uint32_t *nodes;  // from the end to the beginning
    uint32_t count;
};

static void walk(struct path *path, const struct trace *traces, int32_t number,
                 int32_t stop, bool down)
{
    while (number != stop) {
        number = down ? traces[number].down_from : traces[number].up_from;
        path->nodes[path->count++] = (uint32_t)number;
    }
}

static void add_producer(struct path *path, const struct pen_plan *plan)
{
    const struct stk_plan_node *node =
        &plan->nodes[path->nodes[path->count - 1]];
    for (uint32_t i = 0; i < node->inputs; i++)
        if (node->in_edge[i] >= 0) {
            path->nodes[path->count++] = plan->edges[node->in_edge[i]].from;
            return;
        }
}

static void tell_path(struct stk_text *t, const struct pen_plan *plan,
                      const struct path *path)
{
    for (uint32_t i = path->count; i-- > 0;) {
        const struct stk_plan_node *node = &plan->nodes[path->nodes[i]];
        const enum stk_transfer transfer = stk_node_transfer(plan, node);
        stk_text_addf(t, "%s%s", i + 1 < path->count ? " -> " : "", node->id);
        if (transfer == STK_H2D)
            stk_text_add(t, " (to the device)");
        else if (transfer == STK_D2H)
            stk_text_add(t, " (to the host)");
    }
}

static void tell_saving(struct stk_text *t, const struct stk_plan_node *down,
                        const struct stk_plan_node *up)
{
    const uint64_t bytes =
        (uint64_t)down->output[0].block_bytes + up->output[0].block_bytes;
    if (!down->cost_ns || !up->cost_ns)
        return;
    char text[32];
    stk_format_size(bytes, text, sizeof(text));
    const int64_t us = (down->cost_ns + up->cost_ns) / 1000;
    stk_text_addf(t, "; costs %s and %lld us a frame", text, (long long)us);
}

// A device module for what a host module does, by its function tag.
static const struct pen_module_class *
device_twin(const struct pen_plan *plan, const struct pen_module_class *cls)
{
    for (const char *const *tag = cls->tags; tag && *tag; tag++) {
        if (strncmp(*tag, "function:", 9) != 0)
            continue;
        const char *const tags[] = { *tag, "backend:cuda", NULL };
        const struct pen_module_class *found = NULL;
        if (pen_registry_modules_with_tags(plan->registry, tags, &found, 1))
            return found;
    }
    return NULL;
}

// What to do instead; *pointer is the place in the file to do it.
static void suggest(struct stk_text *t, const struct pen_plan *plan,
                    const struct path *path, uint32_t first, uint32_t last,
                    const char **pointer)
{
    bool between = false;
    for (uint32_t i = last; i-- > first + 1;) {
        const struct stk_plan_node *node = &plan->nodes[path->nodes[i]];
        if (stk_node_transfer(plan, node) ||
            (node->cls->flags & PEN_CLASS_FORWARDS))
            continue;
        between = true;
        if (!**pointer)
            *pointer = node->pointer;
        const struct pen_module_class *twin = device_twin(plan, node->cls);
        if (twin && !node->inserted)
            stk_text_addf(t, "%s%s on the device can do what `%s` does",
                          t->length ? "; " : "", twin->name, node->id);
    }
    const struct stk_plan_node *up = &plan->nodes[path->nodes[first]];
    const struct stk_plan_node *down = &plan->nodes[path->nodes[last]];
    if (!between && (!up->inserted || !down->inserted))
        stk_text_addf(t, "remove `%s`", up->inserted ? down->id : up->id);
    if (!between && !up->inserted && !down->inserted)
        stk_text_addf(t, " and `%s`", down->id);
    if (!**pointer)
        *pointer = !up->inserted ? up->pointer : down->pointer;
}

static bool report(struct stk_planner *p, const struct path *path,
                   uint32_t first, uint32_t last, const char *what)
{
    const struct pen_plan *plan = p->plan;
    struct stk_text text = { 0 }, suggestion = { 0 };
    const char *pointer = "";
    stk_text_add(&text, what);
    tell_path(&text, plan, path);
    tell_saving(&text, &plan->nodes[path->nodes[first]],
                &plan->nodes[path->nodes[last]]);
    suggest(&suggestion, plan, path, first, last, &pointer);
    const bool ok = !text.failed && !suggestion.failed;
    if (ok)
        stk_issue_add(p->issues, plan->desc, PEN_SEVERITY_WARNING, "W310",
                      pointer, suggestion.data ? suggestion.data : "", "%s",
                      text.data);
    stk_text_finish(&text);
    stk_text_finish(&suggestion);
    return ok;
}

// Device, host, device: from what gives the frames (or the upload before) to
// what takes them in the end.
static bool tell_detour(struct stk_planner *p, struct trace *traces,
                        uint32_t upload, struct path *path)
{
    const struct pen_plan *plan = p->plan;
    const int32_t download = traces[upload].down;
    path->count = 0;
    for (uint32_t e = plan->first_out[upload];
         e < plan->first_out[upload + 1] && path->count == 0; e++)
        path->nodes[path->count++] = plan->edges[e].to;
    const uint32_t first = path->count;
    path->nodes[path->count++] = upload;
    walk(path, traces, (int32_t)upload, download, true);
    const uint32_t last = path->count - 1;
    if (traces[download].up != NONE)
        walk(path, traces, download, traces[download].up, false);
    add_producer(path, plan);
    traces[download].told = true;
    return report(p, path, first, last,
                  "frames leave the device and come back: ");
}

static bool tell_idle(struct stk_planner *p, const struct trace *traces,
                      uint32_t download, struct path *path)
{
    const struct pen_plan *plan = p->plan;
    path->count = 0;
    for (uint32_t e = plan->first_out[download];
         e < plan->first_out[download + 1] && path->count == 0; e++)
        path->nodes[path->count++] = plan->edges[e].to;
    const uint32_t first = path->count;
    path->nodes[path->count++] = download;
    walk(path, traces, (int32_t)download, traces[download].up, false);
    const uint32_t last = path->count - 1;
    add_producer(path, plan);
    return report(p, path, first, last,
                  "frames go to the device and return with nothing done: ");
}

enum pen_status stk_plan_advise(struct stk_planner *p, struct pen_error *err)
{
    const struct pen_plan *plan = p->plan;
    const uint32_t count = plan->node_count;
    if (plan->h2d_per_frame == 0 || plan->d2h_per_frame == 0)
        return PEN_OK;
    struct trace *traces = calloc((size_t)count + 1, sizeof(*traces));
    struct path path = { calloc((size_t)count + 4, sizeof(uint32_t)), 0 };
    bool ok = traces && path.nodes;
    for (uint32_t n = 0; n < count && ok; n++)
        trace_node(plan, n, traces);
    for (uint32_t n = 0; n < count && ok; n++)
        if (stk_node_transfer(plan, &plan->nodes[n]) == STK_H2D &&
            traces[n].down != NONE)
            ok = tell_detour(p, traces, n, &path);
    for (uint32_t n = 0; n < count && ok; n++)
        if (stk_node_transfer(plan, &plan->nodes[n]) == STK_D2H &&
            traces[n].up != NONE && traces[n].idle && !traces[n].told)
            ok = tell_idle(p, traces, n, &path);
    free(traces);
    free(path.nodes);
    if (!ok)
        return stk_plan_no_memory(err);
    return PEN_OK;
}
