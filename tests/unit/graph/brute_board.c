// Frames, steps between states, and what they lose and cost.

#include "brute.h"

#include <stdio.h>
#include <string.h>

// --- frames -----------------------------------------------------------------

int64_t brute_frame_bytes(const struct brute_caps *caps)
{
    int64_t most = 0;
    for (unsigned f = 1; f < PEN_FMT_COUNT; f++) {
        if (!(caps->mask & PEN_FMT_BIT(f)))
            continue;
        const struct pen_caps one = {
            .kind = PEN_KIND_RAW_IMAGE,
            .format = (enum pen_format)f,
            .width = caps->width,
            .height = caps->height,
        };
        struct pen_layout layout;
        if (pen_layout_compute(&one, 64, &layout, NULL) == PEN_OK &&
            (int64_t)layout.bytes > most)
            most = (int64_t)layout.bytes;
    }
    return most;
}

// Nanoseconds at so many per microsecond, rounded up.
int64_t brute_move(int64_t amount, uint32_t rate)
{
    return (amount * 1000 + rate - 1) / rate;
}

// What is done once, spread over the frames.
int64_t brute_share(const struct brute_graph *g, uint32_t once_ns)
{
    if (g->frames == 0)
        return 0;
    return (int64_t)(once_ns / g->frames + (once_ns % g->frames != 0));
}

bool brute_passes(const struct brute_class *c)
{
    return c->role == BRUTE_PASSES || c->role == BRUTE_MOVES;
}

unsigned brute_taken(const struct brute_graph *g, const struct brute_class *c)
{
    const uint32_t mem = c->in_mem;
    unsigned homes = 0;
    // A copy reads pinned memory, whoever made it.
    if (c->role == BRUTE_UPLOADS)
        return 1u << AT_PINNED;
    if (mem & PEN_MEM_BIT(PEN_MEM_HOST))
        homes |= 1u << AT_HOST | 1u << AT_PINNED | 1u << AT_DMA_HOST;
    if (mem & PEN_MEM_BIT(PEN_MEM_HOST_PINNED))
        homes |= 1u << AT_PINNED;
    if (mem & PEN_MEM_BIT(PEN_MEM_CUDA_DEVICE)) {
        homes |= 1u << AT_CUDA | 1u << AT_DMA_CUDA;
        if (g->profile.dmabuf & PEN_DMABUF_IMPORT)
            homes |= 1u << AT_DMA_HOST;
    }
    if (mem & PEN_MEM_BIT(PEN_MEM_DMABUF))
        homes |= 1u << AT_DMA_HOST | 1u << AT_DMA_CUDA;
    return homes;
}

// Homes that a class declares, as far as there is such memory.
static unsigned declared(const struct brute_graph *g,
                         const struct brute_class *c)
{
    const bool make_host = g->profile.dmabuf & PEN_DMABUF_HOST;
    const bool make_cuda = g->profile.dmabuf & PEN_DMABUF_EXPORT;
    unsigned homes = 0;
    // What a device module gives on the host is pinned if it can be.
    if ((c->out_mem & PEN_MEM_BIT(PEN_MEM_HOST)) &&
        !(c->cuda && (c->out_mem & PEN_MEM_BIT(PEN_MEM_HOST_PINNED))))
        homes |= 1u << AT_HOST;
    if (c->out_mem & PEN_MEM_BIT(PEN_MEM_HOST_PINNED))
        homes |= 1u << AT_PINNED;
    if (c->out_mem & PEN_MEM_BIT(PEN_MEM_CUDA_DEVICE))
        homes |= 1u << AT_CUDA;
    if ((c->out_mem & PEN_MEM_BIT(PEN_MEM_DMABUF)) &&
        (c->cuda ? make_cuda : make_host))
        homes |= 1u << (c->cuda ? AT_DMA_CUDA : AT_DMA_HOST);
    return homes;
}

struct brute_birth brute_birth(const struct brute_graph *g,
                               const struct brute_class *c, uint32_t in_mask,
                               unsigned homes, bool dmabuf)
{
    struct brute_birth b = { 0, true };
    if (brute_passes(c)) {
        // On one side; where it may be any of several homes, the plain one.
        if ((homes & BRUTE_ON_DEVICE) && (homes & ~BRUTE_ON_DEVICE))
            return b;
        b.roots = homes;
        if (homes & (homes - 1))
            b.roots = homes & BRUTE_ON_DEVICE ? 1u << AT_CUDA : 1u << AT_HOST;
        b.pinnable = b.roots != 1u << AT_HOST;
        return b;
    }
    // A converter whose target may come in gives such frames as they are.
    const bool through =
        c->role == BRUTE_CONVERTS && (in_mask & PEN_FMT_BIT(c->makes));
    unsigned more = 0;
    b.roots = declared(g, c);
    b.pinnable =
        !through || homes == 1u << AT_PINNED || !(b.roots & 1u << AT_HOST);
    if (dmabuf && (b.roots & 1u << AT_HOST) &&
        (g->profile.dmabuf & PEN_DMABUF_HOST))
        more |= 1u << AT_DMA_HOST;
    if (dmabuf && (b.roots & 1u << AT_CUDA) &&
        (g->profile.dmabuf & PEN_DMABUF_EXPORT))
        more |= 1u << AT_DMA_CUDA;
    b.roots |= through ? more & homes : more;
    return b;
}

struct brute_caps brute_negotiate(const struct brute_class *c,
                                  const struct brute_module *m,
                                  const struct brute_caps in[BRUTE_PINS])
{
    if (m->inputs == 0)
        return (struct brute_caps){ c->out_formats, m->width, m->height,
                                    m->range };
    struct brute_caps out = in[0];
    out.mask &= ~c->refused;
    if (c->role == BRUTE_CONVERTS)
        out.mask = PEN_FMT_BIT(c->makes);
    for (unsigned i = 1; i < m->inputs && c->role == BRUTE_PASSES; i++) {
        out.mask |= in[i].mask;
        if (in[i].width > out.width)
            out.width = in[i].width;
        if (in[i].height > out.height)
            out.height = in[i].height;
        if (in[i].range != out.range)
            out.range = PEN_RANGE_UNKNOWN;
    }
    return out;
}

int64_t brute_module_cost(const struct brute_graph *g,
                          const struct brute_module *m,
                          const struct brute_class *c,
                          const struct brute_caps in[BRUTE_PINS],
                          const struct brute_caps *out)
{
    const struct pen_profile *f = &g->profile;
    int64_t bytes = 0;
    if (brute_passes(c))
        return 0;
    if (c->role == BRUTE_UPLOADS || c->role == BRUTE_DOWNLOADS)
        return brute_move(brute_frame_bytes(&in[0]), c->role == BRUTE_UPLOADS
                                                         ? f->h2d_rate
                                                         : f->d2h_rate) +
               f->copy_ns + brute_share(g, f->load_ns);
    // One of the host that takes frames of the device cannot read them.
    for (unsigned i = 0; i < m->inputs; i++)
        if (c->cuda || !(c->in_mem & PEN_MEM_BIT(PEN_MEM_CUDA_DEVICE)))
            bytes += brute_frame_bytes(&in[i]);
    bytes += m->outputs * brute_frame_bytes(out);
    const int64_t work = (int64_t)c->work *
                         (m->inputs ? (int64_t)in[0].width * in[0].height : 0);
    if (!c->cuda)
        return brute_move(bytes, f->host_rate) +
               brute_move(work, f->host_operations);
    return brute_move(bytes, f->device_rate) +
           brute_move(work, f->device_operations) + f->launch_ns +
           brute_share(g, f->load_ns);
}

// --- who is behind ----------------------------------------------------------

bool brute_wants_dmabuf(const struct brute_graph *g, unsigned module,
                        unsigned pin)
{
    for (unsigned e = 0; e < g->edges; e++) {
        if (g->edge[e].from != module || g->edge[e].from_pin != pin)
            continue;
        const struct brute_module *to = &g->module[g->edge[e].to];
        for (unsigned o = 0; o < to->options; o++) {
            const uint32_t mem = to->option[o].in_mem;
            if ((mem & PEN_MEM_BIT(PEN_MEM_DMABUF)) &&
                !(mem & PEN_MEM_BIT(PEN_MEM_HOST)))
                return true;
            for (unsigned p = 0;
                 to->option[o].role == BRUTE_PASSES && p < to->outputs; p++)
                if (brute_wants_dmabuf(g, g->edge[e].to, p))
                    return true;
        }
    }
    return false;
}

// A module's weight does not depend on the class that is chosen.
static bool hands_on(const struct brute_module *m)
{
    const struct brute_class *c = &m->option[0];
    return c->role == BRUTE_PASSES || (c->out_formats & (c->out_formats - 1));
}

unsigned brute_weight(const struct brute_graph *g, unsigned edge)
{
    unsigned weight = 1;
    if (g->edge[edge].to_pin == 0 && hands_on(&g->module[g->edge[edge].to]))
        for (unsigned e = 0; e < g->edges; e++)
            if (g->edge[e].from == g->edge[edge].to)
                weight += brute_weight(g, e);
    return weight;
}

// --- loss -------------------------------------------------------------------

enum { LOSS_CHANNELS, LOSS_BITS, LOSS_CHROMA, LOSS_RANGE, LOSS_MATRIX };

int brute_loss_compare(const struct brute_loss *a, const struct brute_loss *b)
{
    for (int i = 0; i < BRUTE_PARTS; i++)
        if (a->part[i] != b->part[i])
            return a->part[i] < b->part[i] ? -1 : 1;
    return (a->transfers > b->transfers) - (a->transfers < b->transfers);
}

static struct brute_loss loss_sum(struct brute_loss a,
                                  const struct brute_loss *b)
{
    for (int i = 0; i < BRUTE_PARTS; i++)
        a.part[i] += b->part[i];
    a.transfers += b->transfers;
    return a;
}

static int above(int a, int b)
{
    return a > b ? a - b : 0;
}

// How often chroma is halved across and down.
static int halved(const struct pen_format_info *f, bool across)
{
    const int step = across ? f->chroma_w : f->chroma_h;
    return !f->yuv || step <= 1 ? 0 : step == 2 ? 1 : 2;
}

static struct brute_loss loss_of(enum pen_format from, enum pen_format to,
                                 bool yuv_full)
{
    const struct pen_format_info *a = pen_format_info(from);
    const struct pen_format_info *b = pen_format_info(to);
    const bool grey = from == PEN_FMT_MONO || to == PEN_FMT_MONO;
    struct brute_loss l = { 0 };
    l.part[LOSS_CHANNELS] = above(a->channels, b->channels);
    l.part[LOSS_BITS] = above(a->depth, b->depth);
    if (b->yuv && from != PEN_FMT_MONO)
        l.part[LOSS_CHROMA] = above(halved(b, true), halved(a, true)) +
                              above(halved(b, false), halved(a, false));
    l.part[LOSS_RANGE] = !yuv_full && !a->yuv && b->yuv;
    l.part[LOSS_MATRIX] = !grey && a->yuv != b->yuv;
    return l;
}

// Channels, then bits, then chroma.
static bool poorer(enum pen_format a, enum pen_format b)
{
    const struct pen_format_info *x = pen_format_info(a);
    const struct pen_format_info *y = pen_format_info(b);
    if (x->channels != y->channels)
        return x->channels < y->channels;
    if (x->depth != y->depth)
        return x->depth < y->depth;
    return halved(x, true) + halved(x, false) >
           halved(y, true) + halved(y, false);
}

// --- steps ------------------------------------------------------------------

static uint32_t formats_of(const struct brute_board *b, unsigned format)
{
    return format ? PEN_FMT_BIT(b->format[format]) : b->caps.mask;
}

static unsigned home_of(const struct brute_board *b, unsigned state)
{
    return state / b->formats;
}

static unsigned format_of(const struct brute_board *b, unsigned state)
{
    return state % b->formats;
}

static bool pinnable(const struct brute_board *b, unsigned format)
{
    // Frames that have the format already come from the output's own pool.
    if (format == 0 || (b->caps.mask & PEN_FMT_BIT(b->format[format])))
        return b->own_pinnable;
    return true;
}

static void step_copy(const struct brute_graph *g, const struct brute_board *b,
                      unsigned format, unsigned from, unsigned to,
                      struct brute_step *s)
{
    const struct pen_profile *f = &g->profile;
    const int64_t bytes = b->bytes[format];
    const bool make_host = b->dmabuf && (f->dmabuf & PEN_DMABUF_HOST);
    const bool make_cuda = b->dmabuf && (f->dmabuf & PEN_DMABUF_EXPORT) &&
                           !(f->dmabuf & PEN_DMABUF_HOST);
    const bool host = from == AT_HOST || from == AT_PINNED;
    s->loss.transfers = 1;
    if (from == AT_HOST && to == AT_PINNED && pinnable(b, format)) {
        s->there = true;
        s->loss.transfers = 0;
    } else if (!g->auto_bridge || !((BRUTE_ON_DEVICE & (1u << from | 1u << to))
                                        ? g->has_copy
                                        : g->has_host_copy)) {
        return;
    } else if (from == AT_PINNED &&
               (to == AT_CUDA || (to == AT_DMA_CUDA && make_cuda))) {
        s->there = s->device = true;
        s->cost = brute_move(bytes, f->h2d_rate) + f->copy_ns;
    } else if ((BRUTE_ON_DEVICE & 1u << from) && to == AT_PINNED) {
        s->there = s->device = true;
        s->cost = brute_move(bytes, f->d2h_rate) + f->copy_ns;
    } else if (((from == AT_HOST || from == AT_DMA_HOST) && to == AT_PINNED) ||
               (host && to == AT_DMA_HOST && make_host)) {
        s->there = true;
        s->loss.transfers = 0;  // it stays on the host
        s->cost = brute_move(2 * bytes, f->host_rate);
    }
}

// Whether a converter reads from one home and writes to another. `through`: it
// lets frames of its target go on as they are.
static bool converts(const struct brute_graph *g, const struct brute_board *b,
                     unsigned from, unsigned to, bool through)
{
    const unsigned can = g->profile.dmabuf;
    const bool make_host = b->dmabuf && (can & PEN_DMABUF_HOST);
    const bool make_cuda = b->dmabuf && (can & PEN_DMABUF_EXPORT);
    switch (from) {
    case AT_HOST:
    case AT_PINNED:
        return to == AT_HOST || (to == AT_DMA_HOST && make_host && !through);
    case AT_CUDA:
        return to == AT_CUDA || (to == AT_DMA_CUDA && make_cuda && !through);
    case AT_DMA_CUDA:
        return to == AT_CUDA || (to == AT_DMA_CUDA && make_cuda);
    default:
        break;
    }
    if (to == AT_HOST)
        return !through;
    if (to == AT_DMA_HOST)
        return through || make_host;
    return (can & PEN_DMABUF_IMPORT) && !through &&
           (to == AT_CUDA || (to == AT_DMA_CUDA && make_cuda));
}

// A path may not go down to a format poorer than all that the output gives and
// up again.
static bool climbs(const struct brute_board *b, unsigned from, unsigned to)
{
    if (from == 0 || !poorer(b->format[from], b->format[to]))
        return false;
    for (unsigned f = 1; f < PEN_FMT_COUNT; f++)
        if ((b->caps.mask & PEN_FMT_BIT(f)) &&
            !poorer(b->format[from], (enum pen_format)f))
            return false;
    return true;
}

static void step_convert(const struct brute_graph *g,
                         const struct brute_board *b, unsigned from,
                         unsigned to, struct brute_step *s)
{
    const struct pen_profile *f = &g->profile;
    const unsigned i = format_of(b, from), t = format_of(b, to);
    const unsigned at = home_of(b, from), end = home_of(b, to);
    const uint32_t mask = formats_of(b, i);
    const bool full =
        b->caps.range == PEN_RANGE_FULL && !(b->caps.mask & ~PEN_FMT_BITS_YUV);
    if (t == 0 || climbs(b, i, t) || !g->auto_bridge ||
        !g->has_converter[(BRUTE_ON_DEVICE & 1u << end) != 0] ||
        !converts(g, b, at, end, mask & PEN_FMT_BIT(b->format[t])))
        return;
    s->there = true;
    s->device = BRUTE_ON_DEVICE & 1u << end;
    for (unsigned k = 1; k < PEN_FMT_COUNT; k++) {
        if (!(mask & PEN_FMT_BIT(k)))
            continue;
        const struct brute_loss l =
            loss_of((enum pen_format)k, b->format[t], full);
        if (brute_loss_compare(&l, &s->loss) > 0)
            s->loss = l;
    }
    // The device reads it over the bus.
    s->loss.transfers = s->device && at == AT_DMA_HOST;
    const int64_t bytes = b->bytes[i] + b->bytes[t];
    s->cost = s->device ? brute_move(bytes, f->device_rate) + f->launch_ns
                        : brute_move(bytes, f->host_rate);
}

void brute_board_make(const struct brute_graph *g,
                      const struct brute_caps *caps, bool own_pinnable,
                      bool dmabuf, struct brute_board *b)
{
    memset(b, 0, sizeof(*b));
    b->caps = *caps;
    b->own_pinnable = own_pinnable;
    b->dmabuf = dmabuf;
    b->formats = 1;
    const bool any = g->has_converter[0] || g->has_converter[1];
    for (unsigned t = 0; t < g->targets && any; t++)
        if (caps->mask != PEN_FMT_BIT(g->target[t]))
            b->format[b->formats++] = g->target[t];
    for (unsigned i = 0; i < b->formats; i++) {
        struct brute_caps one = *caps;
        one.mask = formats_of(b, i);
        b->bytes[i] = brute_frame_bytes(&one);
    }
    b->states = BRUTE_HOMES * b->formats;
    for (unsigned from = 0; from < b->states; from++)
        for (unsigned to = 0; to < b->states; to++) {
            struct brute_step *s = &b->step[from][to];
            if (format_of(b, from) == format_of(b, to))
                step_copy(g, b, format_of(b, from), home_of(b, from),
                          home_of(b, to), s);
            else
                step_convert(g, b, from, to, s);
            if (s->there && s->device)
                s->cost += brute_share(g, g->profile.load_ns);
        }
}

void brute_board_reach(const struct brute_board *b, unsigned root,
                       bool known[BRUTE_STATES],
                       struct brute_loss least[BRUTE_STATES])
{
    memset(known, 0, BRUTE_STATES * sizeof(*known));
    memset(least, 0, BRUTE_STATES * sizeof(*least));
    known[root] = true;
    for (bool again = true; again;) {
        again = false;
        for (unsigned a = 0; a < b->states; a++)
            for (unsigned c = 0; c < b->states && known[a]; c++) {
                if (!b->step[a][c].there)
                    continue;
                const struct brute_loss l =
                    loss_sum(least[a], &b->step[a][c].loss);
                if (known[c] && brute_loss_compare(&l, &least[c]) >= 0)
                    continue;
                known[c] = again = true;
                least[c] = l;
            }
    }
}

bool brute_takes(const struct brute_graph *g, const struct brute_board *b,
                 const struct brute_class *c, unsigned state)
{
    const unsigned format = format_of(b, state);
    if (!(brute_taken(g, c) & 1u << home_of(b, state)))
        return false;
    // What is taken as it is comes as it is.
    if (!(b->caps.mask & ~c->in_formats))
        return format == 0;
    return format && (c->in_formats & PEN_FMT_BIT(b->format[format]));
}

struct brute_caps brute_state_caps(const struct brute_board *b, unsigned state)
{
    struct brute_caps caps = b->caps;
    caps.mask = formats_of(b, format_of(b, state));
    return caps;
}

// --- values -----------------------------------------------------------------

int brute_value_compare(const struct brute_value *a,
                        const struct brute_value *b)
{
    for (int i = 0; i < BRUTE_PARTS; i++)
        if (a->loss[i] != b->loss[i])
            return a->loss[i] < b->loss[i] ? -1 : 1;
    return (a->cost > b->cost) - (a->cost < b->cost);
}

void brute_value_add(struct brute_value *to, const struct brute_value *more)
{
    for (int i = 0; i < BRUTE_PARTS; i++)
        to->loss[i] += more->loss[i];
    to->cost += more->cost;
}

void brute_value_text(const struct brute_value *v, char *text, size_t size)
{
    snprintf(text, size, "loses %lld/%lld/%lld/%lld/%lld, costs %lld ns",
             (long long)v->loss[0], (long long)v->loss[1],
             (long long)v->loss[2], (long long)v->loss[3],
             (long long)v->loss[4], (long long)v->cost);
}
