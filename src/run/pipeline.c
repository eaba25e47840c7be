// The life of a pipeline until it runs; end.c has its end.

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "../base/snapshot.h"
#include "../graph/graph.h"
#include "run.h"

const char *pen_state_name(enum pen_state state)
{
    switch (state) {
    case PEN_STATE_CREATED:
        return "created";
    case PEN_STATE_RUNNING:
        return "running";
    case PEN_STATE_DRAINING:
        return "draining";
    case PEN_STATE_DONE:
        return "done";
    case PEN_STATE_FAILED:
        return "failed";
    case PEN_STATE_STOPPED:
        return "stopped";
    case PEN_STATE_ABANDONED:
        return "abandoned";
    }
    return "?";
}

void stk_pipeline_state_set(struct pen_pipeline *p, enum pen_state state)
{
    atomic_store(&p->state, (int)state);
}

enum pen_state pen_pipeline_state(const struct pen_pipeline *pipeline)
{
    return (enum pen_state)atomic_load(&pipeline->state);
}

const struct pen_plan *pen_pipeline_plan(const struct pen_pipeline *pipeline)
{
    return pipeline->plan;
}

enum pen_status pen_pipeline_snapshot(const struct pen_pipeline *pipeline,
                                      struct pen_snapshot **out,
                                      struct pen_error *err)
{
    return stk_snapshot_take(pipeline->ledger, out, err);
}

// The log of the user is his again after destroy, even if a module that never
// came back writes to it later.
static void log_on(void *cookie, enum pen_log_level level, const char *topic,
                   const char *text)
{
    struct pen_pipeline *p = cookie;
    const struct pen_log *log = atomic_load(&p->user_log);
    if (log && log->message)
        log->message(log->cookie, level, topic, text);
}

// --- what may outlive the pipeline ------------------------------------------

static struct stk_remains *remains_create(bool leak_sites)
{
    struct stk_remains *r = calloc(1, sizeof(*r));
    if (!r)
        return NULL;
    atomic_init(&r->users, 1);
    r->ledger = stk_ledger_create(leak_sites);
    if (!r->ledger) {
        free(r);
        return NULL;
    }
    return r;
}

// One more user; returns the cookie for stk_remains_drop().
static void *remains_use(struct stk_remains *r)
{
    atomic_fetch_add_explicit(&r->users, 1, memory_order_relaxed);
    return r;
}

// Called by the pools when the last frame or buffer is gone, on whatever
// thread that was.
void stk_remains_drop(void *cookie)
{
    struct stk_remains *r = cookie;
    if (atomic_fetch_sub_explicit(&r->users, 1, memory_order_acq_rel) != 1)
        return;
    stk_stream_destroy(&r->stream);
    pen_device_close(&r->device);
    stk_ledger_destroy(&r->ledger);
    free(r);
}

// Whether only the pipeline itself is left.
bool stk_remains_unused(const struct stk_remains *r)
{
    return atomic_load(&r->users) == 1;
}

// --- errors -----------------------------------------------------------------

void stk_pipeline_wake(struct pen_pipeline *p)
{
    for (uint32_t i = 0; i < p->module_count; i++)
        stk_task_wake(&p->modules[i].task);
}

// The module and the frame in front of what the failing function said.
static void locate(struct pen_error *out, const struct pen_module *m,
                   const uint64_t *frame, const struct pen_error *err)
{
    *out = *err;
    if (!m)
        return;
    const size_t id = strlen(m->id);
    const bool of_module = strncmp(err->where, m->id, id) == 0 &&
                           (!err->where[id] || err->where[id] == '.');
    if (!of_module)
        snprintf(out->where, sizeof(out->where), "%s", m->id);
    const char *place = of_module ? "" : err->where;
    char number[48] = "";
    if (frame)
        snprintf(number, sizeof(number),
                 "frame %llu: ", (unsigned long long)*frame);
    // Cut if it has to be: the rest would not be a sentence anyway.
    const int n = snprintf(out->text, sizeof(out->text), "%s%s%s%s", number,
                           place, *place ? ": " : "", err->text);
    if (n >= (int)sizeof(out->text))
        memcpy(out->text + sizeof(out->text) - 4, "...", 4);
}

// Who finds the device lost seldom knows by what.
static void add_cause(struct pen_pipeline *p, struct pen_error *err)
{
    struct pen_error cause = { 0 };
    STK_SCOPE scope = { 0 };
    if (err->status == PEN_E_LOST && !err->native && p->device &&
        stk_scope_enter(&scope, p->device, &cause) < 0)
        *err = cause;
}

enum pen_status stk_pipeline_error(struct pen_pipeline *p,
                                   const struct pen_module *m,
                                   const uint64_t *frame, bool fatal,
                                   const struct pen_error *error)
{
    struct pen_error copy = *error, *err = &copy;
    add_cause(p, err);
    pthread_mutex_lock(&p->error_lock);
    // After the first fatal error the others only follow from it.
    const bool follows = atomic_load(&p->failed);
    if (!follows) {
        struct stk_failure f = { .module = m ? m->id : NULL,
                                 .has_frame = frame != NULL,
                                 .frame = frame ? *frame : 0,
                                 .fatal = fatal };
        locate(&f.err, m, frame, err);
        // The last place is kept for the error that ends the run.
        if (p->failure_count < STK_MAX_FAILURES - 1)
            p->failures[p->failure_count] = f;
        else if (fatal)
            p->failures[STK_MAX_FAILURES - 1] = f;
        p->failure_count++;
        if (fatal) {
            p->result = f.err;
            atomic_store(&p->failed, true);
        }
    }
    pthread_mutex_unlock(&p->error_lock);
    if (fatal) {
        atomic_store(&p->stopping, true);
        stk_pipeline_wake(p);
    }
    return err->status;
}

void stk_pipeline_leak(struct pen_pipeline *p, enum stk_res res,
                       const char *owner, const char *site, uint64_t bytes,
                       uint64_t count)
{
    p->leaked += count;
    for (uint32_t i = 0; i < p->leak_count; i++) {
        struct stk_leak *l = &p->leaks[i];
        if (l->res == res && !strcmp(l->owner, owner) &&
            !strcmp(l->site, site)) {
            l->bytes += bytes;
            l->count += count;
            return;
        }
    }
    if (p->leak_count == p->leak_room) {
        const uint32_t room = p->leak_room ? 2 * p->leak_room : 8;
        struct stk_leak *leaks = realloc(p->leaks, room * sizeof(*leaks));
        if (!leaks)
            return;  // it is counted all the same
        p->leaks = leaks;
        p->leak_room = room;
    }
    struct stk_leak *l = &p->leaks[p->leak_count++];
    *l = (struct stk_leak){ .res = res, .bytes = bytes, .count = count };
    snprintf(l->owner, sizeof(l->owner), "%s", owner);
    snprintf(l->site, sizeof(l->site), "%s", site);
}

// --- create -----------------------------------------------------------------

static enum pen_status out_of_memory(struct pen_error *err)
{
    return pen_error_set(err, PEN_E_NOMEM, 0, "pipeline",
                         "no host memory for the pipeline");
}

static enum pen_status make_links(struct pen_pipeline *p, struct pen_error *err)
{
    const struct pen_plan *plan = p->plan;
    // At least one element, so that NULL always means out of memory.
    p->links = calloc(plan->edge_count + 1, sizeof(*p->links));
    p->link_lists = calloc(plan->edge_count + 1, sizeof(*p->link_lists));
    if (!p->links || !p->link_lists)
        return out_of_memory(err);
    p->link_count = plan->edge_count;
    for (uint32_t i = 0; i < plan->edge_count; i++) {
        const struct stk_plan_edge *edge = &plan->edges[i];
        struct stk_link *link = &p->links[i];
        link->from = &p->modules[edge->from];
        link->to = &p->modules[edge->to];
        link->from_pin = edge->from_pin;
        link->to_pin = edge->to_pin;
        PEN_TRY(stk_queue_init(&link->queue, edge->depth, edge->policy, err));
        link->to->in[edge->to_pin] = link;
        link->to->in_links++;
        link->from->out_links++;
        link->from->out[edge->from_pin].link_count++;
    }

    struct stk_link **room = p->link_lists;
    for (uint32_t n = 0; n < p->module_count; n++) {
        struct pen_module *m = &p->modules[n];
        p->sinks += !m->out_links;
        for (unsigned o = 0; o < m->outputs; o++) {
            m->out[o].links = room;
            room += m->out[o].link_count;
            m->out[o].link_count = 0;
        }
    }
    for (uint32_t i = 0; i < p->link_count; i++) {
        struct stk_out_pin *pin = &p->links[i].from->out[p->links[i].from_pin];
        pin->links[pin->link_count++] = &p->links[i];
    }
    return PEN_OK;
}

static enum pen_status make_modules(struct pen_pipeline *p,
                                    struct pen_error *err)
{
    const struct pen_plan *plan = p->plan;
    p->modules = calloc(plan->node_count + 1, sizeof(*p->modules));
    if (!p->modules)
        return out_of_memory(err);
    p->module_count = plan->node_count;
    for (uint32_t i = 0; i < plan->node_count; i++) {
        const struct stk_plan_node *node = &plan->nodes[i];
        struct pen_module *m = &p->modules[i];
        m->pipeline = p;
        m->number = i;
        m->cls = node->cls;
        m->id = node->id;
        m->user.name = m->id;
        m->params = node->params;
        m->inputs = node->inputs;
        m->outputs = node->outputs;
        m->cuda = node->cls->flags & PEN_CLASS_CUDA;
        m->task.run = stk_actor_run;
        m->task.blocks = node->cls->flags & PEN_CLASS_BLOCKS;
        m->io.module = m;
        for (unsigned pin = 0; pin < PEN_MAX_PINS; pin++)
            m->io.forward[pin] = -1;
        m->blocks.next = m->blocks.prev = &m->blocks;
        pthread_mutex_init(&m->block_lock, NULL);
        m->state = calloc(1, node->cls->state_size + 1);
        if (!m->state) {
            p->module_count = i + 1;
            return out_of_memory(err);
        }
    }
    return PEN_OK;
}

// The budgets hold for whatever is allocated from now on.
static void set_limits(struct pen_pipeline *p)
{
    const struct pen_plan *plan = p->plan;
    stk_ledger_set_limit(p->ledger, PEN_MEM_BITS_HOST, plan->host_budget);
    for (unsigned m = PEN_MEM_HOST; m < PEN_MEM_COUNT; m++)
        stk_ledger_set_limit(p->ledger, PEN_MEM_BIT(m), plan->budget[m]);
}

enum pen_status pen_pipeline_create(const struct pen_description *desc,
                                    const struct pen_registry *registry,
                                    const struct pen_pipeline_params *params,
                                    struct pen_pipeline **out,
                                    struct pen_issues *issues,
                                    struct pen_error *err)
{
    static const struct pen_pipeline_params defaults = { 0 };
    if (!params)
        params = &defaults;
    *out = NULL;
    struct pen_pipeline *p = calloc(1, sizeof(*p));
    struct stk_remains *remains = remains_create(params->leak_sites);
    if (!p || !remains) {
        free(p);
        if (remains)
            stk_remains_drop(remains);
        return out_of_memory(err);
    }
    p->remains = remains;
    p->ledger = remains->ledger;
    atomic_store(&p->user_log, params->log);
    p->log.message = log_on;
    p->log.cookie = p;
    p->log.level = params->log ? params->log->level : PEN_LOG_NONE;
    p->frame_limit = params->frames;
    p->leaks_fatal = params->leaks_fatal;
    p->leak_sites = params->leak_sites;
    p->workers = params->workers;
    pthread_mutex_init(&p->plan_lock, NULL);
    pthread_mutex_init(&p->error_lock, NULL);
    pthread_mutex_init(&p->sync_lock, NULL);
    pthread_condattr_t monotonic;
    pthread_condattr_init(&monotonic);
    pthread_condattr_setclock(&monotonic, CLOCK_MONOTONIC);
    pthread_cond_init(&p->sync_cond, &monotonic);
    pthread_condattr_destroy(&monotonic);

    enum pen_status st =
        stk_pipeline_plan_it(p, desc, registry, params, issues, err);
    if (st == PEN_OK) {
        set_limits(p);
        p->expected = p->plan->frames;
        if (p->frame_limit && (!p->expected || p->expected > p->frame_limit))
            p->expected = p->frame_limit;
        st = make_modules(p, err);
    }
    if (st == PEN_OK)
        st = make_links(p, err);
    if (st != PEN_OK) {
        pen_pipeline_destroy(&p);
        return st;
    }
    *out = p;
    return PEN_OK;
}

// --- pools ------------------------------------------------------------------

static void buffer_returned(void *cookie)
{
    struct pen_module *m = cookie;
    stk_task_wake(&m->task);
}

// Frames that turn out larger than known get their room where they lie, at no
// cost but addresses. Not below what the driver deals out: a small block would
// take that much memory.
static size_t reserve_of(const struct pen_pipeline *p,
                         const struct stk_plan_output *output)
{
    enum { TIMES = 8 };
    size_t bytes = 0;
    if (output->mem != PEN_MEM_CUDA_DEVICE || !stk_region_possible(p->device) ||
        output->block_bytes < stk_region_granularity(p->device) ||
        !stk_mul(output->block_bytes, TIMES, &bytes))
        return 0;
    return bytes;
}

// What to do about a machine that locks no more memory.
static void name_the_quota(struct pen_error *err)
{
    if (err->status != PEN_E_NOMEM)
        return;
    const struct pen_error why = *err;
    pen_error_set(
        err, why.status, why.native, why.where,
        "a smaller budget of `host_pinned` with settings.pinned_limit "
        "\"stage\" needs less pinned memory: %s",
        why.text);
}

static enum pen_status make_pool(struct pen_pipeline *p, struct pen_module *m,
                                 unsigned o, struct pen_error *err)
{
    const struct stk_plan_output *output = &p->plan->nodes[m->number].output[o];
    struct stk_out_pin *pin = &m->out[o];
    if (!output->blocks || !output->block_bytes)
        return PEN_OK;
    if (pin->made) {
        if (stk_pool_block_bytes(pin->made) >= output->block_bytes)
            return PEN_OK;
        p->growths++;
        return stk_pool_grow(pin->made, output->block_bytes, err);
    }
    char owner[160];
    snprintf(owner, sizeof(owner), "%s.%s", m->id, m->cls->outputs[o].name);
    const bool host = output->mem == PEN_MEM_HOST;
    const struct stk_pool_params params = {
        .mem = output->mem,
        .kind = output->kind,
        .block_bytes = output->block_bytes,
        .reserve_bytes = reserve_of(p, output),
        .blocks = output->blocks,
        .dev = host ? NULL : p->device,
        .ledger = p->ledger,
        .owner = owner,
        .returned = buffer_returned,
        .cookie = m,
        .gone = stk_remains_drop,
        .gone_cookie = remains_use(p->remains),
    };
    struct pen_error why = { 0 };
    enum pen_status st = stk_pool_create(&params, &pin->made, &why);
    if (st == PEN_OK)
        return PEN_OK;
    stk_remains_drop(p->remains);
    if (output->mem == PEN_MEM_HOST_PINNED)
        name_the_quota(&why);
    if (err)
        *err = why;
    return st;
}

static enum pen_status make_pools(struct pen_pipeline *p, struct pen_error *err)
{
    for (uint32_t n = 0; n < p->module_count; n++) {
        for (unsigned o = 0; o < p->modules[n].outputs; o++)
            PEN_TRY(make_pool(p, &p->modules[n], o, err));
    }
    return PEN_OK;
}

static int32_t larger(int32_t a, int32_t b)
{
    return a > b ? a : b;
}

static enum pen_status settle(struct pen_pipeline *p, struct pen_module *m,
                              uint32_t o, const struct pen_caps *caps,
                              struct pen_error *err)
{
    const struct stk_plan_output *output = &p->plan->nodes[m->number].output[o];
    // Width of one frame and height of another: the planned maximum has both.
    struct pen_caps most = *caps;
    most.width = larger(caps->width, output->caps.width);
    most.height = larger(caps->height, output->caps.height);
    if (most.bytes < output->caps.bytes)
        most.bytes = output->caps.bytes;
    PEN_TRY(stk_plan_settle(p->plan, m->number, o, &most, err));

    struct pen_error why = { 0 };
    const enum pen_status st = make_pools(p, &why);
    // What was agreed stands even if memory for it is short.
    atomic_fetch_add(&p->plan_generation, 1);
    if (st != PEN_OK && err)
        *err = why;
    return st;
}

enum pen_status stk_pipeline_settle(struct pen_pipeline *p,
                                    struct pen_module *m, uint32_t pin,
                                    const struct pen_caps *caps,
                                    struct pen_error *err)
{
    char text[96], bytes[40] = "";
    pen_caps_text(caps, text, sizeof(text));
    if (caps->bytes) {
        strcpy(bytes, ", ");
        stk_format_size(caps->bytes, bytes + 2, sizeof(bytes) - 2);
    }
    pthread_mutex_lock(&p->plan_lock);
    enum pen_status st = settle(p, m, pin, caps, err);
    m->plan_seen = atomic_load(&p->plan_generation);
    stk_actor_refresh(m);
    if (st == PEN_OK && !m->out[pin].pool)
        st = pen_error_set(err, PEN_E_STATE, 0, m->id,
                           "the plan knows no size for %s even after %s",
                           m->cls->outputs[pin].name, text);
    pthread_mutex_unlock(&p->plan_lock);
    if (st == PEN_OK)
        pen_log_write(&p->log, PEN_LOG_INFO, "pen.run",
                      "%s.%s gives %s%s: sizes are settled anew", m->id,
                      m->cls->outputs[pin].name, text, bytes);
    return st;
}

// --- start ------------------------------------------------------------------

static enum pen_status load_kernels(struct pen_pipeline *p,
                                    struct pen_error *err)
{
    for (uint32_t n = 0; n < p->module_count; n++) {
        const struct pen_kernel_image *const *image =
            p->modules[n].cls->kernels;
        for (; p->modules[n].cuda && image && *image; image++) {
            struct stk_kernels *loaded = NULL;
            PEN_TRY(stk_kernels_load(p->device, *image, &loaded, err));
        }
    }
    return PEN_OK;
}

// *who is the module whose open() failed.
static enum pen_status open_modules(struct pen_pipeline *p,
                                    const struct pen_module **who,
                                    struct pen_error *err)
{
    for (uint32_t n = 0; n < p->module_count; n++) {
        struct pen_error why = { 0 };
        const enum pen_status st = stk_actor_open(&p->modules[n], &why);
        if (st == PEN_OK)
            continue;
        if (st > 0)
            pen_error_set(&why, PEN_E_STATE, 0, "",
                          "open() returned %s instead of success or an error",
                          pen_status_name(st));
        *who = &p->modules[n];
        locate(err, *who, NULL, &why);
        return why.status;
    }
    return PEN_OK;
}

static enum pen_status make_ready(struct pen_pipeline *p,
                                  const struct pen_module **who,
                                  struct pen_error *err)
{
    uint32_t frames = 8;
    for (uint32_t n = 0; n < p->module_count; n++) {
        for (unsigned o = 0; o < p->modules[n].outputs; o++)
            frames += p->plan->nodes[n].output[o].blocks;
    }
    PEN_TRY(stk_frame_pool_create(frames, p->ledger, &p->frame_pool, err));
    stk_frame_pool_when_gone(p->frame_pool, stk_remains_drop,
                             remains_use(p->remains));
    if (p->device) {
        struct stk_stream *stream = NULL;
        PEN_TRY(stk_stream_create(p->device, "pipeline", &stream, err));
        pthread_mutex_lock(&p->plan_lock);
        p->stream = stream;
        pthread_mutex_unlock(&p->plan_lock);
        PEN_TRY(load_kernels(p, err));
    }
    PEN_TRY(make_pools(p, err));
    for (uint32_t n = 0; n < p->module_count; n++)
        stk_actor_refresh(&p->modules[n]);
    PEN_TRY(open_modules(p, who, err));

    PEN_TRY(stk_sched_create(p->workers, p->ledger, &p->sched, err));
    for (uint32_t n = 0; n < p->module_count; n++)
        stk_sched_add(p->sched, &p->modules[n].task);
    return PEN_OK;
}

enum pen_status stk_pipeline_refuse(const struct pen_pipeline *p,
                                    const char *what, struct pen_error *err)
{
    return pen_error_set(err, PEN_E_STATE, 0, "pipeline",
                         "%s: the pipeline is %s", what,
                         pen_state_name(pen_pipeline_state(p)));
}

enum pen_status pen_pipeline_start(struct pen_pipeline *pipeline,
                                   struct pen_error *err)
{
    struct pen_pipeline *p = pipeline;
    if (pen_pipeline_state(p) != PEN_STATE_CREATED)
        return stk_pipeline_refuse(p, "cannot start", err);
    struct pen_error why = { 0 };
    atomic_store(&p->started_at, stk_now());
    const struct pen_module *who = NULL;
    enum pen_status st = make_ready(p, &who, &why);
    if (st == PEN_OK) {
        stk_pipeline_state_set(p, PEN_STATE_RUNNING);
        st = stk_sched_start(p->sched, &why);
    }
    if (st == PEN_OK) {
        int running = PEN_STATE_RUNNING;
        if (atomic_load(&p->draining))
            atomic_compare_exchange_strong(&p->state, &running,
                                           PEN_STATE_DRAINING);
        return PEN_OK;
    }
    stk_pipeline_error(p, who, NULL, true, &why);
    stk_pipeline_tear_down(p, PEN_STATE_FAILED);
    if (err)
        *err = why;
    return st;
}
