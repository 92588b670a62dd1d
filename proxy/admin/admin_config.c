/* CONFIG: the options one by one, who says what they are, and values that are set at run time; and RELOAD. */
#include "admin/admin_private.h"

#include "conf/conf_table.h"
#include "conf/glob.h"

#include <ctype.h>
#include <stdlib.h>

/* Of a pattern, in bytes. It is matched with each name, and that takes time by its length. */
#define PATTERN_MAX 128
#define NAME_SIZE 160

/* ---- which options ---- */

struct patterns {
    size_t count;
    char list[ADMIN_ARGUMENTS_MAX][PATTERN_MAX + 1];
};

static void lower(char *to, size_t size, const char *from, size_t length)
{
    size_t i = 0;

    for (; i < length && i + 1 < size; i++) {
        to[i] = (char)tolower((unsigned char)from[i]);
    }
    to[i] = '\0';
}

/* False: one of them is none, which the session is told. */
static bool take_patterns(struct session_entry *session, struct patterns *patterns, size_t count,
                          const struct slice *arguments)
{
    char problem[CONF_PROBLEM_MAX], text[CONF_PROBLEM_MAX + 40];

    patterns->count = count;
    for (size_t i = 0; i < count; i++) {
        bool is_sound = arguments[i].length > 0 && arguments[i].length <= PATTERN_MAX &&
                        memchr(arguments[i].data, '\0', arguments[i].length) == NULL;
        snprintf(problem, sizeof problem, "has no or too many bytes, or a NUL");
        if (!is_sound || !glob_check(arguments[i], problem)) {
            snprintf(text, sizeof text, "ERR pattern %zu %s", i + 1, problem);
            admin_reply_error(session, text);
            return false;
        }
        lower(patterns->list[i], sizeof patterns->list[i], arguments[i].data, arguments[i].length);
    }
    return true;
}

static bool is_wanted(const struct patterns *patterns, const char *name)
{
    char lowered[NAME_SIZE];

    lower(lowered, sizeof lowered, name, strlen(name));
    for (size_t i = 0; i < patterns->count; i++) {
        if (glob_match(patterns->list[i], (struct slice){lowered, strlen(lowered)})) {
            return true;
        }
    }
    return false;
}

struct listing {
    struct admin_text text;
    size_t count;
};

/* Has tell called for each option that is wanted. False: memory is short, which the session is told. */
static bool list_options(struct session_entry *session, struct listing *listing, size_t count,
                         const struct slice *arguments,
                         void (*tell)(struct listing *listing, const struct conf_listed *listed))
{
    const struct admin_host *host = &session->admin->host;
    struct patterns patterns;

    if (!take_patterns(session, &patterns, count, arguments)) {
        return false;
    }
    const struct conf *conf = host->conf(host->context);
    *listing = (struct listing){0};
    if (!admin_text_open(&listing->text)) {
        admin_reply_error(session, "ERR out of memory");
        return false;
    }
    for (size_t i = 0; i < conf->listed_count; i++) {
        if (is_wanted(&patterns, conf->listed[i].name)) {
            listing->count++;
            tell(listing, &conf->listed[i]);
        }
    }
    return true;
}

/* ---- CONFIG GET ---- */

static void add_bulk(struct admin_text *text, const char *bytes)
{
    admin_text_add(text, "$%zu\r\n%s\r\n", strlen(bytes), bytes);
}

static void tell_pair(struct listing *listing, const struct conf_listed *listed)
{
    add_bulk(&listing->text, listed->name);
    add_bulk(&listing->text, listed->value);
}

void admin_config_get(struct session_entry *session, size_t count, const struct slice *arguments)
{
    struct listing listing;

    if (list_options(session, &listing, count - 2, arguments + 2, tell_pair)) {
        admin_reply_pairs(session, listing.count, &listing.text);
        admin_text_close(&listing.text);
    }
}

/* ---- CONFIG SHOW ---- */

/* name=value, with quotes where a blank or another quote would mislead. */
static void add_field(struct admin_text *text, const char *name, const char *value)
{
    bool is_bare = *value != '\0' && strpbrk(value, " \t\"\\") == NULL;

    admin_text_add(text, is_bare ? " %s=" : " %s=\"", name);
    for (const char *c = value; *c != '\0'; c++) {
        admin_text_add(text, *c == '"' || *c == '\\' ? "\\%c" : "%c", *c);
    }
    admin_text_add(text, is_bare ? "" : "\"");
}

static void tell_all(struct listing *listing, const struct conf_listed *listed)
{
    admin_text_add(&listing->text, "option=%s", listed->name);
    add_field(&listing->text, "value", listed->value);
    add_field(&listing->text, "default", listed->option->initial);
    add_field(&listing->text, "reload", listed->option->reloadable ? "yes" : "restart");
    add_field(&listing->text, "set", conf_option_is_settable(listed->option) ? "yes" : "no");
    add_field(&listing->text, "source", listed->source);
    admin_text_add(&listing->text, "\n");
}

void admin_config_show(struct session_entry *session, size_t count, const struct slice *arguments)
{
    static const struct slice all[] = {{"*", 1}};
    struct listing listing;
    bool is_given = count > 2;

    if (!list_options(session, &listing, is_given ? count - 2 : 1, is_given ? arguments + 2 : all, tell_all)) {
        return;
    }
    if (listing.count == 0) {
        admin_reply_error(session, "ERR no option has such a name; CONFIG SHOW lists all");
    } else {
        admin_reply_lines(session, &listing.text);
    }
    admin_text_close(&listing.text);
}

/* ---- RELOAD and CONFIG SET ---- */

/* All workers go by it. */
static void on_taken(void *context)
{
    struct session_entry *session = context;

    session->admin->changing = NULL;
    if (!session->closed && session->changes != NULL) {
        admin_reply_verbatim(session, session->changes, strlen(session->changes));
    } else if (!session->closed) {
        admin_reply_status(session, "OK");
    }
    free(session->changes);
    session->changes = NULL;
    admin_session_resume(session);
}

/* The session, which waits, is answered when all is taken, unless there are faults. */
static void begin_change(struct session_entry *session, char *faults)
{
    if (faults == NULL) {
        session->admin->changing = session;
    } else {
        session->gathering = false;
        admin_reply_faults(session, faults);
        free(faults);
    }
}

void admin_config_end(struct admin *admin)
{
    if (admin->changing != NULL) {
        on_taken(admin->changing);
    }
}

void admin_config_reload(struct session_entry *session, size_t count, const struct slice *arguments)
{
    const struct admin_host *host = &session->admin->host;
    char *changes = NULL;

    if (count > 1 && !slice_is_word(arguments[1], "verbose")) {
        admin_reply_error(session, "ERR usage: RELOAD [VERBOSE]");
        return;
    }
    admin_session_pause(session);
    char *faults = host->reload(host->context, &changes, on_taken, session);
    if (faults == NULL && count > 1) {
        session->changes = changes;
    } else {
        free(changes);
    }
    begin_change(session, faults);
}

static void set(struct session_entry *session, const struct conf_setting *settings, size_t count)
{
    const struct admin_host *host = &session->admin->host;

    admin_session_pause(session);
    char *faults = host->change(host->context, settings, count, on_taken, session);

    if (faults != NULL) {
        admin_audit_hide(session);
    }
    begin_change(session, faults);
}

void admin_config_set(struct session_entry *session, size_t count, const struct slice *arguments)
{
    struct conf_setting settings[ADMIN_WORDS_MAX / 2];
    size_t setting_count = (count - 2) / 2;

    if (count % 2 != 0) {
        admin_audit_hide(session);
        admin_reply_error(session, "ERR usage: CONFIG SET name value [name value ...]");
        return;
    }
    for (size_t i = 0; i < setting_count; i++) {
        settings[i] = (struct conf_setting){arguments[2 + 2 * i], arguments[3 + 2 * i]};
    }
    set(session, settings, setting_count);
}

/* ---- the others ---- */

void admin_config_rewrite(struct session_entry *session, size_t count, const struct slice *arguments)
{
    (void)count;
    (void)arguments;
    admin_reply_error(session, "ERR the file is the operator's: Headgate writes nothing there. CONFIG SHOW tells which "
                               "values are from CONFIG SET, to be written there by who wants to keep them");
}

/* CONFIG alone, or with a word that is none of the others. */
void admin_config(struct session_entry *session, size_t count, const struct slice *arguments)
{
    const struct admin_host *host = &session->admin->host;
    const char *text = host->conf(host->context)->shown;

    (void)arguments;
    if (count > 1) {
        admin_reply_error(session, "ERR CONFIG knows GET, SHOW, SET and REWRITE; HELP CONFIG says more");
        return;
    }
    admin_reply_verbatim(session, text, strlen(text));
}

void admin_loglevel(struct session_entry *session, size_t count, const struct slice *arguments)
{
    const struct admin_host *host = &session->admin->host;
    const struct conf *conf = host->conf(host->context);

    if (count > 1) {
        set(session, &(struct conf_setting){{"log_level", strlen("log_level")}, arguments[1]}, 1);
        return;
    }
    for (size_t i = 0; i < conf->listed_count; i++) {
        if (strcmp(conf->listed[i].name, "log_level") == 0) {
            admin_reply_text(session, conf->listed[i].value, strlen(conf->listed[i].value));
        }
    }
}
