#include "lease/lease_registry.h"

#include "base/siphash.h"
#include "lease/lease_tally.h"

#include <assert.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

/* Scripts that are remembered: a client that makes up new ones all the time is not to fill the memory. */
#define SCRIPTS_MAX 4096
/* Databases of which it is told apart whether a script in them may have ended any lease. */
#define DATABASES 64
/* Tables have some room from the beginning, so that adding to them succeeds. */
#define TABLE_ROOM 256
/* What is left, when an owner has what it may have, is so many times that. */
#define SHARE 3
/* So many times heavier what is on file may be than what it counts. */
#define GROWTH 4
/* Semaphores that are remembered, one in each place. */
#define SEMAPHORES ((size_t)1024)

struct unseen {
    uint64_t ended; /* when one ended last, as a number of a request */
    size_t under_way;
};

struct lease_registry {
    pthread_mutex_t mutex;
    size_t threads;
    struct siphash_key hash_key;
    struct table keys;
    struct table members;
    struct table owners;
    struct table scripts;
    _Atomic size_t script_count;
    LIST_HEAD(, lease) leases;
    size_t lease_count;
    size_t most; /* what the leases may weigh, and the requests as well */
    size_t leases_weigh;
    size_t requests_weigh;
    uint64_t sequence;
    size_t flushes;
    struct unseen unseen[DATABASES];
    LIST_HEAD(, lease_owner) processes;
    uint64_t searches;
    uint64_t endings;
    bool asked[LEASE_ONCES];
    bool draining;
    struct lease_tallies *tallies;
    bool gives_away;
    int64_t beside_until_us;
    struct lease_semaphore semaphores[SEMAPHORES];
    struct lease_wheel wheels[]; /* one for each worker */
};

struct learned {
    struct table_node node;
    const struct lease_script *script;
    char digest[LEASE_DIGEST_LENGTH];
};

/* ---- the registry ---- */

struct lease_registry *lease_registry_new(size_t threads)
{
    struct lease_registry *registry = calloc(1, sizeof *registry + threads * sizeof registry->wheels[0]);

    if (registry == NULL) {
        return NULL;
    }
    registry->threads = threads;
    registry->hash_key = siphash_random_key();
    pthread_mutex_init(&registry->mutex, NULL);
    LIST_INIT(&registry->leases);
    LIST_INIT(&registry->processes);
    bool opened = table_open(&registry->keys, TABLE_ROOM);
    opened = table_open(&registry->members, TABLE_ROOM) && opened;
    opened = table_open(&registry->owners, TABLE_ROOM) && opened;
    opened = table_open(&registry->scripts, TABLE_ROOM) && opened;
    registry->tallies = lease_tallies_new();
    if (!opened || registry->tallies == NULL) {
        lease_registry_free(registry);
        return NULL;
    }
    return registry;
}

static void free_scripts(struct table *scripts)
{
    struct table_node *next;

    for (struct table_node *node = table_walk(scripts, NULL); node != NULL; node = next) {
        next = table_walk(scripts, node);
        free(node);
    }
}

void lease_registry_free(struct lease_registry *registry)
{
    while (!LIST_EMPTY(&registry->leases)) {
        lease_registry_remove(registry, LIST_FIRST(&registry->leases), LEASE_REASON_DROPPED);
    }
    assert(registry->keys.count == 0 && registry->owners.count == 0);
    assert(registry->leases_weigh == 0 && registry->requests_weigh == 0);
    free_scripts(&registry->scripts);
    table_close(&registry->keys);
    table_close(&registry->members);
    table_close(&registry->owners);
    table_close(&registry->scripts);
    lease_tallies_free(registry->tallies);
    pthread_mutex_destroy(&registry->mutex);
    free(registry);
}

struct lease_tallies *lease_registry_tallies(struct lease_registry *registry)
{
    return registry->tallies;
}

void lease_registry_lock(struct lease_registry *registry)
{
    if (registry->threads > 1) {
        pthread_mutex_lock(&registry->mutex);
    }
}

void lease_registry_unlock(struct lease_registry *registry)
{
    if (registry->threads > 1) {
        pthread_mutex_unlock(&registry->mutex);
    }
}

uint64_t lease_registry_sequence(struct lease_registry *registry)
{
    return ++registry->sequence;
}

uint64_t lease_registry_last(const struct lease_registry *registry)
{
    return registry->sequence;
}

size_t lease_registry_count(const struct lease_registry *registry)
{
    return registry->lease_count;
}

void lease_registry_bound(struct lease_registry *registry, size_t most)
{
    registry->most = most;
}

size_t lease_registry_weight(const struct lease_registry *registry)
{
    return registry->leases_weigh;
}

/* The more there is, the less each may have of the rest: who has nothing yet finds some of it. */
static bool weigh(size_t most, size_t *of_all, size_t *of_holder, size_t *weight, size_t wanted)
{
    size_t more = wanted > *weight ? wanted - *weight : 0;

    if (more > 0 && *of_all + more + SHARE * (*of_holder + more) > most) {
        return false;
    }
    *of_all += wanted - *weight;
    *of_holder += wanted - *weight;
    *weight = wanted;
    return true;
}

bool lease_registry_weigh(struct lease_registry *registry, struct lease *lease, size_t weight)
{
    size_t nobodys = lease->weight;
    size_t *of_owner = lease->owner != NULL ? &lease->owner->weight : &nobodys;

    return weigh(registry->most, &registry->leases_weigh, of_owner, &lease->weight, weight) ||
           weight <= GROWTH * lease->weight;
}

void lease_registry_take_over(struct lease_registry *registry, struct lease *lease, size_t weight)
{
    size_t most = registry->most;

    registry->most = SIZE_MAX;
    (void)lease_registry_weigh(registry, lease, weight);
    registry->most = most;
}

bool lease_registry_weigh_request(struct lease_registry *registry, size_t *of_client, size_t *weight, size_t wanted)
{
    return weigh(registry->most, &registry->requests_weigh, of_client, weight, wanted);
}

struct lease_wheel *lease_registry_wheel(struct lease_registry *registry, size_t worker)
{
    return &registry->wheels[worker];
}

bool lease_registry_is_draining(const struct lease_registry *registry)
{
    return registry->draining;
}

void lease_registry_drain(struct lease_registry *registry)
{
    registry->draining = true;
}

void lease_registry_set_beside(struct lease_registry *registry, int64_t until_us, bool gives_away)
{
    registry->beside_until_us = until_us;
    registry->gives_away = gives_away;
}

bool lease_registry_is_beside(const struct lease_registry *registry, int64_t now_us)
{
    return now_us < registry->beside_until_us;
}

bool lease_registry_gives_away(const struct lease_registry *registry, int64_t now_us)
{
    return registry->gives_away && lease_registry_is_beside(registry, now_us);
}

static uint64_t hash_text(const struct lease_registry *registry, struct slice text)
{
    return siphash(&registry->hash_key, text.length > 0 ? text.data : "", text.length);
}

struct lease_semaphore *lease_registry_semaphore(struct lease_registry *registry, const struct lease_key *key)
{
    struct lease_semaphore *semaphore = &registry->semaphores[key->node.hash % SEMAPHORES];

    if (semaphore->key != key->node.hash || semaphore->limit == 0) {
        *semaphore = (struct lease_semaphore){.key = key->node.hash, .limit = 1};
    }
    return semaphore;
}

/* ---- keys ---- */

static uint64_t hash_of_key(const struct lease_registry *registry, int64_t database, struct slice name)
{
    return hash_text(registry, name) ^ (uint64_t)database * UINT64_C(0x9e3779b97f4a7c15);
}

static struct lease_key *find_key(struct lease_registry *registry, int64_t database, struct slice name, uint64_t hash)
{
    struct table_node *node = table_first(&registry->keys, hash);

    for (; node != NULL; node = table_next(node)) {
        struct lease_key *key = (struct lease_key *)(void *)node;
        if (key->database == database && slice_equal(name, (struct slice){key->name, key->length})) {
            return key;
        }
    }
    return NULL;
}

struct lease_key *lease_registry_find_key(struct lease_registry *registry, int64_t database, struct slice name)
{
    return find_key(registry, database, name, hash_of_key(registry, database, name));
}

/* The key, made if need be; NULL when memory is short. */
static struct lease_key *take_key(struct lease_registry *registry, int64_t database, struct slice name)
{
    uint64_t hash = hash_of_key(registry, database, name);
    struct lease_key *key = find_key(registry, database, name, hash);

    if (key != NULL) {
        return key;
    }
    key = malloc(sizeof *key + name.length);
    if (key != NULL) {
        *key = (struct lease_key){.database = database, .length = name.length};
        LIST_INIT(&key->members);
        LIST_INIT(&key->touches);
        if (name.length > 0) {
            memcpy(key->name, name.data, name.length);
        }
        (void)table_add(&registry->keys, &key->node, hash);
    }
    return key;
}

/* Frees the key if nothing has to do with it any more. */
static void settle_key(struct lease_registry *registry, struct lease_key *key)
{
    if (LIST_EMPTY(&key->members) && LIST_EMPTY(&key->touches)) {
        table_remove(&registry->keys, &key->node);
        free(key);
    }
}

bool lease_registry_touch(struct lease_registry *registry, struct lease_touch *touch, int64_t database,
                          struct slice name)
{
    touch->key = take_key(registry, database, name);
    if (touch->key == NULL) {
        return false;
    }
    LIST_INSERT_HEAD(&touch->key->touches, touch, of_key);
    return true;
}

void lease_registry_untouch(struct lease_registry *registry, struct lease_touch *touch)
{
    struct lease_key *key = touch->key;

    if (key != NULL) {
        touch->key = NULL;
        LIST_REMOVE(touch, of_key);
        settle_key(registry, key);
    }
}

void lease_registry_begin_flush(struct lease_registry *registry)
{
    registry->flushes++;
}

void lease_registry_end_flush(struct lease_registry *registry)
{
    registry->flushes--;
}

static size_t place_of(int64_t database)
{
    return (size_t)((uint64_t)database % DATABASES);
}

void lease_registry_begin_unseen(struct lease_registry *registry, int64_t database)
{
    registry->unseen[place_of(database)].under_way++;
}

void lease_registry_end_unseen(struct lease_registry *registry, int64_t database, bool executed)
{
    struct unseen *unseen = &registry->unseen[place_of(database)];

    unseen->under_way--;
    if (executed) {
        unseen->ended = lease_registry_sequence(registry);
    }
}

uint64_t lease_registry_unseen(const struct lease_registry *registry, int64_t database)
{
    const struct unseen *unseen = &registry->unseen[place_of(database)];

    return unseen->under_way > 0 ? UINT64_MAX : unseen->ended;
}

bool lease_registry_is_empty(const struct lease_registry *registry)
{
    return registry->keys.count == 0;
}

/* ---- leases ---- */

static uint64_t hash_of_member(const struct lease_registry *registry, const struct lease_key *key, struct slice token)
{
    return hash_text(registry, token) ^ key->node.hash;
}

struct lease *lease_registry_find(struct lease_registry *registry, int64_t database, struct slice name,
                                  struct slice token)
{
    const struct lease_key *key = lease_registry_find_key(registry, database, name);
    struct table_node *node =
        key != NULL ? table_first(&registry->members, hash_of_member(registry, key, token)) : NULL;

    for (; node != NULL; node = table_next(node)) {
        const struct lease_member *member = (const struct lease_member *)(const void *)node;
        if (member->key == key && slice_equal(token, member->lease->token)) {
            return member->lease;
        }
    }
    return NULL;
}

/* The token lies behind the members. */
static struct lease *make_lease(size_t key_count, struct slice token)
{
    size_t head = sizeof(struct lease) + key_count * sizeof(struct lease_member);
    struct lease *lease = malloc(head + token.length);

    if (lease != NULL) {
        *lease = (struct lease){.token = {(char *)lease + head, token.length}};
        memset(lease->members, 0, key_count * sizeof lease->members[0]);
        if (token.length > 0) {
            memcpy((char *)lease + head, token.data, token.length);
        }
    }
    return lease;
}

/* A key that is named twice is one member: whoever ends a lease walks over members of the same key. False when memory
 * is short. */
static bool add_member(struct lease_registry *registry, struct lease *lease, int64_t database, struct slice name)
{
    struct lease_member *member = &lease->members[lease->key_count];

    member->key = take_key(registry, database, name);
    if (member->key == NULL) {
        return false;
    }
    const struct lease_member *newest = LIST_FIRST(&member->key->members);
    if (newest != NULL && newest->lease == lease) {
        return true;
    }
    member->lease = lease;
    member->key->member_count++;
    LIST_INSERT_HEAD(&member->key->members, member, of_key);
    (void)table_add(&registry->members, &member->node, hash_of_member(registry, member->key, lease->token));
    lease->key_count++;
    return true;
}

static void remove_members(struct lease_registry *registry, struct lease *lease)
{
    for (size_t i = 0; i < lease->key_count; i++) {
        struct lease_member *member = &lease->members[i];
        table_remove(&registry->members, &member->node);
        member->key->member_count--;
        LIST_REMOVE(member, of_key);
    }
}

static void settle_keys(struct lease_registry *registry, struct lease *lease)
{
    for (size_t i = 0; i < lease->key_count; i++) {
        settle_key(registry, lease->members[i].key);
    }
}

struct lease *lease_registry_add(struct lease_registry *registry, int64_t database, const struct slice *keys,
                                 size_t key_count, struct slice token)
{
    struct lease *lease = make_lease(key_count, token);

    for (size_t i = 0; lease != NULL && i < key_count; i++) {
        if (!add_member(registry, lease, database, keys[i])) {
            remove_members(registry, lease);
            settle_keys(registry, lease);
            free(lease);
            return NULL;
        }
    }
    if (lease != NULL) {
        LIST_INSERT_HEAD(&registry->leases, lease, of_all);
        registry->lease_count++;
    }
    return lease;
}

static void settle_owner(struct lease_registry *registry, struct lease_owner *owner)
{
    if (owner->connections == 0 && LIST_EMPTY(&owner->leases)) {
        assert(owner->weight == 0);
        table_remove(&registry->owners, &owner->node);
        if (owner->process.pid != 0) {
            LIST_REMOVE(owner, of_processes);
        }
        free(owner);
    }
}

static void disown(struct lease_registry *registry, struct lease *lease)
{
    struct lease_owner *owner = lease->owner;

    if (owner != NULL) {
        owner->weight -= lease->weight;
        lease->owner = NULL;
        LIST_REMOVE(lease, of_owner);
        settle_owner(registry, owner);
    }
}

void lease_move(struct lease *lease, enum lease_state state)
{
    lease->state = state;
    lease->was_endless = lease->was_endless || state == LEASE_UNHEALED;
    lease->retry_us = 0;
    lease->after_release = lease->after_release && state == LEASE_DOUBTFUL;
}

void lease_registry_remove(struct lease_registry *registry, struct lease *lease, enum lease_reason reason)
{
    lease_wheel_cancel(&lease->watch);
    (void)lease_registry_weigh(registry, lease, 0);
    remove_members(registry, lease);
    settle_keys(registry, lease);
    lease->key_count = 0;
    disown(registry, lease);
    LIST_REMOVE(lease, of_all);
    registry->lease_count--;
    lease_move(lease, LEASE_ENDED);
    lease->reason = reason;
    lease_free_ended(lease);
}

void lease_free_ended(struct lease *lease)
{
    if (lease->state == LEASE_ENDED && !lease->calling) {
        free(lease);
    }
}

struct lease *lease_registry_first(const struct lease_registry *registry)
{
    return LIST_FIRST(&registry->leases);
}

/* Whether a request is under way that concerns the lease, or only one that may release it. */
static bool is_touched(const struct lease_registry *registry, const struct lease *lease, bool releasing)
{
    const struct lease_touch *touch;

    if (registry->flushes > 0) {
        return true;
    }
    for (size_t i = 0; i < lease->key_count; i++) {
        LIST_FOREACH(touch, &lease->members[i].key->touches, of_key)
        {
            bool concerns = touch->token.data == NULL || slice_equal(touch->token, lease->token);
            if (concerns && (touch->releases || (!releasing && !touch->guards))) {
                return true;
            }
        }
    }
    return false;
}

bool lease_registry_is_guarded(const struct lease *lease)
{
    const struct lease_touch *touch;

    for (size_t i = 0; i < lease->key_count; i++) {
        LIST_FOREACH(touch, &lease->members[i].key->touches, of_key)
        {
            if (touch->guards) {
                return true;
            }
        }
    }
    return false;
}

bool lease_registry_is_releasing(const struct lease_registry *registry, const struct lease *lease)
{
    return is_touched(registry, lease, true);
}

bool lease_registry_is_touched(const struct lease_registry *registry, const struct lease *lease)
{
    return is_touched(registry, lease, false);
}

/* ---- owners ---- */

static struct lease_owner *find_owner(struct lease_registry *registry, struct slice name, uint64_t hash)
{
    struct table_node *node = table_first(&registry->owners, hash);

    for (; node != NULL; node = table_next(node)) {
        struct lease_owner *owner = (struct lease_owner *)(void *)node;
        if (slice_equal(name, (struct slice){owner->name, owner->length})) {
            return owner;
        }
    }
    return NULL;
}

struct lease_owner *lease_registry_join(struct lease_registry *registry, struct slice name)
{
    uint64_t hash = hash_text(registry, name);
    struct lease_owner *owner = find_owner(registry, name, hash);

    if (owner == NULL) {
        owner = malloc(sizeof *owner + name.length);
        if (owner == NULL) {
            return NULL;
        }
        *owner = (struct lease_owner){.length = name.length, .shown = name.length};
        LIST_INIT(&owner->leases);
        memcpy(owner->name, name.data, name.length);
        (void)table_add(&registry->owners, &owner->node, hash);
    }
    owner->connections++;
    owner->gone_us = 0;
    owner->ended = false;
    owner->search = 0;
    return owner;
}

struct lease_owner *lease_registry_join_process(struct lease_registry *registry, struct slice name,
                                                const struct policy_peer *process)
{
    struct lease_owner *owner = lease_registry_join(registry, name);

    if (owner != NULL && owner->process.pid == 0) {
        owner->process = *process;
        LIST_INSERT_HEAD(&registry->processes, owner, of_processes);
    }
    return owner;
}

struct lease_owner *lease_registry_first_process(const struct lease_registry *registry)
{
    return LIST_FIRST(&registry->processes);
}

void lease_registry_search(struct lease_registry *registry, struct lease_owner *process)
{
    process->search = ++registry->searches;
    process->searchers = registry->threads;
}

struct lease_owner *lease_registry_next_search(const struct lease_registry *registry, uint64_t number)
{
    struct lease_owner *owner, *next = NULL;

    LIST_FOREACH(owner, &registry->processes, of_processes)
    {
        if (owner->search > number && (next == NULL || owner->search < next->search)) {
            next = owner;
        }
    }
    return next;
}

void lease_registry_end_process(struct lease_registry *registry, struct lease_owner *process)
{
    process->ended = true;
    registry->endings++;
}

uint64_t lease_registry_endings(const struct lease_registry *registry)
{
    return registry->endings;
}

bool lease_registry_is_first(struct lease_registry *registry, enum lease_once what)
{
    bool is_first = !registry->asked[what];

    registry->asked[what] = true;
    return is_first;
}

void lease_registry_leave(struct lease_registry *registry, struct lease_owner *owner, int64_t now_us)
{
    owner->connections--;
    if (owner->connections == 0 && owner->gone_us == 0 && !registry->draining) {
        owner->gone_us = now_us;
    }
    settle_owner(registry, owner);
}

void lease_registry_own(struct lease_registry *registry, struct lease *lease, struct lease_owner *owner)
{
    if (lease->owner != owner) {
        disown(registry, lease);
        owner->weight += lease->weight;
        lease->owner = owner;
        LIST_INSERT_HEAD(&owner->leases, lease, of_owner);
    }
}

/* ---- scripts ---- */

static const struct lease_script *find_script(const struct lease_registry *registry, struct slice digest, uint64_t hash)
{
    struct table_node *node = table_first(&registry->scripts, hash);

    for (; node != NULL; node = table_next(node)) {
        const struct learned *learned = (const struct learned *)(const void *)node;
        if (slice_equal(digest, (struct slice){learned->digest, sizeof learned->digest})) {
            return learned->script;
        }
    }
    return NULL;
}

void lease_registry_learn(struct lease_registry *registry, const char digest[LEASE_DIGEST_LENGTH],
                          const struct lease_script *script)
{
    struct slice text = {digest, LEASE_DIGEST_LENGTH};
    uint64_t hash = hash_text(registry, text);
    struct learned *learned;

    if (registry->scripts.count >= SCRIPTS_MAX || find_script(registry, text, hash) != NULL) {
        return;
    }
    learned = malloc(sizeof *learned);
    if (learned != NULL) {
        learned->script = script;
        memcpy(learned->digest, digest, sizeof learned->digest);
        (void)table_add(&registry->scripts, &learned->node, hash);
        atomic_store_explicit(&registry->script_count, registry->scripts.count, memory_order_relaxed);
    }
}

const struct lease_script *lease_registry_script(struct lease_registry *registry, struct slice digest)
{
    const struct lease_script *script;

    /* Most scripts are of no lock. */
    if (atomic_load_explicit(&registry->script_count, memory_order_relaxed) == 0) {
        return NULL;
    }
    lease_registry_lock(registry);
    script = find_script(registry, digest, hash_text(registry, digest));
    lease_registry_unlock(registry);
    return script;
}
