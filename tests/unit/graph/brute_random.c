// Random graphs of the shapes that pipelines have, and their files.

#include "brute.h"

#include <string.h>

#include "tests/support/pen_test.h"

struct maker {
    struct brute_graph *g;
    uint64_t *seed;
    bool dmabuf;  // this graph may have DMABUFs
};

static unsigned below(struct maker *k, unsigned limit)
{
    return pen_test_random(k->seed) % limit;
}

static bool chance(struct maker *k, unsigned one_in)
{
    return below(k, one_in) == 0;
}

// --- shapes -----------------------------------------------------------------

static unsigned add(struct maker *k)
{
    return k->g->modules++;
}

static void link(struct maker *k, unsigned from, unsigned to)
{
    struct brute_graph *g = k->g;
    g->edge[g->edges++] =
        (struct brute_edge){ from, 0, to, g->module[to].inputs++ };
    if (g->module[from].outputs == 0)
        g->module[from].outputs = 1;
}

static unsigned after(struct maker *k, unsigned from)
{
    const unsigned made = add(k);
    link(k, from, made);
    return made;
}

static void chain(struct maker *k)
{
    const unsigned length = 3 + below(k, BRUTE_MODULES - 2);
    unsigned at = add(k);
    while (k->g->modules < length)
        at = after(k, at);
}

static void tree(struct maker *k)
{
    const unsigned count = 4 + below(k, BRUTE_MODULES - 3);
    add(k);
    while (k->g->modules < count)
        after(k, below(k, k->g->modules));
}

static void fan_out(struct maker *k)
{
    unsigned at = add(k);
    if (chance(k, 2))
        at = after(k, at);
    const unsigned first = k->g->modules;
    const unsigned branches = 2 + below(k, 5);
    for (unsigned i = 0; i < branches; i++)
        after(k, at);
    for (unsigned i = 0; i < 2 && k->g->modules < BRUTE_MODULES; i++)
        if (chance(k, 2))
            after(k, first + i);
}

static unsigned diamond_after(struct maker *k, unsigned from, bool longer)
{
    unsigned left = after(k, from), right = from;
    if (longer)
        right = after(k, from);
    const unsigned join = add(k);
    link(k, left, join);
    link(k, right, join);
    return join;
}

static void diamond(struct maker *k)
{
    unsigned at = add(k);
    if (chance(k, 2))
        at = after(k, at);
    at = diamond_after(k, at, chance(k, 4) == 0);
    if (k->g->modules <= BRUTE_MODULES - 4 && chance(k, 2))
        at = diamond_after(k, at, true);
    if (k->g->modules <= BRUTE_MODULES - 2 && chance(k, 3))
        at = after(k, at);
    after(k, at);
}

// Modules with one or two inputs from anywhere before.
static void any(struct maker *k)
{
    const unsigned count = 4 + below(k, BRUTE_MODULES - 3);
    add(k);
    if (chance(k, 3))
        add(k);
    while (k->g->modules < count) {
        const unsigned before = k->g->modules;
        const unsigned made = after(k, below(k, before));
        if (k->g->edges < BRUTE_EDGES - 1 && chance(k, 3))
            link(k, below(k, before), made);
    }
}

static const struct {
    const char *name;
    void (*make)(struct maker *k);
} shapes[] = {
    { "chain", chain }, { "passes", chain },    { "tree", tree },
    { "fan", fan_out }, { "diamond", diamond }, { "any", any },
};
enum { SHAPES = sizeof(shapes) / sizeof(*shapes) };

// Only a module with one input can be a sink.
static void finish_shape(struct maker *k)
{
    struct brute_graph *g = k->g;
    for (unsigned m = 0; m < g->modules; m++) {
        struct brute_module *n = &g->module[m];
        if (n->outputs || n->inputs == 1)
            continue;
        if (g->modules < BRUTE_MODULES && g->edges < BRUTE_EDGES)
            after(k, m);
        else
            n->outputs = 1;
    }
    // With two outputs the edges are shared between them.
    for (unsigned m = 0; m < g->modules; m++) {
        struct brute_module *n = &g->module[m];
        unsigned edges = 0;
        for (unsigned e = 0; e < g->edges; e++)
            edges += g->edge[e].from == m;
        if (n->inputs != 1 || edges < 2 || !chance(k, 4))
            continue;
        n->outputs = 2;
        edges = 0;
        for (unsigned e = 0; e < g->edges; e++)
            if (g->edge[e].from == m)
                g->edge[e].from_pin = edges++ == 0 ? 0
                                      : edges == 2 ? 1
                                                   : below(k, 2);
    }
}

// --- what the modules are
// -----------------------------------------------------

static uint32_t random_mem(struct maker *k)
{
    enum {
        HOST = PEN_MEM_BIT(PEN_MEM_HOST),
        PINNED = PEN_MEM_BIT(PEN_MEM_HOST_PINNED),
        CUDA = PEN_MEM_BIT(PEN_MEM_CUDA_DEVICE),
        DMABUF = PEN_MEM_BIT(PEN_MEM_DMABUF),
    };
    static const uint32_t sets[] = {
        HOST,
        HOST,
        HOST,
        CUDA,
        CUDA,
        CUDA,
        HOST | CUDA,
        HOST | CUDA,
        PINNED,
        HOST | PINNED,
        PINNED | CUDA,
        DMABUF,
        DMABUF,
        HOST | DMABUF,
        CUDA | DMABUF,
        PINNED | DMABUF,
        HOST | CUDA | DMABUF,
    };
    enum { ALL = sizeof(sets) / sizeof(*sets), PLAIN = 11 };
    return sets[below(k, k->dmabuf ? ALL : PLAIN)];
}

static uint32_t random_formats(struct maker *k)
{
    uint32_t formats = 0;
    const unsigned count = chance(k, 2) ? 1 : 1 + below(k, k->g->targets);
    for (unsigned i = 0; i < count; i++)
        formats |= PEN_FMT_BIT(k->g->target[below(k, k->g->targets)]);
    return formats;
}

static void set_class(struct brute_module *m, unsigned option, const char *name,
                      bool cuda, uint32_t mem, uint32_t formats)
{
    m->option[option] = (struct brute_class){
        .name = name,
        .cuda = cuda,
        .mem = mem,
        .formats = formats,
    };
    if (m->options == option)
        m->options = option + 1;
}

static void make_source(struct maker *k, struct brute_module *m)
{
    static const enum pen_range ranges[] = { PEN_RANGE_UNKNOWN,
                                             PEN_RANGE_LIMITED,
                                             PEN_RANGE_FULL };
    const uint32_t mem = random_mem(k);
    const bool cuda =
        mem & PEN_MEM_BIT(PEN_MEM_CUDA_DEVICE) ? !chance(k, 4) : chance(k, 12);
    const char *name = cuda ? "CudaSource" : "Source";
    set_class(m, 0, name, cuda, mem, random_formats(k));
    m->type = name;
    m->range = ranges[below(k, 3)];
    m->width = k->g->module[0].width;
    m->height = k->g->module[0].height;
    if (m->width == 0 || chance(k, 3)) {
        m->width = 1 + (int32_t)below(k, 1 << (1 + below(k, 12)));
        m->height = 1 + (int32_t)below(k, 1 << (1 + below(k, 12)));
    }
}

// A type that stands for a class of the host and one of the device.
static void make_either(struct maker *k, struct brute_module *m)
{
    const uint32_t formats = random_formats(k);
    const uint64_t work = below(k, 200);
    m->type = "Resize";
    set_class(m, 0, "ResizeCpu", false, PEN_MEM_BIT(PEN_MEM_HOST), formats);
    set_class(m, 1, "ResizeCuda", true, PEN_MEM_BIT(PEN_MEM_CUDA_DEVICE),
              formats);
    m->option[0].work = m->option[1].work = work;
}

static void make_work(struct maker *k, struct brute_module *m, bool often_pass)
{
    const uint32_t mem = random_mem(k), formats = random_formats(k);
    const bool cuda =
        mem & PEN_MEM_BIT(PEN_MEM_CUDA_DEVICE) ? !chance(k, 4) : chance(k, 12);
    const bool pass = chance(k, often_pass ? 2 : 5);
    if (m->outputs == 0)
        m->type = "Sink";
    else if (m->outputs == 2)
        m->type = "Split";
    else if (m->inputs == 2)
        m->type = chance(k, 3) ? "PassJoin" : "Join";
    else if (pass)
        m->type = "Pass";
    else if (chance(k, 4)) {
        make_either(k, m);
        return;
    } else
        m->type = cuda ? "CudaWork" : "Work";
    set_class(m, 0, m->type, !strcmp(m->type, "CudaWork"), mem, formats);
    m->option[0].passes = !strncmp(m->type, "Pass", 4);
}

static void random_formats_known(struct maker *k)
{
    static const enum pen_format pool[] = {
        PEN_FMT_RGB,  PEN_FMT_MONO, PEN_FMT_NV12,
        PEN_FMT_RGBA, PEN_FMT_BGR,  PEN_FMT_YUV420,
    };
    enum { POOL = sizeof(pool) / sizeof(*pool) };
    struct brute_graph *g = k->g;
    const unsigned want = k->dmabuf ? 2 : 2 + below(k, 3);
    uint32_t used = 0;
    while (g->targets < want) {
        const enum pen_format f = pool[below(k, POOL)];
        if (!(used & PEN_FMT_BIT(f)))
            g->target[g->targets++] = f;
        used |= PEN_FMT_BIT(f);
    }
}

static void random_profile(struct maker *k)
{
    static const uint64_t frames[] = { 0, 0, 1, 10, 1000, 100000 };
    k->g->profile = (struct pen_profile){
        .name = "random",
        .cuda = true,
        .h2d_rate = 100 + below(k, 50000),
        .d2h_rate = 100 + below(k, 50000),
        .pageable_rate = 1000,
        .device_rate = 100 + below(k, 100000),
        .host_rate = 100 + below(k, 50000),
        .host_operations = 1 + below(k, 5000),
        .device_operations = 1 + below(k, 100000),
        .launch_ns = below(k, 20000),
        .copy_ns = below(k, 20000),
        .context_ns = below(k, 2) ? below(k, 1000000) : 0,
        .load_ns = below(k, 100000),
        .host_memory = UINT64_MAX,
        .cuda_memory = UINT64_MAX,
        .dmabuf = k->dmabuf ? below(k, 8) : 0,
    };
    k->g->frames = frames[below(k, sizeof(frames) / sizeof(*frames))];
}

void brute_random(struct brute_graph *g, uint64_t *seed)
{
    struct maker k = { .g = g, .seed = seed };
    memset(g, 0, sizeof(*g));
    const unsigned shape = below(&k, SHAPES);
    k.dmabuf = chance(&k, 4);
    g->shape = shapes[shape].name;
    shapes[shape].make(&k);
    finish_shape(&k);
    random_profile(&k);
    random_formats_known(&k);
    for (unsigned m = 0; m < g->modules; m++) {
        if (g->module[m].inputs == 0)
            make_source(&k, &g->module[m]);
        else
            make_work(&k, &g->module[m], !strcmp(g->shape, "passes"));
    }
}

// --- as a file
// ----------------------------------------------------------------

static void add_words(struct stk_text *t, uint32_t mask, bool mem)
{
    const char *gap = "";
    const unsigned end = mem ? PEN_MEM_COUNT : PEN_FMT_COUNT;
    for (unsigned i = 1; i < end; i++) {
        if (!(mask & 1u << i))
            continue;
        stk_text_addf(t, "%s%s", gap,
                      mem ? pen_mem_name((enum pen_mem_type)i)
                          : pen_format_info((enum pen_format)i)->name);
        gap = "|";
    }
}

static void add_module(struct stk_text *t, const struct brute_module *m,
                       unsigned number)
{
    stk_text_addf(t, "%s\n'n%u': { 'type': '%s', 'props': { 'formats': '",
                  number ? "," : "", number, m->type);
    add_words(t, m->option[0].formats, false);
    if (m->options > 1) {
        stk_text_addf(t, "', 'work': %llu",
                      (unsigned long long)m->option[0].work);
    } else {
        stk_text_add(t, "', 'mem': '");
        add_words(t, m->option[0].mem, true);
        stk_text_add(t, "'");
    }
    if (m->inputs == 0)
        stk_text_addf(t, ", 'width': %d, 'height': %d, 'range': '%s'", m->width,
                      m->height,
                      m->range == PEN_RANGE_UNKNOWN ? ""
                                                    : pen_range_name(m->range));
    stk_text_add(t, " } }");
}

static void add_end(struct stk_text *t, const char *key, unsigned module,
                    const char *name, unsigned pins, unsigned pin)
{
    stk_text_addf(t, "'%s': 'n%u.%s", key, module, name);
    if (pins > 1)
        stk_text_addf(t, "_%u", pin + 1);
    stk_text_add(t, "'");
}

char *brute_json(const struct brute_graph *g)
{
    struct stk_text t = { 0 };
    stk_text_add(&t, "{ 'modules': {");
    for (unsigned m = 0; m < g->modules; m++)
        add_module(&t, &g->module[m], m);
    stk_text_add(&t, " },\n'connections': [");
    for (unsigned e = 0; e < g->edges; e++) {
        const struct brute_edge *x = &g->edge[e];
        stk_text_addf(&t, "%s\n{ ", e ? "," : "");
        add_end(&t, "from", x->from, "output", g->module[x->from].outputs,
                x->from_pin);
        stk_text_add(&t, ", ");
        add_end(&t, "to", x->to, "input", g->module[x->to].inputs, x->to_pin);
        stk_text_add(&t, " }");
    }
    stk_text_add(&t, " ] }");
    return stk_text_take(&t);
}

// --- what they are like
// -------------------------------------------------------

bool brute_is_tree(const struct brute_graph *g)
{
    for (unsigned m = 0; m < g->modules; m++)
        if (g->module[m].inputs > 1)
            return false;
    return true;
}

static bool same_target(const struct brute_module *a,
                        const struct brute_module *b)
{
    if (a->options != b->options)
        return false;
    for (unsigned o = 0; o < a->options; o++)
        if (a->option[o].mem != b->option[o].mem ||
            a->option[o].formats != b->option[o].formats)
            return false;
    return true;
}

unsigned brute_most_targets(const struct brute_graph *g)
{
    unsigned most = 0;
    for (unsigned e = 0; e < g->edges; e++) {
        unsigned targets = 0;
        for (unsigned i = 0; i < g->edges; i++) {
            bool told = g->edge[i].from != g->edge[e].from ||
                        g->edge[i].from_pin != g->edge[e].from_pin;
            for (unsigned k = 0; k < i && !told; k++)
                told = g->edge[k].from == g->edge[i].from &&
                       g->edge[k].from_pin == g->edge[i].from_pin &&
                       same_target(&g->module[g->edge[k].to],
                                   &g->module[g->edge[i].to]);
            targets += !told;
        }
        if (targets > most)
            most = targets;
    }
    return most;
}
