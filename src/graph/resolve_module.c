// A module: its type, its properties, the classes that it can be, and whether
// its files are there.

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <fnmatch.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "resolver.h"

// How the properties of a module are read, of each class that it may be.
struct reading {
    const struct stk_desc_module *desc;
    const struct pen_alias *preset;                 // NULL: none
    const struct pen_module_class *const *classes;  // NULL: a plain type
    size_t class_count;
};

// The place of a property; NULL: out of memory.
static const char *prop_pointer(struct stk_resolver *r,
                                const struct stk_desc_module *module,
                                const char *key)
{
    const char *props = stk_pointer_join(&r->scratch, module->pointer, "props");
    return props ? stk_pointer_join(&r->scratch, props, key) : NULL;
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
static const char *folder_of(struct stk_resolver *r, const char *path)
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

struct names {
    const char *name[1024];
    size_t count;
};

static const char *next_name(const void *cookie, size_t i)
{
    const struct names *names = cookie;
    return i < names->count ? names->name[i] : NULL;
}

// The file of that folder whose name is nearest, or NULL. With `digits` a name
// counts as the pattern that fits it and others with the same number of digits.
static const char *nearest_file(struct stk_resolver *r, const char *folder,
                                const char *name, bool digits)
{
    struct names *names = stk_arena_alloc(&r->scratch, sizeof(*names));
    DIR *dir = names ? opendir(folder) : NULL;
    if (!dir)
        return NULL;
    const size_t most = sizeof(names->name) / sizeof(names->name[0]);
    const struct dirent *entry;
    while (names->count < most && (entry = readdir(dir))) {
        char *copy = stk_arena_strdup(&r->scratch, entry->d_name);
        for (char *c = copy; digits && c && *c; c++)
            *c = *c >= '0' && *c <= '9' ? '?' : *c;
        if (copy && entry->d_name[0] != '.')
            names->name[names->count++] = copy;
    }
    closedir(dir);
    return stk_nearest(name, next_name, names);
}

// `"key": "folder/a????.jpg"` if that is what the files there are called.
static const char *nearest_pattern(struct stk_resolver *r, const char *key,
                                   const char *path, const char *folder,
                                   const char *pattern)
{
    const char *right =
        strchr(pattern, '*') ? NULL : nearest_file(r, folder, pattern, true);
    return right && strchr(right, '?')
               ? stk_resolver_note(r, "\"%s\": \"%.*s%s\"", key,
                                   (int)(pattern - path), path, right)
               : "";
}

static void check_pattern(struct stk_resolver *r, const char *pointer,
                          const char *key, const char *path)
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
        stk_resolver_warning(
            r, "W600", pointer, "",
            "no file fits %s: the folder %s cannot be read: %s", path, folder,
            strerror(errno));
        return;
    }
    const struct dirent *entry;
    do {
        entry = readdir(dir);
    } while (entry && (strcmp(entry->d_name, ".") == 0 ||
                       strcmp(entry->d_name, "..") == 0 ||
                       !fits_pattern(pattern, entry->d_name)));
    if (!entry)
        stk_resolver_warning(r, "W600", pointer,
                             nearest_pattern(r, key, path, folder, pattern),
                             "no file fits %s%s", path,
                             strchr(pattern, '*') ? "" : " ('?' is a digit)");
    closedir(dir);
}

static void missing_file(struct stk_resolver *r, const char *pointer,
                         const char *key, const char *path, int why)
{
    const char *folder = folder_of(r, path);
    const char *slash = strrchr(path, '/');
    const char *name = slash ? slash + 1 : path;
    const char *nearest = folder && *name && why == ENOENT
                              ? nearest_file(r, folder, name, false)
                              : NULL;
    const char *suggestion =
        nearest ? stk_resolver_note(r, "\"%s\": \"%.*s%s\"", key,
                                    slash ? (int)(slash + 1 - path) : 0, path,
                                    nearest)
                : "";
    stk_resolver_error(r, "E600", pointer, suggestion, "%s: %s", path,
                       strerror(why));
}

static void check_read(struct stk_resolver *r, const char *pointer,
                       const char *key, const char *path)
{
    struct stat st;
    if (path[strcspn(path, "?*")] && stat(path, &st) != 0) {
        check_pattern(r, pointer, key, path);
        return;
    }
    if (stat(path, &st) != 0)
        missing_file(r, pointer, key, path, errno);
    else if (S_ISDIR(st.st_mode))
        stk_resolver_error(
            r, "E601", pointer,
            stk_resolver_note(r, "\"%s\": \"%s%s*\"", key, path,
                              path[strlen(path) - 1] == '/' ? "" : "/"),
            "%s is a folder, not a file", path);
    else if (faccessat(AT_FDCWD, path, R_OK, AT_EACCESS) != 0)
        stk_resolver_error(r, "E600", pointer, "", "%s cannot be read: %s",
                           path, strerror(errno));
}

static void check_write(struct stk_resolver *r, const char *pointer,
                        const char *path)
{
    struct stat st;
    const char *folder = folder_of(r, path);
    if (!folder || stat(folder, &st) != 0)
        return;
    if (!S_ISDIR(st.st_mode))
        stk_resolver_warning(r, "W602", pointer, "", "%s is no folder", folder);
    else if (faccessat(AT_FDCWD, folder, W_OK | X_OK, AT_EACCESS) != 0)
        stk_resolver_warning(r, "W602", pointer, "",
                             "the folder %s cannot be written: %s", folder,
                             strerror(errno));
}

// Only what the user wrote is looked at; defaults are the module's business.
static void check_paths(struct stk_resolver *r, const struct reading *what,
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
            stk_resolver_error(r, "E600", pointer, "", "%s is an empty path",
                               row->key);
        else if (row->flags & PEN_PROP_PATH_READ)
            check_read(r, pointer, row->key, path);
        else
            check_write(r, pointer, path);
    }
}

// --- modules and their properties -------------------------------------------

// The properties with the type's preset among them (new reference).
static json_t *preset_props(struct stk_resolver *r, const struct reading *what,
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

static void check_preset(struct stk_resolver *r, const struct reading *what,
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
        stk_resolver_error(
            r, "E206", pointer, suggestion,
            "the type %s means %s with %s %s, which %s contradicts",
            alias->name, option->cls->name, alias->key, alias->value, brief);
    }
    json_decref(value);
}

// A class works where it works; only a type that stands for several can be
// told where.
static void check_backend(struct stk_resolver *r, const struct reading *what,
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
        type ? stk_resolver_note(r, "\"type\": \"%s\"", type->name)
             : stk_resolver_note(r, "\"backend\": \"%s\"",
                                 stk_backend_name(has));
    if (pointer)
        stk_resolver_error(
            r, "E206", pointer, suggestion,
            "%s works on %s, which the backend \"%s\" contradicts",
            option->cls->name,
            has == STK_BACKEND_CPU ? "the CPU" : "the CUDA device",
            stk_backend_name(asked));
    else
        stk_issues_fail(r->issues);
}

// Whether the properties fit one by one.
static bool read_props(struct stk_resolver *r, const struct reading *what,
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
static void read_option(struct stk_resolver *r, const struct reading *what,
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

static void unknown_type(struct stk_resolver *r, const struct stk_node *node)
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
        stk_resolver_error(r, "E100", at, suggestion,
                           "there is no module type %.64s; did you mean %s?",
                           node->desc->type, nearest);
    } else {
        stk_resolver_error(r, "E100", at, suggestion,
                           "there is no module type %.64s", node->desc->type);
    }
}

// --- generic types ----------------------------------------------------------

static void no_class(struct stk_resolver *r, const struct stk_node *node,
                     const struct pen_generic_type *type)
{
    const char *at = stk_pointer_join(&r->scratch, node->desc->pointer, "type");
    if (at)
        stk_resolver_error(
            r, "E100", at, "",
            "%s stands for the modules with the tag %s%s%s, and there is "
            "none yet",
            type->name, type->tags[0], type->tags[1] ? " and " : "",
            type->tags[1] ? type->tags[1] : "");
    else
        stk_issues_fail(r->issues);
}

// "...; CCNPPI: WHY": one more class that is no option.
static const char *leave_out(struct stk_resolver *r, const char *before,
                             const struct pen_module_class *cls,
                             const char *why)
{
    const char *text = stk_arena_printf(r->arena, "%s%s%s: %s", before,
                                        *before ? "; " : "", cls->name, why);
    if (!text)
        stk_issues_fail(r->issues);
    return text ? text : "";
}

// Leave only the classes of the backend that is asked for. If there is none,
// that is told and all of them stay, so that the rest is checked too.
static size_t filter_backend(struct stk_resolver *r, struct stk_node *node,
                             const struct reading *what,
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
        const struct pen_module_class *cls = what->classes[i];
        if ((!cpu && !cuda) || stk_class_backend(cls) == backend) {
            list[count++] = cls;
            continue;
        }
        others = stk_resolver_note(r, "%s%s%s", others, *others ? ", " : "",
                                   cls->name);
        node->left_out =
            leave_out(r, node->left_out, cls,
                      cpu ? "the backend is cpu" : "the backend is cuda");
    }
    if (count)
        return count;
    node->left_out = "";
    const char *pointer = prop_pointer(r, what->desc, "backend");
    if (pointer)
        stk_resolver_error(
            r, "E206", pointer, "\"backend\": \"auto\"",
            "%s stands for no module with the backend %s; it can be %s",
            what->desc->type, asked, others);
    else
        stk_issues_fail(r->issues);
    memcpy(list, what->classes, what->class_count * sizeof(*list));
    return what->class_count;
}

// What is said of one class of a generic type.
static struct pen_issues *try_class(struct stk_resolver *r,
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

// The first error, which says why a class is no option.
static const char *reason_of(const struct pen_issues *told)
{
    const struct pen_issue *is = NULL;
    for (size_t i = 0; told && (is = pen_issues_get(told, i)); i++) {
        if (is->severity == PEN_SEVERITY_ERROR)
            break;
    }
    return is ? is->message : "";
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

static bool is_listed(const struct stk_option *options, size_t count,
                      const struct pen_module_class *cls)
{
    for (size_t i = 0; i < count; i++) {
        if (options[i].cls == cls)
            return true;
    }
    return false;
}

// The class of the other backend that takes the properties, where those of the
// one that is asked for lack some; NULL: there is none.
static const struct pen_module_class *
fits_elsewhere(struct stk_resolver *r, const struct reading *what,
               const struct stk_option *options, size_t count,
               const struct pen_issues *told)
{
    const struct pen_issue *is;
    bool lacks = false;
    for (size_t i = 0; told && (is = pen_issues_get(told, i)); i++)
        lacks = lacks || strcmp(is->code, "E200") == 0;
    for (size_t i = 0; lacks && i < what->class_count; i++) {
        const struct pen_module_class *cls = what->classes[i];
        struct stk_option option;
        if (is_listed(options, count, cls))
            continue;
        struct pen_issues *other = try_class(r, what, cls, &option);
        const bool fits = errors_in(other) == 0;
        pen_issues_destroy(&other);
        if (fits)
            return cls;
    }
    return NULL;
}

// Only the backend stands against the other properties.
static void wrong_backend(struct stk_resolver *r, const struct reading *what,
                          const struct pen_module_class *cls)
{
    const bool cpu = stk_class_backend(cls) == STK_BACKEND_CPU;
    const char *pointer = prop_pointer(r, what->desc, "backend");
    if (pointer)
        stk_resolver_error(
            r, "E206", pointer,
            cpu ? "\"backend\": \"cpu\"" : "\"backend\": \"cuda\"",
            "with these properties %s is %s, which works on %s; the backend "
            "\"%s\" contradicts that",
            what->desc->type, cls->name, cpu ? "the CPU" : "the CUDA device",
            cpu ? "cuda" : "cpu");
    else
        stk_issues_fail(r->issues);
}

// No class takes the properties: that is told of the one which comes nearest.
// Where each lacks what another has, one alone would not explain it.
static void no_option(struct stk_resolver *r, struct pen_issues *const *told,
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
static void choose_options(struct stk_resolver *r, struct stk_node *node,
                           const struct reading *what,
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
        const struct pen_module_class *other =
            fits_elsewhere(r, what, options, count, told[best]);
        if (other)
            wrong_backend(r, what, other);
        else
            no_option(r, told, count, best);
        take_options(node, &options[best], 1);
        return;
    }
    struct pen_issues *warnings = pen_issues_create();
    for (size_t i = 0; i < count; i++) {
        if (errors_in(told[i])) {
            node->left_out = leave_out(r, node->left_out, options[i].cls,
                                       reason_of(told[i]));
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

static void resolve_generic(struct stk_resolver *r, struct stk_node *node,
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
    count = filter_backend(r, node, &what, list);
    struct stk_option *options =
        stk_arena_alloc(r->arena, count * sizeof(*options));
    if (!options) {
        stk_issues_fail(r->issues);
        return;
    }
    for (size_t i = 0; i < count; i++)
        told[i] = try_class(r, &what, list[i], &options[i]);
    choose_options(r, node, &what, options, told, count);
    for (size_t i = 0; i < count; i++)
        pen_issues_destroy(&told[i]);
}

void stk_resolve_module(struct stk_resolver *r, uint32_t i)
{
    struct stk_node *node = &r->nodes[i];
    const struct pen_alias *alias;
    node->desc = &r->desc->modules[i];
    node->left_out = "";
    for (int pin = 0; pin < PEN_MAX_PINS; pin++)
        r->seen[i].fed_by[pin] = STK_NOBODY;
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
