// Device profiles from files: what `--profile` reads.

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "graph.h"

enum { MAX_PROFILE_BYTES = 1 << 20 };

enum row_kind { ROW_U32, ROW_U64, ROW_BOOL, ROW_DMABUF };

// clang-format off
static const struct {
    const char *key;
    enum row_kind kind;
    size_t offset;
    bool required;
} rows[] = {
    { "cuda",          ROW_BOOL, offsetof(struct pen_profile, cuda),          true },
    { "h2d_rate",      ROW_U32,  offsetof(struct pen_profile, h2d_rate),      true },
    { "d2h_rate",      ROW_U32,  offsetof(struct pen_profile, d2h_rate),      true },
    { "pageable_rate", ROW_U32,  offsetof(struct pen_profile, pageable_rate), true },
    { "device_rate",   ROW_U32,  offsetof(struct pen_profile, device_rate),   true },
    { "host_rate",     ROW_U32,  offsetof(struct pen_profile, host_rate),     true },
    { "launch_ns",     ROW_U32,  offsetof(struct pen_profile, launch_ns),     true },
    { "copy_ns",       ROW_U32,  offsetof(struct pen_profile, copy_ns),       true },
    { "dmabuf",        ROW_DMABUF, offsetof(struct pen_profile, dmabuf),      false },
    { "host_memory",   ROW_U64,  offsetof(struct pen_profile, host_memory),   false },
    { "cuda_memory",   ROW_U64,  offsetof(struct pen_profile, cuda_memory),   false },
};
// clang-format on
enum { ROWS = sizeof(rows) / sizeof(rows[0]) };

static const char *row_key(const void *cookie, size_t i)
{
    (void)cookie;
    return i < ROWS ? rows[i].key : i == ROWS ? "name" : NULL;
}

// An array of "host", "export", "import".
static enum pen_status set_dmabuf(const json_t *value, unsigned *out,
                                  const char *path, struct pen_error *err)
{
    static const char *const names[] = { "host", "export", "import" };
    enum { NAMES = sizeof(names) / sizeof(names[0]) };
    bool ok = json_is_array(value);
    for (size_t i = 0; ok && i < json_array_size(value); i++) {
        const char *name = json_string_value(json_array_get(value, i));
        size_t n = 0;
        while (name && n < NAMES && strcmp(name, names[n]) != 0)
            n++;
        ok = name && n < NAMES;
        if (ok)
            *out |= 1u << n;
    }
    if (ok)
        return PEN_OK;
    return pen_error_set(err, PEN_E_CONFIG, 0, path,
                         "dmabuf is not an array of \"host\", \"export\" and "
                         "\"import\"");
}

static enum pen_status set_row(size_t i, const json_t *value,
                               struct pen_profile *out, const char *path,
                               struct pen_error *err)
{
    char *field = (char *)out + rows[i].offset;
    if (rows[i].kind == ROW_BOOL) {
        if (!json_is_boolean(value))
            return pen_error_set(err, PEN_E_CONFIG, 0, path,
                                 "%s is not true or false", rows[i].key);
        *(bool *)field = json_is_true(value);
        return PEN_OK;
    }

    if (rows[i].kind == ROW_DMABUF)
        return set_dmabuf(value, (unsigned *)field, path, err);

    // A rate of 0 would divide by zero; a fixed cost or a size of 0 is fine.
    const bool rate = strstr(rows[i].key, "_rate") != NULL;
    const json_int_t most =
        rows[i].kind == ROW_U32 ? (json_int_t)UINT32_MAX : INT64_MAX;
    const json_int_t n =
        json_is_integer(value) ? json_integer_value(value) : -1;
    if (n < (rate ? 1 : 0) || n > most)
        return pen_error_set(err, PEN_E_CONFIG, 0, path,
                             "%s is not a whole number from %d to %lld",
                             rows[i].key, rate ? 1 : 0, (long long)most);
    if (rows[i].kind == ROW_U32)
        *(uint32_t *)field = (uint32_t)n;
    else
        *(uint64_t *)field = (uint64_t)n;
    return PEN_OK;
}

static enum pen_status read_rows(const json_t *root, struct pen_profile *out,
                                 const char *path, struct pen_error *err)
{
    if (!json_is_object(root))
        return pen_error_set(err, PEN_E_CONFIG, 0, path,
                             "a profile is a JSON object");
    const char *name = json_string_value(json_object_get(root, "name"));
    if (!name || !*name || strlen(name) >= sizeof(out->name))
        return pen_error_set(err, PEN_E_CONFIG, 0, path,
                             "name is missing, empty or longer than %zu bytes",
                             sizeof(out->name) - 1);
    memcpy(out->name, name, strlen(name) + 1);

    const char *key;
    json_t *value;
    json_object_foreach ((json_t *)root, key, value) {
        size_t i = 0;
        while (i < ROWS && strcmp(rows[i].key, key) != 0)
            i++;
        if (i < ROWS)
            PEN_TRY(set_row(i, value, out, path, err));
        else if (strcmp(key, "name") != 0 && key[0] != '#') {
            const char *near = stk_nearest(key, row_key, NULL);
            return pen_error_set(
                err, PEN_E_CONFIG, 0, path, "unknown key \"%s\"%s%s", key,
                near ? "; did you mean " : "", near ? near : "");
        }
    }
    for (size_t i = 0; i < ROWS; i++) {
        if (rows[i].required && !json_object_get(root, rows[i].key))
            return pen_error_set(err, PEN_E_CONFIG, 0, path, "%s is missing",
                                 rows[i].key);
    }
    return PEN_OK;
}

enum pen_status pen_profile_load(const char *path, struct pen_profile *out,
                                 struct pen_error *err)
{
    *out = (struct pen_profile){ 0 };
    FILE *f = fopen(path, "rb");
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

    if (st == PEN_OK) {
        json_error_t problem;
        json_t *root =
            json_loadb(text, length, JSON_REJECT_DUPLICATES, &problem);
        if (!root)
            st = pen_error_set(err, PEN_E_CONFIG, 0, path,
                               "line %d, column %d: %s", problem.line,
                               problem.column, problem.text);
        else
            st = read_rows(root, out, path, err);
        json_decref(root);
    }
    free(text);
    return st;
}
