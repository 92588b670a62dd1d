/*
 * A URL may hold user, password and database of its server. They go to the options that are there for them, so that
 * they stand in one place only, which a reload takes and which hides secrets: of the option NAME to NAME_user,
 * NAME_password and database in the same section.
 */
#include "conf/conf_private.h"

#include <stdlib.h>
#include <string.h>

/* The address whose parts are taken. */
struct taking {
    struct conf_reading *reading;
    struct conf_part *part;
    const struct conf_option *option;
    struct conf_sighting *sighting;
    struct conf_address *address;
};

static void *field_of(const struct taking *taking, const struct conf_option *option)
{
    return (char *)taking->part->values + option->offset;
}

static void fault(const struct taking *taking, const char *what, const char *expected)
{
    char *value = conf_value_shown(taking->option, taking->part->values);

    conf_fault_option(taking->reading, taking->part, taking->sighting->line, taking->option->name, value, what,
                      expected);
    taking->sighting->faulty = true;
    free(value);
}

/* The option whose name is that of the address with the ending; NULL if the section has none. */
static const struct conf_option *beside(const struct taking *taking, const char *ending)
{
    char *name = conf_format("%s%s", taking->option->name, ending);
    const struct conf_option *option = conf_section_option(taking->part->section, name);

    free(name);
    return option;
}

static bool is_in_file(const struct taking *taking, const struct conf_option *option)
{
    return option != NULL && taking->part->sightings[option - taking->part->section->options].line > 0;
}

/* Whether one of the options that give a password beside the address stands in the file. */
static bool has_password_beside(const struct taking *taking)
{
    const struct conf_option *option = beside(taking, "_password");

    return (is_in_file(taking, option) && **(char **)field_of(taking, option) != '\0') ||
           is_in_file(taking, beside(taking, "_password_file"));
}

/* Moves text to the option with that ending; what: the user or the password. */
static void take_text(const struct taking *taking, char **text, const char *ending, const char *what)
{
    const struct conf_option *option = *text != NULL ? beside(taking, ending) : NULL;
    char **field = option != NULL ? field_of(taking, option) : NULL;
    char problem[CONF_PROBLEM_MAX];

    if (*text == NULL) {
        return;
    }
    if (field == NULL) {
        snprintf(problem, sizeof problem, "has a %s", what);
        fault(taking, problem, "an address alone");
    } else if (**field != '\0' && strcmp(*field, *text) != 0) {
        snprintf(problem, sizeof problem, "has another %s than %s", what, option->name);
        fault(taking, problem, "it in one place");
    } else if (strlen(*text) > (size_t)option->max) {
        snprintf(problem, sizeof problem, "has a %s of %zu bytes", what, strlen(*text));
        fault(taking, problem, "a shorter one");
    } else {
        free(*field);
        *field = *text;
        *text = NULL;
    }
}

/* Clients begin in database 0, as with any Redis: only what Headgate itself does may be elsewhere. */
static void take_database(const struct taking *taking)
{
    const struct conf_option *option = conf_section_option(taking->part->section, "database");
    int64_t *field = option != NULL ? field_of(taking, option) : NULL, wanted = taking->address->database;

    if (wanted < 0 || taking->sighting->faulty) {
        return;
    }
    if (field == NULL && wanted != 0) {
        fault(taking, "names a database, but clients begin in database 0 and choose theirs by SELECT",
              "no database in the address");
    } else if (field != NULL && is_in_file(taking, option) && *field != wanted) {
        fault(taking, "names another database than the option database", "it in one place");
    } else {
        if (field != NULL) {
            *field = wanted;
        }
        taking->address->database = -1;
    }
}

/* Only where the password came with the address: redis-cli takes a word alone for it, where others take it for the
 * user. */
static bool lacks_password(const struct taking *taking)
{
    return taking->address->user != NULL && taking->address->password == NULL && !has_password_beside(taking);
}

static void warn_of_password(const struct taking *taking)
{
    const struct conf_option *file = beside(taking, "_password_file"), *option = beside(taking, "_password");
    char *what = conf_format("%s holds a password, and addresses are copied, printed and shown around; %s is the place "
                             "for it",
                             taking->option->name, file != NULL ? file->name : option->name);

    conf_warn(taking->reading, taking->part, taking->sighting->line, what);
    free(what);
}

static void take_all(const struct taking *taking)
{
    bool has_password = taking->address->password != NULL;

    if (lacks_password(taking)) {
        fault(taking, "has a user without a password",
              "redis://user:password@host, or redis://:password@host for the default user");
        return;
    }
    take_text(taking, &taking->address->user, "_user", "user");
    take_text(taking, &taking->address->password, "_password", "password");
    take_database(taking);
    if (has_password && !taking->sighting->faulty) {
        warn_of_password(taking);
    }
}

void conf_take_credentials(struct conf_reading *reading, struct conf_part *part)
{
    for (size_t i = 0; i < part->section->option_count; i++) {
        const struct conf_option *option = &part->section->options[i];
        const struct taking taking = {
            .reading = reading,
            .part = part,
            .option = option,
            .sighting = &part->sightings[i],
            .address = (void *)((char *)part->values + option->offset),
        };
        if (option->type == CONF_ADDRESS && !part->sightings[i].faulty) {
            take_all(&taking);
        }
    }
}
