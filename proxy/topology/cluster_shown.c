#include "topology/cluster_shown.h"

#include "base/siphash.h"
#include "resp/word.h"

#include <inttypes.h>

/* ---- who ---- */

static void write_id(const char *text, uint64_t which, char id[CLUSTER_ID_MAX])
{
    for (uint64_t part = 0; part < 5; part++) {
        const struct siphash_key key = {.words = {which, part}};
        uint64_t hash = siphash(&key, text, strlen(text));
        snprintf(id + 8 * part, 9, "%08" PRIx32, (uint32_t)(hash >> 32 ^ hash));
    }
}

struct cluster_identity cluster_shown_identity(const char *text)
{
    struct cluster_identity identity;

    write_id(text, 1, identity.id);
    write_id(text, 2, identity.shard);
    return identity;
}

/* ---- parts of replies ---- */

static void put_bulk(FILE *out, const char *text)
{
    fprintf(out, "$%zu\r\n%s\r\n", strlen(text), text);
}

static void put_map(FILE *out, int resp, unsigned int pairs)
{
    fprintf(out, resp == 3 ? "%%%u\r\n" : "*%u\r\n", resp == 3 ? pairs : 2 * pairs);
}

/* A text for people, as CLUSTER INFO and CLUSTER NODES give. */
static void put_text(FILE *out, int resp, const char *text)
{
    if (resp == 3) {
        fprintf(out, "=%zu\r\ntxt:%s\r\n", strlen(text) + 4, text);
    } else {
        put_bulk(out, text);
    }
}

/* ---- CLUSTER … ---- */

static bool has_slots(const struct cluster_shown *shown)
{
    return shown->map != NULL;
}

static void put_info(const struct cluster_shown *shown, struct slice argument, FILE *out)
{
    unsigned int slots = has_slots(shown) ? CLUSTER_SLOTS - (unsigned int)shown->map->uncovered : 0;
    uint64_t epoch = has_slots(shown) ? shown->map->epoch : 0;
    char text[512];

    (void)argument;
    snprintf(text, sizeof text,
             "cluster_enabled:1\r\ncluster_state:%s\r\ncluster_slots_assigned:%u\r\ncluster_slots_ok:%u\r\n"
             "cluster_slots_pfail:0\r\ncluster_slots_fail:0\r\ncluster_known_nodes:1\r\ncluster_size:1\r\n"
             "cluster_current_epoch:%" PRIu64 "\r\ncluster_my_epoch:%" PRIu64 "\r\n"
             "cluster_stats_messages_sent:0\r\ncluster_stats_messages_received:0\r\n"
             "total_cluster_links_buffer_limit_exceeded:0\r\n",
             has_slots(shown) ? "ok" : "fail", slots, slots, epoch, epoch);
    put_text(out, shown->resp, text);
}

static void put_keyslot(const struct cluster_shown *shown, struct slice key, FILE *out)
{
    (void)shown;
    fprintf(out, ":%u\r\n", (unsigned int)cluster_slot_of(key));
}

static void put_nothing(const struct cluster_shown *shown, struct slice argument, FILE *out)
{
    (void)shown;
    (void)argument;
    fputs("*0\r\n", out);
}

static void put_my_id(const struct cluster_shown *shown, struct slice argument, FILE *out)
{
    (void)argument;
    put_bulk(out, shown->identity->id);
}

static void put_my_shard(const struct cluster_shown *shown, struct slice argument, FILE *out)
{
    (void)argument;
    put_bulk(out, shown->identity->shard);
}

/* The bus has no port: nobody is to meet this node. */
static void put_nodes(const struct cluster_shown *shown, struct slice argument, FILE *out)
{
    uint64_t epoch = has_slots(shown) ? shown->map->epoch : 0;
    char text[CLUSTER_HOST_MAX + 160];

    (void)argument;
    snprintf(text, sizeof text, "%s %s:%u@0 myself,master - 0 0 %" PRIu64 " connected%s\n", shown->identity->id,
             shown->host, (unsigned int)shown->port, epoch, has_slots(shown) ? " 0-16383" : "");
    put_text(out, shown->resp, text);
}

static void put_slots(const struct cluster_shown *shown, struct slice argument, FILE *out)
{
    (void)argument;
    if (!has_slots(shown)) {
        fputs("*0\r\n", out);
        return;
    }
    fprintf(out, "*1\r\n*3\r\n:0\r\n:%d\r\n*4\r\n", CLUSTER_SLOTS - 1);
    put_bulk(out, shown->host);
    fprintf(out, ":%u\r\n", (unsigned int)shown->port);
    put_bulk(out, shown->identity->id);
    put_map(out, shown->resp, 0);
}

static void put_shards(const struct cluster_shown *shown, struct slice argument, FILE *out)
{
    (void)argument;
    fputs("*1\r\n", out);
    put_map(out, shown->resp, 2);
    put_bulk(out, "slots");
    if (has_slots(shown)) {
        fprintf(out, "*2\r\n:0\r\n:%d\r\n", CLUSTER_SLOTS - 1);
    } else {
        fputs("*0\r\n", out);
    }
    put_bulk(out, "nodes");
    fputs("*1\r\n", out);
    put_map(out, shown->resp, 7);
    put_bulk(out, "id");
    put_bulk(out, shown->identity->id);
    put_bulk(out, shown->tls ? "tls-port" : "port");
    fprintf(out, ":%u\r\n", (unsigned int)shown->port);
    put_bulk(out, "ip");
    put_bulk(out, shown->host);
    put_bulk(out, "endpoint");
    put_bulk(out, shown->host);
    put_bulk(out, "role");
    put_bulk(out, "master");
    put_bulk(out, "replication-offset");
    fputs(":0\r\n", out);
    put_bulk(out, "health");
    put_bulk(out, has_slots(shown) ? "online" : "loading");
}

static const struct shown_subcommand {
    const char *name;
    uint32_t arguments; /* with the names */
    void (*put)(const struct cluster_shown *shown, struct slice argument, FILE *out);
} subcommands[] = {
    {"info", 2, put_info},        {"keyslot", 3, put_keyslot},    {"links", 2, put_nothing},
    {"myid", 2, put_my_id},       {"myshardid", 2, put_my_shard}, {"nodes", 2, put_nodes},
    {"replicas", 3, put_nothing}, {"shards", 2, put_shards},      {"slaves", 3, put_nothing},
    {"slots", 2, put_slots},
};

static void write_cluster(const struct cluster_shown *shown, struct slice frame, FILE *out)
{
    struct resp_walk walk = resp_walk_start(frame);
    struct slice name, subcommand = {"", 0}, argument = {"", 0};
    uint32_t arguments = walk.left;

    (void)resp_walk_next(&walk, &name);
    (void)resp_walk_next(&walk, &subcommand);
    (void)resp_walk_next(&walk, &argument);
    for (size_t i = 0; i < sizeof subcommands / sizeof subcommands[0]; i++) {
        const struct shown_subcommand *known = &subcommands[i];
        if (!slice_is_word(subcommand, known->name)) {
            continue;
        }
        if (known->arguments == arguments) {
            known->put(shown, argument, out);
        } else {
            fprintf(out, "-ERR wrong number of arguments for 'cluster|%s' command\r\n", known->name);
        }
        return;
    }
    fputs("-ERR unknown subcommand. Try CLUSTER HELP.\r\n", out);
}

void cluster_shown_write(const struct cluster_shown *shown, const struct command *command, struct slice frame,
                         FILE *out)
{
    if (strcmp(command->name, "cluster") == 0) {
        write_cluster(shown, frame, out);
    } else if (resp_walk_start(frame).left == 1) {
        fputs("+OK\r\n", out);
    } else {
        fprintf(out, "-ERR wrong number of arguments for '%s' command\r\n", command->name);
    }
}
