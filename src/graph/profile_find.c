// Profiles by name: the built-in ones, and the files that are installed.

#include <dirent.h>
#include <dlfcn.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "graph.h"

// Beside the library (or program) that this code is part of: installed or in a
// bundle, and in the build folder.
static const char *const places[] = {
    "../share/penstock/profiles",
    "../profiles",
};
enum { PLACES = sizeof(places) / sizeof(places[0]) };

static const char *const builtin[] = { "generic-cuda", "cpu" };
enum { BUILTIN = sizeof(builtin) / sizeof(builtin[0]) };

// Folder `i` to look in: those of `path`, then the places. False: no more, or
// (with an empty `folder`) one that is too long to exist.
static bool folder_at(const char *path, unsigned i, char *folder, size_t size)
{
    folder[0] = '\0';
    while (path && *path) {
        const size_t length = strcspn(path, ":");
        if (i == 0) {
            if (length < size)
                snprintf(folder, size, "%.*s", (int)length, path);
            return true;
        }
        i--;
        path += length + (path[length] == ':');
    }
    if (i >= PLACES)
        return false;
    Dl_info self;
    const char *file = "";
    if (dladdr((const void *)places, &self) && self.dli_fname)
        file = self.dli_fname;
    const char *slash = strrchr(file, '/');
    const int length = slash ? (int)(slash - file) : 1;
    const int n = snprintf(folder, size, "%.*s/%s", length, slash ? file : ".",
                           places[i]);
    if (n >= (int)size)
        folder[0] = '\0';
    return true;
}

static int is_profile(const struct dirent *entry)
{
    const char *dot = strrchr(entry->d_name, '.');
    return dot && dot != entry->d_name && !strcmp(dot, ".json");
}

// The names that there are.
static const char *list_names(const char *path, struct stk_text *t)
{
    char folder[PATH_MAX];
    for (unsigned i = 0; i < BUILTIN; i++)
        stk_text_addf(t, "%s%s", i ? ", " : "", builtin[i]);
    for (unsigned i = 0; folder_at(path, i, folder, sizeof(folder)); i++) {
        struct dirent **entries = NULL;
        const int count = scandir(folder, &entries, is_profile, alphasort);
        for (int n = 0; n < count; n++) {
            const char *name = entries[n]->d_name;
            stk_text_add(t, ", ");
            stk_text_add_n(t, name, strlen(name) - 5);
            free(entries[n]);
        }
        free(entries);
    }
    return t->data ? t->data : "";
}

static enum pen_status unknown(const char *name, const char *path,
                               struct pen_error *err)
{
    struct stk_text t = { 0 };
    const enum pen_status st = pen_error_set(
        err, PEN_E_ARG, 0, "profile",
        "there is no profile \"%s\"; there are %s; a file's name has a slash "
        "or ends in .json",
        name, list_names(path, &t));
    stk_text_finish(&t);
    return st;
}

enum pen_status pen_profile_find(const char *name, const char *path,
                                 struct pen_profile *out, struct pen_error *err)
{
    *out = (struct pen_profile){ 0 };
    const size_t length = strlen(name);
    if (strchr(name, '/') ||
        (length > 5 && !strcmp(name + length - 5, ".json")))
        return pen_profile_load(name, out, err);
    const struct pen_profile *known = pen_profile_builtin(name);
    if (known) {
        *out = *known;
        return PEN_OK;
    }
    char folder[PATH_MAX], file[PATH_MAX];
    for (unsigned i = 0; length && folder_at(path, i, folder, sizeof(folder));
         i++) {
        const int n = snprintf(file, sizeof(file), "%s/%s.json", folder, name);
        if (folder[0] && n < (int)sizeof(file) && access(file, F_OK) == 0)
            return pen_profile_load(file, out, err);
    }
    return unknown(name, path, err);
}
