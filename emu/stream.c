// Streams: a queue and a thread each. Marks: places in a queue that events
// and waiting callers refer to.

#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "emu.h"

enum { LONGEST_DELAY_US = 300 };

// --- marks ------------------------------------------------------------------

void emu_mark_unref(struct emu_mark *mark)
{
    if (mark && !--mark->refs)
        free(mark);
}

struct emu_mark *emu_mark_tail(struct emu_stream *stream)
{
    struct emu_mark *mark = calloc(1, sizeof(*mark));
    if (!mark)
        return NULL;
    mark->refs = 1;
    mark->seq = stream->queued;
    if (stream->done >= mark->seq) {
        mark->reached = true;
        return mark;
    }
    mark->refs++;
    mark->stream = stream;
    *stream->last_mark = mark;
    stream->last_mark = &mark->next;
    return mark;
}

static void reach_marks(struct emu_stream *stream)
{
    bool any = false;
    while (stream->marks && stream->marks->seq <= stream->done) {
        struct emu_mark *mark = stream->marks;
        stream->marks = mark->next;
        if (!stream->marks)
            stream->last_mark = &stream->marks;
        mark->next = NULL;
        mark->stream = NULL;
        mark->reached = true;
        emu_mark_unref(mark);
        any = true;
    }
    if (any)
        pthread_cond_broadcast(&emu.progress);
}

static void demand(struct emu_mark *mark)
{
    struct emu_stream *stream = mark->stream;
    if (mark->reached || stream->demand >= mark->seq)
        return;
    stream->demand = mark->seq;
    pthread_cond_signal(&stream->wake);
}

void emu_mark_wait(struct emu_mark *mark)
{
    demand(mark);
    while (!mark->reached)
        pthread_cond_wait(&emu.progress, &emu.lock);
}

// --- operations -------------------------------------------------------------

struct emu_op *emu_op_create(enum emu_op_kind kind)
{
    struct emu_op *op = calloc(1, sizeof(*op));
    if (op)
        op->kind = kind;
    return op;
}

void emu_op_destroy(struct emu_op *op)
{
    if (!op)
        return;
    emu_mark_unref(op->mark);
    free(op->staged);
    free(op->args);
    free(op);
}

static void append(struct emu_stream *stream, struct emu_op *op)
{
    op->seq = ++stream->queued;
    op->next = NULL;
    *stream->last = op;
    stream->last = &op->next;
    pthread_cond_signal(&stream->wake);
}

static CUresult append_wait(struct emu_stream *stream, struct emu_stream *other)
{
    if (emu_stream_idle(other))
        return CUDA_SUCCESS;
    struct emu_op *op = emu_op_create(EMU_OP_WAIT);
    if (!op)
        return CUDA_ERROR_OUT_OF_MEMORY;
    op->mark = emu_mark_tail(other);
    if (!op->mark) {
        emu_op_destroy(op);
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    append(stream, op);
    return CUDA_SUCCESS;
}

// Work of the NULL stream comes after what all blocking streams have queued,
// and what they queue later comes after it.
static CUresult order_with_legacy(struct emu_stream *stream)
{
    struct emu_context *ctx = stream->ctx;
    if (stream->flags & CU_STREAM_NON_BLOCKING || !ctx->legacy)
        return CUDA_SUCCESS;
    if (stream != ctx->legacy)
        return append_wait(stream, ctx->legacy);
    for (struct emu_stream *s = ctx->streams; s; s = s->next) {
        if (s == stream || s->flags & CU_STREAM_NON_BLOCKING)
            continue;
        const CUresult result = append_wait(stream, s);
        if (result)
            return result;
    }
    return CUDA_SUCCESS;
}

CUresult emu_enqueue(struct emu_stream *stream, struct emu_op *op)
{
    const CUresult result = order_with_legacy(stream);
    if (result) {
        emu_op_destroy(op);
        return result;
    }
    append(stream, op);
    return CUDA_SUCCESS;
}

// Without the lock.
static void copy_rows(const struct emu_op *op)
{
    if (op->rows == 1) {
        memmove(op->dst, op->src, op->row_bytes);
        return;
    }
    for (size_t y = 0; y < op->rows; y++)
        memmove(op->dst + y * op->dst_pitch, op->src + y * op->src_pitch,
                op->row_bytes);
}

// Do one operation; the lock is let go meanwhile.
static void perform(struct emu_stream *stream, struct emu_op *op)
{
    struct emu_context *ctx = stream->ctx;
    bool good = true;

    switch (op->kind) {
    case EMU_OP_RECORD:
        return;
    case EMU_OP_WAIT:
        demand(op->mark);
        while (!op->mark->reached && !ctx->sticky)
            pthread_cond_wait(&emu.progress, &emu.lock);
        return;
    case EMU_OP_COPY:
        pthread_mutex_unlock(&emu.lock);
        copy_rows(op);
        break;
    case EMU_OP_FILL:
        pthread_mutex_unlock(&emu.lock);
        memset(op->dst, op->value, op->row_bytes);
        break;
    case EMU_OP_LAUNCH:
        pthread_mutex_unlock(&emu.lock);
        good = emu_kernel_run(op, ctx->device);
        break;
    }
    pthread_mutex_lock(&emu.lock);
    if (!good)
        emu_context_break(ctx, CUDA_ERROR_ILLEGAL_ADDRESS);
}

// --- the thread -------------------------------------------------------------

static bool may_run(const struct emu_stream *stream)
{
    if (!stream->first)
        return false;
    if (stream->ctx->sticky)
        return true;  // drops what is queued
    if (stream->held)
        return false;
    return emu.mode != PENEMU_LAZY || stream->first->seq <= stream->demand;
}

static uint32_t draw(struct emu_stream *stream)
{
    stream->random ^= stream->random << 13;
    stream->random ^= stream->random >> 7;
    stream->random ^= stream->random << 17;
    return (uint32_t)(stream->random >> 32);
}

// Half of the operations follow at once, the others after a while.
static void delay(struct emu_stream *stream)
{
    const uint32_t us = draw(stream) % (2 * LONGEST_DELAY_US);
    if (us >= LONGEST_DELAY_US)
        return;
    const struct timespec pause = { .tv_nsec = us * 1000L };
    pthread_mutex_unlock(&emu.lock);
    nanosleep(&pause, NULL);
    pthread_mutex_lock(&emu.lock);
}

static void *stream_main(void *cookie)
{
    struct emu_stream *stream = cookie;
    struct emu_context *ctx = stream->ctx;

    pthread_mutex_lock(&emu.lock);
    while (stream->first || !stream->closing) {
        if (!may_run(stream)) {
            pthread_cond_wait(&stream->wake, &emu.lock);
            continue;
        }
        if (emu.mode == PENEMU_RANDOM && !ctx->sticky) {
            delay(stream);
            if (!may_run(stream))
                continue;  // the mode was changed, or it is held
        }
        struct emu_op *op = stream->first;
        if (!ctx->sticky)
            perform(stream, op);
        stream->first = op->next;
        if (!stream->first)
            stream->last = &stream->first;
        stream->done = op->seq;
        emu_op_destroy(op);
        reach_marks(stream);
    }

    struct emu_stream **at = &ctx->streams;
    while (*at != stream)
        at = &(*at)->next;
    *at = stream->next;
    for (unsigned i = 0; i < EMU_BLOCKING_RECORDS; i++)
        emu_mark_unref(stream->blocking[i]);
    pthread_cond_destroy(&stream->wake);
    free(stream);
    ctx->threads--;
    emu.stats.threads--;
    pthread_cond_broadcast(&emu.progress);
    pthread_mutex_unlock(&emu.lock);
    return NULL;
}

CUresult emu_stream_create(struct emu_context *ctx, unsigned flags,
                           struct emu_stream **out)
{
    struct emu_stream *stream = calloc(1, sizeof(*stream));
    if (!stream)
        return CUDA_ERROR_OUT_OF_MEMORY;
    stream->ctx = ctx;
    stream->flags = flags;
    stream->last = &stream->first;
    stream->last_mark = &stream->marks;
    stream->random = (emu.seed + 1) * 0x9e3779b97f4a7c15u ^
                     (++emu.stream_serial * 0xbf58476d1ce4e5b9u);
    pthread_cond_init(&stream->wake, NULL);

    // Signals are for the threads of the program.
    sigset_t all, old;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &old);
    pthread_attr_t detached;
    pthread_attr_init(&detached);
    pthread_attr_setdetachstate(&detached, PTHREAD_CREATE_DETACHED);
    pthread_t thread;
    const int failed = pthread_create(&thread, &detached, stream_main, stream);
    pthread_attr_destroy(&detached);
    pthread_sigmask(SIG_SETMASK, &old, NULL);
    if (failed) {
        pthread_cond_destroy(&stream->wake);
        free(stream);
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    stream->next = ctx->streams;
    ctx->streams = stream;
    ctx->threads++;
    emu.stats.threads++;
    *out = stream;
    return CUDA_SUCCESS;
}

void emu_stream_close(struct emu_stream *stream)
{
    stream->handle = 0;
    stream->closing = true;
    pthread_cond_signal(&stream->wake);
}

bool emu_stream_idle(const struct emu_stream *stream)
{
    return stream->done == stream->queued;
}

CUresult emu_context_wait(struct emu_context *ctx, bool *waited)
{
    // Marks first and waiting afterwards: streams come and go meanwhile, and
    // what is queued from now on is not waited for.
    size_t count = 0, room = 0;
    for (struct emu_stream *s = ctx->streams; s; s = s->next)
        room++;
    *waited = false;
    if (!room)
        return ctx->sticky;
    struct emu_mark **marks = calloc(room, sizeof(struct emu_mark *));
    if (!marks)
        return CUDA_ERROR_OUT_OF_MEMORY;
    CUresult result = CUDA_SUCCESS;
    for (struct emu_stream *s = ctx->streams; s; s = s->next) {
        if (emu_stream_idle(s))
            continue;
        marks[count] = emu_mark_tail(s);
        if (!marks[count]) {
            result = CUDA_ERROR_OUT_OF_MEMORY;
            break;
        }
        demand(marks[count]);
        count++;
    }
    *waited = count != 0;
    // The context may be destroyed by another thread while this one waits.
    const uint64_t handle = ctx->handle;
    for (size_t i = 0; i < count; i++) {
        emu_mark_wait(marks[i]);
        emu_mark_unref(marks[i]);
    }
    free(marks);
    if (result)
        return result;
    if (emu_handle_find(EMU_CONTEXT, (void *)(uintptr_t)handle) != ctx)
        return CUDA_ERROR_CONTEXT_IS_DESTROYED;
    return ctx->sticky;
}

void emu_context_wake(struct emu_context *ctx)
{
    for (struct emu_stream *s = ctx->streams; s; s = s->next)
        pthread_cond_signal(&s->wake);
    pthread_cond_broadcast(&emu.progress);
}
