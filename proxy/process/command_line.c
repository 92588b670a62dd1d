/*
 * The table of the command line's options. From it come the usage and headgate(8); what is printed by --reference is
 * made elsewhere, each from the table that it is about.
 */
#include "process/command_line.h"

#include "admin/admin.h"
#include "base/roff.h"
#include "policy/sections.h"
#include "topology/cluster_command.h"
#include "version.h"

#include <getopt.h>
#include <stdio.h>
#include <string.h>

struct option_row {
    const char *name; /* as it is written: "-c", "--take-over" */
    const char *argument;
    const char *help;
};

static const struct option_row rows[] = {
    {"-c", "FILE", "read the configuration from FILE (an ini file; without it, all defaults)"},
    {"-t", NULL, "check the configuration and exit: 0 if it is sound, else 1 with every fault"},
    {"-T", NULL, "print the configuration that would be in force, and exit"},
    {"--take-over", NULL, "listen beside a Headgate that is to be ended; who connects from then on is served here"},
    {"--upgrade", NULL,
     "have the Headgate that runs with this configuration start the program anew, which takes over without a refused\n"
     "or closed connection, and exit: 0 when the new one serves, else 1 with the reason, and the old one goes on"},
    {"--ping[=admin]", NULL,
     "ask the Headgate that runs with this configuration whether Redis answers through it, or whether its admin\n"
     "port answers, and exit: 0 if so, else 1"},
    {"-v", NULL, "print the version and exit (also --version)"},
    {"--help", NULL, "print this and exit (also -h)"},
    {"--reference", "FORM",
     "print the reference of all options and exit, as ini or markdown; or what commands do before a Redis Cluster:\n"
     "cluster; or a manual page: headgate.8, headgate.ini.5 or headgate-admin.8"},
};

struct signal_row {
    const char *name;
    const char *help;
};

static const struct signal_row signals[] = {
    {"TERM, INT", "drain and exit; a second one exits at once"},
    {"HUP", "reads the configuration again, and opens log_file anew"},
    {"USR1", "opens log_file anew"},
    {"USR2", "starts the program anew, to take over, as --upgrade does"},
};

/* ---- usage ---- */

#define HELP_COLUMN 18

static void print_row(FILE *out, const char *name, const char *help)
{
    int width = fprintf(out, "  %s", name);

    /* What is too long has its meaning below it. */
    if (width >= HELP_COLUMN) {
        fputc('\n', out);
        width = 0;
    }
    for (const char *line = help; *line != '\0';) {
        int length = (int)strcspn(line, "\n");
        fprintf(out, "%*s%.*s\n", HELP_COLUMN - width, "", length, line);
        line += length + (line[length] == '\n');
        width = 0;
    }
}

static void print_usage(FILE *out)
{
    fputs("Usage: headgate [-c FILE] [--take-over | --upgrade | -t | -T | --ping | -v | --help]\n"
          "A sidecar proxy that enforces policies in front of Redis.\n"
          "\n",
          out);
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        char name[64];
        snprintf(name, sizeof name, "%s%s%s", rows[i].name, rows[i].argument != NULL ? " " : "",
                 rows[i].argument != NULL ? rows[i].argument : "");
        print_row(out, name, rows[i].help);
    }
    fputs("\nSignals:\n", out);
    for (size_t i = 0; i < sizeof signals / sizeof signals[0]; i++) {
        print_row(out, signals[i].name, signals[i].help);
    }
}

/* ---- headgate(8) ---- */

static void print_environment(FILE *out)
{
    roff_text(out, ROFF_HEADING, "ENVIRONMENT");
    roff_entry(out, "LISTEN_FDS, LISTEN_PID", NULL);
    roff_text(out, ROFF_GO_ON,
              "Sockets that are handed over, see sd_listen_fds(3): those whose addresses the configuration has are "
              "listened on, whatever their names are; the others are closed.");
}

static void print_files(FILE *out)
{
    roff_text(out, ROFF_HEADING, "FILES");
    roff_entry(out, "/etc/headgate/headgate.ini", NULL);
    roff_text(out, ROFF_GO_ON, "What the service reads.");
    roff_entry(out, "/usr/share/doc/headgate/", NULL);
    roff_text(out, ROFF_GO_ON, "All pages of the documentation, and examples.");
}

static void print_program_manual(FILE *out)
{
    roff_text(out, ROFF_HEADING, "NAME\nheadgate - sidecar proxy that enforces policies in front of Redis");
    roff_text(out, ROFF_HEADING,
              "SYNOPSIS\nheadgate [-c FILE] [--take-over | --upgrade | -t | -T | --ping | -v | --help]");
    roff_text(out, ROFF_HEADING,
              "DESCRIPTION\nApplications connect to headgate in place of Redis. It forwards what they send byte for "
              "byte, over few "
              "connections, and enforces what its configuration says: rate limits, locks that do not expire while "
              "their holder lives, records of latency. It stays in the foreground, and logs to standard error "
              "unless the configuration says otherwise. Redis need not be there when it starts.");
    roff_text(out, ROFF_HEADING, "OPTIONS");
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        roff_entry(out, rows[i].name, rows[i].argument);
        roff_text(out, ROFF_GO_ON, rows[i].help);
    }
    roff_text(out, ROFF_HEADING, "SIGNALS");
    for (size_t i = 0; i < sizeof signals / sizeof signals[0]; i++) {
        roff_entry(out, signals[i].name, NULL);
        roff_text(out, ROFF_GO_ON, signals[i].help);
    }
    print_environment(out);
    print_files(out);
    roff_text(out, ROFF_HEADING,
              "EXIT STATUS\n0 when it was ended by a signal or on the admin port. 1 when the configuration is not "
              "sound, or it "
              "could not start; each fault is a line.");
}

/* ---- references ---- */

static void begin_manual(const char *title, int section)
{
    roff_head(stdout, title, section, HEADGATE_DATE, "headgate " HEADGATE_VERSION);
}

static int print_reference(const char *form, const struct policy *const *policies)
{
    const struct conf_section *sections[SECTIONS_MAX + 1];

    sections_list(policies, sections);
    if (strcmp(form, "ini") == 0) {
        conf_print_reference_ini(stdout, sections);
    } else if (strcmp(form, "markdown") == 0) {
        conf_print_reference_markdown(stdout, sections);
    } else if (strcmp(form, "cluster") == 0) {
        cluster_command_print_markdown(stdout);
    } else if (strcmp(form, "headgate.8") == 0) {
        begin_manual("HEADGATE", 8);
        print_program_manual(stdout);
        roff_see_also(stdout, "headgate.ini(5), headgate-admin(8), redis-server(1)");
    } else if (strcmp(form, "headgate.ini.5") == 0) {
        begin_manual("HEADGATE.INI", 5);
        conf_print_manual(stdout, sections);
        roff_see_also(stdout, "headgate(8), headgate-admin(8)");
    } else if (strcmp(form, "headgate-admin.8") == 0) {
        begin_manual("HEADGATE-ADMIN", 8);
        admin_print_manual(stdout, policies);
        roff_see_also(stdout, "headgate(8), headgate.ini(5), redis-cli(1)");
    } else {
        fprintf(stderr,
                "headgate: --reference %s: expected ini, markdown, cluster, headgate.8, headgate.ini.5 or "
                "headgate-admin.8\n",
                form);
        return 1;
    }
    return ferror(stdout) != 0 || fflush(stdout) != 0;
}

/* ---- reading ---- */

static struct command_line done(struct command_line line, int status)
{
    line.task = COMMAND_LINE_EXIT;
    line.status = status;
    return line;
}

struct command_line command_line_read(int argc, char **argv, const struct policy *const *policies)
{
    static const struct option options[] = {
        {"help", no_argument, NULL, 'h'},
        {"version", no_argument, NULL, 'v'},
        {"reference", required_argument, NULL, 'r'},
        {"take-over", no_argument, NULL, 'o'},
        {"upgrade", no_argument, NULL, 'u'},
        {"ping", optional_argument, NULL, 'p'},
        {NULL, 0, NULL, 0},
    };
    struct command_line line = {.task = COMMAND_LINE_RUN};
    int option;

    while ((option = getopt_long(argc, argv, "c:tTvh", options, NULL)) != -1) {
        switch (option) {
        case 'c':
            line.conf_path = optarg;
            break;
        case 'o':
            line.takes_over = true;
            break;
        case 'u':
            line.task = COMMAND_LINE_UPGRADE;
            break;
        case 'p':
            if (optarg != NULL && strcmp(optarg, "admin") != 0) {
                fprintf(stderr, "headgate: --ping=%s: expected --ping or --ping=admin\n", optarg);
                return done(line, 1);
            }
            line.task = COMMAND_LINE_PING;
            line.pings_admin = optarg != NULL;
            break;
        case 't':
            line.task = COMMAND_LINE_CHECK;
            break;
        case 'T':
            line.task = COMMAND_LINE_SHOW;
            break;
        case 'v':
            printf("headgate %s\n", HEADGATE_VERSION);
            return done(line, 0);
        case 'h':
            print_usage(stdout);
            return done(line, 0);
        case 'r':
            return done(line, print_reference(optarg, policies));
        default:
            fputs("Try 'headgate --help'.\n", stderr);
            return done(line, 1);
        }
    }
    if (optind < argc) {
        fprintf(stderr, "headgate: unexpected argument '%s'\nTry 'headgate --help'.\n", argv[optind]);
        return done(line, 1);
    }
    return line;
}
