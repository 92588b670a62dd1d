#include "admin/admin_gathering.h"

#include <stdlib.h>

static void gathering_on_main(struct message *message);

const struct server *admin_gathering_server(const struct admin_gathering *gathering)
{
    return &gathering->session->admin->servers->list[gathering->server];
}

static struct worker *worker_of(const struct admin_gathering *gathering)
{
    return admin_gathering_server(gathering)->worker_pool.workers[gathering->worker];
}

static void gathering_on_worker(struct message *message)
{
    struct admin_gathering *gathering = (struct admin_gathering *)(void *)message;
    struct admin *admin = gathering->session->admin;

    gathering->more = false;
    gathering->collect(gathering, worker_of(gathering));
    message->run = gathering_on_main;
    mailbox_post(&admin->mailbox, message);
}

static void gathering_go_on(struct admin_gathering *gathering)
{
    gathering->message.run = gathering_on_worker;
    worker_post(worker_of(gathering), &gathering->message);
}

static void gathering_end(struct admin_gathering *gathering)
{
    struct session_entry *session = gathering->session;

    if (!session->closed) {
        gathering->finish(gathering);
    }
    admin_text_close(&gathering->text);
    free(gathering->context);
    free(gathering);
    admin_session_resume(session);
}

static void finish_ending(struct admin_gathering *gathering)
{
    admin_reply_error(gathering->session, "ERR the process is ending");
}

static void gathering_on_main(struct message *message)
{
    struct admin_gathering *gathering = (struct admin_gathering *)(void *)message;
    const struct admin *admin = gathering->session->admin;

    if (admin->ending) {
        /* The workers are gone. */
        gathering->finish = finish_ending;
        gathering_end(gathering);
        return;
    }
    if (!gathering->more) {
        gathering->worker++;
        gathering->after = 0;
    }
    if (gathering->worker == admin_gathering_server(gathering)->worker_pool.count) {
        gathering->worker = 0;
        gathering->server++;
    }
    bool is_due = gathering->server < gathering->session->scope.end && !gathering->is_enough;
    if (is_due && !gathering->session->closed) {
        gathering_go_on(gathering);
    } else {
        gathering_end(gathering);
    }
}

struct admin_gathering *admin_gathering_new(struct session_entry *session,
                                            void (*collect)(struct admin_gathering *, struct worker *),
                                            void (*finish)(struct admin_gathering *))
{
    struct admin_gathering *gathering = calloc(1, sizeof *gathering);

    if (gathering == NULL || !admin_text_open(&gathering->text)) {
        admin_reply_error(session, "ERR out of memory");
        free(gathering);
        return NULL;
    }
    gathering->session = session;
    gathering->server = session->scope.first;
    gathering->collect = collect;
    gathering->finish = finish;
    return gathering;
}

void admin_gathering_start(struct admin_gathering *gathering)
{
    admin_session_pause(gathering->session);
    gathering_go_on(gathering);
}
