/* A file of options in a directory of its own, and what conf_load() makes of it. */
#ifndef HEADGATE_TESTS_CONF_FILE_H
#define HEADGATE_TESTS_CONF_FILE_H

#include "conf_fixture.h"

#define COUNT_OF(array) (sizeof(array) / sizeof((array)[0]))

struct conf_file {
    char directory[64];
    char path[96];
    struct conf *conf;
    struct conf_faults faults;
};

/* Loads what the file holds; drop_file() is due. It has either a configuration or faults. */
void load_bytes(struct conf_file *file, const char *bytes, size_t length);
void load_file(struct conf_file *file, const char *text);
void drop_file(struct conf_file *file);
/* The same, and it has to be sound. */
void assert_loads(struct conf_file *file, const char *text);

/* The number that this text sets the option to. */
int64_t load_number(const char *option, const char *value);

/* A fault without the directory of the file: "h.ini:2: ...". */
const char *fault_at(const struct conf_file *file, size_t index);
/* The file has these faults, and no other. */
void assert_faults(const char *bytes, size_t length, size_t count, const char *const *expected);
void assert_fault(const char *text, const char *expected);
/* Loads one option and expects one fault that contains what. */
void assert_refused(const char *option, const char *value, const char *what);

/* What there is without a file, which is the caller's. */
struct conf *default_conf(void);

#endif
