#include "topology/place.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

bool place_equal(const struct place *a, const struct place *b)
{
    return a->port == b->port && strcasecmp(a->host, b->host) == 0;
}

void place_text(const struct place *place, char text[PLACE_TEXT_MAX])
{
    bool is_ipv6 = strchr(place->host, ':') != NULL;

    snprintf(text, PLACE_TEXT_MAX, is_ipv6 ? "[%s]:%u" : "%s:%u", place->host, place->port);
}

/* Only what can be part of a name or a number, as it is logged and looked up. */
static bool is_host(const redisReply *host)
{
    static const char letters[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_.:%";

    return host->len > 0 && host->len < PLACE_HOST_MAX && strspn(host->str, letters) == host->len;
}

bool place_take(const redisReply *host, const redisReply *port, struct place *place)
{
    bool are_texts = host->type == REDIS_REPLY_STRING && port->type == REDIS_REPLY_STRING;

    if (!are_texts || !is_host(host) || port->len == 0 || port->len > 5 ||
        strspn(port->str, "0123456789") != port->len) {
        return false;
    }
    unsigned long number = strtoul(port->str, NULL, 10);
    *place = (struct place){.port = (uint16_t)number};
    memcpy(place->host, host->str, host->len);
    return number > 0 && number <= UINT16_MAX;
}
