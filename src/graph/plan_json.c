// A plan as JSON, with the keys that design and docs promise.

#include "planner.h"

#include <stdlib.h>
#include <string.h>

// What is cut in the middle of a character is no string for jansson; every
// byte of such a text that is not ASCII becomes "?".
static json_t *text_json(const char *text)
{
    json_t *value = json_string(text);
    if (value || !text)
        return value;
    char *plain = malloc(strlen(text) + 1);
    if (!plain)
        return NULL;
    for (size_t i = 0;; i++) {
        plain[i] = (unsigned char)text[i] < 0x80 ? text[i] : '?';
        if (!text[i])
            break;
    }
    value = json_string(plain);
    free(plain);
    return value;
}

static json_t *or_null(bool known, json_int_t value)
{
    return known ? json_integer(value) : json_null();
}

// json_object_set_new() fails for NULL, so one check at the end is enough.
static bool put(json_t *object, const char *key, json_t *value)
{
    return json_object_set_new(object, key, value) == 0;
}

static json_t *props_json(const struct stk_plan_node *node)
{
    json_t *props = json_object();
    bool ok = props != NULL;
    for (const struct pen_prop *row = node->cls->props; ok && row && row->kind;
         row++)
        ok = put(props, row->key, stk_prop_get_json(row, node->params));
    if (ok)
        return props;
    json_decref(props);
    return NULL;
}

// "a.x -> b.y, a.x -> c.y" as an array.
static json_t *serves_json(const char *serves)
{
    json_t *array = json_array();
    char *copy = strdup(serves);
    bool ok = array && copy;
    for (char *at = copy; ok && at && *at;) {
        char *next = strstr(at, ", ");
        if (next) {
            *next = '\0';
            next += 2;
        }
        ok = json_array_append_new(array, text_json(at)) == 0;
        at = next;
    }
    free(copy);
    if (ok)
        return array;
    json_decref(array);
    return NULL;
}

static json_t *module_json(const struct stk_plan_node *node)
{
    json_t *m = json_object();
    const bool in = node->inserted;
    if (m && put(m, "id", text_json(node->id)) &&
        put(m, "type", text_json(node->type)) &&
        put(m, "inserted", json_boolean(in)) &&
        put(m, "reason", in ? text_json(node->reason) : json_null()) &&
        put(m, "serves", in ? serves_json(node->serves) : json_array()) &&
        put(m, "props", props_json(node)) &&
        put(m, "loss",
            in && node->loss[0] ? text_json(node->loss) : json_null()))
        return m;
    json_decref(m);
    return NULL;
}

static json_t *pin_json(const struct stk_plan_node *node,
                        const struct pen_pin *pin)
{
    struct stk_text t = { 0 };
    stk_text_addf(&t, "%s.%s", node->id, pin->name);
    json_t *value = t.failed ? NULL : text_json(t.data);
    stk_text_finish(&t);
    return value;
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
    if (c && put(c, "from", pin_json(from, &from->cls->outputs[e->from_pin])) &&
        put(c, "to", pin_json(to, &to->cls->inputs[e->to_pin])) &&
        put(c, "mem", json_string(pen_mem_name(e->mem))) &&
        put(c, "format", info ? json_string(info->name) : json_null()) &&
        put(c, "width", or_null(e->caps.width > 0, e->caps.width)) &&
        put(c, "height", or_null(e->caps.height > 0, e->caps.height)) &&
        put(c, "pitch", or_null(pitch > 0, (json_int_t)pitch)) &&
        put(c, "bytes_per_frame",
            or_null(o->block_bytes > 0, (json_int_t)o->block_bytes)) &&
        put(c, "depth", json_integer(e->depth)) &&
        put(c, "upgraded_from",
            o->upgraded_from ? json_string(pen_mem_name(o->upgraded_from))
                             : json_null()))
        return c;
    json_decref(c);
    return NULL;
}

static json_t *issue_json(const struct pen_issue *issue)
{
    json_t *i = json_object();
    if (i &&
        put(i, "severity", json_string(pen_severity_name(issue->severity))) &&
        put(i, "code", json_string(issue->code)) &&
        put(i, "line", or_null(issue->line > 0, issue->line)) &&
        put(i, "column", or_null(issue->column > 0, issue->column)) &&
        put(i, "pointer", text_json(issue->pointer)) &&
        put(i, "message", text_json(issue->message)) &&
        put(i, "suggestion", text_json(issue->suggestion)))
        return i;
    json_decref(i);
    return NULL;
}

static json_t *issues_json(const struct pen_issues *issues)
{
    json_t *array = json_array();
    for (size_t n = 0; array && issues; n++) {
        const struct pen_issue *issue = pen_issues_get(issues, n);
        if (!issue)
            break;
        if (json_array_append_new(array, issue_json(issue)) != 0) {
            json_decref(array);
            return NULL;
        }
    }
    return array;
}

static json_t *modules_json(const struct pen_plan *plan)
{
    json_t *array = json_array();
    for (uint32_t n = 0; array && n < plan->node_count; n++)
        if (json_array_append_new(array, module_json(&plan->nodes[n])) != 0) {
            json_decref(array);
            return NULL;
        }
    return array;
}

static json_t *edges_json(const struct pen_plan *plan)
{
    json_t *array = json_array();
    for (uint32_t e = 0; array && e < plan->edge_count; e++)
        if (json_array_append_new(array, edge_json(plan, &plan->edges[e])) !=
            0) {
            json_decref(array);
            return NULL;
        }
    return array;
}

static json_t *transfers_json(const struct pen_plan *plan)
{
    // Bytes of no transfers are known, whatever else is not.
    const bool known = plan->unknown == 0;
    json_t *t = json_object();
    if (t && put(t, "h2d_per_frame", json_integer(plan->h2d_per_frame)) &&
        put(t, "d2h_per_frame", json_integer(plan->d2h_per_frame)) &&
        put(t, "h2d_bytes_per_frame",
            or_null(known || !plan->h2d_per_frame,
                    (json_int_t)plan->h2d_bytes_per_frame)) &&
        put(t, "d2h_bytes_per_frame",
            or_null(known || !plan->d2h_per_frame,
                    (json_int_t)plan->d2h_bytes_per_frame)))
        return t;
    json_decref(t);
    return NULL;
}

static json_t *memory_json(const struct pen_plan *plan)
{
    static const char *const keys[] = {
        [PEN_MEM_HOST] = "host",
        [PEN_MEM_HOST_PINNED] = "host_pinned",
        [PEN_MEM_CUDA_DEVICE] = "cuda_device",
        [PEN_MEM_DMABUF] = "dmabuf",
    };
    json_t *m = json_object();
    bool ok = m != NULL;
    for (unsigned i = PEN_MEM_HOST; ok && i < PEN_MEM_COUNT; i++)
        ok = put(m, keys[i],
                 or_null(!stk_plan_unknown(plan, (enum pen_mem_type)i),
                         (json_int_t)plan->peak[i]));
    if (ok)
        return m;
    json_decref(m);
    return NULL;
}

// "scheme://[user@]host[:port]/..." -> host; NULL for what is no URL.
static char *host_of(const char *path)
{
    const char *at = strstr(path, "://");
    if (!at || at == path || memchr(path, '/', (size_t)(at - path)))
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
    return strndup(at, length);
}

static json_t *touches_json(const struct pen_plan *plan)
{
    json_t *touches = json_object(), *paths = json_array();
    json_t *hosts = json_array(), *devices = json_array();
    bool ok = touches && paths && hosts && devices;
    for (uint32_t i = 0; ok && i < plan->path_count; i++) {
        const char *path = plan->paths[i];
        if (strstr(path, "://")) {
            char *host = host_of(path);
            if (host) {
                ok = json_array_append_new(hosts, text_json(host)) == 0;
                free(host);
                continue;
            }
        }
        json_t *list = strncmp(path, "/dev/", 5) == 0 ? devices : paths;
        ok = json_array_append_new(list, text_json(path)) == 0;
    }
    if (ok && plan->needs_device) {
        struct stk_text t = { 0 };
        stk_text_addf(&t, "cuda:%s", stk_plan_device(plan));
        ok =
            !t.failed && json_array_append_new(devices, text_json(t.data)) == 0;
        stk_text_finish(&t);
    }
    if (ok && json_object_set(touches, "paths", paths) == 0 &&
        json_object_set(touches, "hosts", hosts) == 0 &&
        json_object_set(touches, "devices", devices) == 0) {
        json_decref(paths);
        json_decref(hosts);
        json_decref(devices);
        return touches;
    }
    json_decref(touches);
    json_decref(paths);
    json_decref(hosts);
    json_decref(devices);
    return NULL;
}

char *pen_plan_json(const struct pen_plan *plan,
                    const struct pen_issues *issues)
{
    json_t *root = json_object();
    const bool ok =
        root && put(root, "ok", json_true()) &&
        put(root, "optimal", json_boolean(plan->optimal)) &&
        put(root, "provisional", json_boolean(plan->provisional)) &&
        put(root, "profile", text_json(plan->profile.name)) &&
        put(root, "issues", issues_json(issues)) &&
        put(root, "modules", modules_json(plan)) &&
        put(root, "connections", edges_json(plan)) &&
        put(root, "transfers", transfers_json(plan)) &&
        put(root, "memory", memory_json(plan)) &&
        put(root, "cost_us_per_frame",
            plan->unknown == 0 ? json_real((double)plan->cost_ns / 1000)
                               : json_null()) &&
        put(root, "touches", touches_json(plan));
    char *text = ok ? stk_json_dump(root) : NULL;
    json_decref(root);
    return text;
}
