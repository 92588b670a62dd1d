#include "conf/networks.h"

#include "base/subnet.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define SEPARATORS " \t,"
#define WORD_SHOWN 64

struct networks {
    bool has_unix;
    size_t count;
    struct subnet items[];
};

static struct slice next_word(const char **text)
{
    *text += strspn(*text, SEPARATORS);
    struct slice word = {*text, strcspn(*text, SEPARATORS)};

    *text += word.length;
    return word;
}

static size_t count_words(const char *text)
{
    size_t count = 0;

    while (next_word(&text).length > 0) {
        count++;
    }
    return count;
}

static bool take_word(struct networks *networks, struct slice word)
{
    if (word.length == 4 && memcmp(word.data, "unix", 4) == 0) {
        networks->has_unix = true;
        return true;
    }
    return subnet_parse(&networks->items[networks->count++], word);
}

struct networks *networks_compile(const char *text, char problem[CONF_PROBLEM_MAX])
{
    size_t count = count_words(text);
    struct networks *networks = conf_alloc(NULL, sizeof *networks + count * sizeof networks->items[0]);

    *networks = (struct networks){.count = 0};
    for (; count > 0; count--) {
        struct slice word = next_word(&text);
        if (!take_word(networks, word)) {
            int shown = (int)(word.length < WORD_SHOWN ? word.length : WORD_SHOWN);
            snprintf(problem, CONF_PROBLEM_MAX, "\"%.*s\" is no address or network", shown, word.data);
            networks_free(networks);
            return NULL;
        }
    }
    return networks;
}

void networks_free(struct networks *networks)
{
    free(networks);
}

bool networks_have(const struct networks *networks, const struct sockaddr_storage *address)
{
    bool have = networks->has_unix && address->ss_family == AF_UNIX;

    for (size_t i = 0; i < networks->count && !have; i++) {
        have = subnet_has(&networks->items[i], address);
    }
    return have;
}
