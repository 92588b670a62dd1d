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
    struct admin_text answer;
    struct slice arguments[ADMIN_ARGUMENTS_MAX]; /* within memory */
    char memory[];
};

static void asking_free(struct asking *asking)
{
    admin_text_close(&asking->answer);
    free(asking);
}

/* An error is one line. */
static void reply_error(struct session_entry *session, struct evbuffer *text)
{
    char line[ERROR_MAX] = "ERR ";
    size_t start = strlen(line);
    ssize_t length = evbuffer_copyout(text, line + start, sizeof line - start - 1);

    line[start + (length > 0 ? (size_t)length : 0)] = '\0';
    for (char *c = line; *c != '\0'; c++) {
        *c = *c == '\r' || *c == '\n' ? ' ' : *c;
    }
    admin_reply_error(session, line);
}

static void reply_answer(struct asking *asking)
{
    if (asking->kind == POLICY_ANSWER_TEXT || asking->answer.is_lost) {
        admin_reply_gathered(asking->session, &asking->answer);
    } else if (asking->kind == POLICY_ANSWER_OK) {
        admin_reply_status(asking->session, "OK");
    } else {
        reply_error(asking->session, asking->answer.bytes);
    }
}

static void end_on_main(struct message *message)
{
    struct asking *asking = (struct asking *)(void *)message;
    struct session_entry *session = asking->session;

    if (!session->closed) {
        reply_answer(asking);
    }
    asking_free(asking);
    admin_session_resume(session);
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
    return asking->session->admin->worker_pool->workers[0];
}

static void ask_on_worker(struct message *message)
{
    struct asking *asking = (struct asking *)(void *)message;

    client_service_ask_policy(worker_clients(first_worker(asking)), &asking->admin_query);
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
    if (!admin_text_open(&asking->answer)) {
        free(asking);
        return NULL;
    }
    asking->session = session;
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
    asking->message.run = ask_on_worker;
    admin_session_pause(session);
    worker_post(first_worker(asking), &asking->message);
}
