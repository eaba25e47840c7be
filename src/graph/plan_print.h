#ifndef STK_PLAN_PRINT_H
#define STK_PLAN_PRINT_H

// What the printers of a plan share: words and columns (plan_words.c), and what
// can be read from a plan but stands nowhere in it (plan_facts.c).
// plan_chain.c draws the chain of modules, plan_print.c the text around it,
// plan_json.c the same for programs, plan_dot.c and plan_svg.c pictures
// (plan_draw.h).

#include "planner.h"

// --- words ------------------------------------------------------------------

// "1.5 us", "2.29 ms".
void stk_plan_cost_text(int64_t ns, char *text, size_t size);
// "Resize", or "Resize = ResizeNPPI" where the file says something else than
// the class's name.
void stk_plan_type_text(const struct stk_plan_node *node, char *text,
                        size_t size);
// Whether such frames have a width and a height.
bool stk_caps_sized(const struct pen_caps *caps);
// "1.50 MiB", "1.50 MiB + ?" of a sum of which not all is known, "?".
void stk_plan_sum_text(uint64_t bytes, bool known, char *text, size_t size);
// The cost of a frame in the same way.
void stk_plan_total_text(const struct pen_plan *plan, char *text, size_t size);
// "optimal", "within 12.3 us (6.2 %) of the best possible".
void stk_plan_quality_text(const struct pen_plan *plan, char *text,
                           size_t size);
// The parts of caps; "" where a kind of frames has none.
void stk_plan_format_text(const struct pen_caps *caps, char *text, size_t size);
void stk_plan_extent_text(const struct pen_caps *caps, char *text, size_t size);
void stk_plan_colour_text(const struct pen_caps *caps, char *text, size_t size);
void stk_plan_rate_text(const struct pen_caps *caps, char *text, size_t size);
// Where the samples lie; false if it is unknown, or the frames have no rows.
bool stk_plan_layout(const struct pen_caps *caps, struct pen_layout *out);
// Columns that a terminal takes for UTF-8 text. Control characters count one,
// as stk_text_add_plain() writes them.
size_t stk_text_columns(const char *s);

// --- aligned lines ----------------------------------------------------------

// The memory types have their numbers.
enum stk_paint {
    STK_PAINT_NONE = 0,
    STK_PAINT_BRIDGE = PEN_MEM_COUNT,
    STK_PAINT_LOSS,
    STK_PAINT_QUIET,
    STK_PAINT_TITLE,
};
// A line in the making. Blanks are written only in front of something, so that
// no line ends in blanks.
struct stk_cells {
    struct stk_text *t;
    bool colour;
    size_t blanks;
};
void stk_cells_add(struct stk_cells *c, const char *text, enum stk_paint paint);
// Text in a column of `width`, and `gap` blanks behind it; a wider one pushes
// what follows. A column without width is not there.
void stk_cells_left(struct stk_cells *c, const char *text, size_t width,
                    size_t gap, enum stk_paint paint);
void stk_cells_right(struct stk_cells *c, const char *text, size_t width,
                     size_t gap, enum stk_paint paint);
void stk_cells_end(struct stk_cells *c);

// --- facts ------------------------------------------------------------------

// Nanoseconds of a frame by what does the work.
struct stk_plan_parts {
    int64_t h2d, d2h, d2d, device, host;
};
struct stk_plan_parts stk_plan_parts(const struct pen_plan *plan);

// Whether the bytes of all such copies are known.
bool stk_plan_moves_known(const struct pen_plan *plan,
                          enum stk_transfer transfer);

// What a module holds, by the type whose budget it counts against.
struct stk_holding {
    uint32_t node;
    uint64_t pools[PEN_MEM_COUNT], workspace[PEN_MEM_COUNT];
    uint32_t unknown;  // bits of memory types: pools of unknown size
    uint64_t sum;
};
// Of all modules that hold something, the largest first; to be freed. NULL: no
// memory.
struct stk_holding *stk_plan_holdings(const struct pen_plan *plan,
                                      uint32_t *count);

// What is not known of the frames of an output.
enum stk_gap {
    STK_GAP_FORMAT = 1,
    STK_GAP_SIZE = 2,
    STK_GAP_BYTES = 4,  // of frames that have no layout
    STK_GAP_MATRIX = 8,
    STK_GAP_RANGE = 16,
    STK_GAP_RATE = 32,  // where other frames of the plan have one
};
enum { STK_GAPS = 6 };
extern const char *const stk_gap_names[STK_GAPS];
struct stk_unknown {
    uint32_t node, pin;
    unsigned gaps;  // bits of stk_gap
    unsigned own;   // those that do not come from an input
};
// Of all connected outputs of which something is unknown; to be freed. NULL: no
// memory.
struct stk_unknown *stk_plan_unknowns(const struct pen_plan *plan,
                                      uint32_t *count);
// What would settle it before start; "" if nothing does.
void stk_unknown_cure(const struct pen_plan *plan, const struct stk_unknown *u,
                      char *text, size_t size);

// Whether some bridge loses something.
bool stk_plan_lossy(const struct pen_plan *plan);

// --- the parts of the text --------------------------------------------------

// The chain of modules; false: no memory. What is wrong with `t` is remembered
// there.
bool stk_plan_chain(const struct pen_plan *plan, struct stk_text *t,
                    bool colour);

#endif  // STK_PLAN_PRINT_H
