// Handles, the context stack of each thread, and contexts.

#include <stdlib.h>
#include <unistd.h>

#include "emu.h"

// --- handles ----------------------------------------------------------------

// kind (8 bits, from 0xe0) | generation (24) | index + 1 (32). The upper bits
// make it no canonical address.
static uint64_t handle_of(uint32_t index)
{
    const struct emu_slot *slot = &emu.slots[index];
    return (uint64_t)(0xe0u + slot->kind) << 56 |
           (uint64_t)(slot->generation & 0xffffff) << 32 | (index + 1);
}

uint64_t emu_handle_create(enum emu_kind kind, void *object,
                           struct emu_context *ctx)
{
    uint32_t i = 0;
    while (i < emu.slot_count && emu.slots[i].kind != EMU_NOTHING)
        i++;
    if (i == emu.slot_count) {
        const uint32_t count = emu.slot_count ? 2 * emu.slot_count : 64;
        struct emu_slot *slots = realloc(emu.slots, count * sizeof(*slots));
        if (!slots)
            return 0;
        for (uint32_t k = emu.slot_count; k < count; k++)
            slots[k] = (struct emu_slot){ 0 };
        emu.slots = slots;
        emu.slot_count = count;
    }
    emu.slots[i] = (struct emu_slot){
        .object = object,
        .ctx = ctx,
        .generation = emu.slots[i].generation + 1,
        .kind = (uint8_t)kind,
    };
    return handle_of(i);
}

struct emu_slot *emu_handle_slot(enum emu_kind kind, const void *handle)
{
    const uint64_t value = (uint64_t)(uintptr_t)handle;
    const uint32_t i = (uint32_t)value - 1;
    if (i >= emu.slot_count || emu.slots[i].kind != kind ||
        handle_of(i) != value)
        return NULL;
    return &emu.slots[i];
}

void *emu_handle_find(enum emu_kind kind, const void *handle)
{
    const struct emu_slot *slot = emu_handle_slot(kind, handle);
    return slot ? slot->object : NULL;
}

void emu_handle_destroy(uint64_t handle)
{
    struct emu_slot *slot = &emu.slots[(uint32_t)handle - 1];
    *slot = (struct emu_slot){ .generation = slot->generation };
}

// --- context stack ----------------------------------------------------------

// Behind a key and not thread-local: the loader frees the thread-local block
// of a library that was opened late from whichever thread it likes, which
// ThreadSanitizer takes for a race.

enum { STACK_ROOM = 256 };

struct stack {
    unsigned depth;
    uint64_t handle[STACK_ROOM];
};

static pthread_once_t stack_once = PTHREAD_ONCE_INIT;
static pthread_key_t stack_key;
static bool stack_key_made;

static void make_stack_key(void)
{
    stack_key_made = pthread_key_create(&stack_key, free) == 0;
}

// NULL: nothing was pushed by this thread yet.
static struct stack *stack_of_thread(void)
{
    pthread_once(&stack_once, make_stack_key);
    return stack_key_made ? pthread_getspecific(stack_key) : NULL;
}

CUresult emu_stack_push(uint64_t handle)
{
    struct stack *stack = stack_of_thread();
    if (!stack) {
        stack = stack_key_made ? calloc(1, sizeof(*stack)) : NULL;
        if (!stack || pthread_setspecific(stack_key, stack) != 0) {
            free(stack);
            return CUDA_ERROR_OUT_OF_MEMORY;
        }
    }
    if (stack->depth == STACK_ROOM) {
        emu_report("more than %d contexts pushed by one thread", STACK_ROOM);
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    stack->handle[stack->depth++] = handle;
    return CUDA_SUCCESS;
}

uint64_t emu_stack_pop(void)
{
    struct stack *stack = stack_of_thread();
    return stack && stack->depth ? stack->handle[--stack->depth] : 0;
}

uint64_t emu_stack_top(void)
{
    const struct stack *stack = stack_of_thread();
    return stack && stack->depth ? stack->handle[stack->depth - 1] : 0;
}

// --- contexts ---------------------------------------------------------------

CUresult emu_context_create(struct emu_device *dev)
{
    const CUresult reserved = emu_device_reserve(dev);
    if (reserved)
        return reserved;
    struct emu_context *ctx = calloc(1, sizeof(*ctx));
    if (!ctx)
        return CUDA_ERROR_OUT_OF_MEMORY;
    ctx->device = dev;
    ctx->handle = emu_handle_create(EMU_CONTEXT, ctx, ctx);
    if (!ctx->handle) {
        free(ctx);
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    dev->ctx = ctx;
    emu.stats.contexts++;
    return CUDA_SUCCESS;
}

static void release_objects(struct emu_context *ctx)
{
    for (uint32_t i = 0; i < emu.slot_count; i++) {
        struct emu_slot *slot = &emu.slots[i];
        if (slot->ctx != ctx || slot->kind == EMU_NOTHING)
            continue;
        const uint64_t leak = slot->given_back ? 0 : 1;
        switch ((enum emu_kind)slot->kind) {
        case EMU_STREAM: {
            struct emu_stream *stream = slot->object;
            emu.leaks.streams += leak;
            emu.stats.streams--;
            if (leak)
                emu_report("leak: a stream");
            emu_stream_close(stream);
            break;
        }
        case EMU_EVENT: {
            struct emu_event *event = slot->object;
            emu.leaks.events += leak;
            emu.stats.events--;
            if (leak)
                emu_report("leak: an event");
            emu_mark_unref(event->mark);
            free(event);
            break;
        }
        case EMU_MODULE: {
            struct emu_module *module = slot->object;
            emu.leaks.modules += leak;
            emu.stats.modules--;
            if (leak)
                emu_report("leak: module %s", module->image->name);
            free(module);
            break;
        }
        case EMU_FUNCTION:
            free(slot->object);
            break;
        case EMU_PHYSICAL: {
            struct emu_physical *physical = slot->object;
            emu.leaks.device_blocks += leak;
            emu.leaks.device_bytes += leak ? physical->bytes : 0;
            if (leak)
                emu_report("leak: %llu bytes of physical memory",
                           (unsigned long long)physical->bytes);
            emu_physical_unref(physical);
            break;
        }
        case EMU_EXTERNAL: {
            struct emu_external *external = slot->object;
            emu.leaks.imports += leak;
            emu.stats.imports--;
            if (leak)
                emu_report("leak: an imported memory");
            close(external->fd);
            free(external);
            break;
        }
        case EMU_CONTEXT:
        case EMU_NOTHING:
            break;
        }
        emu_handle_destroy((uint64_t)i + 1);
    }
}

void emu_context_destroy(struct emu_device *dev)
{
    struct emu_context *ctx = dev->ctx;
    dev->ctx = NULL;
    dev->retains = 0;
    if (!ctx->sticky) {
        for (struct emu_stream *s = ctx->streams; s; s = s->next)
            emu.leaks.unfinished += s->queued - s->done;
    }
    if (ctx->legacy)
        emu_stream_close(ctx->legacy);
    // Takes the context's own handle away too: later calls find it destroyed.
    release_objects(ctx);
    for (struct emu_stream *s = ctx->streams; s; s = s->next) {
        s->held = false;
        s->demand = UINT64_MAX;
    }
    emu_context_wake(ctx);
    while (ctx->threads)
        pthread_cond_wait(&emu.progress, &emu.lock);
    emu_memory_release(ctx);
    emu.stats.contexts--;
    free(ctx);
}

void emu_context_break(struct emu_context *ctx, CUresult result)
{
    if (!ctx->sticky)
        ctx->sticky = result;
    emu_context_wake(ctx);
}
