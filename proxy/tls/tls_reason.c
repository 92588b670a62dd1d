/* What OpenSSL has against something, in words. */
#include "tls/tls_private.h"

#include <openssl/err.h>
#include <stdio.h>
#include <string.h>

/* Alerts are what the other side says; their texts are of the kind "sslv3 alert certificate expired". */
static const char *without_prefix(const char *reason, bool *is_alert)
{
    static const char *const prefixes[] = {"sslv3 alert ", "tlsv1 alert ", "tlsv13 alert "};

    for (size_t i = 0; i < sizeof prefixes / sizeof prefixes[0]; i++) {
        if (strncmp(reason, prefixes[i], strlen(prefixes[i])) == 0) {
            *is_alert = true;
            return reason + strlen(prefixes[i]);
        }
    }
    return reason;
}

void tls_reason(char *text, size_t size, const char *fallback)
{
    unsigned long error = ERR_get_error();
    const char *reason = ERR_SYSTEM_ERROR(error) ? strerror(ERR_GET_REASON(error)) : ERR_reason_error_string(error);
    bool is_alert = false;

    if (error == 0 || reason == NULL) {
        snprintf(text, size, "%s", fallback);
    } else {
        reason = without_prefix(reason, &is_alert);
        snprintf(text, size, "%s%s", is_alert ? "the other side says: " : "", reason);
    }
    ERR_clear_error();
}
