/* The units of the workload: each sends a command, or a few that belong together, and says what they are to answer. */
#ifndef CROSSTALK_UNITS_H
#define CROSSTALK_UNITS_H

#include "crosstalk_client.h"

/* Data: plain commands, transactions, blocking commands, messages (crosstalk_units_data.c). */
void unit_echo(struct client *client);
void unit_inline(struct client *client);
void unit_ping(struct client *client);
void unit_set(struct client *client);
void unit_get(struct client *client);
void unit_mget(struct client *client);
void unit_increment(struct client *client);
void unit_lifetime(struct client *client);
void unit_whoami(struct client *client);
void unit_large(struct client *client);
void unit_multi(struct client *client);
void unit_discard(struct client *client);
void unit_abort(struct client *client);
void unit_watch(struct client *client);
void unit_watch_shared(struct client *client);
void unit_list(struct client *client);
void unit_timeout(struct client *client);
void unit_mailbox(struct client *client);
void unit_mail(struct client *client);
void unit_publish(struct client *client);
void unit_subscribe(struct client *client);
void unit_forbidden(struct client *client);
void unit_tracking(struct client *client);

/* The state of the connection, scripts and errors (crosstalk_units_state.c). */
void unit_set_name(struct client *client);
void unit_get_name(struct client *client);
void unit_client_id(struct client *client);
void unit_client_info(struct client *client);
void unit_select(struct client *client);
void unit_other_database(struct client *client);
void unit_which_database(struct client *client);
void unit_auth(struct client *client);
void unit_auth_wrong(struct client *client);
void unit_no_permission(struct client *client);
void unit_hello(struct client *client);
void unit_reset(struct client *client);
void unit_reply_skip(struct client *client);
void unit_reply_off(struct client *client);
void unit_wait(struct client *client);
void unit_eval(struct client *client);
void unit_eval_error(struct client *client);
void unit_no_script(struct client *client);
void unit_arity(struct client *client);
void unit_wrong_type(struct client *client);
void unit_unknown(struct client *client);

#endif
