/* The names that a client has subscribed to, in one block of memory: so that it can be subscribed at another node. */
#include "client/client_moves_private.h"

#include <stdlib.h>
#include <string.h>

struct client_channel client_channel_list_at(const struct client_channel_list *list, size_t at)
{
    struct client_channel channel;

    memcpy(&channel, list->entries + at, sizeof channel);
    return channel;
}

struct slice client_channel_list_name(const struct client_channel_list *list, size_t at)
{
    return (struct slice){list->entries + at + sizeof(struct client_channel), client_channel_list_at(list, at).length};
}

size_t client_channel_list_next(const struct client_channel_list *list, size_t at)
{
    return at + sizeof(struct client_channel) + client_channel_list_at(list, at).length;
}

void client_channel_list_set(struct client_channel_list *list, size_t at, enum client_channel_state state,
                             uint16_t place)
{
    struct client_channel channel = client_channel_list_at(list, at);

    channel.state = (uint8_t)state;
    channel.place = place;
    memcpy(list->entries + at, &channel, sizeof channel);
}

size_t client_channel_list_find(const struct client_channel_list *list, char kind, struct slice name)
{
    size_t at = 0;

    while (at < list->used &&
           (client_channel_list_at(list, at).kind != kind || !slice_equal(client_channel_list_name(list, at), name))) {
        at = client_channel_list_next(list, at);
    }
    return at;
}

static void take_away(struct client_channel_list *list, size_t at)
{
    size_t next = client_channel_list_next(list, at);

    memmove(list->entries + at, list->entries + next, list->used - next);
    list->used -= next - at;
}

void client_channel_list_forget(struct client_channel_list *list, char kind, struct slice name)
{
    size_t at = client_channel_list_find(list, kind, name);

    if (at < list->used) {
        take_away(list, at);
    }
}

void client_channel_list_forget_kind(struct client_channel_list *list, char kind)
{
    size_t at = 0;

    while (at < list->used) {
        if (client_channel_list_at(list, at).kind == kind) {
            take_away(list, at);
        } else {
            at = client_channel_list_next(list, at);
        }
    }
}

static bool make_room(struct client_channel_list *list, size_t size)
{
    size_t room = list->room > 0 ? list->room : 256;

    while (room < list->used + size) {
        room *= 2;
    }
    char *entries = room > CLIENT_CHANNELS_MAX ? NULL : realloc(list->entries, room);
    if (entries != NULL) {
        list->entries = entries;
        list->room = room;
    }
    return entries != NULL;
}

void client_channel_list_keep(struct client_channel_list *list, char kind, struct slice name, uint16_t place)
{
    const struct client_channel channel = {
        .length = (uint32_t)name.length, .kind = kind, .state = CLIENT_CHANNEL_HELD, .place = place};

    client_channel_list_forget(list, kind, name);
    if (name.length > CLIENT_CHANNELS_MAX || !make_room(list, sizeof channel + name.length)) {
        list->is_whole = false;
        return;
    }
    memcpy(list->entries + list->used, &channel, sizeof channel);
    if (name.length > 0) {
        memcpy(list->entries + list->used + sizeof channel, name.data, name.length);
    }
    list->used += sizeof channel + name.length;
}

int64_t client_channel_list_count(const struct client_channel_list *list, char kind)
{
    int64_t count = 0;

    for (size_t at = 0; at < list->used; at = client_channel_list_next(list, at)) {
        count += client_channel_list_at(list, at).kind == kind;
    }
    return count;
}

void client_channel_list_begin(struct client_channel_list *list)
{
    list->used = 0;
    list->is_whole = true;
}

void client_channel_list_free(struct client_channel_list *list)
{
    free(list->entries);
    *list = (struct client_channel_list){.is_whole = true};
}

void client_channel_list_write_request(const struct client_channel_list *list, size_t at, FILE *out)
{
    static const char *const commands[] = {
        ['c'] = "$9\r\nSUBSCRIBE\r\n", ['p'] = "$10\r\nPSUBSCRIBE\r\n", ['s'] = "$10\r\nSSUBSCRIBE\r\n"};
    struct client_channel channel = client_channel_list_at(list, at);
    struct slice name = client_channel_list_name(list, at);

    fprintf(out, "*2\r\n%s$%zu\r\n", commands[(unsigned char)channel.kind], name.length);
    fwrite(name.data, 1, name.length, out);
    fputs("\r\n", out);
}
