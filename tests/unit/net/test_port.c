/* Unix sockets in a directory whose owner exchanges what stands there. */
#include "net/port.h"

#include <criterion/criterion.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

static char directory[] = "/tmp/headgate-test-XXXXXX";
static char victim[64], name[64], moved[64];

int __real_bind(int fd, const struct sockaddr *address, socklen_t length);
int __wrap_bind(int fd, const struct sockaddr *address, socklen_t length);

/* As fast as anybody can be. */
int __wrap_bind(int fd, const struct sockaddr *address, socklen_t length)
{
    int result = __real_bind(fd, address, length);

    cr_assert_eq(rename(name, moved), 0);
    cr_assert_eq(symlink(victim, name), 0);
    return result;
}

static mode_t mode_of(const char *path)
{
    struct stat status;

    cr_assert_eq(lstat(path, &status), 0);
    return status.st_mode & 07777;
}

Test(port, a_socket_has_its_mode_before_its_name_can_be_exchanged)
{
    static const mode_t modes[] = {0700, 0600, 0666, 0777, 0};
    struct port_source source = {.takes_over = false};
    struct connection_target target = {.length = sizeof(struct sockaddr_un)};
    struct sockaddr_un *address = (struct sockaddr_un *)&target.address;

    cr_assert_not_null(mkdtemp(directory));
    snprintf(victim, sizeof victim, "%s/victim", directory);
    snprintf(name, sizeof name, "%s/socket", directory);
    snprintf(moved, sizeof moved, "%s/moved", directory);
    address->sun_family = AF_UNIX;
    snprintf(address->sun_path, sizeof address->sun_path, "%s", name);
    close(open(victim, O_WRONLY | O_CREAT, 0640));
    cr_assert_eq(chmod(victim, 0640), 0);
    (void)umask(027);
    for (size_t i = 0; i < sizeof modes / sizeof modes[0]; i++) {
        struct port port;
        cr_assert(port_open(&port, &source, &target, 1, modes[i]));
        cr_expect_eq(mode_of(moved), modes[i], "%o", mode_of(moved));
        cr_expect_eq(mode_of(victim), 0640, "%o", mode_of(victim));
        port_close(&port);
        cr_assert_eq(unlink(moved), 0);
    }
    cr_expect_eq(umask(0), 027);
    cr_assert_eq(unlink(victim), 0);
    cr_assert_eq(rmdir(directory), 0);
}
