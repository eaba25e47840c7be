// Types that stand for all classes of one function, and what these classes
// take and give together.

#include <math.h>
#include <string.h>

#include "graph.h"

// clang-format off
static const struct pen_generic_type types[] = {
    {
        .name = "Blur",
        .summary = "Blurs pictures.",
        .tags = { "function:blur" },
    },
    {
        .name = "ColorConvert",
        .summary = "Converts between pixel formats.",
        .tags = { "function:color" },
    },
    {
        .name = "JpegDecode",
        .summary = "Decodes JPEG files.",
        .tags = { "function:decode", "format:jpeg" },
    },
    {
        .name = "JpegEncode",
        .summary = "Encodes pictures as JPEG files.",
        .tags = { "function:encode", "format:jpeg" },
        .preset = { "JpegEncode", "format", "jpeg" },
    },
    {
        .name = "PngDecode",
        .summary = "Decodes PNG files.",
        .tags = { "function:decode", "format:png" },
    },
    {
        .name = "PngEncode",
        .summary = "Encodes pictures as PNG files.",
        .tags = { "function:encode", "format:png" },
        .preset = { "PngEncode", "format", "png" },
    },
    {
        .name = "Resize",
        .summary = "Scales pictures.",
        .tags = { "function:resize" },
    },
    {
        .name = "Rotate",
        .summary = "Turns pictures.",
        .tags = { "function:rotate" },
    },
    { 0 },
};
// clang-format on
_Static_assert(sizeof(types) / sizeof(types[0]) <= 32, "bits of a registry");

const struct pen_generic_type *pen_generic_types(void)
{
    return types;
}

const struct pen_generic_type *pen_generic_type_find(const char *name)
{
    for (const struct pen_generic_type *t = types; t->name; t++) {
        if (strcmp(t->name, name) == 0)
            return t;
    }
    return NULL;
}

// --- backends ---------------------------------------------------------------

enum stk_backend stk_class_backend(const struct pen_module_class *cls)
{
    if (stk_class_has_tag(cls, "backend:cpu"))
        return STK_BACKEND_CPU;
    if (stk_class_has_tag(cls, "backend:cuda") || (cls->flags & PEN_CLASS_CUDA))
        return STK_BACKEND_CUDA;
    return STK_BACKEND_CPU;
}

const char *stk_backend_name(enum stk_backend backend)
{
    switch (backend) {
    case STK_BACKEND_AUTO:
        return "auto";
    case STK_BACKEND_CPU:
        return "cpu";
    case STK_BACKEND_CUDA:
        return "cuda";
    }
    return "?";
}

// --- all properties ---------------------------------------------------------

static size_t count_rows(const struct pen_prop *table)
{
    size_t n = 0;
    while (table && table[n].kind != PEN_PROP_END)
        n++;
    return n;
}

static size_t count_choices(const struct pen_choice *choices)
{
    size_t n = 0;
    while (choices && choices[n].name)
        n++;
    return n;
}

// Choices of both, those of `a` first; NULL: out of memory.
static const struct pen_choice *merge_choices(const struct pen_choice *a,
                                              const struct pen_choice *b,
                                              struct stk_arena *arena)
{
    size_t count = count_choices(a);
    struct pen_choice *all =
        stk_arena_alloc(arena, (count + count_choices(b) + 1) * sizeof(*all));
    if (!all)
        return NULL;
    if (count)
        memcpy(all, a, count * sizeof(*all));
    for (; b && b->name; b++) {
        size_t i = 0;
        while (i < count && strcmp(all[i].name, b->name) != 0)
            i++;
        if (i == count)
            all[count++] = *b;
    }
    return all;
}

static bool merge_row(struct pen_prop *into, const struct pen_prop *row,
                      struct stk_arena *arena)
{
    if (into->kind != row->kind)
        return true;
    if ((into->flags & PEN_PROP_REQUIRED) && !(row->flags & PEN_PROP_REQUIRED))
        into->def = row->def;
    into->flags &= row->flags | ~(unsigned)(PEN_PROP_REQUIRED | PEN_PROP_ODD |
                                            PEN_PROP_LIVE);
    if (into->min < into->max && row->min < row->max) {
        into->min = fmin(into->min, row->min);
        into->max = fmax(into->max, row->max);
    } else {
        into->min = into->max = 0;
    }
    if (row->kind == PEN_PROP_ENUM)
        into->choices = merge_choices(into->choices, row->choices, arena);
    return row->kind != PEN_PROP_ENUM || into->choices;
}

struct pen_prop *stk_generic_props(const struct pen_module_class *const *list,
                                   size_t count, uint32_t **known_by,
                                   struct stk_arena *arena)
{
    size_t most = 1, used = 0;
    for (size_t i = 0; i < count; i++)
        most += count_rows(list[i]->props);
    struct pen_prop *rows = stk_arena_alloc(arena, most * sizeof(*rows));
    uint32_t *known = stk_arena_alloc(arena, most * sizeof(*known));
    if (!rows || !known)
        return NULL;
    for (size_t i = 0; i < count; i++) {
        const size_t own = count_rows(list[i]->props);
        for (size_t k = 0; k < own; k++) {
            const struct pen_prop *row = &list[i]->props[k];
            size_t at = 0;
            while (at < used && strcmp(rows[at].key, row->key) != 0)
                at++;
            if (at == used)
                rows[used++] = *row;
            else if (!merge_row(&rows[at], row, arena))
                return NULL;
            known[at] |= 1u << i;
        }
    }
    // What a class lacks need not be given.
    for (size_t at = 0; at < used; at++) {
        for (size_t i = 0; i < count; i++) {
            if (!(known[at] & 1u << i))
                rows[at].flags &= ~(unsigned)PEN_PROP_REQUIRED;
        }
    }
    *known_by = known;
    return rows;
}

// --- all pins ---------------------------------------------------------------

struct pen_pin *stk_generic_pins(const struct pen_module_class *const *list,
                                 size_t count, bool inputs,
                                 struct stk_arena *arena)
{
    struct pen_pin *pins =
        stk_arena_alloc(arena, (PEN_MAX_PINS + 1) * sizeof(*pins));
    if (!pins)
        return NULL;
    for (size_t i = 0; i < count; i++) {
        const struct pen_pin *pin = inputs ? list[i]->inputs : list[i]->outputs;
        for (size_t at = 0; pin && pin[at].name; at++) {
            if (i == 0) {
                pins[at] = pin[at];
                continue;
            }
            pins[at].kinds |= pin[at].kinds;
            pins[at].mem |= pin[at].mem;
            pins[at].formats |= pin[at].formats;
        }
    }
    return pins;
}
