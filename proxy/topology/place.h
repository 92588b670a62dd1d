/* Addresses as sentinels and servers give them: a host, which is a number or a name, and a port. */
#ifndef HEADGATE_PLACE_H
#define HEADGATE_PLACE_H

#include <hiredis/hiredis.h>
#include <stdbool.h>
#include <stdint.h>

/* With its NUL, in bytes. */
#define PLACE_HOST_MAX 254
#define PLACE_TEXT_MAX (PLACE_HOST_MAX + 10)

struct place {
    char host[PLACE_HOST_MAX]; /* "": there is none */
    uint16_t port;
};

bool place_equal(const struct place *a, const struct place *b);
/* "host:port", with brackets around an IPv6 address. */
void place_text(const struct place *place, char text[PLACE_TEXT_MAX]);
/* Reads one. False: it is none that could be. */
bool place_take(const redisReply *host, const redisReply *port, struct place *place);

#endif
