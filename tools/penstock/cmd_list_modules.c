// list-modules: the classes of the registry, by category and tags.

#include "cmd.h"

enum { MAX_TAGS = 16, MAX_MODULES = 1024, MAX_OPTIONS = 32 };

struct options {
    enum pen_category category;
    const char *tags[MAX_TAGS + 1];
    size_t tag_count;
    bool json;
};

enum { OPT_JSON = 256, OPT_CATEGORY, OPT_TAG };

static const struct argp_option options[] = {
    { "category", OPT_CATEGORY, "C", 0,
      "source, transform, sink, analytics, controller or utility", 0 },
    { "tag", OPT_TAG, "T", 0,
      "Only modules with this tag; all must match if given again", 0 },
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
    case OPT_CATEGORY:
        o->category = pen_category_from_name(arg);
        if (o->category == PEN_CATEGORY_NONE)
            argp_error(state,
                       "--category %s: expected source, transform, sink, "
                       "analytics, controller or utility",
                       arg);
        return 0;
    case OPT_TAG:
        if (o->tag_count == MAX_TAGS)
            argp_error(state, "more than %d --tag", MAX_TAGS);
        o->tags[o->tag_count++] = arg;
        return 0;
    default:
        return cmd_parse_operand(key, arg, state, NULL, NULL);
    }
}

static bool has_tags(const struct pen_generic_type *type,
                     const char *const *tags)
{
    for (; *tags; tags++) {
        const char *const *t = type->tags;
        while (*t && strcmp(*t, *tags) != 0)
            t++;
        if (!*t)
            return false;
    }
    return true;
}

// "Resize  transform  Scales pictures. (ImageResizeCV or ResizeNPPI)"
static void print_generic(const struct pen_registry *registry,
                          const struct options *o,
                          const struct pen_generic_type *type)
{
    const struct pen_module_class *list[MAX_OPTIONS];
    size_t count =
        pen_registry_generic_classes(registry, type, list, MAX_OPTIONS);
    const enum pen_category category =
        count ? list[0]->category : PEN_CATEGORY_TRANSFORM;
    if (!has_tags(type, o->tags) ||
        (o->category != PEN_CATEGORY_NONE && o->category != category))
        return;
    printf("%-24s %-10s %s (", type->name, pen_category_name(category),
           type->summary);
    for (size_t i = 0; i < count && i < MAX_OPTIONS; i++)
        printf("%s%s", i ? " or " : "", list[i]->name);
    if (!count)
        printf("not available: no module has the tag %s%s%s yet", type->tags[0],
               type->tags[1] ? " and " : "",
               type->tags[1] ? type->tags[1] : "");
    puts(")");
}

static int run(int argc, char **argv)
{
    struct options o = { 0 };
    const struct argp argp = {
        .options = options,
        .parser = parse,
        .doc = "List the modules that a pipeline file may name, then the "
               "types that stand for several of them.",
    };
    cmd_parse(&argp, argc, argv, &o);

    struct pen_registry *registry = cmd_registry();
    if (!registry)
        return EXIT_RUN;
    static const struct pen_module_class *found[MAX_MODULES];
    size_t count =
        pen_registry_modules(registry, o.category, o.tags, found, MAX_MODULES);
    if (count > MAX_MODULES)
        count = MAX_MODULES;

    int code = EXIT_OK;
    if (o.json) {
        code = cmd_print(pen_registry_list_json(registry, o.category, o.tags));
    } else {
        for (size_t i = 0; i < count; i++)
            printf("%-24s %-10s %s\n", found[i]->name,
                   pen_category_name(found[i]->category), found[i]->summary);
        const struct pen_generic_type *type = pen_generic_types();
        for (; type->name; type++)
            print_generic(registry, &o, type);
    }
    pen_registry_destroy(&registry);
    if (code == EXIT_OK && !count) {
        fputs("penstock: no module matches\n", stderr);
        return EXIT_INVALID;
    }
    return code;
}

const struct cmd cmd_list_modules = {
    .name = "list-modules",
    .summary = "List modules, by category and tags",
    .run = run,
};
