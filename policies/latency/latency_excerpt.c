#include "latency/latency_excerpt.h"

#include <assert.h>
#include <inttypes.h>
#include <string.h>

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
    uint64_t index;   /* of the argument */
    uint64_t from;    /* it and all behind it are secret from this index on */
    uint64_t secrets; /* so many of the next ones are secret */
    bool is_hello;
    bool is_config;
    bool is_migrate;
};

static void look_at_name(struct context *context, struct slice name)
{
    context->from = UINT64_MAX;
    if (word_is(name, "auth")) {
        context->from = 1;
    } else if (word_is(name, "acl")) {
        context->from = 2;
    } else if (word_is(name, "sentinel") || word_is(name, "module")) {
        context->from = 3;
    }
    context->is_hello = word_is(name, "hello");
    context->is_config = word_is(name, "config");
    context->is_migrate = word_is(name, "migrate");
}

/* Whether the next argument is to be hidden. */
static bool is_secret(struct context *context, struct slice argument)
{
    if (context->index == 0) {
        look_at_name(context, argument);
    }
    if (context->index == 1 && context->is_hello) {
        context->from = is_version(argument) ? 2 : 1;
    }
    if (context->index == 1 && context->is_config && word_is(argument, "set")) {
        context->from = 3;
    }
    bool secret = context->index >= context->from || context->secrets > 0;
    if (context->secrets > 0) {
        context->secrets--;
    } else if (context->is_migrate && word_is(argument, "auth")) {
        context->secrets = 1;
    } else if (context->is_migrate && word_is(argument, "auth2")) {
        context->secrets = 2;
    } else if (context->is_migrate && word_is(argument, "keys")) {
        context->is_migrate = false;
    }
    context->index++;
    return secret;
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

struct slice latency_excerpt_name(struct slice frame)
{
    struct resp_walk walk = resp_walk_start(frame);
    struct slice name;
    uint64_t length;

    return resp_walk_part(&walk, &name, &length) && name.length == length ? name : (struct slice){0};
}

size_t latency_excerpt_make(struct slice frame, bool is_known, char out[LATENCY_EXCERPT_MAX])
{
    struct context context = {0};
    struct resp_walk walk = resp_walk_start(frame);
    struct slice argument;
    uint64_t length;
    char *end = out;

    /* The last place is for how many more there are. */
    uint32_t left = walk.left;
    uint32_t room = left > LATENCY_EXCERPT_ARGUMENTS ? LATENCY_EXCERPT_ARGUMENTS - 1 : LATENCY_EXCERPT_ARGUMENTS;
    for (; room > 0 && resp_walk_part(&walk, &argument, &length); room--, left--) {
        const char *shown = is_known || end > out ? REDACTED : UNKNOWN;
        bool secret = is_secret(&context, argument) || !is_known;
        end = secret ? put(end, slice_of(shown), "", 0) : put_argument(end, argument, length);
    }
    if (left > 0 && end > out) {
        end = put(end, (struct slice){"", 0}, "arguments", left);
    }
    return (size_t)(end - out);
}

bool latency_excerpt_next(struct slice *excerpt, struct slice *argument)
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

    while (latency_excerpt_next(&excerpt, &argument)) {
        fputs(before, out);
        latency_excerpt_print_text(argument, out);
        before = " ";
    }
}
