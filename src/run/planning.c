// What a pipeline is planned with: the profile, completed with what is there.

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "../graph/graph.h"
#include "../mem/dmabuf.h"
#include "run.h"

// --- the device -------------------------------------------------------------

static enum pen_status choose_device(const struct pen_pipeline *p,
                                     const struct pen_description *desc,
                                     const struct pen_device_params *params,
                                     struct pen_device_params *out,
                                     struct pen_error *err)
{
    const char *asked = pen_description_device(desc);
    *out = *params;
    out->log = &p->log;
    if (!out->selector)
        out->selector = asked;
    if (strcmp(out->selector, "auto") == 0)
        out->selector = "cuda";
    if (strcmp(asked, "cuda") == 0 && strcmp(out->selector, "emulated") == 0)
        return pen_error_set(err, PEN_E_CONFIG, 0, "/settings/device",
                             "the file asks for a real device (\"cuda\"), "
                             "which forbids the emulated one");
    return PEN_OK;
}

static enum pen_status open_device(struct pen_pipeline *p,
                                   const struct pen_device_params *device,
                                   struct pen_error *err)
{
    PEN_TRY(
        stk_device_open_for(device, p->ledger, "pipeline", &p->device, err));
    struct pen_device_info info;
    PEN_TRY(pen_device_get_info(p->device, &info, err));
    snprintf(p->device_name, sizeof(p->device_name), "%s", info.name);
    p->emulated = info.emulated;
    snprintf(p->device_key, sizeof(p->device_key), "%s",
             info.emulated ? "emulated" : info.uuid);
    p->usage_known =
        stk_device_usage(p->device, &p->usage.before, &p->usage.process_before);
    return PEN_OK;
}

// --- what the file is sure to need ------------------------------------------

struct needs {
    bool device;  // whatever the planner chooses
    bool dmabuf;  // some frame may be one; only with a device it is known what
                  // can be done with them
};

// A pin that takes or gives nothing but DMABUFs needs whoever makes them.
static bool only_dmabuf(const struct stk_node *node)
{
    const uint32_t dmabuf = PEN_MEM_BIT(PEN_MEM_DMABUF);
    bool only = false;
    for (uint32_t i = 0; i < node->inputs; i++)
        only |= node->in[i].mem == dmabuf;
    for (uint32_t o = 0; o < node->outputs; o++)
        only |= node->out[o].mem == dmabuf;
    return only;
}

static bool only_cuda(const struct stk_node *node)
{
    for (uint32_t i = 0; i < node->option_count; i++) {
        if (!(node->options[i].cls->flags & PEN_CLASS_CUDA))
            return false;
    }
    return node->cls->flags & PEN_CLASS_CUDA;
}

static uint32_t mems_of(const struct stk_node *node)
{
    uint32_t mems = 0;
    for (uint32_t i = 0; i < node->inputs; i++)
        mems |= node->in[i].mem;
    for (uint32_t o = 0; o < node->outputs; o++)
        mems |= node->out[o].mem;
    return mems;
}

// Errors of the file are appended to `issues`.
static enum pen_status find_needs(const struct pen_description *desc,
                                  const struct pen_registry *registry,
                                  struct needs *out, struct pen_issues *issues,
                                  struct pen_error *err)
{
    struct stk_arena arena = { 0 };
    struct stk_graph *graph = NULL;
    struct pen_issues *found = pen_issues_create();
    *out = (struct needs){ 0 };
    if (!found)
        return pen_error_set(err, PEN_E_NOMEM, 0, "plan", "out of memory");
    const enum pen_status st =
        stk_graph_resolve(desc, registry, &arena, &graph, found, err);
    for (uint32_t i = 0; st == PEN_OK && i < graph->node_count; i++) {
        out->device |=
            only_cuda(&graph->nodes[i]) || only_dmabuf(&graph->nodes[i]);
        out->dmabuf |=
            (mems_of(&graph->nodes[i]) & PEN_MEM_BIT(PEN_MEM_DMABUF)) != 0;
    }
    // Of a file that is right the plan tells them.
    if (st != PEN_OK && issues)
        stk_issues_append(issues, found);
    pen_issues_destroy(&found);
    stk_arena_finish(&arena);
    return st;
}

// --- completing the profile -------------------------------------------------

PEN_PRINTF(4, 5)
static void differs(struct pen_pipeline *p, const char *what,
                    const char *supposed, const char *found, ...)
{
    if (p->difference_count == STK_MAX_DIFFERENCES)
        return;
    struct stk_difference *d = &p->differences[p->difference_count++];
    va_list args;
    snprintf(d->what, sizeof(d->what), "%s", what);
    snprintf(d->supposed, sizeof(d->supposed), "%s", supposed);
    va_start(args, found);
    vsnprintf(d->found, sizeof(d->found), found, args);
    va_end(args);
}

// Of a profile that nobody asked for nothing was expected.
static void tell(const struct pen_pipeline *p)
{
    for (uint32_t i = 0; i < p->difference_count; i++) {
        const struct stk_difference *d = &p->differences[i];
        pen_log_write(&p->log, p->profile_given ? PEN_LOG_INFO : PEN_LOG_DEBUG,
                      "pen.run", "%s: %s in profile %s, found: %s", d->what,
                      d->supposed, p->profile.name, d->found);
    }
}

// Sizes that differ by more than a sixteenth: what is free changes.
static void set_size(struct pen_pipeline *p, const char *what, uint64_t *size,
                     uint64_t found)
{
    const uint64_t gap = *size > found ? *size - found : found - *size;
    if (*size && gap > *size / 16) {
        char before[32], now[32];
        stk_format_size(*size, before, sizeof(before));
        stk_format_size(found, now, sizeof(now));
        differs(p, what, before, "%s", now);
    }
    *size = found;
}

static void set_dmabuf(struct pen_pipeline *p,
                       const struct stk_dmabuf_caps *caps)
{
    const struct {
        unsigned bit;
        const char *what;
        bool can;
        const char *why;
    } all[] = {
        { PEN_DMABUF_HOST, "DMABUFs of the host", caps->host, caps->why_host },
        { PEN_DMABUF_EXPORT, "DMABUF export", caps->export, caps->why_export },
        { PEN_DMABUF_IMPORT, "DMABUF import", caps->import, caps->why_import },
    };
    for (unsigned i = 0; i < 3; i++) {
        const bool supposed = p->profile.dmabuf & all[i].bit;
        if (supposed && !all[i].can)
            differs(p, all[i].what, "yes", "no: %s", all[i].why);
        else if (!supposed && all[i].can)
            differs(p, all[i].what, "no", "yes");
        p->profile.dmabuf &= ~all[i].bit;
        p->profile.dmabuf |= all[i].can ? all[i].bit : 0;
        snprintf(p->profile.why_dmabuf[i], sizeof(p->profile.why_dmabuf[i]),
                 "%s", all[i].why);
    }
}

// On an account of its own: what it takes is no part of the pipeline's peak.
static enum pen_status probe_dmabuf(struct pen_pipeline *p,
                                    const struct pen_device_params *device,
                                    struct pen_error *err)
{
    struct stk_dmabuf_caps caps;
    struct pen_device *dev = NULL;
    PEN_TRY(pen_device_open(device, &dev, err));
    stk_dmabuf_probe(dev, &caps);
    pen_device_close(&dev);
    set_dmabuf(p, &caps);
    return PEN_OK;
}

static void set_device(struct pen_pipeline *p,
                       const struct pen_device_info *info)
{
    struct pen_profile *profile = &p->profile;
    const char *emulated = info->emulated ? " (emulated)" : "";
    const bool known = profile->device_name[0] != '\0';
    if (!profile->cuda && !profile->emulated && !info->emulated)
        differs(p, "device", "none", "%s", info->name);
    else if (known && strcmp(profile->device_name, info->name) != 0)
        differs(p, "device", profile->device_name, "%s%s", info->name,
                emulated);
    else if (profile->cuda && info->emulated)
        differs(p, "device", "a GPU", "%s%s", info->name, emulated);
    profile->cuda = true;
    profile->emulated = info->emulated;
    memcpy(profile->device_name, info->name, sizeof(profile->device_name));
    set_size(p, "free device memory", &profile->cuda_memory, info->free_bytes);
}

// What is really there, in place of what the profile supposes. `device` NULL:
// none was opened, and the profile's stands for it.
static enum pen_status complete_profile(struct pen_pipeline *p,
                                        const struct pen_profile *given,
                                        bool dmabuf,
                                        const struct pen_device_params *device,
                                        struct pen_error *err)
{
    p->profile = *given;
    p->difference_count = 0;
    if (device) {
        struct pen_device_info info;
        PEN_TRY(pen_device_get_info(p->device, &info, err));
        set_device(p, &info);
    }
    const uint64_t memory = stk_machine_memory();
    if (memory)
        set_size(p, "memory", &p->profile.host_memory, memory);
    return dmabuf && device ? probe_dmabuf(p, device, err) : PEN_OK;
}

// --- the plan ---------------------------------------------------------------

// Issues of a plan that another one replaces are not told.
static enum pen_status plan_once(struct pen_pipeline *p,
                                 const struct pen_description *desc,
                                 const struct pen_registry *registry,
                                 const struct pen_plan_params *params,
                                 bool last, struct pen_issues *issues,
                                 struct pen_error *err)
{
    struct pen_issues *found = pen_issues_create();
    if (!found)
        return pen_error_set(err, PEN_E_NOMEM, 0, "plan", "out of memory");
    const enum pen_status st =
        pen_plan_create(desc, registry, params, &p->plan, found, err);
    const bool kept = last || st != PEN_OK || !pen_plan_needs_device(p->plan);
    if (kept && issues)
        stk_issues_append(issues, found);
    pen_issues_destroy(&found);
    if (st == PEN_OK)
        memcpy(p->plan->device, p->device_key, sizeof(p->plan->device));
    return st;
}

static bool same_modules(const struct pen_plan *a, const struct pen_plan *b)
{
    if (a->node_count != b->node_count)
        return false;
    for (uint32_t i = 0; i < a->node_count; i++) {
        if (a->nodes[i].cls != b->nodes[i].cls)
            return false;
    }
    return true;
}

enum pen_status stk_pipeline_plan_it(struct pen_pipeline *p,
                                     const struct pen_description *desc,
                                     const struct pen_registry *registry,
                                     const struct pen_pipeline_params *params,
                                     struct pen_issues *issues,
                                     struct pen_error *err)
{
    struct pen_plan_params plan = params->plan;
    struct pen_device_params device;
    struct needs needs;
    const struct pen_profile *given =
        plan.profile ? plan.profile : pen_profile_builtin("generic-cuda");
    p->profile_given = plan.profile != NULL;
    plan.profile = &p->profile;
    plan.probe = !params->no_probe;
    if (!plan.frames)
        plan.frames = params->frames;

    // Nothing is opened for a file that is not valid anyway.
    PEN_TRY(find_needs(desc, registry, &needs, issues, err));
    if (needs.device) {
        PEN_TRY(choose_device(p, desc, &params->device, &device, err));
        PEN_TRY(open_device(p, &device, err));
    }
    PEN_TRY(complete_profile(p, given, needs.dmabuf,
                             needs.device ? &device : NULL, err));
    if (needs.device)
        tell(p);
    PEN_TRY(plan_once(p, desc, registry, &plan, needs.device, issues, err));
    if (needs.device)
        return PEN_OK;
    if (!pen_plan_needs_device(p->plan)) {
        tell(p);
        return PEN_OK;
    }

    // A device that pays, though the file would do without: the plan is made
    // for what it really is.
    PEN_TRY(choose_device(p, desc, &params->device, &device, err));
    PEN_TRY(open_device(p, &device, err));
    PEN_TRY(complete_profile(p, given, needs.dmabuf, &device, err));
    tell(p);
    struct pen_plan *before = p->plan;
    p->plan = NULL;
    const enum pen_status st =
        plan_once(p, desc, registry, &plan, true, issues, err);
    if (st == PEN_OK && p->plan && !same_modules(before, p->plan))
        pen_log_write(&p->log, PEN_LOG_INFO, "pen.run",
                      "with what %s has the plan is another one than that for "
                      "profile %s alone",
                      p->device_name, p->profile.name);
    pen_plan_destroy(&before);
    return st;
}
