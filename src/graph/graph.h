#ifndef STK_GRAPH_H
#define STK_GRAPH_H

// From text to a checked graph. description.c reads the file, validate.c
// resolves and checks it, planner.c (plan.h) places it.

#include <penstock/description.h>

#include "../base/str.h"
#include "json.h"
#include "plan.h"

// --- issues -----------------------------------------------------------------

// Append an issue; line and column are looked up in `desc` (NULL: none).
PEN_PRINTF(7, 8)
void stk_issue_add(struct pen_issues *issues,
                   const struct pen_description *desc,
                   enum pen_severity severity, const char *code,
                   const char *pointer, const char *suggestion,
                   const char *format, ...);
// The same at a place that is known already.
PEN_PRINTF(8, 9)
void stk_issue_add_at(struct pen_issues *issues, enum pen_severity severity,
                      const char *code, int line, int column,
                      const char *pointer, const char *suggestion,
                      const char *format, ...);
// Append copies of all issues of `from`.
void stk_issues_append(struct pen_issues *to, const struct pen_issues *from);
// Adding never fails at the spot: that memory ran out is remembered, and
// whoever was asked to check something returns PEN_E_NOMEM in the end.
void stk_issues_fail(struct pen_issues *issues);
bool stk_issues_failed(const struct pen_issues *issues);
// The status of a check that began when there were `before` errors: PEN_OK,
// PEN_E_NOMEM, or PEN_E_CONFIG with the first error in `err`.
PEN_NODISCARD enum pen_status stk_issues_status(const struct pen_issues *issues,
                                                size_t before,
                                                struct pen_error *err);
// Append copies of those issues of `from` that `to` has not got.
void stk_issues_merge(struct pen_issues *to, const struct pen_issues *from);
// The list as an array (new reference; NULL: out of memory). `issues` may be
// NULL.
json_t *stk_issues_json(const struct pen_issues *issues);

// What check() of a class complains to.
struct pen_check {
    struct pen_issues *issues;
    const struct pen_description *desc;
    const char *pointer;  // of the module
    size_t errors;
};

// --- positions --------------------------------------------------------------

// Line and column of every JSON pointer of a text. The scan also makes the
// values (*root, may be NULL; new reference): jansson's own reader drops
// characters without a word when memory runs out, and does not tell apart
// what went wrong where. Any value may stand at the top. Complaints are E000
// (syntax, stops the scan) and E002 (duplicate keys).
// Errors: PEN_E_CONFIG, PEN_E_LIMIT more than STK_MAX_VALUES, PEN_E_NOMEM.
struct stk_positions;
enum { STK_MAX_DEPTH = 256, STK_MAX_VALUES = 8 << 20 };
PEN_NODISCARD enum pen_status
stk_positions_scan(const char *text, size_t length, const char *name,
                   struct stk_positions **out, json_t **root,
                   struct pen_issues *issues, struct pen_error *err);
// Look up the first `length` bytes of `pointer`; false if there is no such
// pointer. Of an object's member it is the key's place.
bool stk_positions_find(const struct stk_positions *p, const char *pointer,
                        size_t length, int *line, int *column);
void stk_positions_destroy(struct stk_positions **p);

// `base` + "/" + `key`, escaped as RFC 6901 wants; NULL: out of memory.
char *stk_pointer_join(struct stk_arena *arena, const char *base,
                       const char *key);

// --- description ------------------------------------------------------------

struct stk_desc_module {
    const char *id, *type;  // type "": the entry is broken, and that is told
    json_t *props;          // borrowed from root; NULL if there are none
    const char *pointer;    // "/modules/blur" (escaped as RFC 6901)
};
struct stk_desc_connection {
    const char *from, *from_pin;  // pin NULL: not named
    const char *to, *to_pin;
    bool sieve;
    int32_t depth;  // 0: not given
    enum stk_policy policy;
    const char *pointer;  // "/connections/0"
};
// What to do when the pools for uploads are over the budget of pinned memory.
enum stk_pinned_limit { STK_PINNED_REFUSE = 0, STK_PINNED_STAGE };

struct pen_description {
    struct stk_arena arena;
    const char *file;  // name for messages
    const char *name;
    const char *device;   // settings.device; "auto"
    int32_t queue_depth;  // settings.queue_depth; 0: not given
    bool auto_bridge;
    enum stk_pinned_limit pinned_limit;
    const char *on_error;                  // settings.onError; NULL: not given
    uint64_t budget[PEN_MEM_COUNT];        // 0: not given
    int32_t h2d_per_frame, d2h_per_frame;  // -1: not given
    json_t *root;
    struct stk_positions *positions;
    struct pen_issues *issues;  // of the shape; told by resolve
    bool incomplete;            // a connection could not be read: what
                                // is not connected is no news
    const char **overridden;    // pointers that pen_description_set gave
    uint32_t overridden_count;
    struct stk_desc_module *modules;  // in the order of the file
    uint32_t module_count;
    struct stk_desc_connection *connections;
    uint32_t connection_count;
};

// --- properties -------------------------------------------------------------

// Fill `params` (zeroed, of the table's struct) with defaults, then with what
// `props` says; complaints go to `issues` under `pointer`/props/KEY. `base`
// is filled from the table of base properties (and the settings' onError).
// Strings go to `arena`. Returns the number of errors; that memory ran out is
// remembered in `issues`.
size_t stk_props_parse(const struct pen_prop *table, void *params,
                       struct stk_base_params *base_params, json_t *props,
                       const char *pointer, const struct pen_description *desc,
                       struct stk_arena *arena, struct pen_issues *issues,
                       const char *type_name);
// The same for one of the classes that a generic type stands for: what it does
// not know is no error where another one knows it and the value is what that
// one has anyway. Names are looked for among the properties of all.
struct stk_props_job {
    const struct pen_prop *table;
    json_t *props;
    const char *pointer, *type_name;
    const struct pen_module_class *const *classes;  // NULL: a plain type
    size_t class_count;
    const struct pen_alias *preset;  // of the type; NULL: none
};
size_t stk_props_read(const struct stk_props_job *job, void *params,
                      struct stk_base_params *base_params,
                      const struct pen_description *desc,
                      struct stk_arena *arena, struct pen_issues *issues);
// Append `, "props": { ... }` with the properties that must be given, for a
// suggestion; nothing if there are none.
void stk_props_example(struct stk_text *t, const struct pen_prop *table);
// Whether `text` is a policy: "stop", "drop", "retry:n".
bool stk_on_error_valid(const char *text);
// The table of base properties (offsets into struct stk_base_params).
const struct pen_prop *stk_base_props(void);
// Set one property from text ("HostToDevice", "15", "RGB"): for aliases and
// for inserted bridges. PEN_E_CONFIG if it does not fit.
PEN_NODISCARD enum pen_status stk_prop_set_text(const struct pen_prop *table,
                                                void *params, const char *key,
                                                const char *value,
                                                struct stk_arena *arena,
                                                struct pen_error *err);
// The row of a key, or NULL. `table` may be NULL.
const struct pen_prop *stk_prop_find(const struct pen_prop *table,
                                     const char *key);
// The value of a STRING property.
const char *stk_prop_string(const struct pen_prop *row, const void *params);
// The value of a property as JSON (new reference; NULL: out of memory).
json_t *stk_prop_get_json(const struct pen_prop *row, const void *params);

// --- registry ---------------------------------------------------------------

// An empty registry: pen_registry_create() without the built-in classes.
PEN_NODISCARD enum pen_status stk_registry_new(struct pen_registry **out,
                                               struct pen_error *err);
// Class number `i` in alphabetical order, or NULL.
const struct pen_module_class *stk_registry_at(const struct pen_registry *r,
                                               size_t i);
bool stk_class_has_tag(const struct pen_module_class *cls, const char *tag);
// Where a class works: by its tag, else by its flags.
enum stk_backend stk_class_backend(const struct pen_module_class *cls);
const char *stk_backend_name(enum stk_backend backend);  // "cpu", "cuda"
// The generic type that stands for the class, or NULL.
const struct pen_generic_type *
stk_registry_generic_of(const struct pen_registry *r,
                        const struct pen_module_class *cls);

// --- generic types ----------------------------------------------------------

// A type stands for at most so many classes, the first ones by name.
enum { STK_MAX_OPTIONS = 32 };

// The properties of all classes as one table: what any of them takes. Of rows
// that differ in kind the first one's is taken; what one class need not be
// given is not required. `known_by` gets which classes have the row, as bits.
// NULL: out of memory.
struct pen_prop *stk_generic_props(const struct pen_module_class *const *list,
                                   size_t count, uint32_t **known_by,
                                   struct stk_arena *arena);
// Likewise the pins, inputs or outputs.
struct pen_pin *stk_generic_pins(const struct pen_module_class *const *list,
                                 size_t count, bool inputs,
                                 struct stk_arena *arena);

// --- the checked graph ------------------------------------------------------

// One of the classes that a module of a generic type can be made of, with its
// own parameters and pins.
struct stk_option {
    const struct pen_module_class *cls;
    void *params;
    struct stk_base_params base;
    struct pen_pin_set in[PEN_MAX_PINS], out[PEN_MAX_PINS];  // narrowed
};
struct stk_node {
    const struct stk_desc_module *desc;
    // All classes that the type stands for, one for a plain type, in
    // alphabetical order; they have the same pins, by name and number. What
    // follows are those of the first; the planner chooses.
    const struct stk_option *options;
    uint32_t option_count;
    // Of a generic type: its classes that are no options here, with the reason
    // of each ("CCNPPI: ..."); "" if there are none.
    const char *left_out;
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
    struct stk_node *nodes;  // topological order
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

// Most headers of a source that are looked at before the start, and the code
// of what goes wrong with that.
enum { STK_PROBE_LIMIT = 64 };
const char *stk_probe_code(enum pen_status st);
// Warn of what will be the errors of frames (W610).
void stk_probe_tell(const struct pen_probe *probe,
                    const struct pen_description *desc, const char *pointer,
                    struct pen_issues *issues);

#endif  // STK_GRAPH_H
