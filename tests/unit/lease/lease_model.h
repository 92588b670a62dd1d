/*
 * A small model of Redis: strings, hashes and sorted sets with times to live, what lock libraries do with them, and the
 * scripts of the lease policy as lua/lease_*.lua say they behave. Keys that are over are removed when time is set.
 */
#ifndef HEADGATE_TESTS_LEASE_MODEL_H
#define HEADGATE_TESTS_LEASE_MODEL_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define MODEL_KEYS 6
#define MODEL_TOKENS 6
#define MODEL_NO_TOKEN (-1)

enum model_type { MODEL_STRING, MODEL_HASH, MODEL_ZSET };

/* A key; its name is its type's letter and its place: "s0", "h3", "z5". */
struct model_key {
    enum model_type type;
    bool exists;
    int token;                      /* the value of a string; MODEL_NO_TOKEN for none */
    int64_t holds[MODEL_TOKENS];    /* of a hash: how often each token holds it */
    bool is_member[MODEL_TOKENS];   /* of a sorted set */
    double scores[MODEL_TOKENS];    /* s since 1970 */
    int64_t expires_us;             /* 0: never */
    int64_t endless_us;             /* since when it has had no time to live */
    int64_t taken_us[MODEL_TOKENS]; /* when the token's owner took it … */
    int64_t since_us[MODEL_TOKENS]; /* … or extended it last */
};

struct model {
    int64_t now_us;
    struct model_key keys[MODEL_KEYS];
    /* A lock of this token has run out, or its permit was swept up. */
    void (*on_expiry)(void *context, size_t key, int token);
    void *context;
};

void model_init(struct model *model);
void model_set_time(struct model *model, int64_t now_us);
const char *model_key_name(size_t key);
/* The place of a key by its name. */
size_t model_key_of(const char *name);
/* Two tokens for each owner: "t0a", "t0b", "t1a", … */
const char *model_token_name(int token);
int model_token_of(const char *name);

bool model_holds(const struct model *model, size_t key, int token);

/* ---- what clients do: each is as true as Redis' reply says yes ---- */

/* lease_ms 0: without a time to live. */
bool model_take_string(struct model *model, size_t key, int token, int64_t lease_ms);
bool model_extend_string(struct model *model, size_t key, int token, int64_t lease_ms);
bool model_expire(struct model *model, size_t key, int64_t lease_ms);
bool model_release_string(struct model *model, size_t key, int token);
bool model_delete(struct model *model, size_t key);
bool model_take_hash(struct model *model, size_t key, int token, int64_t lease_ms);
/* 1: released; 0: held less often; -1: not the owner. */
int model_release_hash(struct model *model, size_t key, int token, int64_t lease_ms);
/* Whether it is a new member. */
bool model_add_permit(struct model *model, size_t key, int token, double score);
bool model_remove_permit(struct model *model, size_t key, int token);
void model_sweep_up(struct model *model, size_t key, double bound);

/* ---- the policy's scripts ---- */

/* Fills in the reply; how many integers it has. */
size_t model_run_script(struct model *model, const char *name, char *const *arguments, int64_t reply[4]);

#endif
