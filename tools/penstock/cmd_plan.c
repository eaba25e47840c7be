// plan FILE: the whole plan, without running it.

#include <errno.h>
#include <string.h>
#include <sys/stat.h>

#include "cmd.h"

struct options {
    const char *file;
    bool json;
    enum cmd_color color;
    const char *svg, *dot, *profile, *explain;
    struct pen_profile profile_storage;
    struct pen_plan_params plan;
    struct cmd_sets sets;
};

enum {
    OPT_JSON = 256,
    OPT_SET,
    OPT_PROBE,
    OPT_BUDGET,
    OPT_SVG,
    OPT_DOT,
    OPT_PROFILE,
    OPT_COLOR,
    OPT_EXPLAIN,
    OPT_FRAMES,
};

static const struct argp_option options[] = {
    { "json", OPT_JSON, NULL, 0, "Print the plan as JSON", 0 },
    { "set", OPT_SET, "ID.PROP=VALUE", 0, "Override a property", 0 },
    { "probe", OPT_PROBE, NULL, 0, "Read the headers of input files", 0 },
    { "budget", OPT_BUDGET, "KEY=SIZE", 0, CMD_BUDGET_HELP, 0 },
    { "frames", OPT_FRAMES, "N", 0,
      "Expect at most N frames of each source, as `run --frames` gives them",
      0 },
    { "profile", OPT_PROFILE, "NAME|P.json", 0,
      "Reckon with this device profile: generic-cuda, cpu, h200 or a file", 0 },
    { "svg", OPT_SVG, "OUT", 0, "Draw the plan as SVG", 0 },
    { "dot", OPT_DOT, "OUT", 0, "Write the plan as Graphviz text", 0 },
    { "explain", OPT_EXPLAIN, "FROM:TO", 0,
      "Instead of the plan, say why there are bridges between two modules, "
      "what else could be done and what that costs",
      0 },
    { "color", OPT_COLOR, "WHEN", 0,
      "Colour memory types and bridges: auto (on a terminal), always or never",
      0 },
    { 0 },
};

static bool same_file(const char *a, const char *b)
{
    struct stat left, right;
    return a && b &&
           (!strcmp(a, b) ||
            (!stat(a, &left) && !stat(b, &right) && S_ISREG(left.st_mode) &&
             left.st_dev == right.st_dev && left.st_ino == right.st_ino));
}

// A drawing takes the place of no file that is needed, nor of the other.
static void check_outputs(const struct options *o, struct argp_state *state)
{
    const char *out[] = { o->svg, o->dot };
    for (int i = 0; i < 2; i++) {
        if (!out[i])
            continue;
        if (!*out[i])
            argp_error(state, "a drawing needs the name of a file");
        if (same_file(out[i], o->file) || same_file(out[i], o->profile))
            argp_error(state, "%s is read: it is not written over", out[i]);
    }
    if (same_file(o->svg, o->dot))
        argp_error(state, "--svg and --dot would write the same file");
}

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
        o->plan.probe = true;
        return 0;
    case OPT_BUDGET:
        cmd_budget(&o->plan, arg, state);
        return 0;
    case OPT_FRAMES:
        o->plan.frames = cmd_number(state, "frames", arg, INT64_MAX);
        return 0;
    case OPT_PROFILE:
        o->profile = arg;
        return 0;
    case OPT_SVG:
        o->svg = arg;
        return 0;
    case OPT_DOT:
        o->dot = arg;
        return 0;
    case OPT_COLOR:
        o->color = cmd_color_parse(arg, state);
        return 0;
    case OPT_EXPLAIN:
        o->explain = arg;
        return 0;
    case ARGP_KEY_END:
        check_outputs(o, state);
        return 0;
    default:
        return cmd_parse_operand(key, arg, state, "FILE", &o->file);
    }
}

// Write a drawing; takes `text`.
static int write_file(const char *path, char *text)
{
    if (!text)
        return cmd_no_memory();
    FILE *f = fopen(path, "w");
    bool ok = f && fputs(text, f) >= 0;
    if (f && fclose(f) != 0)
        ok = false;
    if (!ok)
        fprintf(stderr, "penstock: %s: %s\n", path, strerror(errno));
    pen_free(text);
    return ok ? EXIT_OK : EXIT_RUN;
}

static int explain(const struct options *o, struct cmd_job *job,
                   const struct pen_plan *plan)
{
    char *text;
    if (o->json)
        text = pen_plan_explain_json(plan, o->explain, &job->err);
    else if (cmd_colors(o->color))
        text = pen_plan_explain_coloured(plan, o->explain, &job->err);
    else
        text = pen_plan_explain(plan, o->explain, &job->err);
    if (!text)
        return cmd_job_failed(job, o->file, o->json, job->err.status);
    return cmd_print(text);
}

static int show(const struct options *o, struct cmd_job *job,
                const struct pen_plan *plan)
{
    int code = EXIT_OK;
    if (o->explain) {
        code = explain(o, job, plan);
    } else if (o->json) {
        code = cmd_print(pen_plan_json(plan, job->issues));
    } else {
        cmd_print_issues(o->file, job->issues);
        code = cmd_print(cmd_colors(o->color) ? pen_plan_text_coloured(plan)
                                              : pen_plan_text(plan));
    }
    if (code == EXIT_OK && o->svg)
        code = write_file(o->svg, pen_plan_svg(plan));
    if (code == EXIT_OK && o->dot)
        code = write_file(o->dot, pen_plan_dot(plan));
    return code;
}

static int run(int argc, char **argv)
{
    struct options o = { 0 };
    const struct argp argp = {
        .options = options,
        .parser = parse,
        .args_doc = "FILE",
        .doc = "Print what would run: modules, inserted bridges and why, what "
               "flows where, memory, cost. Opens no driver, creates nothing.",
    };
    cmd_parse(&argp, argc, argv, &o);

    const int failed =
        cmd_profile(o.profile, o.json, &o.profile_storage, &o.plan);
    if (failed)
        return failed;
    struct cmd_job job;
    int code = cmd_job_open(&job, o.file, &o.sets, o.json);
    if (code == EXIT_OK) {
        struct pen_plan *plan = NULL;
        const enum pen_status st = pen_plan_create(
            job.desc, job.registry, &o.plan, &plan, job.issues, &job.err);
        code = st == PEN_OK ? show(&o, &job, plan)
                            : cmd_job_failed(&job, o.file, o.json, st);
        pen_plan_destroy(&plan);
    }
    cmd_job_close(&job);
    return code;
}

const struct cmd cmd_plan = {
    .name = "plan",
    .summary = "Print what would run, with inserted bridges and memory",
    .run = run,
};
