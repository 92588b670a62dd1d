/*
 * The configuration as a whole: defaults, options against each other, what is printed, what a reload takes; and that
 * the table, conf/headgate.ini and docs/configuration.md say the same.
 */
#include "conf_file.h"
#include "conf_fixture.h"

#include "policy/sections.h"

#include <criterion/criterion.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Both are good for a hundred years. */
#define CERTIFICATE HEADGATE_SOURCE_DIR "/tests/unit/conf/certificate.pem"
#define REVOKED HEADGATE_SOURCE_DIR "/tests/unit/conf/revoked.pem"

/* ---- Options against each other ---- */

Test(conf, contradictions)
{
    assert_fault("[headgate]\nreconnect_min = 5s\n",
                 "h.ini:2: [headgate] reconnect_min = 5s: reconnect_min (5s) is longer than reconnect_max (2s); "
                 "expected reconnect_min of at most reconnect_max");
    assert_fault("[headgate]\n\nreconnect_max = 20ms\n",
                 "h.ini:3: [headgate] reconnect_max = 20ms: reconnect_min (50ms) is longer than reconnect_max (20ms); "
                 "expected reconnect_min of at most reconnect_max");
    assert_fault("[headgate]\nupstream_user = app\n",
                 "h.ini:2: [headgate] upstream_user = app: has no password; expected upstream_password beside it");
    assert_fault("[headgate]\nadmin = LOCALHOST:1\nlisten = a:1, localhost:1\n",
                 "h.ini:3: [headgate] listen = a:1, localhost:1: LOCALHOST:1 is an address of listen and of admin; "
                 "expected an address for each");
    assert_fault("[headgate]\nadmin = 127.0.0.1:6380\n",
                 "h.ini:2: [headgate] admin = 127.0.0.1:6380: 127.0.0.1:6380 is an address of listen and of admin; "
                 "expected an address for each");
    assert_fault("[headgate]\nlisten = 127.0.0.1:6379\n",
                 "h.ini:2: [headgate] listen = 127.0.0.1:6379: 127.0.0.1:6379 is an address of listen and of "
                 "upstream; expected the address of Redis upstream");
    assert_fault("[headgate]\nupstream = 127.0.0.1:6390\n",
                 "h.ini:2: [headgate] upstream = 127.0.0.1:6390: 127.0.0.1:6390 is an address of admin and of "
                 "upstream; expected the address of Redis upstream");
}

/* What tls_context_new() finds is a fault like any other. */
Test(conf, files_of_certificates_are_looked_at)
{
    assert_fault("[headgate]\nlisten = rediss://a:1\n",
                 "h.ini:1: [headgate] tls_certificate =: there is no certificate; expected the path of a certificate");
    assert_fault("[headgate]\nupstream_certificate = " CERTIFICATE "\nupstream_key = " REVOKED "\n",
                 "h.ini:3: [headgate] upstream_key = " REVOKED ": holds no private key that can be used: unsupported; "
                 "expected a file in PEM form with the private key of the certificate, without a passphrase");
    assert_fault("[headgate]\ntls_certificate = " CERTIFICATE "\nclient_certificates = optional\n",
                 "h.ini:1: [headgate] tls_ca =: certificates are asked of clients, and nobody is trusted to have given "
                 "them; expected the authorities whose certificates clients may have");
}

Test(conf, a_faulty_option_contradicts_nothing)
{
    assert_fault("[headgate]\nreconnect_min = 5s\nreconnect_max = 9\n",
                 "h.ini:3: [headgate] reconnect_max = 9: has no unit; expected a time from 1ms to 1h, with ms, s, m, "
                 "h or d");
}

/* ---- Printing, and the references ---- */

/* With the sections of the policies of this build. */
static char *reference(void (*print)(FILE *, const struct conf_section *const *))
{
    const struct conf_section *sections[SECTIONS_MAX + 1];
    sections_list(policies, sections);
    char *text = NULL;
    size_t length = 0;
    FILE *out = open_memstream(&text, &length);
    print(out, sections);
    fclose(out);
    return text;
}

static char *source_file(const char *name)
{
    char *path = conf_format("%s/%s", HEADGATE_SOURCE_DIR, name);
    FILE *file = fopen(path, "r");
    cr_assert_not_null(file, "%s", path);
    char *text = calloc(1, 1 << 20);
    cr_assert_lt(fread(text, 1, 1 << 20, file), 1 << 20);
    fclose(file);
    free(path);
    return text;
}

/* One value for each option that is not its default; the order is that of the table. */
static const char *const other_values[][2] = {
    {"listen", "10.0.0.1:1, [::1]:2, unix:/run/h.sock"},
    {"proxy_protocol", "required"},
    {"proxy_from", "10.0.0.0/8, unix"},
    {"allow", "ip:10.0.0.0/8, unix"},
    {"refuse", "ip:10.9.0.0/16"},
    {"admin", ""},
    {"admin_password", "\" quoted \\\"pass\\\\word\\\" ;#\""},
    {"admin_password_file", NULL},
    {"admin_read_password", "\"to look # at\""},
    {"admin_read_password_file", NULL},
    {"admin_changes", "anyone"},
    {"http", "127.0.0.1:6391"},
    {"http_names", "headgate.example"},
    {"upstream", "unix:/run/redis.sock"},
    {"upstream_user", "app;user"},
    {"upstream_password", "\"********\""},
    {"upstream_password_file", NULL},
    {"sentinel_user", "watcher"},
    {"sentinel_password", "else"},
    {"sentinel_password_file", NULL},
    {"sentinel_check", "5s"},
    {"sentinel_timeout", "20ms"},
    {"access_check", "250ms"},
    {"cross_slot", "split"},
    {"reads", "replica"},
    {"max_lag", "3s"},
    {"read_own_writes", "0"},
    {"pool", "session"},
    {"threads", "3"},
    {"lanes", "5"},
    {"max_clients", "77"},
    {"backlog", "12"},
    {"unix_socket_mode", "0060"},
    {"client_idle_timeout", "90s"},
    {"client_id_timeout", "5m"},
    {"client_output_limit", "0"},
    {"memory_limit", "64mb"},
    {"client_pipeline_limit", "65536"},
    {"max_request", "1025"},
    {"cut_through", "17kb"},
    {"tcp_keepalive", "0"},
    {"tcp_user_timeout", "1ms"},
    {"client_tcp_user_timeout", "2m"},
    {"connect_timeout", "1h"},
    {"reconnect_min", "1500ms"},
    {"reconnect_max", "3m"},
    {"upstream_wait", "59m"},
    {"upstream_wait_requests", "0"},
    {"upstream_reply_timeout", "1d"},
    {"auth_timeout", "0"},
    {"exclusive_idle", "1"},
    {"exclusive_ready", "0"},
    {"lane_idle_timeout", "25h"},
    {"resolve_every", "0"},
    {"retire_timeout", "1h"},
    {"drain_timeout", "999ms"},
    {"maintenance_notifications", "address"},
    {"upgrade_start_timeout", "29s"},
    {"upgrade_clients_timeout", "0"},
    {"tls_certificate", CERTIFICATE},
    {"tls_key", CERTIFICATE},
    {"tls_ca", CERTIFICATE},
    {"tls_crl", REVOKED},
    {"client_certificates", "required"},
    {"tls_protocols", "TLSv1.3"},
    {"tls_ciphers", "HIGH"},
    {"tls_ciphersuites", "TLS_CHACHA20_POLY1305_SHA256"},
    {"tls_handshake_timeout", "3s"},
    {"tls_handshakes", "0"},
    {"upstream_certificate", CERTIFICATE},
    {"upstream_key", CERTIFICATE},
    {"upstream_ca", CERTIFICATE},
    {"upstream_crl", REVOKED},
    {"upstream_verify", "off"},
    {"upstream_server_name", "redis.example"},
    {"host_name", "web1"},
    {"user", "headgate"},
    {"group", "redis"},
    {"reload_on_change", "off"},
    {"pid_file", "/run/headgate/headgate.pid"},
    {"log_level", "debug"},
    {"log_format", "json"},
    {"log_file", "/var/log/headgate/headgate.log"},
};

static char *file_of_other_values(void)
{
    char *text = conf_format("[headgate]\n");
    for (size_t i = 0; i < COUNT_OF(other_values); i++) {
        const char *value = other_values[i][1] != NULL ? other_values[i][1] : "";
        char *longer = conf_format("%s%s =%s%s\n", text, other_values[i][0], *value != '\0' ? " " : "", value);
        free(text);
        text = longer;
    }
    return text;
}

Test(conf, every_option_is_printed_as_it_was_read)
{
    cr_assert_eq(COUNT_OF(other_values), conf_option_count, "other_values has an entry for every option");
    struct conf *initial = default_conf();
    struct conf_file file;
    struct conf_file again;
    char *text = file_of_other_values();
    assert_loads(&file, text);
    for (size_t i = 0; i < conf_option_count; i++) {
        cr_assert_str_eq(conf_options[i].name, other_values[i][0]);
        char *before = conf_value_text(&conf_options[i], initial);
        char *after = conf_value_text(&conf_options[i], file.conf);
        cr_assert_eq(strcmp(before, after) == 0, other_values[i][1] == NULL, "%s is not at its default",
                     conf_options[i].name);
        free(before);
        free(after);
    }
    char *first = print_conf(file.conf, true);
    assert_loads(&again, first);
    char *second = print_conf(again.conf, true);
    cr_assert_str_eq(first, second);
    cr_assert_str_eq(again.conf->admin_password, " quoted \"pass\\word\" ;#");
    cr_assert_str_eq(again.conf->upstream_password, "********");
    cr_assert_str_eq(first, text);
    free(first);
    free(second);
    free(text);
    drop_file(&file);
    drop_file(&again);
    conf_free(initial);
}

Test(conf, sample_file_is_the_reference)
{
    char *expected = reference(conf_print_reference_ini);
    char *sample = source_file("conf/headgate.ini");
    cr_assert_str_eq(sample, expected);
    free(sample);
    free(expected);
}

/* Every option stands in the sample, and uncommenting all of them changes nothing. */
Test(conf, sample_file_shows_the_defaults)
{
    char *sample = source_file("conf/headgate.ini");
    for (size_t i = 0; i < conf_option_count; i++) {
        char *line = conf_format("\n#%s =", conf_options[i].name);
        char *at = strstr(sample, line);
        cr_assert_not_null(at, "%s", line);
        at[0] = '\n';
        memmove(at + 1, at + 2, strlen(at + 2) + 1);
        free(line);
    }
    struct conf_file file;
    assert_loads(&file, sample);
    struct conf *conf = default_conf();
    char *expected = print_conf(conf, true);
    char *text = print_conf(file.conf, true);
    cr_assert_str_eq(text, expected);
    free(text);
    free(expected);
    free(sample);
    conf_free(conf);
    drop_file(&file);
}

Test(conf, documentation_holds_the_reference)
{
    static const char start[] = "<!-- options: printed from the option table -->\n";
    char *expected = reference(conf_print_reference_markdown);
    char *page = source_file("docs/configuration.md");
    char *from = strstr(page, start);
    cr_assert_not_null(from);
    from += strlen(start);
    char *to = strstr(from, "<!-- options: end -->\n");
    cr_assert_not_null(to);
    *to = '\0';
    cr_assert_str_eq(from, expected);
    free(page);
    free(expected);
}

/* ---- Reload ---- */

/* What takes a restart, or waits with what does; the caller frees it. */
static char *restart_only(const struct conf *merged, const struct conf *fresh)
{
    char *text = conf_format(";");

    conf_restart_only_changes(merged, fresh, note_option, &text);
    return text;
}

/* Each option, at its default or at its other value. */
static void load_values(struct conf_file *file, const bool *is_other)
{
    char *text = conf_format("[headgate]\n");

    for (size_t i = 0; i < conf_option_count; i++) {
        const char *other = other_values[i][1] != NULL ? other_values[i][1] : "", *initial = conf_options[i].initial;
        char *longer = conf_format("%s%s = %s\n", text, conf_options[i].name, is_other[i] ? other : initial);
        free(text);
        text = longer;
    }
    load_file(file, text);
    free(text);
}

static bool stands_by(const struct conf_option *option, const struct conf_option *other)
{
    return option->waits_with != NULL && !other->reloadable && strstr(option->waits_with, other->name) != NULL;
}

/* What is in force behind a reload is what each option says of it, it is told, and a file might say it. */
static void assert_merges(const struct conf *old, const struct conf *fresh)
{
    struct conf *merged = merge_conf(old, fresh, NULL);
    char *changes = restart_only(merged, fresh), *printed = print_conf(merged, true);
    struct conf_file file;

    for (size_t i = 0; i < conf_option_count; i++) {
        const struct conf_option *option = &conf_options[i];
        bool stays = !option->reloadable, is_same = conf_value_equal(option, old, fresh);
        for (size_t j = 0; j < conf_option_count; j++) {
            stays = stays || (stands_by(option, &conf_options[j]) && !conf_value_equal(&conf_options[j], old, fresh));
        }
        char *line = conf_format(option->reloadable ? ";%s (with " : ";%s;", option->name);
        cr_assert(conf_value_equal(option, merged, stays ? old : fresh), "%s: %s", option->name, changes);
        cr_assert_eq(strstr(changes, line) != NULL, stays && !is_same, "%s: %s", option->name, changes);
        free(line);
    }
    assert_loads(&file, printed);
    drop_file(&file);
    free(printed);
    free(changes);
    conf_free(merged);
}

/* Each option is changed with each by which it stands, and others by chance, both ways. */
Test(conf, what_belongs_to_an_address_waits_with_it)
{
    unsigned seed = 32;
    size_t pairs = 0;

    for (size_t i = 0; i < conf_option_count * conf_option_count; i++) {
        const size_t option = i / conf_option_count, by = i % conf_option_count;
        bool is_other[COUNT_OF(other_values)] = {false};
        struct conf_file old, fresh;
        if (!stands_by(&conf_options[option], &conf_options[by]) || other_values[option][1] == NULL) {
            continue;
        }
        load_values(&old, is_other);
        do {
            for (size_t j = 0; j < conf_option_count; j++) {
                is_other[j] = j == option || j == by || rand_r(&seed) % 8 == 0;
            }
            load_values(&fresh, is_other);
        } while (fresh.conf == NULL && (drop_file(&fresh), true));
        assert_merges(old.conf, fresh.conf);
        assert_merges(fresh.conf, old.conf);
        drop_file(&fresh);
        drop_file(&old);
        pairs++;
    }
    cr_assert_eq(pairs, 49, "%zu", pairs);
}
