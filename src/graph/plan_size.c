// How many frames and bytes the pools hold, what a plan needs at its peak and
// moves per frame.
//
// Blocks of a pool: as many as the runtime can have in use at once, and no
// more, so that a producer finds one whenever its consumers have room, and none
// is there for nothing. It follows from what an actor does (actor.c):
//
// 1. A producer begins a frame only when each queue behind it has a place,
//    which nobody else fills: the frame being made is one of those that the
//    queue may hold.
// 2. It gives the frame to all its queues at once, so a queue of depth d holds
//    the newest frames in a row, at most d with the one being made. What the
//    consumer has in its hands is the one before those: d + 1 in a row. Of
//    several consumers the slowest holds what the others hold as well.
// 3. Who passes frames on takes one only when there is a place behind it. So
//    the frames in front of it, in its hands and behind it are one row too, as
//    long as both queues and the last consumer's hands.
// 4. A queue that drops does not hold its producer back. One that drops the
//    oldest holds the newest d in a row, but what was taken from it may be of
//    any age; one that drops the newest holds frames of any age. Those are
//    strays, and add up.
//
// Where modules that pass frames on give some up, two branches may hold
// different ones, together more than the longer row; and a module may keep a
// frame after its call. Then the producer waits for a block.
//
// It does not wait for ever, nor for a place. Every number of a source is on
// each edge behind it once, as a frame or a gap, and each module takes one item
// of each input for one of each output: a marked graph. Its tokens are the
// items on the edges, the free places, which go from consumer to producer, and
// the free blocks, which go from the last consumers to the producer. How many
// there are on a ring never changes, and the graph stands still only if a ring
// has none. The edges alone make no ring, so each has places or blocks in it,
// of which there is at least one at the start. So no depths stop branches that
// meet again, however long they are.

#include "plan_size.h"

#include <stdlib.h>
#include <string.h>

#include "planner.h"

// More than any real frame costs; sums of a million modules do not overflow.
#define MAX_COST (INT64_C(1) << 42)

// --- frames -----------------------------------------------------------------

static uint32_t sum(uint32_t a, uint32_t b)
{
    return a > UINT32_MAX - b ? UINT32_MAX : a + b;
}

// The range of the edges of one output pin.
static uint32_t pin_edges(const struct pen_plan *plan, uint32_t node,
                          uint32_t pin, uint32_t *begin)
{
    uint32_t e = plan->first_out[node];
    const uint32_t end = plan->first_out[node + 1];
    while (e < end && plan->edges[e].from_pin < pin)
        e++;
    *begin = e;
    while (e < end && plan->edges[e].from_pin == pin)
        e++;
    return e;
}

// The frames of a pool that may be behind an output, or behind the inputs of a
// module that passes frames on.
struct behind {
    uint32_t row;     // in a row that ends with the newest, without the one in
                      // front of it that the last consumer has in its hands
    uint32_t strays;  // others
    bool device;      // the device reads them
};

static uint32_t larger(uint32_t a, uint32_t b)
{
    return a > b ? a : b;
}

static struct behind behind_edge(const struct pen_plan *plan,
                                 const struct stk_plan_edge *edge,
                                 const struct behind *beyond)
{
    const uint32_t taken = sum(beyond->row, sum(1, beyond->strays));
    struct behind b = {
        .device = beyond->device ||
                  (plan->nodes[edge->to].cls->flags & PEN_CLASS_CUDA),
    };
    switch (edge->policy) {
    case STK_BLOCK:
        b.row = sum(edge->depth, beyond->row);
        b.strays = beyond->strays;
        break;
    case STK_DROP_OLDEST:
        b.row = edge->depth;
        b.strays = taken;
        break;
    case STK_DROP_NEWEST:
        b.strays = sum(edge->depth, taken);
        break;
    }
    return b;
}

static void add_behind(struct behind *to, const struct behind *more)
{
    to->row = larger(to->row, more->row);
    to->strays = sum(to->strays, more->strays);
    to->device = to->device || more->device;
}

bool stk_plan_streamed(const struct pen_plan *plan,
                       const struct stk_plan_node *node,
                       const struct stk_plan_output *o)
{
    if (!(node->cls->flags & PEN_CLASS_CUDA))
        return false;
    if (o->mem == PEN_MEM_CUDA_DEVICE || o->kind == STK_DMABUF_CUDA)
        return true;
    const bool reached = o->mem == PEN_MEM_HOST_PINNED ||
                         (o->kind == STK_DMABUF_HOST &&
                          (plan->profile.dmabuf & PEN_DMABUF_IMPORT));
    // A bridge writes what the host reaches too by a copy on the stream. Any
    // other module may write it on the host.
    return reached && (node->cls->flags & PEN_CLASS_BRIDGE);
}

// Blocks that the host cannot write yet although nobody has them any more: the
// device reads one, and the next, so that it need not wait for the host in
// between. What is written on the stream itself may be written at once.
static uint32_t in_flight(const struct pen_plan *plan,
                          const struct stk_plan_node *node,
                          const struct stk_plan_output *o, bool device)
{
    const bool shared =
        o->mem == PEN_MEM_HOST_PINNED || o->mem == PEN_MEM_DMABUF;
    // The ring in front of a staged upload is that already.
    if (!device || !shared || node->staged || stk_plan_streamed(plan, node, o))
        return 0;
    return STK_STAGING_BLOCKS;
}

// `behind` holds, by node, what may be behind those that pass frames on.
static void count_blocks(struct pen_plan *plan, uint32_t number,
                         struct behind *behind)
{
    struct stk_plan_node *node = &plan->nodes[number];
    for (uint32_t pin = 0; pin < node->outputs; pin++) {
        struct stk_plan_output *o = &node->output[pin];
        struct behind all = { 0 };
        uint32_t e;
        const uint32_t end = pin_edges(plan, number, pin, &e);
        for (; e < end; e++) {
            const struct stk_plan_edge *edge = &plan->edges[e];
            const struct behind one =
                behind_edge(plan, edge, &behind[edge->to]);
            add_behind(&all, &one);
        }
        if (node->forwards)
            add_behind(&behind[number], &all);
        if (stk_node_hands_through(plan, node))
            continue;
        o->blocks = sum(sum(all.row, 1), all.strays);
        o->blocks = sum(o->blocks, in_flight(plan, node, o, all.device));
    }
}

// --- bytes ------------------------------------------------------------------

struct stk_plan_totals stk_plan_totals_of(const struct pen_plan *plan)
{
    struct stk_plan_totals t = {
        .unknown = plan->unknown,
        .h2d = plan->h2d_bytes_per_frame,
        .d2h = plan->d2h_bytes_per_frame,
        .h2h = plan->h2h_bytes_per_frame,
        .cost = plan->cost_ns,
    };
    memcpy(t.peak, plan->peak, sizeof(t.peak));
    return t;
}

void stk_plan_set_totals(struct pen_plan *plan, const struct stk_plan_totals *t)
{
    memcpy(plan->peak, t->peak, sizeof(t->peak));
    plan->unknown = t->unknown;
    plan->provisional = t->unknown > 0;
    plan->h2d_bytes_per_frame = t->h2d;
    plan->d2h_bytes_per_frame = t->d2h;
    plan->h2h_bytes_per_frame = t->h2h;
    plan->cost_ns = t->cost;
}

static enum pen_status too_large(const struct stk_plan_node *node,
                                 struct pen_error *err)
{
    return pen_error_set(err, PEN_E_LIMIT, 0, node->id,
                         "the pools of `%s` hold more bytes than a machine "
                         "can address",
                         node->id);
}

// Workspace as the runtime makes it: host memory with a header in front of it,
// pinned memory several times.
uint64_t stk_plan_workspace_bytes(const struct stk_plan_node *node,
                                  enum pen_mem_type mem)
{
    const uint64_t bytes = node->workspace[mem];
    if (mem == PEN_MEM_HOST_PINNED)
        return STK_STAGING_BLOCKS * bytes;
    if (bytes == 0 || mem != PEN_MEM_HOST)
        return bytes;
    const uint64_t align = STK_WORKSPACE_ALIGN;
    return (bytes + 2 * align - 1) / align * align;
}

// Exported memory takes more.
size_t stk_plan_block_bytes(const struct stk_plan_output *o,
                            enum pen_mem_type *mem)
{
    size_t bytes = o->block_bytes;
    *mem = stk_home_account(stk_output_home(o));
    if (bytes && stk_output_home(o) == STK_HOME_DMA_CUDA &&
        !stk_dmabuf_cuda_bytes(o->block_bytes, &bytes))
        return SIZE_MAX;
    return bytes;
}

uint64_t stk_plan_pool_bytes(const struct stk_plan_output *o)
{
    enum pen_mem_type mem;
    size_t bytes;
    if (!stk_mul(stk_plan_block_bytes(o, &mem), o->blocks, &bytes))
        return UINT64_MAX;
    return bytes;
}

// Add what a node contributes, or with `sign` -1 take it away again.
enum pen_status stk_plan_account(const struct pen_plan *plan,
                                 struct stk_plan_totals *t,
                                 const struct stk_plan_node *node, int sign,
                                 struct pen_error *err)
{
    for (uint32_t o = 0; o < node->outputs; o++) {
        const struct stk_plan_output *out = &node->output[o];
        size_t bytes;
        if (out->blocks == 0)
            continue;
        if (out->block_bytes == 0) {
            t->unknown += (uint32_t)sign;
            continue;
        }
        enum pen_mem_type mem;
        if (!stk_mul(stk_plan_block_bytes(out, &mem), out->blocks, &bytes))
            return too_large(node, err);
        if (sign > 0 && t->peak[mem] > UINT64_MAX - bytes)
            return too_large(node, err);
        if (sign > 0)
            t->peak[mem] += bytes;
        else
            t->peak[mem] -= bytes;
    }
    for (int mem = PEN_MEM_NONE + 1; mem < PEN_MEM_COUNT; mem++) {
        const uint64_t bytes =
            stk_plan_workspace_bytes(node, (enum pen_mem_type)mem);
        if (sign > 0 && t->peak[mem] > UINT64_MAX - bytes)
            return too_large(node, err);
        t->peak[mem] = sign > 0 ? t->peak[mem] + bytes : t->peak[mem] - bytes;
    }
    // A copy gives the bytes that it takes.
    const uint64_t moved = node->outputs ? node->output[0].block_bytes : 0;
    uint64_t *sum_of = NULL;
    switch (stk_node_transfer(plan, node)) {
    case STK_H2D:
        sum_of = &t->h2d;
        break;
    case STK_D2H:
        sum_of = &t->d2h;
        break;
    case STK_H2H:
        sum_of = &t->h2h;
        break;
    case STK_D2D:
    case STK_NO_TRANSFER:
        break;
    }
    if (sum_of)
        *sum_of = sign > 0 ? *sum_of + moved : *sum_of - moved;
    t->cost += sign * node->cost_ns;
    return PEN_OK;
}

void stk_plan_node_cost(const struct pen_plan *plan, struct stk_plan_node *node)
{
    if (!stk_node_cost(plan, node, &node->cost_ns))
        node->cost_ns = 0;
    if (node->cost_ns > MAX_COST)
        node->cost_ns = MAX_COST;
}

// No real workspace is larger; sums of a million modules do not overflow.
#define MAX_WORKSPACE (UINT64_C(1) << 42)

// The most that any of the formats on the way in takes.
void stk_plan_node_workspace(const struct pen_plan *plan,
                             struct stk_plan_node *node)
{
    struct pen_caps in[PEN_MAX_PINS] = { 0 }, out[PEN_MAX_PINS] = { 0 };
    memset(node->workspace, 0, sizeof(node->workspace));
    if (!node->cls->ops.workspace)
        return;
    for (uint32_t i = 0; i < node->inputs; i++)
        if (node->in_edge[i] >= 0)
            in[i] = plan->edges[node->in_edge[i]].caps;
    for (uint32_t o = 0; o < node->outputs; o++)
        out[o] = node->output[o].caps;
    uint32_t formats = in[0].format ? 0 : in[0].formats;
    do {
        uint64_t bytes[PEN_MEM_COUNT] = { 0 };
        if (formats)
            in[0].format = (enum pen_format)__builtin_ctz(formats);
        node->cls->ops.workspace(node->params, in, out, bytes);
        for (int mem = PEN_MEM_NONE + 1; mem < PEN_MEM_COUNT; mem++) {
            if (bytes[mem] > MAX_WORKSPACE)
                bytes[mem] = MAX_WORKSPACE;
            if (bytes[mem] > node->workspace[mem])
                node->workspace[mem] = bytes[mem];
        }
        formats &= formats - 1;
    } while (formats);
}

enum pen_status stk_plan_size(struct pen_plan *plan, struct pen_error *err)
{
    struct behind *behind =
        calloc((size_t)plan->node_count + 1, sizeof(*behind));
    struct stk_plan_totals t = { 0 };
    enum pen_status st = PEN_OK;
    if (!behind)
        return stk_plan_no_memory(err);
    for (uint32_t n = plan->node_count; n-- > 0;)
        count_blocks(plan, n, behind);
    free(behind);
    plan->h2d_per_frame = plan->d2h_per_frame = plan->h2h_per_frame = 0;
    for (uint32_t n = 0; n < plan->node_count && st == PEN_OK; n++) {
        struct stk_plan_node *node = &plan->nodes[n];
        const enum stk_transfer transfer = stk_node_transfer(plan, node);
        stk_plan_node_cost(plan, node);
        stk_plan_node_workspace(plan, node);
        plan->h2d_per_frame += transfer == STK_H2D;
        plan->d2h_per_frame += transfer == STK_D2H;
        plan->h2h_per_frame += transfer == STK_H2H;
        st = stk_plan_account(plan, &t, node, 1, err);
    }
    if (st == PEN_OK)
        stk_plan_set_totals(plan, &t);
    return st;
}
