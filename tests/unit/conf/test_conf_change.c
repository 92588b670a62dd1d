/* Values that are set at run time: judged as those of a file are, and told apart from them. */
#include "conf_fixture.h"

#include "policy/sections.h"

#include <criterion/criterion.h>
#include <glob.h>
#include <stdlib.h>
#include <string.h>

extern const struct policy *const policies[];

static const char several[] = "[headgate]\nadmin = 127.0.0.1:1\nmax_clients = 9\n"
                              "[server:a]\nlisten = 127.0.0.1:2\nupstream = redis://u:p@127.0.0.1:3\n"
                              "[server:b]\nlisten = 127.0.0.1:4\nupstream = 127.0.0.1:5\nmax_clients = 7\n"
                              "[listener:l]\nlisten = 127.0.0.1:6\nserver = b\n"
                              "[limit:l]\nlimit = 3\nwindow = 1s\nservers = a\n";

static const struct conf_section *const *sections_of_all(void)
{
    static const struct conf_section *sections[SECTIONS_MAX + 1];

    sections_list(policies, sections);
    return sections;
}

/* NULL: fault has what is wrong, to be freed. */
static struct conf *change(const struct conf *conf, const char *name, const char *value, char **fault)
{
    const struct conf_setting setting = {slice_of(name), slice_of(value)};
    struct conf_faults faults;

    struct conf *changed = conf_change(conf, sections_of_all(), &setting, 1, &faults);
    *fault = faults.count > 0 ? conf_format("%s", faults.lines[0]) : NULL;
    conf_faults_free(&faults);
    return changed;
}

static struct conf *change_soundly(const struct conf *conf, const char *name, const char *value)
{
    char *fault;
    struct conf *changed = change(conf, name, value, &fault);

    cr_assert_not_null(changed, "%s = %s: %s", name, value, fault);
    return changed;
}

static struct conf *loaded(const char *text)
{
    return load_conf(text, sections_of_all());
}

static void assert_nothing_else_changes(const struct conf *conf, const char *path)
{
    struct conf *there = change_soundly(conf, "drain_timeout", "77s");
    char *initial = conf_value_text(conf_section_option(&conf_section_headgate, "drain_timeout"), conf);
    struct conf *back = change_soundly(there, "drain_timeout", initial);
    char *before = print_conf(conf, true), *after = print_conf(back, true);

    cr_assert_eq(there->drain_timeout, 77000, "%s", path);
    cr_assert_str_eq(before, after, "%s", path);
    cr_assert_eq(conf_server_count(conf), conf_server_count(back), "%s", path);
    free(before);
    free(after);
    free(initial);
    conf_free(there);
    conf_free(back);
}

Test(conf_change, what_is_sound_stays_so)
{
    static const char *const texts[] = {
        "[headgate]\n",
        "[headgate]\nupstream = redis://user:word@localhost:6379\n",
        "[headgate]\nhttp_names = \" a ; b \"\nhost_name = $${x}\n",
        "[headgate]\nlisten = unix:/tmp/a.sock, 127.0.0.1:7\nupstream_user = u\nupstream_password = \"p # q\"\n",
        "[headgate]\nupstream = sentinel://a:1,b:2/m\nsentinel_user = s\nsentinel_password = p\n",
        several,
    };

    for (size_t i = 0; i < sizeof texts / sizeof texts[0]; i++) {
        struct conf *conf = loaded(texts[i]);
        assert_nothing_else_changes(conf, texts[i]);
        conf_free(conf);
    }
}

Test(conf_change, examples_stay_as_they_are)
{
    struct conf_faults faults;
    glob_t found;

    cr_assert_eq(glob(HEADGATE_SOURCE_DIR "/conf/examples/*.ini", 0, NULL, &found), 0);
    cr_assert_gt(found.gl_pathc, 5);
    for (size_t i = 0; i < found.gl_pathc; i++) {
        struct conf *conf = conf_load(found.gl_pathv[i], sections_of_all(), &faults);
        cr_assert_not_null(conf, "%s", found.gl_pathv[i]);
        assert_nothing_else_changes(conf, found.gl_pathv[i]);
        conf_free(conf);
        conf_faults_free(&faults);
    }
    globfree(&found);
}

/* ---- a reload behind it ---- */

/* What a server has from [headgate], and credentials of clients, wait with the addresses that they were for; also when
 * something else is set. What they need is not taken from beside them. */
Test(conf_change, what_waits_goes_on_to)
{
    struct conf *conf = loaded("[headgate]\nlisten = h:1\nupstream = h:2\nallow = identity:x\n"
                               "[server:a]\nlisten = h:3\nupstream = h:4\nupstream_password = pa\n"
                               "[identity:x]\nupstream_password = px\naddress = ip:10.0.0.0/8\n");
    struct conf *fresh = loaded("[headgate]\nlisten = h:1\nupstream = h:2\n"
                                "[server:a]\nlisten = h:9\nupstream = h:5\n"
                                "[identity:x]\nupstream_password = new\naddress = ip:10.0.0.0/8\n"
                                "[identity:y]\nupstream_password = new\npeer = uid:0\n");
    struct conf *bare = loaded("[headgate]\nlisten = h:1\nupstream = h:2\n"),
                *merged = merge_conf(conf, fresh, sections_of_all());
    struct conf *changed = change_soundly(merged, "max_clients", "8");
    const struct conf *a = conf_server_at(changed, 1);
    char *shown = print_conf(changed, true);

    cr_assert_str_eq(changed->listener_terms.allow, "");
    cr_assert_str_eq(a->listener_terms.allow, "identity:x");
    cr_assert_str_eq(a->upstream_password, "pa");
    cr_assert_eq(a->max_clients, 8);
    cr_assert(strstr(shown, "password = px\n") != NULL && strstr(shown, "= new\n") == NULL, "%s", shown);
    conf_free(merged);
    merged = merge_conf(conf, bare, sections_of_all());
    free(shown);
    shown = print_conf(merged, true);
    cr_assert_not_null(strstr(shown, "password = px\n"), "%s", shown);
    free(shown);
    conf_free(bare);
    conf_free(changed);
    conf_free(merged);
    conf_free(fresh);
    conf_free(conf);
}

Test(conf_change, a_secret_is_neither_shown_nor_taken_for_its_stars)
{
    static const char *const pairs[][2] = {{"hush", "upstream_password"}, {"********", "is what a hidden secret"}};
    struct conf *conf = loaded(several);

    for (size_t i = 0; i < 2; i++) {
        char *fault;
        cr_assert_null(change(conf, "upstream_password", pairs[i][0], &fault));
        cr_assert(strstr(fault, pairs[i][1]) != NULL && strstr(fault, "hush") == NULL, "%s", fault);
        free(fault);
    }
    conf_free(conf);
}
