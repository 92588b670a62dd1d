/*
 * The clients of the process that were told an id of their own, whichever worker they are on.
 *
 * In pool = shared a client has no connection to Redis of its own, and so no id of Redis'. It is given one of
 * Headgate's: they lie above 2^52, where Redis' own, which count from 1, do not get to, and below 2^53, up to where
 * every language has whole numbers. They begin at a random place, so that those of several Headgates do not meet.
 *
 * Here is kept which connection to Redis is such a client's alone at the moment. Who names a client is told that
 * connection, and has it marked: one that is marked is never given to anybody else. So it stays that client's, or
 * nobody's, however long the request that names it is under way. Both happen under one lock.
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

/* A client that was told its id. Its own thread makes and removes it; the rest is said by functions. */
struct directory_entry {
    struct directory_entry *next;
    int64_t id;
    const void *thread;    /* whose client it is … */
    void *client;          /* … for that thread only */
    int64_t connection;    /* Redis' id of the connection that is the client's alone; 0: none, or not known */
    bool named;            /* somebody was told of that connection */
    bool kept;             /* the client keeps it for life */
    bool is_to_keep;       /* somebody wants it to have one for life */
    bool is_to_end;        /* somebody wants it closed */
    _Atomic bool is_asked; /* one of these two: the client's thread looks at this without the lock */
};

/* One for each place; a power of two. */
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
int64_t directory_id(const struct directory *directory, uint64_t number);
/* Whether it may be one, of this process or of another. */
static inline bool directory_has_range(int64_t id)
{
    return id >= DIRECTORY_FIRST && id < DIRECTORY_END;
}

/* Makes an entry; NULL when memory is short. */
struct directory_entry *directory_add(struct directory *directory, int64_t id, const void *thread, void *client);
void directory_remove(struct directory *directory, struct directory_entry *entry);

/* The connection of that id is the client's alone from now on. */
void directory_enter(struct directory *directory, struct directory_entry *entry, int64_t connection);
/* It is not any more, or will not be from now on. True: somebody was told of it, so nobody else may have it. */
bool directory_leave(struct directory *directory, struct directory_entry *entry);
/* What is_asked is about: true: the client is to end; false: it is to have a connection for life. */
bool directory_ends(struct directory *directory, const struct directory_entry *entry);
/* It keeps the connection that it has. */
void directory_keep(struct directory *directory, struct directory_entry *entry);

/* What there is of a client that is named. */
struct directory_finding {
    bool is_there;
    int64_t connection; /* 0: it has none, or the id is not known */
    bool kept;
    const void *thread;
    void *client;
};

enum directory_wish {
    DIRECTORY_NAME,        /* its connection is named */
    DIRECTORY_KEEP,        /* the same, if it keeps that for life; if not, it is asked to */
    DIRECTORY_NAME_OR_END, /* the same; if it has none, or none that is known, it is asked to end */
    DIRECTORY_END_IT       /* it is asked to end */
};

/* From any thread. */
struct directory_finding directory_find(struct directory *directory, int64_t id, enum directory_wish wish);

#endif
