#include "topology/cluster_redirect.h"

#include "resp/word.h"

struct slice cluster_redirect_take_part(struct slice *rest, char end)
{
    const char *found = rest->length > 0 ? memchr(rest->data, end, rest->length) : NULL;
    struct slice part = {rest->data, found != NULL ? (size_t)(found - rest->data) : rest->length};
    size_t taken = part.length + (found != NULL);

    *rest = (struct slice){rest->data + taken, rest->length - taken};
    return part;
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

bool cluster_redirect_read_endpoint(struct slice endpoint, struct cluster_redirect *redirect)
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
    struct slice code = cluster_redirect_take_part(&rest, ' ');
    struct slice slot = cluster_redirect_take_part(&rest, ' ');
    struct cluster_redirect found = {.ask = slice_is(code, "ASK")};

    if ((!found.ask && !slice_is(code, "MOVED")) || !take_number(slot, 0, CLUSTER_SLOTS - 1, &found.slot) ||
        !cluster_redirect_read_endpoint(rest, &found)) {
        return false;
    }
    *redirect = found;
    return true;
}
