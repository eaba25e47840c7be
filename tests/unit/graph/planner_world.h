#ifndef PLANNER_WORLD_H
#define PLANNER_WORLD_H

// Classes whose pins a test writes down in the file: what they take and give
// is "mem" and "formats", so that any graph can be asked of the planner. None
// of them runs.

#include <stdio.h>

#include <penstock/registry.h>

#include "src/graph/graph.h"
#include "src/graph/plan.h"
#include "tests/support/pen_test.h"

#define WORLD_RAW     PEN_KIND_BIT(PEN_KIND_RAW_IMAGE)
#define WORLD_ENCODED PEN_KIND_BIT(PEN_KIND_ENCODED_IMAGE)
#define WORLD_FRAME   PEN_KIND_BIT(PEN_KIND_FRAME)
#define WORLD_MEMS                                                             \
    (PEN_MEM_BITS_HOST | PEN_MEM_BIT(PEN_MEM_CUDA_DEVICE) |                    \
     PEN_MEM_BIT(PEN_MEM_DMABUF))
#define WORLD_FORMATS                                                          \
    (PEN_FMT_BITS_ALL11 | PEN_FMT_BITS_BAYER8 | PEN_FMT_BIT(PEN_FMT_BAYERBG10))
#define WORLD_CUDA PEN_MEM_BIT(PEN_MEM_CUDA_DEVICE)

struct world_params {
    const char *mem, *formats;  // of all pins: "HOST|CUDA_DEVICE", "RGB|NV12"
    const char *range;          // of a source: "full", "limited"
    const char *path, *target;  // a path that is read, one that is written
    int32_t width, height, bytes;
    int32_t limit;       // wider pictures are refused; 0: none
    const char *refuse;  // formats that negotiate refuses
};
struct world_copy {
    int32_t kind;
};
struct world_convert {
    int32_t image_type;
};

enum { WORLD_H2D, WORLD_D2H };

// Calls of the pure functions, so that tests can count the planner's work.
extern unsigned world_negotiated, world_probed;
// What the next probe finds.
extern struct pen_probe world_probe;
extern enum pen_status world_probe_status;

#define P struct world_params
// clang-format off
#define WORLD_COMMON                                                           \
    PEN_STRING(P, mem, "mem", "HOST", "Memory types."),                        \
    PEN_STRING(P, formats, "formats", "RGB", "Pixel formats."),                \
    PEN_STRING(P, refuse, "refuse", "", "Formats refused in the end."),        \
    PEN_I32(P, limit, "limit", 0, 0, 1 << 30, "Widest picture."),              \
    PEN_STRING(P, path, "path", "", "A path.", .flags = PEN_PROP_PATH_READ),   \
    PEN_STRING(P, target, "target", "", "Another.",                            \
               .flags = PEN_PROP_PATH_WRITE)
static const struct pen_prop world_props[] = { WORLD_COMMON, PEN_PROPS_END };
static const struct pen_prop world_source_props[] = {
    WORLD_COMMON,
    PEN_STRING(P, range, "range", "", "full or limited."),
    PEN_I32(P, width, "width", 64, 0, 1 << 30, "Pixels; 0: unknown."),
    PEN_I32(P, height, "height", 48, 0, 1 << 30, "Pixels; 0: unknown."),
    PEN_I32(P, bytes, "bytes", 0, 0, 1 << 30, "Of an encoded frame."),
    PEN_PROPS_END,
};
static const struct pen_choice world_kinds[] = {
    { "HostToDevice", WORLD_H2D, "upload" },
    { "DeviceToHost", WORLD_D2H, "download" },
    { 0 },
};
static const struct pen_prop world_copy_props[] = {
    PEN_ENUM(struct world_copy, kind, "kind", WORLD_H2D, world_kinds,
             "Direction.", .flags = PEN_PROP_REQUIRED),
    PEN_PROPS_END,
};
static const struct pen_choice world_outputs[] = {
    { "HOST", PEN_MEM_HOST, "" },
    { "HOST_PINNED", PEN_MEM_HOST_PINNED, "" },
    { "DEVICE", PEN_MEM_CUDA_DEVICE, "" },
    { "DMA", PEN_MEM_DMABUF, "" },
    { 0 },
};
static const struct pen_prop world_memory_props[] = {
    PEN_ENUM(struct world_copy, kind, "outputMemType", PEN_MEM_HOST,
             world_outputs, "Memory.", .flags = PEN_PROP_REQUIRED),
    PEN_PROPS_END,
};
static const struct pen_choice world_targets[] = {
    { "RGB", PEN_FMT_RGB, "" },       { "BGR", PEN_FMT_BGR, "" },
    { "RGBA", PEN_FMT_RGBA, "" },     { "BGRA", PEN_FMT_BGRA, "" },
    { "MONO", PEN_FMT_MONO, "" },     { "NV12", PEN_FMT_NV12, "" },
    { "YUV420", PEN_FMT_YUV420, "" }, { "YUV444", PEN_FMT_YUV444, "" },
    { "UYVY", PEN_FMT_UYVY, "" },     { "YUYV", PEN_FMT_YUYV, "" },
    { "YUV411_I", PEN_FMT_YUV411_I, "" },
    { 0 },
};
static const struct pen_prop world_convert_props[] = {
    PEN_ENUM(struct world_convert, image_type, "imageType", PEN_FMT_RGB,
             world_targets, "Target.", .flags = PEN_PROP_REQUIRED),
    PEN_PROPS_END,
};
// clang-format on
#undef P

static inline uint32_t world_mask(const char *text, bool mem)
{
    uint32_t mask = 0;
    char word[32];
    while (*text) {
        const size_t n = strcspn(text, "|");
        snprintf(word, sizeof(word), "%.*s", (int)n, text);
        text += n + (text[n] == '|');
        if (!mem && !strcmp(word, "ALL"))
            mask |= PEN_FMT_BITS_ALL11;
        else if (!mem)
            mask |= PEN_FMT_BIT(pen_format_from_name(word));
        for (unsigned m = 1; mem && m < PEN_MEM_COUNT; m++)
            if (!strcmp(word, pen_mem_name((enum pen_mem_type)m)))
                mask |= PEN_MEM_BIT(m);
    }
    return mask & ~1u;
}

static inline void world_narrow(const void *params, struct pen_pin_set *in,
                                struct pen_pin_set *out)
{
    const struct world_params *p = params;
    for (unsigned i = 0; i < PEN_MAX_PINS; i++) {
        if (in[i].mem)
            in[i].mem = world_mask(p->mem, true);
        if (in[i].formats)
            in[i].formats = world_mask(p->formats, false);
        if (out[i].mem)
            out[i].mem = world_mask(p->mem, true);
        if (out[i].formats)
            out[i].formats = world_mask(p->formats, false);
    }
}

static inline enum pen_status world_source(const void *params,
                                           const struct pen_caps *in,
                                           struct pen_caps *out,
                                           struct pen_error *err)
{
    const struct world_params *p = params;
    (void)in;
    (void)err;
    world_negotiated++;
    out[0].kind = PEN_KIND_RAW_IMAGE;
    out[0].formats = world_mask(p->formats, false);
    out[0].width = p->width;
    out[0].height = p->height;
    if (!strcmp(p->range, "full"))
        out[0].range = PEN_RANGE_FULL;
    if (!strcmp(p->range, "limited"))
        out[0].range = PEN_RANGE_LIMITED;
    return PEN_OK;
}

static inline enum pen_status world_encoded(const void *params,
                                            const struct pen_caps *in,
                                            struct pen_caps *out,
                                            struct pen_error *err)
{
    const struct world_params *p = params;
    (void)in;
    (void)err;
    world_negotiated++;
    out[0].kind = PEN_KIND_ENCODED_IMAGE;
    out[0].codec = PEN_CODEC_JPEG;
    out[0].bytes = (size_t)p->bytes;
    return PEN_OK;
}

static inline enum pen_status world_work(const void *params,
                                         const struct pen_caps *in,
                                         struct pen_caps *out,
                                         struct pen_error *err)
{
    const struct world_params *p = params;
    (void)out;
    world_negotiated++;
    if (p->limit && in[0].width > p->limit)
        return pen_error_set(err, PEN_E_LIMIT, 0, "", "%d is wider than %d",
                             in[0].width, p->limit);
    if (in[0].format &&
        (world_mask(p->refuse, false) & PEN_FMT_BIT(in[0].format)))
        return pen_error_set(err, PEN_E_CONFIG, 0, "", "no %s today",
                             pen_format_info(in[0].format)->name);
    return PEN_OK;
}

static inline enum pen_status world_decode(const void *params,
                                           const struct pen_caps *in,
                                           struct pen_caps *out,
                                           struct pen_error *err)
{
    (void)params;
    (void)err;
    world_negotiated++;
    out[0] = (struct pen_caps){
        .kind = PEN_KIND_RAW_IMAGE,
        .format = in[0].format,
        .width = in[0].width,
        .height = in[0].height,
    };
    return PEN_OK;
}

static inline enum pen_status world_encode(const void *params,
                                           const struct pen_caps *in,
                                           struct pen_caps *out,
                                           struct pen_error *err)
{
    (void)params;
    (void)err;
    world_negotiated++;
    out[0].kind = PEN_KIND_ENCODED_IMAGE;
    out[0].codec = PEN_CODEC_JPEG;
    out[0].bytes = (size_t)in[0].width * (size_t)in[0].height * 3;
    return PEN_OK;
}

static inline enum pen_status
world_look(const void *params, struct pen_probe *probe, struct pen_error *err)
{
    (void)params;
    world_probed++;
    if (world_probe_status != PEN_OK)
        return pen_error_set(err, world_probe_status, 0, "", "no such file");
    const unsigned limit = probe->limit;
    *probe = world_probe;
    probe->limit = limit;
    return PEN_OK;
}

static inline void world_copy_narrow(const void *params, struct pen_pin_set *in,
                                     struct pen_pin_set *out)
{
    const struct world_copy *p = params;
    in[0].mem = p->kind == WORLD_H2D ? PEN_MEM_BITS_HOST : WORLD_CUDA;
    out[0].mem = p->kind == WORLD_H2D ? WORLD_CUDA : PEN_MEM_BITS_HOST;
}

static inline void world_memory_narrow(const void *params,
                                       struct pen_pin_set *in,
                                       struct pen_pin_set *out)
{
    const struct world_copy *p = params;
    out[0].mem = PEN_MEM_BIT(p->kind);
    in[0].mem = p->kind == PEN_MEM_CUDA_DEVICE ? WORLD_CUDA : PEN_MEM_BITS_HOST;
    if (p->kind == PEN_MEM_DMABUF)
        in[0].mem |= PEN_MEM_BIT(PEN_MEM_DMABUF);
}

static inline void world_convert_narrow(const void *params,
                                        struct pen_pin_set *in,
                                        struct pen_pin_set *out)
{
    const struct world_convert *p = params;
    (void)in;
    out[0].formats &= PEN_FMT_BIT(p->image_type);
}

static inline enum pen_status world_convert(const void *params,
                                            const struct pen_caps *in,
                                            struct pen_caps *out,
                                            struct pen_error *err)
{
    const struct world_convert *p = params;
    (void)in;
    (void)err;
    world_negotiated++;
    out[0].format = (enum pen_format)p->image_type;
    out[0].formats = 0;
    return PEN_OK;
}

// clang-format off
#define WORLD_PIN(NAME, KINDS, MEM, FORMATS)                                   \
    { .name = NAME, .help = "A pin.", .kinds = KINDS, .mem = MEM,              \
      .formats = FORMATS }
#define WORLD_PINS(name, ...)                                                  \
    static const struct pen_pin name[] = { __VA_ARGS__, { 0 } }
WORLD_PINS(world_in, WORLD_PIN("input", WORLD_RAW, WORLD_MEMS, WORLD_FORMATS));
WORLD_PINS(world_out,
           WORLD_PIN("output", WORLD_RAW, WORLD_MEMS, WORLD_FORMATS));
WORLD_PINS(world_in2,
           WORLD_PIN("input_1", WORLD_RAW, WORLD_MEMS, WORLD_FORMATS),
           WORLD_PIN("input_2", WORLD_RAW, WORLD_MEMS, WORLD_FORMATS));
WORLD_PINS(world_out2,
           WORLD_PIN("output_1", WORLD_RAW, WORLD_MEMS, WORLD_FORMATS),
           WORLD_PIN("output_2", WORLD_RAW, WORLD_MEMS, WORLD_FORMATS));
WORLD_PINS(world_any_in,
           WORLD_PIN("input", WORLD_RAW | WORLD_ENCODED | WORLD_FRAME,
                     WORLD_MEMS, WORLD_FORMATS));
WORLD_PINS(world_any_out,
           WORLD_PIN("output", WORLD_RAW | WORLD_ENCODED | WORLD_FRAME,
                     WORLD_MEMS, WORLD_FORMATS));
WORLD_PINS(world_file_in,
           WORLD_PIN("input", WORLD_ENCODED, PEN_MEM_BITS_HOST, 0));
WORLD_PINS(world_file_out,
           WORLD_PIN("output", WORLD_ENCODED, PEN_MEM_BIT(PEN_MEM_HOST), 0));
WORLD_PINS(world_host_in, WORLD_PIN("input", WORLD_RAW, PEN_MEM_BITS_HOST,
                                    WORLD_FORMATS));
WORLD_PINS(world_host_out,
           WORLD_PIN("output", WORLD_RAW, PEN_MEM_BIT(PEN_MEM_HOST),
                     PEN_FMT_BITS_ALL11));
WORLD_PINS(world_cuda_in,
           WORLD_PIN("input", WORLD_RAW, WORLD_CUDA, WORLD_FORMATS));
WORLD_PINS(world_cuda_out,
           WORLD_PIN("output", WORLD_RAW, WORLD_CUDA, PEN_FMT_BITS_ALL11));

#define WORLD_CLASS(NAME, CATEGORY)                                            \
    .abi = PEN_MODULE_ABI, .size = sizeof(struct pen_module_class),            \
    .name = NAME, .version = "1.0", .summary = "A class of the tests",         \
    .category = PEN_CATEGORY_##CATEGORY
#define WORLD_PARAMS(PROPS)                                                    \
    .props = PROPS, .params_size = sizeof(struct world_params),                \
    .ops.narrow = world_narrow
#define WORLD_TAGS(...) .tags = (const char *const[]){ __VA_ARGS__, NULL }

static const struct pen_module_class world_classes[] = {
    { WORLD_CLASS("Source", SOURCE), .outputs = world_out,
      WORLD_PARAMS(world_source_props), .ops.negotiate = world_source,
      .ops.probe = world_look },
    { WORLD_CLASS("CudaSource", SOURCE), .flags = PEN_CLASS_CUDA,
      .outputs = world_out, WORLD_PARAMS(world_source_props),
      .ops.negotiate = world_source },
    { WORLD_CLASS("Reader", SOURCE), .outputs = world_file_out,
      WORLD_PARAMS(world_source_props), .ops.negotiate = world_encoded,
      .ops.probe = world_look },
    { WORLD_CLASS("Decoder", TRANSFORM), .inputs = world_file_in,
      .outputs = world_out, WORLD_PARAMS(world_props),
      .ops.negotiate = world_decode },
    { WORLD_CLASS("Encoder", TRANSFORM), .inputs = world_host_in,
      .outputs = world_file_out, WORLD_PARAMS(world_props),
      .ops.negotiate = world_encode },
    { WORLD_CLASS("Work", TRANSFORM), .inputs = world_in, .outputs = world_out,
      WORLD_TAGS("function:work", "backend:cpu"),
      WORLD_PARAMS(world_props), .ops.negotiate = world_work },
    { WORLD_CLASS("CudaWork", TRANSFORM), .flags = PEN_CLASS_CUDA,
      .inputs = world_in, .outputs = world_out,
      WORLD_TAGS("function:work", "backend:cuda"),
      WORLD_PARAMS(world_props), .ops.negotiate = world_work },
    { WORLD_CLASS("Pass", UTILITY), .flags = PEN_CLASS_FORWARDS,
      .inputs = world_in, .outputs = world_out, WORLD_PARAMS(world_props) },
    { WORLD_CLASS("Join", UTILITY), .inputs = world_in2, .outputs = world_out,
      WORLD_PARAMS(world_props), .ops.negotiate = world_work },
    { WORLD_CLASS("PassJoin", UTILITY), .flags = PEN_CLASS_FORWARDS,
      .inputs = world_in2, .outputs = world_out, WORLD_PARAMS(world_props) },
    { WORLD_CLASS("Split", UTILITY), .inputs = world_in,
      .outputs = world_out2, WORLD_PARAMS(world_props),
      .ops.negotiate = world_work },
    { WORLD_CLASS("Sink", SINK), .inputs = world_in,
      WORLD_PARAMS(world_props), .ops.negotiate = world_work },
    { WORLD_CLASS("AnySink", SINK), .inputs = world_any_in,
      WORLD_PARAMS(world_props) },
    { WORLD_CLASS("CudaMemCopy", UTILITY),
      .flags = PEN_CLASS_CUDA | PEN_CLASS_BRIDGE,
      WORLD_TAGS("function:copy", "backend:cuda"),
      .inputs = world_any_in, .outputs = world_any_out,
      .props = world_copy_props, .params_size = sizeof(struct world_copy),
      .ops.narrow = world_copy_narrow },
    { WORLD_CLASS("MemTypeConversion", UTILITY), .flags = PEN_CLASS_BRIDGE,
      WORLD_TAGS("function:copy", "backend:cpu"),
      .inputs = world_any_in, .outputs = world_any_out,
      .props = world_memory_props, .params_size = sizeof(struct world_copy),
      .ops.narrow = world_memory_narrow },
    { WORLD_CLASS("HostConvert", TRANSFORM), .flags = PEN_CLASS_BRIDGE,
      WORLD_TAGS("function:color", "backend:cpu"),
      .inputs = world_host_in, .outputs = world_host_out,
      .props = world_convert_props,
      .params_size = sizeof(struct world_convert),
      .ops.narrow = world_convert_narrow, .ops.negotiate = world_convert },
    { WORLD_CLASS("CudaConvert", TRANSFORM),
      .flags = PEN_CLASS_CUDA | PEN_CLASS_BRIDGE,
      WORLD_TAGS("function:color", "backend:cuda"),
      .inputs = world_cuda_in, .outputs = world_cuda_out,
      .props = world_convert_props,
      .params_size = sizeof(struct world_convert),
      .ops.narrow = world_convert_narrow, .ops.negotiate = world_convert },
};
// clang-format on
enum { WORLD_COUNT = sizeof(world_classes) / sizeof(world_classes[0]) };

// Classes that a test adds to the world; NULL: none.
static const struct pen_module_class *world_extra[4];

// A registry of the classes whose names are not in `without` ("|" between).
static inline struct pen_registry *world_registry(const char *without)
{
    struct pen_registry *registry = NULL;
    struct pen_error err = { 0 };
    assert_int_equal(stk_registry_new(&registry, &err), PEN_OK);
    for (unsigned i = 0; i < WORLD_COUNT; i++) {
        if (without && strstr(without, world_classes[i].name))
            continue;
        if (pen_registry_add(registry, &world_classes[i], &err) != PEN_OK)
            fail_msg("%s: %s", world_classes[i].name, err.text);
    }
    for (unsigned i = 0; i < 4; i++)
        if (world_extra[i] &&
            pen_registry_add(registry, world_extra[i], &err) != PEN_OK)
            fail_msg("%s: %s", world_extra[i]->name, err.text);
    return registry;
}

// --- pipeline texts ----------------------------------------------------------

// "id: type {props}" and "from -> to", one each.
#define MOD(id, type, ...)                                                     \
    "'" id "': { 'type': '" type "', 'props': { " __VA_ARGS__ " } }"
#define TO(from, to) "{ 'from': '" from "', 'to': '" to "' }"
#define PIPE(modules, connections)                                             \
    "{ 'modules': { " modules " }, 'connections': [ " connections " ] }"
#define SET(settings, modules, connections)                                    \
    "{ 'settings': { " settings " }, 'modules': { " modules                    \
    " }, 'connections': [ " connections " ] }"
#define CUDA "'mem': 'CUDA_DEVICE', "
#define RGB  "'formats': 'RGB'"
#define ALL  "'formats': 'ALL'"

// --- planning a text --------------------------------------------------------

struct world {
    struct pen_registry *registry;
    struct pen_description *desc;
    struct pen_issues *issues;
    struct pen_plan *plan;
    struct pen_error err;
    enum pen_status status;
};

// Plan `text`, in which ' stands for "; budgets do not depend on the machine.
static inline void world_plan_with(struct world *w, const char *text,
                                   const struct pen_plan_params *params,
                                   const char *without)
{
    static struct pen_profile profile;
    struct pen_plan_params all = { 0 };
    char *json = strdup(text);
    assert_non_null(json);
    for (char *c = json; *c; c++)
        if (*c == '\'')
            *c = '"';
    *w = (struct world){ .registry = world_registry(without) };
    w->issues = pen_issues_create();
    assert_non_null(w->issues);
    if (pen_description_parse(json, strlen(json), "test.json", &w->desc,
                              w->issues, &w->err) != PEN_OK)
        fail_msg("%s\n%s", w->err.text, json);
    free(json);
    if (params)
        all = *params;
    profile = all.profile ? *all.profile : *pen_profile_builtin("generic-cuda");
    if (!profile.host_memory)
        profile.host_memory = (uint64_t)16 << 30;
    if (!profile.cuda_memory)
        profile.cuda_memory = (uint64_t)8 << 30;
    all.profile = &profile;
    w->status = pen_plan_create(w->desc, w->registry, &all, &w->plan, w->issues,
                                &w->err);
    assert_true((w->status == PEN_OK) == (w->plan != NULL));
}

static inline void world_plan(struct world *w, const char *text)
{
    world_plan_with(w, text, NULL, NULL);
    if (w->status != PEN_OK)
        fail_msg("%s: %s", w->err.where, w->err.text);
}

static inline void world_finish(struct world *w)
{
    pen_plan_destroy(&w->plan);
    pen_description_destroy(&w->desc);
    pen_issues_destroy(&w->issues);
    pen_registry_destroy(&w->registry);
}

static inline const struct pen_issue *world_issue(const struct world *w,
                                                  const char *code)
{
    const struct pen_issue *issue;
    for (size_t i = 0; (issue = pen_issues_get(w->issues, i)); i++)
        if (!strcmp(issue->code, code))
            return issue;
    return NULL;
}

static inline unsigned world_issues(const struct world *w, const char *code)
{
    unsigned count = 0;
    const struct pen_issue *issue;
    for (size_t i = 0; (issue = pen_issues_get(w->issues, i)); i++)
        count += !strcmp(issue->code, code);
    return count;
}

static inline const struct stk_plan_node *world_node(const struct world *w,
                                                     const char *id)
{
    for (uint32_t n = 0; n < w->plan->node_count; n++)
        if (!strcmp(w->plan->nodes[n].id, id))
            return &w->plan->nodes[n];
    fail_msg("no node %s", id);
    return NULL;
}

static inline uint32_t world_number(const struct world *w, const char *id)
{
    return (uint32_t)(world_node(w, id) - w->plan->nodes);
}

// The edge into the first input of a node.
static inline const struct stk_plan_edge *world_edge(const struct world *w,
                                                     const char *id)
{
    const struct stk_plan_node *node = world_node(w, id);
    assert_true(node->in_edge[0] >= 0);
    return &w->plan->edges[node->in_edge[0]];
}

static inline unsigned world_inserted(const struct world *w, const char *type)
{
    unsigned count = 0;
    for (uint32_t n = 0; n < w->plan->node_count; n++)
        count += w->plan->nodes[n].inserted &&
                 (!type || !strcmp(w->plan->nodes[n].type, type));
    return count;
}

#endif  // PLANNER_WORLD_H
