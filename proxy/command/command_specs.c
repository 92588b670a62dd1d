#include "command/command_specs.h"

#include "resp/resp.h"
#include "resp/word.h"

/* False: there is none. */
static bool argument_at(struct slice frame, int64_t place, struct slice *argument)
{
    struct resp_walk walk = resp_walk_start(frame);

    return place >= 0 && resp_walk_skip(&walk, (uint64_t)place) && resp_walk_next(&walk, argument);
}

/* The argument behind the keyword, which stands at that place or behind it, and ahead of end: the first such one, or
 * the last. 0: it is not there. */
static int64_t behind_keyword(const struct command_spec *spec, struct slice frame, int64_t from, int64_t end,
                              bool is_last)
{
    struct resp_walk walk = resp_walk_start(frame);
    struct slice argument;
    int64_t found = 0;

    if (!resp_walk_skip(&walk, (uint64_t)from)) {
        return 0;
    }
    for (int64_t place = from; place < end && (is_last || found == 0) && resp_walk_next(&walk, &argument); place++) {
        if (slice_is_word(argument, spec->keyword)) {
            found = place + 1;
        }
    }
    return found;
}

/* 0: nowhere. */
static int64_t find_begin(const struct command_spec *spec, struct slice frame, int64_t count)
{
    if (spec->keyword[0] == '\0') {
        return spec->begin;
    }
    return spec->begin > 0 ? behind_keyword(spec, frame, spec->begin, count, false)
                           : behind_keyword(spec, frame, 1, count + spec->begin + 1, true);
}

/* The place of the last key, by that of the first; below it: there is none. */
static int64_t find_last(const struct command_spec *spec, struct slice frame, int64_t count, int64_t begin,
                         int64_t first)
{
    struct slice argument;
    int64_t keys;

    if (spec->is_counted) {
        bool is_sound = argument_at(frame, begin + spec->count_at, &argument) && word_integer(argument, &keys) &&
                        keys > 0 && keys <= count;
        return is_sound ? first + (keys - 1) * spec->step : 0;
    }
    if (spec->last >= 0) {
        return first + spec->last;
    }
    return spec->last == -1 && spec->limit > 1 ? first + (count - first) / spec->limit - 1 : count + spec->last;
}

/* False: whoever is told wants no more. */
static bool visit_range(const struct command_spec *spec, struct slice frame, int64_t first, int64_t last,
                        command_key_visitor *visit, void *context)
{
    struct resp_walk walk = resp_walk_start(frame);
    struct slice key;

    if (!resp_walk_skip(&walk, (uint64_t)first)) {
        return true;
    }
    for (int64_t place = first; place <= last && resp_walk_next(&walk, &key); place += spec->step) {
        if (!visit(context, key, (uint32_t)place)) {
            return false;
        }
        if (place + spec->step <= last && !resp_walk_skip(&walk, (uint64_t)spec->step - 1)) {
            break;
        }
    }
    return true;
}

void command_specs_visit(const struct command_specs *specs, struct slice frame, command_key_visitor *visit,
                         void *context)
{
    int64_t count = resp_walk_start(frame).left;
    bool goes_on = true;

    for (size_t i = 0; i < specs->count && goes_on; i++) {
        const struct command_spec *spec = &specs->items[i];
        int64_t begin = find_begin(spec, frame, count);
        int64_t first = spec->is_counted ? begin + spec->first : begin;
        int64_t last = begin > 0 ? find_last(spec, frame, count, begin, first) : 0;
        if (begin > 0 && last >= first && last < count) {
            goes_on = visit_range(spec, frame, first, last, visit, context);
        }
    }
}
