#include "lease_model.h"

#include <criterion/criterion.h>
#include <stdlib.h>
#include <string.h>

#define MS INT64_C(1000)

static const char *const key_names[MODEL_KEYS] = {"s0", "s1", "s2", "h3", "h4", "z5"};
static const char *const token_names[MODEL_TOKENS] = {"t0a", "t0b", "t1a", "t1b", "t2a", "t2b"};

/* ---- keys ---- */

static size_t place_of(const char *name, const char *const *names, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        if (strcmp(name, names[i]) == 0) {
            return i;
        }
    }
    cr_assert_fail("no such name: %s", name);
    return 0;
}

const char *model_key_name(size_t key)
{
    return key_names[key];
}

size_t model_key_of(const char *name)
{
    return place_of(name, key_names, MODEL_KEYS);
}

const char *model_token_name(int token)
{
    return token_names[token];
}

int model_token_of(const char *name)
{
    return (int)place_of(name, token_names, MODEL_TOKENS);
}

static void clear(struct model_key *key)
{
    *key = (struct model_key){.type = key->type, .token = MODEL_NO_TOKEN};
}

void model_init(struct model *model)
{
    for (size_t i = 0; i < MODEL_KEYS; i++) {
        char type = key_names[i][0];
        model->keys[i].type = type == 's' ? MODEL_STRING : type == 'h' ? MODEL_HASH : MODEL_ZSET;
        clear(&model->keys[i]);
    }
}

static bool holds(const struct model_key *key, int token)
{
    switch (key->type) {
    case MODEL_STRING:
        return key->exists && key->token == token;
    case MODEL_HASH:
        return key->exists && key->holds[token] > 0;
    default:
        return key->exists && key->is_member[token];
    }
}

bool model_holds(const struct model *model, size_t key, int token)
{
    return holds(&model->keys[key], token);
}

void model_set_time(struct model *model, int64_t now_us)
{
    model->now_us = now_us;
    for (size_t i = 0; i < MODEL_KEYS; i++) {
        struct model_key *key = &model->keys[i];
        if (!key->exists || key->expires_us == 0 || key->expires_us > now_us) {
            continue;
        }
        for (int token = 0; token < MODEL_TOKENS; token++) {
            if (holds(key, token)) {
                model->on_expiry(model->context, i, token);
            }
        }
        clear(key);
    }
}

static void set_life(const struct model *model, struct model_key *key, int64_t lease_ms)
{
    key->expires_us = lease_ms == 0 ? 0 : model->now_us + lease_ms * MS;
    key->endless_us = lease_ms == 0 ? model->now_us : 0;
}

static int64_t life_ms(const struct model *model, const struct model_key *key)
{
    return !key->exists ? -2 : key->expires_us == 0 ? -1 : (key->expires_us - model->now_us) / MS;
}

/* ---- what clients do ---- */

static void note_taken(const struct model *model, struct model_key *key, int token)
{
    key->taken_us[token] = model->now_us;
    key->since_us[token] = model->now_us;
}

bool model_take_string(struct model *model, size_t place, int token, int64_t lease_ms)
{
    struct model_key *key = &model->keys[place];

    if (key->exists) {
        return false;
    }
    key->exists = true;
    key->token = token;
    note_taken(model, key, token);
    set_life(model, key, lease_ms);
    return true;
}

bool model_extend_string(struct model *model, size_t place, int token, int64_t lease_ms)
{
    struct model_key *key = &model->keys[place];

    if (!holds(key, token)) {
        return false;
    }
    key->since_us[token] = model->now_us;
    set_life(model, key, lease_ms);
    return true;
}

bool model_expire(struct model *model, size_t place, int64_t lease_ms)
{
    struct model_key *key = &model->keys[place];

    if (key->exists) {
        set_life(model, key, lease_ms);
    }
    return key->exists;
}

bool model_delete(struct model *model, size_t place)
{
    bool existed = model->keys[place].exists;

    clear(&model->keys[place]);
    return existed;
}

bool model_release_string(struct model *model, size_t place, int token)
{
    return holds(&model->keys[place], token) && model_delete(model, place);
}

static bool is_empty(const struct model_key *key)
{
    for (int token = 0; token < MODEL_TOKENS; token++) {
        if (key->holds[token] > 0 || key->is_member[token]) {
            return false;
        }
    }
    return true;
}

bool model_take_hash(struct model *model, size_t place, int token, int64_t lease_ms)
{
    struct model_key *key = &model->keys[place];

    if (key->exists && key->holds[token] == 0) {
        return false;
    }
    if (!key->exists) {
        note_taken(model, key, token);
    }
    key->exists = true;
    key->since_us[token] = model->now_us;
    key->holds[token]++;
    set_life(model, key, lease_ms);
    return true;
}

int model_release_hash(struct model *model, size_t place, int token, int64_t lease_ms)
{
    struct model_key *key = &model->keys[place];

    if (!holds(key, token)) {
        return -1;
    }
    if (--key->holds[token] > 0) {
        set_life(model, key, lease_ms);
        return 0;
    }
    clear(key);
    return 1;
}

bool model_add_permit(struct model *model, size_t place, int token, double score)
{
    struct model_key *key = &model->keys[place];
    bool is_new = !key->is_member[token];

    key->exists = true;
    key->is_member[token] = true;
    key->scores[token] = score;
    if (is_new) {
        note_taken(model, key, token);
    }
    return is_new;
}

bool model_remove_permit(struct model *model, size_t place, int token)
{
    struct model_key *key = &model->keys[place];
    bool was = key->exists && key->is_member[token];

    key->is_member[token] = false;
    key->exists = !is_empty(key);
    return was;
}

void model_sweep_up(struct model *model, size_t place, double bound)
{
    struct model_key *key = &model->keys[place];

    for (int token = 0; token < MODEL_TOKENS; token++) {
        if (key->is_member[token] && key->scores[token] <= bound) {
            model->on_expiry(model->context, place, token);
            (void)model_remove_permit(model, place, token);
        }
    }
}

/* ---- scripts ---- */

/* For strings and hashes; arguments: key, token, lease, expected, slack. */
static int64_t renew(struct model *model, struct model_key *key, char *const *arguments)
{
    int64_t lease = strtoll(arguments[2], NULL, 10);
    int64_t expected = strtoll(arguments[3], NULL, 10), slack = strtoll(arguments[4], NULL, 10);
    int64_t life = life_ms(model, key);

    cr_assert(lease >= 1 && slack >= 0);
    if (!key->exists) {
        return 0;
    }
    if (!holds(key, model_token_of(arguments[1]))) {
        return -1;
    }
    if (life < 0) {
        return -2;
    }
    if (life < expected - slack) {
        return -3;
    }
    if (life > expected + slack) {
        return 2;
    }
    if (life < lease) {
        set_life(model, key, lease);
    }
    return 1;
}

/* arguments: key, member, new score, expected score, lease. */
static size_t renew_permit(struct model_key *key, char *const *arguments, int64_t reply[4])
{
    double score = strtod(arguments[2], NULL), expected = strtod(arguments[3], NULL);
    int token = model_token_of(arguments[1]);
    uint64_t bits;

    reply[1] = key->exists ? -1 : -2;
    if (!holds(key, token)) {
        reply[0] = key->exists ? -1 : 0;
        return 2;
    }
    if (key->scores[token] != expected) {
        memcpy(&bits, &key->scores[token], sizeof bits);
        reply[0] = 2;
        reply[2] = (int64_t)(bits >> 32);
        reply[3] = (int64_t)(bits & UINT32_MAX);
        return 4;
    }
    key->scores[token] = score > expected ? score : expected;
    reply[0] = 1;
    return 2;
}

/* arguments: key, token, time to live. */
static int64_t heal(struct model *model, struct model_key *key, char *const *arguments)
{
    if (!key->exists) {
        return 0;
    }
    if (!holds(key, model_token_of(arguments[1]))) {
        return -1;
    }
    if (key->expires_us != 0) {
        return 2;
    }
    set_life(model, key, strtoll(arguments[2], NULL, 10));
    return 1;
}

static int64_t release(struct model *model, size_t place, int token)
{
    struct model_key *key = &model->keys[place];

    if (!holds(key, token)) {
        return 0;
    }
    if (key->type == MODEL_ZSET) {
        return model_remove_permit(model, place, token);
    }
    clear(key);
    return 1;
}

size_t model_run_script(struct model *model, const char *name, char *const *arguments, int64_t reply[4])
{
    size_t place = model_key_of(arguments[0]);
    struct model_key *key = &model->keys[place];

    if (strncmp(name, "lease_release", 13) == 0) {
        reply[0] = release(model, place, model_token_of(arguments[1]));
        return 1;
    }
    if (strcmp(name, "lease_renew_zset") == 0) {
        return renew_permit(key, arguments, reply);
    }
    reply[0] = strcmp(name, "lease_heal") == 0 ? heal(model, key, arguments) : renew(model, key, arguments);
    reply[1] = life_ms(model, key);
    return 2;
}
