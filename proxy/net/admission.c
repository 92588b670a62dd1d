#include "net/admission.h"

#include "conf/glob.h"
#include "conf/words.h"

#include <assert.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* How much of what a client has sent already is read before it is shown out. Bytes. */
#define LAST_READ 4096

#define EXPECTED                                                                                                       \
    "ip:ADDRESS, ip:ADDRESS/BITS, unix, identity:GLOB of identities without user, and all, with blanks or commas "     \
    "between them"

enum word_kind { WORD_ALL, WORD_UNIX, WORD_ADDRESS, WORD_IDENTITY };

struct door {
    struct identity_words allow, refuse;
};

struct admission {
    _Atomic size_t references;
    bool wants_peer;
    struct identity *identities;
    size_t identity_count;
    size_t door_count;
    struct door *doors; /* by the number of a listener */
};

/* ---- words ---- */

static bool read_identity(struct identity_word *word, struct slice text, char problem[CONF_PROBLEM_MAX])
{
    struct slice glob = {text.data + strlen("identity:"), text.length - strlen("identity:")};

    word->kind = WORD_IDENTITY;
    word->text = conf_format("%.*s", (int)glob.length, glob.data);
    return glob.length > 0 ? words_check_glob(glob, problem) : conf_fault_word(problem, text, "names no identity");
}

static bool read_word(struct identity_word *word, struct slice text, char problem[CONF_PROBLEM_MAX])
{
    word->kind = WORD_ALL;
    if (slice_is(text, "all")) {
        return true;
    }
    if (slice_is(text, "unix")) {
        word->kind = WORD_UNIX;
        return true;
    }
    if (slice_begins(text, "identity:")) {
        return read_identity(word, text, problem);
    }
    if (slice_begins(text, "ip:")) {
        word->kind = WORD_ADDRESS;
        return subnet_parse(&word->subnet, (struct slice){text.data + 3, text.length - 3}) ||
               conf_fault_word(problem, text, "holds no IP address or network");
    }
    return conf_fault_word(problem, text, "is none of ip:ADDRESS, ip:ADDRESS/BITS, unix, identity:GLOB, all");
}

/* ---- life ---- */

static void add_identity(struct admission *admission, const struct conf_rule *rule)
{
    size_t count = admission->identity_count + 1;

    admission->identities = conf_alloc(admission->identities, count * sizeof *admission->identities);
    identity_compile(&admission->identities[admission->identity_count], admission->identity_count, rule);
    admission->wants_peer = admission->wants_peer || admission->identities[admission->identity_count].peer.count > 0;
    admission->identity_count = count;
}

static void make_doors(struct admission *admission, const struct conf *conf)
{
    char problem[CONF_PROBLEM_MAX];

    admission->door_count = conf_listener_count(conf);
    admission->doors = conf_alloc(NULL, admission->door_count * sizeof *admission->doors);
    for (size_t i = 0; i < admission->door_count; i++) {
        const struct conf_listener listener = conf_listener_at(conf, i);
        (void)identity_words_read(&admission->doors[i].allow, listener.terms->allow, read_word, problem);
        (void)identity_words_read(&admission->doors[i].refuse, listener.terms->refuse, read_word, problem);
    }
}

struct admission *admission_new(const struct conf *conf)
{
    struct admission *admission = conf_alloc(NULL, sizeof *admission);

    *admission = (struct admission){0};
    atomic_init(&admission->references, 1);
    for (const struct conf_rule *rule = conf->rules; rule != NULL; rule = rule->next) {
        if (rule->section == &identity_section) {
            add_identity(admission, rule);
        }
    }
    make_doors(admission, conf);
    return admission;
}

struct admission *admission_reference(struct admission *admission)
{
    atomic_fetch_add(&admission->references, 1);
    return admission;
}

void admission_release(struct admission *admission)
{
    if (atomic_fetch_sub(&admission->references, 1) > 1) {
        return;
    }
    for (size_t i = 0; i < admission->identity_count; i++) {
        identity_clear(&admission->identities[i]);
    }
    free(admission->identities);
    for (size_t i = 0; i < admission->door_count; i++) {
        identity_words_clear(&admission->doors[i].allow);
        identity_words_clear(&admission->doors[i].refuse);
    }
    free(admission->doors);
    free(admission);
}

/* ---- who it is ---- */

const struct identity *admission_identify(const struct admission *admission, const struct identity_facts *facts)
{
    for (size_t i = 0; i < admission->identity_count; i++) {
        if (identity_fits(&admission->identities[i], facts)) {
            return &admission->identities[i];
        }
    }
    return NULL;
}

bool admission_wants_peer(const struct admission *admission)
{
    return admission->wants_peer;
}

size_t admission_identity_count(const struct admission *admission)
{
    return admission->identity_count;
}

const struct identity *admission_identity(const struct admission *admission, size_t number)
{
    return &admission->identities[number];
}

/* ---- who is let in ---- */

static bool word_means(const struct identity_word *word, const struct identity_facts *facts,
                       const struct identity *identity)
{
    switch (word->kind) {
    case WORD_ALL:
        return true;
    case WORD_UNIX:
        return facts->address->ss_family == AF_UNIX;
    case WORD_ADDRESS:
        return subnet_has(&word->subnet, facts->address);
    case WORD_IDENTITY:
        return identity != NULL && glob_match(word->text, slice_of(identity->name));
    }
    return false;
}

/* Words of identities mean nobody at the first stage, or (identities_too) may mean anybody. */
static bool any_means(const struct identity_words *words, enum admission_stage stage, bool identities_too,
                      const struct identity_facts *facts, const struct identity *identity)
{
    for (size_t i = 0; i < words->count; i++) {
        const struct identity_word *word = &words->items[i];
        bool is_open = stage == ADMISSION_ADDRESS && word->kind == WORD_IDENTITY;
        if (is_open ? identities_too : word_means(word, facts, identity)) {
            return true;
        }
    }
    return false;
}

bool admission_lets_in(const struct admission *admission, size_t listener, enum admission_stage stage,
                       const struct identity_facts *facts, const struct identity *identity)
{
    assert(listener < admission->door_count);
    const struct door *door = &admission->doors[listener];

    if (any_means(&door->refuse, stage, false, facts, identity)) {
        return false;
    }
    return door->allow.count == 0 || any_means(&door->allow, stage, true, facts, identity);
}

/* Redis, too, says why it takes no connection, and closes it. What has come of it is read, so that the kernel does not
 * reset the connection before the error is. Who speaks TLS would take the text for garbage. */
static void show_out(int fd, bool tls)
{
    char unread[LAST_READ];
    ssize_t done = tls ? 0 : send(fd, ADMISSION_REFUSAL, sizeof ADMISSION_REFUSAL - 1, MSG_NOSIGNAL | MSG_DONTWAIT);

    done = recv(fd, unread, sizeof unread, MSG_DONTWAIT);
    (void)done;
    close(fd);
}

bool admission_receive(const struct admission *admission, int fd, const struct admission_visitor *visitor,
                       const char **identity)
{
    const struct door *door = &admission->doors[visitor->listener];
    enum admission_stage stage = visitor->tls ? ADMISSION_ADDRESS : ADMISSION_WHOLE;
    struct identity_peer peer;

    if (door->allow.count == 0 && door->refuse.count == 0) {
        return true;
    }
    bool has_peer = admission->wants_peer && !visitor->is_proxied && visitor->address->ss_family == AF_UNIX &&
                    identity_find_peer(fd, &peer);
    const struct identity_facts facts = {.address = visitor->address, .peer = has_peer ? &peer : NULL};
    const struct identity *found = admission_identify(admission, &facts);
    if (admission_lets_in(admission, visitor->listener, stage, &facts, found)) {
        return true;
    }
    show_out(fd, visitor->tls);
    *identity = found != NULL ? found->name : "none";
    return false;
}

/* ---- checking ---- */

static bool is_plain(const char *glob)
{
    return strpbrk(glob, "*?[\\") == NULL;
}

static const struct conf_rule *find_rule(const struct conf_rule *rules, const char *glob, bool must_depend_on_user)
{
    for (; rules != NULL; rules = rules->next) {
        if (rules->section == &identity_section && glob_match(glob, slice_of(rules->name)) &&
            (!must_depend_on_user || identity_depends_on_user(rules))) {
            return rules;
        }
    }
    return NULL;
}

/* A glob may be there for identities to come, a name may not; and nobody has given a user before he is let in. */
static bool check_word(const struct identity_word *word, const struct conf_rule *rules, char problem[CONF_PROBLEM_MAX])
{
    if (word->kind != WORD_IDENTITY) {
        return true;
    }
    const struct conf_rule *late = find_rule(rules, word->text, true);
    if (late != NULL) {
        snprintf(problem, CONF_PROBLEM_MAX, "identity:%.40s goes by the user, who is known only after AUTH",
                 late->name);
        return false;
    }
    if (is_plain(word->text) && find_rule(rules, word->text, false) == NULL) {
        snprintf(problem, CONF_PROBLEM_MAX, "there is no [identity:%.40s]", word->text);
        return false;
    }
    return true;
}

bool admission_check_clients(const char *text, const struct conf_rule *rules, char problem[CONF_PROBLEM_MAX],
                             const char **expected)
{
    struct identity_words words;
    bool sound = identity_words_read(&words, text, read_word, problem);

    for (size_t i = 0; sound && i < words.count; i++) {
        sound = check_word(&words.items[i], rules, problem);
    }
    identity_words_clear(&words);
    *expected = EXPECTED;
    return sound;
}
