/* A certificate for servers on 127.0.0.1, which signs itself: whoever is to trust it is given the same file. */
#ifndef RIG_CERTIFICATE_H
#define RIG_CERTIFICATE_H

#include <stdbool.h>

/* Writes it and its key into files. False, told on standard error, if that fails. */
bool certificate_make(const char *certificate_path, const char *key_path);

#endif
