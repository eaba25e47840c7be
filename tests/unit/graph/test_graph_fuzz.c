// Seeded mutations of pipeline files: nothing crashes, every refusal has a
// text and a place, and what is taken is a sound graph.

#include <dirent.h>

#include "graph_fixture.h"

static const char base_file[] =
    "{\n  \"pipeline\": { \"name\": \"n\", \"description\": \"d\" },\n"
    "  \"settings\": { \"device\": \"auto\", \"queueSize\": 4, \"budget\": { "
    "\"host\": \"1MiB\" } },\n"
    "  \"modules\": {\n"
    "    \"s\": { \"type\": \"TestSignal\", \"props\": { \"width\": 64, "
    "\"height\": 48, \"pattern\": \"GRID\", \"rate\": \"30000/1001\" } },\n"
    "    \"b\": { \"type\": \"GaussianBlur\", \"props\": { \"kernelSize\": 15, "
    "\"sigma\": 2.5 } },\n"
    "    \"u\": { \"type\": \"CudaMemCopyH2D\" },\n"
    "    \"m\": { \"type\": \"Merge\", \"props\": { \"maxDelay\": 3 } },\n"
    "    \"k\": { \"type\": \"StatSink\", \"props\": { \"onError\": \"drop\" } "
    "}\n  },\n"
    "  \"connections\": [\n"
    "    { \"from\": \"s\", \"to\": \"u\" },\n"
    "    { \"from\": \"u.output\", \"to\": \"b.input\", \"queue\": { "
    "\"depth\": 2, \"policy\": \"block\" } },\n"
    "    { \"from\": \"b\", \"to\": \"m.input_2\", \"sieve\": true },\n"
    "    { \"from\": \"s\", \"to\": \"m\" },\n"
    "    { \"from\": \"m\", \"to\": \"k\" }\n  ]\n}\n";

// Pieces that mean something to the scanner or the reader.
static const char *const pieces[] = {
    "{",
    "}",
    "[",
    "]",
    ",",
    ":",
    "\"",
    "\\",
    "\\u",
    "\\ud800",
    "null",
    "true",
    "-",
    "1e400",
    "0",
    "-1",
    "15.5",
    "9999999999",
    "NaN",
    "\"#\"",
    "\"\"",
    "\"s\"",
    "\"s.\"",
    "\"input\"",
    "\"type\"",
    "\"from\"",
    "\n",
    "\t",
    "\xff",
    "\xef\xbb\xbf",
    "\xf0\x9f\x8e\xac",
    "/*",
    "'",
    "~1",
    ".",
    "\"feedback\":1,",
    "\"sieve\":false,",
    "\"props\":[],",
    "\"props\":{},",
    "\"to\":\"s\",",
    "\"to\":\"b\",",
};
enum { PIECES = sizeof(pieces) / sizeof(pieces[0]) };

struct bytes {
    char *data;
    size_t length, room;
};

static void splice(struct bytes *b, size_t at, size_t remove,
                   const char *insert, size_t length)
{
    if (remove > b->length - at)
        remove = b->length - at;
    if (b->length - remove + length > b->room)
        return;
    memmove(b->data + at + length, b->data + at + remove,
            b->length - at - remove);
    memcpy(b->data + at, insert, length);
    b->length += length - remove;
}

static void mutate(struct bytes *b, uint64_t *seed)
{
    const size_t at = b->length ? pen_test_random(seed) % b->length : 0;
    const size_t n = 1 + pen_test_random(seed) % 24;
    char copy[64];
    switch (pen_test_random(seed) % 7) {
    case 0:  // a bit
        if (b->length)
            b->data[at] ^= (char)(1 << pen_test_random(seed) % 8);
        break;
    case 1:  // any byte
        if (b->length)
            b->data[at] = (char)pen_test_random(seed);
        break;
    case 2:
        splice(b, at, n, "", 0);
        break;
    case 3: {
        const char *piece = pieces[pen_test_random(seed) % PIECES];
        splice(b, at, 0, piece, strlen(piece));
        break;
    }
    case 4: {
        const char *piece = pieces[pen_test_random(seed) % PIECES];
        splice(b, at, n % 4, piece, strlen(piece));
        break;
    }
    case 5: {  // a part of the file at another place
        const size_t from = b->length ? pen_test_random(seed) % b->length : 0;
        const size_t most = b->length - from;
        const size_t length = n < most ? n : most;
        memcpy(copy, b->data + from, length);
        splice(b, at, 0, copy, length);
        break;
    }
    default:  // cut
        if (pen_test_random(seed) % 8 == 0)
            b->length = at;
        break;
    }
}

static void check_sound(const struct checked *c)
{
    const struct stk_graph *g = c->graph;
    for (uint32_t i = 0; i < g->edge_count; i++) {
        const struct stk_edge *e = &g->edges[i];
        assert_true(e->from < e->to && e->to < g->node_count);
        assert_true(e->from_pin < g->nodes[e->from].outputs);
        assert_true(e->to_pin < g->nodes[e->to].inputs);
    }
}

static void check_issues(const struct checked *c, const struct bytes *b)
{
    int line = 1, column = 1;
    const struct pen_issue *is;
    for (size_t i = 0; (is = pen_issues_get(c->issues, i)); i++) {
        assert_true(is->message[0]);
        assert_true(stk_utf8_valid(is->message));
        assert_true(stk_utf8_valid(is->pointer));
        assert_true(stk_utf8_valid(is->suggestion));
        assert_true(strlen(is->code) == 4);
        assert_true(is->line > line ||
                    (is->line == line && is->column >= column));
        line = is->line;
        column = is->column;
        assert_true((size_t)line <= b->length + 1);
    }
    if (c->status == PEN_E_CONFIG)
        assert_true(pen_issues_count(c->issues, PEN_SEVERITY_ERROR) > 0);
    else
        assert_int_equal(pen_issues_count(c->issues, PEN_SEVERITY_ERROR), 0);
}

static void fuzz(const char *text, size_t length, unsigned rounds,
                 uint64_t seed, unsigned *taken, unsigned *resolved)
{
    struct bytes b = { .room = length + 512 };
    b.data = malloc(b.room);
    assert_non_null(b.data);
    for (unsigned round = 0; round < rounds; round++) {
        memcpy(b.data, text, length);
        b.length = length;
        const unsigned steps = 1 + pen_test_random(&seed) % 4;
        for (unsigned i = 0; i < steps; i++)
            mutate(&b, &seed);
        // An exact block, so that a read past the end is seen.
        char *exact = malloc(b.length + 1);
        assert_non_null(exact);
        memcpy(exact, b.data, b.length);
        char *end = realloc(exact, b.length ? b.length : 1);
        assert_non_null(end);
        struct checked c = check_bytes(end, b.length);
        assert_true(c.status == PEN_OK || c.status == PEN_E_CONFIG);
        check_issues(&c, &b);
        if (c.desc)
            ++*taken;
        if (c.graph) {
            ++*resolved;
            check_sound(&c);
        }
        finish(&c);
        free(end);
    }
    free(b.data);
}

PEN_TEST(mutations_of_a_file_never_crash_and_always_have_texts)
{
    unsigned taken = 0, resolved = 0;
    const unsigned rounds = pen_test_seeds(4000, 200000);
    fuzz(base_file, sizeof(base_file) - 1, rounds, 20240917, &taken, &resolved);
    print_message("# %u files: %u read, %u resolved\n", rounds, taken,
                  resolved);
    // The mutations reach behind the scanner, and do not leave all intact.
    assert_true(taken > rounds / 20 && taken < rounds);
    assert_true(resolved > 0 && resolved < taken);
}

PEN_TEST(mutations_of_the_examples_never_crash)
{
    char folder[1024];
    snprintf(folder, sizeof(folder), "%s/examples", pen_test_source());
    DIR *dir = opendir(folder);
    if (!dir)
        PEN_SKIP("there is no folder %s", folder);
    const struct dirent *entry;
    unsigned files = 0;
    while ((entry = readdir(dir))) {
        const size_t n = strlen(entry->d_name);
        if (n < 5 || strcmp(entry->d_name + n - 5, ".json") != 0)
            continue;
        char path[2048];
        snprintf(path, sizeof(path), "%s/%s", folder, entry->d_name);
        size_t bytes = 0;
        char *text = pen_test_read_file(path, &bytes);
        unsigned taken = 0, resolved = 0;
        fuzz(text, bytes, pen_test_seeds(500, 20000), 7 + files, &taken,
             &resolved);
        free(text);
        files++;
    }
    closedir(dir);
    assert_true(files > 0);
}

PEN_TEST_MAIN(PEN_CASE(mutations_of_a_file_never_crash_and_always_have_texts),
              PEN_CASE(mutations_of_the_examples_never_crash))
