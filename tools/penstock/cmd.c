#include "cmd.h"

#include <errno.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

void cmd_parse(const struct argp *argp, int argc, char **argv, void *input)
{
    argp_err_exit_status = EXIT_USAGE;
    if (argp_parse(argp, argc, argv, 0, NULL, input) != 0)
        exit(EXIT_USAGE);
}

error_t cmd_parse_operand(int key, char *arg, struct argp_state *state,
                          const char *what, const char **operand)
{
    switch (key) {
    case ARGP_KEY_ARG:
        if (!what)
            argp_error(state, "unexpected argument %s", arg);
        if (*operand)
            argp_error(state, "one %s only", what);
        *operand = arg;
        return 0;
    case ARGP_KEY_NO_ARGS:
        if (what)
            argp_error(state, "%s is missing", what);
        return 0;
    default:
        return ARGP_ERR_UNKNOWN;
    }
}

enum cmd_color cmd_color_parse(const char *text, struct argp_state *state)
{
    static const char *const words[] = { "auto", "always", "never" };
    for (int i = 0; i < 3; i++)
        if (strcmp(text, words[i]) == 0)
            return (enum cmd_color)i;
    argp_error(state, "--color is auto, always or never, not %s", text);
    return CMD_COLOR_AUTO;
}

bool cmd_colors(enum cmd_color when)
{
    const char *no = getenv("NO_COLOR"), *term = getenv("TERM");
    if (when != CMD_COLOR_AUTO)
        return when == CMD_COLOR_ALWAYS;
    return isatty(STDOUT_FILENO) && !(no && *no) && term && *term &&
           strcmp(term, "dumb") != 0;
}

int cmd_no_memory(void)
{
    fputs("penstock: out of memory\n", stderr);
    return EXIT_RUN;
}

// Why output was lost, from the first write that failed: what fails later says
// nothing of it.
static int output_error;

static void note_output(void)
{
    struct pollfd out = { .fd = STDOUT_FILENO, .events = POLLOUT };
    if (!ferror(stdout) || output_error)
        return;
    output_error = errno;
    if (!output_error)
        output_error =
            poll(&out, 1, 0) == 1 && (out.revents & POLLERR) ? EPIPE : EIO;
}

int cmd_print(char *text)
{
    if (!text)
        return cmd_no_memory();
    errno = 0;
    fputs(text, stdout);
    const size_t length = strlen(text);
    if (length && text[length - 1] != '\n')
        putchar('\n');
    note_output();
    pen_free(text);
    return EXIT_OK;
}

int cmd_finish(int code)
{
    errno = 0;
    fflush(stdout);
    note_output();
    if (!output_error || output_error == EPIPE)
        return code;
    fprintf(stderr, "penstock: standard output: %s\n", strerror(output_error));
    return code == EXIT_OK ? EXIT_RUN : code;
}

void cmd_put(FILE *to, const char *text)
{
    const unsigned char *at = (const unsigned char *)text;
    for (; *at; at++) {
        const bool c1 = at[0] == 0xc2 && at[1] >= 0x80 && at[1] < 0xa0;
        const bool steers = *at < 0x20 || *at == 0x7f || c1;
        putc(steers ? '?' : *at, to);
        at += c1;
    }
}

void cmd_print_issues(const char *file, const struct pen_issues *issues)
{
    const struct pen_issue *issue;
    for (size_t i = 0; (issue = pen_issues_get(issues, i)); i++) {
        printf("%s %s ", pen_severity_name(issue->severity), issue->code);
        cmd_put(stdout, file);
        if (issue->line)
            printf(":%d:%d", issue->line, issue->column);
        putchar(' ');
        cmd_put(stdout, *issue->pointer ? issue->pointer : "/");
        printf(": ");
        cmd_put(stdout, issue->message);
        putchar('\n');
        if (*issue->suggestion) {
            printf("    ");
            cmd_put(stdout, issue->suggestion);
            putchar('\n');
        }
    }
    note_output();
}

void cmd_print_error(const struct pen_error *err)
{
    fputs("penstock: ", stderr);
    // Texts of the system ("FILE: reason") begin with the place themselves.
    const size_t length = strlen(err->where);
    if (length && (strncmp(err->text, err->where, length) != 0 ||
                   err->text[length] != ':')) {
        cmd_put(stderr, err->where);
        fputs(": ", stderr);
    }
    cmd_put(stderr, err->text[0] ? err->text : pen_status_text(err->status));
    putc('\n', stderr);
}

void cmd_sets_add(struct cmd_sets *sets, const char *text,
                  struct argp_state *state)
{
    if (sets->count == sizeof(sets->list) / sizeof(sets->list[0]))
        argp_error(state, "too many --set");
    sets->list[sets->count++] = text;
}

struct pen_registry *cmd_registry(void)
{
    struct pen_error err = { 0 };
    struct pen_registry *registry = NULL;
    if (pen_registry_create(&registry, &err) != PEN_OK)
        cmd_print_error(&err);
    return registry;
}

int cmd_job_open(struct cmd_job *job, const char *file,
                 const struct cmd_sets *sets, bool json)
{
    *job = (struct cmd_job){ 0 };
    enum pen_status st = pen_registry_create(&job->registry, &job->err);
    if (st == PEN_OK) {
        job->issues = pen_issues_create();
        if (!job->issues)
            st = pen_error_set(&job->err, PEN_E_NOMEM, 0, "", "out of memory");
    }
    if (st == PEN_OK)
        st = pen_description_load(file, &job->desc, job->issues, &job->err);
    for (size_t i = 0; st == PEN_OK && i < sets->count; i++)
        st = pen_description_set(job->desc, sets->list[i], &job->err);
    return st == PEN_OK ? EXIT_OK : cmd_job_failed(job, file, json, st);
}

int cmd_job_failed(const struct cmd_job *job, const char *file, bool json,
                   enum pen_status status)
{
    if (json) {
        cmd_print(pen_issues_json(job->issues, &job->err));
    } else {
        if (job->issues)
            cmd_print_issues(file, job->issues);
        if (!job->issues || !pen_issues_count(job->issues, PEN_SEVERITY_ERROR))
            cmd_print_error(&job->err);
    }
    switch (status) {
    case PEN_E_CONFIG:
    case PEN_E_LIMIT:
    case PEN_E_ARG:
    case PEN_E_IO:
        return EXIT_INVALID;
    default:
        return EXIT_RUN;
    }
}

void cmd_job_close(struct cmd_job *job)
{
    pen_description_destroy(&job->desc);
    pen_issues_destroy(&job->issues);
    pen_registry_destroy(&job->registry);
}

static bool parse_size(const char *text, uint64_t *out)
{
    static const struct {
        const char *name;
        double factor;
    } units[] = {
        { "", 1.0 },
        { "B", 1.0 },
        { "KiB", 1024.0 },
        { "MiB", 1048576.0 },
        { "GiB", 1073741824.0 },
        { "TiB", 1099511627776.0 },
    };
    if (*text < '0' || *text > '9')
        return false;
    char *end;
    const double value = strtod(text, &end);
    while (*end == ' ')
        end++;
    for (size_t i = 0; i < sizeof(units) / sizeof(units[0]); i++) {
        if (strcmp(end, units[i].name) != 0)
            continue;
        const double bytes = value * units[i].factor;
        if (!(bytes >= 1.0 && bytes < 9.0e18))
            return false;
        *out = (uint64_t)bytes;
        return true;
    }
    return false;
}

static bool parse_count(const char *text, uint32_t *out)
{
    char *end;
    const long value = strtol(text, &end, 10);
    if (*text < '0' || *text > '9' || *end || value > 1000000)
        return false;
    *out = (uint32_t)value;
    return true;
}

#define BUDGET_KEYS                                                            \
    "the keys are host, host_pinned, cuda_device and dmabuf (sizes), "         \
    "h2d_per_frame and d2h_per_frame (transfers)"

// What is wrong with a budget; NULL if it was understood. Its key has `length`
// bytes of `text`.
static const char *parse_budget(const char *text, size_t length,
                                struct pen_plan_params *plan)
{
    const struct {
        const char *key;
        bool *limited;
        uint32_t *count;
    } counts[] = {
        { "h2d_per_frame", &plan->h2d_limited, &plan->h2d_per_frame },
        { "d2h_per_frame", &plan->d2h_limited, &plan->d2h_per_frame },
    };
    if (!text[length])
        return "expected KEY=SIZE; " BUDGET_KEYS;
    const char *value = text + length + 1;
    for (unsigned m = PEN_MEM_HOST; m < PEN_MEM_COUNT; m++) {
        const char *key = pen_mem_key((enum pen_mem_type)m);
        if (strlen(key) == length && strncmp(text, key, length) == 0)
            return parse_size(value, &plan->budget[m])
                       ? NULL
                       : "expected a size above 0 in bytes, KiB, MiB, GiB or "
                         "TiB, such as 512MiB";
    }
    for (size_t i = 0; i < sizeof(counts) / sizeof(counts[0]); i++) {
        if (strlen(counts[i].key) != length ||
            strncmp(text, counts[i].key, length) != 0)
            continue;
        *counts[i].limited = true;
        return parse_count(value, counts[i].count)
                   ? NULL
                   : "expected a number of transfers, such as 1";
    }
    return "unknown key; " BUDGET_KEYS;
}

void cmd_budget(struct pen_plan_params *plan, const char *text,
                struct argp_state *state)
{
    const char *wrong = parse_budget(text, strcspn(text, "="), plan);
    if (wrong)
        argp_error(state, "--budget %s: %s", text, wrong);
}

uint64_t cmd_number(struct argp_state *state, const char *name,
                    const char *text, uint64_t most)
{
    char *end;
    errno = 0;
    const unsigned long long value = strtoull(text, &end, 10);
    if (errno || *text < '0' || *text > '9' || *end || value < 1 ||
        value > most)
        argp_error(state, "--%s %s: expected a number from 1 to %llu", name,
                   text, (unsigned long long)most);
    return value;
}

int cmd_profile(const char *name, bool json, struct pen_profile *storage,
                struct pen_plan_params *plan)
{
    if (!name)
        return EXIT_OK;
    struct pen_error err = { 0 };
    const enum pen_status st =
        pen_profile_find(name, getenv("PENSTOCK_PROFILE_PATH"), storage, &err);
    if (st != PEN_OK) {
        cmd_print_error(&err);
        if (json)
            cmd_print(pen_issues_json(NULL, &err));
        return EXIT_INVALID;
    }
    plan->profile = storage;
    return EXIT_OK;
}

void cmd_device_params(struct pen_device_params *params)
{
    params->emulator = getenv("PENSTOCK_EMULATOR");
    params->driver = getenv("PENSTOCK_DRIVER");
}

static bool is_auto(const char *selector)
{
    return strcmp(selector, "auto") == 0;
}

const char *cmd_device_selector(const char *selector)
{
    return is_auto(selector) ? "cuda" : selector;
}

bool cmd_device_emulates(const char *selector, enum pen_status status,
                         const struct pen_error *err)
{
    return is_auto(selector) && status == PEN_E_NODRIVER && err->native == 0;
}
