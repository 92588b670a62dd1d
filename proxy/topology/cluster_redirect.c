#include "topology/cluster_redirect.h"

#include "resp/word.h"

/* The part before the next blank; *rest is what lies behind it. */
static struct slice take_word(struct slice *rest)
{
    const char *blank = rest->length > 0 ? memchr(rest->data, ' ', rest->length) : NULL;
    struct slice word = {rest->data, blank != NULL ? (size_t)(blank - rest->data) : rest->length};
    size_t taken = word.length + (blank != NULL);

    *rest = (struct slice){rest->data + taken, rest->length - taken};
    return word;
}

static struct slice without_frame(struct slice line)
{
    if (line.length > 0 && line.data[0] == '-') {
        line = (struct slice){line.data + 1, line.length - 1};
    }
    if (line.length >= 2 && memcmp(line.data + line.length - 2, "\r\n", 2) == 0) {
        line.length -= 2;
    }
    return line;
}

static bool take_number(struct slice text, int64_t least, int64_t most, uint16_t *number)
{
    int64_t value;

    if (!word_integer(text, &value) || value < least || value > most) {
        return false;
    }
    *number = (uint16_t)value;
    return true;
}

bool cluster_redirect_is_host(struct slice host)
{
    for (size_t i = 0; i < host.length; i++) {
        unsigned char byte = (unsigned char)host.data[i];
        if (byte <= ' ' || byte >= 0x7f || byte == '/' || byte == '@') {
            return false;
        }
    }
    return host.length < CLUSTER_HOST_MAX;
}

/* "host:port"; the host may be an IPv6 address, as it is: "::1:7000". */
static bool take_endpoint(struct slice endpoint, struct cluster_redirect *redirect)
{
    const char *colon = endpoint.length > 0 ? memrchr(endpoint.data, ':', endpoint.length) : NULL;

    if (colon == NULL) {
        return false;
    }
    struct slice host = {endpoint.data, (size_t)(colon - endpoint.data)};
    struct slice port = {colon + 1, endpoint.length - host.length - 1};
    if (!cluster_redirect_is_host(host) || !take_number(port, 1, UINT16_MAX, &redirect->port)) {
        return false;
    }
    redirect->is_unknown = slice_is(host, "?");
    host.length = redirect->is_unknown ? 0 : host.length;
    memcpy(redirect->host, host.data, host.length);
    redirect->host[host.length] = '\0';
    return true;
}

bool cluster_redirect_parse(struct slice error_line, struct cluster_redirect *redirect)
{
    struct slice rest = without_frame(error_line);
    struct slice code = take_word(&rest);
    struct slice slot = take_word(&rest);
    struct cluster_redirect found = {.ask = slice_is(code, "ASK")};

    if ((!found.ask && !slice_is(code, "MOVED")) || !take_number(slot, 0, CLUSTER_SLOTS - 1, &found.slot) ||
        !take_endpoint(rest, &found)) {
        return false;
    }
    *redirect = found;
    return true;
}
