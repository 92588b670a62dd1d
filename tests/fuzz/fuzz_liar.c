/*
 * Fuzzes what a Redis that lies tells. The first byte says to whom:
 * - server_info.c: the rest are replies to what it asks.
 * - a policy that decides by scripts: the rest is a script of what clients send and hear, how time passes, and what the
 *   scripts reply, which are often integers that no Redis gives.
 * What must hold: nothing crashes, keys that are found lie within their request, and what a policy has is given back.
 */
#include "../support/fake_host.h"
#include "fuzz_cut.h"

/* Its readers of replies, without connections. */
#include "upstream/server_info.c"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

#define COUNT_OF(list) (sizeof(list) / sizeof(list)[0])

static uint8_t take_byte(struct slice *script)
{
    if (script->length == 0) {
        return 0;
    }
    script->length--;
    return (uint8_t)*script->data++;
}

/* ---- server_info.c ---- */

static bool check_key(void *context, struct slice key, uint32_t place)
{
    const struct slice *request = context;

    require(place > 0 && key.data > request->data && key.data + key.length < request->data + request->length);
    return true;
}

/* Whatever was asked. */
static void lie_of_server(struct slice script)
{
    struct slice request = slice_of("*6\r\n$1\r\nx\r\n$1\r\n2\r\n$1\r\na\r\n$4\r\nKEYS\r\n$1\r\nb\r\n$1\r\nc\r\n");
    struct server_info *server_info = server_info_new(NULL);
    struct resp_reply frame = {.size = 0};
    size_t taken;

    require(log_open("/dev/null", LOG_LEVEL_DEBUG));
    while (script.length > 0 && resp_reply_feed(&frame, script.data, script.length, &taken) == RESP_DONE) {
        redisReader *reader = redisReaderCreate();
        void *reply = NULL;
        (void)redisReaderFeed(reader, script.data, taken);
        if (redisReaderGetReply(reader, &reply) == REDIS_OK && reply != NULL) {
            on_info(server_info, reply, NULL);
            on_clock(server_info, reply, NULL);
            on_command_info(server_info, reply, NULL);
        }
        freeReplyObject(reply);
        redisReaderFree(reader);
        resp_reply_reset(&frame);
        script = (struct slice){script.data + taken, script.length - taken};
    }
    for (size_t i = 0; i < server_info->count; i++) {
        command_visit_slotted(&server_info->commands[i]->told.command, request, check_key, &request);
    }
    (void)server_info_redis_us(server_info);
    server_info_free(server_info);
    log_close();
}

/* ---- policies ---- */

#define PEOPLE 3
#define STEPS_MAX 200

extern const struct policy lease_policy, limit_policy;

#define LEASES "[lease:all]\nkeys = *\nttl = 1s\nmax_hold = 5s\nowner = client\n"
#define LIMITS                                                                                                         \
    "[limit:a]\nper = key\nlimit = 9\nwindow = 1s\nscope = global\ncommands = get\n"                                   \
    "[limit:b]\nper = all\nlimit = 99\nwindow = 1s\nscope = global\naccuracy = leased\ncommands = set\n"
#define MANY                                                                                                           \
    "a b c d e f g h i j k l m n o p q r s t u v w x y z A B C D E F G H I J K L M N O P Q R S T U V W X Y Z 0 1 2 3 " \
    "4 5 6 7"

/* Of two keys and a token: what takes, extends and releases strings, several keys, read locks and semaphores. */
static const char *const forms[] = {
    "GET %1$s",
    "SET %1$s %3$s NX PX 1000",
    "SET %1$s %3$s XX PX 1000",
    "SETNX %1$s %3$s",
    "DEL %1$s %2$s",
    "MULTI",
    "EXEC",
    "EVAL x 1 %1$s",
    "ZADD %1$s 1700000000 %3$s",
    "ZRANK %1$s %3$s",
    "ZREM %1$s %3$s %3$s",
    "EVALSHA 95553a6ff11176c18e71344e89d116b06fd6f753 1 %1$s 1000 %3$s",
    "EVALSHA 6fdee501a3714553b74c0d67687b921b90b05d18 1 %1$s 9 %3$s 1000",
    "EVALSHA 43ebdb49120d170e08af560cb4e46e36f8585936 1 %1$s 9 %3$s 1000 1700000000000",
    "EVALSHA e5a322e2634ef59a516e8ea150cb085afafee684 2 %1$s %2$s %3$s 1000",
    "EVALSHA e5a322e2634ef59a516e8ea150cb085afafee684 60 " MANY " %3$s 1000",
};

static const char *const heads[] = {"+OK\r\n", ":1\r\n", ":0\r\n", ":2\r\n", "$-1\r\n", "-NOPERM no\r\n"};

/* The policy on limits looks at the first two forms. */
static void say(struct fake_client *client, struct slice *script)
{
    static const char *const keys[] = {"a", "b"}, *const tokens[] = {"t", "u"};
    bool is_limit = client->host->policy == &limit_policy;
    const char *form = forms[take_byte(script) % (is_limit ? 2 : COUNT_OF(forms))];
    uint8_t bits = take_byte(script);
    char text[FAKE_TEXT_MAX];

    snprintf(text, sizeof text, form, keys[bits & 1], keys[bits >> 1 & 1], tokens[bits >> 2 & 1]);
    if (is_limit) {
        (void)(client->held[0] == '\0' ? fake_verdict(client, text) : fake_verdict_again(client));
    } else if (client->request_count < FAKE_REQUESTS_MAX) {
        fake_send(client, text);
    }
}

static void answer(struct fake_host *host, struct slice *script)
{
    static const int64_t extreme[] = {0, 1, 2, -1, -2, -3, -4, INT32_MAX, INT64_MAX, INT64_MAX / 2, INT64_MIN};
    int64_t integers[4];
    size_t count = take_byte(script) % 5;

    for (size_t i = 0; i < count; i++) {
        uint8_t byte = take_byte(script);
        integers[i] = byte < 128 ? extreme[byte % COUNT_OF(extreme)] : byte - 128;
    }
    fake_answer_with(host, integers, count);
}

static void step(struct fake_host *host, struct fake_client *client, struct slice *script)
{
    switch (take_byte(script) % 4) {
    case 0:
        fake_pass(host, INT64_C(1) << take_byte(script) % 13);
        break;
    case 1:
        if (host->calls != NULL) {
            answer(host, script);
        }
        break;
    case 2:
        if (client->request_count > 0) {
            fake_hear(client, heads[take_byte(script) % COUNT_OF(heads)]);
        }
        break;
    default:
        say(client, script);
        break;
    }
}

static void lie_to(const struct policy *policy, const char *rules, struct slice *script)
{
    struct fake_host *host = fake_host_new(policy, rules, 2);
    struct fake_client *people[PEOPLE];

    for (size_t i = 0; i < PEOPLE; i++) {
        people[i] = fake_join(host, i % 2, "10.0.0.1", "app");
    }
    for (int steps = 0; steps < STEPS_MAX && script->length > 0; steps++) {
        step(host, people[take_byte(script) % PEOPLE], script);
    }
    fake_host_free(host);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct slice script = {(const char *)data, size};

    switch (take_byte(&script) % 3) {
    case 0:
        lie_of_server(script);
        break;
    case 1:
        lie_to(&lease_policy, LEASES, &script);
        break;
    default:
        lie_to(&limit_policy, LIMITS, &script);
        break;
    }
    return 0;
}
