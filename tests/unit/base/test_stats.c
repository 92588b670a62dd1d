/* The table of counters: what STATS and HELP show of it. */
#include "base/stats.h"

#include <criterion/criterion.h>
#include <string.h>

static const struct stats_description *describe(int id)
{
    return stats_describe((enum stats_id)id);
}

Test(stats, rows_are_sound)
{
    for (int id = 0; id < STATS_COUNT; id++) {
        const struct stats_description *row = describe(id);
        size_t length = strlen(row->name);
        bool is_total = length > 6 && strcmp(&row->name[length - 6], "_total") == 0;
        bool goes_on = id > 0 && strcmp(describe(id - 1)->section, row->section) == 0;
        cr_assert(length > 0 && strspn(row->name, "abcdefghijklmnopqrstuvwxyz_") == length, "%s", row->name);
        cr_assert_eq(is_total, row->kind == STATS_COUNTER, "%s", row->name);
        cr_assert(strlen(row->help) >= 10 && strchr(row->help, '\n') == NULL, "%s: %s", row->name, row->help);
        for (int other = 0; other < id; other++) {
            cr_assert_str_neq(row->name, describe(other)->name);
            cr_assert_str_neq(row->help, describe(other)->help, "%s: help copied", row->name);
            cr_assert(goes_on || strcmp(describe(other)->section, row->section) != 0, "%s comes twice", row->section);
        }
    }
}
