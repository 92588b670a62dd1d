/*
 * What a name server would say, as a test wants it: a library to be preloaded, whose getaddrinfo() finds names in the
 * file that HEADGATE_TEST_NAMES is the path of, read anew each time. Other names are the system's.
 *
 *   redis.test 127.0.0.2 127.0.0.3    its addresses, in that order
 *   redis.test !                      the name server does not answer
 *   redis.test ?                      there is no such name
 *   redis.test ~3000 127.0.0.2        … which takes so many milliseconds
 */
#include <dlfcn.h>
#include <netdb.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define LINE 1024

typedef int lookup(const char *node, const char *service, const struct addrinfo *hints, struct addrinfo **found);

static int system_lookup(const char *node, const char *service, const struct addrinfo *hints, struct addrinfo **found)
{
    lookup *next;

    *(void **)&next = dlsym(RTLD_NEXT, "getaddrinfo");
    return next(node, service, hints, found);
}

/* The rest of the line that begins with the name, in line; NULL if there is none. */
static char *find_line(const char *path, const char *name, char line[LINE])
{
    FILE *file = fopen(path, "re");
    size_t length = strlen(name);
    char *rest = NULL;

    while (file != NULL && rest == NULL && fgets(line, LINE, file) != NULL) {
        line[strcspn(line, "\n")] = '\0';
        if (strncmp(line, name, length) == 0 && line[length] == ' ') {
            rest = line + length;
        }
    }
    if (file != NULL) {
        fclose(file);
    }
    return rest;
}

static int add(const char *address, const char *service, const struct addrinfo *hints, struct addrinfo ***end)
{
    int status = system_lookup(address, service, hints, *end);

    while (status == 0 && **end != NULL) {
        *end = &(**end)->ai_next;
    }
    return status;
}

static int answer(char *words, const char *service, const struct addrinfo *hints, struct addrinfo **found)
{
    struct addrinfo **end = found;
    int status = EAI_NONAME;
    char *rest;

    *found = NULL;
    for (char *word = strtok_r(words, " ", &rest); word != NULL; word = strtok_r(NULL, " ", &rest)) {
        if (*word == '~') {
            usleep((useconds_t)strtoul(word + 1, NULL, 10) * 1000);
        } else if (*word == '!' || *word == '?') {
            return *word == '!' ? EAI_AGAIN : EAI_NONAME;
        } else {
            status = add(word, service, hints, &end);
        }
    }
    return status;
}

__attribute__((visibility("default"))) int getaddrinfo(const char *node, const char *service,
                                                       const struct addrinfo *hints, struct addrinfo **found)
{
    const char *path = getenv("HEADGATE_TEST_NAMES");
    char line[LINE];
    int is_numeric = hints != NULL && (hints->ai_flags & AI_NUMERICHOST) != 0;
    char *words = path != NULL && node != NULL && !is_numeric ? find_line(path, node, line) : NULL;

    return words != NULL ? answer(words, service, hints, found) : system_lookup(node, service, hints, found);
}
