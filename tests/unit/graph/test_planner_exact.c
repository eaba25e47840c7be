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
enum { OWN = 0, MAX_TARGETS = 4 };
// Three homes with four formats, or five homes with two.
enum { STATES = 15, SETS = 1 << STATES };
// Where frames live: pageable, page-locked, on the device, in a DMABUF of host
// memory, in one of device memory.
enum { AT_HOST, AT_PINNED, AT_CUDA, AT_DMA_HOST, AT_DMA_CUDA };
enum { MEMS = 4 };

static const enum pen_mem_type mems[MEMS] = { PEN_MEM_HOST, PEN_MEM_HOST_PINNED,
                                              PEN_MEM_CUDA_DEVICE,
                                              PEN_MEM_DMABUF };

struct problem {
    unsigned homes, targets, formats_count;  // homes times formats: states
    enum pen_format target[MAX_TARGETS];
    uint32_t own;                       // mask
    unsigned root;                      // number of the memory type
    bool make_host, make_cuda, import;  // DMABUFs that can be had
    bool wanted;  // some consumer takes DMABUF and no plain host memory
    bool full;    // range of the source
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

static struct step copy_of(const struct problem *p, unsigned f, unsigned ma,
                           unsigned mb)
{
    const struct pen_profile *r = &p->profile;
    const int64_t in = frame_of(p, f);
    const bool host = p->wanted && p->make_host;
    // An upload into a DMABUF is for those who cannot have one of the host.
    const bool cuda = p->wanted && p->make_cuda && !p->make_host;
    struct step s = { .loss.transfers = 1 };
    if (ma == AT_HOST && mb == AT_PINNED) {
        s.there = true;
        s.loss.transfers = 0;
    } else if (ma == AT_PINNED &&
               (mb == AT_CUDA || (mb == AT_DMA_CUDA && cuda))) {
        s.there = true;
        s.cost = move(in, r->h2d_rate) + r->copy_ns;
    } else if ((ma == AT_CUDA || ma == AT_DMA_CUDA) && mb == AT_PINNED) {
        s.there = true;
        s.cost = move(in, r->d2h_rate) + r->copy_ns;
    } else if ((ma == AT_HOST || ma == AT_PINNED) && mb == AT_DMA_HOST) {
        s.there = host;
        s.cost = move(2 * in, r->host_rate);
    } else if (ma == AT_DMA_HOST && mb == AT_PINNED) {
        s.there = true;
        s.cost = move(2 * in, r->host_rate);
    }
    return s;
}

// Whether a conversion may lead from one home to another. Where it lets frames
// through that have the format already, its pool must be like theirs.
static bool may_convert(const struct problem *p, unsigned ma, unsigned mb,
                        bool through)
{
    const bool host = p->wanted && p->make_host;
    const bool cuda = p->wanted && p->make_cuda;
    switch (ma) {
    case AT_HOST:
    case AT_PINNED:
        return mb == AT_HOST || (mb == AT_DMA_HOST && host && !through);
    case AT_CUDA:
        return mb == AT_CUDA || (mb == AT_DMA_CUDA && cuda && !through);
    case AT_DMA_HOST:
        if (mb == AT_HOST)
            return !through;
        if (mb == AT_DMA_HOST)
            return through || host;
        return p->import && !through &&
               (mb == AT_CUDA || (mb == AT_DMA_CUDA && cuda));
    default:
        return mb == AT_CUDA || (mb == AT_DMA_CUDA && cuda);
    }
}

static struct step step_of(const struct problem *p, unsigned a, unsigned b)
{
    const unsigned formats = p->formats_count;
    const unsigned ma = a / formats, fa = a % formats;
    const unsigned mb = b / formats, fb = b % formats;
    const struct pen_profile *f = &p->profile;
    const int64_t in = frame_of(p, fa), out = frame_of(p, fb);
    struct step s = { 0 };
    if (fa == fb)
        return copy_of(p, fa, ma, mb);
    if (fb == OWN)
        return s;
    const enum pen_format to = p->target[fb - 1];
    if (p->own == PEN_FMT_BIT(to) || set_of(p, fa) == PEN_FMT_BIT(to))
        return s;
    const bool through = fa == OWN && (p->own & PEN_FMT_BIT(to));
    if (!may_convert(p, ma, mb, through))
        return s;
    s.there = true;
    for (unsigned k = 1; k < PEN_FMT_COUNT; k++)
        if (set_of(p, fa) & PEN_FMT_BIT(k)) {
            const struct loss l = loss_of((enum pen_format)k, to, p->full);
            if (compare(&l, &s.loss) > 0)
                s.loss = l;
        }
    s.cost = mb == AT_CUDA || mb == AT_DMA_CUDA
                 ? move(in + out, f->device_rate) + f->launch_ns
                 : move(in + out, f->host_rate);
    return s;
}

// Homes in which a consumer takes frames, as bits.
static unsigned homes_of(const struct problem *p, unsigned consumer)
{
    const uint32_t mem = p->mem[consumer];
    unsigned homes = 0;
    if (mem & PEN_MEM_BIT(PEN_MEM_HOST))
        homes |= 1u << AT_HOST | 1u << AT_PINNED | 1u << AT_DMA_HOST;
    if (mem & PEN_MEM_BIT(PEN_MEM_HOST_PINNED))
        homes |= 1u << AT_PINNED;
    if (mem & PEN_MEM_BIT(PEN_MEM_CUDA_DEVICE))
        homes |= 1u << AT_CUDA | 1u << AT_DMA_CUDA |
                 (p->import ? 1u << AT_DMA_HOST : 0);
    if (mem & PEN_MEM_BIT(PEN_MEM_DMABUF))
        homes |= 1u << AT_DMA_HOST | 1u << AT_DMA_CUDA;
    return homes;
}

// Formats that it takes, as bits of the state's formats. Taken as it is, it
// must come as it is.
static unsigned formats_of(const struct problem *p, unsigned consumer)
{
    if (!(p->own & ~p->formats[consumer]))
        return 1u << OWN;
    unsigned formats = 0;
    for (unsigned t = 0; t < p->targets; t++)
        if (p->formats[consumer] & PEN_FMT_BIT(p->target[t]))
            formats |= 2u << t;
    return formats;
}

static bool serves(const struct problem *p, unsigned consumer, unsigned state)
{
    const unsigned m = state / p->formats_count, f = state % p->formats_count;
    return (homes_of(p, consumer) & 1u << m) &&
           (formats_of(p, consumer) & 1u << f);
}

struct best {
    struct loss loss[6];
    int64_t cost;
    bool possible;
};

static struct best from_root(const struct problem *p, unsigned home)
{
    static int64_t cost[SETS];
    static bool closed[SETS];
    struct step steps[STATES][STATES];
    struct loss least[STATES];
    bool known[STATES] = { false };
    const unsigned root = home * p->formats_count;
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

// The pool of a pin is of one kind: of all that it can be made of, the one with
// the least loss and fewest transfers of all that are asked for, then the
// cheapest.
static struct best reference(const struct problem *p)
{
    unsigned roots[2] = { 0 }, count = 1;
    struct best best = { 0 };
    struct loss least = { 0 };
    roots[0] = p->root;
    if (p->root == AT_HOST && p->wanted && p->make_host)
        roots[count++] = AT_DMA_HOST;
    if (p->root == AT_CUDA && p->wanted && p->make_cuda)
        roots[count++] = AT_DMA_CUDA;
    if (p->root == AT_DMA_HOST && !p->make_host)
        return best;
    for (unsigned r = 0; r < count; r++) {
        const struct best now = from_root(p, roots[r]);
        struct loss all = { 0 };
        for (unsigned c = 0; c < p->consumers && now.possible; c++) {
            bool told = false;
            for (unsigned k = 0; k < c; k++)
                told = told || (homes_of(p, k) == homes_of(p, c) &&
                                formats_of(p, k) == formats_of(p, c));
            if (!told)
                all = sum(all, &now.loss[c]);
        }
        const int order = best.possible ? compare(&all, &least) : -1;
        if (now.possible &&
            (order < 0 || (order == 0 && now.cost < best.cost))) {
            best = now;
            least = all;
        }
    }
    return best;
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
    return !strcmp(n->type, "CudaMemCopy") ||
           !strcmp(n->type, "MemTypeConversion");
}

static unsigned home_of(const struct stk_plan_edge *e)
{
    unsigned m = 0;
    while (mems[m] != e->mem)
        m++;
    return m == AT_DMA_HOST && e->kind == STK_DMABUF_CUDA ? AT_DMA_CUDA : m;
}

// Loss along the path to a consumer, and whether it really gets what it takes.
static struct loss walk(const struct problem *p, const struct world *w,
                        unsigned consumer)
{
    char id[16];
    snprintf(id, sizeof(id), "k%u", consumer);
    const struct stk_plan_edge *e = world_edge(w, id);
    assert_true(homes_of(p, consumer) & 1u << home_of(e));
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
        for (unsigned t = 0; t < p->targets; t++)
            outputs[side][0].formats |= PEN_FMT_BIT(p->target[t]);
        classes[side].outputs = outputs[side];
        world_extra[side] = &classes[side];
    }
}

static void random_problem(struct problem *p, bool dmabuf, uint64_t *seed)
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
        .homes = dmabuf ? 5 : 3,
        .targets = dmabuf ? 2 : 4,
        .formats_count = dmabuf ? 3 : 5,
        .root = pen_test_random(seed) % (dmabuf ? 4 : 3),
    };
    const unsigned types = dmabuf ? 4 : 3;
    const unsigned can = dmabuf ? pen_test_random(seed) % 8 : 0;
    p->make_host = can & 1;
    p->make_cuda = can & 2;
    p->import = can & 4;
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
        .dmabuf = can,
    };
    unsigned used = 0;
    for (unsigned t = 0; t < p->targets;) {
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
            for (unsigned m = 0; m < types; m++)
                if (pen_test_random(seed) % 3 == 0)
                    p->mem[c] |= PEN_MEM_BIT(mems[m]);
        while (!p->formats[c])
            for (unsigned t = 0; t < p->targets; t++)
                if (pen_test_random(seed) % 3 == 0)
                    p->formats[c] |= PEN_FMT_BIT(p->target[t]);
        if (pen_test_random(seed) % 4 == 0)
            p->formats[c] |= p->own;
        if ((p->mem[c] & PEN_MEM_BIT(PEN_MEM_DMABUF)) &&
            !(p->mem[c] & PEN_MEM_BIT(PEN_MEM_HOST)))
            p->wanted = true;
    }
}

static void compare_with_plans(bool dmabuf, unsigned count)
{
    unsigned with_bridges = 0, with_two = 0, refused = 0, upgraded = 0;
    uint64_t seed = 20261130;
    for (unsigned i = 0; i < count; i++) {
        struct problem p;
        struct world w;
        char text[4096];
        random_problem(&p, dmabuf, &seed);
        const struct best best = reference(&p);
        write_problem(&p, text, sizeof(text));
        struct pen_plan_params params = { .profile = &p.profile };
        make_converters(&p);
        world_plan_with(&w, text, &params, "HostConvert|CudaConvert");
        if ((w.status == PEN_OK) != best.possible)
            fail_msg("case %u: %s\n%s", i, w.err.text, text);
        if (w.status != PEN_OK) {
            refused++;
            world_finish(&w);
            continue;
        }
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
            fail_msg("case %u: costs %lld, the best is %lld (DMABUF %u)\n%s", i,
                     (long long)cost, (long long)best.cost, p.profile.dmabuf,
                     text);
        assert_true(w.plan->optimal);
        with_bridges += bridges > 0;
        with_two += bridges > 1;
        upgraded += w.plan->nodes[0].output[0].mem == PEN_MEM_DMABUF &&
                    w.plan->nodes[0].output[0].upgraded_from;
        world_finish(&w);
    }
    // The cases are not trivial ones.
    assert_true(with_bridges > count / 3);
    assert_true(with_two > count / 5);
    assert_int_equal(refused > 0, dmabuf);
    assert_int_equal(upgraded > count / 40, dmabuf);
}

PEN_TEST(trees_of_bridges_cost_what_an_exhaustive_search_finds)
{
    compare_with_plans(false, pen_test_seeds(150, 6000));
}

PEN_TEST(and_so_do_trees_with_dmabufs_for_every_set_of_capabilities)
{
    compare_with_plans(true, pen_test_seeds(200, 6000));
}

PEN_TEST_MAIN(
    PEN_CASE(trees_of_bridges_cost_what_an_exhaustive_search_finds),
    PEN_CASE(and_so_do_trees_with_dmabufs_for_every_set_of_capabilities))
