#include "sampler.h"

#include <inttypes.h>
#include <stdlib.h>

#include "random.h"

int sampler_create(int64_t samples, int64_t batch, uint64_t seed, sampler_t *out,
                   mlp_error_t *error)
{
    if (batch > samples)
        return mlp_fail(error,
                        "--batch: a step of %" PRId64 " samples over all ranks is more than the "
                        "training set has (%" PRId64 ")",
                        batch, samples);
    sampler_t sampler = {.samples = samples, .batch = batch, .seed = seed};
    sampler.order = malloc((size_t)samples * sizeof *sampler.order);
    if (sampler.order == NULL)
        return mlp_fail(error, "no memory for the order of %" PRId64 " samples", samples);
    for (int64_t i = 0; i < samples; i++)
        sampler.order[i] = (uint32_t)i;
    *out = sampler;
    return 0;
}

void sampler_free(sampler_t *sampler)
{
    free(sampler->order);
    sampler->order = NULL;
}

void sampler_shuffle(sampler_t *sampler, int64_t epoch)
{
    uint32_t *order = sampler->order;
    random_stream_t random = random_begin(sampler->seed, RANDOM_ORDER + (uint64_t)epoch);
    for (int64_t i = 0; i < sampler->samples; i++)
        order[i] = (uint32_t)i;
    for (int64_t i = sampler->samples - 1; i > 0; i--) {
        uint32_t j = random_below(&random, (uint64_t)i + 1);
        uint32_t moved = order[i];
        order[i] = order[j];
        order[j] = moved;
    }
}

int64_t sampler_steps_per_epoch(const sampler_t *sampler)
{
    return (sampler->samples + sampler->batch - 1) / sampler->batch;
}

void shard_range(int64_t count, int rank, int ranks, int64_t *first, int64_t *end)
{
    *first = count * rank / ranks;
    *end = count * (rank + 1) / ranks;
}

shard_t sampler_shard(const sampler_t *sampler, int64_t step, int rank, int ranks)
{
    int64_t start = step * sampler->batch;
    int64_t left = sampler->samples - start;
    int64_t global_count = left < sampler->batch ? left : sampler->batch;
    int64_t first;
    int64_t end;
    shard_range(global_count, rank, ranks, &first, &end);
    shard_t shard = {.indices = sampler->order + start + first,
                     .count = (int)(end - first),
                     .global_count = (int)global_count};
    return shard;
}
