/*
 * hier_world.h - runs collectives on the backends of a world of several nodes, whose messages are
 * loopback's, and compares what comes out bit for bit with the reduction in the order that hier.h
 * promises. For tests.
 */
#ifndef DT_TEST_HIER_WORLD_H
#define DT_TEST_HIER_WORLD_H

#include "backend_world.h"
#include "comm/loopback/loopback.h"
#include "comm/ring/ring.h"
#include "jitter_p2p.h"
#include "shm_world.h"

typedef struct hier_world {
    int num_nodes, local_size;
    int is_scattered; /* ranks are dealt out to the nodes in turn, and not node by node */
    uint64_t seed;
    shm_driver_t driver;                    /* not processes */
    dt_shm_tuning_t tuning;                 /* of the nodes' shared memory */
    dt_ring_tuning_t ring;                  /* between nodes */
    int64_t flat_bytes;                     /* as in dt_hier_tuning_t */
    int64_t fail_after;                     /* calls after which messages fail; 0: never */
    jitter_report_t reports[SHM_WORLD_MAX]; /* written */
    dt_loopback_t *loopback;                /* between open and close */
    char why[512];
} hier_world_t;

/* Runs tasks that are all in flight at once. 0, or -1 and the reason in `why`. */
int hier_world_run(hier_world_t *world, const shm_task_t *tasks, int num_tasks);

/* The same ranks for collectives of all kinds; backends->backends[0] is filled in. */
void hier_world_open(hier_world_t *world, backend_world_t *backends);
void hier_world_close(hier_world_t *world, backend_world_t *backends);

#endif
