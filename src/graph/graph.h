#ifndef STK_GRAPH_H
#define STK_GRAPH_H

// From text to a checked graph. description.c reads the file, validate.c
// resolves and checks it, planner.c (plan.h) places it.

#include <jansson.h>

#include <penstock/description.h>

#include "../base/str.h"
#include "plan.h"

// --- issues -----------------------------------------------------------------

// Append an issue; line and column are looked up in `desc` (NULL: none).
PEN_PRINTF(7, 8) void
stk_issue_add(struct pen_issues *issues, const struct pen_description *desc,
              enum pen_severity severity, const char *code,
              const char *pointer, const char *suggestion,
              const char *format, ...);

// --- positions --------------------------------------------------------------

// Line and column of every JSON pointer of a text; also finds what jansson
// does not tell apart: duplicate keys, depth, NaN and Infinity.
struct stk_positions;
PEN_NODISCARD enum pen_status
stk_positions_scan(const char *text, size_t length, const char *name,
                   struct stk_positions **out, struct pen_issues *issues,
                   struct pen_error *err);
// False if there is no such pointer. Of an object's member the key's place.
bool stk_positions_find(const struct stk_positions *p, const char *pointer,
                        int *line, int *column);
void stk_positions_destroy(struct stk_positions **p);

// --- description ------------------------------------------------------------

struct stk_desc_module {
    const char *id, *type;
    json_t *props;         // borrowed from root; NULL if there are none
    const char *pointer;   // "/modules/blur" (escaped as RFC 6901)
};
struct stk_desc_connection {
    const char *from, *from_pin;  // pin NULL: not named
    const char *to, *to_pin;
    bool sieve;
    int32_t depth;                // 0: not given
    enum stk_policy policy;
    const char *pointer;          // "/connections/0"
};
struct pen_description {
    struct stk_arena arena;
    const char *file;             // name for messages
    const char *name;
    const char *device;           // settings.device; "auto"
    int32_t queue_depth;          // settings.queue_depth; 0: not given
    bool auto_bridge;
    const char *streams;          // settings.cuda.streams; "shared"
    const char *on_error;         // settings.onError; NULL: not given
    uint64_t budget[PEN_MEM_COUNT];  // 0: not given
    int32_t h2d_per_frame, d2h_per_frame;  // -1: not given
    json_t *root;
    struct stk_positions *positions;
    struct stk_desc_module *modules;       // in the order of the file
    uint32_t module_count;
    struct stk_desc_connection *connections;
    uint32_t connection_count;
};

// --- properties -------------------------------------------------------------

// Fill `params` (zeroed, of the table's struct) with defaults, then with what
// `props` says; complaints go to `issues` under `pointer`/props/KEY. `base`
// is the table of base properties, parsed into `base_params`. Strings go to
// `arena`. Returns the number of errors.
size_t stk_props_parse(const struct pen_prop *table, void *params,
                       struct stk_base_params *base_params, json_t *props,
                       const char *pointer, const struct pen_description *desc,
                       struct stk_arena *arena, struct pen_issues *issues,
                       const char *type_name);
// The table of base properties (offsets into struct stk_base_params).
const struct pen_prop *stk_base_props(void);
// Set one property from text ("HostToDevice", "15", "RGB"): for aliases and
// for inserted bridges. PEN_E_CONFIG if it does not fit.
PEN_NODISCARD enum pen_status stk_prop_set_text(const struct pen_prop *table,
                                                void *params, const char *key,
                                                const char *value,
                                                struct stk_arena *arena,
                                                struct pen_error *err);
// The value of a property as JSON (new reference; NULL: out of memory).
json_t *stk_prop_get_json(const struct pen_prop *row, const void *params);

// --- the checked graph ------------------------------------------------------

struct stk_node {
    const struct stk_desc_module *desc;
    const struct pen_module_class *cls;
    void *params;
    struct stk_base_params base;
    struct pen_pin_set in[PEN_MAX_PINS], out[PEN_MAX_PINS];  // narrowed
    uint32_t inputs, outputs;
};
struct stk_edge {
    const struct stk_desc_connection *desc;
    uint32_t from, from_pin, to, to_pin;
};
struct stk_graph {
    struct stk_node *nodes;   // topological order
    uint32_t node_count;
    struct stk_edge *edges;
    uint32_t edge_count;
};

// Resolve types, pins and properties, check all that needs no placement. All
// errors go to `issues`; PEN_E_CONFIG if there are any. The graph lives in
// `arena`.
PEN_NODISCARD enum pen_status
stk_graph_resolve(const struct pen_description *desc,
                  const struct pen_registry *registry, struct stk_arena *arena,
                  struct stk_graph **out, struct pen_issues *issues,
                  struct pen_error *err);

#endif  // STK_GRAPH_H
