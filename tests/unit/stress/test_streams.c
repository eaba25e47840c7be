// Random graphs of producers and consumers on several streams and the host,
// run by several threads: nothing is read early, nothing reused early.
//
// Every block carries a stamp (stamp.kern.h). Each consumer checks the stamp of
// what it gets, and each producer, before it overwrites the block that it was
// given, checks that it still holds what its last owner left there. References
// are dropped in random order, streams are held now and then, and some graphs
// end in the middle.
//
//     PENSTOCK_TEST_GRAPHS=n   so many graphs
//     PENSTOCK_TEST_SEED=n     only the graph of this seed

#include <errno.h>
#include <stdio.h>
#include <time.h>

#include "src/base/str.h"
#include "src/mem/dmabuf.h"
#include "src/mem/frame.h"
#include "src/mem/pool.h"

#include "stamp.h"

enum {
    MOST_NODES = 12,
    MOST_STREAMS = 4,
    MOST_THREADS = 4,
    MOST_OUTS = 3,
    MOST_HELD = 2,     // references that a node keeps for a while
    MOST_BLOCKS = 24,  // of a pool
    HOST = -1,         // instead of a stream
};

// --- what a graph is made of ------------------------------------------------

static const struct memory {
    const char *name;
    enum pen_mem_type mem;
    enum stk_dmabuf_kind kind;
    bool host;    // may be touched by the host
    bool stream;  // by copies
    bool kernel;  // by kernels
} memories[] = {
    { "host", PEN_MEM_HOST, STK_DMABUF_NONE, true, false, false },
    { "pinned", PEN_MEM_HOST_PINNED, STK_DMABUF_NONE, true, true, false },
    { "device", PEN_MEM_CUDA_DEVICE, STK_DMABUF_NONE, false, true, true },
    // These only where the machine has them.
    { "exported", PEN_MEM_DMABUF, STK_DMABUF_CUDA, false, true, true },
    { "descriptor", PEN_MEM_DMABUF, STK_DMABUF_HOST, true, false, false },
};
enum { MEMORIES = sizeof(memories) / sizeof(memories[0]) };

enum kind {
    SOURCE,    // stamps a block of its pool
    STAGE,     // checks its inputs, then the same
    COPY,      // moves the input's bytes into a block of its pool
    IN_PLACE,  // stamps its input anew
    CHECK,     // checks its inputs
};
static const char *const kind_names[] = { "source", "stage", "copy", "in place",
                                          "check" };

struct item {
    struct pen_frame *frame;
    uint64_t tag;
};

struct queue {
    struct item item[MOST_BLOCKS];
    unsigned first, count;
};

struct graph;

struct node {
    struct graph *graph;
    unsigned number;
    enum kind kind;
    int on;  // a stream, or HOST
    const struct memory *memory;
    bool foreign;  // its blocks are not a pool's, but wrapped
    bool reserve;  // its blocks may grow where they lie
    uint32_t blocks;
    uint32_t grows_at;  // the frame before which its pool is asked for more
    struct node *parent[2];
    unsigned ins, outs;
    struct {
        struct node *node;
        unsigned in;
    } out[MOST_OUTS];
    unsigned holds;

    struct stk_pool *pool;
    uint64_t scratch;  // device memory on the way to and from pinned blocks
    struct foreign {
        struct node *node;
        struct stk_block block;
        bool used;
    } mine[MOST_BLOCKS];

    // Under the graph's lock.
    struct queue in[2];
    uint32_t done;  // frames
    bool busy, blocked, woken;
    // Of the thread that made it busy.
    struct item now[2];
    struct held {
        struct pen_frame *frame;
        struct stk_buffer *buffer;  // or only its buffer
    } held[MOST_HELD];
    unsigned held_count;
};

// What a block was left with.
struct history {
    const struct stk_buffer *buffer;
    uint64_t address;
    size_t bytes;
    uint64_t tag;
};

struct graph {
    uint64_t seed, random;
    enum penemu_mode mode;
    struct node node[MOST_NODES];
    unsigned nodes, streams, threads;
    uint32_t frames, words;
    uint32_t ends_at;  // firings
    bool buffers_first;

    struct fixture f;
    struct stk_stream *stream[MOST_STREAMS];
    struct stamper stamper[MOST_STREAMS];
    struct stk_frame_pool *frame_pool;

    pthread_mutex_t lock;
    pthread_cond_t changed;
    uint32_t fired, total;
    unsigned working;  // threads
    bool held[MOST_STREAMS];
    char problem[1024];  // the first; ends the graph
    struct stamp_result seen;
    uint64_t checks;  // that were queued or done
    struct history history[2 * MOST_NODES * MOST_BLOCKS];
    unsigned histories;
};

static struct graph graph;

static uint32_t pick(uint64_t *random, uint32_t n)
{
    return pen_test_random(random) % n;
}

// --- making one -------------------------------------------------------------

static bool may_touch(int on, const struct memory *memory)
{
    return on == HOST ? memory->host : memory->stream;
}

// What kinds of DMABUF there are: found out once, before the first graph.
static struct stk_dmabuf_caps dmabuf;

static bool is_there(const struct memory *memory)
{
    return memory->kind == STK_DMABUF_NONE ||
           (memory->kind == STK_DMABUF_HOST ? dmabuf.host : dmabuf.export);
}

static const struct memory *pick_memory(struct graph *g, int on)
{
    const struct memory *memory;
    do {
        memory = &memories[pick(&g->random, MEMORIES)];
    } while (!may_touch(on, memory) || !is_there(memory));
    return memory;
}

// A parent that has room for one more consumer, or NULL.
static struct node *pick_parent(struct graph *g, unsigned below)
{
    for (unsigned try = 0; try < 8; try++) {
        struct node *p = &g->node[pick(&g->random, below)];
        const bool taken = p->outs == MOST_OUTS ||
                           (p->outs && p->out[0].node->kind == IN_PLACE);
        if (p->kind != CHECK && !taken)
            return p;
    }
    return NULL;
}

// A place from which all inputs can be reached, or -2.
static int pick_place(struct graph *g, const struct node *n)
{
    for (unsigned try = 0; try < 16; try++) {
        const int on =
            pick(&g->random, 3) ? (int)pick(&g->random, g->streams) : HOST;
        bool good = true;
        for (unsigned i = 0; i < n->ins; i++)
            good = good && may_touch(on, n->parent[i]->memory);
        if (good)
            return on;
    }
    return -2;
}

static void decide_kind(struct graph *g, struct node *n)
{
    const struct memory *from = n->ins ? n->parent[0]->memory : NULL;
    n->memory = pick_memory(g, n->on);
    n->kind = n->ins ? STAGE : SOURCE;
    switch (n->ins ? pick(&g->random, 5) : 0) {
    case 1:
        n->kind = CHECK;
        break;
    case 2:
        if (n->ins == 1 && n->on != HOST && (from->kernel || n->memory->kernel))
            n->kind = COPY;
        break;
    case 3:
        if (n->ins == 1 && n->parent[0]->outs == 0) {
            n->kind = IN_PLACE;
            n->memory = from;
        }
        break;
    default:
        break;
    }
}

static bool has_blocks(const struct node *n)
{
    return n->kind != CHECK && n->kind != IN_PLACE;
}

// How many of a node's blocks its consumers may keep.
static unsigned kept(const struct node *n)
{
    unsigned sum = 0;
    for (unsigned i = 0; i < n->outs; i++) {
        const struct node *c = n->out[i].node;
        sum += c->kind == IN_PLACE ? kept(c) : c->holds;
    }
    return sum;
}

static void add_node(struct graph *g, unsigned number)
{
    struct node *n = &g->node[number];
    *n = (struct node){ .graph = g, .number = number };
    if (number && (number > 1 || pick(&g->random, 3))) {
        n->parent[n->ins] = pick_parent(g, number);
        n->ins += n->parent[0] != NULL;
        if (n->ins && pick(&g->random, 3) == 0) {
            n->parent[1] = pick_parent(g, number);
            n->ins += n->parent[1] && n->parent[1] != n->parent[0];
        }
    }
    n->on = pick_place(g, n);
    if (n->on < HOST) {
        n->ins = 1;
        n->on = pick_place(g, n);
    }
    if (n->on < HOST)
        n->on = n->parent[0]->memory->stream ? 0 : HOST;
    decide_kind(g, n);
    n->foreign = pick(&g->random, 4) == 0 && n->memory->kind == STK_DMABUF_NONE;
    n->reserve = pick(&g->random, 2);
    n->holds = n->kind == IN_PLACE ? 0 : pick(&g->random, MOST_HELD + 1);
    n->grows_at =
        pick(&g->random, 2) ? pick(&g->random, g->frames) : UINT32_MAX;
    for (unsigned i = 0; i < n->ins; i++) {
        struct node *p = n->parent[i];
        p->out[p->outs].node = n;
        p->out[p->outs++].in = i;
    }
}

static void make(struct graph *g, uint64_t seed)
{
    memset(g, 0, sizeof(*g));
    g->seed = seed;
    g->random = seed * 2654435761u + 1;
    // The first numbers of neighbouring seeds are alike.
    for (unsigned i = 0; i < 16; i++)
        pen_test_random(&g->random);
    g->mode = seed % 4 == 0   ? PENEMU_LAZY
              : seed % 4 == 1 ? PENEMU_EAGER
                              : PENEMU_RANDOM;
    g->streams = 2 + pick(&g->random, MOST_STREAMS - 1);
    g->threads = 2 + pick(&g->random, MOST_THREADS - 1);
    g->frames = 8 + pick(&g->random, 24);
    g->words = STAMP_HEAD + 1 + pick(&g->random, 1500);
    if (pen_test_on_gpu())
        g->words *= 64;
    g->nodes = 3 + pick(&g->random, MOST_NODES - 2);
    for (unsigned i = 0; i < g->nodes; i++)
        add_node(g, i);
    for (unsigned i = 0; i < g->nodes; i++)
        g->node[i].blocks = 1 + kept(&g->node[i]) + pick(&g->random, 3);
    g->total = g->nodes * g->frames;
    g->ends_at = pick(&g->random, 3) ? g->total : pick(&g->random, g->total);
    g->buffers_first = pick(&g->random, 2);
}

static void print(const struct graph *g)
{
    static const char *const modes[] = {
        [PENEMU_EAGER] = "eager",
        [PENEMU_LAZY] = "lazy",
        [PENEMU_RANDOM] = "random",
    };
    print_message("# seed %llu, mode %s: %u streams, %u threads, %u frames of "
                  "%u words, ends after %u of %u calls\n",
                  (unsigned long long)g->seed, modes[g->mode], g->streams,
                  g->threads, g->frames, g->words, g->ends_at, g->total);
    for (unsigned i = 0; i < g->nodes; i++) {
        const struct node *n = &g->node[i];
        char where[32] = "the host", from[64] = "";
        if (n->on != HOST)
            snprintf(where, sizeof(where), "stream %d", n->on);
        for (unsigned k = 0; k < n->ins; k++)
            snprintf(from + strlen(from), sizeof(from) - strlen(from), "%s %u",
                     k ? "," : " of", n->parent[k]->number);
        print_message("#   %u: %s%s on %s", i, kind_names[n->kind], from,
                      where);
        if (has_blocks(n))
            print_message(", %u %s%s blocks", n->blocks,
                          n->foreign ? "foreign " : "", n->memory->name);
        print_message(", keeps %u, did %u\n", n->holds, n->done);
    }
}

// --- problems ---------------------------------------------------------------

static void set_problem(struct graph *g, const struct node *n, const char *what,
                        enum pen_status st, const struct pen_error *err)
{
    pthread_mutex_lock(&g->lock);
    if (!g->problem[0])
        snprintf(g->problem, sizeof(g->problem), "node %u, frame %u: %s: %s %s",
                 n->number, n->done, what, pen_status_name(st), err->text);
    pthread_cond_broadcast(&g->changed);
    pthread_mutex_unlock(&g->lock);
}

// Where a check was made, as one number, and back as text.
enum check { READS, REUSES };
static uint32_t what(const struct node *n, enum check check)
{
    return n->number << 16 | (n->done & 0x7fff) << 1 | check;
}

// Owner and number of the frame, and how often it was stamped.
static uint64_t make_tag(const struct node *n)
{
    return ((uint64_t)n->number + 1) << 32 | n->done;
}

static void describe(const struct stamp_result *r, char *text, size_t size)
{
    snprintf(text, size,
             "node %u, frame %u: a block that it %s should hold frame %u of "
             "node %d, but has the head of frame %u of node %d; %u words are "
             "wrong, the first is %u; %u of %u checks failed",
             r->what >> 16, (r->what & 0xffff) >> 1,
             r->what & 1 ? "overwrites" : "reads", (uint32_t)r->want,
             (int)(r->want >> 32) - 1, (uint32_t)r->found,
             (int)(r->found >> 32) - 1, r->wrong, r->first, r->failed,
             r->checks);
}

// --- history ----------------------------------------------------------------

static struct history *find_history(struct graph *g,
                                    const struct stk_buffer *buffer)
{
    // Wrapped blocks have a new buffer each time, but their address.
    const uint64_t address = buffer->block.address;
    for (unsigned i = 0; i < g->histories; i++) {
        if (g->history[i].address == address)
            return &g->history[i];
    }
    return NULL;
}

// Whether it is known what the block holds, and what.
static bool last_tag(struct node *n, const struct stk_buffer *buffer,
                     uint64_t *tag)
{
    struct graph *g = n->graph;
    pthread_mutex_lock(&g->lock);
    const struct history *h = find_history(g, buffer);
    const bool same = h && h->bytes == buffer->block.bytes &&
                      (n->foreign || h->buffer == buffer);
    if (same)
        *tag = h->tag;
    pthread_mutex_unlock(&g->lock);
    if (same)
        return true;
    // A pool clears device memory for whom it is given first.
    *tag = 0;
    return n->memory->mem == PEN_MEM_CUDA_DEVICE && !n->foreign &&
           (!n->reserve || !h || h->buffer != buffer);
}

static void note_tag(struct graph *g, const struct stk_buffer *buffer,
                     uint64_t tag)
{
    pthread_mutex_lock(&g->lock);
    struct history *h = find_history(g, buffer);
    if (!h)
        h = &g->history[g->histories++];
    *h = (struct history){ buffer, buffer->block.address, buffer->block.bytes,
                           tag };
    pthread_mutex_unlock(&g->lock);
}

// --- blocks -----------------------------------------------------------------

static void wake(void *cookie)
{
    struct node *n = cookie;
    struct graph *g = n->graph;
    pthread_mutex_lock(&g->lock);
    n->woken = true;
    n->blocked = false;
    pthread_cond_broadcast(&g->changed);
    pthread_mutex_unlock(&g->lock);
}

static void foreign_back(void *cookie)
{
    struct foreign *mine = cookie;
    struct node *n = mine->node;
    pthread_mutex_lock(&n->graph->lock);
    mine->used = false;
    pthread_mutex_unlock(&n->graph->lock);
    wake(n);
}

static size_t bytes_of(const struct graph *g)
{
    return (size_t)g->words * 4;
}

static enum pen_status wrap_one(struct node *n, struct stk_buffer **out,
                                struct pen_error *err)
{
    struct graph *g = n->graph;
    struct foreign *mine = NULL;
    pthread_mutex_lock(&g->lock);
    for (uint32_t i = 0; i < n->blocks && !mine; i++) {
        if (!n->mine[i].used)
            mine = &n->mine[i];
    }
    if (mine)
        mine->used = true;
    pthread_mutex_unlock(&g->lock);
    if (!mine)
        return PEN_AGAIN;
    const struct pen_foreign memory = {
        .mem = n->memory->mem,
        .host = mine->block.host,
        .address = mine->block.address,
        .fd = -1,
        .bytes = mine->block.bytes,
        .device = g->f.dev,
        .release = foreign_back,
        .cookie = mine,
    };
    return stk_buffer_wrap(&memory, g->f.ledger, out, err);
}

// PEN_AGAIN: wake() will be called.
static enum pen_status take(struct node *n, struct stk_buffer **out,
                            struct pen_error *err)
{
    if (n->foreign)
        return wrap_one(n, out, err);
    struct graph *g = n->graph;
    struct stk_stream *stream = n->on == HOST ? NULL : g->stream[n->on];
    struct stk_point wait;
    const enum pen_status st = stk_pool_take(n->pool, stream, out, &wait, err);
    if (st != PEN_AGAIN || !wait.stream)
        return st;
    PEN_TRY(stk_point_when(wait, STK_WAIT_NONE, wake, n, err));
    return PEN_AGAIN;
}

static enum pen_status make_frame(struct node *n, struct pen_frame **out,
                                  struct pen_error *err)
{
    struct graph *g = n->graph;
    const struct pen_caps caps = {
        .kind = PEN_KIND_FRAME,
        .bytes = bytes_of(g),
    };
    struct stk_buffer *buffer = NULL;
    PEN_TRY(take(n, &buffer, err));
    const enum pen_status st =
        stk_frame_make(g->frame_pool, buffer, &caps, out, err);
    if (st != PEN_OK) {
        stk_buffer_unref(buffer);
        return st;
    }
    (*out)->index = n->done;
    return PEN_OK;
}

// --- one call of a node -----------------------------------------------------

static enum pen_status check_on_host(struct node *n, enum check check,
                                     const struct pen_view *view, uint64_t tag)
{
    struct graph *g = n->graph;
    struct stamp_result one = { 0 };
    stamp_host_check(view->plane[0].host, tag, g->words, what(n, check), &one);
    pthread_mutex_lock(&g->lock);
    stamp_add(&g->seen, &one);
    g->checks++;
    pthread_mutex_unlock(&g->lock);
    return PEN_OK;
}

static enum pen_status check_on_stream(struct node *n, enum check check,
                                       const struct pen_view *view,
                                       uint64_t tag, struct pen_error *err)
{
    struct graph *g = n->graph;
    struct stk_stream *stream = g->stream[n->on];
    uint64_t address = view->plane[0].address;
    pthread_mutex_lock(&g->lock);
    g->checks++;
    pthread_mutex_unlock(&g->lock);
    if (view->mem == PEN_MEM_HOST_PINNED) {
        PEN_TRY(stk_stream_copy(stream, STK_COPY_H2D, n->scratch, address,
                                bytes_of(g), err));
        address = n->scratch;
    }
    return stamp_queue_check(&g->stamper[n->on], address, tag, g->words,
                             what(n, check), err);
}

static enum pen_status stamp_on_stream(struct node *n,
                                       const struct pen_view *view,
                                       struct pen_error *err)
{
    struct graph *g = n->graph;
    const uint64_t address = view->plane[0].address;
    const bool pinned = view->mem == PEN_MEM_HOST_PINNED;
    PEN_TRY(stamp_queue(&g->stamper[n->on], pinned ? n->scratch : address,
                        make_tag(n), g->words, err));
    if (!pinned)
        return PEN_OK;
    return stk_stream_copy(g->stream[n->on], STK_COPY_D2H, address, n->scratch,
                           bytes_of(g), err);
}

static enum pen_status view_of(const struct node *n, struct pen_frame *frame,
                               unsigned access, struct pen_view *out,
                               struct pen_error *err)
{
    if (n->on == HOST)
        return stk_frame_on_host(frame, access, out, err);
    return stk_frame_on_stream(frame, n->graph->stream[n->on], access, out,
                               err);
}

static enum pen_status check_view(struct node *n, enum check check,
                                  const struct pen_view *view, uint64_t tag,
                                  struct pen_error *err)
{
    if (n->on == HOST)
        return check_on_host(n, check, view, tag);
    return check_on_stream(n, check, view, tag, err);
}

static enum pen_status stamp_view(struct node *n, const struct pen_view *view,
                                  struct pen_error *err)
{
    if (n->on != HOST)
        return stamp_on_stream(n, view, err);
    stamp_host(view->plane[0].host, make_tag(n), n->graph->words);
    return PEN_OK;
}

// Read the inputs, write the output (which may be the first input).
static enum pen_status work_on(struct node *n, struct item *out,
                               struct pen_error *err)
{
    struct graph *g = n->graph;
    struct pen_view in[2] = { { 0 } }, view;
    for (unsigned i = 0; i < n->ins; i++) {
        const unsigned access =
            n->kind == IN_PLACE ? PEN_READ | PEN_WRITE : PEN_READ;
        PEN_TRY(view_of(n, n->now[i].frame, access, &in[i], err));
        PEN_TRY(check_view(n, READS, &in[i], n->now[i].tag, err));
    }
    if (n->kind == CHECK)
        return PEN_OK;

    out->tag = n->kind == COPY ? n->now[0].tag : make_tag(n);
    if (n->kind == IN_PLACE) {
        out->frame = n->now[0].frame;
        PEN_TRY(stamp_view(n, &in[0], err));
    } else {
        uint64_t before;
        PEN_TRY(view_of(n, out->frame, PEN_WRITE, &view, err));
        if (last_tag(n, out->frame->buffer, &before))
            PEN_TRY(check_view(n, REUSES, &view, before, err));
        if (n->kind == COPY)
            PEN_TRY(stk_transfer(g->stream[n->on], &view, &in[0], err));
        else
            PEN_TRY(stamp_view(n, &view, err));
    }
    note_tag(g, out->frame->buffer, out->tag);
    return PEN_OK;
}

// Record, and tell the buffers.
static enum pen_status note_uses(struct node *n, const struct item *out,
                                 struct pen_error *err)
{
    if (n->on == HOST)
        return PEN_OK;
    struct stk_stream *stream = n->graph->stream[n->on];
    struct stk_point point;
    enum pen_status st;
    while ((st = stk_stream_record(stream, &point, err)) == PEN_AGAIN)
        PEN_TRY(stk_point_wait(point, STK_WAIT_EVENT_REUSE, err));
    PEN_TRY(st);
    for (unsigned i = 0; i < n->ins; i++) {
        if (n->now[i].frame != out->frame)
            stk_buffer_used(n->now[i].frame->buffer, point, PEN_READ);
    }
    if (out->frame)
        stk_buffer_used(out->frame->buffer, point, PEN_WRITE);
    return PEN_OK;
}

// PEN_AGAIN: wake() will be called.
static enum pen_status may_start(struct node *n, struct pen_error *err)
{
    struct graph *g = n->graph;
    struct stk_point wait = { 0 };
    if (n->on != HOST) {
        if (stk_stream_has_room(g->stream[n->on], MOST_THREADS, &wait))
            return PEN_OK;
        PEN_TRY(stk_point_when(wait, STK_WAIT_NONE, wake, n, err));
        return PEN_AGAIN;
    }
    const unsigned access =
        n->kind == IN_PLACE ? PEN_READ | PEN_WRITE : PEN_READ;
    for (unsigned i = 0; i < n->ins; i++) {
        if (stk_buffer_host_ready(n->now[i].frame->buffer, access, &wait))
            continue;
        PEN_TRY(stk_point_when(wait, STK_WAIT_NONE, wake, n, err));
        return PEN_AGAIN;
    }
    return PEN_OK;
}

static enum pen_status fire(struct node *n, struct item *out,
                            struct pen_error *err)
{
    STK_SCOPE scope = { 0 };
    PEN_TRY(stk_scope_enter(&scope, n->graph->f.dev, err));
    PEN_TRY(may_start(n, err));
    if (n->pool && n->done == n->grows_at) {
        n->grows_at = UINT32_MAX;
        PEN_TRY(stk_pool_grow(n->pool, 2 * bytes_of(n->graph), err));
    }
    if (has_blocks(n))
        PEN_TRY(make_frame(n, &out->frame, err));
    enum pen_status st = work_on(n, out, err);
    const enum pen_status noted = note_uses(n, out, err);
    return st == PEN_OK ? noted : st;
}

// --- references -------------------------------------------------------------

static void drop(struct held *held)
{
    pen_frame_unref(held->frame);
    stk_buffer_unref(held->buffer);
    *held = (struct held){ 0 };
}

// Keep a reference, or drop it; whatever is kept already may go instead.
static void keep_or_drop(struct node *n, struct pen_frame *frame,
                         uint64_t *random)
{
    struct held held = { .frame = frame };
    if (pick(random, 3) == 0) {
        held.buffer = stk_buffer_ref(frame->buffer);
        held.frame = NULL;
        pen_frame_unref(frame);
    }
    if (n->held_count < n->holds) {
        n->held[n->held_count++] = held;
        return;
    }
    if (n->holds && pick(random, 2)) {
        const unsigned i = pick(random, n->holds);
        const struct held other = n->held[i];
        n->held[i] = held;
        held = other;
    }
    drop(&held);
}

// --- threads ----------------------------------------------------------------

static bool ready(const struct node *n)
{
    bool full = !n->busy && !n->blocked && n->done < n->graph->frames;
    for (unsigned i = 0; i < n->ins; i++)
        full = full && n->in[i].count;
    return full;
}

// Needs the lock.
static struct node *pick_ready(struct graph *g, uint64_t *random)
{
    const unsigned first = pick(random, g->nodes);
    for (unsigned i = 0; i < g->nodes; i++) {
        struct node *n = &g->node[(first + i) % g->nodes];
        if (ready(n))
            return n;
    }
    return NULL;
}

static void hold(struct graph *g, unsigned stream, bool on)
{
    if (!fixture_emulator() || g->held[stream] == on)
        return;
    g->held[stream] = on;
    fixture_emulator()->penemu_hold_stream(
        (void *)stk_stream_handle(g->stream[stream]), on);
}

// Hold or let go a stream now and then. Needs the lock.
static void disturb(struct graph *g, uint64_t *random)
{
    if (pick(random, 6) == 0)
        hold(g, pick(random, g->streams), pick(random, 2));
}

static void let_go(struct graph *g)
{
    for (unsigned i = 0; i < g->streams; i++)
        hold(g, i, false);
}

static struct timespec after_ms(long ms)
{
    struct timespec t;
    clock_gettime(CLOCK_REALTIME, &t);
    t.tv_sec += ms / 1000;
    t.tv_nsec += ms % 1000 * 1000000;
    if (t.tv_nsec >= 1000000000) {
        t.tv_nsec -= 1000000000;
        t.tv_sec++;
    }
    return t;
}

// Nothing can be done: let go all streams and wait until that changes. Needs
// the lock.
static void wait_for_change(struct graph *g)
{
    let_go(g);
    const struct timespec until = after_ms(60000);
    const uint32_t fired = g->fired;
    const int code = pthread_cond_timedwait(&g->changed, &g->lock, &until);
    if (code == ETIMEDOUT && fired == g->fired && !g->problem[0])
        snprintf(g->problem, sizeof(g->problem),
                 "nobody was called for 60 seconds");
}

static void push(struct queue *q, struct item item)
{
    q->item[(q->first + q->count++) % MOST_BLOCKS] = item;
}

static void pop(struct queue *q)
{
    q->first = (q->first + 1) % MOST_BLOCKS;
    q->count--;
}

// What was made goes to the consumers. Needs the lock.
static void deliver(struct node *n, struct item out)
{
    n->done++;
    n->graph->fired++;
    for (unsigned i = 0; i < n->ins; i++)
        pop(&n->in[i]);
    for (unsigned i = 0; i < n->outs; i++) {
        if (i)
            pen_frame_ref(out.frame);
        push(&n->out[i].node->in[n->out[i].in], out);
    }
}

// One call of a node that is busy, without the lock.
static enum pen_status call(struct node *n, struct item *out, uint64_t *random)
{
    struct graph *g = n->graph;
    struct pen_error err = { 0 };
    const enum pen_status st = fire(n, out, &err);
    if (st == PEN_AGAIN)
        return st;
    if (st != PEN_OK)
        set_problem(g, n, "call", st, &err);
    for (unsigned i = 0; i < n->ins && st == PEN_OK; i++) {
        if (n->now[i].frame != out->frame)
            keep_or_drop(n, n->now[i].frame, random);
    }
    if (out->frame && !n->outs) {
        pen_frame_unref(out->frame);
        out->frame = NULL;
    }
    return st;
}

struct worker {
    struct graph *graph;
    pthread_t thread;
    uint64_t random;
};

static void *run_worker(void *arg)
{
    struct worker *w = arg;
    struct graph *g = w->graph;
    pthread_mutex_lock(&g->lock);
    while (!g->problem[0] && g->fired < g->ends_at) {
        struct node *n = pick_ready(g, &w->random);
        if (!n) {
            wait_for_change(g);
            continue;
        }
        disturb(g, &w->random);
        n->busy = true;
        n->woken = false;
        for (unsigned i = 0; i < n->ins; i++)
            n->now[i] = n->in[i].item[n->in[i].first];
        pthread_mutex_unlock(&g->lock);
        struct item out = { 0 };
        const enum pen_status st = call(n, &out, &w->random);
        pthread_mutex_lock(&g->lock);
        n->busy = false;
        if (st == PEN_AGAIN)
            n->blocked = !n->woken;
        else if (st == PEN_OK)
            deliver(n, out);
        pthread_cond_broadcast(&g->changed);
    }
    g->working--;
    pthread_cond_broadcast(&g->changed);
    pthread_mutex_unlock(&g->lock);
    return NULL;
}

// --- setup and teardown -----------------------------------------------------

static void alloc_foreign(struct node *n)
{
    struct graph *g = n->graph;
    const struct stk_mem_source source = {
        .dev = g->f.dev,
        .ledger = g->f.ledger,
        .owner = "test.foreign",
    };
    for (uint32_t i = 0; i < n->blocks; i++) {
        n->mine[i].node = n;
        FIXTURE_OK(stk_mem_type(n->memory->mem)
                       ->alloc(&source, bytes_of(g), &n->mine[i].block, &err));
    }
}

static void free_foreign(struct node *n)
{
    const struct stk_mem_source source = {
        .dev = n->graph->f.dev,
        .ledger = n->graph->f.ledger,
        .owner = "test.foreign",
    };
    for (uint32_t i = 0; i < n->blocks; i++) {
        assert_false(n->mine[i].used);
        stk_mem_type(n->memory->mem)->free(&source, &n->mine[i].block);
    }
}

static void set_up_node(struct node *n)
{
    struct graph *g = n->graph;
    if (n->on != HOST)
        FIXTURE_OK(stk_device_alloc(g->f.dev, bytes_of(g), "test.scratch",
                                    PEN_HERE, &n->scratch, &err));
    if (!has_blocks(n))
        return;
    if (n->foreign) {
        alloc_foreign(n);
        return;
    }
    const struct stk_pool_params params = {
        .mem = n->memory->mem,
        .kind = n->memory->kind,
        .block_bytes = bytes_of(g),
        .blocks = n->blocks,
        .reserve_bytes = n->reserve ? 4 * bytes_of(g) : 0,
        .dev = g->f.dev,
        .ledger = g->f.ledger,
        .owner = "test.output",
        .returned = wake,
        .cookie = n,
    };
    FIXTURE_OK(stk_pool_create(&params, &n->pool, &err));
}

static void set_up(struct graph *g)
{
    if (fixture_emulator()) {
        fixture_emulator()->penemu_reset();
        fixture_emulator()->penemu_set_mode(g->mode, g->seed);
        fixture_emulator()->penemu_set_check(1);
    }
    pthread_mutex_init(&g->lock, NULL);
    pthread_cond_init(&g->changed, NULL);
    fixture_open(&g->f);
    FIXTURE_OK(stk_frame_pool_create(4, g->f.ledger, &g->frame_pool, &err));
    for (unsigned i = 0; i < g->streams; i++) {
        g->stream[i] = fixture_stream(&g->f, "test");
        FIXTURE_OK(stamper_open(&g->stamper[i], g->f.dev, g->stream[i], &err));
    }
    for (unsigned i = 0; i < g->nodes; i++)
        set_up_node(&g->node[i]);
}

// Drop all references that queues and nodes still have, in random order.
static void drop_all(struct graph *g)
{
    static struct held all[MOST_NODES * (MOST_HELD + 2 * MOST_BLOCKS)];
    unsigned count = 0;
    for (unsigned i = 0; i < g->nodes; i++) {
        struct node *n = &g->node[i];
        for (unsigned k = 0; k < n->held_count; k++)
            all[count++] = n->held[k];
        for (unsigned k = 0; k < n->ins; k++) {
            for (; n->in[k].count; pop(&n->in[k]))
                all[count++].frame = n->in[k].item[n->in[k].first].frame;
        }
    }
    while (count) {
        const unsigned i = pick(&g->random, count);
        drop(&all[i]);
        all[i] = all[--count];
        all[count] = (struct held){ 0 };
    }
}

static void destroy_pools(struct graph *g)
{
    for (unsigned i = 0; i < g->nodes; i++)
        stk_pool_destroy(&g->node[i].pool);
}

static void tear_down(struct graph *g)
{
    let_go(g);
    if (g->buffers_first)
        drop_all(g);
    destroy_pools(g);
    if (!g->buffers_first)
        drop_all(g);
    for (unsigned i = 0; i < g->streams; i++) {
        FIXTURE_OK(stamper_result(&g->stamper[i], &g->seen, &err));
        stamper_close(&g->stamper[i]);
        stk_stream_destroy(&g->stream[i]);
    }
    for (unsigned i = 0; i < g->nodes; i++) {
        struct node *n = &g->node[i];
        if (n->scratch)
            stk_device_free(g->f.dev, n->scratch, bytes_of(g));
        if (n->foreign && has_blocks(n))
            free_foreign(n);
    }
    stk_frame_pool_destroy(&g->frame_pool);
    fixture_close(&g->f);
    pthread_cond_destroy(&g->changed);
    pthread_mutex_destroy(&g->lock);
}

static void look_for_misuse(struct graph *g)
{
    if (!fixture_emulator() || g->problem[0])
        return;
    char report[400] = "";
    const uint64_t reports =
        fixture_emulator()->penemu_report(report, sizeof(report));
    if (reports)
        snprintf(g->problem, sizeof(g->problem), "misuse of the driver: %s",
                 report);
}

// A thread that frees memory in the driver waits for all streams. So let them
// go when nothing has happened for a while.
static void watch(struct graph *g)
{
    pthread_mutex_lock(&g->lock);
    while (g->working) {
        const uint32_t fired = g->fired;
        const struct timespec until = after_ms(3);
        const int code = pthread_cond_timedwait(&g->changed, &g->lock, &until);
        if (code == ETIMEDOUT && fired == g->fired)
            let_go(g);
    }
    pthread_mutex_unlock(&g->lock);
}

static void fail_with(const struct graph *g)
{
    if (!g->problem[0])
        return;
    print(g);
    fail_msg("%s", g->problem);
}

static uint64_t run_graph(uint64_t seed)
{
    struct graph *g = &graph;
    make(g, seed);
    set_up(g);
    struct worker worker[MOST_THREADS];
    g->working = g->threads;
    for (unsigned i = 0; i < g->threads; i++) {
        worker[i] = (struct worker){ g, 0, seed * 977 + i + 1 };
        assert_int_equal(
            pthread_create(&worker[i].thread, NULL, run_worker, &worker[i]), 0);
    }
    watch(g);
    for (unsigned i = 0; i < g->threads; i++)
        pthread_join(worker[i].thread, NULL);
    // A graph that got stuck, or had an error, cannot be taken down.
    fail_with(g);
    tear_down(g);
    look_for_misuse(g);
    if (!g->problem[0] && g->seen.failed)
        describe(&g->seen, g->problem, sizeof(g->problem));
    fail_with(g);
    // A check that was not made proves nothing.
    assert_int_equal(g->seen.checks, g->checks);
    return g->checks;
}

PEN_TEST(nothing_is_read_early_or_reused_early)
{
    const char *one = getenv("PENSTOCK_TEST_SEED");
    const char *many = getenv("PENSTOCK_TEST_GRAPHS");
    unsigned graphs =
        many ? (unsigned)strtoul(many, NULL, 10) : pen_test_seeds(200, 20000);
    uint64_t seed = one ? strtoull(one, NULL, 10) : 1;
    if (one && !many)
        graphs = 1;
    struct fixture f;
    fixture_open(&f);
    stk_dmabuf_probe(f.dev, &dmabuf);
    fixture_close(&f);
    uint64_t checks = 0;
    for (unsigned i = 0; i < graphs; i++)
        checks += run_graph(seed + i);
    print_message("# %u graphs, %llu checks; DMABUF of the host: %s, of the "
                  "device: %s\n",
                  graphs, (unsigned long long)checks,
                  dmabuf.host ? dmabuf.provider : dmabuf.why_host,
                  dmabuf.export ? "yes" : dmabuf.why_export);
    assert_true(checks > 0);
}

PEN_TEST_MAIN(PEN_CASE(nothing_is_read_early_or_reused_early))
