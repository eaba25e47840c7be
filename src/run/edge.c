#include "edge.h"

#include <assert.h>
#include <stdlib.h>

enum pen_status stk_queue_init(struct stk_queue *queue, uint32_t depth,
                               enum stk_policy policy, struct pen_error *err)
{
    *queue = (struct stk_queue){ .depth = depth ? depth : 1, .policy = policy };
    // Gaps that meet are one item, so there is at most one before, between
    // and after the frames; and the end of the stream.
    queue->room = 2 * queue->depth + 3;
    queue->ring = calloc(queue->room, sizeof(*queue->ring));
    if (!queue->ring)
        return pen_error_set(err, PEN_E_NOMEM, 0, "queue", "out of memory");
    pthread_mutex_init(&queue->lock, NULL);
    return PEN_OK;
}

void stk_queue_finish(struct stk_queue *queue)
{
    if (!queue->ring)
        return;
    for (uint32_t i = 0; i < queue->used; i++)
        pen_frame_unref(queue->ring[(queue->head + i) % queue->room].frame);
    pthread_mutex_destroy(&queue->lock);
    free(queue->ring);
    *queue = (struct stk_queue){ 0 };
}

static struct stk_item *item_at(struct stk_queue *queue, uint32_t i)
{
    return &queue->ring[(queue->head + i) % queue->room];
}

static void append(struct stk_queue *queue, struct stk_item item)
{
    assert(queue->used < queue->room);
    *item_at(queue, queue->used++) = item;
}

static void append_gap(struct stk_queue *queue, uint64_t index)
{
    struct stk_item *last =
        queue->used ? item_at(queue, queue->used - 1) : NULL;
    if (last && last->kind == STK_ITEM_GAP)
        last->count++;
    else
        append(queue, (struct stk_item){
                          .kind = STK_ITEM_GAP, .index = index, .count = 1 });
}

static void drop_head(struct stk_queue *queue)
{
    *item_at(queue, 0) = (struct stk_item){ 0 };
    queue->head = (queue->head + 1) % queue->room;
    queue->used--;
}

// Make the oldest frame a gap and join it with its neighbours. It is the
// first item, or the second behind a gap.
static struct pen_frame *displace_oldest(struct stk_queue *queue)
{
    struct stk_item gap = *item_at(queue, 0);
    drop_head(queue);
    struct pen_frame *frame = gap.frame;
    if (gap.kind == STK_ITEM_GAP) {
        frame = item_at(queue, 0)->frame;
        gap.count++;
        drop_head(queue);
    } else {
        gap.kind = STK_ITEM_GAP;
        gap.frame = NULL;
        gap.count = 1;
    }
    if (queue->used && item_at(queue, 0)->kind == STK_ITEM_GAP) {
        gap.count += item_at(queue, 0)->count;
        drop_head(queue);
    }
    queue->head = (queue->head + queue->room - 1) % queue->room;
    queue->used++;
    *item_at(queue, 0) = gap;
    return frame;
}

bool stk_queue_has_place(const struct stk_queue *queue)
{
    return queue->policy != STK_BLOCK ||
           atomic_load(&queue->fill) < queue->depth;
}

struct pen_frame *stk_queue_put(struct stk_queue *queue,
                                struct pen_frame *frame)
{
    struct pen_frame *dropped = NULL;
    pthread_mutex_lock(&queue->lock);
    uint32_t fill = atomic_load(&queue->fill);
    if (fill >= queue->depth && queue->policy == STK_DROP_NEWEST) {
        append_gap(queue, pen_frame_index(frame));
        queue->stats.drops++;
        pthread_mutex_unlock(&queue->lock);
        return frame;
    }
    if (fill >= queue->depth) {
        assert(queue->policy == STK_DROP_OLDEST);
        dropped = displace_oldest(queue);
        queue->stats.frames--;
        queue->stats.drops++;
        fill--;
    }
    append(queue, (struct stk_item){ .kind = STK_ITEM_FRAME,
                                     .frame = frame,
                                     .index = pen_frame_index(frame),
                                     .count = 1 });
    atomic_store(&queue->fill, ++fill);
    queue->stats.frames++;
    if (fill > queue->stats.max_fill)
        queue->stats.max_fill = fill;
    pthread_mutex_unlock(&queue->lock);
    return dropped;
}

void stk_queue_put_gap(struct stk_queue *queue, uint64_t index)
{
    pthread_mutex_lock(&queue->lock);
    append_gap(queue, index);
    pthread_mutex_unlock(&queue->lock);
}

void stk_queue_put_eos(struct stk_queue *queue)
{
    pthread_mutex_lock(&queue->lock);
    append(queue, (struct stk_item){ .kind = STK_ITEM_EOS });
    pthread_mutex_unlock(&queue->lock);
}

enum stk_item_kind stk_queue_peek(struct stk_queue *queue)
{
    pthread_mutex_lock(&queue->lock);
    const enum stk_item_kind kind =
        queue->used ? item_at(queue, 0)->kind : STK_ITEM_NONE;
    pthread_mutex_unlock(&queue->lock);
    return kind;
}

struct stk_item stk_queue_take(struct stk_queue *queue)
{
    struct stk_item item = { 0 };
    pthread_mutex_lock(&queue->lock);
    if (queue->used) {
        struct stk_item *head = item_at(queue, 0);
        item = *head;
        if (head->kind == STK_ITEM_GAP && head->count > 1) {
            item.count = 1;
            head->index++;
            head->count--;
        } else if (head->kind != STK_ITEM_EOS) {
            drop_head(queue);
        }
        if (item.kind == STK_ITEM_FRAME)
            atomic_fetch_sub(&queue->fill, 1);
    }
    pthread_mutex_unlock(&queue->lock);
    return item;
}

void stk_queue_stats(struct stk_queue *queue, struct stk_edge_stats *out)
{
    pthread_mutex_lock(&queue->lock);
    *out = queue->stats;
    out->fill = atomic_load(&queue->fill);
    pthread_mutex_unlock(&queue->lock);
}
