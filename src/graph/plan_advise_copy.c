// Single copies and conversions that cost more than they need to: copies by
// hand that nobody needs or that several could share (W313), conversions on
// the dearer side of a copy (W314), and uploads of frames that do not lie in
// page-locked memory (W315). What a finding about a whole path has told is not
// told again.

#include "plan_advise.h"

#include <string.h>

static bool crosses(enum stk_transfer transfer)
{
    return transfer == STK_H2D || transfer == STK_D2H;
}

static const char *direction(enum stk_transfer transfer)
{
    return transfer == STK_H2D ? "to the device" : "to the host";
}

// --- copies that nobody needs (W313)
// -------------------------------------------

// Time of a module whose input brings frames of the other side of the machine.
// False: what it is then cannot be said.
static bool cost_across(const struct stk_advice *a,
                        const struct stk_plan_node *node, uint32_t pin,
                        bool device, int64_t *more)
{
    const struct pen_plan *plan = a->plan;
    struct pen_caps in[PEN_MAX_PINS] = { 0 }, out[PEN_MAX_PINS] = { 0 };
    const bool cuda = node->cls->flags & PEN_CLASS_CUDA;
    const uint32_t sides[] = { PEN_MEM_BITS_HOST,
                               PEN_MEM_BIT(PEN_MEM_CUDA_DEVICE) };
    uint64_t bytes = 0;
    int64_t now;
    for (uint32_t i = 0; i < node->inputs; i++) {
        if (node->in_edge[i] < 0)
            continue;
        const struct stk_plan_edge *e = &plan->edges[node->in_edge[i]];
        in[i] = e->caps;
        // A host module does not touch the bytes of device frames.
        const bool there = i == pin ? device : !stk_advice_host(e);
        bytes += there && !cuda ? 0 : stk_advice_bytes(a, e);
    }
    for (uint32_t o = 0; o < node->outputs; o++) {
        if (node->output[o].mem == PEN_MEM_NONE)
            continue;
        if ((node->out[o].mem & sides[0]) && (node->out[o].mem & sides[1]))
            return false;
        out[o] = node->output[o].caps;
        bytes += node->output[o].block_bytes;
    }
    if (!(node->in[pin].mem & sides[device]) ||
        !stk_node_cost(plan, node, &now))
        return false;
    *more = stk_cost_class(&plan->profile, node->cls, node->params, in, out,
                           bytes) -
            now;
    return true;
}

// What is gained if the frames of a copy stay where they come from; false: some
// consumer, also behind modules that pass them on, needs it.
static bool not_needed(struct stk_advice *a, uint32_t copy, bool device,
                       struct stk_gain *gain)
{
    const struct pen_plan *plan = a->plan;
    const uint32_t side =
        device ? PEN_MEM_BIT(PEN_MEM_CUDA_DEVICE) : PEN_MEM_BITS_HOST;
    uint32_t depth = 0;
    bool any = false;
    a->path[depth++] = copy;
    a->set++;
    while (depth) {
        const uint32_t n = a->path[--depth];
        for (uint32_t i = plan->first_out[n]; i < plan->first_out[n + 1]; i++) {
            const struct stk_plan_edge *e = &plan->edges[i];
            const struct stk_plan_node *to = &plan->nodes[e->to];
            int64_t more = 0;
            if (stk_class_copies(to->cls))
                return false;
            if (!(to->cls->flags & PEN_CLASS_FORWARDS)) {
                if (!cost_across(a, to, e->to_pin, device, &more))
                    return false;
                gain->ns -= more;
                any = true;
                continue;
            }
            // Frames of several inputs have to stay on one side.
            if (!(to->in[e->to_pin].mem & side) || to->inputs != 1)
                return false;
            if (a->traces[e->to].set != a->set)
                a->path[depth++] = e->to;
            a->traces[e->to].set = a->set;
        }
    }
    return any;
}

static void advise_needless(struct stk_advice *a, uint32_t copy)
{
    const struct stk_plan_node *node = &a->plan->nodes[copy];
    const enum stk_transfer transfer = stk_advice_transfer(a, copy);
    struct stk_gain gain = { .known = true };
    if (!not_needed(a, copy, transfer == STK_D2H, &gain))
        return;
    stk_advice_copy(a, &gain, transfer, node->output[0].block_bytes, 1);
    if (!stk_advice_pays(a, &gain))
        return;
    stk_advice_begin(a);
    stk_advice_name(&a->text, node->id);
    stk_text_add(&a->text, " copies frames ");
    stk_text_add(&a->text, direction(transfer));
    stk_text_add(&a->text, ", and who gets them takes them where they were");
    stk_advice_gain(a, "without it saves", &gain);
    stk_advice_drop(a, copy, false);
    stk_advice_fix_drop(a, STK_NO_NODE);
    a->traces[copy].told = true;
    stk_advice_issue(a, "W313", node->pointer);
}

// Copies of one output in one direction, among them one by hand: edges
// [begin, end) of the pin.
static void advise_equal(struct stk_advice *a, uint32_t begin, uint32_t end,
                         enum stk_transfer which)
{
    const struct pen_plan *plan = a->plan;
    int32_t kept = STK_NO_NODE;
    uint32_t others = 0;
    for (uint32_t i = begin; i < end; i++) {
        const uint32_t to = plan->edges[i].to;
        if (stk_advice_transfer(a, to) != which || a->traces[to].told ||
            plan->first_out[to] == plan->first_out[to + 1])
            continue;
        if (kept == STK_NO_NODE && !plan->nodes[to].inserted)
            kept = (int32_t)to;
        else
            others++;
    }
    if (kept == STK_NO_NODE || others == 0)
        return;
    struct stk_gain gain = { .known = true };
    const char *place = "";
    const struct stk_plan_node *from = stk_advice_from(a, &plan->edges[begin]);
    stk_advice_begin(a);
    stk_advice_name(&a->text, from->id);
    stk_text_add(&a->text, " is copied ");
    stk_text_add(&a->text, direction(which));
    stk_text_add(&a->text, " more than once: ");
    stk_advice_name(&a->text, plan->nodes[kept].id);
    for (uint32_t i = begin; i < end; i++) {
        const uint32_t to = plan->edges[i].to;
        if (stk_advice_transfer(a, to) != which || a->traces[to].told ||
            to == (uint32_t)kept ||
            plan->first_out[to] == plan->first_out[to + 1])
            continue;
        stk_text_add(&a->text, ", ");
        stk_advice_name(&a->text, plan->nodes[to].id);
        stk_advice_copy(a, &gain, which, stk_advice_bytes(a, &plan->edges[i]),
                        1);
        stk_advice_drop(a, to, false);
        a->traces[to].told = true;
        if (!place[0])
            place = plan->nodes[to].pointer;
    }
    stk_advice_gain(a, "one for all saves", &gain);
    stk_advice_fix_drop(a, kept);
    stk_advice_issue(a, "W313", place[0] ? place : plan->nodes[kept].pointer);
}

static void advise_pins(struct stk_advice *a, uint32_t number)
{
    const struct pen_plan *plan = a->plan;
    uint32_t begin = plan->first_out[number];
    const uint32_t stop = plan->first_out[number + 1];
    while (begin < stop) {
        uint32_t end = begin + 1;
        while (end < stop &&
               plan->edges[end].from_pin == plan->edges[begin].from_pin)
            end++;
        if (end - begin > 1) {
            advise_equal(a, begin, end, STK_H2D);
            advise_equal(a, begin, end, STK_D2H);
        }
        begin = end;
    }
}

// --- conversions on the dearer side (W314)
// ---------------------------------------

static bool converts(const struct stk_plan_node *node)
{
    return node->inputs == 1 && node->outputs == 1 && node->in_edge[0] >= 0 &&
           !stk_class_copies(node->cls) &&
           stk_class_has_tag(node->cls, "function:color");
}

// The only consumer of a node, or STK_NO_NODE.
static int32_t only_consumer(const struct stk_advice *a, uint32_t number)
{
    const uint32_t *first = &a->plan->first_out[number];
    return first[1] - first[0] == 1 ? (int32_t)a->plan->edges[first[0]].to
                                    : STK_NO_NODE;
}

// `first` gives its frames to `second` alone; one of them copies, the other
// converts.
static void advise_order(struct stk_advice *a, uint32_t first, uint32_t second)
{
    const struct pen_plan *plan = a->plan;
    const bool copies_first = crosses(stk_advice_transfer(a, first));
    const uint32_t copy = copies_first ? first : second;
    const uint32_t conversion = copies_first ? second : first;
    const struct stk_plan_node *c = &plan->nodes[copy];
    const struct stk_plan_node *v = &plan->nodes[conversion];
    const enum stk_transfer which = stk_advice_transfer(a, copy);
    const struct pen_module_class *named;
    int64_t now_copy, now_conversion, then;
    // What the planner placed is on the cheaper side.
    const bool own = v->inserted || stk_advice_chosen(v);
    if ((c->inserted && own) || a->traces[copy].told ||
        !stk_node_cost(plan, c, &now_copy) ||
        !stk_node_cost(plan, v, &now_conversion) ||
        !stk_advice_twin(a, v, (which == STK_H2D) != copies_first, &then,
                         &named) ||
        then < 0)
        return;
    const uint64_t in = stk_advice_bytes(a, &plan->edges[v->in_edge[0]]);
    const uint64_t bytes = copies_first ? v->output[0].block_bytes : in;
    struct stk_gain gain = { .known = true, .ns = now_conversion - then };
    stk_advice_copy(a, &gain, which, c->output[0].block_bytes, 1);
    stk_advice_copy(a, &gain, which, bytes, -1);
    if (gain.ns <= 0)
        return;
    const struct pen_module_class *twin = a->like.cls;
    stk_advice_begin(a);
    stk_advice_name(&a->text, v->id);
    stk_text_add(&a->text,
                 copies_first ? " converts after " : " converts before ");
    stk_advice_name(&a->text, c->id);
    stk_text_add(&a->text, " copies ");
    stk_text_add(&a->text, direction(which));
    stk_advice_gain(a, copies_first ? "before it saves" : "after it saves",
                    &gain);
    if (!own)
        stk_advice_fix_type(a, v, twin);
    if (!c->inserted && plan->desc && !plan->desc->auto_bridge) {
        stk_advice_fix_swap(a, first, second);
    } else if (!c->inserted) {
        stk_advice_drop(a, copy, false);
        stk_advice_fix_drop(a, STK_NO_NODE);
    }
    a->traces[copy].told = true;
    stk_advice_issue(a, "W314", own ? c->pointer : v->pointer);
}

static void advise_conversion(struct stk_advice *a, uint32_t number)
{
    const struct stk_plan_node *node = &a->plan->nodes[number];
    if (!converts(node))
        return;
    const uint32_t before = a->plan->edges[node->in_edge[0]].from;
    const int32_t behind = only_consumer(a, number);
    if (crosses(stk_advice_transfer(a, before)) &&
        only_consumer(a, before) == (int32_t)number)
        advise_order(a, before, number);
    if (behind != STK_NO_NODE &&
        crosses(stk_advice_transfer(a, (uint32_t)behind)))
        advise_order(a, number, (uint32_t)behind);
}

// --- uploads from pageable memory (W315)
// -------------------------------------------

// Why an output is no page-locked memory.
static void tell_why(struct stk_advice *a, const struct stk_plan_edge *e)
{
    const struct stk_plan_node *from = stk_advice_from(a, e);
    stk_advice_name(&a->text, from->id);
    stk_text_add(&a->text,
                 from->forwards
                     ? " hands on frames of other modules, which are not all "
                       "in pinned memory"
                     : " gives frames that are not in pinned memory");
}

// A source that was told to give DMABUFs can give pinned memory.
static void fix_source(struct stk_advice *a, const struct stk_plan_edge *e)
{
    const struct stk_plan_node *from = stk_advice_from(a, e);
    const struct pen_prop *row = stk_prop_find(from->cls->props, "memType");
    if (from->inputs || !row || row->kind != PEN_PROP_ENUM ||
        from->output[e->from_pin].upgraded_from)
        return;
    for (const struct pen_choice *c = row->choices; c && c->name; c++) {
        if (strcmp(c->name, "HOST_PINNED") != 0)
            continue;
        stk_advice_fix(a, "\"memType\": \"HOST_PINNED\" in ");
        stk_advice_name(&a->fix, from->id);
    }
}

// An upload reads pinned memory always; where frames cannot lie there, the
// planner has them copied by the CPU first.
static void advise_upload(struct stk_advice *a, uint32_t upload)
{
    const struct pen_plan *plan = a->plan;
    const struct stk_plan_node *node = &plan->nodes[upload];
    struct stk_gain gain = { .known = true };
    if (node->in_edge[0] < 0)
        return;
    const uint32_t number = plan->edges[node->in_edge[0]].from;
    const struct stk_plan_node *copy = &plan->nodes[number];
    // That this is so for the budget is told by W510.
    if (stk_advice_transfer(a, number) != STK_H2H || copy->staged ||
        a->traces[number].told || !stk_node_cost(plan, copy, &gain.ns))
        return;
    a->traces[number].told = true;
    const struct stk_plan_edge *e = &plan->edges[copy->in_edge[0]];
    stk_advice_begin(a);
    tell_why(a, e);
    stk_text_add(&a->text, ", so the CPU copies them in ");
    stk_advice_name(&a->text, copy->id);
    stk_text_add(&a->text, " before ");
    stk_advice_name(&a->text, node->id);
    stk_text_add(&a->text, " uploads them");
    stk_advice_gain(a, "that costs", &gain);
    fix_source(a, e);
    stk_advice_issue(a, "W315",
                     copy->pointer[0]   ? copy->pointer
                     : node->pointer[0] ? node->pointer
                                        : stk_advice_from(a, e)->pointer);
}

void stk_advise_copies(struct stk_advice *a)
{
    const struct pen_plan *plan = a->plan;
    if (plan->h2d_per_frame == 0 && plan->d2h_per_frame == 0)
        return;
    for (uint32_t n = 0; n < plan->node_count && !a->failed; n++) {
        const enum stk_transfer transfer = stk_advice_transfer(a, n);
        advise_pins(a, n);
        advise_conversion(a, n);
        if (crosses(transfer) && !plan->nodes[n].inserted && !a->traces[n].told)
            advise_needless(a, n);
        if (transfer == STK_H2D)
            advise_upload(a, n);
    }
}
