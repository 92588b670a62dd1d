/* The question whether a Headgate serves. */
#include "process/ping.h"

#include "process/ask.h"

#include <errno.h>
#include <string.h>
#include <unistd.h>

/* For each step: connecting, asking, the answer. */
#define PATIENCE_SECONDS 3

/* The first of a server; NULL: none of it can be asked. */
static const struct conf_address *choose_of(const struct conf *server)
{
    const struct conf_address *address = NULL;

    for (size_t i = 0; address == NULL && i < conf_listener_count(server); i++) {
        struct conf_listener listener = conf_listener_at(server, i);
        bool is_proxied = listener.terms->proxy_protocol == CONF_PROXY_PROTOCOL_REQUIRED;
        address = is_proxied ? NULL : ask_find_plain(listener.listen);
    }
    return address;
}

static const struct conf_address *choose(const struct conf *conf, bool asks_admin)
{
    const struct conf_address *address = NULL;

    for (size_t i = 0; !asks_admin && address == NULL && i < conf_server_count(conf); i++) {
        address = choose_of(conf_server_at(conf, i));
    }
    return address != NULL ? address : ask_find_plain(&conf->admin);
}

/* Whether who says so serves: Redis has answered, if only that a password is wanted or that PING is for others; or a
 * rule of Headgate's has refused to ask it, which is no reason to take it out of service. */
static bool is_healthy(const char *answer)
{
    static const char *const begins[] = {"-NOAUTH ", "-NOPERM ", "-ERR unknown command", "-RATELIMITED ", "-DENIED "};
    bool is = strcmp(answer, "+PONG") == 0;

    for (size_t i = 0; i < sizeof begins / sizeof *begins; i++) {
        is = is || strncmp(answer, begins[i], strlen(begins[i])) == 0;
    }
    return is;
}

int ping_run(const struct conf *conf, bool asks_admin)
{
    const struct conf_address *address = choose(conf, asks_admin);
    static const char question[] = "*1\r\n$4\r\nPING\r\n";
    char answer[ASK_ANSWER_BYTES];

    if (address == NULL) {
        fputs("headgate: there is no address without TLS and the PROXY protocol: none can be asked by --ping\n",
              stderr);
        return 1;
    }
    int fd = ask_connect(address, PATIENCE_SECONDS);
    if (fd < 0 || !ask(fd, question, sizeof question - 1, answer)) {
        fprintf(stderr, "headgate: %s: %s\n", address->text, strerror(errno));
        if (fd >= 0) {
            close(fd);
        }
        return 1;
    }
    close(fd);
    ask_print(stdout, answer);
    return is_healthy(answer) ? 0 : 1;
}
