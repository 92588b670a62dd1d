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

enum section { SECTION_NONE, SECTION_HEADGATE, SECTION_UNKNOWN };

/* What is known of an option while its file is read. */
struct sighting {
    int line; /* 0: not in the file */
    bool faulty;
};

struct reading {
    const char *path;
    const char *next; /* text not read yet: next..end */
    const char *end;
    int line; /* of the line that inih has, from 1 */
    enum section section;
    int section_line;           /* of the first [headgate], or 0 */
    struct sighting *sightings; /* one for each option of the table */
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

static void fault_option(struct reading *reading, int line, const char *name, const char *value, const char *what,
                         const char *expected)
{
    bool cut = strlen(value) > VALUE_SHOWN;
    add_fault(reading->faults,
              conf_format("%s:%d: [%s] %.*s =%s%.*s%s: %s; expected %s", reading->path, line, CONF_SECTION, NAME_SHOWN,
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
static const struct conf_option *nearest_option(const char *name)
{
    const struct conf_option *nearest = &conf_options[0];
    for (size_t i = 1; i < conf_option_count; i++) {
        if (edit_distance(name, conf_options[i].name) < edit_distance(name, nearest->name)) {
            nearest = &conf_options[i];
        }
    }
    return near_enough(edit_distance(name, nearest->name), nearest->name) ? nearest : NULL;
}

static const struct conf_option *find_option(const char *name)
{
    for (size_t i = 0; i < conf_option_count; i++) {
        if (strcmp(conf_options[i].name, name) == 0) {
            return &conf_options[i];
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
    const struct conf_option *nearest = nearest_option(name);
    bool hide = names_a_secret(name) || (nearest != NULL && nearest->secret);
    char *expected = nearest != NULL ? conf_format("a known option, perhaps \"%s\"", nearest->name)
                                     : conf_format("one of the options in conf/headgate.ini");
    fault_option(reading, reading->line, name, hide ? CONF_SECRET_SHOWN : value, "unknown option", expected);
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

static void enter_section(struct reading *reading, const char *name)
{
    if (strcmp(name, CONF_SECTION) == 0) {
        if (reading->section_line > 0) {
            fault_line(reading, "[%s]: section stands on line %d already; expected once", name, reading->section_line);
        } else {
            reading->section_line = reading->line;
        }
        reading->section = SECTION_HEADGATE;
        return;
    }
    bool near = near_enough(edit_distance(name, CONF_SECTION), CONF_SECTION);
    fault_line(reading, "[%s]: unknown section; expected %s[" CONF_SECTION "]", name, near ? "perhaps " : "");
    reading->section = SECTION_UNKNOWN;
}

/* line starts with "[" and is changed. */
static bool check_section(struct reading *reading, char *line)
{
    char *close = strchr(line, ']');
    if (close == NULL) {
        fault_line(reading, "section has no closing bracket; expected [" CONF_SECTION "]");
        reading->section = SECTION_HEADGATE;
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
        reading->section = SECTION_UNKNOWN;
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
static char *line_subject(const char *text)
{
    char *name = conf_format("%.*s", (int)strcspn(text, "=:" BLANKS), text);
    char *subject = find_option(name) != NULL ? conf_format("[" CONF_SECTION "] %s: ", name) : conf_format("%s", "");
    free(name);
    return subject;
}

/* Says whether inih will understand line as it stands; if not, its fault has been reported. line may be changed. */
static bool check_line(struct reading *reading, char *line, size_t longest)
{
    const char *text = line + strspn(line, BLANKS);
    char *subject = line_subject(text);
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
    if (reading->section == SECTION_NONE) {
        fault_line(reading, "option stands before any section; expected [" CONF_SECTION "] above it");
        reading->section = SECTION_HEADGATE;
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
    if (reading->section == SECTION_UNKNOWN) {
        return 1;
    }
    const struct conf_option *option = find_option(name);
    if (option == NULL) {
        fault_unknown_option(reading, name, value);
        return 1;
    }
    struct sighting *sighting = &reading->sightings[option - conf_options];
    const char *shown = option->secret ? CONF_SECRET_SHOWN : value;
    if (sighting->line > 0) {
        char *what = conf_format("given on line %d already", sighting->line);
        fault_option(reading, reading->line, name, shown, what, "it once");
        free(what);
        return 1;
    }
    sighting->line = reading->line;
    char problem[CONF_PROBLEM_MAX];
    if (!conf_value_set(option, reading->conf, value, problem)) {
        char *expected = conf_value_expected(option);
        fault_option(reading, reading->line, name, shown, problem, expected);
        free(expected);
        sighting->faulty = true;
    }
    return 1;
}

/* ---- Options against each other ---- */

static struct sighting *sighting_of(struct reading *reading, const char *name)
{
    return &reading->sightings[find_option(name) - conf_options];
}

/* Reports option, or other if only that stands in the file; says nothing if either has a fault of its own. */
static void fault_pair(struct reading *reading, const char *option, const char *other, const char *what,
                       const char *expected)
{
    struct sighting *first = sighting_of(reading, option);
    struct sighting *second = sighting_of(reading, other);
    if (first->faulty || second->faulty) {
        return;
    }
    const char *name = first->line > 0 ? option : other;
    char *value = conf_value_text(find_option(name), reading->conf);
    fault_option(reading, sighting_of(reading, name)->line, name, value, what, expected);
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
        char *max = conf_value_text(find_option("reconnect_max"), conf);
        char *min = conf_value_text(find_option("reconnect_min"), conf);
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

/* ---- Files ---- */

static struct conf *make_defaults(const char *path)
{
    struct conf *conf = conf_alloc(NULL, sizeof *conf);
    *conf = (struct conf){.path = conf_format("%s", path)};
    for (size_t i = 0; i < conf_option_count; i++) {
        char problem[CONF_PROBLEM_MAX];
        bool set = conf_value_set(&conf_options[i], conf, conf_options[i].initial, problem);
        assert(set);
        (void)set;
    }
    return conf;
}

void conf_free(struct conf *conf)
{
    if (conf == NULL) {
        return;
    }
    for (size_t i = 0; i < conf_option_count; i++) {
        conf_value_free(&conf_options[i], conf);
    }
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

struct conf *conf_load(const char *path, struct conf_faults *faults)
{
    *faults = (struct conf_faults){0};
    struct conf *conf = make_defaults(path != NULL ? path : "");
    if (path == NULL) {
        return conf;
    }
    struct reading reading = {.path = path, .conf = conf, .faults = faults};
    reading.sightings = conf_alloc(NULL, conf_option_count * sizeof *reading.sightings);
    memset(reading.sightings, 0, conf_option_count * sizeof *reading.sightings);
    load_file(&reading);
    free(reading.sightings);
    if (faults->count > 0) {
        conf_free(conf);
        return NULL;
    }
    return conf;
}

/* ---- Printing and comparing ---- */

void conf_print(const struct conf *conf, FILE *out, bool show_secrets)
{
    fputs("[" CONF_SECTION "]\n", out);
    for (size_t i = 0; i < conf_option_count; i++) {
        const struct conf_option *option = &conf_options[i];
        char *text = conf_value_text(option, conf);
        bool hide = option->secret && !show_secrets && *text != '\0';
        fprintf(out, "%s =%s%s\n", option->name, *text != '\0' ? " " : "", hide ? CONF_SECRET_SHOWN : text);
        free(text);
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
        char problem[CONF_PROBLEM_MAX];
        char *text = conf_value_text(option, option->reloadable ? new_conf : old);
        bool set = conf_value_set(option, merged, text, problem);
        assert(set);
        (void)set;
        free(text);
    }
    return merged;
}
