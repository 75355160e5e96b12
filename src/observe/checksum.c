#include "observe/checksum.h"

#include <string.h>

/*
 * Four lanes take a word each in turn, so that a core's multipliers are busy: about as fast as
 * memory is read. In a lane every step can be undone, hence two inputs that differ in one word of a
 * lane never meet; the lanes are joined, with the length, by steps of the same kind.
 */
#define LANES 4
#define WORD sizeof(uint64_t)
#define SPREAD 0xd1b54a32d192ed03 /* odd */

/* Odd, and without a pattern in their bits: the fractional parts of the golden ratio and of the
 * square roots of 2, 3 and 5. */
static const uint64_t factors[LANES] = {0x9e3779b97f4a7c15, 0x6a09e667f3bcc909, 0xbb67ae8584caa73b,
                                        0x3c6ef372fe94f82b};

static uint64_t rotate(uint64_t value, int by)
{
    return value << by | value >> (64 - by);
}

/* The word is spread before it is added, and the lane after it: with one multiplication alone the
 * highest bit of a word would be the same as a lower one of the next. */
static uint64_t step(uint64_t lane, uint64_t word, uint64_t factor)
{
    return rotate(lane + word * SPREAD, 31) * factor;
}

static uint64_t load(const uint8_t *bytes)
{
    uint64_t word;
    memcpy(&word, bytes, sizeof word);
    return word;
}

/* Spreads every bit over all others. */
static uint64_t mix(uint64_t value)
{
    value = (value ^ value >> 32) * factors[1];
    value = (value ^ value >> 29) * factors[2];
    return value ^ value >> 32;
}

uint64_t dt_checksum(const void *bytes, size_t length)
{
    const uint8_t *at = bytes;
    size_t left = length;
    uint64_t lanes[LANES];
    memcpy(lanes, factors, sizeof lanes);
    for (; left >= LANES * WORD; left -= LANES * WORD, at += LANES * WORD) {
        for (int i = 0; i < LANES; i++)
            lanes[i] = step(lanes[i], load(at + (size_t)i * WORD), factors[i]);
    }
    for (int i = 0; left > 0; i++) {
        uint64_t word = 0;
        size_t part = left < WORD ? left : WORD;
        memcpy(&word, at, part);
        lanes[i] = step(lanes[i], word, factors[i]);
        at += part;
        left -= part;
    }
    uint64_t sum = length;
    for (int i = 0; i < LANES; i++)
        sum = step(sum, mix(lanes[i]), factors[i]);
    return mix(sum);
}
