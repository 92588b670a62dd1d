#include "latency/latency_interface.h"

#include "base/fnv.h"
#include "base/table.h"
#include "latency/latency_reserve.h"

#include <assert.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define ESCAPED_LENGTH 3
#define DIGEST_LENGTH 17 /* ~ and 16 digits */

struct interface {
    struct table_node node; /* by name */
    char name[LATENCY_NAME_MAX + 1];
};

#define LIST_SIZE (LATENCY_INTERFACES_MAX * sizeof(struct interface))

struct latency_interfaces {
    struct interface *list;
    uint32_t count;
    uint32_t most;
    struct table table;
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
        snprintf(safe + kept, DIGEST_LENGTH + 1, "~%016" PRIx64, fnv(name.data, name.length));
        return kept + DIGEST_LENGTH;
    }
    if (length == 0) {
        safe[length++] = '%';
    }
    safe[length] = '\0';
    return length;
}

/* ---- the table ---- */

bool latency_interfaces_find(const struct latency_interfaces *interfaces, struct slice safe, uint32_t *interface)
{
    struct table_node *node = table_first(&interfaces->table, fnv(safe.data, safe.length));

    while (node != NULL && !slice_is(safe, ((struct interface *)(void *)node)->name)) {
        node = table_next(node);
    }
    *interface = node != NULL ? (uint32_t)((struct interface *)(void *)node - interfaces->list) : 0;
    return node != NULL;
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
    memcpy(interfaces->list[interface].name, safe, length + 1);
    (void)table_add(&interfaces->table, &interfaces->list[interface].node, fnv(safe, length));
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
    if (interfaces->list == NULL || !table_open(&interfaces->table, 1)) {
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
        table_close(&interfaces->table);
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
