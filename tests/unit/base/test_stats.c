/* The table of counters: what STATS and HELP show of it. */
#include "base/stats.h"

#include <criterion/criterion.h>
#include <ctype.h>
#include <string.h>

static const struct stats_description *describe(int id)
{
    return stats_describe((enum stats_id)id);
}

static bool ends_with(const char *text, const char *end)
{
    size_t length = strlen(text);

    return length >= strlen(end) && strcmp(text + length - strlen(end), end) == 0;
}

Test(stats, names_are_unique)
{
    for (int id = 0; id < STATS_COUNT; id++) {
        for (int other = 0; other < id; other++) {
            cr_assert_str_neq(describe(id)->name, describe(other)->name);
            cr_assert_str_neq(describe(id)->help, describe(other)->help, "%s: help copied", describe(id)->name);
        }
    }
}

Test(stats, names_are_plain_words)
{
    for (int id = 0; id < STATS_COUNT; id++) {
        const char *name = describe(id)->name;
        cr_assert_gt(strlen(name), 0);
        for (const char *letter = name; *letter != '\0'; letter++) {
            cr_assert(islower((unsigned char)*letter) || *letter == '_', "%s", name);
        }
    }
}

Test(stats, counters_say_so_in_their_names)
{
    for (int id = 0; id < STATS_COUNT; id++) {
        bool total = ends_with(describe(id)->name, "_total");
        cr_assert_eq(total, describe(id)->kind == STATS_COUNTER, "%s", describe(id)->name);
    }
}

Test(stats, each_has_help_on_one_line)
{
    for (int id = 0; id < STATS_COUNT; id++) {
        const struct stats_description *description = describe(id);
        cr_assert_geq(strlen(description->help), 10, "%s: \"%s\" is no help", description->name, description->help);
        cr_assert_null(strchr(description->help, '\n'));
        cr_assert_str_neq(description->help, description->name);
    }
}

Test(stats, sections_are_capitalised_and_in_one_piece)
{
    for (int id = 0; id < STATS_COUNT; id++) {
        const char *section = describe(id)->section;
        cr_assert(isupper((unsigned char)section[0]), "%s", section);
        if (id == 0 || strcmp(describe(id - 1)->section, section) == 0) {
            continue;
        }
        for (int other = 0; other < id; other++) {
            cr_assert_str_neq(describe(other)->section, section, "%s comes twice", section);
        }
    }
}

Test(stats, values_are_kept_apart)
{
    struct stats stats = {0};

    for (int id = 0; id < STATS_COUNT; id++) {
        stats_add(&stats, (enum stats_id)id, (uint64_t)id + 1);
        stats_add(&stats, (enum stats_id)id, 1000);
    }
    for (int id = 0; id < STATS_COUNT; id++) {
        cr_assert_eq(stats_get(&stats, (enum stats_id)id), (uint64_t)id + 1001);
    }
    stats_subtract(&stats, STATS_CLIENTS_CONNECTED, 1001);
    cr_assert_eq(stats_get(&stats, STATS_CLIENTS_CONNECTED), 0);
    stats_set(&stats, STATS_CLIENTS_CONNECTED, 5);
    cr_assert_eq(stats_get(&stats, STATS_CLIENTS_CONNECTED), 5);
}
