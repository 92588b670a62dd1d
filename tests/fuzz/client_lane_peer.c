/* Clients: what they send, and that they get what their reference says and nothing of anybody else. */
#include "client_lane.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#define IDENTITY_LENGTH 26

/* ---- identities ---- */

static uint64_t mix(uint64_t value)
{
    value = (value ^ value >> 30) * 0xbf58476d1ce4e5b9U;
    value = (value ^ value >> 27) * 0x94d049bb133111ebU;
    return value ^ value >> 31;
}

/* "~" serial "~" hash: what no script can guess, so that it can only come from the client of that serial. */
static void write_identity(char *text, uint32_t serial)
{
    snprintf(text, IDENTITY_LENGTH + 1, "~%08x~%016llx", serial,
             (unsigned long long)mix(0x9e3779b97f4a7c15U * (serial + 1)));
}

static void require_no_foreign_identity(const struct peer *peer)
{
    const char *text = peer->received.data;
    size_t left = peer->received.length;

    while (left >= IDENTITY_LENGTH) {
        char number[9] = "", expected[IDENTITY_LENGTH + 1];
        const char *tilde = memchr(text, '~', left - IDENTITY_LENGTH + 1);
        if (tilde == NULL) {
            return;
        }
        memcpy(number, tilde + 1, 8);
        uint32_t serial = (uint32_t)strtoul(number, NULL, 16);
        write_identity(expected, serial);
        require(memcmp(tilde, expected, IDENTITY_LENGTH) != 0 || serial == peer->serial);
        left -= (size_t)(tilde + 1 - text);
        text = tilde + 1;
    }
}

/* ---- what a client received ---- */

static size_t message_at(const struct bytes *bytes, size_t position)
{
    static const char *const texts[] = {model_message, model_push};

    for (size_t i = 0; i < 2; i++) {
        size_t length = strlen(texts[i]);
        if (bytes->length - position >= length && memcmp(bytes->data + position, texts[i], length) == 0) {
            return length;
        }
    }
    return 0;
}

/* Whether all that came from there on, or from a little before it, is the beginning of a message: it may begin as the
 * expected reply does. */
static bool is_part_of_message(const struct bytes *bytes, size_t position)
{
    static const char *const texts[] = {model_message, model_push};

    for (size_t i = 0; i < 2; i++) {
        size_t length = strlen(texts[i]);
        for (size_t common = 0; common <= position && bytes->length - position + common < length; common++) {
            size_t start = position - common;
            if (memcmp(bytes->data + start, texts[i], bytes->length - start) == 0) {
                return true;
            }
        }
    }
    return false;
}

/* For who looks into a finding. */
static void show(const char *what, const struct bytes *bytes, size_t position)
{
    size_t start = position > 200 ? position - 200 : 0;

    fprintf(stderr, "\n%s, from byte %zu of %zu, at %zu:\n", what, start, bytes->length, position);
    for (size_t i = start; i < bytes->length && i < position + 400; i++) {
        unsigned char byte = (unsigned char)bytes->data[i];
        fprintf(stderr, byte >= ' ' && byte < 127 ? "%c" : "\\x%02x", byte);
    }
    fprintf(stderr, "\n");
}

static void require_same(bool holds, const struct peer *peer, size_t position, size_t matched)
{
    if (!holds) {
        show("received", &peer->received, position);
        show("expected", &peer->reference.output, matched);
        abort();
    }
}

/* Headgate's own error may begin as the expected one does: "-ERR ". */
static bool is_unsent_error(const struct bytes *got, size_t position)
{
    static const char error[] = "-ERR headgate: ";
    size_t length = sizeof error - 1;

    for (size_t common = 0; common <= 5 && common <= position; common++) {
        size_t start = position - common;
        if (got->length - start >= length && memcmp(got->data + start, error, length) == 0) {
            return true;
        }
    }
    return false;
}

/* Messages come when they come; all else must be what the reference answered. Returns how much of that came. The last
 * message may have come in part, unless everything has come to rest. */
static size_t compare(const struct peer *peer, bool at_rest)
{
    const struct bytes *got = &peer->received;
    const struct bytes *expected = &peer->reference.output;
    size_t position = 0;
    size_t matched = 0;

    while (position < got->length) {
        size_t message = peer->subscribed ? message_at(got, position) : 0;
        if (message > 0) {
            position += message;
        } else if (matched < expected->length && got->data[position] == expected->data[matched]) {
            position++;
            matched++;
        } else {
            break;
        }
    }
    if (position < got->length) {
        bool unsent = peer->excused && is_unsent_error(got, position);
        bool under_way = peer->subscribed && (peer->excused || !at_rest) && is_part_of_message(got, position);
        require_same(unsent || under_way, peer, position, matched);
    }
    return matched;
}

void peer_check(const struct world *world, const struct peer *peer, bool at_rest)
{
    if (world->garbage || peer->serial == 0) {
        return;
    }
    if (peer->wild) {
        require_no_foreign_identity(peer);
        return;
    }
    size_t matched = compare(peer, at_rest);
    if (at_rest && !peer->excused) {
        require_same(matched == peer->reference.output.length, peer, peer->received.length, matched);
    }
}

/* ---- clients ---- */

void peer_forget(struct world *world, struct peer *peer)
{
    peer_check(world, peer, false);
    if (peer->fd >= 0) {
        close(peer->fd);
    }
    bytes_free(&peer->to_send);
    bytes_free(&peer->received);
    model_free(&peer->reference);
    *peer = (struct peer){.fd = -1};
}

static void peer_connect(struct world *world, struct peer *peer)
{
    const struct client_origin origin = {.address.ss_family = AF_UNIX};
    const int small = 4096;
    int pair[2];

    peer_forget(world, peer);
    require(socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0, pair) == 0);
    if (world->small_sockets) {
        setsockopt(pair[0], SOL_SOCKET, SO_SNDBUF, &small, sizeof small);
    }
    peer->fd = pair[1];
    peer->serial = (uint32_t)++world->last_client_id;
    peer->excused = world->broken > 0;
    model_init(&peer->reference, true);
    require(client_accept(world->service, pair[0], &origin, world->last_client_id));
}

/* '@' stands for the client's identity, '#' for a request that is cut through, '^' for one with a heavy reply. */
static const char *const requests[] = {
    "ECHO @",
    "ECHO #",
    "ECHO ^",
    "PING",
    "MULTI",
    "EXEC",
    "DISCARD",
    "WATCH k",
    "UNWATCH",
    "SELECT 1",
    "SELECT 0",
    "SELECT 7",
    "HELLO 3",
    "HELLO 2",
    "HELLO 4",
    "HELLO 3 AUTH u p",
    "HELLO 2 AUTH v wrong",
    "AUTH u p",
    "AUTH v p",
    "AUTH u wrong",
    "RESET",
    "QUIT",
    "CLIENT SETNAME one",
    "CLIENT SETNAME two",
    "CLIENT GETNAME",
    "CLIENT SETINFO LIB-NAME lib",
    "CLIENT REPLY ON",
    "CLIENT REPLY OFF",
    "CLIENT REPLY SKIP",
    "CLIENT TRACKING ON",
    "CLIENT TRACKING OFF",
    "CLIENT ID",
    "SUBSCRIBE a",
    "SUBSCRIBE b c",
    "UNSUBSCRIBE a",
    "UNSUBSCRIBE",
    "BLPOP k 0",
    "WAIT 0 0",
    "DBSIZE",
    "ACL WHOAMI",
    "GET k",
    "TOUCH k",
    "NOSUCH @",
    "INCR k",
    "DECR k",
    "APPEND k #",
    "WATCH",
    "GET",
    "EXEC k",
    "ECHO @ @",
    "*0",
    /* '!' stands for a NUL. */
    "HELLO 3 AUTH! u p",
    "HELLO 2 auth!x v p",
    "CLIENT REPLY SKIP!",
    "CLIENT REPLY OFF!x",
    "CLIENT REPLY ON!",
    "CLIENT REPLY!x SKIP",
    "CLIENT TRACKING ON!",
    "CLIENT TRACKING OFF!x",
    "SELECT 1!",
    "AUTH u p!",
    "SUBSCRIBE! x",
    "MULTI!1 x",
    "AUTH!x x",
    "ACL WHOAMI!",
    "BLPOP!x x",
    "XREAD BLOCK! 0 STREAMS s $",
    "XREADGROUP GROUP g c block!x 0 STREAMS s >",
    "XREAD COUNT 1 STREAMS block! 0",
    "KCLIENT REPLY SKIP",
    "kclient reply off!",
    "KCLIENT GETNAME",
    "KSUB a",
    "KAUTH v p",
    "KAUTH u wrong",
    "KMULTI",
    "HCLIENT REPLY SKIP",
    "HCLIENT REPLY OFF",
    "HSUB a",
    "HAUTH v p",
    "HRESET",
    "NOSUCH",
};

#define REQUESTS (sizeof requests / sizeof requests[0])

/* '!' stands for a NUL. */
static void add_word(struct bytes *request, const char *word, size_t length)
{
    for (size_t i = 0; i < length; i++) {
        bytes_add(request, word[i] == '!' ? "" : word + i, 1);
    }
}

static void add_argument(struct peer *peer, struct bytes *request, const char *word, size_t length)
{
    static const char filling[70 * 1024];
    char text[64], identity[IDENTITY_LENGTH + 1];
    size_t extra = *word == '#' ? 3000 : *word == '^' ? sizeof filling : 0;

    write_identity(identity, peer->serial);
    if (length == 1 && (*word == '@' || extra > 0)) {
        /* The number of the request makes each reply another. */
        char number[12];
        int digits = snprintf(number, sizeof number, "%u", peer->requests);
        size_t total = (size_t)digits + IDENTITY_LENGTH + extra;
        bytes_add(request, text, (size_t)snprintf(text, sizeof text, "$%zu\r\n%s%s", total, number, identity));
        bytes_add(request, filling, extra);
    } else {
        bytes_add(request, text, (size_t)snprintf(text, sizeof text, "$%zu\r\n", length));
        add_word(request, word, length);
    }
    bytes_add(request, "\r\n", 2);
}

static size_t count_words(const char *text)
{
    size_t count = 1;

    for (; *text != '\0'; text++) {
        count += *text == ' ';
    }
    return count;
}

static void add_request(struct peer *peer, const char *text)
{
    struct bytes request = {0};
    char head[16];

    peer->requests++;
    if (strcmp(text, "*0") == 0) {
        bytes_add(&request, "*0\r\n", 4);
    } else {
        bytes_add(&request, head, (size_t)snprintf(head, sizeof head, "*%zu\r\n", count_words(text)));
        for (const char *word = text; word != NULL;) {
            const char *blank = strchr(word, ' ');
            add_argument(peer, &request, word, blank != NULL ? (size_t)(blank - word) : strlen(word));
            word = blank != NULL ? blank + 1 : NULL;
        }
    }
    model_feed(&peer->reference, request.data, request.length);
    bytes_add(&peer->to_send, request.data, request.length);
    bytes_free(&request);
}

/* What the reference cannot know: these end or change the connection in a way of Headgate's own. */
static void note_request(struct peer *peer, const char *text)
{
    bool is_subscription = strstr(text, "SUBSCRIBE") != NULL || strstr(text, "SUB a") != NULL;
    bool is_reply_mode = strcasestr(text, "CLIENT REPLY") != NULL;
    bool is_identity =
        strcasestr(text, "AUTH") != NULL || strcmp(text, "RESET") == 0 || strstr(text, "SETNAME") != NULL;

    if (*text == 'K' || *text == 'k') {
        /* If Redis could not be asked what it is, it is as a hidden one. */
        peer->excused = true;
    }
    if (*text == 'H' && strncmp(text, "HELLO", 5) != 0) {
        /* Headgate cannot know what it is: the client is on its own from here on, and closed for the policy's sake. */
        peer->wild = true;
        peer->excused = true;
    }

    peer->tunnelled = peer->tunnelled || is_reply_mode || (peer->transacted && is_subscription);
    peer->subscribed = peer->subscribed || strncmp(text, "SUBSCRIBE ", 10) == 0 || strcmp(text, "KSUB a") == 0;
    peer->transacted = peer->transacted || strcmp(text, "MULTI") == 0 || strcmp(text, "KMULTI") == 0;
    /* In a passthrough Redis refuses it by words of its own, or the client is closed: also as nobody can tell who it
     * is. */
    bool is_refused = strcmp(text, "DECR k") == 0 || strchr(text, '!') != NULL;
    peer->wild = peer->wild || (peer->tunnelled && (is_refused || is_identity));
    peer->excused = peer->excused || strcmp(text, "QUIT") == 0 || peer->wild;
}

void step_request(struct world *world, struct peer *peer, struct steps *script)
{
    const char *text = requests[next_byte(script) % REQUESTS];

    if (peer->fd < 0 || peer->ended) {
        peer_connect(world, peer);
    }
    if (strchr(text, '^') != NULL) {
        if (world->heavy_left == 0) {
            return;
        }
        world->heavy_left--;
    }
    note_request(peer, text);
    add_request(peer, text);
}

void step_raw(struct world *world, struct peer *peer, struct steps *script)
{
    size_t length = next_byte(script);

    if (peer->fd < 0 || peer->ended) {
        peer_connect(world, peer);
    }
    peer->wild = true;
    peer->excused = true;
    if (length > script->left) {
        length = script->left;
    }
    bytes_add(&peer->to_send, (const char *)script->next, length);
    script->next += length;
    script->left -= length;
}

void step_end_input(struct peer *peer)
{
    if (peer->fd >= 0 && peer->to_send.length == 0 && !peer->ended) {
        shutdown(peer->fd, SHUT_WR);
        peer->ended = true;
        peer->excused = true;
    }
}

void peer_read(struct world *world, struct peer *peer)
{
    if (peer->fd < 0 || peer->stalled) {
        return;
    }
    if (!receive(world, peer->fd, &peer->received)) {
        require_same(peer->excused || world->garbage, peer, peer->received.length, peer->reference.output.length);
        peer_forget(world, peer);
    }
}
