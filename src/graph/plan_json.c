// A plan as JSON, with the keys that design and docs promise.

#include "plan_print.h"

#include <stdlib.h>
#include <string.h>

static json_t *or_null(bool known, json_int_t value)
{
    return known ? json_integer(value) : json_null();
}

static json_t *props_json(const struct stk_plan_node *node)
{
    json_t *props = json_object();
    for (const struct pen_prop *row = node->cls->props;
         row && row->kind != PEN_PROP_END; row++)
        props = stk_json_with(props, row->key,
                              stk_prop_get_json(row, node->params));
    return props;
}

// "a.x -> b.y, a.x -> c.y" as an array.
static json_t *serves_json(const char *serves)
{
    char *copy = strdup(serves);
    json_t *array = copy ? json_array() : NULL;
    for (char *at = copy; at && *at;) {
        char *next = strstr(at, ", ");
        if (next) {
            *next = '\0';
            next += 2;
        }
        array = stk_json_append(array, stk_json_text(at));
        at = next;
    }
    free(copy);
    return array;
}

static json_t *or_text(const char *text)
{
    return *text ? stk_json_text(text) : json_null();
}

static json_t *micros(bool known, int64_t ns)
{
    return known ? json_real((double)ns / 1000) : json_null();
}

static json_t *module_json(const struct pen_plan *plan,
                           const struct stk_plan_node *node)
{
    const bool in = node->inserted;
    json_t *m = json_object();
    m = stk_json_with(m, "id", stk_json_text(node->id));
    m = stk_json_with(m, "type", stk_json_text(node->type));
    m = stk_json_with(m, "class", stk_json_text(node->cls->name));
    m = stk_json_with(m, "choice", or_text(node->choice));
    m = stk_json_with(m, "inserted", json_boolean(in));
    m = stk_json_with(m, "reason",
                      in ? stk_json_text(node->reason) : json_null());
    m = stk_json_with(m, "serves",
                      in ? serves_json(node->serves) : json_array());
    m = stk_json_with(m, "props", props_json(node));
    m = stk_json_with(m, "lossy", json_boolean(node->loss[0] != '\0'));
    m = stk_json_with(m, "loss", or_text(node->loss));
    return stk_json_with(
        m, "cost_us",
        micros(plan->unknown == 0 || node->cost_ns > 0, node->cost_ns));
}

static json_t *pin_json(const char *id, const char *pin)
{
    return json_sprintf("%s.%s", id, pin);
}

static json_t *output_json(const struct stk_plan_node *node, uint32_t pin)
{
    return pin_json(node->id, node->cls->outputs[pin].name);
}

static json_t *formats_json(uint32_t formats)
{
    json_t *array = json_array();
    for (unsigned f = 1; f < PEN_FMT_COUNT; f++)
        if (formats & PEN_FMT_BIT(f))
            array = stk_json_append(
                array, json_string(pen_format_info((enum pen_format)f)->name));
    return array;
}

static json_t *rate_json(const struct pen_rational *fps)
{
    if (fps->num <= 0 || fps->den <= 0)
        return json_null();
    return fps->den == 1 ? json_integer(fps->num)
                         : json_sprintf("%d/%d", fps->num, fps->den);
}

static json_t *planes_json(const struct pen_layout *layout)
{
    json_t *array = json_array();
    for (uint32_t i = 0; i < layout->planes; i++) {
        json_t *plane = json_object();
        plane = stk_json_with(plane, "offset",
                              stk_json_count(layout->plane[i].offset));
        plane = stk_json_with(plane, "pitch",
                              stk_json_count(layout->plane[i].pitch));
        plane =
            stk_json_with(plane, "rows", json_integer(layout->plane[i].rows));
        array = stk_json_append(array, plane);
    }
    return array;
}

// What the frames of an edge are.
static json_t *with_caps(json_t *c, const struct pen_caps *caps)
{
    const struct pen_format_info *info = pen_format_info(caps->format);
    struct pen_layout layout = { 0 };
    const bool known = stk_plan_layout(caps, &layout);
    c = stk_json_with(c, "kind", json_string(pen_kind_name(caps->kind)));
    c = stk_json_with(c, "format",
                      info ? json_string(info->name) : json_null());
    c = stk_json_with(c, "formats", formats_json(stk_caps_mask(caps)));
    c = stk_json_with(c, "width", or_null(caps->width > 0, caps->width));
    c = stk_json_with(c, "height", or_null(caps->height > 0, caps->height));
    c = stk_json_with(c, "matrix",
                      caps->matrix ? json_string(pen_matrix_name(caps->matrix))
                                   : json_null());
    c = stk_json_with(c, "range",
                      caps->range ? json_string(pen_range_name(caps->range))
                                  : json_null());
    c = stk_json_with(c, "fps", rate_json(&caps->fps));
    c = stk_json_with(c, "pitch",
                      or_null(known, (json_int_t)layout.plane[0].pitch));
    return stk_json_with(c, "layout",
                         known ? planes_json(&layout) : json_null());
}

static const char *policy_name(enum stk_policy policy)
{
    switch (policy) {
    case STK_DROP_NEWEST:
        return "drop_newest";
    case STK_DROP_OLDEST:
        return "drop_oldest";
    case STK_BLOCK:
        break;
    }
    return "block";
}

static json_t *edge_json(const struct pen_plan *plan,
                         const struct stk_plan_edge *e)
{
    const struct stk_plan_node *from = &plan->nodes[e->from];
    const struct stk_plan_node *to = &plan->nodes[e->to];
    const struct stk_plan_output *o = &from->output[e->from_pin];
    const char *how = stk_edge_how(plan, e);
    json_t *c = json_object();
    c = stk_json_with(c, "from", output_json(from, e->from_pin));
    c = stk_json_with(c, "to",
                      pin_json(to->id, to->cls->inputs[e->to_pin].name));
    c = stk_json_with(c, "mem", json_string(pen_mem_name(e->mem)));
    c = stk_json_with(
        c, "of",
        e->kind == STK_DMABUF_NONE
            ? json_null()
            : json_string(e->kind == STK_DMABUF_CUDA ? "device" : "host"));
    c = stk_json_with(c, "how", or_text(how));
    c = with_caps(c, &e->caps);
    c = stk_json_with(c, "bytes_per_frame",
                      or_null(o->block_bytes > 0, (json_int_t)o->block_bytes));
    c = stk_json_with(c, "depth", json_integer(e->depth));
    c = stk_json_with(c, "policy", json_string(policy_name(e->policy)));
    c = stk_json_with(c, "pool", json_integer(o->blocks));
    return stk_json_with(c, "upgraded_from",
                         o->upgraded_from
                             ? json_string(pen_mem_name(o->upgraded_from))
                             : json_null());
}

static json_t *modules_json(const struct pen_plan *plan)
{
    json_t *array = json_array();
    for (uint32_t n = 0; n < plan->node_count; n++)
        array = stk_json_append(array, module_json(plan, &plan->nodes[n]));
    return array;
}

static json_t *edges_json(const struct pen_plan *plan)
{
    json_t *array = json_array();
    for (uint32_t e = 0; e < plan->edge_count; e++)
        array = stk_json_append(array, edge_json(plan, &plan->edges[e]));
    return array;
}

static json_t *transfers_json(const struct pen_plan *plan)
{
    json_t *t = json_object();
    t = stk_json_with(t, "h2d_per_frame", json_integer(plan->h2d_per_frame));
    t = stk_json_with(t, "d2h_per_frame", json_integer(plan->d2h_per_frame));
    t = stk_json_with(t, "h2d_bytes_per_frame",
                      or_null(stk_plan_moves_known(plan, STK_H2D),
                              (json_int_t)plan->h2d_bytes_per_frame));
    t = stk_json_with(t, "d2h_bytes_per_frame",
                      or_null(stk_plan_moves_known(plan, STK_D2H),
                              (json_int_t)plan->d2h_bytes_per_frame));
    t = stk_json_with(t, "h2h_per_frame", json_integer(plan->h2h_per_frame));
    return stk_json_with(t, "h2h_bytes_per_frame",
                         or_null(stk_plan_moves_known(plan, STK_H2H),
                                 (json_int_t)plan->h2h_bytes_per_frame));
}

static json_t *memory_json(const struct pen_plan *plan)
{
    json_t *m = json_object();
    for (unsigned i = PEN_MEM_HOST; i < PEN_MEM_COUNT; i++) {
        const enum pen_mem_type mem = (enum pen_mem_type)i;
        m = stk_json_with(
            m, pen_mem_key(mem),
            or_null(!stk_plan_unknown(plan, mem), (json_int_t)plan->peak[mem]));
    }
    return m;
}

static json_t *bytes_json(const uint64_t bytes[PEN_MEM_COUNT])
{
    json_t *object = json_object();
    for (unsigned m = PEN_MEM_HOST; m < PEN_MEM_COUNT; m++)
        object = stk_json_with(object, pen_mem_key((enum pen_mem_type)m),
                               stk_json_count(bytes[m]));
    return object;
}

static json_t *pools_json(const struct stk_holding *h)
{
    json_t *object = json_object();
    for (unsigned m = PEN_MEM_HOST; m < PEN_MEM_COUNT; m++)
        object = stk_json_with(object, pen_mem_key((enum pen_mem_type)m),
                               h->unknown & PEN_MEM_BIT(m)
                                   ? json_null()
                                   : stk_json_count(h->pools[m]));
    return object;
}

static json_t *holdings_json(const struct pen_plan *plan)
{
    uint32_t count;
    struct stk_holding *list = stk_plan_holdings(plan, &count);
    json_t *array = list ? json_array() : NULL;
    for (uint32_t i = 0; list && i < count; i++) {
        json_t *row = json_object();
        row = stk_json_with(row, "id",
                            stk_json_text(plan->nodes[list[i].node].id));
        row = stk_json_with(row, "pools", pools_json(&list[i]));
        row = stk_json_with(row, "workspace", bytes_json(list[i].workspace));
        array = stk_json_append(array, row);
    }
    free(list);
    return array;
}

static json_t *limit_json(uint64_t bytes)
{
    return bytes ? stk_json_count(bytes) : json_null();
}

static json_t *budget_json(const struct pen_plan *plan)
{
    const struct pen_plan_params *params = &plan->params;
    json_t *b = json_object();
    for (unsigned m = PEN_MEM_HOST; m < PEN_MEM_COUNT; m++)
        b = stk_json_with(b, pen_mem_key((enum pen_mem_type)m),
                          limit_json(plan->budget[m]));
    b = stk_json_with(b, "host_together", limit_json(plan->host_budget));
    b = stk_json_with(b, "h2d_per_frame",
                      or_null(params->h2d_limited, params->h2d_per_frame));
    return stk_json_with(b, "d2h_per_frame",
                         or_null(params->d2h_limited, params->d2h_per_frame));
}

static json_t *cost_json(const struct pen_plan *plan)
{
    const struct stk_plan_parts parts = stk_plan_parts(plan);
    const bool known = plan->unknown == 0;
    json_t *c = json_object();
    c = stk_json_with(c, "h2d_us", micros(known, parts.h2d));
    c = stk_json_with(c, "d2h_us", micros(known, parts.d2h));
    c = stk_json_with(c, "d2d_us", micros(known, parts.d2d));
    c = stk_json_with(c, "device_us", micros(known, parts.device));
    c = stk_json_with(c, "host_us", micros(known, parts.host));
    return stk_json_with(c, "once_us", micros(true, plan->once_ns));
}

static json_t *gaps_json(unsigned gaps)
{
    json_t *array = json_array();
    for (unsigned i = 0; i < STK_GAPS; i++)
        if (gaps & 1u << i)
            array = stk_json_append(array, json_string(stk_gap_names[i]));
    return array;
}

static json_t *unknowns_json(const struct pen_plan *plan)
{
    uint32_t count;
    struct stk_unknown *list = stk_plan_unknowns(plan, &count);
    json_t *array = list ? json_array() : NULL;
    for (uint32_t i = 0; list && i < count; i++) {
        char cure[256];
        json_t *row = json_object();
        row =
            stk_json_with(row, "output",
                          output_json(&plan->nodes[list[i].node], list[i].pin));
        row = stk_json_with(row, "what", gaps_json(list[i].gaps));
        // What is unknown because it is so at an input is settled there.
        row = stk_json_with(row, "own", gaps_json(list[i].own));
        stk_unknown_cure(plan, &list[i], cure, sizeof(cure));
        row = stk_json_with(row, "settled_by",
                            list[i].own ? or_text(cure) : json_null());
        array = stk_json_append(array, row);
    }
    free(list);
    return array;
}

// "scheme://[user@]host[:port]/..." -> the host as a string; *url tells
// whether it is one at all.
static json_t *host_json(const char *path, bool *url)
{
    const char *at = strstr(path, "://");
    *url = at && at != path && !memchr(path, '/', (size_t)(at - path));
    if (!*url)
        return NULL;
    at += 3;
    size_t length = strcspn(at, "/?#");
    const char *user = memchr(at, '@', length);
    if (user) {
        length -= (size_t)(user + 1 - at);
        at = user + 1;
    }
    const char *bracket = *at == '[' ? memchr(at, ']', length) : NULL;
    if (bracket)
        length = (size_t)(bracket + 1 - at);
    else if (memchr(at, ':', length))
        length = (size_t)((const char *)memchr(at, ':', length) - at);
    char *host = strndup(at, length);
    json_t *value = host ? stk_json_text(host) : NULL;
    free(host);
    return value;
}

static json_t *touches_json(const struct pen_plan *plan)
{
    json_t *paths = json_array(), *hosts = json_array();
    json_t *devices = json_array();
    for (uint32_t i = 0; i < plan->path_count; i++) {
        const char *path = plan->paths[i];
        bool url;
        json_t *host = host_json(path, &url);
        if (url)
            hosts = stk_json_append(hosts, host);
        else if (strncmp(path, "/dev/", 5) == 0)
            devices = stk_json_append(devices, stk_json_text(path));
        else
            paths = stk_json_append(paths, stk_json_text(path));
    }
    if (plan->needs_device)
        devices = stk_json_append(
            devices, json_sprintf("cuda:%s", stk_plan_device(plan)));
    json_t *touches = json_object();
    touches = stk_json_with(touches, "paths", paths);
    touches = stk_json_with(touches, "hosts", hosts);
    return stk_json_with(touches, "devices", devices);
}

char *pen_plan_json(const struct pen_plan *plan,
                    const struct pen_issues *issues)
{
    const bool gap = plan->optimal || plan->gap_ns > 0;
    json_t *root = json_object();
    root = stk_json_with(root, "ok", json_true());
    root = stk_json_with(root, "optimal", json_boolean(plan->optimal));
    root = stk_json_with(root, "gap_us", micros(gap, plan->gap_ns));
    root = stk_json_with(root, "gap_loss", json_boolean(plan->gap_loss));
    root = stk_json_with(root, "lossy", json_boolean(stk_plan_lossy(plan)));
    root = stk_json_with(root, "provisional", json_boolean(plan->provisional));
    root = stk_json_with(root, "unknown", unknowns_json(plan));
    root = stk_json_with(root, "profile", stk_json_text(plan->profile.name));
    root = stk_json_with(root, "issues", stk_issues_json(issues));
    root = stk_json_with(root, "modules", modules_json(plan));
    root = stk_json_with(root, "connections", edges_json(plan));
    root = stk_json_with(root, "transfers", transfers_json(plan));
    root = stk_json_with(root, "memory", memory_json(plan));
    root = stk_json_with(root, "memory_by_module", holdings_json(plan));
    root = stk_json_with(root, "budget", budget_json(plan));
    root = stk_json_with(root, "cost_us_per_frame",
                         micros(plan->unknown == 0, plan->cost_ns));
    root = stk_json_with(root, "cost", cost_json(plan));
    root = stk_json_with(root, "frames",
                         plan->frames ? stk_json_count(plan->frames)
                                      : json_null());
    return stk_json_dump_new(
        stk_json_with(root, "touches", touches_json(plan)));
}
