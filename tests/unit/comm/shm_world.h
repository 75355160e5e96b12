/*
 * shm_world.h - runs collectives on the shm backends of one node and compares what comes out with
 * the reduction of all ranks' inputs, bit for bit. For tests.
 */
#ifndef DT_TEST_SHM_WORLD_H
#define DT_TEST_SHM_WORLD_H

#include <stdint.h>

#include "comm/shm/shm.h"

#define SHM_WORLD_MAX 16
#define SHM_WORLD_TASKS_MAX 48
#define SHM_WORLD_HEAP (INT64_C(32) << 20)

typedef enum shm_place {
    SHM_PRIVATE = 0, /* all pieces of all ranks */
    SHM_LIBRARY = 1,
    SHM_ONE_PRIVATE = 2, /* one input or output of one rank; all else is in library memory */
    SHM_ANY_PLACE = 3    /* each piece of each rank at random */
} shm_place_t;

typedef enum shm_buffers {
    SHM_SEPARATE = 0,
    SHM_IN_PLACE = 1,
    SHM_ANY_BUFFERS = 2, /* each piece of each rank at random */
    SHM_NO_OUTPUT = 3    /* broadcast: the root's out is NULL */
} shm_buffers_t;

/* A collective; kind 0 is an allreduce, scales of 0 are 1, 0 pieces are one. */
typedef struct shm_task {
    dt_collective_kind_t kind;
    int64_t count;
    int num_pieces; /* of odd sizes, some of them empty */
    dtrain_dtype_t dtype;
    dtrain_op_t op;
    int root;
    shm_place_t place;
    shm_buffers_t buffers;
    double prescale, postscale;
} shm_task_t;

/* Who runs the ranks. */
typedef enum shm_driver {
    SHM_INTERLEAVED = 0, /* this thread, in a random order that the seed gives */
    SHM_THREADS = 1,     /* a thread a rank */
    SHM_PROCESSES = 2    /* a process a rank */
} shm_driver_t;

typedef struct shm_world shm_world_t;

/* For ranks on several nodes: what is done instead, and a context for it. */
typedef struct shm_variant {
    void (*make_nodes)(const shm_world_t *world, int64_t heap_bytes, dt_shm_node_t **nodes);
    void (*make_backend)(const shm_world_t *world, int rank, dt_shm_node_t *node,
                         dt_backend_t **backend);
    /* Of all ranks' vectors, into the first. */
    void (*reduce)(const shm_world_t *world, const dt_reduction_t *reduction, void **vectors,
                   int64_t count);
    void *context;
} shm_variant_t;

struct shm_world {
    int size;
    uint64_t seed; /* of inputs, cuts, places and the order of calls */
    shm_driver_t driver;
    dt_shm_tuning_t tuning;
    int64_t heap_bytes;           /* 0: SHM_WORLD_HEAP */
    const shm_variant_t *variant; /* NULL: one node */
    char why[512];                /* written: what was wrong, "" if nothing */
};

/* Runs tasks that are all in flight at once. 0, or -1 and the reason in `why`. */
int shm_world_run(shm_world_t *world, const shm_task_t *tasks, int num_tasks);

#endif
