/* The order to upgrade. */
#include "process/upgrade.h"

#include "conf/conf_table.h"
#include "process/ask.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* Beside upgrade_start_timeout, for each step. Seconds. */
#define PATIENCE_S 10

static bool is_ok(const char *answer)
{
    return strcmp(answer, "+OK") == 0;
}

/* Nothing is asked of who wants no password, and has none. False with errno set. */
static bool log_in(int fd, const struct conf *conf, char answer[ASK_ANSWER_BYTES])
{
    if (*conf->admin_password == '\0') {
        (void)strcpy(answer, "+OK");
        return true;
    }
    char *request =
        conf_format("*2\r\n$4\r\nAUTH\r\n$%zu\r\n%s\r\n", strlen(conf->admin_password), conf->admin_password);
    bool answered = ask(fd, request, strlen(request), answer);
    free(request);
    return answered;
}

static bool order(int fd, const struct conf *conf, char answer[ASK_ANSWER_BYTES])
{
    static const char request[] = "*1\r\n$7\r\nUPGRADE\r\n";

    return log_in(fd, conf, answer) && (!is_ok(answer) || ask(fd, request, sizeof request - 1, answer));
}

int upgrade_run(const struct conf *conf)
{
    const struct conf_address *address = ask_find(&conf->admin, false);
    char answer[ASK_ANSWER_BYTES];

    if (address == NULL) {
        fputs("headgate: there is no admin address without TLS: send SIGUSR2 to the process; its log says what comes "
              "of it\n",
              stderr);
        return 1;
    }
    int fd = ask_connect(address, (int)(conf->upgrade_start_timeout / 1000) + PATIENCE_S);
    if (fd < 0 || !order(fd, conf, answer)) {
        fprintf(stderr, "headgate: %s: %s\n", address->text, strerror(errno));
        if (fd >= 0) {
            close(fd);
        }
        return 1;
    }
    close(fd);
    if (!is_ok(answer)) {
        fputs("headgate: ", stderr);
        ask_print(stderr, answer[0] == '-' ? answer + 1 : answer);
        return 1;
    }
    puts("the new process serves");
    return 0;
}
