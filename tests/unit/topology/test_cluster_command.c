/* What each command does before a cluster: the table is sound, and says of every command what was decided. */
#include "base/text.h"
#include "topology/cluster_command.h"

#include "../command/command_fixture.h"

#include <criterion/criterion.h>
#include <stdio.h>
#include <stdlib.h>

static const struct cluster_plan *plan_of(const char *text)
{
    struct line line;

    split(&line, text);
    return cluster_command_plan(find(line.argv[0]), (struct slice){line.frame, line.frame_length});
}

static void expect_plan(const char *text, enum cluster_where where, enum cluster_merge merge)
{
    const struct cluster_plan *plan = plan_of(text);

    cr_expect_eq(plan->where, where, "%s: %d", text, plan->where);
    cr_expect_eq(plan->merge, merge, "%s: %d", text, plan->merge);
}

static void check_row(void *context, const struct cluster_plan *plan)
{
    const struct cluster_plan **before = context;

    cr_expect_not_null(find(plan->command), "%s is no command", plan->command);
    if (*before != NULL) {
        int order = strcmp((*before)->command, plan->command);
        cr_expect(order < 0 || (order == 0 && strcmp((*before)->subcommand, plan->subcommand) < 0), "%s %s",
                  plan->command, plan->subcommand);
    }
    cr_expect_eq(plan->merge == CLUSTER_MERGE_NONE, plan->where != CLUSTER_ALL, "%s", plan->command);
    cr_expect(plan->where != CLUSTER_REFUSED || plan->text[0] != '\0', "%s is refused without a reason", plan->command);
    cr_expect_null(strchr(plan->text, '|'), "%s", plan->command);
    *before = plan;
}

Test(cluster_command, rows_are_sound)
{
    const struct cluster_plan *before = NULL;

    cluster_command_visit(check_row, &before);
    cr_assert_not_null(before);
}

Test(cluster_command, subcommands_have_plans_of_their_own)
{
    expect_plan("CONFIG SET maxmemory 1", CLUSTER_ALL, CLUSTER_MERGE_AGREED);
    expect_plan("config sEt maxmemory 1", CLUSTER_ALL, CLUSTER_MERGE_AGREED);
    expect_plan("CONFIG GET maxmemory", CLUSTER_KEYS, CLUSTER_MERGE_NONE);
    expect_plan("CONFIG", CLUSTER_KEYS, CLUSTER_MERGE_NONE);
    expect_plan("CLUSTER SLOTS", CLUSTER_HERE, CLUSTER_MERGE_NONE);
    expect_plan("CLUSTER RESET", CLUSTER_REFUSED, CLUSTER_MERGE_NONE);
    expect_plan("CLUSTER NEWER", CLUSTER_REFUSED, CLUSTER_MERGE_NONE);
    expect_plan("CLUSTER", CLUSTER_REFUSED, CLUSTER_MERGE_NONE);
    expect_plan("SCRIPT LOAD x", CLUSTER_ALL, CLUSTER_MERGE_AGREED);
    expect_plan("CLIENT SETNAME x", CLUSTER_SESSION, CLUSTER_MERGE_NONE);
    expect_plan("MEMORY USAGE key", CLUSTER_KEYS, CLUSTER_MERGE_NONE);
}

Test(cluster_command, commands_that_are_all_alike)
{
    expect_plan("GET k", CLUSTER_KEYS, CLUSTER_MERGE_NONE);
    expect_plan("PING", CLUSTER_KEYS, CLUSTER_MERGE_NONE);
    expect_plan("DBSIZE", CLUSTER_ALL, CLUSTER_MERGE_SUM);
    expect_plan("KEYS *", CLUSTER_ALL, CLUSTER_MERGE_LIST);
    expect_plan("SCAN 0", CLUSTER_CURSOR, CLUSTER_MERGE_NONE);
    expect_plan("SCAN \"\"", CLUSTER_CURSOR, CLUSTER_MERGE_NONE);
    expect_plan("SCAN", CLUSTER_KEYS, CLUSTER_MERGE_NONE);
    expect_plan("WAIT 1 0", CLUSTER_ALL, CLUSTER_MERGE_LEAST);
    expect_plan("WAITAOF 1 1 0", CLUSTER_ALL, CLUSTER_MERGE_EACH);
    expect_plan("SSCAN k 0", CLUSTER_KEYS, CLUSTER_MERGE_NONE);
    expect_plan("FLUSHALL", CLUSTER_ALL, CLUSTER_MERGE_AGREED);
    expect_plan("RANDOMKEY", CLUSTER_ALL, CLUSTER_MERGE_CHOICE);
    expect_plan("MULTI", CLUSTER_SESSION, CLUSTER_MERGE_NONE);
    cr_assert(cluster_command_is_plain(find("get")));
    cr_assert(cluster_command_is_plain(find("ping")));
    cr_assert_not(cluster_command_is_plain(find("scan")));
    cr_assert_not(cluster_command_is_plain(find("config")));
}

/* Whoever adds a command without keys has to decide what it does before a cluster. */
Test(cluster_command, every_command_without_keys_was_decided)
{
    static const char *const home[] = {"command", "echo", "lolwut", "ping",  "pfselftest",
                                       "publish", "role", "time",   "object"};
    static const char *const no_matter[] = {"host:", "post"}; /* Redis closes on them, and so does Headgate */

    for (size_t i = 0; i < command_count(); i++) {
        const struct command *command = command_at(i);
        bool has_keys = command->first_key != 0 || command->keys != COMMAND_KEYS_RANGE;
        bool decided = has_keys || !cluster_command_is_plain(command);
        for (size_t j = 0; j < COUNT_OF(home); j++)
            decided = decided || strcmp(command->name, home[j]) == 0;
        for (size_t j = 0; j < COUNT_OF(no_matter); j++)
            decided = decided || strcmp(command->name, no_matter[j]) == 0;
        cr_expect(decided, "%s", command->name);
    }
}

enum { NO_KEYS = -1, SEVERAL_SLOTS = -2 };

static bool note_slot(void *context, struct slice key, uint32_t argument_index)
{
    int *found = context, slot = cluster_slot_of(key);

    (void)argument_index;
    *found = *found == NO_KEYS || *found == slot ? slot : SEVERAL_SLOTS;
    return *found != SEVERAL_SLOTS;
}

/* The slot of all its keys and shard channels. */
static int slot_of(const char *text)
{
    struct line line;
    int found = NO_KEYS;

    split(&line, text);
    command_visit_slotted(find(line.argv[0]), (struct slice){line.frame, line.frame_length}, note_slot, &found);
    return found;
}

Test(cluster_command, slots_of_keys)
{
    cr_assert_eq(slot_of("GET foo"), 12182);
    cr_assert_eq(slot_of("MGET {foo}a {foo}b"), 12182);
    cr_assert_eq(slot_of("MGET foo bar"), SEVERAL_SLOTS);
    cr_assert_eq(slot_of("MSET foo bar"), 12182);
    cr_assert_eq(slot_of("EVAL x 2 {foo}a foo bar"), 12182);
    cr_assert_eq(slot_of("EVAL x 0 foo bar"), NO_KEYS);
    cr_assert_eq(slot_of("XREAD STREAMS foo {foo} 0 0"), 12182);
    cr_assert_eq(slot_of("ZUNIONSTORE foo 2 {foo}a bar"), SEVERAL_SLOTS);
    cr_assert_eq(slot_of("PING foo"), NO_KEYS);
    cr_assert_eq(slot_of("OBJECT ENCODING foo"), 12182);
    cr_assert_eq(slot_of("SPUBLISH foo bar"), 12182);
    cr_assert_eq(slot_of("SSUBSCRIBE foo {foo}a"), 12182);
    cr_assert_eq(slot_of("SSUBSCRIBE foo bar"), SEVERAL_SLOTS);
    cr_assert_eq(slot_of("SUNSUBSCRIBE"), NO_KEYS);
    cr_assert_eq(slot_of("SUBSCRIBE foo bar"), NO_KEYS);
}

static bool argument_slot(const char *text, uint16_t *slot)
{
    struct line line;

    split(&line, text);
    return cluster_command_argument_slot(plan_of(text), (struct slice){line.frame, line.frame_length}, slot);
}

Test(cluster_command, slots_that_are_arguments)
{
    uint16_t slot;

    cr_assert(argument_slot("CLUSTER COUNTKEYSINSLOT 16383", &slot) && slot == 16383);
    cr_assert(argument_slot("CLUSTER GETKEYSINSLOT 7 10", &slot) && slot == 7);
    cr_assert_not(argument_slot("CLUSTER GETKEYSINSLOT 16384 10", &slot));
    cr_assert_not(argument_slot("CLUSTER GETKEYSINSLOT x 10", &slot));
    cr_assert_not(argument_slot("CLUSTER COUNTKEYSINSLOT", &slot));
    cr_assert(argument_slot("DEBUG OBJECT foo", &slot) && slot == 12182);
    cr_assert_not(argument_slot("DEBUG OBJECT", &slot));
}

static void check_refusal(void *context, const struct cluster_plan *plan)
{
    char text[256];
    size_t length = cluster_command_refusal(plan, text, sizeof(text));

    (void)context;
    cr_assert_lt(length, sizeof(text), "%s", plan->command);
    cr_assert_eq(memcmp(text, "-ERR ", 5), 0);
    cr_assert_str_eq(strchr(text, '\r'), "\r\n");
}

Test(cluster_command, refusals_are_lines)
{
    char text[256];

    cluster_command_visit(check_refusal, NULL);
    cluster_command_refusal(plan_of("SHUTDOWN"), text, sizeof(text));
    cr_assert_str_eq(text, "-ERR SHUTDOWN is refused here, before a Redis Cluster: it ends one node; say it to that "
                           "node\r\n");
}

/* ---- the page ---- */

/* All of it, to be freed. */
static void read_file(const char *path, char **text)
{
    FILE *file = fopen(path, "r");
    size_t size = 0;

    *text = NULL;
    cr_assert_not_null(file, "%s", path);
    cr_assert_gt(getdelim(text, &size, '\0', file), 0);
    fclose(file);
}

Test(cluster_command, documentation_holds_the_table)
{
    static const char start[] = "<!-- commands: printed from the table of plans -->\n";
    struct text_stream out;
    char *page;

    read_file(HEADGATE_SOURCE_DIR "/docs/topology.md", &page);
    cr_assert(text_open(&out));
    cluster_command_print_markdown(out.out);
    cr_assert(text_close(&out));
    char *from = strstr(page, start);
    cr_assert_not_null(from);
    from += strlen(start);
    char *to = strstr(from, "<!-- commands: end -->\n");
    cr_assert_not_null(to);
    cr_assert(slice_equal((struct slice){from, (size_t)(to - from)}, (struct slice){out.bytes, out.length}));
    text_free(&out);
    free(page);
}
