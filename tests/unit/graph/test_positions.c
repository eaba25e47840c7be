// The scanner: places of pointers, and what it says about broken JSON.

#include <locale.h>
#include <math.h>

#include "graph_fixture.h"

struct scanned {
    enum pen_status status;
    struct pen_error err;
    struct pen_issues *issues;
    struct stk_positions *positions;
    json_t *root;
};

static struct scanned scan_bytes(const char *text, size_t length)
{
    struct scanned s = { .issues = pen_issues_create() };
    s.status = stk_positions_scan(text, length, "test.json", &s.positions,
                                  &s.root, s.issues, &s.err);
    assert_true((s.status == PEN_OK) == (s.root != NULL));
    assert_true((s.status == PEN_OK) == (s.positions != NULL));
    return s;
}

static struct scanned scan(const char *text)
{
    return scan_bytes(text, strlen(text));
}

static void drop(struct scanned *s)
{
    json_decref(s->root);
    stk_positions_destroy(&s->positions);
    pen_issues_destroy(&s->issues);
}

static void assert_place(const struct scanned *s, const char *pointer, int line,
                         int column)
{
    int l = 0, c = 0;
    if (!stk_positions_find(s->positions, pointer, strlen(pointer), &l, &c))
        fail_msg("no place for %s", pointer);
    if (l != line || c != column)
        fail_msg("%s is at %d:%d, not %d:%d", pointer, l, c, line, column);
}

static void assert_no_place(const struct scanned *s, const char *pointer)
{
    int l, c;
    assert_false(
        stk_positions_find(s->positions, pointer, strlen(pointer), &l, &c));
}

// `text` is refused at that place with that message.
static void refused_bytes(const char *text, size_t length, int line, int column,
                          const char *pointer, const char *message)
{
    struct scanned s = scan_bytes(text, length);
    assert_int_equal(s.status, PEN_E_CONFIG);
    assert_int_equal(s.err.status, PEN_E_CONFIG);
    assert_int_equal(pen_issues_count(s.issues, PEN_SEVERITY_INFO), 1);
    const struct pen_issue *is = pen_issues_get(s.issues, 0);
    assert_string_equal(is->code, "E000");
    assert_string_equal(is->message, message);
    assert_string_equal(is->pointer, pointer);
    if (is->line != line || is->column != column)
        fail_msg("\"%s\" at %d:%d, not %d:%d", message, is->line, is->column,
                 line, column);
    drop(&s);
}

static void refused(const char *text, int line, int column, const char *pointer,
                    const char *message)
{
    refused_bytes(text, strlen(text), line, column, pointer, message);
}

PEN_TEST(every_member_and_element_has_its_place)
{
    struct scanned s = scan("{\n"
                            "\t\"a\": { \"b\": [1, [true], {\"c\": null}] },\n"
                            "  \"\": \"x\"\n"
                            "}");
    assert_int_equal(s.status, PEN_OK);
    assert_place(&s, "", 1, 1);
    assert_place(&s, "/a", 2, 2);
    assert_place(&s, "/a/b", 2, 9);
    assert_place(&s, "/a/b/0", 2, 15);
    assert_place(&s, "/a/b/1", 2, 18);
    assert_place(&s, "/a/b/1/0", 2, 19);
    assert_place(&s, "/a/b/2/c", 2, 27);
    assert_place(&s, "/", 3, 3);
    assert_no_place(&s, "/b");
    assert_no_place(&s, "/a/b/3");
    assert_no_place(&s, "/a/b/01");
    assert_no_place(&s, "a");
    drop(&s);
}

PEN_TEST(keys_with_slash_and_tilde_are_found_escaped)
{
    struct scanned s = scan("{\"a/b\": 1,\n\"m~n\": {\"~1\": 2},\n"
                            "\"\\u00e9\\/\": 3}");
    assert_int_equal(s.status, PEN_OK);
    assert_place(&s, "/a~1b", 1, 2);
    assert_place(&s, "/m~0n", 2, 1);
    assert_place(&s, "/m~0n/~01", 2, 9);
    assert_place(&s, "/\xc3\xa9~1", 3, 1);
    assert_no_place(&s, "/a/b");
    struct stk_arena arena = { 0 };
    assert_string_equal(stk_pointer_join(&arena, "/x", "a/b~c"), "/x/a~1b~0c");
    assert_string_equal(stk_pointer_join(&arena, "", "plain"), "/plain");
    stk_arena_finish(&arena);
    drop(&s);
}

PEN_TEST(columns_count_characters_and_lines_end_in_three_ways)
{
    struct scanned s = scan("{\"\xc3\xa9\xe2\x82\xac\xf0\x9f\x8e\xac\": 1, "
                            "\"b\": 2,\r\n\"c\": 3,\r\"d\": 4,\n\"e\": 5}");
    assert_int_equal(s.status, PEN_OK);
    assert_place(&s, "/b", 1, 12);
    assert_place(&s, "/c", 2, 1);
    assert_place(&s, "/d", 3, 1);
    assert_place(&s, "/e", 4, 1);
    drop(&s);
}

PEN_TEST(a_byte_order_mark_takes_no_column)
{
    struct scanned s = scan("\xef\xbb\xbf{\"a\": 1}");
    assert_int_equal(s.status, PEN_OK);
    assert_place(&s, "", 1, 1);
    assert_place(&s, "/a", 1, 2);
    drop(&s);
}

PEN_TEST(values_are_what_jansson_reads)
{
    static const char *const texts[] = {
        "null",
        "true",
        "[false, -0, 0, 12, -7, 9223372036854775807, -9223372036854775808]",
        "[0.5, -1.25e3, 1E-2, 1e308, 2.2250738585072014e-308, 0e0, 123.0]",
        "\"plain \\\" \\\\ \\/ \\b\\f\\n\\r\\t \\u00e9\\ud83c\\udfac\"",
        "\"\xc3\xa9\xe2\x82\xac\xf0\x9f\x8e\xac\"",
        "{\"a\": {\"b\": [[], {}, [1, {\"c\": \"d\"}]]}, \"\": \"\"}",
        " \t\r\n[ 1 , 2 ]\n ",
    };
    for (size_t i = 0; i < sizeof(texts) / sizeof(texts[0]); i++) {
        struct scanned s = scan(texts[i]);
        if (s.status != PEN_OK)
            fail_msg("%s: %s", texts[i], s.err.text);
        json_t *expected = json_loads(texts[i], JSON_DECODE_ANY, NULL);
        assert_non_null(expected);
        assert_true(json_equal(s.root, expected));
        json_decref(expected);
        drop(&s);
    }
}

PEN_TEST(numbers_do_not_depend_on_the_locale)
{
    static const char *const comma[] = { "de_DE.UTF-8", "fr_FR.UTF-8", "de_DE",
                                         "fr_FR" };
    const char *old = NULL;
    for (size_t i = 0; i < sizeof(comma) / sizeof(comma[0]) && !old; i++)
        old = setlocale(LC_NUMERIC, comma[i]);
    if (!old)
        PEN_SKIP("no locale with a decimal comma is installed");
    struct scanned s = scan("[1.5, \"x\"]");
    const double value = json_real_value(json_array_get(s.root, 0));
    setlocale(LC_NUMERIC, "C");
    assert_int_equal(s.status, PEN_OK);
    assert_true(value == 1.5);
    drop(&s);
}

PEN_TEST(syntax_errors_name_place_found_and_expected)
{
    refused("", 1, 1, "", "the file is empty");
    refused(" \n ", 2, 2, "", "the file is empty");
    refused("{\"a\": 1", 1, 8, "",
            "the file ends inside the object that begins at 1:1");
    refused("{\"a\": [1, 2", 1, 12, "/a",
            "the file ends inside the array that begins at 1:7");
    refused("{", 1, 2, "",
            "the file ends inside the object that begins at 1:1");
    refused("[", 1, 2, "/0", "expected a value, found the end of the file");
    refused("{\"a\": 1,\n}", 1, 8, "",
            "no comma may stand before the '}' that ends the object");
    refused("[1, 2,]", 1, 6, "",
            "no comma may stand before the ']' that ends the array");
    refused("{\"a\": 1\n \"b\": 2}", 2, 2, "",
            "expected ',' or '}' after a member, found the next key");
    refused("[1 2]", 1, 4, "",
            "expected ',' or ']' after an element, found "
            "'2'");
    refused("{\"a\": [1}", 1, 9, "/a",
            "the array that begins at 1:7 is closed by ']', found '}'");
    refused("{\"a\" 1}", 1, 6, "/a", "expected ':' after a key, found '1'");
    refused("{a: 1}", 1, 2, "", "expected a key in double quotes, found 'a'");
    refused("{width: 1}", 1, 2, "",
            "expected a key in double quotes, found width");
    refused("{,}", 1, 2, "", "expected a key in double quotes, found ','");
    refused("{'a': 1}", 1, 2, "", "strings stand in double quotes");
    refused("[\xe2\x80\x9c"
            "a\xe2\x80\x9d]",
            1, 2, "/0", "strings stand in straight double quotes");
    refused("{} x", 1, 4, "", "expected the end of the file, found 'x'");
    refused("{}\n{}", 2, 1, "", "expected the end of the file, found '{'");
    refused("[True]", 1, 2, "/0", "expected a value, found True");
    refused("[None]", 1, 2, "/0", "expected a value, found None");
    refused("[truely]", 1, 2, "/0", "expected a value, found truely");
    refused("{\"a\": }", 1, 7, "/a", "expected a value, found '}'");
    refused("[// no\n1]", 1, 2, "/0",
            "JSON has no comments; a member whose key begins with # is one");
    refused("{/* no */}", 1, 2, "",
            "JSON has no comments; a member whose key begins with # is one");
    refused("{\"a\":\t@}", 1, 7, "/a", "expected a value, found '@'");
    refused("[\x01]", 1, 2, "/0",
            "expected a value, found the control character 0x01");
}

PEN_TEST(numbers_that_json_has_not_are_refused)
{
    refused("[NaN]", 1, 2, "/0", "JSON has no number NaN: numbers are finite");
    refused("[Infinity]", 1, 2, "/0",
            "JSON has no number Infinity: numbers are finite");
    refused("{\"a\": -Infinity}", 1, 7, "/a",
            "JSON has no number -Infinity: numbers are finite");
    refused("[1e999]", 1, 2, "/0", "the number 1e999 is too large");
    refused("[-1e400]", 1, 2, "/0", "the number -1e400 is too large");
    refused("[9223372036854775808]", 1, 2, "/0",
            "the integer 9223372036854775808 does not fit into 64 bits");
    refused("[-9223372036854775809]", 1, 2, "/0",
            "the integer -9223372036854775809 does not fit into 64 bits");
    refused("[007]", 1, 2, "/0", "a number must not begin with 0");
    refused("[+1]", 1, 2, "/0", "a number must not begin with +");
    refused("[.5]", 1, 2, "/0",
            "a number must not begin with its decimal point");
    refused("[1.]", 1, 4, "/0",
            "expected a digit after the decimal point, found ']'");
    refused("[1e]", 1, 4, "/0", "expected a digit of the exponent, found ']'");
    refused("[-]", 1, 3, "/0", "expected a digit after '-', found ']'");
    refused("[0x10]", 1, 3, "/0", "unexpected x10 in a number");
    refused("[1.5.2]", 1, 5, "/0", "unexpected '.' in a number");
    refused("1.5.2", 1, 4, "", "unexpected '.' in a number");
}

PEN_TEST(strings_that_json_has_not_are_refused)
{
    refused("{\"a\": \"b\n\"}", 1, 9, "/a",
            "the string that begins at 1:7 is not closed before the end of "
            "the line");
    refused("[\"abc", 1, 6, "/0",
            "the string that begins at 1:2 is not closed before the end of "
            "the file");
    refused("[\"a\tb\"]", 1, 4, "/0",
            "a tab inside a string must be written as an escape");
    refused("[\"a\x02\"]", 1, 4, "/0",
            "the control character 0x02 inside a string");
    refused("[\"C:\\dir\"]", 1, 5, "/0",
            "a backslash in a string must be followed by one of \" \\ / b f n "
            "r t u, found dir");
    refused("[\"\\u12g4\"]", 1, 3, "/0",
            "\\u must be followed by four hexadecimal digits");
    refused("[\"\\u0000\"]", 1, 3, "/0", "\\u0000 is not allowed in a string");
    refused("[\"\\ud800\"]", 1, 3, "/0", "\\ud800 is half of a surrogate pair");
    refused("[\"\\udc00\"]", 1, 3, "/0", "\\udc00 is half of a surrogate pair");
    refused("[\"\\ud800\\u0041\"]", 1, 3, "/0",
            "\\ud800 is half of a surrogate pair");
}

PEN_TEST(what_is_no_utf8_is_refused)
{
    static const char *const bad[] = {
        "[\"\xff\"]",              // never valid
        "[\"\x80\"]",              // continuation alone
        "[\"\xc0\xaf\"]",          // overlong
        "[\"\xe0\x80\x80\"]",      // overlong
        "[\"\xed\xa0\x80\"]",      // surrogate
        "[\"\xf0\x80\x80\x80\"]",  // overlong
        "[\"\xf4\x90\x80\x80\"]",  // above U+10FFFF
        "[\"\xc3\"]",              // cut
        "[\"\xe2\x82",             // cut by the end of the file
    };
    for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
        char message[80];
        snprintf(message, sizeof(message),
                 "the byte 0x%02x in a string is no valid UTF-8",
                 (unsigned char)bad[i][2]);
        refused(bad[i], 1, 3, "/0", message);
    }
    refused("\xff\xfe{\0}", 1, 1, "",
            "the file is UTF-16; JSON is read as UTF-8");
    refused("[\xff]", 1, 2, "/0",
            "expected a value, found the byte 0xff, which is no UTF-8");
    refused_bytes("[1]\0", 4, 1, 4, "",
                  "expected the end of the file, found a NUL byte");
    refused_bytes("[\"a\0b\"]", 7, 1, 4, "/0", "a NUL byte inside a string");
}

PEN_TEST(duplicate_keys_are_told_with_both_places)
{
    struct scanned s = scan("{\"a\": 1, \"b\": {\"c\": 1},\n \"a\": 2,\n"
                            " \"b\": {\"c\": 1, \"c\": 2}, \"x/y\": 0,\n"
                            " \"x\\/y\": 0}");
    assert_int_equal(s.status, PEN_E_CONFIG);
    assert_int_equal(pen_issues_count(s.issues, PEN_SEVERITY_ERROR), 4);
    static const struct {
        const char *pointer, *message;
        int line, column;
    } expected[] = {
        { "/a", "the key \"a\" is here a second time; the first is at 1:2", 2,
          2 },
        { "/b", "the key \"b\" is here a second time; the first is at 1:10", 3,
          2 },
        { "/b/c", "the key \"c\" is here a second time; the first is at 3:8", 3,
          16 },
        { "/x~1y",
          "the key \"x/y\" is here a second time; the first is at "
          "3:25",
          4, 2 },
    };
    for (size_t i = 0; i < 4; i++) {
        const struct pen_issue *is = pen_issues_get(s.issues, i);
        assert_string_equal(is->code, "E002");
        assert_string_equal(is->pointer, expected[i].pointer);
        assert_string_equal(is->message, expected[i].message);
        assert_int_equal(is->line, expected[i].line);
        assert_int_equal(is->column, expected[i].column);
    }
    drop(&s);
}

PEN_TEST(nesting_ends_at_256)
{
    char text[2 * (STK_MAX_DEPTH + 1) + 1];
    for (int depth = STK_MAX_DEPTH; depth <= STK_MAX_DEPTH + 1; depth++) {
        memset(text, '[', (size_t)depth);
        memset(text + depth, ']', (size_t)depth);
        struct scanned s = scan_bytes(text, 2 * (size_t)depth);
        if (depth == STK_MAX_DEPTH) {
            assert_int_equal(s.status, PEN_OK);
        } else {
            assert_int_equal(s.status, PEN_E_CONFIG);
            const struct pen_issue *is = issue_of(s.issues, "E000");
            assert_string_equal(is->message, "objects and arrays are nested "
                                             "more than 256 deep");
            assert_int_equal(is->column, 257);
        }
        drop(&s);
    }
}

PEN_TEST(too_many_values_are_a_limit)
{
    // A gigabyte and seconds: for the long runs only.
    if (!pen_test_seeds(0, 1))
        PEN_SKIP("PENSTOCK_TEST_LONG is not set");
    const size_t count = STK_MAX_VALUES + 1;
    char *text = malloc(2 * count + 2);
    assert_non_null(text);
    size_t n = 0;
    text[n++] = '[';
    for (size_t i = 0; i < count; i++) {
        text[n++] = '0';
        text[n++] = i + 1 < count ? ',' : ']';
    }
    struct scanned s = scan_bytes(text, n);
    assert_int_equal(s.status, PEN_E_LIMIT);
    drop(&s);
    free(text);
}

PEN_TEST(every_prefix_of_a_file_is_refused_with_a_text)
{
    static const char text[] =
        "{\"modules\": {\"a\": {\"type\": \"T\\n\\u00e9\", \"props\": "
        "{\"x\": [-1.5e3, true, null]}}}}";
    for (size_t length = 0; length + 1 < sizeof(text) - 1; length++) {
        struct scanned s = scan_bytes(text, length);
        assert_int_equal(s.status, PEN_E_CONFIG);
        const struct pen_issue *is = issue_of(s.issues, "E000");
        assert_true(is->message[0]);
        assert_int_equal(is->line, 1);
        assert_true(is->column >= 1 && is->column <= (int)length + 1);
        drop(&s);
    }
}

PEN_TEST(places_of_ten_thousand_modules_are_right)
{
    struct stk_text t = { 0 };
    stk_text_add(&t, "{\"modules\": {\n");
    for (int i = 0; i < 10000; i++)
        stk_text_addf(&t, "  \"m%d\": {\"type\": \"T\"}%s\n", i,
                      i < 9999 ? "," : "");
    stk_text_add(&t, "}}");
    struct scanned s = scan_bytes(t.data, t.length);
    assert_int_equal(s.status, PEN_OK);
    for (int i = 0; i < 10000; i++) {
        char pointer[64];
        snprintf(pointer, sizeof(pointer), "/modules/m%d/type", i);
        const int column = 3 + snprintf(NULL, 0, "\"m%d\": {", i);
        assert_place(&s, pointer, i + 2, column);
    }
    stk_text_finish(&t);
    drop(&s);
}

PEN_TEST(values_in_messages_are_cut_between_characters)
{
    char text[32];
    json_t *value = json_string("\xc3\xa9\xc3\xa9\xc3\xa9\xc3\xa9\xc3\xa9"
                                "\xc3\xa9\xc3\xa9\xc3\xa9\xc3\xa9\xc3\xa9"
                                "\xc3\xa9\xc3\xa9\xc3\xa9\xc3\xa9\xc3\xa9");
    for (size_t size = 8; size <= sizeof(text); size++) {
        stk_json_brief(value, text, size);
        assert_true(strlen(text) < size);
        assert_true(stk_utf8_valid(text));
    }
    json_decref(value);
    value = json_string("a\"b\\c\nd");
    stk_json_brief(value, text, sizeof(text));
    assert_string_equal(text, "\"a\\\"b\\\\c\\u000ad\"");
    json_decref(value);
    value = json_pack("[i, i, s]", 1, 2, "a long string that does not fit");
    stk_json_brief(value, text, 16);
    assert_true(strlen(text) < 16);
    assert_non_null(strstr(text, "..."));
    json_decref(value);
}

PEN_TEST_MAIN(PEN_CASE(every_member_and_element_has_its_place),
              PEN_CASE(keys_with_slash_and_tilde_are_found_escaped),
              PEN_CASE(columns_count_characters_and_lines_end_in_three_ways),
              PEN_CASE(a_byte_order_mark_takes_no_column),
              PEN_CASE(values_are_what_jansson_reads),
              PEN_CASE(numbers_do_not_depend_on_the_locale),
              PEN_CASE(syntax_errors_name_place_found_and_expected),
              PEN_CASE(numbers_that_json_has_not_are_refused),
              PEN_CASE(strings_that_json_has_not_are_refused),
              PEN_CASE(what_is_no_utf8_is_refused),
              PEN_CASE(duplicate_keys_are_told_with_both_places),
              PEN_CASE(nesting_ends_at_256),
              PEN_CASE(too_many_values_are_a_limit),
              PEN_CASE(every_prefix_of_a_file_is_refused_with_a_text),
              PEN_CASE(places_of_ten_thousand_modules_are_right),
              PEN_CASE(values_in_messages_are_cut_between_characters))
