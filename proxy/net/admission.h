/*
 * Whom a configuration knows, and whom it lets in: its identities, and the options allow and refuse of each listener.
 *
 * refuse is looked at first: whom one of its words means is not let in, whatever allow says. Then, if allow has words,
 * one of them has to mean the client. Nothing is let in for being of this machine.
 *
 * One admission is shared by all threads and never changes; a reload makes another.
 */
#ifndef HEADGATE_ADMISSION_H
#define HEADGATE_ADMISSION_H

#include "conf/conf.h"
#include "net/identity.h"

struct admission;

/* Of a configuration that was sound when it was read. Referenced once, for the caller; ends the program when memory is
 * short. May ask the system for the numbers of users and groups. */
struct admission *admission_new(const struct conf *conf);
struct admission *admission_reference(struct admission *admission);
/* The last one frees it. From any thread. */
void admission_release(struct admission *admission);

/* The identity of a client of whom that is known; NULL: none. It lives as long as the admission. */
const struct identity *admission_identify(const struct admission *admission, const struct identity_facts *facts);
/* Whether any identity goes by the peer of a Unix socket. */
bool admission_wants_peer(const struct admission *admission);
/* The identities, in the order of the file. */
size_t admission_identity_count(const struct admission *admission);
const struct identity *admission_identity(const struct admission *admission, size_t number);

/* What is known when it is judged. */
enum admission_stage {
    ADMISSION_ADDRESS, /* who connects, but nothing that it has said: an identity may come of a certificate */
    ADMISSION_WHOLE    /* all that there will be before the first request */
};

/* Whether a client is to be let in by a listener (conf_listener_at()); at the first stage: whether it may be, once more
 * is known. identity: as told by admission_identify(); NULL: none. */
bool admission_lets_in(const struct admission *admission, size_t listener, enum admission_stage stage,
                       const struct identity_facts *facts, const struct identity *identity);

/* Who has just connected. */
struct admission_visitor {
    const struct sockaddr_storage *address; /* its own */
    bool is_proxied;                        /* somebody has passed it on: the peer of its socket is not the client */
    bool tls;                               /* it may show a certificate, and is told nothing before */
    size_t listener;                        /* where: conf_listener_at() */
};

/* Whether it may stay, as far as that can be said now. False: it was told so as Redis would, and fd is closed;
 * *identity is the name of its identity, which lives as long as the admission, or "none". */
bool admission_receive(const struct admission *admission, int fd, const struct admission_visitor *visitor,
                       const char **identity);

/* What who is not let in hears: Redis' own kind of error. */
#define ADMISSION_REFUSAL "-DENIED headgate: this client may not connect here (options allow and refuse)\r\n"

/* ---- reading the file ---- */

/* Whether the text of an option allow or refuse is sound beside these rules: as struct conf_section has it. */
bool admission_check_clients(const char *text, const struct conf_rule *rules, char problem[CONF_PROBLEM_MAX],
                             const char **expected);

#endif
