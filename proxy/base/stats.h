/*
 * Counters and gauges: one table says the name, kind and meaning of each. Each worker has its own set, written by its
 * thread alone and read by the admin port at any time.
 */
#ifndef HEADGATE_STATS_H
#define HEADGATE_STATS_H

#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>

/* X(identifier, section, name, kind, help) */
#define STATS_TABLE(X)                                                                                                 \
    X(CLIENTS_CONNECTED, "Clients", "clients_connected", GAUGE, "client connections open now")                         \
    X(CLIENTS_MAX, "Clients", "clients_max", GAUGE, "clients at once: max_clients, or fewer if descriptors are short") \
    X(CLIENTS_ACCEPTED, "Clients", "clients_accepted_total", COUNTER, "client connections accepted")                   \
    X(CLIENTS_REFUSED, "Clients", "clients_refused_total", COUNTER, "connections refused: max_clients or descriptors") \
    X(CLIENTS_PROXIED, "Clients", "clients_proxied_total", COUNTER, "client connections that a proxy has passed on")   \
    X(PROXIES_UNEXPECTED, "Clients", "proxies_unexpected_total", COUNTER,                                              \
      "clients that began with a PROXY header where none is taken")                                                    \
    X(PROXIES_REFUSED, "Clients", "proxies_refused_total", COUNTER,                                                    \
      "connections closed where the PROXY protocol is required: not believed, or no sound header in time")             \
    X(CLIENTS_DENIED, "Clients", "clients_denied_total", COUNTER, "connections not let in: allow and refuse")          \
    X(CLIENTS_EXCLUSIVE, "Clients", "clients_exclusive", GAUGE, "clients on an exclusive lane now")                    \
    X(CLIENTS_CLOSED_PROTOCOL, "Clients", "clients_closed_protocol_total", COUNTER, "closed for malformed requests")   \
    X(CLIENTS_CLOSED_OUTPUT, "Clients", "clients_closed_output_total", COUNTER, "closed past client_output_limit")     \
    X(CLIENTS_CLOSED_MEMORY, "Clients", "clients_closed_memory_total", COUNTER, "closed past memory_limit")            \
    X(CLIENTS_CLOSED_IDLE, "Clients", "clients_closed_idle_total", COUNTER, "closed by client_idle_timeout")           \
    X(SUBSCRIBERS_MOVED, "Clients", "subscribers_moved_total", COUNTER,                                                \
      "subscribers that went to another node of a cluster, as theirs had gone")                                        \
    X(CLIENTS_CLOSED_LOST, "Clients", "clients_closed_lost_total", COUNTER, "closed: their lane to Redis was lost")    \
    X(CLIENTS_KILLED, "Clients", "clients_killed_total", COUNTER, "closed by KILL on the admin port")                  \
    X(CLIENTS_TOLD_TO_MOVE, "Clients", "clients_told_to_move_total", COUNTER,                                          \
      "told to go to the process that has taken over: maintenance_notifications")                                      \
    X(TLS_CLIENTS, "TLS", "tls_clients", GAUGE, "clients with TLS whose handshake is done")                            \
    X(TLS_HANDSHAKES, "TLS", "tls_handshakes_total", COUNTER, "handshakes with clients")                               \
    X(TLS_RESUMED, "TLS", "tls_resumed_total", COUNTER, "of these, short ones: a session went on")                     \
    X(TLS_FAILED, "TLS", "tls_failed_total", COUNTER, "handshakes with clients that failed")                           \
    X(TLS_FAILED_CERTIFICATE, "TLS", "tls_failed_certificate_total", COUNTER, "of these, for a certificate")           \
    X(TLS_FAILED_PLAIN, "TLS", "tls_failed_plain_total", COUNTER, "of these, as the client does not speak TLS")        \
    X(TLS_FAILED_TIMEOUT, "TLS", "tls_failed_timeout_total", COUNTER, "of these, past tls_handshake_timeout")          \
    X(TLS_UNEXPECTED, "TLS", "tls_unexpected_total", COUNTER, "clients that began with TLS where there is none")       \
    X(TLS_TRUNCATED, "TLS", "tls_truncated_total", COUNTER, "clients that ended without saying so by TLS")             \
    X(TLS_CERTIFICATE_DAYS, "TLS", "tls_certificate_days", GAUGE, "until tls_certificate expires; 0: has, or is none") \
    X(UPSTREAM_TLS_HANDSHAKES, "TLS", "upstream_tls_handshakes_total", COUNTER, "handshakes with Redis")               \
    X(UPSTREAM_TLS_RESUMED, "TLS", "upstream_tls_resumed_total", COUNTER,                                              \
      "of these, short ones: Redis knew the session")                                                                  \
    X(UPSTREAM_TLS_FAILED, "TLS", "upstream_tls_failed_total", COUNTER, "handshakes with Redis that failed")           \
    X(UPSTREAM_CERTIFICATE_DAYS, "TLS", "upstream_certificate_days", GAUGE,                                            \
      "until upstream_certificate expires; 0: has, or is none")                                                        \
    X(REQUESTS, "Traffic", "requests_total", COUNTER, "requests taken from clients")                                   \
    X(REQUESTS_FORWARDED, "Traffic", "requests_forwarded_total", COUNTER, "requests sent on to Redis")                 \
    X(REQUESTS_LOCAL, "Traffic", "requests_answered_locally_total", COUNTER, "requests that Headgate answered itself") \
    X(REQUESTS_LOST, "Traffic", "requests_lost_total", COUNTER, "requests whose reply was lost with a lane")           \
    X(REQUESTS_UNREACHABLE, "Traffic", "requests_unreachable_total", COUNTER, "errors given: Redis not reachable")     \
    X(CLIENT_BYTES_IN, "Traffic", "client_bytes_in_total", COUNTER, "bytes read from clients")                         \
    X(CLIENT_BYTES_OUT, "Traffic", "client_bytes_out_total", COUNTER, "bytes written to clients")                      \
    X(CLIENT_READS, "Traffic", "client_reads_total", COUNTER, "read calls on client connections")                      \
    X(CLIENT_WRITES, "Traffic", "client_writes_total", COUNTER, "write calls on client connections")                   \
    X(UPSTREAM_UP, "Upstream", "upstream_up", GAUGE,                                                                   \
      "1 while Redis could be reached by all workers when it was last tried, else 0")                                  \
    X(LANES_SHARED, "Upstream", "lanes_shared", GAUGE, "shared lanes that are ready now")                              \
    X(LANES_EXCLUSIVE, "Upstream", "lanes_exclusive", GAUGE, "exclusive lanes that are ready now, pooled ones too")    \
    X(LANES_POOLED, "Upstream", "lanes_pooled", GAUGE, "clean exclusive lanes waiting for a client")                   \
    X(LANES_OPENED, "Upstream", "lanes_opened_total", COUNTER, "connections to Redis begun")                           \
    X(LANES_FAILED, "Upstream", "lanes_failed_total", COUNTER, "connections to Redis that could not be made")          \
    X(LANES_LOST, "Upstream", "lanes_lost_total", COUNTER, "ready lanes that broke")                                   \
    X(LANES_RETIRED, "Upstream", "lanes_retired_total", COUNTER, "lanes to addresses that the name of Redis has left") \
    X(LOOKUPS, "Upstream", "lookups_total", COUNTER, "times the name of Redis was looked up")                          \
    X(LOOKUPS_FAILED, "Upstream", "lookups_failed_total", COUNTER, "of these, that found no address")                  \
    X(LANES_DESYNCED, "Upstream", "lanes_desynced_total", COUNTER, "lanes closed: bytes that answer no request")       \
    X(PUSHES_DROPPED, "Upstream", "pushes_dropped_total", COUNTER, "pushes for nobody, on lanes in RESP3")             \
    X(REDIRECTS, "Upstream", "redirects_total", COUNTER, "requests that a node of a cluster did not serve")            \
    X(REDIRECTS_ENDED, "Upstream", "redirects_ended_total", COUNTER, "of these, answered by the error")                \
    X(KEYS_ASKED, "Upstream", "keys_asked_total", COUNTER, "requests of whose keys Redis was asked")                   \
    X(EXCLUSIVE_TAKEN, "Upstream", "exclusive_taken_total", COUNTER, "times a client took an exclusive lane")          \
    X(EXCLUSIVE_RETURNED, "Upstream", "exclusive_returned_total", COUNTER, "times one went back to the pool, clean")   \
    X(ACCESS_LOOKS, "Upstream", "access_looks_total", COUNTER, "connections that looked if Redis wants a password")    \
    X(ACCESS_CHANGES, "Upstream", "access_changes_total", COUNTER, "times that Redis wanted one, or none, anew")       \
    X(UPSTREAM_BYTES_IN, "Upstream", "upstream_bytes_in_total", COUNTER, "bytes read from Redis")                      \
    X(UPSTREAM_BYTES_OUT, "Upstream", "upstream_bytes_out_total", COUNTER, "bytes written to Redis")                   \
    X(UPSTREAM_READS, "Upstream", "upstream_reads_total", COUNTER, "read calls on lanes")                              \
    X(UPSTREAM_WRITES, "Upstream", "upstream_writes_total", COUNTER, "write calls on lanes")                           \
    X(REQUESTS_PER_WRITES, "Upstream", "requests_per_hundred_writes", GAUGE, "forwarded, by 100 write calls on lanes") \
    X(REQUESTS_PER_READS, "Upstream", "requests_per_hundred_reads", GAUGE, "forwarded, by 100 read calls on lanes")    \
    X(LANE_HOLDS, "Upstream", "lane_holds_total", COUNTER, "times that requests waited to be written with others")     \
    X(TOPOLOGY_CHANGES, "Topology", "topology_changes_total", COUNTER,                                                 \
      "times the master was found at another place than before, or anew")                                              \
    X(SENTINELS_UP, "Topology", "sentinels_up", GAUGE, "sentinels that answer, and know the master")                   \
    X(UPSTREAM_READONLY, "Topology", "upstream_readonly_total", COUNTER,                                               \
      "times that what Redis sent held a READONLY error; looked for behind sentinels only")                            \
    X(UPSTREAM_STRANGERS, "Topology", "upstream_strangers_total", COUNTER,                                             \
      "connections to another node of a cluster, or another server, than should be there; not used")                   \
    X(READS_REPLICA, "Topology", "reads_replica_total", COUNTER, "requests read from replicas: reads")                 \
    X(READS_MOVED, "Topology", "reads_moved_total", COUNTER,                                                           \
      "requests for replicas that were sent anew elsewhere: that one was lost, or could not serve")                    \
    X(CONTROL_CALLS, "Control", "control_calls_total", COUNTER, "commands of Headgate's own sent to Redis")            \
    X(CONTROL_ERRORS, "Control", "control_errors_total", COUNTER, "of those, failed or lost")                          \
    X(CONTROL_SCRIPT_LOADS, "Control", "control_script_loads_total", COUNTER, "scripts sent whole after NOSCRIPT")     \
    X(POLICY_REPLIES, "Policies", "policy_replies_total", COUNTER, "requests answered by a policy")                    \
    X(POLICY_HOLDS, "Policies", "policy_holds_total", COUNTER, "requests held by a policy")                            \
    X(POLICY_CLOSES, "Policies", "policy_closes_total", COUNTER, "clients closed by a policy")                         \
    X(POLICY_LANES, "Policies", "policy_lanes", GAUGE, "lanes to servers of policies' own that are ready")             \
    X(POLICY_LANES_FAILED, "Policies", "policy_lanes_failed_total", COUNTER,                                           \
      "connections to these that could not be made")                                                                   \
    X(POLICY_LANES_LOST, "Policies", "policy_lanes_lost_total", COUNTER,                                               \
      "lanes to these that broke when they were ready")                                                                \
    X(POLICY_CALLS, "Policies", "policy_calls_total", COUNTER, "commands sent to servers of policies' own")            \
    X(POLICY_CALL_ERRORS, "Policies", "policy_call_errors_total", COUNTER, "of these, failed or lost")                 \
    X(RELOADS, "Reload", "reloads_total", COUNTER, "times the configuration was read again and taken")                 \
    X(RELOAD_FAILURES, "Reload", "reload_failures_total", COUNTER, "times it was not sound, and nothing was changed")  \
    X(RELOAD_FAILED, "Reload", "reload_failed", GAUGE,                                                                 \
      "1 if the last attempt failed: the file is not what is in force")                                                \
    X(LAST_RELOAD, "Reload", "last_reload_seconds", GAUGE,                                                             \
      "when the configuration in force was read: seconds since 1970")                                                  \
    X(UPGRADES, "Upgrade", "upgrades_total", COUNTER, "1 in a process that has come to serve by an upgrade")           \
    X(UPGRADE_FAILURES, "Upgrade", "upgrade_failures_total", COUNTER,                                                  \
      "times that a new process did not come to serve, or crashed soon, and the old one serves")                       \
    X(PREDECESSOR_CLIENTS, "Upgrade", "predecessor_clients", GAUGE,                                                    \
      "clients that are with the process before an upgrade, or those before that, yet")                                \
    X(ADMIN_REFUSED, "Admin", "admin_refused_total", COUNTER,                                                          \
      "requests and connections refused at the admin port, or closed for others")                                      \
    X(MEMORY_LIMIT, "Memory", "memory_limit_bytes", GAUGE, "memory_limit in force, of all servers")                    \
    X(BUFFER_BYTES_USED, "Memory", "buffer_bytes_used", GAUGE, "buffer memory in use, and requests under way")         \
    X(BUFFER_BYTES_KEPT, "Memory", "buffer_bytes_kept", GAUGE, "buffer memory kept for reuse")                         \
    X(TURNS, "Loop", "loop_turns_total", COUNTER, "turns of the event loop")                                           \
    X(DOZES, "Loop", "loop_dozes_total", COUNTER, "of these, begun by waiting for Redis alone: see lane_holds_total")

enum stats_id {
#define STATS_ENUM(identifier, section, name, kind, help) STATS_##identifier,
    STATS_TABLE(STATS_ENUM)
#undef STATS_ENUM
        STATS_COUNT
};

enum stats_kind { STATS_COUNTER, STATS_GAUGE };

struct stats_description {
    const char *section;
    const char *name;
    enum stats_kind kind;
    const char *help;
};

struct stats {
    _Atomic uint64_t values[STATS_COUNT];
};

const struct stats_description *stats_describe(enum stats_id id);

/* Only the owning thread writes, so a plain load and store suffice; atomics keep readers whole. */
static inline void stats_add(struct stats *stats, enum stats_id id, uint64_t amount)
{
    uint64_t value = atomic_load_explicit(&stats->values[id], memory_order_relaxed);
    atomic_store_explicit(&stats->values[id], value + amount, memory_order_relaxed);
}

static inline void stats_subtract(struct stats *stats, enum stats_id id, uint64_t amount)
{
    stats_add(stats, id, (uint64_t)0 - amount);
}

static inline void stats_set(struct stats *stats, enum stats_id id, uint64_t value)
{
    atomic_store_explicit(&stats->values[id], value, memory_order_relaxed);
}

static inline uint64_t stats_get(const struct stats *stats, enum stats_id id)
{
    return atomic_load_explicit(&stats->values[id], memory_order_relaxed);
}

#endif
