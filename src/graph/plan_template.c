// Classes that the planner may insert, with their properties set.

#include "plan_place.h"

#include <stdio.h>

static const struct pen_module_class *
find_converter(const struct pen_registry *registry, const char *backend)
{
    const char *const tags[] = { "function:color", backend, NULL };
    const struct pen_module_class *list[16];
    size_t count = pen_registry_modules_with_tags(registry, tags, list, 16);
    if (count > 16)
        count = 16;
    for (size_t i = 0; i < count; i++)
        if ((list[i]->flags & PEN_CLASS_BRIDGE) &&
            stk_prop_find(list[i]->props, "imageType"))
            return list[i];
    return NULL;
}

void stk_templates_find(struct stk_planner *p)
{
    const struct pen_registry *registry = p->plan->registry;
    p->convert_cls[0] = find_converter(registry, "backend:cpu");
    p->convert_cls[1] = find_converter(registry, "backend:cuda");
    p->copy_cls = pen_registry_find(registry, "CudaMemCopy", NULL);
    if (p->copy_cls && (!(p->copy_cls->flags & PEN_CLASS_BRIDGE) ||
                        !stk_prop_find(p->copy_cls->props, "kind")))
        p->copy_cls = NULL;
    p->host_copy_cls = pen_registry_find(registry, "MemTypeConversion", NULL);
    if (p->host_copy_cls &&
        (!(p->host_copy_cls->flags & PEN_CLASS_BRIDGE) ||
         !stk_prop_find(p->host_copy_cls->props, "outputMemType")))
        p->host_copy_cls = NULL;
}

static void pin_set(const struct pen_pin *pin, struct pen_pin_set *set)
{
    set->kinds = pin->kinds;
    set->mem = pin->mem;
    set->formats = pin->formats;
}

// Properties of a class with one of them set, as if a file said so.
static enum pen_status make_template(struct stk_planner *p,
                                     struct stk_template *t,
                                     const struct pen_module_class *cls,
                                     const char *key, const char *value,
                                     struct pen_error *err)
{
    struct pen_plan *plan = p->plan;
    if (t->tried)
        return PEN_OK;
    t->tried = true;
    if (!cls || !cls->inputs || !cls->outputs)
        return PEN_OK;
    t->cls = cls;
    snprintf(t->text, sizeof(t->text), "%s", value);

    enum pen_status st = PEN_E_NOMEM;
    void *params =
        stk_arena_alloc(&plan->arena, cls->params_size ? cls->params_size : 1);
    struct pen_issues *issues = pen_issues_create();
    json_t *props = json_pack("{s:s}", key, value);
    if (params && issues && props) {
        const size_t errors =
            stk_props_parse(cls->props, params, &t->base, props, "", plan->desc,
                            &plan->arena, issues, cls->name);
        if (!stk_issues_failed(issues)) {
            st = PEN_OK;
            t->usable = errors == 0;
        }
    }
    json_decref(props);
    pen_issues_destroy(&issues);
    if (st != PEN_OK) {
        t->tried = false;
        return pen_error_set(err, st, 0, cls->name, "no memory for the plan");
    }
    t->params = params;
    // Narrowing sees all pins; bridges have one on each side.
    struct pen_pin_set in[PEN_MAX_PINS] = { 0 }, out[PEN_MAX_PINS] = { 0 };
    for (unsigned i = 0; i < PEN_MAX_PINS && cls->inputs[i].name; i++)
        pin_set(&cls->inputs[i], &in[i]);
    for (unsigned i = 0; i < PEN_MAX_PINS && cls->outputs[i].name; i++)
        pin_set(&cls->outputs[i], &out[i]);
    if (cls->ops.narrow)
        cls->ops.narrow(params, in, out);
    struct pen_pin_set *sets = stk_arena_alloc(&plan->arena, 2 * sizeof(*sets));
    if (!sets) {
        t->tried = false;
        return stk_plan_no_memory(err);
    }
    sets[0] = in[0];
    sets[1] = out[0];
    t->in = &sets[0];
    t->out = &sets[1];
    return PEN_OK;
}

const struct stk_template *stk_template_of(const struct stk_planner *p,
                                           enum stk_op op,
                                           enum pen_format format)
{
    switch (op) {
    case OP_H2D:
        return &p->copy[0];
    case OP_D2H:
        return &p->copy[1];
    case OP_TO_PINNED:
        return &p->host_copy[0];
    case OP_TO_DMABUF:
        return &p->host_copy[1];
    case OP_CONVERT_HOST:
        return &p->convert[0][format];
    case OP_CONVERT_CUDA:
        return &p->convert[1][format];
    case OP_UPGRADE:
        break;
    }
    return NULL;
}

enum pen_status stk_templates_copies(struct stk_planner *p,
                                     struct pen_error *err)
{
    PEN_TRY(make_template(p, &p->copy[0], p->copy_cls, "kind", "HostToDevice",
                          err));
    PEN_TRY(make_template(p, &p->copy[1], p->copy_cls, "kind", "DeviceToHost",
                          err));
    PEN_TRY(make_template(p, &p->host_copy[0], p->host_copy_cls,
                          "outputMemType", "HOST_PINNED", err));
    return make_template(p, &p->host_copy[1], p->host_copy_cls, "outputMemType",
                         "DMA", err);
}

enum pen_status stk_template_converter(struct stk_planner *p, unsigned side,
                                       enum pen_format to,
                                       const struct stk_template **out,
                                       struct pen_error *err)
{
    *out = &p->convert[side][to];
    return make_template(p, &p->convert[side][to], p->convert_cls[side],
                         "imageType", pen_format_info(to)->name, err);
}

bool stk_template_converts(const struct stk_template *t, uint32_t from,
                           enum pen_format to)
{
    if (!t->usable || !(t->out->formats & PEN_FMT_BIT(to)))
        return false;
    from &= ~PEN_FMT_BIT(to);
    return from != 0 && (from & ~t->in->formats) == 0;
}
