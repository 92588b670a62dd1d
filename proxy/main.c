/* The process: command line, start, signals, reload, drain. */
#include "admin/admin.h"
#include "base/log.h"
#include "base/privileges.h"
#include "event/file_watch.h"
#include "policy/sections.h"
#include "topology/cluster_command.h"
#include "version.h"
#include "worker/expiry.h"
#include "worker/listener.h"

#include <errno.h>
#include <fcntl.h>
#include <getopt.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

/* How long policies may take after drain_timeout to do what they have to do before the end. */
#define SETTLE_PATIENCE_US ((int64_t)1000000)
/* … and when no client is left, for a server that was never reached. */
#define UNREACHED_PATIENCE_US ((int64_t)2000000)
/* How often the main thread looks whether a drain has come to its end. */
#define DRAIN_CHECK_US 50000

struct process {
    const char *conf_path; /* NULL: defaults */
    bool takes_over;
    struct port_source source; /* of what it listens on */
    struct privileges privileges;
    struct conf_faults faults; /* of the first configuration: its warnings */
    struct conf *conf;
    struct conf *conf_before; /* the last one, as long as a worker may still use it */
    size_t conf_acknowledged; /* workers that have taken over the new one */
    bool reload_wanted;       /* by SIGHUP, while the last one was still under way */
    struct stats stats;       /* of the main thread's reactor; only lookups are shown */
    struct reactor reactor;
    struct mailbox mailbox;
    struct worker_pool worker_pool;
    struct listener *listener;
    struct admin *admin;
    struct file_watch *watch; /* of the files of the configuration */
    struct event signals[3];
    struct event drain_timer;
    struct expiry expiry;   /* of certificates */
    int64_t drain_until_us; /* 0: not draining */
    int64_t drained_us;     /* when no client was left; 0: there are some */
    bool drain_is_over;     /* drain_timeout has passed: no clients any more, only what policies have to do */
    bool ended;
};

/* ---- command line ---- */

static void print_help(FILE *out)
{
    fputs("Usage: headgate [-c FILE] [--take-over | -t | -T | -v | --help]\n"
          "A sidecar proxy that enforces policies in front of Redis.\n"
          "\n"
          "  -c FILE      read the configuration from FILE (an ini file; without it, all defaults)\n"
          "  -t           check the configuration and exit: 0 if it is sound, else 1 with every fault\n"
          "  -T           print the configuration that would be in force, and exit\n"
          "  --take-over  listen beside a Headgate that is to be ended; who connects from then on is served here\n"
          "  -v           print the version and exit\n"
          "  --help       print this and exit\n"
          "  --reference ini|markdown|cluster\n"
          "               print the reference of all options, or what commands do before a cluster, and exit\n"
          "\n"
          "Signals: TERM and INT drain and exit (a second one exits at once); HUP reads the configuration again.\n",
          out);
}

static struct conf *read_conf(const char *path, struct conf_faults *faults)
{
    const struct conf_section *sections[SECTIONS_MAX + 1];

    sections_list(policies, sections);
    return conf_load(path, sections, faults);
}

/* The faults are the caller's. */
static struct conf *load_conf(const char *path, struct conf_faults *faults)
{
    struct conf *conf = read_conf(path, faults);

    for (size_t i = 0; i < faults->count; i++) {
        fprintf(stderr, "headgate: %s\n", faults->lines[i]);
    }
    return conf;
}

static void log_warnings(const struct conf_faults *faults)
{
    for (size_t i = 0; i < faults->warning_count; i++) {
        log_warning("main", "%s", faults->warnings[i]);
    }
}

enum task { COMMAND_LINE_RUN, COMMAND_LINE_CHECK, COMMAND_LINE_PRINT };

static int print_reference(const char *form)
{
    const struct conf_section *sections[SECTIONS_MAX + 1];

    sections_list(policies, sections);
    if (strcmp(form, "ini") == 0) {
        conf_print_reference_ini(stdout, sections);
    } else if (strcmp(form, "markdown") == 0) {
        conf_print_reference_markdown(stdout, sections);
    } else if (strcmp(form, "cluster") == 0) {
        cluster_command_print_markdown(stdout);
    } else {
        fprintf(stderr, "headgate: --reference %s: expected ini, markdown or cluster\n", form);
        return 1;
    }
    return 0;
}

/* The exit status if the program is done with that, else -1. */
static int read_command_line(int argc, char **argv, struct process *process, enum task *task)
{
    static const struct option options[] = {
        {"help", no_argument, NULL, 'h'},
        {"version", no_argument, NULL, 'v'},
        {"reference", required_argument, NULL, 'r'},
        {"take-over", no_argument, NULL, 'o'},
        {NULL, 0, NULL, 0},
    };
    int option;

    while ((option = getopt_long(argc, argv, "c:tTvh", options, NULL)) != -1) {
        switch (option) {
        case 'c':
            process->conf_path = optarg;
            break;
        case 'o':
            process->takes_over = true;
            break;
        case 't':
            *task = COMMAND_LINE_CHECK;
            break;
        case 'T':
            *task = COMMAND_LINE_PRINT;
            break;
        case 'v':
            printf("headgate %s\n", HEADGATE_VERSION);
            return 0;
        case 'h':
            print_help(stdout);
            return 0;
        case 'r':
            return print_reference(optarg);
        default:
            fputs("Try 'headgate --help'.\n", stderr);
            return 1;
        }
    }
    if (optind < argc) {
        fprintf(stderr, "headgate: unexpected argument '%s'\nTry 'headgate --help'.\n", argv[optind]);
        return 1;
    }
    return -1;
}

/* ---- reload ---- */

struct acknowledgement {
    struct message message;
    struct process *process;
};

static char *reload(void *context);

/* Who sends a signal is told nothing, so a reload that cannot be done now is done afterwards. */
static void reload_or_remember(struct process *process)
{
    process->reload_wanted = process->conf_before != NULL;
    if (!process->reload_wanted) {
        free(reload(process));
    }
}

static void run_acknowledgement(struct message *message)
{
    struct acknowledgement *acknowledgement = (struct acknowledgement *)(void *)message;
    struct process *process = acknowledgement->process;

    free(acknowledgement);
    if (++process->conf_acknowledged == process->worker_pool.count) {
        conf_free(process->conf_before);
        process->conf_before = NULL;
        if (process->reload_wanted) {
            reload_or_remember(process);
        }
    }
}

/* On a worker's thread. */
static void worker_took_conf(void *context)
{
    struct process *process = context;
    struct acknowledgement *acknowledgement = malloc(sizeof *acknowledgement);

    if (acknowledgement == NULL) {
        abort();
    }
    acknowledgement->message.run = run_acknowledgement;
    acknowledgement->process = process;
    mailbox_post(&process->mailbox, &acknowledgement->message);
}

static void report_restart_only(void *context, const char *option)
{
    (void)context;
    log_warning("main", "%s was changed in the file; that takes a restart, the old value stays", option);
}

static void report_change(void *context, const char *what)
{
    (void)context;
    log_info("main", "%s is another now", what);
}

static char *join_faults(const struct conf_faults *faults)
{
    char *text = conf_format("%s", "");

    for (size_t i = 0; i < faults->count; i++) {
        log_error("main", "%s", faults->lines[i]);
        char *longer = conf_format("%s%s\n", text, faults->lines[i]);
        free(text);
        text = longer;
    }
    return text;
}

static void put_in_force(struct process *process, struct conf *conf)
{
    process->conf_before = process->conf;
    process->conf = conf;
    process->conf_acknowledged = 0;
    if (!log_open(conf->log_file, (enum log_level)conf->log_level)) {
        log_error("main", "cannot open log_file %s: %s; going on with the old one", conf->log_file, strerror(errno));
    }
    if (process->listener != NULL) {
        listener_reconfigure(process->listener, conf);
    }
    expiry_follow(&process->expiry, conf);
    worker_pool_reconfigure(&process->worker_pool, conf);
    for (size_t i = 0; i < process->worker_pool.count; i++) {
        worker_reconfigure(process->worker_pool.workers[i], conf, process->worker_pool.admission, worker_took_conf,
                           process);
    }
}

/* Also what could not be read: it may be there soon. */
static void watch_files(struct process *process, struct conf_faults *faults)
{
    file_watch_set(process->watch, &faults->files, process->conf->reload_on_change != 0);
}

/* NULL if all is well. */
static char *reload(void *context)
{
    struct process *process = context;
    struct conf_faults faults;

    if (process->conf_before != NULL) {
        return conf_format("the last reload is still under way; try again\n");
    }
    struct conf *fresh = read_conf(process->conf_path, &faults);
    if (fresh == NULL) {
        char *text = join_faults(&faults);
        log_error("main", "the configuration was not reloaded: nothing was changed");
        watch_files(process, &faults);
        conf_faults_free(&faults);
        return text;
    }
    log_warnings(&faults);
    conf_restart_only_changes(process->conf, fresh, report_restart_only, NULL);
    struct conf *merged = conf_merge_reloadable(process->conf, fresh);
    conf_free(fresh);
    conf_changes(process->conf, merged, report_change, NULL);
    put_in_force(process, merged);
    watch_files(process, &faults);
    conf_faults_free(&faults);
    log_info("main", "the configuration was reloaded");
    return NULL;
}

static bool on_files_changed(void *context)
{
    struct process *process = context;

    if (process->conf_before != NULL) {
        return false;
    }
    log_info("main", "a file of the configuration has changed: reading it again");
    free(reload(process));
    return true;
}

static const struct conf *current_conf(void *context)
{
    const struct process *process = context;

    return process->conf;
}

/* ---- ending ---- */

/* For what never was there it is not waited as long as for what may come back. */
static bool waits_in_vain(struct process *process, size_t clients)
{
    int64_t now_us = clock_now_us();

    process->drained_us = clients > 0 ? 0 : process->drained_us > 0 ? process->drained_us : now_us;
    return clients == 0 && now_us - process->drained_us >= UNREACHED_PATIENCE_US &&
           worker_pool_waits_in_vain(&process->worker_pool);
}

static void check_drain(evutil_socket_t fd, short what, void *context)
{
    struct process *process = context;

    (void)fd;
    (void)what;
    size_t clients = worker_pool_clients(&process->worker_pool) + listener_waiting(process->listener);
    bool in_time = clock_now_us() < process->drain_until_us, is_vain = waits_in_vain(process, clients);
    if (clients == 0 && worker_pool_is_settled(&process->worker_pool)) {
        log_info("main", "drained");
        process->ended = true;
    } else if (is_vain || (!in_time && process->drain_is_over)) {
        log_warning("main", "Redis did not answer before the end: the policies leave something undone");
        process->ended = true;
    } else if (!in_time) {
        if (clients > 0) {
            log_warning("main", "drain_timeout is over: closing %zu clients with requests under way", clients);
            worker_pool_close_clients(&process->worker_pool);
        }
        process->drain_is_over = true;
        process->drain_until_us = clock_now_us() + SETTLE_PATIENCE_US;
    }
}

static void begin_drain(struct process *process)
{
    const struct timeval interval = {.tv_sec = 0, .tv_usec = DRAIN_CHECK_US};

    log_info("main", "draining: no new clients; each one is closed when it has no request under way");
    process->drain_until_us = clock_now_us() + clock_ms_to_us(process->conf->drain_timeout);
    listener_stop(process->listener);
    admin_stop_listening(process->admin);
    worker_pool_drain(&process->worker_pool);
    if (event_add(&process->drain_timer, &interval) != 0) {
        log_error("main", "out of memory: ending without a drain");
        process->ended = true;
    }
}

static void shut_down(void *context, bool at_once)
{
    struct process *process = context;

    if (at_once || process->drain_until_us != 0) {
        log_info("main", "ending at once");
        process->ended = true;
    } else {
        begin_drain(process);
    }
}

static void on_signal(evutil_socket_t number, short what, void *context)
{
    struct process *process = context;

    (void)what;
    if (number == SIGHUP) {
        reload_or_remember(process);
    } else {
        shut_down(process, false);
    }
}

/* ---- start ---- */

/* Each client and each lane is a descriptor; the limit is raised as far as the system lets us. */
static void raise_descriptor_limit(const struct conf *conf)
{
    struct rlimit limit;
    rlim_t wanted = (rlim_t)conf->max_clients * 2 + 128;

    if (getrlimit(RLIMIT_NOFILE, &limit) != 0 || limit.rlim_cur >= wanted) {
        return;
    }
    limit.rlim_cur = limit.rlim_max == RLIM_INFINITY || limit.rlim_max >= wanted ? wanted : limit.rlim_max;
    if (setrlimit(RLIMIT_NOFILE, &limit) == 0 && limit.rlim_cur < (rlim_t)conf->max_clients + 128) {
        log_warning("main", "ulimit -n is %llu: fewer than max_clients = %lld clients can be served",
                    (unsigned long long)limit.rlim_cur, (long long)conf->max_clients);
    }
}

static void watch_signals(struct process *process)
{
    static const int numbers[] = {SIGTERM, SIGINT, SIGHUP};

    for (size_t i = 0; i < sizeof numbers / sizeof numbers[0]; i++) {
        evsignal_assign(&process->signals[i], process->reactor.base, numbers[i], on_signal, process);
        event_add(&process->signals[i], NULL);
    }
}

static void report_unused(const char *address)
{
    log_warning("main", "a socket that listens on %s was handed over, but is in neither listen nor admin", address);
}

static bool open_ports(struct process *process, const struct admin_host *host)
{
    struct port_source *source = &process->source;

    process->admin = admin_open(&process->reactor, &process->worker_pool, process->conf, host, source);
    if (process->admin != NULL) {
        process->listener = listener_open(&process->reactor, &process->worker_pool, process->conf, source);
    }
    port_source_close_unused(source, report_unused);
    /* Only now, as whoever serves there goes on if one of them could not be opened. */
    return process->listener != NULL && admin_serve(process->admin) && listener_serve(process->listener);
}

static bool start_workers(struct process *process, const struct policy *const *policies)
{
    if (!worker_pool_start(&process->worker_pool, &process->reactor, process->conf, policies)) {
        log_error("main", "cannot start the workers: %s", strerror(errno));
        return false;
    }
    return true;
}

/* What root could read, and who we are now cannot, the next reload will miss. */
static void warn_of_files(const struct process *process)
{
    const struct conf_files *files = &process->faults.files;
    const struct conf *conf = process->conf;

    for (size_t i = 0; i < files->count; i++) {
        if (!files->items[i].is_pattern && access(files->items[i].path, R_OK) != 0) {
            log_warning("main", "user %s cannot read %s: no reload will succeed", conf->user, files->items[i].path);
        }
    }
    if (*conf->log_file != '\0' && access(conf->log_file, W_OK) != 0) {
        log_warning("main", "user %s cannot write %s: it cannot be opened anew", conf->user, conf->log_file);
    }
}

static bool start(struct process *process, const struct policy *const *policies)
{
    const struct admin_host host = {.reload = reload, .shut_down = shut_down, .conf = current_conf, .context = process};

    if (!reactor_init(&process->reactor, &process->stats) || !mailbox_open(&process->mailbox, &process->reactor)) {
        log_error("main", "cannot start the event loop: %s", strerror(errno));
        return false;
    }
    watch_signals(process);
    process->watch = file_watch_new(&process->reactor, on_files_changed, process);
    if (process->watch == NULL) {
        log_error("main", "out of memory");
        return false;
    }
    if (!expiry_open(&process->expiry, &process->reactor, process->conf)) {
        log_error("main", "out of memory");
        return false;
    }
    event_assign(&process->drain_timer, process->reactor.base, -1, EV_PERSIST, check_drain, process);
    if (!process->privileges.drops) {
        watch_files(process, &process->faults);
        /* The clients' port comes last: whoever can connect to it finds everything else in place. */
        return start_workers(process, policies) && open_ports(process, &host);
    }
    /* Nothing that others send is looked at by root, and no thread has ever been root. */
    if (!open_ports(process, &host) || !privileges_drop(&process->privileges)) {
        return false;
    }
    warn_of_files(process);
    watch_files(process, &process->faults);
    return start_workers(process, policies);
}

static void announce_listener(const struct conf *conf, struct conf_listener listener)
{
    bool is_proxied = listener.terms->proxy_protocol == CONF_PROXY_PROTOCOL_REQUIRED;

    for (size_t i = 0; i < listener.listen->count; i++) {
        log_info("main", "serving clients on %s%s, Redis is at %s", listener.listen->items[i].text,
                 is_proxied ? " (by the PROXY protocol)" : "", conf->upstream.text);
    }
}

static void announce(const struct conf *conf)
{
    log_info("main", "headgate %s, process %ld, %lld worker(s), pool = %s", HEADGATE_VERSION, (long)getpid(),
             (long long)conf->threads, conf->pool == CONF_POOL_SESSION ? "session" : "shared");
    for (size_t i = 0; i < conf_listener_count(conf); i++) {
        announce_listener(conf, conf_listener_at(conf, i));
    }
    for (size_t i = 0; i < conf->admin.count; i++) {
        log_info("main", "admin port on %s", conf->admin.items[i].text);
    }
}

static void end(struct process *process)
{
    if (process->listener != NULL) {
        listener_close(process->listener);
    }
    worker_pool_stop(&process->worker_pool);
    if (process->admin != NULL) {
        admin_close(process->admin);
    }
    if (process->watch != NULL) {
        file_watch_free(process->watch);
    }
    expiry_close(&process->expiry);
    if (process->mailbox.fd > 0) {
        mailbox_close(&process->mailbox);
    }
    reactor_free(&process->reactor);
    conf_free(process->conf);
    if (process->conf_before != NULL) {
        conf_free(process->conf_before);
    }
}

/* Sockets must never get the numbers of the standard streams, which code of others may write to. */
static void hold_standard_streams(void)
{
    int fd;

    do {
        fd = open("/dev/null", O_RDWR);
    } while (fd >= 0 && fd <= STDERR_FILENO);
    if (fd > STDERR_FILENO) {
        close(fd);
    }
}

/* A file that is made here belongs to the user who will open it anew, if that user may make it. Otherwise root makes
 * it, unless the user has a say in which file that would be: it stays open, to be written to by the user from then on.
 */
static bool open_log(const struct process *process)
{
    const struct conf *conf = process->conf;
    const struct privileges *privileges = &process->privileges;
    enum log_level level = (enum log_level)conf->log_level;

    if (privileges->drops && *conf->log_file != '\0') {
        bool opened = privileges_suspend(privileges) && log_open(conf->log_file, level);
        int error = errno;
        if (!privileges_resume(privileges)) {
            return false;
        }
        if (opened || privileges_may_exchange(privileges, conf->log_file)) {
            errno = error;
            return opened;
        }
    }
    return log_open(conf->log_file, level);
}

static bool prepare(struct process *process)
{
    struct privileges *privileges = &process->privileges;

    if (!privileges_find(privileges, process->conf->user, process->conf->group)) {
        return false;
    }
    if (privileges->drops) {
        process->source.has_owner = true;
        process->source.owner = privileges->uid;
        process->source.owner_group = privileges->gid;
    }
    if (!open_log(process)) {
        fprintf(stderr, "headgate: cannot open log_file %s: %s\n", process->conf->log_file, strerror(errno));
        return false;
    }
    return true;
}

static int serve(struct process *process)
{
    bool started;

    process->source = port_source_of_process(process->takes_over);
    hold_standard_streams();
    signal(SIGPIPE, SIG_IGN);
    signal(SIGXFSZ, SIG_IGN);
    if (!prepare(process)) {
        conf_free(process->conf);
        return 1;
    }
    log_warnings(&process->faults);
    raise_descriptor_limit(process->conf);
    started = start(process, policies);
    if (started) {
        announce(process->conf);
        while (!process->ended && reactor_turn(&process->reactor)) {
        }
        log_info("main", "bye");
    }
    end(process);
    log_close();
    return started ? 0 : 1;
}

/* What -t and -T are for, of a configuration that is sound. */
static void show(struct process *process, enum task task)
{
    const char *path = process->conf_path != NULL ? process->conf_path : "the default configuration";

    for (size_t i = 0; i < process->faults.warning_count; i++) {
        fprintf(stderr, "headgate: warning: %s\n", process->faults.warnings[i]);
    }
    if (task == COMMAND_LINE_PRINT) {
        conf_print(process->conf, stdout, false);
    } else {
        printf("headgate: %s is sound\n", path);
    }
    conf_free(process->conf);
}

int main(int argc, char **argv)
{
    struct process process = {0};
    enum task task = COMMAND_LINE_RUN;
    int status = read_command_line(argc, argv, &process, &task);

    if (status >= 0) {
        return status;
    }
    process.conf = load_conf(process.conf_path, &process.faults);
    if (process.conf == NULL) {
        status = 1;
    } else if (task == COMMAND_LINE_RUN) {
        status = serve(&process);
    } else {
        show(&process, task);
        status = 0;
    }
    conf_faults_free(&process.faults);
    return status;
}
