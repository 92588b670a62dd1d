#include "admin.h"

#include "log.h"
#include "version.h"

#include <errno.h>
#include <event2/buffer.h>
#include <event2/bufferevent.h>
#include <event2/listener.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/stat.h>
#include <unistd.h>

#define SESSIONS_MAX 64
#define ARGUMENTS_MAX 8
/* A request to the admin port is a few words. Bytes. */
#define REQUEST_MAX 16384
/* What a slow reader may leave unread before nothing more is done for it. Bytes. */
#define OUTPUT_MARK ((size_t)1024 * 1024)
/* Clients a worker reports on in one turn. */
#define CLIENTS_PER_TURN 256

/* With no descriptor left, the next look at who wants to connect comes so much later. µs. */
#define REST_US 50000

struct admin {
    struct reactor *reactor;
    struct crew *crew;
    struct admin_host host;
    struct evconnlistener *listeners[CONF_ADDRESSES_MAX];
    char *unix_paths[CONF_ADDRESSES_MAX];
    size_t listener_count;
    struct event rest; /* until it fires, nothing is accepted */
    struct session_entry *sessions;
    size_t session_count;
    int64_t started_us;
    struct mailbox mailbox; /* for what workers send back */
};

/* One admin connection. */
struct session_entry {
    struct admin *admin;
    struct session_entry *next;
    struct bufferevent *stream;
    struct resp_command command;
    bool authenticated;
    bool gathering; /* an answer is being gathered: nothing else is taken meanwhile */
    bool closed;    /* the connection is gone, but a gathering still refers to this */
    bool last;      /* closed once the output is written */
};

struct verb {
    const char *name;
    size_t least, most; /* arguments, with the verb */
    void (*run)(struct session_entry *session, size_t count, const struct slice *arguments);
    const char *usage;
    const char *help;
};

#define VERB_COUNT 13
static const struct verb verbs[VERB_COUNT + 1];

/* ---- replies ---- */

static void reply_text(struct session_entry *session, const char *text, size_t length)
{
    struct evbuffer *output = bufferevent_get_output(session->stream);

    evbuffer_add_printf(output, "$%zu\r\n", length);
    evbuffer_add(output, text, length);
    evbuffer_add(output, "\r\n", 2);
}

static void reply_evbuffer(struct session_entry *session, struct evbuffer *text)
{
    struct evbuffer *output = bufferevent_get_output(session->stream);

    evbuffer_add_printf(output, "$%zu\r\n", evbuffer_get_length(text));
    evbuffer_add_buffer(output, text);
    evbuffer_add(output, "\r\n", 2);
}

static void reply_status(struct session_entry *session, const char *text)
{
    evbuffer_add_printf(bufferevent_get_output(session->stream), "+%s\r\n", text);
}

static void reply_error(struct session_entry *session, const char *text)
{
    evbuffer_add_printf(bufferevent_get_output(session->stream), "-%s\r\n", text);
}

/* ---- sessions ---- */

static void session_free(struct session_entry *session)
{
    struct session_entry **link = &session->admin->sessions;

    while (*link != session) {
        link = &(*link)->next;
    }
    *link = session->next;
    session->admin->session_count--;
    free(session);
}

static void session_close(struct session_entry *session)
{
    bufferevent_free(session->stream);
    session->stream = NULL;
    session->closed = true;
    if (!session->gathering) {
        session_free(session);
    }
}

/* ---- gathering from workers ---- */

/*
 * Goes from worker to worker and collects lines. On a worker's thread it only reads that worker; between two parts it
 * lets the worker's clients have a turn.
 */
struct gathering {
    struct letter letter;
    struct session_entry *session;
    struct evbuffer *text;
    size_t worker;
    uint64_t after;
    bool more;
    void (*collect)(struct gathering *gathering, struct worker *worker);
    void (*finish)(struct gathering *gathering);
    struct worker_facts facts;
    const char *section; /* STATS: the one wanted, or NULL */
    char section_name[32];
};

static void gathering_on_main(struct letter *letter);
static void requests_take(struct session_entry *session);

static void gathering_on_worker(struct letter *letter)
{
    struct gathering *gathering = (struct gathering *)(void *)letter;
    struct admin *admin = gathering->session->admin;

    gathering->more = false;
    gathering->collect(gathering, admin->crew->workers[gathering->worker]);
    letter->run = gathering_on_main;
    mailbox_post(&admin->mailbox, letter);
}

static void gathering_go_on(struct gathering *gathering)
{
    struct admin *admin = gathering->session->admin;

    gathering->letter.run = gathering_on_worker;
    worker_post(admin->crew->workers[gathering->worker], &gathering->letter);
}

static void gathering_end(struct gathering *gathering)
{
    struct session_entry *session = gathering->session;

    session->gathering = false;
    if (session->closed) {
        session_free(session);
    } else {
        gathering->finish(gathering);
        bufferevent_enable(session->stream, EV_READ);
        requests_take(session);
    }
    evbuffer_free(gathering->text);
    free(gathering);
}

static void gathering_on_main(struct letter *letter)
{
    struct gathering *gathering = (struct gathering *)(void *)letter;
    struct admin *admin = gathering->session->admin;

    if (!gathering->more) {
        gathering->worker++;
        gathering->after = 0;
    }
    if (gathering->worker < admin->crew->count && !gathering->session->closed) {
        gathering_go_on(gathering);
    } else {
        gathering_end(gathering);
    }
}

static void finish_with_text(struct gathering *gathering)
{
    reply_evbuffer(gathering->session, gathering->text);
}

static void gather(struct session_entry *session, void (*collect)(struct gathering *, struct worker *),
                   void (*finish)(struct gathering *), struct slice section)
{
    struct gathering *gathering = calloc(1, sizeof *gathering);
    struct evbuffer *text = evbuffer_new();

    if (gathering == NULL || text == NULL || section.length >= sizeof gathering->section_name) {
        reply_error(session, section.length > 0 ? "ERR no section of that name; see STATS" : "ERR out of memory");
        free(gathering);
        if (text != NULL) {
            evbuffer_free(text);
        }
        return;
    }
    gathering->session = session;
    gathering->text = text;
    gathering->collect = collect;
    gathering->finish = finish;
    if (section.length > 0) {
        memcpy(gathering->section_name, section.data, section.length);
        gathering->section = gathering->section_name;
    }
    session->gathering = true;
    bufferevent_disable(session->stream, EV_READ);
    gathering_go_on(gathering);
}

/* ---- CLIENTS and LANES ---- */

struct line_context {
    struct evbuffer *text;
    size_t worker;
    int64_t now_us;
};

static void add_client(void *context, const struct client_report *report)
{
    const struct line_context *line = context;

    evbuffer_add_printf(line->text,
                        "id=%" PRIu64 " addr=%s worker=%zu name=%s user=%s db=%" PRId64 " resp=%d age=%" PRId64
                        " idle=%" PRId64 " lane=%s pending=%u qbuf=%zu obuf=%zu\n",
                        report->id, report->address, line->worker, report->name, report->user, report->database,
                        report->resp, report->age_us / 1000000, report->idle_us / 1000000, report->lane,
                        report->in_flight, report->input_bytes, report->output_bytes);
}

static void collect_clients(struct gathering *gathering, struct worker *worker)
{
    struct line_context line = {.text = gathering->text, .worker = worker_index(worker)};

    gathering->after = client_visit(worker_clients(worker), gathering->after, CLIENTS_PER_TURN, add_client, &line);
    gathering->more = gathering->after != 0;
}

static void run_clients(struct session_entry *session, size_t count, const struct slice *arguments)
{
    (void)count;
    (void)arguments;
    gather(session, collect_clients, finish_with_text, (struct slice){0});
}

static void add_lane(void *context, struct lane *lane)
{
    const struct line_context *line = context;
    const struct profile *profile = lane_profile(lane);

    evbuffer_add_printf(line->text,
                        "id=%" PRIu64 " worker=%zu use=%s state=%s user=%s db=%" PRId64 " resp=%d pending=%" PRIu64
                        " obuf=%zu idle=%" PRId64 " failures=%u\n",
                        lane->id, line->worker, lane_use_name(lane->use), lane_state_name(lane->state),
                        profile_user(profile), profile->database, profile->resp, lane->requests_waiting,
                        buffer_length(&lane->output), (line->now_us - lane->used_us) / 1000000, lane->failures);
}

static void collect_lanes(struct gathering *gathering, struct worker *worker)
{
    struct line_context line = {.text = gathering->text, .worker = worker_index(worker), .now_us = clock_now_us()};

    upstream_visit_lanes(worker_upstream(worker), add_lane, &line);
}

static void run_lanes(struct session_entry *session, size_t count, const struct slice *arguments)
{
    (void)count;
    (void)arguments;
    gather(session, collect_lanes, finish_with_text, (struct slice){0});
}

/* ---- STATS ---- */

static void collect_facts(struct gathering *gathering, struct worker *worker)
{
    struct worker_facts facts = worker_tell(worker);

    if (facts.redis_version > gathering->facts.redis_version) {
        gathering->facts = facts;
    }
}

static uint64_t resident_bytes(void)
{
    unsigned long long size = 0, resident = 0;
    FILE *file = fopen("/proc/self/statm", "re");

    if (file != NULL) {
        if (fscanf(file, "%llu %llu", &size, &resident) != 2) {
            resident = 0;
        }
        fclose(file);
    }
    return resident * (uint64_t)sysconf(_SC_PAGESIZE);
}

static bool section_wanted(const struct gathering *gathering, const char *section)
{
    return gathering->section == NULL || strcasecmp(gathering->section, section) == 0;
}

static void begin_section(struct evbuffer *text, const char *section)
{
    evbuffer_add_printf(text, "%s# %s\r\n", evbuffer_get_length(text) > 0 ? "\r\n" : "", section);
}

static void add_server_section(struct gathering *gathering)
{
    const struct admin *admin = gathering->session->admin;
    const struct conf *conf = admin->host.conf(admin->host.context);
    const struct worker_facts *facts = &gathering->facts;
    struct evbuffer *text = gathering->text;

    begin_section(text, "Server");
    evbuffer_add_printf(text, "headgate_version:%s\r\n", HEADGATE_VERSION);
    evbuffer_add_printf(text, "process_id:%ld\r\n", (long)getpid());
    evbuffer_add_printf(text, "uptime_in_seconds:%" PRId64 "\r\n", (clock_now_us() - admin->started_us) / 1000000);
    evbuffer_add_printf(text, "threads:%zu\r\n", admin->crew->count);
    evbuffer_add_printf(text, "pool:%s\r\n", conf->pool == CONF_POOL_SESSION ? "session" : "shared");
    evbuffer_add_printf(text, "config_file:%s\r\n", conf->path);
    evbuffer_add_printf(text, "upstream:%s\r\n", conf->upstream.text);
    if (facts->redis_version != 0) {
        evbuffer_add_printf(text, "redis_version:%u.%u.%u\r\n", facts->redis_version >> 16,
                            facts->redis_version >> 8 & 0xff, facts->redis_version & 0xff);
    }
    if (facts->clock_offset_us != INT64_MIN && facts->redis_version != 0) {
        evbuffer_add_printf(text, "redis_clock_offset_us:%" PRId64 "\r\n", facts->clock_offset_us);
    }
}

static void add_counters(struct gathering *gathering)
{
    const struct crew *crew = gathering->session->admin->crew;
    const char *section = "";

    for (enum stats_id id = 0; id < STATS_COUNT; id++) {
        const struct stats_description *description = stats_describe(id);
        if (!section_wanted(gathering, description->section)) {
            continue;
        }
        if (strcmp(section, description->section) != 0) {
            section = description->section;
            begin_section(gathering->text, section);
            if (strcmp(section, "Memory") == 0) {
                evbuffer_add_printf(gathering->text, "resident_bytes:%" PRIu64 "\r\n", resident_bytes());
            }
        }
        evbuffer_add_printf(gathering->text, "%s:%" PRIu64 "\r\n", description->name, crew_stat(crew, id));
    }
}

static void add_policy_counters(struct gathering *gathering)
{
    const struct crew *crew = gathering->session->admin->crew;

    for (size_t i = 0; i < crew->policies.count; i++) {
        const struct policy *policy = crew->policies.list[i];
        if (policy->counter_count == 0 || !section_wanted(gathering, policy->counter_section)) {
            continue;
        }
        begin_section(gathering->text, policy->counter_section);
        for (size_t n = 0; n < policy->counter_count; n++) {
            evbuffer_add_printf(gathering->text, "%s:%" PRIu64 "\r\n", policy->counters[n].name,
                                crew_policy_counter(crew, i, n));
        }
    }
}

static void finish_stats(struct gathering *gathering)
{
    if (section_wanted(gathering, "Server")) {
        add_server_section(gathering);
    }
    add_counters(gathering);
    add_policy_counters(gathering);
    if (evbuffer_get_length(gathering->text) == 0) {
        reply_error(gathering->session, "ERR no section of that name; see STATS");
        return;
    }
    reply_evbuffer(gathering->session, gathering->text);
}

static void run_stats(struct session_entry *session, size_t count, const struct slice *arguments)
{
    gather(session, collect_facts, finish_stats, count > 1 ? arguments[1] : (struct slice){0});
}

/* ---- the other verbs ---- */

static bool slice_is(struct slice slice, const char *word)
{
    return slice.length == strlen(word) && strncasecmp(slice.data, word, slice.length) == 0;
}

static void run_ping(struct session_entry *session, size_t count, const struct slice *arguments)
{
    if (count > 1) {
        reply_text(session, arguments[1].data, arguments[1].length);
    } else {
        reply_status(session, "PONG");
    }
}

static void add_counter_help(struct evbuffer *text, const struct slice *wanted, const char *name, enum stats_kind kind,
                             const char *help)
{
    if (slice_is(*wanted, "counters") || slice_is(*wanted, name)) {
        evbuffer_add_printf(text, "%s (%s): %s\n", name, kind == STATS_GAUGE ? "gauge" : "counter", help);
    }
}

static void add_counters_help(struct evbuffer *text, const struct crew *crew, const struct slice *wanted)
{
    for (enum stats_id id = 0; id < STATS_COUNT; id++) {
        const struct stats_description *description = stats_describe(id);
        add_counter_help(text, wanted, description->name, description->kind, description->help);
    }
    for (size_t i = 0; i < crew->policies.count; i++) {
        for (size_t n = 0; n < crew->policies.list[i]->counter_count; n++) {
            const struct policy_counter *counter = &crew->policies.list[i]->counters[n];
            add_counter_help(text, wanted, counter->name, counter->kind, counter->help);
        }
    }
}

static void run_help(struct session_entry *session, size_t count, const struct slice *arguments)
{
    struct evbuffer *text = evbuffer_new();

    for (const struct verb *verb = verbs; verb->name != NULL; verb++) {
        if (count == 1 || slice_is(arguments[1], verb->name)) {
            evbuffer_add_printf(text, "%-16s %s\n", verb->usage, verb->help);
        }
    }
    if (count > 1) {
        add_counters_help(text, session->admin->crew, &arguments[1]);
    }
    if (evbuffer_get_length(text) == 0) {
        reply_error(session, "ERR no verb or counter of that name; see HELP and HELP COUNTERS");
    } else {
        reply_evbuffer(session, text);
    }
    evbuffer_free(text);
}

static void run_config(struct session_entry *session, size_t count, const struct slice *arguments)
{
    const struct admin_host *host = &session->admin->host;
    char *text = NULL;
    size_t length = 0;
    FILE *memory = open_memstream(&text, &length);

    (void)count;
    (void)arguments;
    if (memory == NULL) {
        reply_error(session, "ERR out of memory");
        return;
    }
    conf_print(host->conf(host->context), memory, false);
    fclose(memory);
    reply_text(session, text, length);
    free(text);
}

static void run_version(struct session_entry *session, size_t count, const struct slice *arguments)
{
    (void)count;
    (void)arguments;
    reply_text(session, HEADGATE_VERSION, strlen(HEADGATE_VERSION));
}

/* An error reply is one line, so the faults of a file are joined. */
static void reply_faults(struct session_entry *session, char *faults)
{
    struct evbuffer *output = bufferevent_get_output(session->stream);

    for (char *c = faults; *c != '\0'; c++) {
        if (*c == '\r' || *c == '\n') {
            *c = c[1] != '\0' ? ';' : ' ';
        }
    }
    evbuffer_add_printf(output, "-ERR nothing was changed: %s\r\n", faults);
}

static void run_reload(struct session_entry *session, size_t count, const struct slice *arguments)
{
    const struct admin_host *host = &session->admin->host;
    char *faults = host->reload(host->context);

    (void)count;
    (void)arguments;
    if (faults == NULL) {
        reply_status(session, "OK");
    } else {
        reply_faults(session, faults);
        free(faults);
    }
}

static void run_shutdown(struct session_entry *session, size_t count, const struct slice *arguments)
{
    const struct admin_host *host = &session->admin->host;

    if (count > 1 && !slice_is(arguments[1], "now")) {
        reply_error(session, "ERR usage: SHUTDOWN [NOW]");
        return;
    }
    log_info("admin", "SHUTDOWN was asked for on the admin port");
    reply_status(session, "OK");
    host->shut_down(host->context, count > 1);
}

static bool same_password(struct slice given, const char *wanted)
{
    size_t length = strlen(wanted);
    unsigned char difference = given.length == length ? 0 : 1;

    /* Takes the same time wherever the first difference is. */
    for (size_t i = 0; i < given.length; i++) {
        difference |= (unsigned char)(given.data[i] ^ wanted[length > 0 ? i % length : 0]);
    }
    return difference == 0;
}

static void run_auth(struct session_entry *session, size_t count, const struct slice *arguments)
{
    const struct admin_host *host = &session->admin->host;
    const char *password = host->conf(host->context)->admin_password;

    if (password[0] == '\0') {
        reply_error(session, "ERR the admin port has no password: admin_password is not set");
    } else if (!same_password(arguments[count - 1], password)) {
        reply_error(session, "WRONGPASS invalid password for the admin port");
    } else {
        session->authenticated = true;
        reply_status(session, "OK");
    }
}

static void run_quit(struct session_entry *session, size_t count, const struct slice *arguments)
{
    (void)count;
    (void)arguments;
    reply_status(session, "OK");
    session->last = true;
}

/* redis-cli asks for it when it starts; an empty list is an answer to its liking. */
static void run_command(struct session_entry *session, size_t count, const struct slice *arguments)
{
    (void)count;
    (void)arguments;
    evbuffer_add(bufferevent_get_output(session->stream), "*0\r\n", 4);
}

static const struct verb verbs[VERB_COUNT + 1] = {
    {"PING", 1, 2, run_ping, "PING [text]", "answers PONG, or the text"},
    {"HELP", 1, 2, run_help, "HELP [name]", "the verbs; HELP COUNTERS explains all counters, HELP name one of them"},
    {"STATS", 1, 2, run_stats, "STATS [section]", "counters and gauges, as key:value under # Section"},
    {"INFO", 1, 2, run_stats, "INFO [section]", "the same as STATS; redis-cli prints the answer to this name as text"},
    {"CLIENTS", 1, 1, run_clients, "CLIENTS", "one line for each client"},
    {"LANES", 1, 1, run_lanes, "LANES", "one line for each connection to Redis"},
    {"CONFIG", 1, 1, run_config, "CONFIG", "the configuration in force, without passwords"},
    {"RELOAD", 1, 1, run_reload, "RELOAD", "reads the configuration file again, like SIGHUP"},
    {"VERSION", 1, 1, run_version, "VERSION", "the version of Headgate"},
    {"SHUTDOWN", 1, 2, run_shutdown, "SHUTDOWN [NOW]", "ends Headgate: drained, or at once"},
    {"AUTH", 2, 3, run_auth, "AUTH password", "needed first if admin_password is set"},
    {"QUIT", 1, 1, run_quit, "QUIT", "closes this connection"},
    {"COMMAND", 1, ARGUMENTS_MAX, run_command, "COMMAND", "an empty list, for redis-cli"},
    {NULL, 0, 0, NULL, NULL, NULL},
};

/* ---- requests ---- */

static void run_verb(struct session_entry *session, size_t count, const struct slice *arguments)
{
    const struct admin_host *host = &session->admin->host;
    const struct verb *verb = verbs;
    char text[160];

    while (verb->name != NULL && !slice_is(arguments[0], verb->name)) {
        verb++;
    }
    bool open = session->authenticated || host->conf(host->context)->admin_password[0] == '\0';
    if (!open && verb->run != run_auth && verb->run != run_quit) {
        reply_error(session, "NOAUTH Authentication required.");
    } else if (verb->name == NULL) {
        snprintf(text, sizeof text, "ERR unknown verb '%.*s'; HELP lists them",
                 (int)(arguments[0].length > 64 ? 64 : arguments[0].length), arguments[0].data);
        for (char *c = text; *c != '\0'; c++) {
            *c = *c < ' ' ? ' ' : *c;
        }
        reply_error(session, text);
    } else if (count < verb->least || count > verb->most) {
        snprintf(text, sizeof text, "ERR usage: %s", verb->usage);
        reply_error(session, text);
    } else {
        verb->run(session, count, arguments);
    }
}

/* frame: a whole multibulk command. */
static void run_multibulk(struct session_entry *session, struct slice frame)
{
    struct slice arguments[ARGUMENTS_MAX + 1];
    struct resp_walk walk = resp_walk_start(frame);
    size_t count = 0;

    while (count <= ARGUMENTS_MAX && resp_walk_next(&walk, &arguments[count])) {
        count++;
    }
    if (count > ARGUMENTS_MAX) {
        reply_error(session, "ERR too many arguments; HELP lists the verbs");
    } else if (count > 0) {
        run_verb(session, count, arguments);
    }
}

static void run_inline(struct session_entry *session, struct slice line)
{
    size_t needed = resp_inline_to_multibulk(line, NULL, 0);

    if (needed == SIZE_MAX) {
        reply_error(session, "ERR Protocol error: unbalanced quotes in request");
        session->last = true;
        return;
    }
    char *frame = needed > 0 ? malloc(needed) : NULL;
    if (frame != NULL) {
        (void)resp_inline_to_multibulk(line, frame, needed);
        run_multibulk(session, (struct slice){frame, needed});
        free(frame);
    }
}

/* Takes one request out of the input. False when there is none, or when nothing more is to be taken now. */
static bool request_take(struct session_entry *session)
{
    struct evbuffer *input = bufferevent_get_input(session->stream);
    size_t length = evbuffer_get_length(input);
    size_t scanned = (size_t)session->command.size;
    size_t taken;
    char fault[160];

    if (length == scanned) {
        return false;
    }
    const char *data = (const char *)evbuffer_pullup(input, -1);
    enum resp_status status =
        resp_command_feed(&session->command, data + scanned, length - scanned, REQUEST_MAX, &taken);
    if (status == RESP_FAULT || session->command.size > REQUEST_MAX) {
        size_t size = resp_command_fault_text(&session->command, fault, sizeof fault);
        if (status == RESP_FAULT) {
            evbuffer_add(bufferevent_get_output(session->stream), fault, size);
        } else {
            reply_error(session, "ERR Protocol error: request too long for the admin port");
        }
        session->last = true;
        return false;
    }
    if (status == RESP_MORE) {
        return false;
    }
    struct slice frame = {data, (size_t)session->command.size};
    bool is_inline = resp_command_is_inline(&session->command);
    bool empty = session->command.argument_count == 0;
    resp_command_reset(&session->command);
    if (!empty) {
        (is_inline ? run_inline : run_multibulk)(session, frame);
    }
    evbuffer_drain(input, frame.length);
    return !session->gathering && !session->last;
}

static void requests_take(struct session_entry *session)
{
    struct evbuffer *output = bufferevent_get_output(session->stream);

    while (evbuffer_get_length(output) < OUTPUT_MARK && request_take(session)) {
    }
    if (session->last) {
        bufferevent_disable(session->stream, EV_READ);
        if (evbuffer_get_length(output) == 0) {
            session_close(session);
        }
    }
}

static void on_read(struct bufferevent *stream, void *context)
{
    struct session_entry *session = context;

    (void)stream;
    if (!session->gathering && !session->last) {
        requests_take(session);
    }
}

static void on_written(struct bufferevent *stream, void *context)
{
    struct session_entry *session = context;

    (void)stream;
    if (session->last) {
        session_close(session);
    } else if (!session->gathering) {
        requests_take(session);
    }
}

static void on_event(struct bufferevent *stream, short what, void *context)
{
    (void)stream;
    if ((what & (BEV_EVENT_EOF | BEV_EVENT_ERROR)) != 0) {
        session_close(context);
    }
}

/* ---- listening ---- */

static void on_connection(struct evconnlistener *listener, evutil_socket_t fd, struct sockaddr *address, int length,
                          void *context)
{
    struct admin *admin = context;
    struct session_entry *session = admin->session_count < SESSIONS_MAX ? calloc(1, sizeof *session) : NULL;
    struct bufferevent *stream =
        session != NULL ? bufferevent_socket_new(admin->reactor->base, fd, BEV_OPT_CLOSE_ON_FREE) : NULL;

    (void)listener;
    (void)address;
    (void)length;
    if (stream == NULL) {
        log_warning("admin", "refused a connection: %d are open", SESSIONS_MAX);
        free(session);
        close(fd);
        return;
    }
    session->admin = admin;
    session->stream = stream;
    session->next = admin->sessions;
    admin->sessions = session;
    admin->session_count++;
    bufferevent_setwatermark(stream, EV_READ, 0, REQUEST_MAX * 2);
    bufferevent_setcb(stream, on_read, on_written, on_event, session);
    bufferevent_enable(stream, EV_READ | EV_WRITE);
}

/* Descriptors have run out. Without a pause, the kernel would report the same connection again and again. */
static void on_accept_error(struct evconnlistener *listener, void *context)
{
    const struct timeval rest = {.tv_usec = REST_US};
    struct admin *admin = context;

    (void)listener;
    for (size_t i = 0; i < admin->listener_count; i++) {
        evconnlistener_disable(admin->listeners[i]);
    }
    event_add(&admin->rest, &rest);
}

static void on_rested(evutil_socket_t fd, short what, void *context)
{
    struct admin *admin = context;

    (void)fd;
    (void)what;
    for (size_t i = 0; i < admin->listener_count; i++) {
        evconnlistener_enable(admin->listeners[i]);
    }
}

static bool open_address(struct admin *admin, const struct conf_address *address)
{
    struct connection_target target;
    const char *why = NULL;
    int fd = -1;

    if (connection_resolve(address, &target, &why)) {
        fd = connection_listen(&target, 16, S_IRWXU);
        why = strerror(errno);
    }
    struct evconnlistener *listener =
        fd >= 0 ? evconnlistener_new(admin->reactor->base, on_connection, admin, LEV_OPT_CLOSE_ON_FREE, 0, fd) : NULL;
    if (listener == NULL) {
        log_error("admin", "cannot listen on %s: %s", address->text, why);
        return false;
    }
    evconnlistener_set_error_cb(listener, on_accept_error);
    admin->unix_paths[admin->listener_count] = address->path != NULL ? strdup(address->path) : NULL;
    admin->listeners[admin->listener_count++] = listener;
    return true;
}

struct admin *admin_open(struct reactor *reactor, struct crew *crew, const struct conf *conf,
                         const struct admin_host *host)
{
    struct admin *admin = calloc(1, sizeof *admin);
    bool opened = true;

    if (admin == NULL) {
        return NULL;
    }
    admin->reactor = reactor;
    admin->crew = crew;
    admin->host = *host;
    admin->started_us = clock_now_us();
    evtimer_assign(&admin->rest, reactor->base, on_rested, admin);
    if (!mailbox_open(&admin->mailbox, reactor)) {
        log_error("admin", "cannot open the mailbox: %s", strerror(errno));
        free(admin);
        return NULL;
    }
    for (size_t i = 0; i < conf->admin.count; i++) {
        opened = open_address(admin, &conf->admin.items[i]) && opened;
    }
    if (!opened) {
        admin_close(admin);
        return NULL;
    }
    return admin;
}

void admin_close(struct admin *admin)
{
    event_del(&admin->rest);
    while (admin->listener_count > 0) {
        evconnlistener_free(admin->listeners[--admin->listener_count]);
        if (admin->unix_paths[admin->listener_count] != NULL) {
            unlink(admin->unix_paths[admin->listener_count]);
            free(admin->unix_paths[admin->listener_count]);
        }
    }
    while (admin->sessions != NULL) {
        struct session_entry *session = admin->sessions;
        if (session->closed) {
            session_free(session);
        } else {
            session->gathering = false;
            session_close(session);
        }
    }
    mailbox_close(&admin->mailbox);
    free(admin);
}
