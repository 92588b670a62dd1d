#include "topology/cluster_slot.h"

static const uint16_t crc16_of_byte[4][256] = {
#include "topology/cluster_slot_table.inc"
};

/* Four bytes at a time: what each of them adds does not depend on the others. */
static uint16_t crc16(struct slice bytes)
{
    const unsigned char *data = (const unsigned char *)bytes.data;
    size_t fours = bytes.length / 4;
    unsigned int crc = 0;

    for (; fours > 0; fours--, data += 4) {
        crc = crc16_of_byte[3][crc >> 8 ^ data[0]] ^ crc16_of_byte[2][(crc & 0xff) ^ data[1]] ^
              crc16_of_byte[1][data[2]] ^ crc16_of_byte[0][data[3]];
    }
    for (size_t left = bytes.length % 4; left > 0; left--, data++) {
        crc = (crc << 8 & 0xff00) ^ crc16_of_byte[0][crc >> 8 ^ *data];
    }
    return (uint16_t)crc;
}

struct slice cluster_slot_tag(struct slice key)
{
    const char *open = key.length > 0 ? memchr(key.data, '{', key.length) : NULL;

    if (open == NULL) {
        return key;
    }
    size_t left = key.length - (size_t)(open + 1 - key.data);
    const char *close = left > 0 ? memchr(open + 1, '}', left) : NULL;
    if (close == NULL || close == open + 1) {
        return key;
    }
    return (struct slice){open + 1, (size_t)(close - open - 1)};
}

uint16_t cluster_slot_of(struct slice key)
{
    return crc16(cluster_slot_tag(key)) & (CLUSTER_SLOTS - 1);
}
