#include "lease/lease_registry.h"

#include "base/siphash.h"
#include "lease/lease_tally.h"

#include <assert.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

/* Scripts that are remembered of all users whose hash is the same, the latest: who makes up new ones all the time fills
 * neither the memory nor what there is for others. */
#define SCRIPTS_MAX 512
#define SCRIPT_USERS 64
/* Databases of which it is told apart whether a script in them may have ended any lease. */
#define DATABASES 64
/* Tables have some room from the beginning, so that adding to them succeeds. */
#define TABLE_ROOM 256
/* What is left, when an owner has what it may have, is so many times that. */
#define SHARE 3
/* So many times heavier what is on file may be than what it counts. */
#define GROWTH 4
/* Tokens that are remembered, one in each place. */
#define TOKENS ((size_t)1024)

struct unseen {
    uint64_t ended; /* when one ended last, as a number of a request */
    size_t under_way;
};

/* A token by which a lock was taken. */
struct used_token {
    uint64_t hash;
    uint64_t owner; /* hashed; 0: several have used it */
};

/* What is under way and concerns a key, or a token under a key, by its hash: however much that is, nothing is walked
 * through. It is there as long as anything is counted in it. */
struct spot {
    struct table_node node;
    uint32_t requests; /* that concern all of the key, or the token */
    uint32_t releases; /* of those */
    uint32_t mentions; /* that concern the key, with any token or none */
    uint32_t guards;   /* WATCHes of the key that last */
    uint64_t released; /* the last release that has ended, and may have come about, … */
    uint64_t over;     /* … and the last number when one came about */
};

struct lease_registry {
    pthread_mutex_t mutex;
    size_t threads;
    struct siphash_key hash_key;
    struct table keys;
    struct table spots;
    struct table members;
    struct table owners;
    struct table scripts;
    _Atomic size_t script_count;
    struct {
        TAILQ_HEAD(, learned) scripts; /* the oldest first */
        size_t count;
    } of_users[SCRIPT_USERS];
    LIST_HEAD(, lease) leases;
    size_t lease_count;
    size_t most; /* what the leases may weigh, and the requests as well */
    size_t leases_weigh;
    size_t requests_weigh;
    uint64_t sequence;
    struct unseen unseen[DATABASES];
    LIST_HEAD(, lease_owner) processes;
    uint64_t searches;
    uint64_t endings;
    bool asked[LEASE_ONCES];
    bool draining;
    struct lease_tallies *tallies;
    bool gives_away;
    int64_t beside_until_us;
    struct used_token tokens[TOKENS];
    struct lease_wheel wheels[]; /* one for each worker */
};

struct learned {
    struct table_node node;
    TAILQ_ENTRY(learned) of_user;
    size_t of; /* which users */
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
    for (size_t i = 0; i < SCRIPT_USERS; i++) {
        TAILQ_INIT(&registry->of_users[i].scripts);
    }
    bool opened = table_open(&registry->keys, TABLE_ROOM);
    opened = table_open(&registry->spots, TABLE_ROOM) && opened;
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
    assert(registry->keys.count == 0 && registry->spots.count == 0 && registry->owners.count == 0);
    assert(registry->leases_weigh == 0 && registry->requests_weigh == 0);
    free_scripts(&registry->scripts);
    table_close(&registry->keys);
    table_close(&registry->spots);
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
    struct lease_owner *taker = lease_taker(lease);
    size_t *of_owner = taker != NULL ? &taker->weight : &nobodys;

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
        if (name.length > 0) {
            memcpy(key->name, name.data, name.length);
        }
        (void)table_add(&registry->keys, &key->node, hash);
    }
    return key;
}

/* Frees the key if no lease is on it any more. */
static void settle_key(struct lease_registry *registry, struct lease_key *key)
{
    if (LIST_EMPTY(&key->members)) {
        table_remove(&registry->keys, &key->node);
        free(key);
    }
}

/* ---- requests under way ---- */

/* By which a token under a key is found. */
static uint64_t hash_of_token(const struct lease_registry *registry, uint64_t key_hash, struct slice token)
{
    /* Turned, so that a key and a token that read the same do not come to nothing. */
    return hash_text(registry, token) ^ (key_hash << 1 | key_hash >> 63);
}

static struct spot *find_spot(const struct lease_registry *registry, uint64_t hash)
{
    return (struct spot *)(void *)table_first(&registry->spots, hash);
}

/* Made if need be; NULL when memory is short. */
static struct spot *take_spot(struct lease_registry *registry, uint64_t hash)
{
    struct spot *spot = find_spot(registry, hash);

    if (spot == NULL) {
        spot = calloc(1, sizeof *spot);
        if (spot != NULL) {
            (void)table_add(&registry->spots, &spot->node, hash);
        }
    }
    return spot;
}

static void settle_spot(struct lease_registry *registry, struct spot *spot)
{
    if (spot != NULL && spot->requests == 0 && spot->mentions == 0 && spot->guards == 0) {
        table_remove(&registry->spots, &spot->node);
        free(spot);
    }
}

bool lease_registry_expects(struct lease_registry *registry, int64_t database, struct slice name)
{
    uint64_t hash = hash_of_key(registry, database, name);
    const struct spot *spot = find_spot(registry, hash);

    return (spot != NULL && spot->mentions > 0) || find_key(registry, database, name, hash) != NULL;
}

void lease_registry_touch(struct lease_registry *registry, struct lease_touch *touch, int64_t database,
                          struct slice name)
{
    touch->key_hash = hash_of_key(registry, database, name);
    touch->hash = touch->token.data == NULL ? touch->key_hash : hash_of_token(registry, touch->key_hash, touch->token);
    struct spot *of_key = take_spot(registry, touch->key_hash);
    struct spot *spot = of_key != NULL ? take_spot(registry, touch->hash) : NULL;
    if (spot == NULL) {
        settle_spot(registry, of_key);
        return;
    }
    touch->is_counted = true;
    of_key->mentions++;
    spot->requests++;
    spot->releases += touch->releases;
}

void lease_registry_untouch(struct lease_registry *registry, struct lease_touch *touch)
{
    if (!touch->is_counted) {
        return;
    }
    struct spot *of_key = find_spot(registry, touch->key_hash), *spot = find_spot(registry, touch->hash);
    touch->is_counted = false;
    touch->overtaken = of_key->released > touch->sequence || spot->released > touch->sequence;
    touch->is_over = spot->over >= touch->sequence;
    of_key->mentions--;
    spot->requests--;
    spot->releases -= touch->releases;
    settle_spot(registry, spot);
    if (touch->hash != touch->key_hash) {
        settle_spot(registry, of_key);
    }
}

void lease_registry_note_release(struct lease_registry *registry, const struct lease_touch *touch, bool came_about)
{
    struct spot *spot = find_spot(registry, touch->hash);

    if (spot != NULL && spot->released < touch->sequence) {
        spot->released = touch->sequence;
    }
    if (spot != NULL && came_about && touch->token.data != NULL) {
        spot->over = registry->sequence;
    }
}

uint64_t lease_registry_guard(struct lease_registry *registry, int64_t database, struct slice name)
{
    struct spot *spot = take_spot(registry, hash_of_key(registry, database, name));

    if (spot == NULL) {
        return 0;
    }
    spot->guards++;
    return spot->node.hash;
}

void lease_registry_unguard(struct lease_registry *registry, uint64_t guard)
{
    struct spot *spot = find_spot(registry, guard);

    if (spot != NULL && spot->guards > 0) {
        spot->guards--;
        settle_spot(registry, spot);
    }
}

static struct unseen *unseen_of(struct lease_registry *registry, int64_t database)
{
    return &registry->unseen[(uint64_t)database % DATABASES];
}

void lease_registry_begin_unseen(struct lease_registry *registry, int64_t database)
{
    unseen_of(registry, database)->under_way++;
}

void lease_registry_end_unseen(struct lease_registry *registry, int64_t database, bool executed)
{
    struct unseen *unseen = unseen_of(registry, database);

    unseen->under_way--;
    if (executed) {
        unseen->ended = lease_registry_sequence(registry);
    }
}

void lease_registry_unsee(struct lease_registry *registry)
{
    uint64_t now = lease_registry_sequence(registry);

    for (size_t i = 0; i < DATABASES; i++) {
        registry->unseen[i].ended = now;
    }
}

uint64_t lease_registry_unseen(const struct lease_registry *registry, int64_t database)
{
    const struct unseen *unseen = &registry->unseen[(uint64_t)database % DATABASES];

    return unseen->under_way > 0 ? UINT64_MAX : unseen->ended;
}

bool lease_registry_is_empty(const struct lease_registry *registry)
{
    return registry->keys.count == 0 && registry->spots.count == 0;
}

/* ---- leases ---- */

struct lease *lease_registry_find(struct lease_registry *registry, int64_t database, struct slice name,
                                  struct slice token)
{
    const struct lease_key *key = lease_registry_find_key(registry, database, name);
    struct table_node *node =
        key != NULL ? table_first(&registry->members, hash_of_token(registry, key->node.hash, token)) : NULL;

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
    (void)table_add(&registry->members, &member->node, hash_of_token(registry, member->key->node.hash, lease->token));
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
    if (owner->connections == 0 && LIST_EMPTY(&owner->shares)) {
        assert(owner->weight == 0);
        table_remove(&registry->owners, &owner->node);
        if (owner->process.pid != 0 || owner->user != 0) {
            LIST_REMOVE(owner, of_processes);
        }
        free(owner);
    }
}

struct lease_owner *lease_taker(const struct lease *lease)
{
    const struct lease_share *first = LIST_FIRST(&lease->shares);

    return first != NULL ? first->owner : NULL;
}

/* The lease weighs on its taker, whoever that is from now on. */
static void shift_weight(struct lease *lease, struct lease_owner *before)
{
    struct lease_owner *taker = lease_taker(lease);

    if (before != NULL) {
        before->weight -= lease->weight;
    }
    if (taker != NULL) {
        taker->weight += lease->weight;
    }
}

static struct lease_share *find_share(const struct lease *lease, const struct lease_owner *owner)
{
    struct lease_share *share = LIST_FIRST(&lease->shares);

    while (share != NULL && share->owner != owner) {
        share = LIST_NEXT(share, of_lease);
    }
    return share;
}

void lease_registry_disown(struct lease_registry *registry, struct lease_share *share)
{
    struct lease *lease = share->lease;
    struct lease_owner *owner = share->owner, *taker = lease_taker(lease);

    LIST_REMOVE(share, of_owner);
    LIST_REMOVE(share, of_lease);
    shift_weight(lease, taker);
    settle_owner(registry, owner);
    share->owner = NULL;
    if (share != &lease->taken) {
        free(share);
    }
}

struct lease_share *lease_own(struct lease *lease, struct lease_owner *owner)
{
    struct lease_share *share = find_share(lease, owner), *taken = LIST_FIRST(&lease->shares);

    if (share != NULL) {
        return share;
    }
    share = lease->taken.owner == NULL ? &lease->taken : malloc(sizeof *share);
    if (share == NULL) {
        return NULL;
    }
    *share = (struct lease_share){.lease = lease, .owner = owner};
    LIST_INSERT_HEAD(&owner->shares, share, of_owner);
    if (taken != NULL) {
        LIST_INSERT_AFTER(taken, share, of_lease);
    } else {
        LIST_INSERT_HEAD(&lease->shares, share, of_lease);
        shift_weight(lease, NULL);
    }
    return share;
}

void lease_registry_hand_over(struct lease_registry *registry, struct lease_share *share, struct lease_owner *owner)
{
    struct lease_owner *before = share->owner, *taker = lease_taker(share->lease);

    if (find_share(share->lease, owner) != NULL) {
        lease_registry_disown(registry, share);
        return;
    }
    LIST_REMOVE(share, of_owner);
    share->owner = owner;
    LIST_INSERT_HEAD(&owner->shares, share, of_owner);
    shift_weight(share->lease, taker);
    settle_owner(registry, before);
}

bool lease_registry_use_token(struct lease_registry *registry, struct slice token, const struct lease_owner *owner)
{
    uint64_t hash = hash_text(registry, token), by = owner->node.hash;
    struct used_token *used = &registry->tokens[hash % TOKENS];

    used->owner = used->hash != hash || used->owner == by ? by : 0;
    used->hash = hash;
    return used->owner == 0;
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
    while (!LIST_EMPTY(&lease->shares)) {
        lease_registry_disown(registry, LIST_FIRST(&lease->shares));
    }
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

bool lease_registry_is_guarded(const struct lease_registry *registry, const struct lease *lease)
{
    bool is = false;

    for (size_t i = 0; i < lease->key_count; i++) {
        const struct spot *spot = find_spot(registry, lease->members[i].key->node.hash);
        is = is || (spot != NULL && spot->guards > 0);
    }
    return is;
}

/* Whether requests are counted there, or only those that may release. */
static bool is_counted(const struct lease_registry *registry, uint64_t hash, bool releases)
{
    const struct spot *spot = find_spot(registry, hash);

    return spot != NULL && (releases ? spot->releases : spot->requests) > 0;
}

static bool is_concerned(const struct lease_registry *registry, const struct lease *lease, bool releases)
{
    bool is = false;

    for (size_t i = 0; i < lease->key_count; i++) {
        const struct lease_member *member = &lease->members[i];
        is = is || is_counted(registry, member->key->node.hash, releases) ||
             is_counted(registry, member->node.hash, releases);
    }
    return is;
}

bool lease_registry_is_releasing(const struct lease_registry *registry, const struct lease *lease)
{
    return is_concerned(registry, lease, true);
}

bool lease_registry_is_touched(const struct lease_registry *registry, const struct lease *lease)
{
    return is_concerned(registry, lease, false);
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

struct lease_owner *lease_registry_join(struct lease_registry *registry, struct slice name, size_t shown)
{
    uint64_t hash = hash_text(registry, name);
    struct lease_owner *owner = find_owner(registry, name, hash);

    if (owner == NULL) {
        owner = malloc(sizeof *owner + name.length);
        if (owner == NULL) {
            return NULL;
        }
        *owner = (struct lease_owner){.length = name.length, .shown = shown};
        LIST_INIT(&owner->shares);
        memcpy(owner->name, name.data, name.length);
        (void)table_add(&registry->owners, &owner->node, hash);
    }
    owner->connections++;
    owner->gone_us = 0;
    owner->ended = false;
    owner->search = 0;
    return owner;
}

struct lease_owner *lease_registry_join_process(struct lease_registry *registry, struct slice name, size_t shown,
                                                const struct policy_peer *process, uint64_t user)
{
    struct lease_owner *owner = lease_registry_join(registry, name, shown);
    bool is_new = owner != NULL && owner->process.pid == 0 && owner->user == 0;

    if (is_new && (process->pid != 0 || user != 0)) {
        owner->process = *process;
        owner->user = user;
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

/* ---- scripts ---- */

/* The one that such users (SCRIPT_USERS: any) have had remembered, or NULL. */
static struct learned *find_learned(const struct lease_registry *registry, struct slice digest, size_t of)
{
    struct table_node *node = table_first(&registry->scripts, hash_text(registry, digest));

    for (; node != NULL; node = table_next(node)) {
        struct learned *learned = (struct learned *)(void *)node;
        if (slice_equal(digest, (struct slice){learned->digest, sizeof learned->digest}) &&
            (of == SCRIPT_USERS || learned->of == of)) {
            return learned;
        }
    }
    return NULL;
}

static void forget_learned(struct lease_registry *registry, struct learned *learned)
{
    TAILQ_REMOVE(&registry->of_users[learned->of].scripts, learned, of_user);
    registry->of_users[learned->of].count--;
    table_remove(&registry->scripts, &learned->node);
}

void lease_registry_learn(struct lease_registry *registry, const char digest[LEASE_DIGEST_LENGTH],
                          const struct lease_script *script, uint64_t user)
{
    size_t of = user % SCRIPT_USERS;
    struct slice text = {digest, LEASE_DIGEST_LENGTH};
    /* Known already, it is the latest again; others' is theirs, and may be forgotten. */
    struct learned *learned = find_learned(registry, text, of);

    if (learned == NULL && registry->of_users[of].count == SCRIPTS_MAX) {
        learned = TAILQ_FIRST(&registry->of_users[of].scripts);
    }
    if (learned != NULL) {
        forget_learned(registry, learned);
    } else {
        learned = malloc(sizeof *learned);
    }
    if (learned != NULL) {
        learned->script = script;
        learned->of = of;
        memcpy(learned->digest, digest, sizeof learned->digest);
        registry->of_users[of].count++;
        TAILQ_INSERT_TAIL(&registry->of_users[of].scripts, learned, of_user);
        (void)table_add(&registry->scripts, &learned->node, hash_text(registry, text));
        atomic_store_explicit(&registry->script_count, registry->scripts.count, memory_order_relaxed);
    }
}

const struct lease_script *lease_registry_script(struct lease_registry *registry, struct slice digest)
{
    const struct learned *learned;

    /* Most scripts are of no lock. */
    if (atomic_load_explicit(&registry->script_count, memory_order_relaxed) == 0) {
        return NULL;
    }
    lease_registry_lock(registry);
    learned = find_learned(registry, digest, SCRIPT_USERS);
    const struct lease_script *script = learned != NULL ? learned->script : NULL;
    lease_registry_unlock(registry);
    return script;
}
