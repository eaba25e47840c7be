// Random graphs of every kind: a plan keeps all that it promises, a refusal
// leaves nothing, and completing a plan never breaks it.

#include "src/graph/planner.h"
#include "world_resize.h"

unsigned world_negotiated, world_probed;
struct pen_probe world_probe;
enum pen_status world_probe_status;

static const char *const mem_words[] = {
    "HOST",
    "HOST_PINNED",
    "CUDA_DEVICE",
    "HOST|CUDA_DEVICE",
    "HOST|HOST_PINNED",
    "DMABUF",
    "CUDA_DEVICE|DMABUF",
    "HOST|DMABUF",
};
static const char *const settings_words[16] = {
    "",
    ", 'budget': { 'cuda_device': '300KiB', 'd2h_per_frame': 1 }",
    ", 'budget': { 'host_pinned': '512KiB' }",
    ", 'budget': { 'host_pinned': '512KiB' }, 'pinned_limit': 'stage'",
    ", 'budget': { 'host_pinned': '1536KiB' }, 'pinned_limit': 'stage'",
    ", 'budget': { 'dmabuf': '1MiB', 'host': '3MiB' }",
    ", 'budget': { 'host_pinned': '128KiB' }, 'pinned_limit': 'stage'",
    ", 'budget': { 'host_pinned': '256KiB' }, 'pinned_limit': 'stage'",
    ", 'budget': { 'host_pinned': '1MiB' }, 'pinned_limit': 'stage'",
    "",
    "",
    "",
    "",
    "",
    "",
    "",
};
static const char *const format_words[] = {
    "RGB", "NV12", "MONO|RGB", "RGB|BGR|RGBA", "ALL", "YUV420|UYVY", "RGBA",
};

static const char *pick(const char *const *words, unsigned count,
                        uint64_t *seed)
{
    return words[pen_test_random(seed) % count];
}

// Modules in a row, each fed by random earlier ones; now and then a refusal,
// a limit, an unknown size, a queue, a budget, bridges forbidden.
static char *random_graph(uint64_t *seed)
{
    struct stk_text m = { 0 }, c = { 0 };
    const unsigned count = 2 + pen_test_random(seed) % 14;
    unsigned outputs[16] = { 0 };
    const char *gap = "";
    stk_text_addf(&m, "{ 'settings': { 'auto_bridge': %s%s }, 'modules': { ",
                  pen_test_random(seed) % 16 ? "true" : "false",
                  pick(settings_words, 16, seed));
    stk_text_add(&c, " }, 'connections': [");
    for (unsigned n = 0; n < count; n++) {
        static const char *const types[] = {
            "Work",     "CudaWork", "Pass", "Join",
            "PassJoin", "Split",    "Sink", "Resize",
        };
        const char *type = n == 0 || pen_test_random(seed) % 8 == 0
                               ? "Source"
                               : pick(types, 8, seed);
        const bool host_only = pen_test_random(seed) % 3 == 0;
        const unsigned words = pen_test_random(seed) % 6 ? 5 : 8;
        const bool source = !strcmp(type, "Source");
        const bool generic = !strcmp(type, "Resize");
        stk_text_addf(&m, "%s'n%u': { 'type': '%s', 'props': { 'formats': '%s'",
                      n ? ", " : "", n, type, pick(format_words, 7, seed));
        if (generic)
            stk_text_addf(&m, ", 'work': %u", pen_test_random(seed) % 300);
        else
            stk_text_addf(&m, ", 'mem': '%s'",
                          host_only ? "HOST" : pick(mem_words, words, seed));
        if (source && pen_test_random(seed) % 3 == 0)
            stk_text_add(&m, ", 'width': 0, 'height': 0");
        else if (source)
            stk_text_addf(&m, ", 'width': %u, 'height': %u",
                          1 + pen_test_random(seed) % 300,
                          1 + pen_test_random(seed) % 300);
        if (!generic && pen_test_random(seed) % 24 == 0)
            stk_text_add(&m, ", 'refuse': 'RGB'");
        if (!generic && pen_test_random(seed) % 24 == 0)
            stk_text_add(&m, ", 'limit': 200");
        stk_text_add(&m, " } }");
        outputs[n] = !strcmp(type, "Split") ? 2 : !strcmp(type, "Sink") ? 0 : 1;
        const unsigned inputs =
            source                                               ? 0
            : !strcmp(type, "Join") || !strcmp(type, "PassJoin") ? 2
                                                                 : 1;
        for (unsigned i = 0; i < inputs; i++) {
            unsigned from = pen_test_random(seed) % n;
            while (outputs[from] == 0)
                from = (from + n - 1) % n;
            stk_text_addf(&c, "%s{ 'from': 'n%u.output%s', 'to': 'n%u.input%s'",
                          gap, from,
                          outputs[from] == 1          ? ""
                          : pen_test_random(seed) % 2 ? "_1"
                                                      : "_2",
                          n,
                          inputs == 1 ? ""
                          : i         ? "_2"
                                      : "_1");
            if (pen_test_random(seed) % 4 == 0)
                stk_text_addf(&c, ", 'queue': { 'depth': %u }",
                              1 + pen_test_random(seed) % 9);
            stk_text_add(&c, " }");
            gap = ", ";
        }
    }
    stk_text_add(&c, "] }");
    stk_text_add(&m, c.data);
    stk_text_finish(&c);
    return stk_text_take(&m);
}

static void check_edge(const struct pen_plan *plan, uint32_t number)
{
    const struct stk_plan_edge *e = &plan->edges[number];
    const struct stk_plan_node *from = &plan->nodes[e->from];
    const struct stk_plan_node *to = &plan->nodes[e->to];
    const struct stk_plan_output *o = &from->output[e->from_pin];
    const struct pen_pin_set *in = &to->in[e->to_pin];
    // Producers stand before consumers, and both ends know the edge.
    assert_true(e->from < e->to);
    assert_int_equal(to->in_edge[e->to_pin], number);
    assert_true(number >= plan->first_out[e->from] &&
                number < plan->first_out[e->from + 1]);
    // The consumer takes what flows.
    uint32_t mems = in->mem;
    if (mems & PEN_MEM_BIT(PEN_MEM_HOST))
        mems |= PEN_MEM_BIT(PEN_MEM_HOST_PINNED);
    const enum pen_mem_type like =
        e->kind == STK_DMABUF_CUDA ? PEN_MEM_CUDA_DEVICE : PEN_MEM_HOST;
    if (e->kind == STK_DMABUF_HOST &&
        (plan->profile.dmabuf & PEN_DMABUF_IMPORT) &&
        (mems & PEN_MEM_BIT(PEN_MEM_CUDA_DEVICE)))
        mems |= PEN_MEM_BIT(PEN_MEM_DMABUF);
    assert_int_equal(e->mem == PEN_MEM_DMABUF, e->kind != STK_DMABUF_NONE);
    assert_true((mems & PEN_MEM_BIT(e->mem)) ||
                (e->mem == PEN_MEM_DMABUF && (mems & PEN_MEM_BIT(like))));
    if (in->formats)
        assert_int_equal(e->formats & ~in->formats, 0);
    // The edge carries what the producer gives.
    assert_int_equal(e->mem, o->mem);
    assert_int_equal(e->kind, o->kind);
    assert_int_equal(e->caps.width, o->caps.width);
    assert_int_equal(e->caps.format, o->caps.format);
    assert_true(e->depth >= 1);
}

static void check_node(const struct pen_plan *plan, uint32_t number)
{
    const struct stk_plan_node *node = &plan->nodes[number];
    for (uint32_t o = 0; o < node->outputs; o++) {
        const struct stk_plan_output *out = &node->output[o];
        const bool passes = node->cls->flags & PEN_CLASS_FORWARDS;
        assert_true(out->mem != PEN_MEM_NONE);
        assert_true(passes ? out->blocks == 0 : out->blocks >= 1);
        assert_true(!out->upgraded_from ||
                    (out->upgraded_from == PEN_MEM_HOST && !passes &&
                     (out->mem == PEN_MEM_HOST_PINNED ||
                      out->kind == STK_DMABUF_HOST)) ||
                    (out->upgraded_from == PEN_MEM_CUDA_DEVICE && !passes &&
                     out->kind == STK_DMABUF_CUDA));
        // A pool is of a type that the module can write to.
        uint32_t mems = node->out[o].mem;
        if (out->upgraded_from)
            mems |= PEN_MEM_BIT(out->mem);
        if (!passes)
            assert_true(mems & PEN_MEM_BIT(out->mem));
        // What is forwarded comes in a type that every input may have.
        for (uint32_t i = 0; i < node->inputs && passes; i++) {
            const struct stk_plan_edge *e = &plan->edges[node->in_edge[i]];
            if (out->mem == PEN_MEM_HOST_PINNED || out->mem == PEN_MEM_DMABUF)
                assert_int_equal(e->mem, out->mem);
        }
        size_t bytes;
        assert_int_equal(stk_caps_bytes(&out->caps, &bytes, NULL), PEN_OK);
        assert_int_equal(bytes, out->block_bytes);
    }
    if (!node->inserted)
        return;
    assert_true(node->reason[0] && node->serves[0]);
    assert_int_equal(plan->first_out[number + 1] > plan->first_out[number], 1);
    // What an upload reads is pinned, whatever lies before it.
    if (!strcmp(node->type, "CudaMemCopy") &&
        node->output[0].mem != PEN_MEM_HOST_PINNED)
        assert_int_equal(plan->edges[node->in_edge[0]].mem,
                         PEN_MEM_HOST_PINNED);
}

static void check_sums(const struct pen_plan *plan)
{
    uint64_t peak[PEN_MEM_COUNT] = { 0 };
    uint32_t unknown = 0, up = 0, down = 0, across = 0;
    int64_t cost = 0;
    for (uint32_t n = 0; n < plan->node_count; n++) {
        const struct stk_plan_node *node = &plan->nodes[n];
        for (uint32_t o = 0; o < node->outputs; o++) {
            const struct stk_plan_output *out = &node->output[o];
            uint64_t block = out->block_bytes;
            // Exported memory is the device's, in whole pages of 64 KiB, and
            // small blocks take another one.
            if (out->kind == STK_DMABUF_CUDA && block)
                block = (block + 65535) / 65536 * 65536;
            if (out->kind == STK_DMABUF_CUDA && block && block < 2 << 20)
                block += 65536;
            peak[out->kind == STK_DMABUF_CUDA ? PEN_MEM_CUDA_DEVICE
                                              : out->mem] +=
                out->blocks * block;
            unknown += out->blocks && !out->block_bytes;
        }
        cost += node->cost_ns;
        if (!strcmp(node->type, "CudaMemCopy")) {
            up += node->output[0].mem != PEN_MEM_HOST_PINNED;
            down += node->output[0].mem == PEN_MEM_HOST_PINNED;
        }
        across += !strcmp(node->type, "MemTypeConversion");
    }
    for (unsigned m = 0; m < PEN_MEM_COUNT; m++) {
        assert_int_equal(peak[m], plan->peak[m]);
        assert_true(plan->budget[m] == 0 || peak[m] <= plan->budget[m]);
    }
    assert_int_equal(unknown, plan->unknown);
    assert_int_equal(plan->provisional, unknown > 0);
    assert_int_equal(cost, plan->cost_ns);
    assert_int_equal(up, plan->h2d_per_frame);
    assert_int_equal(down, plan->d2h_per_frame);
    assert_int_equal(across, plan->h2h_per_frame);
}

static void check_plan(const struct pen_plan *plan)
{
    for (uint32_t e = 0; e < plan->edge_count; e++)
        check_edge(plan, e);
    for (uint32_t n = 0; n < plan->node_count; n++)
        check_node(plan, n);
    check_sums(plan);
}

// Give random outputs random sizes, as a runtime does.
static void settle_some(struct world *w, uint64_t *seed)
{
    for (unsigned i = 0; i < 6; i++) {
        const uint32_t n = pen_test_random(seed) % w->plan->node_count;
        const struct stk_plan_node *node = &w->plan->nodes[n];
        if (node->outputs == 0)
            continue;
        struct pen_caps caps = node->output[0].caps;
        caps.width = 1 + (int32_t)(pen_test_random(seed) % 400);
        caps.height = 1 + (int32_t)(pen_test_random(seed) % 400);
        if (caps.formats && !caps.format)
            caps.format = (enum pen_format)__builtin_ctz(caps.formats);
        char *before = pen_plan_text(w->plan);
        const enum pen_status st =
            stk_plan_settle(w->plan, n, 0, &caps, &w->err);
        char *after = pen_plan_text(w->plan);
        if (st != PEN_OK)
            assert_string_equal(after, before);
        else
            assert_true(node->output[0].caps.width >= caps.width);
        check_plan(w->plan);
        pen_free(before);
        pen_free(after);
    }
}

PEN_TEST(random_graphs_give_whole_plans_or_none)
{
    const unsigned count = pen_test_seeds(800, 40000);
    unsigned planned = 0, bridged = 0, refused = 0, dmabufs = 0, staged = 0;
    unsigned by_class[2] = { 0 };
    uint64_t seed = 4711;
    world_extra[0] = &resize_cpu;
    world_extra[1] = &resize_cuda;
    for (unsigned i = 0; i < count; i++) {
        struct world w;
        char *text = random_graph(&seed);
        assert_non_null(text);
        struct pen_profile profile = *pen_profile_builtin("generic-cuda");
        profile.dmabuf = pen_test_random(&seed) % 8;
        world_plan_with(&w, text,
                        &(struct pen_plan_params){
                            .profile = &profile,
                            .frames = pen_test_random(&seed) % 3 * 50,
                        },
                        NULL);
        if (w.status == PEN_OK) {
            planned++;
            bool dmabuf = false;
            for (uint32_t e = 0; e < w.plan->edge_count; e++)
                dmabuf = dmabuf || w.plan->edges[e].mem == PEN_MEM_DMABUF;
            dmabufs += dmabuf;
            staged += world_issue(&w, "W510") != NULL;
            bridged += world_inserted(&w, NULL) > 1;
            for (uint32_t n = 0; n < w.plan->node_count; n++) {
                by_class[0] += w.plan->nodes[n].cls == &resize_cpu;
                by_class[1] += w.plan->nodes[n].cls == &resize_cuda;
            }
            check_plan(w.plan);
            char *svg = pen_plan_svg(w.plan);
            char *json = pen_plan_json(w.plan, w.issues);
            assert_true(svg && json);
            pen_free(svg);
            pen_free(json);
            settle_some(&w, &seed);
        } else {
            refused++;
            assert_true(w.status == PEN_E_CONFIG || w.status == PEN_E_LIMIT);
            assert_true(pen_issues_count(w.issues, PEN_SEVERITY_ERROR) > 0);
            assert_true(w.err.text[0]);
        }
        world_finish(&w);
        free(text);
    }
    // Both happen often enough to mean something.
    assert_true(planned > count / 5);
    assert_true(bridged > count / 10);
    assert_true(refused > count / 10);
    assert_true(dmabufs > count / 20);
    assert_true(staged > count / 200);
    assert_true(by_class[0] > count / 20 && by_class[1] > count / 20);
}

PEN_TEST_MAIN(PEN_CASE(random_graphs_give_whole_plans_or_none))
