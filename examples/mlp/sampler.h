/* sampler.h - which samples are in which step, and on which rank.
 *
 * An epoch is a permutation of the training set, drawn from the seed and the epoch alone, and cut
 * into global batches. A global batch is cut into one shard a rank. So step k works on the same
 * samples at any number of ranks. Shards may differ in length by one, or be empty: each sample's
 * gradient is scaled by one over the global batch, and the sum over ranks is the mean. */
#ifndef MLP_SAMPLER_H
#define MLP_SAMPLER_H

#include <stdint.h>

#include "error.h"

typedef struct sampler {
    uint32_t *order; /* the epoch's permutation */
    int64_t samples;
    int64_t batch; /* samples of a step over all ranks; the epoch's last step may have fewer */
    uint64_t seed;
} sampler_t;

/* A rank's part of a step. */
typedef struct shard {
    const uint32_t *indices; /* valid until the next sampler_shuffle */
    int count;
    int global_count; /* over all ranks */
} shard_t;

/* -1 when `batch` is more than the set has, or memory ran out. Begins unshuffled. */
int sampler_create(int64_t samples, int64_t batch, uint64_t seed, sampler_t *out,
                   mlp_error_t *error);

/* Nothing for a sampler_t of zeros. */
void sampler_free(sampler_t *sampler);

/* Draws the order of `epoch`, whatever the order was before. */
void sampler_shuffle(sampler_t *sampler, int64_t epoch);

int64_t sampler_steps_per_epoch(const sampler_t *sampler);

/* The part of `rank` of `ranks` in step `step` of the epoch. */
shard_t sampler_shard(const sampler_t *sampler, int64_t step, int rank, int ranks);

/* The part [*first, *end) of `rank` when `count` things are dealt out as evenly as can be. */
void shard_range(int64_t count, int rank, int ranks, int64_t *first, int64_t *end);

#endif
