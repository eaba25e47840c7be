#ifndef STK_RESOLVER_H
#define STK_RESOLVER_H

// From the description to a checked graph: what the parts of that share.
// validate.c asks the questions about the whole, resolve_module.c reads types
// and properties, resolve_links.c finds the ends of connections, and
// resolve_sieve.c what they forward beside.

#include "graph.h"

enum { STK_NOBODY = -1 };

// What is known of a module while the graph is being checked, beside its
// node. Modules are numbered as in the file.
struct stk_seen {
    int32_t fed_by[PEN_MAX_PINS];  // link into the input, or STK_NOBODY
    bool used[PEN_MAX_PINS];       // output has a connection
    bool mentioned;                // by any connection
    bool blamed;  // by an error that may explain others: those stay untold
    bool in_cycle;
    uint32_t round;  // of the last walk that came by
};

// A connection, and what it forwards beside as further ones.
struct stk_link {
    const struct stk_desc_connection *desc;
    int32_t from, to;          // module numbers, or STK_NOBODY
    int32_t from_pin, to_pin;  // or STK_NOBODY
    // An input of `from` that is named as the source (sieve false): the link
    // begins where that one does, once that is known.
    int32_t from_input;
    bool failed;
    bool second;  // into an input that has one already
};

// The links that leave each module, in their order.
struct stk_successors {
    uint32_t *first;  // module -> index into `link`; one more at the end
    uint32_t *link;
};

struct stk_name {
    uint32_t hash, module;
};

struct stk_resolver {
    const struct pen_description *desc;
    const struct pen_registry *registry;
    struct stk_arena *arena;  // of the result
    struct stk_arena scratch;
    struct pen_issues *issues;
    struct stk_node *nodes;
    struct stk_seen *seen;
    struct stk_link *links;  // the connections, then what they forward
    uint32_t link_count;
    struct stk_name *names;  // of modules, by hash
    uint32_t *name_first, name_shift;
    bool unknown_type;
    size_t patience;  // comparisons of words that are still worth it
    size_t searches;  // looks at modules, likewise
    // For walks, once all links are known.
    struct stk_successors next;
    uint32_t *queue;
    uint32_t round;
};

PEN_PRINTF(6, 7)
void stk_resolver_tell(struct stk_resolver *r, enum pen_severity severity,
                       const char *code, const char *pointer,
                       const char *suggestion, const char *format, ...);
#define stk_resolver_error(r, ...)                                             \
    stk_resolver_tell((r), PEN_SEVERITY_ERROR, __VA_ARGS__)
#define stk_resolver_warning(r, ...)                                           \
    stk_resolver_tell((r), PEN_SEVERITY_WARNING, __VA_ARGS__)
// Scratch text that outlives the complaint it is made for; never NULL.
PEN_PRINTF(2, 3)
const char *stk_resolver_note(struct stk_resolver *r, const char *format, ...);
static inline const char *stk_resolver_id(const struct stk_resolver *r,
                                          int32_t module)
{
    return r->desc->modules[module].id;
}

// Whether the link may be used for questions about the whole graph: its ends
// are known, if perhaps not its pins.
bool stk_link_joins(const struct stk_link *link);
// False: out of memory.
bool stk_resolver_successors(struct stk_resolver *r, struct stk_successors *s);
// Modules in topological order in which, of what is possible, what comes first
// in the file comes first; those behind a cycle are not in it. False: out of
// memory.
bool stk_resolver_sort(struct stk_resolver *r, uint32_t *order,
                       uint32_t *count);

// Type, properties and options of a module.
void stk_resolve_module(struct stk_resolver *r, uint32_t i);
// The modules of all connections, and the pins that are named or the only ones;
// then the pins that are left.
void stk_resolve_links(struct stk_resolver *r);
// Further links, for connections with sieve false.
void stk_resolve_sieves(struct stk_resolver *r);
// Whether what flows is what the other end takes.
void stk_check_link(struct stk_resolver *r, const struct stk_link *link);

const char *stk_list_pins(struct stk_resolver *r, const struct pen_pin *pins);
const char *stk_list_kinds(struct stk_resolver *r, uint32_t kinds);
// What a pin takes or gives, whichever class the module will be.
struct pen_pin_set stk_any_input(const struct stk_node *node, int32_t pin);
struct pen_pin_set stk_any_output(const struct stk_node *node, int32_t pin);
// The first input without a connection that takes frames of one of these kinds,
// or STK_NOBODY. With `formats` those that take one of them come first.
int32_t stk_free_input(const struct stk_resolver *r, int32_t module,
                       uint32_t kinds, uint32_t formats);

// The number of a module, or STK_NOBODY.
int32_t stk_find_module(const struct stk_resolver *r, const char *id);

// --- repairs ----------------------------------------------------------------

// "id.pin" of an output that an input without connection could take frames
// from without closing a cycle; "..." if none is found. One that goes nowhere
// as yet comes first, unless only sources are wanted.
const char *stk_repair_source(struct stk_resolver *r, uint32_t module,
                              uint32_t pin, bool sources_only);
// Likewise of an input that waits for what the output gives; NULL if none.
const char *stk_repair_sink(struct stk_resolver *r, uint32_t module,
                            uint32_t pin);
// A class with one pin for frames of one of these kinds; one that can do
// without properties comes first. NULL: none.
const struct pen_module_class *stk_repair_class(const struct stk_resolver *r,
                                                enum pen_category category,
                                                uint32_t kinds);
// `wish`, or with a number if that is taken.
const char *stk_repair_id(struct stk_resolver *r, const char *wish);
// `"id": { "type": ... }` with the properties that it must have.
const char *stk_repair_module(struct stk_resolver *r, const char *id,
                              const struct pen_module_class *cls);

#endif  // STK_RESOLVER_H
