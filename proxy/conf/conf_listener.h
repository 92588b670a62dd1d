/*
 * Listeners: addresses where clients connect, and what is asked of those who do. [headgate] is one with its option
 * listen, each [listener:NAME] is another. They have the same options.
 */
#ifndef HEADGATE_CONF_LISTENER_H
#define HEADGATE_CONF_LISTENER_H

#include "conf/conf.h"
#include "conf/conf_table.h"

/* What the values of a [listener:NAME] are. */
struct conf_listener_section {
    struct conf_address_list listen;
    struct conf_listener_terms terms;
    char *server; /* whose it is; "" for that of [headgate] */
};

extern const char *const conf_proxy_protocol_words[];

/* What these stand by. */
#define CONF_LISTENER_WITH "listen proxy_protocol server unix_socket_mode*"

/* The rows of the options that listeners have besides listen, for a table that fills a structure of that type, which
 * has them in its member terms. */
#define CONF_LISTENER_OPTIONS(structure, terms)                                                                        \
    {.name = "proxy_protocol",                                                                                         \
     .offset = offsetof(structure, terms.proxy_protocol),                                                              \
     .type = CONF_WORD,                                                                                                \
     .words = conf_proxy_protocol_words,                                                                               \
     .initial = "off",                                                                                                 \
     .help =                                                                                                           \
         "required: who connects is a proxy or load balancer, and says first whom it has passed on, by the PROXY\n"    \
         "protocol (version 1 or 2). Rules, logs and CLIENTS then see that client. Needs proxy_from."},                \
        {.name = "proxy_from",                                                                                         \
         .offset = offsetof(structure, terms.proxy_from),                                                              \
         .type = CONF_STRING,                                                                                          \
         .max = CONF_NETWORKS_MAX,                                                                                     \
         .initial = "",                                                                                                \
         .reloadable = true,                                                                                           \
         .waits_with = CONF_LISTENER_WITH,                                                                             \
         .help = "Who is believed to be such a proxy: 10.0.0.7, 10.0.0.0/8, fd00::/8, unix (who comes by a Unix "      \
                 "socket).\n"                                                                                          \
                 "All others are closed there."},                                                                      \
        {.name = "allow",                                                                                              \
         .offset = offsetof(structure, terms.allow),                                                                   \
         .type = CONF_STRING,                                                                                          \
         .max = CONF_CLIENTS_MAX,                                                                                      \
         .initial = "",                                                                                                \
         .reloadable = true,                                                                                           \
         .waits_with = CONF_LISTENER_WITH,                                                                             \
         .names_clients = true,                                                                                        \
         .help =                                                                                                       \
             "Who may connect there: ip:10.0.0.0/8, unix (Unix sockets), identity:NAME, all. Others hear -DENIED.\n"   \
             "Empty: all. Nobody is let in for being of this machine: ip:127.0.0.1 is a word like others."},           \
    {                                                                                                                  \
        .name = "refuse", .offset = offsetof(structure, terms.refuse), .type = CONF_STRING, .max = CONF_CLIENTS_MAX,   \
        .initial = "", .reloadable = true, .waits_with = CONF_LISTENER_WITH, .names_clients = true,                    \
        .help = "Who may not, whatever allow says: the same words. Both are looked at when a client comes; who is\n"   \
                "there stays."                                                                                         \
    }

#endif
