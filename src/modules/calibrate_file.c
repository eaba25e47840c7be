// What was measured, as a table and as a profile's file.

#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "../base/str.h"
#include "../graph/profile.h"
#include "calibrate.h"
#include "file_out.h"

// --- as text ----------------------------------------------------------------

static void put_measure(struct stk_text *t, const struct stk_measure *m)
{
    const bool ns = !strcmp(m->unit, "ns");
    const double scale = ns ? 1e-3 : 1;
    stk_text_addf(t, "  %-36s %12.1f %-13s (%.1f to %.1f, %u)", m->what,
                  m->median * scale, ns ? "us" : m->unit, m->low * scale,
                  m->high * scale, m->samples);
    if (m->bytes)
        stk_text_addf(t, "  %.2f GB/s", (double)m->bytes / m->median);
    stk_text_add(t, "\n");
}

char *pen_calibration_text(const struct pen_calibration *c)
{
    const struct pen_profile *p = &c->profile;
    struct stk_text t = { 0 };
    stk_text_addf(&t, "profile \"%s\": ", p->name);
    stk_text_add_plain(&t, p->device_name);
    stk_text_addf(&t, "%s, driver %d.%d; ", p->emulated ? " (emulated)" : "",
                  c->driver_version / 1000, c->driver_version % 1000 / 10);
    stk_text_add_plain(&t, p->cpu_name[0] ? p->cpu_name : "CPU without a name");
    stk_text_add(&t, "\n\nmeasured: median (10th to 90th of a hundred, "
                     "samples)\n");
    for (unsigned i = 0; i < c->count; i++)
        put_measure(&t, &c->measures[i]);
    stk_text_addf(
        &t,
        "\nplans reckon with\n"
        "  copies                  %u B/us to the device, %u from it, "
        "%u pageable, and %u ns each\n"
        "  device                  %u B/us, %u operations/us, %u ns "
        "each launch\n"
        "  host, one thread        %u B/us, %u operations/us\n"
        "  once                    %u ns for the context, %u for "
        "each module's kernels\n",
        p->h2d_rate, p->d2h_rate, p->pageable_rate, p->copy_ns, p->device_rate,
        p->device_operations, p->launch_ns, p->host_rate, p->host_operations,
        p->context_ns, p->load_ns);
    return stk_text_take(&t);
}

// --- as a file --------------------------------------------------------------

static json_t *measures_json(const struct pen_calibration *c)
{
    json_t *list = json_array();
    for (unsigned i = 0; i < c->count; i++) {
        const struct stk_measure *m = &c->measures[i];
        char text[160];
        snprintf(text, sizeof(text), "%s: %.1f %s (%.1f to %.1f, %u samples)",
                 m->what, m->median, m->unit, m->low, m->high, m->samples);
        list = stk_json_append(list, stk_json_text(text));
    }
    return list;
}

char *pen_calibration_json(const struct pen_calibration *c)
{
    char source[160];
    snprintf(source, sizeof(source), "penstock calibrate %s, driver %d.%d",
             pen_version(), c->driver_version / 1000,
             c->driver_version % 1000 / 10);
    json_t *object = stk_profile_json(&c->profile);
    object = stk_json_with(object, "#source", stk_json_text(source));
    object = stk_json_with(object, "#uuid", stk_json_text(c->uuid));
    object = stk_json_with(object, "#measured", measures_json(c));
    return stk_json_dump_new(object);
}

static enum pen_status write_text(const char *path, int folder,
                                  const char *name, char *text, bool overwrite,
                                  struct pen_error *err)
{
    struct stk_file_out f = {
        .folder = folder,
        .name = name,
        .path = path,
        .mode = overwrite ? STK_FILE_REPLACE : STK_FILE_NEW,
    };
    char end[] = "\n";
    struct iovec parts[] = { { text, strlen(text) }, { end, 1 } };
    PEN_TRY(stk_file_begin(&f, err));
    const enum pen_status st = stk_file_write(&f, parts, 2, err);
    if (st == PEN_OK)
        return stk_file_commit(&f, err);
    stk_file_abort(&f);
    return st;
}

enum pen_status pen_calibration_save(const struct pen_calibration *c,
                                     const char *path, bool overwrite,
                                     struct pen_error *err)
{
    const char *slash = strrchr(path, '/');
    const char *name = slash ? slash + 1 : path;
    char folder[PATH_MAX] = ".";
    if (slash && snprintf(folder, sizeof(folder), "%.*s",
                          (int)(slash - path + 1), path) >= (int)sizeof(folder))
        return pen_error_set(err, PEN_E_IO, 0, "", "the path is too long");
    if (!*name)
        return pen_error_set(err, PEN_E_IO, 0, "", "\"%s\" names no file",
                             path);
    if (!overwrite && faccessat(AT_FDCWD, path, F_OK, AT_SYMLINK_NOFOLLOW) == 0)
        return pen_error_set(err, PEN_E_IO, 0, "",
                             "\"%s\" exists: it is replaced only if that is "
                             "asked for",
                             path);
    int at;
    PEN_TRY(stk_folder_open(folder, false, &at, err));
    char *text = pen_calibration_json(c);
    const enum pen_status st =
        text ? write_text(path, at, name, text, overwrite, err)
             : pen_error_set(err, PEN_E_NOMEM, 0, "", "out of memory");
    free(text);
    close(at);
    return st;
}
