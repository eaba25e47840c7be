// A plan as a picture that needs no other program: SVG.

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "plan_draw.h"
#include "plan_layout.h"

enum {
    MARGIN = 24,
    HEAD = 104,     // title, summary, legend
    MIN_BOX = 150,  // width
    MAX_BOX = 300,
    MAX_PROPS = 200,  // for properties alone a box does not grow further
    MAX_WORDS = 280,  // width of the words at an edge
    PAD = 10,         // left and right of words
    LINE = 15,        // from line to line in a box
    WORDS_LINE = 13,  // at an edge
};

// --- text -------------------------------------------------------------------

struct font {
    int size;  // pixels
    bool bold;
};
static const struct font font_title = { 17, true }, font_id = { 13, true },
                         font_type = { 11, false }, font_small = { 10, false };

// Thousandths of the font's size that a character takes in DejaVu Sans, one of
// the widest fonts that a viewer may choose.
static unsigned advance(unsigned char c)
{
    if (strchr("il.,:;|!'` Ijfrt()[]/\\\"-", c))
        return 420;
    if (strchr("mwMWQOGD@%+=<>~#&_", c))
        return 870;
    return c >= 'A' && c <= 'Z' ? 720 : 640;
}

static int width_of(const char *s, struct font font)
{
    const char *end = s + strlen(s);
    uint64_t sum = 0;
    while (s < end) {
        const size_t length = stk_utf8_length(s, end);
        char c[8] = "";
        memcpy(c, s, length ? length : 1);
        sum += length == 1 ? advance((unsigned char)*s)
                           : 100 + 500 * stk_text_columns(c);
        s += length ? length : 1;
    }
    sum = sum * (unsigned)font.size * (font.bold ? 112 : 100) / 100000;
    return sum > 1 << 20 ? 1 << 20 : (int)sum;
}

// Bytes of `s` that fit into `width` together with "..."; all of them if it
// fits without.
static size_t cut(const char *s, struct font font, int width)
{
    const size_t all = strlen(s);
    size_t fits = 0;
    if (width_of(s, font) <= width)
        return all;
    width -= width_of("...", font);
    for (size_t at = 0; at < all;) {
        const size_t length = stk_utf8_length(s + at, s + all);
        char c[8] = "";
        memcpy(c, s + at, length ? length : 1);
        width -= width_of(c, font);
        if (width < 0)
            break;
        at += length ? length : 1;
        fits = at;
    }
    return fits;
}

static void xml(struct stk_text *t, const char *s)
{
    stk_draw_escape(t, s, strlen(s));
}

// A line of words, cut where they would be wider than `width`.
static void line(struct stk_text *t, const char *class, struct font font, int x,
                 int y, int width, const char *words)
{
    const size_t fits = cut(words, font, width);
    stk_text_addf(t, "<text class=\"%s\" x=\"%d\" y=\"%d\">", class, x, y);
    stk_draw_escape(t, words, fits);
    stk_text_add(t, words[fits] ? "...</text>" : "</text>");
}

static int round_x(double x)
{
    return (int)(x + 0.5);
}

// --- sizes ------------------------------------------------------------------

static int at_least(int value, int least)
{
    return value > least ? value : least;
}

static int at_most(int value, int most)
{
    return value < most ? value : most;
}

static bool measure_node(const struct pen_plan *plan, uint32_t n,
                         struct stk_extent *box)
{
    struct stk_draw_node words;
    const bool ok = stk_draw_node(plan, n, &words);
    int width = width_of(plan->nodes[n].id, font_id);
    width = at_least(width, width_of(words.type, font_type));
    width = at_least(width, width_of(words.loss, font_small));
    if (words.props.length)
        width = at_least(
            width, at_most(width_of(words.props.data, font_small), MAX_PROPS));
    *box = (struct stk_extent){
        .width = at_most(at_least(width + 2 * PAD, MIN_BOX), MAX_BOX),
        .height = 2 * LINE + 12 + (words.props.length ? LINE : 0) +
                  (words.loss[0] ? LINE : 0),
    };
    stk_text_finish(&words.props);
    return ok;
}

static struct stk_extent measure_edge(const struct pen_plan *plan, uint32_t e)
{
    struct stk_draw_edge words;
    int width = 0;
    stk_draw_edge(plan, &plan->edges[e], &words);
    for (unsigned i = 0; i < words.count; i++)
        width = at_least(width, width_of(words.line[i], font_small));
    return (struct stk_extent){ at_most(width, MAX_WORDS) + 6,
                                (int)words.count * WORDS_LINE + 4 };
}

// --- boxes and lines --------------------------------------------------------

static void box_title(struct stk_text *t, const struct stk_plan_node *node,
                      const struct stk_draw_node *words)
{
    stk_text_add(t, "<title>");
    xml(t, node->id);
    stk_text_add(t, ": ");
    xml(t, words->type);
    xml(t, words->props.data ? words->props.data : "");
    if (node->inserted || node->choice[0])
        stk_text_add(t, "; why: ");
    xml(t, node->inserted ? node->reason : node->choice);
    if (words->loss[0])
        stk_text_add(t, "; ");
    xml(t, words->loss);
    stk_text_add(t, "</title>");
}

static void box(struct stk_text *t, const struct stk_layout *l, uint32_t n)
{
    const struct stk_plan_node *node = &l->plan->nodes[n];
    const struct stk_shade *shade = &stk_shades[stk_draw_home(l->plan, n)];
    const struct stk_spot *spot = &l->spots[n];
    const int x = round_x(spot->x), width = (int)(2 * spot->half);
    const int room = width - 2 * PAD;
    int y = l->top[spot->layer];
    struct stk_draw_node words;
    if (!stk_draw_node(l->plan, n, &words))
        t->failed = true;
    stk_text_add(t, "<g>");
    box_title(t, node, &words);
    stk_text_addf(t,
                  "<rect x=\"%d\" y=\"%d\" width=\"%d\" height=\"%d\" "
                  "rx=\"%d\" fill=\"%s\" stroke=\"%s\" stroke-width=\"%s\"%s/>",
                  x - width / 2, y, width, l->box[n].height,
                  node->inserted ? 14 : 3, shade->fill, shade->line,
                  node->inserted ? "2" : "1.5",
                  node->inserted ? " stroke-dasharray=\"6 3\"" : "");
    line(t, "id", font_id, x, y += LINE + 3, room, node->id);
    line(t, "type", font_type, x, y += LINE, room, words.type);
    if (words.props.length)
        line(t, "props", font_small, x, y += LINE, room, words.props.data + 1);
    if (words.loss[0])
        line(t, "loss", font_small, x, y + LINE, room, words.loss);
    stk_text_add(t, "</g>\n");
    stk_text_finish(&words.props);
}

static void path(struct stk_text *t, const struct stk_layout *l, uint32_t i)
{
    const struct stk_plan_edge *e = &l->plan->edges[i];
    const uint32_t steps = l->bend[i] == UINT32_MAX ? 1 : stk_layout_span(l, e);
    const struct stk_spot *from = &l->spots[e->from];
    const uint32_t last = l->spots[e->to].layer;
    int x = round_x(from->x);
    int y = l->top[from->layer] + l->box[e->from].height;
    stk_text_addf(t, "<path d=\"M%d %d", x, y);
    for (uint32_t s = 1; s <= steps; s++) {
        const bool end = s == steps;
        const uint32_t layer = end ? last : from->layer + s;
        const int nx =
            round_x(end ? l->port[i] : l->spots[l->bend[i] + s - 1].x);
        // From the end of the boxes above to the words, and straight on.
        const int start = l->bottom[layer - 1], ny = l->words[layer];
        if (s == 1 && y < start)
            stk_text_addf(t, " L%d %d", x, start);
        const int middle = (start + ny) / 2;
        if (nx == x)
            stk_text_addf(t, " L%d %d", nx, ny);
        else
            stk_text_addf(t, " C%d %d %d %d %d %d", x, middle, nx, middle, nx,
                          ny);
        x = nx;
        stk_text_addf(t, " L%d %d", x,
                      end ? l->top[layer] - 7 : l->bottom[layer]);
    }
    stk_text_addf(t,
                  "\" fill=\"none\" stroke=\"%s\" stroke-width=\"2\" "
                  "marker-end=\"url(#m%d)\"/>\n",
                  stk_shades[e->mem].line, (int)e->mem);
}

// A light ground lifts the words off the line that they stand on.
static void label(struct stk_text *t, const struct stk_layout *l, uint32_t i)
{
    const struct stk_plan_edge *e = &l->plan->edges[i];
    const int x = round_x(l->port[i]), y = l->words[l->spots[e->to].layer];
    const int width = l->label[i].width;
    struct stk_draw_edge words;
    stk_draw_edge(l->plan, e, &words);
    stk_text_add(t, "<g><title>");
    for (unsigned k = 0; k < words.count; k++) {
        stk_text_add(t, k ? ", " : "");
        xml(t, words.line[k]);
    }
    stk_text_addf(t,
                  ", depth %u</title><rect x=\"%d\" y=\"%d\" width=\"%d\" "
                  "height=\"%d\" rx=\"3\" fill=\"#ffffff\"/>",
                  e->depth, x - width / 2, y, width, l->label[i].height);
    for (unsigned k = 0; k < words.count; k++)
        line(t, "words", font_small, x, y + WORDS_LINE * ((int)k + 1) - 1,
             MAX_WORDS, words.line[k]);
    stk_text_add(t, "</g>\n");
}

// --- the whole --------------------------------------------------------------

// Returns where it ends on the right.
static int head(struct stk_text *t, const struct pen_plan *plan)
{
    enum { MAX_TITLE = 620 };
    static const char inserted[] = "inserted by the planner";
    const char *title = stk_draw_title(plan);
    bool used[PEN_MEM_COUNT];
    char summary[192];
    int x = MARGIN;
    stk_draw_summary(plan, summary, sizeof(summary));
    line(t, "title", font_title, x, 30, MAX_TITLE, title);
    line(t, "left", font_type, x, 50, MAX_TITLE, summary);
    stk_text_add(t, "\n");
    const int words =
        at_least(at_most(width_of(title, font_title), MAX_TITLE),
                 at_most(width_of(summary, font_type), MAX_TITLE));
    stk_draw_used(plan, used);
    for (unsigned m = PEN_MEM_HOST; m < PEN_MEM_COUNT; m++) {
        const char *name = pen_mem_name((enum pen_mem_type)m);
        if (!used[m])
            continue;
        stk_text_addf(t,
                      "<rect x=\"%d\" y=\"64\" width=\"14\" height=\"14\" "
                      "fill=\"%s\" stroke=\"%s\" stroke-width=\"1.5\"/>",
                      x, stk_shades[m].fill, stk_shades[m].line);
        line(t, "left", font_type, x + 20, 75, MAX_TITLE, name);
        stk_text_add(t, "\n");
        x += 40 + width_of(name, font_type);
    }
    stk_text_addf(t,
                  "<rect x=\"%d\" y=\"64\" width=\"24\" height=\"14\" rx=\"6\" "
                  "fill=\"none\" stroke=\"" STK_SHADE_QUIET
                  "\" stroke-width=\"1.5\" stroke-dasharray=\"4 2\"/>",
                  x);
    line(t, "left", font_type, x + 30, 75, MAX_TITLE, inserted);
    stk_text_add(t, "\n");
    x += 30 + width_of(inserted, font_type);
    return at_least(x, MARGIN + words) + MARGIN;
}

static void begin(struct stk_text *t, const char *title, int width, int height)
{
    stk_text_addf(t,
                  "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"%d\" "
                  "height=\"%d\" viewBox=\"0 0 %d %d\" role=\"img\">\n<title>",
                  width, height, width, height);
    xml(t, title);
    stk_text_addf(
        t,
        "</title>\n"
        "<style>text{font-family:sans-serif;font-size:%dpx;fill:%s;"
        "text-anchor:middle}.id{font-size:%dpx;font-weight:bold}"
        ".props,.words,.loss{font-size:%dpx}.props{fill:%s}.loss{fill:%s}"
        ".title{font-size:%dpx;font-weight:bold}"
        ".title,.left{text-anchor:start}</style>\n"
        "<rect width=\"100%%\" height=\"100%%\" fill=\"#ffffff\"/>\n"
        "<defs>\n",
        font_type.size, STK_SHADE_WORDS, font_id.size, font_small.size,
        STK_SHADE_QUIET, STK_SHADE_LOSS, font_title.size);
    for (unsigned m = 0; m < PEN_MEM_COUNT; m++)
        stk_text_addf(t,
                      "<marker id=\"m%u\" viewBox=\"0 0 8 8\" refX=\"2\" "
                      "refY=\"4\" markerWidth=\"5\" markerHeight=\"5\" "
                      "orient=\"auto\"><path d=\"M0 0 L8 4 L0 8 z\" "
                      "fill=\"%s\"/></marker>\n",
                      m, stk_shades[m].line);
    stk_text_add(t, "</defs>\n");
}

static bool measure(const struct pen_plan *plan, struct stk_extent *boxes,
                    struct stk_extent *labels)
{
    bool ok = boxes && labels;
    for (uint32_t n = 0; ok && n < plan->node_count; n++)
        ok = measure_node(plan, n, &boxes[n]);
    for (uint32_t e = 0; ok && e < plan->edge_count; e++)
        labels[e] = measure_edge(plan, e);
    return ok;
}

static char *draw(struct stk_layout *l)
{
    const struct pen_plan *plan = l->plan;
    struct stk_text t = { 0 }, top = { 0 };
    const int least = head(&top, plan);
    const int width = at_least(l->width, least);
    for (uint32_t s = 0; s < l->spot_count; s++)
        l->spots[s].x += (width - l->width) / 2.0;
    for (uint32_t e = 0; e < plan->edge_count; e++)
        l->port[e] += (width - l->width) / 2.0;
    begin(&t, stk_draw_title(plan), width, l->height);
    stk_text_add(&t, top.data ? top.data : "");
    t.failed = t.failed || top.failed;
    stk_text_finish(&top);
    for (uint32_t i = 0; i < plan->edge_count; i++)
        path(&t, l, i);
    for (uint32_t n = 0; n < plan->node_count; n++)
        box(&t, l, n);
    for (uint32_t i = 0; i < plan->edge_count; i++)
        label(&t, l, i);
    stk_text_add(&t, "</svg>\n");
    return stk_text_take(&t);
}

char *pen_plan_svg(const struct pen_plan *plan)
{
    struct stk_extent *boxes =
        calloc((size_t)plan->node_count + 1, sizeof(*boxes));
    struct stk_extent *labels =
        calloc((size_t)plan->edge_count + 1, sizeof(*labels));
    struct stk_layout l = { .plan = plan, .box = boxes, .label = labels };
    char *text = NULL;
    if (measure(plan, boxes, labels) && stk_layout_make(&l, HEAD, MARGIN))
        text = draw(&l);
    stk_layout_finish(&l);
    free(boxes);
    free(labels);
    return text;
}
