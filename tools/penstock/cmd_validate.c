// validate FILE: what can be said about a pipeline file without running it.

#include "cmd.h"

struct options {
    const char *file;
    bool json, probe;
    struct cmd_sets sets;
};

enum { OPT_JSON = 256, OPT_SET, OPT_PROBE };

static const struct argp_option options[] = {
    { "json", OPT_JSON, NULL, 0, "Print {ok, issues} as JSON", 0 },
    { "set", OPT_SET, "ID.PROP=VALUE", 0, "Override a property", 0 },
    { "probe", OPT_PROBE, NULL, 0, "Read the headers of input files", 0 },
    { 0 },
};

static error_t parse(int key, char *arg, struct argp_state *state)
{
    struct options *o = state->input;
    switch (key) {
    case OPT_JSON:
        o->json = true;
        return 0;
    case OPT_SET:
        cmd_sets_add(&o->sets, arg, state);
        return 0;
    case OPT_PROBE:
        o->probe = true;
        return 0;
    default:
        return cmd_parse_operand(key, arg, state, "FILE", &o->file);
    }
}

static int run(int argc, char **argv)
{
    struct options o = { 0 };
    const struct argp argp = {
        .options = options,
        .parser = parse,
        .args_doc = "FILE",
        .doc = "Check a pipeline file. Opens no driver, creates nothing.",
    };
    cmd_parse(&argp, argc, argv, &o);

    struct cmd_job job;
    int code = cmd_job_open(&job, o.file, &o.sets, o.json);
    if (code == EXIT_OK) {
        const enum pen_status st =
            o.probe
                ? pen_validate_probe(job.desc, job.registry, job.issues,
                                     &job.err)
                : pen_validate(job.desc, job.registry, job.issues, &job.err);
        if (st != PEN_OK) {
            code = cmd_job_failed(&job, o.file, o.json, st);
        } else if (o.json) {
            code = cmd_print(pen_issues_json(job.issues, NULL));
        } else {
            cmd_print_issues(o.file, job.issues);
            printf("%s: ok\n", o.file);
        }
    }
    cmd_job_close(&job);
    return code;
}

const struct cmd cmd_validate = {
    .name = "validate",
    .summary = "Check a pipeline file",
    .run = run,
};
