/*
 * Manual pages, in the language of man(7): what is text is escaped, so that nothing in it is taken for a request, and
 * quotes, minus signs and the like come out as they were, also for who copies them. All of it is ASCII.
 */
#ifndef HEADGATE_ROFF_H
#define HEADGATE_ROFF_H

#include <stdio.h>

/* The title of the page. date: as "2026-01-31"; source: whose page it is, with its version. */
void roff_head(FILE *out, const char *title, int section, const char *date, const char *source);
/* What a text begins: a heading, which is its first line; one below that; a paragraph, or one within an entry; nothing.
 */
#define ROFF_HEADING ".SH "
#define ROFF_SUBHEADING ".SS "
#define ROFF_PARAGRAPH ".PP\n"
#define ROFF_ENTRY_PARAGRAPH ".IP\n"
#define ROFF_GO_ON ""

/* Text of one or more lines, which are filled; text is UTF-8. begins: one of those above. */
void roff_text(FILE *out, const char *begins, const char *text);
/* An entry of a list: its name, bold; argument, in italics, may be NULL. What is written next is what it means. */
void roff_entry(FILE *out, const char *name, const char *argument);
/* Lines that are shown as they are. */
void roff_example(FILE *out, const char *lines);
/* Other pages: "headgate.ini(5), redis-cli(1)". */
void roff_see_also(FILE *out, const char *pages);

#endif
