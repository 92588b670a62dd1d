/* Unix sockets in a directory whose owner exchanges what stands there. */
#include "net/port.h"

#include <criterion/criterion.h>
#include <fcntl.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

int __real_bind(int fd, const struct sockaddr *address, socklen_t length);
int __wrap_bind(int fd, const struct sockaddr *address, socklen_t length);

/* As fast as anybody can be. */
int __wrap_bind(int fd, const struct sockaddr *address, socklen_t length)
{
    int result = __real_bind(fd, address, length);

    cr_assert(rename("socket", "moved") == 0 && symlink("victim", "socket") == 0);
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
    static const mode_t modes[] = {0700, 0666, 0777, 0};
    char directory[] = "/tmp/headgate-test-XXXXXX";
    struct port_source source = {.takes_over = false};
    struct connection_target target = {.length = sizeof(struct sockaddr_un)};

    *(struct sockaddr_un *)&target.address = (struct sockaddr_un){.sun_family = AF_UNIX, .sun_path = "socket"};
    (void)umask(027);
    cr_assert(mkdtemp(directory) != NULL && chdir(directory) == 0);
    close(open("victim", O_WRONLY | O_CREAT, 0640));
    for (size_t i = 0; i < sizeof modes / sizeof modes[0]; i++) {
        struct port port;
        cr_assert(port_open(&port, &source, &target, 1, modes[i]));
        cr_expect_eq(mode_of("moved"), modes[i], "%o", mode_of("moved"));
        cr_expect_eq(mode_of("victim"), 0640, "%o", mode_of("victim"));
        port_close(&port);
        cr_assert_eq(unlink("moved"), 0);
    }
    cr_expect_eq(umask(0), 027);
    cr_assert(unlink("victim") == 0 && rmdir(directory) == 0);
}
