// From the description to a checked graph: types, properties, pins, kinds,
// cycles, reachability, paths. Everything is told in one pass.

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <fnmatch.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "graph.h"

enum { NOBODY = -1 };

// What is known of a module while the graph is being checked, beside its
// node. Modules are numbered as in the file.
struct seen {
    int32_t fed_by[PEN_MAX_PINS];  // connection into the input, or NOBODY
    bool used[PEN_MAX_PINS];       // output has a connection
    bool mentioned;                // by any connection
    bool blamed;  // by an error that may explain others: those stay untold
    bool in_cycle;
};

// How the properties of a module are read, of each class that it may be.
struct reading {
    const struct stk_desc_module *desc;
    const struct pen_alias *preset;                 // NULL: none
    const struct pen_module_class *const *classes;  // NULL: a plain type
    size_t class_count;
};

struct link {
    int32_t from, to;          // module numbers, or NOBODY
    int32_t from_pin, to_pin;  // or NOBODY
    bool failed;
};

struct resolver {
    const struct pen_description *desc;
    const struct pen_registry *registry;
    struct stk_arena *arena;  // of the result
    struct stk_arena scratch;
    struct pen_issues *issues;
    struct stk_node *nodes;
    struct seen *seen;
    struct link *links;
    uint32_t *sorted;  // module numbers in the order of their ids
    bool unknown_type;
    size_t patience;  // comparisons of words that are still worth it
};

PEN_PRINTF(6, 7)
static void tell(struct resolver *r, enum pen_severity severity,
                 const char *code, const char *pointer, const char *suggestion,
                 const char *format, ...)
{
    struct stk_arena arena = { 0 };
    char small[512];
    const char *text = small;
    va_list args, again;
    va_start(args, format);
    va_copy(again, args);
    const int n = vsnprintf(small, sizeof(small), format, args);
    if (n >= (int)sizeof(small)) {
        char *large = stk_arena_alloc(&arena, (size_t)n + 1);
        if (large)
            vsnprintf(large, (size_t)n + 1, format, again);
        text = large;
    }
    va_end(again);
    va_end(args);
    if (text)
        stk_issue_add(r->issues, r->desc, severity, code, pointer, suggestion,
                      "%s", text);
    else
        stk_issues_fail(r->issues);
    stk_arena_finish(&arena);
}

// Scratch text that outlives the complaint it is made for; never NULL.
PEN_PRINTF(2, 3)
static const char *note(struct resolver *r, const char *format, ...)
{
    va_list args, again;
    va_start(args, format);
    va_copy(again, args);
    const int n = vsnprintf(NULL, 0, format, again);
    va_end(again);
    char *text = n < 0 ? NULL : stk_arena_alloc(&r->scratch, (size_t)n + 1);
    if (text)
        vsnprintf(text, (size_t)n + 1, format, args);
    else
        stk_issues_fail(r->issues);
    va_end(args);
    return text ? text : "";
}

#define error(r, ...)   tell((r), PEN_SEVERITY_ERROR, __VA_ARGS__)
#define warning(r, ...) tell((r), PEN_SEVERITY_WARNING, __VA_ARGS__)

static const char *id_of(const struct resolver *r, int32_t module)
{
    return r->desc->modules[module].id;
}

// The place of a property; NULL: out of memory.
static const char *prop_pointer(struct resolver *r,
                                const struct stk_desc_module *module,
                                const char *key)
{
    const char *props = stk_pointer_join(&r->scratch, module->pointer, "props");
    return props ? stk_pointer_join(&r->scratch, props, key) : NULL;
}

// --- modules by id ----------------------------------------------------------

static int compare_id(const void *a, const void *b, void *cookie)
{
    const struct pen_description *d = cookie;
    return strcmp(d->modules[*(const uint32_t *)a].id,
                  d->modules[*(const uint32_t *)b].id);
}

static int32_t find_module(const struct resolver *r, const char *id)
{
    uint32_t low = 0, high = r->desc->module_count;
    while (low < high) {
        const uint32_t mid = low + (high - low) / 2;
        const int order = strcmp(r->desc->modules[r->sorted[mid]].id, id);
        if (order == 0)
            return (int32_t)r->sorted[mid];
        if (order < 0)
            low = mid + 1;
        else
            high = mid;
    }
    return NOBODY;
}

static const char *next_id(const void *cookie, size_t i)
{
    const struct pen_description *d = cookie;
    return i < d->module_count ? d->modules[i].id : NULL;
}

// A big file full of wrong names gets no guesses after a while: they would
// take quadratic time.
static const char *nearest_id(struct resolver *r, const char *id)
{
    if (r->patience < r->desc->module_count)
        return NULL;
    r->patience -= r->desc->module_count;
    return stk_nearest(id, next_id, r->desc);
}

// --- paths ------------------------------------------------------------------

// Whether `name` fits a pattern, as FileReaderModule reads it: with a '*' in it
// it is a shell's, otherwise '?' is a digit.
static bool fits_pattern(const char *pattern, const char *name)
{
    if (strchr(pattern, '*'))
        return fnmatch(pattern, name, FNM_PERIOD) == 0;
    for (; *pattern && *name; pattern++, name++) {
        if (*pattern == '?' ? *name < '0' || *name > '9' : *pattern != *name)
            return false;
    }
    return !*pattern && !*name;
}

// The folder of a path in the scratch arena ("." if there is none).
static const char *folder_of(struct resolver *r, const char *path)
{
    const char *slash = strrchr(path, '/');
    const char *folder =
        !slash ? "."
        : slash == path
            ? "/"
            : stk_arena_printf(&r->scratch, "%.*s", (int)(slash - path), path);
    if (!folder)
        stk_issues_fail(r->issues);
    return folder;
}

static void check_pattern(struct resolver *r, const char *pointer,
                          const char *path)
{
    const char *folder = folder_of(r, path);
    const char *slash = strrchr(path, '/');
    const char *pattern = slash ? slash + 1 : path;
    // Patterns among the folders are the reader's business.
    if (!folder || folder[strcspn(folder, "?*")])
        return;
    DIR *dir = opendir(folder);
    if (!dir && errno == ENOMEM) {
        stk_issues_fail(r->issues);
        return;
    }
    if (!dir) {
        warning(r, "W600", pointer, "",
                "no file fits %s: the folder %s cannot be read: %s", path,
                folder, strerror(errno));
        return;
    }
    const struct dirent *entry;
    do {
        entry = readdir(dir);
    } while (entry && (strcmp(entry->d_name, ".") == 0 ||
                       strcmp(entry->d_name, "..") == 0 ||
                       !fits_pattern(pattern, entry->d_name)));
    if (!entry)
        warning(r, "W600", pointer, "", "no file fits %s%s", path,
                strchr(pattern, '*') ? "" : " ('?' is a digit)");
    closedir(dir);
}

struct names {
    const char *name[1024];
    size_t count;
};

static const char *next_name(const void *cookie, size_t i)
{
    const struct names *names = cookie;
    return i < names->count ? names->name[i] : NULL;
}

// The file of that folder whose name is nearest, or NULL.
static const char *nearest_file(struct resolver *r, const char *folder,
                                const char *name)
{
    struct names *names = stk_arena_alloc(&r->scratch, sizeof(*names));
    DIR *dir = names ? opendir(folder) : NULL;
    if (!dir)
        return NULL;
    const size_t most = sizeof(names->name) / sizeof(names->name[0]);
    const struct dirent *entry;
    while (names->count < most && (entry = readdir(dir))) {
        const char *copy = stk_arena_strdup(&r->scratch, entry->d_name);
        if (copy && entry->d_name[0] != '.')
            names->name[names->count++] = copy;
    }
    closedir(dir);
    return stk_nearest(name, next_name, names);
}

static void missing_file(struct resolver *r, const char *pointer,
                         const char *key, const char *path, int why)
{
    const char *folder = folder_of(r, path);
    const char *slash = strrchr(path, '/');
    const char *name = slash ? slash + 1 : path;
    const char *nearest =
        folder && *name && why == ENOENT ? nearest_file(r, folder, name) : NULL;
    const char *suggestion =
        nearest ? note(r, "\"%s\": \"%.*s%s\"", key,
                       slash ? (int)(slash + 1 - path) : 0, path, nearest)
                : "";
    error(r, "E600", pointer, suggestion, "%s: %s", path, strerror(why));
}

static void check_read(struct resolver *r, const char *pointer, const char *key,
                       const char *path)
{
    struct stat st;
    if (path[strcspn(path, "?*")] && stat(path, &st) != 0) {
        check_pattern(r, pointer, path);
        return;
    }
    if (stat(path, &st) != 0)
        missing_file(r, pointer, key, path, errno);
    else if (S_ISDIR(st.st_mode))
        error(r, "E601", pointer, "", "%s is a folder, not a file", path);
    else if (faccessat(AT_FDCWD, path, R_OK, AT_EACCESS) != 0)
        error(r, "E600", pointer, "", "%s cannot be read: %s", path,
              strerror(errno));
}

static void check_write(struct resolver *r, const char *pointer,
                        const char *path)
{
    struct stat st;
    const char *folder = folder_of(r, path);
    if (!folder || stat(folder, &st) != 0)
        return;
    if (!S_ISDIR(st.st_mode))
        warning(r, "W602", pointer, "", "%s is no folder", folder);
    else if (faccessat(AT_FDCWD, folder, W_OK | X_OK, AT_EACCESS) != 0)
        warning(r, "W602", pointer, "", "the folder %s cannot be written: %s",
                folder, strerror(errno));
}

// Only what the user wrote is looked at; defaults are the module's business.
static void check_paths(struct resolver *r, const struct reading *what,
                        const struct stk_option *option)
{
    for (const struct pen_prop *row = option->cls->props;
         row && row->kind != PEN_PROP_END; row++) {
        if (!(row->flags & (PEN_PROP_PATH_READ | PEN_PROP_PATH_WRITE)) ||
            !json_object_get(what->desc->props, row->key))
            continue;
        const char *path = stk_prop_string(row, option->params);
        const char *pointer = prop_pointer(r, what->desc, row->key);
        if (!pointer)
            stk_issues_fail(r->issues);
        else if (!*path)
            error(r, "E600", pointer, "", "%s is an empty path", row->key);
        else if (row->flags & PEN_PROP_PATH_READ)
            check_read(r, pointer, row->key, path);
        else
            check_write(r, pointer, path);
    }
}

// --- modules and their properties -------------------------------------------

// The properties with the type's preset among them (new reference).
static json_t *preset_props(struct resolver *r, const struct reading *what,
                            const struct pen_module_class *cls, json_t **preset)
{
    const struct pen_alias *alias = what->preset;
    const struct pen_prop *row = stk_prop_find(cls->props, alias->key);
    json_t *props = stk_json_copy_object(what->desc->props);
    void *params = stk_arena_alloc(&r->scratch, cls->params_size);
    *preset = NULL;
    if (props && params &&
        stk_prop_set_text(cls->props, params, alias->key, alias->value,
                          &r->scratch, NULL) == PEN_OK)
        *preset = stk_prop_get_json(row, params);
    if (*preset && (json_object_get(props, alias->key) ||
                    json_object_set(props, alias->key, *preset) == 0))
        return props;
    stk_issues_fail(r->issues);
    json_decref(props);
    return NULL;
}

static void check_preset(struct resolver *r, const struct reading *what,
                         const struct stk_option *option, const json_t *preset)
{
    const struct pen_alias *alias = what->preset;
    const struct pen_prop *row = stk_prop_find(option->cls->props, alias->key);
    json_t *value = stk_prop_get_json(row, option->params);
    const char *pointer = prop_pointer(r, what->desc, alias->key);
    if (!value || !pointer) {
        stk_issues_fail(r->issues);
    } else if (!json_equal(value, preset)) {
        char suggestion[160], brief[64];
        stk_json_brief(value, brief, sizeof(brief));
        snprintf(suggestion, sizeof(suggestion), "\"type\": \"%s\"",
                 option->cls->name);
        error(r, "E206", pointer, suggestion,
              "the type %s means %s with %s %s, which %s contradicts",
              alias->name, option->cls->name, alias->key, alias->value, brief);
    }
    json_decref(value);
}

// A class works where it works; only a type that stands for several can be
// told where.
static void check_backend(struct resolver *r, const struct reading *what,
                          const struct stk_option *option)
{
    const enum stk_backend asked = (enum stk_backend)option->base.backend;
    const enum stk_backend has = stk_class_backend(option->cls);
    if (what->classes || asked == STK_BACKEND_AUTO || asked == has)
        return;
    const struct pen_generic_type *type =
        stk_registry_generic_of(r->registry, option->cls);
    const char *pointer = prop_pointer(r, what->desc, "backend");
    const char *suggestion =
        type ? note(r, "\"type\": \"%s\"", type->name)
             : note(r, "\"backend\": \"%s\"", stk_backend_name(has));
    if (pointer)
        error(r, "E206", pointer, suggestion,
              "%s works on %s, which the backend \"%s\" contradicts",
              option->cls->name,
              has == STK_BACKEND_CPU ? "the CPU" : "the CUDA device",
              stk_backend_name(asked));
    else
        stk_issues_fail(r->issues);
}

// Whether the properties fit one by one.
static bool read_props(struct resolver *r, const struct reading *what,
                       struct stk_option *option)
{
    const struct pen_module_class *cls = option->cls;
    const bool preset = what->preset && what->preset->key &&
                        stk_prop_find(cls->props, what->preset->key);
    json_t *value = NULL;
    json_t *props = preset ? preset_props(r, what, cls, &value)
                           : json_incref(what->desc->props);
    const struct stk_props_job job = {
        .table = cls->props,
        .props = props,
        .pointer = what->desc->pointer,
        .type_name = what->desc->type,
        .classes = what->classes,
        .class_count = what->class_count,
        .preset = what->preset,
    };
    bool fit = false;
    if (!preset || props)
        fit = stk_props_read(&job, option->params, &option->base, r->desc,
                             r->arena, r->issues) == 0;
    if (preset && fit)
        check_preset(r, what, option, value);
    if (fit)
        check_backend(r, what, option);
    json_decref(value);
    json_decref(props);
    return fit;
}

static uint32_t count_pins(const struct pen_pin *pins)
{
    uint32_t n = 0;
    while (pins && pins[n].name)
        n++;
    return n;
}

static void copy_sets(struct pen_pin_set *sets, const struct pen_pin *pins)
{
    for (uint32_t i = 0; pins && pins[i].name; i++)
        sets[i] =
            (struct pen_pin_set){ pins[i].kinds, pins[i].mem, pins[i].formats };
}

// The module as an instance of `cls`; what is wrong with it goes to r->issues.
static void read_option(struct resolver *r, const struct reading *what,
                        const struct pen_module_class *cls,
                        struct stk_option *option)
{
    *option = (struct stk_option){ .cls = cls };
    copy_sets(option->in, cls->inputs);
    copy_sets(option->out, cls->outputs);
    option->params = stk_arena_alloc(r->arena, cls->params_size + 1);
    if (!option->params) {
        stk_issues_fail(r->issues);
        return;
    }
    if (!read_props(r, what, option))
        return;
    struct pen_check check = {
        .issues = r->issues,
        .desc = r->desc,
        .pointer = what->desc->pointer,
    };
    if (cls->ops.check)
        cls->ops.check(option->params, &check);
    if (cls->ops.narrow)
        cls->ops.narrow(option->params, option->in, option->out);
    if (!check.errors)
        check_paths(r, what, option);
}

// The node is what its first option is.
static void take_options(struct stk_node *node, const struct stk_option *list,
                         uint32_t count)
{
    node->options = list;
    node->option_count = count;
    node->cls = list->cls;
    node->params = list->params;
    node->base = list->base;
    memcpy(node->in, list->in, sizeof(node->in));
    memcpy(node->out, list->out, sizeof(node->out));
    node->inputs = count_pins(list->cls->inputs);
    node->outputs = count_pins(list->cls->outputs);
}

static void unknown_type(struct resolver *r, const struct stk_node *node)
{
    struct stk_arena *a = &r->scratch;
    const char *at = stk_pointer_join(a, node->desc->pointer, "type");
    const char *nearest = pen_registry_nearest(r->registry, node->desc->type);
    char suggestion[160] = "";
    if (!at) {
        stk_issues_fail(r->issues);
        return;
    }
    if (nearest) {
        snprintf(suggestion, sizeof(suggestion), "\"type\": \"%s\"", nearest);
        error(r, "E100", at, suggestion,
              "there is no module type %.64s; did you mean %s?",
              node->desc->type, nearest);
    } else {
        error(r, "E100", at, suggestion, "there is no module type %.64s",
              node->desc->type);
    }
}

// --- generic types ----------------------------------------------------------

static void no_class(struct resolver *r, const struct stk_node *node,
                     const struct pen_generic_type *type)
{
    const char *at = stk_pointer_join(&r->scratch, node->desc->pointer, "type");
    if (at)
        error(r, "E100", at, "",
              "%s stands for the modules with the tag %s%s%s, and there is "
              "none yet",
              type->name, type->tags[0], type->tags[1] ? " and " : "",
              type->tags[1] ? type->tags[1] : "");
    else
        stk_issues_fail(r->issues);
}

// Leave only the classes of the backend that is asked for. If there is none,
// that is told and all of them stay, so that the rest is checked too.
static size_t filter_backend(struct resolver *r, const struct reading *what,
                             const struct pen_module_class **list)
{
    const char *asked =
        json_string_value(json_object_get(what->desc->props, "backend"));
    const bool cpu = asked && strcmp(asked, "cpu") == 0;
    const bool cuda = asked && strcmp(asked, "cuda") == 0;
    const enum stk_backend backend = cpu ? STK_BACKEND_CPU : STK_BACKEND_CUDA;
    const char *others = "";
    size_t count = 0;
    for (size_t i = 0; i < what->class_count; i++) {
        if ((!cpu && !cuda) || stk_class_backend(what->classes[i]) == backend)
            list[count++] = what->classes[i];
        else
            others = note(r, "%s%s%s", others, *others ? ", " : "",
                          what->classes[i]->name);
    }
    if (count)
        return count;
    const char *pointer = prop_pointer(r, what->desc, "backend");
    if (pointer)
        error(r, "E206", pointer, "\"backend\": \"auto\"",
              "%s stands for no module with the backend %s; it can be %s",
              what->desc->type, asked, others);
    else
        stk_issues_fail(r->issues);
    memcpy(list, what->classes, what->class_count * sizeof(*list));
    return what->class_count;
}

// What is said of one class of a generic type.
static struct pen_issues *try_class(struct resolver *r,
                                    const struct reading *what,
                                    const struct pen_module_class *cls,
                                    struct stk_option *option)
{
    struct pen_issues *whole = r->issues;
    option->cls = cls;
    r->issues = pen_issues_create();
    if (r->issues)
        read_option(r, what, cls, option);
    struct pen_issues *told = r->issues;
    r->issues = whole;
    if (!told || stk_issues_failed(told))
        stk_issues_fail(whole);
    return told;
}

static size_t errors_in(const struct pen_issues *told)
{
    return told ? pen_issues_count(told, PEN_SEVERITY_ERROR) : SIZE_MAX;
}

// "CCNPPI: ...": why a class is no option.
static const char *reason_of(struct resolver *r, const char *before,
                             const struct pen_module_class *cls,
                             const struct pen_issues *told)
{
    const struct pen_issue *is = NULL;
    for (size_t i = 0; told && (is = pen_issues_get(told, i)); i++) {
        if (is->severity == PEN_SEVERITY_ERROR)
            break;
    }
    const char *text =
        stk_arena_printf(r->arena, "%s%s%s: %s", before, *before ? "; " : "",
                         cls->name, is ? is->message : "");
    if (!text)
        stk_issues_fail(r->issues);
    return text ? text : "";
}

// Whether all that is wrong is properties which the class has not got.
static bool lacks_only(const struct pen_issues *told)
{
    const struct pen_issue *is;
    for (size_t i = 0; (is = pen_issues_get(told, i)); i++) {
        if (is->severity == PEN_SEVERITY_ERROR && strcmp(is->code, "E200") != 0)
            return false;
    }
    return true;
}

// No class takes the properties: that is told of the one which comes nearest.
// Where each lacks what another has, one alone would not explain it.
static void no_option(struct resolver *r, struct pen_issues *const *told,
                      size_t count, size_t best)
{
    struct pen_issues *all = pen_issues_create();
    if (!all || !told[best]) {
        stk_issues_fail(r->issues);
        pen_issues_destroy(&all);
        return;
    }
    stk_issues_merge(all, told[best]);
    for (size_t i = 0; i < count; i++) {
        if (errors_in(told[i]) == errors_in(told[best]) &&
            lacks_only(told[best]) && lacks_only(told[i]))
            stk_issues_merge(all, told[i]);
    }
    stk_issues_append(r->issues, all);
    pen_issues_destroy(&all);
}

// Every class that takes the properties is an option; warnings that are the
// same for several are told once.
static void choose_options(struct resolver *r, struct stk_node *node,
                           struct stk_option *options,
                           struct pen_issues *const *told, size_t count)
{
    uint32_t fit = 0;
    size_t best = 0;
    for (size_t i = 0; i < count; i++) {
        if (errors_in(told[i]) < errors_in(told[best]))
            best = i;
    }
    if (errors_in(told[best])) {
        no_option(r, told, count, best);
        take_options(node, &options[best], 1);
        return;
    }
    struct pen_issues *warnings = pen_issues_create();
    for (size_t i = 0; i < count; i++) {
        if (errors_in(told[i])) {
            node->left_out =
                reason_of(r, node->left_out, options[i].cls, told[i]);
        } else {
            if (warnings)
                stk_issues_merge(warnings, told[i]);
            options[fit++] = options[i];
        }
    }
    take_options(node, options, fit);
    if (warnings)
        stk_issues_append(r->issues, warnings);
    else
        stk_issues_fail(r->issues);
    pen_issues_destroy(&warnings);
}

static void resolve_generic(struct resolver *r, struct stk_node *node,
                            const struct pen_generic_type *type)
{
    const struct pen_module_class *classes[STK_MAX_OPTIONS];
    const struct pen_module_class *list[STK_MAX_OPTIONS];
    struct pen_issues *told[STK_MAX_OPTIONS] = { NULL };
    size_t count = pen_registry_generic_classes(r->registry, type, classes,
                                                STK_MAX_OPTIONS);
    if (!count) {
        no_class(r, node, type);
        r->unknown_type = true;
        return;
    }
    const struct reading what = {
        .desc = node->desc,
        .preset = &type->preset,
        .classes = classes,
        .class_count = count < STK_MAX_OPTIONS ? count : STK_MAX_OPTIONS,
    };
    count = filter_backend(r, &what, list);
    struct stk_option *options =
        stk_arena_alloc(r->arena, count * sizeof(*options));
    if (!options) {
        stk_issues_fail(r->issues);
        return;
    }
    for (size_t i = 0; i < count; i++)
        told[i] = try_class(r, &what, list[i], &options[i]);
    choose_options(r, node, options, told, count);
    for (size_t i = 0; i < count; i++)
        pen_issues_destroy(&told[i]);
}

static void resolve_module(struct resolver *r, uint32_t i)
{
    struct stk_node *node = &r->nodes[i];
    const struct pen_alias *alias;
    node->desc = &r->desc->modules[i];
    node->left_out = "";
    for (int pin = 0; pin < PEN_MAX_PINS; pin++)
        r->seen[i].fed_by[pin] = NOBODY;
    const struct pen_module_class *cls =
        pen_registry_find(r->registry, node->desc->type, &alias);
    const struct pen_generic_type *type =
        cls ? NULL : pen_generic_type_find(node->desc->type);
    if (type) {
        resolve_generic(r, node, type);
        return;
    }
    if (!cls) {
        if (*node->desc->type)
            unknown_type(r, node);
        r->unknown_type = true;
        return;
    }
    // A plain type stands for one class.
    const struct reading what = { .desc = node->desc, .preset = alias };
    struct stk_option *option = stk_arena_alloc(r->arena, sizeof(*option));
    if (!option) {
        stk_issues_fail(r->issues);
        return;
    }
    read_option(r, &what, cls, option);
    take_options(node, option, 1);
}

// --- connections ------------------------------------------------------------

static const char *end_pointer(struct resolver *r,
                               const struct stk_desc_connection *c,
                               const char *end)
{
    return note(r, "%s/%s", c->pointer, end);
}

static void unknown_module(struct resolver *r,
                           const struct stk_desc_connection *c, bool source)
{
    const char *id = source ? c->from : c->to;
    const char *pin = source ? c->from_pin : c->to_pin;
    const char *key = source ? "from" : "to";
    const char *nearest = nearest_id(r, id);
    const char *suggestion = "";
    if (nearest) {
        // Most likely it is the one that was meant: do not also complain that
        // it is not connected.
        r->seen[find_module(r, nearest)].blamed = true;
        r->seen[find_module(r, nearest)].mentioned = true;
        suggestion = note(r, "\"%s\": \"%s%s%s\"", key, nearest, pin ? "." : "",
                          pin ? pin : "");
    }
    error(r, source ? "E300" : "E301", end_pointer(r, c, key), suggestion,
          "there is no module %.64s to connect %s%s%s%s", id, key,
          nearest ? "; did you mean " : "", nearest ? nearest : "",
          nearest ? "?" : "");
}

static const char *list_pins(struct resolver *r, const struct pen_pin *pins)
{
    const char *list = "";
    for (; pins && pins->name; pins++)
        list = note(r, "%s%s%s", list, *list ? ", " : "", pins->name);
    return list;
}

static const char *next_pin(const void *cookie, size_t i)
{
    const struct pen_pin *pins = cookie;
    return pins ? pins[i].name : NULL;
}

static int32_t pin_named(const struct pen_pin *pins, const char *name)
{
    for (int32_t i = 0; pins && name && pins[i].name; i++) {
        if (strcmp(pins[i].name, name) == 0)
            return i;
    }
    return NOBODY;
}

static void unknown_pin(struct resolver *r, const struct stk_desc_connection *c,
                        int32_t module, bool source)
{
    const struct pen_module_class *cls = r->nodes[module].cls;
    const char *type = r->desc->modules[module].type;
    const struct pen_pin *pins = source ? cls->outputs : cls->inputs;
    const struct pen_pin *others = source ? cls->inputs : cls->outputs;
    const char *name = source ? c->from_pin : c->to_pin;
    const char *key = source ? "from" : "to";
    const char *code = source ? "E302" : "E303";
    const char *what = source ? "output" : "input";
    const char *at = end_pointer(r, c, key);
    const char *id = id_of(r, module);
    if (!pins || !pins->name) {
        error(r, code, at, "", "%s (%s) has no %ss", id, type, what);
        return;
    }
    const char *right = stk_nearest(name, next_pin, pins);
    if (!right && !pins[1].name)
        right = pins->name;
    const char *suggestion =
        right ? note(r, "\"%s\": \"%s.%s\"", key, id, right) : "";
    error(r, code, at, suggestion, "%s (%s) has no %s %.64s%s; its %ss: %s", id,
          type, what, name,
          pin_named(others, name) == NOBODY ? ""
          : source                          ? ", that is an input"
                                            : ", that is an output",
          what, list_pins(r, pins));
}

// Whether the module is known to have no outputs, or no inputs.
static bool has_none(const struct resolver *r, int32_t module, bool outputs)
{
    if (module == NOBODY || !r->nodes[module].cls)
        return false;
    const struct stk_node *node = &r->nodes[module];
    return (outputs ? node->outputs : node->inputs) == 0;
}

// Find the modules, and the pins that are named or the only ones. What
// remains open is NOBODY without `failed`.
static void resolve_ends(struct resolver *r, uint32_t i)
{
    const struct stk_desc_connection *c = &r->desc->connections[i];
    struct link *link = &r->links[i];
    *link = (struct link){
        .from = find_module(r, c->from),
        .to = find_module(r, c->to),
        .from_pin = NOBODY,
        .to_pin = NOBODY,
    };
    if (link->from == NOBODY)
        unknown_module(r, c, true);
    if (link->to == NOBODY)
        unknown_module(r, c, false);
    if (!c->sieve)
        error(r, "E306", end_pointer(r, c, "sieve"), "\"sieve\": true",
              "sieve false (forwarding the inputs of %.64s) is not supported "
              "yet",
              c->from);
    bool bad = link->from == NOBODY || link->to == NOBODY;
    if (link->from != NOBODY && r->nodes[link->from].cls) {
        const struct stk_node *node = &r->nodes[link->from];
        if (c->from_pin)
            link->from_pin = pin_named(node->cls->outputs, c->from_pin);
        else if (node->outputs == 1)
            link->from_pin = 0;
        if (link->from_pin == NOBODY && (c->from_pin || !node->outputs)) {
            unknown_pin(r, c, link->from, true);
            bad = true;
        }
    }
    if (link->to != NOBODY && r->nodes[link->to].cls) {
        const struct stk_node *node = &r->nodes[link->to];
        if (c->to_pin)
            link->to_pin = pin_named(node->cls->inputs, c->to_pin);
        else if (node->inputs == 1)
            link->to_pin = 0;
        if (link->to_pin == NOBODY && (c->to_pin || !node->inputs)) {
            unknown_pin(r, c, link->to, false);
            bad = true;
        }
    }
    link->failed = bad;
    const int32_t ends[] = { link->from, link->to };
    for (int e = 0; e < 2; e++) {
        if (ends[e] == NOBODY)
            continue;
        r->seen[ends[e]].mentioned = true;
        r->seen[ends[e]].blamed |= bad;
    }
    // What can never be a connection closes no cycle.
    if (has_none(r, link->from, true))
        link->from = NOBODY;
    if (has_none(r, link->to, false))
        link->to = NOBODY;
}

static const char *arrow(struct resolver *r,
                         const struct stk_desc_connection *c)
{
    return note(r, "%s%s%s -> %s%s%s", c->from, c->from_pin ? "." : "",
                c->from_pin ? c->from_pin : "", c->to, c->to_pin ? "." : "",
                c->to_pin ? c->to_pin : "");
}

static void take_input(struct resolver *r, uint32_t i)
{
    const struct stk_desc_connection *c = &r->desc->connections[i];
    struct link *link = &r->links[i];
    const struct stk_node *node = &r->nodes[link->to];
    int32_t *fed_by = &r->seen[link->to].fed_by[link->to_pin];
    if (*fed_by == NOBODY) {
        *fed_by = (int32_t)i;
        return;
    }
    const struct stk_desc_connection *first = &r->desc->connections[*fed_by];
    error(r, "E305", end_pointer(r, c, "to"), "",
          "the input %s.%s has two connections; the other is %s (%s)",
          id_of(r, link->to), node->cls->inputs[link->to_pin].name,
          first->pointer, arrow(r, first));
    link->failed = true;
}

static void resolve_pins(struct resolver *r)
{
    const uint32_t count = r->desc->connection_count;
    // What is named goes first, so that the order of connections does not
    // matter to those that take what is left.
    for (uint32_t i = 0; i < count; i++) {
        struct link *link = &r->links[i];
        if (link->from_pin != NOBODY)
            r->seen[link->from].used[link->from_pin] = true;
        if (link->to_pin != NOBODY)
            take_input(r, i);
    }
    for (uint32_t i = 0; i < count; i++) {
        const struct stk_desc_connection *c = &r->desc->connections[i];
        struct link *link = &r->links[i];
        const struct stk_node *node =
            link->from == NOBODY ? NULL : &r->nodes[link->from];
        if (node && node->cls && !c->from_pin && node->outputs > 1) {
            uint32_t pin = 0;
            while (pin < node->outputs && r->seen[link->from].used[pin])
                pin++;
            if (pin < node->outputs) {
                r->seen[link->from].used[pin] = true;
                link->from_pin = (int32_t)pin;
            } else {
                link->failed = true;
                error(r, "E302", end_pointer(r, c, "from"),
                      note(r, "\"from\": \"%s.%s\"", c->from,
                           node->cls->outputs->name),
                      "%s has no output left without a connection; name one "
                      "of %s",
                      c->from, list_pins(r, node->cls->outputs));
            }
        }
        node = link->to == NOBODY ? NULL : &r->nodes[link->to];
        if (node && node->cls && !c->to_pin && node->inputs > 1) {
            uint32_t pin = 0;
            while (pin < node->inputs &&
                   r->seen[link->to].fed_by[pin] != NOBODY)
                pin++;
            if (pin < node->inputs) {
                link->to_pin = (int32_t)pin;
                r->seen[link->to].fed_by[pin] = (int32_t)i;
            } else {
                link->failed = true;
                error(r, "E305", end_pointer(r, c, "to"), "",
                      "all inputs of %s have a connection already: %s", c->to,
                      list_pins(r, node->cls->inputs));
            }
        }
    }
}

// --- kinds ------------------------------------------------------------------

static bool kinds_meet(uint32_t a, uint32_t b)
{
    return (a & b) || ((a | b) & PEN_KIND_BIT(PEN_KIND_FRAME));
}

static const char *list_kinds(struct resolver *r, uint32_t kinds)
{
    const char *list = "";
    for (int k = PEN_KIND_NONE + 1; k < PEN_KIND_COUNT; k++) {
        if (kinds & PEN_KIND_BIT(k))
            list = note(r, "%s%s%s", list, *list ? " or " : "",
                        pen_kind_name((enum pen_kind)k));
    }
    return list;
}

// A class that makes of one kind the other; one that works where the frames
// already are is preferred.
static const struct pen_module_class *
find_converter(const struct resolver *r, const struct pen_pin_set *from,
               const struct pen_pin_set *to)
{
    const struct pen_module_class *cls, *found = NULL;
    for (size_t i = 0; (cls = stk_registry_at(r->registry, i)); i++) {
        if (count_pins(cls->inputs) != 1 || count_pins(cls->outputs) != 1 ||
            !(cls->inputs->kinds & from->kinds) ||
            !(cls->outputs->kinds & to->kinds))
            continue;
        // What gives the kind that it takes only passes frames on.
        if (cls->inputs->kinds & cls->outputs->kinds & from->kinds)
            continue;
        if (cls->inputs->mem & from->mem)
            return cls;
        if (!found)
            found = cls;
    }
    return found;
}

// What a pin takes or gives, whichever class the module will be.
static struct pen_pin_set any_input(const struct stk_node *node, int32_t pin)
{
    struct pen_pin_set all = { 0 };
    for (uint32_t i = 0; i < node->option_count; i++) {
        const struct pen_pin_set *in = &node->options[i].in[pin];
        all.kinds |= in->kinds;
        all.mem |= in->mem;
        all.formats |= in->formats;
    }
    return all;
}

static struct pen_pin_set any_output(const struct stk_node *node, int32_t pin)
{
    struct pen_pin_set all = { 0 };
    for (uint32_t i = 0; i < node->option_count; i++) {
        const struct pen_pin_set *out = &node->options[i].out[pin];
        all.kinds |= out->kinds;
        all.mem |= out->mem;
        all.formats |= out->formats;
    }
    return all;
}

static void check_kinds(struct resolver *r, uint32_t i)
{
    const struct stk_desc_connection *c = &r->desc->connections[i];
    const struct link *link = &r->links[i];
    const struct stk_node *a = &r->nodes[link->from];
    const struct stk_node *b = &r->nodes[link->to];
    const struct pen_pin_set out = any_output(a, link->from_pin);
    const struct pen_pin_set in = any_input(b, link->to_pin);
    if (kinds_meet(out.kinds, in.kinds))
        return;
    const struct pen_module_class *cls = find_converter(r, &out, &in);
    error(r, "E304", c->pointer,
          cls ? note(r, "\"convert\": { \"type\": \"%s\" } between %s and %s",
                     cls->name, c->from, c->to)
              : "",
          "%s.%s gives %s, %s.%s takes %s", c->from,
          a->cls->outputs[link->from_pin].name, list_kinds(r, out.kinds), c->to,
          b->cls->inputs[link->to_pin].name, list_kinds(r, in.kinds));
}

// --- the graph as a whole ---------------------------------------------------

// Whether the link may be used for questions about the whole graph: its ends
// are known, if perhaps not its pins.
static bool joins(const struct link *link)
{
    return link->from != NOBODY && link->to != NOBODY;
}

// Successors of all modules, one after the other.
struct successors {
    uint32_t *first;  // module -> index into `link`; one more at the end
    uint32_t *link;
};

static bool make_successors(struct resolver *r, struct successors *s)
{
    const uint32_t n = r->desc->module_count, m = r->desc->connection_count;
    s->first = stk_arena_alloc(&r->scratch, (n + 2) * sizeof(*s->first));
    s->link = stk_arena_alloc(&r->scratch, (m + 1) * sizeof(*s->link));
    if (!s->first || !s->link)
        return false;
    // Counted two places ahead, so that filling leaves them right.
    for (uint32_t i = 0; i < m; i++) {
        if (joins(&r->links[i]))
            s->first[r->links[i].from + 2]++;
    }
    for (uint32_t i = 2; i < n + 2; i++)
        s->first[i] += s->first[i - 1];
    for (uint32_t i = 0; i < m; i++) {
        if (joins(&r->links[i]))
            s->link[s->first[r->links[i].from + 1]++] = i;
    }
    return true;
}

static void tell_cycle(struct resolver *r, const uint32_t *path,
                       uint32_t length, uint32_t closing)
{
    struct stk_text text = { 0 };
    for (uint32_t i = 0; i < length; i++) {
        stk_text_add(&text, id_of(r, (int32_t)path[i]));
        stk_text_add(&text, " -> ");
        r->seen[path[i]].in_cycle = true;
    }
    stk_text_add(&text, id_of(r, (int32_t)path[0]));
    if (text.failed)
        stk_issues_fail(r->issues);
    else if (length == 1)
        error(r, "E401", r->desc->connections[closing].pointer,
              "remove this connection", "%s is connected to itself: %s",
              id_of(r, (int32_t)path[0]), text.data);
    else
        error(r, "E401", r->desc->connections[closing].pointer,
              "remove one of the connections of the cycle",
              "the connections form a cycle: %s", text.data);
    stk_text_finish(&text);
}

// Walk in depth; a connection to a module that the walk is inside of closes a
// cycle. Each module is told in one cycle only.
static void find_cycles(struct resolver *r, const struct successors *s)
{
    const uint32_t n = r->desc->module_count;
    enum { WHITE, GREY, BLACK };
    uint8_t *colour = stk_arena_alloc(&r->scratch, n + 1);
    uint32_t *path = stk_arena_alloc(&r->scratch, (n + 1) * sizeof(*path));
    uint32_t *next = stk_arena_alloc(&r->scratch, (n + 1) * sizeof(*next));
    uint32_t *depth_of =
        stk_arena_alloc(&r->scratch, (n + 1) * sizeof(*depth_of));
    if (!colour || !path || !next || !depth_of) {
        stk_issues_fail(r->issues);
        return;
    }
    for (uint32_t start = 0; start < n; start++) {
        if (colour[start] != WHITE)
            continue;
        uint32_t depth = 1;
        path[0] = start;
        colour[start] = GREY;
        depth_of[start] = 0;
        next[start] = s->first[start];
        while (depth) {
            const uint32_t at = path[depth - 1];
            if (next[at] == s->first[at + 1]) {
                colour[at] = BLACK;
                depth--;
                continue;
            }
            const uint32_t link = s->link[next[at]++];
            const uint32_t to = (uint32_t)r->links[link].to;
            if (colour[to] == WHITE) {
                colour[to] = GREY;
                depth_of[to] = depth;
                next[to] = s->first[to];
                path[depth++] = to;
            } else if (colour[to] == GREY) {
                bool told = false;
                for (uint32_t i = depth_of[to]; i < depth && !told; i++)
                    told = r->seen[path[i]].in_cycle;
                if (!told)
                    tell_cycle(r, path + depth_of[to], depth - depth_of[to],
                               link);
            }
        }
    }
}

static bool is_source(const struct stk_node *node)
{
    return node->outputs && !node->inputs;
}

static bool has_fed_input(const struct resolver *r, uint32_t i)
{
    for (uint32_t pin = 0; pin < r->nodes[i].inputs; pin++) {
        if (r->seen[i].fed_by[pin] != NOBODY)
            return true;
    }
    return false;
}

static bool lacks_input(const struct resolver *r, uint32_t i)
{
    const struct stk_node *node = &r->nodes[i];
    for (uint32_t pin = 0; pin < node->inputs; pin++) {
        if (!(node->cls->inputs[pin].flags & PEN_PIN_OPTIONAL) &&
            r->seen[i].fed_by[pin] == NOBODY)
            return true;
    }
    return false;
}

// Modules to which no source leads, by inputs that are all optional. What
// errors explain already counts as reached.
static void find_unreached(struct resolver *r, const struct successors *s)
{
    const uint32_t n = r->desc->module_count;
    bool *reached = stk_arena_alloc(&r->scratch, n + 1);
    uint32_t *queue = stk_arena_alloc(&r->scratch, (n + 1) * sizeof(*queue));
    if (!reached || !queue) {
        stk_issues_fail(r->issues);
        return;
    }
    uint32_t head = 0, tail = 0;
    for (uint32_t i = 0; i < n; i++) {
        const struct stk_node *node = &r->nodes[i];
        reached[i] = !node->cls || is_source(node) || r->seen[i].blamed ||
                     r->seen[i].in_cycle || lacks_input(r, i);
        if (reached[i])
            queue[tail++] = i;
    }
    while (head < tail) {
        const uint32_t at = queue[head++];
        for (uint32_t k = s->first[at]; k < s->first[at + 1]; k++) {
            const uint32_t to = (uint32_t)r->links[s->link[k]].to;
            if (!reached[to]) {
                reached[to] = true;
                queue[tail++] = to;
            }
        }
    }
    for (uint32_t i = 0; i < n; i++) {
        if (!reached[i] && r->seen[i].mentioned)
            warning(r, "W401", r->nodes[i].desc->pointer, "",
                    "no source leads to %s: it never receives a frame",
                    r->nodes[i].desc->id);
    }
}

static void check_node_links(struct resolver *r, uint32_t i)
{
    const struct stk_node *node = &r->nodes[i];
    const struct seen *seen = &r->seen[i];
    const char *id = node->desc->id;
    if (!seen->mentioned && (!node->cls || node->inputs || node->outputs))
        warning(r, "W400", node->desc->pointer, "", "%s has no connection", id);
    if (!node->cls || seen->blamed)
        return;
    for (uint32_t pin = 0; pin < node->inputs; pin++) {
        const struct pen_pin *p = &node->cls->inputs[pin];
        if ((p->flags & PEN_PIN_OPTIONAL) || seen->fed_by[pin] != NOBODY)
            continue;
        error(r, "E307", node->desc->pointer,
              note(r, "{ \"from\": \"...\", \"to\": \"%s.%s\" }", id, p->name),
              "the input %s.%s needs a connection", id, p->name);
    }
    bool used = false;
    for (uint32_t pin = 0; pin < node->outputs; pin++)
        used |= seen->used[pin];
    if (node->outputs && !used && (has_fed_input(r, i) || !node->inputs) &&
        seen->mentioned)
        warning(r, "W402", node->desc->pointer, "",
                "the output of %s goes nowhere", id);
}

static void check_whole(struct resolver *r)
{
    const uint32_t n = r->desc->module_count;
    bool source = r->unknown_type;
    for (uint32_t i = 0; i < n; i++) {
        check_node_links(r, i);
        source |= r->nodes[i].cls && is_source(&r->nodes[i]);
    }
    if (!source)
        error(r, "E400", "/modules", "",
              "there is no source: no module makes frames");
    struct successors s = { 0 };
    if (!make_successors(r, &s)) {
        stk_issues_fail(r->issues);
        return;
    }
    find_cycles(r, &s);
    if (source)
        find_unreached(r, &s);
}

// --- the result -------------------------------------------------------------

static void heap_push(uint32_t *heap, uint32_t *count, uint32_t value)
{
    uint32_t at = (*count)++;
    for (; at && heap[(at - 1) / 2] > value; at = (at - 1) / 2)
        heap[at] = heap[(at - 1) / 2];
    heap[at] = value;
}

static uint32_t heap_pop(uint32_t *heap, uint32_t *count)
{
    const uint32_t top = heap[0], last = heap[--*count];
    uint32_t at = 0;
    for (;;) {
        uint32_t child = 2 * at + 1;
        if (child >= *count)
            break;
        if (child + 1 < *count && heap[child + 1] < heap[child])
            child++;
        if (heap[child] >= last)
            break;
        heap[at] = heap[child];
        at = child;
    }
    heap[at] = last;
    return top;
}

// Topological order in which, of what is possible, what comes first in the
// file comes first. rank[module] is its place.
static bool sort_nodes(struct resolver *r, uint32_t *rank)
{
    const uint32_t n = r->desc->module_count;
    struct successors s = { 0 };
    uint32_t *waits = stk_arena_alloc(&r->scratch, (n + 1) * sizeof(*waits));
    uint32_t *heap = stk_arena_alloc(&r->scratch, (n + 1) * sizeof(*heap));
    if (!waits || !heap || !make_successors(r, &s))
        return false;
    for (uint32_t i = 0; i < r->desc->connection_count; i++)
        waits[r->links[i].to]++;
    uint32_t waiting = 0, done = 0;
    for (uint32_t i = 0; i < n; i++) {
        if (!waits[i])
            heap_push(heap, &waiting, i);
    }
    while (waiting) {
        const uint32_t at = heap_pop(heap, &waiting);
        rank[at] = done++;
        for (uint32_t k = s.first[at]; k < s.first[at + 1]; k++) {
            const uint32_t to = (uint32_t)r->links[s.link[k]].to;
            if (--waits[to] == 0)
                heap_push(heap, &waiting, to);
        }
    }
    return true;
}

static struct stk_graph *make_graph(struct resolver *r)
{
    const uint32_t n = r->desc->module_count, m = r->desc->connection_count;
    struct stk_graph *graph = stk_arena_alloc(r->arena, sizeof(*graph));
    uint32_t *rank = stk_arena_alloc(&r->scratch, (n + 1) * sizeof(*rank));
    if (!graph || !rank || !sort_nodes(r, rank))
        return NULL;
    graph->nodes = stk_arena_alloc(r->arena, (n + 1) * sizeof(*graph->nodes));
    graph->edges = stk_arena_alloc(r->arena, (m + 1) * sizeof(*graph->edges));
    if (!graph->nodes || !graph->edges)
        return NULL;
    graph->node_count = n;
    graph->edge_count = m;
    for (uint32_t i = 0; i < n; i++)
        graph->nodes[rank[i]] = r->nodes[i];
    for (uint32_t i = 0; i < m; i++)
        graph->edges[i] = (struct stk_edge){
            .desc = &r->desc->connections[i],
            .from = rank[r->links[i].from],
            .from_pin = (uint32_t)r->links[i].from_pin,
            .to = rank[r->links[i].to],
            .to_pin = (uint32_t)r->links[i].to_pin,
        };
    return graph;
}

static bool allocate(struct resolver *r)
{
    const uint32_t n = r->desc->module_count, m = r->desc->connection_count;
    r->nodes = stk_arena_alloc(&r->scratch, (n + 1) * sizeof(*r->nodes));
    r->seen = stk_arena_alloc(&r->scratch, (n + 1) * sizeof(*r->seen));
    r->links = stk_arena_alloc(&r->scratch, (m + 1) * sizeof(*r->links));
    r->sorted = stk_arena_alloc(&r->scratch, (n + 1) * sizeof(*r->sorted));
    return r->nodes && r->seen && r->links && r->sorted;
}

static void check_all(struct resolver *r)
{
    const uint32_t n = r->desc->module_count;
    if (!allocate(r)) {
        stk_issues_fail(r->issues);
        return;
    }
    for (uint32_t i = 0; i < n; i++) {
        r->sorted[i] = i;
        resolve_module(r, i);
    }
    qsort_r(r->sorted, n, sizeof(*r->sorted), compare_id, (void *)r->desc);
    for (uint32_t i = 0; i < r->desc->connection_count; i++)
        resolve_ends(r, i);
    resolve_pins(r);
    for (uint32_t i = 0; i < r->desc->connection_count; i++) {
        const struct link *link = &r->links[i];
        if (!link->failed && link->from_pin != NOBODY && link->to_pin != NOBODY)
            check_kinds(r, i);
    }
    if (n && !r->desc->incomplete)
        check_whole(r);
    else if (!n && !r->desc->incomplete)
        error(r, "E402", "/modules",
              "\"modules\": { \"id\": { \"type\": \"...\" } }",
              "there are no modules");
}

enum pen_status stk_graph_resolve(const struct pen_description *desc,
                                  const struct pen_registry *registry,
                                  struct stk_arena *arena,
                                  struct stk_graph **out,
                                  struct pen_issues *issues,
                                  struct pen_error *err)
{
    *out = NULL;
    const size_t before = pen_issues_count(issues, PEN_SEVERITY_ERROR);
    struct resolver r = {
        .desc = desc,
        .registry = registry,
        .arena = arena,
        .issues = issues,
        .patience = 4 << 20,
    };
    stk_issues_append(issues, desc->issues);
    check_all(&r);
    enum pen_status status = stk_issues_status(issues, before, err);
    if (status == PEN_OK) {
        *out = make_graph(&r);
        if (!*out)
            status = pen_error_set(err, PEN_E_NOMEM, 0, desc->file,
                                   "out of memory for the graph");
    }
    stk_arena_finish(&r.scratch);
    return status;
}

enum pen_status pen_validate(const struct pen_description *desc,
                             const struct pen_registry *registry,
                             struct pen_issues *issues, struct pen_error *err)
{
    struct stk_arena arena = { 0 };
    struct stk_graph *graph = NULL;
    const enum pen_status status =
        stk_graph_resolve(desc, registry, &arena, &graph, issues, err);
    stk_arena_finish(&arena);
    return status;
}
