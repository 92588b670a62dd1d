#include "latency/latency_sketch.h"

#include "base/fnv.h"
#include "base/table.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

struct entry {
    struct table_node node; /* by key */
    uint64_t count;
    uint64_t error;
    uint64_t length; /* of the whole key */
    uint32_t place;  /* in the heap */
    char key[LATENCY_SKETCH_KEY_MAX];
};

struct latency_sketch {
    uint32_t most;
    uint32_t count;
    uint64_t total;
    struct entry *entries;
    uint32_t *heap; /* entries; none has a lower count than the one half as far from the beginning */
    struct table table;
};

/* ---- the heap ---- */

static uint64_t count_at(const struct latency_sketch *sketch, uint32_t place)
{
    return sketch->entries[sketch->heap[place]].count;
}

static void put(struct latency_sketch *sketch, uint32_t place, uint32_t entry)
{
    sketch->heap[place] = entry;
    sketch->entries[entry].place = place;
}

/* Moves the entry there to where its count belongs, which may have grown. */
static void sift_down(struct latency_sketch *sketch, uint32_t place)
{
    uint32_t entry = sketch->heap[place];

    for (uint32_t child = 2 * place + 1; child < sketch->count; child = 2 * place + 1) {
        child += child + 1 < sketch->count && count_at(sketch, child + 1) < count_at(sketch, child);
        if (count_at(sketch, child) >= sketch->entries[entry].count) {
            break;
        }
        put(sketch, place, sketch->heap[child]);
        place = child;
    }
    put(sketch, place, entry);
}

/* The same for the last one, which is new. */
static void sift_up(struct latency_sketch *sketch, uint32_t place)
{
    uint32_t entry = sketch->heap[place];

    while (place > 0 && count_at(sketch, (place - 1) / 2) > sketch->entries[entry].count) {
        put(sketch, place, sketch->heap[(place - 1) / 2]);
        place = (place - 1) / 2;
    }
    put(sketch, place, entry);
}

/* ---- entries ---- */

static size_t kept_length(uint64_t length)
{
    return length < LATENCY_SKETCH_KEY_MAX ? (size_t)length : LATENCY_SKETCH_KEY_MAX;
}

/* What tells an entry's key from others. key: its beginning, as far as it is kept. */
struct identity {
    const char *key;
    uint64_t length;
    uint64_t hash;
};

static struct identity identity_of(const struct entry *entry)
{
    return (struct identity){entry->key, entry->length, entry->node.hash};
}

/* NULL if there is none. */
static struct entry *find(const struct latency_sketch *sketch, const struct identity *identity)
{
    struct table_node *node = table_first(&sketch->table, identity->hash);

    for (; node != NULL; node = table_next(node)) {
        struct entry *entry = (struct entry *)(void *)node;
        if (entry->length == identity->length && memcmp(entry->key, identity->key, kept_length(entry->length)) == 0) {
            return entry;
        }
    }
    return NULL;
}

/* Gives the key a place of its own, or that of the one counted least, which is forgotten. */
static void set_entry(struct latency_sketch *sketch, const struct identity *identity, uint64_t count, uint64_t error)
{
    bool is_new = sketch->count < sketch->most;
    uint32_t entry = is_new ? sketch->count : sketch->heap[0];

    struct entry *kept = &sketch->entries[entry];

    if (!is_new) {
        table_remove(&sketch->table, &kept->node);
    }
    kept->count = count;
    kept->error = error;
    kept->length = identity->length;
    memcpy(kept->key, identity->key, kept_length(identity->length));
    (void)table_add(&sketch->table, &kept->node, identity->hash);
    if (is_new) {
        sketch->count++;
        put(sketch, sketch->count - 1, entry);
        sift_up(sketch, sketch->count - 1);
    } else {
        sift_down(sketch, 0);
    }
}

/* ---- the sketch ---- */

struct latency_sketch *latency_sketch_new(uint32_t most)
{
    assert(most >= 1 && most <= LATENCY_SKETCH_MAX);
    struct latency_sketch *sketch = calloc(1, sizeof *sketch);
    if (sketch == NULL) {
        return NULL;
    }
    sketch->most = most;
    sketch->entries = malloc(most * sizeof *sketch->entries);
    sketch->heap = malloc(most * sizeof *sketch->heap);
    if (sketch->entries == NULL || sketch->heap == NULL || !table_open(&sketch->table, most)) {
        latency_sketch_free(sketch);
        return NULL;
    }
    return sketch;
}

void latency_sketch_free(struct latency_sketch *sketch)
{
    if (sketch != NULL) {
        free(sketch->entries);
        free(sketch->heap);
        table_close(&sketch->table);
        free(sketch);
    }
}

void latency_sketch_clear(struct latency_sketch *sketch)
{
    sketch->count = 0;
    sketch->total = 0;
    table_clear(&sketch->table);
}

void latency_sketch_add(struct latency_sketch *sketch, struct slice key, uint64_t weight)
{
    const struct identity identity = {key.data, key.length, fnv(key.data, key.length)};
    struct entry *entry = find(sketch, &identity);

    assert(weight > 0);
    sketch->total += weight;
    if (entry == NULL) {
        uint64_t least = latency_sketch_least(sketch);
        set_entry(sketch, &identity, least + weight, least);
        return;
    }
    entry->count += weight;
    sift_down(sketch, entry->place);
}

void latency_sketch_merge(struct latency_sketch *into, const struct latency_sketch *from)
{
    assert(into != from && into->most == from->most);
    /* What one of them does not have may have occurred so often all the same. */
    uint64_t least_into = latency_sketch_least(into), least_from = latency_sketch_least(from);
    for (uint32_t i = 0; i < into->count; i++) {
        const struct identity identity = identity_of(&into->entries[i]);
        const struct entry *other = find(from, &identity);
        into->entries[i].count += other == NULL ? least_from : other->count;
        into->entries[i].error += other == NULL ? least_from : other->error;
    }
    for (uint32_t place = into->count / 2; place-- > 0;) {
        sift_down(into, place);
    }
    /* One that was in both and has lost its place already is not above the least any more, nor would it be here. */
    for (uint32_t i = 0; i < from->count; i++) {
        const struct entry *entry = &from->entries[i];
        const struct identity identity = identity_of(entry);
        if (find(into, &identity) == NULL && entry->count + least_into > latency_sketch_least(into)) {
            set_entry(into, &identity, entry->count + least_into, entry->error + least_into);
        }
    }
    into->total += from->total;
}

size_t latency_sketch_top(const struct latency_sketch *sketch, struct latency_hot_key *top, size_t most)
{
    size_t count = 0;

    for (uint32_t i = 0; i < sketch->count; i++) {
        const struct entry *entry = &sketch->entries[i];
        size_t at = count < most ? count++ : most;
        for (; at > 0 && top[at - 1].count < entry->count; at--) {
            if (at < most) {
                top[at] = top[at - 1];
            }
        }
        if (at < most) {
            top[at] = (struct latency_hot_key){
                {entry->key, kept_length(entry->length)}, entry->length, entry->count, entry->error};
        }
    }
    return count;
}

uint64_t latency_sketch_total(const struct latency_sketch *sketch)
{
    return sketch->total;
}

uint64_t latency_sketch_least(const struct latency_sketch *sketch)
{
    return sketch->count < sketch->most ? 0 : count_at(sketch, 0);
}
