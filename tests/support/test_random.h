/*
 * test_random.h - random numbers for tests: the same on every machine for the same seed.
 */
#ifndef DT_TEST_RANDOM_H
#define DT_TEST_RANDOM_H

#include <stdint.h>

/* The next of a sequence (SplitMix64); any state is a good seed. */
static inline uint64_t test_random(uint64_t *state)
{
    uint64_t z = *state += UINT64_C(0x9e3779b97f4a7c15);
    z = (z ^ (z >> 30)) * UINT64_C(0xbf58476d1ce4e5b9);
    z = (z ^ (z >> 27)) * UINT64_C(0x94d049bb133111eb);
    return z ^ (z >> 31);
}

#endif
