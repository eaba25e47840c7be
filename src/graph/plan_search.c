// The cheapest tree of steps on a board that serves all ends of a pin.
//
// Loss comes before cost, and what an end loses depends on its state alone, so
// for a given root each end keeps the states in which it loses least. Among
// those it has prices, and what is left is a Steiner tree with priced ends in
// the small directed graph of tight steps: exact by the recursion of Dreyfus
// and Wagner over subsets of ends, for up to EXACT different ones; beyond, ends
// are joined one after the other to the tree at the nearest state.
//
// Ends with the same states and prices, but for a constant, are one kind. Most
// pins of a graph ask what another has asked before: solutions are kept.

#include "plan_place.h"

#include <stdlib.h>
#include <string.h>

enum {
    EXACT = 8,  // more than STK_EXACT_TARGETS: prices can tell equal sets apart
    SUBSETS = 1 << EXACT,
    ORDERS = 16,
    MEMO_SLOTS = 1024,
    MEMO_LIMIT = 512,
};
_Static_assert((int)EXACT >= (int)STK_EXACT_TARGETS, "what is promised");

struct price {
    int64_t cost;  // above the kind's cheapest
    uint8_t state;
};
// Ends that are alike: a piece of the prices.
struct kind {
    uint32_t first, count, times;
    int16_t at;  // where it is served
};

enum pick_kind { PICK_NONE, PICK_HERE, PICK_HOP, PICK_SPLIT };
struct pick {
    uint8_t kind, arg;
};

// A problem that was solved, with its solution.
struct solved {
    uint32_t hash, board, kinds, prices;
    int root;
    int64_t cost, bound;
    unsigned steps;
    uint8_t step[PLACE_STATES][2];
    int16_t *at;        // by kind
    struct kind *kind;  // as asked
    struct price *price;
};

struct stk_search {
    struct price *price;
    struct kind *kind;
    uint32_t *kind_of;  // by end
    uint32_t prices, price_room, kinds, kind_room, end_room;
    int64_t best[SUBSETS][PLACE_STATES];
    struct pick pick[SUBSETS][PLACE_STATES];
    int16_t parent[PLACE_STATES];  // -1: none
    bool in_tree[PLACE_STATES];
    struct solved *memo[MEMO_SLOTS];
    uint32_t remembered;
};

// --- ends and their kinds ---------------------------------------------------

static bool reserve(void **array, uint32_t *room, uint32_t needed, size_t size)
{
    if (needed <= *room)
        return true;
    const uint32_t more = needed < 64 ? 64 : needed + needed / 2;
    void *grown = realloc(*array, more * size);
    if (!grown)
        return false;
    *array = grown;
    *room = more;
    return true;
}

static bool reserve_prices(struct stk_search *s, uint32_t needed)
{
    void *array = s->price;
    const bool ok = reserve(&array, &s->price_room, needed, sizeof(*s->price));
    s->price = array;
    return ok;
}

static bool reserve_kinds(struct stk_search *s, uint32_t ends)
{
    void *kinds = s->kind, *of = s->kind_of;
    const bool ok = reserve(&kinds, &s->kind_room, ends, sizeof(*s->kind));
    s->kind = kinds;
    const bool also = reserve(&of, &s->end_room, ends, sizeof(*s->kind_of));
    s->kind_of = of;
    return ok && also;
}

static bool same_prices(const struct stk_search *s, const struct kind *a,
                        const struct kind *b)
{
    if (a->count != b->count)
        return false;
    for (uint32_t i = 0; i < a->count; i++)
        if (s->price[a->first + i].state != s->price[b->first + i].state ||
            s->price[a->first + i].cost != s->price[b->first + i].cost)
            return false;
    return true;
}

static int compare_loss(const struct stk_value *a, const struct stk_value *b)
{
    if (a->bad != b->bad)
        return a->bad < b->bad ? -1 : 1;
    return (a->loss > b->loss) - (a->loss < b->loss);
}

// The states of an end in which it loses least, and what that is. The cheapest
// price of them is taken away; it is in *least.
static bool reduce(struct stk_search *s, const struct stk_reach *reach,
                   const struct stk_end *end, struct kind *k,
                   struct stk_value *least)
{
    bool any = false;
    if (!reserve_prices(s, s->prices + end->count))
        return false;
    *k = (struct kind){ .first = s->prices, .times = 1, .at = -1 };
    for (uint32_t i = 0; i < end->count; i++) {
        const struct stk_offer *o = &end->offers[i];
        const uint64_t path = reach->distance[o->state];
        if (path == UINT64_MAX)
            continue;
        struct stk_value v = o->value;
        v.loss += stk_loss_of(path, end->weight);
        const int c = any ? compare_loss(&v, least) : -1;
        if (c > 0)
            continue;
        if (c < 0)
            k->count = 0;
        if (c < 0 || v.cost < least->cost)
            *least = v;
        any = true;
        s->price[k->first + k->count++] = (struct price){ v.cost, o->state };
    }
    for (uint32_t i = 0; i < k->count; i++)
        s->price[k->first + i].cost -= least->cost;
    return true;
}

// Sort the ends into kinds for one root; *sum is what they pay whatever the
// tree.
static bool sort_ends(struct stk_search *s, const struct stk_reach *reach,
                      const struct stk_end *ends, uint32_t count,
                      struct stk_value *sum)
{
    *sum = (struct stk_value){ 0 };
    s->prices = s->kinds = 0;
    if (!reserve_kinds(s, count))
        return false;
    for (uint32_t e = 0; e < count; e++) {
        struct kind k;
        struct stk_value least = { 0 };
        if (!reduce(s, reach, &ends[e], &k, &least))
            return false;
        if (k.count == 0) {
            sum->bad++;
            s->kind_of[e] = UINT32_MAX;
            continue;
        }
        stk_value_add(sum, &least);
        uint32_t n = 0;
        while (n < s->kinds && !same_prices(s, &s->kind[n], &k))
            n++;
        s->kind_of[e] = n;
        if (n < s->kinds) {
            s->kind[n].times++;
            continue;
        }
        s->kind[s->kinds++] = k;
        s->prices += k.count;
    }
    for (uint32_t n = 0; n < s->kinds; n++)
        for (uint32_t i = 0; i < s->kind[n].count; i++) {
            struct price *p = &s->price[s->kind[n].first + i];
            if (__builtin_mul_overflow(p->cost, (int64_t)s->kind[n].times,
                                       &p->cost) ||
                p->cost > PLACE_INFINITE)
                p->cost = PLACE_INFINITE;
        }
    return true;
}

// --- the tree ---------------------------------------------------------------

static void relax(struct stk_search *s, const struct stk_reach *reach,
                  unsigned set)
{
    int64_t *best = s->best[set];
    struct pick *pick = s->pick[set];
    for (bool again = true; again;) {
        again = false;
        for (unsigned h = 0; h < reach->count; h++) {
            const struct stk_tight_hop *hop = &reach->hop[h];
            const int64_t c = hop->cost + best[hop->to];
            if (c < best[hop->from]) {
                best[hop->from] = c;
                pick[hop->from] = (struct pick){ PICK_HOP, hop->to };
                again = true;
            }
        }
    }
}

static void one_kind(struct stk_search *s, const struct stk_reach *reach,
                     uint32_t kind, unsigned set, int states)
{
    const struct kind *k = &s->kind[kind];
    for (int v = 0; v < states; v++) {
        s->best[set][v] = PLACE_INFINITE;
        s->pick[set][v] = (struct pick){ PICK_NONE, 0 };
    }
    for (uint32_t i = 0; i < k->count; i++) {
        const struct price *p = &s->price[k->first + i];
        s->best[set][p->state] = p->cost;
        s->pick[set][p->state].kind = PICK_HERE;
    }
    relax(s, reach, set);
}

// best and pick for all subsets of the first `count` kinds.
static void all_subsets(struct stk_search *s, const struct stk_reach *reach,
                        unsigned count, int states)
{
    for (unsigned set = 1; set < 1u << count; set++) {
        if ((set & (set - 1)) == 0) {
            one_kind(s, reach, (uint32_t)__builtin_ctz(set), set, states);
            continue;
        }
        int64_t *best = s->best[set];
        for (int v = 0; v < states; v++) {
            best[v] = PLACE_INFINITE;
            s->pick[set][v] = (struct pick){ PICK_NONE, 0 };
            for (unsigned sub = (set - 1) & set; sub > (set ^ sub);
                 sub = (sub - 1) & set) {
                const int64_t c = s->best[sub][v] + s->best[set ^ sub][v];
                if (c < best[v]) {
                    best[v] = c;
                    s->pick[set][v] = (struct pick){ PICK_SPLIT, (uint8_t)sub };
                }
            }
        }
        relax(s, reach, set);
    }
}

// Take over the tree for a subset that begins at state `v`. The kind numbers
// of the subset begin at `base`.
static void keep(struct stk_search *s, unsigned set, int v, uint32_t base)
{
    s->in_tree[v] = true;
    for (;;) {
        const struct pick pick = s->pick[set][v];
        switch ((enum pick_kind)pick.kind) {
        case PICK_HERE:
            s->kind[base + (uint32_t)__builtin_ctz(set)].at = (int16_t)v;
            return;
        case PICK_HOP:
            if (!s->in_tree[pick.arg])
                s->parent[pick.arg] = (int16_t)v;
            v = pick.arg;
            s->in_tree[v] = true;
            break;
        case PICK_SPLIT:
            keep(s, pick.arg, v, base);
            set ^= pick.arg;
            break;
        case PICK_NONE:
            return;
        }
    }
}

static void clear_tree(struct stk_search *s)
{
    memset(s->in_tree, 0, sizeof(s->in_tree));
    for (int v = 0; v < PLACE_STATES; v++)
        s->parent[v] = -1;
}

static int64_t price_at(const struct stk_search *s, const struct kind *k)
{
    for (uint32_t i = 0; i < k->count; i++)
        if (s->price[k->first + i].state == (uint8_t)k->at)
            return s->price[k->first + i].cost;
    return 0;
}

static int64_t tree_cost(const struct stk_search *s, const struct stk_board *b)
{
    int64_t sum = 0;
    for (int v = 0; v < b->states; v++)
        if (s->parent[v] >= 0)
            sum = stk_cost_sum(sum, stk_board_hop(b, s->parent[v], v)->cost);
    for (uint32_t k = 0; k < s->kinds; k++)
        sum = stk_cost_sum(sum, price_at(s, &s->kind[k]));
    return sum;
}

// One kind after the other, each at the state of the tree from which it is
// cheapest, beginning with number `begin`.
static void join_from(struct stk_search *s, const struct stk_reach *reach,
                      int root, int states, uint32_t begin)
{
    clear_tree(s);
    s->in_tree[root] = true;
    for (uint32_t i = 0; i < s->kinds; i++) {
        const uint32_t k = (begin + i) % s->kinds;
        one_kind(s, reach, k, 1, states);
        int from = root;
        for (int v = 0; v < states; v++)
            if (s->in_tree[v] && s->best[1][v] < s->best[1][from])
                from = v;
        keep(s, 1, from, k);
    }
}

// The order matters: the best of some.
static void join_one_by_one(struct stk_search *s, const struct stk_reach *reach,
                            const struct stk_board *b, int root)
{
    int64_t least = INT64_MAX;
    uint32_t best = 0;
    for (uint32_t k = 0; k < s->kinds && k < ORDERS; k++) {
        join_from(s, reach, root, b->states, k);
        const int64_t cost = tree_cost(s, b);
        if (cost < least) {
            least = cost;
            best = k;
        }
    }
    join_from(s, reach, root, b->states, best);
}

// Nothing to insert: frames at the root satisfy everybody, and nobody would
// rather have others.
static bool all_at_root(struct stk_search *s, int root)
{
    for (uint32_t n = 0; n < s->kinds; n++) {
        const struct kind *k = &s->kind[n];
        bool here = false;
        for (uint32_t i = 0; i < k->count && !here; i++) {
            const struct price *p = &s->price[k->first + i];
            here = p->state == root && p->cost == 0;
        }
        if (!here)
            return false;
    }
    for (uint32_t n = 0; n < s->kinds; n++)
        s->kind[n].at = (int16_t)root;
    return true;
}

// --- what was solved before -------------------------------------------------

static uint32_t hash_problem(const struct stk_search *s, uint32_t board,
                             int root)
{
    uint64_t h = (uint64_t)board << 8 | (uint64_t)root;
    for (uint32_t n = 0; n < s->kinds; n++) {
        h = (h ^ s->kind[n].count) * UINT64_C(0x9e3779b97f4a7c15);
        for (uint32_t i = 0; i < s->kind[n].count; i++) {
            const struct price *p = &s->price[s->kind[n].first + i];
            h = (h ^ (uint64_t)p->cost << 8 ^ p->state) *
                UINT64_C(0x9e3779b97f4a7c15);
            h ^= h >> 31;
        }
    }
    return (uint32_t)(h ^ h >> 32);
}

static bool same_problem(const struct stk_search *s, const struct solved *m,
                         uint32_t hash, uint32_t board, int root)
{
    if (m->hash != hash || m->board != board || m->root != root ||
        m->kinds != s->kinds)
        return false;
    for (uint32_t n = 0; n < s->kinds; n++) {
        const struct kind *a = &s->kind[n], *b = &m->kind[n];
        if (a->count != b->count)
            return false;
        for (uint32_t i = 0; i < a->count; i++) {
            const struct price *pa = &s->price[a->first + i];
            const struct price *pb = &m->price[b->first + i];
            if (pa->state != pb->state || pa->cost != pb->cost)
                return false;
        }
    }
    return true;
}

static void forget(struct stk_search *s)
{
    for (unsigned i = 0; i < MEMO_SLOTS; i++) {
        free(s->memo[i]);
        s->memo[i] = NULL;
    }
    s->remembered = 0;
}

static struct solved *remember(struct stk_search *s, uint32_t hash,
                               uint32_t board, int root)
{
    const size_t kinds = s->kinds * sizeof(struct kind);
    const size_t prices = s->prices * sizeof(struct price);
    if (s->remembered == MEMO_LIMIT)
        forget(s);
    struct solved *m =
        malloc(sizeof(*m) + prices + kinds + s->kinds * sizeof(int16_t));
    if (!m)
        return NULL;
    *m = (struct solved){
        .hash = hash,
        .board = board,
        .root = root,
        .kinds = s->kinds,
        .prices = s->prices,
        .price = (struct price *)(m + 1),
    };
    m->kind = (struct kind *)(m->price + s->prices);
    m->at = (int16_t *)(m->kind + s->kinds);
    memcpy(m->price, s->price, prices);
    memcpy(m->kind, s->kind, kinds);
    uint32_t at = hash % MEMO_SLOTS;
    while (s->memo[at])
        at = (at + 1) % MEMO_SLOTS;
    s->memo[at] = m;
    s->remembered++;
    return m;
}

static const struct solved *recall(const struct stk_search *s, uint32_t hash,
                                   uint32_t board, int root)
{
    uint32_t at = hash % MEMO_SLOTS;
    for (; s->memo[at]; at = (at + 1) % MEMO_SLOTS)
        if (same_problem(s, s->memo[at], hash, board, root))
            return s->memo[at];
    return NULL;
}

static const struct solved *solve(struct stk_search *s, struct stk_board *b,
                                  const struct stk_reach *reach, int root)
{
    const uint32_t hash = hash_problem(s, b->number, root);
    const struct solved *known = recall(s, hash, b->number, root);
    if (known)
        return known;
    struct solved *m = remember(s, hash, b->number, root);
    if (!m)
        return NULL;
    const unsigned exact = s->kinds < EXACT ? s->kinds : EXACT;
    all_subsets(s, reach, exact, b->states);
    m->bound = s->best[(1u << exact) - 1][root];
    if (exact == s->kinds) {
        clear_tree(s);
        keep(s, (1u << exact) - 1, root, 0);
    } else {
        join_one_by_one(s, reach, b, root);
    }
    m->cost = tree_cost(s, b);
    for (int v = 0; v < b->states; v++)
        if (s->parent[v] >= 0) {
            m->step[m->steps][0] = (uint8_t)s->parent[v];
            m->step[m->steps++][1] = (uint8_t)v;
        }
    for (uint32_t n = 0; n < s->kinds; n++)
        m->at[n] = s->kind[n].at;
    return m;
}

// --- one pin ----------------------------------------------------------------

// Only what the ends find at the root counts: no step is known or needed.
static const struct stk_reach *no_steps(struct stk_reach *r, enum stk_home home)
{
    r->count = 0;
    for (int v = 0; v < PLACE_STATES; v++)
        r->distance[v] = UINT64_MAX;
    r->distance[stk_state_of(home, 0)] = 0;
    return r;
}

static void take_tree(struct stk_tree *out, const struct solved *m)
{
    out->steps = m ? m->steps : 0;
    for (unsigned i = 0; i < out->steps; i++) {
        out->step[i].from = m->step[i][0];
        out->step[i].to = m->step[i][1];
    }
}

// From one root. With `at` the states of the ends are told, and what the tree
// costs itself.
static enum pen_status from_root(struct stk_search *s, struct stk_board *b,
                                 enum stk_home home, const struct stk_end *ends,
                                 uint32_t count, struct stk_tree *out,
                                 int16_t *at, struct pen_error *err)
{
    struct stk_reach none;
    const struct stk_reach *reach =
        b ? stk_board_reach(b, home) : no_steps(&none, home);
    const int root = stk_state_of(home, 0);
    const struct solved *m = NULL;
    if (!reach || !sort_ends(s, reach, ends, count, &out->value))
        return stk_plan_no_memory(err);
    out->root = root;
    out->bound = out->value;
    if (!all_at_root(s, root) && b) {
        m = solve(s, b, reach, root);
        if (!m)
            return stk_plan_no_memory(err);
        out->value.cost = stk_cost_sum(out->value.cost, m->cost);
        out->bound.cost = stk_cost_sum(out->bound.cost, m->bound);
    }
    out->value.cost += home * TICK_ROOT;
    out->bound.cost += home * TICK_ROOT;
    take_tree(out, m);
    if (!at)
        return PEN_OK;
    out->itself = (struct stk_value){ .cost = home * TICK_ROOT };
    for (unsigned i = 0; i < out->steps; i++)
        out->itself.cost = stk_cost_sum(
            out->itself.cost,
            stk_board_hop(b, out->step[i].from, out->step[i].to)->cost);
    for (uint32_t e = 0; e < count; e++) {
        const uint32_t n = s->kind_of[e];
        at[e] = n == UINT32_MAX ? -1 : m ? m->at[n] : s->kind[n].at;
        if (at[e] < 0)
            out->itself.bad++;
        else
            out->itself.loss +=
                stk_loss_of(reach->distance[at[e]], ends[e].weight);
    }
    return PEN_OK;
}

// Whether every end finds what it would like best at one root, where steps
// need not be known. The first home is taken, as it would be by a search.
static bool root_is_best(const struct stk_end *ends, uint32_t count,
                         uint32_t roots, enum stk_home *home)
{
    for (unsigned h = 0; h < STK_HOMES; h++) {
        const int root = stk_state_of(h, 0);
        bool all = roots & STK_HOME_BIT(h);
        for (uint32_t e = 0; e < count && all; e++) {
            const struct stk_value *here = NULL;
            for (uint32_t i = 0; i < ends[e].count && !here; i++)
                if (ends[e].offers[i].state == root)
                    here = &ends[e].offers[i].value;
            all = here != NULL;
            for (uint32_t i = 0; i < ends[e].count && all; i++)
                all = stk_value_compare(here, &ends[e].offers[i].value) <= 0;
        }
        if (all) {
            *home = (enum stk_home)h;
            return true;
        }
    }
    return false;
}

enum pen_status stk_search_tree(struct stk_planner *p,
                                const struct stk_board_key *key, uint32_t roots,
                                const struct stk_end *ends, uint32_t count,
                                struct stk_tree *out, int16_t *at,
                                struct pen_error *err)
{
    struct stk_search *s = p->search;
    struct stk_board *b = NULL;
    enum stk_home home;
    if (!s)
        s = p->search = calloc(1, sizeof(*s));
    if (!s)
        return stk_plan_no_memory(err);
    if (root_is_best(ends, count, roots, &home))
        return from_root(s, NULL, home, ends, count, out, at, err);
    PEN_TRY(stk_board_get(p, key, &b, err));
    // A pin that may give several memory types gives one: the best of them,
    // and of equals the first (host before pinned before device).
    struct stk_value bound;
    int best = -1;
    for (unsigned h = 0; h < STK_HOMES; h++) {
        struct stk_tree tree;
        if (!(roots & STK_HOME_BIT(h)))
            continue;
        PEN_TRY(
            from_root(s, b, (enum stk_home)h, ends, count, &tree, NULL, err));
        if (best < 0 || stk_value_compare(&tree.bound, &bound) < 0)
            bound = tree.bound;
        if (best < 0 || stk_value_compare(&tree.value, &out->value) < 0) {
            *out = tree;
            best = (int)h;
        }
    }
    if (at)
        PEN_TRY(
            from_root(s, b, (enum stk_home)best, ends, count, out, at, err));
    out->bound = bound;
    return PEN_OK;
}

void stk_search_finish(struct stk_search **s)
{
    if (!*s)
        return;
    forget(*s);
    free((*s)->price);
    free((*s)->kind);
    free((*s)->kind_of);
    free(*s);
    *s = NULL;
}
