#include "crosstalk_workload.h"

#include "crosstalk_send.h"
#include "crosstalk_units.h"

struct unit {
    void (*send)(struct client *client);
    uint32_t weight;
    uint32_t weight_subscribed; /* while subscribed in RESP2; 0: forbidden then */
};

static const struct unit units[] = {
    {unit_echo, 1500, 0},
    {unit_inline, 200, 0},
    {unit_ping, 800, 1000},
    {unit_set, 1800, 0},
    {unit_get, 2500, 0},
    {unit_mget, 500, 0},
    {unit_increment, 800, 0},
    {unit_lifetime, 200, 0},
    {unit_whoami, 100, 0},
    {unit_large, 2, 0},
    {unit_multi, 150, 0},
    {unit_discard, 40, 0},
    {unit_abort, 40, 0},
    {unit_watch, 60, 0},
    {unit_watch_shared, 30, 0},
    {unit_list, 60, 0},
    {unit_timeout, 8, 0},
    {unit_mailbox, 40, 0},
    {unit_mail, 60, 0},
    {unit_publish, 200, 0},
    {unit_subscribe, 10, 30},
    {unit_forbidden, 0, 100},
    {unit_tracking, 5, 0},
    {unit_set_name, 60, 0},
    {unit_get_name, 100, 0},
    {unit_client_id, 3, 0},
    {unit_client_info, 3, 0},
    {unit_select, 100, 0},
    {unit_other_database, 200, 0},
    {unit_which_database, 200, 0},
    {unit_auth, 40, 0},
    {unit_auth_wrong, 10, 0},
    {unit_no_permission, 60, 0},
    {unit_hello, 20, 0},
    {unit_reset, 5, 5},
    {unit_reply_skip, 5, 0},
    {unit_reply_off, 5, 0},
    {unit_wait, 5, 0},
    {unit_eval, 150, 0},
    {unit_eval_error, 60, 0},
    {unit_no_script, 30, 0},
    {unit_arity, 60, 0},
    {unit_wrong_type, 60, 0},
    {unit_unknown, 60, 0},
};

#define UNIT_COUNT (sizeof units / sizeof *units)

/* Whether it makes the client somebody else: behind CLIENT REPLY it is closed for that, where there are rules. */
static bool is_naming(const struct unit *unit)
{
    return unit->send == unit_set_name || unit->send == unit_auth || unit->send == unit_auth_wrong ||
           unit->send == unit_hello || unit->send == unit_reset;
}

static uint32_t unit_weight(const struct unit *unit, const struct session *session)
{
    if (session->said_reply && is_naming(unit))
        return 0;
    return session->subscribed && session->resp == 2 ? unit->weight_subscribed : unit->weight;
}

static void unit_any(struct client *client)
{
    const struct session *session = &client->session;
    uint32_t total = 0;
    for (size_t at = 0; at < UNIT_COUNT; at++)
        total += unit_weight(&units[at], session);
    uint32_t drawn = client_random(client, total);
    size_t at = 0;
    for (; drawn >= unit_weight(&units[at], session); at++)
        drawn -= unit_weight(&units[at], session);
    units[at].send(client);
}

unsigned workload_pipeline(struct client *client, unsigned commands)
{
    uint64_t before = client->figures->requests;
    while (client->figures->requests - before < commands)
        unit_any(client);
    return (unsigned)(client->figures->requests - before);
}

void workload_quit(struct client *client)
{
    send_words(client, "QUIT", NULL);
    expect_ok(client);
}

void workload_final(struct client *client)
{
    if (client->session.subscribed)
        unit_subscribe(client);
    unit_echo(client);
    unit_set(client);
    unit_get(client);
    unit_whoami(client);
    unit_get_name(client);
    unit_multi(client);
    unit_list(client);
    unit_client_info(client);
    unit_echo(client);
}
