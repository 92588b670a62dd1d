/* The owner of lanes on which nothing but replies is waited for. */
#include "upstream/lane.h"

/* Pushes are for nobody: nothing was asked for that has any. */
void lane_unheard_bytes(void *owner, const char *data, size_t length)
{
    (void)owner;
    (void)data;
    (void)length;
}

/* What is neither a push nor an answer is the rest of an error in several lines. */
bool lane_unheard_frame(void *owner, const struct resp_reply *reply)
{
    struct lane *const *lane = owner;

    (*lane)->dirty = (*lane)->dirty || reply->type != '>';
    return reply->type == '>';
}

/* Its runs were told before. */
void lane_unheard_broken(void *owner, const char *why)
{
    (void)owner;
    (void)why;
}

const struct lane_owner lane_unheard_owner = {
    .bytes = lane_unheard_bytes,
    .frame = lane_unheard_frame,
    .broken = lane_unheard_broken,
};
