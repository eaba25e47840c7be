#include "run.h"

#include <stdio.h>
#include <string.h>

#include "../base/str.h"
#include "../graph/plan_size.h"

static bool is_source(const struct pen_module *m)
{
    return m->in_links == 0;
}

static struct pen_frame *first_input(const struct pen_io *io)
{
    for (unsigned i = 0; i < PEN_MAX_PINS; i++) {
        if (io->in[i])
            return io->in[i];
    }
    return NULL;
}

// --- waking -----------------------------------------------------------------

static void waited(void *cookie)
{
    struct pen_module *m = cookie;
    atomic_store(&m->waiting, false);
    stk_task_wake(&m->task);
}

// Be woken when `point` is reached. One callback at a time is enough: when it
// comes everything is looked at again.
static enum pen_status wait_for(struct pen_module *m, struct stk_point point,
                                struct pen_error *err)
{
    if (atomic_exchange(&m->waiting, true))
        return PEN_OK;
    const enum pen_status st =
        stk_point_when(point, STK_WAIT_NONE, waited, m, err);
    if (st != PEN_OK)
        atomic_store(&m->waiting, false);
    return st;
}

static void parked(void *cookie)
{
    struct pen_module *m = cookie;
    atomic_store(&m->park, STK_PARK_REACHED);
    stk_task_wake(&m->task);
}

// What the module asked for in process().
static enum pen_status park(struct pen_module *m, struct pen_error *err)
{
    const unsigned asked = atomic_load(&m->park);
    switch (asked) {
    case STK_PARK_ROOM:
        // The module will ask again, and then there is room.
        atomic_store(&m->park, STK_PARK_NONE);
        return wait_for(m, m->park_point, err);
    case STK_PARK_STREAM:
        atomic_store(&m->park, STK_PARK_PENDING);
        return stk_point_when(m->park_point, STK_WAIT_PARK, parked, m, err);
    case STK_PARK_CONTEXT:
        atomic_store(&m->park, STK_PARK_PENDING);
        return stk_device_when_idle(m->pipeline->device, parked, m, err);
    default:
        return pen_error_set(err, PEN_E_STATE, 0, "",
                             "process() returned \"call again\" without "
                             "having parked itself on anything");
    }
}

// --- calls ------------------------------------------------------------------

static int64_t begin_call(struct pen_module *m, const char *name)
{
    const int64_t now = stk_now();
    atomic_store_explicit(&m->called, now, memory_order_relaxed);
    atomic_store_explicit(&m->call, name, memory_order_release);
    stk_frame_user = &m->user;
    return now;
}

static void leave_call(struct pen_module *m)
{
    stk_frame_user = NULL;
    atomic_store_explicit(&m->call, NULL, memory_order_release);
}

static void end_call(struct pen_module *m, int64_t since)
{
    leave_call(m);
    atomic_fetch_add_explicit(&m->busy_ns, (uint64_t)(stk_now() - since),
                              memory_order_relaxed);
}

// A module that lies about having failed must not make the run succeed.
static enum pen_status filled_in(enum pen_status st, struct pen_error *err,
                                 const char *call)
{
    if (st < 0 && err->status != st)
        pen_error_set(err, st, 0, "", "%s() failed: %s", call,
                      pen_status_text(st));
    return st;
}

// Ends the host's access to DMABUFs, whatever became of the call. What the
// module said comes first.
static enum pen_status shown_over(struct pen_module *m, enum pen_status st,
                                  struct pen_error *err)
{
    struct pen_error why = { 0 };
    const enum pen_status over = stk_io_hide(&m->io, &why);
    if (st < 0 || over == PEN_OK)
        return st;
    *err = why;
    return over;
}

static enum pen_status call_process(struct pen_module *m, struct pen_error *err)
{
    if (!m->cls->ops.process)
        return PEN_OK;
    const int64_t since = begin_call(m, "process");
    enum pen_status st = m->cls->ops.process(m, &m->io, err);
    end_call(m, since);
    st = filled_in(st, err, "process");
    return shown_over(m, st, err);
}

static bool same_input(const struct pen_caps *a, const struct pen_caps *b)
{
    return pen_caps_equal(a, b) && a->bytes == b->bytes &&
           a->fps.num == b->fps.num && a->fps.den == b->fps.den;
}

// Caps of the outputs from those of the inputs; asked for again only when the
// inputs have changed.
static enum pen_status negotiate(struct pen_module *m, struct pen_error *err)
{
    struct pen_caps in[PEN_MAX_PINS] = { 0 };
    bool same = m->negotiated;
    for (unsigned i = 0; i < m->inputs; i++) {
        if (m->io.in[i])
            in[i] = *pen_frame_caps(m->io.in[i]);
        same = same && same_input(&in[i], &m->neg_in[i]);
    }
    if (!same) {
        struct pen_caps out[PEN_MAX_PINS] = { 0 };
        for (unsigned o = 0; o < m->outputs; o++)
            out[o] = in[0];
        if (m->cls->ops.negotiate) {
            const int64_t since = begin_call(m, "negotiate");
            const enum pen_status st =
                m->cls->ops.negotiate(m->params, in, out, err);
            end_call(m, since);
            if (st != PEN_OK)
                return filled_in(st, err, "negotiate");
        }
        memcpy(m->neg_in, in, sizeof(in));
        memcpy(m->neg_out, out, sizeof(out));
        m->negotiated = true;
    }
    memcpy(m->io.caps, m->neg_out, sizeof(m->io.caps));
    return PEN_OK;
}

// What the module left open and its pin declares, as the planner does it.
static void complete_caps(struct pen_module *m, unsigned o)
{
    struct pen_caps *caps = &m->io.caps[o];
    const uint32_t kinds = m->pipeline->plan->nodes[m->number].out[o].kinds;
    const bool one_kind = kinds && !(kinds & (kinds - 1));
    if (one_kind && kinds != PEN_KIND_BIT(PEN_KIND_FRAME) &&
        caps->kind != (enum pen_kind)__builtin_ctz(kinds))
        caps->kind = (enum pen_kind)__builtin_ctz(kinds);
    if (caps->kind == PEN_KIND_NONE)
        caps->kind = PEN_KIND_FRAME;
    if (!caps->format && caps->formats &&
        !(caps->formats & (caps->formats - 1)))
        caps->format = (enum pen_format)__builtin_ctz(caps->formats);
    caps->formats = caps->format ? PEN_FMT_BIT(caps->format) : 0;
}

static enum pen_status call_prepare(struct pen_module *m, struct pen_error *err)
{
    struct pen_io *io = &m->io;
    io->prepared = false;
    if (!m->cls->ops.prepare) {
        PEN_TRY(negotiate(m, err));
    } else {
        for (unsigned o = 0; o < m->outputs; o++)
            io->caps[o] =
                io->in[0] ? *pen_frame_caps(io->in[0]) : (struct pen_caps){ 0 };
        const int64_t since = begin_call(m, "prepare");
        enum pen_status st = m->cls->ops.prepare(m, io, io->caps, err);
        end_call(m, since);
        st = shown_over(m, filled_in(st, err, "prepare"), err);
        if (st != PEN_OK)
            return st;
    }
    for (unsigned o = 0; o < m->outputs; o++)
        complete_caps(m, o);
    return PEN_OK;
}

enum pen_status stk_actor_open(struct pen_module *m, struct pen_error *err)
{
    STK_SCOPE scope = { 0 };
    if (m->cuda)
        PEN_TRY(stk_scope_enter(&scope, m->pipeline->device, err));
    m->opened = true;
    if (!m->cls->ops.open)
        return PEN_OK;
    begin_call(m, "open");
    const enum pen_status st = m->cls->ops.open(m, err);
    leave_call(m);
    return filled_in(st, err, "open");
}

void stk_actor_close(struct pen_module *m)
{
    if (!m->opened)
        return;
    m->opened = false;
    if (!m->cls->ops.close)
        return;
    // Without its context a module can still give back what it has: our own
    // functions find the device themselves.
    STK_SCOPE scope = { 0 };
    struct pen_error ignored;
    if (m->cuda && stk_scope_enter(&scope, m->pipeline->device, &ignored))
        scope.dev = NULL;
    begin_call(m, "close");
    m->cls->ops.close(m);
    leave_call(m);
}

// --- outputs ----------------------------------------------------------------

static bool has_places(const struct pen_module *m)
{
    for (unsigned o = 0; o < m->outputs; o++) {
        for (uint32_t i = 0; i < m->out[o].link_count; i++) {
            if (!stk_queue_has_place(&m->out[o].links[i]->queue))
                return false;
        }
    }
    return true;
}

void stk_actor_refresh(struct pen_module *m)
{
    struct pen_pipeline *p = m->pipeline;
    const struct stk_plan_node *node = &p->plan->nodes[m->number];
    memcpy(m->workspace, node->workspace, sizeof(m->workspace));
    for (unsigned o = 0; o < m->outputs; o++) {
        struct stk_out_pin *pin = &m->out[o];
        pin->most = node->output[o].caps;
        pin->mem = node->output[o].mem;
        pin->streamed = stk_plan_streamed(p->plan, node, &node->output[o]);
        pin->blocks = node->output[o].blocks;
        pin->block_bytes = node->output[o].block_bytes;
        pin->pool = pin->made;
        for (uint32_t i = 0; i < pin->link_count; i++) {
            struct stk_link *link = pin->links[i];
            const struct stk_plan_edge *edge = &p->plan->edges[link - p->links];
            link->mem = edge->mem;
            link->kind = edge->kind;
            link->formats = edge->formats;
            link->most = edge->caps;
        }
    }
}

static void refresh_if_changed(struct pen_module *m)
{
    struct pen_pipeline *p = m->pipeline;
    if (atomic_load(&p->plan_generation) == m->plan_seen)
        return;
    pthread_mutex_lock(&p->plan_lock);
    m->plan_seen = atomic_load(&p->plan_generation);
    stk_actor_refresh(m);
    pthread_mutex_unlock(&p->plan_lock);
}

// Bytes that a frame of `caps` takes; known without arithmetic as long as the
// caps stay.
static enum pen_status output_bytes(struct stk_out_pin *pin,
                                    const struct pen_caps *caps, size_t *bytes,
                                    struct pen_error *err)
{
    if (!pin->last_known || !same_input(caps, &pin->last)) {
        struct pen_layout layout;
        PEN_TRY(pen_layout_compute(caps, PEN_PITCH_ALIGN, &layout, err));
        pin->last = *caps;
        pin->last_bytes = layout.bytes;
        pin->last_known = true;
    }
    *bytes = pin->last_bytes;
    return PEN_OK;
}

static bool output_fits(const struct stk_out_pin *pin,
                        const struct pen_caps *caps, size_t bytes)
{
    return pin->pool && pin->block_bytes && bytes <= pin->block_bytes &&
           caps->width <= pin->most.width && caps->height <= pin->most.height;
}

static enum pen_status make_output(struct pen_module *m, unsigned o,
                                   struct stk_buffer *buffer,
                                   struct pen_error *err)
{
    struct pen_io *io = &m->io;
    struct pen_frame *frame = NULL;
    const enum pen_status st = stk_frame_make(m->pipeline->frame_pool, buffer,
                                              &io->caps[o], &frame, err);
    if (st != PEN_OK) {
        stk_buffer_unref(buffer);
        return st;
    }
    const struct pen_frame *like = first_input(io);
    frame->index = io->index;
    frame->pts = like ? like->pts : INT64_MIN;
    io->out[o] = frame;
    return PEN_OK;
}

// Reserve one output. PEN_AGAIN: not now, somebody will wake the task.
static enum pen_status reserve(struct pen_module *m, unsigned o,
                               struct pen_error *err)
{
    struct stk_out_pin *pin = &m->out[o];
    const struct pen_caps *caps = &m->io.caps[o];
    size_t bytes = 0;
    PEN_TRY(output_bytes(pin, caps, &bytes, err));
    if (!output_fits(pin, caps, bytes))
        PEN_TRY(stk_pipeline_settle(m->pipeline, m, o, caps, err));

    // What a CUDA module writes on its stream may still be in use there; what
    // is written by this thread must not be in use anywhere.
    struct stk_stream *stream = pin->streamed ? m->pipeline->stream : NULL;
    struct stk_buffer *buffer = NULL;
    struct stk_point wait = { 0 };
    const enum pen_status st =
        stk_pool_take(pin->pool, stream, &buffer, &wait, err);
    if (st == PEN_AGAIN && wait.stream)
        PEN_TRY(wait_for(m, wait, err));
    if (st != PEN_OK)
        return st;
    return make_output(m, o, buffer, err);
}

static enum pen_status reserve_all(struct pen_module *m, struct pen_error *err)
{
    refresh_if_changed(m);
    for (unsigned o = 0; o < m->outputs; o++) {
        if (m->out[o].blocks && !m->io.out[o])
            PEN_TRY(reserve(m, o, err));
    }
    return PEN_OK;
}

// Whether a buffer is of the memory that the plan has on an edge, or of one
// that can be used in its place.
static bool mem_fits(const struct stk_link *link,
                     const struct stk_buffer *buffer)
{
    if (buffer->mem == PEN_MEM_DMABUF && link->mem == PEN_MEM_DMABUF)
        return buffer->block.dmabuf->kind == link->kind;
    if (buffer->mem == link->mem)
        return true;
    if (link->mem == PEN_MEM_HOST)
        return stk_buffer_on_host(buffer);
    return link->mem == PEN_MEM_CUDA_DEVICE && buffer->mem == PEN_MEM_DMABUF &&
           stk_buffer_on_stream(buffer);
}

// What a frame does not have in common with what the plan says of an edge;
// NULL if it fits.
static const char *misfit(const struct stk_link *link,
                          const struct pen_frame *frame)
{
    const struct pen_caps *caps = &frame->caps, *most = &link->most;
    if (!mem_fits(link, frame->buffer))
        return "memory type";
    if (caps->kind != most->kind && caps->kind > PEN_KIND_FRAME &&
        most->kind > PEN_KIND_FRAME)
        return "kind";
    if (caps->kind == PEN_KIND_RAW_IMAGE && link->formats &&
        !(link->formats & PEN_FMT_BIT(caps->format)))
        return "pixel format";
    if ((most->width && caps->width > most->width) ||
        (most->height && caps->height > most->height) ||
        (most->bytes && frame->bytes > most->bytes))
        return "size";
    return NULL;
}

// A frame that breaks the plan is a fault of the program, not of the data.
static enum pen_status broken_plan(const struct pen_module *m, unsigned o,
                                   const struct stk_link *link,
                                   const struct pen_frame *frame,
                                   const char *what, struct pen_error *err)
{
    char where[96], is[96], may[96];
    snprintf(where, sizeof(where), "%s.%s", m->id, m->cls->outputs[o].name);
    pen_caps_text(&frame->caps, is, sizeof(is));
    pen_caps_text(&link->most, may, sizeof(may));
    return pen_error_set(err, PEN_E_STATE, 0, where,
                         "the %s of the frame for %s.%s is not as planned: "
                         "%s in %s, %zu bytes, where the plan has %s in %s",
                         what, link->to->id,
                         link->to->cls->inputs[link->to_pin].name, is,
                         pen_mem_name(pen_frame_mem(frame)), frame->bytes, may,
                         pen_mem_name(link->mem));
}

static struct pen_frame *leaving(const struct pen_module *m, unsigned o)
{
    const int in = m->io.forward[o];
    return in >= 0 ? m->io.in[in] : m->io.out[o];
}

static enum pen_status check_outputs(struct pen_module *m,
                                     struct pen_error *err)
{
    refresh_if_changed(m);
    for (unsigned o = 0; o < m->outputs; o++) {
        const struct stk_out_pin *pin = &m->out[o];
        const struct pen_frame *frame = leaving(m, o);
        if (!pin->link_count)
            continue;
        if (!frame)
            return pen_error_set(err, PEN_E_STATE, 0, m->id,
                                 "forwarded nothing to its output %s",
                                 m->cls->outputs[o].name);
        for (uint32_t i = 0; i < pin->link_count; i++) {
            const char *what = misfit(pin->links[i], frame);
            if (what)
                return broken_plan(m, o, pin->links[i], frame, what, err);
        }
    }
    return PEN_OK;
}

static void put_outputs(struct pen_module *m)
{
    for (unsigned o = 0; o < m->outputs; o++) {
        const struct stk_out_pin *pin = &m->out[o];
        for (uint32_t i = 0; i < pin->link_count; i++) {
            struct stk_link *link = pin->links[i];
            struct pen_frame *frame = pen_frame_ref(leaving(m, o));
            pen_frame_unref(stk_queue_put(&link->queue, frame));
            stk_task_wake_next(&link->to->task);
        }
    }
}

static void put_gap(struct pen_module *m, uint64_t index)
{
    for (unsigned o = 0; o < m->outputs; o++) {
        for (uint32_t i = 0; i < m->out[o].link_count; i++) {
            struct stk_link *link = m->out[o].links[i];
            stk_queue_put_gap(&link->queue, index);
            stk_task_wake_next(&link->to->task);
        }
    }
}

static void put_eos(struct pen_module *m)
{
    for (unsigned o = 0; o < m->outputs; o++) {
        for (uint32_t i = 0; i < m->out[o].link_count; i++) {
            struct stk_link *link = m->out[o].links[i];
            stk_queue_put_eos(&link->queue);
            stk_task_wake_next(&link->to->task);
        }
    }
}

// --- one firing -------------------------------------------------------------

static void clear_io(struct pen_io *io)
{
    for (unsigned i = 0; i < PEN_MAX_PINS; i++) {
        pen_frame_unref(io->in[i]);
        pen_frame_unref(io->out[i]);
        io->in[i] = io->out[i] = NULL;
        io->forward[i] = -1;
    }
    io->use_count = 0;
    io->stream_used = false;
}

// Steady from when a first frame has gone through every edge: what is
// allocated later is counted.
static void mark_started(struct pen_module *m)
{
    struct pen_pipeline *p = m->pipeline;
    for (unsigned i = 0; i < m->inputs; i++) {
        struct stk_link *link = m->in[i];
        if (!link || !m->io.in[i] || atomic_load(&link->started))
            continue;
        atomic_store(&link->started, true);
        if (atomic_fetch_add(&p->links_started, 1) + 1 == p->link_count)
            stk_ledger_set_steady(p->ledger, true);
    }
}

static void count_frame(struct pen_module *m)
{
    struct pen_pipeline *p = m->pipeline;
    atomic_fetch_add_explicit(&m->frames, 1, memory_order_relaxed);
    if (m->out_links)
        return;
    if (atomic_fetch_add(&p->sink_frames, 1) == 0)
        atomic_store(&p->first_frame_at, stk_now());
}

// The run is over for this module. What it holds is given back when the GPU
// is known to be done with it (release_all in pipeline.c).
static enum stk_run fail(struct pen_module *m, const struct pen_error *err)
{
    const bool numbered =
        m->stage != STK_STAGE_FREE && m->stage != STK_STAGE_ENDING;
    stk_pipeline_error(m->pipeline, m, numbered ? &m->io.index : NULL, true,
                       err);
    return STK_RUN_DONE;
}

// What the policy of the module makes of an error of a frame; false if it
// ends the run.
static bool excused(struct pen_module *m, const struct pen_error *err)
{
    struct pen_pipeline *p = m->pipeline;
    const struct stk_base_params *base = &p->plan->nodes[m->number].base;
    if (err->status == PEN_E_LOST || (p->device && stk_device_lost(p->device)))
        return false;
    switch (base->policy) {
    case STK_ON_ERROR_STOP:
        return false;
    case STK_ON_ERROR_RETRY:
        if (m->tries >= base->retries)
            return false;
        m->tries++;
        m->outcome = STK_OUT_RETRY;
        pen_log_write(&p->log, PEN_LOG_WARN, "pen.run",
                      "%s: frame %llu, try %d of %d failed: %s", m->id,
                      (unsigned long long)m->io.index, (int)m->tries,
                      (int)base->retries, err->text);
        return true;
    case STK_ON_ERROR_DROP:
        m->outcome = STK_OUT_GAP;
        atomic_fetch_add(&m->drops, 1);
        stk_pipeline_error(p, m, &m->io.index, false, err);
        return true;
    }
    return false;
}

// After prepare() or process() returned something that is not PEN_OK. False
// if the run is over.
static bool judge(struct pen_module *m, enum pen_status st,
                  const struct pen_error *err)
{
    m->stage = STK_STAGE_CALLED;
    if (st == PEN_EOS)
        m->outcome = STK_OUT_END;
    else if (st == PEN_AGAIN)
        m->outcome = is_source(m) ? STK_OUT_NOTHING : STK_OUT_GAP;
    else
        return excused(m, err);
    return true;
}

// One point for all that this call queued. PEN_AGAIN: too many are
// outstanding, the task will be woken.
static enum pen_status record_point(struct pen_module *m, struct pen_error *err)
{
    struct pen_io *io = &m->io;
    if (!io->stream_used)
        return PEN_OK;
    struct stk_point point = { 0 };
    const enum pen_status st =
        stk_stream_record(m->pipeline->stream, &point, err);
    if (st == PEN_AGAIN)
        PEN_TRY(wait_for(m, point, err));
    if (st != PEN_OK)
        return st;
    for (uint32_t i = 0; i < io->use_count; i++)
        stk_buffer_used(io->uses[i].frame->buffer, point, io->uses[i].access);
    for (struct stk_staging *s = m->staging; s; s = s->next) {
        if (s->in_call)
            s->point = point;
        s->in_call = false;
    }
    io->use_count = 0;
    io->stream_used = false;
    return PEN_OK;
}

static void fired(struct pen_module *m)
{
    const uint64_t index = m->io.index;
    const enum stk_outcome outcome = m->outcome;
    if (outcome == STK_OUT_RETRY) {
        for (unsigned o = 0; o < PEN_MAX_PINS; o++)
            m->io.forward[o] = -1;
        atomic_store(&m->park, STK_PARK_NONE);
        m->stage = m->io.prepared ? STK_STAGE_RESERVED : STK_STAGE_HELD;
        return;
    }

    if (outcome == STK_OUT_FRAMES) {
        put_outputs(m);
        count_frame(m);
        mark_started(m);
    }
    clear_io(&m->io);
    m->tries = 0;
    atomic_store(&m->park, STK_PARK_NONE);
    m->outcome = STK_OUT_FRAMES;
    m->stage = outcome == STK_OUT_END ? STK_STAGE_ENDING : STK_STAGE_FREE;
    m->sated = outcome == STK_OUT_END;
    if (outcome == STK_OUT_GAP)
        put_gap(m, index);
    if (outcome == STK_OUT_GAP || outcome == STK_OUT_FRAMES)
        m->next_index++;
}

// Whether a module may look at a frame by other means than the stream: on the
// host, or through a descriptor that it hands out.
static bool looked_at(const struct pen_module *m,
                      const struct stk_buffer *buffer)
{
    if (buffer->mem != PEN_MEM_DMABUF)
        return stk_buffer_on_host(buffer);
    return !m->cuda || !stk_buffer_on_stream(buffer);
}

// Whether the host may read the inputs. PEN_AGAIN: the task will be woken.
static enum pen_status inputs_ready(struct pen_module *m, struct pen_error *err)
{
    for (unsigned i = 0; i < m->inputs; i++) {
        struct pen_frame *frame = m->io.in[i];
        struct stk_point wait = { 0 };
        if (!frame || !looked_at(m, frame->buffer))
            continue;
        if (!stk_buffer_host_ready(frame->buffer, PEN_READ, &wait)) {
            PEN_TRY(wait_for(m, wait, err));
            return PEN_AGAIN;
        }
    }
    return stk_device_fine(m->pipeline, err);
}

// A free block for what the module sends to the device; PEN_AGAIN as above.
static enum pen_status staging_ready(struct pen_module *m,
                                     struct pen_error *err)
{
    struct stk_point wait = { 0 };
    if (stk_staging_ready(m, &wait))
        return PEN_OK;
    PEN_TRY(wait_for(m, wait, err));
    return PEN_AGAIN;
}

// Few enough points outstanding for this call's; PEN_AGAIN as above.
static enum pen_status stream_ready(struct pen_module *m, struct pen_error *err)
{
    struct stk_point oldest = { 0 };
    if (!m->cuda ||
        stk_stream_has_room(m->pipeline->stream, STK_RUN_AHEAD / 4, &oldest))
        return PEN_OK;
    PEN_TRY(wait_for(m, oldest, err));
    return PEN_AGAIN;
}

static enum pen_status step_held(struct pen_module *m, struct pen_error *err)
{
    PEN_TRY(inputs_ready(m, err));
    PEN_TRY(stream_ready(m, err));
    // What came before may have made the plan grow, and the workspace with it.
    refresh_if_changed(m);
    PEN_TRY(staging_ready(m, err));
    const enum pen_status st = call_prepare(m, err);
    if (st == PEN_OK)
        m->stage = STK_STAGE_PREPARED;
    else if (!judge(m, st, err))
        return st;
    return PEN_OK;
}

static enum pen_status step_prepared(struct pen_module *m,
                                     struct pen_error *err)
{
    const enum pen_status st = reserve_all(m, err);
    if (st == PEN_OK)
        m->stage = STK_STAGE_RESERVED;
    else if (st == PEN_AGAIN || !judge(m, st, err))
        return st;
    return PEN_OK;
}

static enum pen_status step_reserved(struct pen_module *m,
                                     struct pen_error *err)
{
    const unsigned parking = atomic_load(&m->park);
    if (parking == STK_PARK_PENDING)
        return PEN_AGAIN;
    if (parking == STK_PARK_NONE)
        PEN_TRY(stream_ready(m, err));
    else
        PEN_TRY(stk_device_fine(m->pipeline, err));

    m->io.prepared = true;
    enum pen_status st = call_process(m, err);
    if (st == PEN_AGAIN) {
        PEN_TRY(park(m, err));
        return PEN_AGAIN;
    }
    m->outcome = STK_OUT_FRAMES;
    if (st == PEN_OK) {
        // A frame that breaks the plan is a fault of the program: no policy
        // excuses it.
        m->stage = STK_STAGE_CALLED;
        return check_outputs(m, err);
    }
    return judge(m, st, err) ? PEN_OK : st;
}

static enum pen_status step_ending(struct pen_module *m, struct pen_error *err)
{
    if (m->cls->ops.drain) {
        const int64_t since = begin_call(m, "drain");
        enum pen_status st = m->cls->ops.drain(m, err);
        end_call(m, since);
        st = filled_in(st, err, "drain");
        const struct stk_base_params *base =
            &m->pipeline->plan->nodes[m->number].base;
        if (st < 0 && (st == PEN_E_LOST || base->policy != STK_ON_ERROR_DROP))
            return st;
        if (st < 0)
            stk_pipeline_error(m->pipeline, m, NULL, false, err);
    }
    put_eos(m);
    // What still comes has to be taken, or its producer would be stuck.
    m->closed = true;
    m->stage = STK_STAGE_FREE;
    return PEN_OK;
}

// Go on until something is missing or the firing is over.
static enum pen_status advance(struct pen_module *m, struct pen_error *err)
{
    STK_SCOPE scope = { 0 };
    uint64_t disturbed = 0;
    if (m->cuda) {
        disturbed = stk_device_disturbed(m->pipeline->device);
        PEN_TRY(stk_scope_enter(&scope, m->pipeline->device, err));
    }
    enum pen_status st = PEN_OK;
    while (st == PEN_OK && m->stage != STK_STAGE_FREE) {
        switch (m->stage) {
        case STK_STAGE_FREE:
            break;
        case STK_STAGE_HELD:
            st = step_held(m, err);
            break;
        case STK_STAGE_PREPARED:
            st = step_prepared(m, err);
            break;
        case STK_STAGE_RESERVED:
            st = step_reserved(m, err);
            break;
        case STK_STAGE_CALLED:
            st = record_point(m, err);
            if (st == PEN_OK)
                fired(m);
            break;
        case STK_STAGE_ENDING:
            st = step_ending(m, err);
            break;
        }
    }
    if (m->cuda) {
        stk_scope_leave(&scope);
        if (st >= 0 && stk_device_disturbed(m->pipeline->device) != disturbed)
            st = pen_error_set(err, PEN_E_STATE, 0, m->id,
                               "left another CUDA context current than it "
                               "found");
    }
    return st;
}

// --- inputs -----------------------------------------------------------------

enum gathered { GATHER_NONE, GATHER_FRAMES, GATHER_OVER, GATHER_PASSED };

static enum gathered gather_source(struct pen_module *m)
{
    struct pen_pipeline *p = m->pipeline;
    if (m->closed)
        return GATHER_OVER;
    m->io.index = m->next_index;
    if (atomic_load(&p->draining) ||
        (p->frame_limit && m->next_index >= p->frame_limit)) {
        m->stage = STK_STAGE_ENDING;
        return GATHER_FRAMES;
    }
    if (!has_places(m))
        return GATHER_NONE;
    m->stage = STK_STAGE_HELD;
    return GATHER_FRAMES;
}

// Take one item of each input that has not ended. Frames without a partner
// are dropped; uncounted if the module said it wants no more.
static enum gathered take_inputs(struct pen_module *m, bool discard)
{
    struct pen_io *io = &m->io;
    unsigned frames = 0;
    bool gap = discard, numbered = false;
    for (unsigned i = 0; i < m->inputs; i++) {
        if (!m->in[i])
            continue;
        const struct stk_item item = stk_queue_take(&m->in[i]->queue);
        if (item.kind == STK_ITEM_FRAME) {
            io->in[i] = item.frame;
            stk_task_wake(&m->in[i]->from->task);
            frames++;
        } else if (item.kind == STK_ITEM_GAP) {
            gap = true;
        }
        if (!numbered)
            io->index = item.index;
        numbered = true;
    }
    if (!gap) {
        m->stage = STK_STAGE_HELD;
        return GATHER_FRAMES;
    }
    if (!m->sated)
        atomic_fetch_add(&m->drops, frames);
    const uint64_t index = io->index;
    clear_io(io);
    if (!discard)
        put_gap(m, index);
    return GATHER_PASSED;
}

static enum gathered gather(struct pen_module *m)
{
    if (is_source(m))
        return gather_source(m);
    unsigned ended = 0;
    for (unsigned i = 0; i < m->inputs; i++) {
        if (!m->in[i])
            continue;
        switch (stk_queue_peek(&m->in[i]->queue)) {
        case STK_ITEM_NONE:
            return GATHER_NONE;
        case STK_ITEM_EOS:
            ended++;
            break;
        default:
            break;
        }
    }
    if (ended == m->in_links) {
        if (m->closed)
            return GATHER_OVER;
        m->stage = STK_STAGE_ENDING;
        return GATHER_FRAMES;
    }
    // No pair will be complete any more. That is told downstream at once: who
    // waits for it there may be what the other inputs are held back by.
    if (ended && !m->closed) {
        m->stage = STK_STAGE_ENDING;
        return GATHER_FRAMES;
    }
    if (m->closed)
        return take_inputs(m, true);
    if (!has_places(m))
        return GATHER_NONE;
    return take_inputs(m, false);
}

// Whether another turn could find something to do. False only if a wake will
// come when there is.
static bool may_go_on(const struct pen_module *m)
{
    const struct pen_pipeline *p = m->pipeline;
    if (is_source(m))
        return m->closed || atomic_load(&p->draining) ||
               (p->frame_limit && m->next_index >= p->frame_limit) ||
               has_places(m);
    for (unsigned i = 0; i < m->inputs; i++) {
        if (m->in[i] && stk_queue_peek(&m->in[i]->queue) == STK_ITEM_NONE)
            return false;
    }
    return true;
}

static enum stk_run run(struct pen_module *m)
{
    struct pen_error err = { 0 };
    if (atomic_load(&m->pipeline->stopping))
        return STK_RUN_DONE;

    if (m->stage == STK_STAGE_FREE) {
        switch (gather(m)) {
        case GATHER_NONE:
            return STK_RUN_WAIT;
        case GATHER_OVER:
            return STK_RUN_DONE;
        case GATHER_PASSED:
            return STK_RUN_MORE;
        case GATHER_FRAMES:
            break;
        }
    }
    const enum pen_status st = advance(m, &err);
    if (st < 0)
        return fail(m, &err);
    return st == PEN_OK && may_go_on(m) ? STK_RUN_MORE : STK_RUN_WAIT;
}

enum stk_run stk_actor_run(struct stk_task *task)
{
    struct pen_module *m = (struct pen_module *)task;
    stk_thread_must_not_block(!task->blocks);
    const enum stk_run next = run(m);
    stk_thread_must_not_block(false);
    return next;
}
