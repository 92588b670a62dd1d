/* By which control group the memory of the process is bounded. */
#include "base/memory.h"

#include <criterion/criterion.h>
#include <stdio.h>
#include <stdlib.h>

/* With those groups, and what the files say (shell): what half is said to be. */
static uint64_t limit_with(const char *groups, const char *files)
{
    char root[] = "/tmp/headgate-memory-XXXXXX", command[2048];

    cr_assert_not_null(mkdtemp(root));
    snprintf(
        command, sizeof command,
        "cd %s && mkdir -p proc/self sys/fs/cgroup/a/b sys/fs/cgroup/memory/a/b && printf '%s' >proc/self/cgroup && %s",
        root, groups, files);
    cr_assert_eq(system(command), 0);
    uint64_t limit = memory_default_limit(root);
    snprintf(command, sizeof command, "rm -r %s", root);
    cr_assert_eq(system(command), 0);
    return limit;
}

Test(memory, the_lowest_bound_on_the_way_holds)
{
    static const char two[] = "0::/a/b\\n", one[] = "7:cpu:/x\\n6:memory:/a/b\\n0::/\\n";
    uint64_t all = limit_with("", "true");

    cr_assert_gt(all, 1 << 20, "what the machine has");
    cr_assert_eq(limit_with(two, "cd sys/fs/cgroup; echo max >a/b/memory.max; echo 268435456 >a/memory.max"),
                 134217728);
    cr_assert_eq(limit_with(two, "echo 1048576 >sys/fs/cgroup/memory.max"), 524288, "in a namespace of its own");
    cr_assert_eq(limit_with(two, "echo max >sys/fs/cgroup/a/b/memory.max"), all);
    cr_assert_eq(limit_with(one, "cd sys/fs/cgroup/memory/a; echo 4194304 >b/memory.limit_in_bytes"), 2097152);
    cr_assert_eq(limit_with(one, "echo 9223372036854771712 >sys/fs/cgroup/memory/memory.limit_in_bytes"), all);
}
