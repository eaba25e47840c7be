#ifndef STK_FILE_SEQUENCE_H
#define STK_FILE_SEQUENCE_H

// Names of files as pipelines write them: a plain path, a numbered pattern
// ("in/????.jpg", one run of `?` in the file's name that stands for digits) or
// a glob ("in/*.jpg", then `?` is any one character). Folders are literal.

#include <penstock/status.h>

enum stk_pattern_kind {
    STK_PATTERN_PLAIN = 1,
    STK_PATTERN_NUMBERED,
    STK_PATTERN_GLOB,
};

struct stk_pattern {
    enum stk_pattern_kind kind;
    const char *text;  // borrowed
    size_t folder;     // bytes of `text` up to and with the last slash
    size_t digits_at;  // NUMBERED: where the run of `?` begins
    unsigned digits;   //   and how long it is
    uint64_t max;      //   the largest number that fits
};

// NULL, or what is wrong with the pattern, as the rest of a sentence about it
// ("has more than 18 digits"; a static text). Thread: any.
const char *stk_pattern_parse(const char *text, struct stk_pattern *out);

// "the folder of a path": "in/a.jpg" -> "in", "a.jpg" -> ".", "/a" -> "/".
// False if it does not fit.
bool stk_pattern_folder(const struct stk_pattern *p, char *out, size_t size);

// The file's name (without folder) of number `n`: digits filled in, or `*`
// replaced by the number; a plain name stays. False if the number needs more
// digits than the pattern has, or the name does not fit.
bool stk_pattern_name(const struct stk_pattern *p, uint64_t n, char *out,
                      size_t size);

// The files of a pattern that are there, in order: by number, or by name
// (bytes compared). {0} is empty.
struct stk_sequence {
    struct stk_pattern pattern;
    uint64_t *numbers;  // NUMBERED
    char **names;       // GLOB
    size_t count;
    uint64_t holes;  // numbers from `start` to the last without a file
};

// List them. `start` and `max` (< 0: no end) bound the numbers. A plain path
// is one entry that need not exist. `pattern` is borrowed.
// Errors: PEN_E_CONFIG the pattern is malformed or `start` does not fit it;
//         PEN_E_IO no folder, or no file matches; PEN_E_NOMEM.
// Thread: setup.
PEN_NODISCARD enum pen_status stk_sequence_open(struct stk_sequence *s,
                                                const char *pattern,
                                                int64_t start, int64_t max,
                                                struct pen_error *err);
void stk_sequence_close(struct stk_sequence *s);

// Path of entry `i`. False if it does not fit.
bool stk_sequence_path(const struct stk_sequence *s, size_t i, char *out,
                       size_t size);

#endif  // STK_FILE_SEQUENCE_H
