/* How much memory the process has in use. */
#ifndef HEADGATE_RESIDENT_H
#define HEADGATE_RESIDENT_H

#include <stdint.h>

/* Bytes; 0 where it cannot be told. */
uint64_t resident_bytes(void);

#endif
