// Driver functions of streams and events.

#include <stdlib.h>

#include "api.h"

// --- streams ----------------------------------------------------------------

CUresult emu_find_stream(enum emu_fn fn, struct emu_context *ctx,
                         CUstream handle, struct emu_stream **out)
{
    const uint64_t value = (uint64_t)(uintptr_t)handle;
    if (value <= 1) {
        if (!ctx->legacy) {
            const CUresult result =
                emu_stream_create(ctx, CU_STREAM_DEFAULT, &ctx->legacy);
            if (result)
                return result;
        }
        *out = ctx->legacy;
        return CUDA_SUCCESS;
    }
    if (value == 2)
        return emu_misuse(fn, CUDA_ERROR_NOT_SUPPORTED,
                          "the emulated device has no per-thread streams");
    *out = emu_handle_find(EMU_STREAM, handle);
    if (!*out)
        return emu_misuse(fn, CUDA_ERROR_INVALID_HANDLE, "no such stream");
    return (*out)->ctx->sticky;
}

CUresult emu_wait_mark(struct emu_mark *mark, struct emu_context *ctx)
{
    if (!mark)
        return CUDA_ERROR_OUT_OF_MEMORY;
    const uint64_t handle = ctx->handle;
    emu.stats.waits += !mark->reached;
    emu_mark_wait(mark);
    emu_mark_unref(mark);
    if (emu_handle_find(EMU_CONTEXT, (void *)(uintptr_t)handle) != ctx)
        return CUDA_ERROR_CONTEXT_IS_DESTROYED;
    return ctx->sticky;
}

CUresult emu_cuStreamCreate(CUstream *stream, unsigned int flags)
{
    CALL call = ENTER(cuStreamCreate, CONTEXT);
    if (call.result)
        return call.result;
    if (!stream || flags & ~(unsigned)CU_STREAM_NON_BLOCKING)
        return MISUSE(cuStreamCreate, CUDA_ERROR_INVALID_VALUE,
                      "unknown flags");
    struct emu_stream *made;
    const CUresult result = emu_stream_create(call.ctx, flags, &made);
    if (result)
        return result;
    made->handle = emu_handle_create(EMU_STREAM, made, call.ctx);
    if (!made->handle) {
        emu_stream_close(made);
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    emu.stats.streams++;
    *stream = (CUstream)(uintptr_t)made->handle;
    return CUDA_SUCCESS;
}

CUresult emu_cuStreamDestroy(CUstream stream)
{
    CALL call = ENTER(cuStreamDestroy, CONTEXT);
    struct emu_slot *slot;
    const CUresult result =
        emu_find_to_destroy(EMU_FN_cuStreamDestroy, &call, EMU_STREAM, stream,
                            "no such stream, or destroyed already", &slot);
    if (result)
        return result;
    struct emu_stream *gone = slot->object;
    emu_handle_destroy(gone->handle);
    emu_stream_close(gone);
    emu.stats.streams--;
    return CUDA_SUCCESS;
}

CUresult emu_cuStreamSynchronize(CUstream stream)
{
    CALL call = ENTER(cuStreamSynchronize, CONTEXT);
    if (call.result)
        return call.result;
    struct emu_stream *s;
    CUresult result =
        emu_find_stream(EMU_FN_cuStreamSynchronize, call.ctx, stream, &s);
    if (result)
        return result;
    if (s == s->ctx->legacy) {
        // Everything that a copy here would wait for.
        struct emu_op *op = emu_op_create(EMU_OP_RECORD);
        result = op ? emu_enqueue(s, op) : CUDA_ERROR_OUT_OF_MEMORY;
        if (result)
            return result;
    }
    return emu_wait_mark(emu_mark_tail(s), s->ctx);
}

CUresult emu_cuStreamQuery(CUstream stream)
{
    CALL call = ENTER(cuStreamQuery, CONTEXT);
    if (call.result)
        return call.result;
    struct emu_stream *s;
    const CUresult result =
        emu_find_stream(EMU_FN_cuStreamQuery, call.ctx, stream, &s);
    if (result)
        return result;
    if (!emu_stream_idle(s))
        return CUDA_ERROR_NOT_READY;
    if (s != s->ctx->legacy)
        return CUDA_SUCCESS;
    for (struct emu_stream *t = s->ctx->streams; t; t = t->next) {
        if (!(t->flags & CU_STREAM_NON_BLOCKING) && !emu_stream_idle(t))
            return CUDA_ERROR_NOT_READY;
    }
    return CUDA_SUCCESS;
}

CUresult emu_cuStreamWaitEvent(CUstream stream, CUevent event,
                               unsigned int flags)
{
    CALL call = ENTER(cuStreamWaitEvent, CONTEXT);
    if (call.result)
        return call.result;
    struct emu_stream *s;
    const CUresult result =
        emu_find_stream(EMU_FN_cuStreamWaitEvent, call.ctx, stream, &s);
    if (result)
        return result;
    const struct emu_event *e = emu_handle_find(EMU_EVENT, event);
    if (!e)
        return MISUSE(cuStreamWaitEvent, CUDA_ERROR_INVALID_HANDLE,
                      "no such event");
    if (flags != CU_EVENT_WAIT_DEFAULT)
        return MISUSE(cuStreamWaitEvent, CUDA_ERROR_INVALID_VALUE,
                      "unknown flags");
    if (!e->mark)
        return CUDA_SUCCESS;
    struct emu_op *op = emu_op_create(EMU_OP_WAIT);
    if (!op)
        return CUDA_ERROR_OUT_OF_MEMORY;
    op->mark = e->mark;
    op->mark->refs++;
    return emu_enqueue(s, op);
}

// --- events -----------------------------------------------------------------

CUresult emu_cuEventCreate(CUevent *event, unsigned int flags)
{
    CALL call = ENTER(cuEventCreate, CONTEXT);
    if (call.result)
        return call.result;
    const unsigned known = CU_EVENT_BLOCKING_SYNC | CU_EVENT_DISABLE_TIMING;
    if (!event || flags & ~known)
        return MISUSE(cuEventCreate, CUDA_ERROR_INVALID_VALUE, "unknown flags");
    struct emu_event *made = calloc(1, sizeof(*made));
    if (!made)
        return CUDA_ERROR_OUT_OF_MEMORY;
    made->flags = flags;
    const uint64_t handle = emu_handle_create(EMU_EVENT, made, call.ctx);
    if (!handle) {
        free(made);
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    emu.stats.events++;
    *event = (CUevent)(uintptr_t)handle;
    return CUDA_SUCCESS;
}

CUresult emu_cuEventDestroy(CUevent event)
{
    CALL call = ENTER(cuEventDestroy, CONTEXT);
    struct emu_slot *slot;
    const CUresult result =
        emu_find_to_destroy(EMU_FN_cuEventDestroy, &call, EMU_EVENT, event,
                            "no such event, or destroyed already", &slot);
    if (result)
        return result;
    struct emu_event *gone = slot->object;
    emu_handle_destroy((uint64_t)(uintptr_t)event);
    emu_mark_unref(gone->mark);
    free(gone);
    emu.stats.events--;
    return CUDA_SUCCESS;
}

static CUresult find_recording(struct emu_context *ctx, CUevent event,
                               CUstream stream, struct emu_stream **s,
                               struct emu_event **e)
{
    const CUresult result =
        emu_find_stream(EMU_FN_cuEventRecord, ctx, stream, s);
    if (result)
        return result;
    const struct emu_slot *slot = emu_handle_slot(EMU_EVENT, event);
    if (!slot)
        return MISUSE(cuEventRecord, CUDA_ERROR_INVALID_HANDLE,
                      "no such event");
    if (slot->ctx != (*s)->ctx)
        return MISUSE(cuEventRecord, CUDA_ERROR_INVALID_HANDLE,
                      "event and stream are of different contexts");
    *e = slot->object;
    return CUDA_SUCCESS;
}

CUresult emu_cuEventRecord(CUevent event, CUstream stream)
{
    CALL call = ENTER(cuEventRecord, CONTEXT);
    if (call.result)
        return call.result;
    struct emu_stream *s;
    struct emu_event *e = NULL;
    CUresult result = find_recording(call.ctx, event, stream, &s, &e);
    const bool blocking = !result && e->flags & CU_EVENT_BLOCKING_SYNC;
    while (!result && blocking && s->blocking[s->blocking_next] &&
           !s->blocking[s->blocking_next]->reached) {
        s->blocking[s->blocking_next]->refs++;
        result = emu_wait_mark(s->blocking[s->blocking_next], s->ctx);
        // Others had their turn meanwhile.
        if (!result)
            result = find_recording(call.ctx, event, stream, &s, &e);
    }
    if (result)
        return result;
    struct emu_op *op = emu_op_create(EMU_OP_RECORD);
    result = op ? emu_enqueue(s, op) : CUDA_ERROR_OUT_OF_MEMORY;
    if (result)
        return result;
    struct emu_mark *mark = emu_mark_tail(s);
    if (!mark)
        return CUDA_ERROR_OUT_OF_MEMORY;
    if (blocking) {
        struct emu_mark **place = &s->blocking[s->blocking_next];
        emu_mark_unref(*place);
        *place = mark;
        mark->refs++;
        s->blocking_next = (s->blocking_next + 1) % EMU_BLOCKING_RECORDS;
    }
    emu_mark_unref(e->mark);
    e->mark = mark;
    return CUDA_SUCCESS;
}

CUresult emu_cuEventQuery(CUevent event)
{
    CALL call = ENTER(cuEventQuery, CONTEXT);
    if (call.result)
        return call.result;
    const struct emu_slot *slot = emu_handle_slot(EMU_EVENT, event);
    if (!slot)
        return MISUSE(cuEventQuery, CUDA_ERROR_INVALID_HANDLE, "no such event");
    if (slot->ctx->sticky)
        return slot->ctx->sticky;
    const struct emu_event *e = slot->object;
    return !e->mark || e->mark->reached ? CUDA_SUCCESS : CUDA_ERROR_NOT_READY;
}

CUresult emu_cuEventSynchronize(CUevent event)
{
    CALL call = ENTER(cuEventSynchronize, CONTEXT);
    if (call.result)
        return call.result;
    const struct emu_slot *slot = emu_handle_slot(EMU_EVENT, event);
    if (!slot)
        return MISUSE(cuEventSynchronize, CUDA_ERROR_INVALID_HANDLE,
                      "no such event");
    const struct emu_event *e = slot->object;
    if (!e->mark)
        return CUDA_SUCCESS;
    e->mark->refs++;
    return emu_wait_mark(e->mark, slot->ctx);
}
