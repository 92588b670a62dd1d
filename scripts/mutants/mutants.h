/* Included first in all that is compiled of a tree with mutants. */
#pragma once

enum { MUTANTS_MOST = 65536 };

extern unsigned char *mutants_reached; /* a byte each, shared by all processes that name the same file */
extern int mutants_active;

/* True when that one is active. It is noted as reached. */
static inline int mutants_is(int number)
{
    if (!mutants_reached[number]) {
        mutants_reached[number] = 1;
    }
    return mutants_active == number;
}

/* As in the build that the tests run with: CMakeLists.txt. */
#undef LANE_CROWD
#undef LANE_NEAR_US
#define LANE_CROWD 1
#define LANE_NEAR_US 1000000
