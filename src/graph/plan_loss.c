// What a conversion from one pixel format to another loses, and which of two
// values is better.

#include "plan_place.h"

enum {
    LOSS_TRANSFER = 0,
    LOSS_MATRIX = 8,
    LOSS_RANGE = 16,
    LOSS_CHROMA = 24,
    LOSS_DEPTH = 32,
    LOSS_CHANNELS = 40,
};

int stk_value_compare(const struct stk_value *a, const struct stk_value *b)
{
    if (a->bad != b->bad)
        return a->bad < b->bad ? -1 : 1;
    if (a->loss != b->loss)
        return a->loss < b->loss ? -1 : 1;
    return (a->cost > b->cost) - (a->cost < b->cost);
}

void stk_value_add(struct stk_value *to, const struct stk_value *more)
{
    to->bad += more->bad;
    to->loss += more->loss;
    to->cost = stk_cost_sum(to->cost, more->cost);
}

void stk_value_take(struct stk_value *from, const struct stk_value *less)
{
    from->bad -= less->bad;
    from->loss -= less->loss;
    from->cost -= less->cost;
}

stk_loss stk_loss_of(uint64_t path, uint32_t weight)
{
    enum { FIELD = 25 };
    stk_loss sum = 0;
    for (int field = LOSS_CHANNELS; field > LOSS_TRANSFER; field -= 8)
        sum = (sum << FIELD) + (stk_loss)(path >> field & 0xff) * weight;
    return sum;
}

struct quality {
    int channels, depth, chroma_w, chroma_h;  // chroma: log2 of the step
    bool yuv, mono;
};

static struct quality quality_of(enum pen_format format)
{
    const struct pen_format_info *info = pen_format_info(format);
    struct quality q = {
        .channels = info->bayer ? 3 : info->channels,
        .depth = info->depth,
        .yuv = info->yuv,
        .mono = format == PEN_FMT_MONO,
    };
    if (info->yuv) {
        q.chroma_w = __builtin_ctz(info->chroma_w);
        q.chroma_h = __builtin_ctz(info->chroma_h);
    }
    return q;
}

static uint64_t more(int a, int b)
{
    return a > b ? (uint64_t)(a - b) : 0;
}

uint64_t stk_format_loss(enum pen_format from, enum pen_format to,
                         bool yuv_full)
{
    const struct quality a = quality_of(from), b = quality_of(to);
    const bool a_full = !a.yuv || yuv_full, b_full = !b.yuv || yuv_full;
    uint64_t loss = more(a.channels, b.channels) << LOSS_CHANNELS |
                    more(a.depth, b.depth) << LOSS_DEPTH;
    if (b.yuv && !a.mono)
        loss |= (more(b.chroma_w, a.chroma_w) + more(b.chroma_h, a.chroma_h))
                << LOSS_CHROMA;
    if (a_full && !b_full)
        loss |= 1ull << LOSS_RANGE;
    if (a.yuv != b.yuv && !a.mono && !b.mono)
        loss |= 1ull << LOSS_MATRIX;
    return loss;
}

uint32_t stk_format_richness(enum pen_format format)
{
    const struct quality q = quality_of(format);
    return (uint32_t)(q.channels << 16 | q.depth << 8 |
                      (16 - q.chroma_w - q.chroma_h));
}

void stk_loss_tell(struct stk_text *t, enum pen_format from, enum pen_format to,
                   uint64_t loss, bool several)
{
    static const char *const step[] = { "full", "half", "a quarter",
                                        "an eighth" };
    const struct quality a = quality_of(from), b = quality_of(to);
    const struct pen_format_info *info = pen_format_info(from);
    const char *gap = "";
    if (t->length)
        stk_text_add(t, "; ");
    if (several)
        stk_text_addf(t, "of %s: ", info->name);
    if (loss >> LOSS_CHANNELS & 0xff) {
        const bool alpha = info->alpha && !pen_format_info(to)->alpha;
        if (alpha)
            stk_text_add(t, "alpha");
        if (b.mono)
            stk_text_add(t, alpha ? " and colour" : "colour");
        gap = ", ";
    }
    if (loss >> LOSS_DEPTH & 0xff) {
        stk_text_addf(t, "%s%d bits to %d", gap, a.depth, b.depth);
        gap = ", ";
    }
    if (loss >> LOSS_CHROMA & 0xff) {
        const uint64_t w = more(b.chroma_w, a.chroma_w);
        const uint64_t h = more(b.chroma_h, a.chroma_h);
        stk_text_addf(t, "%schroma to ", gap);
        if (w)
            stk_text_addf(t, "%s width", step[w]);
        if (h)
            stk_text_addf(t, "%s%s height", w ? " and " : "", step[h]);
        gap = ", ";
    }
    if (loss >> LOSS_RANGE & 0xff) {
        stk_text_addf(t, "%sfull to limited range", gap);
        gap = ", ";
    }
    if (loss >> LOSS_MATRIX & 0xff)
        stk_text_addf(t, "%srounding (%s)", gap,
                      b.yuv ? "RGB to YUV" : "YUV to RGB");
}
