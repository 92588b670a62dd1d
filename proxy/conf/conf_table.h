/*
 * Option tables and the values they speak of. conf_table.c holds the one of [headgate] and prints the reference, each
 * policy brings the one of its rules, conf.c reads files by them, conf_values.c and conf_address.c turn text into
 * values and back, and conf_rules.c keeps them as rules.
 */
#ifndef HEADGATE_CONF_TABLE_H
#define HEADGATE_CONF_TABLE_H

#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "conf/conf.h"

#define CONF_SECTION "headgate"
#define CONF_SECRET_SHOWN "********"
#define CONF_PROBLEM_MAX 256

/* The field behind an option of each type. */
enum conf_type {
    CONF_ADDRESS,   /* struct conf_address */
    CONF_ADDRESSES, /* struct conf_address_list */
    CONF_STRING,    /* char *, never NULL */
    CONF_FILE,      /* the same: the path of a file that is looked at when the configuration is read; "" for none */
    CONF_INTEGER,   /* int64_t, and so the next five */
    CONF_MODE,
    CONF_SIZE,
    CONF_AMOUNT, /* requests or bytes: read as a size, written as a number */
    CONF_TIME,   /* milliseconds */
    CONF_PERIOD, /* microseconds, for what cannot do with milliseconds */
    CONF_RATE,   /* struct conf_rate */
    CONF_WORD,   /* int or an enum: the word's index in words */
    CONF_TOGGLE, /* int: 0 for off, 1 for on */
};

/* Which of several servers an option is for. */
enum conf_reach {
    CONF_REACH_SERVER,  /* each one's own; what [server:NAME] does not say is as in [headgate] */
    CONF_REACH_ADDRESS, /* each one's own: what belongs to its addresses is nobody else's, a password above all */
    CONF_REACH_PROCESS, /* of all together: it stands in [headgate] only */
};

struct conf_option {
    const char *name;
    enum conf_type type;
    size_t offset; /* of the field in the structure that the section fills */
    int64_t min;   /* bounds of a number, of a rate's amount, of the length of a string, of the count of addresses */
    int64_t max;
    const char *zero;         /* what 0, or no address at all, means where that is allowed; else NULL */
    const char *const *words; /* of CONF_WORD, ends with NULL */
    const char *initial;      /* the default, as it would stand in the file */
    const char *help;         /* one to three lines */
    bool reloadable;
    /* Of a reloadable option: those that take a restart, between blanks, by which it stands; NULL: none. While one of
     * them in its section, or with * behind the name in any, is to be otherwise after a restart, this one waits too. */
    const char *waits_with;
    bool secret;           /* the value appears in no fault and no log; of CONF_FILE: what the file holds is a secret */
    const char *fills;     /* of CONF_FILE: the option of the section whose value is what the file holds; else NULL */
    bool takes_topology;   /* of CONF_ADDRESS: it may name sentinels or a cluster */
    bool names_clients;    /* the text is sound if the section with check_clients() says so */
    bool names_servers;    /* the text is a list of names of servers; empty: all of them */
    bool is_guarded;       /* it says who may do what, or where is written: it is set in the file only */
    enum conf_reach reach; /* of options of [headgate] */
};

/* So much in so long. */
struct conf_rate {
    int64_t amount; /* 0: none, and then so is the period */
    int64_t period_us;
};

extern const struct conf_option conf_options[];
extern const size_t conf_option_count;

/* Of the NAME in [section:NAME], in bytes. */
#define CONF_RULE_NAME_MAX 32

/* An option of former versions, and what there is in its place. */
struct conf_former {
    const char *name, *instead;
};

/* A section of the file and the structure that it fills. */
struct conf_section {
    const char *name;
    bool has_rules; /* it is [name:NAME], and may stand there under many names; else [name], once */
    const struct conf_option *options;
    size_t option_count;
    size_t values_size;
    const char *help; /* what it is for: one to three lines for the reference */
    /*
     * May be NULL. Looks at options together, once each of them is sound. The name of the option at fault, with what is
     * wrong in problem and what was expected in *expected; NULL if there is none.
     */
    const char *(*check)(const void *values, char problem[CONF_PROBLEM_MAX], const char **expected);
    /* May be NULL. The same for a rule among all of the file, once each is sound by itself. */
    const char *(*check_beside)(const struct conf_rule *rule, const struct conf_rule *all,
                                char problem[CONF_PROBLEM_MAX], const char **expected);
    /* May be NULL: never. Whether what the section asks for takes scripts in the Redis of the clients. */
    bool (*runs_scripts)(const struct conf_rule *rule);
    /* May be NULL. Whether there is something that can hardly be meant, though it is sound; problem says what. */
    bool (*warns)(const struct conf_rule *rule, const struct conf_rule *all, char problem[CONF_PROBLEM_MAX]);
    /* May be NULL; one section of a build has it. Whether the text of an option that names clients is sound beside
     * these rules, with what is wrong in problem and what was expected in *expected. */
    bool (*check_clients)(const char *text, const struct conf_rule *rules, char problem[CONF_PROBLEM_MAX],
                          const char **expected);
    /* May be NULL: never. The option by which the rule tells clients apart by their addresses, or NULL. */
    const char *(*by_address)(const struct conf_rule *rule);
    /* May be NULL: never. Whether the rule has requests answered by replicas, whatever the server's option reads is. */
    bool (*reads_replicas)(const struct conf_rule *rule);
    /* Options that it had once, up to one without a name; NULL: none. */
    const struct conf_former *former;
};

/* [headgate]; its values are struct conf. */
extern const struct conf_section conf_section_headgate;

/* [server:NAME]: the options of [headgate], but for those of the process; its values are struct conf. */
extern const struct conf_section conf_section_server;

/* The row of the option by which a rule names the servers that it concerns, for a table that fills a structure of that
 * type, which has their names in that member: char *. */
#define CONF_SERVERS_OPTION(structure, member)                                                                         \
    {                                                                                                                  \
        .name = "servers", .offset = offsetof(structure, member), .type = CONF_STRING, .max = CONF_SERVERS_TEXT_MAX,   \
        .initial = "", .reloadable = true, .names_servers = true,                                                      \
        .help =                                                                                                        \
            "The servers that this concerns: NAMEs of [server:NAME], and default for that of [headgate]. Empty: all."  \
    }

/* [listener:NAME]; its values are struct conf_listener_section (conf_listener.h). */
extern const struct conf_section conf_section_listener;

/* The section's option of that name; NULL if it has none. */
const struct conf_option *conf_section_option(const struct conf_section *section, const char *name);

/*
 * Sets the option's field in the structure at base from text, as it stands after the "=". The field holds a value or
 * zero bytes, and what it owned is freed. False: the field is as before and problem says what is wrong.
 */
bool conf_value_set(const struct conf_option *option, void *base, const char *text, char problem[CONF_PROBLEM_MAX]);

/* The text from which conf_value_set() makes the same value again. The caller frees it. */
char *conf_value_text(const struct conf_option *option, const void *base);

/* The same as it may be shown to others: without secrets. The caller frees it. */
char *conf_value_shown(const struct conf_option *option, const void *base);
/* Whether the value may be shown to nobody. */
bool conf_option_hides(const struct conf_option *option);

/* Whether the value may be set at run time, by who may change things on the admin port. */
bool conf_option_is_settable(const struct conf_option *option);

/* The option by whose file the value of this one is given; NULL: it is from the ini file. */
const struct conf_option *conf_value_file(const struct conf_section *section, const struct conf_option *option,
                                          const void *values);

/* Whether the option's value is what the file of another option of the section holds, and not from the ini file. */
bool conf_value_is_of_file(const struct conf_section *section, const struct conf_option *option, const void *values);

/* What may stand after the "=", for faults and the reference. The caller frees it. */
char *conf_value_expected(const struct conf_option *option);

void conf_value_free(const struct conf_option *option, void *base);

/* Sets the option's field at to from that at from. */
void conf_value_copy(const struct conf_option *option, void *to, const void *from);

/* Whether the field is the same in both. */
bool conf_value_equal(const struct conf_option *option, const void *a, const void *b);

/* All values of a section: sets them to their defaults, frees what they own. */
void conf_values_default(const struct conf_section *section, void *values);
void conf_values_free(const struct conf_section *section, void *values);

/* A rule with the defaults of its section; line: of its heading. */
struct conf_rule *conf_rule_new(const struct conf_section *section, const char *name, int line);
/* A copy of one rule, and of all that is in it. */
struct conf_rule *conf_rule_copy(const struct conf_rule *from);
/* A list of rules, and all that is in them. */
struct conf_rule *conf_rules_copy(const struct conf_rule *from);
void conf_rules_free(struct conf_rule *rule);
/* The rule of the list that has the same heading, or NULL. */
const struct conf_rule *conf_rule_find(const struct conf_rule *list, const struct conf_rule *wanted);
/* How many of the list are of the section. */
size_t conf_rules_count(const struct conf_rule *list, const struct conf_section *section);
/* The first of the list that is of the section; NULL if none is. */
const struct conf_rule *conf_rules_first(const struct conf_rule *list, const struct conf_section *section);

/* The first of the list that takes scripts in the Redis of the clients; NULL if none does. */
const struct conf_rule *conf_rules_with_scripts(const struct conf_rule *list);

/* Whether they are the same place, whatever is spoken there and as whom. */
bool conf_address_equal(const struct conf_address *a, const struct conf_address *b);

/*
 * Memory for a configuration. It is small, and without it the program can neither start nor take a reload, so running
 * out of it ends the program with a message: these never return NULL.
 */
void *conf_alloc(void *old, size_t size);
char *conf_vformat(const char *format, va_list arguments) __attribute__((format(printf, 1, 0)));
char *conf_format(const char *format, ...) __attribute__((format(printf, 1, 2)));

/* Says in problem what is wrong with a word of an option's. Always false. */
bool conf_fault_word(char problem[CONF_PROBLEM_MAX], struct slice word, const char *what);

#endif
