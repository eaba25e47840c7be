// The planner against all choices that there are, on random graphs of a few
// modules (brute.h): least loss, then least cost, for the whole graph.

#include "brute.h"
#include "src/graph/planner.h"
#include "world_resize.h"

unsigned world_negotiated, world_probed;
struct pen_probe world_probe;
enum pen_status world_probe_status;

// --- the world --------------------------------------------------------------

// Converters that know the formats of the graph and no others: what is not
// tried here, the planner must not have either.
static void make_converters(const struct brute_graph *g)
{
    static struct pen_module_class classes[2];
    static struct pen_pin outputs[2][2];
    static const char *const names[] = { "HostConvert", "CudaConvert" };
    for (unsigned side = 0; side < 2; side++) {
        for (unsigned i = 0; i < WORLD_COUNT; i++)
            if (!strcmp(world_classes[i].name, names[side]))
                classes[side] = world_classes[i];
        outputs[side][0] = classes[side].outputs[0];
        outputs[side][0].formats = 0;
        for (unsigned t = 0; t < g->targets; t++)
            outputs[side][0].formats |= PEN_FMT_BIT(g->target[t]);
        classes[side].outputs = outputs[side];
        world_extra[side] = g->has_converter[side] ? &classes[side] : NULL;
    }
    world_extra[2] = &resize_cpu;
    world_extra[3] = &resize_cuda;
}

// --- one graph --------------------------------------------------------------

struct counts {
    unsigned graphs, refused, skipped, bridged, two_bridges, proven, dmabufs;
    unsigned generic, device_free;
    unsigned trees, proven_trees, diamonds, proven_diamonds;
    unsigned greedy, better_than_greedy;
};

// Line by line: cmocka cuts what is long.
static void tell_text(const char *text)
{
    while (text && *text) {
        const int length = (int)strcspn(text, "\n");
        print_message("%.*s\n", length, text);
        text += length + (text[length] == '\n');
    }
}

static void tell_graph(const struct brute_graph *g, const char *text)
{
    const struct pen_profile *f = &g->profile;
    print_message("%s (%s), %llu frames, formats of the converters:\n", text,
                  g->shape, (unsigned long long)g->frames);
    for (unsigned t = 0; t < g->targets; t++)
        print_message(" %s", pen_format_info(g->target[t])->name);
    print_message("\nh2d %u, d2h %u, device %u, host %u, operations %u and %u, "
                  "launch %u, copy %u, context %u, load %u, DMABUF %u\n",
                  f->h2d_rate, f->d2h_rate, f->device_rate, f->host_rate,
                  f->host_operations, f->device_operations, f->launch_ns,
                  f->copy_ns, f->context_ns, f->load_ns, f->dmabuf);
    char *json = brute_json(g, 0);
    tell_text(json);
    free(json);
}

static void tell_values(const struct brute_graph *g,
                        const struct brute_value *best,
                        const struct brute_value *value)
{
    char text[200];
    struct stk_text how = { 0 };
    struct brute_value again;
    brute_value_text(value, text, sizeof(text));
    print_message("the plan %s\n", text);
    brute_value_text(best, text, sizeof(text));
    print_message("the best %s\n", text);
    brute_solve(g, &again, &how);
    tell_text(how.data);
    stk_text_finish(&how);
}

static bool compare_plan(const struct brute_graph *g, const struct world *w,
                         const struct brute_value *best, struct counts *c)
{
    struct brute_value value, greedy;
    const char *wrong = brute_walk(g, w->plan, &value);
    if (wrong) {
        print_message("the plan is wrong: %s\n", wrong);
        return false;
    }
    const int order = brute_value_compare(&value, best);
    bool right = order >= 0;
    const bool same_loss = !memcmp(value.loss, best->loss, sizeof(value.loss));
    if (w->plan->optimal)
        right =
            right && order == 0 && w->plan->gap_ns == 0 && !w->plan->gap_loss;
    else if (!w->plan->gap_loss)
        right =
            right && same_loss && value.cost - best->cost <= w->plan->gap_ns;
    if (brute_greedy(g, &greedy) == BRUTE_FOUND) {
        const int than = brute_value_compare(&value, &greedy);
        c->greedy++;
        c->better_than_greedy += than < 0;
        if (than > 0) {
            char text[200];
            brute_value_text(&greedy, text, sizeof(text));
            print_message("the reference's rule %s\n", text);
            right = false;
        }
    }
    if (!right) {
        print_message("optimal %d, gap %lld ns, gap of loss %d\n",
                      w->plan->optimal, (long long)w->plan->gap_ns,
                      w->plan->gap_loss);
        tell_values(g, best, &value);
    }
    return right;
}

static void count_plan(const struct brute_graph *g, const struct pen_plan *plan,
                       struct counts *c)
{
    unsigned bridges = 0;
    bool dmabuf = false, generic = false;
    for (uint32_t n = 0; n < plan->node_count; n++)
        bridges += plan->nodes[n].inserted;
    for (uint32_t e = 0; e < plan->edge_count; e++)
        dmabuf = dmabuf || plan->edges[e].mem == PEN_MEM_DMABUF;
    for (unsigned m = 0; m < g->modules; m++)
        generic = generic || g->module[m].options > 1;
    c->bridged += bridges > 0;
    c->two_bridges += bridges > 1;
    c->dmabufs += dmabuf;
    c->generic += generic;
    c->proven += plan->optimal;
    if (brute_is_tree(g) && brute_most_targets(g) <= STK_EXACT_TARGETS) {
        c->trees++;
        c->proven_trees += plan->optimal;
    }
    if (!strcmp(g->shape, "diamond")) {
        c->diamonds++;
        c->proven_diamonds += plan->optimal;
    }
}

static void plan_graph(const struct brute_graph *g, unsigned order,
                       struct world *w)
{
    char without[100], *text = brute_json(g, order);
    assert_non_null(text);
    make_converters(g);
    snprintf(without, sizeof(without), "HostConvert|CudaConvert%s%s",
             g->has_copy ? "" : "|CudaMemCopy",
             g->has_host_copy ? "" : "|MemTypeConversion");
    world_plan_with(w, text,
                    &(struct pen_plan_params){ .profile = &g->profile,
                                               .frames = g->frames },
                    without);
    free(text);
}

// The order of the file must leave no trace.
static bool same_in_any_order(const struct brute_graph *g,
                              const struct pen_plan *plan, unsigned order)
{
    struct world w;
    plan_graph(g, order, &w);
    char *one = pen_plan_text(plan), *other = NULL;
    if (w.status == PEN_OK)
        other = pen_plan_text(w.plan);
    const bool same = one && other && !strcmp(one, other);
    if (!same) {
        print_message("another order gives another plan: %s\n", w.err.text);
        tell_text(other);
    }
    pen_free(one);
    pen_free(other);
    world_finish(&w);
    return same;
}

// False if the planner is wrong; that was told.
static bool try_graph(const struct brute_graph *g, struct counts *c)
{
    struct brute_value best;
    struct world w;
    bool right = true;
    const enum brute_result result = brute_solve(g, &best, NULL);
    if (result == BRUTE_TOO_LARGE) {
        c->skipped++;
        return true;
    }
    plan_graph(g, c->graphs, &w);
    c->graphs++;
    if (w.status == PEN_OK && result == BRUTE_FOUND) {
        right = compare_plan(g, &w, &best, c) &&
                (c->graphs % 4 || same_in_any_order(g, w.plan, c->graphs / 4));
        count_plan(g, w.plan, c);
    } else if (w.status != PEN_OK && result == BRUTE_IMPOSSIBLE) {
        c->refused++;
    } else {
        print_message("%s: %s\n",
                      w.status == PEN_OK ? "a plan where none is possible"
                                         : "refused, but there is a plan",
                      w.err.text);
        right = false;
    }
    if (!right) {
        tell_graph(g, "this graph");
        char *plan = w.plan ? pen_plan_text(w.plan) : NULL;
        tell_text(plan);
        pen_free(plan);
    }
    world_finish(&w);
    return right;
}

static unsigned try_graphs(unsigned count, enum brute_size size, uint64_t seed,
                           struct counts *c)
{
    unsigned wrong = 0;
    for (unsigned i = 0; i < count; i++) {
        struct brute_graph g;
        brute_random(&g, size, &seed);
        if (!try_graph(&g, c)) {
            print_message("that was graph %u\n\n", i);
            wrong++;
        }
    }
    print_message("# %u graphs, %u refused, %u too large for all choices\n",
                  c->graphs, c->refused, c->skipped);
    print_message("# %u with bridges, %u with 2 or more, %u with DMABUFs, %u "
                  "with generic types\n",
                  c->bridged, c->two_bridges, c->dmabufs, c->generic);
    print_message("# proven: %u, %u of %u trees, %u of %u diamonds\n",
                  c->proven, c->proven_trees, c->trees, c->proven_diamonds,
                  c->diamonds);
    print_message("# better than the reference's rule: %u of %u\n",
                  c->better_than_greedy, c->greedy);
    return wrong;
}

PEN_TEST(plans_are_the_best_of_all_choices)
{
    const unsigned count = pen_test_seeds(8000, 200000);
    struct counts c = { 0 };
    assert_int_equal(try_graphs(count, BRUTE_USUAL, 20261201, &c), 0);
    assert_true(c.graphs - c.refused >= 5000);
    assert_true(c.two_bridges >= 1000);
    assert_true(c.dmabufs >= 200 && c.generic >= 500);
    assert_true(c.skipped * 20 < count);
    assert_int_equal(c.proven_trees, c.trees);
    assert_true(c.proven_diamonds * 100 >= c.diamonds * 95);
    assert_true(c.better_than_greedy > c.greedy / 2);
}

// One output with so many consumers that its tree is no longer exact.
PEN_TEST(what_is_not_proven_is_no_farther_from_the_best_than_it_says)
{
    const unsigned count = pen_test_seeds(300, 10000);
    struct counts c = { 0 };
    assert_int_equal(try_graphs(count, BRUTE_WIDE, 7, &c), 0);
    assert_true(c.graphs - c.refused > count / 2);
    assert_true(c.proven < c.graphs - c.refused);
    // Many consumers, but of few kinds.
    assert_true(c.trees > 0 && c.proven_trees == c.trees);
    assert_true(c.skipped * 20 < count);
}

// So many merges that not all of them can be decided.
PEN_TEST(what_is_tied_by_merges_is_no_farther_from_the_best_than_it_says)
{
    const unsigned count = pen_test_seeds(400, 10000);
    struct counts c = { 0 };
    assert_int_equal(try_graphs(count, BRUTE_TIED, 11, &c), 0);
    assert_true(c.graphs - c.refused > count / 2);
}

// --- sizes that come later --------------------------------------------------

// Frames of that size arrive.
static void settle(struct world *w, int32_t width, int32_t height)
{
    const uint32_t n = world_number(w, "n0");
    struct pen_caps caps = w->plan->nodes[n].output[0].caps;
    caps.width = width;
    caps.height = height;
    if (!caps.format)
        caps.format = (enum pen_format)__builtin_ctz(caps.formats);
    if (stk_plan_settle(w->plan, n, 0, &caps, &w->err) != PEN_OK)
        fail_msg("%s", w->err.text);
}

// A plan that was made without knowing the size, at a size.
static bool try_size(const struct brute_graph *known, int32_t width,
                     int32_t height, unsigned *proven)
{
    struct brute_graph unknown = *known, g = *known;
    struct brute_value best, value;
    struct world w;
    bool right = true;
    unknown.module[0].width = unknown.module[0].height = 0;
    g.module[0].width = width;
    g.module[0].height = height;
    if (brute_solve(&g, &best, NULL) != BRUTE_FOUND)
        return true;
    plan_graph(&unknown, 0, &w);
    if (w.status == PEN_OK) {
        const bool optimal = w.plan->optimal;
        settle(&w, width, height);
        const char *wrong = brute_walk(&g, w.plan, &value);
        right = !wrong && (!optimal || !brute_value_compare(&value, &best));
        *proven += optimal;
        if (wrong)
            print_message("the plan is wrong: %s\n", wrong);
        else if (!right)
            tell_values(&g, &best, &value);
        if (!right) {
            char *text = pen_plan_text(w.plan);
            tell_graph(&g, "this graph");
            tell_text(text);
            pen_free(text);
        }
    }
    world_finish(&w);
    return right;
}

PEN_TEST(what_is_proven_without_sizes_is_the_best_at_every_size)
{
    static const int32_t sizes[][2] = {
        { 1, 1 }, { 1920, 1080 }, { 16384, 16384 }, { 256, 3 }, { 4096, 77 },
    };
    const unsigned count = pen_test_seeds(1000, 30000);
    unsigned proven = 0, wrong = 0;
    uint64_t seed = 99;
    for (unsigned i = 0; i < count; i++) {
        struct brute_graph g;
        unsigned sources = 0;
        brute_random(&g, BRUTE_USUAL, &seed);
        for (unsigned m = 0; m < g.modules; m++)
            sources += g.module[m].inputs == 0;
        // Whether the device pays is a question of size.
        if (i % 2) {
            g.frames = 1;
            g.profile.context_ns = 1000u << i % 20;
        }
        for (unsigned k = 0; k < 5 && sources == 1; k++)
            if (!try_size(&g, sizes[k][0], sizes[k][1], &proven)) {
                print_message("that was graph %u, size %u\n\n", i, k);
                wrong++;
            }
    }
    print_message("# %u proven plans at a size\n", proven);
    assert_int_equal(wrong, 0);
    assert_true(proven > count);
}

PEN_TEST(the_search_of_all_choices_finds_what_the_simplest_one_finds)
{
    const unsigned count = pen_test_seeds(1500, 60000);
    unsigned compared = 0, impossible = 0;
    uint64_t seed = 41;
    for (unsigned i = 0; i < count; i++) {
        struct brute_graph g;
        struct brute_value best, naive;
        brute_random(&g, BRUTE_USUAL, &seed);
        if (g.modules > 5)
            continue;
        const enum brute_result result = brute_naive(&g, &naive);
        if (result == BRUTE_TOO_LARGE)
            continue;
        compared++;
        impossible += result == BRUTE_IMPOSSIBLE;
        const bool same =
            brute_solve(&g, &best, NULL) == result &&
            (result == BRUTE_IMPOSSIBLE || !brute_value_compare(&best, &naive));
        if (!same) {
            tell_values(&g, &best, &naive);
            tell_graph(&g, "this graph");
            fail_msg("graph %u: not the same", i);
        }
    }
    print_message("# %u compared, %u impossible\n", compared, impossible);
    assert_true(compared > count / 4 && impossible > 0);
}

PEN_TEST_MAIN(
    PEN_CASE(the_search_of_all_choices_finds_what_the_simplest_one_finds),
    PEN_CASE(plans_are_the_best_of_all_choices),
    PEN_CASE(what_is_proven_without_sizes_is_the_best_at_every_size),
    PEN_CASE(what_is_not_proven_is_no_farther_from_the_best_than_it_says),
    PEN_CASE(what_is_tied_by_merges_is_no_farther_from_the_best_than_it_says))
