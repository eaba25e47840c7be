// Status names, errors and log lines.

#include <limits.h>
#include <stdio.h>

#include <penstock/log.h>
#include <penstock/status.h>

#include "pen_test.h"

PEN_TEST(every_status_has_its_name_and_text)
{
#define X(id, value, text)                                                     \
    assert_int_equal(PEN_##id, value);                                         \
    assert_string_equal(pen_status_name(PEN_##id), #id);                       \
    assert_string_equal(pen_status_text(PEN_##id), text);
    PEN_STATUS_MAP(X)
#undef X
}

PEN_TEST(an_unknown_status_has_a_placeholder)
{
    const int unknown[] = { 3, -99, INT_MAX, INT_MIN };
    for (size_t i = 0; i < sizeof(unknown) / sizeof(unknown[0]); i++) {
        const enum pen_status st = (enum pen_status)unknown[i];
        assert_string_equal(pen_status_name(st), "?");
        assert_string_equal(pen_status_text(st), "unknown status");
    }
}

PEN_TEST(version_is_that_of_the_header)
{
    char text[32];
    snprintf(text, sizeof(text), "%d.%d.%d", PEN_VERSION_MAJOR,
             PEN_VERSION_MINOR, PEN_VERSION_PATCH);
    assert_string_equal(pen_version(), text);
}

PEN_TEST(error_set_fills_in_all_fields_and_returns_the_status)
{
    struct pen_error err = { 0 };
    assert_int_equal(
        pen_error_set(&err, PEN_E_IO, 2, "/modules/a", "no %s", "file"),
        PEN_E_IO);
    assert_int_equal(err.status, PEN_E_IO);
    assert_int_equal(err.native, 2);
    assert_string_equal(err.where, "/modules/a");
    assert_string_equal(err.text, "no file");
}

PEN_TEST(error_set_accepts_no_error_and_no_place)
{
    assert_int_equal(pen_error_set(NULL, PEN_E_ARG, 0, "x", "y"), PEN_E_ARG);
    struct pen_error err;
    memset(&err, 0x55, sizeof(err));
    assert_int_equal(pen_error_set(&err, PEN_E_ARG, 0, NULL, "y"), PEN_E_ARG);
    assert_string_equal(err.where, "");
    assert_int_equal(err.native, 0);
}

PEN_TEST(error_set_can_wrap_the_text_it_replaces)
{
    struct pen_error err = { 0 };
    assert_int_equal(pen_error_set(&err, PEN_E_DATA, 7, "inner", "damaged"),
                     PEN_E_DATA);
    assert_int_equal(pen_error_set(&err, err.status, err.native, err.where,
                                   "frame 3: %s", err.text),
                     PEN_E_DATA);
    assert_string_equal(err.text, "frame 3: damaged");
    assert_string_equal(err.where, "inner");
    assert_int_equal(err.native, 7);
}

// True if the text ends with a whole UTF-8 character.
static bool ends_whole(const char *text)
{
    size_t end = strlen(text), tail = 0;
    while (tail < end && ((unsigned char)text[end - 1 - tail] & 0xc0) == 0x80)
        tail++;
    if (tail == end)
        return tail == 0;
    const unsigned char lead = (unsigned char)text[end - 1 - tail];
    const size_t want = lead >= 0xf0   ? 3
                        : lead >= 0xe0 ? 2
                        : lead >= 0xc0 ? 1
                                       : 0;
    return tail == want;
}

PEN_TEST(long_texts_are_cut_between_characters)
{
    static const char *const letters[] = { "x", "\xc3\xa9", "\xe2\x82\xac",
                                           "\xf0\x9f\x90\xb8" };
    for (size_t k = 0; k < 4; k++) {
        for (size_t shift = 0; shift < 5; shift++) {
            char text[2048] = { 0 };
            memset(text, 'a', shift);
            while (strlen(text) + 5 < sizeof(text))
                strcat(text, letters[k]);
            struct {
                struct pen_error err;
                char guard[16];
            } box;
            memset(&box, 0x7f, sizeof(box));
            assert_int_equal(
                pen_error_set(&box.err, PEN_E_DATA, 0, text, "%s", text),
                PEN_E_DATA);
            for (size_t i = 0; i < sizeof(box.guard); i++)
                assert_int_equal(box.guard[i], 0x7f);
            assert_true(strlen(box.err.text) > sizeof(box.err.text) - 5);
            assert_true(strlen(box.err.where) > sizeof(box.err.where) - 5);
            assert_true(ends_whole(box.err.text));
            assert_true(ends_whole(box.err.where));
        }
    }
}

struct heard {
    unsigned lines;
    enum pen_log_level level;
    char topic[32];
    char text[4096];
};

static void hear(void *cookie, enum pen_log_level level, const char *topic,
                 const char *text)
{
    struct heard *h = cookie;
    h->lines++;
    h->level = level;
    snprintf(h->topic, sizeof(h->topic), "%s", topic);
    snprintf(h->text, sizeof(h->text), "%s", text);
}

PEN_TEST(log_takes_what_the_level_asks_for)
{
    struct heard h = { 0 };
    struct pen_log log = { .message = hear, .cookie = &h };
    for (int want = PEN_LOG_NONE; want <= PEN_LOG_DEBUG; want++) {
        log.level = (enum pen_log_level)want;
        for (int level = PEN_LOG_ERROR; level <= PEN_LOG_DEBUG; level++) {
            h.lines = 0;
            pen_log_write(&log, (enum pen_log_level)level, "pen.test", "n %d",
                          level);
            assert_int_equal(h.lines, level <= want);
        }
    }
    assert_int_equal(h.level, PEN_LOG_DEBUG);
    assert_string_equal(h.topic, "pen.test");
    assert_string_equal(h.text, "n 4");
}

PEN_TEST(no_log_and_no_callback_are_silent)
{
    pen_log_write(NULL, PEN_LOG_ERROR, "pen.test", "text");
    const struct pen_log log = { .level = PEN_LOG_DEBUG };
    pen_log_write(&log, PEN_LOG_ERROR, "pen.test", "text");
}

PEN_TEST(a_log_call_is_one_line)
{
    struct heard h = { 0 };
    const struct pen_log log = { hear, &h, PEN_LOG_DEBUG };
    pen_log_write(&log, PEN_LOG_WARN, "pen.test", "a\nb\r\nc\n\n");
    assert_int_equal(h.lines, 1);
    assert_string_equal(h.text, "a b  c");

    char text[8192];
    memset(text, 'a', sizeof(text) - 1);
    text[sizeof(text) - 1] = 0;
    pen_log_write(&log, PEN_LOG_WARN, "pen.test", "%s", text);
    assert_int_equal(h.lines, 2);
    assert_true(strlen(h.text) >= 1024 && strlen(h.text) < sizeof(text) - 1);
}

PEN_TEST_MAIN(PEN_CASE(every_status_has_its_name_and_text),
              PEN_CASE(an_unknown_status_has_a_placeholder),
              PEN_CASE(version_is_that_of_the_header),
              PEN_CASE(error_set_fills_in_all_fields_and_returns_the_status),
              PEN_CASE(error_set_accepts_no_error_and_no_place),
              PEN_CASE(error_set_can_wrap_the_text_it_replaces),
              PEN_CASE(long_texts_are_cut_between_characters),
              PEN_CASE(log_takes_what_the_level_asks_for),
              PEN_CASE(no_log_and_no_callback_are_silent),
              PEN_CASE(a_log_call_is_one_line))
