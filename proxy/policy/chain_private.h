/*
 * What the files of the chain have in common. chain.c starts and stops policies and tells them of clients and of time;
 * each piece that policies may have is asked in a file of its own.
 */
#ifndef HEADGATE_CHAIN_PRIVATE_H
#define HEADGATE_CHAIN_PRIVATE_H

#include "policy/chain.h"

/* The gate of a policy; gates are numbered in the order in which they are asked. */
struct chain_gate {
    const struct policy_gate *hooks;
    void *instance;
    size_t place; /* of its policy in the list, and so of what it leaves with each client */
};

struct chain_observer {
    const struct policy_observer *hooks;
    void *instance;
    size_t place;
};

struct chain_translator {
    const struct policy_translator *hooks;
    void *instance;
};

struct chain_router {
    const struct policy_router *hooks;
    void *instance;
};

struct chain {
    const struct policy *list[POLICIES_MAX];
    void *instances[POLICIES_MAX];
    _Atomic uint64_t *counters[POLICIES_MAX]; /* of each; NULL: it has none */
    size_t count;
    /* The pieces of those that have them. */
    struct chain_gate gates[POLICIES_MAX];
    size_t gate_count;
    uint32_t following; /* bit n: gate n is told of the steps of what it passed */
    uint32_t recurring; /* bit n: gate n is asked whenever another one has held the request */
    uint32_t keeping;   /* bit n: gate n has an on_reply: it keeps something of requests */
    uint32_t reloads;
    uint32_t ignoring; /* bit n: gate n does not go by who a client is */
    struct chain_observer observers[POLICIES_MAX];
    size_t observer_count;
    struct chain_translator translators[POLICIES_MAX];
    size_t translator_count;
    struct chain_router routers[POLICIES_MAX];
    size_t router_count;
    bool wants_any;
    bool measures;
    const struct chain_observer *measurer; /* NULL: none of them can */
    struct policy_attention attention;
    uint32_t listeners; /* bit n: observer n is told what happens */
    struct stats *stats;
    struct chain_record *free;
    /* For each command, by command_index(), and for unknown commands; from `unconcerned` on the same for requests that
     * concern none of the gates that glance. */
    size_t unconcerned;
    struct chain_interest interests[];
};

/* ---- chain_gate.c ---- */

/* Adds which gates want the command, and of which group it is. unconcerned: the same for requests that concern none of
 * the gates that glance. */
void chain_gate_interest(const struct chain *chain, const struct command *command, struct chain_interest *interest,
                         struct chain_interest *unconcerned);
void chain_free_records(struct chain *chain);

/* ---- chain_observer.c ---- */

/* Finds who measures, among those that were started. */
void chain_find_measurer(struct chain *chain);
/* Under which tag the command is measured. */
uint32_t chain_tag(const struct chain *chain, const struct command *command);
/* Asks who listens and, if the interests of all commands say that anything is measured, of which requests it is told
 * one by one. */
void chain_ask_observers(struct chain *chain);

/* ---- chain_translator.c ---- */

/* 1 + the translator of the command; 0: none. */
uint32_t chain_find_translator(const struct chain *chain, const struct command *command);

/* ---- chain_router.c ---- */

/* Bit n: router n may say who answers requests of the command. */
uint32_t chain_find_routers(const struct chain *chain, const struct command *command);

#endif
