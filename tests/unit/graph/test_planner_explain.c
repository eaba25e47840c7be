// Why a bridge is there: the constraint, the neighbours, what would remove it,
// and that each number is that of the plan which it speaks of.

#include <time.h>

#include "planner_world.h"

#include "alloc_fail.h"
#include "src/graph/plan_print.h"
#include "src/graph/planner.h"

unsigned world_negotiated, world_probed;
struct pen_probe world_probe;
enum pen_status world_probe_status;

// --- classes of one side, which do the same ----------------------------------

WORLD_PINS(fixed_host_in, WORLD_PIN("input", WORLD_RAW, PEN_MEM_BITS_HOST,
                                    PEN_FMT_BITS_ALL11));
WORLD_PINS(fixed_host_out,
           WORLD_PIN("output", WORLD_RAW, PEN_MEM_BIT(PEN_MEM_HOST),
                     PEN_FMT_BITS_ALL11));
WORLD_PINS(fixed_cuda_in,
           WORLD_PIN("input", WORLD_RAW, WORLD_CUDA, PEN_FMT_BITS_ALL11));
WORLD_PINS(fixed_cuda_out,
           WORLD_PIN("output", WORLD_RAW, WORLD_CUDA, PEN_FMT_BITS_ALL11));

// clang-format off
static const struct pen_prop fixed_props[] = {
    PEN_I32(struct world_copy, kind, "strength", 1, 0, 9, "How much."),
    PEN_PROPS_END,
};
static const struct pen_prop fixed_cuda_props[] = {
    PEN_I32(struct world_copy, kind, "power", 1, 0, 9, "How much."),
    PEN_PROPS_END,
};
// clang-format on

static const struct pen_module_class fixed_host = {
    WORLD_CLASS("FixedHost", TRANSFORM),
    WORLD_TAGS("function:blur", "backend:cpu"),
    .inputs = fixed_host_in,
    .outputs = fixed_host_out,
    .props = fixed_props,
    .params_size = sizeof(struct world_copy),
};
static const struct pen_module_class fixed_cuda = {
    WORLD_CLASS("FixedCuda", TRANSFORM),
    WORLD_TAGS("function:blur", "backend:cuda"),
    .flags = PEN_CLASS_CUDA,
    .inputs = fixed_cuda_in,
    .outputs = fixed_cuda_out,
    .props = fixed_cuda_props,
    .params_size = sizeof(struct world_copy),
};

// A source whose memory is a choice, of which there are many.
// clang-format off
static const struct pen_choice choices[] = {
    { "HOST", PEN_MEM_HOST, "" }, { "DEVICE", PEN_MEM_CUDA_DEVICE, "" },
    { "D1", 101, "" }, { "D2", 102, "" }, { "D3", 103, "" },
    { "D4", 104, "" }, { "D5", 105, "" }, { "D6", 106, "" },
    { "D7", 107, "" }, { "D8", 108, "" }, { "D9", 109, "" },
    { "E1", 110, "" }, { "E2", 111, "" }, { "E3", 112, "" },
    { "E4", 113, "" }, { "E5", 114, "" }, { "E6", 115, "" },
    { "E7", 116, "" }, { "E8", 117, "" }, { "E9", 118, "" },
    { 0 },
};
static const struct pen_prop chooser_props[] = {
    PEN_ENUM(struct world_copy, kind, "memType", PEN_MEM_HOST, choices,
             "Memory."),
    PEN_PROPS_END,
};
// clang-format on

static void chooser_narrow(const void *params, struct pen_pin_set *in,
                           struct pen_pin_set *out)
{
    const struct world_copy *p = params;
    (void)in;
    out[0].formats = PEN_FMT_BIT(PEN_FMT_RGB);
    out[0].mem =
        p->kind == PEN_MEM_HOST ? PEN_MEM_BIT(PEN_MEM_HOST) : WORLD_CUDA;
}

static enum pen_status chooser_negotiate(const void *params,
                                         const struct pen_caps *in,
                                         struct pen_caps *out,
                                         struct pen_error *err)
{
    (void)params;
    (void)in;
    (void)err;
    out[0].kind = PEN_KIND_RAW_IMAGE;
    out[0].format = PEN_FMT_RGB;
    out[0].width = 640;
    out[0].height = 480;
    return PEN_OK;
}

static const struct pen_module_class chooser = {
    WORLD_CLASS("Chooser", SOURCE), .outputs = world_out,
    .props = chooser_props,         .params_size = sizeof(struct world_copy),
    .ops.narrow = chooser_narrow,   .ops.negotiate = chooser_negotiate,
};

// --- asking ------------------------------------------------------------------

static void plan_with(struct world *w, const char *text,
                      const struct pen_module_class *first,
                      const struct pen_module_class *second)
{
    world_extra[0] = first;
    world_extra[1] = second;
    world_plan(w, text);
    world_extra[0] = world_extra[1] = NULL;
}

static json_t *explain(const struct world *w, const char *from_to)
{
    struct pen_error err = { 0 };
    json_error_t why;
    char *text = pen_plan_explain_json(w->plan, from_to, &err);
    if (!text)
        fail_msg("%s: %s", from_to, err.text);
    json_t *root = json_loads(text, JSON_REJECT_DUPLICATES, &why);
    if (!root)
        fail_msg("%s\n%s", why.text, text);
    pen_free(text);
    return root;
}

static char *explain_text(const struct world *w, const char *from_to)
{
    struct pen_error err = { 0 };
    char *text = pen_plan_explain(w->plan, from_to, &err);
    if (!text)
        fail_msg("%s: %s", from_to, err.text);
    return text;
}

static const char *string(const json_t *object, const char *key)
{
    const json_t *value = json_object_get(object, key);
    if (!json_is_string(value))
        fail_msg("%s is no string", key);
    return json_string_value(value);
}

static const json_t *item(const json_t *root, const char *list, size_t i)
{
    const json_t *value = json_array_get(json_object_get(root, list), i);
    if (!value)
        fail_msg("%s has no item %zu", list, i);
    return value;
}

static size_t count(const json_t *root, const char *list)
{
    const json_t *value = json_object_get(root, list);
    assert_true(json_is_array(value));
    return json_array_size(value);
}

static void check_has(const char *text, const char *part)
{
    if (!text || !strstr(text, part))
        fail_msg("\"%s\" is not in\n%s", part, text ? text : "nothing");
}

// The answer to a question; fails if it was not asked.
static const json_t *answer(const json_t *root, const char *list,
                            const char *kind, const char *value)
{
    size_t i;
    const json_t *a;
    json_array_foreach (json_object_get(root, list), i, a) {
        const char *v = json_string_value(json_object_get(a, "value"));
        if (!strcmp(string(a, "kind"), kind) &&
            (!value || (v && !strcmp(v, value))))
            return a;
    }
    char *dump = json_dumps(root, JSON_INDENT(1));
    fail_msg("no %s %s in\n%s", kind, value ? value : "", dump);
    return NULL;
}

static int64_t copied(const struct pen_plan *plan)
{
    return (int64_t)(plan->h2d_bytes_per_frame + plan->d2h_bytes_per_frame +
                     plan->h2h_bytes_per_frame);
}

// The answer says of the other plan what that plan says of itself.
static void check_numbers(const json_t *a, const struct pen_plan *now,
                          const struct pen_plan *then)
{
    const double us = json_real_value(json_object_get(a, "cost_us_per_frame"));
    const double more =
        json_real_value(json_object_get(a, "more_us_per_frame"));
    assert_true(json_is_null(json_object_get(a, "refused")));
    assert_int_equal((int64_t)(us * 1000 + 0.5), then->cost_ns);
    assert_int_equal((int64_t)(more * 1000 + (more < 0 ? -0.5 : 0.5)),
                     then->cost_ns - now->cost_ns);
    assert_int_equal(
        json_integer_value(json_object_get(a, "copied_bytes_per_frame")),
        copied(then));
    assert_int_equal(
        json_integer_value(json_object_get(a, "more_bytes_per_frame")),
        copied(then) - copied(now));
}

static void check_refused(const struct world *w, const char *from_to,
                          enum pen_status status, const char *part)
{
    struct pen_error err = { 0 };
    char *text = pen_plan_explain(w->plan, from_to, &err);
    assert_null(text);
    assert_int_equal(err.status, status);
    check_has(err.text, part);
    assert_null(pen_plan_explain_json(w->plan, from_to, NULL));
}

// --- what forces it ----------------------------------------------------------

static const char *const upload =
    "{ 'modules': {"
    "  's': { 'type': 'Source' },"
    "  'a': { 'type': 'CudaWork', 'props': { 'mem': 'CUDA_DEVICE' } },"
    "  'k': { 'type': 'Sink', 'props': { 'mem': 'CUDA_DEVICE' } } },"
    " 'connections': [ { 'from': 's', 'to': 'a' },"
    "                  { 'from': 'a', 'to': 'k' } ] }";

PEN_TEST(a_copy_is_forced_by_memory_and_the_properties_are_named)
{
    struct world w;
    world_plan(&w, upload);
    json_t *root = explain(&w, "s:a");
    assert_string_equal(string(root, "from"), "s.output");
    assert_string_equal(string(root, "to"), "a.input");
    assert_int_equal(count(root, "bridges"), 1);
    const json_t *b = item(root, "bridges", 0);
    assert_string_equal(string(b, "type"), "CudaMemCopy");
    assert_string_equal(string(b, "does"), "copies to the device");
    assert_string_equal(string(b, "forced_by"),
                        "memory: `a.input` takes CUDA_DEVICE, `s.output` "
                        "gives HOST");
    const json_t *takes = json_object_get(b, "takes");
    assert_string_equal(string(takes, "mem"), "CUDA_DEVICE");
    assert_string_equal(string(takes, "mem_by"), "mem");
    // The default is no restriction that anybody asked for.
    const json_t *gives = json_object_get(b, "gives");
    assert_string_equal(string(gives, "mem"), "HOST");
    assert_true(json_is_null(json_object_get(gives, "mem_by")));
    assert_int_equal(json_integer_value(json_object_get(b, "bytes_read")),
                     192 * 48);
    // 8 us and 9216 bytes at 25 GB/s.
    assert_int_equal(
        (int)(json_real_value(json_object_get(b, "cost_us")) * 1000 + 0.5),
        8369);
    // The way has the memory types of all edges.
    assert_int_equal(count(root, "way"), 2);
    assert_string_equal(string(item(root, "way", 0), "mem"), "HOST_PINNED");
    assert_string_equal(string(item(root, "way", 0), "upgraded_from"), "HOST");
    assert_string_equal(string(item(root, "way", 1), "mem"), "CUDA_DEVICE");
    json_decref(root);
    world_finish(&w);
}

// Plan for a host on which even a small picture takes longer than a launch.
static void on_slow_host(struct world *w, const char *text)
{
    struct pen_profile profile = *pen_profile_builtin("generic-cuda");
    profile.host_rate = 2000;
    const struct pen_plan_params params = { .profile = &profile };
    world_plan_with(w, text, &params, NULL);
}

PEN_TEST(a_conversion_is_forced_by_format_and_tells_where_it_stands)
{
    struct world w;
    on_slow_host(&w,
                 "{ 'modules': {"
                 "  's': { 'type': 'Source', 'props': { 'formats': 'NV12' } },"
                 "  'a': { 'type': 'CudaWork', 'props': {"
                 "         'mem': 'CUDA_DEVICE', 'formats': 'RGB' } },"
                 "  'k': { 'type': 'Sink', 'props': {"
                 "         'mem': 'CUDA_DEVICE' } } },"
                 " 'connections': [ { 'from': 's', 'to': 'a' },"
                 "                  { 'from': 'a', 'to': 'k' } ] }");
    json_t *root = explain(&w, "s:a");
    assert_int_equal(count(root, "bridges"), 2);
    const json_t *copy = item(root, "bridges", 0);
    const json_t *convert = item(root, "bridges", 1);
    assert_string_equal(string(convert, "does"),
                        "converts to RGB, on the device");
    assert_string_equal(string(convert, "forced_by"),
                        "format: `a.input` takes RGB, `s.output` gives NV12");
    assert_string_equal(string(convert, "loss"), "rounding (YUV to RGB)");
    check_has(string(convert, "stands"), "behind the transfer: 4.50 KiB cross");
    check_has(string(convert, "stands"), "9.00 KiB");
    check_has(string(copy, "stands"), "before the conversion");
    assert_string_equal(string(json_object_get(convert, "gives"), "formats_by"),
                        "formats");
    json_decref(root);
    world_finish(&w);
}

PEN_TEST(of_several_formats_those_that_do_not_pass_are_named)
{
    struct world w;
    world_plan(&w, "{ 'modules': {"
                   "  's': { 'type': 'Source', 'props': {"
                   "         'formats': 'RGB|NV12|MONO' } },"
                   "  'k': { 'type': 'Sink', 'props': {"
                   "         'formats': 'RGB|MONO' } } },"
                   " 'connections': [ { 'from': 's', 'to': 'k' } ] }");
    json_t *root = explain(&w, "s:k");
    check_has(string(item(root, "bridges", 0), "forced_by"),
              "and does not take NV12");
    check_has(string(item(root, "bridges", 0), "stands"),
              "both ends are on one side");
    json_decref(root);
    world_finish(&w);
}

PEN_TEST(who_demands_it_behind_a_module_that_passes_on_is_named)
{
    struct world w;
    world_plan(&w, "{ 'modules': {"
                   "  's': { 'type': 'Source' },"
                   "  'p': { 'type': 'Pass', 'props': {"
                   "         'mem': 'HOST|CUDA_DEVICE' } },"
                   "  'q': { 'type': 'Pass', 'props': {"
                   "         'mem': 'HOST|CUDA_DEVICE' } },"
                   "  'k': { 'type': 'Sink', 'props': {"
                   "         'mem': 'CUDA_DEVICE' } },"
                   "  'l': { 'type': 'Sink', 'props': {"
                   "         'mem': 'CUDA_DEVICE', 'formats': 'NV12' } } },"
                   " 'connections': [ { 'from': 's', 'to': 'p' },"
                   "  { 'from': 'p', 'to': 'q' }, { 'from': 'p', 'to': 'k' },"
                   "  { 'from': 'q', 'to': 'l' } ] }");
    // One upload for both, so it stands in front of a module that needs none.
    json_t *root = explain(&w, "p:q");
    const json_t *b = item(root, "bridges", 0);
    assert_string_equal(string(b, "forced_by"),
                        "memory: `q` passes frames on, and `l.input` behind it "
                        "takes CUDA_DEVICE, `p.output` gives HOST");
    assert_string_equal(string(b, "also_serves"), "p.output -> k.input");
    json_decref(root);
    world_finish(&w);
}

PEN_TEST(who_shares_a_bridge_is_named)
{
    struct world w;
    world_plan(&w, "{ 'modules': {"
                   "  's': { 'type': 'Source' },"
                   "  'a': { 'type': 'Sink', 'props': {"
                   "         'mem': 'CUDA_DEVICE' } },"
                   "  'b': { 'type': 'Sink', 'props': {"
                   "         'mem': 'CUDA_DEVICE' } },"
                   "  'c': { 'type': 'Sink' } },"
                   " 'connections': [ { 'from': 's', 'to': 'a' },"
                   "                  { 'from': 's', 'to': 'b' },"
                   "                  { 'from': 's', 'to': 'c' } ] }");
    json_t *root = explain(&w, "s:a");
    assert_string_equal(string(item(root, "bridges", 0), "also_serves"),
                        "s.output -> b.input");
    json_decref(root);
    // The third gets the frames as they are, from a pool made for the upload.
    root = explain(&w, "s:c");
    assert_int_equal(count(root, "bridges"), 0);
    assert_int_equal(count(root, "alternatives"), 0);
    check_has(json_string_value(item(root, "no_bridge", 0)),
              "`c.input` takes HOST, and gets HOST_PINNED of RGB 64x48");
    check_has(json_string_value(item(root, "no_bridge", 0)),
              "the pool of `s.output` was made of that instead of HOST");
    json_decref(root);
    world_finish(&w);
}

PEN_TEST(a_mapped_dmabuf_is_no_copy)
{
    struct world w;
    world_plan(&w, "{ 'modules': {"
                   "  's': { 'type': 'Source', 'props': { 'mem': 'DMABUF' } },"
                   "  'k': { 'type': 'Sink' } },"
                   " 'connections': [ { 'from': 's', 'to': 'k' } ] }");
    json_t *root = explain(&w, "s:k");
    check_has(json_string_value(item(root, "no_bridge", 0)),
              "mapped: no byte is copied");
    assert_string_equal(string(item(root, "way", 0), "how"), "mapped");
    json_decref(root);
    world_finish(&w);
}

PEN_TEST(a_staged_upload_names_the_budget_that_avoids_it)
{
    struct world w;
    world_plan(&w, "{ 'settings': { 'pinned_limit': 'stage',"
                   "                'budget': { 'host_pinned': '20MiB' } },"
                   "  'modules': {"
                   "  's': { 'type': 'Source', 'props': {"
                   "         'width': 1920, 'height': 1080 } },"
                   "  'k': { 'type': 'Sink', 'props': {"
                   "         'mem': 'CUDA_DEVICE' } } },"
                   " 'connections': [ { 'from': 's', 'to': 'k' } ] }");
    json_t *root = explain(&w, "s:k");
    check_has(string(item(root, "bridges", 0), "forced_by"),
              "over the budget of host_pinned");
    const json_t *a = answer(root, "removals", "host_pinned", NULL);
    assert_true(json_is_true(json_object_get(a, "removes")));
    const char *bytes = string(a, "value");
    // With that budget there is no such bridge, with one byte less there is.
    struct pen_plan_params params = { 0 };
    for (unsigned less = 0; less < 2; less++) {
        struct pen_plan *plan = NULL;
        params = w.plan->params;
        params.budget[PEN_MEM_HOST_PINNED] = strtoull(bytes, NULL, 10) - less;
        assert_int_equal(pen_plan_create(w.desc, w.registry, &params, &plan,
                                         w.issues, &w.err),
                         PEN_OK);
        assert_int_equal(plan->h2h_per_frame, less);
        if (!less)
            check_numbers(a, w.plan, plan);
        pen_plan_destroy(&plan);
    }
    json_decref(root);
    world_finish(&w);
}

// --- the next best -----------------------------------------------------------

#define CONVERTED(modules, connections)                                        \
    "{ 'modules': {"                                                           \
    "  's': { 'type': 'Source', 'props': { 'formats': 'NV12' } }," modules     \
    "  'k': { 'type': 'Sink', 'props': {"                                      \
    "         'mem': 'CUDA_DEVICE', 'formats': 'RGB' } } },"                   \
    " 'connections': [ " connections " ] }"

PEN_TEST(without_a_step_the_plan_is_the_next_best_one)
{
    struct world w, other;
    on_slow_host(&w, CONVERTED("", "{ 'from': 's', 'to': 'k' }"));
    json_t *root = explain(&w, "s:k");
    assert_string_equal(string(item(root, "bridges", 1), "does"),
                        "converts to RGB, on the device");
    // On the host in front of the upload, as if the file said so.
    on_slow_host(&other, CONVERTED("'c': { 'type': 'HostConvert', 'props': {"
                                   "         'imageType': 'RGB' } },",
                                   "{ 'from': 's', 'to': 'c' },"
                                   "{ 'from': 'c', 'to': 'k' }"));
    const json_t *a = answer(root, "alternatives", "step", "convert_on_device");
    assert_string_equal(string(a, "module"), "s");
    assert_string_equal(string(a, "bridges"),
                        "HostConvert imageType=\"RGB\" -> CudaMemCopy "
                        "kind=\"HostToDevice\"");
    check_numbers(a, w.plan, other.plan);
    world_finish(&other);
    // What cannot be done without.
    a = answer(root, "alternatives", "step", "to_device");
    check_has(string(a, "refused"),
              "takes CUDA_DEVICE, `s.output` gives HOST, and no bridge leads");
    assert_true(json_is_null(json_object_get(a, "cost_us_per_frame")));
    json_decref(root);
    char *text = explain_text(&w, "s:k");
    check_has(text, "without conversions on the device behind `s.output`");
    check_has(text, "no plan:");
    pen_free(text);
    world_finish(&w);
}

#define BLURRED(type)                                                          \
    "{ 'modules': {"                                                           \
    "  's': { 'type': 'Source' }, 'b': { 'type': '" type "' },"                \
    "  'k': { 'type': 'Sink' } },"                                             \
    " 'connections': [ { 'from': 's', 'to': 'b' },"                            \
    "                  { 'from': 'b', 'to': 'k' } ] }"

PEN_TEST(of_a_generic_type_the_other_class_is_priced)
{
    struct world w, other;
    plan_with(&w, BLURRED("Blur"), &fixed_host, &fixed_cuda);
    const bool host = world_node(&w, "b")->cls == &fixed_host;
    if (host)
        plan_with(&other, BLURRED("FixedCuda"), &fixed_host, &fixed_cuda);
    else
        plan_with(&other, BLURRED("FixedHost"), &fixed_host, &fixed_cuda);
    json_t *root = explain(&w, "s:b");
    const json_t *choice = item(root, "choices", 0);
    assert_string_equal(string(choice, "module"), "b");
    assert_string_equal(string(choice, "class"),
                        host ? "FixedHost" : "FixedCuda");
    assert_string_equal(string(choice, "why"), world_node(&w, "b")->choice);
    const json_t *a =
        answer(root, "alternatives", "class", host ? "FixedHost" : "FixedCuda");
    assert_string_equal(string(a, "module"), "b");
    assert_string_equal(string(a, "note"), host ? "`b` is FixedCuda then"
                                                : "`b` is FixedHost then");
    check_numbers(a, w.plan, other.plan);
    // The device is not had for nothing.
    const double once =
        json_real_value(json_object_get(a, "more_us_once")) * 1000;
    assert_int_equal((int64_t)(once + (once < 0 ? -0.5 : 0.5)),
                     other.plan->once_ns - w.plan->once_ns);
    assert_true(once != 0);
    json_decref(root);
    char *text = explain_text(&w, "s:b");
    check_has(text, "`b` (Blur) as another class than Fixed");
    check_has(text, "once");
    pen_free(text);
    world_finish(&other);
    world_finish(&w);
}

// Three modules, so that frames are worth the way to the device and back.
#define THREE_BLURRED(from, to)                                                \
    "{ 'modules': { " from                                                     \
    "  'a': { 'type': 'Blur' }, 'b': { 'type': 'Blur' },"                      \
    "  'c': { 'type': 'Blur' }, " to                                           \
    "                  { 'from': 'a', 'to': 'b' },"                            \
    "                  { 'from': 'b', 'to': 'c' } ] }"

static const char *const three_of_known_size =
    THREE_BLURRED("'s': { 'type': 'Source', 'props': {"
                  "       'width': 640, 'height': 480 } },",
                  "'k': { 'type': 'Sink' } },"
                  " 'connections': [ { 'from': 's', 'to': 'a' },"
                  "                  { 'from': 'c', 'to': 'k' },");

// "... (31.43 ms)" at the end of a note.
static void last_brackets(const char *note, char *text, size_t size)
{
    const char *open = strrchr(note, '(');
    if (!open || strlen(open) >= size || open[strlen(open) - 1] != ')')
        fail_msg("no number at the end of \"%s\"", note);
    snprintf(text, size, "%.*s", (int)strlen(open) - 2, open + 1);
}

PEN_TEST(what_is_done_once_is_told_where_it_is_what_decides)
{
    struct pen_plan_params params = { .frames = 8 };
    struct world w;
    char whole[40];
    world_extra[0] = &fixed_host;
    world_extra[1] = &fixed_cuda;
    world_plan_with(&w, three_of_known_size, &params, NULL);
    assert_int_equal(w.status, PEN_OK);
    assert_ptr_equal(world_node(&w, "a")->cls, &fixed_host);
    json_t *root = explain(&w, "a:b");
    const json_t *a = answer(root, "alternatives", "class", "FixedHost");
    assert_true(json_real_value(json_object_get(a, "more_us_per_frame")) < 0);
    check_has(string(a, "note"), "it is not taken: over 8 frames, what is done "
                                 "once makes it ");
    check_has(string(a, "note"), " a frame dearer in all (");
    // The number is the one that is told of the choice.
    last_brackets(string(a, "note"), whole, sizeof(whole));
    check_has(world_node(&w, "b")->choice, "with FixedCuda ");
    check_has(strstr(world_node(&w, "b")->choice, "with FixedCuda "), whole);
    json_decref(root);
    world_finish(&w);
    // Over many frames that plan is taken, and nothing is to be excused.
    params.frames = 1000000;
    world_plan_with(&w, three_of_known_size, &params, NULL);
    assert_int_equal(w.status, PEN_OK);
    assert_ptr_equal(world_node(&w, "a")->cls, &fixed_cuda);
    root = explain(&w, "s:a");
    a = answer(root, "alternatives", "step", "to_device");
    assert_null(strstr(string(a, "note"), "it is not taken"));
    json_decref(root);
    world_finish(&w);
    world_extra[0] = world_extra[1] = NULL;
}

PEN_TEST(that_frames_do_not_cross_twice_is_told_however_many_there_are)
{
    static const char *const text =
        "{ 'modules': {"
        "  's': { 'type': 'Source', 'props': { 'formats': 'NV12',"
        "         'width': 640, 'height': 480 } },"
        "  'k': { 'type': 'Sink', 'props': { 'formats': 'RGB' } } },"
        " 'connections': [ { 'from': 's', 'to': 'k' } ] }";
    static const uint64_t frames[] = { 0, 1, 1000000 };
    for (unsigned i = 0; i < 3; i++) {
        struct pen_profile slow = *pen_profile_builtin("generic-cuda");
        slow.host_rate = 100;
        const struct pen_plan_params params = { .profile = &slow,
                                                .frames = frames[i] };
        struct world w;
        world_plan_with(&w, text, &params, NULL);
        assert_int_equal(w.status, PEN_OK);
        json_t *root = explain(&w, "s:k");
        const json_t *a =
            answer(root, "alternatives", "step", "convert_on_host");
        assert_true(json_real_value(json_object_get(a, "more_us_per_frame")) <
                    0);
        check_has(string(a, "note"),
                  "it is not taken: frames are not sent to the other side and "
                  "back");
        json_decref(root);
        world_finish(&w);
    }
}

#define UPLOADED(settings)                                                     \
    "{ 'settings': { " settings " }, 'modules': {"                             \
    "  's': { 'type': 'Source' },"                                             \
    "  'k': { 'type': 'Sink', 'props': { 'mem': 'CUDA_DEVICE' } } },"          \
    " 'connections': [ { 'from': 's', 'to': 'k' } ] }"

PEN_TEST(without_a_pinned_pool_there_is_a_copy_on_the_host)
{
    struct world w, other;
    world_plan(&w, UPLOADED(""));
    world_plan(&other, UPLOADED("'pinned_limit': 'stage',"
                                "'budget': { 'host_pinned': '20KiB' }"));
    assert_int_equal(other.plan->h2h_per_frame, 1);
    json_t *root = explain(&w, "s:k");
    const json_t *a = answer(root, "alternatives", "step", "pinned_pool");
    check_has(string(a, "bridges"), "MemTypeConversion");
    check_numbers(a, w.plan, other.plan);
    json_decref(root);
    world_finish(&other);
    world_finish(&w);
}

// --- what would remove it ----------------------------------------------------

#define DETOUR(type, props)                                                    \
    "{ 'modules': {"                                                           \
    "  's': { 'type': 'Source', 'props': { 'mem': 'CUDA_DEVICE' } },"          \
    "  'c': { 'type': '" type "', 'props': { " props " } },"                   \
    "  'k': { 'type': 'Sink', 'props': { 'mem': 'CUDA_DEVICE' } } },"          \
    " 'connections': [ { 'from': 's', 'to': 'c' },"                            \
    "                  { 'from': 'c', 'to': 'k' } ] }"

PEN_TEST(the_twin_on_the_other_side_is_found_by_its_tags)
{
    struct world w, other;
    plan_with(&w, DETOUR("FixedHost", "'strength': 3"), &fixed_host,
              &fixed_cuda);
    plan_with(&other, DETOUR("FixedCuda", ""), &fixed_host, &fixed_cuda);
    json_t *root = explain(&w, "s:c");
    const json_t *a = answer(root, "removals", "module", "FixedCuda");
    assert_string_equal(string(a, "module"), "c");
    assert_true(json_is_true(json_object_get(a, "removes")));
    assert_string_equal(string(a, "bridges"), "");
    check_has(string(a, "note"), "it has no `strength`");
    check_numbers(a, w.plan, other.plan);
    json_decref(root);
    // It is asked for both ends, and for both bridges of a longer way.
    root = explain(&w, "s:k");
    assert_int_equal(count(root, "bridges"), 2);
    a = answer(root, "removals", "module", "FixedCuda");
    assert_string_equal(string(a, "bridges"), "");
    check_numbers(a, w.plan, other.plan);
    char *text = explain_text(&w, "s:k");
    check_has(text, "FixedCuda for `c` instead of FixedHost");
    check_has(text, "less");
    pen_free(text);
    json_decref(root);
    world_finish(&other);
    world_finish(&w);
}

PEN_TEST(a_twin_that_does_not_help_is_told_as_such)
{
    struct world w;
    // Its work is done on the device only because of its property.
    world_plan(&w, upload);
    json_t *root = explain(&w, "s:a");
    const json_t *a = answer(root, "removals", "module", "Work");
    assert_false(json_is_true(json_object_get(a, "removes")));
    char *text = explain_text(&w, "s:a");
    check_has(text, "nothing that was found");
    check_has(text, "tried in vain");
    pen_free(text);
    json_decref(root);
    world_finish(&w);
}

static const char *const chosen =
    "{ 'modules': {"
    "  's': { 'type': 'Chooser' },"
    "  'p': { 'type': 'Pass', 'props': { 'mem': 'HOST|CUDA_DEVICE' } },"
    "  'k': { 'type': 'Sink', 'props': { 'mem': 'CUDA_DEVICE' } } },"
    " 'connections': [ { 'from': 's', 'to': 'p' },"
    "                  { 'from': 'p', 'to': 'k' } ] }";

PEN_TEST(a_property_is_found_where_the_frames_are_made)
{
    struct world w, other;
    plan_with(&w, chosen, &chooser, NULL);
    // The bridge may stand before or behind the module that passes on.
    json_t *root = explain(&w, "s:k");
    assert_int_equal(count(root, "bridges"), 1);
    const json_t *a = answer(root, "removals", "property", "memType=DEVICE");
    assert_string_equal(string(a, "module"), "s");
    assert_true(json_is_true(json_object_get(a, "removes")));
    assert_string_equal(string(a, "bridges"), "");
    world_extra[0] = &chooser;
    world_plan(&other, "{ 'modules': {"
                       "  's': { 'type': 'Chooser', 'props': {"
                       "         'memType': 'DEVICE' } },"
                       "  'p': { 'type': 'Pass', 'props': {"
                       "         'mem': 'HOST|CUDA_DEVICE' } },"
                       "  'k': { 'type': 'Sink', 'props': {"
                       "         'mem': 'CUDA_DEVICE' } } },"
                       " 'connections': [ { 'from': 's', 'to': 'p' },"
                       "                  { 'from': 'p', 'to': 'k' } ] }");
    world_extra[0] = NULL;
    check_numbers(a, w.plan, other.plan);
    json_decref(root);
    world_finish(&other);
    world_finish(&w);
}

PEN_TEST(the_number_of_plans_is_bounded_and_what_is_left_is_counted)
{
    struct world w;
    plan_with(&w, chosen, &chooser, NULL);
    json_t *root = explain(&w, "s:k");
    assert_int_equal(json_integer_value(json_object_get(root, "plans_made")),
                     16);
    const json_int_t left =
        json_integer_value(json_object_get(root, "plans_not_made"));
    // 19 other values, and a question or two before them.
    assert_true(left >= 4 && left <= 6);
    assert_int_equal(count(root, "alternatives") + count(root, "removals"), 16);
    char *text = explain_text(&w, "s:k");
    check_has(text, "more could be tried; at most 16 plans are made");
    pen_free(text);
    json_decref(root);
    world_finish(&w);
}

static const char *const by_hand =
    "{ 'modules': {"
    "  's': { 'type': 'Source' },"
    "  'up': { 'type': 'CudaMemCopy', 'props': { 'kind': 'HostToDevice' } },"
    "  'h': { 'type': 'Work' }, 'k': { 'type': 'Sink' } },"
    " 'connections': [ { 'from': 's', 'to': 'up', 'queue': { 'depth': 3 } },"
    "   { 'from': 'up', 'to': 'h' }, { 'from': 'h', 'to': 'k' } ] }";

PEN_TEST(a_copy_of_the_file_is_taken_away)
{
    struct world w, other;
    world_plan(&w, by_hand);
    world_plan(&other, "{ 'modules': { 's': { 'type': 'Source' },"
                       "  'h': { 'type': 'Work' }, 'k': { 'type': 'Sink' } },"
                       " 'connections': [ { 'from': 's', 'to': 'h' },"
                       "                  { 'from': 'h', 'to': 'k' } ] }");
    static const char *const ways[] = { "s:h", "up:h" };
    for (unsigned i = 0; i < 2; i++) {
        json_t *root = explain(&w, ways[i]);
        assert_int_equal(count(root, "bridges"), 1);
        const json_t *a = answer(root, "removals", "without", NULL);
        assert_string_equal(string(a, "module"), "up");
        assert_true(json_is_true(json_object_get(a, "removes")));
        assert_string_equal(string(a, "bridges"), "");
        check_numbers(a, w.plan, other.plan);
        json_decref(root);
    }
    // As the last module of the way, too; there is no bridge on it.
    json_t *root = explain(&w, "s:up");
    assert_int_equal(count(root, "bridges"), 0);
    const json_t *a = answer(root, "removals", "without", NULL);
    assert_true(json_is_true(json_object_get(a, "removes")));
    json_decref(root);
    world_finish(&other);
    world_finish(&w);
}

PEN_TEST(what_arrives_after_a_change_is_told)
{
    struct world w;
    world_plan(&w,
               "{ 'modules': {"
               "  's': { 'type': 'Source', 'props': { 'formats': 'NV12' } },"
               "  'c': { 'type': 'HostConvert', 'props': {"
               "         'imageType': 'MONO' } },"
               "  'k': { 'type': 'Sink', 'props': {"
               "         'formats': 'NV12|MONO' } } },"
               " 'connections': [ { 'from': 's', 'to': 'c' },"
               "                  { 'from': 'c', 'to': 'k' } ] }");
    json_t *root = explain(&w, "s:k");
    const json_t *a = answer(root, "removals", "without", NULL);
    check_has(string(a, "note"), "`k.input` gets NV12 then");
    json_decref(root);
    world_finish(&w);
}

// --- what is asked -----------------------------------------------------------

PEN_TEST(a_bridge_stands_for_both_its_ends)
{
    struct world w;
    world_plan(&w, upload);
    char *whole = explain_text(&w, "s:a");
    static const char *const same[] = {
        "_bridge_1_CudaMemCopy",
        "s:_bridge_1_CudaMemCopy",
        "_bridge_1_CudaMemCopy:a",
        "s.output:a.input",
        "s:a.input",
        "_bridge_1_CudaMemCopy.output:a",
    };
    for (size_t i = 0; i < sizeof(same) / sizeof(*same); i++) {
        char *text = explain_text(&w, same[i]);
        assert_string_equal(text, whole);
        pen_free(text);
    }
    pen_free(whole);
    world_finish(&w);
}

PEN_TEST(an_unknown_name_is_told_with_the_nearest_and_the_connections)
{
    struct world w;
    world_plan(&w, "{ 'modules': {"
                   "  'camera': { 'type': 'Source' },"
                   "  'split': { 'type': 'Split' },"
                   "  'blur': { 'type': 'Sink' }, 'b:c': { 'type': 'Sink' } },"
                   " 'connections': [ { 'from': 'camera', 'to': 'split' },"
                   "  { 'from': 'split.output_1', 'to': 'blur' },"
                   "  { 'from': 'split.output_2', 'to': 'b:c' } ] }");
    check_refused(&w, "camra:blur", PEN_E_CONFIG,
                  "there is no module `camra`, did you mean `camera`?");
    check_refused(&w, "camera:blurr", PEN_E_CONFIG, "did you mean `blur`?");
    check_refused(&w, "camera:blurr", PEN_E_CONFIG,
                  "connections are camera.output:split.input, ");
    check_refused(&w, "split.output_3:blur", PEN_E_CONFIG,
                  "`split` has no output `output_3`, did you mean `output_1`?");
    check_refused(&w, "split.output_2:blur", PEN_E_CONFIG,
                  "no frame goes from `split` to `blur`");
    check_refused(&w, "blur:camera", PEN_E_CONFIG, "no frame goes from");
    check_refused(&w, "camera:camera", PEN_E_CONFIG, "no frame goes from");
    check_refused(&w, "camera", PEN_E_ARG, "FROM:TO");
    check_refused(&w, "", PEN_E_ARG, "FROM:TO");
    check_refused(&w, ":", PEN_E_CONFIG, "there is no module ``");
    static const char *const odd[] = {
        ".:.",   "camera.:split",       "camera:", ":split", "camera::split",
        "..:..", "camera.output.:split"
    };
    for (size_t i = 0; i < sizeof(odd) / sizeof(*odd); i++)
        check_refused(&w, odd[i], PEN_E_CONFIG, "connections are");
    // Ids may have colons.
    char *text = explain_text(&w, "camera:b:c");
    check_has(text, "camera.output -> b:c.input: 0 bridges");
    pen_free(text);
    world_finish(&w);
}

PEN_TEST(of_several_ways_the_shortest_is_told)
{
    struct world w;
    world_plan(&w, "{ 'modules': {"
                   "  's': { 'type': 'Source' }, 'a': { 'type': 'Work' },"
                   "  'j': { 'type': 'Join' }, 'k': { 'type': 'Sink' } },"
                   " 'connections': [ { 'from': 's', 'to': 'a' },"
                   "  { 'from': 'a', 'to': 'j.input_1' },"
                   "  { 'from': 's', 'to': 'j.input_2' },"
                   "  { 'from': 'j', 'to': 'k' } ] }");
    json_t *root = explain(&w, "s:k");
    assert_true(json_is_true(json_object_get(root, "several_ways")));
    assert_int_equal(count(root, "way"), 2);
    json_decref(root);
    root = explain(&w, "s:j.input_1");
    assert_false(json_is_true(json_object_get(root, "several_ways")));
    assert_int_equal(count(root, "way"), 2);
    json_decref(root);
    world_finish(&w);
}

PEN_TEST(unknown_sizes_are_reckoned_with_and_said_to_be_so)
{
    struct world w, other;
    world_plan(&w, "{ 'modules': {"
                   "  'r': { 'type': 'Reader' }, 'd': { 'type': 'Decoder' },"
                   "  'k': { 'type': 'Sink', 'props': {"
                   "         'mem': 'CUDA_DEVICE' } } },"
                   " 'connections': [ { 'from': 'r', 'to': 'd' },"
                   "                  { 'from': 'd', 'to': 'k' } ] }");
    // The same cost as a picture of that size has.
    world_plan(&other, "{ 'modules': {"
                       "  's': { 'type': 'Source', 'props': {"
                       "         'width': 1920, 'height': 1080 } },"
                       "  'k': { 'type': 'Sink', 'props': {"
                       "         'mem': 'CUDA_DEVICE' } } },"
                       " 'connections': [ { 'from': 's', 'to': 'k' } ] }");
    assert_true(w.plan->provisional);
    json_t *root = explain(&w, "d:k");
    assert_true(json_is_true(json_object_get(root, "nominal")));
    const json_t *b = item(root, "bridges", 0);
    assert_int_equal(
        (int64_t)(json_real_value(json_object_get(b, "cost_us")) * 1000 + 0.5),
        world_node(&other, "_bridge_1_CudaMemCopy")->cost_ns);
    check_has(string(item(root, "way", 0), "caps"), "?x?");
    assert_true(json_is_true(json_object_get(item(root, "way", 0), "nominal")));
    json_decref(root);
    char *text = explain_text(&w, "d:k");
    check_has(text, "~ is reckoned with 1920x1080");
    check_has(text, "~5.93 MiB");
    pen_free(text);
    assert_true(w.plan->provisional);
    world_finish(&other);
    world_finish(&w);
}

PEN_TEST(a_plan_of_unknown_sizes_costs_what_is_told_of_its_choices)
{
    static const char *const text =
        THREE_BLURRED("'r': { 'type': 'Reader' }, 'd': { 'type': 'Decoder' },"
                      "'e': { 'type': 'Encoder' },",
                      "'k': { 'type': 'AnySink' } },"
                      " 'connections': [ { 'from': 'r', 'to': 'd' },"
                      "                  { 'from': 'd', 'to': 'a' },"
                      "                  { 'from': 'c', 'to': 'e' },"
                      "                  { 'from': 'e', 'to': 'k' },");
    struct world w;
    char told[40], head[80], cost[40];
    plan_with(&w, text, &fixed_host, &fixed_cuda);
    assert_true(w.plan->provisional);
    const char *choice = world_node(&w, "b")->choice;
    check_has(choice, "the whole plan costs ");
    check_has(choice, " a frame of 1920x1080");
    const char *from = strstr(choice, " costs ") + 7;
    snprintf(told, sizeof(told), "%.*s", (int)(strstr(from, " a frame") - from),
             from);
    snprintf(head, sizeof(head), "alternatives to this plan (~%s a frame)",
             told);
    char *whole = explain_text(&w, "b:k");
    check_has(whole, head);
    pen_free(whole);
    // So it is with the other class.
    json_t *root = explain(&w, "b:k");
    const json_t *a = NULL;
    for (size_t i = 0; !a; i++)
        if (!strcmp(string(item(root, "alternatives", i), "kind"), "class") &&
            !strcmp(string(item(root, "alternatives", i), "module"), "b"))
            a = item(root, "alternatives", i);
    stk_plan_cost_text(
        (int64_t)(json_real_value(json_object_get(a, "cost_us_per_frame")) *
                      1000 +
                  0.5),
        cost, sizeof(cost));
    check_has(strstr(choice, ", with "), cost);
    // An encoder's output is as large as it was when the plan was chosen.
    const json_t *last =
        item(root, "way", json_array_size(json_object_get(root, "way")) - 1);
    assert_int_equal(
        json_integer_value(json_object_get(last, "bytes_per_frame")),
        STK_NOMINAL_BYTES);
    json_decref(root);
    world_finish(&w);
}

PEN_TEST(a_way_through_thousands_of_modules_is_told_in_a_moment)
{
    enum { MODULES = 4000 };
    struct stk_text t = { 0 };
    struct world w;
    stk_text_add(&t, "{ 'modules': { 'm0': { 'type': 'Source' }");
    for (unsigned i = 1; i < MODULES; i++)
        stk_text_addf(&t, ", 'm%u': { 'type': '%s' }", i,
                      i % 2 ? "FixedCuda" : "FixedHost");
    stk_text_add(&t, " }, 'connections': [ ");
    for (unsigned i = 1; i < MODULES; i++)
        stk_text_addf(&t, "%s{ 'from': 'm%u', 'to': 'm%u' }", i > 1 ? ", " : "",
                      i - 1, i);
    stk_text_add(&t, " ] }");
    plan_with(&w, t.data, &fixed_host, &fixed_cuda);
    stk_text_finish(&t);
    const clock_t before = clock();
    json_t *root = explain(&w, "m0:m3999");
    // Some 20 plans; that is far below it, and squares are far above.
    assert_true(clock() - before < 20 * CLOCKS_PER_SEC);
    assert_int_equal(count(root, "way"), 2 * (MODULES - 1));
    assert_int_equal(count(root, "bridges"), MODULES - 1);
    // Of both sorts of answers there are some.
    assert_int_equal(count(root, "alternatives"), 8);
    assert_int_equal(count(root, "removals"), 8);
    assert_true(json_integer_value(json_object_get(root, "plans_not_made")) >
                4000);
    json_decref(root);
    world_finish(&w);
}

PEN_TEST(explaining_changes_nothing_and_says_the_same_twice)
{
    struct world w;
    plan_with(&w, DETOUR("FixedHost", "'strength': 3"), &fixed_host,
              &fixed_cuda);
    char *before = pen_plan_json(w.plan, w.issues);
    char *first = explain_text(&w, "s:k");
    char *second = explain_text(&w, "s:k");
    char *after = pen_plan_json(w.plan, w.issues);
    assert_string_equal(first, second);
    assert_string_equal(before, after);
    pen_free(before);
    pen_free(first);
    pen_free(second);
    pen_free(after);
    world_finish(&w);
}

// --- any graph ---------------------------------------------------------------

static uint32_t seed;

static uint32_t draw(uint32_t below)
{
    seed = seed * 1664525u + 1013904223u;
    return (seed >> 8) % below;
}

// A chain with branches: module i takes from one of the three before it.
static void random_graph(struct stk_text *t, unsigned modules)
{
    static const char *const mems[] = { "HOST", "CUDA_DEVICE", "HOST_PINNED",
                                        "HOST|CUDA_DEVICE", "DMABUF" };
    static const char *const formats[] = { "RGB", "NV12", "MONO|RGB", "RGBA",
                                           "ALL" };
    static const char *const types[] = { "Work", "CudaWork", "Pass", "Work",
                                         "Sink" };
    stk_text_add(t, "{ 'modules': { 's': { 'type': 'Source', 'props': {"
                    " 'formats': 'RGB' } }");
    for (unsigned i = 1; i < modules; i++)
        stk_text_addf(t,
                      ", 'm%u': { 'type': '%s', 'props': {"
                      " 'mem': '%s', 'formats': '%s' } }",
                      i, types[draw(i + 3 < modules ? 4 : 5)], mems[draw(5)],
                      formats[draw(5)]);
    stk_text_add(t, " }, 'connections': [ { 'from': 's', 'to': 'm1' }");
    for (unsigned i = 2; i < modules; i++)
        stk_text_addf(t, ", { 'from': 'm%u', 'to': 'm%u' }",
                      i - 1 - draw(i > 3 ? 3 : i - 1), i);
    stk_text_add(t, " ] }");
}

// A plan that is the best is not surpassed by one that may do less.
static void check_alternatives(const struct pen_plan *plan, const json_t *root)
{
    size_t i;
    const json_t *a;
    json_array_foreach (json_object_get(root, "alternatives"), i, a) {
        if (!plan->optimal || !json_is_null(json_object_get(a, "refused")) ||
            !json_is_null(json_object_get(a, "loss_added")) ||
            !json_is_null(json_object_get(a, "loss_removed")))
            continue;
        const double more =
            json_real_value(json_object_get(a, "more_us_per_frame"));
        if (more < 0)
            check_has(string(a, "note"), "it is not taken: ");
    }
}

PEN_TEST(any_pair_of_any_graph_can_be_asked_for)
{
    enum { GRAPHS = 40, MODULES = 9 };
    unsigned planned = 0, explained = 0, bridges = 0;
    for (unsigned g = 0; g < GRAPHS; g++) {
        struct stk_text t = { 0 };
        struct world w;
        seed = g + 1;
        random_graph(&t, MODULES);
        world_plan_with(&w, t.data, NULL, NULL);
        for (uint32_t n = 0; w.plan && n < w.plan->node_count; n++)
            for (uint32_t k = 0; k < w.plan->node_count; k++) {
                struct pen_error err = { 0 };
                char ask[160];
                snprintf(ask, sizeof(ask), "%s:%s", w.plan->nodes[n].id,
                         w.plan->nodes[k].id);
                char *text = pen_plan_explain_json(w.plan, ask, &err);
                if (!text) {
                    assert_int_equal(err.status, PEN_E_CONFIG);
                    check_has(err.text, "no frame goes from");
                    continue;
                }
                json_t *root = json_loads(text, 0, NULL);
                assert_non_null(root);
                // The way has one edge more than bridges and modules between.
                assert_true(count(root, "way") > count(root, "bridges"));
                check_alternatives(w.plan, root);
                explained++;
                bridges += count(root, "bridges") > 0;
                json_decref(root);
                pen_free(text);
            }
        planned += w.plan != NULL;
        world_finish(&w);
        stk_text_finish(&t);
    }
    // Most graphs have plans, and there was something to tell.
    assert_true(planned >= GRAPHS / 2);
    assert_true(explained > 400 && bridges > 200);
}

typedef char *explainer(const struct pen_plan *plan, const char *from_to,
                        struct pen_error *err);

static void sweep(const struct world *w, const char *from_to, explainer *tell)
{
    struct pen_error err = { 0 };
    char *whole = tell(w->plan, from_to, &err);
    assert_non_null(whole);
    for (unsigned nth = 1;; nth++) {
        pen_alloc_fail_arm(nth, false);
        char *text = tell(w->plan, from_to, &err);
        if (!pen_alloc_fail_disarm()) {
            assert_string_equal(text, whole);
            pen_free(text);
            break;
        }
        // Whole, where it could do without, or not there.
        if (text)
            assert_string_equal(text, whole);
        else
            assert_int_equal(err.status, PEN_E_NOMEM);
        pen_free(text);
    }
    pen_free(whole);
}

PEN_TEST(every_allocation_may_fail)
{
    struct world w;
    json_set_alloc_funcs(malloc, free);
    plan_with(&w, DETOUR("FixedHost", "'strength': 3"), &fixed_host,
              &fixed_cuda);
    sweep(&w, "s:c", pen_plan_explain_coloured);
    sweep(&w, "s:c", pen_plan_explain_json);
    world_finish(&w);
    world_plan(&w, by_hand);
    sweep(&w, "s:h", pen_plan_explain);
    world_finish(&w);
    world_plan(&w, "{ 'modules': {"
                   "  'r': { 'type': 'Reader' }, 'd': { 'type': 'Decoder',"
                   "         'props': { 'formats': 'NV12|RGB' } },"
                   "  'k': { 'type': 'Sink', 'props': {"
                   "         'mem': 'CUDA_DEVICE' } } },"
                   " 'connections': [ { 'from': 'r', 'to': 'd' },"
                   "                  { 'from': 'd', 'to': 'k' } ] }");
    sweep(&w, "r:k", pen_plan_explain_json);
    struct pen_error err = { 0 };
    for (unsigned nth = 1;; nth++) {
        pen_alloc_fail_arm(nth, false);
        assert_null(pen_plan_explain(w.plan, "r:nobody", &err));
        if (!pen_alloc_fail_disarm())
            break;
        assert_true(err.status == PEN_E_NOMEM || err.status == PEN_E_CONFIG);
    }
    assert_int_equal(err.status, PEN_E_CONFIG);
    world_finish(&w);
}

PEN_TEST_MAIN(
    PEN_CASE(a_copy_is_forced_by_memory_and_the_properties_are_named),
    PEN_CASE(a_conversion_is_forced_by_format_and_tells_where_it_stands),
    PEN_CASE(of_several_formats_those_that_do_not_pass_are_named),
    PEN_CASE(who_demands_it_behind_a_module_that_passes_on_is_named),
    PEN_CASE(who_shares_a_bridge_is_named),
    PEN_CASE(a_mapped_dmabuf_is_no_copy),
    PEN_CASE(a_staged_upload_names_the_budget_that_avoids_it),
    PEN_CASE(without_a_step_the_plan_is_the_next_best_one),
    PEN_CASE(of_a_generic_type_the_other_class_is_priced),
    PEN_CASE(what_is_done_once_is_told_where_it_is_what_decides),
    PEN_CASE(that_frames_do_not_cross_twice_is_told_however_many_there_are),
    PEN_CASE(without_a_pinned_pool_there_is_a_copy_on_the_host),
    PEN_CASE(the_twin_on_the_other_side_is_found_by_its_tags),
    PEN_CASE(a_twin_that_does_not_help_is_told_as_such),
    PEN_CASE(a_property_is_found_where_the_frames_are_made),
    PEN_CASE(the_number_of_plans_is_bounded_and_what_is_left_is_counted),
    PEN_CASE(a_copy_of_the_file_is_taken_away),
    PEN_CASE(what_arrives_after_a_change_is_told),
    PEN_CASE(a_bridge_stands_for_both_its_ends),
    PEN_CASE(an_unknown_name_is_told_with_the_nearest_and_the_connections),
    PEN_CASE(of_several_ways_the_shortest_is_told),
    PEN_CASE(unknown_sizes_are_reckoned_with_and_said_to_be_so),
    PEN_CASE(a_plan_of_unknown_sizes_costs_what_is_told_of_its_choices),
    PEN_CASE(a_way_through_thousands_of_modules_is_told_in_a_moment),
    PEN_CASE(explaining_changes_nothing_and_says_the_same_twice),
    PEN_CASE(any_pair_of_any_graph_can_be_asked_for),
    PEN_CASE(every_allocation_may_fail))
