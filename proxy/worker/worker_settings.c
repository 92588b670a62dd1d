#include "worker/worker_settings.h"

/* What the clients' upstream and those of policies have in common. */
static struct upstream_settings common_settings(const struct conf *conf)
{
    return (struct upstream_settings){
        .lane =
            {
                .tuning = {.keepalive_ms = conf->tcp_keepalive, .user_timeout_ms = conf->tcp_user_timeout},
                .connect_timeout = conf->connect_timeout,
                .reconnect_min = conf->reconnect_min,
                .reconnect_max = conf->reconnect_max,
                .reply_timeout = conf->upstream_reply_timeout,
            },
        .shared_lanes = 1,
        .wait = conf->upstream_wait,
        .wait_requests = conf->upstream_wait_requests,
        .exclusive_idle = conf->exclusive_idle,
        .lane_idle_timeout = conf->lane_idle_timeout,
        .retire_timeout = conf->retire_timeout,
    };
}

struct upstream_settings worker_upstream_settings(const struct conf *conf, size_t worker, struct stats *stats,
                                                  struct worker_cluster *cluster)
{
    struct upstream_settings settings = common_settings(conf);
    bool is_cluster = worker_cluster_is_wanted(conf);

    settings.lane.target_text = conf->upstream.text;
    settings.lane.tls = conf->upstream.tls ? conf->tls_upstream : NULL;
    settings.lane.host = is_cluster ? conf->upstream.seeds[0].host : conf->upstream.host;
    settings.lane.wants_master = conf->upstream.topology == CONF_TOPOLOGY_SENTINEL;
    settings.lane.follows = is_cluster;
    settings.changes = is_cluster ? &cluster->changes : NULL;
    settings.lane.stats = stats;
    worker_cluster_ask_ids(cluster, conf, &settings.lane);
    settings.shared_lanes = (size_t)conf->lanes;
    settings.user = conf->upstream_user;
    settings.password = conf->upstream_password;
    settings.serves_clients = true;
    settings.is_session = conf->pool == CONF_POOL_SESSION;
    settings.spares = (size_t)conf->exclusive_ready;
    settings.access_check = worker == 0 ? conf->access_check : 0;
    settings.rights_last = conf->access_check;
    return settings;
}

struct client_settings worker_client_settings(const struct conf *conf)
{
    return (struct client_settings){
        .session_pool = conf->pool == CONF_POOL_SESSION,
        .maintenance_notifications = conf->maintenance_notifications,
        .drain_timeout = conf->process->drain_timeout,
        .splits = conf->cross_slot == CONF_CROSS_SLOT_SPLIT,
        .reads = conf->reads,
        .reads_replicas = conf_reads_replicas(conf),
        .read_own_writes = conf->read_own_writes,
        .idle_timeout = conf->client_idle_timeout,
        .upstream_wait = conf->upstream_wait,
        .output_limit = (uint64_t)conf->client_output_limit,
        .pipeline_limit = (uint32_t)conf->client_pipeline_limit,
        .max_request = (uint64_t)conf->max_request,
        .cut_through = (uint64_t)conf->cut_through,
        .auth_timeout = conf->auth_timeout,
        .client_id_timeout = conf->client_id_timeout,
        .upstream_text = conf->upstream.text,
        .tls = {.context = conf->tls_clients,
                .timeout_ms = conf->tls_handshake_timeout,
                .most = (uint32_t)conf->tls_handshakes},
        .servers = common_settings(conf),
        .resolve_every = conf->resolve_every,
    };
}
