#include "topology/cluster_merge.h"

#include "resp/resp_element.h"
#include "topology/cluster_map.h"

#include <inttypes.h>
#include <stdlib.h>

static const char misfit[] = "-ERR the nodes of the cluster have answered what does not fit together\r\n";

static void write_slice(FILE *out, struct slice bytes)
{
    fwrite(bytes.data, 1, bytes.length, out);
}

static void write_misfit(FILE *out)
{
    fwrite(misfit, 1, sizeof misfit - 1, out);
}

static bool read_reply(struct slice reply, struct resp_element *element)
{
    return reply.length > 0 && resp_element_next(&reply, element);
}

static bool is_list(const struct resp_element *element)
{
    return (element->type == '*' || element->type == '~') && !element->is_null;
}

/* ---- integers ---- */

static bool add(int64_t *sum, int64_t number)
{
    return !__builtin_add_overflow(*sum, number, sum);
}

static void merge_integers(enum cluster_merge how, const struct slice replies[], size_t count, FILE *out)
{
    struct resp_element element;
    int64_t result = how == CLUSTER_MERGE_SUM ? 0 : INT64_MAX;

    for (size_t i = 0; i < count; i++) {
        if (!read_reply(replies[i], &element) || element.type != ':' ||
            (how == CLUSTER_MERGE_SUM && !add(&result, element.integer))) {
            write_misfit(out);
            return;
        }
        if (how == CLUSTER_MERGE_LEAST && element.integer < result) {
            result = element.integer;
        }
    }
    fprintf(out, ":%" PRId64 "\r\n", result);
}

/* ---- lists ---- */

/* The lists of all replies, walked side by side. */
struct lists {
    size_t count;
    struct slice left[CLUSTER_NODES_MAX]; /* elements still to come */
};

/* False: they are not all lists of that length. */
static bool lists_start(struct lists *lists, const struct slice replies[], size_t count, uint64_t length)
{
    struct resp_element list;

    lists->count = count;
    for (size_t i = 0; i < count; i++) {
        if (!read_reply(replies[i], &list) || !is_list(&list) || list.count != length) {
            return false;
        }
        lists->left[i] = list.inside;
    }
    return true;
}

/* The least of the integers that come next. */
static bool lists_least(struct lists *lists, int64_t *least)
{
    int64_t number;

    *least = INT64_MAX;
    for (size_t i = 0; i < lists->count; i++) {
        if (!resp_element_next_integer(&lists->left[i], &number)) {
            return false;
        }
        *least = number < *least ? number : *least;
    }
    return true;
}

static bool are_all_integers(struct lists *lists, uint64_t length)
{
    int64_t ignored;

    for (uint64_t i = 0; i < length; i++) {
        if (!lists_least(lists, &ignored)) {
            return false;
        }
    }
    return true;
}

static void merge_each(const struct slice replies[], size_t count, FILE *out)
{
    struct resp_element first;
    struct lists lists;
    int64_t least;

    if (!read_reply(replies[0], &first) || !lists_start(&lists, replies, count, first.count) ||
        !are_all_integers(&lists, first.count)) {
        write_misfit(out);
        return;
    }
    (void)lists_start(&lists, replies, count, first.count);
    fprintf(out, "*%" PRIu64 "\r\n", first.count);
    for (uint64_t i = 0; i < first.count; i++) {
        (void)lists_least(&lists, &least);
        fprintf(out, ":%" PRId64 "\r\n", least);
    }
}

static void merge_lists(const struct slice replies[], size_t count, FILE *out)
{
    struct resp_element list;
    uint64_t length = 0;
    char type = '\0';

    for (size_t i = 0; i < count; i++) {
        if (!read_reply(replies[i], &list)) {
            write_misfit(out);
            return;
        }
        if (!is_list(&list)) {
            write_slice(out, replies[0]);
            return;
        }
        type = type == '\0' ? list.type : type;
        length += list.count;
    }
    fprintf(out, "%c%" PRIu64 "\r\n", type, length);
    for (size_t i = 0; i < count; i++) {
        (void)read_reply(replies[i], &list);
        write_slice(out, list.inside);
    }
}

/* The lengths of all lists together; false: they are not all lists. */
static bool total_length(const struct slice replies[], size_t count, uint64_t *length)
{
    struct resp_element list;

    *length = 0;
    for (size_t i = 0; i < count; i++) {
        if (!read_reply(replies[i], &list) || !is_list(&list)) {
            return false;
        }
        *length += list.count;
    }
    return true;
}

static int compare_slices(const void *left, const void *right)
{
    const struct slice *a = left, *b = right;
    size_t common = a->length < b->length ? a->length : b->length;
    int order = common > 0 ? memcmp(a->data, b->data, common) : 0;

    return order != 0 ? order : (a->length > b->length) - (a->length < b->length);
}

static size_t gather(const struct slice replies[], size_t count, struct slice *elements)
{
    struct resp_element list, element;
    size_t gathered = 0;

    for (size_t i = 0; i < count; i++) {
        (void)read_reply(replies[i], &list);
        while (list.count-- > 0 && resp_element_next(&list.inside, &element)) {
            elements[gathered++] = element.whole;
        }
    }
    return gathered;
}

/* Sorted, each is beside its like. Returns how many are left. */
static size_t without_doubles(struct slice *elements, size_t count)
{
    size_t kept = 0;

    qsort(elements, count, sizeof *elements, compare_slices);
    for (size_t i = 0; i < count; i++) {
        if (kept == 0 || !slice_equal(elements[i], elements[kept - 1])) {
            elements[kept++] = elements[i];
        }
    }
    return kept;
}

static void merge_union(const struct slice replies[], size_t count, FILE *out)
{
    struct resp_element first;
    uint64_t length;

    if (!total_length(replies, count, &length) || !read_reply(replies[0], &first)) {
        write_misfit(out);
        return;
    }
    struct slice *elements = calloc((size_t)length + 1, sizeof *elements);
    if (elements == NULL) {
        fputs("-ERR Headgate is out of memory\r\n", out);
        return;
    }
    size_t kept = without_doubles(elements, gather(replies, count, elements));
    fprintf(out, "%c%zu\r\n", first.type, kept);
    for (size_t i = 0; i < kept; i++) {
        write_slice(out, elements[i]);
    }
    free(elements);
}

/* ---- names and numbers ---- */

/* All have the names of the first, in its order, as they were asked for the same. */
static bool lists_sum(struct lists *lists, struct slice *name, int64_t *sum)
{
    struct resp_element own;
    int64_t number;

    *sum = 0;
    for (size_t i = 0; i < lists->count; i++) {
        if (!resp_element_next(&lists->left[i], &own) || (i > 0 && !slice_equal(own.whole, *name)) ||
            !resp_element_next_integer(&lists->left[i], &number) || !add(sum, number)) {
            return false;
        }
        *name = own.whole;
    }
    return true;
}

static void merge_counts(const struct slice replies[], size_t count, FILE *out)
{
    struct resp_element first;
    struct lists lists;
    struct slice name;
    int64_t sum;

    bool fits = read_reply(replies[0], &first) && lists_start(&lists, replies, count, first.count);
    for (uint64_t i = 0; fits && i < first.count; i += 2) {
        fits = lists_sum(&lists, &name, &sum);
    }
    if (!fits) {
        write_misfit(out);
        return;
    }
    (void)lists_start(&lists, replies, count, first.count);
    fprintf(out, "%c%" PRIu64 "\r\n", first.type, first.count);
    for (uint64_t i = 0; i < first.count; i += 2) {
        (void)lists_sum(&lists, &name, &sum);
        write_slice(out, name);
        fprintf(out, ":%" PRId64 "\r\n", sum);
    }
}

/* ---- texts ---- */

static bool is_text(const struct resp_element *element)
{
    return (element->type == '$' || element->type == '=' || element->type == '+') && !element->is_null;
}

/* A verbatim text begins with its form: "txt:". */
static struct slice payload_of(const struct resp_element *element, bool is_first)
{
    size_t form = element->type == '=' && !is_first ? 4 : 0;

    return element->text.length >= form ? (struct slice){element->text.data + form, element->text.length - form}
                                        : (struct slice){"", 0};
}

static void merge_texts(const struct slice replies[], size_t count, FILE *out)
{
    struct resp_element text;
    size_t length = 0;
    char type = '$';

    for (size_t i = 0; i < count; i++) {
        if (!read_reply(replies[i], &text) || !is_text(&text)) {
            write_misfit(out);
            return;
        }
        type = text.type == '=' && i == 0 ? '=' : type;
        length += payload_of(&text, i == 0).length;
    }
    fprintf(out, "%c%zu\r\n", type, length);
    for (size_t i = 0; i < count; i++) {
        (void)read_reply(replies[i], &text);
        write_slice(out, payload_of(&text, i == 0));
    }
    fwrite("\r\n", 1, 2, out);
}

/* ---- one of them ---- */

static void merge_any(const struct slice replies[], size_t count, FILE *out)
{
    struct resp_element element;

    for (size_t i = 0; i < count; i++) {
        if (read_reply(replies[i], &element) && !resp_element_is_error(&element)) {
            write_slice(out, replies[i]);
            return;
        }
    }
    write_slice(out, replies[0]);
}

static void merge_choice(const struct slice replies[], size_t count, uint64_t choice, FILE *out)
{
    struct resp_element element;

    for (size_t i = 0; i < count; i++) {
        struct slice reply = replies[(choice + i) % count];
        if (read_reply(reply, &element) && !element.is_null) {
            write_slice(out, reply);
            return;
        }
    }
    write_slice(out, replies[0]);
}

static const struct slice *first_error(const struct slice replies[], size_t count)
{
    struct resp_element element;

    for (size_t i = 0; i < count; i++) {
        if (read_reply(replies[i], &element) && resp_element_is_error(&element)) {
            return &replies[i];
        }
    }
    return NULL;
}

void cluster_merge(enum cluster_merge how, const struct slice replies[], size_t count, uint64_t choice, FILE *out)
{
    if (count == 0 || count > CLUSTER_NODES_MAX) {
        write_misfit(out);
        return;
    }
    const struct slice *error = how == CLUSTER_MERGE_ANY ? NULL : first_error(replies, count);
    if (error != NULL) {
        write_slice(out, *error);
        return;
    }
    switch (how) {
    case CLUSTER_MERGE_NONE:
    case CLUSTER_MERGE_AGREED:
        write_slice(out, replies[0]);
        break;
    case CLUSTER_MERGE_ANY:
        merge_any(replies, count, out);
        break;
    case CLUSTER_MERGE_SUM:
    case CLUSTER_MERGE_LEAST:
        merge_integers(how, replies, count, out);
        break;
    case CLUSTER_MERGE_EACH:
        merge_each(replies, count, out);
        break;
    case CLUSTER_MERGE_LIST:
        merge_lists(replies, count, out);
        break;
    case CLUSTER_MERGE_UNION:
        merge_union(replies, count, out);
        break;
    case CLUSTER_MERGE_COUNTS:
        merge_counts(replies, count, out);
        break;
    case CLUSTER_MERGE_TEXT:
        merge_texts(replies, count, out);
        break;
    case CLUSTER_MERGE_CHOICE:
        merge_choice(replies, count, choice, out);
        break;
    }
}
