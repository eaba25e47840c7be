// Device profiles from files, and to them.

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "graph.h"
#include "profile.h"

enum { MAX_PROFILE_BYTES = 1 << 20 };

enum row_kind { ROW_U32, ROW_U64, ROW_BOOL, ROW_SET, ROW_TEXT, ROW_WHY };

static const char *const dmabuf_names[] = { "host", "export", "import", NULL };
static const char *const library_names[] = { "nvjpeg", "nvcuvid", "nvenc",
                                             "npp", NULL };

// How keys are read. Those that are not needed came later than the others, or
// are not known of every machine: what they are without the file's word is in
// read_rows().
static const struct row {
    const char *key;
    enum row_kind kind;
    size_t offset;
    bool required;
    uint32_t least;
    size_t size;               // TEXT
    const char *const *names;  // SET, WHY: of the bits
} rows[] = {
#define ROW(KIND, NAME, ...)                                                   \
    {                                                                          \
        .key = #NAME, .kind = KIND,                                            \
        .offset = offsetof(struct pen_profile, NAME), __VA_ARGS__              \
    }
    ROW(ROW_TEXT, name, .required = true, .size = 64),
    ROW(ROW_BOOL, cuda, .required = true),
    ROW(ROW_U32, h2d_rate, .required = true, .least = 1),
    ROW(ROW_U32, d2h_rate, .required = true, .least = 1),
    ROW(ROW_U32, pageable_rate, .required = true, .least = 1),
    ROW(ROW_U32, device_rate, .required = true, .least = 1),
    ROW(ROW_U32, host_rate, .required = true, .least = 1),
    ROW(ROW_U32, device_operations, .least = 1),
    ROW(ROW_U32, host_operations, .least = 1),
    ROW(ROW_U32, launch_ns, .required = true),
    ROW(ROW_U32, copy_ns, .required = true),
    ROW(ROW_U32, context_ns, .least = 0),
    ROW(ROW_U32, load_ns, .least = 0),
    ROW(ROW_SET, dmabuf, .names = dmabuf_names),
    ROW(ROW_WHY, why_dmabuf, .names = dmabuf_names),
    ROW(ROW_U64, host_memory, .least = 0),
    ROW(ROW_U64, cuda_memory, .least = 0),
    ROW(ROW_TEXT, device_name, .size = 128),
    ROW(ROW_TEXT, cpu_name, .size = 96),
    ROW(ROW_BOOL, emulated, .least = 0),
    ROW(ROW_SET, libraries, .names = library_names),
    ROW(ROW_U32, copy_engines, .least = 0),
    ROW(ROW_U32, decode_engines, .least = 0),
    ROW(ROW_U32, jpeg_engines, .least = 0),
#undef ROW
};
enum { ROWS = sizeof(rows) / sizeof(rows[0]) };

static const char *row_key(const void *cookie, size_t i)
{
    (void)cookie;
    return i < ROWS ? rows[i].key : NULL;
}

// --- reading ----------------------------------------------------------------

// A file that is read.
struct reader {
    const char *path;
    struct stk_positions *positions;
    struct pen_profile *out;
    struct pen_error *err;
};

// What is wrong with a key, at its place.
static enum pen_status wrong(const struct reader *r, const char *key,
                             const char *what)
{
    char pointer[160];
    int line = 1, column = 1;
    const int n = snprintf(pointer, sizeof(pointer), "/%s", key);
    if (n > 0 && n < (int)sizeof(pointer))
        stk_positions_find(r->positions, pointer, (size_t)n, &line, &column);
    return pen_error_set(r->err, PEN_E_CONFIG, 0, r->path,
                         "line %d, column %d: %s %s", line, column, key, what);
}

static enum pen_status wrong_names(const struct reader *r,
                                   const struct row *row, const char *form)
{
    char text[128];
    size_t n = (size_t)snprintf(text, sizeof(text), "is not an %s of", form);
    for (size_t i = 0; row->names[i] && n < sizeof(text); i++)
        n += (size_t)snprintf(text + n, sizeof(text) - n, "%s \"%s\"",
                              i ? "," : "", row->names[i]);
    return wrong(r, row->key, text);
}

// The bit that has this name, or none of `names`.
static bool bit_of(const char *const *names, const char *name, unsigned *bit)
{
    for (*bit = 0; name && names[*bit]; ++*bit) {
        if (!strcmp(name, names[*bit]))
            return true;
    }
    return false;
}

static enum pen_status set_names(const struct reader *r, const struct row *row,
                                 const json_t *value, unsigned *out)
{
    bool ok = json_is_array(value);
    *out = 0;
    for (size_t i = 0; ok && i < json_array_size(value); i++) {
        unsigned bit;
        ok = bit_of(row->names, json_string_value(json_array_get(value, i)),
                    &bit);
        *out |= ok ? 1u << bit : 0;
    }
    return ok ? PEN_OK : wrong_names(r, row, "array");
}

static enum pen_status set_reasons(const struct reader *r,
                                   const struct row *row, json_t *value)
{
    const char *name;
    json_t *reason;
    bool ok = json_is_object(value);
    if (ok)
        json_object_foreach (value, name, reason) {
            unsigned bit;
            ok = ok && bit_of(row->names, name, &bit) && json_is_string(reason);
            if (ok)
                snprintf(r->out->why_dmabuf[bit],
                         sizeof(r->out->why_dmabuf[bit]), "%s",
                         json_string_value(reason));
        }
    return ok ? PEN_OK : wrong_names(r, row, "object of texts");
}

static enum pen_status set_text(const struct reader *r, const struct row *row,
                                const json_t *value, char *out)
{
    const char *text = json_string_value(value);
    char what[64];
    snprintf(what, sizeof(what), "is no text of %d to %zu bytes",
             (int)row->required, row->size - 1);
    if (!text || strlen(text) >= row->size || (row->required && !*text))
        return wrong(r, row->key, what);
    memcpy(out, text, strlen(text) + 1);
    return PEN_OK;
}

// A rate of 0 would divide by zero; a fixed cost or a size of 0 is fine.
static enum pen_status set_number(const struct reader *r, const struct row *row,
                                  const json_t *value, char *field)
{
    const json_int_t most =
        row->kind == ROW_U32 ? (json_int_t)UINT32_MAX : INT64_MAX;
    const json_int_t n =
        json_is_integer(value) ? json_integer_value(value) : -1;
    if (n < (json_int_t)row->least || n > most) {
        char what[96];
        snprintf(what, sizeof(what), "is not a whole number from %u to %lld",
                 row->least, (long long)most);
        return wrong(r, row->key, what);
    }
    if (row->kind == ROW_U32)
        *(uint32_t *)field = (uint32_t)n;
    else
        *(uint64_t *)field = (uint64_t)n;
    return PEN_OK;
}

static enum pen_status set_row(const struct reader *r, const struct row *row,
                               json_t *value)
{
    char *field = (char *)r->out + row->offset;
    switch (row->kind) {
    case ROW_BOOL:
        if (!json_is_boolean(value))
            return wrong(r, row->key, "is not true or false");
        *(bool *)field = json_is_true(value);
        return PEN_OK;
    case ROW_SET:
        return set_names(r, row, value, (unsigned *)field);
    case ROW_WHY:
        return set_reasons(r, row, value);
    case ROW_TEXT:
        return set_text(r, row, value, field);
    case ROW_U32:
    case ROW_U64:
        break;
    }
    return set_number(r, row, value, field);
}

// Keys that older files do not have are what the built-in profiles have.
static void set_defaults(struct pen_profile *out, bool cuda)
{
    const struct pen_profile *like =
        pen_profile_builtin(cuda ? "generic-cuda" : "cpu");
    *out = (struct pen_profile){
        .host_operations = like->host_operations,
        .device_operations = like->device_operations,
        .context_ns = like->context_ns,
        .load_ns = like->load_ns,
    };
}

static enum pen_status read_rows(const struct reader *r, json_t *root)
{
    if (!json_is_object(root))
        return pen_error_set(r->err, PEN_E_CONFIG, 0, r->path,
                             "a profile is a JSON object");
    set_defaults(r->out, json_is_true(json_object_get(root, "cuda")));
    const char *key;
    json_t *value;
    json_object_foreach (root, key, value) {
        size_t i = 0;
        while (i < ROWS && strcmp(rows[i].key, key) != 0)
            i++;
        if (i < ROWS) {
            PEN_TRY(set_row(r, &rows[i], value));
        } else if (key[0] != '#') {
            const char *near = stk_nearest(key, row_key, NULL);
            char what[96];
            snprintf(what, sizeof(what), "is no key of a profile%s%s",
                     near ? "; did you mean " : "", near ? near : "");
            return wrong(r, key, what);
        }
    }
    for (size_t i = 0; i < ROWS; i++) {
        if (rows[i].required && !json_object_get(root, rows[i].key))
            return pen_error_set(r->err, PEN_E_CONFIG, 0, r->path,
                                 "%s is missing", rows[i].key);
    }
    return PEN_OK;
}

// The first complaint of the scanner.
static enum pen_status broken(const struct pen_issues *issues, const char *path,
                              struct pen_error *err)
{
    const struct pen_issue *is = pen_issues_get(issues, 0);
    if (!is)
        return pen_error_set(err, PEN_E_NOMEM, 0, path, "out of memory");
    return pen_error_set(err, PEN_E_CONFIG, 0, path, "line %d, column %d: %s",
                         is->line, is->column, is->message);
}

static enum pen_status parse(const char *text, size_t length, const char *path,
                             struct pen_profile *out, struct pen_error *err)
{
    struct reader r = { .path = path, .out = out, .err = err };
    json_t *root = NULL;
    struct pen_issues *issues = pen_issues_create();
    if (!issues)
        return pen_error_set(err, PEN_E_NOMEM, 0, path, "out of memory");
    enum pen_status st = stk_positions_scan(text, length, path, &r.positions,
                                            &root, issues, err);
    if (st == PEN_E_CONFIG)
        st = broken(issues, path, err);
    else if (st == PEN_OK)
        st = read_rows(&r, root);
    pen_issues_destroy(&issues);
    stk_positions_destroy(&r.positions);
    json_decref(root);
    return st;
}

enum pen_status pen_profile_load(const char *path, struct pen_profile *out,
                                 struct pen_error *err)
{
    *out = (struct pen_profile){ 0 };
    FILE *f = fopen(path, "rbe");
    if (!f)
        return pen_error_set(err, PEN_E_IO, errno, path, "%s", strerror(errno));

    static const char too_large[] = "larger than 1 MiB: this is no profile";
    enum pen_status st = PEN_OK;
    char *text = malloc(MAX_PROFILE_BYTES);
    const size_t length = text ? fread(text, 1, MAX_PROFILE_BYTES, f) : 0;
    if (!text)
        st = pen_error_set(err, PEN_E_NOMEM, 0, path, "out of memory");
    else if (ferror(f))
        st = pen_error_set(err, PEN_E_IO, errno, path, "%s", strerror(errno));
    else if (length == MAX_PROFILE_BYTES)
        st = pen_error_set(err, PEN_E_LIMIT, 0, path, "%s", too_large);
    fclose(f);

    if (st == PEN_OK)
        st = parse(text, length, path, out, err);
    free(text);
    return st;
}

// --- writing ----------------------------------------------------------------

static json_t *names_json(const struct row *row, unsigned bits)
{
    json_t *list = json_array();
    for (unsigned i = 0; row->names[i]; i++) {
        if (bits & 1u << i)
            list = stk_json_append(list, json_string(row->names[i]));
    }
    return list;
}

static json_t *reasons_json(const struct pen_profile *profile,
                            const struct row *row)
{
    json_t *object = json_object();
    for (unsigned i = 0; row->names[i]; i++) {
        if (profile->why_dmabuf[i][0])
            object = stk_json_with(object, row->names[i],
                                   stk_json_text(profile->why_dmabuf[i]));
    }
    return object;
}

static json_t *row_json(const struct pen_profile *profile,
                        const struct row *row)
{
    const char *field = (const char *)profile + row->offset;
    switch (row->kind) {
    case ROW_BOOL:
        return json_boolean(*(const bool *)field);
    case ROW_SET:
        return names_json(row, *(const unsigned *)field);
    case ROW_WHY:
        return reasons_json(profile, row);
    case ROW_TEXT:
        return stk_json_text(field);
    case ROW_U32:
        return json_integer(*(const uint32_t *)field);
    case ROW_U64:
        break;
    }
    return stk_json_count(*(const uint64_t *)field);
}

json_t *stk_profile_json(const struct pen_profile *profile)
{
    json_t *object = json_object();
    for (size_t i = 0; i < ROWS; i++)
        object =
            stk_json_with(object, rows[i].key, row_json(profile, &rows[i]));
    return object;
}
