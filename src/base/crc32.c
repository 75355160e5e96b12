#include "base/crc32.h"

#include <string.h>

#define POLYNOMIAL 0xedb88320u /* bits reversed, as the sum is kept */

_Static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__, "eight bytes at once are little-endian");

void dt_crc32_init(dt_crc32_t *crc32)
{
    for (uint32_t byte = 0; byte < 256; byte++) {
        uint32_t sum = byte;
        for (int bit = 0; bit < 8; bit++)
            sum = sum >> 1 ^ (sum & 1 ? POLYNOMIAL : 0);
        crc32->table[0][byte] = sum;
    }
    for (int k = 1; k < 8; k++)
        for (int byte = 0; byte < 256; byte++) {
            uint32_t before = crc32->table[k - 1][byte];
            crc32->table[k][byte] = before >> 8 ^ crc32->table[0][before & 0xff];
        }
}

uint32_t dt_crc32_update(const dt_crc32_t *crc32, uint32_t sum, const void *bytes, size_t length)
{
    const uint32_t(*table)[256] = crc32->table;
    const uint8_t *at = bytes;
    sum = ~sum;
    for (; length >= 8; length -= 8, at += 8) {
        uint64_t next;
        memcpy(&next, at, sizeof next);
        next ^= sum;
        sum = table[7][next & 0xff] ^ table[6][next >> 8 & 0xff] ^ table[5][next >> 16 & 0xff] ^
              table[4][next >> 24 & 0xff] ^ table[3][next >> 32 & 0xff] ^
              table[2][next >> 40 & 0xff] ^ table[1][next >> 48 & 0xff] ^ table[0][next >> 56];
    }
    for (; length > 0; length--, at++)
        sum = sum >> 8 ^ table[0][(sum ^ *at) & 0xff];
    return ~sum;
}
