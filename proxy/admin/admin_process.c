/* What the admin port is asked of the process: its version, its end; and who asks. */
#include "admin/admin_private.h"

#include "conf/conf_table.h"
#include "version.h"

#include <stdlib.h>

void admin_process_version(struct session_entry *session, size_t count, const struct slice *arguments)
{
    (void)count;
    (void)arguments;
    admin_reply_text(session, HEADGATE_VERSION, strlen(HEADGATE_VERSION));
}

void admin_process_shutdown(struct session_entry *session, size_t count, const struct slice *arguments)
{
    const struct admin_host *host = &session->admin->host;

    if (count > 1 && !slice_is_word(arguments[1], "now")) {
        admin_reply_error(session, "ERR usage: SHUTDOWN [NOW]");
        return;
    }
    admin_reply_status(session, "OK");
    host->shut_down(host->context, count > 1);
}

/* The session may have been closed meanwhile, but is still there. */
static void end_upgrade(void *context, const char *why)
{
    struct session_entry *session = context;

    if (session->closed) {
        admin_audit_end(session, why == NULL ? "done" : "failed");
    } else if (why == NULL) {
        admin_reply_status(session, "OK");
    } else {
        char *text = conf_format("%s", why);
        admin_reply_faults(session, text);
        free(text);
    }
    admin_session_resume(session);
}

void admin_process_upgrade(struct session_entry *session, size_t count, const struct slice *arguments)
{
    const struct admin_host *host = &session->admin->host;

    (void)count;
    (void)arguments;
    char *why = host->upgrade(host->context, end_upgrade, session);
    if (why != NULL) {
        admin_reply_faults(session, why);
        free(why);
    } else {
        admin_session_pause(session);
    }
}

void admin_process_auth(struct session_entry *session, size_t count, const struct slice *arguments)
{
    const struct admin_host *host = &session->admin->host;

    if (host->conf(host->context)->admin_password[0] == '\0') {
        admin_reply_error(session, "ERR the admin port has no password: admin_password is not set");
    } else if (!admin_guard_login(session, arguments[count - 1])) {
        admin_reply_error(session, "WRONGPASS invalid password for the admin port");
    } else {
        admin_reply_status(session, "OK");
    }
}

void admin_process_quit(struct session_entry *session, size_t count, const struct slice *arguments)
{
    (void)count;
    (void)arguments;
    admin_reply_status(session, "OK");
    session->last = true;
}
