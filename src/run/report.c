// What is told about a run: numbers, a text for people, an object for
// programs.

#include <string.h>

#include "../base/str.h"
#include "../graph/json.h"
#include "../graph/plan_size.h"
#include "run.h"

static const enum stk_res counted[] = {
    STK_RES_HOST,    STK_RES_HOST_PINNED,  STK_RES_CUDA_DEVICE, STK_RES_DMABUF,
    STK_RES_STREAM,  STK_RES_EVENT,        STK_RES_KERNELS,     STK_RES_FRAME,
    STK_RES_MAPPING, STK_RES_REGISTRATION, STK_RES_IMPORT,
};

static double seconds_of(const struct pen_pipeline *p)
{
    const int64_t started = atomic_load(&p->started_at);
    const int64_t ended = atomic_load(&p->ended_at);
    if (!started)
        return 0;
    return (double)((ended ? ended : stk_now()) - started) / 1e9;
}

static double rate(uint64_t frames, double seconds)
{
    return seconds > 0 ? (double)frames / seconds : 0;
}

void pen_pipeline_progress(const struct pen_pipeline *pipeline,
                           struct pen_progress *out)
{
    uint64_t expected = pipeline->expected;
    *out = (struct pen_progress){
        .frames = atomic_load(&pipeline->sink_frames),
        .expected = expected * pipeline->sinks,
        .seconds = seconds_of(pipeline),
    };
}

static struct pen_transfer_stats copies(const struct pen_pipeline *p,
                                        unsigned kind)
{
    return (struct pen_transfer_stats){
        .count = atomic_load(&p->copies[kind]),
        .bytes = atomic_load(&p->copy_bytes[kind]),
    };
}

// Blocks of a pool, and how many of them were needed at once; 0 without one.
// With plan_lock.
static uint32_t blocks_of(const struct stk_out_pin *pin, uint32_t *needed)
{
    *needed = pin->needed;
    if (!pin->made)
        return pin->had;
    struct stk_pool_stats stats;
    stk_pool_stats(pin->made, &stats);
    *needed = stats.max_in_use;
    return stats.blocks;
}

// Bytes of blocks that no frame was in, by memory type. With plan_lock.
static void sum_unused(const struct pen_pipeline *p,
                       uint64_t unused[PEN_MEM_COUNT])
{
    for (uint32_t n = 0; n < p->module_count; n++) {
        for (unsigned o = 0; o < p->modules[n].outputs; o++) {
            uint32_t needed;
            const uint32_t had = blocks_of(&p->modules[n].out[o], &needed);
            enum pen_mem_type mem;
            const size_t bytes =
                stk_plan_block_bytes(&p->plan->nodes[n].output[o], &mem);
            if (had > needed)
                unused[mem] += (uint64_t)(had - needed) * bytes;
        }
    }
}

void stk_pipeline_collect(struct pen_pipeline *p, struct pen_stats *out)
{
    uint64_t unused[PEN_MEM_COUNT] = { 0 };
    *out = (struct pen_stats){
        .frames = atomic_load(&p->sink_frames),
        .seconds = seconds_of(p),
        .h2d = copies(p, STK_COPY_H2D),
        .d2h = copies(p, STK_COPY_D2H),
        .d2d = copies(p, STK_COPY_D2D),
        .host_copy_bytes = atomic_load(&p->copy_bytes[0]),
    };
    for (uint32_t i = 0; i < p->module_count; i++)
        out->drops += atomic_load(&p->modules[i].drops);
    for (uint32_t i = 0; i < p->link_count; i++) {
        struct stk_edge_stats stats;
        stk_queue_stats(&p->links[i].queue, &stats);
        out->drops += stats.drops;
    }

    pthread_mutex_lock(&p->plan_lock);
    for (unsigned m = PEN_MEM_HOST; p->plan && m < PEN_MEM_COUNT; m++)
        out->memory[m].planned_peak = p->plan->peak[m];
    if (p->plan)
        sum_unused(p, unused);
    out->launches = p->stream ? stk_stream_launches(p->stream) : p->launches;
    out->unattributed = p->usage;
    out->blocking_syncs =
        p->device ? stk_device_blocked(p->device) : p->blocked;
    pthread_mutex_unlock(&p->plan_lock);

    if (atomic_load(&p->torn_down))
        out->leaks = p->leaked;
    struct stk_ledger_totals t;
    for (unsigned m = PEN_MEM_HOST; m < PEN_MEM_COUNT; m++) {
        stk_ledger_totals(p->ledger, (enum stk_res)m, &t);
        out->memory[m].peak = t.peak_bytes;
        out->memory[m].live = t.live_bytes;
        out->memory[m].used =
            t.peak_bytes > unused[m] ? t.peak_bytes - unused[m] : 0;
    }
    for (unsigned i = 0; i < sizeof(counted) / sizeof(counted[0]); i++) {
        stk_ledger_totals(p->ledger, counted[i], &t);
        out->steady_state_allocations += t.steady;
    }
    out->library_allocations = atomic_load(&p->library_allocations);
    stk_ledger_totals(p->ledger, STK_RES_CONTEXT, &t);
    out->contexts_retained = (uint32_t)t.added;
    out->contexts_released = (uint32_t)t.removed;
    stk_ledger_totals(p->ledger, STK_RES_STREAM, &t);
    out->streams = (uint32_t)t.added;

    pthread_mutex_lock(&p->error_lock);
    out->errors = p->failure_count;
    pthread_mutex_unlock(&p->error_lock);
}

// The lock and the counters are not part of what a reader sees change.
static struct pen_pipeline *unconst(const struct pen_pipeline *p)
{
    return (struct pen_pipeline *)(uintptr_t)p;
}

void pen_pipeline_stats(const struct pen_pipeline *pipeline,
                        struct pen_stats *out)
{
    struct pen_pipeline *p = unconst(pipeline);
    pthread_mutex_lock(&p->plan_lock);
    const bool frozen = p->frozen;
    *out = p->final;
    pthread_mutex_unlock(&p->plan_lock);
    if (!frozen)
        stk_pipeline_collect(p, out);
}

// A copy, so that nothing is called under the lock.
static uint32_t copy_failures(struct pen_pipeline *p, struct stk_failure *out,
                              uint64_t *all)
{
    pthread_mutex_lock(&p->error_lock);
    *all = p->failure_count;
    const uint32_t kept = p->failure_count < STK_MAX_FAILURES
                              ? (uint32_t)p->failure_count
                              : STK_MAX_FAILURES;
    memcpy(out, p->failures, kept * sizeof(*out));
    pthread_mutex_unlock(&p->error_lock);
    return kept;
}

static bool run_is_ok(const struct pen_pipeline *p)
{
    const enum pen_state state = pen_pipeline_state(p);
    return state == PEN_STATE_DONE || state == PEN_STATE_STOPPED;
}

// The names of the two pins. Ids have any length.
static const char *from_pin(const struct stk_link *link)
{
    return link->from->cls->outputs[link->from_pin].name;
}

static const char *to_pin(const struct stk_link *link)
{
    return link->to->cls->inputs[link->to_pin].name;
}

// --- text -------------------------------------------------------------------

static void add_size(struct stk_text *t, uint64_t bytes)
{
    char text[32];
    stk_format_size(bytes, text, sizeof(text));
    stk_text_add(t, text);
}

static void text_modules(struct stk_text *t, const struct pen_pipeline *p)
{
    int width = 6, types = 4;
    for (uint32_t i = 0; i < p->module_count; i++) {
        const int id = (int)strlen(p->modules[i].id);
        const int type = (int)strlen(p->plan->nodes[i].type);
        width = id > width ? id : width;
        types = type > types ? type : types;
    }
    stk_text_addf(t, "  %-*s  %-*s  %10s %8s %12s\n", width, "module", types,
                  "type", "frames", "drops", "busy");
    for (uint32_t i = 0; i < p->module_count; i++) {
        const struct pen_module *m = &p->modules[i];
        stk_text_add(t, "  ");
        stk_text_add_plain(t, m->id);
        stk_text_addf(t, "%*s  %-*s  %10llu %8llu %9.1f ms\n",
                      width - (int)strlen(m->id), "", types,
                      p->plan->nodes[i].type,
                      (unsigned long long)atomic_load(&m->frames),
                      (unsigned long long)atomic_load(&m->drops),
                      (double)atomic_load(&m->busy_ns) / 1e6);
    }
}

// The pool that the frames of an edge come from. False: they are those of
// another module, or there is none as yet. With plan_lock.
static bool pool_of(const struct stk_link *link, uint32_t *had,
                    uint32_t *needed)
{
    *had = blocks_of(&link->from->out[link->from_pin], needed);
    return *had > 0;
}

static void text_edges(struct stk_text *t, struct pen_pipeline *p)
{
    for (uint32_t i = 0; i < p->link_count; i++) {
        struct stk_link *link = &p->links[i];
        struct stk_edge_stats stats;
        stk_queue_stats(&link->queue, &stats);
        stk_text_add(t, "  ");
        stk_text_add_plain(t, link->from->id);
        stk_text_addf(t, ".%s -> ", from_pin(link));
        stk_text_add_plain(t, link->to->id);
        stk_text_addf(t,
                      ".%s  %s, %llu frames, %llu dropped, queue at most %u "
                      "of %u",
                      to_pin(link), pen_mem_name(p->plan->edges[i].mem),
                      (unsigned long long)stats.frames,
                      (unsigned long long)stats.drops, stats.max_fill,
                      link->queue.depth);
        uint32_t had, needed;
        if (pool_of(link, &had, &needed))
            stk_text_addf(t, ", pool at most %u of %u", needed, had);
        stk_text_add(t, "\n");
    }
}

static void text_errors(struct stk_text *t, struct pen_pipeline *p)
{
    struct stk_failure failures[STK_MAX_FAILURES];
    uint64_t all;
    const uint32_t kept = copy_failures(p, failures, &all);
    for (uint32_t i = 0; i < kept; i++) {
        stk_text_add(t, failures[i].fatal ? "error: " : "dropped: ");
        stk_text_add_plain(t, failures[i].err.where);
        stk_text_add(t, ": ");
        stk_text_add_plain(t, failures[i].err.text);
        stk_text_add(t, "\n");
    }
    if (all > kept)
        stk_text_addf(t, "and %llu more\n", (unsigned long long)(all - kept));
}

static void text_transfer(struct stk_text *t, const char *name,
                          const struct pen_transfer_stats *s)
{
    stk_text_addf(t, "%s %llu frame%s", name, (unsigned long long)s->count,
                  s->count == 1 ? "" : "s");
    if (s->count) {
        stk_text_add(t, " (");
        add_size(t, s->bytes);
        stk_text_add(t, ")");
    }
}

static void text_resources(struct stk_text *t, const struct pen_stats *s,
                           struct pen_pipeline *p)
{
    stk_text_add(t, "transfers: ");
    text_transfer(t, "host to device", &s->h2d);
    text_transfer(t, ", device to host", &s->d2h);
    text_transfer(t, ", on the device", &s->d2d);
    stk_text_add(t, "; copied by the CPU ");
    add_size(t, s->host_copy_bytes);
    stk_text_add(t, "\nmemory:");
    for (unsigned i = PEN_MEM_HOST; i < PEN_MEM_COUNT; i++) {
        const struct pen_memory_stats *m = &s->memory[i];
        if (!m->planned_peak && !m->peak)
            continue;
        stk_text_addf(t, " %s planned ", pen_mem_name((enum pen_mem_type)i));
        add_size(t, m->planned_peak);
        stk_text_add(t, ", peak ");
        add_size(t, m->peak);
        if (m->used < m->peak) {
            stk_text_add(t, ", used ");
            add_size(t, m->used);
        }
        stk_text_add(t, ";");
    }
    stk_text_addf(t,
                  " %llu allocations in steady state, %llu waits of workers "
                  "for the device\n",
                  (unsigned long long)s->steady_state_allocations,
                  (unsigned long long)s->blocking_syncs);
    pthread_mutex_lock(&p->plan_lock);
    const uint32_t growths = p->growths;
    pthread_mutex_unlock(&p->plan_lock);
    if (growths)
        stk_text_addf(t,
                      "pools: %u enlarged because frames were larger than "
                      "known before\n",
                      growths);
    stk_text_addf(t,
                  "cuda: streams: %u, launches: %llu, contexts retained: %u, "
                  "released: %u\n",
                  s->streams, (unsigned long long)s->launches,
                  s->contexts_retained, s->contexts_released);
}

// Other programs use the device too, and drivers keep something back: less
// than this is not worth a line.
#define UNATTRIBUTED_TOLD (UINT64_C(2) << 20)

static void text_unattributed(struct stk_text *t,
                              const struct pen_unattributed *u)
{
    if (u->after < u->before || u->after - u->before <= UNATTRIBUTED_TOLD)
        return;
    stk_text_add(t, "unattributed: ");
    add_size(t, u->before);
    stk_text_add(t, " of the device's memory were in use before, ");
    add_size(t, u->after);
    stk_text_add(t, " after");
    if (u->process_after) {
        stk_text_add(t, " (by this process ");
        add_size(t, u->process_before);
        stk_text_add(t, ", ");
        add_size(t, u->process_after);
        stk_text_add(t, ")");
    }
    stk_text_add(t, "\n");
}

// Of a profile that nobody asked for nothing was expected.
static void text_profile(struct stk_text *t, const struct pen_pipeline *p)
{
    for (uint32_t i = 0; p->profile_given && i < p->difference_count; i++) {
        const struct stk_difference *d = &p->differences[i];
        stk_text_addf(t, "%s: ", d->what);
        stk_text_add_plain(t, d->supposed);
        stk_text_add(t, " in profile ");
        stk_text_add_plain(t, p->profile.name);
        stk_text_add(t, ", found: ");
        stk_text_add_plain(t, d->found);
        stk_text_add(t, "\n");
    }
}

static void text_leaks(struct stk_text *t, const struct pen_pipeline *p)
{
    if (!atomic_load(&p->torn_down)) {
        stk_text_add(t, "leaks are known when the pipeline is torn down\n");
        return;
    }
    if (!p->leaked) {
        stk_text_add(t, "no leaks\n");
        return;
    }
    for (uint32_t i = 0; i < p->leak_count; i++) {
        const struct stk_leak *l = &p->leaks[i];
        stk_text_addf(t, "leak: %llu x %s, %llu bytes",
                      (unsigned long long)l->count, stk_res_name(l->res),
                      (unsigned long long)l->bytes);
        if (*l->owner) {
            stk_text_add(t, ", of ");
            stk_text_add_plain(t, l->owner);
            stk_text_addf(t, " (%s)", l->site);
        }
        stk_text_add(t, "\n");
    }
    stk_text_addf(t, "%llu leaks\n", (unsigned long long)p->leaked);
}

char *pen_pipeline_report_text(const struct pen_pipeline *pipeline)
{
    struct pen_pipeline *p = unconst(pipeline);
    struct stk_text t = { 0 };
    struct pen_stats s;
    pen_pipeline_stats(p, &s);

    stk_text_addf(&t, "%s: %llu frames in %.3f s (%.1f per second)",
                  pen_state_name(pen_pipeline_state(p)),
                  (unsigned long long)s.frames, s.seconds,
                  rate(s.frames, s.seconds));
    const int64_t first = atomic_load(&p->first_frame_at);
    if (first)
        stk_text_addf(&t, ", the first after %.1f ms",
                      (double)(first - atomic_load(&p->started_at)) / 1e6);
    if (*p->device_name)
        stk_text_addf(&t, ", on %s%s", p->device_name,
                      p->emulated ? " (emulated)" : "");
    stk_text_add(&t, "\n");
    pthread_mutex_lock(&p->plan_lock);
    text_modules(&t, p);
    text_edges(&t, p);
    pthread_mutex_unlock(&p->plan_lock);
    text_errors(&t, p);
    text_profile(&t, p);
    text_resources(&t, &s, p);
    text_unattributed(&t, &s.unattributed);
    text_leaks(&t, p);
    return stk_text_take(&t);
}

// --- JSON -------------------------------------------------------------------

static json_t *json_transfer(const struct pen_transfer_stats *s)
{
    json_t *o = stk_json_with(json_object(), "count", stk_json_count(s->count));
    return stk_json_with(o, "bytes", stk_json_count(s->bytes));
}

static json_t *json_transfers(const struct pen_stats *s)
{
    json_t *o = stk_json_with(json_object(), "h2d", json_transfer(&s->h2d));
    o = stk_json_with(o, "d2h", json_transfer(&s->d2h));
    return stk_json_with(o, "d2d", json_transfer(&s->d2d));
}

static json_t *json_device(const struct pen_pipeline *p)
{
    if (!*p->device_name)
        return json_null();
    json_t *o =
        stk_json_with(json_object(), "name", stk_json_text(p->device_name));
    return stk_json_with(o, "emulated", json_boolean(p->emulated));
}

static json_t *json_profile(const struct pen_pipeline *p)
{
    json_t *list = json_array();
    for (uint32_t i = 0; i < p->difference_count; i++) {
        const struct stk_difference *d = &p->differences[i];
        json_t *one =
            stk_json_with(json_object(), "what", stk_json_text(d->what));
        one = stk_json_with(one, "profile", stk_json_text(d->supposed));
        one = stk_json_with(one, "found", stk_json_text(d->found));
        list = stk_json_append(list, one);
    }
    json_t *o =
        stk_json_with(json_object(), "name", stk_json_text(p->profile.name));
    o = stk_json_with(o, "given", json_boolean(p->profile_given));
    return stk_json_with(o, "differences", list);
}

static json_t *json_modules(const struct pen_pipeline *p)
{
    json_t *list = json_array();
    for (uint32_t i = 0; i < p->module_count; i++) {
        const struct pen_module *m = &p->modules[i];
        const struct stk_plan_node *node = &p->plan->nodes[i];
        json_t *o = stk_json_with(json_object(), "id", stk_json_text(m->id));
        o = stk_json_with(o, "type", stk_json_text(node->type));
        o = stk_json_with(o, "inserted", json_boolean(node->inserted));
        o = stk_json_with(o, "frames", stk_json_count(atomic_load(&m->frames)));
        o = stk_json_with(o, "drops", stk_json_count(atomic_load(&m->drops)));
        o = stk_json_with(o, "busy_us",
                          stk_json_count(atomic_load(&m->busy_ns) / 1000));
        list = stk_json_append(list, o);
    }
    return list;
}

static json_t *json_edges(struct pen_pipeline *p)
{
    json_t *list = json_array();
    for (uint32_t i = 0; i < p->link_count; i++) {
        struct stk_link *link = &p->links[i];
        struct stk_edge_stats stats;
        stk_queue_stats(&link->queue, &stats);
        json_t *o = stk_json_with(
            json_object(), "from",
            json_sprintf("%s.%s", link->from->id, from_pin(link)));
        o = stk_json_with(o, "to",
                          json_sprintf("%s.%s", link->to->id, to_pin(link)));
        o = stk_json_with(o, "mem",
                          json_string(pen_mem_name(p->plan->edges[i].mem)));
        o = stk_json_with(o, "frames", stk_json_count(stats.frames));
        o = stk_json_with(o, "drops", stk_json_count(stats.drops));
        o = stk_json_with(o, "depth", stk_json_count(link->queue.depth));
        o = stk_json_with(o, "max_fill", stk_json_count(stats.max_fill));
        uint32_t had, needed;
        json_t *pool = json_null();
        if (pool_of(link, &had, &needed))
            pool = stk_json_with(
                stk_json_with(json_object(), "blocks", stk_json_count(had)),
                "max_in_use", stk_json_count(needed));
        o = stk_json_with(o, "pool", pool);
        list = stk_json_append(list, o);
    }
    return list;
}

static json_t *json_memory(const struct pen_stats *s)
{
    json_t *all = json_object();
    for (unsigned i = PEN_MEM_HOST; i < PEN_MEM_COUNT; i++) {
        const struct pen_memory_stats *m = &s->memory[i];
        json_t *o = stk_json_with(json_object(), "planned_peak",
                                  stk_json_count(m->planned_peak));
        o = stk_json_with(o, "peak", stk_json_count(m->peak));
        o = stk_json_with(o, "live", stk_json_count(m->live));
        o = stk_json_with(o, "used", stk_json_count(m->used));
        all = stk_json_with(all, pen_mem_key((enum pen_mem_type)i), o);
    }
    return all;
}

static json_t *json_unattributed(const struct pen_unattributed *u)
{
    json_t *o =
        stk_json_with(json_object(), "before", stk_json_count(u->before));
    o = stk_json_with(o, "after", stk_json_count(u->after));
    o = stk_json_with(o, "process_before", stk_json_count(u->process_before));
    return stk_json_with(o, "process_after", stk_json_count(u->process_after));
}

static json_t *json_cuda(const struct pen_stats *s)
{
    json_t *o = stk_json_with(json_object(), "contexts_retained",
                              stk_json_count(s->contexts_retained));
    o = stk_json_with(o, "contexts_released",
                      stk_json_count(s->contexts_released));
    o = stk_json_with(o, "streams", stk_json_count(s->streams));
    o = stk_json_with(o, "steady_state_allocations",
                      stk_json_count(s->steady_state_allocations));
    o = stk_json_with(o, "library_allocations",
                      stk_json_count(s->library_allocations));
    o = stk_json_with(o, "blocking_syncs", stk_json_count(s->blocking_syncs));
    return stk_json_with(o, "unattributed",
                         json_unattributed(&s->unattributed));
}

static json_t *json_leaks(const struct pen_pipeline *p)
{
    json_t *list = json_array();
    for (uint32_t i = 0; atomic_load(&p->torn_down) && i < p->leak_count; i++) {
        const struct stk_leak *l = &p->leaks[i];
        json_t *o = stk_json_with(json_object(), "type",
                                  json_string(stk_res_name(l->res)));
        o = stk_json_with(o, "owner", stk_json_text(l->owner));
        o = stk_json_with(o, "site", stk_json_text(l->site));
        o = stk_json_with(o, "bytes", stk_json_count(l->bytes));
        list = stk_json_append(list, o);
    }
    return list;
}

static json_t *json_errors(struct pen_pipeline *p)
{
    struct stk_failure failures[STK_MAX_FAILURES];
    uint64_t all;
    const uint32_t kept = copy_failures(p, failures, &all);
    json_t *list = json_array();
    for (uint32_t i = 0; i < kept; i++) {
        const struct stk_failure *f = &failures[i];
        json_t *o =
            stk_json_with(json_object(), "module",
                          f->module ? stk_json_text(f->module) : json_null());
        o = stk_json_with(
            o, "frame", f->has_frame ? stk_json_count(f->frame) : json_null());
        o = stk_json_with(o, "status",
                          json_string(pen_status_name(f->err.status)));
        o = stk_json_with(o, "native", json_integer(f->err.native));
        o = stk_json_with(o, "fatal", json_boolean(f->fatal));
        o = stk_json_with(o, "where", stk_json_text(f->err.where));
        o = stk_json_with(o, "message", stk_json_text(f->err.text));
        list = stk_json_append(list, o);
    }
    return list;
}

char *pen_pipeline_report_json(const struct pen_pipeline *pipeline)
{
    struct pen_pipeline *p = unconst(pipeline);
    struct pen_stats s;
    pen_pipeline_stats(p, &s);

    json_t *o = stk_json_with(json_object(), "ok", json_boolean(run_is_ok(p)));
    o = stk_json_with(o, "device", json_device(p));
    o = stk_json_with(o, "profile", json_profile(p));
    o = stk_json_with(o, "frames", stk_json_count(s.frames));
    o = stk_json_with(o, "seconds", json_real(s.seconds));
    o = stk_json_with(o, "fps", json_real(rate(s.frames, s.seconds)));
    pthread_mutex_lock(&p->plan_lock);
    o = stk_json_with(o, "modules", json_modules(p));
    o = stk_json_with(o, "edges", json_edges(p));
    pthread_mutex_unlock(&p->plan_lock);
    o = stk_json_with(o, "transfers", json_transfers(&s));
    o = stk_json_with(o, "memory", json_memory(&s));
    o = stk_json_with(o, "cuda", json_cuda(&s));
    o = stk_json_with(o, "leaks", json_leaks(p));
    return stk_json_dump_new(stk_json_with(o, "errors", json_errors(p)));
}
