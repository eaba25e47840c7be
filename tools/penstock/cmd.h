#ifndef CMD_H
#define CMD_H

// What the verbs of the command share. The command uses Penstock's public
// headers only.

#include <argp.h>
#include <stdio.h>

#include <penstock/penstock.h>

enum exit_code {
    EXIT_OK = 0,
    EXIT_INVALID = 1,  // pipeline invalid, or something not found
    EXIT_RUN = 2,      // failed at run time; a leak counts
    EXIT_USAGE = 3,
};

// One verb. argv[0] is "penstock VERB" for argp's messages.
struct cmd {
    const char *name;
    const char *summary;
    int (*run)(int argc, char **argv);
};
extern const struct cmd cmd_run, cmd_validate, cmd_plan, cmd_list_modules,
    cmd_describe, cmd_devices, cmd_calibrate, cmd_schema;

// --- arguments --------------------------------------------------------------
// A wrong one is told and ends the process with EXIT_USAGE.

void cmd_parse(const struct argp *argp, int argc, char **argv, void *input);
// For the end of a verb's parser, what is no option of it: the one operand,
// whose name for messages is `what`; NULL: the verb takes none.
error_t cmd_parse_operand(int key, char *arg, struct argp_state *state,
                          const char *what, const char **operand);

// The --set options of a command line.
struct cmd_sets {
    const char *list[64];
    size_t count;
};
void cmd_sets_add(struct cmd_sets *sets, const char *text,
                  struct argp_state *state);
// "KEY=SIZE" of --budget into plan parameters.
void cmd_budget(struct pen_plan_params *plan, const char *text,
                struct argp_state *state);
#define CMD_BUDGET_HELP                                                        \
    "Limit host, host_pinned, cuda_device, dmabuf (512MiB), h2d_per_frame or " \
    "d2h_per_frame (1)"

// --- output -----------------------------------------------------------------

// When to colour what is printed, from the option --color. `auto`: on a
// terminal that is not called "dumb", unless NO_COLOR is set to something.
enum cmd_color { CMD_COLOR_AUTO = 0, CMD_COLOR_ALWAYS, CMD_COLOR_NEVER };
enum cmd_color cmd_color_parse(const char *text, struct argp_state *state);
bool cmd_colors(enum cmd_color when);

// Print a text of the library and free it. EXIT_OK, or EXIT_RUN for NULL, which
// is told as out of memory.
int cmd_print(char *text);
int cmd_no_memory(void);
// Flush stdout and turn a failed write into an exit code: a closed pipe ends
// the text quietly and is no failure, a full disk is one.
int cmd_finish(int code);

// Text that may hold names and paths of a pipeline file: what would steer a
// terminal (control characters, line ends too) is written as '?'.
void cmd_put(FILE *to, const char *text);
// Issues as lines on stdout.
void cmd_print_issues(const char *file, const struct pen_issues *issues);
// One error on stderr: "penstock: where: text".
void cmd_print_error(const struct pen_error *err);

// --- shared steps -----------------------------------------------------------

// The modules that there are, owned by the caller; NULL after a failure, which
// has been printed (EXIT_RUN).
struct pen_registry *cmd_registry(void);

struct cmd_job {
    struct pen_registry *registry;
    struct pen_issues *issues;
    struct pen_description *desc;
    struct pen_error err;
};
// Registry, issues, the file, and what --set changes in it. EXIT_OK or the
// exit code of the failure, which has been printed (as JSON if `json`).
// Close the job in any case.
int cmd_job_open(struct cmd_job *job, const char *file,
                 const struct cmd_sets *sets, bool json);
// Print why a step of the job failed: its issues, and the error where no issue
// tells it. Returns the exit code that belongs to `status`.
int cmd_job_failed(const struct cmd_job *job, const char *file, bool json,
                   enum pen_status status);
void cmd_job_close(struct cmd_job *job);

// The value of option --`name`, a number from 1 to `most`; a usage error ends
// the program.
uint64_t cmd_number(struct argp_state *state, const char *name,
                    const char *text, uint64_t most);

// Find the profile that --profile names, read it into `storage` and make `plan`
// use it. EXIT_OK, or the exit code of the failure, which has been printed;
// NULL: nothing.
int cmd_profile(const char *name, bool json, struct pen_profile *storage,
                struct pen_plan_params *plan);

// Device parameters as the environment of tests and build trees gives them.
void cmd_device_params(struct pen_device_params *params);
// What to open for a selector: "cuda" for "auto", else itself.
const char *cmd_device_selector(const char *selector);
// Whether the emulated device is to be opened after that has failed: for
// "auto", and only where there is no driver's library at all.
bool cmd_device_emulates(const char *selector, enum pen_status status,
                         const struct pen_error *err);

#endif  // CMD_H
