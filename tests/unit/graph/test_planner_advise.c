// Advice: what is told, with which path and saving, that following it really
// saves that, and that nothing is told where nothing is to be gained.

#include <jansson.h>

#include "planner_world.h"
#include "src/base/str.h"
#include "tests/support/alloc_fail.h"

unsigned world_negotiated, world_probed;
struct pen_probe world_probe;
enum pen_status world_probe_status;

// clang-format off
#define UP(id)   MOD(id, "CudaMemCopy", "'kind': 'HostToDevice'")
#define DOWN(id) MOD(id, "CudaMemCopy", "'kind': 'DeviceToHost'")
#define SOURCE(id, ...) \
    MOD(id, "Source", "'width': 1280, 'height': 720, " __VA_ARGS__)
#define BOTH "'mem': 'HOST|CUDA_DEVICE', "
#define C ","
// clang-format on

// Two classes that do the same, each on its side, and take nothing else.
static uint64_t blur_operations(const void *params, const struct pen_caps *in,
                                const struct pen_caps *out)
{
    (void)params;
    (void)in;
    return (uint64_t)out->width * (uint64_t)out->height * 30;
}

// clang-format off
static const struct pen_module_class host_blur = {
    WORLD_CLASS("HostBlur", TRANSFORM), .inputs = world_host_in,
    .outputs = world_host_out, WORLD_TAGS("function:blur", "backend:cpu"),
    .props = world_props, .params_size = sizeof(struct world_params),
    .ops.negotiate = world_work, .ops.operations = blur_operations,
};
static const struct pen_module_class cuda_blur = {
    WORLD_CLASS("CudaBlur", TRANSFORM), .flags = PEN_CLASS_CUDA,
    .inputs = world_cuda_in, .outputs = world_cuda_out,
    WORLD_TAGS("function:blur", "backend:cuda"),
    .props = world_props, .params_size = sizeof(struct world_params),
    .ops.negotiate = world_work, .ops.operations = blur_operations,
};
#define BLUR(id) MOD(id, "HostBlur", "")
// clang-format on

static void try_plan(struct world *w, const char *text,
                     const struct pen_plan_params *params)
{
    world_extra[0] = &host_blur;
    world_extra[1] = &cuda_blur;
    struct pen_plan_params all = { 0 };
    if (params)
        all = *params;
    struct pen_profile profile =
        all.profile ? *all.profile : *pen_profile_builtin("generic-cuda");
    // The built-in numbers may change; what is to be told here does not.
    profile.host_rate = 2000;
    profile.host_operations = 1000;
    profile.device_rate = profile.cuda ? 500000 : 1000;
    profile.h2d_rate = profile.d2h_rate = profile.cuda ? 25000 : 8000;
    profile.copy_ns = 8000;
    profile.launch_ns = 5000;
    all.profile = &profile;
    world_plan_with(w, text, &all, NULL);
    world_extra[0] = world_extra[1] = NULL;
}

static void plan(struct world *w, const char *text,
                 const struct pen_plan_params *params)
{
    try_plan(w, text, params);
    if (w->status != PEN_OK)
        fail_msg("%s\n%s", w->err.text, text);
}

// --- following a suggestion
// ---------------------------------------------------

struct edit {
    json_t *root, *modules, *connections;
};

static void forget_connections(struct edit *e, const char *key, const char *id)
{
    for (size_t i = json_array_size(e->connections); i-- > 0;) {
        const char *end = json_string_value(
            json_object_get(json_array_get(e->connections, i), key));
        const size_t n = strlen(id);
        if (!strncmp(end, id, n) && (end[n] == 0 || end[n] == '.'))
            json_array_remove(e->connections, i);
    }
}

static void remove_module(struct edit *e, const char *id)
{
    assert_int_equal(json_object_del(e->modules, id), 0);
    forget_connections(e, "from", id);
    forget_connections(e, "to", id);
}

// "{ "from": "a", "to": "b" }": in the place of what leads to b.
static const char *connect_modules(struct edit *e, const char *text)
{
    json_error_t error;
    json_t *c = json_loads(text, JSON_DISABLE_EOF_CHECK, &error);
    if (!c)
        fail_msg("%s: %s", error.text, text);
    const char *to = json_string_value(json_object_get(c, "to"));
    for (size_t i = json_array_size(e->connections); i-- > 0;)
        if (!strcmp(json_string_value(json_object_get(
                        json_array_get(e->connections, i), "to")),
                    to))
            json_array_remove(e->connections, i);
    json_array_append_new(e->connections, c);
    return strchr(text, '}') + 1;
}

// The name in `...` at the beginning of `text`; what comes behind it.
static const char *name_at(const char *text, char name[64])
{
    assert_int_equal(*text, '`');
    const size_t n = strcspn(text + 1, "`");
    snprintf(name, 64, "%.*s", (int)n, text + 1);
    return text + n + 2;
}

static const char *set_type(struct edit *e, const char *at)
{
    char id[64], key[32], value[64];
    at = name_at(at, id);
    const char *text = strstr(at, ": \"") + 3;
    assert_int_equal(sscanf(text, "%31[^\"]\": \"%63[^\"]", key, value), 2);
    json_t *module = json_object_get(e->modules, id);
    assert_non_null(module);
    if (!strcmp(key, "type"))
        json_object_set_new(module, key, json_string(value));
    else
        json_object_set_new(json_object_get(module, "props"), key,
                            json_string(value));
    return text + strlen(key) + strlen(value) + 5;
}

// Do what a suggestion says, word by word.
static char *follow(const char *text, const char *suggestion)
{
    struct edit e = { 0 };
    json_error_t error;
    char *json = strdup(text), id[64];
    for (char *c = json; *c; c++)
        if (*c == '\'')
            *c = '"';
    e.root = json_loads(json, 0, &error);
    assert_non_null(e.root);
    e.modules = json_object_get(e.root, "modules");
    e.connections = json_object_get(e.root, "connections");
    for (const char *s = suggestion; *s;) {
        if (!strncmp(s, "make ", 5)) {
            s = set_type(&e, s + 5);
        } else if (!strncmp(s, "remove `", 8)) {
            s += 7;
            for (;;) {
                s = name_at(s, id);
                remove_module(&e, id);
                if (!strncmp(s, ", `", 3))
                    s += 2;
                else if (!strncmp(s, " and `", 6))
                    s += 5;
                else
                    break;
            }
        } else if (!strncmp(s, ", and connect ", 14)) {
            s = connect_modules(&e, s + 14);
        } else if (!strncmp(s, "connect ", 8)) {
            s = connect_modules(&e, s + 8);
        } else if (!strncmp(s, ", {", 3)) {
            s = connect_modules(&e, s + 2);
        } else if (!strncmp(s, "; ", 2)) {
            s += 2;
        } else {
            fail_msg("cannot follow `%s` of `%s`", s, suggestion);
        }
    }
    free(json);
    char *changed = json_dumps(e.root, 0);
    json_decref(e.root);
    assert_non_null(changed);
    return changed;
}

// Tenths of a microsecond that a message says are saved; -1: none.
static long long told_saving(const char *message)
{
    const char *saves = strstr(message, "saves ");
    long long us;
    int tenths;
    if (!saves)
        return -1;
    const char *at = strstr(saves, " and ");
    at = at ? at + 5 : saves + 6;
    assert_int_equal(sscanf(at, "%lld.%d us a frame", &us, &tenths), 2);
    return us * 10 + tenths;
}

static uint64_t moved(const struct world *w)
{
    return w->plan->h2d_bytes_per_frame + w->plan->d2h_bytes_per_frame;
}

// A plan of `text` has one finding, `code` at `pointer`, whose message holds
// `words`; to follow it saves what it says, and then nothing is left to say.
static void saves_with(const char *text, const char *code, const char *pointer,
                       const char *words, const struct pen_plan_params *params)
{
    struct world w, then;
    plan(&w, text, params);
    const struct pen_issue *issue = world_issue(&w, code);
    if (!issue || world_issues(&w, code) != 1) {
        const struct pen_issue *other = pen_issues_get(w.issues, 0);
        fail_msg("%u of %s; first is %s", world_issues(&w, code), code,
                 other ? other->message : "none");
    }
    if (strcmp(issue->pointer, pointer) || !strstr(issue->message, words))
        fail_msg("%s: %s", issue->pointer, issue->message);
    char *changed = follow(text, issue->suggestion);
    plan(&then, changed, params);
    const long long told = told_saving(issue->message);
    const int64_t real = w.plan->cost_ns - then.plan->cost_ns;
    if (told <= 0 || told != real / 100)
        fail_msg("%s\n%s\nreally %lld ns", issue->message, issue->suggestion,
                 (long long)real);
    char bytes[32];
    if (moved(&w) > moved(&then)) {
        stk_format_size(moved(&w) - moved(&then), bytes, sizeof(bytes));
        if (!strstr(issue->message, bytes))
            fail_msg("%s: not %s", issue->message, bytes);
    }
    if (pen_issues_count(then.issues, PEN_SEVERITY_WARNING))
        fail_msg("still: %s", pen_issues_get(then.issues, 0)->message);
    free(changed);
    world_finish(&w);
    world_finish(&then);
}

static void saves(const char *text, const char *code, const char *pointer,
                  const char *words)
{
    saves_with(text, code, pointer, words, NULL);
}

// Nothing is said of a plan.
static void silent(const char *text)
{
    struct world w;
    plan(&w, text, NULL);
    if (pen_issues_count(w.issues, PEN_SEVERITY_INFO))
        fail_msg("%s: %s", pen_issues_get(w.issues, 0)->code,
                 pen_issues_get(w.issues, 0)->message);
    world_finish(&w);
}

// clang-format off

// --- detours ------------------------------------------------------------------

PEN_TEST(a_detour_over_a_host_module_saves_all_that_it_costs)
{
    saves(PIPE(SOURCE("s", CUDA RGB) C BLUR("h") C
               MOD("k", "Sink", CUDA RGB),
               TO("s", "h") C TO("h", "k")),
          "W310", "/modules/h",
          "s -> _bridge_1_CudaMemCopy (to the host) -> h -> "
          "_bridge_2_CudaMemCopy (to the device) -> k; saves ");
    // Several modules, with copies by hand, and mixed.
    saves(PIPE(SOURCE("s", CUDA RGB) C DOWN("d") C BLUR("h") C
               BLUR("i") C UP("u") C MOD("k", "Sink", CUDA RGB),
               TO("s", "d") C TO("d", "h") C TO("h", "i") C TO("i", "u") C
               TO("u", "k")),
          "W310", "/modules/h",
          "s -> d (to the host) -> h -> i -> u (to the device) -> k; saves ");
    saves(PIPE(SOURCE("s", CUDA RGB) C DOWN("d") C BLUR("h") C
               MOD("k", "Sink", CUDA RGB),
               TO("s", "d") C TO("d", "h") C TO("h", "k")),
          "W310", "/modules/h", "s -> d (to the host) -> h -> _bridge_1_");
    saves(PIPE(SOURCE("s", CUDA RGB) C BLUR("h") C UP("u") C
               MOD("k", "Sink", CUDA RGB),
               TO("s", "h") C TO("h", "u") C TO("u", "k")),
          "W310", "/modules/h", "-> h -> u (to the device) -> k");
}

PEN_TEST(a_detour_with_nothing_between_is_taken_out)
{
    saves(PIPE(SOURCE("s", CUDA RGB) C DOWN("d") C UP("u") C
               MOD("k", "Sink", CUDA RGB),
               TO("s", "d") C TO("d", "u") C TO("u", "k")),
          "W310", "/modules/u",
          "s -> d (to the host) -> u (to the device) -> k");
    saves(PIPE(SOURCE("s", CUDA RGB) C DOWN("d") C MOD("k", "Sink", CUDA RGB),
               TO("s", "d") C TO("d", "k")),
          "W310", "/modules/d", "s -> d (to the host) -> _bridge_1");
    saves(PIPE(SOURCE("s", CUDA RGB) C DOWN("d") C MOD("p", "Pass", BOTH RGB) C
               MOD("q", "Pass", BOTH RGB) C MOD("k", "Sink", CUDA RGB),
               TO("s", "d") C TO("d", "p") C TO("p", "q") C TO("q", "k")),
          "W310", "/modules/d", "s -> d (to the host) -> p -> q -> _bridge_1");
}

PEN_TEST(host_copy_host_copy_is_a_detour)
{
    saves(PIPE(SOURCE("s", RGB) C UP("u") C DOWN("d") C
               MOD("k", "Sink", RGB),
               TO("s", "u") C TO("u", "d") C TO("d", "k")),
          "W310", "/modules/d",
          "return with nothing done: s -> u (to the device) -> d (to the "
          "host) -> k");
    saves(PIPE(SOURCE("s", RGB) C UP("u") C MOD("k", "Sink", RGB),
               TO("s", "u") C TO("u", "k")),
          "W310", "/modules/u", "s -> u (to the device) -> _bridge_1");
    // Through a module that passes frames on wherever they are.
    saves(PIPE(SOURCE("s", RGB) C UP("u") C MOD("p", "Pass", BOTH RGB) C
               DOWN("d") C MOD("k", "Sink", RGB),
               TO("s", "u") C TO("u", "p") C TO("p", "d") C TO("d", "k")),
          "W310", "/modules/d", "u (to the device) -> p -> d (to the host)");
    // Others need the frames on the device: the upload stays.
    saves(PIPE(SOURCE("s", RGB) C UP("u") C DOWN("d") C MOD("k", "Sink", RGB) C
               MOD("g", "Sink", CUDA RGB),
               TO("s", "u") C TO("u", "d") C TO("d", "k") C TO("u", "g")),
          "W310", "/modules/d", "u (to the device) -> d (to the host)");
    saves(PIPE(SOURCE("s", RGB) C UP("u") C MOD("k", "Sink", RGB) C
               MOD("g", "Sink", CUDA RGB),
               TO("s", "u") C TO("u", "k") C TO("u", "g")),
          "W310", "/modules/u", "u (to the device) -> _bridge_1");
}

PEN_TEST(a_detour_through_fan_outs_and_joins_is_one_finding)
{
    // The download is needed by another; only the way back is saved.
    saves(PIPE(SOURCE("s", CUDA RGB) C BLUR("h") C
               MOD("j", "Sink", RGB) C MOD("k", "Sink", CUDA RGB),
               TO("s", "h") C TO("s", "j") C TO("h", "k")),
          "W310", "/modules/h", "-> h -> _bridge_");
    saves(PIPE(SOURCE("s", CUDA RGB) C DOWN("d") C BLUR("h") C
               MOD("j", "Sink", RGB) C MOD("k", "Sink", CUDA RGB),
               TO("s", "d") C TO("d", "h") C TO("d", "j") C TO("h", "k")),
          "W310", "/modules/h", "-> h -> _bridge_");
    // What comes out is needed on the host, too.
    saves(PIPE(SOURCE("s", CUDA RGB) C BLUR("h") C
               MOD("j", "Sink", RGB) C MOD("k", "Sink", CUDA RGB),
               TO("s", "h") C TO("h", "j") C TO("h", "k")),
          "W310", "/modules/h", "-> h -> _bridge_");
    // Two ways back, of one module after the other.
    saves(PIPE(SOURCE("s", CUDA RGB) C BLUR("h") C
               BLUR("i") C MOD("j", "Sink", CUDA RGB) C
               MOD("k", "Sink", CUDA RGB),
               TO("s", "h") C TO("h", "i") C TO("h", "j") C TO("i", "k")),
          "W310", "/modules/h", "; also h -> i -> _bridge_");
    // Two ways to the host that meet.
    saves(PIPE(SOURCE("s", CUDA RGB) C SOURCE("t", CUDA RGB) C
               MOD("p", "Pass", BOTH RGB) C BLUR("h") C
               DOWN("d") C DOWN("e") C MOD("q", "PassJoin", BOTH RGB) C
               MOD("k", "Sink", CUDA RGB),
               TO("s", "d") C TO("t", "e") C TO("d", "p") C
               TO("p", "q.input_1") C TO("e", "h") C TO("h", "q.input_2") C
               TO("q", "k")),
          "W310", "/modules/h", "; also ");
}

PEN_TEST(a_detour_of_which_two_parts_have_nothing_in_common_is_told_twice)
{
    struct world w;
    plan(&w, PIPE(SOURCE("s", CUDA RGB) C BLUR("h") C
                        BLUR("i") C MOD("j", "Sink", CUDA RGB) C
                        MOD("k", "Sink", CUDA RGB),
                        TO("s", "h") C TO("s", "i") C TO("h", "j") C
                        TO("i", "k")), NULL);
    assert_int_equal(pen_issues_count(w.issues, PEN_SEVERITY_INFO), 2);
    assert_string_equal(pen_issues_get(w.issues, 0)->pointer, "/modules/h");
    assert_string_equal(pen_issues_get(w.issues, 1)->pointer, "/modules/i");
    world_finish(&w);
}

static void costs(const char *text, const char *code, const char *words,
                  const char *fix)
{
    struct world w;
    plan(&w, text, NULL);
    const struct pen_issue *issue = world_issue(&w, code);
    if (!issue)
        fail_msg("no %s", code);
    if (!strstr(issue->message, words) || !strstr(issue->suggestion, fix))
        fail_msg("%s\n%s", issue->message, issue->suggestion);
    assert_int_equal(pen_issues_count(w.issues, PEN_SEVERITY_INFO), 1);
    world_finish(&w);
}

PEN_TEST(a_module_without_a_twin_is_told_as_such)
{
    costs(PIPE(SOURCE("s", CUDA RGB) C MOD("h", "Split", RGB) C
               MOD("j", "Sink", CUDA RGB) C MOD("k", "Sink", CUDA RGB),
               TO("s", "h") C TO("h.output_1", "j") C TO("h.output_2", "k")),
          "W310", "; costs 7.91 MiB and ",
          "`h`: no module of the device does what Split does");
    // What passes frames on, but not there.
    costs(PIPE(SOURCE("s", CUDA RGB) C MOD("p", "Pass", RGB) C
               MOD("k", "Sink", CUDA RGB),
               TO("s", "p") C TO("p", "k")),
          "W310", "-> p ->", "`p` takes host memory only");
    // The twin takes other memory with these properties.
    costs(PIPE(SOURCE("s", CUDA RGB) C MOD("h", "Work", RGB) C
               MOD("k", "Sink", CUDA RGB),
               TO("s", "h") C TO("h", "k")),
          "W310", "costs",
          "`h`: CudaWork works on the device, but not with these properties");
    // What only passes frames on there cannot do so here.
    costs(PIPE(SOURCE("s", RGB) C UP("u") C MOD("p", "Pass", CUDA RGB) C
               DOWN("d") C MOD("k", "Sink", RGB),
               TO("s", "u") C TO("u", "p") C TO("p", "d") C TO("d", "k")),
          "W310", "costs", "device memory only");
}

PEN_TEST(modules_at_the_end_of_a_detour_can_move_by_themselves)
{
    static const char *const texts[] = {
        PIPE(SOURCE("s", CUDA RGB) C BLUR("h") C
             MOD("x", "Join", RGB) C SOURCE("t", RGB) C
             MOD("k", "Sink", CUDA RGB),
             TO("s", "h") C TO("h", "x.input_1") C TO("t", "x.input_2") C
             TO("x", "k")),
        PIPE(SOURCE("s", CUDA RGB) C BLUR("h") C
             MOD("x", "Join", RGB) C SOURCE("t", RGB) C
             MOD("k", "Sink", CUDA RGB),
             TO("s", "x.input_1") C TO("t", "x.input_2") C TO("x", "h") C
             TO("h", "k")),
    };
    for (unsigned i = 0; i < 2; i++) {
        struct world w, then;
        plan(&w, texts[i], NULL);
        assert_int_equal(world_issues(&w, "W310"), 1);
        assert_int_equal(world_issues(&w, "W312"), 1);
        const struct pen_issue *issue = world_issue(&w, "W312");
        assert_string_equal(issue->pointer, "/modules/h");
        assert_non_null(strstr(issue->message, i ? "go to" : "come from"));
        char *changed = follow(texts[i], issue->suggestion);
        plan(&then, changed, NULL);
        assert_int_equal(told_saving(issue->message),
                         (w.plan->cost_ns - then.plan->cost_ns) / 100);
        assert_null(world_issue(&then, "W312"));
        free(changed);
        world_finish(&w);
        world_finish(&then);
    }
}

// A type that stands for both: forced to the CPU it is told to be let go, by
// the property; what the planner chose itself is no subject.
PEN_TEST(a_generic_type_is_told_by_its_backend)
{
#define FORCED(props) \
    PIPE(SOURCE("s", CUDA RGB) C MOD("h", "Blur", props) C \
         MOD("k", "Sink", CUDA RGB), \
         TO("s", "h") C TO("h", "k"))
    saves(FORCED("'backend': 'cpu'"), "W310", "/modules/h", "-> h ->");
    silent(FORCED(""));
    // Chosen for the CPU since what follows is there: that is not told either.
    silent(PIPE(SOURCE("s", RGB) C MOD("h", "Blur", "") C MOD("k", "Sink", RGB),
                TO("s", "h") C TO("h", "k")));
    // A property of the plain type that would contradict the other one.
    struct world w;
    plan(&w, PIPE(SOURCE("s", CUDA RGB) C
                  MOD("h", "HostBlur", "'backend': 'cpu'") C
                  MOD("k", "Sink", CUDA RGB),
                  TO("s", "h") C TO("h", "k")), NULL);
    assert_non_null(world_issue(&w, "W310"));
    assert_string_equal(world_issue(&w, "W310")->suggestion,
                        "make `h` a CudaBlur: \"type\": \"CudaBlur\", without "
                        "\"backend\"");
    world_finish(&w);
}

// What is opened on the device once is paid by the frames that are expected.
PEN_TEST(a_short_run_is_not_told_what_would_not_pay)
{
    const char *text =
        PIPE(SOURCE("s", CUDA RGB) C BLUR("h") C MOD("x", "Join", RGB) C
             SOURCE("t", RGB) C MOD("k", "Sink", CUDA RGB),
             TO("s", "h") C TO("h", "x.input_1") C TO("t", "x.input_2") C
             TO("x", "k"));
    struct pen_profile profile = *pen_profile_builtin("generic-cuda");
    struct world w;
    profile.load_ns = 1000 * 1000 * 1000;
    for (uint64_t frames = 1; frames <= 1000; frames *= 1000) {
        const struct pen_plan_params params = { .profile = &profile,
                                                .frames = frames };
        plan(&w, text, &params);
        assert_int_equal(world_issues(&w, "W310"), 1);
        assert_int_equal(world_issues(&w, "W312"), frames > 1);
        world_finish(&w);
    }
}

// Frames that the device imports come back without a copy.
PEN_TEST(a_host_module_whose_frames_are_imported_is_told)
{
    const char *text =
        PIPE(SOURCE("s", CUDA RGB) C MOD("h", "Work", "'mem': 'HOST|DMABUF', " RGB) C
             MOD("k", "Sink", CUDA RGB),
             TO("s", "h") C TO("h", "k"));
    struct pen_profile profile = *pen_profile_builtin("generic-cuda");
    const struct pen_plan_params params = { .profile = &profile };
    struct world w;
    profile.dmabuf = 7;
    plan(&w, text, &params);
    const struct pen_issue *issue = world_issue(&w, "W312");
    assert_non_null(issue);
    assert_string_equal(issue->pointer, "/modules/h");
    assert_non_null(strstr(issue->message,
                           "s -> _bridge_1_CudaMemCopy (to the host) -> h -> "
                           "k; costs 2.64 MiB and 118.5 us a frame"));
    assert_int_equal(pen_issues_count(w.issues, PEN_SEVERITY_INFO), 1);
    world_finish(&w);
}

// --- redundant copies -----------------------------------------------------------

PEN_TEST(a_copy_that_nobody_needs_is_told)
{
    saves(PIPE(SOURCE("s", CUDA RGB) C DOWN("d") C MOD("k", "Sink", BOTH RGB),
               TO("s", "d") C TO("d", "k")),
          "W313", "/modules/d", "`d` copies frames to the host, and who gets");
    saves(PIPE(SOURCE("s", CUDA RGB) C DOWN("d") C MOD("p", "Pass", BOTH RGB) C
               MOD("k", "Sink", BOTH RGB) C MOD("l", "Sink", BOTH RGB),
               TO("s", "d") C TO("d", "p") C TO("p", "k") C TO("d", "l")),
          "W313", "/modules/d", "`d` copies frames to the host");
    // An upload where the host would have to read the frames then is cheaper.
    silent(PIPE(SOURCE("s", RGB) C UP("u") C MOD("k", "Sink", BOTH RGB),
                TO("s", "u") C TO("u", "k")));
    // One of the consumers needs it.
    silent(PIPE(SOURCE("s", CUDA RGB) C DOWN("d") C MOD("k", "Sink", BOTH RGB) C
                MOD("l", "Sink", RGB),
                TO("s", "d") C TO("d", "k") C TO("d", "l")));
}

PEN_TEST(equal_copies_are_shared)
{
    saves(PIPE(SOURCE("s", RGB) C UP("u") C UP("v") C MOD("k", "Sink", CUDA RGB) C
               MOD("l", "Sink", CUDA RGB) C MOD("m", "Sink", CUDA RGB),
               TO("s", "u") C TO("s", "v") C TO("u", "k") C TO("v", "l") C
               TO("v", "m")),
          "W313", "/modules/v", "`s` is copied to the device more than once");
    saves(PIPE(SOURCE("s", RGB) C UP("u") C MOD("k", "Sink", CUDA RGB) C
               MOD("l", "Sink", CUDA RGB),
               TO("s", "u") C TO("s", "l") C TO("u", "k")),
          "W313", "/modules/u", "more than once: `u`, `_bridge_1_CudaMemCopy`");
    saves(PIPE(SOURCE("s", CUDA RGB) C DOWN("d") C DOWN("e") C DOWN("f") C
               MOD("k", "Sink", RGB) C MOD("l", "Sink", RGB) C
               MOD("m", "Sink", RGB),
               TO("s", "d") C TO("s", "e") C TO("s", "f") C TO("d", "k") C
               TO("e", "l") C TO("f", "m")),
          "W313", "/modules/e", "to the host more than once: `d`, `e`, `f`");
    // Of two outputs, or in two directions: nothing in common.
    silent(PIPE(SOURCE("s", RGB) C MOD("w", "Split", RGB) C UP("u") C UP("v") C
                MOD("k", "Sink", CUDA RGB) C MOD("l", "Sink", CUDA RGB),
                TO("s", "w") C TO("w.output_1", "u") C TO("w.output_2", "v") C
                TO("u", "k") C TO("v", "l")));
}

// --- conversions ----------------------------------------------------------------

#define CONVERT(id, type, to) MOD(id, type, "'imageType': '" to "'")

PEN_TEST(a_conversion_on_the_dearer_side_of_a_copy_is_told)
{
    const struct pen_plan_params cpu = { .profile = pen_profile_builtin("cpu") };
    // Fewer bytes up if converted before: only where the host is quick at it.
    saves_with(PIPE(SOURCE("s", RGB) C CONVERT("c", "CudaConvert", "MONO") C
                    MOD("k", "Sink", CUDA "'formats': 'MONO'"),
                    TO("s", "c") C TO("c", "k")),
               "W314", "/modules/c", "`c` converts after `_bridge_1",
               &cpu);
    silent(PIPE(SOURCE("s", RGB) C CONVERT("c", "CudaConvert", "MONO") C
                MOD("k", "Sink", CUDA "'formats': 'MONO'"),
                TO("s", "c") C TO("c", "k")));
    // Fewer up if converted behind.
    saves(PIPE(SOURCE("s", "'formats': 'MONO'") C
               CONVERT("c", "HostConvert", "RGB") C MOD("k", "Sink", CUDA RGB),
               TO("s", "c") C TO("c", "k")),
          "W314", "/modules/c", "`c` converts before `_bridge_1");
    saves(PIPE(SOURCE("s", "'formats': 'MONO'") C
               CONVERT("c", "HostConvert", "RGB") C UP("u") C
               MOD("k", "Sink", CUDA RGB),
               TO("s", "c") C TO("c", "u") C TO("u", "k")),
          "W314", "/modules/c", "`c` converts before `u` copies to the device");
    // Down: before the copy, if that makes frames smaller.
    saves(PIPE(SOURCE("s", CUDA RGB) C DOWN("d") C
               CONVERT("c", "HostConvert", "MONO") C
               MOD("k", "Sink", "'formats': 'MONO'"),
               TO("s", "d") C TO("d", "c") C TO("c", "k")),
          "W314", "/modules/c", "`c` converts after `d` copies to the host");
    saves(PIPE(SOURCE("s", CUDA RGB) C CONVERT("c", "HostConvert", "MONO") C
               MOD("k", "Sink", "'formats': 'MONO'"),
               TO("s", "c") C TO("c", "k")),
          "W314", "/modules/c", "`c` converts after `_bridge_1");
    // A copy by hand that keeps the planner from converting where it would.
    saves(PIPE(SOURCE("s", CUDA RGB) C DOWN("d") C
               MOD("k", "Sink", "'formats': 'MONO'"),
               TO("s", "d") C TO("d", "k")),
          "W314", "/modules/d", "`_bridge_1_HostConvert` converts after `d`");
    // On the right side already.
    silent(PIPE(SOURCE("s", CUDA RGB) C CONVERT("c", "CudaConvert", "MONO") C
                DOWN("d") C MOD("k", "Sink", "'formats': 'MONO'"),
                TO("s", "c") C TO("c", "d") C TO("d", "k")));
    // The frames are needed as they are, too.
    silent(PIPE(SOURCE("s", CUDA RGB) C DOWN("d") C
                CONVERT("c", "HostConvert", "MONO") C
                MOD("k", "Sink", "'formats': 'MONO'") C MOD("l", "Sink", RGB),
                TO("s", "d") C TO("d", "c") C TO("c", "k") C TO("d", "l")));
}

PEN_TEST(without_bridges_of_the_planner_a_copy_changes_places)
{
    saves(SET("'auto_bridge': false",
              SOURCE("s", CUDA RGB) C DOWN("d") C
              CONVERT("c", "HostConvert", "MONO") C
              MOD("k", "Sink", "'formats': 'MONO'") C
              MOD("l", "Sink", "'formats': 'MONO'"),
              TO("s", "d") C TO("d", "c") C TO("c", "k") C TO("c", "l")),
          "W314", "/modules/c", "`c` converts after `d` copies to the host");
}

// --- uploads of pageable memory ---------------------------------------------------

PEN_TEST(an_upload_whose_frames_are_dmabufs_is_told)
{
    struct world w;
    plan(&w, PIPE(SOURCE("s", "'mem': 'DMABUF', " RGB) C
                        MOD("k", "Sink", CUDA RGB),
                        TO("s", "k")), NULL);
    const struct pen_issue *issue = world_issue(&w, "W315");
    assert_non_null(issue);
    assert_non_null(strstr(issue->message, "`s` gives frames that are not in "
                                           "pinned memory, so the CPU copies"));
    assert_non_null(strstr(issue->message, " us a frame"));
    assert_string_equal(issue->pointer, "/modules/s");
    world_finish(&w);
    // Frames of two modules that leave by one output.
    plan(&w,
         PIPE(SOURCE("s", "'mem': 'DMABUF', " RGB) C SOURCE("t", RGB) C
              MOD("q", "PassJoin", "'mem': 'HOST', " RGB) C
              MOD("k", "Sink", CUDA RGB),
              TO("s", "q.input_1") C TO("t", "q.input_2") C TO("q", "k")),
         NULL);
    issue = world_issue(&w, "W315");
    assert_non_null(issue);
    assert_non_null(strstr(issue->message,
                           "`q` hands on frames of other modules, which are "
                           "not all in pinned memory, so the CPU copies"));
    world_finish(&w);
    // A manual upload gets no others: without bridges the plan is refused.
    try_plan(&w, SET("'auto_bridge': false",
                     SOURCE("s", "'mem': 'DMABUF', " RGB) C UP("u") C
                     MOD("k", "Sink", CUDA RGB),
                     TO("s", "u") C TO("u", "k")), NULL);
    assert_non_null(world_issue(&w, "E312"));
    world_finish(&w);
    // A pool that the planner could pin.
    silent(PIPE(SOURCE("s", RGB) C UP("u") C MOD("k", "Sink", CUDA RGB),
                TO("s", "u") C TO("u", "k")));
}

// --- sources without an end --------------------------------------------------------

struct camera {
    int32_t frames;
    bool loop;
};
struct file {
    const char *path;
    bool append;
};
static const struct pen_prop camera_props[] = {
    PEN_I32(struct camera, frames, "maxFrames", 0, 0, 1 << 30, "0: no end."),
    PEN_BOOL(struct camera, loop, "readLoop", false, "Again and again."),
    PEN_PROPS_END,
};
static const struct pen_prop file_props[] = {
    PEN_STRING(struct file, path, "path", "", "A file.",
               .flags = PEN_PROP_PATH_WRITE),
    PEN_BOOL(struct file, append, "append", false, "Add to it."),
    PEN_PROPS_END,
};
static const struct pen_module_class camera_class = {
    WORLD_CLASS("Camera", SOURCE), .outputs = world_host_out,
    .props = camera_props, .params_size = sizeof(struct camera),
};
static const struct pen_module_class file_class = {
    WORLD_CLASS("File", SINK), .inputs = world_host_in, .props = file_props,
    .params_size = sizeof(struct file),
};
// clang-format on

static unsigned endless(const char *text, uint64_t frames, const char *words)
{
    struct world w;
    const struct pen_plan_params params = { .frames = frames };
    world_extra[0] = &camera_class;
    world_extra[1] = &file_class;
    world_plan_with(&w, text, &params, NULL);
    world_extra[0] = world_extra[1] = NULL;
    if (w.status != PEN_OK)
        fail_msg("%s", w.err.text);
    const unsigned count = world_issues(&w, "W316");
    const struct pen_issue *issue = world_issue(&w, "W316");
    if (issue && (!strstr(issue->message, words) ||
                  strcmp(issue->pointer, "/modules/s")))
        fail_msg("%s: %s", issue->pointer, issue->message);
    world_finish(&w);
    return count;
}

// clang-format off
PEN_TEST(a_source_without_an_end_in_front_of_growing_files_is_told)
{
#define FILM(source, file) \
    PIPE(MOD("s", "Camera", source) C MOD("h", "Pass", "'formats': 'ALL'") C \
         MOD("f", "File", file) C MOD("g", "File", file), \
         TO("s", "h") C TO("h", "f") C TO("h", "g"))
    assert_int_equal(endless(FILM("", "'path': 'out/????.raw'"), 0,
                             "`s` has no end (maxFrames is 0), and `f` makes "
                             "a file for each frame until"), 1);
    assert_int_equal(endless(FILM("", "'path': 'out/a-*.raw'"), 0,
                             "`f` makes a file for each frame"), 1);
    assert_int_equal(endless(FILM("", "'path': 'a.raw', 'append': true"), 0,
                             "`f` adds each frame to its file"), 1);
    assert_int_equal(endless(FILM("'maxFrames': 9, 'readLoop': true",
                                  "'path': 'out/a-*.raw'"), 0,
                             "`s` begins again after its last file"), 1);
    // An end, one for this run, files that do not grow, and no file.
    assert_int_equal(endless(FILM("'maxFrames': 9", "'path': 'o/*.raw'"), 0,
                             ""), 0);
    assert_int_equal(endless(FILM("", "'path': 'out/????.raw'"), 5, ""), 0);
    assert_int_equal(endless(FILM("", "'path': 'a.raw'"), 0, ""), 0);
    assert_int_equal(endless(FILM("", "'append': true"), 0, ""), 0);
}

// --- nothing to say -----------------------------------------------------------------

PEN_TEST(nothing_is_said_where_nothing_is_to_be_gained)
{
    // One copy each way, with work on the device.
    silent(PIPE(SOURCE("s", RGB) C MOD("g", "CudaWork", CUDA RGB) C
                MOD("k", "Sink", RGB),
                TO("s", "g") C TO("g", "k")));
    silent(PIPE(SOURCE("s", RGB) C UP("u") C MOD("g", "CudaWork", CUDA RGB) C
                DOWN("d") C MOD("k", "Sink", RGB),
                TO("s", "u") C TO("u", "g") C TO("g", "d") C TO("d", "k")));
    // A host module before or behind the part on the device.
    silent(PIPE(SOURCE("s", RGB) C BLUR("h") C
                MOD("g", "CudaWork", CUDA RGB) C BLUR("i") C
                MOD("k", "Sink", RGB),
                TO("s", "h") C TO("h", "g") C TO("g", "i") C TO("i", "k")));
    // Host and device branches that do not meet again.
    silent(PIPE(SOURCE("s", CUDA RGB) C BLUR("h") C
                MOD("k", "Sink", RGB) C MOD("l", "Sink", CUDA RGB),
                TO("s", "h") C TO("h", "k") C TO("s", "l")));
}

PEN_TEST(a_detour_of_unknown_size_is_told_without_numbers)
{
    struct world w;
    plan(&w, PIPE(MOD("s", "Source", "'width': 0, " CUDA RGB) C
                        BLUR("h") C MOD("k", "Sink", CUDA RGB),
                        TO("s", "h") C TO("h", "k")), NULL);
    assert_int_equal(world_issues(&w, "W310"), 1);
    assert_null(strstr(world_issue(&w, "W310")->message, "us a frame"));
    assert_non_null(strstr(world_issue(&w, "W310")->suggestion, "CudaBlur"));
    world_finish(&w);
}

// --- any graph ----------------------------------------------------------------

static uint32_t random_below(uint32_t *state, uint32_t n)
{
    *state = *state * 1664525u + 1013904223u;
    return (uint32_t)((uint64_t)(*state >> 8) * n >> 24);
}

// Modules of both sides with copies and conversions by hand.
static char *random_graph(uint32_t *state)
{
    static const char *const inner[] = {
        "'type': 'HostBlur', 'props': { }",
        "'type': 'CudaBlur', 'props': { }",
        "'type': 'HostBlur', 'props': { }",
        "'type': 'Pass', 'props': { 'mem': 'HOST|CUDA_DEVICE', "
        "'formats': 'ALL' }",
        "'type': 'CudaMemCopy', 'props': { 'kind': 'HostToDevice' }",
        "'type': 'CudaMemCopy', 'props': { 'kind': 'DeviceToHost' }",
        "'type': 'HostConvert', 'props': { 'imageType': 'MONO' }",
        "'type': 'CudaConvert', 'props': { 'imageType': 'RGB' }",
        "'type': 'Work', 'props': { 'formats': 'ALL' }",
        "'type': 'PassJoin', 'props': { 'mem': 'HOST|CUDA_DEVICE', "
        "'formats': 'ALL' }",
        "'type': 'Join', 'props': { 'formats': 'ALL' }",
    };
    static const char *const sinks[] = {
        "'HOST'", "'CUDA_DEVICE'", "'HOST_PINNED'", "'HOST|CUDA_DEVICE'",
    };
    enum { INNER = sizeof(inner) / sizeof(*inner), JOINS = INNER - 2 };
    enum { MOST = 9 };
    struct stk_text modules = { 0 }, links = { 0 };
    uint32_t feeds[MOST] = { 0 }, count = 3 + random_below(state, MOST - 3);
    stk_text_addf(&modules,
                  "{ 'modules': { 'm0': { 'type': 'Source', 'props': { 'mem': "
                  "%s, 'width': 1280, 'height': 720, 'formats': '%s' } }",
                  sinks[random_below(state, 2)],
                  random_below(state, 2) ? "RGB" : "MONO");
    for (uint32_t i = 1; i < count; i++) {
        const uint32_t what = random_below(state, INNER);
        const uint32_t pins = what < JOINS ? 1 : 2;
        stk_text_addf(&modules, ", 'm%u': { %s }", i, inner[what]);
        for (uint32_t pin = 1; pin <= pins; pin++) {
            const bool last = pin == 1 && random_below(state, 3);
            const uint32_t from = last ? i - 1 : random_below(state, i);
            feeds[from]++;
            stk_text_addf(&links, "{ 'from': 'm%u', 'to': 'm%u", from, i);
            if (pins > 1)
                stk_text_addf(&links, ".input_%u", pin);
            stk_text_add(&links, "' }, ");
        }
    }
    const char *comma = "";
    for (uint32_t i = 0; i < count; i++) {
        if (feeds[i])
            continue;
        stk_text_addf(&modules,
                      ", 'k%u': { 'type': 'Sink', 'props': { 'mem': %s, "
                      "'formats': 'ALL' } }",
                      i, sinks[random_below(state, 4)]);
        stk_text_addf(&links, "%s{ 'from': 'm%u', 'to': 'k%u' }", comma, i, i);
        comma = ", ";
    }
    stk_text_addf(&modules, " }, 'connections': [ %s ] }", links.data);
    stk_text_finish(&links);
    return stk_text_take(&modules);
}

// Some graphs have no plan: frames that leave together on both sides.
static bool may_plan(struct world *w, const char *text)
{
    try_plan(w, text, NULL);
    if (w->status != PEN_OK)
        world_finish(w);
    return w->plan != NULL;
}

PEN_TEST(to_follow_any_suggestion_saves_at_least_what_it_says)
{
    uint32_t state = 4;
    unsigned followed[8] = { 0 }, exact = 0, all = 0;
    for (unsigned g = 0; g < 2000; g++) {
        char *text = random_graph(&state);
        struct world w, then;
        if (!may_plan(&w, text)) {
            free(text);
            continue;
        }
        const struct pen_issue *issue;
        for (size_t i = 0; (issue = pen_issues_get(w.issues, i)); i++) {
            const long long told = told_saving(issue->message);
            if (told < 0)
                continue;
            char *changed = follow(text, issue->suggestion);
            plan(&then, changed, NULL);
            const long long real =
                (w.plan->cost_ns - then.plan->cost_ns) / 100;
            if (real < told) {
                print_error("%s\n", text);
                print_error("%s\n", issue->message);
                print_error("%s\n%s\n", issue->suggestion, changed);
                fail_msg("graph %u: really %lld", g, real);
            }
            exact += real == told;
            all++;
            followed[issue->code[3] - '0']++;
            world_finish(&then);
            free(changed);
        }
        world_finish(&w);
        free(text);
    }
    print_message("%u followed, %u of them exact: %u W310, %u W312, %u W313, "
                  "%u W314\n",
                  all, exact, followed[0], followed[2], followed[3],
                  followed[4]);
    assert_true(followed[0] > 100 && followed[2] > 20 && followed[3] > 20 &&
                followed[4] > 100);
    assert_true(exact * 5 > all * 4);
}

// --- without memory -----------------------------------------------------------------

#define EVERYTHING \
    PIPE(SOURCE("s", CUDA RGB) C BLUR("h") C DOWN("d") C \
         MOD("x", "Split", RGB) C UP("u") C UP("v") C \
         MOD("k", "Sink", CUDA RGB) C MOD("l", "Sink", CUDA RGB) C \
         MOD("m", "Sink", CUDA RGB) C DOWN("e") C \
         CONVERT("c", "HostConvert", "MONO") C \
         MOD("n", "Sink", "'formats': 'MONO'"), \
         TO("s", "h") C TO("h", "k") C TO("s", "d") C TO("d", "x") C \
         TO("x.output_1", "u") C TO("x.output_1", "v") C TO("u", "l") C \
         TO("v", "m") C TO("s", "e") C TO("e", "c") C TO("c", "n"))
// clang-format on

PEN_TEST(a_failing_allocation_is_told_and_leaves_nothing)
{
    struct world w;
    struct pen_error err = { 0 };
    json_set_alloc_funcs(malloc, free);
    plan(&w, EVERYTHING, NULL);
    assert_true(pen_issues_count(w.issues, PEN_SEVERITY_INFO) >= 3);
    const struct pen_plan_params params = w.plan->params;
    for (unsigned nth = 1;; nth++) {
        struct pen_issues *issues = pen_issues_create();
        struct pen_plan *plan = NULL;
        assert_non_null(issues);
        pen_alloc_fail_arm(nth, false);
        const enum pen_status st =
            pen_plan_create(w.desc, w.registry, &params, &plan, issues, &err);
        const bool failed = pen_alloc_fail_disarm();
        assert_int_equal(st, failed ? PEN_E_NOMEM : PEN_OK);
        assert_true((st == PEN_OK) == (plan != NULL));
        pen_plan_destroy(&plan);
        pen_issues_destroy(&issues);
        if (!failed)
            break;
    }
    world_finish(&w);
}

PEN_TEST_MAIN(
    PEN_CASE(a_detour_over_a_host_module_saves_all_that_it_costs),
    PEN_CASE(a_detour_with_nothing_between_is_taken_out),
    PEN_CASE(host_copy_host_copy_is_a_detour),
    PEN_CASE(a_detour_through_fan_outs_and_joins_is_one_finding),
    PEN_CASE(a_detour_of_which_two_parts_have_nothing_in_common_is_told_twice),
    PEN_CASE(a_module_without_a_twin_is_told_as_such),
    PEN_CASE(modules_at_the_end_of_a_detour_can_move_by_themselves),
    PEN_CASE(a_generic_type_is_told_by_its_backend),
    PEN_CASE(a_short_run_is_not_told_what_would_not_pay),
    PEN_CASE(a_host_module_whose_frames_are_imported_is_told),
    PEN_CASE(a_copy_that_nobody_needs_is_told),
    PEN_CASE(equal_copies_are_shared),
    PEN_CASE(a_conversion_on_the_dearer_side_of_a_copy_is_told),
    PEN_CASE(without_bridges_of_the_planner_a_copy_changes_places),
    PEN_CASE(an_upload_whose_frames_are_dmabufs_is_told),
    PEN_CASE(a_source_without_an_end_in_front_of_growing_files_is_told),
    PEN_CASE(nothing_is_said_where_nothing_is_to_be_gained),
    PEN_CASE(a_detour_of_unknown_size_is_told_without_numbers),
    PEN_CASE(to_follow_any_suggestion_saves_at_least_what_it_says),
    PEN_CASE(a_failing_allocation_is_told_and_leaves_nothing))
