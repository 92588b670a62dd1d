/*
 * Addresses as URLs: redis://[user:password@]host[:port][/database], rediss:// for TLS, unix:///path; valkey:// and
 * valkeys:// are the same as redis:// and rediss://. What they hold of secrets is never in a problem's text.
 */
#include "conf/conf_private.h"

#include <stdlib.h>
#include <string.h>
#include <strings.h>

#define DEFAULT_PORT "6379"
#define SCHEME_END "://"

static const char letters[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789+-.";
/* What needs no escape in a user or a password (RFC 3986, 2.3). */
static const char unreserved[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_.~";

/* How long the scheme is; 0: the text begins with none. */
static size_t scheme_length(const char *text)
{
    size_t length = strspn(text, letters);

    return strncmp(text + length, SCHEME_END, sizeof SCHEME_END - 1) == 0 ? length : 0;
}

bool conf_is_url(const char *text)
{
    return strncmp(text, SCHEME_END, sizeof SCHEME_END - 1) == 0 || scheme_length(text) > 0;
}

bool conf_is_scheme(const char *text, const char *scheme)
{
    size_t length = strlen(scheme);

    return scheme_length(text) == length && strncasecmp(text, scheme, length) == 0;
}

/* ---- users and passwords ---- */

static int hex_digit(char digit)
{
    static const char digits[] = "0123456789abcdef0123456789ABCDEF";
    const char *found = digit != '\0' ? strchr(digits, digit) : NULL;

    return found != NULL ? (int)(found - digits) % 16 : -1;
}

/* %XX stands for a byte, anything else for itself. NULL: it is not in order. */
char *conf_url_decode(const char *text, size_t length)
{
    char *result = conf_alloc(NULL, length + 1), *to = result;

    for (const char *at = text, *end = text + length; at < end; at++) {
        int high = *at == '%' && end - at > 2 ? hex_digit(at[1]) : -1;
        int low = high >= 0 ? hex_digit(at[2]) : -1;
        if (*at == '%' && (low < 0 || (high == 0 && low == 0))) {
            explicit_bzero(result, length + 1);
            free(result);
            return NULL;
        }
        *to++ = *at == '%' ? (char)(high << 4 | low) : *at;
        at += *at == '%' ? 2 : 0;
    }
    *to = '\0';
    return result;
}

static char *encode(const char *text)
{
    char *result = conf_alloc(NULL, 3 * strlen(text) + 1), *to = result;

    for (; *text != '\0'; text++) {
        bool stays = strchr(unreserved, *text) != NULL;
        to += sprintf(to, stays ? "%c" : "%%%02X", (unsigned char)*text);
    }
    *to = '\0';
    return result;
}

/* NULL in *result for an empty text. */
static bool take_decoded(const char *text, size_t length, char **result, char *problem)
{
    *result = length > 0 ? conf_url_decode(text, length) : NULL;
    if (length > 0 && *result == NULL) {
        return conf_wrong(problem, "has a %% in its user or password that no two hexadecimal digits follow, or %%00; "
                                   "a %% itself is written %%25");
    }
    if (*result != NULL && strcmp(*result, CONF_SECRET_SHOWN) == 0) {
        return conf_wrong(problem, "holds what a hidden secret is shown as, not the secret");
    }
    return true;
}

/* user:password, or a user alone. */
bool conf_userinfo_parse(const char *text, size_t length, struct conf_address *address, char problem[CONF_PROBLEM_MAX])
{
    const char *colon = memchr(text, ':', length);
    size_t user_length = colon != NULL ? (size_t)(colon - text) : length;

    if (memchr(text, '@', length) != NULL) {
        return conf_wrong(problem, "has more than one @; one within a password is written %%40");
    }
    if (length == 0 || (user_length == 0 && length == 1)) {
        return conf_wrong(problem, "has neither user nor password before its @");
    }
    if (!take_decoded(text, user_length, &address->user, problem)) {
        return false;
    }
    return colon == NULL || take_decoded(colon + 1, length - user_length - 1, &address->password, problem);
}

/* ---- the parts behind ---- */

static bool take_database(const char *text, struct conf_address *address, char *problem)
{
    if (*text == '?' || *text == '#') {
        return conf_wrong(problem, "has a query or fragment, which means nothing here");
    }
    if (*text == '\0' || strcmp(text, "/") == 0) {
        return true;
    }
    const char *rest = conf_read_digits(text + 1, 10, &address->database);
    if (rest == text + 1 || *rest != '\0' || address->database > INT32_MAX) {
        address->database = -1;
        return conf_wrong(problem, strpbrk(text, "?#") != NULL ? "has a query or fragment, which means nothing here"
                                                               : "has a path that is not the number of a database");
    }
    return true;
}

static bool take_server(const char *text, size_t length, struct conf_address *address, char *problem)
{
    if (length == 0 || *text == ':') {
        return conf_wrong(problem, "has no host; a Unix socket is unix:/path, and speaks no TLS");
    }
    char *server = conf_copy(text, length);
    bool taken = conf_host_parse(server, DEFAULT_PORT, address, problem);

    free(server);
    return taken;
}

/* The text for logs: as the operator wrote it, but for what stands in options of its own. */
static void keep_text(const char *text, const char *server, size_t server_length, struct conf_address *address)
{
    bool is_bare = address->user == NULL && address->password == NULL && address->database < 0;

    address->text =
        is_bare ? conf_copy(text, strlen(text))
                : conf_format("%.*s" SCHEME_END "%.*s", (int)scheme_length(text), text, (int)server_length, server);
}

static bool parse_redis(const char *text, struct conf_address *address, char *problem)
{
    const char *authority = strstr(text, SCHEME_END) + sizeof SCHEME_END - 1;
    size_t length = strcspn(authority, "/?#");
    const char *at = memrchr(authority, '@', length);
    const char *server = at != NULL ? at + 1 : authority;
    size_t server_length = length - (size_t)(server - authority);

    if (strchr(authority + length, '@') != NULL) {
        return conf_wrong(problem, "has a path before its @; within a password / is written %%2F, ? %%3F and # %%23");
    }
    if (at != NULL && !conf_userinfo_parse(authority, (size_t)(at - authority), address, problem)) {
        return false;
    }
    if (!take_server(server, server_length, address, problem) || !take_database(authority + length, address, problem)) {
        return false;
    }
    keep_text(text, server, server_length, address);
    return true;
}

/* unix:///path is unix:/path. */
static bool parse_unix_url(const char *text, struct conf_address *address, char *problem)
{
    const char *path = text + sizeof "unix://" - 1;

    if (strpbrk(path, "?#") != NULL) {
        return conf_wrong(problem, "has a query or fragment, which means nothing here");
    }
    if (*path != '/' && strchr(path, '@') != NULL) {
        return conf_wrong(problem, "has a user, for which there are options beside it");
    }
    if (!conf_path_parse(*path == '/' ? path : path - 2, address, problem)) {
        return false;
    }
    address->text = conf_copy(text, strlen(text));
    return true;
}

bool conf_url_parse(const char *text, struct conf_address *address, char problem[CONF_PROBLEM_MAX])
{
    if (conf_is_scheme(text, "unix")) {
        return parse_unix_url(text, address, problem);
    }
    if (conf_is_topology(text)) {
        return conf_topology_parse(text, address, problem);
    }
    address->tls = conf_is_scheme(text, "rediss") || conf_is_scheme(text, "valkeys");
    if (!address->tls && !conf_is_scheme(text, "redis") && !conf_is_scheme(text, "valkey")) {
        return conf_wrong(
            problem,
            "\"%.*s\" is not one of the schemes redis, rediss, valkey, valkeys, unix, sentinel, sentinels, "
            "cluster and clusters",
            (int)scheme_length(text), text);
    }
    return parse_redis(text, address, problem);
}

/* ---- back to text ---- */

char *conf_url_text(const struct conf_address *address)
{
    char *user = encode(address->user != NULL ? address->user : "");
    char *password = encode(address->password != NULL ? address->password : "");
    char *database = address->database >= 0 ? conf_format("/%lld", (long long)address->database) : conf_copy("", 0);
    const char *server = strstr(address->text, SCHEME_END) + sizeof SCHEME_END - 1;
    bool has_userinfo = *user != '\0' || *password != '\0';
    char *text = conf_format("%.*s%s%s%s%s%s%s", (int)(server - address->text), address->text, user,
                             *password != '\0' ? ":" : "", password, has_userinfo ? "@" : "", server, database);

    explicit_bzero(password, strlen(password));
    free(password);
    free(user);
    free(database);
    return text;
}

/* As far as people may have got it wrong: from the scheme to the last @ of the text, and what follows a ?. */
char *conf_hidden_url(const char *text)
{
    const char *start = strstr(text, SCHEME_END), *at = strrchr(text, '@');
    bool is_path = start == NULL && strncmp(text, "unix:/", 6) == 0 && text[strcspn(text, CONF_BLANKS ",")] == '\0';

    if (is_path) {
        return conf_copy(text, strlen(text));
    }
    start = start != NULL && (at == NULL || start < at) ? start + sizeof SCHEME_END - 1 : text;
    const char *rest = at != NULL ? at : start;
    size_t shown = strcspn(rest, "?");
    return conf_format("%.*s%s%.*s%s", (int)(start - text), text, at != NULL ? CONF_SECRET_SHOWN : "", (int)shown, rest,
                       rest[shown] != '\0' ? "?" CONF_SECRET_SHOWN : "");
}
