/*
 * sampler.h - which samples are in which global batch, and on which rank: dtrain.h says what a user
 * sees of it.
 *
 * An epoch's order is a keyed permutation of [0, n) that is computed element by element and never
 * stored: a Feistel network over the next power of two (at least 2^8, so that few samples are
 * shuffled well too), applied again while it leads outside. The key is drawn from seed and epoch.
 */
#ifndef DT_OPTIM_SAMPLER_H
#define DT_OPTIM_SAMPLER_H

#include <stdint.h>

#include <dtrain/dtrain.h>

#define DT_SAMPLER_KEYS 8 /* one for each round of the network */

typedef struct dt_permutation {
    uint64_t count;
    uint64_t keys[DT_SAMPLER_KEYS];
    int low_bits, high_bits; /* of a number that is permuted */
} dt_permutation_t;

dt_permutation_t dt_permutation_make(int64_t count, uint64_t seed, int64_t epoch);

/* Where `index` goes; both are in [0, count). */
int64_t dt_permutation_at(const dt_permutation_t *permutation, int64_t index);

struct dtrain_sampler {
    dtrain_sampler_desc_t desc;   /* rank and size are known here */
    int64_t num_batches;          /* of an epoch, at least 1 */
    int64_t epoch, batch;         /* the next one */
    dt_permutation_t permutation; /* of `epoch` */
};

/* `desc` names rank and size. What is refused leaves *out as it is. */
dtrain_status_t dt_sampler_make(const dtrain_sampler_desc_t *desc, dtrain_sampler_t *out);

/* As dtrain_sampler_next and so on; pointers were checked. */
dtrain_status_t dt_sampler_next(dtrain_sampler_t *sampler, int64_t *samples, int64_t cap,
                                dtrain_batch_t *batch);
dtrain_status_t dt_sampler_seek(dtrain_sampler_t *sampler, int64_t epoch, int64_t batch);
void dt_sampler_save(const dtrain_sampler_t *sampler, dtrain_sampler_state_t *state);
dtrain_status_t dt_sampler_restore(dtrain_sampler_t *sampler, const dtrain_sampler_state_t *state);

#endif
