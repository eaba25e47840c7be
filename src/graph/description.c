// Reading a pipeline file: from text to modules, connections and settings.
// What is wrong with the shape is kept in the description and told together
// with what resolving finds, so that one pass tells everything.

#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <unistd.h>

#include "graph.h"

enum {
    MAX_FILE = 64 << 20,
    MAX_DEPTH = 65536,  // frames of a queue
};

// --- complaints -------------------------------------------------------------

PEN_PRINTF(6, 7)
static void tell(struct pen_description *d, enum pen_severity severity,
                 const char *code, const char *pointer, const char *suggestion,
                 const char *format, ...)
{
    char text[512];
    va_list args;
    va_start(args, format);
    vsnprintf(text, sizeof(text), format, args);
    va_end(args);
    stk_issue_add(d->issues, d, severity, code, pointer, suggestion, "%s",
                  text);
}

// "an object", "the string \"x\"": for messages.
static const char *describe(const json_t *value, char text[96])
{
    char brief[64];
    stk_json_brief(value, brief, sizeof(brief));
    switch (json_typeof(value)) {
    case JSON_OBJECT:
        return "an object";
    case JSON_ARRAY:
        return "an array";
    case JSON_STRING:
        snprintf(text, 96, "the string %s", brief);
        break;
    case JSON_INTEGER:
    case JSON_REAL:
        snprintf(text, 96, "the number %s", brief);
        break;
    default:
        snprintf(text, 96, "%s", brief);
    }
    return text;
}

static void wrong(struct pen_description *d, const char *code,
                  const char *pointer, const char *key, const char *want,
                  const json_t *value, const char *suggestion)
{
    char text[96];
    tell(d, PEN_SEVERITY_ERROR, code, pointer, suggestion,
         "%s must be %s, not %s", key, want, describe(value, text));
}

static char *keep(struct pen_description *d, char *s)
{
    if (!s)
        stk_issues_fail(d->issues);
    return s;
}

// --- members of an object ---------------------------------------------------

struct member {
    const char *key;
    const char *name;  // of which `key` is a spelling; NULL: itself
    void (*read)(struct pen_description *d, const char *pointer,
                 const json_t *value);
};

// What people coming from elsewhere write, and what it is called here.
struct synonym {
    const char *key, *right;
};

struct members {
    const struct member *list;     // ended by a NULL key
    const struct synonym *others;  // the same; may be NULL
    const char *what;              // "settings", "a connection", ...
    bool strict;                   // an unknown key is an error
};

static const char *next_member(const void *cookie, size_t i)
{
    const struct member *list = cookie;
    return list[i].key;
}

static void unknown_member(struct pen_description *d,
                           const struct members *members, const char *pointer,
                           const char *key)
{
    const char *right = NULL;
    for (const struct synonym *s = members->others; s && s->key; s++) {
        if (strcmp(s->key, key) == 0)
            right = s->right;
    }
    if (!right)
        right = stk_nearest(key, next_member, members->list);
    char suggestion[80] = "", question[96] = "";
    if (right) {
        snprintf(suggestion, sizeof(suggestion), "\"%s\"", right);
        snprintf(question, sizeof(question), "; did you mean %s?", right);
    } else {
        // A key that begins with # is a comment.
        snprintf(suggestion, sizeof(suggestion), "\"#%.64s\"", key);
    }
    if (members->strict)
        tell(d, PEN_SEVERITY_ERROR, "E003", pointer, suggestion,
             "%s has no key %.64s%s", members->what, key, question);
    else
        tell(d, PEN_SEVERITY_WARNING, "W001", pointer, suggestion,
             "%s has no key %.64s, it is ignored%s", members->what, key,
             question);
}

static const char *name_of(const struct member *m)
{
    return m->name ? m->name : m->key;
}

static void read_members(struct pen_description *d, const char *pointer,
                         const json_t *object, const struct members *members)
{
    enum { MOST = 16 };
    const char *seen[MOST] = { NULL };
    const char *key;
    json_t *value;
    json_object_foreach ((json_t *)object, key, value) {
        if (key[0] == '#')
            continue;
        struct stk_arena arena = { 0 };
        const char *at = stk_pointer_join(&arena, pointer, key);
        const struct member *m = members->list;
        while (m->key && strcmp(m->key, key) != 0)
            m++;
        if (!at) {
            stk_issues_fail(d->issues);
        } else if (!m->key) {
            unknown_member(d, members, at, key);
        } else {
            size_t i = 0;
            while (i < MOST && seen[i] && strcmp(seen[i], name_of(m)) != 0)
                i++;
            if (i < MOST && seen[i])
                tell(d, PEN_SEVERITY_ERROR, "E003", at, "remove one of them",
                     "%s has %s in two spellings", members->what, name_of(m));
            else if (i < MOST)
                seen[i] = name_of(m);
            if (m->read)
                m->read(d, at, value);
        }
        stk_arena_finish(&arena);
    }
}

// Whether the object has the key, or what was surely meant to be it.
static bool has_member(const json_t *object, const struct members *members,
                       const char *key)
{
    for (const struct synonym *s = members->others; s->key; s++) {
        if (strcmp(s->right, key) == 0 && json_object_get(object, s->key))
            return true;
    }
    return json_object_get(object, key) != NULL;
}

static bool want_object(struct pen_description *d, const char *pointer,
                        const char *key, const json_t *value)
{
    if (json_is_object(value))
        return true;
    // Of "settings.cuda" the member is "cuda", of "a module" it has no name.
    char suggestion[64] = "";
    const char *dot = strchr(key, '.');
    if (!strchr(key, ' '))
        snprintf(suggestion, sizeof(suggestion), "\"%s\": {}",
                 dot ? dot + 1 : key);
    wrong(d, "E003", pointer, key, "an object", value, suggestion);
    return false;
}

// --- values -----------------------------------------------------------------

static void read_text(struct pen_description *d, const char *pointer,
                      const char *key, const json_t *value, const char **out)
{
    if (!json_is_string(value)) {
        char suggestion[96] = "", brief[64];
        if (json_is_number(value) || json_is_boolean(value)) {
            stk_json_brief(value, brief, sizeof(brief));
            snprintf(suggestion, sizeof(suggestion), "\"%s\": \"%s\"", key,
                     brief);
        }
        wrong(d, "E003", pointer, key, "a string", value, suggestion);
        return;
    }
    const char *s =
        keep(d, stk_arena_strdup(&d->arena, json_string_value(value)));
    if (s)
        *out = s;
}

// "\"key\": true" for what looks like a truth value, else "".
static const char *meant_true(const json_t *value, const char *key,
                              char suggestion[96])
{
    const char *s = json_string_value(value);
    const bool yes = (s && strcasecmp(s, "true") == 0) ||
                     (json_is_number(value) && json_number_value(value) != 0);
    const bool no = (s && strcasecmp(s, "false") == 0) ||
                    (json_is_number(value) && json_number_value(value) == 0);
    suggestion[0] = 0;
    if (yes || no)
        snprintf(suggestion, 96, "\"%s\": %s", key, yes ? "true" : "false");
    return suggestion;
}

static void read_flag(struct pen_description *d, const char *pointer,
                      const char *key, const json_t *value, bool *out)
{
    char suggestion[96];
    if (json_is_boolean(value))
        *out = json_is_true(value);
    else
        wrong(d, "E003", pointer, key, "true or false", value,
              meant_true(value, key, suggestion));
}

// An integer of low..high; what is outside is `code`.
static void read_count(struct pen_description *d, const char *code,
                       const char *pointer, const char *key,
                       const json_t *value, int32_t low, int32_t high,
                       int32_t *out)
{
    char want[64], text[96], suggestion[96];
    const double n = json_number_value(value);
    if (json_is_number(value) && n >= low && n <= high &&
        n == (double)(int32_t)n) {
        *out = (int32_t)n;
        return;
    }
    snprintf(want, sizeof(want), "an integer of %d..%d", low, high);
    if (!json_is_number(value)) {
        const char *s = json_string_value(value);
        const long said = s && *s && !s[strspn(s, "0123456789")] ? atol(s) : -1;
        if (said >= low && said <= high)
            snprintf(suggestion, sizeof(suggestion), "\"%s\": %ld", key, said);
        else
            suggestion[0] = 0;
        wrong(d, "E003", pointer, key, want, value, suggestion);
        return;
    }
    const double nearest = n < low ? low : n > high ? high : (double)(int)n;
    snprintf(suggestion, sizeof(suggestion), "\"%s\": %.0f", key, nearest);
    tell(d, PEN_SEVERITY_ERROR, code, pointer, suggestion,
         "%s must be %s, not %s", key, want, describe(value, text));
}

// --- pipeline ---------------------------------------------------------------

static void read_name(struct pen_description *d, const char *pointer,
                      const json_t *value)
{
    read_text(d, pointer, "name", value, &d->name);
}

static void read_version(struct pen_description *d, const char *pointer,
                         const json_t *value)
{
    if (!json_is_string(value) && !json_is_number(value))
        wrong(d, "E003", pointer, "version", "a string", value, "\"1.0\"");
}

static void read_description(struct pen_description *d, const char *pointer,
                             const json_t *value)
{
    if (!json_is_string(value))
        wrong(d, "E003", pointer, "description", "a string", value, "");
}

static const struct members pipeline_members = {
    .what = "pipeline",
    .list =
        (const struct member[]){
            { "name", NULL, read_name },
            { "version", NULL, read_version },
            { "description", NULL, read_description },
            { 0 },
        },
    .others =
        (const struct synonym[]){
            { "queue_size", "settings.queue_depth" },
            { "queueSize", "settings.queue_depth" },
            { "on_error", "settings.onError" },
            { "onError", "settings.onError" },
            { "auto_bridge_enabled", "settings.auto_bridge" },
            { 0 },
        },
};

static void read_pipeline(struct pen_description *d, const char *pointer,
                          const json_t *value)
{
    if (want_object(d, pointer, "pipeline", value))
        read_members(d, pointer, value, &pipeline_members);
}

// --- settings ---------------------------------------------------------------

static void read_device(struct pen_description *d, const char *pointer,
                        const json_t *value)
{
    if (json_is_integer(value) && json_integer_value(value) >= 0 &&
        json_integer_value(value) < 1000) {
        const char *s =
            keep(d, stk_arena_printf(&d->arena, "%d",
                                     (int)json_integer_value(value)));
        if (s)
            d->device = s;
        return;
    }
    const char *s = json_string_value(value);
    const bool known =
        s &&
        (strcmp(s, "auto") == 0 || strcmp(s, "cuda") == 0 ||
         strcmp(s, "emulated") == 0 || (strncmp(s, "GPU-", 4) == 0 && s[4]) ||
         (*s && strlen(s) <= 3 && !s[strspn(s, "0123456789")]));
    if (known) {
        read_text(d, pointer, "device", value, &d->device);
        return;
    }
    wrong(d, s ? "E004" : "E003", pointer, "device",
          "\"auto\", \"cuda\", \"emulated\", an index or a UUID (\"GPU-...\")",
          value, "\"device\": \"auto\"");
}

static void read_streams(struct pen_description *d, const char *pointer,
                         const json_t *value)
{
    const char *s = json_string_value(value);
    if (s && strcmp(s, "shared") == 0)
        return;
    if (s && strcmp(s, "overlap") == 0)
        tell(d, PEN_SEVERITY_ERROR, "E004", pointer, "\"streams\": \"shared\"",
             "cuda.streams \"overlap\" is not supported yet; everything runs "
             "on one \"shared\" stream");
    else
        wrong(d, s ? "E004" : "E003", pointer, "cuda.streams", "\"shared\"",
              value, "\"streams\": \"shared\"");
}

static void read_fuse(struct pen_description *d, const char *pointer,
                      const json_t *value)
{
    if (json_is_false(value))
        return;
    if (json_is_true(value))
        tell(d, PEN_SEVERITY_ERROR, "E004", pointer, "\"fuse\": false",
             "cuda.fuse is not supported yet");
    else
        wrong(d, "E003", pointer, "cuda.fuse", "true or false", value,
              "\"fuse\": false");
}

static void read_max_batch(struct pen_description *d, const char *pointer,
                           const json_t *value)
{
    if (json_is_integer(value) && json_integer_value(value) == 1)
        return;
    if (json_is_integer(value) && json_integer_value(value) > 1)
        tell(d, PEN_SEVERITY_ERROR, "E004", pointer, "\"max_batch\": 1",
             "cuda.max_batch above 1 is not supported yet");
    else
        wrong(d, json_is_number(value) ? "E004" : "E003", pointer,
              "cuda.max_batch", "an integer of at least 1", value,
              "\"max_batch\": 1");
}

static const struct members cuda_members = {
    .what = "settings.cuda",
    .list =
        (const struct member[]){
            { "streams", NULL, read_streams },
            { "fuse", NULL, read_fuse },
            { "max_batch", NULL, read_max_batch },
            { 0 },
        },
};

static void read_cuda(struct pen_description *d, const char *pointer,
                      const json_t *value)
{
    if (want_object(d, pointer, "settings.cuda", value))
        read_members(d, pointer, value, &cuda_members);
}

static void read_queue_depth(struct pen_description *d, const char *pointer,
                             const json_t *value)
{
    read_count(d, "E004", pointer, "queue_depth", value, 1, MAX_DEPTH,
               &d->queue_depth);
}

static void read_auto_bridge(struct pen_description *d, const char *pointer,
                             const json_t *value)
{
    read_flag(d, pointer, "auto_bridge", value, &d->auto_bridge);
}

static void read_pinned_limit(struct pen_description *d, const char *pointer,
                              const json_t *value)
{
    const char *s = json_string_value(value);
    if (s && !strcmp(s, "stage"))
        d->pinned_limit = STK_PINNED_STAGE;
    else if (s && !strcmp(s, "refuse"))
        d->pinned_limit = STK_PINNED_REFUSE;
    else
        wrong(d, s ? "E004" : "E003", pointer, "pinned_limit",
              "\"refuse\" or \"stage\"", value, "\"pinned_limit\": \"refuse\"");
}

static void read_on_error(struct pen_description *d, const char *pointer,
                          const json_t *value)
{
    // The two values of ApraPipes, which it never used.
    static const char *const foreign[] = { "restart_module", "stop_pipeline" };
    const char *s = json_string_value(value);
    if (s && stk_on_error_valid(s)) {
        read_text(d, pointer, "onError", value, &d->on_error);
        return;
    }
    for (size_t i = 0; s && i < sizeof(foreign) / sizeof(foreign[0]); i++) {
        if (strcmp(s, foreign[i]) != 0)
            continue;
        tell(d, PEN_SEVERITY_WARNING, "W004", pointer, "\"onError\": \"stop\"",
             "onError \"%s\" is taken as \"stop\"", s);
        d->on_error = "stop";
        return;
    }
    wrong(d, s ? "E004" : "E003", pointer, "onError",
          "\"stop\", \"drop\" or \"retry:n\"", value, "\"onError\": \"stop\"");
}

static void read_auto_start(struct pen_description *d, const char *pointer,
                            const json_t *value)
{
    bool ignored;
    read_flag(d, pointer, "autoStart", value, &ignored);
}

static void read_size(struct pen_description *d, const char *pointer,
                      enum pen_mem_type mem, const json_t *value)
{
    char key[32], suggestion[64];
    uint64_t bytes = 0;
    if (json_is_integer(value) && json_integer_value(value) > 0)
        bytes = (uint64_t)json_integer_value(value);
    else if (json_is_string(value) &&
             !stk_parse_size(json_string_value(value), &bytes))
        bytes = 0;
    if (bytes) {
        d->budget[mem] = bytes;
        return;
    }
    snprintf(key, sizeof(key), "budget.%s", pen_mem_key(mem));
    snprintf(suggestion, sizeof(suggestion), "\"%s\": \"512MiB\"",
             pen_mem_key(mem));
    wrong(d, "E004", pointer, key, "a size above 0 such as \"512MiB\"", value,
          suggestion);
}

static void read_budget_host(struct pen_description *d, const char *pointer,
                             const json_t *value)
{
    read_size(d, pointer, PEN_MEM_HOST, value);
}

static void read_budget_pinned(struct pen_description *d, const char *pointer,
                               const json_t *value)
{
    read_size(d, pointer, PEN_MEM_HOST_PINNED, value);
}

static void read_budget_device(struct pen_description *d, const char *pointer,
                               const json_t *value)
{
    read_size(d, pointer, PEN_MEM_CUDA_DEVICE, value);
}

static void read_budget_dmabuf(struct pen_description *d, const char *pointer,
                               const json_t *value)
{
    read_size(d, pointer, PEN_MEM_DMABUF, value);
}

static void read_h2d(struct pen_description *d, const char *pointer,
                     const json_t *value)
{
    read_count(d, "E004", pointer, "h2d_per_frame", value, 0, INT32_MAX,
               &d->h2d_per_frame);
}

static void read_d2h(struct pen_description *d, const char *pointer,
                     const json_t *value)
{
    read_count(d, "E004", pointer, "d2h_per_frame", value, 0, INT32_MAX,
               &d->d2h_per_frame);
}

static const struct members budget_members = {
    .what = "settings.budget",
    .strict = true,  // a limit that is ignored is none
    .list =
        (const struct member[]){
            { "host", NULL, read_budget_host },
            { "host_pinned", NULL, read_budget_pinned },
            { "cuda_device", NULL, read_budget_device },
            { "dmabuf", NULL, read_budget_dmabuf },
            { "h2d_per_frame", NULL, read_h2d },
            { "d2h_per_frame", NULL, read_d2h },
            { 0 },
        },
    .others =
        (const struct synonym[]){
            { "device", "cuda_device" },
            { "cuda", "cuda_device" },
            { "gpu", "cuda_device" },
            { "pinned", "host_pinned" },
            { 0 },
        },
};

static void read_budget(struct pen_description *d, const char *pointer,
                        const json_t *value)
{
    if (want_object(d, pointer, "settings.budget", value))
        read_members(d, pointer, value, &budget_members);
}

static const struct members settings_members = {
    .what = "settings",
    .list =
        (const struct member[]){
            { "device", NULL, read_device },
            { "cuda", NULL, read_cuda },
            { "queue_depth", NULL, read_queue_depth },
            { "queueDepth", "queue_depth", read_queue_depth },
            { "queue_size", "queue_depth", read_queue_depth },
            { "queueSize", "queue_depth", read_queue_depth },
            { "budget", NULL, read_budget },
            { "auto_bridge", NULL, read_auto_bridge },
            { "autoBridge", "auto_bridge", read_auto_bridge },
            { "pinned_limit", NULL, read_pinned_limit },
            { "onError", NULL, read_on_error },
            { "on_error", "onError", read_on_error },
            { "autoStart", NULL, read_auto_start },
            { "auto_start", "autoStart", read_auto_start },
            { 0 },
        },
    .others =
        (const struct synonym[]){
            { "auto_bridge_enabled", "auto_bridge" },
            { "gpu", "device" },
            { "streams", "cuda.streams" },
            { 0 },
        },
};

static void read_settings(struct pen_description *d, const char *pointer,
                          const json_t *value)
{
    if (want_object(d, pointer, "settings", value))
        read_members(d, pointer, value, &settings_members);
}

// --- modules ----------------------------------------------------------------

static void read_type(struct pen_description *d, const char *pointer,
                      const json_t *value)
{
    const char **type = &d->modules[d->module_count].type;
    read_text(d, pointer, "type", value, type);
    if (json_is_string(value) && !json_string_length(value))
        tell(d, PEN_SEVERITY_ERROR, "E003", pointer, "\"type\": \"...\"",
             "the type of a module must not be empty");
}

static void read_props(struct pen_description *d, const char *pointer,
                       const json_t *value)
{
    if (want_object(d, pointer, "props", value))
        d->modules[d->module_count].props = (json_t *)value;
}

static const struct members module_members = {
    .what = "a module",
    .list =
        (const struct member[]){
            { "type", NULL, read_type },
            { "props", NULL, read_props },
            { 0 },
        },
    .others =
        (const struct synonym[]){
            { "properties", "props" },
            { "params", "props" },
            { "parameters", "props" },
            { "args", "props" },
            { "module", "type" },
            { "class", "type" },
            { 0 },
        },
};

static const char *without_dots(const char *id, char other[96])
{
    snprintf(other, 96, "\"%.64s\"", id);
    for (char *c = other; *c; c++)
        *c = *c == '.' ? '_' : *c;
    return other;
}

static void read_module(struct pen_description *d, const char *pointer,
                        const char *id, const json_t *value)
{
    struct stk_desc_module *m = &d->modules[d->module_count];
    *m = (struct stk_desc_module){
        .id = keep(d, stk_arena_strdup(&d->arena, id)),
        .pointer = keep(d, stk_arena_strdup(&d->arena, pointer)),
    };
    char other[96];
    if (!m->id || !m->pointer)
        return;
    if (!*id)
        tell(d, PEN_SEVERITY_ERROR, "E003", pointer, "\"id\"",
             "the id of a module must not be empty");
    else if (strchr(id, '.'))
        tell(d, PEN_SEVERITY_ERROR, "E003", pointer, without_dots(id, other),
             "the id \"%.64s\" of a module has a dot, at which connections "
             "end the id and begin the pin",
             id);
    m->type = "";
    if (want_object(d, pointer, "a module", value)) {
        read_members(d, pointer, value, &module_members);
        const json_t *props = json_object_get(value, "props");
        if (!has_member(value, &module_members, "type"))
            tell(d, PEN_SEVERITY_ERROR, "E003", pointer, "\"type\": \"...\"",
                 "the module %.64s has no type", id);
        if (props && !json_is_object(props))
            m->type = "";
    }
    d->module_count++;
}

static void read_modules(struct pen_description *d, const char *pointer,
                         const json_t *value)
{
    if (!json_is_object(value)) {
        wrong(d, "E003", pointer, "modules", "an object of modules by their id",
              value, "\"modules\": { \"id\": { \"type\": \"...\" } }");
        d->incomplete = true;
        return;
    }
    const size_t most = json_object_size(value);
    d->modules = stk_arena_alloc(&d->arena, (most + 1) * sizeof(*d->modules));
    if (!d->modules) {
        stk_issues_fail(d->issues);
        return;
    }
    const char *id;
    json_t *module;
    json_object_foreach ((json_t *)value, id, module) {
        if (id[0] == '#')
            continue;
        struct stk_arena arena = { 0 };
        const char *at = stk_pointer_join(&arena, pointer, id);
        if (at)
            read_module(d, at, id, module);
        else
            stk_issues_fail(d->issues);
        stk_arena_finish(&arena);
    }
}

// --- connections ------------------------------------------------------------

// "id" or "id.pin".
static void read_end(struct pen_description *d, const char *pointer,
                     const char *key, const json_t *value, const char **id,
                     const char **pin)
{
    const char *text = NULL;
    read_text(d, pointer, key, value, &text);
    if (!text)
        return;
    const char *dot = strchr(text, '.');
    if (!*text || dot == text || (dot && !dot[1])) {
        char brief[64];
        stk_json_brief(value, brief, sizeof(brief));
        char suggestion[32];
        snprintf(suggestion, sizeof(suggestion), "\"%s\": \"id\"", key);
        tell(d, PEN_SEVERITY_ERROR, "E003", pointer, suggestion,
             "%s must be \"id\" or \"id.pin\", not %s", key, brief);
        return;
    }
    if (!dot) {
        *id = text;
        return;
    }
    *pin = dot + 1;
    *id = keep(d, stk_arena_printf(&d->arena, "%.*s", (int)(dot - text), text));
}

static struct stk_desc_connection *current(struct pen_description *d)
{
    return &d->connections[d->connection_count];
}

static void read_from(struct pen_description *d, const char *pointer,
                      const json_t *value)
{
    read_end(d, pointer, "from", value, &current(d)->from,
             &current(d)->from_pin);
}

static void read_to(struct pen_description *d, const char *pointer,
                    const json_t *value)
{
    read_end(d, pointer, "to", value, &current(d)->to, &current(d)->to_pin);
}

static void read_sieve(struct pen_description *d, const char *pointer,
                       const json_t *value)
{
    read_flag(d, pointer, "sieve", value, &current(d)->sieve);
}

static void read_edge_depth(struct pen_description *d, const char *pointer,
                            const json_t *value)
{
    read_count(d, "E004", pointer, "depth", value, 1, MAX_DEPTH,
               &current(d)->depth);
}

static const char *next_policy(const void *cookie, size_t i)
{
    const char *const *names = cookie;
    return names[i];
}

static void read_policy(struct pen_description *d, const char *pointer,
                        const json_t *value)
{
    static const char *const names[] = {
        [STK_BLOCK] = "block",
        [STK_DROP_NEWEST] = "drop_newest",
        [STK_DROP_OLDEST] = "drop_oldest",
        NULL,
    };
    const char *s = json_string_value(value);
    for (int i = 0; s && names[i]; i++) {
        if (strcmp(s, names[i]) == 0) {
            current(d)->policy = (enum stk_policy)i;
            return;
        }
    }
    const char *nearest = s ? stk_nearest(s, next_policy, names) : NULL;
    char suggestion[64] = "";
    if (nearest)
        snprintf(suggestion, sizeof(suggestion), "\"policy\": \"%s\"", nearest);
    wrong(d, s ? "E004" : "E003", pointer, "policy",
          "\"block\", \"drop_newest\" or \"drop_oldest\"", value, suggestion);
}

static const struct members queue_members = {
    .what = "queue",
    .strict = true,
    .list =
        (const struct member[]){
            { "depth", NULL, read_edge_depth },
            { "policy", NULL, read_policy },
            { 0 },
        },
    .others =
        (const struct synonym[]){
            { "size", "depth" },
            { "length", "depth" },
            { "strategy", "policy" },
            { 0 },
        },
};

static void read_queue(struct pen_description *d, const char *pointer,
                       const json_t *value)
{
    if (want_object(d, pointer, "queue", value))
        read_members(d, pointer, value, &queue_members);
}

static void read_feedback(struct pen_description *d, const char *pointer,
                          const json_t *value)
{
    (void)value;
    tell(d, PEN_SEVERITY_ERROR, "E306", pointer, "",
         "feedback connections are not supported yet");
}

static const struct members connection_members = {
    .what = "a connection",
    .strict = true,
    .list =
        (const struct member[]){
            { "from", NULL, read_from },
            { "to", NULL, read_to },
            { "sieve", NULL, read_sieve },
            { "queue", NULL, read_queue },
            { "feedback", NULL, read_feedback },
            { 0 },
        },
    .others =
        (const struct synonym[]){
            { "source", "from" },
            { "src", "from" },
            { "target", "to" },
            { "destination", "to" },
            { "dst", "to" },
            { "sink", "to" },
            { 0 },
        },
};

static void read_connection(struct pen_description *d, const char *pointer,
                            const json_t *value)
{
    struct stk_desc_connection *c = current(d);
    *c = (struct stk_desc_connection){
        .sieve = true,
        .pointer = keep(d, stk_arena_strdup(&d->arena, pointer)),
    };
    if (!c->pointer || !want_object(d, pointer, "a connection", value)) {
        d->incomplete = true;
        return;
    }
    read_members(d, pointer, value, &connection_members);
    const char *const ends[] = { "from", "to" };
    for (int i = 0; i < 2; i++) {
        char suggestion[32];
        snprintf(suggestion, sizeof(suggestion), "\"%s\": \"id\"", ends[i]);
        if (!has_member(value, &connection_members, ends[i]))
            tell(d, PEN_SEVERITY_ERROR, "E003", pointer, suggestion,
                 "the connection has no \"%s\"", ends[i]);
    }
    if (c->from && c->to && !json_object_get(value, "feedback"))
        d->connection_count++;
    else
        d->incomplete = true;
}

static void read_connections(struct pen_description *d, const char *pointer,
                             const json_t *value)
{
    if (!json_is_array(value)) {
        wrong(d, "E003", pointer, "connections", "an array", value,
              "\"connections\": [ { \"from\": \"id\", \"to\": \"id\" } ]");
        d->incomplete = true;
        return;
    }
    const size_t most = json_array_size(value);
    d->connections =
        stk_arena_alloc(&d->arena, (most + 1) * sizeof(*d->connections));
    if (!d->connections) {
        stk_issues_fail(d->issues);
        return;
    }
    for (size_t i = 0; i < most; i++) {
        char at[48];
        snprintf(at, sizeof(at), "%.20s/%zu", pointer, i);
        read_connection(d, at, json_array_get(value, i));
    }
}

static const struct members top_members = {
    .what = "the file",
    .list =
        (const struct member[]){
            { "pipeline", NULL, read_pipeline },
            { "settings", NULL, read_settings },
            { "modules", NULL, read_modules },
            { "connections", NULL, read_connections },
            { "$schema", NULL, NULL },
            { 0 },
        },
    .others =
        (const struct synonym[]){
            { "nodes", "modules" },
            { "edges", "connections" },
            { "links", "connections" },
            { "name", "pipeline.name" },
            { "version", "pipeline.version" },
            { "description", "pipeline.description" },
            { 0 },
        },
};

// --- the whole --------------------------------------------------------------

void pen_description_destroy(struct pen_description **desc)
{
    struct pen_description *d = *desc;
    if (!d)
        return;
    json_decref(d->root);
    stk_positions_destroy(&d->positions);
    pen_issues_destroy(&d->issues);
    stk_arena_finish(&d->arena);
    free(d);
    *desc = NULL;
}

static enum pen_status read_text_of(struct pen_description *d, const char *text,
                                    size_t length, const char *name,
                                    struct pen_issues *issues,
                                    struct pen_error *err)
{
    d->device = "auto";
    d->name = "";
    d->auto_bridge = true;
    d->h2d_per_frame = d->d2h_per_frame = -1;
    d->file = stk_arena_strdup(&d->arena, name);
    d->issues = pen_issues_create();
    if (!d->file || !d->issues)
        return pen_error_set(err, PEN_E_NOMEM, 0, name, "out of memory");

    PEN_TRY(stk_positions_scan(text, length, name, &d->positions, &d->root,
                               issues, err));
    if (json_is_object(d->root))
        read_members(d, "", d->root, &top_members);
    else
        wrong(d, "E003", "", "the file", "an object", d->root,
              "{ \"modules\": {}, \"connections\": [] }");
    d->incomplete |= !json_is_object(d->root);
    if (stk_issues_failed(d->issues))
        return pen_error_set(err, PEN_E_NOMEM, 0, name,
                             "out of memory while reading");
    return PEN_OK;
}

enum pen_status pen_description_parse(const char *text, size_t length,
                                      const char *name,
                                      struct pen_description **out,
                                      struct pen_issues *issues,
                                      struct pen_error *err)
{
    *out = NULL;
    name = name ? name : "";
    if (length > MAX_FILE)
        return pen_error_set(err, PEN_E_LIMIT, 0, name,
                             "%zu bytes; a pipeline file has at most 64 MiB",
                             length);
    struct pen_description *d = calloc(1, sizeof(*d));
    if (!d)
        return pen_error_set(err, PEN_E_NOMEM, 0, name, "out of memory");
    const enum pen_status status =
        read_text_of(d, text, length, name, issues, err);
    if (status == PEN_OK)
        *out = d;
    else
        pen_description_destroy(&d);
    return status;
}

// Read all of an open file, up to one byte more than is allowed.
static enum pen_status read_file(int fd, const char *path, char **out,
                                 size_t *length, struct pen_error *err)
{
    char *text = NULL;
    size_t n = 0, room = 0;
    for (;;) {
        if (n == room) {
            room = room ? 2 * room : 64 << 10;
            if (room > MAX_FILE + 1)
                room = MAX_FILE + 1;
            char *larger = realloc(text, room);
            if (!larger) {
                free(text);
                return pen_error_set(err, PEN_E_NOMEM, 0, path,
                                     "out of memory");
            }
            text = larger;
        }
        const ssize_t got = read(fd, text + n, room - n);
        if (got < 0 && errno == EINTR)
            continue;
        if (got < 0) {
            const int why = errno;
            free(text);
            return pen_error_set(err, PEN_E_IO, why, path, "cannot be read: %s",
                                 why == EISDIR ? "it is a folder"
                                               : strerror(why));
        }
        if (got == 0)
            break;
        n += (size_t)got;
        if (n > MAX_FILE) {
            free(text);
            return pen_error_set(err, PEN_E_LIMIT, 0, path,
                                 "is larger than 64 MiB");
        }
    }
    *out = text;
    *length = n;
    return PEN_OK;
}

enum pen_status pen_description_load(const char *path,
                                     struct pen_description **out,
                                     struct pen_issues *issues,
                                     struct pen_error *err)
{
    *out = NULL;
    const int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0) {
        const int why = errno;
        return pen_error_set(err, PEN_E_IO, why, path, "cannot be opened: %s",
                             strerror(why));
    }
    char *text = NULL;
    size_t length = 0;
    enum pen_status status = read_file(fd, path, &text, &length, err);
    close(fd);
    if (status == PEN_OK)
        status = pen_description_parse(text, length, path, out, issues, err);
    free(text);
    return status;
}

const char *pen_description_device(const struct pen_description *desc)
{
    return desc->device;
}

const char *pen_description_name(const struct pen_description *desc)
{
    return desc->name;
}

// --- overrides --------------------------------------------------------------

static const char *next_id(const void *cookie, size_t i)
{
    const struct pen_description *d = cookie;
    return i < d->module_count ? d->modules[i].id : NULL;
}

static struct stk_desc_module *find_module(struct pen_description *d,
                                           const char *id, size_t length)
{
    for (uint32_t i = 0; i < d->module_count; i++) {
        const char *name = d->modules[i].id;
        if (strlen(name) == length && memcmp(name, id, length) == 0)
            return &d->modules[i];
    }
    return NULL;
}

// The value as JSON where it is JSON, else as a string.
static enum pen_status read_value(const char *text, json_t **out,
                                  struct pen_error *err)
{
    struct pen_issues *ignored = pen_issues_create();
    if (!ignored)
        return pen_error_set(err, PEN_E_NOMEM, 0, "--set", "out of memory");
    enum pen_status status = stk_positions_scan(text, strlen(text), "--set",
                                                NULL, out, ignored, err);
    pen_issues_destroy(&ignored);
    if (status != PEN_E_CONFIG)
        return status;
    *out = json_string(text);
    return *out ? PEN_OK
                : pen_error_set(err, PEN_E_NOMEM, 0, "--set", "out of memory");
}

static bool remember_override(struct pen_description *d,
                              const struct stk_desc_module *m, const char *key)
{
    const char *props = stk_pointer_join(&d->arena, m->pointer, "props");
    const char *pointer =
        props ? stk_pointer_join(&d->arena, props, key) : NULL;
    const char **list =
        stk_arena_alloc(&d->arena, (d->overridden_count + 1) * sizeof(*list));
    if (!pointer || !list)
        return false;
    if (d->overridden_count)
        memcpy(list, d->overridden, d->overridden_count * sizeof(*list));
    list[d->overridden_count] = pointer;
    d->overridden = list;
    d->overridden_count++;
    return true;
}

enum pen_status pen_description_set(struct pen_description *desc,
                                    const char *assignment,
                                    struct pen_error *err)
{
    const char *equals = strchr(assignment, '=');
    const char *dot = strchr(assignment, '.');
    if (!equals || !dot || dot > equals || dot == assignment ||
        dot + 1 == equals)
        return pen_error_set(err, PEN_E_ARG, 0, "--set",
                             "\"%.100s\" is not of the form id.prop=value",
                             assignment);
    if (!stk_utf8_valid(assignment))
        return pen_error_set(err, PEN_E_ARG, 0, "--set",
                             "\"%.100s\" is no valid UTF-8", assignment);
    const size_t id_length = (size_t)(dot - assignment);
    struct stk_desc_module *m = find_module(desc, assignment, id_length);
    struct stk_arena arena = { 0 };
    const char *id =
        stk_arena_printf(&arena, "%.*s", (int)id_length, assignment);
    const char *key =
        stk_arena_printf(&arena, "%.*s", (int)(equals - dot - 1), dot + 1);
    json_t *value = NULL;
    enum pen_status status = PEN_OK;
    if (!id || !key) {
        status = pen_error_set(err, PEN_E_NOMEM, 0, "--set", "out of memory");
    } else if (!m) {
        const char *nearest = stk_nearest(id, next_id, desc);
        status = pen_error_set(err, PEN_E_CONFIG, 0, "--set",
                               nearest ? "there is no module %.64s; did you "
                                         "mean %s?"
                                       : "there is no module %.64s",
                               id, nearest);
    } else {
        status = read_value(equals + 1, &value, err);
    }
    if (status == PEN_OK && m) {
        json_t *props = stk_json_copy_object(m->props);
        json_t *modules = json_object_get(desc->root, "modules");
        json_t *module = json_object_get(modules, m->id);
        // The old props stay what they were until the new ones are complete.
        if (!props || json_object_set(props, key, value) < 0 ||
            !remember_override(desc, m, key) ||
            json_object_set(module, "props", props) < 0)
            status =
                pen_error_set(err, PEN_E_NOMEM, 0, "--set", "out of memory");
        else
            m->props = props;
        json_decref(props);
    }
    json_decref(value);
    stk_arena_finish(&arena);
    return status;
}
