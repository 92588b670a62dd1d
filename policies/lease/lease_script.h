/*
 * The scripts of lock libraries that are known: what each does, and where its arguments are.
 *
 * They are known by their digest (lease_scripts.inc), which EVALSHA says and which is computed from EVAL's text, or by
 * the idiom "if GET equals ARGV[1], then DEL, UNLINK, PEXPIRE or EXPIRE"; Headgate's own, too. An acquisition is never
 * inferred from a script that is in no table.
 */
#ifndef HEADGATE_LEASE_SCRIPT_H
#define HEADGATE_LEASE_SCRIPT_H

#include "lease/lease_words.h"
#include "policy/policy.h"

#define LEASE_DIGEST_LENGTH 40

/* A script that is known: what it does, and at which place its arguments are. Places begin at 1, 0 is none. */
struct lease_script {
    const char *library; /* as lease_script_library names it; NULL for an idiom */
    const char *name;
    const char *digest; /* SHA-1 of the text in lower-case hex; NULL for an idiom, "" for Headgate's own */
    uint16_t bytes;     /* of the text */
    enum lease_action action;
    enum lease_kind kind;
    enum lease_reply reply;
    enum lease_renews renews;
    uint8_t key; /* of KEYS; 0: all of them are locked */
    uint8_t token;
    bool tokens; /* all arguments from the token on are tokens */
    uint8_t lease;
    enum lease_unit unit;
    uint8_t now;           /* the client's time, from which a lease with LEASE_UNIT_AT_MS counts */
    uint8_t score;         /* of the sorted set */
    uint8_t adds;          /* a "0" there adds the lease to what is left of the old one */
    const char *companion; /* a member that the token's shares its score with, if it is there; NULL: none */
};

/* The row of a digest (LEASE_DIGEST_LENGTH characters in lower case), or NULL. */
const struct lease_script *lease_script_find(const char *digest);
/* The row of a script with that text, or NULL. */
const struct lease_script *lease_shape_learn(struct slice text);
/* The digest by which Redis knows the text, in lower-case hex; empty if libcrypto is set up to refuse SHA-1. */
void lease_shape_digest(struct slice text, char digest[LEASE_DIGEST_LENGTH + 1]);

/* The rows of the table, for tests; NULL behind the last. */
const struct lease_script *lease_shape_script(size_t index);

/* The libraries whose scripts are known, in lower case, each once; NULL behind the last. */
const char *lease_script_library(size_t index);
/* Whether the script is one of the library with that name, in any case. */
bool lease_script_is_of(const struct lease_script *script, struct slice library);

#endif
