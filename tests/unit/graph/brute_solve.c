// All choices for a whole graph, module by module: what is kept between two
// modules is, for each combination of what travels on the edges that are still
// open, the best value that leads to it. Values are sums and the order of sums
// does not change when the same is added to both, so nothing better is lost.
//
// The cheapest tree of steps for a set of states is found by trying all sets
// of states that a tree may have.

#include "brute.h"

#include <stdlib.h>
#include <string.h>

enum {
    KEY = 24,
    MAX_ENTRIES = 1 << 17,
    MAX_USEFUL = 14,  // states of a tree, without its root
    MAX_LABELS = 255,
    MAX_TABLES = 512,
};

// --- the best value of each key ---------------------------------------------

struct entry {
    uint8_t key[KEY];
    struct brute_value value;
    uint32_t parent;  // entry of the module before
    uint8_t option;
};
struct map {
    struct entry *entry;
    uint32_t *slot;  // number + 1; 0: free
    uint32_t count, room;
};

static void map_finish(struct map *m)
{
    free(m->entry);
    free(m->slot);
    *m = (struct map){ 0 };
}

static uint32_t hash(const uint8_t key[KEY])
{
    uint64_t part[KEY / 8], h = 0;
    memcpy(part, key, KEY);
    for (unsigned i = 0; i < KEY / 8; i++) {
        h = (h ^ part[i]) * 0x9e3779b97f4a7c15u;
        h ^= h >> 32;
    }
    return (uint32_t)h;
}

static bool map_grow(struct map *m)
{
    const uint32_t room = m->room ? 2 * m->room : 64;
    struct entry *entry = realloc(m->entry, room * sizeof(*entry));
    uint32_t *slot = calloc(2 * (size_t)room, sizeof(*slot));
    if (entry)
        m->entry = entry;
    if (!entry || !slot) {
        free(slot);
        return false;
    }
    free(m->slot);
    m->slot = slot;
    m->room = room;
    for (uint32_t i = 0; i < m->count; i++) {
        uint32_t at = hash(entry[i].key) & (2 * room - 1);
        while (slot[at])
            at = (at + 1) & (2 * room - 1);
        slot[at] = i + 1;
    }
    return true;
}

static bool map_keep(struct map *m, const struct entry *e)
{
    if (m->count == m->room && !map_grow(m))
        return false;
    uint32_t at = hash(e->key) & (2 * m->room - 1);
    for (; m->slot[at]; at = (at + 1) & (2 * m->room - 1)) {
        struct entry *old = &m->entry[m->slot[at] - 1];
        if (memcmp(old->key, e->key, KEY) != 0)
            continue;
        if (brute_value_compare(&e->value, &old->value) < 0)
            *old = *e;
        return true;
    }
    if (m->count == MAX_ENTRIES)
        return false;
    m->entry[m->count++] = *e;
    m->slot[at] = m->count;
    return true;
}

// --- labels -----------------------------------------------------------------

// What travels on an edge, as far as its consumer can tell.
struct label {
    struct brute_caps caps;
    uint8_t home, takers;  // options of the consumer that take it
};

struct table {
    unsigned module, pin;
    struct brute_caps caps;
    struct brute_birth birth;
    struct map best;  // by the labels of the output's edges, and the device
};

struct solver {
    const struct brute_graph *g;
    bool count_device;  // whether the device is used is a choice that costs
    bool too_large;
    struct label label[MAX_LABELS + 1];  // [0]: none
    unsigned labels;
    struct table *table[MAX_TABLES];
    unsigned tables;
    struct map layer[BRUTE_MODULES + 1];
};
enum { KEY_DEVICE = BRUTE_EDGES };

static unsigned label_of(struct solver *s, const struct label *l)
{
    for (unsigned i = 1; i <= s->labels; i++)
        if (!memcmp(&s->label[i], l, sizeof(*l)))
            return i;
    if (s->labels == MAX_LABELS) {
        s->too_large = true;
        return 0;
    }
    memcpy(&s->label[++s->labels], l, sizeof(*l));
    return s->labels;
}

// Whether a module may give frames as it gets them, so that it matters where
// they lie.
static bool minds_homes(const struct brute_module *m)
{
    for (unsigned o = 0; o < m->options; o++)
        if (brute_passes(&m->option[o]) || m->option[o].role == BRUTE_CONVERTS)
            return true;
    return false;
}

// What arrives at a sink has no consequences but its cost, which is added where
// it is served.
static bool is_end(const struct brute_module *m)
{
    return m->inputs == 1 && m->outputs == 0 && m->options == 1 &&
           !m->option[0].cuda;
}

// --- the cheapest trees -----------------------------------------------------

// For the steps that lie on paths of least loss and fewest transfers from the
// root: what the cheapest tree costs that has at least the states of a set.
// State `state[i]` is bit i.
struct trees {
    struct brute_board board;
    unsigned root, count;
    bool known[BRUTE_STATES];
    struct brute_loss least[BRUTE_STATES];
    bool tight[BRUTE_STATES][BRUTE_STATES];
    unsigned state[MAX_USEFUL];
    int bit[BRUTE_STATES];             // -1: not in any tree
    int64_t cost[2][1 << MAX_USEFUL];  // [0]: without the device
};

static void find_tight(struct trees *t)
{
    const struct brute_board *b = &t->board;
    brute_board_reach(b, t->root, t->known, t->least);
    memset(t->tight, 0, sizeof(t->tight));
    for (unsigned a = 0; a < b->states; a++)
        for (unsigned c = 0; c < b->states; c++) {
            if (!t->known[a] || !b->step[a][c].there)
                continue;
            struct brute_loss l = t->least[a];
            for (int i = 0; i < BRUTE_PARTS; i++)
                l.part[i] += b->step[a][c].loss.part[i];
            l.transfers += b->step[a][c].loss.transfers;
            t->tight[a][c] = !brute_loss_compare(&l, &t->least[c]);
        }
}

// Number the states from which tight steps lead to a state that is asked for.
static bool find_useful(struct trees *t, const bool asked[BRUTE_STATES])
{
    bool useful[BRUTE_STATES];
    const unsigned states = t->board.states;
    memcpy(useful, asked, sizeof(useful));
    for (bool again = true; again;) {
        again = false;
        for (unsigned a = 0; a < states; a++)
            for (unsigned c = 0; c < states && !useful[a]; c++)
                if (useful[c] && t->tight[a][c])
                    useful[a] = again = true;
    }
    t->count = 0;
    for (unsigned a = 0; a < states; a++) {
        t->bit[a] = -1;
        if (!useful[a] || !t->known[a] || a == t->root)
            continue;
        if (t->count == MAX_USEFUL)
            return false;
        t->bit[a] = (int)t->count;
        t->state[t->count++] = a;
    }
    return true;
}

static int64_t step_cost(const struct trees *t, unsigned from, unsigned to,
                         bool device)
{
    const struct brute_step *s = &t->board.step[from][to];
    return t->tight[from][to] && (device || !s->device) ? s->cost : BRUTE_NEVER;
}

// Trees grow by one state at a time, in every order.
static void try_all_trees(struct trees *t, bool device)
{
    int64_t *cost = t->cost[device];
    int64_t step[MAX_USEFUL + 1][MAX_USEFUL];
    const unsigned sets = 1u << t->count;
    for (unsigned c = 0; c < t->count; c++) {
        for (unsigned a = 0; a < t->count; a++)
            step[a][c] = step_cost(t, t->state[a], t->state[c], device);
        step[t->count][c] = step_cost(t, t->root, t->state[c], device);
    }
    cost[0] = 0;
    for (unsigned set = 1; set < sets; set++) {
        cost[set] = BRUTE_NEVER;
        for (unsigned c = 0; c < t->count; c++) {
            const unsigned before = set & ~(1u << c);
            if (!(set & 1u << c) || cost[before] >= cost[set])
                continue;
            int64_t least = step[t->count][c];
            for (unsigned left = before; left; left &= left - 1)
                if (step[__builtin_ctz(left)][c] < least)
                    least = step[__builtin_ctz(left)][c];
            if (least < BRUTE_NEVER && cost[before] + least < cost[set])
                cost[set] = cost[before] + least;
        }
    }
    // A tree may have more states than it must.
    for (unsigned c = 0; c < t->count; c++)
        for (unsigned set = 0; set < sets; set++)
            if (!(set & 1u << c) && cost[set | 1u << c] < cost[set])
                cost[set] = cost[set | 1u << c];
}

// --- one output -------------------------------------------------------------

struct pin {
    unsigned edge[BRUTE_EDGES], edges;
};

static struct pin edges_of(const struct brute_graph *g, unsigned module,
                           unsigned pin)
{
    struct pin p = { .edges = 0 };
    for (unsigned e = 0; e < g->edges; e++)
        if (g->edge[e].from == module && g->edge[e].from_pin == pin)
            p.edge[p.edges++] = e;
    return p;
}

static unsigned takers_of(const struct solver *s, const struct brute_board *b,
                          unsigned edge, unsigned state)
{
    const struct brute_module *to = &s->g->module[s->g->edge[edge].to];
    unsigned takers = 0;
    for (unsigned o = 0; o < to->options; o++)
        if (brute_takes(s->g, b, &to->option[o], state))
            takers |= 1u << o;
    return takers;
}

static unsigned label_at(struct solver *s, const struct trees *t, unsigned edge,
                         unsigned state, unsigned takers)
{
    const struct brute_module *to = &s->g->module[s->g->edge[edge].to];
    const unsigned home = state / t->board.formats;
    struct label l;
    memset(&l, 0, sizeof(l));
    l.caps = brute_state_caps(&t->board, state);
    l.takers = (uint8_t)takers;
    l.home = (uint8_t)(minds_homes(to) ? home : AT_HOST);
    return label_of(s, &l);
}

// What a sink costs; false if it refuses that.
static bool end_value(const struct solver *s, const struct trees *t,
                      unsigned edge, unsigned state, struct brute_value *value)
{
    const struct brute_module *to = &s->g->module[s->g->edge[edge].to];
    const struct brute_caps in[BRUTE_PINS] = { brute_state_caps(&t->board,
                                                                state) };
    const struct brute_caps out = brute_negotiate(&to->option[0], to, in);
    value->cost = brute_module_cost(s->g, to, &to->option[0], in, &out);
    return out.mask != 0;
}

// Serve one more edge in every state in which that can be. The key has the set
// of the tree's states in front, then a label for each edge.
static bool serve(struct solver *s, const struct trees *t,
                  const struct pin *pin, unsigned which, struct map *all)
{
    const unsigned edge = pin->edge[which];
    const unsigned weight = brute_weight(s->g, edge);
    const bool ends = is_end(&s->g->module[s->g->edge[edge].to]);
    struct map more = { 0 };
    bool fits = true;
    for (unsigned v = 0; v < t->board.states; v++) {
        const unsigned takers =
            t->known[v] ? takers_of(s, &t->board, edge, v) : 0;
        if (!takers)
            continue;
        struct brute_value end = { .cost = 0 };
        if (ends && !end_value(s, t, edge, v, &end))
            continue;
        const unsigned label = ends ? 0 : label_at(s, t, edge, v, takers);
        for (uint32_t i = 0; i < all->count && fits; i++) {
            struct entry e = all->entry[i];
            uint32_t set;
            memcpy(&set, e.key, sizeof(set));
            if (t->bit[v] >= 0)
                set |= 1u << t->bit[v];
            memcpy(e.key, &set, sizeof(set));
            e.key[sizeof(set) + which] = (uint8_t)label;
            for (int k = 0; k < BRUTE_PARTS; k++)
                e.value.loss[k] += (int64_t)weight * t->least[v].part[k];
            brute_value_add(&e.value, &end);
            fits = map_keep(&more, &e);
        }
    }
    map_finish(all);
    *all = more;
    return fits;
}

static bool add_trees(struct solver *s, const struct trees *t,
                      const struct pin *pin, const struct map *all,
                      struct map *best)
{
    for (uint32_t i = 0; i < all->count; i++)
        for (int device = s->count_device ? 0 : 1; device < 2; device++) {
            struct entry e = { .value = all->entry[i].value };
            uint32_t set;
            memcpy(&set, all->entry[i].key, sizeof(set));
            if (t->cost[device][set] >= BRUTE_NEVER)
                continue;
            e.value.cost += t->cost[device][set];
            for (unsigned k = 0; k < pin->edges; k++)
                e.key[pin->edge[k]] = all->entry[i].key[sizeof(set) + k];
            e.key[KEY_DEVICE] = (uint8_t)device;
            if (!map_keep(best, &e))
                return false;
        }
    return true;
}

// All trees from one root.
static bool from_root(struct solver *s, struct table *table,
                      const struct pin *pin, unsigned home)
{
    static struct trees t;
    bool asked[BRUTE_STATES] = { false };
    brute_board_make(s->g, &table->caps, table->birth.pinnable,
                     brute_wants_dmabuf(s->g, table->module, table->pin),
                     &t.board);
    t.root = home * t.board.formats;
    find_tight(&t);
    for (unsigned k = 0; k < pin->edges; k++)
        for (unsigned v = 0; v < t.board.states; v++)
            if (t.known[v] && takers_of(s, &t.board, pin->edge[k], v))
                asked[v] = true;
    if (!find_useful(&t, asked))
        return false;
    try_all_trees(&t, true);
    if (s->count_device)
        try_all_trees(&t, false);

    struct map all = { 0 };
    bool fits = map_keep(&all, &(struct entry){ 0 });
    for (unsigned k = 0; k < pin->edges && fits; k++)
        fits = serve(s, &t, pin, k, &all);
    fits = fits && add_trees(s, &t, pin, &all, &table->best);
    map_finish(&all);
    return fits;
}

static const struct table *table_of(struct solver *s, unsigned module,
                                    unsigned pin, const struct brute_caps *caps,
                                    struct brute_birth birth)
{
    for (unsigned i = 0; i < s->tables; i++) {
        const struct table *t = s->table[i];
        if (t->module == module && t->pin == pin &&
            t->birth.roots == birth.roots &&
            t->birth.pinnable == birth.pinnable &&
            !memcmp(&t->caps, caps, sizeof(*caps)))
            return t;
    }
    struct table *t = s->tables < MAX_TABLES ? calloc(1, sizeof(*t)) : NULL;
    if (!t)
        return NULL;
    s->table[s->tables++] = t;
    *t = (struct table){ module, pin, *caps, birth, { 0 } };
    const struct pin edges = edges_of(s->g, module, pin);
    bool fits = edges.edges <= KEY - sizeof(uint32_t);
    for (unsigned h = 0; h < BRUTE_HOMES && fits; h++)
        if (birth.roots & 1u << h)
            fits = from_root(s, t, &edges, h);
    return fits ? t : NULL;
}

// --- one module -------------------------------------------------------------

// What a class makes of what arrives.
struct arrival {
    const struct brute_class *cls;
    uint32_t in_mask;  // of the first input
    unsigned homes;
    struct brute_caps out;
};

// Choose for the outputs from `pin` on; `from` has what was chosen before.
static bool choose_pins(struct solver *s, unsigned module,
                        const struct arrival *a, unsigned pin,
                        const struct entry *from)
{
    const struct brute_graph *g = s->g;
    const struct brute_module *m = &g->module[module];
    if (pin == m->outputs)
        return map_keep(&s->layer[module + 1], from);
    const struct table *t =
        table_of(s, module, pin, &a->out,
                 brute_birth(g, a->cls, a->in_mask, a->homes,
                             brute_wants_dmabuf(g, module, pin)));
    if (!t)
        return false;
    for (uint32_t i = 0; i < t->best.count; i++) {
        struct entry e = *from;
        for (unsigned k = 0; k < KEY; k++)
            e.key[k] |= t->best.entry[i].key[k];
        brute_value_add(&e.value, &t->best.entry[i].value);
        if (!choose_pins(s, module, a, pin + 1, &e))
            return false;
    }
    return true;
}

// With one class, and what one entry says that arrives.
static bool choose_class(struct solver *s, unsigned module, unsigned option,
                         uint32_t number)
{
    const struct brute_graph *g = s->g;
    const struct brute_module *m = &g->module[module];
    const struct brute_class *c = &m->option[option];
    struct entry e = s->layer[module].entry[number];
    if (is_end(m)) {
        e.parent = number;
        e.option = 0;
        return map_keep(&s->layer[module + 1], &e);
    }
    struct brute_caps in[BRUTE_PINS] = { 0 };
    struct arrival a = { .cls = c };
    for (unsigned k = 0; k < g->edges; k++) {
        if (g->edge[k].to != module)
            continue;
        const struct label *l = &s->label[e.key[k]];
        e.key[k] = 0;
        if (!(l->takers & 1u << option))
            return true;
        in[g->edge[k].to_pin] = l->caps;
        a.homes |= 1u << l->home;
    }
    a.in_mask = in[0].mask;
    a.out = brute_negotiate(c, m, in);
    if (!a.out.mask)
        return true;
    e.parent = number;
    e.option = (uint8_t)option;
    e.value.cost += brute_module_cost(g, m, c, in, &a.out);
    if (s->count_device && c->cuda)
        e.key[KEY_DEVICE] = 1;
    return choose_pins(s, module, &a, 0, &e);
}

// --- the whole --------------------------------------------------------------

static void tell(const struct solver *s, uint32_t number, struct stk_text *how)
{
    static const char *const homes[] = { "HOST", "PINNED", "CUDA",
                                         "DMABUF(host)", "DMABUF(device)" };
    const struct brute_graph *g = s->g;
    for (unsigned m = g->modules; m > 0; m--) {
        const struct entry *e = &s->layer[m].entry[number];
        stk_text_addf(how, "n%u is %s\n", m - 1,
                      g->module[m - 1].option[e->option].name);
        for (unsigned k = 0; k < g->edges; k++) {
            const struct label *l = &s->label[e->key[k]];
            if (g->edge[k].from != m - 1)
                continue;
            stk_text_addf(how, "  to n%u.%u: %s", g->edge[k].to,
                          g->edge[k].to_pin,
                          e->key[k] ? homes[l->home] : "(an end)");
            for (unsigned f = 1; f < PEN_FMT_COUNT; f++)
                if (l->caps.mask & PEN_FMT_BIT(f))
                    stk_text_addf(how, " %s",
                                  pen_format_info((enum pen_format)f)->name);
            stk_text_add(how, "\n");
        }
        number = e->parent;
    }
}

// Whether every choice uses the device.
static bool needs_device(const struct brute_graph *g)
{
    for (unsigned m = 0; m < g->modules; m++) {
        bool all = true;
        for (unsigned o = 0; o < g->module[m].options; o++)
            all = all && g->module[m].option[o].cuda;
        if (all)
            return true;
    }
    return false;
}

static enum brute_result run(struct solver *s, struct brute_value *best,
                             struct stk_text *how)
{
    const struct brute_graph *g = s->g;
    bool fits = map_keep(&s->layer[0], &(struct entry){ 0 });
    for (unsigned m = 0; m < g->modules && fits; m++)
        for (unsigned o = 0; o < g->module[m].options && fits; o++)
            for (uint32_t i = 0; i < s->layer[m].count && fits; i++)
                fits = choose_class(s, m, o, i);
    if (!fits || s->too_large)
        return BRUTE_TOO_LARGE;
    const struct map *end = &s->layer[g->modules];
    int found = -1;
    for (uint32_t i = 0; i < end->count; i++) {
        struct brute_value v = end->entry[i].value;
        if (s->count_device ? end->entry[i].key[KEY_DEVICE] : needs_device(g))
            v.cost += brute_share(g, g->profile.context_ns);
        if (found >= 0 && brute_value_compare(&v, best) >= 0)
            continue;
        *best = v;
        found = (int)i;
    }
    if (found < 0)
        return BRUTE_IMPOSSIBLE;
    if (how)
        tell(s, (uint32_t)found, how);
    return BRUTE_FOUND;
}

enum brute_result brute_solve(const struct brute_graph *g,
                              struct brute_value *best, struct stk_text *how)
{
    static struct solver s;
    memset(&s, 0, sizeof(s));
    s.g = g;
    s.count_device = g->frames && !needs_device(g);
    const enum brute_result result = run(&s, best, how);
    for (unsigned i = 0; i < s.tables; i++) {
        map_finish(&s.table[i]->best);
        free(s.table[i]);
    }
    for (unsigned m = 0; m <= BRUTE_MODULES; m++)
        map_finish(&s.layer[m]);
    return result;
}
