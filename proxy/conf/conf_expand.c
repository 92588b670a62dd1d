/* ${NAME} in values, which stands for a variable of the environment; ${NAME:-text} for the text if that is empty or not
 * set. $${ is ${ itself, and any other $ is one. What a variable holds is taken as it is. */
#include "conf/conf_private.h"

#include <stdlib.h>
#include <string.h>

#define NAME_MAX_BYTES 128

struct expansion {
    char *text;
    size_t length;
    bool hides; /* names of variables, which may be parts of a secret with a ${ in it */
};

static void add(struct expansion *expansion, const char *bytes, size_t length)
{
    char *longer = conf_alloc(NULL, expansion->length + length + 1);

    if (expansion->text != NULL) {
        memcpy(longer, expansion->text, expansion->length);
        explicit_bzero(expansion->text, expansion->length);
        free(expansion->text);
    }
    memcpy(longer + expansion->length, bytes, length);
    expansion->text = longer;
    expansion->length += length;
    expansion->text[expansion->length] = '\0';
}

static bool is_name(const char *name, size_t length)
{
    static const char letters[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ_0123456789";

    return length > 0 && length < NAME_MAX_BYTES && strspn(name, letters) >= length && !(*name >= '0' && *name <= '9');
}

/* A newline would be one within a password, and what else is no text is a mistake. */
static bool check_content(const struct expansion *expansion, const char *name, const char *content, char *problem)
{
    for (; *content != '\0'; content++) {
        if ((unsigned char)*content < ' ' || *content == 0x7f) {
            return expansion->hides ? conf_wrong(problem, "has a control character in a variable")
                                    : conf_wrong(problem, "has a control character in the variable %s", name);
        }
    }
    return true;
}

static bool add_variable(struct expansion *expansion, const char *name, const char *otherwise, size_t otherwise_length,
                         char *problem)
{
    const char *content = getenv(name);

    if (otherwise != NULL && (content == NULL || *content == '\0')) {
        add(expansion, otherwise, otherwise_length);
        return true;
    }
    if (content == NULL) {
        return expansion->hides ? conf_wrong(problem, "names a variable that is not set ($${ is ${ itself)")
                                : conf_wrong(problem, "names the variable %s, which is not set", name);
    }
    add(expansion, content, strlen(content));
    return check_content(expansion, name, content, problem);
}

/* text is what follows a "${"; *taken: how much of it is the reference. */
static bool add_reference(struct expansion *expansion, const char *text, size_t *taken, char *problem)
{
    size_t length = strcspn(text, "}");
    const char *otherwise = memmem(text, length, ":-", 2);
    size_t name_length = otherwise != NULL ? (size_t)(otherwise - text) : length;
    char name[NAME_MAX_BYTES];

    if (text[length] == '\0' || !is_name(text, name_length)) {
        return conf_wrong(problem, "has a ${ without the name of a variable and a } behind it ($${ is ${ itself)");
    }
    memcpy(name, text, name_length);
    name[name_length] = '\0';
    *taken = length + 1;
    return add_variable(expansion, name, otherwise != NULL ? otherwise + 2 : NULL,
                        otherwise != NULL ? length - name_length - 2 : 0, problem);
}

/* "${NAME}" and nothing else. */
static bool is_one_reference(const char *text)
{
    const char *end = strchr(text, '}');

    return strncmp(text, "${", 2) == 0 && end != NULL && end[1] == '\0' && is_name(text + 2, (size_t)(end - text - 2));
}

char *conf_expand(const char *text, bool hides, char problem[CONF_PROBLEM_MAX])
{
    struct expansion expansion = {.hides = hides && !is_one_reference(text)};
    bool sound = true;

    add(&expansion, "", 0);
    while (*text != '\0' && sound) {
        size_t taken = 1;
        if (strncmp(text, "$${", 3) == 0) {
            add(&expansion, "${", 2);
            taken = 3;
        } else if (strncmp(text, "${", 2) == 0) {
            sound = add_reference(&expansion, text + 2, &taken, problem);
            taken += 2;
        } else {
            taken = 1 + strcspn(text + 1, "$");
            add(&expansion, text, taken);
        }
        text += sound ? taken : 0;
    }
    if (!sound) {
        explicit_bzero(expansion.text, expansion.length);
        free(expansion.text);
        return NULL;
    }
    return expansion.text;
}

char *conf_unexpand(const char *text)
{
    size_t count = 0;
    for (const char *at = text; (at = strstr(at, "${")) != NULL; at += 2) {
        count++;
    }
    char *result = conf_alloc(NULL, strlen(text) + count + 1), *to = result;
    while (*text != '\0') {
        if (strncmp(text, "${", 2) == 0) {
            *to++ = '$';
        }
        *to++ = *text++;
    }
    *to = '\0';
    return result;
}
