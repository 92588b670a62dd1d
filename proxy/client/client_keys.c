/* Which command a frame is, and where its keys are. */
#include "client/client_cluster_private.h"

static bool note_key(void *context, struct slice key, uint32_t index)
{
    struct client_keys *keys = context;
    uint16_t slot = cluster_slot_of(key);

    (void)index;
    if (keys->has_key && slot != keys->slot) {
        keys->is_split = true;
        return false;
    }
    keys->has_key = true;
    keys->slot = slot;
    return true;
}

struct client_keys client_keys_of(const struct command *command, struct slice frame)
{
    struct client_keys keys = {.has_key = false};

    if (command != NULL) {
        command_visit_slotted(command, frame, note_key, &keys);
    }
    return keys;
}

const struct command *client_command_of(const struct client_service *service, struct slice frame)
{
    struct resp_walk walk = resp_walk_start(frame);
    struct slice name;

    if (!resp_walk_next(&walk, &name)) {
        return NULL;
    }
    const struct command *command = command_find(name);
    return command != NULL ? command : server_info_find(service->server_info, name);
}
