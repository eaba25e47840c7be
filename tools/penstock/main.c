// The command: verbs, help, version. Everything else is in cmd_<verb>.c.

#include <locale.h>
#include <signal.h>
#include <string.h>

#include "cmd.h"

static const struct cmd *const commands[] = {
    &cmd_run,      &cmd_validate, &cmd_plan,      &cmd_list_modules,
    &cmd_describe, &cmd_devices,  &cmd_calibrate, &cmd_schema,
};
enum { COMMANDS = sizeof(commands) / sizeof(commands[0]) };

static void print_help(FILE *to)
{
    fputs("usage: penstock VERB [OPTION...] [ARGUMENT]\n"
          "\n"
          "Plan and run media pipelines that a JSON file declares.\n"
          "\n",
          to);
    for (size_t i = 0; i < COMMANDS; i++)
        fprintf(to, "  %-13s %s\n", commands[i]->name, commands[i]->summary);
    fputs("\n"
          "  --help, --version\n"
          "\n"
          "`penstock VERB --help` lists the options of a verb.\n"
          "Exit codes: 0 ok, 1 invalid or not found, 2 failed while running,\n"
          "3 wrong usage, 128+N ended by a second signal N.\n",
          to);
}

// Signals that would end the process where an error code serves better: a
// closed pipe and a file over the size limit become results of write().
static void ignore_write_signals(void)
{
    const struct sigaction ignore = { .sa_handler = SIG_IGN };
    sigaction(SIGPIPE, &ignore, NULL);
    sigaction(SIGXFSZ, &ignore, NULL);
}

int main(int argc, char **argv)
{
    ignore_write_signals();

    if (argc < 2) {
        print_help(stderr);
        return EXIT_USAGE;
    }
    const char *verb = argv[1];
    if (strcmp(verb, "--help") == 0 || strcmp(verb, "-h") == 0 ||
        strcmp(verb, "help") == 0) {
        print_help(stdout);
        return cmd_finish(EXIT_OK);
    }
    if (strcmp(verb, "--version") == 0) {
        printf("penstock %s\n", pen_version());
        return cmd_finish(EXIT_OK);
    }
    for (size_t i = 0; i < COMMANDS; i++) {
        if (strcmp(verb, commands[i]->name) != 0)
            continue;
        static char name[64];
        snprintf(name, sizeof(name), "penstock %s", verb);
        argv[1] = name;
        return cmd_finish(commands[i]->run(argc - 1, argv + 1));
    }
    fprintf(stderr, "penstock: there is no verb \"%s\"\n\n", verb);
    print_help(stderr);
    return EXIT_USAGE;
}
