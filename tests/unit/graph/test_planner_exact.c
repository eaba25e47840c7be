// The bridges behind one output against an exhaustive search that shares no
// code with the planner: least loss and fewest transfers for each consumer,
// then the cheapest tree that gives all of them that.
//
// Exhaustive: sets of reached states, grown by one step at a time in order of
// their cost (Dijkstra over sets), until all consumers are served.

#include "planner_world.h"

unsigned world_negotiated, world_probed;
struct pen_probe world_probe;
enum pen_status world_probe_status;

// Formats of a case: what the pin may give ("own", a set) and the targets
// that the converters know in this world.
enum { OWN = 0, TARGETS = 4, FORMATS = TARGETS + 1, MEMS = 3 };
enum { STATES = MEMS * FORMATS, SETS = 1 << STATES };

static const enum pen_mem_type mems[MEMS] = { PEN_MEM_HOST, PEN_MEM_HOST_PINNED,
                                              PEN_MEM_CUDA_DEVICE };

struct problem {
    enum pen_format target[TARGETS];
    uint32_t own;   // mask
    unsigned root;  // number of the memory type
    bool full;      // range of the source
    unsigned consumers;
    uint32_t mem[6], formats[6];
    int32_t width, height;
    struct pen_profile profile;
};

// --- the reference ----------------------------------------------------------

// Loss of one conversion, most important first.
struct loss {
    int channels, depth, chroma, range, matrix, transfers;
};

static int compare(const struct loss *a, const struct loss *b)
{
    const int left[] = { a->channels, a->depth,  a->chroma,
                         a->range,    a->matrix, a->transfers };
    const int right[] = { b->channels, b->depth,  b->chroma,
                          b->range,    b->matrix, b->transfers };
    for (int i = 0; i < 6; i++)
        if (left[i] != right[i])
            return left[i] < right[i] ? -1 : 1;
    return 0;
}

static struct loss sum(struct loss a, const struct loss *b)
{
    a.channels += b->channels;
    a.depth += b->depth;
    a.chroma += b->chroma;
    a.range += b->range;
    a.matrix += b->matrix;
    a.transfers += b->transfers;
    return a;
}

static int halvings(int step)
{
    return step == 4 ? 2 : step == 2 ? 1 : 0;
}

static struct loss loss_of(enum pen_format from, enum pen_format to, bool full)
{
    const struct pen_format_info *a = pen_format_info(from);
    const struct pen_format_info *b = pen_format_info(to);
    const bool grey_a = from == PEN_FMT_MONO, grey_b = to == PEN_FMT_MONO;
    struct loss l = { 0 };
    if (a->channels > b->channels)
        l.channels = a->channels - b->channels;
    if (a->depth > b->depth)
        l.depth = a->depth - b->depth;
    if (b->yuv && !grey_a) {
        const int w =
            halvings(b->chroma_w) - (a->yuv ? halvings(a->chroma_w) : 0);
        const int h =
            halvings(b->chroma_h) - (a->yuv ? halvings(a->chroma_h) : 0);
        l.chroma = (w > 0 ? w : 0) + (h > 0 ? h : 0);
    }
    l.range = (!a->yuv || full) && b->yuv && !full;
    l.matrix = a->yuv != b->yuv && !grey_a && !grey_b;
    return l;
}

static int64_t bytes_of(enum pen_format format, int32_t width, int32_t height)
{
    const struct pen_caps caps = { .kind = PEN_KIND_RAW_IMAGE,
                                   .format = format,
                                   .width = width,
                                   .height = height };
    struct pen_layout layout;
    assert_int_equal(pen_layout_compute(&caps, 64, &layout, NULL), PEN_OK);
    return (int64_t)layout.bytes;
}

static int64_t move(int64_t bytes, uint32_t rate)
{
    return (bytes * 1000 + rate - 1) / rate;
}

struct step {
    bool there;
    struct loss loss;
    int64_t cost;
};

static uint32_t set_of(const struct problem *p, unsigned f)
{
    return f == OWN ? p->own : PEN_FMT_BIT(p->target[f - 1]);
}

static int64_t frame_of(const struct problem *p, unsigned f)
{
    int64_t most = 0;
    for (unsigned k = 1; k < PEN_FMT_COUNT; k++)
        if (set_of(p, f) & PEN_FMT_BIT(k)) {
            const int64_t b = bytes_of((enum pen_format)k, p->width, p->height);
            if (b > most)
                most = b;
        }
    return most;
}

static struct step step_of(const struct problem *p, unsigned a, unsigned b)
{
    const unsigned ma = a / FORMATS, fa = a % FORMATS;
    const unsigned mb = b / FORMATS, fb = b % FORMATS;
    const struct pen_profile *f = &p->profile;
    const int64_t in = frame_of(p, fa), out = frame_of(p, fb);
    struct step s = { 0 };
    if (fa == fb) {
        s.there = (ma == 0 && mb == 1) || (ma == 1 && mb == 2) ||
                  (ma == 2 && mb == 1);
        if (ma == 1 && mb == 2)
            s.cost = move(in, f->h2d_rate) + f->copy_ns;
        if (ma == 2 && mb == 1)
            s.cost = move(in, f->d2h_rate) + f->copy_ns;
        s.loss.transfers = ma != 0;
        return s;
    }
    // Conversions stay on their side; on the host they write pageable memory.
    if (fb == OWN || mb == 1 || (ma == 2) != (mb == 2))
        return s;
    const enum pen_format to = p->target[fb - 1];
    if (p->own == PEN_FMT_BIT(to) || set_of(p, fa) == PEN_FMT_BIT(to))
        return s;
    s.there = true;
    for (unsigned k = 1; k < PEN_FMT_COUNT; k++)
        if (set_of(p, fa) & PEN_FMT_BIT(k)) {
            const struct loss l = loss_of((enum pen_format)k, to, p->full);
            if (compare(&l, &s.loss) > 0)
                s.loss = l;
        }
    s.cost = ma == 2 ? move(in + out, f->device_rate) + f->launch_ns
                     : move(in + out, f->host_rate);
    return s;
}

static bool serves(const struct problem *p, unsigned consumer, unsigned state)
{
    const unsigned m = state / FORMATS, f = state % FORMATS;
    uint32_t accepted = p->mem[consumer];
    if (accepted & PEN_MEM_BIT(PEN_MEM_HOST))
        accepted |= PEN_MEM_BIT(PEN_MEM_HOST_PINNED);
    if (!(accepted & PEN_MEM_BIT(mems[m])))
        return false;
    // Taken as it is, it must come as it is.
    const bool as_is = !(p->own & ~p->formats[consumer]);
    if (as_is || f == OWN)
        return as_is && f == OWN;
    return p->formats[consumer] & PEN_FMT_BIT(p->target[f - 1]);
}

struct best {
    struct loss loss[6];
    int64_t cost;
    bool possible;
};

static struct best reference(const struct problem *p)
{
    static int64_t cost[SETS];
    static bool closed[SETS];
    struct step steps[STATES][STATES];
    struct loss least[STATES];
    bool known[STATES] = { false };
    const unsigned root = p->root * FORMATS;
    struct best best = { .possible = true };

    for (unsigned a = 0; a < STATES; a++)
        for (unsigned b = 0; b < STATES; b++)
            steps[a][b] = step_of(p, a, b);
    known[root] = true;
    least[root] = (struct loss){ 0 };
    for (unsigned round = 0; round < STATES; round++)
        for (unsigned a = 0; a < STATES; a++)
            for (unsigned b = 0; b < STATES; b++) {
                if (!known[a] || !steps[a][b].there)
                    continue;
                const struct loss l = sum(least[a], &steps[a][b].loss);
                if (!known[b] || compare(&l, &least[b]) < 0) {
                    known[b] = true;
                    least[b] = l;
                }
            }

    unsigned wanted[6];
    for (unsigned c = 0; c < p->consumers; c++) {
        bool any = false;
        wanted[c] = 0;
        for (unsigned s = 0; s < STATES; s++) {
            if (!known[s] || !serves(p, c, s))
                continue;
            const int order = any ? compare(&least[s], &best.loss[c]) : -1;
            if (order < 0) {
                best.loss[c] = least[s];
                wanted[c] = 0;
            }
            if (order <= 0)
                wanted[c] |= 1u << s;
            any = true;
        }
        best.possible = best.possible && any;
    }
    if (!best.possible)
        return best;

    for (unsigned s = 0; s < SETS; s++) {
        cost[s] = INT64_MAX;
        closed[s] = false;
    }
    cost[1u << root] = 0;
    for (;;) {
        // Sets only grow, so a larger number never leads to a smaller one;
        // still the cheapest open set is what is settled next.
        unsigned at = SETS;
        for (unsigned s = 0; s < SETS; s++)
            if (!closed[s] && cost[s] < INT64_MAX &&
                (at == SETS || cost[s] < cost[at]))
                at = s;
        assert_true(at < SETS);
        closed[at] = true;
        bool done = true;
        for (unsigned c = 0; c < p->consumers; c++)
            done = done && (wanted[c] & at);
        if (done) {
            best.cost = cost[at];
            return best;
        }
        for (unsigned a = 0; a < STATES; a++) {
            if (!(at & 1u << a))
                continue;
            for (unsigned b = 0; b < STATES; b++) {
                if ((at & 1u << b) || !steps[a][b].there)
                    continue;
                const struct loss l = sum(least[a], &steps[a][b].loss);
                if (compare(&l, &least[b]) != 0)
                    continue;
                const unsigned next = at | 1u << b;
                if (cost[at] + steps[a][b].cost < cost[next])
                    cost[next] = cost[at] + steps[a][b].cost;
            }
        }
    }
}

// --- the plan ---------------------------------------------------------------

static void formats_text(uint32_t mask, char *text, size_t size)
{
    size_t at = 0;
    text[0] = '\0';
    for (unsigned k = 1; k < PEN_FMT_COUNT; k++)
        if (mask & PEN_FMT_BIT(k))
            at += (size_t)snprintf(text + at, size - at, "%s%s", at ? "|" : "",
                                   pen_format_info((enum pen_format)k)->name);
}

static void mems_text(uint32_t mask, char *text, size_t size)
{
    size_t at = 0;
    for (unsigned m = 1; m < PEN_MEM_COUNT; m++)
        if (mask & PEN_MEM_BIT(m))
            at += (size_t)snprintf(text + at, size - at, "%s%s", at ? "|" : "",
                                   pen_mem_name((enum pen_mem_type)m));
}

static void write_problem(const struct problem *p, char *text, size_t size)
{
    char formats[160], mem[80];
    formats_text(p->own, formats, sizeof(formats));
    size_t at = (size_t)snprintf(
        text, size,
        "{ 'modules': { 's': { 'type': 'Source', 'props': { 'mem': '%s', "
        "'formats': '%s', 'width': %d, 'height': %d, 'range': '%s' } }",
        pen_mem_name(mems[p->root]), formats, p->width, p->height,
        p->full ? "full" : "limited");
    for (unsigned c = 0; c < p->consumers; c++) {
        formats_text(p->formats[c], formats, sizeof(formats));
        mems_text(p->mem[c], mem, sizeof(mem));
        at += (size_t)snprintf(text + at, size - at,
                               ", 'k%u': { 'type': 'Sink', 'props': { 'mem': "
                               "'%s', 'formats': '%s' } }",
                               c, mem, formats);
    }
    at += (size_t)snprintf(text + at, size - at, " }, 'connections': [");
    for (unsigned c = 0; c < p->consumers; c++)
        at += (size_t)snprintf(text + at, size - at,
                               "%s { 'from': 's', 'to': 'k%u' }", c ? "," : "",
                               c);
    snprintf(text + at, size - at, " ] }");
}

static bool is_copy(const struct stk_plan_node *n)
{
    return !strcmp(n->type, "CudaMemCopy");
}

// Loss along the path to a consumer, and whether it really gets what it takes.
static struct loss walk(const struct problem *p, const struct world *w,
                        unsigned consumer)
{
    char id[16];
    snprintf(id, sizeof(id), "k%u", consumer);
    const struct stk_plan_edge *e = world_edge(w, id);
    uint32_t accepted = p->mem[consumer];
    if (accepted & PEN_MEM_BIT(PEN_MEM_HOST))
        accepted |= PEN_MEM_BIT(PEN_MEM_HOST_PINNED);
    assert_true(accepted & PEN_MEM_BIT(e->mem));
    assert_int_equal(e->formats & ~p->formats[consumer], 0);
    struct loss all = { 0 };
    while (strcmp(w->plan->nodes[e->from].id, "s") != 0) {
        const struct stk_plan_node *n = &w->plan->nodes[e->from];
        const struct stk_plan_edge *in = &w->plan->edges[n->in_edge[0]];
        assert_true(n->inserted);
        struct loss worst = { 0 };
        if (is_copy(n)) {
            worst.transfers = 1;
            assert_int_equal(in->formats, e->formats);
        }
        for (unsigned k = 1; k < PEN_FMT_COUNT && !is_copy(n); k++)
            if (in->formats & PEN_FMT_BIT(k)) {
                const struct loss l =
                    loss_of((enum pen_format)k, e->caps.format, p->full);
                if (compare(&l, &worst) > 0)
                    worst = l;
            }
        all = sum(all, &worst);
        e = in;
    }
    return all;
}

// Converters that know the targets of the problem and no others: what the
// search below cannot pass through, the planner must not either.
static void make_converters(const struct problem *p)
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
        for (unsigned t = 0; t < TARGETS; t++)
            outputs[side][0].formats |= PEN_FMT_BIT(p->target[t]);
        classes[side].outputs = outputs[side];
        world_extra[side] = &classes[side];
    }
}

static void random_problem(struct problem *p, uint64_t *seed)
{
    static const enum pen_format pool[] = {
        PEN_FMT_RGB,    PEN_FMT_BGR,    PEN_FMT_RGBA,     PEN_FMT_MONO,
        PEN_FMT_YUV444, PEN_FMT_YUV420, PEN_FMT_NV12,     PEN_FMT_UYVY,
        PEN_FMT_YUYV,   PEN_FMT_BGRA,   PEN_FMT_YUV411_I,
    };
    enum { POOL = sizeof(pool) / sizeof(*pool) };
    *p = (struct problem){
        .width = 16 * (1 + (int32_t)(pen_test_random(seed) % 200)),
        .height = 1 + (int32_t)(pen_test_random(seed) % 2000),
        .root = pen_test_random(seed) % MEMS,
    };
    // A third of the cases is cheap to move, a third to compute with.
    p->profile = (struct pen_profile){
        .name = "random",
        .cuda = true,
        .h2d_rate = 100 + pen_test_random(seed) % 50000,
        .d2h_rate = 100 + pen_test_random(seed) % 50000,
        .pageable_rate = 1000,
        .device_rate = 100 + pen_test_random(seed) % 50000,
        .host_rate = 100 + pen_test_random(seed) % 50000,
        .launch_ns = pen_test_random(seed) % 20000,
        .copy_ns = pen_test_random(seed) % 20000,
        .host_memory = UINT64_MAX,
        .cuda_memory = UINT64_MAX,
    };
    unsigned used = 0;
    for (unsigned t = 0; t < TARGETS;) {
        const unsigned k = pen_test_random(seed) % POOL;
        if (used & 1u << k)
            continue;
        used |= 1u << k;
        p->target[t++] = pool[k];
    }
    const unsigned own = 1 + pen_test_random(seed) % 3;
    for (unsigned i = 0; i < own; i++)
        p->own |= PEN_FMT_BIT(pool[pen_test_random(seed) % POOL]);
    p->full = !(p->own & ~PEN_FMT_BITS_YUV) && pen_test_random(seed) % 2;
    p->consumers = 1 + pen_test_random(seed) % 5;
    for (unsigned c = 0; c < p->consumers; c++) {
        while (!p->mem[c])
            for (unsigned m = 0; m < MEMS; m++)
                if (pen_test_random(seed) % 3 == 0)
                    p->mem[c] |= PEN_MEM_BIT(mems[m]);
        while (!p->formats[c])
            for (unsigned t = 0; t < TARGETS; t++)
                if (pen_test_random(seed) % 3 == 0)
                    p->formats[c] |= PEN_FMT_BIT(p->target[t]);
        if (pen_test_random(seed) % 4 == 0)
            p->formats[c] |= p->own;
    }
}

PEN_TEST(trees_of_bridges_cost_what_an_exhaustive_search_finds)
{
    const unsigned count = pen_test_seeds(150, 6000);
    unsigned with_bridges = 0, with_two = 0;
    uint64_t seed = 20261130;
    for (unsigned i = 0; i < count; i++) {
        struct problem p;
        struct world w;
        char text[4096];
        random_problem(&p, &seed);
        const struct best best = reference(&p);
        write_problem(&p, text, sizeof(text));
        struct pen_plan_params params = { .profile = &p.profile };
        make_converters(&p);
        world_plan_with(&w, text, &params, "HostConvert|CudaConvert");
        assert_true(best.possible);
        if (w.status != PEN_OK)
            fail_msg("case %u: %s\n%s", i, w.err.text, text);
        int64_t cost = 0;
        unsigned bridges = 0;
        for (uint32_t n = 0; n < w.plan->node_count; n++)
            if (w.plan->nodes[n].inserted) {
                cost += w.plan->nodes[n].cost_ns;
                bridges++;
            }
        for (unsigned c = 0; c < p.consumers; c++) {
            const struct loss l = walk(&p, &w, c);
            if (compare(&l, &best.loss[c]) != 0)
                fail_msg("case %u: k%u loses more than it must\n%s", i, c,
                         text);
        }
        if (cost != best.cost)
            fail_msg("case %u: costs %lld, the best is %lld\n%s", i,
                     (long long)cost, (long long)best.cost, text);
        assert_true(w.plan->optimal);
        with_bridges += bridges > 0;
        with_two += bridges > 1;
        world_finish(&w);
    }
    // The cases are not trivial ones.
    assert_true(with_bridges > count / 2);
    assert_true(with_two > count / 3);
}

PEN_TEST_MAIN(PEN_CASE(trees_of_bridges_cost_what_an_exhaustive_search_finds))
