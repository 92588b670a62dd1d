/*
 * What programs ask when they connect, before anybody has asked them anything: which protocol, who they are, what there
 * is. Client libraries and redis-cli are answered as by a Redis, so that they can be used here.
 */
#include "admin/admin_private.h"

#include "resp/word.h"
#include "version.h"

#include <inttypes.h>
#include <stdio.h>

void admin_hello_ping(struct session_entry *session, size_t count, const struct slice *arguments)
{
    if (count > 1) {
        admin_reply_text(session, arguments[1].data, arguments[1].length);
    } else {
        admin_reply_status(session, "PONG");
    }
}

/* redis-cli asks for it when it starts; an empty list is an answer to its liking. */
void admin_hello_command(struct session_entry *session, size_t count, const struct slice *arguments)
{
    (void)count;
    (void)arguments;
    admin_reply_bytes(session, "*0\r\n", 4);
}

/* There is one database, and nothing in it. */
void admin_hello_select(struct session_entry *session, size_t count, const struct slice *arguments)
{
    int64_t database;

    (void)count;
    if (word_integer(arguments[1], &database) && database == 0) {
        admin_reply_status(session, "OK");
    } else {
        admin_reply_error(session, "ERR the admin port has database 0 alone");
    }
}

/* ---- names ---- */

/* As Redis takes it: without blanks, so that a line that shows it can be read. */
static bool is_name(struct slice name)
{
    for (size_t i = 0; i < name.length; i++) {
        if (name.data[i] < '!' || name.data[i] > '~') {
            return false;
        }
    }
    return name.length < sizeof((struct session_entry *)NULL)->name;
}

/* False: it is none, which the session is told. */
static bool take_name(struct session_entry *session, struct slice name)
{
    if (!is_name(name)) {
        admin_reply_error(session,
                          "ERR Client names cannot contain spaces, newlines or special characters, and have up "
                          "to 63 bytes here");
        return false;
    }
    memcpy(session->name, name.data, name.length);
    session->name[name.length] = '\0';
    return true;
}

void admin_hello_client(struct session_entry *session, size_t count, const struct slice *arguments)
{
    struct slice word = arguments[1];
    char text[40];

    if (slice_is_word(word, "setname") && count == 3) {
        if (take_name(session, arguments[2])) {
            admin_reply_status(session, "OK");
        }
    } else if (slice_is_word(word, "getname") && count == 2) {
        admin_reply_text(session, session->name, strlen(session->name));
    } else if (slice_is_word(word, "id") && count == 2) {
        snprintf(text, sizeof text, ":%" PRIu64 "\r\n", session->id);
        admin_reply_bytes(session, text, strlen(text));
    } else if ((slice_is_word(word, "setinfo") && count == 4) ||
               ((slice_is_word(word, "no-evict") || slice_is_word(word, "no-touch")) && count == 3)) {
        admin_reply_status(session, "OK");
    } else {
        admin_reply_error(session, "ERR unknown subcommand or wrong number of arguments: CLIENT is here for libraries "
                                   "that say who they are; CLIENTS lists clients");
    }
}

/* ---- HELLO ---- */

static void add_field(struct admin_text *text, const char *name, const char *value)
{
    admin_text_add(text, "$%zu\r\n%s\r\n%s", strlen(name), name, value);
}

/* What Redis tells of itself, in its order. */
static void tell_all(struct session_entry *session)
{
    struct admin_text text;
    char value[80];

    if (!admin_text_open(&text)) {
        admin_reply_error(session, "ERR out of memory");
        return;
    }
    add_field(&text, "server", "$8\r\nheadgate\r\n");
    snprintf(value, sizeof value, "$%zu\r\n%s\r\n", strlen(HEADGATE_VERSION), HEADGATE_VERSION);
    add_field(&text, "version", value);
    snprintf(value, sizeof value, ":%d\r\n", session->resp);
    add_field(&text, "proto", value);
    snprintf(value, sizeof value, ":%" PRIu64 "\r\n", session->id);
    add_field(&text, "id", value);
    add_field(&text, "mode", "$10\r\nstandalone\r\n");
    add_field(&text, "role", "$6\r\nmaster\r\n");
    add_field(&text, "modules", "*0\r\n");
    admin_reply_pairs(session, 7, &text);
    admin_text_close(&text);
}

/* What stands behind the version. */
struct hello {
    const struct slice *password; /* NULL: none is given */
    const struct slice *name;
};

/* False: it is not in order, which the session is told. */
static bool take_options(struct session_entry *session, size_t count, const struct slice *arguments,
                         struct hello *hello)
{
    for (size_t i = 2; i < count; i++) {
        if (word_is(arguments[i], "auth") && count - i > 2) {
            hello->password = &arguments[i + 2];
            i += 2;
        } else if (word_is(arguments[i], "setname") && count - i > 1) {
            hello->name = &arguments[++i];
        } else {
            admin_reply_error(session,
                              "ERR Syntax error in HELLO: it takes [version [AUTH user password] [SETNAME name]]");
            return false;
        }
    }
    return true;
}

void admin_hello(struct session_entry *session, size_t count, const struct slice *arguments)
{
    int64_t version = session->resp;
    struct hello hello = {0};

    if (count > 1 && (!word_integer(arguments[1], &version) || version < 2 || version > 3)) {
        admin_reply_error(session, "NOPROTO unsupported protocol version");
        return;
    }
    if (!take_options(session, count, arguments, &hello)) {
        return;
    }
    /* As Redis without a password: whoever gives one is who needs none. */
    if (hello.password != NULL && admin_guard_has_password(session) && !admin_guard_login(session, *hello.password)) {
        admin_reply_error(session, "WRONGPASS invalid password for the admin port");
        return;
    }
    if (!admin_guard_is_trusted(session) && !admin_guard_has_password(session)) {
        admin_guard_turn_away(session);
        return;
    }
    if (!admin_guard_is_trusted(session)) {
        admin_reply_error(session,
                          "NOAUTH HELLO must be called with the client already authenticated, or with AUTH user "
                          "password");
        return;
    }
    if (hello.name != NULL && !take_name(session, *hello.name)) {
        return;
    }
    session->resp = (int)version;
    tell_all(session);
}
