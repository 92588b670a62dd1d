/* redis-server and the Headgate before it. */
#ifndef CROSSTALK_SERVERS_H
#define CROSSTALK_SERVERS_H

#include "crosstalk_run.h"
#include "rig_certificate.h"
#include "rig_servers.h"

#include <stdbool.h>

struct servers {
    char directory[DIRECTORY_MAX];
    struct server redis;
    struct server headgate;
    struct port admin_port;
    /* For TLS, beside the plain ones. */
    struct port redis_tls_port;
    struct port headgate_tls_port;
    struct authority *authority; /* of all certificates */
    unsigned serial;             /* of the last */
};

/* Each tells on standard error why it returns false. */
bool servers_prepare(struct servers *servers, const struct options *options);
bool servers_start_redis(struct servers *servers, const struct options *options);
bool servers_start_headgate(struct servers *servers, const struct options *options);

/* Makes all certificates and keys anew, of which Headgate reads its own when it is told to. */
bool servers_renew_tls(struct servers *servers);

/* Ends Redis as a crash would. */
void servers_kill_redis(struct servers *servers);

/* True as long as the process of Headgate has not ended. */
bool servers_headgate_lives(struct servers *servers);

/* Ends Headgate by SIGTERM. True if it then exits with 0 and no sanitizer wrote to its log. */
bool servers_end_headgate(struct servers *servers);

/* Ends what still runs; removes the directory, unless it is to be kept. */
void servers_free(struct servers *servers, bool keep);

/* Sends an inline command to Redis; true if the answer starts with the text. */
bool servers_ask_redis(const struct servers *servers, const char *command, const char *answer);

/* The same to Headgate's admin port. */
bool servers_ask_headgate(const struct servers *servers, const char *command, const char *answer);

#endif
