/* The scripts of lua/: their heads, and their embedding. What each does is tested in tests/lua. */
#include "upstream/script.h"

#include "../command/server_fixture.h"

#include <criterion/criterion.h>
#include <dirent.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>

/* ---- without Redis ---- */

/* Whether a comment line at the top of the script begins with that word. */
static bool head_has(const struct script *script, const char *word)
{
    for (const char *line = script->text; strncmp(line, "--", 2) == 0; line = strchr(line, '\n') + 1) {
        const char *text = line + 2 + strspn(line + 2, " ");
        if (strncmp(text, word, strlen(word)) == 0 && strcspn(text + strlen(word), "\n") > 1) {
            return true;
        }
        if (strchr(line, '\n') == NULL) {
            break;
        }
    }
    return false;
}

Test(scripts, each_says_what_it_takes_and_gives)
{
    static const char *const words[] = {"KEYS:", "ARGV:", "Reply:", "Complexity:"};

    for (const struct script *script = scripts; script->name != NULL; script++) {
        for (size_t i = 0; i < sizeof words / sizeof words[0]; i++) {
            cr_assert(head_has(script, words[i]), "lua/%s.lua: no line \"-- %s …\" at the top", script->name, words[i]);
        }
    }
}

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

Test(scripts, an_unknown_name_is_a_mistake_of_the_program, .signal = SIGABRT)
{
    script_find("no such script");
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
