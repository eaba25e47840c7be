// devices: what the driver has, and the emulated device; for one of them, how
// frames get from one memory type to another.

#include <jansson.h>

#include "cmd.h"

enum { MAX_DEVICES = 64 };

struct options {
    bool json;
    const char *device;  // NULL: no table
};

enum { OPT_JSON = 256, OPT_DEVICE };

static const struct argp_option options[] = {
    { "json", OPT_JSON, NULL, 0, "Print JSON", 0 },
    { "device", OPT_DEVICE, "auto|N|UUID|emulated", 0,
      "Open this device and tell how frames get from one memory type to "
      "another on it",
      0 },
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
    default:
        return cmd_parse_operand(key, arg, state, NULL, NULL);
    }
}

static void print_text(const struct pen_device_info *info)
{
    printf("%-10s %s\n", info->emulated ? "emulated" : "cuda", info->name);
    printf("           --device %s", info->emulated ? "emulated" : info->uuid);
    if (!info->emulated)
        printf(" or %d", info->index);
    printf("\n           sm_%d%d, %d multiprocessors, %.1f GiB, driver %d.%d\n",
           info->sm_major, info->sm_minor, info->multiprocessors,
           (double)info->total_bytes / (1u << 30), info->driver_version / 1000,
           info->driver_version % 1000 / 10);
}

static json_t *to_json(const struct pen_device_info *info)
{
    char arch[32];
    snprintf(arch, sizeof(arch), "sm_%d%d", info->sm_major, info->sm_minor);
    return json_pack(
        "{s:s, s:i, s:s, s:b, s:i, s:s, s:i, s:I}", "name", info->name, "index",
        info->index, "uuid", info->uuid, "emulated", (int)info->emulated,
        "driver_version", info->driver_version, "arch", arch, "multiprocessors",
        info->multiprocessors, "total_bytes", (json_int_t)info->total_bytes);
}

static json_t *problem_json(const char *selector, struct pen_error *err)
{
    json_t *reason = json_string(err->text);
    // The path of a library, which is named there, need not be UTF-8.
    for (char *c = err->text; !reason && *c; c++)
        *c = (unsigned char)*c < 0x80 ? *c : '?';
    if (!reason)
        reason = json_string(err->text);
    return json_pack("{s:s, s:o, s:i}", "driver", selector, "reason", reason,
                     "native", err->native);
}

// What one driver has into one of the lists; false when out of memory.
static bool look(const char *selector, bool json, json_t *devices,
                 json_t *problems)
{
    static struct pen_device_info info[MAX_DEVICES];
    struct pen_device_params params = { .selector = selector };
    struct pen_error err = { 0 };
    size_t count = 0;
    cmd_device_params(&params);
    if (pen_device_list(&params, info, MAX_DEVICES, &count, &err) != PEN_OK) {
        if (!json)
            printf("%-10s %s\n", selector, err.text);
        return json_array_append_new(problems, problem_json(selector, &err)) ==
               0;
    }
    bool ok = true;
    for (size_t i = 0; i < count && i < MAX_DEVICES; i++) {
        if (!json)
            print_text(&info[i]);
        ok = json_array_append_new(devices, to_json(&info[i])) == 0 && ok;
    }
    return ok;
}

// --- the ways between memory types ------------------------------------------

static void print_ways(const struct pen_device_info *info,
                       const struct pen_way *ways)
{
    printf("\nfrom one memory type to another on %s%s:\n", info->name,
           info->emulated ? " (emulated)" : "");
    for (unsigned i = 0; i < PEN_WAYS; i++) {
        char from[32];
        snprintf(from, sizeof(from), "%s%s", pen_mem_name(ways[i].from),
                 ways[i].exported ? " (exported)" : "");
        printf("  %-17s -> %-11s  %-7s  %s\n", from, pen_mem_name(ways[i].to),
               ways[i].way, ways[i].text);
    }
}

// NULL when out of memory.
static json_t *ways_json(const struct pen_device_info *info,
                         const struct pen_way *ways)
{
    json_t *table = json_array();
    bool ok = true;
    for (unsigned i = 0; i < PEN_WAYS; i++) {
        json_t *one = json_pack(
            "{s:s, s:b, s:s, s:s, s:s}", "from", pen_mem_name(ways[i].from),
            "exported", (int)ways[i].exported, "to", pen_mem_name(ways[i].to),
            "way", ways[i].way, "text", ways[i].text);
        ok = json_array_append_new(table, one) == 0 && ok;
    }
    json_t *all =
        json_pack("{s:s, s:s, s:b, s:o}", "device", info->name, "uuid",
                  info->uuid, "emulated", (int)info->emulated, "table", table);
    if (ok || !all)
        return all;
    json_decref(all);
    return NULL;
}

// The device that `run` would take for the same option.
static enum pen_status open_device(const char *selector,
                                   struct pen_device **out,
                                   struct pen_error *err)
{
    struct pen_device_params params = {
        .selector = cmd_device_selector(selector),
    };
    cmd_device_params(&params);
    const enum pen_status st = pen_device_open(&params, out, err);
    if (!cmd_device_emulates(selector, st, err))
        return st;
    params.selector = "emulated";
    *err = (struct pen_error){ 0 };
    return pen_device_open(&params, out, err);
}

// The exit code; *out is for the JSON.
static int tell_ways(const struct options *o, json_t **out)
{
    struct pen_error err = { 0 };
    struct pen_device *dev = NULL;
    struct pen_device_info info = { 0 };
    enum pen_status st = open_device(o->device, &dev, &err);
    if (st == PEN_OK)
        st = pen_device_get_info(dev, &info, &err);
    if (st != PEN_OK) {
        pen_device_close(&dev);
        cmd_print_error(&err);
        return st == PEN_E_ARG ? EXIT_INVALID : EXIT_RUN;
    }
    static struct pen_way ways[PEN_WAYS];
    pen_device_ways(dev, ways);
    pen_device_close(&dev);
    if (!o->json)
        print_ways(&info, ways);
    else if (!(*out = ways_json(&info, ways)))
        return cmd_no_memory();
    return EXIT_OK;
}

static int run(int argc, char **argv)
{
    struct options o = { 0 };
    const struct argp argp = {
        .options = options,
        .parser = parse,
        .doc = "List the devices a pipeline can use. Retains no context, "
               "unless a device is named.",
    };
    cmd_parse(&argp, argc, argv, &o);

    json_t *devices = json_array(), *problems = json_array(), *ways = NULL;
    bool ok = look("cuda", o.json, devices, problems);
    ok = look("emulated", o.json, devices, problems) && ok;
    int code = o.device ? tell_ways(&o, &ways) : EXIT_OK;
    json_t *root =
        json_pack("{s:b, s:o, s:o, s:o*}", "ok", code == EXIT_OK, "devices",
                  devices, "unavailable", problems, "ways", ways);
    if (o.json && (!ok || !root))
        code = cmd_no_memory();
    else if (o.json && json_dumpf(root, stdout, JSON_INDENT(2)) == 0)
        putchar('\n');
    json_decref(root);
    return code;
}

const struct cmd cmd_devices = {
    .name = "devices",
    .summary = "List the devices a pipeline can use",
    .run = run,
};
