/*
 * One line of the log for each change that is asked for on the admin port: what, by whom, and how it ended. Whoever may
 * ask nothing of the kind is told so, and leaves a line too, at most one a second.
 */
#include "admin/admin_private.h"

#include "conf/conf_table.h"
#include <stdio.h>
#include <stdlib.h>

/* Of one argument that is shown. Bytes. */
#define WORD_MAX 80

static void add(struct session_entry *session, const char *separator, const char *text, size_t length)
{
    size_t used = strlen(session->audit);
    bool is_cut = length > WORD_MAX;

    snprintf(session->audit + used, sizeof session->audit - used, "%s%.*s%s", separator,
             (int)(is_cut ? WORD_MAX : length), text, is_cut ? "..." : "");
}

/* The values of CONFIG SET may be secrets, and so may be what follows one. */
static void add_settings(struct session_entry *session, size_t count, const struct slice *arguments)
{
    const struct admin_host *host = &session->admin->host;
    const struct conf *conf = host->conf(host->context);
    struct conf_setting settings[ADMIN_WORDS_MAX / 2];

    for (size_t i = 0; i < count / 2; i++) {
        settings[i] = (struct conf_setting){arguments[2 * i], arguments[2 * i + 1]};
    }
    const struct conf_doubt doubt = conf_settings_doubt(conf, settings, count / 2);
    /* With a word missing or too many, nobody knows what is whose value. */
    bool hides_all = doubt.split < count / 2 || count % 2 != 0;
    for (size_t i = 0; i < count / 2 && i < doubt.split; i++) {
        struct slice name = conf_setting_name_shown(conf, &settings[i]);
        char *value = hides_all ? conf_format(CONF_SECRET_SHOWN) : conf_setting_shown(conf, &settings[i]);
        add(session, " ", name.data, name.length);
        add(session, " ", value, strlen(value));
        free(value);
        session->audit_sure = i == doubt.first ? strlen(session->audit) : session->audit_sure;
    }
}

static void note(struct session_entry *session, size_t count, const struct slice *arguments, bool with_values)
{
    bool sets = count > 2 && slice_is_word(arguments[0], "config") && slice_is_word(arguments[1], "set");
    size_t shown = sets ? 2 : count;

    session->audit[0] = '\0';
    session->audit_sure = 0;
    if (session->scope.is_named) {
        const char *server = session->admin->servers->list[session->scope.first].name;
        add(session, "SERVER ", server, strlen(server));
    }
    for (size_t i = 0; i < shown; i++) {
        add(session, session->audit[0] != '\0' ? " " : "", arguments[i].data, arguments[i].length);
    }
    if (sets && with_values) {
        add_settings(session, count - 2, arguments + 2);
    }
}

/* The address, and what the kernel knew of who has it. */
static void tell_who(const struct session_entry *session, char *text, size_t size)
{
    const struct peer *peer = &session->peer;

    if (!session->has_peer) {
        snprintf(text, size, "%s", session->address_text);
    } else if (peer->pid != 0) {
        snprintf(text, size, "%s (uid %lu, process %ld)", session->address_text, (unsigned long)peer->uid,
                 (long)peer->pid);
    } else {
        snprintf(text, size, "%s (uid %lu)", session->address_text, (unsigned long)peer->uid);
    }
}

void admin_audit_begin(struct session_entry *session, size_t count, const struct slice *arguments)
{
    note(session, count, arguments, true);
    tell_who(session, session->audit_who, sizeof session->audit_who);
}

void admin_audit_hide(struct session_entry *session)
{
    if (session->audit_sure > 0 && session->audit[session->audit_sure] != '\0') {
        session->audit[session->audit_sure] = '\0';
        add(session, " ", CONF_SECRET_SHOWN, strlen(CONF_SECRET_SHOWN));
    }
}

void admin_audit_end(struct session_entry *session, const char *how)
{
    if (session->audit[0] != '\0') {
        log_info("audit", "%s, by %s: %s", session->audit, session->audit_who, how);
        session->audit[0] = '\0';
    }
}

void admin_audit_refused(struct session_entry *session, size_t count, const struct slice *arguments)
{
    uint64_t suppressed;

    if (log_limiter_take(&session->admin->denials, clock_now_us(), &suppressed)) {
        note(session, count, arguments, false);
        tell_who(session, session->audit_who, sizeof session->audit_who);
        log_warning("audit", "%s, by %s: refused, as who asks may change nothing", session->audit, session->audit_who);
        session->audit[0] = '\0';
    }
}

void admin_audit_wrong_password(struct session_entry *session)
{
    uint64_t suppressed;

    if (log_limiter_take(&session->admin->wrong_passwords, clock_now_us(), &suppressed)) {
        tell_who(session, session->audit_who, sizeof session->audit_who);
        log_warning("audit", "a wrong password was given by %s", session->audit_who);
    }
}
