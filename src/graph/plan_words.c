// The words of a plan, and lines whose columns stand below each other.

#include "plan_print.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

// --- caps -------------------------------------------------------------------

bool stk_caps_sized(const struct pen_caps *caps)
{
    return caps->kind == PEN_KIND_RAW_IMAGE ||
           caps->kind == PEN_KIND_ENCODED_IMAGE ||
           caps->kind == PEN_KIND_H264_DATA;
}

void stk_plan_format_text(const struct pen_caps *caps, char *text, size_t size)
{
    if (caps->kind == PEN_KIND_RAW_IMAGE)
        stk_mask_text(stk_caps_mask(caps), text, size);
    else if (caps->kind == PEN_KIND_ENCODED_IMAGE)
        snprintf(text, size, "%s", pen_codec_name(caps->codec));
    else
        snprintf(text, size, "%s", pen_kind_name(caps->kind));
}

void stk_plan_extent_text(const struct pen_caps *caps, char *text, size_t size)
{
    char width[16] = "?", height[16] = "?";
    if (caps->width > 0)
        snprintf(width, sizeof(width), "%d", caps->width);
    if (caps->height > 0)
        snprintf(height, sizeof(height), "%d", caps->height);
    if (stk_caps_sized(caps))
        snprintf(text, size, "%sx%s", width, height);
    else
        snprintf(text, size, "%s", "");
}

// A mosaic has neither matrix nor range.
static bool has_colour(const struct pen_caps *caps)
{
    return caps->kind == PEN_KIND_RAW_IMAGE &&
           (stk_caps_mask(caps) == 0 ||
            (stk_caps_mask(caps) & PEN_FMT_BITS_ALL11) != 0);
}

void stk_plan_colour_text(const struct pen_caps *caps, char *text, size_t size)
{
    if (has_colour(caps))
        snprintf(text, size, "%s %s", pen_matrix_name(caps->matrix),
                 pen_range_name(caps->range));
    else
        snprintf(text, size, "%s", "");
}

void stk_plan_rate_text(const struct pen_caps *caps, char *text, size_t size)
{
    if (caps->fps.num <= 0 || caps->fps.den <= 0)
        snprintf(text, size, "%s", "");
    else if (caps->fps.den == 1)
        snprintf(text, size, "%d fps", caps->fps.num);
    else
        snprintf(text, size, "%d/%d fps", caps->fps.num, caps->fps.den);
}

void stk_plan_caps_text(const struct pen_caps *caps, char *text, size_t size)
{
    char format[160], extent[40], colour[32];
    stk_plan_format_text(caps, format, sizeof(format));
    stk_plan_extent_text(caps, extent, sizeof(extent));
    stk_plan_colour_text(caps, colour, sizeof(colour));
    snprintf(text, size, "%s%s%s%s%s", format, *extent ? " " : "", extent,
             *colour ? " " : "", colour);
}

bool stk_plan_layout(const struct pen_caps *caps, struct pen_layout *out)
{
    struct pen_error ignored;
    return caps->kind == PEN_KIND_RAW_IMAGE && caps->format != PEN_FMT_NONE &&
           caps->width > 0 && caps->height > 0 &&
           pen_layout_compute(caps, PEN_PITCH_ALIGN, out, &ignored) == PEN_OK;
}

// --- sizes and times --------------------------------------------------------

void stk_plan_bytes_text(uint64_t bytes, char *text, size_t size)
{
    if (bytes == 0)
        snprintf(text, size, "?");
    else
        stk_format_size(bytes, text, size);
}

void stk_plan_cost_text(int64_t ns, char *text, size_t size)
{
    if (ns < 1000000)
        snprintf(text, size, "%" PRId64 ".%01" PRId64 " us", ns / 1000,
                 ns % 1000 / 100);
    else
        snprintf(text, size, "%" PRId64 ".%02" PRId64 " ms", ns / 1000000,
                 ns % 1000000 / 10000);
}

void stk_plan_sum_text(uint64_t bytes, bool known, char *text, size_t size)
{
    char sum[32];
    stk_format_size(bytes, sum, sizeof(sum));
    if (known)
        snprintf(text, size, "%s", sum);
    else
        snprintf(text, size, "%s%s?", bytes ? sum : "", bytes ? " + " : "");
}

void stk_plan_total_text(const struct pen_plan *plan, char *text, size_t size)
{
    char sum[32];
    const bool some = plan->unknown == 0 || plan->cost_ns > 0;
    stk_plan_cost_text(plan->cost_ns, sum, sizeof(sum));
    snprintf(text, size, "%s%s", some ? sum : "?",
             some && plan->unknown ? " + ?" : "");
}

void stk_plan_quality_text(const struct pen_plan *plan, char *text, size_t size)
{
    char gap[32], part[32] = "";
    if (plan->optimal || plan->gap_loss || plan->gap_ns <= 0) {
        snprintf(text, size, "%s%s",
                 plan->optimal ? "optimal" : "optimum not proven",
                 !plan->optimal && plan->gap_loss
                     ? ": another plan may lose less"
                     : "");
        return;
    }
    stk_plan_cost_text(plan->gap_ns, gap, sizeof(gap));
    // Tenths of a percent, rounded up, in whole numbers.
    if (plan->unknown == 0 && plan->cost_ns > 0) {
        const double ratio = (double)plan->gap_ns / (double)plan->cost_ns;
        const int tenths = (int)(ratio < 1 ? 1000 * ratio + 0.999 : 1000);
        snprintf(part, sizeof(part), " (%d.%d %%)", tenths / 10, tenths % 10);
    }
    snprintf(text, size, "within %s%s of the best possible", gap, part);
}

// --- modules ----------------------------------------------------------------

void stk_plan_type_text(const struct stk_plan_node *node, char *text,
                        size_t size)
{
    if (strcmp(node->type, node->cls->name) == 0)
        snprintf(text, size, "%s", node->type);
    else
        snprintf(text, size, "%s = %s", node->type, node->cls->name);
}

static bool is_default(const struct pen_prop *row, const void *params)
{
    const char *at = (const char *)params + row->offset;
    switch (row->kind) {
    case PEN_PROP_BOOL:
        return *(const bool *)at == row->def.b;
    case PEN_PROP_I32:
    case PEN_PROP_ENUM:
        return *(const int32_t *)at == row->def.i;
    case PEN_PROP_F64:
        return *(const double *)at == row->def.f;
    case PEN_PROP_STRING:
        return !strcmp(*(const char *const *)at, row->def.s ? row->def.s : "");
    case PEN_PROP_RATIONAL: {
        const struct pen_rational *r = (const void *)at;
        return r->num == row->def.r.num && r->den == row->def.r.den;
    }
    case PEN_PROP_END:
        break;
    }
    return true;
}

bool stk_plan_props_text(struct stk_text *t, const struct pen_plan *plan,
                         const struct stk_plan_node *node, size_t limit)
{
    const size_t start = t->length;
    for (const struct pen_prop *row = node->cls->props; row && row->kind;
         row++) {
        // What a bridge is set to is told, whatever the default is.
        const bool tell =
            (row->flags & PEN_PROP_REQUIRED) ||
            (node->inserted && !strcmp(row->key, "imageType")) ||
            (stk_node_transfer(plan, node) && !strcmp(row->key, "kind"));
        if (!tell && is_default(row, node->params))
            continue;
        json_t *value = stk_prop_get_json(row, node->params);
        char *dump = value ? stk_json_dump(value) : NULL;
        json_decref(value);
        if (!dump)
            return false;
        const size_t more = strlen(row->key) + strlen(dump) + 2;
        if (t->length - start + more > limit) {
            free(dump);
            stk_text_add(t, " ...");
            return true;
        }
        stk_text_addf(t, " %s=", row->key);
        stk_text_add_plain(t, dump);
        free(dump);
    }
    return true;
}

// --- columns ----------------------------------------------------------------

struct range {
    uint32_t first, last;
};

static bool within(uint32_t c, const struct range *ranges, size_t count)
{
    for (size_t i = 0; i < count; i++)
        if (c >= ranges[i].first && c <= ranges[i].last)
            return true;
    return false;
}

static size_t columns_of(uint32_t c)
{
    static const struct range none[] = {
        { 0x0300, 0x036f }, { 0x1ab0, 0x1aff }, { 0x1dc0, 0x1dff },
        { 0x200b, 0x200f }, { 0x20d0, 0x20ff }, { 0xfe00, 0xfe0f },
        { 0xfe20, 0xfe2f },
    };
    static const struct range two[] = {
        { 0x1100, 0x115f },   { 0x2e80, 0x303e },   { 0x3041, 0xa4cf },
        { 0xac00, 0xd7a3 },   { 0xf900, 0xfaff },   { 0xfe30, 0xfe6f },
        { 0xff00, 0xff60 },   { 0xffe0, 0xffe6 },   { 0x1f300, 0x1f64f },
        { 0x1f680, 0x1f6ff }, { 0x1f900, 0x1f9ff }, { 0x20000, 0x3fffd },
    };
    if (c < none[0].first)
        return 1;
    if (within(c, none, sizeof(none) / sizeof(*none)))
        return 0;
    return within(c, two, sizeof(two) / sizeof(*two)) ? 2 : 1;
}

size_t stk_text_columns(const char *s)
{
    const char *end = s + strlen(s);
    size_t columns = 0;
    while (s < end) {
        const size_t length = stk_utf8_length(s, end);
        uint32_t c = (unsigned char)*s;
        if (length > 1) {
            c &= 0x7fu >> length;
            for (size_t i = 1; i < length; i++)
                c = c << 6 | ((unsigned char)s[i] & 0x3f);
        }
        columns += columns_of(length > 1 ? c : '?');
        s += length ? length : 1;
    }
    return columns;
}

// --- aligned lines ----------------------------------------------------------

// Colours of a terminal's own palette, which its owner has made readable.
static const char *const paints[] = {
    [STK_PAINT_NONE] = "",        [PEN_MEM_HOST] = "94",
    [PEN_MEM_HOST_PINNED] = "33", [PEN_MEM_CUDA_DEVICE] = "32",
    [PEN_MEM_DMABUF] = "35",      [STK_PAINT_BRIDGE] = "1;36",
    [STK_PAINT_LOSS] = "31",      [STK_PAINT_QUIET] = "2",
    [STK_PAINT_TITLE] = "1",
};

void stk_cells_add(struct stk_cells *c, const char *text, enum stk_paint paint)
{
    const bool paints_it = c->colour && paint != STK_PAINT_NONE;
    if (!*text)
        return;
    stk_text_addf(c->t, "%*s", (int)c->blanks, "");
    c->blanks = 0;
    if (paints_it)
        stk_text_addf(c->t, "\033[%sm", paints[paint]);
    stk_text_add_plain(c->t, text);
    if (paints_it)
        stk_text_add(c->t, "\033[0m");
}

void stk_cells_left(struct stk_cells *c, const char *text, size_t width,
                    size_t gap, enum stk_paint paint)
{
    const size_t columns = stk_text_columns(text);
    stk_cells_add(c, text, paint);
    if (columns < width)
        c->blanks += width - columns;
    if (width || columns)
        c->blanks += gap;
}

void stk_cells_right(struct stk_cells *c, const char *text, size_t width,
                     size_t gap, enum stk_paint paint)
{
    const size_t columns = stk_text_columns(text);
    if (columns < width)
        c->blanks += width - columns;
    stk_cells_add(c, text, paint);
    if (width || columns)
        c->blanks += gap;
}

void stk_cells_end(struct stk_cells *c)
{
    stk_text_add(c->t, "\n");
    c->blanks = 0;
}
