// run FILE: plan it, run it, report.

#include <errno.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "cmd.h"

struct options {
    const char *file;
    const char *device;  // NULL: the file's setting
    const char *profile;
    struct pen_profile profile_storage;
    bool json, quiet_progress;
    bool leaks;
    struct pen_pipeline_params params;
    struct cmd_sets sets;
};

enum {
    OPT_SET = 256,
    OPT_DEVICE,
    OPT_FRAMES,
    OPT_BUDGET,
    OPT_REPORT,
    OPT_LEAKS,
    OPT_PROGRESS,
    OPT_NO_PROBE,
    OPT_WORKERS,
    OPT_PROFILE,
};

static const struct argp_option options[] = {
    { "set", OPT_SET, "ID.PROP=VALUE", 0, "Override a property", 0 },
    { "device", OPT_DEVICE, "auto|N|UUID|emulated", 0,
      "Where CUDA modules run. auto: the first GPU, or the emulated device "
      "where no driver is installed",
      0 },
    { "frames", OPT_FRAMES, "N", 0, "End each source after N frames", 0 },
    { "budget", OPT_BUDGET, "KEY=SIZE", 0, CMD_BUDGET_HELP, 0 },
    { "report", OPT_REPORT, "text|json", 0, "Form of the report", 0 },
    { "detect-memory-leaks", OPT_LEAKS, "0|1", 0,
      "1 (default): a leak is named and is a failure", 0 },
    { "detect_memory_leaks", OPT_LEAKS, "0|1", OPTION_ALIAS | OPTION_HIDDEN,
      NULL, 0 },
    { "progress", OPT_PROGRESS, "auto|never", 0,
      "Progress on the terminal (default auto)", 0 },
    { "no-probe", OPT_NO_PROBE, NULL, 0,
      "Do not read the headers of input files first", 0 },
    { "profile", OPT_PROFILE, "NAME|P.json", 0,
      "Plan with this device profile: generic-cuda, cpu, h200 or a file", 0 },
    { "workers", OPT_WORKERS, "N", 0, "Threads that run modules", 0 },
    { 0 },
};

static bool one_of(struct argp_state *state, const char *name, const char *text,
                   const char *first, const char *second)
{
    if (strcmp(text, first) != 0 && strcmp(text, second) != 0)
        argp_error(state, "--%s %s: expected %s or %s", name, text, first,
                   second);
    return strcmp(text, second) == 0;
}

static error_t parse(int key, char *arg, struct argp_state *state)
{
    struct options *o = state->input;
    switch (key) {
    case OPT_SET:
        cmd_sets_add(&o->sets, arg, state);
        return 0;
    case OPT_DEVICE:
        o->device = arg;
        return 0;
    case OPT_FRAMES:
        o->params.frames = cmd_number(state, "frames", arg, INT64_MAX);
        o->params.plan.frames = o->params.frames;
        return 0;
    case OPT_BUDGET:
        cmd_budget(&o->params.plan, arg, state);
        return 0;
    case OPT_REPORT:
        o->json = one_of(state, "report", arg, "text", "json");
        return 0;
    case OPT_LEAKS:
        o->leaks = one_of(state, "detect-memory-leaks", arg, "0", "1");
        return 0;
    case OPT_PROGRESS:
        o->quiet_progress = one_of(state, "progress", arg, "auto", "never");
        return 0;
    case OPT_NO_PROBE:
        o->params.no_probe = true;
        return 0;
    case OPT_PROFILE:
        o->profile = arg;
        return 0;
    case OPT_WORKERS:
        o->params.workers = (uint32_t)cmd_number(state, "workers", arg, 1024);
        return 0;
    default:
        return cmd_parse_operand(key, arg, state, "FILE", &o->file);
    }
}

// --- signals ----------------------------------------------------------------

// The first SIGINT or SIGTERM asks for a drain; a later one ends the run. One
// that follows within half a second is the same keystroke forwarded twice (by
// a shell and by make, say).
static volatile sig_atomic_t signals_seen, signal_number;
static struct timespec first_signal;

static void on_signal(int number)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    if (signals_seen == 0) {
        first_signal = now;
        signals_seen = 1;
        return;
    }
    const int64_t ns =
        (int64_t)(now.tv_sec - first_signal.tv_sec) * 1000000000 +
        (now.tv_nsec - first_signal.tv_nsec);
    if (ns < 500000000)
        return;
    if (signals_seen == 2)
        _exit(128 + number);
    signals_seen = 2;
    signal_number = number;
}

static void catch_signals(void)
{
    const struct sigaction action = {
        .sa_handler = on_signal,
        .sa_flags = SA_RESTART,
    };
    sigaction(SIGINT, &action, NULL);
    sigaction(SIGTERM, &action, NULL);
}

// --- notices and progress ---------------------------------------------------

static void on_message(void *cookie, enum pen_log_level level,
                       const char *topic, const char *text)
{
    (void)cookie;
    (void)topic;
    fprintf(stderr, "penstock: %s", level == PEN_LOG_WARN ? "warning: " : "");
    cmd_put(stderr, text);
    putc('\n', stderr);
}

static void draw_progress(const struct pen_pipeline *pipeline)
{
    struct pen_progress p;
    pen_pipeline_progress(pipeline, &p);
    const double fps = p.seconds > 0 ? (double)p.frames / p.seconds : 0;
    if (p.expected)
        fprintf(stderr, "\r\033[K%llu of %llu frames, %.1f fps",
                (unsigned long long)p.frames, (unsigned long long)p.expected,
                fps);
    else
        fprintf(stderr, "\r\033[K%llu frames, %.1f fps",
                (unsigned long long)p.frames, fps);
}

// --- the run ----------------------------------------------------------------

static enum pen_status create(const struct options *o, struct cmd_job *job,
                              struct pen_pipeline **out)
{
    struct pen_pipeline_params params = o->params;
    const char *selector =
        o->device ? o->device : pen_description_device(job->desc);
    params.device.selector = cmd_device_selector(selector);

    const enum pen_status st = pen_pipeline_create(
        job->desc, job->registry, &params, out, job->issues, &job->err);
    if (!cmd_device_emulates(selector, st, &job->err))
        return st;

    fputs("penstock: no CUDA driver is installed; using the emulated device "
          "(--device emulated says so without this notice)\n",
          stderr);
    params.device.selector = "emulated";
    pen_issues_destroy(&job->issues);
    job->issues = pen_issues_create();
    job->err = (struct pen_error){ 0 };
    if (!job->issues)
        return pen_error_set(&job->err, PEN_E_NOMEM, 0, "", "out of memory");
    return pen_pipeline_create(job->desc, job->registry, &params, out,
                               job->issues, &job->err);
}

static enum pen_status wait_for_end(const struct options *o,
                                    struct pen_pipeline *pipeline,
                                    struct pen_error *err)
{
    const bool draw = !o->quiet_progress && isatty(STDERR_FILENO);
    bool draining = false;
    for (;;) {
        const enum pen_status st =
            pen_pipeline_wait(pipeline, 50 * 1000000, err);
        if (draw)
            draw_progress(pipeline);
        if (st != PEN_E_TIMEOUT || signals_seen == 2) {
            if (draw)
                fputc('\n', stderr);
            return st == PEN_E_TIMEOUT
                       ? pen_pipeline_stop(pipeline, 5 * 1000000000ll, err)
                       : st;
        }
        if (signals_seen == 1 && !draining) {
            draining = true;
            if (draw)
                fputc('\n', stderr);
            fputs("penstock: draining; a second signal ends the run\n", stderr);
            pen_pipeline_drain(pipeline);
        }
    }
}

static int run_pipeline(const struct options *o, struct cmd_job *job)
{
    struct pen_pipeline *pipeline = NULL;
    enum pen_status st = create(o, job, &pipeline);
    if (st != PEN_OK)
        return cmd_job_failed(job, o->file, o->json, st);

    if (!o->json) {
        cmd_print_issues(o->file, job->issues);
        const struct pen_plan *plan = pen_pipeline_plan(pipeline);
        cmd_print(cmd_colors(CMD_COLOR_AUTO) ? pen_plan_text_coloured(plan)
                                             : pen_plan_text(plan));
        fflush(stdout);
    }

    catch_signals();
    st = pen_pipeline_start(pipeline, &job->err);
    if (st == PEN_OK)
        st = wait_for_end(o, pipeline, &job->err);
    if (st != PEN_OK)
        cmd_print_error(&job->err);

    int code = st == PEN_OK ? EXIT_OK : EXIT_RUN;
    cmd_print(o->json ? pen_pipeline_report_json(pipeline)
                      : pen_pipeline_report_text(pipeline));
    // A pipeline that did not come back keeps its memory: its threads may
    // still use it until the process ends.
    if (pen_pipeline_state(pipeline) != PEN_STATE_ABANDONED)
        pen_pipeline_destroy(&pipeline);
    if (signals_seen == 2)
        code = 128 + signal_number;
    return code;
}

static int run(int argc, char **argv)
{
    struct options o = { .leaks = true };
    const struct argp argp = {
        .options = options,
        .parser = parse,
        .args_doc = "FILE",
        .doc = "Run a pipeline. The first SIGINT or SIGTERM lets it finish "
               "what is in flight.",
    };
    cmd_parse(&argp, argc, argv, &o);

    static const struct pen_log log = {
        .message = on_message,
        .level = PEN_LOG_INFO,
    };
    o.params.log = o.params.device.log = &log;
    o.params.leaks_fatal = o.params.leak_sites = o.leaks;
    cmd_device_params(&o.params.device);

    const int failed =
        cmd_profile(o.profile, o.json, &o.profile_storage, &o.params.plan);
    if (failed)
        return failed;
    struct cmd_job job;
    int code = cmd_job_open(&job, o.file, &o.sets, o.json);
    if (code == EXIT_OK)
        code = run_pipeline(&o, &job);
    cmd_job_close(&job);
    return code;
}

const struct cmd cmd_run = {
    .name = "run",
    .summary = "Run a pipeline and report",
    .run = run,
};
