#ifndef GRAPH_FIXTURE_H
#define GRAPH_FIXTURE_H

// A text goes in, issues come out: what most tests of the graph layer do.

#include <stdio.h>

#include "pen_test.h"

#include "test_classes.h"

struct checked {
    enum pen_status status;
    struct pen_error err;
    struct pen_issues *issues;
    struct pen_description *desc;
    struct pen_registry *registry;
    struct stk_arena arena;
    struct stk_graph *graph;
};

// Read `length` bytes and, where that works, resolve them.
static inline struct checked check_bytes(const char *text, size_t length)
{
    struct checked c = { 0 };
    c.registry = test_registry(&c.err);
    if (!c.registry)
        fail_msg("registry: %s", c.err.text);
    c.issues = pen_issues_create();
    assert_non_null(c.issues);
    c.status = pen_description_parse(text, length, "test.json", &c.desc,
                                     c.issues, &c.err);
    assert_true((c.status == PEN_OK) == (c.desc != NULL));
    if (c.status == PEN_OK)
        c.status = stk_graph_resolve(c.desc, c.registry, &c.arena, &c.graph,
                                     c.issues, &c.err);
    assert_true((c.status == PEN_OK) == (c.graph != NULL));
    if (c.status != PEN_OK) {
        assert_int_equal(c.err.status, c.status);
        assert_true(c.err.text[0]);
    }
    return c;
}

static inline struct checked check_text(const char *text)
{
    return check_bytes(text, strlen(text));
}

static inline void finish(struct checked *c)
{
    stk_arena_finish(&c->arena);
    pen_description_destroy(&c->desc);
    pen_issues_destroy(&c->issues);
    pen_registry_destroy(&c->registry);
}

// All issues as lines, for the message of a failing test.
static inline const char *issues_text(const struct pen_issues *issues)
{
    static char text[8192];
    size_t n = 0;
    text[0] = 0;
    const struct pen_issue *is;
    for (size_t i = 0; (is = pen_issues_get(issues, i)) && n < 7000; i++)
        n += (size_t)snprintf(text + n, sizeof(text) - n,
                              "\n  %s %d:%d %s: %.300s [%.100s]", is->code,
                              is->line, is->column, is->pointer, is->message,
                              is->suggestion);
    return text;
}

// The only issue with that code.
static inline const struct pen_issue *issue_of(const struct pen_issues *issues,
                                               const char *code)
{
    const struct pen_issue *is, *found = NULL;
    for (size_t i = 0; (is = pen_issues_get(issues, i)); i++) {
        if (strcmp(is->code, code) != 0)
            continue;
        if (found)
            fail_msg("more than one %s:%s", code, issues_text(issues));
        found = is;
    }
    if (!found)
        fail_msg("no %s:%s", code, issues_text(issues));
    return found;
}

// `text` has one issue and no other: this one.
static inline void expect_one(const char *text, const char *code,
                              const char *pointer, const char *message,
                              const char *suggestion)
{
    struct checked c = check_text(text);
    if (pen_issues_count(c.issues, PEN_SEVERITY_INFO) != 1)
        fail_msg("expected one %s:%s", code, issues_text(c.issues));
    const struct pen_issue *is = pen_issues_get(c.issues, 0);
    assert_string_equal(is->code, code);
    assert_string_equal(is->pointer, pointer);
    assert_string_equal(is->message, message);
    assert_string_equal(is->suggestion, suggestion);
    assert_int_equal(is->severity, code[0] == 'E' ? PEN_SEVERITY_ERROR
                                                  : PEN_SEVERITY_WARNING);
    assert_int_equal(c.status, code[0] == 'E' ? PEN_E_CONFIG : PEN_OK);
    finish(&c);
}

// `text` has no issue at all.
static inline struct checked expect_none(const char *text)
{
    struct checked c = check_text(text);
    if (pen_issues_count(c.issues, PEN_SEVERITY_INFO))
        fail_msg("expected none:%s", issues_text(c.issues));
    assert_int_equal(c.status, PEN_OK);
    return c;
}

// A source with the given props (inner text), connected to a sink.
#define SIGNAL_TO_SINK(props)                                                  \
    "{\"modules\":{\"s\":{\"type\":\"TestSignal\",\"props\":{" props           \
    "}},\"k\":{\"type\":\"StatSink\"}},"                                       \
    "\"connections\":[{\"from\":\"s\",\"to\":\"k\"}]}"
#define SIZE "\"width\":64,\"height\":48"
// A signal through one module to a sink.
#define THROUGH(module)                                                        \
    "{\"modules\":{\"s\":{\"type\":\"TestSignal\",\"props\":{" SIZE            \
    "}},\"m\":{" module "},\"k\":{\"type\":\"StatSink\"}},"                    \
    "\"connections\":[{\"from\":\"s\",\"to\":\"m\"},"                          \
    "{\"from\":\"m\",\"to\":\"k\"}]}"
#define BLUR(props) THROUGH("\"type\":\"GaussianBlur\",\"props\":{" props "}")

#endif  // GRAPH_FIXTURE_H
