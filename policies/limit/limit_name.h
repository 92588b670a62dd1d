/* The names of buckets: whom a rule counts a request for, as a text that is the same for all sidecars. */
#ifndef HEADGATE_LIMIT_NAME_H
#define HEADGATE_LIMIT_NAME_H

#include "limit/limit_rule.h"

/* Whether the name of a bucket depends on who is at the other end of the connection. */
bool limit_name_wants_peer(const struct limit_rule *rule);
/* The name of the bucket that the client is for the rule, without its key; at most LIMIT_BUCKET_MAX bytes. peer: who
 * is at the other end, if the rule wants it. host: the name of this sidecar. */
size_t limit_name_client(const struct limit_rule *rule, const struct policy_client *client,
                         const struct policy_peer *peer, const char *host, char name[LIMIT_BUCKET_MAX]);
/* Whether the client is of this machine and its process, which the rule counts by, is not told by the peer. */
bool limit_name_lacks_process(const struct limit_rule *rule, const struct policy_client *client,
                              const struct policy_peer *peer);
/* Writes for a refusal who shares the bucket because processes could not be told, with a blank before it; the length,
 * 0 if that is not so. No NUL follows. */
#define LIMIT_SHARERS_MAX 64
size_t limit_name_write_sharers(const struct limit_rule *rule, struct slice bucket, char text[LIMIT_SHARERS_MAX]);
/* The same with a key behind it, where length bytes of the name are there already. */
size_t limit_name_key(char name[LIMIT_BUCKET_MAX], size_t length, struct slice key);

#endif
