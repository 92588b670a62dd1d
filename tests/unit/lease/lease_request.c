#include "lease_request.h"

#include "../../support/frame.h"

#include <criterion/criterion.h>
#include <stdlib.h>

struct request request_of_words(const struct slice *words, size_t count)
{
    struct slice frame = frame_of_words(words, count);

    return (struct request){.bytes = (char *)frame.data, .length = frame.length, .command = command_find(words[0])};
}

void request_read(struct request *request)
{
    lease_shape_read(&request->shape, request->command, (struct slice){request->bytes, request->length}, NULL, NULL);
}

struct request request_of(const char *text)
{
    struct slice words[FRAME_WORDS_MAX];
    struct request made = request_of_words(words, frame_split(text, words));

    cr_assert_not_null(made.command, "%s", text);
    request_read(&made);
    return made;
}

enum lease_action request_action(const char *text)
{
    struct request made = request_of(text);
    enum lease_action action = made.shape.action;

    free(made.bytes);
    return action;
}

void request_check_runs(const struct request *request)
{
    struct resp_walk keys = request->shape.keys;
    struct slice argument;
    uint32_t count = 0;

    while (lease_shape_next_key(&keys, request->shape.key_step, &argument)) {
        cr_assert(argument.data >= request->bytes && argument.length <= request->length &&
                  argument.data + argument.length <= request->bytes + request->length);
        count++;
    }
    cr_assert_leq(count, request->shape.key_count);
    struct resp_walk tokens = request->shape.tokens;
    while (resp_walk_next(&tokens, &argument)) {
        cr_assert(argument.data + argument.length <= request->bytes + request->length);
    }
}

uint32_t next_random(uint32_t *state)
{
    *state ^= *state << 13;
    *state ^= *state >> 17;
    *state ^= *state << 5;
    return *state;
}

struct slice word_of(const char *list, size_t place)
{
    for (; place > 0; place--) {
        list += strcspn(list, "|");
        if (*list++ == '\0') {
            return (struct slice){NULL, 0};
        }
    }
    return (struct slice){list, strcspn(list, "|")};
}
