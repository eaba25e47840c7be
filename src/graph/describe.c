// What the tables say, as text for people, as JSON for programs and as JSON
// Schema for editors.

#include <stdlib.h>
#include <string.h>

#include "graph.h"

static json_t *text_or_null(const char *s)
{
    return s ? json_string(s) : json_null();
}

// --- what rows are ----------------------------------------------------------

static const char *kind_name(enum pen_prop_kind kind)
{
    switch (kind) {
    case PEN_PROP_BOOL:
        return "bool";
    case PEN_PROP_I32:
        return "int";
    case PEN_PROP_F64:
        return "float";
    case PEN_PROP_STRING:
        return "string";
    case PEN_PROP_ENUM:
        return "enum";
    case PEN_PROP_RATIONAL:
        return "rational";
    case PEN_PROP_END:
        break;
    }
    return "?";
}

static bool is_limited(const struct pen_prop *row)
{
    return row->min < row->max;
}

// Which of the classes of a generic type have the row, by name; NULL for all.
struct rows {
    const struct pen_prop *row;
    const uint32_t *known_by;  // NULL: it is one class
    const struct pen_module_class *const *classes;
    size_t class_count;
};

static bool is_partial(const struct rows *rows, size_t i)
{
    return rows->known_by &&
           rows->known_by[i] != (uint32_t)((1ull << rows->class_count) - 1);
}

// A number of the row's own kind.
static json_t *number(const struct pen_prop *row, double value)
{
    return row->kind == PEN_PROP_I32 ? json_integer((json_int_t)value)
                                     : json_real(value);
}

// What a property is when the file does not give it; null if it must.
static json_t *default_of(const struct pen_prop *row)
{
    if (row->flags & PEN_PROP_REQUIRED)
        return json_null();
    // The union's members are what the fields of the params struct are.
    struct pen_prop at_zero = *row;
    at_zero.offset = 0;
    return stk_prop_get_json(&at_zero, &row->def);
}

static json_t *choice_names(const struct pen_prop *row)
{
    json_t *names = json_array();
    for (const struct pen_choice *c = row->choices; c && c->name; c++)
        names = stk_json_append(names, json_string(c->name));
    return names;
}

// --- describe as JSON -------------------------------------------------------

static json_t *kinds_json(uint32_t kinds)
{
    json_t *list = json_array();
    for (int k = PEN_KIND_NONE + 1; k < PEN_KIND_COUNT; k++) {
        if (kinds & PEN_KIND_BIT(k))
            list = stk_json_append(
                list, json_string(pen_kind_name((enum pen_kind)k)));
    }
    return list;
}

static json_t *mem_json(uint32_t mem)
{
    json_t *list = json_array();
    for (int m = PEN_MEM_NONE + 1; m < PEN_MEM_COUNT; m++) {
        if (mem & PEN_MEM_BIT(m))
            list = stk_json_append(
                list, json_string(pen_mem_name((enum pen_mem_type)m)));
    }
    return list;
}

static json_t *formats_json(uint32_t formats)
{
    json_t *list = json_array();
    for (int f = PEN_FMT_NONE + 1; f < PEN_FMT_COUNT; f++) {
        const struct pen_format_info *info =
            formats & PEN_FMT_BIT(f) ? pen_format_info((enum pen_format)f)
                                     : NULL;
        if (info)
            list = stk_json_append(list, json_string(info->name));
    }
    return list;
}

static json_t *pins_json(const struct pen_pin *pins)
{
    json_t *list = json_array();
    for (; pins && pins->name; pins++) {
        json_t *pin = json_object();
        pin = stk_json_with(pin, "name", json_string(pins->name));
        pin = stk_json_with(pin, "kinds", kinds_json(pins->kinds));
        pin = stk_json_with(pin, "mem", mem_json(pins->mem));
        pin = stk_json_with(pin, "formats", formats_json(pins->formats));
        pin = stk_json_with(pin, "required",
                            json_boolean(!(pins->flags & PEN_PIN_OPTIONAL)));
        pin = stk_json_with(pin, "help", text_or_null(pins->help));
        list = stk_json_append(list, pin);
    }
    return list;
}

static json_t *knowing_classes(const struct rows *rows, size_t i)
{
    json_t *names = json_array();
    for (size_t k = 0; k < rows->class_count; k++) {
        if (rows->known_by[i] & 1u << k)
            names = stk_json_append(names, json_string(rows->classes[k]->name));
    }
    return names;
}

static json_t *prop_json(const struct pen_prop *row)
{
    const bool limited = is_limited(row);
    json_t *prop = json_object();
    prop = stk_json_with(prop, "name", json_string(row->key));
    prop = stk_json_with(prop, "type", json_string(kind_name(row->kind)));
    prop = stk_json_with(prop, "default", default_of(row));
    prop = stk_json_with(prop, "min",
                         limited ? number(row, row->min) : json_null());
    prop = stk_json_with(prop, "max",
                         limited ? number(row, row->max) : json_null());
    prop = stk_json_with(prop, "enum",
                         row->kind == PEN_PROP_ENUM ? choice_names(row)
                                                    : json_null());
    prop = stk_json_with(prop, "required",
                         json_boolean(row->flags & PEN_PROP_REQUIRED));
    prop = stk_json_with(prop, "unit", text_or_null(row->unit));
    prop =
        stk_json_with(prop, "live", json_boolean(row->flags & PEN_PROP_LIVE));
    if (row->flags & PEN_PROP_ODD)
        prop = stk_json_with(prop, "odd", json_true());
    if (row->flags & (PEN_PROP_PATH_READ | PEN_PROP_PATH_WRITE))
        prop = stk_json_with(
            prop, "path",
            json_string(row->flags & PEN_PROP_PATH_READ ? "read" : "write"));
    return stk_json_with(prop, "help", json_string(row->help));
}

static json_t *props_json(json_t *list, const struct rows *rows)
{
    const struct pen_prop *row = rows->row;
    for (size_t i = 0; row && row[i].kind != PEN_PROP_END; i++) {
        json_t *prop = prop_json(&row[i]);
        if (is_partial(rows, i))
            prop = stk_json_with(prop, "classes", knowing_classes(rows, i));
        list = stk_json_append(list, prop);
    }
    return list;
}

static json_t *strings_json(const char *const *list)
{
    json_t *array = json_array();
    for (; list && *list; list++)
        array = stk_json_append(array, json_string(*list));
    return array;
}

static json_t *aliases_json(const struct pen_alias *a)
{
    json_t *list = json_array();
    for (; a && a->name; a++) {
        json_t *alias = json_object();
        alias = stk_json_with(alias, "name", json_string(a->name));
        alias = stk_json_with(alias, "property", text_or_null(a->key));
        alias = stk_json_with(alias, "value", text_or_null(a->value));
        list = stk_json_append(list, alias);
    }
    return list;
}

// What list and describe have in common.
static json_t *head_json(const struct pen_module_class *cls)
{
    json_t *o = json_object();
    o = stk_json_with(o, "name", json_string(cls->name));
    o = stk_json_with(o, "category",
                      json_string(pen_category_name(cls->category)));
    o = stk_json_with(o, "version", json_string(cls->version));
    o = stk_json_with(o, "description", json_string(cls->summary));
    o = stk_json_with(o, "tags", strings_json(cls->tags));
    return o;
}

// Every class of this version works wherever it is registered.
static json_t *availability(json_t *o)
{
    o = stk_json_with(o, "available", json_true());
    return stk_json_with(o, "reason", json_null());
}

char *pen_describe_json(const struct pen_module_class *cls)
{
    const struct rows own = { .row = cls->props };
    const struct rows base = { .row = stk_base_props() };
    json_t *o = head_json(cls);
    o = stk_json_with(o, "aliases", aliases_json(cls->aliases));
    o = stk_json_with(o, "inputs", pins_json(cls->inputs));
    o = stk_json_with(o, "outputs", pins_json(cls->outputs));
    o = stk_json_with(o, "properties",
                      props_json(props_json(json_array(), &own), &base));
    return stk_json_dump_new(availability(o));
}

// --- generic types ----------------------------------------------------------

// A generic type in a registry: its classes and what they have in all.
struct family {
    const struct pen_generic_type *type;
    const struct pen_module_class *list[STK_MAX_OPTIONS];
    size_t count;
    struct stk_arena arena;
    struct rows rows;
    const struct pen_pin *inputs, *outputs;
};

static void find_family(struct family *f, const struct pen_registry *registry,
                        const struct pen_generic_type *type)
{
    f->type = type;
    f->count =
        pen_registry_generic_classes(registry, type, f->list, STK_MAX_OPTIONS);
    if (f->count > STK_MAX_OPTIONS)
        f->count = STK_MAX_OPTIONS;
}

// False: out of memory. To be ended with stk_arena_finish() in any case.
static bool join_family(struct family *f)
{
    uint32_t *known_by = NULL;
    f->rows.row = stk_generic_props(f->list, f->count, &known_by, &f->arena);
    f->rows.known_by = known_by;
    f->rows.classes = f->list;
    f->rows.class_count = f->count;
    f->inputs = stk_generic_pins(f->list, f->count, true, &f->arena);
    f->outputs = stk_generic_pins(f->list, f->count, false, &f->arena);
    return f->rows.row && f->inputs && f->outputs;
}

static const char *family_category(const struct family *f)
{
    return f->count ? pen_category_name(f->list[0]->category) : "transform";
}

static json_t *options_json(const struct family *f)
{
    json_t *list = json_array();
    for (size_t i = 0; i < f->count; i++) {
        const struct pen_module_class *cls = f->list[i];
        json_t *o = json_object();
        o = stk_json_with(o, "name", json_string(cls->name));
        o = stk_json_with(
            o, "backend",
            json_string(stk_backend_name(stk_class_backend(cls))));
        o = stk_json_with(o, "description", json_string(cls->summary));
        list = stk_json_append(list, o);
    }
    return list;
}

// "no module has the tag function:rotate": why a type cannot be had.
static void add_reason(struct stk_text *t, const struct pen_generic_type *type)
{
    stk_text_addf(t, "no module has the tag %s%s%s yet", type->tags[0],
                  type->tags[1] ? " and " : "",
                  type->tags[1] ? type->tags[1] : "");
}

static json_t *reason_json(const struct family *f)
{
    if (f->count)
        return json_null();
    struct stk_text t = { 0 };
    add_reason(&t, f->type);
    char *text = stk_text_take(&t);
    json_t *reason = text ? json_string(text) : NULL;
    pen_free(text);
    return reason;
}

static json_t *family_json(const struct family *f)
{
    json_t *o = json_object();
    o = stk_json_with(o, "name", json_string(f->type->name));
    o = stk_json_with(o, "category", json_string(family_category(f)));
    o = stk_json_with(o, "version", json_null());
    o = stk_json_with(o, "description", json_string(f->type->summary));
    o = stk_json_with(o, "tags", strings_json(f->type->tags));
    o = stk_json_with(o, "available", json_boolean(f->count > 0));
    o = stk_json_with(o, "reason", reason_json(f));
    return stk_json_with(o, "options", options_json(f));
}

char *pen_describe_generic_json(const struct pen_registry *registry,
                                const struct pen_generic_type *type)
{
    struct family f = { 0 };
    const struct rows base = { .row = stk_base_props() };
    find_family(&f, registry, type);
    json_t *o = NULL;
    if (join_family(&f)) {
        o = family_json(&f);
        o = stk_json_with(o, "aliases", json_array());
        o = stk_json_with(o, "inputs", pins_json(f.inputs));
        o = stk_json_with(o, "outputs", pins_json(f.outputs));
        o = stk_json_with(o, "properties",
                          props_json(props_json(json_array(), &f.rows), &base));
    }
    stk_arena_finish(&f.arena);
    return stk_json_dump_new(o);
}

static bool type_has_tags(const struct pen_generic_type *type,
                          const char *const *tags)
{
    for (; tags && *tags; tags++) {
        const char *const *t = type->tags;
        while (*t && strcmp(*t, *tags) != 0)
            t++;
        if (!*t)
            return false;
    }
    return true;
}

static json_t *generic_json(const struct pen_registry *registry,
                            enum pen_category category, const char *const *tags)
{
    json_t *list = json_array();
    for (const struct pen_generic_type *t = pen_generic_types(); t->name; t++) {
        struct family f = { 0 };
        find_family(&f, registry, t);
        if (type_has_tags(t, tags) &&
            (category == PEN_CATEGORY_NONE ||
             category == pen_category_from_name(family_category(&f))))
            list = stk_json_append(list, family_json(&f));
    }
    return list;
}

static bool class_matches(const struct pen_module_class *cls,
                          enum pen_category category, const char *const *tags)
{
    for (; tags && *tags; tags++) {
        if (!stk_class_has_tag(cls, *tags))
            return false;
    }
    return category == PEN_CATEGORY_NONE || cls->category == category;
}

char *pen_registry_list_json(const struct pen_registry *registry,
                             enum pen_category category,
                             const char *const *tags)
{
    json_t *modules = json_array();
    const struct pen_module_class *cls;
    for (size_t i = 0; (cls = stk_registry_at(registry, i)); i++) {
        if (class_matches(cls, category, tags))
            modules = stk_json_append(modules, availability(head_json(cls)));
    }
    json_t *o = stk_json_with(json_object(), "modules", modules);
    return stk_json_dump_new(
        stk_json_with(o, "generic", generic_json(registry, category, tags)));
}

// --- describe as text -------------------------------------------------------

static void add_names(struct stk_text *t, json_t *names, const char *between)
{
    size_t i;
    json_t *name;
    if (!names)
        t->failed = true;
    json_array_foreach (names, i, name) {
        stk_text_add(t, i ? between : "");
        stk_text_add(t, json_string_value(name));
    }
    json_decref(names);
}

static void add_pins(struct stk_text *t, const struct pen_pin *pins,
                     const char *what)
{
    for (; pins && pins->name; pins++) {
        stk_text_addf(t, "  %-8s %s: ", what, pins->name);
        add_names(t, kinds_json(pins->kinds), " or ");
        stk_text_add(t, " on ");
        add_names(t, mem_json(pins->mem), ", ");
        if (pins->formats) {
            stk_text_add(t, " as ");
            add_names(t, formats_json(pins->formats), ", ");
        }
        if (pins->flags & PEN_PIN_OPTIONAL)
            stk_text_add(t, " (optional)");
        if (pins->help)
            stk_text_addf(t, "\n           %s", pins->help);
        stk_text_add(t, "\n");
    }
}

static void add_default(struct stk_text *t, const struct pen_prop *row)
{
    char text[128];
    json_t *value = default_of(row);
    if (!value) {
        t->failed = true;
    } else if (row->flags & PEN_PROP_REQUIRED) {
        stk_text_add(t, " (required)");
    } else if (!json_is_null(value)) {
        stk_json_brief(value, text, sizeof(text));
        stk_text_addf(t, " = %s", text);
    }
    json_decref(value);
}

static void add_prop(struct stk_text *t, const struct pen_prop *row)
{
    stk_text_addf(t, "  %-24s %s", row->key, kind_name(row->kind));
    if (is_limited(row)) {
        char min[32], max[32];
        stk_number_text(row->min, min);
        stk_number_text(row->max, max);
        stk_text_addf(t, " %s..%s", min, max);
    }
    if (row->unit)
        stk_text_addf(t, " %s", row->unit);
    if (row->flags & PEN_PROP_ODD)
        stk_text_add(t, " odd");
    if (row->kind == PEN_PROP_ENUM) {
        stk_text_add(t, " ");
        add_names(t, choice_names(row), "|");
    }
    add_default(t, row);
    if (row->flags & PEN_PROP_LIVE)
        stk_text_add(t, " (live)");
}

static void add_props(struct stk_text *t, const struct rows *rows)
{
    const struct pen_prop *row = rows->row;
    for (size_t i = 0; row && row->kind != PEN_PROP_END; row++, i++) {
        add_prop(t, row);
        if (is_partial(rows, i)) {
            stk_text_add(t, " (");
            add_names(t, knowing_classes(rows, i), ", ");
            stk_text_add(t, " only)");
        }
        stk_text_addf(t, "\n      %s\n", row->help);
        for (const struct pen_choice *c = row->choices; c && c->name; c++) {
            if (c->help)
                stk_text_addf(t, "      %s: %s\n", c->name, c->help);
        }
    }
}

static void add_tags(struct stk_text *t, const char *const *tags)
{
    if (!tags || !*tags)
        return;
    stk_text_add(t, "  tags     ");
    add_names(t, strings_json(tags), ", ");
    stk_text_add(t, "\n");
}

char *pen_describe_text(const struct pen_module_class *cls)
{
    struct stk_text t = { 0 };
    stk_text_addf(&t, "%s - %s\n", cls->name, cls->summary);
    stk_text_addf(&t, "  %s, version %s\n", pen_category_name(cls->category),
                  cls->version);
    add_tags(&t, cls->tags);
    for (const struct pen_alias *a = cls->aliases; a && a->name; a++) {
        stk_text_addf(&t, "  alias    %s", a->name);
        if (a->key)
            stk_text_addf(&t, " (%s = %s)", a->key, a->value);
        stk_text_add(&t, "\n");
    }
    add_pins(&t, cls->inputs, "input");
    add_pins(&t, cls->outputs, "output");
    stk_text_add(&t, "\nproperties\n");
    add_props(&t, &(struct rows){ .row = cls->props });
    add_props(&t, &(struct rows){ .row = stk_base_props() });
    return stk_text_take(&t);
}

char *pen_describe_generic_text(const struct pen_registry *registry,
                                const struct pen_generic_type *type)
{
    struct family f = { 0 };
    struct stk_text t = { 0 };
    find_family(&f, registry, type);
    if (!join_family(&f)) {
        stk_arena_finish(&f.arena);
        return NULL;
    }
    stk_text_addf(&t, "%s - %s\n  %s; the planner chooses the class\n",
                  type->name, type->summary, family_category(&f));
    add_tags(&t, type->tags);
    for (size_t i = 0; i < f.count; i++)
        stk_text_addf(&t, "  option   %s (%s): %s\n", f.list[i]->name,
                      stk_backend_name(stk_class_backend(f.list[i])),
                      f.list[i]->summary);
    if (!f.count) {
        stk_text_add(&t, "  not available: ");
        add_reason(&t, type);
        stk_text_add(&t, "\n");
    }
    add_pins(&t, f.inputs, "input");
    add_pins(&t, f.outputs, "output");
    stk_text_add(&t, "\nproperties\n");
    add_props(&t, &f.rows);
    add_props(&t, &(struct rows){ .row = stk_base_props() });
    stk_arena_finish(&f.arena);
    return stk_text_take(&t);
}

// --- schema -----------------------------------------------------------------

// A schema written as JSON text with ' for ".
static json_t *literal(const char *text)
{
    json_t *value = NULL;
    struct pen_issues *issues = pen_issues_create();
    char *copy = strdup(text);
    if (issues && copy) {
        for (char *c = copy; *c; c++) {
            if (*c == '\'')
                *c = '"';
        }
        if (stk_positions_scan(copy, strlen(copy), "schema", NULL, &value,
                               issues, NULL) != PEN_OK)
            value = NULL;
    }
    free(copy);
    pen_issues_destroy(&issues);
    return value;
}

static json_t *row_schema(const struct pen_prop *row)
{
    json_t *s = NULL;
    switch (row->kind) {
    case PEN_PROP_BOOL:
        s = literal("{'type': 'boolean'}");
        break;
    case PEN_PROP_I32:
        s = literal("{'type': 'integer', 'minimum': -2147483648, "
                    "'maximum': 2147483647}");
        break;
    case PEN_PROP_F64:
        s = literal("{'type': 'number'}");
        break;
    case PEN_PROP_STRING:
        s = literal("{'type': 'string'}");
        break;
    case PEN_PROP_ENUM:
        s = stk_json_with(json_object(), "enum", choice_names(row));
        break;
    case PEN_PROP_RATIONAL:
        s = literal("{'anyOf': [{'type': 'number', 'exclusiveMinimum': 0}, "
                    "{'type': 'string', "
                    "'pattern': '^[0-9]+([.][0-9]+|/[0-9]+)?$'}]}");
        break;
    case PEN_PROP_END:
        break;
    }
    if (is_limited(row) &&
        (row->kind == PEN_PROP_I32 || row->kind == PEN_PROP_F64)) {
        s = stk_json_with(s, "minimum", number(row, row->min));
        s = stk_json_with(s, "maximum", number(row, row->max));
    }
    if (row->flags & PEN_PROP_ODD)
        s = stk_json_with(s, "not", literal("{'multipleOf': 2}"));
    s = stk_json_with(s, "description", json_string(row->help));
    json_t *value = default_of(row);
    if (json_is_null(value)) {
        json_decref(value);
        return s;
    }
    return stk_json_with(s, "default", value);
}

static json_t *row_schemas(json_t *object, const struct pen_prop *row)
{
    for (; row && row->kind != PEN_PROP_END; row++)
        object = stk_json_with(object, row->key, row_schema(row));
    return object;
}

// Keys that begin with # are comments everywhere.
static json_t *closed_object(json_t *properties)
{
    json_t *s = literal("{'type': 'object', 'patternProperties': {'^#': {}}, "
                        "'additionalProperties': false}");
    return stk_json_with(s, "properties", properties);
}

static json_t *required_keys(const struct pen_prop *rows,
                             const struct pen_alias *preset)
{
    json_t *keys = json_array();
    for (const struct pen_prop *row = rows; row && row->kind != PEN_PROP_END;
         row++) {
        const bool is_preset =
            preset && preset->key && strcmp(preset->key, row->key) == 0;
        if ((row->flags & PEN_PROP_REQUIRED) && !is_preset)
            keys = stk_json_append(keys, json_string(row->key));
    }
    return keys;
}

// A module works where its class does, or where the type can be told to.
static json_t *backend_schema(unsigned backends)
{
    const struct pen_prop *row = stk_prop_find(stk_base_props(), "backend");
    json_t *names = json_array();
    for (const struct pen_choice *c = row->choices; c->name; c++) {
        if (c->value == STK_BACKEND_AUTO || (backends & 1u << c->value))
            names = stk_json_append(names, json_string(c->name));
    }
    return stk_json_with(row_schema(row), "enum", names);
}

// {"if": the type is `name`, "then": its props are these}.
static json_t *type_rule(const char *name, const struct pen_prop *own,
                         const struct pen_alias *preset, unsigned backends)
{
    json_t *type = stk_json_with(json_object(), "const", json_string(name));
    json_t *condition =
        stk_json_with(json_object(), "properties",
                      stk_json_with(json_object(), "type", type));

    json_t *rows =
        row_schemas(row_schemas(json_object(), own), stk_base_props());
    rows = stk_json_with(rows, "backend", backend_schema(backends));
    const struct pen_prop *set =
        preset && preset->key ? stk_prop_find(own, preset->key) : NULL;
    // Only the preset value itself does not contradict the type.
    if (set && set->kind == PEN_PROP_ENUM)
        rows = stk_json_with(
            rows, set->key,
            stk_json_with(json_object(), "const", json_string(preset->value)));
    json_t *props = closed_object(rows);
    json_t *keys = required_keys(own, preset);
    const bool needed = json_array_size(keys) > 0;
    props = stk_json_with(props, "required", keys);

    json_t *then = stk_json_with(json_object(), "properties",
                                 stk_json_with(json_object(), "props", props));
    if (needed)
        then = stk_json_with(then, "required", literal("['props']"));
    json_t *rule = stk_json_with(json_object(), "if", condition);
    return stk_json_with(rule, "then", then);
}

static json_t *generic_rule(struct family *f)
{
    unsigned backends = 0;
    for (size_t i = 0; i < f->count; i++)
        backends |= 1u << stk_class_backend(f->list[i]);
    json_t *rule = NULL;
    if (join_family(f))
        rule =
            type_rule(f->type->name, f->rows.row, &f->type->preset, backends);
    stk_arena_finish(&f->arena);
    return rule;
}

static json_t *module_schema(const struct pen_registry *registry)
{
    json_t *names = json_array(), *rules = json_array();
    const struct pen_module_class *cls;
    for (size_t i = 0; (cls = stk_registry_at(registry, i)); i++) {
        const unsigned backends = 1u << stk_class_backend(cls);
        names = stk_json_append(names, json_string(cls->name));
        rules = stk_json_append(
            rules, type_rule(cls->name, cls->props, NULL, backends));
        for (const struct pen_alias *a = cls->aliases; a && a->name; a++) {
            names = stk_json_append(names, json_string(a->name));
            rules = stk_json_append(
                rules, type_rule(a->name, cls->props, a, backends));
        }
    }
    for (const struct pen_generic_type *t = pen_generic_types(); t->name; t++) {
        struct family f = { 0 };
        find_family(&f, registry, t);
        if (!f.count)
            continue;
        names = stk_json_append(names, json_string(t->name));
        rules = stk_json_append(rules, generic_rule(&f));
    }
    json_t *properties = json_object();
    properties = stk_json_with(properties, "type",
                               stk_json_with(json_object(), "enum", names));
    properties =
        stk_json_with(properties, "props", literal("{'type': 'object'}"));
    json_t *s = literal("{'type': 'object', 'required': ['type']}");
    s = stk_json_with(s, "properties", properties);
    if (!rules || json_array_size(rules))
        return stk_json_with(s, "allOf", rules);
    json_decref(rules);  // an empty allOf is no schema
    return s;
}

static const char settings_schema[] =
    "{'type': 'object', 'properties': {"
    "'device': {'anyOf': [{'type': 'integer', 'minimum': 0, 'maximum': 999}, "
    "{'type': 'string', "
    "'pattern': '^(auto|cuda|emulated|GPU-.+|[0-9]{1,3})$'}]},"
    "'cuda': {'type': 'object', 'properties': {"
    "'streams': {'enum': ['shared']}, 'fuse': {'const': false}, "
    "'max_batch': {'const': 1}}},"
    "'queue_depth': {'$ref': '#/definitions/depth'},"
    "'queueDepth': {'$ref': '#/definitions/depth'},"
    "'queue_size': {'$ref': '#/definitions/depth'},"
    "'queueSize': {'$ref': '#/definitions/depth'},"
    "'budget': {'type': 'object', 'properties': {"
    "'host': {'$ref': '#/definitions/size'},"
    "'host_pinned': {'$ref': '#/definitions/size'},"
    "'cuda_device': {'$ref': '#/definitions/size'},"
    "'dmabuf': {'$ref': '#/definitions/size'},"
    "'h2d_per_frame': {'type': 'integer', 'minimum': 0},"
    "'d2h_per_frame': {'type': 'integer', 'minimum': 0}},"
    "'patternProperties': {'^#': {}}, 'additionalProperties': false},"
    "'auto_bridge': {'type': 'boolean'}, 'autoBridge': {'type': 'boolean'},"
    "'pinned_limit': {'enum': ['refuse', 'stage']},"
    "'onError': {'$ref': '#/definitions/onError'},"
    "'on_error': {'$ref': '#/definitions/onError'},"
    "'autoStart': {'type': 'boolean'}, 'auto_start': {'type': 'boolean'}}}";

static const char connection_schema[] =
    "{'type': 'object', 'required': ['from', 'to'], 'properties': {"
    "'from': {'$ref': '#/definitions/end'},"
    "'to': {'$ref': '#/definitions/end'},"
    "'sieve': {'type': 'boolean'},"
    "'queue': {'type': 'object', 'properties': {"
    "'depth': {'$ref': '#/definitions/depth'},"
    "'policy': {'enum': ['block', 'drop_newest', 'drop_oldest']}},"
    "'patternProperties': {'^#': {}}, 'additionalProperties': false}},"
    "'patternProperties': {'^#': {}}, 'additionalProperties': false}";

static json_t *definitions(const struct pen_registry *registry)
{
    json_t *d = literal(
        "{'depth': {'type': 'integer', 'minimum': 1, 'maximum': 65536},"
        "'size': {'anyOf': [{'type': 'integer', 'minimum': 1}, "
        "{'type': 'string', "
        "'pattern': '^[0-9]+([.][0-9]+)? *([KMGT]i?B|B)?$'}]},"
        "'onError': {'type': 'string', 'pattern': "
        "'^(stop|drop|retry:[0-9]{1,4}|restart_module|stop_pipeline)$'},"
        "'end': {'type': 'string', 'pattern': '^[^.]+([.].+)?$'}}");
    d = stk_json_with(d, "settings", literal(settings_schema));
    d = stk_json_with(d, "connection", literal(connection_schema));
    return stk_json_with(d, "module", module_schema(registry));
}

char *pen_registry_schema_json(const struct pen_registry *registry)
{
    json_t *s =
        literal("{'$schema': 'http://json-schema.org/draft-07/schema#',"
                "'title': 'Penstock pipeline', 'type': 'object',"
                "'required': ['modules'], 'properties': {"
                "'pipeline': {'type': 'object', 'properties': {"
                "'name': {'type': 'string'}, 'description': {'type': 'string'},"
                "'version': {'type': ['string', 'number']}}},"
                "'settings': {'$ref': '#/definitions/settings'},"
                "'modules': {'type': 'object', 'minProperties': 1,"
                "'patternProperties': {'^#': {}, "
                "'^[^.#][^.]*$': {'$ref': '#/definitions/module'}},"
                "'additionalProperties': false},"
                "'connections': {'type': 'array',"
                "'items': {'$ref': '#/definitions/connection'}}}}");
    return stk_json_dump_new(
        stk_json_with(s, "definitions", definitions(registry)));
}
