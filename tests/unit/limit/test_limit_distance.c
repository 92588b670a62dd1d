/*
 * [limit:NAME] with scope = global, before a Redis that answers after a while: a random walk of clients that ask, are
 * held, leave and come again, against a model of the window that Redis keeps. Time stands still but where the walk lets
 * it go by, a millisecond at a time.
 */
#include "../../rig/rig_random.h"
#include "../../support/fake_host.h"

#include <criterion/criterion.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

extern const struct policy limit_policy;

#define CLIENTS 40
#define WINDOW_MS 60000
#define TIMEOUT_MS 100
#define RUN_MS 3000
/* From then on nothing is granted any more. */
#define FULL_MS 2000
#define COST_MAX 4

struct walk {
    const char *accuracy, *on_error;
    int64_t limit, distance_ms;
    bool costs; /* of 1 to COST_MAX; else each is 1 */
    bool leaves, reloads;
};

/* What Redis has granted, the oldest first. */
struct model {
    int64_t limit, used;
    size_t count;
    struct {
        int64_t at_us, permits;
    } grants[8192];
};

/* How long until so much is there, as all is in one window. */
static int64_t wait_us(const struct model *model, int64_t now_us, int64_t cost)
{
    int64_t over = model->used + cost - model->limit;
    size_t i = 0;

    while (over > 0 && i < model->count) {
        over -= model->grants[i++].permits;
    }
    return i > 0 ? model->grants[i - 1].at_us + WINDOW_MS * MS - now_us : 0;
}

/* Executes and answers the oldest call, as the script of that name does. */
static void execute(struct fake_host *host, struct model *model, int64_t at_us)
{
    char answer[64] = "1";

    if (strcmp(host->calls->script, "limit_return") == 0) {
        int64_t left = (int64_t)fake_call_number(host, 1);
        for (size_t i = model->count; left > 0 && i-- > 0;) {
            int64_t given = left < model->grants[i].permits ? left : model->grants[i].permits;
            model->grants[i].permits -= given;
            model->used -= given;
            left -= given;
        }
        cr_assert_eq(left, 0, "more was given back than had been granted");
    } else {
        int64_t wanted = (int64_t)fake_call_number(host, 2), least = (int64_t)fake_call_number(host, 3);
        int64_t room = model->limit - model->used, granted = wanted < room ? wanted : room;
        granted = granted < least ? 0 : granted;
        model->grants[model->count].at_us = at_us + (int64_t)fake_call_number(host, 4);
        model->grants[model->count++].permits = granted;
        model->used += granted;
        snprintf(answer, sizeof answer, "%lld %lld 1", (long long)granted,
                 (long long)(granted < wanted ? wait_us(model, at_us, least) : 0));
    }
    fake_answer(host, answer);
}

struct walker {
    struct fake_client *client;
    int64_t cost, since_us;
};

static void judge(const struct walk *walk, struct fake_host *host, const struct model *model, struct walker *walker,
                  const char *verdict)
{
    int64_t told_ms, held_us = host->now_us - walker->since_us;
    bool is_near = walk->distance_ms < TIMEOUT_MS;

    if (strcmp(verdict, "hold") == 0) {
        cr_assert_lt(walker->client->holds, 20, "it is asked again and again");
        return;
    }
    int64_t most_ms = 2 * ((is_near ? walk->distance_ms : TIMEOUT_MS) + 1);
    /* After a reload one that asked alone asks anew. */
    cr_assert(walk->reloads || held_us <= most_ms * MS, "held for %lld us", (long long)held_us);
    cr_assert(!is_near || strstr(verdict, "not decided") == NULL, "%s", verdict);
    bool is_full = host->now_us > FAKE_FIRST_US + FULL_MS * MS;
    if (is_near && is_full && !walk->leaves && strcmp(walk->accuracy, "exact") == 0) {
        /* Nothing changes any more: it is told exactly how long it takes, whatever it costs. */
        cr_assert_eq(sscanf(verdict, "-RATELIMITED %*[^,], retry in %lld", (long long *)&told_ms), 1, "%s", verdict);
        int64_t due_ms = wait_us(model, host->now_us, walker->cost) / MS;
        cr_assert(told_ms >= due_ms && told_ms <= due_ms + walk->distance_ms + 1, "cost %lld: told %lld ms, due %lld",
                  (long long)walker->cost, (long long)told_ms, (long long)due_ms);
    }
}

static void step(const struct walk *walk, struct fake_host *host, const struct model *model, struct walker *walker,
                 uint64_t *seed)
{
    static const char *const requests[] = {"MGET a", "MGET a b", "MGET a b c", "MGET a b c d"};
    struct fake_client *client = walker->client;

    if (client->held[0] != '\0' && (client->resumed || client->hold_until_us <= host->now_us)) {
        judge(walk, host, model, walker, fake_verdict_again(client));
    } else if (client->held[0] != '\0' && walk->leaves && next_random(seed) % 50 == 0) {
        size_t worker = client->worker;
        fake_leave(client);
        walker->client = fake_join(host, worker, "10.0.0.1", "");
    } else if (client->held[0] == '\0' && next_random(seed) % 50 == 0) {
        walker->cost = walk->costs ? 1 + (int64_t)(next_random(seed) % COST_MAX) : 1;
        walker->since_us = host->now_us;
        judge(walk, host, model, walker, fake_verdict(client, requests[walker->cost - 1]));
    }
}

static void take(const struct walk *walk, uint64_t seed)
{
    static struct model model;
    struct walker walkers[CLIENTS] = {0};
    char rules[512];

    snprintf(rules, sizeof rules,
             "[limit:a]\nper = all\ncommands = mget\nkeys = *\ncost = %s\nlimit = %lld\nwindow = 60s\nscope = global\n"
             "accuracy = %s\non_error = %s\ndecision_timeout = 100ms\n",
             walk->costs ? "keys" : "1", (long long)walk->limit, walk->accuracy, walk->on_error);
    struct fake_host *host = fake_host_new(&limit_policy, rules, 2);
    model = (struct model){.limit = walk->limit};
    for (size_t i = 0; i < CLIENTS; i++) {
        walkers[i].client = fake_join(host, i % 2, "10.0.0.1", "");
    }
    /* Then all is answered, and nobody asks any more. */
    for (int64_t ms = 0; ms < RUN_MS + 1000; ms++) {
        while (host->calls != NULL && host->calls->sent_us + walk->distance_ms * MS <= host->now_us) {
            execute(host, &model, host->calls->sent_us + walk->distance_ms * MS / 2);
        }
        if (walk->reloads && next_random(&seed) % 200 == 0) {
            fake_reload(host, rules);
        }
        for (size_t i = 0; i < CLIENTS; i++) {
            if (ms < RUN_MS || walkers[i].client->held[0] != '\0') {
                step(walk, host, &model, &walkers[i], &seed);
            }
        }
        fake_pass(host, 1);
    }
    uint64_t admitted = fake_counter(host, "limit_admitted_total"),
             undecided = fake_counter(host, "limit_undecided_total");
    cr_assert_eq(host->call_count, 0);
    if (walk->distance_ms < TIMEOUT_MS) {
        cr_assert_eq(undecided, 0);
        int64_t spent = walk->costs ? model.used : (int64_t)admitted;
        cr_assert(spent <= walk->limit && model.used <= walk->limit, "%lld of %lld", (long long)spent,
                  (long long)walk->limit);
        bool is_exact = strcmp(walk->accuracy, "exact") == 0;
        cr_assert(!is_exact || walk->leaves || model.used > walk->limit - COST_MAX, "%lld of %lld",
                  (long long)model.used, (long long)walk->limit);
        cr_assert(!is_exact || walk->costs || spent == model.used, "granted %lld, admitted %lld", (long long)model.used,
                  (long long)spent);
    } else {
        cr_assert_gt(undecided, 0);
    }
    fake_host_free(host);
}

Test(limit_distance, however_far_redis_is_it_is_believed)
{
    static const int64_t distances_ms[] = {0, 20, 60, 95, 150};
    static const char *const accuracies[] = {"exact", "leased"}, *const errors[] = {"allow", "deny", "local"};

    const char *first = getenv("LIMIT_SEED"); /* to replay a walk that failed */

    for (uint64_t seed = first != NULL ? strtoull(first, NULL, 10) : 1; seed <= 240; seed++) {
        const struct walk walk = {.accuracy = accuracies[seed % 2],
                                  .on_error = errors[seed % 3],
                                  .limit = seed % 4 == 0 ? 5 : 40 + (int64_t)seed,
                                  .distance_ms = distances_ms[seed % 5],
                                  .costs = seed % 7 > 3,
                                  .leaves = seed % 11 > 6,
                                  .reloads = seed % 13 > 8};
        cr_log_info("seed %llu", (unsigned long long)seed);
        take(&walk, seed);
    }
}
