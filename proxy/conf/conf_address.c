/* Addresses: from text, to text, compared. */
#include "conf/conf_private.h"

#include <arpa/inet.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/un.h>

#define HOST_MAX 253

void conf_address_free(struct conf_address *address)
{
    for (size_t i = 0; i < address->seed_count; i++) {
        conf_address_free(&address->seeds[i]);
    }
    free(address->seeds);
    free(address->master);
    free(address->host);
    free(address->path);
    free(address->text);
    free(address->user);
    if (address->password != NULL) {
        explicit_bzero(address->password, strlen(address->password));
    }
    free(address->password);
    *address = (struct conf_address){0};
}

bool conf_address_equal(const struct conf_address *a, const struct conf_address *b)
{
    if (a->path != NULL || b->path != NULL) {
        return a->path != NULL && b->path != NULL && strcmp(a->path, b->path) == 0;
    }
    if (a->topology != CONF_TOPOLOGY_SINGLE || b->topology != CONF_TOPOLOGY_SINGLE) {
        return conf_topology_equal(a, b);
    }
    if (a->host == NULL || b->host == NULL) {
        return a->host == b->host;
    }
    return a->port == b->port && strcasecmp(a->host, b->host) == 0;
}

bool conf_path_parse(const char *path, struct conf_address *address, char problem[CONF_PROBLEM_MAX])
{
    const size_t longest = sizeof((struct sockaddr_un *)NULL)->sun_path - 1;
    if (path[0] != '/' || path[1] == '\0') {
        return conf_wrong(problem, "\"unix:%.120s\" is not an absolute path", path);
    }
    if (strlen(path) > longest) {
        return conf_wrong(problem, "the path of the Unix socket has %zu bytes, more than %zu", strlen(path), longest);
    }
    address->path = conf_copy(path, strlen(path));
    return true;
}

static bool parse_port(const char *text, uint16_t *port, char *problem)
{
    int64_t value = 0;
    const char *rest = conf_read_digits(text, 10, &value);
    if (rest == text || *rest != '\0') {
        return conf_wrong(problem, "port \"%.120s\" is not a number", text);
    }
    if (value < 1 || value > UINT16_MAX) {
        return conf_wrong(problem, "port %.20s is not from 1 to 65535", text);
    }
    *port = (uint16_t)value;
    return true;
}

/* Returns the address in its shortest spelling, so that equal ones compare equal; a %scope is kept. NULL: not IPv6. */
static char *canonical_ipv6(const char *text)
{
    size_t length = strcspn(text, "%");
    char *bare = conf_copy(text, length);
    struct in6_addr address;
    char shortest[INET6_ADDRSTRLEN];
    bool valid = inet_pton(AF_INET6, bare, &address) == 1 && strcmp(text + length, "%") != 0;
    free(bare);
    if (!valid) {
        return NULL;
    }
    inet_ntop(AF_INET6, &address, shortest, sizeof shortest);
    return conf_format("%s%s", shortest, text + length);
}

static bool valid_host(const char *host)
{
    static const char digits[] = "0123456789.";
    static const char letters[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_.";
    size_t length = strlen(host);
    if (length == 0 || length > HOST_MAX || host[0] == '.' || host[0] == '-' || strstr(host, "..") != NULL) {
        return false;
    }
    if (strspn(host, digits) == length) {
        struct in_addr address;
        return inet_pton(AF_INET, host, &address) == 1;
    }
    return strspn(host, letters) == length;
}

/* Takes host as its own. */
static bool take_host(char *host, const char *port, struct conf_address *address, char *problem)
{
    bool bracketed = strchr(host, ':') != NULL;
    if (!bracketed && !valid_host(host)) {
        conf_wrong(problem, "\"%.120s\" is neither a host name nor an IPv4 address", host);
    } else if (parse_port(port, &address->port, problem)) {
        address->host = host;
        return true;
    }
    free(host);
    return false;
}

bool conf_host_parse(const char *text, const char *default_port, struct conf_address *address,
                     char problem[CONF_PROBLEM_MAX])
{
    const char *colon = strrchr(text, ':');
    if (text[0] == '[') {
        const char *close = strchr(text, ']');
        char *inside = close == NULL ? NULL : conf_copy(text + 1, (size_t)(close - text - 1));
        char *host = inside == NULL ? NULL : canonical_ipv6(inside);
        free(inside);
        if (host == NULL) {
            return conf_wrong(problem, "\"%.120s\" holds no IPv6 address in brackets", text);
        }
        if (close[1] == '\0' && default_port != NULL) {
            return take_host(host, default_port, address, problem);
        }
        if (close[1] != ':') {
            free(host);
            return conf_wrong(problem, "\"%.120s\" has no port", text);
        }
        return take_host(host, close + 2, address, problem);
    }
    if (colon == NULL && default_port != NULL) {
        return take_host(conf_copy(text, strlen(text)), default_port, address, problem);
    }
    if (colon == NULL) {
        return conf_wrong(problem, "\"%.120s\" has no port", text);
    }
    if (strchr(text, ':') != colon) {
        return conf_wrong(problem, "\"%.120s\" holds an IPv6 address without brackets, or too many colons", text);
    }
    return take_host(conf_copy(text, (size_t)(colon - text)), colon + 1, address, problem);
}

static bool parse_plain(const char *text, struct conf_address *address, char *problem)
{
    bool is_path = strncmp(text, "unix:", 5) == 0;

    if (!is_path && strchr(text, '@') != NULL) {
        return conf_wrong(problem, "has an @, as only redis://user:password@host may");
    }
    if (!(is_path ? conf_path_parse(text + 5, address, problem) : conf_host_parse(text, NULL, address, problem))) {
        return false;
    }
    address->text = conf_copy(text, strlen(text));
    return true;
}

static bool parse_address(const char *text, struct conf_address *address, char *problem)
{
    *address = (struct conf_address){.database = -1};
    if (text[strcspn(text, conf_is_topology(text) ? CONF_BLANKS : CONF_BLANKS ",")] != '\0') {
        return conf_wrong(problem, "holds a blank or a comma");
    }
    bool parsed = conf_is_url(text) ? conf_url_parse(text, address, problem) : parse_plain(text, address, problem);
    if (!parsed) {
        conf_address_free(address);
    }
    return parsed;
}

char *conf_address_text(const struct conf_address *address)
{
    bool is_bare = address->user == NULL && address->password == NULL && address->database < 0;

    return is_bare ? conf_copy(address->text, strlen(address->text)) : conf_url_text(address);
}

bool conf_address_parse(const struct conf_option *option, const char *text, struct conf_address *address,
                        char problem[CONF_PROBLEM_MAX])
{
    if (*text != '\0' && conf_is_topology(text) && !option->takes_topology) {
        return conf_wrong(problem, "names sentinels or a cluster, as only upstream of [" CONF_SECTION "] may");
    }
    if (*text != '\0') {
        return parse_address(text, address, problem);
    }
    if (option->zero == NULL) {
        return conf_wrong(problem, "is empty");
    }
    *address = (struct conf_address){.text = conf_copy("", 0), .database = -1};
    return true;
}

void conf_addresses_free(struct conf_address_list *list)
{
    for (size_t i = 0; i < list->count; i++) {
        conf_address_free(&list->items[i]);
    }
    list->count = 0;
}

/* Of addresses that Headgate listens on: nobody is logged in there. */
static bool is_bare(const struct conf_address *address, char *problem)
{
    if (address->topology != CONF_TOPOLOGY_SINGLE) {
        return conf_wrong(problem, "names sentinels or a cluster, as only upstream of [" CONF_SECTION "] may");
    }
    if (address->user != NULL || address->password != NULL) {
        return conf_wrong(problem, "has a user or a password, which are for servers that Headgate connects to");
    }
    return address->database < 0 || conf_wrong(problem, "names a database, which clients choose by themselves");
}

static bool add_address(struct conf_address_list *list, const char *text, size_t length, char *problem)
{
    if (list->count == CONF_ADDRESSES_MAX) {
        return conf_wrong(problem, "holds more than %d addresses", CONF_ADDRESSES_MAX);
    }
    if (length == 0) {
        return conf_wrong(problem, "has no address beside a comma");
    }
    struct conf_address address;
    char *item = conf_copy(text, length);
    bool parsed = parse_address(item, &address, problem);
    free(item);
    if (!parsed) {
        return false;
    }
    if (!is_bare(&address, problem)) {
        conf_address_free(&address);
        return false;
    }
    for (size_t i = 0; i < list->count; i++) {
        if (conf_address_equal(&list->items[i], &address)) {
            conf_wrong(problem, "holds %.120s twice", address.text);
            conf_address_free(&address);
            return false;
        }
    }
    list->items[list->count++] = address;
    return true;
}

/* Addresses stand apart by blanks, or by a comma with any blanks. */
bool conf_addresses_parse(const struct conf_option *option, const char *text, struct conf_address_list *list,
                          char problem[CONF_PROBLEM_MAX])
{
    *list = (struct conf_address_list){0};
    bool more = *text != '\0';
    while (more) {
        size_t length = strcspn(text, CONF_BLANKS ",");
        if (!add_address(list, text, length, problem)) {
            conf_addresses_free(list);
            return false;
        }
        text += length;
        text += strspn(text, CONF_BLANKS);
        more = *text != '\0';
        if (*text == ',') {
            text++;
            text += strspn(text, CONF_BLANKS);
        }
    }
    return list->count >= (size_t)option->min || conf_wrong(problem, "is empty");
}

char *conf_addresses_text(const struct conf_address_list *list)
{
    char *text = conf_copy("", 0);
    for (size_t i = 0; i < list->count; i++) {
        char *longer = conf_format("%s%s%s", text, i > 0 ? ", " : "", list->items[i].text);
        free(text);
        text = longer;
    }
    return text;
}
