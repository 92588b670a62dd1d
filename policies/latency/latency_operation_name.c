#include "latency/latency_operation_name.h"

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

size_t latency_operation_safe_name(struct slice name, char safe[LATENCY_NAME_MAX + 1])
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

bool latency_operation_names_find(const struct latency_operation_names *operations, struct slice safe,
                                  uint32_t *operation)
{
    struct table_node *node = table_first(&operations->table, fnv(safe.data, safe.length));

    while (node != NULL && !slice_is(safe, ((struct latency_operation_name *)(void *)node)->name)) {
        node = table_next(node);
    }
    *operation = node != NULL ? ((struct latency_operation_name *)(void *)node)->number : 0;
    return node != NULL;
}

/* Makes room for one more. False when memory is short. */
static bool grow(struct latency_operation_names *operations)
{
    if (operations->count < operations->room) {
        return true;
    }
    uint32_t room = operations->room > 0 ? operations->room * 2 : 16;
    struct latency_operation_name **list = realloc(operations->list, room * sizeof(struct latency_operation_name *));
    if (list != NULL) {
        operations->list = list;
        operations->room = room;
    }
    return list != NULL;
}

/* NULL when memory is short. */
static struct latency_operation_name *append(struct latency_operation_names *operations, struct slice safe)
{
    struct latency_operation_name *fresh = grow(operations) ? calloc(1, operations->size) : NULL;

    if (fresh == NULL || !table_add(&operations->table, &fresh->node, fnv(safe.data, safe.length))) {
        free(fresh);
        return NULL;
    }
    memcpy(fresh->name, safe.data, safe.length);
    fresh->number = operations->count;
    operations->list[operations->count++] = fresh;
    return fresh;
}

uint32_t latency_operation_names_add(struct latency_operation_names *operations, struct slice name)
{
    char text[LATENCY_NAME_MAX + 1];
    struct slice safe = {text, latency_operation_safe_name(name, text)};
    uint32_t operation;

    if (latency_operation_names_find(operations, safe, &operation)) {
        return operation;
    }
    if (operations->count >= operations->most || append(operations, safe) == NULL) {
        operations->refused++;
        return LATENCY_OTHER;
    }
    return operations->count - 1;
}

struct latency_operation_names *latency_operation_names_new(uint32_t most, size_t size)
{
    assert(most >= 1 && most <= LATENCY_OPERATIONS_MAX);
    struct latency_operation_names *operations = calloc(1, sizeof *operations);
    if (operations == NULL) {
        return NULL;
    }
    operations->size = size;
    operations->most = most;
    if (append(operations, slice_of(LATENCY_OTHER_NAME)) == NULL) {
        latency_operation_names_free(operations);
        return NULL;
    }
    return operations;
}

void latency_operation_names_free(struct latency_operation_names *operations)
{
    if (operations != NULL) {
        for (uint32_t i = 0; i < operations->count; i++) {
            free(operations->list[i]);
        }
        free(operations->list);
        table_close(&operations->table);
        free(operations);
    }
}
