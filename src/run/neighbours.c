#include "neighbours.h"

#include "run.h"

// No lock: sizes in the plan change while it runs, its modules do not.

bool stk_module_neighbour(const struct pen_module *m, uint32_t i,
                          struct stk_neighbour *out)
{
    const struct pen_pipeline *p = m->pipeline;
    if (i >= p->module_count)
        return false;
    const struct pen_module *other = &p->modules[i];
    *out = (struct stk_neighbour){ other->id, other->cls, other->params };
    return true;
}

uint64_t stk_module_expected_frames(const struct pen_module *m)
{
    return m->pipeline->plan->frames;
}
