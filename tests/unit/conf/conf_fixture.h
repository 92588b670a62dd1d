/* Files of options, as tests write them, and how they print again. */
#ifndef HEADGATE_TESTS_CONF_FIXTURE_H
#define HEADGATE_TESTS_CONF_FIXTURE_H

#include "conf/conf.h"
#include "conf/conf_table.h"

/* Loads the text as a file called h.ini, which has to be sound; the caller's. */
struct conf *load_conf(const char *text, const struct conf_section *const *sections);
/* It has one fault, with that in what is said of it. */
void assert_conf_fault(const char *text, const struct conf_section *const *sections, const char *expected);

/* conf_merge_reloadable(), which has to be sound. */
struct conf *merge_conf(const struct conf *old, const struct conf *fresh, const struct conf_section *const *sections);

/* Appends the name to the text that context is the place of, for conf_restart_only_changes(). */
void note_option(void *context, const char *option);

/* What conf_print() prints; the caller frees it. */
char *print_conf(const struct conf *conf, bool show_secrets);

#endif
