/*
 * Who may have which of the process' descriptors. The kernel gives out the lowest number that is free, so a number says
 * that at least as many are in use: clients, and lanes to Redis, do without those from places_for_all() on. These are
 * for who must be let in when all others are there. All goes by the limit as it is now.
 */
#ifndef HEADGATE_PLACES_H
#define HEADGATE_PLACES_H

#include <stdbool.h>
#include <stddef.h>

/* INT_MAX if there is none. */
int places_limit(void);
/* Lower numbers are for all. */
int places_for_all(void);
/* Whether none of these is free. */
bool places_are_short(void);
/* So many connections the admin port may have, and as many those who ask by HTTP: from 2 to 64. */
size_t places_of_port(void);

#endif
