/*
 * Users of Redis that stand in several places with a password each. Redis may know both, while one takes over from the
 * other: so it is no fault. But a user is renewed everywhere at once, and then the other password is forgotten.
 */
#include "conf/conf_private.h"

#include <stdlib.h>
#include <string.h>

/* A place with a user and a password for the same Redis. */
struct place {
    const struct conf_part *part;
    const char *user;
    const char *password;
};

static const char *text_of(const struct conf_part *part, const char *name)
{
    const struct conf_option *option = conf_section_option(part->section, name);

    return option != NULL ? *(char *const *)(const void *)((const char *)part->values + option->offset) : "";
}

/* False: it names nobody, or has a Redis of its own. */
static bool find_place(const struct conf_reading *reading, const struct conf_part *part, struct place *place)
{
    bool has_server = part != reading->parts && conf_section_option(part->section, "upstream") != NULL;
    const char *user = text_of(part, "upstream_user");

    *place = (struct place){
        .part = part,
        .user = *user != '\0' ? user : "default",
        .password = text_of(part, "upstream_password"),
    };
    return !has_server && *place->password != '\0';
}

static int line_of(const struct place *place)
{
    const struct conf_section *section = place->part->section;
    const char *const names[] = {"upstream_user", "upstream_password_file", "upstream_password"};
    int line = 0;

    for (size_t i = 0; i < sizeof names / sizeof names[0] && line == 0; i++) {
        line = place->part->sightings[conf_section_option(section, names[i]) - section->options].line;
    }
    return line > 0 ? line : place->part->line;
}

static void warn(struct conf_reading *reading, const struct place *first, const struct place *second)
{
    char *where = conf_place_text(reading, line_of(first));
    char *what = conf_format("upstream_user: %s has another password here than in [%s] %s; when either of them is "
                             "renewed, all connections of that user say the new one",
                             second->user, first->part->title, where);

    conf_warn(reading, second->part, line_of(second), what);
    free(what);
    free(where);
}

void conf_warn_of_users(struct conf_reading *reading)
{
    for (struct conf_part *part = reading->parts; part != NULL; part = part->next) {
        struct place second, first;
        bool is_found = !find_place(reading, part, &second);
        for (struct conf_part *before = reading->parts; before != part && !is_found; before = before->next) {
            is_found = find_place(reading, before, &first) && strcmp(first.user, second.user) == 0 &&
                       strcmp(first.password, second.password) != 0;
            if (is_found) {
                warn(reading, &first, &second);
            }
        }
    }
}
