#include "conf/networks.h"

#include "base/subnet.h"
#include "conf/words.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct networks {
    bool has_unix;
    size_t count;
    struct subnet items[];
};

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
    size_t count = words_count(text);
    struct slice word;
    struct networks *networks = conf_alloc(NULL, sizeof *networks + count * sizeof networks->items[0]);

    *networks = (struct networks){.count = 0};
    while (words_next(&text, &word)) {
        if (!take_word(networks, word)) {
            (void)conf_fault_word(problem, word, "is no address or network");
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
