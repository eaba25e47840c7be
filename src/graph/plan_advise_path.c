// Frames that leave the device and come back (W310): a download, then an
// upload, whoever wrote them and whatever lies between.
//
// One finding for each group of modules that hang together on the host, however
// many copies lead into it and out of it. If all its modules have a twin on the
// device, that they move there is the suggestion, and the saving that of all.
// If one has none, W310 says so, with what the copies cost, and W312 tells of
// the modules at the border of the group that could move all the same. W312 is
// also told where the frames come back to the device without a copy, as DMABUFs
// that it imports.

#include "plan_advise.h"

#include <string.h>

enum {
    BEFORE = 8,  // modules of the device that are told before a download
    NAMES = 6,   // modules told by name in one list
};

// --- what lies where ---------------------------------------------------------

static void trace_node(struct stk_advice *a, uint32_t number)
{
    const struct pen_plan *plan = a->plan;
    const struct stk_plan_node *node = &plan->nodes[number];
    struct stk_trace *t = &a->traces[number];
    t->down = t->down_from = t->up = t->up_from = STK_NO_NODE;
    t->transfer = (uint8_t)stk_node_transfer(plan, node);
    t->source = stk_advice_endless(node) ? (int32_t)number : STK_NO_NODE;
    a->endless = a->endless || t->source != STK_NO_NODE;
    t->idle = true;
    t->group = number;
    for (uint32_t i = 0; i < node->inputs; i++) {
        if (node->in_edge[i] < 0)
            continue;
        const struct stk_plan_edge *e = &plan->edges[node->in_edge[i]];
        const struct stk_plan_node *from = &plan->nodes[e->from];
        const struct stk_trace *f = &a->traces[e->from];
        const enum stk_transfer transfer = stk_advice_transfer(a, e->from);
        const bool host = stk_advice_host(e);
        const int32_t down = transfer == STK_D2H ? (int32_t)e->from
                             : host              ? f->down
                                                 : STK_NO_NODE;
        const int32_t up = transfer == STK_H2D ? (int32_t)e->from
                           : host              ? STK_NO_NODE
                                               : f->up;
        if (t->down == STK_NO_NODE && down != STK_NO_NODE) {
            t->down = down;
            t->down_from = (int32_t)e->from;
        }
        if (t->up == STK_NO_NODE && up != STK_NO_NODE) {
            t->up = up;
            t->up_from = (int32_t)e->from;
            t->idle = transfer == STK_H2D ||
                      (f->idle && stk_advice_passes(from) && from->inputs == 1);
            t->stuck = transfer != STK_H2D &&
                       (f->stuck || !(stk_advice_takes(from, false) ||
                                      stk_advice_only_waits(from)));
        }
    }
}

// Whether the frames of an edge are on the device behind it.
static bool returns(const struct stk_advice *a, const struct stk_plan_edge *e)
{
    if (!stk_advice_host(e))
        return false;
    return stk_advice_transfer(a, e->to) == STK_H2D ||
           !strcmp(stk_edge_how(a->plan, e), "imported");
}

// Whether what takes the frames of an edge on the host could not take them on
// the device. What hands on the frames of several inputs keeps them together.
static bool needs_host(const struct stk_advice *a,
                       const struct stk_plan_edge *e)
{
    const struct stk_plan_node *to = &a->plan->nodes[e->to];
    return !(to->in[e->to_pin].mem & PEN_MEM_BIT(PEN_MEM_CUDA_DEVICE)) ||
           (stk_advice_passes(to) &&
            (to->inputs > 1 || a->traces[e->to].host_bound));
}

// From the end to the beginning: what leads back to the device.
static void look_behind(struct stk_advice *a, uint32_t number)
{
    const struct pen_plan *plan = a->plan;
    const enum stk_transfer own = stk_advice_transfer(a, number);
    struct stk_trace *t = &a->traces[number];
    for (uint32_t i = plan->first_out[number]; i < plan->first_out[number + 1];
         i++) {
        const struct stk_plan_edge *e = &plan->edges[i];
        const struct stk_plan_node *to = &plan->nodes[e->to];
        const enum stk_transfer next = stk_advice_transfer(a, e->to);
        if (next == STK_H2D)
            t->uploads |= (uint8_t)(1u << e->from_pin);
        // The planner shares its own only.
        if (next == STK_H2D && to->inserted)
            t->shared |= (uint8_t)(1u << e->from_pin);
        if (t->down != STK_NO_NODE && stk_advice_host(e) &&
            (own == STK_NO_TRANSFER || own == STK_H2H) &&
            (returns(a, e) || a->traces[e->to].between))
            t->between = true;
        if (stk_advice_host(e) && next != STK_H2D && needs_host(a, e))
            t->host_bound = true;
    }
}

static uint32_t root_of(struct stk_advice *a, uint32_t n)
{
    while (a->traces[n].group != n) {
        a->traces[n].group = a->traces[a->traces[n].group].group;
        n = a->traces[n].group;
    }
    return n;
}

// Modules that hang together on the host are one group; a download that leads
// back at once is one of its own.
static void make_groups(struct stk_advice *a)
{
    const struct pen_plan *plan = a->plan;
    for (uint32_t i = 0; i < plan->edge_count; i++) {
        const struct stk_plan_edge *e = &plan->edges[i];
        if (!a->traces[e->from].between || !a->traces[e->to].between ||
            !stk_advice_host(e))
            continue;
        const uint32_t x = root_of(a, e->from), y = root_of(a, e->to);
        a->traces[x < y ? y : x].group = x < y ? x : y;
    }
    for (uint32_t n = plan->node_count; n-- > 0;) {
        const uint32_t root = root_of(a, n);
        if (root == n)
            continue;
        a->traces[n].next = a->traces[root].next;
        a->traces[root].next = n;
    }
}

// --- paths in words
// -----------------------------------------------------------

// What lies before a download: back to the upload before it, or not so far.
static void put_before(struct stk_advice *a, uint32_t download)
{
    int32_t at = (int32_t)download;
    const int32_t stop = a->traces[download].up;
    for (unsigned i = 0; i < BEFORE && stop != STK_NO_NODE && at != stop; i++) {
        at = a->traces[at].up_from;
        a->path[a->path_count++] = (uint32_t)at;
    }
    stk_way_put_producer(a, (uint32_t)at);
}

// The way of one edge that returns to the device, back to its download or to
// what was told already.
static void tell_return(struct stk_advice *a, const struct stk_plan_edge *e,
                        bool first)
{
    stk_way_begin(a);
    if (stk_advice_transfer(a, e->to) == STK_H2D) {
        stk_way_put_consumer(a, e->to);
        stk_way_put(a, e->to);
    } else {
        a->path[a->path_count++] = e->to;
    }
    uint32_t at = e->from;
    while (stk_advice_transfer(a, at) != STK_D2H && !stk_way_has(a, at)) {
        stk_way_put(a, at);
        at = (uint32_t)a->traces[at].down_from;
    }
    if (first) {
        stk_way_put(a, at);
        put_before(a, at);
    } else if (stk_way_has(a, at)) {
        a->path[a->path_count++] = at;
    } else {
        stk_way_put(a, at);
        stk_way_put_producer(a, at);
    }
    stk_text_add(&a->text, first ? "" : "; also ");
    stk_way_tell(a);
}

// How the frames come to a module of a group that was not told yet, and from
// there on to one that was.
static void tell_branch(struct stk_advice *a, uint32_t number)
{
    const struct pen_plan *plan = a->plan;
    const uint32_t from = (uint32_t)a->traces[number].down_from;
    int32_t next = (int32_t)number;
    stk_way_begin(a);
    while (next != STK_NO_NODE && !stk_way_has(a, (uint32_t)next)) {
        const uint32_t n = (uint32_t)next;
        stk_way_put(a, n);
        next = STK_NO_NODE;
        for (uint32_t i = plan->first_out[n];
             i < plan->first_out[n + 1] && next == STK_NO_NODE; i++)
            if (a->traces[plan->edges[i].to].between)
                next = (int32_t)plan->edges[i].to;
    }
    if (next != STK_NO_NODE)
        a->path[a->path_count++] = (uint32_t)next;
    for (uint32_t i = 0, k = a->path_count - 1; i < k; i++, k--) {
        const uint32_t swap = a->path[i];
        a->path[i] = a->path[k];
        a->path[k] = swap;
    }
    a->path[a->path_count++] = from;
    if (!stk_way_has(a, from)) {
        a->traces[from].printed = a->telling;
        stk_way_put_producer(a, from);
    }
    stk_text_add(&a->text, "; also ");
    stk_way_tell(a);
}

// A further download that leads to a module which was told.
static void tell_download(struct stk_advice *a, uint32_t download,
                          uint32_t number)
{
    stk_way_begin(a);
    a->path[a->path_count++] = number;
    stk_way_put(a, download);
    stk_way_put_producer(a, download);
    stk_text_add(&a->text, "; also ");
    stk_way_tell(a);
}

// All ways of a group.
static void tell_ways(struct stk_advice *a, uint32_t root)
{
    const struct pen_plan *plan = a->plan;
    bool first = true;
    uint32_t n = root;
    a->telling = root + 1;
    do {
        for (uint32_t i = plan->first_out[n]; i < plan->first_out[n + 1]; i++) {
            if (!returns(a, &plan->edges[i]))
                continue;
            tell_return(a, &plan->edges[i], first);
            first = false;
        }
    } while ((n = a->traces[n].next) != 0);
    n = root;
    do {
        if (!a->traces[n].between)
            continue;
        if (!stk_way_has(a, n))
            tell_branch(a, n);
        for (uint32_t i = 0; i < plan->nodes[n].inputs; i++) {
            const int32_t in = plan->nodes[n].in_edge[i];
            if (in >= 0 &&
                stk_advice_transfer(a, plan->edges[in].from) == STK_D2H &&
                !stk_way_has(a, plan->edges[in].from))
                tell_download(a, plan->edges[in].from, n);
        }
    } while ((n = a->traces[n].next) != 0);
}

// --- what could move
// ----------------------------------------------------------

static void find_way(struct stk_advice *a, uint32_t number)
{
    const struct stk_plan_node *node = &a->plan->nodes[number];
    struct stk_trace *t = &a->traces[number];
    const struct pen_module_class *named;
    int64_t own, cost = 0;
    t->unpriced = !stk_node_cost(a->plan, node, &own);
    t->better = own;
    if (stk_class_copies(node->cls)) {
        t->way = STK_GOES;
    } else if (stk_advice_passes(node)) {
        t->way = stk_advice_takes(node, true) ? STK_MOVES : STK_STAYS;
    } else if (stk_advice_twin(a, node, true, &cost, &named)) {
        t->way = STK_MOVES_AS_TWIN;
        t->twin = a->like.cls;
        t->unpriced = t->unpriced || cost < 0;
        t->better = own - cost;
    } else {
        t->way = STK_STAYS;
        t->twin = named;
    }
}

// Whether `set` comes to this pin of the node for the first time.
static bool first_time(struct stk_trace *t, uint32_t set, uint32_t pin)
{
    if (t->stamp != set) {
        t->stamp = set;
        t->hits = 0;
    }
    const bool first = !(t->hits & (1u << pin));
    t->hits |= 1u << pin;
    return first;
}

// One more edge of a download leads into the set: whether all do.
static bool last_hit(const struct stk_advice *a, struct stk_trace *t,
                     uint32_t number)
{
    if (t->stamp != a->set) {
        t->stamp = a->set;
        t->hits = 0;
    }
    return ++t->hits ==
           a->plan->first_out[number + 1] - a->plan->first_out[number];
}

static void weigh_inputs(struct stk_advice *a, uint32_t number,
                         struct stk_gain *gain)
{
    const struct stk_plan_node *node = &a->plan->nodes[number];
    for (uint32_t i = 0; i < node->inputs; i++) {
        if (node->in_edge[i] < 0)
            continue;
        const struct stk_plan_edge *e = &a->plan->edges[node->in_edge[i]];
        struct stk_trace *f = &a->traces[e->from];
        const uint64_t bytes = stk_advice_bytes(a, e);
        if (f->set == a->set || !stk_advice_host(e))
            continue;
        if (stk_advice_transfer(a, e->from) == STK_D2H) {
            const bool all = last_hit(a, f, e->from);
            if (!a->plan->nodes[e->from].inserted)
                stk_advice_drop(a, e->from, true);
            if (!all)
                continue;
            f->kept = false;
            stk_advice_copy(a, gain, STK_D2H, bytes, 1);
        } else if (first_time(f, a->set, e->from_pin) &&
                   !(f->shared & (1u << e->from_pin))) {
            stk_advice_copy(a, gain, STK_H2D, bytes, -1);
        }
    }
}

static void weigh_output(struct stk_advice *a, const struct stk_plan_edge *e,
                         struct stk_gain *gain)
{
    const struct stk_plan_node *to = &a->plan->nodes[e->to];
    struct stk_trace *f = &a->traces[e->from];
    const uint64_t bytes = stk_advice_bytes(a, e);
    if (a->traces[e->to].set == a->set)
        return;
    if (stk_advice_transfer(a, e->to) == STK_H2D) {
        stk_advice_copy(a, gain, STK_H2D, bytes, 1);
        a->traces[e->to].set = a->set;
        if (!to->inserted)
            stk_advice_drop(a, e->to, false);
    } else if (needs_host(a, e) && first_time(f, a->set, e->from_pin)) {
        stk_advice_copy(a, gain, STK_D2H, bytes, -1);
    }
}

// What a frame takes less if the members of a->set work on the device. What
// goes with that is listed.
static struct stk_gain weigh(struct stk_advice *a, uint32_t root)
{
    const struct pen_plan *plan = a->plan;
    struct stk_gain gain = { .known = true };
    uint32_t n = root;
    do {
        const struct stk_trace *t = &a->traces[n];
        if (t->set != a->set)
            continue;
        gain.known = gain.known && !t->unpriced;
        gain.ns += t->better;
        gain.loads -= t->way == STK_MOVES_AS_TWIN &&
                      !(plan->nodes[n].cls->flags & PEN_CLASS_CUDA);
        if (t->way == STK_GOES && !plan->nodes[n].inserted)
            stk_advice_drop(a, n, false);
        weigh_inputs(a, n, &gain);
        for (uint32_t i = plan->first_out[n]; i < plan->first_out[n + 1]; i++)
            weigh_output(a, &plan->edges[i], &gain);
    } while ((n = a->traces[n].next) != 0);
    return gain;
}

// The same for a download whose frames are uploaded again at once.
static struct stk_gain weigh_direct(struct stk_advice *a, uint32_t download)
{
    const struct pen_plan *plan = a->plan;
    struct stk_gain gain = { .known = true };
    bool all = true;
    const uint64_t bytes = plan->nodes[download].output[0].block_bytes;
    for (uint32_t i = plan->first_out[download];
         i < plan->first_out[download + 1]; i++) {
        const struct stk_plan_edge *e = &plan->edges[i];
        if (returns(a, e))
            weigh_output(a, e, &gain);
        else
            all = false;
    }
    if (!plan->nodes[download].inserted)
        stk_advice_drop(a, download, !all);
    if (all)
        stk_advice_copy(a, &gain, STK_D2H, bytes, 1);
    return gain;
}

// The copies into a group and out of it.
static struct stk_gain copies_of(struct stk_advice *a, uint32_t root)
{
    const struct pen_plan *plan = a->plan;
    struct stk_gain gain = { .known = true };
    a->set++;
    uint32_t n = root;
    do {
        for (uint32_t i = 0; i < plan->nodes[n].inputs; i++) {
            const int32_t in = plan->nodes[n].in_edge[i];
            if (in < 0)
                continue;
            const struct stk_plan_edge *e = &plan->edges[in];
            if (stk_advice_transfer(a, e->from) == STK_D2H &&
                first_time(&a->traces[e->from], a->set, 0))
                stk_advice_copy(a, &gain, STK_D2H, stk_advice_bytes(a, e), 1);
        }
        for (uint32_t i = plan->first_out[n]; i < plan->first_out[n + 1]; i++)
            if (stk_advice_transfer(a, plan->edges[i].to) == STK_H2D)
                stk_advice_copy(a, &gain, STK_H2D,
                                stk_advice_bytes(a, &plan->edges[i]), 1);
    } while ((n = a->traces[n].next) != 0);
    return gain;
}

// --- a group is told
// ------------------------------------------------------------

// The classes to take instead, and the copies that go with the old ones.
static void suggest(struct stk_advice *a, uint32_t root)
{
    uint32_t n = root;
    do {
        const struct stk_trace *t = &a->traces[n];
        const struct stk_plan_node *node = &a->plan->nodes[n];
        if (t->set == a->set && t->way == STK_MOVES_AS_TWIN &&
            !node->inserted && !stk_advice_chosen(node))
            stk_advice_fix_type(a, node, t->twin);
    } while ((n = a->traces[n].next) != 0);
    stk_advice_fix_drop(a, STK_NO_NODE);
}

// Why a group has to stay on the host.
static void suggest_why_not(struct stk_advice *a, uint32_t root)
{
    unsigned names = 0;
    uint32_t n = root;
    do {
        const struct stk_trace *t = &a->traces[n];
        const struct stk_plan_node *node = &a->plan->nodes[n];
        if (t->way != STK_STAYS)
            continue;
        if (++names > NAMES)
            break;
        stk_advice_fix(a, "");
        stk_advice_name(&a->fix, node->id);
        if (stk_advice_passes(node)) {
            stk_text_add(&a->fix, " takes host memory only");
        } else if (t->twin && t->twin != node->cls) {
            stk_text_add(&a->fix, ": ");
            stk_text_add(&a->fix, t->twin->name);
            stk_text_add(&a->fix, " works on the device, but not with these "
                                  "properties, pins and formats");
        } else {
            stk_text_add(&a->fix, ": no module of the device does what ");
            stk_text_add(&a->fix, node->cls->name);
            stk_text_add(&a->fix, " does");
        }
    } while ((n = a->traces[n].next) != 0);
    if (names > NAMES)
        stk_advice_fix(a, "and more");
}

// The module to look at, of the group or of the copies around it.
static const char *place_of(const struct stk_advice *a, uint32_t root,
                            uint32_t set)
{
    const struct pen_plan *plan = a->plan;
    const char *copy = "";
    uint32_t n = root;
    do {
        const struct stk_trace *t = &a->traces[n];
        const struct stk_plan_node *node = &plan->nodes[n];
        if (t->between && (!set || t->set == set) && !stk_advice_passes(node) &&
            node->pointer[0])
            return node->pointer;
        for (uint32_t i = plan->first_out[n]; i < plan->first_out[n + 1]; i++)
            if (!copy[0] && returns(a, &plan->edges[i]))
                copy = plan->nodes[plan->edges[i].to].pointer;
        if (!copy[0] && !t->between)
            copy = node->pointer;
        if (!copy[0] && t->down != STK_NO_NODE)
            copy = plan->nodes[t->down].pointer;
    } while ((n = a->traces[n].next) != 0);
    return copy;
}

static bool has_upload(const struct stk_advice *a, uint32_t root)
{
    uint32_t n = root;
    do {
        if (a->traces[n].uploads)
            return true;
    } while ((n = a->traces[n].next) != 0);
    return false;
}

// Copies around a group of which something was said are not told again.
static void mark_told(struct stk_advice *a, uint32_t root)
{
    const struct pen_plan *plan = a->plan;
    uint32_t n = root;
    do {
        for (uint32_t i = 0; i < plan->nodes[n].inputs; i++)
            if (plan->nodes[n].in_edge[i] >= 0)
                a->traces[plan->edges[plan->nodes[n].in_edge[i]].from].told =
                    true;
        a->traces[n].told = true;
        for (uint32_t i = plan->first_out[n]; i < plan->first_out[n + 1]; i++)
            if (returns(a, &plan->edges[i]))
                a->traces[plan->edges[i].to].told = true;
    } while ((n = a->traces[n].next) != 0);
}

static void tell_group(struct stk_advice *a, uint32_t root, const char *verb,
                       const struct stk_gain *gain)
{
    const bool upload = has_upload(a, root);
    stk_text_add(&a->text, upload ? "frames leave the device and come back: "
                                  : "frames are worked on by the host between "
                                    "modules of the device: ");
    tell_ways(a, root);
    stk_advice_gain(a, verb, gain);
    stk_advice_issue(a, upload ? "W310" : "W312", place_of(a, root, 0));
    mark_told(a, root);
}

// Modules at one end of a group that cannot move as a whole: put into a->set
// those that are next to the copies. False: there are none.
static bool choose_end(struct stk_advice *a, uint32_t root, bool before,
                       uint32_t taken)
{
    const struct pen_plan *plan = a->plan;
    uint32_t count = 0;
    bool any = false;
    for (uint32_t n = root;;) {
        a->path[count++] = n;
        if ((n = a->traces[n].next) == 0)
            break;
    }
    a->set++;
    for (uint32_t i = 0; i < count; i++) {
        const uint32_t n = a->path[before ? i : count - 1 - i];
        struct stk_trace *t = &a->traces[n];
        const struct stk_plan_node *node = &plan->nodes[n];
        bool may = t->way != STK_STAYS && t->set != taken;
        for (uint32_t k = 0; before && k < node->inputs && may; k++) {
            if (node->in_edge[k] < 0)
                continue;
            const struct stk_plan_edge *e = &plan->edges[node->in_edge[k]];
            may = stk_advice_transfer(a, e->from) == STK_D2H ||
                  a->traces[e->from].set == a->set;
        }
        for (uint32_t k = plan->first_out[n];
             !before && k < plan->first_out[n + 1] && may; k++)
            may = returns(a, &plan->edges[k]) ||
                  a->traces[plan->edges[k].to].set == a->set;
        if (!may)
            continue;
        t->set = a->set;
        any = any || (t->way == STK_MOVES_AS_TWIN && !node->inserted &&
                      !stk_advice_chosen(node));
    }
    return any;
}

static void tell_end(struct stk_advice *a, uint32_t root, bool before)
{
    const struct stk_gain gain = weigh(a, root);
    if (!gain.known || !stk_advice_pays(a, &gain)) {
        stk_advice_forget(a);
        return;
    }
    unsigned names = 0;
    stk_advice_begin(a);
    uint32_t n = root;
    do {
        const struct stk_plan_node *node = &a->plan->nodes[n];
        if (a->traces[n].set != a->set ||
            a->traces[n].way != STK_MOVES_AS_TWIN || node->inserted ||
            stk_advice_chosen(node))
            continue;
        stk_text_add(&a->text, names++ ? ", " : "");
        stk_advice_name(&a->text, node->id);
    } while ((n = a->traces[n].next) != 0);
    stk_text_add(&a->text, names > 1 ? " work on the host, though "
                                     : " works on the host, though ");
    stk_text_add(&a->text, before ? "the frames come from the device"
                                  : "the frames go to the device");
    stk_advice_gain(a, "on the device saves", &gain);
    suggest(a, root);
    stk_advice_issue(a, "W312", place_of(a, root, a->set));
}

static void advise_group(struct stk_advice *a, uint32_t root)
{
    unsigned none = 0, causes = 0;
    uint32_t n = root;
    a->set++;
    do {
        struct stk_trace *t = &a->traces[n];
        const struct stk_plan_node *node = &a->plan->nodes[n];
        if (t->between) {
            find_way(a, n);
            t->set = a->set;
            none += t->way == STK_STAYS;
            causes +=
                !node->inserted &&
                ((t->way == STK_MOVES_AS_TWIN && !stk_advice_chosen(node)) ||
                 t->way == STK_GOES);
        }
    } while ((n = a->traces[n].next) != 0);

    stk_advice_begin(a);
    if (none) {
        const struct stk_gain costs = copies_of(a, root);
        suggest_why_not(a, root);
        tell_group(a, root, "costs", &costs);
        uint32_t taken = 0;
        if (choose_end(a, root, true, 0)) {
            taken = a->set;
            tell_end(a, root, true);
        }
        if (choose_end(a, root, false, taken))
            tell_end(a, root, false);
        return;
    }
    const struct stk_gain gain =
        a->traces[root].between ? weigh(a, root) : weigh_direct(a, root);
    // What the planner chose and placed itself was the best.
    if ((!causes && !a->drop_count) || !stk_advice_pays(a, &gain)) {
        stk_advice_forget(a);
        return;
    }
    suggest(a, root);
    tell_group(a, root, "saves", &gain);
}

static bool leads_back(const struct stk_advice *a, uint32_t download)
{
    const struct pen_plan *plan = a->plan;
    for (uint32_t i = plan->first_out[download];
         i < plan->first_out[download + 1]; i++)
        if (returns(a, &plan->edges[i]))
            return true;
    return false;
}

void stk_advise_paths(struct stk_advice *a)
{
    const uint32_t count = a->plan->node_count;
    for (uint32_t n = 0; n < count; n++)
        trace_node(a, n);
    if (a->plan->d2h_per_frame == 0)
        return;
    for (uint32_t n = count; n-- > 0;)
        look_behind(a, n);
    make_groups(a);
    for (uint32_t n = 0; n < count && !a->failed; n++)
        if (a->traces[n].between
                ? root_of(a, n) == n
                : stk_advice_transfer(a, n) == STK_D2H && leads_back(a, n))
            advise_group(a, n);
}
