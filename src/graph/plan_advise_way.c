// Ways of frames in words: "a -> up (to the device) -> b".

#include "plan_advise.h"

bool stk_way_has(const struct stk_advice *a, uint32_t number)
{
    return a->traces[number].printed == a->telling;
}

void stk_way_begin(struct stk_advice *a)
{
    a->path_count = 0;
}

void stk_way_put(struct stk_advice *a, uint32_t number)
{
    a->path[a->path_count++] = number;
    a->traces[number].printed = a->telling;
}

// What stands in the path is in the order of the frames from its end on.
void stk_way_tell(struct stk_advice *a)
{
    for (uint32_t i = a->path_count; i-- > 0;) {
        const uint32_t n = a->path[i];
        if (i + 1 < a->path_count)
            stk_text_add(&a->text, " -> ");
        stk_text_add(&a->text, a->plan->nodes[n].id);
        const enum stk_transfer transfer = stk_advice_transfer(a, n);
        if (transfer == STK_H2D)
            stk_text_add(&a->text, " (to the device)");
        else if (transfer == STK_D2H)
            stk_text_add(&a->text, " (to the host)");
    }
}

void stk_way_put_consumer(struct stk_advice *a, uint32_t number)
{
    const uint32_t e = a->plan->first_out[number];
    if (e < a->plan->first_out[number + 1])
        a->path[a->path_count++] = a->plan->edges[e].to;
}

void stk_way_put_producer(struct stk_advice *a, uint32_t number)
{
    const struct stk_plan_node *node = &a->plan->nodes[number];
    for (uint32_t i = 0; i < node->inputs; i++)
        if (node->in_edge[i] >= 0) {
            a->path[a->path_count++] = a->plan->edges[node->in_edge[i]].from;
            return;
        }
}
