/* Where the values of options are from: of each option the file and the line that say it, if any do. */
#include "conf/conf_private.h"

#include <stdlib.h>
#include <string.h>

struct conf_origin *conf_origins_new(const struct conf_section *section)
{
    size_t size = section->option_count * sizeof(struct conf_origin);
    struct conf_origin *origins = conf_alloc(NULL, size);

    memset(origins, 0, size);
    return origins;
}

void conf_origins_free(const struct conf_section *section, struct conf_origin *origins)
{
    for (size_t i = 0; origins != NULL && i < section->option_count; i++) {
        free(origins[i].file);
    }
    free(origins);
}

void conf_origin_copy(struct conf_origin *to, const struct conf_origin *from)
{
    char *file = from->file != NULL ? conf_copy(from->file, strlen(from->file)) : NULL;

    free(to->file);
    *to = (struct conf_origin){.file = file, .line = from->line, .is_set = from->is_set};
}

void conf_origins_copy(const struct conf_section *section, struct conf_origin *to, const struct conf_origin *from)
{
    for (size_t i = 0; i < section->option_count; i++) {
        conf_origin_copy(&to[i], &from[i]);
    }
}

static void keep_part(const struct conf_reading *reading, const struct conf_part *part, struct conf_origin *origins)
{
    for (size_t i = 0; i < part->section->option_count; i++) {
        int line = part->sightings[i].line;
        if (line > 0) {
            const char *file = conf_place(reading, line, &origins[i].line);
            origins[i].file = conf_copy(file, strlen(file));
        }
    }
}

void conf_origins_keep(struct conf_reading *reading)
{
    const struct conf_rule *rule = reading->conf->rules;

    keep_part(reading, reading->parts, reading->conf->origins);
    for (const struct conf_part *part = reading->parts->next; part != NULL; part = part->next, rule = rule->next) {
        keep_part(reading, part, rule->origins);
    }
}
