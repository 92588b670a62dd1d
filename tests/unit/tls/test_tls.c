#include "tls_files.h"

#include <criterion/criterion.h>
#include <event2/util.h>
#include <netinet/in.h>
#include <openssl/pem.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

/* Both sides, with contexts that trust each other. */
struct both {
    struct tls_files files;
    struct tls_settings server_settings;
    struct tls_settings client_settings;
    struct tls_identity server_identity;
    struct tls_context *server;
    struct tls_context *client;
    struct tls_pair pair;
};

static void prepare(struct both *both)
{
    memset(both, 0, sizeof *both);
    tls_files_open(&both->files);
    both->server_identity = tls_files_server(&both->files);
    both->server_settings = tls_files_settings(true);
    both->server_settings.certificate = both->server_identity.path;
    both->client_settings = tls_files_settings(false);
    both->client_settings.ca = both->files.ca;
}

static bool connect_both(struct both *both, const char *host)
{
    both->server = tls_files_context(&both->server_settings);
    both->client = tls_files_context(&both->client_settings);
    tls_pair_open(&both->pair, both->server, both->client, host);
    return tls_pair_shake_hands(&both->pair);
}

static void drop(struct both *both)
{
    tls_pair_close(&both->pair);
    tls_context_release(both->server);
    tls_context_release(both->client);
    tls_files_close(&both->files);
}

/* ---- handshakes ---- */

#define NOT_VALID_FOR(host) "its certificate is not valid for " host ": "

static const struct {
    struct tls_subject subject;
    const char *host, *why;
} refusals[] = {
    {{"x", -1, "DNS:redis.example", 0, false}, "localhost", NOT_VALID_FOR("localhost") "hostname mismatch"},
    {{"x", -1, "IP:127.0.0.2", 0, false}, "127.0.0.1", NOT_VALID_FOR("127.0.0.1") "IP address mismatch"},
    {{"x", -1, "DNS:127.0.0.1", 0, false}, "127.0.0.1", NOT_VALID_FOR("127.0.0.1") "IP address mismatch"},
    {{"localhost\0.example", 18, NULL, 0, false}, "localhost", NOT_VALID_FOR("localhost") "hostname mismatch"},
    {{"localhost", -1, NULL, 0, false}, "localhost", "(its alternative names count, its CN does not)"},
    {{"localhost", -1, NULL, 0, true}, "localhost", "self-signed"},
};

Test(tls, a_certificate_that_is_not_good_is_refused_and_says_why)
{
    for (size_t i = 0; i < sizeof refusals / sizeof refusals[0]; i++) {
        struct both both;
        prepare(&both);
        both.server_identity = tls_files_issue(&both.files, "bad.pem", refusals[i].subject);
        both.server_settings.certificate = both.server_identity.path;
        cr_expect_not(connect_both(&both, refusals[i].host), "%s", refusals[i].why);
        cr_expect_eq(tls_failure(both.pair.client), TLS_FAILURE_CERTIFICATE, "%s", refusals[i].why);
        cr_expect_not_null(strstr(tls_why(both.pair.client), refusals[i].why), "%s", tls_why(both.pair.client));
        cr_expect_eq(tls_state(both.pair.server), TLS_FAILED);
        drop(&both);
    }
}

/* ---- contexts ---- */

static void expect_fault(const struct tls_settings *settings, enum tls_setting setting, const char *problem)
{
    struct tls_fault fault;

    cr_expect_null(tls_context_new(settings, &fault));
    cr_expect_eq(fault.setting, setting, "%s", fault.problem);
    cr_expect_not_null(strstr(fault.problem, problem), "%s", fault.problem);
}

Test(tls, files_and_words_that_are_wrong_are_named)
{
    struct both both;

    prepare(&both);
    struct tls_settings settings = both.server_settings;
    settings.certificate = "/nowhere/x.pem";
    expect_fault(&settings, TLS_SETTING_CERTIFICATE, "cannot be read: No such file");
    settings.certificate = "/dev/null";
    expect_fault(&settings, TLS_SETTING_CERTIFICATE, "holds no certificate");
    settings.certificate = "";
    expect_fault(&settings, TLS_SETTING_CERTIFICATE, "there is no certificate");
    settings.certificate = both.files.ca;
    expect_fault(&settings, TLS_SETTING_KEY, "no private key beside it");
    settings.key = both.server_identity.path;
    expect_fault(&settings, TLS_SETTING_KEY, "is not that of the certificate");
    settings = both.server_settings;
    settings.client_certificates = TLS_CLIENT_CERTIFICATES_REQUIRED;
    expect_fault(&settings, TLS_SETTING_CA, "nobody is trusted");
    settings.ca = "/dev/null";
    expect_fault(&settings, TLS_SETTING_CA, "holds no certificate");
    settings.ca = both.files.ca;
    settings.crl = both.files.ca;
    expect_fault(&settings, TLS_SETTING_CRL, "holds no list");
    settings = both.server_settings;
    settings.protocols = "TLSv1.1";
    expect_fault(&settings, TLS_SETTING_PROTOCOLS, "\"TLSv1.1\" is not one");
    settings.protocols = "TLSv1.3";
    settings.ciphers = "nothing";
    expect_fault(&settings, TLS_SETTING_CIPHERS, "no such cipher");
    settings.ciphers = "";
    settings.ciphersuites = "nothing";
    expect_fault(&settings, TLS_SETTING_CIPHERSUITES, "no such cipher");
    tls_files_close(&both.files);
}

Test(tls, a_key_with_a_passphrase_is_a_fault_and_asks_nobody)
{
    struct both both;
    char path[96];
    EVP_PKEY *key = EVP_EC_gen("P-256");

    prepare(&both);
    snprintf(path, sizeof path, "%s/locked.pem", both.files.directory);
    FILE *out = fopen(path, "w");
    cr_assert_eq(PEM_write_PrivateKey(out, key, EVP_aes_128_cbc(), (const unsigned char *)"x", 1, NULL, NULL), 1);
    fclose(out);
    EVP_PKEY_free(key);
    both.server_settings.key = path;
    expect_fault(&both.server_settings, TLS_SETTING_KEY, "wants a passphrase");
    tls_files_close(&both.files);
}

/* ---- resuming ---- */

/* Whether a connection over TCP, as sessions are kept by the address of the server, is a resumed one. */
static bool resumes(struct tls_context *server, struct tls_context *client, int listener, const char *host)
{
    struct tls_pair pair;
    struct sockaddr_storage address;
    socklen_t length = sizeof address;
    char data[8];

    tls_pair_open(&pair, server, client, host);
    tls_free(pair.server);
    tls_free(pair.client);
    close(pair.fds[0]);
    close(pair.fds[1]);
    cr_assert_eq(getsockname(listener, (struct sockaddr *)&address, &length), 0);
    pair.fds[1] = socket(AF_INET, SOCK_STREAM, 0);
    cr_assert_eq(connect(pair.fds[1], (struct sockaddr *)&address, length), 0);
    pair.fds[0] = accept4(listener, NULL, NULL, SOCK_NONBLOCK);
    (void)evutil_make_socket_nonblocking(pair.fds[1]);
    pair.server = tls_new(server, pair.wire, pair.fds[0], NULL);
    pair.client = tls_new(client, pair.wire, pair.fds[1], host);
    for (int i = 0; i < 1000 && !tls_pair_shake_hands(&pair) && tls_state(pair.client) != TLS_FAILED; i++) {
        usleep(1000);
    }
    bool resumed = tls_is_resumed(pair.client);
    cr_expect_eq(tls_is_resumed(pair.server), resumed);
    /* By TLS 1.3 tickets come behind the handshake. */
    if (tls_state(pair.server) == TLS_OPEN) {
        cr_expect_eq(tls_write(pair.server, "x", 1), 1);
    }
    for (int i = 0; i < 1000 && tls_read(pair.client, data, sizeof data) == TLS_AGAIN; i++) {
        usleep(1000);
    }
    tls_pair_close(&pair);
    return resumed;
}

static void expect_resumption(const char *protocols)
{
    struct both both;
    const struct sockaddr_in loopback = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    int listener = socket(AF_INET, SOCK_STREAM, 0);

    cr_assert_eq(bind(listener, (const struct sockaddr *)&loopback, sizeof loopback), 0);
    cr_assert_eq(listen(listener, 4), 0);
    prepare(&both);
    both.server_settings.protocols = protocols;
    both.server = tls_files_context(&both.server_settings);
    both.client = tls_files_context(&both.client_settings);
    cr_expect_not(resumes(both.server, both.client, listener, "localhost"));
    cr_expect(resumes(both.server, both.client, listener, "localhost"));
    cr_expect(resumes(both.server, both.client, listener, "127.0.0.1"));
    /* A name that the certificate does not have: what comes is a full handshake, which is refused. */
    cr_expect_not(resumes(both.server, both.client, listener, "elsewhere.example"));
    /* Other keys, as after a reload: the tickets of before open nothing. */
    struct tls_context *other = tls_files_context(&both.server_settings);
    cr_expect_not(resumes(other, both.client, listener, "localhost"));
    tls_context_release(other);
    tls_context_release(both.server);
    tls_context_release(both.client);
    tls_files_close(&both.files);
    close(listener);
}

Test(tls, sessions_of_1_2_are_resumed)
{
    expect_resumption("TLSv1.2");
}

Test(tls, sessions_of_1_3_are_resumed)
{
    expect_resumption("TLSv1.3");
}
