// What is printed and drawn: the promised JSON, texts of joins and branches,
// well-formed drawings whatever the names are.

#include <math.h>

#include "planner_world.h"
#include "src/graph/plan_draw.h"
#include "src/graph/plan_layout.h"

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
    char list[512], *at = list, *key, *save = NULL;
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
    check_keys(root,
               "ok optimal gap_us gap_loss lossy provisional unknown profile "
               "issues modules connections transfers memory memory_by_module "
               "budget cost_us_per_frame cost frames touches");
    assert_true(json_is_true(json_object_get(root, "ok")));
    for (size_t i = 0; i < w.plan->node_count; i++)
        check_keys(member(root, "modules", i),
                   "id type class choice inserted reason serves props lossy "
                   "loss cost_us");
    for (size_t i = 0; i < w.plan->edge_count; i++)
        check_keys(member(root, "connections", i),
                   "from to mem of how kind format formats width height matrix "
                   "range fps pitch layout bytes_per_frame depth policy pool "
                   "upgraded_from");
    check_keys(json_object_get(root, "transfers"),
               "h2d_per_frame d2h_per_frame h2d_bytes_per_frame "
               "d2h_bytes_per_frame h2h_per_frame h2h_bytes_per_frame");
    check_keys(json_object_get(root, "memory"),
               "host host_pinned cuda_device dmabuf");
    check_keys(member(root, "memory_by_module", 0), "id pools workspace");
    check_keys(json_object_get(root, "budget"),
               "host host_pinned cuda_device dmabuf host_together "
               "h2d_per_frame d2h_per_frame");
    check_keys(json_object_get(root, "cost"),
               "h2d_us d2h_us d2d_us device_us host_us once_us");
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
    assert_int_equal(integer(memory, "host"), 5 * 192 * 48);
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

static const char *find_before(const char *text, const char *end,
                               const char *word)
{
    return memmem(text, (size_t)(end - text), word, strlen(word));
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
    assert_non_null(end);
    assert_null(find_before(join + strlen(" j  "), end, " j  "));
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

// --- columns ----------------------------------------------------------------

// Where `word` begins in the line at `line`, in columns; -1: not there.
static long column_of(const char *line, const char *word)
{
    const size_t length = strcspn(line, "\n");
    const char *at = strstr(line, word);
    if (!at || at >= line + length)
        return -1;
    char *before = strndup(line, (size_t)(at - line));
    assert_non_null(before);
    const long column = (long)stk_text_columns(before);
    free(before);
    return column;
}

// The column at which `word` stands in all lines that have it.
static long common_column(const char *text, const char *word)
{
    long common = -1;
    for (const char *line = text; *line;) {
        const long column = column_of(line, word);
        if (column >= 0 && common >= 0 && column != common)
            fail_msg("%s at columns %ld and %ld of\n%s", word, common, column,
                     text);
        if (column >= 0)
            common = column;
        line += strcspn(line, "\n");
        line += *line == '\n';
    }
    assert_true(common >= 0);
    return common;
}

static void check_no_trailing_blanks(const char *text)
{
    assert_null(strstr(text, " \n"));
}

PEN_TEST(columns_of_text_are_those_of_a_terminal)
{
    assert_int_equal(stk_text_columns(""), 0);
    assert_int_equal(stk_text_columns("abc"), 3);
    assert_int_equal(stk_text_columns("\xc3\xa4\xc3\xb6"), 2);
    assert_int_equal(stk_text_columns("\xe4\xbd\xa0\xe5\xa5\xbd"), 4);
    assert_int_equal(stk_text_columns("\xf0\x9f\x8e\xa5"), 2);
    // e and a combining acute; an escape; a byte that is no UTF-8.
    assert_int_equal(stk_text_columns("e\xcc\x81"), 1);
    assert_int_equal(stk_text_columns("\033"), 1);
    assert_int_equal(stk_text_columns("\xff"), 1);
}

PEN_TEST(columns_stand_below_each_other)
{
    struct world w;
    world_plan(&w, fan);
    char *text = pen_plan_text(w.plan);
    common_column(text, "pitch 192");
    common_column(text, " depth ");
    common_column(text, " kind=");
    check_no_trailing_blanks(text);
    pen_free(text);
    world_finish(&w);

    // Wide characters count two, a long name pushes nobody else's line.
    world_plan(
        &w,
        "{ 'modules': {"
        "'\xe4\xbd\xa0\xe5\xa5\xbd\xe4\xbd\xa0\xe5\xa5\xbd': {"
        "'type': 'Source' },"
        "'plain': { 'type': 'Work', 'props': { 'limit': 9000 } },"
        "'\xc3\xa4\xc3\xb6\xc3\xbc': { 'type': 'Work',"
        "  'props': { 'limit': 9000 } },"
        "'a_name_that_is_longer_than_any_that_a_column_would_be_made_for': {"
        "  'type': 'Work' },"
        "'k': { 'type': 'Sink', 'props': { 'limit': 9000 } } },"
        "'connections': ["
        "{ 'from': '\xe4\xbd\xa0\xe5\xa5\xbd\xe4\xbd\xa0\xe5\xa5\xbd',"
        "  'to': 'plain' },"
        "{ 'from': 'plain', 'to': '\xc3\xa4\xc3\xb6\xc3\xbc' },"
        "{ 'from': '\xc3\xa4\xc3\xb6\xc3\xbc', 'to':"
        "'a_name_that_is_longer_than_any_that_a_column_would_be_made_for' },"
        "{ 'from':"
        "'a_name_that_is_longer_than_any_that_a_column_would_be_made_for',"
        "  'to': 'k' } ] }");
    text = pen_plan_text(w.plan);
    common_column(text, "limit=9000");
    // In front of it stand the longest name and the cost.
    assert_true(common_column(text, " Source ") < 20);
    check_no_trailing_blanks(text);
    pen_free(text);
    world_finish(&w);
}

// --- colours ----------------------------------------------------------------

// Take the escapes out, and the line that tells what they mean.
static void uncolour(char *text)
{
    char *to = text;
    bool begin = true;
    for (const char *from = text; *from;) {
        if (*from == '\033') {
            assert_int_equal(from[1], '[');
            from += strcspn(from, "m") + 1;
            continue;
        }
        if (begin && strncmp(from, "colours", 7) == 0) {
            from += strcspn(from, "\n") + 1;
            continue;
        }
        begin = *from == '\n' || (begin && *from == '\033');
        *to++ = *from++;
    }
    *to = '\0';
}

PEN_TEST(colours_change_nothing_else)
{
    struct world w;
    world_plan(&w, fan);
    char *plain = pen_plan_text(w.plan);
    char *coloured = pen_plan_text_coloured(w.plan);
    assert_null(strchr(plain, '\033'));
    // Each memory type has its own, and the legend tells which.
    assert_non_null(strstr(coloured, "colours\033[0m    \033[94mHOST\033[0m"));
    assert_non_null(strstr(coloured, "\033[33mHOST_PINNED\033[0m  RGB"));
    assert_non_null(strstr(coloured, "\033[32mCUDA_DEVICE\033[0m  RGB"));
    assert_non_null(strstr(coloured, "\033[1;36m  +\033[0m"));
    // No line leaves the terminal coloured.
    unsigned on = 0, off = 0;
    for (const char *c = coloured; (c = strchr(c, '\033')); c++) {
        const bool reset = strncmp(c, "\033[0m", 4) == 0;
        on += !reset;
        off += reset;
    }
    assert_int_equal(on, off);
    uncolour(coloured);
    assert_string_equal(coloured, plain);
    pen_free(plain);
    pen_free(coloured);
    world_finish(&w);
}

// --- totals -----------------------------------------------------------------

PEN_TEST(what_modules_hold_adds_up_to_the_peaks)
{
    struct world w;
    uint32_t count;
    uint64_t sum[PEN_MEM_COUNT] = { 0 };
    world_plan(&w, fan);
    struct stk_holding *list = stk_plan_holdings(w.plan, &count);
    assert_non_null(list);
    assert_true(count > 2);
    for (uint32_t i = 0; i < count; i++) {
        assert_true(list[i].sum > 0);
        assert_true(i == 0 || list[i].sum <= list[i - 1].sum);
        for (unsigned m = 0; m < PEN_MEM_COUNT; m++)
            sum[m] += list[i].pools[m] + list[i].workspace[m];
    }
    assert_memory_equal(sum, w.plan->peak, sizeof(sum));
    free(list);
    // The sink holds nothing and has no row.
    char *text = pen_plan_text(w.plan);
    const char *table = strstr(text, "\nmemory     module");
    assert_non_null(table);
    assert_non_null(strstr(table, "\n           s "));
    assert_null(strstr(table, "\n           k "));
    assert_non_null(strstr(table, "\n           sum "));
    assert_non_null(strstr(table, "\n           budget "));
    pen_free(text);
    world_finish(&w);
}

PEN_TEST(the_budget_stands_beside_the_memory)
{
    struct world w;
    const struct pen_plan_params params = {
        .budget = { [PEN_MEM_HOST] = 1 << 20,
                    [PEN_MEM_HOST_PINNED] = 2 << 20,
                    [PEN_MEM_CUDA_DEVICE] = 3 << 20 },
        .h2d_limited = true,
        .h2d_per_frame = 7,
    };
    world_plan_with(&w, fan, &params, NULL);
    assert_int_equal(w.status, PEN_OK);
    json_t *root = json_of(&w);
    const json_t *budget = json_object_get(root, "budget");
    assert_int_equal(integer(budget, "host"), 1 << 20);
    assert_int_equal(integer(budget, "cuda_device"), 3 << 20);
    assert_int_equal(integer(budget, "h2d_per_frame"), 7);
    assert_true(json_is_null(json_object_get(budget, "d2h_per_frame")));
    json_decref(root);
    char *text = pen_plan_text(w.plan);
    const char *row = strstr(text, "budget");
    assert_non_null(strstr(row, "1.00 MiB"));
    assert_non_null(strstr(row, "3.00 MiB"));
    assert_non_null(strstr(row, ") of at most 7, "));
    pen_free(text);
    // Nobody knows how much a card has that is not there.
    w.plan->budget[PEN_MEM_CUDA_DEVICE] = 0;
    text = pen_plan_text(w.plan);
    row = strstr(text, "budget");
    assert_int_equal(
        column_of(row, "?") + 1,
        column_of(strstr(text, "memory     module"), "CUDA_DEVICE") +
            (long)strlen("CUDA_DEVICE") - 11);
    pen_free(text);
    world_finish(&w);
}

PEN_TEST(the_cost_is_told_by_what_does_the_work)
{
    struct world w;
    world_plan(&w, fan);
    const struct stk_plan_parts parts = stk_plan_parts(w.plan);
    assert_int_equal(parts.h2d,
                     world_node(&w, "_bridge_1_CudaMemCopy")->cost_ns);
    assert_int_equal(parts.device, world_node(&w, "a")->cost_ns);
    assert_int_equal(parts.d2d, 0);
    assert_true(parts.h2d && parts.d2h && parts.device && parts.host);
    assert_int_equal(parts.h2d + parts.d2h + parts.d2d + parts.device +
                         parts.host,
                     w.plan->cost_ns);
    char *text = pen_plan_text(w.plan);
    const char *cost = strstr(text, "\ncost ");
    assert_non_null(strstr(cost, " per frame: CPU "));
    assert_non_null(strstr(cost, "to the device "));
    assert_non_null(strstr(cost, "on the device "));
    assert_non_null(strstr(cost, "to the host "));
    assert_null(strstr(cost, "copies on the device"));
    pen_free(text);
    json_t *root = json_of(&w);
    const json_t *us = json_object_get(root, "cost");
    double sum = 0;
    const char *key;
    json_t *value;
    json_object_foreach ((json_t *)us, key, value)
        sum += strcmp(key, "once_us") ? json_real_value(value) : 0;
    assert_true(fabs(sum - json_real_value(json_object_get(
                               root, "cost_us_per_frame"))) < 1e-6);
    json_decref(root);
    world_finish(&w);
}

PEN_TEST(what_is_done_once_is_told_beside_the_cost)
{
    struct world w;
    const struct pen_plan_params params = { .frames = 4 };
    world_plan_with(&w, fan, &params, NULL);
    assert_int_equal(w.status, PEN_OK);
    w.plan->once_ns = 6000000;
    char *text = pen_plan_text(w.plan);
    assert_non_null(strstr(text, "\nonce       6.00 ms before the first frame, "
                                 "1.50 ms for each of 4\n"));
    pen_free(text);
    json_t *root = json_of(&w);
    assert_true(json_real_value(json_object_get(json_object_get(root, "cost"),
                                                "once_us")) == 6000);
    json_decref(root);
    w.plan->frames = 0;
    text = pen_plan_text(w.plan);
    assert_non_null(
        strstr(text, "\nonce       6.00 ms before the first frame\n"));
    pen_free(text);
    w.plan->once_ns = 0;
    text = pen_plan_text(w.plan);
    assert_null(strstr(text, "\nonce "));
    pen_free(text);
    world_finish(&w);
}

PEN_TEST(what_is_unknown_is_listed_where_it_begins)
{
    static const char *const text =
        "{ 'modules': {"
        "'s': { 'type': 'Source', 'props': { 'formats': 'RGB|MONO',"
        "  'width': 0, 'height': 0, 'range': 'full' } },"
        "'a': { 'type': 'Work', 'props': { 'formats': 'RGB|MONO' } },"
        "'k': { 'type': 'Sink', 'props': { 'formats': 'RGB|MONO' } } },"
        "'connections': [ { 'from': 's', 'to': 'a' },"
        "  { 'from': 'a', 'to': 'k' } ] }";
    struct world w;
    uint32_t count;
    world_plan(&w, text);
    // Who fills in what negotiate leaves open is the planner's business.
    const unsigned colour =
        w.plan->nodes[0].output[0].caps.matrix ? 0 : STK_GAP_MATRIX;
    struct stk_unknown *list = stk_plan_unknowns(w.plan, &count);
    assert_int_equal(count, 2);
    assert_int_equal(list[0].gaps, STK_GAP_FORMAT | STK_GAP_SIZE | colour);
    assert_int_equal(list[0].own, list[0].gaps);
    assert_int_equal(list[1].own, 0);
    free(list);
    char *printed = pen_plan_text(w.plan);
    const char *told =
        strstr(printed, "\nunknown    s.output: format MONO|RGB, "
                        "size");
    assert_non_null(told);
    assert_non_null(strstr(told, "; --probe reads the headers of the files of "
                                 "`s`; `maxWidth` and `maxHeight` of `s` "
                                 "settle the size\n"));
    assert_non_null(strstr(told, "and at 1 output behind it\n"));
    pen_free(printed);
    json_t *root = json_of(&w);
    const json_t *first = member(root, "unknown", 0);
    check_keys(first, "output what own settled_by");
    assert_string_equal(string(first, "output"), "s.output");
    assert_non_null(strstr(string(first, "settled_by"), "--probe"));
    assert_true(json_is_null(
        json_object_get(member(root, "unknown", 1), "settled_by")));
    json_decref(root);
    world_finish(&w);

    // Once it was looked at, looking is no advice any more.
    const struct pen_plan_params params = { .probe = true };
    world_probe = (struct pen_probe){ .caps = { .width = 64 } };
    world_plan_with(&w, text, &params, NULL);
    assert_int_equal(w.status, PEN_OK);
    printed = pen_plan_text(w.plan);
    assert_non_null(strstr(printed, "\nunknown    s.output: format"));
    assert_null(strstr(printed, "--probe"));
    pen_free(printed);
    world_probe = (struct pen_probe){ 0 };
    world_finish(&w);
}

PEN_TEST(of_what_is_partly_known_the_known_part_is_told)
{
    struct world w;
    world_plan(&w,
               "{ 'modules': {"
               "'s': { 'type': 'Source', 'props': { 'width': 0 } },"
               "'t': { 'type': 'Source' },"
               "'a': { 'type': 'Sink', 'props': { 'mem': 'CUDA_DEVICE' } },"
               "'b': { 'type': 'Sink', 'props': { 'mem': 'CUDA_DEVICE' } },"
               "'d': { 'type': 'CudaSource', 'props': { 'mem':"
               "  'CUDA_DEVICE' } }, 'k': { 'type': 'Sink' } },"
               "'connections': [ { 'from': 's', 'to': 'a' },"
               "  { 'from': 't', 'to': 'b' }, { 'from': 'd', 'to': 'k' } ] }");
    char *text = pen_plan_text(w.plan);
    assert_non_null(strstr(text, "\ntransfers  2 to the device (9.00 KiB + ?), "
                                 "1 to the host (9.00 KiB) per frame\n"));
    assert_non_null(strstr(text, " us + ? per frame: "));
    pen_free(text);
    json_t *root = json_of(&w);
    const json_t *transfers = json_object_get(root, "transfers");
    assert_true(
        json_is_null(json_object_get(transfers, "h2d_bytes_per_frame")));
    assert_int_equal(integer(transfers, "d2h_bytes_per_frame"), 192 * 48);
    json_decref(root);
    world_finish(&w);
}

PEN_TEST(what_is_known_is_not_listed)
{
    struct world w;
    uint32_t count;
    world_plan(&w, fan);
    for (uint32_t n = 0; n < w.plan->node_count; n++)
        for (uint32_t o = 0; o < w.plan->nodes[n].outputs; o++) {
            struct pen_caps *caps = &w.plan->nodes[n].output[o].caps;
            caps->matrix = PEN_MATRIX_BT709;
            caps->range = PEN_RANGE_FULL;
        }
    free(stk_plan_unknowns(w.plan, &count));
    assert_int_equal(count, 0);
    // A rate is missing only beside others that have one.
    w.plan->edges[0].caps.fps = (struct pen_rational){ 30, 1 };
    struct stk_unknown *list = stk_plan_unknowns(w.plan, &count);
    assert_true(count > 0);
    assert_int_equal(list[0].gaps, STK_GAP_RATE);
    free(list);
    char *text = pen_plan_text(w.plan);
    assert_non_null(strstr(text, "  30 fps  "));
    pen_free(text);
    w.plan->edges[0].caps.fps = (struct pen_rational){ 30000, 1001 };
    json_t *root = json_of(&w);
    assert_string_equal(string(member(root, "connections", 0), "fps"),
                        "30000/1001");
    json_decref(root);
    world_finish(&w);
}

// --- how good it is ---------------------------------------------------------

static void check_head(const struct world *w, const char *says)
{
    char *text = pen_plan_text(w->plan);
    char *line = strndup(text, strcspn(text, "\n"));
    if (!strstr(line, says))
        fail_msg("no \"%s\" in %s", says, line);
    free(line);
    pen_free(text);
}

PEN_TEST(how_far_from_the_best_is_told)
{
    struct world w;
    world_plan(&w, fan);
    w.plan->optimal = true;
    check_head(&w, ", optimal");
    w.plan->optimal = false;
    check_head(&w, ", optimum not proven");
    json_t *root = json_of(&w);
    assert_true(json_is_null(json_object_get(root, "gap_us")));
    json_decref(root);

    w.plan->cost_ns = 200000;
    w.plan->gap_ns = 12345;
    check_head(&w, ", within 12.3 us (6.2 %) of the best possible");
    root = json_of(&w);
    assert_true(json_real_value(json_object_get(root, "gap_us")) == 12.345);
    assert_true(json_is_false(json_object_get(root, "gap_loss")));
    json_decref(root);
    // Never 0 %, never more than all of it.
    w.plan->gap_ns = 1;
    check_head(&w, "(0.1 %)");
    w.plan->gap_ns = 400000;
    check_head(&w, "(100.0 %)");

    w.plan->gap_loss = true;
    check_head(&w, ", optimum not proven: another plan may lose less");
    root = json_of(&w);
    assert_true(json_is_true(json_object_get(root, "gap_loss")));
    json_decref(root);
    world_finish(&w);
}

PEN_TEST(losses_are_told_wherever_a_plan_is_shown)
{
    struct world w;
    world_plan(&w, fan);
    const struct stk_plan_node *lossy = NULL;
    for (uint32_t n = 0; n < w.plan->node_count; n++)
        if (w.plan->nodes[n].loss[0])
            lossy = &w.plan->nodes[n];
    if (!lossy) {
        fail();
        return;
    }
    char loses[256];
    snprintf(loses, sizeof(loses), "loses: %s", lossy->loss);
    check_head(&w, "(1 lossy)");
    char *text = pen_plan_text(w.plan), *svg = pen_plan_svg(w.plan);
    char *dot = pen_plan_dot(w.plan);
    assert_non_null(strstr(text, loses));
    assert_non_null(strstr(svg, loses));
    assert_non_null(strstr(dot, loses));
    pen_free(text);
    pen_free(svg);
    pen_free(dot);
    json_t *root = json_of(&w);
    assert_true(json_is_true(json_object_get(root, "lossy")));
    for (uint32_t n = 0; n < w.plan->node_count; n++) {
        const bool is = &w.plan->nodes[n] == lossy;
        const json_t *m = member(root, "modules", n);
        assert_int_equal(json_is_true(json_object_get(m, "lossy")), is);
        assert_int_equal(json_is_null(json_object_get(m, "loss")), !is);
    }
    json_decref(root);
    world_finish(&w);
}

PEN_TEST(the_class_of_a_generic_type_is_told)
{
    struct world w;
    world_plan(&w, fan);
    struct stk_plan_node *node = &w.plan->nodes[world_number(&w, "a")];
    node->type = "Anything";
    node->choice = "the device is there anyway";
    char *text = pen_plan_text(w.plan);
    const char *line = strstr(text, "   a  ");
    assert_non_null(line);
    assert_true(column_of(line, "Anything = CudaWork") > 0);
    assert_non_null(strstr(line, "why: the device is there anyway\n"));
    pen_free(text);
    json_t *root = json_of(&w);
    const json_t *m = member(root, "modules", world_number(&w, "a"));
    assert_string_equal(string(m, "type"), "Anything");
    assert_string_equal(string(m, "class"), "CudaWork");
    assert_string_equal(string(m, "choice"), "the device is there anyway");
    json_decref(root);
    char *svg = pen_plan_svg(w.plan), *dot = pen_plan_dot(w.plan);
    assert_non_null(strstr(svg, "Anything = CudaWork"));
    assert_non_null(strstr(svg, "why: the device is there anyway"));
    assert_non_null(strstr(dot, "Anything = CudaWork"));
    pen_free(svg);
    pen_free(dot);
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
    world_plan(
        &w,
        "{ 'pipeline': { 'name': '<&> \\\" \xc3\xa4' }, 'modules': {"
        "'a<b>&\\\"\\\\\\uffff': { 'type': 'Source' },"
        "'\xe4\xbd\xa0\xe5\xa5\xbd\xe4\xbd\xa0\xe5\xa5\xbd\xe4\xbd\xa0"
        "\xe5\xa5\xbd\xe4\xbd\xa0\xe5\xa5\xbd\xe4\xbd\xa0\xe5\xa5\xbd"
        "\xe4\xbd\xa0\xe5\xa5\xbd\xe4\xbd\xa0\xe5\xa5\xbd\xe4\xbd\xa0"
        "\xe5\xa5\xbd\xe4\xbd\xa0\xe5\xa5\xbd\xe4\xbd\xa0\xe5\xa5\xbd"
        "\xe4\xbd\xa0\xe5\xa5\xbd\xe4\xbd\xa0\xe5\xa5\xbd\xe4\xbd\xa0"
        "\xe5\xa5\xbd\xe4\xbd\xa0\xe5\xa5\xbd\xe4\xbd\xa0\xe5\xa5\xbd"
        "\xe4\xbd\xa0\xe5\xa5\xbd': { 'type': 'Sink', 'props': {"
        "'mem': 'CUDA_DEVICE' } } },"
        "'connections': [ { 'from': 'a<b>&\\\"\\\\\\uffff', 'to': '\xe4\xbd\xa0"
        "\xe5\xa5\xbd\xe4\xbd\xa0\xe5\xa5\xbd\xe4\xbd\xa0\xe5\xa5\xbd"
        "\xe4\xbd\xa0\xe5\xa5\xbd\xe4\xbd\xa0\xe5\xa5\xbd\xe4\xbd\xa0"
        "\xe5\xa5\xbd\xe4\xbd\xa0\xe5\xa5\xbd\xe4\xbd\xa0\xe5\xa5\xbd"
        "\xe4\xbd\xa0\xe5\xa5\xbd\xe4\xbd\xa0\xe5\xa5\xbd\xe4\xbd\xa0"
        "\xe5\xa5\xbd\xe4\xbd\xa0\xe5\xa5\xbd\xe4\xbd\xa0\xe5\xa5\xbd"
        "\xe4\xbd\xa0\xe5\xa5\xbd\xe4\xbd\xa0\xe5\xa5\xbd\xe4\xbd\xa0"
        "\xe5\xa5\xbd' } ] }");
    char *svg = pen_plan_svg(w.plan);
    check_xml(svg);
    assert_null(strstr(svg, "\xef\xbf\xbf"));
    // What was cut was cut between characters, after as many as find room.
    char name[256] = "\">";
    unsigned count = 0;
    bool found = false;
    for (; count < 40 && !found; count++) {
        strcat(name, count % 2 ? "\xe5\xa5\xbd" : "\xe4\xbd\xa0");
        const char *at = strstr(svg, name);
        found = at && strncmp(at + strlen(name), "...<", 4) == 0;
    }
    assert_true(found && count >= 12 && count <= 24);
    for (const unsigned char *c = (unsigned char *)svg; *c; c++)
        if (*c >= 0xe0)
            assert_true((c[1] & 0xc0) == 0x80 && (c[2] & 0xc0) == 0x80);
    pen_free(svg);
    char *dot = pen_plan_dot(w.plan);
    assert_non_null(strstr(dot, "\"a<b>&\\\"\\\\\xef\xbf\xbf\" [label="));
    assert_non_null(strstr(dot, "label=\"a<b>&amp;\\\"\\\\"));
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
    for (const char *s = svg; (s = strstr(s, "<text class=\"id\"")); s++)
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

// --- places of a drawing ----------------------------------------------------

// Modules of one or two inputs, each fed by any module before it.
static char *random_graph(uint64_t *seed, unsigned count)
{
    struct stk_text t = { 0 }, c = { 0 };
    stk_text_add(&t, "{ 'modules': { 'm0': { 'type': 'Source' }");
    for (unsigned n = 1; n < count; n++) {
        const bool join = n > 1 && pen_test_random(seed) % 3 == 0;
        const char *pins[] = { join ? ".input_1" : "", ".input_2" };
        stk_text_addf(&t, ", 'm%u': { 'type': '%s' }", n,
                      join ? "Join" : "Work");
        for (unsigned i = 0; i <= join; i++) {
            unsigned from = (unsigned)(pen_test_random(seed) % n);
            // Mostly the modules just before, so that the graph gets deep.
            if (pen_test_random(seed) % 4)
                from =
                    n - 1 - (unsigned)(pen_test_random(seed) % (n < 4 ? n : 4));
            stk_text_addf(&c, "%s{ 'from': 'm%u', 'to': 'm%u%s' }",
                          c.length ? ", " : "", from, n, pins[i]);
        }
    }
    stk_text_addf(&t, "}, 'connections': [ %s ] }", c.data);
    stk_text_finish(&c);
    char *text = stk_text_take(&t);
    assert_non_null(text);
    return text;
}

// Spots of a layer have room; bends are lines, boxes as wide as their words.
static void check_across(const struct stk_layout *l)
{
    for (uint32_t a = 0; a < l->spot_count; a++)
        for (uint32_t b = 0; b < a; b++) {
            const struct stk_spot *x = &l->spots[a], *y = &l->spots[b];
            if (x->layer == y->layer)
                assert_true(fabs(x->x - y->x) > x->half + y->half);
        }
    for (uint32_t s = 0; s < l->spot_count; s++) {
        assert_true(l->spots[s].x - l->spots[s].half >= 0);
        assert_true(l->spots[s].x + l->spots[s].half <= l->width);
    }
}

static void check_down(const struct stk_layout *l)
{
    for (uint32_t n = 0; n < l->plan->node_count; n++) {
        const uint32_t k = l->spots[n].layer;
        assert_true(l->top[k] + l->box[n].height <= l->bottom[k]);
        assert_true(l->bottom[k] < l->height);
    }
    for (uint32_t e = 0; e < l->plan->edge_count; e++) {
        const uint32_t k = l->spots[l->plan->edges[e].to].layer;
        assert_true(k > l->spots[l->plan->edges[e].from].layer);
        assert_true(l->words[k] > l->bottom[k - 1]);
        assert_true(l->words[k] + l->label[e].height < l->top[k]);
    }
}

// The words of an edge stand above its box, and neither other words nor a line
// come near.
static void check_words(const struct stk_layout *l)
{
    const struct pen_plan *plan = l->plan;
    for (uint32_t e = 0; e < plan->edge_count; e++) {
        const struct stk_spot *to = &l->spots[plan->edges[e].to];
        const double left = l->port[e] - l->label[e].width / 2.0;
        const double right = l->port[e] + l->label[e].width / 2.0;
        assert_true(left >= to->x - to->half - 1e-6);
        assert_true(right <= to->x + to->half + 1e-6);
        for (uint32_t f = 0; f < e; f++)
            if (l->spots[plan->edges[f].to].layer == to->layer)
                assert_true(l->port[f] + l->label[f].width / 2.0 < left ||
                            l->port[f] - l->label[f].width / 2.0 > right);
        for (uint32_t s = plan->node_count; s < l->spot_count; s++)
            if (l->spots[s].layer == to->layer)
                assert_true(l->spots[s].x < left || l->spots[s].x > right);
    }
}

PEN_TEST(nothing_in_a_drawing_covers_anything_else)
{
    uint64_t seed = 11;
    for (unsigned i = 0; i < pen_test_seeds(60, 2000); i++) {
        struct world w;
        char *text = random_graph(&seed, 2 + (unsigned)i % 40);
        world_plan(&w, text);
        free(text);
        const struct pen_plan *plan = w.plan;
        struct stk_extent *boxes = calloc(plan->node_count + 1, sizeof(*boxes));
        struct stk_extent *words = calloc(plan->edge_count + 1, sizeof(*words));
        assert_true(boxes && words);
        for (uint32_t n = 0; n < plan->node_count; n++)
            boxes[n] = (struct stk_extent){
                100 + (int)(pen_test_random(&seed) % 200),
                40 + (int)(pen_test_random(&seed) % 40),
            };
        for (uint32_t e = 0; e < plan->edge_count; e++)
            words[e] = (struct stk_extent){
                80 + (int)(pen_test_random(&seed) % 200),
                30 + (int)(pen_test_random(&seed) % 15),
            };
        struct stk_layout l = { .plan = plan, .box = boxes, .label = words };
        assert_true(stk_layout_make(&l, 100, 24));
        check_across(&l);
        check_down(&l);
        check_words(&l);
        stk_layout_finish(&l);
        free(boxes);
        free(words);
        world_finish(&w);
    }
}

PEN_TEST(each_memory_type_has_its_colour_and_its_place_in_the_legend)
{
    struct world w;
    world_plan(&w, fan);
    char *svg = pen_plan_svg(w.plan), *dot = pen_plan_dot(w.plan);
    for (unsigned m = PEN_MEM_HOST; m < PEN_MEM_COUNT; m++) {
        const char *name = pen_mem_name((enum pen_mem_type)m);
        char legend[64], cell[160];
        snprintf(legend, sizeof(legend), ">%s</text>", name);
        snprintf(cell, sizeof(cell), "color=\"%s\" bgcolor=\"%s\">%s</td>",
                 stk_shades[m].line, stk_shades[m].fill, name);
        const bool used = m != PEN_MEM_DMABUF;
        assert_int_equal(strstr(svg, legend) != NULL, used);
        assert_int_equal(strstr(dot, cell) != NULL, used);
        for (unsigned k = PEN_MEM_NONE; k < m; k++)
            assert_string_not_equal(stk_shades[m].fill, stk_shades[k].fill);
    }
    // Bridges are dashed, modules are not.
    unsigned dashed = 0, bridges = 0;
    for (const char *s = svg; (s = strstr(s, "stroke-dasharray=\"6 3\"")); s++)
        dashed++;
    for (uint32_t n = 0; n < w.plan->node_count; n++)
        bridges += w.plan->nodes[n].inserted;
    assert_int_equal(dashed, bridges);
    assert_non_null(strstr(svg, ">RGB 64x48"));
    assert_non_null(strstr(svg, ">HOST_PINNED, 9.00 KiB<"));
    // Between which pins, where there is a choice.
    assert_non_null(strstr(svg, ">to input_1<"));
    assert_non_null(strstr(svg, ">to input_2<"));
    pen_free(svg);
    pen_free(dot);
    world_finish(&w);
}

PEN_TEST_MAIN(
    PEN_CASE(json_has_the_promised_keys_and_no_others),
    PEN_CASE(json_tells_bridges_and_upgrades),
    PEN_CASE(what_is_unknown_is_null_in_json),
    PEN_CASE(issues_are_part_of_the_json),
    PEN_CASE(touched_things_are_told_by_their_kind),
    PEN_CASE(a_join_is_drawn_once_below_its_last_branch),
    PEN_CASE(columns_of_text_are_those_of_a_terminal),
    PEN_CASE(columns_stand_below_each_other),
    PEN_CASE(colours_change_nothing_else),
    PEN_CASE(what_modules_hold_adds_up_to_the_peaks),
    PEN_CASE(the_budget_stands_beside_the_memory),
    PEN_CASE(the_cost_is_told_by_what_does_the_work),
    PEN_CASE(what_is_done_once_is_told_beside_the_cost),
    PEN_CASE(what_is_unknown_is_listed_where_it_begins),
    PEN_CASE(of_what_is_partly_known_the_known_part_is_told),
    PEN_CASE(what_is_known_is_not_listed),
    PEN_CASE(how_far_from_the_best_is_told),
    PEN_CASE(losses_are_told_wherever_a_plan_is_shown),
    PEN_CASE(the_class_of_a_generic_type_is_told),
    PEN_CASE(deep_fan_outs_stay_on_the_page),
    PEN_CASE(drawings_are_well_formed_whatever_the_names),
    PEN_CASE(names_cannot_steer_a_terminal),
    PEN_CASE(every_module_and_edge_is_drawn),
    PEN_CASE(nothing_in_a_drawing_covers_anything_else),
    PEN_CASE(each_memory_type_has_its_colour_and_its_place_in_the_legend))
