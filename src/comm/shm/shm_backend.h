/* shm_backend.h - the backend of a node's ranks, and of sets of them. */
#ifndef DT_COMM_SHM_SHM_BACKEND_H
#define DT_COMM_SHM_SHM_BACKEND_H

#include "comm/shm/shm_eager.h"
#include "comm/shm/shm_stream.h"

/* Tasks whose memory is kept. */
#define DT_SHM_FREE_MAX 16

typedef struct dt_shm_backend {
    dt_backend_t base;
    dt_shm_node_t *node; /* of a set: the world's */
    dt_shm_heap_t *heap; /* likewise */
    dt_shm_tuning_t tuning;
    dt_shm_stream_t stream;
    dt_shm_eager_t *eager; /* NULL where there are other nodes, and of a set */
    dt_shm_task_t *free;   /* linked by `after` */
    int num_free;
    size_t sets_offset, set_bytes;        /* the world: regions of sets */
    struct dt_shm_backend *parent;        /* of a set */
    int index;                            /* of a set: of its region */
    dt_shm_past_t *own;                   /* of a set: what those that follow wait for */
    dt_shm_past_t *pasts[DT_SUBSETS_MAX]; /* the world: of the last set in each region; or NULL */
} dt_shm_backend_t;

/* What a backend without short inputs does. */
extern const dt_backend_ops_t dt_shm_plain_ops;

/* Fills in a stream's view of its ranks: heaps[r] and, at `offset` in it, its region. -1: no
 * memory.
 */
int dt_shm_backend_fill_stream(dt_shm_backend_t *shm, int rank, int size, uint8_t *const *heaps,
                               size_t offset);

/* Frees the tasks, the stream's own memory and the struct. */
void dt_shm_backend_free(dt_shm_backend_t *shm);

/* ---- shm_sets.c -------------------------------------------------------------------------- */

dtrain_status_t dt_shm_subset(dt_backend_t *backend, const int *ranks, int num_ranks, int set,
                              dt_backend_t **subset);

/* A set leaves. What it waited for, if it still did, or itself is what the next one waits for. */
void dt_shm_set_leave(dt_shm_backend_t *shm, int clean);

#endif
