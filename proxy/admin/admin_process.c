/* What the admin port is asked of the process: a reload, its version, its end; and who asks. */
#include "admin/admin_private.h"

#include "version.h"

#include <stdlib.h>

void admin_process_version(struct session_entry *session, size_t count, const struct slice *arguments)
{
    (void)count;
    (void)arguments;
    admin_reply_text(session, HEADGATE_VERSION, strlen(HEADGATE_VERSION));
}

void admin_process_reload(struct session_entry *session, size_t count, const struct slice *arguments)
{
    const struct admin_host *host = &session->admin->host;
    char *changes = NULL;

    if (count > 1 && !slice_is_word(arguments[1], "verbose")) {
        admin_reply_error(session, "ERR usage: RELOAD [VERBOSE]");
        return;
    }
    log_info("admin", "RELOAD was asked for on the admin port by %s", session->address_text);
    char *faults = host->reload(host->context, &changes);
    if (faults != NULL) {
        admin_reply_faults(session, faults);
    } else if (count > 1) {
        admin_reply_text(session, changes, strlen(changes));
    } else {
        admin_reply_status(session, "OK");
    }
    free(faults);
    free(changes);
}

void admin_process_shutdown(struct session_entry *session, size_t count, const struct slice *arguments)
{
    const struct admin_host *host = &session->admin->host;

    if (count > 1 && !slice_is_word(arguments[1], "now")) {
        admin_reply_error(session, "ERR usage: SHUTDOWN [NOW]");
        return;
    }
    log_info("admin", "SHUTDOWN was asked for on the admin port by %s", session->address_text);
    admin_reply_status(session, "OK");
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

void admin_process_auth(struct session_entry *session, size_t count, const struct slice *arguments)
{
    const struct admin_host *host = &session->admin->host;
    const char *password = host->conf(host->context)->admin_password;

    if (password[0] == '\0') {
        admin_reply_error(session, "ERR the admin port has no password: admin_password is not set");
    } else if (!same_password(arguments[count - 1], password)) {
        admin_reply_error(session, "WRONGPASS invalid password for the admin port");
    } else {
        session->authenticated = true;
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
