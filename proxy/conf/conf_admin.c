/* The two passwords of the admin port against each other. */
#include "conf/conf_private.h"

#include <stdlib.h>
#include <string.h>

/* The option that gives the password: itself, or the one that names a file. */
static const char *said_by(const struct conf_part *part)
{
    const struct conf_option *option = conf_section_option(part->section, "admin_read_password");

    return conf_value_is_of_file(part->section, option, part->values) ? "admin_read_password_file" : option->name;
}

static int line_of(const struct conf_part *part, const char *name)
{
    return part->sightings[conf_section_option(part->section, name) - part->section->options].line;
}

void conf_check_admin_passwords(struct conf_reading *reading)
{
    struct conf_part *part = reading->parts;
    const struct conf *conf = reading->conf;
    const char *name = said_by(part);

    if (*conf->admin_read_password == '\0') {
        return;
    }
    if (*conf->admin_password == '\0') {
        conf_fault_value(reading, part, name, "stands alone: whoever changes things would need no password",
                         "admin_password beside it");
    } else if (strcmp(conf->admin_read_password, conf->admin_password) == 0) {
        char *what =
            conf_format("%s gives the same password as admin_password: whoever has it may change everything", name);
        conf_warn(reading, part, line_of(part, name), what);
        free(what);
    }
}
