// calibrate: measure this machine, for plans that reckon with it.

#include <errno.h>
#include <fcntl.h>
#include <jansson.h>
#include <string.h>
#include <unistd.h>

#include "cmd.h"

struct options {
    const char *device, *output, *name;
    bool json, overwrite;
    bool drawn;  // a line of progress stands on the terminal
};

enum { OPT_JSON = 256, OPT_DEVICE, OPT_OUTPUT, OPT_OVERWRITE, OPT_NAME };

static const struct argp_option options[] = {
    { "device", OPT_DEVICE, "auto|N|UUID|emulated", 0,
      "What to measure (default auto: the first GPU, or the emulated device "
      "where no driver is installed)",
      0 },
    { "output", OPT_OUTPUT, "P.json", 0,
      "Write the profile, for --profile of `plan` and `run`", 0 },
    { "overwrite", OPT_OVERWRITE, NULL, 0, "Replace a file that exists", 0 },
    { "name", OPT_NAME, "NAME", 0,
      "Name of the profile (default: that of the file, else of the device)",
      0 },
    { "json", OPT_JSON, NULL, 0, "Print JSON", 0 },
    { 0 },
};

static error_t parse(int key, char *arg, struct argp_state *state)
{
    struct options *o = state->input;
    switch (key) {
    case OPT_JSON:
        o->json = true;
        return 0;
    case OPT_DEVICE:
        o->device = arg;
        return 0;
    case OPT_OUTPUT:
        o->output = arg;
        return 0;
    case OPT_OVERWRITE:
        o->overwrite = true;
        return 0;
    case OPT_NAME:
        o->name = arg;
        return 0;
    default:
        return cmd_parse_operand(key, arg, state, NULL, NULL);
    }
}

static void on_progress(void *cookie, unsigned step, unsigned steps,
                        const char *what)
{
    struct options *o = cookie;
    o->drawn = true;
    fprintf(stderr, "\r\033[K%u of %u: %s", step + 1, steps, what);
    fflush(stderr);
}

static void end_progress(struct options *o)
{
    if (o->drawn)
        fputs("\r\033[K", stderr);
    o->drawn = false;
}

// "dir/h200.json" -> "h200"; NULL: no such name.
static const char *name_of(const char *path, char *text, size_t size)
{
    const char *slash = strrchr(path, '/');
    const char *name = slash ? slash + 1 : path;
    size_t length = strlen(name);
    if (length > 5 && !strcmp(name + length - 5, ".json"))
        length -= 5;
    if (!length || length >= size)
        return NULL;
    snprintf(text, size, "%.*s", (int)length, name);
    return text;
}

static enum pen_status measure(struct options *o, struct pen_calibration **out,
                               struct pen_error *err)
{
    char name[64];
    struct pen_calibrate_params params = {
        .device.selector = cmd_device_selector(o->device),
        .name = o->name,
        .progress = isatty(STDERR_FILENO) ? on_progress : NULL,
        .cookie = o,
    };
    if (!params.name && o->output)
        params.name = name_of(o->output, name, sizeof(name));
    cmd_device_params(&params.device);
    enum pen_status st = pen_calibrate(&params, out, err);
    end_progress(o);
    if (!cmd_device_emulates(o->device, st, err))
        return st;

    fputs("penstock: no CUDA driver is installed; measuring the emulated "
          "device, which says nothing about a GPU\n",
          stderr);
    params.device.selector = "emulated";
    *err = (struct pen_error){ 0 };
    st = pen_calibrate(&params, out, err);
    end_progress(o);
    return st;
}

// Before the seconds that measuring takes.
static enum pen_status refuse_existing(const struct options *o,
                                       struct pen_error *err)
{
    if (!o->output || o->overwrite ||
        faccessat(AT_FDCWD, o->output, F_OK, AT_SYMLINK_NOFOLLOW) != 0)
        return PEN_OK;
    snprintf(err->where, sizeof(err->where), "%s", o->output);
    snprintf(err->text, sizeof(err->text),
             "the file exists; --overwrite replaces it");
    err->status = PEN_E_IO;
    return PEN_E_IO;
}

static int print_json(const struct options *o, char *profile,
                      const struct pen_error *err)
{
    json_t *object = json_object();
    json_t *text = json_string(err->text);
    bool ok = json_object_set_new(object, "ok", json_boolean(profile)) == 0;
    if (profile) {
        ok &= json_object_set_new(object, "profile",
                                  json_loads(profile, 0, NULL)) == 0;
        ok &= json_object_set_new(object, "output",
                                  o->output ? json_string(o->output)
                                            : json_null()) == 0;
        json_decref(text);
    } else {
        ok &= json_object_set_new(object, "error", text) == 0;
    }
    if (ok && json_dumpf(object, stdout, JSON_INDENT(2)) == 0)
        putchar('\n');
    json_decref(object);
    pen_free(profile);
    return ok ? EXIT_OK : cmd_no_memory();
}

static int failed(const struct options *o, const struct pen_error *err,
                  enum pen_status st)
{
    cmd_print_error(err);
    if (o->json)
        print_json(o, NULL, err);
    return st == PEN_E_ARG || st == PEN_E_IO ? EXIT_INVALID : EXIT_RUN;
}

static int run(int argc, char **argv)
{
    struct options o = { .device = "auto" };
    const struct argp argp = {
        .options = options,
        .parser = parse,
        .doc = "Measure copies, launches, conversions and operators of this "
               "machine. The result is a profile: with it `plan` and `run` "
               "reckon, on this machine and on others.",
    };
    cmd_parse(&argp, argc, argv, &o);

    struct pen_error err = { 0 };
    struct pen_calibration *c = NULL;
    enum pen_status st = refuse_existing(&o, &err);
    if (st == PEN_OK)
        st = measure(&o, &c, &err);
    if (st == PEN_OK && o.output)
        st = pen_calibration_save(c, o.output, o.overwrite, &err);
    int code = EXIT_OK;
    if (st != PEN_OK)
        code = failed(&o, &err, st);
    else if (o.json)
        code = print_json(&o, pen_calibration_json(c), &err);
    else
        code = cmd_print(pen_calibration_text(c));
    if (code == EXIT_OK && o.output)
        fprintf(stderr, "penstock: %s is written\n", o.output);
    pen_calibration_destroy(&c);
    return code;
}

const struct cmd cmd_calibrate = {
    .name = "calibrate",
    .summary = "Measure this machine and write a device profile",
    .run = run,
};
