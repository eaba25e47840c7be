// A plan as text for people: the chain of modules, then memory, transfers,
// cost, what is not known, and what is touched.

#include "plan_print.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MAX_NAME_WIDTH = 48, LABEL = 11 };

// A line of the totals begins with a word, the lines below it with blanks.
static void begin(struct stk_cells *c, const char *label)
{
    stk_cells_left(c, label, LABEL, 0, STK_PAINT_TITLE);
}

// --- memory -----------------------------------------------------------------

struct table {
    const struct pen_plan *plan;
    struct stk_cells cells;
    const struct stk_holding *rows;
    uint32_t count;
    bool used[PEN_MEM_COUNT], workspace;
    size_t name, width[PEN_MEM_COUNT];
    bool measuring;
};

static void table_name(struct table *t, const char *name, enum stk_paint paint)
{
    const size_t columns = stk_text_columns(name);
    if (!t->measuring) {
        stk_cells_left(&t->cells, name, t->name, 2, paint);
        return;
    }
    if (columns > t->name && columns <= MAX_NAME_WIDTH)
        t->name = columns;
}

static void table_value(struct table *t, unsigned m, const char *value,
                        enum stk_paint paint)
{
    const size_t columns = stk_text_columns(value);
    if (!t->measuring)
        stk_cells_right(&t->cells, value, t->width[m], 2, paint);
    else if (columns > t->width[m])
        t->width[m] = columns;
}

static void table_end(struct table *t)
{
    if (!t->measuring)
        stk_cells_end(&t->cells);
}

static void table_begin(struct table *t, const char *label)
{
    if (!t->measuring)
        begin(&t->cells, label);
}

static void held_text(uint64_t bytes, bool unknown, char *text, size_t size)
{
    if (bytes || unknown)
        stk_plan_sum_text(bytes, !unknown, text, size);
    else
        snprintf(text, size, "-");
}

static void table_row(struct table *t, const struct stk_holding *h,
                      const char *name)
{
    uint64_t workspace = 0;
    char text[48];
    table_begin(t, "");
    table_name(t, name, STK_PAINT_NONE);
    for (unsigned m = PEN_MEM_HOST; m < PEN_MEM_COUNT; m++) {
        if (!t->used[m])
            continue;
        held_text(h->pools[m] + h->workspace[m], h->unknown & PEN_MEM_BIT(m),
                  text, sizeof(text));
        table_value(t, m, text, STK_PAINT_NONE);
        workspace += h->workspace[m];
    }
    if (workspace && !t->measuring) {
        char bytes[32];
        stk_format_size(workspace, bytes, sizeof(bytes));
        snprintf(text, sizeof(text), "(workspace %s)", bytes);
        stk_cells_add(&t->cells, text, STK_PAINT_QUIET);
    }
    table_end(t);
}

// One row for all modules of which no size is known; they are the last.
static void table_rows(struct table *t)
{
    struct stk_holding rest = { 0 };
    char name[48];
    uint32_t i = 0;
    for (; i < t->count && t->rows[i].sum > 0; i++)
        table_row(t, &t->rows[i], t->plan->nodes[t->rows[i].node].id);
    if (i == t->count)
        return;
    snprintf(name, sizeof(name), "%s%u module%s", i ? "and " : "", t->count - i,
             t->count - i == 1 ? "" : "s");
    for (; i < t->count; i++)
        rest.unknown |= t->rows[i].unknown;
    table_row(t, &rest, name);
}

static void table_sums(struct table *t)
{
    const struct pen_plan *plan = t->plan;
    char text[48];
    table_begin(t, "");
    table_name(t, "sum", STK_PAINT_TITLE);
    for (unsigned m = PEN_MEM_HOST; m < PEN_MEM_COUNT; m++) {
        if (!t->used[m])
            continue;
        held_text(plan->peak[m], stk_plan_unknown(plan, (enum pen_mem_type)m),
                  text, sizeof(text));
        table_value(t, m, text, STK_PAINT_TITLE);
    }
    table_end(t);
    table_begin(t, "");
    table_name(t, "budget", STK_PAINT_NONE);
    for (unsigned m = PEN_MEM_HOST; m < PEN_MEM_COUNT; m++) {
        if (!t->used[m])
            continue;
        stk_plan_bytes_text(plan->budget[m], text, sizeof(text));
        table_value(t, m, text, STK_PAINT_NONE);
    }
    table_end(t);
}

static void table_print(struct table *t)
{
    table_begin(t, "memory");
    table_name(t, "module", STK_PAINT_NONE);
    for (unsigned m = PEN_MEM_HOST; m < PEN_MEM_COUNT; m++)
        if (t->used[m])
            table_value(t, m, pen_mem_name((enum pen_mem_type)m),
                        (enum stk_paint)m);
    table_end(t);
    table_rows(t);
    table_sums(t);
}

// The budget that the types of the host share.
static void print_shared_budget(const struct table *t)
{
    char text[96], bytes[32];
    struct stk_cells cells = t->cells;
    unsigned shared = 0;
    for (unsigned m = PEN_MEM_HOST; m < PEN_MEM_COUNT; m++)
        shared += t->used[m] && m != PEN_MEM_CUDA_DEVICE;
    if (t->plan->host_budget == 0 || shared < 2)
        return;
    stk_format_size(t->plan->host_budget, bytes, sizeof(bytes));
    snprintf(text, sizeof(text), "the types of the host together: %s", bytes);
    begin(&cells, "");
    stk_cells_add(&cells, text, STK_PAINT_NONE);
    stk_cells_end(&cells);
}

static bool print_memory(const struct pen_plan *plan, struct stk_text *t,
                         bool colour)
{
    struct table table = { .plan = plan,
                           .cells = { .t = t, .colour = colour } };
    struct stk_holding *rows = stk_plan_holdings(plan, &table.count);
    if (!rows)
        return false;
    table.rows = rows;
    for (uint32_t i = 0; i < table.count; i++)
        for (unsigned m = PEN_MEM_HOST; m < PEN_MEM_COUNT; m++)
            if (rows[i].pools[m] || rows[i].workspace[m] ||
                (rows[i].unknown & PEN_MEM_BIT(m)))
                table.used[m] = true;
    if (table.count == 0) {
        begin(&table.cells, "memory");
        stk_cells_add(&table.cells, "none", STK_PAINT_NONE);
        stk_cells_end(&table.cells);
    } else {
        table.measuring = true;
        table_print(&table);
        table.measuring = false;
        table_print(&table);
        print_shared_budget(&table);
    }
    free(rows);
    return true;
}

// --- transfers and cost -----------------------------------------------------

struct moves {
    enum stk_transfer transfer;
    uint32_t count;
    uint64_t bytes;
    bool limited;
    uint32_t limit;
};

static void print_moves(const struct pen_plan *plan, struct stk_text *t,
                        const char *gap, const struct moves *m,
                        const char *where)
{
    char bytes[48];
    stk_text_addf(t, "%s%u %s", gap, m->count, where);
    stk_plan_sum_text(m->bytes, stk_plan_moves_known(plan, m->transfer), bytes,
                      sizeof(bytes));
    if (m->count)
        stk_text_addf(t, " (%s)", bytes);
    if (m->limited)
        stk_text_addf(t, " of at most %u", m->limit);
}

static void print_transfers(const struct pen_plan *plan, struct stk_cells *c)
{
    const struct pen_plan_params *params = &plan->params;
    const struct moves up = {
        STK_H2D,
        plan->h2d_per_frame,
        plan->h2d_bytes_per_frame,
        params->h2d_limited,
        params->h2d_per_frame,
    };
    const struct moves down = {
        STK_D2H,
        plan->d2h_per_frame,
        plan->d2h_bytes_per_frame,
        params->d2h_limited,
        params->d2h_per_frame,
    };
    const struct moves aside = {
        .transfer = STK_H2H,
        .count = plan->h2h_per_frame,
        .bytes = plan->h2h_bytes_per_frame,
    };
    struct stk_text *t = c->t;
    begin(c, "transfers");
    if (!up.count && !down.count && !aside.count) {
        stk_cells_add(c, "none", STK_PAINT_NONE);
        stk_cells_end(c);
        return;
    }
    stk_text_addf(t, "%*s", (int)c->blanks, "");
    print_moves(plan, t, "", &up, "to the device");
    print_moves(plan, t, ", ", &down, "to the host");
    if (aside.count)
        print_moves(plan, t, ", ", &aside, "on the host");
    stk_text_add(t, " per frame");
    stk_cells_end(c);
}

static void print_cost(const struct pen_plan *plan, struct stk_cells *c)
{
    const struct stk_plan_parts parts = stk_plan_parts(plan);
    const struct {
        const char *name;
        int64_t ns;
    } row[] = {
        { "CPU", parts.host },
        { "to the device", parts.h2d },
        { "on the device", parts.device },
        { "copies on the device", parts.d2d },
        { "to the host", parts.d2h },
    };
    char cost[48];
    const char *gap = ": ";
    stk_plan_total_text(plan, cost, sizeof(cost));
    begin(c, "cost");
    stk_cells_add(c, cost, STK_PAINT_NONE);
    stk_cells_add(c, " per frame", STK_PAINT_NONE);
    for (size_t i = 0; i < sizeof(row) / sizeof(*row); i++) {
        if (row[i].ns == 0)
            continue;
        stk_plan_cost_text(row[i].ns, cost, sizeof(cost));
        stk_text_addf(c->t, "%s%s %s", gap, row[i].name, cost);
        gap = ", ";
    }
    stk_cells_end(c);
}

// What is there before the first frame, and what of it each frame pays for.
static void print_once(const struct pen_plan *plan, struct stk_cells *c)
{
    char once[32], share[32], text[128];
    if (plan->once_ns == 0)
        return;
    stk_plan_cost_text(plan->once_ns, once, sizeof(once));
    begin(c, "once");
    snprintf(text, sizeof(text), "%s before the first frame", once);
    stk_cells_add(c, text, STK_PAINT_NONE);
    if (plan->frames > 0 && plan->frames <= INT64_MAX) {
        stk_plan_cost_text(plan->once_ns / (int64_t)plan->frames, share,
                           sizeof(share));
        snprintf(text, sizeof(text), ", %s for each of %" PRIu64, share,
                 plan->frames);
        stk_cells_add(c, text, STK_PAINT_NONE);
    }
    stk_cells_end(c);
}

static void print_frames(const struct pen_plan *plan, struct stk_cells *c)
{
    char text[48];
    if (plan->frames == 0)
        return;
    snprintf(text, sizeof(text), "%" PRIu64 " expected", plan->frames);
    begin(c, "frames");
    stk_cells_add(c, text, STK_PAINT_NONE);
    stk_cells_end(c);
}

// --- what is not known ------------------------------------------------------

static void gaps_text(const struct pen_plan *plan, const struct stk_unknown *u,
                      char *text, size_t size)
{
    const struct pen_caps *caps = &plan->nodes[u->node].output[u->pin].caps;
    int at = 0;
    *text = '\0';
    for (unsigned i = 0; i < STK_GAPS && (size_t)at < size; i++) {
        char formats[160] = "";
        if (!(u->own & 1u << i))
            continue;
        if (1u << i == STK_GAP_FORMAT && caps->formats) {
            formats[0] = ' ';
            stk_mask_text(caps->formats, formats + 1, sizeof(formats) - 1);
        }
        at += snprintf(text + at, size - (size_t)at, "%s%s%s", at ? ", " : "",
                       stk_gap_names[i], formats);
    }
}

// Where something begins to be unknown; what is behind it only has it from
// there.
static bool print_unknowns(const struct pen_plan *plan, struct stk_cells *c)
{
    enum { TOLD = 16 };
    uint32_t count, own = 0, told = 0;
    char text[256];
    struct stk_unknown *list = stk_plan_unknowns(plan, &count);
    if (!list)
        return false;
    for (uint32_t i = 0; i < count; i++)
        own += list[i].own != 0;
    for (uint32_t i = 0; i < count && told < TOLD; i++) {
        const struct stk_plan_node *node = &plan->nodes[list[i].node];
        if (!list[i].own)
            continue;
        begin(c, told++ ? "" : "unknown");
        stk_cells_add(c, node->id, STK_PAINT_NONE);
        stk_cells_add(c, ".", STK_PAINT_NONE);
        stk_cells_add(c, node->cls->outputs[list[i].pin].name, STK_PAINT_NONE);
        stk_cells_add(c, ": ", STK_PAINT_NONE);
        gaps_text(plan, &list[i], text, sizeof(text));
        stk_cells_add(c, text, STK_PAINT_NONE);
        stk_unknown_cure(plan, &list[i], text, sizeof(text));
        stk_cells_add(c, *text ? "; " : "", STK_PAINT_NONE);
        stk_cells_add(c, text, STK_PAINT_NONE);
        stk_cells_end(c);
    }
    const uint32_t more = own - told, behind = count - own;
    if (more || behind) {
        begin(c, "");
        snprintf(text, sizeof(text), "and at %u output%s behind %s",
                 more + behind, more + behind == 1 ? "" : "s",
                 told == 1 ? "it" : "them");
        stk_cells_add(c, text, STK_PAINT_NONE);
        stk_cells_end(c);
    }
    free(list);
    return true;
}

// --- what is touched --------------------------------------------------------

// Paths that are read, or written, after a word that says so.
static const char *print_paths(const struct pen_plan *plan, struct stk_text *t,
                               unsigned flag, const char *word, const char *gap)
{
    enum { TOLD = 16 };
    uint32_t count = 0;
    for (uint32_t i = 0; i < plan->path_count; i++) {
        if (!(plan->path_flags[i] & flag))
            continue;
        if (count == 0)
            stk_text_addf(t, "%s%s", gap, word);
        if (count < TOLD) {
            stk_text_add(t, count ? ", " : " ");
            stk_text_add_plain(t, plan->paths[i]);
        }
        count++;
    }
    if (count > TOLD)
        stk_text_addf(t, " and %u more", count - TOLD);
    return count ? "; " : gap;
}

static void print_touches(const struct pen_plan *plan, struct stk_cells *c)
{
    struct stk_text *t = c->t;
    const char *gap = "";
    begin(c, "touches");
    stk_text_addf(t, "%*s", (int)c->blanks, "");
    gap = print_paths(plan, t, PEN_PROP_PATH_READ, "reads", gap);
    gap = print_paths(plan, t, PEN_PROP_PATH_WRITE, "writes", gap);
    if (plan->needs_device) {
        stk_text_addf(t, "%sdevice ", gap);
        stk_text_add_plain(t, stk_plan_device(plan));
    }
    stk_text_add(t, *gap || plan->needs_device ? "" : "nothing");
    stk_cells_end(c);
}

const char *stk_plan_device(const struct pen_plan *plan)
{
    if (plan->device[0])
        return plan->device;
    return plan->desc && plan->desc->device ? plan->desc->device : "auto";
}

// --- the whole --------------------------------------------------------------

static void print_head(const struct pen_plan *plan, struct stk_cells *c)
{
    struct stk_text *t = c->t;
    uint32_t bridges = 0, lossy = 0;
    char quality[96];
    for (uint32_t n = 0; n < plan->node_count; n++) {
        bridges += plan->nodes[n].inserted;
        lossy += plan->nodes[n].loss[0] != '\0';
    }
    const uint32_t modules = plan->node_count - bridges;
    const char *name = plan->desc ? plan->desc->name : NULL;
    stk_cells_add(c, "plan", STK_PAINT_TITLE);
    if (name && *name) {
        stk_text_add(t, " \"");
        stk_cells_add(c, name, STK_PAINT_TITLE);
        stk_text_add(t, "\"");
    }
    stk_text_addf(t, ": %u module%s, %u bridge%s", modules,
                  modules == 1 ? "" : "s", bridges, bridges == 1 ? "" : "s");
    if (lossy)
        stk_text_addf(t, " (%u lossy)", lossy);
    stk_text_add(t, ", profile ");
    stk_text_add_plain(t, plan->profile.name);
    stk_plan_quality_text(plan, quality, sizeof(quality));
    stk_text_addf(t, ", %s", quality);
    if (plan->provisional)
        stk_text_add(t, ", provisional (? is known at the first frame)");
    stk_cells_end(c);
}

static void print_legend(const struct pen_plan *plan, struct stk_cells *c)
{
    bool used[PEN_MEM_COUNT] = { false };
    begin(c, "colours");
    for (uint32_t e = 0; e < plan->edge_count; e++)
        used[plan->edges[e].mem] = true;
    for (unsigned m = PEN_MEM_HOST; m < PEN_MEM_COUNT; m++)
        if (used[m])
            stk_cells_left(c, pen_mem_name((enum pen_mem_type)m), 0, 2,
                           (enum stk_paint)m);
    stk_cells_add(c, "+ inserted by the planner", STK_PAINT_BRIDGE);
    stk_cells_end(c);
}

static char *print(const struct pen_plan *plan, bool colour)
{
    struct stk_text t = { 0 };
    struct stk_cells c = { .t = &t, .colour = colour };
    print_head(plan, &c);
    if (colour)
        print_legend(plan, &c);
    bool ok = stk_plan_chain(plan, &t, colour);
    stk_cells_end(&c);
    ok = ok && print_memory(plan, &t, colour);
    print_transfers(plan, &c);
    print_cost(plan, &c);
    print_once(plan, &c);
    print_frames(plan, &c);
    print_touches(plan, &c);
    ok = ok && print_unknowns(plan, &c);
    char *text = stk_text_take(&t);
    if (ok)
        return text;
    free(text);
    return NULL;
}

char *pen_plan_text(const struct pen_plan *plan)
{
    return print(plan, false);
}

char *pen_plan_text_coloured(const struct pen_plan *plan)
{
    return print(plan, true);
}
