/* What a program of tests/newest is asked, and how it answers (scripts/clients_program.py), for C. The library is
 * whatever the include path has: Debian's hiredis, or a newer one. */
#ifndef PROTOCOL_H
#define PROTOCOL_H

#include <hiredis/hiredis.h>
#include <stdbool.h>
#include <stddef.h>

#define ADD "local sum = redis.call('INCRBY', KEYS[1], ARGV[1]) return {sum, ARGV[1]}"

/* How long something is waited for that should happen at once, in milliseconds. */
#define PATIENCE_MS 20000

/* Where Redis is. */
extern const char *host;
extern int port;

/* The lines that a feature answers. */
struct answer {
    char *text;
    size_t length;
};

/* Adds a line "reply …". */
__attribute__((format(printf, 2, 3))) void tell(struct answer *lines, const char *format, ...);
/* The same of a reply, with its type; NULL: the library has none, and why not is said. Does not free it. */
void tell_reply(struct answer *lines, const redisReply *reply, const char *why_not);
/* Adds a line "error …". */
void tell_error(struct answer *lines, const char *error);

/* Has a connection speak TLS, if that is asked for: before its first command, or, of one with callbacks, at once. Ends
 * the program if it cannot. */
void secure(redisContext *context);

struct feature {
    const char *name;
    void (*run)(void *client, const char *key, struct answer *lines);
};

struct program {
    void *(*connect)(void); /* ends the program if it cannot */
    void (*close)(void *client);
    const struct feature *features; /* up to one without a name */
};

/* Answers until the input ends, and gives the status of the program. */
int serve(const struct program *program, int argc, char **argv);

long long now_ms(void);
void pause_ms(int time);

/* How many clients are blocked, as INFO has it, or -1. */
int blocked_in(const redisReply *info);

#endif
