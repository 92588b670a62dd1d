/* headgate-admin(8), from the tables of verbs and counters. */
#include "admin/admin_private.h"

#include "base/roff.h"

#include <stdio.h>

/* The first word of the usage is the verb, the rest what it takes. */
static void tell_verb(void *context, const struct admin_verb_told *verb)
{
    static const char *const notes[] = {
        [POLICY_VERB_READS] = NULL,
        [POLICY_VERB_CHANGES] = "Changes something.",
        [POLICY_VERB_CHANGES_ON_RESET] = "With RESET it changes something.",
    };
    FILE *out = context;
    size_t length = strcspn(verb->usage, " ");
    char name[64];

    snprintf(name, sizeof name, "%.*s", (int)length, verb->usage);
    roff_entry(out, name, verb->usage[length] != '\0' ? verb->usage + length + 1 : NULL);
    roff_text(out, ROFF_GO_ON, verb->help);
    if (notes[verb->effect] != NULL) {
        roff_text(out, ROFF_ENTRY_PARAGRAPH, notes[verb->effect]);
    }
}

static void tell_counter(FILE *out, const char *name, enum stats_kind kind, const char *help)
{
    roff_entry(out, name, kind == STATS_GAUGE ? "gauge" : "counter");
    roff_text(out, ROFF_GO_ON, help);
}

static void print_verbs(FILE *out, const struct policy *const *policies)
{
    roff_text(
        out, ROFF_HEADING,
        "VERBS\nVerbs that change something are obeyed over a Unix socket, from who has given admin_password, and "
        "without a password from processes on this machine of the same user, or of root.");
    admin_verbs_tell(tell_verb, out);
    for (; *policies != NULL; policies++) {
        for (size_t i = 0; i < (*policies)->verb_count; i++) {
            const struct policy_verb *verb = &(*policies)->verbs[i];
            tell_verb(out, &(struct admin_verb_told){verb->name, verb->usage, verb->help, verb->effect, NULL});
        }
    }
}

static void print_counters(FILE *out, const struct policy *const *policies)
{
    roff_text(
        out, ROFF_HEADING,
        "COUNTERS\nWhat STATS answers, as \"name:value\" under the name of its section. Counters only grow, since the "
        "start, or since RESETSTAT was asked for last.");
    for (enum stats_id id = 0; id < STATS_COUNT; id++) {
        const struct stats_description *description = stats_describe(id);
        if (id == 0 || strcmp(description->section, stats_describe(id - 1)->section) != 0) {
            roff_text(out, ROFF_SUBHEADING, description->section);
        }
        tell_counter(out, description->name, description->kind, description->help);
    }
    for (; *policies != NULL; policies++) {
        const struct policy *policy = *policies;
        if (policy->counter_count > 0) {
            roff_text(out, ROFF_SUBHEADING, policy->counter_section);
        }
        for (size_t i = 0; i < policy->counter_count; i++) {
            tell_counter(out, policy->counters[i].name, policy->counters[i].kind, policy->counters[i].help);
        }
    }
}

void admin_print_manual(FILE *out, const struct policy *const *policies)
{
    roff_text(out, ROFF_HEADING, "NAME\nheadgate-admin - what can be asked on the admin port of headgate");
    roff_text(out, ROFF_HEADING, "SYNOPSIS\nredis-cli -p 6390 VERB [argument ...]");
    roff_text(out, ROFF_HEADING,
              "DESCRIPTION\nThe admin port of headgate(8) speaks RESP, so that redis-cli(1) and any client library of "
              "Redis can "
              "ask there. It listens at the addresses of the option admin of headgate.ini(5), 127.0.0.1:6390 by "
              "default. It cannot hold up clients.");
    print_verbs(out, policies);
    print_counters(out, policies);
}
