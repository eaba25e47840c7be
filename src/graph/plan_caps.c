// Caps over modules: negotiate() for sets of formats, unions, frame sizes.

#include "planner.h"

#include <string.h>

// More combinations of formats at several inputs are not tried one by one;
// the outputs may then be all that their pins declare.
enum { MAX_COMBINATIONS = 256 };

uint32_t stk_caps_mask(const struct pen_caps *caps)
{
    if (caps->kind != PEN_KIND_RAW_IMAGE)
        return 0;
    if (caps->format != PEN_FMT_NONE)
        return PEN_FMT_BIT(caps->format);
    return caps->formats;
}

enum pen_status stk_caps_bytes(const struct pen_caps *caps, size_t *out,
                               struct pen_error *err)
{
    struct pen_layout layout;
    *out = 0;
    if (caps->kind != PEN_KIND_RAW_IMAGE) {
        if (caps->bytes == 0)
            return PEN_OK;
        PEN_TRY(pen_layout_compute(caps, PEN_PITCH_ALIGN, &layout, err));
        *out = layout.bytes;
        return PEN_OK;
    }
    const uint32_t mask = stk_caps_mask(caps);
    if (mask == 0 || caps->width <= 0 || caps->height <= 0)
        return PEN_OK;
    const uint64_t pixels = (uint64_t)caps->width * (uint64_t)caps->height;
    if (pixels > STK_MAX_PIXELS)
        return pen_error_set(err, PEN_E_LIMIT, 0, "",
                             "%dx%d are %llu million pixels; a picture may "
                             "have %d million",
                             caps->width, caps->height,
                             (unsigned long long)(pixels / 1000000),
                             STK_MAX_PIXELS / 1000000);
    for (unsigned f = 1; f < PEN_FMT_COUNT; f++) {
        if (!(mask & PEN_FMT_BIT(f)))
            continue;
        struct pen_caps one = *caps;
        one.format = (enum pen_format)f;
        PEN_TRY(pen_layout_compute(&one, PEN_PITCH_ALIGN, &layout, err));
        if (layout.bytes > *out)
            *out = layout.bytes;
    }
    return PEN_OK;
}

static enum pen_format only_format(uint32_t mask)
{
    if (mask == 0 || (mask & (mask - 1)) != 0)
        return PEN_FMT_NONE;
    return (enum pen_format)__builtin_ctz(mask);
}

static uint32_t format_set(const struct pen_caps *caps)
{
    return caps->format ? PEN_FMT_BIT(caps->format) : caps->formats;
}

bool stk_node_gathers(const struct pen_module_class *cls, uint32_t inputs)
{
    return (cls->flags & PEN_CLASS_FORWARDS) && inputs > 1;
}

bool stk_node_lets_through(const struct pen_module_class *cls, uint32_t inputs,
                           uint32_t outputs, const struct pen_caps *in,
                           const struct pen_caps *out)
{
    return (cls->flags & PEN_CLASS_BRIDGE) && inputs == 1 && outputs == 1 &&
           !stk_class_copies(cls) && in &&
           (stk_caps_mask(in) & stk_caps_mask(out));
}

void stk_caps_unite(struct pen_caps *into, const struct pen_caps *more,
                    bool strict)
{
    const bool known_size = into->width && more->width;
    if (into->kind != more->kind)
        into->kind = PEN_KIND_FRAME;
    if (into->codec != more->codec)
        into->codec = PEN_CODEC_UNKNOWN;
    into->formats = format_set(into) | format_set(more);
    into->format = only_format(into->formats);
    if (strict && !known_size) {
        into->width = into->height = 0;
    } else {
        if (more->width > into->width)
            into->width = more->width;
        if (more->height > into->height)
            into->height = more->height;
    }
    if (strict && (!into->bytes || !more->bytes))
        into->bytes = 0;
    else if (more->bytes > into->bytes)
        into->bytes = more->bytes;
    if (into->matrix != more->matrix)
        into->matrix = PEN_MATRIX_UNKNOWN;
    if (into->range != more->range)
        into->range = PEN_RANGE_UNKNOWN;
    if (into->fps.num != more->fps.num || into->fps.den != more->fps.den)
        into->fps = (struct pen_rational){ 0, 0 };
}

// What negotiate left open is filled in from the pin's declaration.
static enum pen_status complete(const struct stk_plan_node *node, uint32_t pin,
                                struct pen_caps *caps, struct pen_error *err)
{
    const struct pen_pin_set *set = &node->out[pin];
    const bool one_kind = set->kinds && (set->kinds & (set->kinds - 1)) == 0;
    if (one_kind && (caps->kind == PEN_KIND_NONE ||
                     (!(set->kinds & PEN_KIND_BIT(caps->kind)) &&
                      set->kinds != PEN_KIND_BIT(PEN_KIND_FRAME))))
        caps->kind = (enum pen_kind)__builtin_ctz(set->kinds);
    caps->formats = format_set(caps);
    if (caps->kind == PEN_KIND_RAW_IMAGE) {
        if (caps->formats == 0)
            caps->formats = set->formats;
        const uint32_t given = caps->formats;
        if (set->formats)
            caps->formats &= set->formats;
        if (caps->formats == 0 && given != 0) {
            char what[160], declared[160];
            stk_mask_text(given, what, sizeof(what));
            stk_mask_text(set->formats, declared, sizeof(declared));
            return pen_error_set(err, PEN_E_CONFIG, 0, node->id,
                                 "gives %s, but its pin `%s` declares %s", what,
                                 node->cls->outputs[pin].name, declared);
        }
    }
    caps->format = only_format(caps->formats);
    return PEN_OK;
}

// What is not known before the first frame may be told as the largest that can
// come.
static void limit_size(const struct stk_base_params *base,
                       struct pen_caps *caps)
{
    const bool picture = caps->kind == PEN_KIND_RAW_IMAGE ||
                         caps->kind == PEN_KIND_ENCODED_IMAGE;
    if (!picture || caps->width > 0 || caps->height > 0 || !base->max_width ||
        !base->max_height)
        return;
    caps->width = base->max_width;
    caps->height = base->max_height;
}

static enum pen_status negotiate_one(const struct stk_plan_node *node,
                                     const struct pen_caps *in,
                                     struct pen_caps *out,
                                     struct pen_error *err)
{
    for (uint32_t o = 0; o < node->outputs; o++) {
        out[o] = (struct pen_caps){ 0 };
        if (node->inputs)
            out[o] = in[0];
        // Unless the class says better, any input may leave by any output.
        if (node->cls->ops.negotiate ||
            !stk_node_gathers(node->cls, node->inputs))
            continue;
        for (uint32_t i = 1; i < node->inputs; i++) {
            if (out[o].kind == PEN_KIND_NONE)
                out[o] = in[i];
            else if (in[i].kind != PEN_KIND_NONE)
                stk_caps_unite(&out[o], &in[i], true);
        }
    }
    if (node->cls->ops.negotiate)
        PEN_TRY(node->cls->ops.negotiate(node->params, in, out, err));
    for (uint32_t o = 0; o < node->outputs; o++) {
        PEN_TRY(complete(node, o, &out[o], err));
        limit_size(&node->base, &out[o]);
    }
    return PEN_OK;
}

enum pen_status stk_plan_negotiate(const struct stk_plan_node *node,
                                   const struct pen_caps in[PEN_MAX_PINS],
                                   struct pen_caps out[PEN_MAX_PINS],
                                   uint32_t *refused, struct pen_error *err)
{
    struct pen_caps one[PEN_MAX_PINS], result[PEN_MAX_PINS];
    unsigned combinations = 1;
    bool open = false;
    *refused = 0;
    for (uint32_t i = 0; i < node->inputs; i++) {
        one[i] = in[i];
        const int count = __builtin_popcount(in[i].formats);
        if (in[i].format != PEN_FMT_NONE || count <= 1)
            continue;
        combinations *= (unsigned)count;
        if (combinations > MAX_COMBINATIONS) {
            combinations = 1;
            open = true;
            break;
        }
    }

    bool any = false;
    enum pen_status first = PEN_OK;
    struct pen_error first_error = { 0 };
    for (unsigned c = 0; c < combinations; c++) {
        unsigned rest = c;
        for (uint32_t i = 0; i < node->inputs; i++) {
            one[i] = in[i];
            uint32_t mask = in[i].formats;
            const unsigned count = (unsigned)__builtin_popcount(mask);
            if (in[i].format != PEN_FMT_NONE || count <= 1)
                continue;
            unsigned skip = open ? 0 : rest % count;
            rest /= count;
            while (skip-- > 0)
                mask &= mask - 1;
            one[i].format = (enum pen_format)__builtin_ctz(mask);
            one[i].formats = PEN_FMT_BIT(one[i].format);
        }
        struct pen_error error = { 0 };
        const enum pen_status st = negotiate_one(node, one, result, &error);
        if (st == PEN_E_NOMEM) {
            if (err)
                *err = error;
            return st;
        }
        if (st != PEN_OK) {
            if (first == PEN_OK) {
                first = st;
                first_error = error;
            }
            if (node->inputs)
                *refused |= one[0].formats;
            continue;
        }
        for (uint32_t o = 0; o < node->outputs; o++) {
            if (any)
                stk_caps_unite(&out[o], &result[o], true);
            else
                out[o] = result[o];
        }
        any = true;
    }
    if (!any) {
        *refused = 0;
        if (err)
            *err = first_error;
        return first;
    }
    if (!open)
        return PEN_OK;
    for (uint32_t o = 0; o < node->outputs; o++) {
        if (out[o].kind != PEN_KIND_RAW_IMAGE)
            continue;
        out[o].formats = node->out[o].formats;
        out[o].format = only_format(out[o].formats);
    }
    return PEN_OK;
}

static void join(char *text, size_t size, const char *word)
{
    const size_t length = strlen(text), more = strlen(word);
    if (length + more + 2 > size)
        return;
    if (length)
        strcpy(text + length, "|");
    strcat(text, word);
}

void stk_mask_text(uint32_t formats, char *text, size_t size)
{
    text[0] = '\0';
    for (unsigned f = 1; f < PEN_FMT_COUNT; f++) {
        const struct pen_format_info *info =
            pen_format_info((enum pen_format)f);
        if (info && (formats & PEN_FMT_BIT(f)))
            join(text, size, info->name);
    }
    if (!text[0])
        join(text, size, "?");
}

void stk_mems_text(uint32_t mems, char *text, size_t size)
{
    text[0] = '\0';
    for (unsigned m = 1; m < PEN_MEM_COUNT; m++)
        if (mems & PEN_MEM_BIT(m))
            join(text, size, pen_mem_name((enum pen_mem_type)m));
    if (!text[0])
        join(text, size, "?");
}
