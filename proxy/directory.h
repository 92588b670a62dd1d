/*
 * The clients of the process that have been told an id of their own, whichever worker they are on.
 *
 * In pool = shared a client has no connection to Redis of its own, and so no id of Redis'. It is given one of
 * Headgate's: they lie above 2^52, where Redis' own, which count from 1, do not get to, and below 2^53, up to where
 * every language has whole numbers. They begin at a random place, so that those of several Headgates do not meet.
 * Here is kept which connection stands for such a client at the moment, so that who names it can be understood.
 */
#ifndef HEADGATE_DIRECTORY_H
#define HEADGATE_DIRECTORY_H

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define DIRECTORY_FIRST ((int64_t)1 << 52)
#define DIRECTORY_END ((int64_t)1 << 53)
#define DIRECTORY_ADDRESS 64

struct directory_entry {
    struct directory_entry *next;
    int64_t id;
    _Atomic int64_t connection; /* Redis' id of the connection that is the client's alone; 0: none, or not known */
    _Atomic bool is_wanted;     /* somebody has named it: it should have such a connection */
    char address[DIRECTORY_ADDRESS];
};

#define DIRECTORY_BUCKETS 4096

struct directory {
    pthread_mutex_t lock;
    int64_t first;
    struct directory_entry *buckets[DIRECTORY_BUCKETS];
};

void directory_open(struct directory *directory);
/* All entries have been removed. */
void directory_close(struct directory *directory);

/* The id of the client of that number. */
int64_t directory_id(const struct directory *directory, uint64_t client);

/* Makes an entry for the id; NULL when memory is short. address is cut to DIRECTORY_ADDRESS. From any thread. */
struct directory_entry *directory_add(struct directory *directory, int64_t id, const char *address);
void directory_remove(struct directory *directory, struct directory_entry *entry);

/* Redis' id of the connection of that client, 0 if it has none, -1 if there is no such client. wants: has it take one,
 * soon, and keep it. */
int64_t directory_find(struct directory *directory, int64_t id, bool wants);

/* A client that has a connection of its own. */
struct directory_place {
    int64_t connection;
    int64_t id;
    char address[DIRECTORY_ADDRESS];
};

/* All of them, in the order of Redis' ids; *places is the caller's to free. Their number; 0 also when memory is short.
 */
size_t directory_places(struct directory *directory, struct directory_place **places);

#endif
