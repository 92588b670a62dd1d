#include "process/files.h"

#include "base/log.h"

#include <errno.h>
#include <fcntl.h>
#include <unistd.h>

/* Sockets must never get the numbers of the standard streams, which code of others may write to. */
void files_hold_standard_streams(void)
{
    int fd;

    do {
        fd = open("/dev/null", O_RDWR);
    } while (fd >= 0 && fd <= STDERR_FILENO);
    if (fd > STDERR_FILENO) {
        close(fd);
    }
}

/* A file that is made here belongs to the user who will open it anew, if that user may make it. Otherwise root makes
 * it, unless the user has a say in which file that would be: it stays open, to be written to by the user from then on.
 */
bool files_open_log(const struct conf *conf, const struct privileges *privileges)
{
    enum log_level level = (enum log_level)conf->log_level;

    log_set_format((enum log_format)conf->log_format);
    if (privileges->drops && log_is_file(conf->log_file)) {
        bool opened = privileges_suspend(privileges) && log_open(conf->log_file, level);
        int error = errno;
        if (!privileges_resume(privileges)) {
            return false;
        }
        if (opened || privileges_may_exchange(privileges, conf->log_file)) {
            errno = error;
            return opened;
        }
    }
    return log_open(conf->log_file, level);
}

/* What root could read, and who we are now cannot, the next reload will miss. */
void files_warn(const struct conf *conf, const struct conf_files *files)
{
    for (size_t i = 0; i < files->count; i++) {
        const struct conf_seen *seen = &files->items[i];
        if (!seen->is_pattern && !seen->is_within && access(seen->path, R_OK) != 0) {
            log_warning("main", "user %s cannot read %s: no reload will succeed", conf->user, seen->path);
        }
    }
    if (log_is_file(conf->log_file) && access(conf->log_file, W_OK) != 0) {
        log_warning("main", "user %s cannot write %s: it cannot be opened anew", conf->user, conf->log_file);
    }
}
