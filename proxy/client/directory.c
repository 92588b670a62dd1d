#include "client/directory.h"

#include <assert.h>
#include <stdlib.h>
#include <sys/random.h>
#include <time.h>

void directory_open(struct directory *directory)
{
    uint64_t chance = 0;

    *directory = (struct directory){.first = 0};
    pthread_mutex_init(&directory->lock, NULL);
    if (getrandom(&chance, sizeof chance, GRND_NONBLOCK) != (ssize_t)sizeof chance) {
        chance = (uint64_t)time(NULL) * 6364136223846793005ULL;
    }
    directory->first = (int64_t)(chance >> 12);
}

void directory_close(struct directory *directory)
{
    for (size_t i = 0; i < DIRECTORY_BUCKETS; i++) {
        assert(directory->buckets[i] == NULL);
    }
    pthread_mutex_destroy(&directory->lock);
}

int64_t directory_id(const struct directory *directory, uint64_t number)
{
    uint64_t range = (uint64_t)(DIRECTORY_END - DIRECTORY_FIRST);

    return DIRECTORY_FIRST + (int64_t)(((uint64_t)directory->first + number) % range);
}

static struct directory_entry **bucket_of(struct directory *directory, int64_t id)
{
    return &directory->buckets[(uint64_t)id % DIRECTORY_BUCKETS];
}

struct directory_entry *directory_add(struct directory *directory, int64_t id, const void *thread, void *client)
{
    struct directory_entry *entry = calloc(1, sizeof *entry);
    struct directory_entry **bucket = bucket_of(directory, id);

    if (entry == NULL) {
        return NULL;
    }
    entry->id = id;
    entry->thread = thread;
    entry->client = client;
    pthread_mutex_lock(&directory->lock);
    entry->next = *bucket;
    *bucket = entry;
    pthread_mutex_unlock(&directory->lock);
    return entry;
}

void directory_remove(struct directory *directory, struct directory_entry *entry)
{
    struct directory_entry **link = bucket_of(directory, entry->id);

    pthread_mutex_lock(&directory->lock);
    while (*link != entry) {
        link = &(*link)->next;
    }
    *link = entry->next;
    pthread_mutex_unlock(&directory->lock);
    free(entry);
}

void directory_enter(struct directory *directory, struct directory_entry *entry, int64_t connection)
{
    pthread_mutex_lock(&directory->lock);
    entry->connection = connection;
    pthread_mutex_unlock(&directory->lock);
}

bool directory_leave(struct directory *directory, struct directory_entry *entry)
{
    pthread_mutex_lock(&directory->lock);
    bool named = entry->named;
    entry->connection = 0;
    entry->named = false;
    entry->kept = false;
    pthread_mutex_unlock(&directory->lock);
    return named;
}

bool directory_ends(struct directory *directory, const struct directory_entry *entry)
{
    pthread_mutex_lock(&directory->lock);
    bool ends = entry->is_to_end;
    pthread_mutex_unlock(&directory->lock);
    return ends;
}

void directory_keep(struct directory *directory, struct directory_entry *entry)
{
    pthread_mutex_lock(&directory->lock);
    entry->kept = true;
    entry->is_to_keep = false;
    atomic_store_explicit(&entry->is_asked, entry->is_to_end, memory_order_relaxed);
    pthread_mutex_unlock(&directory->lock);
}

static void ask(struct directory_entry *entry, bool *what)
{
    *what = true;
    atomic_store_explicit(&entry->is_asked, true, memory_order_relaxed);
}

/* With the lock held. */
static void wish_of(struct directory_entry *entry, enum directory_wish wish)
{
    bool has_one = entry->connection != 0;

    if (wish == DIRECTORY_END_IT || (wish == DIRECTORY_NAME_OR_END && !has_one)) {
        ask(entry, &entry->is_to_end);
    } else if (wish == DIRECTORY_KEEP && !entry->kept) {
        ask(entry, &entry->is_to_keep);
    } else {
        entry->named = entry->named || has_one;
    }
}

struct directory_finding directory_find(struct directory *directory, int64_t id, enum directory_wish wish)
{
    struct directory_finding finding = {.is_there = false};

    pthread_mutex_lock(&directory->lock);
    struct directory_entry *entry = *bucket_of(directory, id);
    while (entry != NULL && entry->id != id) {
        entry = entry->next;
    }
    if (entry != NULL) {
        wish_of(entry, wish);
        finding = (struct directory_finding){
            .is_there = true,
            .connection = entry->connection,
            .kept = entry->kept,
            .thread = entry->thread,
            .client = entry->client,
        };
    }
    pthread_mutex_unlock(&directory->lock);
    return finding;
}
