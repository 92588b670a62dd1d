#include "net/identity.h"

#include "conf/glob.h"
#include "conf/words.h"
#include "net/admission.h"

#include <ctype.h>
#include <errno.h>
#include <grp.h>
#include <pwd.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* What stands in the ini file. */
struct identity_options {
    char *certificate;
    char *address;
    char *peer;
    char *user;
    char *upstream_user;
    char *upstream_password;
    char *upstream_password_file;
};

#define TEXT_MAX 2048
#define SECRET_MAX 1024
/* Of a name in DNS, in bytes (RFC 1035, 3.1). */
#define DNS_NAME_MAX 255
/* What getpwnam_r() and getgrnam_r() may need for one entry, at most. */
#define ENTRY_MAX ((size_t)1 << 20)

#define CERTIFICATE_EXPECTED "cn:GLOB, san:GLOB and issuer:GLOB, with blanks or commas between them"
#define ADDRESS_EXPECTED "ip:ADDRESS or ip:ADDRESS/BITS, with blanks or commas between them"
#define PEER_EXPECTED "uid: and gid: with a number or a name, with blanks or commas between them"
#define USER_EXPECTED "globs of users, with blanks or commas between them"

/* Who is meant, and as whom: half of a change would have clients of an address that goes be somebody else. */
#define FIELD(field)                                                                                                   \
    .name = #field, .offset = offsetof(struct identity_options, field), .reloadable = true,                            \
    .waits_with = "upstream* listen*"

static const struct conf_option option_table[] = {
    {FIELD(certificate), .type = CONF_STRING, .max = TEXT_MAX, .initial = "",
     .help = "By the certificate that the client has shown: cn:GLOB (common name), san:GLOB (an alternative name:\n"
             "san:dns:*.shop, san:uri:spiffe://shop/*, or without the kind), issuer:GLOB. ? stands for a blank."},
    {FIELD(address), .type = CONF_STRING, .max = TEXT_MAX, .initial = "",
     .help = "By its address: ip:10.0.0.0/8 ip:192.0.2.7. A client of a Unix socket has none."},
    {FIELD(peer), .type = CONF_STRING, .max = TEXT_MAX, .initial = "",
     .help = "By who made the other end of a Unix socket: uid:33, uid:www-data, gid:www-data (also a supplementary\n"
             "group). A client that came by TCP has none."},
    {FIELD(user), .type = CONF_STRING, .max = TEXT_MAX, .initial = "",
     .help = "By the user that it gave by AUTH and that Redis took: globs. Who gave none is none of these, not even\n"
             "of *."},
    {FIELD(upstream_user), .type = CONF_STRING, .max = SECRET_MAX, .initial = "",
     .help = "The ACL user as which Headgate authenticates on behalf of these clients, in place of the one of\n"
             "[headgate]. Needs upstream_password. Not with user."},
    {FIELD(upstream_password), .type = CONF_STRING, .max = SECRET_MAX, .initial = "", .secret = true,
     .help = "The password for it. Empty: these clients are to Redis who all others are."},
    {FIELD(upstream_password_file), .type = CONF_FILE, .max = SECRET_MAX, .initial = "", .secret = true,
     .fills = "upstream_password", .help = "The file that holds it, alone on its line, in place of upstream_password."},
};

/* ---- words ---- */

enum word_kind { WORD_COMMON_NAME, WORD_ALTERNATIVE, WORD_ISSUER, WORD_ADDRESS, WORD_UID, WORD_GID, WORD_USER };

/* What follows the prefix, if the word begins with it and there is more. */
static bool has_prefix(struct slice word, const char *prefix, struct slice *rest)
{
    size_t length = strlen(prefix);

    if (word.length <= length || !slice_begins(word, prefix)) {
        return false;
    }
    *rest = (struct slice){word.data + length, word.length - length};
    return true;
}

static char *copy_of(struct slice text)
{
    return conf_format("%.*s", (int)text.length, text.data);
}

static void to_lower(char *text)
{
    for (; *text != '\0'; text++) {
        *text = (char)tolower((unsigned char)*text);
    }
}

static bool names_kind(const char *alternative)
{
    static const char *const kinds[] = {"dns:", "uri:", "email:", "ip:"};

    for (size_t i = 0; i < sizeof kinds / sizeof kinds[0]; i++) {
        if (strncmp(alternative, kinds[i], strlen(kinds[i])) == 0) {
            return true;
        }
    }
    return false;
}

static bool read_certificate_word(struct identity_word *word, struct slice text, char problem[CONF_PROBLEM_MAX])
{
    static const struct {
        const char *prefix;
        enum word_kind kind;
    } prefixes[] = {{"cn:", WORD_COMMON_NAME}, {"san:", WORD_ALTERNATIVE}, {"issuer:", WORD_ISSUER}};
    struct slice glob;

    for (size_t i = 0; i < sizeof prefixes / sizeof prefixes[0]; i++) {
        if (has_prefix(text, prefixes[i].prefix, &glob)) {
            word->kind = prefixes[i].kind;
            word->text = copy_of(glob);
            return words_check_glob(glob, problem);
        }
    }
    return conf_fault_word(problem, text, "is none of cn:GLOB, san:GLOB, issuer:GLOB");
}

static bool read_address_word(struct identity_word *word, struct slice text, char problem[CONF_PROBLEM_MAX])
{
    struct slice network = text;

    (void)has_prefix(text, "ip:", &network);
    word->kind = WORD_ADDRESS;
    return subnet_parse(&word->subnet, network) || conf_fault_word(problem, text, "holds no IP address or network");
}

/* A number; false: it is a name, or too large. */
static bool read_id(const char *text, uint32_t *id)
{
    char *end;

    if (*text < '0' || *text > '9') {
        return false;
    }
    errno = 0;
    unsigned long long number = strtoull(text, &end, 10);
    *id = (uint32_t)number;
    /* The largest stands for none. */
    return *end == '\0' && errno == 0 && number < UINT32_MAX;
}

static bool find_user(const char *name, char *memory, size_t size, uint32_t *id, int *error)
{
    struct passwd entry, *found = NULL;

    *error = getpwnam_r(name, &entry, memory, size, &found);
    *id = found != NULL ? entry.pw_uid : 0;
    return found != NULL;
}

static bool find_group(const char *name, char *memory, size_t size, uint32_t *id, int *error)
{
    struct group entry, *found = NULL;

    *error = getgrnam_r(name, &entry, memory, size, &found);
    *id = found != NULL ? entry.gr_gid : 0;
    return found != NULL;
}

static bool look_up(unsigned int kind, const char *name, uint32_t *id)
{
    bool found = false;
    int error = ERANGE;

    for (size_t size = 1024; error == ERANGE && size <= ENTRY_MAX; size *= 4) {
        char *memory = conf_alloc(NULL, size);
        found =
            kind == WORD_UID ? find_user(name, memory, size, id, &error) : find_group(name, memory, size, id, &error);
        free(memory);
    }
    return found;
}

static bool read_peer_word(struct identity_word *word, struct slice text, char problem[CONF_PROBLEM_MAX])
{
    struct slice name;

    if (has_prefix(text, "uid:", &name)) {
        word->kind = WORD_UID;
    } else if (has_prefix(text, "gid:", &name)) {
        word->kind = WORD_GID;
    } else {
        return conf_fault_word(problem, text, "is none of uid:USER, gid:GROUP");
    }
    word->text = copy_of(name);
    word->is_unknown = !read_id(word->text, &word->id) && !look_up(word->kind, word->text, &word->id);
    return !word->is_unknown ||
           conf_fault_word(problem, text,
                           word->kind == WORD_UID ? "is no user of this machine" : "is no group of this machine");
}

static bool read_user_word(struct identity_word *word, struct slice text, char problem[CONF_PROBLEM_MAX])
{
    word->kind = WORD_USER;
    word->text = copy_of(text);
    return words_check_glob(text, problem);
}

bool identity_words_read(struct identity_words *words, const char *text, identity_word_reader *read,
                         char problem[CONF_PROBLEM_MAX])
{
    size_t count = words_count(text);
    char unused[CONF_PROBLEM_MAX];
    bool sound = words_check(text, problem);
    struct slice word;

    *words = (struct identity_words){0};
    if (count == 0) {
        return sound;
    }
    words->items = conf_alloc(NULL, count * sizeof *words->items);
    while (words_next(&text, &word)) {
        words->items[words->count] = (struct identity_word){0};
        sound = read(&words->items[words->count++], word, sound ? problem : unused) && sound;
    }
    return sound;
}

void identity_words_clear(struct identity_words *words)
{
    for (size_t i = 0; i < words->count; i++) {
        free(words->items[i].text);
    }
    free(words->items);
    *words = (struct identity_words){0};
}

/* ---- identities ---- */

/* The name of the option that is at fault, or NULL. Either way the identity is to be cleared. */
static const char *compile(struct identity *identity, const char *name, const struct identity_options *options,
                           char problem[CONF_PROBLEM_MAX], const char **expected)
{
    const struct {
        const char *option, *text;
        struct identity_words *words;
        identity_word_reader *read;
        const char *expected;
    } kinds[] = {
        {"certificate", options->certificate, &identity->certificate, read_certificate_word, CERTIFICATE_EXPECTED},
        {"address", options->address, &identity->address, read_address_word, ADDRESS_EXPECTED},
        {"peer", options->peer, &identity->peer, read_peer_word, PEER_EXPECTED},
        {"user", options->user, &identity->user, read_user_word, USER_EXPECTED},
    };
    char unused[CONF_PROBLEM_MAX];
    const char *at_fault = NULL;

    *identity = (struct identity){
        .name = conf_format("%s", name),
        .upstream_user = conf_format("%s", options->upstream_user),
        .upstream_password = conf_format("%s", options->upstream_password),
    };
    for (size_t i = 0; i < sizeof kinds / sizeof kinds[0]; i++) {
        bool is_first = at_fault == NULL;
        if (!identity_words_read(kinds[i].words, kinds[i].text, kinds[i].read, is_first ? problem : unused) &&
            is_first) {
            at_fault = kinds[i].option;
            *expected = kinds[i].expected;
        }
    }
    for (size_t i = 0; i < identity->certificate.count; i++) {
        if (identity->certificate.items[i].kind == WORD_ALTERNATIVE &&
            strncmp(identity->certificate.items[i].text, "dns:", 4) == 0) {
            to_lower(identity->certificate.items[i].text);
        }
    }
    return at_fault;
}

void identity_compile(struct identity *identity, size_t number, const struct conf_rule *rule)
{
    char problem[CONF_PROBLEM_MAX];
    const char *expected;

    (void)compile(identity, rule->name, rule->values, problem, &expected);
    identity->number = number;
}

void identity_clear(struct identity *identity)
{
    identity_words_clear(&identity->certificate);
    identity_words_clear(&identity->address);
    identity_words_clear(&identity->peer);
    identity_words_clear(&identity->user);
    explicit_bzero(identity->upstream_password, strlen(identity->upstream_password));
    free(identity->upstream_password);
    free(identity->upstream_user);
    free(identity->name);
}

bool identity_has_credentials(const struct identity *identity)
{
    return *identity->upstream_password != '\0';
}

bool identity_depends_on_user(const struct conf_rule *rule)
{
    return words_count(((const struct identity_options *)rule->values)->user) > 0;
}

/* ---- matching ---- */

/* No certificate can do without a name by having an empty one. */
static bool is_text(const char *glob, const char *text)
{
    return text != NULL && *text != '\0' && glob_match(glob, slice_of(text));
}

/* Names of hosts are the same in any case of letters. */
static bool is_host(const char *glob, const char *name)
{
    char lower[sizeof "dns:" + DNS_NAME_MAX];

    if (snprintf(lower, sizeof lower, "%s", name) >= (int)sizeof lower) {
        return false;
    }
    to_lower(lower);
    return is_text(glob, lower);
}

static bool is_alternative(const char *glob, const char *alternative)
{
    const char *colon = strchr(alternative, ':');
    const char *value = names_kind(glob) || colon == NULL ? alternative : colon + 1;

    if (colon == NULL || colon[1] == '\0') {
        return false;
    }
    return is_text(glob, value) || (strncmp(alternative, "dns:", 4) == 0 && is_host(glob, value));
}

static bool has_alternative(const char *glob, const struct identity_certificate *certificate)
{
    for (size_t i = 0; i < certificate->alternative_count; i++) {
        if (is_alternative(glob, certificate->alternatives[i])) {
            return true;
        }
    }
    return false;
}

static bool has_group(const struct identity_peer *peer, uint32_t id)
{
    for (size_t i = 0; i < peer->group_count; i++) {
        if (peer->groups[i] == id) {
            return true;
        }
    }
    return false;
}

static bool word_fits(const struct identity_word *word, const struct identity_facts *facts)
{
    const struct identity_certificate *certificate = facts->certificate;
    const struct identity_peer *peer = facts->peer;

    switch (word->kind) {
    case WORD_COMMON_NAME:
        return certificate != NULL && is_text(word->text, certificate->common_name);
    case WORD_ISSUER:
        return certificate != NULL && is_text(word->text, certificate->issuer);
    case WORD_ALTERNATIVE:
        return certificate != NULL && has_alternative(word->text, certificate);
    case WORD_ADDRESS:
        return subnet_has(&word->subnet, facts->address);
    case WORD_UID:
        return peer != NULL && !word->is_unknown && peer->uid == word->id;
    case WORD_GID:
        return peer != NULL && !word->is_unknown && has_group(peer, word->id);
    case WORD_USER:
        return facts->user != NULL && glob_match(word->text, slice_of(facts->user));
    }
    return false;
}

static bool words_fit(const struct identity_words *words, const struct identity_facts *facts)
{
    bool fits = words->count == 0;

    for (size_t i = 0; i < words->count && !fits; i++) {
        fits = word_fits(&words->items[i], facts);
    }
    return fits;
}

/* Of a certificate the kinds of words are asked for together: the issuer alone says nothing of who holds it. */
static bool certificate_fits(const struct identity_words *words, const struct identity_facts *facts)
{
    static const enum word_kind kinds[] = {WORD_COMMON_NAME, WORD_ALTERNATIVE, WORD_ISSUER};

    for (size_t k = 0; k < sizeof kinds / sizeof kinds[0]; k++) {
        bool is_asked = false, fits = false;
        for (size_t i = 0; i < words->count; i++) {
            if (words->items[i].kind == kinds[k]) {
                is_asked = true;
                fits = fits || word_fits(&words->items[i], facts);
            }
        }
        if (is_asked && !fits) {
            return false;
        }
    }
    return true;
}

bool identity_fits(const struct identity *identity, const struct identity_facts *facts)
{
    return certificate_fits(&identity->certificate, facts) && words_fit(&identity->address, facts) &&
           words_fit(&identity->peer, facts) && words_fit(&identity->user, facts);
}

/* ---- the section ---- */

static const char *fault(const char *option, char problem[CONF_PROBLEM_MAX], const char *what, const char **expected,
                         const char *instead)
{
    snprintf(problem, CONF_PROBLEM_MAX, "%s", what);
    *expected = instead;
    return option;
}

static const char *check_together(const struct identity_options *options, char problem[CONF_PROBLEM_MAX],
                                  const char **expected)
{
    bool has_user = words_count(options->user) > 0, has_password = *options->upstream_password != '\0';

    if (!has_user && words_count(options->certificate) == 0 && words_count(options->address) == 0 &&
        words_count(options->peer) == 0) {
        return fault("certificate", problem, "nothing says who is meant", expected,
                     "certificate, address, peer or user");
    }
    if (*options->upstream_user != '\0' && !has_password) {
        return fault("upstream_user", problem, "has no password", expected, "upstream_password beside it");
    }
    if (has_user && has_password) {
        return fault("user", problem, "comes of AUTH, which is to need no password here: upstream_password is set",
                     expected, "certificate, address or peer, or no upstream_password");
    }
    return NULL;
}

static const char *check_identity(const void *values, char problem[CONF_PROBLEM_MAX], const char **expected)
{
    struct identity identity;
    const char *at_fault = compile(&identity, "", values, problem, expected);

    identity_clear(&identity);
    return at_fault != NULL ? at_fault : check_together(values, problem, expected);
}

const struct conf_section identity_section = {
    .name = "identity",
    .has_rules = true,
    .options = option_table,
    .option_count = sizeof option_table / sizeof option_table[0],
    .values_size = sizeof(struct identity_options),
    .help = "Who a client is. The first identity of the file that fits is its own. Of several options all must fit, of "
            "the\nwords of one of them one (of certificate: one of each kind). Rules know it as identity:NAME.",
    .check = check_identity,
    .check_clients = admission_check_clients,
};
