/* Clients that begin with what belongs to another kind of address: TLS, or the header of a proxy. */
#include "client/client_private.h"

#include "base/log.h"
#include "net/proxy_header.h"

/* A ClientHello, before it is a request that nobody understands. */
static bool begins_tls(const struct client *client, const char *data, size_t length)
{
    return data[0] == 0x16 && length > 1 && data[1] == 3 && client->connection.secure == NULL;
}

/* limiter: of lines of that kind. */
static void refuse(struct client *client, struct log_limiter *limiter, const char *why)
{
    uint64_t suppressed;

    if (log_limiter_take(limiter, clock_now_us(), &suppressed)) {
        client_log(client, LOG_LEVEL_WARNING, "closing client %s: %s (%llu more since the last line)",
                   client->address_text, why, (unsigned long long)suppressed);
    }
    client_close(client, why);
}

bool client_refuse_stray(struct client *client, const char *data, size_t length)
{
    struct client_service *service = client->service;
    struct stats *stats = service->reactor->stats;

    if (begins_tls(client, data, length)) {
        stats_add(stats, STATS_TLS_UNEXPECTED, 1);
        refuse(client, &service->tls_unexpected,
               "it speaks TLS, and where it has connected there is none; rediss:// in listen would have it");
        return true;
    }
    if (proxy_header_begins(data, length)) {
        stats_add(stats, STATS_PROXIES_UNEXPECTED, 1);
        refuse(
            client, &service->proxies_unexpected,
            "it begins with a PROXY header, and where it has connected none is taken; proxy_protocol = required, with "
            "its address in proxy_from, would have it");
        return true;
    }
    return false;
}
