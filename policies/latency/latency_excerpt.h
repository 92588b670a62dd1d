/*
 * A command cut short, to be kept and shown: as in Redis' SLOWLOG at most 32 arguments of at most 128 bytes each, with
 * "... (5 more bytes)" or "... (3 more arguments)" in place of the rest.
 *
 * What may be a secret is "(redacted)", also where the command is not sound: all arguments of AUTH and of ACL's
 * subcommands, those of HELLO behind the version, those behind the parameter's name of CONFIG SET, those of SENTINEL's
 * and MODULE's subcommands behind the first, and what follows AUTH and AUTH2 of MIGRATE. It never gets into the
 * excerpt. Of other commands (SET, EVAL, …) the name, the subcommand and the keys are shown, as far as the table of
 * commands knows them, and of all else how long it is, "(5 bytes)"; or all of it, as by Redis, if values are wanted. Of
 * a command that is not known nothing is shown, not even the name: it may be a password that somebody took for one, or
 * a command like AUTH that Redis knows by another name (rename-command).
 *
 * Pure; any bytes may be given. 40 ns for a GET, 0.5 µs for 32 arguments of a dozen bytes.
 */
#ifndef HEADGATE_LATENCY_EXCERPT_H
#define HEADGATE_LATENCY_EXCERPT_H

#include "policy/policy.h"

#define LATENCY_EXCERPT_ARGUMENTS 32
/* Of each argument, in bytes. */
#define LATENCY_EXCERPT_BYTES 128
/* The most bytes of an excerpt: each argument has a length before it, and "... (18446744073709551615 more bytes)". */
#define LATENCY_EXCERPT_MAX (LATENCY_EXCERPT_ARGUMENTS * (1 + LATENCY_EXCERPT_BYTES + 38))

/* The name of a multibulk command, whole; empty if it has not come whole. */
struct slice latency_excerpt_name(struct slice frame);

/* What of a command may be shown. */
enum latency_excerpt_scope {
    LATENCY_EXCERPT_NOTHING, /* there is no command of that name */
    LATENCY_EXCERPT_KEYS,
    LATENCY_EXCERPT_VALUES
};

/* Writes the excerpt of a multibulk command, or of the beginning of one that has not come whole; returns its length. 0
 * if there is not even a name. */
size_t latency_excerpt_make(struct slice frame, enum latency_excerpt_scope scope, char out[LATENCY_EXCERPT_MAX]);

/* Writes text in quotes and without control characters, as redis-cli does: "a\r\n\x00\"b". */
void latency_excerpt_print_text(struct slice text, FILE *out);
/* Writes an excerpt in one line without its end: "SET" "key" "value". */
void latency_excerpt_print(struct slice excerpt, FILE *out);

#endif
