/*
 * Who is not answered.
 *
 * A browser on this machine asks for what any page that it shows wants, and names can be made to lead here: a page of
 * another site could read what is told here. So what a browser says of where a request comes from is believed when it
 * speaks against it (Sec-Fetch-Site, Origin), and a name that is not known to be ours is not answered (Host): an
 * attacker has his own name lead here, but cannot have the browser say another.
 */
#include "http/http_private.h"

#include <arpa/inet.h>
#include <ctype.h>
#include <openssl/crypto.h>
#include <openssl/evp.h>
#include <openssl/sha.h>
#include <string.h>
#include <strings.h>

/* Of "user:password" in base64. */
#define CREDENTIALS_MAX 2048

/* ---- hosts ---- */

static bool is_number(const char *host, size_t length)
{
    char text[INET6_ADDRSTRLEN];
    struct in6_addr number;

    if (length >= 2 && host[0] == '[' && host[length - 1] == ']') {
        host++;
        length -= 2;
    }
    if (length >= sizeof text) {
        return false;
    }
    memcpy(text, host, length);
    text[length] = '\0';
    return inet_pton(AF_INET, text, &number) == 1 || inet_pton(AF_INET6, text, &number) == 1;
}

static bool is_name(const char *host, size_t length, const char *name)
{
    return strlen(name) == length && length > 0 && strncasecmp(host, name, length) == 0;
}

static bool is_listed(const char *host, size_t length, const char *names)
{
    static const char between[] = " \t,";

    for (names += strspn(names, between); *names != '\0'; names += strspn(names, between)) {
        size_t name_length = strcspn(names, between);
        if (name_length == length && strncasecmp(host, names, length) == 0) {
            return true;
        }
        names += name_length;
    }
    return false;
}

static bool is_of_http(const struct conf *conf, const char *host, size_t length)
{
    bool is = false;

    for (size_t i = 0; i < conf->http.count && !is; i++) {
        const char *own = conf->http.items[i].host;
        is = own != NULL && is_name(host, length, own);
    }
    return is;
}

/* Without the port. */
static size_t host_length(const char *host)
{
    const char *end = *host == '[' ? strchr(host, ']') : NULL;

    return end != NULL ? (size_t)(end - host) + 1 : strcspn(host, ":");
}

static bool is_own_host(const struct http *http, const struct conf *conf, const char *host)
{
    size_t length = host_length(host);

    return is_number(host, length) || is_name(host, length, "localhost") || is_name(host, length, http->machine) ||
           is_of_http(conf, host, length) || is_listed(host, length, conf->http_names);
}

/* ---- headers ---- */

/* How many there are of that name; the first one is found. */
static size_t find_headers(struct evhttp_request *request, const char *name, const char **first)
{
    struct evkeyvalq *headers = evhttp_request_get_input_headers(request);
    struct evkeyval *header;
    size_t count = 0;

    *first = NULL;
    for (header = headers->tqh_first; header != NULL; header = header->next.tqe_next) {
        if (strcasecmp(header->key, name) == 0) {
            *first = count++ == 0 ? header->value : *first;
        }
    }
    return count;
}

static bool has_own_host(const struct http *http, const struct conf *conf, struct evhttp_request *request)
{
    const struct evhttp_uri *uri = evhttp_request_get_evhttp_uri(request);
    const char *in_uri = uri != NULL ? evhttp_uri_get_host(uri) : NULL;
    const char *host;
    size_t count = find_headers(request, "Host", &host);

    /* Browsers send one, always. */
    return count <= 1 && (count == 0 || is_own_host(http, conf, host)) &&
           (in_uri == NULL || is_own_host(http, conf, in_uri));
}

/* Whether the site is the one that the request is for. */
static bool is_same_origin(const char *origin, const char *host)
{
    static const char *const schemes[] = {"http://", "https://"};

    for (size_t i = 0; i < sizeof schemes / sizeof schemes[0]; i++) {
        size_t length = strlen(schemes[i]);
        if (strncasecmp(origin, schemes[i], length) == 0 && host != NULL && strcasecmp(origin + length, host) == 0) {
            return true;
        }
    }
    return false;
}

static bool is_from_here(struct evhttp_request *request, bool is_page)
{
    const char *site, *mode, *target, *origin, *host;

    size_t sites = find_headers(request, "Sec-Fetch-Site", &site);
    (void)find_headers(request, "Sec-Fetch-Mode", &mode);
    (void)find_headers(request, "Sec-Fetch-Dest", &target);
    size_t origins = find_headers(request, "Origin", &origin);
    (void)find_headers(request, "Host", &host);
    /* Somebody follows a link: who has it on his page does not see where it leads. */
    bool is_link = is_page && mode != NULL && strcasecmp(mode, "navigate") == 0 && target != NULL &&
                   strcasecmp(target, "document") == 0;
    bool is_here = site == NULL || strcasecmp(site, "same-origin") == 0 || strcasecmp(site, "none") == 0 || is_link;
    /* Browsers say each once. */
    return sites <= 1 && origins <= 1 && is_here && (origin == NULL || is_same_origin(origin, host));
}

/* ---- the password ---- */

/* Takes as long wherever they differ. */
static bool is_same(const char *given, size_t length, const char *wanted)
{
    unsigned char digests[2][SHA256_DIGEST_LENGTH];

    SHA256((const unsigned char *)given, length, digests[0]);
    SHA256((const unsigned char *)wanted, strlen(wanted), digests[1]);
    return CRYPTO_memcmp(digests[0], digests[1], sizeof digests[0]) == 0;
}

/* Who may only look may do so here, too. */
static bool is_one_of_ours(const struct conf *conf, const char *given, size_t length)
{
    bool may_all = is_same(given, length, conf->admin_password);
    bool may_read = *conf->admin_read_password != '\0' && is_same(given, length, conf->admin_read_password);

    return may_all || may_read;
}

/* "Basic dXNlcjpwYXNzd29yZA==": whoever it is, with one of the passwords. */
static bool has_password(struct evhttp_request *request, const struct conf *conf)
{
    unsigned char plain[CREDENTIALS_MAX];
    const char *header;

    if (find_headers(request, "Authorization", &header) != 1 || strncasecmp(header, "Basic ", 6) != 0) {
        return false;
    }
    header += 6 + strspn(header + 6, " ");
    size_t length = strcspn(header, " \t");
    if (length == 0 || length % 4 != 0 || length > sizeof plain) {
        return false;
    }
    int decoded = EVP_DecodeBlock(plain, (const unsigned char *)header, (int)length);
    if (decoded < 0) {
        return false;
    }
    /* What the padding stands for is counted as NULs. */
    size_t count = (size_t)decoded - (header[length - 1] == '=') - (header[length - 2] == '=');
    const unsigned char *colon = memchr(plain, ':', count);
    bool is_right = colon != NULL && is_one_of_ours(conf, (const char *)colon + 1, count - (size_t)(colon + 1 - plain));
    OPENSSL_cleanse(plain, sizeof plain);
    return is_right;
}

static void ask_for_password(struct http *http, struct evhttp_request *request)
{
    evhttp_add_header(evhttp_request_get_output_headers(request), "WWW-Authenticate",
                      "Basic realm=\"Headgate\", charset=\"UTF-8\"");
    http_reply_line(http, request, 401,
                    "Any user, with a password of the admin port (admin_password, or admin_read_password)");
}

/* ---- all of it ---- */

static void refuse(struct http *http, struct evhttp_request *request, const char *why)
{
    uint64_t suppressed;

    if (log_limiter_take(&http->refusals, clock_now_us(), &suppressed)) {
        log_warning("http", "refused a request: %s", why);
    }
    http_reply_line(http, request, 403, why);
}

bool http_guard_admits(struct http *http, struct evhttp_request *request, bool is_probe, bool is_page)
{
    const struct conf *conf = http->host.conf(http->host.context);

    if (!has_own_host(http, conf, request)) {
        refuse(http, request, "it is for a host of another name: one that is right belongs into http_names");
        return false;
    }
    if (!is_from_here(request, is_page)) {
        refuse(http, request, "it comes from a page of another site");
        return false;
    }
    if (!is_probe && *conf->admin_password != '\0' && !has_password(request, conf)) {
        const char *given;
        uint64_t suppressed;
        if (find_headers(request, "Authorization", &given) > 0 &&
            log_limiter_take(&http->refusals, clock_now_us(), &suppressed)) {
            log_warning("http", "refused a request: the password is wrong");
        }
        ask_for_password(http, request);
        return false;
    }
    return true;
}
