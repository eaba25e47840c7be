#ifndef STK_EDGE_H
#define STK_EDGE_H

// A bounded queue from one output pin to one input pin: frames in order, and
// between them what takes no capacity and is never dropped: gaps, which stand
// for frames that were dropped or failed, and the end of the stream. Every
// number of a frame that its source gave out is in each edge exactly once, as
// a frame or in a gap, so consumers with several inputs can pair by position
// and never wait for what will not come.
//
// One task puts, one takes.

#include <pthread.h>
#include <stdatomic.h>

#include "../graph/plan.h"
#include "../mem/frame.h"

enum stk_item_kind {
    STK_ITEM_NONE = 0,  // the edge is empty
    STK_ITEM_FRAME,
    STK_ITEM_GAP,
    STK_ITEM_EOS,  // stays at the head
};

struct stk_item {
    enum stk_item_kind kind;
    struct pen_frame *frame;  // one reference
    uint64_t index;           // of the frame, or of the first of the gap
    uint64_t count;           // frames that the gap stands for
};

struct stk_edge_stats {
    uint64_t frames;  // that were put and not dropped
    uint64_t drops;   // by the policy
    uint32_t fill, max_fill;
};

struct stk_queue {
    uint32_t depth;
    enum stk_policy policy;
    pthread_mutex_t lock;
    struct stk_item *ring;  // room for 2 * depth + 3 items
    uint32_t room, head, used;
    _Atomic uint32_t fill;  // frames in the ring
    struct stk_edge_stats stats;
};

// Errors: PEN_E_NOMEM.
PEN_NODISCARD enum pen_status stk_queue_init(struct stk_queue *queue,
                                             uint32_t depth,
                                             enum stk_policy policy,
                                             struct pen_error *err);
// Drops what is left. Accepts a zeroed queue.
void stk_queue_finish(struct stk_queue *queue);

// Whether a frame can be put now; what is true for the putting task stays
// true until it puts. No lock.
bool stk_queue_has_place(const struct stk_queue *queue);
// Put a frame; takes the reference. Needs a place. Returns what the policy
// dropped, to be released by the caller, or NULL: `frame` itself or the
// oldest of the queue.
struct pen_frame *stk_queue_put(struct stk_queue *queue,
                                struct pen_frame *frame);
void stk_queue_put_gap(struct stk_queue *queue, uint64_t index);
void stk_queue_put_eos(struct stk_queue *queue);

// What stands at the head. A frame may have become a gap when it is taken.
enum stk_item_kind stk_queue_peek(struct stk_queue *queue);
// Take one frame, or one frame's worth of a gap (count 1); the caller owns the
// frame's reference. EOS is returned but stays.
struct stk_item stk_queue_take(struct stk_queue *queue);

void stk_queue_stats(struct stk_queue *queue, struct stk_edge_stats *out);

#endif  // STK_EDGE_H
