// Random graphs that end in random ways: they end, in order, with the right
// samples in every frame (which tell its number), and leave nothing. The seed
// of the last graph is printed; PENSTOCK_TEST_SEED runs one.

#include "run_world.h"

#include <stdio.h>
#include <time.h>

#include "src/base/str.h"
#include "src/run/run.h"

enum ending { TO_THE_END, STOPPED, DRAINED, FAILING, DROPPING, ENDINGS };

enum { MOST_NODES = 30 };

struct node {
    const char *type;
    unsigned inputs;
    unsigned consumers;
    uint32_t frames;         // that leave it, if nothing is dropped
    uint8_t patterns, plus;  // what its frames hold: so many times the source's
                             // pattern, and what was added
};

struct graph {
    uint64_t seed;
    enum ending ending;
    struct node node[MOST_NODES];
    unsigned count;
    uint32_t expected;  // at all sinks together
    struct stk_text modules, links;
};

static uint64_t last_seed;

static uint32_t pick(struct graph *g, uint32_t n)
{
    return pen_test_random(&g->seed) % n;
}

static void add_module(struct graph *g, const char *id, const char *type,
                       const char *props)
{
    stk_text_addf(&g->modules,
                  "%s\"%s\": { \"type\": \"%s\", \"props\": { %s } }",
                  g->modules.length ? ", " : "", id, type, props);
}

static void connect_to(struct graph *g, unsigned from, const char *to)
{
    static const char *const policies[] = { "block", "drop_newest",
                                            "drop_oldest" };
    const char *policy = policies[g->ending == DROPPING ? pick(g, 3) : 0];
    g->node[from].consumers++;
    stk_text_addf(&g->links,
                  "%s{ \"from\": \"n%u\", \"to\": \"%s\", \"queue\": "
                  "{ \"depth\": %u, \"policy\": \"%s\" } }",
                  g->links.length ? ", " : "", from, to, 1 + pick(g, 4),
                  policy);
}

static void failing_props(struct graph *g, char *props, size_t size)
{
    props[0] = '\0';
    if (g->ending == FAILING && pick(g, 4) == 0)
        snprintf(props, size, "\"failIn\": \"process\", \"failAt\": %u",
                 pick(g, 40));
    if (g->ending == DROPPING && pick(g, 2) == 0)
        snprintf(props, size,
                 "\"failIn\": \"process\", \"failAt\": %u, \"failTimes\": %u, "
                 "\"onError\": \"%s\"",
                 pick(g, 20), 1 + pick(g, 5), pick(g, 2) ? "drop" : "retry:5");
}

static void make(struct graph *g, uint64_t seed)
{
    static const char *const sources[] = { "TSource", "TBlockSource" };
    static const char *const types[] = { "TAdd",    "TForward", "TCopy",
                                         "TDevice", "TDevice",  "TStreamSync",
                                         "TJoin",   "TJoin" };
    *g = (struct graph){ .seed = seed * 2654435761u + 1 };
    g->ending = (enum ending)pick(g, ENDINGS);
    g->count = 2 + pick(g, MOST_NODES - 2);
    const unsigned heads = 1 + pick(g, 2);
    char props[256], id[32], to[48];
    for (unsigned i = 0; i < g->count; i++) {
        struct node *n = &g->node[i];
        snprintf(id, sizeof(id), "n%u", i);
        if (i < heads) {
            n->type = sources[pick(g, 2)];
            n->patterns = 1;
            n->frames = 20 + pick(g, 40);
            const bool endless = g->ending == DRAINED || g->ending == STOPPED;
            snprintf(props, sizeof(props), "\"frames\": %u, \"unknown\": %s",
                     endless ? 0 : n->frames, pick(g, 2) ? "true" : "false");
            add_module(g, id, n->type, props);
            continue;
        }
        n->type = types[pick(g, 8)];
        n->inputs = strcmp(n->type, "TJoin") == 0 ? 2 : 1;
        const bool can_fail =
            strcmp(n->type, "TAdd") == 0 || strcmp(n->type, "TForward") == 0;
        props[0] = '\0';
        if (can_fail)
            failing_props(g, props, sizeof(props));
        add_module(g, id, n->type, props);
        n->frames = UINT32_MAX;
        n->plus = strcmp(n->type, "TAdd") == 0;
        for (unsigned in = 0; in < n->inputs; in++) {
            // Mostly near, so that chains come out as well as stars.
            const unsigned back = 1 + pick(g, pick(g, 2) ? 3 : i);
            const unsigned from = back > i ? 0 : i - back;
            snprintf(to, sizeof(to), n->inputs == 2 ? "n%u.input_%u" : "n%u", i,
                     in + 1);
            connect_to(g, from, to);
            n->patterns += g->node[from].patterns;
            n->plus += g->node[from].plus;
            if (g->node[from].frames < n->frames)
                n->frames = g->node[from].frames;
        }
    }
    for (unsigned i = 0; i < g->count; i++) {
        if (g->node[i].consumers)
            continue;
        snprintf(id, sizeof(id), "s%u", i);
        failing_props(g, props, sizeof(props));
        char all[400];
        snprintf(all, sizeof(all), "\"patterns\": %u, \"expect\": %u%s%s",
                 g->node[i].patterns, g->node[i].plus, props[0] ? ", " : "",
                 props);
        add_module(g, id, pick(g, 2) ? "TCount" : "TBlockCount", all);
        connect_to(g, i, id);
        g->expected += g->node[i].frames;
    }
}

// Where nothing is dropped, a producer whose consumers have room has a block
// too; but for those that the device may still read.
static void check_pools(const struct graph *g, struct run *r)
{
    struct pen_pipeline *p = r->p;
    for (unsigned i = 0; atomic_load(&p->sink_frames) < g->expected; i++) {
        if (i == 20000)
            fail_msg("seed %llu: it stands still",
                     (unsigned long long)last_seed);
        nanosleep(&(struct timespec){ .tv_nsec = 1000000 }, NULL);
    }
    pthread_mutex_lock(&p->plan_lock);
    for (uint32_t n = 0; n < p->module_count; n++) {
        for (unsigned o = 0; o < p->modules[n].outputs; o++) {
            const struct stk_out_pin *pin = &p->modules[n].out[o];
            struct stk_pool_stats s;
            if (!pin->made ||
                (pin->mem == PEN_MEM_HOST_PINNED && !pin->streamed))
                continue;
            stk_pool_stats(pin->made, &s);
            if (s.waits)
                fail_msg("seed %llu: the pool of %s was empty",
                         (unsigned long long)last_seed, p->modules[n].id);
        }
    }
    pthread_mutex_unlock(&p->plan_lock);
}

static void end_it(struct graph *g, struct run *r)
{
    nanosleep(&(struct timespec){ .tv_nsec = pick(g, 3000000) }, NULL);
    struct pen_error err = { 0 };
    enum pen_status st = PEN_OK;
    if (g->ending == STOPPED)
        st = pen_pipeline_stop(r->p, 20000000000, &err);
    if (g->ending == DRAINED)
        pen_pipeline_drain(r->p);
    if (st == PEN_OK)
        st = pen_pipeline_wait(r->p, 20000000000, &err);
    if (st == PEN_OK || (g->ending >= FAILING && st == PEN_E_DATA))
        return;
    char *text = pen_pipeline_report_text(r->p);
    print_message("%s", text);
    pen_free(text);
    fail_msg("seed %llu: %s: %s", (unsigned long long)last_seed,
             pen_status_name(st), err.text);
}

static void run_graph(uint64_t seed)
{
    struct graph g;
    struct run r;
    struct stk_text json = { 0 };
    last_seed = seed;
    make(&g, seed);
    stk_text_addf(&json, "{ \"modules\": { %s }, \"connections\": [ %s ] }",
                  g.modules.data, g.links.data);
    if (fixture_emulator()) {
        fixture_emulator()->penemu_reset();
        fixture_emulator()->penemu_set_mode(
            seed % 4 ? PENEMU_RANDOM : PENEMU_LAZY, seed);
    }
    run_init(&r);
    r.params.workers = 1 + pick(&g, 4);
    run_create(&r, json.data);
    RUN_OK(pen_pipeline_start(r.p, &err));
    if (g.ending == TO_THE_END)
        check_pools(&g, &r);
    end_it(&g, &r);
    assert_int_equal(atomic_load(&world.disorder), 0);
    assert_int_equal(atomic_load(&world.wrong), 0);
    if (g.ending == TO_THE_END)
        assert_int_equal(atomic_load(&world.counted), g.expected);
    assert_int_equal(stats_of(&r).frames, atomic_load(&world.counted));
    run_finish(&r);
    stk_text_finish(&json);
    stk_text_finish(&g.modules);
    stk_text_finish(&g.links);
}

PEN_TEST(random_graphs_end_in_order_and_leave_nothing)
{
    const char *one = getenv("PENSTOCK_TEST_SEED");
    if (one) {
        run_graph(strtoull(one, NULL, 10));
        return;
    }
    const unsigned seeds = pen_test_seeds(60, 1000);
    for (unsigned seed = 1; seed <= seeds; seed++)
        run_graph(seed);
}

static int print_seed(void **state)
{
    (void)state;
    print_message("# last seed: %llu\n", (unsigned long long)last_seed);
    return 0;
}

PEN_TEST_MAIN({ "random_graphs_end_in_order_and_leave_nothing",
                random_graphs_end_in_order_and_leave_nothing, NULL, print_seed,
                NULL })
