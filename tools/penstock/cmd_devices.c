// devices: what the driver has, and the emulated device.

#include <jansson.h>

#include "cmd.h"

enum { MAX_DEVICES = 64 };

struct options {
    bool json;
};

enum { OPT_JSON = 256 };

static const struct argp_option options[] = {
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

static int run(int argc, char **argv)
{
    struct options o = { 0 };
    const struct argp argp = {
        .options = options,
        .parser = parse,
        .doc = "List the devices a pipeline can use. Retains no context.",
    };
    cmd_parse(&argp, argc, argv, &o);

    json_t *devices = json_array(), *problems = json_array();
    bool ok = look("cuda", o.json, devices, problems);
    ok = look("emulated", o.json, devices, problems) && ok;
    json_t *root = json_pack("{s:b, s:o, s:o}", "ok", 1, "devices", devices,
                             "unavailable", problems);
    int code = EXIT_OK;
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
