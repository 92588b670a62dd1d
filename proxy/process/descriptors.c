#include "process/descriptors.h"

#include "base/log.h"

#include <sys/resource.h>

void descriptors_raise(const struct conf *conf)
{
    struct rlimit limit;
    rlim_t clients = 0;

    for (size_t i = 0; i < conf_server_count(conf); i++) {
        clients += (rlim_t)conf_server_at(conf, i)->max_clients;
    }
    rlim_t wanted = clients * 2 + 128;
    if (getrlimit(RLIMIT_NOFILE, &limit) != 0 || limit.rlim_cur >= wanted) {
        return;
    }
    limit.rlim_cur = limit.rlim_max == RLIM_INFINITY || limit.rlim_max >= wanted ? wanted : limit.rlim_max;
    if (setrlimit(RLIMIT_NOFILE, &limit) == 0 && limit.rlim_cur < clients + 128) {
        log_warning("main", "ulimit -n is %llu: fewer than max_clients = %llu clients can be served",
                    (unsigned long long)limit.rlim_cur, (unsigned long long)clients);
    }
}
