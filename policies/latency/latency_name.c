/*
 * Which operation a request is measured under: the name of the first rule that it matches, else its command's, with the
 * subcommand if there are any; with "|blocking" if it may wait for other clients, and "@user" if clients are told
 * apart. What neither Headgate nor the server knows for a command is "unknown": what was sent in its place may be a
 * password, which is to be seen nowhere.
 *
 * Names of commands become operations when they are used first, so that those that are never used take no room: until
 * then a tag says which slot. Names that are not in Headgate's table (commands that only the server knows, users and
 * names) are looked up in tables of the worker's own; the lock is taken once for each of them.
 */
#include "latency/latency_private.h"

#include <ctype.h>
#include <stdlib.h>
#include <string.h>

/* The longest name before it is made safe; of what is longer, its beginning counts. */
#define NAME_SIZE 512
/* Of all operations of a worker, names of commands that only the server knows. */
#define LEARNED_PART 4
#define UNKNOWN_NAME "unknown"

/* ---- slots ---- */

/* The slots are those of all commands, then those of all commands that wait, then subcommands. */
struct filling {
    struct latency_names *names;
    const struct command *command;
};

static void add_slot(struct latency_names *names, const struct command *command, const char *subcommand,
                     bool is_blocking)
{
    names->slots = conf_alloc(names->slots, (names->slot_count + 1) * sizeof *names->slots);
    names->slots[names->slot_count++] = (struct latency_slot){command, subcommand, is_blocking, LATENCY_UNRESOLVED};
}

static void add_subcommand(void *context, const char *name, uint32_t categories)
{
    const struct filling *filling = context;

    (void)categories;
    add_slot(filling->names, filling->command, name, false);
}

static void make_slots(struct latency_names *names)
{
    size_t count = command_count();

    for (size_t i = 0; i < 2 * count; i++) {
        add_slot(names, command_at(i % count), NULL, i >= count);
    }
    names->first_subcommands = conf_alloc(NULL, (count + 1) * sizeof *names->first_subcommands);
    for (size_t i = 0; i < count; i++) {
        names->first_subcommands[i] = (uint32_t)names->slot_count;
        command_visit_subcommands(command_at(i), add_subcommand, &(struct filling){names, command_at(i)});
    }
    names->first_subcommands[count] = (uint32_t)names->slot_count;
}

static bool has_subcommands(const struct latency_names *names, const struct command *command)
{
    size_t index = command_index(command);

    return names->first_subcommands[index] < names->first_subcommands[index + 1];
}

/* ---- making ---- */

static void forget_identities(struct latency_names *names)
{
    latency_operation_names_free(names->identities);
    free(names->pairs);
    table_close(&names->pair_table);
    names->identities = NULL;
    names->pairs = NULL;
    names->pair_table = (struct table){0};
}

static bool make_identities(struct latency_names *names, uint32_t most)
{
    names->identities = latency_operation_names_new(most, sizeof(struct latency_operation_name));
    names->pairs = calloc(most, sizeof *names->pairs);
    return names->identities != NULL && names->pairs != NULL && table_open(&names->pair_table, most);
}

/* Those that are there stay. */
static bool make_learned(struct latency_names *names, uint32_t most)
{
    if (names->learned == NULL) {
        names->learned = latency_operation_names_new(most, sizeof(struct latency_learned));
    }
    if (names->learned != NULL) {
        names->learned->most = most;
    }
    return names->learned != NULL;
}

static struct latency_learned *learned_at(const struct latency_names *names, uint32_t number)
{
    return (struct latency_learned *)(void *)names->learned->list[number];
}

/* There may be room now for what had none. */
static void forget_other(struct latency_names *names)
{
    for (size_t i = 0; i < names->slot_count; i++) {
        uint32_t *operation = &names->slots[i].operation;
        *operation = *operation == LATENCY_OTHER ? LATENCY_UNRESOLVED : *operation;
    }
    for (uint32_t i = 0; i < names->learned->count; i++) {
        struct latency_learned *learned = learned_at(names, i);
        learned->is_resolved = learned->operation != LATENCY_OTHER;
    }
}

bool latency_names_make(struct latency *latency)
{
    struct latency_names *names = &latency->names;
    uint32_t most = latency->settings.max_interfaces;
    size_t rules_size = latency->settings.rule_count * sizeof *names->rules;

    forget_identities(names);
    free(names->rules);
    names->rules = conf_alloc(NULL, rules_size + 1);
    memset(names->rules, 0xff, rules_size);
    if (names->slots == NULL) {
        make_slots(names);
    }
    if (!make_learned(names, most / LEARNED_PART + 1)) {
        latency_names_clear(names);
        return false;
    }
    names->unknown = LATENCY_UNRESOLVED;
    forget_other(names);
    if (latency->settings.by != LATENCY_BY_NONE && !make_identities(names, most)) {
        latency_names_clear(names);
        return false;
    }
    return true;
}

void latency_names_clear(struct latency_names *names)
{
    forget_identities(names);
    latency_operation_names_free(names->learned);
    free(names->slots);
    free(names->first_subcommands);
    free(names->rules);
    *names = (struct latency_names){0};
}

/* ---- from names to operations ---- */

/* What a request is measured under, clients not told apart. */
struct base {
    uint32_t tag; /* with which of the marks it has, and a number */
    char name[NAME_SIZE];
    bool free_text;
};

static void name_base(struct base *base, const char *name, const char *subcommand, bool is_blocking)
{
    snprintf(base->name, sizeof base->name, "%s%s%s%s", name, subcommand != NULL ? "|" : "",
             subcommand != NULL ? subcommand : "", is_blocking ? "|blocking" : "");
}

static uint32_t resolve(struct latency *latency, uint32_t *operation, const struct base *base)
{
    if (*operation == LATENCY_UNRESOLVED) {
        *operation = latency_share_operation_number(latency->share, slice_of(base->name), base->free_text);
    }
    return *operation;
}

static uint32_t learned_operation(struct latency *latency, const struct base *base)
{
    struct latency_learned *learned = learned_at(&latency->names, base->tag & LATENCY_TAG_NUMBER);

    if (!learned->is_resolved) {
        learned->operation = latency_share_operation_number(latency->share, slice_of(base->name), base->free_text);
        learned->is_resolved = true;
    }
    return learned->operation;
}

uint32_t latency_tag_operation(struct latency *latency, uint32_t tag)
{
    uint32_t number = tag & LATENCY_TAG_NUMBER;

    if ((tag & LATENCY_TAG_SLOT) == 0) {
        return number;
    }
    struct latency_slot *slot = &latency->names.slots[number];
    if (slot->operation == LATENCY_UNRESOLVED) {
        struct base base = {0};
        name_base(&base, slot->command->name, slot->subcommand, slot->is_blocking);
        return resolve(latency, &slot->operation, &base);
    }
    return slot->operation;
}

static uint32_t rule_operation(struct latency *latency, size_t rule, bool is_blocking)
{
    uint32_t *operation = &latency->names.rules[rule][is_blocking];

    if (*operation == LATENCY_UNRESOLVED) {
        struct base base = {0};
        name_base(&base, latency->settings.rules[rule].name, NULL, is_blocking);
        return resolve(latency, operation, &base);
    }
    return *operation;
}

/* ---- what a request says ---- */

static bool may_block(const struct command *command)
{
    return command != NULL &&
           (command->kind == COMMAND_BLOCKING || command->kind == COMMAND_BLOCKING_IF || command->kind == COMMAND_WAIT);
}

/* Whether it may wait for other clients; of one that is not here as a whole only its name can tell. */
static bool is_blocking(const struct policy_request *request)
{
    if (!may_block(request->command) || request->in_transaction) {
        return false;
    }
    if (request->command->kind != COMMAND_BLOCKING_IF) {
        return true;
    }
    return !request->partial && command_blocks(request->command, request->frame);
}

static uint32_t slot_of(const struct latency_names *names, const struct policy_request *request, bool blocks)
{
    size_t index = command_index(request->command);
    uint32_t first = names->first_subcommands[index], end = names->first_subcommands[index + 1];

    if (blocks) {
        return (uint32_t)(command_count() + index);
    }
    if (first < end) {
        struct slice subcommand = match_second_argument(request);
        for (uint32_t slot = first; slot < end; slot++) {
            if (word_is(subcommand, names->slots[slot].subcommand)) {
                return slot;
            }
        }
    }
    return (uint32_t)index;
}

/* Names of commands are the same in any case of letters. Returns the length. */
static size_t write_learned_name(struct slice name, char out[NAME_SIZE])
{
    size_t length = name.length < NAME_SIZE - 1 ? name.length : NAME_SIZE - 1;

    for (size_t i = 0; i < length; i++) {
        out[i] = (char)tolower((unsigned char)name.data[i]);
    }
    out[length] = '\0';
    return length;
}

bool latency_names_have_learned(const struct latency_names *names, struct slice name)
{
    char learned[NAME_SIZE], safe[LATENCY_NAME_MAX + 1];
    uint32_t number;

    if (names->learned == NULL || word_has_nul(name)) {
        return false;
    }
    size_t length = write_learned_name(name, learned);
    length = latency_operation_safe_name((struct slice){learned, length}, safe);
    return latency_operation_names_find(names->learned, (struct slice){safe, length}, &number) &&
           number != LATENCY_OTHER;
}

static void take_learned(struct latency *latency, const struct command *learned, struct base *base)
{
    size_t length = write_learned_name(slice_of(learned->name), base->name);
    uint32_t number = latency_operation_names_add(latency->names.learned, (struct slice){base->name, length});

    base->free_text = true;
    if (number == LATENCY_OTHER) {
        base->tag = LATENCY_TAG_OPERATION | LATENCY_OTHER;
        base->name[0] = '\0';
    } else {
        base->tag = LATENCY_TAG_LEARNED | number;
    }
}

static void take_unknown(struct latency *latency, struct base *base)
{
    name_base(base, UNKNOWN_NAME, NULL, false);
    base->tag = LATENCY_TAG_OPERATION | resolve(latency, &latency->names.unknown, base);
}

/* Only the tag is set, and the name where nothing else says it. */
static void find_base(struct latency *latency, const struct policy_request *request, bool blocks, struct base *base)
{
    const struct latency_settings *settings = &latency->settings;

    if (request->command == NULL && request->learned != NULL) {
        take_learned(latency, request->learned, base);
    }
    for (size_t i = 0; i < settings->rule_count; i++) {
        if (latency_rule_may(&settings->rules[i], request->command) && latency_rule_is(&settings->rules[i], request)) {
            base->tag = LATENCY_TAG_OPERATION | rule_operation(latency, i, blocks);
            base->name[0] = '\0';
            return;
        }
    }
    if (request->command == NULL && request->learned == NULL) {
        take_unknown(latency, base);
    } else if (request->command != NULL) {
        base->tag = LATENCY_TAG_SLOT | slot_of(&latency->names, request, blocks);
    }
}

/* ---- clients told apart ---- */

static const char *identity_text(const struct latency *latency, const struct policy_client *client)
{
    const char *text = latency->settings.by == LATENCY_BY_USER ? client->user : client->name;

    return text != NULL ? text : "";
}

void latency_client(void *instance, const struct policy_client *client, void **attachment)
{
    struct latency *latency = instance;
    uint32_t identity = 0;

    if (latency->settings.enabled && latency->settings.by != LATENCY_BY_NONE) {
        const char *text = identity_text(latency, client);
        identity = latency_operation_names_add(latency->names.identities, slice_of(text));
    }
    *attachment = (void *)(uintptr_t)identity;
}

/* The factor is odd and the halves are exchanged, so no two pairs have the same hash. */
static uint64_t hash_pair(uint32_t tag, uint32_t identity)
{
    uint64_t product = ((uint64_t)tag << 32 | identity) * UINT64_C(0x9e3779b97f4a7c15);

    return product << 32 | product >> 32;
}

/* The name of the base, if it was not needed so far. */
static const char *name_of(struct latency *latency, struct base *base)
{
    if (*base->name == '\0' && (base->tag & LATENCY_TAG_SLOT) != 0) {
        const struct latency_slot *slot = &latency->names.slots[base->tag & LATENCY_TAG_NUMBER];
        name_base(base, slot->command->name, slot->subcommand, slot->is_blocking);
    } else if (*base->name == '\0') {
        name_base(base, latency_share_operation(latency->share, base->tag & LATENCY_TAG_NUMBER)->named.name, NULL,
                  false);
    }
    return base->name;
}

static uint32_t pair_operation(struct latency *latency, struct base *base, const struct policy_request *request)
{
    struct latency_names *names = &latency->names;
    uint32_t identity = (uint32_t)(uintptr_t)*request->attachment;
    uint64_t hash = hash_pair(base->tag, identity);
    const struct table_node *known = table_first(&names->pair_table, hash);

    if (known != NULL) {
        return ((const struct latency_pair *)(const void *)known)->operation;
    }
    if (names->pair_table.count == latency->settings.max_interfaces) {
        return LATENCY_OTHER;
    }
    const char *text = identity == LATENCY_OTHER ? LATENCY_OTHER_NAME : identity_text(latency, request->client);
    char name[2 * NAME_SIZE];
    int length = snprintf(name, sizeof name, "%s@%s", name_of(latency, base), text);
    struct slice full = {name, (size_t)length < sizeof name ? (size_t)length : sizeof name - 1};
    struct latency_pair *pair = &names->pairs[names->pair_table.count];
    pair->operation = latency_share_operation_number(latency->share, full, true);
    (void)table_add(&names->pair_table, &pair->node, hash);
    return pair->operation;
}

/* ---- tags ---- */

/* The rule that takes all requests of the command, or which has to be asked about; POLICY_TAG_NONE: none. */
static uint32_t rule_tag(struct latency *latency, const struct command *command)
{
    const struct latency_settings *settings = &latency->settings;

    for (size_t i = 0; i < settings->rule_count; i++) {
        if (latency_rule_all_of(&settings->rules[i], command)) {
            return LATENCY_TAG_OPERATION | rule_operation(latency, i, false);
        }
        if (latency_rule_may(&settings->rules[i], command)) {
            return POLICY_TAG_ASK;
        }
    }
    return POLICY_TAG_NONE;
}

uint32_t latency_tag(void *instance, const struct command *command)
{
    struct latency *latency = instance;

    if (!latency->settings.enabled) {
        return POLICY_TAG_NONE;
    }
    if (command == NULL || latency->settings.by != LATENCY_BY_NONE || may_block(command)) {
        return POLICY_TAG_ASK;
    }
    uint32_t tag = rule_tag(latency, command);
    if (tag != POLICY_TAG_NONE) {
        return tag;
    }
    return has_subcommands(&latency->names, command) ? POLICY_TAG_ASK
                                                     : LATENCY_TAG_SLOT | (uint32_t)command_index(command);
}

uint32_t latency_measure(void *instance, const struct policy_request *request)
{
    struct latency *latency = instance;
    bool blocks = is_blocking(request);
    uint32_t mark = blocks ? LATENCY_TAG_BLOCKING : 0;
    struct base base;

    base.tag = 0;
    base.name[0] = '\0';
    base.free_text = false;
    find_base(latency, request, blocks, &base);
    if (latency->settings.by != LATENCY_BY_NONE) {
        return LATENCY_TAG_OPERATION | mark | pair_operation(latency, &base, request);
    }
    if ((base.tag & LATENCY_TAG_LEARNED) != 0) {
        return LATENCY_TAG_OPERATION | learned_operation(latency, &base);
    }
    return base.tag | mark;
}
