// The words and colours of a plan's pictures.

#include "plan_draw.h"

#include <stdio.h>
#include <string.h>

// clang-format off
const struct stk_shade stk_shades[PEN_MEM_COUNT] = {
    [PEN_MEM_NONE]        = { "#777777", "#f4f4f4" },
    [PEN_MEM_HOST]        = { "#1769b5", "#e3effa" },
    [PEN_MEM_HOST_PINNED] = { "#b86e00", "#fde3b0" },
    [PEN_MEM_CUDA_DEVICE] = { "#006b4a", "#b9e3cf" },
    [PEN_MEM_DMABUF]      = { "#8a2f6b", "#e3c1dc" },
};
// clang-format on

enum pen_mem_type stk_draw_home(const struct pen_plan *plan, uint32_t n)
{
    const struct stk_plan_node *node = &plan->nodes[n];
    for (uint32_t o = 0; o < node->outputs; o++)
        if (node->output[o].mem != PEN_MEM_NONE)
            return node->output[o].mem;
    for (uint32_t i = 0; i < node->inputs; i++)
        if (node->in_edge[i] >= 0)
            return plan->edges[node->in_edge[i]].mem;
    return PEN_MEM_NONE;
}

void stk_draw_used(const struct pen_plan *plan, bool used[PEN_MEM_COUNT])
{
    memset(used, 0, PEN_MEM_COUNT * sizeof(*used));
    for (uint32_t n = 0; n < plan->node_count; n++)
        used[stk_draw_home(plan, n)] = true;
    for (uint32_t e = 0; e < plan->edge_count; e++)
        used[plan->edges[e].mem] = true;
    used[PEN_MEM_NONE] = false;
}

void stk_draw_edge(const struct pen_plan *plan, const struct stk_plan_edge *e,
                   struct stk_draw_edge *out)
{
    const struct stk_plan_node *from = &plan->nodes[e->from];
    const struct stk_plan_node *to = &plan->nodes[e->to];
    const char *how = stk_edge_how(plan, e);
    char caps[192], rate[40], bytes[32];
    out->count = 0;
    if (from->outputs > 1 || to->inputs > 1)
        snprintf(out->line[out->count++], STK_DRAW_LINE, "%s%s%s",
                 from->outputs > 1 ? from->cls->outputs[e->from_pin].name : "",
                 from->outputs > 1 ? " to " : "to ",
                 to->cls->inputs[e->to_pin].name);
    stk_plan_caps_text(&e->caps, caps, sizeof(caps));
    stk_plan_rate_text(&e->caps, rate, sizeof(rate));
    snprintf(out->line[out->count++], STK_DRAW_LINE, "%s%s%s", caps,
             *rate ? " " : "", rate);
    stk_plan_bytes_text(from->output[e->from_pin].block_bytes, bytes,
                        sizeof(bytes));
    snprintf(out->line[out->count++], STK_DRAW_LINE, "%s%s%s, %s",
             stk_home_text(stk_edge_home(e)), *how ? " " : "", how, bytes);
}

// There is little room in a box, and a path tells by itself what it is.
static void drop_path_keys(const struct stk_plan_node *node,
                           struct stk_text *props)
{
    for (const struct pen_prop *row = node->cls->props; row && row->kind;
         row++) {
        char key[96];
        const int length = snprintf(key, sizeof(key), " %s=", row->key);
        if (!(row->flags & (PEN_PROP_PATH_READ | PEN_PROP_PATH_WRITE)) ||
            !props->data || (size_t)length >= sizeof(key))
            continue;
        char *at = strstr(props->data, key);
        if (!at)
            continue;
        memmove(at + 1, at + length, strlen(at + length) + 1);
        props->length -= (size_t)length - 1;
    }
}

bool stk_draw_node(const struct pen_plan *plan, uint32_t n,
                   struct stk_draw_node *out)
{
    enum { PROPS = 200 };
    const struct stk_plan_node *node = &plan->nodes[n];
    char type[160], cost[32] = "";
    *out = (struct stk_draw_node){ 0 };
    stk_plan_type_text(node, type, sizeof(type));
    if (node->cost_ns)
        stk_plan_cost_text(node->cost_ns, cost, sizeof(cost));
    snprintf(out->type, sizeof(out->type), "%s%s%s", type, *cost ? ", " : "",
             cost);
    if (node->loss[0])
        snprintf(out->loss, sizeof(out->loss), "loses: %s", node->loss);
    const bool ok = stk_plan_props_text(&out->props, plan, node, PROPS);
    drop_path_keys(node, &out->props);
    return ok && !out->props.failed;
}

void stk_draw_summary(const struct pen_plan *plan, char *text, size_t size)
{
    uint32_t bridges = 0;
    char cost[48], quality[96];
    for (uint32_t n = 0; n < plan->node_count; n++)
        bridges += plan->nodes[n].inserted;
    const uint32_t modules = plan->node_count - bridges;
    stk_plan_total_text(plan, cost, sizeof(cost));
    stk_plan_quality_text(plan, quality, sizeof(quality));
    snprintf(text, size, "%u module%s, %u bridge%s, %s, %s per frame", modules,
             modules == 1 ? "" : "s", bridges, bridges == 1 ? "" : "s", quality,
             cost);
}

void stk_draw_escape(struct stk_text *t, const char *s, size_t count)
{
    for (const char *end = s + count; s < end; s++) {
        const unsigned char c = (unsigned char)*s;
        if (c == '<')
            stk_text_add(t, "&lt;");
        else if (c == '>')
            stk_text_add(t, "&gt;");
        else if (c == '&')
            stk_text_add(t, "&amp;");
        else if (c == '"')
            stk_text_add(t, "&quot;");
        else if (end - s > 2 && !memcmp(s, "\xef\xbf", 2) &&
                 (unsigned char)s[2] >= 0xbe)
            s += 2;  // U+FFFE and U+FFFF are no characters
        else if (c >= 0x20)
            stk_text_add_n(t, s, 1);
    }
}

const char *stk_draw_title(const struct pen_plan *plan)
{
    return plan->desc && plan->desc->name && *plan->desc->name
               ? plan->desc->name
               : "plan";
}
