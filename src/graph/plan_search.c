// States, the steps between them, and the cheapest tree of steps that serves
// all targets (plan_place.h tells the idea).

#include "plan_place.h"

#include <string.h>

bool stk_place_yuv_full(const struct pen_caps *caps, uint32_t mask)
{
    return caps->range == PEN_RANGE_FULL && !(mask & ~PEN_FMT_BITS_YUV);
}

// --- states and steps -------------------------------------------------------

// Of equally good targets the first is taken.
static const enum pen_format preference[] = {
    PEN_FMT_RGB,      PEN_FMT_RGBA,     PEN_FMT_BGR,      PEN_FMT_BGRA,
    PEN_FMT_MONO,     PEN_FMT_NV12,     PEN_FMT_YUV420,   PEN_FMT_YUV444,
    PEN_FMT_UYVY,     PEN_FMT_YUYV,     PEN_FMT_YUV411_I, PEN_FMT_BAYERBG8,
    PEN_FMT_BAYERGB8, PEN_FMT_BAYERGR8, PEN_FMT_BAYERRG8, PEN_FMT_BAYERBG10,
};

void stk_place_formats(const struct stk_planner *p, struct stk_place *w)
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

enum pen_status stk_place_bytes(struct stk_place *w,
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
                        int from, const struct stk_hop *hop)
{
    const struct pen_profile *f = &p->plan->profile;
    const uint64_t in = (uint64_t)w->bytes[stk_state_format(from)];
    const uint64_t out = (uint64_t)w->bytes[stk_state_format(hop->to)];
    int64_t ns = 0, ticks = TICK_BRIDGE, cost;
    switch ((enum stk_op)hop->op) {
    case OP_UPGRADE:
        return TICK_UPGRADE;
    case OP_H2D:
        ns = stk_cost_sum(stk_cost_move(in, f->h2d_rate), f->copy_ns);
        break;
    case OP_D2H:
        ns = stk_cost_sum(stk_cost_move(in, f->d2h_rate), f->copy_ns);
        break;
    case OP_TO_PINNED:
    case OP_TO_DMABUF:
    case OP_CONVERT_HOST:
        ns = stk_cost_move(in + out, f->host_rate);
        break;
    case OP_CONVERT_CUDA:
        ns =
            stk_cost_sum(stk_cost_move(in + out, f->device_rate), f->launch_ns);
        break;
    }
    if (hop->op >= OP_CONVERT_HOST &&
        !(w->mask & PEN_FMT_BIT(w->format[stk_state_format(hop->to)])))
        ticks += TICK_FOREIGN;
    // Exported, or a DMABUF: more than plain memory.
    if (stk_state_home(hop->to) >= STK_HOME_DMA_HOST)
        ticks += TICK_UPGRADE;
    if (__builtin_mul_overflow(ns, PLACE_TICKS, &cost) ||
        cost > PLACE_INFINITE / PLACE_STATES)
        return PLACE_INFINITE / PLACE_STATES;
    return cost + ticks;
}

static void add_hop(struct stk_place *w, int from, int to, enum stk_op op,
                    uint64_t loss)
{
    w->hop[from][w->hops[from]++] = (struct stk_hop){
        .to = (uint8_t)to,
        .op = (uint8_t)op,
        .loss = loss,
    };
}

// Copies and upgrades of frames of format number `i`.
static void moves(const struct stk_planner *p, struct stk_place *w, unsigned i,
                  bool bridges)
{
    const unsigned can = p->plan->profile.dmabuf;
    const int host = stk_state_of(STK_HOME_HOST, i);
    const int pinned = stk_state_of(STK_HOME_PINNED, i);
    const int cuda = stk_state_of(STK_HOME_CUDA, i);
    const int dma_host = stk_state_of(STK_HOME_DMA_HOST, i);
    const int dma_cuda = stk_state_of(STK_HOME_DMA_CUDA, i);
    const bool dmabuf = w->states > PLACE_PLAIN;
    const bool pinnable = w->pinnable & 1u << i;
    if (pinnable)
        add_hop(w, host, pinned, OP_UPGRADE, 0);
    if (!bridges)
        return;
    if (p->copy[0].usable)
        add_hop(w, pinned, cuda, OP_H2D, 1);
    if (p->copy[1].usable)
        add_hop(w, cuda, pinned, OP_D2H, 1);
    if (p->host_copy[0].usable && !pinnable)
        add_hop(w, host, pinned, OP_TO_PINNED, 1);
    if (!dmabuf)
        return;
    if (p->host_copy[0].usable)
        add_hop(w, dma_host, pinned, OP_TO_PINNED, 1);
    if (p->copy[1].usable)
        add_hop(w, dma_cuda, pinned, OP_D2H, 1);
    if (!w->dmabuf)
        return;
    // Frames of the host stay on its side, where a DMABUF can be mapped, if
    // there is memory for that.
    if (can & PEN_DMABUF_HOST) {
        if (p->host_copy[1].usable) {
            add_hop(w, host, dma_host, OP_TO_DMABUF, 1);
            add_hop(w, pinned, dma_host, OP_TO_DMABUF, 1);
        }
    } else if (p->copy[0].usable && (can & PEN_DMABUF_EXPORT)) {
        add_hop(w, pinned, dma_cuda, OP_H2D, 1);
    }
}

// Conversions from format number `i` to number `t`. One that lets frames of its
// target through gives what it takes, so a pool of another kind would promise
// what those frames do not keep.
static void conversions(const struct stk_planner *p, struct stk_place *w,
                        unsigned i, unsigned t, uint32_t from, uint64_t loss)
{
    const unsigned can = p->plan->profile.dmabuf;
    const enum pen_format to = w->format[t];
    const bool through = i == 0 && (from & PEN_FMT_BIT(to));
    const bool dmabuf = w->states > PLACE_PLAIN;
    const bool make_host = w->dmabuf && (can & PEN_DMABUF_HOST);
    const bool make_cuda = w->dmabuf && (can & PEN_DMABUF_EXPORT);
    const int host = stk_state_of(STK_HOME_HOST, t);
    const int cuda = stk_state_of(STK_HOME_CUDA, t);
    const int dma_host = stk_state_of(STK_HOME_DMA_HOST, t);
    const int dma_cuda = stk_state_of(STK_HOME_DMA_CUDA, t);
    if (stk_template_converts(&p->convert[0][to], from, to)) {
        for (unsigned h = STK_HOME_HOST; h <= STK_HOME_PINNED; h++) {
            const int at = stk_state_of(h, i);
            add_hop(w, at, host, OP_CONVERT_HOST, loss);
            if (make_host && !through)
                add_hop(w, at, dma_host, OP_CONVERT_HOST, loss);
        }
        const int at = stk_state_of(STK_HOME_DMA_HOST, i);
        if (dmabuf && !through)
            add_hop(w, at, host, OP_CONVERT_HOST, loss);
        if (dmabuf && (through || make_host))
            add_hop(w, at, dma_host, OP_CONVERT_HOST, loss);
    }
    if (stk_template_converts(&p->convert[1][to], from, to)) {
        const int at = stk_state_of(STK_HOME_CUDA, i);
        const int exported = stk_state_of(STK_HOME_DMA_CUDA, i);
        const int imported = stk_state_of(STK_HOME_DMA_HOST, i);
        add_hop(w, at, cuda, OP_CONVERT_CUDA, loss);
        if (make_cuda && !through)
            add_hop(w, at, dma_cuda, OP_CONVERT_CUDA, loss);
        if (dmabuf)
            add_hop(w, exported, cuda, OP_CONVERT_CUDA, loss);
        if (make_cuda)
            add_hop(w, exported, dma_cuda, OP_CONVERT_CUDA, loss);
        if (dmabuf && (can & PEN_DMABUF_IMPORT) && !through) {
            add_hop(w, imported, cuda, OP_CONVERT_CUDA, loss);
            if (make_cuda)
                add_hop(w, imported, dma_cuda, OP_CONVERT_CUDA, loss);
        }
    }
}

static uint64_t worst_loss(uint32_t from, enum pen_format to, bool full)
{
    uint64_t worst = 0;
    for (unsigned f = 1; f < PEN_FMT_COUNT; f++) {
        if (!(from & PEN_FMT_BIT(f)))
            continue;
        const uint64_t loss = stk_format_loss((enum pen_format)f, to, full);
        if (loss > worst)
            worst = loss;
    }
    return worst;
}

void stk_place_hops(struct stk_planner *p, struct stk_place *w,
                    const struct pen_caps *caps, bool bridges)
{
    const bool full = stk_place_yuv_full(caps, w->mask);
    if (w->made.valid && w->made.full == full && w->made.bridges == bridges &&
        w->made.mask == w->mask && w->made.dmabuf == w->dmabuf &&
        w->made.states == w->states && w->made.pinnable == w->pinnable)
        return;
    memset(&w->made, 0, sizeof(w->made));
    w->made.valid = true;
    w->made.full = full;
    w->made.bridges = bridges;
    w->made.mask = w->mask;
    w->made.dmabuf = w->dmabuf;
    w->made.states = w->states;
    w->made.pinnable = w->pinnable;

    uint32_t poorest = UINT32_MAX;
    for (unsigned f = 1; f < PEN_FMT_COUNT; f++)
        if ((w->mask & PEN_FMT_BIT(f)) &&
            stk_format_richness((enum pen_format)f) < poorest)
            poorest = stk_format_richness((enum pen_format)f);

    memset(w->hops, 0, sizeof(w->hops));
    for (unsigned i = 0; i < w->format_count; i++) {
        moves(p, w, i, bridges);
        if (!bridges)
            continue;
        const uint32_t from = i ? PEN_FMT_BIT(w->format[i]) : w->mask;
        for (unsigned t = 1; t < w->format_count; t++) {
            const enum pen_format to = w->format[t];
            // Not through a format poorer than both ends.
            if (t == i ||
                (i && stk_format_richness(w->format[i]) < poorest &&
                 stk_format_richness(to) > stk_format_richness(w->format[i])))
                continue;
            conversions(p, w, i, t, from, worst_loss(from, to, full));
        }
    }
}

void stk_place_price(const struct stk_planner *p, struct stk_place *w)
{
    const size_t bytes = w->format_count * sizeof(*w->bytes);
    if (w->made.priced && !memcmp(w->made.bytes, w->bytes, bytes))
        return;
    w->made.priced = true;
    memcpy(w->made.bytes, w->bytes, bytes);
    for (int v = 0; v < w->states; v++)
        for (unsigned h = 0; h < w->hops[v]; h++)
            w->hop[v][h].cost = hop_cost(p, w, v, &w->hop[v][h]);
}

void stk_place_tight(struct stk_place *w)
{
    for (int v = 0; v < w->states; v++)
        w->distance[v] = v == w->root ? 0 : UINT64_MAX;
    for (bool again = true; again;) {
        again = false;
        for (int v = 0; v < w->states; v++) {
            if (w->distance[v] == UINT64_MAX)
                continue;
            for (unsigned h = 0; h < w->hops[v]; h++) {
                const struct stk_hop *hop = &w->hop[v][h];
                const uint64_t d = w->distance[v] + hop->loss;
                if (d < w->distance[hop->to]) {
                    w->distance[hop->to] = d;
                    again = true;
                }
            }
        }
    }
    for (int v = 0; v < w->states; v++)
        for (unsigned h = 0; h < w->hops[v]; h++) {
            struct stk_hop *hop = &w->hop[v][h];
            hop->tight = w->distance[v] != UINT64_MAX &&
                         w->distance[v] + hop->loss == w->distance[hop->to];
        }
}

bool stk_place_satisfies(const struct stk_place *w, const struct stk_target *t,
                         int v)
{
    return w->distance[v] != UINT64_MAX &&
           (t->homes & STK_HOME_BIT(stk_state_home(v))) &&
           (t->formats & 1u << stk_state_format(v));
}

uint64_t stk_place_least(const struct stk_place *w, const struct stk_target *t)
{
    uint64_t least = UINT64_MAX;
    for (int v = 0; v < w->states; v++)
        if (stk_place_satisfies(w, t, v) && w->distance[v] < least)
            least = w->distance[v];
    return least;
}

// --- the tree ---------------------------------------------------------------

void stk_place_search(struct stk_place *w, unsigned count)
{
    const unsigned all = (1u << count) - 1;
    for (int v = 0; v < w->states; v++)
        w->best[0][v] = 0;
    for (unsigned set = 1; set <= all; set++) {
        int64_t *best = w->best[set];
        struct stk_pick *pick = w->pick[set];
        for (int v = 0; v < w->states; v++) {
            best[v] = PLACE_INFINITE;
            pick[v] = (struct stk_pick){ PICK_NONE, 0 };
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
                    pick[v] = (struct stk_pick){ PICK_SPLIT, (uint8_t)sub };
                }
            }
        }
        for (bool again = true; again;) {
            again = false;
            for (int v = 0; v < w->states; v++)
                for (unsigned h = 0; h < w->hops[v]; h++) {
                    const struct stk_hop *hop = &w->hop[v][h];
                    if (!hop->tight)
                        continue;
                    const int64_t c = hop->cost + best[hop->to];
                    if (c < best[v]) {
                        best[v] = c;
                        pick[v] = (struct stk_pick){ PICK_HOP, hop->to };
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
        const struct stk_pick pick = w->pick[set][v];
        switch ((enum stk_pick_kind)pick.kind) {
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
        const struct stk_target *t = &w->targets[w->active[i]];
        const uint64_t least = stk_place_least(w, t);
        for (int v = 0; v < w->states; v++)
            if (stk_place_satisfies(w, t, v) && w->distance[v] == least)
                w->here[v] |= (uint8_t)(1u << i);
    }
}

int64_t stk_place_tree_cost(const struct stk_place *w)
{
    int64_t sum = 0;
    for (int v = 0; v < w->states; v++) {
        if (w->parent[v] < 0)
            continue;
        const int from = w->parent[v];
        for (unsigned h = 0; h < w->hops[from]; h++)
            if (w->hop[from][h].to == v)
                sum += w->hop[from][h].cost;
    }
    return sum;
}

void stk_place_clear(struct stk_place *w)
{
    memset(w->in_tree, 0, sizeof(w->in_tree));
    for (int v = 0; v < PLACE_STATES; v++)
        w->parent[v] = -1;
}

void stk_place_exact(struct stk_place *w, unsigned count)
{
    mark_here(w, count);
    stk_place_search(w, count);
    stk_place_clear(w);
    keep(w, (1u << count) - 1, w->root);
}

// More targets than the exact search takes: join one after the other, each at
// the state of the tree from which it is cheapest.
void stk_place_greedy(struct stk_place *w)
{
    stk_place_clear(w);
    w->in_tree[w->root] = true;
    for (uint32_t t = 0; t < w->target_count; t++) {
        if (stk_place_least(w, &w->targets[t]) == UINT64_MAX)
            continue;
        w->active[0] = t;
        mark_here(w, 1);
        stk_place_search(w, 1);
        int from = w->root;
        for (int v = 0; v < w->states; v++)
            if (w->in_tree[v] && w->best[1][v] < w->best[1][from])
                from = v;
        keep(w, 1, from);
    }
}
