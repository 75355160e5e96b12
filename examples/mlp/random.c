#include "random.h"

#include <math.h>

static uint64_t mix(uint64_t bits)
{
    bits = (bits ^ (bits >> 30)) * UINT64_C(0xbf58476d1ce4e5b9);
    bits = (bits ^ (bits >> 27)) * UINT64_C(0x94d049bb133111eb);
    return bits ^ (bits >> 31);
}

random_stream_t random_begin(uint64_t seed, uint64_t purpose)
{
    /* Both are mixed before they meet, so that seed 1, purpose 2 is not seed 2, purpose 1. */
    random_stream_t stream = {mix(mix(seed + 1) + purpose)};
    return stream;
}

uint64_t random_bits(random_stream_t *stream)
{
    stream->state += UINT64_C(0x9e3779b97f4a7c15);
    return mix(stream->state);
}

uint32_t random_below(random_stream_t *stream, uint64_t bound)
{
    return (uint32_t)(((random_bits(stream) >> 32) * bound) >> 32);
}

float random_normal(random_stream_t *stream)
{
    /* Box and Muller's way; the first number is never 0, whose logarithm there is none. */
    double radius = (double)((random_bits(stream) >> 11) + 1) / 9007199254740992.0;
    double angle = (double)(random_bits(stream) >> 11) / 9007199254740992.0;
    return (float)(sqrt(-2.0 * log(radius)) * cos(2.0 * 3.14159265358979323846 * angle));
}

uint64_t checksum_bytes(uint64_t sum, const void *bytes, size_t length)
{
    const uint8_t *byte = bytes;
    for (size_t i = 0; i < length; i++)
        sum = (sum ^ byte[i]) * UINT64_C(1099511628211);
    return sum;
}
