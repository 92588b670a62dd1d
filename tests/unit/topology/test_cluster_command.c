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
