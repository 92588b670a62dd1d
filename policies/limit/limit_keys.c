#include "limit/limit_keys.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/*
 * A glob runs over the key as a set of threads (K. Thompson's simulation, with R. Pike's captures): each thread is a
 * place in the glob with what it has captured so far, and they stand in the order in which their ways are preferred.
 * So every character of the key is looked at once by each place of the glob at most.
 */

enum element_kind { ELEMENT_ONE, ELEMENT_STAR, ELEMENT_OPEN, ELEMENT_CLOSE, ELEMENT_END };

struct element {
    enum element_kind kind;
    const char *text; /* of ONE: as match_glob_element() reads it */
};

struct thread {
    size_t element;
    size_t start, end; /* captured; end is at least start once it was closed */
};

struct thread_list {
    struct thread *threads;
    size_t count;
};

/* Most globs are simple: "prefix{*}", "prefix{*}rest" or "prefix{*}rest*", with nothing special in prefix and rest. */
struct simple_glob {
    bool is_simple;
    struct slice prefix, rest; /* within the glob's text */
    bool is_open;              /* a star ends it */
};

struct key_glob {
    char *text;
    struct element *elements;
    bool captures;
    struct simple_glob simple;
};

struct limit_keys {
    size_t count;
    struct key_glob *globs;
    /* Room for the longest glob. */
    struct thread_list now, next;
    size_t *reached; /* by element: 1 + the position at which it was reached last */
};

/* ---- compiling ---- */

static void add_element(struct key_glob *glob, size_t *count, enum element_kind kind, const char *text)
{
    glob->elements[(*count)++] = (struct element){kind, text};
}

/* The glob is sound but for its braces. */
static bool split_glob(struct key_glob *glob, size_t *count, char problem[CONF_PROBLEM_MAX])
{
    enum { BEFORE, WITHIN, BEHIND } place = BEFORE;
    const char *at = glob->text;

    *count = 0;
    while (*at != '\0') {
        if (*at == '{' || *at == '}') {
            if (place != (*at == '{' ? BEFORE : WITHIN)) {
                snprintf(problem, CONF_PROBLEM_MAX, "\"%.64s\" has more or other braces than one {…}", glob->text);
                return false;
            }
            place = *at == '{' ? WITHIN : BEHIND;
            add_element(glob, count, *at == '{' ? ELEMENT_OPEN : ELEMENT_CLOSE, NULL);
            at++;
        } else if (*at == '*') {
            add_element(glob, count, ELEMENT_STAR, NULL);
            at++;
        } else {
            add_element(glob, count, ELEMENT_ONE, at);
            (void)match_glob_element(&at, '\0');
        }
    }
    add_element(glob, count, ELEMENT_END, NULL);
    glob->captures = place == BEHIND;
    if (place == WITHIN) {
        snprintf(problem, CONF_PROBLEM_MAX, "\"%.64s\" opens a brace that it does not close", glob->text);
    }
    return place != WITHIN;
}

/* The text up to anything that is special in a glob. */
static struct slice literal(const char *text)
{
    return (struct slice){text, strcspn(text, "*?[\\{}")};
}

static struct simple_glob find_simple(const char *text)
{
    static const char counted[] = "{*}";
    struct simple_glob simple = {.prefix = literal(text)};

    text += simple.prefix.length;
    if (strncmp(text, counted, strlen(counted)) != 0) {
        return simple;
    }
    text += strlen(counted);
    simple.rest = literal(text);
    text += simple.rest.length;
    simple.is_open = *text == '*';
    simple.is_simple = text[simple.is_open] == '\0';
    return simple;
}

static void make_room(struct limit_keys *keys, size_t elements)
{
    keys->now.threads = conf_alloc(keys->now.threads, elements * sizeof *keys->now.threads);
    keys->next.threads = conf_alloc(keys->next.threads, elements * sizeof *keys->next.threads);
    keys->reached = conf_alloc(keys->reached, elements * sizeof *keys->reached);
}

static bool add_glob(struct limit_keys *keys, struct slice word, size_t *longest, char problem[CONF_PROBLEM_MAX])
{
    size_t count = 0;

    if (!match_glob_check(word, problem)) {
        return false;
    }
    keys->globs = conf_alloc(keys->globs, (keys->count + 1) * sizeof *keys->globs);
    struct key_glob *glob = &keys->globs[keys->count++];
    *glob = (struct key_glob){
        .text = conf_format("%.*s", (int)word.length, word.data),
        .elements = conf_alloc(NULL, (word.length + 1) * sizeof *glob->elements),
    };
    glob->simple = find_simple(glob->text);
    bool sound = split_glob(glob, &count, problem) && match_glob_word_check(word, problem);
    *longest = count > *longest ? count : *longest;
    return sound;
}

struct limit_keys *limit_keys_compile(const char *text, char problem[CONF_PROBLEM_MAX])
{
    struct limit_keys *keys = conf_alloc(NULL, sizeof *keys);
    struct slice word;
    size_t longest = 1;
    bool sound = match_words_check(text, problem);

    *keys = (struct limit_keys){0};
    while (sound && match_next_word(&text, &word)) {
        sound = add_glob(keys, word, &longest, problem);
    }
    if (!sound) {
        limit_keys_free(keys);
        return NULL;
    }
    make_room(keys, longest);
    return keys;
}

void limit_keys_free(struct limit_keys *keys)
{
    if (keys == NULL) {
        return;
    }
    for (size_t i = 0; i < keys->count; i++) {
        free(keys->globs[i].text);
        free(keys->globs[i].elements);
    }
    free(keys->globs);
    free(keys->now.threads);
    free(keys->next.threads);
    free(keys->reached);
    free(keys);
}

/* ---- running ---- */

/* Adds the thread, and those that it splits into without taking a character, unless a preferred one is there already.
 */
static void add_thread(struct limit_keys *keys, const struct key_glob *glob, struct thread_list *list,
                       struct thread thread, size_t position)
{
    for (;; thread.element++) {
        const struct element *element = &glob->elements[thread.element];
        if (keys->reached[thread.element] == position + 1) {
            return;
        }
        keys->reached[thread.element] = position + 1;
        if (element->kind == ELEMENT_OPEN) {
            thread.start = position;
        } else if (element->kind == ELEMENT_CLOSE) {
            thread.end = position;
        } else if (element->kind != ELEMENT_STAR) {
            list->threads[list->count++] = thread;
            return;
        } else {
            /* To be done with the star is preferred to staying in it. */
            struct thread behind = thread;
            behind.element++;
            add_thread(keys, glob, list, behind, position);
            list->threads[list->count++] = thread;
            return;
        }
    }
}

static void step(struct limit_keys *keys, const struct key_glob *glob, char character, size_t position)
{
    keys->next.count = 0;
    for (size_t i = 0; i < keys->now.count; i++) {
        struct thread thread = keys->now.threads[i];
        const struct element *element = &glob->elements[thread.element];
        const char *text = element->text;
        if (element->kind == ELEMENT_ONE && match_glob_element(&text, character)) {
            thread.element++;
            add_thread(keys, glob, &keys->next, thread, position + 1);
        } else if (element->kind == ELEMENT_STAR) {
            add_thread(keys, glob, &keys->next, thread, position + 1);
        }
    }
    struct thread_list done = keys->now;
    keys->now = keys->next;
    keys->next = done;
}

static bool run_glob(struct limit_keys *keys, const struct key_glob *glob, struct slice key, struct slice *counted)
{
    size_t position = 0;

    keys->now.count = 0;
    for (size_t i = 0; i == 0 || glob->elements[i - 1].kind != ELEMENT_END; i++) {
        keys->reached[i] = 0;
    }
    add_thread(keys, glob, &keys->now, (struct thread){0}, 0);
    for (; position < key.length && keys->now.count > 0; position++) {
        step(keys, glob, key.data[position], position);
    }
    for (size_t i = 0; position == key.length && i < keys->now.count; i++) {
        const struct thread *thread = &keys->now.threads[i];
        if (glob->elements[thread->element].kind == ELEMENT_END) {
            *counted = (struct slice){key.data + thread->start, thread->end - thread->start};
            return true;
        }
    }
    return false;
}

static bool find_in_simple(const struct simple_glob *simple, struct slice key, struct slice *counted)
{
    size_t before = simple->prefix.length, behind = simple->rest.length;

    if (key.length < before + behind || memcmp(key.data, simple->prefix.data, before) != 0) {
        return false;
    }
    const char *start = key.data + before;
    const char *end = key.data + key.length - behind;
    if (simple->is_open) {
        /* The shortest: up to the first place where the rest stands. */
        end = memmem(start, key.length - before, simple->rest.data, behind);
    } else if (memcmp(end, simple->rest.data, behind) != 0) {
        end = NULL;
    }
    if (end != NULL) {
        *counted = (struct slice){start, (size_t)(end - start)};
    }
    return end != NULL;
}

static bool find_in_glob(struct limit_keys *keys, const struct key_glob *glob, struct slice key, struct slice *counted)
{
    if (glob->simple.is_simple) {
        return find_in_simple(&glob->simple, key, counted);
    }
    if (!glob->captures) {
        return match_glob(glob->text, key);
    }
    return run_glob(keys, glob, key, counted);
}

bool limit_keys_find(struct limit_keys *keys, struct slice key, struct slice *counted)
{
    *counted = key;
    for (size_t i = 0; i < keys->count; i++) {
        if (find_in_glob(keys, &keys->globs[i], key, counted)) {
            return true;
        }
    }
    return keys->count == 0;
}
