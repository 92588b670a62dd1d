#include "limit_ledger.h"

#include "siphash.h"

#include <assert.h>
#include <inttypes.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

/* As many as a limit_locks has bits. */
#define STRIPES 64
#define BUCKETS_LEAST 4
/* How often room is looked for in a full ledger. */
#define RECLAIM_US 100000
#define WARN_US INT64_C(60000000)
#define OFFENDERS_SHOWN 10

/* A part of a ledger's subjects, guarded by the lock of the same number. */
struct stripe {
    struct limit_subject **buckets;
    size_t bucket_count; /* a power of two, or 0 */
    size_t count;
};

struct limit_ledger {
    struct limit_ledger *next;
    char *rule;
    char *identity;
    struct limit_meter meter;
    bool is_cache;
    _Atomic size_t subjects_max;
    _Atomic size_t subject_count;
    struct limit_member *members; /* guarded by the registry's lock, and so are the next two */
    uint64_t counts_of_those_who_left[LIMIT_COUNTS];
    size_t sweep_stripe;
    _Atomic int64_t reclaimed_us;
    _Atomic int64_t warned_us; /* 0: never */
    struct stripe stripes[STRIPES];
    struct limit_subject *overflow; /* stands for those without room; in no bucket */
};

struct limit_share {
    bool locks; /* there are several workers */
    struct siphash_key key;
    pthread_mutex_t registry; /* guards the list of ledgers; taken before any stripe's */
    struct limit_ledger *ledgers;
    pthread_mutex_t stripes[STRIPES];
};

/* ---- locks ---- */

static size_t stripe_of(uint64_t hash)
{
    return hash % STRIPES;
}

limit_locks limit_subject_locks(const struct limit_subject *subject)
{
    return UINT64_C(1) << stripe_of(subject->hash);
}

/* Always in the same order, so that nobody waits for who waits for him. */
void limit_share_lock(struct limit_share *share, limit_locks locks)
{
    for (; share->locks && locks != 0; locks &= locks - 1) {
        pthread_mutex_lock(&share->stripes[__builtin_ctzll(locks)]);
    }
}

void limit_share_unlock(struct limit_share *share, limit_locks locks)
{
    for (; share->locks && locks != 0; locks &= locks - 1) {
        pthread_mutex_unlock(&share->stripes[__builtin_ctzll(locks)]);
    }
}

/* ---- the share ---- */

struct limit_share *limit_share_new(size_t threads)
{
    struct limit_share *share = calloc(1, sizeof *share);

    if (share == NULL) {
        return NULL;
    }
    share->locks = threads > 1;
    share->key = siphash_random_key();
    pthread_mutex_init(&share->registry, NULL);
    for (size_t i = 0; i < STRIPES; i++) {
        pthread_mutex_init(&share->stripes[i], NULL);
    }
    return share;
}

void limit_share_free(struct limit_share *share)
{
    assert(share->ledgers == NULL);
    for (size_t i = 0; i < STRIPES; i++) {
        pthread_mutex_destroy(&share->stripes[i]);
    }
    pthread_mutex_destroy(&share->registry);
    free(share);
}

/* ---- subjects ---- */

static struct limit_subject *subject_new(struct limit_ledger *ledger, struct slice name, uint64_t hash)
{
    struct limit_subject *subject = malloc(sizeof *subject + name.length);

    if (subject != NULL) {
        *subject = (struct limit_subject){.ledger = ledger, .hash = hash, .length = (uint16_t)name.length};
        memcpy(subject->name, name.data, name.length);
    }
    return subject;
}

static void subject_free(struct limit_subject *subject)
{
    limit_meter_clear(&subject->ledger->meter, &subject->state);
    free(subject->remote);
    free(subject);
}

/* The bits below choose the stripe. */
static size_t bucket_of(const struct stripe *stripe, uint64_t hash)
{
    return (size_t)(hash / STRIPES) & (stripe->bucket_count - 1);
}

static struct limit_subject *stripe_find(const struct stripe *stripe, struct slice name, uint64_t hash)
{
    struct limit_subject *subject = stripe->bucket_count > 0 ? stripe->buckets[bucket_of(stripe, hash)] : NULL;

    while (subject != NULL && (subject->hash != hash || subject->length != name.length ||
                               memcmp(subject->name, name.data, name.length) != 0)) {
        subject = subject->next;
    }
    return subject;
}

/* False when memory is short: the stripe is as it was. */
static bool stripe_resize(struct stripe *stripe, size_t bucket_count)
{
    struct limit_subject **old = stripe->buckets;
    size_t old_count = stripe->bucket_count;
    struct limit_subject **buckets = calloc(bucket_count, sizeof(struct limit_subject *));

    if (buckets == NULL) {
        return false;
    }
    stripe->buckets = buckets;
    stripe->bucket_count = bucket_count;
    for (size_t i = 0; i < old_count; i++) {
        while (old[i] != NULL) {
            struct limit_subject *subject = old[i];
            struct limit_subject **bucket = &buckets[bucket_of(stripe, subject->hash)];
            old[i] = subject->next;
            subject->next = *bucket;
            *bucket = subject;
        }
    }
    free(old);
    return true;
}

static bool stripe_add(struct stripe *stripe, struct limit_subject *subject)
{
    bool full = stripe->count >= stripe->bucket_count;

    /* Without memory for more buckets, those that are there grow longer. */
    if (full && !stripe_resize(stripe, stripe->bucket_count > 0 ? stripe->bucket_count * 2 : BUCKETS_LEAST) &&
        stripe->bucket_count == 0) {
        return false;
    }
    struct limit_subject **bucket = &stripe->buckets[bucket_of(stripe, subject->hash)];
    subject->next = *bucket;
    *bucket = subject;
    stripe->count++;
    return true;
}

/* NULL if there is no room. */
static struct limit_subject *track(struct limit_ledger *ledger, struct slice name, uint64_t hash)
{
    if (atomic_fetch_add_explicit(&ledger->subject_count, 1, memory_order_relaxed) < ledger->subjects_max) {
        struct limit_subject *subject = subject_new(ledger, name, hash);
        if (subject != NULL && stripe_add(&ledger->stripes[stripe_of(hash)], subject)) {
            return subject;
        }
        free(subject);
    }
    atomic_fetch_sub_explicit(&ledger->subject_count, 1, memory_order_relaxed);
    return NULL;
}

/* ---- sweeping ---- */

/* Takes a subject off its bucket. */
static void untrack(struct limit_ledger *ledger, struct stripe *stripe, struct limit_subject **link)
{
    struct limit_subject *subject = *link;

    *link = subject->next;
    stripe->count--;
    atomic_fetch_sub_explicit(&ledger->subject_count, 1, memory_order_relaxed);
    if (subject->pins > 0) {
        subject->revoked = true;
    } else {
        subject_free(subject);
    }
}

/* Drops those that are idle. One that is pinned stays unless room is needed, but what its meter remembers in vain goes.
 */
static void sweep_bucket(struct limit_ledger *ledger, struct stripe *stripe, struct limit_subject **link,
                         int64_t now_us, bool revoke)
{
    while (*link != NULL) {
        struct limit_subject *subject = *link;
        bool idle = subject->queued == 0 && subject->keep_until_us <= now_us &&
                    limit_meter_is_idle(&ledger->meter, &subject->state, now_us);
        if (idle) {
            limit_meter_clear(&ledger->meter, &subject->state);
        }
        if (idle && (revoke || subject->pins == 0)) {
            untrack(ledger, stripe, link);
        } else {
            link = &subject->next;
        }
    }
}

static void sweep_stripe(struct limit_share *share, struct limit_ledger *ledger, size_t number, int64_t now_us,
                         bool revoke)
{
    struct stripe *stripe = &ledger->stripes[number];

    limit_share_lock(share, UINT64_C(1) << number);
    for (size_t i = 0; i < stripe->bucket_count; i++) {
        sweep_bucket(ledger, stripe, &stripe->buckets[i], now_us, revoke);
    }
    if (stripe->bucket_count > BUCKETS_LEAST && stripe->count < stripe->bucket_count / 8) {
        (void)stripe_resize(stripe, stripe->bucket_count / 4);
    }
    limit_share_unlock(share, UINT64_C(1) << number);
}

void limit_share_sweep(struct limit_share *share, int64_t now_us)
{
    if (pthread_mutex_trylock(&share->registry) != 0) {
        return;
    }
    for (struct limit_ledger *ledger = share->ledgers; ledger != NULL; ledger = ledger->next) {
        sweep_stripe(share, ledger, ledger->sweep_stripe, now_us, false);
        ledger->sweep_stripe = (ledger->sweep_stripe + 1) % STRIPES;
    }
    pthread_mutex_unlock(&share->registry);
}

size_t limit_share_tracked(struct limit_share *share)
{
    size_t count = 0;

    pthread_mutex_lock(&share->registry);
    for (const struct limit_ledger *ledger = share->ledgers; ledger != NULL; ledger = ledger->next) {
        count += atomic_load_explicit(&ledger->subject_count, memory_order_relaxed);
    }
    pthread_mutex_unlock(&share->registry);
    return count;
}

/* ---- pinning ---- */

/* Finds or tracks it, and pins it; NULL if there is no room. */
static struct limit_subject *try_to_pin(struct limit_share *share, struct limit_ledger *ledger, struct slice name,
                                        uint64_t hash)
{
    limit_locks locks = UINT64_C(1) << stripe_of(hash);

    limit_share_lock(share, locks);
    struct limit_subject *subject = stripe_find(&ledger->stripes[stripe_of(hash)], name, hash);
    if (subject == NULL) {
        subject = track(ledger, name, hash);
    }
    if (subject != NULL) {
        subject->pins++;
    }
    limit_share_unlock(share, locks);
    return subject;
}

/* Makes room in a ledger that is full, unless that was tried a moment ago: going through all of them takes a while. */
static bool reclaim(struct limit_share *share, struct limit_ledger *ledger, int64_t now_us)
{
    int64_t last_us = atomic_load_explicit(&ledger->reclaimed_us, memory_order_relaxed);

    if (now_us - last_us < RECLAIM_US ||
        !atomic_compare_exchange_strong_explicit(&ledger->reclaimed_us, &last_us, now_us, memory_order_relaxed,
                                                 memory_order_relaxed)) {
        return false;
    }
    for (size_t number = 0; number < STRIPES; number++) {
        sweep_stripe(share, ledger, number, now_us, true);
    }
    return true;
}

struct limit_subject *limit_subject_pin(struct limit_share *share, struct limit_ledger *ledger, struct slice name,
                                        int64_t now_us)
{
    assert(name.length <= LIMIT_SUBJECT_MAX);
    uint64_t hash = siphash(&share->key, name.data, name.length);
    struct limit_subject *subject = try_to_pin(share, ledger, name, hash);

    if (subject == NULL && reclaim(share, ledger, now_us)) {
        subject = try_to_pin(share, ledger, name, hash);
    }
    if (subject == NULL && ledger->is_cache) {
        subject = subject_new(ledger, name, hash);
        if (subject != NULL) {
            subject->transient = true;
            subject->pins = 1;
        }
    } else if (subject == NULL) {
        subject = ledger->overflow;
        limit_share_lock(share, limit_subject_locks(subject));
        subject->pins++;
        limit_share_unlock(share, limit_subject_locks(subject));
    }
    return subject;
}

bool limit_subject_is_tracked(const struct limit_subject *subject)
{
    return subject != subject->ledger->overflow && !subject->transient;
}

void limit_subject_unpin(struct limit_share *share, struct limit_subject *subject)
{
    limit_locks locks = limit_subject_locks(subject);

    limit_share_lock(share, locks);
    assert(subject->pins > 0);
    bool last = --subject->pins == 0 && (subject->revoked || subject->transient);
    limit_share_unlock(share, locks);
    if (last) {
        subject_free(subject);
    }
}

/* ---- ledgers ---- */

static void ledger_free(struct limit_ledger *ledger)
{
    for (size_t i = 0; i < STRIPES; i++) {
        for (size_t bucket = 0; bucket < ledger->stripes[i].bucket_count; bucket++) {
            while (ledger->stripes[i].buckets[bucket] != NULL) {
                struct limit_subject *subject = ledger->stripes[i].buckets[bucket];
                ledger->stripes[i].buckets[bucket] = subject->next;
                subject_free(subject);
            }
        }
        free(ledger->stripes[i].buckets);
    }
    if (ledger->overflow != NULL) {
        subject_free(ledger->overflow);
    }
    free(ledger->rule);
    free(ledger->identity);
    free(ledger);
}

static struct limit_ledger *ledger_new(const struct limit_terms *terms)
{
    static const char others[] = "others";
    struct limit_ledger *ledger = calloc(1, sizeof *ledger);

    if (ledger == NULL) {
        return NULL;
    }
    ledger->rule = strdup(terms->rule);
    ledger->identity = strdup(terms->identity);
    ledger->meter = terms->meter;
    ledger->is_cache = terms->is_cache;
    ledger->overflow = subject_new(ledger, (struct slice){others, sizeof others - 1}, 0);
    if (ledger->rule == NULL || ledger->identity == NULL || ledger->overflow == NULL) {
        ledger_free(ledger);
        return NULL;
    }
    return ledger;
}

static struct limit_ledger *find_ledger(const struct limit_share *share, const char *identity)
{
    struct limit_ledger *ledger = share->ledgers;

    while (ledger != NULL && strcmp(ledger->identity, identity) != 0) {
        ledger = ledger->next;
    }
    return ledger;
}

bool limit_ledger_join(struct limit_share *share, struct limit_member *member, const struct limit_terms *terms)
{
    pthread_mutex_lock(&share->registry);
    struct limit_ledger *ledger = find_ledger(share, terms->identity);
    if (ledger == NULL) {
        ledger = ledger_new(terms);
        if (ledger != NULL) {
            ledger->next = share->ledgers;
            share->ledgers = ledger;
        }
    }
    if (ledger != NULL) {
        ledger->subjects_max = terms->subjects_max;
        member->ledger = ledger;
        member->next = ledger->members;
        ledger->members = member;
    }
    pthread_mutex_unlock(&share->registry);
    return ledger != NULL;
}

static void remove_ledger(struct limit_share *share, struct limit_ledger *ledger)
{
    struct limit_ledger **link = &share->ledgers;

    while (*link != ledger) {
        link = &(*link)->next;
    }
    *link = ledger->next;
    ledger_free(ledger);
}

void limit_ledger_leave(struct limit_share *share, struct limit_member *member)
{
    struct limit_ledger *ledger = member->ledger;

    pthread_mutex_lock(&share->registry);
    struct limit_member **link = &ledger->members;
    while (*link != member) {
        link = &(*link)->next;
    }
    *link = member->next;
    for (size_t i = 0; i < LIMIT_COUNTS; i++) {
        ledger->counts_of_those_who_left[i] += atomic_load_explicit(&member->counts[i], memory_order_relaxed);
    }
    if (ledger->members == NULL) {
        remove_ledger(share, ledger);
    }
    pthread_mutex_unlock(&share->registry);
}

bool limit_ledger_may_warn(struct limit_ledger *ledger, int64_t now_us)
{
    int64_t last_us = atomic_load_explicit(&ledger->warned_us, memory_order_relaxed);

    return (last_us == 0 || now_us - last_us >= WARN_US) &&
           atomic_compare_exchange_strong_explicit(&ledger->warned_us, &last_us, now_us, memory_order_relaxed,
                                                   memory_order_relaxed);
}

/* ---- for the admin port ---- */

static uint64_t count_of(const struct limit_ledger *ledger, enum limit_count count)
{
    uint64_t sum = ledger->counts_of_those_who_left[count];

    for (const struct limit_member *member = ledger->members; member != NULL; member = member->next) {
        sum += atomic_load_explicit(&member->counts[count], memory_order_relaxed);
    }
    return sum;
}

/* A copy of what is shown of a subject, as it may be gone once its stripe is unlocked. */
struct offender {
    uint64_t refused;
    int64_t wait_us;
    size_t length;
    char name[LIMIT_SUBJECT_MAX];
};

/* The worst come first. */
struct offenders {
    size_t count;
    struct offender list[OFFENDERS_SHOWN];
};

static void note_offender(struct offenders *offenders, struct limit_subject *subject, int64_t now_us)
{
    size_t place = offenders->count;

    while (place > 0 && offenders->list[place - 1].refused < subject->refused) {
        place--;
    }
    if (subject->refused == 0 || place == OFFENDERS_SHOWN) {
        return;
    }
    offenders->count += offenders->count < OFFENDERS_SHOWN;
    memmove(&offenders->list[place + 1], &offenders->list[place],
            (offenders->count - place - 1) * sizeof offenders->list[0]);
    struct offender *offender = &offenders->list[place];
    offender->refused = subject->refused;
    offender->wait_us = limit_meter_wait(&subject->ledger->meter, &subject->state, now_us, 1);
    if (subject->remote != NULL && subject->remote->refused_until_us - now_us > offender->wait_us) {
        offender->wait_us = subject->remote->refused_until_us - now_us;
    }
    offender->length = subject->length;
    memcpy(offender->name, subject->name, subject->length);
}

static void find_offenders(struct limit_share *share, struct limit_ledger *ledger, struct offenders *offenders,
                           int64_t now_us)
{
    offenders->count = 0;
    for (size_t number = 0; number < STRIPES; number++) {
        const struct stripe *stripe = &ledger->stripes[number];
        limit_share_lock(share, UINT64_C(1) << number);
        for (size_t i = 0; i < stripe->bucket_count; i++) {
            for (struct limit_subject *subject = stripe->buckets[i]; subject != NULL; subject = subject->next) {
                note_offender(offenders, subject, now_us);
            }
        }
        if (number == stripe_of(ledger->overflow->hash)) {
            note_offender(offenders, ledger->overflow, now_us);
        }
        limit_share_unlock(share, UINT64_C(1) << number);
    }
}

/* Names as operators see and give them: "user:alice+key:a\x20b". */
struct shown_name {
    char text[4 * LIMIT_SUBJECT_MAX + 1];
};

/* A key, which is the last part of a name, may hold any bytes: what would break the line, or look like another part or
 * another field, is shown by its number. */
static struct shown_name show_name(const char *name, size_t length)
{
    struct shown_name shown;
    char *at = shown.text;
    bool in_key = length >= 4 && memcmp(name, "key:", 4) == 0;

    for (size_t i = 0; i < length; i++) {
        unsigned char character = (unsigned char)name[i];
        if (character == '\n' && !in_key) {
            *at++ = '+'; /* between the parts */
            in_key = length - i > 4 && memcmp(name + i + 1, "key:", 4) == 0;
        } else if (character > ' ' && character < 0x7f && character != '\\' && character != '+') {
            *at++ = (char)character;
        } else {
            at += sprintf(at, "\\x%02x", character);
        }
    }
    *at = '\0';
    return shown;
}

static void print_ledger(struct limit_share *share, struct limit_ledger *ledger, FILE *out, int64_t now_us)
{
    struct offenders offenders;

    fprintf(out,
            "rule=%s %s admitted=%" PRIu64 " refused=%" PRIu64 " delayed=%" PRIu64 " observed=%" PRIu64
            " tracked=%zu\n",
            ledger->rule, ledger->members->description, count_of(ledger, LIMIT_ADMITTED),
            count_of(ledger, LIMIT_REFUSED), count_of(ledger, LIMIT_DELAYED), count_of(ledger, LIMIT_OBSERVED),
            atomic_load_explicit(&ledger->subject_count, memory_order_relaxed));
    find_offenders(share, ledger, &offenders, now_us);
    for (size_t i = 0; i < offenders.count; i++) {
        const struct offender *offender = &offenders.list[i];
        struct shown_name shown = show_name(offender->name, offender->length);
        fprintf(out, "offender=%s rule=%s refused=%" PRIu64 " next_admission_ms=%" PRId64 "\n", shown.text,
                ledger->rule, offender->refused, offender->wait_us / 1000 + (offender->wait_us % 1000 != 0));
    }
}

/* The newest stands first in the list; operators want the order of their file, which joined in that order. */
static void print_from_last(struct limit_share *share, struct limit_ledger *ledger, FILE *out, int64_t now_us)
{
    if (ledger != NULL) {
        print_from_last(share, ledger->next, out, now_us);
        print_ledger(share, ledger, out, now_us);
    }
}

void limit_share_print(struct limit_share *share, FILE *out, int64_t now_us)
{
    pthread_mutex_lock(&share->registry);
    print_from_last(share, share->ledgers, out, now_us);
    pthread_mutex_unlock(&share->registry);
}

static int hexadecimal(char digit)
{
    const char *digits = "0123456789abcdef";
    const char *found = digit != '\0' ? strchr(digits, digit) : NULL;

    return found != NULL ? (int)(found - digits) : -1;
}

/* Takes one character of a name off the text that shows it. False: it shows none. */
static bool read_shown(struct slice *shown, char *character)
{
    size_t taken = 1;

    *character = *shown->data == '+' ? '\n' : *shown->data;
    if (*shown->data == '\\') {
        int high = shown->length >= 4 && shown->data[1] == 'x' ? hexadecimal(shown->data[2]) : -1;
        int low = high >= 0 ? hexadecimal(shown->data[3]) : -1;
        *character = (char)(high * 16 + low);
        taken = 4;
        if (low < 0) {
            return false;
        }
    }
    *shown = (struct slice){shown->data + taken, shown->length - taken};
    return true;
}

size_t limit_ledger_name(struct slice shown, char name[LIMIT_SUBJECT_MAX])
{
    size_t length = 0;

    while (shown.length > 0) {
        if (length == LIMIT_SUBJECT_MAX || !read_shown(&shown, &name[length++])) {
            return 0;
        }
    }
    return length;
}

/* What is to be forgotten, and who is told. */
struct reset {
    struct slice name; /* as it is shown; empty for any */
    bool found;
    limit_forgotten_callback *forgotten;
    void *context;
};

static void reset_subject(struct reset *reset, struct limit_subject *subject)
{
    if (reset->name.length > 0) {
        struct shown_name shown = show_name(subject->name, subject->length);
        if (strlen(shown.text) != reset->name.length || memcmp(shown.text, reset->name.data, reset->name.length) != 0) {
            return;
        }
    }
    limit_meter_clear(&subject->ledger->meter, &subject->state);
    subject->refused = 0;
    if (subject->remote != NULL) {
        subject->remote->resets++;
        subject->remote->refused_until_us = 0;
        subject->remote->lots[0] = subject->remote->lots[1] = (struct limit_lot){0};
    }
    reset->found = true;
    if (reset->forgotten != NULL) {
        reset->forgotten(reset->context, subject);
    }
}

static void reset_ledger(struct limit_share *share, struct limit_ledger *ledger, struct reset *reset)
{
    reset->found = reset->found || reset->name.length == 0;
    for (size_t number = 0; number < STRIPES; number++) {
        const struct stripe *stripe = &ledger->stripes[number];
        limit_share_lock(share, UINT64_C(1) << number);
        for (size_t i = 0; i < stripe->bucket_count; i++) {
            for (struct limit_subject *subject = stripe->buckets[i]; subject != NULL; subject = subject->next) {
                reset_subject(reset, subject);
            }
        }
        if (number == stripe_of(ledger->overflow->hash)) {
            reset_subject(reset, ledger->overflow);
        }
        limit_share_unlock(share, UINT64_C(1) << number);
    }
}

bool limit_share_reset(struct limit_share *share, struct slice rule, struct slice name,
                       limit_forgotten_callback *forgotten, void *context)
{
    struct reset reset = {.name = name, .forgotten = forgotten, .context = context};

    pthread_mutex_lock(&share->registry);
    for (struct limit_ledger *ledger = share->ledgers; ledger != NULL; ledger = ledger->next) {
        if (strlen(ledger->rule) == rule.length && memcmp(ledger->rule, rule.data, rule.length) == 0) {
            reset_ledger(share, ledger, &reset);
        }
    }
    pthread_mutex_unlock(&share->registry);
    return reset.found;
}
