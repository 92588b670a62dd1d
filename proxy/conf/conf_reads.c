/* What the options that read from replicas need beside them. */
#include "conf/conf_private.h"

static bool is_server(const struct conf_part *part)
{
    return part->section == &conf_section_headgate || part->section == &conf_section_server;
}

void conf_check_reads(struct conf_reading *reading, struct conf_part *part)
{
    const struct conf *conf = part->values;

    if (conf->reads != CONF_READS_MASTER && conf->upstream.topology != CONF_TOPOLOGY_SINGLE &&
        conf->pool != CONF_POOL_SHARED) {
        conf_fault_value(reading, part, "reads", "needs pool = shared, as replicas are read from over shared lanes",
                         "master, or pool = shared");
    }
}

/* What a server has from [headgate] is meant for others. */
static int line_of(const struct conf_part *part)
{
    return part->sightings[conf_section_option(part->section, "reads") - part->section->options].line;
}

void conf_warn_of_reads(struct conf_reading *reading)
{
    for (struct conf_part *part = reading->parts; part != NULL; part = part->next) {
        const struct conf *conf = is_server(part) ? part->values : NULL;
        if (conf != NULL && conf->reads != CONF_READS_MASTER && conf->upstream.topology == CONF_TOPOLOGY_SINGLE &&
            line_of(part) > 0) {
            conf_warn(reading, part, line_of(part),
                      "reads does nothing: upstream names no sentinels and no cluster, which would know of replicas");
        }
    }
}
