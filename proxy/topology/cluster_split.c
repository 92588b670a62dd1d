#include "topology/cluster_split.h"

#include "resp/resp_element.h"

#include <assert.h>
#include <inttypes.h>
#include <stdlib.h>

/* What becomes of the replies to the parts. */
enum joining {
    JOIN_LISTS, /* an element for each key, in the order of the keys */
    JOIN_SUM,
    JOIN_OK
};

struct kind {
    const char *name;
    enum joining joining;
    uint32_t step; /* arguments for each key */
};

static const struct kind kinds[] = {
    {"mget", JOIN_LISTS, 1}, {"mset", JOIN_OK, 2},    {"del", JOIN_SUM, 1},
    {"unlink", JOIN_SUM, 1}, {"exists", JOIN_SUM, 1}, {"touch", JOIN_SUM, 1},
};

struct part {
    uint16_t slot;
    uint32_t keys;
    size_t start; /* of its frame, in frames */
    size_t length;
    struct slice reply; /* the caller's; none: it has not come */
};

struct cluster_split {
    const struct kind *kind;
    struct part *parts; /* room for one a key */
    size_t count;
    uint32_t keys;
    uint32_t *part_of_key;
    char *frames;
    size_t size;       /* bytes of all this */
    struct slice name; /* of the command, as it came; valid while the split is being made */
};

static const struct kind *kind_of(const struct command *command)
{
    for (size_t i = 0; i < sizeof kinds / sizeof kinds[0]; i++) {
        if (strcmp(kinds[i].name, command->name) == 0) {
            return &kinds[i];
        }
    }
    return NULL;
}

bool cluster_split_can(const struct command *command)
{
    return kind_of(command) != NULL;
}

/* ---- taking apart ---- */

static size_t digits_of(size_t number)
{
    size_t digits = 1;

    for (; number >= 10; number /= 10) {
        digits++;
    }
    return digits;
}

static size_t line_size(size_t number)
{
    return 1 + digits_of(number) + 2;
}

static size_t argument_size(struct slice argument)
{
    return line_size(argument.length) + argument.length + 2;
}

/* How many arguments there are behind the name. */
static uint32_t count_arguments(struct slice frame)
{
    struct resp_walk walk = resp_walk_start(frame);

    return walk.left > 0 ? walk.left - 1 : 0;
}

/* The part of that slot, which may be a new one. */
static uint32_t find_part(struct cluster_split *split, uint32_t *part_of_slot, uint16_t slot)
{
    if (part_of_slot[slot] == 0) {
        split->parts[split->count++].slot = slot;
        part_of_slot[slot] = (uint32_t)split->count;
    }
    return part_of_slot[slot] - 1;
}

/* Finds out which key goes where, and how much room the parts' arguments need. False: the frame is not whole. */
static bool sort_keys(struct cluster_split *split, struct slice frame, uint32_t *part_of_slot)
{
    struct resp_walk walk = resp_walk_start(frame);
    struct slice argument;

    if (!resp_walk_next(&walk, &split->name)) {
        return false;
    }
    for (uint32_t i = 0; i < split->keys; i++) {
        for (uint32_t j = 0; j < split->kind->step; j++) {
            if (!resp_walk_next(&walk, &argument)) {
                return false;
            }
            if (j == 0) {
                split->part_of_key[i] = find_part(split, part_of_slot, cluster_slot_of(argument));
                split->parts[split->part_of_key[i]].keys++;
            }
            split->parts[split->part_of_key[i]].length += argument_size(argument);
        }
    }
    return true;
}

/* Gives each part its place in frames; returns the length of all. */
static size_t place_parts(struct cluster_split *split)
{
    size_t total = 0;

    for (size_t i = 0; i < split->count; i++) {
        struct part *part = &split->parts[i];
        part->start = total;
        part->length += line_size(1 + part->keys * split->kind->step) + argument_size(split->name);
        total += part->length;
    }
    return total;
}

static char *put_argument(char *next, struct slice argument)
{
    next += sprintf(next, "$%zu\r\n", argument.length);
    memcpy(next, argument.data, argument.length);
    memcpy(next + argument.length, "\r\n", 2);
    return next + argument.length + 2;
}

/* ends: where each part's text goes on. */
static void write_parts(const struct cluster_split *split, struct slice frame, char **ends)
{
    struct resp_walk walk = resp_walk_start(frame);
    struct slice argument;

    for (size_t i = 0; i < split->count; i++) {
        const struct part *part = &split->parts[i];
        ends[i] = split->frames + part->start;
        ends[i] += sprintf(ends[i], "*%u\r\n", 1 + part->keys * split->kind->step);
        ends[i] = put_argument(ends[i], split->name);
    }
    (void)resp_walk_next(&walk, &argument);
    for (uint32_t i = 0; i < split->keys * split->kind->step; i++) {
        char **end = &ends[split->part_of_key[i / split->kind->step]];
        (void)resp_walk_next(&walk, &argument);
        *end = put_argument(*end, argument);
    }
    for (size_t i = 0; i < split->count; i++) {
        assert(ends[i] == split->frames + split->parts[i].start + split->parts[i].length);
    }
}

static bool take_apart(struct cluster_split *split, struct slice frame)
{
    uint32_t *part_of_slot = calloc(CLUSTER_SLOTS, sizeof *part_of_slot);
    bool is_sorted = part_of_slot != NULL && sort_keys(split, frame, part_of_slot);

    free(part_of_slot);
    if (!is_sorted) {
        return false;
    }
    /* sprintf() ends each of its texts by a NUL, which the next one covers. */
    size_t length = place_parts(split) + 1;
    split->frames = malloc(length);
    split->size += length;
    char **ends = calloc(split->count, sizeof *ends);
    if (split->frames != NULL && ends != NULL) {
        write_parts(split, frame, ends);
    }
    bool is_written = split->frames != NULL && ends != NULL;
    free(ends);
    return is_written;
}

struct cluster_split *cluster_split_new(const struct command *command, struct slice frame)
{
    const struct kind *kind = kind_of(command);
    uint32_t arguments = count_arguments(frame);

    if (kind == NULL || arguments == 0 || arguments % kind->step != 0) {
        return NULL;
    }
    struct cluster_split *split = calloc(1, sizeof *split);
    if (split == NULL) {
        return NULL;
    }
    split->kind = kind;
    split->keys = arguments / kind->step;
    size_t most = split->keys < CLUSTER_SLOTS ? split->keys : CLUSTER_SLOTS;
    split->parts = calloc(most, sizeof *split->parts);
    split->part_of_key = calloc(split->keys, sizeof *split->part_of_key);
    split->size = sizeof *split + most * sizeof *split->parts + split->keys * sizeof *split->part_of_key;
    if (split->parts == NULL || split->part_of_key == NULL || !take_apart(split, frame)) {
        cluster_split_free(split);
        return NULL;
    }
    return split;
}

void cluster_split_free(struct cluster_split *split)
{
    free(split->parts);
    free(split->part_of_key);
    free(split->frames);
    free(split);
}

size_t cluster_split_size(const struct cluster_split *split)
{
    return split->size;
}

size_t cluster_split_count(const struct cluster_split *split)
{
    return split->count;
}

struct cluster_split_part cluster_split_part(const struct cluster_split *split, size_t place)
{
    const struct part *part = &split->parts[place];

    return (struct cluster_split_part){.slot = part->slot, .frame = {split->frames + part->start, part->length}};
}

/* ---- putting together ---- */

void cluster_split_take(struct cluster_split *split, size_t place, struct slice reply)
{
    assert(split->parts[place].reply.length == 0);
    split->parts[place].reply = reply;
}

static bool read_part(const struct part *part, struct resp_element *element)
{
    struct slice reply = part->reply;

    return reply.length > 0 && resp_element_next(&reply, element);
}

/* Whether it is what Redis answers to such a command where all goes well. */
static bool fits(const struct cluster_split *split, const struct part *part, const struct resp_element *element)
{
    switch (split->kind->joining) {
    case JOIN_LISTS:
        return element->type == '*' && !element->is_null && element->count == part->keys;
    case JOIN_SUM:
        return element->type == ':' && element->integer >= 0 && element->integer <= part->keys;
    default:
        return element->type == '+';
    }
}

/* The first part that has no reply to go on with: that is the whole reply then. True: it was written. */
static bool write_failure(const struct cluster_split *split, FILE *out)
{
    struct resp_element element;

    for (size_t i = 0; i < split->count; i++) {
        const struct part *part = &split->parts[i];
        bool is_read = read_part(part, &element);
        if (is_read && resp_element_is_error(&element)) {
            fwrite(part->reply.data, 1, part->reply.length, out);
            return true;
        }
        if (!is_read || !fits(split, part, &element)) {
            fputs("-ERR the nodes of the cluster have answered what does not fit together\r\n", out);
            return true;
        }
    }
    return false;
}

static void write_sum(const struct cluster_split *split, FILE *out)
{
    struct resp_element element;
    int64_t sum = 0;

    for (size_t i = 0; i < split->count; i++) {
        (void)read_part(&split->parts[i], &element);
        sum += element.integer;
    }
    fprintf(out, ":%" PRId64 "\r\n", sum);
}

static void write_lists(const struct cluster_split *split, FILE *out)
{
    struct slice *left = calloc(split->count, sizeof *left);
    struct resp_element element;

    if (left == NULL) {
        fputs("-ERR Headgate is out of memory\r\n", out);
        return;
    }
    for (size_t i = 0; i < split->count; i++) {
        (void)read_part(&split->parts[i], &element);
        left[i] = element.inside;
    }
    fprintf(out, "*%u\r\n", split->keys);
    for (uint32_t i = 0; i < split->keys; i++) {
        bool is_read = resp_element_next(&left[split->part_of_key[i]], &element);
        assert(is_read);
        fwrite(element.whole.data, 1, element.whole.length, out);
    }
    free(left);
}

void cluster_split_write(const struct cluster_split *split, FILE *out)
{
    if (write_failure(split, out)) {
        return;
    }
    switch (split->kind->joining) {
    case JOIN_LISTS:
        write_lists(split, out);
        break;
    case JOIN_SUM:
        write_sum(split, out);
        break;
    case JOIN_OK:
        fputs("+OK\r\n", out);
        break;
    }
}
