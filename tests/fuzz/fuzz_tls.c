/*
 * Fuzzes the bytes below TLS: how they are cut, changed, lost or made up between Headgate's side (proxy/tls) and
 * OpenSSL at the other end, with a socket that takes little. The input is what happens, an operation and a size each.
 * What must hold:
 * - whoever reads gets the beginning of what the other one wrote, whatever became of the bytes;
 * - if nothing became of them, all arrives in the end, though Headgate's side is only called as an event loop would:
 * when the socket can be read or written, or there is input inside;
 * - a connection that has failed stays so, and says why; one that is open has only failed if its bytes were touched;
 * - what is kept for one connection is bounded, and nothing of it is left in what all connections of a thread share.
 */
#include "tls/tls.h"
#include "tls/tls_private.h"

#include "fuzz_cut.h"
#include "rig_certificate.h"

#include <openssl/err.h>
#include <poll.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);
int LLVMFuzzerInitialize(int *count, char ***arguments);

#define PATH_SIZE 128
#define MOST_AT_ONCE ((size_t)48 * 1024)
/* Of a byte of the input. */
#define SIZE_STEP 193
/* More would rightly be taken for an attack. */
#define NEW_KEYS_MOST 8
/* What may be kept: answers to new keys, and what one call leaves behind (tls_private.h), in blocks of powers of two.
 */
#define KEPT_MOST (8 * TLS_OUT_SIZE)
#define ROUNDS_MOST 20000
#define SOCKET_SIZE 8192

enum { HEADGATE_IS_SERVER, HEADGATE_IS_CLIENT };

/* Made once: contexts of Headgate's side and of the peer, each for the case that Headgate's is server or client. */
struct setting {
    struct tls_context *own[2];
    SSL_CTX *peer[2];
    struct tls_wire *wire;
    struct buffer_pool pool;
};

struct line {
    struct setting *setting;
    int fds[2];
    struct tls *own;
    SSL *peer;
    uint8_t *plain;         /* what either side writes, from the beginning */
    size_t own_wrote;       /* so much of it is done with */
    size_t peer_wrote;      /* … was sealed by the peer */
    size_t own_read;        /* … has arrived here */
    size_t peer_read;       /* … there */
    unsigned new_keys;      /* asked for by the peer */
    bool is_touched;        /* bytes were changed, lost or made up, or the end came too soon */
    bool own_ends, has_eof; /* this side has ended its stream; the socket has ended */
    bool own_heard_end;     /* a read has said so; nobody reads again */
};

#define PLAIN_SIZE ((size_t)4 * 1024 * 1024)

/* ---- making it ---- */

static struct tls_settings settings_of(bool is_server, const char *certificate, const char *ca)
{
    return (struct tls_settings){
        .is_server = is_server,
        .certificate = is_server ? certificate : "",
        .key = "",
        .ca = is_server ? "" : ca,
        .crl = "",
        .verifies = true,
        .server_name = "",
        .protocols = "TLSv1.2 TLSv1.3",
        .ciphers = "",
        .ciphersuites = "",
    };
}

static void make_own(struct setting *setting, int role, const char *certificate, const char *key, const char *ca)
{
    struct tls_settings settings = settings_of(role == HEADGATE_IS_SERVER, certificate, ca);
    struct tls_fault fault;

    settings.key = role == HEADGATE_IS_SERVER ? key : "";
    setting->own[role] = tls_context_new(&settings, &fault);
    require(setting->own[role] != NULL);
}

static void make_peer(struct setting *setting, int role, const char *certificate, const char *key)
{
    setting->peer[role] = SSL_CTX_new(role == HEADGATE_IS_SERVER ? TLS_client_method() : TLS_server_method());
    require(setting->peer[role] != NULL);
    SSL_CTX_set_session_cache_mode(setting->peer[role], SSL_SESS_CACHE_OFF);
    if (role == HEADGATE_IS_CLIENT) {
        require(SSL_CTX_use_certificate_file(setting->peer[role], certificate, SSL_FILETYPE_PEM) == 1);
        require(SSL_CTX_use_PrivateKey_file(setting->peer[role], key, SSL_FILETYPE_PEM) == 1);
    }
}

static void make_setting(struct setting *setting)
{
    char directory[] = "/tmp/headgate-fuzz-XXXXXX";
    char certificate[PATH_SIZE], key[PATH_SIZE], ca[PATH_SIZE];
    struct authority *authority = authority_make(1);

    require(authority != NULL && mkdtemp(directory) != NULL);
    snprintf(certificate, sizeof certificate, "%s/certificate.pem", directory);
    snprintf(key, sizeof key, "%s/key.pem", directory);
    snprintf(ca, sizeof ca, "%s/ca.pem", directory);
    require(authority_write(&authority, 1, ca));
    require(authority_issue(authority, (struct authority_subject){"server", 1}, certificate, key));
    for (int role = HEADGATE_IS_SERVER; role <= HEADGATE_IS_CLIENT; role++) {
        make_own(setting, role, certificate, key, ca);
        make_peer(setting, role, certificate, key);
    }
    authority_free(authority);
    require(unlink(certificate) == 0 && unlink(key) == 0 && unlink(ca) == 0 && rmdir(directory) == 0);
    setting->wire = tls_wire_new(&setting->pool);
    require(setting->wire != NULL);
}

static struct setting *setting(void)
{
    static struct setting made;

    return &made;
}

static uint8_t *plain(void)
{
    static uint8_t bytes[PLAIN_SIZE];

    return bytes;
}

int LLVMFuzzerInitialize(int *count, char ***arguments)
{
    uint32_t seed = 1;

    (void)count;
    (void)arguments;
    for (size_t i = 0; i < PLAIN_SIZE; i++) {
        plain()[i] = (uint8_t)next_random(&seed);
    }
    make_setting(setting());
    return 0;
}

static void line_open(struct line *line, uint8_t kind)
{
    int role = (kind & 1) != 0 ? HEADGATE_IS_CLIENT : HEADGATE_IS_SERVER, small = SOCKET_SIZE;

    *line = (struct line){.setting = setting(), .plain = plain()};
    require(socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK, 0, line->fds) == 0);
    if ((kind & 4) != 0) {
        (void)setsockopt(line->fds[0], SOL_SOCKET, SO_SNDBUF, &small, sizeof small);
    }
    line->own = tls_new(line->setting->own[role], line->setting->wire, line->fds[0],
                        role == HEADGATE_IS_CLIENT ? "127.0.0.1" : NULL);
    line->peer = SSL_new(line->setting->peer[role]);
    require(line->own != NULL && line->peer != NULL);
    SSL_set_bio(line->peer, BIO_new(BIO_s_mem()), BIO_new(BIO_s_mem()));
    if ((kind & 2) != 0) {
        SSL_set_max_proto_version(line->peer, TLS1_2_VERSION);
    }
    if (role == HEADGATE_IS_CLIENT) {
        SSL_set_accept_state(line->peer);
        (void)tls_handshake(line->own);
    } else {
        SSL_set_connect_state(line->peer);
    }
}

static void line_close(struct line *line)
{
    tls_free(line->own);
    SSL_free(line->peer);
    close(line->fds[0]);
    if (!line->has_eof) {
        close(line->fds[1]);
    }
    require(line->setting->pool.bytes_lent == 0);
    ERR_clear_error();
}

/* ---- Headgate's side ---- */

static void check_own(const struct line *line)
{
    const struct tls_wire *wire = line->setting->wire;

    require(wire->in_length == 0 && wire->out_length == 0);
    require(line->setting->pool.bytes_lent <= KEPT_MOST);
    if (tls_state(line->own) == TLS_FAILED) {
        require(*tls_why(line->own) != '\0');
        require(line->is_touched);
    }
}

/* The room is a block of its own, which the sanitizer watches. */
static void own_read(struct line *line, size_t size)
{
    uint8_t *room = malloc(size);
    bool had_failed = tls_state(line->own) == TLS_FAILED;

    require(room != NULL);
    ssize_t got = tls_read(line->own, (char *)room, size);
    require(!had_failed || got == TLS_BROKEN);
    line->own_heard_end = line->own_heard_end || got == 0;
    if (got > 0) {
        require((size_t)got <= size && line->own_read + (size_t)got <= line->peer_wrote);
        require(memcmp(room, line->plain + line->own_read, (size_t)got) == 0);
        line->own_read += (size_t)got;
    } else if (got == 0) {
        require(line->is_touched || line->own_read == line->peer_wrote);
    }
    free(room);
    check_own(line);
}

static void own_write(struct line *line, size_t size)
{
    ssize_t done;

    if (line->own_ends || line->own_wrote + size > PLAIN_SIZE) {
        return;
    }
    done = tls_write(line->own, (const char *)line->plain + line->own_wrote, size);
    if (done > 0) {
        require((size_t)done <= size);
        line->own_wrote += (size_t)done;
    }
    check_own(line);
}

static void own_handshake(struct line *line)
{
    if (tls_state(line->own) == TLS_HANDSHAKE) {
        (void)tls_handshake(line->own);
        check_own(line);
    }
}

static void own_end(struct line *line)
{
    if (tls_state(line->own) == TLS_OPEN && !line->own_ends) {
        tls_end_output(line->own);
        line->own_ends = true;
        check_own(line);
    }
}

static bool can_be_read(const struct line *line)
{
    struct pollfd asked = {.fd = line->fds[0], .events = POLLIN};

    return !line->own_heard_end && poll(&asked, 1, 0) == 1;
}

/* As the event loop does. False: there is nothing to be done. */
static bool own_attend(struct line *line, size_t size)
{
    if (tls_state(line->own) != TLS_FAILED && tls_wants_write(line->own) && !tls_flush(line->own)) {
        require(line->is_touched);
    }
    if (tls_state(line->own) == TLS_HANDSHAKE && can_be_read(line)) {
        own_handshake(line);
        return true;
    }
    if (tls_state(line->own) == TLS_OPEN && !line->own_heard_end && (can_be_read(line) || tls_has_input(line->own))) {
        own_read(line, size);
        return true;
    }
    return false;
}

/* ---- the peer ---- */

/* At most so many bytes of its own go into the socket. */
static bool peer_deliver(struct line *line, size_t most)
{
    char data[MOST_AT_ONCE];
    int length =
        line->has_eof ? 0 : BIO_read(SSL_get_wbio(line->peer), data, (int)(most < sizeof data ? most : sizeof data));

    if (length <= 0) {
        return false;
    }
    /* The test's own end has room for what one operation makes. */
    ssize_t done = send(line->fds[1], data, (size_t)length, MSG_NOSIGNAL);
    line->is_touched = line->is_touched || done < length;
    return done > 0;
}

/* What has come for it is opened. */
static bool peer_fetch(struct line *line, size_t most)
{
    char data[MOST_AT_ONCE];
    ssize_t got = line->has_eof ? 0 : recv(line->fds[1], data, most < sizeof data ? most : sizeof data, 0);
    int length;

    if (got > 0) {
        require(BIO_write(SSL_get_rbio(line->peer), data, (int)got) == (int)got);
    }
    if (SSL_is_init_finished(line->peer) != 1) {
        (void)SSL_do_handshake(line->peer);
    }
    while ((length = SSL_read(line->peer, data, sizeof data)) > 0) {
        require(line->peer_read + (size_t)length <= PLAIN_SIZE);
        require(memcmp(data, line->plain + line->peer_read, (size_t)length) == 0);
        line->peer_read += (size_t)length;
    }
    ERR_clear_error();
    return got > 0;
}

static void peer_seal(struct line *line, size_t size)
{
    if (SSL_is_init_finished(line->peer) == 1 && line->peer_wrote + size <= PLAIN_SIZE &&
        SSL_write(line->peer, line->plain + line->peer_wrote, (int)size) == (int)size) {
        line->peer_wrote += size;
    }
    ERR_clear_error();
}

static void peer_ask_for_keys(struct line *line)
{
    if (SSL_is_init_finished(line->peer) == 1 && line->new_keys < NEW_KEYS_MOST &&
        SSL_key_update(line->peer, SSL_KEY_UPDATE_REQUESTED) == 1) {
        line->new_keys++;
        (void)SSL_do_handshake(line->peer);
    }
    ERR_clear_error();
}

/* ---- what becomes of the bytes ---- */

static void put_raw(struct line *line, const void *bytes, size_t length)
{
    line->is_touched = true;
    if (!line->has_eof) {
        (void)!send(line->fds[1], bytes, length, MSG_NOSIGNAL);
    }
}

/* Of what the peer has to send the first bytes are lost, and one is changed. */
static void harm(struct line *line, size_t lost, uint8_t change)
{
    char data[256];
    int length = BIO_read(SSL_get_wbio(line->peer), data, (int)(lost < sizeof data ? lost : sizeof data));

    if (length > 0) {
        data[0] = (char)((uint8_t)data[0] ^ change);
        line->is_touched = true;
        put_raw(line, data, change != 0 ? (size_t)length : 0);
    }
}

static void end_socket(struct line *line)
{
    if (!line->has_eof) {
        line->is_touched = true;
        shutdown(line->fds[1], SHUT_WR);
        close(line->fds[1]);
        line->has_eof = true;
    }
}

/* ---- the input ---- */

enum operation {
    OPERATION_ATTEND,
    OPERATION_READ,
    OPERATION_WRITE,
    OPERATION_DELIVER,
    OPERATION_DELIVER_LITTLE,
    OPERATION_FETCH,
    OPERATION_SEAL,
    OPERATION_EXCHANGE, /* both go on as far as they can */
    OPERATION_NEW_KEYS,
    OPERATION_SAY_END,
    OPERATION_END_OWN,
    OPERATION_CHANGE,
    OPERATION_LOSE,
    OPERATION_RAW,
    OPERATION_END_SOCKET,
    OPERATIONS
};

/* Until nothing moves: what Headgate's side has flushed into the socket is seen by the peer in the next round. */
static void exchange(struct line *line)
{
    unsigned idle = 0;

    for (int i = 0; i < ROUNDS_MOST && idle < 2; i++) {
        bool moves = peer_fetch(line, MOST_AT_ONCE);
        moves = peer_deliver(line, MOST_AT_ONCE) || moves;
        moves = own_attend(line, MOST_AT_ONCE) || moves;
        idle = moves ? 0 : idle + 1;
    }
    require(idle == 2);
}

static void operate(struct line *line, enum operation operation, uint8_t argument)
{
    static const uint8_t records[][5] = {{0x17, 3, 3, 0, 0},    {0x17, 3, 3, 0x40, 0x12}, {0x15, 3, 3, 0, 2},
                                         {0x16, 3, 3, 0x40, 0}, {0x14, 3, 3, 0, 1},       {'*', '1', '\r', '\n', '$'}};
    size_t size = 1 + (size_t)argument * SIZE_STEP;

    switch (operation) {
    case OPERATION_ATTEND:
        (void)own_attend(line, size);
        break;
    case OPERATION_READ:
        own_read(line, size);
        break;
    case OPERATION_WRITE:
        own_write(line, size);
        break;
    case OPERATION_DELIVER:
        (void)peer_deliver(line, size);
        break;
    case OPERATION_DELIVER_LITTLE:
        (void)peer_deliver(line, 1 + argument % 16U);
        break;
    case OPERATION_FETCH:
        (void)peer_fetch(line, size);
        break;
    case OPERATION_SEAL:
        peer_seal(line, size);
        break;
    case OPERATION_EXCHANGE:
        exchange(line);
        break;
    case OPERATION_NEW_KEYS:
        peer_ask_for_keys(line);
        break;
    case OPERATION_SAY_END:
        (void)SSL_shutdown(line->peer);
        ERR_clear_error();
        break;
    case OPERATION_END_OWN:
        own_end(line);
        break;
    case OPERATION_CHANGE:
        harm(line, 1 + argument % 8U, (uint8_t)(1U << argument / 32U));
        break;
    case OPERATION_LOSE:
        harm(line, 1 + argument, 0);
        break;
    case OPERATION_RAW:
        put_raw(line, records[argument % (sizeof records / sizeof *records)], sizeof *records);
        break;
    case OPERATION_END_SOCKET:
        end_socket(line);
        break;
    case OPERATIONS:
        break;
    }
}

/* Of bytes that nobody has touched all must arrive. */
static void finish(struct line *line)
{
    exchange(line);
    if (line->is_touched) {
        return;
    }
    require(tls_state(line->own) == TLS_OPEN && SSL_is_init_finished(line->peer) == 1);
    require(line->own_read == line->peer_wrote);
    require(!tls_wants_write(line->own));
    /* Of a write that was not taken whole the last byte is done only with the next one. */
    require(line->peer_read == line->own_wrote || line->peer_read == line->own_wrote + 1);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct line line;

    if (size < 1) {
        return 0;
    }
    line_open(&line, data[0]);
    for (size_t i = 1; i + 1 < size; i += 2) {
        operate(&line, (enum operation)(data[i] % OPERATIONS), data[i + 1]);
    }
    finish(&line);
    line_close(&line);
    return 0;
}
