/*
 * The lines of a file, before inih sees them.
 *
 * inih by itself would cut long lines and section names, take an indented line for more of the value above, ignore what
 * follows a section's "]" and never mention a section without options. conf_next_line() lets none of that reach it: a
 * line that inih would damage becomes a fault and inih gets an empty line in its place, so that line numbers stay true.
 */
#include "conf/conf_private.h"

#include <stdlib.h>
#include <string.h>

#define SECTION_MAX_BYTES 49 /* inih cuts a longer name */

/* ---- sections ---- */

struct conf_part *conf_part_new(const struct conf_section *section, const char *title, void *values, int line)
{
    size_t size = sizeof(struct conf_part) + section->option_count * sizeof(struct conf_sighting);
    struct conf_part *part = conf_alloc(NULL, size);

    memset(part, 0, size);
    part->section = section;
    part->values = values;
    part->title = conf_format("%s", title);
    part->line = line;
    return part;
}

void conf_parts_free(struct conf_reading *reading)
{
    while (reading->parts != NULL) {
        struct conf_part *part = reading->parts;
        reading->parts = part->next;
        free(part->title);
        free(part->problem);
        free(part->warning);
        free(part);
    }
}

static struct conf_part *find_part(const struct conf_reading *reading, const char *title)
{
    for (struct conf_part *part = reading->parts; part != NULL; part = part->next) {
        if (strcmp(part->title, title) == 0) {
            return part;
        }
    }
    return NULL;
}

/* The section of a heading [name] or [name:RULE]; *rule is the part behind the colon, or NULL. One with rules may have
 * the same name as one without. */
static const struct conf_section *find_section(const struct conf_reading *reading, const char *title, const char **rule)
{
    const struct conf_section *found = NULL;
    size_t length = strcspn(title, ":");

    *rule = title[length] == ':' ? title + length + 1 : NULL;
    for (const struct conf_section *const *section = reading->sections; *section != NULL; section++) {
        bool is_named = strlen((*section)->name) == length && strncmp((*section)->name, title, length) == 0;
        if (is_named && (found == NULL || (*section)->has_rules == (*rule != NULL))) {
            found = *section;
        }
    }
    return found;
}

static bool is_rule_name(const char *name)
{
    size_t length = strspn(name, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_.-");

    return length > 0 && length <= CONF_RULE_NAME_MAX && name[length] == '\0';
}

/* What may stand in brackets. The caller frees it. */
static char *expected_sections(const struct conf_reading *reading)
{
    char *text = conf_format("[" CONF_SECTION "]");

    for (const struct conf_section *const *section = reading->sections; *section != NULL; section++) {
        char *longer = conf_format("%s%s[%s%s]", text, section[1] != NULL ? ", " : " or ", (*section)->name,
                                   (*section)->has_rules ? ":NAME" : "");
        free(text);
        text = longer;
    }
    return text;
}

/* What the name may have been meant to be, or NULL. The caller frees it. */
static char *near_section(const struct conf_reading *reading, const char *name)
{
    if (conf_is_like(name, CONF_SECTION)) {
        return conf_format("perhaps [" CONF_SECTION "]");
    }
    for (const struct conf_section *const *section = reading->sections; *section != NULL; section++) {
        if (conf_is_like(name, (*section)->name)) {
            return conf_format("perhaps [%s%s]", (*section)->name, (*section)->has_rules ? ":NAME" : "");
        }
    }
    return NULL;
}

static void fault_unknown_section(struct conf_reading *reading, const char *title)
{
    size_t length = strcspn(title, ":");
    char *name = conf_format("%.*s", (int)length, title);
    char *expected = near_section(reading, name);

    if (expected == NULL) {
        expected = expected_sections(reading);
    }

    conf_fault_line(reading, "[%s]: unknown section; expected %s", title, expected);
    free(expected);
    free(name);
}

/* Adds a rule to the configuration, and the part that says what is known of it. */
static void add_rule(struct conf_reading *reading, const struct conf_section *section, const char *title,
                     const char *name)
{
    struct conf_rule *rule = conf_rule_new(section, name != NULL ? name : "", reading->line);
    struct conf_rule **last = &reading->conf->rules;
    struct conf_part **last_part = &reading->parts;

    while (*last != NULL) {
        last = &(*last)->next;
    }
    *last = rule;
    while (*last_part != NULL) {
        last_part = &(*last_part)->next;
    }
    *last_part = conf_part_new(section, title, rule->values, reading->line);
    reading->part = *last_part;
}

static void enter_rule(struct conf_reading *reading, const char *title)
{
    const char *name;
    const struct conf_section *section = find_section(reading, title, &name);

    if (section == NULL) {
        fault_unknown_section(reading, title);
    } else if (section->has_rules != (name != NULL)) {
        conf_fault_line(reading, "[%s]: %s; expected [%s%s]", title,
                        name != NULL ? "this section has no rules with names" : "rule has no name", section->name,
                        section->has_rules ? ":NAME" : "");
    } else if (name != NULL && !is_rule_name(name)) {
        conf_fault_line(reading, "[%s]: not a name for a rule; expected 1 to %d letters, digits, \"_\", \".\" or \"-\"",
                        title, CONF_RULE_NAME_MAX);
    } else if (section == &conf_section_server && strcmp(name, CONF_SERVER_DEFAULT) == 0) {
        conf_fault_line(reading, "[%s]: the server that [" CONF_SECTION "] is has this name; expected another one",
                        title);
    } else if (section == &conf_section_server && conf_rules_count(reading->conf->rules, section) == CONF_SERVERS_MAX) {
        conf_fault_line(reading, "[%s]: is one server too many; expected at most %d", title, CONF_SERVERS_MAX);
    } else {
        add_rule(reading, section, title, name);
    }
}

/* A section without rules may go on in another file. */
static bool is_repeated(const struct conf_reading *reading, const struct conf_part *known)
{
    return known->section->has_rules || conf_same_file(reading, known->line, reading->line);
}

static void enter_section(struct conf_reading *reading, const char *title)
{
    struct conf_part *known = find_part(reading, title);

    reading->part = NULL;
    reading->in_unknown = true;
    if (known != NULL && known->line > 0 && is_repeated(reading, known)) {
        char *place = conf_place_text(reading, known->line);
        conf_fault_line(reading, "[%s]: section stands %s already; expected once", title, place);
        free(place);
        reading->part = known;
    } else if (known != NULL) {
        known->line = reading->line;
        reading->part = known;
    } else {
        enter_rule(reading, title);
    }
}

/* ---- lines ---- */

static bool starts_comment(char c)
{
    return c == '#' || c == ';';
}

static bool has_control_character(const char *text)
{
    for (; *text != '\0'; text++) {
        if ((unsigned char)*text < ' ' ? *text != '\t' : *text == 0x7f) {
            return true;
        }
    }
    return false;
}

/* line starts with "[" and is changed. */
static bool check_section(struct conf_reading *reading, char *line)
{
    char *close = strchr(line, ']');
    if (close == NULL) {
        char *expected = expected_sections(reading);
        conf_fault_line(reading, "section has no closing bracket; expected %s", expected);
        free(expected);
        reading->part = reading->parts;
        return false;
    }
    const char *rest = close + 1 + strspn(close + 1, CONF_BLANKS);
    if (*rest != '\0' && !starts_comment(*rest)) {
        conf_fault_line(reading, "text after the closing bracket of a section; expected the section alone on its line");
    }
    *close = '\0';
    if (close - line - 1 > SECTION_MAX_BYTES) {
        conf_fault_line(reading, "section name of %zu bytes; expected at most %d", (size_t)(close - line - 1),
                        SECTION_MAX_BYTES);
        reading->part = NULL;
        reading->in_unknown = true;
        return false;
    }
    enter_section(reading, line + 1);
    return true;
}

static bool check_option_line(struct conf_reading *reading, const char *line, const char *subject)
{
    size_t name_length = strcspn(line, "=:");
    if (line[name_length] == '\0') {
        conf_fault_line(reading, "%sline has no \"=\"; expected option = value, [section] or a # comment", subject);
        return false;
    }
    if (name_length == 0) {
        conf_fault_line(reading, "no option stands before the \"%c\"; expected option = value", line[0]);
        return false;
    }
    return true;
}

/* line is not empty, and text is where it starts after blanks. */
static bool check_form(struct conf_reading *reading, char *line, const char *text, const char *subject)
{
    if (has_control_character(text)) {
        conf_fault_line(reading, "%sline holds a control character; expected printable text", subject);
        return false;
    }
    if (text != line) {
        conf_fault_line(reading,
                        "%sline starts with a blank; expected an option at the start of a line, its value on that line",
                        subject);
        return false;
    }
    return *line == '[' ? check_section(reading, line) : check_option_line(reading, line, subject);
}

/*
 * What a fault of a line says first: the option, if the line starts with a known one. Nothing else of the line is
 * shown, as it may be a secret.
 */
static char *line_subject(const struct conf_reading *reading, const char *text)
{
    const struct conf_part *part = reading->part != NULL ? reading->part : reading->parts;
    char *name = conf_format("%.*s", (int)strcspn(text, "=:" CONF_BLANKS), text);
    bool known = conf_section_option(part->section, name) != NULL;
    char *subject = known ? conf_format("[%s] %s: ", part->title, name) : conf_format("%s", "");
    free(name);
    return subject;
}

/* Says whether inih will understand line as it stands; if not, its fault has been reported. line may be changed. */
static bool check_line(struct conf_reading *reading, char *line, size_t longest)
{
    const char *text = line + strspn(line, CONF_BLANKS);
    char *subject = line_subject(reading, text);
    bool sound = true;
    if (strlen(line) > longest) {
        conf_fault_line(reading, "%sline of %zu bytes; expected at most %zu", subject, strlen(line), longest);
        sound = false;
    } else if (*text != '\0' && !starts_comment(*text)) {
        sound = check_form(reading, line, text, subject);
    }
    free(subject);
    return sound;
}

char *conf_next_line(char *buffer, int capacity, void *stream)
{
    struct conf_reading *reading = stream;
    char *line = conf_source_line(reading);
    if (line == NULL) {
        return NULL;
    }
    size_t room = (size_t)capacity - 2; /* besides the newline and the end */
    size_t longest = room < CONF_LINE_MAX ? room : CONF_LINE_MAX;
    char *checked = conf_format("%s", line);
    bool sound = check_line(reading, checked, longest);
    snprintf(buffer, (size_t)capacity, "%s\n", sound ? line : "");
    explicit_bzero(checked, strlen(checked));
    explicit_bzero(line, strlen(line));
    free(checked);
    free(line);
    return buffer;
}
