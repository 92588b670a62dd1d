#include "process/reload.h"

#include "base/log.h"
#include "policy/sections.h"
#include "process/descriptors.h"
#include "process/reload_report.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

struct acknowledgement {
    struct message message;
    struct reload *reload;
};

struct conf *reload_read(const char *path, const struct policy *const *policies, struct conf_faults *faults)
{
    const struct conf_section *sections[SECTIONS_MAX + 1];

    sections_list(policies, sections);
    return conf_load(path, sections, faults);
}

/* ---- the workers ---- */

static void tell_taken(struct reload *reload)
{
    void (*taken)(void *context) = reload->taken;

    reload->taken = NULL;
    if (taken != NULL) {
        taken(reload->taken_context);
    }
}

static void run_acknowledgement(struct message *message)
{
    struct acknowledgement *acknowledgement = (struct acknowledgement *)(void *)message;
    struct reload *reload = acknowledgement->reload;

    free(acknowledgement);
    if (*reload->has_ended) {
        return;
    }
    if (++reload->acknowledged == servers_workers(reload->servers)) {
        conf_free(reload->before);
        reload->before = NULL;
        supervisor_ready(reload->supervisor);
        tell_taken(reload);
        if (reload->is_wanted) {
            reload_soon(reload);
        }
    }
}

/* On a worker's thread. */
static void worker_took_conf(void *context)
{
    struct reload *reload = context;
    struct acknowledgement *acknowledgement = malloc(sizeof *acknowledgement);

    if (acknowledgement == NULL) {
        abort();
    }
    acknowledgement->message.run = run_acknowledgement;
    acknowledgement->reload = reload;
    mailbox_post(reload->mailbox, &acknowledgement->message);
}

static void put_in_force(struct reload *reload, struct conf *conf)
{
    reload->before = reload->conf;
    reload->conf = conf;
    reload->acknowledged = 0;
    log_set_format((enum log_format)conf->log_format);
    if (!log_open(conf->log_file, (enum log_level)conf->log_level)) {
        log_error("main", "cannot open log_file %s: %s; going on with the old one", conf->log_file, strerror(errno));
    }
    expiry_follow(reload->expiry, conf);
    descriptors_raise(conf);
    servers_reconfigure(reload->servers, conf, worker_took_conf, reload);
    descriptors_fit(reload->servers, conf, reload->descriptors);
}

/* ---- the file ---- */

void reload_watch(struct reload *reload, struct conf_faults *faults)
{
    file_watch_set(reload->watch, &faults->files, reload->conf->reload_on_change != 0);
}

void reload_note(struct reload *reload)
{
    for (size_t i = 0; i < reload->servers->count; i++) {
        stats_set(&reload->servers->list[i].stats, STATS_RELOAD_FAILED, 0);
        stats_set(&reload->servers->list[i].stats, STATS_LAST_RELOAD, (uint64_t)(clock_wall_us() / 1000000));
    }
}

static void count_success(struct reload *reload)
{
    for (size_t i = 0; i < reload->servers->count; i++) {
        stats_add(&reload->servers->list[i].stats, STATS_RELOADS, 1);
    }
    reload_note(reload);
}

static void count_failure(struct reload *reload)
{
    for (size_t i = 0; i < reload->servers->count; i++) {
        stats_add(&reload->servers->list[i].stats, STATS_RELOAD_FAILURES, 1);
        stats_set(&reload->servers->list[i].stats, STATS_RELOAD_FAILED, 1);
    }
}

char *reload_now(struct reload *reload, char **changes, void (*taken)(void *context), void *taken_context)
{
    const struct conf_section *sections[SECTIONS_MAX + 1];
    struct conf_faults faults;

    if (reload->before != NULL) {
        return conf_format("the last reload is still under way; try again\n");
    }
    supervisor_reloading(reload->supervisor);
    sections_list(reload->policies, sections);
    struct conf *fresh = reload_read(reload->path, reload->policies, &faults);
    struct conf *merged = fresh != NULL ? conf_merge_reloadable(reload->conf, fresh, sections, &faults) : NULL;
    if (merged == NULL) {
        conf_free(fresh);
        char *text = reload_report_log_faults(&faults);
        log_error("main", "the configuration was not reloaded: nothing was changed");
        count_failure(reload);
        reload_watch(reload, &faults);
        conf_faults_free(&faults);
        supervisor_ready(reload->supervisor);
        return text;
    }
    reload_report_log_warnings(&faults);
    char *told = reload_report_merge(reload->conf, fresh, merged);
    conf_free(fresh);
    reload->taken = taken;
    reload->taken_context = taken_context;
    put_in_force(reload, merged);
    count_success(reload);
    reload_watch(reload, &faults);
    conf_faults_free(&faults);
    log_info("main", "the configuration was reloaded");
    handover_pass_on(reload->handover, HANDOVER_RELOAD);
    if (changes != NULL) {
        *changes = told;
    } else {
        free(told);
    }
    return NULL;
}

void reload_soon(struct reload *reload)
{
    reload->is_wanted = reload->before != NULL;
    if (!reload->is_wanted) {
        free(reload_now(reload, NULL, NULL, NULL));
    }
}

static bool on_files_changed(void *context)
{
    struct reload *reload = context;

    if (reload->before != NULL) {
        return false;
    }
    log_info("main", "a file of the configuration has changed: reading it again");
    free(reload_now(reload, NULL, NULL, NULL));
    return true;
}

/* ---- values that are set at run time ---- */

char *reload_change(struct reload *reload, const struct conf_setting *settings, size_t count,
                    void (*taken)(void *context), void *taken_context)
{
    const struct conf_section *sections[SECTIONS_MAX + 1];
    struct conf_faults faults;
    char *text = NULL;

    if (reload->before != NULL) {
        return conf_format("the last change is still under way; try again\n");
    }
    sections_list(reload->policies, sections);
    struct conf *fresh = conf_change(reload->conf, sections, settings, count, &faults);
    if (fresh != NULL) {
        reload_report_log_warnings(&faults);
        reload_report_changes(reload->conf, fresh);
        reload->taken = taken;
        reload->taken_context = taken_context;
        put_in_force(reload, fresh);
        file_watch_turn(reload->watch, fresh->reload_on_change != 0);
    } else {
        text = reload_report_faults(&faults);
    }
    conf_faults_free(&faults);
    return text;
}

/* ---- beginning and end ---- */

bool reload_open(struct reload *reload, struct reactor *reactor)
{
    reload->watch = file_watch_new(reactor, on_files_changed, reload);
    return reload->watch != NULL;
}

void reload_close(struct reload *reload)
{
    if (reload->watch != NULL) {
        file_watch_free(reload->watch);
    }
    conf_free(reload->conf);
    if (reload->before != NULL) {
        conf_free(reload->before);
    }
}
