/* The scripts of lua/: their heads, their embedding, and what each does on a real Redis. */
#include "redis_fixture.h"

#include <criterion/criterion.h>
#include <dirent.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

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

TestSuite(scripts_on_redis, .init = start_redis, .fini = stop_redis, .timeout = 60);

/* Runs a script without keys and arguments by its digest, as Headgate does. */
static redisReply *run_by_digest(const char *name)
{
    redisReply *reply = redisCommand(redis, "EVALSHA %s 0", script_find(name)->sha1);

    cr_assert_not_null(reply, "%s", redis->errstr);
    return reply;
}

Test(scripts_on_redis, each_compiles_and_has_the_digest_that_redis_gives_it)
{
    for (const struct script *script = scripts; script->name != NULL; script++) {
        load_script(script);
    }
}

Test(scripts_on_redis, a_script_is_not_known_before_it_was_sent)
{
    redisReply *reply = run_by_digest("clock");

    cr_assert_eq(reply->type, REDIS_REPLY_ERROR);
    cr_assert_eq(strncmp(reply->str, "NOSCRIPT", 8), 0);
    freeReplyObject(reply);
}

static long long wall_clock_us(void)
{
    struct timespec now;

    clock_gettime(CLOCK_REALTIME, &now);
    return (long long)now.tv_sec * 1000000 + now.tv_nsec / 1000;
}

Test(scripts_on_redis, clock_tells_the_time)
{
    long long before, last = 0;

    load_script(script_find("clock"));
    for (int i = 0; i < 20; i++) {
        before = wall_clock_us();
        redisReply *reply = run_by_digest("clock");
        long long after = wall_clock_us();
        cr_assert_eq(reply->type, REDIS_REPLY_INTEGER);
        /* Redis reads its clock once before a script, so that it may lag a little. */
        cr_assert_geq(reply->integer, before - 1000000);
        cr_assert_leq(reply->integer, after);
        cr_assert_geq(reply->integer, last);
        last = reply->integer;
        freeReplyObject(reply);
        usleep(1000);
    }
    cr_assert_geq(wall_clock_us() - last, 0);
}

Test(scripts_on_redis, clock_counts_single_microseconds)
{
    long long remainders = 0;

    load_script(script_find("clock"));
    for (int i = 0; i < 50; i++) {
        redisReply *reply = run_by_digest("clock");
        remainders += reply->integer % 1000 != 0;
        freeReplyObject(reply);
        usleep(100);
    }
    cr_assert_gt(remainders, 25, "the digits below a millisecond are lost");
}
