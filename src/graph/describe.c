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

static json_t *props_json(json_t *list, const struct pen_prop *row)
{
    for (; row && row->kind != PEN_PROP_END; row++) {
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
        prop = stk_json_with(prop, "live",
                             json_boolean(row->flags & PEN_PROP_LIVE));
        if (row->flags & PEN_PROP_ODD)
            prop = stk_json_with(prop, "odd", json_true());
        if (row->flags & (PEN_PROP_PATH_READ | PEN_PROP_PATH_WRITE))
            prop = stk_json_with(prop, "path",
                                 json_string(row->flags & PEN_PROP_PATH_READ
                                                 ? "read"
                                                 : "write"));
        prop = stk_json_with(prop, "help", json_string(row->help));
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
    json_t *o = head_json(cls);
    o = stk_json_with(o, "aliases", aliases_json(cls->aliases));
    o = stk_json_with(o, "inputs", pins_json(cls->inputs));
    o = stk_json_with(o, "outputs", pins_json(cls->outputs));
    o = stk_json_with(
        o, "properties",
        props_json(props_json(json_array(), cls->props), stk_base_props()));
    return stk_json_dump_new(availability(o));
}

char *pen_registry_list_json(const struct pen_module_class *const *list,
                             size_t count)
{
    json_t *modules = json_array();
    for (size_t i = 0; i < count; i++)
        modules = stk_json_append(modules, availability(head_json(list[i])));
    return stk_json_dump_new(stk_json_with(json_object(), "modules", modules));
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

static void add_props(struct stk_text *t, const struct pen_prop *row)
{
    for (; row && row->kind != PEN_PROP_END; row++) {
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
        stk_text_addf(t, "\n      %s\n", row->help);
        for (const struct pen_choice *c = row->choices; c && c->name; c++) {
            if (c->help)
                stk_text_addf(t, "      %s: %s\n", c->name, c->help);
        }
    }
}

char *pen_describe_text(const struct pen_module_class *cls)
{
    struct stk_text t = { 0 };
    stk_text_addf(&t, "%s - %s\n", cls->name, cls->summary);
    stk_text_addf(&t, "  %s, version %s\n", pen_category_name(cls->category),
                  cls->version);
    if (cls->tags && *cls->tags) {
        stk_text_add(&t, "  tags     ");
        add_names(&t, strings_json(cls->tags), ", ");
        stk_text_add(&t, "\n");
    }
    for (const struct pen_alias *a = cls->aliases; a && a->name; a++) {
        stk_text_addf(&t, "  alias    %s", a->name);
        if (a->key)
            stk_text_addf(&t, " (%s = %s)", a->key, a->value);
        stk_text_add(&t, "\n");
    }
    add_pins(&t, cls->inputs, "input");
    add_pins(&t, cls->outputs, "output");
    stk_text_add(&t, "\nproperties\n");
    add_props(&t, cls->props);
    add_props(&t, stk_base_props());
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

static json_t *required_keys(const struct pen_module_class *cls,
                             const struct pen_alias *alias)
{
    json_t *keys = json_array();
    for (const struct pen_prop *row = cls->props;
         row && row->kind != PEN_PROP_END; row++) {
        const bool preset =
            alias && alias->key && strcmp(alias->key, row->key) == 0;
        if ((row->flags & PEN_PROP_REQUIRED) && !preset)
            keys = stk_json_append(keys, json_string(row->key));
    }
    return keys;
}

// {"if": the type is `name`, "then": its props are these}.
static json_t *type_rule(const struct pen_module_class *cls,
                         const struct pen_alias *alias)
{
    json_t *type = stk_json_with(json_object(), "const",
                                 json_string(alias ? alias->name : cls->name));
    json_t *condition =
        stk_json_with(json_object(), "properties",
                      stk_json_with(json_object(), "type", type));

    json_t *rows =
        row_schemas(row_schemas(json_object(), cls->props), stk_base_props());
    if (alias && alias->key) {
        // Only the preset value itself does not contradict the alias.
        for (const struct pen_prop *row = cls->props; row->kind; row++) {
            if (strcmp(row->key, alias->key) == 0 && row->kind == PEN_PROP_ENUM)
                rows = stk_json_with(rows, row->key,
                                     stk_json_with(json_object(), "const",
                                                   json_string(alias->value)));
        }
    }
    json_t *props = closed_object(rows);
    json_t *keys = required_keys(cls, alias);
    const bool needed = json_array_size(keys) > 0;
    props = stk_json_with(props, "required", keys);

    json_t *then = stk_json_with(json_object(), "properties",
                                 stk_json_with(json_object(), "props", props));
    if (needed)
        then = stk_json_with(then, "required", literal("['props']"));
    json_t *rule = stk_json_with(json_object(), "if", condition);
    return stk_json_with(rule, "then", then);
}

static json_t *module_schema(const struct pen_registry *registry)
{
    json_t *names = json_array(), *rules = json_array();
    const struct pen_module_class *cls;
    for (size_t i = 0; (cls = stk_registry_at(registry, i)); i++) {
        names = stk_json_append(names, json_string(cls->name));
        rules = stk_json_append(rules, type_rule(cls, NULL));
        for (const struct pen_alias *a = cls->aliases; a && a->name; a++) {
            names = stk_json_append(names, json_string(a->name));
            rules = stk_json_append(rules, type_rule(cls, a));
        }
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
    "'sieve': {'const': true},"
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
