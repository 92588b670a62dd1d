/* Credentials that the configuration has for identities: their profiles are adopted, and given back. */
#include "upstream/upstream_private.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

/* False when memory is short. */
static bool adopt(struct profile *profile, const char *identity)
{
    char *name = strdup(identity);

    if (name == NULL) {
        return false;
    }
    free(profile->identity);
    profile->identity = name;
    profile->adoptions++;
    return true;
}

struct profile *upstream_adopt(struct upstream *upstream, const char *identity, const char *user, const char *password)
{
    /* profile_get() copies the texts. */
    struct profile wanted = {
        .user = *user != '\0' ? (char *)(uintptr_t)user : NULL,
        .password = (char *)(uintptr_t)password,
        .resp = 2,
    };
    struct profile *profile = profile_get(upstream, &wanted);

    if (profile != NULL && !adopt(profile, identity)) {
        profile_release(profile);
        return NULL;
    }
    return profile;
}

struct profile *upstream_adopt_again(struct profile *before, const char *identity, const char *password)
{
    if (!adopt(before, identity)) {
        return NULL;
    }
    profile_reference(before);
    if (password != NULL) {
        upstream_renew_password(before->upstream, before->user, before->password, password);
    }
    return before;
}

void upstream_disown(struct profile *profile)
{
    assert(profile->adoptions > 0);
    if (--profile->adoptions == 0) {
        free(profile->identity);
        profile->identity = NULL;
        upstream_drop_renewal(profile);
    }
    profile_release(profile);
}
