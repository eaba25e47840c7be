// Where frames live and in which format they travel between one output pin
// and all its consumers.
//
// A state is a memory type and a format; "own" stands for the set of formats
// that the pin may give, the other formats for the results of conversions.
// Bridges are the steps between states. Consumers with equal acceptable sets
// of states form a target. What is looked for is the tree of steps from the
// pin's state that touches every target.
//
// Order of preference, per consumer: the least information lost, then the
// fewest transfers; among all trees that give every consumer such a path, the
// cheapest. The first two are shortest paths, so the tree may use exactly the
// steps that lie on shortest paths ("tight" ones), and the third is a Steiner
// tree in that small directed graph: exact by the recursion of Dreyfus and
// Wagner over subsets of targets, for up to STK_EXACT_TARGETS of them; beyond,
// targets are joined one after the other to the tree at the nearest state.
//
// A consumer that takes the pin's own formats gets them unconverted, however
// cheap another tree would be.

#include "planner.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum {
    MEMS = 4,
    FORMATS = 17,  // own, eleven, five Bayer
    STATES = MEMS * FORMATS,
    HOPS = FORMATS + 2,
    SUBSETS = 1 << STK_EXACT_TARGETS,
};
#define INFINITE (INT64_MAX / 4)  // two of them can be added

// Costs are nanoseconds times TICKS; what is left decides between trees of
// equal time: fewer bridges, then less pinned memory, then targets that some
// frames have already.
#define TICKS 64
enum { TICK_BRIDGE = 8, TICK_ROOT = 2, TICK_FOREIGN = 2, TICK_UPGRADE = 1 };

enum op { UPGRADE, H2D, D2H, CONVERT_HOST, CONVERT_CUDA };

struct hop {
    uint8_t to, op;
    bool tight;
    uint64_t loss;
    int64_t cost;
};

// Consumers that accept the same states.
struct target {
    uint32_t mems, formats;  // formats: indices of this pin's list
    uint32_t first, last;    // list of its edges through next_edge
    uint32_t edges;
    int state;  // where the tree serves it; -1: not
};

enum pick_kind { PICK_NONE, PICK_HERE, PICK_HOP, PICK_SPLIT };
struct pick {
    uint8_t kind, arg;
};

struct stk_place {
    unsigned format_count;
    enum pen_format format[FORMATS];  // [0]: own
    uint32_t mask;                    // of own
    int64_t bytes[FORMATS];
    struct hop hop[STATES][HOPS];
    unsigned hops[STATES];
    uint64_t distance[STATES];  // loss and transfers from the root
    struct target *targets;
    uint32_t target_count, target_room;
    uint32_t *next_edge;  // by position in p->out
    // Exact search: which of the active targets a state satisfies.
    uint32_t active[STK_EXACT_TARGETS];
    uint8_t here[STATES];
    int64_t best[SUBSETS][STATES];
    struct pick pick[SUBSETS][STATES];
    // The tree.
    int root;
    int16_t parent[STATES];  // state; -1: none
    bool in_tree[STATES];
};

static const enum pen_mem_type mem_of[MEMS] = {
    PEN_MEM_HOST,
    PEN_MEM_HOST_PINNED,
    PEN_MEM_CUDA_DEVICE,
    PEN_MEM_DMABUF,
};

static int state_of(unsigned mem, unsigned format)
{
    return (int)(mem * FORMATS + format);
}

static unsigned state_mem(int state)
{
    return (unsigned)state / FORMATS;
}

static unsigned state_format(int state)
{
    return (unsigned)state % FORMATS;
}

// --- loss -------------------------------------------------------------------

// One number, most important field first; sums over paths do not carry.
enum {
    LOSS_TRANSFER = 0,
    LOSS_MATRIX = 8,
    LOSS_RANGE = 16,
    LOSS_CHROMA = 24,
    LOSS_DEPTH = 32,
    LOSS_CHANNELS = 40,
};

struct quality {
    int channels, depth, chroma_w, chroma_h;  // chroma: log2 of the step
    bool yuv, mono;
};

static struct quality quality_of(enum pen_format format)
{
    const struct pen_format_info *info = pen_format_info(format);
    struct quality q = {
        .channels = info->bayer ? 3 : info->channels,
        .depth = info->depth,
        .yuv = info->yuv,
        .mono = format == PEN_FMT_MONO,
    };
    if (info->yuv) {
        q.chroma_w = __builtin_ctz(info->chroma_w);
        q.chroma_h = __builtin_ctz(info->chroma_h);
    }
    return q;
}

static uint64_t more(int a, int b)
{
    return a > b ? (uint64_t)(a - b) : 0;
}

static uint64_t format_loss(enum pen_format from, enum pen_format to,
                            bool yuv_full)
{
    const struct quality a = quality_of(from), b = quality_of(to);
    const bool a_full = !a.yuv || yuv_full, b_full = !b.yuv || yuv_full;
    uint64_t loss = more(a.channels, b.channels) << LOSS_CHANNELS |
                    more(a.depth, b.depth) << LOSS_DEPTH;
    if (b.yuv && !a.mono)
        loss |= (more(b.chroma_w, a.chroma_w) + more(b.chroma_h, a.chroma_h))
                << LOSS_CHROMA;
    if (a_full && !b_full)
        loss |= 1ull << LOSS_RANGE;
    if (a.yuv != b.yuv && !a.mono && !b.mono)
        loss |= 1ull << LOSS_MATRIX;
    return loss;
}

// Order of formats for "poorer".
static uint32_t richness(enum pen_format format)
{
    const struct quality q = quality_of(format);
    return (uint32_t)(q.channels << 16 | q.depth << 8 |
                      (16 - q.chroma_w - q.chroma_h));
}

// YUV of the tree is of full range only where the pin gives it so: what is
// converted to YUV is limited.
static bool yuv_is_full(const struct pen_caps *caps, uint32_t mask)
{
    return caps->range == PEN_RANGE_FULL && !(mask & ~PEN_FMT_BITS_YUV);
}

static void tell_loss(struct stk_text *t, enum pen_format from,
                      enum pen_format to, uint64_t loss, bool several)
{
    static const char *const step[] = { "full", "half", "a quarter",
                                        "an eighth" };
    const struct quality a = quality_of(from), b = quality_of(to);
    const struct pen_format_info *info = pen_format_info(from);
    const char *gap = "";
    if (t->length)
        stk_text_add(t, "; ");
    if (several)
        stk_text_addf(t, "of %s: ", info->name);
    if (loss >> LOSS_CHANNELS & 0xff) {
        const bool alpha = info->alpha && !pen_format_info(to)->alpha;
        if (alpha)
            stk_text_add(t, "alpha");
        if (b.mono)
            stk_text_add(t, alpha ? " and colour" : "colour");
        gap = ", ";
    }
    if (loss >> LOSS_DEPTH & 0xff) {
        stk_text_addf(t, "%s%d bits to %d", gap, a.depth, b.depth);
        gap = ", ";
    }
    if (loss >> LOSS_CHROMA & 0xff) {
        const uint64_t w = more(b.chroma_w, a.chroma_w);
        const uint64_t h = more(b.chroma_h, a.chroma_h);
        stk_text_addf(t, "%schroma to ", gap);
        if (w)
            stk_text_addf(t, "%s width", step[w]);
        if (h)
            stk_text_addf(t, "%s%s height", w ? " and " : "", step[h]);
        gap = ", ";
    }
    if (loss >> LOSS_RANGE & 0xff) {
        stk_text_addf(t, "%sfull to limited range", gap);
        gap = ", ";
    }
    if (loss >> LOSS_MATRIX & 0xff)
        stk_text_addf(t, "%srounding (%s)", gap,
                      b.yuv ? "RGB to YUV" : "YUV to RGB");
}

// --- templates --------------------------------------------------------------

static bool has_prop(const struct pen_module_class *cls, const char *key)
{
    for (const struct pen_prop *row = cls->props; row && row->kind; row++)
        if (!strcmp(row->key, key))
            return true;
    return false;
}

static const struct pen_module_class *
find_converter(const struct pen_registry *registry, const char *backend)
{
    const char *const tags[] = { "function:color", backend, NULL };
    const struct pen_module_class *list[16];
    size_t count = pen_registry_modules_with_tags(registry, tags, list, 16);
    if (count > 16)
        count = 16;
    for (size_t i = 0; i < count; i++)
        if ((list[i]->flags & PEN_CLASS_BRIDGE) &&
            has_prop(list[i], "imageType"))
            return list[i];
    return NULL;
}

static void find_classes(struct stk_planner *p)
{
    const struct pen_registry *registry = p->plan->registry;
    p->convert_cls[0] = find_converter(registry, "backend:cpu");
    p->convert_cls[1] = find_converter(registry, "backend:cuda");
    p->copy_cls = pen_registry_find(registry, "CudaMemCopy", NULL);
    if (p->copy_cls && (!(p->copy_cls->flags & PEN_CLASS_BRIDGE) ||
                        !has_prop(p->copy_cls, "kind")))
        p->copy_cls = NULL;
}

static void pin_set(const struct pen_pin *pin, struct pen_pin_set *set)
{
    set->kinds = pin->kinds;
    set->mem = pin->mem;
    set->formats = pin->formats;
}

// Properties of a class with one of them set, as if a file said so.
static enum pen_status make_template(struct stk_planner *p,
                                     struct stk_template *t,
                                     const struct pen_module_class *cls,
                                     const char *key, const char *value,
                                     struct pen_error *err)
{
    struct pen_plan *plan = p->plan;
    if (t->tried)
        return PEN_OK;
    t->tried = true;
    if (!cls || !cls->inputs || !cls->outputs)
        return PEN_OK;
    t->cls = cls;
    snprintf(t->text, sizeof(t->text), "%s", value);

    enum pen_status st = PEN_E_NOMEM;
    void *params =
        stk_arena_alloc(&plan->arena, cls->params_size ? cls->params_size : 1);
    struct pen_issues *issues = pen_issues_create();
    json_t *props = json_pack("{s:s}", key, value);
    if (params && issues && props) {
        const size_t errors =
            stk_props_parse(cls->props, params, &t->base, props, "", plan->desc,
                            &plan->arena, issues, cls->name);
        if (!stk_issues_failed(issues)) {
            st = PEN_OK;
            t->usable = errors == 0;
        }
    }
    json_decref(props);
    pen_issues_destroy(&issues);
    if (st != PEN_OK) {
        t->tried = false;
        return pen_error_set(err, st, 0, cls->name, "no memory for the plan");
    }
    t->params = params;
    // Narrowing sees all pins; bridges have one on each side.
    struct pen_pin_set in[PEN_MAX_PINS] = { 0 }, out[PEN_MAX_PINS] = { 0 };
    for (unsigned i = 0; i < PEN_MAX_PINS && cls->inputs[i].name; i++)
        pin_set(&cls->inputs[i], &in[i]);
    for (unsigned i = 0; i < PEN_MAX_PINS && cls->outputs[i].name; i++)
        pin_set(&cls->outputs[i], &out[i]);
    if (cls->ops.narrow)
        cls->ops.narrow(params, in, out);
    t->in = in[0];
    t->out = out[0];
    return PEN_OK;
}

static const struct stk_template *template_of(const struct stk_planner *p,
                                              const struct stk_place *w,
                                              const struct hop *hop)
{
    const enum pen_format to = w->format[state_format(hop->to)];
    switch ((enum op)hop->op) {
    case H2D:
        return &p->copy[0];
    case D2H:
        return &p->copy[1];
    case CONVERT_HOST:
        return &p->convert[0][to];
    case CONVERT_CUDA:
        return &p->convert[1][to];
    case UPGRADE:
        break;
    }
    return NULL;
}

static enum pen_status make_templates(struct stk_planner *p,
                                      const struct stk_place *w,
                                      struct pen_error *err)
{
    PEN_TRY(make_template(p, &p->copy[0], p->copy_cls, "kind", "HostToDevice",
                          err));
    PEN_TRY(make_template(p, &p->copy[1], p->copy_cls, "kind", "DeviceToHost",
                          err));
    for (unsigned i = 1; i < w->format_count; i++) {
        const char *name = pen_format_info(w->format[i])->name;
        for (unsigned side = 0; side < 2; side++)
            PEN_TRY(make_template(p, &p->convert[side][w->format[i]],
                                  p->convert_cls[side], "imageType", name,
                                  err));
    }
    return PEN_OK;
}

static bool converts(const struct stk_template *t, uint32_t from,
                     enum pen_format to)
{
    if (!t->usable || !(t->out.formats & PEN_FMT_BIT(to)))
        return false;
    from &= ~PEN_FMT_BIT(to);
    return from != 0 && (from & ~t->in.formats) == 0;
}

// --- states and steps -------------------------------------------------------

// Of equally good targets the first is taken.
static const enum pen_format preference[] = {
    PEN_FMT_RGB,      PEN_FMT_RGBA,     PEN_FMT_BGR,      PEN_FMT_BGRA,
    PEN_FMT_MONO,     PEN_FMT_NV12,     PEN_FMT_YUV420,   PEN_FMT_YUV444,
    PEN_FMT_UYVY,     PEN_FMT_YUYV,     PEN_FMT_YUV411_I, PEN_FMT_BAYERBG8,
    PEN_FMT_BAYERGB8, PEN_FMT_BAYERGR8, PEN_FMT_BAYERRG8, PEN_FMT_BAYERBG10,
};

static void list_formats(const struct stk_planner *p, struct stk_place *w)
{
    uint32_t reachable = 0;
    w->format_count = 1;
    w->format[0] = PEN_FMT_NONE;
    if (w->mask == 0)
        return;
    for (unsigned side = 0; side < 2; side++) {
        const struct pen_module_class *cls = p->convert_cls[side];
        if (cls && cls->outputs)
            reachable |= cls->outputs[0].formats;
    }
    for (unsigned i = 0; i < sizeof(preference) / sizeof(*preference); i++)
        if ((reachable & PEN_FMT_BIT(preference[i])) &&
            w->mask != PEN_FMT_BIT(preference[i]))
            w->format[w->format_count++] = preference[i];
}

// Bytes of a frame in each format, for the size of `caps`.
static enum pen_status count_bytes(struct stk_place *w,
                                   const struct pen_caps *caps,
                                   struct pen_error *err)
{
    for (unsigned i = 0; i < w->format_count; i++) {
        struct pen_caps one = *caps;
        size_t bytes;
        if (i > 0) {
            one.format = w->format[i];
            one.formats = PEN_FMT_BIT(one.format);
        }
        PEN_TRY(stk_caps_bytes(&one, &bytes, err));
        w->bytes[i] = (int64_t)bytes;
    }
    return PEN_OK;
}

static int64_t hop_cost(const struct stk_planner *p, const struct stk_place *w,
                        int from, const struct hop *hop)
{
    const struct pen_profile *f = &p->plan->profile;
    const uint64_t in = (uint64_t)w->bytes[state_format(from)];
    const uint64_t out = (uint64_t)w->bytes[state_format(hop->to)];
    int64_t ns = 0, ticks = TICK_BRIDGE, cost;
    switch ((enum op)hop->op) {
    case UPGRADE:
        return TICK_UPGRADE;
    case H2D:
        ns = stk_cost_sum(stk_cost_move(in, f->h2d_rate), f->copy_ns);
        break;
    case D2H:
        ns = stk_cost_sum(stk_cost_move(in, f->d2h_rate), f->copy_ns);
        break;
    case CONVERT_HOST:
        ns = stk_cost_move(in + out, f->host_rate);
        break;
    case CONVERT_CUDA:
        ns =
            stk_cost_sum(stk_cost_move(in + out, f->device_rate), f->launch_ns);
        break;
    }
    if (hop->op >= CONVERT_HOST &&
        !(w->mask & PEN_FMT_BIT(w->format[state_format(hop->to)])))
        ticks += TICK_FOREIGN;
    if (__builtin_mul_overflow(ns, TICKS, &cost) || cost > INFINITE / STATES)
        return INFINITE / STATES;
    return cost + ticks;
}

static void add_hop(struct stk_place *w, int from, int to, enum op op,
                    uint64_t loss)
{
    w->hop[from][w->hops[from]++] = (struct hop){
        .to = (uint8_t)to,
        .op = (uint8_t)op,
        .loss = loss,
    };
}

static void make_hops(struct stk_planner *p, struct stk_place *w,
                      const struct pen_caps *caps, bool bridges)
{
    const bool full = yuv_is_full(caps, w->mask);
    uint32_t poorest = UINT32_MAX;
    for (unsigned f = 1; f < PEN_FMT_COUNT; f++)
        if ((w->mask & PEN_FMT_BIT(f)) &&
            richness((enum pen_format)f) < poorest)
            poorest = richness((enum pen_format)f);

    memset(w->hops, 0, sizeof(w->hops));
    for (unsigned i = 0; i < w->format_count; i++) {
        add_hop(w, state_of(0, i), state_of(1, i), UPGRADE, 0);
        if (!bridges)
            continue;
        if (p->copy[0].usable)
            add_hop(w, state_of(1, i), state_of(2, i), H2D, 1);
        if (p->copy[1].usable)
            add_hop(w, state_of(2, i), state_of(1, i), D2H, 1);
        const uint32_t from = i ? PEN_FMT_BIT(w->format[i]) : w->mask;
        for (unsigned t = 1; t < w->format_count; t++) {
            const enum pen_format to = w->format[t];
            if (t == i)
                continue;
            // Not through a format poorer than both ends.
            if (i && richness(w->format[i]) < poorest &&
                richness(to) > richness(w->format[i]))
                continue;
            uint64_t loss = 0;
            for (unsigned f = 1; f < PEN_FMT_COUNT; f++) {
                if (!(from & PEN_FMT_BIT(f)))
                    continue;
                const uint64_t l = format_loss((enum pen_format)f, to, full);
                if (l > loss)
                    loss = l;
            }
            if (converts(&p->convert[0][to], from, to)) {
                add_hop(w, state_of(0, i), state_of(0, t), CONVERT_HOST, loss);
                add_hop(w, state_of(1, i), state_of(0, t), CONVERT_HOST, loss);
            }
            if (converts(&p->convert[1][to], from, to))
                add_hop(w, state_of(2, i), state_of(2, t), CONVERT_CUDA, loss);
        }
    }
}

static void price_hops(const struct stk_planner *p, struct stk_place *w)
{
    for (int v = 0; v < STATES; v++)
        for (unsigned h = 0; h < w->hops[v]; h++)
            w->hop[v][h].cost = hop_cost(p, w, v, &w->hop[v][h]);
}

// Loss and transfers of the best path to every state, and which steps lie on
// such paths.
static void find_tight(struct stk_place *w)
{
    for (int v = 0; v < STATES; v++)
        w->distance[v] = v == w->root ? 0 : UINT64_MAX;
    for (bool again = true; again;) {
        again = false;
        for (int v = 0; v < STATES; v++) {
            if (w->distance[v] == UINT64_MAX)
                continue;
            for (unsigned h = 0; h < w->hops[v]; h++) {
                const struct hop *hop = &w->hop[v][h];
                const uint64_t d = w->distance[v] + hop->loss;
                if (d < w->distance[hop->to]) {
                    w->distance[hop->to] = d;
                    again = true;
                }
            }
        }
    }
    for (int v = 0; v < STATES; v++)
        for (unsigned h = 0; h < w->hops[v]; h++) {
            struct hop *hop = &w->hop[v][h];
            hop->tight = w->distance[v] != UINT64_MAX &&
                         w->distance[v] + hop->loss == w->distance[hop->to];
        }
}

// --- targets ----------------------------------------------------------------

static bool uploads(const struct stk_node *node)
{
    const uint32_t cuda = PEN_MEM_BIT(PEN_MEM_CUDA_DEVICE);
    return (node->cls->flags & PEN_CLASS_BRIDGE) && node->outputs == 1 &&
           node->out[0].mem == cuda && !(node->in[0].mem & cuda);
}

// Memory types in which a pin takes frames. A hand-written upload gets pinned
// frames as an inserted one does: the producer's pool is upgraded.
static uint32_t accepted_mems(const struct stk_node *node, uint32_t pin)
{
    uint32_t mems = node->in[pin].mem;
    if (mems == 0)
        mems = PEN_MEM_BIT(PEN_MEM_HOST);
    if (mems & PEN_MEM_BIT(PEN_MEM_HOST))
        mems |= PEN_MEM_BIT(PEN_MEM_HOST_PINNED);
    if (uploads(node))
        mems &= ~PEN_MEM_BIT(PEN_MEM_HOST);
    return mems;
}

static enum pen_status add_target(struct stk_place *w, uint32_t mems,
                                  uint32_t formats, uint32_t edge,
                                  struct pen_error *err)
{
    w->next_edge[edge] = UINT32_MAX;
    for (uint32_t i = 0; i < w->target_count; i++) {
        struct target *t = &w->targets[i];
        if (t->mems != mems || t->formats != formats)
            continue;
        w->next_edge[t->last] = edge;
        t->last = edge;
        t->edges++;
        return PEN_OK;
    }
    if (w->target_count == w->target_room) {
        const uint32_t room = w->target_room ? 2 * w->target_room : 8;
        void *grown = realloc(w->targets, room * sizeof(*w->targets));
        if (!grown)
            return pen_error_set(err, PEN_E_NOMEM, 0, "planner",
                                 "no memory for the plan");
        w->targets = grown;
        w->target_room = room;
    }
    w->targets[w->target_count++] = (struct target){
        .mems = mems,
        .formats = formats,
        .first = edge,
        .last = edge,
        .edges = 1,
        .state = -1,
    };
    return PEN_OK;
}

static bool satisfies(const struct stk_place *w, const struct target *t, int v)
{
    return w->distance[v] != UINT64_MAX &&
           (t->mems & PEN_MEM_BIT(mem_of[state_mem(v)])) &&
           (t->formats & 1u << state_format(v));
}

// Least loss (and transfers) at which a target can be served; UINT64_MAX: not.
static uint64_t least_distance(const struct stk_place *w,
                               const struct target *t)
{
    uint64_t least = UINT64_MAX;
    for (int v = 0; v < STATES; v++)
        if (satisfies(w, t, v) && w->distance[v] < least)
            least = w->distance[v];
    return least;
}

// --- the tree ---------------------------------------------------------------

static void search(struct stk_place *w, unsigned count)
{
    const unsigned all = (1u << count) - 1;
    for (int v = 0; v < STATES; v++)
        w->best[0][v] = 0;
    for (unsigned set = 1; set <= all; set++) {
        int64_t *best = w->best[set];
        struct pick *pick = w->pick[set];
        for (int v = 0; v < STATES; v++) {
            best[v] = INFINITE;
            pick[v] = (struct pick){ PICK_NONE, 0 };
            if (set & w->here[v]) {
                best[v] = w->best[set & ~w->here[v]][v];
                pick[v].kind = PICK_HERE;
                continue;
            }
            for (unsigned sub = (set - 1) & set; sub > (set ^ sub);
                 sub = (sub - 1) & set) {
                const int64_t c = w->best[sub][v] + w->best[set ^ sub][v];
                if (c < best[v]) {
                    best[v] = c;
                    pick[v] = (struct pick){ PICK_SPLIT, (uint8_t)sub };
                }
            }
        }
        for (bool again = true; again;) {
            again = false;
            for (int v = 0; v < STATES; v++)
                for (unsigned h = 0; h < w->hops[v]; h++) {
                    const struct hop *hop = &w->hop[v][h];
                    if (!hop->tight)
                        continue;
                    const int64_t c = hop->cost + best[hop->to];
                    if (c < best[v]) {
                        best[v] = c;
                        pick[v] = (struct pick){ PICK_HOP, hop->to };
                        again = true;
                    }
                }
        }
    }
}

static void keep(struct stk_place *w, unsigned set, int v)
{
    w->in_tree[v] = true;
    while (set) {
        const struct pick pick = w->pick[set][v];
        switch ((enum pick_kind)pick.kind) {
        case PICK_HERE:
            for (unsigned i = 0; i < STK_EXACT_TARGETS; i++)
                if (set & w->here[v] & 1u << i)
                    w->targets[w->active[i]].state = v;
            set &= ~(unsigned)w->here[v];
            break;
        case PICK_HOP:
            w->parent[pick.arg] = (int16_t)v;
            v = pick.arg;
            w->in_tree[v] = true;
            break;
        case PICK_SPLIT:
            keep(w, pick.arg, v);
            set ^= pick.arg;
            break;
        case PICK_NONE:
            return;
        }
    }
}

// Which active targets each state serves, on a path without avoidable loss.
static void mark_here(struct stk_place *w, unsigned count)
{
    memset(w->here, 0, sizeof(w->here));
    for (unsigned i = 0; i < count; i++) {
        const struct target *t = &w->targets[w->active[i]];
        const uint64_t least = least_distance(w, t);
        for (int v = 0; v < STATES; v++)
            if (satisfies(w, t, v) && w->distance[v] == least)
                w->here[v] |= (uint8_t)(1u << i);
    }
}

static int64_t tree_cost(const struct stk_place *w)
{
    int64_t sum = 0;
    for (int v = 0; v < STATES; v++) {
        if (w->parent[v] < 0)
            continue;
        const int from = w->parent[v];
        for (unsigned h = 0; h < w->hops[from]; h++)
            if (w->hop[from][h].to == v)
                sum += w->hop[from][h].cost;
    }
    return sum;
}

static void clear_tree(struct stk_place *w)
{
    memset(w->in_tree, 0, sizeof(w->in_tree));
    for (int v = 0; v < STATES; v++)
        w->parent[v] = -1;
}

static void tree_exact(struct stk_place *w, unsigned count)
{
    mark_here(w, count);
    search(w, count);
    clear_tree(w);
    keep(w, (1u << count) - 1, w->root);
}

// More targets than the exact search takes: join one after the other, each at
// the state of the tree from which it is cheapest.
static void tree_greedy(struct stk_place *w)
{
    clear_tree(w);
    w->in_tree[w->root] = true;
    for (uint32_t t = 0; t < w->target_count; t++) {
        if (least_distance(w, &w->targets[t]) == UINT64_MAX)
            continue;
        w->active[0] = t;
        mark_here(w, 1);
        search(w, 1);
        int from = w->root;
        for (int v = 0; v < STATES; v++)
            if (w->in_tree[v] && w->best[1][v] < w->best[1][from])
                from = v;
        keep(w, 1, from);
    }
}

// --- into the plan ----------------------------------------------------------

// Let a pool be page-locked; for forwarded frames, the pools they come from.
static void upgrade(struct pen_plan *plan, uint32_t number, uint32_t pin)
{
    for (;;) {
        struct stk_plan_node *node = &plan->nodes[number];
        struct stk_plan_output *o = &node->output[pin];
        if (o->mem != PEN_MEM_HOST)
            return;
        o->mem = PEN_MEM_HOST_PINNED;
        if (!(node->cls->flags & PEN_CLASS_FORWARDS))
            o->upgraded_from = PEN_MEM_HOST;
        if (!node->forwards)
            return;
        int32_t last = -1;
        for (uint32_t i = 0; i < node->inputs; i++) {
            if (node->in_edge[i] < 0)
                continue;
            if (last >= 0) {
                const struct stk_plan_edge *e = &plan->edges[last];
                upgrade(plan, e->from, e->from_pin);
            }
            last = node->in_edge[i];
        }
        if (last < 0)
            return;
        number = plan->edges[last].from;
        pin = plan->edges[last].from_pin;
    }
}

// What an insertion is about: the pin and the state it starts from.
struct origin {
    const char *id, *pin;
    enum pen_mem_type mem;
    const struct pen_caps *caps;
};

// HOST pins take pinned frames too; that need not be told each time.
static void wanted_text(uint32_t mems, char *text, size_t size)
{
    if (mems & PEN_MEM_BIT(PEN_MEM_HOST))
        mems &= ~PEN_MEM_BIT(PEN_MEM_HOST_PINNED);
    stk_mems_text(mems, text, size);
}

static bool below(const struct stk_place *w, int v, int ancestor)
{
    for (; v >= 0; v = w->parent[v])
        if (v == ancestor)
            return true;
    return false;
}

// reason and serves of the bridge that makes state `at`, and the deepest
// queue behind it.
static enum pen_status explain(struct stk_planner *p, const struct stk_place *w,
                               const struct origin *from, int at,
                               bool conversion, struct stk_plan_node *node,
                               uint32_t *depth, struct pen_error *err)
{
    struct stk_text reason = { 0 }, serves = { 0 };
    uint32_t first = UINT32_MAX, count = 0;
    *depth = 1;
    for (uint32_t i = 0; i < w->target_count; i++) {
        const struct target *t = &w->targets[i];
        if (t->state < 0 || !below(w, t->state, at))
            continue;
        for (uint32_t n = t->first; n != UINT32_MAX; n = w->next_edge[n]) {
            const struct stk_edge *e = &p->graph->edges[p->out[n]];
            const struct stk_node *to = &p->graph->nodes[e->to];
            const uint32_t d = stk_planner_depth(p, e);
            if (n < first)
                first = n;
            if (d > *depth)
                *depth = d;
            stk_text_addf(&serves, "%s%s.%s -> %s.%s", count ? ", " : "",
                          from->id, from->pin, to->desc->id,
                          to->cls->inputs[e->to_pin].name);
            count++;
        }
    }
    const struct stk_edge *e = &p->graph->edges[p->out[first]];
    const struct stk_node *to = &p->graph->nodes[e->to];
    const struct pen_pin_set *set = &to->in[e->to_pin];
    char wants[160], gives[160];
    if (conversion) {
        stk_mask_text(set->formats, wants, sizeof(wants));
        stk_mask_text(w->mask, gives, sizeof(gives));
    } else {
        wanted_text(set->mem, wants, sizeof(wants));
        stk_mems_text(PEN_MEM_BIT(from->mem), gives, sizeof(gives));
    }
    stk_text_addf(&reason, "pin `%s` of `%s` %s %s; `%s.%s` gives %s",
                  to->cls->inputs[e->to_pin].name, to->desc->id,
                  conversion ? "takes" : "needs", wants, from->id, from->pin,
                  gives);
    if (count > 1)
        stk_text_addf(&reason, " (and %u more)", count - 1);

    enum pen_status st = PEN_OK;
    if (!reason.failed && !serves.failed) {
        node->reason = stk_arena_strdup(&p->plan->arena, reason.data);
        node->serves = stk_arena_strdup(&p->plan->arena, serves.data);
    }
    if (!node->reason || !node->serves)
        st = pen_error_set(err, PEN_E_NOMEM, 0, "planner",
                           "no memory for the plan");
    stk_text_finish(&reason);
    stk_text_finish(&serves);
    return st;
}

static enum pen_status describe_loss(struct stk_planner *p,
                                     const struct stk_place *w,
                                     const struct pen_caps *caps, int at,
                                     int to, struct stk_plan_node *node,
                                     struct pen_error *err)
{
    struct stk_text text = { 0 };
    const enum pen_format target = w->format[state_format(to)];
    const unsigned index = state_format(at);
    const uint32_t from = index ? PEN_FMT_BIT(w->format[index]) : w->mask;
    for (unsigned f = 1; f < PEN_FMT_COUNT; f++) {
        if (!(from & PEN_FMT_BIT(f)))
            continue;
        const uint64_t loss =
            format_loss((enum pen_format)f, target, yuv_is_full(caps, w->mask));
        if (loss)
            tell_loss(&text, (enum pen_format)f, target, loss,
                      (from & (from - 1)) != 0);
    }
    node->loss = NULL;
    if (!text.failed)
        node->loss =
            stk_arena_strdup(&p->plan->arena, text.data ? text.data : "");
    const bool ok = node->loss != NULL;
    stk_text_finish(&text);
    if (!ok)
        return pen_error_set(err, PEN_E_NOMEM, 0, "planner",
                             "no memory for the plan");
    return PEN_OK;
}

static enum pen_status insert(struct stk_planner *p, struct stk_place *w,
                              const struct origin *from, int at,
                              const struct hop *hop, uint32_t number,
                              uint32_t pin, uint32_t *made,
                              struct pen_error *err)
{
    struct pen_plan *plan = p->plan;
    const struct stk_template *t = template_of(p, w, hop);
    const bool conversion = hop->op >= CONVERT_HOST;
    uint32_t depth;
    PEN_TRY(stk_planner_add_node(p, made, err));
    struct stk_plan_node *node = &plan->nodes[*made];
    node->id = stk_arena_printf(&plan->arena, "_bridge_%u_%s", ++p->bridges,
                                t->cls->name);
    node->loss = "";
    node->pointer = "";
    node->cls = t->cls;
    node->type = t->cls->name;
    node->params = t->params;
    node->base = t->base;
    node->inserted = true;
    node->inputs = node->outputs = 1;
    node->in[0] = t->in;
    node->out[0] = t->out;
    if (!node->id)
        return pen_error_set(err, PEN_E_NOMEM, 0, "planner",
                             "no memory for the plan");
    PEN_TRY(explain(p, w, from, hop->to, conversion, node, &depth, err));
    if (conversion) {
        PEN_TRY(describe_loss(p, w, from->caps, at, hop->to, node, err));
        // Frames that have the target format already go through untouched.
        node->forwards =
            state_format(at) == 0 &&
            (w->mask & PEN_FMT_BIT(w->format[state_format(hop->to)]));
    }
    node->output[0].mem = mem_of[state_mem(hop->to)];
    if (depth > STK_BRIDGE_DEPTH)
        depth = STK_BRIDGE_DEPTH;
    PEN_TRY(
        stk_planner_add_edge(p, number, pin, *made, 0, depth, STK_BLOCK, err));
    p->bridged = true;
    return stk_planner_caps(p, *made, err);
}

static enum pen_status emit(struct stk_planner *p, struct stk_place *w,
                            const struct origin *from, int at, uint32_t number,
                            uint32_t pin, struct pen_error *err)
{
    for (uint32_t i = 0; i < w->target_count; i++) {
        const struct target *t = &w->targets[i];
        if (t->state != at)
            continue;
        for (uint32_t n = t->first; n != UINT32_MAX; n = w->next_edge[n])
            p->pending[p->out[n]] =
                (struct stk_pending){ p->poison[number] ? UINT32_MAX : number,
                                      pin };
    }
    for (unsigned h = 0; h < w->hops[at]; h++) {
        const struct hop *hop = &w->hop[at][h];
        if (w->parent[hop->to] != at)
            continue;
        if (hop->op == UPGRADE) {
            upgrade(p->plan, number, pin);
            PEN_TRY(emit(p, w, from, hop->to, number, pin, err));
            continue;
        }
        uint32_t made;
        PEN_TRY(insert(p, w, from, at, hop, number, pin, &made, err));
        PEN_TRY(emit(p, w, from, hop->to, made, 0, err));
    }
    return PEN_OK;
}

// --- complaints -------------------------------------------------------------

static const char *way_round(const struct stk_planner *p, uint32_t wanted,
                             enum pen_mem_type given)
{
    const uint32_t host = PEN_MEM_BITS_HOST;
    const uint32_t dmabuf = PEN_MEM_BIT(PEN_MEM_DMABUF);
    if (given == PEN_MEM_DMABUF || !(wanted & ~dmabuf))
        return "DMABUF frames only travel between DMABUF pins; let the source "
               "give HOST or HOST_PINNED (`memType`), and the copies are "
               "planned";
    if (!p->plan->desc || p->plan->desc->auto_bridge)
        return "";
    if ((PEN_MEM_BIT(given) & host) && !(wanted & host))
        return "put { \"type\": \"CudaMemCopy\", \"props\": { \"kind\": "
               "\"HostToDevice\" } } between them, or set \"auto_bridge\": "
               "true";
    if (given == PEN_MEM_CUDA_DEVICE && !(wanted & PEN_MEM_BIT(given)))
        return "put { \"type\": \"CudaMemCopy\", \"props\": { \"kind\": "
               "\"DeviceToHost\" } } between them, or set \"auto_bridge\": "
               "true";
    return given == PEN_MEM_CUDA_DEVICE
               ? "put a CCNPPI with the right `imageType` between them, or "
                 "set \"auto_bridge\": true"
               : "put a ColorConversion with the right `imageType` between "
                 "them, or set \"auto_bridge\": true";
}

static void complain(struct stk_planner *p, const struct stk_place *w,
                     const struct target *t, const struct origin *from)
{
    const bool off = p->plan->desc && !p->plan->desc->auto_bridge;
    char wants[200], gives[200];
    for (uint32_t n = t->first; n != UINT32_MAX; n = w->next_edge[n]) {
        const struct stk_edge *e = &p->graph->edges[p->out[n]];
        const struct stk_node *to = &p->graph->nodes[e->to];
        const struct pen_pin_set *set = &to->in[e->to_pin];
        const bool mem = !(t->mems & PEN_MEM_BIT(from->mem));
        if (mem) {
            wanted_text(set->mem, wants, sizeof(wants));
            stk_mems_text(PEN_MEM_BIT(from->mem), gives, sizeof(gives));
        } else {
            stk_mask_text(set->formats, wants, sizeof(wants));
            stk_mask_text(w->mask, gives, sizeof(gives));
        }
        const char *pointer = e->desc ? e->desc->pointer : "";
        if (off)
            stk_planner_error(p, "E312", pointer,
                              way_round(p, set->mem, from->mem),
                              "pin `%s` of `%s` takes %s, `%s.%s` gives %s, "
                              "and auto_bridge is false",
                              to->cls->inputs[e->to_pin].name, to->desc->id,
                              wants, from->id, from->pin, gives);
        else
            stk_planner_error(p, "E311", pointer,
                              way_round(p, set->mem, from->mem),
                              "pin `%s` of `%s` takes %s, `%s.%s` gives %s, "
                              "and no bridge leads from there",
                              to->cls->inputs[e->to_pin].name, to->desc->id,
                              wants, from->id, from->pin, gives);
    }
}

// --- one pin ----------------------------------------------------------------

static enum pen_status collect(struct stk_planner *p, struct stk_place *w,
                               const struct origin *from, uint32_t begin,
                               uint32_t end, struct pen_error *err)
{
    w->target_count = 0;
    for (uint32_t n = begin; n < end; n++) {
        const struct stk_edge *e = &p->graph->edges[p->out[n]];
        const struct stk_node *to = &p->graph->nodes[e->to];
        const struct pen_pin_set *set = &to->in[e->to_pin];
        const enum pen_kind kind = from->caps->kind;
        p->pending[p->out[n]].from = UINT32_MAX;
        if (kind != PEN_KIND_NONE && kind != PEN_KIND_FRAME && set->kinds &&
            !(set->kinds &
              (PEN_KIND_BIT(kind) | PEN_KIND_BIT(PEN_KIND_FRAME)))) {
            stk_planner_error(
                p, "E304", e->desc ? e->desc->pointer : "",
                kind == PEN_KIND_ENCODED_IMAGE
                    ? "put a decoder (ImageDecoderCV) between them"
                : set->kinds & PEN_KIND_BIT(PEN_KIND_ENCODED_IMAGE)
                    ? "put an encoder (ImageEncoderCV) between them"
                    : "",
                "`%s.%s` gives %s frames, pin `%s` of `%s` does not take them",
                from->id, from->pin, pen_kind_name(kind),
                to->cls->inputs[e->to_pin].name, to->desc->id);
            continue;
        }
        uint32_t formats = 1;
        if (w->mask && set->formats && (w->mask & ~set->formats)) {
            formats = 0;
            for (unsigned i = 1; i < w->format_count; i++)
                if (set->formats & PEN_FMT_BIT(w->format[i]))
                    formats |= 1u << i;
        }
        PEN_TRY(add_target(w, accepted_mems(to, e->to_pin), formats, n, err));
    }
    return PEN_OK;
}

// Where the pin's frames may be born.
static uint32_t root_mems(const struct pen_plan *plan,
                          const struct stk_plan_node *node, uint32_t pin)
{
    uint32_t mems = node->out[pin].mem;
    if (node->cls->flags & PEN_CLASS_FORWARDS) {
        uint32_t first = 0;
        for (uint32_t i = 0; i < node->inputs; i++) {
            if (node->in_edge[i] < 0)
                continue;
            const struct stk_plan_edge *e = &plan->edges[node->in_edge[i]];
            const uint32_t bit =
                PEN_MEM_BIT(plan->nodes[e->from].output[e->from_pin].mem);
            // Of pinned and pageable inputs only the weaker can be promised.
            if (first == 0 || (bit == PEN_MEM_BIT(PEN_MEM_HOST) &&
                               (first & PEN_MEM_BITS_HOST)))
                first = bit;
        }
        if (first)
            return first;
    }
    if (mems == 0)
        mems = PEN_MEM_BIT(PEN_MEM_HOST);
    // What a device module gives on the host is written by the device.
    if ((node->cls->flags & PEN_CLASS_CUDA) &&
        (mems & PEN_MEM_BIT(PEN_MEM_HOST_PINNED)))
        mems &= ~PEN_MEM_BIT(PEN_MEM_HOST);
    return mems;
}

// Nothing to insert: frames born in one of `mems` satisfy everybody.
static bool all_at_root(struct stk_place *w, uint32_t mems)
{
    for (unsigned m = 0; m < MEMS; m++) {
        if (!(mems & PEN_MEM_BIT(mem_of[m])))
            continue;
        bool all = true;
        for (uint32_t i = 0; i < w->target_count && all; i++)
            all = (w->targets[i].mems & PEN_MEM_BIT(mem_of[m])) &&
                  (w->targets[i].formats & 1);
        if (!all)
            continue;
        w->root = state_of(m, 0);
        for (uint32_t i = 0; i < w->target_count; i++)
            w->targets[i].state = w->root;
        clear_tree(w);
        memset(w->hops, 0, sizeof(w->hops));
        return true;
    }
    return false;
}

// While the size is unknown the tree was made for a nominal one. The cost of
// every tree grows linearly with the pixels (up to the padding of rows), so
// the cheapest one at both ends of the scale is the cheapest in between.
static bool holds_for_any_size(struct stk_planner *p, struct stk_place *w,
                               const struct pen_caps *caps, unsigned count)
{
    static const int32_t side[] = { 1, 16384 };
    struct pen_error ignored;
    for (unsigned i = 0; i < 2; i++) {
        struct pen_caps sized = *caps;
        if (sized.width == 0 || sized.height == 0)
            sized.width = sized.height = side[i];
        if (sized.bytes == 0)
            sized.bytes = i ? (size_t)1 << 30 : 1;
        if (count_bytes(w, &sized, &ignored) != PEN_OK)
            return false;
        price_hops(p, w);
        const int64_t mine = tree_cost(w);
        search(w, count);
        // Ticks only decide between equals; time is what counts.
        if (w->best[(1u << count) - 1][w->root] / TICKS < mine / TICKS)
            return false;
    }
    return true;
}

// How good the tree from one root is, in order of importance.
struct verdict {
    uint32_t unserved;
    uint64_t loss;
    int64_t cost;
};

static bool better(const struct verdict *a, const struct verdict *b)
{
    if (a->unserved != b->unserved)
        return a->unserved < b->unserved;
    if (a->loss != b->loss)
        return a->loss < b->loss;
    return a->cost < b->cost;
}

// The best tree for frames born in state `root`. *count is the number of
// targets of the exact search, 0 if there are too many.
static struct verdict grow(struct stk_place *w, int root, unsigned *count)
{
    struct verdict verdict = { 0 };
    unsigned served = 0;
    w->root = root;
    find_tight(w);
    for (uint32_t i = 0; i < w->target_count; i++) {
        const uint64_t least = least_distance(w, &w->targets[i]);
        w->targets[i].state = -1;
        if (least == UINT64_MAX) {
            verdict.unserved += w->targets[i].edges;
            continue;
        }
        verdict.loss += least;
        if (served < STK_EXACT_TARGETS)
            w->active[served] = i;
        served++;
    }
    *count = served <= STK_EXACT_TARGETS ? served : 0;
    if (served == 0)
        clear_tree(w);
    else if (*count)
        tree_exact(w, *count);
    else
        tree_greedy(w);
    verdict.cost = tree_cost(w);
    return verdict;
}

static enum pen_status plant(struct stk_planner *p, struct stk_place *w,
                             const struct origin *from, uint32_t mems,
                             struct pen_error *err)
{
    const struct pen_caps *caps = from->caps;
    bool known = true;
    struct pen_caps sized = *caps;
    if (w->mask && (sized.width <= 0 || sized.height <= 0)) {
        sized.width = STK_NOMINAL_WIDTH;
        sized.height = STK_NOMINAL_HEIGHT;
        known = false;
    } else if (!w->mask && sized.bytes == 0) {
        sized.bytes = STK_NOMINAL_BYTES;
        known = false;
    }
    PEN_TRY(make_templates(p, w, err));
    PEN_TRY(count_bytes(w, &sized, err));
    make_hops(p, w, caps, !p->plan->desc || p->plan->desc->auto_bridge);
    price_hops(p, w);

    // A pin that may give several memory types gives one: the best of them,
    // and of equals the first (host before pinned before device).
    struct verdict best = { .unserved = UINT32_MAX, .loss = UINT64_MAX };
    unsigned count;
    int root = -1;
    for (unsigned m = 0; m < MEMS; m++) {
        if (!(mems & PEN_MEM_BIT(mem_of[m])))
            continue;
        struct verdict v = grow(w, state_of(m, 0), &count);
        v.cost += m * TICK_ROOT;
        if (root < 0 || better(&v, &best)) {
            best = v;
            root = state_of(m, 0);
        }
    }
    if (w->root != root)
        grow(w, root, &count);
    for (uint32_t i = 0; i < w->target_count; i++)
        if (w->targets[i].state < 0)
            complain(p, w, &w->targets[i], from);
    if (count == 0 && w->in_tree[w->root])
        p->exact = false;
    else if (count && !known && p->exact)
        p->exact = holds_for_any_size(p, w, caps, count);
    return PEN_OK;
}

// A consumer that could have been given one of several formats hands its
// choice on to what follows.
static void note_choices(struct stk_planner *p, const struct stk_place *w)
{
    for (uint32_t i = 0; i < w->target_count; i++) {
        const struct target *t = &w->targets[i];
        if (t->state < 0 || state_format(t->state) == 0)
            continue;
        int options = 0;
        for (unsigned f = 1; f < w->format_count; f++) {
            bool here = false;
            for (unsigned m = 0; m < MEMS; m++)
                here = here ||
                       (satisfies(w, t, state_of(m, f)) &&
                        w->distance[state_of(m, f)] == w->distance[t->state]);
            options += here;
        }
        if (options < 2)
            continue;
        for (uint32_t n = t->first; n != UINT32_MAX; n = w->next_edge[n]) {
            const uint32_t to = p->graph->edges[p->out[n]].to;
            const struct stk_node *node = &p->graph->nodes[to];
            for (uint32_t e = p->first[to]; e < p->first[to + 1]; e++)
                if (node->out[p->graph->edges[p->out[e]].from_pin].formats ||
                    (node->cls->flags & PEN_CLASS_FORWARDS))
                    p->choice = true;
        }
    }
}

enum pen_status stk_plan_place(struct stk_planner *p, uint32_t number,
                               uint32_t pin, uint32_t begin, uint32_t end,
                               struct pen_error *err)
{
    struct stk_place *w = p->place;
    if (!w) {
        w = p->place = calloc(1, sizeof(*w));
        if (w)
            w->next_edge =
                calloc((size_t)p->graph->edge_count + 1, sizeof(uint32_t));
        if (!w || !w->next_edge)
            return pen_error_set(err, PEN_E_NOMEM, 0, "planner",
                                 "no memory for the plan");
        find_classes(p);
    }
    // insert() may move plan->nodes, so the caps are copied.
    const struct stk_plan_node *node = &p->plan->nodes[number];
    const struct pen_caps caps = node->output[pin].caps;
    struct origin from = {
        .id = node->id,
        .pin = node->cls->outputs[pin].name,
        .caps = &caps,
    };
    const uint32_t mems = root_mems(p->plan, node, pin);
    w->mask = stk_caps_mask(&caps);
    list_formats(p, w);
    for (unsigned m = MEMS; m-- > 0;)
        if (mems & PEN_MEM_BIT(mem_of[m]))
            from.mem = mem_of[m];
    PEN_TRY(collect(p, w, &from, begin, end, err));
    if (!all_at_root(w, mems)) {
        PEN_TRY(plant(p, w, &from, mems, err));
        note_choices(p, w);
    }
    from.mem = mem_of[state_mem(w->root)];
    p->plan->nodes[number].output[pin].mem = from.mem;
    return emit(p, w, &from, w->root, number, pin, err);
}

void stk_plan_place_finish(struct stk_planner *p)
{
    if (!p->place)
        return;
    free(p->place->targets);
    free(p->place->next_edge);
    free(p->place);
    p->place = NULL;
}
