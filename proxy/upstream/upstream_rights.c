/*
 * What users may do of what Headgate says, or answers, for their clients. Redis has shown it by its answers to what
 * clients asked; nobody else asks, as Redis writes down who was refused. Rights may be taken at Redis behind Headgate's
 * back: so what was shown holds for a while, and the next client who uses it asks Redis anew.
 */
#include "upstream/upstream_private.h"

/* The place of the right among the times. */
static size_t index_of(enum profile_right right)
{
    return (size_t)__builtin_ctz((unsigned int)right);
}

void profile_learn_right(struct profile *profile, enum profile_right right, const struct resp_reply *reply)
{
    if (resp_reply_starts(reply, "-NOPERM")) {
        profile->granted &= (uint8_t)~right;
        profile->denied |= (uint8_t)right;
    } else if (!resp_reply_is_error(reply)) {
        profile->granted |= (uint8_t)right;
        profile->denied &= (uint8_t)~right;
        profile->granted_us[index_of(right)] = reactor_now(profile->upstream->reactor);
    }
}

bool profile_has_right(const struct profile *profile, enum profile_right right)
{
    int64_t lasts_us = clock_ms_to_us(profile->upstream->settings.rights_last);
    int64_t since_us = reactor_now(profile->upstream->reactor) - profile->granted_us[index_of(right)];

    return (profile->granted & right) != 0 && (lasts_us == 0 || since_us < lasts_us);
}
