/* random.h - random numbers that are the same on every machine, and a checksum. */
#ifndef MLP_RANDOM_H
#define MLP_RANDOM_H

#include <stddef.h>
#include <stdint.h>

/* A SplitMix64 generator. */
typedef struct random_stream {
    uint64_t state;
} random_stream_t;

/* What a stream is for: streams of one seed with different purposes are unrelated. */
#define RANDOM_WEIGHTS 1
#define RANDOM_DATA 2
#define RANDOM_ORDER 1000 /* plus the epoch */

random_stream_t random_begin(uint64_t seed, uint64_t purpose);

uint64_t random_bits(random_stream_t *stream);

/* 0 to bound - 1, for bound from 1 to 2^32. */
uint32_t random_below(random_stream_t *stream, uint64_t bound);

/* From the normal distribution with mean 0 and variance 1. */
float random_normal(random_stream_t *stream);

/* Where a chain of checksum_bytes begins. */
#define CHECKSUM_START UINT64_C(14695981039346656037)

/* FNV-1a, 64 bits, continued from `sum`. */
uint64_t checksum_bytes(uint64_t sum, const void *bytes, size_t length);

#endif
