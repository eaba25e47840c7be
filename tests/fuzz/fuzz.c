#include "fuzz.h"

#include <stdio.h>

#include "src/graph/planner.h"
#include "tests/unit/graph/planner_world.h"

unsigned world_negotiated, world_probed;
struct pen_probe world_probe;
enum pen_status world_probe_status;

void fuzz_failed(const char *claim, const char *file, int line)
{
    fprintf(stderr, "%s:%d: does not hold: %s\n", file, line, claim);
    abort();
}

// --- issues -----------------------------------------------------------------

void fuzz_check_issues(const struct pen_issues *issues, enum pen_status status,
                       const struct pen_error *err)
{
    int line = 0, column = 0;
    const struct pen_issue *is;
    for (size_t i = 0; (is = pen_issues_get(issues, i)); i++) {
        FUZZ_CHECK(strlen(is->code) == 4);
        FUZZ_CHECK(is->message[0]);
        FUZZ_CHECK(stk_utf8_valid(is->message));
        FUZZ_CHECK(stk_utf8_valid(is->pointer));
        FUZZ_CHECK(stk_utf8_valid(is->suggestion));
        FUZZ_CHECK(is->line > line ||
                   (is->line == line && is->column >= column));
        line = is->line;
        column = is->column;
    }
    const size_t errors = pen_issues_count(issues, PEN_SEVERITY_ERROR);
    if (status == PEN_OK) {
        FUZZ_CHECK(errors == 0);
        return;
    }
    FUZZ_CHECK(status == PEN_E_CONFIG || status == PEN_E_LIMIT);
    FUZZ_CHECK(errors > 0);
    FUZZ_CHECK(err->status == status && err->text[0]);
}

// --- what a plan must be ----------------------------------------------------

// Whether each class tells what formats it gives. Where one does not, it is
// unknown until the first frame whether what lies behind can take it.
static bool formats_are_told(const struct pen_plan *plan)
{
    for (uint32_t n = 0; n < plan->node_count; n++)
        for (uint32_t o = 0; o < plan->nodes[n].outputs; o++) {
            const struct pen_caps *caps = &plan->nodes[n].output[o].caps;
            if (caps->kind == PEN_KIND_RAW_IMAGE && !stk_caps_mask(caps))
                return false;
        }
    return true;
}

static void check_edge(const struct pen_plan *plan, uint32_t number, bool told)
{
    const struct stk_plan_edge *e = &plan->edges[number];
    FUZZ_CHECK(e->from < e->to && e->to < plan->node_count);
    const struct stk_plan_node *from = &plan->nodes[e->from];
    const struct stk_plan_node *to = &plan->nodes[e->to];
    FUZZ_CHECK(e->from_pin < from->outputs && e->to_pin < to->inputs);
    FUZZ_CHECK(to->in_edge[e->to_pin] == (int32_t)number);
    FUZZ_CHECK(number >= plan->first_out[e->from] &&
               number < plan->first_out[e->from + 1]);
    FUZZ_CHECK(e->depth >= 1);
    // It carries what the producer gives, and the consumer takes that.
    const struct stk_plan_output *o = &from->output[e->from_pin];
    FUZZ_CHECK(e->mem == o->mem && e->kind == o->kind);
    FUZZ_CHECK(e->caps.width == o->caps.width &&
               e->caps.format == o->caps.format);
    const struct pen_pin_set *in = &to->in[e->to_pin];
    if (in->formats && told)
        FUZZ_CHECK((e->formats & ~in->formats) == 0);
    // A class whose properties leave a pin no memory type is its own fault.
    const uint32_t homes = stk_homes_taken(in->mem, plan->profile.dmabuf);
    FUZZ_CHECK(!in->mem || (homes & STK_HOME_BIT(stk_edge_home(e))));
}

static void check_node(const struct pen_plan *plan, uint32_t number)
{
    const struct stk_plan_node *node = &plan->nodes[number];
    FUZZ_CHECK(node->id[0] && node->cls);
    FUZZ_CHECK(node->cost_ns >= 0);
    for (uint32_t i = 0; i < node->inputs; i++)
        FUZZ_CHECK(node->in_edge[i] >= 0 ||
                   (node->cls->inputs[i].flags & PEN_PIN_OPTIONAL));
    for (uint32_t i = 0; i < node->outputs; i++) {
        size_t bytes;
        FUZZ_CHECK(stk_caps_bytes(&node->output[i].caps, &bytes, NULL) ==
                   PEN_OK);
        FUZZ_CHECK(bytes == node->output[i].block_bytes);
    }
    if (!node->inserted)
        return;
    FUZZ_CHECK(node->reason[0] && node->serves[0]);
    FUZZ_CHECK(plan->first_out[number + 1] > plan->first_out[number]);
}

static void check_plan(const struct pen_plan *plan)
{
    int64_t cost = 0;
    const bool told = formats_are_told(plan);
    for (uint32_t e = 0; e < plan->edge_count; e++)
        check_edge(plan, e, told);
    for (uint32_t n = 0; n < plan->node_count; n++) {
        check_node(plan, n);
        cost = stk_cost_sum(cost, plan->nodes[n].cost_ns);
    }
    FUZZ_CHECK(plan->cost_ns >= cost);
    FUZZ_CHECK(plan->provisional == (plan->unknown > 0));
    for (unsigned m = 0; m < PEN_MEM_COUNT; m++)
        FUZZ_CHECK(plan->budget[m] == 0 || plan->peak[m] <= plan->budget[m]);
}

static void check_prints(const struct pen_plan *plan,
                         const struct pen_issues *issues)
{
    char *text = pen_plan_text(plan), *dot = pen_plan_dot(plan);
    char *svg = pen_plan_svg(plan), *json = pen_plan_json(plan, issues);
    FUZZ_CHECK(text && dot && svg && json);
    FUZZ_CHECK(stk_utf8_valid(text) && stk_utf8_valid(dot));
    FUZZ_CHECK(stk_utf8_valid(svg));
    FUZZ_CHECK(strstr(svg, "</svg>"));
    json_t *root = json_loads(json, JSON_REJECT_DUPLICATES, NULL);
    FUZZ_CHECK(json_is_object(root));
    FUZZ_CHECK(json_array_size(json_object_get(root, "modules")) ==
               plan->node_count);
    json_decref(root);
    pen_free(text);
    pen_free(dot);
    pen_free(svg);
    pen_free(json);
}

// As a runtime does with the first frames, and with later ones.
static void settle(struct pen_plan *plan, uint64_t seed)
{
    for (unsigned i = 0; i < 6 && plan->node_count; i++) {
        const uint32_t n = pen_test_random(&seed) % plan->node_count;
        const struct stk_plan_node *node = &plan->nodes[n];
        if (node->outputs == 0)
            continue;
        const uint32_t pin = pen_test_random(&seed) % node->outputs;
        struct pen_caps caps = node->output[pin].caps;
        const unsigned shift = pen_test_random(&seed) % 20;
        caps.width = 1 + (int32_t)(pen_test_random(&seed) % (1u << shift));
        caps.height = 1 + (int32_t)(pen_test_random(&seed) % 400);
        if (caps.kind == PEN_KIND_ENCODED_IMAGE)
            caps.bytes = pen_test_random(&seed);
        // A format other than those planned is refused; what a class does not
        // tell at all nobody can check.
        if (stk_caps_mask(&caps) && pen_test_random(&seed) % 8 == 0)
            caps.format = pen_test_random(&seed) % PEN_FMT_COUNT;
        else if (caps.formats && !caps.format)
            caps.format = (enum pen_format)__builtin_ctz(caps.formats);
        struct pen_error err = { 0 };
        char *before = pen_plan_text(plan);
        const enum pen_status st = stk_plan_settle(plan, n, pin, &caps, &err);
        char *after = pen_plan_text(plan);
        FUZZ_CHECK(before && after);
        if (st != PEN_OK)
            FUZZ_CHECK(err.text[0] && strcmp(before, after) == 0);
        check_plan(plan);
        pen_free(before);
        pen_free(after);
    }
}

// --- from text to plan ------------------------------------------------------

struct made {
    struct pen_description *desc;
    struct pen_issues *issues;
    struct pen_plan *plan;
};

static void make(struct made *m, const char *text, size_t length,
                 const struct pen_registry *registry,
                 const struct pen_plan_params *params)
{
    struct pen_error err = { 0 };
    *m = (struct made){ .issues = pen_issues_create() };
    FUZZ_CHECK(m->issues);
    enum pen_status st = pen_description_parse(text, length, "fuzz.json",
                                               &m->desc, m->issues, &err);
    FUZZ_CHECK((st == PEN_OK) == (m->desc != NULL));
    if (st == PEN_OK)
        st = pen_plan_create(m->desc, registry, params, &m->plan, m->issues,
                             &err);
    FUZZ_CHECK((st == PEN_OK) == (m->plan != NULL));
    fuzz_check_issues(m->issues, st, &err);
}

static void unmake(struct made *m)
{
    pen_plan_destroy(&m->plan);
    pen_description_destroy(&m->desc);
    pen_issues_destroy(&m->issues);
}

char *fuzz_plan_text(const char *text, size_t length,
                     const struct pen_registry *registry,
                     const struct pen_plan_params *params)
{
    struct made m;
    make(&m, text, length, registry, params);
    char *printed = m.plan ? pen_plan_text(m.plan) : NULL;
    FUZZ_CHECK((printed != NULL) == (m.plan != NULL));
    unmake(&m);
    return printed;
}

char *fuzz_plan(const char *text, size_t length,
                const struct pen_registry *registry,
                const struct pen_plan_params *params, uint64_t seed)
{
    struct made m;
    char *first = NULL;
    make(&m, text, length, registry, params);
    if (m.plan) {
        check_plan(m.plan);
        check_prints(m.plan, m.issues);
        first = pen_plan_text(m.plan);
        char *again = fuzz_plan_text(text, length, registry, params);
        FUZZ_CHECK(first && again && strcmp(first, again) == 0);
        pen_free(again);
        settle(m.plan, seed);
    }
    unmake(&m);
    return first;
}

// --- registries, profiles, budgets ------------------------------------------

const struct pen_registry *fuzz_builtin(void)
{
    static struct pen_registry *registry;
    struct pen_error err = { 0 };
    if (!registry)
        FUZZ_CHECK(pen_registry_create(&registry, &err) == PEN_OK);
    return registry;
}

const struct pen_registry *fuzz_world(void)
{
    static struct pen_registry *registry;
    if (!registry)
        registry = world_registry(NULL);
    return registry;
}

const struct pen_registry *fuzz_both(void)
{
    static struct pen_registry *registry;
    struct pen_error err = { 0 };
    if (registry)
        return registry;
    FUZZ_CHECK(pen_registry_create(&registry, &err) == PEN_OK);
    for (unsigned i = 0; i < WORLD_COUNT; i++)
        if (!(world_classes[i].flags & PEN_CLASS_BRIDGE))
            FUZZ_CHECK(pen_registry_add(registry, &world_classes[i], &err) ==
                       PEN_OK);
    return registry;
}

struct pen_profile fuzz_profile(const char *builtin, unsigned dmabuf)
{
    struct pen_profile profile = *pen_profile_builtin(builtin);
    profile.host_memory = (uint64_t)16 << 30;
    profile.cuda_memory = (uint64_t)8 << 30;
    profile.dmabuf = dmabuf & 7;
    for (unsigned i = 0; i < 3; i++)
        snprintf(profile.why_dmabuf[i], sizeof(profile.why_dmabuf[i]), "%s",
                 dmabuf & (1u << i) ? "" : "it is not there");
    return profile;
}

void fuzz_budget(struct pen_plan_params *params, unsigned number)
{
    if (number & 1)
        for (unsigned m = PEN_MEM_HOST; m < PEN_MEM_COUNT; m++)
            params->budget[m] = (uint64_t)64 << 10 << m;
    if (number & 2) {
        params->h2d_limited = params->d2h_limited = true;
        params->h2d_per_frame = 1;
        params->d2h_per_frame = 0;
    }
}
