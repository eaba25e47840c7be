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
    case ARGP_KEY_ARG:
        argp_error(state, "unexpected argument %s", arg);
        return 0;
    default:
        return ARGP_ERR_UNKNOWN;
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
    return json_pack(
        "{s:s, s:i, s:s, s:b, s:i, s:s++, s:i, s:I}", "name", info->name,
        "index", info->index, "uuid", info->uuid, "emulated",
        (int)info->emulated, "driver_version", info->driver_version, "arch",
        "sm_", (char[]){ (char)('0' + info->sm_major % 10), 0 },
        (char[]){ (char)('0' + info->sm_minor % 10), 0 }, "multiprocessors",
        info->multiprocessors, "total_bytes", (json_int_t)info->total_bytes);
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

    static const char *const selectors[] = { "cuda", "emulated" };
    json_t *devices = json_array(), *problems = json_array();
    for (size_t s = 0; s < 2; s++) {
        struct pen_device_params params = { .selector = selectors[s] };
        cmd_device_params(&params);
        static struct pen_device_info info[MAX_DEVICES];
        struct pen_error err = { 0 };
        size_t count = 0;
        if (pen_device_list(&params, info, MAX_DEVICES, &count, &err) !=
            PEN_OK) {
            if (!o.json)
                printf("%-10s %s\n", selectors[s], err.text);
            json_array_append_new(
                problems, json_pack("{s:s, s:s, s:i}", "driver", selectors[s],
                                    "reason", err.text, "native", err.native));
            continue;
        }
        for (size_t i = 0; i < count && i < MAX_DEVICES; i++) {
            if (!o.json)
                print_text(&info[i]);
            json_array_append_new(devices, to_json(&info[i]));
        }
    }
    json_t *root = json_pack("{s:b, s:o, s:o}", "ok", 1, "devices", devices,
                             "unavailable", problems);
    int code = EXIT_OK;
    if (o.json)
        code = cmd_print(root ? json_dumps(root, JSON_INDENT(2)) : NULL);
    json_decref(root);
    return code;
}

const struct cmd cmd_devices = {
    .name = "devices",
    .summary = "List the devices a pipeline can use",
    .run = run,
};
