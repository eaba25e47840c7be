// describe TYPE: pins, memory types, formats and properties of one module.

#include "cmd.h"

struct options {
    const char *type;
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
        return cmd_parse_operand(key, arg, state, "TYPE", &o->type);
    }
}

static void not_found(const struct pen_registry *registry, const char *type,
                      bool json)
{
    struct pen_error err = { 0 };
    const char *nearest = pen_registry_nearest(registry, type);
    if (nearest)
        pen_error_set(&err, PEN_E_CONFIG, 0, type,
                      "there is no such module; did you mean %s?", nearest);
    else
        pen_error_set(&err, PEN_E_CONFIG, 0, type,
                      "there is no such module; `penstock list-modules` "
                      "lists them");
    if (json)
        cmd_print(pen_issues_json(NULL, &err));
    else
        cmd_print_error(&err);
}

static int run(int argc, char **argv)
{
    struct options o = { 0 };
    const struct argp argp = {
        .options = options,
        .parser = parse,
        .args_doc = "TYPE",
        .doc = "Describe a module: pins, where their frames live, properties. "
               "Of a type that stands for several modules (Resize): all that "
               "they take.",
    };
    cmd_parse(&argp, argc, argv, &o);

    struct pen_registry *registry = cmd_registry();
    if (!registry)
        return EXIT_RUN;
    int code = EXIT_INVALID;
    const struct pen_module_class *cls =
        pen_registry_find(registry, o.type, NULL);
    const struct pen_generic_type *type = pen_generic_type_find(o.type);
    if (cls)
        code =
            cmd_print(o.json ? pen_describe_json(cls) : pen_describe_text(cls));
    else if (type)
        code = cmd_print(o.json ? pen_describe_generic_json(registry, type)
                                : pen_describe_generic_text(registry, type));
    else
        not_found(registry, o.type, o.json);
    pen_registry_destroy(&registry);
    return code;
}

const struct cmd cmd_describe = {
    .name = "describe",
    .summary = "Describe a module",
    .run = run,
};
