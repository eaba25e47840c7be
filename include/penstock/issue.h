#ifndef PEN_ISSUE_H
#define PEN_ISSUE_H

#include <penstock/status.h>

PEN_BEGIN

// What validation and planning have to say about a pipeline file: all of it
// in one pass, each with its place in the file. Codes are ApraPipes' where
// they exist; docs/reference/issues.md lists them.
enum pen_severity {
    PEN_SEVERITY_INFO = 1,
    PEN_SEVERITY_WARNING,
    PEN_SEVERITY_ERROR,
};

struct pen_issue {
    enum pen_severity severity;
    char code[8];            // "E200"
    int line, column;        // from 1; 0 if there is no place in the file
    const char *pointer;     // JSON pointer, "" for the whole file
    const char *message;     // what is wrong, one sentence
    const char *suggestion;  // what would be right; "" if nothing is known
};

// A list of issues. It is filled by one call at a time, and may be read by any
// thread while none does.
struct pen_issues;

// An empty list, owned by the caller; NULL when out of memory. Thread: any.
PEN_API struct pen_issues *pen_issues_create(void);
// Sets *issues to NULL; NULL in it is allowed. Thread: any.
PEN_API void pen_issues_destroy(struct pen_issues **issues);

// How many issues are of at least `severity`. Thread: any.
PEN_API size_t pen_issues_count(const struct pen_issues *issues,
                                enum pen_severity severity);
// Issue number `i` of all, in the order of the file; NULL past the end.
// Borrowed until the list changes. Thread: any.
PEN_API const struct pen_issue *pen_issues_get(const struct pen_issues *issues,
                                               size_t i);

// {"ok", "issues": [...]} as text, to be freed with pen_free(); NULL when out
// of memory. ok says that there is no error: neither in the list nor in `err`,
// which is told as an issue of its own if the list has none. Both may be NULL.
// Thread: any.
PEN_API char *pen_issues_json(const struct pen_issues *issues,
                              const struct pen_error *err);

// "error", "warning", "info"; "?" for anything else. Static. Thread: any.
PEN_API const char *pen_severity_name(enum pen_severity severity);

PEN_END

#endif  // PEN_ISSUE_H
