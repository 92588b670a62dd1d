/* The command table against itself: names, kinds, keys, categories. */
#include "command_fixture.h"

#include <criterion/criterion.h>
#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- names ---- */

Test(command, table_is_sorted_and_each_row_found)
{
    cr_assert_gt(command_count(), 250);
    for (size_t i = 0; i < command_count(); i++) {
        const struct command *command = command_at(i);
        cr_expect_eq(command_index(command), i);
        cr_expect_eq(find(command->name), command, "%s", command->name);
        if (i > 0)
            cr_expect_lt(strcmp(command_at(i - 1)->name, command->name), 0, "%s", command->name);
        char upper[32] = "";
        for (size_t j = 0; command->name[j] != '\0'; j++) {
            upper[j] = (char)toupper((unsigned char)command->name[j]);
            cr_expect_eq(command->name[j], tolower((unsigned char)command->name[j]), "%s", command->name);
        }
        cr_expect_eq(find(upper), command, "%s", upper);
    }
}

/* ---- keys ---- */

struct visits {
    const struct line *line;
    uint32_t count;
    uint32_t last_index;
    char places[256]; /* of the keys, with a blank before each */
};

static bool note_visit(void *context, struct slice key, uint32_t argument_index)
{
    struct visits *visits = context;
    const char *expected = visits->line->argv[argument_index];
    cr_expect_eq(key.length, strlen(expected), "%s", expected);
    cr_expect_arr_eq(key.data, expected, key.length);
    cr_expect_gt(argument_index, visits->last_index, "not in order: %s", expected);
    visits->last_index = argument_index;
    size_t used = strlen(visits->places);
    snprintf(visits->places + used, sizeof(visits->places) - used, " %u", argument_index);
    visits->count++;
    return true;
}

static struct visits visit_line(const struct line *line)
{
    struct visits visits = {.line = line};
    const struct command *command = find(line->argv[0]);
    cr_assert_not_null(command, "%s", line->argv[0]);
    command_visit_keys(command, (struct slice){line->frame, line->frame_length}, note_visit, &visits);
    return visits;
}

static void expect_places(const char *text, const char *places)
{
    struct line line;
    split(&line, text);
    struct visits visits = visit_line(&line);
    cr_expect_str_eq(visits.places, places, "%s: keys at%s, not at%s", text, visits.places, places);
}

/* What COMMAND GETKEYS of Redis 7.0 does not know, or says otherwise than the command itself does. */
Test(command_keys, places)
{
    expect_places("MSETEX 2 k1 v1 k2 v2 EX 10", " 2 4");
    expect_places("MSETEX 3 k1 v1 k2 v2", "");
    expect_places("MSETEX 1 k1", "");
    expect_places("DELEX k IFEQ v", " 1");
    expect_places("XREADGROUP GROUP g c CLAIM 100 NOACK STREAMS a b > >", " 8 9");
    expect_places("HGETEX k EX 1 FIELDS 1 f", " 1");
    expect_places("ZRANK k m WITHSCORE", " 1");
    expect_places("SORT k STORE get STORE last", " 1 5");
    expect_places("SUBSCRIBE a b", "");
    expect_places("MSET k1 v1 k2", " 1 3");
    expect_places("POST / HTTP/1.1", "");
}

static void expect_to_block(const char *texts, bool blocks)
{
    char *copy = strdup(texts), *rest = copy;

    for (char *text = strsep(&rest, ";"); text != NULL; text = strsep(&rest, ";")) {
        struct line line;
        split(&line, text);
        const struct command *command = find(line.argv[0]);
        cr_expect_eq(command_blocks(command, (struct slice){line.frame, line.frame_length}), blocks, "%s", text);
    }
    free(copy);
}

/* Names and numbers of XREADGROUP's options may be the words that it looks for. */
Test(command_blocks, tells_options_from_their_values)
{
    expect_to_block(
        "BLPOP k 0;XREAD BLOCK 0 STREAMS s 0;xread count 5 block 0 streams s 0;"
        "XREADGROUP GROUP streams c BLOCK 0 STREAMS s >;XREADGROUP GROUP g streams NOACK BLOCK 0 STREAMS s >;"
        "XREADGROUP COUNT streams BLOCK 0 GROUP g c STREAMS s >;XREADGROUP GROUP g c CLAIM 100 BLOCK 0 STREAMS s >;"
        "XREADGROUP GROUP g c LATER BLOCK 0 STREAMS s >;XREADGROUP GROUP g c BLOCK",
        true);
    expect_to_block("GET block;WAIT 1 0;XREAD STREAMS s 0;XREAD STREAMS block 0;XREADGROUP GROUP block c STREAMS s >;"
                    "XREADGROUP GROUP g block COUNT block STREAMS s >;XREADGROUP GROUP g;XREAD",
                    false);
}
