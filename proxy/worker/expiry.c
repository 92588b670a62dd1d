#include "worker/expiry.h"

#include "base/log.h"
#include "tls/tls_context.h"

#include <time.h>

#define DAY_SECONDS ((int64_t)24 * 3600)
#define WARNING_DAYS 14
/* How often the days are counted. */
#define LOOK_SECONDS 60

/* 0: it has expired, or there is none. */
static int64_t days_left(const struct tls_context *context, int64_t now)
{
    int64_t expires = context != NULL ? tls_context_expires(context) : 0;

    return expires > now ? (expires - now) / DAY_SECONDS : 0;
}

static void warn(const char *server, const char *option, const struct tls_context *context, int64_t now)
{
    const char *separator = *server != '\0' ? " " : "";
    int64_t expires = context != NULL ? tls_context_expires(context) : 0;

    if (expires == 0 || expires - now >= WARNING_DAYS * DAY_SECONDS) {
        return;
    }
    if (expires <= now) {
        log_warning("main", "%s%s%s: the certificate, or one of its chain, has expired: nobody will take it", server,
                    separator, option);
    } else {
        log_warning("main", "%s%s%s: the certificate expires in %lld days", server, separator, option,
                    (long long)days_left(context, now));
    }
}

/* What is the process's own, or what a server does not have from there. */
static void warn_of_own(const struct conf *conf, int64_t now)
{
    const struct conf *process = conf->process;

    if (conf == process || conf->tls_clients != process->tls_clients) {
        warn(conf->server_name, "tls_certificate", conf->tls_clients, now);
    }
    if (conf == process || conf->tls_upstream != process->tls_upstream) {
        warn(conf->server_name, "upstream_certificate", conf->tls_upstream, now);
    }
}

static void count(struct expiry *expiry)
{
    int64_t now = (int64_t)time(NULL);

    stats_set(expiry->stats, STATS_TLS_CERTIFICATE_DAYS, (uint64_t)days_left(expiry->conf->tls_clients, now));
    stats_set(expiry->stats, STATS_UPSTREAM_CERTIFICATE_DAYS, (uint64_t)days_left(expiry->conf->tls_upstream, now));
    if (now - expiry->warned >= DAY_SECONDS || now < expiry->warned) {
        expiry->warned = now;
        warn_of_own(expiry->conf, now);
    }
}

static void on_timer(evutil_socket_t fd, short what, void *context)
{
    (void)fd;
    (void)what;
    count(context);
}

bool expiry_open(struct expiry *expiry, struct reactor *reactor, struct stats *stats, const struct conf *conf)
{
    const struct timeval interval = {.tv_sec = LOOK_SECONDS};

    expiry->stats = stats;
    event_assign(&expiry->timer, reactor->base, -1, EV_PERSIST, on_timer, expiry);
    expiry_follow(expiry, conf);
    return event_add(&expiry->timer, &interval) == 0;
}

void expiry_follow(struct expiry *expiry, const struct conf *conf)
{
    expiry->conf = conf;
    expiry->warned = (int64_t)time(NULL);
    count(expiry);
}

void expiry_close(struct expiry *expiry)
{
    if (expiry->conf != NULL) {
        event_del(&expiry->timer);
    }
}
