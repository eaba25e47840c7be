#ifndef STK_PLAN_LAYOUT_H
#define STK_PLAN_LAYOUT_H

// Places for the boxes and lines of a picture, in pixels from the top left.

#include "plan.h"

struct stk_extent {
    int width, height;
};

// A box, or a point where a long line passes a layer.
struct stk_spot {
    uint32_t layer;
    double x, want, half;  // centre, where it would like to be, half its width
};

struct stk_layout {
    const struct pen_plan *plan;
    // Given: how large the box of each node is, and the words at each edge.
    const struct stk_extent *box, *label;

    struct stk_spot *spots;  // the nodes first
    uint32_t spot_count, layers;
    uint32_t *bend;     // first bend of each edge, the rest follow; UINT32_MAX:
                        // none, though it may be long
    double *port;       // where each edge arrives at its box
    int *top, *bottom;  // of the boxes of each layer
    int *words;         // top of the words above each layer
    int width, height;

    // Neighbours in adjacent layers, and the order within each layer.
    struct stk_link *links;
    uint32_t link_count;
    uint32_t *layer_first, *order;
    uint32_t *up_first, *up, *down_first, *down;
};

// Find places below `head`; false: no memory. Finish it in any case.
bool stk_layout_make(struct stk_layout *l, int head, int margin);
void stk_layout_finish(struct stk_layout *l);
// Layers that an edge leads down.
uint32_t stk_layout_span(const struct stk_layout *l,
                         const struct stk_plan_edge *e);

#endif  // STK_PLAN_LAYOUT_H
