/* Excerpts of commands: cut as Redis does, safe to show, and without a secret whatever the command looks like. */
#include "../../support/frame.h"
#include "latency/latency_excerpt.h"

#include <criterion/criterion.h>
#include <stdlib.h>
#include <string.h>

/* The command of words parted by single blanks. */
static size_t frame_of(const char *text, char *out, size_t size)
{
    struct slice words[FRAME_WORDS_MAX], frame = frame_of_words(words, frame_split(text, words));

    cr_assert_lt(frame.length, size);
    memcpy(out, frame.data, frame.length);
    free((char *)frame.data);
    return frame.length;
}

/* What is shown of the frame's first bytes, which lie alone in memory. */
static void show_so_far(const char *frame, size_t length, enum latency_excerpt_scope scope, char *shown, size_t size)
{
    char excerpt[LATENCY_EXCERPT_MAX];
    char *alone = malloc(length > 0 ? length : 1);

    memcpy(alone, frame, length);
    size_t made = latency_excerpt_make((struct slice){alone, length}, scope, excerpt);
    free(alone);
    cr_assert_leq(made, LATENCY_EXCERPT_MAX);
    FILE *out = fmemopen(shown, size, "w");
    latency_excerpt_print((struct slice){excerpt, made}, out);
    fputc('\0', out);
    cr_assert_eq(fclose(out), 0);
}

static void show(const char *frame, size_t length, char *shown, size_t size)
{
    show_so_far(frame, length, LATENCY_EXCERPT_VALUES, shown, size);
}

/* The same, if the command is not known. */
static void assert_shown_unknown(const char *frame, size_t length, const char *expected)
{
    char excerpt[LATENCY_EXCERPT_MAX], shown[1024] = "";
    size_t made = latency_excerpt_make((struct slice){frame, length}, LATENCY_EXCERPT_NOTHING, excerpt);

    FILE *out = fmemopen(shown, sizeof shown, "w");
    latency_excerpt_print((struct slice){excerpt, made}, out);
    cr_assert_eq(fclose(out), 0);
    cr_assert_str_eq(shown, expected);
}

static void assert_shown(const char *words, const char *expected)
{
    static char frame[65536], shown[65536];

    show(frame, frame_of(words, frame, sizeof frame), shown, sizeof shown);
    cr_assert_str_eq(shown, expected);
}

Test(latency_excerpt, shows_a_command_as_it_is)
{
    assert_shown("PING", "\"PING\"");
    assert_shown("set k v", "\"set\" \"k\" \"v\"");
    assert_shown("set k ", "\"set\" \"k\" \"\"");
    assert_shown("a\"b \\ \r\n\t\a\b\x01\x7f\xff", "\"a\\\"b\" \"\\\\\" \"\\r\\n\\t\\a\\b\\x01\\x7f\\xff\"");
}

Test(latency_excerpt, cuts_long_arguments)
{
    char words[500], expected[500];

    snprintf(words, sizeof words, "SET %0128d %0129d %0150d", 7, 8, 9);
    snprintf(expected, sizeof expected, "\"SET\" \"%0128d\" \"%0128d... (1 more bytes)\" \"%0128d... (22 more bytes)\"",
             7, 0, 0);
    assert_shown(words, expected);
}

static void many(char *out, const char *first, size_t count, const char *before, const char *after)
{
    out += sprintf(out, "%s", first);
    for (size_t i = 1; i < count; i++) {
        out += sprintf(out, " %sk%s", before, after);
    }
}

Test(latency_excerpt, cuts_many_arguments)
{
    static char words[8192], expected[8192];

    many(words, "DEL", 32, "", "");
    many(expected, "\"DEL\"", 32, "\"", "\"");
    assert_shown(words, expected);
    many(words, "DEL", 33, "", "");
    many(expected, "\"DEL\"", 31, "\"", "\"");
    strcat(expected, " \"... (2 more arguments)\"");
    assert_shown(words, expected);
    many(words, "DEL", 80, "", "");
    many(expected, "\"DEL\"", 31, "\"", "\"");
    strcat(expected, " \"... (49 more arguments)\"");
    assert_shown(words, expected);
}

#define HIDDEN "\"(redacted)\""

/* A password for a name, or AUTH under another one. */
Test(latency_excerpt, shows_nothing_of_an_unknown_command)
{
    static const char whole[] = "*3\r\n$7\r\nhunter2\r\n$1\r\na\r\n$7\r\nhunter3\r\n";
    assert_shown_unknown(whole, sizeof whole - 1, "\"(unknown command)\" " HIDDEN " " HIDDEN);
    for (size_t length = 0; length < 8; length++) {
        assert_shown_unknown(whole, length, "");
    }
    for (size_t length = 8; length < 16; length++) {
        assert_shown_unknown(whole, length, "\"(unknown command)\" \"... (2 more arguments)\"");
    }
}

Test(latency_excerpt, hides_what_may_be_a_secret)
{
    assert_shown("AUTH secret", "\"AUTH\" " HIDDEN);
    assert_shown("auth user secret", "\"auth\" " HIDDEN " " HIDDEN);
    assert_shown("HELLO 3", "\"HELLO\" \"3\"");
    assert_shown("HELLO 3 AUTH user secret SETNAME me",
                 "\"HELLO\" \"3\" " HIDDEN " " HIDDEN " " HIDDEN " " HIDDEN " " HIDDEN);
    assert_shown("HELLO secret", "\"HELLO\" " HIDDEN);
    assert_shown("CONFIG GET maxmemory", "\"CONFIG\" \"GET\" \"maxmemory\"");
    assert_shown("config Set requirepass secret", "\"config\" \"Set\" \"requirepass\" " HIDDEN);
    assert_shown("CONFIG SET a secret b secret", "\"CONFIG\" \"SET\" \"a\" " HIDDEN " " HIDDEN " " HIDDEN);
    assert_shown("ACL SETUSER alice >secret", "\"ACL\" \"SETUSER\" " HIDDEN " " HIDDEN);
    assert_shown("ACL WHOAMI", "\"ACL\" \"WHOAMI\"");
    assert_shown("SENTINEL SET mymaster auth-pass secret", "\"SENTINEL\" \"SET\" \"mymaster\" " HIDDEN " " HIDDEN);
    assert_shown("MODULE LOADEX /m.so CONFIG m.password secret",
                 "\"MODULE\" \"LOADEX\" \"/m.so\" " HIDDEN " " HIDDEN " " HIDDEN);
    assert_shown("MIGRATE h 1 k 0 5 COPY AUTH secret",
                 "\"MIGRATE\" \"h\" \"1\" \"k\" \"0\" \"5\" \"COPY\" \"AUTH\" " HIDDEN);
    assert_shown("MIGRATE h 1 k 0 5 auth2 user secret KEYS auth k",
                 "\"MIGRATE\" \"h\" \"1\" \"k\" \"0\" \"5\" \"auth2\" " HIDDEN " " HIDDEN " \"KEYS\" \"auth\" \"k\"");
    assert_shown("MIGRATE h 1 k AUTH secret", "\"MIGRATE\" \"h\" \"1\" \"k\" \"AUTH\" " HIDDEN);
    assert_shown("MIGRATE h 1 k 0 5 COPY AUHT secret KEYS a",
                 "\"MIGRATE\" \"h\" \"1\" \"k\" \"0\" \"5\" \"COPY\" " HIDDEN " " HIDDEN " \"KEYS\" \"a\"");
    assert_shown("CONFIG requirepass secret", "\"CONFIG\" " HIDDEN " " HIDDEN);
    assert_shown("CONFIG SETT requirepass secret", "\"CONFIG\" " HIDDEN " " HIDDEN " " HIDDEN);
    assert_shown("CONFIG SET requirepass=secret", "\"CONFIG\" \"SET\" " HIDDEN);
    assert_shown("CONFIG RESETSTAT", "\"CONFIG\" \"RESETSTAT\"");
    assert_shown("ACL SETUESR alice >secret", "\"ACL\" " HIDDEN " " HIDDEN " " HIDDEN);
    assert_shown("SENTINEL auth-pass secret", "\"SENTINEL\" " HIDDEN " " HIDDEN);
    assert_shown("EVAL redis.call('MIGRATE','h',1,'k',0,5,'AUTH',ARGV[1]) 0 secret",
                 "\"EVAL\" " HIDDEN " " HIDDEN " " HIDDEN);
    assert_shown("SCRIPT LOAD x='AUTH'..'secret'", "\"SCRIPT\" \"LOAD\" " HIDDEN);
    assert_shown("FUNCTION LOAD REPLACE x='AUTH'..'secret'", "\"FUNCTION\" \"LOAD\" \"REPLACE\" " HIDDEN);
    assert_shown("EVAL return 1 pass:1", "\"EVAL\" \"return\" \"1\" \"pass:1\"");
    assert_shown("COMMAND GETKEYS AUTH secret", "\"COMMAND\" \"GETKEYS\" \"AUTH\" " HIDDEN);
    assert_shown("COMMAND DOCS get set", "\"COMMAND\" \"DOCS\" \"get\" \"set\"");
    assert_shown("EVAL return(1) 1 key value", "\"EVAL\" \"return(1)\" \"1\" \"key\" \"value\"");
    assert_shown("SET auth k", "\"SET\" \"auth\" \"k\"");
    assert_shown("CLIENT SETINFO lib-name x", "\"CLIENT\" \"SETINFO\" \"lib-name\" \"x\"");
}

/* Cut off anywhere, changed anywhere: it reads nothing else (the sanitizer watches), and tells no secret. */
Test(latency_excerpt, shows_no_secret_of_what_is_not_whole_or_not_sound)
{
    static const char *const commands[] = {"AUTH default SECRET", "HELLO 3 AUTH default SECRET",
                                           "ACL SETUSER a >SECRET", "CONFIG SET requirepass SECRET",
                                           "MIGRATE h 1 k 0 5 AUTH2 me SECRET"};
    char frame[256], shown[2048];

    for (size_t i = 0; i < sizeof commands / sizeof commands[0]; i++) {
        size_t length = frame_of(commands[i], frame, sizeof frame);
        for (size_t cut = 0; cut <= length; cut++) {
            show(frame, cut, shown, sizeof shown);
            cr_assert_null(strstr(shown, "SEC"), "%s", shown);
        }
        for (size_t at = 0; at < length; at++) {
            char was = frame[at];
            for (int byte = 0; byte < 256; byte++) {
                frame[at] = (char)byte;
                show(frame, length, shown, sizeof shown);
            }
            frame[at] = was;
        }
    }
}

Test(latency_excerpt, of_a_beginning_is_what_there_is_of_it)
{
    static const char frame[] = "*3\r\n$3\r\nSET\r\n$3\r\nkey\r\n$1000\r\nvalue";
    char shown[256];

    show(frame, sizeof frame - 1, shown, sizeof shown);
    cr_assert_str_eq(shown, "\"SET\" \"key\" \"value... (995 more bytes)\"");
    show(frame, 24, shown, sizeof shown);
    cr_assert_str_eq(shown, "\"SET\" \"key\" \"... (1 more arguments)\"");
    show(frame, 10, shown, sizeof shown);
    cr_assert_str_eq(shown, "\"SE... (1 more bytes)\" \"... (2 more arguments)\"");
    show(frame, 6, shown, sizeof shown);
    cr_assert_str_eq(shown, "");
    show("+OK\r\n", 5, shown, sizeof shown);
    cr_assert_str_eq(shown, "");
    show("*2\r\n$18446744073709551615\r\na", 29, shown, sizeof shown);
    cr_assert_str_eq(shown, "");
    show("*2\r\n$1000000000000000000\r\na", 28, shown, sizeof shown);
    cr_assert_str_eq(shown, "\"a\\x00... (999999999999999998 more bytes)\" \"... (1 more arguments)\"");
}

/* ---- without values ---- */

static void assert_without_values(const char *words, const char *expected)
{
    static char frame[65536], shown[65536];

    show_so_far(frame, frame_of(words, frame, sizeof frame), LATENCY_EXCERPT_KEYS, shown, sizeof shown);
    cr_assert_str_eq(shown, expected);
}

Test(latency_excerpt, shows_names_and_keys_alone)
{
    assert_without_values("PING hello", "\"PING\" \"(5 bytes)\"");
    assert_without_values("set k v EX 10", "\"set\" \"k\" \"(1 byte)\" \"(2 bytes)\" \"(2 bytes)\"");
    assert_without_values("MSET a 1 b ", "\"MSET\" \"a\" \"(1 byte)\" \"b\" \"(0 bytes)\"");
    assert_without_values("EVAL return(1) 1 key value", "\"EVAL\" \"(9 bytes)\" \"(1 byte)\" \"key\" \"(5 bytes)\"");
    assert_without_values("CONFIG GET maxmemory", "\"CONFIG\" \"GET\" \"(9 bytes)\"");
    assert_without_values("PUBLISH channel message", "\"PUBLISH\" \"(7 bytes)\" \"(7 bytes)\"");
    assert_without_values("AUTH secret", "\"AUTH\" " HIDDEN);
    assert_without_values("JSON.SET k $ 1", "\"JSON.SET\" \"(1 byte)\" \"(1 byte)\" \"(1 byte)\"");
}

Test(latency_excerpt, shows_no_value_of_what_is_not_whole)
{
    char frame[256], shown[2048];
    size_t length = frame_of("ZADD k 1 VALUE 2 VALUE", frame, sizeof frame);

    for (size_t cut = 0; cut <= length; cut++) {
        show_so_far(frame, cut, LATENCY_EXCERPT_KEYS, shown, sizeof shown);
        cr_assert_null(strchr(shown, 'V'), "%s", shown);
    }
}
