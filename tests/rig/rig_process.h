/*
 * Servers of a test: free ports, processes that end with the test, and whether they answer.
 *
 * A port is kept reserved by a socket that is bound to it and never listens, so that while its server is down no
 * outgoing connection can be given it as a local one.
 */
#ifndef RIG_PROCESS_H
#define RIG_PROCESS_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>
#include <time.h>

struct port {
    uint16_t number;
    int reservation; /* a descriptor, or -1 */
};

static inline int64_t now_us(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (int64_t)now.tv_sec * 1000000 + now.tv_nsec / 1000;
}

/* Reserves a port that is free on every address of the loopback network; false with errno. */
bool port_take(struct port *port);
/* A server that cannot bind beside a reservation needs it released just before. */
void port_release(struct port *port);

/*
 * Starts a program (arguments end with NULL) whose output is appended to the log. It dies with the thread that started
 * it, so only a thread that outlives all others may call this. Returns its id, or -1.
 */
pid_t process_start(const char *const *arguments, const char *log);
/* Waits for the end of a process; false if it has not come in time. */
bool process_wait(pid_t pid, int64_t limit_us, int *status);
/* Kills and reaps the process, if there is one (above 0), and sets it to 0. */
void process_kill(pid_t *pid);
/* Until the server at the port answers a PING. False, told on standard error, if it ends (then *pid is 0) or is mute.
 */
bool process_wait_for_pong(const char *name, pid_t *pid, uint16_t port);

/* False, told on standard error, if the log of a program shows a finding of a sanitizer, or cannot be read. */
bool process_log_is_clean(const char *log);

/* A blocking connection to a port of 127.0.0.1, with 2 s of patience; -1 if there is none to be had. */
int process_connect(uint16_t port);
/* Sends an inline command there on a connection of its own; true if the answer begins with the text. */
bool process_ask(uint16_t port, const char *command, const char *answer);

#endif
