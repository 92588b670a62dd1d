/* Certificates for servers and clients on 127.0.0.1, and the authorities that sign them. */
#ifndef RIG_CERTIFICATE_H
#define RIG_CERTIFICATE_H

#include <stdbool.h>
#include <stddef.h>

struct authority;

/* NULL, told on standard error, if none can be made. number: in its name. */
struct authority *authority_make(unsigned number);
/* Harmless for NULL. */
void authority_free(struct authority *authority);

/* What a certificate says. */
struct authority_subject {
    const char *name;
    unsigned serial; /* above 0 */
};

/* Writes a certificate that is good for 127.0.0.1, and its key, into files, each at once. False, told on standard
 * error, if that fails. */
bool authority_issue(const struct authority *authority, struct authority_subject subject, const char *certificate_path,
                     const char *key_path);
/* Writes the certificates of so many authorities into one file at once. False, told on standard error, if that fails.
 */
bool authority_write(struct authority *const authorities[], size_t count, const char *path);

#endif
