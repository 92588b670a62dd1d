/*
 * Fuzzes the whole way of a request: client, session, upstream, lane and back, in one process. The input is a script:
 * its first byte says how Headgate is set, and then each step says what a client sends, how much of it Redis takes and
 * answers, who closes, who does not read, and when the loop turns. Redis is redis_model.c, one model for each lane.
 *
 * What must hold:
 * - Beside each client runs a model of its own, fed with the same requests: what the client receives is the beginning
 *   of what that model answers, and all of it once everything has come to rest. Nobody else's reply, none lost, none
 *   doubled, none out of order, no database, user, name or subscription of anybody else.
 * - A client is closed only for a reason that the script gave.
 * - Whatever clients send (RAW), nobody gets what belongs to another. Whatever Redis sends (GARBAGE), nothing crashes.
 * - Every request that the policy passed or held is ended once; every byte of every buffer is given back.
 */
#include "client.h"
#include "control.h"
#include "log.h"
#include "redis_model.h"

#include "../../policies/policy.h"

#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

#define CLIENTS 4
#define LANES 48
#define STEPS 400
/* Rounds in which everything must have come to rest. */
#define ROUNDS 600
#define IDENTITY_LENGTH 26

struct steps {
    const uint8_t *next;
    size_t left;
};

struct peer {
    int fd; /* the far end of Headgate's connection; -1: none */
    uint32_t serial;
    uint32_t requests;
    struct bytes to_send;
    struct bytes received;
    struct model reference; /* Redis without Headgate */
    bool wild;              /* sent anything at all: the reference knows nothing */
    bool excused;           /* may be closed, or may lose what is under way */
    bool stalled;           /* does not read */
    bool subscribed;        /* was, at some time */
    bool transacted;        /* has sent MULTI */
    bool tunnelled;         /* may be a tunnel */
    bool ended;             /* has closed its writing half */
};

struct redis_lane {
    int fd;
    struct bytes arrived; /* not yet taken */
    struct model model;
    bool ended;
};

struct world {
    struct reactor reactor;
    struct stats stats;
    struct run_pool runs;
    struct upstream *upstream;
    struct control *control;
    struct chain_roster roster;
    struct learn *learn;
    struct client_service *service;
    int listener;
    int64_t now_us;
    uint64_t last_client_id;
    uint64_t moved; /* bytes and events, to see whether anything still happens */
    uint32_t heavy_left;
    bool small_sockets;
    int broken;   /* a lane is, and Headgate sees it within so many turns: who comes now may be given it */
    bool garbage; /* Redis lied: nothing can be said about what clients get */
    struct peer peers[CLIENTS];
    struct redis_lane lanes[LANES];
};

static void require(bool holds)
{
    if (!holds) {
        abort();
    }
}

static uint8_t next_byte(struct steps *script)
{
    if (script->left == 0) {
        return 0;
    }
    script->left--;
    return *script->next++;
}

/* ---- the policy: INCR is held once, DECR is refused, APPEND passes when it is whole; all that it let go must come
 * back
 * ---- */

struct ledger {
    int64_t owed;
};

static void *policy_start(const struct policy_start *with)
{
    (void)with;
    return calloc(1, sizeof(struct ledger));
}

static void policy_stop(void *instance)
{
    const struct ledger *ledger = instance;

    require(ledger->owed == 0);
    free(instance);
}

static bool policy_wants(void *instance, const struct command *command)
{
    (void)instance;
    return command != NULL && (strcmp(command->name, "incr") == 0 || strcmp(command->name, "decr") == 0 ||
                               strcmp(command->name, "append") == 0);
}

static enum policy_verdict policy_request(void *instance, const struct policy_request *request,
                                          struct policy_decision *decision)
{
    struct ledger *ledger = instance;

    if (strcmp(request->command->name, "decr") == 0) {
        decision->length = (size_t)snprintf(decision->text, sizeof decision->text, MODEL_REFUSAL);
        return POLICY_REPLY;
    }
    ledger->owed += *request->ticket == 0;
    *request->ticket += 1;
    if (strcmp(request->command->name, "incr") == 0 && *request->ticket == 1) {
        decision->hold_until_us = request->now_us;
        return POLICY_HOLD;
    }
    return request->partial ? POLICY_WHOLE : POLICY_PASS;
}

static void policy_reply(void *instance, const struct policy_reply *reply)
{
    struct ledger *ledger = instance;

    require(reply->ticket > 0);
    ledger->owed--;
}

static const struct policy policy = {
    .name = "ledger",
    .start = policy_start,
    .stop = policy_stop,
    .wants = policy_wants,
    .on_request = policy_request,
    .on_reply = policy_reply,
};

static const struct policy *const policy_list[] = {&policy, NULL};

/* ---- sockets ---- */

static void make_address(struct sockaddr_un *address, socklen_t *length)
{
    *address = (struct sockaddr_un){.sun_family = AF_UNIX};
    /* In the abstract name space: no file is left behind. */
    int name = snprintf(address->sun_path + 1, sizeof address->sun_path - 1, "headgate-fuzz-%ld", (long)getpid());
    *length = (socklen_t)(offsetof(struct sockaddr_un, sun_path) + 1 + (size_t)name);
}

static int listen_at(const struct sockaddr_un *address, socklen_t length)
{
    int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);

    require(fd >= 0 && bind(fd, (const struct sockaddr *)address, length) == 0 && listen(fd, LANES) == 0);
    return fd;
}

/* Appends what there is. False at the end of the stream. */
static bool receive(struct world *world, int fd, struct bytes *bytes)
{
    static char room[64 * 1024];

    for (;;) {
        ssize_t got = recv(fd, room, sizeof room, 0);
        if (got <= 0) {
            return got != 0 && (errno == EAGAIN || errno == EINTR);
        }
        bytes_add(bytes, room, (size_t)got);
        world->moved += (uint64_t)got;
    }
}

/* Sends at most limit bytes (0: all), as far as the socket takes them. */
static void transmit(struct world *world, int fd, struct bytes *bytes, size_t limit)
{
    size_t length = limit > 0 && limit < bytes->length ? limit : bytes->length;
    ssize_t done = length > 0 ? send(fd, bytes->data, length, MSG_NOSIGNAL) : 0;

    if (done > 0) {
        bytes_drop(bytes, (size_t)done);
        world->moved += (uint64_t)done;
    }
}

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

static void check_peer(const struct world *world, const struct peer *peer, bool at_rest)
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

static void peer_forget(struct world *world, struct peer *peer)
{
    check_peer(world, peer, false);
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
    const struct sockaddr_storage address = {.ss_family = AF_UNIX};
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
    model_init(&peer->reference, false);
    require(client_accept(world->service, pair[0], &address, world->last_client_id));
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
};

#define REQUESTS (sizeof requests / sizeof requests[0])

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
        bytes_add(request, text, (size_t)snprintf(text, sizeof text, "$%zu\r\n%.*s", length, (int)length, word));
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
    bool is_subscription = strstr(text, "SUBSCRIBE") != NULL;
    bool is_reply_mode = strncmp(text, "CLIENT REPLY", 12) == 0;

    if (is_reply_mode && peer->reference.channels != 0 && peer->reference.resp == 2) {
        /* Redis refuses it, but Headgate takes it for granted: a refusal by the policy may be silent then. */
        peer->wild = true;
        peer->excused = true;
    }
    peer->subscribed = peer->subscribed || strncmp(text, "SUBSCRIBE", 9) == 0;
    peer->transacted = peer->transacted || strcmp(text, "MULTI") == 0;
    /* In a transaction, these make a tunnel of the connection, where nothing can be refused but by closing. */
    peer->tunnelled = peer->tunnelled || (peer->transacted && (is_subscription || is_reply_mode));
    peer->excused = peer->excused || strcmp(text, "QUIT") == 0 || (strcmp(text, "DECR k") == 0 && peer->tunnelled);
}

static void step_request(struct world *world, struct peer *peer, struct steps *script)
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

static void step_raw(struct world *world, struct peer *peer, struct steps *script)
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

static void step_end_input(struct peer *peer)
{
    if (peer->fd >= 0 && peer->to_send.length == 0 && !peer->ended) {
        shutdown(peer->fd, SHUT_WR);
        peer->ended = true;
        peer->excused = true;
    }
}

static void peer_read(struct world *world, struct peer *peer)
{
    if (peer->fd < 0 || peer->stalled) {
        return;
    }
    if (!receive(world, peer->fd, &peer->received)) {
        require_same(peer->excused || world->garbage, peer, peer->received.length, peer->reference.output.length);
        peer_forget(world, peer);
    }
}

/* ---- Redis ---- */

static void lane_forget(struct redis_lane *lane)
{
    if (lane->fd >= 0) {
        close(lane->fd);
    }
    bytes_free(&lane->arrived);
    model_free(&lane->model);
    *lane = (struct redis_lane){.fd = -1};
}

/* Any client may have had something under way on it. */
static void break_lane(struct world *world, struct redis_lane *lane)
{
    if (lane->fd < 0) {
        return;
    }
    for (size_t i = 0; i < CLIENTS; i++) {
        world->peers[i].excused = true;
    }
    /* One turn for what it sent before, and one for its end. */
    world->broken = 3;
    world->moved++;
    lane_forget(lane);
}

static void accept_lanes(struct world *world)
{
    for (size_t i = 0; i < LANES; i++) {
        struct redis_lane *lane = &world->lanes[i];
        if (lane->fd >= 0) {
            continue;
        }
        lane->fd = accept4(world->listener, NULL, NULL, SOCK_NONBLOCK | SOCK_CLOEXEC);
        if (lane->fd < 0) {
            return;
        }
        model_init(&lane->model, true);
        world->moved++;
    }
}

/* Redis takes so many bytes of what came (0: all), and answers what is whole. */
static void lane_take(struct world *world, struct redis_lane *lane, size_t limit)
{
    size_t length = limit > 0 && limit < lane->arrived.length ? limit : lane->arrived.length;

    if (length > 0) {
        model_feed(&lane->model, lane->arrived.data, length);
        bytes_drop(&lane->arrived, length);
        world->moved += length;
    }
}

static void lane_write(struct world *world, struct redis_lane *lane, size_t limit)
{
    if (lane->fd < 0) {
        return;
    }
    transmit(world, lane->fd, &lane->model.output, limit);
    bool served = lane->model.output.length == 0;
    bool ended = lane->ended && (lane->arrived.length == 0 || lane->model.blocked);
    if (served && (lane->model.closing || ended)) {
        lane_forget(lane);
        world->moved++;
    }
}

static void lanes_read(struct world *world)
{
    for (size_t i = 0; i < LANES; i++) {
        struct redis_lane *lane = &world->lanes[i];
        if (lane->fd >= 0 && !lane->ended) {
            lane->ended = !receive(world, lane->fd, &lane->arrived);
        }
    }
}

static void step_garbage(struct world *world, struct redis_lane *lane, struct steps *script)
{
    size_t length = next_byte(script);

    if (length > script->left) {
        length = script->left;
    }
    if (lane->fd >= 0) {
        world->garbage = true;
        bytes_add(&lane->model.output, (const char *)script->next, length);
    }
    script->next += length;
    script->left -= length;
}

/* ---- turns ---- */

static void turn(struct world *world)
{
    world->now_us += 1000;
    world->reactor.now_us = world->now_us;
    require(event_base_loop(world->reactor.base, EVLOOP_ONCE | EVLOOP_NONBLOCK) >= 0);
    reactor_settle(&world->reactor);
    world->broken -= world->broken > 0;
    accept_lanes(world);
    lanes_read(world);
    for (size_t i = 0; i < CLIENTS; i++) {
        peer_read(world, &world->peers[i]);
    }
}

static void tick(struct world *world, int64_t passed_us)
{
    world->now_us += passed_us;
    world->reactor.now_us = world->now_us;
    upstream_tick(world->upstream);
    client_service_tick(world->service);
    reactor_settle(&world->reactor);
}

/* Everybody does what there is to do. */
static void round_of_all(struct world *world)
{
    for (size_t i = 0; i < CLIENTS; i++) {
        struct peer *peer = &world->peers[i];
        peer->stalled = false;
        if (peer->fd >= 0) {
            transmit(world, peer->fd, &peer->to_send, 0);
        }
    }
    turn(world);
    for (size_t i = 0; i < LANES; i++) {
        model_unblock(&world->lanes[i].model);
        lane_take(world, &world->lanes[i], 0);
        lane_write(world, &world->lanes[i], 0);
    }
}

static void come_to_rest(struct world *world)
{
    int quiet = 0;

    for (int rounds = 0; quiet < 5; rounds++) {
        uint64_t before = world->moved;
        require(rounds < ROUNDS);
        round_of_all(world);
        quiet = world->moved == before ? quiet + 1 : 0;
    }
    for (size_t i = 0; i < CLIENTS; i++) {
        check_peer(world, &world->peers[i], true);
    }
}

/* ---- the script ---- */

enum step {
    STEP_REQUEST,
    STEP_REQUEST_NOW, /* … and the loop turns */
    STEP_SEND,        /* a part of what the client has to send */
    STEP_SEND_ALL,
    STEP_TURN,
    STEP_TAKE, /* Redis takes a part */
    STEP_TAKE_ALL,
    STEP_WRITE, /* Redis' answers go out, in part */
    STEP_WRITE_ALL,
    STEP_ROUND,
    STEP_UNBLOCK,
    STEP_PUBLISH,
    STEP_CLOSE_CLIENT,
    STEP_END_INPUT,
    STEP_STALL,
    STEP_TICK,
    STEP_BREAK,
    STEP_RAW,
    STEP_GARBAGE,
    STEP_REST,
    STEP_KINDS
};

static void step_client(struct world *world, enum step step, struct peer *peer, struct steps *script)
{
    switch (step) {
    case STEP_REQUEST:
        step_request(world, peer, script);
        break;
    case STEP_REQUEST_NOW:
        step_request(world, peer, script);
        transmit(world, peer->fd, &peer->to_send, 0);
        turn(world);
        break;
    case STEP_SEND:
        transmit(world, peer->fd, &peer->to_send, (size_t)next_byte(script) + 1);
        break;
    case STEP_SEND_ALL:
        transmit(world, peer->fd, &peer->to_send, 0);
        break;
    case STEP_CLOSE_CLIENT:
        peer_forget(world, peer);
        break;
    case STEP_END_INPUT:
        step_end_input(peer);
        break;
    case STEP_STALL:
        peer->stalled = !peer->stalled;
        break;
    default:
        step_raw(world, peer, script);
        break;
    }
}

static void step_lane(struct world *world, enum step step, struct redis_lane *lane, struct steps *script)
{
    switch (step) {
    case STEP_TAKE:
        lane_take(world, lane, (size_t)next_byte(script) + 1);
        break;
    case STEP_TAKE_ALL:
        lane_take(world, lane, 0);
        break;
    case STEP_WRITE:
        lane_write(world, lane, (size_t)next_byte(script) + 1);
        break;
    case STEP_WRITE_ALL:
        lane_write(world, lane, 0);
        break;
    case STEP_UNBLOCK:
        model_unblock(&lane->model);
        break;
    case STEP_PUBLISH:
        model_publish(&lane->model);
        break;
    case STEP_BREAK:
        break_lane(world, lane);
        break;
    default:
        step_garbage(world, lane, script);
        break;
    }
}

static void step(struct world *world, struct steps *script)
{
    enum step kind = next_byte(script) % STEP_KINDS;

    switch (kind) {
    case STEP_TURN:
        turn(world);
        break;
    case STEP_ROUND:
        round_of_all(world);
        break;
    case STEP_TICK:
        tick(world, (int64_t)next_byte(script) * 1000000);
        break;
    case STEP_REST:
        come_to_rest(world);
        break;
    case STEP_REQUEST:
    case STEP_REQUEST_NOW:
    case STEP_SEND:
    case STEP_SEND_ALL:
    case STEP_CLOSE_CLIENT:
    case STEP_END_INPUT:
    case STEP_STALL:
    case STEP_RAW:
        step_client(world, kind, &world->peers[next_byte(script) % CLIENTS], script);
        break;
    default:
        step_lane(world, kind, &world->lanes[next_byte(script) % LANES], script);
        break;
    }
}

/* ---- the world ---- */

static void on_ready(void *context)
{
    struct world *world = context;

    learn_again(world->learn);
}

static void start(struct world *world, int listener, const struct sockaddr_un *address, socklen_t length, uint8_t flags)
{
    struct upstream_settings upstream = {
        .lane = {.target = {.length = length},
                 .target_text = "model",
                 .connect_timeout = 3600000,
                 .stats = &world->stats},
        .shared_lanes = (flags & 1) + 1,
        .wait = 86400000,
        .wait_requests = 100000,
        .exclusive_idle = 4,
        .lane_idle_timeout = 60000,
        .user = "",
        .password = "",
        .serves_clients = true,
    };
    const struct client_settings clients = {
        .session_pool = (flags & 2) != 0,
        .upstream_wait = 86400000,
        .pipeline_limit = (flags & 4) != 0 ? 3 : 64,
        .max_request = 1 << 20,
        .cut_through = 1024,
        .upstream_text = "model",
    };

    memcpy(&upstream.lane.target.address, address, sizeof *address);
    *world = (struct world){.listener = listener, .now_us = 1000000000, .heavy_left = 6};
    world->small_sockets = (flags & 8) != 0;
    for (size_t i = 0; i < LANES; i++) {
        world->lanes[i].fd = -1;
    }
    for (size_t i = 0; i < CLIENTS; i++) {
        world->peers[i].fd = -1;
    }
    require(reactor_init(&world->reactor, &world->stats));
    world->reactor.now_us = world->now_us;
    world->upstream = upstream_new(&world->reactor, &world->runs, &upstream, on_ready, world);
    world->control = control_new(&world->reactor, &world->runs, world->upstream);
    world->learn = learn_new(world->control);
    require(chain_roster_open(&world->roster, policy_list, 1));
    const struct client_parts parts = {
        .reactor = &world->reactor,
        .runs = &world->runs,
        .upstream = world->upstream,
        .control = world->control,
        .learn = world->learn,
        .policies = &world->roster,
    };
    world->service = client_service_new(&parts, &clients, NULL);
    require(world->service != NULL);
    upstream_warm_up(world->upstream);
}

static void stop(struct world *world)
{
    for (size_t i = 0; i < CLIENTS; i++) {
        peer_forget(world, &world->peers[i]);
    }
    client_service_close_all(world->service, "the script has ended");
    reactor_settle(&world->reactor);
    client_service_free(world->service);
    upstream_free(world->upstream);
    learn_free(world->learn);
    control_free(world->control);
    require(world->reactor.buffers.bytes_lent == 0);
    run_pool_trim(&world->runs, 0);
    reactor_free(&world->reactor);
    accept_lanes(world);
    for (size_t i = 0; i < LANES; i++) {
        lane_forget(&world->lanes[i]);
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static struct world world;
    struct steps script = {data, size};
    struct sockaddr_un address;
    socklen_t length;

    make_address(&address, &length);
    /* As headgate does: splice() knows no MSG_NOSIGNAL. */
    signal(SIGPIPE, SIG_IGN);
    /* Who looks into a finding names a file. */
    const char *log = getenv("HEADGATE_FUZZ_LOG");
    require(log != NULL ? log_open(log, LOG_LEVEL_DEBUG) : log_open("/dev/null", LOG_LEVEL_ERROR));
    int listener = listen_at(&address, length);
    start(&world, listener, &address, length, next_byte(&script));
    for (int steps = 0; steps < STEPS && script.left > 0; steps++) {
        step(&world, &script);
    }
    come_to_rest(&world);
    stop(&world);
    close(listener);
    log_close();
    return 0;
}
