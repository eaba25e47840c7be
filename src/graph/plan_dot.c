// A plan as a picture in the language of Graphviz.

#include <stdio.h>
#include <string.h>

#include "plan_draw.h"

// A label knows the entities of HTML, a name does not.
static void quote(struct stk_text *t, const char *s, bool label)
{
    stk_text_add(t, "\"");
    for (; *s; s++) {
        if (*s == '"' || *s == '\\')
            stk_text_add(t, "\\");
        if (*s == '\n')
            stk_text_add(t, "\\n");
        else if (*s == '&' && label)
            stk_text_add(t, "&amp;");
        else
            stk_text_add_n(t, s, 1);
    }
    stk_text_add(t, "\"");
}

static void node(struct stk_text *t, const struct pen_plan *plan, uint32_t n)
{
    enum { PROPS = 40 };
    const struct stk_plan_node *node = &plan->nodes[n];
    const struct stk_shade *shade = &stk_shades[stk_draw_home(plan, n)];
    struct stk_draw_node words;
    struct stk_text label = { 0 };
    if (!stk_draw_node(plan, n, &words))
        t->failed = true;
    stk_text_addf(&label, "%s\n%s", node->id, words.type);
    if (words.props.length && words.props.length <= PROPS)
        stk_text_addf(&label, "\n%s", words.props.data + 1);
    if (words.loss[0])
        stk_text_addf(&label, "\n%s", words.loss);
    t->failed = t->failed || label.failed;
    stk_text_add(t, "    ");
    quote(t, node->id, false);
    stk_text_add(t, " [label=");
    quote(t, label.data ? label.data : "", true);
    stk_text_addf(t, ", color=\"%s\", fillcolor=\"%s\", style=\"%s\"",
                  shade->line, shade->fill,
                  node->inserted ? "filled,rounded,dashed" : "filled");
    stk_text_add(t, ", tooltip=");
    quote(t,
          node->inserted       ? node->reason
          : node->choice[0]    ? node->choice
          : words.props.length ? words.props.data + 1
                               : node->id,
          true);
    stk_text_add(t, "];\n");
    stk_text_finish(&label);
    stk_text_finish(&words.props);
}

static void edge(struct stk_text *t, const struct pen_plan *plan,
                 const struct stk_plan_edge *e)
{
    struct stk_draw_edge words;
    struct stk_text label = { 0 };
    stk_draw_edge(plan, e, &words);
    for (unsigned i = 0; i < words.count; i++)
        // The blanks keep the words off the line.
        stk_text_addf(&label, "%s  %s  ", i ? "\n" : "", words.line[i]);
    t->failed = t->failed || label.failed;
    stk_text_add(t, "    ");
    quote(t, plan->nodes[e->from].id, false);
    stk_text_add(t, " -> ");
    quote(t, plan->nodes[e->to].id, false);
    stk_text_add(t, " [label=");
    quote(t, label.data ? label.data : "", true);
    stk_text_addf(t, ", color=\"%s\"];\n", stk_shades[e->mem].line);
    stk_text_finish(&label);
}

// Title and legend are the label of the graph, which is no node.
static void legend(struct stk_text *t, const struct pen_plan *plan)
{
    bool used[PEN_MEM_COUNT];
    char summary[192];
    const char *title = stk_draw_title(plan);
    stk_draw_summary(plan, summary, sizeof(summary));
    stk_draw_used(plan, used);
    stk_text_add(t, "    label=<<table border=\"0\" cellspacing=\"4\"><tr>"
                    "<td colspan=\"6\"><b>");
    stk_draw_escape(t, title, strlen(title));
    stk_text_add(t, "</b></td></tr><tr><td colspan=\"6\">");
    stk_draw_escape(t, summary, strlen(summary));
    stk_text_add(t, "</td></tr><tr>");
    for (unsigned m = PEN_MEM_HOST; m < PEN_MEM_COUNT; m++)
        if (used[m])
            stk_text_addf(t,
                          "<td border=\"1\" color=\"%s\" bgcolor=\"%s\">%s"
                          "</td>",
                          stk_shades[m].line, stk_shades[m].fill,
                          pen_mem_name((enum pen_mem_type)m));
    stk_text_add(t, "<td border=\"1\" style=\"rounded,dashed\">inserted by the "
                    "planner</td></tr></table>>;\n");
}

char *pen_plan_dot(const struct pen_plan *plan)
{
    struct stk_text t = { 0 };
    stk_text_add(&t, "digraph plan {\n"
                     "    labelloc=t; fontname=\"sans-serif\"; fontsize=12;\n"
                     "    node [shape=box, fontname=\"sans-serif\", "
                     "fontsize=11, margin=\"0.16,0.08\"];\n"
                     "    edge [fontname=\"sans-serif\", fontsize=9];\n");
    legend(&t, plan);
    for (uint32_t n = 0; n < plan->node_count; n++)
        node(&t, plan, n);
    for (uint32_t i = 0; i < plan->edge_count; i++)
        edge(&t, plan, &plan->edges[i]);
    stk_text_add(&t, "}\n");
    return stk_text_take(&t);
}
