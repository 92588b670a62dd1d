/*
 * What policies may ask of their worker, and the admin port of policies. client_policy.c puts it together.
 *
 *   client_peer.c         who is at the other end of a connection
 *   client_script.c       scripts
 *   client_server.c       servers of their own, for scripts
 *   client_admin_query.c  what the admin port asks of policies
 */
#ifndef HEADGATE_CLIENT_HOST_PRIVATE_H
#define HEADGATE_CLIENT_HOST_PRIVATE_H

#include "client/client_private.h"

/* ---- client_policy.c ---- */

/* What the policies of this worker may ask of it. */
struct policy_host client_policy_host(struct client_service *service, size_t worker);

/* ---- client_peer.c: as in struct policy_host ---- */

enum policy_peer_search client_find_peer(void *context, void *connection, bool process, struct policy_peer *peer);
bool client_peer_lives(void *context, const struct policy_peer *peer);
void client_forget_peer(void *context, void *connection);
bool client_look_at_peer(void *context, const struct policy_peer *peer);
enum policy_peer_search client_peer_has(void *context, void *connection, bool *has);
/* The name of this sidecar; NULL or empty: the machine's. */
void client_name_host(struct client_service *service, const char *name);

/* ---- client_script.c ---- */

/* Runs a script for a policy, see struct policy_host. */
void client_script_run(struct client_service *service, const struct policy_script *script);

/* ---- client_server.c ---- */

/* See struct policy_host. */
struct policy_server *client_server_change(struct client_service *service, struct policy_server *server,
                                           const struct policy_server_settings *settings);
/* For scripts on that server; NULL, and *why says why not, if it cannot be. */
struct control *client_server_control(struct policy_server *server, const char **why);
/* Ten times a second. */
void client_servers_tick(struct client_service *service, int64_t now_us);
/* STATS was asked for. */
void client_servers_update_counters(struct client_service *service);
/* The service has got other settings. */
void client_servers_reconfigure(struct client_service *service);
/* All of them, when the policies are gone. */
void client_servers_free(struct client_service *service);

/* ---- client_admin_query.c ---- */

/* A policy answers: the admin query is void afterwards. */
void client_admin_query_answer(struct admin_query *admin_query, enum policy_answer kind, struct slice text);
/* Ten times a second: who has waited for too long is told so. */
void client_admin_queries_tick(struct client_service *service, int64_t now_us);
/* The policies are gone: ends the admin queries that they have not answered. */
void client_admin_queries_end(struct client_service *service);

#endif
