// Frames that go to the device and return with nothing done there (W310),
// whoever wrote the two copies. One finding for each upload, with all the
// downloads of its frames.

#include "plan_advise.h"

// The way of a download back to its upload; what only waits there goes too.
static void tell_idle_way(struct stk_advice *a, uint32_t download, bool first)
{
    const uint32_t upload = (uint32_t)a->traces[download].up;
    stk_way_begin(a);
    stk_way_put_consumer(a, download);
    stk_way_put(a, download);
    uint32_t at = (uint32_t)a->traces[download].up_from;
    while (at != upload && !stk_way_has(a, at)) {
        stk_way_put(a, at);
        const struct stk_plan_node *node = &a->plan->nodes[at];
        if (!a->traces[at].busy && stk_advice_only_waits(node) &&
            !stk_advice_takes(node, false))
            stk_advice_drop(a, at, false);
        at = (uint32_t)a->traces[at].up_from;
    }
    a->path[a->path_count++] = at;
    if (first)
        stk_way_put_producer(a, at);
    else
        stk_text_add(&a->text, "; also ");
    stk_way_tell(a);
}

static void advise_idle(struct stk_advice *a, uint32_t upload)
{
    const struct pen_plan *plan = a->plan;
    const struct stk_trace *u = &a->traces[upload];
    struct stk_gain gain = { .known = true };
    bool stuck = false, first = true;
    const char *place = "";
    for (uint32_t d = u->next; d != 0; d = a->traces[d].next) {
        stk_advice_copy(a, &gain, STK_D2H, plan->nodes[d].output[0].block_bytes,
                        1);
        stuck = stuck || a->traces[d].stuck;
        if (!place[0])
            place = plan->nodes[d].pointer;
    }
    if (!u->busy || stuck)
        stk_advice_copy(a, &gain, STK_H2D,
                        plan->nodes[upload].output[0].block_bytes, 1);
    stk_advice_begin(a);
    a->set++;
    a->telling = upload + 1;
    stk_text_add(&a->text,
                 "frames go to the device and return with nothing done: ");
    for (uint32_t d = u->next; d != 0; d = a->traces[d].next) {
        tell_idle_way(a, d, first);
        if (!plan->nodes[d].inserted || u->busy)
            stk_advice_drop(a, d, false);
        a->traces[d].told = true;
        first = false;
    }
    if (!plan->nodes[upload].inserted)
        stk_advice_drop(a, upload, u->busy);
    stk_advice_gain(a, stuck ? "costs" : "saves", &gain);
    if (stuck) {
        stk_advice_forget(a);
        stk_advice_fix(a, "what passes the frames on takes device memory only");
    } else {
        stk_advice_fix_drop(a, STK_NO_NODE);
    }
    a->traces[upload].told = true;
    stk_advice_issue(a, "W310", place[0] ? place : plan->nodes[upload].pointer);
}

// From the end to the beginning: whether something needs the frames that an
// upload gives. A copy by hand that was told keeps what feeds it there.
static void find_busy(struct stk_advice *a, uint32_t number)
{
    const struct pen_plan *plan = a->plan;
    const struct stk_plan_node *node = &plan->nodes[number];
    struct stk_trace *t = &a->traces[number];
    t->busy = stk_advice_passes(node) && !stk_advice_takes(node, false) &&
              !stk_advice_only_waits(node);
    for (uint32_t i = plan->first_out[number];
         i < plan->first_out[number + 1] && !t->busy; i++) {
        const uint32_t to = plan->edges[i].to;
        if (stk_advice_transfer(a, to) == STK_D2H)
            t->busy = !plan->nodes[to].inserted &&
                      (a->traces[to].told || !a->traces[to].idle);
        else
            t->busy = !stk_advice_passes(&plan->nodes[to]) ||
                      a->traces[to].busy || plan->nodes[to].inputs > 1;
    }
}

// Downloads of frames with which nothing was done, by their uploads.
static void find_idle(struct stk_advice *a)
{
    for (uint32_t n = a->plan->node_count; n-- > 0;) {
        a->traces[n].next = 0;
        find_busy(a, n);
    }
    for (uint32_t n = a->plan->node_count; n-- > 0;) {
        struct stk_trace *t = &a->traces[n];
        if (stk_advice_transfer(a, n) != STK_D2H || t->up == STK_NO_NODE ||
            !t->idle || t->told || a->traces[t->up].told)
            continue;
        struct stk_trace *u = &a->traces[t->up];
        // What others need on the device cannot be stepped over.
        if (u->busy && !t->stuck && t->up_from != t->up)
            continue;
        t->next = u->next;
        u->next = n;
    }
}

void stk_advise_idle(struct stk_advice *a)
{
    if (a->plan->h2d_per_frame == 0 || a->plan->d2h_per_frame == 0)
        return;
    find_idle(a);
    for (uint32_t n = 0; n < a->plan->node_count && !a->failed; n++)
        if (stk_advice_transfer(a, n) == STK_H2D && a->traces[n].next != 0)
            advise_idle(a, n);
}
