#include "directory.h"

#include <assert.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <time.h>

void directory_open(struct directory *directory)
{
    uint64_t chance = 0;

    *directory = (struct directory){0};
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

int64_t directory_id(const struct directory *directory, uint64_t client)
{
    return DIRECTORY_FIRST + (directory->first + (int64_t)client) % (DIRECTORY_END - DIRECTORY_FIRST);
}

static struct directory_entry **bucket_of(struct directory *directory, int64_t id)
{
    return &directory->buckets[(uint64_t)id % DIRECTORY_BUCKETS];
}

struct directory_entry *directory_add(struct directory *directory, int64_t id, const char *address)
{
    struct directory_entry *entry = calloc(1, sizeof *entry);
    struct directory_entry **bucket = bucket_of(directory, id);

    if (entry == NULL) {
        return NULL;
    }
    entry->id = id;
    snprintf(entry->address, sizeof entry->address, "%s", address);
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

int64_t directory_find(struct directory *directory, int64_t id, bool wants)
{
    int64_t connection = -1;

    pthread_mutex_lock(&directory->lock);
    struct directory_entry *entry = *bucket_of(directory, id);
    while (entry != NULL && entry->id != id) {
        entry = entry->next;
    }
    if (entry != NULL) {
        connection = atomic_load(&entry->connection);
        if (wants) {
            atomic_store(&entry->is_wanted, true);
        }
    }
    pthread_mutex_unlock(&directory->lock);
    return connection;
}

static int by_connection(const void *left, const void *right)
{
    int64_t a = ((const struct directory_place *)left)->connection;
    int64_t b = ((const struct directory_place *)right)->connection;

    return a < b ? -1 : a > b;
}

/* With the lock held: those with a connection, copied if places is not NULL. */
static size_t gather(const struct directory *directory, struct directory_place *places, size_t room)
{
    size_t count = 0;

    for (size_t i = 0; i < DIRECTORY_BUCKETS; i++) {
        for (struct directory_entry *entry = directory->buckets[i]; entry != NULL; entry = entry->next) {
            int64_t connection = atomic_load(&entry->connection);
            if (connection <= 0) {
                continue;
            }
            if (places != NULL && count < room) {
                places[count].connection = connection;
                places[count].id = entry->id;
                memcpy(places[count].address, entry->address, sizeof entry->address);
            }
            count += places == NULL || count < room;
        }
    }
    return count;
}

size_t directory_places(struct directory *directory, struct directory_place **places)
{
    size_t count;

    pthread_mutex_lock(&directory->lock);
    count = gather(directory, NULL, 0);
    *places = count > 0 ? calloc(count, sizeof **places) : NULL;
    /* Some may have taken a connection, or left it, meanwhile. */
    count = *places != NULL ? gather(directory, *places, count) : 0;
    pthread_mutex_unlock(&directory->lock);
    if (count > 0) {
        qsort(*places, count, sizeof **places, by_connection);
    }
    return count;
}
