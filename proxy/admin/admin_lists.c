/*
 * CLIENTS, LANES and KILL: lines about clients and connections, and the end of clients, of those that filters choose. A
 * table for each says what a line has, and by that what a filter may name. Filters are looked at on the workers.
 */
#include "admin/admin_gathering.h"

#include "conf/filter.h"
#include "resp/word.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

/* Clients that a worker looks at in one loop iteration. */
#define CLIENTS_PER_TURN 256
/* Bytes of a line that a filter is named in. */
#define SHOWN_MAX 200

/* ---- what a line has ---- */

/* Of a client or a lane: what is not told by itself. */
struct place {
    const char *server;
    int64_t worker;
    int64_t now_us;
};

struct client_line {
    const struct client_report *report;
    const struct place *place;
};

struct lane_line {
    const struct lane *lane;
    const struct place *place;
};

static struct filter_value text(const char *value)
{
    return (struct filter_value){.text = value};
}

static struct filter_value number(int64_t value)
{
    return (struct filter_value){.number = value};
}

#define CLIENT_FIELDS(X)                                                                                               \
    X("server", FILTER_TEXT, text(line->place->server))                                                                \
    X("id", FILTER_NUMBER, number((int64_t)line->report->id))                                                          \
    X("addr", FILTER_ADDRESS,                                                                                          \
      ((struct filter_value){.text = line->report->address, .address = line->report->peer_address}))                   \
    X("worker", FILTER_NUMBER, number(line->place->worker))                                                            \
    X("name", FILTER_TEXT, text(line->report->name))                                                                   \
    X("user", FILTER_TEXT, text(line->report->user))                                                                   \
    X("identity", FILTER_TEXT, text(line->report->identity))                                                           \
    X("db", FILTER_NUMBER, number(line->report->database))                                                             \
    X("resp", FILTER_NUMBER, number(line->report->resp))                                                               \
    X("age", FILTER_NUMBER, number(line->report->age_us / 1000000))                                                    \
    X("idle", FILTER_NUMBER, number(line->report->idle_us / 1000000))                                                  \
    X("lane", FILTER_TEXT, text(line->report->lane))                                                                   \
    X("pending", FILTER_NUMBER, number(line->report->in_flight))                                                       \
    X("qbuf", FILTER_NUMBER, number((int64_t)line->report->input_bytes))                                               \
    X("obuf", FILTER_NUMBER, number((int64_t)line->report->output_bytes))

#define LANE_FIELDS(X)                                                                                                 \
    X("server", FILTER_TEXT, text(line->place->server))                                                                \
    X("id", FILTER_NUMBER, number((int64_t)line->lane->id))                                                            \
    X("worker", FILTER_NUMBER, number(line->place->worker))                                                            \
    X("use", FILTER_TEXT, text(lane_use_name(line->lane->use)))                                                        \
    X("state", FILTER_TEXT, text(lane_state_name(line->lane->state)))                                                  \
    X("user", FILTER_TEXT, text(profile_user(lane_profile(line->lane))))                                               \
    X("db", FILTER_NUMBER, number(lane_profile(line->lane)->database))                                                 \
    X("resp", FILTER_NUMBER, number(lane_profile(line->lane)->resp))                                                   \
    X("pending", FILTER_NUMBER, number((int64_t)line->lane->requests_waiting))                                         \
    X("obuf", FILTER_NUMBER, number((int64_t)buffer_length(&line->lane->output)))                                      \
    X("idle", FILTER_NUMBER, number((line->place->now_us - line->lane->used_us) / 1000000))                            \
    X("failures", FILTER_NUMBER, number(line->lane->failures))                                                         \
    X("to", FILTER_TEXT, text(line->lane->settings->target_text))

#define FIELD(name, kind, value) {name, kind},
static const struct filter_field client_fields[] = {CLIENT_FIELDS(FIELD)};
static const struct filter_field lane_fields[] = {LANE_FIELDS(FIELD)};
#undef FIELD

#define VALUE(name, kind, value)                                                                                       \
    if (field == n++) {                                                                                                \
        return value;                                                                                                  \
    }

static struct filter_value client_value(const void *subject, size_t field)
{
    const struct client_line *line = subject;
    size_t n = 0;

    CLIENT_FIELDS(VALUE)
    return text("");
}

static struct filter_value lane_value(const void *subject, size_t field)
{
    const struct lane_line *line = subject;
    size_t n = 0;

    LANE_FIELDS(VALUE)
    return text("");
}

#undef VALUE

struct list {
    const struct filter_field *fields;
    size_t field_count;
    filter_value_of *value;
};

static const struct list clients_list = {client_fields, sizeof client_fields / sizeof client_fields[0], client_value};
static const struct list lanes_list = {lane_fields, sizeof lane_fields / sizeof lane_fields[0], lane_value};

/* Clients choose names: a quote at the head of one would have the fields behind it read as its text. */
static void add_text(struct admin_text *out, const char *value)
{
    size_t plain = strcspn(value, "\" \r\n");

    for (; value[plain] != '\0'; value += plain + 1, plain = strcspn(value, "\" \r\n")) {
        admin_text_add(out, "%.*s\\x%02x", (int)plain, value, (unsigned char)value[plain]);
    }
    admin_text_add(out, "%s", value);
}

/* The server, which comes first, is shown where there are several. */
static void add_line(struct admin_text *out, const struct list *list, const void *subject, bool with_server)
{
    for (size_t i = with_server ? 0 : 1; i < list->field_count; i++) {
        struct filter_value value = list->value(subject, i);
        const char *separator = i + 1 < list->field_count ? " " : "\n";
        if (list->fields[i].kind == FILTER_NUMBER) {
            admin_text_add(out, "%s=%" PRId64 "%s", list->fields[i].name, value.number, separator);
        } else {
            admin_text_add(out, "%s=", list->fields[i].name);
            add_text(out, value.text);
            admin_text_add(out, "%s", separator);
        }
    }
}

/* ---- what is asked ---- */

/* What a gathering is for. */
struct asked {
    const struct list *list;
    struct filter filter;
    struct place place; /* that is looked at */
    uint64_t left;      /* so many more at most */
    uint64_t killed;
    bool all;              /* KILL ALL */
    char shown[SHOWN_MAX]; /* the words, for the log */
};

/* COUNT and its number, at *at. */
static bool read_count(struct asked *asked, size_t count, const struct slice *words, size_t *at)
{
    int64_t most;

    if (!word_is(words[*at], "count") || *at + 1 >= count || !word_integer(words[*at + 1], &most) || most < 1) {
        return false;
    }
    asked->left = (uint64_t)most;
    *at += 1;
    return true;
}

static void show_word(struct asked *asked, struct slice word)
{
    size_t length = strlen(asked->shown);
    size_t room = sizeof asked->shown - length;

    snprintf(asked->shown + length, room, " %.*s", (int)(word.length < room ? word.length : room), word.data);
}

static bool read_words(struct asked *asked, size_t count, const struct slice *words, bool kills,
                       char problem[FILTER_PROBLEM_MAX])
{
    bool is_sound = true;

    for (size_t i = 1; i < count && is_sound; i++) {
        show_word(asked, words[i]);
        if (filter_is_word(words[i])) {
            is_sound = filter_add(&asked->filter, asked->list->fields, asked->list->field_count, words[i], problem);
        } else if (kills && word_is(words[i], "all")) {
            asked->all = true;
        } else if (!read_count(asked, count, words, &i)) {
            snprintf(problem, FILTER_PROBLEM_MAX, "wants filters such as user=alice, and COUNT with a number; HELP %s",
                     kills ? "KILL" : "CLIENTS");
            is_sound = false;
        }
    }
    return is_sound;
}

/* NULL: the session is told why not. */
static struct asked *asked_new(struct session_entry *session, const struct list *list, size_t count,
                               const struct slice *words, bool kills)
{
    struct asked *asked = calloc(1, sizeof *asked);
    char problem[FILTER_PROBLEM_MAX], error[FILTER_PROBLEM_MAX + 8];

    if (asked == NULL) {
        admin_reply_error(session, "ERR out of memory");
        return NULL;
    }
    asked->list = list;
    asked->left = UINT64_MAX;
    if (!read_words(asked, count, words, kills, problem)) {
        snprintf(error, sizeof error, "ERR %s", problem);
        admin_reply_error(session, error);
        free(asked);
        return NULL;
    }
    return asked;
}

/* asked is the gathering's from here on. */
static void gather(struct session_entry *session, struct asked *asked,
                   void (*collect)(struct admin_gathering *, struct worker *), void (*finish)(struct admin_gathering *))
{
    struct admin_gathering *gathering = admin_gathering_new(session, collect, finish);

    if (gathering == NULL) {
        free(asked);
        return;
    }
    gathering->context = asked;
    admin_gathering_start(gathering);
}

static struct asked *begin_worker(struct admin_gathering *gathering, const struct worker *worker)
{
    struct asked *asked = gathering->context;

    asked->place = (struct place){
        .server = admin_gathering_server(gathering)->name,
        .worker = (int64_t)worker_index(worker),
        .now_us = clock_now_us(),
    };
    return asked;
}

static void take_line(struct admin_gathering *gathering, const void *subject)
{
    struct asked *asked = gathering->context;

    if (asked->left > 0 && filter_passes(&asked->filter, asked->list->fields, asked->list->value, subject)) {
        asked->left--;
        add_line(&gathering->text, asked->list, subject, admin_names_servers(gathering->session));
    }
}

static void finish_with_text(struct admin_gathering *gathering)
{
    admin_reply_lines(gathering->session, &gathering->text);
}

/* ---- CLIENTS and LANES ---- */

static void take_client(void *context, const struct client_report *report)
{
    struct admin_gathering *gathering = context;
    const struct asked *asked = gathering->context;
    const struct client_line line = {report, &asked->place};

    take_line(gathering, &line);
}

static void collect_clients(struct admin_gathering *gathering, struct worker *worker)
{
    const struct asked *asked = begin_worker(gathering, worker);

    gathering->after = client_visit(worker_clients(worker), gathering->after, CLIENTS_PER_TURN, take_client, gathering);
    gathering->more = gathering->after != 0;
    gathering->is_enough = asked->left == 0;
}

void admin_run_clients(struct session_entry *session, size_t count, const struct slice *arguments)
{
    struct asked *asked = asked_new(session, &clients_list, count, arguments, false);

    if (asked != NULL) {
        gather(session, asked, collect_clients, finish_with_text);
    }
}

static void take_lane(void *context, struct lane *lane)
{
    struct admin_gathering *gathering = context;
    const struct asked *asked = gathering->context;
    const struct lane_line line = {lane, &asked->place};

    take_line(gathering, &line);
}

static void collect_lanes(struct admin_gathering *gathering, struct worker *worker)
{
    const struct asked *asked = begin_worker(gathering, worker);

    worker_visit_lanes(worker, take_lane, gathering);
    gathering->is_enough = asked->left == 0;
}

void admin_run_lanes(struct session_entry *session, size_t count, const struct slice *arguments)
{
    struct asked *asked = asked_new(session, &lanes_list, count, arguments, false);

    if (asked != NULL) {
        gather(session, asked, collect_lanes, finish_with_text);
    }
}

/* ---- KILL ---- */

static bool is_meant(void *context, const struct client_report *report)
{
    struct asked *asked = context;
    const struct client_line line = {report, &asked->place};
    bool is_one = asked->left > 0 && filter_passes(&asked->filter, asked->list->fields, asked->list->value, &line);

    asked->left -= is_one;
    asked->killed += is_one;
    return is_one;
}

static void collect_kills(struct admin_gathering *gathering, struct worker *worker)
{
    struct asked *asked = begin_worker(gathering, worker);

    gathering->after = client_kill(worker_clients(worker), gathering->after, CLIENTS_PER_TURN, is_meant, asked);
    gathering->more = gathering->after != 0;
    gathering->is_enough = asked->left == 0;
}

static void finish_kills(struct admin_gathering *gathering)
{
    const struct asked *asked = gathering->context;
    char text_of_count[32];

    int length = snprintf(text_of_count, sizeof text_of_count, ":%" PRIu64 "\r\n", asked->killed);
    admin_reply_bytes(gathering->session, text_of_count, (size_t)length);
    log_info("admin", "%" PRIu64 " clients were closed by KILL%s of %s", asked->killed, asked->shown,
             gathering->session->address_text);
}

void admin_run_kill(struct session_entry *session, size_t count, const struct slice *arguments)
{
    struct asked *asked = asked_new(session, &clients_list, count, arguments, true);

    if (asked == NULL) {
        return;
    }
    if (asked->all == (asked->filter.count > 0)) {
        admin_reply_error(session, asked->all ? "ERR KILL ALL means all clients: no filters with it"
                                              : "ERR KILL wants filters such as user=alice, or ALL for all clients");
        free(asked);
    } else if (asked->all && admin_names_servers(session)) {
        admin_reply_error(session, "ERR there are several servers: SERVER name KILL ALL, as SERVERS lists them");
        free(asked);
    } else {
        gather(session, asked, collect_kills, finish_kills);
    }
}
