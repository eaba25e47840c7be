// From the description to a checked graph: cycles, reachability, order.
// Everything is told in one pass.

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "resolver.h"

PEN_PRINTF(6, 7)
void stk_resolver_tell(struct stk_resolver *r, enum pen_severity severity,
                       const char *code, const char *pointer,
                       const char *suggestion, const char *format, ...)
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
const char *stk_resolver_note(struct stk_resolver *r, const char *format, ...)
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

// --- the graph as a whole ---------------------------------------------------

// Whether the link may be used for questions about the whole graph: its ends
// are known, if perhaps not its pins.
bool stk_link_joins(const struct stk_link *link)
{
    return link->from != STK_NOBODY && link->to != STK_NOBODY;
}

bool stk_resolver_successors(struct stk_resolver *r, struct stk_successors *s)
{
    const uint32_t n = r->desc->module_count, m = r->link_count;
    s->first = stk_arena_alloc(&r->scratch, (n + 2) * sizeof(*s->first));
    s->link = stk_arena_alloc(&r->scratch, (m + 1) * sizeof(*s->link));
    if (!s->first || !s->link)
        return false;
    // Counted two places ahead, so that filling leaves them right.
    for (uint32_t i = 0; i < m; i++) {
        if (stk_link_joins(&r->links[i]))
            s->first[r->links[i].from + 2]++;
    }
    for (uint32_t i = 2; i < n + 2; i++)
        s->first[i] += s->first[i - 1];
    for (uint32_t i = 0; i < m; i++) {
        if (stk_link_joins(&r->links[i]))
            s->link[s->first[r->links[i].from + 1]++] = i;
    }
    return true;
}

static void tell_cycle(struct stk_resolver *r, const uint32_t *path,
                       uint32_t length, uint32_t closing)
{
    struct stk_text text = { 0 };
    for (uint32_t i = 0; i < length; i++) {
        stk_text_add(&text, stk_resolver_id(r, (int32_t)path[i]));
        stk_text_add(&text, " -> ");
        r->seen[path[i]].in_cycle = true;
    }
    stk_text_add(&text, stk_resolver_id(r, (int32_t)path[0]));
    const struct stk_desc_connection *c = r->links[closing].desc;
    const char *repair = stk_resolver_note(
        r, "remove { \"from\": \"%s%s%s\", \"to\": \"%s%s%s\" }", c->from,
        c->from_pin ? "." : "", c->from_pin ? c->from_pin : "", c->to,
        c->to_pin ? "." : "", c->to_pin ? c->to_pin : "");
    if (text.failed)
        stk_issues_fail(r->issues);
    else if (length == 1)
        stk_resolver_error(r, "E401", c->pointer, repair,
                           "%s is connected to itself: %s",
                           stk_resolver_id(r, (int32_t)path[0]), text.data);
    else
        stk_resolver_error(r, "E401", c->pointer, repair,
                           "the connections form a cycle: %s", text.data);
    stk_text_finish(&text);
}

// Walk in depth; a connection to a module that the walk is inside of closes a
// cycle. Each module is told in one cycle only.
static void find_cycles(struct stk_resolver *r)
{
    const struct stk_successors *s = &r->next;
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

static bool has_fed_input(const struct stk_resolver *r, uint32_t i)
{
    for (uint32_t pin = 0; pin < r->nodes[i].inputs; pin++) {
        if (r->seen[i].fed_by[pin] != STK_NOBODY)
            return true;
    }
    return false;
}

static bool lacks_input(const struct stk_resolver *r, uint32_t i)
{
    const struct stk_node *node = &r->nodes[i];
    for (uint32_t pin = 0; pin < node->inputs; pin++) {
        if (!(node->cls->inputs[pin].flags & PEN_PIN_OPTIONAL) &&
            r->seen[i].fed_by[pin] == STK_NOBODY)
            return true;
    }
    return false;
}

// What would lead a source there, if the module has an input that is free.
static const char *missing_source(struct stk_resolver *r, uint32_t i)
{
    const struct stk_node *node = &r->nodes[i];
    for (uint32_t pin = 0; pin < node->inputs; pin++) {
        if (r->seen[i].fed_by[pin] == STK_NOBODY)
            return stk_resolver_note(
                r, "{ \"from\": \"%s\", \"to\": \"%s.%s\" }",
                stk_repair_source(r, i, pin, true), node->desc->id,
                node->cls->inputs[pin].name);
    }
    return "";
}

// Modules to which no source leads, by inputs that are all optional. What
// errors explain already counts as reached.
static void find_unreached(struct stk_resolver *r)
{
    const struct stk_successors *s = &r->next;
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
            stk_resolver_warning(r, "W401", r->nodes[i].desc->pointer,
                                 missing_source(r, i),
                                 "no source leads to %s: it never receives a "
                                 "frame",
                                 r->nodes[i].desc->id);
    }
}

// Where an output could go: an input that waits for it, or a new sink.
static const char *missing_sink(struct stk_resolver *r, uint32_t i)
{
    const struct stk_node *node = &r->nodes[i];
    const char *from =
        stk_resolver_note(r, "%s.%s", node->desc->id, node->cls->outputs->name);
    const char *to = stk_repair_sink(r, i, 0);
    if (to)
        return stk_resolver_note(r, "{ \"from\": \"%s\", \"to\": \"%s\" }",
                                 from, to);
    const struct pen_module_class *cls =
        stk_repair_class(r, PEN_CATEGORY_SINK, stk_any_output(node, 0).kinds);
    const char *id = stk_repair_id(r, "sink");
    return cls ? stk_resolver_note(
                     r, "%s with { \"from\": \"%s\", \"to\": \"%s\" }",
                     stk_repair_module(r, id, cls), from, id)
               : "";
}

static void check_inputs(struct stk_resolver *r, uint32_t i)
{
    const struct stk_node *node = &r->nodes[i];
    const char *id = node->desc->id;
    for (uint32_t pin = 0; pin < node->inputs; pin++) {
        const struct pen_pin *p = &node->cls->inputs[pin];
        if ((p->flags & PEN_PIN_OPTIONAL) ||
            r->seen[i].fed_by[pin] != STK_NOBODY)
            continue;
        stk_resolver_error(
            r, "E307", node->desc->pointer,
            stk_resolver_note(r, "{ \"from\": \"%s\", \"to\": \"%s.%s\" }",
                              stk_repair_source(r, i, pin, false), id, p->name),
            "the input %s.%s needs a connection", id, p->name);
    }
}

static void check_node_links(struct stk_resolver *r, uint32_t i)
{
    const struct stk_node *node = &r->nodes[i];
    const struct stk_seen *seen = &r->seen[i];
    const char *id = node->desc->id;
    // Whoever wants none can make the module a comment.
    if (!seen->mentioned && (!node->cls || node->inputs || node->outputs))
        stk_resolver_warning(r, "W400", node->desc->pointer,
                             stk_resolver_note(r, "\"#%s\"", id),
                             "%s has no connection", id);
    if (!node->cls || seen->blamed)
        return;
    check_inputs(r, i);
    bool used = false;
    for (uint32_t pin = 0; pin < node->outputs; pin++)
        used |= seen->used[pin];
    if (node->outputs && !used && (has_fed_input(r, i) || !node->inputs) &&
        seen->mentioned)
        stk_resolver_warning(r, "W402", node->desc->pointer, missing_sink(r, i),
                             "the output of %s goes nowhere", id);
}

static void no_source(struct stk_resolver *r)
{
    const char *suggestion = "";
    for (uint32_t i = 0; i < r->desc->module_count && !*suggestion; i++) {
        const struct stk_node *node = &r->nodes[i];
        if (!node->cls)
            continue;
        for (uint32_t pin = 0; pin < node->inputs && !*suggestion; pin++) {
            const struct pen_module_class *cls =
                stk_repair_class(r, PEN_CATEGORY_SOURCE,
                                 stk_any_input(node, (int32_t)pin).kinds);
            if (!cls || r->seen[i].fed_by[pin] != STK_NOBODY)
                continue;
            const char *id = stk_repair_id(r, "source");
            suggestion = stk_resolver_note(
                r, "%s with { \"from\": \"%s\", \"to\": \"%s.%s\" }",
                stk_repair_module(r, id, cls), id, node->desc->id,
                node->cls->inputs[pin].name);
        }
    }
    stk_resolver_error(r, "E400", "/modules", suggestion,
                       "there is no source: no module makes frames");
}

// Of a file with a connection that cannot be read only that is told which no
// further connection can mend.
static void check_whole(struct stk_resolver *r)
{
    const bool whole = !r->desc->incomplete;
    const uint32_t n = r->desc->module_count;
    bool source = r->unknown_type;
    r->queue = stk_arena_alloc(&r->scratch, (n + 1) * sizeof(*r->queue));
    if (!r->queue || !stk_resolver_successors(r, &r->next)) {
        stk_issues_fail(r->issues);
        return;
    }
    for (uint32_t i = 0; i < n; i++) {
        if (whole)
            check_node_links(r, i);
        source |= r->nodes[i].cls && is_source(&r->nodes[i]);
    }
    if (!source)
        no_source(r);
    find_cycles(r);
    if (source && whole)
        find_unreached(r);
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

bool stk_resolver_sort(struct stk_resolver *r, uint32_t *order, uint32_t *count)
{
    const uint32_t n = r->desc->module_count;
    struct stk_successors s = { 0 };
    uint32_t *waits = stk_arena_alloc(&r->scratch, (n + 1) * sizeof(*waits));
    uint32_t *heap = stk_arena_alloc(&r->scratch, (n + 1) * sizeof(*heap));
    *count = 0;
    if (!waits || !heap || !stk_resolver_successors(r, &s))
        return false;
    for (uint32_t i = 0; i < r->link_count; i++) {
        if (stk_link_joins(&r->links[i]))
            waits[r->links[i].to]++;
    }
    uint32_t waiting = 0;
    for (uint32_t i = 0; i < n; i++) {
        if (!waits[i])
            heap_push(heap, &waiting, i);
    }
    while (waiting) {
        const uint32_t at = heap_pop(heap, &waiting);
        order[(*count)++] = at;
        for (uint32_t k = s.first[at]; k < s.first[at + 1]; k++) {
            const uint32_t to = (uint32_t)r->links[s.link[k]].to;
            if (--waits[to] == 0)
                heap_push(heap, &waiting, to);
        }
    }
    return true;
}

static struct stk_graph *make_graph(struct stk_resolver *r)
{
    const uint32_t n = r->desc->module_count, m = r->link_count;
    struct stk_graph *graph = stk_arena_alloc(r->arena, sizeof(*graph));
    uint32_t *order = stk_arena_alloc(&r->scratch, (n + 1) * sizeof(*order));
    uint32_t *rank = stk_arena_alloc(&r->scratch, (n + 1) * sizeof(*rank));
    uint32_t count;
    if (!graph || !order || !rank || !stk_resolver_sort(r, order, &count))
        return NULL;
    graph->nodes = stk_arena_alloc(r->arena, (n + 1) * sizeof(*graph->nodes));
    graph->edges = stk_arena_alloc(r->arena, (m + 1) * sizeof(*graph->edges));
    if (!graph->nodes || !graph->edges)
        return NULL;
    graph->node_count = n;
    graph->edge_count = m;
    for (uint32_t i = 0; i < n; i++) {
        rank[order[i]] = i;
        graph->nodes[i] = r->nodes[order[i]];
    }
    for (uint32_t i = 0; i < m; i++)
        graph->edges[i] = (struct stk_edge){
            .desc = r->links[i].desc,
            .from = rank[r->links[i].from],
            .from_pin = (uint32_t)r->links[i].from_pin,
            .to = rank[r->links[i].to],
            .to_pin = (uint32_t)r->links[i].to_pin,
        };
    return graph;
}

// A connection with sieve false can forward each input of a module.
static uint32_t most_links(const struct pen_description *d)
{
    uint32_t most = d->connection_count;
    for (uint32_t i = 0; i < d->connection_count; i++)
        most += d->connections[i].sieve ? 0 : PEN_MAX_PINS;
    return most;
}

static bool allocate(struct stk_resolver *r)
{
    const uint32_t n = r->desc->module_count, m = most_links(r->desc);
    r->nodes = stk_arena_alloc(&r->scratch, (n + 1) * sizeof(*r->nodes));
    r->seen = stk_arena_alloc(&r->scratch, (n + 1) * sizeof(*r->seen));
    r->links = stk_arena_alloc(&r->scratch, (m + 1) * sizeof(*r->links));
    return r->nodes && r->seen && r->links;
}

static void check_all(struct stk_resolver *r)
{
    const uint32_t n = r->desc->module_count;
    if (!allocate(r)) {
        stk_issues_fail(r->issues);
        return;
    }
    for (uint32_t i = 0; i < n; i++)
        stk_resolve_module(r, i);
    stk_resolve_links(r);
    stk_resolve_sieves(r);
    for (uint32_t i = 0; i < r->link_count; i++) {
        const struct stk_link *link = &r->links[i];
        if (!link->failed && link->from_pin != STK_NOBODY &&
            link->to_pin != STK_NOBODY)
            stk_check_link(r, link);
    }
    if (n)
        check_whole(r);
    else if (!n && !r->desc->incomplete)
        stk_resolver_error(r, "E402", "/modules",
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
    struct stk_resolver r = {
        .desc = desc,
        .registry = registry,
        .arena = arena,
        .issues = issues,
        .patience = 4 << 20,
        .searches = 1 << 20,
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

// --- headers of input files -------------------------------------------------

static void probe_node(const struct pen_description *desc,
                       const struct stk_node *node, struct pen_issues *issues)
{
    struct pen_probe probe = { .limit = STK_PROBE_LIMIT };
    struct pen_error error = { 0 };
    if (!node->cls->ops.probe)
        return;
    const enum pen_status st =
        node->cls->ops.probe(node->params, &probe, &error);
    if (st == PEN_E_NOMEM)
        stk_issues_fail(issues);
    else if (st < 0)
        stk_issue_add(issues, desc, PEN_SEVERITY_ERROR, stk_probe_code(st),
                      node->desc->pointer, "", "%s", error.text);
    else
        stk_probe_tell(&probe, desc, node->desc->pointer, issues);
}

enum pen_status pen_validate_probe(const struct pen_description *desc,
                                   const struct pen_registry *registry,
                                   struct pen_issues *issues,
                                   struct pen_error *err)
{
    const size_t before = pen_issues_count(issues, PEN_SEVERITY_ERROR);
    struct stk_arena arena = { 0 };
    struct stk_graph *graph = NULL;
    enum pen_status status =
        stk_graph_resolve(desc, registry, &arena, &graph, issues, err);
    if (status == PEN_OK) {
        for (uint32_t i = 0; i < graph->node_count; i++)
            probe_node(desc, &graph->nodes[i], issues);
        status = stk_issues_status(issues, before, err);
    }
    stk_arena_finish(&arena);
    return status;
}
