// A plan as JSON, with the keys that design and docs promise.

#include "planner.h"

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

static json_t *module_json(const struct stk_plan_node *node)
{
    const bool in = node->inserted;
    json_t *m = json_object();
    m = stk_json_with(m, "id", stk_json_text(node->id));
    m = stk_json_with(m, "type", stk_json_text(node->type));
    m = stk_json_with(m, "inserted", json_boolean(in));
    m = stk_json_with(m, "reason",
                      in ? stk_json_text(node->reason) : json_null());
    m = stk_json_with(m, "serves",
                      in ? serves_json(node->serves) : json_array());
    m = stk_json_with(m, "props", props_json(node));
    return stk_json_with(m, "loss",
                         in && node->loss[0] ? stk_json_text(node->loss)
                                             : json_null());
}

static size_t pitch_of(const struct pen_caps *caps)
{
    struct pen_layout layout;
    struct pen_error ignored;
    if (caps->kind != PEN_KIND_RAW_IMAGE || caps->format == PEN_FMT_NONE ||
        caps->width <= 0 || caps->height <= 0)
        return 0;
    if (pen_layout_compute(caps, PEN_PITCH_ALIGN, &layout, &ignored) != PEN_OK)
        return 0;
    return layout.plane[0].pitch;
}

static json_t *edge_json(const struct pen_plan *plan,
                         const struct stk_plan_edge *e)
{
    const struct stk_plan_node *from = &plan->nodes[e->from];
    const struct stk_plan_node *to = &plan->nodes[e->to];
    const struct stk_plan_output *o = &from->output[e->from_pin];
    const struct pen_format_info *info = pen_format_info(e->caps.format);
    const size_t pitch = pitch_of(&e->caps);
    json_t *c = json_object();
    c = stk_json_with(
        c, "from",
        json_sprintf("%s.%s", from->id, from->cls->outputs[e->from_pin].name));
    c = stk_json_with(
        c, "to",
        json_sprintf("%s.%s", to->id, to->cls->inputs[e->to_pin].name));
    const char *how = stk_edge_how(plan, e);
    c = stk_json_with(c, "mem", json_string(pen_mem_name(e->mem)));
    c = stk_json_with(
        c, "of",
        e->kind == STK_DMABUF_NONE
            ? json_null()
            : json_string(e->kind == STK_DMABUF_CUDA ? "device" : "host"));
    c = stk_json_with(c, "how", *how ? json_string(how) : json_null());
    c = stk_json_with(c, "format",
                      info ? json_string(info->name) : json_null());
    c = stk_json_with(c, "width", or_null(e->caps.width > 0, e->caps.width));
    c = stk_json_with(c, "height", or_null(e->caps.height > 0, e->caps.height));
    c = stk_json_with(c, "pitch", or_null(pitch > 0, (json_int_t)pitch));
    c = stk_json_with(c, "bytes_per_frame",
                      or_null(o->block_bytes > 0, (json_int_t)o->block_bytes));
    c = stk_json_with(c, "depth", json_integer(e->depth));
    return stk_json_with(c, "upgraded_from",
                         o->upgraded_from
                             ? json_string(pen_mem_name(o->upgraded_from))
                             : json_null());
}

static json_t *modules_json(const struct pen_plan *plan)
{
    json_t *array = json_array();
    for (uint32_t n = 0; n < plan->node_count; n++)
        array = stk_json_append(array, module_json(&plan->nodes[n]));
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
    // Bytes of no transfers are known, whatever else is not.
    const bool known = plan->unknown == 0;
    json_t *t = json_object();
    t = stk_json_with(t, "h2d_per_frame", json_integer(plan->h2d_per_frame));
    t = stk_json_with(t, "d2h_per_frame", json_integer(plan->d2h_per_frame));
    t = stk_json_with(t, "h2d_bytes_per_frame",
                      or_null(known || !plan->h2d_per_frame,
                              (json_int_t)plan->h2d_bytes_per_frame));
    t = stk_json_with(t, "d2h_bytes_per_frame",
                      or_null(known || !plan->d2h_per_frame,
                              (json_int_t)plan->d2h_bytes_per_frame));
    t = stk_json_with(t, "h2h_per_frame", json_integer(plan->h2h_per_frame));
    return stk_json_with(t, "h2h_bytes_per_frame",
                         or_null(known || !plan->h2h_per_frame,
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
    json_t *root = json_object();
    root = stk_json_with(root, "ok", json_true());
    root = stk_json_with(root, "optimal", json_boolean(plan->optimal));
    root = stk_json_with(root, "provisional", json_boolean(plan->provisional));
    root = stk_json_with(root, "profile", stk_json_text(plan->profile.name));
    root = stk_json_with(root, "issues", stk_issues_json(issues));
    root = stk_json_with(root, "modules", modules_json(plan));
    root = stk_json_with(root, "connections", edges_json(plan));
    root = stk_json_with(root, "transfers", transfers_json(plan));
    root = stk_json_with(root, "memory", memory_json(plan));
    root = stk_json_with(root, "cost_us_per_frame",
                         plan->unknown == 0
                             ? json_real((double)plan->cost_ns / 1000)
                             : json_null());
    return stk_json_dump_new(
        stk_json_with(root, "touches", touches_json(plan)));
}
