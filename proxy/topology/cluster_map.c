#include "topology/cluster_map.h"

#include "resp/resp_element.h"

#include <stdio.h>
#include <stdlib.h>

/* Each entry for a node is looked for among all nodes. So many there are where each slot is a range of its own, with a
 * master and three replicas. */
#define ENTRIES_MAX ((uint64_t)4 * CLUSTER_SLOTS)

/* A map that is being built. */
struct building {
    struct cluster_map *map;
    size_t capacity;  /* of its nodes */
    uint64_t entries; /* for nodes, of the ranges so far */
    const char *asked_host;
    char *why;
};

/* What one entry of the reply says of a node. */
struct told_node {
    struct slice host;
    uint16_t port;
    struct slice id;
};

static bool fail(const struct building *building, const char *why)
{
    snprintf(building->why, CLUSTER_WHY_MAX, "%s", why);
    return false;
}

/* ---- nodes ---- */

void cluster_map_address_text(const char *host, uint16_t port, char text[CLUSTER_TEXT_MAX])
{
    bool is_ipv6 = strchr(host, ':') != NULL;

    snprintf(text, CLUSTER_TEXT_MAX, is_ipv6 ? "[%s]:%u" : "%s:%u", host, (unsigned int)port);
}

static void find_targets(struct cluster_node *node)
{
    const struct conf_address address = {.host = node->host, .port = node->port};

    if (!connection_resolve_numeric(&address, &node->targets)) {
        node->targets = (struct connection_targets){.why = "its name was not looked up yet"};
    }
}

static bool make_room(struct building *building)
{
    struct cluster_map *map = building->map;

    if (map->node_count < building->capacity) {
        return true;
    }
    if (map->node_count == CLUSTER_NODES_MAX) {
        return fail(building, "it has more nodes than may be");
    }
    size_t capacity = building->capacity == 0 ? 8 : 2 * building->capacity;
    struct cluster_node *nodes = realloc(map->nodes, capacity * sizeof *nodes);
    if (nodes == NULL) {
        return fail(building, "out of memory");
    }
    map->nodes = nodes;
    building->capacity = capacity;
    return true;
}

/* The place of a node that no entry before has named; CLUSTER_NOBODY on failure. */
static int16_t add_node(struct building *building, const struct told_node *told, bool is_master)
{
    struct cluster_map *map = building->map;

    if (!make_room(building)) {
        return CLUSTER_NOBODY;
    }
    struct cluster_node *node = &map->nodes[map->node_count];
    *node = (struct cluster_node){.port = told->port, .is_master = is_master, .master = CLUSTER_NOBODY};
    memcpy(node->host, told->host.data, told->host.length);
    memcpy(node->id, told->id.data, told->id.length);
    find_targets(node);
    return (int16_t)map->node_count++;
}

static bool is_same_id(const struct cluster_node *node, struct slice id)
{
    return id.length > 0 && slice_is(id, node->id);
}

static bool is_same_address(const struct cluster_node *node, struct slice host, uint16_t port)
{
    return node->port == port && slice_is_word(host, node->host);
}

/* The place of the node, which may be known from an entry before; CLUSTER_NOBODY: what the entries say of it differs.
 */
static int16_t find_or_add(struct building *building, const struct told_node *told, bool is_master)
{
    struct cluster_map *map = building->map;

    for (size_t i = 0; i < map->node_count; i++) {
        const struct cluster_node *node = &map->nodes[i];
        bool same_address = is_same_address(node, told->host, told->port);
        bool same_id = is_same_id(node, told->id);
        if (!same_address && !same_id) {
            continue;
        }
        if (!same_address || !slice_is(told->id, node->id)) {
            (void)fail(building, "it gives one node two addresses, or one address to two nodes");
            return CLUSTER_NOBODY;
        }
        if (node->is_master != is_master) {
            (void)fail(building, "it says of one node that it is a master and a replica");
            return CLUSTER_NOBODY;
        }
        return (int16_t)i;
    }
    return add_node(building, told, is_master);
}

/* ---- the reply ---- */

/* What stands under that name in the metadata of a node: pairs, as a map or flat. */
static struct slice find_metadata(struct slice metadata, const char *wanted)
{
    struct slice name, value;

    while (resp_element_next_text(&metadata, &name) && resp_element_next_text(&metadata, &value)) {
        if (slice_is(name, wanted)) {
            return value;
        }
    }
    return (struct slice){"", 0};
}

/* The host where clients are to connect. Without one the node means where it was asked; "?" stands for a name that the
 * node has not, and whoever reads that is to take the address. */
static struct slice find_host(const struct building *building, const struct resp_element *endpoint,
                              struct slice metadata)
{
    if (endpoint->is_null || endpoint->text.length == 0) {
        return slice_of(building->asked_host);
    }
    return slice_is(endpoint->text, "?") ? find_metadata(metadata, "ip") : endpoint->text;
}

/* Host, port, id (since Redis 4.0), metadata (since 7.0). */
static bool read_node(const struct building *building, struct slice *rest, struct told_node *told)
{
    struct resp_element node, endpoint, metadata = {.count = 0};
    int64_t port;

    *told = (struct told_node){.id = {"", 0}};
    if (!resp_element_next_list(rest, 2, &node)) {
        return fail(building, "what it says of a node is no list");
    }
    struct slice inside = node.inside;
    if (!resp_element_next(&inside, &endpoint) || !resp_element_next_integer(&inside, &port) || port < 1 ||
        port > UINT16_MAX) {
        return fail(building, "it has a node without a port that one could connect to");
    }
    if (strchr("$+_", endpoint.type) == NULL) {
        return fail(building, "it has a node whose address is no text");
    }
    told->port = (uint16_t)port;
    if (node.count > 2 && !resp_element_next_text(&inside, &told->id)) {
        return fail(building, "it has a node without an id");
    }
    if (node.count > 3 && !resp_element_next_list(&inside, 0, &metadata)) {
        return fail(building, "what it adds to a node is no list");
    }
    told->host = find_host(building, &endpoint, metadata.inside);
    if (!cluster_redirect_is_host(told->host) || told->host.length == 0) {
        return fail(building, "it has a node without an address that one could connect to");
    }
    if (told->id.length >= CLUSTER_ID_MAX || !cluster_redirect_is_host(told->id)) {
        return fail(building, "it has a node whose id is none");
    }
    return true;
}

static bool give_slots(struct building *building, int64_t first, int64_t last, int16_t master)
{
    struct cluster_map *map = building->map;

    for (int64_t slot = first; slot <= last; slot++) {
        if (map->owner[slot] != CLUSTER_NOBODY) {
            return fail(building, "it gives one slot to two nodes");
        }
        map->owner[slot] = master;
    }
    map->nodes[master].master = master;
    map->nodes[master].slot_count = (uint16_t)(map->nodes[master].slot_count + last - first + 1);
    return true;
}

static bool give_replica(const struct building *building, int16_t replica, int16_t master)
{
    struct cluster_node *node = &building->map->nodes[replica];

    if (node->master != CLUSTER_NOBODY && node->master != master) {
        return fail(building, "it gives one replica to two masters");
    }
    node->master = master;
    return true;
}

/* First and last slot, the master, its replicas. */
static bool read_range(struct building *building, struct slice *rest)
{
    struct resp_element range;
    struct told_node told;
    int64_t first, last;

    if (!resp_element_next_list(rest, 3, &range)) {
        return fail(building, "what it says of a range of slots is no list");
    }
    struct slice inside = range.inside;
    if (!resp_element_next_integer(&inside, &first) || !resp_element_next_integer(&inside, &last) || first < 0 ||
        last < first || last >= CLUSTER_SLOTS) {
        return fail(building, "it has a range of slots that is none");
    }
    building->entries += range.count - 2;
    if (building->entries > ENTRIES_MAX) {
        return fail(building, "it names nodes more often than can be");
    }
    if (!read_node(building, &inside, &told)) {
        return false;
    }
    int16_t master = find_or_add(building, &told, true);
    if (master == CLUSTER_NOBODY || !give_slots(building, first, last, master)) {
        return false;
    }
    for (uint64_t i = 3; i < range.count; i++) {
        if (!read_node(building, &inside, &told)) {
            return false;
        }
        int16_t replica = find_or_add(building, &told, false);
        if (replica == CLUSTER_NOBODY || !give_replica(building, replica, master)) {
            return false;
        }
    }
    return true;
}

/* Somebody else's text, for one line of a log. */
static bool fail_as_told(const struct building *building, struct slice told)
{
    int length = (int)(told.length < 100 ? told.length : 100);

    snprintf(building->why, CLUSTER_WHY_MAX, "the node answers \"%.*s\"", length, told.data);
    for (char *byte = building->why; *byte != '\0'; byte++) {
        *byte = (unsigned char)*byte < ' ' ? '?' : *byte;
    }
    return false;
}

static bool read_ranges(struct building *building, struct slice reply)
{
    struct resp_element ranges;

    if (reply.length == 0 || !resp_element_next(&reply, &ranges)) {
        return fail(building, "the reply is none");
    }
    if (resp_element_is_error(&ranges)) {
        return fail_as_told(building, ranges.text);
    }
    if (ranges.type != '*' || ranges.count == 0) {
        return fail(building, "no node has any slot");
    }
    for (uint64_t i = 0; i < ranges.count; i++) {
        if (!read_range(building, &ranges.inside)) {
            return false;
        }
    }
    return true;
}

static void count_slots(struct cluster_map *map)
{
    for (size_t i = 0; i < map->node_count; i++) {
        map->master_count += map->nodes[i].is_master;
    }
    for (size_t slot = 0; slot < CLUSTER_SLOTS; slot++) {
        map->uncovered += map->owner[slot] == CLUSTER_NOBODY;
    }
}

struct cluster_map *cluster_map_parse(struct slice reply, const char *asked_host, char why[CLUSTER_WHY_MAX])
{
    struct building building = {.asked_host = asked_host, .why = why};
    struct cluster_map *map = calloc(1, sizeof *map);

    building.map = map;
    why[0] = '\0';
    if (map == NULL) {
        (void)fail(&building, "out of memory");
        return NULL;
    }
    atomic_init(&map->references, 1);
    for (size_t slot = 0; slot < CLUSTER_SLOTS; slot++) {
        map->owner[slot] = CLUSTER_NOBODY;
    }
    if (!read_ranges(&building, reply)) {
        cluster_map_release(map);
        return NULL;
    }
    count_slots(map);
    return map;
}

/* ---- masters without slots ---- */

/* "fail?" is what one node suspects. */
static bool is_fit_master(struct slice flags)
{
    bool is_master = false, has_failed = false;

    while (flags.length > 0) {
        struct slice flag = cluster_redirect_take_part(&flags, ',');
        is_master = is_master || slice_is(flag, "master");
        has_failed = has_failed || slice_is(flag, "fail");
    }
    return is_master && !has_failed;
}

/* "<id> <ip>:<port>[@<port>[,<name>[,…]]] <flags> …". Its host is the name where nodes are told by names. */
static bool read_master(struct slice line, bool by_name, struct cluster_redirect *place, struct told_node *told)
{
    told->id = cluster_redirect_take_part(&line, ' ');
    struct slice names = cluster_redirect_take_part(&line, ' ');
    struct slice endpoint = cluster_redirect_take_part(&names, '@');
    bool is_fit = is_fit_master(cluster_redirect_take_part(&line, ' ')) && told->id.length < CLUSTER_ID_MAX &&
                  cluster_redirect_is_host(told->id) && cluster_redirect_read_endpoint(endpoint, place);

    (void)cluster_redirect_take_part(&names, ',');
    struct slice name = cluster_redirect_take_part(&names, ',');
    told->port = place->port;
    told->host = by_name && name.length > 0 ? name : slice_of(place->host);
    return is_fit && told->host.length > 0 && cluster_redirect_is_host(told->host);
}

void cluster_map_add_masters(struct cluster_map *map, struct slice reply)
{
    char why[CLUSTER_WHY_MAX];
    struct building building = {.map = map, .capacity = map->node_count, .why = why};
    bool by_name = map->nodes[0].targets.count == 0;
    struct cluster_redirect place = {0};
    struct told_node told;
    struct slice lines;

    if (!resp_element_next_text(&reply, &lines)) {
        return;
    }
    /* Each is looked for among all. */
    for (size_t i = 0; i < 2 * CLUSTER_NODES_MAX && lines.length > 0; i++) {
        bool is_read = read_master(cluster_redirect_take_part(&lines, '\n'), by_name, &place, &told);
        int16_t number = is_read ? find_or_add(&building, &told, true) : CLUSTER_NOBODY;
        if (number != CLUSTER_NOBODY) {
            map->nodes[number].master = number;
        }
    }
}

/* ---- life ---- */

struct cluster_map *cluster_map_reference(struct cluster_map *map)
{
    atomic_fetch_add_explicit(&map->references, 1, memory_order_relaxed);
    return map;
}

void cluster_map_release(struct cluster_map *map)
{
    if (map != NULL && atomic_fetch_sub_explicit(&map->references, 1, memory_order_acq_rel) == 1) {
        free(map->nodes);
        free(map);
    }
}

/* ---- two of them ---- */

int16_t cluster_map_find(const struct cluster_map *map, const char *host, uint16_t port)
{
    for (size_t i = 0; i < map->node_count; i++) {
        if (is_same_address(&map->nodes[i], slice_of(host), port)) {
            return (int16_t)i;
        }
    }
    return CLUSTER_NOBODY;
}

/* The place in b of the node that is at that place of a. */
static int16_t counterpart(const struct cluster_map *a, int16_t place, const struct cluster_map *b)
{
    return place == CLUSTER_NOBODY ? CLUSTER_NOBODY : cluster_map_find(b, a->nodes[place].host, a->nodes[place].port);
}

static bool is_same_node(const struct cluster_map *a, int16_t place, const struct cluster_map *b)
{
    int16_t other = counterpart(a, place, b);

    return other != CLUSTER_NOBODY && strcmp(a->nodes[place].id, b->nodes[other].id) == 0 &&
           a->nodes[place].is_master == b->nodes[other].is_master &&
           counterpart(a, a->nodes[place].master, b) == b->nodes[other].master;
}

bool cluster_map_equal(const struct cluster_map *a, const struct cluster_map *b)
{
    if (a->node_count != b->node_count) {
        return false;
    }
    for (size_t i = 0; i < a->node_count; i++) {
        if (!is_same_node(a, (int16_t)i, b)) {
            return false;
        }
    }
    int16_t of_a = CLUSTER_NOBODY, of_b = CLUSTER_NOBODY; /* counterparts, as one range of slots follows another */
    for (size_t slot = 0; slot < CLUSTER_SLOTS; slot++) {
        if (a->owner[slot] != of_a) {
            of_a = a->owner[slot];
            of_b = counterpart(a, of_a, b);
        }
        if (b->owner[slot] != of_b) {
            return false;
        }
    }
    return true;
}

/* The place in the map of a node of another one, by its id, or by its address where one has none. */
static int16_t find_node(const struct cluster_node *node, const struct cluster_map *map)
{
    for (size_t i = 0; i < map->node_count; i++) {
        const struct cluster_node *other = &map->nodes[i];
        bool has_ids = node->id[0] != '\0' && other->id[0] != '\0';
        if (has_ids ? strcmp(node->id, other->id) == 0 : is_same_address(other, slice_of(node->host), node->port)) {
            return (int16_t)i;
        }
    }
    return CLUSTER_NOBODY;
}

bool cluster_map_related(const struct cluster_map *a, const struct cluster_map *b)
{
    for (size_t i = 0; i < a->node_count; i++) {
        if (find_node(&a->nodes[i], b) != CLUSTER_NOBODY) {
            return true;
        }
    }
    return false;
}

void cluster_map_note_changes(struct cluster_map *map, const struct cluster_map *before, int64_t now_us)
{
    int16_t owner = CLUSTER_NOBODY, owner_before = CLUSTER_NOBODY; /* as one range of slots follows another */

    for (size_t slot = 0; before != NULL && slot < CLUSTER_SLOTS; slot++) {
        if (map->owner[slot] != owner) {
            owner = map->owner[slot];
            owner_before = owner != CLUSTER_NOBODY ? find_node(&map->nodes[owner], before) : CLUSTER_NOBODY;
        }
        bool is_new_node = owner != CLUSTER_NOBODY && owner_before == CLUSTER_NOBODY;
        bool goes_on = !is_new_node && before->owner[slot] == owner_before;
        map->changed_us[slot] = goes_on ? before->changed_us[slot] : now_us;
    }
}
