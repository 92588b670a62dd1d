/* What is wrong with a file, in words; and what an unknown name may have been meant to be. */
#include "conf/conf_private.h"

#include <stdlib.h>
#include <string.h>
#include <strings.h>

#define NAME_SHOWN 64
#define VALUE_SHOWN 120

/* Takes line as its own. */
static void add_line(char ***lines, size_t *count, char *line)
{
    *lines = conf_alloc(*lines, (*count + 1) * sizeof **lines);
    (*lines)[(*count)++] = line;
}

static void add_fault(struct conf_faults *faults, char *line)
{
    add_line(&faults->lines, &faults->count, line);
}

void conf_warn(struct conf_reading *reading, const struct conf_part *part, int line, const char *what)
{
    struct conf_faults *faults = reading->faults;
    int line_of_file;
    const char *path = conf_place(reading, line, &line_of_file);

    add_line(&faults->warnings, &faults->warning_count,
             conf_format("%s:%d: [%s]: %s", path, line_of_file, part->title, what));
}

void conf_warn_file(struct conf_reading *reading, const char *path, const char *format, ...)
{
    struct conf_faults *faults = reading->faults;
    va_list arguments;

    va_start(arguments, format);
    char *what = conf_vformat(format, arguments);
    va_end(arguments);
    add_line(&faults->warnings, &faults->warning_count, conf_format("%s: %s", path, what));
    free(what);
}

void conf_fault_file(struct conf_reading *reading, const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    char *what = conf_vformat(format, arguments);
    va_end(arguments);
    add_fault(reading->faults, conf_format("%s: %s", reading->path, what));
    free(what);
}

void conf_fault_line(struct conf_reading *reading, const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    char *what = conf_vformat(format, arguments);
    va_end(arguments);
    int line_of_file;
    const char *path = conf_place(reading, reading->line, &line_of_file);
    add_fault(reading->faults, conf_format("%s:%d: %s", path, line_of_file, what));
    free(what);
}

void conf_fault_option(struct conf_reading *reading, const struct conf_part *part, int line, const char *name,
                       const char *value, const char *what, const char *expected)
{
    value = reading->hides_values ? CONF_SECRET_SHOWN : value;
    bool cut = strlen(value) > VALUE_SHOWN;
    int line_of_file;
    const char *path = conf_place(reading, line, &line_of_file);
    add_fault(reading->faults,
              conf_format("%s:%d: [%s] %.*s =%s%.*s%s: %s; expected %s", path, line_of_file, part->title, NAME_SHOWN,
                          name, *value != '\0' ? " " : "", VALUE_SHOWN, value, cut ? "..." : "", what, expected));
}

/* ---- unknown names ---- */

void conf_fault_value(struct conf_reading *reading, struct conf_part *part, const char *name, const char *problem,
                      const char *expected)
{
    const struct conf_option *option = conf_section_option(part->section, name);
    const struct conf_sighting *sighting = &part->sightings[option - part->section->options];
    char *value = conf_option_hides(option) ? conf_format(CONF_SECRET_SHOWN) : conf_value_shown(option, part->values);

    conf_fault_option(reading, part, sighting->line > 0 ? sighting->line : part->line, name, value, problem, expected);
    free(value);
}

static size_t min_size(size_t a, size_t b)
{
    return a < b ? a : b;
}

/* The Levenshtein distance, whatever the case; at most NAME_SHOWN bytes of each are looked at. */
static size_t edit_distance(const char *a, const char *b)
{
    size_t row[NAME_SHOWN + 1];
    size_t b_length = min_size(strlen(b), NAME_SHOWN);
    for (size_t j = 0; j <= b_length; j++) {
        row[j] = j;
    }
    for (size_t i = 0; a[i] != '\0' && i < NAME_SHOWN; i++) {
        size_t diagonal = row[0];
        row[0] = i + 1;
        for (size_t j = 0; j < b_length; j++) {
            size_t replace = diagonal + (strncasecmp(&a[i], &b[j], 1) != 0);
            diagonal = row[j + 1];
            row[j + 1] = min_size(replace, min_size(row[j], row[j + 1]) + 1);
        }
    }
    return row[b_length];
}

bool conf_is_like(const char *name, const char *known)
{
    size_t distance = edit_distance(name, known);

    return distance <= 2 || distance <= strlen(known) / 3;
}

/* Returns the option whose name is most like name, or NULL if none is much like it. */
static const struct conf_option *nearest_option(const struct conf_section *section, const char *name)
{
    const struct conf_option *nearest = &section->options[0];
    for (size_t i = 1; i < section->option_count; i++) {
        const struct conf_option *option = &section->options[i];
        if (edit_distance(name, option->name) < edit_distance(name, nearest->name)) {
            nearest = option;
        }
    }
    return conf_is_like(name, nearest->name) ? nearest : NULL;
}

static const struct conf_former *find_former(const struct conf_section *section, const char *name)
{
    const struct conf_former *former = section->former;

    while (former != NULL && former->name != NULL && strcasecmp(former->name, name) != 0) {
        former++;
    }
    return former != NULL && former->name != NULL ? former : NULL;
}

/* What is not even a word may be a part of a value that stands on a line of its own. */
static bool is_word(const char *name)
{
    static const char letters[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ_-.";

    return strspn(name, letters) == strlen(name);
}

/* Its value is never shown: nobody knows whether it is a secret, by whatever name. */
void conf_fault_unknown_option(struct conf_reading *reading, const char *name)
{
    size_t length = strcspn(name, CONF_BLANKS "=");
    char *first = conf_copy(name, length);
    const struct conf_option *nearest = nearest_option(reading->part->section, first);
    const struct conf_former *former = find_former(reading->part->section, first);
    bool is_shown = nearest != NULL || is_word(first);
    char *expected = former != NULL    ? conf_format("%s", former->instead)
                     : nearest != NULL ? conf_format("a known option, perhaps \"%s\"", nearest->name)
                                       : conf_format("one of the options in conf/headgate.ini");

    conf_fault_option(reading, reading->part, reading->line, is_shown ? first : CONF_SECRET_SHOWN, CONF_SECRET_SHOWN,
                      former != NULL ? "is an option no more" : "unknown option", expected);
    free(expected);
    explicit_bzero(first, length);
    free(first);
}
