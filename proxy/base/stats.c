#include "base/stats.h"

static const struct stats_description descriptions[STATS_COUNT] = {
#define STATS_DESCRIBE(identifier, section, name, kind, help) {section, name, STATS_##kind, help},
    STATS_TABLE(STATS_DESCRIBE)
#undef STATS_DESCRIBE
};

const struct stats_description *stats_describe(enum stats_id id)
{
    return &descriptions[id];
}
