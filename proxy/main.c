/* The process: start, signals, reload, drain. */
#include "admin/admin.h"
#include "base/log.h"
#include "base/privileges.h"
#include "conf/conf_table.h"
#include "event/file_watch.h"
#include "http/http.h"
#include "policy/sections.h"
#include "process/command_line.h"
#include "process/descriptors.h"
#include "process/pid_file.h"
#include "process/ping.h"
#include "process/reload_report.h"
#include "process/supervisor.h"
#include "version.h"
#include "worker/expiry.h"
#include "worker/servers.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
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
    struct conf *conf_before;          /* the last one, as long as a worker may still use it */
    size_t conf_acknowledged;          /* workers that have taken over the new one */
    void (*conf_taken)(void *context); /* to be called when all have; NULL: nobody waits */
    void *conf_taken_context;
    bool reload_wanted; /* by SIGHUP, while the last one was still under way */
    struct stats stats; /* of the main thread's reactor */
    struct reactor reactor;
    struct mailbox mailbox;
    struct servers servers;
    struct admin *admin;
    struct http *http;
    struct file_watch *watch; /* of the files of the configuration */
    struct event signals[4];
    struct event drain_timer;
    struct expiry expiry; /* of certificates that servers have in common */
    struct supervisor supervisor;
    struct pid_file pid_file;
    int64_t drain_until_us; /* 0: not draining */
    int64_t drained_us;     /* when no client was left; 0: there are some */
    bool drain_is_over;     /* drain_timeout has passed: no clients any more, only what policies have to do */
    bool ended;
};

/* ---- configuration ---- */

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

/* ---- reload ---- */

struct acknowledgement {
    struct message message;
    struct process *process;
};

static char *reload(void *context, char **changes);

static void tell_taken(struct process *process)
{
    void (*taken)(void *context) = process->conf_taken;

    process->conf_taken = NULL;
    if (taken != NULL) {
        taken(process->conf_taken_context);
    }
}

/* Who sends a signal is told nothing, so a reload that cannot be done now is done afterwards. */
static void reload_or_remember(struct process *process)
{
    process->reload_wanted = process->conf_before != NULL;
    if (!process->reload_wanted) {
        free(reload(process, NULL));
    }
}

static void run_acknowledgement(struct message *message)
{
    struct acknowledgement *acknowledgement = (struct acknowledgement *)(void *)message;
    struct process *process = acknowledgement->process;

    free(acknowledgement);
    if (process->ended) {
        return;
    }
    if (++process->conf_acknowledged == servers_workers(&process->servers)) {
        conf_free(process->conf_before);
        process->conf_before = NULL;
        supervisor_ready(&process->supervisor);
        tell_taken(process);
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

static void put_in_force(struct process *process, struct conf *conf)
{
    process->conf_before = process->conf;
    process->conf = conf;
    process->conf_acknowledged = 0;
    log_set_format((enum log_format)conf->log_format);
    if (!log_open(conf->log_file, (enum log_level)conf->log_level)) {
        log_error("main", "cannot open log_file %s: %s; going on with the old one", conf->log_file, strerror(errno));
    }
    expiry_follow(&process->expiry, conf);
    servers_reconfigure(&process->servers, conf, worker_took_conf, process);
}

/* Also what could not be read: it may be there soon. */
static void watch_files(struct process *process, struct conf_faults *faults)
{
    file_watch_set(process->watch, &faults->files, process->conf->reload_on_change != 0);
}

/* For STATS of each server: when there is another configuration, as there is at the start. */
static void note_reload(struct process *process)
{
    for (size_t i = 0; i < process->servers.count; i++) {
        stats_set(&process->servers.list[i].stats, STATS_RELOAD_FAILED, 0);
        stats_set(&process->servers.list[i].stats, STATS_LAST_RELOAD, (uint64_t)(clock_wall_us() / 1000000));
    }
}

static void count_reload(struct process *process)
{
    for (size_t i = 0; i < process->servers.count; i++) {
        stats_add(&process->servers.list[i].stats, STATS_RELOADS, 1);
    }
    note_reload(process);
}

static void count_failed_reload(struct process *process)
{
    for (size_t i = 0; i < process->servers.count; i++) {
        stats_add(&process->servers.list[i].stats, STATS_RELOAD_FAILURES, 1);
        stats_set(&process->servers.list[i].stats, STATS_RELOAD_FAILED, 1);
    }
}

/* NULL if all is well; then *changes, if somebody asks for it, has lines to be freed. */
static char *reload(void *context, char **changes)
{
    struct process *process = context;
    struct conf_faults faults;
    char *told;

    if (process->conf_before != NULL) {
        return conf_format("the last reload is still under way; try again\n");
    }
    supervisor_reloading(&process->supervisor);
    struct conf *fresh = read_conf(process->conf_path, &faults);
    if (fresh == NULL) {
        char *text = reload_report_log_faults(&faults);
        log_error("main", "the configuration was not reloaded: nothing was changed");
        count_failed_reload(process);
        watch_files(process, &faults);
        conf_faults_free(&faults);
        supervisor_ready(&process->supervisor);
        return text;
    }
    reload_report_log_warnings(&faults);
    struct conf *merged = reload_report_merge(process->conf, fresh, &told);
    conf_free(fresh);
    put_in_force(process, merged);
    count_reload(process);
    watch_files(process, &faults);
    conf_faults_free(&faults);
    log_info("main", "the configuration was reloaded");
    if (changes != NULL) {
        *changes = told;
    } else {
        free(told);
    }
    return NULL;
}

/* NULL if all is well; then taken is called when all workers have it. */
static char *change(void *context, const struct conf_setting *settings, size_t count, void (*taken)(void *context),
                    void *taken_context)
{
    const struct conf_section *sections[SECTIONS_MAX + 1];
    struct process *process = context;
    struct conf_faults faults;
    char *text = NULL;

    if (process->conf_before != NULL) {
        return conf_format("the last change is still under way; try again\n");
    }
    sections_list(policies, sections);
    struct conf *fresh = conf_change(process->conf, sections, settings, count, &faults);
    if (fresh != NULL) {
        reload_report_log_warnings(&faults);
        reload_report_changes(process->conf, fresh);
        process->conf_taken = taken;
        process->conf_taken_context = taken_context;
        put_in_force(process, fresh);
        file_watch_turn(process->watch, fresh->reload_on_change != 0);
    } else {
        text = reload_report_faults(&faults);
    }
    conf_faults_free(&faults);
    return text;
}

static bool on_files_changed(void *context)
{
    struct process *process = context;

    if (process->conf_before != NULL) {
        return false;
    }
    log_info("main", "a file of the configuration has changed: reading it again");
    free(reload(process, NULL));
    return true;
}

static const struct conf *current_conf(void *context)
{
    const struct process *process = context;

    return process->conf;
}

static struct http_process tell_of_process(void *context)
{
    const struct process *process = context;
    const struct stats *stats = &process->servers.list[0].stats;

    return (struct http_process){.is_draining = process->servers.is_draining,
                                 .reloaded_s = (int64_t)stats_get(stats, STATS_LAST_RELOAD),
                                 .reload_has_failed = stats_get(stats, STATS_RELOAD_FAILED) != 0};
}

/* ---- ending ---- */

/* For what never was there it is not waited as long as for what may come back. */
static bool waits_in_vain(struct process *process, size_t clients)
{
    int64_t now_us = clock_now_us();

    process->drained_us = clients > 0 ? 0 : process->drained_us > 0 ? process->drained_us : now_us;
    return clients == 0 && now_us - process->drained_us >= UNREACHED_PATIENCE_US &&
           servers_wait_in_vain(&process->servers);
}

static void check_drain(evutil_socket_t fd, short what, void *context)
{
    struct process *process = context;

    (void)fd;
    (void)what;
    size_t clients = servers_clients(&process->servers);
    bool in_time = clock_now_us() < process->drain_until_us, is_vain = waits_in_vain(process, clients);
    if (clients == 0 && servers_are_settled(&process->servers)) {
        log_info("main", "drained");
        process->ended = true;
    } else if (is_vain || (!in_time && process->drain_is_over)) {
        log_warning("main", "Redis did not answer before the end: the policies leave something undone");
        process->ended = true;
    } else if (!in_time) {
        if (clients > 0) {
            log_warning("main", "drain_timeout is over: closing %zu clients with requests under way", clients);
            servers_close_clients(&process->servers);
        }
        process->drain_is_over = true;
        process->drain_until_us = clock_now_us() + SETTLE_PATIENCE_US;
    }
}

static void begin_drain(struct process *process)
{
    const struct timeval interval = {.tv_sec = 0, .tv_usec = DRAIN_CHECK_US};

    int64_t patience_us = clock_ms_to_us(process->conf->drain_timeout);

    log_info("main", "draining: no new clients; each one is closed when it has no request under way");
    supervisor_stopping(&process->supervisor, patience_us + UNREACHED_PATIENCE_US + SETTLE_PATIENCE_US);
    process->drain_until_us = clock_now_us() + patience_us;
    admin_stop_listening(process->admin);
    http_drain(process->http);
    servers_drain(&process->servers);
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
        supervisor_stopping(&process->supervisor, SETTLE_PATIENCE_US);
        process->ended = true;
    } else {
        begin_drain(process);
    }
}

/* After a rotation; the configuration stays as it is. */
static void reopen_log(const struct process *process)
{
    const struct conf *conf = process->conf;

    if (log_open(conf->log_file, (enum log_level)conf->log_level)) {
        log_info("main", "log_file was opened anew");
    } else {
        log_error("main", "cannot open log_file %s: %s; going on with the old one", conf->log_file, strerror(errno));
    }
}

static void on_signal(evutil_socket_t number, short what, void *context)
{
    struct process *process = context;

    (void)what;
    if (number == SIGHUP) {
        reload_or_remember(process);
    } else if (number == SIGUSR1) {
        reopen_log(process);
    } else {
        shut_down(process, false);
    }
}

/* ---- start ---- */

static void watch_signals(struct process *process)
{
    static const int numbers[] = {SIGTERM, SIGINT, SIGHUP, SIGUSR1};

    for (size_t i = 0; i < sizeof numbers / sizeof numbers[0]; i++) {
        evsignal_assign(&process->signals[i], process->reactor.base, numbers[i], on_signal, process);
        event_add(&process->signals[i], NULL);
    }
}

static void report_unused(const char *address)
{
    log_warning("main", "a socket that listens on %s was handed over, but is in none of listen, admin and http",
                address);
}

static bool open_ports(struct process *process, const struct admin_host *host)
{
    struct port_source *source = &process->source;
    const struct http_host http_host = {.conf = current_conf, .process = tell_of_process, .context = process};

    process->admin = admin_open(&process->reactor, &process->servers, process->conf, host, source);
    if (process->admin != NULL) {
        process->http = http_open(&process->reactor, &process->servers, process->conf, &http_host, source);
    }
    bool opened = process->http != NULL && servers_listen(&process->servers, &process->reactor, source);
    port_source_close_unused(source, report_unused);
    /* Only now, as whoever serves there goes on if one of them could not be opened. */
    return opened && admin_serve(process->admin) && http_serve(process->http) && servers_serve(&process->servers);
}

/* False with one logged line. */
static bool start_workers(struct process *process, const struct policy *const *policies)
{
    if (!servers_start(&process->servers, &process->reactor, policies)) {
        return false;
    }
    for (size_t i = 0; i < process->servers.count; i++) {
        if (!supervisor_watch(&process->supervisor, &process->reactor, &process->mailbox,
                              &process->servers.list[i].worker_pool)) {
            log_error("main", "out of memory");
            return false;
        }
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
    if (log_is_file(conf->log_file) && access(conf->log_file, W_OK) != 0) {
        log_warning("main", "user %s cannot write %s: it cannot be opened anew", conf->user, conf->log_file);
    }
}

static bool start(struct process *process, const struct policy *const *policies)
{
    const struct admin_host host = {
        .reload = reload, .change = change, .shut_down = shut_down, .conf = current_conf, .context = process};

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
    if (!expiry_open(&process->expiry, &process->reactor, &process->stats, process->conf) ||
        !servers_new(&process->servers, process->conf)) {
        log_error("main", "out of memory");
        return false;
    }
    note_reload(process);
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

static void announce_listener(const struct conf *conf, struct conf_listener listener, const char *whose)
{
    bool is_proxied = listener.terms->proxy_protocol == CONF_PROXY_PROTOCOL_REQUIRED;

    for (size_t i = 0; i < listener.listen->count; i++) {
        log_info("main", "serving clients%s on %s%s, Redis is at %s", whose, listener.listen->items[i].text,
                 is_proxied ? " (by the PROXY protocol)" : "", conf->upstream.text);
    }
}

static void announce_server(const struct conf *conf)
{
    bool is_of_several = conf_server_count(conf->process) > 1;
    char whose[CONF_RULE_NAME_MAX + 8] = "";

    if (is_of_several) {
        log_info("main", "server %s: %lld worker(s), pool = %s", conf_server_name(conf), (long long)conf->threads,
                 conf->pool == CONF_POOL_SESSION ? "session" : "shared");
        snprintf(whose, sizeof whose, " of %s", conf_server_name(conf));
    }
    for (size_t i = 0; i < conf_listener_count(conf); i++) {
        announce_listener(conf, conf_listener_at(conf, i), whose);
    }
}

static void announce(const struct conf *conf)
{
    const struct conf *first = conf_server_at(conf, 0);

    if (conf_server_count(conf) == 1) {
        log_info("main", "headgate %s, process %ld, %lld worker(s), pool = %s", HEADGATE_VERSION, (long)getpid(),
                 (long long)first->threads, first->pool == CONF_POOL_SESSION ? "session" : "shared");
    } else {
        log_info("main", "headgate %s, process %ld, %zu servers", HEADGATE_VERSION, (long)getpid(),
                 conf_server_count(conf));
    }
    for (size_t i = 0; i < conf_server_count(conf); i++) {
        announce_server(conf_server_at(conf, i));
    }
    for (size_t i = 0; i < conf->admin.count; i++) {
        log_info("main", "admin port on %s", conf->admin.items[i].text);
    }
    for (size_t i = 0; i < conf->http.count; i++) {
        log_info("main", "HTTP on %s", conf->http.items[i].text);
    }
}

/* Whoever waits for it finds everything in place. */
static void tell_readiness(struct process *process)
{
    const char *path = process->conf->pid_file;

    if (!pid_file_write(&process->pid_file, path)) {
        log_error("main", "cannot write pid_file %s: %s; going on without", path, strerror(errno));
    }
    supervisor_ready(&process->supervisor);
}

static void end(struct process *process)
{
    pid_file_remove(&process->pid_file);
    servers_stop(&process->servers);
    if (process->admin != NULL) {
        admin_close(process->admin);
    }
    if (process->http != NULL) {
        http_close(process->http);
    }
    servers_free(&process->servers);
    if (process->watch != NULL) {
        file_watch_free(process->watch);
    }
    expiry_close(&process->expiry);
    if (process->mailbox.fd > 0) {
        mailbox_run(&process->mailbox);
        mailbox_close(&process->mailbox);
    }
    supervisor_close(&process->supervisor);
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

    log_set_format((enum log_format)conf->log_format);
    if (privileges->drops && log_is_file(conf->log_file)) {
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
    supervisor_open(&process->supervisor);
    signal(SIGPIPE, SIG_IGN);
    signal(SIGXFSZ, SIG_IGN);
    if (!prepare(process)) {
        conf_free(process->conf);
        return 1;
    }
    reload_report_log_warnings(&process->faults);
    descriptors_raise(process->conf);
    started = start(process, policies);
    if (started) {
        announce(process->conf);
        tell_readiness(process);
        while (!process->ended && reactor_turn(&process->reactor)) {
        }
        log_info("main", "bye");
    }
    end(process);
    log_close();
    return started ? 0 : 1;
}

/* What -t and -T are for, of a configuration that is sound. */
static void show(struct process *process, enum command_line_task task)
{
    const char *path = process->conf_path != NULL ? process->conf_path : "the default configuration";

    for (size_t i = 0; i < process->faults.warning_count; i++) {
        fprintf(stderr, "headgate: warning: %s\n", process->faults.warnings[i]);
    }
    if (task == COMMAND_LINE_SHOW) {
        conf_print(process->conf, stdout, false);
    } else {
        printf("headgate: %s is sound\n", path);
    }
    conf_free(process->conf);
}

int main(int argc, char **argv)
{
    const struct command_line line = command_line_read(argc, argv, policies);
    struct process process = {.conf_path = line.conf_path, .takes_over = line.takes_over};
    int status = 0;

    if (line.task == COMMAND_LINE_EXIT) {
        return line.status;
    }
    process.conf = load_conf(process.conf_path, &process.faults);
    if (process.conf == NULL) {
        status = 1;
    } else if (line.task == COMMAND_LINE_RUN) {
        status = serve(&process);
    } else if (line.task == COMMAND_LINE_PING) {
        status = ping_run(process.conf, line.pings_admin);
        conf_free(process.conf);
    } else {
        show(&process, line.task);
    }
    conf_faults_free(&process.faults);
    return status;
}
