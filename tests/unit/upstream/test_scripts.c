/* The scripts of lua/: their embedding. What each does is tested in tests/lua. */
#include "upstream/script.h"

#include "../command/server_fixture.h"

#include <criterion/criterion.h>
#include <dirent.h>
#include <stdio.h>
#include <string.h>

/* ---- without Redis ---- */

static void assert_embedded(const char *file)
{
    char path[512], text[65536];
    char name[256];

    snprintf(name, sizeof name, "%.*s", (int)(strlen(file) - 4), file);
    snprintf(path, sizeof path, "%s/lua/%s", HEADGATE_SOURCE_DIR, file);
    FILE *stream = fopen(path, "r");
    cr_assert_not_null(stream, "%s", path);
    size_t length = fread(text, 1, sizeof text, stream);
    fclose(stream);
    const struct script *script = script_find(name);
    cr_assert_eq(script->length, length, "%s", path);
    cr_assert_eq(memcmp(script->text, text, length), 0, "%s", path);
    cr_assert_eq(strlen(script->text), length, "%s holds a NUL, or is not ended by one", path);
}

Test(scripts, each_file_is_embedded_as_it_is)
{
    DIR *folder = opendir(HEADGATE_SOURCE_DIR "/lua");
    size_t files = 0, embedded = 0;

    cr_assert_not_null(folder);
    for (struct dirent *entry = readdir(folder); entry != NULL; entry = readdir(folder)) {
        const char *dot = strrchr(entry->d_name, '.');
        if (dot != NULL && strcmp(dot, ".lua") == 0) {
            assert_embedded(entry->d_name);
            files++;
        }
    }
    closedir(folder);
    while (scripts[embedded].name != NULL) {
        embedded++;
    }
    cr_assert_gt(files, 0);
    cr_assert_eq(files, embedded);
}

/* ---- on a real Redis ---- */

TestSuite(scripts_on_redis, .init = server_start, .fini = server_stop, .timeout = 60);

Test(scripts_on_redis, each_compiles_and_has_the_digest_that_redis_gives_it)
{
    for (const struct script *script = scripts; script->name != NULL; script++) {
        redisReply *reply = server_command("SCRIPT LOAD %b", script->text, script->length);
        cr_assert_eq(reply->type, REDIS_REPLY_STRING, "lua/%s.lua: %s", script->name, reply->str);
        cr_assert_str_eq(reply->str, script->sha1, "lua/%s.lua", script->name);
        freeReplyObject(reply);
    }
}
