// Boards: the states of the frames of one pin, the steps between them, and
// what is reached from where (plan_place.h tells the idea).

#include "plan_place.h"

#include <stdlib.h>
#include <string.h>

// --- caps by number ---------------------------------------------------------

static uint32_t mix(uint32_t h, uint64_t more)
{
    more = (more ^ h) * UINT64_C(0x9e3779b97f4a7c15);
    return (uint32_t)(more ^ more >> 29 ^ more >> 47);
}

static uint32_t hash_caps(const struct pen_caps *c)
{
    uint32_t h = mix((uint32_t)c->kind, (uint64_t)c->codec);
    h = mix(h, (uint64_t)c->formats << 32 | (uint32_t)c->format);
    h = mix(h, (uint64_t)(uint32_t)c->width << 32 | (uint32_t)c->height);
    h = mix(h, (uint64_t)c->matrix << 32 | (uint32_t)c->range);
    h = mix(h, (uint64_t)(uint32_t)c->fps.num << 32 | (uint32_t)c->fps.den);
    return mix(h, c->bytes);
}

bool stk_caps_same(const struct pen_caps *a, const struct pen_caps *b)
{
    return pen_caps_equal(a, b) && a->formats == b->formats &&
           a->fps.num == b->fps.num && a->fps.den == b->fps.den &&
           a->bytes == b->bytes;
}

static bool grow_caps(struct stk_caps_table *t)
{
    const uint32_t room = t->room ? 2 * t->room : 64;
    void *caps = realloc(t->caps, room * sizeof(*t->caps));
    if (caps)
        t->caps = caps;
    void *bytes = realloc(t->bytes, room * sizeof(*t->bytes));
    if (bytes)
        t->bytes = bytes;
    uint32_t *slots = calloc(2 * (size_t)room, sizeof(*slots));
    if (!caps || !bytes || !slots) {
        free(slots);
        return false;
    }
    free(t->slots);
    t->slots = slots;
    t->slot_count = 2 * room;
    t->room = room;
    for (uint32_t i = 0; i < t->count; i++) {
        uint32_t at = hash_caps(&t->caps[i]) & (t->slot_count - 1);
        while (slots[at])
            at = (at + 1) & (t->slot_count - 1);
        slots[at] = i + 1;
    }
    return true;
}

// Bytes of a frame; an unknown size is the table's.
static enum pen_status nominal_bytes(struct stk_caps_table *t,
                                     const struct pen_caps *caps, size_t *out,
                                     struct pen_error *err)
{
    struct pen_caps sized = *caps;
    if (stk_caps_mask(caps)) {
        if (sized.width <= 0 || sized.height <= 0) {
            sized.width = t->width;
            sized.height = t->height;
            t->sized = true;
        }
    } else if (sized.bytes == 0) {
        sized.bytes = t->nominal;
        t->sized = true;
    }
    return stk_caps_bytes(&sized, out, err);
}

enum pen_status stk_caps_intern(struct stk_caps_table *t,
                                const struct pen_caps *caps, uint32_t *number,
                                struct pen_error *err)
{
    if (t->count == t->room && !grow_caps(t))
        return stk_plan_no_memory(err);
    uint32_t at = hash_caps(caps) & (t->slot_count - 1);
    for (; t->slots[at]; at = (at + 1) & (t->slot_count - 1))
        if (stk_caps_same(&t->caps[t->slots[at] - 1], caps)) {
            *number = t->slots[at] - 1;
            return PEN_OK;
        }
    PEN_TRY(nominal_bytes(t, caps, &t->bytes[t->count], err));
    t->caps[t->count] = *caps;
    *number = t->count++;
    t->slots[at] = t->count;
    return PEN_OK;
}

void stk_caps_finish(struct stk_caps_table *t)
{
    free(t->caps);
    free(t->bytes);
    free(t->slots);
    *t = (struct stk_caps_table){ 0 };
}

// --- states and steps -------------------------------------------------------

bool stk_place_yuv_full(const struct pen_caps *caps, uint32_t mask)
{
    return caps->range == PEN_RANGE_FULL && !(mask & ~PEN_FMT_BITS_YUV);
}

// Of equally good targets the first is taken.
static const enum pen_format preference[] = {
    PEN_FMT_RGB,      PEN_FMT_RGBA,     PEN_FMT_BGR,      PEN_FMT_BGRA,
    PEN_FMT_MONO,     PEN_FMT_NV12,     PEN_FMT_YUV420,   PEN_FMT_YUV444,
    PEN_FMT_UYVY,     PEN_FMT_YUYV,     PEN_FMT_YUV411_I, PEN_FMT_BAYERBG8,
    PEN_FMT_BAYERGB8, PEN_FMT_BAYERGR8, PEN_FMT_BAYERRG8, PEN_FMT_BAYERBG10,
};

unsigned stk_board_formats(const struct stk_planner *p, uint32_t mask,
                           enum pen_format format[PLACE_FORMATS])
{
    uint32_t reachable = 0;
    unsigned count = 1;
    format[0] = PEN_FMT_NONE;
    if (mask == 0)
        return count;
    for (unsigned side = 0; side < 2; side++) {
        const struct pen_module_class *cls = p->convert_cls[side];
        if (cls && cls->outputs)
            reachable |= cls->outputs[0].formats;
    }
    for (unsigned i = 0; i < sizeof(preference) / sizeof(*preference); i++)
        if ((reachable & PEN_FMT_BIT(preference[i])) &&
            mask != PEN_FMT_BIT(preference[i]))
            format[count++] = preference[i];
    return count;
}

static int64_t hop_cost(const struct stk_planner *p, const struct stk_board *b,
                        int from, const struct stk_hop *hop)
{
    const struct pen_profile *f = &p->plan->profile;
    const unsigned format = stk_state_format(hop->to);
    const uint64_t in = (uint64_t)b->bytes[stk_state_format(from)];
    const uint64_t out = (uint64_t)b->bytes[format];
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
        ns = stk_cost_move(in + out, f->host_rate);
        break;
    case OP_CONVERT_HOST:
    case OP_CONVERT_CUDA: {
        const struct stk_template *t =
            stk_template_of(p, (enum stk_op)hop->op, b->format[format]);
        struct pen_caps caps[2][PEN_MAX_PINS] = { 0 };
        caps[0][0] = p->caps.caps[b->caps[stk_state_format(from)]];
        caps[1][0] = p->caps.caps[b->caps[format]];
        ns = stk_planner_work(p, t->cls, t->params, caps[0], caps[1], in + out);
        break;
    }
    }
    if (1u << hop->op & STK_OPS_CUDA)
        ns = stk_cost_sum(ns, p->load_share);
    if (hop->op >= OP_CONVERT_HOST &&
        !(b->mask & PEN_FMT_BIT(b->format[format])))
        ticks += TICK_FOREIGN;
    // Exported, or a DMABUF: more than plain memory.
    if (stk_state_home(hop->to) >= STK_HOME_DMA_HOST)
        ticks += TICK_UPGRADE;
    if (__builtin_mul_overflow(ns, PLACE_TICKS, &cost) ||
        cost > PLACE_INFINITE / PLACE_STATES)
        return PLACE_INFINITE / PLACE_STATES;
    return cost + ticks;
}

// A board under construction: steps by state, as many as can be.
struct draft {
    struct stk_planner *p;
    struct stk_board *b;
    struct stk_hop hop[PLACE_STATES][PLACE_HOPS];
    unsigned hops[PLACE_STATES];
};

static void add_hop(struct draft *d, int from, int to, enum stk_op op,
                    uint64_t loss)
{
    if (d->b->key.bans & 1u << op)
        return;
    struct stk_hop *hop = &d->hop[from][d->hops[from]++];
    *hop = (struct stk_hop){
        .to = (uint8_t)to,
        .op = (uint8_t)op,
        .loss = loss,
    };
    hop->cost = hop_cost(d->p, d->b, from, hop);
}

// Copies and upgrades of frames of format number `i`.
static void moves(struct draft *d, unsigned i, bool bridges)
{
    const struct stk_planner *p = d->p;
    const struct stk_board *b = d->b;
    const unsigned can = p->plan->profile.dmabuf;
    const int host = stk_state_of(STK_HOME_HOST, i);
    const int pinned = stk_state_of(STK_HOME_PINNED, i);
    const int cuda = stk_state_of(STK_HOME_CUDA, i);
    const int dma_host = stk_state_of(STK_HOME_DMA_HOST, i);
    const int dma_cuda = stk_state_of(STK_HOME_DMA_CUDA, i);
    const bool pinnable =
        (b->key.pinnable & 1u << i) && !(b->key.bans & 1u << OP_UPGRADE);
    if (pinnable)
        add_hop(d, host, pinned, OP_UPGRADE, 0);
    if (!bridges)
        return;
    if (p->copy[0].usable)
        add_hop(d, pinned, cuda, OP_H2D, 1);
    if (p->copy[1].usable)
        add_hop(d, cuda, pinned, OP_D2H, 1);
    if (p->host_copy[0].usable && !pinnable)
        add_hop(d, host, pinned, OP_TO_PINNED, 0);
    if (!b->key.wide)
        return;
    if (p->host_copy[0].usable)
        add_hop(d, dma_host, pinned, OP_TO_PINNED, 0);
    if (p->copy[1].usable)
        add_hop(d, dma_cuda, pinned, OP_D2H, 1);
    if (!b->key.dmabuf)
        return;
    // Frames of the host stay on its side, where a DMABUF can be mapped, if
    // there is memory for that.
    if (can & PEN_DMABUF_HOST) {
        if (p->host_copy[1].usable) {
            add_hop(d, host, dma_host, OP_TO_DMABUF, 0);
            add_hop(d, pinned, dma_host, OP_TO_DMABUF, 0);
        }
    } else if (p->copy[0].usable && (can & PEN_DMABUF_EXPORT)) {
        add_hop(d, pinned, dma_cuda, OP_H2D, 1);
    }
}

// Conversions from format number `i` to number `t`. One that lets frames of its
// target through gives what it takes, so a pool of another kind would promise
// what those frames do not keep.
static enum pen_status conversions(struct draft *d, unsigned i, unsigned t,
                                   uint32_t from, uint64_t loss,
                                   struct pen_error *err)
{
    const struct stk_board *b = d->b;
    const unsigned can = d->p->plan->profile.dmabuf;
    const enum pen_format to = b->format[t];
    const bool through = i == 0 && (from & PEN_FMT_BIT(to));
    const bool wide = b->key.wide;
    const bool make_host = b->key.dmabuf && (can & PEN_DMABUF_HOST);
    const bool make_cuda = b->key.dmabuf && (can & PEN_DMABUF_EXPORT);
    const int host = stk_state_of(STK_HOME_HOST, t);
    const int cuda = stk_state_of(STK_HOME_CUDA, t);
    const int dma_host = stk_state_of(STK_HOME_DMA_HOST, t);
    const int dma_cuda = stk_state_of(STK_HOME_DMA_CUDA, t);
    const struct stk_template *by[2];
    for (unsigned side = 0; side < 2; side++)
        PEN_TRY(stk_template_converter(d->p, side, to, &by[side], err));
    if (stk_template_converts(by[0], from, to)) {
        for (unsigned h = STK_HOME_HOST; h <= STK_HOME_PINNED; h++) {
            const int at = stk_state_of(h, i);
            add_hop(d, at, host, OP_CONVERT_HOST, loss);
            if (make_host && !through)
                add_hop(d, at, dma_host, OP_CONVERT_HOST, loss);
        }
        const int at = stk_state_of(STK_HOME_DMA_HOST, i);
        if (wide && !through)
            add_hop(d, at, host, OP_CONVERT_HOST, loss);
        if (wide && (through || make_host))
            add_hop(d, at, dma_host, OP_CONVERT_HOST, loss);
    }
    if (stk_template_converts(by[1], from, to)) {
        const int at = stk_state_of(STK_HOME_CUDA, i);
        const int exported = stk_state_of(STK_HOME_DMA_CUDA, i);
        const int imported = stk_state_of(STK_HOME_DMA_HOST, i);
        add_hop(d, at, cuda, OP_CONVERT_CUDA, loss);
        if (make_cuda && !through)
            add_hop(d, at, dma_cuda, OP_CONVERT_CUDA, loss);
        if (wide)
            add_hop(d, exported, cuda, OP_CONVERT_CUDA, loss);
        if (make_cuda)
            add_hop(d, exported, dma_cuda, OP_CONVERT_CUDA, loss);
        // What the device reads of the host's memory crosses, too.
        if (wide && (can & PEN_DMABUF_IMPORT) && !through) {
            add_hop(d, imported, cuda, OP_CONVERT_CUDA, loss + 1);
            if (make_cuda)
                add_hop(d, imported, dma_cuda, OP_CONVERT_CUDA, loss + 1);
        }
    }
    return PEN_OK;
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

// Caps of the frames that a conversion gives, by either converter: STK_NO_CAPS
// if there is none.
static enum pen_status converted(struct stk_planner *p, struct stk_board *b,
                                 unsigned t, struct pen_error *err)
{
    struct pen_caps in[PEN_MAX_PINS] = { p->caps.caps[b->key.caps] };
    struct pen_caps out[PEN_MAX_PINS] = { 0 };
    b->caps[t] = STK_NO_CAPS;
    for (unsigned side = 0; side < 2 && b->caps[t] == STK_NO_CAPS; side++) {
        const struct stk_template *by;
        struct pen_error ignored;
        uint32_t refused;
        PEN_TRY(stk_template_converter(p, side, b->format[t], &by, err));
        if (!by->usable)
            continue;
        p->mould.cls = by->cls;
        p->mould.params = by->params;
        p->mould.base = by->base;
        p->mould.inputs = p->mould.outputs = 1;
        p->mould.in = by->in;
        p->mould.out = by->out;
        enum pen_status st =
            stk_plan_negotiate(&p->mould, in, out, &refused, &ignored);
        if (st == PEN_OK)
            st = stk_caps_intern(&p->caps, &out[0], &b->caps[t], &ignored);
        if (st == PEN_E_NOMEM)
            return stk_plan_no_memory(err);
    }
    return PEN_OK;
}

static enum pen_status fill(struct draft *d, struct pen_error *err)
{
    struct stk_planner *p = d->p;
    struct stk_board *b = d->b;
    const struct pen_caps *caps = &p->caps.caps[b->key.caps];
    const bool full = stk_place_yuv_full(caps, b->mask);
    const bool bridges = !p->plan->desc || p->plan->desc->auto_bridge;
    uint32_t poorest = UINT32_MAX;
    for (unsigned f = 1; f < PEN_FMT_COUNT; f++)
        if ((b->mask & PEN_FMT_BIT(f)) &&
            stk_format_richness((enum pen_format)f) < poorest)
            poorest = stk_format_richness((enum pen_format)f);
    for (unsigned i = 0; i < b->format_count; i++) {
        if (b->caps[i] == STK_NO_CAPS)
            continue;
        moves(d, i, bridges);
        const uint32_t from = i ? PEN_FMT_BIT(b->format[i]) : b->mask;
        for (unsigned t = 1; t < b->format_count && bridges; t++) {
            const enum pen_format to = b->format[t];
            // Not through a format poorer than both ends.
            if (t == i || b->caps[t] == STK_NO_CAPS ||
                (i && stk_format_richness(b->format[i]) < poorest &&
                 stk_format_richness(to) > stk_format_richness(b->format[i])))
                continue;
            PEN_TRY(
                conversions(d, i, t, from, worst_loss(from, to, full), err));
        }
    }
    return PEN_OK;
}

static enum pen_status make_board(struct stk_planner *p, struct stk_board *b,
                                  struct pen_error *err)
{
    b->mask = stk_caps_mask(&p->caps.caps[b->key.caps]);
    b->states = b->key.wide ? PLACE_STATES : PLACE_PLAIN;
    b->format_count = stk_board_formats(p, b->mask, b->format);
    b->caps[0] = b->key.caps;
    PEN_TRY(stk_templates_copies(p, err));
    for (unsigned i = 0; i < b->format_count; i++) {
        if (i)
            PEN_TRY(converted(p, b, i, err));
        b->bytes[i] =
            b->caps[i] == STK_NO_CAPS ? 0 : (int64_t)p->caps.bytes[b->caps[i]];
    }
    struct draft *d = calloc(1, sizeof(*d));
    if (!d)
        return stk_plan_no_memory(err);
    d->p = p;
    d->b = b;
    enum pen_status st = fill(d, err);
    unsigned count = 0;
    for (int v = 0; v < b->states; v++) {
        b->first[v] = (uint16_t)count;
        count += d->hops[v];
    }
    b->first[b->states] = (uint16_t)count;
    b->hop = malloc((count + 1) * sizeof(*b->hop));
    for (int v = 0; v < b->states && b->hop; v++)
        memcpy(b->hop + b->first[v], d->hop[v], d->hops[v] * sizeof(*b->hop));
    free(d);
    if (!b->hop && st == PEN_OK)
        return stk_plan_no_memory(err);
    return st;
}

static void free_board(struct stk_board *b)
{
    if (!b)
        return;
    free(b->hop);
    for (unsigned h = 0; h < STK_HOMES; h++)
        free(b->reach[h]);
    free(b);
}

// --- the collection ---------------------------------------------------------

enum { BOARD_SLOTS = 512, BOARDS = 128 };

void stk_boards_finish(struct stk_boards *all)
{
    for (uint32_t i = 0; all->board && i < BOARD_SLOTS; i++)
        free_board(all->board[i]);
    free(all->board);
    all->board = NULL;
    all->count = 0;
}

static bool same_key(const struct stk_board_key *a,
                     const struct stk_board_key *b)
{
    return a->caps == b->caps && a->pinnable == b->pinnable &&
           a->staged == b->staged && a->bans == b->bans &&
           a->dmabuf == b->dmabuf && a->wide == b->wide;
}

enum pen_status stk_board_get(struct stk_planner *p,
                              const struct stk_board_key *key,
                              struct stk_board **out, struct pen_error *err)
{
    struct stk_boards *all = &p->boards;
    if (all->count == BOARDS)
        stk_boards_finish(all);
    if (!all->board)
        all->board = calloc(BOARD_SLOTS, sizeof(struct stk_board *));
    if (!all->board)
        return stk_plan_no_memory(err);
    uint32_t h = mix(key->caps, (uint64_t)key->pinnable << 32 | key->staged);
    h = mix(h, (uint64_t)key->bans << 32 | key->dmabuf << 1 | key->wide);
    uint32_t at = h % BOARD_SLOTS;
    for (; all->board[at]; at = (at + 1) % BOARD_SLOTS)
        if (same_key(&all->board[at]->key, key)) {
            *out = all->board[at];
            return PEN_OK;
        }
    struct stk_board *b = calloc(1, sizeof(*b));
    if (!b)
        return stk_plan_no_memory(err);
    b->key = *key;
    b->number = all->made++;
    const enum pen_status st = make_board(p, b, err);
    if (st != PEN_OK) {
        free_board(b);
        return st;
    }
    all->board[at] = b;
    all->count++;
    *out = b;
    return PEN_OK;
}

const struct stk_reach *stk_board_reach(struct stk_board *b, enum stk_home home)
{
    if (b->reach[home])
        return b->reach[home];
    struct stk_reach *r =
        malloc(sizeof(*r) + (size_t)b->first[b->states] * sizeof(r->hop[0]));
    if (!r)
        return NULL;
    const int root = stk_state_of(home, 0);
    for (int v = 0; v < PLACE_STATES; v++)
        r->distance[v] = v == root ? 0 : UINT64_MAX;
    for (bool again = true; again;) {
        again = false;
        for (int v = 0; v < b->states; v++) {
            if (r->distance[v] == UINT64_MAX)
                continue;
            for (unsigned h = b->first[v]; h < b->first[v + 1]; h++) {
                const uint64_t d = r->distance[v] + b->hop[h].loss;
                if (d < r->distance[b->hop[h].to]) {
                    r->distance[b->hop[h].to] = d;
                    again = true;
                }
            }
        }
    }
    r->count = 0;
    for (int v = 0; v < b->states; v++)
        for (unsigned h = b->first[v]; h < b->first[v + 1]; h++) {
            const struct stk_hop *hop = &b->hop[h];
            if (r->distance[v] != UINT64_MAX &&
                r->distance[v] + hop->loss == r->distance[hop->to])
                r->hop[r->count++] =
                    (struct stk_tight_hop){ (uint8_t)v, hop->to, hop->cost };
        }
    b->reach[home] = r;
    return r;
}

const struct stk_hop *stk_board_hop(const struct stk_board *b, int from, int to)
{
    const struct stk_hop *hop = b->hop + b->first[from];
    while (hop->to != to)
        hop++;
    return hop;
}
