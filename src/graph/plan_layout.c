// Where the boxes and lines of a plan's picture stand.
//
// The drawing is layered (Sugiyama): a module's layer is its longest distance
// from a source, edges over several layers bend at points in between, the
// order within a layer follows the neighbours' average, and x positions are
// pulled towards the neighbours as far as the boxes leave room.
//
// Between two layers there are two bands. In the upper one lines swing to the
// place where they arrive, in the lower one they go straight down through their
// words; each arrives at a place of its own, as far from the next as its words
// are wide. So no line passes behind the words of another.

#include "plan_layout.h"

#include <stdlib.h>
#include <string.h>

enum {
    BEND_WIDTH = 20,
    GAP = 24,    // between the spots of a layer
    SWING = 40,  // height of the band for lines
    ARROW = 16,  // below the words
    TIGHT = 12,  // between the words of two edges into one box
    SWEEPS = 12,
};

// Neighbouring spots in adjacent layers.
struct stk_link {
    uint32_t above, below;
};

void stk_layout_finish(struct stk_layout *l)
{
    free(l->spots);
    free(l->bend);
    free(l->port);
    free(l->top);
    free(l->bottom);
    free(l->words);
    free(l->links);
    free(l->layer_first);
    free(l->order);
    free(l->up_first);
    free(l->up);
    free(l->down_first);
    free(l->down);
}

uint32_t stk_layout_span(const struct stk_layout *l,
                         const struct stk_plan_edge *e)
{
    return l->spots[e->to].layer - l->spots[e->from].layer;
}

// --- spots ------------------------------------------------------------------

// The layer of each node, and the number of layers; NULL: no memory.
static uint32_t *layers_of(const struct pen_plan *plan, uint32_t *count)
{
    uint32_t *layer = calloc((size_t)plan->node_count + 1, sizeof(*layer));
    *count = 0;
    for (uint32_t n = 0; layer && n < plan->node_count; n++) {
        if (layer[n] >= *count)
            *count = layer[n] + 1;
        for (uint32_t e = plan->first_out[n]; e < plan->first_out[n + 1]; e++)
            if (layer[plan->edges[e].to] <= layer[n])
                layer[plan->edges[e].to] = layer[n] + 1;
    }
    return layer;
}

// A box is as wide as the words of what arrives at it.
static double half_of(const struct stk_layout *l, uint32_t n)
{
    const struct stk_plan_node *node = &l->plan->nodes[n];
    int words = -TIGHT;
    for (uint32_t i = 0; i < node->inputs; i++)
        if (node->in_edge[i] >= 0)
            words += l->label[node->in_edge[i]].width + TIGHT;
    return (words > l->box[n].width ? words : l->box[n].width) / 2.0;
}

static void make_links(struct stk_layout *l, bool bends)
{
    const struct pen_plan *plan = l->plan;
    uint32_t next = plan->node_count;
    for (uint32_t e = 0; e < plan->edge_count; e++) {
        const struct stk_plan_edge *edge = &plan->edges[e];
        const uint32_t steps = stk_layout_span(l, edge);
        uint32_t above = edge->from;
        l->bend[e] = UINT32_MAX;
        if (steps > 1 && !bends)
            continue;
        for (uint32_t s = 1; s < steps; s++) {
            if (s == 1)
                l->bend[e] = next;
            l->spots[next].layer = l->spots[edge->from].layer + s;
            l->spots[next].half = BEND_WIDTH / 2.0;
            l->links[l->link_count++] = (struct stk_link){ above, next };
            above = next++;
        }
        l->links[l->link_count++] = (struct stk_link){ above, edge->to };
    }
}

static bool make_spots(struct stk_layout *l)
{
    const struct pen_plan *plan = l->plan;
    const uint32_t n = plan->node_count;
    uint32_t *layer = layers_of(plan, &l->layers);
    if (!layer)
        return false;
    // Of very long edges only the ends are laid out.
    uint64_t count = 0;
    for (uint32_t e = 0; e < plan->edge_count; e++)
        count += layer[plan->edges[e].to] - layer[plan->edges[e].from] - 1;
    const bool bends = count <= 8 * (uint64_t)n + 256;
    l->spot_count = n + (bends ? (uint32_t)count : 0);
    l->spots = calloc((size_t)l->spot_count + 1, sizeof(*l->spots));
    l->links =
        calloc((size_t)l->spot_count + plan->edge_count + 1, sizeof(*l->links));
    l->bend = calloc((size_t)plan->edge_count + 1, sizeof(*l->bend));
    l->port = calloc((size_t)plan->edge_count + 1, sizeof(*l->port));
    const bool ok = l->spots && l->links && l->bend && l->port;
    for (uint32_t i = 0; ok && i < n; i++)
        l->spots[i] =
            (struct stk_spot){ .layer = layer[i], .half = half_of(l, i) };
    free(layer);
    if (ok)
        make_links(l, bends);
    return ok;
}

// Spots by layer, and links by spot.
static bool index_links(struct stk_layout *l)
{
    const size_t spots = (size_t)l->spot_count + 2;
    l->up_first = calloc(spots, sizeof(*l->up_first));
    l->down_first = calloc(spots, sizeof(*l->down_first));
    l->up = calloc((size_t)l->link_count + 1, sizeof(*l->up));
    l->down = calloc((size_t)l->link_count + 1, sizeof(*l->down));
    l->layer_first = calloc((size_t)l->layers + 2, sizeof(*l->layer_first));
    l->order = calloc(spots, sizeof(*l->order));
    if (!l->up_first || !l->down_first || !l->up || !l->down ||
        !l->layer_first || !l->order)
        return false;
    for (uint32_t i = 0; i < l->link_count; i++) {
        l->up_first[l->links[i].below + 1]++;
        l->down_first[l->links[i].above + 1]++;
    }
    for (uint32_t s = 0; s < l->spot_count; s++) {
        l->up_first[s + 1] += l->up_first[s];
        l->down_first[s + 1] += l->down_first[s];
        l->layer_first[l->spots[s].layer + 1]++;
    }
    for (uint32_t i = l->link_count; i-- > 0;) {
        l->up[--l->up_first[l->links[i].below + 1]] = l->links[i].above;
        l->down[--l->down_first[l->links[i].above + 1]] = l->links[i].below;
    }
    // Filling from the end moved each start down to its place.
    for (uint32_t s = 0; s < l->spot_count; s++) {
        l->up_first[s] = l->up_first[s + 1];
        l->down_first[s] = l->down_first[s + 1];
    }
    l->up_first[l->spot_count] = l->link_count;
    l->down_first[l->spot_count] = l->link_count;
    for (uint32_t i = 0; i < l->layers; i++)
        l->layer_first[i + 1] += l->layer_first[i];
    for (uint32_t s = l->spot_count; s-- > 0;)
        l->order[--l->layer_first[l->spots[s].layer + 1]] = s;
    for (uint32_t i = 0; i < l->layers; i++)
        l->layer_first[i] = l->layer_first[i + 1];
    l->layer_first[l->layers] = l->spot_count;
    return true;
}

// --- order ------------------------------------------------------------------

static void pack(struct stk_layout *l, uint32_t layer)
{
    double x = 0;
    for (uint32_t i = l->layer_first[layer]; i < l->layer_first[layer + 1];
         i++) {
        struct stk_spot *s = &l->spots[l->order[i]];
        s->x = x + s->half;
        x = s->x + s->half + GAP;
    }
}

static double average(const struct stk_layout *l, const uint32_t *first,
                      const uint32_t *list, uint32_t spot)
{
    double sum = 0;
    const uint32_t begin = first[spot], end = first[spot + 1];
    if (begin == end)
        return l->spots[spot].x;
    for (uint32_t i = begin; i < end; i++)
        sum += l->spots[list[i]].x;
    return sum / (end - begin);
}

// Spots want to be where their neighbours above (or below) are.
static void wish(struct stk_layout *l, uint32_t begin, uint32_t end,
                 bool from_above)
{
    for (uint32_t i = begin; i < end; i++) {
        struct stk_spot *s = &l->spots[l->order[i]];
        s->want = from_above ? average(l, l->up_first, l->up, l->order[i])
                             : average(l, l->down_first, l->down, l->order[i]);
    }
}

// Insertion sort by `want`: layers are nearly in order after the first sweep,
// and it leaves equals as they are.
static void reorder(struct stk_layout *l, uint32_t layer, bool from_above)
{
    const uint32_t begin = l->layer_first[layer];
    const uint32_t end = l->layer_first[layer + 1];
    wish(l, begin, end, from_above);
    for (uint32_t i = begin + 1; i < end; i++)
        for (uint32_t k = i;
             k > begin &&
             l->spots[l->order[k]].want < l->spots[l->order[k - 1]].want - 1e-6;
             k--) {
            const uint32_t swap = l->order[k];
            l->order[k] = l->order[k - 1];
            l->order[k - 1] = swap;
        }
    pack(l, layer);
}

static uint64_t crossings(const struct stk_layout *l)
{
    uint64_t count = 0;
    for (uint32_t i = 0; i < l->link_count; i++) {
        const struct stk_spot *a = &l->spots[l->links[i].above];
        const struct stk_spot *b = &l->spots[l->links[i].below];
        for (uint32_t k = 0; k < i; k++) {
            const struct stk_spot *c = &l->spots[l->links[k].above];
            const struct stk_spot *d = &l->spots[l->links[k].below];
            count += a->layer == c->layer && ((a->x < c->x && b->x > d->x) ||
                                              (a->x > c->x && b->x < d->x));
        }
    }
    return count;
}

// Sweep down and up, and of small drawings keep the order with the fewest
// crossings that was seen.
static bool sort_layers(struct stk_layout *l)
{
    enum { COUNTED = 2000 };
    const size_t bytes = ((size_t)l->spot_count + 1) * sizeof(*l->order);
    const bool count = l->link_count <= COUNTED;
    uint32_t *best = malloc(bytes);
    uint64_t fewest = UINT64_MAX;
    if (!best)
        return false;
    for (uint32_t k = 0; k < l->layers; k++)
        pack(l, k);
    for (int sweep = 0; sweep <= 2 * SWEEPS && fewest > 0; sweep++) {
        const uint64_t now = count ? crossings(l) : UINT64_MAX - 1;
        if (now < fewest || !count) {
            fewest = now;
            memcpy(best, l->order, bytes);
        }
        if (sweep % 2 == 0)
            for (uint32_t k = 1; k < l->layers; k++)
                reorder(l, k, true);
        else
            for (uint32_t k = l->layers; k-- > 1;)
                reorder(l, k - 1, false);
    }
    memcpy(l->order, best, bytes);
    free(best);
    for (uint32_t k = 0; k < l->layers; k++)
        pack(l, k);
    return true;
}

// --- places -----------------------------------------------------------------

// Move the spots of a layer towards their wishes, keeping order and distance:
// the mean of "as far left as allowed" and "as far right as allowed".
static void relax(struct stk_layout *l, uint32_t layer, bool from_above)
{
    const uint32_t begin = l->layer_first[layer];
    const uint32_t end = l->layer_first[layer + 1];
    wish(l, begin, end, from_above);
    double edge = -1e18;
    for (uint32_t i = begin; i < end; i++) {
        struct stk_spot *s = &l->spots[l->order[i]];
        const double least = edge + s->half;
        s->x = s->want > least ? s->want : least;
        edge = s->x + s->half + GAP;
    }
    edge = 1e18;
    for (uint32_t i = end; i-- > begin;) {
        struct stk_spot *s = &l->spots[l->order[i]];
        const double most = edge - s->half;
        const double right = s->want < most ? s->want : most;
        s->x = (s->x + right) / 2;
        edge = right - s->half - GAP;
    }
    edge = -1e18;
    for (uint32_t i = begin; i < end; i++) {
        struct stk_spot *s = &l->spots[l->order[i]];
        if (s->x < edge + s->half)
            s->x = edge + s->half;
        edge = s->x + s->half + GAP;
    }
}

// How far a spot can go within its layer.
static void room_of(const struct stk_layout *l, const uint32_t *place,
                    uint32_t spot, double *least, double *most)
{
    const struct stk_spot *s = &l->spots[spot];
    const uint32_t at = place[spot];
    *least = -1e18;
    *most = 1e18;
    if (at > l->layer_first[s->layer]) {
        const struct stk_spot *left = &l->spots[l->order[at - 1]];
        *least = left->x + left->half + GAP + s->half;
    }
    if (at + 1 < l->layer_first[s->layer + 1]) {
        const struct stk_spot *right = &l->spots[l->order[at + 1]];
        *most = right->x - right->half - GAP - s->half;
    }
}

// Let the bends of an edge stand below each other as far as there is room.
static void straighten_edge(struct stk_layout *l, const uint32_t *place,
                            uint32_t first, uint32_t count)
{
    for (uint32_t begin = 0, end; begin < count; begin = end) {
        double least = -1e18, most = 1e18, sum = 0;
        for (end = begin; end < count; end++) {
            double low, high;
            room_of(l, place, first + end, &low, &high);
            if (end > begin && (low > most || high < least))
                break;
            least = low > least ? low : least;
            most = high < most ? high : most;
            sum += l->spots[first + end].x;
        }
        double x = sum / (end - begin);
        x = x > most ? most : x;
        x = x < least ? least : x;
        for (uint32_t i = begin; i < end; i++)
            l->spots[first + i].x = x;
    }
}

static bool straighten(struct stk_layout *l)
{
    uint32_t *place = calloc((size_t)l->spot_count + 1, sizeof(*place));
    if (!place)
        return false;
    for (uint32_t i = 0; i < l->spot_count; i++)
        place[l->order[i]] = i;
    for (uint32_t e = 0; e < l->plan->edge_count; e++)
        if (l->bend[e] != UINT32_MAX)
            straighten_edge(l, place, l->bend[e],
                            stk_layout_span(l, &l->plan->edges[e]) - 1);
    free(place);
    return true;
}

static bool place_across(struct stk_layout *l, int margin)
{
    for (int sweep = 0; sweep < SWEEPS; sweep++) {
        for (uint32_t k = 1; k < l->layers; k++)
            relax(l, k, true);
        for (uint32_t k = l->layers; k-- > 1;)
            relax(l, k - 1, false);
    }
    if (!straighten(l))
        return false;
    double left = 0, right = 0;
    for (uint32_t s = 0; s < l->spot_count; s++) {
        const struct stk_spot *spot = &l->spots[s];
        if (s == 0 || spot->x - spot->half < left)
            left = spot->x - spot->half;
        if (s == 0 || spot->x + spot->half > right)
            right = spot->x + spot->half;
    }
    for (uint32_t s = 0; s < l->spot_count; s++)
        l->spots[s].x += margin - left;
    l->width = (int)(right - left + 0.5) + 2 * margin;
    return true;
}

static bool place_down(struct stk_layout *l, int head, int margin)
{
    const struct pen_plan *plan = l->plan;
    const size_t count = (size_t)l->layers + 1;
    l->top = calloc(count, sizeof(*l->top));
    l->bottom = calloc(count, sizeof(*l->bottom));
    l->words = calloc(count, sizeof(*l->words));
    if (!l->top || !l->bottom || !l->words)
        return false;
    // Heights first.
    for (uint32_t n = 0; n < plan->node_count; n++) {
        int *box = &l->bottom[l->spots[n].layer];
        if (l->box[n].height > *box)
            *box = l->box[n].height;
    }
    for (uint32_t e = 0; e < plan->edge_count; e++) {
        int *words = &l->words[l->spots[plan->edges[e].to].layer];
        if (l->label[e].height > *words)
            *words = l->label[e].height;
    }
    int y = head;
    for (uint32_t k = 0; k < l->layers; k++) {
        if (k > 0) {
            const int words = l->words[k];
            l->words[k] = y + SWING;
            y = l->words[k] + words + ARROW;
        }
        l->top[k] = y;
        l->bottom[k] += y;
        y = l->bottom[k];
    }
    l->height = y + margin;
    return true;
}

// Where an edge comes from, one layer above its end.
static double comes_from(const struct stk_layout *l, uint32_t e)
{
    const struct stk_plan_edge *edge = &l->plan->edges[e];
    const uint32_t spot = l->bend[e] == UINT32_MAX
                              ? edge->from
                              : l->bend[e] + stk_layout_span(l, edge) - 2;
    return l->spots[spot].x;
}

// The edges into a box arrive in the order in which they come from above.
static void place_ports(struct stk_layout *l, uint32_t n)
{
    const struct stk_plan_node *node = &l->plan->nodes[n];
    uint32_t edges[PEN_MAX_PINS], count = 0;
    double words = -TIGHT;
    for (uint32_t i = 0; i < node->inputs; i++) {
        if (node->in_edge[i] < 0)
            continue;
        uint32_t at = count++;
        const uint32_t e = (uint32_t)node->in_edge[i];
        for (; at > 0 && comes_from(l, edges[at - 1]) > comes_from(l, e); at--)
            edges[at] = edges[at - 1];
        edges[at] = e;
        words += l->label[e].width + TIGHT;
    }
    double x = l->spots[n].x - words / 2;
    for (uint32_t i = 0; i < count; i++) {
        l->port[edges[i]] = x + l->label[edges[i]].width / 2.0;
        x += l->label[edges[i]].width + TIGHT;
    }
}

bool stk_layout_make(struct stk_layout *l, int head, int margin)
{
    if (!make_spots(l) || !index_links(l) || !sort_layers(l) ||
        !place_down(l, head, margin) || !place_across(l, margin))
        return false;
    for (uint32_t n = 0; n < l->plan->node_count; n++)
        place_ports(l, n);
    return true;
}
