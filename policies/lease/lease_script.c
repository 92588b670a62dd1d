#include "lease/lease_script.h"

/* OpenSSL 3 wants SHA1() in place of its parts. That takes memory and locks at each call, and where there is no memory
 * it may crash; the parts do neither. */
#define OPENSSL_SUPPRESS_DEPRECATED
#include <ctype.h>
#include <openssl/sha.h>
#include <string.h>

/* ---- the table ---- */

#define ALL 0
#define SCRIPT(library_, script_, digest_, bytes_, action_, kind_, reply_, renews_, key_, token_, lease_, ...)         \
    {.library = (library_),                                                                                            \
     .name = library_ " " script_,                                                                                     \
     .digest = (digest_),                                                                                              \
     .bytes = (bytes_),                                                                                                \
     .action = LEASE_##action_,                                                                                        \
     .kind = LEASE_##kind_,                                                                                            \
     .reply = LEASE_REPLY_##reply_,                                                                                    \
     .renews = LEASE_RENEWS_##renews_,                                                                                 \
     .key = (key_),                                                                                                    \
     .token = (token_),                                                                                                \
     .lease = (lease_),                                                                                                \
     .unit = LEASE_UNIT_##__VA_ARGS__},

static const struct lease_script script_table[] = {
#include "lease/lease_scripts.inc"
};

#undef SCRIPT
#undef ALL

#define SCRIPT_COUNT (sizeof script_table / sizeof script_table[0])

/* ---- Headgate's own ---- */

/* What another one in front of this one sends. A renewal changes no more than a time to live, which only grows, and
 * says nothing of owners here; the rest but for the releases has nothing to do with locks. */
static const struct lease_script own_release = {
    .name = "Headgate release", .digest = "", .action = LEASE_RELEASE, .reply = LEASE_REPLY_COUNT, .token = 1};
static const struct lease_script own_other = {.name = "Headgate", .digest = "", .action = LEASE_NOTHING};

static const struct lease_script *find_own(const char *digest)
{
    for (const struct script *own = scripts; own->name != NULL; own++) {
        if (memcmp(own->sha1, digest, LEASE_DIGEST_LENGTH) == 0) {
            bool releases = strncmp(own->name, "lease_release", 13) == 0 || strcmp(own->name, "delifeq") == 0;
            return releases ? &own_release : &own_other;
        }
    }
    return NULL;
}

/* ---- idioms ---- */

#define IDIOM(call_, name_, action_, lease_, unit_)                                                                    \
    {                                                                                                                  \
        .call = (call_), .script = {                                                                                   \
            .name = (name_),                                                                                           \
            .action = LEASE_##action_,                                                                                 \
            .kind = LEASE_STRING,                                                                                      \
            .reply = LEASE_REPLY_ONE,                                                                                  \
            .key = 1,                                                                                                  \
            .token = 1,                                                                                                \
            .lease = (lease_),                                                                                         \
            .unit = LEASE_UNIT_##unit_                                                                                 \
        }                                                                                                              \
    }

/* "if redis.call('get', KEYS[1]) == ARGV[1] then return redis.call(", one of these, and what an idiom ends with. */
static const struct {
    const char *call;
    struct lease_script script;
} idioms[] = {
    IDIOM("'del',KEYS[1]", "compare and DEL", RELEASE, 0, NONE),
    IDIOM("'unlink',KEYS[1]", "compare and UNLINK", RELEASE, 0, NONE),
    IDIOM("'pexpire',KEYS[1],ARGV[2]", "compare and PEXPIRE", EXTEND, 2, MS),
    IDIOM("'expire',KEYS[1],ARGV[2]", "compare and EXPIRE", EXTEND, 2, S),
};

#undef IDIOM

/* Texts of idioms are no longer, however they are indented. */
#define IDIOM_BYTES_MAX 512

static bool is_blank(char c)
{
    return c == ' ' || c == '\t' || c == '\r' || c == '\n' || c == ';';
}

/* Takes code off the text, whatever its blanks, semicolons, quotes, and case of names in quotes. */
static bool take_code(struct slice *text, const char *code)
{
    bool quoted = false;
    size_t at = 0;

    for (; *code != '\0'; code++, at++) {
        while (!quoted && at < text->length && is_blank(text->data[at])) {
            at++;
        }
        if (at == text->length) {
            return false;
        }
        char c = text->data[at] == '"' ? '\'' : text->data[at];
        if (*code != (quoted ? (char)tolower((unsigned char)c) : c)) {
            return false;
        }
        quoted ^= c == '\'';
    }
    *text = (struct slice){text->data + at, text->length - at};
    return true;
}

static bool ends_idiom(struct slice text)
{
    static const char *const ends[] = {"elsereturn0end", "endreturn0", "end"};

    for (size_t i = 0; i < sizeof ends / sizeof ends[0]; i++) {
        struct slice rest = text;
        if (take_code(&rest, ends[i])) {
            while (rest.length > 0 && is_blank(rest.data[0])) {
                rest = (struct slice){rest.data + 1, rest.length - 1};
            }
            if (rest.length == 0) {
                return true;
            }
        }
    }
    return false;
}

static const struct lease_script *find_idiom(struct slice text)
{
    if (text.length > IDIOM_BYTES_MAX || !take_code(&text, "ifredis.call('get',KEYS[1])==ARGV[1]then") ||
        !take_code(&text, "returnredis.call(")) {
        return NULL;
    }
    for (size_t i = 0; i < sizeof idioms / sizeof idioms[0]; i++) {
        struct slice rest = text;
        if (take_code(&rest, idioms[i].call) && take_code(&rest, ")") && ends_idiom(rest)) {
            return &idioms[i].script;
        }
    }
    return NULL;
}

/* ---- by digest, by text and by name ---- */

const struct lease_script *lease_script_find(const char *digest)
{
    for (size_t i = 0; i < SCRIPT_COUNT; i++) {
        if (memcmp(script_table[i].digest, digest, LEASE_DIGEST_LENGTH) == 0) {
            return &script_table[i];
        }
    }
    return find_own(digest);
}

void lease_shape_digest(struct slice text, char digest[LEASE_DIGEST_LENGTH + 1])
{
    static const char hex[] = "0123456789abcdef";
    unsigned char sum[SHA_DIGEST_LENGTH];
    SHA_CTX state;

    SHA1_Init(&state);
    SHA1_Update(&state, text.data, text.length);
    SHA1_Final(sum, &state);
    digest[LEASE_DIGEST_LENGTH] = '\0';
    for (size_t i = 0; i < sizeof sum; i++) {
        digest[2 * i] = hex[sum[i] >> 4];
        digest[2 * i + 1] = hex[sum[i] & 15];
    }
}

static bool has_known_length(struct slice text)
{
    for (size_t i = 0; i < SCRIPT_COUNT; i++) {
        if (script_table[i].bytes == text.length) {
            return true;
        }
    }
    for (const struct script *own = scripts; own->name != NULL; own++) {
        if (own->length == text.length) {
            return true;
        }
    }
    return false;
}

const struct lease_script *lease_shape_learn(struct slice text)
{
    const struct lease_script *script = NULL;
    char digest[LEASE_DIGEST_LENGTH + 1];

    if (has_known_length(text)) {
        lease_shape_digest(text, digest);
        script = lease_script_find(digest);
    }
    return script != NULL ? script : find_idiom(text);
}

const struct lease_script *lease_shape_script(size_t index)
{
    return index < SCRIPT_COUNT ? &script_table[index] : NULL;
}

/* The rows of a library stand together. */
const char *lease_script_library(size_t index)
{
    for (size_t i = 0; i < SCRIPT_COUNT; i++) {
        const char *library = script_table[i].library;
        if (i > 0 && strcmp(library, script_table[i - 1].library) == 0) {
            continue;
        }
        if (index == 0) {
            return library;
        }
        index--;
    }
    return NULL;
}

bool lease_script_is_of(const struct lease_script *script, struct slice library)
{
    return script->library != NULL && word_is(library, script->library);
}
