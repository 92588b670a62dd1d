/* A client, OpenSSL itself, that sends what costs the other side more than itself, and reads nothing. */
#include "tls_files.h"

#include <criterion/criterion.h>
#include <openssl/ssl.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

struct storm {
    struct tls_files files;
    struct buffer_pool pool;
    struct tls_wire *wire;
    struct tls_context *context;
    struct tls *server;
    SSL_CTX *ssl_context;
    SSL *client;
    int fds[2];
};

static void begin(struct storm *storm)
{
    struct tls_settings settings = tls_files_settings(true);

    memset(storm, 0, sizeof *storm);
    tls_files_open(&storm->files);
    struct tls_identity identity = tls_files_server(&storm->files);
    settings.certificate = identity.path;
    storm->context = tls_files_context(&settings);
    cr_assert_eq(socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK, 0, storm->fds), 0);
    storm->wire = tls_wire_new(&storm->pool);
    storm->server = tls_new(storm->context, storm->wire, storm->fds[0], NULL);
    storm->ssl_context = SSL_CTX_new(TLS_client_method());
    storm->client = SSL_new(storm->ssl_context);
    SSL_set_fd(storm->client, storm->fds[1]);
    for (int i = 0; i < 10; i++) {
        (void)SSL_connect(storm->client);
        (void)tls_handshake(storm->server);
    }
    cr_assert(tls_state(storm->server) == TLS_OPEN && SSL_is_init_finished(storm->client) == 1);
}

static void end(struct storm *storm)
{
    tls_free(storm->server);
    SSL_free(storm->client);
    SSL_CTX_free(storm->ssl_context);
    tls_context_release(storm->context);
    tls_wire_free(storm->wire);
    buffer_pool_free(&storm->pool);
    tls_files_close(&storm->files);
    close(storm->fds[0]);
    close(storm->fds[1]);
}

/* So many at once; what the server says of them. */
static ssize_t ask_for_keys(struct storm *storm, int count)
{
    char data[64 * 1024];

    for (int i = 0; i < count; i++) {
        cr_assert_eq(SSL_key_update(storm->client, SSL_KEY_UPDATE_REQUESTED), 1);
        cr_assert_eq(SSL_do_handshake(storm->client), 1);
    }
    return tls_read(storm->server, data, sizeof data);
}

Test(tls_storm, new_keys_now_and_then_are_as_usual)
{
    struct storm storm;
    char data[64];

    begin(&storm);
    for (int i = 0; i < 500; i++) {
        cr_assert_eq(ask_for_keys(&storm, 2), TLS_AGAIN);
        cr_assert_eq(tls_write(storm.server, "data", 4), 4);
        cr_assert_eq(SSL_read(storm.client, data, sizeof data), 4);
    }
    end(&storm);
}

Test(tls_storm, new_keys_by_the_hundred_take_no_time)
{
    struct storm storm;

    begin(&storm);
    cr_expect_eq(ask_for_keys(&storm, 200), TLS_BROKEN);
    cr_expect(strstr(tls_why(storm.server), "keys") != NULL, "%s", tls_why(storm.server));
    end(&storm);
}

Test(tls_storm, answers_that_nobody_reads_take_no_memory)
{
    struct storm storm;
    int i = 0;

    begin(&storm);
    while (i < 100000 && ask_for_keys(&storm, 1) == TLS_AGAIN) {
        i++;
    }
    cr_expect_lt(i, 100000);
    cr_expect(strstr(tls_why(storm.server), "read") != NULL, "%s", tls_why(storm.server));
    end(&storm);
}
