/*
 * shm_eager.h - short inputs that a rank lays out before all ranks have agreed to reduce them: once
 * they have, nobody waits for anybody. That saves a message's way for each of them, which is most
 * of what a short allreduce takes, the more so where ranks share cores and wait for their turn.
 *
 * Every rank's heap has two places for each slot, used in turn. A rank goes on to the other place
 * when it takes a slot, which all ranks do equally often. So a place is written again only after
 * its rank has taken the slot once more; by then every rank has posted there again, and had read
 * the old place before that.
 */
#ifndef DT_COMM_SHM_SHM_EAGER_H
#define DT_COMM_SHM_SHM_EAGER_H

#include "comm/backend.h"

/* Of each heap. */
#define DT_SHM_EAGER_BYTES ((size_t)DT_EAGER_SLOTS * 2 * DT_EAGER_BYTES)

typedef struct dt_shm_eager {
    uint8_t **places; /* by rank */
    int rank, size;
    const void **sources;           /* scratch, size entries */
    uint8_t second[DT_EAGER_SLOTS]; /* which of the two places is next */
} dt_shm_eager_t;

/* `places` is copied: DT_SHM_EAGER_BYTES of each rank's heap. NULL when memory ran out. */
dt_shm_eager_t *dt_shm_eager_create(uint8_t *const *places, int rank, int size);
void dt_shm_eager_free(dt_shm_eager_t *eager);

/* See dt_backend_ops_t. */
void dt_shm_eager_post(dt_shm_eager_t *eager, uint32_t slot, const void *in, size_t bytes);
void dt_shm_eager_take(dt_shm_eager_t *eager, uint32_t slot, const dt_reduction_t *reduction,
                       void *out, size_t count);
void dt_shm_eager_collect(dt_shm_eager_t *eager, uint32_t slot, void *out, size_t bytes);

#endif
