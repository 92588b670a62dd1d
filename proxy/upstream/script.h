/* The Lua scripts of lua/, embedded at build time with their digests. */
#ifndef HEADGATE_SCRIPT_H
#define HEADGATE_SCRIPT_H

#include <stddef.h>

struct script {
    const char *name; /* of the file, without ".lua" */
    const char *text;
    size_t length;
    const char *sha1; /* 40 hexadecimal digits: what EVALSHA wants */
};

/* Ends with a script whose name is NULL. */
extern const struct script scripts[];

/* The script of that name; there must be one. */
const struct script *script_find(const char *name);

#endif
