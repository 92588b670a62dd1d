/* The keys that rules speak of: globs, and what they find in a request. */
#include "match/match.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- globs ---- */

struct key_glob {
    char *text;
    size_t plain_length; /* of what it begins with: neither anything special nor a brace */
    struct glob_braces braces;
};

struct match_keys {
    size_t count;
    struct key_glob globs[];
};

/* Takes the braces off a sound glob, and keeps in mind where they were. False: they are not one pair. */
static bool take_braces(struct key_glob *glob, struct slice word, char problem[CONF_PROBLEM_MAX])
{
    struct glob_braces *braces = &glob->braces;
    const char *what = "has more or other braces than one {…}";
    bool sound = true;
    char *to = glob->text;

    for (const char *at = glob->text; *at != '\0' && sound;) {
        const char *element = at;
        (void)glob_element(&at, '\0');
        if (*element == '{') {
            sound = braces->open == NULL;
            braces->open = to;
        } else if (*element == '}') {
            sound = braces->open != NULL && braces->close == NULL;
            braces->close = to;
        } else {
            memmove(to, element, (size_t)(at - element));
            to += at - element;
        }
    }
    *to = '\0';
    if (sound && braces->open != NULL && braces->close == NULL) {
        what = "opens a brace that it does not close";
        sound = false;
    }
    if (!sound) {
        snprintf(problem, CONF_PROBLEM_MAX, "\"%.*s\" %s", (int)(word.length < 64 ? word.length : 64), word.data, what);
    }
    return sound;
}

static size_t plain_length(const struct key_glob *glob)
{
    size_t before_special = strcspn(glob->text, "*?[\\");
    size_t before_brace = glob->braces.open != NULL ? (size_t)(glob->braces.open - glob->text) : before_special;

    return before_brace < before_special ? before_brace : before_special;
}

static struct match_keys *compile(const char *text, bool with_parts, char problem[CONF_PROBLEM_MAX])
{
    struct match_keys *keys = conf_alloc(NULL, sizeof *keys + words_count(text) * sizeof keys->globs[0]);
    struct slice word;
    bool sound = words_check(text, problem);

    keys->count = 0;
    while (sound && words_next(&text, &word)) {
        struct key_glob *glob = &keys->globs[keys->count++];
        *glob = (struct key_glob){.text = conf_format("%.*s", (int)word.length, word.data)};
        sound = glob_check(word, problem) && (!with_parts || take_braces(glob, word, problem)) &&
                words_check_glob(word, problem);
        glob->plain_length = plain_length(glob);
    }
    if (!sound) {
        match_keys_free(keys);
        return NULL;
    }
    return keys;
}

struct match_keys *match_keys_compile(const char *text, char problem[CONF_PROBLEM_MAX])
{
    return compile(text, false, problem);
}

struct match_keys *match_keys_compile_parts(const char *text, char problem[CONF_PROBLEM_MAX])
{
    return compile(text, true, problem);
}

void match_keys_free(struct match_keys *keys)
{
    if (keys == NULL) {
        return;
    }
    for (size_t i = 0; i < keys->count; i++) {
        free(keys->globs[i].text);
    }
    free(keys);
}

bool match_keys_all(const struct match_keys *keys)
{
    return keys->count == 0;
}

/* Most keys differ in the first character already. */
static bool begins_plainly(const struct key_glob *glob, struct slice key)
{
    size_t plain = glob->plain_length;

    return plain == 0 ||
           (plain <= key.length && glob->text[0] == key.data[0] && memcmp(glob->text, key.data, plain) == 0);
}

bool match_keys_part(const struct match_keys *keys, struct slice key, struct slice *part)
{
    bool is = keys->count == 0;

    *part = key;
    for (size_t i = 0; i < keys->count && !is; i++) {
        const struct key_glob *glob = &keys->globs[i];
        size_t plain = glob->plain_length;
        is = begins_plainly(glob, key) && glob_match_part(glob->text + plain, glob->braces,
                                                          (struct slice){key.data + plain, key.length - plain}, part);
    }
    return is;
}

/* ---- globs that are hardly meant ---- */

/* What stands for itself behind a backslash or in a class is passed over. */
static bool has_braces(struct slice glob)
{
    static const char braces[] = "{*}";
    bool within_class = false;

    for (size_t i = 0; i < glob.length; i++) {
        char c = glob.data[i];
        if (c == '\\') {
            i++;
        } else if (within_class) {
            within_class = c != ']';
        } else if (glob.length - i >= sizeof braces - 1 && memcmp(glob.data + i, braces, sizeof braces - 1) == 0) {
            return true;
        } else {
            within_class = c == '[';
        }
    }
    return false;
}

bool match_keys_warn(const char *text, char problem[CONF_PROBLEM_MAX])
{
    struct slice word;

    while (words_next(&text, &word)) {
        if (has_braces(word)) {
            snprintf(problem, CONF_PROBLEM_MAX,
                     "the braces of %.*s stand for themselves, as it counts nothing per key: write * for any text, or "
                     "\\{*} if keys have braces",
                     (int)(word.length > 64 ? 64 : word.length), word.data);
            return true;
        }
    }
    return false;
}

static bool is_covered(struct slice earlier, struct slice later)
{
    size_t prefix = 0;

    while (prefix < earlier.length && strchr("*?[\\", earlier.data[prefix]) == NULL) {
        prefix++;
    }
    bool is_simple = prefix + 1 == earlier.length && earlier.data[prefix] == '*';
    bool is_same = earlier.length == later.length && memcmp(earlier.data, later.data, later.length) == 0;

    /* No character of the prefix is special: the later one has the same ones. */
    return is_same || (is_simple && later.length >= prefix && memcmp(earlier.data, later.data, prefix) == 0);
}

static bool is_covered_by_any(const char *earlier, struct slice later)
{
    struct slice word;

    while (words_next(&earlier, &word)) {
        if (is_covered(word, later)) {
            return true;
        }
    }
    return false;
}

bool match_keys_hide(const char *earlier, const char *later, struct slice *glob)
{
    struct slice word;

    while (words_next(&later, &word)) {
        if (is_covered_by_any(earlier, word)) {
            *glob = word;
            return true;
        }
    }
    return false;
}

bool match_keys_cover(const char *earlier, const char *later)
{
    struct slice word;
    size_t count = 0;

    while (words_next(&later, &word)) {
        if (!is_covered_by_any(earlier, word)) {
            return false;
        }
        count++;
    }
    return count > 0;
}

bool match_keys_is(const struct match_keys *keys, struct slice key)
{
    struct slice part;

    return match_keys_part(keys, key, &part);
}

/* ---- patterns of keys ---- */

/* The text behind all that is special. */
static struct slice literal_end(const char *glob)
{
    const char *behind = glob;

    while (*glob != '\0') {
        if (*glob == '*') {
            behind = ++glob;
        } else if (*glob == '?' || *glob == '[' || *glob == '\\') {
            (void)glob_element(&glob, '\0');
            behind = glob;
        } else {
            glob++;
        }
    }
    return (struct slice){behind, (size_t)(glob - behind)};
}

static size_t shorter(struct slice a, struct slice b)
{
    return a.length < b.length ? a.length : b.length;
}

static bool begin_alike(struct slice a, struct slice b)
{
    size_t length = shorter(a, b);

    return length == 0 || memcmp(a.data, b.data, length) == 0;
}

static bool end_alike(struct slice a, struct slice b)
{
    size_t length = shorter(a, b);

    return length == 0 || memcmp(a.data + a.length - length, b.data + b.length - length, length) == 0;
}

bool match_keys_may_be(const struct match_keys *keys, const struct command_key_pattern *pattern)
{
    bool may = keys->count == 0;

    for (size_t i = 0; i < keys->count && !may; i++) {
        may = begin_alike((struct slice){keys->globs[i].text, keys->globs[i].plain_length}, pattern->prefix) &&
              end_alike(literal_end(keys->globs[i].text), pattern->suffix);
    }
    return may;
}

/* ---- the keys of a request ---- */

/* Of a request whose end has not come: those that are there, where a beginning tells which these are. */
static bool visit_partial(const struct policy_request *request, const struct command *command,
                          command_key_visitor *visit, void *context)
{
    bool is_range = command->keys == COMMAND_KEYS_RANGE;

    if ((command->categories & CATEGORY_PUBSUB) != 0 || (is_range && command->first_key == 0)) {
        return true;
    }
    if (is_range) {
        command_visit_keys(command, request->frame, visit, context);
    }
    return is_range && command->last_key == command->first_key &&
           resp_command_arguments_seen(request->framed) > (uint32_t)command->first_key;
}

bool match_visit_keys(const struct policy_request *request, command_key_visitor *visit, void *context)
{
    const struct command *command = request->command != NULL ? request->command : request->learned;

    if (command == NULL) {
        return true;
    }
    if (request->partial) {
        return visit_partial(request, command, visit, context);
    }
    command_visit_keys(command, request->frame, visit, context);
    return true;
}

struct key_search {
    const struct match_keys *keys;
    bool found;
};

static bool look_at_key(void *context, struct slice key, uint32_t argument_index)
{
    struct key_search *search = context;

    (void)argument_index;
    search->found = match_keys_is(search->keys, key);
    return !search->found;
}

static bool look_at_pattern(void *context, const struct command_key_pattern *pattern)
{
    struct key_search *search = context;

    search->found = match_keys_may_be(search->keys, pattern);
    return !search->found;
}

/* Any argument may be a key. */
static void look_at_all(struct key_search *search, struct slice frame)
{
    struct resp_walk walk = resp_walk_start(frame);
    struct slice argument;
    bool goes_on = resp_walk_next(&walk, &argument);

    while (goes_on && resp_walk_next(&walk, &argument)) {
        goes_on = look_at_key(search, argument, 0);
    }
}

enum match_answer match_keys_any(const struct match_keys *keys, const struct policy_request *request)
{
    struct key_search search = {.keys = keys};
    bool is_known = request->command != NULL;

    if (keys->count == 0) {
        return MATCH_YES;
    }
    bool is_open = is_known ? !match_visit_keys(request, look_at_key, &search) : request->partial;
    if (!is_known && !is_open) {
        look_at_all(&search, request->frame);
    }
    if (is_known && !is_open && !search.found && request->command->keys == COMMAND_KEYS_SORT) {
        command_visit_patterns(request->command, request->frame, look_at_pattern, &search);
    }
    return search.found ? MATCH_YES : is_open ? MATCH_OPEN : MATCH_NO;
}
