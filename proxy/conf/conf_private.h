/*
 * What the files of the configuration share beyond the option tables:
 *
 *   conf.c          files read, options checked against each other, configurations printed
 *   conf_sources.c  the ini files that are read, one within the other
 *   conf_lines.c    the lines of a file, before inih sees them
 *   conf_faults.c   what is wrong with a file, in words
 *   conf_expand.c   variables of the environment in values
 *   conf_values.c   the text of an option to its value, and back
 *   conf_units.c    … of numbers with units
 *   conf_address.c  the same for addresses
 *   conf_url.c      those of them that are URLs
 *   conf_topology.c those of them that name sentinels or a cluster
 *   conf_admin.c    the passwords of the admin port
 *   conf_users.c        users of Redis that stand in several places
 *   conf_credentials.c  what URLs say of user, password and database, to the options that are for it
 *   conf_tls.c      certificates and keys, from the files that options name
 *   conf_server.c   servers: who says what, which rules concern whom, and what each goes by
 *   conf_reads.c    reading from replicas
 *   conf_beside.c   rules beside others: what contradicts, and what can hardly be meant
 *   conf_listener.c listeners: their section, and their addresses against all others
 *   networks.c      lists of networks
 *   conf_clients.c  options that name clients
 *   conf_self.c     which of them lead to Headgate itself, or beyond this machine
 *   conf_files.c    files beside the ini file: found, read, and whether they have changed
 *   conf_modes.c    who else may read files with secrets
 *   conf_manual.c   the manual page
 *   conf_origin.c   where values are from
 *   conf_change.c   values that are set at run time
 *   conf_merge.c    what of a file that is read again is taken over, and what waits for a restart
 *   conf_shown.c    options one by one, as they are told to who asks
 *   conf_text.c     memory and text
 */
#ifndef HEADGATE_CONF_PRIVATE_H
#define HEADGATE_CONF_PRIVATE_H

#include "conf/conf.h"
#include "conf/conf_table.h"

#define CONF_BLANKS " \t"
/* Of a line of the file, in bytes. */
#define CONF_LINE_MAX ((size_t)4096)
/* Of an ini file. */
#define CONF_FILE_MAX ((size_t)1 << 20)

/* What is known of an option while its file is read. */
struct conf_sighting {
    int line; /* 0: not in the file */
    bool faulty;
};

/* One section of the file: [headgate], or the one of a rule. */
struct conf_part {
    struct conf_part *next;
    const struct conf_section *section;
    void *values;         /* what its options fill */
    char *title;          /* what stands between the brackets */
    int line;             /* of its heading; 0: not in the file */
    const char *at_fault; /* the option that contradicts other rules, for a server; else NULL */
    char *problem;        /* … why, … */
    const char *expected; /* … and what was expected */
    bool is_sound;        /* for some server nothing contradicts */
    bool is_quiet;        /* for some server there is nothing to be warned of */
    char *warning;        /* … but for others; else NULL */
    struct conf_sighting sightings[];
};

struct conf_reading {
    const char *path;               /* of the file that is being read */
    struct conf_source *source;     /* … and how far it was read */
    size_t source_count;            /* of all files so far */
    struct conf_stretch *stretches; /* which lines are of which file */
    int line;                       /* of the line that inih has, from 1, through all files: see conf_place() */
    const struct conf_section *const *sections; /* ends with NULL */
    struct conf_part *parts;                    /* [headgate] first, then in the order of the file */
    struct conf_part *part;                     /* where the line stands; NULL: in none, or in one that is unknown */
    bool has_tls;                               /* what connections with TLS need is made already */
    bool in_unknown;
    bool hides_values; /* in faults: what was given may be a part of a secret */
    struct conf *conf;
    struct conf_faults *faults;
};

/* ---- conf_sources.c ---- */

/* Has the text of the file read next, before what is left of the one that includes it. The text is the reading's. */
void conf_source_push(struct conf_reading *reading, const char *path, char *text, size_t length,
                      const struct stat *status);
/* The next line, which is the caller's; NULL at the end of all files. */
char *conf_source_line(struct conf_reading *reading);
/* The file that is being read holds a secret. */
void conf_source_holds_secret(struct conf_reading *reading);
void conf_sources_free(struct conf_reading *reading);
/* An include line. */
void conf_include(struct conf_reading *reading, const char *value);
/* The file that the line is of, and its number there. */
const char *conf_place(const struct conf_reading *reading, int line, int *line_of_file);
bool conf_same_file(const struct conf_reading *reading, int a, int b);
/* "on line 5", or "in conf.d/a.ini:5" if that is another file than the one that is being read. The caller frees it. */
char *conf_place_text(const struct conf_reading *reading, int line);

/* ---- conf_expand.c ---- */

/* The text with what stands in the environment; the caller frees it. NULL: problem says what is wrong. hides: the text
 * may have a secret in it, so the problem has nothing of it but a name that is all there is. */
char *conf_expand(const char *text, bool hides, char problem[CONF_PROBLEM_MAX]);
/* The text from which conf_expand() makes this one. The caller frees it. */
char *conf_unexpand(const char *text);
/* As conf_value_set(), of text as it stands in a file: with variables. */
bool conf_value_read(const struct conf_option *option, void *base, const char *text, char problem[CONF_PROBLEM_MAX]);

/* ---- conf_lines.c ---- */

/* inih's reader, in the manner of fgets(): gives it one line of the reading, whole or, if it is faulty, empty. */
char *conf_next_line(char *buffer, int capacity, void *reading);
/* title is copied; values are what its options fill; line: of its heading, 0 if it has none. */
struct conf_part *conf_part_new(const struct conf_section *section, const char *title, void *values, int line);
void conf_parts_free(struct conf_reading *reading);

/* ---- conf_origin.c ---- */

/* One for each option: none is said by anybody. */
struct conf_origin *conf_origins_new(const struct conf_section *section);
void conf_origins_free(const struct conf_section *section, struct conf_origin *origins);
void conf_origins_copy(const struct conf_section *section, struct conf_origin *to, const struct conf_origin *from);
void conf_origin_copy(struct conf_origin *to, const struct conf_origin *from);
/* Keeps where options were seen in what was read. */
void conf_origins_keep(struct conf_reading *reading);

/* ---- conf.c ---- */

/* All at its default. */
struct conf *conf_new(const char *path);
/* Checks what was read as a whole, and makes what is made of it. */
void conf_check_all(struct conf_reading *reading);
/* The same of what is there, whoever has said it. */
void conf_check_values(struct conf_reading *reading);
/* All is there. */
void conf_finish(struct conf *conf);

/* ---- conf_reads.c ---- */

/* What [headgate], or a server, says of reading from replicas: what cannot be … */
void conf_check_reads(struct conf_reading *reading, struct conf_part *part);
/* … of rules that have replicas read from the same, once each is sound by itself … */
void conf_check_rules_reads(struct conf_reading *reading);
/* … and, of all of them, what does nothing. */
void conf_warn_of_reads(struct conf_reading *reading);

/* A server while the file is read. */
struct conf_place {
    const struct conf_part *part;
    const struct conf *conf;
    const char *name;
};

/* How far one has gone through the servers of a file. */
struct conf_walk {
    const struct conf_part *part;
    const struct conf_rule *rule;
};

static inline struct conf_walk conf_walk_start(const struct conf_reading *reading)
{
    return (struct conf_walk){.part = reading->parts};
}

/* ---- conf_faults.c ---- */

/* Of the file as a whole. */
void conf_fault_file(struct conf_reading *reading, const char *format, ...) __attribute__((format(printf, 2, 3)));
/* Of the line that inih has. */
void conf_fault_line(struct conf_reading *reading, const char *format, ...) __attribute__((format(printf, 2, 3)));
/* Of an option; value: as it may be shown. */
void conf_fault_option(struct conf_reading *reading, const struct conf_part *part, int line, const char *name,
                       const char *value, const char *what, const char *expected);
/* What is sound but can hardly be meant; line 0: of the file's end. Takes nothing as its own. */
void conf_warn(struct conf_reading *reading, const struct conf_part *part, int line, const char *what);
/* The same of a file. */
void conf_warn_file(struct conf_reading *reading, const char *path, const char *format, ...)
    __attribute__((format(printf, 3, 4)));
/* Of an option that the part where the line stands does not have. Its value is never shown, and nothing behind a blank.
 */
void conf_fault_unknown_option(struct conf_reading *reading, const char *name);
/* Whether a name may well be another one misspelt. */
bool conf_is_like(const char *name, const char *known);

/* Of the option of the name, as it stands in the file or by default. */
void conf_fault_value(struct conf_reading *reading, struct conf_part *part, const char *name, const char *problem,
                      const char *expected);

/* ---- conf_address.c ---- */

/* The address that the text is, which may be none if the option can do without. False: problem says what is wrong, and
 * nothing is to be freed. */
bool conf_address_parse(const struct conf_option *option, const char *text, struct conf_address *address,
                        char problem[CONF_PROBLEM_MAX]);
void conf_address_free(struct conf_address *address);
/* The same for a list of as many as the option allows. */
bool conf_addresses_parse(const struct conf_option *option, const char *text, struct conf_address_list *list,
                          char problem[CONF_PROBLEM_MAX]);
void conf_addresses_free(struct conf_address_list *list);
/* The text that makes the list again. The caller frees it. */
char *conf_addresses_text(const struct conf_address_list *list);

/* host:port into an address; where default_port is not NULL, a host alone will do. */
bool conf_host_parse(const char *text, const char *default_port, struct conf_address *address,
                     char problem[CONF_PROBLEM_MAX]);
/* The path of a Unix socket into an address. */
bool conf_path_parse(const char *path, struct conf_address *address, char problem[CONF_PROBLEM_MAX]);
/* The text that makes the address again, with its password. The caller frees it. */
char *conf_address_text(const struct conf_address *address);

/* ---- conf_url.c ---- */

/* Whether the text begins as a URL does. */
bool conf_is_url(const char *text);
/* False: problem says what is wrong, and the address is the caller's to free all the same. */
bool conf_url_parse(const char *text, struct conf_address *address, char problem[CONF_PROBLEM_MAX]);
/* The URL of an address that was one. The caller frees it. */
char *conf_url_text(const struct conf_address *address);
/* An address or a list of them, sound or not, with whatever may be a secret hidden. The caller frees it. */
char *conf_hidden_url(const char *text);

/* Whether the URL is of that scheme. */
bool conf_is_scheme(const char *text, const char *scheme);
/* user:password of a URL, or a user alone, into an address. */
bool conf_userinfo_parse(const char *text, size_t length, struct conf_address *address, char problem[CONF_PROBLEM_MAX]);
/* The text with %XX as the bytes that they stand for; NULL: it is not in order. The caller frees it. */
char *conf_url_decode(const char *text, size_t length);

/* ---- conf_topology.c ---- */

/* Whether the text is a URL of sentinels or of a cluster. */
bool conf_is_topology(const char *text);
/* As conf_url_parse(), of such a one. */
bool conf_topology_parse(const char *text, struct conf_address *address, char problem[CONF_PROBLEM_MAX]);
/* Whether both are the same topology with the same seeds. */
bool conf_topology_equal(const struct conf_address *a, const struct conf_address *b);

/* ---- conf_credentials.c ---- */

/* Moves user, password and database from the addresses of a section to its other options; what contradicts them is a
 * fault. */
void conf_take_credentials(struct conf_reading *reading, struct conf_part *part);

/* ---- conf_users.c ---- */

/* Of users of Redis with several passwords. Only if there is no fault yet. */
void conf_warn_of_users(struct conf_reading *reading);

/* ---- conf_shown.c ---- */

/* What is told of the options of a file, of all that is there otherwise. */
void conf_list_make(struct conf *process);
void conf_list_free(struct conf *process);

/* ---- conf_admin.c ---- */

/* Whether the two passwords of the admin port make sense together. */
void conf_check_admin_passwords(struct conf_reading *reading);

/* ---- conf_tls.c ---- */

/* Makes what connections with TLS need, of the files that the options name; what is wrong with them is a fault. Only if
 * there is none yet. */
void conf_make_tls(struct conf_reading *reading);

/* ---- conf_server.c ---- */

/* Whether the section says one of these options. */
bool conf_part_says(const struct conf_part *part, const char *const *names, size_t count);
/* Gives servers what they do not say, and finds out whether [headgate] is one. Comes before all that looks at them. */
void conf_servers_inherit(struct conf_reading *reading);
/* The same for an option of [headgate] alone, once that is known. */
void conf_pass_on(struct conf_reading *reading, size_t option);
/* What servers lack, and names that are of none. */
void conf_check_servers(struct conf_reading *reading);
/* The names of the servers, one after the other, as conf_rule_concerns() takes them: the first for NULL, NULL behind
 * the last. */
const char *conf_view_next(const struct conf *process, const char *name);
/* The rules that concern a server, in the order of the file: their values are those of all. NULL if there are none. To
 * be freed by free(). */
struct conf_rule *conf_view_new(const struct conf_rule *all, const char *server);
/* Whether the server has this rule. */
bool conf_rule_concerns(const struct conf_rule *rule, const char *server);
/* Makes what each server goes by, of all that is there. */
void conf_servers_make(struct conf *process);

/* ---- conf_beside.c ---- */

/* Sections against each other, once each is sound by itself; of each server by themselves. */
void conf_check_beside(struct conf_reading *reading);
void conf_warn_of_rules(struct conf_reading *reading);

/* ---- conf_listener.c ---- */

/* All listeners of a process, whosever they are; as conf_listener_at(). */
size_t conf_process_listener_count(const struct conf *process);
struct conf_listener conf_process_listener_at(const struct conf *process, size_t index);

/* Terms against each other: as check() of struct conf_section. */
const char *conf_listener_check(const struct conf_listener_terms *terms, char problem[CONF_PROBLEM_MAX],
                                const char **expected);
/* The addresses of all [listener:NAME] and [server:NAME] against all others. */
void conf_check_listeners(struct conf_reading *reading);
/* … of those that serve others than this machine without a password. */
void conf_warn_of_listeners(struct conf_reading *reading);
/* Whether all clients are of this machine, by the addresses that they will be known by. */
bool conf_serves_this_machine_only(const struct conf *conf);

/* ---- conf_self.c ---- */

/* Whether who connects to the one address gets to who listens on the other, by whatever spelling; names that only
 * others know are compared as texts. */
bool conf_addresses_meet(const struct conf_address *listener, const struct conf_address *to);
/* Whether others than this machine may reach who listens there. */
bool conf_address_is_beyond(const struct conf_address *address);

/* ---- conf_files.c ---- */

/* The one that was read or checked last. */
struct conf_seen *conf_files_last(const struct conf_files *files);
/* Notes which files match a pattern of names. */
void conf_files_note_pattern(struct conf_files *files, const char *pattern);
/* The path that is meant where the file called beside says path: from the directory of that one on. The caller frees
 * it. */
char *conf_file_path(const char *beside, const char *path);
/* Reads a regular file: what it holds, with a NUL behind it: max bytes at most. NULL: problem says what is
 * wrong. The caller frees it. */
char *conf_file_read(struct conf_files *files, const char *path, size_t max, size_t *length, struct stat *status,
                     char problem[CONF_PROBLEM_MAX]);
/* Looks at all files that options name: sets what they are for, adds faults. */
void conf_look_at_files(struct conf_reading *reading);

/* ---- conf_modes.c ---- */

/* Warns if others may read or write a file with a secret; status: of what was read. */
void conf_check_mode(struct conf_reading *reading, const char *path, const struct stat *status);

/* ---- conf_change.c ---- */

/* A copy of the configuration of a file, but for what is made of it: TLS, and servers by themselves. */
struct conf *conf_clone(const struct conf *from);
/* Whether it may be in force, as conf_check_values(); makes what is made of it. False: the faults are added. */
bool conf_judge(struct conf *conf, const struct conf_section *const *sections, struct conf_faults *faults);

/* ---- conf_clients.c ---- */

/* Looks at options that name clients, once all of the file is sound otherwise. */
void conf_check_clients(struct conf_reading *reading);

/* ---- conf_text.c ---- */

/* The caller frees it. */
char *conf_copy(const char *text, size_t length);
/* Says so, and ends the program. */
_Noreturn void conf_out_of_memory(void);
/* Says what is wrong; always false, for the caller to return. */
bool conf_wrong(char problem[CONF_PROBLEM_MAX], const char *format, ...) __attribute__((format(printf, 2, 3)));
/* Reads digits of the base (at most 10); a number too large for int64_t becomes the largest one. Returns the first
 * other character. */
const char *conf_read_digits(const char *text, int base, int64_t *value);

/* Whether numbers of the type have units. */
bool conf_units_has(enum conf_type type);
/* Multiplies value by the unit in rest, which is what stands behind its digits: a point and more of them, blanks, the
 * unit. What is too large becomes INT64_MAX. False: problem says what is wrong. */
bool conf_units_apply(enum conf_type type, const char *rest, int64_t *value, char *problem);
/* With the largest unit that divides it; value is not 0. The caller frees it. */
char *conf_units_text(enum conf_type type, int64_t value);

#endif
