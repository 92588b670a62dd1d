#include "latency/latency_excerpt.h"

#include <assert.h>
#include <inttypes.h>
#include <string.h>
#include <strings.h>

#define REDACTED "(redacted)"
/* In place of the name. */
#define UNKNOWN "(unknown command)"

/* ---- secrets ---- */

static bool is_version(struct slice text)
{
    return text.length == 1 && text.data[0] >= '0' && text.data[0] <= '9';
}

/* What is known of the command up to an argument. */
struct context {
    const struct command *command; /* NULL: not one of those that have secrets behind a subcommand */
    uint64_t index;                /* of the argument */
    uint64_t from;                 /* it and all behind it are secret from this index on */
    uint64_t secrets;              /* so many of the next ones are secret */
    bool is_hello;
    bool is_sentinel; /* which the table does not have */
    bool is_config;
    bool is_migrate;
    bool asks_for_keys;   /* COMMAND GETKEYS, of a command that may be any */
    uint64_t script_most; /* a script may stand up to this index; 0: it has none */
};

struct search {
    struct slice wanted;
    bool is_found;
};

static void look_at_subcommand(void *context, const char *name, uint32_t categories)
{
    struct search *search = context;

    (void)categories;
    search->is_found = search->is_found || word_is(search->wanted, name);
}

/* One that is misspelt is none, and may be followed by what the right one would be. */
static bool is_subcommand(const struct command *command, struct slice name)
{
    struct search search = {.wanted = name};

    command_visit_subcommands(command, look_at_subcommand, &search);
    return search.is_found;
}

/* "EVAL script", "SCRIPT LOAD script", "FUNCTION LOAD REPLACE script" */
static uint64_t script_most(struct slice name)
{
    if (word_is(name, "function")) {
        return 3;
    }
    if (word_is(name, "script")) {
        return 2;
    }
    return word_is(name, "eval") || word_is(name, "eval_ro") ? 1 : 0;
}

static void look_at_name(struct context *context, struct slice name)
{
    bool has_secrets = false;

    context->from = UINT64_MAX;
    if (word_is(name, "auth")) {
        context->from = 1;
    } else if (word_is(name, "acl")) {
        context->from = 2;
        has_secrets = true;
    } else if (word_is(name, "sentinel") || word_is(name, "module")) {
        context->from = 3;
        has_secrets = true;
    }
    context->is_hello = word_is(name, "hello");
    context->is_sentinel = word_is(name, "sentinel");
    context->is_config = word_is(name, "config");
    context->is_migrate = word_is(name, "migrate");
    context->asks_for_keys = word_is(name, "command");
    context->script_most = script_most(name);
    context->command = has_secrets || context->is_config ? command_find(name) : NULL;
}

static bool holds(struct slice text, const char *part)
{
    size_t length = strlen(part);

    for (size_t i = 0; i + length <= text.length; i++) {
        if (strncasecmp(text.data + i, part, length) == 0) {
            return true;
        }
    }
    return false;
}

/* A script that logs in somewhere, or sets a password, may have it in its text, or get it as an argument. */
static bool may_log_in(struct slice script)
{
    return holds(script, "auth") || holds(script, "pass");
}

/* "SET requirepass=secret" */
static bool is_name(struct slice argument)
{
    for (size_t i = 0; i < argument.length; i++) {
        char c = argument.data[i];
        if (!(c >= 'a' && c <= 'z') && !(c >= 'A' && c <= 'Z') && c != '-' && c != '_') {
            return false;
        }
    }
    return true;
}

static void look_at_argument(struct context *context, struct slice argument)
{
    if (context->index == 1 && context->command != NULL && !is_subcommand(context->command, argument)) {
        context->from = 1;
    } else if (context->index == 1 && context->is_sentinel) {
        context->from = word_is(argument, "set") || word_is(argument, "config") ? 3 : 1;
    } else if (context->index == 1 && context->is_hello) {
        context->from = is_version(argument) ? 2 : 1;
    } else if (context->index == 1 && context->is_config && word_is(argument, "set")) {
        context->from = 3;
    } else if (context->index == 2 && context->is_config && context->from == 3 && !is_name(argument)) {
        context->from = 2;
    } else if (context->index == 1 && context->asks_for_keys && holds(argument, "getkeys")) {
        context->from = 3;
    } else if (context->index <= context->script_most && may_log_in(argument)) {
        context->from = context->index;
    }
}

/* Of MIGRATE. What is no option of it where options stand may be one that is misspelt, or what follows that. */
static bool is_secret_of_migrate(struct context *context, struct slice argument)
{
    if (context->secrets > 0) {
        context->secrets--;
        return true;
    }
    if (word_is(argument, "auth") || word_is(argument, "auth2")) {
        context->secrets = word_is(argument, "auth") ? 1 : 2;
        return false;
    }
    if (word_is(argument, "keys")) {
        context->is_migrate = false;
        return false;
    }
    return context->index > 5 && !word_is(argument, "copy") && !word_is(argument, "replace");
}

/* Whether the next argument is to be hidden. */
static bool is_secret(struct context *context, struct slice argument)
{
    if (context->index == 0) {
        look_at_name(context, argument);
    } else {
        look_at_argument(context, argument);
    }
    bool secret = context->index >= context->from;
    secret = (context->index > 0 && context->is_migrate && is_secret_of_migrate(context, argument)) || secret;
    context->index++;
    return secret;
}

/* ---- what is no value ---- */

static bool note_key(void *context, struct slice key, uint32_t index)
{
    uint32_t *plain = context;

    (void)key;
    *plain |= index < LATENCY_EXCERPT_ARGUMENTS ? UINT32_C(1) << index : 0;
    return index < LATENCY_EXCERPT_ARGUMENTS;
}

static_assert(LATENCY_EXCERPT_ARGUMENTS <= 32, "an argument is a bit of a word");

/* Bit n: argument n is the name, the subcommand or a key that is there whole. Of a command that the table does not have
 * it is not known which are. */
static uint32_t find_plain(struct slice frame)
{
    const struct command *command = command_find(latency_excerpt_name(frame));
    struct resp_walk walk = resp_walk_start(frame);
    struct slice argument;
    uint32_t plain = 1;

    if (command == NULL) {
        return plain;
    }
    command_visit_keys(command, frame, note_key, &plain);
    if (command_has_subcommands(command) && resp_walk_skip(&walk, 1) && resp_walk_next(&walk, &argument) &&
        is_subcommand(command, argument)) {
        plain |= 2;
    }
    return plain;
}

/* ---- the excerpt: of each argument a byte with its length, and the text ---- */

static char *put(char *out, struct slice text, const char *rest, uint64_t more)
{
    char *length = out++;

    memcpy(out, text.data, text.length);
    out += text.length;
    if (more > 0) {
        out += snprintf(out, 39, "... (%" PRIu64 " more %s)", more, rest);
    }
    assert(out - length - 1 <= UINT8_MAX);
    *length = (char)(unsigned char)(out - length - 1);
    return out;
}

/* length: of the whole. */
static char *put_argument(char *out, struct slice argument, uint64_t length)
{
    uint64_t shown = argument.length < LATENCY_EXCERPT_BYTES ? argument.length : LATENCY_EXCERPT_BYTES;

    return put(out, (struct slice){argument.data, shown}, "bytes", length - shown);
}

static char *put_length(char *out, uint64_t length)
{
    char text[40];

    snprintf(text, sizeof text, "(%" PRIu64 " %s)", length, length == 1 ? "byte" : "bytes");
    return put(out, slice_of(text), "", 0);
}

struct slice latency_excerpt_name(struct slice frame)
{
    struct resp_walk walk = resp_walk_start(frame);
    struct slice name;
    uint64_t length;

    return resp_walk_part(&walk, &name, &length) && name.length == length ? name : (struct slice){0};
}

size_t latency_excerpt_make(struct slice frame, enum latency_excerpt_scope scope, char out[LATENCY_EXCERPT_MAX])
{
    bool is_known = scope != LATENCY_EXCERPT_NOTHING;
    uint32_t plain = scope == LATENCY_EXCERPT_KEYS ? find_plain(frame) : UINT32_MAX;
    struct context context = {0};
    struct resp_walk walk = resp_walk_start(frame);
    struct slice argument;
    uint64_t length;
    char *end = out;

    /* The last place is for how many more there are. */
    uint32_t left = walk.left;
    uint32_t room = left > LATENCY_EXCERPT_ARGUMENTS ? LATENCY_EXCERPT_ARGUMENTS - 1 : LATENCY_EXCERPT_ARGUMENTS;
    for (; room > 0 && resp_walk_part(&walk, &argument, &length); room--, left--, plain >>= 1) {
        const char *shown = is_known || end > out ? REDACTED : UNKNOWN;
        bool secret = is_secret(&context, argument) || !is_known;
        if (secret) {
            end = put(end, slice_of(shown), "", 0);
        } else {
            end = (plain & 1) != 0 ? put_argument(end, argument, length) : put_length(end, length);
        }
    }
    if (left > 0 && end > out) {
        end = put(end, (struct slice){"", 0}, "arguments", left);
    }
    return (size_t)(end - out);
}

static bool next_argument(struct slice *excerpt, struct slice *argument)
{
    if (excerpt->length == 0) {
        return false;
    }
    size_t length = (unsigned char)excerpt->data[0];
    assert(length < excerpt->length);
    *argument = (struct slice){excerpt->data + 1, length};
    excerpt->data += 1 + length;
    excerpt->length -= 1 + length;
    return true;
}

/* ---- showing it ---- */

static void print_byte(unsigned char byte, FILE *out)
{
    static const char marks[] = "\\\"\n\r\t\a\b", letters[] = "\\\"nrtab";
    const char *mark = byte == '\0' ? NULL : strchr(marks, byte);

    if (mark != NULL) {
        fprintf(out, "\\%c", letters[mark - marks]);
    } else if (byte >= ' ' && byte <= '~') {
        fputc(byte, out);
    } else {
        fprintf(out, "\\x%02x", byte);
    }
}

void latency_excerpt_print_text(struct slice text, FILE *out)
{
    fputc('"', out);
    for (size_t i = 0; i < text.length; i++) {
        print_byte((unsigned char)text.data[i], out);
    }
    fputc('"', out);
}

void latency_excerpt_print(struct slice excerpt, FILE *out)
{
    struct slice argument;
    const char *before = "";

    while (next_argument(&excerpt, &argument)) {
        fputs(before, out);
        latency_excerpt_print_text(argument, out);
        before = " ";
    }
}
