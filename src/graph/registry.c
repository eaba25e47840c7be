// The module classes that a file may name, and the checks that a class table
// passes before it becomes one of them.

#include <math.h>
#include <stdalign.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "graph.h"

struct entry {
    const char *name;
    const struct pen_module_class *cls;
    const struct pen_alias *alias;  // NULL: the class's own name
};

struct pen_registry {
    const struct pen_module_class **classes;  // alphabetical
    size_t count;
    struct entry *entries;  // all names, alphabetical
    size_t entry_count;
    uint32_t generic;  // types that have a class, by their number, as bits
};

enum pen_status stk_registry_new(struct pen_registry **out,
                                 struct pen_error *err)
{
    *out = calloc(1, sizeof(**out));
    if (!*out)
        return pen_error_set(err, PEN_E_NOMEM, 0, "registry",
                             "out of memory for the registry");
    return PEN_OK;
}

void pen_registry_destroy(struct pen_registry **registry)
{
    if (!*registry)
        return;
    free((*registry)->classes);
    free((*registry)->entries);
    free(*registry);
    *registry = NULL;
}

const struct pen_module_class *stk_registry_at(const struct pen_registry *r,
                                               size_t i)
{
    return i < r->count ? r->classes[i] : NULL;
}

// --- checks of a class table ------------------------------------------------

// The class under examination; every check ends in PEN_OK or in this error.
struct exam {
    const struct pen_module_class *cls;
    struct pen_error *err;
};

PEN_PRINTF(2, 3)
static enum pen_status refuse(const struct exam *x, const char *format, ...)
{
    char text[400];
    va_list args;
    va_start(args, format);
    vsnprintf(text, sizeof(text), format, args);
    va_end(args);
    return pen_error_set(x->err, PEN_E_ARG, 0, x->cls->name, "class %s: %s",
                         x->cls->name, text);
}

// Names can be written in files and in "id.pin" without quoting anything.
static bool is_name(const char *s)
{
    if (!s || !*s || (*s >= '0' && *s <= '9'))
        return false;
    for (; *s; s++) {
        if (!((*s >= 'a' && *s <= 'z') || (*s >= 'A' && *s <= 'Z') ||
              (*s >= '0' && *s <= '9') || *s == '_'))
            return false;
    }
    return true;
}

static bool has_flags_only(unsigned flags, unsigned known)
{
    return !(flags & ~known);
}

static uint32_t known_formats(void)
{
    uint32_t known = 0;
    for (int f = PEN_FMT_NONE + 1; f < PEN_FMT_COUNT; f++) {
        if (pen_format_info((enum pen_format)f))
            known |= PEN_FMT_BIT(f);
    }
    return known;
}

static size_t count_pins(const struct pen_pin *pins)
{
    size_t n = 0;
    while (pins && pins[n].name && n <= PEN_MAX_PINS)
        n++;
    return n;
}

static enum pen_status check_pins(const struct exam *x,
                                  const struct pen_pin *pins, const char *what,
                                  bool inputs)
{
    const uint32_t all_kinds =
        (PEN_KIND_BIT(PEN_KIND_COUNT) - 1) & ~PEN_KIND_BIT(PEN_KIND_NONE);
    const uint32_t all_mem =
        (PEN_MEM_BIT(PEN_MEM_COUNT) - 1) & ~PEN_MEM_BIT(PEN_MEM_NONE);
    const size_t count = count_pins(pins);
    if (count > PEN_MAX_PINS)
        return refuse(x, "more than %d %ss", PEN_MAX_PINS, what);
    for (size_t i = 0; i < count; i++) {
        const struct pen_pin *pin = &pins[i];
        if (!is_name(pin->name))
            return refuse(x,
                          "\"%s\" is no name for an %s: letters, digits "
                          "and _",
                          pin->name, what);
        for (size_t k = 0; k < i; k++) {
            if (strcmp(pins[k].name, pin->name) == 0)
                return refuse(x, "two %ss are named %s", what, pin->name);
        }
        if (!pin->kinds || !has_flags_only(pin->kinds, all_kinds))
            return refuse(x, "%s %s: kinds 0x%x is no set of frame kinds", what,
                          pin->name, pin->kinds);
        if (!pin->mem || !has_flags_only(pin->mem, all_mem))
            return refuse(x, "%s %s: mem 0x%x is no set of memory types", what,
                          pin->name, pin->mem);
        if (!has_flags_only(pin->formats, known_formats()))
            return refuse(x, "%s %s: formats 0x%x has unknown formats", what,
                          pin->name, pin->formats & ~known_formats());
        if ((pin->kinds & PEN_KIND_BIT(PEN_KIND_RAW_IMAGE)) && !pin->formats)
            return refuse(x, "%s %s: raw pictures without formats", what,
                          pin->name);
        if (!has_flags_only(pin->flags, inputs ? PEN_PIN_OPTIONAL : 0))
            return refuse(x, "%s %s: flags 0x%x do not exist for it", what,
                          pin->name, pin->flags);
    }
    return PEN_OK;
}

static enum pen_status check_category(const struct exam *x)
{
    const struct pen_module_class *cls = x->cls;
    const size_t in = count_pins(cls->inputs), out = count_pins(cls->outputs);
    if (!*pen_category_name(cls->category) ||
        cls->category == PEN_CATEGORY_NONE)
        return refuse(x, "category %d does not exist", (int)cls->category);
    if (cls->category == PEN_CATEGORY_SOURCE && (in || !out))
        return refuse(x, "a source has outputs and no inputs");
    if (cls->category == PEN_CATEGORY_SINK && (!in || out))
        return refuse(x, "a sink has inputs and no outputs");
    if (cls->category == PEN_CATEGORY_TRANSFORM && (!in || !out))
        return refuse(x, "a transform has inputs and outputs");
    if (!has_flags_only(cls->flags, PEN_CLASS_CUDA | PEN_CLASS_BLOCKS |
                                        PEN_CLASS_FORWARDS | PEN_CLASS_BRIDGE))
        return refuse(x, "flags 0x%x are not all known", cls->flags);
    if ((cls->flags & PEN_CLASS_FORWARDS) && (!in || !out))
        return refuse(x, "it forwards but lacks inputs or outputs");
    if ((cls->flags & PEN_CLASS_BRIDGE) && (in != 1 || out != 1))
        return refuse(x, "a bridge has one input and one output");
    return PEN_OK;
}

static enum pen_status check_tags(const struct exam *x)
{
    const char *const *tags = x->cls->tags;
    for (size_t i = 0; tags && tags[i]; i++) {
        if (!*tags[i] || tags[i][strcspn(tags[i], " \t\n\",")])
            return refuse(x,
                          "the tag \"%s\" is empty or has blanks, quotes "
                          "or commas",
                          tags[i]);
        for (size_t k = 0; k < i; k++) {
            if (strcmp(tags[i], tags[k]) == 0)
                return refuse(x, "the tag %s is there twice", tags[i]);
        }
    }
    return PEN_OK;
}

static enum pen_status check_kernels(const struct exam *x)
{
    const struct pen_kernel_image *const *list = x->cls->kernels;
    if (list && *list && !(x->cls->flags & PEN_CLASS_CUDA))
        return refuse(x, "it names kernels but not PEN_CLASS_CUDA");
    for (; list && *list; list++) {
        const struct pen_kernel_image *image = *list;
        if (image->magic != PEN_KERNEL_MAGIC || image->abi != PEN_KERNEL_ABI)
            return refuse(x, "a kernel image is of another ABI");
        if (!image->count || image->count > PEN_MAX_KERNELS || !image->entries)
            return refuse(x, "kernel image %s: %u kernels, allowed are 1..%d",
                          image->name ? image->name : "?", image->count,
                          PEN_MAX_KERNELS);
    }
    return PEN_OK;
}

// --- properties of a class --------------------------------------------------

static bool field_of(const struct pen_prop *row, size_t *size, size_t *align)
{
    switch (row->kind) {
    case PEN_PROP_BOOL:
        *size = sizeof(bool);
        *align = alignof(bool);
        return true;
    case PEN_PROP_I32:
    case PEN_PROP_ENUM:
        *size = sizeof(int32_t);
        *align = alignof(int32_t);
        return true;
    case PEN_PROP_F64:
        *size = sizeof(double);
        *align = alignof(double);
        return true;
    case PEN_PROP_STRING:
        *size = sizeof(const char *);
        *align = alignof(const char *);
        return true;
    case PEN_PROP_RATIONAL:
        *size = sizeof(struct pen_rational);
        *align = alignof(struct pen_rational);
        return true;
    case PEN_PROP_END:
        break;
    }
    return false;
}

static enum pen_status check_choices(const struct exam *x,
                                     const struct pen_prop *row)
{
    if (row->kind != PEN_PROP_ENUM) {
        return row->choices
                   ? refuse(x, "property %s has choices but is no enum",
                            row->key)
                   : PEN_OK;
    }
    if (!row->choices || !row->choices->name)
        return refuse(x, "property %s has no choices", row->key);
    bool has_default = row->flags & PEN_PROP_REQUIRED;
    for (const struct pen_choice *c = row->choices; c->name; c++) {
        if (!*c->name)
            return refuse(x, "property %s has a choice without name", row->key);
        for (const struct pen_choice *b = row->choices; b < c; b++) {
            if (strcmp(b->name, c->name) == 0)
                return refuse(x, "property %s has two choices %s", row->key,
                              c->name);
            if (b->value == c->value)
                return refuse(x,
                              "property %s: choices %s and %s have the same "
                              "value",
                              row->key, b->name, c->name);
        }
        has_default |= c->value == row->def.i;
    }
    if (!has_default)
        return refuse(x, "property %s: default %d is not among its choices",
                      row->key, row->def.i);
    return PEN_OK;
}

static enum pen_status check_range(const struct exam *x,
                                   const struct pen_prop *row)
{
    if (isnan(row->min) || isnan(row->max) || row->min > row->max)
        return refuse(x, "property %s: min %.15g is above max %.15g", row->key,
                      row->min, row->max);
    if (row->flags & PEN_PROP_REQUIRED)
        return PEN_OK;
    const bool limited = row->min < row->max;
    double def = 0;
    switch (row->kind) {
    case PEN_PROP_I32:
        def = row->def.i;
        if ((row->flags & PEN_PROP_ODD) && row->def.i % 2 == 0)
            return refuse(x, "property %s: default %d is not odd", row->key,
                          row->def.i);
        break;
    case PEN_PROP_F64:
        def = row->def.f;
        if (!isfinite(def))
            return refuse(x, "property %s: the default is not finite",
                          row->key);
        break;
    case PEN_PROP_RATIONAL:
        if (row->def.r.num == 0 && row->def.r.den == 0)
            return PEN_OK;  // "not given" is outside any range
        if (row->def.r.num <= 0 || row->def.r.den <= 0)
            return refuse(x, "property %s: default %d/%d is no rate", row->key,
                          row->def.r.num, row->def.r.den);
        def = (double)row->def.r.num / row->def.r.den;
        break;
    case PEN_PROP_STRING:
        if (!row->def.s)
            return refuse(x, "property %s: the default is NULL", row->key);
        return PEN_OK;
    default:
        return PEN_OK;
    }
    if (limited && (def < row->min || def > row->max))
        return refuse(x, "property %s: default %.15g is outside %.15g..%.15g",
                      row->key, def, row->min, row->max);
    return PEN_OK;
}

static enum pen_status check_row(const struct exam *x, size_t i)
{
    const struct pen_prop *row = &x->cls->props[i];
    size_t size, align;
    if (!row->key || !is_name(row->key))
        return refuse(x, "property %zu: \"%s\" is no key", i,
                      row->key ? row->key : "");
    if (!field_of(row, &size, &align))
        return refuse(x, "property %s: kind %d does not exist", row->key,
                      (int)row->kind);
    if (!row->help || !*row->help)
        return refuse(x, "property %s has no help", row->key);
    if (row->offset % align || row->offset > x->cls->params_size ||
        size > x->cls->params_size - row->offset)
        return refuse(x,
                      "property %s: offset %zu does not lie in params of %zu "
                      "bytes",
                      row->key, row->offset, x->cls->params_size);
    for (size_t k = 0; k < i; k++) {
        const struct pen_prop *other = &x->cls->props[k];
        size_t other_size, other_align;
        if (strcmp(row->key, other->key) == 0)
            return refuse(x, "property %s is there twice", row->key);
        if (field_of(other, &other_size, &other_align) &&
            row->offset < other->offset + other_size &&
            other->offset < row->offset + size)
            return refuse(x, "properties %s and %s share a field", other->key,
                          row->key);
    }
    for (const struct pen_prop *b = stk_base_props(); b->kind; b++) {
        if (strcmp(b->key, row->key) == 0)
            return refuse(x, "property %s belongs to every module already",
                          row->key);
    }
    const unsigned paths = PEN_PROP_PATH_READ | PEN_PROP_PATH_WRITE;
    if (!has_flags_only(row->flags, PEN_PROP_REQUIRED | PEN_PROP_LIVE |
                                        PEN_PROP_ODD | paths))
        return refuse(x, "property %s: flags 0x%x are not all known", row->key,
                      row->flags);
    if ((row->flags & paths) && row->kind != PEN_PROP_STRING)
        return refuse(x, "property %s is a path but no string", row->key);
    if ((row->flags & PEN_PROP_ODD) && row->kind != PEN_PROP_I32)
        return refuse(x, "property %s is odd but no integer", row->key);
    PEN_TRY(check_choices(x, row));
    return check_range(x, row);
}

static enum pen_status check_aliases(const struct exam *x)
{
    const struct pen_alias *aliases = x->cls->aliases;
    for (const struct pen_alias *a = aliases; a && a->name; a++) {
        if (!is_name(a->name))
            return refuse(x, "\"%s\" is no name for an alias", a->name);
        for (const struct pen_alias *b = aliases; b < a; b++) {
            if (strcmp(a->name, b->name) == 0)
                return refuse(x, "the alias %s is there twice", a->name);
        }
        if (!a->key && !a->value)
            continue;
        if (!a->key || !a->value)
            return refuse(x,
                          "alias %s presets a key without value, or the "
                          "reverse",
                          a->name);

        struct stk_arena arena = { 0 };
        struct pen_error why = { 0 };
        void *params = stk_arena_alloc(&arena, x->cls->params_size + 1);
        const enum pen_status status =
            params ? stk_prop_set_text(x->cls->props, params, a->key, a->value,
                                       &arena, &why)
                   : PEN_E_NOMEM;
        stk_arena_finish(&arena);
        if (status == PEN_E_NOMEM)
            return pen_error_set(x->err, PEN_E_NOMEM, 0, x->cls->name,
                                 "out of memory");
        if (status != PEN_OK)
            return refuse(x, "alias %s: %s", a->name, why.text);
    }
    return PEN_OK;
}

static enum pen_status check_class(const struct exam *x)
{
    const struct pen_module_class *cls = x->cls;
    if (!cls->version || !*cls->version || !cls->summary || !*cls->summary)
        return refuse(x, "version or summary is missing");
    PEN_TRY(check_pins(x, cls->inputs, "input", true));
    PEN_TRY(check_pins(x, cls->outputs, "output", false));
    PEN_TRY(check_category(x));
    PEN_TRY(check_tags(x));
    PEN_TRY(check_kernels(x));
    for (size_t i = 0; cls->props && cls->props[i].kind != PEN_PROP_END; i++)
        PEN_TRY(check_row(x, i));
    return check_aliases(x);
}

// --- generic types ----------------------------------------------------------

bool stk_class_has_tag(const struct pen_module_class *cls, const char *tag)
{
    for (const char *const *t = cls->tags; t && *t; t++) {
        if (strcmp(*t, tag) == 0)
            return true;
    }
    return false;
}

// A class that also only copies does nothing for whoever asks for a function.
static bool stands_for(const struct pen_generic_type *type,
                       const struct pen_module_class *cls)
{
    for (const char *const *t = type->tags; *t; t++) {
        if (!stk_class_has_tag(cls, *t))
            return false;
    }
    return !stk_class_has_tag(cls, "function:copy");
}

static bool same_pins(const struct pen_pin *a, const struct pen_pin *b)
{
    const size_t count = count_pins(a);
    if (count_pins(b) != count)
        return false;
    for (size_t i = 0; i < count; i++) {
        if (strcmp(a[i].name, b[i].name) != 0 || a[i].flags != b[i].flags)
            return false;
    }
    return true;
}

size_t pen_registry_generic_classes(const struct pen_registry *registry,
                                    const struct pen_generic_type *type,
                                    const struct pen_module_class **out,
                                    size_t room)
{
    const struct pen_module_class *first = NULL;
    size_t found = 0;
    for (size_t i = 0; i < registry->count; i++) {
        const struct pen_module_class *cls = registry->classes[i];
        if (!stands_for(type, cls))
            continue;
        first = first ? first : cls;
        if (!same_pins(first->inputs, cls->inputs) ||
            !same_pins(first->outputs, cls->outputs))
            continue;
        if (found < room)
            out[found] = cls;
        found++;
    }
    return found;
}

const struct pen_generic_type *
stk_registry_generic_of(const struct pen_registry *r,
                        const struct pen_module_class *cls)
{
    const struct pen_generic_type *type = pen_generic_types();
    const struct pen_module_class *list[STK_MAX_OPTIONS];
    for (; type->name; type++) {
        size_t count =
            pen_registry_generic_classes(r, type, list, STK_MAX_OPTIONS);
        while (count) {
            if (--count < STK_MAX_OPTIONS && list[count] == cls)
                return type;
        }
    }
    return NULL;
}

// --- adding and finding -----------------------------------------------------

static int compare_entry(const void *key, const void *entry)
{
    return strcmp(key, ((const struct entry *)entry)->name);
}

static const struct entry *find_entry(const struct pen_registry *r,
                                      const char *name)
{
    if (!r->entry_count)
        return NULL;
    return bsearch(name, r->entries, r->entry_count, sizeof(*r->entries),
                   compare_entry);
}

static void add_entry(struct pen_registry *r, const char *name,
                      const struct pen_module_class *cls,
                      const struct pen_alias *alias)
{
    size_t at = r->entry_count++;
    for (; at && strcmp(r->entries[at - 1].name, name) > 0; at--)
        r->entries[at] = r->entries[at - 1];
    r->entries[at] = (struct entry){ name, cls, alias };
}

static enum pen_status
check_free(const struct exam *x, const struct pen_registry *r, const char *name)
{
    const struct entry *taken = find_entry(r, name);
    const struct pen_generic_type *type = pen_generic_type_find(name);
    if (type)
        return refuse(x,
                      "the name %s is taken: it stands for all classes with "
                      "the tag %s",
                      name, type->tags[0]);
    if (!taken)
        return PEN_OK;
    if (taken->alias)
        return refuse(x, "the name %s is taken: it is an alias of %s", name,
                      taken->cls->name);
    return refuse(x, "the name %s is taken", name);
}

enum pen_status pen_registry_add(struct pen_registry *registry,
                                 const struct pen_module_class *cls,
                                 struct pen_error *err)
{
    // abi and size come first: nothing else of another ABI can be read.
    if (cls->abi != PEN_MODULE_ABI)
        return pen_error_set(err, PEN_E_ARG, 0, "registry",
                             "the class has ABI %u, this library has %d",
                             cls->abi, PEN_MODULE_ABI);
    if (cls->size != sizeof(*cls))
        return pen_error_set(err, PEN_E_ARG, 0, "registry",
                             "the class table has %u bytes, this library's "
                             "has %zu",
                             cls->size, sizeof(*cls));
    if (!is_name(cls->name))
        return pen_error_set(err, PEN_E_ARG, 0, "registry",
                             "\"%s\" is no name for a class: letters, digits "
                             "and _",
                             cls->name ? cls->name : "");
    const struct exam exam = { cls, err };
    PEN_TRY(check_class(&exam));
    PEN_TRY(check_free(&exam, registry, cls->name));
    size_t names = 1;
    for (const struct pen_alias *a = cls->aliases; a && a->name; a++) {
        PEN_TRY(check_free(&exam, registry, a->name));
        if (strcmp(a->name, cls->name) == 0)
            return refuse(&exam, "it is an alias of itself");
        names++;
    }

    struct entry *entries = realloc(
        registry->entries, (registry->entry_count + names) * sizeof(*entries));
    if (entries)
        registry->entries = entries;
    const struct pen_module_class **classes =
        realloc(registry->classes, (registry->count + 1) * sizeof(*classes));
    if (classes)
        registry->classes = classes;
    if (!entries || !classes)
        return pen_error_set(err, PEN_E_NOMEM, 0, cls->name,
                             "out of memory for the registry");

    add_entry(registry, cls->name, cls, NULL);
    for (const struct pen_alias *a = cls->aliases; a && a->name; a++)
        add_entry(registry, a->name, cls, a);
    size_t at = registry->count++;
    for (; at && strcmp(classes[at - 1]->name, cls->name) > 0; at--)
        classes[at] = classes[at - 1];
    classes[at] = cls;
    for (size_t i = 0; pen_generic_types()[i].name; i++) {
        if (stands_for(&pen_generic_types()[i], cls))
            registry->generic |= 1u << i;
    }
    return PEN_OK;
}

const struct pen_module_class *
pen_registry_find(const struct pen_registry *registry, const char *name,
                  const struct pen_alias **alias)
{
    const struct entry *entry = find_entry(registry, name);
    if (alias)
        *alias = entry ? entry->alias : NULL;
    return entry ? entry->cls : NULL;
}

// Generic types without a class are no name to suggest.
static const char *next_name(const void *cookie, size_t i)
{
    const struct pen_registry *r = cookie;
    if (i < r->entry_count)
        return r->entries[i].name;
    i -= r->entry_count;
    const struct pen_generic_type *types = pen_generic_types();
    for (size_t k = 0; types[k].name; k++) {
        if ((r->generic & 1u << k) && i-- == 0)
            return types[k].name;
    }
    return NULL;
}

const char *pen_registry_nearest(const struct pen_registry *registry,
                                 const char *name)
{
    return stk_nearest(name, next_name, registry);
}

size_t pen_registry_modules(const struct pen_registry *registry,
                            enum pen_category category, const char *const *tags,
                            const struct pen_module_class **out, size_t room)
{
    size_t found = 0;
    for (size_t i = 0; i < registry->count; i++) {
        const struct pen_module_class *cls = registry->classes[i];
        bool fits = category == PEN_CATEGORY_NONE || cls->category == category;
        for (const char *const *t = tags; fits && t && *t; t++)
            fits = stk_class_has_tag(cls, *t);
        if (!fits)
            continue;
        if (found < room)
            out[found] = cls;
        found++;
    }
    return found;
}

size_t pen_registry_modules_with_tag(const struct pen_registry *registry,
                                     const char *tag,
                                     const struct pen_module_class **out,
                                     size_t room)
{
    const char *const tags[] = { tag, NULL };
    return pen_registry_modules(registry, PEN_CATEGORY_NONE, tags, out, room);
}

size_t pen_registry_modules_with_tags(const struct pen_registry *registry,
                                      const char *const *tags,
                                      const struct pen_module_class **out,
                                      size_t room)
{
    return pen_registry_modules(registry, PEN_CATEGORY_NONE, tags, out, room);
}

// --- categories -------------------------------------------------------------

// clang-format off
static const char *const categories[] = {
    [PEN_CATEGORY_NONE]       = "",
    [PEN_CATEGORY_SOURCE]     = "source",
    [PEN_CATEGORY_TRANSFORM]  = "transform",
    [PEN_CATEGORY_SINK]       = "sink",
    [PEN_CATEGORY_ANALYTICS]  = "analytics",
    [PEN_CATEGORY_CONTROLLER] = "controller",
    [PEN_CATEGORY_UTILITY]    = "utility",
};
// clang-format on
enum { CATEGORY_COUNT = sizeof(categories) / sizeof(categories[0]) };

const char *pen_category_name(enum pen_category category)
{
    return (unsigned)category < CATEGORY_COUNT ? categories[category] : "";
}

enum pen_category pen_category_from_name(const char *name)
{
    for (int i = PEN_CATEGORY_NONE + 1; i < CATEGORY_COUNT; i++) {
        if (strcmp(categories[i], name) == 0)
            return (enum pen_category)i;
    }
    return PEN_CATEGORY_NONE;
}

void pen_free(void *text)
{
    free(text);
}
