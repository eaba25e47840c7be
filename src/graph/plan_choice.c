// Why a generic type became the class that it is: what the plan would cost
// with each of the others.

#include "plan_joint.h"
#include "plan_print.h"

// Plans that are made only to be told about, and modules in all of them.
enum { MOST_TRIES = 32, MOST_MODULES = 4000 };

// Nanoseconds of a frame, with the share of what is done once.
static int64_t whole_cost(const struct stk_planner *p,
                          const struct stk_decision *d)
{
    return stk_cost_sum(d->value.cost / PLACE_TICKS,
                        d->device ? p->context_share : 0);
}

static void tell_cost(struct stk_text *t, int64_t ns)
{
    char text[32];
    stk_plan_cost_text(ns, text, sizeof(text));
    stk_text_add(t, text);
}

// What the plan costs without the class that was chosen for a node.
static enum pen_status try_other(struct stk_planner *p, uint32_t node,
                                 struct stk_text *t, struct pen_error *err)
{
    const struct stk_node *n = &p->graph->nodes[node];
    const uint32_t chosen = p->decision.option[node];
    struct stk_ban ban = { .id = n->desc->id,
                           .pin = UINT32_MAX,
                           .cls = n->options[chosen].cls->name };
    const struct stk_ban *bans = p->bans;
    const size_t count = p->ban_count;
    struct stk_decision other = { 0 };
    p->bans = &ban;
    p->ban_count = 1;
    const enum pen_status st = stk_plan_choose(p, &other, err);
    p->bans = bans;
    p->ban_count = count;
    if (st == PEN_OK && !other.value.bad && other.option[node] != UINT32_MAX) {
        stk_text_addf(t, ", with %s ",
                      n->options[other.option[node]].cls->name);
        tell_cost(t, whole_cost(p, &other));
        if (other.value.loss > p->decision.value.loss)
            stk_text_add(t, " and loses more");
    } else if (st == PEN_OK) {
        stk_text_add(t, "; no other class fits here");
    }
    stk_decision_finish(&other);
    return st;
}

static enum pen_status tell(struct stk_planner *p, struct stk_plan_node *made,
                            uint32_t node, bool compare, struct pen_error *err)
{
    struct stk_text t = { 0 };
    enum pen_status st = PEN_OK;
    stk_text_addf(&t, "with %s the whole plan costs ", made->cls->name);
    tell_cost(&t, whole_cost(p, &p->decision));
    stk_text_add(&t, " a frame");
    if (p->caps.sized)
        stk_text_addf(&t, " of %dx%d", p->caps.width, p->caps.height);
    if (compare)
        st = try_other(p, node, &t, err);
    else
        stk_text_add(&t, "; --explain tells what another class would cost");
    if (p->context_share || p->load_share)
        stk_text_addf(&t, "; a device costs %lld ms once, over %llu frame%s",
                      (long long)(p->plan->profile.context_ns / 1000000),
                      (unsigned long long)p->plan->frames,
                      p->plan->frames == 1 ? "" : "s");
    made->choice = NULL;
    if (st == PEN_OK && !t.failed)
        made->choice = stk_arena_strdup(&p->plan->arena, t.data);
    stk_text_finish(&t);
    if (st == PEN_OK && !made->choice)
        return stk_plan_no_memory(err);
    return st;
}

// The properties left no choice.
static enum pen_status tell_only(struct stk_planner *p,
                                 struct stk_plan_node *made,
                                 const struct stk_node *node,
                                 struct pen_error *err)
{
    if (!node->left_out || !*node->left_out)
        return PEN_OK;
    made->choice = stk_arena_printf(&p->plan->arena,
                                    "no other class takes the properties (%s)",
                                    node->left_out);
    return made->choice ? PEN_OK : stk_plan_no_memory(err);
}

enum pen_status stk_plan_tell_choices(struct stk_planner *p,
                                      struct pen_error *err)
{
    const uint32_t fit = MOST_MODULES / (p->plan->node_count + 1);
    const uint32_t most = fit < MOST_TRIES ? fit : MOST_TRIES;
    uint32_t tries = 0;
    for (uint32_t n = 0; n < p->plan->node_count; n++) {
        struct stk_plan_node *made = &p->plan->nodes[n];
        const uint32_t node = p->aside[n].node;
        if (made->inserted)
            continue;
        if (p->graph->nodes[node].option_count < 2) {
            PEN_TRY(tell_only(p, made, &p->graph->nodes[node], err));
            continue;
        }
        PEN_TRY(tell(p, made, node, tries++ < most, err));
    }
    return PEN_OK;
}
