/* Strings of JSON. */
#ifndef HEADGATE_JSON_H
#define HEADGATE_JSON_H

#include <stddef.h>
#include <stdio.h>

/* A string with its quotes; bytes that are no printable ASCII become escapes that a person can read. */
void json_string(FILE *out, const char *text, size_t length);
/* A field of an object whose value is a string, and the comma behind it. */
void json_field(FILE *out, const char *name, const char *text);

#endif
