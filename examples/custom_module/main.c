// Run a pipeline file that may use MyCustomCuda:
//
//     penstock-kernel -o invert.o invert.cu
//     cc main.c my_custom_cuda.c invert.o $(pkg-config --cflags --libs
//     penstock)
//     ./a.out invert.json [device]

#include <stdio.h>

#include <penstock/penstock.h>

#include "my_custom_cuda.h"

static enum pen_status run(const char *path, const char *device,
                           struct pen_issues *issues, struct pen_error *err)
{
    const struct pen_pipeline_params params = { .device.selector = device };
    struct pen_registry *registry = NULL;
    struct pen_description *desc = NULL;
    struct pen_pipeline *pipeline = NULL;

    enum pen_status st = pen_registry_create(&registry, err);
    if (st == PEN_OK)
        st = pen_registry_add(registry, &my_custom_cuda, err);
    if (st == PEN_OK)
        st = pen_description_load(path, &desc, issues, err);
    if (st == PEN_OK)
        st = pen_pipeline_create(desc, registry, &params, &pipeline, issues,
                                 err);
    if (st == PEN_OK)
        st = pen_pipeline_start(pipeline, err);
    if (st == PEN_OK)
        st = pen_pipeline_wait(pipeline, -1, err);
    if (st == PEN_OK) {
        char *report = pen_pipeline_report_text(pipeline);
        printf("%s\n", report ? report : "");
        pen_free(report);
    }
    pen_pipeline_destroy(&pipeline);
    pen_description_destroy(&desc);
    pen_registry_destroy(&registry);
    return st;
}

int main(int argc, char **argv)
{
    if (argc < 2) {
        fprintf(stderr, "usage: custom_module FILE [DEVICE]\n");
        return 3;
    }
    struct pen_error err = { 0 };
    struct pen_issues *issues = pen_issues_create();
    const enum pen_status st =
        run(argv[1], argc > 2 ? argv[2] : "emulated", issues, &err);

    const struct pen_issue *issue;
    for (size_t i = 0; (issue = pen_issues_get(issues, i)); i++)
        fprintf(stderr, "%s %s %d:%d %s\n", pen_severity_name(issue->severity),
                issue->code, issue->line, issue->column, issue->message);
    if (st != PEN_OK)
        fprintf(stderr, "custom_module: %s: %s\n", err.where, err.text);
    pen_issues_destroy(&issues);
    return st == PEN_OK ? 0 : 1;
}
