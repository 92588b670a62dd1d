#include "latency/latency_interface.h"

#include "base/fnv.h"

#include <assert.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define ESCAPED_LENGTH 3
#define DIGEST_LENGTH 17 /* ~ and 16 digits */

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

    while (node != NULL && !slice_is(safe, ((struct latency_interface *)(void *)node)->name)) {
        node = table_next(node);
    }
    *interface = node != NULL ? ((struct latency_interface *)(void *)node)->number : 0;
    return node != NULL;
}

/* Makes room for one more. False when memory is short. */
static bool grow(struct latency_interfaces *interfaces)
{
    if (interfaces->count < interfaces->room) {
        return true;
    }
    uint32_t room = interfaces->room > 0 ? interfaces->room * 2 : 16;
    struct latency_interface **list = realloc(interfaces->list, room * sizeof(struct latency_interface *));
    if (list != NULL) {
        interfaces->list = list;
        interfaces->room = room;
    }
    return list != NULL;
}

/* NULL when memory is short. */
static struct latency_interface *append(struct latency_interfaces *interfaces, struct slice safe)
{
    struct latency_interface *fresh = grow(interfaces) ? calloc(1, interfaces->size) : NULL;

    if (fresh == NULL || !table_add(&interfaces->table, &fresh->node, fnv(safe.data, safe.length))) {
        free(fresh);
        return NULL;
    }
    memcpy(fresh->name, safe.data, safe.length);
    fresh->number = interfaces->count;
    interfaces->list[interfaces->count++] = fresh;
    return fresh;
}

uint32_t latency_interfaces_add(struct latency_interfaces *interfaces, struct slice name)
{
    char safe[LATENCY_NAME_MAX + 1];
    struct slice safe_name = {safe, latency_interface_name(name, safe)};
    uint32_t interface;

    if (latency_interfaces_find(interfaces, safe_name, &interface)) {
        return interface;
    }
    if (interfaces->count >= interfaces->most || append(interfaces, safe_name) == NULL) {
        interfaces->refused++;
        return LATENCY_OTHER;
    }
    return interfaces->count - 1;
}

struct latency_interfaces *latency_interfaces_new(uint32_t most, size_t size)
{
    assert(most >= 1 && most <= LATENCY_INTERFACES_MAX);
    struct latency_interfaces *interfaces = calloc(1, sizeof *interfaces);
    if (interfaces == NULL) {
        return NULL;
    }
    interfaces->size = size;
    interfaces->most = most;
    if (append(interfaces, slice_of(LATENCY_OTHER_NAME)) == NULL) {
        latency_interfaces_free(interfaces);
        return NULL;
    }
    return interfaces;
}

void latency_interfaces_free(struct latency_interfaces *interfaces)
{
    if (interfaces != NULL) {
        for (uint32_t i = 0; i < interfaces->count; i++) {
            free(interfaces->list[i]);
        }
        free(interfaces->list);
        table_close(&interfaces->table);
        free(interfaces);
    }
}
