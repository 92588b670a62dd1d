/* The process: start, signals, reload, drain. */
#include "admin/admin.h"
#include "base/log.h"
#include "base/privileges.h"
#include "conf/conf_table.h"
#include "http/http.h"
#include "process/announce.h"
#include "process/command_line.h"
#include "process/descriptors.h"
#include "process/files.h"
#include "process/handover.h"
#include "process/pid_file.h"
#include "process/ping.h"
#include "process/reload.h"
#include "process/reload_report.h"
#include "process/retirement.h"
#include "process/supervisor.h"
#include "process/upgrade.h"
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
/* How long the end itself may take, whatever a thread hangs in. Seconds. */
#define END_PATIENCE_S 5
/* That the event loop hears of. */
#define SIGNAL_COUNT 4
/* How often the main thread looks whether a drain has come to its end. */
#define DRAIN_CHECK_US 50000

struct process {
    struct port_source source; /* of what it listens on */
    struct port_list ports;    /* all that is listened on */
    struct handover handover;  /* to the next process, and from the one before */
    struct privileges privileges;
    struct conf_faults faults; /* of the first configuration: its warnings */
    struct reload reload;      /* what is in force */
    struct stats stats;        /* of the main thread's reactor */
    struct reactor reactor;
    struct mailbox mailbox;
    struct servers servers;
    struct admin *admin;
    struct http *http;
    struct event signals[SIGNAL_COUNT];
    struct event drain_timer;
    struct retirement retirement; /* when another process serves */
    struct expiry expiry;         /* of certificates that servers have in common */
    struct supervisor supervisor;
    struct pid_file pid_file;
    int64_t drain_until_us; /* 0: not draining */
    int64_t drained_us;     /* when no client was left; 0: there are some */
    bool drain_is_over;     /* drain_timeout has passed: no clients any more, only what policies have to do */
    bool is_told_to_end;    /* by a person or a manager, and not by another process or by the time */
    bool ended;
};

/* ---- configuration ---- */

/* The faults are the caller's. */
static struct conf *load_conf(const char *path, struct conf_faults *faults)
{
    struct conf *conf = reload_read(path, policies, faults);

    for (size_t i = 0; i < faults->count; i++) {
        fprintf(stderr, "headgate: %s\n", faults->lines[i]);
    }
    return conf;
}

static char *reload(void *context, char **changes, void (*taken)(void *context), void *taken_context)
{
    struct process *process = context;

    return reload_now(&process->reload, changes, taken, taken_context);
}

static void reload_untold(void *context)
{
    struct process *process = context;

    reload_soon(&process->reload);
}

static char *change(void *context, const struct conf_setting *settings, size_t count, void (*taken)(void *context),
                    void *taken_context)
{
    struct process *process = context;

    return reload_change(&process->reload, settings, count, taken, taken_context);
}

static const struct conf *current_conf(void *context)
{
    const struct process *process = context;

    return process->reload.conf;
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
    if (clients == 0 && servers_are_settled(&process->servers) && !handover_has_predecessor(&process->handover)) {
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
    int64_t patience_us = clock_ms_to_us(process->reload.conf->drain_timeout);

    log_info("main", "draining: no new clients; each one is closed when it has no request under way");
    supervisor_stopping(&process->supervisor, patience_us + UNREACHED_PATIENCE_US + SETTLE_PATIENCE_US);
    process->drain_until_us = clock_now_us() + patience_us;
    handover_abandon(&process->handover, "the process is told to end");
    handover_release(&process->handover);
    admin_stop_listening(process->admin);
    http_drain(process->http);
    servers_drain(&process->servers);
    handover_pass_on(&process->handover, process->servers.has_successor ? HANDOVER_DRAIN : HANDOVER_END);
    if (event_add(&process->drain_timer, &interval) != 0) {
        log_error("main", "out of memory: ending without a drain");
        process->ended = true;
    }
}

/* Who ends a whole service tells the process before an upgrade, too, which may be draining by the new one's word. */
static void shut_down(void *context, bool at_once)
{
    struct process *process = context;

    if (at_once || process->is_told_to_end) {
        log_info("main", "ending at once");
        supervisor_stopping(&process->supervisor, SETTLE_PATIENCE_US);
        handover_pass_on(&process->handover, HANDOVER_END);
        process->ended = true;
    } else if (process->drain_until_us != 0) {
        log_info("main", "told to end, too: the drain goes on");
    } else {
        begin_drain(process);
    }
    process->is_told_to_end = true;
}

/* Sockets that another process has, and that are kept for the case that it crashes. */
static void release(void *context)
{
    struct process *process = context;

    admin_stop_listening(process->admin);
    http_stop_listening(process->http);
    servers_stop_listening(&process->servers);
}

/* Out of service, but there. The sockets that a new process is to be given are gone then. */
static void leave_service(void *context)
{
    struct process *process = context;

    handover_abandon(&process->handover, "DRAIN has taken the process out of service meanwhile");
    if (handover_is_given(&process->handover)) {
        release(process);
    }
    handover_release(&process->handover);
    servers_drain(&process->servers);
}

/* ---- upgrade ---- */

static void write_pid_file(struct process *process)
{
    const char *path = process->reload.conf->pid_file;

    if (!pid_file_write(&process->pid_file, path)) {
        log_error("main", "cannot write pid_file %s: %s; going on without", path, strerror(errno));
    }
}

static void drain_once(void *context)
{
    struct process *process = context;

    if (process->drain_until_us == 0) {
        begin_drain(process);
    }
}

/* The new process serves. */
static void on_given(void *context)
{
    struct process *process = context;

    admin_leave_listening(process->admin);
    http_leave_listening(process->http);
    servers_leave_listening(&process->servers);
    process->servers.has_successor = true;
    if (!retirement_begin(&process->retirement, &process->reactor, &process->servers, &process->handover,
                          process->reload.conf->upgrade_clients_timeout, drain_once, process)) {
        begin_drain(process);
    }
}

/* It has crashed: who waits to be accepted is served again. */
static void on_taken_back(void *context)
{
    struct process *process = context;

    servers_resume_listening(&process->servers);
    admin_resume_listening(process->admin);
    http_resume_listening(process->http);
    retirement_end(&process->retirement);
    pid_file_remove(&process->pid_file);
    write_pid_file(process);
}

static char *upgrade(void *context, handover_done *done, void *done_context)
{
    struct process *process = context;

    /* At the end an upgrade under way is given up, and what stands behind it on the admin port may be the next one. */
    if (process->drain_until_us != 0 || process->ended) {
        return conf_format("the process is ending");
    }
    return handover_start(&process->handover, done, done_context);
}

static void on_is_service(void *context)
{
    struct process *process = context;

    supervisor_ready(&process->supervisor);
}

static void reopen_log(void *context);

static bool open_handover(struct process *process)
{
    const struct handover_host host = {
        .conf = current_conf,
        .given = on_given,
        .release = release,
        .taken_back = on_taken_back,
        .is_service = on_is_service,
        .drain = drain_once,
        .reload = reload_untold,
        .reopen_log = reopen_log,
        .context = process,
    };

    return handover_open(&process->handover, &host, &process->reactor, &process->servers, &process->ports,
                         &process->supervisor);
}

/* ---- signals ---- */

/* After a rotation; the configuration stays as it is. */
static void reopen_log(void *context)
{
    struct process *process = context;
    const struct conf *conf = process->reload.conf;

    handover_pass_on(&process->handover, HANDOVER_REOPEN);
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
        reload_soon(&process->reload);
    } else if (number == SIGUSR2) {
        free(upgrade(process, NULL, NULL)); /* the log says what becomes of it */
    } else if (number == SIGUSR1) {
        reopen_log(process);
    } else {
        shut_down(process, false);
    }
}

/* What the handlers of TERM and INT tell the event loop by. No constant. */
#define SIGNAL_END SIGRTMIN

/* What is at stake then is less than an end that never comes. */
static void on_overdue(int number)
{
    (void)number;
    log_last_words("a thread hangs: ending without it");
    _exit(1);
}

/* Told again. That it ends does not depend on any thread from here on, not on this one either. */
static void on_insisted(int number)
{
    (void)number;
    (void)signal(SIGTERM, SIG_IGN);
    (void)signal(SIGINT, SIG_IGN);
    (void)alarm(END_PATIENCE_S);
    (void)raise(SIGNAL_END);
}

static void on_told_to_end(int number)
{
    (void)number;
    (void)signal(SIGTERM, on_insisted);
    (void)signal(SIGINT, on_insisted);
    (void)raise(SIGNAL_END);
}

/* ---- start ---- */

static void watch_signals(struct process *process)
{
    const int numbers[SIGNAL_COUNT] = {SIGNAL_END, SIGHUP, SIGUSR1, SIGUSR2};

    for (size_t i = 0; i < SIGNAL_COUNT; i++) {
        evsignal_assign(&process->signals[i], process->reactor.base, numbers[i], on_signal, process);
        event_add(&process->signals[i], NULL);
    }
    (void)signal(SIGALRM, on_overdue);
    (void)signal(SIGTERM, on_told_to_end);
    (void)signal(SIGINT, on_told_to_end);
}

/* Nobody listens to signals any more, and one that is sent twice (by an operator, or by the process that has taken
 * over) must not make a failure of an end in good order. */
static void hold_signals(const struct process *process)
{
    sigset_t held;

    sigemptyset(&held);
    sigaddset(&held, SIGTERM);
    sigaddset(&held, SIGINT);
    for (size_t i = 0; i < SIGNAL_COUNT; i++) {
        sigaddset(&held, event_get_signal(&process->signals[i]));
    }
    sigprocmask(SIG_BLOCK, &held, NULL);
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

    process->admin = admin_open(&process->reactor, &process->servers, process->reload.conf, host, source);
    if (process->admin != NULL) {
        process->http = http_open(&process->reactor, &process->servers, process->reload.conf, &http_host, source);
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

/* Workers, and what another process knows: as late as can be. What an operator's handshake takes is there ahead, as
 * descriptors may be short later. */
static bool start_serving(struct process *process, const struct policy *const *policies)
{
    const struct conf_address_list *admin = &process->reload.conf->admin;

    for (size_t i = 0; i < admin->count; i++) {
        (void)(admin->items[i].tls && connection_prepare_security(&process->reactor, true));
    }
    return start_workers(process, policies) && open_handover(process);
}

static bool open_reload(struct process *process)
{
    struct reload *reload = &process->reload;

    reload->mailbox = &process->mailbox;
    reload->servers = &process->servers;
    reload->expiry = &process->expiry;
    reload->supervisor = &process->supervisor;
    reload->handover = &process->handover;
    reload->has_ended = &process->ended;
    return reload_open(reload, &process->reactor);
}

static bool start(struct process *process, const struct policy *const *policies)
{
    const struct admin_host host = {
        .reload = reload,
        .change = change,
        .drain = leave_service,
        .shut_down = shut_down,
        .upgrade = upgrade,
        .conf = current_conf,
        .context = process,
    };

    if (!reactor_init(&process->reactor, &process->stats) || !mailbox_open(&process->mailbox, &process->reactor)) {
        log_error("main", "cannot start the event loop: %s", strerror(errno));
        return false;
    }
    watch_signals(process);
    if (!open_reload(process)) {
        log_error("main", "out of memory");
        return false;
    }
    if (!expiry_open(&process->expiry, &process->reactor, &process->stats, process->reload.conf) ||
        !servers_new(&process->servers, process->reload.conf)) {
        log_error("main", "out of memory");
        return false;
    }
    reload_note(&process->reload);
    event_assign(&process->drain_timer, process->reactor.base, -1, EV_PERSIST, check_drain, process);
    if (!process->privileges.drops) {
        reload_watch(&process->reload, &process->faults);
        /* The clients' port comes last: whoever can connect to it finds everything else in place. */
        return start_serving(process, policies) && open_ports(process, &host) &&
               handover_take(&process->handover, &process->source);
    }
    /* Nothing that others send is looked at by root, and no thread has ever been root. */
    if (!open_ports(process, &host) || !privileges_drop(&process->privileges)) {
        return false;
    }
    files_warn(process->reload.conf, &process->faults.files);
    reload_watch(&process->reload, &process->faults);
    return start_serving(process, policies) && handover_take(&process->handover, &process->source);
}

/* Whoever waits for it finds everything in place. */
static void tell_readiness(struct process *process)
{
    write_pid_file(process);
    handover_serves(&process->handover);
}

static void end(struct process *process)
{
    (void)alarm(END_PATIENCE_S);
    handover_say_goodbye(&process->handover);
    pid_file_remove(&process->pid_file);
    servers_stop(&process->servers);
    if (process->admin != NULL) {
        admin_close(process->admin);
    }
    if (process->http != NULL) {
        http_close(process->http);
    }
    handover_close(&process->handover);
    servers_free(&process->servers);
    expiry_close(&process->expiry);
    if (process->mailbox.fd > 0) {
        mailbox_run(&process->mailbox);
        mailbox_close(&process->mailbox);
    }
    supervisor_close(&process->supervisor);
    reload_close(&process->reload);
    hold_signals(process);
    reactor_free(&process->reactor);
    /* No other thread is left. */
    (void)alarm(0);
}

static bool prepare(struct process *process)
{
    struct privileges *privileges = &process->privileges;

    if (!privileges_find(privileges, process->reload.conf->user, process->reload.conf->group)) {
        return false;
    }
    if (privileges->drops) {
        process->source.has_owner = true;
        process->source.owner = privileges->uid;
        process->source.owner_group = privileges->gid;
    }
    if (!files_open_log(process->reload.conf, privileges)) {
        fprintf(stderr, "headgate: cannot open log_file %s: %s\n", process->reload.conf->log_file, strerror(errno));
        return false;
    }
    return true;
}

static int serve(struct process *process)
{
    bool started;

    LIST_INIT(&process->ports);
    process->source.ports = &process->ports;
    files_hold_standard_streams();
    supervisor_open(&process->supervisor);
    signal(SIGPIPE, SIG_IGN);
    signal(SIGXFSZ, SIG_IGN);
    if (!prepare(process)) {
        conf_free(process->reload.conf);
        return 1;
    }
    reload_report_log_warnings(&process->faults);
    descriptors_raise(process->reload.conf);
    started = start(process, policies);
    if (started) {
        process->reload.descriptors = descriptors_in_use();
        descriptors_fit(&process->servers, process->reload.conf, process->reload.descriptors);
        announce(process->reload.conf);
        tell_readiness(process);
        while (!process->ended && reactor_turn(&process->reactor)) {
        }
        log_info("main", "bye");
    }
    end(process);
    log_close();
    return started ? 0 : 1;
}

/* To the process that has started this one, if one has. */
static void report_faults(struct process *process)
{
    for (size_t i = 0; i < process->faults.count; i++) {
        handover_fail(&process->handover, process->faults.lines[i]);
    }
    handover_close(&process->handover);
}

int main(int argc, char **argv)
{
    const struct command_line line = command_line_read(argc, argv, policies);
    struct process process = {.reload = {.path = line.conf_path, .policies = policies}};
    int status = 0;

    if (line.task == COMMAND_LINE_EXIT) {
        return line.status;
    }
    if (line.task == COMMAND_LINE_RUN) {
        process.source = port_source_of_process(line.takes_over);
        if (!handover_of_process(&process.handover, argv[0], line.conf_path, &process.source)) {
            handover_close(&process.handover);
            free(process.source.inherited);
            return 1;
        }
    }
    process.reload.conf = load_conf(process.reload.path, &process.faults);
    if (process.reload.conf == NULL) {
        report_faults(&process);
        status = 1;
    } else if (line.task == COMMAND_LINE_RUN) {
        status = serve(&process);
    } else if (line.task == COMMAND_LINE_UPGRADE) {
        status = upgrade_run(process.reload.conf);
        conf_free(process.reload.conf);
    } else if (line.task == COMMAND_LINE_PING) {
        status = ping_run(process.reload.conf, line.pings_admin);
        conf_free(process.reload.conf);
    } else {
        announce_sound(process.reload.conf, process.reload.path, &process.faults, line.task == COMMAND_LINE_SHOW);
        conf_free(process.reload.conf);
    }
    conf_faults_free(&process.faults);
    free(process.source.inherited);
    return status;
}
