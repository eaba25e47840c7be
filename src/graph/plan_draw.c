// A plan as a picture: DOT for other programs, and SVG drawn here.
//
// The drawing is layered (Sugiyama): a module's layer is its longest distance
// from a source, edges over several layers bend at points in between, the
// order within a layer follows the neighbours' average, and x positions are
// pulled towards the neighbours as far as the boxes leave room.

#include "planner.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

// clang-format off
static const struct {
    const char *line, *fill;
} colours[PEN_MEM_COUNT] = {
    [PEN_MEM_NONE]        = { "#777777", "#f4f4f4" },
    [PEN_MEM_HOST]        = { "#3b6ea8", "#e6eef7" },
    [PEN_MEM_HOST_PINNED] = { "#0f8a7e", "#def3f0" },
    [PEN_MEM_CUDA_DEVICE] = { "#5a8f00", "#edf6d9" },
    [PEN_MEM_DMABUF]      = { "#b0611a", "#f8eadc" },
};
// clang-format on

// Where a module's frames live: its first connected output, else its input.
static enum pen_mem_type home_of(const struct pen_plan *plan, uint32_t n)
{
    const struct stk_plan_node *node = &plan->nodes[n];
    for (uint32_t o = 0; o < node->outputs; o++)
        if (node->output[o].mem != PEN_MEM_NONE)
            return node->output[o].mem;
    for (uint32_t i = 0; i < node->inputs; i++)
        if (node->in_edge[i] >= 0)
            return plan->edges[node->in_edge[i]].mem;
    return PEN_MEM_NONE;
}

static void edge_lines(const struct pen_plan *plan,
                       const struct stk_plan_edge *e, char *first, char *second,
                       size_t size)
{
    const struct stk_plan_output *o = &plan->nodes[e->from].output[e->from_pin];
    char bytes[32];
    stk_plan_caps_text(&e->caps, first, size);
    stk_plan_bytes_text(o->block_bytes, bytes, sizeof(bytes));
    const char *how = stk_edge_how(plan, e);
    snprintf(second, size, "%s%s%s  %s  depth %u",
             stk_home_text(stk_edge_home(e)), *how ? " " : "", how, bytes,
             e->depth);
}

// --- DOT --------------------------------------------------------------------

static void dot_quote(struct stk_text *t, const char *s)
{
    stk_text_add(t, "\"");
    for (; *s; s++) {
        if (*s == '"' || *s == '\\')
            stk_text_add(t, "\\");
        if (*s == '\n')
            stk_text_add(t, "\\n");
        else
            stk_text_add_n(t, s, 1);
    }
    stk_text_add(t, "\"");
}

static void dot_node(struct stk_text *t, const struct pen_plan *plan,
                     uint32_t n)
{
    const struct stk_plan_node *node = &plan->nodes[n];
    const enum pen_mem_type mem = home_of(plan, n);
    struct stk_text label = { 0 };
    stk_text_addf(&label, "%s\n%s", node->id, node->type);
    if (!stk_plan_props_text(&label, plan, node, 40))
        t->failed = true;
    t->failed = t->failed || label.failed;
    stk_text_add(t, "    ");
    dot_quote(t, node->id);
    stk_text_add(t, " [label=");
    dot_quote(t, label.data ? label.data : "");
    stk_text_addf(t, ", color=\"%s\", fillcolor=\"%s\", style=\"%s\"",
                  colours[mem].line, colours[mem].fill,
                  node->inserted ? "filled,rounded,dashed" : "filled");
    if (node->inserted) {
        stk_text_add(t, ", tooltip=");
        dot_quote(t, node->reason);
    }
    stk_text_add(t, "];\n");
    stk_text_finish(&label);
}

char *pen_plan_dot(const struct pen_plan *plan)
{
    struct stk_text t = { 0 };
    stk_text_add(&t, "digraph plan {\n"
                     "    node [shape=box, fontname=\"sans-serif\", "
                     "fontsize=11];\n"
                     "    edge [fontname=\"sans-serif\", fontsize=9];\n");
    for (uint32_t n = 0; n < plan->node_count; n++)
        dot_node(&t, plan, n);
    for (uint32_t i = 0; i < plan->edge_count; i++) {
        const struct stk_plan_edge *e = &plan->edges[i];
        char first[256], second[256], label[520];
        edge_lines(plan, e, first, second, sizeof(first));
        snprintf(label, sizeof(label), "%s\n%s", first, second);
        stk_text_add(&t, "    ");
        dot_quote(&t, plan->nodes[e->from].id);
        stk_text_add(&t, " -> ");
        dot_quote(&t, plan->nodes[e->to].id);
        stk_text_add(&t, " [label=");
        dot_quote(&t, label);
        stk_text_addf(&t, ", color=\"%s\", fontcolor=\"%s\"];\n",
                      colours[e->mem].line, colours[e->mem].line);
    }
    stk_text_add(&t, "}\n");
    return stk_text_take(&t);
}

// --- layout -----------------------------------------------------------------

enum {
    BOX_WIDTH = 236,
    BOX_HEIGHT = 44,
    BEND_WIDTH = 28,
    GAP = 28,
    LAYER_GAP = 76,
    MARGIN = 24,
    HEAD = 84,
    SWEEPS = 12,
    LABEL_CHARS = 40,
};

// A box, or a point where a long edge passes a layer.
struct spot {
    uint32_t layer, place;  // place: order within the layer
    double x, want;         // centre
    bool box;
};
// Neighbouring spots in adjacent layers.
struct link {
    uint32_t above, below;
};

struct drawing {
    const struct pen_plan *plan;
    struct spot *spots;  // the nodes first
    uint32_t spot_count;
    struct link *links;
    uint32_t link_count;
    uint32_t *bend;         // first bend of each edge; the rest follow
    uint32_t *layer_first;  // spots by layer, into `order`
    uint32_t *order;
    uint32_t layers;
    uint32_t *up_first, *up, *down_first, *down;  // links by spot
    double width;
};

static void drawing_finish(struct drawing *d)
{
    free(d->spots);
    free(d->links);
    free(d->bend);
    free(d->layer_first);
    free(d->order);
    free(d->up_first);
    free(d->up);
    free(d->down_first);
    free(d->down);
}

static double half_width(const struct spot *s)
{
    return (s->box ? BOX_WIDTH : BEND_WIDTH) / 2.0;
}

static uint32_t span(const struct drawing *d, const struct stk_plan_edge *e)
{
    return d->spots[e->to].layer - d->spots[e->from].layer;
}

static bool make_spots(struct drawing *d)
{
    const struct pen_plan *plan = d->plan;
    const uint32_t n = plan->node_count;
    uint32_t *layer = calloc((size_t)n + 1, sizeof(*layer));
    d->bend = calloc((size_t)plan->edge_count + 1, sizeof(*d->bend));
    if (!layer || !d->bend) {
        free(layer);
        return false;
    }
    for (uint32_t i = 0; i < n; i++) {
        if (layer[i] >= d->layers)
            d->layers = layer[i] + 1;
        for (uint32_t e = plan->first_out[i]; e < plan->first_out[i + 1]; e++)
            if (layer[plan->edges[e].to] <= layer[i])
                layer[plan->edges[e].to] = layer[i] + 1;
    }
    // Of very long edges only the ends are laid out.
    uint64_t bends = 0;
    for (uint32_t e = 0; e < plan->edge_count; e++)
        bends += layer[plan->edges[e].to] - layer[plan->edges[e].from] - 1;
    const bool bend = bends <= 8 * (uint64_t)n + 256;
    d->spot_count = n + (bend ? (uint32_t)bends : 0);
    d->spots = calloc((size_t)d->spot_count + 1, sizeof(*d->spots));
    d->links =
        calloc((size_t)d->spot_count + plan->edge_count + 1, sizeof(*d->links));
    if (!d->spots || !d->links) {
        free(layer);
        return false;
    }
    for (uint32_t i = 0; i < n; i++)
        d->spots[i] = (struct spot){ .layer = layer[i], .box = true };
    free(layer);
    uint32_t next = n;
    for (uint32_t e = 0; e < plan->edge_count; e++) {
        const struct stk_plan_edge *edge = &plan->edges[e];
        const uint32_t steps = span(d, edge);
        uint32_t above = edge->from;
        d->bend[e] = UINT32_MAX;
        if (steps > 1 && !bend)
            continue;
        for (uint32_t s = 1; s < steps; s++) {
            if (s == 1)
                d->bend[e] = next;
            d->spots[next].layer = d->spots[edge->from].layer + s;
            d->links[d->link_count++] = (struct link){ above, next };
            above = next++;
        }
        d->links[d->link_count++] = (struct link){ above, edge->to };
    }
    return true;
}

static bool index_links(struct drawing *d)
{
    const size_t spots = (size_t)d->spot_count + 2;
    d->up_first = calloc(spots, sizeof(*d->up_first));
    d->down_first = calloc(spots, sizeof(*d->down_first));
    d->up = calloc((size_t)d->link_count + 1, sizeof(*d->up));
    d->down = calloc((size_t)d->link_count + 1, sizeof(*d->down));
    d->layer_first = calloc((size_t)d->layers + 2, sizeof(*d->layer_first));
    d->order = calloc(spots, sizeof(*d->order));
    if (!d->up_first || !d->down_first || !d->up || !d->down ||
        !d->layer_first || !d->order)
        return false;
    for (uint32_t l = 0; l < d->link_count; l++) {
        d->up_first[d->links[l].below + 1]++;
        d->down_first[d->links[l].above + 1]++;
    }
    for (uint32_t s = 0; s < d->spot_count; s++) {
        d->up_first[s + 1] += d->up_first[s];
        d->down_first[s + 1] += d->down_first[s];
        d->layer_first[d->spots[s].layer + 1]++;
    }
    for (uint32_t l = d->link_count; l-- > 0;) {
        d->up[--d->up_first[d->links[l].below + 1]] = d->links[l].above;
        d->down[--d->down_first[d->links[l].above + 1]] = d->links[l].below;
    }
    // Filling from the end moved each start down to its place.
    for (uint32_t s = 0; s < d->spot_count; s++) {
        d->up_first[s] = d->up_first[s + 1];
        d->down_first[s] = d->down_first[s + 1];
    }
    d->up_first[d->spot_count] = d->link_count;
    d->down_first[d->spot_count] = d->link_count;
    for (uint32_t i = 0; i < d->layers; i++)
        d->layer_first[i + 1] += d->layer_first[i];
    for (uint32_t s = d->spot_count; s-- > 0;)
        d->order[--d->layer_first[d->spots[s].layer + 1]] = s;
    for (uint32_t i = 0; i < d->layers; i++)
        d->layer_first[i] = d->layer_first[i + 1];
    d->layer_first[d->layers] = d->spot_count;
    return true;
}

static void pack(struct drawing *d, uint32_t layer)
{
    double x = 0;
    for (uint32_t i = d->layer_first[layer]; i < d->layer_first[layer + 1];
         i++) {
        struct spot *s = &d->spots[d->order[i]];
        s->place = i;
        s->x = x + half_width(s);
        x = s->x + half_width(s) + GAP;
    }
}

static double average(const struct drawing *d, const uint32_t *first,
                      const uint32_t *list, uint32_t spot)
{
    double sum = 0;
    const uint32_t begin = first[spot], end = first[spot + 1];
    if (begin == end)
        return d->spots[spot].x;
    for (uint32_t i = begin; i < end; i++)
        sum += d->spots[list[i]].x;
    return sum / (end - begin);
}

// Spots want to be where their neighbours above (or below) are.
static void wish(struct drawing *d, uint32_t begin, uint32_t end,
                 bool from_above)
{
    for (uint32_t i = begin; i < end; i++) {
        struct spot *s = &d->spots[d->order[i]];
        s->want = from_above ? average(d, d->up_first, d->up, d->order[i])
                             : average(d, d->down_first, d->down, d->order[i]);
    }
}

// Insertion sort by `want`: layers are nearly in order after the first sweep,
// and it leaves equals as they are.
static void reorder(struct drawing *d, uint32_t layer, bool from_above)
{
    const uint32_t begin = d->layer_first[layer];
    const uint32_t end = d->layer_first[layer + 1];
    wish(d, begin, end, from_above);
    for (uint32_t i = begin + 1; i < end; i++)
        for (uint32_t k = i;
             k > begin &&
             d->spots[d->order[k]].want < d->spots[d->order[k - 1]].want - 1e-6;
             k--) {
            const uint32_t swap = d->order[k];
            d->order[k] = d->order[k - 1];
            d->order[k - 1] = swap;
        }
    pack(d, layer);
}

// Move the spots of a layer towards their wishes, keeping order and distance:
// the mean of "as far left as allowed" and "as far right as allowed".
static void relax(struct drawing *d, uint32_t layer, bool from_above)
{
    const uint32_t begin = d->layer_first[layer];
    const uint32_t end = d->layer_first[layer + 1];
    wish(d, begin, end, from_above);
    double edge = -1e18;
    for (uint32_t i = begin; i < end; i++) {
        struct spot *s = &d->spots[d->order[i]];
        const double least = edge + half_width(s);
        s->x = s->want > least ? s->want : least;
        edge = s->x + half_width(s) + GAP;
    }
    edge = 1e18;
    for (uint32_t i = end; i-- > begin;) {
        struct spot *s = &d->spots[d->order[i]];
        const double most = edge - half_width(s);
        const double right = s->want < most ? s->want : most;
        s->x = (s->x + right) / 2;
        edge = right - half_width(s) - GAP;
    }
    edge = -1e18;
    for (uint32_t i = begin; i < end; i++) {
        struct spot *s = &d->spots[d->order[i]];
        if (s->x < edge + half_width(s))
            s->x = edge + half_width(s);
        edge = s->x + half_width(s) + GAP;
    }
}

static bool lay_out(struct drawing *d)
{
    if (!make_spots(d) || !index_links(d))
        return false;
    for (uint32_t l = 0; l < d->layers; l++)
        pack(d, l);
    for (int sweep = 0; sweep < SWEEPS; sweep++) {
        for (uint32_t l = 1; l < d->layers; l++)
            reorder(d, l, true);
        for (uint32_t l = d->layers; l-- > 1;)
            reorder(d, l - 1, false);
    }
    for (uint32_t l = 1; l < d->layers; l++)
        reorder(d, l, true);
    for (int sweep = 0; sweep < SWEEPS; sweep++) {
        for (uint32_t l = 1; l < d->layers; l++)
            relax(d, l, true);
        for (uint32_t l = d->layers; l-- > 1;)
            relax(d, l - 1, false);
    }
    double left = 0, right = 0;
    for (uint32_t s = 0; s < d->spot_count; s++) {
        const double l = d->spots[s].x - half_width(&d->spots[s]);
        const double r = d->spots[s].x + half_width(&d->spots[s]);
        if (s == 0 || l < left)
            left = l;
        if (s == 0 || r > right)
            right = r;
    }
    for (uint32_t s = 0; s < d->spot_count; s++)
        d->spots[s].x += MARGIN - left;
    d->width = right - left + 2 * MARGIN;
    return true;
}

// --- SVG --------------------------------------------------------------------

static void xml(struct stk_text *t, const char *s, size_t limit)
{
    size_t written = 0;
    for (; *s; s++) {
        const unsigned char c = (unsigned char)*s;
        // Cut between characters, not inside of one.
        if (limit && written >= limit && (c & 0xc0) != 0x80) {
            stk_text_add(t, "...");
            return;
        }
        if (c == '<')
            stk_text_add(t, "&lt;");
        else if (c == '>')
            stk_text_add(t, "&gt;");
        else if (c == '&')
            stk_text_add(t, "&amp;");
        else if (c == '"')
            stk_text_add(t, "&quot;");
        else if (c >= 0x20)
            stk_text_add_n(t, s, 1);
        written += (c & 0xc0) != 0x80;
    }
}

static int top_of(uint32_t layer)
{
    return HEAD + (int)layer * (BOX_HEIGHT + LAYER_GAP);
}

static int round_x(double x)
{
    return (int)(x + 0.5);
}

static void svg_node(struct stk_text *t, const struct drawing *d, uint32_t n)
{
    const struct stk_plan_node *node = &d->plan->nodes[n];
    const enum pen_mem_type mem = home_of(d->plan, n);
    const int x = round_x(d->spots[n].x), y = top_of(d->spots[n].layer);
    struct stk_text second = { 0 };
    stk_text_add(&second, node->type);
    if (!stk_plan_props_text(&second, d->plan, node, 200))
        t->failed = true;
    t->failed = t->failed || second.failed;
    stk_text_add(t, "<g><title>");
    xml(t, node->id, 0);
    stk_text_add(t, ": ");
    xml(t, node->inserted ? node->reason : second.data ? second.data : "", 0);
    if (node->loss[0]) {
        stk_text_add(t, "; loses ");
        xml(t, node->loss, 0);
    }
    stk_text_addf(t,
                  "</title><rect x=\"%d\" y=\"%d\" width=\"%d\" height=\"%d\" "
                  "rx=\"%d\" fill=\"%s\" stroke=\"%s\" stroke-width=\"%s\"%s/>",
                  x - BOX_WIDTH / 2, y, BOX_WIDTH, BOX_HEIGHT,
                  node->inserted ? 14 : 3, colours[mem].fill, colours[mem].line,
                  node->inserted ? "2" : "1.5",
                  node->inserted ? " stroke-dasharray=\"5 3\"" : "");
    stk_text_addf(t, "<text class=\"id\" x=\"%d\" y=\"%d\">", x, y + 18);
    xml(t, node->id, 30);
    stk_text_addf(t, "</text><text x=\"%d\" y=\"%d\">", x, y + 34);
    xml(t, second.data ? second.data : "", 36);
    stk_text_add(t, "</text></g>\n");
    stk_text_finish(&second);
}

static uint32_t inputs_of(const struct stk_plan_node *node)
{
    uint32_t count = 0;
    for (uint32_t i = 0; i < node->inputs; i++)
        count += node->in_edge[i] >= 0;
    return count;
}

static void svg_edge(struct stk_text *t, const struct drawing *d, uint32_t i)
{
    const struct pen_plan *plan = d->plan;
    const struct stk_plan_edge *e = &plan->edges[i];
    const uint32_t steps = d->bend[i] == UINT32_MAX ? 1 : span(d, e);
    const struct spot *from = &d->spots[e->from], *to = &d->spots[e->to];
    int x = round_x(from->x), y = top_of(from->layer) + BOX_HEIGHT;
    stk_text_addf(t, "<path d=\"M%d %d", x, y);
    for (uint32_t s = 1; s <= steps; s++) {
        const struct spot *next =
            s < steps ? &d->spots[d->bend[i] + s - 1] : to;
        const int nx = round_x(next->x), ny = top_of(next->layer) - 1;
        const int middle = (y + ny) / 2;
        stk_text_addf(t, " C%d %d %d %d %d %d", x, middle, nx, middle, nx,
                      s < steps ? ny : ny - 6);
        // A bend is passed straight down.
        x = nx;
        y = ny;
        if (s < steps) {
            y += BOX_HEIGHT;
            stk_text_addf(t, " L%d %d", x, y);
        }
    }
    stk_text_addf(t,
                  "\" fill=\"none\" stroke=\"%s\" stroke-width=\"2\" "
                  "marker-end=\"url(#m%d)\"/>\n",
                  colours[e->mem].line, (int)e->mem);
}

static void svg_label(struct stk_text *t, const struct drawing *d, uint32_t i)
{
    const struct pen_plan *plan = d->plan;
    const struct stk_plan_edge *e = &plan->edges[i];
    const uint32_t fan =
        plan->first_out[e->from + 1] - plan->first_out[e->from];
    const struct spot *from = &d->spots[e->from], *to = &d->spots[e->to];
    // At the end that has no other edge there is room.
    const bool at_source = fan == 1 && inputs_of(&plan->nodes[e->to]) > 1;
    const int x = round_x(at_source ? from->x : to->x);
    const int y = at_source ? top_of(from->layer) + BOX_HEIGHT + 17
                            : top_of(to->layer) - 32;
    char first[256], second[256];
    edge_lines(plan, e, first, second, sizeof(first));
    // A light ground lifts the words off the line that they stand on.
    size_t longest =
        strlen(first) > strlen(second) ? strlen(first) : strlen(second);
    if (longest > LABEL_CHARS)
        longest = LABEL_CHARS + 3;
    const int width = 8 + (int)longest * 11 / 2;
    stk_text_addf(t,
                  "<rect x=\"%d\" y=\"%d\" width=\"%d\" height=\"27\" "
                  "rx=\"3\" fill=\"#ffffff\" fill-opacity=\"0.9\"/>"
                  "<text class=\"label\" x=\"%d\" y=\"%d\" fill=\"%s\">"
                  "<tspan x=\"%d\">",
                  x - width / 2, y - 10, width, x, y, colours[e->mem].line, x);
    xml(t, first, LABEL_CHARS);
    stk_text_addf(t, "</tspan><tspan x=\"%d\" dy=\"13\">", x);
    xml(t, second, LABEL_CHARS);
    stk_text_add(t, "</tspan></text>\n");
}

static void svg_legend(struct stk_text *t, const struct pen_plan *plan)
{
    const char *name = plan->desc ? plan->desc->name : NULL;
    bool used[PEN_MEM_COUNT] = { false };
    int x = MARGIN;
    stk_text_addf(t, "<text class=\"title\" x=\"%d\" y=\"28\">", MARGIN);
    xml(t, name && *name ? name : "plan", 60);
    stk_text_add(t, "</text>\n");
    for (uint32_t n = 0; n < plan->node_count; n++)
        used[home_of(plan, n)] = true;
    for (unsigned m = PEN_MEM_HOST; m < PEN_MEM_COUNT; m++) {
        const char *text = pen_mem_name((enum pen_mem_type)m);
        if (!used[m])
            continue;
        stk_text_addf(t,
                      "<rect x=\"%d\" y=\"42\" width=\"14\" height=\"14\" "
                      "fill=\"%s\" stroke=\"%s\" stroke-width=\"1.5\"/>"
                      "<text class=\"legend\" x=\"%d\" y=\"53\">%s</text>\n",
                      x, colours[m].fill, colours[m].line, x + 20, text);
        x += 36 + 8 * (int)strlen(text);
    }
    stk_text_addf(t,
                  "<rect x=\"%d\" y=\"42\" width=\"22\" height=\"14\" rx=\"6\" "
                  "fill=\"none\" stroke=\"#555555\" stroke-width=\"1.5\" "
                  "stroke-dasharray=\"4 2\"/><text class=\"legend\" x=\"%d\" "
                  "y=\"53\">inserted by the planner</text>\n",
                  x, x + 28);
}

char *pen_plan_svg(const struct pen_plan *plan)
{
    enum { LEGEND_WIDTH = 640 };
    struct drawing d = { .plan = plan };
    struct stk_text t = { 0 };
    if (!lay_out(&d)) {
        drawing_finish(&d);
        return NULL;
    }
    const int width = d.width > LEGEND_WIDTH ? round_x(d.width) : LEGEND_WIDTH;
    const int height = top_of(d.layers) - LAYER_GAP + MARGIN;
    for (uint32_t s = 0; s < d.spot_count; s++)
        d.spots[s].x += (width - d.width) / 2;
    stk_text_addf(
        &t,
        "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"%d\" "
        "height=\"%d\" viewBox=\"0 0 %d %d\">\n"
        "<style>text{font-family:sans-serif;font-size:11px;"
        "text-anchor:middle}.id{font-size:13px;font-weight:bold}"
        ".label{font-size:10px}.title{font-size:17px;font-weight:bold;"
        "text-anchor:start}.legend{text-anchor:start}</style>\n"
        "<rect width=\"100%%\" height=\"100%%\" fill=\"#ffffff\"/>\n"
        "<defs>\n",
        width, height, width, height);
    for (unsigned m = 0; m < PEN_MEM_COUNT; m++)
        stk_text_addf(&t,
                      "<marker id=\"m%u\" viewBox=\"0 0 8 8\" refX=\"2\" "
                      "refY=\"4\" markerWidth=\"5\" markerHeight=\"5\" "
                      "orient=\"auto\"><path d=\"M0 0 L8 4 L0 8 z\" "
                      "fill=\"%s\"/></marker>\n",
                      m, colours[m].line);
    stk_text_add(&t, "</defs>\n");
    svg_legend(&t, plan);
    for (uint32_t i = 0; i < plan->edge_count; i++)
        svg_edge(&t, &d, i);
    for (uint32_t n = 0; n < plan->node_count; n++)
        svg_node(&t, &d, n);
    for (uint32_t i = 0; i < plan->edge_count; i++)
        svg_label(&t, &d, i);
    stk_text_add(&t, "</svg>\n");
    drawing_finish(&d);
    return stk_text_take(&t);
}
