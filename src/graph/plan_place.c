// The bridges behind one output pin (plan_place.h tells the idea).

#include "plan_place.h"

#include <stdlib.h>

// --- targets ----------------------------------------------------------------

static bool uploads(const struct stk_node *node)
{
    const uint32_t cuda = PEN_MEM_BIT(PEN_MEM_CUDA_DEVICE);
    return (node->cls->flags & PEN_CLASS_BRIDGE) && node->outputs == 1 &&
           node->out[0].mem == cuda && !(node->in[0].mem & cuda);
}

// The same side of the machine: host types go together.
static uint32_t side_of(uint32_t mems)
{
    return mems & PEN_MEM_BITS_HOST ? mems | PEN_MEM_BITS_HOST : mems;
}

// Memory types in which a pin takes frames. A hand-written upload gets pinned
// frames as an inserted one does: the producer's pool is upgraded. Where frames
// of several inputs leave by one output, they must all be on one side: that of
// the input which is placed first.
static uint32_t accepted_mems(struct stk_planner *p, uint32_t number,
                              uint32_t pin)
{
    const struct stk_node *node = &p->graph->nodes[number];
    uint32_t mems = node->in[pin].mem;
    if (mems == 0)
        mems = PEN_MEM_BIT(PEN_MEM_HOST);
    if (mems & PEN_MEM_BIT(PEN_MEM_HOST))
        mems |= PEN_MEM_BIT(PEN_MEM_HOST_PINNED);
    if (uploads(node))
        mems &= ~PEN_MEM_BIT(PEN_MEM_HOST);
    if (!stk_node_gathers(node->cls, node->inputs))
        return mems;
    uint32_t *side = &p->side[number];
    if (*side == 0) {
        *side = side_of(node->in[0].mem);
        for (uint32_t i = 1; i < node->inputs; i++)
            *side &= side_of(node->in[i].mem);
    }
    return mems & *side ? mems & *side : mems;
}

static enum pen_status add_target(struct stk_place *w, uint32_t mems,
                                  uint32_t formats, uint32_t edge,
                                  struct pen_error *err)
{
    w->next_edge[edge] = UINT32_MAX;
    for (uint32_t i = 0; i < w->target_count; i++) {
        struct stk_target *t = &w->targets[i];
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
            return stk_plan_no_memory(err);
        w->targets = grown;
        w->target_room = room;
    }
    w->targets[w->target_count++] = (struct stk_target){
        .mems = mems,
        .formats = formats,
        .first = edge,
        .last = edge,
        .edges = 1,
        .state = -1,
    };
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
                     const struct stk_target *t, const struct stk_origin *from)
{
    const bool off = p->plan->desc && !p->plan->desc->auto_bridge;
    char wants[200], gives[200];
    for (uint32_t n = t->first; n != UINT32_MAX; n = w->next_edge[n]) {
        const struct stk_edge *e = &p->graph->edges[p->out[n]];
        const struct stk_node *to = &p->graph->nodes[e->to];
        const struct pen_pin_set *set = &to->in[e->to_pin];
        const bool mem = !(t->mems & PEN_MEM_BIT(from->mem));
        if (mem) {
            stk_wanted_text(set->mem, wants, sizeof(wants));
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
                               const struct stk_origin *from, uint32_t begin,
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
        PEN_TRY(
            add_target(w, accepted_mems(p, e->to, e->to_pin), formats, n, err));
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
    for (unsigned m = 0; m < PLACE_MEMS; m++) {
        if (!(mems & PEN_MEM_BIT(stk_place_mem[m])))
            continue;
        bool all = true;
        for (uint32_t i = 0; i < w->target_count && all; i++)
            all = (w->targets[i].mems & PEN_MEM_BIT(stk_place_mem[m])) &&
                  (w->targets[i].formats & 1);
        if (!all)
            continue;
        w->root = stk_state_of(m, 0);
        for (uint32_t i = 0; i < w->target_count; i++)
            w->targets[i].state = w->root;
        stk_place_clear(w);
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
        if (stk_place_bytes(w, &sized, &ignored) != PEN_OK)
            return false;
        stk_place_price(p, w);
        const int64_t mine = stk_place_tree_cost(w);
        stk_place_search(w, count);
        // Ticks only decide between equals; time is what counts.
        if (w->best[(1u << count) - 1][w->root] / PLACE_TICKS <
            mine / PLACE_TICKS)
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
    stk_place_tight(w);
    for (uint32_t i = 0; i < w->target_count; i++) {
        const uint64_t least = stk_place_least(w, &w->targets[i]);
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
        stk_place_clear(w);
    else if (*count)
        stk_place_exact(w, *count);
    else
        stk_place_greedy(w);
    verdict.cost = stk_place_tree_cost(w);
    return verdict;
}

static enum pen_status plant(struct stk_planner *p, struct stk_place *w,
                             const struct stk_origin *from, uint32_t mems,
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
    PEN_TRY(stk_templates_make(p, w, err));
    PEN_TRY(stk_place_bytes(w, &sized, err));
    stk_place_hops(p, w, caps, !p->plan->desc || p->plan->desc->auto_bridge);
    stk_place_price(p, w);

    // A pin that may give several memory types gives one: the best of them,
    // and of equals the first (host before pinned before device).
    struct verdict best = { .unserved = UINT32_MAX, .loss = UINT64_MAX };
    unsigned count;
    int root = -1;
    for (unsigned m = 0; m < PLACE_MEMS; m++) {
        if (!(mems & PEN_MEM_BIT(stk_place_mem[m])))
            continue;
        struct verdict v = grow(w, stk_state_of(m, 0), &count);
        v.cost += m * TICK_ROOT;
        if (root < 0 || better(&v, &best)) {
            best = v;
            root = stk_state_of(m, 0);
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
        const struct stk_target *t = &w->targets[i];
        if (t->state < 0 || stk_state_format(t->state) == 0)
            continue;
        int options = 0;
        for (unsigned f = 1; f < w->format_count; f++) {
            bool here = false;
            for (unsigned m = 0; m < PLACE_MEMS; m++)
                here = here || (stk_place_satisfies(w, t, stk_state_of(m, f)) &&
                                w->distance[stk_state_of(m, f)] ==
                                    w->distance[t->state]);
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
            return stk_plan_no_memory(err);
        stk_templates_find(p);
    }
    // insert() may move plan->nodes, so the caps are copied.
    const struct stk_plan_node *node = &p->plan->nodes[number];
    const struct pen_caps caps = node->output[pin].caps;
    struct stk_origin from = {
        .id = node->id,
        .pin = node->cls->outputs[pin].name,
        .caps = &caps,
    };
    const uint32_t mems = root_mems(p->plan, node, pin);
    w->mask = stk_caps_mask(&caps);
    stk_place_formats(p, w);
    for (unsigned m = PLACE_MEMS; m-- > 0;)
        if (mems & PEN_MEM_BIT(stk_place_mem[m]))
            from.mem = stk_place_mem[m];
    PEN_TRY(collect(p, w, &from, begin, end, err));
    if (!all_at_root(w, mems)) {
        PEN_TRY(plant(p, w, &from, mems, err));
        note_choices(p, w);
    }
    from.mem = stk_place_mem[stk_state_mem(w->root)];
    p->plan->nodes[number].output[pin].mem = from.mem;
    return stk_place_emit(p, w, &from, w->root, number, pin, err);
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
