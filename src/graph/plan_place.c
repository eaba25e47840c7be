// The bridges behind one output pin (plan_place.h tells the idea).

#include "plan_place.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

// --- targets ----------------------------------------------------------------

static bool uploads(const struct stk_node *node)
{
    const uint32_t cuda = PEN_MEM_BIT(PEN_MEM_CUDA_DEVICE);
    return stk_class_copies(node->cls) && (node->cls->flags & PEN_CLASS_CUDA) &&
           node->outputs == 1 && node->out[0].mem == cuda &&
           !(node->in[0].mem & cuda);
}

// The same side of the machine: host memory goes together, and the device's.
static uint32_t side_of(uint32_t homes)
{
    return (homes & STK_HOMES_HOST ? STK_HOMES_HOST : 0) |
           (homes & STK_HOMES_CUDA ? STK_HOMES_CUDA : 0);
}

uint32_t stk_wanted_mems(const struct stk_planner *p,
                         const struct stk_node *node, uint32_t pin)
{
    const bool bridges = !p->plan->desc || p->plan->desc->auto_bridge;
    if (bridges && stk_class_copies(node->cls) &&
        !(node->cls->flags & PEN_CLASS_CUDA) && node->outputs == 1)
        return node->out[0].mem;
    return node->in[pin].mem ? node->in[pin].mem : PEN_MEM_BIT(PEN_MEM_HOST);
}

static uint32_t homes_of(const struct stk_planner *p,
                         const struct stk_node *node, uint32_t pin)
{
    return stk_homes_taken(stk_wanted_mems(p, node, pin),
                           p->plan->profile.dmabuf);
}

// Homes in which a pin takes frames. A hand-written upload gets pinned frames
// as an inserted one does: the producer's pool is upgraded. Where frames of
// several inputs leave by one output, they must all be on one side: that of the
// input which is placed first.
static uint32_t accepted_homes(struct stk_planner *p, uint32_t number,
                               uint32_t pin)
{
    const struct stk_node *node = &p->graph->nodes[number];
    uint32_t homes = homes_of(p, node, pin);
    if (uploads(node))
        homes &= STK_HOME_BIT(STK_HOME_PINNED);
    if (!stk_node_gathers(node->cls, node->inputs))
        return homes;
    uint32_t *side = &p->side[number];
    if (*side == 0) {
        *side = side_of(homes_of(p, node, 0));
        for (uint32_t i = 1; i < node->inputs; i++)
            *side &= side_of(homes_of(p, node, i));
    }
    return homes & *side ? homes & *side : homes;
}

static enum pen_status add_target(struct stk_place *w, uint32_t homes,
                                  uint32_t formats, uint32_t edge,
                                  struct pen_error *err)
{
    w->next_edge[edge] = UINT32_MAX;
    for (uint32_t i = 0; i < w->target_count; i++) {
        struct stk_target *t = &w->targets[i];
        if (t->homes != homes || t->formats != formats)
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
        .homes = homes,
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
                             const struct stk_origin *from)
{
    const uint32_t host = PEN_MEM_BITS_HOST;
    const enum pen_mem_type given = stk_home_mem(from->home);
    if (!p->plan->desc || p->plan->desc->auto_bridge)
        return "";
    if (!(wanted & ~PEN_MEM_BIT(PEN_MEM_DMABUF)) && (PEN_MEM_BIT(given) & host))
        return "put { \"type\": \"MemTypeConversion\", \"props\": { "
               "\"outputMemType\": \"DMA\" } } between them, or set "
               "\"auto_bridge\": true";
    if ((STK_HOME_BIT(from->home) & STK_HOMES_HOST) && !(wanted & host))
        return "put { \"type\": \"CudaMemCopy\", \"props\": { \"kind\": "
               "\"HostToDevice\" } } between them, or set \"auto_bridge\": "
               "true";
    if ((STK_HOME_BIT(from->home) & STK_HOMES_CUDA) &&
        !(wanted & PEN_MEM_BIT(PEN_MEM_CUDA_DEVICE)))
        return "put { \"type\": \"CudaMemCopy\", \"props\": { \"kind\": "
               "\"DeviceToHost\" } } between them, or set \"auto_bridge\": "
               "true";
    return given == PEN_MEM_CUDA_DEVICE
               ? "put a CCNPPI with the right `imageType` between them, or "
                 "set \"auto_bridge\": true"
               : "put a ColorConversion with the right `imageType` between "
                 "them, or set \"auto_bridge\": true";
}

// Whether a consumer cannot be served for want of DMABUFs; `why` says what is
// missing.
static bool no_dmabuf(const struct stk_planner *p, uint32_t wanted,
                      enum stk_home given, char *why, size_t size)
{
    struct stk_dmabuf_caps caps;
    stk_profile_dmabuf(&p->plan->profile, &caps);
    for (unsigned m = PEN_MEM_HOST; m < PEN_MEM_COUNT; m++) {
        const enum pen_mem_type to = (enum pen_mem_type)m;
        if ((wanted & PEN_MEM_BIT(m)) &&
            stk_way_between(stk_home_mem(given), stk_home_kind(given), to,
                            &caps, why, size) != STK_WAY_REFUSED)
            return false;
    }
    return true;
}

static void complain(struct stk_planner *p, const struct stk_place *w,
                     const struct stk_target *t, const struct stk_origin *from)
{
    const bool off = p->plan->desc && !p->plan->desc->auto_bridge;
    char wants[200], gives[200], why[400];
    for (uint32_t n = t->first; n != UINT32_MAX; n = w->next_edge[n]) {
        const struct stk_edge *e = &p->graph->edges[p->out[n]];
        const struct stk_node *to = &p->graph->nodes[e->to];
        const struct pen_pin_set *set = &to->in[e->to_pin];
        const bool mem = !(t->homes & STK_HOME_BIT(from->home));
        const char *code = "E311", *suggestion = way_round(p, set->mem, from);
        snprintf(why, sizeof(why), "and no bridge leads from there");
        if (mem) {
            stk_wanted_text(stk_wanted_mems(p, to, e->to_pin), wants,
                            sizeof(wants));
            stk_mems_text(PEN_MEM_BIT(stk_home_mem(from->home)), gives,
                          sizeof(gives));
        } else {
            stk_mask_text(set->formats, wants, sizeof(wants));
            stk_mask_text(w->mask, gives, sizeof(gives));
        }
        if (mem && no_dmabuf(p, stk_wanted_mems(p, to, e->to_pin), from->home,
                             why, sizeof(why))) {
            code = "E313";
            suggestion = "";
        } else if (off) {
            code = "E312";
            snprintf(why, sizeof(why), "and auto_bridge is false");
        }
        stk_planner_error(p, code, e->desc ? e->desc->pointer : "", suggestion,
                          "pin `%s` of `%s` takes %s, `%s.%s` gives %s%s %s",
                          to->cls->inputs[e->to_pin].name, to->desc->id, wants,
                          from->id, from->pin, gives,
                          strcmp(code, "E313") ? "," : ":", why);
    }
}

// --- one pin ----------------------------------------------------------------

static enum pen_status collect(struct stk_planner *p, struct stk_place *w,
                               const struct stk_origin *from, uint32_t begin,
                               uint32_t end, struct pen_error *err)
{
    w->target_count = 0;
    w->dmabuf = false;
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
        const uint32_t mems = stk_wanted_mems(p, to, e->to_pin);
        if ((mems & PEN_MEM_BIT(PEN_MEM_DMABUF)) &&
            !(mems & PEN_MEM_BIT(PEN_MEM_HOST)))
            w->dmabuf = true;
        PEN_TRY(add_target(w, accepted_homes(p, e->to, e->to_pin), formats, n,
                           err));
    }
    return PEN_OK;
}

// Where the pin's frames may be born.
static uint32_t root_homes(const struct pen_plan *plan,
                           const struct stk_plan_node *node, uint32_t pin)
{
    uint32_t mems = node->out[pin].mem, passed = 0, homes = 0;
    const bool cuda = node->cls->flags & PEN_CLASS_CUDA;
    if (stk_node_hands_through(plan, node))
        for (uint32_t i = 0; i < node->inputs; i++) {
            if (node->in_edge[i] < 0)
                continue;
            const struct stk_plan_edge *e = &plan->edges[node->in_edge[i]];
            passed |= STK_HOME_BIT(
                stk_output_home(&plan->nodes[e->from].output[e->from_pin]));
        }
    if (passed)
        return STK_HOME_BIT(stk_homes_promise(passed));
    if (mems == 0)
        mems = PEN_MEM_BIT(PEN_MEM_HOST);
    // What a device module gives on the host is written by the device.
    if (cuda && (mems & PEN_MEM_BIT(PEN_MEM_HOST_PINNED)))
        mems &= ~PEN_MEM_BIT(PEN_MEM_HOST);
    if (mems & PEN_MEM_BIT(PEN_MEM_HOST))
        homes |= STK_HOME_BIT(STK_HOME_HOST);
    if (mems & PEN_MEM_BIT(PEN_MEM_HOST_PINNED))
        homes |= STK_HOME_BIT(STK_HOME_PINNED);
    if (mems & PEN_MEM_BIT(PEN_MEM_CUDA_DEVICE))
        homes |= STK_HOME_BIT(STK_HOME_CUDA);
    if (mems & PEN_MEM_BIT(PEN_MEM_DMABUF))
        homes |= STK_HOME_BIT(cuda ? STK_HOME_DMA_CUDA : STK_HOME_DMA_HOST);
    return homes;
}

// Take away what this machine cannot make. False if nothing is left; then that
// was said.
static bool can_be_made(struct stk_planner *p, uint32_t number, uint32_t pin,
                        uint32_t *homes)
{
    const struct stk_plan_node *node = &p->plan->nodes[number];
    const unsigned can = p->plan->profile.dmabuf;
    struct stk_dmabuf_caps caps;
    if (stk_node_hands_through(p->plan, node))
        return true;
    uint32_t left = *homes;
    if (!(can & PEN_DMABUF_HOST))
        left &= ~STK_HOME_BIT(STK_HOME_DMA_HOST);
    if (!(can & PEN_DMABUF_EXPORT))
        left &= ~STK_HOME_BIT(STK_HOME_DMA_CUDA);
    if (left) {
        *homes = left;
        return true;
    }
    stk_profile_dmabuf(&p->plan->profile, &caps);
    const bool cuda = *homes & STK_HOME_BIT(STK_HOME_DMA_CUDA);
    stk_planner_error(p, "E313", node->pointer,
                      cuda ? "let it give CUDA_DEVICE"
                           : "let it give HOST or HOST_PINNED (`memType`)",
                      "`%s.%s` gives DMABUF, and there are none of %s memory: "
                      "%s",
                      node->id, node->cls->outputs[pin].name,
                      cuda ? "device" : "host",
                      cuda ? caps.why_export : caps.why_host);
    p->poison[number] = true;
    return false;
}

// Nothing to insert: frames born in one of `homes` satisfy everybody.
static bool all_at_root(struct stk_place *w, uint32_t homes)
{
    for (unsigned h = 0; h < STK_HOMES; h++) {
        if (!(homes & STK_HOME_BIT(h)))
            continue;
        bool all = true;
        for (uint32_t i = 0; i < w->target_count && all; i++)
            all = (w->targets[i].homes & STK_HOME_BIT(h)) &&
                  (w->targets[i].formats & 1);
        if (!all)
            continue;
        w->root = stk_state_of(h, 0);
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

// Homes that the pool can be made of though the module gives another.
static uint32_t upgraded_roots(struct stk_planner *p, const struct stk_place *w,
                               uint32_t number, uint32_t pin, uint32_t homes)
{
    const unsigned can = p->plan->profile.dmabuf;
    uint32_t more = 0;
    if (!w->dmabuf)
        return 0;
    if ((homes & STK_HOME_BIT(STK_HOME_HOST)) && (can & PEN_DMABUF_HOST) &&
        stk_pool_chance(p, number, pin, STK_HOME_DMA_HOST) == STK_CHANCE_OPEN)
        more |= STK_HOME_BIT(STK_HOME_DMA_HOST);
    if ((homes & STK_HOME_BIT(STK_HOME_CUDA)) && (can & PEN_DMABUF_EXPORT) &&
        stk_pool_chance(p, number, pin, STK_HOME_DMA_CUDA) == STK_CHANCE_OPEN)
        more |= STK_HOME_BIT(STK_HOME_DMA_CUDA);
    return more & ~homes;
}

// Bits of the formats whose pools are not to be pinned.
static uint32_t staged_formats(const struct stk_planner *p,
                               const struct stk_origin *from)
{
    return p->staged
               ? p->staged[(size_t)from->node * PEN_MAX_PINS + from->pin_number]
               : 0;
}

// Which host pools of the tree may be page-locked: w->pinnable, w->staged.
static void find_pinnable(struct stk_planner *p, struct stk_place *w,
                          const struct stk_origin *from, uint32_t number,
                          uint32_t homes)
{
    const uint32_t staged = staged_formats(p, from);
    enum stk_chance own = STK_CHANCE_OPEN;
    if (homes & STK_HOME_BIT(STK_HOME_HOST))
        own = stk_pool_chance(p, number, from->pin_number, STK_HOME_PINNED);
    w->pinnable = w->staged = 0;
    for (unsigned i = 0; i < w->format_count; i++) {
        enum stk_chance c = staged & PEN_FMT_BIT(w->format[i])
                                ? STK_CHANCE_STAGED
                                : STK_CHANCE_OPEN;
        // Frames that have the format already come from the pin's own pool.
        if ((i == 0 || (w->mask & PEN_FMT_BIT(w->format[i]))) && own > c)
            c = own;
        if (c == STK_CHANCE_OPEN)
            w->pinnable |= 1u << i;
        if (c == STK_CHANCE_STAGED)
            w->staged |= 1u << i;
        // That order of things is one of many.
        if (c != STK_CHANCE_OPEN)
            p->choice = true;
    }
}

static enum pen_status plant(struct stk_planner *p, struct stk_place *w,
                             const struct stk_origin *from, uint32_t number,
                             uint32_t homes, struct pen_error *err)
{
    const struct pen_caps *caps = from->caps;
    const uint32_t plain = STK_HOME_BIT(STK_HOME_DMA_HOST) - 1;
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
    const uint32_t upgraded =
        upgraded_roots(p, w, number, from->pin_number, homes);
    w->states = w->dmabuf || (homes & ~plain) ? PLACE_STATES : PLACE_PLAIN;
    find_pinnable(p, w, from, number, homes);
    PEN_TRY(stk_templates_make(p, w, err));
    PEN_TRY(stk_place_bytes(w, &sized, err));
    stk_place_hops(p, w, caps, !p->plan->desc || p->plan->desc->auto_bridge);
    stk_place_price(p, w);

    // A pin that may give several memory types gives one: the best of them,
    // and of equals the first (host before pinned before device).
    struct verdict best = { .unserved = UINT32_MAX, .loss = UINT64_MAX };
    unsigned count;
    int root = -1;
    for (unsigned h = 0; h < STK_HOMES; h++) {
        if (!((homes | upgraded) & STK_HOME_BIT(h)))
            continue;
        struct verdict v = grow(w, stk_state_of(h, 0), &count);
        v.cost += h * TICK_ROOT;
        if (root < 0 || better(&v, &best)) {
            best = v;
            root = stk_state_of(h, 0);
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
            for (unsigned h = 0; h < STK_HOMES; h++)
                here = here || (stk_place_satisfies(w, t, stk_state_of(h, f)) &&
                                w->distance[stk_state_of(h, f)] ==
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

// Of a pool that others pass on, what is best here may not be best there.
static void note_dmabufs(struct stk_planner *p, const struct stk_place *w,
                         uint32_t number, uint32_t begin, uint32_t end)
{
    if (!w->dmabuf && stk_state_home(w->root) < STK_HOME_DMA_HOST)
        return;
    if (p->plan->nodes[number].forwards)
        p->choice = true;
    for (uint32_t n = begin; n < end; n++) {
        const uint32_t to = p->graph->edges[p->out[n]].to;
        if ((p->graph->nodes[to].cls->flags & PEN_CLASS_FORWARDS) &&
            p->first[to] != p->first[to + 1])
            p->choice = true;
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
        .node = p->aside[number].node,
        .pin_number = pin,
    };
    uint32_t homes = root_homes(p->plan, node, pin);
    w->mask = stk_caps_mask(&caps);
    stk_place_formats(p, w);
    PEN_TRY(collect(p, w, &from, begin, end, err));
    if (!can_be_made(p, number, pin, &homes))
        return PEN_OK;
    // A pool that is not to be pinned is not born there either.
    if ((staged_formats(p, &from) & 1u) &&
        (homes & STK_HOME_BIT(STK_HOME_HOST)))
        homes &= ~STK_HOME_BIT(STK_HOME_PINNED);
    from.home = (enum stk_home)__builtin_ctz(homes);
    if (!all_at_root(w, homes)) {
        PEN_TRY(plant(p, w, &from, number, homes, err));
        note_choices(p, w);
        note_dmabufs(p, w, number, begin, end);
    }
    from.home = stk_state_home(w->root);
    struct stk_plan_output *o = &p->plan->nodes[number].output[pin];
    if (homes & STK_HOME_BIT(from.home)) {
        stk_output_set_home(o, from.home);
    } else {
        stk_output_set_home(o, from.home == STK_HOME_DMA_CUDA ? STK_HOME_CUDA
                                                              : STK_HOME_HOST);
        stk_pool_upgrade(p, number, pin, from.home);
    }
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
