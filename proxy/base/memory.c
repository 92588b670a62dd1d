#include "base/memory.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#define FILE_NAME_MAX 1024

/* The number in the file if there is one, and it is lower. */
static void lower(uint64_t *bytes, const char *path)
{
    FILE *file = fopen(path, "re");
    uint64_t number;

    if (file == NULL) {
        return;
    }
    if (fscanf(file, "%" SCNu64, &number) == 1 && number > 0 && number < *bytes) {
        *bytes = number;
    }
    (void)fclose(file);
}

/* What bounds the group, and those that it is in. path: of the group; it is cut to pieces. */
static void lower_by_group(uint64_t *bytes, const char *root, const char *folder, char *path,
                           const char *const names[2])
{
    char file[FILE_NAME_MAX];
    char *end;

    do {
        for (size_t i = 0; i < 2; i++) {
            snprintf(file, sizeof file, "%s%s%s/%s", root, folder, path, names[i]);
            lower(bytes, file);
        }
        end = strrchr(path, '/');
        if (end != NULL) {
            *end = '\0';
        }
    } while (end != NULL);
}

/* A line of /proc/self/cgroup: "NUMBER:CONTROLLERS:PATH"; of the second version, without controllers. */
static void lower_by_line(uint64_t *bytes, const char *root, char *line)
{
    static const char *const first[] = {"memory.limit_in_bytes", "memory.soft_limit_in_bytes"};
    static const char *const second[] = {"memory.max", "memory.high"};
    char *controllers = strchr(line, ':');
    char *path = controllers != NULL ? strchr(controllers + 1, ':') : NULL;

    line[strcspn(line, "\n")] = '\0';
    if (path == NULL) {
        return;
    }
    *path++ = '\0';
    controllers++;
    if (*controllers == '\0') {
        lower_by_group(bytes, root, "/sys/fs/cgroup", path, second);
    } else if (strcmp(controllers, "memory") == 0) {
        lower_by_group(bytes, root, "/sys/fs/cgroup/memory", path, first);
    }
}

uint64_t memory_default_limit(const char *root)
{
    uint64_t bytes = (uint64_t)sysconf(_SC_PHYS_PAGES) * (uint64_t)sysconf(_SC_PAGESIZE);
    char text[FILE_NAME_MAX];

    snprintf(text, sizeof text, "%s/proc/self/cgroup", root);
    FILE *groups = fopen(text, "re");
    while (groups != NULL && fgets(text, sizeof text, groups) != NULL) {
        lower_by_line(&bytes, root, text);
    }
    if (groups != NULL) {
        (void)fclose(groups);
    }
    return bytes / 2;
}
