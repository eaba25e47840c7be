// Random graphs of the shapes that pipelines have, and their files.

#include "brute.h"

#include <string.h>

#include "tests/support/pen_test.h"

enum { LARGEST = 8 };  // graph, but for wide ones

struct maker {
    struct brute_graph *g;
    uint64_t *seed;
    bool dmabuf;  // this graph may have DMABUFs
    enum pen_format format[BRUTE_TARGETS + 2];
    unsigned formats;
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
    const unsigned length = 3 + below(k, LARGEST - 2);
    unsigned at = add(k);
    while (k->g->modules < length)
        at = after(k, at);
}

static void tree(struct maker *k)
{
    const unsigned count = 4 + below(k, LARGEST - 3);
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
    for (unsigned i = 0; i < 2 && k->g->modules < LARGEST; i++)
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
    if (k->g->modules <= LARGEST - 4 && chance(k, 2))
        at = diamond_after(k, at, true);
    if (k->g->modules <= LARGEST - 2 && chance(k, 3))
        at = after(k, at);
    after(k, at);
}

// Modules with one or two inputs from anywhere before.
static void any(struct maker *k)
{
    const unsigned count = 4 + below(k, LARGEST - 3);
    add(k);
    if (chance(k, 3))
        add(k);
    while (k->g->modules < count) {
        const unsigned before = k->g->modules;
        const unsigned made = after(k, below(k, before));
        if (k->g->edges < 11 && chance(k, 3))
            link(k, below(k, before), made);
    }
}

static void tied(struct maker *k)
{
    const unsigned count = 8 + below(k, 3);
    add(k);
    if (chance(k, 2))
        add(k);
    while (k->g->modules < count) {
        const unsigned before = k->g->modules;
        const unsigned from = before - 1 - below(k, before < 4 ? before : 4);
        const unsigned made = after(k, from);
        if (k->g->edges < BRUTE_EDGES - 4 && !chance(k, 4))
            link(k, before - 1 - below(k, before < 4 ? before : 4), made);
    }
}

static void star(struct maker *k)
{
    const unsigned ends = 8 + below(k, 4);
    const unsigned middle = add(k);
    for (unsigned i = 0; i < ends; i++)
        after(k, middle);
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
static void finish_shape(struct maker *k, unsigned limit)
{
    struct brute_graph *g = k->g;
    for (unsigned m = 0; m < g->modules; m++) {
        struct brute_module *n = &g->module[m];
        if (n->outputs || n->inputs == 1)
            continue;
        if (g->modules < limit && g->edges < BRUTE_EDGES)
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

// --- what the modules are ---------------------------------------------------

static uint32_t random_mem(struct maker *k)
{
    enum {
        HOST = PEN_MEM_BIT(PEN_MEM_HOST),
        PINNED = PEN_MEM_BIT(PEN_MEM_HOST_PINNED),
        CUDA = PEN_MEM_BIT(PEN_MEM_CUDA_DEVICE),
        DMABUF = PEN_MEM_BIT(PEN_MEM_DMABUF),
    };
    // clang-format off
    static const uint32_t sets[] = {
        HOST, HOST, HOST, CUDA, CUDA, CUDA, HOST | CUDA, HOST | CUDA,
        PINNED, HOST | PINNED, PINNED | CUDA,
        DMABUF, DMABUF, HOST | DMABUF, CUDA | DMABUF, PINNED | DMABUF,
        HOST | CUDA | DMABUF,
    };
    // clang-format on
    enum { ALL = sizeof(sets) / sizeof(*sets), PLAIN = 11 };
    return sets[below(k, k->dmabuf ? ALL : PLAIN)];
}

static uint32_t random_formats(struct maker *k)
{
    uint32_t formats = 0;
    const unsigned count = chance(k, 2) ? 1 : 1 + below(k, k->formats);
    for (unsigned i = 0; i < count; i++)
        formats |= PEN_FMT_BIT(k->format[below(k, k->formats)]);
    return formats;
}

static void set_class(struct brute_module *m, unsigned option, const char *name,
                      bool cuda, uint32_t mem, uint32_t formats)
{
    m->option[option] = (struct brute_class){
        .name = name,
        .cuda = cuda,
        .in_mem = mem,
        .out_mem = mem,
        .in_formats = formats,
        .out_formats = formats,
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

static void make_converter(struct maker *k, struct brute_module *m)
{
    const struct brute_graph *g = k->g;
    const unsigned side = below(k, 2);
    if (!g->has_converter[side])
        return;
    m->type = side ? "CudaConvert" : "HostConvert";
    set_class(m, 0, m->type, side, 0, UINT32_MAX);
    struct brute_class *c = &m->option[0];
    c->role = BRUTE_CONVERTS;
    c->in_mem = side ? PEN_MEM_BIT(PEN_MEM_CUDA_DEVICE) : PEN_MEM_BITS_HOST;
    c->out_mem =
        side ? PEN_MEM_BIT(PEN_MEM_CUDA_DEVICE) : PEN_MEM_BIT(PEN_MEM_HOST);
    c->makes = g->target[below(k, g->targets)];
    c->out_formats = PEN_FMT_BIT(c->makes);
}

static void make_copy(struct maker *k, struct brute_module *m)
{
    const uint32_t cuda = PEN_MEM_BIT(PEN_MEM_CUDA_DEVICE);
    const bool up = chance(k, 2);
    if (!k->g->has_copy)
        return;
    m->type = "CudaMemCopy";
    set_class(m, 0, m->type, true, 0, UINT32_MAX);
    m->option[0].role = up ? BRUTE_UPLOADS : BRUTE_DOWNLOADS;
    m->option[0].in_mem = up ? PEN_MEM_BITS_HOST : cuda;
    m->option[0].out_mem = up ? cuda : PEN_MEM_BITS_HOST;
}

static void make_move(struct maker *k, struct brute_module *m)
{
    const unsigned kinds = k->dmabuf ? PEN_MEM_COUNT : PEN_MEM_DMABUF;
    if (!k->g->has_host_copy || !k->g->auto_bridge)
        return;
    m->type = "MemTypeConversion";
    set_class(m, 0, m->type, false,
              PEN_MEM_BIT(PEN_MEM_HOST + below(k, kinds - PEN_MEM_HOST)),
              UINT32_MAX);
    m->option[0].role = BRUTE_MOVES;
}

// One of those that a plain pipeline has few of; nothing if there is none.
static void make_special(struct maker *k, struct brute_module *m)
{
    switch (below(k, 4)) {
    case 0:
        make_copy(k, m);
        break;
    case 1:
        make_move(k, m);
        break;
    default:
        make_converter(k, m);
        break;
    }
}

static void make_work(struct maker *k, struct brute_module *m, bool often_pass)
{
    const uint32_t mem = random_mem(k);
    const bool cuda =
        mem & PEN_MEM_BIT(PEN_MEM_CUDA_DEVICE) ? !chance(k, 4) : chance(k, 12);
    if (m->inputs == 1 && m->outputs == 1 && chance(k, 6)) {
        make_special(k, m);
        if (m->type)
            return;
    }
    if (m->outputs == 0)
        m->type = "Sink";
    else if (m->outputs == 2)
        m->type = "Split";
    else if (m->inputs == 2)
        m->type = chance(k, 3) ? "PassJoin" : "Join";
    else if (chance(k, often_pass ? 2 : 5))
        m->type = "Pass";
    else if (!chance(k, 4))
        m->type = cuda ? "CudaWork" : "Work";
    else {
        make_either(k, m);
        return;
    }
    set_class(m, 0, m->type, !strcmp(m->type, "CudaWork"), mem,
              random_formats(k));
    if (!strncmp(m->type, "Pass", 4))
        m->option[0].role = BRUTE_PASSES;
    else if (chance(k, 20))
        m->option[0].refused = PEN_FMT_BIT(k->format[below(k, k->formats)]);
}

// Those that converters make, and some that only sources and pins have.
static void choose_formats(struct maker *k)
{
    static const enum pen_format pool[] = {
        PEN_FMT_RGB,    PEN_FMT_MONO, PEN_FMT_NV12,     PEN_FMT_RGBA,
        PEN_FMT_BGR,    PEN_FMT_BGRA, PEN_FMT_UYVY,     PEN_FMT_YUV420,
        PEN_FMT_YUV444, PEN_FMT_YUYV, PEN_FMT_YUV411_I,
    };
    enum { POOL = sizeof(pool) / sizeof(*pool) };
    struct brute_graph *g = k->g;
    g->targets = k->dmabuf ? 2 : 2 + below(k, BRUTE_TARGETS - 1);
    const unsigned want = g->targets + (chance(k, 4) ? below(k, 3) : 0);
    uint32_t used = 0;
    while (k->formats < want) {
        const enum pen_format f = pool[below(k, POOL)];
        if (used & PEN_FMT_BIT(f))
            continue;
        if (k->formats < g->targets)
            g->target[k->formats] = f;
        k->format[k->formats++] = f;
        used |= PEN_FMT_BIT(f);
    }
}

static void random_machine(struct maker *k)
{
    static const uint64_t frames[] = { 0, 0, 1, 10, 1000, 100000 };
    struct brute_graph *g = k->g;
    g->profile = (struct pen_profile){
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
    g->frames = frames[below(k, sizeof(frames) / sizeof(*frames))];
    g->auto_bridge = !chance(k, 40);
    g->has_converter[0] = !chance(k, 40);
    g->has_converter[1] = !chance(k, 40);
    g->has_copy = !chance(k, 60);
    g->has_host_copy = !chance(k, 40);
}

void brute_random(struct brute_graph *g, enum brute_size size, uint64_t *seed)
{
    struct maker k = { .g = g, .seed = seed };
    memset(g, 0, sizeof(*g));
    const unsigned shape = below(&k, SHAPES);
    k.dmabuf = chance(&k, 4);
    g->shape = size == BRUTE_WIDE   ? "wide"
               : size == BRUTE_TIED ? "tied"
                                    : shapes[shape].name;
    if (size == BRUTE_WIDE)
        star(&k);
    else if (size == BRUTE_TIED)
        tied(&k);
    else
        shapes[shape].make(&k);
    finish_shape(&k, size == BRUTE_USUAL ? LARGEST : BRUTE_MODULES);
    random_machine(&k);
    choose_formats(&k);
    for (unsigned m = 0; m < g->modules; m++) {
        if (g->module[m].inputs == 0)
            make_source(&k, &g->module[m]);
        else
            make_work(&k, &g->module[m], !strcmp(g->shape, "passes"));
    }
}

// --- as a file --------------------------------------------------------------

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

// What is said of a class of the world.
static void add_world(struct stk_text *t, const struct brute_module *m)
{
    const struct brute_class *c = &m->option[0];
    stk_text_add(t, "'formats': '");
    add_words(t, c->in_formats, false);
    stk_text_add(t, "', 'mem': '");
    add_words(t, c->in_mem, true);
    stk_text_add(t, "'");
    if (c->refused) {
        stk_text_add(t, ", 'refuse': '");
        add_words(t, c->refused, false);
        stk_text_add(t, "'");
    }
    if (m->inputs == 0)
        stk_text_addf(t, ", 'width': %d, 'height': %d, 'range': '%s'", m->width,
                      m->height,
                      m->range == PEN_RANGE_UNKNOWN ? ""
                                                    : pen_range_name(m->range));
}

static void add_props(struct stk_text *t, const struct brute_module *m)
{
    static const char *const mems[] = {
        [PEN_MEM_HOST] = "HOST",
        [PEN_MEM_HOST_PINNED] = "HOST_PINNED",
        [PEN_MEM_CUDA_DEVICE] = "DEVICE",
        [PEN_MEM_DMABUF] = "DMA",
    };
    const struct brute_class *c = &m->option[0];
    switch (c->role) {
    case BRUTE_CONVERTS:
        stk_text_addf(t, "'imageType': '%s'", pen_format_info(c->makes)->name);
        return;
    case BRUTE_UPLOADS:
        stk_text_add(t, "'kind': 'HostToDevice'");
        return;
    case BRUTE_DOWNLOADS:
        stk_text_add(t, "'kind': 'DeviceToHost'");
        return;
    case BRUTE_MOVES:
        stk_text_addf(t, "'outputMemType': '%s'",
                      mems[__builtin_ctz(c->out_mem)]);
        return;
    case BRUTE_WORKS:
    case BRUTE_PASSES:
        break;
    }
    if (m->options == 1) {
        add_world(t, m);
        return;
    }
    stk_text_addf(t, "'work': %llu, 'formats': '", (unsigned long long)c->work);
    add_words(t, c->in_formats, false);
    stk_text_add(t, "'");
}

static void add_end(struct stk_text *t, const char *key, unsigned module,
                    const char *name, unsigned pins, unsigned pin)
{
    stk_text_addf(t, "'%s': 'n%u.%s", key, module, name);
    if (pins > 1)
        stk_text_addf(t, "_%u", pin + 1);
    stk_text_add(t, "'");
}

static void add_edge(struct stk_text *t, const struct brute_graph *g,
                     const struct brute_edge *e)
{
    stk_text_add(t, "\n{ ");
    add_end(t, "from", e->from, "output", g->module[e->from].outputs,
            e->from_pin);
    stk_text_add(t, ", ");
    add_end(t, "to", e->to, "input", g->module[e->to].inputs, e->to_pin);
    stk_text_add(t, " }");
}

char *brute_json(const struct brute_graph *g, unsigned order)
{
    struct stk_text t = { 0 };
    stk_text_addf(&t, "{ 'settings': { 'auto_bridge': %s },\n'modules': {",
                  g->auto_bridge ? "true" : "false");
    for (unsigned i = 0; i < g->modules; i++) {
        const unsigned m = order % 2 ? g->modules - 1 - i : i;
        stk_text_addf(&t, "%s\n'n%u': { 'type': '%s', 'props': { ",
                      i ? "," : "", m, g->module[m].type);
        add_props(&t, &g->module[m]);
        stk_text_add(&t, " } }");
    }
    stk_text_add(&t, " },\n'connections': [");
    for (unsigned i = 0; i < g->edges; i++) {
        const unsigned e = (i + order) % g->edges;
        stk_text_add(&t, i ? "," : "");
        add_edge(&t, g, &g->edge[order % 2 ? g->edges - 1 - e : e]);
    }
    stk_text_add(&t, " ] }");
    return stk_text_take(&t);
}

// --- what they are like -----------------------------------------------------

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
        if (a->option[o].role != b->option[o].role ||
            a->option[o].in_mem != b->option[o].in_mem ||
            a->option[o].in_formats != b->option[o].in_formats)
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
