// What would be right: ends for connections that are missing, names that are
// free. The search is bounded for the whole file; what is not found is "...".

#include <string.h>

#include "resolver.h"

// Whether connections lead from one module to another.
static bool leads_to(struct stk_resolver *r, uint32_t from, uint32_t to)
{
    uint32_t head = 0, tail = 0;
    const uint32_t round = ++r->round;
    r->queue[tail++] = from;
    r->seen[from].round = round;
    while (head < tail) {
        const uint32_t at = r->queue[head++];
        if (at == to)
            return true;
        for (uint32_t k = r->next.first[at]; k < r->next.first[at + 1]; k++) {
            const uint32_t next = (uint32_t)r->links[r->next.link[k]].to;
            if (r->seen[next].round == round)
                continue;
            r->seen[next].round = round;
            r->queue[tail++] = next;
        }
    }
    return false;
}

// A search looks at all modules; a file full of mistakes gets no repairs after
// a while.
static bool may_search(struct stk_resolver *r)
{
    const size_t cost = r->desc->module_count;
    if (!r->queue || r->searches < cost)
        return false;
    r->searches -= cost;
    return true;
}

static bool meets(uint32_t a, uint32_t b)
{
    return (a & b) || ((a | b) & PEN_KIND_BIT(PEN_KIND_FRAME));
}

// The first output of the module that gives such frames and, if it must be
// unused, goes nowhere; or STK_NOBODY.
static int32_t giving_output(const struct stk_resolver *r, uint32_t module,
                             uint32_t kinds, bool unused)
{
    const struct stk_node *node = &r->nodes[module];
    for (int32_t pin = 0; pin < (int32_t)node->outputs; pin++) {
        if (!(unused && r->seen[module].used[pin]) &&
            meets(stk_any_output(node, pin).kinds, kinds))
            return pin;
    }
    return STK_NOBODY;
}

const char *stk_repair_source(struct stk_resolver *r, uint32_t module,
                              uint32_t pin, bool sources_only)
{
    const uint32_t kinds = stk_any_input(&r->nodes[module], (int32_t)pin).kinds;
    if (!may_search(r))
        return "...";
    // What goes nowhere as yet; if there is none, a source serves another one.
    for (int sources = sources_only; sources < 2; sources++) {
        for (uint32_t i = 0; i < r->desc->module_count; i++) {
            const struct stk_node *node = &r->nodes[i];
            if (i == module || !node->cls || r->seen[i].blamed ||
                (sources && node->inputs))
                continue;
            const int32_t out = giving_output(r, i, kinds, !sources);
            if (out == STK_NOBODY)
                continue;
            if (node->inputs && (!may_search(r) || leads_to(r, module, i)))
                continue;
            return stk_resolver_note(r, "%s.%s", node->desc->id,
                                     node->cls->outputs[out].name);
        }
    }
    return "...";
}

const char *stk_repair_sink(struct stk_resolver *r, uint32_t module,
                            uint32_t pin)
{
    const struct pen_pin_set out =
        stk_any_output(&r->nodes[module], (int32_t)pin);
    if (!may_search(r))
        return NULL;
    for (uint32_t i = 0; i < r->desc->module_count; i++) {
        const struct stk_node *node = &r->nodes[i];
        if (i == module || !node->cls || r->seen[i].blamed)
            continue;
        const int32_t in =
            stk_free_input(r, (int32_t)i, out.kinds, out.formats);
        if (in != STK_NOBODY && may_search(r) && !leads_to(r, i, module))
            return stk_resolver_note(r, "%s.%s", node->desc->id,
                                     node->cls->inputs[in].name);
    }
    return NULL;
}

static bool takes_kinds(const struct pen_module_class *cls, bool sink,
                        uint32_t kinds)
{
    const struct pen_pin *pins = sink ? cls->inputs : cls->outputs;
    return pins && pins[0].name && !pins[1].name && meets(pins->kinds, kinds);
}

const struct pen_module_class *stk_repair_class(const struct stk_resolver *r,
                                                enum pen_category category,
                                                uint32_t kinds)
{
    const struct pen_module_class *cls, *found = NULL;
    for (size_t i = 0; (cls = stk_registry_at(r->registry, i)); i++) {
        if (cls->category != category ||
            !takes_kinds(cls, category == PEN_CATEGORY_SINK, kinds))
            continue;
        bool needs = false;
        for (const struct pen_prop *row = cls->props; row && row->kind; row++)
            needs |= row->flags & PEN_PROP_REQUIRED;
        if (!needs)
            return cls;
        found = found ? found : cls;
    }
    return found;
}

const char *stk_repair_id(struct stk_resolver *r, const char *wish)
{
    const char *id = wish;
    for (int i = 2; stk_find_module(r, id) != STK_NOBODY; i++)
        id = stk_resolver_note(r, "%s%d", wish, i);
    return id;
}

const char *stk_repair_module(struct stk_resolver *r, const char *id,
                              const struct pen_module_class *cls)
{
    struct stk_text t = { 0 };
    stk_text_addf(&t, "\"%s\": { \"type\": \"%s\"", id, cls->name);
    stk_props_example(&t, cls->props);
    stk_text_add(&t, " }");
    const char *text = t.failed ? "" : stk_resolver_note(r, "%s", t.data);
    if (t.failed)
        stk_issues_fail(r->issues);
    stk_text_finish(&t);
    return text;
}
