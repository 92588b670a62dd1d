#include "match/match.h"

#include "base/subnet.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static void *zeroed(size_t size)
{
    void *memory = conf_alloc(NULL, size);

    memset(memory, 0, size);
    return memory;
}

/* ---- commands ---- */

struct subcommand_word {
    size_t command;
    bool included;
    char *name; /* NULL: void, as a later word speaks of the whole command */
};

#define ALL_COMMANDS UINT32_MAX
/* Commands that the table lacks have no others (server_info.c). */
#define LEARNED_CATEGORIES (CATEGORY_READ | CATEGORY_WRITE | CATEGORY_DANGEROUS | CATEGORY_FAST | CATEGORY_SLOW)

/* A word that also means commands of which only Redis has told. */
struct category_mark {
    uint32_t category; /* ALL_COMMANDS: those of none, too */
    bool included;
};

struct match_commands {
    size_t subcommand_count;
    struct subcommand_word *subcommands;
    size_t category_count;
    struct category_mark *categories; /* in their order: later words override earlier ones */
    /* By command_index(), the last for commands that Headgate does not know: bits of enum command_mark. */
    uint8_t marks[];
};

enum command_mark {
    MARK_INCLUDED = 1,
    MARK_SUBCOMMANDS = 2 /* there are words on its subcommands */
};

static size_t index_of(const struct command *command)
{
    return command != NULL ? command_index(command) : command_count();
}

static void set_command(struct match_commands *commands, size_t index, bool included)
{
    commands->marks[index] = included ? MARK_INCLUDED : 0;
    for (size_t i = 0; i < commands->subcommand_count; i++) {
        if (commands->subcommands[i].command == index) {
            free(commands->subcommands[i].name);
            commands->subcommands[i].name = NULL;
        }
    }
}

static void add_subcommand(struct match_commands *commands, const struct command *command, struct slice name,
                           bool included)
{
    size_t count = commands->subcommand_count + 1;

    commands->subcommands = conf_alloc(commands->subcommands, count * sizeof *commands->subcommands);
    commands->subcommands[commands->subcommand_count++] = (struct subcommand_word){
        .command = command_index(command),
        .included = included,
        .name = conf_format("%.*s", (int)name.length, name.data),
    };
    commands->marks[command_index(command)] |= MARK_SUBCOMMANDS;
}

static void add_category(struct match_commands *commands, uint32_t category, bool included)
{
    size_t count = commands->category_count + 1;

    commands->categories = conf_alloc(commands->categories, count * sizeof *commands->categories);
    commands->categories[commands->category_count++] = (struct category_mark){category, included};
}

/* What a category means for the subcommands of a command. */
struct category_word {
    struct match_commands *before; /* the verdicts without it */
    struct match_commands *commands;
    const struct command *command;
    uint32_t category;
};

/* A subcommand that is not of the category stays what it was: CLIENT is @dangerous for CLIENT KILL, not for SETNAME. */
static void keep_verdict(void *context, const char *name, uint32_t categories)
{
    const struct category_word *word = context;
    struct slice subcommand = slice_of(name);

    if ((categories & word->category) == 0) {
        add_subcommand(word->commands, word->command, subcommand,
                       match_commands_is(word->before, word->command, subcommand));
    }
}

static struct match_commands *copy_commands(const struct match_commands *from)
{
    size_t size = sizeof *from + command_count() + 1;
    struct match_commands *copy = conf_alloc(NULL, size);

    memcpy(copy, from, size);
    copy->subcommands = NULL;
    copy->subcommand_count = 0;
    copy->categories = NULL;
    copy->category_count = 0;
    for (size_t i = 0; i < from->subcommand_count; i++) {
        const struct subcommand_word *word = &from->subcommands[i];
        if (word->name != NULL) {
            add_subcommand(copy, command_at(word->command), slice_of(word->name), word->included);
        }
    }
    return copy;
}

static bool set_category(struct match_commands *commands, struct slice word, bool included,
                         char problem[CONF_PROBLEM_MAX])
{
    uint32_t category = command_category_find((struct slice){word.data + 1, word.length - 1});

    if (category == 0) {
        return conf_fault_word(problem, word, "is no category of commands");
    }
    struct category_word context = {.before = copy_commands(commands), .commands = commands, .category = category};
    for (size_t i = 0; i < command_count(); i++) {
        if ((command_at(i)->categories & category) != 0) {
            context.command = command_at(i);
            set_command(commands, i, included);
            command_visit_subcommands(context.command, keep_verdict, &context);
        }
    }
    match_commands_free(context.before);
    if ((category & LEARNED_CATEGORIES) != 0) {
        add_category(commands, category, included);
    }
    return true;
}

struct subcommand_search {
    struct slice name;
    bool has_any; /* the table has subcommands of the command, … */
    bool found;   /* … of which the name is one */
};

static void look_at_subcommand(void *context, const char *name, uint32_t categories)
{
    struct subcommand_search *search = context;

    (void)categories;
    search->has_any = true;
    search->found = search->found || word_is(search->name, name);
}

/* Whether a request can name such a subcommand, as far as is known. Nobody lists those of DEBUG. */
static bool may_have_subcommand(const struct command *command, struct slice name)
{
    struct subcommand_search search = {.name = name};

    command_visit_subcommands(command, look_at_subcommand, &search);
    return search.found ||
           (!search.has_any && (command->kind == COMMAND_CONTAINER || strcmp(command->name, "debug") == 0));
}

static bool set_subcommand(struct match_commands *commands, struct slice word, size_t bar, bool included,
                           char problem[CONF_PROBLEM_MAX])
{
    const struct command *command = command_find((struct slice){word.data, bar});

    if (command == NULL) {
        return conf_fault_word(problem, word, "is no command that Headgate knows");
    }
    if (bar + 1 == word.length) {
        return conf_fault_word(problem, word, "names no subcommand");
    }
    struct slice name = {word.data + bar + 1, word.length - bar - 1};
    if (!may_have_subcommand(command, name)) {
        return conf_fault_word(problem, word, "is no subcommand that Headgate knows");
    }
    add_subcommand(commands, command, name, included);
    return true;
}

static bool take_command_word(struct match_commands *commands, struct slice word, char problem[CONF_PROBLEM_MAX])
{
    bool included = word.data[0] != '!';
    struct slice name = {word.data + !included, word.length - !included};
    const char *bar = memchr(name.data, '|', name.length);

    if (name.length == 0) {
        return conf_fault_word(problem, word, "excludes nothing");
    }
    if (name.data[0] == '@') {
        return set_category(commands, name, included, problem);
    }
    if (bar != NULL) {
        return set_subcommand(commands, name, (size_t)(bar - name.data), included, problem);
    }
    if (slice_is(name, "*")) {
        for (size_t i = 0; i <= command_count(); i++) {
            set_command(commands, i, included);
        }
        add_category(commands, ALL_COMMANDS, included);
        return true;
    }
    const struct command *command = command_find(name);
    if (command == NULL) {
        return conf_fault_word(problem, name, "is no command that Headgate knows");
    }
    set_command(commands, command_index(command), included);
    return true;
}

static bool may_match_any(const struct match_commands *commands)
{
    for (size_t i = 0; i <= command_count(); i++) {
        if (match_commands_may(commands, i < command_count() ? command_at(i) : NULL)) {
            return true;
        }
    }
    return false;
}

struct match_commands *match_commands_compile(const char *text, char problem[CONF_PROBLEM_MAX])
{
    struct match_commands *commands = zeroed(sizeof *commands + command_count() + 1);
    struct slice word;
    bool sound = words_check(text, problem);

    while (sound && words_next(&text, &word)) {
        sound = take_command_word(commands, word, problem);
    }
    if (sound && !may_match_any(commands)) {
        snprintf(problem, CONF_PROBLEM_MAX, "matches no command");
        sound = false;
    }
    if (!sound) {
        match_commands_free(commands);
        return NULL;
    }
    return commands;
}

void match_commands_free(struct match_commands *commands)
{
    if (commands == NULL) {
        return;
    }
    for (size_t i = 0; i < commands->subcommand_count; i++) {
        free(commands->subcommands[i].name);
    }
    free(commands->subcommands);
    free(commands->categories);
    free(commands);
}

/* Whether the words mean a command of these categories that is not in the table. One that may be no read is meant by
 * @read all the same, but not taken away by it: a rule that lets reads pass is not to let it pass. */
static bool means_categories(const struct match_commands *commands, uint32_t categories)
{
    uint32_t certain = (categories & CATEGORY_GUESSED) != 0 ? categories & ~(uint32_t)CATEGORY_READ : categories;
    bool is = false;

    for (size_t i = 0; i < commands->category_count; i++) {
        const struct category_mark *word = &commands->categories[i];
        uint32_t its = word->included ? categories : certain;
        is = word->category == ALL_COMMANDS || (word->category & its) != 0 ? word->included : is;
    }
    return is;
}

/* Whether a later word takes away all that this one adds. */
static bool is_taken_away(const struct match_commands *commands, size_t place)
{
    uint32_t category = commands->categories[place].category;
    bool is = false;

    for (size_t i = place + 1; i < commands->category_count && !is; i++) {
        const struct category_mark *word = &commands->categories[i];
        is = !word->included && (word->category == ALL_COMMANDS || word->category == category);
    }
    return is;
}

/* Any command that is not in the table. */
static bool may_mean_learned(const struct match_commands *commands)
{
    bool may = false;

    for (size_t i = 0; i < commands->category_count && !may; i++) {
        may = commands->categories[i].included && !is_taken_away(commands, i);
    }
    return may;
}

bool match_commands_may(const struct match_commands *commands, const struct command *command)
{
    uint8_t marks = commands->marks[index_of(command)];
    bool may = (marks & MARK_INCLUDED) != 0;

    if (command == NULL) {
        return may || may_mean_learned(commands);
    }
    if ((marks & MARK_SUBCOMMANDS) == 0) {
        return may;
    }
    for (size_t i = 0; i < commands->subcommand_count; i++) {
        const struct subcommand_word *word = &commands->subcommands[i];
        may = may || (word->name != NULL && word->included && word->command == index_of(command));
    }
    return may;
}

bool match_commands_all_of(const struct match_commands *commands, const struct command *command)
{
    bool is_all = commands->marks[index_of(command)] == MARK_INCLUDED;

    return command != NULL ? is_all : is_all && commands->category_count == 1;
}

bool match_commands_is(const struct match_commands *commands, const struct command *command, struct slice subcommand)
{
    uint8_t marks = commands->marks[index_of(command)];
    bool is = (marks & MARK_INCLUDED) != 0;

    if ((marks & MARK_SUBCOMMANDS) == 0) {
        return is;
    }
    for (size_t i = 0; i < commands->subcommand_count; i++) {
        const struct subcommand_word *word = &commands->subcommands[i];
        if (word->name != NULL && word->command == index_of(command) && word_is(subcommand, word->name)) {
            is = word->included;
        }
    }
    return is;
}

bool match_commands_have_keys(const struct match_commands *commands)
{
    for (size_t i = 0; i < command_count(); i++) {
        const struct command *command = command_at(i);
        bool has_keys = command->keys != COMMAND_KEYS_RANGE || command->first_key != 0;
        if (has_keys && (command->categories & CATEGORY_PUBSUB) == 0 && match_commands_may(commands, command)) {
            return true;
        }
    }
    return false;
}

struct slice match_second_argument(const struct policy_request *request)
{
    const struct resp_argument *second = &request->framed->arguments[1];

    if (resp_command_arguments_seen(request->framed) < 2) {
        return (struct slice){0};
    }
    return (struct slice){request->frame.data + second->offset, (size_t)second->length};
}

bool match_commands_request(const struct match_commands *commands, const struct policy_request *request)
{
    uint8_t marks = commands->marks[index_of(request->command)];

    if (request->command == NULL && request->learned != NULL) {
        return means_categories(commands, request->learned->categories);
    }
    if ((marks & MARK_SUBCOMMANDS) == 0) {
        return (marks & MARK_INCLUDED) != 0;
    }
    return match_commands_is(commands, request->command, match_second_argument(request));
}

/* ---- sizes ---- */

bool match_request_bytes(const struct policy_request *request, uint64_t *bytes)
{
    return resp_command_foresee(request->framed, bytes);
}

/* ---- clients ---- */

enum client_trait { CLIENT_IP, CLIENT_USER, CLIENT_NAME, CLIENT_IDENTITY };

struct client_word {
    enum client_trait trait;
    struct subnet subnet; /* of ip */
    char *glob;           /* of user, name and identity */
};

struct match_clients {
    size_t count;
    struct client_word words[];
};

static bool take_client_word(struct client_word *client, struct slice word, char problem[CONF_PROBLEM_MAX])
{
    static const char *const traits[] = {
        [CLIENT_IP] = "ip:", [CLIENT_USER] = "user:", [CLIENT_NAME] = "name:", [CLIENT_IDENTITY] = "identity:"};

    for (size_t i = 0; i < sizeof traits / sizeof traits[0]; i++) {
        size_t length = strlen(traits[i]);
        if (word.length <= length || memcmp(word.data, traits[i], length) != 0) {
            continue;
        }
        struct slice value = {word.data + length, word.length - length};
        client->trait = (enum client_trait)i;
        client->glob = conf_format("%.*s", (int)value.length, value.data);
        if (client->trait == CLIENT_IP) {
            return subnet_parse(&client->subnet, value) ||
                   conf_fault_word(problem, word, "holds no IP address or network");
        }
        return words_check_glob(value, problem);
    }
    return conf_fault_word(problem, word,
                           "is none of ip:ADDRESS, ip:ADDRESS/BITS, user:GLOB, name:GLOB, identity:GLOB");
}

struct match_clients *match_clients_compile(const char *text, char problem[CONF_PROBLEM_MAX])
{
    struct match_clients *clients = zeroed(sizeof *clients + words_count(text) * sizeof clients->words[0]);
    struct slice word;
    bool sound = words_check(text, problem);

    while (sound && words_next(&text, &word)) {
        sound = take_client_word(&clients->words[clients->count++], word, problem);
    }
    if (!sound) {
        match_clients_free(clients);
        return NULL;
    }
    return clients;
}

void match_clients_free(struct match_clients *clients)
{
    if (clients == NULL) {
        return;
    }
    for (size_t i = 0; i < clients->count; i++) {
        free(clients->words[i].glob);
    }
    free(clients);
}

bool match_clients_all(const struct match_clients *clients)
{
    for (size_t i = 0; i < clients->count; i++) {
        const struct client_word *word = &clients->words[i];
        bool is_all = word->trait == CLIENT_IP
                          ? subnet_is_all(&word->subnet)
                          : word->trait != CLIENT_IDENTITY && strspn(word->glob, "*") == strlen(word->glob);
        if (is_all) {
            return true;
        }
    }
    return false;
}

/* Who has no identity is none of identity:*. */
static bool word_is_client(const struct client_word *word, const struct policy_client *client)
{
    switch (word->trait) {
    case CLIENT_IP:
        return subnet_has(&word->subnet, client->address);
    case CLIENT_USER:
        return glob_match(word->glob, slice_of(client->user));
    case CLIENT_NAME:
        return glob_match(word->glob, slice_of(client->name));
    case CLIENT_IDENTITY:
        return *client->identity_name != '\0' && glob_match(word->glob, slice_of(client->identity_name));
    }
    return false;
}

bool match_clients_is(const struct match_clients *clients, const struct policy_client *client)
{
    for (size_t i = 0; i < clients->count; i++) {
        if (word_is_client(&clients->words[i], client)) {
            return true;
        }
    }
    return false;
}

bool match_names_addresses(const char *text)
{
    struct slice word;

    while (words_next(&text, &word)) {
        if (word.length > 3 && memcmp(word.data, "ip:", 3) == 0) {
            return true;
        }
    }
    return false;
}

static bool is_known(struct slice name, const struct conf_rule *all)
{
    while (all != NULL && !(strcmp(all->section->name, "identity") == 0 && slice_is(name, all->name))) {
        all = all->next;
    }
    return all != NULL;
}

bool match_clients_warn(const char *text, const struct conf_rule *all, char problem[CONF_PROBLEM_MAX])
{
    static const char prefix[] = "identity:";
    struct slice word;

    while (words_next(&text, &word)) {
        struct slice name = {word.data + sizeof prefix - 1, word.length - (sizeof prefix - 1)};
        if (slice_begins(word, prefix) && strcspn(name.data, "*?[\\") >= name.length && !is_known(name, all)) {
            return !conf_fault_word(problem, word, "is no identity of the file, so nobody is meant");
        }
    }
    return false;
}

/* ---- prefixes ---- */

bool match_prefix_check(const char *prefix, char problem[CONF_PROBLEM_MAX])
{
    for (const char *at = prefix; *at != '\0'; at++) {
        if (*at <= ' ' || *at > '~') {
            snprintf(problem, CONF_PROBLEM_MAX, "has a blank, a control character or what is not ASCII in it");
            return false;
        }
    }
    return true;
}
