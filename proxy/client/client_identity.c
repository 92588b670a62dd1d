/*
 * Who a client is to the configuration: its identity, and the profile with which it comes.
 *
 * An identity is found when a client comes, and anew whenever one of the facts is another: it has authenticated, it has
 * said RESET, or other identities are in force. Those who carry credentials do not depend on AUTH (identity.c sees to
 * it), so no command changes what a client that has not authenticated is to Redis; and whether it is let in was asked
 * before (admission.h) and is never asked again, so no command leads around that.
 */
#include "client/client_private.h"

#include "base/log.h"

#include <stdlib.h>
#include <string.h>

/* ---- facts ---- */

/* What the kernel says of a Unix socket's other end does not change: it is asked once, if anybody wants to know. */
static const struct identity_peer *peer_of(struct client *client)
{
    bool is_wanted =
        client->address.ss_family == AF_UNIX && !client->is_proxied && admission_wants_peer(client->service->admission);

    if (is_wanted && client->unix_peer == NULL) {
        client->unix_peer = calloc(1, sizeof *client->unix_peer);
        if (client->unix_peer != NULL && !identity_find_peer(client->connection.fd, client->unix_peer)) {
            free(client->unix_peer);
            client->unix_peer = NULL;
        }
    }
    return is_wanted ? client->unix_peer : NULL;
}

/* What a certificate says that was found good; *holder is where it lies. */
static const struct identity_certificate *certificate_of(const struct client *client,
                                                         struct identity_certificate *holder)
{
    const struct tls_names *names = client->is_secure ? tls_names(connection_tls(&client->connection)) : NULL;

    if (names == NULL) {
        return NULL;
    }
    *holder = (struct identity_certificate){
        .common_name = names->common_name,
        .issuer = names->issuer,
        .alternatives = (const char *const *)names->alternatives,
        .alternative_count = names->count,
    };
    return holder;
}

static struct identity_facts facts_of(struct client *client, struct identity_certificate *holder)
{
    return (struct identity_facts){
        .address = &client->address,
        .peer = peer_of(client),
        .certificate = certificate_of(client, holder),
        .user = client->gave_user ? profile_user(client->profile) : NULL,
    };
}

/* ---- who it is ---- */

void client_find_identity(struct client *client)
{
    struct identity_certificate holder;
    const struct identity_facts facts = facts_of(client, &holder);

    client->who = admission_identify(client->service->admission, &facts);
}

bool client_is_let_in(struct client *client)
{
    struct identity_certificate holder;
    const struct identity_facts facts = facts_of(client, &holder);

    client->who = admission_identify(client->service->admission, &facts);
    return admission_lets_in(client->service->admission, client->listener, ADMISSION_WHOLE, &facts, client->who);
}

struct profile *client_arrival_profile(const struct client *client)
{
    const struct client_service *service = client->service;
    struct profile *profile = client->who != NULL ? service->arrivals[client->who->number] : NULL;

    return profile != NULL ? profile_reference(profile) : upstream_default_profile(service->upstream);
}

/* ---- credentials of identities ---- */

static void drop_arrivals(struct profile **arrivals, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        if (arrivals[i] != NULL) {
            upstream_disown(arrivals[i]);
        }
    }
    free(arrivals);
}

/* The identity of that name until now, if it came as the same user; else NULL. */
static const struct identity *find_before(const struct client_service *service, const struct identity *identity)
{
    size_t count = service->admission != NULL ? admission_identity_count(service->admission) : 0;

    for (size_t i = 0; i < count; i++) {
        const struct identity *before = admission_identity(service->admission, i);
        bool is_same =
            strcmp(before->name, identity->name) == 0 && strcmp(before->upstream_user, identity->upstream_user) == 0;
        if (is_same) {
            return before;
        }
    }
    return NULL;
}

/* The profile of before stays with its identity. Only a password that was changed is to become its own: otherwise one
 * that the configuration has changed for somebody else of the same user would be taken back. */
static struct profile *keep_arrival(const struct identity *before, struct profile *profile,
                                    const struct identity *identity)
{
    bool is_changed = strcmp(before->upstream_password, identity->upstream_password) != 0;

    return upstream_adopt_again(profile, identity->name, is_changed ? identity->upstream_password : NULL);
}

/* As with all of a configuration, the program ends when memory is short: nobody may come as somebody else instead. */
static struct profile *make_arrival(struct client_service *service, const struct identity *identity)
{
    if (!identity_has_credentials(identity)) {
        return NULL;
    }
    const struct identity *before = find_before(service, identity);
    struct profile *known = before != NULL ? service->arrivals[before->number] : NULL;
    struct profile *profile = known != NULL ? keep_arrival(before, known, identity)
                                            : upstream_adopt(service->upstream, identity->name, identity->upstream_user,
                                                             identity->upstream_password);
    if (profile == NULL) {
        abort();
    }
    return profile;
}

/* One for each identity; NULL for those without credentials. */
static struct profile **make_arrivals(struct client_service *service, const struct admission *admission)
{
    size_t count = admission_identity_count(admission);
    struct profile **arrivals = conf_alloc(NULL, (count + 1) * sizeof(struct profile *));

    for (size_t i = 0; i < count; i++) {
        arrivals[i] = make_arrival(service, admission_identity(admission, i));
    }
    return arrivals;
}

void client_service_admit(struct client_service *service, struct admission *admission)
{
    struct admission *before = service->admission;
    struct profile **arrivals_before = service->arrivals;

    service->arrivals = make_arrivals(service, admission);
    service->admission = admission_reference(admission);
    for (struct client *client = LIST_FIRST(&service->clients); client != NULL;
         client = LIST_NEXT(client, of_service)) {
        client_find_identity(client);
    }
    service->has_moves = before != NULL;
    if (before != NULL) {
        drop_arrivals(arrivals_before, admission_identity_count(before));
        admission_release(before);
    }
}

void client_service_leave_admission(struct client_service *service)
{
    if (service->admission != NULL) {
        drop_arrivals(service->arrivals, admission_identity_count(service->admission));
        admission_release(service->admission);
        service->admission = NULL;
    }
}
