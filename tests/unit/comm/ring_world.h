/*
 * ring_world.h - runs collectives on rings over loopback transports and compares what comes out
 * with the reduction of all ranks' inputs, bit for bit. For tests.
 */
#ifndef DT_TEST_RING_WORLD_H
#define DT_TEST_RING_WORLD_H

#include <stdint.h>

#include "comm/ring/ring.h"
#include "jitter_p2p.h"

#define RING_WORLD_MAX 40
#define RING_WORLD_TASKS_MAX 8

typedef enum ring_buffers {
    RING_SEPARATE = 0,
    RING_IN_PLACE = 1,
    RING_NO_OUTPUT = 2 /* broadcast: the root's out is NULL */
} ring_buffers_t;

/* A collective; kind 0 is an allreduce, scales of 0 are 1. */
typedef struct ring_task {
    dt_collective_kind_t kind;
    int64_t count;
    dtrain_dtype_t dtype;
    dtrain_op_t op;
    int root;
    ring_buffers_t buffers;
    double prescale, postscale;
} ring_task_t;

/* Who runs the ranks. */
typedef enum ring_driver {
    RING_INTERLEAVED = 0, /* this thread, in a random order that the seed gives */
    RING_THREADS = 1      /* a thread a rank */
} ring_driver_t;

typedef struct ring_world {
    int size;
    uint64_t seed; /* of the inputs, of completion and of the order of calls */
    ring_driver_t driver;
    dt_ring_tuning_t tuning;
    jitter_report_t reports[RING_WORLD_MAX]; /* written */
    char why[256];                           /* written: what was wrong, "" if nothing */
} ring_world_t;

/* Runs tasks that are all in flight at once. 0, or -1 and the reason in `why`. */
int ring_world_run(ring_world_t *world, const ring_task_t *tasks, int num_tasks);

#endif
