/*
 * Reading, printing and comparing configurations.
 *
 *   file → next_line() checks each line as inih is about to see it → inih splits it → take_option() → the option table
 *
 * inih by itself would cut long lines and section names, take an indented line for more of the value above, ignore what
 * follows a section's "]" and never mention a section without options. next_line() lets none of that reach it: a line
 * that inih would damage becomes a fault and inih gets an empty line in its place, so that line numbers stay true.
 */
#include "conf.h"
#include "conf_table.h"

#include <assert.h>
#include <errno.h>
#include <ini.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#define FILE_MAX ((size_t)1 << 20)
#define LINE_MAX_BYTES 4096
#define SECTION_MAX_BYTES 49 /* inih cuts a longer name */
#define NAME_SHOWN 64
#define VALUE_SHOWN 120
#define BLANKS " \t"

/* What is known of an option while its file is read. */
struct sighting {
    int line; /* 0: not in the file */
    bool faulty;
};

/* One section of the file: [headgate], or the one of a rule. */
struct part {
    struct part *next;
    const struct conf_section *section;
    void *values; /* what its options fill */
    char *title;  /* what stands between the brackets */
    int line;     /* of its heading; 0: not in the file */
    struct sighting sightings[];
};

struct reading {
    const char *path;
    const char *next; /* text not read yet: next..end */
    const char *end;
    int line;                                   /* of the line that inih has, from 1 */
    const struct conf_section *const *sections; /* ends with NULL */
    struct part *parts;                         /* [headgate] first, then in the order of the file */
    struct part *part;                          /* where the line stands; NULL: in none, or in one that is unknown */
    bool in_unknown;
    struct conf *conf;
    struct conf_faults *faults;
};

/* ---- Faults ---- */

/* Takes line as its own. */
static void add_fault(struct conf_faults *faults, char *line)
{
    faults->lines = conf_alloc(faults->lines, (faults->count + 1) * sizeof *faults->lines);
    faults->lines[faults->count++] = line;
}

void conf_faults_free(struct conf_faults *faults)
{
    for (size_t i = 0; i < faults->count; i++) {
        free(faults->lines[i]);
    }
    free(faults->lines);
    *faults = (struct conf_faults){0};
}

/* A fault of the line that inih has. */
__attribute__((format(printf, 2, 3))) static void fault_line(struct reading *reading, const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    char *what = conf_vformat(format, arguments);
    va_end(arguments);
    add_fault(reading->faults, conf_format("%s:%d: %s", reading->path, reading->line, what));
    free(what);
}

static void fault_option(struct reading *reading, const struct part *part, int line, const char *name,
                         const char *value, const char *what, const char *expected)
{
    bool cut = strlen(value) > VALUE_SHOWN;
    add_fault(reading->faults,
              conf_format("%s:%d: [%s] %.*s =%s%.*s%s: %s; expected %s", reading->path, line, part->title, NAME_SHOWN,
                          name, *value != '\0' ? " " : "", VALUE_SHOWN, value, cut ? "..." : "", what, expected));
}

/* ---- Unknown names ---- */

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

static bool near_enough(size_t distance, const char *name)
{
    return distance <= 2 || distance <= strlen(name) / 3;
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
    return near_enough(edit_distance(name, nearest->name), nearest->name) ? nearest : NULL;
}

static const struct conf_option *find_option(const struct conf_section *section, const char *name)
{
    for (size_t i = 0; i < section->option_count; i++) {
        if (strcmp(section->options[i].name, name) == 0) {
            return &section->options[i];
        }
    }
    return NULL;
}

static bool names_a_secret(const char *name)
{
    static const char *const words[] = {"pass", "pwd", "secret", "auth", "key", "token"};
    for (size_t i = 0; i < sizeof words / sizeof words[0]; i++) {
        if (strcasestr(name, words[i]) != NULL) {
            return true;
        }
    }
    return false;
}

static void fault_unknown_option(struct reading *reading, const char *name, const char *value)
{
    const struct conf_option *nearest = nearest_option(reading->part->section, name);
    bool hide = names_a_secret(name) || (nearest != NULL && nearest->secret);
    char *expected = nearest != NULL ? conf_format("a known option, perhaps \"%s\"", nearest->name)
                                     : conf_format("one of the options in conf/headgate.ini");
    fault_option(reading, reading->part, reading->line, name, hide ? CONF_SECRET_SHOWN : value, "unknown option",
                 expected);
    free(expected);
}

/* ---- Lines, before inih sees them ---- */

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

static struct part *make_part(const struct conf_section *section, const char *title, void *values, int line)
{
    size_t size = sizeof(struct part) + section->option_count * sizeof(struct sighting);
    struct part *part = conf_alloc(NULL, size);

    memset(part, 0, size);
    part->section = section;
    part->values = values;
    part->title = conf_format("%s", title);
    part->line = line;
    return part;
}

static void free_parts(struct reading *reading)
{
    while (reading->parts != NULL) {
        struct part *part = reading->parts;
        reading->parts = part->next;
        free(part->title);
        free(part);
    }
}

static struct part *find_part(const struct reading *reading, const char *title)
{
    for (struct part *part = reading->parts; part != NULL; part = part->next) {
        if (strcmp(part->title, title) == 0) {
            return part;
        }
    }
    return NULL;
}

/* The section of a heading [name] or [name:RULE]; *rule is the part behind the colon, or NULL. One with rules may have
 * the same name as one without. */
static const struct conf_section *find_section(const struct reading *reading, const char *title, const char **rule)
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
static char *expected_sections(const struct reading *reading)
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

static void fault_unknown_section(struct reading *reading, const char *title)
{
    size_t length = strcspn(title, ":");
    char *name = conf_format("%.*s", (int)length, title);
    bool near = near_enough(edit_distance(name, CONF_SECTION), CONF_SECTION);
    char *expected = near ? conf_format("perhaps [" CONF_SECTION "]") : expected_sections(reading);

    fault_line(reading, "[%s]: unknown section; expected %s", title, expected);
    free(expected);
    free(name);
}

/* Adds a rule to the configuration, and the part that says what is known of it. */
static void add_rule(struct reading *reading, const struct conf_section *section, const char *title, const char *name)
{
    struct conf_rule *rule = conf_rule_new(section, name != NULL ? name : "", reading->line);
    struct conf_rule **last = &reading->conf->rules;
    struct part **last_part = &reading->parts;

    while (*last != NULL) {
        last = &(*last)->next;
    }
    *last = rule;
    while (*last_part != NULL) {
        last_part = &(*last_part)->next;
    }
    *last_part = make_part(section, title, rule->values, reading->line);
    reading->part = *last_part;
}

static void enter_rule(struct reading *reading, const char *title)
{
    const char *name;
    const struct conf_section *section = find_section(reading, title, &name);

    if (section == NULL) {
        fault_unknown_section(reading, title);
    } else if (section->has_rules != (name != NULL)) {
        fault_line(reading, "[%s]: %s; expected [%s%s]", title,
                   name != NULL ? "this section has no rules with names" : "rule has no name", section->name,
                   section->has_rules ? ":NAME" : "");
    } else if (name != NULL && !is_rule_name(name)) {
        fault_line(reading, "[%s]: not a name for a rule; expected 1 to %d letters, digits, \"_\", \".\" or \"-\"",
                   title, CONF_RULE_NAME_MAX);
    } else {
        add_rule(reading, section, title, name);
    }
}

static void enter_section(struct reading *reading, const char *title)
{
    struct part *known = find_part(reading, title);

    reading->part = NULL;
    reading->in_unknown = true;
    if (known != NULL && known->line > 0) {
        fault_line(reading, "[%s]: section stands on line %d already; expected once", title, known->line);
        reading->part = known;
    } else if (known != NULL) {
        known->line = reading->line;
        reading->part = known;
    } else {
        enter_rule(reading, title);
    }
}

/* line starts with "[" and is changed. */
static bool check_section(struct reading *reading, char *line)
{
    char *close = strchr(line, ']');
    if (close == NULL) {
        char *expected = expected_sections(reading);
        fault_line(reading, "section has no closing bracket; expected %s", expected);
        free(expected);
        reading->part = reading->parts;
        return false;
    }
    const char *rest = close + 1 + strspn(close + 1, BLANKS);
    if (*rest != '\0' && !starts_comment(*rest)) {
        fault_line(reading, "text after the closing bracket of a section; expected the section alone on its line");
    }
    *close = '\0';
    if (close - line - 1 > SECTION_MAX_BYTES) {
        fault_line(reading, "section name of %zu bytes; expected at most %d", (size_t)(close - line - 1),
                   SECTION_MAX_BYTES);
        reading->part = NULL;
        reading->in_unknown = true;
        return false;
    }
    enter_section(reading, line + 1);
    return true;
}

static bool check_option_line(struct reading *reading, const char *line, const char *subject)
{
    size_t name_length = strcspn(line, "=:");
    if (line[name_length] == '\0') {
        fault_line(reading, "%sline has no \"=\"; expected option = value, [section] or a # comment", subject);
        return false;
    }
    if (name_length == 0) {
        fault_line(reading, "no option stands before the \"%c\"; expected option = value", line[0]);
        return false;
    }
    return true;
}

/* line is not empty, and text is where it starts after blanks. */
static bool check_form(struct reading *reading, char *line, const char *text, const char *subject)
{
    if (has_control_character(text)) {
        fault_line(reading, "%sline holds a control character; expected printable text", subject);
        return false;
    }
    if (text != line) {
        fault_line(reading,
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
static char *line_subject(const struct reading *reading, const char *text)
{
    const struct part *part = reading->part != NULL ? reading->part : reading->parts;
    char *name = conf_format("%.*s", (int)strcspn(text, "=:" BLANKS), text);
    bool known = find_option(part->section, name) != NULL;
    char *subject = known ? conf_format("[%s] %s: ", part->title, name) : conf_format("%s", "");
    free(name);
    return subject;
}

/* Says whether inih will understand line as it stands; if not, its fault has been reported. line may be changed. */
static bool check_line(struct reading *reading, char *line, size_t longest)
{
    const char *text = line + strspn(line, BLANKS);
    char *subject = line_subject(reading, text);
    bool sound = true;
    if (strlen(line) > longest) {
        fault_line(reading, "%sline of %zu bytes; expected at most %zu", subject, strlen(line), longest);
        sound = false;
    } else if (*text != '\0' && !starts_comment(*text)) {
        sound = check_form(reading, line, text, subject);
    }
    free(subject);
    return sound;
}

/* inih's reader, in the manner of fgets(): gives it one line, whole or, if it is faulty, empty. */
static char *next_line(char *buffer, int capacity, void *stream)
{
    struct reading *reading = stream;
    if (reading->next == reading->end) {
        return NULL;
    }
    const char *newline = memchr(reading->next, '\n', (size_t)(reading->end - reading->next));
    const char *stop = newline != NULL ? newline : reading->end;
    size_t length = (size_t)(stop - reading->next);
    char *line = conf_format("%.*s", (int)length, reading->next);
    reading->next = newline != NULL ? newline + 1 : reading->end;
    reading->line++;
    if (length > 0 && line[length - 1] == '\r') {
        line[--length] = '\0';
    }
    size_t longest = min_size(LINE_MAX_BYTES, (size_t)capacity - 2); /* its newline and its end */
    char *checked = conf_format("%s", line);
    bool sound = check_line(reading, checked, longest);
    snprintf(buffer, (size_t)capacity, "%s\n", sound ? line : "");
    free(checked);
    free(line);
    return buffer;
}

/* ---- Options ---- */

/* Options before any section are faulty once, and then taken as those of [headgate], so that their faults show too. */
static void check_within_section(struct reading *reading)
{
    if (reading->part == NULL && !reading->in_unknown) {
        fault_line(reading, "option stands before any section; expected [" CONF_SECTION "] above it");
        reading->part = reading->parts;
    }
}

/*
 * inih's handler, called within inih's turn for the line that next_line() gave last. inih's own section is not used:
 * next_line() has judged it.
 */
static int take_option(void *user, const char *section, const char *name, const char *value)
{
    (void)section;
    struct reading *reading = user;
    check_within_section(reading);
    struct part *part = reading->part;
    if (part == NULL) {
        return 1;
    }
    const struct conf_option *option = find_option(part->section, name);
    if (option == NULL) {
        fault_unknown_option(reading, name, value);
        return 1;
    }
    struct sighting *sighting = &part->sightings[option - part->section->options];
    const char *shown = option->secret ? CONF_SECRET_SHOWN : value;
    if (sighting->line > 0) {
        char *what = conf_format("given on line %d already", sighting->line);
        fault_option(reading, part, reading->line, name, shown, what, "it once");
        free(what);
        return 1;
    }
    sighting->line = reading->line;
    char problem[CONF_PROBLEM_MAX];
    if (!conf_value_set(option, part->values, value, problem)) {
        char *expected = conf_value_expected(option);
        fault_option(reading, part, reading->line, name, shown, problem, expected);
        free(expected);
        sighting->faulty = true;
    }
    return 1;
}

/* ---- Options against each other ---- */

static struct sighting *sighting_of(struct part *part, const char *name)
{
    return &part->sightings[find_option(part->section, name) - part->section->options];
}

/* Reports option, or other if only that stands in the file; says nothing if either has a fault of its own. */
static void fault_pair(struct reading *reading, const char *option, const char *other, const char *what,
                       const char *expected)
{
    struct part *part = reading->parts;
    struct sighting *first = sighting_of(part, option);
    struct sighting *second = sighting_of(part, other);
    if (first->faulty || second->faulty) {
        return;
    }
    const char *name = first->line > 0 ? option : other;
    char *value = conf_value_text(find_option(part->section, name), reading->conf);
    fault_option(reading, part, sighting_of(part, name)->line, name, value, what, expected);
    free(value);
}

static void check_address_use(struct reading *reading, const char *option, const struct conf_address_list *list,
                              const char *other, const struct conf_address *address, const char *expected)
{
    for (size_t i = 0; i < list->count; i++) {
        if (conf_address_equal(&list->items[i], address)) {
            char *what = conf_format("%s is an address of %s and of %s", address->text, option, other);
            fault_pair(reading, option, other, what, expected);
            free(what);
        }
    }
}

static void check_together(struct reading *reading)
{
    const struct conf *conf = reading->conf;
    if (conf->reconnect_min > conf->reconnect_max) {
        char *max = conf_value_text(find_option(&conf_section_headgate, "reconnect_max"), conf);
        char *min = conf_value_text(find_option(&conf_section_headgate, "reconnect_min"), conf);
        char *what = conf_format("reconnect_min (%s) is longer than reconnect_max (%s)", min, max);
        fault_pair(reading, "reconnect_min", "reconnect_max", what, "reconnect_min of at most reconnect_max");
        free(what);
        free(min);
        free(max);
    }
    if (*conf->upstream_user != '\0' && *conf->upstream_password == '\0') {
        fault_pair(reading, "upstream_user", "upstream_password", "has no password", "upstream_password beside it");
    }
    for (size_t i = 0; i < conf->admin.count; i++) {
        check_address_use(reading, "listen", &conf->listen, "admin", &conf->admin.items[i], "an address for each");
    }
    check_address_use(reading, "listen", &conf->listen, "upstream", &conf->upstream, "the address of Redis upstream");
    check_address_use(reading, "admin", &conf->admin, "upstream", &conf->upstream, "the address of Redis upstream");
}

static bool has_faulty_option(const struct part *part)
{
    for (size_t i = 0; i < part->section->option_count; i++) {
        if (part->sightings[i].faulty) {
            return true;
        }
    }
    return false;
}

/* A rule whose options contradict each other, or that lacks one. Says nothing if one of them has a fault of its own. */
static void check_rule(struct reading *reading, struct part *part)
{
    char problem[CONF_PROBLEM_MAX];
    const char *expected = "";

    if (part->section->check == NULL || has_faulty_option(part)) {
        return;
    }
    const char *name = part->section->check(part->values, problem, &expected);
    if (name == NULL) {
        return;
    }
    const struct conf_option *option = find_option(part->section, name);
    const struct sighting *sighting = sighting_of(part, name);
    char *value = option->secret ? conf_format(CONF_SECRET_SHOWN) : conf_value_text(option, part->values);
    fault_option(reading, part, sighting->line > 0 ? sighting->line : part->line, name, value, problem, expected);
    free(value);
}

static bool list_has(const struct conf_address_list *list, const struct conf_address *address)
{
    bool has = false;

    for (size_t i = 0; i < list->count; i++) {
        has = has || conf_address_equal(&list->items[i], address);
    }
    return has;
}

/* A server that a rule names is not Headgate itself. */
static void check_servers(struct reading *reading, struct part *part)
{
    for (size_t i = 0; i < part->section->option_count; i++) {
        const struct conf_option *option = &part->section->options[i];
        const void *field = (const char *)part->values + option->offset;
        if (option->type == CONF_ADDRESS && !part->sightings[i].faulty &&
            (list_has(&reading->conf->listen, field) || list_has(&reading->conf->admin, field))) {
            fault_option(reading, part, part->sightings[i].line, option->name,
                         ((const struct conf_address *)field)->text, "is an address of Headgate itself",
                         "the address of a Redis server");
        }
    }
}

static void check_rules(struct reading *reading)
{
    for (struct part *part = reading->parts->next; part != NULL; part = part->next) {
        check_rule(reading, part);
        check_servers(reading, part);
    }
}

/* ---- Files ---- */

static struct conf *make_defaults(const char *path)
{
    struct conf *conf = conf_alloc(NULL, sizeof *conf);
    *conf = (struct conf){.path = conf_format("%s", path)};
    conf_values_default(&conf_section_headgate, conf);
    return conf;
}

void conf_free(struct conf *conf)
{
    if (conf == NULL) {
        return;
    }
    conf_values_free(&conf_section_headgate, conf);
    conf_rules_free(conf->rules);
    free(conf->path);
    free(conf);
}

/* Reads at most FILE_MAX + 1 bytes, so that a device that never ends is found out. NULL with errno if it cannot. */
static char *read_file(const char *path, size_t *length)
{
    FILE *file = fopen(path, "re");
    if (file == NULL) {
        return NULL;
    }
    char *text = conf_alloc(NULL, FILE_MAX + 1);
    *length = fread(text, 1, FILE_MAX + 1, file);
    int error = ferror(file) ? errno : 0;
    fclose(file);
    if (error != 0) {
        free(text);
        errno = error;
        return NULL;
    }
    return text;
}

/* Says whether text can be read line by line at all. */
static bool check_text(struct reading *reading, const char *text, size_t length)
{
    if (length > FILE_MAX) {
        add_fault(reading->faults, conf_format("%s: file is too large; expected at most 1mb", reading->path));
        return false;
    }
    const char *nul = memchr(text, '\0', length);
    if (nul == NULL) {
        return true;
    }
    reading->line = 1;
    for (const char *at = text; at < nul; at++) {
        reading->line += *at == '\n';
    }
    fault_line(reading, "file holds a NUL byte; expected text");
    return false;
}

static void parse_text(struct reading *reading, const char *text, size_t length)
{
    static const char byte_order_mark[] = "\xef\xbb\xbf";
    size_t skipped = length >= 3 && memcmp(text, byte_order_mark, 3) == 0 ? 3 : 0;
    reading->next = text + skipped;
    reading->end = text + length;
    /* Debian's inih takes its settings from variables of the whole process; nothing else in it uses inih. */
    ini_max_line = LINE_MAX_BYTES + 3;
    ini_allow_inline_comments = false;
    int result = ini_parse_stream(next_line, reading, take_option, reading);
    if (result != 0 && reading->faults->count == 0) {
        reading->line = result;
        fault_line(reading, "line is not understood; expected option = value");
    }
    check_together(reading);
    check_rules(reading);
}

static void load_file(struct reading *reading)
{
    size_t length = 0;
    char *text = read_file(reading->path, &length);
    if (text == NULL) {
        add_fault(reading->faults, conf_format("%s: cannot be read: %s", reading->path, strerror(errno)));
        return;
    }
    if (check_text(reading, text, length)) {
        parse_text(reading, text, length);
    }
    free(text);
}

struct conf *conf_load(const char *path, const struct conf_section *const *sections, struct conf_faults *faults)
{
    static const struct conf_section *const none[] = {NULL};

    *faults = (struct conf_faults){0};
    struct conf *conf = make_defaults(path != NULL ? path : "");
    if (path == NULL) {
        return conf;
    }
    struct reading reading = {
        .path = path,
        .conf = conf,
        .faults = faults,
        .sections = sections != NULL ? sections : none,
        .parts = make_part(&conf_section_headgate, CONF_SECTION, conf, 0),
    };
    load_file(&reading);
    free_parts(&reading);
    if (faults->count > 0) {
        conf_free(conf);
        return NULL;
    }
    return conf;
}

/* ---- Printing and comparing ---- */

static void print_values(const struct conf_section *section, const void *values, FILE *out, bool show_secrets)
{
    for (size_t i = 0; i < section->option_count; i++) {
        const struct conf_option *option = &section->options[i];
        char *text = conf_value_text(option, values);
        bool hide = option->secret && !show_secrets && *text != '\0';
        fprintf(out, "%s =%s%s\n", option->name, *text != '\0' ? " " : "", hide ? CONF_SECRET_SHOWN : text);
        free(text);
    }
}

void conf_print(const struct conf *conf, FILE *out, bool show_secrets)
{
    fputs("[" CONF_SECTION "]\n", out);
    print_values(&conf_section_headgate, conf, out, show_secrets);
    for (const struct conf_rule *rule = conf->rules; rule != NULL; rule = rule->next) {
        fprintf(out, "\n[%s%s%s]\n", rule->section->name, *rule->name != '\0' ? ":" : "", rule->name);
        print_values(rule->section, rule->values, out, show_secrets);
    }
}

static bool same_value(const struct conf_option *option, const struct conf *a, const struct conf *b)
{
    char *a_text = conf_value_text(option, a);
    char *b_text = conf_value_text(option, b);
    bool same = strcmp(a_text, b_text) == 0;
    free(a_text);
    free(b_text);
    return same;
}

void conf_restart_only_changes(const struct conf *old, const struct conf *new_conf,
                               void (*report)(void *context, const char *option), void *context)
{
    for (size_t i = 0; i < conf_option_count; i++) {
        const struct conf_option *option = &conf_options[i];
        if (!option->reloadable && !same_value(option, old, new_conf)) {
            report(context, option->name);
        }
    }
}

struct conf *conf_merge_reloadable(const struct conf *old, const struct conf *new_conf)
{
    struct conf *merged = make_defaults(new_conf->path);
    for (size_t i = 0; i < conf_option_count; i++) {
        const struct conf_option *option = &conf_options[i];
        conf_value_copy(option, merged, option->reloadable ? new_conf : old);
    }
    merged->rules = conf_rules_copy(new_conf->rules);
    return merged;
}
