#include "topology/cluster_command.h"

#include "resp/word.h"

static const struct cluster_plan plans[] = {
#define PLAN(command, subcommand, where, merge, text)                                                                  \
    {command, subcommand, CLUSTER_##where, CLUSTER_MERGE_##merge, text},
#include "topology/cluster_plans.inc"
#undef PLAN
};

#define PLANS (sizeof plans / sizeof plans[0])

static const struct cluster_plan by_keys = {"", "", CLUSTER_KEYS, CLUSTER_MERGE_NONE, ""};

/* ---- which plan ---- */

/* The first row of the command; PLANS: it has none. */
static size_t first_row(const char *command)
{
    size_t low = 0, high = PLANS;

    while (low < high) {
        size_t middle = (low + high) / 2;
        if (strcmp(plans[middle].command, command) < 0) {
            low = middle + 1;
        } else {
            high = middle;
        }
    }
    return low < PLANS && strcmp(plans[low].command, command) == 0 ? low : PLANS;
}

bool cluster_command_is_plain(const struct command *command)
{
    return first_row(command->name) == PLANS;
}

/* NULL: there are not so many. */
static struct slice argument_at(struct slice frame, uint64_t place)
{
    struct resp_walk walk = resp_walk_start(frame);
    struct slice argument;

    if (!resp_walk_skip(&walk, place) || !resp_walk_next(&walk, &argument)) {
        return (struct slice){NULL, 0};
    }
    return argument;
}

const struct cluster_plan *cluster_command_plan(const struct command *command, struct slice frame)
{
    const struct cluster_plan *found = &by_keys;
    size_t row = first_row(command->name);

    if (row == PLANS) {
        return found;
    }
    struct slice subcommand = argument_at(frame, 1);
    for (; row < PLANS && strcmp(plans[row].command, command->name) == 0; row++) {
        const struct cluster_plan *plan = &plans[row];
        if (plan->subcommand[0] == '\0') {
            /* Without a cursor there is nothing to go on from: any node says what is missing. */
            found = plan->where == CLUSTER_CURSOR && subcommand.data == NULL ? &by_keys : plan;
        } else if (slice_is_word(subcommand, plan->subcommand)) {
            return plan;
        }
    }
    return found;
}

/* ---- slots ---- */

bool cluster_command_argument_slot(const struct cluster_plan *plan, struct slice frame, uint16_t *slot)
{
    struct resp_walk walk = resp_walk_start(frame);
    struct slice argument;
    int64_t number;

    if (!resp_walk_skip(&walk, 2) || !resp_walk_next(&walk, &argument)) {
        return false;
    }
    if (plan->where == CLUSTER_KEY) {
        *slot = cluster_slot_of(argument);
        return true;
    }
    if (!word_integer(argument, &number) || number < 0 || number >= CLUSTER_SLOTS) {
        return false;
    }
    *slot = (uint16_t)number;
    return true;
}

/* ---- words ---- */

/* As Redis writes names. */
static void write_name(const struct cluster_plan *plan, char *name, size_t size)
{
    bool has_subcommand = plan->subcommand[0] != '\0';

    snprintf(name, size, "%s%s%s", plan->command, has_subcommand ? " " : "", plan->subcommand);
    for (; *name != '\0'; name++) {
        *name = *name >= 'a' && *name <= 'z' ? (char)(*name - 'a' + 'A') : *name;
    }
}

size_t cluster_command_refusal(const struct cluster_plan *plan, char *text, size_t size)
{
    char name[64];

    write_name(plan, name, sizeof name);
    return (size_t)snprintf(text, size, "-ERR %s is refused here, before a Redis Cluster: %s\r\n", name, plan->text);
}

void cluster_command_visit(void (*visit)(void *context, const struct cluster_plan *plan), void *context)
{
    for (size_t i = 0; i < PLANS; i++) {
        visit(context, &plans[i]);
    }
}

static const char *where_in_words(enum cluster_where where)
{
    static const char *const words[] = {
        [CLUSTER_KEYS] = "to the node of its keys",
        [CLUSTER_HOME] = "to one node",
        [CLUSTER_ALL] = "to all masters",
        [CLUSTER_SLOT] = "to the node of that slot",
        [CLUSTER_KEY] = "to the node of that key",
        [CLUSTER_CURSOR] = "to one master after the other",
        [CLUSTER_SESSION] = "of the connection",
        [CLUSTER_HERE] = "answered by Headgate",
        [CLUSTER_REFUSED] = "refused",
    };
    return words[where];
}

static const char *merge_in_words(enum cluster_merge merge)
{
    static const char *const words[] = {
        [CLUSTER_MERGE_NONE] = "",
        [CLUSTER_MERGE_AGREED] = "the first; all say the same",
        [CLUSTER_MERGE_ANY] = "the first that is no error",
        [CLUSTER_MERGE_SUM] = "the sum",
        [CLUSTER_MERGE_LEAST] = "the least",
        [CLUSTER_MERGE_EACH] = "the least at each place",
        [CLUSTER_MERGE_LIST] = "the lists one behind the other",
        [CLUSTER_MERGE_UNION] = "the lists, each element once",
        [CLUSTER_MERGE_COUNTS] = "the sum for each name",
        [CLUSTER_MERGE_TEXT] = "the texts one behind the other",
        [CLUSTER_MERGE_CHOICE] = "one of those that are no null",
    };
    return words[merge];
}

static void print_row(void *context, const struct cluster_plan *plan)
{
    FILE *out = context;
    char name[64];

    write_name(plan, name, sizeof name);
    fprintf(out, "| `%s` | %s | %s | %s |\n", name, where_in_words(plan->where), merge_in_words(plan->merge),
            plan->text);
}

void cluster_command_print_markdown(FILE *out)
{
    fprintf(out, "| command | where it goes | what becomes of the replies | |\n|---|---|---|---|\n");
    cluster_command_visit(print_row, out);
}
