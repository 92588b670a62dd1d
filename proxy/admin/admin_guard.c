/*
 * What is not obeyed on the admin port.
 *
 * A browser sends what a page that it shows wants to whatever listens on this machine, and inline commands would be
 * found line by line in the body of a request of HTTP. So a connection on which anything is said that is no line of
 * text with a verb of ours at its head, but one of HTTP, of TLS or of another protocol, is closed before anything
 * further on it is looked at. Redis does the same on POST and Host:.
 *
 * Whoever may run a program on this machine reaches a port on loopback. Without a password other users than Headgate's
 * own and root are not let in, as far as the kernel tells whose a connection is; of whom it does not tell may look, and
 * change nothing.
 */
#include "admin/admin_private.h"

#include <ctype.h>
#include <errno.h>
#include <stdio.h>
#include <unistd.h>

/* ---- other protocols ---- */

/* The names of these are none of our verbs. GET is one of Redis, which somebody may try; TRACE is ours, and no browser
 * sends it. Requests of HTTP by these names are known by what follows. */
static const char *const foreign_names[] = {"POST",  "PUT",     "DELETE", "HEAD", "OPTIONS",
                                            "PATCH", "CONNECT", "PRI",    "Host:"};

bool admin_guard_is_foreign_name(struct slice name)
{
    for (size_t i = 0; i < sizeof foreign_names / sizeof foreign_names[0]; i++) {
        /* What follows a NUL, Redis does not see. */
        if (word_is(name, foreign_names[i])) {
            return true;
        }
    }
    return false;
}

bool admin_guard_is_binary(struct slice input)
{
    return input.length >= 2 && (unsigned char)input.data[0] < ' ' && !isspace((unsigned char)input.data[0]);
}

/* The next word of the line, as bytes between blanks; empty at its end. */
static struct slice next_word(struct slice *line)
{
    while (line->length > 0 && isspace((unsigned char)*line->data)) {
        line->data++;
        line->length--;
    }
    struct slice word = {line->data, 0};
    while (word.length < line->length && !isspace((unsigned char)word.data[word.length])) {
        word.length++;
    }
    line->data += word.length;
    line->length -= word.length;
    return word;
}

static bool has_control_characters(struct slice line)
{
    for (size_t i = 0; i < line.length; i++) {
        unsigned char c = (unsigned char)line.data[i];
        if ((c < ' ' && !isspace(c)) || c == 0x7f) {
            return true;
        }
    }
    return false;
}

/* "HTTP/1.1" and the like. */
static bool is_version(struct slice word)
{
    return word.length >= 5 && strncasecmp(word.data, "HTTP/", 5) == 0;
}

bool admin_guard_is_foreign_line(struct slice line)
{
    struct slice rest = line;
    struct slice first = next_word(&rest);
    struct slice last = first;
    bool is_get = slice_is_word(first, "GET");
    bool has_path = false;

    for (struct slice word = next_word(&rest); word.length > 0; word = next_word(&rest)) {
        has_path = has_path || *word.data == '/';
        last = word;
    }
    bool is_header = first.length > 0 && first.data[first.length - 1] == ':';
    return has_control_characters(line) || admin_guard_is_foreign_name(first) || is_header || (is_get && has_path) ||
           is_version(last);
}

/* ---- passwords ---- */

static bool same_password(struct slice given, const char *wanted)
{
    size_t length = strlen(wanted);
    unsigned char difference = given.length == length && length > 0 ? 0 : 1;

    /* Takes the same time wherever the first difference is. */
    for (size_t i = 0; i < given.length; i++) {
        difference |= (unsigned char)(given.data[i] ^ wanted[length > 0 ? i % length : 0]);
    }
    return difference == 0;
}

bool admin_guard_has_password(const struct session_entry *session)
{
    const struct admin_host *host = &session->admin->host;

    return host->conf(host->context)->admin_password[0] != '\0';
}

bool admin_guard_login(struct session_entry *session, struct slice password)
{
    const struct admin_host *host = &session->admin->host;
    const struct conf *conf = host->conf(host->context);
    bool may_read = same_password(password, conf->admin_read_password);
    bool may_all = same_password(password, conf->admin_password);

    if (!may_read && !may_all) {
        admin_audit_wrong_password(session);
        return false;
    }
    session->rights = may_all ? ADMIN_RIGHTS_ALL : ADMIN_RIGHTS_READ;
    return true;
}

/* ---- other users ---- */

void admin_guard_meet(struct session_entry *session)
{
    const char *why;

    errno = 0;
    session->has_peer = peer_find(session->connection.fd, &session->peer, &why);
    session->is_unmet = !session->has_peer && (errno == EMFILE || errno == ENFILE);
}

static bool is_of_another_user(const struct session_entry *session)
{
    return session->has_peer && session->peer.uid != 0 && session->peer.uid != geteuid();
}

static void refuse(struct session_entry *session, const char *why)
{
    char text[400];

    snprintf(
        text, sizeof text,
        "NOPERM this changes something, which without a password only processes of Headgate's user or root may do: "
        "%s. Set admin_password and use AUTH, use a Unix socket, or set admin_changes = anyone",
        why);
    admin_reply_error(session, text);
}

bool admin_guard_may_change(struct session_entry *session)
{
    const struct admin_host *host = &session->admin->host;
    const struct conf *conf = host->conf(host->context);
    const char *why;
    char text[80];

    if (conf->admin_password[0] != '\0') {
        if (session->rights != ADMIN_RIGHTS_ALL) {
            admin_reply_error(session,
                              "NOPERM this changes something, and admin_read_password is for looking: AUTH with "
                              "admin_password does");
        }
        return session->rights == ADMIN_RIGHTS_ALL;
    }
    if (session->is_unix || conf->admin_changes == CONF_CHANGES_ANYONE) {
        return true;
    }
    if (!session->has_peer && !peer_find(session->connection.fd, &session->peer, &why)) {
        refuse(session, why);
        return false;
    }
    session->has_peer = true;
    if (is_of_another_user(session)) {
        snprintf(text, sizeof text, "this one is of the user with id %lu", (unsigned long)session->peer.uid);
        refuse(session, text);
        return false;
    }
    return true;
}

bool admin_guard_is_trusted(const struct session_entry *session)
{
    const struct admin_host *host = &session->admin->host;

    if (admin_guard_has_password(session)) {
        return session->rights != ADMIN_RIGHTS_NONE;
    }
    return session->is_unix || host->conf(host->context)->admin_changes == CONF_CHANGES_ANYONE ||
           !is_of_another_user(session);
}

void admin_guard_turn_away(struct session_entry *session)
{
    uint64_t suppressed;
    unsigned long uid = session->peer.uid;
    char text[300];

    if (admin_guard_has_password(session)) {
        admin_reply_error(session, "NOAUTH Authentication required.");
        return;
    }
    admin_count_refused(session->admin);
    if (log_limiter_take(&session->admin->outsiders, clock_now_us(), &suppressed)) {
        log_warning("admin",
                    "refused %s: it is of the user with id %lu, and without admin_password other users than Headgate's "
                    "and root are not let in (%llu more since the last line)",
                    session->address_text, uid, (unsigned long long)suppressed);
    }
    snprintf(text, sizeof text,
             "NOPERM this is Headgate, process %ld: without a password only processes of its user or root are let in, "
             "and this one is of the user with id %lu. Set admin_password and use AUTH, use a Unix socket, or set "
             "admin_changes = anyone",
             (long)getpid(), uid);
    admin_reply_error(session, text);
}
