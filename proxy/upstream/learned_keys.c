#include "upstream/learned_keys.h"

#include <string.h>

/* The places of its flags, its first key, its key specifications and its subcommands in an entry. */
#define FLAGS_AT 2
#define FIRST_KEY_AT 3
#define SPECS_AT 8
#define SUBCOMMANDS_AT 9
/* No command has so many arguments that are not keys. */
#define PLACE_MAX 1024

static bool is_text(const redisReply *reply, const char *text)
{
    bool has_text = reply->type == REDIS_REPLY_STRING || reply->type == REDIS_REPLY_STATUS;

    return has_text && slice_is((struct slice){reply->str, reply->len}, text);
}

/* What stands under that name in a flat list of pairs; NULL: nothing. */
static const redisReply *find(const redisReply *pairs, const char *name)
{
    bool is_list = pairs != NULL && pairs->type == REDIS_REPLY_ARRAY;

    for (size_t i = 0; is_list && i + 1 < pairs->elements; i += 2) {
        if (is_text(pairs->element[i], name)) {
            return pairs->element[i + 1];
        }
    }
    return NULL;
}

static bool has_text(const redisReply *texts, const char *text)
{
    bool is_list = texts != NULL && texts->type == REDIS_REPLY_ARRAY;

    for (size_t i = 0; is_list && i < texts->elements; i++) {
        if (is_text(texts->element[i], text)) {
            return true;
        }
    }
    return false;
}

static bool has_flag(const redisReply *spec, const char *flag)
{
    return has_text(find(spec, "flags"), flag);
}

static bool read_place(const redisReply *pairs, const char *name, int32_t least, int32_t *place)
{
    const redisReply *number = find(pairs, name);
    bool is_sound = number != NULL && number->type == REDIS_REPLY_INTEGER && number->integer >= least &&
                    number->integer <= PLACE_MAX;

    *place = is_sound ? (int32_t)number->integer : 0;
    return is_sound;
}

/* The part of a specification under that name is of that type: its facts. NULL: it is of another one. */
static const redisReply *facts_of(const redisReply *spec, const char *part, const char *type)
{
    const redisReply *pairs = find(spec, part);
    const redisReply *told = find(pairs, "type");

    return told != NULL && is_text(told, type) ? find(pairs, "spec") : NULL;
}

static bool read_begin(const redisReply *told, struct command_spec *spec)
{
    const redisReply *index = facts_of(told, "begin_search", "index");
    const redisReply *keyword = facts_of(told, "begin_search", "keyword");

    if (index != NULL) {
        return read_place(index, "index", 1, &spec->begin);
    }
    const redisReply *word = find(keyword, "keyword");
    bool has_word = word != NULL && word->type == REDIS_REPLY_STRING && word->len > 0 &&
                    word->len < sizeof spec->keyword && memchr(word->str, '\0', word->len) == NULL;
    if (has_word) {
        memcpy(spec->keyword, word->str, word->len);
    }
    return has_word && read_place(keyword, "startfrom", -PLACE_MAX, &spec->begin) && spec->begin != 0;
}

static bool read_range(const redisReply *told, struct command_spec *spec)
{
    const redisReply *range = facts_of(told, "find_keys", "range");
    const redisReply *counted = facts_of(told, "find_keys", "keynum");

    if (range != NULL) {
        return read_place(range, "lastkey", -PLACE_MAX, &spec->last) && read_place(range, "limit", 0, &spec->limit) &&
               read_place(range, "keystep", 1, &spec->step);
    }
    spec->is_counted = true;
    return read_place(counted, "keynumidx", 0, &spec->count_at) && read_place(counted, "firstkey", 0, &spec->first) &&
           read_place(counted, "keystep", 1, &spec->step);
}

bool learned_keys_read(const redisReply *entry, struct command_specs *specs)
{
    const redisReply *told = entry->elements > SPECS_AT ? entry->element[SPECS_AT] : NULL;
    bool is_list = told != NULL && told->type == REDIS_REPLY_ARRAY;
    bool is_whole = is_list && told->elements > 0 && told->elements <= COMMAND_SPECS_MAX;

    *specs = (struct command_specs){.count = 0};
    for (size_t i = 0; is_whole && i < told->elements; i++) {
        struct command_spec *spec = &specs->items[specs->count++];
        /* Arguments that are no keys, but have a slot, are said by no other part. */
        is_whole = !has_flag(told->element[i], "incomplete") && !has_flag(told->element[i], "not_key") &&
                   read_begin(told->element[i], spec) && read_range(told->element[i], spec);
    }
    return is_whole;
}

static bool has_keys(const redisReply *entry)
{
    bool is_entry = entry->type == REDIS_REPLY_ARRAY && entry->elements > SPECS_AT;

    return is_entry && (entry->element[FIRST_KEY_AT]->integer != 0 || entry->element[SPECS_AT]->elements > 0 ||
                        has_text(entry->element[FLAGS_AT], "movablekeys"));
}

bool learned_keys_of_subcommands(const redisReply *entry)
{
    const redisReply *told = entry->elements > SUBCOMMANDS_AT ? entry->element[SUBCOMMANDS_AT] : NULL;
    bool is_list = told != NULL && told->type == REDIS_REPLY_ARRAY;
    bool have_keys = false;

    for (size_t i = 0; is_list && i < told->elements && !have_keys; i++) {
        have_keys = has_keys(told->element[i]);
    }
    return have_keys;
}
