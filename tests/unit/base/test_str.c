// Growing text, arenas, checked arithmetic, nearest words and sizes; each
// also with every allocation failing in turn.

#include <stdio.h>

#include "src/base/str.h"

#include "alloc_fail.h"
#include "pen_test.h"

PEN_TEST(text_grows_to_what_was_added)
{
    struct stk_text t = { 0 };
    char want[4096] = "";
    size_t length = 0;
    for (int i = 0; i < 300; i++) {
        stk_text_addf(&t, "%d,", i);
        length += (size_t)sprintf(want + length, "%d,", i);
    }
    stk_text_add(&t, "end");
    stk_text_add_n(&t, "ing?", 3);
    strcat(want, "ending");
    assert_int_equal(t.length, strlen(want));
    char *text = stk_text_take(&t);
    assert_string_equal(text, want);
    assert_null(t.data);
    assert_int_equal(t.length, 0);
    free(text);
}

PEN_TEST(plain_text_cannot_steer_a_terminal)
{
    struct stk_text t = { 0 };
    stk_text_add_plain(&t, "a\033[31m\n\302\2331m\177\302\240\303\234\302");
    char *text = stk_text_take(&t);
    assert_string_equal(text, "a?[31m??1m?\302\240\303\234\302");
    free(text);
    // Nor turn the direction of a line.
    stk_text_add_plain(&t, "a\342\200\256b\342\201\246c\342\200\246\342\200");
    text = stk_text_take(&t);
    assert_string_equal(text, "a?b?c\342\200\246\342\200");
    free(text);
}

PEN_TEST(text_of_nothing_is_empty_and_not_null)
{
    struct stk_text t = { 0 };
    char *text = stk_text_take(&t);
    assert_string_equal(text, "");
    free(text);

    stk_text_add(&t, "");
    stk_text_add_n(&t, NULL, 0);
    text = stk_text_take(&t);
    assert_string_equal(text, "");
    free(text);
    stk_text_finish(&t);
}

PEN_TEST(text_remembers_that_memory_was_short)
{
    char big[1000];
    memset(big, 'x', sizeof(big));
    unsigned nth = 1;
    for (;; nth++) {
        struct stk_text t = { 0 };
        pen_alloc_fail_arm(nth, false);
        stk_text_add(&t, "a");
        stk_text_add_n(&t, big, sizeof(big));
        stk_text_addf(&t, "%1000d", 5);
        stk_text_add(&t, "b");
        char *text = stk_text_take(&t);
        const bool fired = pen_alloc_fail_disarm();
        assert_int_equal(text == NULL, fired);
        assert_null(t.data);
        assert_false(t.failed);
        if (!fired) {
            assert_int_equal(strlen(text), 2002);
            free(text);
            break;
        }
    }
    assert_true(nth > 3);

    struct stk_text t = { 0 };
    pen_alloc_fail_arm(1, false);
    char *text = stk_text_take(&t);
    assert_true(pen_alloc_fail_disarm());
    assert_null(text);
}

PEN_TEST(text_refuses_a_length_beyond_the_address_space)
{
    struct stk_text t = { 0 };
    stk_text_add(&t, "abc");
    stk_text_add_n(&t, "abc", SIZE_MAX - 2);
    assert_true(t.failed);
    assert_null(stk_text_take(&t));
}

PEN_TEST(arena_gives_zeroed_aligned_memory)
{
    struct stk_arena a = { 0 };
    static const size_t sizes[] = { 1, 0, 16, 17, 4000, 100, 5000, 3, 70000 };
    unsigned char *got[9];
    for (size_t i = 0; i < 9; i++) {
        got[i] = stk_arena_alloc(&a, sizes[i]);
        assert_non_null(got[i]);
        assert_int_equal((uintptr_t)got[i] % 16, 0);
        for (size_t k = 0; k < sizes[i]; k++)
            assert_int_equal(got[i][k], 0);
        memset(got[i], (int)i + 1, sizes[i]);
    }
    for (size_t i = 0; i < 9; i++)
        for (size_t k = 0; k < sizes[i]; k++)
            assert_int_equal(got[i][k], i + 1);
    assert_string_equal(stk_arena_strdup(&a, "word"), "word");
    assert_string_equal(stk_arena_printf(&a, "%s-%d", "n", 7), "n-7");
    stk_arena_finish(&a);
    assert_null(a.blocks);
    stk_arena_finish(&a);
}

PEN_TEST(a_large_piece_keeps_the_space_left_in_the_block)
{
    struct stk_arena a = { 0 };
    assert_non_null(stk_arena_alloc(&a, 16));
    pen_alloc_fail_arm(0, false);
    assert_non_null(stk_arena_alloc(&a, 100000));
    for (int i = 0; i < 50; i++)
        assert_non_null(stk_arena_alloc(&a, 32));
    pen_alloc_fail_disarm();
    assert_int_equal(pen_alloc_fail_count(), 1);
    stk_arena_finish(&a);
}

PEN_TEST(arena_says_when_memory_is_short)
{
    struct stk_arena a = { 0 };
    pen_alloc_fail_arm(1, true);
    void *memory = stk_arena_alloc(&a, 8);
    char *copy = stk_arena_strdup(&a, "x");
    char *text = stk_arena_printf(&a, "%d", 1);
    assert_true(pen_alloc_fail_disarm());
    assert_null(memory);
    assert_null(copy);
    assert_null(text);
    assert_null(stk_arena_alloc(&a, SIZE_MAX));
    assert_null(stk_arena_alloc(&a, SIZE_MAX - 20));
    stk_arena_finish(&a);
}

PEN_TEST(arithmetic_tells_overflow)
{
    size_t v = 0;
    assert_true(stk_mul(1u << 31, 2, &v));
    assert_int_equal(v, 1ull << 32);
    assert_false(stk_mul(SIZE_MAX / 2 + 1, 2, &v));
    assert_true(stk_add(SIZE_MAX - 1, 1, &v));
    assert_int_equal(v, SIZE_MAX);
    assert_false(stk_add(SIZE_MAX, 1, &v));
    static const size_t cases[][3] = {
        { 0, 64, 0 },    { 1, 64, 64 }, { 64, 64, 64 },
        { 65, 64, 128 }, { 7, 1, 7 },   { SIZE_MAX - 63, 64, SIZE_MAX - 63 },
    };
    for (size_t i = 0; i < 6; i++) {
        assert_true(stk_align(cases[i][0], cases[i][1], &v));
        assert_int_equal(v, cases[i][2]);
    }
    assert_false(stk_align(SIZE_MAX - 62, 64, &v));
}

static const char *const words[] = { "GaussianBlur", "GaussianBlurCV",
                                     "ResizeNPPI",   "StatSink",
                                     "CudaMemCopy",  "input",
                                     "output",       NULL };

static const char *next_word(const void *cookie, size_t i)
{
    return ((const char *const *)cookie)[i];
}

PEN_TEST(nearest_finds_misspelt_words)
{
    static const char *const cases[][2] = {
        { "GausianBlur", "GaussianBlur" },
        { "gaussianblur", "GaussianBlur" },
        { "GaussianBlruCV", "GaussianBlurCV" },
        { "ResizeNPI", "ResizeNPPI" },
        { "StatSnik", "StatSink" },
        { "imput", "input" },
        { "ouptut", "output" },
        { "CudaMemcpy", "CudaMemCopy" },
    };
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        const char *got = stk_nearest(cases[i][0], next_word, words);
        assert_non_null(got);
        assert_string_equal(got, cases[i][1]);
    }
}

PEN_TEST(nearest_gives_nothing_beyond_a_third_of_the_word)
{
    assert_null(stk_nearest("Zebra", next_word, words));
    assert_null(stk_nearest("", next_word, words));
    assert_null(stk_nearest("in", next_word, words));
    static const char *const six[] = { "abcdef", NULL };
    assert_non_null(stk_nearest("abcdxy", next_word, six));
    assert_null(stk_nearest("abcxyz", next_word, six));
    // a swap of neighbours is one step, not two
    static const char *const three[] = { "abc", NULL };
    assert_non_null(stk_nearest("acb", next_word, three));
    assert_null(stk_nearest("axy", next_word, three));
}

PEN_TEST(nearest_survives_endless_words)
{
    char word[1000];
    memset(word, 'a', sizeof(word) - 1);
    word[sizeof(word) - 1] = 0;
    const char *list[] = { word, NULL };
    assert_null(stk_nearest(word, next_word, list));
    assert_null(stk_nearest("aaaa", next_word, list));
}

PEN_TEST(sizes_are_read_with_units)
{
    static const struct {
        const char *text;
        uint64_t bytes;
    } good[] = {
        { "0", 0 },
        { "512", 512 },
        { "512B", 512 },
        { "4KiB", 4096 },
        { "4 kib", 4096 },
        { "512MiB", 512ull << 20 },
        { "1.5 GiB", 1536ull << 20 },
        { " 2TiB ", 2ull << 40 },
        { "0.25MiB", 256 << 10 },
        { "1.0000000001GiB", 1ull << 30 },
        { "3KB", 3000 },
        { "1.5MB", 1500000 },
        { "1GB", 1000000000 },
        { "18446744073709551615", UINT64_MAX },
        { "16777215TiB", 16777215ull << 40 },
    };
    for (size_t i = 0; i < sizeof(good) / sizeof(good[0]); i++) {
        uint64_t bytes = 1;
        if (!stk_parse_size(good[i].text, &bytes))
            fail_msg("\"%s\" was refused", good[i].text);
        assert_int_equal(bytes, good[i].bytes);
    }
    static const char *const bad[] = {
        "",
        " ",
        "-1",
        "+1",
        "1.5",
        "1.5B",
        ".5MiB",
        "1.MiB",
        "MiB",
        "1 XiB",
        "1MiBx",
        "1e3",
        "0x10",
        "1,5MiB",
        "nan",
        "inf",
        "1 2",
        "1MiB 2",
        "18446744073709551616",
        "16777216TiB",
        "99999999999999999999GiB",
    };
    for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
        uint64_t bytes = 77;
        if (stk_parse_size(bad[i], &bytes))
            fail_msg("\"%s\" was taken for a size", bad[i]);
        assert_int_equal(bytes, 77);
    }
}

PEN_TEST(sizes_are_printed_with_three_figures_and_more)
{
    static const struct {
        uint64_t bytes;
        const char *text;
    } cases[] = {
        { 0, "0 B" },
        { 1023, "1023 B" },
        { 1024, "1.00 KiB" },
        { 1536, "1.50 KiB" },
        { 1536ull << 20, "1.50 GiB" },
        { (1ull << 20) - 1, "1.00 MiB" },
        { (1ull << 20) - 6, "1023.99 KiB" },
        { (1ull << 40) + (1ull << 39), "1.50 TiB" },
        { 1ull << 60, "1.00 EiB" },
        { 5ull << 58, "1.25 EiB" },
        { UINT64_MAX, "16.00 EiB" },
    };
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        char text[32];
        stk_format_size(cases[i].bytes, text, sizeof(text));
        assert_string_equal(text, cases[i].text);
    }
    char tiny[4];
    stk_format_size(1536, tiny, sizeof(tiny));
    assert_string_equal(tiny, "1.5");
}

PEN_TEST(the_clock_does_not_go_back)
{
    int64_t last = stk_now();
    assert_true(last > 0);
    for (int i = 0; i < 1000; i++) {
        const int64_t now = stk_now();
        assert_true(now >= last);
        last = now;
    }
}

PEN_TEST_MAIN(PEN_CASE(text_grows_to_what_was_added),
              PEN_CASE(plain_text_cannot_steer_a_terminal),
              PEN_CASE(text_of_nothing_is_empty_and_not_null),
              PEN_CASE(text_remembers_that_memory_was_short),
              PEN_CASE(text_refuses_a_length_beyond_the_address_space),
              PEN_CASE(arena_gives_zeroed_aligned_memory),
              PEN_CASE(a_large_piece_keeps_the_space_left_in_the_block),
              PEN_CASE(arena_says_when_memory_is_short),
              PEN_CASE(arithmetic_tells_overflow),
              PEN_CASE(nearest_finds_misspelt_words),
              PEN_CASE(nearest_gives_nothing_beyond_a_third_of_the_word),
              PEN_CASE(nearest_survives_endless_words),
              PEN_CASE(sizes_are_read_with_units),
              PEN_CASE(sizes_are_printed_with_three_figures_and_more),
              PEN_CASE(the_clock_does_not_go_back))
