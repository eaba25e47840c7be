// The 4x4 table of memory types, for every set of capabilities.

#include "src/mem/dmabuf.h"

#include "pen_test.h"

enum { HOST = 1, EXPORT = 2, IMPORT = 4, SETS = 8 };

static const enum pen_mem_type mems[] = {
    PEN_MEM_HOST,
    PEN_MEM_HOST_PINNED,
    PEN_MEM_CUDA_DEVICE,
    PEN_MEM_DMABUF,
};

// Rows: HOST, HOST_PINNED, CUDA_DEVICE, DMABUF of the host, DMABUF of CUDA
// memory. Columns: HOST, HOST_PINNED, CUDA_DEVICE, DMABUF.
//   . nothing  U upgrade  M map  I import  E export  C copy  S staged  x
//   refused
static const char *const expected[SETS][5] = {
    [0] = { ".UCx", "..Cx", "CC.x", "MCS.", "CC.." },
    [HOST] = { ".UCU", "..CC", "CC.S", "MCS.", "CC.." },
    [EXPORT] = { ".UCC", "..CC", "CC.E", "MCS.", "CC.." },
    [IMPORT] = { ".UCx", "..Cx", "CC.x", "MCI.", "CC.." },
    [HOST | EXPORT] = { ".UCU", "..CC", "CC.E", "MCS.", "CC.." },
    [HOST | IMPORT] = { ".UCU", "..CC", "CC.S", "MCI.", "CC.." },
    [EXPORT | IMPORT] = { ".UCC", "..CC", "CC.E", "MCI.", "CC.." },
    [HOST | EXPORT | IMPORT] = { ".UCU", "..CC", "CC.E", "MCI.", "CC.." },
};

static struct stk_dmabuf_caps caps_of(unsigned set)
{
    struct stk_dmabuf_caps caps = {
        .host = (set & HOST) != 0,
        .export = (set & EXPORT) != 0,
        .import = (set & IMPORT) != 0,
    };
    if (!caps.host)
        strcpy(caps.why_host, "/dev/udmabuf is not there");
    if (!caps.export)
        strcpy(caps.why_export, "the driver exports none");
    if (!caps.import)
        strcpy(caps.why_import, "the driver imports none");
    return caps;
}

static char letter_of(enum stk_way way)
{
    switch (way) {
    case STK_WAY_NONE:
        return '.';
    case STK_WAY_UPGRADE:
        return 'U';
    case STK_WAY_MAP:
        return 'M';
    case STK_WAY_IMPORT:
        return 'I';
    case STK_WAY_EXPORT:
        return 'E';
    case STK_WAY_COPY:
        return 'C';
    case STK_WAY_STAGED:
        return 'S';
    case STK_WAY_REFUSED:
        return 'x';
    }
    return '?';
}

static enum stk_way way(int row, int column, const struct stk_dmabuf_caps *caps,
                        char *text, size_t size)
{
    const enum pen_mem_type from = row < 4 ? mems[row] : PEN_MEM_DMABUF;
    const enum stk_dmabuf_kind kind = row < 3    ? STK_DMABUF_NONE
                                      : row == 3 ? STK_DMABUF_HOST
                                                 : STK_DMABUF_CUDA;
    return stk_way_between(from, kind, mems[column], caps, text, size);
}

PEN_TEST(every_pair_has_a_way_or_a_reason)
{
    for (unsigned set = 0; set < SETS; set++) {
        const struct stk_dmabuf_caps caps = caps_of(set);
        for (int row = 0; row < 5; row++) {
            for (int column = 0; column < 4; column++) {
                char text[512] = "";
                const enum stk_way w =
                    way(row, column, &caps, text, sizeof(text));
                if (letter_of(w) != expected[set][row][column])
                    fail_msg("set %u, row %d, column %d: %c, not %c (%s)", set,
                             row, column, letter_of(w),
                             expected[set][row][column], text);
                assert_true(text[0] != 0);
            }
        }
    }
}

PEN_TEST(a_refusal_names_what_is_missing_and_the_way_round)
{
    const struct stk_dmabuf_caps caps = caps_of(0);
    for (int row = 0; row < 3; row++) {
        char text[512];
        assert_int_equal(way(row, 3, &caps, text, sizeof(text)),
                         STK_WAY_REFUSED);
        assert_non_null(strstr(text, "(/dev/udmabuf is not there)"));
        assert_non_null(strstr(text, "(the driver exports none)"));
        assert_non_null(strstr(text, "let the consumer take HOST, "
                                     "HOST_PINNED or CUDA_DEVICE frames"));
    }
}

PEN_TEST(unknown_reasons_leave_no_empty_brackets)
{
    const struct stk_dmabuf_caps caps = { 0 };
    char text[512];
    assert_int_equal(way(0, 3, &caps, text, sizeof(text)), STK_WAY_REFUSED);
    assert_null(strchr(text, '('));
    assert_non_null(strstr(text, "let the consumer"));
}

PEN_TEST(a_small_buffer_is_not_overrun)
{
    const struct stk_dmabuf_caps caps = caps_of(0);
    for (size_t size = 0; size < 40; size++) {
        char text[41];
        memset(text, '#', sizeof(text));
        assert_int_equal(way(2, 3, &caps, text, size), STK_WAY_REFUSED);
        assert_int_equal(text[size], '#');
        if (size)
            assert_true(strlen(text) < size);
    }
}

PEN_TEST(what_is_no_memory_type_is_refused)
{
    const struct stk_dmabuf_caps caps = caps_of(7);
    char text[64];
    assert_int_equal(stk_way_between(PEN_MEM_NONE, STK_DMABUF_NONE,
                                     PEN_MEM_HOST, &caps, text, sizeof(text)),
                     STK_WAY_REFUSED);
    assert_int_equal(stk_way_between(PEN_MEM_HOST, STK_DMABUF_NONE,
                                     PEN_MEM_COUNT, &caps, text, sizeof(text)),
                     STK_WAY_REFUSED);
}

PEN_TEST(a_block_of_cuda_memory_has_room_for_an_aligned_part)
{
    static const struct {
        size_t bytes, take;
    } cases[] = {
        { 1, 128 << 10 },
        { 64 << 10, 128 << 10 },
        { (64 << 10) + 1, 192 << 10 },
        { (2 << 20) - (64 << 10), 2 << 20 },
        { (2 << 20) - 1, 2 << 20 },
        { 2 << 20, 2 << 20 },
        { (2 << 20) + 1, (2 << 20) + (64 << 10) },
    };
    size_t take = 0;
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        assert_true(stk_dmabuf_cuda_bytes(cases[i].bytes, &take));
        assert_int_equal(take, cases[i].take);
    }
    assert_false(stk_dmabuf_cuda_bytes(SIZE_MAX, &take));
}

PEN_TEST_MAIN(PEN_CASE(a_block_of_cuda_memory_has_room_for_an_aligned_part),
              PEN_CASE(every_pair_has_a_way_or_a_reason),
              PEN_CASE(a_refusal_names_what_is_missing_and_the_way_round),
              PEN_CASE(unknown_reasons_leave_no_empty_brackets),
              PEN_CASE(a_small_buffer_is_not_overrun),
              PEN_CASE(what_is_no_memory_type_is_refused))
