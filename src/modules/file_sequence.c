#include <dirent.h>
#include <errno.h>
#include <fnmatch.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "file_sequence.h"

const char *stk_pattern_parse(const char *text, struct stk_pattern *out)
{
    const char *slash = strrchr(text, '/');
    const size_t folder = slash ? (size_t)(slash - text) + 1 : 0;
    const char *name = text + folder;
    *out = (struct stk_pattern){ .kind = STK_PATTERN_PLAIN,
                                 .text = text,
                                 .folder = folder };

    if (!*text)
        return "is an empty path";
    if (strlen(text) >= PATH_MAX)
        return "is a path of more than 4095 bytes";
    if (strcspn(text, "?*") < folder)
        return "has a wildcard in the name of a folder";
    if (!*name)
        return "is the path of a folder, not of files";
    if (strchr(name, '*')) {
        out->kind = STK_PATTERN_GLOB;
        return NULL;
    }
    const char *run = strchr(name, '?');
    if (!run)
        return NULL;

    out->kind = STK_PATTERN_NUMBERED;
    out->digits_at = (size_t)(run - text);
    out->digits = (unsigned)strspn(run, "?");
    if (strchr(run + out->digits, '?'))
        return "has more than one run of ? in the file's name";
    if (out->digits > 18)
        return "has more than 18 digits";
    for (unsigned i = 0; i < out->digits; i++)
        out->max = out->max * 10 + 9;
    return NULL;
}

bool stk_pattern_folder(const struct stk_pattern *p, char *out, size_t size)
{
    size_t n = p->folder;
    if (n == 0)
        return snprintf(out, size, ".") < (int)size;
    while (n > 1 && p->text[n - 1] == '/')
        n--;
    return snprintf(out, size, "%.*s", (int)n, p->text) < (int)size;
}

bool stk_pattern_name(const struct stk_pattern *p, uint64_t n, char *out,
                      size_t size)
{
    const char *name = p->text + p->folder;
    int length = 0;

    switch (p->kind) {
    case STK_PATTERN_NUMBERED:
        if (n > p->max)
            return false;
        length =
            snprintf(out, size, "%.*s%0*llu%s", (int)(p->digits_at - p->folder),
                     name, (int)p->digits, (unsigned long long)n,
                     p->text + p->digits_at + p->digits);
        break;
    case STK_PATTERN_GLOB:;
        const size_t head = strcspn(name, "*");
        length = snprintf(out, size, "%.*s%llu%s", (int)head, name,
                          (unsigned long long)n, name + head + 1);
        break;
    default:
        length = snprintf(out, size, "%s", name);
        break;
    }
    return length >= 0 && (size_t)length < size;
}

// The number in a file's name, if it matches the pattern.
static bool match_number(const struct stk_pattern *p, const char *name,
                         uint64_t *out)
{
    const size_t head = p->digits_at - p->folder;
    const char *tail = p->text + p->digits_at + p->digits;

    if (strlen(name) != head + p->digits + strlen(tail) ||
        strncmp(name, p->text + p->folder, head) != 0 ||
        strcmp(name + head + p->digits, tail) != 0)
        return false;
    uint64_t n = 0;
    for (unsigned i = 0; i < p->digits; i++) {
        const char c = name[head + i];
        if (c < '0' || c > '9')
            return false;
        n = n * 10 + (uint64_t)(c - '0');
    }
    *out = n;
    return true;
}

static int by_number(const void *a, const void *b)
{
    const uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;
    return (x > y) - (x < y);
}

static int by_name(const void *a, const void *b)
{
    return strcmp(*(char *const *)a, *(char *const *)b);
}

// Room for one more entry; doubles what there is.
static bool reserve(void **list, size_t count, size_t *room, size_t bytes)
{
    if (count < *room)
        return true;
    const size_t more = *room ? *room * 2 : 64;
    void *grown = realloc(*list, more * bytes);
    if (!grown)
        return false;
    *list = grown;
    *room = more;
    return true;
}

static bool add_entry(struct stk_sequence *s, size_t *room, const char *name,
                      uint64_t first, uint64_t last)
{
    if (s->pattern.kind == STK_PATTERN_NUMBERED) {
        uint64_t n = 0;
        if (!match_number(&s->pattern, name, &n) || n < first || n > last)
            return true;
        void *list = s->numbers;
        if (!reserve(&list, s->count, room, sizeof(*s->numbers)))
            return false;
        s->numbers = list;
        s->numbers[s->count++] = n;
        return true;
    }
    if (fnmatch(s->pattern.text + s->pattern.folder, name, FNM_PERIOD) != 0)
        return true;
    void *list = s->names;
    if (!reserve(&list, s->count, room, sizeof(*s->names)))
        return false;
    s->names = list;
    s->names[s->count] = strdup(name);
    return s->names[s->count] ? ++s->count : 0;
}

static enum pen_status list_folder(struct stk_sequence *s, uint64_t first,
                                   uint64_t last, struct pen_error *err)
{
    char folder[PATH_MAX];
    if (!stk_pattern_folder(&s->pattern, folder, sizeof(folder)))
        return pen_error_set(err, PEN_E_CONFIG, ENAMETOOLONG, "",
                             "path of "
                             "more than 4095 bytes");
    DIR *dir = opendir(folder);
    if (!dir)
        return pen_error_set(err, errno == ENOMEM ? PEN_E_NOMEM : PEN_E_IO,
                             errno, "", "cannot read folder \"%s\": %s", folder,
                             strerror(errno));
    size_t room = 0;
    bool ok = true;
    errno = 0;
    for (struct dirent *e; ok && (e = readdir(dir)); errno = 0) {
        // A folder can carry a matching name; it is none of the files.
        struct stat st;
        if (e->d_type == DT_DIR ||
            ((e->d_type == DT_UNKNOWN || e->d_type == DT_LNK) &&
             fstatat(dirfd(dir), e->d_name, &st, 0) == 0 &&
             S_ISDIR(st.st_mode)))
            continue;
        ok = add_entry(s, &room, e->d_name, first, last);
    }
    const int native = errno;
    closedir(dir);
    if (!ok)
        return pen_error_set(err, PEN_E_NOMEM, 0, "",
                             "no memory for the list of files");
    if (native)
        return pen_error_set(err, PEN_E_IO, native, "",
                             "cannot read folder \"%s\": %s", folder,
                             strerror(native));
    return PEN_OK;
}

enum pen_status stk_sequence_open(struct stk_sequence *s, const char *pattern,
                                  int64_t start, int64_t max,
                                  struct pen_error *err)
{
    *s = (struct stk_sequence){ 0 };
    const char *wrong = stk_pattern_parse(pattern, &s->pattern);
    if (wrong)
        return pen_error_set(err, PEN_E_CONFIG, 0, "", "\"%s\" %s", pattern,
                             wrong);
    if (s->pattern.kind == STK_PATTERN_PLAIN) {
        s->count = 1;
        return PEN_OK;
    }

    const uint64_t first = start > 0 ? (uint64_t)start : 0;
    uint64_t last = s->pattern.max;
    if (s->pattern.kind == STK_PATTERN_NUMBERED) {
        if (first > s->pattern.max)
            return pen_error_set(err, PEN_E_CONFIG, 0, "",
                                 "startIndex %llu has more digits than the %u "
                                 "of \"%s\"",
                                 (unsigned long long)first, s->pattern.digits,
                                 pattern);
        if (max >= 0 && (uint64_t)max < last)
            last = (uint64_t)max;
    }
    const enum pen_status st = list_folder(s, first, last, err);
    if (st != PEN_OK) {
        stk_sequence_close(s);
        return st;
    }
    if (!s->count) {
        stk_sequence_close(s);
        if (s->pattern.kind == STK_PATTERN_GLOB)
            return pen_error_set(err, PEN_E_IO, ENOENT, "",
                                 "no file matches \"%s\"", pattern);
        return pen_error_set(err, PEN_E_IO, ENOENT, "",
                             "no file matches \"%s\" with a number from %llu "
                             "to %llu",
                             pattern, (unsigned long long)first,
                             (unsigned long long)last);
    }
    if (s->pattern.kind == STK_PATTERN_NUMBERED) {
        qsort(s->numbers, s->count, sizeof(*s->numbers), by_number);
        const uint64_t begin = first ? first : s->numbers[0];
        s->holes = s->numbers[s->count - 1] - begin + 1 - s->count;
    } else {
        qsort(s->names, s->count, sizeof(*s->names), by_name);
    }
    return PEN_OK;
}

void stk_sequence_close(struct stk_sequence *s)
{
    for (size_t i = 0; s->names && i < s->count; i++)
        free(s->names[i]);
    free(s->names);
    free(s->numbers);
    s->names = NULL;
    s->numbers = NULL;
    s->count = 0;
}

bool stk_sequence_path(const struct stk_sequence *s, size_t i, char *out,
                       size_t size)
{
    const struct stk_pattern *p = &s->pattern;
    int length = 0;

    if (i >= s->count)
        return false;
    if (p->kind == STK_PATTERN_NUMBERED)
        length = snprintf(out, size, "%.*s%0*llu%s", (int)p->digits_at, p->text,
                          (int)p->digits, (unsigned long long)s->numbers[i],
                          p->text + p->digits_at + p->digits);
    else if (p->kind == STK_PATTERN_GLOB)
        length =
            snprintf(out, size, "%.*s%s", (int)p->folder, p->text, s->names[i]);
    else
        length = snprintf(out, size, "%s", p->text);
    return length >= 0 && (size_t)length < size;
}
