// Load a pipeline file, plan it, run it and read its statistics.
//
//     cc use_library.c $(pkg-config --cflags --libs penstock)
//     ./a.out blur.json [id.prop=value]...

#include <stdio.h>

#include <penstock/penstock.h>

static void print_issues(const struct pen_issues *issues)
{
    const struct pen_issue *issue;
    for (size_t i = 0; (issue = pen_issues_get(issues, i)); i++)
        printf("%s %s %d:%d %s\n", pen_severity_name(issue->severity),
               issue->code, issue->line, issue->column, issue->message);
}

static enum pen_status run(const struct pen_description *desc,
                           const struct pen_registry *registry,
                           struct pen_issues *issues, struct pen_error *err)
{
    const struct pen_pipeline_params params = {
        .device.selector = "emulated",
        .leaks_fatal = true,
        .leak_sites = true,
    };
    struct pen_pipeline *pipeline = NULL;
    enum pen_status st =
        pen_pipeline_create(desc, registry, &params, &pipeline, issues, err);
    if (st != PEN_OK)
        return st;

    char *plan = pen_plan_text(pen_pipeline_plan(pipeline));
    printf("%s\n", plan ? plan : "");
    pen_free(plan);

    st = pen_pipeline_start(pipeline, err);
    if (st == PEN_OK)
        st = pen_pipeline_wait(pipeline, -1, err);

    struct pen_stats stats;
    pen_pipeline_stats(pipeline, &stats);
    printf(
        "%llu frames, %llu uploads, %llu downloads, %llu leaks\n",
        (unsigned long long)stats.frames, (unsigned long long)stats.h2d.count,
        (unsigned long long)stats.d2h.count, (unsigned long long)stats.leaks);
    pen_pipeline_destroy(&pipeline);
    return st;
}

int main(int argc, char **argv)
{
    if (argc < 2) {
        fprintf(stderr, "usage: use_library FILE [id.prop=value]...\n");
        return 3;
    }
    struct pen_error err = { 0 };
    struct pen_registry *registry = NULL;
    struct pen_description *desc = NULL;
    struct pen_issues *issues = pen_issues_create();

    enum pen_status st = pen_registry_create(&registry, &err);
    if (st == PEN_OK)
        st = pen_description_load(argv[1], &desc, issues, &err);
    for (int i = 2; st == PEN_OK && i < argc; i++)
        st = pen_description_set(desc, argv[i], &err);
    if (st == PEN_OK)
        st = run(desc, registry, issues, &err);

    print_issues(issues);
    if (st != PEN_OK)
        fprintf(stderr, "use_library: %s: %s\n", err.where, err.text);
    pen_description_destroy(&desc);
    pen_issues_destroy(&issues);
    pen_registry_destroy(&registry);
    return st == PEN_OK ? 0 : 1;
}
