// What validate says about each file of golden/errors, word for word. To take
// over new texts, run with PENSTOCK_TEST_UPDATE=1 and read the difference.

#include <dirent.h>
#include <stdio.h>

#include <jansson.h>

#include "pen_test.h"

#include "tests/unit/graph/test_classes.h"

// The form in which `penstock validate` prints.
static char *say(const char *path, const char *name)
{
    struct pen_error err = { 0 };
    struct pen_registry *registry = test_registry(&err);
    struct pen_issues *issues = pen_issues_create();
    struct pen_description *desc = NULL;
    assert_non_null(registry);
    assert_non_null(issues);
    enum pen_status st = pen_description_load(path, &desc, issues, &err);
    if (st == PEN_OK)
        st = pen_validate(desc, registry, issues, &err);
    struct stk_text t = { 0 };
    stk_text_addf(&t, "%s\n", pen_status_name(st));
    const struct pen_issue *is;
    for (size_t i = 0; (is = pen_issues_get(issues, i)); i++) {
        stk_text_addf(&t, "%s %s %s:%d:%d %s: %s\n",
                      pen_severity_name(is->severity), is->code, name, is->line,
                      is->column, is->pointer, is->message);
        if (*is->suggestion)
            stk_text_addf(&t, "    %s\n", is->suggestion);
    }
    pen_description_destroy(&desc);
    pen_issues_destroy(&issues);
    pen_registry_destroy(&registry);
    char *text = stk_text_take(&t);
    assert_non_null(text);
    return text;
}

static int compare(const struct dirent **a, const struct dirent **b)
{
    return strcmp((*a)->d_name, (*b)->d_name);
}

static int is_case(const struct dirent *entry)
{
    const size_t n = strlen(entry->d_name);
    return n > 5 && strcmp(entry->d_name + n - 5, ".json") == 0;
}

PEN_TEST(every_error_is_told_in_the_expected_words)
{
    char folder[1024];
    snprintf(folder, sizeof(folder), "%s/tests/golden/errors",
             pen_test_source());
    struct dirent **list;
    const int count = scandir(folder, &list, is_case, compare);
    if (count < 0)
        fail_msg("%s cannot be read", folder);
    const char *update = getenv("PENSTOCK_TEST_UPDATE");
    int wrong = 0;
    for (int i = 0; i < count; i++) {
        char path[2048], expected_path[2048];
        const char *name = list[i]->d_name;
        snprintf(path, sizeof(path), "%s/%s", folder, name);
        snprintf(expected_path, sizeof(expected_path), "%s/%.*s.txt", folder,
                 (int)strlen(name) - 5, name);
        char *text = say(path, name);
        // The name of the file begins with the code it is about.
        if (name[0] == 'E' || name[0] == 'W') {
            char code[6] = " ";
            memcpy(code + 1, name, 4);
            if (!strstr(text, code))
                fail_msg("%s does not give its code:\n%s", name, text);
        }
        if (update && strcmp(update, "1") == 0) {
            pen_test_write_file(expected_path, text, strlen(text));
        } else {
            char *expected = pen_test_read_file(expected_path, NULL);
            if (strcmp(text, expected) != 0) {
                print_error("%s: expected\n%s\ngot\n%s\n", name, expected,
                            text);
                wrong++;
            }
            free(expected);
        }
        free(text);
        free(list[i]);
    }
    free(list);
    print_message("# %d files\n", count);
    assert_true(count >= 40);
    assert_int_equal(wrong, 0);
}

// --- suggestions ------------------------------------------------------------

static bool is_json(const char *format, const char *text, size_t length)
{
    char whole[1024];
    snprintf(whole, sizeof(whole), format, (int)length, text);
    json_t *value = json_loads(whole, 0, NULL);
    json_decref(value);
    return value != NULL;
}

// Whether the text is a member, a key, or objects for an array.
static bool can_be_pasted(const char *text, size_t length)
{
    return is_json("{%.*s}", text, length) || is_json("[%.*s]", text, length);
}

// Parts are joined by words that say where they belong.
static bool all_can_be_pasted(const char *text)
{
    static const char with[] = " with ", instead[] = " instead";
    if (strncmp(text, "remove {", 8) == 0)
        text += 7;
    size_t length = strlen(text);
    if (length > sizeof(instead) &&
        strcmp(text + length - (sizeof(instead) - 1), instead) == 0)
        length -= sizeof(instead) - 1;
    const char *second = strstr(text, with);
    if (!second)
        return can_be_pasted(text, length);
    const char *rest = second + sizeof(with) - 1;
    return can_be_pasted(text, (size_t)(second - text)) &&
           can_be_pasted(rest, length - (size_t)(rest - text));
}

// What is no JSON has to be mended by hand, and two are removed.
static bool is_told_in_words(const char *code, const char *text)
{
    return strcmp(code, "E000") == 0 || strcmp(code, "E002") == 0 ||
           strcmp(text, "remove one of them") == 0 ||
           strcmp(text, "remove this connection") == 0;
}

PEN_TEST(suggestions_can_be_pasted)
{
    char folder[1024];
    snprintf(folder, sizeof(folder), "%s/tests/golden/errors",
             pen_test_source());
    struct dirent **list;
    const int count = scandir(folder, &list, is_case, compare);
    unsigned pasted = 0;
    for (int i = 0; i < count; i++) {
        char path[2048];
        struct pen_error err = { 0 };
        struct pen_registry *registry = test_registry(&err);
        struct pen_issues *issues = pen_issues_create();
        struct pen_description *desc = NULL;
        snprintf(path, sizeof(path), "%s/%s", folder, list[i]->d_name);
        enum pen_status st = pen_description_load(path, &desc, issues, &err);
        if (st == PEN_OK)
            st = pen_validate(desc, registry, issues, &err);
        assert_true(st == PEN_OK || st == PEN_E_CONFIG);
        const struct pen_issue *is;
        for (size_t k = 0; (is = pen_issues_get(issues, k)); k++) {
            if (!*is->suggestion || is_told_in_words(is->code, is->suggestion))
                continue;
            if (!all_can_be_pasted(is->suggestion))
                fail_msg("%s: %s", list[i]->d_name, is->suggestion);
            pasted++;
        }
        pen_description_destroy(&desc);
        pen_issues_destroy(&issues);
        pen_registry_destroy(&registry);
        free(list[i]);
    }
    free(list);
    print_message("# %u suggestions\n", pasted);
    assert_true(pasted >= 40);
}

// --- codes ------------------------------------------------------------------

// Every "E123" of the sources, each once, in `codes`.
static size_t collect_codes(const char *folder, char codes[][5], size_t room,
                            size_t count)
{
    DIR *dir = opendir(folder);
    if (!dir)
        fail_msg("%s cannot be read", folder);
    const struct dirent *entry;
    while ((entry = readdir(dir))) {
        const size_t n = strlen(entry->d_name);
        if (n < 3 || strcmp(entry->d_name + n - 2, ".c") != 0)
            continue;
        char path[2048];
        snprintf(path, sizeof(path), "%s/%s", folder, entry->d_name);
        char *text = pen_test_read_file(path, NULL);
        for (const char *s = text; (s = strchr(s, '"')); s++) {
            if (!s[1] || !strchr("EWI", s[1]) ||
                strspn(s + 2, "0123456789") != 3 || s[5] != '"' ||
                strncmp(s, "\"I420", 5) == 0)  // a pixel format
                continue;
            size_t i = 0;
            while (i < count && strncmp(codes[i], s + 1, 4) != 0)
                i++;
            assert_true(i < room);
            memcpy(codes[i], s + 1, 4);
            codes[i][4] = 0;
            count += i == count;
        }
        free(text);
    }
    closedir(dir);
    return count;
}

PEN_TEST(the_reference_has_every_code_and_no_other)
{
    char codes[128][5], path[1024];
    size_t count = 0;
    static const char *const folders[] = { "src/graph", "src/modules",
                                           "src/run" };
    for (int i = 0; i < 3; i++) {
        snprintf(path, sizeof(path), "%s/%s", pen_test_source(), folders[i]);
        count = collect_codes(path, codes, 128, count);
    }
    assert_true(count > 30);
    snprintf(path, sizeof(path), "%s/docs/reference/issues.md",
             pen_test_source());
    char *text = pen_test_read_file(path, NULL);
    for (size_t i = 0; i < count; i++) {
        char row[16], second[16];
        snprintf(row, sizeof(row), "| %.4s", codes[i]);
        snprintf(second, sizeof(second), ", %.4s |", codes[i]);
        if (!strstr(text, row) && !strstr(text, second))
            fail_msg("%s is not in docs/reference/issues.md", codes[i]);
    }
    for (const char *s = text; (s = strstr(s, "\n| ")); s++) {
        if (!strchr("EWI", s[3]) || strspn(s + 4, "0123456789") != 3)
            continue;
        size_t i = 0;
        while (i < count && strncmp(codes[i], s + 3, 4) != 0)
            i++;
        if (i == count)
            fail_msg("nothing gives %.4s of docs/reference/issues.md", s + 3);
    }
    free(text);
}

PEN_TEST_MAIN(PEN_CASE(every_error_is_told_in_the_expected_words),
              PEN_CASE(suggestions_can_be_pasted),
              PEN_CASE(the_reference_has_every_code_and_no_other))
