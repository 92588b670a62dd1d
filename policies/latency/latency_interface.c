#include "latency/latency_interface.h"

#include "latency/latency_hash.h"
#include "latency/latency_reserve.h"

#include <assert.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define ESCAPED_LENGTH 3
#define DIGEST_LENGTH 17 /* ~ and 16 digits */
#define NO_INTERFACE 0
/* A power of two; 16 in each when there are as many as there may be. */
#define BUCKETS 4096

struct interface {
    uint32_t next; /* in its bucket: a number and 1, or NO_INTERFACE */
    char name[LATENCY_NAME_MAX + 1];
};

#define LIST_SIZE (LATENCY_INTERFACES_MAX * sizeof(struct interface))

struct latency_interfaces {
    struct interface *list;
    uint32_t count;
    uint32_t most;
    uint32_t *buckets; /* the first of each: a number and 1, or NO_INTERFACE */
    uint64_t refused;
};

/* ---- safe names ---- */

static bool is_safe(char byte)
{
    return byte > ' ' && byte <= '~' && strchr("{}%~", byte) == NULL;
}

size_t latency_interface_name(struct slice name, char safe[LATENCY_NAME_MAX + 1])
{
    size_t length = 0, kept = 0, i = 0;

    for (; i < name.length; i++) {
        size_t takes = is_safe(name.data[i]) ? 1 : ESCAPED_LENGTH;
        if (length + takes > LATENCY_NAME_MAX) {
            break;
        }
        if (takes == 1) {
            safe[length] = name.data[i];
        } else {
            snprintf(safe + length, ESCAPED_LENGTH + 1, "%%%02X", (unsigned char)name.data[i]);
        }
        length += takes;
        kept = length <= LATENCY_NAME_MAX - DIGEST_LENGTH ? length : kept;
    }
    if (i < name.length) {
        snprintf(safe + kept, DIGEST_LENGTH + 1, "~%016" PRIx64, latency_hash(name.data, name.length));
        return kept + DIGEST_LENGTH;
    }
    if (length == 0) {
        safe[length++] = '%';
    }
    safe[length] = '\0';
    return length;
}

/* ---- the table ---- */

static uint32_t *bucket_of(const struct latency_interfaces *interfaces, const char *safe, size_t length)
{
    return &interfaces->buckets[latency_hash(safe, length) & (BUCKETS - 1)];
}

bool latency_interfaces_find(const struct latency_interfaces *interfaces, struct slice safe, uint32_t *interface)
{
    uint32_t at = *bucket_of(interfaces, safe.data, safe.length);

    while (at != NO_INTERFACE && !slice_is(safe, interfaces->list[at - 1].name)) {
        at = interfaces->list[at - 1].next;
    }
    *interface = at - 1;
    return at != NO_INTERFACE;
}

uint32_t latency_interfaces_add(struct latency_interfaces *interfaces, struct slice name)
{
    char safe[LATENCY_NAME_MAX + 1];
    size_t length = latency_interface_name(name, safe);
    uint32_t interface;

    if (latency_interfaces_find(interfaces, (struct slice){safe, length}, &interface)) {
        return interface;
    }
    if (interfaces->count >= interfaces->most) {
        interfaces->refused++;
        return LATENCY_OTHER;
    }
    interface = interfaces->count++;
    uint32_t *bucket = bucket_of(interfaces, safe, length);
    memcpy(interfaces->list[interface].name, safe, length + 1);
    interfaces->list[interface].next = *bucket;
    *bucket = interface + 1;
    return interface;
}

struct latency_interfaces *latency_interfaces_new(uint32_t most)
{
    struct latency_interfaces *interfaces = calloc(1, sizeof *interfaces);
    if (interfaces == NULL) {
        return NULL;
    }
    latency_interfaces_allow(interfaces, most);
    interfaces->list = latency_reserve_new(LIST_SIZE);
    interfaces->buckets = calloc(BUCKETS, sizeof *interfaces->buckets);
    if (interfaces->list == NULL || interfaces->buckets == NULL) {
        latency_interfaces_free(interfaces);
        return NULL;
    }
    latency_interfaces_add(interfaces, slice_of(LATENCY_OTHER_NAME));
    return interfaces;
}

void latency_interfaces_allow(struct latency_interfaces *interfaces, uint32_t most)
{
    assert(most >= 1 && most <= LATENCY_INTERFACES_MAX);
    interfaces->most = most;
}

void latency_interfaces_free(struct latency_interfaces *interfaces)
{
    if (interfaces != NULL) {
        latency_reserve_free(interfaces->list, LIST_SIZE);
        free(interfaces->buckets);
        free(interfaces);
    }
}

uint32_t latency_interfaces_count(const struct latency_interfaces *interfaces)
{
    return interfaces->count;
}

const char *latency_interfaces_name(const struct latency_interfaces *interfaces, uint32_t interface)
{
    assert(interface < interfaces->count);
    return interfaces->list[interface].name;
}

uint64_t latency_interfaces_refused(const struct latency_interfaces *interfaces)
{
    return interfaces->refused;
}
