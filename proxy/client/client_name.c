/*
 * Names with a NUL in them, and why they go no further. Redis finds a command in a hash table: by a hash of all bytes
 * of the name, and then by strcasecmp(), which ends at the NUL. So "FLUSHALL\0x" is FLUSHALL if its hash happens to
 * fall into the same bucket, and who tries often enough gets there; the same holds for subcommands. What it would be
 * cannot be foreseen here, and no command has such a name: it is answered as Redis answers a name that it does not
 * find.
 *
 * Source: Redis 7.0, server.c (lookupCommand, commandCheckExistence).
 */
#include "client/client_private.h"

#include "resp/word.h"

#include <ctype.h>
#include <stdio.h>

/* So much of a name, and of all arguments together, is shown by Redis. */
#define SHOWN 128
/* A name is looked at up to here. No command has one that is longer. */
#define NAME_SEEN 256

/* The argument, as far as it has come. Empty if its length is not known yet. */
static struct slice argument_so_far(const struct resp_command *framed, struct slice frame, size_t index)
{
    const struct resp_argument *argument = &framed->arguments[index];
    uint64_t here = frame.length > argument->offset ? frame.length - argument->offset : 0;

    return (struct slice){frame.data + argument->offset, (size_t)(argument->length < here ? argument->length : here)};
}

bool client_name_is_there(const struct resp_command *framed, struct slice frame)
{
    return resp_command_arguments_seen(framed) > 0 || argument_so_far(framed, frame, 0).length >= NAME_SEEN;
}

static bool has_hidden_subcommand(const struct command *command, const struct resp_command *framed, struct slice frame)
{
    return command != NULL && command_has_subcommands(command) && framed->argument_count > 1 &&
           word_has_nul(argument_so_far(framed, frame, 1));
}

bool client_name_is_hidden(const struct command *command, const struct resp_command *framed, struct slice frame)
{
    return word_has_nul(argument_so_far(framed, frame, 0)) || has_hidden_subcommand(command, framed, frame);
}

/* ---- the answer ---- */

struct text {
    char *end;
    char *limit;
};

/* At most so many bytes of it, up to a NUL, on one line. */
static void put(struct text *text, struct slice bytes, size_t most)
{
    bytes = word_before_nul(bytes);
    for (size_t i = 0; i < bytes.length && i < most && text->end < text->limit; i++) {
        bool ends_line = bytes.data[i] == '\r' || bytes.data[i] == '\n';
        *text->end++ = ends_line ? ' ' : bytes.data[i];
    }
}

static void put_text(struct text *text, const char *bytes)
{
    put(text, slice_of(bytes), SIZE_MAX);
}

/* Redis shows them until they, with their quotes, make as many bytes. */
static void put_arguments(struct text *text, const struct resp_command *framed, struct slice frame)
{
    struct resp_walk walk = resp_walk_start(frame);
    const char *first = text->end;
    struct slice argument;

    if (resp_command_arguments_seen(framed) < framed->argument_count || !resp_walk_next(&walk, &argument)) {
        return;
    }
    while (text->end - first < SHOWN && resp_walk_next(&walk, &argument)) {
        put_text(text, "'");
        put(text, argument, SHOWN - (size_t)(text->end - 1 - first));
        put_text(text, "' ");
    }
}

static void put_unknown_command(struct text *text, const struct resp_command *framed, struct slice frame)
{
    put_text(text, "-ERR unknown command '");
    put(text, argument_so_far(framed, frame, 0), SHOWN);
    put_text(text, "', with args beginning with: ");
    put_arguments(text, framed, frame);
}

static void put_unknown_subcommand(struct text *text, const struct command *command, const struct resp_command *framed,
                                   struct slice frame)
{
    put_text(text, "-ERR unknown subcommand '");
    put(text, argument_so_far(framed, frame, 1), SHOWN);
    put_text(text, "'. Try ");
    for (const char *letter = command->name; *letter != '\0' && text->end < text->limit; letter++) {
        *text->end++ = (char)toupper((unsigned char)*letter);
    }
    put_text(text, " HELP.");
}

void client_refuse_name(struct client *client, const struct command *command, const struct resp_command *framed,
                        struct slice frame)
{
    struct policy_decision decision;
    struct text text = {decision.text, decision.text + sizeof decision.text - 2};

    if (has_hidden_subcommand(command, framed, frame)) {
        put_unknown_subcommand(&text, command, framed, frame);
    } else {
        put_unknown_command(&text, framed, frame);
    }
    *text.end++ = '\r';
    *text.end++ = '\n';
    decision.length = (size_t)(text.end - decision.text);
    client_refuse(client, &decision);
}
