/* Verbs of policies: an admin query travels to a worker, and its answer comes back, at once or later. */
#include "admin/admin_private.h"

#include <stdlib.h>

/* What there is room for in an error. Bytes. */
#define ERROR_MAX 300

/* An admin query under way. It belongs to the worker from ask_policy() on, and to the admin port again when it is
 * answered, which it always is. */
struct asking {
    struct message message;
    struct session_entry *session;
    struct client_admin_query admin_query;
    enum policy_answer kind;
    struct admin_text answer; /* of the server that is asked now */
    struct admin_text all;    /* of several, so far */
    size_t server;
    bool has_answer;                             /* one that is no error */
    struct slice arguments[ADMIN_ARGUMENTS_MAX]; /* within memory */
    char memory[];
};

static void asking_free(struct asking *asking)
{
    admin_text_close(&asking->answer);
    admin_text_close(&asking->all);
    free(asking);
}

static void reply_error(struct session_entry *session, struct evbuffer *text)
{
    char line[ERROR_MAX] = "ERR ";
    size_t start = strlen(line);
    ssize_t length = evbuffer_copyout(text, line + start, sizeof line - start - 1);

    line[start + (length > 0 ? (size_t)length : 0)] = '\0';
    admin_reply_error(session, line);
}

static void reply_answer(struct asking *asking)
{
    if (asking->kind == POLICY_ANSWER_TEXT || asking->answer.is_lost) {
        admin_reply_lines(asking->session, &asking->answer);
    } else if (asking->kind == POLICY_ANSWER_OK) {
        admin_reply_status(asking->session, "OK");
    } else {
        reply_error(asking->session, asking->answer.bytes);
    }
}

static void end(struct asking *asking)
{
    struct session_entry *session = asking->session;

    if (!session->closed) {
        reply_answer(asking);
    }
    asking_free(asking);
    admin_session_resume(session);
}

static const struct server *server_of(const struct asking *asking)
{
    return &asking->session->admin->servers->list[asking->server];
}

/* Of several servers each line says of which one it is. */
static void add_lines(struct asking *asking)
{
    struct evbuffer *bytes = asking->answer.bytes;
    size_t length = 0;
    char *line;

    while ((line = evbuffer_readln(bytes, &length, EVBUFFER_EOL_LF)) != NULL) {
        admin_text_add(&asking->all, "server=%s %s\n", server_of(asking)->name, line);
        free(line);
    }
    length = evbuffer_get_length(bytes);
    if (length > 0) {
        admin_text_add(&asking->all, "server=%s %.*s\n", server_of(asking)->name, (int)length,
                       (const char *)evbuffer_pullup(bytes, -1));
        (void)evbuffer_drain(bytes, length);
    }
}

static void go_on(struct asking *asking);

/* The answer of all, in place of that of the last one. */
static void end_with_all(struct asking *asking)
{
    struct admin_text last = asking->answer;

    asking->answer = asking->all;
    asking->all = last;
    asking->kind = POLICY_ANSWER_TEXT;
    end(asking);
}

static void forget_answer(struct asking *asking)
{
    (void)evbuffer_drain(asking->answer.bytes, evbuffer_get_length(asking->answer.bytes));
}

/* Of several servers. What one of them does not know, another may: an error is told if it is that of all. */
static void take_answer(struct asking *asking)
{
    asking->all.is_lost = asking->all.is_lost || asking->answer.is_lost;
    if (asking->kind != POLICY_ANSWER_ERROR) {
        asking->has_answer = true;
        add_lines(asking);
    }
}

static void end_on_main(struct message *message)
{
    struct asking *asking = (struct asking *)(void *)message;
    const struct session_entry *session = asking->session;
    bool is_last = asking->server + 1 == session->scope.end;

    if (!admin_names_servers(session)) {
        end(asking);
        return;
    }
    take_answer(asking);
    if (is_last && asking->has_answer) {
        end_with_all(asking);
    } else if (is_last || session->closed) {
        end(asking);
    } else if (session->admin->ending) {
        forget_answer(asking);
        admin_text_add(&asking->answer, "the process is ending");
        asking->kind = POLICY_ANSWER_ERROR;
        end(asking);
    } else {
        forget_answer(asking);
        asking->server++;
        go_on(asking);
    }
}

/* On the worker's thread. */
static void answered(void *context, enum policy_answer kind, struct slice text)
{
    struct asking *asking = context;

    asking->kind = kind;
    asking->answer.is_lost = text.length > 0 && evbuffer_add(asking->answer.bytes, text.data, text.length) != 0;
    asking->message.run = end_on_main;
    mailbox_post(&asking->session->admin->mailbox, &asking->message);
}

/* What concerns all workers, the policy finds in what its instances share. */
static struct worker *first_worker(const struct asking *asking)
{
    return server_of(asking)->worker_pool.workers[0];
}

static void ask_on_worker(struct message *message)
{
    struct asking *asking = (struct asking *)(void *)message;

    client_service_ask_policy(worker_clients(first_worker(asking)), &asking->admin_query);
}

static void go_on(struct asking *asking)
{
    asking->message.run = ask_on_worker;
    worker_post(first_worker(asking), &asking->message);
}

static void keep_arguments(struct asking *asking, size_t count, const struct slice *arguments)
{
    char *place = asking->memory;

    for (size_t i = 0; i < count; i++) {
        memcpy(place, arguments[i].data, arguments[i].length);
        asking->arguments[i] = (struct slice){place, arguments[i].length};
        place += arguments[i].length;
    }
}

/* NULL when memory is short. */
static struct asking *asking_new(struct session_entry *session, size_t count, const struct slice *arguments)
{
    size_t size = 0;

    for (size_t i = 0; i < count; i++) {
        size += arguments[i].length;
    }
    struct asking *asking = calloc(1, sizeof *asking + size);
    if (asking == NULL) {
        return NULL;
    }
    if (!admin_text_open(&asking->answer) || !admin_text_open(&asking->all)) {
        asking_free(asking);
        return NULL;
    }
    asking->session = session;
    asking->server = session->scope.first;
    keep_arguments(asking, count, arguments);
    return asking;
}

void admin_ask_policy(struct session_entry *session, size_t policy, const struct policy_verb *verb, size_t count,
                      const struct slice *arguments)
{
    struct asking *asking = asking_new(session, count, arguments);

    if (asking == NULL) {
        admin_reply_error(session, "ERR out of memory");
        return;
    }
    asking->admin_query = (struct client_admin_query){
        .policy = policy,
        .verb = verb,
        .count = count,
        .arguments = asking->arguments,
        .answered = answered,
        .context = asking,
    };
    if (admin_session_hold(session)) {
        go_on(asking);
    } else {
        asking_free(asking);
    }
}
