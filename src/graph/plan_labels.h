#ifndef STK_PLAN_LABELS_H
#define STK_PLAN_LABELS_H

// What may arrive at each input and what each module makes of it: the tables
// over which plan_joint.c decides. All arrays are indexed by numbers, so that
// they can grow.

#include "plan_joint.h"

struct stk_edge_labels {
    uint32_t first, count;  // labels
    uint32_t groups;        // labels that the consumer cannot tell apart
    uint32_t value;         // first of a price for each group
    uint32_t weight;        // connections that see what is lost here
};

// A state of the producer's board in which the consumer can be served.
struct stk_proto {
    uint8_t state;
    bool amiss;      // the consumer does not take what is there
    uint16_t label;  // of the edge
};
struct stk_link {
    uint32_t first, count;  // protos
};

// An output as it may be.
struct stk_variant_pin {
    struct stk_board_key key;
    uint32_t roots;  // homes in which its frames may be born
    uint32_t links;  // one for each of its edges
};
struct stk_variant {
    uint32_t pin;  // of its first output
    struct stk_value value;
};

#define STK_CASE_REFUSED (UINT32_MAX - 1)  // the module does not take that
#define STK_CASE_UNTAKEN UINT32_MAX        // no option for that
// An option of a module with a combination of labels at its inputs.
struct stk_case {
    uint32_t variant;
    int64_t cost;  // of the module itself, in ticks
};
struct stk_spot {
    uint32_t edge[PEN_MAX_PINS];  // of connected inputs
    uint32_t inputs, combos;
    uint32_t first_case;  // combination by combination, option by option
    uint32_t first_variant, variants;
    uint32_t table;  // first of a value for each combination
    bool tied;       // the table is no sum of prices of the inputs
};

enum { STK_AT_OPEN = -2 };  // where an edge is served: not decided yet

struct stk_labels {
    struct stk_planner *planner;
    struct stk_spot *spots;         // by node of the graph
    struct stk_edge_labels *edges;  // by edge of the graph
    struct stk_label *labels;
    struct stk_proto *protos;
    struct stk_link *links;
    struct stk_variant_pin *pins;
    struct stk_variant *variants;
    struct stk_case *cases;
    uint32_t label_count, label_room, proto_count, proto_room, link_count,
        link_room, pin_count, pin_room, variant_count, variant_room, case_count,
        case_room, value_count;
    bool *wants_dmabuf;  // by node and pin
    bool cut;            // some combinations were left out
    // For decisions: values of tables and prices, the latter as they were
    // before any was settled; by edge what is fixed and chosen (groups, -1).
    struct stk_value *values, *shares, *scratch;
    int32_t *fixed, *chosen;
    struct stk_offer *offers;
    uint32_t offer_room;
    struct stk_end *ends;
    int16_t *at;
    uint64_t work;
};

// Errors: PEN_E_NOMEM. To be finished in any case.
PEN_NODISCARD enum pen_status stk_labels_init(struct stk_labels *l,
                                              struct stk_planner *p,
                                              struct pen_error *err);
void stk_labels_finish(struct stk_labels *l);

#endif  // STK_PLAN_LABELS_H
