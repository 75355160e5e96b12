#include "optim/sampler.h"

#include <inttypes.h>

#include "base/share.h"
#include "base/status.h"

#define MOST_SAMPLES (INT64_C(1) << 62)
#define LEAST_BITS 8

/* ---- The permutation ------------------------------------------------------------------------- */

/* A bijection of 64 bits in which every bit of the input has a say in every bit of the output
 * (splitmix64's). These numbers, and the order of the rounds, are part of what dtrain.h promises.
 */
static uint64_t mix(uint64_t x)
{
    x = (x ^ x >> 30) * 0xbf58476d1ce4e5b9u;
    x = (x ^ x >> 27) * 0x94d049bb133111ebu;
    return x ^ x >> 31;
}

dt_permutation_t dt_permutation_make(int64_t count, uint64_t seed, int64_t epoch)
{
    const uint64_t golden = 0x9e3779b97f4a7c15u;
    dt_permutation_t permutation = {.count = (uint64_t)count};
    int bits = LEAST_BITS;
    while (bits < 62 && UINT64_C(1) << bits < permutation.count)
        bits++;
    permutation.low_bits = bits / 2;
    permutation.high_bits = bits - bits / 2;
    uint64_t state = mix(mix(seed + golden) + (uint64_t)epoch);
    for (int i = 0; i < DT_SAMPLER_KEYS; i++)
        permutation.keys[i] = mix(state += golden);
    return permutation;
}

/* Each half in turn is changed by what the other one is: that can be undone, so no two numbers
 * lead to the same. */
static uint64_t scramble(const dt_permutation_t *permutation, uint64_t x)
{
    const uint64_t low_mask = (UINT64_C(1) << permutation->low_bits) - 1;
    const uint64_t high_mask = (UINT64_C(1) << permutation->high_bits) - 1;
    uint64_t low = x & low_mask, high = x >> permutation->low_bits;
    for (int i = 0; i < DT_SAMPLER_KEYS; i += 2) {
        high ^= mix(low + permutation->keys[i]) & high_mask;
        low ^= mix(high + permutation->keys[i + 1]) & low_mask;
    }
    return high << permutation->low_bits | low;
}

int64_t dt_permutation_at(const dt_permutation_t *permutation, int64_t index)
{
    uint64_t x = (uint64_t)index;
    do
        x = scramble(permutation, x);
    while (x >= permutation->count);
    return (int64_t)x;
}

/* ---- Checks ---------------------------------------------------------------------------------- */

static dtrain_status_t refuse(const char *what, int64_t value, const char *must)
{
    return dt_fail(DTRAIN_ERR_INVALID_ARGUMENT, "dtrain_sampler_desc_t: %s is %" PRId64 "; %s",
                   what, value, must);
}

static dtrain_status_t check(const dtrain_sampler_desc_t *desc)
{
    if (desc->num_samples < 1 || desc->num_samples > MOST_SAMPLES)
        return refuse("num_samples", desc->num_samples, "it must be 1 to 2^62");
    if (desc->global_batch < 1)
        return refuse("global_batch", desc->global_batch, "it must be at least 1");
    if (desc->size < 1)
        return refuse("size", desc->size, "it must not be negative");
    if (desc->rank < 0 || desc->rank >= desc->size)
        return refuse("rank", desc->rank, "it must be at least 0 and below size");
    if (desc->reserved != 0)
        return refuse("reserved", desc->reserved, "it must be 0");
    if (desc->order != DTRAIN_SAMPLER_SHUFFLED && desc->order != DTRAIN_SAMPLER_SEQUENTIAL)
        return refuse("order", desc->order, "it must be a dtrain_sampler_order_t");
    if (desc->last_batch != DTRAIN_SAMPLER_LAST_SHORT &&
        desc->last_batch != DTRAIN_SAMPLER_LAST_DROPPED)
        return refuse("last_batch", desc->last_batch, "it must be a dtrain_sampler_last_t");
    if (desc->last_batch == DTRAIN_SAMPLER_LAST_DROPPED && desc->global_batch > desc->num_samples)
        return refuse("global_batch", desc->global_batch,
                      "it must not be above num_samples when a short last batch is dropped");
    return DTRAIN_OK;
}

dtrain_status_t dt_sampler_make(const dtrain_sampler_desc_t *desc, dtrain_sampler_t *out)
{
    dtrain_status_t status = check(desc);
    if (status != DTRAIN_OK)
        return status;
    dtrain_sampler_t sampler = {.desc = *desc};
    sampler.num_batches = desc->num_samples / desc->global_batch;
    if (desc->last_batch == DTRAIN_SAMPLER_LAST_SHORT &&
        desc->num_samples % desc->global_batch != 0)
        sampler.num_batches++;
    *out = sampler;
    return dt_sampler_seek(out, 0, 0);
}

/* ---- Batches --------------------------------------------------------------------------------- */

dtrain_status_t dt_sampler_seek(dtrain_sampler_t *sampler, int64_t epoch, int64_t batch)
{
    if (epoch < 0 || batch < 0 || batch >= sampler->num_batches)
        return dt_fail(DTRAIN_ERR_INVALID_ARGUMENT,
                       "epoch %" PRId64 ", batch %" PRId64 ": epochs begin at 0 and have %" PRId64
                       " batches",
                       epoch, batch, sampler->num_batches);
    sampler->epoch = epoch;
    sampler->batch = batch;
    sampler->permutation =
        dt_permutation_make(sampler->desc.num_samples, sampler->desc.seed, epoch);
    return DTRAIN_OK;
}

static void advance(dtrain_sampler_t *sampler)
{
    if (sampler->batch + 1 < sampler->num_batches)
        sampler->batch++;
    else
        dt_sampler_seek(sampler, sampler->epoch + 1, 0);
}

dtrain_status_t dt_sampler_next(dtrain_sampler_t *sampler, int64_t *samples, int64_t cap,
                                dtrain_batch_t *batch)
{
    const dtrain_sampler_desc_t *desc = &sampler->desc;
    int64_t start = sampler->batch * desc->global_batch;
    int64_t global_count = desc->num_samples - start;
    if (global_count > desc->global_batch)
        global_count = desc->global_batch;
    int64_t begin, end;
    dt_share(global_count, desc->rank, desc->size, &begin, &end);
    if (end - begin > cap)
        return dt_fail(DTRAIN_ERR_INVALID_ARGUMENT,
                       "room for %" PRId64 " samples, but rank %d of %d has %" PRId64
                       " of a batch of %" PRId64,
                       cap, (int)desc->rank, (int)desc->size, end - begin, global_count);
    for (int64_t i = begin; i < end; i++)
        samples[i - begin] = desc->order == DTRAIN_SAMPLER_SEQUENTIAL
                                 ? start + i
                                 : dt_permutation_at(&sampler->permutation, start + i);
    batch->epoch = sampler->epoch;
    batch->batch = sampler->batch;
    batch->num_batches = sampler->num_batches;
    batch->count = end - begin;
    batch->first = begin;
    batch->global_count = global_count;
    advance(sampler);
    return DTRAIN_OK;
}

/* ---- State ----------------------------------------------------------------------------------- */

void dt_sampler_save(const dtrain_sampler_t *sampler, dtrain_sampler_state_t *state)
{
    state->order = sampler->desc.order;
    state->last_batch = sampler->desc.last_batch;
    state->reserved = 0;
    state->num_samples = sampler->desc.num_samples;
    state->global_batch = sampler->desc.global_batch;
    state->seed = sampler->desc.seed;
    state->epoch = sampler->epoch;
    state->batch = sampler->batch;
}

static dtrain_status_t differs(const char *what, int64_t saved, int64_t here)
{
    return dt_fail(DTRAIN_ERR_INVALID_ARGUMENT,
                   "the state is of a sampler with %s %" PRId64 "; this one has %" PRId64, what,
                   saved, here);
}

dtrain_status_t dt_sampler_restore(dtrain_sampler_t *sampler, const dtrain_sampler_state_t *state)
{
    const dtrain_sampler_desc_t *desc = &sampler->desc;
    if (state->num_samples != desc->num_samples)
        return differs("num_samples", state->num_samples, desc->num_samples);
    if (state->global_batch != desc->global_batch)
        return differs("global_batch", state->global_batch, desc->global_batch);
    if (state->seed != desc->seed)
        return differs("seed", (int64_t)state->seed, (int64_t)desc->seed);
    if (state->order != desc->order)
        return differs("order", state->order, desc->order);
    if (state->last_batch != desc->last_batch)
        return differs("last_batch", state->last_batch, desc->last_batch);
    return dt_sampler_seek(sampler, state->epoch, state->batch);
}
