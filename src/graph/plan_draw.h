#ifndef STK_PLAN_DRAW_H
#define STK_PLAN_DRAW_H

// What both kinds of pictures show (plan_draw.c).

#include "plan_print.h"

// One for each memory type, told apart by all kinds of eyes (Okabe and Ito's
// blue, orange, green and purple), as lines on white, and as a ground for dark
// words.
struct stk_shade {
    const char *line, *fill;
};
extern const struct stk_shade stk_shades[PEN_MEM_COUNT];
#define STK_SHADE_WORDS "#1a1a1a"
#define STK_SHADE_QUIET "#4d4d4d"
#define STK_SHADE_LOSS  "#8f3300"

// Where a module's frames live: its first connected output, else its input.
enum pen_mem_type stk_draw_home(const struct pen_plan *plan, uint32_t n);
// Which memory types have to be explained.
void stk_draw_used(const struct pen_plan *plan, bool used[PEN_MEM_COUNT]);

// The words at an edge: between which pins, where that is not clear; what
// flows; where it lies and how much of it.
enum { STK_DRAW_LINES = 3, STK_DRAW_LINE = 256 };
struct stk_draw_edge {
    unsigned count;
    char line[STK_DRAW_LINES][STK_DRAW_LINE];
};
void stk_draw_edge(const struct pen_plan *plan, const struct stk_plan_edge *e,
                   struct stk_draw_edge *out);
// The words in a box, below its name; false: no memory.
struct stk_draw_node {
    char type[STK_DRAW_LINE], loss[STK_DRAW_LINE];
    struct stk_text props;
};
bool stk_draw_node(const struct pen_plan *plan, uint32_t n,
                   struct stk_draw_node *out);
// What is said of the whole: "7 modules, 2 bridges, optimal, 2.29 ms per
// frame".
void stk_draw_summary(const struct pen_plan *plan, char *text, size_t size);
// Text for XML, and for the labels of Graphviz that are like it: what has a
// meaning there is escaped, what may not be there is left out.
void stk_draw_escape(struct stk_text *t, const char *s, size_t count);
const char *stk_draw_title(const struct pen_plan *plan);

#endif  // STK_PLAN_DRAW_H
