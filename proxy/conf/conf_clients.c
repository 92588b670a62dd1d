/* Options that name clients, of whatever section: what they may say depends on the sections that say who clients are.
 */
#include "conf/conf_private.h"

#include <stdlib.h>

static const struct conf_section *judge_of(const struct conf_reading *reading)
{
    const struct conf_section *const *section = reading->sections;

    while (section != NULL && *section != NULL && (*section)->check_clients == NULL) {
        section++;
    }
    return section != NULL ? *section : NULL;
}

static void check_option(struct conf_reading *reading, const struct conf_part *part, size_t number,
                         const struct conf_section *judge)
{
    const struct conf_option *option = &part->section->options[number];
    char *text = conf_value_text(option, part->values);
    char problem[CONF_PROBLEM_MAX];
    const char *expected = "";

    if (!judge->check_clients(text, reading->conf->rules, problem, &expected)) {
        int line = part->sightings[number].line;
        conf_fault_option(reading, part, line > 0 ? line : part->line, option->name, text, problem, expected);
    }
    free(text);
}

void conf_check_clients(struct conf_reading *reading)
{
    const struct conf_section *judge = judge_of(reading);

    for (const struct conf_part *part = reading->parts; judge != NULL && part != NULL; part = part->next) {
        for (size_t i = 0; i < part->section->option_count; i++) {
            bool is_inherited = part->section == &conf_section_server && part->sightings[i].line == 0;
            if (part->section->options[i].names_clients && !is_inherited) {
                check_option(reading, part, i, judge);
            }
        }
    }
}
