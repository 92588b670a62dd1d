/* Profiles: found or made, counted, and what a connection is told to stand in for their clients. */
#include "upstream/upstream_private.h"

#include "base/recycle.h"

#include <assert.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/*
 * Anybody can make profiles: any password will do for a user that needs none, and each database and RESP version is
 * another. So what they cost is bounded.
 *
 * Profiles of which clients share lanes, on each worker. Applications have a few users; a client of one more keeps the
 * lane on which it authenticated, and costs a connection, as without Headgate.
 */
#define PROFILES_SHARING 256
/* Profiles without clients that keep their lanes. Enough for an application whose clients come, authenticate, ask and
 * go, with a few users or databases; more would be connections that are of use to nobody. */
#define PROFILES_LINGERING 8

/* What shared lanes say besides: the name shows operators what these connections are, and the answer whether Redis
 * wants a password. Any user may use HELLO; of what one may not use, ACL LOG would tell. */
static const char *const tails[] = {
    [2] = "*4\r\n$5\r\nHELLO\r\n$1\r\n2\r\n$7\r\nSETNAME\r\n$8\r\nheadgate\r\n",
    [3] = "*4\r\n$5\r\nHELLO\r\n$1\r\n3\r\n$7\r\nSETNAME\r\n$8\r\nheadgate\r\n",
};
#define TAIL_REPLIES 1
/* The id of a node of a cluster. */
#define ID_QUESTION "*2\r\n$7\r\nCLUSTER\r\n$4\r\nMYID\r\n"
/* What says nothing new: the answer shows that Redis takes the connection, and wants no password. */
#define EMPTY_HELLO "*2\r\n$5\r\nHELLO\r\n$1\r\n2\r\n"

/* Appends a command to the profile's greeting. False when memory is short. */
static bool greeting_add(struct profile *profile, size_t argument_count, const char *const *arguments)
{
    size_t length = profile->greeting_length;
    size_t room = 32;

    for (size_t i = 0; i < argument_count; i++) {
        room += strlen(arguments[i]) + 32;
    }
    char *text = realloc(profile->greeting, length + room);
    if (text == NULL) {
        return false;
    }
    length += (size_t)sprintf(text + length, "*%zu\r\n", argument_count);
    for (size_t i = 0; i < argument_count; i++) {
        length += (size_t)sprintf(text + length, "$%zu\r\n%s\r\n", strlen(arguments[i]), arguments[i]);
    }
    profile->greeting = text;
    profile->greeting_length = length;
    profile->greeting_replies++;
    return true;
}

static bool greeting_add_credentials(struct profile *profile)
{
    const char *user = profile->user != NULL ? profile->user : "default";

    if (profile->resp == 3) {
        const char *const hello[] = {"HELLO", "3", "AUTH", user, profile->password};
        return greeting_add(profile, profile->password != NULL ? 5 : 2, hello);
    }
    if (profile->password == NULL) {
        return true;
    }
    if (profile->user == NULL) {
        const char *const auth[] = {"AUTH", profile->password};
        return greeting_add(profile, 2, auth);
    }
    const char *const auth[] = {"AUTH", user, profile->password};
    return greeting_add(profile, 3, auth);
}

static bool greeting_build(struct profile *profile)
{
    char database[24];
    const char *const select[] = {"SELECT", database}, *const readonly[] = {"READONLY"};

    snprintf(database, sizeof database, "%lld", (long long)profile->database);
    if (!greeting_add_credentials(profile) || (profile->database != 0 && !greeting_add(profile, 2, select))) {
        return false;
    }
    if (profile->upstream->settings.says_readonly && !greeting_add(profile, 1, readonly)) {
        return false;
    }
    const char *question = profile->upstream->settings.lane.may_have_id != NULL ? ID_QUESTION : "";
    const char *tail = tails[profile->resp];
    const char *start = profile->greeting != NULL ? profile->greeting : "";
    /* Twice: with the question, and without it for who may not ask. */
    size_t length = 2 * profile->greeting_length + strlen(question) + 2 * strlen(tail);
    char *text = malloc(length + 1);
    if (text == NULL) {
        return false;
    }
    snprintf(text, length + 1, "%s%s%s%s%s", start, question, tail, start, tail);
    profile_forget_text(profile->greeting);
    profile->greeting = text;
    profile->greeting_id_length = strlen(question);
    profile->greeting_tail_length = strlen(tail);
    return true;
}

void profile_forget_text(char *text)
{
    if (text != NULL) {
        explicit_bzero(text, strlen(text));
    }
    free(text);
}

static void leave_nodes(struct profile *profile);

bool profile_set_password(struct profile *profile, const char *password)
{
    struct profile changed = *profile;

    changed.password = strdup(password);
    changed.greeting = NULL;
    changed.greeting_length = 0;
    changed.greeting_replies = 0;
    bool is_changed = changed.password != NULL && greeting_build(&changed);
    const struct profile *dropped = is_changed ? profile : &changed;
    profile_forget_text(dropped->password);
    profile_forget_text(dropped->greeting);
    if (is_changed) {
        profile->password = changed.password;
        profile->greeting = changed.greeting;
        profile->greeting_length = changed.greeting_length;
        profile->greeting_replies = changed.greeting_replies;
        leave_nodes(profile);
    }
    return is_changed;
}

/* ---- the same at the nodes of a cluster ---- */

struct profile *profile_make_at(struct profile *profile, struct upstream *upstream, size_t number)
{
    if (number >= profile->elsewhere_count) {
        size_t count = number + 8;
        struct profile **longer = realloc(profile->elsewhere, count * sizeof(struct profile *));
        if (longer == NULL) {
            return NULL;
        }
        memset(longer + profile->elsewhere_count, 0, (count - profile->elsewhere_count) * sizeof(struct profile *));
        profile->elsewhere = longer;
        profile->elsewhere_count = count;
    }
    profile->elsewhere[number] = profile_get(upstream, profile);
    if (profile->elsewhere[number] != NULL) {
        profile_join(profile->elsewhere[number]);
    }
    return profile->elsewhere[number];
}

static void leave_node(struct profile *profile, size_t number)
{
    struct profile *there = number < profile->elsewhere_count ? profile->elsewhere[number] : NULL;

    if (there != NULL) {
        profile->elsewhere[number] = NULL;
        profile_part(there);
    }
}

/* Requests that are routed from now on may go to other lanes of the same slots. */
static void leave_nodes(struct profile *profile)
{
    if (profile->elsewhere_count > 0 && profile->upstream->settings.changes != NULL) {
        ++*profile->upstream->settings.changes;
    }
    for (size_t i = 0; i < profile->elsewhere_count; i++) {
        leave_node(profile, i);
    }
}

void upstream_leave_node(struct upstream *upstream, size_t number)
{
    for (struct profile *profile = LIST_FIRST(&upstream->profiles); profile != NULL;
         profile = LIST_NEXT(profile, of_upstream)) {
        leave_node(profile, number);
    }
}

static void profile_free(struct profile *profile)
{
    free(profile->elsewhere);
    free(profile->identity);
    free(profile->user);
    profile_forget_text(profile->password);
    free(profile->shared);
    profile_forget_text(profile->greeting);
    free(profile);
}

static bool same_text(const char *a, const char *b)
{
    return a == b || (a != NULL && b != NULL && strcmp(a, b) == 0);
}

bool profile_same_credentials(const struct profile *a, const struct profile *b)
{
    return same_text(a->user, b->user) && same_text(a->password, b->password) &&
           (a->password != NULL || a->generation == b->generation);
}

static struct profile *profile_find(struct upstream *upstream, const struct profile *wanted)
{
    struct profile *profile = LIST_FIRST(&upstream->profiles);

    while (profile != NULL &&
           !(profile->database == wanted->database && profile->resp == wanted->resp &&
             profile->generation == wanted->generation && profile_same_credentials(profile, wanted))) {
        profile = LIST_NEXT(profile, of_upstream);
    }
    return profile;
}

static struct profile *profile_create(struct upstream *upstream, const struct profile *wanted)
{
    struct profile *profile = calloc(1, sizeof *profile);

    if (profile == NULL) {
        return NULL;
    }
    profile->upstream = upstream;
    profile->database = wanted->database;
    profile->resp = wanted->resp;
    profile->generation = wanted->generation;
    profile->user = wanted->user != NULL ? strdup(wanted->user) : NULL;
    profile->password = wanted->password != NULL ? strdup(wanted->password) : NULL;
    profile->shared = calloc(upstream->settings.shared_lanes, sizeof *profile->shared);
    /* Of the same credentials, so Redis' answer will be the same. */
    profile->needs_password = wanted->needs_password;
    profile->granted = wanted->granted;
    profile->denied = wanted->denied;
    memcpy(profile->granted_us, wanted->granted_us, sizeof profile->granted_us);
    profile->refused = wanted->refused;
    profile->is_default = wanted->is_default;
    if ((wanted->user != NULL && profile->user == NULL) || (wanted->password != NULL && profile->password == NULL) ||
        profile->shared == NULL || !greeting_build(profile)) {
        profile_free(profile);
        return NULL;
    }
    LIST_INSERT_HEAD(&upstream->profiles, profile, of_upstream);
    profile->may_share = upstream->sharing < PROFILES_SHARING;
    upstream->sharing += profile->may_share ? 1 : 0;
    return profile;
}

struct profile *profile_get(struct upstream *upstream, const struct profile *wanted)
{
    struct profile *profile = profile_find(upstream, wanted);

    if (profile == NULL) {
        profile = profile_create(upstream, wanted);
    }
    return profile != NULL ? profile_reference(profile) : NULL;
}

static void stop_lingering(struct profile *profile)
{
    if (profile->is_lingering) {
        TAILQ_REMOVE(&profile->upstream->lingering, profile, of_lingering);
        profile->is_lingering = false;
    }
}

struct profile *profile_reference(struct profile *profile)
{
    profile->references++;
    return profile;
}

void profile_release(struct profile *profile)
{
    struct upstream *upstream = profile->upstream;

    assert(profile->references > 0);
    if (--profile->references > 0) {
        return;
    }
    assert(profile->clients == 0);
    stop_lingering(profile);
    LIST_REMOVE(profile, of_upstream);
    upstream->sharing -= profile->may_share ? 1 : 0;
    leave_nodes(profile);
    SLIST_INSERT_HEAD(&upstream->released, profile, of_released);
    recycle_hide(profile, sizeof *profile);
    reactor_at_turn_end(upstream->reactor, REACTOR_STAGE_FREE, &upstream->free_closed);
}

void upstream_free_released(struct upstream *upstream)
{
    while (!SLIST_EMPTY(&upstream->released)) {
        struct profile *profile = SLIST_FIRST(&upstream->released);
        recycle_show(profile, sizeof *profile);
        SLIST_REMOVE_HEAD(&upstream->released, of_released);
        profile_free(profile);
    }
}

/* ---- profiles that their clients have left ---- */

/* Whether anybody waits for a reply: Headgate's own commands and scripts do so without being clients. */
static bool is_in_use(const struct profile *profile)
{
    for (size_t i = 0; i < profile->upstream->settings.shared_lanes; i++) {
        if (profile->shared[i] != NULL && lane_serves_others(profile->shared[i], NULL)) {
            return true;
        }
    }
    return false;
}

static void close_lanes(struct profile *profile)
{
    profile_reference(profile);
    leave_nodes(profile);
    for (size_t i = 0; i < profile->upstream->settings.shared_lanes; i++) {
        if (profile->shared[i] != NULL) {
            lane_close(profile->shared[i], "its last client has left");
        }
    }
    while (!LIST_EMPTY(&profile->pooled)) {
        lane_close(LIST_FIRST(&profile->pooled), "its last client has left");
    }
    profile_release(profile);
}

static bool are_too_many(const struct upstream *upstream)
{
    size_t profiles = 0;
    const struct profile *profile;

    TAILQ_FOREACH(profile, &upstream->lingering, of_lingering)
    {
        profiles++;
    }
    return profiles > PROFILES_LINGERING;
}

/* The one that was left first, and that can go. */
static struct profile *first_to_go(const struct upstream *upstream)
{
    struct profile *profile = TAILQ_FIRST(&upstream->lingering);

    while (profile != NULL && is_in_use(profile)) {
        profile = TAILQ_NEXT(profile, of_lingering);
    }
    return profile;
}

static void shed_profiles(struct upstream *upstream)
{
    while (are_too_many(upstream)) {
        struct profile *profile = first_to_go(upstream);
        if (profile == NULL) {
            return;
        }
        stop_lingering(profile);
        close_lanes(profile);
    }
}

static void begin_lingering(struct profile *profile)
{
    TAILQ_INSERT_TAIL(&profile->upstream->lingering, profile, of_lingering);
    profile->is_lingering = true;
}

void profile_join(struct profile *profile)
{
    profile->clients++;
    stop_lingering(profile);
}

void profile_part(struct profile *profile)
{
    struct upstream *upstream = profile->upstream;

    assert(profile->clients > 0);
    if (--profile->clients == 0 && profile != upstream->base) {
        begin_lingering(profile);
    }
    /* One without lanes goes here. */
    profile_release(profile);
    shed_profiles(upstream);
}

static void follow_base(struct upstream *upstream, struct profile *before)
{
    struct profile *base = upstream->base;

    upstream->sharing += base->may_share ? 0 : 1;
    base->may_share = true;
    stop_lingering(base);
    if (before->clients == 0 && before != base && !before->is_lingering) {
        begin_lingering(before);
    }
    profile_release(before);
    shed_profiles(upstream);
}

struct profile *profile_with_database(struct profile *profile, int64_t database)
{
    struct profile wanted = *profile;

    wanted.database = database;
    wanted.granted &= (uint8_t)~PROFILE_MAY_SELECT;
    return profile_get(profile->upstream, &wanted);
}

bool profile_may_select(const struct profile *profile, int64_t database)
{
    struct profile wanted = *profile;

    wanted.database = database;
    const struct profile *there = profile_find(profile->upstream, &wanted);
    return there != NULL && there->may_share && !there->needs_password && !there->refused &&
           profile_has_right(there, PROFILE_MAY_SELECT);
}

struct profile *profile_with_resp(struct profile *profile, int resp)
{
    struct profile wanted = *profile;

    wanted.resp = resp;
    return profile_get(profile->upstream, &wanted);
}

struct profile *profile_with_credentials(struct profile *profile, struct slice user, struct slice password)
{
    struct profile wanted = *profile;
    struct profile *found = NULL;

    wanted.user = user.data != NULL ? strndup(user.data, user.length) : NULL;
    wanted.password = strndup(password.data, password.length);
    wanted.needs_password = false;
    wanted.refused = false;
    wanted.is_default = false;
    wanted.granted = 0;
    wanted.denied = 0;
    wanted.generation = 0;
    if (wanted.password != NULL && (wanted.user != NULL || user.data == NULL)) {
        found = profile_get(profile->upstream, &wanted);
        explicit_bzero(wanted.password, strlen(wanted.password));
    }
    free(wanted.user);
    free(wanted.password);
    return found;
}

const char *profile_user(const struct profile *profile)
{
    return profile->user != NULL ? profile->user : "default";
}

struct lane_greeting upstream_greeting(const struct lane *lane, struct slice *text)
{
    const struct profile *profile = lane_profile(lane);
    bool shared = lane->use == LANE_SHARED;
    bool asks_id = profile->greeting_id_length > 0 && !profile->may_not_ask_id;
    size_t with_id = profile->greeting_length + profile->greeting_id_length + profile->greeting_tail_length;
    bool is_for_life = profile->needs_password || (profile->upstream->settings.is_session && lane->owner != NULL);
    bool is_empty = !shared && profile->greeting_replies == 0 && !is_for_life;

    if (lane->bare) {
        return (struct lane_greeting){0};
    }
    text->data = profile->greeting + (asks_id ? 0 : with_id);
    text->length = profile->greeting_length + (asks_id ? profile->greeting_id_length : 0) +
                   (shared ? profile->greeting_tail_length : 0);
    if (is_empty) {
        *text = slice_of(asks_id ? ID_QUESTION EMPTY_HELLO : EMPTY_HELLO);
    }
    return (struct lane_greeting){
        .replies = profile->greeting_replies + asks_id + (shared || is_empty ? TAIL_REPLIES : 0),
        .has_tail = shared || is_empty,
        .asks_id = asks_id,
        .has_credentials = profile->password != NULL,
        .resp3 = profile->resp == 3,
        .password_known = profile->password != NULL || !profile->upstream->settings.serves_clients,
    };
}

bool upstream_make_base(struct upstream *upstream)
{
    struct profile *before = upstream->base;
    const struct upstream_settings *settings = &upstream->settings;
    char *user = settings->user[0] != '\0' ? strdup(settings->user) : NULL;
    char *password = settings->password[0] != '\0' ? strdup(settings->password) : NULL;
    struct profile wanted = {.user = user, .password = password, .resp = 2, .generation = upstream->generation};

    struct profile *base = profile_get(upstream, &wanted);
    free(user);
    free(password);
    if (base == NULL) {
        return false;
    }
    upstream->base = base;
    base->is_default = true;
    if (before != NULL) {
        follow_base(upstream, before);
    }
    return true;
}
