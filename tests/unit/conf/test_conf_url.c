/* Addresses as URLs: what they mean, what is refused, and that no secret of theirs is ever shown. */
#include "conf_file.h"

#include <criterion/criterion.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* What whoever listens with TLS needs. */
#define CERTIFICATE "tls_certificate = " HEADGATE_SOURCE_DIR "/tests/unit/conf/certificate.pem\n"

/* ---- what they mean ---- */

struct url {
    const char *value;
    const char *host;
    uint16_t port;
    bool tls;
    const char *user; /* as upstream_user and upstream_password then say */
    const char *password;
    const char *text; /* for logs */
};

static void assert_url(const struct url *url)
{
    struct conf_file file;
    char *text = conf_format("[headgate]\nupstream = %s\n", url->value);

    assert_loads(&file, text);
    const struct conf_address *address = &file.conf->upstream;
    cr_assert_str_eq(address->host, url->host, "%s: %s", url->value, address->host);
    cr_assert_eq(address->port, url->port, "%s", url->value);
    cr_assert_eq(address->tls, url->tls, "%s", url->value);
    cr_assert_str_eq(file.conf->upstream_user, url->user, "%s: %s", url->value, file.conf->upstream_user);
    cr_assert_str_eq(file.conf->upstream_password, url->password, "%s: %s", url->value, file.conf->upstream_password);
    cr_assert_str_eq(address->text, url->text, "%s: %s", url->value, address->text);
    cr_assert_null(address->user);
    cr_assert_null(address->password);
    cr_assert_eq(address->database, -1);
    cr_assert_eq(file.faults.warning_count, *url->password != '\0' ? 1 : 0, "%s", url->value);
    drop_file(&file);
    free(text);
}

Test(conf, urls)
{
    const struct url urls[] = {
        {"redis://h", "h", 6379, false, "", "", "redis://h"},
        {"redis://h:7000", "h", 7000, false, "", "", "redis://h:7000"},
        {"redis://h:7000/", "h", 7000, false, "", "", "redis://h:7000/"},
        {"redis://h/0", "h", 6379, false, "", "", "redis://h"},
        {"REDISS://h.example:1", "h.example", 1, true, "", "", "REDISS://h.example:1"},
        {"valkey://h", "h", 6379, false, "", "", "valkey://h"},
        {"valkeys://app:pw@h:7/0", "h", 7, true, "app", "pw", "valkeys://h:7"},
        {"redis://10.0.0.1", "10.0.0.1", 6379, false, "", "", "redis://10.0.0.1"},
        {"redis://[::1]", "::1", 6379, false, "", "", "redis://[::1]"},
        {"rediss://[0::1]:7", "::1", 7, true, "", "", "rediss://[0::1]:7"},
        {"rediss://app:pw@h:7/0", "h", 7, true, "app", "pw", "rediss://h:7"},
        {"redis://:pw@h", "h", 6379, false, "", "pw", "redis://h"},
        {"redis://default:pw@[::1]:7", "::1", 7, false, "default", "pw", "redis://[::1]:7"},
        {"redis://a%40b:%70%C3%a4%25%2f%3A@h", "h", 6379, false, "a@b", "p\xc3\xa4%/:", "redis://h"},
        {"redis://app:a:b+c;d!@h", "h", 6379, false, "app", "a:b+c;d!", "redis://h"},
        {"redis://app:%20x%22@h", "h", 6379, false, "app", " x\"", "redis://h"},
    };

    for (size_t i = 0; i < COUNT_OF(urls); i++) {
        assert_url(&urls[i]);
    }
}

Test(conf, urls_of_unix_sockets)
{
    const char *const pairs[][2] = {
        {"unix:///run/r.sock", "/run/r.sock"},
        {"unix:/run/r@1?.sock", "/run/r@1?.sock"},
        {"unix://run/r.sock", "//run/r.sock"},
    };

    for (size_t i = 0; i < COUNT_OF(pairs); i++) {
        struct conf_file file;
        char *text = conf_format("[headgate]\nupstream = %s\n", pairs[i][0]);
        assert_loads(&file, text);
        cr_assert_str_eq(file.conf->upstream.path, pairs[i][1]);
        cr_assert_null(file.conf->upstream.host);
        cr_assert_str_eq(file.conf->upstream.text, pairs[i][0]);
        drop_file(&file);
        free(text);
    }
}

Test(conf, urls_in_lists)
{
    struct conf_file file;

    assert_loads(
        &file, "[headgate]\nlisten = a:1, rediss://b:2, redis://c, unix:///d\nadmin = rediss://[::1]:5\n" CERTIFICATE);
    cr_assert_eq(file.conf->listen.count, 4);
    cr_assert_not(file.conf->listen.items[0].tls);
    cr_assert(file.conf->listen.items[1].tls);
    cr_assert_eq(file.conf->listen.items[2].port, 6379);
    cr_assert_str_eq(file.conf->listen.items[3].path, "/d");
    cr_assert(file.conf->admin.items[0].tls);
    drop_file(&file);
    assert_refused("listen", "a:1, rediss://a:1", "holds rediss://a:1 twice");
    assert_refused("listen", "rediss://:pw@a:1", "listen = rediss://********@a:1: has a user or a password");
    assert_refused("listen", "rediss://app@a:1", "has a user or a password");
    assert_refused("listen", "rediss://a:1/3", "names a database, which clients choose by themselves");
    assert_refused("admin", "redis://a:1/0", "names a database");
}

/* ---- credentials that stand in two places ---- */

Test(conf, urls_beside_options)
{
    struct conf_file file;

    assert_loads(&file, "[headgate]\nupstream_password = pw\nupstream = redis://app@h\n");
    cr_assert_str_eq(file.conf->upstream_user, "app");
    cr_assert_str_eq(file.conf->upstream_password, "pw");
    cr_assert_eq(file.faults.warning_count, 0, "no password in the address");
    drop_file(&file);
    assert_loads(&file, "[headgate]\nupstream = redis://app:pw@h\nupstream_user = app\nupstream_password = pw\n");
    drop_file(&file);
    assert_loads(&file, "[headgate]\nupstream = redis://:pw@h\nupstream_user = app\nupstream_password =\n");
    cr_assert_str_eq(file.conf->upstream_user, "app");
    cr_assert_str_eq(file.conf->upstream_password, "pw");
    drop_file(&file);
    assert_fault("[headgate]\nupstream = redis://app:pw@h\nupstream_user = other\n",
                 "h.ini:2: [headgate] upstream = redis://********@h: has another user than upstream_user; expected it "
                 "in one place");
    assert_fault("[headgate]\nupstream = redis://app:pw@h\nupstream_password = other\n",
                 "h.ini:2: [headgate] upstream = redis://********@h: has another password than upstream_password; "
                 "expected it in one place");
}

/* redis-cli takes a word alone for the password, redis-py for the user: it is not shown, and not guessed at. */
Test(conf, urls_with_a_word_alone)
{
    assert_fault("[headgate]\nupstream = redis://secret@h\n",
                 "h.ini:2: [headgate] upstream = redis://********@h: has a user without a password; expected "
                 "redis://user:password@host, or redis://:password@host for the default user");
    assert_fault("[headgate]\nupstream = redis://secret:@h\n",
                 "h.ini:2: [headgate] upstream = redis://********@h: has a user without a password; expected "
                 "redis://user:password@host, or redis://:password@host for the default user");
}

/* ---- what is refused ---- */

Test(conf, refused_urls)
{
    const char *const pairs[][2] = {
        {"http://h:1", "\"http\" is not one of the schemes redis, rediss, valkey, valkeys, unix, sentinel"},
        {"rediss+tls://h", "\"rediss+tls\" is not one of the schemes"},
        {"://h", "\"\" is not one of the schemes"},
        {"redis://", "has no host"},
        {"redis://:6379", "has no host"},
        {"rediss:///run/r.sock", "has no host; a Unix socket is unix:/path, and speaks no TLS"},
        {"redis://h:", "port \"\" is not a number"},
        {"redis://h:0", "port 0 is not from 1 to 65535"},
        {"redis://h:1:2", "holds an IPv6 address without brackets"},
        {"redis://[::1", "holds no IPv6 address in brackets"},
        {"redis://h/x", "has a path that is not the number of a database"},
        {"redis://h/1/", "has a path that is not the number of a database"},
        {"redis://h//1", "has a path that is not the number of a database"},
        {"redis://h/-1", "has a path that is not the number of a database"},
        {"redis://h/99999999999999999999", "has a path that is not the number of a database"},
        {"redis://h?db=1", "has a query or fragment"},
        {"redis://h/1?db=1", "has a query or fragment"},
        {"redis://h#x", "has a query or fragment"},
        {"redis://h/2", "names a database, but clients begin in database 0 and choose theirs by SELECT"},
        {"redis://@h", "has neither user nor password before its @"},
        {"redis://:@h", "has neither user nor password before its @"},
        {"redis://a:b@c@h", "has more than one @"},
        {"redis://a:%4@h", "has a % in its user or password"},
        {"redis://a:%00@h", "has a % in its user or password"},
        {"redis://%zz:b@h", "has a % in its user or password"},
        {"redis://a:b/c@h", "has a path before its @"},
        {"redis://a:********@h", "holds what a hidden secret is shown as, not the secret"},
        {"a:b@h:6379", "has an @, as only redis://user:password@host may"},
        {"unix:///r.sock?db=1", "has a query or fragment"},
        {"unix://a:b@/r.sock", "has a user"},
        {"redis:/h:1", "too many colons"},
    };

    for (size_t i = 0; i < COUNT_OF(pairs); i++) {
        assert_refused("upstream", pairs[i][0], pairs[i][1]);
    }
}

/* ---- what is shown ---- */

/* However it is misspelt, the fault does not have the secret. */
Test(conf, urls_hide_secrets_in_faults)
{
    const char *const lines[] = {
        "upstream = redis://app:SECRET@",
        "upstream = redis://app:SECRET@h:x",
        "upstream = redis://app:SECRET@h/x",
        "upstream = redis://app:a/SECRET@h",
        "upstream = redis://app:a?SECRET@h",
        "upstream = redis://app:a@SECRET@h",
        "upstream = redis://app:SECRET%@h",
        "upstream = redis://h?password=SECRET",
        "upstream = unix:///r.sock?password=SECRET",
        "upstream = unix://app:SECRET@/r.sock",
        "upstream = http://app:SECRET@h",
        "upstream = app:SECRET@h:6379",
        "upstream = redis:/app:SECRET@h",
        "upstream = redis://app:SECRET @h",
        "listen = a:1, redis://app:SECRET@h:1, b:2",
        "listen = a:1 app:SECRET@h:1",
        "upsteam = redis://app:SECRET@h",
        "upstream = redis://app:SECRET@h\nupstream = redis://app:SECRET@h",
        "upstream = redis://app:SECRET@127.0.0.1:6380",
        "upstream = redis://app:SECRET@h/3",
        "upstream = redis://app:SECRET@h\nupstream_user = other",
    };

    for (size_t i = 0; i < COUNT_OF(lines); i++) {
        struct conf_file file;
        char *text = conf_format("[headgate]\n%s\n", lines[i]);
        load_file(&file, text);
        cr_assert_gt(file.faults.count, 0, "%s", lines[i]);
        for (size_t j = 0; j < file.faults.count; j++) {
            cr_assert_null(strstr(file.faults.lines[j], "SECRET"), "%s", file.faults.lines[j]);
        }
        drop_file(&file);
        free(text);
    }
}

static char *printed(const struct conf *conf, bool show_secrets)
{
    char *text = NULL;
    size_t length = 0;
    FILE *out = open_memstream(&text, &length);

    conf_print(conf, out, show_secrets);
    fclose(out);
    return text;
}

/* What is printed makes the same configuration again. */
Test(conf, urls_are_printed_apart)
{
    struct conf_file file, again;

    assert_loads(&file, "[headgate]\nupstream = rediss://app:SE%22C%20RET@h/0\nlisten = rediss://a:1\n" CERTIFICATE);
    char *hidden = printed(file.conf, false), *whole = printed(file.conf, true);
    cr_assert_null(strstr(hidden, "RET"), "%s", hidden);
    cr_assert_not_null(strstr(hidden, "\nupstream = rediss://h\n"), "%s", hidden);
    cr_assert_not_null(strstr(hidden, "\nupstream_user = app\n"), "%s", hidden);
    cr_assert_not_null(strstr(hidden, "listen = rediss://a:1\n"), "%s", hidden);
    assert_loads(&again, whole);
    cr_assert_str_eq(again.conf->upstream_password, "SE\"C RET");
    cr_assert(again.conf->upstream.tls);
    cr_assert_null(strstr(file.faults.warnings[0], "RET"));
    cr_assert_not_null(strstr(file.faults.warnings[0], "upstream holds a password"), "%s", file.faults.warnings[0]);
    drop_file(&again);
    drop_file(&file);
    free(hidden);
    free(whole);
}
