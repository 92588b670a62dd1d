/*
 * What a certificate that was found good says of whom it was given to, as texts for rules to be matched with.
 */
#ifndef HEADGATE_TLS_NAMES_H
#define HEADGATE_TLS_NAMES_H

#include <stddef.h>

/* Texts are "" where it says nothing. A name that holds a NUL, or is none at all, is left out: who reads such a name as
 * a text would take it for another one. */
struct tls_names {
    char *common_name;   /* of the subject; "" if it has several */
    char *issuer;        /* as RFC 2253 writes it: "CN=Example CA,O=Example" */
    char **alternatives; /* each "dns:…", "uri:…", "email:…" or "ip:…" */
    size_t count;        /* of them */
};

void tls_names_free(struct tls_names *names);

#endif
