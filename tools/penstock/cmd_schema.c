// schema: JSON Schema of pipeline files, made from the modules' tables.

#include "cmd.h"

enum { OPT_JSON = 256 };

static error_t parse(int key, char *arg, struct argp_state *state)
{
    return key == OPT_JSON ? 0 : cmd_parse_operand(key, arg, state, NULL, NULL);
}

static int run(int argc, char **argv)
{
    static const struct argp_option options[] = {
        { "json", OPT_JSON, NULL, 0, "Accepted for symmetry: it is always JSON",
          0 },
        { 0 },
    };
    const struct argp argp = {
        .options = options,
        .parser = parse,
        .doc = "Print the JSON Schema of pipeline files.",
    };
    cmd_parse(&argp, argc, argv, NULL);

    struct pen_registry *registry = cmd_registry();
    if (!registry)
        return EXIT_RUN;
    const int code = cmd_print(pen_registry_schema_json(registry));
    pen_registry_destroy(&registry);
    return code;
}

const struct cmd cmd_schema = {
    .name = "schema",
    .summary = "Print the JSON Schema of pipeline files",
    .run = run,
};
