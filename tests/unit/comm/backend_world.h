/*
 * backend_world.h - runs collectives of every kind on any backends, among all ranks and among sets
 * of them, and compares what comes out with a model in plain loops, bit for bit. For tests.
 */
#ifndef DT_TEST_BACKEND_WORLD_H
#define DT_TEST_BACKEND_WORLD_H

#include <stdint.h>

#include "comm/backend.h"

#define BACKEND_WORLD_MAX 12
#define BACKEND_TASKS_MAX 48
#define BACKEND_SETS_MAX 4

typedef enum backend_place {
    BACKEND_PRIVATE = 0, /* all buffers of all ranks */
    BACKEND_LIBRARY = 1, /* where the backend has such memory */
    BACKEND_ANY = 2      /* each buffer of each rank at random */
} backend_place_t;

/* A collective. Counts by rank are random up to `longest`, and a quarter of them 0; a count that is
 * the same for all is `longest`. */
typedef struct backend_task {
    dt_collective_kind_t kind;
    dtrain_dtype_t dtype;
    dtrain_op_t op;
    double prescale, postscale; /* 0: none */
    int set;                    /* 0: all ranks; s: world.sets[s - 1] */
    int root;                   /* in the set */
    int64_t longest;
    backend_place_t place;
    int in_place; /* where that has a meaning: by all; -1: each rank at random */
} backend_task_t;

typedef struct backend_set {
    int ranks[BACKEND_WORLD_MAX];
    int size;
    int number;
} backend_set_t;

typedef struct backend_world backend_world_t;

struct backend_world {
    int size;
    uint64_t seed;   /* of counts, inputs, places and the order of calls */
    int has_threads; /* a thread a rank; else all in this one, in a random order */
    const backend_set_t *sets;
    int num_sets;
    int keeps_sets; /* they exist before the run, in backends[s][]; else made and destroyed in it */
    /* Of rank r: [0]; of the sets: [s]. Not destroyed by a run. */
    dt_backend_t *backends[BACKEND_SETS_MAX + 1][BACKEND_WORLD_MAX];
    /* How vectors of all ranks of the world are combined, into the first; NULL: by dt_reduce. */
    void (*reduce)(const backend_world_t *world, const dt_reduction_t *reduction, void **vectors,
                   int64_t count);
    const void *context; /* for it */
    char why[512];       /* written: what was wrong, "" if nothing */
    void *rest;          /* written: buffers that backends may still use, after a run that failed */
};

/* A task of any kind among the world's ranks or a set's, of no more than `longest` elements. */
backend_task_t backend_any_task(const backend_world_t *world, int64_t longest, uint64_t *random);

/* Runs tasks that are all in flight at once. 0, or -1 and the reason in `why`. */
int backend_world_run(backend_world_t *world, const backend_task_t *tasks, int num_tasks);

/* After a run that failed, once the backends are destroyed. */
void backend_world_free_rest(backend_world_t *world);

#endif
