// The list of complaints: kept in the order of the file, never failing at the
// spot where a complaint is made.

#include <limits.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "graph.h"

struct pen_issues {
    struct stk_arena arena;  // texts
    struct pen_issue *items;
    size_t count, room;
    size_t at_least[PEN_SEVERITY_ERROR + 1];
    bool failed;
};

struct pen_issues *pen_issues_create(void)
{
    return calloc(1, sizeof(struct pen_issues));
}

void pen_issues_destroy(struct pen_issues **issues)
{
    if (!*issues)
        return;
    stk_arena_finish(&(*issues)->arena);
    free((*issues)->items);
    free(*issues);
    *issues = NULL;
}

size_t pen_issues_count(const struct pen_issues *issues,
                        enum pen_severity severity)
{
    if (severity > PEN_SEVERITY_ERROR)
        return 0;
    return severity < PEN_SEVERITY_INFO ? issues->count
                                        : issues->at_least[severity];
}

const struct pen_issue *pen_issues_get(const struct pen_issues *issues,
                                       size_t i)
{
    return i < issues->count ? &issues->items[i] : NULL;
}

const char *pen_severity_name(enum pen_severity severity)
{
    switch (severity) {
    case PEN_SEVERITY_INFO:
        return "info";
    case PEN_SEVERITY_WARNING:
        return "warning";
    case PEN_SEVERITY_ERROR:
        return "error";
    }
    return "?";
}

void stk_issues_fail(struct pen_issues *issues)
{
    issues->failed = true;
}

bool stk_issues_failed(const struct pen_issues *issues)
{
    return issues->failed;
}

// What has no place in the file comes last, in the order of its making.
static bool comes_after(const struct pen_issue *a, const struct pen_issue *b)
{
    const int line_a = a->line ? a->line : INT_MAX;
    const int line_b = b->line ? b->line : INT_MAX;
    if (line_a != line_b)
        return line_a > line_b;
    return a->column > b->column;
}

static void insert(struct pen_issues *issues, const struct pen_issue *issue)
{
    if (issues->count == issues->room) {
        const size_t room = issues->room ? 2 * issues->room : 16;
        struct pen_issue *items = realloc(issues->items, room * sizeof(*items));
        if (!items) {
            issues->failed = true;
            return;
        }
        issues->items = items;
        issues->room = room;
    }
    size_t low = 0, high = issues->count;
    while (low < high) {
        const size_t mid = low + (high - low) / 2;
        if (comes_after(&issues->items[mid], issue))
            high = mid;
        else
            low = mid + 1;
    }
    memmove(&issues->items[low + 1], &issues->items[low],
            (issues->count - low) * sizeof(*issue));
    issues->items[low] = *issue;
    issues->count++;
    for (int s = PEN_SEVERITY_INFO; s <= (int)issue->severity; s++)
        issues->at_least[s]++;
}

static const char *format_text(struct stk_arena *arena, const char *format,
                               va_list args, const char *tail)
{
    va_list again;
    if (!format)  // never; gcc with sanitizers follows the path all the same
        return NULL;
    va_copy(again, args);
    const int length = vsnprintf(NULL, 0, format, again);
    va_end(again);
    if (length < 0)
        return NULL;
    const size_t size = (size_t)length + 1;
    char *text = stk_arena_alloc(arena, size + strlen(tail));
    if (!text)
        return NULL;
    vsnprintf(text, size, format, args);
    strcpy(text + length, tail);
    return text;
}

static void add(struct pen_issues *issues, struct pen_issue *issue,
                const char *code, const char *pointer, const char *suggestion,
                const char *message)
{
    snprintf(issue->code, sizeof(issue->code), "%s", code);
    issue->pointer = stk_arena_strdup(&issues->arena, pointer ? pointer : "");
    issue->suggestion =
        stk_arena_strdup(&issues->arena, suggestion ? suggestion : "");
    issue->message = message;
    if (issue->pointer && issue->suggestion && issue->message)
        insert(issues, issue);
    else
        issues->failed = true;
}

static bool is_overridden(const struct pen_description *desc,
                          const char *pointer)
{
    for (uint32_t i = 0; i < desc->overridden_count; i++) {
        if (strcmp(desc->overridden[i], pointer) == 0)
            return true;
    }
    return false;
}

// The place of what `pointer` names, or of the nearest thing around it: a
// property that is missing is told at its module.
static void locate(const struct stk_positions *positions, const char *pointer,
                   struct pen_issue *issue)
{
    size_t length = strlen(pointer);
    while (!stk_positions_find(positions, pointer, length, &issue->line,
                               &issue->column) &&
           length) {
        while (--length && pointer[length] != '/')
            ;
    }
}

void stk_issue_add(struct pen_issues *issues,
                   const struct pen_description *desc,
                   enum pen_severity severity, const char *code,
                   const char *pointer, const char *suggestion,
                   const char *format, ...)
{
    struct pen_issue issue = { .severity = severity };
    const char *tail = "";
    if (desc && is_overridden(desc, pointer))
        tail = " (from --set)";
    else if (desc && desc->positions)
        locate(desc->positions, pointer, &issue);

    va_list args;
    va_start(args, format);
    const char *message = format_text(&issues->arena, format, args, tail);
    va_end(args);
    add(issues, &issue, code, pointer, suggestion, message);
}

void stk_issue_add_at(struct pen_issues *issues, enum pen_severity severity,
                      const char *code, int line, int column,
                      const char *pointer, const char *suggestion,
                      const char *format, ...)
{
    struct pen_issue issue = {
        .severity = severity,
        .line = line,
        .column = column,
    };
    va_list args;
    va_start(args, format);
    const char *message = format_text(&issues->arena, format, args, "");
    va_end(args);
    add(issues, &issue, code, pointer, suggestion, message);
}

void stk_issues_append(struct pen_issues *to, const struct pen_issues *from)
{
    for (size_t i = 0; i < from->count; i++) {
        struct pen_issue issue = from->items[i];
        add(to, &issue, from->items[i].code, issue.pointer, issue.suggestion,
            stk_arena_strdup(&to->arena, issue.message));
    }
    to->failed |= from->failed;
}

static bool has_issue(const struct pen_issues *issues,
                      const struct pen_issue *issue)
{
    for (size_t i = 0; i < issues->count; i++) {
        const struct pen_issue *other = &issues->items[i];
        if (strcmp(other->code, issue->code) == 0 &&
            strcmp(other->pointer, issue->pointer) == 0 &&
            strcmp(other->message, issue->message) == 0)
            return true;
    }
    return false;
}

void stk_issues_merge(struct pen_issues *to, const struct pen_issues *from)
{
    for (size_t i = 0; i < from->count; i++) {
        struct pen_issue issue = from->items[i];
        if (!has_issue(to, &issue))
            add(to, &issue, from->items[i].code, issue.pointer,
                issue.suggestion, stk_arena_strdup(&to->arena, issue.message));
    }
    to->failed |= from->failed;
}

enum pen_status stk_issues_status(const struct pen_issues *issues,
                                  size_t before, struct pen_error *err)
{
    if (issues->failed)
        return pen_error_set(err, PEN_E_NOMEM, 0, "issues",
                             "out of memory while checking");
    const size_t errors = issues->at_least[PEN_SEVERITY_ERROR];
    if (errors <= before)
        return PEN_OK;

    const struct pen_issue *first = issues->items;
    while (first->severity != PEN_SEVERITY_ERROR)
        first++;
    if (errors - before == 1)
        return pen_error_set(err, PEN_E_CONFIG, 0, first->pointer, "%s: %s",
                             first->code, first->message);
    return pen_error_set(err, PEN_E_CONFIG, 0, first->pointer,
                         "%s: %s (and %zu more errors)", first->code,
                         first->message, errors - before - 1);
}

// --- as JSON ----------------------------------------------------------------

static json_t *issue_json(const struct pen_issue *issue, const char *code)
{
    const bool placed = issue->line > 0;
    json_t *i = json_object();
    i = stk_json_with(i, "severity",
                      json_string(pen_severity_name(issue->severity)));
    i = stk_json_with(i, "code", json_string(code));
    i = stk_json_with(i, "line",
                      placed ? json_integer(issue->line) : json_null());
    i = stk_json_with(i, "column",
                      placed ? json_integer(issue->column) : json_null());
    i = stk_json_with(i, "pointer", stk_json_text(issue->pointer));
    i = stk_json_with(i, "message", stk_json_text(issue->message));
    return stk_json_with(i, "suggestion", stk_json_text(issue->suggestion));
}

json_t *stk_issues_json(const struct pen_issues *issues)
{
    json_t *array = json_array();
    for (size_t i = 0; issues && i < issues->count; i++)
        array = stk_json_append(
            array, issue_json(&issues->items[i], issues->items[i].code));
    return array;
}

char *pen_issues_json(const struct pen_issues *issues,
                      const struct pen_error *err)
{
    json_t *list = stk_issues_json(issues);
    bool ok = !issues || !issues->at_least[PEN_SEVERITY_ERROR];
    if (ok && err && err->status < 0) {
        const struct pen_issue told = {
            .severity = PEN_SEVERITY_ERROR,
            .pointer = err->where,
            .message = err->text,
            .suggestion = "",
        };
        list = stk_json_append(list,
                               issue_json(&told, pen_status_name(err->status)));
        ok = false;
    }
    json_t *root = stk_json_with(json_object(), "ok", json_boolean(ok));
    return stk_json_dump_new(stk_json_with(root, "issues", list));
}

// --- check() of a class -----------------------------------------------------

static void check_add(struct pen_check *check, enum pen_severity severity,
                      const char *code, const char *key, const char *suggestion,
                      const char *format, va_list args)
{
    struct stk_arena arena = { 0 };
    const char *message = format_text(&arena, format, args, "");
    const char *pointer = check->pointer;
    if (key) {
        const char *props = stk_pointer_join(&arena, pointer, "props");
        pointer = props ? stk_pointer_join(&arena, props, key) : NULL;
    }
    if (message && pointer)
        stk_issue_add(check->issues, check->desc, severity, code, pointer,
                      suggestion, "%s", message);
    else
        stk_issues_fail(check->issues);
    stk_arena_finish(&arena);
}

void pen_check_error(struct pen_check *check, const char *code, const char *key,
                     const char *suggestion, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    check_add(check, PEN_SEVERITY_ERROR, code, key, suggestion, format, args);
    va_end(args);
    check->errors++;
}

void pen_check_warning(struct pen_check *check, const char *code,
                       const char *key, const char *suggestion,
                       const char *format, ...)
{
    va_list args;
    va_start(args, format);
    check_add(check, PEN_SEVERITY_WARNING, code, key, suggestion, format, args);
    va_end(args);
}

const char *stk_probe_code(enum pen_status st)
{
    return st == PEN_E_LIMIT ? "E512" : st == PEN_E_IO ? "E600" : "E610";
}

void stk_probe_tell(const struct pen_probe *probe,
                    const struct pen_description *desc, const char *pointer,
                    struct pen_issues *issues)
{
    if (probe->broken == 0)
        return;
    stk_issue_add(issues, desc, PEN_SEVERITY_WARNING, "W610", pointer, "",
                  "%u file%s that cannot be used will be the error%s of %s "
                  "frame%s; the first is %s",
                  probe->broken, probe->broken == 1 ? "" : "s",
                  probe->broken == 1 ? "" : "s",
                  probe->broken == 1 ? "its" : "their",
                  probe->broken == 1 ? "" : "s", probe->what);
}
