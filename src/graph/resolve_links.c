// Connections: which modules and pins they join, and whether what flows is what
// the other end takes.

#include <stdlib.h>
#include <string.h>

#include "resolver.h"

// --- modules by id ----------------------------------------------------------

// FNV-1a.
static uint32_t hash_of(const char *id)
{
    uint32_t h = 2166136261u;
    for (; *id; id++)
        h = (h ^ (unsigned char)*id) * 16777619u;
    return h;
}

static int compare_name(const void *a, const void *b, void *cookie)
{
    const struct stk_name *x = a, *y = b;
    const struct pen_description *d = cookie;
    if (x->hash != y->hash)
        return x->hash < y->hash ? -1 : 1;
    return strcmp(d->modules[x->module].id, d->modules[y->module].id);
}

// Names lie by the highest bits of their hash, about one in each place; those
// in the same place are sorted, so that a file which is made to have them all
// there is read no slower than by halves.
static bool make_names(struct stk_resolver *r)
{
    const uint32_t n = r->desc->module_count;
    uint32_t bits = 1;
    while (bits < 31 && (1u << bits) < n)
        bits++;
    const uint32_t places = 1u << bits;
    r->name_shift = 32 - bits;
    r->name_first =
        stk_arena_alloc(&r->scratch, (places + 2) * sizeof(uint32_t));
    struct stk_name *names =
        stk_arena_alloc(&r->scratch, (n + 1) * sizeof(*names));
    if (!r->name_first || !names)
        return false;
    r->names = names;
    // Counted two places ahead, so that filling leaves them right.
    for (uint32_t i = 0; i < n; i++)
        r->name_first[(hash_of(r->desc->modules[i].id) >> r->name_shift) + 2]++;
    for (uint32_t i = 2; i < places + 2; i++)
        r->name_first[i] += r->name_first[i - 1];
    for (uint32_t i = 0; i < n; i++) {
        const uint32_t hash = hash_of(r->desc->modules[i].id);
        r->names[r->name_first[(hash >> r->name_shift) + 1]++] =
            (struct stk_name){ hash, i };
    }
    for (uint32_t i = 0; i < places; i++) {
        const uint32_t first = r->name_first[i], end = r->name_first[i + 1];
        if (end - first > 1)
            qsort_r(r->names + first, end - first, sizeof(*r->names),
                    compare_name, (void *)r->desc);
    }
    return true;
}

int32_t stk_find_module(const struct stk_resolver *r, const char *id)
{
    if (!r->names)
        return STK_NOBODY;  // out of memory, which is told
    const uint32_t hash = hash_of(id);
    uint32_t low = r->name_first[hash >> r->name_shift];
    uint32_t high = r->name_first[(hash >> r->name_shift) + 1];
    while (low < high) {
        const uint32_t mid = low + (high - low) / 2;
        const struct stk_name *name = &r->names[mid];
        const int order = name->hash != hash
                              ? (name->hash < hash ? -1 : 1)
                              : strcmp(r->desc->modules[name->module].id, id);
        if (order == 0)
            return (int32_t)name->module;
        if (order < 0)
            low = mid + 1;
        else
            high = mid;
    }
    return STK_NOBODY;
}

static const char *next_id(const void *cookie, size_t i)
{
    const struct pen_description *d = cookie;
    return i < d->module_count ? d->modules[i].id : NULL;
}

// A big file full of wrong names gets no guesses after a while: they would
// take quadratic time.
static const char *nearest_id(struct stk_resolver *r, const char *id)
{
    if (r->patience < r->desc->module_count)
        return NULL;
    r->patience -= r->desc->module_count;
    return stk_nearest(id, next_id, r->desc);
}

// --- connections ------------------------------------------------------------

static const char *end_pointer(struct stk_resolver *r,
                               const struct stk_desc_connection *c,
                               const char *end)
{
    return stk_resolver_note(r, "%s/%s", c->pointer, end);
}

static void unknown_module(struct stk_resolver *r,
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
        r->seen[stk_find_module(r, nearest)].blamed = true;
        r->seen[stk_find_module(r, nearest)].mentioned = true;
        suggestion = stk_resolver_note(r, "\"%s\": \"%s%s%s\"", key, nearest,
                                       pin ? "." : "", pin ? pin : "");
    }
    stk_resolver_error(r, source ? "E300" : "E301", end_pointer(r, c, key),
                       suggestion,
                       "there is no module %.64s to connect %s%s%s%s", id, key,
                       nearest ? "; did you mean " : "", nearest ? nearest : "",
                       nearest ? "?" : "");
}

const char *stk_list_pins(struct stk_resolver *r, const struct pen_pin *pins)
{
    const char *list = "";
    for (; pins && pins->name; pins++)
        list =
            stk_resolver_note(r, "%s%s%s", list, *list ? ", " : "", pins->name);
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
    return STK_NOBODY;
}

static void unknown_pin(struct stk_resolver *r,
                        const struct stk_desc_connection *c, int32_t module,
                        bool source)
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
    const char *id = stk_resolver_id(r, module);
    if (!pins || !pins->name) {
        const char *tap =
            source && !c->sieve && others && others->name
                ? stk_resolver_note(r, "\"from\": \"%s.%s\"", id, others->name)
                : "";
        stk_resolver_error(r, code, at, tap, "%s (%s) has no %ss", id, type,
                           what);
        return;
    }
    const char *right = stk_nearest(name, next_pin, pins);
    if (!right && !pins[1].name)
        right = pins->name;
    const char *suggestion =
        right ? stk_resolver_note(r, "\"%s\": \"%s.%s\"", key, id, right) : "";
    stk_resolver_error(r, code, at, suggestion,
                       "%s (%s) has no %s %.64s%s; its %ss: %s", id, type, what,
                       name,
                       pin_named(others, name) == STK_NOBODY ? ""
                       : source ? ", that is an input"
                                : ", that is an output",
                       what, stk_list_pins(r, pins));
}

// Whether the module is known to have no outputs, or no inputs.
static bool has_none(const struct stk_resolver *r, int32_t module, bool outputs)
{
    if (module == STK_NOBODY || !r->nodes[module].cls)
        return false;
    const struct stk_node *node = &r->nodes[module];
    return (outputs ? node->outputs : node->inputs) == 0;
}

// The ends in their modules. What remains open is STK_NOBODY; false: that is
// wrong, and told.
static bool resolve_from(struct stk_resolver *r, struct stk_link *link)
{
    const struct stk_desc_connection *c = link->desc;
    if (link->from == STK_NOBODY || !r->nodes[link->from].cls)
        return link->from != STK_NOBODY;
    const struct stk_node *node = &r->nodes[link->from];
    if (c->from_pin)
        link->from_pin = pin_named(node->cls->outputs, c->from_pin);
    else if (node->outputs == 1)
        link->from_pin = 0;
    if (link->from_pin == STK_NOBODY && c->from_pin && !c->sieve)
        link->from_input = pin_named(node->cls->inputs, c->from_pin);
    if (link->from_pin != STK_NOBODY || link->from_input != STK_NOBODY ||
        (!c->from_pin && node->outputs))
        return true;
    unknown_pin(r, c, link->from, true);
    return false;
}

static bool resolve_to(struct stk_resolver *r, struct stk_link *link)
{
    const struct stk_desc_connection *c = link->desc;
    if (link->to == STK_NOBODY || !r->nodes[link->to].cls)
        return link->to != STK_NOBODY;
    const struct stk_node *node = &r->nodes[link->to];
    if (c->to_pin)
        link->to_pin = pin_named(node->cls->inputs, c->to_pin);
    else if (node->inputs == 1)
        link->to_pin = 0;
    if (link->to_pin != STK_NOBODY || (!c->to_pin && node->inputs))
        return true;
    unknown_pin(r, c, link->to, false);
    return false;
}

// Find the modules, and the pins that are named or the only ones. What
// remains open is STK_NOBODY without `failed`.
static void resolve_ends(struct stk_resolver *r, uint32_t i)
{
    const struct stk_desc_connection *c = &r->desc->connections[i];
    struct stk_link *link = &r->links[i];
    *link = (struct stk_link){
        .desc = c,
        .from = stk_find_module(r, c->from),
        .to = stk_find_module(r, c->to),
        .from_pin = STK_NOBODY,
        .to_pin = STK_NOBODY,
        .from_input = STK_NOBODY,
    };
    if (link->from == STK_NOBODY)
        unknown_module(r, c, true);
    if (link->to == STK_NOBODY)
        unknown_module(r, c, false);
    const bool from = resolve_from(r, link), to = resolve_to(r, link);
    link->failed = !from || !to;
    const int32_t ends[] = { link->from, link->to };
    for (int e = 0; e < 2; e++) {
        if (ends[e] == STK_NOBODY)
            continue;
        r->seen[ends[e]].mentioned = true;
        r->seen[ends[e]].blamed |= link->failed;
    }
    // What can never be a connection closes no cycle.
    if (link->from_input == STK_NOBODY && has_none(r, link->from, true))
        link->from = STK_NOBODY;
    if (has_none(r, link->to, false))
        link->to = STK_NOBODY;
}

static const char *arrow(struct stk_resolver *r,
                         const struct stk_desc_connection *c)
{
    return stk_resolver_note(r, "%s%s%s -> %s%s%s", c->from,
                             c->from_pin ? "." : "",
                             c->from_pin ? c->from_pin : "", c->to,
                             c->to_pin ? "." : "", c->to_pin ? c->to_pin : "");
}

static void take_input(struct stk_resolver *r, uint32_t i)
{
    struct stk_link *link = &r->links[i];
    int32_t *fed_by = &r->seen[link->to].fed_by[link->to_pin];
    link->second = *fed_by != STK_NOBODY;
    link->failed |= link->second;
    if (!link->second)
        *fed_by = (int32_t)i;
}

// Told when it is known which inputs are left.
static void tell_second(struct stk_resolver *r, uint32_t i)
{
    const struct stk_link *link = &r->links[i];
    const struct pen_module_class *cls = r->nodes[link->to].cls;
    if (!cls)
        return;  // never: the link found an input
    const struct pen_pin *pins = cls->inputs;
    const struct stk_desc_connection *first =
        r->links[r->seen[link->to].fed_by[link->to_pin]].desc;
    const char *id = stk_resolver_id(r, link->to);
    int32_t other = STK_NOBODY;
    if (link->from != STK_NOBODY && link->from_pin != STK_NOBODY)
        other = stk_free_input(
            r, link->to,
            stk_any_output(&r->nodes[link->from], link->from_pin).kinds, 0);
    stk_resolver_error(
        r, "E305", end_pointer(r, link->desc, "to"),
        other == STK_NOBODY
            ? "remove this connection"
            : stk_resolver_note(r, "\"to\": \"%s.%s\"", id, pins[other].name),
        "the input %s.%s has two connections; the other is %s (%s)", id,
        pins[link->to_pin].name, first->pointer, arrow(r, first));
    // That this one is missing is told with that.
    if (other != STK_NOBODY)
        r->seen[link->to].fed_by[other] = (int32_t)i;
}

static void take_free_output(struct stk_resolver *r, struct stk_link *link)
{
    const struct stk_desc_connection *c = link->desc;
    const struct stk_node *node = &r->nodes[link->from];
    uint32_t pin = 0;
    while (pin < node->outputs && r->seen[link->from].used[pin])
        pin++;
    if (pin < node->outputs) {
        r->seen[link->from].used[pin] = true;
        link->from_pin = (int32_t)pin;
        return;
    }
    link->failed = true;
    stk_resolver_error(
        r, "E302", end_pointer(r, c, "from"),
        stk_resolver_note(r, "\"from\": \"%s.%s\"", c->from,
                          node->cls->outputs->name),
        "%s has no output left without a connection; name one of %s", c->from,
        stk_list_pins(r, node->cls->outputs));
}

// The first input that is left, if there is one that takes such frames the
// first of those.
static void take_free_input(struct stk_resolver *r, uint32_t i)
{
    struct stk_link *link = &r->links[i];
    const struct stk_desc_connection *c = link->desc;
    int32_t pin = STK_NOBODY;
    if (link->from != STK_NOBODY && link->from_pin != STK_NOBODY &&
        r->nodes[link->from].cls)
        pin = stk_free_input(
            r, link->to,
            stk_any_output(&r->nodes[link->from], link->from_pin).kinds, 0);
    if (pin == STK_NOBODY)
        pin = stk_free_input(r, link->to, PEN_KIND_BIT(PEN_KIND_FRAME), 0);
    if (pin != STK_NOBODY) {
        link->to_pin = pin;
        r->seen[link->to].fed_by[pin] = (int32_t)i;
        return;
    }
    link->failed = true;
    stk_resolver_error(r, "E305", end_pointer(r, c, "to"),
                       "remove this connection",
                       "all inputs of %s have a connection already: %s", c->to,
                       stk_list_pins(r, r->nodes[link->to].cls->inputs));
}

static void resolve_pins(struct stk_resolver *r)
{
    // What is named goes first, so that the order of connections does not
    // matter to those that take what is left.
    for (uint32_t i = 0; i < r->link_count; i++) {
        struct stk_link *link = &r->links[i];
        if (link->from_pin != STK_NOBODY)
            r->seen[link->from].used[link->from_pin] = true;
        if (link->to_pin != STK_NOBODY)
            take_input(r, i);
    }
    for (uint32_t i = 0; i < r->link_count; i++) {
        struct stk_link *link = &r->links[i];
        const struct stk_desc_connection *c = link->desc;
        const struct stk_node *node =
            link->from == STK_NOBODY ? NULL : &r->nodes[link->from];
        if (node && node->cls && !c->from_pin && node->outputs > 1)
            take_free_output(r, link);
        node = link->to == STK_NOBODY ? NULL : &r->nodes[link->to];
        if (node && node->cls && !c->to_pin && node->inputs > 1 &&
            link->from_input == STK_NOBODY)
            take_free_input(r, i);
    }
    for (uint32_t i = 0; i < r->link_count; i++) {
        if (r->links[i].second)
            tell_second(r, i);
    }
}

void stk_resolve_links(struct stk_resolver *r)
{
    if (!make_names(r)) {
        stk_issues_fail(r->issues);
        return;
    }
    r->link_count = r->desc->connection_count;
    for (uint32_t i = 0; i < r->link_count; i++)
        resolve_ends(r, i);
    resolve_pins(r);
}

// --- kinds ------------------------------------------------------------------

static bool kinds_meet(uint32_t a, uint32_t b)
{
    return (a & b) || ((a | b) & PEN_KIND_BIT(PEN_KIND_FRAME));
}

const char *stk_list_kinds(struct stk_resolver *r, uint32_t kinds)
{
    const char *list = "";
    for (int k = PEN_KIND_NONE + 1; k < PEN_KIND_COUNT; k++) {
        if (kinds & PEN_KIND_BIT(k))
            list = stk_resolver_note(r, "%s%s%s", list, *list ? " or " : "",
                                     pen_kind_name((enum pen_kind)k));
    }
    return list;
}

static bool is_one(const struct pen_pin *pins)
{
    return pins && pins[0].name && !pins[1].name;
}

// A class that makes of one kind the other; one that works where the frames
// already are is preferred.
static const struct pen_module_class *
find_converter(const struct stk_resolver *r, const struct pen_pin_set *from,
               const struct pen_pin_set *to)
{
    const struct pen_module_class *cls, *found = NULL;
    for (size_t i = 0; (cls = stk_registry_at(r->registry, i)); i++) {
        if (!is_one(cls->inputs) || !is_one(cls->outputs) ||
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
struct pen_pin_set stk_any_input(const struct stk_node *node, int32_t pin)
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

struct pen_pin_set stk_any_output(const struct stk_node *node, int32_t pin)
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

static bool formats_meet(uint32_t a, uint32_t b)
{
    return !a || !b || (a & b);
}

int32_t stk_free_input(const struct stk_resolver *r, int32_t module,
                       uint32_t kinds, uint32_t formats)
{
    const struct stk_node *node = &r->nodes[module];
    int32_t found = STK_NOBODY;
    for (int32_t pin = 0; pin < (int32_t)node->inputs; pin++) {
        if (r->seen[module].fed_by[pin] != STK_NOBODY)
            continue;
        const struct pen_pin_set in = stk_any_input(node, pin);
        if (!kinds_meet(kinds, in.kinds))
            continue;
        if (formats_meet(formats, in.formats))
            return pin;
        found = found == STK_NOBODY ? pin : found;
    }
    return found;
}

void stk_check_link(struct stk_resolver *r, const struct stk_link *link)
{
    const struct stk_node *a = &r->nodes[link->from];
    const struct stk_node *b = &r->nodes[link->to];
    const struct pen_pin_set out = stk_any_output(a, link->from_pin);
    const struct pen_pin_set in = stk_any_input(b, link->to_pin);
    if (kinds_meet(out.kinds, in.kinds))
        return;
    const struct pen_module_class *cls = find_converter(r, &out, &in);
    const char *from = stk_resolver_id(r, link->from);
    const char *to = stk_resolver_id(r, link->to);
    const char *id = stk_repair_id(r, "convert");
    const char *from_pin = a->cls->outputs[link->from_pin].name;
    const char *to_pin = b->cls->inputs[link->to_pin].name;
    stk_resolver_error(
        r, "E304", link->desc->pointer,
        cls ? stk_resolver_note(r,
                                "%s with { \"from\": \"%s.%s\", \"to\": "
                                "\"%s\" }, { \"from\": \"%s\", \"to\": "
                                "\"%s.%s\" } instead",
                                stk_repair_module(r, id, cls), from, from_pin,
                                id, id, to, to_pin)
            : "",
        "%s.%s gives %s, %s.%s takes %s", from, from_pin,
        stk_list_kinds(r, out.kinds), to, to_pin, stk_list_kinds(r, in.kinds));
}
