/* Clients that speak TLS, or should. */
#include "client/client_private.h"

#include "base/log.h"

static void count_failure(struct stats *stats, enum tls_failure failure)
{
    stats_add(stats, STATS_TLS_FAILED, 1);
    if (failure == TLS_FAILURE_CERTIFICATE) {
        stats_add(stats, STATS_TLS_FAILED_CERTIFICATE, 1);
    } else if (failure == TLS_FAILURE_PLAIN) {
        stats_add(stats, STATS_TLS_FAILED_PLAIN, 1);
    } else if (failure == TLS_FAILURE_TIMEOUT) {
        stats_add(stats, STATS_TLS_FAILED_TIMEOUT, 1);
    }
}

static void close_without_tls(struct client *client, enum tls_failure failure, const char *why)
{
    struct client_service *service = client->service;
    uint64_t suppressed;

    count_failure(service->reactor->stats, failure);
    if (log_limiter_take(&service->tls_failures[failure], clock_now_us(), &suppressed)) {
        client_log(client, LOG_LEVEL_WARNING, "no TLS with client %s: %s (%llu more since the last line)",
                   client->address_text, why, (unsigned long long)suppressed);
    }
    client_close(client, why);
}

/* ---- the handshake ---- */

bool client_begin_tls(struct client *client)
{
    const struct connection_security *security = &client->service->settings.tls;

    if (security->context != NULL && connection_secure(&client->connection, security)) {
        return true;
    }
    close_without_tls(client, TLS_FAILURE_OTHER, "there is no memory, thread or descriptor for its handshake");
    return false;
}

static void handshake_failed(struct client *client)
{
    const struct tls *tls = connection_tls(&client->connection);
    enum tls_failure failure = tls_failure(tls);

    if (failure == TLS_FAILURE_SILENT) {
        /* Health checks do so all the time. */
        client_close(client, tls_why(tls));
        return;
    }
    close_without_tls(client, failure, tls_why(tls));
}

static void handshake_done(struct client *client)
{
    struct stats *stats = client->service->reactor->stats;

    client->is_secure = true;
    stats_add(stats, STATS_TLS_CLIENTS, 1);
    stats_add(stats, STATS_TLS_HANDSHAKES, 1);
    stats_add(stats, STATS_TLS_RESUMED, tls_is_resumed(connection_tls(&client->connection)));
}

bool client_now_secure(struct client *client)
{
    enum connection_secrecy secrecy = connection_secrecy(&client->connection);

    if (secrecy == CONNECTION_INSECURE) {
        handshake_failed(client);
    } else if (secrecy == CONNECTION_SECURE) {
        handshake_done(client);
    }
    return secrecy == CONNECTION_SECURE && client_now_known(client);
}

void client_end_tls(struct client *client)
{
    struct stats *stats = client->service->reactor->stats;

    if (client->is_secure) {
        stats_subtract(stats, STATS_TLS_CLIENTS, 1);
        stats_add(stats, STATS_TLS_TRUNCATED, tls_is_truncated(connection_tls(&client->connection)));
        client->is_secure = false;
    }
}
