// Connections with sieve false: the destination gets the inputs of the source
// beside its outputs. That is resolved here into further links from whoever
// feeds these inputs, so that nothing behind knows of it.

#include <stdlib.h>
#include <string.h>

#include "resolver.h"

// The link that feeds an input, whose beginning is known; NULL: there is none,
// or an error has made it unknown.
static const struct stk_link *feeder(const struct stk_resolver *r,
                                     int32_t module, int32_t pin)
{
    const int32_t by = r->seen[module].fed_by[pin];
    if (by == STK_NOBODY)
        return NULL;
    const struct stk_link *link = &r->links[by];
    return link->failed || link->from == STK_NOBODY ||
                   link->from_pin == STK_NOBODY || !r->nodes[link->from].cls
               ? NULL
               : link;
}

// Whether the module gets just that already.
static bool gets(const struct stk_resolver *r, int32_t module,
                 const struct stk_link *source)
{
    for (int32_t pin = 0; pin < (int32_t)r->nodes[module].inputs; pin++) {
        const struct stk_link *link = feeder(r, module, pin);
        if (link && link->from == source->from &&
            link->from_pin == source->from_pin)
            return true;
    }
    return false;
}

static const char *list_free(struct stk_resolver *r, int32_t module)
{
    const struct stk_node *node = &r->nodes[module];
    const char *list = "";
    for (int32_t pin = 0; pin < (int32_t)node->inputs; pin++) {
        if (r->seen[module].fed_by[pin] == STK_NOBODY)
            list = stk_resolver_note(
                r, "%s%s%s (%s)", list, *list ? ", " : "",
                node->cls->inputs[pin].name,
                stk_list_kinds(r, stk_any_input(node, pin).kinds));
    }
    return list;
}

static void no_room(struct stk_resolver *r, const struct stk_link *link,
                    int32_t pin, const struct stk_link *source)
{
    const struct stk_node *a = &r->nodes[link->from];
    const struct stk_node *maker = &r->nodes[source->from];
    const char *to = stk_resolver_id(r, link->to);
    const char *left = list_free(r, link->to);
    const uint32_t kinds = stk_any_output(maker, source->from_pin).kinds;
    stk_resolver_error(
        r, "E306", stk_resolver_note(r, "%s/sieve", link->desc->pointer),
        "\"sieve\": true",
        "sieve false forwards what %s gets at %s, %s.%s (%s), and no free "
        "input of %s takes that%s%s",
        stk_resolver_id(r, link->from), a->cls->inputs[pin].name,
        stk_resolver_id(r, source->from),
        maker->cls->outputs[source->from_pin].name, stk_list_kinds(r, kinds),
        to, *left ? "; free are " : "", left);
    r->seen[link->to].blamed = true;
}

// The input of `link->to` that takes what `source` brings, or STK_NOBODY after
// an error.
static int32_t find_room(struct stk_resolver *r, const struct stk_link *link,
                         int32_t pin, const struct stk_link *source)
{
    const struct pen_pin_set out =
        stk_any_output(&r->nodes[source->from], source->from_pin);
    const int32_t to = stk_free_input(r, link->to, out.kinds, out.formats);
    if (to == STK_NOBODY)
        no_room(r, link, pin, source);
    return to;
}

// An input that is named as the source: the link begins where that one does.
static void tap_input(struct stk_resolver *r, uint32_t i)
{
    struct stk_link *link = &r->links[i];
    const int32_t pin = link->from_input;
    const struct stk_link *source = feeder(r, link->from, pin);
    if (!source) {
        if (r->seen[link->from].fed_by[pin] == STK_NOBODY &&
            !r->seen[link->from].blamed)
            stk_resolver_error(
                r, "E306", stk_resolver_note(r, "%s/from", link->desc->pointer),
                stk_resolver_note(r, "{ \"from\": \"...\", \"to\": \"%s.%s\" }",
                                  link->desc->from, link->desc->from_pin),
                "the input %s.%s has no connection, so it has nothing to "
                "forward",
                link->desc->from, link->desc->from_pin);
        link->failed = true;
        r->seen[link->from].blamed = r->seen[link->to].blamed = true;
        return;
    }
    if (link->to_pin == STK_NOBODY) {
        link->to_pin = find_room(r, link, pin, source);
        if (link->to_pin == STK_NOBODY) {
            link->failed = true;
            return;
        }
        r->seen[link->to].fed_by[link->to_pin] = (int32_t)i;
    }
    link->from = source->from;
    link->from_pin = source->from_pin;
}

static void forward_inputs(struct stk_resolver *r, uint32_t i)
{
    const struct stk_link *link = &r->links[i];
    const struct stk_node *node = &r->nodes[link->from];
    if (!node->inputs)
        stk_resolver_warning(
            r, "W306", stk_resolver_note(r, "%s/sieve", link->desc->pointer),
            "\"sieve\": true",
            "sieve false has no effect: %s has no inputs to forward",
            stk_resolver_id(r, link->from));
    for (int32_t pin = 0; pin < (int32_t)node->inputs; pin++) {
        const struct stk_link *source = feeder(r, link->from, pin);
        // What an error keeps from being known may be what is missing there.
        if (!source && r->seen[link->from].fed_by[pin] != STK_NOBODY)
            r->seen[link->to].blamed = true;
        if (!source || gets(r, link->to, source))
            continue;
        const int32_t to = find_room(r, link, pin, source);
        if (to == STK_NOBODY)
            continue;
        r->seen[link->to].fed_by[to] = (int32_t)r->link_count;
        r->links[r->link_count++] = (struct stk_link){
            .desc = link->desc,
            .from = source->from,
            .from_pin = source->from_pin,
            .to = link->to,
            .to_pin = to,
            .from_input = STK_NOBODY,
        };
    }
}

// What is still to be resolved, and what its place depends on.
struct sieve {
    uint32_t link;
    uint32_t to, step, from;  // places in topological order; what comes first
    int32_t pin;
};

// By destination, since what that one gets otherwise must be known; there what
// is named first, then single inputs, then what modules forward. Among equals
// the order of the modules decides, not that of the connections.
static int compare_sieves(const void *a, const void *b)
{
    const struct sieve *x = a, *y = b;
    if (x->to != y->to)
        return x->to < y->to ? -1 : 1;
    if (x->step != y->step)
        return x->step < y->step ? -1 : 1;
    if (x->from != y->from)
        return x->from < y->from ? -1 : 1;
    if (x->pin != y->pin)
        return x->pin < y->pin ? -1 : 1;
    return x->link < y->link ? -1 : 1;
}

// What a module in a cycle or behind one forwards is not known: the cycle is
// told, what is missing for that is not.
static void give_up(struct stk_resolver *r, struct stk_link *link)
{
    r->seen[link->to].blamed = true;
    link->failed |= link->from_input != STK_NOBODY;
}

// The sieves in their order; those that a cycle hides are given up.
static uint32_t sort_sieves(struct stk_resolver *r, struct sieve *list,
                            const uint32_t *rank)
{
    uint32_t count = 0;
    for (uint32_t i = 0; i < r->desc->connection_count; i++) {
        struct stk_link *link = &r->links[i];
        if (link->desc->sieve || link->failed || !stk_link_joins(link) ||
            !r->nodes[link->from].cls || !r->nodes[link->to].cls)
            continue;
        if (rank[link->from] == UINT32_MAX || rank[link->to] == UINT32_MAX) {
            give_up(r, link);
            continue;
        }
        const bool tap = link->from_input != STK_NOBODY;
        list[count++] = (struct sieve){
            .link = i,
            .to = rank[link->to],
            .step = !tap ? 2 : link->to_pin == STK_NOBODY,
            .from = rank[link->from],
            .pin = link->from_input,
        };
    }
    qsort(list, count, sizeof(*list), compare_sieves);
    return count;
}

void stk_resolve_sieves(struct stk_resolver *r)
{
    const struct pen_description *d = r->desc;
    const uint32_t n = d->module_count;
    uint32_t sieves = 0, count = 0;
    for (uint32_t i = 0; i < d->connection_count; i++)
        sieves += !d->connections[i].sieve;
    if (!sieves || !r->link_count)
        return;
    struct sieve *list = stk_arena_alloc(&r->scratch, sieves * sizeof(*list));
    uint32_t *order = stk_arena_alloc(&r->scratch, (n + 1) * sizeof(*order));
    uint32_t *rank = stk_arena_alloc(&r->scratch, (n + 1) * sizeof(*rank));
    if (!list || !order || !rank || !stk_resolver_sort(r, order, &count)) {
        stk_issues_fail(r->issues);
        return;
    }
    memset(rank, 0xff, (n + 1) * sizeof(*rank));
    for (uint32_t i = 0; i < count; i++)
        rank[order[i]] = i;
    sieves = sort_sieves(r, list, rank);
    for (uint32_t i = 0; i < sieves; i++) {
        if (list[i].step < 2)
            tap_input(r, list[i].link);
        else
            forward_inputs(r, list[i].link);
    }
}
