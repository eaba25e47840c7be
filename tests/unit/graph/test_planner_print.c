// What is printed and drawn: the promised JSON, texts of joins and branches,
// well-formed drawings whatever the names are.

#include <math.h>

#include "planner_world.h"

unsigned world_negotiated, world_probed;
struct pen_probe world_probe;
enum pen_status world_probe_status;

static const char *const fan =
    PIPE(MOD("s", "Source", RGB) "," MOD("a", "CudaWork", CUDA RGB) "," MOD(
             "b", "Work", RGB) "," MOD("j", "Join",
                                       RGB) "," MOD("k", "Sink",
                                                    "'formats': 'NV12'"),
         TO("s", "a") "," TO("s", "b") "," TO("a", "j.input_1") "," TO(
             "b", "j.input_2") "," TO("j", "k"));

static json_t *json_of(struct world *w)
{
    json_error_t why;
    char *text = pen_plan_json(w->plan, w->issues);
    assert_non_null(text);
    json_t *root = json_loads(text, JSON_REJECT_DUPLICATES, &why);
    if (!root)
        fail_msg("%s\n%s", why.text, text);
    pen_free(text);
    return root;
}

// The keys of an object are exactly these.
static void check_keys(const json_t *object, const char *keys)
{
    char list[256], *at = list, *key, *save = NULL;
    size_t count = 0;
    assert_true(json_is_object(object));
    snprintf(list, sizeof(list), "%s", keys);
    while ((key = strtok_r(at, " ", &save))) {
        at = NULL;
        count++;
        if (!json_object_get(object, key))
            fail_msg("no key %s", key);
    }
    assert_int_equal(json_object_size(object), count);
}

static void check_finite(const json_t *value)
{
    const char *key;
    json_t *child;
    size_t i;
    if (json_is_real(value))
        assert_true(isfinite(json_real_value(value)));
    json_object_foreach ((json_t *)value, key, child)
        check_finite(child);
    json_array_foreach (value, i, child)
        check_finite(child);
}

static const json_t *member(const json_t *root, const char *list, size_t i)
{
    const json_t *value = json_array_get(json_object_get(root, list), i);
    assert_non_null(value);
    return value;
}

static const char *string(const json_t *object, const char *key)
{
    const char *text = json_string_value(json_object_get(object, key));
    assert_non_null(text);
    return text;
}

static json_int_t integer(const json_t *object, const char *key)
{
    assert_true(json_is_integer(json_object_get(object, key)));
    return json_integer_value(json_object_get(object, key));
}

PEN_TEST(json_has_the_promised_keys_and_no_others)
{
    struct world w;
    world_plan(&w, fan);
    json_t *root = json_of(&w);
    check_keys(root, "ok optimal provisional profile issues modules "
                     "connections transfers memory cost_us_per_frame touches");
    assert_true(json_is_true(json_object_get(root, "ok")));
    for (size_t i = 0; i < w.plan->node_count; i++)
        check_keys(member(root, "modules", i),
                   "id type inserted reason serves props loss");
    for (size_t i = 0; i < w.plan->edge_count; i++)
        check_keys(
            member(root, "connections", i),
            "from to mem of how format width height pitch bytes_per_frame "
            "depth upgraded_from");
    check_keys(json_object_get(root, "transfers"),
               "h2d_per_frame d2h_per_frame h2d_bytes_per_frame "
               "d2h_bytes_per_frame h2h_per_frame h2h_bytes_per_frame");
    check_keys(json_object_get(root, "memory"),
               "host host_pinned cuda_device dmabuf");
    check_keys(json_object_get(root, "touches"), "paths hosts devices");
    check_finite(root);
    assert_int_equal(json_array_size(json_object_get(root, "modules")),
                     w.plan->node_count);
    json_decref(root);
    world_finish(&w);
}

PEN_TEST(json_tells_bridges_and_upgrades)
{
    struct world w;
    world_plan(&w, fan);
    json_t *root = json_of(&w);
    const json_t *source = member(root, "modules", 0);
    assert_string_equal(string(source, "id"), "s");
    assert_true(json_is_null(json_object_get(source, "reason")));
    const json_t *bridge = member(root, "modules", 1);
    assert_string_equal(string(bridge, "type"), "CudaMemCopy");
    assert_true(json_is_true(json_object_get(bridge, "inserted")));
    assert_string_equal(string(json_object_get(bridge, "props"), "kind"),
                        "HostToDevice");
    assert_string_equal(
        json_string_value(json_array_get(json_object_get(bridge, "serves"), 0)),
        "s.output -> a.input");
    const json_t *first = member(root, "connections", 0);
    assert_string_equal(string(first, "from"), "s.output");
    assert_string_equal(string(first, "mem"), "HOST_PINNED");
    assert_string_equal(string(first, "upgraded_from"), "HOST");
    assert_string_equal(string(first, "format"), "RGB");
    assert_int_equal(integer(first, "width"), 64);
    assert_int_equal(integer(first, "pitch"), 192);
    assert_int_equal(integer(first, "bytes_per_frame"), 192 * 48);
    const json_t *transfers = json_object_get(root, "transfers");
    assert_int_equal(integer(transfers, "h2d_per_frame"), 1);
    assert_int_equal(integer(transfers, "d2h_bytes_per_frame"), 192 * 48);
    const json_t *touches = json_object_get(root, "touches");
    assert_string_equal(json_string_value(json_array_get(
                            json_object_get(touches, "devices"), 0)),
                        "cuda:auto");
    json_decref(root);
    world_finish(&w);
}

PEN_TEST(what_is_unknown_is_null_in_json)
{
    struct world w;
    world_plan(
        &w,
        PIPE(MOD("s", "Source",
                 "'formats': 'RGB|MONO', 'width': 0, "
                 "'height': 0") "," MOD("t", "Source",
                                        RGB) "," MOD("k", "Sink",
                                                     CUDA
                                                     "'formats': "
                                                     "'RGB|MONO'") "," MOD("l",
                                                                           "Sin"
                                                                           "k",
                                                                           RGB),
             TO("s", "k") "," TO("t", "l")));
    json_t *root = json_of(&w);
    assert_true(json_is_true(json_object_get(root, "provisional")));
    const json_t *edge = member(root, "connections", 0);
    static const char *const unknown[] = { "format", "width", "height", "pitch",
                                           "bytes_per_frame" };
    for (size_t i = 0; i < sizeof(unknown) / sizeof(*unknown); i++)
        assert_true(json_is_null(json_object_get(edge, unknown[i])));
    assert_true(json_is_null(json_object_get(root, "cost_us_per_frame")));
    const json_t *memory = json_object_get(root, "memory");
    assert_true(json_is_null(json_object_get(memory, "cuda_device")));
    assert_true(json_is_null(json_object_get(memory, "host_pinned")));
    // The other chain is known whole.
    assert_int_equal(integer(memory, "host"), 6 * 192 * 48);
    const json_t *transfers = json_object_get(root, "transfers");
    assert_true(
        json_is_null(json_object_get(transfers, "h2d_bytes_per_frame")));
    assert_int_equal(integer(transfers, "d2h_bytes_per_frame"), 0);
    json_decref(root);
    world_finish(&w);
}

PEN_TEST(issues_are_part_of_the_json)
{
    struct world w;
    world_plan(&w, PIPE(MOD("s", "Source", CUDA RGB) "," MOD(
                            "h", "Work", RGB) "," MOD("k", "Sink", CUDA RGB),
                        TO("s", "h") "," TO("h", "k")));
    json_t *root = json_of(&w);
    const json_t *issue = member(root, "issues", 0);
    check_keys(issue, "severity code line column pointer message suggestion");
    assert_string_equal(string(issue, "severity"), "warning");
    assert_string_equal(string(issue, "code"), "W310");
    json_decref(root);
    // Without issues it is empty, not missing.
    char *text = pen_plan_json(w.plan, NULL);
    assert_non_null(strstr(text, "\"issues\": []"));
    pen_free(text);
    world_finish(&w);
}

PEN_TEST(touched_things_are_told_by_their_kind)
{
    struct world w;
    world_plan(
        &w,
        PIPE(
            MOD("s", "Source",
                RGB
                ", 'path': '/dev/null', 'target': "
                "'rtsp://me:secret@cam.example:554/live'") "," MOD("k", "Sink",
                                                                   RGB
                                                                   ", "
                                                                   "'target"
                                                                   "': "
                                                                   "'out."
                                                                   "raw'") "," MOD("l",
                                                                                   "Sink",
                                                                                   RGB
                                                                                   ", 'target': "
                                                                                   "'http://[::1]:80/'"),
            TO("s", "k") "," TO("s", "l")));
    json_t *root = json_of(&w);
    const json_t *touches = json_object_get(root, "touches");
    json_t *want =
        json_pack("{s:[s],s:[s,s],s:[s]}", "paths", "out.raw", "hosts", "[::1]",
                  "cam.example", "devices", "/dev/null");
    if (!json_equal(touches, want))
        fail_msg("%s", json_dumps(touches, 0));
    json_decref(want);
    json_decref(root);
    world_finish(&w);
}

PEN_TEST(a_join_is_drawn_once_below_its_last_branch)
{
    struct world w;
    world_plan(&w, fan);
    char *text = pen_plan_text(w.plan);
    const char *body = strstr(text, "\n\n");
    const char *join = strstr(body, " j  ");
    assert_non_null(join);
    const char *end = strstr(join, "\n\n");
    const char *again = strstr(join + 1, " j  ");
    assert_true(!again || again > end);
    assert_non_null(strstr(body, "-> j.input_1"));
    assert_non_null(strstr(body, "-> j.input_2"));
    assert_true(strstr(body, "-> j.input_1") < join);
    assert_true(strstr(body, "-> j.input_2") < join);
    // Bridges have their mark in the margin, all modules their line.
    assert_non_null(strstr(body, "\n  + "));
    for (uint32_t n = 0; n < w.plan->node_count; n++)
        assert_non_null(strstr(body, w.plan->nodes[n].id));
    pen_free(text);
    world_finish(&w);
}

PEN_TEST(deep_fan_outs_stay_on_the_page)
{
    struct world w;
    struct stk_text t = { 0 };
    const unsigned depth = 300;
    stk_text_add(&t, "{ 'modules': { 'm0': { 'type': 'Source' }");
    for (unsigned i = 1; i <= depth; i++)
        stk_text_addf(&t,
                      ", 'm%u': { 'type': 'Work' }, 'k%u': { 'type': "
                      "'Sink' }",
                      i, i);
    stk_text_add(&t, "}, 'connections': [");
    for (unsigned i = 1; i <= depth; i++)
        stk_text_addf(&t,
                      "%s{ 'from': 'm%u', 'to': 'm%u' }, { 'from': 'm%u', "
                      "'to': 'k%u' }",
                      i > 1 ? "," : "", i - 1, i, i - 1, i);
    stk_text_add(&t, "] }");
    world_plan(&w, t.data);
    stk_text_finish(&t);
    char *text = pen_plan_text(w.plan);
    size_t longest = 0;
    for (const char *line = text; line && *line;) {
        const size_t n = strcspn(line, "\n");
        longest = n > longest ? n : longest;
        line += n + (line[n] == '\n');
    }
    assert_true(longest < 240);
    pen_free(text);
    world_finish(&w);
}

// Tags are balanced and nothing unescaped stands between them.
static void check_xml(const char *s)
{
    char stack[32][32];
    unsigned depth = 0;
    for (; *s; s++) {
        if (*s == '&') {
            assert_true(!strncmp(s, "&lt;", 4) || !strncmp(s, "&gt;", 4) ||
                        !strncmp(s, "&amp;", 5) || !strncmp(s, "&quot;", 6));
            continue;
        }
        if (*s != '<')
            continue;
        const bool closing = s[1] == '/';
        s += 1 + closing;
        char name[32] = "";
        const size_t n = strcspn(s, " />");
        assert_true(n > 0 && n < sizeof(name));
        memcpy(name, s, n);
        bool quoted = false;
        for (; *s && (quoted || *s != '>'); s++) {
            assert_true(*s != '<');
            quoted ^= *s == '"';
        }
        assert_true(*s == '>');
        if (closing) {
            assert_true(depth > 0);
            assert_string_equal(stack[--depth], name);
        } else if (s[-1] != '/') {
            assert_true(depth < 32);
            snprintf(stack[depth++], sizeof(stack[0]), "%s", name);
        }
    }
    assert_int_equal(depth, 0);
}

PEN_TEST(drawings_are_well_formed_whatever_the_names)
{
    struct world w;
    world_plan(&w,
               "{ 'pipeline': { 'name': '<&> \\\" \xc3\xa4' }, 'modules': {"
               "'a<b>&\\\"\\\\': { 'type': 'Source' },"
               "'\xe4\xbd\xa0\xe5\xa5\xbd\xe4\xbd\xa0\xe5\xa5\xbd\xe4\xbd\xa0"
               "\xe5\xa5\xbd\xe4\xbd\xa0\xe5\xa5\xbd\xe4\xbd\xa0\xe5\xa5\xbd"
               "\xe4\xbd\xa0\xe5\xa5\xbd\xe4\xbd\xa0\xe5\xa5\xbd\xe4\xbd\xa0"
               "\xe5\xa5\xbd\xe4\xbd\xa0\xe5\xa5\xbd\xe4\xbd\xa0\xe5\xa5\xbd"
               "\xe4\xbd\xa0\xe5\xa5\xbd\xe4\xbd\xa0\xe5\xa5\xbd\xe4\xbd\xa0"
               "\xe5\xa5\xbd\xe4\xbd\xa0\xe5\xa5\xbd\xe4\xbd\xa0\xe5\xa5\xbd"
               "\xe4\xbd\xa0\xe5\xa5\xbd': { 'type': 'Sink', 'props': {"
               "'mem': 'CUDA_DEVICE' } } },"
               "'connections': [ { 'from': 'a<b>&\\\"\\\\', 'to': '\xe4\xbd\xa0"
               "\xe5\xa5\xbd\xe4\xbd\xa0\xe5\xa5\xbd\xe4\xbd\xa0\xe5\xa5\xbd"
               "\xe4\xbd\xa0\xe5\xa5\xbd\xe4\xbd\xa0\xe5\xa5\xbd\xe4\xbd\xa0"
               "\xe5\xa5\xbd\xe4\xbd\xa0\xe5\xa5\xbd\xe4\xbd\xa0\xe5\xa5\xbd"
               "\xe4\xbd\xa0\xe5\xa5\xbd\xe4\xbd\xa0\xe5\xa5\xbd\xe4\xbd\xa0"
               "\xe5\xa5\xbd\xe4\xbd\xa0\xe5\xa5\xbd\xe4\xbd\xa0\xe5\xa5\xbd"
               "\xe4\xbd\xa0\xe5\xa5\xbd\xe4\xbd\xa0\xe5\xa5\xbd\xe4\xbd\xa0"
               "\xe5\xa5\xbd' } ] }");
    char *svg = pen_plan_svg(w.plan);
    check_xml(svg);
    // What was cut was cut between characters, and by their number.
    char name[256] = ">";
    for (unsigned i = 0; i < 15; i++)
        strcat(name, "\xe4\xbd\xa0\xe5\xa5\xbd");
    assert_non_null(strstr(svg, strcat(name, "...<")));
    for (const unsigned char *c = (unsigned char *)svg; *c; c++)
        if (*c >= 0xe0)
            assert_true((c[1] & 0xc0) == 0x80 && (c[2] & 0xc0) == 0x80);
    pen_free(svg);
    char *dot = pen_plan_dot(w.plan);
    assert_non_null(strstr(dot, "\"a<b>&\\\"\\\\\""));
    pen_free(dot);
    json_decref(json_of(&w));
    world_finish(&w);
}

PEN_TEST(names_cannot_steer_a_terminal)
{
    struct world w;
    world_plan(&w, "{ 'pipeline': { 'name': 'x\\u001b[2J' }, 'modules': {"
                   "'a\\u001b[31m\\n\\u009b1m\\u007f': { 'type': 'Source' },"
                   "'k\\u0007': { 'type': 'Sink', 'props': { 'mem': "
                   "'CUDA_DEVICE', 'target': 'p\\u001b]0;t' } } },"
                   "'connections': [ { 'from': "
                   "'a\\u001b[31m\\n\\u009b1m\\u007f', 'to': 'k\\u0007' } ] }");
    char *text = pen_plan_text(w.plan);
    for (const char *c = text; *c; c++) {
        assert_true((unsigned char)*c >= 0x20 || *c == '\n');
        assert_true(*c != 0x7f && (unsigned char)*c != 0xc2);
    }
    assert_non_null(strstr(text, "a?[31m??1m?"));
    pen_free(text);
    world_finish(&w);
}

PEN_TEST(every_module_and_edge_is_drawn)
{
    struct world w;
    world_plan(&w, fan);
    char *svg = pen_plan_svg(w.plan), *dot = pen_plan_dot(w.plan);
    check_xml(svg);
    unsigned boxes = 0, lines = 0, arrows = 0;
    for (const char *s = svg; (s = strstr(s, "<title>")); s++)
        boxes++;
    for (const char *s = svg; (s = strstr(s, "marker-end")); s++)
        lines++;
    for (const char *s = dot; (s = strstr(s, "\" -> \"")); s++)
        arrows++;
    assert_int_equal(boxes, w.plan->node_count);
    assert_int_equal(lines, w.plan->edge_count);
    assert_int_equal(arrows, w.plan->edge_count);
    for (const char *m = "HOST\0HOST_PINNED\0CUDA_DEVICE\0"; *m;
         m += strlen(m) + 1)
        assert_non_null(strstr(svg, m));
    pen_free(svg);
    pen_free(dot);
    world_finish(&w);
}

PEN_TEST_MAIN(PEN_CASE(json_has_the_promised_keys_and_no_others),
              PEN_CASE(json_tells_bridges_and_upgrades),
              PEN_CASE(what_is_unknown_is_null_in_json),
              PEN_CASE(issues_are_part_of_the_json),
              PEN_CASE(touched_things_are_told_by_their_kind),
              PEN_CASE(a_join_is_drawn_once_below_its_last_branch),
              PEN_CASE(deep_fan_outs_stay_on_the_page),
              PEN_CASE(drawings_are_well_formed_whatever_the_names),
              PEN_CASE(names_cannot_steer_a_terminal),
              PEN_CASE(every_module_and_edge_is_drawn))
