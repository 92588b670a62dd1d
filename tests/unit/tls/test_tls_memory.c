/* What is left of a moment in which OpenSSL had no memory: nothing, but for the connection that met it. And what
 * OpenSSL has for a connection. */
#include "tls_files.h"

#include "tls/tls_private.h"

#include <criterion/criterion.h>
#include <malloc.h>
#include <openssl/err.h>
#include <openssl/pem.h>
#include <stdlib.h>

#define ALLOCATIONS_MAX 10000

/* The allocator is one for the process. This many calls from now one fails; 0: none does. */
static long countdown;
/* What it has handed out. Bytes. */
static size_t held;

static bool is_refused(void)
{
    return countdown > 0 && --countdown == 0;
}

static void *take(size_t size, const char *file, int line)
{
    (void)file;
    (void)line;
    void *memory = is_refused() ? NULL : malloc(size);
    held += malloc_usable_size(memory);
    return memory;
}

static void *take_again(void *memory, size_t size, const char *file, int line)
{
    (void)file;
    (void)line;
    size_t before = malloc_usable_size(memory);
    void *again = is_refused() ? NULL : realloc(memory, size);
    held += again != NULL ? malloc_usable_size(again) - before : 0;
    return again;
}

static void give_back(void *memory, const char *file, int line)
{
    (void)file;
    (void)line;
    held -= malloc_usable_size(memory);
    free(memory);
}

/* OpenSSL takes another allocator only before it has used its own. */
__attribute__((constructor)) static void use_allocator(void)
{
    if (CRYPTO_set_mem_functions(take, take_again, give_back) != 1) {
        abort();
    }
}

/* Whether whom the authority vouches for is believed. */
static bool is_believed(const struct tls_context *context, X509 *certificate)
{
    X509_STORE_CTX *look = X509_STORE_CTX_new();
    bool is = look != NULL && X509_STORE_CTX_init(look, SSL_CTX_get_cert_store(context->ssl), certificate, NULL) == 1 &&
              X509_verify_cert(look) == 1;

    X509_STORE_CTX_free(look);
    ERR_clear_error();
    return is;
}

static X509 *read_certificate(const char *path)
{
    FILE *file = fopen(path, "r");

    cr_assert_not_null(file);
    X509 *certificate = PEM_read_X509(file, NULL, NULL, NULL);
    fclose(file);
    cr_assert_not_null(certificate);
    return certificate;
}

/* The call of that number fails while a certificate is looked at; then one that is as good is. False: there are not so
 * many calls. */
static bool try_refusal(const struct tls_settings *settings, const char *path, long number)
{
    struct tls_context *context = tls_files_context(settings);
    X509 *first = read_certificate(path);
    X509 *second = read_certificate(path);

    countdown = number;
    (void)is_believed(context, first);
    bool was_refused = countdown == 0;
    countdown = 0;
    cr_expect(is_believed(context, second), "after call %ld was refused", number);
    X509_free(first);
    X509_free(second);
    tls_context_release(context);
    return was_refused;
}

Test(tls_memory, an_authority_is_believed_again)
{
    struct tls_files files;
    struct tls_settings settings = tls_files_settings(false);
    long number = 1;

    tls_files_open(&files);
    struct tls_identity identity = tls_files_server(&files);
    settings.ca = files.ca;
    while (number < ALLOCATIONS_MAX && try_refusal(&settings, identity.path, number)) {
        number++;
    }
    cr_expect_gt(number, 20, "%ld calls were refused", number - 1);
    cr_expect_lt(number, ALLOCATIONS_MAX);
    tls_files_close(&files);
}

/* ---- connections ---- */

/* What OpenSSL has for both ends of a connection. Bytes. */
static size_t cost(const struct tls_settings *server_settings, const struct tls_settings *client_settings)
{
    struct tls_context *server = tls_files_context(server_settings), *client;
    struct tls_pair pair;
    char data[8];
    size_t before = 0;

    /* What the first one leaves behind is for all, but for its session. */
    for (int i = 0; i < 2; i++) {
        client = tls_files_context(client_settings);
        before = held;
        tls_pair_open(&pair, server, client, "localhost");
        cr_assert(tls_pair_shake_hands(&pair));
        cr_expect_eq(tls_write(pair.server, "x", 1), 1);
        cr_expect_eq(tls_read(pair.client, data, sizeof data), 1);
        before = held - before;
        cr_expect_eq(tls_names(pair.server) != NULL, *client_settings->certificate != '\0');
        tls_pair_close(&pair);
        tls_context_release(client);
    }
    tls_context_release(server);
    return before;
}

static void expect_that_a_certificate_costs_nothing(const char *protocols)
{
    struct tls_files files;
    struct tls_settings server = tls_files_settings(true), client = tls_files_settings(false);

    tls_files_open(&files);
    struct tls_identity identity = tls_files_server(&files);
    server.certificate = identity.path;
    server.protocols = protocols;
    server.ca = client.ca = files.ca;
    server.client_certificates = TLS_CLIENT_CERTIFICATES_OPTIONAL;
    size_t without = cost(&server, &client);
    client.certificate = identity.path;
    size_t with = cost(&server, &client);
    /* The client's ticket has it. */
    cr_expect_lt(with, without + 2048, "%zu bytes with a certificate, %zu without", with, without);
    tls_files_close(&files);
}

Test(tls_memory, a_certificate_is_not_kept_behind_its_names)
{
    expect_that_a_certificate_costs_nothing("TLSv1.2");
    expect_that_a_certificate_costs_nothing("TLSv1.3");
}
